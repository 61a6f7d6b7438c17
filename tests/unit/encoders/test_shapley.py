"""Shapley values of trees against the definition: every coalition of players, every row of the background."""

import itertools
from math import factorial
from pathlib import Path

import numpy as np
import pytest

from encoders.arrays import Array, Integers
from encoders.attributions.shapley import Masks, _LeafSums, shapley_values
from encoders.model import Link
from encoders.onnx.reader import read_model
from encoders.trees.ensemble import TreeEnsemble
from tests.tree_models import random_tree, save


def by_definition(model: TreeEnsemble, margin: Array, owner: Integers, x: Array, background: Array) -> Array:
    players = int(owner.max()) + 1
    worth = {}
    for coalition in itertools.product([False, True], repeat=players):
        own = np.array(coalition)[owner]
        mixed = np.where(own, x[:, None, :], background[None]).reshape(-1, x.shape[1])
        worth[coalition] = (model.forward(mixed) @ margin).reshape(len(x), -1).mean(axis=1)
    found = np.zeros((len(x), players))
    for coalition, value in worth.items():
        size = sum(coalition)
        for i in range(players):
            if not coalition[i]:
                weight = factorial(size) * factorial(players - size - 1) / factorial(players)
                joined = (*coalition[:i], True, *coalition[i + 1 :])
                found[:, i] += weight * (worth[joined] - value)
    return found


@pytest.mark.parametrize("seed", range(12))
def test_every_coalition(seed: int, tmp_path: Path) -> None:
    """Features asked twice on a way, blocks of columns, several scores, missing values, duplicated rows and equal thresholds."""
    rng, scores = np.random.default_rng(seed), 1 + seed % 2
    trees = [random_tree(rng, 7, int(rng.integers(1, 8)), scores=scores) for _ in range(int(rng.integers(1, 6)))]
    model = read_model(save(tmp_path / "m.onnx", [*trees, trees[0]], 7, missing=seed % 3 == 0))
    owner = np.array([0, 1, 2, 2, 2, 3, 4]) if seed % 4 else np.arange(7)
    rows = rng.choice([-1, 0, 0.5, 1, 2, 3], size=(18, 7)).astype(np.float64)
    if seed % 3 == 0:
        rows[rng.random(rows.shape) < 0.2] = np.nan
    x, background, margin = rows[:6], rows[rng.integers(4, 18, size=20)], rng.normal(size=scores)
    assert isinstance(model, TreeEnsemble)
    found = shapley_values(model, margin, owner, x, background)
    np.testing.assert_allclose(found, by_definition(model, margin, owner, x, background), atol=1e-12)
    np.testing.assert_allclose(
        found.sum(axis=1), model.forward(x) @ margin - (model.forward(background) @ margin).mean(), atol=1e-12
    )


def test_ways_of_many_players_count_sets_otherwise(tmp_path: Path) -> None:
    """A chain of 20 questions about 20 features: more than a table of all their sets holds."""
    rng, tree = np.random.default_rng(0), [1.0]
    for k in range(20):
        tree = (k, "BRANCH_LEQ", 0.0, tree, [float(k)])
    model = read_model(save(tmp_path / "m.onnx", [tree], 20))
    assert isinstance(model, TreeEnsemble)
    x, background = rng.choice([-1.0, 1.0], p=[0.9, 0.1], size=(2, 30, 20))
    found = shapley_values(model, np.ones(1), np.arange(20), x, background)
    np.testing.assert_allclose(found.sum(axis=1), model.forward(x)[:, 0] - model.forward(background).mean(), atol=1e-12)
    same = x[:, 7] == background[0, 7]
    np.testing.assert_allclose(shapley_values(model, np.ones(1), np.arange(20), x, background[:1])[same, 7], 0, atol=1e-12)


def test_rows_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    model = read_model(save(tmp_path / "m.onnx", [(0, "BRANCH_LEQ", 0.0, [1.0], [2.0])], 2))
    assert isinstance(model, TreeEnsemble)
    for x, background in ((np.zeros((1, 3)), np.zeros((1, 3))), (np.zeros((1, 2)), np.zeros((0, 2)))):
        with pytest.raises(ValueError, match="do not fit"):
            shapley_values(model, np.ones(1), np.arange(2), x, background)
    with pytest.raises(ValueError, match="owner"):
        shapley_values(model, np.ones(2), np.arange(2), np.zeros((1, 2)), np.zeros((1, 2)))


def test_a_set_of_categories_is_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten sets, each two splits that share their ends: 2^10 ways to the last leaf, which is computed once."""
    sets = 10
    column = np.array([[k, k, -1] for k in range(sets)] + [[-1, -1, -1]]).ravel()
    own = np.arange(len(column))
    left, right = own.copy(), own.copy()
    left[0:-3:3], right[0:-3:3], left[1:-3:3], right[1:-3:3] = own[3::3], own[1:-3:3], own[2:-3:3], own[3::3]
    model = TreeEnsemble(
        root=np.array([0]), column=column, threshold=np.tile([0.0, 1.0, 0.0], sets + 1), left=left, right=right,
        missing_left=np.zeros(len(column), dtype=np.bool_), value=np.where(column < 0, own, 0.0)[:, None], base=np.zeros(1),
        columns=sets, link=Link.IDENTITY, source_sha256="",
    )
    leaf, seen = _LeafSums._leaf, list[float]()

    def noted(walk: _LeafSums, failed: Masks, asked: tuple[int, ...], value: float) -> None:
        seen.append(value)
        leaf(walk, failed, asked, value)

    monkeypatch.setattr(_LeafSums, "_leaf", noted)
    x, background = np.random.default_rng(0).choice([0.0, 1.0, 2.0], p=[0.4, 0.2, 0.4], size=(2, 6, sets))
    found = shapley_values(model, np.ones(1), np.arange(sets), x, background)
    assert len(seen) == len(set(seen)) <= sets + 1
    np.testing.assert_allclose(found, by_definition(model, np.ones(1), np.arange(sets), x, background), atol=1e-12)
