"""Lines below what a pair of neurons adds to a form, for the checker's bounds: on intervals, each valid as it is computed.

A line is a slope and an offset; the offset is the extreme of (function - slope * t) over the vertices, which makes any slope valid.
The rounding of offsets is charged by `check_bounds` (2. there).
Sound? Yes, up to that rounding. Complete? No.
"""

from __future__ import annotations

import numpy as np

from encoders.network import Array


def plane(
    p: Array, q: Array, low: Array, high: Array, low2: Array, high2: Array, d_low: Array, d_high: Array
) -> tuple[Array, Array, Array]:
    """alpha, beta, offset with  p r + q r' >= alpha a + beta a' + offset, the best of three at the centre of the box."""
    one, c1 = _single(p, low, high)
    two, c2 = _single(q, low2, high2)
    sum1, c3 = _single(p + q, low, high)  # p r + q r' = (p + q) r + q d
    dif1, c4 = _of_difference(q, d_low, d_high)
    sum2, c5 = _single(p + q, low2, high2)  # p r + q r' = (p + q) r' - p d
    dif2, c6 = _of_difference(-p, d_low, d_high)
    alpha = np.stack([one, sum1 - dif1, -dif2])
    beta = np.stack([two, dif1, sum2 + dif2])
    offset = np.stack([c1 + c2, c3 + c4, c5 + c6])
    value = alpha * ((low + high) / 2) + beta * ((low2 + high2) / 2) + offset
    at = (value.argmax(axis=0), np.arange(len(p)))
    return alpha[at], beta[at], offset[at]


def chord(p: Array, q: Array, low: Array, high: Array, shift: Array) -> tuple[Array, Array]:
    """slope and offset with  h(a) = p max(a, 0) + q max(a + shift, 0) >= slope * a + offset  on [low, high].

    Any slope is valid with the least of h(t) - slope * t over the ends and the two bends. Tried: the chord between the
    ends, and the chord between the neighbours of the midpoint among ends and convex bends (a hull edge, or close to one).
    """

    def h(t: Array) -> Array:
        return p * np.maximum(t, 0) + q * np.maximum(t + shift, 0)

    bend, bend2 = np.clip(0.0, low, high), np.clip(-shift, low, high)
    points = np.stack([low, bend, bend2, high])
    values = np.stack([h(t) for t in points])
    middle = (low + high) / 2
    left = np.maximum(np.where((p >= 0) & (bend <= middle), bend, low), np.where((q >= 0) & (bend2 <= middle), bend2, low))
    right = np.minimum(np.where((p >= 0) & (bend > middle), bend, high), np.where((q >= 0) & (bend2 > middle), bend2, high))
    limit = np.abs(p) + np.abs(q)
    best_slope = np.zeros_like(p)
    best_offset = values.min(axis=0)
    for start, end in ((low, high), (left, right)):
        slope = np.divide(h(end) - h(start), end - start, out=np.zeros_like(p), where=end > start)
        slope = np.clip(slope, -limit, limit)
        offset = (values - slope * points).min(axis=0)
        better = slope * middle + offset > best_slope * middle + best_offset
        best_slope, best_offset = np.where(better, slope, best_slope), np.where(better, offset, best_offset)
    return best_slope, best_offset


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
