"""The COMPAS networks, whose whole domain is 1,248 points: enumeration, single points and partitions must give the same counts.

For each network and protected attribute, of its 624 pairs of points:

    listed       the counts in the schema file
    exact        pairs that flip, or differ by more than 0.05, evaluated one by one in exact arithmetic
    engine       the verdicts of `verify` on every pair as a box of its own, every proof re-checked
    parts        the partition of size 2 (20 parts): exactly those refuted that hold a pair that flips, every proof re-checked
    gap          witness and certified bound of the largest gap, around the listed one

Anything that differs raises Disagreement.

    python -m benchmarks.run exhaustive --nets compas-1       a shorter run
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from benchmarks.fairness.networks import ListedNetwork, subjects
from benchmarks.fairness.partitions import partition_of
from benchmarks.shared import data_folder, measured
from encoders.arrays import Array, Booleans
from encoders.evaluate import exact_goals
from solvers.outcome import Budget
from verifair.checker.check import check
from verifair.checker.partition import VIOLATED, PartitionStore
from verifair.engine.gap.maximise import maximise
from verifair.engine.partition import certify_partition
from verifair.engine.queries import IndividualFairness, ProbabilityGap
from verifair.engine.questions import Pairs, box_of, goals_of, twin_problem
from verifair.engine.verdict import Status
from verifair.engine.verify import verify
from verifair.errors import Disagreement
from verifair.systems.hyfair.certify.partition import located

EPSILON = 0.05
FLOAT64 = 1e-9
"""The listed gaps are float64 evaluations, so they may be off by far less than this."""


def run(folder: Path, *, nets: Sequence[str] = ()) -> pd.DataFrame:
    data = data_folder()
    with threadpool_limits(limits=1):
        pairs = ((net, protected) for net in subjects(data, nets=nets, families=["compas"]) for protected in net.protected)
        lines = (compared(subject, protected) for subject, protected in pairs)
        table = measured("Exhaustive: COMPAS, every point of the domain", lines, folder)
    print(f"{len(table)} of {len(table)} lines agree with the listed counts, {table['proofs'].sum()} proofs re-checked")
    return table


def compared(subject: ListedNetwork, protected: str) -> dict[str, Any]:
    """Return one line of the table; raise Disagreement if two ways of counting differ."""
    listed: Mapping[str, Any] = subject.listed["exhaustive"][protected]
    query = subject.fairness(protected)
    points, gap_query = pairs_of_points(query), replace(query, epsilon=EPSILON, signs="deployed")
    flips, gaps = exactly(query, points), exactly(gap_query, points)
    started = time.perf_counter()
    flip_verdicts, flip_proofs = _answer_each(query, points)
    gap_verdicts, gap_proofs = _answer_each(gap_query, points)
    seconds = time.perf_counter() - started
    largest = maximise(ProbabilityGap(model=query.model, schema=query.schema, protected=query.protected))
    refuted, parts, part_proofs = _partitioned(subject, query, points[flips])
    counts = {
        "pairs": (len(points), listed["points"]),
        "flips, exact": (int(flips.sum()), listed["flips"]),
        "flips, engine": (int(flip_verdicts.sum()), listed["flips"]),
        "pairs where exact and engine differ": (int((flips != flip_verdicts).sum() + (gaps != gap_verdicts).sum()), 0),
        "gaps, exact": (int(gaps.sum()), listed["points_gap_over_0_05"]),
        "gaps, engine": (int(gap_verdicts.sum()), listed["points_gap_over_0_05"]),
    }
    for quantity, (ours, theirs) in counts.items():
        if ours != theirs:
            raise Disagreement(f"{subject.name}, {protected}: {quantity}: {ours}, expected {theirs}")
    if not largest.lower - FLOAT64 <= listed["max_probability_gap"] <= largest.upper + FLOAT64:
        raise Disagreement(f"{subject.name}, {protected}: largest gap in {largest.lower}..{largest.upper}, listed "
                           f"{listed['max_probability_gap']}")
    return {
        "net": subject.name, "protected": protected, "pairs": len(points), "flips listed": listed["flips"],
        "flips exact": int(flips.sum()), "flips engine": int(flip_verdicts.sum()),
        f"gaps > {EPSILON} listed": listed["points_gap_over_0_05"], "gaps exact": int(gaps.sum()),
        "gaps engine": int(gap_verdicts.sum()), "parts": parts, "parts refuted": refuted,
        "largest listed": listed["max_probability_gap"], "lower": largest.lower, "upper": largest.upper,
        "proofs": flip_proofs + gap_proofs + part_proofs, "engine s": seconds,
    }


def pairs_of_points(query: IndividualFairness) -> Array:
    """(N, V) every point of the domain, with the protected feature (of two values) at its lower one."""
    lower, upper = box_of(query.schema, query.box)
    upper[[query.schema.index(name) for name in query.protected]] = lower[[query.schema.index(name) for name in query.protected]]
    axes = [np.arange(low, high + 1) for low, high in zip(lower, upper, strict=True)]
    return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)


def exactly(query: IndividualFairness, points: Array) -> Booleans:
    """Return (N,) True where the query fails at a point (N, V) and its counterpart, in exact arithmetic."""
    box = box_of(query.schema, query.box)
    batch, _, pair = Pairs.of(query, *box).batch(query.schema.domain, points, points, box)
    if len(pair) != len(points):
        raise ValueError("the protected feature has more than two values: not one pair a point")
    is_met, _ = exact_goals(twin_problem(query, batch, goals_of(query)), np.arange(len(points)), points)
    return np.asarray(~is_met.all(axis=1))


def _answer_each(query: IndividualFairness, points: Array) -> tuple[Booleans, int]:
    """Return (N,) True where `verify` refutes the query on the box of a pair of points; and the number of accepted proofs."""
    violated, proofs = np.zeros(len(points), dtype=bool), 0
    names = [feature.name for feature in query.schema.features]
    for k, point in enumerate(points.tolist()):
        box = {name: value for name, value in zip(names, point, strict=True) if name not in query.protected}
        verdict = verify(replace(query, box=box), budget=Budget(seconds=60))
        if verdict.status is Status.UNKNOWN:
            raise Disagreement(f"{box}: unknown ({verdict.reason}), though it is a single pair of points")
        violated[k] = verdict.status is Status.VIOLATED
        if verdict.certificate is not None:
            report = check(verdict.certificate, model=query.model, schema=query.schema)
            if not report.accepted:
                raise Disagreement(f"{box}: certificate rejected: {report.rejections[0]}")
            proofs += report.proofs
    return violated, proofs


def _partitioned(subject: ListedNetwork, query: IndividualFairness, flipping: Array) -> tuple[int, int, int]:
    """Return the numbers of refuted and of all parts (refuted ones must be those with a point in `flipping`), and of accepted
    proofs."""
    experiment = subject.file["experiments"]["main"]
    size, listed = int(experiment["partition_threshold"]), int(experiment["partitions"])
    partition = partition_of(query, size)
    with tempfile.TemporaryDirectory() as folder:
        path = certify_partition(query, size=size, store=Path(folder) / "parts.sqlite")
        report = check(path, model=query.model, schema=query.schema)
        with PartitionStore(path) as store:
            status = np.concatenate([status for _, status in store.statuses()])
    if not report.accepted:
        raise Disagreement(f"{subject.name}: partition rejected: {report.rejections[0]}")
    expected = np.zeros(partition.count, dtype=bool)
    expected[located(partition, flipping)] = True
    if partition.count != listed or not np.array_equal(status == VIOLATED, expected):
        raise Disagreement(
            f"{subject.name}: {partition.count} parts (listed {listed}), {(status == VIOLATED).sum()} refuted, where "
            f"{expected.sum()} hold a pair that flips"
        )
    return int(expected.sum()), partition.count, report.proofs
