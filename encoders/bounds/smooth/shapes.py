"""Intervals and lines around the curves of `encoders.curves.shapes`: concave up to z1, convex to z2, concave from there on.

Lines. Any slope m gives a line above T on [l, u], with the largest T(t) - m t as its intercept, bounded part by part: where T is
convex from the ends, where it is concave from the tangent at any point d of that part,

    T(t) - m t  <=  T(d) - m d + (T'(d) - m)(t - d),    largest at an end;

where T' is at most m at the left end of the part, or at least m at its right end, that end decides. Lines below: the same, with
the parts' roles exchanged. The slope is that of the hull of T over the middle c of [l, u]:

    above   e1, e2 are l and u, or where the line through the other end touches T left of z1, right of z2 (if all of [l, u] lies
            there, that other end itself): the tangent at c where c <= e1 or c >= e2, else the chord from e1 to e2
    below   d1, d2 are the ends of the convex part, or where the lines through l (beyond z1), u (beyond z2) touch T on it: the
            tangent at c between them, the chord from l to d1, from d2 to u beside them; the one from l to u if there are no d1 < d2

within the slopes that T has on [l, u]. A line touches at the end next to the point that it goes through, or at the other one, where
the slope there says so; else TOUCHES times the point whose T' is the slope of the chord so far is taken, from the middle of the
part. Points of given slopes are interpolated between multiples of 1 / NODES, up to NEAR.

First layer: h(t) = P T(t) + P' T(t - s) on [l, u], s constant, at the ends of CELLS cells of width w. Between these h lies above
its chord less  tau' b + tau c  with tau what P and P' have in common with opposite signs, tau' the rest, and with the steps k that
T' makes at joints within the intervals, and its variation v over them

    b = min(w (w max |T''| / 8 + k / 4),  w v / 4)
    c = min(w min(w min(|s| max |T'''|, 2 max |T''|) / 8, |s| max |T''| / 2) + k min(w / 2, |s|),  w v / 2),

as a function lies at most w / 4 times the variation of its derivative below a chord. Sound? yes.  Complete? no.
Reference: CROWN (Zhang et al., NeurIPS 2018) for S-shaped functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from encoders.arrays import Array, Booleans
from encoders.bounds.relu import TIE, LayerBounds, Lines
from encoders.bounds.smooth import squares
from encoders.bounds.smooth.tanh import TINY
from encoders.curves.floats import ERROR, UNIT
from encoders.curves.layer import Curve

TOUCHES = 3
NODES = 32
NEAR = 16.0
CELLS = 4
LEFT, CORE, RIGHT = 0, 1, 2
"""The parts, by z1 and z2."""


def shaped(t: Array, kind: Curve) -> tuple[Array, Array]:
    """Return T and T'."""
    return kind.at(t)


def _at(kind: Curve, *points: Array) -> list[tuple[Array, Array]]:
    """Return T and T' at several points (..., n) of each interval, at once."""
    value, slope = shaped(np.stack(points), kind)
    return list(zip(value, slope, strict=True))


def values(kind: Curve, low: Array, high: Array) -> tuple[Array, Array]:
    """Return the ends of T on [low, high]: T falls up to its lowest point and rises from there on."""
    if kind is Curve.SQUARE:
        return squares.values(low, high)
    (at_low, _), (at_high, _) = _at(kind, low, high)
    lowest = (low <= kind.shape.lowest) & (kind.shape.lowest <= high)
    low_value = np.where(lowest, kind.shape.least, np.minimum(at_low, at_high))
    error = ERROR * (1 + np.maximum(np.abs(low), np.abs(high)))
    return low_value - error, np.maximum(at_low, at_high) + error


def slopes(kind: Curve, low: Array, high: Array) -> tuple[Array, Array]:
    """Return (below, above) all T'(t) for t in [low, high], those on both sides of a joint included."""
    (_, at_low), (_, at_high) = _at(kind, low, high)
    shape = kind.shape
    first, second = (low <= shape.z1) & (shape.z1 <= high), (low <= shape.z2) & (shape.z2 <= high)
    lower = np.where(first, shape.slopes[0], np.minimum(at_low, at_high))
    upper = np.where(second, shape.slopes[1], np.maximum(at_low, at_high))
    if shape.kink:  # at a joint that is an end, T' is that to its right, and T' beyond it lies between these
        lower, upper = np.where(second, np.minimum(lower, shape.rise), lower), np.where(first, np.maximum(upper, 0.0), upper)
    return lower - ERROR, upper + ERROR


def apart(kind: Curve, bounds: LayerBounds) -> tuple[Array, Array]:
    """Return (below, above) all (T(t) - T(t')) / (t - t'): by the mean value theorem; for squares the sums t + t'."""
    if kind is Curve.SQUARE:
        return squares.sums(bounds)
    return slopes(kind, np.minimum(bounds.lower, bounds.lower_prime), np.maximum(bounds.upper, bounds.upper_prime))


def difference(kind: Curve, bounds: LayerBounds) -> tuple[Array, Array]:
    """Return the interval of T(t) - T(t'), from the ends of both, and from `apart`."""
    first, second = values(kind, bounds.lower, bounds.upper), values(kind, bounds.lower_prime, bounds.upper_prime)
    products = [slope * delta for slope in apart(kind, bounds) for delta in (bounds.delta_lower, bounds.delta_upper)]
    low = np.maximum(np.minimum.reduce(products), first[0] - second[1])
    high = np.minimum(np.maximum.reduce(products), first[1] - second[0])
    equal = (bounds.delta_lower == 0) & (bounds.delta_upper == 0)  # exact only if no difference reaches the neuron
    low, high = low - 4 * UNIT * np.abs(low) - TINY, high + 4 * UNIT * np.abs(high) + TINY
    return np.where(equal, 0.0, low), np.where(equal, 0.0, high)


def lines(kind: Curve, low: Array, high: Array) -> Lines:
    """Return lines around T on [low, high]."""
    if kind is Curve.SQUARE:
        return squares.lines(low, high)
    up_slope, up_constant = _above(kind, low, high)
    low_slope, low_constant = _below(kind, low, high)
    return Lines(low_slope=low_slope, low_constant=low_constant, up_slope=up_slope, up_constant=up_constant)


def _above(kind: Curve, low: Array, high: Array) -> tuple[Array, Array]:
    z1, z2, middle = kind.shape.z1, kind.shape.z2, (low + high) / 2
    start, end = np.array(low), np.array(high)
    if np.isfinite(z2):
        end[low >= z2] = low[low >= z2]
        crossing = (low < z2) & (high > z2)
        end[crossing] = _touch(kind, RIGHT, low[crossing], np.full(int(crossing.sum()), z2), high[crossing])
    if np.isfinite(z1):
        start[high <= z1] = high[high <= z1]
        crossing = (low < z1) & (high > z1)
        start[crossing] = _touch(kind, LEFT, high[crossing], np.full(int(crossing.sum()), np.nextafter(z1, -np.inf)), low[crossing])
    tangent = ((high > z2) & (middle >= end)) | ((low < z1) & (middle <= start))
    slope = _slope(kind, start, end, middle, tangent, (low, high))
    ends = (low, high, np.clip(z1, low, high), np.clip(z2, low, high))
    constant = np.maximum.reduce([value - slope * t for t, (value, _) in zip(ends, _at(kind, *ends), strict=True)])
    for mask, left, right, touch in (
        (low < z1, low, np.minimum(high, np.nextafter(z1, -np.inf)), start), (high > z2, np.maximum(low, z2), high, end)
    ):
        if mask.any():
            parts = (slope, np.where(tangent, middle, touch), left, right)
            constant[mask] = np.maximum(constant[mask], _tangent(kind, 1.0, *(part[mask] for part in parts)))
    return slope, constant + 4 * ERROR * (1 + np.abs(low) + np.abs(high))


def _below(kind: Curve, low: Array, high: Array) -> tuple[Array, Array]:
    z1, z2, middle = kind.shape.z1, kind.shape.z2, (low + high) / 2
    left, right = np.clip(z1, low, high), np.clip(np.nextafter(z2, -np.inf), low, high)
    core = left < right
    first, second = np.array(left), np.array(right)
    for touch, mask, anchor, near, far in (
        (first, core & (low < z1), low, left, right), (second, core & (high > z2), high, right, left)
    ):
        if mask.any():
            touch[mask] = _touch(kind, CORE, anchor[mask], near[mask], far[mask])
    fits = core & (first < second)
    tangent = fits & (first <= middle) & (middle <= second)
    start, end = np.where(fits & (middle > second), second, low), np.where(fits & (middle < first), first, high)
    slope = _slope(kind, start, end, middle, tangent, (low, high))
    ends = (low, high, left, np.clip(z2, low, high))
    constant = np.minimum.reduce([value - slope * t for t, (value, _) in zip(ends, _at(kind, *ends), strict=True)])
    touch = np.where(fits, np.clip(middle, first, second), _inverse_slope(kind, CORE, slope))
    highest = -_tangent(kind, -1.0, slope, touch, left, right)
    constant = np.where(core, np.minimum(constant, highest), constant)
    return slope, constant - 4 * ERROR * (1 + np.abs(low) + np.abs(high))


def _slope(kind: Curve, start: Array, end: Array, middle: Array, tangent: Booleans, around: tuple[Array, Array]) -> Array:
    """Return the slope of the tangent at the middle, or of the chord from start to end, clipped to the slopes `around`."""
    (at_start, _), (at_end, _), (_, tangent_slope) = _at(kind, start, end, middle)
    slope = np.divide(at_end - at_start, end - start, out=np.array(tangent_slope), where=~tangent & (end > start))
    return np.asarray(np.clip(slope, *slopes(kind, *around)))


def _tangent(kind: Curve, sign: float, slope: Array, touch: Array, left: Array, right: Array) -> Array:
    """Return a bound above  sign (T(t) - slope t)  on [left, right], where sign T is concave, up to rounding."""
    touch = np.clip(touch, left, right)
    (at_left, first), (at_right, last), (value, touch_slope) = _at(kind, left, right, touch)
    ends = np.maximum(sign * (at_left - slope * left), sign * (at_right - slope * right))
    rise = touch_slope - slope
    tangent = sign * (value - slope * touch) + np.maximum(sign * rise * (left - touch), sign * rise * (right - touch))
    return np.where((sign * (first - slope) <= 0) | (sign * (last - slope) >= 0), ends, np.maximum(ends, tangent))


def _touch(kind: Curve, part: int, anchor: Array, near: Array, far: Array) -> Array:
    """Return about where the line through (through, T) touches T in one part, between near (next to `anchor`) and far."""
    (base, _), (at_near, s_near), (at_far, s_far) = _at(kind, anchor, near, far)
    sign = np.where(part == CORE, -1.0, 1.0) * np.where(near >= anchor, 1.0, -1.0)

    def chord(t: Array, value: Array) -> Array:
        return np.divide(value - base, t - anchor, out=np.zeros_like(t), where=t != anchor)

    low, high = np.minimum(near, far), np.maximum(near, far)
    touch = (near + far) / 2
    for _ in range(TOUCHES):
        touch = np.clip(_inverse_slope(kind, part, chord(touch, shaped(touch, kind)[0])), low, high)
    touch = np.where(sign * (s_far - chord(far, at_far)) >= 0, far, touch)
    return np.where(sign * (s_near - chord(near, at_near)) <= 0, near, touch)


def _inverse_slope(kind: Curve, part: int, slope: Array) -> Array:
    """Return about where T' equals `slope` in a part of T; the nearest end of the part if it does nowhere."""
    points, slopes = _nodes(kind, part)
    return np.asarray(np.interp(slope, slopes, points))


@cache
def _nodes(kind: Curve, part: int) -> tuple[Array, Array]:
    """Return points of a part, and T' there, increasing."""
    shape = kind.shape
    low = max((-np.inf, shape.z1, shape.z2)[part], -NEAR)
    high = min((np.nextafter(shape.z1, -np.inf), np.nextafter(shape.z2, -np.inf), np.inf)[part], NEAR)
    inner = np.arange(np.ceil(low * NODES), np.floor(high * NODES) + 1) / NODES
    points = np.unique(np.concatenate([[low], inner, [high]]))
    slope = shaped(points, kind)[1]
    return (points, np.maximum.accumulate(slope)) if part == CORE else (points[::-1], np.maximum.accumulate(slope[::-1]))


@dataclass(frozen=True, kw_only=True, eq=False)
class ShapePairs:
    """Lines under  p T(t) + p' T(t - s)  over boxes (B, n): T at the ends of the cells, and how far T may lie below its chords.

    away: (B, n) the shift s.   alone, shared: (B, n) b and c of the head of this file.   own: lines around T(t) and T(t - s).
    """

    points: list[Array]
    first: list[Array]
    second: list[Array]
    away: Array
    alone: Array
    shared: Array
    size: Array
    own: tuple[Lines, Lines]

    @classmethod
    def of(cls, kind: Curve, bounds: LayerBounds, shift: Array) -> ShapePairs:
        low, high, shape = bounds.lower, bounds.upper, kind.shape
        width = (high - low) / CELLS
        points = [low, *(np.clip(low + j * width, low, high) for j in range(1, CELLS)), high]
        size = np.abs(low) + np.abs(high) + np.abs(shift)
        lowest, highest = np.minimum(low, bounds.lower_prime), np.maximum(high, bounds.upper_prime)
        flattest, steepest = slopes(kind, lowest, highest)
        cell = width * (1 + 2.0**-30) + 4 * UNIT * size
        step = shape.kink * sum(((lowest <= z) & (z <= highest)).astype(np.float64) for z in (shape.z1, shape.z2))
        distance = np.abs(shift) * (1 + 2.0**-30)
        curvature = np.minimum(distance * shape.twist, 2 * shape.bend) if np.isfinite(shape.twist) else 2 * shape.bend
        shared = cell * np.minimum(cell * curvature / 8, distance * shape.bend / 2) + step * np.minimum(cell / 2, distance)
        return cls(
            points=points, first=[value for value, _ in _at(kind, *points)],
            second=[value for value, _ in _at(kind, *(t - shift for t in points))], away=shift,
            alone=cell * np.minimum(cell * shape.bend / 8 + step / 4, (steepest - flattest) / 4),
            shared=np.minimum(shared, cell * (steepest - flattest) / 2), size=size,
            own=(lines(kind, low, high), lines(kind, bounds.lower_prime, bounds.upper_prime)),
        )

    def under(self, p: Array, p_prime: Array, box: Any) -> tuple[Array, Array, Array]:
        """Return a line in t for every row of p and p' (..., n) over the boxes `box`: slope, constant and gap, shaped as p."""
        points, size, shift = [t[box] for t in self.points], self.size[box], self.away[box]
        middle, limit = (points[0] + points[-1]) / 2, np.abs(p) + np.abs(p_prime)
        values = [p * first[box] + p_prime * second[box] for first, second in zip(self.first, self.second, strict=True)]
        slope = np.clip(hull_slope(values, (points[-1] - points[0]) / CELLS, TIE * limit), -2 * limit, 2 * limit)
        constant = np.min([value - slope * t for value, t in zip(values, points, strict=True)], axis=0)
        common = np.where(p * p_prime < 0, np.minimum(np.abs(p), np.abs(p_prime)), 0.0)
        constant = constant - (common * self.shared[box] + (limit - 2 * common) * self.alone[box]) * (1 + 2.0**-30)
        constant = constant - limit * (2 * ERROR + 4 * ERROR * size)
        (m, k), (m_prime, k_prime) = self.own[0].take(box).times(p), self.own[1].take(box).times(p_prime)
        own_slope, own_constant = m + m_prime, k + k_prime - m_prime * shift
        own_is_higher = own_slope * middle + own_constant > slope * middle + constant + TIE * limit
        slope, constant = np.where(own_is_higher, own_slope, slope), np.where(own_is_higher, own_constant, constant)
        return slope, constant, np.maximum(values[CELLS // 2] - (slope * middle + constant), 0.0)


def pairs(kind: Curve, bounds: LayerBounds, shift: Array) -> ShapePairs | squares.SquareShapePairs:
    """Return lines under  p T(t) + p' T(t - s)  in the first layer, for any p and p'."""
    return squares.SquareShapePairs.of(bounds, shift) if kind is Curve.SQUARE else ShapePairs.of(kind, bounds, shift)


def hull_slope(values: list[Array], width: Array, tie: Array) -> Array:
    """Return the slope of the lower hull of five evenly spaced values, over the middle one. Any slope is sound."""
    best, rise = values[2], (values[3] - values[1]) / 2
    for i, j in ((1, 3), (0, 3), (1, 4), (0, 4)):
        step = (values[j] - values[i]) / (j - i)
        height = values[i] + step * (2 - i)
        better = height < best - tie
        best, rise = np.where(better, height, best), np.where(better, step, rise)
    return np.divide(rise, width, out=np.zeros_like(rise), where=width > 0)
