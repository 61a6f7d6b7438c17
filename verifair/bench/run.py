"""The run: every case through every competitor, in turns, each measurement kept as it is made. Reads top to bottom in `run`.

Cases come smallest first. Within a case all competitors answer once, then all again, each round in an order rotated by one, so that
a machine that gets slower or warmer gets so for all of them. Who took more than a fifth of the limit is asked once only: long runs
vary little, and cost most. Who ran out of time on `patience` cases of a family in a row, smaller or as large, is not asked about
larger ones: recorded as unknown, "skipped".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from verifair.bench.cases.family import BenchCase
from verifair.bench.competitors import Competitor
from verifair.bench.questions import fingerprint, subject
from verifair.bench.records import LICENCE, SKIPPED, BenchRecord, Journal, unknown
from verifair.bench.worker import Measured, measure

HOPELESS = ("time", "memory", LICENCE)
"""Reasons that a larger case of the same family will not change."""

LONG = 0.2
"""Share of the limit from which on a run is not repeated."""


def run(
    cases: Sequence[BenchCase], competitors: Sequence[Competitor], journal: Journal, *,
    limit: float, repeats: int, patience: int, progress: Callable[[int, int, str], None] | None = None,
) -> None:
    """Ask what the journal does not hold yet. limit: seconds a run.   progress: runs done and in all, and what is asked now.

    Ctrl-C raises KeyboardInterrupt; the journal keeps what was measured.
    """
    tell = progress or (lambda done, total, now: None)
    total, done = len(cases) * len(competitors) * repeats, 0
    for turn, case in enumerate(in_turns(cases)):
        question = case.question()
        marks = fingerprint(question), subject(question)
        able = [one for one in competitors if one.takes(question)]
        done += (len(competitors) - len(able)) * repeats
        for repeat in range(repeats):
            for one in rotated(able, turn + repeat):
                tell(done, total, f"{case.name} {one.name}")
                done += 1
                known = journal.holds(case.name, one.name, repeat, marks[0], one.version)
                if known or _pointless(journal, case, one, repeat):
                    continue
                if repeat == 0 and worn_out(journal, cases, case, one, patience):
                    note = f"not asked: {patience} cases of the family in a row, no larger, took too much"
                    found = Measured(answered=unknown(SKIPPED, note), total_seconds=0.0, peak_mb=None, base_mb=None)
                else:
                    found = measure(one, question, seconds=limit, seed=case.seed)
                journal.add(_record(case, one, found, marks, repeat, limit))
    tell(total, total, "")


def in_turns(cases: Sequence[BenchCase]) -> list[BenchCase]:
    """Return the smallest case of every family, then the next of each: a run that ends early has seen them all."""
    position: dict[str, int] = {}
    ranked = []
    for case in cases:
        position[case.family.name] = position.get(case.family.name, -1) + 1
        ranked.append((position[case.family.name], case))
    return [case for _, case in sorted(ranked, key=lambda pair: pair[0])]


def rotated(competitors: Sequence[Competitor], by: int) -> list[Competitor]:
    """Return the same competitors, starting with another one."""
    start = by % len(competitors) if competitors else 0
    return [*competitors[start:], *competitors[:start]]


def worn_out(journal: Journal, cases: Sequence[BenchCase], case: BenchCase, competitor: Competitor, patience: int) -> bool:
    """Tell whether the last `patience` cases of the family before this one were all too much for the competitor."""
    own = [other.name for other in cases if other.family.name == case.family.name]
    before = own[: own.index(case.name)]
    said = [journal.records.get((name, competitor.name, 0)) for name in before]
    last = [record for record in said if record is not None][-patience:]
    return patience > 0 and len(last) == patience and all(record.reason in (*HOPELESS, SKIPPED) for record in last)


def _pointless(journal: Journal, case: BenchCase, competitor: Competitor, repeat: int) -> bool:
    """Tell whether the first round has shown that another one takes long again, or fails again."""
    first = journal.records.get((case.name, competitor.name, 0))
    if repeat == 0 or first is None:
        return False
    return first.reason in (*HOPELESS, SKIPPED) or first.total_seconds > LONG * first.limit


def _record(
    case: BenchCase, competitor: Competitor, found: Measured, marks: tuple[str, str], repeat: int, limit: float
) -> BenchRecord:
    """Return the record of a measurement. marks: fingerprints of the question and of its subject."""
    said = found.answered
    return BenchRecord(
        **{**vars(said), "version": competitor.version, "peak_mb": found.peak_mb},
        case=case.name, family=case.family.name, kind=case.family.kind, size=case.size, question=marks[0], subject=marks[1],
        method=competitor.method, solver=competitor.solver, repeat=repeat, seed=case.seed, limit=limit,
        build_seconds=None if said.solve_seconds is None else max(found.total_seconds - said.solve_seconds, 0.0),
        total_seconds=found.total_seconds, base_mb=found.base_mb,
    )
