"""Exact arithmetic for whole batches: numbers of the form (integer) * 2^exponent, held as limbs in float64 arrays.

Float32 weights and float32 inputs are dyadic rationals, and so are all values of a piecewise-linear network on them. A
`Dyadic` holds a batch of them as  value = 2^exponent * sum_k limb[k] * 2^(k * BITS)  with whole-number limbs, so a matrix
product is a handful of ordinary BLAS products of limbs whose every entry stays below 2^53: no rounding at all takes place
(the error-free splitting of Ozaki, Ogita, Oishi and Rump, Numer. Algorithms 59, 2012). This is how witnesses are evaluated
exactly, thousands at a time; `Fraction` object arrays through the same `Network.forward` are the slow reference that it is
tested against.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from encoders.arrays import Array, Integers
from encoders.network import Layer, activate, affine

BITS = 21
"""Bits of a limb: float32 weights of one layer mostly fit two. Products of limbs are at most 2^42 in size, so ..."""
TERMS = 1 << 10
"""... this many of them add up below 2^52, where float64 is exact; after that, carry."""

_BASE = float(1 << BITS)


@dataclass(frozen=True, kw_only=True, eq=False)
class Dyadic:
    """A batch of exact numbers. limbs: (K, ...) float64 whole numbers, all in [0, 2^BITS) but the top one, which is signed."""

    limbs: Array
    exponent: int

    @property
    def sign(self) -> Integers:
        """-1, 0 or 1 for every number, exactly. With lower limbs in [0, 2^BITS) the top limb's sign decides, unless it is 0."""
        top, rest = self.limbs[-1], self.limbs[:-1]
        return np.where(top < 0, -1, np.where((top > 0) | (rest > 0).any(axis=0), 1, 0)).astype(np.int64)

    def to_float(self) -> Array:
        """Return the nearest float64 up to a few rounding errors: for display, never for a decision."""

        def summed(number: Dyadic) -> Array:
            powers = np.arange(len(number.limbs)) * BITS + number.exponent
            return np.asarray(np.ldexp(number.limbs, powers.reshape(-1, *[1] * (number.limbs.ndim - 1))).sum(axis=0))

        with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # a negative number's limbs would cancel
            return np.where(self.limbs[-1] < 0, -summed(-self), summed(self))

    def to_fractions(self) -> npt.NDArray[np.object_]:
        """Return Python fractions of the same values."""
        flat = self.limbs.reshape(len(self.limbs), -1)
        scale = Fraction(2) ** self.exponent
        values = [scale * sum(int(limb) << (BITS * k) for k, limb in enumerate(column)) for column in flat.T]
        return np.array(values, dtype=object).reshape(self.limbs.shape[1:])

    def __getitem__(self, index: object) -> Dyadic:
        """Return the numbers at an index of the batch (not of the limbs)."""
        return Dyadic(limbs=self.limbs[(slice(None), *(index if isinstance(index, tuple) else (index,)))], exponent=self.exponent)

    def __add__(self, other: Dyadic) -> Dyadic:
        return _carried(*_sum(self, other))

    def __neg__(self) -> Dyadic:
        return _carried(-self.limbs, self.exponent)

    def __sub__(self, other: Dyadic) -> Dyadic:
        return self + (-other)

    def __mul__(self, other: Dyadic) -> Dyadic:
        """Return the elementwise product, with broadcasting."""
        shape = np.broadcast_shapes(self.limbs.shape[1:], other.limbs.shape[1:])
        total = np.zeros((len(self.limbs) + len(other.limbs) - 1, *shape))
        for i, limb in enumerate(self.limbs):
            for j, factor in enumerate(other.limbs):
                total[i + j] += limb * factor
        return _carried(total, self.exponent + other.exponent)


def exact(values: Array) -> Dyadic:
    """Return the exact `Dyadic` of a finite float64 array: no rounding, whatever the spread of magnitudes."""
    values = np.asarray(values, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("infinities and NaN have no exact value")
    largest = np.abs(values).max(initial=0.0)
    if largest == 0:
        return Dyadic(limbs=np.zeros((1, *values.shape)), exponent=0)
    # Peel limbs off the top: the leading bits of a float64 and what they leave are float64 numbers themselves.
    exponent, rest, limbs = int(np.frexp(largest)[1]), values, []
    while rest.any():
        exponent -= BITS
        limb = np.trunc(np.ldexp(rest, -exponent))
        rest = rest - np.ldexp(limb, exponent)
        limbs.append(limb)
    return _carried(np.array(limbs[::-1]), exponent)


def total(number: Dyadic, axis: int) -> Dyadic:
    """Return the sums along an axis of the batch (not of the limbs), of up to 2^31 numbers."""
    return _carried(number.limbs.sum(axis=axis + 1), number.exponent)


def _sum(a: Dyadic, b: Dyadic) -> tuple[Array, int]:
    """Return limbs of a + b over the smaller exponent, not yet carried; broadcasts over the numbers."""
    low = min(a.exponent, b.exponent)
    parts = _shifted(a, low), _shifted(b, low)
    total = np.zeros((max(map(len, parts)), *np.broadcast_shapes(a.limbs.shape[1:], b.limbs.shape[1:])))
    for part in parts:
        for k, limb in enumerate(part):
            total[k] += limb
    return total, low


def _carried(limbs: Array, exponent: int) -> Dyadic:
    """Bring limbs of any size below 2^53 into range: all but the top in [0, 2^BITS), the top signed and below 2^BITS in size."""
    out = []
    carry = np.zeros(limbs.shape[1:])
    for limb in limbs:
        total = limb + carry
        carry = np.floor(total * (1 / _BASE))
        out.append(np.subtract(total, carry * _BASE, out=total))
    while carry.size and (np.abs(carry) >= _BASE).any():
        total = carry
        carry = np.floor(total / _BASE)
        out.append(total - carry * _BASE)
    out.append(carry)
    # A top limb of -1 over a limb that would fit signed, or of 0, is redundant: merge it to keep numbers short.
    while len(out) > 1 and not (out[-1] != 0).any():
        out.pop()
    if len(out) > 1 and ((out[-1] == 0) | (out[-1] == -1)).all():
        top = out.pop()
        out[-1] = out[-1] + top * _BASE
    return Dyadic(limbs=np.array(out), exponent=exponent)


def _shifted(number: Dyadic, exponent: int) -> Array:
    """Return limbs of the same numbers over a smaller or equal exponent."""
    places, bits = divmod(number.exponent - exponent, BITS)
    limbs = number.limbs * float(1 << bits) if bits else number.limbs
    if not places:
        return limbs
    return np.concatenate([np.zeros((places, *limbs.shape[1:])), limbs])


_LAYERS: WeakKeyDictionary[Layer, tuple[Dyadic, Dyadic, Dyadic]] = WeakKeyDictionary()


def _exact_layer(layer: Layer) -> tuple[Dyadic, Dyadic, Dyadic]:
    """Return weight, bias and slope of a layer, converted once: the conversion costs more than one product."""
    if layer not in _LAYERS:
        _LAYERS[layer] = exact(layer.weight), exact(layer.bias), exact(layer.slope)
    return _LAYERS[layer]


@affine.register
def _(x: Dyadic, layer: Layer) -> Dyadic:
    return weighted(x, layer, exact_bias(layer))


def exact_bias(layer: Layer) -> Dyadic:
    return _exact_layer(layer)[1]


def weighted(x: Dyadic, layer: Layer, bias: Dyadic) -> Dyadic:
    """x W^T + bias with the layer's weights."""
    weight = _exact_layer(layer)[0]
    exponent = x.exponent + weight.exponent
    first, *others = _parts(x.limbs, weight.limbs)
    if not others and bias.exponent >= exponent:  # one carry serves product and bias
        return _carried(*_sum(Dyadic(limbs=first, exponent=exponent), bias))
    total = _carried(first, exponent)
    for part in others:
        total = total + _carried(part, exponent)
    return total + bias


def _parts(x: Array, weight: Array) -> Iterator[Array]:
    """Yield limbs of x W^T (K + L - 1, B, m), in parts none of which sums more than TERMS products of limbs into one number.

    Tiny weights stretch the limbs, but they sit on few columns, often on dead neurons: only columns that are not 0 are multiplied.
    """
    x_used, weight_used = np.asarray(x.any(axis=1)), np.asarray(weight.any(axis=1))
    shape = (len(x) + len(weight) - 1, x.shape[1], weight.shape[1])
    total, terms = np.zeros(shape), np.zeros(shape[0], dtype=np.int64)
    for i, j in product(range(len(x)), range(len(weight))):
        nonzero = np.flatnonzero(x_used[i] & weight_used[j])
        for start in range(0, len(nonzero), TERMS):
            columns = nonzero[start : start + TERMS]
            if terms[i + j] + len(columns) > TERMS:
                yield total
                total, terms = np.zeros(shape), np.zeros(shape[0], dtype=np.int64)
            is_dense = len(columns) == len(nonzero) and 2 * len(columns) > x.shape[2]
            total[i + j] += x[i] @ weight[j].T if is_dense else x[i][:, columns] @ weight[j][:, columns].T
            terms[i + j] += len(columns)
    yield total


@activate.register
def _(a: Dyadic, layer: Layer) -> Dyadic:
    if layer.linear:
        return a
    positive = (a.sign > 0).astype(np.float64)
    active = Dyadic(limbs=a.limbs * positive, exponent=a.exponent)
    if not layer.slope.any():
        return active
    return active + Dyadic(limbs=a.limbs * (1 - positive), exponent=a.exponent) * _exact_layer(layer)[2]
