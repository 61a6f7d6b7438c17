"""Search for points that violate goals: moves of a few variables at once, chosen by gradients, in batches.

A goal fails where all of its rows do. For a decision flip that is a strip between g = 0 and g' = 0. It is often narrower than the
change of g by one unit of any single variable, while changes of several variables add up to almost any amount. So some points of
every open question, the best of random ones by the worst row and by |g - g'|, take turns: the gradients of both copies estimate the
changes of g and g' for other values of each variable; sums of up to MOVES of these predict the margins after thousands of moves,
all drawn from one table; the few that come closest to breaking every row are evaluated, and the best of them is the next point,
even if it is worse than the last one: points that only climb get stuck.
Sound? It evaluates in float64; `BatchDecision.look_at` confirms exactly what seems to fail.  Complete? no.
Results depend on the seed and on the boxes seen, but not on time, unless the deadline ends the search.
"""

from __future__ import annotations

import numpy as np

from encoders.arrays import Array, Integers
from encoders.attributions.gradients import gradients
from encoders.evaluate import at_once, pair
from solvers import clock
from verifair.engine.search.boxes import Nodes, anywhere, legal_pairs, roots, rows_at
from verifair.engine.search.open_goals import BatchDecision

FIRST_LOOK, FIRST_LOOK_MANY, AGAIN = 100, 10, 8
"""Boxes of a question after which its points are searched for (the second number if a whole block of questions has that many, about
a network of several hidden layers, whose boxes cost more), and the factor until the next time."""
MIN_REFUTED = 1 / 5
"""Share of the questions searched that has to be refuted, up to one block; otherwise the search leaves them to box cutting."""
BLOCK = 16
"""Questions searched together: their tables of predicted margins fit the cache."""
POINTS, CLIMBERS = 200, 8
"""Random points of a question at the start, and those of them that move."""
ROUNDS = 10
"""Turns of a wave."""
TABLE, MOVES, VALUES = 1000, 4, 8
"""Moves predicted in a turn, the most variables that a move changes, and other values of each variable."""
EVALUATED = 16
"""Predicted moves of a point that are evaluated."""
PENALTY = 0.1
"""Penalty on a move, as a share of its total change in both directions: predictions are worse far from the point."""


class Descent:
    """The search for violating points beside a branch-and-bound; `goals` records them."""

    def __init__(self, goals: BatchDecision, rng: np.random.Generator, deadline: float) -> None:
        self.goals, self.twin, self.problem, self.rng, self.deadline = goals, goals.twin, goals.problem, rng, deadline
        self.whole = roots(self.twin)
        is_large = len(self.whole) >= BLOCK and len(self.problem.network.hidden) > 1
        self.due = np.full(len(self.whole), FIRST_LOOK_MANY if is_large else FIRST_LOOK)
        self.looked = self.refuted = 0
        together = at_once(self.problem.network, BLOCK * POINTS)  # fewer for a large network, to meet the deadline
        self.block, self.points = max(together // POINTS, 1), min(together, POINTS)
        self.climbers = min(max(together // EVALUATED, 2), CLIMBERS)

    def look(self, nodes: Nodes) -> Nodes:
        """Search for points of those questions of some boxes whose time it is; returns the boxes that are open afterwards."""
        question = np.unique(nodes.question)
        question = question[self.goals.nodes[question] >= self.due[question]]
        if len(question) < BLOCK:  # a wave costs about as much for one question as for a block of them
            question = question[self.goals.nodes[question] >= FIRST_LOOK]
        if not len(question) or not self.problem.network.piecewise_linear:
            return nodes
        self.due[question] = AGAIN * self.goals.nodes[question]
        self.run(question)
        return self.goals.still_open(nodes)

    def run(self, question: Integers) -> None:
        """Search for points of these questions, in waves, as long as that pays."""
        left, previous = self.goals.still_open(self.whole.take(question)), np.inf
        while 0 < len(left) <= (1 - MIN_REFUTED) * previous:
            previous = len(left)
            for start in range(0, previous, self.block):
                if MIN_REFUTED * self.looked > self.refuted + 1 or clock.now() > self.deadline:
                    return
                block = left.take(slice(start, start + self.block))
                self._wave(block)
                self.looked += len(block)
                self.refuted += len(block) - len(self.goals.still_open(block))
            left = self.goals.still_open(left)

    def _wave(self, block: Nodes) -> None:
        nodes, point = self._start(block)
        for _ in range(ROUNDS):
            nodes, kept = self.goals.alive(nodes)
            if not len(nodes) or clock.now() > self.deadline:
                return
            point = self._turn(nodes, point[kept])

    def _start(self, block: Nodes) -> tuple[Nodes, Array]:
        """Return the best of random points of each question: half by their score, half by |g - g'|."""
        nodes = block.take(np.repeat(np.arange(len(block)), self.points))
        point = anywhere(self.twin, nodes, self.rng)
        margins, score = self._evaluate(nodes, point)
        difference = np.where(np.isfinite(score), np.abs(margins[:, 0] - margins[:, 1]), -np.inf)
        half = self.climbers // 2
        best = [np.argsort(order.reshape(-1, self.points), axis=1, kind="stable")[:, :half] for order in (score, -difference)]
        index = (np.concatenate(best, axis=1) + np.arange(len(block))[:, None] * self.points).ravel()
        return nodes.take(index), point[index]

    def _evaluate(self, nodes: Nodes, point: Array) -> tuple[Array, Array]:
        """Return the margins (N, 2) and the scores (N,) of points: the least, over the open goals, of the goal's best row, inf
        where a copy is not legal. Points that seem to fail are confirmed exactly."""
        margins = self.twin.evaluate(nodes.question, self.twin.local.encode(point))
        best = self.goals.goal_rows.largest(margins @ self.problem.rows.T + self.problem.constants)
        score = np.where(nodes.open, best, np.inf).min(axis=1)
        score[~(legal_pairs(self.twin, nodes.question, point) & np.isfinite(margins).all(axis=1))] = np.inf
        failing = np.flatnonzero(score <= self.goals.noise[nodes.question])
        if len(failing):
            self.goals.look_at(nodes.take(failing), point[failing])
        return margins, score

    def _turn(self, nodes: Nodes, point: Array) -> Array:
        """Return the points (N, v), each after the best of its evaluated moves."""
        count, variables = point.shape
        values = self._other_values(nodes, point)
        effect = self._effects(nodes, point, values)
        index, best = self._predicted(nodes, self.twin.evaluate(nodes.question, self.twin.local.encode(point)), effect)
        choices = best.shape[1]
        candidates = np.repeat(point[:, None], choices, axis=1)
        for step in range(index.shape[1]):  # at most one value of each variable
            chosen = index[best, step]  # (N, m)
            k, m = np.nonzero(chosen < variables * VALUES)
            variable, slot = np.divmod(chosen[k, m], VALUES)
            candidates[k, m, variable] = values[k, variable, slot]
        repeated = nodes.take(np.repeat(np.arange(count), choices))
        _, score = self._evaluate(repeated, candidates.reshape(count * choices, variables))
        score = score.reshape(count, choices)
        first = score.argmin(axis=1)
        legal = np.isfinite(score[np.arange(count), first])
        return np.where(legal[:, None], candidates[np.arange(count), first], point)

    def _other_values(self, nodes: Nodes, point: Array) -> Array:
        """Return (N, v, VALUES) values of each variable within the box: all of them where there are few; else a number's
        neighbours and random ones, any categories, and of a real interval its ends and steps of all sizes."""
        shape = (*point.shape, VALUES)
        lower, upper, current = nodes.lower[..., None], nodes.upper[..., None], point[..., None]
        width = upper - lower
        share = self.rng.random(shape)
        steps = np.broadcast_to([-3, -2, -1, 1, 2, 3, np.nan, np.nan], shape)  # NaN: a random value
        local = self.twin.local
        random = lower + np.floor(share * (width + 1))
        nearby = np.where(np.isnan(steps) | local.one_hot[:, None], random, current + np.nan_to_num(steps))
        integers = np.where(width < VALUES, lower + np.arange(VALUES) % (width + 1), nearby)
        sign = np.where(np.arange(VALUES) % 2, 1.0, -1.0)
        reals = current + sign * width * 10 ** (-3 * share)
        reals[..., :2] = np.concatenate([lower, upper], axis=-1)
        return np.asarray(np.clip(np.where(local.integer[:, None], integers, reals), lower, upper))

    def _effects(self, nodes: Nodes, point: Array, values: Array) -> Array:
        """Return (2, N, v VALUES + 1) first-order changes of g and g' for each other value; the last entry stands for no change."""
        local, inputs = self.twin.local, pair(self.problem, nodes.question, rows_at(self.twin, nodes.question, point))
        network = self.problem.network.layered("descent")
        slope = np.stack([gradients(network, self.problem.margin, x)[:, self.twin.moving] for x in inputs])
        effect = np.zeros((2, len(point), point.shape[1] * VALUES + 1))
        added = effect[..., :-1].reshape(2, *values.shape)
        number = np.flatnonzero(~local.one_hot)
        by_unit = slope[..., local.start[number]] / local.scale[number]
        added[:, :, number] = by_unit[..., None] * (values[:, number] - point[:, number, None])
        for v in np.flatnonzero(local.one_hot):
            block = slope[..., local.start[v] : local.start[v] + local.width[v]]
            target, current = values[None, :, v].astype(np.int64), point[None, :, v, None].astype(np.int64)
            added[:, :, v] = np.take_along_axis(block, target, axis=2) - np.take_along_axis(block, current, axis=2)
        effect[..., :-1] = added.reshape(2, len(point), -1)
        return effect

    def _predicted(self, nodes: Nodes, margins: Array, effect: Array) -> tuple[Integers, Integers]:
        """Return a table of moves (T, s), positions of other values, and the most promising of them for each point (N, m)."""
        variables = (effect.shape[2] - 1) // VALUES
        steps = min(MOVES, variables)
        order = np.argsort(self.rng.random((TABLE, variables)), axis=1)[:, :steps]
        index = order * VALUES + self.rng.integers(VALUES, size=order.shape)
        first = np.arange(steps) * TABLE // steps  # the first moves change one variable, the next ones two, ...
        index[np.arange(TABLE)[:, None] < first] = variables * VALUES
        predicted = np.repeat(margins.T[:, :, None], TABLE, axis=2)
        penalty, size = np.zeros(predicted.shape[1:]), PENALTY * np.abs(effect).max(axis=0)
        for step in range(steps):
            part = slice(first[step], None)
            predicted[:, :, part] += effect[:, :, index[part, step]]
            penalty[:, part] += size[:, index[part, step]]
        goal_rows = self.goals.goal_rows
        score = np.full(penalty.shape, np.inf)
        for goal, start in enumerate(goal_rows.first):
            block = slice(start, start + len(self.problem.goals[goal].rows))
            best = np.full(penalty.shape, -np.inf)
            for row, constant in zip(goal_rows.rows[block], goal_rows.constants[block], strict=True):
                np.maximum(best, row[0] * predicted[0] + row[1] * predicted[1] + constant, out=best)
            np.minimum(score, best, out=score, where=nodes.open[:, goal, None])
        score += penalty
        return index, np.argpartition(score, EVALUATED, axis=1)[:, :EVALUATED]
