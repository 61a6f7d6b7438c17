"""The trees of boxes that branch-and-bound grows, one per question, and their preorder form for certificates."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from verifair.checker.certificate import Tree

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


class Forest:
    """Growing arrays of nodes. Roots are nodes 0 ... Q - 1; a split node's children are `left` and `left + 1`."""

    def __init__(self, roots: int, goals: int) -> None:
        self.count = roots
        self.left = np.full(roots, -1, dtype=np.int64)
        self.variable = np.full(roots, -1, dtype=np.int64)
        self.cut = np.zeros(roots)
        self.bound = np.full((roots, goals), np.nan)
        self.closed = np.zeros((roots, goals), dtype=bool)

    def split(self, nodes: Integers, variable: Integers, cut: Array) -> Integers:
        """Record splits; returns the left children's ids (the right ones follow each)."""
        needed = self.count + 2 * len(nodes)
        if needed > len(self.left):
            extra = max(needed - len(self.left), len(self.left))
            goals = self.bound.shape[1]
            self.left = np.concatenate([self.left, np.full(extra, -1, dtype=np.int64)])
            self.variable = np.concatenate([self.variable, np.full(extra, -1, dtype=np.int64)])
            self.cut = np.concatenate([self.cut, np.zeros(extra)])
            self.bound = np.concatenate([self.bound, np.full((extra, goals), np.nan)])
            self.closed = np.concatenate([self.closed, np.zeros((extra, goals), dtype=bool)])
        children = self.count + 2 * np.arange(len(nodes))
        self.left[nodes], self.variable[nodes], self.cut[nodes] = children, variable, cut
        self.count = needed
        return children

    def close(self, nodes: Integers, goals: Integers, bound: Array) -> None:
        """Record that `goals` hold throughout `nodes` by these lower bounds (NaN: exact evaluation of a single point)."""
        self.closed[nodes, goals] = True
        self.bound[nodes, goals] = bound

    def tree(self, root: int, goal: int) -> Tree:
        """The proof tree of one goal of one question: cut below the first node that closes the goal."""
        variable, cut, bound = [], [], []
        stack = [root]
        while stack:
            node = stack.pop()
            leaf = bool(self.closed[node, goal])
            variable.append(-1 if leaf else int(self.variable[node]))
            cut.append(0.0 if leaf else float(self.cut[node]))
            bound.append(float(self.bound[node, goal]) if leaf else np.nan)
            if not leaf:
                if self.left[node] < 0:
                    raise ValueError(f"node {node} is neither closed nor split: goal {goal} of question {root} is not proved")
                stack += [int(self.left[node]) + 1, int(self.left[node])]
        return Tree(feature=np.array(variable), cut=np.array(cut), bound=np.array(bound))

    def joint(self, roots: Integers) -> tuple[Integers, Integers, Array]:
        """Proof trees of all goals at once, for many questions: a node is a leaf where every goal is closed, by it or above it.

        Returns the trees' sizes (T,) and their nodes one tree after the other, in preorder: feature (-1 for leaves) and cut.
        """
        levels: list[tuple[Integers, Booleans]] = [(roots, self.closed[roots])]
        closed: list[Booleans] = []
        while len(levels[-1][0]):  # level by level downwards
            nodes, done = levels[-1]
            inner = np.asarray(~done.all(axis=1))
            if (self.left[nodes[inner]] < 0).any():
                raise ValueError("a node is neither closed nor split: not everything is proved")
            closed.append(~inner)
            children = np.stack([self.left[nodes[inner]], self.left[nodes[inner]] + 1], axis=1).ravel()
            levels.append((children, np.repeat(done[inner], 2, axis=0) | self.closed[children]))
        sizes = [np.empty(0, dtype=np.int64)]
        for leaf in reversed(closed):  # and upwards: how many nodes each subtree has
            size = np.ones(len(leaf), dtype=np.int64)
            size[~leaf] += sizes[0].reshape(-1, 2).sum(axis=1)
            sizes.insert(0, size)
        at = np.cumsum(sizes[0]) - sizes[0]
        feature = np.full(int(sizes[0].sum()), -1, dtype=np.int64)
        cut = np.zeros(len(feature))
        for (nodes, _), leaf, below in zip(levels, closed, sizes[1:], strict=False):
            inner = ~leaf
            feature[at[inner]], cut[at[inner]] = self.variable[nodes[inner]], self.cut[nodes[inner]]
            first = at[inner] + 1
            at = np.stack([first, first + below.reshape(-1, 2)[:, 0]], axis=1).ravel()
        return sizes[0], feature, cut
