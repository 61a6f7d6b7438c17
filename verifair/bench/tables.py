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
    rows = entries(records)
    return BenchResult(
        records=tuple(records), entries=tuple(rows), contradictions=tuple(contradictions(records)), scores=_scores(rows, limit),
        jobs=tuple(jobs(rows, DEFAULTS)), choices=tuple(choices(rows, BACKENDS)), limit=limit,
    )


def _scores(measured: Sequence[Entry], limit: float) -> pd.DataFrame:
    """Return a line for each competitor over each kind ("all" families), and over each family; best first."""
    lines = []
    for kind in KINDS:
        of_kind = [entry for entry in measured if entry.kind == kind]
        for family in ("all", *dict.fromkeys(entry.family for entry in of_kind)):
            group = [entry for entry in of_kind if family in ("all", entry.family)]
            scores = par2(times(group), limit) if group else {}
            lines += [_line(kind, family, name, scores[name], group) for name in sorted(scores, key=lambda name: scores[name])]
    return pd.DataFrame(lines)


def _line(kind: str, family: str, name: str, score: float, group: Sequence[Entry]) -> dict[str, Any]:
    runs = [entry for entry in group if entry.competitor == name]
    solved = [entry for entry in runs if entry.solved]
    peaks = [entry.peak_mb for entry in runs if entry.peak_mb is not None]
    reasons = [entry.reason for entry in runs if not entry.solved and entry.reason]
    main_reason = max(set(reasons), key=reasons.count) if reasons else ""
    return {
        "kind": kind, "family": family, "competitor": name, "cases": len({entry.case for entry in group}), "taken": len(runs),
        "solved": len(solved), "claimed": sum(entry.trust == "claimed" for entry in solved), "PAR-2": score,
        "seeds": len({entry.seed for entry in group}), "PAR-2 sd": _spread(name, group),
        "median s": statistics.median(entry.seconds for entry in solved) if solved else math.nan,
        "peak MB": max(peaks, default=math.nan), "mostly open for": main_reason,
    }


def _spread(name: str, part: Sequence[Entry]) -> float:
    """Return the standard deviation of a competitor's PAR-2 between seeds, NaN for one seed."""
    by_seed = [
        par2(times([entry for entry in part if entry.seed == seed]), part[0].limit).get(name, 2 * part[0].limit)
        for seed in sorted({entry.seed for entry in part})
    ]
    return statistics.stdev(by_seed) if len(by_seed) > 1 else math.nan


def write_tables(result: BenchResult, folder: Path) -> list[Path]:
    """Write runs.csv, cases.csv (rounds together) and scores.csv."""
    tables = {
        "runs.csv": pd.DataFrame([record.to_dict() for record in result.records]),
        "cases.csv": pd.DataFrame([vars(entry) for entry in result.entries]),
        "scores.csv": result.scores,
    }
    paths = []
    for name, table in tables.items():
        save_table(folder / name, [table])
        paths.append(folder / name)
    return paths


def to_dict(result: BenchResult) -> dict[str, Any]:
    """Return the result as JSON values."""
    return {
        "cases": result.cases,
        "questions_put": result.asked,
        "decided": result.decided,
        "runs": len(result.records),
        "limit": result.limit,
        "disagreements": [contradiction.to_dict() for contradiction in result.contradictions],
        "scores": result.scores.to_dict(orient="records"),
        "jobs": [vars(job) for job in result.jobs],
        "defaults": [vars(choice) for choice in result.choices],
        "records": [record.to_dict() for record in result.records],
    }
