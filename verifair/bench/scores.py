"""Scores of runs: medians, PAR-2, cactus and performance profiles, and the fastest competitor for each job.

A case counts as solved by a competitor when every round decided it within the limit; its time is the median of the rounds. Cases
that a competitor does not take, or was not asked any more, count as unsolved if competitors are compared on the same cases.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from verifair.bench.records import BenchRecord

NEAR = 1.25
"""Times as long that count as equal: runs of one method differ by as much on a busy machine."""
SHORTEST = 1e-4
"""Seconds: shorter times are the clock's and the call's, and would make ratios of noise."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One competitor on one case. seconds: median of the rounds, with the least and the most; infinite if it is not solved."""

    case: str
    family: str
    kind: str
    size: int
    competitor: str
    method: str
    seed: int
    limit: float
    solved: bool
    status: str
    reason: str | None
    trust: str
    rounds: int
    seconds: float
    least: float
    most: float
    build_seconds: float | None
    solve_seconds: float | None
    peak_mb: float | None

    @property
    def par2(self) -> float:
        """Its seconds, or twice the limit."""
        return self.seconds if self.solved else 2 * self.limit


def entries(records: Iterable[BenchRecord]) -> list[Entry]:
    """Join the rounds of one competitor on one case."""
    grouped: dict[tuple[str, str], list[BenchRecord]] = defaultdict(list)
    for record in records:
        grouped[record.case, record.competitor].append(record)
    return [_entry(sorted(rounds, key=lambda record: record.repeat)) for rounds in grouped.values()]


def _entry(rounds: Sequence[BenchRecord]) -> Entry:
    solved = all(record.solved for record in rounds)
    first = next((record for record in rounds if not record.solved), rounds[0])
    seconds = [record.total_seconds for record in rounds]
    return Entry(
        case=first.case, family=first.family, kind=first.kind, size=first.size, competitor=first.competitor, method=first.method,
        seed=first.seed, limit=first.limit, solved=solved, status=first.status, reason=first.reason, trust=first.trust,
        rounds=len(rounds),
        seconds=statistics.median(seconds) if solved else math.inf, least=min(seconds), most=max(seconds),
        build_seconds=_median(record.build_seconds for record in rounds),
        solve_seconds=_median(record.solve_seconds for record in rounds),
        peak_mb=max((record.peak_mb for record in rounds if record.peak_mb is not None), default=None),
    )


def _median(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return statistics.median(present) if present else None


Times = Mapping[str, Mapping[str, float]]
"""competitor -> case -> seconds, infinite for unsolved; every competitor has every case."""


def times(measured: Sequence[Entry]) -> dict[str, dict[str, float]]:
    """Return the seconds of each competitor that takes any of the cases, on all of them."""
    cases = list(dict.fromkeys(entry.case for entry in measured))
    result: dict[str, dict[str, float]] = {}
    for entry in measured:
        result.setdefault(entry.competitor, dict.fromkeys(cases, math.inf))[entry.case] = max(entry.seconds, SHORTEST)
    return result


def par2(seconds: Times, limit: float) -> dict[str, float]:
    """Return the penalised average runtime: the mean over all cases, twice the limit for an unsolved one.  (SAT competitions)"""
    return {
        name: statistics.fmean(s if math.isfinite(s) else 2 * limit for s in by_case.values()) for name, by_case in seconds.items()
    }


def cactus(seconds: Times) -> dict[str, list[float]]:
    """Return for each competitor the times of the cases it solved, ascending: the n-th entry is a limit within which it solves n
    cases."""
    return {name: sorted(s for s in by_case.values() if math.isfinite(s)) for name, by_case in seconds.items()}


def ratios(seconds: Times) -> dict[str, list[float]]:
    """Return r = t / (least t of anybody on the same case), ascending, infinite for unsolved.  (Dolan and Moré 2002, section 2)"""
    cases = next(iter(seconds.values()), {})
    best = {case: min(by_case[case] for by_case in seconds.values()) for case in cases}
    return {
        name: sorted(by_case[case] / best[case] if math.isfinite(by_case[case]) else math.inf for case in cases)
        for name, by_case in seconds.items()
    }


def profile(ratio: Sequence[float], tau: float) -> float:
    """Return rho(tau): the share of all cases where a competitor is within tau times the best.  (Dolan and Moré 2002, eq. 2.1)"""
    return sum(r <= tau for r in ratio) / len(ratio)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One family at one size.   best: the competitor with the least PAR-2, None if no case is solved.   default: the competitor
    that answers if none is chosen.   trust: the weakest of the best one's answers."""

    family: str
    size: int
    cases: int
    best: str | None
    seconds: float
    trust: str
    default: str
    default_seconds: float

    @property
    def default_serves(self) -> bool:
        """True if the default is the best there, or within NEAR of it."""
        return self.best is not None and self.default_seconds <= NEAR * self.seconds


def jobs(measured: Sequence[Entry], defaults: Mapping[str, str]) -> list[Job]:
    """Return the best competitor for each job: families in their order, sizes ascending.   defaults: kind -> competitor."""
    grouped: dict[tuple[str, int], list[Entry]] = defaultdict(list)
    for entry in measured:
        grouped[entry.family, entry.size].append(entry)
    order = list(dict.fromkeys(entry.family for entry in measured))
    return [_job(grouped[key], defaults) for key in sorted(grouped, key=lambda key: (order.index(key[0]), key[1]))]


def _job(measured: Sequence[Entry], defaults: Mapping[str, str]) -> Job:
    by_name: dict[str, list[Entry]] = defaultdict(list)
    for entry in measured:
        by_name[entry.competitor].append(entry)
    cost = {name: statistics.fmean(entry.par2 for entry in group) for name, group in by_name.items()}
    solving = {name: cost[name] for name, group in by_name.items() if any(entry.solved for entry in group)}
    best = min(solving, key=lambda name: solving[name]) if solving else None
    default = defaults[measured[0].kind]
    trust = {entry.trust for entry in by_name[best] if entry.solved} if best else set()
    return Job(
        family=measured[0].family, size=measured[0].size, cases=len({entry.case for entry in measured}), best=best,
        seconds=cost[best] if best else math.inf, trust="claimed" if "claimed" in trust else next(iter(trust), ""),
        default=default, default_seconds=cost.get(default, math.inf),
    )


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One method with its backends on the same cases. default: its PAR-2; best: the backend with the least one."""

    kind: str
    method: str
    cases: int
    default: str
    default_par2: float
    default_solved: int
    best: str
    best_par2: float
    best_solved: int


def choices(measured: Sequence[Entry], backends: Mapping[str, str]) -> list[Choice]:
    """Compare a method's default backend with the best one.   backends: method -> default."""
    result = []
    for kind in dict.fromkeys(entry.kind for entry in measured):
        for method, backend in backends.items():
            group = [entry for entry in measured if entry.kind == kind and entry.method == method]
            default = f"{method}:{backend}"
            if default not in {entry.competitor for entry in group}:
                continue
            seconds = times(group)
            scores = par2(seconds, group[0].limit)
            best = min(scores, key=lambda name: scores[name])
            solved = {name: sum(map(math.isfinite, by_case.values())) for name, by_case in seconds.items()}
            result.append(
                Choice(
                    kind=kind, method=method, cases=len(seconds[default]), default=default, default_par2=scores[default],
                    default_solved=solved[default], best=best, best_par2=scores[best], best_solved=solved[best],
                )
            )
    return result
