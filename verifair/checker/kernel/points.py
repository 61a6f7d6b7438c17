"""Decisions at single points: exact, or by balls for smooth networks; for float32, by a margin beyond the rounding error."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from flint import arb

from encoders.arrays import Array, Booleans, Integers
from encoders.domain import Domain
from encoders.exact.balls import PRECISIONS, Balls, ball, precision, sigmoid
from encoders.exact.dyadic import Dyadic, exact, total
from encoders.model import Model
from encoders.probability.logistic import exceeds
from verifair.checker.kernel.float32 import margin_errors
from verifair.checker.kernel.tasks import Tasks
from verifair.checker.kernel.trees.choice import tree_bounds


class Points:
    """Decides the goals of tasks at raw points."""

    def __init__(self, network: Model, domain: Domain, tasks: Tasks) -> None:
        self.network, self.domain, self.tasks = network, domain, tasks

    def flaws(self, task: Integers, raw: Array, target: Array, float32: Booleans) -> dict[int, str]:
        """Return the reason, by number, for each raw point (N, V) at which its goal fails, or does not hold with at least `target`
        (N,), or, where `float32`, does not hold in every float32 evaluation."""
        verdicts = self.held(task, raw, target)
        messages = {None: "beyond the reach of exact arithmetic", False: "the claim is false"}
        reasons = {k: messages[verdict] for k, verdict in enumerate(verdicts) if not verdict}
        proved = np.flatnonzero(np.array(verdicts, dtype=bool) & float32)
        if len(proved):
            failed = proved[~self._holds_in_float32(task[proved], raw[proved])]
            reasons |= dict.fromkeys(failed.tolist(), "its margin is within the rounding of float32")
        return {k: f"{text} at x = {raw[k].tolist()}" for k, text in reasons.items()}

    def held(self, task: Integers, raw: Array, target: Array) -> list[bool | None]:
        """Return (N,) True where the goal holds at a raw point (N, V) with at least `target` (N,); None where it is undecided."""
        if not self.network.piecewise_linear:
            return [self._by_balls(task[k], raw[k : k + 1], float(target[k])) for k in range(len(raw))]
        try:
            holds: list[bool | None] = self._holds(task, target, *self._margins(task, raw)).tolist()
        except OverflowError:  # weights, or the values of a point, differ too much in size
            parts = [slice(k, k + 1) for k in range(len(raw))]
            return [None] if len(raw) == 1 else [self.held(task[k], raw[k], target[k])[0] for k in parts]
        return holds

    def failing(self, task: Integers, raw: Array) -> Booleans:
        """Return (N,) True for raw points (N, V) at which the goal surely fails."""
        return np.array([verdict is False for verdict in self.held(task, raw, np.zeros(len(raw)))], dtype=bool)

    def _margins(self, task: Integers, raw: Array) -> tuple[Dyadic, ...]:
        """Return the exact g at raw points x (N, V) and at x'."""
        weights, copies = exact(self.tasks.margin[task]), (raw, self.tasks.second(task, raw))
        return tuple(total(weights * self.network.forward(exact(self.domain.encode(x))), axis=1) for x in copies)

    def _holds(self, task: Integers, target: Array, first: Dyadic, second: Dyadic) -> Booleans:
        """Return (N,) True where the goal holds at exact margins g(x), g(x')."""
        index, holds = self.tasks.goal[task], np.zeros(len(task), dtype=bool)
        for k in np.unique(index):
            rows, goal = np.flatnonzero(index == k), self.tasks.goals[k]
            g, g_prime = first[rows], second[rows]
            if goal.gap is not None:
                pairs = zip(g.to_fractions(), g_prime.to_fractions(), strict=True)
                holds[rows] = [not exceeds(*((b, a) if goal.gap.rise else (a, b)), goal.gap.epsilon) for a, b in pairs]
                continue
            for (p, q, c), strict in zip(goal.rows, goal.strict, strict=True):
                value = exact(np.full(len(rows), p)) * g + exact(np.full(len(rows), q)) * g_prime + exact(np.full(len(rows), c))
                sufficient = (value - exact(target[rows])).sign >= 0
                holds[rows] |= ((value.sign > 0) if strict else (value.sign >= 0)) & sufficient
        return holds

    def _holds_in_float32(self, task: Integers, raw: Array) -> Booleans:
        """Return (N,) True where some row of the goal exceeds the rounding error of float32 at the raw point (N, V)."""
        copies = [self.domain.encode(x) for x in (raw, self.tasks.second(task, raw))]
        margin = self.tasks.margin[task]
        trees = tree_bounds(self.network, self.domain)
        if trees is not None:
            error = trees.float32_errors(margin)
        else:
            network = self.network.layered("float32")
            error = np.maximum(*(margin_errors(network, margin, x, x) for x in copies))
        margins = (g.to_fractions() for g in self._margins(task, raw))
        certified = [
            bool(np.isfinite(e)) and any(
                Fraction(p) * a + Fraction(q) * b + Fraction(c) > (abs(Fraction(p)) + abs(Fraction(q))) * Fraction(e)
                for p, q, c in self.tasks.goals[goal].rows
            )
            for goal, a, b, e in zip(self.tasks.goal[task].tolist(), *margins, error.tolist(), strict=True)
        ]
        return np.array(certified, dtype=bool)

    def _by_balls(self, task: int, raw: Array, target: float) -> bool | None:
        """Return the same as `held` for one point (1, V) of a smooth network. Probabilities decide a gap, whatever the target."""
        goal, margin = self.tasks.goals[self.tasks.goal[task]], self.tasks.margin[task]
        pair = np.concatenate([self.domain.encode(x) for x in (raw, self.tasks.second(np.array([task]), raw))])
        equal = bool(self.network.surely_equal(pair[:1], pair[1:])[0])
        for bits in PRECISIONS:
            with precision(bits):
                weights = [ball(float(v)) for v in margin]
                rows = self.network.forward(Balls.of(pair)).rows()
                g, g_prime = (sum((w * v for w, v in zip(weights, row, strict=True)), ball(0.0)) for row in rows)
                if goal.gap is not None:
                    difference = ball(0.0) if equal else sigmoid(g) - sigmoid(g_prime)
                    value = ball(goal.gap.epsilon) - (-difference if goal.gap.rise else difference)
                    holds, fails = value >= 0, value < 0
                else:
                    values = [_row(p, q, c, g, g if equal else g_prime) for p, q, c in goal.rows]
                    signs = list(zip(values, goal.strict, strict=True))
                    holds = any(value >= target and (value > 0 or not strict) for value, strict in signs)
                    fails = all(value < target or (strict and value <= 0) for value, strict in signs)
            if holds or fails:
                return bool(holds)
        return None


def _row(p: float, q: float, c: float, g: arb, g_prime: arb) -> arb:
    """Return p g + q g' + c. If g and g' are one ball, compute (p + q) g + c: their difference is then 0, not a ball around it."""
    if g is g_prime:
        return (ball(p) + ball(q)) * g + ball(c)
    return ball(p) * g + ball(q) * g_prime + ball(c)
