"""Goals as rows of numbers, and tasks: each a box of raw values x, the partner x' of its rows, and the goal to be shown there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from encoders.domain import Domain
from encoders.model import Link, Model
from encoders.probability.logistic import SMALLEST, GapGoal, gap_rows
from verifair.checker.certificates.statement import Scale, Signs, signs_flaw

GOALS = {
    "observed": ((1.0, -1.0),),
    "flipped": ((-1.0, 1.0),),
    "robust": ((1.0, 0.0),),
    "no-flip": ((-1.0, 0.0), (0.0, 1.0), (-0.5, 0.5)),
    "no-gap": (),
}
"""Rows (p, q) of each goal: at every point of the box some row must have  p g(x) + q g(x') > 0, or >= 0 where it is not strict (see
`_strict`). The rows of "no-gap" depend on epsilon, see `encoders.probability.logistic`."""


@dataclass(frozen=True, kw_only=True)
class StatedGoal:
    """A goal: at every point some row (p, q, c) has to satisfy  p g(x) + q g(x') + c > 0  (>= 0 where it is not strict).

    For a probability gap the rows are sufficient lines, and single points are decided by the probabilities themselves.
    reals: inputs are real numbers, so a box is not decided by its corners even where they are all the float64 in it.
    """

    rows: tuple[tuple[float, float, float], ...]
    strict: tuple[bool, ...]
    gap: GapGoal | None = None
    reals: bool = False

    @classmethod
    def of(cls, goal: str, classes: tuple[int, int], signs: Signs, gap: GapGoal | None = None) -> StatedGoal:
        """Return the goal of this name in GOALS; "no-gap" needs its gap."""
        if gap is not None:
            rows, constants = gap_rows(gap.epsilon, rise=gap.rise)
            return cls(
                rows=tuple(map(tuple, np.column_stack([rows, constants]).tolist())), strict=(False,) * len(rows), gap=gap
            )
        return cls(rows=tuple((p, q, 0.0) for p, q in GOALS[goal]), strict=_strict(goal, classes, signs))

    @classmethod
    def at_most(cls, epsilon: float) -> StatedGoal:
        """Return the goal  g(x) - g(x') <= epsilon."""
        return cls(rows=((-1.0, 1.0, epsilon),), strict=(False,))


def _strict(goal: str, classes: tuple[int, int], signs: Signs) -> tuple[bool, ...]:
    """Return, for each row of a goal, True if it has to be positive.

    Class i = classes[0] is decided over j where g > 0, and at g = 0 too where i < j: ties go to the smaller index. So a flip from i
    to j is g > 0 >= g' where i > j, and g >= 0 > g' where i < j; with Fairify's strict signs it is g > 0 > g' either way.
    """
    higher = classes[0] > classes[1]
    if goal == "no-flip":
        return (False, False, False) if signs == "strict" else (not higher, higher, False)
    return (goal != "robust" or higher,)


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """A statement as numbers: x in [lower, upper] (V,), x' = prime where `differs`, else x + offset; g = margin.f."""

    lower: Array
    upper: Array
    prime: Array
    offset: Array
    differs: Booleans
    margin: Array
    goal: StatedGoal


@dataclass(frozen=True, kw_only=True, eq=False)
class Tasks:
    """T tasks: lower, upper, prime, offset, differs (T, V), margin (T, n_N), and the number of its goal in `goals` (T,)."""

    lower: Array
    upper: Array
    prime: Array
    offset: Array
    differs: Booleans
    margin: Array
    goals: tuple[StatedGoal, ...]
    goal: Integers

    @classmethod
    def of(cls, tasks: Sequence[Task]) -> Tasks:
        goals = {stated: k for k, stated in enumerate(dict.fromkeys(task.goal for task in tasks))}
        names = ("lower", "upper", "prime", "offset", "differs", "margin")
        arrays = {name: np.array([getattr(task, name) for task in tasks]) for name in names}
        return cls(**arrays, goals=tuple(goals), goal=np.array([goals[task.goal] for task in tasks]))

    def second(self, task: Integers, raw: Array) -> Array:
        """Return x' (N, V) of raw points x (N, V) of the given tasks."""
        return np.where(self.differs[task], self.prime[task], raw + self.offset[task])

    def flaws(self, domain: Domain) -> dict[int, str]:
        """Return the reason, by number, for each task that no tree can prove."""
        finite = np.isfinite(np.hstack([self.lower, self.upper, self.prime, self.offset, self.margin])).all(axis=1)
        # x' - x must be constant on the box also after rounding to float32: one value, or whole numbers below 2^24 as they are.
        moved = (self.offset != 0) & ~self.differs & (self.lower != self.upper)
        size = np.maximum(np.abs(self.lower), np.abs(self.upper)) + np.abs(self.offset) + np.abs(domain.offset)
        unscaled = domain.integer & ~domain.one_hot & (domain.scale == 1) & (domain.offset == np.floor(domain.offset))
        unscaled = unscaled & (size < 2.0**24) & (self.offset == np.floor(self.offset))
        wrong = (
            (~finite | (self.lower > self.upper).any(axis=1), "its box is empty or not finite"),
            ((self.differs & (self.lower != self.upper)).any(axis=1), "a protected feature is not fixed in the box"),
            ((moved & ~unscaled).any(axis=1), "the statement shifts a feature that the network does not take as it is"),
        )
        return {task: text for mask, text in reversed(wrong) for task in np.flatnonzero(mask).tolist()}


def question_flaw(epsilon: float | None, scale: Scale, signs: Signs | None, network: Model, *, values: bool) -> str | None:
    """Return why a question about flips or gaps in boxes is meaningless, or None. values: the model gives values."""
    if (signs is None) != (epsilon is not None):
        return "the query has to name either the signs by which decisions flip, or an epsilon"
    if epsilon is not None and scale == "probability" and (values or network.link is Link.SHARES):
        return "the query is about gaps between probabilities, and the model gives values or shares of votes"
    valid = epsilon is None or (SMALLEST <= epsilon <= 1 - SMALLEST if scale == "probability" else 0 < epsilon < np.inf)
    return signs_flaw(signs, network) if valid else f"the query's epsilon {epsilon} is no gap"


def classes_of(network: Model) -> int:
    return network.outputs + 1 if network.ordered else network.outputs


def stated_goal(
    goal: str, classes: tuple[int, int], gap: GapGoal | None, network: Model, signs: Signs = "deployed"
) -> tuple[StatedGoal, Array]:
    """Return the goal for g = f_i - f_j, and the weights (n_N,) of g.

    A gap from class 0 to class 1 is asked as a rise from 1 to 0: sigma(-g) - sigma(-g') = sigma(g') - sigma(g), and the lines of a
    rise are those that the multipliers of neuron branching belong to.
    """
    i, j = classes
    if gap is not None and i < j:
        i, j, gap = j, i, GapGoal(epsilon=gap.epsilon, rise=not gap.rise)
    margin = np.zeros(network.outputs)
    if network.ordered:
        margin[min(i, j)] = 1.0 if i > j else -1.0
    else:
        margin[i], margin[j] = 1.0, -1.0
    return StatedGoal.of(goal, (i, j), signs, gap), margin
