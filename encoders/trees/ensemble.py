"""Tree ensembles as arrays: every node compares one column with a threshold (<=), and the leaves' values are summed.

All comparisons of ONNX are brought into one form: x < t of float32 numbers is x <= t', t' the next float32 number below t; x > t
and x >= t swap the two branches; x = t becomes two nodes. Inputs and thresholds are float32 numbers, so nothing is rounded until
leaves' values are added: logits are exact sums of stored numbers, and only the sum differs in a float32 runtime.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from encoders.arrays import Array, Booleans, Integers
from encoders.exact.dyadic import Dyadic, exact, total
from encoders.model import Model

ROWS = 1 << 16
"""Leaves that are looked up at once: so few that the processor's cache holds them."""
STEPS = 8
"""The most steps down the trees until paths that have ended are left out. Categories make chains of hundreds of splits."""
BY_TIE = 2.0**-149
"""A margin of classes that stands for 0 where a tie is decided by argmax: a decision counts only its sign."""
UNIT, TIE = 2.0**-24, 2.0**-25
"""TIE: a share of votes this near to a threshold counts as on it, as leaves hold votes / trees, rounded to float32."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TreeEnsemble(Model):
    """T trees over n columns with K nodes in all, whose leaves' values add up to the m logits.

    root: (T,) nodes.   column: (K,) the column that a node splits, -1 for a leaf.
    threshold: (K,) float32 numbers (as float64): a row goes to `left` (K,) if its column is at most that, else to `right` (K,);
    a leaf has itself on both sides. Nodes may share subtrees.
    missing_left: (K,) True if a row whose column is NaN goes left.
    value: (K, m) of leaves, 0 for other nodes.   base: (m,) is added to every row.
    terms: numbers that a float32 runtime adds up for one logit, and operations on the sum; None: unknown.
    columns: n.
    """

    root: Integers
    column: Integers
    threshold: Array
    left: Integers
    right: Integers
    missing_left: Booleans
    value: Array
    base: Array
    columns: int
    terms: int | None = None

    def __post_init__(self) -> None:
        k, leaf, index = len(self.column), self.column < 0, np.arange(len(self.column))
        if not (len(self.threshold) == len(self.left) == len(self.right) == len(self.missing_left) == len(self.value) == k):
            raise ValueError("the arrays of the nodes do not fit together")
        if ((self.left < 0) | (self.left >= k) | (self.right < 0) | (self.right >= k) | (self.column >= self.columns)).any():
            raise ValueError("a node's branch or column does not exist")
        if ((self.left != index)[leaf] | (self.right != index)[leaf]).any() or np.isnan(self.threshold).any():
            raise ValueError("a leaf branches, or a threshold is NaN")
        if not (np.isfinite(self.value).all() and np.isfinite(self.base).all() and len(self.base) == self.value.shape[1]):
            raise ValueError("the leaves' values must be finite, one for each logit")
        if not len(self.root):
            raise ValueError("an ensemble needs at least one tree")
        _ = self.upwards

    @property
    def inputs(self) -> int:
        return self.columns

    @property
    def outputs(self) -> int:
        return len(self.base)

    @property
    def built(self) -> str:
        return f"{len(self.root):,} trees, {int((self.column < 0).sum()):,} leaves"

    @property
    def work(self) -> int:
        return 16 * len(self.root) * max(self.depth, 1)

    @property
    def asking(self) -> int:
        return int((self.column[self.root] >= 0).sum())

    @property
    def ensemble(self) -> TreeEnsemble:
        return self

    @property
    def programs(self) -> tuple[str, ...]:
        return "milp", "smt"

    @property
    def knows_float32(self) -> bool:
        return self.terms is not None

    @property
    def depth(self) -> int:
        """The number of splits on the longest path to a leaf."""
        return len(self.upwards)

    @cached_property
    def _looked_up(self) -> tuple[Integers, Integers]:
        """(K,) the column that a node splits, 0 for leaves; (2 K,) the next node of each node, right and then left."""
        return np.maximum(self.column, 0), np.stack([self.right, self.left], axis=1).ravel()

    def plus(self, value: Array) -> TreeEnsemble:
        """Return the trees and one of a single leaf, which adds value (m,) to every row."""
        last = len(self.column)
        return replace(
            self, root=np.append(self.root, last), column=np.append(self.column, -1), threshold=np.append(self.threshold, 0.0),
            left=np.append(self.left, last), right=np.append(self.right, last), missing_left=np.append(self.missing_left, True),
            value=np.concatenate([self.value, value[None]]), terms=None if self.terms is None else self.terms + 1,
        )

    def with_columns(self, place: Integers, columns: int) -> Self:
        column = np.where(self.column < 0, self.column, place[self.column])
        return replace(super().with_columns(place, columns), column=column, columns=columns)

    def leaves(self, x: Array) -> Integers:
        """Return the leaves (B, T) of rows x (B, n) of float64 numbers. Raises ValueError for another number of columns."""
        if x.shape[1] != self.columns:
            raise ValueError(f"x has {x.shape[1]} columns; expected {self.columns}, those of the trees")
        leaves = np.empty((len(x), len(self.root)), dtype=np.int64)
        step, (column, branch) = max(1, ROWS // len(self.root)), self._looked_up
        steps = -(-self.depth // max(-(-self.depth // STEPS), 1))
        for start in range(0, len(x), step):
            part = x[start : start + step]
            flat, row = part.ravel(), np.repeat(self.columns * np.arange(len(part)), len(self.root))
            leaf, missing = np.tile(self.root, len(part)), bool(np.isnan(flat).any())
            paths = np.flatnonzero(self.column.take(leaf) >= 0)    # those that have not reached a leaf
            while len(paths):
                node, offset = leaf.take(paths), row.take(paths)
                for _ in range(steps):      # all indices are valid; mode="clip" avoids a copy by which numpy checks them
                    value = flat.take(offset + column.take(node, mode="clip"), mode="clip")
                    goes_left = value <= self.threshold.take(node, mode="clip")
                    if missing:
                        goes_left |= np.isnan(value) & self.missing_left.take(node, mode="clip")
                    node = branch.take(2 * node + goes_left, mode="clip")
                leaf[paths] = node
                paths = paths[self.column.take(node) >= 0]
            leaves[start : start + step] = leaf.reshape(len(part), -1)
        return leaves

    def forward(self, x: Any) -> Any:
        """Return logits (B, m) of rows x (B, n): in float64, or exact for `Dyadic` batches and arrays of fractions. All inputs have
        to be float32 numbers.
        """
        if isinstance(x, Dyadic):
            return total(self._exact[0][self.leaves(x.to_float())], axis=1) + self._exact[1]
        numbers: npt.NDArray[Any] = np.asarray(x)
        leaves = self.leaves(numbers.astype(np.float64))
        if numbers.dtype == object:
            values = np.array([Fraction(v) for v in self.value.ravel().tolist()], dtype=object).reshape(self.value.shape)
            return values[leaves].sum(axis=1) + np.array([Fraction(v) for v in self.base.tolist()], dtype=object)
        sums = np.empty((len(leaves), self.outputs))
        step = max(1, ROWS // (len(self.root) * self.outputs))
        for start in range(0, len(leaves), step):
            sums[start : start + step] = self.value[leaves[start : start + step]].sum(axis=1) + self.base
        return sums

    def surely_equal(self, x: Array, x_prime: Array) -> Booleans:
        return np.asarray((self.leaves(x) == self.leaves(x_prime)).all(axis=1))

    @cached_property
    def _exact(self) -> tuple[Dyadic, Dyadic]:
        return exact(self.value), exact(self.base)

    @cached_property
    def largest(self) -> Array:
        """(m,) a bound of the sum of |values| of any row for each logit, |base| included."""
        size, order = np.abs(self.value), self.upwards
        for nodes in order:  # from the leaves up: the larger of both branches
            size[nodes] = np.maximum(size[self.left[nodes]], size[self.right[nodes]])
        return np.asarray((size[self.root].sum(axis=0) + np.abs(self.base)) * (1 + 2.0**-30))

    @cached_property
    def upwards(self) -> list[Integers]:
        """Inner nodes in groups, each after all nodes below it. Every node is in one group, that of its longest path.

        Raises ValueError for a path without an end.
        """
        branches = np.stack([self.left, self.right], axis=1)
        inner, groups = np.flatnonzero(self.column >= 0), list[Integers]()
        above = np.bincount(branches[inner].reshape(-1), minlength=len(self.column))    # nodes above each that are in no group yet
        level = inner[above[inner] == 0]
        while len(level):
            groups.append(level)
            np.subtract.at(above, below := branches[level].reshape(-1), 1)
            level = np.unique(below[(above[below] == 0) & (self.column[below] >= 0)])
        if sum(map(len, groups)) < len(inner):
            raise ValueError("a branch leads back to itself")
        return groups[::-1]
