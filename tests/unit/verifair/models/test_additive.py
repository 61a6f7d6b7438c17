"""Scorecards and explainable boosting: read as tree ensembles that decide as the object does, also on the edges of bins."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    KBinsDiscretizer,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
    TargetEncoder,
)

import verifair as vf
from encoders.arrays import Array
from encoders.errors import ModelError
from encoders.onnx.runtime import runtime_outputs
from encoders.trees.ensemble import TreeEnsemble
from tests.builders import integer, one_hot, schema_of
from tests.draws import draws
from verifair.models.compare import predictions
from verifair.models.converters.additive import TableAxis, table

RNG = np.random.default_rng(0)
X = pd.DataFrame({
    "amount": RNG.lognormal(8, 1, 400), "months": RNG.integers(4, 60, 400).astype(float), "age": RNG.normal(size=400),
    "sex": RNG.choice(["f", "m"], 400), "job": RNG.choice(["a", "b", "c", "d"], 400),
})  # fmt: skip
SCORE = (X["amount"] > 3000) + (X["months"] > 20) + (X["job"] == "a") + RNG.normal(size=400)
NUMBERS, WORDS = ["amount", "months", "age"], ["sex", "job"]


def bins(n: int = 4, **options: Any) -> Any:
    return KBinsDiscretizer(n, subsample=None, **{"encode": "onehot-dense", "strategy": "uniform", **options})


CARDS: dict[str, Any] = {
    "quantiles": lambda: make_column_transformer((bins(strategy="quantile"), NUMBERS), (OneHotEncoder(), WORDS)),
    "sparse": lambda: make_column_transformer((OneHotEncoder(drop="first"), WORDS), (bins(6, encode="onehot"), NUMBERS)),
    "places": lambda: make_column_transformer((bins(encode="ordinal"), NUMBERS), (OneHotEncoder(drop="if_binary"), WORDS)),
    "some columns": lambda: make_column_transformer((bins([2, 9]), ["months", "amount"]), ("drop", ["age"])),
    "limits": lambda: make_column_transformer(
        (Binarizer(threshold=0.1), ["age"]), (bins(3), ["months"]), (OrdinalEncoder(), WORDS)),
    "imputed": lambda: make_column_transformer(
        (make_pipeline(SimpleImputer(), bins()), NUMBERS), (OneHotEncoder(), WORDS)),
    "means": lambda: make_column_transformer((bins(), NUMBERS), (TargetEncoder(), WORDS)),
    "rare": lambda: make_column_transformer((bins(2), NUMBERS), (OneHotEncoder(min_frequency=99, handle_unknown="ignore"), WORDS)),
}  # fmt: skip
LASTS: dict[str, tuple[Any, Any]] = {
    "two classes": (LogisticRegression, np.where(SCORE > 1.5, "good", "bad")),
    "discriminant": (LinearDiscriminantAnalysis, (SCORE > 1.5).astype(int)),
    "three classes": (LogisticRegression, np.digitize(SCORE, [1, 2])),
    "values": (Ridge, SCORE),
}


def on_edges(model: Any, frame: pd.DataFrame) -> pd.DataFrame:
    """Rows whose numbers lie on the edges of bins (rounded to float32), and next to them."""
    frame = frame.copy()
    for name in NUMBERS:
        limits = np.concatenate([np.linspace(frame[name].min(), frame[name].max(), n + 1) for n in range(2, 10)]).astype(np.float32)
        at = RNG.choice(limits, size=len(frame))
        frame[name] = np.choose(RNG.integers(0, 3, len(frame)), [at, np.nextafter(at, -np.inf), np.nextafter(at, np.inf)])
    return frame


def entered(model: TreeEnsemble, frame: pd.DataFrame) -> Array:
    """The model's columns (N, n) of a table."""
    x = np.zeros((len(frame), model.inputs))
    for feed in model.feeds:
        known = feed.categories.get(0)
        if known is None:
            x[:, feed.start[0]] = frame[feed.name]
        else:
            x[np.arange(len(x)), feed.start[0] + pd.Index(known).get_indexer(pd.Index(frame[feed.name]))] = 1.0
    return x


@pytest.mark.filterwarnings("error::verifair.ImportDifference")
@pytest.mark.parametrize("last", LASTS)
@pytest.mark.parametrize("card", CARDS)
def test_a_scorecard_is_read_and_says_what_the_object_says(card: str, last: str) -> None:
    if (card, last) in (("means", "three classes"), ("sparse", "discriminant")):
        pytest.skip("means of three classes are not read, and a discriminant analysis takes no sparse matrix")
    kind, y = LASTS[last]
    model = make_pipeline(CARDS[card](), kind()).fit(X, y)
    read = vf.read(model, X.astype(dict.fromkeys(NUMBERS, np.float32)))
    assert isinstance(read, TreeEnsemble)
    rows = on_edges(model, X)
    shown, own = runtime_outputs(read, entered(read, rows).astype(np.float32)), predictions(model, rows)
    np.testing.assert_allclose(shown, own[:, -shown.shape[1] :], atol=1e-5)


def test_of_plain_matrices() -> None:
    for before in ((bins(),), (StandardScaler(), bins()), (Binarizer(threshold=20),)):
        model = make_pipeline(*before, LogisticRegression()).fit(X[NUMBERS].to_numpy(), SCORE > 1.5)
        read = vf.read(model)
        assert isinstance(read, TreeEnsemble)
        assert len(read.root) == 3


def test_a_number_on_an_edge_belongs_to_the_bin_above_it() -> None:
    """The edge 0.3 is no float32 number: the nearest one is above it, and the one below that is in the bin below."""
    model = make_pipeline(bins(2), LogisticRegression()).fit(np.array([[0.0], [0.6], [0.1], [0.5]]), [0, 1, 0, 1])
    (edge,) = model[0].bin_edges_[0][1:-1]
    read = vf.read(model)
    assert isinstance(read, TreeEnsemble)
    above = float(np.float32(edge))
    below = float(np.nextafter(np.float32(edge), np.float32(0)))
    assert Fraction(below) < Fraction(edge) < Fraction(above)
    assert (read.forward(np.array([[below], [above]]))[:, 0] > 0).tolist() == model.predict(np.array([[below], [above]])).tolist()
    assert model.predict(np.array([[below], [above]])).tolist() == [0, 1]


@pytest.mark.parametrize("before", [
    make_column_transformer((bins(), ["amount"]), (StandardScaler(), ["age"])),
    make_column_transformer((bins(), ["amount"]), ("passthrough", ["age"])),
    make_column_transformer((bins(), ["amount"]), remainder="passthrough"),
])  # fmt: skip
def test_numbers_beside_bins_are_refused(before: Any) -> None:
    model = make_pipeline(before, LogisticRegression()).fit(X[NUMBERS], SCORE > 1.5)
    with pytest.raises(ModelError, match=r"KBinsDiscretizer: makes steps .* columns that are all binned or encoded") as told:
        vf.read(model, X)
    assert len(str(told.value)) < 200


def boosted(kind: str = "Classifier", **options: Any) -> Any:
    """An explainable boosting machine."""
    glassbox = pytest.importorskip("interpret.glassbox")
    return getattr(glassbox, f"ExplainableBoosting{kind}")(outer_bags=2, n_jobs=1, random_state=0, **options)


def test_one_binned_column_is_read() -> None:
    model = make_pipeline(make_column_transformer((bins(), ["months"])), LogisticRegression()).fit(X, SCORE > 1.5)
    assert vf.read(model, X).inputs == 1


def test_columns_that_are_chosen_by_a_mask_are_refused() -> None:
    """The conversion takes true and false for the places 1 and 0, and reads other columns."""
    for step in (bins(), StandardScaler()):
        model = make_pipeline(make_column_transformer((step, [False, True, True])), LogisticRegression())
        with pytest.raises(ModelError, match=r"chooses columns by a mask \(.*\), .* takes for places; list their names"):
            vf.read(model.fit(X[NUMBERS].to_numpy(), SCORE > 1.5))


def test_another_model_in_place_of_a_scorecard_is_refused() -> None:
    """Bins are exact on float32 rows, so that a few rows which differ are no matter of rounding."""
    model = make_pipeline(bins(), LogisticRegression()).fit(X[NUMBERS], SCORE > 1.5)
    own = model.predict_proba
    model.predict_proba = lambda rows: own(rows) ** np.where(rows[["age"]] > 1, 2, 1)
    with pytest.raises(ModelError, match="does not reproduce it"):
        vf.read(model, X.astype(dict.fromkeys(NUMBERS, np.float32)))


def test_a_calibrated_scorecard_is_refused_with_the_rule_that_decides_alike() -> None:
    model = CalibratedClassifierCV(make_pipeline(bins(), LogisticRegression()), ensemble=False, cv=3).fit(X[NUMBERS], SCORE > 1.5)
    with pytest.raises(ModelError, match=r'calibrates probabilities .* by positive = "logit > -?[0-9.]+"'):
        vf.read(model, X)
    model = CalibratedClassifierCV(make_pipeline(bins(), LogisticRegression()), cv=3).fit(X[NUMBERS], SCORE > 1.5)
    with pytest.raises(ModelError, match=r"calibrates probabilities in a way that is not read; fit it with ensemble=False"):
        vf.read(model, X)


EXPLAINED: dict[str, tuple[Callable[[], Any], Any]] = {
    "two classes": (lambda: boosted(interactions=4), np.where(SCORE > 1.5, "good", "bad")),
    "of three columns": (
        lambda: boosted(interactions=[(0, 3), (1, 2, 4), (3, 4)], max_interaction_bins=12), (SCORE > 1.5).astype(int)
    ),
    "three classes": (lambda: boosted(interactions=0), np.digitize(SCORE, [1, 2])),
    "values": (lambda: boosted("Regressor", interactions=3), SCORE),
}


@pytest.mark.filterwarnings("error::verifair.ImportDifference")
@pytest.mark.parametrize("name", EXPLAINED)
def test_explainable_boosting_is_read_and_says_what_the_object_says(name: str) -> None:
    make, y = EXPLAINED[name]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Interactions with 3 or more terms are not graphed")
        model = make().fit(X, y)
    read = vf.read(model, X.astype(dict.fromkeys(NUMBERS, np.float32)))
    assert isinstance(read, TreeEnsemble)
    assert len(read.root) == len(model.term_names_)
    rows = X.copy()
    for name, bins in zip(NUMBERS, model.bins_, strict=False):
        at = RNG.choice(bins[0].astype(np.float32), size=len(rows))
        rows[name] = np.choose(RNG.integers(0, 3, len(rows)), [at, np.nextafter(at, -np.inf), np.nextafter(at, np.inf)])
    shown, own = runtime_outputs(read, entered(read, rows).astype(np.float32)), predictions(model, rows)
    np.testing.assert_allclose(shown, own[:, -shown.shape[1] :], atol=2e-5)


def test_explainable_boosting_of_other_columns() -> None:
    """Numbers alone, also behind a scaler and without names; categories that are whole numbers; truth values."""
    y = (SCORE > 1.5).astype(int)
    frame = X[NUMBERS].assign(kind=pd.Categorical(RNG.choice([7, 8, 12], len(X))), member=SCORE > 1)
    for model, rows in (
        (boosted(interactions=1).fit(X[NUMBERS].to_numpy(), y), None),
        (make_pipeline(StandardScaler(), boosted(interactions=0)).fit(X[NUMBERS], y), X[NUMBERS].astype(np.float32)),
        (boosted(interactions=2).fit(frame, y), frame.astype(dict.fromkeys(NUMBERS, np.float32))),
    ):
        read = vf.read(model, rows)
        assert isinstance(read, TreeEnsemble)
    assert {feed.name: feed.kind for feed in read.feeds} == dict.fromkeys([*NUMBERS, "member"], "float32") | {"kind": "int64"}


def test_explainable_boosting_without_some_columns() -> None:
    model = boosted(interactions=0, exclude=["amount", "job"]).fit(X, SCORE > 1.5)
    assert {feed.name for feed in vf.read(model, X.astype(dict.fromkeys(NUMBERS, np.float32))).feeds} == {"months", "age", "sex"}
    model.remove_terms(list(model.term_names_))
    with pytest.raises(ModelError, match="has no term, and says the same of everybody"):
        vf.read(model, X)


def test_explainable_boosting_that_learned_scores_of_missing_values_says_so() -> None:
    frame = X[NUMBERS].astype(np.float32)
    frame.loc[frame.index[:40], "age"] = np.nan
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Missing values detected")
        model = boosted(interactions=0).fit(frame, SCORE > 1.5)
    with pytest.warns(vf.ImportDifference, match="has learned scores for missing values, the converted model does not"):
        vf.read(model, frame)


@pytest.mark.filterwarnings("error::verifair.ImportDifference")
def test_categories_that_are_digits() -> None:
    y = (SCORE > 1.5).astype(int)
    digits = X[["months"]].astype(np.float32).assign(kind=RNG.choice(["-1", "7", "12", "--5"][:3], len(X)))
    model = boosted(interactions=0, feature_types=["continuous", "nominal"])
    read = vf.read(model.fit(digits, y), digits)
    assert [feed.categories for feed in read.feeds] == [{}, {0: (-1, 12, 7)}] or sorted(read.feeds[1].categories[0]) == [-1, 7, 12]
    words = digits.replace({"kind": {"7": "--5"}})
    assert sorted(vf.read(model.fit(words, y), words).feeds[1].categories[0]) == ["--5", "-1", "12"]
    parts = digits.assign(kind=digits["kind"].map({"-1": 0.5, "7": 1.5, "12": 2.5}))
    with pytest.raises(ModelError, match=r"has the categories 0\.5, 1\.5, 2\.5, which are fractions; fit it on words"):
        vf.read(model.fit(parts, y), parts)


def test_another_model_of_interpretml_is_refused() -> None:
    glassbox = pytest.importorskip("interpret.glassbox")
    with pytest.raises(ModelError, match="is no explainable boosting machine"):
        vf.read(glassbox.LogisticRegression().fit(X[NUMBERS], SCORE > 1.5))


def test_tables_of_many_categories_need_no_deep_recursion() -> None:
    found = table([TableAxis(column=np.arange(3000))], np.arange(3001.0)[:, None])
    assert len(found.trees[0].feature) == 6001


def test_explainable_boosting_that_is_no_sum_is_refused() -> None:
    model = boosted("Regressor", interactions=0, objective="poisson_deviance").fit(X[NUMBERS], SCORE.clip(lower=0) + 1)
    with pytest.raises(ModelError, match="gives values by the link 'log', no sum; fit it with objective='rmse'"):
        vf.read(model, X)
    imputer = SimpleImputer(strategy="most_frequent").set_output(transform="pandas")
    words = make_pipeline(imputer, boosted(interactions=0)).fit(X[WORDS], SCORE > 1.5)
    with pytest.raises(ModelError, match="takes words behind other steps; pass it alone"):
        vf.read(words, X)


@pytest.mark.parametrize("seed", draws(6))
def test_verdicts_about_explainable_boosting_are_those_of_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    everybody = pd.DataFrame(itertools.product(range(-2, 4), range(5), "fmo"), columns=["a", "b", "p"])
    frame = everybody.sample(300, replace=True, random_state=seed)
    score = frame["a"] * rng.normal() + frame["b"] * rng.normal() + (frame["p"] == "f") * rng.choice([0, 0.5, 3])
    model = boosted(interactions=2, max_bins=8).fit(frame, (score + rng.normal(size=300) > score.median()).astype(int))
    read = vf.read(model, frame)
    schema = schema_of(integer("a", -2, 3), integer("b", 0, 4), one_hot("p", "f", "m", "o"), positive="logit > 0")
    shown = model.predict_proba(everybody)[:, 1].reshape(-1, 3)
    flips = bool(((shown > 0.5) != (shown[:, :1] > 0.5)).any())
    verdict = vf.verify(vf.IndividualFairness(model=read, schema=schema, protected=["p"]), budget=vf.Budget(seconds=60))
    assert verdict.status is (vf.Status.VIOLATED if flips else vf.Status.PROVED)
    gap = float(np.ptp(shown, axis=1).max())
    found = vf.verify(vf.ProbabilityGap(model=read, schema=schema, protected=["p"]), budget=vf.Budget(seconds=60))
    assert found.lower - 1e-5 <= gap <= found.upper + 1e-5
    assert vf.check(found.certificate, model=read, schema=schema).accepted
