"""Where boxes of tree ensembles are cut, beside every cut tried."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from encoders.trees.compiled import held, real, whole
from verifair.engine.search.ensembles.cuts import SMALL, _best_cut
from verifair.engine.search.ensembles.evened import grown, room_to_even

CELLS = 6
"""Of each of three variables: two are ordered, the last one holds categories."""
Node = Any
"""A leaf: its value. A split: (variable, cells that go left, left node, right node)."""


def random_tree(rng: np.random.Generator, depth: int, ends: list[set[int]]) -> Node:
    """A tree of which every leaf is met by some row. ends: of each variable, the cells that the path leaves."""
    v = int(rng.integers(3))
    if depth == 0 or len(ends[v]) == 1:
        return float(rng.integers(-8, 9))
    cells = sorted(ends[v])
    count = int(rng.integers(1, len(cells)))
    left = set(cells[:count]) if v < 2 else set(rng.permutation(cells)[:count].tolist())
    sides = [random_tree(rng, depth - 1, [*ends[:v], side, *ends[v + 1 :]]) for side in (left, ends[v] - left)]
    return v, left, *sides


def least(node: Node, box: list[set[int]]) -> float:
    """The least leaf that the box meets."""
    if isinstance(node, float):
        return node
    v, cells, left, right = node
    sides = ((left, box[v] & cells), (right, box[v] - cells))
    return min(least(side, [*box[:v], inside, *box[v + 1 :]]) for side, inside in sides if inside)


def flat(trees: list[Node]) -> tuple[list[int], list[int], list[int], list[int], list[int], list[float]]:
    """Variables, cuts, right branches, where each tree begins and ends, sets, and the values of leaves."""
    variable, cut, right, ends, sets, adds = list[int](), list[int](), list[int](), list[int](), list[int](), list[float]()

    def add(node: Node, path: set[int]) -> None:
        at = len(variable)
        variable.append(-1)
        cut.append(len(adds))
        right.append(0)
        if isinstance(node, float):
            adds.append(node)
            return
        v, cells, first, second = node
        variable[at], cut[at] = v, max(cells) if v < 2 else len(sets)
        sides = (cells, path - cells) if v == 2 else (path, path)
        sets.extend(sum(1 << x for x in side) for side in sides if v == 2)
        add(first, sides[0])
        right[at] = len(variable)
        add(second, sides[1])

    for tree in trees:
        ends.append(len(variable))
        add(tree, set(range(CELLS)))
        ends.append(len(variable))
    return variable, cut, right, ends, sets or [0], adds


@pytest.mark.parametrize("seed", range(20))
def test_a_box_is_cut_where_both_halves_gain_most(seed: int) -> None:
    rng = np.random.default_rng(seed)
    box = [set(range(CELLS))] * 3
    trees = [tree for tree in (random_tree(rng, 4, box) for _ in range(8)) if not isinstance(tree, float)]
    variable, cut, right, ends, sets, adds = flat(trees)
    gains = np.zeros((3, CELLS, 2))
    for v in range(3):
        for c in range(CELLS - 1):
            halves = ({x for x in box[v] if x <= c}, {x for x in box[v] if x > c})
            gains[v, c] = [sum(least(t, [*box[:v], half, *box[v + 1 :]]) - least(t, box) for t in trees) for half in halves]
    score = np.maximum(gains, SMALL).prod(axis=2)
    notes = grown(room_to_even(len(trees), held([CELLS] * 3)), len(variable), 3)
    found = _best_cut(
        whole(1)[0], len(trees), held(ends), held(variable), held(cut), held(right), held([0, 0, 1]), held(sets), held(adds), 1,
        held([1.0]), whole(1)[0], held([0, 0, 0]), held([CELLS - 1] * 3), whole(1)[0], notes)
    assert score.max() > SMALL
    assert score[found] == score.max()


def test_no_cut_gains_anything_where_all_leaves_are_equal() -> None:
    notes = grown(room_to_even(1, held([2])), 3, 1)
    found = _best_cut(
        whole(1)[0], 1, held([0, 3]), held([0, -1, -1]), held([0, 0, 0]), held([2, 0, 0]), held([0]), held([0]), held(real(1)), 1,
        held([1.0]), whole(1)[0], held([0]), held([1]), whole(1)[0], notes)
    assert found == (-1, -1)
