"""Linear functions as trees: within what their leaves say, for all values of small domains; and what is proved with few leaves."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

import verifair as vf
from encoders.model import Link
from encoders.onnx.reader import read_model
from encoders.probability.shares import probabilities
from encoders.trees import stairs
from encoders.trees.ensemble import TreeEnsemble
from encoders.trees.mean import MeanOfTrees, Ramps
from tests.builders import integer, one_hot, real, schema_of
from tests.draws import draws
from tests.soundness.test_combined_estimators import FEATURES, MIXED, ROWS, SCHEMA, STACKED, fitted, flips, read
from tests.tree_models import random_tree, save

DOMAIN = schema_of(
    integer("a", -3, 40), real("b", -1.5, 2.5), one_hot("c", "x", "y", "z"), integer("d", 2, 2), positive="logit > 0"
).domain

NOWHERE = np.full((1, 4), np.nan)


def mean(rng: np.random.Generator, tmp_path: object) -> MeanOfTrees:
    trees = read_model(save(tmp_path / "m.onnx", [random_tree(rng, 6, 2, scores=2) for _ in range(2)], 6))  # type: ignore[operator]
    assert isinstance(trees, TreeEnsemble)
    one = np.ones(2)
    ramps = Ramps(chances=np.zeros(2, dtype=bool), score=np.arange(2), logistic=one > 0, shift=0 * one, scale=one, weight=one / 2,
                  constant=0.0)
    lines = np.where(rng.random((2, 6)) < 0.3, 0.0, rng.normal(size=(2, 6)))
    squares = np.where(rng.random((2, 6)) < 0.5, 0.0, rng.normal(size=(2, 6)) / 8) if rng.random() < 0.5 else None
    return MeanOfTrees(link=Link.SHARES, source_sha256="", trees=trees, ramps=ramps, lines=lines, squares=squares)


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("seed", draws(20))
def test_a_function_is_as_far_from_its_leaves_as_they_say(
    seed: int, few: bool, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    if few:
        monkeypatch.setattr(stairs, "VALUES", 8)
        monkeypatch.setattr(stairs, "PARTS", 5)
    rng = np.random.default_rng(seed)
    model = mean(rng, tmp_path)
    made = stairs.searched(model, DOMAIN, NOWHERE)
    raw = np.column_stack([rng.integers(-3, 41, 400), rng.uniform(-1.5, 2.5, 400), rng.integers(0, 3, 400), np.full(400, 2)])
    x = DOMAIN.encode(raw.astype(float))
    found, sums = made.forward(x), model.sums(x)
    assert (np.abs(found[:, :2] - sums) <= found[:, 2:] + 1e-12).all()
    assert found[:, 2:].max() < ((20.0 if model.squares is None else 60.0) if few else 0.01)
    assert stairs.searched(replace(model, lines=None, squares=None), DOMAIN, NOWHERE) is model.trees
    asked = model.trees.threshold[(model.trees.column == 1) & (model.trees.threshold > -1.5) & (model.trees.threshold < 2.5)]
    ends = made.threshold[len(model.trees.column) :][made.column[len(model.trees.column) :] == 1]
    assert np.isin(asked, ends).all() or not model.lines[:, 1].any()    # within a cell of the trees a function has its own ends
    boxes = np.sort(np.stack([raw[:8], raw[8:16]]), axis=0)     # parts end where these do, so that rows in them are less far off
    closer = stairs.searched(model, DOMAIN, NOWHERE, *boxes).forward(x)
    assert (np.abs(closer[:, :2] - sums) <= closer[:, 2:] + 1e-12).all()
    assert closer[:, 2:].sum() <= found[:, 2:].sum()
    assert closer[:, 2:].sum() < found[:, 2:].sum() or not few or not model.lines[:, :2].any()


def test_a_linear_function_that_is_0_is_no_tree() -> None:
    """As of a penalty that leaves no weight; that ended with an internal error."""
    model = fitted(MIXED["soft with a linear model"], 0)
    model.estimators_[0].coef_ = np.zeros((1, 3))
    network = read(model)
    verdict = vf.verify(vf.IndividualFairness(model=network, schema=SCHEMA, protected=["p"]), budget=vf.Budget(seconds=60))
    assert verdict.status is (vf.Status.VIOLATED if flips(network.forward(ROWS)[:, 0] > 0) else vf.Status.PROVED)


@pytest.fixture
def three_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A range has three parts, and values leaves of their own where it has no more than these."""
    monkeypatch.setattr(stairs, "VALUES", 3)
    monkeypatch.setattr(stairs, "PARTS", 3)


@pytest.mark.usefixtures("three_leaves")
@pytest.mark.parametrize("seed", draws(24))
@pytest.mark.parametrize("name", [*MIXED, "stacking with a linear model"])
def test_few_leaves_leave_questions_open_and_prove_nothing_wrong(name: str, seed: int) -> None:
    network = read(fitted((MIXED | STACKED)[name], seed))
    margins = network.forward(ROWS)[:, 0]
    shown = probabilities(network, margins).reshape(-1, 3)
    gap = float((shown.max(axis=1) - shown.min(axis=1)).max())
    query = vf.IndividualFairness(model=network, schema=SCHEMA, protected=["p"])
    for epsilon in (None, *(share * gap for share in (0.999, 1.001, 1.05, 1.3) if 1e-3 < gap < 0.75)):
        truth = flips(margins > 0) if epsilon is None else gap > epsilon
        verdict = vf.verify(replace(query, epsilon=epsilon), budget=vf.Budget(seconds=20))
        assert verdict.status in (vf.Status.UNKNOWN, vf.Status.VIOLATED if truth else vf.Status.PROVED)
        if verdict.certificate is not None:
            assert vf.check(verdict.certificate, model=network, schema=SCHEMA).accepted


@pytest.mark.usefixtures("three_leaves")
@pytest.mark.parametrize("seed", draws(12))
@pytest.mark.parametrize("name", [*MIXED, "stacking with a linear model"])
def test_values_that_are_compared_are_told_apart_with_few_leaves(name: str, seed: int) -> None:
    """Two values of a protected number in one part of its range are not the same."""
    network = read(fitted((MIXED | STACKED)[name], seed))
    margins = network.forward(ROWS)[:, 0].reshape(6, 15)
    gap = float(np.ptp(margins, axis=0).max())
    asked = vf.ProbabilityGap(model=network, schema=SCHEMA, protected=["a"], scale="logit")
    found = vf.verify(asked, budget=vf.Budget(seconds=20))
    assert found.lower <= gap + 1e-9 <= found.upper + 2e-9
    query = vf.IndividualFairness(model=network, schema=SCHEMA, protected=["a"])
    decided = bool(((margins > 0).any(axis=0) & (margins <= 0).any(axis=0)).any())
    assert vf.verify(query, budget=vf.Budget(seconds=20)).status in (
        vf.Status.UNKNOWN, vf.Status.VIOLATED if decided else vf.Status.PROVED)
    most = vf.verify(vf.KDiscrimination(model=network, schema=SCHEMA, protected=["a"]), budget=vf.Budget(seconds=20))
    for one in (found, most):
        assert one.certificate is None or vf.check(one.certificate, model=network, schema=SCHEMA).accepted


@pytest.mark.parametrize("seed", draws(12))
@pytest.mark.parametrize("name", MIXED)
def test_proofs_about_real_features_hold_at_random_rows(name: str, seed: int) -> None:
    network, rng = read(fitted(MIXED[name], seed)), np.random.default_rng(seed)
    schema = schema_of(real("a", -2.0, 3.0), real("b", 0.0, 4.0), FEATURES[2], positive="logit > 0")
    raw = np.repeat(np.column_stack([rng.uniform(-2, 3, 3000), rng.uniform(0, 4, 3000), np.zeros(3000)]), 3, axis=0)
    raw[:, 2] = np.tile(np.arange(3), 3000)
    shown = network.forward(schema.encode(raw))[:, 0].reshape(-1, 3)
    most = float((shown.max(axis=1) - shown.min(axis=1)).max())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = vf.verify(vf.ProbabilityGap(model=network, schema=schema, protected=["p"], scale="logit"),
                          budget=vf.Budget(seconds=10))
    assert found.upper >= most - 1e-9
    assert found.upper - found.lower < 0.02
    if found.certificate is not None:
        assert vf.check(found.certificate, model=network, schema=schema).accepted
