"""Guardrails from counterexamples and retraining: the gap comes down, labels are consistent, and the measures of Table IV."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from encoders.model import Link
from encoders.network import Layer, Network
from encoders.onnx.reader import read_onnx
from solvers.outcome import Budget
from tests.builders import categorical, integer, lattice, linear_network, real, schema_of
from verifair import datasets
from verifair.checker.check import check
from verifair.datasets import Dataset
from verifair.engine.queries import KDiscrimination
from verifair.errors import DataError, QueryError, TrainingError
from verifair.schema.schema import Schema
from verifair.systems.hyfair.explain.lime import comparison, surrogates
from verifair.systems.hyfair.explain.refusals import snapped
from verifair.systems.hyfair.explain.rounds import explain_rounds, outside
from verifair.systems.hyfair.explain.rules import Rule, judge, refused
from verifair.systems.hyfair.explain.samples import Labelled, Neighbourhood, severity_of
from verifair.systems.hyfair.explain.settings import ExplainSettings
from verifair.systems.hyfair.guard.effects import EffectData, effect, score
from verifair.systems.hyfair.guard.retraining import instances, majority, retrain, weights_of
from verifair.systems.hyfair.guard.tighten import Tightening, tighten
from verifair.systems.hyfair.search.space import Space
from verifair.training.onnx_writer import onnx_model


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return datasets.load("german")


@pytest.fixture(scope="module")
def query(dataset: Dataset) -> KDiscrimination:
    network = read_onnx(datasets.network_path("german"))
    return KDiscrimination(model=network, schema=dataset.schema, protected=["sex", "age"], buckets=20)


def test_instances_carry_one_label_for_all_variants(dataset: Dataset, query: KDiscrimination) -> None:
    space, schema = Space.of(query), dataset.schema
    rows, labels = schema.raw(dataset.train), schema.labels(dataset.train)
    added = instances(space, rows, labels, rows[:1], seed=3)
    assert len(added.raw) == added.people * 4
    assert len(added.raw) <= len(rows)
    assert added.from_data > 0 < added.from_samples
    assert schema.inside(added.raw).all()
    people = space.canonical(added.raw).reshape(added.people, 4, -1)
    assert (people == people[:, :1]).all(), "the four variants of a person differ in protected features only"
    assert (added.labels.reshape(-1, 4) == added.labels.reshape(-1, 4)[:, :1]).all()
    assert (space.count(people[:, 0]) >= 2).all()
    own = {tuple(x): set() for x in space.canonical(rows)}
    for x, y in zip(space.canonical(rows), labels, strict=True):
        own[tuple(x)].add(int(y))
    for x, y in zip(people[: added.from_data, 0], added.labels[::4], strict=False):
        assert int(y) in own[tuple(x)], "a row of the data keeps its own label"
    sampled = people[added.from_data :, 0]
    assert (added.labels[4 * added.from_data :: 4] == majority(space, sampled)).all()


def test_the_majority_of_the_variants_decides(query: KDiscrimination) -> None:
    space = Space.of(query)
    raw = space.random(np.random.default_rng(0), 300)
    for x, said in zip(raw, majority(space, raw), strict=True):
        z = query.model.forward(query.schema.encode(space.rows(x)))
        votes = int((z[:, 1] > z[:, 0]).sum())
        assert votes == 2 or said == (votes > 2)


def test_retraining_is_seeded_and_reads_back(dataset: Dataset, query: KDiscrimination, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    space = Space.of(query)
    centre = query.schema.raw(dataset.train)[:1]
    for name, seed in (("one", 0), ("two", 0), ("other", 1)):
        retrain(space, dataset, centre, tmp_path / f"{name}.onnx", epochs=2, learning_rate=1e-3, seed=seed)
    one, two, other = ((tmp_path / f"{name}.onnx").read_bytes() for name in ("one", "two", "other"))
    assert one == two
    assert one != other
    read = read_onnx(tmp_path / "one.onnx")
    assert read.hidden == query.model.hidden
    before, after = query.model.layers[0].weight, read.layers[0].weight
    assert 0 < np.abs(after - before).max() < 0.2, "training went on from the old weights"


def test_retraining_lowers_k_where_it_was_high(dataset: Dataset, query: KDiscrimination, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    rows = query.schema.raw(dataset.train)
    retrain(Space.of(query), dataset, rows[:0], tmp_path / "r.onnx", epochs=10, learning_rate=1e-3)
    again = KDiscrimination(model=read_onnx(tmp_path / "r.onnx"), schema=query.schema, protected=query.protected)
    assert Space.of(again).count(rows).mean() < Space.of(query).count(rows).mean() - 0.1


def test_one_logit_networks_are_retrained_too(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from verifair.training.fit import fine_tune
    from verifair.training.settings import GradientDescent

    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, 3)).astype(np.float32)
    labels = (x[:, 0] > 0).astype(np.int64)
    start = ((rng.standard_normal((5, 3)).astype(np.float32), np.zeros(5, dtype=np.float32)),
             (rng.standard_normal((1, 5)).astype(np.float32), np.zeros(1, dtype=np.float32)))
    trained, losses = fine_tune(start, x, labels, GradientDescent(epochs=30, batch=16, learning_rate=1e-2))
    assert losses[-1] < 0.5 * losses[0]
    z = np.maximum(x @ trained[0][0].T + trained[0][1], 0) @ trained[1][0].T + trained[1][1]
    assert ((z[:, 0] > 0) == labels).mean() > 0.95
    with pytest.raises(TrainingError, match="learning_rate"):
        GradientDescent(epochs=5, batch=256, learning_rate=0)


def test_only_plain_relu_networks_are_retrained() -> None:
    layers = (
        Layer(weight=np.eye(2), bias=np.zeros(2), slope=np.array([0.0, 0.1])),
        Layer(weight=np.ones((1, 2)), bias=np.zeros(1), slope=np.ones(1)),
    )
    with pytest.raises(TrainingError, match="ReLU"):
        weights_of(Network(layers=layers, link=Link.IDENTITY, source_sha256=""))


def test_nothing_to_retrain_on_is_said(dataset: Dataset, query: KDiscrimination) -> None:
    flat = Network(
        layers=tuple(Layer(weight=0 * layer.weight, bias=layer.bias, slope=layer.slope) for layer in query.model.layers),
        link=Link.IDENTITY, source_sha256="",
    )
    space = Space.of(KDiscrimination(model=flat, schema=query.schema, protected=query.protected))
    rows = query.schema.raw(dataset.train)
    with pytest.raises(DataError, match="nothing to retrain on"):
        instances(space, rows, query.schema.labels(dataset.train), rows[:1])


def test_effects_leave_refused_rows_out(dataset: Dataset, query: KDiscrimination) -> None:
    schema = query.schema
    rows, labels = schema.raw(dataset.test), schema.labels(dataset.test)
    lower, upper = np.full(len(schema.features), -np.inf), np.full(len(schema.features), np.inf)
    upper[schema.index("duration")] = 20.0
    rules = snapped([Rule(lower=lower, upper=upper)], schema)
    accuracy, abstained = score(query.model, schema, rules, rows, labels)
    kept = ~refused(rules, rows)
    predicted = query.model.forward(schema.encode(rows[kept])).argmax(axis=1)
    assert accuracy == pytest.approx((predicted == labels[kept]).mean())
    assert abstained == pytest.approx(1 - kept.mean())
    on = EffectData(data=rows, labels=labels, clusters=rows[kept][:1], iterations=20, budget=Budget(seconds=30))
    before, after = (effect(name, query, chosen, on) for name, chosen in (("original", ()), ("rules", rules)))
    assert before.abstained == 0 < after.abstained
    assert before.local_success > after.local_success
    assert 2 <= after.max_k <= 4
    assert before.rows == after.rows


def thresholded(positive: str) -> Schema:
    age, group = integer("age", 0, 9, scale="minmax"), categorical("group", "u", "v", protected=True)
    return schema_of(age, group, positive=positive, label="y", positive_label="yes")


def older(schema: Schema, sign: int = 1) -> Dataset:
    """A table in which the old, or the young, are called favourable."""
    lines = [(age, group, "yes" if sign * (age - 4.5) > 0 else "no") for age in range(10) for group in "uv"]
    return Dataset(name="older", frame=pd.DataFrame(lines * 10, columns=["age", "group", "y"]), schema=schema)


@pytest.mark.parametrize("positive", ["logit > 0", "logit > 2", "logit >= 2", "logit < 2", "logit <= 2"])
def test_accuracy_is_of_the_decision_that_the_schema_names(positive: str) -> None:
    schema, table = thresholded(positive), older(thresholded(positive), -1 if "<" in positive else 1)
    sloping = linear_network(10.0, 0.0, bias=-5.0 if positive == "logit > 0" else -3.0)  # beyond 2 from 5 years on
    accuracy, _ = score(sloping, schema, (), schema.raw(table.frame), schema.labels(table.frame))
    assert accuracy == 1


@pytest.mark.parametrize("positive", ["logit > 3", "logit >= 3", "logit < 3", "logit <= 3"])
def test_retraining_learns_the_decision_that_the_schema_names(positive: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    schema, table = thresholded(positive), older(thresholded(positive))
    query = KDiscrimination(model=linear_network(1.0, 5.0, bias=0.5), schema=schema, protected=["group"])
    space = Space.of(query)
    raw = schema.raw(table.frame)
    retrain(space, table, raw[:0], tmp_path / "r.onnx", epochs=200, learning_rate=0.1)
    reached = schema.outcome.reached(read_onnx(tmp_path / "r.onnx").forward(schema.encode(raw))[:, 0])
    assert (reached == (table.frame["y"] == "yes")).mean() > 0.9
    votes = query.model.forward(schema.encode(np.concatenate([space.rows(x) for x in raw]))).reshape(len(raw), 2)
    share = schema.outcome.reached(votes).mean(axis=1)
    assert ((majority(space, raw) == schema.good) == (share > 0.5))[share != 0.5].all()


def test_effects_are_searched_in_the_box_where_no_row_of_the_table_is_answered_there() -> None:
    schema = thresholded("logit > 0")
    query = KDiscrimination(model=linear_network(1.0, 1.0), schema=schema, protected=["group"], box={"age": (0, 3)})
    rules = (Rule(lower=np.array([2.0, -np.inf]), upper=np.array([3.0, np.inf])),)
    for rows in ([[9.0, 0.0]], [[2.0, 0.0]]):
        on = EffectData(data=np.array(rows), labels=None, clusters=None, iterations=5, budget=Budget(seconds=30))
        assert effect("rules", query, rules, on).max_k == 2


def test_effects_are_searched_in_the_whole_table_where_rules_leave_few_rows_and_none_that_is_held_out() -> None:
    """Rules leave one box of 10^-6 of all: hardly a random row lies there, and one row of the table does."""
    schema = schema_of(*(integer(name, 0, 999) for name in ("a", "b")), categorical("group", "u", "v", protected=True))
    query = KDiscrimination(model=linear_network(0.0, 0.0, 1.0), schema=schema, protected=["group"])
    least = np.full(3, -np.inf)
    rules = [Rule(lower=least, upper=np.array([998.0, np.inf, np.inf])), Rule(lower=least, upper=np.array([np.inf, 998.0, np.inf]))]
    on = EffectData(data=np.array([[5.0, 999.0, 0.0]]), labels=None, clusters=None, iterations=5, budget=Budget(seconds=30))
    with pytest.raises(QueryError, match="nearly every row"):
        effect("rules", query, rules, on)
    found = effect("rules", query, rules, replace(on, table=np.array([[5.0, 999.0, 0.0], [999.0, 999.0, 1.0]])))
    assert (found.max_k, found.abstained) == (2, 1.0)


def test_rounds_leave_the_refused_region(query: KDiscrimination) -> None:
    found = explain_rounds(query, ExplainSettings(rounds=3, samples=1500, iterations=30, measure="gap"))
    assert len(found.found) > 1
    for number, one in enumerate(found.found[1:], start=1):
        earlier = [kept.rule for explanation in found.found[:number] for kept in explanation.rules]
        assert not refused(earlier, one.centre[None, :]).any()
        assert not refused(earlier, one.labelled.raw).any()
    again = explain_rounds(query, ExplainSettings(rounds=3, samples=1500, iterations=30, measure="gap"))
    assert [rule.lower.tolist() for rule in again.rules] == [rule.lower.tolist() for rule in found.rules]


def test_rounds_go_on_where_rules_refuse_the_whole_table() -> None:
    """Most buckets are for the oldest, of whom the table is; group 0 is not for all others."""
    schema = schema_of(integer("age", 0, 9), integer("hours", 0, 9), integer("group", 0, 2, protected=True), constraints=[
        {"never": {"age": {"high": 7}, "group": 0}},
    ])
    query = KDiscrimination(model=linear_network(2.0, 0.0, 4.0, bias=-20.0), schema=schema, protected=["group"])
    table = np.array([[9.0, 1, 1]])
    found = explain_rounds(query, ExplainSettings(rounds=2, samples=1000, delta=0.0), rows=table)
    assert refused([one.rule for one in found.found[0].rules], table).all()
    assert len(found.found) == 2, found.stopped
    assert schema.inside(np.array([one.centre for one in found.found])).all()


def test_surrogates_name_the_features_that_matter() -> None:
    """A logit that hangs on two of five features (and on the protected one): a linear model sees just these."""
    schema = schema_of(*(real(f"x{i}", -1.0, 1.0) for i in range(5)), categorical("sex", "f", "m"))
    linear = linear_network(0.0, 3.0, 0.0, 2.0, 0.0, 1.0)
    query = KDiscrimination(model=linear, schema=schema, protected=["sex"])
    space = Space.of(query)
    severity = severity_of(space, "gap")
    found = surrogates(space, np.zeros(6), severity, samples=2000)
    assert set(found.features[:2]) == {1, 3}
    assert found.named[:2] == (2, 2), "both variants name them"
    assert 5 not in found.features
    explanation = explain_rounds(query, ExplainSettings(measure="gap", samples=2000, delta=0.0), centre=np.zeros(6)).found
    lines = comparison(schema, explanation, [found])
    assert [line.method for line in lines] == ["LIME", "rules"]
    assert all(line.diff == pytest.approx(line.k - line.pert_k) for line in lines)


# Guardrails from counterexamples: the certified gap comes down to the target, and people in the data are spared.


SCHEMA = schema_of(
    integer("age", 0, 30),
    integer("hours", 0, 20),
    categorical("sex", "f", "m", protected=True),
)


@pytest.fixture(scope="module")
def gap_query(tmp_path_factory: pytest.TempPathFactory) -> KDiscrimination:
    """logit = 2 relu(sex * 25 + age - 50) - 1: sex matters only where age exceeds 25, up to a gap of sigma(9) - sigma(-1)."""
    weights = [([[1, 0, 25]], [-50]), ([[2]], [-1])]
    model = onnx_model([(np.array(w, dtype=np.float32), np.array(b, dtype=np.float32)) for w, b in weights], {})
    path = tmp_path_factory.mktemp("net") / "net.onnx"
    path.write_bytes(model.SerializeToString())
    return KDiscrimination(model=read_onnx(path), schema=SCHEMA, protected=["sex"])


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    """Data: nobody is older than 24."""
    rng = np.random.default_rng(0)
    return np.column_stack([rng.integers(0, 25, 500), rng.integers(0, 21, 500), rng.integers(0, 2, 500)]).astype(float)


def test_what_is_answered_is_proved_to_have_no_gap_above_the_target(gap_query: KDiscrimination, rows: np.ndarray) -> None:
    before, found = tighten(gap_query, rows, 0.3, seconds=30)
    assert before.lower > 0.7
    assert not refused(found.rules, rows).any(), "no row of the data is like the counterexamples"
    points = lattice(gap_query.schema.domain.lower, gap_query.schema.domain.upper)
    gap, answered = severity_of(Space.of(gap_query), "gap")(points), ~refused(found.rules, points)
    assert gap.max() > 0.7
    assert gap[answered].max() <= 0.3 + 1e-6, "the proof is about all that is answered"
    assert answered.mean() == pytest.approx(found.domain)
    narrowed = outside(gap_query, found.rules).schema
    assert check(found.certificate, model=gap_query.model, schema=narrowed).accepted
    assert not check(found.certificate, model=gap_query.model, schema=gap_query.schema).accepted, "it is about the guarded one"
    tampered = outside(gap_query, found.rules[1:]).schema
    forged = replace(found.certificate, schema_sha256=tampered.sha256)
    assert not check(forged, model=gap_query.model, schema=tampered).accepted, "one rule less leaves a box without a proof"


def test_a_rule_about_a_fixed_real_feature_covers_all_of_it_or_nothing() -> None:
    schema = schema_of(real("pay", 2.0, 2.0, scale="none"), categorical("sex", "f", "m", protected=True))
    space = Space.of(KDiscrimination(model=linear_network(1.0, 1.0), schema=schema, protected=["sex"]))
    shares = [Rule(lower=np.array([low, -np.inf]), upper=np.full(2, np.inf)).share(space) for low in (1.0, 2.0, 3.0)]
    assert shares == [1.0, 1.0, 0.0]


def test_a_target_is_a_gap_of_probabilities_also_where_rules_are_about_two_decisions(
    gap_query: KDiscrimination, rows: np.ndarray
) -> None:
    decisions = KDiscrimination(
        model=gap_query.model.whole, schema=gap_query.schema.changed(positive="logit >= 3"), protected=["sex"], buckets=2
    )
    before, found = tighten(decisions, rows, 0.3, seconds=30)
    points = lattice(gap_query.schema.domain.lower, gap_query.schema.domain.upper)
    gap, answered = severity_of(Space.of(gap_query), "gap")(points), ~refused(found.rules, points)
    assert before.lower <= gap.max() + 1e-6 <= before.upper + 2e-6
    assert gap[answered].max() <= 0.3 + 1e-6
    assert check(found.certificate, model=gap_query.model, schema=outside(decisions, found.rules).schema).accepted


def test_smaller_targets_refuse_more_and_are_proved_as_well(gap_query: KDiscrimination) -> None:
    everybody = lattice(gap_query.schema.domain.lower, gap_query.schema.domain.upper)
    work, shares = Tightening(question=gap_query, given=(), rows=everybody, seed=0), []
    gap = severity_of(work.space, "gap")(everybody)
    for target, k in ((0.5, 11), (0.2, 6), (0.05, 3)):  # as floats, 0.2 and 0.05 are a little more
        found = work.towards(target, 20.0)
        answered = ~refused(found.rules, everybody)
        assert gap[answered].max() <= target + 1e-6
        assert work.space.count(everybody)[answered].max() <= found.most_buckets(20) == k
        assert found.open == 0, "each box is decided"
        assert (answered == (gap <= target)).all(), "nobody is refused for nothing"
        shares.append(answered.mean())
        assert check(found.certificate, model=gap_query.model, schema=outside(gap_query, found.rules).schema).accepted
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > shares[-1]


def test_a_guardrail_with_nobody_to_spare_or_to_refuse_is_none(gap_query: KDiscrimination, rows: np.ndarray) -> None:
    with pytest.raises(QueryError, match=r"^no gap is above .*; set a smaller --target"):
        tighten(gap_query, rows, 0.99, seconds=10)
    enough = Rule(lower=np.array([26, -np.inf, -np.inf]), upper=np.full(3, np.inf))
    with pytest.raises(QueryError, match=r"^outside of the given rules no gap is above 0.3, .*; drop --target"):
        tighten(gap_query, rows, 0.3, rules=[enough], seconds=10)
    with pytest.raises(QueryError, match="no row of the table lies in the box"):
        tighten(gap_query, rows[:0], 0.3, seconds=10)


def test_where_nothing_is_proved_the_error_says_what_lacks(gap_query: KDiscrimination, rows: np.ndarray) -> None:
    asked = Tightening(question=gap_query, given=(), rows=rows, seed=0)
    within = f"{100 * (asked.gaps <= 0.3).mean():.0f} % are within the target"
    with pytest.raises(QueryError, match=f"would refuse everybody.*{within}.*1 boxes were not decided.*--protected"):
        asked.towards(0.3, 0.0)


def test_a_target_that_is_no_gap_is_refused(gap_query: KDiscrimination, rows: np.ndarray) -> None:
    for target in (0.0, 1.0, -0.1):
        with pytest.raises(QueryError, match="target"):
            tighten(gap_query, rows, target)


def test_samples_inside_a_rule_are_local_ones_given_rule_and_constraints() -> None:
    """u = b is never with w = c: samples moved from there to w = d all had u = a. At w = d the chance of u = b is 1/4."""
    schema = schema_of(
        categorical("u", "a", "b"), categorical("w", "c", "d"), categorical("sex", "f", "m", protected=True),
        constraints=[{"never": {"u": ["b"], "w": ["c"]}}],
    )
    space = Space.of(KDiscrimination(model=linear_network(2.0, 0.0, 1.0), schema=schema, protected=["sex"]))
    near, rng = Neighbourhood.of(space, np.array([0.0, 1.0, 0.0])), np.random.default_rng(0)
    rule = Rule(lower=np.array([-np.inf, 1.0, -np.inf]), upper=np.full(3, np.inf))
    local = near.draw(1000, rng)
    share = np.mean([
        judge(rule, near, Labelled(raw=local, severity=local[:, 0], threshold=1.0), lambda raw: raw[:, 0], None, rng).inside
        for _ in range(20)
    ])
    assert share == pytest.approx(0.25, abs=0.015)  # 20,000 samples: five standard errors; it was 0.2
