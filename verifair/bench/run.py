"""The run: every case by every competitor, in turns, each measurement stored at once. Start reading at `run`.

Cases come smallest first. Within a case all competitors answer once, then all again, each round in an order rotated by one, so that
a machine that gets slower or warmer affects all of them. A competitor that took more than a fifth of the limit is asked once only:
long runs vary little, and cost most. A competitor that ran out of time on `patience` cases of a family in a row is not asked about
larger ones: these are recorded as unknown, "skipped".

Several processes, or the workers of a cluster, each measure whole cases: the competitors of a case always answer side by side on
one machine. Unless `patience` is 0, cases measured at the same time are of different families, so that the same cases are
skipped as by one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, zip_longest
from multiprocessing import current_process

import joblib

from verifair.bench.cases.family import BenchCase
from verifair.bench.competitors import Competitor, lacking
from verifair.bench.questions import FileQuestion, Question, fingerprint, subject
from verifair.bench.records import LICENCE, SKIPPED, BenchRecord, Journal, unknown
from verifair.bench.worker import Measured, measure
from verifair.engine.parallel import MACHINES, as_done
from verifair.errors import ClusterError

HOPELESS = ("time", "memory", LICENCE)
"""Reasons that a larger case of the same family will not change."""

LONG_RUN = 0.2
"""Share of the limit from which on a run is not repeated."""


@dataclass(frozen=True, kw_only=True)
class RunLimits:
    """limit: seconds a run.   repeats: rounds.   patience: time-outs in a row after which larger cases are left out, 0: never."""

    limit: float
    repeats: int
    patience: int


@dataclass(frozen=True, kw_only=True)
class Turn:
    """The measurements of one case.   number: of the case; it rotates the order.   marks: fingerprints of the question and of its
    subject.

    entrants: competitors that take the question.   records_before: (competitor, repeat) -> record in the journal.
    finished: valid ones of these.   skipped: competitors that are not asked about cases of this size any more.
    """

    case: BenchCase
    number: int
    question: Question
    marks: tuple[str, str]
    entrants: tuple[Competitor, ...]
    records_before: dict[tuple[str, int], BenchRecord]
    finished: frozenset[tuple[str, int]]
    skipped: frozenset[str]
    limits: RunLimits

    def measured(self, tell: Callable[[str], None]) -> Iterator[BenchRecord]:
        """Ask all competitors, round by round, and yield each record as it is made.   tell: receives who is asked next."""
        records = dict(self.records_before)
        for repeat in range(self.limits.repeats):
            for entrant in rotated(self.entrants, self.number + repeat):
                tell(f"{self.case.name} {entrant.name}")
                if (entrant.name, repeat) in self.finished or (repeat and _pointless(records.get((entrant.name, 0)))):
                    continue
                if repeat == 0 and entrant.name in self.skipped:
                    note = f"not asked: {self.limits.patience} cases of the family in a row, no larger, took too much"
                    result = Measured(reply=unknown(SKIPPED, note), total_seconds=0.0, peak_mb=None, base_mb=None)
                else:
                    result = measure(entrant, self.question, seconds=self.limits.limit, seed=self.case.seed)
                record = records[entrant.name, repeat] = _record(self.case, entrant, result, self.marks, repeat, self.limits.limit)
                yield record


def run(
    cases: Sequence[BenchCase], competitors: Sequence[Competitor], journal: Journal, *,
    limit: float, repeats: int, patience: int, jobs: int = 1, progress: Callable[[int, int, str], None] | None = None,
) -> None:
    """Measure everything that the journal does not hold yet.   limit: seconds for each run.   progress: runs done, all runs, and
    the current one.

    jobs: cases that are measured at once; by the workers of a cluster within `verifair.engine.cluster.cluster`.
    Ctrl-C raises KeyboardInterrupt; the journal keeps all measurements; with several cases at once, those of finished cases.
    Raises ClusterError where a worker lacks a competitor, or may not start processes.
    """
    tell = progress or (lambda done, total, now: None)
    limits, runs_per_case = RunLimits(limit=limit, repeats=repeats, patience=patience), len(competitors) * repeats
    total, done, numbers = len(cases) * runs_per_case, 0, count()
    remote = MACHINES.get() is not None

    def report(text: str) -> None:
        nonlocal done
        tell(done, total, text)
        done += 1

    ranks = in_turns(cases)
    for group in ranks if patience else [[case for rank in ranks for case in rank]]:
        turns = (_turn(cases, case, next(numbers), competitors, journal, limits) for case in group)
        if jobs > 1 or remote:
            turn_list = list(turns)  # a list, so that tasks reach the process pool at once: Ctrl-C must not come between
            for name, records in as_done((joblib.delayed(_measure_case)(turn, remote) for turn in turn_list), jobs):
                for record in records:
                    journal.add(record)
                done += runs_per_case
                tell(done, total, name)
        else:
            for turn in turns:
                done += runs_per_case - len(turn.entrants) * repeats
                for record in turn.measured(report):
                    journal.add(record)
    tell(total, total, "")


def _turn(
    cases: Sequence[BenchCase], case: BenchCase, number: int, competitors: Sequence[Competitor], journal: Journal, limits: RunLimits
) -> Turn:
    question = case.question()
    marks = fingerprint(question), subject(question)
    entrants = tuple(c for c in competitors if c.takes(question))
    rounds = [(c, repeat) for c in entrants for repeat in range(limits.repeats)]
    return Turn(
        case=case, number=number, question=question, marks=marks, entrants=entrants, limits=limits,
        records_before={(c, repeat): record for (name, c, repeat), record in journal.records.items() if name == case.name},
        finished=frozenset(
            (c.name, repeat) for c, repeat in rounds if journal.holds(case.name, c.name, repeat, marks[0], c.version)
        ),
        skipped=frozenset(c.name for c in entrants if worn_out(journal, cases, case, c, limits.patience)),
    )


def _measure_case(turn: Turn, remote: bool) -> tuple[str, list[BenchRecord]]:
    """Measure one case in another process, or on another machine; return its name, and the records."""
    if remote:
        if current_process().daemon:
            raise ClusterError(
                "it may not start the process that each run is measured in; start the workers with "
                "DASK_DISTRIBUTED__WORKER__DAEMON=False in their environment, or with --no-nanny"
            )
        missing = lacking(turn.entrants)
        if missing:
            raise ClusterError(f"it lacks competitors of the machine that asks: {missing}; install the same on all machines")
        if isinstance(turn.question, FileQuestion) and not turn.question.there():
            raise ClusterError(f"{turn.question.query} or its network is not there, or another file; copy them to the same place")
    return turn.case.name, list(turn.measured(lambda now: None))


def in_turns(cases: Sequence[BenchCase]) -> list[list[BenchCase]]:
    """Return the smallest case of every family, then the next of each, so that a run that ends early covers all families."""
    families: dict[str, list[BenchCase]] = {}
    for case in cases:
        families.setdefault(case.family.name, []).append(case)
    return [[case for case in rank if case is not None] for rank in zip_longest(*families.values())]


def rotated(competitors: Sequence[Competitor], shift: int) -> list[Competitor]:
    """Return the same competitors, starting with another one."""
    start = shift % len(competitors) if competitors else 0
    return [*competitors[start:], *competitors[:start]]


def worn_out(journal: Journal, cases: Sequence[BenchCase], case: BenchCase, competitor: Competitor, patience: int) -> bool:
    """Return True if the competitor ran out of time on the last `patience` cases of the family before this one."""
    names = [other.name for other in cases if other.family.name == case.family.name]
    earlier = names[: names.index(case.name)]
    records = [journal.records.get((name, competitor.name, 0)) for name in earlier]
    last = [record for record in records if record is not None][-patience:]
    return patience > 0 and len(last) == patience and all(record.reason in (*HOPELESS, SKIPPED) for record in last)


def _pointless(first: BenchRecord | None) -> bool:
    """Return True if the first round shows that another one would take long or fail again."""
    return first is not None and (first.reason in (*HOPELESS, SKIPPED) or first.total_seconds > LONG_RUN * first.limit)


def _record(
    case: BenchCase, competitor: Competitor, measured: Measured, marks: tuple[str, str], repeat: int, limit: float
) -> BenchRecord:
    """Return the record of a measurement. marks: fingerprints of the question and of its subject."""
    reply = measured.reply
    return BenchRecord(
        **{**vars(reply), "version": competitor.version, "peak_mb": measured.peak_mb},
        case=case.name, family=case.family.name, kind=case.family.kind, size=case.size, question=marks[0], subject=marks[1],
        method=competitor.method, solver=competitor.solver, repeat=repeat, seed=case.seed, limit=limit,
        build_seconds=None if reply.solve_seconds is None else max(measured.total_seconds - reply.solve_seconds, 0.0),
        total_seconds=measured.total_seconds, base_mb=measured.base_mb,
    )
