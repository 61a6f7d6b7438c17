"""The problem of a search: questions about two copies of a network, and the goals to be shown for every point of a box."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from encoders.arrays import Array, Booleans, Integers
from encoders.domain import Domain
from encoders.model import Model
from encoders.probability.logistic import LINES, GapGoal, gap_rows


@dataclass(frozen=True, kw_only=True, eq=False)
class TwinBatch:
    """B questions about two copies x, x' of one network that share all raw variables but the protected ones.

        x  in [lower, upper],    x'_v = x_v  (v not protected),    x'_v = protected_prime_v  (v protected)

    lower, upper: (B, V) raw box of x; protected variables are fixed there (lower = upper = z).
    prime: (B, V) the protected values z' of x'; ignored where `protected` is false.
    protected: (V,) True for protected variables.
    offset: (B, V) whole numbers by which x' is shifted in integer variables that need not be equal: x'_v = x_v + offset_v
    (Fairify's relaxed variant asks one question for every offset; None: no variable is relaxed).
    """

    lower: Array
    upper: Array
    prime: Array
    protected: Booleans
    offset: Array | None = None

    def __len__(self) -> int:
        return len(self.lower)

    def take(self, index: npt.ArrayLike) -> TwinBatch:
        """Return the questions at the given positions."""
        i = np.asarray(index)
        offset = None if self.offset is None else self.offset[i]
        return replace(self, lower=self.lower[i], upper=self.upper[i], prime=self.prime[i], offset=offset)

    def second(self, raw: Array) -> Array:
        """Return raw points x' (B, V) of raw points x (B, V)."""
        return np.where(self.protected, self.prime, raw if self.offset is None else raw + self.offset)


@dataclass(frozen=True, kw_only=True, eq=False)
class Goal:
    """A goal, to be shown for every point of a box: *some* row holds.

        safe(x)   iff   for some r:   rows[r, 0] * g(x) + rows[r, 1] * g(x') + constant[r]  > 0     (>= 0 when r is not strict)

    PBA, observed:  rows = [(1, -1)], strict:        g(x) - g(x') > 0.
    Robustness:     rows = [(1, 0)]:                 g(x) > 0.
    No flip from + to -:  rows = [(-1, 0), (0, 1), (-1/2, 1/2)], the second strict:  g(x) <= 0 or g(x') > 0; the third row
    (g' >= g) follows from the first two at any point, and can close a box where neither of them holds throughout.
    A point is a *witness against* the goal if no row holds there; a box is *closed* if one row holds throughout.

    A combination of rows with weights >= 0 and the lower bound b over a box closes it iff b > 0, or b >= 0 and a row with a
    positive weight is not strict: where every row fails, the sum is below 0 if such a row has a weight, and at most 0 otherwise.

    Probability gap at most epsilon: the rows are lines under a convex curve (see `probability.logistic`), so each of them is
    sufficient, but only the curve itself is necessary: `gap` says which curve decides single points.
    The points against a goal form a convex set of pairs (g, g'), the rows are half-planes that miss it.
    """

    rows: Array
    strict: bool | Booleans
    """(R,) True for rows that must be positive, or one value for all rows."""
    constant: Array | None = None
    gap: GapGoal | None = None

    @property
    def constants(self) -> Array:
        """(R,), zeros when there is no constant."""
        return np.zeros(len(self.rows)) if self.constant is None else self.constant

    @property
    def strict_rows(self) -> Booleans:
        """(R,) whether each row must be positive (else non-negative)."""
        return np.broadcast_to(self.strict, len(self.rows))


def gap_goal(epsilon: float, *, rise: bool, count: int = LINES) -> Goal:
    """Return the goal sigma(g(x)) - sigma(g(x')) <= epsilon, copies swapped for a `rise`, as `count` lines. Raises ValueError."""
    rows, constant = gap_rows(epsilon, rise=rise, count=count)
    return Goal(rows=rows, constant=constant, strict=False, gap=GapGoal(epsilon=epsilon, rise=rise))


@dataclass(frozen=True, kw_only=True, eq=False)
class TwinProblem:
    """A model, the domain of its raw variables, a batch of questions, and the goals asked of every one of them.

    margin: (n_N,) weights on the logits: the margin of a copy is  g(x) = margin . f(x),  e.g. logit_i - logit_j.
    float32: a goal counts as proved only if it holds for every float32 evaluation as well (see `encoders.bounds.float32`).
    """

    network: Model
    domain: Domain
    batch: TwinBatch
    margin: Array
    goals: tuple[Goal, ...]
    float32: bool = False

    @property
    def rows(self) -> Array:
        """The rows (R, 2) of all goals, one after the other."""
        return np.concatenate([goal.rows for goal in self.goals])

    def goals_met(self, rows_met: Booleans) -> Booleans:
        """Return (..., G) True for goals with a row that is met, from (..., R) row by row."""
        first = np.cumsum([0, *(len(goal.rows) for goal in self.goals)])[:-1]
        return np.asarray(np.logical_or.reduceat(rows_met, first, axis=-1))

    @property
    def constants(self) -> Array:
        """(R,) the constants of the rows."""
        return np.concatenate([goal.constants for goal in self.goals])

    @property
    def strict(self) -> Booleans:
        """(R,) whether each row must be positive (else non-negative)."""
        return np.concatenate([goal.strict_rows for goal in self.goals])

    @property
    def goal_of(self) -> Integers:
        """(R,) the goal that each row belongs to."""
        return np.repeat(np.arange(len(self.goals)), [len(goal.rows) for goal in self.goals])

    def rows_met(self, values: Array) -> Booleans:
        """Return (..., R) True for rows that are met by these values (by lower bounds: met throughout); NaN meets none."""
        return np.asarray(np.where(self.strict, values > 0, values >= 0))


class TwinCopies(Protocol):
    """The interface of two copies of any model, prepared for one problem: `Twin`, or `TreeTwin`.

    variables: raw variables that vary in some box.   moving: their columns.   local: the domain of these alone.
    noise: (Q,) bounds of the error of `evaluate`.
    """

    @property
    def problem(self) -> TwinProblem: ...

    @property
    def variables(self) -> Integers: ...

    @property
    def moving(self) -> Integers: ...

    @property
    def local(self) -> Domain: ...

    @property
    def noise(self) -> Array: ...

    def evaluate(self, question: Integers, x: Array) -> Array:
        """Return the margins (N, 2) = g(x), g(x') in float64 at moving columns x (N, d): to find witnesses, not to confirm them."""
        ...
