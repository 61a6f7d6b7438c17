"""Decisions at single points: exact, or by balls for smooth networks; for float32, by a margin beyond the rounding error."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from flint import arb

from encoders.domain import Domain
from encoders.exact.balls import PRECISIONS, Balls, ball, precision, sigmoid
from encoders.exact.dyadic import Dyadic, exact, total
from encoders.network import Array, Booleans, Integers, Model, layered
from encoders.probability.logistic import exceeds
from verifair.checker.kernel.ensembles import tree_bounds
from verifair.checker.kernel.float32 import margin_errors
from verifair.checker.kernel.tasks import Tasks


class Points:
    """Decides the goals of tasks at raw points."""

    def __init__(self, network: Model, domain: Domain, tasks: Tasks) -> None:
        self.network, self.domain, self.tasks = network, domain, tasks

    def flaws(self, task: Integers, raw: Array, target: Array, float32: Booleans) -> dict[int, str]:
        """Return the reason, by number, for each raw point (N, V) at which its goal fails, or does not hold with at least `target`
        (N,), or, where `float32`, does not hold in every float32 evaluation."""
        held = self.held(task, raw, target)
        said = {None: "beyond the reach of exact arithmetic", False: "the claim is false"}
        found = {k: said[one] for k, one in enumerate(held) if not one}
        sure = np.flatnonzero(np.array(held, dtype=bool) & float32)
        if len(sure):
            short = sure[~self._met_in_float32(task[sure], raw[sure])]
            found |= dict.fromkeys(short.tolist(), "its margin is within the rounding of float32")
        return {k: f"{text} at x = {raw[k].tolist()}" for k, text in found.items()}

    def held(self, task: Integers, raw: Array, target: Array) -> list[bool | None]:
        """Return (N,) True where the goal holds at a raw point (N, V) with at least `target` (N,); None where it is undecided."""
        if not self.network.piecewise_linear:
            return [self._by_balls(task[k], raw[k : k + 1], float(target[k])) for k in range(len(raw))]
        try:
            met: list[bool | None] = self._met(task, target, *self._margins(task, raw)).tolist()
        except OverflowError:  # weights, or the values of a point, differ too much in size
            parts = [slice(k, k + 1) for k in range(len(raw))]
            return [None] if len(raw) == 1 else [self.held(task[k], raw[k], target[k])[0] for k in parts]
        return met

    def failing(self, task: Integers, raw: Array) -> Booleans:
        """Return (N,) True for raw points (N, V) at which the goal surely fails."""
        return np.array([one is False for one in self.held(task, raw, np.zeros(len(raw)))], dtype=bool)

    def _margins(self, task: Integers, raw: Array) -> tuple[Dyadic, ...]:
        """Return the exact g at raw points x (N, V) and at x'."""
        weights, copies = exact(self.tasks.margin[task]), (raw, self.tasks.second(task, raw))
        return tuple(total(weights * self.network.forward(exact(self.domain.encode(one))), axis=1) for one in copies)

    def _met(self, task: Integers, target: Array, first: Dyadic, second: Dyadic) -> Booleans:
        """Return (N,) True where the goal holds at exact margins g(x), g(x')."""
        which, met = self.tasks.which[task], np.zeros(len(task), dtype=bool)
        for k in np.unique(which):
            mine, asked = np.flatnonzero(which == k), self.tasks.asked[k]
            one, two = first[mine], second[mine]
            if asked.gap is not None:
                pairs = zip(one.to_fractions(), two.to_fractions(), strict=True)
                met[mine] = [not exceeds(*((b, a) if asked.gap.rise else (a, b)), asked.gap.epsilon) for a, b in pairs]
                continue
            for (p, q, c), strict in zip(asked.rows, asked.strict, strict=True):
                value = exact(np.full(len(mine), p)) * one + exact(np.full(len(mine), q)) * two + exact(np.full(len(mine), c))
                enough = (value - exact(target[mine])).sign >= 0
                met[mine] |= ((value.sign > 0) if strict else (value.sign >= 0)) & enough
        return met

    def _met_in_float32(self, task: Integers, raw: Array) -> Booleans:
        """Return (N,) True where some row of the goal exceeds the rounding error of float32 at the raw point (N, V)."""
        copies = [self.domain.encode(one) for one in (raw, self.tasks.second(task, raw))]
        margin = self.tasks.margin[task]
        trees = tree_bounds(self.network, self.domain)
        if trees is not None:
            error = trees.float32_errors(margin)
        else:
            network = layered(self.network, "float32")
            error = np.maximum(*(margin_errors(network, margin, x, x) for x in copies))
        margins = (one.to_fractions() for one in self._margins(task, raw))
        enough = [
            bool(np.isfinite(e)) and any(
                Fraction(p) * a + Fraction(q) * b + Fraction(c) > (abs(Fraction(p)) + abs(Fraction(q))) * Fraction(e)
                for p, q, c in self.tasks.asked[which].rows
            )
            for which, a, b, e in zip(self.tasks.which[task].tolist(), *margins, error.tolist(), strict=True)
        ]
        return np.array(enough, dtype=bool)

    def _by_balls(self, task: int, raw: Array, target: float) -> bool | None:
        """Return the same as `held` for one point (1, V) of a smooth network. Probabilities decide a gap, whatever the target."""
        asked, margin = self.tasks.asked[self.tasks.which[task]], self.tasks.margin[task]
        pair = np.concatenate([self.domain.encode(one) for one in (raw, self.tasks.second(np.array([task]), raw))])
        same = bool(self.network.surely_equal(pair[:1], pair[1:])[0])
        for bits in PRECISIONS:
            with precision(bits):
                weights = [ball(float(v)) for v in margin]
                rows = self.network.forward(Balls.of(pair)).rows()
                g, g_prime = (sum((w * v for w, v in zip(weights, row, strict=True)), ball(0.0)) for row in rows)
                if asked.gap is not None:
                    difference = ball(0.0) if same else sigmoid(g) - sigmoid(g_prime)
                    value = ball(asked.gap.epsilon) - (-difference if asked.gap.rise else difference)
                    met, unmet = value >= 0, value < 0
                else:
                    values = [_row(p, q, c, g, g if same else g_prime) for p, q, c in asked.rows]
                    signs = list(zip(values, asked.strict, strict=True))
                    met = any(value >= target and (value > 0 or not strict) for value, strict in signs)
                    unmet = all(value < target or (strict and value <= 0) for value, strict in signs)
            if met or unmet:
                return bool(met)
        return None


def _row(p: float, q: float, c: float, g: arb, g_prime: arb) -> arb:
    """Return p g + q g' + c. If g and g' are one ball, compute (p + q) g + c: their difference is then 0, not a ball around it."""
    if g is g_prime:
        return (ball(p) + ball(q)) * g + ball(c)
    return ball(p) * g + ball(q) * g_prime + ball(c)
