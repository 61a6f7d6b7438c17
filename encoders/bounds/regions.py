"""Bounds over regions, boxes with some signs of pre-activations fixed: what neuron branching asks, with multipliers or without.

    p . y + q . y'  >=  alpha . a + beta . a' + c          over every (a, a') that the region leaves a neuron

is how one layer is replaced, from the goal's row down to the inputs. A *multiplier* names alpha and beta of a neuron, any numbers,
and c is then the exact minimum over the neuron's polygon (a, a' and a - a' within their intervals). Without multipliers the
*standard relaxation* chooses, and it is what the intervals of the deeper hidden layers come from, by six backward substitutions a
neuron (a, a' and a - a' from both sides):

    first layer: a' = a - s with a constant s; the chord, over the middle of the interval, of the lower hull of p y + q y'
    others: the best, at the middles of both intervals, of three ways to write p y + q y' that are bounded term by term,
        p y + q y',      (p + q) y - q (y - y'),      (p + q) y' + p (y - y')
    y >= floor a with floor 1 where u > -l and 0 elsewhere; y <= the chord; y - y' between its two lines
    of choices that are equally good to within a share of 1e-9 (TIE) the first one: ties are common, as where u = u'
    the inputs lie anywhere in the network box; with multipliers, in one category of each one-hot block

Whoever re-proves a leaf computes these bounds again in code of their own, so a search that leaves room for rounding is believed.
Sound? yes: of any multipliers.   Complete? no; with splitting it is.
Rounding: RATE = 8 (2 K + 64) u, with K the widest layer plus the widest input of a layer plus 2 layers + 8, covers the operations
of all layers relative to the terms (|p| + |q| + |alpha| + |beta|) Q_k (`rounding`), and TINY what underflows.
References: CROWN (Zhang et al., NeurIPS 2018); ReluDiff (Paulsen et al., ICSE 2020); Bunel et al. (JMLR 2020).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from encoders.bounds.curves import PairLines, copy_lines, difference_lines
from encoders.bounds.interval import crossed, first_layer, next_layer
from encoders.bounds.relu import TIE, LayerBounds, Lines, hinge, relu_difference_lines, relu_lines
from encoders.bounds.rounding import TINY
from encoders.bounds.twin import Twin
from encoders.curves import SmoothLayer
from encoders.domain import Regions
from encoders.network import Array, Booleans, Integers

LeastInput = Callable[[Array, Integers], Array]
"""From slopes (N, d) and regions (N,) to the least of slope . (x - middle)."""
BLOCK = 1 << 19
"""Coefficients handled at once: larger arrays fall out of the cache."""
SMALLEST = 1e-200
"""Weights of rows below it could vanish in a product, and count as 0."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RegionBound:
    """bound: (B,) of the rows' combination, with the rounding `error` (B,) taken off.

    first, second: per hidden layer (B, m) the coefficients of y and y'; slope: (B, d) those of the moving inputs.
    """

    bound: Array
    error: Array
    first: tuple[Array, ...]
    second: tuple[Array, ...]
    slope: Array


class RegionBounds:
    """Regions of a twin's questions (B,), or of its only one. Signs and multipliers are for piecewise-linear layers.

    intervals: bounds of all layers over boxes without signs, for the looser bounds that these give without substitution.
    layers: the bounds of every layer, clipped by the signs.   low, high: (B, d) of the moving columns.
    point: (B,) boxes that are one network input.
    """

    def __init__(
        self, twin: Twin, regions: Regions, question: Integers | None = None, intervals: list[LayerBounds] | None = None
    ) -> None:
        self.twin = twin
        self.question = np.zeros(len(regions), dtype=np.int64) if question is None else question
        moving = twin.variables
        self.low, self.high = twin.local.box(regions.lower[:, moving], regions.upper[:, moving])
        self.middle, self.radius = (self.low + self.high) / 2, (self.high - self.low) / 2
        self.point = np.asarray((self.low == self.high).all(axis=1))
        self.centre = twin.base[self.question] + self.middle @ twin.weights[0].T  # of a, at the middle of the inputs
        widths = np.cumsum([0, *(len(layer.bias) for layer in twin.hidden)])
        self._signs = [
            tuple(signs[:, start + copy : end + copy] for signs in (regions.active, regions.inactive) for copy in (0, widths[-1]))
            for start, end in pairwise(widths.tolist())
        ]
        self._curves: dict[int, tuple[Lines, Lines, Lines]] = {}
        self.layers: list[LayerBounds] = [] if intervals is None else intervals
        for k in range(len(self.layers), twin.depth + 1):
            if k:
                bounds = next_layer(twin, self.question, k, self.layers[-1])
            else:
                bounds = first_layer(twin, self.question, self.low, self.high)
            if k < twin.depth:
                bounds = self._clipped(bounds, k)
                bounds = self._clipped(self._substituted(bounds, k), k) if k else bounds
            self.layers.append(bounds)

    def _clipped(self, bounds: LayerBounds, k: int) -> LayerBounds:
        """Return the bounds of hidden layer k that the signs leave, tightened against each other."""
        on, on_prime, off, off_prime = self._signs[k]
        if not (on.any() or on_prime.any() or off.any() or off_prime.any()):
            return bounds
        return crossed(
            LayerBounds(
                lower=np.where(on, np.maximum(bounds.lower, 0.0), bounds.lower),
                upper=np.where(off, np.minimum(bounds.upper, 0.0), bounds.upper),
                lower_prime=np.where(on_prime, np.maximum(bounds.lower_prime, 0.0), bounds.lower_prime),
                upper_prime=np.where(off_prime, np.minimum(bounds.upper_prime, 0.0), bounds.upper_prime),
                delta_lower=bounds.delta_lower, delta_upper=bounds.delta_upper,
            ),
            self.twin.error[k][self.question],
        )

    def _substituted(self, bounds: LayerBounds, k: int) -> LayerBounds:
        """Return the bounds of hidden layer k, those of smooth neurons and of any that bend in either copy tightened by backward
        substitution."""
        layer = self.twin.hidden[k]
        if isinstance(layer, SmoothLayer):
            box, neuron = np.nonzero((_bends(bounds) & (layer.bend < 1)) | layer.smooth)
        else:
            box, neuron = np.nonzero(_bends(bounds) & (layer.slope < 1))
        if not len(box):
            return bounds
        weight, bias = self.twin.weights[k][neuron], self.twin.biases[k][neuron]
        none, zero = np.zeros_like(weight), np.zeros_like(bias)
        ends = (
            ("lower", weight, none, bias), ("upper", -weight, none, -bias), ("lower_prime", none, weight, bias),
            ("upper_prime", none, -weight, -bias), ("delta_lower", weight, -weight, zero), ("delta_upper", -weight, weight, zero),
        )
        p, q, constant = (np.concatenate([end[part] for end in ends]) for part in (1, 2, 3))
        least = self._least(p, q, constant, np.tile(box, len(ends)), k - 1).reshape(len(ends), -1)
        found = {}
        for (name, *_), value in zip(ends, least, strict=True):
            end = getattr(bounds, name).copy()
            end[box, neuron] = np.minimum(end[box, neuron], -value) if "upper" in name else np.maximum(end[box, neuron], value)
            found[name] = end
        return crossed(LayerBounds(**found), self.twin.error[k][self.question])

    def _least(self, p: Array, q: Array, constant: Array, box: Integers, last: int, room: int = 1) -> Array:
        """Return lower bounds (N,) of p . y + q . y' + constant over regions `box` (N,), y of hidden layer `last`; `room` times the
        rounding error is taken off."""
        step = max(1, BLOCK // max(len(layer.bias) for layer in self.twin.hidden))
        parts = (slice(start, start + step) for start in range(0, len(p), step))
        return np.concatenate([self._least_of(p[i], q[i], constant[i], box[i], last, room) for i in parts])

    def _least_of(self, p: Array, q: Array, constant: Array, box: Integers, last: int, room: int) -> Array:
        twin, total, error = self.twin, constant, self.twin.rate * np.abs(constant)
        for k in range(last, -1, -1):
            error = error + self._rounding(k, np.abs(p) + np.abs(q), box)
            if k == 0:
                line, offset = self._first_lines(p, q, box)
                total = total + offset.sum(axis=1)
                return self._at_inputs(line @ twin.weights[0], line, total - room * error, box, self._within_radius)
            alpha, beta, offset = self._standard(k, p, q, box)
            total = total + offset.sum(axis=1) + (alpha + beta) @ twin.biases[k]
            p, q = alpha @ twin.weights[k], beta @ twin.weights[k]
        raise AssertionError("a substitution ends at the first layer")

    def _first_lines(self, p: Array, q: Array, box: Integers) -> tuple[Array, Array]:
        """Return slope and constant (N, n) of lines in a under p y + q y' of the first layer."""
        layer = self.twin.hidden[0]
        if isinstance(layer, SmoothLayer):
            line, offset, _ = self._pairs.under(p, q, box)
            return line, offset
        slope, rest, shift = layer.slope, 1 - layer.slope, np.broadcast_to(self._of(self.twin.shift, box), p.shape)
        line, offset, _ = hinge(rest * p, rest * q, shift, self.layers[0].take(box))
        return line + slope * (p + q), offset - slope * q * shift

    @cached_property
    def _pairs(self) -> PairLines:
        layer = self.twin.hidden[0]
        assert isinstance(layer, SmoothLayer)
        shift = np.broadcast_to(self._of(self.twin.shift, np.arange(len(self.question))), self.layers[0].lower.shape)
        return PairLines.of(layer, shift, self.layers[0])

    def _standard(self, k: int, p: Array, q: Array, box: Integers) -> tuple[Array, Array, Array]:
        """Return alpha, beta, c (N, n) with  p y + q y' >= alpha a + beta a' + c  in hidden layer k, by the standard relaxation."""
        layer, bounds = self.twin.hidden[k], self.layers[k].take(box)
        if isinstance(layer, SmoothLayer):
            if k not in self._curves:
                own = self.layers[k]
                copies = copy_lines(layer, own.lower, own.upper), copy_lines(layer, own.lower_prime, own.upper_prime)
                self._curves[k] = *copies, difference_lines(layer, own)
            one, two, apart = (lines.take(box) for lines in self._curves[k])
            return best_way(p, q, one, two, apart, bounds)
        alpha, beta, offset = standard(bounds, (1 - layer.slope) * p, (1 - layer.slope) * q)
        return alpha + layer.slope * p, beta + layer.slope * q, offset

    def _at_inputs(self, slope: Array, line: Array, total: Array, box: Integers, least: LeastInput) -> Array:
        """Return the least (N,) of line . a + total over the inputs, a the first layer's pre-activations of copy x, and line . a =
        slope . x + constant."""
        total = total + np.einsum("nj,nj->n", line, self.centre[box]) + least(slope, box) - TINY
        return np.where(np.isfinite(total), total, -np.inf)

    def _within_radius(self, slope: Array, box: Integers) -> Array:
        """Return (N,) the least of slope . (x - middle) over the whole network box."""
        return np.asarray(-np.einsum("nj,nj->n", np.abs(slope), self.radius[box]))

    def _one_category(self, slope: Array, box: Integers) -> Array:
        """Return (N,) the least of slope . (x - middle): numbers within their radius, one category of each block."""
        least, number = np.zeros(len(slope)), np.ones(slope.shape[1], dtype=bool)
        local = self.twin.local
        for v in np.flatnonzero(local.one_hot):
            block = slice(int(local.start[v]), int(local.start[v] + local.width[v]))
            number[block] = False
            possible = np.where(self.high[box, block] > 0, slope[:, block], np.inf).min(axis=1)
            least += possible - np.einsum("nj,nj->n", slope[:, block], self.middle[box, block])
        return np.asarray(least - np.einsum("nj,nj->n", np.abs(slope[:, number]), self.radius[box][:, number]))

    def _rounding(self, k: int, size: Array, box: Integers) -> Array:
        """Return (N,) what the operations at hidden layer k may lose, for terms of `size` (N, m); see the argument above."""
        return np.asarray(self.twin.rate * np.einsum("nj,nj->n", size, self._of(self.twin.magnitude[k], box)) + TINY)

    def _of(self, table: Array, box: Integers) -> Array:
        """Return the rows (N, m) of a table by question, one row where there is one question."""
        return table if len(table) == 1 else table[self.question[box]]

    def rows(self, box: Integers, rows: Array, constants: Array) -> Array:
        """Return lower bounds (N,) of rows (N, 2) and constants (N,) over regions `box` (N,), by the standard relaxation.

        The rounding error is taken off twice: whoever sums in another order still finds a bound of 0 where this says so.
        """
        twin = self.twin
        error = twin.rate * (np.abs(constants) + np.abs(rows).sum(axis=1) * self._of(twin.magnitude[-1], box)[:, 0])
        if not twin.depth:  # the margins are the first layer themselves
            line = rows.sum(axis=1, keepdims=True)
            total = constants - rows[:, 1] * self._of(twin.shift, box)[:, 0] - 2 * error
            return self._at_inputs(line @ twin.weights[0], line, total, box, self._within_radius)
        total = constants + rows.sum(axis=1) * twin.biases[-1][0] - 2 * error
        p, q = rows[:, :1] * twin.weights[-1], rows[:, 1:] * twin.weights[-1]
        return self._least(p, q, total, box, twin.depth - 1, room=2)

    @cached_property
    def empty(self) -> Booleans:
        """(B,) regions that surely hold no point: two bounds are crossed by more than any rounding."""
        found = np.zeros(len(self.question), dtype=bool)
        for bounds, error in zip(self.layers, self.twin.error, strict=True):
            room = 4 * error[self.question]
            for low, high in (
                (bounds.lower, bounds.upper), (bounds.lower_prime, bounds.upper_prime), (bounds.delta_lower, bounds.delta_upper)
            ):
                found |= (low - high > room).any(axis=1)
        return found

    @cached_property
    def alike(self) -> Booleans:
        """(B,) regions where g - g' is exactly 0, and some row says no more than that c (g - g') + constant >= 0, constant >= 0."""
        last, problem = self.layers[-1], self.twin.problem
        same = ((last.delta_lower == 0) & (last.delta_upper == 0)).all(axis=1)
        return np.asarray(same & ((problem.rows.sum(axis=1) == 0) & (problem.constants >= 0) & ~problem.strict).any())

    def lagrange(self, weights: Array, slopes: Array) -> RegionBound:
        """Return the bound of weights (B, R) of the goal's rows, by slopes (B, 2 H) of the neurons, NaN for the standard ones of a
        lone neuron. Whatever they are, it holds."""
        twin, problem = self.twin, self.twin.problem
        weights = np.where(weights < SMALLEST, 0.0, weights)
        row = weights @ problem.rows
        p, q, total = row[:, :1], row[:, 1:], weights @ problem.constants
        if twin.depth:  # else the margins are the first layer themselves
            total = total + row.sum(axis=1) * twin.biases[-1][0]
            p, q = p * twin.weights[-1], q * twin.weights[-1]
        size = weights @ np.abs(problem.rows).sum(axis=1)
        box = np.arange(len(weights))
        error = twin.rate * (weights @ np.abs(problem.constants) + size * self._of(twin.magnitude[-1], box)[:, 0])
        given = [np.split(copy, np.cumsum(problem.network.hidden)[:-1], axis=1) for copy in np.split(slopes, 2, axis=1)]
        first: list[Array] = []
        second: list[Array] = []
        for k in range(twin.depth - 1, -1, -1):
            first, second = [p, *first], [q, *second]
            alpha, beta, offset = self._by_slopes(k, p, q, given[0][k], given[1][k])
            error = error + self._rounding(k, np.abs(p) + np.abs(q) + np.abs(alpha) + np.abs(beta), box)
            total = total + offset
            p, q = alpha, beta
            if k:
                total = total + (p + q) @ twin.biases[k]
                p, q = p @ twin.weights[k], q @ twin.weights[k]
        slope = (p + q) @ twin.weights[0]
        total = total - np.einsum("nj,nj->n", q, self._of(twin.shift, box)) - error
        bound = self._at_inputs(slope, p + q, total, box, self._one_category)
        return RegionBound(
            bound=np.where((weights >= 0).all(axis=1), bound, -np.inf), error=error, first=tuple(first), second=tuple(second),
            slope=slope,
        )

    def _by_slopes(self, k: int, p: Array, q: Array, given: Array, given_prime: Array) -> tuple[Array, Array, Array]:
        """Return alpha, beta (B, m) and c (B,) with  p . y + q . y' >= alpha . a + beta . a' + c  over each region."""
        slope, bounds = self.twin.hidden[k].slope, self.layers[k]
        leak, leak_prime = slope * p, slope * q
        p, q = (1 - slope) * p, (1 - slope) * q
        alpha = np.where(np.isnan(given), _lone(p, bounds.lower, bounds.upper), given - leak)
        beta = np.where(np.isnan(given_prime), _lone(q, bounds.lower_prime, bounds.upper_prime), given_prime - leak_prime)
        used = np.nonzero((p != 0) | (q != 0) | (alpha != 0) | (beta != 0))
        offset = np.zeros(p.shape)
        offset[used] = polygon_minimum(p[used], q[used], alpha[used], beta[used], bounds.take_at(used))
        return leak + alpha, leak_prime + beta, np.asarray(offset.sum(axis=1))


def _bends(bounds: LayerBounds) -> Booleans:
    """Return (B, n) whether the kink lies strictly within the interval of either copy."""
    one = (bounds.lower < 0) & (bounds.upper > 0)
    return np.asarray(one | ((bounds.lower_prime < 0) & (bounds.upper_prime > 0)))


def _lone(p: Array, low: Array, high: Array) -> Array:
    """Return the slope of p relu(a) for a in [low, high] where no multiplier is given."""
    lines = relu_lines(low, high)
    return p * np.where(p >= 0, lines.low_slope, lines.up_slope)


def standard(bounds: LayerBounds, p: Array, q: Array) -> tuple[Array, Array, Array]:
    """Return alpha, beta, c (N, n) with  p relu(a) + q relu(a') >= alpha a + beta a' + c  neuron by neuron.

    It is the best, at the middles of both intervals, of the three ways that the head of this file lists. All arrays are (N, n).
    """
    alpha, beta = p * (bounds.lower >= 0), q * (bounds.lower_prime >= 0)
    constant = np.zeros(p.shape)
    at = np.nonzero(_bends(bounds) & ((p != 0) | (q != 0)))
    p, q, bounds = p[at], q[at], bounds.take_at(at)
    one, two = relu_lines(bounds.lower, bounds.upper), relu_lines(bounds.lower_prime, bounds.upper_prime)
    alpha[at], beta[at], constant[at] = best_way(p, q, one, two, relu_difference_lines(bounds), bounds)
    return alpha, beta, constant


def best_way(p: Array, q: Array, one: Lines, two: Lines, apart: Lines, bounds: LayerBounds) -> tuple[Array, Array, Array]:
    """Return alpha, beta, c with  p y + q y' >= alpha a + beta a' + c, from lines around y, y' and y - y' (in a - a')."""
    (a1, c1), (b1, d1) = one.times(p), two.times(q)
    (a2, c2), (t2, d2) = one.times(p + q), apart.times(-q)
    (b3, c3), (t3, d3) = two.times(p + q), apart.times(p)
    ways = np.stack([[a1, b1, c1 + d1], [a2 + t2, -t2, c2 + d2], [t3, b3 - t3, c3 + d3]])
    middle, middle_prime = (bounds.lower + bounds.upper) / 2, (bounds.lower_prime + bounds.upper_prime) / 2
    terms = np.stack([ways[:, 0] * middle, ways[:, 1] * middle_prime, ways[:, 2]])
    value, size = terms.sum(axis=0), np.abs(terms).sum(axis=0).max(axis=0)
    best = (value >= value.max(axis=0) - TIE * size).argmax(axis=0)
    alpha, beta, constant = np.take_along_axis(ways, best[None, None], axis=0)[0]
    return alpha, beta, constant


def polygon_minimum(p: Array, q: Array, alpha: Array, beta: Array, bounds: LayerBounds) -> Array:
    """Return (N,) the least of  p relu(a) + q relu(a') - alpha a - beta a'  over a, a' and a - a' in their bounds (N,).

    With the signs of a and a' fixed it is linear: at any a, the best a' is an end of what a leaves it, and what is then left to
    minimise over a bends once. So the ends of a and that bend decide. Quadrants that hold no point do not count; where none does,
    rounding has crossed the bounds of a neuron that is one point, and its middle stands for it.
    """
    least = np.full(p.shape, np.inf)
    for on in (False, True):
        low, high = (np.maximum(bounds.lower, 0.0), bounds.upper) if on else (bounds.lower, np.minimum(bounds.upper, 0.0))
        for on_prime in (False, True):
            low_prime = np.maximum(bounds.lower_prime, 0.0) if on_prime else bounds.lower_prime
            high_prime = bounds.upper_prime if on_prime else np.minimum(bounds.upper_prime, 0.0)
            c, c_prime = p * on - alpha, q * on_prime - beta
            start = np.maximum(low, np.nextafter(low_prime + bounds.delta_lower, -np.inf))
            end = np.minimum(high, np.nextafter(high_prime + bounds.delta_upper, np.inf))
            bend = np.where(c_prime >= 0, low_prime + bounds.delta_upper, high_prime + bounds.delta_lower)
            value = np.full(p.shape, np.inf)
            for a in (start, end, np.clip(bend, start, end)):
                a_prime = np.where(
                    c_prime >= 0, np.maximum(low_prime, a - bounds.delta_upper), np.minimum(high_prime, a - bounds.delta_lower)
                )
                value = np.minimum(value, c * a + c_prime * a_prime)
            least = np.where((low <= high) & (low_prime <= high_prime) & (start <= end), np.minimum(least, value), least)
    a, a_prime = (bounds.lower + bounds.upper) / 2, (bounds.lower_prime + bounds.upper_prime) / 2
    at_middle = p * np.maximum(a, 0.0) + q * np.maximum(a_prime, 0.0) - alpha * a - beta * a_prime
    return np.where(np.isfinite(least), least, at_middle)
