"""FGCE's measures: on tables small enough to be done by hand, of all groups in a given time, and compared."""

import itertools

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from encoders.arrays import Array
from encoders.onnx.reader import read_onnx
from solvers.outcome import Budget
from tests.builders import categorical, integer, one_hot, real, schema_of
from tests.soundness.systems.random_groups import most_covered
from verifair import datasets
from verifair.engine.parallel import Helpers
from verifair.errors import QueryError
from verifair.systems.fgce import result
from verifair.systems.fgce.estimator import GroupCounterfactuals
from verifair.systems.fgce.findings import (
    LEAST,
    WITHOUT,
    _of_means,
    _of_shares,
    comparisons,
    explanations,
    interval,
    share_interval,
    summaries,
)
from verifair.systems.fgce.instance import CostBlock, Instance
from verifair.systems.fgce.measures import burden as module
from verifair.systems.fgce.measures.burden import Burden, burden, levels_of
from verifair.systems.fgce.measures.changes import assignment, binned, change_frequency, change_size
from verifair.systems.fgce.measures.curves import (
    cost_curves,
    cost_levels,
    cost_table,
    coverage_steps,
    coverage_table,
    curves,
    exact_area,
    paper_levels,
    reach,
)
from verifair.systems.fgce.space import FeatureSpace
from verifair.systems.fgce.tables import _show_burden, changes, comparison_grid, subgroup_lines
from verifair.systems.results.result import Interval

INF = np.inf


def instance(*costs: Array | list[list[float]]) -> Instance:
    """Blocks (f, c); nodes are numbered block by block, factuals first."""
    blocks, node = [], 0
    for number, cost in enumerate(np.asarray(cost) for cost in costs):
        f, c = cost.shape
        ends = np.arange(node, node + f), np.arange(node + f, node + f + c)
        blocks.append(CostBlock(component=number, factuals=ends[0], candidates=ends[1], cost=cost))
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
    levels = cost_levels(FeatureSpace.of(schema))  # four features, blocks of indicators count once: up to 2
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
    space = FeatureSpace.of(schema)
    raw = np.array([[1, 0, 0], [2, 0, 0], [3, 2, 0], [9, 1, 1], [3, 2, 0]], dtype=float)
    found = change_frequency(space, raw, np.array([0, 1, 2, 3]), np.array([4, 2, 4, -1]))
    assert found.to_dict() == {"age": 2 / 3, "job": 2 / 3, "sex": 0.0}  # a block of indicators changes once; row 3 is not served
    assert change_frequency(space, raw, np.array([0]), np.array([-1])).isna().all()


def test_attribute_changes_see_bins_of_amounts_and_the_size_is_in_units() -> None:
    space = FeatureSpace.of(schema_of(integer("amount", 0, 1000), integer("age", 0, 99), categorical("sex", "F", "M")))
    raw = np.column_stack([np.arange(0, 1010, 5) % 1001, np.arange(202) % 100, np.arange(202) % 2]).astype(float)
    levels = binned(space, raw)
    assert (levels[:, 1:] == raw[:, 1:]).all()  # a hundred different ages are not more than MANY
    assert np.unique(levels[:, 0]).tolist() == list(range(6))
    edges = 1000 / 6 * np.arange(1, 6)
    assert (levels[:, 0] == (raw[:, 0][:, None] >= edges).sum(axis=1)).all()
    factuals, assigned = np.array([0, 2, 40]), np.array([1, 40, -1])
    found = change_frequency(space, levels, factuals, assigned)
    assert found.to_dict() == {"amount": 0.5, "age": 1.0, "sex": 0.5}  # 0 and 5 are alike, 10 and 200 are not
    sizes = change_size(space, raw, factuals, assigned)
    assert sizes[["amount", "age"]].tolist() == [(5 + 190) / 2, (1 + 38) / 2]
    assert np.isnan(sizes["sex"])
    assert change_size(space, raw, np.array([3]), np.array([3])).isna().all()


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


def test_an_interval_of_one_value_is_that_value_and_of_one_person_has_no_ends() -> None:
    found = interval(np.full(3, 2.0))
    assert found.low == found.mean == found.high == 2.0
    alone = interval(np.array([0.7]))
    assert alone.mean == 0.7
    assert np.isnan([alone.low, alone.high]).all()


# The measures of all groups in a given time, how groups are compared by them, and what becomes of them when time is short.


def random_instance(seed: int, parts: int = 2) -> Instance:
    """Costs on a grid, so that there are ties; every factual has some counterfactual."""
    rng = np.random.default_rng(seed)
    blocks, node = [], 0
    for part in range(parts):
        f, c = (int(n) for n in rng.integers(2, 8, 2))
        cost = rng.integers(1, 9, (f, c)) / 8.0
        cost[rng.random((f, c)) < 0.4] = np.inf
        cost[np.isinf(cost).all(axis=1), 0] = 1.0
        nodes = np.arange(node, node + f + c)
        blocks.append(CostBlock(component=part, factuals=nodes[:f], candidates=nodes[f:], cost=cost))
        node += f + c
    empty = np.empty(0, dtype=np.int64)
    return Instance(blocks=tuple(blocks), hopeless=empty, candidates=np.concatenate([block.candidates for block in blocks]))


LEVELS = np.array([0.25, 0.5, 0.75, 1.0])


@pytest.fixture(scope="module")
def instances() -> dict[str, Instance]:
    return {"a": random_instance(1), "b": random_instance(2, parts=3)}


def test_in_time_it_says_what_each_question_alone_does(instances: dict[str, Instance]) -> None:
    found = burden(instances, LEVELS, seconds=60)
    assert found.stopped is None
    assert found.points_not_proved_optimal == 0
    console, open_ = Console(record=True, width=200), found.cost.assign(optimal=np.arange(len(found.cost)) > 0)
    _show_burden(found.model_copy(update={"reach": {}, "cost": open_}), [], console)
    assert "1 point of the curves is not proved optimal" in console.export_text()
    for name, instance in instances.items():
        own = found.coverage[found.coverage["group"] == name].set_index(["k", "d"])["coverage"]
        alone = coverage_table(instance, range(1, 11), LEVELS).set_index(["k", "d"])["coverage"]
        assert (own.sort_index() == alone.sort_index()).all()
        cost = found.cost[found.cost["group"] == name].set_index(["k", "c"])["cost"]
        again = cost_table(instance, sorted(set(cost.index.get_level_values("k"))), module.COVERAGES).set_index(["k", "c"])["cost"]
        assert (cost.sort_index() == again.sort_index()).all()
        reach = found.reach[name]
        assert reach is not None
        assert cost[(reach.k0, 1.0)] == reach.d0
        parts = [part for part in found.subgroups[name].values() if part is not None]
        assert sum(part.k0 for part in parts) == reach.k0
        assert max(part.d_least for part in parts) == reach.d_least


def test_other_processes_find_the_same(instances: dict[str, Instance], monkeypatch: pytest.MonkeyPatch) -> None:
    here = burden(instances, LEVELS, seconds=600, grid="all")
    monkeypatch.setattr(Helpers, "ready", lambda self: 2)  # nothing is asked here meanwhile
    assert burden(instances, LEVELS, seconds=600, grid="all", jobs=2).model_dump_json() == here.model_dump_json()


@pytest.mark.parametrize("seed", range(4))
def test_areas_over_all_costs_are_brute_forces(seed: int) -> None:
    one = random_instance(seed)
    cost = one.costs()
    values = np.unique(cost[np.isfinite(cost)])
    for k in (1, 2, 4):
        steps = coverage_steps(one, k)
        assert steps is not None
        truth = np.array([most_covered(cost, k, d) for d in values]) / one.size
        rises = np.flatnonzero(np.diff(truth, prepend=0.0))
        assert steps["d"].tolist() == values[rises].tolist()
        assert steps["coverage"].tolist() == truth[rises].tolist()
        low, high = 0.2, 1.1
        ends = np.unique(np.clip([low, *values, high], low, high))
        area = sum((b - a) * most_covered(cost, k, a) / one.size for a, b in itertools.pairwise(ends))
        found = exact_area(steps, low, high)
        assert found["score"] == pytest.approx(area / (high - low))
        inside = rises[values[rises] <= high]
        assert (found["saturation"], found["largest"]) == ((values[inside[-1]], truth[inside[-1]]) if len(inside) else (low, 0.0))
        assert exact_area(steps, low, 5.0)["largest"] == truth[-1]
    assert coverage_steps(one, 2, budget=Budget(seconds=1e-9)) is None


def test_all_costs_take_the_place_of_levels_for_all_groups_or_none(
    instances: dict[str, Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, found = burden(instances, LEVELS, seconds=60), burden(instances, LEVELS, seconds=60, grid="all")
    assert plain.steps.empty
    assert set(found.kauc["group"]) == {"a", "b"}
    both = plain.kauc.merge(found.kauc, on=["k", "group"], suffixes=("", " exact"))
    assert len(both) == len(plain.kauc) == len(found.kauc)
    assert (both["saturation exact"] <= both["saturation"]).all()  # a level at or above the cost itself
    assert (both["largest"] <= both["largest exact"]).all()
    monkeypatch.setattr(module, "coverage_steps", lambda one, k, budget: None)
    assert burden(instances, LEVELS, seconds=60, grid="all").kauc.equals(plain.kauc)


def test_over_all_costs_each_area_is_the_one_that_is_asked_there(instances: dict[str, Instance]) -> None:
    """dAUC at every d, and cAUC at every c, from the steps, beside optima that are asked for again."""
    found = burden(instances, LEVELS, seconds=60, grid="all")
    dauc, cauc = found.dauc, found.cauc
    assert dauc["width"].drop_duplicates().min() > 0
    assert dauc.drop_duplicates("d")["width"].sum() == pytest.approx(LEVELS[-1] - LEVELS[0])
    assert cauc.drop_duplicates("c")["width"].sum() == pytest.approx(1.0)
    for name, instance in instances.items():
        costs = np.unique(dauc["d"])[::7]
        again = curves(coverage_table(instance, range(1, 11), costs.tolist()), "k").set_index("d")
        own = dauc[dauc["group"] == name].set_index("d")
        assert (own.loc[costs, ["score", "saturation", "largest"]] == again[["score", "saturation", "largest"]]).all(axis=None)
    shares = np.unique(cauc["c"])[::9]
    again = cost_curves({name: cost_table(one, range(1, 11), shares.tolist()) for name, one in instances.items()})
    both = again.merge(cauc, on=["c", "group"], suffixes=("", " all"))
    assert len(both) == 2 * len(shares)
    for part in ("score", "saturation", "least"):
        assert both[f"{part} all"].tolist() == pytest.approx(both[part].tolist(), nan_ok=True)


def test_the_papers_kauc_has_a_grid_of_its_own(instances: dict[str, Instance]) -> None:
    space = FeatureSpace.of(schema_of(integer("a", 0, 9), integer("b", 0, 9), integer("c", 0, 9)))
    plain, found = burden(instances, LEVELS, seconds=60), burden(instances, LEVELS, seconds=60, grid="paper", space=space)
    d0 = max(one.d0 for one in found.reach.values() if one is not None)
    assert found.kauc_levels == paper_levels(space, d0, 0.25).tolist()
    assert found.kauc_levels[0] == 0.7 * d0
    assert found.dauc.equals(plain.dauc)
    for name, instance in instances.items():
        alone = curves(coverage_table(instance, range(1, 11), found.kauc_levels), "d")
        assert found.kauc[found.kauc["group"] == name]["score"].tolist() == alone["score"].tolist()


def test_the_papers_grid_has_two_ends_at_least() -> None:
    """A single cost makes no curve along d: the whole run ended there."""
    space = FeatureSpace.of(schema_of(integer("a", 0, 9)))      # costs up to 1, in steps of .09
    assert len(paper_levels(space, 1.0, 0.09)) > 2
    assert paper_levels(space, 0.95 / 0.7, 0.09).tolist() == pytest.approx([0.95, 1.0])


def test_an_area_is_over_a_range() -> None:
    with pytest.raises(QueryError, match="expected a range"):
        exact_area(pd.DataFrame({"d": [1.0], "coverage": [1.0]}), 1.0, 1.0)


def test_without_time_nothing_is_made_up(instances: dict[str, Instance]) -> None:
    found = burden(instances, LEVELS, seconds=1e-9)
    assert found.stopped == "time"
    assert not len(found.coverage)
    assert not len(found.cost)
    assert not len(found.kauc)
    assert not len(found.cauc)


def test_ctrl_c_keeps_whole_levels_and_gives_no_area_under_half_a_curve(
    instances: dict[str, Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def interrupted(*arguments: object, **options: object) -> pd.DataFrame:
        calls.append(1)
        if len(calls) > 4:
            raise KeyboardInterrupt
        return coverage_table(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "coverage_table", interrupted)
    found = burden(instances, LEVELS, seconds=60)
    assert found.stopped == "interrupted"
    assert sorted(found.coverage["d"].unique()) == [0.25, 0.5]
    assert found.kauc.empty
    assert set(found.dauc["group"]) == {"a", "b"}
    assert all(reach is not None for reach in found.reach.values())


@pytest.mark.parametrize("seed", range(40))
def test_bounds_of_one_question_bound_the_others_and_stay_true(seed: int) -> None:
    """The truth rises both ways; bounds around it, drawn at random and some missing, are narrowed and never pass it."""
    rng = np.random.default_rng(seed)
    truth = np.cumsum(np.cumsum(rng.integers(0, 3, (6, 5)), axis=0), axis=1).astype(float)
    low, high = truth - rng.integers(0, 4, truth.shape), truth + rng.integers(0, 4, truth.shape)
    places = [(i, j) for i, j in np.ndindex(truth.shape) if rng.random() < 0.8]
    lines = [{"group": "g", "k": i, "d": j, "low": low[i, j], "high": high[i, j], "optimal": False} for i, j in places]
    table = pd.DataFrame(lines).sample(frac=1, random_state=seed)
    found = module._bounded(table, "k", "d", "low", "high")
    assert list(zip(found["k"], found["d"], strict=True)) == list(zip(table["k"], table["d"], strict=True))
    for line, before in zip(found.itertuples(), table.itertuples(), strict=True):
        assert before.low <= line.low <= truth[line.k, line.d] <= line.high <= before.high
        assert line.optimal == (line.low == line.high)
    wide = found.pivot(index="k", columns="d", values="low").sort_index()
    assert (wide.ffill(axis=0).diff().iloc[1:].fillna(0) >= 0).all(axis=None)


def test_levels_follow_the_cost() -> None:
    fitted = fit(cost="hops")
    instances = {name: group.instance for name, group in fitted.groups_.items()}
    hops = levels_of(fitted.space_, instances, "hops")
    assert (hops == np.rint(hops)).all()
    assert hops[0] == 1
    lengths = levels_of(fitted.space_, instances, "l2")
    assert lengths[0] == 0.1
    assert len(lengths) == 10
    assert lengths[-1] == fitted.space_.largest_cost
    paths = levels_of(fitted.space_, instances, "path")
    assert (np.diff(paths) > 0).all()


def test_costs_of_the_own_grids_end_at_the_largest_distance() -> None:
    """One that takes a change of two categories of three is covered at no cost below, which the paper's grid says."""
    space = FeatureSpace.of(schema_of(one_hot("b", "x", "y", "z"), categorical("c", "u", "v", "w"), integer("d", 2, 2)))
    ends = space.points(np.array([[0.0, 0.0, 2.0], [2.0, 2.0, 2.0]]))
    assert space.largest_cost == np.linalg.norm(ends[0] - ends[1]) == 2.0
    alone = {"all": instance(np.array([[space.largest_cost]]))}
    for grid, share in (("ten", 1.0), ("all", 1.0), ("paper", 0.0)):
        found = burden(alone, levels_of(space, alone, "l2", grid), grid=grid, space=space)
        assert found.coverage["coverage"].max() == share
        assert set(found.kauc["largest"]) == {share}


def fit(**options: object) -> GroupCounterfactuals:
    """German Credit's test rows in two groups."""
    german = datasets.load("german")
    audit = np.isin(np.arange(len(german.frame)), german.split[1])
    model = GroupCounterfactuals(read_onnx(datasets.network_path("german")), german.schema, k=10, **options)  # type: ignore[arg-type]
    return model.fit(german.frame, sensitive_features=["sex"], audit=audit)


def test_shares_of_changes_are_rounded_and_all_is_everybody() -> None:
    schema = schema_of(integer("a", 0, 9), integer("b", 0, 9), integer("c", 0, 9))
    advice = result.Advice(
        row=3, values={"a": 1, "b": 2, "c": 3}, serves=1000, largest=1.0, mean=1.0, changes={"a": 1.0, "b": 0.999, "c": 7 / 9}
    )
    assert changes(advice, schema) == "a = 1 (all), b = 2 (99%), c = 3 (78%)"


def test_a_subgroup_says_how_many_of_its_people_have_no_way_out() -> None:
    fitted = fit(max_cost=3.0)
    one = summaries(fitted, pd.Index(range(len(fitted.graph_))))[0]
    part = one.subgroups[0].model_copy(
        update={"common": {}, "factuals": 40, "hopeless": 7, "candidates": 56, "used": 4, "covered": 40, "largest": 3.569}
    )
    assert subgroup_lines(one.model_copy(update={"name": "sex = F", "subgroups": [part]})) == [
        "sex = F, subgroup 1: 47 to be explained (7 of them without any feasible counterfactual), 56 positive rows; "
        "4 rows serve 40, cost up to 3.569"
    ]


def test_a_summary_adds_up_and_names_rows_as_the_table_does() -> None:
    fitted = fit(max_cost=3.0)
    rows = pd.Index([f"r{n}" for n in range(len(fitted.graph_))])
    lines = explanations(fitted, rows)
    for one in summaries(fitted, rows):
        group = fitted.groups_[one.name]
        own = lines[lines["group"] == one.name]
        assert one.negatives == len(own) == one.factuals + one.hopeless
        assert (own["changes"] == "no feasible counterfactual").sum() == one.hopeless
        assert (own["changes"] == "not covered").sum() == one.factuals - one.covered
        assert one.certainty.value == one.coverage.mean == one.covered / one.factuals
        assert sum(part.factuals for part in one.subgroups) == one.factuals
        assert sum(part.hopeless for part in one.subgroups) == one.hopeless
        assert sum(part.covered for part in one.subgroups) == one.covered
        for advice in one.advice:
            served = own[own["counterfactual"] == advice.row]
            assert len(served) == advice.serves
            assert served["cost"].max() == advice.largest
            node = int(str(advice.row).removeprefix("r"))
            assert advice.values == fitted.schema.decode(fitted.graph_.raw[node])
            for name, share in advice.changes.items():
                differs = np.mean([f"; {name}: " in f"; {text}" for text in served["changes"]])
                assert share == pytest.approx(differs) if name != "credit-amount" else share <= differs  # by bins
        assert one.cheapest == min(block.cost.min() for block in group.instance.blocks)


def test_a_difference_that_may_be_chance_is_called_so() -> None:
    near = _of_means(LEAST, {"a": np.linspace(1, 2, 40), "b": np.linspace(1.01, 2.01, 40)}, 0)
    assert near.worst == "b"
    assert not near.clear
    line = _of_means(LEAST, {"a": np.linspace(1, 2, 40), "b": np.linspace(3, 4, 40)}, 0)
    assert line.clear
    assert line.chance is not None
    assert line.chance.low < 2 < line.chance.high
    assert line.apart == pytest.approx(2.0)


def test_costs_that_differ_by_rounding_tell_no_groups_apart() -> None:
    line = _of_means(LEAST, {"a": np.full(40, 1 / 3), "b": np.full(40, 1 - 2 / 3)}, 0)
    assert (line.worst, line.clear) == (None, False)
    later = cost_curves({"a": costs((1.0, 1, 1 - 2 / 3), (1.0, 2, 1 / 3)), "b": costs((1.0, 1, 0.5), (1.0, 2, 0.4))})
    assert later["saturation"].tolist() == [1, 2]


def test_groups_that_mean_nothing_are_seldom_told_apart() -> None:
    """Of six groups of one kind the extremes are far apart: at most 5 % of the differences are clear, here of 200."""
    rng = np.random.default_rng(0)
    names = "abcdef"
    means = [_of_means(LEAST, {name: rng.normal(3, 1, 40) for name in names}, seed).clear for seed in range(200)]
    shares = [_of_shares(WITHOUT, {name: (int(rng.binomial(40, 0.3)), 40) for name in names}).clear for _ in range(200)]
    assert np.mean(means) <= 0.1
    assert np.mean(shares) <= 0.1


def test_nobody_is_no_sure_share() -> None:
    """0 and 4 of 40 may be chance (Fisher's p is 0.12); 0 and 12 are not."""
    assert not _of_shares(WITHOUT, {"a": (0, 40), "b": (4, 40)}).clear
    assert _of_shares(WITHOUT, {"a": (0, 40), "b": (12, 40)}).clear
    all_served = share_interval(np.ones(3, dtype=bool))
    assert (all_served.mean, all_served.high) == (1, 1)
    assert all_served.low == pytest.approx(0.4385, abs=1e-3)


def test_groups_are_compared_by_everybodys_own_least_cost() -> None:
    fitted = fit(max_cost=3.0)
    found = summaries(fitted, pd.RangeIndex(len(fitted.graph_)))
    line = {line.measure: line for line in comparisons(fitted, found, None)}[LEAST]
    for name, group in fitted.groups_.items():
        assert line.values[name] == np.concatenate([block.cost.min(axis=1) for block in group.instance.blocks]).mean()
        assert line.people[name] == group.instance.size


def test_beside_other_methods_only_those_served_count() -> None:
    """Under a limit of cost, and the share that is to be covered, as in the groups' own table."""
    fitted = fit(max_cost=3.0)
    found = {one.name: one for one in summaries(fitted, pd.RangeIndex(len(fitted.graph_)))}
    lines = [line for line in fitted.compared() if line["method"] == "FGCE"]
    assert len(lines) == len(found)
    for line in lines:
        one = found[line["group"]]
        assert line["coverage"] == pytest.approx(one.covered / one.negatives)
        assert one.covered < one.factuals
        assert one.mean is not None
        assert line["cost"] == pytest.approx(one.mean.mean)


@pytest.mark.parametrize("groups", [("sex = Female", "sex = Male"), ("housing = for free", "housing = own", "housing = rent")])
def test_the_comparison_of_groups_fits_80_columns_with_its_border(groups: tuple[str, ...]) -> None:
    lines = [
        result.GroupComparison(
            measure=measure, values=dict.fromkeys(groups, 0.04225), people=dict.fromkeys(groups, 100), worst=groups[0],
            apart=0.0443, chance=Interval(mean=0.0443, low=0.0139, high=0.1273),
        )
        for measure in ("share without any feasible counterfactual", "kAUC, mean over k (higher is better)")
    ]  # fmt: skip
    console = Console(record=True, width=80)
    console.print(comparison_grid(lines))
    _, top, *rows = console.export_text().splitlines()
    assert (top[0], top[-1]) == ("┏", "┓")
    assert all(row[-1] in "┃┩│┘" for row in rows)
    assert [row.split("│")[1].strip() for row in rows[-5:-2]] == ["counterfactual", "kAUC, mean over", "k (higher is"]


def test_more_coverage_is_no_burden(monkeypatch: pytest.MonkeyPatch) -> None:
    """kAUC is better when higher: the worst-off group is the one with less. Few people are not compared by any measure."""
    fitted = fit()
    found = summaries(fitted, pd.RangeIndex(len(fitted.graph_)))
    own = {name: group.instance for name, group in fitted.groups_.items()}
    measured = burden(own, levels_of(fitted.space_, own, "l2"), seconds=60)
    assert isinstance(measured, Burden)
    few = comparisons(fitted, found, measured)
    assert {line.worst for line in few} == {None}
    console = Console(record=True, width=200)
    console.print(comparison_grid(few))
    text = " ".join(console.export_text().split())
    assert text.count("not compared") == len(few) + 1
    assert "fewer than 30 people, shown and not compared: sex = Female (15), sex = Male (25)" in text
    monkeypatch.setattr(result, "SMALL", 15)
    lines = {line.measure: line for line in comparisons(fitted, found, measured)}
    values = lines["kAUC, mean over k (higher is better)"].values
    assert lines["kAUC, mean over k (higher is better)"].worst == min(values, key=lambda name: values[name])
    costs = lines["d0 with any number"].values
    assert lines["d0 with any number"].worst == max(costs, key=lambda name: costs[name])
