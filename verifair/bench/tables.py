"""The results of a benchmark as tables: every run, PAR-2 by kind and by family, defaults beside the best, contradictions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from verifair.bench.competitors import BACKENDS, DEFAULTS
from verifair.bench.contradictions import Contradiction, contradictions
from verifair.bench.records import BenchRecord
from verifair.bench.scores import Choice, Entry, Job, choices, entries, jobs, par2, times
from verifair.systems.results.spreadsheets import save_table

KINDS = {
    "decision": "decisions (PBA, robustness, 2-fairness)", "relaxation": "optima of the triangle LP",
    "minimum": "exact minima", "center": "k-centers",
}
"""Kind of question -> its name on paper."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BenchResult:
    """The summary of a set of runs.   limit: seconds for each run.   scores: PAR-2 of each competitor, by kind and by family."""

    records: tuple[BenchRecord, ...]
    entries: tuple[Entry, ...]
    contradictions: tuple[Contradiction, ...]
    scores: pd.DataFrame
    jobs: tuple[Job, ...]
    choices: tuple[Choice, ...]
    limit: float

    @property
    def cases(self) -> int:
        return len({record.case for record in self.records})

    @property
    def asked(self) -> int:
        """The number of pairs of a case and a competitor that takes it."""
        return len(self.entries)

    @property
    def decided(self) -> int:
        return sum(entry.solved for entry in self.entries)


def comparison(records: Sequence[BenchRecord], limit: float) -> BenchResult:
    """Summarise runs; a benchmark that was cut short is summarised as far as it got."""
    found = entries(records)
    return BenchResult(
        records=tuple(records), entries=tuple(found), contradictions=tuple(contradictions(records)), scores=_scores(found, limit),
        jobs=tuple(jobs(found, DEFAULTS)), choices=tuple(choices(found, BACKENDS)), limit=limit,
    )


def _scores(found: Sequence[Entry], limit: float) -> pd.DataFrame:
    """Return a line for each competitor over each kind ("all" families), and over each family; best first."""
    lines = []
    for kind in KINDS:
        own = [entry for entry in found if entry.kind == kind]
        for family in ("all", *dict.fromkeys(entry.family for entry in own)):
            part = [entry for entry in own if family in ("all", entry.family)]
            scored = par2(times(part), limit) if part else {}
            lines += [_line(kind, family, name, scored[name], part) for name in sorted(scored, key=lambda name: scored[name])]
    return pd.DataFrame(lines)


def _line(kind: str, family: str, name: str, score: float, part: Sequence[Entry]) -> dict[str, Any]:
    own = [entry for entry in part if entry.competitor == name]
    solved = [entry for entry in own if entry.solved]
    peaks = [entry.peak_mb for entry in own if entry.peak_mb is not None]
    reasons = [entry.reason for entry in own if not entry.solved and entry.reason]
    common = max(set(reasons), key=reasons.count) if reasons else ""
    return {
        "kind": kind, "family": family, "competitor": name, "cases": len({entry.case for entry in part}), "taken": len(own),
        "solved": len(solved), "claimed": sum(entry.trust == "claimed" for entry in solved), "PAR-2": score,
        "seeds": len({entry.seed for entry in part}), "PAR-2 sd": _spread(name, part),
        "median s": statistics.median(entry.seconds for entry in solved) if solved else math.nan,
        "peak MB": max(peaks, default=math.nan), "mostly open for": common,
    }


def _spread(name: str, part: Sequence[Entry]) -> float:
    """Return the standard deviation of a competitor's PAR-2 between seeds, NaN for one seed."""
    by_seed = [
        par2(times([entry for entry in part if entry.seed == seed]), part[0].limit).get(name, 2 * part[0].limit)
        for seed in sorted({entry.seed for entry in part})
    ]
    return statistics.stdev(by_seed) if len(by_seed) > 1 else math.nan


def write_tables(found: BenchResult, folder: Path) -> list[Path]:
    """Write runs.csv, cases.csv (rounds together) and scores.csv."""
    tables = {
        "runs.csv": pd.DataFrame([record.to_dict() for record in found.records]),
        "cases.csv": pd.DataFrame([vars(entry) for entry in found.entries]),
        "scores.csv": found.scores,
    }
    paths = []
    for name, table in tables.items():
        save_table(folder / name, [table])
        paths.append(folder / name)
    return paths


def to_dict(found: BenchResult) -> dict[str, Any]:
    """Return the result as JSON values."""
    return {
        "cases": found.cases,
        "questions_put": found.asked,
        "decided": found.decided,
        "runs": len(found.records),
        "limit": found.limit,
        "disagreements": [one.to_dict() for one in found.contradictions],
        "scores": found.scores.to_dict(orient="records"),
        "jobs": [vars(job) for job in found.jobs],
        "defaults": [vars(choice) for choice in found.choices],
        "records": [record.to_dict() for record in found.records],
    }
