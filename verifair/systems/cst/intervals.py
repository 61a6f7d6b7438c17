"""Intervals and p-values of a difference of two proportions, delta = p_c - p_t.

wald       delta +- z sqrt(p_c (1 - p_c) / n_c + p_t (1 - p_t) / n_t)            CST, equation 5 (Thanh et al. 2011)
newcombe   from the Wilson intervals of p_c and p_t: Newcombe 1998, method 10

*Corrects the paper:* equation 5 has a minus under the root. Wald's interval has no width where both proportions are 0 or 1, however
small the groups; Newcombe's has, and stays within -1 .. 1. Both are approximations: the k nearest rows are no random sample.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from scipy.stats import norm

from encoders.network import Array
from verifair.errors import QueryError

Interval = Literal["newcombe", "wald"]
INTERVALS: tuple[Interval, ...] = get_args(Interval)
STEPS = 60
"""Of bisection for a p-value: z to 1e-16 of Z_MOST."""
Z_MOST = 38.0
"""Beyond it the normal tail is 0 in floats."""


def critical(level: float, sides: int) -> float:
    """The normal quantile z of a level, such as 1.96 for 0.95 and two sides, 1.645 for one. Raises QueryError."""
    if not 0 < level < 1:
        raise QueryError(f"level = {level:g}: expected a probability between 0 and 1, such as 0.95")
    if sides not in (1, 2):
        raise QueryError(f"sides = {sides}: expected 1 or 2")
    return float(norm.ppf(1 - (1 - level) / sides))


def wilson(p: Array, n: Array | float, z: Array | float) -> tuple[Array, Array]:
    """Wilson's score interval of proportions p of n (Wilson 1927)."""
    square = np.square(z)
    middle = p + square / (2 * n)
    half = z * np.sqrt(p * (1 - p) / n + square / (4 * np.square(n)))
    scale = 1 + square / n
    return np.clip((middle - half) / scale, 0, p), np.clip((middle + half) / scale, p, 1)


def interval(
    kind: Interval, p_c: Array, n_c: Array | float, p_t: Array, n_t: Array | float, z: Array | float
) -> tuple[Array, Array]:
    """(low, high) of delta at z, each of the shape of the proportions."""
    delta = p_c - p_t
    if kind == "wald":
        half = z * np.sqrt(p_c * (1 - p_c) / n_c + p_t * (1 - p_t) / n_t)
        return delta - half, delta + half
    if kind == "newcombe":
        (low_c, high_c), (low_t, high_t) = wilson(p_c, n_c, z), wilson(p_t, n_t, z)
        return delta - np.hypot(p_c - low_c, high_t - p_t), delta + np.hypot(high_c - p_c, p_t - low_t)
    raise QueryError(f"interval {kind!r}: there is no such interval; known are {', '.join(INTERVALS)}")


def p_value(kind: Interval, p_c: Array, n_c: Array | float, p_t: Array, n_t: Array | float, tau: float, sides: int) -> Array:
    """The smallest 1 - level at which the interval lies above tau (1 where none does): so both always say the same.

    The interval's lower end falls with z, so that its crossing of tau is bisected.
    """
    low, high = np.zeros_like(p_c), np.full_like(p_c, Z_MOST)
    for _ in range(STEPS):
        z = (low + high) / 2
        above = interval(kind, p_c, n_c, p_t, n_t, z)[0] > tau
        low, high = np.where(above, z, low), np.where(above, high, z)
    return np.where(p_c - p_t > tau, np.minimum(sides * norm.sf(low), 1.0), 1.0)
