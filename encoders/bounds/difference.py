"""Linear bounds of the goals themselves: lower bounds of  rows . (g(x), g(x'))  by backward substitution through both copies.

A functional over the outputs y, y' of a layer is held as   lambda y + lambda' y' + delta (y - y') + constant.   It starts from
the goal's row, whose common part goes into delta, and is rewritten downwards: y, y' by their ReLU lines, the difference e by its
lines in Delta or by the two copies' own lines, whichever is better at the box centre. In the first layer a' = a - s, so both
copies are one function of one variable and the line under it is exact for the pair (`linear.hinge`).
Sound? yes, outward-rounded (see `rounding`).  Complete? no; with input splitting it is (see verify.branch_and_bound).
References: CROWN backward bounds (Zhang et al., NeurIPS 2018); twin difference as in ReluDiff (ICSE 2020).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from encoders.bounds.interval import LayerBounds, interval_bounds
from encoders.bounds.linear import DifferenceLines, LayerForms, ReluLines, first_forms, hidden_forms, hinge
from encoders.bounds.rounding import TINY, factor
from encoders.bounds.twin import Indices, Twin
from encoders.network import Array


@dataclass(frozen=True, kw_only=True, eq=False)
class GoalBounds:
    """lower: (B, R) rigorous lower bounds of the rows.   slope: (B, R, d) of each bound in the network inputs.

    score: (B, d) how much of the bounds' gap each moving column causes: split where it is largest.
    """

    lower: Array
    slope: Array
    score: Array


def row_parts(rows: Array) -> tuple[Array, Array, Array]:
    """Split rows (R, 2): a g + a' g' = t (g - g') + (a - t) g + (a' + t) g', with t the part that the two copies share."""
    a, b = rows[:, 0], rows[:, 1]
    t = np.where(a * b < 0, np.sign(a) * np.minimum(np.abs(a), np.abs(b)), 0.0)
    return t, a - t, b + t


def interval_goals(twin: Twin, question: Indices, margins: LayerBounds) -> Array:
    """Lower bounds (B, R) of the rows from the intervals of g, g' and g - g' alone."""
    t, a, b = row_parts(twin.rows)

    def least(weight: Array, low: Array, high: Array) -> Array:
        return np.minimum(weight * low, weight * high)

    total = least(t, margins.delta_lower, margins.delta_upper)
    total = total + least(a, margins.lower, margins.upper) + least(b, margins.lower_prime, margins.upper_prime)
    lower = total - 2 * np.abs(twin.rows).sum(axis=1) * twin.error[-1][question]
    # A row of the difference alone is exactly 0 where the copies are exactly the same.
    alike = (margins.delta_lower == 0) & (margins.delta_upper == 0) & (twin.rows.sum(axis=1) == 0)
    lower = np.where(alike, np.maximum(lower, 0.0), lower)
    return np.where(np.isfinite(lower), lower, -np.inf)


def linear_goals(
    twin: Twin, question: Indices, low: Array, high: Array, intervals: list[LayerBounds], wanted: Array
) -> GoalBounds:
    """Lower bounds of the rows by linear relaxation over the boxes low, high (B, d). `wanted` (B, R) weighs rows in the score."""
    middle, radius = (low + high) / 2, (high - low) / 2
    first = first_forms(twin, question, middle, radius)
    forms, bounds = hidden_forms(twin, question, intervals, first)
    state = _Functional.of(twin, question, len(question))
    score = np.zeros((len(question), len(twin.moving)))
    for k in range(twin.depth - 1, 0, -1):
        state.charge(twin.magnitude[k][question], factor(sum(twin.weights[k].shape)))
        gap = state.relax(twin.slopes[k], bounds[k], forms[k - 1])
        score += _shares((gap * wanted[:, :, None]).sum(axis=1), forms[k - 1].first.direction)
        state.descend(twin, k)
    state.charge(twin.magnitude[0][question], factor(twin.problem.domain.columns + len(twin.weights[0])))
    if twin.depth:
        gap = state.relax_first(twin.slopes[0], bounds[0], twin.shift[question])
        score += _shares((gap * wanted[:, :, None]).sum(axis=1), np.abs(first[:, :, :-1]).transpose(1, 0, 2))
    else:
        state.constant -= (state.second * twin.shift[question][:, None, :]).sum(axis=2)
        state.first = state.first + state.second
    slope = state.first @ twin.weights[0]
    centre = first[:, :, -1].T
    swing = np.abs(slope) * radius[:, None, :]
    lower = state.constant + (state.first * centre[:, None, :]).sum(axis=2) - swing.sum(axis=2) - state.error - TINY
    score += 1e-3 * (swing * wanted[:, :, None]).sum(axis=1)
    return GoalBounds(lower=np.where(np.isfinite(lower), lower, -np.inf), slope=slope, score=score)


def _shares(gap: Array, direction: Array) -> Array:
    """Distribute each neuron's gap (B, n) over the inputs in proportion to how much they move it (B, n, d)."""
    total = direction.sum(axis=2)
    weight = np.divide(gap, total, out=np.zeros_like(gap), where=total > 0)
    return np.asarray((weight[:, None, :] @ direction)[:, 0, :])


def _wide(bounds: LayerBounds) -> LayerBounds:
    """The same bounds with a rows axis: (B, 1, n)."""
    return LayerBounds(**{field.name: getattr(bounds, field.name)[:, None, :] for field in fields(bounds)})


class _Functional:
    """The coefficients first (lambda), second (lambda'), delta, each (B, R, n), with constant and rounding error (B, R).

    The one mutable thing here: it is the loop variable of the descent, rewritten in place layer by layer.
    """

    def __init__(self, first: Array, second: Array, delta: Array, constant: Array, error: Array) -> None:
        self.first, self.second, self.delta, self.constant, self.error = first, second, delta, constant, error

    @classmethod
    def of(cls, twin: Twin, question: Indices, batch: int) -> _Functional:
        """The rows as functionals over the outputs of the last hidden layer (or over a_1 when there is none)."""
        t, a, b = row_parts(twin.rows)
        if not twin.depth:  # one affine layer: g = a_1 itself
            ones = np.ones((batch, 1, 1))
            first, second = ones * (t + a)[None, :, None], ones * (b - t)[None, :, None]
            return cls(first, second, np.zeros_like(first), np.zeros((batch, len(t))), np.zeros((batch, len(t))))
        weight, bias = twin.weights[-1][0], float(twin.biases[-1][0])
        first, second, delta = (np.broadcast_to(part[None, :, None] * weight, (batch, len(t), len(weight))) for part in (a, b, t))
        constant = np.broadcast_to((a + b) * bias, (batch, len(t))).copy()
        error = np.abs(twin.rows).sum(axis=1) * twin.error[-1][question] * 2
        return cls(first, second, delta, constant, error)

    def charge(self, magnitude: Array, rate: float) -> None:
        """Pay beforehand for the rounding of one rewriting: the coefficients that relaxing yields are in sum at most |lambda| +
        |lambda'| + 2 |delta|, and every term is such a coefficient times at most `magnitude` (B, n)."""
        size = np.abs(self.first) + np.abs(self.second) + 2 * np.abs(self.delta)
        self.error = self.error + 2 * rate * (size * magnitude[:, None, :]).sum(axis=2)

    def merge(self) -> None:
        """Move what the copies share with opposite sign into delta, where it is bounded better."""
        shared = np.where(
            self.first * self.second < 0, np.sign(self.first) * np.minimum(np.abs(self.first), np.abs(self.second)), 0.0
        )
        self.first, self.second, self.delta = self.first - shared, self.second + shared, self.delta + shared

    def relax(self, slope: Array, narrow: LayerBounds, forms: LayerForms) -> Array:
        """From outputs to pre-activations of one hidden layer; returns the relaxation gap (B, R, n) that this opens."""
        self.merge()
        bounds = _wide(narrow)
        one, two = ReluLines.of(bounds.lower, bounds.upper), ReluLines.of(bounds.lower_prime, bounds.upper_prime)
        lines = DifferenceLines.of(bounds)
        a, delta = forms.first.centre[:, None, :], forms.delta.centre[:, None, :]
        a_prime = a - delta
        equal = (bounds.lower >= 0) & (bounds.lower_prime >= 0)
        low_by_delta = equal | (
            lines.low_slope * delta + lines.low_constant >= one.low_slope * a - two.up_slope * a_prime - two.up_constant
        )
        up_by_delta = equal | (
            lines.up_slope * delta + lines.up_constant <= one.up_slope * a + one.up_constant - two.low_slope * a_prime
        )
        rest = 1 - slope
        first, second, difference = rest * self.first, rest * self.second, rest * self.delta
        plus, minus = np.maximum(difference, 0.0), np.minimum(difference, 0.0)
        plus_delta, plus_copies = plus * low_by_delta, plus * ~low_by_delta
        minus_delta, minus_copies = minus * up_by_delta, minus * ~up_by_delta
        self.constant = self.constant + (
            np.minimum(first, 0.0) * one.up_constant
            + np.minimum(second, 0.0) * two.up_constant
            + plus_delta * lines.low_constant
            + minus_delta * lines.up_constant
            - plus_copies * two.up_constant
            + minus_copies * one.up_constant
        ).sum(axis=2)
        self.first = (
            slope * self.first
            + np.where(first > 0, first * one.low_slope, first * one.up_slope)
            + plus_copies * one.low_slope
            + minus_copies * one.up_slope
        )
        self.second = (
            slope * self.second
            + np.where(second > 0, second * two.low_slope, second * two.up_slope)
            - plus_copies * two.up_slope
            - minus_copies * two.low_slope
        )
        self.delta = slope * self.delta + plus_delta * lines.low_slope + minus_delta * lines.up_slope
        open_delta = np.where(lines.up_constant > 0, lines.up_constant, 0.0)
        narrowest = np.minimum(open_delta, one.up_constant + two.up_constant)
        return np.asarray(
            np.abs(first) * one.up_constant + np.abs(second) * two.up_constant + np.abs(difference) * narrowest
        )

    def relax_first(self, slope: Array, narrow: LayerBounds, shift: Array) -> Array:
        """From outputs to pre-activations of the first layer, both copies as one function of a; `second`, `delta` are used up."""
        p, p_prime = self.first + self.delta, self.second - self.delta
        rest = 1 - slope
        line, constant, gap = hinge(rest * p, rest * p_prime, shift[:, None, :], _wide(narrow))
        self.constant = self.constant + (constant - slope * p_prime * shift[:, None, :]).sum(axis=2)
        self.first = line + slope * (p + p_prime)
        return gap

    def descend(self, twin: Twin, k: int) -> None:
        """From pre-activations of layer k to outputs of the layer below it."""
        self.constant = self.constant + ((self.first + self.second) * twin.biases[k]).sum(axis=2)
        self.first = self.first @ twin.weights[k]
        self.second = self.second @ twin.weights[k]
        self.delta = self.delta @ twin.weights[k]


def goal_bounds(twin: Twin, question: Indices, low: Array, high: Array, wanted: Array) -> GoalBounds:
    """Both passes over boxes low, high (B, d) of moving columns: the better of interval and linear lower bounds."""
    intervals = interval_bounds(twin, question, low, high)
    bounds = linear_goals(twin, question, low, high, intervals, wanted)
    lower = np.maximum(bounds.lower, interval_goals(twin, question, intervals[-1]))
    return GoalBounds(lower=lower, slope=bounds.slope, score=bounds.score)
