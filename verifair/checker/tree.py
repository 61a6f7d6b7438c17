"""Proof trees as arrays: how a box was cut up until every leaf was proved, by inputs alone or by the signs of neurons as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass as validated

from encoders.network import Array, Booleans, Integers
from verifair.checker.envelope import NO_MORE, Index, Number


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


def halves(lower: Array, upper: Array, v: int, cut: float, integer: Booleans) -> tuple[Array, Array] | str:
    """Return the left half's upper and the right half's lower end (V,) of a raw box cut along feature v, or why it cannot be cut
    so."""
    if not 0 <= v < len(lower):
        return f"the tree splits feature {v}, which does not exist"
    last = upper[v] - 1 if integer[v] else upper[v]
    if not lower[v] <= cut <= last or (integer[v] and cut != np.floor(cut)):
        return f"the tree cuts feature {v} at {cut:g}, outside the box {lower[v]:g} .. {upper[v]:g}"
    left, right = upper.copy(), lower.copy()
    left[v], right[v] = cut, cut + 1 if integer[v] else cut
    return left, right


def leaf_boxes(
    feature: Sequence[int], cut: Sequence[float], lower: Array, upper: Array, integer: Booleans
) -> tuple[Integers, Array, Array] | str:
    """Return the nodes (L,) and raw boxes (L, V), (L, V) of the leaves, or why the arrays are no tree over the box lower, upper
    (V,)."""
    pending, nodes, boxes = [(lower, upper)], [], []
    for node, (v, at) in enumerate(zip(feature, cut, strict=True)):
        if not pending:
            return "the tree has nodes left over after its last leaf"
        low, high = pending.pop()
        if v == -1:
            nodes.append(node)
            boxes.append((low, high))
            continue
        cuts = halves(low, high, v, at, integer)
        if isinstance(cuts, str):
            return cuts
        pending += [(cuts[1], high), (low, cuts[0])]
    if pending:
        return f"the tree ends before its box is covered: {len(pending)} leaves are missing"
    lowers, uppers = (np.array(ends) for ends in zip(*boxes, strict=True))
    return np.array(nodes, dtype=np.int64), lowers, uppers
