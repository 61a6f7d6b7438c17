"""Partitions: disjoint parts that make up the box, numbered one way, and as many as published."""

import json
import os
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from encoders.domain import Domain
from verifair.checker.partition import Partition
from verifair.systems.hyfair.certify.partition import located

DATA = Path(os.environ.get("VERIFAIR_DATA", "/nonexistent"))


def domain_of(lower: list[float], upper: list[float], *, real: tuple[int, ...] = (), one_hot: tuple[int, ...] = ()) -> Domain:
    count = len(lower)
    hot = np.isin(np.arange(count), one_hot)
    width = np.where(hot, np.array(upper) + 1, 1).astype(np.int64)
    return Domain(
        integer=~np.isin(np.arange(count), real), lower=np.array(lower), upper=np.array(upper), offset=np.zeros(count),
        scale=np.ones(count), start=np.cumsum(width) - width, one_hot=hot, width=width,
    )


def random_partition(seed: int) -> tuple[Domain, Partition]:
    """Up to four integer features and a real one, a random box of them, any block size, some left whole."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 5))
    lower = rng.integers(-5, 4, count).astype(float)
    upper = lower + rng.integers(0, 9, count)
    domain = domain_of([*lower.tolist(), 0.0], [*upper.tolist(), 20.0], real=(count,))
    ends = np.sort(rng.integers(domain.lower, domain.upper + 1, (2, count + 1)), axis=0).astype(float)
    whole = np.flatnonzero(rng.random(count + 1) < 0.2).tolist()
    return domain, Partition.of(domain, ends[0], ends[1], size=int(rng.integers(2, 6)), whole=whole)


def lattice(domain: Domain, partition: Partition) -> np.ndarray:
    """Whole points of the box; of the real feature its ends and what lies between."""
    axes = [np.arange(a, b + 1) for a, b in zip(partition.lower, partition.upper, strict=True)]
    low, high = partition.lower[-1], partition.upper[-1]
    axes[-1] = np.unique([low, low + (high - low) / 3, high])
    return np.array(list(product(*axes)), dtype=float)


@pytest.mark.parametrize("seed", range(60))
def test_parts_are_disjoint_and_make_up_the_box(seed: int) -> None:
    domain, partition = random_partition(seed)
    parts = np.arange(partition.count)
    lower, upper = partition.boxes(parts)
    assert (lower <= upper).all()
    assert (lower >= partition.lower).all()
    assert (upper <= partition.upper).all()
    points = lattice(domain, partition)
    holds = ((points[:, None, :] >= lower) & (points[:, None, :] <= upper)).all(axis=2)
    assert (holds.sum(axis=1) == 1).all()
    assert (located(partition, points) == holds.argmax(axis=1)).all()
    assert holds.any(axis=0).all()


@pytest.mark.parametrize("seed", range(60))
def test_volumes_are_shares_of_the_lattice(seed: int) -> None:
    domain, partition = random_partition(seed)
    volume = partition.volume(np.arange(partition.count))
    assert volume.sum() == pytest.approx(1.0, abs=1e-12)
    points = lattice(domain, partition)
    share = np.bincount(located(partition, points), minlength=partition.count) / len(points)
    assert volume == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize("seed", range(30))
def test_blocks_are_no_larger_than_asked_and_whole_features_are_kept(seed: int) -> None:
    _, partition = random_partition(seed)
    lower, upper = partition.boxes(np.arange(partition.count))
    for v, width in enumerate(partition.width):
        if width:
            assert (upper[:, v] - lower[:, v] + 1 <= width).all()
            assert set(lower[:, v]) == set(np.arange(partition.lower[v], partition.upper[v] + 1, width))
        else:
            assert (lower[:, v] == partition.lower[v]).all()
            assert (upper[:, v] == partition.upper[v]).all()
    assert partition.width[-1] == 0  # a real feature is never cut


def test_rows_outside_the_box_are_in_no_part() -> None:
    domain = domain_of([0.0, 0.0], [9.0, 4.0])
    partition = Partition.of(domain, np.array([2.0, 0.0]), np.array([7.0, 4.0]), size=3, whole=[1])
    rows = np.array([[1.0, 0.0], [2.0, 0.0], [4.0, 4.0], [5.0, 0.0], [7.0, 4.0], [8.0, 0.0], [2.0, 5.0]])
    assert located(partition, rows).tolist() == [-1, 0, 0, 1, 1, -1, -1]


def test_the_last_feature_turns_fastest() -> None:
    domain = domain_of([0.0, 0.0], [5.0, 3.0])
    partition = Partition.of(domain, domain.lower, domain.upper, size=2, whole=[])
    lower, _ = partition.boxes(np.arange(partition.count))
    assert lower.tolist() == [[2.0 * a, 2.0 * b] for a in range(3) for b in range(2)]


def test_categories_are_cut_by_their_numbers() -> None:
    domain = domain_of([0.0, 0.0], [6.0, 1.0], one_hot=(0,))
    partition = Partition.of(domain, domain.lower, domain.upper, size=3, whole=[])
    lower, upper = partition.boxes(np.arange(partition.count))
    assert np.stack([lower[:, 0], upper[:, 0]], axis=1).tolist() == [[0.0, 2.0], [3.0, 5.0], [6.0, 6.0]]


@pytest.mark.skipif(not (DATA / "schemas").is_dir(), reason="VERIFAIR_DATA is not set")
@pytest.mark.parametrize(("family", "experiment", "count"), [
    ("adult", "main", 16_000), ("bank", "main", 510), ("german", "main", 201), ("compas", "main", 20),
    ("adult", "stress", 3_290_112), ("bank", "stress", 1_002_000), ("german", "stress", 18_009),
])
def test_as_many_parts_as_published(family: str, experiment: str, count: int) -> None:
    described = json.loads((DATA / "schemas" / f"{family}.json").read_text())
    names = [feature["name"] for feature in described["features"]]
    protected = str(described["experiments"][experiment]["pa"]).split(" ")[0]
    size = described["experiments"][experiment]["partition_threshold"]
    domain = domain_of(*([float(feature[end]) for feature in described["features"]] for end in ("low", "high")))
    partition = Partition.of(domain, domain.lower, domain.upper, size=size, whole=[names.index(protected)])
    assert partition.count == described["experiments"][experiment]["partitions"] == count
    some = np.unique(np.linspace(0, count - 1, 1000).astype(np.int64))
    lower, upper = partition.boxes(some)
    assert (located(partition, lower) == some).all()
    assert (located(partition, upper) == some).all()
    if count < 20_000:
        assert partition.volume(np.arange(count)).sum() == pytest.approx(1.0, abs=1e-9)
