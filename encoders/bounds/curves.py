"""Intervals and lines around smooth neurons: of one copy, of the difference of both, and under both as one function in layer 1.

Intervals. T is monotone, so the ends of a give the ends of y. For d = y - y' = p (T(t) - T(t')), t = q a, three enclosures are
intersected:

    the ends of both copies                    [ T(t_l) - T(t'_u),  T(t_u) - T(t'_l) ];
    the mean value theorem                     T(t) - T(t') = T'(xi) (t - t')  for some xi between the two;
    in the first layer, t - t' = sigma const.  h(t) = T(t) - T(t - sigma) has h' = T'(t) - T'(t - sigma), whose sign changes
                                               once, at sigma / 2, as T' is even and falls with |t|: the ends and
                                               2 T(sigma / 2) enclose it.

Lines. With y = c + p T(q a) (see `encoders.curves`) everything is done for T on an interval [l, u] of t = q a. *Any* slope m
gives a line above T, with  max over [l, u] of T(t) - m t  as its intercept. That maximum is bounded as follows.

    t <= 0: T is convex, so T - m t is largest at an end.
    t >= 0: T is concave, so it lies under its tangent at any d >= 0: at most  T(d) + T'(d) (t - d) - m t, largest at an end.
    t > 20: T <= 1, so at most 1 - 20 m.

Slopes and touching points are chosen as by CROWN (Zhang et al., NeurIPS 2018, section 3.2): the chord where T is convex, the
tangent at the middle where it is concave, else the tangent through the other end. Lines below T are those above, mirrored: T is
odd.

Differences: y - y' = T'(xi) (a - a') p q with T' between two numbers D, D' over both copies' intervals, so it lies between the
lines D Delta and D' Delta; the chord of their larger one is a line above, of their smaller one a line below (for a ReLU D = 0,
D' = 1: `relu`).

First layer: h(t) = P T(t) + P' T(t - sigma) on [l, u], sigma constant. For any m, h - m t on a cell of width w is at least its
smaller end less  w^2 / 8 max |h''|, and |T''| <= min(0.77, 2 T'), |T'''| <= min(2, 4 T'), so with tau what P and P' have in common
with opposite signs  |h''| <= |tau| |sigma| max|T'''| + (|P - tau| + |P' + tau|) max|T''|. What is shared costs less the nearer
the copies are: this is what keeps them together. m is the slope of the hull of h at the CELLS + 1 ends, over the middle. Where the
two copies' own lines come out higher at the middle (on wide intervals), those are taken.

Sound? yes: T and T' are enclosed by `encoders.curves`, intervals and intercepts are rounded outwards here, and `rounding` pays for
what follows.  Complete? no.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from encoders.bounds.relu import LayerBounds, Lines, activation, hinge, relu_difference_lines, relu_lines
from encoders.bounds.tanh import TINY, slope_bounds, tanh_bounds
from encoders.curves import ERROR, FAR, UNIT, Curve, SmoothLayer, parts, tanh
from encoders.network import Array, Integers, Layer

CELLS = 4
"""The cells of an interval on which both copies are bounded as one function; `_hull_slope` is written for four."""
BISECTIONS = 7
"""Steps towards the tangent through the other end; any touching point is sound."""


def copy_lines(layer: SmoothLayer, lower: Array, upper: Array) -> Lines:
    """Lines in a around y for a in [lower, upper] (..., m)."""
    index, q, p, c = smooth(layer)
    low, high = q * lower[..., index], q * upper[..., index]
    up_slope, up_constant = line_above(low, high)
    low_slope, mirrored = line_above(-high, -low)
    curves = (p * q * low_slope, c - p * mirrored, p * q * up_slope, c + p * up_constant)
    return _merged(index, relu_lines(lower, upper).leaky(layer.bend), curves)


def difference_lines(layer: SmoothLayer, below: LayerBounds) -> Lines:
    """Lines in Delta = a - a' around y - y'."""
    index, q, p, _ = smooth(layer)
    lowest, highest = np.minimum(below.lower, below.lower_prime), np.maximum(below.upper, below.upper_prime)
    least, most = slope_bounds(q * lowest[..., index], q * highest[..., index])
    low, high = below.delta_lower[..., index], below.delta_upper[..., index]
    up_slope, up_constant = _chord_above(least, most, low, high)
    low_slope, mirrored = _chord_above(least, most, -high, -low)  # D Delta is odd in Delta
    curves = (p * q * low_slope, -p * q * mirrored, p * q * up_slope, p * q * up_constant)
    return _merged(index, relu_difference_lines(below).leaky(layer.bend), curves)


def _merged(index: Integers, straight: Lines, curves: tuple[Array, ...]) -> Lines:
    """The lines of the neurons that bend, with those of the smooth ones, in the order of the fields, put in their places."""
    for field, curve in zip(fields(straight), curves, strict=True):
        getattr(straight, field.name)[..., index] = curve
    return straight


def _chord_above(least: Array, most: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """A line above  max(least Delta, most Delta)  for Delta in [low, high], where 0 <= least <= most: convex, so ends suffice."""
    at_low = np.where(low >= 0, most, least) * low
    at_high = np.where(high >= 0, most, least) * high
    width = high - low
    slope = np.divide(at_high - at_low, width, out=np.array(most), where=(low < 0) & (high > 0) & (width > 0))
    slope = np.where(high <= 0, least, np.clip(slope, least, most))
    constant = np.maximum(at_low - slope * low, at_high - slope * high)
    # Where one line does, it goes through 0 exactly; else three roundings. An end that is NaN has to show.
    single = (low >= 0) | (high <= 0)
    return slope, np.where(single, 0.0, constant + 4 * UNIT * (np.abs(at_low) + np.abs(at_high)) + TINY)


def line_above(low: Array, high: Array) -> tuple[Array, Array]:
    """(slope, intercept) of a line above T on [low, high], slope in [0, 1]."""
    at_low, at_high = tanh(low), tanh(high)
    width = high - low
    chord = np.divide(at_high - at_low, width, out=np.zeros_like(width), where=(width > 0) & np.isfinite(width))
    touch = np.clip((low + high) / 2, 0.0, FAR)
    mixed = np.nonzero((low < 0) & (high > 0))
    if len(mixed[0]):
        touch[mixed] = _touching(low[mixed], np.minimum(high[mixed], FAR))
    tangent = 1 - np.square(tanh(touch))
    through = (high <= 0) | ((low < 0) & (touch >= high))
    slope = np.clip(np.where(through, chord, tangent), 0.0, 1.0)
    return slope, _intercept(slope, touch, low, high)


def _touching(low: Array, high: Array) -> Array:
    """About where the line through (low, T(low)), low < 0, touches T on [0, high]; at most `high`. Only a choice."""
    left, right, at_low = np.zeros_like(low), high.copy(), np.tanh(low)
    steep = (1 - np.tanh(high) ** 2) * (high - low) > np.tanh(high) - at_low
    for _ in range(BISECTIONS):
        middle = (left + right) / 2
        value = np.tanh(middle)
        before = (1 - value * value) * (middle - low) > value - at_low
        left, right = np.where(before, middle, left), np.where(before, right, middle)
    return np.where(steep, high, right)


def _intercept(slope: Array, touch: Array, low: Array, high: Array) -> Array:
    """A number above  T(t) - slope t  throughout [low, high], whatever slope in [0, 1] and touch in [0, 20]: see the module."""
    none = np.full_like(slope, -np.inf)
    least, most = slope_bounds(touch, touch)
    at_touch = tanh_bounds(touch)[1]
    convex = np.where(low < 0, tanh_bounds(low)[1] - slope * low, none)
    convex = np.maximum(convex, np.where(high <= 0, tanh_bounds(high)[1] - slope * high, none))
    concave = none
    for end in (np.clip(low, 0.0, FAR), np.clip(high, 0.0, FAR)):
        away = end - touch
        concave = np.maximum(concave, at_touch + np.where(away > 0, most, least) * away - slope * end)
    concave = np.maximum(concave, np.where(high > FAR, 1 - FAR * slope, none))
    found = np.maximum(convex, np.where(high > 0, concave, none))
    # Numbers of up to 41 in size, five roundings; and where T is convex, slope t, which may be of any size.
    return np.asarray(found + 4 * ERROR + 4 * UNIT * slope * (np.abs(low) + np.abs(high)))


def pair_line(layer: SmoothLayer, p: Array, p_prime: Array, shift: Array, bounds: LayerBounds) -> tuple[Array, Array, Array]:
    """A line in a under  p y(a) + p' y(a - s)  in the first layer, neuron by neuron: slope, constant and gap, shaped as p.

    p, p_prime may have leading dimensions over (B, m), as in `relu.hinge`, which serves the neurons that bend.
    """
    shape = np.broadcast_shapes(p.shape, shift.shape)
    index, q, half, c = smooth(layer)
    slope, constant, gap = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    if len(index) < len(layer.curve):
        rest = 1 - layer.bend
        slope, constant, gap = hinge(rest * p, rest * p_prime, shift, bounds)
        constant = constant - layer.bend * p_prime * shift
        slope = slope + layer.bend * (p + p_prime)
    one, two = (np.broadcast_to(given, shape)[..., index] for given in (p, p_prime))
    box = [q * end[..., index] for end in (bounds.lower, bounds.upper, bounds.lower_prime, bounds.upper_prime)]
    m, k, lost = _under_both(half * one, half * two, q * shift[..., index], *box)
    slope[..., index] = q * m
    constant[..., index] = k + c * (one + two)
    gap[..., index] = lost
    return slope, constant, gap


def _under_both(
    p: Array, p_prime: Array, sigma: Array, low: Array, high: Array, other_low: Array, other_high: Array
) -> tuple[Array, Array, Array]:
    """A line under h(t) = p T(t) + p' T(t - sigma) on [low, high], with t - sigma in [other_low, other_high]."""
    middle, width = (low + high) / 2, (high - low) / CELLS
    points = np.stack([low, *(np.clip(low + j * width, low, high) for j in range(1, CELLS)), high])
    first, second = tanh(points), tanh(points - sigma)
    values = [p * a + p_prime * b for a, b in zip(first, second, strict=True)]
    limit = np.abs(p) + np.abs(p_prime)
    slope = np.clip(_hull_slope(values, width), -limit, limit)
    constant = np.min([value - slope * point for value, point in zip(values, points, strict=True)], axis=0)
    size = np.abs(low) + np.abs(high) + np.abs(sigma)
    curvature = _curvature(p, p_prime, sigma, np.minimum(low, other_low), np.maximum(high, other_high))
    cell = width * (1 + 2.0**-30) + 4 * UNIT * size
    constant = constant - cell * cell / 8 * curvature - limit * (2 * ERROR + 16 * UNIT * size)
    own_slope, own_constant = _own_lines(p, low, high)
    other_slope, other_constant = _own_lines(p_prime, other_low, other_high)
    apart, away = own_slope + other_slope, own_constant + other_constant - other_slope * sigma
    better = apart * middle + away > slope * middle + constant
    slope, constant = np.where(better, apart, slope), np.where(better, away, constant)
    return slope, constant, np.maximum(values[CELLS // 2] - (slope * middle + constant), 0.0)


def _hull_slope(values: list[Array], width: Array) -> Array:
    """Slope of the lower hull of five evenly spaced values, over the middle one. Only a choice."""
    best, rise = values[2], (values[3] - values[1]) / 2
    for i, j in ((1, 3), (0, 3), (1, 4), (0, 4)):
        step = (values[j] - values[i]) / (j - i)
        at = values[i] + step * (2 - i)
        better = at < best
        best, rise = np.where(better, at, best), np.where(better, step, rise)
    return np.divide(rise, width, out=np.zeros_like(rise), where=width > 0)


def _curvature(p: Array, p_prime: Array, sigma: Array, low: Array, high: Array) -> Array:
    """An upper bound of |h''|."""
    steepest = 1.01 * slope_bounds(low, high)[1]  # the hundredth pays for sigma and the ends of t - sigma being rounded
    second, third = np.minimum(0.77, 2 * steepest), np.minimum(2.0, 4 * steepest)
    shared = np.where(p * p_prime < 0, np.sign(p) * np.minimum(np.abs(p), np.abs(p_prime)), 0.0)
    alone = np.abs(p - shared) + np.abs(p_prime + shared)
    return np.asarray((np.abs(shared) * np.minimum(np.abs(sigma) * third, 2 * second) + alone * second) * (1 + 2.0**-30))


def _own_lines(p: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """A line under p T(t) on [low, high]."""
    up_slope, up_constant = line_above(low, high)
    low_slope, mirrored = line_above(-high, -low)
    return p * np.where(p > 0, low_slope, up_slope), p * np.where(p > 0, -mirrored, up_constant)


def smooth(layer: SmoothLayer) -> tuple[Integers, Array, Array, Array]:
    """Positions of the smooth neurons and (q, p, c) of each."""
    index = np.flatnonzero(layer.curve != Curve.BENT)
    return index, *parts(layer.curve[index])


def activated_interval(layer: Layer, low: Array, high: Array) -> tuple[Array, Array]:
    """The ends (B, m) of y for a in [low, high] (B, m), in any layer."""
    if not isinstance(layer, SmoothLayer):
        return activation(low, layer.slope), activation(high, layer.slope)
    return curved(layer, low, high, (activation(low, layer.bend), activation(high, layer.bend)))


def curved(layer: SmoothLayer, low: Array, high: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
    """The ends (B, m) of y for a in [low, high] (B, m); those of the neurons that bend are taken from `ends`."""
    index, q, p, c = smooth(layer)
    y_low, y_high = (np.array(end) for end in ends)
    # 1/2 + T / 2 is rounded once, by half a unit; where c = 0 nothing is.
    y_low[..., index] = np.maximum(c + p * tanh_bounds(q * low[..., index])[0] - 2 * c * UNIT, c - p)
    y_high[..., index] = np.minimum(c + p * tanh_bounds(q * high[..., index])[1] + 2 * c * UNIT, c + p)
    return y_low, y_high


def curved_difference(
    layer: SmoothLayer, below: LayerBounds, shift: Array | None, error: Array, straight: tuple[Array, Array]
) -> tuple[Array, Array]:
    """The interval (B, m) of y - y'; that of the neurons that bend is taken from `straight`.

    shift: the constant a - a' of the first layer, right to `error`; None above it.
    """
    index, q, p, _ = smooth(layer)
    t_low, t_high, other_low, other_high, delta_low, delta_high = (
        q * getattr(below, name)[..., index]
        for name in ("lower", "upper", "lower_prime", "upper_prime", "delta_lower", "delta_upper")
    )
    least, most = slope_bounds(np.minimum(t_low, other_low), np.maximum(t_high, other_high))
    low = np.where(delta_low >= 0, least, most) * delta_low
    high = np.where(delta_high >= 0, most, least) * delta_high
    at_low, at_high = tanh_bounds(t_low), tanh_bounds(t_high)
    low = np.maximum(low, at_low[0] - tanh_bounds(other_high)[1])
    high = np.minimum(high, at_high[1] - tanh_bounds(other_low)[0])
    if shift is not None:
        sigma, slack = q * shift[..., index], q * error[..., index]
        ends = [_less(at_low, tanh_bounds(t_low - sigma)), _less(at_high, tanh_bounds(t_high - sigma))]
        peak = tuple(2 * end for end in tanh_bounds(sigma / 2))
        inside = (t_low - slack <= sigma / 2) & (sigma / 2 <= t_high + slack)
        ends.append((np.where(inside, peak[0], ends[0][0]), np.where(inside, peak[1], ends[0][1])))
        low = np.maximum(low, np.min([end[0] for end in ends], axis=0) - slack)
        high = np.minimum(high, np.max([end[1] for end in ends], axis=0) + slack)
    same = (delta_low == 0) & (delta_high == 0)  # only ever exactly so when nothing reaches the neuron
    d_low, d_high = (np.array(end) for end in straight)
    d_low[..., index] = np.where(same, 0.0, p * _outward(low, -1.0))
    d_high[..., index] = np.where(same, 0.0, p * _outward(high, 1.0))
    return d_low, d_high


def _less(one: tuple[Array, Array], two: tuple[Array, Array]) -> tuple[Array, Array]:
    return one[0] - two[1], one[1] - two[0]


def _outward(value: Array, sign: float) -> Array:
    """Moved outwards by what a difference, a product and a halving may have lost."""
    return value + sign * (4 * UNIT * np.abs(value) + TINY)
