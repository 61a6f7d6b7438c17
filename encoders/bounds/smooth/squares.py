"""Intervals and lines around T(t) = t^2, and lines under two copies of it as one function in the first layer.

Lines. T is convex: on [l, u] it lies under its chord, of slope l + u, and over its tangent of that slope at the middle. A line of
any slope m is valid with the larger of T(l) - m l and T(u) - m u above, and with -m^2 / 4 below, the least of T(t) - m t anywhere.

Differences. T(t) - T(t') = (t + t') (t - t'): the interval of t + t' takes the place of slopes in `shapes`.

First layer. T(t - s) = T(t) - 2 s t + s^2, so  P T(t) + P' T(t - s) = (P + P') T(t) - 2 P' s t + P' s^2:  lines around T alone, and
what the copies share with opposite signs costs nothing.

T' is unbounded, and all errors are relative to squares (`UNIT` for each operation; `TINY` covers underflow).
What overflows ends as inf or NaN, and proves nothing.   Sound? yes.  Complete? no.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from encoders.arrays import Array
from encoders.bounds.relu import LayerBounds, Lines
from encoders.bounds.smooth.tanh import TINY
from encoders.curves.floats import UNIT


@np.errstate(all="ignore")
def values(low: Array, high: Array) -> tuple[Array, Array]:
    """Return the ends of T on [low, high]; never below 0."""
    at_low, at_high = low * low, high * high
    lower = np.where((low <= 0) & (high >= 0), 0.0, np.minimum(at_low, at_high))
    upper = np.maximum(at_low, at_high)
    return np.maximum(lower - 2 * UNIT * lower - TINY, 0.0), upper + 2 * UNIT * upper + TINY


def sums(bounds: LayerBounds) -> tuple[Array, Array]:
    """Return (below, above) all t + t'."""
    low, high = bounds.lower + bounds.lower_prime, bounds.upper + bounds.upper_prime
    return low - 2 * UNIT * np.abs(low), high + 2 * UNIT * np.abs(high)


def lines(low: Array, high: Array) -> Lines:
    """Return lines around T on [low, high], both of the chord's slope."""
    slope = low + high
    constant = np.maximum(low * low - slope * low, high * high - slope * high)
    error = 8 * UNIT * (low * low + high * high) + TINY
    return Lines(low_slope=slope, low_constant=-slope * slope / 4 - error, up_slope=slope, up_constant=constant + error)


@dataclass(frozen=True, kw_only=True, eq=False)
class SquareShapePairs:
    """Lines under  p T(t) + p' T(t - s)  over boxes (B, n): those around T, the shift s, and the sizes that errors are relative to.

    apart: how far the chord lies above T at the middle, and above the tangent everywhere.
    """

    own: Lines
    shift: Array
    size: Array
    apart: Array

    @classmethod
    def of(cls, bounds: LayerBounds, shift: Array) -> SquareShapePairs:
        low, high = bounds.lower, bounds.upper
        size, width = np.maximum(np.abs(low), np.abs(high)) + np.abs(shift), (high - low) / 2
        return cls(own=lines(low, high), shift=shift, size=size * size, apart=width * width)

    def under(self, p: Array, p_prime: Array, box: Any) -> tuple[Array, Array, Array]:
        """Return a line in t for every row of p and p' (..., n) over the boxes `box`: slope, constant and gap, shaped as p."""
        weight, shift = p + p_prime, self.shift[box]
        slope, constant = self.own.take(box).times(weight)
        error = (np.abs(p) + np.abs(p_prime)) * (32 * UNIT * self.size[box] + TINY)
        return slope - 2 * p_prime * shift, constant + p_prime * shift * shift - error, np.abs(weight) * self.apart[box]
