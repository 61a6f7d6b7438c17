"""Sigmoid and tanh for the checker: enclosures by a table of its own, and lines that hold whatever their slope.

Written apart from the engine's `encoders.curves` and `encoders.bounds.curves`. T = tanh; sigma(a) = 1/2 + T(a / 2) / 2, so a neuron
is y = c + half T(scale a).

T: Taylor's polynomial of degree 8 around the nearest of the points j / 32, j = 0 ... 640. Its coefficients follow from
T' = 1 - T^2 in ball arithmetic; none is larger than 1.56, as |tanh| <= tan 1 on discs of radius 1 (Cauchy). With |h| <= 1/64,
which is a difference without rounding (Sterbenz), the rest is below 1.6 / 64^9 < 2^-53; Horner's scheme and rounded coefficients
add less than 24 u sum |c_k| |h|^k < 26 u, u = 2^-53. ERROR = 64 u. Beyond 20, 1 - T < 2^-57.

Lines: on [l, u], cut into CELLS cells of width w, and for any slope m,

    h(t) - m t  >=  the least of its values at the cells' ends  -  w^2 / 8 max |h''|.

For h = T: |T''| = 2 |T| T' <= min(0.77, 2 T'). For h = P T(t) + Q T(t + s):  |T''(t + s) - T''(t)| <= |s| min(2, 4 T'). Also
T(t) >= T(l) + m (t - l) for any m between 0 and the least T' (DeepPoly, Singh et al., POPL 2019).
The difference of the copies is increasing in D = t' - t, and T(t + D) - T(t) is monotone on both sides of t = -D / 2.
Sound? Yes.  Complete? No.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from flint import arb, ctx, fmpq

from encoders.curves import SmoothLayer
from encoders.network import Array, Integers

UNIT = 2.0**-53
ERROR = 64 * UNIT
FAR = 20.0
STEPS = 32
DEGREE = 8
CELLS = 8


@lru_cache(maxsize=1)
def _table() -> Array:
    """Return (DEGREE + 1, FAR * STEPS + 1) Taylor coefficients of T at j / STEPS, rounded to nearest."""
    before, ctx.prec = ctx.prec, 128
    try:
        columns = []
        for j in range(int(FAR) * STEPS + 1):
            series = [arb(fmpq(j, STEPS)).tanh()]
            for k in range(DEGREE):
                square = sum((series[i] * series[k - i] for i in range(k + 1)), arb(0))
                series.append(((1 if k == 0 else 0) - square) / (k + 1))
            columns.append([float(one.mid()) for one in series])
    finally:
        ctx.prec = before
    return np.array(columns).T


def tanh(t: Array) -> Array:
    """T(t), off by less than ERROR; NaN stays NaN."""
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
    most = np.maximum(-below(low), above(high))  # of |T|
    least = np.where((low <= 0) & (high >= 0), 0.0, np.maximum(np.where(low > 0, below(low), -above(high)), 0.0))
    return np.clip(1 - most * most - 4 * UNIT, 0.0, 1.0), np.clip(1 - least * least + 4 * UNIT, 0.0, 1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Smooth:
    """The smooth neurons of a layer: their positions, and y = c + half T(scale a) for each."""

    index: Integers
    scale: Array
    half: Array
    c: Array

    @classmethod
    def of(cls, layer: SmoothLayer) -> Smooth:
        index = np.flatnonzero(layer.smooth)
        sigmoid = layer.sigmoid[index]
        half = np.where(sigmoid, 0.5, 1.0)
        return cls(index=index, scale=half, half=half, c=np.where(sigmoid, 0.5, 0.0))

    def outputs(self, low: Array, high: Array) -> tuple[Array, Array]:
        """Return ends of y (B, s) for a in [low, high] (B, m); the sum with c is rounded."""
        slack = 2 * UNIT * self.c
        return (
            self.c + self.half * below(self.scale * low[:, self.index]) - slack,
            self.c + self.half * above(self.scale * high[:, self.index]) + slack,
        )

    def difference(self, low: Array, high: Array, d_low: Array, d_high: Array) -> tuple[Array, Array]:
        """Return ends of y' - y (B, s) for a in [low, high] and a' - a in [d_low, d_high] (B, m)."""
        low, high, d_low, d_high = (self.scale * end[:, self.index] for end in (low, high, d_low, d_high))
        least, most = slopes(np.minimum(low, low + d_low), np.maximum(high, high + d_high))
        least, most = least * (1 - 2.0**-30), np.minimum(most * (1 + 2.0**-30), 1.0)  # the sums above are rounded
        at_least, at_most = _apart(low, high, d_low, -1), _apart(low, high, d_high, 1)
        at_least = np.maximum(at_least, np.where(d_low >= 0, least, most) * d_low)
        at_most = np.minimum(at_most, np.where(d_high >= 0, most, least) * d_high)
        same = (d_low == 0) & (d_high == 0)
        down, up = at_least - 8 * UNIT * np.abs(at_least) - 1e-300, at_most + 8 * UNIT * np.abs(at_most) + 1e-300
        return self.half * np.where(same, 0.0, down), self.half * np.where(same, 0.0, up)


def _apart(low: Array, high: Array, d: Array, sign: int) -> Array:
    """Return the least (sign -1) or largest (sign 1) T(t + d) - T(t) for t in [low, high], rounded outwards."""
    slack = 4 * UNIT * (np.abs(low) + np.abs(high) + np.abs(d))
    ends = [tanh(end + d) - tanh(end) for end in (low, high)]
    inside = (low - slack <= -d / 2) & (-d / 2 <= high + slack)
    values = np.stack([*ends, np.where(inside, 2 * tanh(d / 2), ends[0])])
    found = values.min(axis=0) if sign < 0 else values.max(axis=0)
    return np.asarray(found + sign * (3 * ERROR + slack))


def line_under(low: Array, high: Array) -> tuple[Array, Array]:
    """slope in [0, 1] and offset with  T(t) >= slope * t + offset  on [low, high]: the best of some at the middle."""
    points = _cells(low, high)
    values = [below(t) for t in points]
    middle, width = (low + high) / 2, (high - low) / CELLS
    least, most = slopes(low, high)
    size = np.abs(low) + np.abs(high)
    lost = _lost(width, size, np.minimum(0.77, 2 * most))
    best_slope, best_offset = least, values[0] - least * low - 4 * UNIT * size - 4 * UNIT
    ratio = [_ratio(values[-1] - v, points[-1] - t) for v, t in zip(values[:-1], points[:-1], strict=True)]
    half = CELLS // 2
    central = _ratio(values[half + 1] - values[half - 1], points[half + 1] - points[half - 1])
    for slope in (np.max(ratio, axis=0), ratio[0], central):
        slope = np.clip(slope, 0.0, 1.0)
        offset = np.min([v - slope * t for v, t in zip(values, points, strict=True)], axis=0) - lost - 8 * UNIT * (1 + size)
        better = slope * middle + offset > best_slope * middle + best_offset
        best_slope, best_offset = np.where(better, slope, best_slope), np.where(better, offset, best_offset)
    return best_slope, best_offset


def _cells(low: Array, high: Array) -> list[Array]:
    width = (high - low) / CELLS
    return [low, *(np.clip(low + j * width, low, high) for j in range(1, CELLS)), high]


def _lost(width: Array, size: Array, curvature: Array) -> Array:
    """w^2 / 8 of the curvature, with the width of cells whose ends are rounded."""
    cell = width * (1 + 2.0**-30) + 4 * UNIT * size
    return cell * cell / 8 * curvature * (1 + 2.0**-30)


def _ratio(rise: Array, run: Array) -> Array:
    return np.divide(rise, run, out=np.zeros_like(rise), where=run > 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class CurvePlanes:
    """What is needed to bound P T(t) + Q T(t') from below, over B boxes and s smooth neurons: see `of`."""

    centre: tuple[Array, Array]
    under: tuple[tuple[Array, Array], tuple[Array, Array]]
    over: tuple[tuple[Array, Array], tuple[Array, Array]]
    apart: tuple[tuple[Array, Array], tuple[Array, Array]]

    @classmethod
    def of(cls, ends: Sequence[Array]) -> CurvePlanes:
        """Lines around T(t) and T(t'), and around d = T(t') - T(t) in D = t' - t, on low, high, low2, high2, d_low, d_high."""
        low, high, low2, high2, d_low, d_high = ends
        under = line_under(low, high), line_under(low2, high2)
        over = _mirrored(line_under(-high, -low)), _mirrored(line_under(-high2, -low2))
        least, most = slopes(np.minimum(low, low2), np.maximum(high, high2))
        apart = _mirrored(_chord(least, most, -d_high, -d_low)), _chord(least, most, d_low, d_high)
        return cls(centre=((low + high) / 2, (low2 + high2) / 2), under=under, over=over, apart=apart)

    def planes(self, p: Array, q: Array, box: Integers) -> tuple[Array, Array, Array]:
        """alpha, beta, offset (N, s) with  p T + q T' >= alpha t + beta t' + offset: the best of three at the centre."""
        centre = self.centre[0][box], self.centre[1][box]
        return _best_plane(p, q, lambda c, copy: self._single(c, box, copy), lambda c: self._of_difference(c, box), centre)

    def _single(self, c: Array, box: Integers, copy: int) -> tuple[Array, Array]:
        under, over = self.under[copy], self.over[copy]
        return c * np.where(c >= 0, under[0][box], over[0][box]), c * np.where(c >= 0, under[1][box], over[1][box])

    def _of_difference(self, c: Array, box: Integers) -> tuple[Array, Array]:
        low, high = self.apart
        return c * np.where(c >= 0, low[0][box], high[0][box]), c * np.where(c >= 0, low[1][box], high[1][box])


def _mirrored(line: tuple[Array, Array]) -> tuple[Array, Array]:
    """T and D -> T' D are odd: a line under one at -t is a line over it at t."""
    return line[0], -line[1]


def _chord(least: Array, most: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Return a line over  max(least D, most D)  on [low, high]: that function is convex, its ends suffice."""
    at_low, at_high = np.where(low >= 0, most, least) * low, np.where(high >= 0, most, least) * high
    slope = np.where(low >= 0, most, least)
    across = (low < 0) & (high > 0)
    slope = np.where(across, np.clip(_ratio(at_high - at_low, high - low), least, most), slope)
    offset = np.maximum(at_low - slope * low, at_high - slope * high) + 8 * UNIT * (np.abs(low) + np.abs(high))
    return slope, np.where((low >= 0) | (high <= 0), 0.0, offset)  # an end that is NaN has to show


@dataclass(frozen=True, kw_only=True, eq=False)
class CurvePairs:
    """The first layer, where t' = t + shift: both copies as one function of t, at the ends of the cells."""

    planes: CurvePlanes
    points: list[Array]
    first: list[Array]
    second: list[Array]
    shift: Array
    steepest: Array
    size: Array

    @classmethod
    def of(cls, ends: Sequence[Array], shift: Array) -> CurvePairs:
        low, high, low2, high2, _, _ = ends
        points = _cells(low, high)
        return cls(
            planes=CurvePlanes.of(ends), points=points, first=[tanh(t) for t in points], shift=shift,
            second=[tanh(t + shift) for t in points], size=np.abs(low) + np.abs(high) + np.abs(shift),
            steepest=1.01 * slopes(np.minimum(low, low2), np.maximum(high, high2))[1],
        )

    def lines(self, p: Array, q: Array, box: Integers) -> tuple[Array, Array, Array]:
        """alpha, beta, offset (N, s) under p T(t) + q T(t + shift): the better of the planes and of a line in t alone."""
        alpha, beta, offset = self.planes.planes(p, q, box)
        points, shift = [t[box] for t in self.points], self.shift[box]
        values = [p * one[box] + q * two[box] for one, two in zip(self.first, self.second, strict=True)]
        shared = np.where(p * q < 0, np.minimum(np.abs(p), np.abs(q)), 0.0)
        second, third = np.minimum(0.77, 2 * self.steepest[box]), np.minimum(2.0, 4 * self.steepest[box])
        alone = np.abs(p) + np.abs(q) - 2 * shared
        curvature = shared * np.minimum(np.abs(shift) * third, 2 * second) + alone * second * (1 + 2.0**-30)
        limit, size = np.abs(p) + np.abs(q), self.size[box]
        lost = _lost((points[-1] - points[0]) / CELLS, size, curvature) + limit * (2 * ERROR + 16 * UNIT * size)
        middle, half = (points[0] + points[-1]) / 2, CELLS // 2
        best = alpha * middle + beta * (middle + shift) + offset
        for i, j in ((0, CELLS), (half - 2, half + 2), (half - 1, half + 1)):
            slope = np.clip(_ratio(values[j] - values[i], points[j] - points[i]), -limit, limit)
            under = np.min([v - slope * t for v, t in zip(values, points, strict=True)], axis=0) - lost
            better = slope * middle + under > best
            best = np.where(better, slope * middle + under, best)
            alpha, beta, offset = np.where(better, slope, alpha), np.where(better, 0.0, beta), np.where(better, under, offset)
        return alpha, beta, offset


def plane(p: Array, q: Array, ends: Sequence[Array]) -> tuple[Array, Array, Array]:
    """alpha, beta, offset with  p r + q r' >= alpha a + beta a' + offset, the best of three at the centre of the box.

    ends: low, high, low2, high2, d_low, d_high of a, a' and a' - a.
    """
    (low, high, low2, high2, d_low, d_high), copies = ends, (ends[:2], ends[2:4])
    centre = (low + high) / 2, (low2 + high2) / 2
    return _best_plane(p, q, lambda c, copy: _single(c, *copies[copy]), lambda c: _of_difference(c, d_low, d_high), centre)


def _best_plane(
    p: Array, q: Array, single: Callable[[Array, int], tuple[Array, Array]], apart: Callable[[Array], tuple[Array, Array]],
    centre: tuple[Array, Array],
) -> tuple[Array, Array, Array]:
    """Return the best of three planes at the centre, from lines under c y of one copy (`single`) and under c (y' - y) (`apart`)."""
    one, c1 = single(p, 0)
    two, c2 = single(q, 1)
    sum1, c3 = single(p + q, 0)  # p y + q y' = (p + q) y + q (y' - y)
    dif1, c4 = apart(q)
    sum2, c5 = single(p + q, 1)  # = (p + q) y' - p (y' - y)
    dif2, c6 = apart(-p)
    alpha, beta = np.stack([one, sum1 - dif1, -dif2]), np.stack([two, dif1, sum2 + dif2])
    offset = np.stack([c1 + c2, c3 + c4, c5 + c6])
    best = (alpha * centre[0] + beta * centre[1] + offset).argmax(axis=0)[None]
    alpha, beta, offset = (np.take_along_axis(form, best, axis=0)[0] for form in (alpha, beta, offset))
    return alpha, beta, offset


def chord(p: Array, q: Array, low: Array, high: Array, shift: Array) -> tuple[Array, Array]:
    """slope and offset with  h(a) = p max(a, 0) + q max(a + shift, 0) >= slope * a + offset  on [low, high].

    h bends at 0 and -shift alone. The slope is that of the edge of its lower hull over the midpoint: of the chords between two of
    the ends and bends on both sides of it, the one that is lowest there. Any slope is valid with the least of h(t) - slope * t.
    """
    points = np.stack([low, np.clip(0.0, low, high), np.clip(-shift, low, high), high])
    values = p * np.maximum(points, 0) + q * np.maximum(points + shift, 0)
    middle, limit = (low + high) / 2, np.abs(p) + np.abs(q)
    slope, lowest = np.zeros_like(p), np.full_like(p, np.inf)
    for left, right in ((0, 3), (0, 1), (0, 2), (1, 2), (2, 1), (1, 3), (2, 3)):
        run = points[right] - points[left]
        around = (points[left] <= middle) & (middle <= points[right]) & (run > 0)
        rise = np.divide(values[right] - values[left], run, out=np.zeros_like(p), where=around)
        rise = np.clip(rise, -limit, limit)
        there = values[left] + rise * (middle - points[left])
        better = around & (there < lowest)
        slope, lowest = np.where(better, rise, slope), np.where(better, there, lowest)
    return slope, (values - slope * points).min(axis=0)


def _ceiling(low: Array, high: Array) -> tuple[Array, Array]:
    """slope in [0, 1] and offset with  max(t, 0) <= slope * t + offset  on [low, high] (a convex function: ends suffice)."""
    width = high - low
    slope = np.divide(high, width, out=np.zeros_like(width), where=(low < 0) & (high > 0) & (width > 0))
    slope = np.where(low >= 0, 1.0, np.clip(slope, 0.0, 1.0))
    offset = np.maximum(np.maximum(low, 0) - slope * low, np.maximum(high, 0) - slope * high)
    return slope, offset


def _single(c: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """slope and offset with  c * max(t, 0) >= slope * t + offset  on [low, high]."""
    slope, offset = _ceiling(low, high)
    floor = (high > -low).astype(np.float64)  # 0 and 1 are both valid floors; this one leaves the smaller area
    return c * np.where(c >= 0, floor, slope), np.where(c >= 0, 0.0, c * offset)


def _of_difference(c: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """slope and offset with  c * d >= slope * D + offset, from  min(D, 0) <= d <= max(D, 0)  and D in [low, high]."""
    slope, offset = _ceiling(low, high)
    floor, sunk = _ceiling(-high, -low)  # min(D, 0) = -max(-D, 0) >= floor * D - sunk
    return c * np.where(c >= 0, floor, slope), np.where(c >= 0, -c * sunk, c * offset)
