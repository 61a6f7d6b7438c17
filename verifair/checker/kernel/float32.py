"""The checker's own bound of the distance between any float32 evaluation of the network and its real-valued function.

Written from the recursion alone, sharing nothing with the engine's (`encoders.bounds.float32` explains it in full, and what it does
not cover); both read the network's record of its roundings. u = 2^-24, n = operations + 4, gamma = n u / (1 - n u):

    |a^ - a| <= gamma (size (Y + e) + bias_size) + |W| e        of a layer's pre-activations, |y| <= Y and |y^ - y| <= e below it
    |y^ - y| <= |a^ - a|                                         after ReLU; 0 where a <= -|a^ - a|
    |y^ - y| <= |a^ - a| + 2 u |y^|, and denormals               after LeakyReLU

Sizes stand for the denormals of one layer that a runtime takes for 0, and Y + e counts as 2^-100 at least. The bounds Y are
intervals, rounded outwards by (2 n + 64) 2^-53 of the sum of their terms' sizes; every result is then raised by 2^-30 of itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from encoders.arrays import Array
from encoders.network import Network

Enclosure = tuple[Array, Array]
"""Lower and upper ends (B, n) of a layer's pre-activations, of all copies that are asked about."""
UNIT = 2.0**-24
LEAST = 2.0**-100
LARGEST = 2.0**100
RAISED = 1 + 2.0**-30
NOTHING_KNOWN = "it claims to be certified for float32, but nothing is known of how this network is evaluated in float32"


def logit_errors(network: Network, low: Array, high: Array, enclosures: Sequence[Enclosure]) -> tuple[Array, Array]:
    """Return, over boxes (B, n_0) of network inputs, the largest errors (B, n_N) of the logits, inf where there is no bound, and
    the logits' sizes (B, n_N). enclosures: enclosures of the pre-activations of the hidden layers, if there are any."""
    assert network.rounding is not None
    error, sizes, in_range = np.zeros_like(low), low, np.ones(len(low), dtype=bool)
    last = len(network.layers) - 1
    for k, (layer, record) in enumerate(zip(network.layers, network.rounding, strict=True)):
        weight, n = np.abs(layer.weight), record.operations + 4
        gamma = n * UNIT / (1 - n * UNIT) if n * UNIT < 0.5 else np.inf
        magnitude = np.maximum(np.maximum(np.abs(low), np.abs(high)) + error, LEAST)
        reach = record.reach * np.maximum(magnitude.max(axis=1, initial=0.0), 1.0)
        in_range &= reach < LARGEST
        sizes = magnitude @ (weight if record.size is None else np.maximum(record.size, weight)).T + record.bias_size
        computed = sizes if record.size is None else magnitude @ record.size.T + record.bias_size
        error = (gamma * computed + error @ weight.T) * RAISED
        if k == last:
            break
        outwards = (2 * layer.weight.shape[1] + 64) * 2.0**-53 * (sizes + np.abs(layer.bias))
        pos, neg = np.maximum(layer.weight, 0.0), np.minimum(layer.weight, 0.0)
        low, high = low @ pos.T + high @ neg.T + layer.bias - outwards, high @ pos.T + low @ neg.T + layer.bias + outwards
        if enclosures:
            low, high = np.maximum(low, enclosures[k][0]), np.minimum(high, enclosures[k][1])
        relu = layer.slope == 0
        error = np.where(relu & (high < 0), np.clip(high + error * RAISED, 0.0, error), error)
        low, high = np.where(low > 0, low, layer.slope * low), np.where(high > 0, high, layer.slope * high)
        rounded = ~relu & (layer.slope < 1)
        if rounded.any():
            output_size = np.maximum(np.abs(low), np.abs(high)) + error + LEAST * (1 + reach[:, None])
            error = np.where(rounded, error + 2 * UNIT * output_size, error)
    return np.where(in_range[:, None] & np.isfinite(error), error, np.inf), sizes


def margin_errors(network: Network, margin: Array, low: Array, high: Array, enclosures: Sequence[Enclosure] = ()) -> Array:
    """Return (B,) the largest error of margin . logits, margin (B, n_N), over boxes (B, n_0); two logits are rounded once more."""
    error, sizes = logit_errors(network, low, high, enclosures)
    weight = np.abs(margin)
    used = weight > 0
    total = np.where(used, weight * error, 0.0).sum(axis=1)
    rounded = 2 * UNIT * np.where(used, weight * sizes, 0.0).sum(axis=1)
    total = (total + np.where(used.sum(axis=1) > 1, rounded, 0.0)) * RAISED
    return np.where(np.isfinite(total), total, np.inf)
