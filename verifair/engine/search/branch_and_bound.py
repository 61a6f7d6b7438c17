"""Batched branch-and-bound on the moving inputs: all questions of a batch at once, down to single points if need be.

A node is a box of one question with the goals still open there. In each step the newest nodes of all questions are evaluated
at their centres, bounded (intervals first, linear bounds for what stays open), evaluated at the corners that the linear bounds
point to, and split where the bounds' gap comes from. Witness candidates are confirmed in exact arithmetic before they count.
Sound? yes: PROVED rests on rigorous bounds of every leaf, VIOLATED on exact evaluation.
Complete? yes: inputs are float32 numbers, so splitting ends at single points, which exact evaluation decides. Of smooth networks
balls decide points, and a row that is 0 there stays open.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from encoders.bounds.difference import interval_goals, linear_goals
from encoders.bounds.interval import interval_bounds
from encoders.bounds.relu import LayerBounds
from encoders.bounds.twin import Twin
from encoders.evaluate import settled_goals
from encoders.network import Array, Integers
from encoders.problem import TwinProblem
from verifair.engine.search.boxes import (
    Nodes,
    anywhere,
    borders,
    centre,
    corner,
    divide,
    divisible,
    legal_pairs,
    roots,
    rows_at,
    widest,
)
from verifair.engine.search.open_goals import OPEN, Chosen, Decision, Ledger, Slots

CHUNK = 1024
"""Boxes a step: evaluated and bounded by intervals, which decide most of them ..."""
LINEAR = 128
"""... and boxes bounded linearly at a time: few enough for the cache, enough for BLAS."""
GUESSES = 16
"""Random points that questions with goals of several rows are tried at before they are bounded."""


def decide(
    problem: TwinProblem,
    *,
    seconds: float = np.inf,
    max_nodes: int | None = None,
    group: Integers | None = None,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Decision:
    """Decide every goal of every question of a batch.

    seconds: wall clock for the whole batch.   max_nodes: boxes per question.   progress: told of newly finished questions.
    group: (Q,) questions of one number stand together: once one of them is violated the others are moot and left open.
    """
    search = _Search(problem, time.monotonic() + seconds, max_nodes, group)
    search.start(np.random.default_rng(seed))
    finished = 0
    while search.step():
        if progress is not None:
            now = int(search.ledger.finished().sum())
            progress(now - finished)
            finished = now
    return search.ledger.decision()


class _Search:
    """The state of one run: the boxes still to be looked at, and the ledger of what is decided."""

    def __init__(self, problem: TwinProblem, deadline: float, max_nodes: int | None, group: Integers | None) -> None:
        self.problem, self.twin, self.slots = problem, Twin.of(problem), Slots.of(problem)
        self.deadline, self.max_nodes = deadline, max_nodes
        self.ledger = Ledger(self.twin, self.slots, group)
        self.forest = self.ledger.forest
        self.stack: list[Nodes] = []

    def start(self, rng: np.random.Generator) -> None:
        everything = roots(self.twin)
        # Random points are cheap, and half of all questions about a whole domain end here; of those about a neighbourhood few do.
        guesses = GUESSES if time.monotonic() < self.deadline and not self.slots.single.any() else 0
        for _ in range(guesses):
            alive = self.ledger.still_open(everything)
            for start in range(0, len(alive), CHUNK):
                part = alive.take(slice(start, start + CHUNK))
                self.ledger.look_at(part, anywhere(self.twin, part, rng))
        everything = self.ledger.still_open(everything)
        self.stack = [everything.take(slice(start, start + CHUNK)) for start in range(0, len(everything), CHUNK)][::-1]

    def step(self) -> bool:
        """Look at the next boxes; False when nothing is left."""
        nodes = self._next()
        if nodes is None:
            return False
        self.ledger.nodes += np.bincount(nodes.question, minlength=len(self.ledger.nodes))
        nodes = self._without_impossible(nodes)
        margins = self.ledger.look_at(nodes, centre(self.twin, nodes))
        nodes, kept = self.ledger.alive(nodes)
        if not len(nodes):
            return True
        low, high = self.twin.local.box(nodes.lower, nodes.upper)
        single = (low == high).all(axis=1)
        if single.any():
            self._decide_points(nodes.take(single))
        rest = np.flatnonzero(~single)
        self._bound_and_split(nodes.take(rest), low[rest], high[rest], margins[kept[rest]])
        return True

    def _next(self) -> Nodes | None:
        """Up to CHUNK of the newest boxes whose goals are still open; depth first keeps the list short."""
        if time.monotonic() > self.deadline:
            self.ledger.give_up(np.unique(np.concatenate([nodes.question for nodes in self.stack])) if self.stack else None, "time")
        parts: list[Nodes] = []
        size = 0
        while self.stack and size < CHUNK:
            nodes = self.ledger.still_open(self.stack.pop())
            if self.max_nodes is not None and len(nodes):
                spent = np.unique(nodes.question[self.ledger.nodes[nodes.question] >= self.max_nodes])
                self.ledger.give_up(spent, "nodes")
                nodes = self.ledger.still_open(nodes)
            if size + len(nodes) > CHUNK:
                self.stack.append(nodes.take(slice(CHUNK - size, None)))
                nodes = nodes.take(slice(0, CHUNK - size))
            if len(nodes):
                parts.append(nodes)
                size += len(nodes)
        return Nodes.join(parts) if parts else None

    def _without_impossible(self, nodes: Nodes) -> Nodes:
        """Close the boxes that hold no row that can be: nothing is claimed about them."""
        domain = self.problem.domain
        if domain.forbidden is None:
            return nodes
        lower, upper = rows_at(self.twin, nodes.question, nodes.lower), rows_at(self.twin, nodes.question, nodes.upper)
        batch = self.problem.batch.take(nodes.question)
        gone = domain.impossible(lower, upper) | domain.impossible(batch.second(lower), batch.second(upper))
        index, goal = np.nonzero(nodes.open & gone[:, None])
        self.ledger.close_impossible(nodes.ids[index], nodes.question[index], goal)
        return nodes.take(~gone)

    def _decide_points(self, nodes: Nodes) -> None:
        """Boxes that hold a single network input: exact evaluation decides them."""
        for question in np.unique(nodes.question):  # several points of one question: one at a time, so that each gets its verdict
            for k in np.flatnonzero(nodes.question == question):
                one = nodes.take(np.array([k]))
                if legal_pairs(self.twin, one.question, one.lower)[0]:
                    met, lower = self.ledger.confirm(one.question, one.lower)
                else:  # the same input, but a raw row that cannot be: the goal may hold there, or the box is cut further
                    met, _, _ = settled_goals(self.problem, one.question, rows_at(self.twin, one.question, one.lower))
                    lower = np.full(met.shape, -np.inf)
                    self._split(replace(one, open=one.open & ~met), np.zeros((1, len(self.twin.moving))))
                self.ledger.close_one(one, met[0], lower[0])

    def _bound_and_split(self, nodes: Nodes, low: Array, high: Array, margins: Array) -> None:
        if not len(nodes):
            return
        intervals = interval_bounds(self.twin, nodes.question, low, high)
        rough = interval_goals(self.twin, nodes.question, intervals[-1])
        nodes, kept = self._close_by(nodes, self.slots.best(rough))
        low, high, rough, margins = low[kept], high[kept], rough[kept], margins[kept]
        for pattern in np.unique(nodes.open, axis=0):  # boxes with the same goals open share their rows
            alike = np.flatnonzero((nodes.open == pattern).all(axis=1))
            for start in range(0, len(alike), LINEAR):
                part = alike[start : start + LINEAR]
                chosen = self.slots.choose(np.flatnonzero(pattern), rough[part], margins[part])
                narrow = [layer.take(kept[part]) for layer in intervals]
                self._bound_linearly(nodes.take(part), low[part], high[part], narrow, chosen)

    def _bound_linearly(self, nodes: Nodes, low: Array, high: Array, intervals: list[LayerBounds], chosen: Chosen) -> None:
        wanted = np.ones(chosen.constants.shape)
        bounds = linear_goals(self.twin, nodes.question, (low, high), intervals, chosen.rows, chosen.constants, wanted)
        lower = chosen.best(bounds, (high - low) / 2, len(self.problem.goals))
        remaining, kept = self._close_by(nodes, lower)
        if not len(remaining):
            return
        self._look_at_corners(remaining, bounds.slope[kept])
        remaining, alive = self.ledger.alive(remaining)
        self._split(remaining, bounds.score[kept][alive])

    def _close_by(self, nodes: Nodes, lower: Array) -> tuple[Nodes, Integers]:
        """Close goals by lower bounds (N, G) of their best rows; returns the nodes with goals left open and their positions."""
        root = nodes.ids < len(self.ledger.nodes)
        self.ledger.root_lower[nodes.ids[root]] = np.maximum(self.ledger.root_lower[nodes.ids[root]], lower[root])
        closed = nodes.open & np.where(self.slots.strict, lower > 0, lower >= 0)
        index, goal = np.nonzero(closed)
        # Only a goal of one row has a bound worth recording: of several it says no more than "some row holds".
        bound = np.where(self.slots.single[goal], lower[index, goal], 0.0)
        self.ledger.close(nodes.ids[index], nodes.question[index], goal, bound, lower[index, goal])
        left = nodes.open & ~closed
        kept = np.flatnonzero(left.any(axis=1))
        return replace(nodes.take(kept), open=left[kept]), kept

    def _look_at_corners(self, nodes: Nodes, slope: Array) -> None:
        """Evaluate the corner at which each row's linear bound is least: the likeliest witnesses."""
        for slot in range(slope.shape[1]):
            self.ledger.look_at(nodes, corner(self.twin, nodes, slope[:, slot]))

    def _split(self, nodes: Nodes, score: Array) -> None:
        can = np.asarray(divisible(self.twin, nodes).any(axis=1))
        self.ledger.decide_corners(nodes.take(~can))  # nothing between the ends, yet two different inputs
        nodes, score = nodes.take(can & nodes.open.any(axis=1)), score[can & nodes.open.any(axis=1)]
        if not len(nodes):
            return
        variable = widest(self.twin, nodes, score)
        cut = centre(self.twin, nodes)[np.arange(len(nodes)), variable]
        along, edge = borders(self.twin, nodes)
        variable, cut = np.where(along >= 0, along, variable), np.where(along >= 0, edge, cut)
        _, left_upper, right_lower = divide(self.twin, nodes, variable, cut)
        children = self.forest.split(nodes.ids, self.twin.variables[variable], cut)
        alive = nodes.open & (self.ledger.status[nodes.question] == OPEN)
        np.add.at(self.ledger.pending, nodes.question, alive.astype(np.int64))
        question = nodes.question
        left = Nodes(ids=children, question=question, lower=nodes.lower, upper=left_upper, open=alive)
        right = Nodes(ids=children + 1, question=question, lower=right_lower, upper=nodes.upper, open=alive)
        self.stack.append(Nodes.join([left, right]))
