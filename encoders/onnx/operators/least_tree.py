"""The least, or the largest, score of several trees as one tree, for ONNX's aggregations MIN and MAX, which are no sums.

Each tree is appended at the leaves of those before it, without splits that are decided by earlier ones, and without trees that can
no longer change the score. Comparisons do not round, so the one tree is exact.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from encoders.network import Array, Integers

MOST_LEAVES = 1 << 14
EVERY = (-np.inf, np.inf, True)
"""The range of a feature before any split: numbers above the first and at most the second, and True if NaN is possible."""
LEAF = (-1, 0.0, 0, 0, False, 0.0)
Nodes = dict[str, npt.NDArray[Any]]
"""feature (-1 for a leaf), threshold, left, right and missing_left of nodes (K,), as `StoredTrees` has them, in this order."""


def least_tree(root: Integers, nodes: Nodes, value: Array, *, largest: bool) -> tuple[Nodes, Array] | None:
    """Return the tree of the least scores, or of the largest, with node 0 as its root, and its values; None if it has more than
    MOST_LEAVES leaves.

    root: (T,) of the trees.   value: (K,) scores of leaves.
    """
    sign = 1.0 if largest else -1.0
    feature, threshold, left, right, missing_left = (one.tolist() for one in nodes.values())
    score, roots, leaves = (sign * value).tolist(), root.tolist(), 1
    ends = [_largest_leaf(feature, left, right, score, one) for one in roots]
    rest = [*accumulate(ends[::-1], max, initial=-np.inf)][::-1]
    found: list[tuple[int, float, int, int, bool, float]] = [LEAF]
    waiting: list[tuple[int, int, int, float, dict[int, tuple[float, float, bool]]]] = [(0, 0, roots[0], -np.inf, {})]
    while waiting:
        at, tree, node, best, known = waiting.pop()
        while True:
            name = feature[node]
            if name < 0:
                best, tree = max(best, score[node]), tree + 1
                if best >= rest[tree]:
                    found[at] = (-1, 0.0, at, at, False, sign * best)
                    break
                node = roots[tree]
                continue
            low, high, missing = known.get(name, EVERY)
            cut, left_too = min(max(threshold[node], low), high), missing_left[node]
            here = known | {name: (low, cut, missing and left_too)}, left[node]
            there = known | {name: (cut, high, missing and not left_too)}, right[node]
            goes_left, goes_right = low < cut or (missing and left_too), cut < high or (missing and not left_too)
            if not (goes_left and goes_right):
                known, node = here if goes_left else there
                continue
            leaves, below = leaves + 1, len(found)
            if leaves > MOST_LEAVES:
                return None
            found[at] = (name, threshold[node], below, below + 1, left_too, 0.0)
            found += [LEAF, LEAF]
            waiting += [(below + k, tree, after, best, left_of) for k, (left_of, after) in enumerate((here, there))]
            break
    columns = [np.array(one) for one in zip(*found, strict=True)]
    return dict(zip(nodes, columns[:-1], strict=True)), columns[-1]


def _largest_leaf(feature: list[int], left: list[int], right: list[int], score: list[float], root: int) -> float:
    reached, most = {root}, -np.inf
    while reached:
        most = max([most, *(score[one] for one in reached if feature[one] < 0)])
        reached = {side[one] for one in reached if feature[one] >= 0 for side in (left, right)}
    return most
