"""What a second reading of situation testing found: each test failed before."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.builders import one_hot, real, schema_of
from tests.soundness.random_twins import random_network
from verifair.checker.check import check
from verifair.checker.statement import CounterfactualQuery
from verifair.errors import DataError, QueryError, SchemaError
from verifair.systems.cst.causal.mechanisms import Linear
from verifair.systems.cst.causal.model import CausalModel
from verifair.systems.cst.causal.nodes import Node
from verifair.systems.cst.deciders import Rule
from verifair.systems.cst.estimator import SituationTesting
from verifair.systems.cst.robustness.certified import certify_counterfactuals
from verifair.systems.cst.testing import Situations, situation_test

MODEL = CausalModel(nodes=(Node(name="sex"), Node(name="age"), Node(name="pay", parents=("sex", "age"))))
RULE = Rule(weights={"pay": 1}, above=2000)


def people(rows: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    sex, age = rng.choice(["F", "M"], rows), rng.integers(20, 60, rows)
    return pd.DataFrame({"sex": sex, "age": age, "pay": 1000 * (sex == "M") + 20 * age + rng.integers(0, 500, rows)})


def audited(frame: pd.DataFrame, decider: Any = RULE, **rest: Any) -> Situations:
    asked: dict[str, Any] = {"do": {"sex": "M"}, "k": (3, 5), "threads": 1} | rest
    (found,) = SituationTesting(MODEL, decider, **asked).fit(frame).test().values()
    return found


class Told:
    """A user's own decider: what `told` says of the rule's decisions."""

    words = "a rule"

    def __init__(self, told: Any) -> None:
        self.told = told

    def decide(self, frame: pd.DataFrame) -> Any:
        return self.told(pd.Series(RULE.decide(frame), index=frame.index))


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


def test_a_huge_tie_in_the_tables_order_is_cut_short() -> None:
    """Every complainant sorted all rows of the tie: 40 seconds for 100,000 rows at one point."""
    rows = 40_000
    frame = pd.DataFrame({"sex": np.where(np.arange(rows) % 2, "F", "M"), "pay": 1.0})
    decisions = np.arange(rows) % 4 < 2
    found = situation_test(
        frame, frame[frame["sex"] == "F"].assign(sex="M"), do={"sex": "M"}, attributes=["pay"], decisions=decisions, k=[1, 2, 3],
        ties="first", threads=1,
    )
    women = list(range(1, 9, 2))  # the first four, every second decided negatively
    for row, k in ((1, 1), (1, 3), (3, 2), (3, 3), (rows - 1, 3)):
        nearest = [one for one in women if one != row][:k]
        assert found.control[k - 1, row // 2] == sum(not decisions[one] for one in nearest)
    assert found.standard[:, 0].tolist() == [0, 1, 1]


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
    network = random_network(rng, schema.domain.columns, "plain", depth=2, width=4, outputs=1)
    with pytest.raises(QueryError, match=message):
        certify_counterfactuals(model, network, schema, frame, do=do)


def test_a_certificate_that_lists_no_values_for_a_number_is_rejected() -> None:
    """An empty list passed for none, and the checker stopped with an IndexError."""
    man = np.arange(20) % 2
    frame = pd.DataFrame({"man": man, "pay": 50.0 + 20 * man + np.random.default_rng(0).normal(0, 5, 20)})
    model = CausalModel(nodes=(Node(name="man"), Node(name="pay", parents=("man",)))).fit(frame)
    schema = schema_of(real("pay", 0, 200), positive="logit > 0")
    network = replace(random_network(np.random.default_rng(0), 1, "plain", depth=1, width=2, outputs=1), source_sha256="0" * 64)
    certificate = certify_counterfactuals(model, network, schema, frame, do={"man": 1}).certificate
    assert certificate is not None
    assert isinstance(certificate.query, CounterfactualQuery)
    assert not check(certificate, network=network, schema=schema).rejections
    (equation,) = certificate.query.equations
    wrong = replace(equation, terms=(replace(equation.terms[0], values=()),))
    forged = replace(certificate, query=replace(certificate.query, equations=(wrong,)))
    (rejection,) = check(forged, network=network, schema=schema).rejections
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


def test_words_that_name_every_row_are_refused_before_they_fill_the_memory() -> None:
    rows = 25_000
    frame = pd.DataFrame({"sex": np.where(np.arange(rows) % 2, "F", "M"), "id": [f"p{n}" for n in range(rows)]})
    tilde = frame[frame["sex"] == "F"].assign(sex="M")
    with pytest.raises(DataError, match="'id': holds 25,000 different words in 25,000 rows, 5 GB"):
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
    test = SituationTesting(MODEL, RULE, do={"sex": "M"}, k=(3,), threads=1).fit(frame)
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
    test = SituationTesting(model, RULE, do={"sex": "M"}, k=(3,), threads=1).fit(frame)
    with pytest.raises(DataError, match=r"column 'age': holds numbers such as .* as objects"):
        test.test()
    test.set_params(categorical=["age"]).test()
