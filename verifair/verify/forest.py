"""The trees of boxes that branch-and-bound grows, one per question, and their preorder form for certificates."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from verifair.verify.certificate import Tree

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


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
