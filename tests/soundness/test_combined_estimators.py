"""Combinations of scikit-learn's estimators against the objects themselves, on all rows of small tables: what is read decides as
`predict` does, and verdicts are those of brute force over its decisions."""

import itertools
import time
import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from onnxruntime import InferenceSession
from sklearn.calibration import CalibratedClassifierCV
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Binarizer, KBinsDiscretizer, PolynomialFeatures, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import verifair as vf
from encoders.buckets import buckets_of
from encoders.exact.dyadic import exact
from encoders.model import Link
from encoders.network import Network
from encoders.probability.shares import probabilities
from encoders.trees.ensemble import TreeEnsemble
from encoders.trees.mean import MeanOfTrees
from solvers import clock
from tests.brute_force import exact_forward
from tests.builders import categorical, integer, schema_of
from tests.draws import draws
from verifair.errors import QueryError
from verifair.models.converters.mixtures import LEVEL, _ramps
from verifair.systems.pba.evidence import certificate_of
from verifair.systems.pba.rows import verify_rows
from verifair.systems.pba.stream import LabelledRows

FEATURES = integer("a", -2, 3), integer("b", 0, 4), categorical("p", "f", "m", "o")
SCHEMA = schema_of(*FEATURES, positive="logit > 0")
ROWS = np.array(list(itertools.product(range(-2, 4), range(5), range(3))), dtype=np.float64)
"""Everybody, by person and then by p."""
LABELLED = schema_of(integer("a", -2, 3, unit=1), integer("b", 0, 4, unit=1), categorical("p", "f", "m", "o"), label="y")


def tree(seed: int, depth: int = 3) -> Any:
    return DecisionTreeClassifier(max_depth=1 + seed % depth, max_features=2, random_state=seed)


def forest(seed: int) -> Any:
    return RandomForestClassifier(3, max_depth=2, random_state=seed)


def boosted(seed: int) -> Any:
    return GradientBoostingClassifier(n_estimators=4, random_state=seed)


def xgboosted(seed: int) -> Any:
    return pytest.importorskip("xgboost").XGBClassifier(n_estimators=4, max_depth=2, random_state=seed)


def light(seed: int) -> Any:
    lightgbm = pytest.importorskip("lightgbm")
    return lightgbm.LGBMClassifier(n_estimators=4, num_leaves=4, min_child_samples=5, random_state=seed, verbose=-1)


def named(*listed: Any) -> list[tuple[str, Any]]:
    return [(f"m{k}", one) for k, one in enumerate(listed)]


TREES: dict[str, Callable[[int], Any]] = {
    "bagging": lambda k: BaggingClassifier(tree(k), 6, max_samples=0.2, random_state=k),
    "bagging of columns": lambda k: BaggingClassifier(tree(k), 5, max_features=2, random_state=k),
    "bagging of forests": lambda k: BaggingClassifier(forest(k), 2, random_state=k),
    "soft": lambda k: VotingClassifier(
        named(forest(k), ExtraTreesClassifier(4, max_depth=2, random_state=k), tree(k)), voting="soft", weights=[1, 3, 2]),
    "hard": lambda k: VotingClassifier(named(*(tree(k + j, 4) for j in range(4)))),
    "hard, weights": lambda k: VotingClassifier(named(*(tree(k + j, 4) for j in range(3))), weights=[1, 2, 3]),
    "adaboost": lambda k: AdaBoostClassifier(n_estimators=6, random_state=k),
    "adaboost of trees": lambda k: AdaBoostClassifier(tree(k), n_estimators=4, random_state=k),
    "stacking": lambda k: StackingClassifier(named(tree(k), forest(k)), cv=3),
    "stacking of scores": lambda k: StackingClassifier(named(boosted(k), AdaBoostClassifier(n_estimators=3, random_state=k)), cv=3,
                                                       stack_method="decision_function"),
    "calibrated": lambda k: CalibratedClassifierCV(forest(k), cv=3, ensemble=False),
    "calibrated boosting": lambda k: CalibratedClassifierCV(boosted(k), cv=3, ensemble=False),
    "calibrated histograms": lambda k: CalibratedClassifierCV(
        HistGradientBoostingClassifier(max_iter=4, min_samples_leaf=5, max_depth=2), cv=3, ensemble=False),
    "scorecard": lambda k: make_pipeline(KBinsDiscretizer(3, strategy="uniform"), LogisticRegression()),
    "scorecard of limits": lambda k: make_pipeline(Binarizer(threshold=[0.1, 1.0][k % 2]), LogisticRegression()),
    "calibrated trees": lambda k: CalibratedClassifierCV(tree(k), cv=3, method=["sigmoid", "isotonic"][k % 2]),
    "calibrated bagging": lambda k: CalibratedClassifierCV(BaggingClassifier(tree(k), 3, random_state=k), cv=3, ensemble=False),
}
NETWORKS: dict[str, Callable[[int], Any]] = {
    "calibrated, one": lambda k: CalibratedClassifierCV(LogisticRegression(), cv=3, ensemble=False),
    "calibrated, three": lambda k: CalibratedClassifierCV(LogisticRegression(), cv=3),
    "calibrated margins": lambda k: CalibratedClassifierCV(LinearSVC(), cv=3),
    "calibrated pipelines": lambda k: CalibratedClassifierCV(make_pipeline(StandardScaler(), LogisticRegression()), cv=2),
    "calibrated MLP": lambda k: CalibratedClassifierCV(MLPClassifier((3,), max_iter=30, random_state=k), cv=2, ensemble=False),
    "bagging of linear": lambda k: BaggingClassifier(LogisticRegression(), 4, max_samples=0.3, max_features=2, random_state=k),
    "soft linear": lambda k: VotingClassifier(named(LogisticRegression(), LinearDiscriminantAnalysis()), voting="soft",
                                              weights=[1, 2]),
    "soft MLP": lambda k: VotingClassifier(named(LogisticRegression(), MLPClassifier((3,), max_iter=30, random_state=k)),
                                           voting="soft"),
    "isotonic": lambda k: CalibratedClassifierCV(LogisticRegression(), cv=3, method="isotonic", ensemble=bool(k % 2)),
    "isotonic margins": lambda k: CalibratedClassifierCV(LinearSVC(), cv=3, method="isotonic", ensemble=bool(k % 2)),
    "isotonic MLP": lambda k: CalibratedClassifierCV(MLPClassifier((3,), max_iter=30, random_state=k), cv=2, method="isotonic",
                                                     ensemble=False),
    "stacking linear": lambda k: StackingClassifier(named(LogisticRegression(), LinearSVC()), cv=3, passthrough=bool(k % 2)),
    "discriminant": lambda k: LinearDiscriminantAnalysis(),
    "calibrated naive Bayes": lambda k: CalibratedClassifierCV(GaussianNB(), cv=3),
    "soft naive Bayes": lambda k: VotingClassifier(named(GaussianNB(), LogisticRegression()), voting="soft"),
    "products and an MLP": lambda k: make_pipeline(
        StandardScaler(), PolynomialFeatures(2, interaction_only=True), MLPClassifier((3,), max_iter=30, random_state=k)),
}
QUADRATIC: dict[str, Callable[[int], Any]] = {
    "naive Bayes": lambda k: GaussianNB(),
    "naive Bayes, scaled": lambda k: make_pipeline(StandardScaler(), GaussianNB(priors=None, var_smoothing=10.0 ** -(k % 3))),
    "quadratic discriminant": lambda k: QuadraticDiscriminantAnalysis(reg_param=0.1 * (k % 2)),
    "quadratic discriminant, scaled": lambda k: make_pipeline(StandardScaler(), QuadraticDiscriminantAnalysis()),
    "polynomials": lambda k: make_pipeline(PolynomialFeatures(2 + k % 2, include_bias=bool(k % 3)), LogisticRegression()),
    "polynomials, scaled": lambda k: make_pipeline(StandardScaler(), PolynomialFeatures(), LogisticRegression()),
}
NETWORKS |= QUADRATIC


EVERYBODY = [(np.arange(60), np.arange(60))]
"""Rows to fit on, and to calibrate on: knots are scores of rows."""
MEANS: dict[str, Callable[[int], Any]] = {
    "calibrated, folds": lambda k: CalibratedClassifierCV(forest(k), cv=3),
    "calibrated boosting, folds": lambda k: CalibratedClassifierCV(boosted(k), cv=2),
    "isotonic forest": lambda k: CalibratedClassifierCV(forest(k), cv=3, method="isotonic", ensemble=False),
    "isotonic forest, own rows": lambda k: CalibratedClassifierCV(forest(k), cv=EVERYBODY, method="isotonic", ensemble=False),
    "isotonic forest, folds": lambda k: CalibratedClassifierCV(forest(k), cv=3, method="isotonic"),
    "isotonic boosting": lambda k: CalibratedClassifierCV(boosted(k), cv=EVERYBODY, method="isotonic", ensemble=False),
    "isotonic histograms": lambda k: CalibratedClassifierCV(
        HistGradientBoostingClassifier(max_iter=4, min_samples_leaf=5, max_depth=2), cv=2, method="isotonic"),
    "soft boosting": lambda k: VotingClassifier(
        named(forest(k), boosted(k), AdaBoostClassifier(n_estimators=3, random_state=k),
              GradientBoostingClassifier(n_estimators=3, loss="exponential", random_state=k)), voting="soft", weights=[1, 2, 1, 2]),
    "bagging of boosting": lambda k: BaggingClassifier(boosted(k), 3, random_state=k),
    "soft calibrated": lambda k: VotingClassifier(
        named(CalibratedClassifierCV(forest(k), cv=2), CalibratedClassifierCV(boosted(k), cv=2, method="isotonic")), voting="soft"),
    "soft libraries": lambda k: VotingClassifier(named(light(k), xgboosted(k), forest(k)), voting="soft", weights=[1, 2, 1]),
    "bagging of XGBoost": lambda k: BaggingClassifier(xgboosted(k), 3, max_features=2, random_state=k),
    "bagging of LightGBM": lambda k: BaggingClassifier(light(k), 2, random_state=k),
    "calibrated XGBoost, folds": lambda k: CalibratedClassifierCV(xgboosted(k), cv=3),
    "isotonic XGBoost, folds": lambda k: CalibratedClassifierCV(xgboosted(k), cv=2, method="isotonic"),
    "isotonic LightGBM": lambda k: CalibratedClassifierCV(light(k), cv=3, method="isotonic", ensemble=False),
    "soft calibrated libraries": lambda k: VotingClassifier(
        named(CalibratedClassifierCV(light(k), cv=2), CalibratedClassifierCV(xgboosted(k), cv=2, method="isotonic")),
        voting="soft"),
}


def stacked(*members: Any, **of_final: Any) -> Any:
    return StackingClassifier(named(*members), LogisticRegression(**of_final), cv=3)


STACKED: dict[str, Callable[[int], Any]] = {
    "calibrated XGBoost": lambda k: CalibratedClassifierCV(xgboosted(k), cv=3, ensemble=False),
    "calibrated bagging of XGBoost": lambda k: CalibratedClassifierCV(
        BaggingClassifier(xgboosted(k), 2, random_state=k), cv=2, ensemble=False),
    "stacking of probabilities": lambda k: stacked(forest(k), boosted(k), tree(k)),
    "stacking, no intercept": lambda k: stacked(forest(k), boosted(k), fit_intercept=False),
    "stacking of libraries": lambda k: stacked(xgboosted(k), light(k), C=1e3),
    "stacking of alike": lambda k: stacked(boosted(k), boosted(k + 1), forest(k), forest(k + 1), C=1e6),  # weights below 0 as well
    "stacking of calibrated": lambda k: stacked(
        CalibratedClassifierCV(forest(k), cv=2, method="isotonic"), CalibratedClassifierCV(xgboosted(k), cv=2), C=1e4),
    "stacking of isotonic": lambda k: stacked(
        CalibratedClassifierCV(forest(k), cv=2, method="isotonic"), forest(k),
        CalibratedClassifierCV(xgboosted(k), method="isotonic", cv=2), C=1e6),
}
"""Log-odds that are sums of functions."""
MIXED: dict[str, Callable[[int], Any]] = {
    "soft with a linear model": lambda k: VotingClassifier(
        named(LogisticRegression(), forest(k), boosted(k)), voting="soft", weights=[2, 1, 1]),
    "soft with a scaled model": lambda k: VotingClassifier(
        named(forest(k), make_pipeline(StandardScaler(), LogisticRegression(C=10.0))), voting="soft"),
    "soft with isotonic margins": lambda k: VotingClassifier(
        named(CalibratedClassifierCV(LinearSVC(), cv=2, method="isotonic"), forest(k)), voting="soft"),
    "soft with naive Bayes": lambda k: VotingClassifier(
        named(LogisticRegression(), forest(k), GaussianNB(var_smoothing=10.0 ** -(3 * (k % 4)))), voting="soft", weights=[1, 1, 2]),
}
STACKED |= {
    "stacking with a linear model": lambda k: stacked(
        make_pipeline(StandardScaler(), LogisticRegression()), forest(k), boosted(k), C=1e3),
    "stacking with alike linear models": lambda k: stacked(
        LogisticRegression(), tree(k), LogisticRegression(C=0.1), CalibratedClassifierCV(LinearSVC(), cv=2), C=1e6),
    "stacking with naive Bayes": lambda k: stacked(GaussianNB(), forest(k), CalibratedClassifierCV(GaussianNB(), cv=2), C=1e3),
}
MEANS |= MIXED | {
    "soft with calibrated naive Bayes": lambda k: VotingClassifier(named(
        CalibratedClassifierCV(GaussianNB(), cv=2, method=["sigmoid", "isotonic"][k % 2]), boosted(k),
        make_pipeline(StandardScaler(), GaussianNB(priors=[0.3, 0.7]))), voting="soft"),
}
HARD: dict[str, Callable[[int], Any]] = {
    "hard, of each kind": lambda k: VotingClassifier(named(LogisticRegression(), forest(k), boosted(k))),
    "hard, of libraries": lambda k: VotingClassifier(named(xgboosted(k), light(k), forest(k)), weights=[1, 2, 3]),
    "hard, without probabilities": lambda k: VotingClassifier(named(LinearSVC(), tree(k), boosted(k), RidgeClassifier())),
    "hard, scaled": lambda k: VotingClassifier(
        named(LinearSVC(), forest(k), make_pipeline(StandardScaler(), LogisticRegression()), tree(k)), weights=[2, 1, 1, 2]),
    "hard, naive Bayes": lambda k: VotingClassifier(named(LogisticRegression(), forest(k), GaussianNB(var_smoothing=0.1 ** k))),
}
"""Half the votes, and a boosted score of exactly 0, are among their rows."""
FUNCTIONS = MEANS | STACKED


@cache
def fitted(make: Callable[[int], Any], seed: int, classes: int = 2) -> Any:
    """A model of a noisy table, which asks about p more or less. Most are of several tests: do not change it."""
    rng = np.random.default_rng(seed)
    x = ROWS[rng.integers(len(ROWS), size=60)]
    score = x[:, 0] * rng.normal() + x[:, 1] * rng.normal() + (x[:, 2] == seed % 3) * rng.choice([0, 1, 3]) + rng.normal(size=60)
    y = np.digitize(score, np.quantile(score, np.arange(1, classes) / classes))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(seed).fit(x, y)


def ties(model: Any, rows: np.ndarray) -> np.ndarray:
    """Which rows have two most probable classes, of which the object's float64 sums name the one or the other."""
    if getattr(model, "voting", "soft") == "hard":
        return np.zeros(len(rows), dtype=bool)
    ranked = np.sort(model.predict_proba(rows), axis=1)
    return np.asarray(ranked[:, -1] - ranked[:, -2] < 1e-12)


@cache
def read(model: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if ties(model, ROWS).any() else "error", vf.ImportDifference)
        return vf.read(model, pd.DataFrame(ROWS))


def same(decided: Any, model: Any, rows: np.ndarray) -> np.ndarray:
    """Assert that decisions are the object's but for ties, which go to the first class; return them."""
    decided, known = np.asarray(decided).astype(int), ~ties(model, rows)
    assert decided[known].tolist() == model.predict(rows)[known].tolist()
    return decided


def labelled(decided: np.ndarray) -> pd.DataFrame:
    """Everybody, with what is decided as the label."""
    return pd.DataFrame([LABELLED.decode(row) for row in ROWS]).assign(y=decided.astype(int))


def flips(decisions: np.ndarray) -> bool:
    """Whether p alone decides about anybody."""
    groups = decisions.reshape(-1, 3)
    return bool((groups != groups[:, :1]).any())


def exact_margins(network: Any) -> np.ndarray:
    """Margins (N,) of all rows as fractions."""
    if isinstance(network, Network):
        return exact_forward(network, ROWS)[:, 0]
    ramps, numbers = network.ramps, np.vectorize(Fraction, otypes=[object])
    scores = network.sums(numbers(ROWS))
    heights = np.clip(numbers(ramps.scale) * (scores[:, ramps.score] - numbers(ramps.shift)), 0, 1)
    return np.asarray(heights @ numbers(ramps.weight) + sum(map(Fraction, network.added)))


def check(model: Any, network: Any, decided: np.ndarray) -> None:
    verdict = vf.verify(vf.IndividualFairness(model=network, schema=SCHEMA, protected=["p"]), budget=vf.Budget(seconds=60))
    assert verdict.status is (vf.Status.VIOLATED if flips(decided) else vf.Status.PROVED)
    if verdict.certificate is not None:
        assert vf.check(verdict.certificate, model=network, schema=SCHEMA).accepted
    if verdict.witness is not None:
        codes = {"f": 0, "m": 1, "o": 2}
        pair = np.array([[x["a"], x["b"], codes[x["p"]]] for x in (verdict.witness.x, verdict.witness.x_prime)], dtype=float)
        assert ties(model, pair).any() or len(set(model.predict(pair).tolist())) == 2


@pytest.mark.parametrize("seed", draws(16))
@pytest.mark.parametrize("name", TREES)
def test_sums_of_trees_are_decided_as_by_the_object(name: str, seed: int) -> None:
    model = fitted(TREES[name], seed)
    network = read(model)
    assert isinstance(network, TreeEnsemble)
    logits = network.forward(exact(ROWS)).to_fractions()[:, 0]
    check(model, network, same(logits > 0, model, ROWS))


@pytest.mark.parametrize("seed", draws(12))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_trees_are_decided_as_by_the_object(name: str, seed: int) -> None:
    model = fitted(FUNCTIONS[name], seed)
    network = read(model)
    assert isinstance(network, MeanOfTrees)
    assert network.link is (Link.SIGMOID if name in STACKED else Link.SHARES)
    shown = network.forward(ROWS)[:, 0]
    exactly = exact_margins(network) if network.piecewise_linear else shown
    steep = 1e-3 if "own rows" in name or name == "isotonic boosting" else 1e-5   # rows on the foot of a ramp
    np.testing.assert_allclose(probabilities(network, shown), model.predict_proba(ROWS)[:, 1], atol=steep)
    np.testing.assert_allclose(exactly.astype(float), shown, atol=1e-9)
    check(model, network, same(exactly > 0, model, ROWS))


@pytest.mark.parametrize("lines", [
    [(0.0, 1.0, -1.0, -1e-18)], [(1e-17, 0.0, -1e-17, 0.0)], [(0.0, 0.0, -1e-30, 1.5e-30)],     # windows that are short
    [(0.0, 0.0, 1.0, 40.0), (0.0, 0.0, 0.0, -41.0)], [(1.0, 0.0, -1.0, -40.0), (0.0, 0.0, 0.0, 40.5)],     # and large scores
])
def test_flips_that_float64_does_not_tell_are_not_proved_away(lines: list[tuple[float, ...]]) -> None:
    """Logistic functions whose ends differ by less than 2^-53 do differ: the vote is 1/2 and less, and above."""
    members = [*(LogisticRegression() for _ in lines), forest(0)]
    model = deepcopy(fitted(lambda k: VotingClassifier(named(*members), voting="soft", weights=[1] * len(lines) + [0]), 0))
    for one, (*weights, intercept) in zip(model.estimators_, lines, strict=False):
        one.coef_, one.intercept_ = np.array([weights]), np.array([intercept])
    numbers = np.vectorize(Fraction, otypes=[object])
    weight, added = np.split(numbers(np.float32(lines)), [3], axis=1)
    decided = (numbers(ROWS) @ weight.T + added.T).sum(axis=1) > 0     # sigma(u) + sigma(v) > 1  where  u + v > 0
    assert flips(decided)
    verdict = vf.verify(vf.IndividualFairness(model=read(model), schema=SCHEMA, protected=["p"]), budget=vf.Budget(seconds=60))
    assert verdict.status is vf.Status.VIOLATED

@pytest.mark.parametrize("name", ["isotonic forest", "isotonic forest, own rows", "isotonic boosting", "isotonic"])
def test_plateaus_at_one_half_are_ties(name: str) -> None:
    """One half is not above one half, in exact arithmetic as for the object; and no proof needs the rows one by one."""
    found = 0
    for seed in range(40):
        model = fitted((MEANS | NETWORKS)[name], seed)
        chance = model.predict_proba(ROWS)[:, 1]
        if len(model.calibrated_classifiers_) > 1 or not (chance == 0.5).any():
            continue
        found += 1
        margins = exact_margins(read(model))
        assert (margins[chance == 0.5] == 0).all()
        assert ((margins > 0) == (model.predict(ROWS) == 1)).all()
    assert found > 2


@pytest.mark.parametrize("name", ["calibrated boosting, folds", "bagging of boosting", "soft calibrated"])
def test_equal_scores_by_other_leaves_are_decided(name: str) -> None:
    """Of logistic functions no arithmetic says whether their difference is 0; of the scores within exact arithmetic does."""
    ties = 0
    for seed in range(6):
        network = read(fitted(MEANS[name], seed))
        ramps, scores = network.ramps, network.trees.forward(exact(ROWS)).to_fractions()
        numbers = np.vectorize(Fraction, otypes=[object])
        moved = numbers(ramps.scale) * (scores[:, ramps.score] - numbers(ramps.shift))
        moved = np.where(ramps.logistic, moved, np.clip(moved, 0, 1))
        decided = network.forward(ROWS)[:, 0] > 0
        query = vf.PersistentBias(model=network, schema=LABELLED, protected="p", delta=[0])
        for line in verify_rows(query, labelled(decided)).itertuples():
            other = line.row - line.row % 3 + int(line.to)
            tie = (moved[line.row] == moved[other]).all()
            above = network.forward(ROWS[[line.row, other]])[:, 0] @ [1, -1] * (1 if decided[line.row] else -1)
            expected = not tie and (above > 0 if line.goal == "observed" else above < 0)
            assert line.status == ("proved" if expected else "violated")
            ties += tie and (scores[line.row] == scores[other]).all()
    assert ties


@pytest.mark.parametrize("seed", draws(12))
@pytest.mark.parametrize("name", HARD)
def test_hard_votes_are_decided_as_by_the_object(name: str, seed: int) -> None:
    model = fitted(HARD[name], seed)
    network = read(model)
    assert isinstance(network, MeanOfTrees)
    shares = np.average(model.transform(ROWS), axis=1, weights=model.weights)
    np.testing.assert_allclose(probabilities(network, network.forward(ROWS)[:, 0]), shares, atol=1e-6)
    decided = exact_margins(network) > 0
    assert decided.tolist() == model.predict(ROWS).tolist()
    check(model, network, decided)


@pytest.mark.parametrize("seed", draws(2))
@pytest.mark.parametrize("name", [*FUNCTIONS, *HARD])
def test_bias_of_functions_of_trees_against_all_neighbours(name: str, seed: int) -> None:
    """Members that rise make up for those that fall: with linear members two or three boxes decide a question."""
    network = read(fitted((FUNCTIONS | HARD)[name], seed))
    margins = network.forward(ROWS)[:, 0]
    people = labelled(margins > 0)
    query = vf.PersistentBias(model=network, schema=LABELLED, protected="p", delta=[1])
    verdicts = verify_rows(query, people)
    for line in verdicts.itertuples():
        (a, b, p), to = ROWS[line.row], int(line.to)
        near = np.flatnonzero((np.abs(ROWS[:, 0] - a) <= 1) & (np.abs(ROWS[:, 1] - b) <= 1) & (ROWS[:, 2] == p))
        above = (margins[near] - margins[near - near % 3 + to]) * (1 if line.label else -1) * (1 if line.goal == "observed" else -1)
        assert line.status == ("proved" if above.min() > 0 else "violated") or abs(above.min()) < 1e-12
    assert verdicts.nodes.mean() < (3 if name in MIXED else 10)
    certificate = certificate_of(query, LabelledRows.of(network, LABELLED, people), verdicts)
    assert vf.check(certificate, model=network, schema=LABELLED).accepted


@pytest.mark.parametrize(("name", "most"), [("soft with a linear model", 0.05), ("stacking of calibrated", 0.05)])
def test_effort_counts_points_and_balls_as_they_are(name: str, most: float) -> None:
    """The scores of a row are exact: ball arithmetic has as many numbers as there are functions, and not as trees have nodes."""
    network = read(fitted(FUNCTIONS[name], 0))
    people = labelled(network.forward(ROWS)[:, 0] > 0)
    with clock.counted(time.monotonic() + 60) as counted:
        verify_rows(vf.PersistentBias(model=network, schema=LABELLED, protected="p", delta=[1]), people)
    assert 0 < counted.spent < most


@pytest.mark.parametrize("name", FUNCTIONS)
def test_rows_that_are_surely_equal_are_equal(name: str) -> None:
    """Ramps of a probability do not cut off the sum of trees whose logistic function it is."""
    first, second = (one.ravel() for one in np.indices((len(ROWS), len(ROWS))))
    for seed in range(3):
        network = read(fitted(FUNCTIONS[name], seed))
        shown = network.forward(ROWS)[:, 0]
        same = network.surely_equal(ROWS[first], ROWS[second])
        assert (np.abs(shown[first] - shown[second])[same] < 1e-12).all()
        assert same[first == second].all()


@pytest.mark.parametrize(("name", "seed"), [("isotonic XGBoost, folds", 105), ("stacking of isotonic", 105)])
def test_probabilities_on_one_plateau_are_equal_beside_those_on_a_ramp(name: str, seed: int) -> None:
    """One fold's probability is the same, and lies within a ramp; the other's differ, and one plateau holds both."""
    network = read(fitted(FUNCTIONS[name], seed))
    first, second = (one.ravel() for one in np.indices((len(ROWS), len(ROWS))))
    shown = network.forward(ROWS)[:, 0]
    equal = shown[first] == shown[second]
    assert (network.surely_equal(ROWS[first], ROWS[second]) == equal).all()
    assert (equal & (network.sums(ROWS)[first] != network.sums(ROWS)[second]).any(axis=1)).any()


@pytest.mark.parametrize("folds", [2, 3, 5, 7])
def test_plateaus_of_folds_whose_mean_is_one_half_are_not_above_it(folds: int) -> None:
    """As for the object, which decides for the first class: levels are parts of 1 / folds, rounded one by one."""
    rng = np.random.default_rng(folds)
    for _ in range(50):
        count = rng.integers(1, 40)
        some = rng.integers(0, count + 1, size=folds // 2)
        levels = [*some, *(count - some), *([count / 2] * (folds % 2))]     # two by two they add up to 1
        made = [_ramps([0.0, 1.0, 2.0], [0.0, one / count, 1.0], 1 / folds) for one in levels]
        at_one = [one.constant + one.weight[one.shift < 1].sum() for one in made]
        assert 0.5 - 2 * folds * LEVEL <= sum(at_one) < 0.5


@pytest.mark.parametrize("scores", [[0.0, 1.0], [0.0, 0.5, 1.0], [-3.0, 0.0, 0.1, 0.30000001, 40.0]])
def test_where_a_single_function_crosses_one_half_is_a_tie(scores: list[float]) -> None:
    """The object's line between two levels is 1/2 there, and decides for the first class; ours was 1.5e-8 above it."""
    rng = np.random.default_rng(len(scores))
    for _ in range(50):
        levels = np.sort(rng.integers(0, 8, len(scores)) / 7)
        crossing = float(np.interp(0.5, levels, scores)) if levels[0] < 0.5 < levels[-1] else None
        made = _ramps(scores, levels, 1.0)
        for at, sign in [] if crossing is None else [(crossing, 0), (crossing - 0.1, -1), (crossing + 0.1, 1)]:
            height = made.constant + (made.weight * np.clip(made.scale.astype(float) * (at - made.shift), 0, 1)).sum()
            assert np.sign(height - 0.5) == sign


@pytest.mark.parametrize("seed", draws(6))
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("positive", ["logit >= 0.1", "logit < -0.05", "logit <= 0", "class = 0"])
def test_thresholds_of_means_of_trees(positive: str, name: str, seed: int) -> None:
    network = read(fitted(FUNCTIONS[name], seed))
    schema = schema_of(integer("a", -2, 3), integer("b", 0, 4), categorical("p", "f", "m", "o"), positive=positive)
    compare, at = {"logit >= 0.1": (np.greater_equal, 0.1), "logit < -0.05": (np.less, -0.05)}.get(positive, (np.less_equal, 0.0))
    decided = compare(network.forward(ROWS)[:, 0], at)
    query = vf.IndividualFairness(model=network, schema=schema, protected=["p"])
    verdict = vf.verify(query, budget=vf.Budget(seconds=60))
    assert verdict.status is (vf.Status.VIOLATED if flips(decided) else vf.Status.PROVED)
    if verdict.certificate is not None:
        assert vf.check(verdict.certificate, model=network, schema=schema).accepted


@pytest.mark.parametrize("seed", [*draws(8), 19, 23])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_kmax_of_functions_of_trees(name: str, seed: int) -> None:
    """Of seeds 19 and 23 some shares are borders of buckets, which the checker's bounds round."""
    network = read(fitted(FUNCTIONS[name], seed))
    buckets, positive = [2, 3, 10, 40][seed % 4], ["logit > 0", "class = 0", "logit >= 0.05", "logit > 0"][seed // 2 % 4]
    schema = schema_of(*FEATURES, positive=positive)
    query = vf.KDiscrimination(model=network, schema=schema, protected=["p"], buckets=buckets)
    found = buckets_of(query.model, ROWS, buckets)
    assert (found[:, 0] <= found[:, 1]).all()
    share = probabilities(query.model, query.model.forward(ROWS)[:, 0])
    near = np.abs(buckets * share - np.rint(buckets * share)) < 1e-6
    assert (found[~near] == np.ceil(buckets * share[~near])[:, None] - 1).all()
    people = found.reshape(-1, 3, 2)
    least = [{low for low, high in one if low == high} for one in people.tolist()]
    most = [len(known) + sum(low < high for low, high in one) for known, one in zip(least, people.tolist(), strict=True)]
    verdict = vf.verify(query, budget=vf.Budget(seconds=30))
    assert max(map(len, least)) == verdict.lower <= verdict.upper == max(most)
    assert vf.check(verdict.certificate, model=network, schema=schema).accepted
    forged = replace(verdict.certificate, upper=verdict.lower - 1)
    assert not vf.check(forged, model=network, schema=schema).accepted


@pytest.mark.parametrize("name", [*TREES, *NETWORKS, *FUNCTIONS])
def test_labels_of_any_kind_are_those_of_the_object(name: str) -> None:
    numbers_alone = name.startswith(("calibrated XGBoost", "isotonic XGBoost"))     # which are given the labels as they are
    for labels in [(0, 1)] if numbers_alone else [(-1, 1), (2, 5), (False, True), ("yes", "no")]:
        own, rng = (TREES | NETWORKS | FUNCTIONS)[name](1), np.random.default_rng(1)
        x = ROWS[rng.integers(len(ROWS), size=60)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = own.fit(x, np.array(labels)[(x[:, 0] + x[:, 2] > rng.normal(size=60)).astype(int)])
            network = vf.read(model, pd.DataFrame(ROWS))
        assert network.classes in ((), tuple(map(str, model.classes_)), ("0", "1"))
        logits = network.forward(ROWS)
        known = ~ties(model, ROWS) & (np.abs(logits[:, 0]) > 1e-6)
        assert model.predict(ROWS)[known].tolist() == model.classes_[(logits[:, 0] > 0).astype(int)][known].tolist()


@pytest.mark.parametrize("name", ["soft linear", "soft with a linear model", "stacking of probabilities"])
@pytest.mark.parametrize("labels", [(0, 1), ("no", "yes")])
def test_stored_models_give_one_label_a_row(name: str, labels: tuple[Any, Any]) -> None:
    """As their outputs declare: onnxruntime warned of (1, N)."""
    model = (NETWORKS | FUNCTIONS)[name](1).fit(ROWS, np.array(labels)[(ROWS[:, 0] + ROWS[:, 2] > 1).astype(int)])
    session = InferenceSession(read(model).stored, providers=["CPUExecutionProvider"])
    label, _ = session.run(None, {session.get_inputs()[0].name: ROWS.astype(np.float32)})
    assert label.tolist() == model.predict(ROWS).tolist()


@pytest.mark.parametrize("seed", draws(12))
@pytest.mark.parametrize("name", NETWORKS)
def test_combined_networks_are_decided_as_by_the_object(name: str, seed: int) -> None:
    model = fitted(NETWORKS[name], seed)
    network = read(model)
    assert isinstance(network, Network)
    shown = network.forward(ROWS)[:, 0]
    same((exact_forward(network, ROWS)[:, 0] if network.piecewise_linear or name in QUADRATIC else shown) > 0, model, ROWS)
    if network.link is Link.SHARES:
        assert np.abs(shown + 0.5 - model.predict_proba(ROWS)[:, 1]).max() < 1e-5
    check(model, network, model.predict(ROWS))


@pytest.mark.parametrize("seed", draws(8))
@pytest.mark.parametrize("name", [name for name in TREES if not name.startswith(("calibrated", "hard, weights", "stacking of"))])
def test_three_classes_are_decided_as_by_the_object(name: str, seed: int) -> None:
    model = fitted(TREES[name], seed, classes=3)
    network = read(model)
    logits = network.forward(exact(ROWS)).to_fractions()
    same(logits.argmax(axis=1), model, ROWS)


@pytest.mark.parametrize("seed", draws(12))
@pytest.mark.parametrize("name", QUADRATIC)
def test_three_classes_by_quadratic_scores_are_decided_as_by_the_object(name: str, seed: int) -> None:
    model = fitted(QUADRATIC[name], seed, classes=3)
    network = read(model)
    decided = same(exact_forward(network, ROWS).argmax(axis=1), model, ROWS)
    schema = schema_of(*FEATURES, positive="class = 1")
    verdict = vf.verify(vf.IndividualFairness(model=network, schema=schema, protected=["p"]), budget=vf.Budget(seconds=60))
    assert verdict.status is (vf.Status.VIOLATED if flips(decided == 1) else vf.Status.PROVED)
    if verdict.certificate is not None:
        assert vf.check(verdict.certificate, model=network, schema=schema).accepted


@pytest.mark.parametrize("seed", draws(12))
@pytest.mark.parametrize(
    "name", ["calibrated, three", "soft MLP", "soft", "adaboost", "naive Bayes", "polynomials", "isotonic", *FUNCTIONS]
)
def test_gaps_of_shown_probabilities_are_those_of_the_object(name: str, seed: int) -> None:
    """Of what is a mean of probabilities the gap is that of the mean, and no logistic function of it."""
    model = fitted((TREES | NETWORKS | FUNCTIONS)[name], seed)
    network = read(model)
    shown = model.predict_proba(ROWS)[:, 1].reshape(-1, 3)
    gap = float((shown.max(axis=1) - shown.min(axis=1)).max())
    near = 2e-3 if name in FUNCTIONS else 1e-4
    for epsilon, status in ((gap - near, vf.Status.VIOLATED), (gap + near, vf.Status.PROVED)):
        if 1e-3 < epsilon < 0.999:
            query = vf.IndividualFairness(model=network, schema=SCHEMA, protected=["p"], epsilon=epsilon)
            verdict = vf.verify(query, budget=vf.Budget(seconds=60))
            assert verdict.status is status
            assert query.quantity == "probability"
            if verdict.certificate is not None:
                report = vf.check(verdict.certificate, model=network, schema=SCHEMA)
                assert report.accepted
                assert f"{query.quantity} moves" in report.statement
                if gap > 1e-2:
                    forged = replace(verdict.certificate, query=replace(verdict.certificate.query, epsilon=gap / 2))
                    assert not vf.check(forged, model=network, schema=SCHEMA).accepted


@pytest.mark.parametrize("name", TREES)
def test_rows_on_thresholds_are_decided_as_by_the_object(name: str) -> None:
    """Thresholds that are no float32 numbers: rows on the float32 numbers below and above."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = TREES[name](1).fit(x, (x[:, 0] + np.sin(3 * x[:, 1]) > 0).astype(int))
    network = read(model)
    rows = x.astype(np.float32)[rng.integers(len(x), size=2000)]
    for column in range(3):
        limits = np.unique(network.threshold[network.column == column]).astype(np.float32)
        if len(limits):
            at = rng.choice(limits, size=len(rows))
            rows[:, column] = np.where(rng.random(len(rows)) < 0.5, at, np.nextafter(at, np.float32(np.inf)))
    decided = network.forward(exact(rows.astype(np.float64))).to_fractions()[:, 0] > 0
    same(decided, model, rows.astype(np.float64))


def test_strict_signs_are_not_asked_of_shares_of_votes() -> None:
    """Their g is 2^-25 below the difference, so that a tie is no 0, and both signs of a tie would count as decided."""
    network = read(fitted(forest, 1))
    query = vf.IndividualFairness(model=network, schema=SCHEMA, protected=["p"])
    with pytest.raises(QueryError, match="shares of votes are on a threshold within 2"):
        replace(query, signs="strict")
    person = next(k for k, group in enumerate((network.forward(ROWS)[:, 0] > 0).reshape(-1, 3)) if len(set(group)) == 1)
    here = {name: (float(ROWS[3 * person, k]),) * 2 for k, name in enumerate("ab")}
    proved = vf.verify(replace(query, box=here)).certificate
    for found in (proved, vf.certify_share(query, budget=vf.Budget(seconds=60)).certificate):
        assert vf.check(found, model=network, schema=SCHEMA).accepted
        (why,) = vf.check(replace(found, query=replace(found.query, signs="strict")), model=network, schema=SCHEMA).rejections
        assert "within 2^-25 of it" in str(why)


@pytest.mark.parametrize("seed", draws(8))
def test_a_proof_about_squares_is_not_one_about_others(seed: int) -> None:
    """The checker bounds what columns and their squares add by itself."""

    def gap(one: MeanOfTrees) -> float:
        return float(np.ptp(one.forward(ROWS)[:, 0].reshape(-1, 3), axis=1).max())

    network, refused = read(fitted(MIXED["soft with naive Bayes"], seed)), 0
    epsilon = gap(network) + 1e-6
    query = vf.IndividualFairness(model=network, schema=SCHEMA, protected=["p"], epsilon=epsilon)
    verdict = vf.verify(query, budget=vf.Budget(seconds=60))
    assert verdict.status is vf.Status.PROVED
    assert verdict.certificate is not None
    assert vf.check(verdict.certificate, model=network, schema=SCHEMA).accepted
    for column, factor in itertools.product(range(3), (-1.0, 0.0, 3.0)):
        numbers = np.where(np.arange(3) == column, factor, 1.0)
        for other in (replace(network, squares=network.squares * numbers), replace(network, lines=network.lines * numbers)):
            if gap(other) > epsilon:
                refused += 1
                assert not vf.check(verdict.certificate, model=other, schema=SCHEMA).accepted
    assert refused
