"""Intervals of smooth neurons' outputs, and of their differences between the copies.

With y = c + p T(q a) (see `encoders.curves`) T is monotone, so the ends of a give the ends of y. For d = y - y' = p (T(t) - T(t')),
t = q a, three enclosures are intersected:

    the ends of both copies                    [ T(t_l) - T(t'_u),  T(t_u) - T(t'_l) ];
    the mean value theorem                     T(t) - T(t') = T'(xi) (t - t')  for some xi between the two;
    in the first layer, t - t' = sigma const.  h(t) = T(t) - T(t - sigma) has h' = T'(t) - T'(t - sigma), whose sign changes
                                               once, at sigma / 2, as T' is even and falls with |t|: the ends and
                                               2 T(sigma / 2) enclose it.

Sound? yes: T and T' are enclosed by `curves`, every operation after that is rounded outwards.  Complete? no.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from encoders.curves import TINY, UNIT, Curve, parts, slope_bounds, tanh_bounds
from encoders.network import Array, SmoothLayer

if TYPE_CHECKING:
    from encoders.bounds.interval import LayerBounds


def smooth(layer: SmoothLayer) -> tuple[np.ndarray, Array, Array, Array]:
    """Positions of the smooth neurons and (q, p, c) of each."""
    index = np.flatnonzero(layer.curve != Curve.BENT)
    return index, *parts(layer.curve[index])


def curved(layer: SmoothLayer, low: Array, high: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
    """The ends (B, m) of y for a in [low, high] (B, m); those of the neurons that bend are taken from `ends`."""
    index, q, p, c = smooth(layer)
    y_low, y_high = (np.array(end) for end in ends)
    # 1/2 + T / 2 is rounded once, by half a unit; where c = 0 nothing is.
    y_low[..., index] = np.maximum(c + p * tanh_bounds(q * low[..., index])[0] - 2 * c * UNIT, c - p)
    y_high[..., index] = np.minimum(c + p * tanh_bounds(q * high[..., index])[1] + 2 * c * UNIT, c + p)
    return y_low, y_high


def curved_difference(
    layer: SmoothLayer, below: LayerBounds, shift: Array | None, error: Array, straight: tuple[Array, Array]
) -> tuple[Array, Array]:
    """The interval (B, m) of y - y'; that of the neurons that bend is taken from `straight`.

    shift: the constant a - a' of the first layer, right to `error`; None above it.
    """
    index, q, p, _ = smooth(layer)
    t_low, t_high, other_low, other_high, delta_low, delta_high = (
        q * getattr(below, name)[..., index]
        for name in ("lower", "upper", "lower_prime", "upper_prime", "delta_lower", "delta_upper")
    )
    least, most = slope_bounds(np.minimum(t_low, other_low), np.maximum(t_high, other_high))
    low = np.where(delta_low >= 0, least, most) * delta_low
    high = np.where(delta_high >= 0, most, least) * delta_high
    at_low, at_high = tanh_bounds(t_low), tanh_bounds(t_high)
    low = np.maximum(low, at_low[0] - tanh_bounds(other_high)[1])
    high = np.minimum(high, at_high[1] - tanh_bounds(other_low)[0])
    if shift is not None:
        sigma, slack = q * shift[..., index], q * error[..., index]
        ends = [_less(at_low, tanh_bounds(t_low - sigma)), _less(at_high, tanh_bounds(t_high - sigma))]
        peak = tuple(2 * end for end in tanh_bounds(sigma / 2))
        inside = (t_low - slack <= sigma / 2) & (sigma / 2 <= t_high + slack)
        ends.append((np.where(inside, peak[0], ends[0][0]), np.where(inside, peak[1], ends[0][1])))
        low = np.maximum(low, np.min([end[0] for end in ends], axis=0) - slack)
        high = np.minimum(high, np.max([end[1] for end in ends], axis=0) + slack)
    same = (delta_low == 0) & (delta_high == 0)  # only ever exactly so when nothing reaches the neuron
    d_low, d_high = (np.array(end) for end in straight)
    d_low[..., index] = np.where(same, 0.0, p * _outward(low, -1.0))
    d_high[..., index] = np.where(same, 0.0, p * _outward(high, 1.0))
    return d_low, d_high


def _less(one: tuple[Array, Array], two: tuple[Array, Array]) -> tuple[Array, Array]:
    return one[0] - two[1], one[1] - two[0]


def _outward(value: Array, sign: float) -> Array:
    """Moved outwards by what a difference, a product and a halving may have lost."""
    return value + sign * (4 * UNIT * np.abs(value) + TINY)
