"""Smooth neurons for the checker: enclosures by a table of its own, and lines that hold whatever their slope. Those of tanh and
sigmoid are here, those of squares in `squares`, those of other curves in `shapes`.

Written apart from the engine's `encoders.curves.floats` and `encoders.bounds.smooth.curves`. T = tanh;
sigma(a) = 1/2 + T(a / 2) / 2, so a neuron is y = c + half T(scale a).

T: Taylor's polynomial of degree 8 around the nearest of the points j / 32, j = 0 ... 640. Its coefficients follow from
T' = 1 - T^2 in ball arithmetic; none is larger than 1.56, as |tanh| <= tan 1 on discs of radius 1 (Cauchy). With |h| <= 1/64,
which is a difference without rounding (Sterbenz), the rest is below 1.6 / 64^9 < 2^-53; Horner's scheme and rounded coefficients
add less than 24 u sum |c_k| |h|^k < 26 u, u = 2^-53. ERROR = 64 u. Beyond 20, 1 - T < 2^-56.

Lines: the standard relaxation (docs/concepts/smooth.md), which a proof's writer computes in code of its own. Any slope m is valid
with the least of h(t) - m t on [l, u] as its offset. For a line over T: T is convex below 0, so ends suffice there; above 0 it lies
under its tangent at any point d >= 0, and beyond 20 under 1. For h = P T(t) + Q T(t + s), on cells of width w,

    h(t) - m t  >=  the least of its values at the cells' ends  -  w^2 / 8 max |h''|,

and |T''| = 2 |T| T' <= min(0.77, 2 T'),  |T''(t + s) - T''(t)| <= |s| min(2, 4 T').
The difference of the copies is increasing in D = t' - t, and T(t + D) - T(t) is monotone on both sides of t = -D / 2.
Sound? Yes.  Complete? No.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from flint import arb, ctx, fmpq

from encoders.arrays import Array, Integers
from encoders.curves.layer import Curve, SmoothLayer
from verifair.checker.kernel import shapes, squares

UNIT = 2.0**-53
ERROR = 64 * UNIT
FAR = 20.0
STEPS = 32
DEGREE = 8
TOUCHES = 2
"""Steps towards the tangent through an end."""
CELLS = 4
"""Cells that an interval is cut into in the first layer; `_hull_slope` is written for four."""
TIE = 1e-9
"""Choices whose values differ by less than this share count as equal, and the first is taken. Otherwise rounding could decide, and
a search could not tell in advance which bound the checker will compute."""


@lru_cache(maxsize=1)
def _table() -> Array:
    """Return (DEGREE + 1, FAR * STEPS + 1) Taylor coefficients of T at j / STEPS, rounded to nearest."""
    saved, ctx.prec = ctx.prec, 128
    try:
        columns = []
        for j in range(int(FAR) * STEPS + 1):
            series = [arb(fmpq(j, STEPS)).tanh()]
            for k in range(DEGREE):
                square = sum((series[i] * series[k - i] for i in range(k + 1)), arb(0))
                series.append(((1 if k == 0 else 0) - square) / (k + 1))
            columns.append([float(term.mid()) for term in series])
    finally:
        ctx.prec = saved
    return np.array(columns).T


def tanh(t: Array) -> Array:
    """Return T(t), off by less than ERROR; NaN stays NaN."""
    size = np.minimum(np.abs(t), FAR)
    place = np.rint(np.where(np.isnan(size), 0.0, size) * STEPS).astype(np.int64)
    h = size - place / STEPS
    table = _table()
    out = np.take(table[DEGREE], place)
    for k in range(DEGREE - 1, -1, -1):
        out = out * h + np.take(table[k], place)
    return np.asarray(np.copysign(out, t))


def below(t: Array) -> Array:
    """Return a number at most T(t), at least -1; never below 0 for t >= 0."""
    return np.where(t >= 0, np.maximum(tanh(t) - ERROR, 0.0), np.maximum(np.maximum(tanh(t) - ERROR, -1.0), t))


def above(t: Array) -> Array:
    """Return a number at least T(t), at most 1; never above 0 for t <= 0."""
    return -below(-t)


def slopes(low: Array, high: Array) -> tuple[Array, Array]:
    """Return (at most, at least) all T'(t) = 1 - T(t)^2 of t in [low, high]."""
    largest = np.maximum(-below(low), above(high))  # of |T|
    smallest = np.where((low <= 0) & (high >= 0), 0.0, np.maximum(np.where(low > 0, below(low), -above(high)), 0.0))
    steepest = np.clip(1 - smallest * smallest + 4 * UNIT, 0.0, 1.0)
    steepest = np.where((low >= FAR) | (high <= -FAR), 2.0**-55, steepest)  # T' < 4 exp(-2 |t|)
    return np.clip(1 - largest * largest - 4 * UNIT, 0.0, 1.0), steepest


@dataclass(frozen=True, kw_only=True, eq=False)
class Smooth:
    """Smooth neurons of a layer with one curve, tanh where kind is None: their positions, and y = c + half T(scale a) for each."""

    index: Integers
    scale: Array
    half: Array
    c: Array
    kind: Curve | None = None

    @classmethod
    def of(cls, layer: SmoothLayer) -> list[Smooth]:
        parts, index = [], np.flatnonzero(layer.smooth & ~layer.shaped)
        if len(index):
            sigmoid = layer.sigmoid[index]
            half = np.where(sigmoid, 0.5, 1.0)
            parts.append(cls(index=index, scale=half, half=half, c=np.where(sigmoid, 0.5, 0.0)))
        for kind, units in layer.groups():
            parts.append(cls(index=units, scale=np.ones(len(units)), half=np.ones(len(units)), c=np.zeros(len(units)), kind=kind))
        return parts

    def outputs(self, low: Array, high: Array) -> tuple[Array, Array]:
        """Return ends of y (B, s) for a in [low, high] (B, m); the sum with c is rounded."""
        low, high = low[:, self.index], high[:, self.index]
        if self.kind is not None:
            return squares.outputs(low, high) if self.kind is Curve.SQUARE else shapes.outputs(self.kind, low, high)
        slack = 2 * UNIT * self.c
        return self.c + self.half * below(self.scale * low) - slack, self.c + self.half * above(self.scale * high) + slack

    def steepness(self, ends: Sequence[Array]) -> tuple[Array, Array]:
        """Return (at most, at least) all (T(t') - T(t)) / (t' - t), for low, high, low2, high2 of t and t'."""
        if self.kind is Curve.SQUARE:
            return squares.steepness(ends)
        low, high = np.minimum(ends[0], ends[2]), np.maximum(ends[1], ends[3])
        return slopes(low, high) if self.kind is None else shapes.slopes(self.kind, low, high)

    def band(self, low: Array, high: Array) -> Band:
        """Return lines around T on [low, high]; tanh is odd, so a line over it on [-high, -low] is one under it here."""
        if self.kind is None:
            slope, offset = line_over(-high, -low)
            return Band(under=(slope, -offset), over=line_over(low, high))
        under, over = squares.band(low, high) if self.kind is Curve.SQUARE else shapes.band(self.kind, low, high)
        return Band(under=under, over=over)

    def difference(self, ends: Sequence[Array]) -> tuple[Array, Array]:
        """Return ends of y' - y (B, s) for low, high, low2, high2, d_low, d_high (B, m) of a, a' and a' - a."""
        low, high, low2, high2, d_low, d_high = (self.scale * end[:, self.index] for end in ends)
        flattest, steepest = self.steepness((low, high, low2, high2))
        products = [slope * d for slope in (flattest, steepest) for d in (d_low, d_high)]
        at_least, at_most = np.min(products, axis=0), np.max(products, axis=0)
        if self.kind is None:
            at_least = np.maximum(at_least, _curve_difference(low, high, d_low, -1))
            at_most = np.minimum(at_most, _curve_difference(low, high, d_high, 1))
        equal = (d_low == 0) & (d_high == 0)
        lower, upper = at_least - 8 * UNIT * np.abs(at_least) - 1e-300, at_most + 8 * UNIT * np.abs(at_most) + 1e-300
        return self.half * np.where(equal, 0.0, lower), self.half * np.where(equal, 0.0, upper)


def _curve_difference(low: Array, high: Array, d: Array, sign: int) -> Array:
    """Return the least (sign -1) or largest (sign 1) T(t + d) - T(t) for t in [low, high], rounded outwards."""
    slack = 4 * UNIT * (np.abs(low) + np.abs(high) + np.abs(d))
    ends = [tanh(end + d) - tanh(end) for end in (low, high)]
    inside = (low - slack <= -d / 2) & (-d / 2 <= high + slack)
    values = np.stack([*ends, np.where(inside, 2 * tanh(d / 2), ends[0])])
    extreme = values.min(axis=0) if sign < 0 else values.max(axis=0)
    return np.asarray(extreme + sign * (3 * ERROR + slack))


@dataclass(frozen=True, kw_only=True, eq=False)
class Band:
    """Lines (slope, offset) under and over a function of one variable."""

    under: tuple[Array, Array]
    over: tuple[Array, Array]

    def take(self, box: Integers) -> Band:
        return Band(under=(self.under[0][box], self.under[1][box]), over=(self.over[0][box], self.over[1][box]))

    def times(self, c: Array) -> tuple[Array, Array]:
        """Return slope and offset of a line under c times the function."""
        return c * np.where(c >= 0, self.under[0], self.over[0]), c * np.where(c >= 0, self.under[1], self.over[1])


def line_over(low: Array, high: Array) -> tuple[Array, Array]:
    """Return slope in [0, 1] and offset of a line over T on [low, high]: see the head of this file."""
    touch, end = _touching(low, high), np.clip(high, 0.0, FAR)
    is_chord = (high <= 0) | ((low < 0) & (touch >= end))
    slope = np.clip(np.where(is_chord, _ratio(tanh(high) - tanh(low), high - low), 1 - tanh(touch) ** 2), 0.0, 1.0)
    slope_low, slope_high = slopes(touch, touch)
    offset = np.where(low < 0, above(low) - slope * low, -np.inf)
    offset = np.maximum(offset, np.where(high <= 0, above(high) - slope * high, -np.inf))
    for t in (np.clip(low, 0.0, FAR), end):
        tangent = above(touch) + np.where(t > touch, slope_high, slope_low) * (t - touch)
        offset = np.maximum(offset, np.where(high > 0, tangent - slope * t, -np.inf))
    offset = np.maximum(offset, np.where(high > FAR, 1 - FAR * slope, -np.inf))
    return slope, offset + 4 * ERROR + 4 * UNIT * slope * (np.abs(low) + np.abs(high))


def _touching(low: Array, high: Array) -> Array:
    """Return the point d in [0, 20] whose tangent is taken: the middle, or where the line through T(low) touches. Any is valid."""
    end = np.clip(high, 0.0, FAR)
    touch = np.minimum(end, -low / 2)
    for _ in range(TOUCHES):  # where it touches, the chord from low is steepest, and T' is its slope
        slope = _ratio(np.tanh(touch) - np.tanh(low), touch - low)
        touch = np.minimum(end, np.arctanh(np.sqrt(np.clip(1 - slope, 0.0, 1 - 2 * UNIT))))
    return np.where((low < 0) & (high > 0), touch, np.clip((low + high) / 2, 0.0, FAR))


def _ratio(rise: Array, run: Array) -> Array:
    return np.divide(rise, run, out=np.zeros_like(rise), where=run > 0)


def slope_band(flattest: Array, steepest: Array, low: Array, high: Array) -> Band:
    """Return lines around all values between flattest D and steepest D, for D in [low, high]."""
    slope, offset = _chord(flattest, steepest, -high, -low)
    return Band(under=(slope, -offset), over=_chord(flattest, steepest, low, high))


def _chord(flattest: Array, steepest: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Return a line over  max(flattest D, steepest D)  on [low, high]: that function is convex, its ends suffice."""
    at_low, at_high = np.where(low >= 0, steepest, flattest) * low, np.where(high >= 0, steepest, flattest) * high
    slope = np.where(low >= 0, steepest, flattest)
    crosses = (low < 0) & (high > 0)
    slope = np.where(crosses, np.clip(_ratio(at_high - at_low, high - low), flattest, steepest), slope)
    size = np.maximum(1.0, np.maximum(np.abs(flattest), np.abs(steepest)))
    offset = np.maximum(at_low - slope * low, at_high - slope * high) + 8 * UNIT * size * (np.abs(low) + np.abs(high))
    return slope, np.where((low >= 0) | (high <= 0), 0.0, offset)  # keeps NaN where an end is NaN


@dataclass(frozen=True, kw_only=True, eq=False)
class CurvePlanes:
    """Lines around T(t), T(t') and their difference in D = t' - t, over B boxes and s smooth neurons."""

    bands: tuple[Band, Band, Band]
    centre: tuple[Array, Array]

    @classmethod
    def of(cls, smooth: Smooth, ends: Sequence[Array]) -> CurvePlanes:
        """Return the planes. ends: low, high, low2, high2, d_low, d_high of t, t' and D."""
        low, high, low2, high2, d_low, d_high = ends
        difference = slope_band(*smooth.steepness(ends), d_low, d_high)
        bands = smooth.band(low, high), smooth.band(low2, high2), difference
        return cls(bands=bands, centre=((low + high) / 2, (low2 + high2) / 2))

    def lines(self, p: Array, q: Array, box: Integers) -> tuple[Array, Array, Array]:
        """Return alpha, beta, offset (N, s) with  p T + q T' >= alpha t + beta t' + offset."""
        first, second, difference = (band.take(box) for band in self.bands)
        return best_plane(p, q, (first, second, difference), (self.centre[0][box], self.centre[1][box]))


@dataclass(frozen=True, kw_only=True, eq=False)
class CurvePairs:
    """Both copies as one function of t, for the first layer, where t' = t + shift: its values at the ends of the cells.

    single, shared, rounding: how far T, the difference of two, and anything may lie below the chords of a cell; steepest: of T'.
    """

    bands: tuple[Band, Band]
    points: list[Array]
    first: list[Array]
    second: list[Array]
    shift: Array
    single: Array
    shared: Array
    rounding: Array
    steepest: float

    @classmethod
    def of(cls, smooth: Smooth, ends: Sequence[Array], shift: Array) -> CurvePairs:
        low, high, low2, high2, _, _ = ends
        lowest, highest = np.minimum(low, low2), np.maximum(high, high2)
        points = [low, *(np.clip(low + j * ((high - low) / CELLS), low, high) for j in range(1, CELLS)), high]
        size, slack = np.abs(low) + np.abs(high) + np.abs(shift), 1 + 2.0**-30
        width, distance = (high - low) / CELLS * slack + 4 * UNIT * size, np.abs(shift)
        if smooth.kind is None:
            steepest = 1.01 * slopes(lowest, highest)[1]
            second, third = np.minimum(0.77, 2 * steepest), np.minimum(2.0, 4 * steepest)
            single, shared = (width * width / 8 * bound for bound in (second, np.minimum(distance * third, 2 * second)))
            first, shifted, rounding = [tanh(t) for t in points], [tanh(t + shift) for t in points], 2 * ERROR + 16 * UNIT * size
        else:
            single, shared = shapes.missed(smooth.kind, lowest, highest, width, distance * slack)
            first, shifted = ([shapes.curve(smooth.kind, t + s)[0] for t in points] for s in (0.0, shift))
            rounding = shapes.ERROR * (2 + 4 * size)
        return cls(
            bands=(smooth.band(low, high), smooth.band(low2, high2)), points=points, first=first, second=shifted, shift=shift,
            single=single * slack, shared=shared * slack, rounding=rounding, steepest=1.0 if smooth.kind is None else 2.0,
        )

    def lines(self, p: Array, q: Array, box: Integers) -> tuple[Array, Array, Array]:
        """Return alpha, beta, offset (N, s) under p T(t) + q T(t + shift): by the cells, or each copy's own line where they are
        higher at the middle."""
        points, shift = [t[box] for t in self.points], self.shift[box]
        values = [p * first[box] + q * second[box] for first, second in zip(self.first, self.second, strict=True)]
        limit, opposed = np.abs(p) + np.abs(q), p * q < 0
        shared, single = np.where(opposed, np.minimum(np.abs(p), np.abs(q)), 0.0), np.where(opposed, np.abs(p + q), limit)
        rounding = shared * self.shared[box] + single * self.single[box] + limit * self.rounding[box]
        slope = np.clip(_hull_slope(values, points, TIE * limit), -self.steepest * limit, self.steepest * limit)
        constant = np.min([v - slope * t for v, t in zip(values, points, strict=True)], axis=0) - rounding
        (alpha, c), (beta, d) = (band.take(box).times(weight) for band, weight in zip(self.bands, (p, q), strict=True))
        middle = (points[0] + points[-1]) / 2
        cells = slope * middle + constant >= alpha * middle + beta * (middle + shift) + c + d - TIE * limit
        return np.where(cells, slope, alpha), np.where(cells, 0.0, beta), np.where(cells, constant, c + d)


def first_layer(smooth: Smooth, ends: Sequence[Array], shift: Array) -> CurvePairs | squares.SquarePairs:
    """Return bounds of both copies as one function of t, for ends of t, t' and D and the constant D itself."""
    return squares.SquarePairs.of(ends[0], ends[1], shift) if smooth.kind is Curve.SQUARE else CurvePairs.of(smooth, ends, shift)


def _hull_slope(values: list[Array], points: list[Array], tie: Array) -> Array:
    """Return the slope of the lower hull over the middle of five evenly spaced values. Soundness does not depend on it."""
    slope, lowest = _ratio(values[3] - values[1], points[3] - points[1]), values[2]
    for i, j in ((1, 3), (0, 3), (1, 4), (0, 4)):
        height = values[i] + (values[j] - values[i]) / (j - i) * (2 - i)
        better = height < lowest - tie
        slope = np.where(better, _ratio(values[j] - values[i], points[j] - points[i]), slope)
        lowest = np.where(better, height, lowest)
    return slope


def plane(p: Array, q: Array, ends: Sequence[Array]) -> tuple[Array, Array, Array]:
    """Return alpha, beta, offset with  p r + q r' >= alpha a + beta a' + offset  for r = max(a, 0), r' = max(a', 0).

    ends: low, high, low2, high2, d_low, d_high of a, a' and a' - a.
    """
    first, second, difference = (quantity_band(quantity, ends) for quantity in range(3))
    middle, middle2 = (ends[0] + ends[1]) / 2, (ends[2] + ends[3]) / 2
    return best_plane(p, q, (first, second, difference), (middle, middle2))


def quantity_band(quantity: int, ends: Sequence[Array]) -> Band:
    """Return lines around r in a, r' in a' or r' - r in D (`quantity`: 0, 1, 2)."""
    low, high, low2, high2, d_low, d_high = ends
    if quantity < 2:
        return _relu_band(*((low, high) if quantity == 0 else (low2, high2)))
    fixed = (low >= 0) & (low2 >= 0), (high <= 0) & (high2 <= 0)  # r' - r = D, = 0
    negated = _ceiling(-d_high, -d_low)  # min(D, 0) <= r' - r <= max(D, 0), and min(D, 0) = -max(-D, 0)
    under, over = ((np.select(fixed, (1.0, 0.0), m), np.where(fixed[0] | fixed[1], 0.0, c)) for m, c in (
        (negated[0], -negated[1]), _ceiling(d_low, d_high)
    ))
    return Band(under=under, over=over)


def best_plane(
    p: Array, q: Array, bands: tuple[Band, Band, Band], centre: tuple[Array, Array]
) -> tuple[Array, Array, Array]:
    """Return alpha, beta, offset of a plane under p y + q y', by bands around y, y' and y' - y: the best of three at the centre,
    and the first of them for one copy alone."""
    first, second, difference = bands
    (m1, c1), (m2, c2) = first.times(p), second.times(q)
    (m3, c3), (d3, e3) = first.times(p + q), difference.times(q)  # p y + q y' = (p + q) y + q (y' - y)
    (m4, c4), (d4, e4) = second.times(p + q), difference.times(-p)  # = (p + q) y' - p (y' - y)
    alpha, beta = np.stack([m1, m3 - d3, -d4]), np.stack([m2, d3, m4 + d4])
    offset = np.stack([c1 + c2, c3 + e3, c4 + e4])
    terms = np.stack([alpha * centre[0], beta * centre[1], offset])
    value, size = terms.sum(axis=0), np.abs(terms).sum(axis=0).max(axis=0)
    best = np.where((p == 0) | (q == 0), 0, (value >= value.max(axis=0) - TIE * size).argmax(axis=0))[None]
    alpha, beta, offset = (np.take_along_axis(form, best, axis=0)[0] for form in (alpha, beta, offset))
    return alpha, beta, offset


def chord(p: Array, q: Array, low: Array, high: Array, shift: Array) -> tuple[Array, Array]:
    """Return slope and offset with  h(a) = p max(a, 0) + q max(a + shift, 0) >= slope * a + offset  on [low, high].

    h bends at 0 and -shift alone. The slope is that of the edge of its lower hull over the midpoint: of the chords between two of
    the ends and bends on both sides of it, the one that is lowest there. Any slope is valid with the least of h(t) - slope * t.
    """
    points = np.stack([low, np.clip(0.0, low, high), np.clip(-shift, low, high), high])
    values = p * np.maximum(points, 0) + q * np.maximum(points + shift, 0)
    middle, tolerance, limit = (low + high) / 2, TIE * (high - low), np.abs(p) + np.abs(q)
    slope, lowest = np.zeros_like(p), np.full_like(p, np.inf)
    for left, right in ((0, 3), (0, 1), (0, 2), (1, 2), (2, 1), (1, 3), (2, 3)):
        run = points[right] - points[left]
        brackets = (points[left] <= middle + tolerance) & (middle - tolerance <= points[right]) & (run > 0)
        rise = np.divide(values[right] - values[left], run, out=np.zeros_like(p), where=brackets)
        rise = np.clip(rise, -limit, limit)
        height = values[left] + rise * (middle - points[left])
        better = brackets & (height < lowest - tolerance * limit)
        slope, lowest = np.where(better, rise, slope), np.where(better, height, lowest)
    return slope, (values - slope * points).min(axis=0)


def _ceiling(low: Array, high: Array) -> tuple[Array, Array]:
    """Return slope in [0, 1] and offset with  max(t, 0) <= slope * t + offset  on [low, high] (convex, so the ends suffice)."""
    width = high - low
    slope = np.divide(high, width, out=np.zeros_like(width), where=(low < 0) & (high > 0) & (width > 0))
    slope = np.where(low >= 0, 1.0, np.clip(slope, 0.0, 1.0))
    offset = np.maximum(np.maximum(low, 0) - slope * low, np.maximum(high, 0) - slope * high)
    return slope, offset


def _relu_band(low: Array, high: Array) -> Band:
    floor = (high + low > TIE * (high - low)).astype(np.float64)  # of both valid floors, 0 and 1, the one of smaller area
    return Band(under=(floor, np.zeros_like(low)), over=_ceiling(low, high))
