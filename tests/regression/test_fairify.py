"""Fairify's exact queries and partitions: as many of each verdict as were found before."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fairness.exhaustive import exactly, pairs_of_points
from benchmarks.fairness.networks import EVERY, FAMILIES, ListedNetwork, exact_queries, subjects
from benchmarks.fairness.partitions import Counts, partition_of
from encoders.arrays import Array
from solvers.outcome import Budget
from verifair.checker.certificates.envelope import Trust
from verifair.checker.certificates.statement import Signs
from verifair.checker.check import check
from verifair.checker.partition import PROVED, VIOLATED, PartitionStore
from verifair.engine.partition import certify_partition
from verifair.engine.queries import IndividualFairness
from verifair.engine.verdict import Status
from verifair.engine.verify import verify
from verifair.systems.hyfair.certify.partition import located

DATA = os.environ.get("VERIFAIR_DATA")
pytestmark = pytest.mark.skipif(not DATA, reason="VERIFAIR_DATA is not set")


@pytest.mark.parametrize("signs", ["deployed", "strict"])
@pytest.mark.parametrize("family", FAMILIES)
def test_verdicts_are_as_enumerated(family: str, signs: Signs) -> None:
    """They were enumerated with strict signs, and boxes with a logit nearer to 0 than 1e-6 thrown away: both rules decide alike."""
    asked = [item for item in exact_queries(Path(DATA or "")) if item.name.startswith(family)]
    assert len(asked) >= 12
    for item in asked:
        query = replace(item.query, signs=signs)
        verdict = verify(query, budget=Budget(seconds=60))
        if item.verdict == "SAT":
            assert verdict.status is Status.VIOLATED, item.name
            assert verdict.witness is not None
            first, second = verdict.witness.outputs
            assert first * second < 0
        else:
            assert verdict.status is Status.PROVED, item.name
            assert verdict.certificate is not None
            assert verdict.certificate.trust is Trust.CHECKED
            report = check(verdict.certificate, model=query.model, schema=query.schema)
            assert report.accepted, (item.name, report.rejections)


# Fairify's partitions of the public networks: counts as published, samples decided in full and compared with evaluation.


def subject(name: str) -> ListedNetwork:
    (found,) = subjects(Path(DATA or ""), nets=[name])
    return found


def main_size(of: ListedNetwork) -> int:
    return int(of.file["experiments"]["main"]["partition_threshold"])


def decided(tmp_path: Path, of: ListedNetwork, query: IndividualFairness, size: int) -> Array:
    """(P,) statuses of all parts, re-checked."""
    path = certify_partition(query, size=size, store=tmp_path / "parts.sqlite", budget=Budget(seconds=300))
    report = check(path, model=of.network, schema=of.schema)
    assert report.accepted, report.rejections
    with PartitionStore(path) as store:
        status = np.concatenate([found for _, found in store.statuses()])
    counts = Counts.of(path, query, size)
    assert (counts.proved, counts.refuted) == ((status == PROVED).sum(), (status == VIOLATED).sum())
    assert counts.proved + counts.refuted == counts.parts == len(status)
    assert counts.claimed == 0
    return status


def flips(of: ListedNetwork, query: IndividualFairness, x: Array) -> Array:
    """(N,) whether rows (N, V) and the same with the (two-valued) protected feature turned have clear opposite decisions."""
    (v,) = (of.schema.index(name) for name in query.protected)
    turned = x.copy()
    turned[:, v] = of.schema.domain.lower[v] + of.schema.domain.upper[v] - x[:, v]
    g, g_prime = (of.network.forward(rows)[:, 0] for rows in (x, turned))
    return np.asarray((g * g_prime < 0) & (np.minimum(np.abs(g), np.abs(g_prime)) > 1e-3))


@pytest.mark.parametrize("family", EVERY)
def test_parts_are_as_many_as_published(family: str) -> None:
    first = next(subjects(Path(DATA or ""), families=[family]))
    experiments = [one for one in first.file["experiments"].values() if "partitions" in one]
    assert experiments
    for experiment in experiments:
        query = first.fairness(str(experiment["pa"]).split()[0])
        assert partition_of(query, int(experiment["partition_threshold"])).count == experiment["partitions"]


def test_german_is_as_fairify_found_it(tmp_path: Path) -> None:
    """GC-3 is the one network on which Fairify decided every partition: 195 SAT, 6 UNSAT."""
    gc3 = subject("GC-3")
    listed = gc3.published("age")
    assert listed["unknown"] == 0
    status = decided(tmp_path, gc3, gc3.fairness("age"), main_size(gc3))
    assert ((status == VIOLATED).sum(), (status == PROVED).sum()) == (listed["sat"], listed["unsat"])


@pytest.mark.parametrize(
    ("net", "box"),
    [("AC-1", {"age": (20, 39), "hours-per-week": (30, 49), "native-country": 38}), ("BM-2", {"duration": (0, 999)})],
)
def test_random_rows_never_contradict(tmp_path: Path, net: str, box: dict[str, int | tuple[int, int]]) -> None:
    one = subject(net)
    query, size = replace(one.fairness(one.main), box=box), main_size(one)
    status, partition = decided(tmp_path, one, query, size), partition_of(query, size)
    assert {PROVED, VIOLATED} == set(status.tolist())
    rng = np.random.default_rng(0)
    lower, upper = partition.boxes(np.flatnonzero(status == PROVED))
    rows = np.floor(lower + rng.random((200, *lower.shape)) * (upper - lower + 1)).reshape(-1, lower.shape[1])
    assert not flips(one, query, rows).any()
    anywhere = np.floor(partition.lower + rng.random((50_000, lower.shape[1])) * (partition.upper - partition.lower + 1))
    met = anywhere[flips(one, query, anywhere)]
    assert len(met)
    assert (status[located(partition, met)] == VIOLATED).all()


@pytest.mark.parametrize("net", ["compas-1", "compas-3"])
@pytest.mark.parametrize("protected", ["Race", "Age", "Female"])
def test_compas_is_as_enumerated(tmp_path: Path, net: str, protected: str) -> None:
    """The parts refuted are exactly those that hold one of the listed flips, and single points come out as evaluated."""
    one = subject(net)
    query, listed = one.fairness(protected), one.listed["exhaustive"][protected]
    points = pairs_of_points(query)
    flipping = exactly(query, points)
    assert (len(points), flipping.sum()) == (listed["points"], listed["flips"])
    assert exactly(replace(query, epsilon=0.05, signs="deployed"), points).sum() == listed["points_gap_over_0_05"]
    partition = partition_of(query, main_size(one))
    expected = np.zeros(partition.count, dtype=bool)
    expected[located(partition, points[flipping])] = True
    assert np.array_equal(decided(tmp_path, one, query, main_size(one)) == VIOLATED, expected)
    names = [feature.name for feature in one.schema.features]
    some = [*np.flatnonzero(flipping)[:5], *np.flatnonzero(~flipping)[:5]]
    for k in some:
        box = {name: value for name, value in zip(names, points[k].tolist(), strict=True) if name != protected}
        assert verify(replace(query, box=box)).status is (Status.VIOLATED if flipping[k] else Status.PROVED)


def test_every_network_has_a_flip_somewhere() -> None:
    """The paper calls a network certified on which a solver timed out; here none is (`papers`: all public networks are unfair)."""
    asked = [(one, protected) for one in subjects(Path(DATA or "")) for protected in one.protected]
    assert len(asked) >= 27
    for one, protected in asked:
        verdict = verify(one.fairness(protected), budget=Budget(seconds=60))
        assert verdict.status is Status.VIOLATED, (one.name, protected)
        assert verdict.witness is not None
        first, second = verdict.witness.outputs
        assert first * second < 0
        assert verdict.witness.x[protected] != verdict.witness.x_prime[protected]
        assert {k: v for k, v in verdict.witness.x.items() if k != protected} == {
            k: v for k, v in verdict.witness.x_prime.items() if k != protected
        }
