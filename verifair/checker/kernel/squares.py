"""Squares for the checker: their ends, lines around them, and both copies in the first layer as one function.

Written apart from the engine's `encoders.bounds.smooth.squares`. For any c,  t^2 >= 2 c t - c^2;  on [l, u] t^2 - m t is at most
the larger of its values at l and u, as it is convex, whatever m. With m = 2 c = l + u both lines are parallel: the standard
relaxation. The difference of the copies is (t + t') D, between the ends of t + t' times D.
In the first layer, t' = t + s:  p t^2 + q t'^2 = (p + q) t^2 + 2 q s t + q s^2, of which the first term alone is replaced.
Rounding: offsets are off by a few u of p and q times (|t| + |t'|)^2, ends by a few u of themselves; `bounds` pays for the first
(step 6 of its argument), the second are moved outwards here, by TINY more where a square may have come out as 0.
Sound? Yes.  Complete? No.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from encoders.arrays import Array, Integers

UNIT = 2.0**-53
TINY = 1e-300
Line = tuple[Array, Array]


def outputs(low: Array, high: Array) -> tuple[Array, Array]:
    """Return ends of t^2 on [low, high]."""
    size, wrong = np.maximum(np.abs(low), np.abs(high)), np.isnan(low * high)  # keeps NaN
    nearest = np.where((low > 0) | (high < 0), np.minimum(np.abs(low), np.abs(high)), 0.0)
    lower, upper = nearest**2 * (1 - 4 * UNIT) - TINY, size**2 * (1 + 4 * UNIT) + TINY
    return np.where(wrong, -np.inf, np.maximum(lower, 0.0)), np.where(wrong, np.inf, upper)


def steepness(ends: Sequence[Array]) -> tuple[Array, Array]:
    """Return (at most, at least) all t + t', for low, high, low2, high2 of t and t'."""
    return np.nextafter(ends[0] + ends[2], -np.inf), np.nextafter(ends[1] + ends[3], np.inf)


def band(low: Array, high: Array) -> tuple[Line, Line]:
    """Return (slope, offset) of lines under and over t^2 on [low, high]."""
    middle = (low + high) / 2
    slope = 2 * middle
    rounding = 8 * UNIT * np.maximum(np.abs(low), np.abs(high)) ** 2
    return (slope, -(middle**2) - rounding), (slope, np.maximum((low - slope) * low, (high - slope) * high) + rounding)


@dataclass(frozen=True, kw_only=True, eq=False)
class SquarePairs:
    """Both copies of squares in the first layer: lines under and over t^2 over the boxes, and t' - t."""

    under: Line
    over: Line
    shift: Array

    @classmethod
    def of(cls, low: Array, high: Array, shift: Array) -> SquarePairs:
        under, over = band(low, high)
        return cls(under=under, over=over, shift=shift)

    def lines(self, p: Array, q: Array, box: Integers) -> tuple[Array, Array, Array]:
        """Return alpha, beta (0) and offset (N, s) under p t^2 + q (t + shift)^2."""
        weight, linear = p + q, q * self.shift[box]
        slope, offset = (np.where(weight >= 0, under[box], over[box]) for under, over in zip(self.under, self.over, strict=True))
        return weight * slope + 2 * linear, np.zeros_like(p), weight * offset + linear * self.shift[box]
