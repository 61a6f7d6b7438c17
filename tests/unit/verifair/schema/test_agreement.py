"""Decisions are those of the object that was passed: of its columns, categories, scales and thresholds; else it is refused."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import verifair as vf
from encoders.errors import ModelError
from verifair.errors import DataError, SchemaError
from verifair.models.compare import ImportDifference
from verifair.schema.schema import Schema
from verifair.systems.fgce.decider import positive

pytest.importorskip("skl2onnx")
N = 600


def people(seed: int = 0) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": draw.integers(18, 80, N), "score": draw.normal(0, 1, N), "sex": draw.choice(["F", "M"], N)})
    frame["y"] = np.where(frame["score"] + (frame["sex"] == "M") + draw.normal(0, 1, N) > 0.8, "good", "bad")
    return frame


def decided(model: Any, frame: pd.DataFrame, **asked: Any) -> list[bool]:
    """Who is decided favourably by the schema that is drafted for the object."""
    schema = Schema.infer(frame, target="y", model=model, **{"positive": "good", **asked})
    return positive(vf.read(model, frame.drop(columns="y")), schema, schema.raw(frame)).tolist()


@pytest.mark.parametrize("trees", [1, 2, 6, 12, 30])
def test_ties_of_votes_are_decided_as_by_the_forest(trees: int) -> None:
    """A leaf holds 1/n in float32, and n/2 of them may be more than a half."""
    frame = people()[["age", "score", "y"]]
    model = RandomForestClassifier(trees, random_state=0).fit(frame[["age", "score"]], frame["y"])
    share = model.predict_proba(frame[["age", "score"]])[:, 1]
    assert trees in (1, 12) or (np.abs(share - 0.5) < 1e-9).any()
    assert decided(model, frame) == (model.predict(frame[["age", "score"]]) == "good").tolist()


def test_an_object_takes_the_numbers_of_the_table_as_they_are() -> None:
    """A class-weighted model predicts fewer labels than a constant, which a wrong scale may make of it."""
    frame = people()[["age", "score"]]
    y = np.where(frame["score"] + np.random.default_rng(0).normal(0, 1, N) > 2, "good", "bad")
    model = make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced")).fit(frame.to_numpy(), y)
    assert decided(model, frame.assign(y=y)) == (model.predict(frame.to_numpy()) == "good").tolist()


@pytest.mark.parametrize(("fitted", "other"), [
    (["f0", "f1"], "f2"), (["0", "1"], "2"), (["annual income", "age"], "annual_income"), (["年齢", "age"], "収入"),
])
def test_columns_are_those_of_the_names_that_the_object_knows(fitted: list[str], other: str) -> None:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({other: draw.normal(3, 1, N), fitted[1]: draw.normal(0, 1, N), fitted[0]: draw.normal(0, 1, N)})
    y = np.where(frame[fitted[0]] > 0, "good", "bad")
    model = LogisticRegression().fit(frame[fitted], y)
    assert decided(model, frame.assign(y=y)) == (model.predict(frame[fitted]) == "good").tolist()


def test_two_columns_of_a_model_that_become_one_name_are_refused() -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(N, 2)), columns=["年齢", "収入"])
    y = np.where(frame["年齢"] > 0, "good", "bad")
    model = LogisticRegression().fit(frame, y)
    with pytest.raises(ModelError, match="its columns '年齢' and '収入' have one name in ONNX; rename one of them"):
        vf.read(model, frame)


def test_a_table_whose_words_the_object_does_not_know_is_refused() -> None:
    frame = people()
    encoder = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["sex"]), remainder="passthrough")
    model = make_pipeline(encoder, LogisticRegression()).fit(frame.drop(columns="y"), frame["y"])
    assert decided(model, frame) == (model.predict(frame) == "good").tolist()
    blanks = frame.assign(sex=np.where(frame["age"] > 50, frame["sex"] + " ", frame["sex"]))
    with pytest.raises(ModelError, match="rows of the table are decided otherwise, as the schema reads them"):
        decided(model, blanks)


def test_categories_are_numbered_as_the_object_was_fitted() -> None:
    xgboost = pytest.importorskip("xgboost")
    frame = people().assign(job=np.random.default_rng(1).choice(list("abcd"), N))
    X = frame[["score", "job"]].assign(job=frame["job"].astype("category"))
    y = (X["score"] + X["job"].map({"a": -1, "b": 1, "c": 0, "d": -2}).astype(float) > 0).astype(int)
    model = xgboost.XGBClassifier(n_estimators=8, n_jobs=1, enable_categorical=True).fit(X, y)
    assert decided(model, X.assign(y=y), positive=1) == (model.predict(X) == 1).tolist()
    there = X["job"] != "a"
    few = X[there].assign(job=frame["job"][there].astype("category"), y=y[there])
    assert decided(model, few, positive=1) == (model.predict(few[["score", "job"]]) == 1).tolist()
    with pytest.warns(vf.DraftWarning, match="column 'job': its categories are numbered as in this table"):
        Schema.infer(few, target="y", positive=1, model=vf.read(model, X))


def test_ordered_categories_that_lightgbm_does_not_tell_from_numbers_are_numbered_as_in_the_table() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    frame = people().assign(job=np.random.default_rng(1).integers(0, 4, N), beside=np.random.default_rng(2).integers(0, 4, N))
    words = pd.Categorical(frame["job"].map(dict(enumerate("dbca"))), list("dbca"), ordered=True)
    X = frame[["score", "beside"]].assign(job=words)
    y = (X["score"] + frame["job"] > 2).astype(int)
    model = lightgbm.LGBMClassifier(n_estimators=8, n_jobs=1, verbose=-1).fit(X, y)
    assert decided(model, X.assign(y=y), positive=1) == (model.predict(X) == 1).tolist()
    other = X.assign(job=X["job"].cat.reorder_categories(list("abcd")), y=y)
    with pytest.raises(ModelError, match="give categorical columns the categories that it was fitted with, in that order"):
        Schema.infer(other, target="y", positive=1, model=model)


def test_a_threshold_on_a_value_that_the_model_gives_is_refused() -> None:
    frame = people()[["score"]]
    y = np.where(frame["score"] > 0.5, 0.9, np.where(frame["score"] > -0.5, 0.7, 0.1))
    model = DecisionTreeRegressor(random_state=0).fit(frame, y)
    at = float(np.unique(model.predict(frame))[1])
    with pytest.raises(ModelError, match="move the threshold of `positive` off it, for models hold float32 numbers"):
        decided(model, frame.assign(y=y), positive=f"value {'>=' if float(np.float32(at)) < at else '<='} {at!r}")
    assert decided(model, frame.assign(y=y), positive="value >= 0.6") == (model.predict(frame) >= 0.6).tolist()


def test_a_rule_that_is_a_number_and_a_name_is_refused() -> None:
    frame = people()[["score"]]
    y = np.digitize(frame["score"], [-0.5, 0.5]) - 1
    model = DecisionTreeClassifier(max_depth=3).fit(frame, y)
    with pytest.raises(DataError, match="0 is the number of class '-1', and the name of another one; pass one label"):
        decided(model, frame.assign(y=y), positive="class in [0, 1]")
    with pytest.raises(DataError, match=r"such as positive='1'$"):
        decided(model, frame.assign(y=y), positive=None)
    assert decided(model, frame.assign(y=y), positive=0) == (model.predict(frame) == 0).tolist()


@pytest.mark.parametrize("rule", ["good", "logit >= 1", 2])
def test_group_counterfactuals_ask_an_object_as_what_it_was_read_as(rule: Any) -> None:
    draw = np.random.default_rng(0)
    frame = people()[["score", "sex"]].assign(district=draw.choice([1, 2, 5], N))
    z = frame["score"] + frame["district"].map({1: -1, 2: 0, 5: 1.5})
    y = np.digitize(z, [-0.5, 1]) if rule == 2 else np.where(z + draw.normal(0, 1, N) > 0, "good", "bad")
    columns = make_column_transformer((StandardScaler(), ["score"]), (OneHotEncoder(handle_unknown="ignore"), ["district"]))
    model = make_pipeline(columns, LogisticRegression()).fit(frame, y)
    schema = Schema.infer(frame.assign(y=y), target="y", positive=rule, model=model)
    one, other = (
        vf.GroupCounterfactuals(each, schema, k=5, eps=2.0).fit(frame, sensitive_features="sex").positive_
        for each in (model, vf.read(model, frame))
    )
    assert (one == other).all()


@pytest.mark.parametrize("end", ["hard", "clamp"])
def test_a_module_that_gives_probabilities_by_other_means_than_a_sigmoid_is_refused(end: str) -> None:
    torch = pytest.importorskip("torch")
    last = torch.nn.Hardsigmoid() if end == "hard" else torch.nn.Hardtanh(0.0, 1.0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 1), last)
    frame = people()[["score", "age"]].assign(y=[0, 1] * (N // 2))
    with pytest.raises(SchemaError, match="gives an output between 0 and 1 at every input: a probability or a value it seems"):
        Schema.infer(frame, target="y", model=model)
    assert Schema.infer(frame, target="y", model=model, positive="value > 0.5").positive == "value > 0.5"


@pytest.mark.parametrize("kind", ["float64", "float32"])
def test_trees_that_ask_about_decimals_are_fitted_on_float32_numbers(kind: str) -> None:
    """HistGradientBoosting compares float64 numbers: 14.81 is not above the threshold 14.81, but as a float32 number it is."""
    income = np.repeat([14.80, 14.82, 14.81], 40).astype(kind)
    frame = pd.DataFrame({"income": income, "y": (np.arange(120) >= 40).astype(int)})
    model = HistGradientBoostingClassifier(max_iter=5).fit(frame[["income"]][:80], frame["y"][:80])
    if kind == "float64":
        said = pytest.warns(ImportDifference, match="decides 40 of 120 rows of the table otherwise than the object")
        with said, pytest.raises(ModelError, match=r"decimals such as 14\.81, fit it on float32 numbers"):
            vf.Schema.infer(frame, target="y", positive=1, model=model)
    else:
        assert vf.Schema.infer(frame, target="y", positive=1, model=model)["income"].kind == "real"


def test_reading_a_module_leaves_the_modes_of_its_parts() -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU(), torch.nn.Linear(4, 1)).train()
    model[1].eval()
    vf.read(model)
    assert [part.training for part in model] == [True, False, True, True]


def test_a_model_of_the_sensitive_feature_alone_is_audited() -> None:
    frame = people()[["age"]].iloc[:200]
    y = np.where(frame["age"] > 50, "good", "bad")
    model = LogisticRegression().fit(frame, y)
    found = vf.audit(model, frame.assign(y=y), target="y", positive="good", sensitive=["age"], analyses=["certify"], effort=3)
    assert any("Refuted by an exact counterexample" in one.text for part in found.result.sections for one in part.statements)


def test_class_names_have_no_blanks_around_them() -> None:
    frame = people()[["score"]]
    y = np.where(frame["score"] > 0, " >50K", " <=50K")
    model = LogisticRegression().fit(-frame, y)  # right of nobody
    assert decided(model, frame.assign(y=y), positive=" >50K") == (model.predict(frame) == " >50K").tolist()


def test_tables_that_cannot_be_are_refused_in_one_line() -> None:
    frame = people()
    model = LogisticRegression().fit(frame[["age", "score"]], frame["y"])
    asked = {"target": "y", "positive": "good", "sensitive": ["age"]}
    with pytest.raises(DataError, match="several columns 'age'"):
        vf.audit(model, pd.concat([frame, frame[["age"]]], axis=1), **asked)
    with pytest.raises(DataError, match="holds what is no number and no text"):
        vf.audit(model, frame.assign(cells=[[1]] * N), **asked)


@pytest.mark.parametrize(("labels", "said"), [
    ((1, 2), "has the labels 1 and 2, which its exporter writes as 0 and 1; fit it on labels 0 and 1"),
    ((1.0, 2.0), "fit it on whole numbers, or words, for labels"),
])
def test_labels_that_catboost_cannot_export_are_refused_with_the_remedy(labels: tuple[Any, Any], said: str) -> None:
    catboost = pytest.importorskip("catboost")
    frame = people()[["age", "score"]]
    y = np.where(frame["score"] > 0, labels[1], labels[0])
    model = catboost.CatBoostClassifier(iterations=2, verbose=0, allow_writing_files=False).fit(frame, y)
    with pytest.raises(ModelError, match=said):
        vf.read(model, frame)
