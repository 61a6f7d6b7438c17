"""Rigorous affine forms of a network's margin over boxes, for the checker: zonotopes, layer by layer from the inputs.

    a(x) = value + slope . (x - middle) + errors . e,   |e| <= 1,       with one error for every neuron that bends

is carried through every layer; a neuron with l < 0 < u becomes  c a + h +- h,  c = u / (u - l), h = -l c / 2. [l, u] is
the closer of what the form gives and the interval from the layer below. Written from these formulas alone; what the search knows
(`encoders.bounds.copies`) comes from the other end of the network.

Rounding: EPS is that of `kernel.bounds`. With Z = |W| Z' + |b|, Z' the size of the form below (that of the inputs, or twice that of
its layer, for h and its error come on top), every operation at a layer loses at most EPS Z, and what was lost below passes through
|W|, and through a neuron times c; intervals lose at most EPS V, as there. TINY covers underflow; what overflows, or networks out of
the range of EPS, have an infinite radius, which shows nothing.
"""

from __future__ import annotations

import numpy as np

from encoders.domain import Domain
from encoders.network import Array, Network
from verifair.checker.kernel.bounds import LARGEST, TINY, rounding_unit
from verifair.checker.shares import swing

BLOCK = 1 << 20
"""Coefficients handled at once."""


def affine_forms(network: Network, margin: Array, domain: Domain, low: Array, high: Array) -> tuple[Array, Array, Array]:
    """Return slopes (B, n_0), values and radii (B,) of margin . f over network boxes low, high (B, n_0) of a domain."""
    network.require_piecewise_linear("the checker of shares")
    widest = max(len(layer.bias) for layer in network.layers)
    step = max(1, BLOCK // (widest * (low.shape[1] + sum(network.hidden))))
    with np.errstate(all="ignore"):
        parts = [_forms(network, margin, domain, low[i : i + step], high[i : i + step]) for i in range(0, len(low), step)]
    slope, value, radius = (np.concatenate(one) for one in zip(*parts, strict=True))
    sure = np.isfinite(slope).all(axis=1) & np.isfinite(value) & np.isfinite(radius)
    return np.where(sure[:, None], slope, 0.0), np.where(sure, value, 0.0), np.where(sure, radius, np.inf)


def _forms(network: Network, margin: Array, domain: Domain, low: Array, high: Array) -> tuple[Array, Array, Array]:
    eps = rounding_unit(network)
    value, width = (low + high) / 2, (high - low) / 2
    slope = np.broadcast_to(np.eye(low.shape[1]), (len(low), low.shape[1], low.shape[1]))
    errors = np.zeros((len(low), low.shape[1], 0))
    size, lost = np.abs(value) + width, np.zeros_like(value)
    least, most = low, high
    *hidden, last = network.layers
    for layer in hidden:
        weight = np.abs(layer.weight).T
        middle, reach = (least + most) / 2 @ layer.weight.T + layer.bias, (most - least) / 2 @ weight
        reach += eps * (np.maximum(np.abs(least), np.abs(most)) @ weight + np.abs(layer.bias)) + TINY
        value, slope, errors = value @ layer.weight.T + layer.bias, layer.weight @ slope, layer.weight @ errors
        size, lost = size @ weight + np.abs(layer.bias), lost @ weight
        lost = lost + eps * size + TINY
        (down, up), away = swing(domain, slope, low, high), np.abs(errors).sum(axis=2) + lost
        reach = np.where(np.abs(middle) + reach <= LARGEST, reach, np.inf)
        least, most = np.fmax(value + down - away, middle - reach), np.fmin(value + up + away, middle + reach)
        bends = (least < 0) & (most > 0)
        chord = np.where(bends, most / np.where(bends, most - least, 1.0), least >= 0)
        half = np.where(bends, -least * chord / 2, 0.0) * (1 - layer.slope)
        chord = layer.slope + (1 - layer.slope) * chord
        added = half[:, :, None] * np.eye(half.shape[1])
        value, slope, errors = chord * value + half, chord[:, :, None] * slope, chord[:, :, None] * errors
        errors = np.concatenate([errors, added[:, :, bends.any(axis=0)]], axis=2)
        size, lost = 2 * size, chord * lost + eps * 2 * size
        least, most = (np.where(end < 0, layer.slope * end, end) for end in (least, most))
    weight, bias = margin @ last.weight, margin @ last.bias
    absolute = np.abs(margin) @ np.abs(last.weight)
    size = size @ absolute + np.abs(margin) @ np.abs(last.bias)
    radius = np.abs(weight @ errors).sum(axis=1) + lost @ absolute + eps * size + TINY
    return weight @ slope, value @ weight + bias, radius
