"""The least, or the largest, score of several trees as one tree, for ONNX's aggregations MIN and MAX, which are no sums.

Each tree is appended at the leaves of those before it, without splits that are decided by earlier ones, and without trees that can
no longer change the score. Comparisons do not round, so the one tree is exact.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from encoders.arrays import Array, Integers

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
    feature, threshold, left, right, missing_left = (array.tolist() for array in nodes.values())
    score, roots, leaves = (sign * value).tolist(), root.tolist(), 1
    ends = [_largest_leaf(feature, left, right, score, node) for node in roots]
    best_after = [*accumulate(ends[::-1], max, initial=-np.inf)][::-1]
    result: list[tuple[int, float, int, int, bool, float]] = [LEAF]
    stack: list[tuple[int, int, int, float, dict[int, tuple[float, float, bool]]]] = [(0, 0, roots[0], -np.inf, {})]
    while stack:
        index, tree, node, best, bounds = stack.pop()
        while True:
            name = feature[node]
            if name < 0:
                best, tree = max(best, score[node]), tree + 1
                if best >= best_after[tree]:
                    result[index] = (-1, 0.0, index, index, False, sign * best)
                    break
                node = roots[tree]
                continue
            low, high, missing = bounds.get(name, EVERY)
            cut, left_too = min(max(threshold[node], low), high), missing_left[node]
            left_state = bounds | {name: (low, cut, missing and left_too)}, left[node]
            right_state = bounds | {name: (cut, high, missing and not left_too)}, right[node]
            goes_left, goes_right = low < cut or (missing and left_too), cut < high or (missing and not left_too)
            if not (goes_left and goes_right):
                bounds, node = left_state if goes_left else right_state
                continue
            leaves, child = leaves + 1, len(result)
            if leaves > MOST_LEAVES:
                return None
            result[index] = (name, threshold[node], child, child + 1, left_too, 0.0)
            result += [LEAF, LEAF]
            stack += [(child + k, tree, after, best, left_of) for k, (left_of, after) in enumerate((left_state, right_state))]
            break
    columns = [np.array(column) for column in zip(*result, strict=True)]
    return dict(zip(nodes, columns[:-1], strict=True)), columns[-1]


def _largest_leaf(feature: list[int], left: list[int], right: list[int], score: list[float], root: int) -> float:
    level, largest = {root}, -np.inf
    while level:
        largest = max([largest, *(score[node] for node in level if feature[node] < 0)])
        level = {side[node] for node in level if feature[node] >= 0 for side in (left, right)}
    return largest
