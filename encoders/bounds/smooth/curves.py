"""Intervals and lines around smooth neurons: of one copy, of the difference of both, and under both as one function in layer 1.

Curves other than tanh and sigmoid are bounded in `shapes`; the results are combined here.

Intervals. T is monotone, so the ends of a give the ends of y. For d = y - y' = p (T(t) - T(t')), t = q a, three enclosures are
intersected:

    the ends of both copies        [ T(t_l) - T(t'_u),  T(t_u) - T(t'_l) ];
    the mean value theorem         T(t) - T(t') = T'(xi) (t - t')  for some xi between the two;
    the shift                      T(t) - T(t - s) grows with s, and at any one s its derivative in t, T'(t) - T'(t - s), changes
                                   sign once, at s / 2, as T' is even and falls with |t|: its values at the ends of t and
                                   2 T(s / 2), at both ends of s, enclose it.

Lines. With y = c + p T(q a) (see `encoders.curves.layer`) everything is done for T on an interval [l, u] of t = q a. *Any* slope m
gives a line above T, with  max over [l, u] of T(t) - m t  as its intercept. That maximum is bounded as follows.

    t <= 0: T is convex, so T - m t is largest at an end.
    t >= 0: T is concave, so it lies under its tangent at any d >= 0: at most  T(d) + T'(d) (t - d) - m t, largest at an end.
    t > 20: T <= 1, so at most 1 - 20 m.

Slopes and touching points are chosen as by CROWN (Zhang et al., NeurIPS 2018, section 3.2): the chord where T is convex, the
tangent at the middle where it is concave, else the tangent through the other end. Lines below T are those above, mirrored: T is
odd. The checker makes the same choices, by its own code: the standard relaxation of docs/concepts/smooth.md.

Differences: y - y' = T'(xi) (a - a') p q with T' between two numbers D, D' over both copies' intervals, so it lies between the
lines D Delta and D' Delta; the chord of their larger one is a line above, of their smaller one a line below (for a ReLU D = 0,
D' = 1: `relu`).

First layer: h(t) = P T(t) + P' T(t - sigma) on [l, u], sigma constant. For any m, h - m t on a cell of width w is at least its
smaller end less  w^2 / 8 max |h''|, and |T''| <= min(0.77, 2 T'), |T'''| <= min(2, 4 T'), so with tau what P and P' have in common
with opposite signs  |h''| <= |tau| |sigma| max|T'''| + (|P - tau| + |P' + tau|) max|T''|. The shared part costs less the nearer the
copies are, so that their difference stays tight. m is the slope of the hull of h at the CELLS + 1 ends, over the middle. If the two
copies' own lines are higher at the middle (on wide intervals), those are used.

Sound? yes: T and T' are enclosed by `tanh`, intervals and intercepts are rounded outwards here, and `rounding` covers later
operations.  Complete? no.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from encoders.arrays import Array, Integers
from encoders.bounds.relu import TIE, LayerBounds, Lines, activation, hinge, relu_difference_lines, relu_lines
from encoders.bounds.smooth import shapes, squares
from encoders.bounds.smooth.tanh import TINY, slope_bounds, tanh_bounds
from encoders.curves.floats import ERROR, FAR, UNIT, tanh
from encoders.curves.layer import Curve, SmoothLayer, parts
from encoders.network import Layer

CELLS = 4
"""The cells of an interval on which both copies are bounded as one function; `_hull_slope` is written for four."""
TOUCHES = 2
"""Steps towards the tangent through the other end; any touching point is sound."""


def copy_lines(layer: SmoothLayer, lower: Array, upper: Array) -> Lines:
    """Return lines in a around y for a in [lower, upper] (..., m)."""
    index, q, p, c = smooth(layer)
    out = relu_lines(lower, upper).leaky(layer.bend)
    if len(index):
        low, high = q * lower[..., index], q * upper[..., index]
        up_slope, up_constant = line_above(low, high)
        low_slope, mirrored = line_above(-high, -low)
        curves = (p * q * low_slope, c - p * mirrored, p * q * up_slope, c + p * up_constant)
        out = _merged(index, out, curves)
    for kind, index in layer.groups():
        out = _merged(index, out, shapes.lines(kind, lower[..., index], upper[..., index]).fields)
    return out


def difference_lines(layer: SmoothLayer, below: LayerBounds) -> Lines:
    """Return lines in Delta = a - a' around y - y'."""
    index, q, p, _ = smooth(layer)
    out = relu_difference_lines(below).leaky(layer.bend)
    if len(index):
        lowest, highest = np.minimum(below.lower, below.lower_prime), np.maximum(below.upper, below.upper_prime)
        slopes = slope_bounds(q * lowest[..., index], q * highest[..., index])
        curves = _around(*slopes, p * q, below.delta_lower[..., index], below.delta_upper[..., index])
        out = _merged(index, out, curves)
    for kind, index in layer.groups():
        slopes = shapes.apart(kind, below.columns(index))
        out = _merged(index, out, _around(*slopes, 1.0, below.delta_lower[..., index], below.delta_upper[..., index]))
    return out


def _around(flattest: Array, steepest: Array, factor: Array | float, low: Array, high: Array) -> tuple[Array, ...]:
    """Return lines around factor times all values between least Delta and most Delta, in the order of the fields."""
    up_slope, up_constant = _chord_above(flattest, steepest, low, high)
    low_slope, mirrored = _chord_above(flattest, steepest, -high, -low)  # D Delta is odd in Delta
    return factor * low_slope, -factor * mirrored, factor * up_slope, factor * up_constant


def _merged(index: Integers, straight: Lines, curves: tuple[Array, ...]) -> Lines:
    """Return the lines of piecewise-linear neurons, with those of smooth ones (in the order of the fields) put in their places."""
    for field, curve in zip(fields(straight), curves, strict=True):
        getattr(straight, field.name)[..., index] = curve
    return straight


def _chord_above(flattest: Array, steepest: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Return a line above  max(least Delta, most Delta)  for Delta in [low, high], least <= most: convex, so ends suffice."""
    at_low = np.where(low >= 0, steepest, flattest) * low
    at_high = np.where(high >= 0, steepest, flattest) * high
    width = high - low
    slope = np.divide(at_high - at_low, width, out=np.array(steepest), where=(low < 0) & (high > 0) & (width > 0))
    slope = np.where(high <= 0, flattest, np.clip(slope, flattest, steepest))
    constant = np.maximum(at_low - slope * low, at_high - slope * high)
    # If one line suffices, it goes through 0 exactly; else there are three roundings. A NaN end stays NaN.
    single = (low >= 0) | (high <= 0)
    return slope, np.where(single, 0.0, constant + 4 * UNIT * (np.abs(at_low) + np.abs(at_high)) + TINY)


def line_above(low: Array, high: Array) -> tuple[Array, Array]:
    """Return (slope, intercept) of a line above T on [low, high], slope in [0, 1]."""
    at_low, at_high = tanh(low), tanh(high)
    width = high - low
    chord = np.divide(at_high - at_low, width, out=np.zeros_like(width), where=(width > 0) & np.isfinite(width))
    touch = np.clip((low + high) / 2, 0.0, FAR)
    crossing = np.nonzero((low < 0) & (high > 0))
    if len(crossing[0]):
        touch[crossing] = _touching(low[crossing], np.minimum(high[crossing], FAR))
    tangent = 1 - np.square(tanh(touch))
    is_chord = (high <= 0) | ((low < 0) & (touch >= high))
    slope = np.clip(np.where(is_chord, chord, tangent), 0.0, 1.0)
    return slope, _intercept(slope, touch, low, high)


def _touching(low: Array, high: Array) -> Array:
    """Return about where the line through (low, T(low)), low < 0, touches T on [0, high]; at most `high`. Any point is sound.

    There the chord from low is steepest and T' is its slope, 1 - T^2: quadratic convergence, from -low / 2, which lies beyond.
    """
    touch = np.minimum(high, -low / 2)
    for _ in range(TOUCHES):
        slope = (np.tanh(touch) - np.tanh(low)) / (touch - low)
        touch = np.minimum(high, np.arctanh(np.sqrt(np.clip(1 - slope, 0.0, 1 - 2 * UNIT))))
    return touch


def _intercept(slope: Array, touch: Array, low: Array, high: Array) -> Array:
    """Return a bound above  T(t) - slope t  on [low, high], for any slope in [0, 1] and touch in [0, 20]: see the module."""
    unbounded = np.full_like(slope, -np.inf)
    flattest, steepest = slope_bounds(touch, touch)
    at_touch = tanh_bounds(touch)[1]
    convex = np.where(low < 0, tanh_bounds(low)[1] - slope * low, unbounded)
    convex = np.maximum(convex, np.where(high <= 0, tanh_bounds(high)[1] - slope * high, unbounded))
    concave = unbounded
    for end in (np.clip(low, 0.0, FAR), np.clip(high, 0.0, FAR)):
        distance = end - touch
        concave = np.maximum(concave, at_touch + np.where(distance > 0, steepest, flattest) * distance - slope * end)
    concave = np.maximum(concave, np.where(high > FAR, 1 - FAR * slope, unbounded))
    bound = np.maximum(convex, np.where(high > 0, concave, unbounded))
    # Numbers of up to 41 in size, five roundings; and where T is convex, slope t, which may be of any size.
    return np.asarray(bound + 4 * ERROR + 4 * UNIT * slope * (np.abs(low) + np.abs(high)))


@dataclass(frozen=True, kw_only=True, eq=False)
class PairLines:
    """Lines under  p y(a) + p' y(a - s)  in the first layer, for any p and p': their common data over boxes (B, m), s = `shift`.

    For neurons made of tanh (B, n): the ends of the cells of t, T there at t and t - sigma, the sizes to which rounding errors are
    relative, the largest T', and the lines around T of each copy with the shift of its argument.
    """

    layer: SmoothLayer
    bounds: LayerBounds
    shift: Array
    points: list[Array]
    first: list[Array]
    second: list[Array]
    size: Array
    steepest: Array
    own: tuple[tuple[Lines, Array], ...]
    others: list[tuple[Integers, shapes.ShapePairs | squares.SquareShapePairs]]

    @classmethod
    def of(cls, layer: SmoothLayer, shift: Array, bounds: LayerBounds) -> PairLines:
        index, q, _, _ = smooth(layer)
        low, high, low_prime, high_prime, sigma = (
            q * end[..., index] for end in (bounds.lower, bounds.upper, bounds.lower_prime, bounds.upper_prime, shift)
        )
        width = (high - low) / CELLS
        points = [low, *(np.clip(low + j * width, low, high) for j in range(1, CELLS)), high]
        return cls(
            layer=layer, bounds=bounds, shift=shift, points=points, first=[tanh(t) for t in points],
            second=[tanh(t - sigma) for t in points], size=np.abs(low) + np.abs(high) + np.abs(sigma),
            # the hundredth covers the rounding of sigma and of the ends of t - sigma
            steepest=1.01 * slope_bounds(np.minimum(low, low_prime), np.maximum(high, high_prime))[1],
            own=((_lines(low, high), np.zeros_like(sigma)), (_lines(low_prime, high_prime), sigma)),
            others=[(units, shapes.pairs(kind, bounds.columns(units), shift[..., units])) for kind, units in layer.groups()],
        )

    def under(self, p: Array, p_prime: Array, box: Any) -> tuple[Array, Array, Array]:
        """Return a line in a for every row of p and p' (..., m) over the boxes `box`: slope, constant and gap, shaped as p."""
        layer, (index, q, half, c) = self.layer, smooth(self.layer)
        slope, constant, gap = np.zeros(p.shape), np.zeros(p.shape), np.zeros(p.shape)
        if not layer.smooth.all():
            rest, shift = 1 - layer.bend, self.shift[box]
            slope, constant, gap = hinge(rest * p, rest * p_prime, shift, self.bounds.take(box))
            constant = constant - layer.bend * p_prime * shift
            slope = slope + layer.bend * (p + p_prime)
        if len(index):
            m, k, gap_part = self._under_curves(half * p[..., index], half * p_prime[..., index], box)
            slope[..., index] = q * m
            constant[..., index] = k + c * (p + p_prime)[..., index]
            gap[..., index] = gap_part
        for index, pairs in self.others:
            m, k, gap_part = pairs.under(p[..., index], p_prime[..., index], box)
            slope[..., index], constant[..., index], gap[..., index] = m, k, gap_part
        return slope, constant, gap

    def _under_curves(self, p: Array, p_prime: Array, box: Any) -> tuple[Array, Array, Array]:
        """Return a line under h(t) = p T(t) + p' T(t - sigma): by cells, or by both copies' own lines if higher at the middle."""
        points, size = [t[box] for t in self.points], self.size[box]
        low, high, sigma = points[0], points[-1], self.own[1][1][box]
        middle, width = (low + high) / 2, (high - low) / CELLS
        values = [p * first[box] + p_prime * second[box] for first, second in zip(self.first, self.second, strict=True)]
        limit = np.abs(p) + np.abs(p_prime)
        slope = np.clip(shapes.hull_slope(values, width, TIE * limit), -limit, limit)
        constant = np.min([value - slope * point for value, point in zip(values, points, strict=True)], axis=0)
        cell = width * (1 + 2.0**-30) + 4 * UNIT * size
        curvature = _curvature(p, p_prime, sigma, self.steepest[box])
        constant = constant - cell * cell / 8 * curvature - limit * (2 * ERROR + 16 * UNIT * size)
        own_slope, own_constant = np.zeros_like(slope), np.zeros_like(slope)
        for weight, (lines, shift) in zip((p, p_prime), self.own, strict=True):
            m, k = lines.take(box).times(weight)
            own_slope, own_constant = own_slope + m, own_constant + k - m * shift[box]
        own_is_higher = own_slope * middle + own_constant > slope * middle + constant + TIE * limit
        slope, constant = np.where(own_is_higher, own_slope, slope), np.where(own_is_higher, own_constant, constant)
        return slope, constant, np.maximum(values[CELLS // 2] - (slope * middle + constant), 0.0)


def _curvature(p: Array, p_prime: Array, sigma: Array, steepest: Array) -> Array:
    """Return an upper bound of |h''|."""
    second, third = np.minimum(0.77, 2 * steepest), np.minimum(2.0, 4 * steepest)
    common = np.where(p * p_prime < 0, np.sign(p) * np.minimum(np.abs(p), np.abs(p_prime)), 0.0)
    rest = np.abs(p - common) + np.abs(p_prime + common)
    return np.asarray((np.abs(common) * np.minimum(np.abs(sigma) * third, 2 * second) + rest * second) * (1 + 2.0**-30))


def _lines(low: Array, high: Array) -> Lines:
    """Return lines around T on [low, high]."""
    up_slope, up_constant = line_above(low, high)
    low_slope, mirrored = line_above(-high, -low)
    return Lines(low_slope=low_slope, low_constant=-mirrored, up_slope=up_slope, up_constant=up_constant)


def smooth(layer: SmoothLayer) -> tuple[Integers, Array, Array, Array]:
    """Return the positions of the neurons made of tanh, and (q, p, c) of each."""
    index = np.flatnonzero((layer.curve == Curve.SIGMOID) | (layer.curve == Curve.TANH))
    return index, *parts(layer.curve[index])


def activated_interval(layer: Layer, low: Array, high: Array) -> tuple[Array, Array]:
    """Return the ends (B, m) of y for a in [low, high] (B, m), in any layer."""
    if not isinstance(layer, SmoothLayer):
        return activation(low, layer.slope), activation(high, layer.slope)
    return curved(layer, low, high, (activation(low, layer.bend), activation(high, layer.bend)))


def curved(layer: SmoothLayer, low: Array, high: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return the ends (B, m) of y for a in [low, high] (B, m); those of piecewise-linear neurons are taken from `ends`."""
    index, q, p, c = smooth(layer)
    y_low, y_high = (np.array(end) for end in ends)
    if len(index):  # 1/2 + T / 2 is rounded once, by half a unit; where c = 0 nothing is.
        y_low[..., index] = np.maximum(c + p * tanh_bounds(q * low[..., index])[0] - 2 * c * UNIT, c - p)
        y_high[..., index] = np.minimum(c + p * tanh_bounds(q * high[..., index])[1] + 2 * c * UNIT, c + p)
    for kind, neurons in layer.groups():
        y_low[..., neurons], y_high[..., neurons] = shapes.values(kind, low[..., neurons], high[..., neurons])
    return y_low, y_high


def curved_difference(layer: SmoothLayer, below: LayerBounds, straight: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return the interval (B, m) of y - y'; that of piecewise-linear neurons is taken from `straight`."""
    index, q, p, _ = smooth(layer)
    d_low, d_high = (np.array(end) for end in straight)
    if len(index):
        d_low[..., index], d_high[..., index] = _tanh_difference(below.columns(index), q, p)
    for kind, neurons in layer.groups():
        d_low[..., neurons], d_high[..., neurons] = shapes.difference(kind, below.columns(neurons))
    return d_low, d_high


def _tanh_difference(below: LayerBounds, q: Array, p: Array) -> tuple[Array, Array]:
    """Return the interval of y - y' for neurons made of tanh."""
    t_low, t_high, other_low, other_high, delta_low, delta_high = (
        q * getattr(below, name)
        for name in ("lower", "upper", "lower_prime", "upper_prime", "delta_lower", "delta_upper")
    )
    flattest, steepest = slope_bounds(np.minimum(t_low, other_low), np.maximum(t_high, other_high))
    low = np.where(delta_low >= 0, flattest, steepest) * delta_low
    high = np.where(delta_high >= 0, steepest, flattest) * delta_high
    at_low, at_high = tanh_bounds(t_low), tanh_bounds(t_high)
    low = np.maximum(low, at_low[0] - tanh_bounds(other_high)[1])
    high = np.minimum(high, at_high[1] - tanh_bounds(other_low)[0])
    ends_found = []
    for side, delta in ((0, delta_low), (1, delta_high)):
        slack = 4 * UNIT * (np.abs(t_low) + np.abs(t_high) + np.abs(delta))  # t - delta is rounded
        ends = [value[side] - tanh_bounds(t - delta)[1 - side] for value, t in ((at_low, t_low), (at_high, t_high))]
        inside = (t_low - slack <= delta / 2) & (delta / 2 <= t_high + slack)
        ends_found.append(([*ends, np.where(inside, 2 * tanh_bounds(delta / 2)[side], ends[0])], slack))
    low = np.maximum(low, np.min(ends_found[0][0], axis=0) - ends_found[0][1])
    high = np.minimum(high, np.max(ends_found[1][0], axis=0) + ends_found[1][1])
    equal = (delta_low == 0) & (delta_high == 0)  # exact only if no difference reaches the neuron
    return np.where(equal, 0.0, p * _outward(low, -1.0)), np.where(equal, 0.0, p * _outward(high, 1.0))


def _outward(value: Array, sign: float) -> Array:
    """Return values moved outwards by the rounding errors of a difference, a product and a halving."""
    return value + sign * (4 * UNIT * np.abs(value) + TINY)
