"""The leaf rule's bound for tree ensembles: of every tree the least that a compatible pair of leaves adds, summed up in integers.

A leaf of a tree is a box of columns, and a set of categories for each one-hot block. Over a box of rows x and x', a pair of leaves
is compatible where x meets the first one, x' the second, and in every column that both copies share some value lies in both leaves
and in the box: intervals that meet two by two have a value in common; sets of categories are intersected. Where no pair of some
tree is compatible, no row is in the box at all.
What a pair adds to  p g(x) + q g(x')  is rounded down to a multiple of a power of 2, so small that sums of integers are exact; what
needs no rounding stays what it is, so ties are exactly 0. Shares no code with `encoders.trees.joint`, which the search uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from encoders.domain import Domain
from encoders.network import Array, Booleans, Integers
from encoders.trees.ensemble import TreeEnsemble

PAIRS = 1 << 22
"""Pairs of leaves of one tree that are compared at once."""
TOGETHER = 64
"""Boxes bounded at a time."""
CHARGE = 2.0**-48
"""What combining rows may lose, relative to the margins' size."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Paths:
    """The leaves (L) of all trees, tree by tree: values low < x <= high of every column (L, n), and bits (L, blocks, words) of the
    categories of every one-hot block."""

    tree: Integers
    node: Integers
    low: Array
    high: Array
    categories: Booleans

    @classmethod
    def of(cls, ensemble: TreeEnsemble, domain: Domain) -> Paths:
        """Follow every way from the roots; ways on which no row goes are left out."""
        count, n = len(ensemble.root), ensemble.columns
        blocks = np.flatnonzero(domain.one_hot)
        node, tree = ensemble.root, np.arange(count)
        low, high = np.full((count, n), -np.inf), np.full((count, n), np.inf)
        threshold, found = _on_whole_numbers(ensemble, domain), []
        for _ in range(ensemble.depth + 1):
            column = ensemble.column[node]
            done = column < 0
            found.append((tree[done], node[done], low[done], high[done]))
            node, tree, low, high, column = node[~done], tree[~done], low[~done], high[~done], column[~done]
            at, limit = np.arange(len(node)), threshold[node]
            left, right = (low.copy(), high.copy()), (low, high)
            left[1][at, column] = np.minimum(high[at, column], limit)
            right[0][at, column] = np.maximum(low[at, column], limit)
            node = np.concatenate([ensemble.left[node], ensemble.right[node]])
            tree = np.tile(tree, 2)
            low, high = np.concatenate([left[0], right[0]]), np.concatenate([left[1], right[1]])
            some = np.asarray((low < high).all(axis=1))
            node, tree, low, high = node[some], tree[some], low[some], high[some]
        tree, node, low, high = (np.concatenate(one) for one in zip(*found, strict=True))
        categories = np.zeros((len(tree), len(blocks), int(domain.width[blocks].max(initial=0))), dtype=bool)
        for b, v in enumerate(blocks.tolist()):
            block = slice(int(domain.start[v]), int(domain.start[v] + domain.width[v]))
            one, zero = (np.asarray((low[:, block] < value) & (value <= high[:, block])) for value in (1.0, 0.0))
            others = np.asarray(zero.sum(axis=1, keepdims=True) - zero == domain.width[v] - 1)
            categories[:, b, : domain.width[v]] = one & others
            low[:, block], high[:, block] = -np.inf, np.inf
        kept: Booleans = np.all(np.any(categories, axis=2), axis=1)
        order = np.argsort(tree[kept], kind="stable")
        return cls(tree=tree[kept][order], node=node[kept][order], low=low[kept][order], high=high[kept][order],
                   categories=categories[kept][order])

    def meet(self, low: Array, high: Array, categories: Booleans) -> Booleans:
        """(B, L) which leaves boxes low, high (B, n) with categories (B, blocks, words) meet."""
        found, every = np.ones((len(low), len(self.tree)), dtype=bool), np.ones(len(self.tree), dtype=bool)
        alike = (low == low[:1]).all(axis=0) & (high == high[:1]).all(axis=0)
        for column in np.flatnonzero(np.isfinite(self.low).any(axis=0) | np.isfinite(self.high).any(axis=0)).tolist():
            if alike[column]:   # once for all boxes
                every &= (low[0, column] <= self.high[:, column]) & (high[0, column] > self.low[:, column])
            else:
                found &= low[:, column, None] <= self.high[:, column]
                found &= high[:, column, None] > self.low[:, column]
        found &= every
        for b in range(categories.shape[1]):
            found &= categories[:, b].astype(np.float32) @ self.categories[:, b].astype(np.float32).T > 0
        return found

    def take(self, index: Integers | Booleans) -> Paths:
        return Paths(tree=self.tree[index], node=self.node[index], low=self.low[index], high=self.high[index],
                     categories=self.categories[index])


class TreeBounds:
    """The bounds of one ensemble. compares: what it decides among several classes (`kernel.compared`)."""

    compares = False

    def __init__(self, ensemble: TreeEnsemble, domain: Domain) -> None:
        self.ensemble, self.domain = ensemble, domain

    @cached_property
    def paths(self) -> Paths:
        return Paths.of(self.ensemble, self.domain)

    @cached_property
    def sizes(self) -> Array:
        """(m,) sums over the trees of the largest |value| of a leaf, and |base|."""
        most = np.zeros((len(self.ensemble.root), self.ensemble.outputs))
        np.maximum.at(most, self.paths.tree, np.abs(self.ensemble.value[self.paths.node]))
        return np.asarray((most.sum(axis=0) + np.abs(self.ensemble.base)) * (1 + 2.0**-40))

    def float32_errors(self, margin: Array) -> Array:
        """Return (B,) how far margins (B, m) of a float32 evaluation may lie from the exact ones, whatever the order of the sum:
        gamma_n times the sizes, n numbers and operations, u = 2^-24; a margin of two scores is rounded once more."""
        n = self.ensemble.terms
        if n is None or n > 2**22:
            return np.full(len(margin), np.inf)
        gamma = n * 2.0**-24 / (1 - n * 2.0**-24)
        weight = np.abs(margin)
        error = (gamma * self.sizes + n * 2.0**-120) * (1 + 2.0**-30)
        two = np.where((weight > 0).sum(axis=1) > 1, 2.0**-23, 0.0)
        return np.asarray((weight @ error + two * (weight @ (self.sizes + error))) * (1 + 2.0**-30))

    def charge(self, margin: Array, size: Array, constant: Array) -> Array:
        """Return (N,) what combining rows of |p| + |q| = size and |c| = constant may lose, margins (N, m)."""
        return np.asarray(CHARGE * (size * (np.abs(margin) @ self.sizes) + constant))

    def least(
        self, first: tuple[Array, Array], second: tuple[Array, Array], apart: Booleans, box: Integers, p: Array, q: Array
    ) -> Array:
        """Return lower bounds (N,) of  p . f(x) + q . f(x'), weights p, q (N, m) of the scores, over the boxes `box` (N,) of x and
        x', ends (B, n) each. apart: (n,) columns in which the copies may differ; the others are the same in both."""
        found = np.full(len(box), -np.inf)
        blocks = np.flatnonzero(self.domain.one_hot)
        columns = [slice(int(self.domain.start[v]), int(self.domain.start[v] + self.domain.width[v])) for v in blocks]
        possible = [self._possible(ends[1]) for ends in (first, second)]
        widest = [(one[0].min(axis=0)[None], one[1].max(axis=0)[None], np.any(some, axis=0)[None])
                  for one, some in zip((first, second), possible, strict=True)]
        shared = [b for b, block in enumerate(columns) if not apart[block].any()]
        parts = [self.paths.take(self.paths.meet(low, high, some)[0]) for low, high, some in widest]
        one, two, tree = _pairs(parts[0], parts[1], ~apart, shared)
        weights, which = np.unique(np.concatenate([p, q], axis=1), axis=0, return_inverse=True)
        which = which.reshape(-1)
        adds = [self._whole(parts, (one, two), tree, weight) for weight in weights]
        for start in range(0, len(first[0]), TOGETHER):
            part = slice(start, start + TOGETHER)
            asked = np.flatnonzero((box >= start) & (box < start + TOGETHER))
            around = [(low[part], high[part], some[part]) for (low, high), some in zip((first, second), possible, strict=True)]
            # Boxes that stand together lie together: most pairs are met by none of them.
            near = [paths.meet(low.min(axis=0)[None], high.max(axis=0)[None], np.any(some, axis=0)[None])[0]
                    for paths, (low, high, some) in zip(parts, around, strict=True)]
            kept = np.flatnonzero(near[0][one] & near[1][two])
            begin = np.flatnonzero(np.diff(tree[kept], prepend=-1) != 0)
            if len(begin) < len(self.ensemble.root):    # some tree has no pair: no row is in any of the boxes
                found[asked] = np.inf
                continue
            both = np.ones((len(around[0][0]), len(kept)), dtype=bool)
            for paths, at, (low, high, some) in zip(parts, (one[kept], two[kept]), around, strict=True):
                leaves, place = np.unique(at, return_inverse=True)
                both &= paths.take(leaves).meet(low, high, some)[:, place]
            for b in shared:
                among = parts[0].categories[one[kept], b] & parts[1].categories[two[kept], b]
                both &= around[0][2][:, b].astype(np.float32) @ among.astype(np.float32).T > 0
            nowhere = ~np.all(np.logical_or.reduceat(both, begin, axis=1), axis=1)
            for weight in np.unique(which[asked]).tolist():
                whole, base, unit = adds[weight]
                rows = asked[which[asked] == weight]
                at = box[rows] - start
                least = np.minimum.reduceat(np.where(both[at], whole[kept], np.int64(1) << 62), begin, axis=1)
                total = np.array([float(base + sum(row)) * unit for row in least.tolist()])
                found[rows] = np.where(nowhere[at], np.inf, total)
        return found

    def alone(self, low: Array, high: Array, weight: Array) -> Array:
        """Return lower bounds (B,) of  weight . f(x),  weight (m,), over boxes low, high (B, n)."""
        every = np.arange(len(self.paths.tree))
        both = np.concatenate([weight, np.zeros_like(weight)])
        whole, base, unit = self._whole([self.paths, self.paths], (every, every), self.paths.tree, both)
        some = self._possible(high)
        found = np.full(len(low), np.inf)
        for start in range(0, len(low), TOGETHER):
            part = slice(start, start + TOGETHER)
            ends = low[part], high[part], some[part]
            around = ends[0].min(axis=0)[None], ends[1].max(axis=0)[None], np.any(ends[2], axis=0)[None]
            kept = np.flatnonzero(self.paths.meet(*around)[0])
            begin = np.flatnonzero(np.diff(self.paths.tree[kept], prepend=-1) != 0)
            if len(begin) == len(self.ensemble.root):   # else no row is in any of the boxes
                met = self.paths.take(kept).meet(*ends)
                least = np.minimum.reduceat(np.where(met, whole[kept], np.int64(1) << 62), begin, axis=1)
                total = np.array([float(base + sum(row)) * unit for row in least.tolist()])
                found[part] = np.where(np.all(np.logical_or.reduceat(met, begin, axis=1), axis=1), total, np.inf)
        return found

    def _possible(self, high: Array) -> Booleans:
        """Return (B, blocks, words) which categories boxes with upper ends (B, n) leave."""
        blocks = np.flatnonzero(self.domain.one_hot)
        some = np.zeros((len(high), len(blocks), self.paths.categories.shape[2]), dtype=bool)
        for b, v in enumerate(blocks.tolist()):
            width = int(self.domain.width[v])
            some[:, b, :width] = high[:, int(self.domain.start[v]) : int(self.domain.start[v]) + width] >= 1
        return some

    def _whole(
        self, parts: list[Paths], pair: tuple[Integers, Integers], tree: Integers, weight: Array
    ) -> tuple[Integers, int, float]:
        """What pairs of leaves add, and the base, as whole numbers of a unit, rounded down."""
        m = self.ensemble.outputs
        size = float(np.abs(weight) @ np.tile(self.sizes, 2))
        unit = 2.0 ** (np.ceil(np.log2(max(size, 1e-250))) - 60)
        values = [self.ensemble.value[paths.node[at]] for paths, at in zip(parts, pair, strict=True)]
        bases = np.tile(self.ensemble.base, 2)
        terms = [(float(weight[k]), values[k // m][:, k % m]) for k in range(2 * m)]
        base = _at_most([(float(weight[k]), bases[k : k + 1]) for k in range(2 * m)])
        return (np.floor(_at_most(terms) / unit).astype(np.int64), int(np.floor(base[0] / unit)), unit)


def _on_whole_numbers(ensemble: TreeEnsemble, domain: Domain) -> Array:
    """The thresholds (K,), where a variable is whole the column of the largest whole number below: the same rows go left. Where
    that is not sure a threshold stays what it is."""
    threshold = ensemble.threshold.copy()
    for v in np.flatnonzero(domain.integer & ~domain.one_hot).tolist():
        at = np.flatnonzero((ensemble.column == domain.start[v]) & np.isfinite(threshold))
        alone, limit = domain.take(np.array([v])), threshold[at]
        near = np.floor(limit * domain.scale[v] + domain.offset[v])
        for raw in (near - 1, near, near + 1):
            here, after = (alone.encode(one[:, None])[:, 0] for one in (raw, raw + 1))
            threshold[at] = np.where((here <= limit) & (limit < after), here, threshold[at])
    return threshold


def _pairs(first: Paths, second: Paths, alike: Booleans, shared: list[int]) -> tuple[Integers, Integers, Integers]:
    """The pairs of leaves of one tree that some row may meet, and their trees. alike: (n,) columns that both copies share."""
    found = []
    columns = np.flatnonzero(alike & (np.isfinite(first.low) | np.isfinite(first.high)).any(axis=0)).tolist()
    for tree in np.unique(first.tree).tolist():
        mine, other = np.flatnonzero(first.tree == tree), np.flatnonzero(second.tree == tree)
        step = max(1, PAIRS // max(len(other), 1))
        for start in range(0, len(mine), step):
            a = mine[start : start + step]
            fits = np.ones((len(a), len(other)), dtype=bool)
            for column in columns:
                fits &= first.low[a, column][:, None] < second.high[other, column]
                fits &= second.low[other, column] < first.high[a, column][:, None]
            i, j = np.nonzero(fits)
            meet = np.ones(len(i), dtype=bool)
            for b in shared:
                meet &= (first.categories[a[i], b] & second.categories[other[j], b]).any(axis=1)
            found.append((a[i[meet]], other[j[meet]], np.full(int(meet.sum()), tree)))
    nothing = (np.empty(0, dtype=np.int64),) * 3
    one, two, tree_of = (np.concatenate(parts) for parts in zip(nothing, *found, strict=True))
    return one, two, tree_of


def _at_most(terms: list[tuple[float, Array]]) -> Array:
    """Numbers at most the sums of factor times values, the sums themselves where float64 holds all that is on the way."""
    total, lost = np.zeros(len(terms[0][1])), np.zeros(len(terms[0][1]))
    for factor, values in terms:
        if factor == 0:
            continue
        product = factor * values
        single = (np.float32(factor) == factor) & (values.astype(np.float32) == values)     # 24 bits each
        added = total + product
        back = added - total
        lost = lost + np.where(single, 0.0, 2.0**-52 * np.abs(product)) + np.abs((total - (added - back)) + (product - back))
        total = added
    return np.where(lost > 0, np.nextafter(total - lost * (1 + 2.0**-20), -np.inf), total)
