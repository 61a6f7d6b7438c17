"""Proof trees as arrays: how a box was cut up until every leaf was proved, by inputs alone or by the signs of neurons as well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass as validated

from encoders.domain import Domain, Regions
from encoders.network import Array, Integers
from verifair.checker.envelope import Index, Number
from verifair.checker.extent import NO_MORE

MAX_ROWS = 300
"""Of a goal that a `PhaseTree` proves: what the rounding of its bounds allows for."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Tree:
    """How a box was split, as preorder arrays over all K nodes (parent, left subtree, right subtree).

    feature: (K,) int; the feature a node is split on, or -1 for a leaf.
    cut: (K,) left = [lower, cut]; right = [cut + 1, upper] for integer and categorical features, [cut, upper] for real ones.
    bound: (K,) the claimed lower bound of the goal's best row on a leaf; NaN (null in the file) for splits, and for a leaf
    that is one single point, decided by exact arithmetic.
    """

    feature: Integers
    cut: Array
    bound: Array

    @staticmethod
    def leaf(bound: float | None) -> Tree:
        """Return the tree of a box proved as a whole."""
        value = np.nan if bound is None else bound
        return Tree(feature=np.array([-1]), cut=np.zeros(1), bound=np.array([value]))

    def to_dict(self) -> dict[str, Any]:
        """Return the arrays as they stand in files."""
        bound = [None if value != value else value for value in self.bound.tolist()]
        return {"feature": self.feature.tolist(), "cut": self.cut.tolist(), "bound": bound}


@dataclass(frozen=True, kw_only=True, eq=False)
class PhaseTree:
    """The proof that neuron branching leaves behind; a neuron's phase is the sign of its pre-activation a.

    Preorder arrays over all K nodes (parent, first subtree, second subtree), and the leaves' multipliers in CSR form.

    feature: (K,)  -1         a leaf;
                   v >= 0     a split of raw variable v at `cut`: [lower, cut] and [cut + 1, upper] for integer and categorical
                              variables, [cut, upper] for real ones;
                   -2 - n     a split of hidden neuron n: a <= 0 (inactive) first, a >= 0 (active) second.
    cut: (K,) 0 where the node is no split of a raw variable.
    start: (K + 1,), index: (M,), value: (M,): node k has the multipliers value[i] of index[i], start[k] <= i < start[k + 1].

    With H hidden neurons, counted layer by layer, n = 0 ... H - 1 are those of copy x and H ... 2 H - 1 those of copy x'. An index
    n < 2 H is the slope of a linear function of the pre-activation of neuron n (left out: a default), 2 H + r the weight of the
    goal's row r (left out: 0), 2 H + R the slope of a line that takes the place of all R rows in this leaf. What they prove is said
    in `verifair.checker.kernel.phases`.
    """

    feature: Integers
    cut: Array
    start: Integers
    index: Integers
    value: Array

    @property
    def misfit(self) -> str | None:
        """Why the arrays are no tree with multipliers, or None."""
        k = len(self.feature)
        if not (k and len(self.cut) == k and len(self.start) == k + 1 and len(self.index) == len(self.value)):
            return f"the tree's arrays do not fit together: {k} nodes, {len(self.cut)} cuts, {len(self.start)} starts"
        if self.start[0] != 0 or self.start[-1] != len(self.index) or (np.diff(self.start) < 0).any():
            return "the tree's multipliers are not in order"
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return the arrays as they stand in files."""
        return {name: getattr(self, name).tolist() for name in ("feature", "cut", "start", "index", "value")}


@validated(frozen=True, kw_only=True, config=NO_MORE)
class TreeFile:
    """A `Tree` as it stands in a file."""

    feature: list[Annotated[int, Field(strict=True, ge=-1, lt=1 << 31)]] = Field(min_length=1)
    cut: list[Number]
    bound: list[Number | None]

    def tree(self) -> Tree:
        """Raises ValueError for lists of different lengths."""
        if not len(self.feature) == len(self.cut) == len(self.bound):
            sizes = f"{len(self.feature)}, {len(self.cut)} and {len(self.bound)}"
            raise ValueError(f"feature, cut and bound have {sizes} entries")
        cut, bound = np.array(self.cut, dtype=float), np.array(self.bound, dtype=float)
        return Tree(feature=np.array(self.feature, dtype=np.int64), cut=cut, bound=bound)


@validated(frozen=True, kw_only=True, config=NO_MORE)
class PhaseFile:
    """A `PhaseTree` as it stands in a file."""

    feature: list[Annotated[int, Field(strict=True, ge=-(1 << 31), lt=1 << 31)]] = Field(min_length=1)
    cut: list[Number]
    start: list[Index]
    index: list[Index]
    value: list[Number]

    def tree(self) -> PhaseTree:
        whole = {name: np.array(getattr(self, name), dtype=np.int64) for name in ("feature", "start", "index")}
        return PhaseTree(**whole, cut=np.array(self.cut, dtype=float), value=np.array(self.value, dtype=float))


def leaf_regions(feature: Integers, cut: Array, root: Regions, domain: Domain) -> tuple[Integers, Regions] | str:
    """Return the nodes (L,) and regions (L) of a tree's leaves, or why its arrays (K,), (K,) are no tree over the root (B = 1)."""
    stray = feature[(feature >= root.lower.shape[1]) | (feature < -1 - root.active.shape[1])]
    for one in stray[:1].tolist():
        return f"the tree splits {'feature' if one >= 0 else 'neuron'} {max(one, -2 - one)}, which does not exist"
    inner = feature != -1
    missing = 1 + np.cumsum(np.where(inner, 1, -1))  # subtrees that are still to come, after every node
    if (missing[:-1] == 0).any():
        return "the tree has nodes left over after its last leaf"
    if not len(missing) or missing[-1] != 0:
        return f"the tree ends before its box is covered: {missing[-1] if len(missing) else 1} leaves are missing"
    second, waiting = np.zeros(len(inner), dtype=np.int64), list[int]()
    for node, splits in enumerate(inner.tolist()):  # after a leaf comes the second subtree of the last node that waits for it
        if splits:
            waiting.append(node)
        elif waiting:
            second[waiting.pop()] = node + 1
    nodes, regions, found = np.zeros(1, dtype=np.int64), root, list[tuple[Integers, Regions]]()
    while True:  # level by level
        split = inner[nodes]
        found.append((nodes[~split], regions.take(~split)))
        nodes, regions = nodes[split], regions.take(split)
        if not len(nodes):
            break
        flaw = _flaw(regions, domain, feature[nodes], cut[nodes])
        if flaw is not None:
            return flaw
        regions = regions.halves(domain, feature[nodes], cut[nodes])
        nodes = np.concatenate([nodes + 1, second[nodes]])
    every = np.concatenate([one for one, _ in found])
    order = np.argsort(every)
    return every[order], Regions.join([one for _, one in found]).take(order)


def _flaw(regions: Regions, domain: Domain, feature: Integers, cut: Array) -> str | None:
    """Return why the boxes cannot be cut so, or None."""
    box = np.flatnonzero(feature >= 0)
    v, at = feature[box], cut[box]
    low, high, whole = regions.lower[box, v], regions.upper[box, v], domain.integer[v]
    inside = (low <= at) & (at <= np.where(whole, high - 1, high)) & (~whole | (at == np.floor(at)))
    for k in np.flatnonzero(~inside)[:1]:
        return f"the tree cuts feature {v[k]} at {at[k]:g}, outside the box {low[k]:g} .. {high[k]:g}"
    return None
