"""The measures of all groups in a given time, how groups are compared by them, and what becomes of them when time is short."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from encoders.onnx.reader import read_onnx
from verifair import datasets
from verifair.systems.fgce import measures as module
from verifair.systems.fgce.estimator import GroupCounterfactuals
from verifair.systems.fgce.findings import comparisons, explanations, summaries
from verifair.systems.fgce.instance import Block, Instance
from verifair.systems.fgce.measures import Burden, burden, cost_table, coverage_table, levels_of


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
        blocks.append(Block(component=part, factuals=nodes[:f], candidates=nodes[f:], cost=cost))
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
    assert lengths[-1] < fitted.space_.largest_cost
    paths = levels_of(fitted.space_, instances, "path")
    assert (np.diff(paths) > 0).all()


def fit(**options: object) -> GroupCounterfactuals:
    """German Credit's test rows in two groups."""
    german = datasets.load("german")
    audit = np.isin(np.arange(len(german.frame)), german.split[1])
    model = GroupCounterfactuals(read_onnx(datasets.network_path("german")), german.schema, k=10, **options)  # type: ignore[arg-type]
    return model.fit(german.frame, sensitive_features=["sex"], audit=audit)


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
                assert share == pytest.approx(np.mean([f"; {name}: " in f"; {text}" for text in served["changes"]]))
        assert one.cheapest == min(block.cost.min() for block in group.instance.blocks)


def test_a_difference_that_may_be_chance_is_called_so() -> None:
    fitted = fit()
    found = summaries(fitted, pd.RangeIndex(len(fitted.graph_)))
    groups = list(fitted.groups_)
    first = fitted.groups_[groups[0]]
    for name, cost in ((groups[0], np.linspace(1, 2, 12)), (groups[1], np.linspace(1.01, 2.01, 12))):
        fitted.groups_[name] = type(first)(**{**vars(fitted.groups_[name]), "cost": cost})
    lines = {line.measure: line for line in comparisons(fitted, found, None)}
    assert lines["mean cost"].worst == groups[1]
    assert not lines["mean cost"].clear
    fitted.groups_[groups[1]] = type(first)(**{**vars(fitted.groups_[groups[1]]), "cost": np.linspace(3, 4, 12)})
    line = {line.measure: line for line in comparisons(fitted, found, None)}["mean cost"]
    assert line.clear
    assert line.chance is not None
    assert line.chance.low < 2 < line.chance.high
    assert line.apart == pytest.approx(2.0)


def test_more_coverage_is_no_burden(instances: dict[str, Instance]) -> None:
    """kAUC is better when higher: the worst-off group is the one with less."""
    fitted = fit()
    found = summaries(fitted, pd.RangeIndex(len(fitted.graph_)))
    own = {name: group.instance for name, group in fitted.groups_.items()}
    measured = burden(own, levels_of(fitted.space_, own, "l2"), seconds=60)
    assert isinstance(measured, Burden)
    lines = {line.measure: line for line in comparisons(fitted, found, measured)}
    values = lines["kAUC, mean over k (higher is better)"].values
    assert lines["kAUC, mean over k (higher is better)"].worst == min(values, key=lambda name: values[name])
    costs = lines["d0 with any number"].values
    assert lines["d0 with any number"].worst == max(costs, key=lambda name: costs[name])
