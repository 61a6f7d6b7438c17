"""Situation testing: the definitions by hand, symmetry, no effect, intervals at their ends, multiple testing, errors."""

from typing import Any
from weakref import ref

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, false_discovery_control

from encoders.arrays import Array
from verifair.errors import DataError, QueryError
from verifair.systems.cst import testing
from verifair.systems.cst.neighbours.distance import Metric
from verifair.systems.cst.testing import INTERVALS, Situations, Terms, lower_end, p_value, situation_test
from verifair.systems.proportions import critical, newcombe, newcombe_lower_of_few, wilson


def people(seed: int, rows: int = 80) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame({
        "sex": np.where(rng.random(rows) < 0.5, "F", "M"), "pay": rng.integers(0, 12, rows) * 1000,
        "kind": rng.choice(list("xyz"), rows), "race": rng.choice(["White", "Black", "Asian"], rows, p=[0.6, 0.25, 0.15]),
    })


def no_effect(frame: pd.DataFrame, do: dict[str, str], **terms: object) -> Situations:
    """No causal effect: everybody's counterfactual has the same attributes."""
    rng = np.random.default_rng(0)
    decisions = frame["pay"].to_numpy() + rng.integers(-2000, 2000, len(frame)) > 5000
    mine = np.all([(frame[name] != value).to_numpy() for name, value in do.items()], axis=0)
    return situation_test(
        frame, frame[mine].assign(**do), do=do, attributes=["pay", "kind"], decisions=decisions,
        counterfactual_decisions=decisions[mine], k=(1, 4, 7), terms=Terms(**terms), threads=1,  # type: ignore[arg-type]
    )


def test_by_hand() -> None:
    frame = pd.DataFrame({"sex": list("FFFMMM"), "pay": [0.0, 1.0, 2.0, 0.0, 5.0, 6.0]})
    decisions = np.array([False, False, True, False, True, True])
    moved = frame.iloc[:3].assign(pay=[5.0, 6.0, 7.0], sex="M")
    found = situation_test(
        frame, moved, do={"sex": "M"}, attributes=["pay"], decisions=decisions,
        counterfactual_decisions=np.array([True, False, True]), k=[1, 2], terms=Terms(interval="wald", sides=1),
    )
    assert found.complainants.tolist() == [0, 1, 2]
    assert found.control.tolist() == [[1, 0.5, 1], [1, 1, 2]]  # of row 1, rows 0 and 2 are equally near
    assert found.standard.tolist() == [[1, 1, 1], [1, 1, 1]]
    assert found.counterfactual.tolist() == [[0, 0, 0], [0, 0, 0]]
    one = found.claims("CST", 1)
    assert one.n == 2
    assert one.p_control.tolist() == [1, 0.75, 0.5]
    assert one.p_test.tolist() == [0, 0.5, 0]
    assert one.positive.tolist() == [True, True, True]
    assert found.claims("CF", 1).positive.tolist() == [True, False, False]
    assert found.claims("CST w/o", 2).delta.tolist() == [0.5, 0.5, 1]
    half = 1.6448536269514722 * np.sqrt(0.25 / 2)
    assert found.claims("CST w/o", 2).low[0] == pytest.approx(0.5 - half)
    assert found.value == 1.0
    rows, distance, weight = found.case(1, 1)["control"]
    assert (rows.tolist(), distance.tolist(), weight.tolist()) == ([0, 2], [1 / 6, 1 / 6], [0.5, 0.5])


@settings(max_examples=25)
@given(seed=st.integers(0, 1000), joint=st.booleans())
def test_without_a_causal_effect_cst_is_st(seed: int, joint: bool) -> None:
    frame = people(seed, 120)
    found = no_effect(frame, {"sex": "M", "race": "White"} if joint else {"sex": "M"}) if not joint or _large(frame) else None
    if found is not None:
        assert np.array_equal(found.counterfactual, found.standard)
        for k in found.k:
            assert np.array_equal(found.claims("ST", k).delta, found.claims("CST w/o", k).delta)
        assert not found.claims("CF", 1).positive.any()


def _large(frame: pd.DataFrame) -> bool:
    counts = frame[frame["sex"] == "F"].groupby("race").size().drop("White", errors="ignore")
    return len(counts) > 0 and counts.min() > 8


@settings(max_examples=10)
@given(seed=st.integers(0, 1000), ties=st.sampled_from(["share", "first"]))
def test_swapping_the_groups_around_a_complainant_mirrors_delta(seed: int, ties: str) -> None:
    frame, rng = people(seed, 60), np.random.default_rng(seed)
    decisions = rng.random(60) < 0.5
    for who in np.flatnonzero(frame["sex"] == "F")[:4]:
        swapped = frame.assign(sex=np.where(frame["sex"] == "F", "M", "F"))
        swapped.loc[who, "sex"] = "F"  # the others of its group are now those compared with, and the other way round
        deltas = []
        for table in (frame, swapped):
            mine = table[table["sex"] == "F"]
            found = situation_test(
                table, mine.assign(sex="M"), do={"sex": "M"}, attributes=["pay", "kind"], decisions=decisions, k=[3, 9],
                ties=ties, threads=1,  # type: ignore[arg-type]
            )
            at = int(np.flatnonzero(found.complainants == who)[0])
            deltas.append([found.claims(method, k).delta[at] for method in ("ST", "CST w/o") for k in (3, 9)])  # type: ignore[arg-type]
        assert np.allclose(deltas[0], -np.array(deltas[1]))


@settings(max_examples=25)
@given(seed=st.integers(0, 1000))
def test_negating_the_decisions_mirrors_delta(seed: int) -> None:
    frame, rng = people(seed, 120), np.random.default_rng(seed)
    decisions, mine = rng.random(120) < 0.5, (frame["sex"] == "F").to_numpy()
    moved = frame[mine].assign(pay=frame["pay"][mine] + 1500, sex="M")
    tilde = rng.random(int(mine.sum())) < 0.5
    one, other = (
        situation_test(
            frame, moved, do={"sex": "M"}, attributes=["pay", "kind"], decisions=d, counterfactual_decisions=t, k=[3, 9],
            terms=Terms(interval=kind), threads=1,  # type: ignore[arg-type]
        )
        for kind in ("newcombe",) for d, t in ((decisions, tilde), (~decisions, ~tilde))
    )
    for method in ("ST", "CST w/o", "CST"):
        for k in (3, 9):
            a, b = one.claims(method, k), other.claims(method, k)  # type: ignore[arg-type]
            assert np.allclose(a.delta, -b.delta)
            assert np.allclose(a.low, -b.high)


def test_a_group_smaller_than_k_is_an_error_that_names_the_largest_k() -> None:
    frame = people(1, 40)
    women = int((frame["sex"] == "F").sum())
    with pytest.raises(DataError, match=f"sex = F has only {women - 1} other rows; the largest k is {women - 1}"):
        situation_test(
            frame, frame[frame["sex"] == "F"], do={"sex": "M"}, attributes=["pay"], decisions=np.ones(40, dtype=bool), k=[women]
        )


@pytest.mark.parametrize(("do", "message"), [
    ({}, "no protected attribute"),
    ({"sex": "X"}, "no row has this value; found F, M"),
    ({"gender": "M"}, "no single column 'gender'"),
])
def test_interventions_that_cannot_be(do: dict[str, str], message: str) -> None:
    frame = people(0)
    with pytest.raises((DataError, QueryError), match=message):
        situation_test(frame, frame, do=do, attributes=["pay"], decisions=np.ones(len(frame), dtype=bool))


def test_the_table_is_not_held_by_attribute_while_neighbours_are_sought(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pools and centers have what is needed of it: of a million rows it is the largest array."""
    made, held, embed, sought = [], [], Metric.embed, testing.negatives

    def embedded(metric: Metric, frame: pd.DataFrame) -> Array:
        found = embed(metric, frame)
        made.append(ref(found))
        return found

    def seen(*args: Any, **how: Any) -> Array:
        held.append(made[0]() is not None)
        return sought(*args, **how)

    monkeypatch.setattr(Metric, "embed", embedded)
    monkeypatch.setattr(testing, "negatives", seen)
    no_effect(people(0), {"sex": "M"})
    assert held == [False, False]


def test_groups_of_nobody() -> None:
    frame = people(0).assign(sex="M")
    with pytest.raises(DataError, match="no complainant"):
        situation_test(frame, frame, do={"sex": "M"}, attributes=["pay"], decisions=np.ones(len(frame), dtype=bool))
    joint = pd.DataFrame({"sex": list("FFMM"), "race": ["Black", "Black", "Black", "White"], "pay": 1.0})
    joint.loc[3, "sex"] = "F"
    with pytest.raises(DataError, match="no test group"):
        situation_test(
            joint, joint.iloc[:2], do={"sex": "M", "race": "White"}, attributes=["pay"], decisions=np.ones(4, dtype=bool), k=[1]
        )


def test_recorded_decisions_have_no_counterfactual_ones() -> None:
    frame = people(2, 60)
    found = situation_test(
        frame, frame[frame["sex"] == "F"], do={"sex": "M"}, attributes=["pay"], decisions=np.ones(60, dtype=bool), k=[3]
    )
    assert found.methods == ("ST", "CST w/o")
    with pytest.raises(QueryError, match="recorded ones"):
        found.claims("CF", 3)
    with pytest.raises(QueryError, match="was not asked for"):
        found.claims("ST", 4)


def test_every_protected_value_has_its_own_control_group() -> None:
    frame = people(4, 300)
    found = situation_test(
        frame, frame[frame["race"] != "White"].assign(race="White"), do={"race": "White"}, attributes=["pay", "kind"],
        decisions=(frame["pay"] > 5000).to_numpy(), k=[5], threads=1,
    )
    assert found.names == ("race = Asian", "race = Black")
    for place in (0, 5, len(found.complainants) - 1):
        who = int(found.complainants[place])
        case = found.case(who, 5)
        assert set(frame["race"].iloc[case["control"][0]]) == {frame["race"].iloc[who]}
        assert who not in case["control"][0]
        assert set(frame["race"].iloc[case["CST"][0]]) == {"White"}
        assert found.names[found.groups[place]] == f"race = {frame['race'].iloc[who]}"


# Intervals


def interval(kind: Any, p: np.ndarray, n: Any, q: np.ndarray, m: Any, z: float) -> tuple[np.ndarray, np.ndarray]:
    return lower_end(kind, p, n, q, m, z), -lower_end(kind, q, m, p, n, z)


def test_wilson_and_newcombe_are_those_of_the_literature() -> None:
    for count, n in ((56, 70), (0, 5), (5, 5), (1, 3)):
        low, high = wilson(np.array([count / n]), n, 1.959963984540054)
        truth = binomtest(count, n).proportion_ci(method="wilson")
        assert (low[0], high[0]) == (pytest.approx(truth.low, abs=1e-12), pytest.approx(truth.high, abs=1e-12))
    # Newcombe 1998, table II, method 10, examples (a) and (h).
    p_c, n_c, p_t, n_t = np.array([56 / 70, 1.0]), np.array([70, 10]), np.array([48 / 80, 0.0]), np.array([80, 10])
    low, high = interval("newcombe", p_c, n_c, p_t, n_t, 1.959964)
    assert low == pytest.approx([0.0524, 0.6075], abs=6e-4)
    assert high == pytest.approx([0.3339, 1.0], abs=6e-4)


@pytest.mark.parametrize("tau", [0.0, 0.2])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_of_a_few_rows_chance_is_seldom_significant(n: int, tau: float) -> None:
    """Of all outcomes of n and n rows of equal chances, the significant ones have 2.5 % at most: of 2 and 2 none is."""
    p_c, p_t = (one.ravel() / n for one in np.meshgrid(np.arange(n + 1.0), np.arange(n + 1.0)))
    above = lower_end("newcombe", p_c, n, p_t, n, critical(0.95, 2)) > tau
    assert above.any() == (n == 3 and tau == 0)
    for p in np.linspace(0, 1 - tau, 41):
        assert (binom.pmf(n * p_c, n, p + tau) * binom.pmf(n * p_t, n, p))[above].sum() <= 0.025
    assert (p_value("newcombe", p_c, n, p_t, n, tau, 2)[~above] > 0.05 - 1e-9).all()


def test_the_exact_bound_of_a_few_rows_leaves_larger_groups_alone() -> None:
    one, zero, z = np.ones(1), np.zeros(1), critical(0.95, 2)
    for n in range(6, 200):
        assert newcombe_lower_of_few(one, n, zero, n, z) == newcombe(one, n, zero, n, z)[0]
    # all against none of 2 and 3: where the tail is the largest (q + d)^2 (1 - q)^3
    d = float(newcombe_lower_of_few(one, 2, zero, 3, z)[0])
    assert max((q + d) ** 2 * (1 - q) ** 3 for q in np.linspace(max(0, -d), 1, 100_001)) == pytest.approx(0.025, rel=1e-4)


def test_newcombe_behaves_at_0_and_1() -> None:
    one, zero = np.array([1.0]), np.array([0.0])
    assert [float(end[0]) for end in interval("wald", one, 3, zero, 3, 1.96)] == [1.0, 1.0]
    low, high = interval("newcombe", one, 3, zero, 3, 1.96)
    assert 0 < low[0] < 0.5
    assert high[0] == 1.0
    low, high = interval("newcombe", zero, 15, zero, 15, 1.96)
    assert low[0] < 0 < high[0]


def test_levels_are_those_of_the_normal() -> None:
    assert critical(0.95, 2) == pytest.approx(1.959964, abs=1e-6)
    assert critical(0.95, 1) == pytest.approx(1.644854, abs=1e-6)
    for level, sides in ((0.0, 2), (1.0, 2), (0.95, 3)):
        with pytest.raises(QueryError):
            critical(level, sides)


def test_a_difference_of_exactly_tau_has_a_p_value_of_1() -> None:
    """0.4 - 0.3 is more than 0.1 in floats, by rounding alone: it is no case."""
    for kind in INTERVALS:
        assert p_value(kind, np.array([0.4]), 10.0, np.array([0.3]), 10.0, 0.1, 1) == 1


@settings(max_examples=60)
@given(
    n=st.integers(1, 60), share=st.tuples(st.floats(0, 1), st.floats(0, 1)), tau=st.sampled_from([0.0, 0.05, -0.1]),
    level=st.sampled_from([0.8, 0.9, 0.95, 0.99]), sides=st.sampled_from([1, 2]), kind=st.sampled_from(["wald", "newcombe"]),
)
def test_p_values_and_intervals_say_the_same(
    n: int, share: tuple[float, float], tau: float, level: float, sides: int, kind: str
) -> None:
    p_c, p_t = (np.array([np.round(one * n) / n]) for one in share)
    low = lower_end(kind, p_c, n, p_t, n, critical(level, sides))  # type: ignore[arg-type]
    p = p_value(kind, p_c, n, p_t, n, tau, sides)  # type: ignore[arg-type]
    if abs(low[0] - tau) > 1e-9:
        assert (p[0] < 1 - level) == (low[0] > tau and p_c[0] - p_t[0] > tau)


def test_benjamini_hochberg_over_the_complainants_of_one_method_and_k() -> None:
    frame = people(7, 400)
    plain, controlled = (no_effect(frame, {"sex": "M"}, correction=correction) for correction in (None, "bh"))
    for method in ("ST", "CST"):
        one, other = plain.claims(method, 7), controlled.claims(method, 7)  # type: ignore[arg-type]
        assert np.allclose(other.p_value, false_discovery_control(one.p_value))
        assert set(np.flatnonzero(other.significant)) <= set(np.flatnonzero(one.significant))
        assert np.array_equal(other.significant, other.positive & (other.p_value <= 0.05))


def test_tau_met_exactly_is_no_case() -> None:
    frame = pd.DataFrame({"sex": list("FFFMM"), "pay": [0.0, 0.0, 0.0, 0.0, 0.0]})
    decisions = np.array([False, True, False, True, True])  # of row 1: both others refused; test: nobody
    found = situation_test(
        frame, frame.iloc[:3].assign(sex="M"), do={"sex": "M"}, attributes=["pay"], decisions=decisions, k=[2], terms=Terms(tau=0.5)
    )
    assert found.claims("ST", 2).delta.tolist() == [0.5, 1.0, 0.5]
    assert found.claims("ST", 2).positive.tolist() == [False, True, False]


def test_equal_shares_that_floats_tell_apart_are_no_case() -> None:
    # Of each complainant's 9 tied neighbours 3 count. In floats 3 * 7 / 9 / 3 and 7 / 9 are not the same number everywhere.
    tied = np.arange(1, 40)[:, None] * np.arange(1, 40) / 39.0
    other = (np.arange(1, 40)[:, None] / 39.0) * np.arange(1, 40)
    assert (tied - other > 0).any()
    assert not Terms().exceeded(tied - other).any()
    assert Terms(tau=0.1).exceeded(np.array([0.3 - 0.2, 0.1 + 1e-9])).tolist() == [False, True]


@pytest.mark.parametrize(
    "terms", [{"tau": 1.0}, {"level": 1.0}, {"sides": 0}, {"interval": "exact"}, {"correction": "bonferroni"}, {"tau": "0"}]
)
def test_terms_that_cannot_be(terms: dict[str, object]) -> None:
    with pytest.raises(QueryError):
        Terms(**terms)  # type: ignore[arg-type]


def test_an_own_scale_needs_axes() -> None:
    frame = people(3)
    with pytest.raises(QueryError, match="mahalanobis has not"):
        situation_test(
            frame, frame[frame["sex"] == "F"], do={"sex": "M"}, attributes=["pay"], decisions=np.ones(len(frame), dtype=bool),
            k=[3], distance="mahalanobis", own_scale=True,
        )
