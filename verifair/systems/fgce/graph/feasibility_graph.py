"""The feasibility graph: rows are nodes, and an edge i -> j is a move that is allowed and no longer than eps, within NEAR.

Rows that agree in all fixed coordinates share a KD-tree; pairs of its leaves are skipped if their boxes are farther apart than
eps, or if no move from one to the other has an allowed direction; the rest are compared leaf by leaf in matrix products. Products
only preselect: lengths within rounding of the longest move are decided by `space.distance`.
Reference: FGCE, section II (after FACE); default eps: the smallest that leaves no node isolated.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.spatial import cKDTree

from encoders.arrays import Array, Booleans, Integers
from verifair.checker.certificates.centers import up_to
from verifair.checker.report import Progress
from verifair.engine.parallel import Shared, in_order
from verifair.errors import DataError, QueryError
from verifair.systems.fgce.space import Coordinates, FeatureSpace, Moves, distance
from verifair.systems.groups import blocks, identities

LEAF = 256
"""Rows in a leaf of the tree: a matrix product of two leaves stays in the cache."""
BORDER = 1e-9
"""Squared distances this near to that of the longest move are decided by `space.distance`; products are off by less than 1e-12."""
EDGE = 16
"""Bytes that each edge takes with its length and both ends."""
SAMPLE_ROWS, ERROR_FACTOR = 64, 2
"""Rows whose edges are counted before a large graph is built, and how many times too many these must promise to be an error."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FeasibilityGraph:
    """N nodes in the order of the raw rows, edges in CSR form.

    raw: (N, V).   points: (N, p).   eps: longest move, as asked for.   indptr: (N + 1,) int64.   indices: (E,) int32, targets.
    """

    space: FeatureSpace
    raw: Array
    points: Array
    eps: float
    indptr: Integers
    indices: np.ndarray

    @classmethod
    def build(
        cls, space: FeatureSpace, raw: Array, eps: float | None = None, *, threads: int = 2, progress: Progress | None = None
    ) -> FeasibilityGraph:
        """Return the graph over raw rows (N, V). eps None: the smallest with which every node that can have a neighbour has one;
        `progress` then counts all leaves twice, for nearest neighbours and for edges.

        Raises DataError if no row may become another, QueryError for an eps that is not positive and for more edges
        than the machine's memory holds.
        """
        if eps is not None and not eps > 0:
            raise QueryError(f"eps = {eps:g}: the longest allowed move must be positive; leave it out for the smallest that serves")
        points, moves = Coordinates(space=space, raw=raw), Moves.of(space)
        if eps is None:
            nearest = nearest_moves(points, moves, threads, progress)
            if not np.isfinite(nearest).any():
                raise DataError(
                    f"no row may become any other of the {len(raw)} rows: the features that are fixed or one-way leave no move; "
                    "free some (change = \"free\"), or pass more rows"
                )
            eps = float(nearest[np.isfinite(nearest)].max())
        limit, max_edges = up_to(float(eps)), memory() // EDGE
        if len(raw) ** 2 > max_edges and (expected := _expected(points, moves, limit)) > ERROR_FACTOR * max_edges:
            raise _too_many(len(raw), f"about {expected:,}")
        counts, targets, edges = np.zeros(len(raw), dtype=np.int64), {}, 0
        leaves = list(_leaves(points, moves))
        edges_of: Shared[Callable[..., Any]] = Shared(value=partial(_edges_of, points=points, moves=moves, limit=limit))
        for done, (rows, count, edge_targets) in enumerate(in_order(edges_of, zip(leaves), threads), 1):
            counts[rows], edges = count, edges + len(edge_targets)
            if edges > max_edges:
                raise _too_many(len(raw), f"more than {edges:,}")
            for row, part in zip(rows, np.split(edge_targets, np.cumsum(count)[:-1]), strict=True):
                targets[int(row)] = part
            if progress is not None:
                progress(done, len(leaves))
        indptr = np.concatenate([[0], np.cumsum(counts)])
        indices = np.empty(indptr[-1], dtype=np.int32)
        for row in range(len(raw)):
            indices[indptr[row] : indptr[row + 1]] = targets.pop(row)
        return cls(space=space, raw=raw, points=space.points(raw), eps=float(eps), indptr=indptr, indices=indices)

    def __len__(self) -> int:
        return len(self.raw)

    @property
    def edges(self) -> int:
        return len(self.indices)

    @cached_property
    def sources(self) -> np.ndarray:
        """(E,) int32 the source node of each edge."""
        return np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self.indptr))

    @cached_property
    def lengths(self) -> Array:
        """(E,) L2 length of each edge."""
        lengths = np.empty(self.edges)
        for part in chunks(self.edges):
            lengths[part] = distance(self.points[self.sources[part]], self.points[self.indices[part]])
        return lengths

    @property
    def alone(self) -> Booleans:
        """(N,) nodes without an edge."""
        return np.asarray((np.diff(self.indptr) == 0) & (np.bincount(self.indices, minlength=len(self)) == 0))

    def matrix(self, weights: Array) -> sp.csr_matrix:
        """Return (N, N) with weights (E,) on the edges. Edges of weight 0 are stored, as csgraph takes stored entries for edges."""
        return sp.csr_matrix((weights, self.indices, self.indptr), shape=(len(self), len(self)))


def memory() -> float:
    """Return the bytes of this machine's memory, infinite if the system does not tell."""
    available = hasattr(os, "sysconf") and {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= set(os.sysconf_names)
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if available else float("inf")


def _too_many(rows: int, edges: str) -> QueryError:
    return QueryError(
        f"the feasibility graph of {rows:,} rows has {edges} edges, which is more than this machine's memory holds; pass a sample "
        "of the table (in an audit file rows = N), or a smaller eps"
    )


def _expected(points: Coordinates, moves: Moves, limit: float) -> int:
    """Return an estimate of the number of edges, from a sample of the rows."""
    raw = points.raw
    sample = np.random.default_rng(0).choice(len(raw), min(SAMPLE_ROWS, len(raw)), replace=False)
    sample_points, sample_raw, count = points[sample], raw[sample], 0
    for part in blocks(len(raw)):
        others = points[part]
        is_edge = _squared(sample_points, others) <= min(limit, 1e100) ** 2
        is_edge &= _squared(sample_points[:, moves.fixed], others[:, moves.fixed]) <= BORDER
        count += int((is_edge & moves.allowed(sample_points, others, sample_raw, raw[part])).sum())
    return len(raw) * count // len(sample)


def chunks(total: int, size: int = 1 << 22) -> Iterator[slice]:
    """Return slices over so many edges, so that no temporary is large."""
    for start in range(0, total, size):
        yield slice(start, min(start + size, total))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Leaf:
    """Rows of one leaf; and the rows of its tree in leaf order, with the leaves' boxes (L, p) and first positions (L + 1,)."""

    rows: Integers
    order: Integers
    begins: Integers
    low: Array
    high: Array
    own: int

    def near(self, moves: Moves, limit: float, *, either: bool = False) -> Integers:
        """Return the leaves within the limit, by distance, whose boxes an allowed move can reach (with `either`, also come
        from)."""
        low, high = self.low[self.own], self.high[self.own]
        gap = np.maximum(np.maximum(self.low - high, low - self.high), 0.0)
        gap_length = np.sqrt((gap**2).sum(axis=1))
        up, down = moves.direction > 0, moves.direction < 0
        forward = (self.high[:, up] >= low[up]).all(1) & (self.low[:, down] <= high[down]).all(1)
        backward = (high[up] >= self.low[:, up]).all(1) & (low[down] <= self.high[:, down]).all(1)
        leaves = np.flatnonzero((gap_length <= limit + BORDER) & (forward | (backward & either)))
        return np.asarray(leaves[np.argsort(gap_length[leaves], kind="stable")])

    def box_distance(self, other: int) -> float:
        gap = np.maximum(self.low[other] - self.high[self.own], self.low[self.own] - self.high[other])
        return float(np.sqrt((np.maximum(gap, 0.0) ** 2).sum()))

    def rows_of(self, leaves: Integers) -> Integers:
        return np.concatenate([self.order[self.begins[leaf] : self.begins[leaf + 1]] for leaf in leaves])


def _leaves(points: Coordinates, moves: Moves) -> Iterator[_Leaf]:
    """Yield all leaves of all blocks of rows that agree in the fixed coordinates."""
    block = identities(points.raw, [v for v, change in enumerate(points.space.changes) if change == "fixed"])
    by_block = np.argsort(block, kind="stable")
    varying = np.flatnonzero(~moves.fixed) if not moves.fixed.all() else slice(1)
    for rows in np.split(by_block, np.flatnonzero(np.diff(block[by_block])) + 1):
        tree = cKDTree(points[rows][:, varying], leafsize=LEAF)
        begins = np.concatenate([[0], np.cumsum([len(leaf) for leaf in tree_leaves(tree)])])
        order = rows[tree.indices]
        del tree  # it holds a copy of the points
        parts = (points[order[a:b]] for a, b in itertools.pairwise(begins))
        low, high = map(np.array, zip(*((part.min(axis=0), part.max(axis=0)) for part in parts), strict=True))
        for own, (a, b) in enumerate(itertools.pairwise(begins)):
            for start in range(a, b, LEAF):  # equal rows make one leaf, however many they are
                part = order[start : min(start + LEAF, b)]
                yield _Leaf(rows=part, order=order, begins=begins, low=low, high=high, own=own)


def tree_leaves(tree: cKDTree) -> Iterator[Integers]:
    """Yield the rows of each leaf, in the order of tree.indices: depth first, lesser before greater."""
    pending = [tree.tree]
    while pending:
        node = pending.pop()
        if node.split_dim == -1:
            yield node.indices
        else:
            pending += [node.greater, node.lesser]


def _squared(a: Array, b: Array) -> Array:
    """Return (n, m) squared distances, within rounding."""
    square = a @ (-2.0 * b.T)
    square += (a**2).sum(axis=1)[:, None]
    square += (b**2).sum(axis=1)[None, :]
    return square


def _edges_of(leaf: _Leaf, points: Coordinates, moves: Moves, limit: float) -> tuple[Integers, Integers, np.ndarray]:
    """Return the leaf's rows, the number of edges from each, and their targets row by row."""
    others = leaf.rows_of(leaf.near(moves, limit))
    own, targets, raw = points[leaf.rows], points[others], points.raw
    square = _squared(own, targets)
    limit_squared = min(limit, 1e100) ** 2
    is_edge = square <= limit_squared + BORDER
    border = is_edge & (square >= limit_squared - BORDER)
    is_edge &= moves.allowed(own, targets, raw[leaf.rows], raw[others])
    i, j = np.nonzero(border & is_edge)
    is_edge[i, j] = distance(own[i], targets[j]) <= limit
    is_edge &= leaf.rows[:, None] != others[None, :]
    return leaf.rows, is_edge.sum(axis=1), others[np.nonzero(is_edge)[1]].astype(np.int32)


def nearest_moves(points: Coordinates, moves: Moves, threads: int = 2, progress: Progress | None = None) -> Array:
    """Return (N,) length of the shortest allowed move from or to each row; infinite where there is none."""
    result = np.full(len(points.raw), np.inf)
    leaves = list(_leaves(points, moves))
    nearest_of: Shared[Callable[..., Any]] = Shared(value=partial(_nearest_of, points=points, moves=moves))
    for done, (rows, lengths) in enumerate(in_order(nearest_of, zip(leaves), threads), 1):
        result[rows] = lengths
        if progress is not None:
            progress(done, len(leaves))
    return result


def _nearest_of(leaf: _Leaf, points: Coordinates, moves: Moves) -> tuple[Integers, Array]:
    """Return the leaf's rows and their shortest moves. Leaves are opened from the nearest on, until none can hold a nearer row;
    `distance` decides among rows within rounding."""
    best, lengths = np.full(len(leaf.rows), np.inf), np.full(len(leaf.rows), np.inf)
    leaf_points, raw = points[leaf.rows], points.raw
    for other in leaf.near(moves, np.inf, either=True):
        pending = np.flatnonzero(best > leaf.box_distance(int(other)) ** 2 - BORDER)
        if not len(pending):
            break
        rows = leaf.rows_of(np.array([other]))
        sources, targets, source_raw, target_raw = leaf_points[pending], points[rows], raw[leaf.rows[pending]], raw[rows]
        forward = moves.allowed(sources, targets, source_raw, target_raw)
        backward = moves.allowed(targets, sources, target_raw, source_raw).T
        different = leaf.rows[pending][:, None] != rows[None, :]
        square = np.where((forward | backward) & different, _squared(sources, targets), np.inf)
        best[pending] = np.minimum(best[pending], square.min(axis=1))
        i, j = np.nonzero(np.isfinite(square) & (square <= best[pending, None] + BORDER))
        np.minimum.at(lengths, pending[i], distance(sources[i], targets[j]))
    return leaf.rows, lengths
