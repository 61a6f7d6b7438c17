"""Rigorous planes under and over a network's margin over boxes, for the checker.

Hidden layers are bounded by zonotopes, layer by layer from the inputs:

    a(x) = value + slope . (x - middle) + errors . e,   |e| <= 1,       with one error for every neuron that bends

is carried through every layer; a neuron with l < 0 < u becomes  c a + h +- h,  c = u / (u - l), h = -l c / 2. [l, u] is
the closer of what the form gives and the interval from the layer below. Written from these formulas alone; what the search knows
(`encoders.bounds.planes`) comes from the other end of the network.

The planes are found backwards from the margin: with the coefficient p, a neuron is replaced by its chord c a + 2 h where p < 0, and
by a line s a with s in [0, 1] where p > 0. Every such s is sound; s = 4 c - 3/2, cut off at 0 and 1, is about the best on average.

Rounding: EPS is that of `kernel.bounds`. With Z = |W| Z' + |b|, Z' the size of the form below (that of the inputs, or twice that of
its layer, for h and its error come on top), every operation at a layer loses at most EPS Z, and what was lost below passes through
|W|, and through a neuron times c; intervals lose at most EPS V, as there. TINY covers underflow; what overflows, or networks out of
the range of EPS, have no plane, which shows nothing. The backward pass is that of step 2 there, of one copy.
"""

from __future__ import annotations

import numpy as np

from encoders.arrays import Array
from encoders.domain import Domain
from encoders.network import Layer, Network
from verifair.checker.kernel.bounds import LARGEST, TINY, rounding_unit
from verifair.checker.shares import swing

BLOCK = 1 << 20
"""Coefficients handled at once."""
Lines = tuple[Layer, Array, Array, Array, Array]
"""A layer, c, h and s of its neurons (B, m), and the sizes of their pre-activations."""


def copy_planes(network: Network, margin: Array, domain: Domain, low: Array, high: Array) -> tuple[tuple[Array, Array], ...]:
    """Return the planes under and over margin . f on network boxes low, high (B, n_0) of a domain: slopes (B, n_0) and values
    in the middle (B,), infinite where there is none."""
    network.require_piecewise_linear("the checker of shares")
    widest = max(len(layer.bias) for layer in network.layers)
    step = max(1, BLOCK // (widest * (low.shape[1] + sum(network.hidden))))
    with np.errstate(all="ignore"):
        parts = [_planes(network, margin, domain, low[i : i + step], high[i : i + step]) for i in range(0, len(low), step)]
    planes = []
    for side, sign in enumerate((1, -1)):
        slope, value = (sign * np.concatenate([part[side][k] for part in parts]) for k in (0, 1))
        finite = np.isfinite(slope).all(axis=1) & np.isfinite(value)
        planes.append((np.where(finite[:, None], slope, 0.0), np.where(finite, value, -sign * np.inf)))
    return tuple(planes)


def _planes(network: Network, margin: Array, domain: Domain, low: Array, high: Array) -> list[tuple[Array, Array]]:
    """Return the planes under  margin . f  and  -margin . f."""
    eps = rounding_unit(network)
    value, width = (low + high) / 2, (high - low) / 2
    slope = np.broadcast_to(np.eye(low.shape[1]), (len(low), low.shape[1], low.shape[1]))
    errors = np.zeros((len(low), low.shape[1], 0))
    size, rounding = np.abs(value) + width, np.zeros_like(value)
    lower, upper = low, high
    lines: list[Lines] = []
    *hidden, last = network.layers
    for layer in hidden:
        weight = np.abs(layer.weight).T
        middle, reach = (lower + upper) / 2 @ layer.weight.T + layer.bias, (upper - lower) / 2 @ weight
        reach += eps * (np.maximum(np.abs(lower), np.abs(upper)) @ weight + np.abs(layer.bias)) + TINY
        value, slope, errors = value @ layer.weight.T + layer.bias, layer.weight @ slope, layer.weight @ errors
        size, rounding = size @ weight + np.abs(layer.bias), rounding @ weight
        rounding = rounding + eps * size + TINY
        (fall, rise), deviation = swing(domain, slope, low, high), np.abs(errors).sum(axis=2) + rounding
        reach = np.where(np.abs(middle) + reach <= LARGEST, reach, np.inf)
        lower, upper = np.fmax(value + fall - deviation, middle - reach), np.fmin(value + rise + deviation, middle + reach)
        unstable = (lower < 0) & (upper > 0)
        chord = np.where(unstable, upper / np.where(unstable, upper - lower, 1.0), lower >= 0)
        half = np.where(unstable, -lower * chord / 2, 0.0) * (1 - layer.slope)
        lower_slope = layer.slope + (1 - layer.slope) * np.clip(4 * chord - 1.5, 0.0, 1.0)
        chord = layer.slope + (1 - layer.slope) * chord
        lines.append((layer, chord, half, lower_slope, size))
        added = half[:, :, None] * np.eye(half.shape[1])
        value, slope, errors = chord * value + half, chord[:, :, None] * slope, chord[:, :, None] * errors
        errors = np.concatenate([errors, added[:, :, unstable.any(axis=0)]], axis=2)
        size, rounding = 2 * size, chord * rounding + eps * 2 * size
        lower, upper = (np.where(end < 0, layer.slope * end, end) for end in (lower, upper))
    size = (size @ np.abs(last.weight).T + np.abs(last.bias)) @ np.abs(margin)
    weight, bias = margin @ last.weight, margin @ last.bias
    return [_under(sign * weight, sign * bias, size, lines, (low + high) / 2, eps) for sign in (1, -1)]


def _under(weight: Array, bias: Array, size: Array, lines: list[Lines], middle: Array, eps: float) -> tuple[Array, Array]:
    """Return slopes and values of planes under  weight . y + bias,  y the last hidden layer."""
    p, value = np.broadcast_to(weight, (len(middle), len(weight))), np.full(len(middle), bias)
    for layer, chord, half, lower_slope, layer_size in reversed(lines):
        size = size + (np.abs(p) * layer_size).sum(axis=1)
        value = value + 2 * (np.where(p < 0, p, 0.0) * half).sum(axis=1)
        p = p * np.where(p < 0, chord, lower_slope)
        value, p = value + p @ layer.bias, p @ layer.weight
    return p, value + (p * middle).sum(axis=1) - eps * size - TINY
