"""Search for bad pairs by random points and coordinate ascent, in batches: the largest gap, or the clearest decision flip.

Random legal points of every question are evaluated; the best few dozen by the objective, and as many by |g - g'| (an objective that
saturates has plateaus), climb by the best single-variable move: a step to either side, an end of the range, any category. A point
that cannot climb any further is kicked (a few variables drawn anew) and climbs again, and so do mixtures of two good points.
Sound? It finds points in float64 and claims nothing: the caller decides each one exactly.  Complete? no.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import expit

from encoders.arrays import Array, Integers
from encoders.bounds.twin import Twin
from encoders.domain import Batched
from encoders.evaluate import at_once
from solvers import clock
from verifair.engine.search.boxes import anywhere, legal_pairs, roots, rows_at

Objective = Literal["gap", "logit", "flip"]
"""With (a, b) = (g, g') for a fall and (g', g) for a rise: gap is sigma(a) - sigma(b), logit a - b, flip min(a, -b)."""

POINTS = 4096
"""Random points a round, over all questions."""
CLIMBERS = 12
"""Points that climb in each direction: so many of the best by the objective, and as many by the difference of the margins."""
STEPS = (1 / 4, 1 / 16, 1 / 64)
"""Shares of its range that a number moves by at once, beside one unit."""
DRAWS = 12
"""Values of each variable tried beside its steps: all of them where there are no more, else random ones."""
FRESH = 4
"""Rounds after which new random points join."""
KICKED = 3
"""Variables that are drawn anew in a point that cannot climb."""
PLATEAU = 1e-7
"""Weight of the difference of the margins beside the objective: it leads off plateaus, and is too small to outweigh real gains."""
POINTS_SCORED = 8192
"""Points evaluated at a time."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """N points, the best first: raw x (N, V), their questions (N,), directions (N,) (0: a fall from x to x', 1: a rise) and
    objectives (N,), in float64."""

    raw: Array
    question: Integers
    direction: Integers
    value: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Climbers(Batched):
    """N points (N, v) of the moving variables with their questions, directions and scores (N,), each."""

    point: Array
    question: Integers
    direction: Integers
    score: Array


class Climb:
    """An ascent over the questions of a problem, with the best points so far (`best`) after `rounds` rounds."""

    def __init__(self, twin: Twin, objective: Objective, rng: np.random.Generator) -> None:
        self.twin, self.objective, self.rng = twin, objective, rng
        self.start = roots(twin)
        empty = np.empty(0, dtype=np.int64)
        self.best = Climbers(point=np.empty((0, len(twin.variables))), question=empty, direction=empty, score=np.empty(0))
        self.rounds = 0
        self.points = at_once(twin.problem.network, POINTS)
        self.climbers = max(CLIMBERS * self.points // POINTS, 2)

    def run(self, seconds: float, rounds: int = 1000) -> None:
        """Climb from random points, or continue where the last run stopped."""
        deadline = clock.now() + seconds
        for _ in range(rounds):
            if not len(self.best) or self.rounds % FRESH == 0:
                self.best = Climbers.join([self.best, self.random()])
            self.best = self.selected(self.up(self.best, deadline))
            if clock.now() > deadline or not len(self.best):
                break
            self.best = Climbers.join([self.best, self.kicked(self.best), self.crossed(self.best)])
            self.rounds += 1
        self.best = self.selected(self.best)

    def found(self, most: int) -> Found:
        """Return the best points found so far, at most `most` of them."""
        best = self.best
        value = self.values(best.question, best.point, best.direction)[0]
        order = np.argsort(-value, kind="stable")[:most]
        best = best.take(order)
        raw = rows_at(self.twin, best.question, best.point)
        return Found(raw=raw, question=best.question, direction=best.direction, value=value[order])

    def climb_from(self, question: Integers, raw: Array, direction: Integers, seconds: float) -> None:
        """Add points x (N, V) from elsewhere, after an ascent from each of them."""
        start = self.of(question, raw[:, self.twin.variables], direction)
        self.best = self.selected(Climbers.join([self.best, self.up(start, clock.now() + seconds)]))

    def values(self, question: Integers, point: Array, direction: Integers) -> tuple[Array, Array]:
        """Return (N,) objectives and (N,) differences of the margins."""
        return self._values(self.twin.evaluate(question, self.twin.local.encode(point)), direction)

    def _values(self, margins: Array, direction: Integers) -> tuple[Array, Array]:
        """Return the same for points with margins (N, 2)."""
        a, b = np.where(direction == 0, margins.T, margins.T[::-1])
        match self.objective:
            case "gap":
                return expit(a) - expit(b), a - b
            case "logit":
                return a - b, a - b
            case "flip":
                return np.minimum(a, -b), a - b

    def score(self, question: Integers, point: Array, direction: Integers) -> Array:
        """Return (N,) the objective plus PLATEAU times the difference; -inf where x or x' is not legal."""
        score = np.empty(len(point))
        for start in range(0, len(point), POINTS_SCORED):
            part = slice(start, start + POINTS_SCORED)
            value, difference = self.values(question[part], point[part], direction[part])
            score[part] = value + PLATEAU * difference / (1 + np.abs(difference))
        return np.where(legal_pairs(self.twin, question, point) & np.isfinite(score), score, -np.inf)

    def random(self) -> Climbers:
        """Return the best of some thousand random legal pairs, by the objective and by the difference, in both directions."""
        repeats = max(1, self.points // len(self.start))
        chosen = np.repeat(np.arange(len(self.start)), repeats)
        if len(chosen) > self.points:
            chosen = self.rng.choice(len(self.start), self.points, replace=False)
        nodes = self.start.take(chosen)
        point = anywhere(self.twin, nodes, self.rng)
        legal = legal_pairs(self.twin, nodes.question, point)
        question, point = nodes.question[legal], point[legal]
        direction = np.zeros(len(point), dtype=np.int64)
        margins = self.twin.evaluate(question, self.twin.local.encode(point))
        value, difference = self._values(margins, direction)
        rise = self._values(margins, direction + 1)[0]
        parts = []
        for side, objective, gap in ((0, value, difference), (1, rise, -difference)):
            index = np.unique(np.concatenate([np.argsort(-scores)[: self.climbers] for scores in (objective, gap)]))
            parts.append(self.of(question[index], point[index], direction[index] + side))
        return Climbers.join(parts)

    def of(self, question: Integers, point: Array, direction: Integers) -> Climbers:
        return Climbers(question=question, point=point, direction=direction, score=self.score(question, point, direction))

    def up(self, climbers: Climbers, deadline: float) -> Climbers:
        """Move every point along one variable after the other, as long as that helps and there is time."""
        climbing, done = climbers, []
        while len(climbing) and clock.now() <= deadline:
            moved = climbing
            for v in self.rng.permutation(climbing.point.shape[1]):
                if clock.now() > deadline:
                    break
                moved = self._moved(moved, int(v))
            improved = moved.score > climbing.score
            done.append(climbing.take(np.flatnonzero(~improved)))
            climbing = moved.take(np.flatnonzero(improved))
        return Climbers.join([*done, climbing])

    def _moved(self, climbers: Climbers, v: int) -> Climbers:
        """Return the points, each with the best of the values tried for one variable if that is better."""
        values = self._values_to_try(climbers, v)  # (N, m)
        n, m = values.shape
        source = np.repeat(np.arange(n), m)
        point = climbers.point[source]
        point[:, v] = values.reshape(-1)
        score = self.score(climbers.question[source], point, climbers.direction[source]).reshape(n, m)
        best = score.argmax(axis=1)
        entries = np.arange(n), best
        improved = score[entries] > climbers.score
        return Climbers(
            question=climbers.question, direction=climbers.direction, score=np.where(improved, score[entries], climbers.score),
            point=np.where(improved[:, None], point.reshape(n, m, -1)[entries], climbers.point),
        )

    def _values_to_try(self, climbers: Climbers, v: int) -> Array:
        """Return (N, m) values of one variable: its ends, steps to both sides, and all values or random ones."""
        point = climbers.point[:, v]
        lower, upper = self.start.lower[climbers.question, v], self.start.upper[climbers.question, v]
        integral, width = bool(self.twin.local.integer[v]), upper - lower
        if integral and width.max() < DRAWS:
            values = lower + np.arange(int(width.max()) + 1)[:, None]
        else:
            steps = [np.ones(len(point)) if integral else width / 256, *(share * width for share in STEPS)]
            draws = lower + self.rng.random((DRAWS, len(point))) * (width + 1 if integral else width)
            values = np.concatenate([[lower, upper], *([point - step, point + step] for step in steps), draws])
        return np.asarray(np.clip(np.floor(values) if integral else values, lower, upper).T)

    def selected(self, climbers: Climbers) -> Climbers:
        """Return the best few distinct points in each direction."""
        keep = []
        for direction in (0, 1):
            index = np.flatnonzero((climbers.direction == direction) & np.isfinite(climbers.score))
            _, first = np.unique(np.column_stack([climbers.question[index], climbers.point[index]]), axis=0, return_index=True)
            index = index[first]
            keep.append(index[np.argsort(-climbers.score[index], kind="stable")[: 2 * self.climbers]])
        return climbers.take(np.concatenate(keep))

    def kicked(self, climbers: Climbers) -> Climbers:
        """Return the points with a few variables drawn anew."""
        nodes = self.start.take(climbers.question)
        change = self.rng.random(climbers.point.shape) < KICKED / max(climbers.point.shape[1], 1)
        point = np.where(change, anywhere(self.twin, nodes, self.rng), climbers.point)
        return self.of(climbers.question, point, climbers.direction)

    def crossed(self, climbers: Climbers) -> Climbers:
        """Return mixtures of two points of one question and direction, variable by variable."""
        order = self.rng.permutation(len(climbers))
        order = order[np.lexsort((climbers.direction[order], climbers.question[order]))]
        first, second = climbers.take(order[:-1]), climbers.take(order[1:])
        matching = np.flatnonzero((first.question == second.question) & (first.direction == second.direction))
        first, second = first.take(matching), second.take(matching)
        point = np.where(self.rng.random(first.point.shape) < 0.5, first.point, second.point)
        return self.of(first.question, point, first.direction)
