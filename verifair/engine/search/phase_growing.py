"""A `PhaseTree` while the search grows it, nodes in the order of their making."""

from __future__ import annotations

import numpy as np

from encoders.network import Array
from encoders.problem import Integers
from verifair.checker.phase_tree import PhaseTree


class GrowingTree:
    """nodes: (feature, cut, children) by number. A node that is neither split nor closed is a leaf without multipliers."""

    def __init__(self, neurons: int) -> None:
        self.neurons = neurons
        self.nodes: list[tuple[int, float, tuple[int, ...]]] = []
        self.multipliers: dict[int, tuple[Integers, Array]] = {}

    def node(self) -> int:
        self.nodes.append((-1, 0.0, ()))
        return len(self.nodes) - 1

    def split(self, number: int, feature: int, cut: float) -> tuple[int, int]:
        children = self.node(), self.node()
        self.nodes[number] = feature, cut, children
        self.multipliers.pop(number, None)
        return children

    def close(self, number: int, weights: Array, slopes: Array) -> None:
        """A leaf with weights (R,) of the rows and perhaps the slope of a line of its own behind them, and slopes (2 H,)."""
        given, used = np.flatnonzero(~np.isnan(slopes)), np.flatnonzero(weights)
        index = np.concatenate([given, self.neurons + used])
        self.multipliers[number] = index, np.concatenate([slopes[given], weights[used]])

    def preorder(self) -> PhaseTree:
        order: list[int] = []
        pending = [0]
        while pending:
            order.append(pending.pop())
            pending += self.nodes[order[-1]][2][::-1]
        nothing = np.empty(0, dtype=np.int64), np.empty(0)
        parts = [self.multipliers.get(number, nothing) for number in order]
        return PhaseTree(
            feature=np.array([self.nodes[number][0] for number in order], dtype=np.int64),
            cut=np.array([self.nodes[number][1] for number in order]),
            start=np.cumsum([0, *(len(index) for index, _ in parts)]),
            index=np.concatenate([index for index, _ in parts]),
            value=np.concatenate([value for _, value in parts]),
        )
