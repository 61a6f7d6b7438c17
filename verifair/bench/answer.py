"""The JSON of `verifair bench`: measured runs, scores, and contradictions if there are any."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from verifair.bench.records import ReplyStatus
from verifair.systems.results.result import Answer, Count, Seconds, Seed, Shape


class CaseShape(Shape):
    case: str
    family: str
    kind: str
    size: int


class CompetitorShape(Shape):
    name: str
    available: bool
    version: str
    install: str
    """How to install it."""


class RunShape(Shape):
    """One measured run. Seconds on the clock; memory beyond what the process held before."""

    case: str
    family: str
    kind: str
    size: int
    question: str
    """Fingerprint."""
    subject: str
    method: str
    solver: str | None
    version: str
    repeat: Count
    seed: Seed
    limit: Seconds
    status: ReplyStatus
    reason: str | None
    trust: str
    lower: float | None
    upper: float | None
    comparable: bool
    build_seconds: Seconds | None
    solve_seconds: Seconds | None
    total_seconds: Seconds
    """Without `startup_seconds`."""
    cpu_seconds: Seconds | None
    """CPU seconds of the run and all processes that it started."""
    startup_seconds: Seconds
    """Start-up time of another verifier's processes; 0 for others."""
    peak_mb: float | None
    base_mb: float | None
    engine: str
    note: str


class ContradictionShape(Shape):
    what: str
    answers: Annotated[list[RunShape], Field(min_length=2, max_length=2)]


class ScoreShape(Shape):
    """The score of a competitor over a kind of questions, or over one family of them."""

    kind: str
    family: str
    competitor: str
    cases: Count
    taken: Count
    solved: Count
    claimed: Count
    par2: Annotated[float, Field(alias="PAR-2")]
    """Mean seconds; what was not solved counts twice the limit."""
    seeds: Count
    spread: Annotated[float | None, Field(alias="PAR-2 sd")]
    """Standard deviation of PAR-2 between seeds; null for one seed."""
    median: Annotated[float | None, Field(alias="median s")]
    peak: Annotated[float | None, Field(alias="peak MB")]
    open_for: Annotated[str, Field(alias="mostly open for")]


class BenchListAnswer(Answer):
    """`verifair bench --list`: cases and competitors."""

    registry: list[CaseShape]
    competitors: list[CompetitorShape]


class JobShape(Shape):
    """The best competitor for one family at one size."""

    family: str
    size: int
    cases: Count
    best: str | None
    """Null: nobody solves anything."""
    seconds: float | None
    """PAR-2 of the best."""
    trust: str
    default: str
    default_seconds: float | None


class DefaultShape(Shape):
    """The comparison of a method's default backend with the best one."""

    kind: str
    method: str
    cases: Count
    default: str
    default_par2: float
    default_solved: Count
    best: str
    best_par2: float
    best_solved: Count


class BenchAnswer(BenchListAnswer):
    """`verifair bench`: the same questions by every method and solver that is installed."""

    cases: Count
    questions_put: Count
    """Cases times those who take them."""
    decided: Count
    runs: Count
    limit: Seconds
    """Granted to a run."""
    disagreements: list[ContradictionShape]
    scores: list[ScoreShape]
    jobs: list[JobShape]
    defaults: list[DefaultShape]
    records: list[RunShape]
    interrupted: bool
    seed: Seed
