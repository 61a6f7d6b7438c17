"""SituationTesting and who decides: rules, records, classifiers, networks, several attributes, errors."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

import verifair as vf
from verifair import datasets
from verifair.errors import DataError, QueryError, VerifairError
from verifair.systems.cst.causal.mechanisms import Linear
from verifair.systems.cst.causal.model import CausalModel
from verifair.systems.cst.causal.nodes import Node
from verifair.systems.cst.chance import chance
from verifair.systems.cst.deciders import Decider, Model, NetworkDecider, Recorded, Rule
from verifair.systems.cst.testing import METHODS

RULE = Rule(weights={"salary": 1.0, "balance": 5.0}, above=225_000.0)
MODEL = CausalModel(
    nodes=(
        Node(name="gender"), Node(name="race"), Node(name="salary", parents=("gender", "race"), mechanism=Linear()),
        Node(name="balance", parents=("salary", "gender"), mechanism=Linear()),
    )
)  # fmt: skip


def applicants(rows: int = 400, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    gender, race = rng.integers(0, 2, rows), rng.integers(0, 2, rows)
    salary = 100_000 - 15_000 * gender - 5000 * race + 30_000 * rng.standard_normal(rows)
    balance = 0.3 * salary - 1200 * gender + 2500 * rng.standard_normal(rows)
    return pd.DataFrame({"gender": gender, "race": race, "salary": salary, "balance": balance})


def test_the_estimator_tests_each_attribute_alone_and_jointly() -> None:
    frame = applicants()
    found = vf.SituationTesting(MODEL, RULE, do={"gender": 0, "race": 0}, k=[15, 30], intersectional=True).fit(frame).test()
    assert list(found) == ["gender = 0", "race = 0", "gender = 0, race = 0"]
    joint = found["gender = 0, race = 0"]
    both = (frame["gender"] == 1) & (frame["race"] == 1)
    assert joint.complainants.tolist() == np.flatnonzero(both).tolist()
    assert len(joint.test_pool) == ((frame["gender"] == 0) & (frame["race"] == 0)).sum()
    counts = joint.counts()
    assert set(counts["method"]) == set(METHODS)
    assert counts.set_index(["method", "k"]).loc[("CF", 15), "cases"] > 0
    for one in found.values():
        assert isinstance(one, vf.Finding)
        assert 0 <= one.value <= 1


def test_the_counterfactuals_are_those_of_the_fitted_model() -> None:
    frame = applicants()
    estimator = vf.SituationTesting(MODEL, RULE, do={"gender": 0}, k=[15]).fit(frame)
    tilde, decisions = estimator.counterfactual({"gender": 0})
    assert estimator.attributes_ == ("race", "salary", "balance")
    mine = frame["gender"] == 1
    x = np.column_stack([np.ones(len(frame)), frame["gender"], frame["race"]])
    effect = np.linalg.lstsq(x, frame["salary"], rcond=None)[0][1]
    assert np.allclose(tilde["salary"], frame["salary"][mine] - effect)
    assert decisions is not None
    assert np.array_equal(decisions, RULE.decide(tilde))


def test_the_paper_preset_sets_the_procedure() -> None:
    frame = applicants()
    paper = vf.SituationTesting(MODEL, RULE, do={"gender": 0}, k=[15], preset="paper", level=0.5, ties="share").fit(frame).test()
    terms = paper["gender = 0"].terms
    assert (terms.interval, terms.sides, terms.level, terms.decimals) == ("wald", 1, 0.95, 3)
    assert paper["gender = 0"].metric.name == "standardised"
    assert paper["gender = 0"].ties == "first"


def test_deciders_that_decide_alike_give_the_same_findings() -> None:
    frame = applicants()
    frame["approved"] = np.where(RULE.decide(frame), "yes", "no")
    x = frame[["salary", "balance"]]
    scaled = LogisticRegression(C=1e6, max_iter=2000).fit(x / 1e5, RULE.decide(frame))
    exact = vf.SituationTesting(MODEL, RULE, do={"gender": 0}, k=[15]).fit(frame).test()["gender = 0"]
    recorded = Recorded(column="approved", positive="yes", counterfactual=RULE)
    same = vf.SituationTesting(MODEL, recorded, do={"gender": 0}, k=[15]).fit(frame).test()["gender = 0"]
    assert np.array_equal(exact.control, same.control)
    assert exact.refused_tilde is not None
    assert same.refused_tilde is not None
    assert np.array_equal(exact.refused_tilde, same.refused_tilde)
    alone = Recorded(column="approved", positive="yes")
    bare = vf.SituationTesting(MODEL, alone, do={"gender": 0}, k=[15]).fit(frame).test()["gender = 0"]
    assert bare.methods == ("ST", "CST w/o")
    assert np.array_equal(bare.counterfactual, exact.counterfactual)
    table = frame.assign(salary=frame["salary"] / 1e5, balance=frame["balance"] / 1e5)
    learned = Model(estimator=scaled, columns=["salary", "balance"], positive=True)
    agree = (learned.decide(table) == RULE.decide(frame)).mean()
    assert agree > 0.95


def test_a_network_decides_on_counterfactuals_made_legal() -> None:
    german = datasets.load("german")
    network = NetworkDecider(network=vf.read_onnx(datasets.network_path("german")), schema=german.schema)
    model = CausalModel(
        nodes=(
            Node(name="sex"), Node(name="duration", parents=("sex",)), Node(name="credit-amount", parents=("sex", "duration")),
            Node(name="existing-credits", parents=("sex",)),
        )
    )  # fmt: skip
    estimator = vf.SituationTesting(model, network, do={"sex": "Male"}, k=[15]).fit(german.frame)
    tilde, decisions = estimator.counterfactual({"sex": "Male"})
    raw = german.schema.raw(tilde)  # raises for a row that is not legal
    assert german.schema.inside(raw).all()
    assert (tilde["duration"] != german.frame.loc[tilde.index, "duration"]).any()
    assert decisions is not None
    assert np.array_equal(decisions, network.decide(tilde))
    found = estimator.test()["sex = Male"]
    assert found.claims("CF", 15).positive.sum() == (found.refused & decisions).sum()


def test_clipped_rows_are_told() -> None:
    german = datasets.load("german")
    network = NetworkDecider(network=vf.read_onnx(datasets.network_path("german")), schema=german.schema)
    frame = german.frame.iloc[:3].assign(duration=[1000.0, 12.5, 24.0])
    legal, clipped = network.legal(frame)
    assert clipped.tolist() == [True, False, False]
    assert legal["duration"].tolist() == [german.schema["duration"].range[1], 12.0, 24.0]  # type: ignore[index]


@pytest.mark.parametrize(
    ("decider", "message"),
    [
        (Rule(weights={"pay": 1.0}, above=1.0), "no column 'pay'"),
        (Recorded(column="approved", positive="yes"), "no column 'approved'"),
        (Recorded(column="gender", positive=3), "no row has 3"),
        (Model(estimator=LogisticRegression(), columns=["pay"]), "no column 'pay'"),
    ],
)
def test_deciders_that_do_not_fit_the_table(decider: Decider, message: str) -> None:
    with pytest.raises(DataError, match=message):
        vf.SituationTesting(MODEL, decider, do={"gender": 0}, k=[5]).fit(applicants(60))


@pytest.mark.parametrize(
    "rule", [{"weights": {"a": 1.0}}, {"weights": {"a": 1.0}, "above": 1.0, "at_least": 1.0}, {"weights": {}, "above": 0.0}]
)
def test_rules_that_cannot_be(rule: dict[str, object]) -> None:
    with pytest.raises(QueryError):
        Rule(**rule)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"do": {}}, "expected attribute"),
        ({"do": {"gendr": 0}}, "did you mean 'gender'"),
        ({"do": {"salary": 0}}, "root"),
        ({"do": {"gender": 7}}, "known are 0, 1"),
        ({"preset": "papre"}, "expected None or 'paper'"),
        ({"attributes": ["gender"]}, "leave it out"),
        ({"attributes": "salary"}, "expected a list of names"),
        ({"k": [500]}, "largest k is"),
        ({"k": []}, "no group size"),
        ({"k": [2.5]}, "whole number"),
        ({"tau": 2.0}, "difference of shares"),
        ({"threads": 0}, "1 or more"),
        ({"distance": "cosine"}, "known are mixed"),
        ({"ties": "random"}, "expected one of share, first"),
    ],
)
def test_arguments_that_cannot_be_are_named(given: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"do": {"gender": 0}, "k": [5], **given}
    with pytest.raises(VerifairError, match=message):
        vf.SituationTesting(MODEL, RULE, **arguments).fit(applicants(100)).test()  # type: ignore[arg-type]


def test_what_chance_finds_is_less_than_what_an_effect_does() -> None:
    frame = applicants(600)
    test = vf.SituationTesting(MODEL, RULE, do={"gender": 0}, attributes=["salary", "balance"], k=[10, 20]).fit(frame)
    before = frame.copy()
    found = test.test_one({"gender": 0}).counts().set_index(["method", "k"])
    dealt = chance(test, {"gender": 0}, deals=5).set_index(["method", "k"])
    assert set(dealt.index.get_level_values("method")) == {"ST", "CST w/o"}
    for k in (10, 20):
        assert dealt.loc[("CST w/o", k), "significant"] < 0.3 * found.loc[("CST w/o", k), "significant"]
        assert dealt.loc[("CST w/o", k), "cases"] > 0  # chance does find some
    pd.testing.assert_frame_equal(frame, before)
    assert chance(test, {"gender": 0}, deals=5).set_index(["method", "k"]).equals(dealt)
    with pytest.raises(QueryError, match="1 or more"):
        chance(test, {"gender": 0}, deals=0)


def test_chance_leaves_a_table_without_any_effect_alone() -> None:
    # Decisions and attributes that know nothing of gender: what is found is what chance finds.
    rng = np.random.default_rng(5)
    frame = applicants(800, 5).assign(gender=rng.integers(0, 2, 800))
    test = vf.SituationTesting(MODEL, RULE, do={"gender": 0}, attributes=["salary", "balance"], k=[10]).fit(frame)
    found = test.test_one({"gender": 0}).counts().set_index("method")
    dealt = chance(test, {"gender": 0}, deals=10).set_index("method")
    assert abs(found.loc["ST", "share"] - dealt.loc["ST", "share"]) < 0.05


def test_small_groups_can_be_left_out_and_are_named() -> None:
    frame = applicants(300)
    frame.loc[frame.index[:6], "race"] = 2
    arguments = {"do": {"race": 0}, "attributes": ["salary", "balance"], "k": [10]}
    with pytest.raises(DataError, match=r"race = 2 has only 5 other rows; the largest k is 5.*leave-out"):
        vf.SituationTesting(MODEL, RULE, **arguments).fit(frame).test()  # type: ignore[arg-type]
    test = vf.SituationTesting(MODEL, RULE, small="leave-out", **arguments).fit(frame)  # type: ignore[arg-type]
    found = test.test_one({"race": 0})
    assert found.names == ("race = 1",)
    assert found.details["left out"] == {"race = 2": 6}
    assert found.complainants.tolist() == np.flatnonzero(frame["race"] == 1).tolist()
    assert chance(test, {"race": 0}, deals=2)["cases"].notna().all()
    with pytest.raises(DataError, match="every group has fewer than 301 rows"):
        vf.SituationTesting(MODEL, RULE, small="leave-out", **{**arguments, "k": [300]}).fit(frame).test()  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="expected one of error, leave-out"):
        vf.SituationTesting(MODEL, RULE, small="drop", **arguments).fit(frame).test()  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), "5", True, None])
def test_weights_of_a_rule_are_finite_numbers(number: object) -> None:
    with pytest.raises(QueryError, match=r"rule, pay = .*expected a (finite )?number"):
        Rule(weights={"pay": number}, above=1.0)  # type: ignore[dict-item]
    with pytest.raises(QueryError, match="weights: found list; expected column -> number"):
        Rule(weights=["pay"], above=1.0)  # type: ignore[arg-type]


def test_chance_of_what_is_no_node_or_not_fitted_is_refused() -> None:
    test = vf.SituationTesting(MODEL, RULE, do={"gender": 0}, k=[10])
    with pytest.raises(NotFittedError):
        chance(test, {"gender": 0})
    with pytest.raises(QueryError, match="'sex': is no node"):
        chance(test.fit(applicants()), {"sex": 0})


def test_the_favourable_class_of_a_network_may_be_0() -> None:
    german = datasets.load("german")
    network = vf.read_onnx(datasets.network_path("german"))
    one, zero = (NetworkDecider(network=network, schema=german.schema, good=good) for good in (1, 0))
    assert np.array_equal(one.decide(german.frame), ~zero.decide(german.frame))
    assert "class 0 is positive" in zero.words
    with pytest.raises(QueryError, match="expected 0 or 1"):
        NetworkDecider(network=network, schema=german.schema, good=2)
