"""The k nearest rows of a group around search centers: exact search among distinct points, ties shared or broken by row.

Real attributes are often whole numbers and words, so many rows are equally far and "the k nearest" is ambiguous without a rule:

share   rows tied for the last places share them evenly, as if each were drawn with equal chance; no order of rows matters
first   the earlier rows of the table win, as in a stable sort
last    the later rows of the table win
heap    the later rows win among distances that are the same *float* (`Metric.literal`), and a control group is the k + 1 nearest
        rows less the complainant, if that is among them: as in the authors' code, whose heap holds (-distance, row)

But for heap, distances within rounding (`Pool.rounding`) of each other are ties.
Sound? Complete? exact for the distance, up to that rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, get_args

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from verifair.aside import stacked
from verifair.engine.parallel import Shared, in_order
from verifair.errors import QueryError
from verifair.systems.cst.neighbours.distance import Metric
from verifair.systems.cst.neighbours.search import Search
from verifair.systems.cst.settings import Ties
from verifair.systems.groups import blocks, identities
from verifair.systems.stores import NO_STORE, Arrays, Parts

TIES: tuple[Ties, ...] = get_args(Ties)
CENTERS = 4096
"""Between two signs of progress."""
CELLS = 200_000
"""Distances held at once: few, so that what is counted from them stays in the cache."""
CACHED = 64
"""Centers whose counts for hundreds of k fit the processor's cache, where their order changes."""
TASK_CENTERS = 256
"""Centers of one task."""


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
        """Return the pool of `rows` (M,), positions in the table.   embedded (N, E) by the metric, negative (N,), literal (N, d):
        of the whole table."""
        identity = identities(embedded, rows=rows)
        first = rows[np.unique(identity, return_index=True)[1]]
        points = stacked(embedded[first[part]] for part in blocks(len(first)))
        order = np.lexsort((rows, identity))
        start = np.concatenate([[0], np.cumsum(np.bincount(identity, minlength=len(points)))])
        return cls(
            rows=rows[order], start=start, points=points, metric=metric, negative=negative[rows[order]],
            literal=None if literal is None else literal[rows[order[start[:-1]]]],
        )

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def determines(self) -> tuple[Any, ...]:
        """Everything that determines the neighbours, as arrays and JSON values: the key of stored results."""
        metric, literal = self.metric, () if self.literal is None else (self.literal,)
        scale = metric.p, metric.height, list(map(len, metric.levels)), len(metric.numbers)
        return *scale, self.rows, self.start, self.points, self.negative, *literal

    @cached_property
    def search(self) -> Shared[Callable[[Array, int], tuple[Array, Integers]]]:
        return Shared(value=Search.of(self.points, self.metric))

    def nearest(self, centers: Array, width: int, threads: int) -> tuple[Array, Integers]:
        """Return distances and points (B, width) around centers (B, E), the nearest first, by `threads` threads."""
        parts = ((centers[start : start + TASK_CENTERS], width) for start in range(0, len(centers), TASK_CENTERS))
        distance, point = zip(*in_order(self.search, parts, threads), strict=True)
        return np.concatenate(distance), np.concatenate(point)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the search: it holds a copy of the points, and is built again where it is needed."""
        return {name: value for name, value in self.__dict__.items() if name != "search"}

    @cached_property
    def count(self) -> Integers:
        """(m,) rows at each point."""
        return np.diff(self.start)

    @cached_property
    def bad(self) -> Integers:
        """(m,) rows at each point that were decided negatively."""
        return np.diff(np.concatenate([[0], np.cumsum(self.negative)])[self.start])

    @cached_property
    def rounding(self) -> float:
        """Distances closer than this are equal: some thousand units in the last place of the coordinates.

        For distances above 1, such as those from counterfactuals far outside the table, it is relative to the distance.
        """
        chunks = (self.metric.parts(self.points[part])[0] for part in blocks(len(self.points)))
        return 1e-12 * max(1.0, *(float(np.abs(values).max(initial=0.0)) for values in chunks))

    def own(self, rows: Integers) -> Own:
        """Return the places in the pool of these rows of the table (C,), all of which are in it."""
        sorter = np.argsort(self.rows, kind="stable")
        index = sorter[np.searchsorted(self.rows, rows, sorter=sorter)]
        return Own(position=index, point=np.searchsorted(self.start, index, side="right") - 1, negative=self.negative[index])

    def width(self, rows: int) -> int:
        """Return a first guess of the number of points that hold so many rows: twice the number that does on average."""
        return min(len(self.points), rows + 1, 2 * -(-rows * len(self.points) // len(self)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Own:
    """Rows that are no neighbours of themselves, all (C,): position and point in the pool, whether decided negatively."""

    position: Integers
    point: Integers
    negative: Booleans

    def take(self, which: Integers) -> Own:
        return Own(position=self.position[which], point=self.point[which], negative=self.negative[which])


@dataclass(frozen=True, kw_only=True, eq=False)
class Near:
    """Points around B centers, the nearest first, all (B, q): distance, point, rows to count there, and negative ones among
    them."""

    distance: Array
    point: Integers
    count: Integers
    bad: Integers

    @cached_property
    def counted(self) -> Integers:
        return np.cumsum(self.count, axis=1)


def negatives(
    pool: NeighbourPool, centers: Array, k: Sequence[int], *, own: Integers | None = None, ties: Ties = "share", threads: int = 2,
    literal: Array | None = None, progress: Callable[[int], None] | None = None, parts: Parts = NO_STORE,
) -> Array:
    """(K, C) how many of the k nearest rows of the pool around each center (C, E) were decided negatively, for each k (ascending).

    own: (C,) for each center a row of the table that is not counted: the complainant itself. Not with ties "heap"; `control`
    gives their control groups.
    ties: see above; shared places count fractions.   literal: (C, d) of the centers, for
    ties "heap".   progress(done) counts centers.   parts: the store of counts, CENTERS at a time.
    Raises QueryError where a k is larger than the pool.
    """
    return _count_negatives(pool, centers, k, own, ties, threads, literal, progress, parts)[0]


def control(
    pool: NeighbourPool, centers: Array, k: Sequence[int], own: Integers, *, ties: Ties = "share", threads: int = 2,
    literal: Array | None = None, progress: Callable[[int], None] | None = None, parts: Parts = NO_STORE,
) -> tuple[Array, Integers]:
    """(K, C) negative decisions in the complainants' control groups, themselves left out, and (K, C) the sizes of these groups.

    The sizes are k, and with ties "heap" k + 1 for complainants who are not among their k + 1 nearest. As `negatives` otherwise.
    """
    if ties != "heap":
        counts = negatives(pool, centers, k, own=own, ties=ties, threads=threads, progress=progress, parts=parts)
        return counts, _sizes(k, len(centers))
    counts, inside = _count_negatives(pool, centers, [size + 1 for size in k], own, ties, threads, literal, progress, parts)
    negative = pool.own(own).negative
    return counts - (inside & negative), _sizes(k, len(centers)) + ~inside


def _sizes(k: Sequence[int], centers: int) -> Integers:
    return np.broadcast_to(np.asarray(k, dtype=np.int64)[:, None], (len(k), centers))


def _count_negatives(
    pool: NeighbourPool, centers: Array, k: Sequence[int], own: Integers | None, ties: Ties, threads: int, literal: Array | None,
    progress: Callable[[int], None] | None, parts: Parts,
) -> tuple[Array, Booleans]:
    """Return the counts (K, C); and for ties "heap" alone (K, C) True where a center's `own` row is among those counted.

    Centers at the same point have the same neighbours, which are searched for once.
    """
    heap = ties == "heap"
    available = len(pool) - (own is not None and not heap)
    if max(k) > available:
        raise QueryError(f"k = {max(k)}: the group has {available} rows to choose from; the largest k is {available}")
    if ties not in TIES:
        raise QueryError(f"ties = {ties!r}: expected one of {', '.join(TIES)}")
    if heap and (pool.literal is None or literal is None):
        raise QueryError("ties 'heap' compares standardised numbers as floats: ask for distance = 'standardised'")
    sizes = np.asarray(k, dtype=np.int64)
    negative_counts, inside = np.empty((len(k), len(centers))), np.zeros((len(k), len(centers)), dtype=bool)
    own_rows = None if own is None else pool.own(own)

    order = np.lexsort(centers.T)  # by categories: centers of one kind share its computations

    def searched(chunk: Integers) -> Arrays:
        chunk_centers, owners = centers[chunk], None if own_rows is None else own_rows.take(chunk)
        literals = None if literal is None else literal[chunk]
        counts, insides = np.empty((len(chunk), len(k))), np.zeros((len(chunk), len(k)), dtype=bool)
        pending, width = np.arange(len(chunk)), pool.width(max(k) + 1)
        while len(pending):
            pending = pending[_step(pool, chunk_centers, pending, sizes, owners, ties, width, threads, literals, counts, insides)]
            width = min(len(pool.points), 2 * width)
        return counts.T, insides.T

    optional = [array for array in (own, literal) if array is not None]
    question = parts.question("neighbours in order", sizes.tolist(), ties, *pool.determines, centers, *optional)
    for begin in range(0, len(centers), CENTERS):
        chunk = order[begin : begin + CENTERS]
        block = slice(begin, begin + len(chunk))
        template = negative_counts[:, block], inside[:, block]
        counts, insides = parts.part(question, f"{begin}", template, partial(searched, chunk))
        for start in range(0, len(chunk), CACHED):
            part = slice(start, start + CACHED)
            negative_counts[:, chunk[part]] = counts[:, part]
        if heap:
            inside[:, chunk] = insides
        if progress is not None:
            progress(block.stop)
    return negative_counts, inside


def _step(
    pool: NeighbourPool, centers: Array, subset: Integers, k: Integers, own: Own | None, ties: Ties, width: int, threads: int,
    literal: Array | None, found: Array, inside: Booleans,
) -> Booleans:
    """Fill found, inside (C, K) for these centers from their `width` nearest points. Return (B,) True where ties may extend beyond
    them."""
    owners = None if own is None else own.take(subset)
    keys = centers[subset, ::-1] if owners is None else np.column_stack([centers[subset, ::-1], owners.point, owners.negative])
    _, representatives, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    short = np.zeros(len(representatives), dtype=bool)
    size = max(1, CELLS // max(width, len(k)))
    for begin in range(0, len(representatives), size):
        chunk = representatives[begin : begin + size]
        distance, point = pool.nearest(centers[subset[chunk]], width, threads)
        near = _points_near(pool, distance, point, None if owners is None or ties == "heap" else owners.take(chunk))
        edge = _group_edges(near, k, pool.rounding, complete=width == len(pool.points))
        short[begin : begin + size] = edge.short
        sharing = np.flatnonzero((inverse >= begin) & (inverse < begin + size))
        local, members_of = inverse[sharing] - begin, subset[sharing]
        found[members_of] = _shared_counts(k, edge)[local]
        if ties == "share":
            continue
        if owners is not None and ties == "heap":
            first = np.where(point == owners.point[chunk, None], np.arange(width), width).min(axis=1)
            inside[members_of] = (first[:, None] < edge.high)[local]
        for b in np.flatnonzero((edge.inside + edge.tied > k).any(axis=1) & ~edge.short).tolist():
            same = np.flatnonzero(local == b)
            center = None if literal is None else literal[members_of[same[0]]]
            order, _ = _ranked_rows(pool, near, edge, b, ties, limit=int(k[-1]) + 1, center=center)
            same_owners = None if owners is None else owners.take(sharing[same])
            found[members_of[same]], inside[members_of[same]] = _counts_by_row(pool, order, k, same_owners, left_out=ties != "heap")
    return short[inverse]


def _points_near(pool: NeighbourPool, distance: Array, point: Integers, own: Own | None) -> Near:
    count, bad = pool.count[point], pool.bad[point]
    if own is not None:
        is_own = point == own.point[:, None]
        count, bad = count - is_own, bad - (is_own & own.negative[:, None])
    return Near(distance=distance, point=point, count=count, bad=bad)


@dataclass(frozen=True, kw_only=True, eq=False)
class Edge:
    """The edges of groups of K sizes around B centers, each (B, K) but for short (B,) and first (B, q).

    first: for each of the q points, the first point that ties with it.   high: points before it are nearer than the k-th row, or
    tie with it.   short: True where ties may extend beyond the points at hand.   inside, bad: rows that are nearer, and negative
    ones of them; tied, tied_bad: those that tie with the k-th row.
    """

    first: Integers
    high: Integers
    short: Booleans
    inside: Integers
    bad: Integers
    tied: Integers
    tied_bad: Integers


def _group_edges(near: Near, k: Integers, rounding: float, *, complete: bool) -> Edge:
    """Find the edges of all sizes k (K,), ascending, at once. Distances tie with the next one where it is within rounding."""
    rows, width = near.distance.shape
    separate = np.diff(near.distance, axis=1) > rounding * np.maximum(1.0, near.distance[:, 1:])
    index, ones = np.arange(width), np.ones((rows, 1), dtype=bool)
    first = np.maximum.accumulate(np.where(np.hstack([ones, separate]), index, 0), axis=1)
    stop = np.minimum.accumulate(np.where(np.hstack([separate, ones]), index + 1, width)[:, ::-1], axis=1)[:, ::-1]
    filled = np.searchsorted(k, near.counted, side="right") + (len(k) + 1) * np.arange(rows)[:, None]
    col = np.bincount(filled.ravel(), minlength=rows * (len(k) + 1)).reshape(rows, -1)[:, :-1].cumsum(axis=1)
    col = np.minimum(col, width - 1) + width * np.arange(rows)[:, None]
    total, bad = (np.hstack([np.zeros((rows, 1), dtype=np.int64), np.cumsum(part, axis=1)]) for part in (near.count, near.bad))
    inside, inside_bad = np.take_along_axis(total, first, axis=1), np.take_along_axis(bad, first, axis=1)
    tied = np.take_along_axis(total, stop, axis=1) - inside
    tied_bad = np.take_along_axis(bad, stop, axis=1) - inside_bad
    high = stop.take(col)
    return Edge(
        first=first, high=high, short=(high[:, -1] == width) & (not complete), inside=inside.take(col), bad=inside_bad.take(col),
        tied=tied.take(col), tied_bad=tied_bad.take(col),
    )


def _shared_counts(k: Integers, edge: Edge) -> Array:
    """Return (B, K) negative decisions; rows that tie for the last places count in part."""
    return np.asarray(edge.bad + (k - edge.inside) * edge.tied_bad / np.maximum(edge.tied, 1))


def _ranked_rows(
    pool: NeighbourPool, near: Near, edge: Edge, b: int, ties: Ties, *, limit: int | None = None, center: Array | None
) -> tuple[Integers, Integers]:
    """Return the rows around the b-th center, in order, up to the last that may be in the largest group, ties included: positions
    in the pool, and columns of `near`.

    The nearest come first. Ties go by the table's order, for "last" by its reverse; for "heap" by the float distance from `center`
    (d,), then the reverse order.   limit: at most so many rows of each point, the first in this order.
    """
    points = near.point[b, : edge.high[b, -1]]
    starts, ends, descending = pool.start[points], pool.start[points + 1], ties in ("last", "heap")
    if limit is not None and descending:
        starts = np.maximum(starts, ends - limit)
    elif limit is not None:
        ends = np.minimum(ends, starts + limit)
    positions = np.concatenate([np.arange(low, high) for low, high in zip(starts, ends, strict=True)])
    column = np.repeat(np.arange(len(points)), ends - starts)
    keys = [-pool.rows[positions] if descending else pool.rows[positions], edge.first[b, column]]
    if ties == "heap":
        assert pool.literal is not None
        assert center is not None
        keys.insert(1, pool.metric.literal_distance(center, pool.literal[points])[column])
    order = np.lexsort(keys)
    return positions[order], column[order]


def _counts_by_row(
    pool: NeighbourPool, order: Integers, k: Integers, own: Own | None, *, left_out: bool
) -> tuple[Array, Booleans]:
    """Return (B, K) negative decisions of the first k rows around B complainants at one point, and (B, K) True where the
    complainant is among these rows.

    left_out: complainants are not counted; the next row takes their place.
    """
    bad = np.concatenate([[0], np.cumsum(pool.negative[order])])
    if own is None:
        return bad[None, k], np.zeros((1, len(k)), dtype=bool)
    rank = np.full(len(pool), len(order))
    rank[order] = np.arange(len(order))
    inside = rank[own.position, None] < k
    return (bad[k + inside] - (inside & own.negative[:, None]) if left_out else bad[None, k]), inside


def nearest(
    pool: NeighbourPool, center: Array, k: int, *, own: int | None = None, ties: Ties = "share", literal: Array | None = None
) -> tuple[Integers, Array, Array]:
    """Return the k nearest rows around one center (E,): positions in the table, distances, and weights, the nearest first, each
    (R,).

    With shared ties R may exceed k, and weights at the edge are below 1; they sum to k. With ties "heap" and `own` there are k + 1
    rows if the center is not among them. These are the rows that `negatives` and `control` count.
    """
    heap = ties == "heap"
    own_row = None if own is None or heap else pool.own(np.array([own]))
    size = k + (heap and own is not None)
    width = pool.width(size + 1)
    while True:
        near = _points_near(pool, *pool.search.value(center[None], width), own_row)
        edge = _group_edges(near, np.array([size]), pool.rounding, complete=width == len(pool.points))
        if not edge.short[0]:
            break
        width = min(len(pool.points), 2 * width)
    positions, column = _ranked_rows(pool, near, edge, 0, ties, center=literal)
    rows, distance = pool.rows[positions], near.distance[0, edge.first[0, column]]
    if not heap:
        rows, distance = rows[rows != own], distance[rows != own]
    if ties != "share":
        rows, distance = rows[:size], distance[:size]
        return rows[rows != own], distance[rows != own], np.ones(int((rows != own).sum()))
    inside, tied = int(edge.inside[0, 0]), int(edge.tied[0, 0])
    return rows, distance, np.concatenate([np.ones(inside), np.full(tied, (k - inside) / tied)])
