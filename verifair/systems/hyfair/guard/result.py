"""What `guard` made, and what it changes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, InstanceOf

from encoders.network import Array
from verifair.engine.queries import KDiscrimination
from verifair.systems.hyfair.explain.rules_file import RuleFile
from verifair.systems.hyfair.guard.effects import Effect
from verifair.systems.hyfair.guard.tighten import Tightened
from verifair.systems.results.result import Count, Seconds, Seed, Shape, SystemAnswer
from verifair.systems.results.verdicts import Gap


class StepShape(Shape):
    rules: Count
    lower: float
    """The largest gap met outside the rules."""
    upper: float | None
    """The largest there can be outside the rules, certified."""


class CertifiedGap(Gap):
    """Rules made from counterexamples, and the largest gap that is left outside of them."""

    steps: list[StepShape]


class InstanceCounts(Shape):
    people: Count
    rows: Count


class GuardResult(SystemAnswer):
    """`verifair guard`: a network that refuses what rules say."""

    guarded: str
    """The ONNX file."""
    schema_file: Annotated[str, Field(alias="schema")]
    rules: list[str]
    certified: CertifiedGap | None
    retrained: str | None
    instances: InstanceCounts | None
    """Added for retraining."""
    effects: list[Effect]
    seconds: Seconds
    seed: Seed
    query: InstanceOf[KDiscrimination] = Field(exclude=True)
    given: RuleFile = Field(exclude=True)
    tightened: InstanceOf[Tightened] | None = Field(exclude=True)
    raw: Array | None = Field(exclude=True)
    earlier: int = Field(exclude=True)
    """Rules of the guardrail that the schema was made for."""
    model: Path = Field(exclude=True)
    certificate: Path | None = Field(exclude=True)


ANSWERS = {"guard": GuardResult}
