"""Enclosures of T = tanh and its derivative: float64 numbers below and above, by the operations of `encoders.curves.floats`.

T' = 4 e / (1 + e)^2 with e = exp(-2 |t|), which is right to 65 u:  relatively off by 65 u (1 + 2 e / (1 + e)) + 6 u < 140 u:
`RELATIVE` = 256 u. Beyond 20 it lies in (0, T'(20)].
"""

from __future__ import annotations

import numpy as np

from encoders.arrays import Array
from encoders.curves.floats import ERROR, FAR, UNIT, decay, tanh

RELATIVE = 256 * UNIT
"""The relative error of T' is at most this."""
TINY = 1e-300
"""Covers underflow."""


def tanh_bounds(t: Array) -> tuple[Array, Array]:
    """Return (below, above) tanh(t), within [-1, 1] and on the correct side of 0; NaN stays NaN. Exactly 0 at 0."""
    size = np.abs(t)
    value = np.abs(tanh(t))
    with np.errstate(over="ignore", invalid="ignore"):  # overflows where size is large; not used there
        sharp = size - size * size * size / 3 - 8 * UNIT * size - TINY  # t - t^3 / 3 < T(t) < t for t > 0
    low = np.maximum(np.maximum(value - ERROR, np.where(size < 1, sharp, -1.0)), 0.0)
    high = np.minimum(np.minimum(value + ERROR, size), 1.0)
    positive = t > 0
    return np.where(positive, low, -high), np.where(positive, high, -low)


def slope_bounds(low: Array, high: Array) -> tuple[Array, Array]:
    """Return (below, above) all T'(t) for t in [low, high]: T' falls on both sides of 0, where it is 1."""
    farthest = np.maximum(np.abs(low), np.abs(high))
    crosses = (low <= 0) & (high >= 0)
    nearest = np.where(crosses, 0.0, np.minimum(np.abs(low), np.abs(high)))
    far, near = decay(farthest), decay(nearest)
    lower = np.where(farthest > FAR, 0.0, 4 * far / ((1 + far) * (1 + far)) * (1 - RELATIVE))
    return lower, np.minimum(4 * near / ((1 + near) * (1 + near)) * (1 + RELATIVE), 1.0)
