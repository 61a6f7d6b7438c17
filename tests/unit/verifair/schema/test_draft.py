"""Drafted schemas read the table that they were drafted from, and fit models that take a table."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import verifair as vf
from encoders.model import Feed
from encoders.network import Network
from encoders.onnx.reader import read_model
from tests import tree_models
from tests.builders import integer, network_of, one_hot, real, schema_of
from verifair import datasets
from verifair.checker.certificates.envelope import semantics
from verifair.errors import DataError, SchemaError, VerifairError
from verifair.schema.draft import draft
from verifair.schema.drafts.infer import DraftWarning
from verifair.schema.outcome import PositiveRule
from verifair.schema.schema import Schema


@pytest.mark.parametrize("name", ["german", "adult"])
def test_draft_of_a_shipped_table_reads_it_as_its_own_schema_does(name: str) -> None:
    dataset = datasets.load(name)
    text = draft(dataset.frame, target=dataset.target, protected=["sex"])
    drafted = Schema.loads(text)
    with pytest.warns(DraftWarning, match="is taken as the favourable value, as none was named; if it is another, name it"):
        assert drafted == Schema.infer(dataset.frame, target=dataset.target, protected=["sex"])
    assert drafted.protected_names == ("sex",)
    assert drafted.domain.columns == dataset.schema.domain.columns
    assert drafted.positive_label == dataset.schema.positive_label
    assert np.array_equal(drafted.labels(dataset.frame), dataset.schema.labels(dataset.frame))
    assert drafted.inside(drafted.raw(dataset.frame)).all()
    assert text.count("# check") == len(drafted.features) + 1  # and the outcomes


@pytest.mark.parametrize(("values", "kind", "unit"), [
    ([0, 1, 0, 1], "categorical", None),
    ([0.0, 1.0, 1.0, 0.0], "categorical", None),
    ([True, False, True, False], "categorical", None),
    ([1, 2, 3, 4], "integer", 1),
    ([0, 18_000, 5, 6], "integer", 100),
    ([0.0, 10.5, 1.0, 2.0], "real", 0.05),
    (["a", "b", "a", "b"], "categorical", None),
    (["a", "b", "c", "b"], "one-hot", None),
    ([7, 7, 7, 7], "integer", None),
])
def test_kind_and_unit(values: list[object], kind: str, unit: float | None) -> None:
    frame = pd.DataFrame({"x": values, "y": [0.0, 1.0, 1.0, 0.0]})
    schema = Schema.infer(frame, target="y")
    assert (schema["x"].kind, schema["x"].unit) == (kind, unit)
    assert schema.inside(schema.raw(frame)).all()
    assert schema.labels(frame).tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize(("columns", "target", "message"), [
    ({"x": [1, 2]}, "z", "no column 'z'; known are x, y"),
    ({"applicant_sex": [1, 2]}, "sex", "no column 'sex'; did you mean 'applicant_sex'[?]"),
    ({"x": [None, None]}, "y", "column 'x' is empty; drop it"),
    ({"x": [1.0, np.inf]}, "y", "column 'x' holds an infinite value"),
    ({"x": pd.to_datetime(["2020-01-01", "2020-01-02"])}, "y", "column 'x' holds dates"),
    ({"x": pd.to_datetime(["2020-01-01", "2020-01-02"]).tz_localize("UTC")}, "y", "column 'x' holds dates"),
    ({"x": pd.period_range("2020-01", periods=2, freq="M")}, "y", "column 'x' holds periods"),
    ({"x": pd.to_timedelta([1, 2], unit="D")}, "y", "column 'x' holds durations"),
    ({"x": [1 + 1j, 2]}, "y", "column 'x' holds complex numbers"),
    ({"x": [1, 2], "y": [None, None]}, "y", "label 'y' has 0 distinct values, expected 2 to 20 classes"),
    ({"x": [1, 2], "y": [1, 1]}, "y", "label 'y' has 1 distinct value, expected"),
])
def test_tables_that_no_schema_fits(columns: dict[str, object], target: str, message: str) -> None:
    frame = pd.DataFrame({"y": ["a", "b"]}).assign(**columns)[[*columns, *(() if "y" in columns else ("y",))]]
    with pytest.raises(DataError, match=message):
        Schema.infer(frame, target=target)


def test_numbers_further_apart_than_any_number_are_told() -> None:
    frame = pd.DataFrame({"x": [-1.5e308, 1.5e308, 0.5], "y": ["a", "b", "a"]})
    with pytest.raises(SchemaError, match=r"feature 'x': range = .*count in a larger unit"):
        Schema.infer(frame, target="y")


def test_positive_must_occur() -> None:
    frame = pd.DataFrame({"x": [1, 2], "y": ["a", "b"]})
    assert Schema.infer(frame, target="y", positive="a").positive_label == "a"
    with pytest.raises(DataError, match="label 'y' never is 'c'; found a, b"):
        Schema.infer(frame, target="y", positive="c")


@pytest.mark.parametrize("name", ["a", "y"])
def test_columns_of_one_name_are_refused(name: str) -> None:
    frame = pd.DataFrame({"a": [1, 2, 3, 4], "y": ["no", "yes", "no", "yes"]})
    twice, model = pd.concat([frame, frame[[name]]], axis=1), network_of(([[1.0]], [0.0]))
    with pytest.raises(DataError, match=f"the table has several columns '{name}'; give each its own name"):
        Schema.infer(twice, target="y", model=model)


def test_too_many_words() -> None:
    frame = pd.DataFrame({"x": [f"id{k}" for k in range(60)], "y": [0, 1] * 30})
    with pytest.raises(DataError, match=r"column 'x' holds 60 distinct texts .*, too many for a category; drop it"):
        Schema.infer(frame, target="y")


@pytest.mark.parametrize(("labels", "positive", "outcomes"), [
    (["bad", "good"], "good", ("bad", "good")), (["0", "1"], "0", ("credit 1", "credit 0")),
    ([0, 1], None, ("credit 0", "credit 1")),
    ([True, False], None, ("credit False", "credit True")),
    (["n", "y"], "y", ("credit n", "credit y")),
    (["high", "low", "none"], "none", ("not none", "none")), ([1, 2, 3], "3", ("credit not 3", "credit 3")),
])
def test_outcomes_are_the_labels_in_words(labels: list[object], positive: str | None, outcomes: tuple[str, str]) -> None:
    frame = pd.DataFrame({"age": range(6), "credit": labels * (6 // len(labels))})
    assert Schema.infer(frame, target="credit", positive=positive).outcomes == outcomes
    assert "# check: which label is the favourable one" in draft(frame, target="credit", positive=positive)


def classifier(classes: tuple[str, ...], outputs: int) -> Network:
    """As a reader of stored classifiers gives it: one column, classes with names."""
    feed = Feed(name="age", kind="float32", shape=(1,), start=np.zeros(1, dtype=np.int64))
    return network_of((np.ones((outputs, 1)), None), feeds=(feed,), classes=classes)


@pytest.mark.parametrize(
    ("name", "told"), [("deny", True), ("loan_default", True), ("SeriousDlqin2yrs", True), ("y", False), ("approved", False)]
)
def test_one_is_favourable_by_custom_unless_the_label_speaks_against_it(name: str, told: bool) -> None:
    frame = pd.DataFrame({"age": range(6), name: [0, 1] * 3})
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        assert Schema.infer(frame, target=name).positive_label == "1"
    assert any(f"label {name!r}: '1' is taken as the favourable value" in str(one.message) for one in shown) is told


def test_positive_is_the_class_that_the_network_decides_about() -> None:
    """Labels sort otherwise than people think: approved comes before denied, and the logit is that of denied."""
    frame = pd.DataFrame({"age": range(6), "credit": ["approved", "denied"] * 3})
    network = classifier(("approved", "denied"), 1)
    with pytest.warns(DraftWarning, match="'denied' is taken as the favourable value"):
        assert Schema.infer(frame, target="credit", model=network).positive_label == "denied"
    for named, positive in ((("denied", "approved"), "approved"), ((), "approved"), (("0", "1"), "approved")):
        assert Schema.infer(frame, target="credit", positive=positive, model=classifier(named, 1)).positive_label == positive
    first = Schema.infer(frame, target="credit", positive="approved", model=network)
    assert (first.positive, first.positive_label, first.outcomes) == ("class = 0", "approved", ("denied", "approved"))
    first.check_network(network)
    with pytest.raises(SchemaError, match="said to be the first, 'approved'; write positive = \"logit > 0\", or choose 'approved'"):
        first.model_copy(update={"positive_label": "denied"}).check_network(network)
    stated = Schema.infer(frame, target="credit", positive="approved")
    with pytest.raises(SchemaError, match=r"positive_label = 'approved': .* the second, 'denied'; write positive = .class = 0"):
        stated.model_copy(update={"positive": "logit > 0"}).check_network(network)


def test_several_classes_are_told_apart_by_numbers() -> None:
    frame = pd.DataFrame({"age": range(6), "grade": ["high", "low", "middle"] * 2})
    network = classifier(("high", "low", "middle"), 3)
    with pytest.raises(DataError, match=r"the classes high, low, middle; say which is favourable, .*positive='middle'"):
        Schema.infer(frame, target="grade", model=network)
    named = Schema.infer(frame, target="grade", positive="low", model=network)
    assert (named.positive, named.classes, named.outcomes) == ("class = low", ("high", "low", "middle"), ("not low", "low"))
    assert named.labels(frame).tolist() == [0, 1, 2] * 2
    assert named.favoured(frame).tolist() == [False, True, False] * 2
    named.check_network(network)
    with pytest.raises(SchemaError, match="positive_label = 'low': it tells two classes apart, and the network has 3"):
        Schema.infer(frame, target="grade", positive="low").check_network(network)
    numbered = Schema.infer(frame.assign(grade=[0, 1, 2] * 2), target="grade", model=classifier(("0", "1", "2"), 3))
    assert (numbered.positive, numbered.positive_label, numbered.outcomes) == ("class = 1", None, ("grade not 1", "grade 1"))
    numbered.check_network(network)


# A schema for a model that takes a table must name its columns' kinds, categories and order; Schema.infer knows them.


AGE, SEX, HOURS = (
    integer("age", 17, 90),
    one_hot("sex", "F", "M"),
    real("hours-per-week", 0, 80),
)


def column(name: str, kind: str, start: int, *known: Any) -> Feed:
    return Feed(name=name, kind=kind, shape=(1,), start=np.array([start]), categories={0: known} if known else {})


def network(*feeds: Feed, outputs: int = 1) -> Network:
    n = sum(feed.columns for feed in feeds)
    return network_of((np.ones((outputs, n)), None), feeds=feeds)


MODEL = network(column("age", "int64", 0), column("sex", "text", 1, "F", "M"), column("hours_per_week", "float32", 3))


def schema(*features: dict[str, Any]) -> vf.Schema:
    return schema_of(*(list(features)), positive="logit > 0")


def test_a_schema_that_fits() -> None:
    schema(AGE, SEX, HOURS).check_network(MODEL)


@pytest.mark.parametrize(("features", "match"), [
    ((AGE, {**SEX, "categories": ["M", "F"]}, HOURS), r"'sex'.*\[\"F\", \"M\"\]; list these, in this order"),
    ((AGE, {**SEX, "categories": ["F", "X"]}, HOURS), r"list these, in this order"),
    (({**AGE, "range": [0, 2**24 + 2]}, SEX, HOURS), r"'age' has range = \[0, 16,777,218\].*float32.*larger unit"),
    (({**AGE, "kind": "real"}, SEX, HOURS), r"'age' has kind = 'real'.*takes integers.*kind = \"integer\""),
    (({**AGE, "scale": "minmax"}, SEX, HOURS), r"'age' has a scale.*leave the scale to the model"),
    ((SEX, AGE, HOURS), r"'sex' is encoded by the model: feature|the model's input 'sex'"),
    ((AGE, {**SEX, "kind": "categorical"}, HOURS), r"takes 4 \(age: 1 integer; sex: one-hot with 2"),
])
def test_what_does_not_fit_is_said(features: tuple[dict[str, Any], ...], match: str) -> None:
    with pytest.raises(SchemaError, match=match):
        schema(*features).check_network(MODEL)


def test_whole_numbers_that_float32_misses(tmp_path: Path) -> None:
    """16,777,217 is fed as 16,777,216: a model of 64 bits may decide otherwise about it, and a proof would not see that."""
    double, single = (network(column("age", kind, 0)) for kind in ("float64", "float32"))
    wide = {**AGE, "range": [0, 2**24 + 1]}
    with pytest.raises(SchemaError, match=r"'age' has range = \[0, 16,777,217\].*takes numbers of 64 bits.*larger unit"):
        schema(wide).check_network(double)
    with pytest.raises(SchemaError, match="miss whole numbers"):
        schema({**wide, "scale": {"offset": 0.0, "scale": 1e6}}).check_network(double)
    for fits in (AGE, {**AGE, "range": [2**30, 2**30 + 7], "scale": {"offset": 2.0**30, "scale": 1.0}}):
        schema(fits).check_network(double)
    schema(wide).check_network(single)  # what a float32 model is fed is that float32 number
    assert semantics(double).endswith("on inputs rounded to float32 (the model takes float64)")
    assert semantics(single) == "real-valued function of the stored float32 weights"
    trees = read_model(tree_models.save(tmp_path / "t.onnx", [(0, "BRANCH_LEQ", 0.5, [0.1], [0.7])], 1))
    assert semantics(trees) == "real-valued function of the stored float32 thresholds and leaf values"


def test_numbers_in_another_order() -> None:
    two = network(column("age", "float32", 0), column("hours_per_week", "float32", 1))
    schema({**AGE, "kind": "real"}, HOURS).check_network(two)
    with pytest.raises(SchemaError, match=r"'hours-per-week' stands in the place of another input.*age, hours_per_week"):
        schema(HOURS, {**AGE, "kind": "real"}).check_network(two)
    with pytest.raises(SchemaError, match="stands in the place"):
        schema({**HOURS, "name": "h", "column": "hours-per-week"}, {**AGE, "kind": "real"}).check_network(two)
    schema({**HOURS, "name": "other"}, {**AGE, "kind": "real", "name": "names"}).check_network(two)  # names that say nothing


FRAME = pd.DataFrame({"sex": ["M", "F", "M"], "hours-per-week": [1.5, 20, 80], "age": [17, 30, 90], "y": ["no", "yes", "no"]})


def test_infer_takes_order_and_categories_from_the_model() -> None:
    drafted = vf.Schema.infer(FRAME, target="y", positive="yes", protected=["sex"], model=MODEL)
    assert [(f.name, f.kind, f.scale) for f in drafted.features] == [
        ("age", "integer", "none"), ("sex", "one-hot", "none"), ("hours-per-week", "real", "none")]
    assert drafted["sex"].categories == ("F", "M")
    assert drafted.protected_names == ("sex",)
    assert drafted.positive == "logit > 0"
    drafted.check_network(MODEL)
    assert vf.Schema.loads(draft(FRAME, target="y", positive="yes", protected=["sex"], model=MODEL)) == drafted


@pytest.mark.parametrize("values", [[True, False, True], [True, True, True]])
def test_truth_values_are_numbers_to_a_model(values: list[bool]) -> None:
    frame = FRAME.assign(**{"hours-per-week": values})
    for drafted in (vf.Schema.infer(frame, target="y", positive="yes", model=model) for model in (None, MODEL)):
        assert (drafted["hours-per-week"].kind, drafted["hours-per-week"].categories) == ("categorical", ("False", "True"))
    drafted.check_network(MODEL)


def test_infer_for_one_matrix_takes_the_tables_order(tmp_path: Path) -> None:
    model = network(Feed(name="X", kind="float32", shape=(3,), start=np.array([0, 1, 3]), categories={1: (3, 4)}), outputs=2)
    frame = pd.DataFrame({"a": [1.0, 2.5], "b": [3, 4], "y": [0, 1], "c": [0, 9]})
    drafted = vf.Schema.infer(frame, target="y", model=model)
    assert [(f.name, f.kind, f.categories) for f in drafted.features] == [
        ("a", "real", None), ("b", "one-hot", ("3", "4")), ("c", "integer", None)]
    drafted.check_network(model)


def test_infer_names_what_does_not_fit_the_model() -> None:
    with pytest.raises(DataError, match=r"no column 'hours_per_week', which the model takes; known are sex, age, y"):
        vf.Schema.infer(FRAME.drop(columns="hours-per-week"), target="y", model=MODEL)
    with pytest.raises(DataError, match="'hours-per-week' holds text, but the model takes a number there; if it numbers"):
        vf.Schema.infer(FRAME.assign(**{"hours-per-week": ["a", "b", "c"]}), target="y", model=MODEL)
    with pytest.raises(DataError, match="takes 1 columns, the table has 3"):
        vf.Schema.infer(FRAME, target="y", model=network(column("X", "float32", 0)))


def test_a_wrong_cell_is_named_where_the_columns_do_not_make_the_models_inputs() -> None:
    model = network(Feed(name="X", kind="float32", shape=(4,), start=np.arange(4)))
    frame = people()[["income", "sex", "shoe", "approved"]]

    def refused(name: str, row: int, cell: str, model: Any = model) -> str:
        wrong = frame.astype({name: object})
        wrong.loc[row, name] = cell
        with pytest.raises(DataError) as found:
            vf.Schema.infer(wrong, target="approved", model=model)
        return str(found.value)

    takes = "the model takes 4 columns, the table has 3 beside the label; "
    assert refused("sex", 7, "X") == (
        takes + "they would fit without 'X', which column 'sex' holds in row 7 alone: correct it where it is wrong, or give the "
        "table that it was trained on"
    )
    cell = "row 5 holds 'n/a', and 399 of 400 rows hold numbers; correct the cell, or leave it empty"
    assert refused("shoe", 5, "n/a") == takes + f"column 'shoe' is read as text, its values as categories: {cell}"
    many = refused("income", 5, "n/a", None)
    assert many.startswith("column 'income' holds 400 distinct texts")
    assert many.endswith(f"too many for a category; {cell}")
    by_name = network(column("income", "float32", 0), column("shoe", "float32", 1))
    assert refused("shoe", 5, "n/a", by_name) == f"column 'shoe' holds text, but the model takes a number there; {cell}"
    assert "row 5 holds 'inf'" in refused("shoe", 5, "inf", by_name)
    # A table of another width says nothing of its words.
    wider = network(Feed(name="X", kind="float32", shape=(9,), start=np.arange(9)))
    with pytest.raises(DataError, match="the table has 4 beside the label; give the table that it was trained on"):
        vf.Schema.infer(people(), target="approved", model=wider)


# What the labels suggest


def people(rows: int = 400) -> pd.DataFrame:
    random = np.random.default_rng(0)
    frame = pd.DataFrame({
        "income": random.normal(40_000, 12_000, rows), "shoe": random.integers(36, 46, rows).astype(float),
        "sex": random.choice(["F", "M"], rows), "home": random.choice(["free", "own", "rent"], rows),
    })  # fmt: skip
    return frame.assign(approved=frame["income"] + 6000 * (frame["home"] == "own") > 42_000)


def test_labels_of_any_type() -> None:
    frame = people()
    for label, positive, text in (
        (frame["approved"], True, "True"), (frame["approved"].astype(int), 1, "1"), (frame["approved"].astype(float), 1.0, "1"),
        (frame["approved"].map({True: "yes", False: "no"}), "yes", "yes"), (frame["approved"], np.bool_(True), "True"),
    ):
        assert Schema.infer(frame.assign(approved=label), target="approved", positive=positive).positive_label == text
    with pytest.raises(DataError, match="label 'approved' never is '2'; found False, True"):
        Schema.infer(frame, target="approved", positive=2)


def test_a_class_by_its_number_needs_a_label_that_holds_it() -> None:
    frame = people().assign(approved=people()["approved"].map({True: "yes", False: "no"}))[["income", "shoe", "approved"]]
    model = network(column("income", "float32", 0), column("shoe", "float32", 1))
    with pytest.raises(DataError, match=r"never is '0'; found no, yes; the model does not name its classes: pass .* positive='no'"):
        Schema.infer(frame, target="approved", positive="class = 0", model=model)


def test_a_threshold_of_a_logit_is_no_rule_of_several_classes() -> None:
    model = network(column("income", "float32", 0), column("shoe", "float32", 1), outputs=3)
    frame = people()[["income", "shoe"]].assign(tier=np.arange(400) % 3)
    with pytest.raises(DataError, match=r"'logit < 0': each of the model's 3 classes has a logit; name .* positive='2' or "):
        Schema.infer(frame, target="tier", positive="logit < 0", model=model)


def test_merit_is_proposed_where_numbers_go_with_the_label() -> None:
    drafted = Schema.infer(people(), target="approved", positive=True, protected=["sex"])
    assert [feature.name for feature in drafted.features if feature.merit] == ["income"]
    assert "merit was proposed" in draft(people(), target="approved", positive=True)
    protected = Schema.infer(people(), target="approved", positive=True, protected=["income"])
    assert not any(feature.merit for feature in protected.features)
    assert not any(feature.merit for feature in Schema.infer(people(20), target="approved", positive=True).features)
    with pytest.raises(SchemaError, match=r"'income': range = .* is too wide"):  # and no warning of numpy's before
        Schema.infer(people().assign(income=lambda frame: frame["income"] * 1e300), target="approved", positive=True)


def test_missing_values_are_told() -> None:
    frame = people()
    frame.loc[:9, "home"] = None
    with pytest.warns(vf.DraftWarning, match="column 'home' has no value in 10 of 400 rows; such rows are refused: fill in"):
        Schema.infer(frame, target="approved", positive=True)
    assert "# column 'home' has no value in 10 of 400 rows" in draft(frame, target="approved", positive=True)


@pytest.mark.parametrize("kind", ["raw", "minmax", "standard"])
def test_scaling_and_blocks_of_a_matrix_are_as_the_labels_suggest(kind: str) -> None:
    """A network of numbers alone, as an exporter of Modules stores it: income, shoe, sex (two columns), home (three)."""
    frame = people()
    income = frame["income"].to_numpy()
    scales = {"raw": (0.0, 1.0), "minmax": (income.min(), np.ptp(income)), "standard": (income.mean(), income.std())}
    offset, scale = scales[kind]
    weights = np.array([[scale / 6000, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]])
    feed = Feed(name="x", kind="float32", shape=(7,), start=np.arange(7))
    model = network_of((weights, np.array([(offset - 42_000) / 6000])), feeds=(feed,))
    with pytest.warns(vf.DraftWarning, match="that its one-hot blocks stand where the table has their columns is a guess") as said:
        drafted = Schema.infer(frame, target="approved", positive=True, model=model)
    assert any("by scaled numbers (income, shoe): a guess" in str(one.message) for one in said) is (kind != "raw")
    assert [feature.kind for feature in drafted.features] == ["real", "integer", "one-hot", "one-hot"]
    drafted.check_network(model)
    assert drafted["income"].affine == pytest.approx((offset, scale))
    right = (model.forward(drafted.encode(drafted.raw(frame)))[:, 0] > 0) == frame["approved"]
    assert right.mean() > 0.99
    with pytest.raises(DataError, match="the model takes 7 columns, the table has 3 beside the label; give the table that it was"):
        Schema.infer(frame.drop(columns="home"), target="approved", positive=True, model=model)
    # The model's class 1 is approved, which sorts before denied: its decisions say so.
    named = frame.assign(approved=np.where(frame["approved"], "approved", "denied"))
    with pytest.warns(vf.DraftWarning, match="a guess|'approved' is taken as the favourable value"):
        assert Schema.infer(named, target="approved", model=model).positive_label == "approved"
    # Whoever calls the other one favourable asks about class 0.
    with pytest.warns(vf.DraftWarning, match="a guess"):
        denied = Schema.infer(named, target="approved", positive="denied", model=model)
    assert (denied.positive, denied.outcomes) == ("class = 0", ("approved", "denied"))
    assert ((denied.labels(named) == 1) == (named["approved"] == "approved")).all()


@pytest.mark.parametrize(("asked", "message"), [
    ({"target": pd.Series(["a", "b"])}, "target: found Series; expected the name of the label column"),
    ({"target": 3}, "target: found int; expected the name of the label column"),
    ({"positive": ["a"]}, "positive: found list; expected one label, or a rule such as 'class in "),
    ({"protected": pd.Series(["a", "b"])}, r"protected: found Series; expected names of columns, such as protected=\['sex'\]"),
    ({"protected": 3}, "protected: found int; expected names of columns"),
    ({"frame": np.zeros((2, 2))}, "found ndarray; expected a DataFrame with the "),
    ({"frame": pd.DataFrame([[1, "a"], [2, "b"]])}, r"column 0: its name is no text; pass frame\.rename\(columns=str\)"),
])
def test_what_is_no_question(asked: dict[str, Any], message: str) -> None:
    frame = pd.DataFrame({"x": [1, 2], "y": ["a", "b"]})
    with pytest.raises(DataError, match=message):
        Schema.infer(**{"frame": frame, "target": "y", **asked})
    asked = {"sensitive" if key == "protected" else key: value for key, value in asked.items()}
    with pytest.raises(DataError, match=message.replace("protected", "sensitive")):
        vf.audit(network_of(([[1.0]], [0.0])), **{"frame": frame, "target": "y", "sensitive": ["x"], **asked})


def test_a_model_without_names_of_columns() -> None:
    start = np.zeros(1, dtype=np.int64)
    feeds = tuple(Feed(name=f"x{k}", kind="float32", shape=(1,), start=start + k) for k in range(2))
    frame = pd.DataFrame({"a": [1, 2], "b": [1, 2], "y": ["a", "b"]})
    with pytest.raises(DataError, match="no column 'x0', which the model takes; the model was fitted without names of columns"):
        Schema.infer(frame, target="y", model=network_of(([[1.0, 1.0]], [0.0]), feeds=feeds))


def test_a_name_that_begins_with_a_blank_is_not_what_a_csv_file_gives(tmp_path: Path) -> None:
    """The error said that there is no such column; the file has it, and the reader left out the blank."""
    frame = pd.DataFrame({"age": [1, 2, 3], " lead": [1, 2, 4], "y": ["a", "b", "b"]})
    start = np.zeros(1, dtype=np.int64)
    feeds = tuple(Feed(name=name, kind="float32", shape=(1,), start=start + k) for k, name in enumerate(("age", " lead")))
    model = network_of(([[1.0, 1.0]], [0.0]), feeds=feeds)
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    said = "no column ' lead', which the model takes; it has 'lead': blanks before names are left out .* as Parquet, which keeps"
    with pytest.raises(DataError, match=said):
        Schema.infer(datasets.read_table(tmp_path / "t.csv"), target="y", model=model)
    kept = Schema.infer(datasets.read_table(tmp_path / "t.parquet"), target="y", positive="b", model=model)
    assert [feature.name for feature in kept.features] == ["age", " lead"]


ROWS = np.arange(40)


@pytest.mark.parametrize(("name", "values", "said"), [
    ("Unnamed: 0", ROWS, "counts the rows, as a saved index does"), ("n", ROWS + 1, "counts the rows, as a saved index does"),
    ("Unnamed: 3", ROWS % 7, "is called as pandas calls a saved index"), ("who", 3 * ROWS + 5, "holds another whole number"),
    ("person_id", ROWS[::-1] * 3, "holds another whole number"), ("userID", ROWS[::-1] * 3, "holds another whole number"),
    ("income", ROWS[::-1] * 3, ""), ("paid", 3 * ROWS, "holds another whole number in each"), ("paid", ROWS[::-1] * 3, ""),
    ("Unnamed: 0", ROWS / 7, ""),
])
def test_a_column_that_numbers_the_rows_is_told_or_left_out(name: str, values: Any, said: str) -> None:
    """A saved index became a feature of the model without a word, or the table did not fit the model."""
    people = pd.DataFrame({"age": 20 + ROWS % 30, "sex": ROWS % 2, "y": ROWS % 30 > 12})
    frame = people.copy()
    frame.insert(1, name, values)
    text = draft(frame, target="y", protected=["sex"])
    assert [one.name for one in Schema.loads(text).features] == ["age", name, "sex"]
    assert f"# check: it {said}" in text if said else "# check: it" not in text
    model = network_of(([[1.0, 0.0]], [-30.0]))  # takes a matrix of two columns
    if said:
        text = draft(frame, target="y", protected=["sex"], model=model)
        assert f"# check: column {name!r} {said}" in text
        assert Schema.loads(text) == Schema.infer(people, target="y", protected=["sex"], model=model)
        with pytest.warns(DraftWarning, match=f"that it does not take column {name!r}, which {said}.* is a guess"):
            Schema.infer(frame, target="y", protected=["sex"], model=model)
        with pytest.warns(DraftWarning, match=f"column {name!r} {said}"):
            Schema.infer(frame, target="y", protected=["sex"], model=network_of(([[1.0, 0.0, 0.0]], [-30.0])))
    else:
        with pytest.raises(DataError, match="columns, the table has 3 beside the label"):
            draft(frame, target="y", protected=["sex"], model=model)


@pytest.mark.parametrize(("regressor", "found"), [
    (RandomForestRegressor(5, max_depth=3, random_state=0), 'an output between .* and 1 at every input.* positive = "value > T"'),
    (GradientBoostingRegressor(n_estimators=32, random_state=0), r"values from .* on the table, .*positive='value > 0\.5'"),
])
def test_values_between_0_and_1_are_no_logits(regressor: Any, found: str) -> None:
    """Of trees that regress on 0 and 1, `logit > 0` favours everybody, and certify proved that no decision flips."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.integers(0, 9, 200), "sex": rng.integers(0, 2, 200)}).astype(float)
    y = (frame["a"] + 3 * frame["sex"] + rng.normal(0, 3, 200) > 5).astype(int)
    model = vf.read(regressor.fit(frame, y), frame)
    asked = {"target": "y", "protected": ["sex"], "model": model}
    with pytest.raises(VerifairError, match=f"gives {found}"):
        vf.Schema.infer(frame.assign(y=y), **asked)
    schema = vf.Schema.infer(frame.assign(y=y), positive="value > 0.5", **asked)
    verdict = vf.verify(vf.IndividualFairness(model=model, schema=schema, protected=["sex"]))
    assert verdict.status is vf.Status.VIOLATED


@pytest.mark.parametrize("kind", ["matrix", "columns", "trees"])
@pytest.mark.parametrize("dtype", [int, bool])
def test_models_of_one_hot_columns_are_asked_about_people_of_one_value(kind: str, dtype: type) -> None:
    """Whose decision the feature changes is what the model itself says of the table with the other column set."""
    rng = np.random.default_rng(3)
    people = pd.DataFrame({"age": rng.integers(18, 80, 300), "sex": rng.choice(["f", "m"], 300), "job": rng.choice([*"abc"], 300)})
    credit = (people.age / 80 + (people.sex == "m") * 0.4 + rng.normal(0, 0.2, 300) > 0.8).astype(int)
    table = pd.get_dummies(people, columns=["sex", "job"], dtype=dtype)
    scaled = ColumnTransformer([("scaled", StandardScaler(), ["age"])], remainder="passthrough")
    model = {
        "matrix": LogisticRegression(max_iter=1000), "columns": make_pipeline(scaled, LogisticRegression()),
        "trees": GradientBoostingClassifier(n_estimators=5, random_state=0),
    }[kind].fit(table, credit)
    with pytest.warns(DraftWarning, match="taken for the one-hot columns of one feature, 'sex'"):
        schema = Schema.infer(table.assign(credit=credit), target="credit", protected=["sex"], model=model)
    network, exchanged = vf.read(model), table.rename(columns={"sex_f": "sex_m", "sex_m": "sex_f"})[table.columns]
    raw = schema.raw(table)
    other = raw.copy()
    other[:, 1] = 1 - raw[:, 1]
    settled, described = schema.settled(network)
    judged = [described.judges(settled).forward(described.encode(rows)) for rows in (raw, other)]
    decided = [logits[:, 0] > 0 if logits.shape[1] == 1 else logits[:, 1] > logits[:, 0] for logits in judged]
    assert (decided[0] == model.predict(table)).all()
    assert (decided[1] == model.predict(exchanged)).all()
    assert (decided[0] != decided[1]).sum() > 10


def test_one_hot_columns_that_stand_apart_in_a_model_are_not_protected() -> None:
    table = pd.DataFrame({"sex_f": [0, 1, 1, 0], "sex_m": [1, 0, 0, 1], "age": [20, 30, 50, 60], "credit": [0, 1, 1, 0]})
    kept = ColumnTransformer([("all", "passthrough", ["sex_f", "age", "sex_m"])])
    model = make_pipeline(kept, LogisticRegression()).fit(table[["sex_f", "age", "sex_m"]], table.credit)
    with pytest.raises(DataError, match="'sex' cannot be protected: its one-hot columns sex_f, sex_m do not stand together"):
        Schema.infer(table, target="credit", protected=["sex"], model=model)


@pytest.mark.parametrize(("people", "asked", "found"), [
    ({"marital_status": "xyz"}, "marital_status", {"marital_status": [*"xyz"]}),
    ({"marital_status": "xyz"}, "marital", {"marital": ["status_x", "status_y", "status_z"]}),
    ({"home": "or", "home_city": "xyz"}, "home", {"home": [*"or"], "home_city": [*"xyz"]}),
    ({"home_city": "xy", "home": "or"}, "home", {"home_city": [*"xy"], "home": [*"or"]}),
    ({"self": "en"}, "self", {"self": [*"en"]}),
])
def test_one_hot_columns_are_of_the_feature_with_that_name(people: dict[str, str], asked: str, found: dict[str, list[str]]) -> None:
    """Where a name has "_" the shortest beginning was taken: of home_city for home, whose people the answers then were about."""
    rng = np.random.default_rng(0)
    table = pd.get_dummies(pd.DataFrame({name: rng.choice([*words], 60) for name, words in people.items()}), dtype=int)
    with pytest.warns(DraftWarning, match="are taken for"):
        schema = Schema.infer(table.assign(credit=rng.integers(0, 2, 60)), target="credit", protected=[asked])
    assert {one.name: [*(one.categories or ())] for one in schema.features} == found
    assert schema.protected_names == (asked,)
    said = [[f"{one.name}_{one.word(code)}" for one, code in zip(schema.features, row, strict=True)] for row in schema.raw(table)]
    assert said == [[name for name in table.columns if row[name]] for _, row in table.iterrows()]


def test_one_hot_columns_of_a_shorter_name_are_not_taken_for_those_of_another_feature() -> None:
    table = pd.DataFrame({"home_city_x": [0, 1, 0, 1], "home_city_y": [1, 0, 1, 0], "home_rent": [0, 0, 1, 1]})
    with pytest.raises(DataError, match="the table has no column 'home'; did you mean 'home_rent'"):
        Schema.infer(table.assign(credit=[0, 1, 1, 0]), target="credit", protected=["home"])


def test_a_category_that_no_row_has_is_one_of_the_feature() -> None:
    table = pd.DataFrame({"job_a": [0, 1, 0], "job_b": [0, 0, 0], "job_c": [1, 0, 1], "credit": [0, 1, 1]})
    with pytest.warns(DraftWarning, match="job_a, job_b, job_c are taken for"):
        schema = Schema.infer(table, target="credit", protected=["job"])
    assert schema["job"].categories == ("a", "b", "c")


def test_cells_without_a_value_are_told_of_one_hot_columns_of_any_type() -> None:
    cells = np.array([True, pd.NA, False, True], dtype=object)
    table = pd.DataFrame({"sex_f": cells, "sex_m": [False, True, True, False], "credit": [0, 1, 1, 0]})
    with pytest.warns(DraftWarning) as warned:
        Schema.infer(table, target="credit", protected=["sex"])
    assert any("column 'sex_f' has no value in 1 of 4 rows" in str(one.message) for one in warned)


def test_a_model_that_takes_one_of_two_one_hot_columns_is_asked_about_that_one() -> None:
    rng = np.random.default_rng(0)
    people = pd.DataFrame({"age": rng.integers(18, 80, 80), "sex": rng.choice(["f", "m"], 80)})
    table = pd.get_dummies(people, dtype=int).assign(credit=((people.age > 50) & (people.sex == "m")).astype(int))
    model = LogisticRegression().fit(table[["age", "sex_m"]], table.credit)
    schema = Schema.infer(table, target="credit", protected=["sex_m"], model=model)
    assert [one.name for one in schema.features] == ["age", "sex_m"]


def test_one_hot_columns_that_a_model_encodes_once_more_are_none_of_one_feature() -> None:
    rng = np.random.default_rng(0)
    table = pd.get_dummies(pd.DataFrame({"age": rng.integers(18, 80, 80), "sex": rng.choice(["f", "m"], 80)}), dtype=int)
    twice = ColumnTransformer([("words", OneHotEncoder(), ["sex_f", "sex_m"])], remainder="passthrough")
    model = make_pipeline(twice, LogisticRegression(max_iter=1000)).fit(table, table.age > 50)
    with pytest.warns(DraftWarning, match="columns sex_f, sex_m seem to be"):
        schema = Schema.infer(table.assign(credit=table.age > 50), target="credit", protected=["age"], model=model)
    assert [one.name for one in schema.features if one.kind == "one-hot"] == ["sex_f", "sex_m"]


@pytest.mark.parametrize("sep", ["=", ".", ": ", "-"])
def test_one_hot_columns_by_another_separator_are_told_and_not_protected_alone(sep: str) -> None:
    """Each changed alone, without a word, which made people of both sexes."""
    people = pd.DataFrame({"sex": [*"fmmf"], "age": [20, 30, 50, 60]})
    table = pd.get_dummies(people, columns=["sex"], prefix_sep=sep).assign(credit=[0, 1, 1, 0])
    for asked in ("sex", f"sex{sep}m"):
        with pytest.raises(DataError, match=r"cannot be protected .* fit the model on a table that calls them sex_CATEGORY"):
            Schema.infer(table, target="credit", protected=[asked])
    with pytest.warns(DraftWarning, match="seem to be the one-hot columns of one feature"):
        Schema.infer(table, target="credit", protected=["age"])


def test_categories_may_hold_what_separates() -> None:
    people = pd.DataFrame({"work-class": ["self-emp", "self-inc", "self-emp"], "age": [20, 30, 50], "credit": [0, 1, 1]})
    table = pd.get_dummies(people, columns=["work-class"])
    with pytest.warns(DraftWarning, match="are taken for the one-hot columns of one feature, 'work-class'"):
        schema = Schema.infer(table, target="credit", protected=["work-class"])
    assert schema.features[-1].categories == ("self-emp", "self-inc")


def test_one_hot_columns_of_words_with_blanks_are_flags() -> None:
    """As in Adult's own files, ", Male": the table has no column "sex_Male", and what it drafted could not be read from it."""
    table = pd.DataFrame({"sex_ f": [0, 1, 1, 0], "sex_ m": [1, 0, 0, 1], "age": [20, 30, 50, 60], "credit": [0, 1, 1, 0]})
    with pytest.warns(DraftWarning, match="columns sex_ f, sex_ m seem to be .* or none; fit the model on a table that calls"):
        schema = Schema.infer(table, target="credit", protected=["age"])
    assert schema.raw(table)[:, :2].tolist() == [[0, 1], [1, 0], [1, 0], [0, 1]]
    for asked in ("sex", "sex_ m"):
        with pytest.raises(DataError, match=r"cannot be protected by a drafted schema: .* without blanks"):
            Schema.infer(table, target="credit", protected=[asked])


@pytest.mark.parametrize("asked", ["sex", "sex_f"])
def test_one_hot_columns_that_stand_apart_in_a_table_are_not_protected(asked: str) -> None:
    """One of them changed alone, without a word."""
    table = pd.DataFrame({"sex_f": [0, 1, 1, 0], "age": [20, 30, 50, 60], "sex_m": [1, 0, 0, 1], "credit": [0, 1, 1, 0]})
    with pytest.raises(DataError, match=r"do not stand together|name 'sex' as protected"):
        Schema.infer(table, target="credit", protected=[asked])
    order = table[["age", "sex_f", "sex_m"]]
    with pytest.warns(DraftWarning, match="are taken for"):
        schema = Schema.infer(table, target="credit", protected=["sex"], model=LogisticRegression().fit(order, table.credit))
    assert [one.name for one in schema.features] == ["age", "sex"]


def test_one_hot_columns_of_one_feature_are_told(recwarn: pytest.WarningsRecorder) -> None:
    """Flipped one by one they made people of both sexes, and of none, without a word."""
    frame = pd.DataFrame({"age": [20, 30, 40], "sex": ["f", "m", "f"], "job": ["a_x", "b", "c"], "credit": [0, 1, 1]})
    table = pd.get_dummies(frame, columns=["sex", "job"])
    with pytest.raises(DataError, match=r"'sex_f': of the one-hot columns sex_f, sex_m a draft makes one feature; name 'sex' as"):
        Schema.infer(table, target="credit", protected=["sex_f"])
    with pytest.warns(DraftWarning, match="columns job_a_x, job_b, job_c are taken for the one-hot columns of one feature, 'job'"):
        schema = Schema.infer(table.astype(int), target="credit", protected=["sex"])
    assert [(one.name, one.categories) for one in schema.features[1:]] == [("sex", ("f", "m")), ("job", ("a_x", "b", "c"))]
    assert schema.protected_names == ("sex",)
    assert schema.raw(table)[:, 1:].tolist() == [[0, 0], [1, 1], [0, 2]]
    assert "# columns sex_f, sex_m are taken for" in draft(table, target="credit")
    both = table.assign(sex=["f", "m", "f"])  # the draft has no second name
    with pytest.raises(DataError, match=r"columns sex_f, sex_m seem .* or none; .*\"one-hot\", categories = \[\"f\", \"m\"\]"):
        Schema.infer(both, target="credit", protected=["sex_f"])
    with pytest.warns(DraftWarning, match="columns job_b, job_c seem .* several of its values; pass a schema with name"):
        Schema.infer(pd.get_dummies(frame, columns=["sex", "job"], drop_first=True), target="credit", protected=["job_b"])
    Schema.infer(frame.assign(has_car=[0, 1, 1], has_house=[0, 1, 0]), target="credit")
    assert not recwarn.list


def test_names_of_classes_have_no_quotation_marks() -> None:
    rule = PositiveRule.parse('class in ["low", "middle"]')
    with pytest.raises(SchemaError, match=r'no class "low"; known: low, middle, high; write the name without quotation marks$'):
        rule.numbered(["low", "middle", "high"])
    with pytest.raises(SchemaError, match=r"no class lower; known: low, middle, high$"):
        PositiveRule.parse("class = lower").numbered(["low", "middle", "high"])
