"""Both copies' trees at once: for given protected values z and z' each tree becomes one over the other variables.

Its leaves hold the pair (T(x, z), T(x, z')): both copies take the same branch but where a protected variable is asked about. A box
of the other variables meets some of the leaves of each tree, a bit each; the bits of all boxes come from tables by cell, one row a
variable and end. The exact extremes of  p T(x, z) + q T(x, z')  over what a box meets are looked up eight leaves at a time, and add
up to a lower bound of  p g + q g'  over the box.

Rounding: what a leaf adds is rounded down to a multiple of a power of 2 so small that all sums are exact in float64, in any order.
A pair of leaves that adds 0 adds exactly 0, so exact ties are bounded by exactly 0.
Sound? yes.   Complete? of a box within one cell the bound is the value, but for that rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from encoders.network import Array, Booleans, Integers
from encoders.trees.cells import TreeCells
from encoders.trees.ensemble import TreeEnsemble

TABLES = 1 << 28
"""Bytes of a variable's table at most; of more cells the leaves themselves are asked."""
AT_ONCE = 1 << 18
"""Numbers looked up at a time."""
BITS = 51
"""Of the sums: two fewer than a float64 number has."""
Words = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class PairTrees:
    """All trees for one pair of protected values. L leaves, J questions, T trees that have some; cells are those of the variables.

    leaf1, leaf2: (L,) nodes of the ensemble.   first, last: (L, V) cells of a leaf.   allowed: (L, V) categories, a bit each.
    tree: (L,) in order.   questions: variable, and the last cell or the categories that go left (J,).   children: (J, 2) what lies
    below a question: a leaf l as l, a question j as L + j, always a later one.   alone1, alone2: nodes of trees with one leaf.
    """

    ensemble: TreeEnsemble
    cells: TreeCells
    leaf1: Integers
    leaf2: Integers
    first: Integers
    last: Integers
    allowed: Words
    tree: Integers
    variable: Integers
    cut: Integers
    goes_left: Words
    children: Integers
    alone1: Integers
    alone2: Integers
    tables: dict[int, tuple[Words, Words]] = field(default_factory=dict)

    @classmethod
    def of(cls, ensemble: TreeEnsemble, cells: TreeCells, z: Booleans, z_prime: Booleans) -> PairTrees:
        """z, z_prime: (K,) whether a node about a protected variable goes left at z and at z'; `cells.variable` is -2 there."""
        count, variables = len(ensemble.root), len(cells.cuts)
        leaf = ensemble.column < 0
        asked = cells.variable == -2
        n1, n2, tree = ensemble.root.copy(), ensemble.root.copy(), np.arange(count)
        first = np.zeros((count, variables), dtype=np.int16)
        last = np.tile(np.array([cells.count(v) - 1 for v in range(variables)], dtype=np.int16), (count, 1))
        allowed = np.tile(
            np.array([(1 << cells.count(v)) - 1 if cells.domain.one_hot[v] else 0 for v in range(variables)], dtype=np.uint64),
            (count, 1),
        )
        parent, side = np.full(count, -1), np.zeros(count, dtype=np.int64)
        leaves: list[tuple[np.ndarray, ...]] = []
        questions: list[tuple[np.ndarray, ...]] = []
        total = 0
        one_hot = cells.domain.one_hot
        while len(n1):
            for _ in range(ensemble.depth):
                n1 = np.where(asked[n1], np.where(z[n1], ensemble.left[n1], ensemble.right[n1]), n1)
                n2 = np.where(asked[n2], np.where(z_prime[n2], ensemble.left[n2], ensemble.right[n2]), n2)
                if not (asked[n1] | asked[n2]).any():
                    break
            done = leaf[n1] & leaf[n2]
            leaves.append((n1[done], n2[done], first[done], last[done], allowed[done], tree[done], parent[done], side[done]))
            n1, n2, tree, parent, side = n1[~done], n2[~done], tree[~done], parent[~done], side[~done]
            first, last, allowed = first[~done], last[~done], allowed[~done]
            if not len(n1):
                break
            row = np.arange(len(n1))
            node = np.where(leaf[n1], n2, n1)
            v, cut, here = cells.variable[node], cells.last[node], cells.goes_left[node]
            kind = one_hot[v]
            left = np.where(kind, (allowed[row, v] & here) != 0, first[row, v] <= cut)
            right = np.where(kind, (allowed[row, v] & ~here) != 0, last[row, v] > cut)
            both = left & right
            moves = [(cells.variable[n] == v) & (cells.last[n] == cut) & (cells.goes_left[n] == here) for n in (n1, n2)]
            number = total + np.cumsum(both) - 1
            questions.append((v[both], cut[both], here[both], parent[both], side[both], number[both]))
            total += int(both.sum())
            parts = []
            for way, possible in ((0, left), (1, right)):
                k = np.flatnonzero(possible)
                below = ensemble.left if way == 0 else ensemble.right
                a, b = (np.where(move[k], below[n[k]], n[k]) for move, n in zip(moves, (n1, n2), strict=True))
                low, high, some = first[k], last[k], allowed[k]
                at, numeric = np.arange(len(k)), ~kind[k]
                if way == 0:
                    high[at[numeric], v[k][numeric]] = np.minimum(high[at[numeric], v[k][numeric]], cut[k][numeric])
                    some[at, v[k]] &= np.where(numeric, some[at, v[k]], here[k])
                else:
                    low[at[numeric], v[k][numeric]] = np.maximum(low[at[numeric], v[k][numeric]], cut[k][numeric] + 1)
                    some[at, v[k]] &= np.where(numeric, some[at, v[k]], ~here[k])
                split = both[k]
                parts.append((a, b, tree[k], low, high, some, np.where(split, number[k], parent[k]), np.where(split, way, side[k])))
            n1, n2, tree, first, last, allowed, parent, side = (np.concatenate(one) for one in zip(*parts, strict=True))
        return cls._joined(ensemble, cells, leaves, questions, total)

    @classmethod
    def _joined(
        cls, ensemble: TreeEnsemble, cells: TreeCells, leaves: list[tuple[np.ndarray, ...]],
        questions: list[tuple[np.ndarray, ...]], total: int,
    ) -> PairTrees:
        n1, n2, first, last, allowed, tree, parent, side = (np.concatenate(one) for one in zip(*leaves, strict=True))
        order = np.argsort(tree, kind="stable")
        n1, n2, first, last, allowed, tree, parent, side = (
            one[order] for one in (n1, n2, first, last, allowed, tree, parent, side)
        )
        alone = parent == -1
        children = np.zeros((total, 2), dtype=np.int64)
        kept = ~alone
        count = int(kept.sum())
        children[parent[kept], side[kept]] = np.arange(count)
        if questions:
            v, cut, here, up, way, number = (np.concatenate(one) for one in zip(*questions, strict=True))
            below = up >= 0
            children[up[below], way[below]] = count + number[below]
        else:
            v, cut, here = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint64)
        return cls(
            ensemble=ensemble, cells=cells, leaf1=n1[kept], leaf2=n2[kept], first=first[kept], last=last[kept],
            allowed=allowed[kept], tree=np.unique(tree[kept], return_inverse=True)[1].reshape(-1), variable=v, cut=cut,
            goes_left=here, children=children, alone1=n1[alone], alone2=n2[alone],
        )

    def part(self, trees: Integers) -> PairTrees:
        """Some of the trees, by their numbers in `tree`; tables are made anew."""
        if len(trees) == len(self.start):
            return self
        count = len(self.leaf1)
        kept = np.isin(self.tree, trees)
        owner = np.concatenate([self.tree, np.full(len(self.children), -1)])
        for j in range(len(self.children) - 1, -1, -1):
            owner[count + j] = owner[self.children[j, 0]]
        asked = np.isin(owner[count:], trees)
        number = np.concatenate([np.cumsum(kept) - 1, int(kept.sum()) + np.cumsum(asked) - 1])
        return replace(
            self, leaf1=self.leaf1[kept], leaf2=self.leaf2[kept], first=self.first[kept], last=self.last[kept],
            allowed=self.allowed[kept], tree=np.unique(self.tree[kept], return_inverse=True)[1].reshape(-1),
            variable=self.variable[asked], cut=self.cut[asked], goes_left=self.goes_left[asked],
            children=number[self.children[asked]], tables={},
        )

    @cached_property
    def place(self) -> Integers:
        """(L,) the bit of each leaf: every tree begins with a byte of its own."""
        count = np.bincount(self.tree, minlength=1) if len(self.tree) else np.zeros(0, dtype=np.int64)
        size = -(-count // 8) * 8
        start, begin = np.cumsum(size) - size, np.cumsum(count) - count
        return np.asarray(start[self.tree] + np.arange(len(self.tree)) - begin[self.tree]) if len(self.tree) else self.tree

    @cached_property
    def start(self) -> Integers:
        """(T,) the first byte of each tree."""
        count = np.bincount(self.tree, minlength=1) if len(self.tree) else np.zeros(0, dtype=np.int64)
        size = -(-count // 8)
        return np.asarray(np.cumsum(size) - size)

    @cached_property
    def columns(self) -> list[Integers]:
        """The first bytes of all trees, those of most leaves first; then the second bytes of those that have one, and so on."""
        size = -(-np.bincount(self.tree) // 8)
        order = np.argsort(-size, kind="stable")
        return [self.start[order[size[order] > k]] + k for k in range(int(size.max()))]

    @cached_property
    def bytes(self) -> int:
        """Bytes of the bits of a box, a multiple of 8."""
        return int(-(-(int(self.place.max(initial=-1)) // 8 + 1) // 8) * 8)

    def packed(self, chosen: Booleans) -> Words:
        """Bits (B, bytes / 8) of leaves chosen (B, L)."""
        wide = np.zeros((len(chosen), self.bytes * 8), dtype=bool)
        wide[:, self.place] = chosen
        return np.packbits(wide, axis=1, bitorder="little").view(np.uint64)

    @cached_property
    def asked(self) -> Integers:
        """Variables that some question is about."""
        return np.unique(self.variable)

    def _table(self, v: int) -> tuple[Words, Words] | None:
        """Bits of leaves by cell: that begin at the cell or below it, and that end there or above; of categories by first and last
        one, and nothing. None where they are too many."""
        if v not in self.tables:
            count = self.cells.count(v)
            if self.cells.domain.one_hot[v]:
                one = self.packed((self.allowed[:, v][None] >> np.arange(count, dtype=np.uint64)[:, None]) & np.uint64(1) == 1)
                spans = np.zeros((count, count, one.shape[1]), dtype=np.uint64)
                for a in range(count):
                    spans[a, a:] = np.bitwise_or.accumulate(one[a:], axis=0)
                self.tables[v] = spans, one
            elif 2 * count * self.bytes > TABLES:
                return None
            else:
                cell = np.arange(count)[:, None]
                step = max(1, AT_ONCE * 8 // max(self.bytes * 8, 1))
                parts = [cell[k : k + step] for k in range(0, count, step)]
                begun = np.concatenate([self.packed(self.first[:, v][None] <= part) for part in parts])
                self.tables[v] = begun, np.concatenate([self.packed(self.last[:, v][None] >= part) for part in parts])
        return self.tables[v]

    def reach(self, first: Integers, last: Integers) -> Words:
        """Bits (B, bytes / 8) of the leaves that boxes of cells first ... last (B, V) meet."""
        found = np.full((len(first), self.bytes // 8), np.uint64(0xFFFFFFFFFFFFFFFF))
        for v in self.asked.tolist():
            a, b = first[:, v], last[:, v]
            table = self._table(v)
            if table is None:
                found &= self.packed((self.first[:, v][None] <= b[:, None]) & (self.last[:, v][None] >= a[:, None]))
            elif self.cells.domain.one_hot[v]:
                found &= table[0][a, b]
            else:
                found &= table[0][b]
                found &= table[1][a]
        return found

    def worth(self, margin: Array) -> Worth:
        """What the leaves add to the margin  margin . logits  of both copies."""
        return Worth(self, margin)


class Worth:
    """What pairs of leaves add to a margin: one (L,), two (L,) of x and x', how far these may be off, and the tables for bounds."""

    def __init__(self, pairs: PairTrees, margin: Array) -> None:
        self.pairs = pairs
        ensemble = pairs.ensemble
        self.one, self.two, self.alone1, self.alone2 = (
            _weighted(ensemble.value[at], margin) for at in (pairs.leaf1, pairs.leaf2, pairs.alone1, pairs.alone2)
        )
        self.base = _weighted(ensemble.base[None], margin)
        self.same = pairs.leaf1 == pairs.leaf2
        size = float(np.abs(margin) @ ensemble.largest)
        self.size = size
        self.step = 2.0 ** np.ceil(np.log2(max(2 * size, 1e-250)) - BITS)
        self.terms = len(ensemble.root) + 1
        self._tables: dict[tuple[float, float], tuple[Array, Array, float]] = {}

    @property
    def noise(self) -> float:
        """How far `values` may be off."""
        return float(2 * self.terms * self.step + 2.0**-48 * self.size)

    def rounded(self, p: float, q: float) -> tuple[Array, float]:
        """What leaves (L,) add to p g + q g', rounded down, and what all trees with one leaf and the base add."""
        leaves = _down(_row(p, q, self.one, self.two, self.same), self.step)
        alone = _down(_row(p, q, self.alone1, self.alone2, self.pairs.alone1 == self.pairs.alone2), self.step)
        base = _down(_row(p, q, self.base, self.base, np.ones(1, dtype=bool)), self.step)
        return leaves, float(alone.sum() + base.sum())

    def table(self, p: float, q: float) -> tuple[Array, Array, float]:
        """The least that any subset of eight leaves adds (bytes * 256,), what leaves add (L,), and what every row gets."""
        if (p, q) not in self._tables:
            leaves, constant = self.rounded(p, q)
            wide = np.full(self.pairs.bytes * 8, np.inf)
            wide[self.pairs.place] = leaves
            groups, least = wide.reshape(-1, 8), np.full((self.pairs.bytes, 256), np.inf)
            for bit in range(8):    # subsets with this leaf and lower ones: those without it, and the leaf
                half = 1 << bit
                np.minimum(least[:, :half], groups[:, bit : bit + 1], out=least[:, half : 2 * half])
            self._tables[p, q] = least.ravel(), leaves, constant
        return self._tables[p, q]

    def lower(self, reach: Words, lines: list[tuple[float, float]]) -> Array:
        """Lower bounds (B, S) of p g + q g', for S lines (p, q), over boxes that meet these leaves."""
        tables = [self.table(p, q) for p, q in lines]
        found = np.tile(np.array([constant for _, _, constant in tables]), (len(reach), 1))
        if not len(self.pairs.start):
            return found
        bits = np.ascontiguousarray(reach).view(np.uint8)
        offset = 256 * np.arange(self.pairs.bytes, dtype=np.int32)[:, None]
        step = max(1, AT_ONCE // self.pairs.bytes)
        for start in range(0, len(bits), step):
            at = bits[start : start + step].T + offset      # boxes side by side: trees are compared many boxes at a time
            groups = [at[place] for place in self.pairs.columns]
            for k, (least, _, _) in enumerate(tables):
                smallest = least[groups[0]]
                for group in groups[1:]:
                    part = smallest[: len(group)]
                    np.minimum(part, least[group], out=part)
                found[start : start + step, k] += smallest.sum(axis=0)
        return found


def _weighted(values: Array, margin: Array) -> tuple[Array, Array]:
    """margin . values (N,) of values (N, m), and how far that may be off: 0 where it is exact."""
    used = np.flatnonzero(margin)
    total, error = np.zeros(len(values)), np.zeros(len(values))
    for k in used.tolist():
        term = margin[k] * values[:, k]
        lost = np.zeros(len(values)) if _power(float(margin[k])) else 2.0**-52 * np.abs(term)
        added = total + term
        back = added - total
        error = error + lost + np.abs((total - (added - back)) + (term - back)) * (1 + 2.0**-50)
        total = added
    return total, error


def _row(p: float, q: float, one: tuple[Array, Array], two: tuple[Array, Array], same: Booleans) -> Array:
    """Numbers at most p a + q b, the same where nothing was rounded; where a and b are one number, (p + q) a."""
    (a, lost_a), (b, lost_b) = one, two
    x, y = p * a, q * b
    total = x + y
    back = total - x
    error = np.abs((x - (total - back)) + (y - back)) * (1 + 2.0**-50) + abs(p) * lost_a + abs(q) * lost_b
    for factor, part in ((p, x), (q, y)):
        if not _power(factor):
            error = error + 2.0**-52 * np.abs(part)
    if p + q == 0:
        total, error = np.where(same, 0.0, total), np.where(same, 0.0, error)
    return np.where(error > 0, np.nextafter(total - error * (1 + 2.0**-40), -np.inf), total)


def _power(number: float) -> bool:
    """Whether a number is 0 or a power of 2 with a sign: products with it are not rounded."""
    return number == 0 or abs(np.frexp(number)[0]) == 0.5


def _down(values: Array, step: float) -> Array:
    return np.asarray(np.floor(values / step) * step)
