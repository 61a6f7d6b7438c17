"""Both copies' trees at once: for given protected values z and z' each tree becomes one over the other variables.

Its leaves hold the pair (T(x, z), T(x, z')): both copies take the same branch except at splits of protected variables. Splits that
are decided by those above them are left out, so every leaf is met by some row.

A pair of leaves contributes  p a + q b  to  p g + q g', beside the base. Subtrees with equal leaves collapse to one leaf: those of
a difference mostly do, and trees without a split of protected variables vanish from it.

Rounding: a leaf's contribution is rounded down to a multiple of a power of 2 so small that all sums are exact in float64, in any
order. A contribution of 0 stays exactly 0, so exact ties are bounded by exactly 0.
Sound? yes.   Complete? for a box within one cell the bound is the value, up to that rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from encoders.trees.cells import WORD, TreeCells
from encoders.trees.compiled import compiled, held, narrow, room, whole
from encoders.trees.ensemble import TreeEnsemble

BITS = 51
"""Bits of the sums: two fewer than a float64 number has."""
MOST, MOST_WORDS = (1 << 31) - 1, (1 << 31) - (1 << 16)
"""Nodes of all trees together, and words of all their sets: their numbers have 32 bits (`compiled.narrow`)."""
MANY, KEPT = 1 << 20, 0.75
"""Of trees with so many nodes, collapsed ones are kept only if they have at most this share: they would be held twice."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Preorder:
    """Trees as flat lists (`compiled`), every node before those below it, its left branch next to it.

    variable: of each node, -1 for a leaf.   right: the right branch.   root: of each tree.
    cut: the last cell that goes left; for a split of categories the position of its two sets in `sets`; for a leaf its number.
    sets: for every split of categories, a bit for each that goes left, and a bit for each that goes right, of those that the path
    to it leaves.   hot: (V,) for variables of categories the words of a set, else 0.   cells: (V,).
    """

    variable: Any
    cut: Any
    right: Any
    root: Any
    sets: Any
    hot: Any
    cells: Any


@dataclass(frozen=True, kw_only=True, eq=False)
class JointTrees:
    """All trees for one pair of protected values. leaf1, leaf2: (L,) the ensemble's nodes that each leaf stands for."""

    ensemble: TreeEnsemble
    trees: Preorder
    leaf1: Integers
    leaf2: Integers
    _terms: dict[bytes, LeafTerms] = field(default_factory=dict)

    @classmethod
    def of(cls, ensemble: TreeEnsemble, cells: TreeCells, z: Booleans, z_prime: Booleans) -> JointTrees:
        """Return them. z, z_prime: (K,) True if a node of a protected variable goes left at z and at z'; `cells.variable` is -2."""
        count, differs = np.array([cells.count(v) for v in range(len(cells.cuts))]), cells.variable == -2
        hot, about_sets = held(np.where(cells.sets, -(-count // WORD), 0)), np.append(cells.sets, [False, False])[cells.variable]
        variable, cut, right, root, sets, leaf1, leaf2 = _join(
            held(ensemble.root), held(cells.variable), held(np.where(about_sets, cells.at, cells.last)),
            held(cells.goes_left.view(np.int64)),
            held(np.where(differs, ensemble.left, cells.left)), held(np.where(differs, ensemble.right, cells.right)),
            held(z.astype(np.int64)), held(z_prime.astype(np.int64)), hot, held(count),
        )
        trees = Preorder(variable=variable, cut=cut, right=right, root=root, sets=sets, hot=hot, cells=held(count))
        return cls(ensemble=ensemble, trees=trees, leaf1=np.asarray(leaf1), leaf2=np.asarray(leaf2))

    @property
    def swapped(self) -> JointTrees:
        """Return the same trees for the other order of the copies."""
        return replace(self, leaf1=self.leaf2, leaf2=self.leaf1, _terms={})

    def terms(self, margin: Array) -> LeafTerms:
        """Return the leaves' contributions to the margin  margin . logits  of both copies."""
        key = margin.tobytes()
        if key not in self._terms:
            self._terms[key] = LeafTerms(self, margin)
        return self._terms[key]

    def scores(self, count: int, lines: Array) -> list[list[tuple[Array, float]]]:
        """Return contributions to lines (S, 2) of each of `count` scores, [line][score]. Leaves may have as many further numbers,
        the errors of the scores (`trees.stairs`)."""
        worths = [self.terms(margin) for margin in np.eye(self.ensemble.outputs)]
        radius = worths[count:]
        return [[w.looser(float(p), float(q), radius[k]) if radius else w.rounded(float(p), float(q))
                 for k, w in enumerate(worths[:count])] for p, q in lines]


@dataclass(frozen=True, kw_only=True, eq=False)
class LineTrees:
    """Trees, and the contributions of their leaves to S lines  p g + q g'.   adds: flat (L, S).   base: (S,) of every row."""

    trees: Preorder
    adds: Any
    base: Any


class LeafTerms:
    """The contributions of pairs of leaves to a margin: one (L,), two (L,) of x and x', each with bounds of its error."""

    def __init__(self, joint: JointTrees, margin: Array) -> None:
        self.trees, ensemble = joint.trees, joint.ensemble     # not `joint`, which holds this: a circle is freed late
        self.first, self.second = (_weighted(ensemble.value[leaf], margin) for leaf in (joint.leaf1, joint.leaf2))
        self.base = _weighted(ensemble.base[None], margin)
        self.same = joint.leaf1 == joint.leaf2
        self.size = float(np.abs(margin) @ ensemble.largest)
        self.step = 2.0 ** np.ceil(np.log2(max(2 * self.size, 1e-250)) - BITS)
        self.terms = len(ensemble.root) + 1

    @property
    def noise(self) -> float:
        """A bound of the error of a sum of leaves' contributions."""
        return float(2 * self.terms * self.step + 2.0**-48 * self.size)

    def rounded(self, p: float, q: float) -> tuple[Array, float]:
        """Return the contributions of leaves (L,) to p g + q g', rounded down, and that of the base."""
        leaves = _down(_row(p, q, self.first, self.second, self.same), self.step)
        base = _down(_row(p, q, self.base, self.base, np.ones(1, dtype=bool)), self.step)
        return leaves, float(base[0])

    def looser(self, p: float, q: float, radius: LeafTerms) -> tuple[Array, float]:
        """Return the same for values with errors up to `radius`; these cancel if both copies take one leaf and p = -q."""
        (leaves, base), (errors, _) = self.rounded(p, q), radius.rounded(-abs(p), -abs(q))
        errors = np.where(self.same, 0.0, errors) if p + q == 0 else errors
        return leaves + _down(errors, self.step), base

    def lines(self, lines: Array) -> LineTrees:
        """Return the trees of lines (S, 2), collapsed."""
        return line_trees(self.trees, [self.rounded(float(p), float(q)) for p, q in lines])


def line_trees(trees: Preorder, values: Sequence[tuple[Array, float]]) -> LineTrees:
    """Collapse the trees for S lines. values: for each line the contributions of leaves (L,) and base (`LeafTerms.rounded`)."""
    adds = held(np.stack([leaves for leaves, _ in values], axis=1))
    variable, cut, right, root = _collapsed(trees.variable, trees.cut, trees.right, trees.root, adds, len(values))
    if len(trees.variable) < MANY or len(variable) <= KEPT * len(trees.variable):
        trees = replace(trees, variable=variable, cut=cut, right=right, root=root)
    return LineTrees(trees=trees, adds=adds, base=held(np.array([base for _, base in values])))


@compiled
def between(a: Any, b: Any) -> Any:
    """Return the categories a ... b as a set."""
    return ((2 << (b - a)) - 1) << a


@compiled
def holds(sets: Any, at: Any, cell: Any) -> Any:
    """Return True if a cell is in the set at `at`."""
    return (sets[at + (cell >> 6)] >> (cell & 63)) & 1 == 1


@compiled
def some(sets: Any, at: Any, a: Any, b: Any) -> Any:
    """Return True if one of cells a ... b is in the set at `at`."""
    for w in range(a >> 6, (b >> 6) + 1):     # noqa: SIM110  a generator is not compiled
        if sets[at + w] & between(max(a - 64 * w, 0), min(b - 64 * w, 63)) != 0:
            return True
    return False


@compiled
def _follow(node: Any, variable: Any, last: Any, goes_left: Any, left: Any, right: Any, side: Any, hot: Any, low: Any, high: Any,
            masks: Any, sets: Any) -> Any:
    """Return the first node from here on that the box does not decide, or a leaf."""
    while True:
        v = variable[node]
        if v == -1:
            return node
        if v == -2:
            to_left = side[node] == 1
        elif hot[v] > 0:
            to_left, to_right = False, False
            for w in range(hot[v]):
                members, goes = sets[masks[v] + w], goes_left[last[node] + w]
                to_left, to_right = to_left or members & goes != 0, to_right or members & ~goes != 0
            if to_left and to_right:
                return node
        else:
            to_left = high[v] <= last[node]
            if not to_left and low[v] <= last[node]:
                return node
        node = left[node] if to_left else right[node]


@compiled
def _join(roots: Any, variable: Any, last: Any, goes_left: Any, left: Any, right: Any, left1: Any, left2: Any, hot: Any,
          cells: Any) -> Any:
    """Follow both copies down every tree, depth first; a trail of the paths' restrictions is undone on the way back. last: for
    nodes about sets where their words begin."""
    count, set_count = len(hot), 0
    low, high, masks, sets = whole(count), whole(count), whole(count), whole(1024)
    for v in range(count):
        high[v], masks[v], sets = cells[v] - 1, set_count, room(sets, set_count + hot[v])
        for w in range(hot[v]):
            sets[set_count] = -1 if cells[v] >= 64 * w + 64 else (1 << (cells[v] - 64 * w)) - 1
            set_count += 1
    out_variable, out_cut, out_right, root = narrow(1024), narrow(1024), narrow(1024), whole(len(roots))
    leaf1, leaf2, size, leaves = narrow(1024), narrow(1024), 0, 0
    # Waiting are pairs of nodes, each with the restriction of one variable on the path there.
    stack = whole(8 * 64)
    trail, length = whole(4 * 64), 0
    for tree in range(len(roots)):
        root[tree] = size
        n1, n2, depth, patch, length = roots[tree], roots[tree], 0, -1, 0
        while True:
            n1 = _follow(n1, variable, last, goes_left, left, right, left1, hot, low, high, masks, sets)
            n2 = _follow(n2, variable, last, goes_left, left, right, left2, hot, low, high, masks, sets)
            if size == MOST or set_count > MOST_WORDS:
                raise MemoryError("the trees of two copies have more than 2^31 nodes; fit fewer or shallower trees")
            out_variable, out_cut = room(out_variable, size + 1), room(out_cut, size + 1)
            out_right = room(out_right, size + 1)
            if patch >= 0:
                out_right[patch] = size
            node = n2 if variable[n1] == -1 else n1
            v = variable[node]
            out_variable[size] = v
            if v == -1:
                leaf1, leaf2 = room(leaf1, leaves + 1), room(leaf2, leaves + 1)
                leaf1[leaves], leaf2[leaves], out_cut[size] = n1, n2, leaves
                leaves, size = leaves + 1, size + 1
                if depth == 0:
                    break
                depth -= 1
                entry = 8 * depth
                while length > stack[entry + 2]:      # undo the restrictions below the other branch
                    length -= 1
                    k = trail[4 * length]
                    low[k], high[k], masks[k] = trail[4 * length + 1], trail[4 * length + 2], trail[4 * length + 3]
                n1, n2, patch = stack[entry], stack[entry + 1], stack[entry + 3]
                v, a, b, bits = stack[entry + 4], stack[entry + 5], stack[entry + 6], stack[entry + 7]
            else:
                a, b, bits, cut = low[v], high[v], masks[v], last[node]
                stack = room(stack, 8 * depth + 8)
                entry = 8 * depth
                depth += 1
                stack[entry], stack[entry + 1], stack[entry + 2], stack[entry + 3], stack[entry + 4] = n1, n2, length, size, v
                if hot[v] > 0:
                    first, second = set_count, set_count + hot[v]
                    set_count = second + hot[v]
                    sets, out_cut[size] = room(sets, set_count), first
                    for w in range(hot[v]):
                        members, goes = sets[bits + w], goes_left[cut + w]
                        sets[first + w], sets[second + w] = members & goes, members & ~goes
                    stack[entry + 5], stack[entry + 6], stack[entry + 7] = a, b, second
                    bits = first
                else:
                    out_cut[size] = cut
                    stack[entry + 5], stack[entry + 6], stack[entry + 7] = cut + 1, b, bits
                    b = cut
                patch = -1
                size += 1
            trail = room(trail, 4 * length + 4)
            trail[4 * length], trail[4 * length + 1], trail[4 * length + 2], trail[4 * length + 3] = v, low[v], high[v], masks[v]
            length += 1
            low[v], high[v], masks[v] = a, b, bits
        while length > 0:
            length -= 1
            k = trail[4 * length]
            low[k], high[k], masks[k] = trail[4 * length + 1], trail[4 * length + 2], trail[4 * length + 3]
    return (out_variable[:size], out_cut[:size], out_right[:size], root, sets[: max(set_count, 1)], leaf1[:leaves], leaf2[:leaves])


@compiled
def _collapsed(variable: Any, cut: Any, right: Any, root: Any, adds: Any, lines: Any) -> Any:
    """Return the trees with one leaf in place of every subtree whose leaves have equal contributions."""
    size = len(variable)
    equal_leaf = narrow(size)    # a leaf equal to all leaves below a node, -1: there is none
    for j in range(size - 1, -1, -1):
        if variable[j] == -1:
            equal_leaf[j] = cut[j]
            continue
        a, b = equal_leaf[j + 1], equal_leaf[right[j]]
        equal_leaf[j] = a
        if a < 0 or b < 0:
            equal_leaf[j] = -1
        else:
            for s in range(lines):
                if adds[a * lines + s] != adds[b * lines + s]:
                    equal_leaf[j] = -1
    to_variable, to_cut, to_right, to_root = narrow(size), narrow(size), narrow(size), whole(len(root))
    stack, top = whole(size + 1), 0
    for tree in range(len(root)):
        to_root[tree] = top
        j, count, patch = root[tree], 0, -1
        while True:
            if patch >= 0:
                to_right[patch] = top
            patch = -1
            if equal_leaf[j] >= 0:
                to_variable[top], to_cut[top] = -1, equal_leaf[j]
                top += 1
                if count == 0:
                    break
                count -= 2
                j, patch = stack[count], stack[count + 1]
            else:
                to_variable[top], to_cut[top] = variable[j], cut[j]
                stack[count], stack[count + 1] = right[j], top
                count += 2
                j, top = j + 1, top + 1
    return to_variable[:top], to_cut[:top], to_right[:top], to_root


def _weighted(values: Array, margin: Array) -> tuple[Array, Array]:
    """Return margin . values (N,) for values (N, m), and bounds of the errors: 0 where it is exact."""
    nonzero = np.flatnonzero(margin)
    total, error = np.zeros(len(values)), np.zeros(len(values))
    for k in nonzero.tolist():
        term = margin[k] * values[:, k]
        rounding = np.zeros(len(values)) if _power(float(margin[k])) else 2.0**-52 * np.abs(term)
        added = total + term
        recovered = added - total
        error = error + rounding + np.abs((total - (added - recovered)) + (term - recovered)) * (1 + 2.0**-50)
        total = added
    return total, error if error.any() else np.broadcast_to(0.0, error.shape)


def _row(p: float, q: float, first: tuple[Array, Array], second: tuple[Array, Array], equal: Booleans) -> Array:
    """Return lower bounds of p a + q b, exact where nothing was rounded; where a and b are the same number, of (p + q) a."""
    (a, lost_a), (b, lost_b) = first, second
    x, y = p * a, q * b
    total = x + y
    recovered = total - x
    error = np.abs((x - (total - recovered)) + (y - recovered)) * (1 + 2.0**-50) + abs(p) * lost_a + abs(q) * lost_b
    for factor, part in ((p, x), (q, y)):
        if not _power(factor):
            error = error + 2.0**-52 * np.abs(part)
    if p + q == 0:
        total, error = np.where(equal, 0.0, total), np.where(equal, 0.0, error)
    return np.where(error > 0, np.nextafter(total - error * (1 + 2.0**-40), -np.inf), total)


def _power(number: float) -> bool:
    """Return True for 0 and powers of 2 of either sign: products with them are not rounded."""
    return number == 0 or abs(np.frexp(number)[0]) == 0.5


def _down(values: Array, step: float) -> Array:
    return np.asarray(np.floor(values / step) * step)
