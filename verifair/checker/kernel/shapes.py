"""The curves of `encoders.curves.shapes` for the checker: enclosures by a table of its own, lines that hold whatever their slope.

Written apart from the engine's `encoders.bounds.smooth.shapes`. T is concave up to z1, convex to z2 and concave from there
on, which ball arithmetic shows when the table is made: Taylor's polynomials of degree 10 in cells of width 1/32, which leave
out less than 2^-54 of T and 2^-50 of T'. Their coefficients are at most 2 in size but for the constant ones, and the step at
most 1/64: Horner's scheme loses less than 2 u (1 + |t|) and 8 u,
u = 2^-53. From 40 on T is its asymptote to 4 u. ERROR = 64 u, times 1 + |t| for T.

Lines: the standard relaxation (docs/concepts/smooth.md). On [l, u] any slope m is valid with an end's T(t) - m t where T bends the
right way, and elsewhere with that of its tangent at any point of the part, or of the end at which T' says that it is largest.
Sound? Yes.  Complete? No.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from encoders.arrays import Array, Booleans
from encoders.curves.layer import Curve

ERROR = 2.0**-47
UNIT = 2.0**-53
STEPS = 32
DEGREE = 10
TOUCHES = 3
NEAR = 16
"""Slopes are sought among the multiples of 1 / 32 up to here."""
Line = tuple[Array, Array]


@cache
def _table(kind: Curve) -> Array:
    return np.array(list(kind.shape.cells(STEPS, DEGREE))).T


def curve(kind: Curve, t: Array) -> tuple[Array, Array]:
    """Return T and T' (at a joint the derivative from the right); NaN stays NaN."""
    shape, far = kind.shape, kind.shape.far
    place = np.floor(np.clip(np.where(np.isnan(t), 0.0, t), -far, np.nextafter(far, 0)) * STEPS)
    h = np.clip(t, -far, far) - (place + 0.5) / STEPS
    rows = np.take(_table(kind), place.astype(np.int64) + far * STEPS, axis=1)
    value, slope = rows[DEGREE], DEGREE * rows[DEGREE]
    for k in range(DEGREE - 1, -1, -1):
        value = value * h + rows[k]
        slope = slope * h + k * rows[k] if k else slope
    value = np.where(t >= far, shape.rise * t, np.where(t < -far, shape.floor, value))
    return value, np.where(t >= far, shape.rise, np.where(t < -far, 0.0, slope))


def outputs(kind: Curve, low: Array, high: Array) -> tuple[Array, Array]:
    """Return ends of T on [low, high]."""
    shape, error = kind.shape, ERROR * (1 + np.maximum(np.abs(low), np.abs(high)))
    left, right = curve(kind, low)[0], curve(kind, high)[0]
    turns = (low <= shape.lowest) & (high >= shape.lowest)
    return np.where(turns, shape.least, np.minimum(left, right)) - error, np.maximum(left, right) + error


def slopes(kind: Curve, low: Array, high: Array) -> tuple[Array, Array]:
    """Return lower and upper bounds of T' on [low, high]: T' falls, rises and falls. At a joint inside, both sides count."""
    shape, ends = kind.shape, [curve(kind, low)[1], curve(kind, high)[1]]
    for z, sides in ((shape.z1, (shape.slopes[0], 0.0)), (shape.z2, (shape.slopes[1], shape.rise))):
        for side in sides if shape.kink else sides[:1]:
            ends.append(np.where((low <= z) & (high >= z), side, ends[0]))
    return np.min(ends, axis=0) - ERROR, np.max(ends, axis=0) + ERROR


def missed(kind: Curve, low: Array, high: Array, width: Array, shift: Array) -> tuple[Array, Array]:
    """Return how far at most T, and T(t) - T(t + s), lie below their chords over `width`; t, t + s in [low, high], |s| = shift."""
    shape, (flattest, steepest) = kind.shape, slopes(kind, low, high)
    jumps = shape.kink * sum(((low <= z) & (high >= z)).astype(float) for z in (shape.z1, shape.z2))
    second = 2 * shape.bend if np.isinf(shape.twist) else np.minimum(shift * shape.twist, 2 * shape.bend)
    single = np.minimum(width * shape.bend / 8 + jumps / 4, (steepest - flattest) / 4)
    smooth = np.minimum(width * second / 8, shift * shape.bend / 2)
    return width * single, np.minimum(width * smooth + jumps * np.minimum(width / 2, shift), width * (steepest - flattest) / 2)


def band(kind: Curve, low: Array, high: Array) -> tuple[Line, Line]:
    """Return (slope, offset) of lines under and over T on [low, high]."""
    shape, middle = kind.shape, (low + high) / 2
    before, z2 = np.nextafter(shape.z1, -np.inf), shape.z2
    inner, outer = np.clip(shape.z1, low, high), np.clip(np.nextafter(z2, -np.inf), low, high)
    ends = [(t, curve(kind, t)[0]) for t in (low, high, inner, np.clip(z2, low, high))]
    error = 4 * ERROR * (1 + np.abs(low) + np.abs(high))
    left, right, core = low < shape.z1, high > z2, inner < outer
    start = _touching(kind, 0, left & (high > shape.z1), high, np.full_like(low, before), low)
    end = _touching(kind, 2, right & (low < z2), low, np.full_like(low, z2), high)
    start, end = np.where(left & (high <= shape.z1), high, start), np.where(right & (low >= z2), low, end)
    flat = (right & (middle >= end)) | (left & (middle <= start))
    slope = _slope(kind, np.where(left, start, low), np.where(right, end, high), flat, low, high)
    over = np.max([value - slope * t for t, value in ends], axis=0)
    for mask, part, touch in ((left, (low, np.minimum(high, before)), start), (right, (np.maximum(low, z2), high), end)):
        if mask.any():
            over = np.where(mask, np.maximum(over, _largest(kind, 1, slope, np.where(flat, middle, touch), *part)), over)
    first = np.where(left, _touching(kind, 1, core & left, low, inner, outer), inner)
    last = np.where(right, _touching(kind, 1, core & right, high, outer, inner), outer)
    fits = core & (first < last)
    flat = fits & (first <= middle) & (middle <= last)
    begin, finish = np.where(fits & (middle > last), last, low), np.where(fits & (middle < first), first, high)
    under_slope = _slope(kind, begin, finish, flat, low, high)
    touch = np.where(fits, np.clip(middle, first, last), np.interp(under_slope, *_inverse(kind, 1)))
    under = np.min([value - under_slope * t for t, value in ends], axis=0)
    under = np.where(core, np.minimum(under, -_largest(kind, -1, under_slope, touch, inner, outer)), under)
    return (under_slope, under - error), (slope, over + error)


def _slope(kind: Curve, start: Array, end: Array, flat: Booleans, low: Array, high: Array) -> Array:
    """Return the slope at the middle where `flat`, else that of the chord, clipped to the slopes of T on [low, high]."""
    rise, tangent = curve(kind, end)[0] - curve(kind, start)[0], curve(kind, (low + high) / 2)[1]
    return np.clip(np.divide(rise, end - start, out=tangent.copy(), where=~flat & (end > start)), *slopes(kind, low, high))


def _largest(kind: Curve, sign: int, slope: Array, touch: Array, low: Array, high: Array) -> Array:
    """Return a bound above sign (T(t) - slope t) on [low, high], where sign T is concave: by its tangent at `touch`, or an end."""
    touch = np.clip(touch, low, high)
    (value_low, first), (value_high, last), (value, steep) = (curve(kind, t) for t in (low, high, touch))
    ends = np.maximum(sign * (value_low - slope * low), sign * (value_high - slope * high))
    gain = sign * (steep - slope)
    tangent = sign * (value - slope * touch) + np.maximum(gain * (low - touch), gain * (high - touch))
    return np.where((sign * (first - slope) <= 0) | (sign * (last - slope) >= 0), ends, np.maximum(ends, tangent))


def _touching(kind: Curve, part: int, mask: Booleans, anchor: Array, near: Array, far: Array) -> Array:
    """Return where a line anchor (anchor, T) touches a part of T in near .. far; far where not `mask`. Any point is sound."""
    out, index = np.array(far), np.nonzero(mask)
    if not len(index[0]):
        return out
    anchor, near, far = anchor[index], near[index], far[index]
    base = curve(kind, anchor)[0]
    sign = (1 if part != 1 else -1) * np.where(near >= anchor, 1, -1)

    def steep(t: Array) -> tuple[Array, Array]:
        value, slope = curve(kind, t)
        chord = np.divide(value - base, t - anchor, out=np.zeros_like(t), where=t != anchor)
        return chord, sign * (slope - chord)

    touch = (near + far) / 2
    for _ in range(TOUCHES):
        touch = np.clip(np.interp(steep(touch)[0], *_inverse(kind, part)), np.minimum(near, far), np.maximum(near, far))
    touch = np.where(steep(far)[1] >= 0, far, touch)
    out[index] = np.where(steep(near)[1] <= 0, near, touch)
    return out


@cache
def _inverse(kind: Curve, part: int) -> tuple[Array, Array]:
    """Return rising slopes of points of a part of T, and these points."""
    shape, nudged = kind.shape, [np.nextafter(z, -np.inf) for z in (kind.shape.z1, kind.shape.z2)]
    low = np.maximum([-np.inf, shape.z1, shape.z2][part], -NEAR)
    high = np.minimum([*nudged, np.inf][part], NEAR)
    grid = np.arange(-NEAR * STEPS, NEAR * STEPS + 1) / STEPS
    points = np.array([low, *grid[(grid > low) & (grid < high)], high])
    points = points if part == 1 else points[::-1]
    return np.maximum.accumulate(curve(kind, points)[1]), points
