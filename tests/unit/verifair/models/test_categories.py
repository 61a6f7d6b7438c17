"""Categories of a pandas table that trees ask about by their codes, and missing values among them."""

import itertools
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor, StackingRegressor, VotingClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler

import verifair as vf
from encoders.errors import ModelError
from encoders.onnx.runtime import runtime_outputs
from verifair.models.compare import ImportDifference, predictions
from verifair.models.converters import boosting
from verifair.models.converters.missing import missing_categories

lightgbm, xgboost = pytest.importorskip("lightgbm"), pytest.importorskip("xgboost")
JOBS, GRADES, SEXES = ("smith", "clerk", "farmer"), ("low", "mid", "high"), ("F", "M")
RNG = np.random.default_rng(0)
LIGHTGBM = {"n_estimators": 4, "verbose": -1, "min_child_samples": 2, "min_data_per_group": 2, "cat_smooth": 1, "n_jobs": 1}
XGBOOST = {"n_estimators": 4, "max_depth": 3, "enable_categorical": True, "n_jobs": 1}
HISTOGRAMS = {"max_iter": 4, "min_samples_leaf": 3, "categorical_features": "from_dtype"}
MODELS = {
    "LightGBM": lightgbm.LGBMClassifier(**LIGHTGBM),
    "LightGBM, sets": lightgbm.LGBMClassifier(**LIGHTGBM, max_cat_to_onehot=1),
    "LightGBM, without missing values": lightgbm.LGBMClassifier(**LIGHTGBM, use_missing=False),
    "LightGBM, values": lightgbm.LGBMRegressor(**LIGHTGBM),
    "XGBoost": xgboost.XGBClassifier(**XGBOOST, max_cat_to_onehot=9),
    "XGBoost, sets": xgboost.XGBClassifier(**XGBOOST, max_cat_to_onehot=1),
    "XGBoost, values": xgboost.XGBRegressor(**XGBOOST),
    "histograms": HistGradientBoostingClassifier(**HISTOGRAMS),
    "histograms, one question": HistGradientBoostingClassifier(**HISTOGRAMS, max_leaf_nodes=2),
    "histograms, values": HistGradientBoostingRegressor(**HISTOGRAMS),
}


def table(cells: Any) -> pd.DataFrame:
    """Return rows whose columns hold categories; their order is not the alphabet's, and grades are ordered."""
    frame = pd.DataFrame(cells, columns=["age", "job", "grade", "sex"])
    frame = frame.astype({"job": pd.CategoricalDtype(JOBS), "grade": pd.CategoricalDtype(GRADES, ordered=True)})
    return frame.astype({"sex": pd.CategoricalDtype(SEXES), "age": int})


EVERYBODY = table(list(itertools.product(range(6), [*JOBS, np.nan], [*GRADES, np.nan], SEXES)))
"""192 people, among them those without a job, or a grade."""
PEOPLE = EVERYBODY.sample(400, replace=True, random_state=0, ignore_index=True)
OK = (PEOPLE["age"] - 3 + 2.5 * PEOPLE["job"].isin(["clerk"]) + 2 * (PEOPLE["job"].isna() & (PEOPLE["sex"] == "F"))
      - 3 * PEOPLE["grade"].isna() + PEOPLE["grade"].cat.codes + RNG.normal(0, 1, 400) > 0).astype(int)  # fmt: skip
COMPLETE = PEOPLE.dropna().index


@pytest.mark.parametrize("trained_on", ["missing values", "all values"])
@pytest.mark.parametrize("name", MODELS)
def test_a_missing_value_takes_the_branch_that_the_library_takes(name: str, trained_on: str) -> None:
    rows = PEOPLE.index if trained_on == "missing values" else COMPLETE
    model = MODELS[name].fit(PEOPLE.loc[rows], OK[rows])
    positive = 1 if hasattr(model, "classes_") else "value >= 0.5"
    with warnings.catch_warnings():
        warnings.simplefilter("error", ImportDifference)
        network = vf.read(model, PEOPLE)
        assert vf.read(model).source_sha256 == network.source_sha256    # compared on random points, missing values among them
        schema = vf.Schema.infer(PEOPLE.assign(ok=OK), target="ok", positive=positive, model=model)
    known = [sorted(JOBS), sorted(GRADES)] if "histograms" in name else [JOBS, GRADES]  # the order of codes
    assert [(one.categories, one.missing) for one in schema.features[1:]] == [
        *(((*words, "missing"), "missing") for words in known), (SEXES, None)]  # fmt: skip
    own = predictions(model, EVERYBODY)[:, -1]
    shown = runtime_outputs(network, schema.encode(schema.raw(EVERYBODY)).astype(np.float32))[:, -1]
    np.testing.assert_allclose(shown, own, atol=1e-6)


@pytest.mark.parametrize("name", ["LightGBM", "XGBoost", "histograms"])
def test_verdicts_and_counterexamples_are_those_of_the_object(name: str) -> None:
    model = MODELS[name].fit(PEOPLE, OK)
    schema = vf.Schema.infer(PEOPLE.assign(ok=OK), target="ok", positive=1, protected=["job"], model=model)
    people = EVERYBODY.astype(object).fillna("missing").itertuples(index=False, name=None)
    decided = dict(zip(people, model.predict(EVERYBODY), strict=True))
    statuses = set()
    for grade, sex in itertools.product([*GRADES, "missing"], SEXES):
        box = {"grade": grade, "sex": sex, "job": ["farmer", "missing"]}
        query = vf.IndividualFairness(model=model, schema=schema, protected=["job"], box=box)
        found = vf.verify(query)
        alike = all(decided[age, "farmer", grade, sex] == decided[age, "missing", grade, sex] for age in range(6))
        assert found.status is (vf.Status.PROVED if alike else vf.Status.VIOLATED)
        if found.certificate is not None:
            assert vf.check(found.certificate, model=model, schema=schema).accepted
        if found.witness is not None:
            pair = found.witness.rows(PEOPLE)
            assert pair["job"].isna().sum() == 1
            assert [f"ok {one}" for one in model.predict(pair)] == list(found.witness.decisions)
        statuses.add(found.status)
    assert len(statuses) == 2


@pytest.mark.parametrize("name", ["LightGBM", "XGBoost", "histograms"])
def test_categories_are_the_objects_own_whatever_the_table_has(name: str) -> None:
    """A table of other people has fewer categories, in another order."""
    model = MODELS[name].fit(PEOPLE, OK)
    others = PEOPLE[PEOPLE["job"] != "smith"].assign(ok=OK)
    others["job"] = others["job"].cat.set_categories(["farmer", "clerk"])
    schema = vf.Schema.infer(others, target="ok", positive=1, model=model)
    assert schema["job"].categories == (*(sorted(JOBS) if name == "histograms" else JOBS), "missing")
    shown = runtime_outputs(vf.read(model), schema.encode(schema.raw(others)).astype(np.float32))[:, -1]
    np.testing.assert_allclose(shown, predictions(model, others[list(PEOPLE)])[:, -1], atol=1e-6)


def scaled(model: Any, remainder: str) -> Any:
    """Return a model behind a scaler of ages (by 1, so that nothing is rounded), which hands on columns in another order."""
    before = ColumnTransformer([("a", "passthrough", ["sex", "job"]), ("b", MinMaxScaler((0, 5)), ["age"])], remainder=remainder)
    return make_pipeline(before.set_output(transform="pandas"), FunctionTransformer(), model)


AROUND: dict[str, Callable[[Any], Any]] = {
    "steps that do nothing": lambda model: make_pipeline("passthrough", make_pipeline(None, model)),
    "a search": lambda model: GridSearchCV(model, {}, cv=2),
    "a search of pipelines": lambda model: GridSearchCV(make_pipeline("passthrough", model), {}, cv=2),
    "a scaler": lambda model: scaled(model, "passthrough"),
    "a scaler, grades dropped": lambda model: scaled(model, "drop"),
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("name", ["LightGBM", "XGBoost", "histograms"])
def test_steps_and_searches_keep_the_categories_of_what_they_hold(name: str, around: str) -> None:
    """Pipelines that begin with steps that do nothing do not say which columns they were fitted on."""
    if name == "histograms" and "scaler" in around:     # refused
        return
    model = AROUND[around](clone(MODELS[name])).fit(PEOPLE, OK)
    others = PEOPLE.assign(ok=OK, job=PEOPLE["job"].cat.reorder_categories(JOBS[::-1]))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ImportDifference)
        network = vf.read(model, PEOPLE)
        assert vf.read(model).source_sha256 == network.source_sha256
        schema = vf.Schema.infer(others, target="ok", positive=1, model=model)
    assert schema["job"].categories == (*(sorted(JOBS) if name == "histograms" else JOBS), "missing")
    shown = runtime_outputs(network, schema.encode(schema.raw(EVERYBODY)).astype(np.float32))[:, -1]
    np.testing.assert_allclose(shown, predictions(model, EVERYBODY)[:, -1], atol=1e-6)


def test_boosters_of_the_libraries_own_are_compared_at_missing_values() -> None:
    for name, of in (("LightGBM", "booster_"), ("XGBoost", "get_booster")):
        found = getattr(MODELS[name].fit(PEOPLE, OK), of)
        with warnings.catch_warnings():
            warnings.simplefilter("error", ImportDifference)
            vf.read(found() if callable(found) else found, PEOPLE)


def test_zeros_that_are_missing_are_refused_beside_categories() -> None:
    model = xgboost.XGBClassifier(**XGBOOST, missing=0).fit(PEOPLE, OK)
    with pytest.raises(ModelError, match=r"takes the first of a column's categories for a missing value; fit it with"):
        vf.read(model, PEOPLE)


def test_words_that_xgboost_stores_in_part_are_those_of_the_table() -> None:
    """XGBoost 3 takes letters for bytes: of z, ü and ä it stores z and the two bytes of ü."""
    words = {"smith": "z", "clerk": "ü", "farmer": "ä"}
    people = PEOPLE.assign(job=PEOPLE["job"].cat.rename_categories(words))
    model = clone(MODELS["XGBoost, sets"]).fit(people, OK)
    network = vf.read(model, people)
    schema = vf.Schema.infer(people.assign(ok=OK), target="ok", positive=1, model=model)
    assert schema["job"].categories == ("z", "ü", "ä", "missing")
    shown = runtime_outputs(network, schema.encode(schema.raw(people)).astype(np.float32))[:, -1]
    np.testing.assert_allclose(shown, predictions(model, people)[:, -1], atol=1e-6)
    for others in (None, people.assign(job=people["job"].cat.reorder_categories(["ä", "ü", "z"]))):
        with pytest.raises(ModelError, match="in part only; read it with a table of the same categories in the same order"):
            vf.read(model, others)


def test_columns_of_lightgbm_that_may_hold_categories() -> None:
    """It lists categories without their columns, and notes the range of ordered ones like that of numbers."""
    three, two = ["a", "b", "c"], ["F", "M"]
    assert boosting._by_column([three, two], ["[0:9]", "-1:1:0:2", "-1:0:1"]) == {1: three, 2: two}
    assert boosting._by_column([three, two], ["[0:9]", "[0:2]", "-1:0:1"]) == {1: three, 2: two}
    assert boosting._by_column([three, two], ["[0:9]", "[0:2]", "[0:1]", "-1:0:1", "[0.5:1]"]) == {}
    assert boosting._by_column([three, three, two], ["-1:0:1:2", "[0:2]", "[0:2]", "[-1:1]", "-1:0:1"]) == {4: two}
    assert boosting._by_column([three], ["[0:2]", "none"]) == {}


def test_an_ordered_column_that_may_be_a_number_keeps_no_category_for_missing_values() -> None:
    frame = PEOPLE.assign(flag=PEOPLE["age"] % 3)[["age", "job", "flag", "grade", "sex"]]   # 0, 1 and 2, as codes of grades
    model = MODELS["LightGBM"].fit(frame, OK)
    schema = vf.Schema.infer(frame.loc[COMPLETE].assign(ok=OK), target="ok", positive=1, model=model)
    assert (schema["job"].categories, schema["grade"].categories) == (JOBS, GRADES)
    with pytest.warns(vf.DraftWarning, match="column 'grade' has no value"):
        vf.Schema.infer(frame.assign(ok=OK), target="ok", positive=1, model=model)


def test_histogram_trees_take_words_numbers_and_truth_values_for_categories() -> None:
    """Their encoder knows None as a category, and NaN as none."""
    words = PEOPLE.astype({"job": object, "grade": object}).where(PEOPLE.notna(), None)
    numbers = PEOPLE.assign(job=PEOPLE["job"].cat.codes.replace(-1, np.nan), sex=pd.Categorical(PEOPLE["sex"] == "F"))
    for frame, names, categories in (
        (words, ["job", "grade", "sex"], {"job": (*sorted(JOBS), "missing"), "sex": SEXES}),
        (numbers, ["job", "grade", "sex"], {"job": ("0", "1", "2", "missing"), "sex": ("False", "True")}),
    ):
        model = HistGradientBoostingClassifier(**HISTOGRAMS | {"categorical_features": names}).fit(frame, OK)
        with warnings.catch_warnings():
            warnings.simplefilter("error", ImportDifference)
            network = vf.read(model, frame)
            assert vf.read(model).source_sha256 == network.source_sha256
            schema = vf.Schema.infer(frame.assign(ok=OK), target="ok", positive=1, model=model)
        assert {name: schema[name].categories for name in categories} == categories
        shown = runtime_outputs(network, schema.encode(schema.raw(frame)).astype(np.float32))[:, -1]
        np.testing.assert_allclose(shown, predictions(model, frame)[:, -1], atol=1e-6)
    both = words.assign(job=words["job"].where(words["age"] > 0, np.nan), ok=OK)
    model = HistGradientBoostingClassifier(**HISTOGRAMS | {"categorical_features": ["job", "grade", "sex"]}).fit(words, OK)
    with pytest.warns(vf.DraftWarning, match="column 'job' has no value"):
        assert vf.Schema.infer(both, target="ok", positive=1, model=model)["job"].missing is None


def test_many_categories_of_histogram_trees_are_those_of_every_word() -> None:
    """More than 32, so that a set takes more than one number, and more than one run of them goes left."""
    frame = pd.DataFrame({"town": pd.Categorical(RNG.integers(0, 80, 2000).astype(str)), "age": RNG.integers(0, 9, 2000)})
    frame["town"] = frame["town"].where(RNG.random(2000) > 0.1)
    y = (frame["town"].cat.codes * 7 % 11 + frame["age"] > 8).astype(int)
    model = HistGradientBoostingClassifier(**HISTOGRAMS).fit(frame, y)
    schema = vf.Schema.infer(frame.assign(y=y), target="y", positive=1, model=model)
    shown = runtime_outputs(vf.read(model), schema.encode(schema.raw(frame)).astype(np.float32))[:, -1]
    np.testing.assert_allclose(shown, predictions(model, frame)[:, -1], atol=1e-6)


def test_sets_of_categories_within_other_estimators_are_refused_in_one_line() -> None:
    trees = MODELS["histograms"]
    passes = make_column_transformer(("passthrough", slice(None)), verbose_feature_names_out=False).set_output(transform="pandas")
    for model, match in (
        (VotingClassifier([("a", trees), ("b", trees)], voting="soft"), "read of it alone, .*; fit it behind an encoder"),
        (StackingRegressor([("a", MODELS["histograms, values"])], cv=2), "read of it alone, .*; fit it behind an encoder"),
        (make_pipeline(passes, trees), "read of a table's columns alone; fit it without steps before it"),
        (CalibratedClassifierCV(trees, ensemble=False, cv=2), r"it decides as its calibrated_classifiers_\[0\].estimator does"),
    ):
        with pytest.raises(ModelError, match=match):
            vf.read(model.fit(PEOPLE, OK), PEOPLE)
    with pytest.raises(ModelError, match="on a table with names, or behind an encoder"):
        vf.read(HistGradientBoostingClassifier(categorical_features=[1]).fit(PEOPLE.assign(job=0, grade=1, sex=2).to_numpy(), OK))


def test_a_module_with_steps_of_its_own_is_no_pipeline() -> None:
    torch = pytest.importorskip("torch")

    class Steps(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.steps = torch.nn.ModuleList([torch.nn.Linear(2, 1)])

        def forward(self, x: Any) -> Any:
            return self.steps[0](x)

    assert missing_categories(Steps()) == {}


def test_trees_of_large_sets_are_converted_in_time() -> None:
    """Of eight splits by sets of ten codes, paths through shared ends are a hundred million; nodes are a few thousand."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 20, (3000, 8))
    frame = pd.DataFrame({f"c{k}": pd.Categorical.from_codes(codes[:, k], [f"v{code}" for code in range(20)]) for k in range(8)})
    good = (rng.normal(size=(8, 20))[np.arange(8), codes].sum(axis=1) > 0).astype(int)
    model = xgboost.XGBClassifier(
        n_estimators=1, max_depth=8, min_child_weight=0, enable_categorical=True, max_cat_to_onehot=1, n_jobs=1,
    ).fit(frame, good)  # fmt: skip
    started = time.process_time()
    nodes = boosting._xgboost(model).graph.node[0]      # onnxruntime 1.24.1 itself follows every path when it loads them
    assert time.process_time() - started < 5
    assert max(len(a.ints) for a in nodes.attribute) < 10_000
