"""Common parts of all box searches: open boxes, closed goals, limits, cuts.

A search of one kind plugs in how it evaluates, bounds and cuts a batch of boxes (`step`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from encoders.arrays import Array, Integers
from encoders.problem import TwinCopies
from solvers import clock
from verifair.engine.search.boxes import Nodes, anywhere, divide, impossible, roots
from verifair.engine.search.open_goals import OPEN, OUT_OF_NODES, BatchDecision, GoalRows
from verifair.engine.search.subdivision import Open
from verifair.engine.search.trees import GoalTrees, ProofTrees

STEP_BOXES = 1024
"""Boxes looked at at a time."""
EXTRA_CUTS = 16
"""The most boxes of a goal that are cut further although proved, because the bound is no larger than the error of float32."""
GUESSES = 16
"""Random points at which questions with goals of several rows are evaluated before they are bounded."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Limits:
    """deadline: by clock.now().   max_nodes: boxes per question.   group: (Q,) a violation decides all questions of one number."""

    deadline: float
    max_nodes: int | None
    group: Integers | None


class BoxSearch(ABC):
    """The state of one run: the open boxes, and the decisions on the goals."""

    def __init__(self, copies: TwinCopies, limits: Limits, trees: ProofTrees | GoalTrees) -> None:
        self.copies, self.problem = copies, copies.problem
        self.goal_rows = GoalRows.of(self.problem)
        self.deadline, self.max_nodes = limits.deadline, limits.max_nodes
        self.goals = BatchDecision(copies, self.goal_rows, limits.group, trees)
        self.open = Open(STEP_BOXES, self._needed)

    @abstractmethod
    def step(self, nodes: Nodes) -> None:
        """Evaluate and bound some boxes, and keep the halves of those that stay open."""

    def start(self, rng: np.random.Generator) -> None:
        """Evaluate random points, and open the whole boxes of all questions that are left."""
        whole = roots(self.copies)
        # Random points are cheap and decide half of all questions about a whole domain, but few about a neighbourhood.
        self.guess(whole, GUESSES, STEP_BOXES, rng)
        self.open.add(self.goals.still_open(whole))

    def guess(self, nodes: Nodes, points: int, at_once: int, rng: np.random.Generator) -> None:
        """Evaluate `points` random points of each box, if goals have several rows."""
        order = np.tile(np.arange(len(nodes)), 0 if self.goal_rows.single.any() else points)
        for start in range(0, len(order), at_once):
            part = self.goals.still_open(nodes.take(order[start : start + at_once]))
            if len(part) and clock.now() < self.deadline:
                self.goals.look_at(part, anywhere(self.copies, part, rng))

    def late(self) -> bool:
        """Return True if time is up; every question with open boxes is then given up."""
        is_late = clock.now() > self.deadline
        for nodes in self.open.batches if is_late else []:
            self.goals.give_up(np.unique(nodes.question), "time")
        return is_late

    def _needed(self, nodes: Nodes) -> Nodes:
        """Return the boxes with open goals, of questions that have boxes left in their limit."""
        nodes = self.goals.still_open(nodes)
        if self.max_nodes is not None and len(nodes):
            exhausted = np.unique(nodes.question[self.goals.nodes[nodes.question] >= self.max_nodes])
            self.goals.give_up(exhausted, OUT_OF_NODES)
            nodes = self.goals.still_open(nodes)
        return nodes

    def without_impossible(self, nodes: Nodes) -> Nodes:
        """Close the boxes that hold no legal row: nothing is claimed about them."""
        empty = impossible(self.copies, nodes)
        index, goal = np.nonzero(nodes.open & empty[:, None])
        self.goals.close_impossible(nodes.ids[index], nodes.question[index], goal)
        return nodes.take(~empty)

    def cut(self, nodes: Nodes, variable: Integers, cut: Array) -> None:
        """Cut boxes along variables at the given values, and open both halves."""
        children = self.goals.trees.split(nodes.ids, self.copies.variables[variable], cut)
        open_goals = nodes.open & (self.goals.status[nodes.question] == OPEN)
        np.add.at(self.goals.pending, nodes.question, open_goals.astype(np.int64))
        self.open.add(divide(self.copies, replace(nodes, open=open_goals), variable, cut, children))
