"""FGCE's measures on tables small enough to be done by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from encoders.network import Array
from solvers.outcome import Budget
from tests.builders import categorical, integer, one_hot, real, schema_of
from verifair.errors import QueryError
from verifair.systems.fgce.instance import Block, Instance
from verifair.systems.fgce.measures import (
    assignment,
    change_frequency,
    cost_curves,
    cost_levels,
    cost_table,
    coverage_table,
    curves,
    interval,
    reach,
)
from verifair.systems.fgce.space import Space

INF = np.inf


def instance(*costs: Array | list[list[float]]) -> Instance:
    """Blocks (f, c); nodes are numbered block by block, factuals first."""
    blocks, node = [], 0
    for number, cost in enumerate(np.asarray(cost) for cost in costs):
        f, c = cost.shape
        ends = np.arange(node, node + f), np.arange(node + f, node + f + c)
        blocks.append(Block(component=number, factuals=ends[0], candidates=ends[1], cost=cost))
        node += f + c
    return Instance(blocks=tuple(blocks), hopeless=np.empty(0, dtype=np.int64), candidates=np.arange(node))


SMALL = instance([[1.0], [2.0]], [[3.0]])
"""Factuals 0 and 1 with candidate 2 at costs 1 and 2, factual 3 with candidate 4 at cost 3."""
CROSSED = instance([[1.0, 5.0, INF], [6.0, 2.0, INF], [4.0, 9.0, 3.0]])


def test_reach_by_hand() -> None:
    one = reach(SMALL)
    assert (one.k0, one.d0, one.d_least, one.optimal) == (2, 3.0, 3.0, True)
    other = reach(CROSSED)  # candidate 0 alone covers all at 6; with all three nobody pays more than 3
    assert (other.k0, other.d0, other.d_least, other.optimal) == (1, 6.0, 3.0, True)


def test_coverage_and_its_curves_by_hand() -> None:
    table = coverage_table(SMALL, [1, 2], [1.0, 2.0, 3.0])
    shares = {(1, 1.0): 1, (1, 2.0): 2, (1, 3.0): 2, (2, 1.0): 1, (2, 2.0): 2, (2, 3.0): 3}
    for line in table.itertuples():
        assert line.coverage == line.greedy == line.bound == shares[line.k, line.d] / 3
        assert line.optimal
    along_d = curves(table, "d").set_index("k")
    assert along_d.loc[1].tolist() == pytest.approx([2, 2 / 3, (1 / 2 + 2 / 3) / 2])
    assert along_d.loc[2].tolist() == pytest.approx([3, 1, (1 / 2 + 5 / 6) / 2])
    along_k = curves(table, "k").set_index("d")
    assert along_k.loc[1.0].tolist() == pytest.approx([1, 1 / 3, 1 / 3])
    assert along_k.loc[3.0].tolist() == pytest.approx([2, 1, 5 / 6])


def test_greedy_may_cover_less_and_says_so() -> None:
    """The middle column covers four of six, then each of the others one more; without it they cover all."""
    near = np.array([[1, 1, 0], [1, 1, 0], [1, 0, 0], [0, 1, 1], [0, 1, 1], [0, 0, 1]])
    cost = np.where(near == 1, 1.0, INF)
    table = coverage_table(instance(cost), [1, 2, 3], [1.0])
    assert table["greedy"].tolist() == pytest.approx([4 / 6, 5 / 6, 1])
    assert table["coverage"].tolist() == pytest.approx([4 / 6, 1, 1])
    assert curves(table, "k", "greedy")["score"].tolist() == pytest.approx([(4.5 + 5.5) / 12])
    assert "coverage" not in coverage_table(instance(cost), [1], [1.0], exact=False)


def test_an_infinite_cost_limit_covers_feasible_pairs_only() -> None:
    table = coverage_table(SMALL, [1, 2], [INF])
    assert table["coverage"].tolist() == table["greedy"].tolist() == pytest.approx([2 / 3, 1])


def test_curves_take_uneven_steps_in_any_order() -> None:
    table = pd.DataFrame({"k": [1, 1, 1], "d": [0.4, 0.1, 0.2], "coverage": [1.0, 0.0, 0.5]})
    line = curves(table, "d").iloc[0]
    assert (line["saturation"], line["largest"]) == (0.4, 1.0)
    assert line["score"] == pytest.approx((0.25 * 0.1 + 0.75 * 0.2) / 0.3)


def test_full_coverage_scores_one_and_none_scores_nothing() -> None:
    table = pd.DataFrame({"k": [1, 1, 2, 2], "d": [1.0, 3.0, 1.0, 3.0], "coverage": [1.0, 1.0, 0.0, 0.0]})
    found = curves(table, "d")
    assert found["score"].tolist() == [1.0, 0.0]
    assert found["saturation"].tolist() == [1.0, 1.0]


def test_a_curve_needs_two_points() -> None:
    for ks in ([1], [1, 1]):
        with pytest.raises(QueryError, match="a curve along k needs at least two values of k; found 1 only"):
            curves(coverage_table(SMALL, ks, [1.0]), "k")


def test_cost_levels_are_those_of_appendix_c() -> None:
    schema = schema_of(
        integer("a", 0, 4),
        one_hot("b", "x", "y", "z"),
        categorical("c", "u", "v", "w"),
        real("d", 0, 1),
    )
    levels = cost_levels(Space.of(schema))  # four features, blocks of indicators count once: up to 2
    assert levels.tolist() == pytest.approx([0.1 + 0.19 * n for n in range(10)])


def test_costs_by_hand() -> None:
    table = cost_table(SMALL, [1, 2], [1 / 3, 2 / 3, 1.0]).set_index(["c", "k"])
    assert table["cost"].tolist() == [1, 1, 2, 2, INF, 3]
    assert table["lower"].tolist() == table["cost"].tolist()
    assert table["optimal"].all()
    assert cost_table(CROSSED, [1, 2, 3, 4], [1.0])["cost"].tolist() == [6, 4, 3, 3]


def test_costs_that_cannot_be_asked_are_refused_not_infinite() -> None:
    for share in (0.0, 1.5, np.nan):
        with pytest.raises(QueryError, match="expected a share of the factuals, above 0 and at most 1"):
            cost_table(SMALL, [1], [1.0, share])
    with pytest.raises(QueryError, match="k = 0: at least one counterfactual is needed"):
        cost_table(SMALL, [1, 0], [1.0])
    with pytest.raises(QueryError, match="k = 0: at least one counterfactual is needed"):
        coverage_table(SMALL, [0, 1], [1.0])


def test_costs_out_of_time_keep_their_gap() -> None:
    cost = np.random.default_rng(0).random((60, 12))
    line = cost_table(instance(cost), [3], [1.0], budget=Budget(seconds=1e-9)).iloc[0]
    assert line["lower"] <= cost_table(instance(cost), [3], [1.0]).iloc[0]["cost"] <= line["cost"]
    assert not line["optimal"]


def costs(*lines: tuple[float, int, float]) -> pd.DataFrame:
    return pd.DataFrame(lines, columns=["c", "k", "cost"]).assign(lower=0.0, optimal=True)


def test_cost_curves_by_hand() -> None:
    """Only k = 2, 3, 5 are common; the least there are 2, 1, 1, with an area of 1.5 + 2 = 3.5."""
    first = costs((1.0, 1, 4), (1.0, 2, 2), (1.0, 3, 2), (1.0, 5, 2))
    other = costs((1.0, 1, INF), (1.0, 2, 3), (1.0, 3, 1), (1.0, 5, 1))
    found = cost_curves({"first": first, "other": other}).set_index("group")
    assert found.loc["first", ["saturation", "least"]].tolist() == [2, 2]
    assert found.loc["other", ["saturation", "least"]].tolist() == [3, 1]
    assert found["score"].tolist() == pytest.approx([(2 + 4) / 3.5, (2 + 2) / 3.5])


def test_the_cheapest_group_of_all_scores_one() -> None:
    cheap, dear = costs((0.5, 1, 2), (0.5, 2, 1)), costs((0.5, 1, 3), (0.5, 2, 3))
    assert cost_curves({"cheap": cheap, "dear": dear})["score"].tolist() == [1.0, 2.0]


def test_cost_curves_without_two_common_ks_have_no_score() -> None:
    first, other = costs((1.0, 1, INF), (1.0, 2, 2)), costs((1.0, 1, 3), (1.0, 2, 1))
    found = cost_curves({"first": first, "other": other})
    assert found["score"].isna().all()
    assert found["least"].tolist() == [2, 1]
    never = cost_curves({"first": costs((1.0, 1, INF), (1.0, 2, INF)), "other": other}).set_index("group")
    assert never.loc["first", ["saturation", "least", "score"]].isna().all()
    assert never.loc["other", ["saturation", "least"]].tolist() == [2, 1]


def test_cost_curves_where_a_group_was_not_asked_about_a_coverage() -> None:
    first, other = costs((0.5, 1, 2), (0.5, 2, 1)), costs((1.0, 1, 3), (1.0, 2, 1))
    found = cost_curves({"first": first, "other": other}).set_index(["c", "group"])
    assert found["score"].isna().all()
    assert found.loc[(0.5, "first"), "least"] == 1
    assert np.isnan(found.loc[(0.5, "other"), "least"])


def test_everyone_goes_to_the_cheapest_of_the_chosen() -> None:
    nodes, paid = assignment(CROSSED, np.array([4, 3]))
    assert nodes.tolist() == [3, 4, 3]
    assert paid.tolist() == [1, 2, 4]
    nodes, paid = assignment(CROSSED, np.array([3, 4]), 2.0)
    assert nodes.tolist() == [3, 4, -1]
    assert paid.tolist() == [1, 2, INF]
    nodes, paid = assignment(SMALL, np.array([2]))
    assert nodes.tolist() == [2, 2, -1]
    nodes, paid = assignment(SMALL, np.empty(0, dtype=np.int64), 1.0)
    assert nodes.tolist() == [-1, -1, -1]
    assert paid.tolist() == [INF] * 3


def test_attribute_change_frequency_by_hand() -> None:
    schema = schema_of(
        integer("age", 0, 9),
        one_hot("job", "a", "b", "c"),
        categorical("sex", "F", "M", protected=True),
    )
    space = Space.of(schema)
    raw = np.array([[1, 0, 0], [2, 0, 0], [3, 2, 0], [9, 1, 1], [3, 2, 0]], dtype=float)
    found = change_frequency(space, raw, np.array([0, 1, 2, 3]), np.array([4, 2, 4, -1]))
    assert found.to_dict() == {"age": 2 / 3, "job": 2 / 3, "sex": 0.0}  # a block of indicators changes once; row 3 is not served
    assert change_frequency(space, raw, np.array([0]), np.array([-1])).isna().all()


def test_bootstrap_intervals() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(3.0, 2.0, 400)
    found = interval(values)
    half = 1.96 * values.std() / 20
    assert found.mean == values.mean()
    assert found.low == pytest.approx(values.mean() - half, abs=0.15 * half)
    assert found.high == pytest.approx(values.mean() + half, abs=0.15 * half)
    assert interval(values) == found
    assert interval(values, seed=1) != found
    wider = interval(values, level=0.99)
    assert wider.low < found.low < found.high < wider.high
    shares = interval((rng.random(100) < 0.9).astype(float))
    assert 0 <= shares.low < shares.mean < shares.high <= 1


def test_bootstrap_intervals_cover_as_often_as_they_say() -> None:
    """90 % intervals of 200 samples of 60: within four standard errors of 90 %."""
    rng = np.random.default_rng(1)
    hits = [(one := interval(rng.exponential(1.0, 60), level=0.9, resamples=300, seed=n)).low <= 1 <= one.high for n in range(200)]
    assert 0.8 <= np.mean(hits) <= 0.97


@pytest.mark.parametrize("values", [[0.7], [2.0, 2.0, 2.0]])
def test_an_interval_of_one_value_is_that_value(values: list[float]) -> None:
    found = interval(np.array(values))
    assert found.low == found.mean == found.high == values[0]
