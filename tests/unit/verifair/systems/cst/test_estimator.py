"""SituationTesting and who decides: rules, records, classifiers, networks, several attributes, errors."""

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

import verifair as vf
from tests.builders import one_hot, real, schema_of
from tests.soundness.random_twins import nasty_network
from verifair import datasets
from verifair.checker.certificates.statement import CounterfactualQuery
from verifair.checker.check import check
from verifair.errors import DataError, QueryError, SchemaError, VerifairError
from verifair.schema.rows import LabelWarning
from verifair.systems.cst.causal.categorical import Categorical
from verifair.systems.cst.causal.mechanisms import Linear
from verifair.systems.cst.causal.model import CausalModel
from verifair.systems.cst.causal.nodes import Node
from verifair.systems.cst.deciders import Decider, EstimatorDecider, LinearRule, NetworkDecider, Recorded
from verifair.systems.cst.estimator import SituationTesting, chance, redraws
from verifair.systems.cst.findings import DrawnCases
from verifair.systems.cst.robustness.certified import certify_counterfactuals
from verifair.systems.cst.settings import Ties
from verifair.systems.cst.testing import METHODS, Situations, situation_test

RULE = LinearRule(weights={"salary": 1.0, "balance": 5.0}, above=225_000.0)
MODEL = CausalModel(nodes=(
    Node(name="gender"), Node(name="race"), Node(name="salary", parents=("gender", "race"), mechanism=Linear()),
    Node(name="balance", parents=("salary", "gender"), mechanism=Linear()),
))


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
    assert (terms.interval, terms.z, terms.decimals, paper["gender = 0"].ties) == ("wald", 1.645, 3, "heap")
    assert paper["gender = 0"].metric.name == "standardised"
    assert paper["gender = 0"].ties == "heap"


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
    learned = EstimatorDecider(estimator=scaled, columns=["salary", "balance"], positive=True)
    agree = (learned.decide(table) == RULE.decide(frame)).mean()
    assert agree > 0.95


def test_a_network_decides_on_counterfactuals_made_legal() -> None:
    german = datasets.load("german")
    network = NetworkDecider(model=vf.read_onnx(datasets.network_path("german")), schema=german.schema)
    model = CausalModel(nodes=(
        Node(name="sex"), Node(name="duration", parents=("sex",)), Node(name="credit-amount", parents=("sex", "duration")),
        Node(name="existing-credits", parents=("sex",)),
    ))
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
    network = NetworkDecider(model=vf.read_onnx(datasets.network_path("german")), schema=german.schema)
    frame = german.frame.iloc[:3].assign(duration=[1000.0, 12.5, 24.0])
    legal, clipped = network.legal(frame)
    assert clipped.tolist() == [True, False, False]
    assert legal["duration"].tolist() == [german.schema["duration"].range[1], 12.0, 24.0]  # type: ignore[index]


def test_recorded_decisions_of_three_values() -> None:
    """What is not favourable is told; another spelling of the favourable value is refused."""
    recorded = Recorded(column="got", positive="yes")
    with pytest.warns(LabelWarning, match="decision column 'got': rows with no, open all count as not 'yes'"):
        assert recorded.decide(pd.DataFrame({"got": ["yes", "no", "open"]})).tolist() == [True, False, False]
    with pytest.raises(DataError, match="decision column 'got': some rows hold 'YES', which seems to be 'yes' in another spelling"):
        recorded.decide(pd.DataFrame({"got": ["yes", "no", "YES"]}))


@pytest.mark.parametrize(("decider", "message"), [
    (LinearRule(weights={"pay": 1.0}, above=1.0), "no column 'pay'"),
    (Recorded(column="approved", positive="yes"), "no column 'approved'"),
    (Recorded(column="gender", positive=3), "no row has 3"),
    (EstimatorDecider(estimator=LogisticRegression(), columns=["pay"]), "no column 'pay'"),
])
def test_deciders_that_do_not_fit_the_table(decider: Decider, message: str) -> None:
    with pytest.raises(DataError, match=message):
        vf.SituationTesting(MODEL, decider, do={"gender": 0}, k=[5]).fit(applicants(60))


@pytest.mark.parametrize(
    "rule", [{"weights": {"a": 1.0}}, {"weights": {"a": 1.0}, "above": 1.0, "at_least": 1.0}, {"weights": {}, "above": 0.0}]
)
def test_rules_that_cannot_be(rule: dict[str, object]) -> None:
    with pytest.raises(QueryError):
        LinearRule(**rule)  # type: ignore[arg-type]


@pytest.mark.parametrize(("given", "message"), [
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
])
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


JOBS = CausalModel(nodes=(
    Node(name="gender"), Node(name="race"), Node(name="job", parents=("gender",), mechanism=Categorical()),
    Node(name="salary", parents=("gender", "job"), mechanism=Linear()),
))


def workers(rows: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    gender = rng.integers(0, 2, rows)
    job = np.array(["low", "mid", "high"])[np.clip(rng.integers(0, 3, rows) - gender * rng.integers(0, 2, rows), 0, 2)]
    salary = 60_000 + 25_000 * (job == "mid") + 40_000 * (job == "high") - 5000 * gender + 20_000 * rng.standard_normal(rows)
    return pd.DataFrame({"gender": gender, "race": rng.integers(0, 2, rows), "job": job, "salary": salary})


@pytest.mark.parametrize("options", [
    {"ties": "share"}, {"ties": "last", "distance": "heom"}, {"preset": "paper"}, {"direction": "positive", "tau": 0.05},
])
def test_draws_are_the_single_runs_with_the_next_seeds(options: dict[str, Any]) -> None:
    frame, rule = workers(), LinearRule(weights={"salary": 1.0}, above=85_000.0)
    test = vf.SituationTesting(JOBS, rule, do={"gender": 0}, k=[20, 5], seed=4, **options).fit(frame)
    found = test.test_one({"gender": 0})
    assert test.drawn({"gender": 0}) == ("job",)
    drawn = list(redraws(test, found, draws=5))
    alone = []
    for seed in range(4, 9):
        one = vf.SituationTesting(JOBS, rule, do={"gender": 0}, k=[5, 20], seed=seed, **options).fit(frame).test_one({"gender": 0})
        alone.append({method: one.claims(method, 5).positive for method in METHODS})
    draws = DrawnCases.of(drawn, k=5, seed=4, categories=["job"])
    assert draws.seeds == [4, 5, 6, 7, 8]
    counts = draws.counts.set_index("method")
    for method in METHODS:
        cases = np.array([one[method] for one in alone])
        assert np.array_equal(draws.cases[method], cases)
        share, low, high = draws.shares(method)
        assert np.array_equal(share, cases.mean(axis=0))
        line = counts.loc[method]
        assert line["by draw"] == cases.sum(axis=1).tolist()
        assert (line["cases"], line["least"], line["most"]) == (cases[0].sum(), min(line["by draw"]), max(line["by draw"]))
        assert line["mean"] == pytest.approx(cases.sum() / 5)
        assert line["in over half"] == (cases.sum(axis=0) >= 3).sum()
        if method == "ST":
            assert (cases == cases[0]).all()
            assert np.array_equal(low, share)
            assert np.array_equal(high, share)
            continue
        assert method == "CF" or (cases != cases[0]).any(), "the draws differ"
        z = 1.959963984540054  # Wilson 1927
        middle, half = (share + z * z / 10) / (1 + z * z / 5), z / (1 + z * z / 5) * np.sqrt(share * (1 - share) / 5 + z * z / 100)
        assert np.allclose(low, middle - half, atol=1e-12)
        assert np.allclose(high, middle + half, atol=1e-12)


def test_draws_of_nothing_that_is_read_are_none() -> None:
    frame, rule = workers(), LinearRule(weights={"salary": 1.0}, above=85_000.0)
    test = vf.SituationTesting(JOBS, rule, do={"gender": 0}, k=[5]).fit(frame)
    assert test.drawn({"race": 0}) == ()
    near = {"do": {"gender": 0}, "k": [5], "attributes": ["race"]}
    assert vf.SituationTesting(JOBS, rule, **near).fit(frame).drawn({"gender": 0}) == ("job",), "the rule reads the salary"  # type: ignore[arg-type]
    unread = LinearRule(weights={"race": 1.0}, above=0.5)
    assert vf.SituationTesting(JOBS, unread, **near).fit(frame).drawn({"gender": 0}) == ()  # type: ignore[arg-type]

    class Anybody:
        words = "a decider of which nobody knows what it reads"

        def decide(self, frame: pd.DataFrame) -> Any:
            return np.asarray(frame["job"] == "high")

    assert vf.SituationTesting(JOBS, Anybody(), **near).fit(frame).drawn({"gender": 0}) == ("job",)  # type: ignore[arg-type]
    numbers = vf.SituationTesting(MODEL, RULE, do={"gender": 0}, k=[5]).fit(applicants())
    assert numbers.drawn({"gender": 0}) == ()
    with pytest.raises(QueryError, match="draws = 0: expected 1 or more"):
        next(redraws(numbers, numbers.test_one({"gender": 0}), draws=0))


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
        LinearRule(weights={"pay": number}, above=1.0)  # type: ignore[dict-item]
    with pytest.raises(QueryError, match="weights: found list; expected column -> number"):
        LinearRule(weights=["pay"], above=1.0)  # type: ignore[arg-type]


def test_chance_of_what_is_no_node_or_not_fitted_is_refused() -> None:
    test = vf.SituationTesting(MODEL, RULE, do={"gender": 0}, k=[10])
    with pytest.raises(NotFittedError):
        chance(test, {"gender": 0})
    with pytest.raises(QueryError, match="'sex': is no node"):
        chance(test.fit(applicants()), {"sex": 0})


def test_the_favourable_class_of_a_network_may_be_0() -> None:
    german = datasets.load("german")
    network = vf.read_onnx(datasets.network_path("german"))
    one, zero = (NetworkDecider(model=network, schema=german.schema, good=good) for good in (1, 0))
    assert np.array_equal(one.decide(german.frame), ~zero.decide(german.frame))
    assert "class 0 is positive" in zero.words
    with pytest.raises(QueryError, match="expected 0 or 1"):
        NetworkDecider(model=network, schema=german.schema, good=2)


# What a second reading of situation testing found: each test failed before.


PAY_MODEL = CausalModel(nodes=(Node(name="sex"), Node(name="age"), Node(name="pay", parents=("sex", "age"))))
PAY_RULE = LinearRule(weights={"pay": 1}, above=2000)


def people(rows: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    sex, age = rng.choice(["F", "M"], rows), rng.integers(20, 60, rows)
    return pd.DataFrame({"sex": sex, "age": age, "pay": 1000 * (sex == "M") + 20 * age + rng.integers(0, 500, rows)})


def audited(frame: pd.DataFrame, decider: Any = PAY_RULE, **rest: Any) -> Situations:
    asked: dict[str, Any] = {"do": {"sex": "M"}, "k": (3, 5), "threads": 1} | rest
    (found,) = SituationTesting(PAY_MODEL, decider, **asked).fit(frame).test().values()
    return found


class Told:
    """A user's own decider: what `told` says of the rule's decisions."""

    words = "a rule"

    def __init__(self, told: Any) -> None:
        self.told = told

    def decide(self, frame: pd.DataFrame) -> Any:
        return self.told(pd.Series(PAY_RULE.decide(frame), index=frame.index))


@pytest.mark.parametrize("told", [
    lambda found: found.astype(int).to_numpy(), lambda found: found.astype(float), lambda found: found,
    lambda found: found.tolist(), lambda found: found.astype("boolean").array, lambda found: found.astype(object).to_numpy(),
])
@pytest.mark.parametrize("index", ["rows", "mixed", "same"])
def test_decisions_of_any_type_are_taken_by_place(told: Any, index: str) -> None:
    """0 and 1 were inverted to -1 and -2, and the labels of a Series were taken for places."""
    frame = people()
    mixed = {"rows": np.arange(60), "mixed": np.random.default_rng(1).permutation(60), "same": np.zeros(60, dtype=int)}
    frame.index = pd.Index(mixed[index])
    ours, expected = audited(frame, Told(told)), audited(frame)
    for name in ("control", "standard", "counterfactual", "refused", "refused_tilde"):
        assert np.array_equal(getattr(ours, name), getattr(expected, name)), name


@pytest.mark.parametrize("told", [lambda found: found + 1, lambda found: found[:3], lambda found: ["yes"] * len(found)])
def test_decisions_that_are_none_are_refused(told: Any) -> None:
    with pytest.raises(DataError, match="decisions"):
        audited(people(), Told(told))


def test_an_attribute_named_twice_would_count_twice() -> None:
    with pytest.raises(QueryError, match="'pay' is named twice"):
        audited(people(), attributes=["pay", "age", "pay"])


@pytest.mark.parametrize("k", [5, None, "15"])
def test_group_sizes_are_several(k: Any) -> None:
    with pytest.raises(QueryError, match=r"k = .*expected group sizes"):
        audited(people(), k=k)


def test_what_was_found_can_be_sent_to_another_process() -> None:
    found = audited(people())
    again = pickle.loads(pickle.dumps(found))
    one = int(found.complainants[0])
    for group, parts in found.case(one, 3).items():
        for ours, theirs in zip(again.case(one, 3)[group], parts, strict=True):
            assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("dtype", ["bool", "boolean", "int64"])
@pytest.mark.parametrize("value", [True, 1, "1", 1.0])
def test_values_of_an_intervention_mean_the_same_throughout(dtype: str, value: Any) -> None:
    """The causal model took True for 1; who is in which group was asked with the caller's word, and nobody was."""
    frame = people()
    coded = frame.assign(sex=(frame["sex"] == "M").astype(dtype))
    assert np.array_equal(audited(coded, do={"sex": value}).control, audited(frame).control)


def test_counterfactuals_of_fewer_categories_lie_in_the_tables_coordinates() -> None:
    """With scales of their own, a category that no counterfactual has was no coordinate."""
    frame = pd.DataFrame({"sex": list("FFFFMMMM"), "job": list("abcaabab"), "pay": [0.0, 1, 2, 3, 0, 1, 2, 3]})
    do, decisions = {"sex": "M"}, np.array([0, 0, 0, 0, 1, 0, 1, 0], dtype=bool)
    asked: dict[str, Any] = {"do": do, "attributes": ["job", "pay"], "decisions": decisions, "k": [1], "own_scale": True}
    found = situation_test(frame, frame[:4].assign(sex="M", job="a"), **asked)
    rows, _, _ = found.case(1, 1)["CST"]
    assert set(frame["job"].iloc[rows]) == {"a"}
    with pytest.raises(DataError, match="the category 'd' is not among the table's"):
        situation_test(frame, frame[:4].assign(sex="M", job=list("abda")), **asked)


@pytest.mark.parametrize("ties", ["first", "last"])
def test_a_huge_tie_by_row_is_cut_short(ties: Ties) -> None:
    """Every complainant sorted all rows of the tie: 40 seconds for 100,000 rows at one point."""
    rows = 40_000
    frame = pd.DataFrame({"sex": np.where(np.arange(rows) % 2, "F", "M"), "pay": 1.0})
    decisions = np.arange(rows) % 4 < 2
    found = situation_test(
        frame, frame[frame["sex"] == "F"].assign(sex="M"), do={"sex": "M"}, attributes=["pay"], decisions=decisions, k=[1, 2, 3],
        ties=ties, threads=1,
    )
    order = 1 if ties == "first" else -1
    women, men = list(range(1, rows, 2))[::order][:4], list(range(0, rows, 2))[::order][:3]  # every second decided negatively
    for row, k in ((1, 1), (1, 3), (3, 2), (3, 3), (rows - 1, 3)):
        nearest = [one for one in women if one != row][:k]
        assert found.control[k - 1, row // 2] == sum(not decisions[one] for one in nearest)
    assert found.standard[:, 0].tolist() == np.cumsum(~decisions[men]).tolist()
    assert found.case(rows - 1, 3)["ST"][0].tolist() == men
    assert found.case(rows - 1, 3)["control"][0].tolist() == [one for one in women if one != rows - 1][:3]


@pytest.mark.parametrize(("features", "do", "message"), [
    ((real("pay", 0, 200), real("again", 0, 200, column="pay")),
     {"man": 1}, "the features pay, again are both read from it"),
    ((real("pay", 0, 200), one_hot("g", "woman", "man")),
     {"g_man": 1}, "one of a block that the one-hot feature 'g' is read from"),
    ((real("man", 0, 200, column="pay"),), {"man": 1}, "is read from another column"),
])
def test_nothing_is_certified_of_counterfactuals_that_the_equations_would_get_wrong(
    features: tuple[dict[str, Any], ...], do: dict[str, Any], message: str
) -> None:
    """Of two features that read one column, only one moved; certificates of such counterfactuals were accepted."""
    rng, (name,) = np.random.default_rng(0), do
    man = np.arange(20) % 2
    frame = pd.DataFrame({name: man, "g_woman": 1 - man, "pay": 50.0 + 20 * man + rng.normal(0, 5, 20)})
    model = CausalModel(nodes=(Node(name=name), Node(name="pay", parents=(name,)))).fit(frame)
    schema = schema_of(*features, positive="logit > 0")
    network = nasty_network(rng, schema.domain.columns, "plain", depth=2, width=4, outputs=1)
    with pytest.raises(QueryError, match=message):
        certify_counterfactuals(model, network, schema, frame, do=do)


def test_a_certificate_that_lists_no_values_for_a_number_is_rejected() -> None:
    """An empty list passed for none, and the checker stopped with an IndexError."""
    man = np.arange(20) % 2
    frame = pd.DataFrame({"man": man, "pay": 50.0 + 20 * man + np.random.default_rng(0).normal(0, 5, 20)})
    model = CausalModel(nodes=(Node(name="man"), Node(name="pay", parents=("man",)))).fit(frame)
    schema = schema_of(real("pay", 0, 200), positive="logit > 0")
    network = replace(nasty_network(np.random.default_rng(0), 1, "plain", depth=1, width=2, outputs=1), source_sha256="0" * 64)
    certificate = certify_counterfactuals(model, network, schema, frame, do={"man": 1}).certificate
    assert certificate is not None
    assert isinstance(certificate.query, CounterfactualQuery)
    assert not check(certificate, model=network, schema=schema).rejections
    (equation,) = certificate.query.equations
    wrong = replace(equation, terms=(replace(equation.terms[0], values=()),))
    forged = replace(certificate, query=replace(certificate.query, equations=(wrong,)))
    (rejection,) = check(forged, model=network, schema=schema).rejections
    assert "0 categories, 0 values are listed" in rejection.reason


@pytest.mark.parametrize("far", [1e2, 1e6, 1e7])
def test_ties_of_rows_around_a_counterfactual_far_outside_the_table(far: float) -> None:
    """Distances of a million ranges are rounded to more than was taken for a tie of near ones."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 6, 200), rng.integers(0, 6, 200)
    frame = pd.DataFrame({"sex": np.where(np.arange(200) % 2, "F", "M"), "a": a * 0.1, "b": b * 0.3})
    tilde = frame[frame["sex"] == "F"].assign(sex="M", a=far, b=far)
    negative = rng.random(200) < 0.5
    found = situation_test(frame, tilde, do={"sex": "M"}, attributes=["a", "b"], decisions=~negative, k=[5, 20, 60], threads=1)
    men = np.arange(0, 200, 2)
    size, bad = (a + b)[men], negative[men]  # both ranges are five steps; the largest are nearest
    for row, k in enumerate(found.k):
        edge = np.sort(size)[-k]
        inside, tied = size > edge, size == edge
        expected = bad[inside].sum() + (k - inside.sum()) * bad[tied].mean()
        assert found.counterfactual[row] == pytest.approx(np.full(100, expected), abs=1e-9)


def test_words_that_name_every_row_are_refused() -> None:
    rows = 25_000
    frame = pd.DataFrame({"sex": np.where(np.arange(rows) % 2, "F", "M"), "id": [f"p{n}" for n in range(rows)]})
    tilde = frame[frame["sex"] == "F"].assign(sex="M")
    with pytest.raises(DataError, match="'id': holds 25,000 different words in 25,000 rows, at most 16,384"):
        situation_test(frame, tilde, do={"sex": "M"}, attributes=["id"], decisions=np.ones(rows, dtype=bool), k=[1])


def effect(coefficients: Any, pay: Any, intercept: Any = 0.0) -> pd.Series:
    """Pay had everybody been a man, where the equation is given."""
    mechanism = Linear(coefficients={"sex": coefficients}, intercept=intercept)
    model = CausalModel(nodes=(Node(name="sex"), Node(name="pay", parents=("sex",), mechanism=mechanism)))
    frame = pd.DataFrame({"sex": ["F", "M"], "pay": pay})
    return model.fit(frame).counterfactual(frame, {"sex": "M"})["pay"]


@pytest.mark.parametrize("dtype", ["int8[pyarrow]", "uint8[pyarrow]", "int8", "Int8"])
def test_counterfactuals_that_a_small_type_cannot_hold_do_not_wrap_around(dtype: str) -> None:
    """Arrow's int8 called itself int, and 520 became 8."""
    pytest.importorskip("pyarrow")
    assert effect({"M": 500.0}, pd.Series([20, 30], dtype=dtype)).tolist() == [520.0, 30.0]


def test_counterfactuals_beyond_the_largest_integer_become_floats() -> None:
    assert effect({"M": 0.0}, np.array([2**63 - 1, 5])).tolist() == [2.0**63, 5.0]


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 10**400, "5", None, True])
def test_given_coefficients_are_finite_numbers(wrong: Any) -> None:
    with pytest.raises(SchemaError, match="expected a finite number"):
        effect({"M": wrong}, [1.0, 2.0])
    with pytest.raises(SchemaError, match="expected a finite number"):
        effect({"M": 1.0}, [1.0, 2.0], intercept=wrong)


def test_an_equation_that_overflows_is_named() -> None:
    with pytest.raises(DataError, match="node 'pay': its equation makes inf of row 0"):
        effect({"M": 1e308}, [1.7e308, 1.0])


def test_what_the_caller_writes_into_his_table_after_fit_changes_nothing() -> None:
    frame = people()
    test = SituationTesting(PAY_MODEL, PAY_RULE, do={"sex": "M"}, k=(3,), threads=1).fit(frame)
    (before,) = test.test().values()
    frame.loc[:, "pay"] = 0
    (after,) = test.test().values()
    assert np.array_equal(before.counterfactual, after.counterfactual)


@pytest.mark.parametrize("pay", [[1e200, 0.0, 2e200, 3.0], [0.0, 5e-324, 1e-323, 0.0]])
def test_numbers_without_squares_are_no_distances(pay: list[float]) -> None:
    frame = pd.DataFrame({"sex": list("FFMM"), "pay": pay})
    with pytest.raises(DataError, match="are no distances; use another unit"):
        situation_test(
            frame, frame[:2].assign(sex="M"), do={"sex": "M"}, attributes=["pay"], decisions=np.ones(4, dtype=bool), k=[1],
            distance="standardised",
        )


def test_numbers_as_objects_are_not_taken_for_words() -> None:
    """Forty ages became forty unrelated words, as an attribute and as a parent."""
    frame = people().astype({"age": object})
    with pytest.raises(DataError, match=r"column 'age': holds numbers such as .* as objects"):
        audited(frame)
    model = CausalModel(nodes=(Node(name="sex"), Node(name="age"), Node(name="pay", parents=("sex",))))
    test = SituationTesting(model, PAY_RULE, do={"sex": "M"}, k=(3,), threads=1).fit(frame)
    with pytest.raises(DataError, match=r"column 'age': holds numbers such as .* as objects"):
        test.test()
    test.set_params(categorical=["age"]).test()
