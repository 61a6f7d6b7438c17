"""GroupCounterfactuals: scikit-learn's conventions, groups and audits in every form, and errors that name the remedy in a line."""

import itertools
import pickle
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder

from encoders.arrays import Array
from encoders.network import Network
from solvers.outcome import BackendError
from tests.builders import categorical, integer, network_of, real, schema_of
from verifair.errors import DataError, QueryError, SchemaError, VerifairError
from verifair.schema.schema import Schema
from verifair.systems.arguments import groups_of, positives
from verifair.systems.fgce.decider import positive
from verifair.systems.fgce.estimator import GroupCounterfactuals
from verifair.systems.fgce.settings import FgceSettings

SCHEMA = schema_of(
    integer("age", 0, 8, change="increase"),
    categorical("job", "a", "b", "c"),
    categorical("sex", "F", "M", protected=True),
    real("debt", 0, 4, change="decrease"),
    label="good",
    positive_label="yes",
)
FEATURES = [feature.name for feature in SCHEMA.features]
ROWS = 80


def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "age": rng.integers(0, 9, ROWS), "job": rng.choice(list("abc"), ROWS), "sex": rng.choice(["F", "M"], ROWS),
        "debt": rng.integers(0, 9, ROWS) / 2,
    })
    score = frame["age"] - 2 * frame["debt"] + 2 * (frame["job"] == "a") + rng.normal(size=ROWS)
    return frame.assign(good=np.where(score > 0, "yes", "no"))


def classifier(frame: pd.DataFrame) -> Pipeline:
    encoder = make_column_transformer((OneHotEncoder(), ["job", "sex"]), remainder="passthrough")
    return make_pipeline(encoder, LogisticRegression()).fit(frame[FEATURES], frame["good"])


X = table()
MODEL = classifier(X)


def made(model: Any = MODEL, schema: Schema = SCHEMA, **settings: Any) -> GroupCounterfactuals:
    return GroupCounterfactuals(model, schema, **({"k": 8, "eps": 1.0, "threads": 1} | settings))


def told(fitted: GroupCounterfactuals) -> list[tuple[list[int], list[int], list[int], list[float]]]:
    """What every group answers, whatever it is called."""
    return [
        (group.negatives.tolist(), group.found.chosen.tolist(), group.assigned.tolist(), group.cost.tolist())
        for group in fitted.groups_.values()
    ]


def answer(frame: pd.DataFrame = X, y: Any = None, *, groups: Any = "sex", audit: Any = None, **settings: Any) -> list[Any]:
    return told(made(**settings).fit(frame, y, sensitive_features=groups, audit=audit))


BY_SEX = answer()


class Always:
    """A decider that says the same to everybody."""

    def __init__(self, word: Any, classes: tuple[str, ...] = ()) -> None:
        self.word = word
        if classes:
            self.classes_ = np.array(classes)

    def predict(self, frame: pd.DataFrame) -> Any:
        return np.full(len(frame), self.word)


# Conventions


def test_it_follows_scikit_learn() -> None:
    model = made(k=3, cost="hops")
    assert model.get_params(deep=False) == clone(model).get_params(deep=False)
    assert model.set_params(k=8, cost="l2").k == 8
    with pytest.raises(ValueError, match="Invalid parameter 'kk'"):
        model.set_params(kk=4)
    for asked in (lambda: model.counterfactuals("all"), lambda: model.explanations("all"), model.attribute_changes):
        with pytest.raises(NotFittedError):
            asked()
    assert model.fit(X) is model
    assert not hasattr(clone(model), "groups_")
    assert "GroupCounterfactuals" in repr(model)
    assert told(pickle.loads(pickle.dumps(model))) == told(model)


def test_a_clone_explains_the_same_fitted_model() -> None:
    """sklearn's own clone would give it a copy of the model that is not fitted."""
    model = made()
    other = clone(model)
    assert other.model is MODEL
    assert told(other.fit(X)) == told(model.fit(X))


def test_fitting_again_forgets_what_was() -> None:
    model = made().fit(X, sensitive_features="sex")
    assert list(model.fit(X).groups_) == ["all"]
    assert told(model) == answer(groups=None)


def test_its_tables_agree_with_each_other() -> None:
    model = made().fit(X, sensitive_features="sex")
    assert list(model.attribute_changes().index) == list(model.groups_) == ["sex = F", "sex = M"]
    assert model.attribute_changes()["sex"].tolist() == [0, 0]
    for name, group in model.groups_.items():
        chosen, lines = model.counterfactuals(name), model.explanations(name)
        pd.testing.assert_frame_equal(chosen[FEATURES], X[FEATURES].iloc[chosen["row"]].reset_index(drop=True))
        assert model.positive_[chosen["row"]].all()
        assert not model.positive_[lines["row"]].any()
        assert chosen["serves"].sum() == len(lines) == group.instance.size
        assert sorted([*lines["row"], *group.instance.hopeless]) == group.negatives.tolist()
        for line in chosen.itertuples():
            own = lines[lines["counterfactual"] == line.row]
            assert (len(own), own["cost"].max()) == (line.serves, line[-1])
        assert chosen["largest cost"].max() == lines["cost"].max() == group.found.cost
        before, after = X.iloc[lines["row"]].reset_index(), X.iloc[lines["counterfactual"]].reset_index()
        assert (after["age"] >= before["age"]).all()
        assert (after["debt"] <= before["debt"]).all()
        changed = (after["job"] != before["job"]).mean()
        assert model.attribute_changes().loc[name, "job"] == changed
    with pytest.raises(QueryError, match="there is no group 'sex = X'; known are sex = F, sex = M"):
        model.counterfactuals("sex = X")


def test_other_methods_stand_beside_it() -> None:
    model = made(coverage=0.8, k=3).fit(X, sensitive_features="sex")
    lines = pd.DataFrame(model.compared())
    assert len(lines) == 4 * len(model.groups_)
    for name, group in model.groups_.items():
        own = lines[lines["group"] == name].set_index("method")
        assert set(own.index) == {"AReS", "GLOBE-CE", "FACE", "FGCE"}
        people, instance = len(group.negatives), group.instance
        assert (own["coverage"] <= own["advised"]).all()
        assert own.loc["FACE", "coverage"] == 1 - len(instance.hopeless) / people
        least = np.concatenate([block.cost.min(axis=1) for block in instance.blocks])
        assert own.loc["FACE", "cost"] == pytest.approx(least.mean())
        served = group.cost[group.assigned >= 0]  # the share that was to be covered, as in the group's own table
        assert own.loc["FGCE", "coverage"] == len(served) / people
        assert own.loc["FGCE", "cost"] == pytest.approx(served.mean())
    with pytest.raises(QueryError, match="compared by distance; fit with cost l2"):
        next(made(cost="hops").fit(X).compared())


def test_a_cost_limit_that_nobody_meets_chooses_nobody() -> None:
    for method in ("exact", "greedy"):
        model = made(max_cost=1e-6, method=method).fit(X, sensitive_features="sex")
        assert [group.coverage for group in model.groups_.values()] == [0, 0]
        assert model.counterfactuals("sex = F").empty
        assert (model.explanations("sex = F")["counterfactual"] == -1).all()
        assert model.attribute_changes().isna().all(axis=None)


def test_an_infinite_cost_limit_is_no_limit() -> None:
    """All that k can cover is covered: with k as large as it takes, everybody."""
    for method in ("exact", "greedy"):
        model = made(max_cost=np.inf, method=method).fit(X, sensitive_features="sex")
        assert [group.coverage for group in model.groups_.values()] == [1, 1]
    few = made(max_cost=np.inf, k=1).fit(X, sensitive_features="sex")
    for group in few.groups_.values():
        assert 0 < group.coverage < 1
        assert group.found.covered == (group.assigned >= 0).sum() == group.found.bound


@pytest.mark.parametrize("method", ["components", "mip"])
def test_methods_agree(method: str) -> None:
    for settings in ({}, {"coverage": 0.7, "k": 3}, {"cost": "hops"}, {"cost": "path"}):
        one, other = (made(method=each, **settings).fit(X, sensitive_features="sex") for each in ("exact", method))
        for name in one.groups_:
            assert one.groups_[name].found.cost == other.groups_[name].found.cost


# Groups


@pytest.mark.parametrize("groups", [
    X["sex"], X["sex"].to_numpy(), X["sex"].tolist(), tuple(X["sex"]), ["sex"], X[["sex"]], X["sex"].astype("category"),
    X["sex"] == "M", (X["sex"] == "M").astype(float), X["sex"].set_axis(np.arange(ROWS) + ROWS), X[["sex"]].set_axis([0], axis=1),
])
def test_a_group_may_be_given_in_many_ways(groups: Any) -> None:
    assert answer(groups=groups) == BY_SEX


def test_groups_are_named_by_column_and_value() -> None:
    assert list(groups_of(X, "sex")) == list(groups_of(X, X["sex"])) == ["sex = F", "sex = M"]
    assert list(groups_of(X, X["sex"].tolist())) == ["group = F", "group = M"]
    assert list(groups_of(X, (X["sex"] == "M").astype(float).to_numpy())) == ["group = 0", "group = 1"]
    assert list(groups_of(X, None)) == ["all"]
    like = pd.DataFrame({"sex": ["F, job = a", "F"], "job": ["b", "a, job = b"]})
    with pytest.raises(DataError, match="two groups would both be called 'sex = F, job = a, job = b'; give their values other"):
        groups_of(like, ["sex", "job"])
    both = groups_of(X, ["sex", "job"])
    assert list(both) == [f"sex = {sex}, job = {job}" for sex in "FM" for job in "abc"]
    assert np.array_equal(both["sex = M, job = b"], (X["sex"] == "M") & (X["job"] == "b"))
    assert np.array_equal(np.sum(list(both.values()), axis=0), np.ones(ROWS))


@pytest.mark.parametrize("index", [np.zeros(ROWS, dtype=int), np.arange(ROWS)[::-1], [f"row {n}" for n in range(ROWS)]])
def test_the_index_of_the_table_does_not_matter(index: Any) -> None:
    frame = X.set_index(pd.Index(index))
    assert answer(frame) == BY_SEX
    assert answer(frame, groups=["sex", "job"]) == answer(groups=["sex", "job"])
    assert answer(frame, groups=X["sex"].to_numpy(), audit=np.ones(ROWS, dtype=bool)) == BY_SEX
    assert answer(frame.astype({"sex": "category", "job": "category"})) == BY_SEX


@pytest.mark.parametrize("what", ["y", "sensitive_features", "audit"])
def test_values_in_another_order_than_the_table_are_refused(what: str) -> None:
    """They are taken by place, as in scikit-learn: sorted, they would belong to other rows."""
    values = {"y": X["good"], "sensitive_features": X["sex"], "audit": X["age"] > 3}[what].sort_values()
    given = {"sensitive_features": "sex"} | {what: values}
    with pytest.raises(DataError, match=rf"{what}: has the table's rows in another order"):
        made().fit(X, **given)
    assert told(made().fit(X, **given | {what: values.loc[X.index]}))


def test_groups_that_cannot_be_formed() -> None:
    holes = X.assign(region=X["job"].mask(X.index == 3))
    wrong: dict[str, Any] = {
        "sensitive feature 'sx': the table has no such column; did you mean 'sex'?": "sx",
        "sensitive feature 'x': the table has no such column": ["sex", "x"],
        r"sensitive_features: found an array of shape \(5,\) for 80 rows": X["sex"][:5],
        r"sensitive_features: found an array of shape \(80, 2\) for 80 rows": X[["sex", "job"]].to_numpy(),
        "sensitive_features: found a table of 5 x 1 for 80 rows": X[["sex"]][:5],
        "sensitive_features: an empty list; name a column, or leave it out": [],
        "sensitive features: 1 row has no value, first row 3; drop them, or fill the value in": holes["region"],
        "sensitive features: 2 rows have no value, first row 0": np.where(X.index < 2, np.nan, 1.0),
    }
    for message, groups in wrong.items():
        with pytest.raises(DataError, match=message):
            answer(groups=groups)
    for groups in ("region", ["sex", "region"]):
        with pytest.raises(DataError, match="1 row has no value"):
            answer(holes, groups=groups)


# Who is explained


def test_only_those_audited_are_explained() -> None:
    even = np.arange(ROWS) % 2 == 0
    wanted = [[node for node in negatives if node % 2 == 0] for negatives, *_ in BY_SEX]
    for audit in (even, even.astype(int), even.tolist(), pd.Series(even, index=np.arange(ROWS) + ROWS)):
        assert [negatives for negatives, *_ in answer(audit=audit)] == wanted
    for audit in (np.arange(ROWS), np.full(ROWS, np.nan), np.full(ROWS, "no")):
        with pytest.raises(DataError, match="audit: expected True or False for each row"):
            answer(audit=audit)
    with pytest.raises(DataError, match=r"audit: found an array of shape \(5,\) for 80 rows; expected one value for each row"):
        answer(audit=np.arange(5))


def test_true_classes_may_be_words_or_numbers() -> None:
    """False negatives are those whom the model refuses and the data does not."""
    wrong = MODEL.predict(X[FEATURES]) != X["good"]
    truth = X["good"] == "yes"
    expected = [np.flatnonzero(wrong & truth & (X["sex"] == sex)).tolist() for sex in "FM"]
    assert min(map(len, expected)) > 0
    forms = (None, X["good"], X["good"].to_numpy(), truth, truth.astype(int), truth.astype(float), X["good"].astype("category"))
    for y in forms:
        assert [negatives for negatives, *_ in answer(y=y, factuals="false-negatives")] == expected
    assert [n for n, *_ in answer(X[FEATURES], X["good"].tolist(), factuals="false-negatives")] == expected


def test_true_classes_that_are_not_clear() -> None:
    def asked(y: Any, schema: Schema = SCHEMA, frame: pd.DataFrame = X) -> None:
        made(schema=schema, factuals="false-negatives").fit(frame, y)

    with pytest.raises(DataError, match="y: 1 of 80 values are missing, first at place 3; drop such rows"):
        asked(np.where(np.arange(ROWS) == 3, np.nan, 1.0))
    with pytest.raises(DataError, match="y: 1 of 80 values are missing, first at place 3"):
        asked(X["good"].mask(X.index == 3))
    with pytest.raises(DataError, match=r"no row holds positive_label = 'yes'; found maybe, no"):
        asked(X["good"].replace("yes", "maybe"))
    with pytest.raises(DataError, match=r"y: found an array of shape \(2,\) for 80 rows"):
        asked([1, 0])
    with pytest.raises(DataError, match="label: the table has no column 'good'"):
        asked(None, frame=X[FEATURES])
    with pytest.raises(SchemaError, match="the schema names no label column"):
        asked(None, SCHEMA.model_copy(update={"label": None}))
    zero = SCHEMA.model_copy(update={"positive_label": "0"})
    model = Always(0, ("0", "1"))
    with pytest.raises(DataError, match='y: holds 0 and 1, and in the schema the label "0" is positive; pass booleans, True for'):
        GroupCounterfactuals(model, zero, factuals="false-negatives").fit(X, np.arange(ROWS) % 2)
    for rule in ("class = 0", "logit <= 0", "class = 2", "class in [0, 1]", "class = approved"):
        first = SCHEMA.model_copy(update={"positive_label": None, "positive": rule})
        with pytest.raises(DataError, match=f'y: holds 0 and 1, and in the schema "{re.escape(rule)}" is positive; pass'):
            positives(np.arange(ROWS) % 2, first, ROWS)


def test_true_classes_beyond_the_models_are_refused() -> None:
    """1 would count as favourable, and 2 as the other class."""
    model, schema = network_of(([[1.0, 0.0, 0.0, -2.0]], None)), SCHEMA.changed(positive_label=None)
    fitted, frame = made(model, schema, factuals="false-negatives"), X.assign(good=np.where(X["good"] == "yes", 1, 2))
    for y in (None, frame["good"]):
        with pytest.raises(DataError, match="holds 1, 2, not class numbers 0 and 1; name the positive value"):
            fitted.fit(frame, y)


def test_groups_that_have_nobody_to_explain_or_to_follow() -> None:
    for model in (Always("yes"), Always("yes", ("no", "yes"))):
        with pytest.raises(DataError, match="sex = F: nobody in it is to be explained: none of its 37 rows has"):
            answer(model=model)
    with pytest.raises(DataError, match=r"or all of these are left out; choose other groups or rows$"):
        answer(model=Always("yes"), empty="skip")
    with pytest.raises(DataError, match="sex = F: there is no row with the positive decision, so there can be no counterfactual"):
        answer(model=Always("no", ("no", "yes")))
    with pytest.raises(DataError, match=r"sex = F: none of its 13 rows has a feasible counterfactual .* 1e-09: .* raise eps"):
        answer(eps=1e-9)
    with pytest.raises(DataError, match="sex = F: nobody in it is to be explained"):
        answer(audit=X["sex"] == "M")
    some = made(empty="skip").fit(X, sensitive_features="sex", audit=X["sex"] == "M")
    assert (list(some.groups_), list(some.skipped_)) == (["sex = M"], ["sex = F"])
    assert some.stranded_ == {}


def test_groups_without_any_way_are_counted_apart() -> None:
    """Nobody of the group can be reached from: it is left out like one without anybody to explain, but that is a finding."""
    lost = [
        node
        for group in made(eps=0.3).fit(X, sensitive_features="sex").groups_.values()
        for node in sorted(set(group.negatives.tolist()) - set(group.instance.factuals.tolist()))
    ]
    assert lost
    groups = np.where(np.isin(np.arange(ROWS), lost), "lost", "others")
    with pytest.raises(DataError, match="lost: none of its"):
        made(eps=0.3).fit(X, sensitive_features=groups)
    some = made(eps=0.3, empty="skip").fit(X, sensitive_features=groups)
    (left,) = some.stranded_.items()
    assert left[1] == len(lost)
    assert left[0] in some.skipped_
    assert left[0] not in some.groups_


# Models


class Linear:
    """The same decisions as `network`, by way of predict and the schema's words."""

    def predict(self, frame: pd.DataFrame) -> Array:
        return np.asarray(score(frame) > 0).astype(int)


NUMBERS = schema_of(
    integer("age", 0, 8),
    categorical("sex", "F", "M"),
    real("debt", 0, 4),
)


def score(frame: pd.DataFrame) -> Array:
    return np.asarray(frame["age"] - 2 * frame["debt"] + (frame["sex"] == "M"))


def network() -> Network:
    return network_of(([[1.0, 1.0, -2.0]], None))


def test_a_network_and_an_estimator_that_decide_alike_are_explained_alike() -> None:
    """Many rows lie exactly on the border, where the network's logit is 0: class 0."""
    assert (score(X) == 0).sum() > 2
    assert answer(model=network(), schema=NUMBERS) == answer(model=Linear(), schema=NUMBERS)
    assert answer(model=network(), schema=NUMBERS, cost="path") == answer(model=Linear(), schema=NUMBERS, cost="path")
    raw = NUMBERS.raw(X)
    assert np.array_equal(positive(network(), NUMBERS, raw), score(X) > 0)


def test_a_model_sees_the_schemas_words() -> None:
    seen: list[pd.DataFrame] = []

    class Looks(Always):
        def predict(self, frame: pd.DataFrame) -> Any:
            seen.append(frame)
            return np.where(frame["age"] > 3, "yes", "no")

    answer(model=Looks(""))
    pd.testing.assert_frame_equal(seen[0], X[FEATURES], check_dtype=False)
    assert seen[0]["age"].dtype.kind == "i"


@pytest.mark.parametrize(
    ("rule", "labels", "favourable"),
    [
        ("class = 0", (0, 1), {0}), ("class = 1", (0, 1), {1}), ("logit > 0", (0, 1), {1}), ("logit <= 0", (0, 1), {0}),
        ("class = approved", ("approved", "denied"), {"approved"}), ("class = denied", ("approved", "denied"), {"denied"}),
        ("class = 2", (0, 1, 2), {2}), ("class = high", ("high", "low", "middle"), {"high"}),
        ("class in [high, middle]", ("high", "low", "middle"), {"high", "middle"}),
    ],
)
@pytest.mark.parametrize("listed", [True, False])
def test_an_estimators_favourable_class_is_the_schemas(rule: str, labels: tuple[Any, ...], favourable: Any, listed: bool) -> None:
    """listed: the estimator has `classes_`; without, the first row meets the last class."""
    class ByAge(Always):
        def predict(self, frame: pd.DataFrame) -> Any:
            return np.array(labels)[::-1][frame["age"] % len(labels)]

    schema = schema_of(integer("age", 0, 8), categorical("sex", "F", "M"), positive=rule)
    raw = np.column_stack([np.arange(9.0), np.zeros(9)])
    decided = positive(ByAge("", labels if listed else ()), schema, raw)
    assert decided.tolist() == [labels[::-1][k % len(labels)] in favourable for k in range(9)]


@pytest.mark.parametrize(("labels", "more", "favourable"), [
    (("no", "yes"), {}, None), (("a", "b", "c"), {}, None), ((-1, 1), {}, None), ((0, 300_000), {}, None),
    (("no", "yes"), {"positive": "class >= no"}, None), (("NO", "YES"), {"classes": ["no", "yes"]}, None),
    (("no", "yes"), {"classes": ["yes", "no"]}, "no"), (("no", "yes"), {"positive": "class = yes"}, "yes"),
    (("no", "yes"), {"positive_label": "yes", "label": "good"}, "yes"), ((False, True), {}, True),
])
def test_words_without_an_order_have_no_numbers(labels: tuple[Any, ...], more: dict[str, Any], favourable: Any) -> None:
    """A table may lack rows of some class, so the words that its rows meet, sorted, say nothing about class 1."""
    class ByAge(Always):
        def predict(self, frame: pd.DataFrame) -> Any:
            return np.array(labels)[frame["age"]]

    schema = schema_of(integer("age", 0, 8), categorical("sex", "F", "M"), **{"positive": "class = 1", **more})
    asked = ByAge(""), schema, np.array([[0.0, 0], [len(labels) - 1.0, 0]])
    if favourable is None:
        with pytest.raises(QueryError, match="and has no classes_: which of these is positive = "):
            positive(*asked)
    else:
        assert positive(*asked).tolist() == [word == favourable for word in labels]


def test_a_favourable_class_may_be_named_without_its_label() -> None:
    named = SCHEMA.model_copy(update={"positive_label": None, "positive": "class = yes"})
    assert answer(schema=named) == BY_SEX


@pytest.mark.parametrize(("package", "name"), [("lightgbm", "LGBMClassifier"), ("xgboost", "XGBClassifier")])
def test_pandas_categories_reach_a_model_that_was_fitted_on_them(package: str, name: str) -> None:
    """These take columns of type `category` alone; an empty cell stays empty."""
    module: Any = pytest.importorskip(package)
    options = {"xgboost": {"enable_categorical": True}, "lightgbm": {"verbose": -1, "min_child_samples": 3, "n_jobs": 1}}[package]
    frame = X[FEATURES].assign(job=X["job"].mask(X["job"] == "b").astype("category"), sex=X["sex"].astype("category"))
    model = getattr(module, name)(n_estimators=5, **options).fit(frame, (X["good"] == "yes").astype(int))
    schema = SCHEMA.changed(
        features=[f.model_copy(update={"missing": "b"}) if f.name == "job" else f for f in SCHEMA.features], positive_label="1"
    )
    fitted = made(model, schema, too_few="most").fit(frame, sensitive_features="sex")
    assert fitted.positive_.tolist() == (model.predict(frame) == 1).tolist()
    assert set(fitted.groups_) == {"sex = F", "sex = M"}


def test_models_that_cannot_decide() -> None:
    class TwoColumns:
        def predict(self, frame: pd.DataFrame) -> Any:
            return np.zeros((len(frame), 2))

    wrong: dict[str, Any] = {
        r"model: found int; expected the path of an \.onnx file, its bytes, .* or a torch\.nn\.Module": 3,
        "model: this LogisticRegression is not fitted yet; fit it before it is explained": LogisticRegression(),
        r"model: predict fails on a table of the schema's columns \(age, job, sex, debt\): .*; pass a pipeline that takes them as":
            LogisticRegression().fit(X[["age"]], X["good"]),
        r"model: predict gave an array of shape \(80, 2\) for 80 rows; expected a class for each": TwoColumns(),
        "model: predict gave no class for 80 of 80 rows; expected one for each": Always(np.nan),
        r"model: decides False, True, and none of these is the schema's positive label 'yes'; set positive_label in":
            Always(True, ("False", "True")),
    }
    for message, model in wrong.items():
        with pytest.raises(QueryError, match=message):
            answer(model=model)
    unsaid = SCHEMA.model_copy(update={"positive_label": None})  # of 1 and 2, "1" is one's place, the other's name
    with pytest.raises(QueryError, match="model: decides 1, 2, and the schema does not say which of these is favourable; set"):
        answer(model=Always(2, ("1", "2")), schema=unsaid)
    with pytest.raises(QueryError, match="model: decides 1, and the schema does not say which of these is favourable"):
        answer(model=Always(1, ("1",)), schema=unsaid)
    with pytest.raises(SchemaError, match=r"the schema describes 4 input columns .* but the network takes 3"):
        answer(model=network())


# Settings


def test_defaults_are_those_of_the_settings() -> None:
    stated, own = FgceSettings(), GroupCounterfactuals(MODEL, SCHEMA).get_params(deep=False)
    shared = set(own) & set(FgceSettings.model_fields)
    assert len(shared) == 14
    assert {name: own[name] for name in shared - {"changes"}} == {name: getattr(stated, name) for name in shared - {"changes"}}


@pytest.mark.parametrize(("message", "settings"), [
    ("weighting = 'literal': belongs to cost = 'path'; pass that", {"weighting": "literal"}),
    ("solver = 'scip': belongs to method = 'mip'; pass that, or leave solver out", {"solver": "scip"}),
    ("bandwidth: expected a positive number, .*, found '0.5'", {"cost": "path", "bandwidth": "0.5"}),
    ("k = 0, expected a whole number from 1 to 1048576, such as 5", {"k": 0}),
    ("k = 1048577, expected a whole number from 1 to 1048576, such as 5", {"k": 2**20 + 1}),
    ("eps: Input should be a finite number, found inf", {"eps": np.inf}),
    ("k: Input should be a valid integer, found 2.5", {"k": 2.5}),
    ("k: Input should be a valid integer, found '3'", {"k": "3"}),
    ("k: Input should be a valid integer, found True", {"k": True}),
    ("coverage = 0, expected a number above 0 and at most 1, such as 1", {"coverage": 0}),
    ("coverage = 1.5, expected a number above 0 and at most 1, such as 1", {"coverage": 1.5}),
    ("coverage = nan, expected a number above 0 and at most 1", {"coverage": np.nan}),
    ("coverage: Input should be a valid number, found 'all'", {"coverage": "all"}),
    ("eps = 0, expected a number above 0", {"eps": 0}),
    ("eps: Input should be a finite number, found nan", {"eps": np.nan}),
    ("eps: Input should be a valid number, found 'a'", {"eps": "a"}),
    ("max_cost = 0, expected a number above 0", {"max_cost": 0}),
    ("max_cost = nan, expected a number above 0", {"max_cost": np.nan}),
    ("max_cost: Input should be a valid number, found '1'", {"max_cost": "1"}),
    ("seconds = 0, threads = 1: expected some of both", {"seconds": 0}),
    ("seconds = nan, threads = 1: expected some of both", {"seconds": np.nan}),
    ("threads = 0: expected some of both", {"threads": 0}),
    ("cost: Input should be 'l2', 'path' or 'hops', found 'l3'", {"cost": "l3"}),
    ("weighting: Input should be 'inverse', 'negative-log', 'literal' or 'length', found 'log'", {"weighting": "log"}),
    ("bandwidth: expected a positive number, or one of scott, cross-validated, found 'x'", {"cost": "path", "bandwidth": "x"}),
    ("bandwidth = 1e-200: expected a positive number", {"cost": "path", "bandwidth": 1e-200}),
    ("method: Input should be 'exact', 'components', 'mip' or 'greedy', found 'magic'", {"method": "magic"}),
    ("method greedy covers the most at a cost limit; pass max_cost .--max-cost., or use method exact", {"method": "greedy"}),
    ("method mip minimises cost; with a cost limit use exact or greedy", {"method": "mip", "max_cost": 1.0}),
    ("factuals: Input should be 'negatives' or 'false-negatives', found 'all'", {"factuals": "all"}),
    ("empty: Input should be 'error' or 'skip', found 'drop'", {"empty": "drop"}),
    ("there is no feature 'agee' in the schema; did you mean 'age'?", {"changes": {"agee": "fixed"}}),
    ("feature 'age': change = 'up'; use one of increase, decrease, fixed, free", {"changes": {"age": "up"}}),
    ("changes: found list; expected the change of each feature by its name", {"changes": ["age"]}),
    ("custom: found int; expected a function", {"custom": 3}),
    ("custom: answered [0-9]+ moves by an array of shape", {"custom": lambda before, after: None}),
])
def test_settings_that_make_no_sense(message: str, settings: dict[str, Any]) -> None:
    with pytest.raises(VerifairError, match=message) as caught:
        answer(**settings)
    assert "\n" not in str(caught.value)


def test_tables_that_are_none() -> None:
    with pytest.raises(DataError, match="X: found ndarray; expected a DataFrame with the schema's columns"):
        made().fit(X.to_numpy())
    for eps in (None, 1.0):
        with pytest.raises(DataError, match="X: the table has no rows"):
            made(eps=eps).fit(X[:0])
    with pytest.raises(DataError, match="feature 'age': the table has no column 'age'"):
        made().fit(X.drop(columns="age"))


def test_too_few_counterfactuals_are_told_of_every_group_with_those_that_would_do() -> None:
    for method in ("exact", "components"):
        with pytest.raises(QueryError) as caught:
            answer(k=1, method=method)
        assert str(caught.value).splitlines() == [
            "sex = F: k = 1 is too few to cover all 13 people who can be helped: they are in 3 parts of the table with no allowed "
            'moves between them; 3 counterfactuals are needed: pass k = 3, or a coverage below 1, or too_few = "most" '
            "(--too-few most), which covers as many as 1 can",
            "sex = M: k = 1 is too few to cover all 19 people who can be helped: they are in 3 parts of the table with no allowed "
            'moves between them; 4 counterfactuals are needed: pass k = 4, or a coverage below 1, or too_few = "most" '
            "(--too-few most), which covers as many as 1 can",
        ]
    assert [len(chosen) for _, chosen, *_ in answer(k=4)] == [4, 4]


@pytest.mark.parametrize("method", ["exact", "components", "mip"])
def test_where_k_is_too_few_as_many_are_covered_as_k_can(method: str) -> None:
    """By brute force over all choices: none covers more, and none that covers as many has a lower largest cost."""
    fitted = made(k=2, too_few="most", method=method).fit(X, sensitive_features="sex")
    for group, everybody in zip(fitted.groups_.values(), (3, 4), strict=True):
        assert group.short is not None
        assert (group.short.asked, group.short.needed) == (group.instance.size, everybody)
        costs, best = group.instance.costs(), (0, 0.0)
        for pair in itertools.combinations(range(costs.shape[1]), 2):
            paid = costs[:, pair].min(axis=1)
            reached = paid[np.isfinite(paid)]
            best = max(best, (len(reached), -float(reached.max())))
        assert (int((group.assigned >= 0).sum()), -float(group.found.cost)) == best
    kept = made(k=3, too_few="most", method=method).fit(X, sensitive_features="sex")
    assert [group.short is None for group in kept.groups_.values()] == [True, False]
    if method != "mip":
        assert fitted.prove_optima() == "k is too few for the coverage that was asked for, in every group"
        optima = kept.prove_optima()
        assert not isinstance(optima, str)
        assert list(optima.groups) == list(optima.query.asked) == ["sex = F"]


def test_hardly_any_time() -> None:
    """Exact keeps what it has and says that it is no optimum; the others say that there is no answer."""
    model = made(seconds=1e-9).fit(X, sensitive_features="sex")
    for name, group in made().fit(X, sensitive_features="sex").groups_.items():
        found = model.groups_[name].found
        assert found.lower <= group.found.cost <= found.cost
    for method in ("components", "mip"):
        with pytest.raises(QueryError, match="method exact"):
            answer(seconds=1e-9, method=method)
    with pytest.raises(BackendError, match="no solver is called 'simplex'; known are highs"):
        answer(method="mip", solver="simplex")


def test_when_every_row_has_a_twin_an_eps_is_asked_for() -> None:
    with pytest.raises(DataError, match=r"identical twin.*pass an eps"):
        made(eps=None).fit(pd.concat([X, X], ignore_index=True), sensitive_features="sex")
