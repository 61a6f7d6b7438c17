"""The decoder of trees: the leaves' boxes and signs against a recursive definition, and arrays that are no tree."""

from __future__ import annotations

import numpy as np
import pytest

from encoders.arrays import Array
from encoders.domain import Domain, Regions
from verifair.checker.certificates.tree import leaf_regions

WHOLE = np.array([True, False])
DOMAIN = Domain(
    integer=WHOLE, lower=np.zeros(2), upper=np.array([9.0, 1.0]), offset=np.zeros(2), scale=np.ones(2), start=np.arange(2),
    one_hot=np.zeros(2, dtype=bool), width=np.ones(2, dtype=np.int64),
)
NEURONS = 3


def root() -> Regions:
    return Regions.whole(DOMAIN.lower, DOMAIN.upper, NEURONS)


Leaf = tuple[list[float], list[float], set[tuple[int, str]]]


def grown(
    rng: np.random.Generator, low: Array, high: Array, signs: set[tuple[int, str]], depth: int
) -> tuple[list[int], list[float], list[Leaf]]:
    """A random tree in preorder, and its leaves (low, high, signs) by their definition."""
    choices = [v for v in range(2) if (high[v] > low[v] if WHOLE[v] else True)] + [-2 - n for n in range(NEURONS)]
    if depth == 0 or rng.random() < 0.25:
        return [-1], [0.0], [(low.tolist(), high.tolist(), signs)]
    v, cut = int(rng.choice(choices)), 0.0
    left_high, right_low, left_signs, right_signs = high.copy(), low.copy(), set(signs), set(signs)
    if v < -1:
        left_signs.add((-2 - v, "inactive"))
        right_signs.add((-2 - v, "active"))
    else:
        cut = float(rng.integers(low[v], high[v])) if WHOLE[v] else float(rng.uniform(low[v], high[v]))
        left_high[v], right_low[v] = cut, cut + 1 if WHOLE[v] else cut
    left = grown(rng, low, left_high, left_signs, depth - 1)
    right = grown(rng, right_low, high, right_signs, depth - 1)
    return [v, *left[0], *right[0]], [cut, *left[1], *right[1]], left[2] + right[2]


@pytest.mark.parametrize("seed", range(60))
def test_leaves_are_those_of_the_definition(seed: int) -> None:
    feature, cut, expected = grown(np.random.default_rng(seed), DOMAIN.lower, DOMAIN.upper, set(), 6)
    found = leaf_regions(np.array(feature), np.array(cut), root(), DOMAIN)
    assert not isinstance(found, str)
    nodes, regions = found
    assert nodes.tolist() == [k for k, v in enumerate(feature) if v == -1]
    for k, (low, high, signs) in enumerate(expected):
        assert (regions.lower[k].tolist(), regions.upper[k].tolist()) == (low, high)
        assert regions.active[k].tolist() == [(n, "active") in signs for n in range(NEURONS)]
        assert regions.inactive[k].tolist() == [(n, "inactive") in signs for n in range(NEURONS)]


@pytest.mark.parametrize("seed", range(20))
def test_a_node_more_or_less_is_no_tree(seed: int) -> None:
    feature, cut, _ = grown(np.random.default_rng(seed), DOMAIN.lower, DOMAIN.upper, set(), 5)
    for k in range(len(feature)):
        without = np.delete(feature, k), np.delete(cut, k)
        assert isinstance(leaf_regions(*without, root(), DOMAIN), str), k
    more = leaf_regions(np.array([*feature, -1]), np.array([*cut, 0.0]), root(), DOMAIN)
    assert more == "the tree has nodes left over after its last leaf"


@pytest.mark.parametrize(("feature", "cut", "says"), [
    ([], [], "ends before its box is covered: 1"),
    ([0, -1], [4, 0], "ends before its box is covered: 1"),
    ([-1, -1], [0, 0], "left over"),
    ([2, -1, -1], [0, 0, 0], "splits feature 2"),
    ([-5, -1, -1], [0, 0, 0], "splits neuron 3"),
    ([-(2**31), -1, -1], [0, 0, 0], "which does not exist"),
    ([0, -1, -1], [9, 0, 0], "cuts feature 0 at 9"),  # nothing is left of whole numbers beyond the upper end
    ([0, -1, -1], [-1, 0, 0], "cuts feature 0 at -1"),
    ([0, -1, -1], [3.5, 0, 0], "cuts feature 0 at 3.5"),
    ([0, -1, -1], [np.nan, 0, 0], "cuts feature 0 at nan"),
    ([0, -1, -1], [np.inf, 0, 0], "cuts feature 0 at inf"),
    ([1, -1, -1], [np.nan, 0, 0], "cuts feature 1 at nan"),
    ([1, -1, -1], [1.5, 0, 0], "cuts feature 1 at 1.5"),
    ([0, 0, -1, -1, -1], [4, 5, 0, 0, 0], "outside the box 0 .. 4"),
])
def test_what_is_no_tree_is_told(feature: list[int], cut: list[float], says: str) -> None:
    found = leaf_regions(np.array(feature, dtype=np.int64), np.array(cut, dtype=float), root(), DOMAIN)
    assert isinstance(found, str)
    assert says in found


@pytest.mark.parametrize("cut", [-0.0, 0.0, 1.0])
def test_a_real_box_may_be_cut_at_its_ends(cut: float) -> None:
    found = leaf_regions(np.array([1, -1, -1]), np.array([cut, 0, 0]), root(), DOMAIN)
    assert not isinstance(found, str)
    assert found[1].upper[0, 1] == found[1].lower[1, 1] == cut


def test_a_sign_may_be_split_twice() -> None:
    found = leaf_regions(np.array([-2, -2, -1, -1, -1]), np.zeros(5), root(), DOMAIN)
    assert not isinstance(found, str)
    assert found[1].active[:, 0].tolist() == [False, True, True]
    assert found[1].inactive[:, 0].tolist() == [True, True, False]
