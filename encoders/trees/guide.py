"""Where to look and where to cut: heuristics over the pairs of trees, in float32, which no proof rests on."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise

import numpy as np
import scipy.sparse

from encoders.network import Array, Booleans, Integers
from encoders.trees.pairs import Words, Worth
from encoders.trees.twin import CellBoxes

TOGETHER = 1 << 13
"""Leaves of the trees that are looked at: those that have a row in common are held, pair by pair."""
AT_ONCE = 1 << 22
"""Numbers at a time."""


class Guide:
    """The trees of one pair of protected values, with what they add."""

    def __init__(self, worth: Worth) -> None:
        self.worth = worth
        self.kept = _telling(worth)
        self.pairs = worth.pairs.part(np.unique(worth.pairs.tree[self.kept]))
        self.leaves = len(self.pairs.leaf1)
        place = worth.pairs.place[self.kept] // 8
        self.bytes = np.zeros(self.pairs.bytes, dtype=np.int64)
        self.bytes[self.pairs.place // 8] = place
        self.used = np.zeros(self.pairs.bytes, dtype=bool)
        self.used[self.pairs.place // 8] = True

    def _own(self, bits: Words) -> Words:
        """The bits of the leaves that are kept, in their own order."""
        if len(self.kept) == len(self.worth.pairs.tree):
            return bits
        given = np.ascontiguousarray(bits).view(np.uint8)[:, self.bytes]
        return np.ascontiguousarray(np.where(self.used, given, np.uint8(0))).view(np.uint64)

    def _adds(self, p: float, q: float) -> Array:
        return self.worth.table(p, q)[1][self.kept]

    def cut(self, boxes: CellBoxes, bits: Words, p: float, q: float) -> tuple[Integers, Integers]:
        """Return, for each of N boxes that meet leaves `bits`, the variable (N,), -1 for none, and the cell (N,) after which a cut
        moves the bound of p g + q g' most."""
        variable, cell = np.empty(len(boxes), dtype=np.int64), np.empty(len(boxes), dtype=np.int64)
        bits = self._own(bits)
        step = max(1, AT_ONCE // max(self.leaves, 1))
        for start in range(0, len(boxes), step):
            part = slice(start, start + step)
            variable[part], cell[part] = self._cut(boxes.take(part), self._met(bits[part]), p, q)
        return variable, cell

    def _met(self, bits: Words) -> Booleans:
        """(B, L) the leaves that bits stand for."""
        wide = np.unpackbits(np.ascontiguousarray(bits).view(np.uint8), axis=1, bitorder="little")
        return wide[:, self.pairs.place].view(bool)

    @cached_property
    def _levels(self) -> list[tuple[Integers, Integers, Integers]]:
        """Questions by level, the lowest first: their numbers, and what is below them on both sides."""
        children, count = self.pairs.children, len(self.pairs.children)
        level = np.zeros(count, dtype=np.int64)
        for j in range(count - 1, -1, -1):
            below = children[j][children[j] >= self.leaves] - self.leaves
            level[j] = 1 + level[below].max(initial=-1)
        return [
            (at, children[at, 0], children[at, 1]) for k in range(level.max(initial=-1) + 1) for at in [np.flatnonzero(level == k)]
        ]

    @cached_property
    def _keys(self) -> tuple[Integers, Integers, scipy.sparse.csr_array]:
        """The places where a box may be cut, variables (C,) and cells (C,), and which questions (C, J) they belong to."""
        pairs = self.pairs
        one_hot = pairs.cells.domain.one_hot[pairs.variable]
        number = np.flatnonzero(~one_hot)
        parts = [(pairs.variable[number], pairs.cut[number], number)]
        for v in np.unique(pairs.variable[one_hot]).tolist():
            at = np.flatnonzero(pairs.variable == v)
            cell = np.arange(pairs.cells.count(v) - 1, dtype=np.uint64)
            sides = [(pairs.goes_left[at][:, None] >> (cell + np.uint64(k))) & np.uint64(1) for k in (0, 1)]
            row, border = np.nonzero(sides[0] != sides[1])
            parts.append((np.full(len(row), v), border, at[row]))
        variable, cell, question = (np.concatenate(one) for one in zip(*parts, strict=True))
        key, where = np.unique(np.stack([variable, cell]), axis=1, return_inverse=True)
        shape = (key.shape[1], len(pairs.variable))
        matrix = scipy.sparse.csr_array((np.ones(len(question), dtype=np.float32), (where.reshape(-1), question)), shape=shape)
        return key[0], key[1], matrix

    def _cut(self, boxes: CellBoxes, met: Booleans, p: float, q: float) -> tuple[Integers, Integers]:
        variable, cell, matrix = self._keys
        if not len(variable):
            return np.full(len(boxes), -1), np.zeros(len(boxes), dtype=np.int64)
        adds = self._adds(p, q).astype(np.float32)
        least = np.empty((self.leaves + len(self.pairs.children), len(boxes)), dtype=np.float32)
        least[: self.leaves] = np.where(met.T, adds[:, None], np.float32(np.inf))
        moves = np.zeros((len(self.pairs.children), len(boxes)), dtype=np.float32)
        with np.errstate(invalid="ignore"):
            for at, left, right in self._levels:
                one, two = least[left], least[right]
                least[self.leaves + at] = np.minimum(one, two)
                apart = np.abs(one - two)
                moves[at] = np.where(np.isfinite(apart), apart, np.float32(0))
        score = np.asarray(matrix @ moves)
        first, last = boxes.first[:, variable].T, boxes.last[:, variable].T
        score = np.where((first <= cell[:, None]) & (cell[:, None] < last), score, np.float32(0))
        best = score.argmax(axis=0)
        none = score[best, np.arange(len(boxes))] <= 0
        return np.where(none, -1, variable[best]), cell[best]

    @cached_property
    def _common(self) -> Words:
        """Bits (L, bytes / 8) of the leaves that have cells in common with each leaf, categories by the first and the last."""
        first, last = self.pairs.first.astype(np.int64), self.pairs.last.astype(np.int64)
        for v in np.flatnonzero(self.pairs.cells.domain.one_hot).tolist():
            count = self.pairs.cells.count(v)
            bits = self.pairs.allowed[:, v][:, None] >> np.arange(count, dtype=np.uint64)
            allowed = np.asarray(bits & np.uint64(1) == 1)
            some = allowed.any(axis=1)
            first[:, v] = np.where(some, allowed.argmax(axis=1), 0)
            last[:, v] = np.where(some, count - 1 - allowed[:, ::-1].argmax(axis=1), count - 1)
        return self.pairs.reach(first, last)

    def agreed(self, boxes: CellBoxes, bits: Words, p: float, q: float) -> Integers:
        """Return cells (B, V) of a point of each box: tree after tree, those that matter most first, takes the leaf that adds least
        and has a row in common with those taken before."""
        first, last = boxes.first.copy(), boxes.last.copy()
        common = self._common
        adds, pairs = self._adds(p, q), self.pairs
        begin = np.searchsorted(pairs.tree, np.arange(len(pairs.start) + 1))
        spread = np.array([np.ptp(adds[a:b]) for a, b in pairwise(begin.tolist())])
        bits = self._own(bits).copy()
        allowed = np.full(first.shape, np.uint64(0xFFFFFFFFFFFFFFFF))
        for tree in np.argsort(-spread, kind="stable")[: np.count_nonzero(spread)].tolist():
            a, b = int(begin[tree]), int(begin[tree + 1])
            size = -(-(b - a) // 8)
            start = int(pairs.start[tree])
            here = np.unpackbits(bits.view(np.uint8)[:, start : start + size], axis=1, bitorder="little")[:, : b - a].view(bool)
            leaf = a + np.where(here, adds[a:b], np.inf).argmin(axis=1)
            bits &= np.where(np.any(here, axis=1)[:, None], common[leaf], np.uint64(0xFFFFFFFFFFFFFFFF))
            np.maximum(first, pairs.first[leaf], out=first)
            np.minimum(last, pairs.last[leaf], out=last)
            allowed &= np.where(pairs.allowed[leaf] == 0, np.uint64(0xFFFFFFFFFFFFFFFF), pairs.allowed[leaf])
        point: Integers = np.asarray(np.clip((first + last) // 2, boxes.first, boxes.last))
        for v in np.flatnonzero(pairs.cells.domain.one_hot).tolist():
            cell = np.arange(pairs.cells.count(v))
            fits = np.asarray((allowed[:, v][:, None] >> cell.astype(np.uint64)) & np.uint64(1) == 1)
            fits &= (cell >= boxes.first[:, v][:, None]) & (cell <= boxes.last[:, v][:, None])
            point[:, v] = np.where(fits.any(axis=1), fits.argmax(axis=1), boxes.first[:, v])
        return point


def _telling(worth: Worth) -> Integers:
    """The leaves (L') of the trees that heuristics look at: all, or those that may move the margins and their difference most."""
    tree, count = worth.pairs.tree, len(worth.pairs.start)
    if len(tree) <= TOGETHER:
        return np.arange(len(tree))
    begin = np.searchsorted(tree, np.arange(count))
    one, apart = worth.one[0], worth.one[0] - worth.two[0]
    spread = [np.maximum.reduceat(values, begin) - np.minimum.reduceat(values, begin) for values in (one, apart)]
    order = np.argsort(-(spread[0] + spread[1]), kind="stable")
    size = np.bincount(tree)[order]
    chosen = order[np.cumsum(size) <= max(TOGETHER, int(size[0]))]
    return np.flatnonzero(np.isin(tree, chosen))
