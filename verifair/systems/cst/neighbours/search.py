"""The nearest points of an embedding around many centers: exact for the distance, up to rounding.

Points of the same categories are of one kind. Around a center whose own kind holds enough points, a k-d tree of their numbers finds
the nearest of these. A point of another kind is measured only if its unequal categories alone do not make it farther. Around
centers of rare kinds, points are measured one by one, those with the fewest unequal categories first.

An attribute of 40 categories is 40 coordinates of an embedding, in which one k-d tree of all points would prune nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from encoders.arrays import Array, Booleans, Integers
from verifair.aside import Aside
from verifair.systems.cst.neighbours.distance import Metric
from verifair.systems.groups import ROWS, identities

CELLS = 1 << 17
"""Distances measured at once."""
TREES = 64
"""Kept: centers of one kind come one after another."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Search:
    """m points by their K kinds.

    codes: (c, K) their categories.   start: (K + 1,) where each kind's points begin in `order`.   order: (m,) the points, those of
    one kind side by side.   numbers: (m, w) of the points in this order; a column of 0 where there are none.
    trees: kind -> its k-d tree, built when first needed.
    """

    metric: Metric
    codes: npt.NDArray[np.int16]
    start: Integers
    order: Integers
    numbers: Array
    trees: dict[int, cKDTree] = field(default_factory=dict)

    @classmethod
    def of(cls, points: Array, metric: Metric) -> Search:
        """points: (m, E) of the metric's embedding, all different."""
        kind = identities(points, range(len(metric.numbers), points.shape[1]))
        _, first, count = np.unique(kind, return_index=True, return_counts=True)
        order, numbers = np.argsort(kind, kind="stable"), Aside.of(len(points), max(len(metric.numbers), 1)).values
        numbers[:, 0] = 0.0
        for j in range(len(metric.numbers)):
            numbers[:, j] = points[order, j]
        codes = np.ascontiguousarray(metric.parts(points[first])[1].T)
        return cls(metric=metric, codes=codes, start=np.concatenate([[0], np.cumsum(count)]), order=order, numbers=numbers)

    def __call__(self, centers: Array, width: int) -> tuple[Array, Integers]:
        """Return distances and points (B, width), the nearest first, around centers (B, E); fastest in the order of categories."""
        numbers, codes = self.metric.parts(centers)
        if not numbers.shape[1]:
            numbers = np.zeros((len(centers), 1))
        power, point = np.empty((len(centers), width)), np.empty((len(centers), width), dtype=np.int64)
        ends = [*(np.flatnonzero((codes[1:] != codes[:-1]).any(axis=1)) + 1).tolist(), len(centers)]
        begin = 0
        for end in ends:
            unequal = (self.codes != codes[begin, :, None]).sum(axis=0)
            power[begin:end], point[begin:end] = self._nearest_points(numbers[begin:end], unequal, width)
            begin = end
        return power if self.metric.p == 1 else np.sqrt(power), point

    def _nearest_points(self, centers: Array, unequal: Integers, width: int) -> tuple[Array, Integers]:
        """p-th powers of distances and points (B, width), the nearest first, around centers (B, w) of one kind.

        unequal: (K,) how many categories of each kind differ from theirs.
        """
        available = np.cumsum(np.bincount(unequal, weights=np.diff(self.start)))  # points with at most so many unequal categories
        max_unequal = np.searchsorted(available, width)
        if max_unequal == 0:
            tree, start = self._tree(int(np.argmin(unequal)))
            power, position = tree.query(centers, k=np.arange(1, width + 1), p=self.metric.p)
            power, point = power if self.metric.p == 1 else np.square(power), self.order[start + position]
        else:
            power, point = self._nearest_among(centers, unequal <= max_unequal, unequal, width)
        lower_bound = self.metric.unequal * unequal
        lower_bound[unequal <= max_unequal] = np.inf
        rows = np.flatnonzero(power[:, -1] >= lower_bound.min(initial=np.inf))
        if len(rows):
            more_power, more_point = self._nearest_among(centers[rows], lower_bound <= power[rows, -1].max(), unequal, width)
            power[rows], point[rows] = _smallest(np.hstack([power[rows], more_power]), np.hstack([point[rows], more_point]), width)
        return power, point

    def _tree(self, kind: int) -> tuple[cKDTree, int]:
        """Return the tree of one kind's points, and the position in `order` of the first of them."""
        start, end = self.start[kind : kind + 2].tolist()
        tree = self.trees.get(kind)
        if tree is None:
            tree = cKDTree(self.numbers[start:end])
            if len(self.trees) >= TREES:
                self.trees.clear()
            self.trees[kind] = tree
        return tree, start

    def _nearest_among(self, centers: Array, mask: Booleans, unequal: Integers, width: int) -> tuple[Array, Integers]:
        """p-th powers of distances and points, (B, width) or of all, the nearest first, among points of some kinds (K,)."""
        power, point = np.empty((len(centers), 0)), np.empty((len(centers), 0), dtype=np.int64)
        for positions, base in self._pieces(np.flatnonzero(mask), unequal):
            numbers, size = self.numbers[positions], max(1, CELLS // len(positions))
            results = []
            for b in range(0, len(centers), size):
                powers = cdist(centers[b : b + size], numbers, "cityblock" if self.metric.p == 1 else "sqeuclidean") + base
                points = np.broadcast_to(self.order[positions], powers.shape)
                results.append(_smallest(np.hstack([power[b : b + size], powers]), np.hstack([point[b : b + size], points]), width))
            power, point = (np.concatenate(pieces) for pieces in zip(*results, strict=True))
        return power, point

    def _pieces(self, kinds: Integers, unequal: Integers) -> Iterator[tuple[Integers, Array]]:
        """Yield (q,) positions in `order` of these kinds' points, about ROWS at a time, and (q,) the contribution of their
        categories."""
        count = np.diff(self.start)[kinds]
        for group in np.split(np.arange(len(kinds)), np.flatnonzero(np.diff(np.cumsum(count) // ROWS)) + 1):
            ends = np.cumsum(count[group])
            begin = np.repeat(self.start[kinds[group]] - ends + count[group], count[group])
            yield begin + np.arange(ends[-1]), np.repeat(self.metric.unequal * unequal[kinds[group]], count[group])


def _smallest(power: Array, point: Integers, width: int) -> tuple[Array, Integers]:
    """Return the `width` least powers of each row (B, q), in order (all if there are fewer), and their points."""
    if power.shape[1] > width:
        nearest = np.argpartition(power, width - 1, axis=1)[:, :width]
        power, point = np.take_along_axis(power, nearest, axis=1), np.take_along_axis(point, nearest, axis=1)
    order = np.argsort(power, axis=1, kind="stable")
    return np.take_along_axis(power, order, axis=1), np.take_along_axis(point, order, axis=1)
