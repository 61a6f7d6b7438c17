"""Fairify's main partitions, decided in full: every part proved or refuted, every proof re-checked, every witness exact.

Adult at size 10 with sex (16,000 parts), Bank at 100 with age (510), German at 100 with age (201), two processes, from an empty
store to the last verdict. The bar is all 12 networks together within five minutes, everything decided, nothing merely claimed.
Fairify's published results stand beside ours (30 minutes for each network, in random order). The re-check has its own column.
`--race` asks the Adult networks AC-1, AC-3, AC-5, AC-6 about race: all ordered pairs of its five values, at most 5 minutes each.
`--deep` takes networks of three to nine hidden layers on the same tables, trained here (`deep_nets`); their bar is 120 s each.

    python -m benchmarks.run partitions --nets AC-1 GC-3 --seconds 10       a shorter run
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.fairness.deep_nets import deep_subjects
from benchmarks.fairness.networks import FAMILIES, ListedNetwork, subjects
from benchmarks.shared import data_folder, measured
from solvers.outcome import Budget
from verifair.checker.check import check
from verifair.checker.partition import PROVED, UNKNOWN, VIOLATED, Chunk, Partition, PartitionStore
from verifair.engine.partition import REASONS, certify_partition
from verifair.engine.queries import IndividualFairness
from verifair.engine.questions import Pairs, box_of
from verifair.engine.verdict import Reason
from verifair.errors import Disagreement

BAR = 300.0
"""Seconds for all networks together, and ..."""
DEEP_BAR = 120.0
"""... for each deep one."""
RACE = ("AC-1", "AC-3", "AC-5", "AC-6")


class _Late(Exception):
    """The time for a re-check has run out."""


def run(
    folder: Path, *, seconds: float = BAR, check_seconds: float = 3600.0, jobs: int = 2, race: bool = False, deep: bool = False,
    nets: Sequence[str] = (),
) -> pd.DataFrame:
    """Run the comparison.   seconds: limit for one network.   check_seconds: limit for one re-check."""
    data = data_folder()
    title, bar = "Partitions: main experiment", f"bar {BAR:g} s for the 12 main ones"
    if deep:
        networks = deep_subjects(data, folder / "deep", nets=nets)
        title, bar = "Deep partitions: networks trained here", f"bar {DEEP_BAR:g} s each"
    elif race:
        networks = subjects(data, nets=nets or RACE, families=["adult"])
        title, bar = "Race partitions: all ordered pairs", f"bar {BAR:g} s each"
    else:
        networks = subjects(data, nets=nets, families=FAMILIES)
    lines = (_line(subject, "race" if race else subject.main, folder, seconds, check_seconds, jobs) for subject in networks)
    table = measured(f"{title}, {jobs} processes, at most {seconds:g} s a network", lines, folder)
    parts, unknown = table["parts"].sum(), table["unknown"].sum()
    seconds_taken = table["seconds"]
    print(f"{len(table)} networks in {seconds_taken.sum():.1f} s together, slowest {seconds_taken.max():.1f} s ({bar}), "
          f"{parts - unknown} of {parts} parts decided, {table['claimed'].sum()} claimed, "
          f"re-check {table['check s'].sum():.1f} s")
    return table


def _line(subject: ListedNetwork, protected: str, folder: Path, seconds: float, check_seconds: float, jobs: int) -> dict[str, Any]:
    query, size = subject.fairness(protected), int(subject.file["experiments"]["main"]["partition_threshold"])
    path = _fresh(folder / "stores" / f"partitions-{subject.name}-{protected}.sqlite")
    started = time.perf_counter()
    certify_partition(query, size=size, store=path, budget=Budget(seconds=seconds), jobs=jobs)
    elapsed = time.perf_counter() - started
    counts, published = Counts.of(path, query, size), subject.published(protected)
    return {
        "net": subject.name, "protected": protected, "size": size, "parts": counts.parts, "proved": counts.proved,
        "refuted": counts.refuted, "unknown": counts.parts - counts.proved - counts.refuted,
        "domain proved": f"{counts.volume:.1%}", "claimed": counts.claimed, "seconds": elapsed,
        "published tried": published.get("partitions_tried", "-"),
        "SAT/UNSAT/UNK": "/".join(str(published[key]) for key in ("sat", "unsat", "unknown")) if published else "-",
        **rechecked(path, subject, check_seconds),
    }


def _fresh(path: Path) -> Path:
    """Return the path after removing the store of an earlier run: the time is for the whole job."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f"{path.name}*"):
        left.unlink()
    return path


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Numbers of parts in a store: all, proved, refuted, given up (out of nodes, ...), and cut off by the end of a run.

    The rest has not been reached.   volume: share of the domain that is proved.   claimed: proofs of proved parts without evidence,
    which are only a solver's claim.
    """

    parts: int
    proved: int
    refuted: int
    given_up: int
    cut_off: int
    volume: float
    claimed: int

    @classmethod
    def of(cls, path: Path, query: IndividualFairness, size: int) -> Counts:
        partition = partition_of(query, size)
        pairs = len(Pairs.of(query, partition.lower, partition.upper))
        counts, volume, claimed, cut_off = np.zeros(3, dtype=np.int64), 0.0, 0, 0
        with PartitionStore(path) as store:
            for chunk in store.chunks():
                counts += np.bincount(chunk.status, minlength=3)
                cut_off += int((chunk.reason == REASONS.index(Reason.TIME)).sum())
                volume += float(partition.volume(chunk.first + np.flatnonzero(chunk.status == PROVED)).sum())
                claimed += _without_evidence(chunk, pairs)
        return cls(
            parts=partition.count, proved=int(counts[PROVED]), refuted=int(counts[VIOLATED]), cut_off=cut_off,
            given_up=int(counts[UNKNOWN]) - cut_off, volume=volume, claimed=claimed,
        )


def partition_of(query: IndividualFairness, size: int) -> Partition:
    box = box_of(query.schema, query.box)
    return Partition.of(query.schema.domain, *box, size=size, whole=[query.schema.index(name) for name in query.protected])


def _without_evidence(chunk: Chunk, pairs: int) -> int:
    """Return the number of questions of proved parts (every pair of every part: nothing is relaxed) without a tree in each
    direction."""
    return int((chunk.status == PROVED).sum()) * pairs - int((chunk.size > 0).sum()) // 2


def rechecked(path: Path, subject: ListedNetwork, seconds: float) -> dict[str, Any]:
    """Return the independent checker's answer about the store, "yes" if it accepts all of it, and the time it took."""
    started = time.perf_counter()

    def progress(done: int, chunks: int) -> None:
        if time.perf_counter() - started > seconds and done < chunks:
            raise _Late

    try:
        report = check(path, model=subject.network, schema=subject.schema, progress=progress)
    except _Late:
        return {"accepted": f"not within {seconds:g} s", "check s": time.perf_counter() - started}
    if report.rejections:
        raise Disagreement(f"{path}: {len(report.rejections)} rejected, first: {report.rejections[0]}")
    return {"accepted": report.missing or "yes", "check s": report.seconds}
