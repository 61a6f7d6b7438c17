"""Looking for points against goals near points that are known: counterexamples of other questions, moved into the box, one value at
a time changed for the better. For models without gradients.

Sound? It evaluates in float64; `BatchDecision.look_at` confirms exactly what seems to fail.  Complete? no.
Results depend on the seed and the boxes looked at, not on time, but where the deadline ends the search.
"""

from __future__ import annotations

import time

import numpy as np

from encoders.network import Array, Integers
from verifair.engine.search.boxes import Nodes, anywhere, legal_pairs, roots
from verifair.engine.search.open_goals import VIOLATED, BatchDecision

FIRST_LOOK, AGAIN = 4, 16
"""Boxes of a question after which its points are looked for, and how many times as many until they are looked for again."""
STARTS, KEPT = 24, 2
"""Points that a question begins with, half of them counterexamples of others, and those of them that are moved."""
SWEEPS, VALUES = 3, 6
"""Times that every variable is changed, and values that are tried of it."""
TOGETHER = 256
"""Questions looked at together."""


class Nearby:
    """The search beside a branch-and-bound: what it finds goes to `goals`."""

    def __init__(self, goals: BatchDecision, rng: np.random.Generator, deadline: float) -> None:
        self.goals, self.twin, self.problem, self.rng, self.deadline = goals, goals.twin, goals.problem, rng, deadline
        self.whole = roots(self.twin)
        self.due = np.full(len(self.whole), FIRST_LOOK)

    def look(self, nodes: Nodes) -> Nodes:
        """Look for points of the questions of some boxes that it is time for; returns the boxes that are open after that."""
        question = np.unique(nodes.question)
        question = question[self.goals.nodes[question] >= self.due[question]]
        if not len(question):
            return nodes
        self.due[question] = AGAIN * np.maximum(self.goals.nodes[question], 1)
        for start in range(0, len(question), TOGETHER):
            if time.monotonic() > self.deadline:
                break
            block = self.goals.still_open(self.whole.take(question[start : start + TOGETHER]))
            if len(block):
                self._run(block)
        return self.goals.still_open(nodes)

    def _run(self, block: Nodes) -> None:
        nodes = block.take(np.repeat(np.arange(len(block)), STARTS))
        point = anywhere(self.twin, nodes, self.rng)
        question, goal = np.nonzero(self.goals.status == VIOLATED)
        if len(question):
            drawn = self.rng.integers(len(question), size=len(nodes))
            known = self.goals.witness[question[drawn], goal[drawn]][:, self.twin.variables]
            other = np.arange(len(nodes)) % 2 == 0
            point[other] = np.clip(known, nodes.lower, nodes.upper)[other]
        score = self._score(nodes, point).reshape(len(block), STARTS)
        best = np.argsort(score, axis=1, kind="stable")[:, :KEPT]
        at = (np.arange(len(block))[:, None] * STARTS + best).ravel()
        nodes, point, score = nodes.take(at), point[at], score.ravel()[at]
        for _ in range(SWEEPS):
            before = score.copy()
            for v in self.rng.permutation(point.shape[1]).tolist():
                nodes, kept = self.goals.alive(nodes)
                point, score, before = point[kept], score[kept], before[kept]
                if not len(nodes) or time.monotonic() > self.deadline:
                    return
                point, score = self._moved(nodes, point, score, v)
            moving = np.flatnonzero(score < before)
            nodes, point, score = nodes.take(moving), point[moving], score[moving]
            if not len(nodes):
                return

    def _moved(self, nodes: Nodes, point: Array, score: Array, v: int) -> tuple[Array, Array]:
        """Return points and scores after the best of a few values of one variable, where that is better."""
        again = np.repeat(np.arange(len(nodes)), VALUES)
        many = nodes.take(again)
        tried = point[again]
        tried[:, v] = anywhere(self.twin, many, self.rng)[:, v]
        found = self._score(many, tried).reshape(len(nodes), VALUES)
        best = found.argmin(axis=1)
        row = np.arange(len(nodes))
        better = found[row, best] < score
        chosen = tried.reshape(len(nodes), VALUES, -1)[row, best]
        return np.where(better[:, None], chosen, point), np.where(better, found[row, best], score)

    def _score(self, nodes: Nodes, point: Array) -> Array:
        """Return the scores (N,) of points: the least, over the open goals, of the goal's best row, inf where a copy is not legal.
        What seems to fail is confirmed."""
        margins = self.twin.evaluate(nodes.question, self.twin.local.encode(point))
        best = self.goals.goal_rows.largest(margins @ self.problem.rows.T + self.problem.constants)
        score = np.where(nodes.open, best, np.inf).min(axis=1)
        score[~legal_pairs(self.twin, nodes.question, point)] = np.inf
        failing: Integers = np.flatnonzero(score <= self.goals.noise[nodes.question])
        if len(failing):
            self.goals.look_at(nodes.take(failing), point[failing])
        return np.asarray(score)
