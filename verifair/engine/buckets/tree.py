"""The tree of boxes of one kmax run: grown by splits, cut back to a certificate's preorder arrays at the end."""

from __future__ import annotations

import numpy as np

from encoders.network import Array
from encoders.problem import Integers
from verifair.checker.certificate import Tree


class KmaxTree:
    """Nodes with the most buckets that they may hold. A node is a leaf until `split` has recorded its children.

    All state is written so that an interrupt between any two statements leaves a valid tree: a node that is not yet marked as
    split is still a leaf, and its bound holds.
    """

    def __init__(self, bound: int) -> None:
        self.size = 1
        self.feature = np.full(1024, -1, dtype=np.int64)
        self.left = np.zeros(1024, dtype=np.int64)
        self.cut = np.zeros(1024)
        self.bound = np.full(1024, bound, dtype=np.int64)

    def tighten(self, nodes: Integers, bound: Integers) -> Integers:
        """Lower the bounds of some nodes, never raising one; returns what they are then."""
        np.minimum.at(self.bound, nodes, bound)
        return self.bound[nodes]

    def split(self, nodes: Integers, feature: Integers, cut: Array) -> Integers:
        """Record splits; returns the left children, each right one is the next number. Children inherit the bound."""
        first = self.size + 2 * np.arange(len(nodes))
        self._reserve(self.size + 2 * len(nodes))
        self.bound[first] = self.bound[first + 1] = self.bound[nodes]
        self.left[nodes], self.cut[nodes] = first, cut
        self.size += 2 * len(nodes)
        self.feature[nodes] = feature
        return first

    def _reserve(self, size: int) -> None:
        if size <= len(self.feature):
            return
        more = max(size, 2 * len(self.feature)) - len(self.feature)
        self.left = np.concatenate([self.left, np.zeros(more, dtype=np.int64)])
        self.cut = np.concatenate([self.cut, np.zeros(more)])
        self.bound = np.concatenate([self.bound, np.zeros(more, dtype=np.int64)])
        self.feature = np.concatenate([self.feature, np.full(more, -1, dtype=np.int64)])

    def upper(self) -> int:
        """The largest bound of a leaf."""
        most, pending = 0, np.array([0])
        while len(pending):
            leaf = self.feature[pending] < 0
            most = max(most, int(self.bound[pending[leaf]].max(initial=0)))
            inner = self.left[pending[~leaf]]
            pending = np.concatenate([inner, inner + 1])
        return most

    def certificate(self, upper: int) -> Tree:
        """Preorder arrays, cut off wherever a node's own bound is at most `upper`. Every leaf claims `upper`, no more than what
        is needed: a checker with bounds of its own should not have to prove better."""
        feature, cut = [], []
        pending = [0]
        while pending:
            node = pending.pop()
            if self.feature[node] < 0 or self.bound[node] <= upper:
                feature.append(-1)
                cut.append(0.0)
                continue
            feature.append(int(self.feature[node]))
            cut.append(float(self.cut[node]))
            left = int(self.left[node])
            pending += [left + 1, left]
        which = np.array(feature)
        return Tree(feature=which, cut=np.array(cut), bound=np.where(which < 0, float(upper), np.nan))
