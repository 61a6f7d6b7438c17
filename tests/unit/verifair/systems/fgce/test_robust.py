"""Counterfactuals on the network itself: re-evaluated, certified in their neighbourhood, and chosen among the certified ones."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from encoders.arrays import Array
from encoders.network import Network
from encoders.onnx.reader import read_model, read_onnx
from encoders.onnx.runtime import predictions
from solvers.outcome import Budget
from tests.brute_force import fractions
from tests.builders import integer, schema_of
from tests.tree_models import random_tree, save
from verifair import datasets
from verifair.checker.certificates.certificate import Certificate, Counterexample
from verifair.checker.certificates.envelope import Trust
from verifair.checker.certificates.statement import RowStatement
from verifair.checker.certificates.tree import Tree
from verifair.checker.check import check
from verifair.engine.verdict import Status
from verifair.errors import DataError, QueryError, SchemaError
from verifair.schema.schema import Schema
from verifair.systems.fgce.estimator import GroupCounterfactuals
from verifair.systems.fgce.optimum.center import Centers
from verifair.systems.fgce.optimum.cover import Coverage
from verifair.systems.fgce.robust import certify_robust, re_evaluated
from verifair.training.onnx_writer import Weights, onnx_model


@pytest.fixture(scope="module")
def german() -> tuple[Network, Schema, pd.DataFrame]:
    dataset = datasets.load("german")
    return read_onnx(datasets.network_path("german")), dataset.schema, dataset.frame


def written(path: Path, weights: Weights) -> Network:
    onnx.save(onnx_model(weights, {}), path)
    return read_onnx(path)


def affine(weight: list[list[float]], bias: list[float]) -> tuple[np.ndarray, np.ndarray]:
    return np.array(weight, dtype=np.float32), np.array(bias, dtype=np.float32)


def two_numbers(**more: object) -> Schema:
    features = [integer("a", 0, 10, unit=1), integer("b", 0, 10, unit=2) | more]
    return schema_of(*features)


def beyond_float32(folder: Path) -> Network:
    """relu(1e8 a + b) - relu(1e8 a), which is b, and 0 in float32 for a > 0: the runtime loses b when it adds it to 1e8."""
    return written(folder / "n.onnx", [affine([[1e8, 1], [1e8, 0]], [0, 0]), affine([[1, -1]], [0])])


# What the network decides

def test_a_decision_that_float32_loses_is_told(tmp_path: Path) -> None:
    network = beyond_float32(tmp_path)
    found = re_evaluated(network, two_numbers(), np.array([[1.0, 1.0], [0.0, 1.0], [1.0, 0.0]]))
    assert found["positive"].tolist() == [True, True, False]
    assert found["float32"].tolist() == [False, True, False]
    assert found["agrees"].tolist() == [False, True, True]
    assert found["margin"].tolist() == [1.0, 1.0, 0.0]


def test_without_a_file_there_is_no_float32_decision(tmp_path: Path) -> None:
    network = replace(beyond_float32(tmp_path), source=None)
    found = re_evaluated(network, two_numbers(), np.array([[1.0, 1.0]]))
    assert found[["row", "positive", "float32", "agrees"]].to_numpy().tolist() == [[0, True, None, None]]
    table = certify_robust(network, two_numbers(), np.array([[1.0, 1.0]]), delta=[1]).table
    assert (table["status"].tolist(), table["float32_agrees"].tolist()) == (["violated"], [None])


def test_a_violation_that_float32_does_not_show_is_told(tmp_path: Path) -> None:
    """1/2 - (relu(1e8 a + b) - relu(1e8 a)): b = 1 is decided negatively, and positively in float32."""
    network = written(tmp_path / "n.onnx", [affine([[1e8, 1], [1e8, 0]], [0, 0]), affine([[-1, 1]], [0.5])])
    raw = np.array([[1.0, 0.0]])
    table = certify_robust(network, two_numbers(unit=1), raw, delta=[0, 1]).table
    assert table["status"].tolist() == ["proved", "violated"]
    witness = table["witness"][1]
    assert abs(witness["a"] - 1) <= 1
    assert witness["b"] == 1
    replayed = predictions(network, np.array([[witness["a"], 1]], dtype=np.float32))[0]
    assert table["float32_agrees"][1] == (replayed == 0)


def test_more_classes_are_all_to_be_beaten(tmp_path: Path) -> None:
    """Logits (a - 3, 2, b - 3): class 1 wins up to a = 4 and, on ties too, up to b = 5."""
    network = written(tmp_path / "n.onnx", [affine([[1, 0], [0, 0], [0, 1]], [-3, 2, -3])])
    schema = Schema.model_validate(two_numbers().model_dump(exclude_none=True) | {"positive": "class = 1"})
    found = certify_robust(network, schema, np.array([[3.0, 3.0], [3.0, 4.0], [4.0, 0.0]]), delta=[1])
    assert found.table["status"].tolist() == ["proved", "violated", "violated"]
    assert found.table["against"].tolist() == [None, 2, 0]
    assert found.certificate is not None
    asked = [(p.statement.row, p.statement.classes) for p in found.certificate.proofs if isinstance(p.statement, RowStatement)]
    assert asked == [((3, 3), (1, 0)), ((3, 3), (1, 2)), ((3, 4), (1, 2)), ((4, 0), (1, 0))]  # one class refutes a row
    refuted = [isinstance(p.evidence, Counterexample) for p in found.certificate.proofs]
    assert refuted == [False, False, True, True]
    assert check(found.certificate, model=network, schema=schema).accepted


def test_proofs_beyond_the_rounding_of_float32_say_so(tmp_path: Path) -> None:
    """a + b - 16 + 2^-20 is more than 1 at (8, 9), and 2^-20 at (8, 8), of which rounding may leave nothing."""
    network = written(tmp_path / "n.onnx", [affine([[1, 1]], [2.0**-20 - 16])])
    raw = np.array([[8.0, 9.0], [8.0, 8.0]])
    found = certify_robust(network, two_numbers(), raw, delta=[0])
    assert found.certificate is not None
    assert [proof.float32 for proof in found.certificate.proofs] == [True, False]
    assert check(found.certificate, model=network, schema=two_numbers()).accepted


# German

def numbers_near(schema: Schema, row: Array, delta: int) -> Array:
    """All rows with duration and credit amount, German's two numbers with a unit, up to delta units away."""
    axes = []
    for name, unit in (("duration", 1), ("credit-amount", 100)):
        v = schema.index(name)
        low, high = max(row[v] - delta * unit, schema.domain.lower[v]), min(row[v] + delta * unit, schema.domain.upper[v])
        axes.append(np.arange(low, high + 1))
    points = np.array(list(itertools.product(*axes)))
    out = np.repeat(row[None], len(points), axis=0)
    out[:, [schema.index("duration"), schema.index("credit-amount")]] = points
    return out


def test_german_verdicts_are_those_of_every_row_around(german: tuple[Network, Schema, pd.DataFrame]) -> None:
    network, schema, frame = german
    raw = schema.raw(frame)
    margins = re_evaluated(network, schema, raw)["margin"]
    near = np.flatnonzero(margins > 0)[np.argsort(margins[margins > 0])][:30]  # those that are decided most narrowly
    found = certify_robust(network, schema, raw[near], delta=[1, 2])
    assert set(found.table["status"]) == {"proved", "violated"}
    for line in found.table.itertuples():
        around = numbers_near(schema, raw[near[line.row]], int(line.delta))
        logits = network.forward(schema.encode(around))
        difference = logits[:, 1] - logits[:, 0]
        assert np.abs(difference).min() > 1e-9  # float64 decides all of them
        assert line.status == ("proved" if (difference > 0).all() else "violated")
        assert line.lower <= difference.min() + 1e-9
        if line.status == "violated":
            witness = np.array([schema.raw_value(name, value) for name, value in line.witness.items()])
            assert (around == witness).all(axis=1).any()
            logit = network.forward(fractions(schema.encode(witness[None])))[0]
            assert logit[1] <= logit[0]
            assert line.float32_agrees == (predictions(network, schema.encode(witness[None]).astype(np.float32))[0] == 0)


def test_the_certificate_stands_alone_and_not_when_it_claims_more(
    german: tuple[Network, Schema, pd.DataFrame], tmp_path: Path
) -> None:
    network, schema, frame = german
    raw = schema.raw(frame)
    margins = re_evaluated(network, schema, raw)["margin"]
    near = np.flatnonzero(margins > 0)[np.argsort(margins[margins > 0])][:10]
    found = certify_robust(network, schema, raw[near], delta=[1, 5])
    assert found.certificate is not None
    assert found.certificate.trust is Trust.CHECKED
    found.certificate.save(tmp_path / "robust.json.gz")
    stored = Certificate.load(tmp_path / "robust.json.gz")
    report = check(stored, model=network, schema=schema)
    assert report.accepted
    assert report.proofs == int((found.table["status"] == "proved").sum()) > 0
    refuted = found.table[found.table["status"] == "violated"].iloc[0]
    proof = next(one for one in stored.proofs if isinstance(one.evidence, Tree))
    row = tuple(raw[near[refuted["row"]]].tolist())
    more = replace(proof, statement=replace(proof.statement, row=row, delta=refuted["delta"]))  # type: ignore[type-var]
    assert not check(replace(stored, proofs=(more,)), model=network, schema=schema).accepted


def test_only_robust_ones_are_chosen(german: tuple[Network, Schema, pd.DataFrame]) -> None:
    """The cost never falls as delta grows, and whatever is chosen is proved once more on its own."""
    network, schema, frame = german
    model = GroupCounterfactuals(network, schema, k=4, max_cost=2.8, seconds=20)
    X = frame.iloc[:400].reset_index(drop=True)
    covered = []
    for delta in (None, 0.0, 2.0, 20.0, 80.0):
        model.set_params(only_robust=delta).fit(X, sensitive_features="age")
        found = {name: group.found for name, group in model.groups_.items()}
        assert all(isinstance(one, Coverage) and one.optimal for one in found.values())
        covered.append([one.covered for one in found.values() if isinstance(one, Coverage)])
        if delta is None:
            continue
        certified = model.certify([delta])
        assert set(certified.table["status"]) == {"proved"}
        assert certified.table.groupby("group")["row"].apply(list).to_dict() == {
            name: group.used.tolist() for name, group in model.groups_.items()
        }
        assert model.re_evaluated()["agrees"].all()
        robust = {name: group.robust for name, group in model.groups_.items()}
        chosen = [one.asked[int(n)] for name, one in robust.items() if one is not None for n in found[name].chosen]
        assert set(chosen) == {Status.PROVED}
    assert covered[0] == covered[1]  # at delta 0 a decision is its own proof
    assert all(after <= before for less, more in itertools.pairwise(covered) for before, after in zip(less, more, strict=True))
    assert covered[-1] != covered[0]


def test_centers_are_the_best_among_robust_rows(german: tuple[Network, Schema, pd.DataFrame]) -> None:
    """The same as fitting with all rows that are not robust taken for negative ones that nobody asks about."""
    network, schema, frame = german
    X = frame.iloc[:250].reset_index(drop=True)
    model = GroupCounterfactuals(network, schema, k=9, coverage=0.9, eps=4.0, only_robust=30.0).fit(X)
    group = model.groups_["all"]
    table = certify_robust(network, schema, model.graph_.raw[group.instance.columns], delta=[30.0]).table
    robust = group.instance.columns[(table["status"] == "proved").to_numpy()]
    assert 0 < len(robust) < len(group.instance.columns)
    costs = group.instance.to(robust)
    count = int(np.ceil(0.9 * group.instance.size))
    assert isinstance(group.found, Centers)
    assert set(group.found.chosen.tolist()) <= set(robust.tolist())
    assert group.found.lower >= np.sort(costs.min(axis=1))[count - 1]
    assert np.sort(group.instance.to(group.found.chosen).min(axis=1))[count - 1] <= group.found.cost


# Mistakes

def test_an_estimator_is_certified_as_the_network_that_it_becomes(german: tuple[Network, Schema, pd.DataFrame]) -> None:
    _, schema, frame = german
    x = schema.encode(schema.raw(frame))
    model = LogisticRegression(max_iter=1000).fit(x, frame[schema.label])
    fields = {name: getattr(schema, name) for name in type(schema).model_fields}
    raw, one = schema.raw(frame)[:5], Schema.model_validate({**fields, "positive": "logit > 0"})
    asked = (model, one, raw)
    assert certify_robust(*asked, delta=[0.0]).table["status"].isin(["proved", "violated"]).all()
    assert np.array_equal(re_evaluated(*asked)["positive"], model.predict(x[:5]) == schema.positive_label)
    for ask in (certify_robust, re_evaluated):
        with pytest.raises(QueryError, match="model: found object; expected the path of an"):
            ask(object(), schema, raw, **({"delta": [1]} if ask is certify_robust else {}))


def test_without_units_there_is_no_neighbourhood(german: tuple[Network, Schema, pd.DataFrame]) -> None:
    network, schema, frame = german
    features = [f.model_dump(exclude_none=True, exclude={"unit", "unit_name"}, exclude_defaults=True) for f in schema.features]
    bare = Schema.model_validate(schema.model_dump(exclude={"features"}) | {"features": features})
    with pytest.raises(SchemaError, match="no feature that may move has one"):
        GroupCounterfactuals(network, bare, only_robust=1.0).fit(frame)
    with pytest.raises(SchemaError, match="no feature that may move has one"):
        certify_robust(network, bare, bare.raw(frame)[:1], delta=[1])
    assert re_evaluated(network, bare, bare.raw(frame)[:3])["agrees"].all()


@pytest.mark.parametrize(("delta", "told"), [([-1.0], "delta = -1.0"), ([np.inf], "delta = inf"), ([], "delta is empty")])
def test_deltas_that_are_none(german: tuple[Network, Schema, pd.DataFrame], delta: list[float], told: str) -> None:
    network, schema, frame = german
    with pytest.raises(QueryError, match=told):
        certify_robust(network, schema, schema.raw(frame)[:1], delta=delta)
    if delta:
        with pytest.raises(QueryError, match=r"only_robust( =|:)"):
            GroupCounterfactuals(network, schema, only_robust=delta[0]).fit(frame)


def test_rows_that_do_not_fit(german: tuple[Network, Schema, pd.DataFrame]) -> None:
    network, schema, frame = german
    raw = schema.raw(frame)[:2]
    with pytest.raises(DataError, match=r"shape \(2, 3\); expected \(n, 20\)"):
        certify_robust(network, schema, raw[:, :3], delta=[1])
    raw[1, schema.index("duration")] = 1000
    with pytest.raises(DataError, match=r"row 1 is .*1000\.0"):
        re_evaluated(network, schema, raw)


def test_an_undecided_row_has_a_reason(german: tuple[Network, Schema, pd.DataFrame]) -> None:
    network, schema, frame = german
    raw = schema.raw(frame)
    raw = raw[re_evaluated(network, schema, raw)["positive"].to_numpy()]
    table = certify_robust(network, schema, raw, delta=[60], budget=Budget(nodes=1), method="bnb").table
    unknown = table[table["status"] == "unknown"]
    assert len(unknown)
    assert set(unknown["reason"]) == {"nodes"}
    assert set(table.loc[table["status"] != "unknown", "reason"]) == {""}


@pytest.mark.parametrize("seed", range(8))
def test_trees_against_every_row_of_every_neighbourhood(seed: int, tmp_path: Path) -> None:
    rng, schema = np.random.default_rng(seed), two_numbers()
    trees = [random_tree(rng, 2, 4, grid=np.arange(0.0, 10.5, 0.5)) for _ in range(4)]
    model = read_model(save(tmp_path / "m.onnx", trees, 2))
    raw = np.array(list(itertools.product(range(11), repeat=2)), dtype=np.float64)
    positive = np.array([row[0] > 0 for row in model.forward(fractions(raw))])
    assert re_evaluated(model, schema, raw)["positive"].tolist() == positive.tolist()
    found = certify_robust(model, schema, raw, delta=[1, 2])
    table = found.table
    for row, delta, status in zip(table["row"], table["delta"], table["status"], strict=True):
        near = (np.abs(raw - raw[row]) <= delta * np.array([1, 2])).all(axis=1)
        assert status == ("proved" if positive[near].all() else "violated")
    assert (found.certificate is None) == (table["status"] == "violated").all()
    assert found.certificate is None or check(found.certificate, model=model, schema=schema).accepted
