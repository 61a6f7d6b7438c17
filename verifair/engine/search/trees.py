"""Growing trees of splits, with the data of a search about their nodes, and the proofs written from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from encoders.arrays import Array, Booleans, Integers
from verifair.checker.certificates.tree import Of, Tree


class Trees:
    """Nodes as arrays that grow. Roots are nodes 0 ... Q - 1; the halves of a split node are `left` and `left + 1`.

    known: arrays (nodes, ...) with data of every node; halves inherit it.
    An interrupt between any two statements leaves valid trees: a node that is not yet marked as split is still a leaf.
    """

    def __init__(self, roots: int, **known: npt.NDArray[Any]) -> None:
        self.roots = self.size = roots
        self.known = dict(known)
        self.left, self.feature = np.full(roots, -1), np.full(roots, -1)
        self.cut = np.zeros(roots)

    def split(self, nodes: Integers, feature: Integers, cut: Array) -> Integers:
        """Record splits, given as in a `Tree`; returns the numbers of the first halves. The second half has the next number."""
        first = self.size + 2 * np.arange(len(nodes))
        if self.size + 2 * len(nodes) > len(self.feature):
            extra = max(2 * len(nodes), len(self.feature))
            self.left, self.cut = _longer(self.left, extra), _longer(self.cut, extra)
            self.known = {name: _longer(array, extra) for name, array in self.known.items()}
            self.feature = np.concatenate([self.feature, np.full(extra, -1)])
        for array in self.known.values():
            array[first] = array[first + 1] = array[nodes]
        self.left[nodes], self.cut[nodes] = first, cut
        self.size += 2 * len(nodes)
        self.feature[nodes] = feature
        return first

    def shares(self) -> Array:
        """Return (nodes,) the share of its root's box that each node has; each half has half of its node's share."""
        share, nodes = np.ones(self.size), np.arange(self.roots)
        while len(nodes := nodes[self.feature[nodes] != -1]):
            first = self.left[nodes]
            share[first] = share[first + 1] = share[nodes] / 2
            nodes = np.concatenate([first, first + 1])
        return share

    def grow(self, tree: Tree) -> Integers:
        """Cut the only root as a written tree is cut; returns the numbers (K,) of that tree's nodes. Halves inherit nothing."""
        inner, size = tree.feature != -1, self.size
        number, pending = np.zeros(len(inner), dtype=np.int64), [0]
        for node, splits in enumerate(inner.tolist()):
            number[node] = pending.pop()
            if splits:
                pending += (size + 1, size)
                size += 2
        self.split(number[inner], tree.feature[inner], tree.cut[inner])
        return number

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

    def written(
        self, roots: Integers, leaf: Booleans, multipliers: Mapping[int, tuple[Integers, Array]],
        frames: Mapping[int, tuple[int, int]] | None = None, within: tuple[int, Mapping[int, int]] = (0, {}),
    ) -> list[Tree]:
        """Return some trees, cut off below every `leaf` (nodes,), with the multipliers (index, value) of leaves, and the frames
        (index, node) that they name. within: the index that names a frame's own frame, and frame -> the frame that it lies in."""
        order = self.preorder(roots.tolist(), leaf)
        ends, (feature, cut) = order[leaf[order]].tolist(), self.splits(order, leaf)
        leaves, named, (outer, parents) = [(node, *multipliers[node]) for node in ends if node in multipliers], frames or {}, within
        entries = [(node, *named[node]) for node in ends if node in named]
        chained, remaining = set[int](), {frame for _, _, frame in entries}
        while remaining := {frame for frame in remaining if frame in parents} - chained:
            entries += [(frame, outer, parents[frame]) for frame in sorted(remaining)]
            chained, remaining = chained | remaining, {parents[frame] for frame in remaining}
        position = np.zeros(self.size, dtype=np.int64)
        position[order] = np.arange(len(order))
        node, number, frame = np.array(entries, dtype=np.int64).reshape(-1, 3).T
        count = np.array([len(indices) for _, indices, _ in leaves], dtype=np.int64)
        owner = position[np.concatenate([np.repeat(np.array([leaf for leaf, _, _ in leaves], dtype=np.int64), count), node])]
        sort, start = np.argsort(owner, kind="stable"), np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(order)))])
        index = np.concatenate([*(indices for _, indices, _ in leaves), number])[sort]
        value = np.concatenate([*(values for _, _, values in leaves), (position[node] - position[frame]).astype(float)])[sort]
        first = np.flatnonzero(order < self.roots).tolist()
        return [
            Tree(
                feature=feature[a:b], cut=cut[a:b], start=start[a : b + 1] - start[a], index=index[start[a] : start[b]],
                value=value[start[a] : start[b]],
            )
            for a, b in pairwise([*first, len(order)])
        ]


class ProofTrees(Trees):
    """The proof trees of Q questions with G goals each: the goals that nodes close, and the rows and frames that they name for it.

    multipliers: by goal, of the nodes that name some: as in a `Tree`.   neurons: 2 H, of both copies, after which rows are counted.
    rows: of each goal.   within: frame -> the frame that it lies in.   known, besides: the frame of each node (-1: none), how many
    cuts it lies below that, and the distance from the frame's bound up to 0.
    """

    def __init__(self, roots: int, rows: Sequence[int], neurons: int) -> None:
        absent = np.full(roots, -1)
        super().__init__(
            roots, closed=np.zeros((roots, len(rows)), dtype=bool), frame=absent, below=absent.copy(), lack=np.zeros(roots)
        )
        self.neurons, self.rows = neurons, rows
        self.multipliers: list[dict[int, tuple[Integers, Array]]] = [{} for _ in rows]
        self.frames: list[dict[int, tuple[int, int]]] = [{} for _ in rows]
        self.within: dict[int, int] = {}

    def split(self, nodes: Integers, feature: Integers, cut: Array) -> Integers:
        """Record splits; returns the first halves."""
        first = super().split(nodes, feature, cut)
        self.known["below"][np.concatenate([first, first + 1])] += 1
        return first

    def close(self, nodes: Integers, goals: Integers) -> None:
        """Record that `goals` hold throughout `nodes`."""
        self.known["closed"][nodes, goals] = True

    def name(self, nodes: Integers, goals: Integers, rows: Integers, weights: Array) -> None:
        """Record the rows (N, K), counted within the goal, with weights (N, K), that close goals (N,) at nodes (N,)."""
        for node, goal, row, weight in zip(nodes.tolist(), goals.tolist(), rows, weights, strict=True):
            self.multipliers[goal][node] = self.neurons + row[weight > 0], weight[weight > 0]

    def name_frames(self, nodes: Integers, goals: Integers, frames: Integers, quantities: Integers) -> None:
        """Record the frames (N,) whose lines bound nodes (N,), and the quantities (N,) that they bound, as in a `Tree`."""
        for node, goal, frame, quantity in zip(nodes.tolist(), goals.tolist(), frames.tolist(), quantities.tolist(), strict=True):
            self.frames[goal][node] = self.neurons + self.rows[goal] + quantity, frame

    def tree(self, root: int, goal: int) -> Tree:
        """Return the proof tree of one goal of one question."""
        return self.of_goal(np.array([root]), goal)[0]

    def of_goal(self, roots: Integers, goal: int) -> list[Tree]:
        """Return the proof trees of one goal of many questions: each cut below the first node that closes the goal."""
        within = self.neurons + self.rows[goal] + Of.FRAME, self.within
        return self.written(roots, self.known["closed"][:, goal], self.multipliers[goal], self.frames[goal], within)


class GoalTrees(Trees):
    """The proof trees of Q questions, with one tree for each goal g: its root for question q is node q + Q g.

    named: by goal, the rows and weights that a proof names for each row that closes leaves; empty if it need not name any.
    known: whether a node is closed, and by which row (-1: by none, as nothing is claimed there).
    """

    def __init__(self, questions: int, named: Sequence[list[tuple[Integers, Array]]]) -> None:
        roots = questions * len(named)
        super().__init__(roots, closed=np.zeros(roots, dtype=bool), row=np.full(roots, -1, dtype=np.int32))
        self.questions, self.named = questions, named

    def close(self, nodes: Integers, goals: Integers) -> None:
        """Record that goals (N,) hold throughout nodes (N,) of their trees."""
        self.known["closed"][nodes] = True

    def name(self, nodes: Integers, rows: Integers) -> None:
        """Record the rows (N,) that close nodes (N,)."""
        self.known["row"][nodes] = rows

    def code(self, goal: int, index: int, value: float) -> Integers:
        """Return a number (1,) that `name` takes for a row, and that a proof writes as this multiplier."""
        self.named[goal].append((np.array([index]), np.array([value])))
        return np.array([len(self.named[goal]) - 1])

    def tree(self, root: int, goal: int) -> Tree:
        """Return the proof tree of one goal of one question."""
        return self.of_goal(np.array([root]), goal)[0]

    def of_goal(self, roots: Integers, goal: int) -> list[Tree]:
        """Return the proof trees of one goal of many questions."""
        closed = self.known["closed"]
        order = self.preorder((roots + goal * self.questions).tolist(), closed)
        ends, (feature, cut) = closed[order], self.splits(order, closed)
        named = [*self.named[goal], (np.empty(0, dtype=np.int64), np.empty(0))]     # row -1 is the last one
        lengths = np.array([len(index) for index, _ in named])
        begin, row = np.cumsum(lengths) - lengths, np.where(ends, self.known["row"][order], -1)
        index, weight = (np.concatenate([entry[k] for entry in named]) for k in (0, 1))
        start = np.concatenate([[0], np.cumsum(lengths[row])])
        entries = np.repeat(begin[row] - start[:-1], lengths[row]) + np.arange(start[-1])
        first = np.flatnonzero(order < self.roots).tolist()
        return [
            Tree(feature=feature[a:b], cut=cut[a:b], start=start[a : b + 1] - start[a], index=index[entries[start[a] : start[b]]],
                 value=weight[entries[start[a] : start[b]]])
            for a, b in pairwise([*first, len(order)])
        ]


class NeuronTree(Trees):
    """One tree whose splits may be signs of neurons, and the multipliers of its leaves. A leaf may need none."""

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
        """Record a leaf: weights (R,) of the rows, perhaps followed by the slope of a line of its own, and slopes (2 H,)."""
        fixed, nonzero = np.flatnonzero(~np.isnan(slopes)), np.flatnonzero(weights)
        index = np.concatenate([fixed, self.neurons + nonzero])
        self.multipliers[node] = index, np.concatenate([slopes[fixed], weights[nonzero]])

    def tree(self) -> Tree:
        return self.written(np.zeros(1, dtype=np.int64), np.asarray(self.feature == -1), self.multipliers)[0]


def _longer(array: npt.NDArray[Any], extra: int) -> npt.NDArray[Any]:
    return np.concatenate([array, np.zeros((extra, *array.shape[1:]), dtype=array.dtype)])
