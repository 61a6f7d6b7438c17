"""The leaf rule's bound for tree ensembles: of every tree the least that a compatible pair of leaves adds, summed up in integers.

A leaf of a tree is a box of columns, and a set for each block: the categories of a one-hot variable, or of a column of codes. Over
a box of rows x and x', a pair of leaves is compatible where x meets the first one, x' the second, and in every column that both
copies share some value lies in both leaves and in the box: intervals that meet two by two have a value in common; sets are
intersected. Where no pair of some tree is compatible, no row is in the box at all.
The term of a pair in  p g(x) + q g(x')  is rounded down to a multiple of a power of 2, so small that sums of integers are exact,
and ties exactly 0. For rows that a leaf names, `_evened` tightens a bound that does not suffice. Shares no code with the search.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from encoders.arrays import Array, Booleans, Integers
from encoders.domain import Batched, Domain
from encoders.trees.ensemble import TreeEnsemble
from verifair.checker.kernel.bounds import ranges

Bytes = npt.NDArray[np.uint8]
PAIRS = 1 << 22
"""Pairs of leaves of one tree that are compared at once."""
TOGETHER, MOST_WORDS = 512, 1 << 13
"""Boxes bounded at a time, at most: fewer where there are many pairs of leaves; and the most codes of a column that are a block."""
FAR, COARSE, SAME = np.int64(1) << 62, 12, 1 << 11
"""More than all pairs of leaves add (2^60); low bits that evened bounds drop, so that sums of 2^13 trees fit; and the spread over
the cells of a variable up to which a tree counts as independent of it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Ends(Batched):
    """Boxes: ends low and high (B, n) of n columns, and sets (B, blocks, bytes) of the categories of every block, a bit each."""

    low: Array
    high: Array
    categories: Bytes

    @property
    def hull(self) -> Ends:
        """The smallest box around all of them."""
        low, high, categories = self.low.min(axis=0), self.high.max(axis=0), np.bitwise_or.reduce(self.categories, axis=0)
        return Ends(low=low[None], high=high[None], categories=categories[None])


@dataclass(frozen=True, kw_only=True, eq=False)
class Paths(Ends):
    """The leaves (L) of all trees, tree by tree, as the boxes of their rows: low < x <= high.

    block: of the splits right above a node, -1 for numbers.   start: paths of one start differ in this block alone.
    """

    tree: Integers
    node: Integers
    block: Integers
    start: Integers

    @classmethod
    def of(cls, ensemble: TreeEnsemble, threshold: Array, columns: Integers, block: Integers, cells: Array) -> Paths:
        """Follow every path from the roots; paths that no row takes are left out.

        columns: (c,) the numbers that splits use.   block: (n,) of every column, -1 for numbers.   cells: (n, words) the value of
        a column in each category of its block, NaN for none.
        """
        count, blocks = len(ensemble.root), np.arange(block.max(initial=-1) + 1)
        sets = np.zeros((len(blocks), cells.shape[1]), dtype=bool)
        np.logical_or.at(sets, block[block >= 0], ~np.isnan(cells[block >= 0]))
        low, none, is_leaf = np.full((count, len(columns)), -np.inf), np.full(count, -1), ensemble.column < 0
        waiting = cls(low=low, high=-low, categories=np.tile(np.packbits(sets, axis=1), (count, 1, 1)),
                      tree=np.arange(count), node=ensemble.root, block=none, start=none)
        leaves, last = list[Paths](), 0
        for nodes in ensemble.upwards[::-1]:      # each after all nodes above it
            leaves.append(waiting.take(is_leaf[waiting.node]))
            here = np.isin(waiting.node, nodes)
            at, waiting = waiting.take(here).joined(), waiting.take(~here & ~is_leaf[waiting.node])
            column, limit = ensemble.column[at.node], threshold[at.node][:, None]
            about, asked, of_block = column[:, None] == columns, block[column][:, None] == blocks, block[column]
            start = np.where((of_block >= 0) & (of_block == at.block), at.start, last + np.arange(len(at)))
            goes_left, last = cells[column] <= limit, last + len(at)
            left = ensemble.left, goes_left, at.low, np.where(about, np.minimum(at.high, limit), at.high)
            right = ensemble.right, ~goes_left, np.where(about, np.maximum(at.low, limit), at.low), at.high
            for branch, allowed, low, high in (left, right):
                categories = at.categories & np.where(asked[:, :, None], np.packbits(allowed, axis=1)[:, None], np.uint8(255))
                half = replace(at, node=branch[at.node], low=low, high=high, categories=categories, block=of_block, start=start)
                some = np.all(low < high, axis=1) & np.all(np.any(categories, axis=2), axis=1)
                waiting = cls.join([waiting, half.take(some)])
        paths = cls.join([*leaves, waiting]).joined()
        return paths.take(np.argsort(paths.tree, kind="stable"))

    def joined(self) -> Paths:
        """Make one path of those from one start to one node: a set of categories is a chain of splits whose ends are shared."""
        key = np.where(self.block < 0, -1 - np.arange(len(self)), self.start * (self.node.max(initial=0) + 1) + self.node)
        _, first, number = np.unique(key, return_index=True, return_inverse=True)
        categories = self.categories[first]
        np.bitwise_or.at(categories, number.reshape(-1), self.categories)
        return replace(self.take(first), categories=categories)

    def meet(self, boxes: Ends, columns: Integers | None = None) -> Booleans:
        """Return (B, L) True where a box meets a leaf.   columns: those that count, None for all."""
        bits, ends = np.full((len(boxes), -(-len(self.tree) // 8)), 255, dtype=np.uint8), np.empty(len(boxes), dtype=complex)
        for column in range(boxes.low.shape[1]) if columns is None else columns.tolist():   # close boxes share most of their ends
            ends.real, ends.imag = boxes.low[:, column], boxes.high[:, column]
            unique, inverse = np.unique(ends, return_inverse=True)
            fits = (unique.real[:, None] <= self.high[:, column]) & (unique.imag[:, None] > self.low[:, column])
            bits &= np.packbits(fits, axis=1)[inverse]
        mask = np.unpackbits(bits, axis=1, count=len(self.tree)).astype(bool)
        for b in range(self.categories.shape[1]):
            mask &= _common(boxes.categories[:, b], self.categories[:, b])
        return mask


Both = tuple[Paths, Paths]
"""Leaves of x, and of x'."""


class TreeBounds:
    """The bounds of one ensemble. compares: True for decisions among several classes (`kernel.trees.compared`)."""

    compares = False

    def __init__(self, ensemble: TreeEnsemble, domain: Domain) -> None:
        self.ensemble, self.domain, self.threshold = ensemble, domain, _on_whole_numbers(ensemble, domain)
        inner, parts = np.flatnonzero(ensemble.column >= 0), {v: np.eye(domain.width[v]) for v in np.flatnonzero(domain.one_hot)}
        branches, column = np.stack([ensemble.left[inner], ensemble.right[inner]]), ensemble.column[inner]
        is_shared = np.any(np.bincount(branches.reshape(-1), minlength=1)[branches] > 1, axis=0)
        for v in np.flatnonzero(~domain.one_hot & np.isin(domain.start, column[is_shared])):
            ends = np.unique(np.append(self.threshold[inner[column == domain.start[v]]], np.inf))
            parts |= {v: ends[None]} if len(ends) <= MOST_WORDS else {}
        self.blocks, self.block = np.array(sorted(parts), dtype=np.int64), np.full(domain.columns, -1)
        self.cells = np.full((domain.columns, max([part.shape[1] for part in parts.values()], default=0)), np.nan)
        for b, v in enumerate(self.blocks):
            block = slice(domain.start[v], domain.start[v] + domain.width[v])
            self.block[block], self.cells[block, : parts[v].shape[1]] = b, parts[v]
        self.columns = np.setdiff1d(column, np.flatnonzero(self.block >= 0))

    @cached_property
    def paths(self) -> Paths:
        return Paths.of(self.ensemble, self.threshold, self.columns, self.block, self.cells)

    @cached_property
    def sizes(self) -> Array:
        """(m,) sums over the trees of the largest |value| of a leaf, and |base|."""
        largest = np.zeros((len(self.ensemble.root), self.ensemble.outputs))
        np.maximum.at(largest, self.paths.tree, np.abs(self.ensemble.value[self.paths.node]))
        return np.asarray((largest.sum(axis=0) + np.abs(self.ensemble.base)) * (1 + 2.0**-40))

    def float32_errors(self, margin: Array) -> Array:
        """Return (B,) bounds of the errors of margins (B, m) in any float32 evaluation, in any order of the sum: gamma_n times the
        sizes, with n numbers and operations, u = 2^-24; a margin of two scores is rounded once more."""
        n = self.ensemble.terms
        if n is None or n > 2**22 or self.sizes.max() > 2.0**100:    # in some order a sum may overflow
            return np.full(len(margin), np.inf)
        gamma = n * 2.0**-24 / (1 - n * 2.0**-24)
        weight = np.abs(margin)
        error = (gamma * self.sizes + n * 2.0**-120) * (1 + 2.0**-30)
        difference = np.where((weight > 0).sum(axis=1) > 1, 2.0**-23, 0.0)
        return np.asarray((weight @ error + difference * (weight @ (self.sizes + error))) * (1 + 2.0**-30))

    def least(
        self, first: tuple[Array, Array], second: tuple[Array, Array], differs: Booleans, box: Integers, p: Array, q: Array,
        needed: Array | None = None,
    ) -> Array:
        """Return lower bounds (N,) of  p . f(x) + q . f(x'), weights p, q (N, m) of the scores, over the boxes `box` (N,) of x and
        x', ends (B, n) each. differs: (n,) columns in which copies may differ.   needed: (N,) bounds up to this are evened out."""
        bounds, place = np.full(len(box), -np.inf), np.zeros(len(first[0]), dtype=np.int64)
        ends = [self._ends(*copy) for copy in (first, second)]
        for group, paths in self._groups(ends, *self._group(ends, np.arange(len(first[0])), (self.paths, self.paths))):
            rows, place[group] = np.flatnonzero(np.isin(box, group)), np.arange(len(group))
            group_ends, limit = [copy.take(group) for copy in ends], None if needed is None else needed[rows]
            bounds[rows] = self._least(group_ends, paths, differs, place[box[rows]], p[rows], q[rows], limit)
        return bounds

    def _group(self, ends: list[Ends], index: Integers, paths: Both) -> tuple[Integers, Both, int]:
        """Return boxes (G,), the leaves of each copy that their hull meets, and the number of pairs of these in all trees."""
        first, second = (leaves.take(leaves.meet(boxes.take(index).hull)[0]) for leaves, boxes in zip(paths, ends, strict=True))
        count = [np.bincount(leaves.tree, minlength=len(self.ensemble.root)) for leaves in (first, second)]
        return index, (first, second), int(count[0] @ count[1])

    def _groups(self, ends: list[Ends], index: Integers, paths: Both, pairs: int) -> Iterator[tuple[Integers, Both]]:
        """Yield a group of boxes in parts, with their leaves: halved along a column while one of its boxes has fewer pairs than its
        share of the group's."""
        if pairs > PAIRS and len(index) > 1 and len(self.columns):
            middle, high = ends[0].low[index] / 2 + ends[0].high[index] / 2, paths[0].high
            column = ((high > middle.min(axis=0)) & (high < middle.max(axis=0))).sum(axis=0).argmax()
            order = index[np.argsort(middle[:, column], kind="stable")]
            if self._group(ends, order[len(index) // 2 :][:1], paths)[2] * len(index) < pairs:
                for half in np.array_split(order, 2):
                    yield from self._groups(ends, *self._group(ends, half, paths))
                return
        yield index, paths

    def _least(
        self, ends: list[Ends], paths: Both, differs: Booleans, box: Integers, p: Array, q: Array, needed: Array | None
    ) -> Array:
        """Return `least` of boxes of x and of x', which meet no other leaves than `paths`."""
        bounds, blocks, moves = np.full(len(box), -np.inf), differs[self.domain.start[self.blocks]], differs[self.columns]
        i, j, tree = _pairs(*paths, ~moves, np.flatnonzero(~blocks).tolist())
        moving = np.where(blocks, 255, 0).astype(np.uint8)[:, None]
        pair, twin = paths[0].take(i), paths[1].take(j)
        joint = replace(pair, low=np.where(moves, pair.low, np.maximum(pair.low, twin.low)),   # x, and x' where both are one
                        high=np.where(moves, pair.high, np.minimum(pair.high, twin.high)),
                        categories=pair.categories & (twin.categories | moving))
        twin, free = replace(twin, categories=twin.categories | ~moving), np.flatnonzero(moves)
        number = dict[bytes, int]()
        group = np.array([number.setdefault(row.tobytes(), len(number)) for row in np.concatenate([p, q], axis=1)], dtype=np.int64)
        scaled = [self._scaled_terms(joint.node, twin.node, np.frombuffer(weight)) for weight in number]
        step = int(np.clip(4 * PAIRS // max(len(tree), 1), 16, TOGETHER))
        for start in range(0, len(ends[0]), step):
            part = slice(start, start + step)
            block = np.flatnonzero((box >= start) & (box < start + step))
            local = [copy.take(part) for copy in ends]
            near = [pairs.meet(boxes.hull, only)[0] for pairs, boxes, only in zip((joint, twin), local, (None, free), strict=True)]
            kept = np.flatnonzero(near[0] & near[1])    # boxes with neighbouring numbers are close: few pairs
            starts = np.flatnonzero(np.diff(tree[kept], prepend=-1) != 0)
            if len(starts) < len(self.ensemble.root):    # some tree has no pair: no row is in any of the boxes
                bounds[block] = np.inf
                continue
            met = joint.take(kept).meet(local[0]) & twin.take(kept).meet(local[1], free)
            for weight in np.flatnonzero(np.bincount(group[block])).tolist():
                terms, base, unit = scaled[weight]
                rows = block[group[block] == weight]
                smallest = np.minimum.reduceat(np.where(met[box[rows] - start], terms[kept], FAR), starts, axis=1)
                empty = (smallest == FAR).any(axis=1)
                bounds[rows] = np.where(empty, np.inf, _down(smallest.sum(axis=1) + base) * unit)     # at most 2^61 units
                for n in rows[bounds[rows] <= needed[rows]].tolist() if needed is not None else []:
                    subset = kept[met[box[n] - start]]
                    cells = self._cells(joint, subset, differs, ends[0].high[box[n]], ends[0].categories[box[n]])
                    bounds[n] = max(bounds[n], _down(min(base + _evened(terms[subset], tree[subset], cells), int(FAR))) * unit)
        return bounds

    def single_path(self, low: Array, high: Array) -> Booleans:
        """Return (B,) True if all rows of the box low, high (B, n), which holds one at least, take one path through every tree."""
        met = self.paths.meet(self._ends(low, high))
        return np.asarray(met.sum(axis=1) == len(self.ensemble.root))

    def _cells(
        self, pairs: Paths, index: Integers, differs: Booleans, high: Array, allowed: Booleans
    ) -> Iterator[tuple[Integers, Integers, Integers]]:
        """Yield, for each variable that both copies share, which of its cells, up to `high` (n,) and among the categories `allowed`
        (blocks, words), the pairs `index` (K,) hold: pairs with the first and the last one of a range."""
        for v in np.flatnonzero(~differs[self.domain.start]).tolist():
            for b in np.flatnonzero(self.blocks == v).tolist():
                members = np.unpackbits(pairs.categories[index, b] & allowed[b], axis=1)
                edges = np.diff(members.astype(np.int8), axis=1, prepend=0, append=0)
                pair, first = np.nonzero(edges > 0)
                yield pair, first, np.nonzero(edges < 0)[1] - 1
            for c in np.flatnonzero(self.columns == self.domain.start[v]).tolist():
                ends, last = np.unique(np.minimum(pairs.high[index, c], high[c]), return_inverse=True)
                yield np.arange(len(last)), np.searchsorted(ends, pairs.low[index, c], side="right"), last.reshape(-1)

    def _ends(self, low: Array, high: Array) -> Ends:
        """Return boxes low, high (B, n) of all columns, with the categories that they leave, as bits."""
        categories = np.zeros((len(high), len(self.blocks), -(-self.cells.shape[1] // 8)), dtype=np.uint8)
        for b, v in enumerate(self.blocks.tolist()):
            start, width = self.domain.start[v], self.domain.width[v]
            below = np.append(-np.inf, self.cells[start, :-1])
            met = (low[:, [start]] <= self.cells[start]) & (below < high[:, [start]])
            bits = np.packbits(high[:, start : start + width] >= 1 if self.domain.one_hot[v] else met, axis=1)
            categories[:, b, : bits.shape[1]] = bits
        return Ends(low=low[:, self.columns], high=high[:, self.columns], categories=categories)

    def _scaled_terms(self, leaf: Integers, partner: Integers, weight: Array) -> tuple[Integers, int, float]:
        """Return the terms of pairs of leaves, by nodes (K,), and the base, in whole units, rounded down; and the unit."""
        m, size = self.ensemble.outputs, float(np.abs(weight) @ np.tile(self.sizes, 2))
        if not np.isfinite(size):   # no bound
            return np.zeros_like(leaf), 0, np.nan
        unit = 2.0 ** (np.ceil(np.log2(max(size, 1e-250))) - 60)
        values, base = (self.ensemble.value[leaf], self.ensemble.value[partner]), self.ensemble.base
        order = [(k, c) for c in range(m) for k in (0, 1)]     # copies side by side: what they share cancels, whatever its size
        terms, bases = ([(float(weight[k * m + c]), v[k][:, c]) for k, c in order] for v in (values, (base[None], base[None])))
        return (np.floor(at_most(terms) / unit).astype(np.int64), int(np.floor(at_most(bases)[0] / unit)), unit)


def _evened(terms: Integers, tree: Integers, cells: Iterator[tuple[Integers, Integers, Integers]]) -> int:
    """Return a lower bound of the sum, over trees, of the terms `terms` (K,) of the pairs that a row meets; tree (K,): their trees.

    For each variable and each of its cells, every tree that uses it is given the mean of these trees' least terms there less its
    own least term, rounded down. All that trees are given adds up to at most 0, so the sum of their new minima is a bound of the
    sum itself. No row lies in a cell for which some tree has no pair; such cells, and pairs with no other cell, get `far`, which
    nothing else reaches. Cells that no pair of a tree tells apart are one stretch.
    """
    value, far, begin = terms >> COARSE, FAR >> COARSE, np.flatnonzero(np.diff(tree, prepend=-1) != 0)
    number = np.repeat(np.arange(len(begin)), np.diff(begin, append=len(tree)))
    for pair, first, last in cells if len(begin) < 1 << 13 else ():
        starts = np.zeros((len(begin), last.max() + 2), dtype=bool)
        starts[number[pair], first] = starts[number[pair], last + 1] = True
        starts = starts[:, :-1]
        asks: Booleans = np.any(starts[:, 1:], axis=1)
        selected = asks[number[pair]]
        if asks.sum() < 2:
            continue
        pair, first, last, starts = pair[selected], first[selected], last[selected], starts[asks]
        row, starts[:, 0] = (np.cumsum(asks) - 1)[number[pair]], True
        place = np.cumsum(starts).reshape(starts.shape) - 1
        begins, ends = place[row, first], place[row, last] + 1
        smallest = np.full(place[-1, -1] + 1, far)
        np.minimum.at(smallest, ranges(begins, ends), np.repeat(value[pair], ends - begins))
        smallest = smallest[place]
        covered = (smallest < far).all(axis=0)
        varied = smallest[:, covered].max(axis=1, initial=-far) - smallest[:, covered].min(axis=1, initial=far) > SAME
        if varied.sum() < 2:
            continue
        smallest = np.where(varied[:, None], smallest - smallest[varied].sum(axis=0) // varied.sum(), 0)
        smallest[:, ~covered] = -4 * far      # corrections are less than twice `far`
        stretches = np.append(np.minimum.reduceat(-smallest.reshape(-1), np.flatnonzero(starts)), 4 * far)
        shifted = np.zeros_like(value)
        shifted[pair] = 4 * far
        np.minimum.at(shifted, pair, np.minimum.reduceat(stretches, np.column_stack([begins, ends]).reshape(-1))[::2])
        finite = (shifted < 4 * far) & (value < far)
        if np.abs((value + shifted)[finite]).max(initial=0) >= far:
            break
        value = np.where(finite, value + shifted, far)
    return int(sum(np.minimum.reduceat(value, begin).tolist())) << COARSE


def _on_whole_numbers(ensemble: TreeEnsemble, domain: Domain) -> Array:
    """Return the thresholds (K,). Where a variable is whole, a threshold becomes the column of the largest whole number below it,
    if surely the same rows go left; else it stays."""
    threshold = ensemble.threshold.copy()
    for v in np.flatnonzero(domain.integer & ~domain.one_hot).tolist():
        nodes = np.flatnonzero((ensemble.column == domain.start[v]) & np.isfinite(threshold))
        single, limit = domain.take(np.array([v])), threshold[nodes]
        nearest = np.floor(limit * domain.scale[v] + domain.offset[v])
        for raw in (nearest - 1, nearest, nearest + 1):
            column, next_column = (single.encode(value[:, None])[:, 0] for value in (raw, raw + 1))
            threshold[nodes] = np.where((column <= limit) & (limit < next_column), column, threshold[nodes])
    return threshold


def _pairs(first: Paths, second: Paths, equal: Booleans, shared: list[int]) -> tuple[Integers, Integers, Integers]:
    """Return the pairs of leaves of one tree that some row may meet, and their trees. equal: (n,) columns shared by both copies."""
    pairs = []
    columns = np.flatnonzero(equal & (np.isfinite(first.low) | np.isfinite(first.high)).any(axis=0)).tolist()
    for tree in np.unique(first.tree).tolist():
        leaves, partners = np.flatnonzero(first.tree == tree), np.flatnonzero(second.tree == tree)
        step = max(1, PAIRS // max(len(partners), 1))
        for start in range(0, len(leaves), step):
            a = leaves[start : start + step]
            fits = np.ones((len(a), len(partners)), dtype=bool)
            for column in columns:
                fits &= first.low[a, column][:, None] < second.high[partners, column]
                fits &= second.low[partners, column] < first.high[a, column][:, None]
            for b in shared:
                fits &= _common(first.categories[a, b], second.categories[partners, b])
            i, j = np.nonzero(fits)
            pairs.append((a[i], partners[j], np.full(len(i), tree)))
    empty = (np.empty(0, dtype=np.int64),) * 3
    first_leaf, second_leaf, tree_of = (np.concatenate(parts) for parts in zip(empty, *pairs, strict=True))
    return first_leaf, second_leaf, tree_of


def _common(sets: Bytes, others: Bytes) -> Booleans:
    """Return (N, K) True where one of N sets and one of K others, a bit for each member, have a common one."""
    first, second = (np.unpackbits(part, axis=1).astype(np.float32) for part in (sets, others))
    return np.asarray(first @ second.T > 0)


def _down(number: Integers | int) -> Array:
    """Return whole numbers, at most 2^62, as float64, rounded down."""
    rounded = np.asarray(number, dtype=np.float64)
    return np.where(rounded.astype(np.int64) > number, np.nextafter(rounded, -np.inf), rounded)


def at_most(terms: list[tuple[float, Array]]) -> Array:
    """Return lower bounds of the sums of factor times values; the sums themselves if float64 holds all intermediate results."""
    total, error = np.zeros(len(terms[0][1])), np.zeros(len(terms[0][1]))
    for factor, values in terms:
        if factor == 0:
            continue
        product = factor * values
        is_exact = (float(np.float32(factor)) == factor) & (values.astype(np.float32) == values)     # 24 bits each
        is_exact |= (values == 0) | (abs(np.frexp(factor)[0]) == 0.5) & (np.abs(product) >= 2.0**-1000)     # a power of 2
        added = total + product
        recovered = added - total
        inexact = np.where(is_exact, 0.0, 2.0**-52 * np.abs(product) + 2.0**-1074)
        error, total = error + inexact + np.abs((total - (added - recovered)) + (product - recovered)), added
    return np.where(error > 0, np.nextafter(total - error * (1 + 2.0**-20), -np.inf), total)
