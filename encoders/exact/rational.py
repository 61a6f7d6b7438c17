"""Exact values at rational inputs: numbers over one common denominator, whose numerators are `Dyadic`.

Points of VNN-LIB files are decimals such as 0.1, which no dyadic number is. Over a common denominator D > 0 a network needs no
division:  D (W x + b) = W (D x) + D b,  and activations of slope s commute with positive factors. So all computations are with
dyadic numbers, with biases times D.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np
import numpy.typing as npt

from encoders.exact.dyadic import BITS, Dyadic, exact_bias, weighted
from encoders.network import Layer, activate, affine


@dataclass(frozen=True, kw_only=True, eq=False)
class Rational:
    """A batch of exact numbers, numerator / denominator. denominator: one odd positive whole number, of shape (1,)."""

    numerator: Dyadic
    denominator: Dyadic

    @classmethod
    def of(cls, values: npt.NDArray[np.object_]) -> Rational:
        """Return the exact `Rational` of an object array of fractions.Fraction."""
        flat = values.ravel().tolist()
        denominator = lcm(*(value.denominator for value in flat))
        twos = (denominator & -denominator).bit_length() - 1
        numerators = _whole([value.numerator * (denominator // value.denominator) for value in flat])
        numerator = Dyadic(limbs=numerators.limbs.reshape(-1, *values.shape), exponent=-twos)
        return cls(numerator=numerator, denominator=_whole([denominator >> twos]))

    def to_fractions(self) -> npt.NDArray[np.object_]:
        """Return Python fractions of the same values."""
        denominator: Fraction = self.denominator.to_fractions()[0]
        return np.asarray(self.numerator.to_fractions() / denominator, dtype=object)


def _whole(values: Sequence[int]) -> Dyadic:
    """Return Python's integers as a `Dyadic` of shape (len(values),)."""
    count = max((value.bit_length() for value in values), default=0) // BITS + 1
    limbs = np.empty((count, len(values)))
    for k, value in enumerate(values):
        for place in range(count - 1):
            limbs[place, k] = value & (1 << BITS) - 1
            value >>= BITS  # rounds down, so the lower limbs of negative numbers are positive, too
        limbs[-1, k] = value
    return Dyadic(limbs=limbs, exponent=0)


@affine.register
def _(x: Rational, layer: Layer) -> Rational:
    numerator = weighted(x.numerator, layer, exact_bias(layer) * x.denominator)
    return Rational(numerator=numerator, denominator=x.denominator)


@activate.register
def _(a: Rational, layer: Layer) -> Rational:
    return Rational(numerator=activate(a.numerator, layer), denominator=a.denominator)
