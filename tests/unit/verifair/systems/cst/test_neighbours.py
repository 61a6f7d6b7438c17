"""The nearest rows of a group: the search against brute force, with ties, duplicates and the complainant itself."""

import heapq
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cst_in_loops import authors_counts, people_tested, wald
from verifair.errors import DataError, QueryError
from verifair.systems.cst.neighbours import search
from verifair.systems.cst.neighbours.counts import NeighbourPool, Ties, nearest, negatives
from verifair.systems.cst.neighbours.distance import DISTANCES, Metric
from verifair.systems.cst.testing import Situations, Terms, situation_test


def table(seed: int, rows: int, words: int = 2, levels: int = 3, whole: bool = True) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({
        "a": rng.integers(0, 5, rows) if whole else rng.standard_normal(rows), "b": rng.integers(0, 3, rows) * 1000.0,
    })
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
    x = metric.coordinates(metric.embed(frame))
    for one, other in ((0, 1), (2, 3), (4, 17), (9, 9)):
        gap = np.abs(x[one] - x[other])
        found = gap.sum() if metric.p == 1 else np.sqrt(np.square(gap).sum())
        assert found == pytest.approx(by_definition(name, frame, one, other), abs=1e-9)


def brute(distance: np.ndarray, rows: np.ndarray, negative: np.ndarray, k: int, ties: str) -> float:
    """Negatives among the k nearest, by sorting everything."""
    order = np.lexsort((-rows if ties == "last" else rows, np.round(distance, 9)))
    if ties != "share":
        return float(negative[rows[order[:k]]].sum())
    edge = np.round(distance, 9)[order[k - 1]]
    inside, tied = np.round(distance, 9) < edge, np.round(distance, 9) == edge
    return float(negative[rows[inside]].sum() + (k - inside.sum()) * negative[rows[tied]].mean())


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000), rows=st.integers(12, 90), words=st.integers(0, 3), levels=st.sampled_from([2, 3, 9]),
    whole=st.booleans(), name=st.sampled_from(DISTANCES), ties=st.sampled_from(["share", "first", "last"]),
    cells=st.sampled_from([1, 1000]), at_once=st.sampled_from([5, 1000]),
)
def test_negatives_are_those_of_brute_force(
    seed: int, rows: int, words: int, levels: int, whole: bool, name: str, ties: str, cells: int, at_once: int
) -> None:
    frame = table(seed, rows, words, levels, whole)
    rng = np.random.default_rng(seed)
    negative = rng.random(rows) < 0.5
    members = np.flatnonzero(rng.random(rows) < 0.7)
    if len(members) < 6:
        return
    metric = Metric.of(name, frame, list(frame.columns))  # type: ignore[arg-type]
    x = metric.embed(frame)
    at = metric.coordinates(x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "CELLS", cells)
        patch.setattr(search, "ROWS", at_once)
        patch.setattr(search, "TREES", at_once)
        pool = NeighbourPool.of(members, x, negative, metric)
        k = (1, 3, len(members) - 1)
        alone = negatives(pool, x[members], k, own=members, ties=ties, threads=1)  # type: ignore[arg-type]
        all_ = negatives(pool, x, k, ties=ties, threads=2)  # type: ignore[arg-type]
        for c in range(0, rows, 7):
            found = [nearest(pool, x[c], one, ties=ties) for one in k]  # type: ignore[arg-type]
            gap = np.abs(at[members] - at[c])
            distance = gap.sum(axis=1) if metric.p == 1 else np.sqrt(np.square(gap).sum(axis=1))
            for n, one in enumerate(k):
                assert all_[n, c] == pytest.approx(brute(distance, members, negative, one, ties), abs=1e-9)
                who, how_far, weight = found[n]
                assert weight.sum() == pytest.approx(one)
                assert (weight * negative[who]).sum() == pytest.approx(all_[n, c], abs=1e-9)
                assert (np.diff(how_far) >= -1e-12).all()
        for m in range(0, len(members), 5):
            gap = np.abs(at[members] - at[members[m]])
            distance = gap.sum(axis=1) if metric.p == 1 else np.sqrt(np.square(gap).sum(axis=1))
            others = np.arange(len(members)) != m
            for n, one in enumerate(k):
                truth = brute(distance[others], members[others], negative, one, ties)
                assert alone[n, m] == pytest.approx(truth, abs=1e-9)


def test_everybody_at_one_point_shares_all_places() -> None:
    frame = pd.DataFrame({"a": [1.0] * 10, "w": ["x"] * 10})
    metric = Metric.of("mixed", frame, ["a", "w"])
    negative = np.arange(10) < 3
    pool = NeighbourPool.of(np.arange(10), metric.embed(frame), negative, metric)
    assert negatives(pool, metric.embed(frame)[:1], [5], threads=1)[0, 0] == pytest.approx(1.5)
    assert negatives(pool, metric.embed(frame)[:1], [5], own=np.array([0]), threads=1)[0, 0] == pytest.approx(5 * 2 / 9)
    assert negatives(pool, metric.embed(frame)[:1], [5], own=np.array([0]), ties="first", threads=1)[0, 0] == 2


def test_equal_distances_are_ties_although_floats_differ() -> None:
    # 0.1 + 0.2 > 0.3 in floats: the three rows are equally far from the center by the definition.
    frame = pd.DataFrame({"a": [0.0, 0.1, 0.3, 0.0, 1.0], "b": [0.0, 0.2, 0.0, 0.3, 1.0]})
    metric = Metric.of("mixed", frame, ["a", "b"])
    negative = np.array([False, True, False, False, False])
    pool = NeighbourPool.of(np.arange(1, 5), metric.embed(frame), negative, metric)
    assert negatives(pool, metric.embed(frame)[:1], [1], threads=1)[0, 0] == pytest.approx(1 / 3)


@pytest.mark.parametrize("name", DISTANCES)
def test_counterfactuals_that_no_float_tells_the_distance_of_are_errors(name: str) -> None:
    """Squares overflowed, and a k-d tree gives the places of no points then."""
    frame = table(0, 9)
    metric = Metric.of(name, frame, list(frame.columns))  # type: ignore[arg-type]
    for far in (1e160, 1e308):
        with pytest.raises(DataError, match="row 3 lies so far outside the table that its distances are no floats"):
            metric.embed(frame.assign(a=frame["a"].astype(float).where(frame.index != 3, far)))


def test_a_k_larger_than_the_pool_is_an_error_that_names_the_largest() -> None:
    frame = table(0, 9)
    metric = Metric.of("mixed", frame, list(frame.columns))
    x = metric.embed(frame)
    pool = NeighbourPool.of(np.arange(9), x, np.zeros(9, dtype=bool), metric)
    with pytest.raises(QueryError, match="largest k is 8"):
        negatives(pool, x, [9], own=np.arange(9))
    assert negatives(pool, x, [9]).shape == (1, 9)


@pytest.mark.parametrize(("change", "message"), [
    ({"a": [1.0, np.nan, 2.0]}, "1 row has no value, first row 1"),
    ({"a": [1.0, np.inf, 2.0]}, "expected a finite number"),
    ({"b": [1.0, 2.0, 3.0]}, "no such column"),
])
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


# The whole test of an intervention against loops written from the paper's definitions, on random tables full of ties.


ATTRIBUTES = ("age", "income", "job", "region")
K = (1, 2, 5, 9)
WORDS = {"job": ["clerk", "cook", "nurse"], "region": ["north", "south"]}


def people(seed: int, *, n: int = 130) -> pd.DataFrame:
    """Numbers of a few levels, so that rows repeat and lie equally far; one column of a single value now and then; three groups."""
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame({
        "race": draw.choice(["a", "b", "c"], n), "sex": draw.choice(["f", "m"], n),
        "age": draw.integers(0, 5, n) * 10, "income": draw.integers(0, 9, n) / 8 if seed % 3 else np.full(n, 2.5),
        "job": draw.choice(WORDS["job"], n), "region": draw.choice(WORDS["region"], n, p=[0.9, 0.1]),
    })
    twice = draw.integers(0, n, n // 5)
    frame.loc[twice, list(ATTRIBUTES)] = frame.loc[draw.permutation(twice), list(ATTRIBUTES)].to_numpy()
    return frame.astype({"age": float, "income": float})


def counterfactuals(frame: pd.DataFrame, do: dict[str, str], seed: int) -> pd.DataFrame:
    """Any rows will do; some beyond the ranges of the table."""
    draw = np.random.default_rng(seed + 1000)
    tilde = frame[(frame[list(do)] != pd.Series(do)).all(axis=1)].copy()
    tilde["age"] += draw.integers(-2, 3, len(tilde)) * 10
    tilde["income"] = tilde["income"] + draw.integers(0, 3, len(tilde)) / 4
    tilde["job"] = draw.choice(WORDS["job"], len(tilde))
    return tilde.assign(**do)


def audited(frame: pd.DataFrame, tilde: pd.DataFrame, do: dict[str, str], negative: Any, **rest: Any) -> Situations:
    return situation_test(frame, tilde, do=do, attributes=ATTRIBUTES, decisions=~negative, k=K, **rest)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("ties", ["share", "first", "last"])
@pytest.mark.parametrize("do", [{"sex": "m"}, {"race": "b"}, {"race": "a", "sex": "m"}])
def test_every_group_of_every_complainant(do: dict[str, str], ties: Ties, seed: int) -> None:
    frame = people(seed)
    tilde, negative = counterfactuals(frame, do, seed), np.random.default_rng(seed).random(len(frame)) < 0.4
    found = audited(frame, tilde, do, negative, ties=ties)
    expected = people_tested(frame, tilde, do, ATTRIBUTES, negative.tolist(), K, ties)
    assert found.complainants.tolist() == [one.row for one in expected]
    for name in ("control", "standard", "counterfactual"):
        ours, theirs = getattr(found, name), np.array([getattr(one, name) for one in expected]).T
        assert ours == pytest.approx(theirs, abs=1e-9), name


def heaped(center: np.ndarray, x: np.ndarray, rows: np.ndarray, k: int) -> list[int]:
    """The k nearest rows by a heap of (-distance, row); distances are sums of floats: unequal words (last column), then numbers."""
    heap: list[tuple[float, int]] = []
    for row in rows.tolist():
        distance = float(x[row, 2] != center[2])
        for j in range(2):
            distance += abs(x[row, j] - center[j])
        push = heapq.heappush if len(heap) < k else heapq.heappushpop
        push(heap, (-distance, row))
    return [row for _, row in heap]


@pytest.mark.parametrize("seed", range(4))
def test_groups_of_the_authors_heap(seed: int) -> None:
    """Twins in plenty: who is not among the k + 1 nearest of the own group has a control group of k + 1."""
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame({
        "sex": draw.choice(["f", "m"], 150), "u": draw.integers(0, 4, 150) / 3, "v": draw.integers(0, 3, 150) * 7.0,
        "w": draw.integers(0, 2, 150),
    })
    negative, group = draw.random(150) < 0.4, (frame["sex"] == "f").to_numpy()
    tilde = frame[group].assign(sex="m", u=frame["u"][group] + 1 / 3)
    found = situation_test(
        frame, tilde, do={"sex": "m"}, attributes=("u", "v", "w"), categorical=("w",), decisions=~negative, k=K, ties="heap",
        counterfactual_decisions=~negative[group], distance="standardised", terms=Terms(interval="wald", z=1.645, decimals=3),
    )
    numbers = frame[["u", "v"]].to_numpy()
    means = [math.fsum(column) / 150 for column in numbers.T]  # sums that are rounded once: ties hang on the last bit
    moments = [(m, np.sqrt(math.fsum(np.square(column - m)) / 150)) for column, m in zip(numbers.T, means, strict=True)]
    x, y = (
        np.column_stack([*((one[name] - m) / s for name, (m, s) in zip(("u", "v"), moments, strict=True)), one["w"]])
        for one in (frame, tilde)
    )
    own, test = np.flatnonzero(group), np.flatnonzero(~group)
    for n, k in enumerate(K):
        st, wi = found.claims("ST", k), found.claims("CST", k)
        for c, row in enumerate(own.tolist()):
            control = heaped(x[row], x, own, k + 1)
            others = [one for one in control if one != row]
            assert found.sizes[n, c] == len(others)
            assert found.control[n, c] == negative[others].sum()
            assert found.standard[n, c] == negative[heaped(x[row], x, test, k)].sum()
            assert found.counterfactual[n, c] == negative[heaped(y[c], x, test, k)].sum()
            assert st.p_control[c] == pytest.approx(negative[others].mean())
            assert wi.p_control[c] == pytest.approx(negative[control].mean())
            if c % 9 == 0:
                case = found.case(row, k)
                assert sorted(case["control"][0]) == sorted(others)
                assert sorted(case["CST"][0]) == sorted(heaped(y[c], x, test, k))
    assert (found.sizes == np.array(K)[:, None] + 1).any()


def test_heap_is_of_standardised_numbers() -> None:
    frame = people(0)
    with pytest.raises(QueryError, match="ask for distance = 'standardised'"):
        audited(frame, counterfactuals(frame, {"sex": "m"}, 0), {"sex": "m"}, np.arange(len(frame)) % 2 == 0, ties="heap")


def test_positive_discrimination_is_the_other_direction_exchanged() -> None:
    """Treated better than the test group: the interval below -tau, CF accepted and the counterfactual not."""
    frame, do = people(3), {"sex": "m"}
    tilde, negative = counterfactuals(frame, do, 3), np.arange(len(frame)) % 3 == 0
    accepted = np.arange(len(tilde)) % 2 == 0
    both = [
        audited(frame, tilde, do, negative, counterfactual_decisions=accepted, terms=Terms(tau=0.1, direction=direction))
        for direction in ("negative", "positive")  # type: ignore[misc]
    ]
    for method in ("ST", "CST w/o", "CST", "CF"):
        worse, better = (one.claims(method, K[1]) for one in both)  # type: ignore[arg-type]
        assert not (worse.positive & better.positive).any()
        if method != "CF":
            assert np.array_equal(better.positive, better.delta < -0.1 - 1e-12)
            assert np.array_equal(better.significant, better.high < -0.1 - 1e-12)
            assert np.array_equal(better.p_value <= 0.05, better.significant)
    cf = both[1].claims("CF", K[1]).positive
    assert np.array_equal(cf, ~both[1].refused & ~accepted)


def test_the_order_of_rows_does_not_matter_with_shared_ties() -> None:
    frame = people(2)
    do, order = {"sex": "m"}, np.random.default_rng(0).permutation(len(frame))
    tilde, negative = counterfactuals(frame, do, 2), np.random.default_rng(2).random(len(frame)) < 0.4
    found = audited(frame, tilde, do, negative)
    mixed = frame.iloc[order]
    again = audited(mixed, tilde.loc[[i for i in mixed.index if i in tilde.index]], do, negative[order])
    place = {int(order[row]): n for n, row in enumerate(again.complainants)}
    back = [place[int(row)] for row in found.complainants]
    for name in ("control", "standard", "counterfactual"):
        assert getattr(again, name)[:, back] == pytest.approx(getattr(found, name), abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_the_authors_procedure(seed: int) -> None:
    """Scales of its own for each table, one-sided Wald limits, three decimals; numbers without ties: full groups."""
    draw = np.random.default_rng(seed)
    n = 260
    group = draw.random(n) < 0.4
    x = draw.normal(size=(n, 2)) * [20.0, 3.0] + group[:, None] * [-12.0, -1.0]
    y = x + group[:, None] * [12.0, 1.0]
    scores = np.array([1.0, 4.0])
    negative, tilde_negative = x @ scores < 0, y @ scores < 0
    frame = pd.DataFrame({"woman": group.astype(int), "u": x[:, 0], "v": x[:, 1]})
    tilde = frame.assign(u=y[:, 0], v=y[:, 1], woman=0)[group]
    found = situation_test(
        frame, tilde, do={"woman": 0}, attributes=("u", "v"), decisions=~negative, counterfactual_decisions=~tilde_negative[group],
        k=(5, 20), terms=Terms(interval="wald", sides=1, decimals=3), distance="standardised", own_scale=True, ties="first",
    )
    names = {"ST": "ST", "CSTwo": "CST w/o", "CSTwi": "CST", "CF": "CF"}
    for k in found.k:
        expected = authors_counts(x, y, group, negative, tilde_negative, k)
        ours = {short: found.claims(method, k) for short, method in names.items()}  # type: ignore[arg-type]
        for short, claims in ours.items():
            assert claims.positive.sum() == expected[short], (short, k)
            assert claims.significant.sum() == expected[f"{short}_sig"], (short, k)
        assert expected["CSTwo"] != expected["ST"]  # there is something to be told apart
        low, high = wald(float(ours["CSTwi"].p_control[0]), k + 1, float(ours["CSTwi"].p_test[0]), k + 1, 1.6448536)
        assert (ours["CSTwi"].low[0], ours["CSTwi"].high[0]) == pytest.approx((low, high), abs=1e-6)
