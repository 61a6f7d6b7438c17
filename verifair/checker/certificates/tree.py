"""Proof trees as arrays: the splits of a box, by inputs or by signs of neurons, and the multipliers that bound every leaf.

One type for every kind of proof. A leaf stores no bound: the checker computes it again from the multipliers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass as validated

from encoders.arrays import Array, Booleans, Integers
from encoders.domain import Domain, Regions
from verifair.checker.certificates.envelope import Index, Number
from verifair.checker.certificates.extent import NO_MORE

MAX_ROWS = 300
"""The most rows of a goal that a leaf's multipliers may combine: the rounding argument of its bound covers no more."""
MULTIPLIERS = ("start", "index", "value")
NO_FRAMES = np.zeros(0, dtype=np.int64)


class Of(IntEnum):
    """The quantities that a frame bounds. The number is added to 2 H + R to name it in a `Tree`."""

    COPIES = 1
    DIFFERENCES = 2
    FRAME = 3
    FIRST = 4
    SECOND = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class Tree:
    """Preorder arrays over all K nodes (parent, first subtree, second subtree), and the leaves' multipliers in CSR form.

    feature: (K,)  -1         a leaf;
                   v >= 0     a split of raw variable v at `cut`: [lower, cut] and [cut + 1, upper] for integer and categorical
                              variables, [cut, upper] for real ones;
                   -2 - n     a split of hidden neuron n: pre-activation a <= 0 (inactive) first, a >= 0 (active) second.
    cut: (K,) 0 where the node is no split of a raw variable.
    start: (K + 1,), index: (M,), value: (M,): node k has the multipliers value[i] of index[i], start[k] <= i < start[k + 1].

    With H hidden neurons, counted layer by layer, n = 0 ... H - 1 are those of copy x and H ... 2 H - 1 those of copy x'. An index
    n < 2 H is the slope of a linear function of the pre-activation of neuron n (left out: a default), 2 H + r the weight of the
    goal's row r (left out: 0), 2 H + R the slope of a line that takes the place of all R rows in this leaf. 2 H + R + 1, + 2,
    + 4 and + 5 name the leaf's *frame*, a node above it whose box is bounded first; the value says how many nodes before the leaf
    it stands. Bounded are the hidden layers of the copies (+ 1), of their differences as well (+ 2), or of x (+ 4) or x' (+ 5)
    alone. + 3, at a node that is a frame, names the frame that it lies in itself. `verifair.checker.kernel.leaves` says what all
    these prove, and what a leaf without any proves.
    """

    feature: Integers
    cut: Array
    start: Integers
    index: Integers
    value: Array

    @classmethod
    def plain(cls, feature: Integers, cut: Array) -> Tree:
        """Return a tree without multipliers."""
        start, index = np.zeros(len(feature) + 1, dtype=np.int64), np.empty(0, dtype=np.int64)
        return cls(feature=feature, cut=cut, start=start, index=index, value=np.empty(0))

    @classmethod
    def leaf(cls) -> Tree:
        """Return the tree of a box proved as a whole, without multipliers."""
        return cls.plain(np.array([-1]), np.zeros(1))

    @property
    def misfit(self) -> str | None:
        """The reason why the arrays are no valid tree with multipliers, or None."""
        k = len(self.feature)
        if not (k and len(self.cut) == k and len(self.start) == k + 1 and len(self.index) == len(self.value)):
            return f"the tree's arrays do not fit together: {k} nodes, {len(self.cut)} cuts, {len(self.start)} starts"
        if self.start[0] != 0 or self.start[-1] != len(self.index) or (np.diff(self.start) < 0).any():
            return "the tree's multipliers are not in order"
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return the arrays as they stand in files; a tree without multipliers leaves out their arrays."""
        names = ("feature", "cut", *(MULTIPLIERS if len(self.index) else ()))
        return {name: getattr(self, name).tolist() for name in names}


@validated(frozen=True, kw_only=True, config=NO_MORE)
class TreeFile:
    """A `Tree` as it stands in a file."""

    feature: list[Annotated[int, Field(strict=True, ge=-(1 << 31), lt=1 << 31)]] = Field(min_length=1)
    cut: list[Number]
    start: list[Index] | None = None
    index: list[Index] | None = None
    value: list[Number] | None = None

    def tree(self) -> Tree:
        """Return the tree. Raises ValueError for lists that do not fit together."""
        feature, cut = np.array(self.feature, dtype=np.int64), np.array(self.cut, dtype=float)
        if self.start is None and self.index is None and self.value is None:
            tree = Tree.plain(feature, cut)
        else:
            start, index = (np.array(values or (), dtype=np.int64) for values in (self.start, self.index))
            tree = Tree(feature=feature, cut=cut, start=start, index=index, value=np.array(self.value or (), dtype=float))
        if tree.misfit is not None:
            raise ValueError(tree.misfit)
        return tree


def leaf_regions(
    feature: Integers, cut: Array, roots: Regions, domain: Domain, size: Integers | None = None, frames: Integers = NO_FRAMES,
    opens: Booleans | None = None,
) -> tuple[Integers, Regions] | str:
    """Return the nodes (L,) and regions (L) of the leaves of T trees over their roots (T), in preorder, or why the arrays (K,)
    are no such trees. size: (T,) nodes of each, one tree after the other (None: there is one tree). frames: nodes (F,) that are
    returned as well. opens: (T, V) features whose boxes, the root's too, are open below: the part above a cut leaves it out."""
    invalid = feature[(feature >= roots.lower.shape[1]) | (feature < -1 - roots.active.shape[1])]
    for code in invalid[:1].tolist():
        return f"the tree splits {'feature' if code >= 0 else 'neuron'} {max(code, -2 - code)}, which does not exist"
    size = np.array([len(feature)]) if size is None else size
    inner, end = feature != -1, np.cumsum(size)
    if (size < 1).any():
        return "the tree ends before its box is covered: 1 leaves are missing"
    balance = np.concatenate([[0], np.cumsum(np.where(inner, 1, -1))])
    missing = 1 + balance[1:] - np.repeat(balance[end - size], size)  # subtrees of a tree that are still to come, after every node
    last = np.zeros(len(feature), dtype=bool)
    last[end - 1] = True
    if (missing[~last] == 0).any():
        return "the tree has nodes left over after its last leaf"
    for number in missing[last & (missing != 0)][:1]:
        return f"the tree ends before its box is covered: {number} leaves are missing"
    second, stack = np.zeros(len(inner), dtype=np.int64), list[int]()
    for node, splits in enumerate(inner.tolist()):  # after a leaf comes the second subtree of the last node that waits for it
        if splits:
            stack.append(node)
        elif stack:
            second[stack.pop()] = node + 1
    if opens is not None:
        roots = replace(roots, lower=np.where(opens, np.nextafter(roots.lower, -np.inf), roots.lower))
    nodes, regions, levels = end - size, roots, list[tuple[Integers, Regions]]()
    while True:  # level by level
        split = inner[nodes]
        selected = ~split | np.isin(nodes, frames)
        levels.append((nodes[selected], regions.take(selected)))
        nodes, regions = nodes[split], regions.take(split)
        if not len(nodes):
            break
        flaw = _flaw(regions, domain, feature[nodes], cut[nodes])
        if flaw is not None:
            return flaw
        regions = regions.halves(domain, feature[nodes], cut[nodes])
        nodes = np.concatenate([nodes + 1, second[nodes]])
    nodes, order = np.unique(np.concatenate([numbers for numbers, _ in levels]), return_index=True)
    regions = Regions.join([part for _, part in levels]).take(order)
    if opens is not None:
        np.nextafter(regions.lower, np.inf, out=regions.lower, where=opens[np.searchsorted(end, nodes, side="right")])
    return nodes, regions


def _flaw(regions: Regions, domain: Domain, feature: Integers, cut: Array) -> str | None:
    """Return why these cuts of the regions' boxes are invalid, or None."""
    box = np.flatnonzero(feature >= 0)
    v, value = feature[box], cut[box]
    low, high, integer = regions.lower[box, v], regions.upper[box, v], domain.integer[v]
    # A real feature without width cannot be cut: both halves would be the whole box, and sums over leaves would count it twice.
    valid = np.where(integer, (value <= high - 1) & (value == np.floor(value)), (value <= high) & (low < high)) & (low <= value)
    for k in np.flatnonzero(~valid)[:1]:
        return f"the tree cuts feature {v[k]} at {value[k]:g}, outside the box {low[k]:g} .. {high[k]:g}"
    return None
