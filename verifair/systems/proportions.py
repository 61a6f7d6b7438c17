"""Intervals of shares, and of differences and ratios of two shares, alone or for several together."""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr, ndtri, xlogy

from encoders.arrays import Array
from verifair.errors import QueryError


def critical(level: float, sides: int) -> float:
    """Return the normal quantile z of a level, such as 1.96 for 0.95 and two sides, 1.645 for one. Raises QueryError."""
    if not 0 < level < 1:
        raise QueryError(f"level = {level:g}: expected a probability between 0 and 1, such as 0.95")
    if sides not in (1, 2):
        raise QueryError(f"sides = {sides}: expected 1 or 2")
    return float(ndtri(1 - (1 - level) / sides))


def level_of_pairs(groups: int) -> float:
    """Return the level of one interval at which those of all pairs of groups hold together at 95 % (Bonferroni).

    It is for two groups that the data pick, such as the highest and the lowest: the choice may be due to chance too.
    """
    return 1 - 0.05 / max(1.0, groups * (groups - 1) / 2)


def wilson(p: Array, n: Array | float, z: Array | float) -> tuple[Array, Array]:
    """Return Wilson's score interval of proportions p of n (Wilson 1927)."""
    return _wilson(p, n, z, -1), _wilson(p, n, z, 1)


def wilson_of(share: float, people: int) -> tuple[float, float]:
    """Return the ends of Wilson's 95 % interval for a share of `people` people."""
    low, high = wilson(np.array(share), people, critical(0.95, 2))
    return float(low), float(high)


def _wilson(p: Array, n: Array | float, z: Array | float, sign: int) -> Array:
    """Return the lower (sign -1) or upper end (1) of Wilson's interval."""
    part = np.square(z) / n
    half = z * np.sqrt(p * (1 - p) / n + part / (4 * n))
    end = (p + part / 2 + sign * half) / (1 + part)
    least, most = (0.0, p) if sign < 0 else (p, 1.0)
    return np.asarray(np.minimum(np.maximum(end, least), most))  # np.clip takes longer than all the rest


def newcombe(p: Array, n: Array | float, q: Array, m: Array | float, z: Array | float) -> tuple[Array, Array]:
    """Return the interval of p - q, of proportions p of n and q of m, from Wilson's of each (Newcombe 1998, method 10)."""
    return newcombe_lower(p, n, q, m, z), -newcombe_lower(q, m, p, n, z)


def newcombe_lower(p: Array, n: Array | float, q: Array, m: Array | float, z: Array | float) -> Array:
    """Return the lower end of `newcombe`."""
    left, right = p - _wilson(p, n, z, -1), _wilson(q, m, z, 1) - q
    return np.asarray(p - q - np.sqrt(left * left + right * right))     # np.hypot takes several times as long


def newcombe_lower_of_few(p: Array, n: Array | float, q: Array, m: Array | float, z: Array | float) -> Array:
    """Return the lower end of `newcombe`, but at most the exact lower end for the most extreme outcome, all against none.

    That is the least difference d at which all against none (n of n, 0 of m) has the tail's probability for some q: the largest
    (q + d)^n (1 - q)^m over q. No outcome is stronger evidence. At 95 % Newcombe's end is above it if n = m < 6: for 2 and 2, all
    against none would have an interval above 0, though it happens by chance in 6 % of the cases.   Reference: Tarone 1990
    (attainable levels).
    """
    total = np.asarray(n + m, dtype=np.float64)
    bound = np.expm1((log_ndtr(-np.asarray(z)) - xlogy(n, n / total) - xlogy(m, m / total)) / total)
    return np.asarray(np.minimum(newcombe_lower(p, n, q, m, z), bound))


def ratio(p: Array, n: Array | float, q: Array, m: Array | float, z: Array | float) -> tuple[Array, Array]:
    """Return the interval of p / q for proportions p of n and q > 0 of m, from Wilson's of each (MOVER-R: Donner and Zou 2012,
    Newcombe 2016).

    It has a positive width even for proportions of 0 and 1, unlike the one by logarithms (Katz 1978).
    """
    return _ratio(p, _wilson(p, n, z, -1), q, _wilson(q, m, z, 1), -1), _ratio(p, _wilson(p, n, z, 1), q, _wilson(q, m, z, -1), 1)


def _ratio(p: Array, p_end: Array, q: Array, q_end: Array, sign: int) -> Array:
    """Return the lower (sign -1) or upper end (1) of the interval of p / q, from the ends of the intervals of p and q."""
    a, b = p_end * (2 * p - p_end), q_end * (2 * q - q_end)
    root = np.sqrt(np.maximum(np.square(p * q) - a * b, 0))
    if sign > 0:
        return np.asarray((p * q + root) / b)
    return np.asarray(a / np.where(p > 0, p * q + root, 1.0))  # the same root of the quadratic, also where b is 0
