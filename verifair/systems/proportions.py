"""Intervals of shares, and of the difference of two of them."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from encoders.network import Array
from verifair.errors import QueryError


def critical(level: float, sides: int) -> float:
    """The normal quantile z of a level, such as 1.96 for 0.95 and two sides, 1.645 for one. Raises QueryError."""
    if not 0 < level < 1:
        raise QueryError(f"level = {level:g}: expected a probability between 0 and 1, such as 0.95")
    if sides not in (1, 2):
        raise QueryError(f"sides = {sides}: expected 1 or 2")
    return float(ndtri(1 - (1 - level) / sides))


def wilson(p: Array, n: Array | float, z: Array | float) -> tuple[Array, Array]:
    """Wilson's score interval of proportions p of n (Wilson 1927)."""
    square = np.square(z)
    middle = p + square / (2 * n)
    half = z * np.sqrt(p * (1 - p) / n + square / (4 * np.square(n)))
    scale = 1 + square / n
    return np.clip((middle - half) / scale, 0, p), np.clip((middle + half) / scale, p, 1)


def newcombe(p: Array, n: Array | float, q: Array, m: Array | float, z: Array | float) -> tuple[Array, Array]:
    """Interval of p - q, of proportions p of n and q of m, from Wilson's of each (Newcombe 1998, method 10)."""
    (low_p, high_p), (low_q, high_q) = wilson(p, n, z), wilson(q, m, z)
    return p - q - np.hypot(p - low_p, high_q - q), p - q + np.hypot(high_p - p, q - low_q)
