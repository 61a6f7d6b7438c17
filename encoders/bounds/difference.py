"""Linear bounds of the goals themselves: lower bounds of  rows . (g(x), g(x'))  by backward substitution through both copies.

A functional over the outputs y, y' of a layer is written as   lambda y + lambda' y' + delta (y - y') + constant.   It starts from
the goal's row, whose common part goes into delta, and is rewritten downwards: y, y' by their ReLU lines, the difference e by its
lines in Delta or by the two copies' own lines, whichever is better at the box centre. In the first layer a' = a - s, so both
copies are one function of one variable and the line under it is exact for the pair (`relu.hinge`).
Sound? yes, outward-rounded (see `rounding`).  Complete? no; with input splitting it is (`engine.search.branch_and_bound`).
References: CROWN backward bounds (Zhang et al., NeurIPS 2018); twin difference as in ReluDiff (ICSE 2020).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from encoders.arrays import Array, Integers
from encoders.bounds.interval import interval_bounds
from encoders.bounds.linear import LayerForms, first_forms, hidden_forms
from encoders.bounds.relu import LayerBounds, bends, hinge, relu_difference_lines, relu_lines
from encoders.bounds.rounding import TINY, UNIT, factor
from encoders.bounds.smooth.curves import PairLines, copy_lines, difference_lines
from encoders.bounds.twin import Twin
from encoders.curves.layer import SmoothLayer
from encoders.domain import Batched
from encoders.network import Layer


@dataclass(frozen=True, kw_only=True, eq=False)
class GoalBounds(Batched):
    """lower: (B, S) rigorous lower bounds of the rows.   slope: (B, S, d) of each bound in the network inputs.

    base: (B, S) with  row(x) >= base + slope . (x - middle)  throughout the box, rounding included.   error: (B, S) that rounding.
    score: (B, d) the part of the bounds' gap that each moving column causes: boxes are split where it is largest.
    """

    lower: Array
    slope: Array
    base: Array
    error: Array
    score: Array


def row_parts(rows: Array) -> tuple[Array, Array, Array]:
    """Split rows (..., 2): a g + a' g' = t (g - g') + (a - t) g + (a' + t) g', with t the part that the two copies share."""
    a, b = rows[..., 0], rows[..., 1]
    t = np.where(a * b < 0, np.sign(a) * np.minimum(np.abs(a), np.abs(b)), 0.0)
    return t, a - t, b + t


def interval_goals(twin: Twin, question: Integers, margins: LayerBounds) -> Array:
    """Return lower bounds (B, R) of all rows, constants included, from the intervals of g, g' and g - g' alone."""
    t, a, b = row_parts(twin.rows)

    def least(weight: Array, low: Array, high: Array) -> Array:
        return np.minimum(weight * low, weight * high)

    total = least(t, margins.delta_lower, margins.delta_upper)
    total = total + least(a, margins.lower, margins.upper) + least(b, margins.lower_prime, margins.upper_prime)
    lower = total - 2 * np.abs(twin.rows).sum(axis=1) * twin.error[-1][question]
    # A row of the difference alone is exactly 0 if the copies are exactly the same.
    equal = (margins.delta_lower == 0) & (margins.delta_upper == 0) & (twin.rows.sum(axis=1) == 0)
    lower = np.where(equal, np.maximum(lower, 0.0), lower)
    return with_constants(np.where(twin.in_range[question][:, None], lower, -np.inf), twin.constants)


def with_constants(lower: Array, constants: Array) -> Array:
    """Return lower + constants, rounded down (a sum of two numbers is off by less than 2 u of their sizes); NaN becomes -inf."""
    total = lower + constants
    total = np.where(constants == 0, total, total - 4 * UNIT * (np.abs(lower) + np.abs(constants)))
    return np.where(np.isfinite(total), total, -np.inf)


def linear_goals(
    twin: Twin, question: Integers, box: tuple[Array, Array], intervals: list[LayerBounds], rows: Array, constants: Array,
    weights: Array,
) -> GoalBounds:
    """Return lower bounds of rows (B, S, 2) plus constants (B, S) by linear relaxation over the boxes (low, high), each (B, d).

    weights: (B, S) weights of the rows in the score.
    """
    hidden = hidden_forms(twin, question, intervals, first_forms(twin, question, (box[0] + box[1]) / 2, (box[1] - box[0]) / 2))
    return goals_by_forms(twin, question, box, hidden, rows, constants, weights)


def goals_by_forms(
    twin: Twin, question: Integers, box: tuple[Array, Array], hidden: tuple[list[LayerForms], list[LayerBounds]], rows: Array,
    constants: Array, weights: Array,
) -> GoalBounds:
    """Return the same from the results of `hidden_forms`."""
    middle, radius = (box[0] + box[1]) / 2, (box[1] - box[0]) / 2
    forms, bounds = hidden
    state = _Functional.of(twin, question, rows)
    score = np.zeros((len(question), len(twin.moving)))
    for k in range(twin.depth - 1, 0, -1):
        state.charge(twin.magnitude[k][question], factor(sum(twin.weights[k].shape)))
        gap = state.relax(twin.hidden[k], bounds[k], forms[k - 1])
        score += forms[k - 1].shares((gap * weights[:, :, None]).sum(axis=1))
        state.descend(twin, k)
    state.charge(twin.magnitude[0][question], factor(twin.problem.domain.columns + len(twin.weights[0])))
    if twin.depth:
        gaps = state.relax_first(twin.hidden[0], bounds[0], twin.shift[question])
        gap = (gaps * weights[:, :, None]).sum(axis=1)
        spread = radius @ twin.absolute[0].T  # the first layer's directions are |W| times the radius, for every box
        share = np.divide(gap, spread, out=np.zeros_like(gap), where=spread > 0)
        score += radius * (share @ twin.absolute[0])
    else:
        state.constant -= (state.second * twin.shift[question][:, None, :]).sum(axis=2)
        state.first = state.first + state.second
    slope = state.first @ twin.weights[0]
    centre = twin.base[question] + middle @ twin.weights[0].T
    swing = np.abs(slope) * radius[:, None, :]
    base = state.constant + (state.first * centre[:, None, :]).sum(axis=2) - state.error - TINY
    base = with_constants(base, constants)
    score += 1e-3 * (swing * weights[:, :, None]).sum(axis=1)
    lower = base - swing.sum(axis=2)
    return GoalBounds(lower=np.where(np.isfinite(lower), lower, -np.inf), slope=slope, base=base, error=state.error, score=score)


def mixed_goals(bounds: GoalBounds, radius: Array, weights: Array) -> Array:
    """Return lower bounds (B, M) of mixtures  sum_s weights[m, s] row_s  (weights non-negative, adding up to 1; rows as bounded).

    If a mixture is met, some row is met; and a mixture's bound can be larger than every single row's, as slopes partly cancel.
    Rounding: each of the few operations is off by a unit of the terms' sizes; 64 + 2 d units cover all of them.
    """
    slope = np.abs(weights @ bounds.slope)
    size = np.abs(bounds.base) + (np.abs(bounds.slope) @ radius[:, :, None])[:, :, 0]
    lower = bounds.base @ weights.T - (slope @ radius[:, :, None])[:, :, 0] - factor(radius.shape[1]) * (size @ weights.T)
    return np.where(np.isfinite(lower), lower, -np.inf)


class _Functional:
    """The coefficients first (lambda), second (lambda'), delta, each (B, R, n), with constant and rounding error (B, R).

    It is the only mutable object here: backward substitution rewrites it in place, layer by layer.
    """

    def __init__(self, first: Array, second: Array, delta: Array, constant: Array, error: Array) -> None:
        self.first, self.second, self.delta, self.constant, self.error = first, second, delta, constant, error

    @classmethod
    def of(cls, twin: Twin, question: Integers, rows: Array) -> _Functional:
        """Return rows (B, S, 2) as functionals over the outputs of the last hidden layer (or over a_1 if there is none)."""
        t, a, b = row_parts(rows)
        if not twin.depth:  # one affine layer: g = a_1 itself
            first, second = (t + a)[:, :, None], (b - t)[:, :, None]
            return cls(first, second, np.zeros_like(first), np.zeros(t.shape), np.zeros(t.shape))
        weight, bias = twin.weights[-1][0], float(twin.biases[-1][0])
        first, second, delta = (part[:, :, None] * weight for part in (a, b, t))
        error = np.abs(rows).sum(axis=2) * twin.error[-1][question] * 2
        return cls(first, second, delta, (a + b) * bias, error)

    def charge(self, magnitude: Array, rate: float) -> None:
        """Add in advance the rounding error of one rewriting: the coefficients after relaxing are in sum at most |lambda| +
        |lambda'| + 2 |delta|, and every term is such a coefficient times at most `magnitude` (B, n)."""
        size = np.abs(self.first) + np.abs(self.second) + 2 * np.abs(self.delta)
        self.error = self.error + 2 * rate * (size * magnitude[:, None, :]).sum(axis=2)

    def merge(self) -> None:
        """Move the common part of the copies' coefficients, with opposite signs, into delta, which is bounded better."""
        common = np.where(
            self.first * self.second < 0, np.sign(self.first) * np.minimum(np.abs(self.first), np.abs(self.second)), 0.0
        )
        self.first, self.second, self.delta = self.first - common, self.second + common, self.delta + common

    def relax(self, layer: Layer, narrow: LayerBounds, forms: LayerForms) -> Array:
        """Rewrite outputs as pre-activations of one hidden layer; returns the relaxation gap (B, R, n) of this step."""
        self.merge()
        bounds = narrow.with_rows()
        if isinstance(layer, SmoothLayer):
            return self._relax_curves(layer, bounds, forms)
        slope = layer.slope
        y, y_prime = relu_lines(bounds.lower, bounds.upper), relu_lines(bounds.lower_prime, bounds.upper_prime)
        lines = relu_difference_lines(bounds)
        a, delta = (centre[:, None] for centre in forms.centres(bounds.lower.shape[2]))
        a_prime = a - delta
        equal = (bounds.lower >= 0) & (bounds.lower_prime >= 0)
        bending = bends(bounds)  # other neurons have exact lines in both copies, and may have no forms
        low_by_delta = equal | bending & (
            lines.low_slope * delta + lines.low_constant >= y.low_slope * a - y_prime.up_slope * a_prime - y_prime.up_constant
        )
        up_by_delta = equal | bending & (
            lines.up_slope * delta + lines.up_constant <= y.up_slope * a + y.up_constant - y_prime.low_slope * a_prime
        )
        rest = 1 - slope
        first, second, difference = rest * self.first, rest * self.second, rest * self.delta
        plus, minus = np.maximum(difference, 0.0), np.minimum(difference, 0.0)
        plus_delta, plus_copies = plus * low_by_delta, plus * ~low_by_delta
        minus_delta, minus_copies = minus * up_by_delta, minus * ~up_by_delta
        self.constant = self.constant + (
            np.minimum(first, 0.0) * y.up_constant
            + np.minimum(second, 0.0) * y_prime.up_constant
            + plus_delta * lines.low_constant
            + minus_delta * lines.up_constant
            - plus_copies * y_prime.up_constant
            + minus_copies * y.up_constant
        ).sum(axis=2)
        self.first = (
            slope * self.first
            + np.where(first > 0, first * y.low_slope, first * y.up_slope)
            + plus_copies * y.low_slope
            + minus_copies * y.up_slope
        )
        self.second = (
            slope * self.second
            + np.where(second > 0, second * y_prime.low_slope, second * y_prime.up_slope)
            - plus_copies * y_prime.up_slope
            - minus_copies * y_prime.low_slope
        )
        self.delta = slope * self.delta + plus_delta * lines.low_slope + minus_delta * lines.up_slope
        open_delta = np.where(lines.up_constant > 0, lines.up_constant, 0.0)
        narrowest = np.minimum(open_delta, y.up_constant + y_prime.up_constant)
        return np.asarray(np.abs(first) * y.up_constant + np.abs(second) * y_prime.up_constant + np.abs(difference) * narrowest)

    def relax_first(self, layer: Layer, narrow: LayerBounds, shift: Array) -> Array:
        """Rewrite outputs as pre-activations of the first layer, both copies as one function of a; `second`, `delta` become
        unused."""
        p, p_prime = self.first + self.delta, self.second - self.delta
        if isinstance(layer, SmoothLayer):
            self.first, constant, gap = PairLines.of(layer, shift, narrow).under(p, p_prime, np.s_[:, None])
            self.constant = self.constant + constant.sum(axis=2)
            return gap
        slope, rest = layer.slope, 1 - layer.slope
        line, constant, gap = hinge(rest * p, rest * p_prime, shift[:, None, :], narrow.with_rows())
        self.constant = self.constant + (constant - slope * p_prime * shift[:, None, :]).sum(axis=2)
        self.first = line + slope * (p + p_prime)
        return gap

    def _relax_curves(self, layer: SmoothLayer, bounds: LayerBounds, forms: LayerForms) -> Array:
        """Do the same as `relax` for a smooth layer: the lines are around y itself, and have intercepts on both sides."""
        y, y_prime = copy_lines(layer, bounds.lower, bounds.upper), copy_lines(layer, bounds.lower_prime, bounds.upper_prime)
        lines = difference_lines(layer, bounds)
        a, delta = (centre[:, None] for centre in forms.centres(bounds.lower.shape[2]))
        a_prime = a - delta
        low_copies = y.low_slope * a + y.low_constant - y_prime.up_slope * a_prime - y_prime.up_constant
        up_copies = y.up_slope * a + y.up_constant - y_prime.low_slope * a_prime - y_prime.low_constant
        low_by_delta = lines.low_slope * delta + lines.low_constant >= low_copies
        up_by_delta = lines.up_slope * delta + lines.up_constant <= up_copies
        plus, minus = np.maximum(self.delta, 0.0), np.minimum(self.delta, 0.0)
        plus_delta, plus_copies = plus * low_by_delta, plus * ~low_by_delta
        minus_delta, minus_copies = minus * up_by_delta, minus * ~up_by_delta
        # The coefficients of y and y' where their lower lines are used, and where their upper lines are.
        low_y, up_y = np.maximum(self.first, 0.0) + plus_copies, np.minimum(self.first, 0.0) + minus_copies
        low_y_prime, up_y_prime = np.maximum(self.second, 0.0) - minus_copies, np.minimum(self.second, 0.0) - plus_copies
        self.constant = self.constant + (
            low_y * y.low_constant + up_y * y.up_constant + low_y_prime * y_prime.low_constant + up_y_prime * y_prime.up_constant
            + plus_delta * lines.low_constant + minus_delta * lines.up_constant
        ).sum(axis=2)
        gap = np.abs(self.first) * y.gap(a) + np.abs(self.second) * y_prime.gap(a_prime)
        gap = gap + np.abs(self.delta) * np.minimum(lines.gap(delta), y.gap(a) + y_prime.gap(a_prime))
        self.first = low_y * y.low_slope + up_y * y.up_slope
        self.second = low_y_prime * y_prime.low_slope + up_y_prime * y_prime.up_slope
        self.delta = plus_delta * lines.low_slope + minus_delta * lines.up_slope
        return np.asarray(gap)

    def descend(self, twin: Twin, k: int) -> None:
        """Rewrite pre-activations of layer k as outputs of the layer below it."""
        self.constant = self.constant + ((self.first + self.second) * twin.biases[k]).sum(axis=2)
        self.first = self.first @ twin.weights[k]
        self.second = self.second @ twin.weights[k]
        self.delta = self.delta @ twin.weights[k]


def goal_bounds(twin: Twin, question: Integers, low: Array, high: Array, weights: Array) -> GoalBounds:
    """Return the better of interval and linear lower bounds for all rows over boxes low, high (B, d) of moving columns."""
    intervals = interval_bounds(twin, question, low, high)
    bounds = linear_goals(twin, question, (low, high), intervals, *every_row(twin, len(question)), weights)
    return replace(bounds, lower=np.maximum(bounds.lower, interval_goals(twin, question, intervals[-1])))


def every_row(twin: Twin, batch: int) -> tuple[Array, Array]:
    """Return all rows (B, R, 2) and constants (B, R) of the problem, the same for every box."""
    count = len(twin.rows)
    return np.broadcast_to(twin.rows, (batch, count, 2)), np.broadcast_to(twin.constants, (batch, count))
