"""One layer of both copies: its bounds, and intervals and lines around ReLUs, their differences, and pairs of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from encoders.domain import Batched
from solvers import clock

Interval = tuple[Array, Array]
"""Lower and upper ends."""
TIE = 1e-9
"""Choices whose values differ by less than this share count as equal, and the first is taken: so rounding does not decide, and the
checker, which computes them in another order, makes the same choice."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerBounds(Batched):
    """Bounds (B, n) on a, on a' and on Delta = a - a' of one layer, all outward-rounded."""

    lower: Array
    upper: Array
    lower_prime: Array
    upper_prime: Array
    delta_lower: Array
    delta_upper: Array

    @classmethod
    def of(cls, a: Interval, a_prime: Interval, delta: Interval) -> LayerBounds:
        return cls(
            lower=a[0], upper=a[1], lower_prime=a_prime[0], upper_prime=a_prime[1], delta_lower=delta[0], delta_upper=delta[1],
        )

    @classmethod
    def of_one(cls, lower: Array, upper: Array) -> LayerBounds:
        """Return the bounds of one copy as those of both."""
        zero = np.zeros_like(lower)
        return cls.of((lower, upper), (lower, upper), (zero, zero))

    def with_rows(self) -> LayerBounds:
        """Return the same with an axis of rows: (B, 1, n)."""
        return LayerBounds(**{name: getattr(self, name)[:, None, :] for name in self.__dataclass_fields__})

    def columns(self, index: Integers) -> LayerBounds:
        """Return the bounds (B, k) of some neurons."""
        return LayerBounds(**{name: getattr(self, name)[..., index] for name in self.__dataclass_fields__})

    def ends(self) -> dict[str, Array]:
        """Return copies of all ends by their names, to be tightened in place."""
        return {name: getattr(self, name).copy() for name in self.__dataclass_fields__}

    def take_at(self, index: tuple[Integers, ...]) -> LayerBounds:
        """Return the bounds of single neurons, (N,) each, at positions (box, neuron)."""
        return LayerBounds(**{name: getattr(self, name)[index] for name in self.__dataclass_fields__})


def bends(bounds: LayerBounds) -> Booleans:
    """Return (B, n) True if the kink lies strictly within the interval of either copy."""
    first = (bounds.lower < 0) & (bounds.upper > 0)
    return np.asarray(first | ((bounds.lower_prime < 0) & (bounds.upper_prime > 0)))


def activation(a: Array, slope: Array) -> Array:
    """Return max(a, s a), the activation, monotone for slopes in [0, 1]."""
    return np.maximum(a, slope * a) if slope.any() else np.maximum(a, 0.0)


def affine_interval(weight: Array, absolute: Array, y: Interval, bias: Array | float, outward: Array) -> Interval:
    """Return the interval of  weight y + bias  over y in an interval, moved outwards;  absolute: |weight|."""
    clock.spend(2 * len(y[0]) * weight.size)
    centre = ((y[0] + y[1]) / 2) @ weight.T + bias
    spread = ((y[1] - y[0]) / 2) @ absolute.T + outward
    return centre - spread, centre + spread


def difference_interval(layer: LayerBounds, slope: Array, constant: Array | None, error: Array) -> Interval:
    """Return the interval of d = y - y'. With e = relu(a) - relu(a'), d = s Delta + (1 - s) e.

    e = relu(a) - relu(a - Delta) grows with Delta, and is monotone in a for any one Delta: the values at both ends of a, for the
    ends of Delta, enclose it, and so does [l+ - u'+, u+ - l'+]; where both copies are active e = Delta. A `constant` Delta (first
    layer) is computed up to `error`; elsewhere errors here are a few units of y and y', which the next layer's error covers.
    """
    if constant is not None:
        at_lower = np.maximum(layer.lower, 0.0) - np.maximum(layer.lower - constant, 0.0)
        at_upper = np.maximum(layer.upper, 0.0) - np.maximum(layer.upper - constant, 0.0)
        inactive = (layer.upper <= 0) & (layer.upper_prime <= 0)
        equal = (layer.delta_lower == 0) & (layer.delta_upper == 0)  # exact only if no difference reaches the neuron
        error = np.where(inactive | equal, 0.0, error)
        low, high = np.minimum(at_lower, at_upper) - error, np.maximum(at_lower, at_upper) + error
    else:
        active = (layer.lower >= 0) & (layer.lower_prime >= 0)
        ends = (layer.lower, np.maximum(layer.lower, 0.0)), (layer.upper, np.maximum(layer.upper, 0.0))
        low, high = (  # a - Delta is rounded outwards: |a| may be far larger than the relus to which the next layer's error relates
            choose(*(y - np.maximum(np.nextafter(a - delta, towards), 0.0) for a, y in ends))
            for choose, delta, towards in ((np.minimum, layer.delta_lower, np.inf), (np.maximum, layer.delta_upper, -np.inf))
        )
        low = np.where(active, layer.delta_lower, np.where(layer.delta_lower == 0, 0.0, low))
        high = np.where(active, layer.delta_upper, np.where(layer.delta_upper == 0, 0.0, high))
        low = np.maximum(low, np.maximum(layer.lower, 0.0) - np.maximum(layer.upper_prime, 0.0))
        high = np.minimum(high, np.maximum(layer.upper, 0.0) - np.maximum(layer.lower_prime, 0.0))
    if slope.any():
        low = slope * layer.delta_lower + (1 - slope) * low
        high = slope * layer.delta_upper + (1 - slope) * high
    return low, high


@dataclass(frozen=True, kw_only=True, eq=False)
class Lines:
    """low_slope t + low_constant <= value <= up_slope t + up_constant, each (..., n)."""

    low_slope: Array
    low_constant: Array
    up_slope: Array
    up_constant: Array

    @property
    def fields(self) -> tuple[Array, ...]:
        return self.low_slope, self.low_constant, self.up_slope, self.up_constant

    def take(self, index: Any) -> Lines:
        return Lines(**{name: getattr(self, name)[index] for name in self.__dataclass_fields__})

    def stacked(self) -> Array:
        """Return (B, 4, n) the slopes and then the constants of the lower and the upper line."""
        return np.stack([self.low_slope, self.up_slope, self.low_constant, self.up_constant], axis=1)

    def times(self, c: Array) -> tuple[Array, Array]:
        """Return slope and constant of a line under c times the value."""
        lower = c >= 0
        return c * np.where(lower, self.low_slope, self.up_slope), c * np.where(lower, self.low_constant, self.up_constant)

    def gap(self, t: Array) -> Array:
        """Return the distance between the lines at t, at least 0."""
        return np.maximum((self.up_slope - self.low_slope) * t + self.up_constant - self.low_constant, 0.0)

    def leaky(self, slope: Array) -> Lines:
        """Return lines around  s t + (1 - s) value  for slopes s (n,), from those around value."""
        rest = 1 - slope
        return Lines(
            low_slope=slope + rest * self.low_slope, low_constant=rest * self.low_constant,
            up_slope=slope + rest * self.up_slope, up_constant=rest * self.up_constant,
        )


def relu_lines(lower: Array, upper: Array) -> Lines:
    """Return lines in a around relu(a) on [l, u], each (B, n); the lower one goes through 0.

    The triangle of Ehlers (ATVA 2017, used in PBA appendix A.2); the lower slope is 0 or 1, whichever gives the smaller area.
    """
    active, inactive = lower >= 0, upper <= 0
    with np.errstate(invalid="ignore", divide="ignore"):
        slope = upper / (upper - lower)
    up_slope = np.where(active, 1.0, np.where(inactive, 0.0, slope))
    up_constant = np.where(active | inactive, 0.0, -slope * lower)
    low_slope = np.where(active | (~inactive & (upper + lower > TIE * (upper - lower))), 1.0, 0.0)
    return Lines(low_slope=low_slope, low_constant=np.zeros_like(low_slope), up_slope=up_slope, up_constant=up_constant)


def relu_difference_lines(layer: LayerBounds) -> Lines:
    """Return lines in Delta around e = relu(a) - relu(a'), each (B, n). For Delta_l < 0 < Delta_u these are

        Delta_l (Delta_u - Delta)/(Delta_u - Delta_l)   and   Delta_u (Delta - Delta_l)/(Delta_u - Delta_l).
    """
    low, high = layer.delta_lower, layer.delta_upper
    equal = (layer.lower >= 0) & (layer.lower_prime >= 0)
    zero = (layer.upper <= 0) & (layer.upper_prime <= 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        up_share, low_share = high / (high - low), -low / (high - low)
    up_slope = np.where(low >= 0, 1.0, np.where(high <= 0, 0.0, up_share))
    low_slope = np.where(high <= 0, 1.0, np.where(low >= 0, 0.0, low_share))
    mixed = (low < 0) & (high > 0) & ~equal & ~zero
    return Lines(
        low_slope=np.where(equal, 1.0, np.where(zero, 0.0, low_slope)), low_constant=np.where(mixed, -low_slope * high, 0.0),
        up_slope=np.where(equal, 1.0, np.where(zero, 0.0, up_slope)), up_constant=np.where(mixed, -up_slope * low, 0.0),
    )


def hinge(p: Array, p_prime: Array, shift: Array, layer: LayerBounds) -> tuple[Array, Array, Array]:
    """Return a line under h(a) = p relu(a) + p' relu(a - s) on [l, u], neuron by neuron: slope, constant and gap, shaped as p.

    h is piecewise linear with kinks at 0 and s, so for *any* slope m the line m a + min over t in {l, 0, s, u} of (h(t) - m t)
    lies under it (0 and s clipped to [l, u]). m is the slope of the lower hull's chord over the midpoint: exact for one pair.
    p, p_prime may carry leading dimensions over (B, n): (B, R, n) with `shift` and the bounds broadcast.
    """
    shape = np.broadcast_shapes(p.shape, shift.shape)
    low, high, s = (np.broadcast_to(v, shape) for v in (layer.lower, layer.upper, shift))
    first_on, second_on = layer.lower >= 0, layer.lower_prime >= 0
    slope = p * first_on + p_prime * second_on
    constant = -p_prime * second_on * shift
    gap = np.zeros(shape)
    kinked = ~((first_on | (layer.upper <= 0)) & (second_on | (layer.upper_prime <= 0)))
    index = np.nonzero(np.broadcast_to(kinked, shape) & ((p != 0) | (p_prime != 0)))
    slope[index], constant[index], gap[index] = _hull_line(p[index], p_prime[index], s[index], low[index], high[index])
    return slope, constant, gap


def first_lines(pair: tuple[int, int], slope: Array, shift: Array, layer: LayerBounds) -> Lines:
    """Return lines in a around  p y + p' y'  of a first layer, y = slope a + (1 - slope) relu(a), each (B, n): those of `hinge`.

    For one copy alone they are `relu_lines`, except near a tie, which `hinge` decides by the other copy's kink.
    """
    (p, q), first_on, second_on = pair, layer.lower >= 0, layer.lower_prime >= 0
    kinked = ~((first_on | (layer.upper <= 0)) & (second_on | (layer.upper_prime <= 0)))
    if p and q:
        line, constant = 1.0 * p * first_on + q * second_on, -q * second_on * shift
        ends = line, constant, line.copy(), constant.copy()
    else:
        (kink, other), middle = (0.0 * shift, shift) if p else (shift, 0.0), (layer.lower + layer.upper) / 2
        low, high = layer.lower - kink, layer.upper - kink
        lines = relu_lines(low, high)
        ends = (
            lines.low_slope, lines.low_constant - lines.low_slope * kink, lines.up_slope, lines.up_constant - lines.up_slope * kink
        )
        tie = np.minimum.reduce([np.abs(gap) for gap in (middle - kink, middle - other, low, high)])
        kinked &= ~(tie > 4 * TIE * (layer.upper - layer.lower))
    index = np.nonzero(kinked)
    if len(index[0]):
        signs, s = np.array([[1.0], [-1.0]]), np.broadcast_to(shift, layer.lower.shape)[index]
        line, constant, _ = _hull_line(p * signs, q * signs, s, layer.lower[index], layer.upper[index])
        for end, value in zip(ends, (line[0], constant[0], -line[1], -constant[1]), strict=True):
            end[index] = value
    low_slope, low_constant, up_slope, up_constant = ends
    if slope.any():
        rest, leak, level = 1 - slope, slope * (p + q), -slope * q * shift
        low_slope, low_constant = rest * low_slope + leak, rest * low_constant + level
        up_slope, up_constant = rest * up_slope + leak, rest * up_constant + level
    return Lines(low_slope=low_slope, low_constant=low_constant, up_slope=up_slope, up_constant=up_constant)


def _hull_line(p: Array, p_prime: Array, s: Array, low: Array, high: Array) -> tuple[Array, Array, Array]:
    """Do the same as `hinge` for unstable neurons (N,): p, p_prime (N,), or (K, 1) for K pairs at every neuron."""
    points = np.stack([low, np.clip(np.minimum(s, 0.0), low, high), np.clip(np.maximum(s, 0.0), low, high), high])
    points = points.reshape(4, *[1] * (p.ndim - 1), -1)
    values = p * np.maximum(points, 0.0) + p_prime * np.maximum(points - s, 0.0)
    middle, tolerance = (low + high) / 2, TIE * (high - low)
    best, slope = np.full(values.shape[1:], np.inf), np.zeros(values.shape[1:])
    tie = tolerance * (np.abs(p) + np.abs(p_prime))
    for i, j in ((0, 3), (0, 1), (0, 2), (1, 2), (1, 3), (2, 3)):
        width = points[j] - points[i]
        brackets = (points[i] <= middle + tolerance) & (middle - tolerance <= points[j]) & (width > 0)
        m = np.divide(values[j] - values[i], width, out=np.zeros_like(slope), where=brackets)
        height = values[i] + m * (middle - points[i])
        better = brackets & (height < best - tie)
        best, slope = np.where(better, height, best), np.where(better, m, slope)
    constant = (values - slope * points).min(axis=0)
    at_middle = p * np.maximum(middle, 0.0) + p_prime * np.maximum(middle - s, 0.0)
    return slope, constant, at_middle - (slope * middle + constant)
