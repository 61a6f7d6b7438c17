"""The k nearest rows of a group around search centers: exact, among distinct points, with ties shared or broken by row.

Real attributes are often whole numbers and words, so that many rows lie equally far and "the k nearest" is no set:

share   rows tied for the last places share them evenly, as if each were drawn with equal chance; no order of rows matters
first   the earlier rows of the table win, as in a stable sort
last    the later rows of the table win, as in the authors' heap of (-distance, row)

A k-d tree finds them where there are few coordinates, a pruned scan where categories make many: an attribute of 40 categories is 40
coordinates of an embedding, in which a k-d tree prunes nothing. The scan counts unequal categories first, which is cheap, and
measures numbers only at points that may be among the nearest.

Distances within rounding (`Pool.rounding`) of each other are ties. Sound? Complete? exact for the distance, up to that rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from encoders.network import Array, Booleans, Integers
from verifair.errors import QueryError
from verifair.systems.cst.distance import Metric
from verifair.systems.cst.settings import Ties

TIES: tuple[Ties, ...] = get_args(Ties)
CENTERS = 4096
"""Between two signs of progress."""
CELLS = 4_000_000
"""Distances held at once."""
MANY = 16
"""Coordinates beyond which trees are slower than scans."""
Search = Callable[[Array, int, int], tuple[Array, Integers]]
"""(centers (B, D), width, threads) -> distances and points, (B, width) each, the nearest first."""


@dataclass(frozen=True, kw_only=True, eq=False)
class NeighbourPool:
    """Rows to search: M rows at m distinct points of dimension D.

    rows: (M,) positions in the table, grouped by point and ascending within each.   start: (m + 1,) where each point's rows begin.
    points: (m, D) of the metric's embedding.   negative: (M,) decisions, in the order of `rows`.
    """

    rows: Integers
    start: Integers
    points: Array
    metric: Metric
    negative: Booleans

    @classmethod
    def of(cls, rows: Integers, embedded: Array, negative: Booleans, metric: Metric) -> NeighbourPool:
        """rows: (M,) positions in the table.   embedded (N, D) by the metric, negative (N,): of the whole table."""
        points, place = np.unique(embedded[rows], axis=0, return_inverse=True)
        order = np.lexsort((rows, place))
        start = np.concatenate([[0], np.cumsum(np.bincount(place, minlength=len(points)))])
        return cls(rows=rows[order], start=start, points=points, metric=metric, negative=negative[rows[order]])

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def search(self) -> Search:
        return search_of(self.points, self.metric)

    def __getstate__(self) -> dict[str, Any]:
        """All but the search, which is built again where it is needed: a k-d tree's closure cannot be sent to another process."""
        return {name: value for name, value in self.__dict__.items() if name != "search"}

    @cached_property
    def count(self) -> Integers:
        """(m,) rows at each point."""
        return np.diff(self.start)

    @cached_property
    def bad(self) -> Integers:
        """(m,) those decided negatively."""
        return np.diff(np.concatenate([[0], np.cumsum(self.negative)])[self.start])

    @cached_property
    def rounding(self) -> float:
        """Distances closer than this are equal: some thousand units in the last place of the coordinates.

        For distances above 1, as those from counterfactuals far outside the table, it is a share of the distance.
        """
        return 1e-12 * max(1.0, float(np.abs(self.points).max(initial=0.0)))

    def own(self, rows: Integers) -> Own:
        """Where these rows of the table (C,), all of them in the pool, lie in it."""
        sorter = np.argsort(self.rows, kind="stable")
        at = sorter[np.searchsorted(self.rows, rows, sorter=sorter)]
        return Own(row=rows, point=np.searchsorted(self.start, at, side="right") - 1, negative=self.negative[at])


@dataclass(frozen=True, kw_only=True, eq=False)
class Own:
    """Rows that are no neighbours of themselves, all (C,): position in the table, point in the pool, whether decided negatively."""

    row: Integers
    point: Integers
    negative: Booleans

    def take(self, which: Integers) -> Own:
        return Own(row=self.row[which], point=self.point[which], negative=self.negative[which])


@dataclass(frozen=True, kw_only=True, eq=False)
class Near:
    """Points around B centers, the nearest first: distance, point, rows left to count and negative ones among them, all (B, q)."""

    distance: Array
    point: Integers
    count: Integers
    bad: Integers

    @cached_property
    def counted(self) -> Integers:
        return np.cumsum(self.count, axis=1)


def negatives(
    pool: NeighbourPool, centers: Array, k: Sequence[int], *, own: Integers | None = None, ties: Ties = "share", threads: int = 2,
    progress: Callable[[int], None] | None = None,
) -> Array:
    """(K, C) how many of the k nearest rows of the pool around each center (C, D) were decided negatively, for each k.

    own: (C,) rows of the table, one for each center, that are no neighbours of it: the complainants themselves.
    ties: see above; shared places count fractions.   progress(done) counts centers.
    Raises QueryError where a k is larger than the pool.
    """
    most = len(pool) - (own is not None)
    if max(k) > most:
        raise QueryError(f"k = {max(k)}: the group has {most} rows to choose from; the largest k is {most}")
    if ties not in TIES:
        raise QueryError(f"ties = {ties!r}: expected one of {', '.join(TIES)}")
    found = np.empty((len(k), len(centers)))
    mine = None if own is None else pool.own(own)
    for begin in range(0, len(centers), CENTERS):
        left = np.arange(begin, min(begin + CENTERS, len(centers)))
        width = min(len(pool.points), max(k) + 2)
        while len(left):
            left = left[_step(pool, centers, left, k, mine, ties, width, threads, found)]
            width = min(len(pool.points), 2 * width)
        if progress is not None:
            progress(min(begin + CENTERS, len(centers)))
    return found


def _step(
    pool: NeighbourPool, centers: Array, which: Integers, k: Sequence[int], own: Own | None, ties: Ties, width: int, threads: int,
    found: Array,
) -> Booleans:
    """Fill `found` for these centers from their `width` nearest points; tells for which (B,) ties may go on beyond them."""
    short = np.zeros(len(which), dtype=bool)
    size = max(1, CELLS // width)
    for begin in range(0, len(which), size):
        part = which[begin : begin + size]
        mine = None if own is None else own.take(part)
        near = _near(pool, centers[part], mine, width, threads)
        for row, one in enumerate(k):
            low, high, more = _edge(near, one, pool.rounding, whole=width == len(pool.points))
            short[begin : begin + size] |= more
            found[row, part] = _shared(near, one, low, high) if ties == "share" else _by_row(pool, near, one, low, high, mine, ties)
    return short


def _near(pool: NeighbourPool, centers: Array, own: Own | None, width: int, threads: int) -> Near:
    distance, point = pool.search(centers, width, threads)
    count, bad = pool.count[point], pool.bad[point]
    if own is not None:
        mine = point == own.point[:, None]
        count, bad = count - mine, bad - (mine & own.negative[:, None])
    return Near(distance=distance, point=point, count=count, bad=bad)


def _edge(near: Near, k: int, rounding: float, *, whole: bool) -> tuple[Integers, Integers, Booleans]:
    """(low, high, short), each (B,): points before `low` are nearer than the k-th row, those before `high` tie with it.

    short: the ties may go on beyond the points at hand.
    """
    reached = near.counted >= k
    at = np.where(reached.any(axis=1), reached.argmax(axis=1), reached.shape[1] - 1)
    radius = near.distance[np.arange(len(at)), at][:, None]
    slack = rounding * np.maximum(1.0, radius)
    low = (near.distance < radius - slack).sum(axis=1)
    high = (near.distance <= radius + slack).sum(axis=1)
    short = (high == near.distance.shape[1]) & (not whole)
    return low, high, short


def _upto(values: Integers, end: Integers) -> Integers:
    """(B,) sums of the first `end` values of each row."""
    total = np.concatenate([np.zeros((len(values), 1), dtype=np.int64), np.cumsum(values, axis=1)], axis=1)
    return np.asarray(total[np.arange(len(values)), end])


def _shared(near: Near, k: int, low: Integers, high: Integers) -> Array:
    inside, bad = _upto(near.count, low), _upto(near.bad, low)
    tied, tied_bad = _upto(near.count, high) - inside, _upto(near.bad, high) - bad
    return np.asarray(bad + (k - inside) * tied_bad / np.maximum(tied, 1))


def _by_row(pool: NeighbourPool, near: Near, k: int, low: Integers, high: Integers, own: Own | None, ties: Ties) -> Array:
    found = _shared(near, k, low, high)
    torn = np.flatnonzero(_upto(near.count, high) > k)
    for b in torn:
        inside = int(near.count[b, : low[b]].sum())
        points, mine = near.point[b, low[b] : high[b]], None if own is None else int(own.row[b])
        chosen = _tied_rows(pool, points, mine, ties, most=k - inside + 1)  # one more, as the center's own row may be among them
        found[b] = near.bad[b, : low[b]].sum() + pool.negative[chosen[: k - inside]].sum()
    return found


def _tied_rows(pool: NeighbourPool, points: Integers, own: int | None, ties: Ties, most: int | None = None) -> Integers:
    """Positions in the pool of the rows at these points, without `own`, those that win first: the table's order, or for "last" its
    reverse. most: no more than so many winners of each point.
    """
    starts, ends = pool.start[points], pool.start[points + 1]
    if most is not None and ties == "last":
        starts = np.maximum(starts, ends - most)
    elif most is not None:
        ends = np.minimum(ends, starts + most)
    at = np.concatenate([np.arange(low, high) for low, high in zip(starts, ends, strict=True)])
    at = at[np.argsort(-pool.rows[at] if ties == "last" else pool.rows[at], kind="stable")]
    return at if own is None else at[pool.rows[at] != own]


def nearest(
    pool: NeighbourPool, center: Array, k: int, *, own: int | None = None, ties: Ties = "share"
) -> tuple[Integers, Array, Array]:
    """The k nearest rows around one center (D,): positions in the table, distances, and weights, the nearest first, each (R,).

    With shared ties R may exceed k and weights at the edge are below 1; they sum to k. The same rows that `negatives` counts.
    """
    mine = None if own is None else pool.own(np.array([own]))
    width = min(len(pool.points), k + 2)
    while True:
        near = _near(pool, center[None], mine, width, 1)
        low, high, short = _edge(near, k, pool.rounding, whole=width == len(pool.points))
        if not short[0]:
            break
        width = min(len(pool.points), 2 * width)
    blocks = [near.point[0, j : j + 1] for j in range(low[0])] + [near.point[0, low[0] : high[0]]]
    at = [_tied_rows(pool, points, own, ties) for points in blocks]
    distance = np.repeat(near.distance[0, : len(blocks)], [len(rows) for rows in at])
    rows = pool.rows[np.concatenate(at)]
    if ties != "share":
        return rows[:k], distance[:k], np.ones(k)
    inside = len(rows) - len(at[-1])
    return rows, distance, np.concatenate([np.ones(inside), np.full(len(at[-1]), (k - inside) / len(at[-1]))])


def search_of(points: Array, metric: Metric) -> Search:
    """A search among points (m, D) of the metric's embedding."""
    return _scan(points, metric) if metric.words and points.shape[1] > MANY else _tree(points, metric.p)


def _tree(points: Array, p: int) -> Search:
    tree = cKDTree(points)

    def search(centers: Array, width: int, threads: int) -> tuple[Array, Integers]:
        distance, point = tree.query(centers, k=np.arange(1, width + 1), p=p, workers=threads)
        return distance, point

    return search


def _scan(points: Array, metric: Metric) -> Search:
    numbers, codes = metric.parts(points)
    numbers, codes = np.ascontiguousarray(numbers.T), np.ascontiguousarray(codes.T)  # one attribute after the other
    price = metric.unequal * np.arange(len(codes) + 1)  # of so many unequal categories

    def nearest(center: Array, code: npt.NDArray[np.int16], width: int) -> tuple[Array, Integers]:
        unequal = np.zeros(codes.shape[1], dtype=np.int16)
        for mine, theirs in zip(code, codes, strict=True):
            unequal += theirs != mine
        enough = int(np.searchsorted(np.cumsum(np.bincount(unequal)), width))
        which = np.flatnonzero(unequal <= enough)
        power = price[unequal[which]] + _power(numbers[:, which], center, metric.p)
        radius = np.partition(power, width - 1)[width - 1]
        more = np.flatnonzero((unequal > enough) & (price <= radius)[unequal])
        if len(more):
            power = np.concatenate([power, price[unequal[more]] + _power(numbers[:, more], center, metric.p)])
            which = np.concatenate([which, more])
        chosen = np.argpartition(power, width - 1)[:width]
        chosen = chosen[np.argsort(power[chosen], kind="stable")]
        return power[chosen], which[chosen]

    def search(centers: Array, width: int, threads: int) -> tuple[Array, Integers]:
        around, code = metric.parts(centers)
        power, point = np.empty((len(centers), width)), np.empty((len(centers), width), dtype=np.int64)

        def part(start: int) -> None:
            for b in range(start, len(centers), threads):
                power[b], point[b] = nearest(around[b], code[b], width)

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(part, range(threads)))
        return power if metric.p == 1 else np.sqrt(power), point

    return search


def _power(numbers: Array, center: Array, p: int) -> Array:
    """(w,) the p-th power of the distances of points (m, w) from a center (m,)."""
    gap = np.abs(numbers - center[:, None])
    return np.asarray(gap.sum(axis=0) if p == 1 else np.square(gap).sum(axis=0))
