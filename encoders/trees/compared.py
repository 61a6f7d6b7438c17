"""Tree ensembles of several classes with a decision on their scores: maxima, or log-odds under softmax, which are no sums.

A group S of classes has the margin  g = max of f in S - max of f outside,  or  g = log sum of e^f in S - log sum of e^f outside.
With  d_ab = f_a - f_b,  a in S, b outside, a sum over the trees, bounds of all d_ab over a box bound g, and of all
d_ab(x') - d_ab(x)  bound  g(x') - g(x)  (`least_margins`): maxima and log-sums change by no more than the largest change.

Where a tie goes to the lowest class (`Favoured.lowest`), decision 1 is made if for every b some  d_ab > 0, or d_ab = 0 and a < b.
So a bound of 0 of d_ab is BY_TIE if a < b, else -BY_TIE. Of d_ab(x') - d_ab(x) it stays 0: g(x') - g(x) may pass it by 2 BY_TIE.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from flint import arb_mat

from encoders.arrays import Array, Booleans, Integers
from encoders.errors import ModelError
from encoders.exact.balls import Balls, ball
from encoders.exact.dyadic import Dyadic, exact
from encoders.model import Model
from encoders.trees.ensemble import BY_TIE, TreeEnsemble

if TYPE_CHECKING:
    from encoders.decision import Favoured

LOG_SUMS = 2.0**-44
"""Bound of the rounding error of log-sums of a few float64 numbers, relative to 1 and to themselves: far more than it is."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ComparedTrees(Model):
    """The decision of `decision` on the scores of `undecided`: a margin for each of its groups of classes.

    Maxima are exact if the scores are; log-odds under softmax have no exact values, but enclosing balls.
    """

    decision: Favoured
    undecided: TreeEnsemble

    @property
    def inputs(self) -> int:
        return self.undecided.inputs

    @property
    def outputs(self) -> int:
        return len(self.decision.groups)

    @property
    def built(self) -> str:
        return self.undecided.built

    @property
    def work(self) -> int:
        return self.undecided.work

    @property
    def ensemble(self) -> TreeEnsemble:
        return self.undecided

    @property
    def knows_float32(self) -> bool:
        return not self.decision.odds and self.undecided.knows_float32

    @property
    def piecewise_linear(self) -> bool:
        return not self.decision.odds

    @property
    def programs(self) -> tuple[str, ...]:
        return () if self.decision.odds else self.undecided.programs

    @property
    def sides(self) -> tuple[list[int], list[int]]:
        """The classes of the only group, and all other classes."""
        (group,) = self.decision.groups
        return list(group), [k for k in range(self.undecided.outputs) if k not in group]

    def surely_equal(self, x: Array, x_prime: Array) -> Booleans:
        return self.undecided.surely_equal(x, x_prime)

    def forward(self, x: Any) -> Any:
        """Return margins (B, groups) of rows x (B, n), in the arithmetic of x. Raises ModelError for exact log-odds."""
        if isinstance(x, Balls):
            return self._balls(x)
        scores, decision = self.undecided.forward(x), self.decision
        if not isinstance(scores, Dyadic) and scores.dtype != object:
            return decision.of(scores)
        if decision.odds:
            raise ModelError(self.source or "model", "has log-odds of several classes, which are no rational numbers")
        values = scores.to_fractions() if isinstance(scores, Dyadic) else scores
        in_group = np.array([np.isin(np.arange(values.shape[1]), group) for group in decision.groups])
        row = np.arange(len(values))[:, None]
        best, other = _largest(values, in_group), _largest(values, ~in_group)
        margins = scores[row, best] - scores[row, other]
        tie = decision.lowest & (values[row, best] == values[row, other])
        by_tie = np.where(tie, np.where(best < other, BY_TIE, -BY_TIE), 0.0)
        return margins + (exact(by_tie) if isinstance(margins, Dyadic) else by_tie) if tie.any() else margins

    def _balls(self, x: Balls) -> Balls:
        """Return balls around the log-odds of rows of float32 numbers."""
        inputs = np.array([[float(v) for v in row] for row in x.rows()])
        rows = []
        for row in self.undecided.forward(exact(inputs)).to_fractions().tolist():
            largest = max(row)
            inside, outside = (sum((ball(row[k] - largest).exp() for k in side), ball(0.0)).log() for side in self.sides)
            rows.append([inside - outside])
        return Balls(matrix=arb_mat(rows))


def least_margins(least: Array, p: float, q: float, *, odds: bool) -> Array:
    """Return lower bounds (...) of  p g(x) + q g(x'),  from lower bounds of  p d_ab(x) + q d_ab(x')  (..., a, b).

    One of p and q is 0 and the other 1 or -1, or they are 1 and -1. A group wins by the minimum over b of the maximum over a;
    under softmax log-sums take the places of both.
    Sound? yes: log-sums are lowered by more than their rounding errors.   Complete? for a single point x and q = 0, up to these.
    """
    if (p, q) not in ((1, 0), (0, 1), (-1, 0), (0, -1), (-1, 1), (1, -1)):
        raise ValueError(f"({p:g}, {q:g}): expected the margin of one copy, or a difference of both")
    if p and q:
        return np.asarray(least.min(axis=(-2, -1)))
    bounds = least if p + q > 0 else np.swapaxes(least, -2, -1)
    if not odds:
        return np.asarray(bounds.max(axis=-2).min(axis=-1))
    value = -np.logaddexp.reduce(-np.logaddexp.reduce(bounds, axis=-2), axis=-1)
    return np.asarray(value - LOG_SUMS * (1 + np.abs(value)))


def _largest(scores: Any, groups: Any) -> Integers:
    """Return (B, groups) the class with the largest of scores (B, m), among those of each group (groups, m)."""
    members = [np.flatnonzero(mask) for mask in groups]
    return np.array([[max(classes, key=row.__getitem__) for classes in members] for row in scores], dtype=np.int64)
