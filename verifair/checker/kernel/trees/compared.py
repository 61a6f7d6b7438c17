"""The leaf rule's bound for what tree ensembles decide among several classes.

With  g = max of f in S - max of f outside,  let b be a class that scores most at x on the side that  p g(x)  takes away, and b'
one at x' on the side that  q g(x')  takes away. Then  |p| (f_a - f_b)(x) + |q| (f_a' - f_b')(x')  is at most  p g(x) + q g(x')
for all a and a' of the other sides, and a sum over the trees. So a leaf is proved where, for every b and b', some row of its goal
and some a and a' have a bound that suffices: all of them where a row is about one copy, a = b' and a' = b where it is about both.

Margins themselves are bounded by the least d_ab = f_a - f_b, a in S, b outside: a maximum over a for each b, the minimum over b of
these; under softmax, where  g = log sum of e^f in S - log sum of e^f outside,  by log-sums in their places. g - g' moves by no more
than the d_ab that moves most. Where argmax decides ties, d_ab >= 0 suffices if a < b, and d_ab > 0 is needed otherwise. A gap
between probabilities is largest at the ends of what g, g' and g - g' leave, or in the middle.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from encoders.domain import Domain
from encoders.exact.balls import ball, precision, sigmoid
from encoders.probability.logistic import GapGoal
from encoders.trees.compared import ComparedTrees
from encoders.trees.ensemble import BY_TIE
from verifair.checker.kernel.trees.bounds import TreeBounds

LOG_SUMS = 2.0**-42
"""Bound of the rounding error of log-sums of a few float64 numbers, relative to 1 and to themselves."""
BITS = 128


class ComparedBounds(TreeBounds):
    """Bounds of the margins of decisions of one ensemble of several classes, or of its log-odds."""

    compares = True

    def __init__(self, network: ComparedTrees, domain: Domain) -> None:
        super().__init__(network.undecided, domain)
        classes = np.arange(network.undecided.outputs)
        self.inside = np.array([np.isin(classes, group) for group in network.decision.groups])
        self.odds = network.decision.odds
        self.by_tie = np.where(np.less.outer(classes, classes), BY_TIE, -BY_TIE) * network.decision.lowest

    def float32_errors(self, margin: Array) -> Array:
        """Return (B,) bounds of the errors of differences between any two scores, whatever the margin: none is rounded."""
        return np.full(len(margin), 2 * super().float32_errors(np.eye(self.ensemble.outputs)).max())

    def least(
        self, first: tuple[Array, Array], second: tuple[Array, Array], differs: Booleans, box: Integers, p: Array, q: Array,
        needed: Array | None = None,
    ) -> Array:
        """Return lower bounds (N,) of  p g(x) + q g(x')  for p, q (N, 1) of which one is 0 and the other 1 or -1, or that are 1 and
        -1; -inf for others, or where there are several margins."""
        pairs = self._differences
        weights = [np.concatenate([side * pair for pair in pairs]) for side in (p, q)]
        bounds = super().least(first, second, differs, np.tile(box, len(pairs)), *weights).reshape(len(pairs), len(box))
        return self._margins(bounds, p[:, 0], q[:, 0])

    def gaps(self, first: tuple[Array, Array], second: tuple[Array, Array], differs: Booleans, gap: GapGoal) -> Booleans:
        """Return (B,) True for boxes of x and x' on which no gap between probabilities is larger than the goal's."""
        count = len(first[0])
        rows = np.repeat([(-1.0, 0.0), (0.0, 1.0), (-1.0, 1.0)], count, axis=0)
        p, q = np.hsplit(rows[:, ::-1] if gap.rise else rows, 2)
        ends = self.least(first, second, differs, np.tile(np.arange(count), 3), p, q).reshape(3, count)
        with precision(BITS):
            holds = [ _at_most(high, low, difference, gap.epsilon)
                     for high, low, difference in (ends.T * (-1, 1, -1)).tolist()]
        return np.array(holds, dtype=bool)

    @property
    def _differences(self) -> list[Array]:
        """Return the weights of d_ab on the scores, a by a."""
        unit = np.eye(self.ensemble.outputs)
        return [unit[a] - unit[b] for a in np.flatnonzero(self.inside[0]) for b in np.flatnonzero(~self.inside[0])]

    def _margins(self, bounds: Array, p: Array, q: Array) -> Array:
        """Return the bounds (N,) of the margin that follow from bounds (pairs, N) of  p d_ab(x) + q d_ab(x')."""
        sides = int(self.inside[0].sum()), int((~self.inside[0]).sum())
        result, single = np.full(len(p), -np.inf), np.abs(p) + np.abs(q) == 1
        valid = (single | ((p + q == 0) & (np.abs(p) == 1))) & (len(self.inside) == 1)
        result[valid & ~single] = bounds[:, valid & ~single].min(axis=0)
        for sign in (1, -1):
            selected = valid & single & (p + q == sign)
            part = bounds[:, selected].reshape(*sides, -1)
            part = part if sign == 1 else part.transpose(1, 0, 2)
            part = _untied(part, self.by_tie[np.ix_(*(self.inside[0], ~self.inside[0])[::sign])][:, :, None])
            if self.odds:   # where no row is, all are infinite
                value = -_log_sum(-_log_sum(part))
                value = np.where(np.isinf(part).all(axis=(0, 1)), np.inf, value - LOG_SUMS * (1 + np.abs(value)))
            else:
                value = part.max(axis=0).min(axis=0)
            result[selected] = value
        return result

    def decided(
        self, first: tuple[Array, Array], second: tuple[Array, Array], differs: Booleans, box: Integers, p: Array, q: Array,
        strict: Booleans, target: Array, error: Array,
    ) -> Booleans:
        """Return (B,) True for boxes on which some row of theirs, p, q (N, groups) of one group, reaches its target (N,), and is
        above an error (N,)."""
        m = self.ensemble.outputs
        unit, count = np.eye(m), len(first[0])
        needed, proved = np.ones((2, count, m), dtype=bool), np.zeros((count, m, m), dtype=bool)
        signs = np.zeros((2, 2, count), dtype=bool)     # which copies have rows with negative, and with positive weights
        unique_rows, group = np.unique(np.hstack([p, q]), axis=0, return_inverse=True)
        cases: list[tuple[Integers, Array, Array, Booleans, float]] = []
        for number, row in enumerate(unique_rows):
            rows = np.flatnonzero(group.reshape(-1) == number)
            k = int(np.flatnonzero(row)[0]) % len(self.inside)
            w, w2 = (float(side[k]) for side in np.split(row, 2))
            sides = [self.inside[k] if weight < 0 else ~self.inside[k] for weight in (w, w2)]
            for copy, (weight, side) in enumerate(zip((w, w2), sides, strict=True)):
                if weight:
                    needed[copy][box[rows]] &= side
                    signs[copy, int(weight > 0), box[rows]] = True
            for b, b2 in np.argwhere(np.outer(sides[0] if w else unit[0], sides[1] if w2 else unit[0])).tolist():
                if w and w2:
                    choices = [(abs(w) * (unit[b2] - unit[b]), abs(w2) * (unit[b] - unit[b2]), 0.0)] if w * w2 < 0 else []
                else:
                    above, below = np.flatnonzero(~sides[0 if w else 1]).tolist(), b if w else b2
                    choices = [(abs(w) * (unit[a] - unit[b]), abs(w2) * (unit[a] - unit[b2]), self.by_tie[a, below]) for a in above]
                pairs = np.outer(unit[b] if w else np.ones(m), unit[b2] if w2 else np.ones(m)) > 0
                cases += [(rows, u, u2, pairs, tie) for u, u2, tie in choices]
        if cases:
            item = np.concatenate([rows for rows, *_ in cases])
            ties = np.concatenate([np.full(len(rows), tie) for rows, *_, tie in cases])
            weights = [np.concatenate([np.tile(case[side], (len(case[0]), 1)) for case in cases]) for side in (1, 2)]
            bounds = _untied(super().least(first, second, differs, box[item], *weights), ties)
            sufficient = np.where(strict[item], bounds > 0, bounds >= 0) & (bounds >= target[item]) & (bounds > error[item])
            ends = np.cumsum([len(case[0]) for case in cases])[:-1]
            for (rows, _, _, pairs, _), reached in zip(cases, np.split(sufficient, ends), strict=True):
                proved[box[rows[reached]]] |= pairs
        proved |= ~(needed[0][:, :, None] & needed[1][:, None, :])
        return np.asarray(proved.all(axis=(1, 2)) & ~signs.all(axis=1).any(axis=0))


def _untied(bounds: Array, by_tie: Array) -> Array:
    """Return bounds of differences between classes, with what stands for 0 in its place (0: itself)."""
    return np.where((bounds == 0) & (by_tie != 0), by_tie, bounds)


def _log_sum(values: Array) -> Array:
    """Return the logarithms (...) of sums of exponentials of values (n, ...)."""
    largest = values.max(axis=0)
    return np.asarray(largest + np.log(np.exp(values - largest).sum(axis=0)))


def _at_most(high: float, low: float, difference: float, epsilon: float) -> bool:
    """Return True if  sigma(u) - sigma(v) <= epsilon  for all u <= high, v >= low with u - v <= apart, or if there are none.

    For u - v = d the difference is largest in the middle, at u = d / 2, and grows with d: the ends, or the nearest points, suffice.
    """
    if not np.isfinite([high, low, difference]).all():
        return high == -np.inf and low == np.inf
    u, v, d = Fraction(high), Fraction(low), Fraction(difference)
    if u <= v or d <= 0:
        return True
    if u - v > d:
        u = min(max(d / 2, v + d), u)
        v = u - d
    return bool(sigmoid(ball(u)) - sigmoid(ball(v)) <= ball(epsilon))
