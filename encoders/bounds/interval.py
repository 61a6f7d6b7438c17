"""Interval bounds of both copies and of their difference, tightened against each other at every layer.

Method: interval arithmetic in midpoint-radius form (one GEMM pair a layer, Rump 1999) on a, a' and Delta = a - a', plus

    l  = max(l, l' + Delta_l)      u  = min(u, u' + Delta_u)      Delta_l = max(Delta_l, l - u')
    l' = max(l', l - Delta_u)      u' = min(u', u - Delta_l)      Delta_u = min(Delta_u, u - l')

In the first layer Delta is the constant s, so y - y' is a clamp of one variable and its interval is exact.
Sound? yes, outward-rounded (see `rounding`).  Complete? no.
Reference: the twin difference follows ReluDiff (Paulsen, Wang and Wang, ICSE 2020), with shared inputs.
"""

from __future__ import annotations

import numpy as np

from encoders.arrays import Array, Integers
from encoders.bounds.relu import LayerBounds, affine_interval, difference_interval
from encoders.bounds.smooth.curves import activated_interval, curved_difference
from encoders.bounds.twin import Twin
from encoders.curves.layer import SmoothLayer


def interval_bounds(twin: Twin, question: Integers, low: Array, high: Array) -> list[LayerBounds]:
    """Return bounds of every layer, the last being the margins g(x), g(x') and g(x) - g(x') as (B, 1).

    question: (B,) position of each box's question in the twin.   low, high: (B, d) network box of the moving columns.
    """
    layers = [first_layer(twin, question, low, high)]
    for k in range(1, twin.depth + 1):
        layers.append(next_layer(twin, question, k, layers[-1]))
    return layers


def first_layer(twin: Twin, question: Integers, low: Array, high: Array) -> LayerBounds:
    middle, radius = (low + high) / 2, (high - low) / 2
    centre = twin.base[question] + middle @ twin.weights[0].T
    spread = radius @ twin.absolute[0].T + twin.error[0][question]
    shift = twin.shift[question]
    slack = twin.error[0][question]
    lower, upper = centre - spread, centre + spread
    if twin.lone:
        return LayerBounds.of_one(lower, upper)
    equal = twin.equal[question]
    delta = np.where(equal, 0.0, shift - slack), np.where(equal, 0.0, shift + slack)
    return LayerBounds.of((lower, upper), (lower - shift - slack, upper - shift + slack), delta)


def next_layer(twin: Twin, question: Integers, k: int, below: LayerBounds) -> LayerBounds:
    layer = twin.hidden[k - 1]
    slope = layer.bend if isinstance(layer, SmoothLayer) else layer.slope
    error = twin.error[k][question]
    y = activated_interval(layer, below.lower, below.upper)
    if twin.lone:
        return LayerBounds.of_one(*affine_interval(twin.weights[k], twin.absolute[k], y, twin.biases[k], error))
    y_prime = activated_interval(layer, below.lower_prime, below.upper_prime)
    shift = twin.shift[question] if k == 1 else None
    d = difference_interval(below, slope, shift, twin.error[0][question])
    if isinstance(layer, SmoothLayer):
        d = curved_difference(layer, below, d)
    # If y - y' is exactly 0 everywhere (no differing neuron is ever on), the difference above is exactly 0 too.
    dead = ((d[0] == 0) & (d[1] == 0)).all(axis=1)
    weights, bias = (twin.weights[k], twin.absolute[k]), twin.biases[k]
    delta = affine_interval(*weights, d, 0.0, np.where(dead[:, None], 0.0, error))
    a, a_prime = affine_interval(*weights, y, bias, error), affine_interval(*weights, y_prime, bias, error)
    return crossed(LayerBounds.of(a, a_prime, delta), error)


def crossed(bounds: LayerBounds, error: Array) -> LayerBounds:
    """Tighten a, a' and Delta = a - a' against each other.

    The sum of two outward-rounded bounds is itself rounded once; `error` (dozens of units of a larger number) covers that.
    """
    lower = np.maximum(bounds.lower, bounds.lower_prime + bounds.delta_lower - error)
    upper = np.minimum(bounds.upper, bounds.upper_prime + bounds.delta_upper + error)
    lower_prime = np.maximum(bounds.lower_prime, lower - bounds.delta_upper - error)
    upper_prime = np.minimum(bounds.upper_prime, upper - bounds.delta_lower + error)
    delta_lower = np.maximum(bounds.delta_lower, lower - upper_prime - error)
    delta_upper = np.minimum(bounds.delta_upper, upper - lower_prime + error)
    return LayerBounds.of((lower, upper), (lower_prime, upper_prime), (delta_lower, delta_upper))
