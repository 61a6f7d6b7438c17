"""Outward rounding by an a-priori error bound, so that every bound of this package is rigorous in spite of float64 rounding.

All bounds are computed in float64 by BLAS, in an unspecified order. For a product of n terms the computed value differs
from the true one by at most gamma_n sum |terms|, gamma_n = n u / (1 - n u), u = 2^-53 (Higham, Accuracy and Stability of
Numerical Algorithms, 2nd ed., section 3.1), whatever the order. So every neuron needs one number that bounds all quantities on
the way to it. Over the root box of a question, with |x| and |y_k| the largest magnitudes there,

    Q_1 = |W_1| (|x| + |x'|) + |b_1|,        Q_k = |W_k| (|y_{k-1}| + |y'_{k-1}|) + |b_k|

dominates at layer k the pre-activations of both copies and of their difference, and every term of the sums that make them up.
Boxes split from the root inherit it. A computed bound at layer k is moved outwards by

    E_k = (2 n_k + 64) u Q_k,    n_k the number of terms,

where 64 covers the few operations around each product and the computation of Q itself; a sum of coefficients c_j times layer
values, by (2 n + 64) u sum_j |c_j| Q_j.

Linear forms are larger than the values they bound: relaxation lines have slopes at most 1 and intercepts at most twice a bound,
so a line is at most 3 times the form below it, and the middle and the half-width of two lines together at most 6 times:

    F_2 = 8 |W_2| Q_1 + |b_2|,        F_k = 8 |W_k| F_{k-1} + |b_k|

takes the place of Q_k there.

Above a layer of tanh or sigmoid (`curves`) |y| <= 1, lines have slopes at most 1 as well, and intercepts at most 1 more than a
bound: F + 1 takes the place of F, and backward substitution is charged by 2 Q + 4 instead of Q. Above other curves (`shapes`) |y|
is at most 2 |a| + 1, a slope at most 2, an intercept at most 4 |a| + 1: 2 F + 2 and 6 Q + 12. Above squares (`squares`) |y| <= a^2,
a slope is at most 2 Q and an intercept at most 2 Q^2, Q <= F: 4 F^2 and 16 Q^2.

Overflow gives inf or NaN, which no comparison accepts as a proof; `TINY` is added to every Q and taken off every final bound,
which covers underflow.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from encoders.arrays import Array
from encoders.curves.layer import SmoothLayer
from encoders.network import Layer

UNIT = 2.0**-53
TINY = 1e-200


def factor(terms: int) -> float:
    """Return (2 n + 64) u, the relative error allowed for a sum of n products and the operations around it."""
    return (2 * terms + 64) * UNIT


def magnitude(weight: Array, bias: Array, size: Array) -> Array:
    """Return Q_k (B, n_k) from the summed magnitudes of both copies' inputs to the layer, `size` (B, n_{k-1})."""
    return size @ np.abs(weight).T + np.abs(bias) + TINY


def form_magnitudes(layers: tuple[Layer, ...], first: Array) -> list[Array]:
    """Return F_k (B, n_k) of hidden layers 2 ... N - 1, from Q_1 (B, n_1)."""
    out: list[Array] = []
    size = first
    for previous, layer in pairwise(layers[:-1]):
        if isinstance(previous, SmoothLayer):
            size = np.where(previous.squared, 4 * size * size, np.where(previous.shaped, 2.0, 1.0) * (size + 1))
        size = magnitude(layer.weight, layer.bias, 8 * size)
        out.append(size)
    return out


def charge(layer: Layer, size: Array) -> Array:
    """Return the sizes (B, n) to which errors of backward substitution through a layer of sizes Q (B, n) are relative."""
    if not isinstance(layer, SmoothLayer):
        return size
    return np.where(layer.squared, 16 * size * size + TINY, np.where(layer.shaped, 3.0, 1.0) * (2 * size + 4))
