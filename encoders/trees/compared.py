"""Tree ensembles of several classes with a decision made of their scores: evaluated, not searched (maxima are no sums)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from encoders.errors import ModelError
from encoders.exact.dyadic import Dyadic, exact, total
from encoders.network import Integers, Model, Numbers
from encoders.trees.ensemble import TreeEnsemble

if TYPE_CHECKING:
    from encoders.decision import Favoured


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ComparedTrees(Model):
    """What `decision` makes of the scores of `undecided`: a margin for each of its groups of classes.

    Maxima and shares of votes are exact where the scores are; log-odds under softmax have no exact values.
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
    def work(self) -> int:
        return self.undecided.work

    @property
    def knows_float32(self) -> bool:
        return False

    @property
    def piecewise_linear(self) -> bool:
        return not self.decision.odds or self.decision.votes

    def forward(self, x: Numbers) -> Numbers:
        """Margins (B, groups) of rows x (B, n), in the arithmetic of x. Raises ModelError for exact log-odds: there are none."""
        found: Numbers = self._forward(x)
        return found

    def _forward(self, x: Any) -> Any:
        scores, chosen = self.undecided.forward(x), self.decision
        if not isinstance(scores, Dyadic) and scores.dtype != object:
            return chosen.of(scores)
        if chosen.odds and not chosen.votes:
            raise ModelError(self.source or "model", "has log-odds of several classes, which are no rational numbers")
        if chosen.odds:
            share = scores[:, list(chosen.groups[0])]
            if isinstance(share, Dyadic):
                return total(share, axis=1)[:, None] - exact(np.array([[0.5]]))
            return share.sum(axis=1, keepdims=True) - Fraction(1, 2)
        exactly = scores.to_fractions() if isinstance(scores, Dyadic) else scores
        inside = np.array([np.isin(np.arange(exactly.shape[1]), group) for group in chosen.groups])
        row = np.arange(len(exactly))[:, None]
        return scores[row, _largest(exactly, inside)] - scores[row, _largest(exactly, ~inside)]


def _largest(scores: Any, among: Any) -> Integers:
    """(B, groups) which of the classes among (groups, m) has the largest of scores (B, m)."""
    listed = [np.flatnonzero(one) for one in among]
    return np.array([[max(some, key=row.__getitem__) for some in listed] for row in scores], dtype=np.int64)
