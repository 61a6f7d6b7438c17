"""Outward rounding by an a-priori error bound, so that every bound of this package is a theorem and not a float.

All bounds are computed in float64 with BLAS, in whatever order it likes. For a product of n terms the computed value differs
from the true one by at most gamma_n sum |terms|, gamma_n = n u / (1 - n u), u = 2^-53 (Higham, Accuracy and Stability of
Numerical Algorithms, 2nd ed., section 3.1), whatever the order. What is needed is therefore one number per neuron that no quantity met on
the way exceeds. With |x| the largest input magnitudes of the box,

    Q_1 = |W_1| |x| + |W_1| |x'| + |b_1|,        Q_k = 8 |W_k| Q_{k-1} + |b_k|

dominates, at layer k, the pre-activations of both copies and of their difference, every term of the sums that make them up,
and the relaxation lines evaluated anywhere in the box: slopes are at most 1 and intercepts at most twice a bound, so a line
is at most 3 Q_{k-1} in size, and the middle and the half-width of two lines together at most 6 Q_{k-1}; 8 leaves room.
It is taken for the root box of a question, which makes it valid for every box split from it. A computed bound at layer k is
then moved outwards by

    E_k = (2 n_k + 64) u Q_k,    n_k the number of terms,

where 64 pays for the handful of operations around each product and for forming Q itself, and a final sum over c_j of
coefficients by (2 n + 64) u sum_j |c_j| Q_j. Overflow gives inf or NaN, which no comparison lets pass as a proof; results below
`TINY` are treated as rounding noise, which covers underflow.
"""

from __future__ import annotations

import numpy as np

from encoders.network import Array, Network

UNIT = 2.0**-53
TINY = 1e-200


def factor(terms: int) -> float:
    """(2 n + 64) u: the relative error allowed for a sum of n products and what surrounds it."""
    return (2 * terms + 64) * UNIT


def magnitudes(network: Network, x_max: Array) -> list[Array]:
    """Q_k of every layer, (B, n_k) each, from the summed input magnitudes x_max = |x| + |x'| (B, n_0) of a box."""
    out: list[Array] = []
    size = x_max
    for k, layer in enumerate(network.layers):
        size = (8.0 if k else 1.0) * (size @ np.abs(layer.weight).T) + np.abs(layer.bias) + TINY
        out.append(size)
    return out
