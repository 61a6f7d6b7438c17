"""The k nearest rows of a group around search centers: exact, among distinct points, with ties shared or broken by row.

Real attributes are often whole numbers and words, so that many rows lie equally far and "the k nearest" is no set:

share   rows tied for the last places share them evenly, as if each were drawn with equal chance; no order of rows matters
first   the earlier rows of the table win, as in a stable sort
last    the later rows of the table win
heap    the later rows win among distances that are the same *float* (`Metric.literal`), and a control group is the k + 1 nearest
        rows less the complainant, if that is among them: as in the authors' code, whose heap holds (-distance, row)

A k-d tree finds them where there are few coordinates, a pruned scan where categories make many: an attribute of 40 categories is 40
coordinates of an embedding, in which a k-d tree prunes nothing. The scan counts unequal categories first, which is cheap, and
measures numbers only at points that may be among the nearest.

But for heap, distances within rounding (`Pool.rounding`) of each other are ties.
Sound? Complete? exact for the distance, up to that rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from encoders.network import Array, Booleans, Integers
from verifair.engine.parallel import Shared, in_order
from verifair.errors import QueryError
from verifair.systems.cst.distance import Metric
from verifair.systems.cst.settings import Ties
from verifair.systems.groups import identities

TIES: tuple[Ties, ...] = get_args(Ties)
CENTERS = 4096
"""Between two signs of progress."""
CELLS = 4_000_000
"""Distances held at once."""
MANY = 16
"""Coordinates beyond which trees are slower than scans."""
PIECE = 64
"""Centers of one task."""
Search = Callable[[Array, int], tuple[Array, Integers]]
"""(centers (B, E), width) -> distances and points, (B, width) each, the nearest first."""


@dataclass(frozen=True, kw_only=True, eq=False)
class NeighbourPool:
    """Rows to search: M rows at m distinct points.

    rows: (M,) positions in the table, grouped by point and ascending within each.   start: (m + 1,) where each point's rows begin.
    points: (m, E) of the metric's embedding.   negative: (M,) decisions, in the order of `rows`.
    literal: (m, d) the points as ties "heap" measures them, None where these are not asked for.
    """

    rows: Integers
    start: Integers
    points: Array
    metric: Metric
    negative: Booleans
    literal: Array | None = None

    @classmethod
    def of(
        cls, rows: Integers, embedded: Array, negative: Booleans, metric: Metric, literal: Array | None = None
    ) -> NeighbourPool:
        """rows: (M,) positions in the table.   embedded (N, E) by the metric, negative (N,), literal (N, d): of the whole table."""
        place = identities(embedded[rows])
        points = embedded[rows[np.unique(place, return_index=True)[1]]]
        order = np.lexsort((rows, place))
        start = np.concatenate([[0], np.cumsum(np.bincount(place, minlength=len(points)))])
        return cls(
            rows=rows[order], start=start, points=points, metric=metric, negative=negative[rows[order]],
            literal=None if literal is None else literal[rows[order[start[:-1]]]],
        )

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def search(self) -> Shared[Search]:
        return Shared(value=search_of(self.points, self.metric))

    def nearest(self, centers: Array, width: int, threads: int) -> tuple[Array, Integers]:
        """Search by threads of this process, or a cluster's workers."""
        parts = ((centers[start : start + PIECE], width) for start in range(0, len(centers), PIECE))
        distance, point = zip(*in_order(self.search, parts, threads), strict=True)
        return np.concatenate(distance), np.concatenate(point)

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
        return 1e-12 * max(1.0, float(np.abs(self.metric.parts(self.points)[0]).max(initial=0.0)))

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
    literal: Array | None = None, progress: Callable[[int], None] | None = None,
) -> Array:
    """(K, C) how many of the k nearest rows of the pool around each center (C, E) were decided negatively, for each k.

    own: (C,) rows of the table, one for each center, that are no neighbours of it: the complainants themselves; not with ties
    "heap", whose control groups `control` gives.
    ties: see above; shared places count fractions.   literal: (C, d) of the centers, for
    ties "heap".   progress(done) counts centers.   Raises QueryError where a k is larger than the pool.
    """
    return _counted(pool, centers, k, own, ties, threads, literal, progress)[0]


def control(
    pool: NeighbourPool, centers: Array, k: Sequence[int], own: Integers, *, ties: Ties = "share", threads: int = 2,
    literal: Array | None = None, progress: Callable[[int], None] | None = None,
) -> tuple[Array, Integers]:
    """(K, C) negative decisions in the complainants' control groups, themselves left out, and (K, C) the sizes of these groups.

    The sizes are k, and with ties "heap" k + 1 for complainants who are not among their k + 1 nearest. As `negatives` otherwise.
    """
    if ties != "heap":
        return negatives(pool, centers, k, own=own, ties=ties, threads=threads, progress=progress), _sizes(k, len(centers))
    found, inside = _counted(pool, centers, [one + 1 for one in k], own, ties, threads, literal, progress)
    negative = pool.own(own).negative
    return found - (inside & negative), _sizes(k, len(centers)) + ~inside


def _sizes(k: Sequence[int], centers: int) -> Integers:
    return np.repeat(np.asarray(k, dtype=np.int64)[:, None], centers, axis=1)


def _counted(
    pool: NeighbourPool, centers: Array, k: Sequence[int], own: Integers | None, ties: Ties, threads: int, literal: Array | None,
    progress: Callable[[int], None] | None,
) -> tuple[Array, Booleans]:
    """Return the counts (K, C), and which of `own` are among the rows that are counted, for ties "heap" alone.

    Centers at one place have the same neighbours, which are sought once for all of them.
    """
    heap = ties == "heap"
    most = len(pool) - (own is not None and not heap)
    if max(k) > most:
        raise QueryError(f"k = {max(k)}: the group has {most} rows to choose from; the largest k is {most}")
    if ties not in TIES:
        raise QueryError(f"ties = {ties!r}: expected one of {', '.join(TIES)}")
    if heap and (pool.literal is None or literal is None):
        raise QueryError("ties 'heap' compares standardised numbers as floats: ask for distance = 'standardised'")
    sizes = np.asarray(k, dtype=np.int64)
    found, inside = np.empty((len(k), len(centers))), np.zeros((len(k), len(centers)), dtype=bool)
    mine = None if own is None else pool.own(own)
    for begin in range(0, len(centers), CENTERS):
        left = np.arange(begin, min(begin + CENTERS, len(centers)))
        width = min(len(pool.points), max(k) + 2)
        while len(left):
            left = left[_step(pool, centers, left, sizes, mine, ties, width, threads, literal, found, inside)]
            width = min(len(pool.points), 2 * width)
        if progress is not None:
            progress(min(begin + CENTERS, len(centers)))
    return found, inside


def _step(
    pool: NeighbourPool, centers: Array, which: Integers, k: Integers, own: Own | None, ties: Ties, width: int, threads: int,
    literal: Array | None, found: Array, inside: Booleans,
) -> Booleans:
    """Fill `found` for these centers from their `width` nearest points; tells for which (B,) ties may go on beyond them."""
    places, at = np.unique(centers[which], axis=0, return_inverse=True)
    short = np.zeros(len(which), dtype=bool)
    size = max(1, CELLS // max(width, len(k)))
    for begin in range(0, len(places), size):
        distance, point = pool.nearest(places[begin : begin + size], width, threads)
        members = np.flatnonzero((at >= begin) & (at < begin + size))
        winners: dict[tuple[int, int], Integers] = {}
        for start in range(0, len(members), size):
            some = members[start : start + size]
            place, part = at[some] - begin, which[some]
            mine = None if own is None else own.take(part)
            near = _near(pool, distance[place], point[place], None if ties == "heap" else mine)
            edge = _edge(near, k, pool.rounding, whole=width == len(pool.points))
            short[some] = edge.short.any(axis=1)
            found[:, part] = _shared(k, edge).T
            if ties != "share":
                torn = (edge.inside + edge.tied > k) & ~short[some, None]
                _by_row(pool, near, k, edge, torn, part, place, mine, ties, literal, winners, found, inside)
    return short


def _near(pool: NeighbourPool, distance: Array, point: Integers, own: Own | None) -> Near:
    count, bad = pool.count[point], pool.bad[point]
    if own is not None:
        mine = point == own.point[:, None]
        count, bad = count - mine, bad - (mine & own.negative[:, None])
    return Near(distance=distance, point=point, count=count, bad=bad)


@dataclass(frozen=True, kw_only=True, eq=False)
class Edge:
    """Where groups of K sizes end, around B centers, each (B, K).

    low, high: points before `low` are nearer than the k-th row, those before `high` tie with it.   short: the ties may go on beyond
    the points at hand.   inside, bad: rows and negative ones before `low`;   tied, tied_bad: those from `low` to `high`.
    """

    low: Integers
    high: Integers
    short: Booleans
    inside: Integers
    bad: Integers
    tied: Integers
    tied_bad: Integers


def _edge(near: Near, k: Integers, rounding: float, *, whole: bool) -> Edge:
    """Find the edges of all sizes k (K,) at once. Distances tie with the next one where it is within rounding."""
    rows, width = near.distance.shape
    apart = np.diff(near.distance, axis=1) > rounding * np.maximum(1.0, near.distance[:, 1:])
    index, always = np.arange(width), np.ones((rows, 1), dtype=bool)
    first = np.maximum.accumulate(np.where(np.hstack([always, apart]), index, 0), axis=1)
    after = np.minimum.accumulate(np.where(np.hstack([apart, always]), index + 1, width)[:, ::-1], axis=1)[:, ::-1]
    step = int(near.counted[:, -1].max(initial=0)) + int(k.max()) + 1  # so that one row's counts lie below the next one's
    offset = step * np.arange(rows)[:, None]
    at = np.searchsorted((near.counted + offset).ravel(), (k[None] + offset).ravel()).reshape(rows, len(k))
    at = np.minimum(at - width * np.arange(rows)[:, None], width - 1)
    low, high = np.take_along_axis(first, at, axis=1), np.take_along_axis(after, at, axis=1)
    total, bad = (np.hstack([np.zeros((rows, 1), dtype=np.int64), np.cumsum(part, axis=1)]) for part in (near.count, near.bad))
    inside, inside_bad = np.take_along_axis(total, low, axis=1), np.take_along_axis(bad, low, axis=1)
    return Edge(
        low=low, high=high, short=(high == width) & (not whole), inside=inside, bad=inside_bad,
        tied=np.take_along_axis(total, high, axis=1) - inside, tied_bad=np.take_along_axis(bad, high, axis=1) - inside_bad,
    )


def _shared(k: Integers, edge: Edge) -> Array:
    """(B, K) negative decisions, those of ties in part."""
    return np.asarray(edge.bad + (k - edge.inside) * edge.tied_bad / np.maximum(edge.tied, 1))


def _by_row(
    pool: NeighbourPool, near: Near, k: Integers, edge: Edge, torn: Booleans, part: Integers, place: Integers, own: Own | None,
    ties: Ties, literal: Array | None, winners: dict[tuple[int, int], Integers], found: Array, inside: Booleans,
) -> None:
    """Fill `found`, and `inside` for ties "heap", where ties are torn (B, K), of the centers at positions `part` (B,).

    place: (B,) centers at one place are alike.   winners: (place, low) -> tied rows in their order, kept between the calls.
    """
    if ties == "heap" and own is not None:
        width = near.point.shape[1]
        mine = np.where(near.point == own.point[:, None], np.arange(width), width).min(axis=1)
        inside[:, part] = (mine[:, None] < edge.high).T
    for b in np.flatnonzero(torn.any(axis=1)):
        for low in np.unique(edge.low[b, torn[b]]):
            sizes = np.flatnonzero(torn[b] & (edge.low[b] == low))
            left, high = k[sizes] - edge.inside[b, sizes], edge.high[b, sizes[0]]
            key = (int(place[b]), int(low))
            if key not in winners:
                center = None if literal is None else literal[part[b]]
                winners[key] = _tied_rows(pool, near.point[b, low:high], ties, most=int(k.max()) + 1, center=center)
            chosen = winners[key]
            if own is not None and ties != "heap":
                chosen = chosen[pool.rows[chosen] != own.row[b]]
            found[sizes, part[b]] = edge.bad[b, sizes] + np.cumsum(pool.negative[chosen])[left - 1]
            if ties == "heap" and own is not None and low <= mine[b] < high:
                at = np.flatnonzero(pool.rows[chosen] == own.row[b])
                inside[sizes, part[b]] = (at[0] if len(at) else len(chosen)) < left


def _tied_rows(
    pool: NeighbourPool, points: Integers, ties: Ties, *, most: int | None = None, center: Array | None = None
) -> Integers:
    """Positions in the pool of the rows at these points, those that win first: the table's order, for "last" its reverse, for
    "heap" the nearest as floats and of these the last. most: no more than so many winners of each point.
    """
    starts, ends = pool.start[points], pool.start[points + 1]
    if most is not None and ties in ("last", "heap"):
        starts = np.maximum(starts, ends - most)
    elif most is not None:
        ends = np.minimum(ends, starts + most)
    at = np.concatenate([np.arange(low, high) for low, high in zip(starts, ends, strict=True)])
    keys = [-pool.rows[at] if ties in ("last", "heap") else pool.rows[at]]
    if ties == "heap":
        assert pool.literal is not None
        assert center is not None
        keys.append(np.repeat(pool.metric.literal_distance(center, pool.literal[points]), ends - starts))
    return np.asarray(at[np.lexsort(keys)])


def nearest(
    pool: NeighbourPool, center: Array, k: int, *, own: int | None = None, ties: Ties = "share", literal: Array | None = None
) -> tuple[Integers, Array, Array]:
    """The k nearest rows around one center (E,): positions in the table, distances, and weights, the nearest first, each (R,).

    With shared ties R may exceed k and weights at the edge are below 1; they sum to k. With ties "heap" and `own` there are k + 1
    where the center is not among them. The same rows that `negatives` and `control` count.
    """
    heap = ties == "heap"
    mine = None if own is None or heap else pool.own(np.array([own]))
    asked = k + (heap and own is not None)
    width = min(len(pool.points), asked + 2)
    while True:
        near = _near(pool, *pool.search.value(center[None], width), mine)
        edge = _edge(near, np.array([asked]), pool.rounding, whole=width == len(pool.points))
        if not edge.short[0, 0]:
            break
        width = min(len(pool.points), 2 * width)
    low, high = int(edge.low[0, 0]), int(edge.high[0, 0])
    blocks = [near.point[0, j : j + 1] for j in range(low)] + [near.point[0, low:high]]
    at = [_tied_rows(pool, points, ties, center=literal) for points in blocks]
    at = at if heap or own is None else [rows[pool.rows[rows] != own] for rows in at]
    distance = np.repeat(near.distance[0, : len(blocks)], [len(rows) for rows in at])
    rows = pool.rows[np.concatenate(at)]
    if ties != "share":
        rows, distance = rows[:asked], distance[:asked]
        kept = rows != own if heap and own is not None else np.ones(asked, dtype=bool)
        return rows[kept], distance[kept], np.ones(int(kept.sum()))
    inside = len(rows) - len(at[-1])
    return rows, distance, np.concatenate([np.ones(inside), np.full(len(at[-1]), (k - inside) / len(at[-1]))])


def search_of(points: Array, metric: Metric) -> Search:
    """A search among points (m, E) of the metric's embedding."""
    return _scan(points, metric) if metric.words and metric.dimensions > MANY else _tree(points, metric)


def _tree(points: Array, metric: Metric) -> Search:
    tree = cKDTree(metric.coordinates(points))

    def search(centers: Array, width: int) -> tuple[Array, Integers]:
        distance, point = tree.query(metric.coordinates(centers), k=np.arange(1, width + 1), p=metric.p)
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

    def search(centers: Array, width: int) -> tuple[Array, Integers]:
        around, code = metric.parts(centers)
        power, point = np.empty((len(centers), width)), np.empty((len(centers), width), dtype=np.int64)
        for b in range(len(centers)):
            power[b], point[b] = nearest(around[b], code[b], width)
        return power if metric.p == 1 else np.sqrt(power), point

    return search


def _power(numbers: Array, center: Array, p: int) -> Array:
    """(w,) the p-th power of the distances of points (m, w) from a center (m,)."""
    gap = np.abs(numbers - center[:, None])
    return np.asarray(gap.sum(axis=0) if p == 1 else np.square(gap).sum(axis=0))
