"""Trees as they grow: which node was split where. A search keeps what it knows of the nodes beside them, and what it proved."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from encoders.network import Array, Booleans, Integers
from verifair.checker.tree import PhaseTree, Tree


class Trees:
    """Nodes as arrays that grow. Roots are nodes 0 ... Q - 1; the halves of a split node are `left` and `left + 1`.

    known: arrays (nodes, ...) of what is known of every node; halves inherit it.
    An interrupt between any two statements leaves valid trees: a node that is not yet marked as split is still a leaf.
    """

    def __init__(self, roots: int, **known: npt.NDArray[Any]) -> None:
        self.roots = self.size = roots
        self.known = dict(known)
        self.left, self.feature = np.full(roots, -1), np.full(roots, -1)
        self.cut = np.zeros(roots)

    def split(self, nodes: Integers, feature: Integers, cut: Array) -> Integers:
        """Record splits, as nodes of a `Tree` name them; returns the first halves, each second one is the next number."""
        first = self.size + 2 * np.arange(len(nodes))
        if self.size + 2 * len(nodes) > len(self.feature):
            more = max(2 * len(nodes), len(self.feature))
            self.left, self.cut = _longer(self.left, more), _longer(self.cut, more)
            self.known = {name: _longer(one, more) for name, one in self.known.items()}
            self.feature = np.concatenate([self.feature, np.full(more, -1)])
        for one in self.known.values():
            one[first] = one[first + 1] = one[nodes]
        self.left[nodes], self.cut[nodes] = first, cut
        self.size += 2 * len(nodes)
        self.feature[nodes] = feature
        return first

    def preorder(self, roots: Iterable[int], leaf: Booleans) -> Integers:
        """Return the nodes of some trees, one tree after the other, cut off below every `leaf` (nodes,)."""
        order, pending = [], list(roots)[::-1]
        while pending:
            node = pending.pop()
            order.append(node)
            if not leaf[node]:
                if self.feature[node] == -1:
                    raise ValueError(f"node {node} is neither closed nor split: not everything is proved")
                left = int(self.left[node])
                pending += (left + 1, left)
        return np.array(order, dtype=np.int64)

    def splits(self, order: Integers, leaf: Booleans) -> tuple[Integers, Array]:
        """Return feature and cut of nodes in the order given, as they stand in a `Tree`."""
        ends = leaf[order]
        return np.where(ends, -1, self.feature[order]), np.where(ends, 0.0, self.cut[order])


def _longer(one: npt.NDArray[Any], more: int) -> npt.NDArray[Any]:
    return np.concatenate([one, np.zeros((more, *one.shape[1:]), dtype=one.dtype)])


class ProofTrees(Trees):
    """The proof trees of Q questions with G goals each: which nodes close which goals, by which bounds and which rows.

    weights: by (node, goal) the rows of the goal that close it and their weights, where a proof names them.
    """

    def __init__(self, roots: int, goals: int) -> None:
        super().__init__(roots, bound=np.full((roots, goals), np.nan), closed=np.zeros((roots, goals), dtype=bool))
        self.weights: dict[tuple[int, int], tuple[Integers, Array]] = {}

    def close(self, nodes: Integers, goals: Integers, bound: Array) -> None:
        """Record that `goals` hold throughout `nodes` by these lower bounds (NaN: exact evaluation of a single point)."""
        self.known["closed"][nodes, goals] = True
        self.known["bound"][nodes, goals] = bound

    def name(self, nodes: Integers, goals: Integers, rows: Integers, weights: Array) -> None:
        """Record what closes goals (N,) at nodes (N,): rows (N, K) of theirs, counted within the goal, with weights (N, K)."""
        for at, row, weight in zip(zip(nodes.tolist(), goals.tolist(), strict=True), rows, weights, strict=True):
            self.weights[at] = row[weight > 0], weight[weight > 0]

    def tree(self, root: int, goal: int) -> Tree:
        """Return the proof tree of one goal of one question: cut below the first node that closes the goal."""
        leaf = self.known["closed"][:, goal]
        order = self.preorder([root], leaf)
        feature, cut = self.splits(order, leaf)
        return Tree(feature=feature, cut=cut, bound=np.where(leaf[order], self.known["bound"][order, goal], np.nan))

    def joint(self, roots: Integers) -> tuple[Integers, Integers, Array]:
        """Proof trees of all goals at once, for many questions: a node is a leaf where every goal is closed, by it or above it.

        Returns the trees' sizes (T,) and their nodes one tree after the other, in preorder: feature (-1 for leaves) and cut.
        """
        leaf = np.asarray(self.known["closed"].all(axis=1))
        order = self.preorder(roots.tolist(), leaf)
        sizes = np.diff(np.append(np.flatnonzero(order < self.roots), len(order)))
        return sizes, *self.splits(order, leaf)


class NeuronTree(Trees):
    """One tree whose nodes may be signs of neurons, and the multipliers of its leaves. A node without any proves itself."""

    def __init__(self, neurons: int) -> None:
        super().__init__(1)
        self.neurons = neurons
        self.multipliers: dict[int, tuple[Integers, Array]] = {}

    def halve(self, node: int, feature: int, cut: float) -> list[int]:
        """Record one split; returns both halves."""
        (first,) = self.split(np.array([node]), np.array([feature]), np.array([cut])).tolist()
        self.multipliers.pop(node, None)
        return [first, first + 1]

    def close(self, node: int, weights: Array, slopes: Array) -> None:
        """A leaf with weights (R,) of the rows and perhaps the slope of a line of its own behind them, and slopes (2 H,)."""
        given, used = np.flatnonzero(~np.isnan(slopes)), np.flatnonzero(weights)
        index = np.concatenate([given, self.neurons + used])
        self.multipliers[node] = index, np.concatenate([slopes[given], weights[used]])

    def tree(self) -> PhaseTree:
        leaf = np.asarray(self.feature == -1)
        order = self.preorder([0], leaf)
        feature, cut = self.splits(order, leaf)
        nothing = np.empty(0, dtype=np.int64), np.empty(0)
        parts = [self.multipliers.get(node, nothing) for node in order.tolist()]
        return PhaseTree(
            feature=feature, cut=cut, start=np.cumsum([0, *(len(index) for index, _ in parts)]),
            index=np.concatenate([index for index, _ in parts]), value=np.concatenate([value for _, value in parts]),
        )
