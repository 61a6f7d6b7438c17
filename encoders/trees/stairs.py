"""Linear and quadratic functions of columns as trees, for a search that works on trees only: one tree a variable, a leaf for each
of its values.

Whole numbers and categories have a leaf each, and the only errors are roundings of products. For real numbers, and very many whole
ones, a leaf covers a part of the range: its value is the middle between the least and the largest there, and a second number is
their distance from it.
Values at which copies are compared have leaves of their own: if both copies take one leaf, their difference is 0. So have the ends
of the questions' boxes, and some values between them, so that errors in a small box are small. Thresholds of the trees end parts as
well: the least and the largest value over a cell between them are those of rows in it.
Sound? yes: the function lies within the range of its leaf.   Complete? if every value has its leaf.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from encoders.arrays import Array
from encoders.domain import Domain
from encoders.errors import ModelError
from encoders.trees.cells import HELD, cells_of
from encoders.trees.ensemble import TreeEnsemble
from encoders.trees.mean import MeanOfTrees

VALUES, PARTS = 1 << 12, 1 << 10
"""The most whole numbers that have a leaf each; and the number of parts of other ranges."""
OF_A_BOX, OF_BOXES = 8, 1 << 14
"""The most parts of each question's box, and of all boxes together."""


def searched(network: MeanOfTrees, domain: Domain, compared: Array, *boxes: Array) -> TreeEnsemble:
    """Return the trees of a mean's m sums; with linear functions a leaf has 2 m numbers: these sums, and bounds of their errors.

    compared: (N, V) raw values at which copies differ, each of which gets a leaf; NaN where a variable does not differ.
    boxes: lower and upper ends (Q, V) of the questions' raw boxes, or nothing.
    """
    if not network.straight.any():
        return network.trees
    assert network.lines is not None
    single, cuts = [b""] * domain.variables, cells_of(network.trees, domain).cuts
    for v in np.flatnonzero(~domain.one_hot).tolist():
        if network.straight[domain.start[v]] and not _each(domain, v):
            integral, compared_values = bool(domain.integer[v]), compared[~np.isnan(compared[:, v]), v]
            box_ends = np.append(compared_values, _between(integral, *(end[:, v] for end in boxes)))
            cell_ends = np.append(cuts[v], cuts[v] + 1.0 if integral else [])      # both ends of cells
            single[v] = np.union1d(box_ends, cell_ends if len(cell_ends) <= OF_BOXES else []).tobytes()
    squares = np.zeros_like(network.lines) if network.squares is None else network.squares
    return _with_stairs(network.trees, np.stack([network.lines, squares]).tobytes(), domain, tuple(single))


def _between(integral: bool, *ends: Array) -> Array:
    """Return the ends of boxes (Q,), lower and upper, and of equal parts of them; nothing if there are too many boxes."""
    if not ends:
        return np.empty(0)
    low, high = np.unique(np.stack(ends), axis=1)
    parts = min(OF_BOXES // len(low), OF_A_BOX)
    if parts == 0:
        return np.empty(0)
    cuts = low + np.linspace(0, 1, parts + 1)[:, None] * (high - low)
    return np.asarray(np.floor(cuts) if integral else cuts)


@lru_cache(maxsize=HELD)
def _with_stairs(trees: TreeEnsemble, packed: bytes, domain: Domain, single: tuple[bytes, ...]) -> TreeEnsemble:
    factors = np.frombuffer(packed).reshape(2, trees.outputs, trees.columns)     # of columns, and of their squares
    nodes = _Nodes(first=len(trees.column), root=trees.root.tolist(), nodes=[], values=[])
    for v in range(domain.variables):
        block = slice(int(domain.start[v]), int(domain.start[v] + domain.width[v]))
        if not factors[:, :, block].any():
            continue
        if domain.one_hot[v]:
            adds, rounds = factors[:, :, block].sum(axis=0).T, factors[:, :, block].all(axis=0).T
            nodes.categories(block.start, np.concatenate([adds, 2.0**-51 * np.abs(adds) * rounds], axis=1))
        else:
            weight, square = factors[:, :, block.start]
            nodes.numbers(block.start, *_parts(domain, v, weight, square, np.frombuffer(single[v])))
    column, threshold, left, right = (np.array(field) for field in zip(*nodes.nodes, strict=True))
    value = np.concatenate([np.concatenate([trees.value, np.zeros_like(trees.value)], axis=1), np.array(nodes.values)])
    return replace(
        trees, root=np.array(nodes.root), column=np.append(trees.column, column), threshold=np.append(trees.threshold, threshold),
        left=np.append(trees.left, left), right=np.append(trees.right, right), value=value, terms=None,
        missing_left=np.append(trees.missing_left, np.ones(len(column), dtype=bool)),
        base=np.append(trees.base, np.zeros_like(trees.base)),
    )


def _each(domain: Domain, v: int) -> bool:
    """Return True if each value of a number has a leaf."""
    return bool(domain.integer[v] and domain.upper[v] - domain.lower[v] < VALUES)


def _parts(domain: Domain, v: int, weight: Array, square: Array, single: Array) -> tuple[Array, Array]:
    """Return the ends of the K parts of a number, in its column (K,); and for each part the middle between the least and the
    largest value of  weight x + square x^2,  both (m,), and their distance from it (K, 2 m).   single: raw values that are parts by
    themselves."""
    low, high = float(domain.lower[v]), float(domain.upper[v])
    if not np.isfinite([low, high]).all():
        raise ModelError("model", "has a linear function of a number without a range")
    integral, by_value = bool(domain.integer[v]), _each(domain, v)
    raw = np.arange(low, high + 1) if by_value else np.linspace(low, high, PARTS + 1)
    raw = np.concatenate([np.floor(raw) if integral else raw, single])
    column = domain.take(np.array([v])).encode(raw[:, None])[:, 0].astype(np.float32)
    last = np.unique(np.concatenate([column, np.nextafter(column[len(raw) - len(single) :], np.float32(-np.inf))]))
    first = last if by_value else np.concatenate([last[:1], np.nextafter(last[:-1], np.float32(np.inf))])
    first, last = first.astype(np.float64), last.astype(np.float64)
    first, last = first[:, None], last[:, None]
    vertex = -0.5 * np.divide(weight, square, out=np.zeros(len(weight)), where=square != 0)
    ends = [x * weight + x * x * square for x in (first, last, np.clip(vertex, first, last) if square.any() else first)]
    lowest, highest = np.minimum.reduce(ends), np.maximum.reduce(ends)
    size = sum(np.abs(x * weight) + x * x * np.abs(square) for x in (first, last))
    exact = by_value and bool((weight.astype(np.float32) == weight).all() and not square.any())  # products of 24 bits each
    radius = 0.5 * np.abs(highest - lowest) * (1 + 2.0**-50) + 2.0**-51 * size * (not exact)
    return last[:, 0], np.concatenate([0.5 * (lowest + highest), radius], axis=1)


@dataclass(kw_only=True)
class _Nodes:
    """Trees under construction, to be appended to `first` nodes: column, threshold, both branches and values of each node."""

    first: int
    root: list[int]
    nodes: list[tuple[int, float, int, int]]
    values: list[Array]

    def _add(self, value: Array, column: int = -1, threshold: float = 0.0) -> int:
        number = self.first + len(self.nodes)
        self.nodes.append((column, threshold, number, number))
        self.values.append(value)
        return number

    def _branch(self, number: int, left: int, right: int) -> None:
        self.nodes[number - self.first] = (*self.nodes[number - self.first][:2], left, right)

    def categories(self, column: int, value: Array) -> None:
        """Add a tree that splits off one category after the other, with values (W, 2 m)."""
        chain = self._add(value[-1])
        for k in range(len(value) - 2, -1, -1):
            leaf, node = self._add(value[k]), self._add(0 * value[k], column + k, 0.5)
            self._branch(node, chain, leaf)
            chain = node
        self.root.append(chain)

    def numbers(self, column: int, end: Array, value: Array) -> None:
        """Add a balanced tree of parts (K,) with values (K, 2 m)."""

        def below(first: int, stop: int) -> int:
            if stop - first == 1:
                return self._add(value[first])
            middle = (first + stop) // 2
            node = self._add(0 * value[first], column, float(end[middle - 1]))
            self._branch(node, below(first, middle), below(middle, stop))
            return node

        self.root.append(below(0, len(end)))
