"""The nearest rows of a group: both searches against brute force, with ties, duplicates and the complainant itself."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verifair.errors import DataError, QueryError
from verifair.systems.cst import searches
from verifair.systems.cst.distance import DISTANCES, Metric
from verifair.systems.cst.neighbours import Pool, nearest, negatives


def table(seed: int, rows: int, words: int = 2, levels: int = 3, whole: bool = True) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({
        "a": rng.integers(0, 5, rows) if whole else rng.standard_normal(rows), "b": rng.integers(0, 3, rows) * 1000.0,
    })  # fmt: skip
    for n in range(words):
        frame[f"w{n}"] = np.array([f"v{c}" for c in range(levels)])[rng.integers(0, levels, rows)]
    return frame


def by_definition(name: str, frame: pd.DataFrame, one: int, other: int) -> float:
    """Distances of two rows, term by term."""
    numbers, words = ["a", "b"], [c for c in frame if c.startswith("w")]
    gap = np.array([abs(frame[c].iloc[one] - frame[c].iloc[other]) for c in numbers], dtype=float)
    unequal = np.array([float(frame[c].iloc[one] != frame[c].iloc[other]) for c in words])
    if name == "mahalanobis":
        inverse = np.linalg.inv(np.cov(frame[numbers].to_numpy(dtype=float).T, bias=True))
        signed = np.array([frame[c].iloc[one] - frame[c].iloc[other] for c in numbers], dtype=float)
        return float(np.sqrt(signed @ inverse @ signed + unequal.sum()))
    x = frame[numbers].to_numpy(dtype=float)
    spread = x.std(axis=0) if name == "standardised" else np.ptp(x, axis=0)
    terms = np.concatenate([gap / spread, unequal])
    return float(np.sqrt(np.square(terms).sum())) if name == "heom" else float(terms.mean())


@pytest.mark.parametrize("name", DISTANCES)
def test_embeddings_are_the_distances_of_the_definitions(name: str) -> None:
    frame = table(1, 30, whole=False)
    metric = Metric.of(name, frame, list(frame.columns))  # type: ignore[arg-type]
    x = metric.embed(frame)
    for one, other in ((0, 1), (2, 3), (4, 17), (9, 9)):
        gap = np.abs(x[one] - x[other])
        found = gap.sum() if metric.p == 1 else np.sqrt(np.square(gap).sum())
        assert found == pytest.approx(by_definition(name, frame, one, other), abs=1e-9)


def brute(distance: np.ndarray, rows: np.ndarray, negative: np.ndarray, k: int, ties: str) -> float:
    """Negatives among the k nearest, by sorting everything."""
    order = np.lexsort((rows, np.round(distance, 9)))
    if ties == "first":
        return float(negative[rows[order[:k]]].sum())
    edge = np.round(distance, 9)[order[k - 1]]
    inside, tied = np.round(distance, 9) < edge, np.round(distance, 9) == edge
    return float(negative[rows[inside]].sum() + (k - inside.sum()) * negative[rows[tied]].mean())


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000), rows=st.integers(12, 90), words=st.integers(0, 3), levels=st.sampled_from([2, 3, 9]),
    whole=st.booleans(), name=st.sampled_from(DISTANCES), ties=st.sampled_from(["share", "first"]), many=st.sampled_from([0, 16]),
)  # fmt: skip
def test_negatives_are_those_of_brute_force(
    seed: int, rows: int, words: int, levels: int, whole: bool, name: str, ties: str, many: int
) -> None:
    frame = table(seed, rows, words, levels, whole)
    rng = np.random.default_rng(seed)
    negative = rng.random(rows) < 0.5
    members = np.flatnonzero(rng.random(rows) < 0.7)
    if len(members) < 6:
        return
    metric = Metric.of(name, frame, list(frame.columns))  # type: ignore[arg-type]
    x = metric.embed(frame)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searches, "MANY", many)  # 0: the scan wherever there are words
        pool = Pool.of(members, x, negative, metric)
        k = (1, 3, len(members) - 1)
        alone = negatives(pool, x[members], k, own=members, ties=ties, threads=1)  # type: ignore[arg-type]
        all_ = negatives(pool, x, k, ties=ties, threads=2)  # type: ignore[arg-type]
        for c in range(0, rows, 7):
            found = [nearest(pool, x[c], one, ties=ties) for one in k]  # type: ignore[arg-type]
            gap = np.abs(x[members] - x[c])
            distance = gap.sum(axis=1) if metric.p == 1 else np.sqrt(np.square(gap).sum(axis=1))
            for n, one in enumerate(k):
                assert all_[n, c] == pytest.approx(brute(distance, members, negative, one, ties), abs=1e-9)
                who, how_far, weight = found[n]
                assert weight.sum() == pytest.approx(one)
                assert (weight * negative[who]).sum() == pytest.approx(all_[n, c], abs=1e-9)
                assert (np.diff(how_far) >= -1e-12).all()
        for m in range(0, len(members), 5):
            gap = np.abs(x[members] - x[members[m]])
            distance = gap.sum(axis=1) if metric.p == 1 else np.sqrt(np.square(gap).sum(axis=1))
            others = np.arange(len(members)) != m
            for n, one in enumerate(k):
                truth = brute(distance[others], members[others], negative, one, ties)
                assert alone[n, m] == pytest.approx(truth, abs=1e-9)


def test_everybody_at_one_point_shares_all_places() -> None:
    frame = pd.DataFrame({"a": [1.0] * 10, "w": ["x"] * 10})
    metric = Metric.of("mixed", frame, ["a", "w"])
    negative = np.arange(10) < 3
    pool = Pool.of(np.arange(10), metric.embed(frame), negative, metric)
    assert negatives(pool, metric.embed(frame)[:1], [5], threads=1)[0, 0] == pytest.approx(1.5)
    assert negatives(pool, metric.embed(frame)[:1], [5], own=np.array([0]), threads=1)[0, 0] == pytest.approx(5 * 2 / 9)
    assert negatives(pool, metric.embed(frame)[:1], [5], own=np.array([0]), ties="first", threads=1)[0, 0] == 2


def test_equal_distances_are_ties_although_floats_differ() -> None:
    # 0.1 + 0.2 > 0.3 in floats: the three rows are equally far from the center by the definition.
    frame = pd.DataFrame({"a": [0.0, 0.1, 0.3, 0.0, 1.0], "b": [0.0, 0.2, 0.0, 0.3, 1.0]})
    metric = Metric.of("mixed", frame, ["a", "b"])
    negative = np.array([False, True, False, False, False])
    pool = Pool.of(np.arange(1, 5), metric.embed(frame), negative, metric)
    assert negatives(pool, metric.embed(frame)[:1], [1], threads=1)[0, 0] == pytest.approx(1 / 3)


def test_a_k_larger_than_the_pool_is_an_error_that_names_the_largest() -> None:
    frame = table(0, 9)
    metric = Metric.of("mixed", frame, list(frame.columns))
    x = metric.embed(frame)
    pool = Pool.of(np.arange(9), x, np.zeros(9, dtype=bool), metric)
    with pytest.raises(QueryError, match="largest k is 8"):
        negatives(pool, x, [9], own=np.arange(9))
    assert negatives(pool, x, [9]).shape == (1, 9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a": [1.0, np.nan, 2.0]}, "1 row has no value, first row 1"),
        ({"a": [1.0, np.inf, 2.0]}, "expected a finite number"),
        ({"b": [1.0, 2.0, 3.0]}, "no such column"),
    ],
)
def test_columns_that_cannot_be_compared_are_named(change: dict[str, list[float]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Metric.of("mixed", pd.DataFrame(change), ["a"])


def test_huge_and_tiny_units_count_alike() -> None:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"a": rng.random(50), "b": rng.random(50)})
    scaled = frame.assign(a=frame["a"] * 1e12 + 1e12, b=frame["b"] * 1e-9)
    for name in DISTANCES:
        one, other = (Metric.of(name, f, ["a", "b"]).embed(f) for f in (frame, scaled))
        gap, gap_scaled = (np.abs(x[:, None] - x[None]).sum(axis=2) for x in (one, other))
        assert np.allclose(gap, gap_scaled, atol=1e-3)
    assert Metric.of("mixed", frame.assign(c=5.0), ["a", "b", "c"]).embed(frame.assign(c=5.0))[:, 2].max() == 0


def test_an_unknown_distance_and_no_attributes_are_errors() -> None:
    frame = table(0, 5)
    with pytest.raises(QueryError, match="known are mixed"):
        Metric.of("cosine", frame, ["a"])  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="none is left"):
        Metric.of("mixed", frame, [])
