"""Which rows of the open goals are worth a linear bound on a box, and how the bounds of several rows make one of a goal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from encoders.bounds.difference import GoalBounds, mixed_goals
from encoders.problem import TwinProblem

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

FEW = 3
"""Goals of up to so many rows have all of them bounded; of more, the likeliest ones are chosen box by box."""
PICKED = 2
MIXTURES = {
    1: np.empty((0, 1)),
    2: np.array([[0.5, 0.5], [0.25, 0.75], [0.75, 0.25]]),
    3: np.array([[0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5], [0.25, 0, 0.75], [0, 0.25, 0.75], [0.25, 0.25, 0.5]]),
}
"""Convex combinations of a goal's rows that are bounded as well, by their number: they cost next to nothing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Chosen:
    """Rows (B, S, 2) and constants (B, S) for a batch of boxes; goal: (S,) the goal that each slot belongs to."""

    rows: Array
    constants: Array
    goal: Integers

    def best(self, bounds: GoalBounds, radius: Array, goals: int) -> Array:
        """Lower bounds (B, G) of each goal's best row from those of its slots, single or mixed; -inf for goals without slots."""
        out = np.full((len(radius), goals), -np.inf)
        for goal in np.unique(self.goal):
            mine = np.flatnonzero(self.goal == goal)
            part = GoalBounds(
                lower=bounds.lower[:, mine], slope=bounds.slope[:, mine], base=bounds.base[:, mine], score=bounds.score
            )
            mixed = mixed_goals(part, radius, MIXTURES[len(mine)])
            out[:, goal] = np.concatenate([part.lower, mixed], axis=1).max(axis=1)
        return out


@dataclass(frozen=True, kw_only=True, eq=False)
class Slots:
    """The rows of a problem's goals: first: (G,) position of each goal's first row; strict: (G,); single: (G,) goals of one row."""

    problem: TwinProblem
    first: Integers
    strict: Booleans
    single: Booleans

    @classmethod
    def of(cls, problem: TwinProblem) -> Slots:
        first = np.searchsorted(problem.goal_of, np.arange(len(problem.goals)))
        strict = np.array([goal.strict for goal in problem.goals])
        return cls(problem=problem, first=first, strict=strict, single=np.array([len(goal.rows) == 1 for goal in problem.goals]))

    def best(self, values: Array) -> Array:
        """(B, G) the best row of each goal, from values or bounds (B, R)."""
        return np.maximum.reduceat(values, self.first, axis=1)

    def choose(self, goals: Integers, rough: Array, margins: Array) -> Chosen:
        """Slots for the given goals, from interval bounds (B, R) of all rows and the margins (B, 2) at the boxes' centres.

        Of many rows: the one that the intervals come closest to proving, and the one that lies farthest from the centre.
        """
        problem, rows, constants = self.problem, self.problem.rows, self.problem.constants
        index, owner = [], []
        for goal in goals:
            mine = np.flatnonzero(problem.goal_of == goal)
            if len(mine) <= FEW:
                picks = np.broadcast_to(mine, (len(rough), len(mine)))
            else:
                norm = np.abs(rows[mine]).sum(axis=1)
                at_centre = margins @ rows[mine].T + constants[mine]
                picks = np.stack([mine[(values / norm).argmax(axis=1)] for values in (rough[:, mine], at_centre)], axis=1)
            index.append(picks)
            owner += [goal] * picks.shape[1]
        chosen = np.concatenate(index, axis=1)
        return Chosen(rows=rows[chosen], constants=constants[chosen], goal=np.array(owner))
