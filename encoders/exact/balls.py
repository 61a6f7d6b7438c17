"""Ball arithmetic for whole batches: arbitrarily narrow enclosures of the logits of any network (Arb, by python-flint).

A network with smooth neurons has no exact values in rational arithmetic. A `Balls` batch holds intervals
[middle +- radius] that surely contain them; undecided questions are tried again at twice as many bits. A number that is exactly 0
(tanh is odd: two neurons may cancel) cannot be decided like this: it stays undecided.
Reference: Johansson, Arb: efficient arbitrary-precision midpoint-radius interval arithmetic, IEEE Trans. Computers 66, 2017.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from weakref import WeakKeyDictionary

import numpy as np
from flint import arb, arb_mat, ctx, fmpq

from encoders.arrays import Array
from encoders.curves.layer import Curve, SmoothLayer
from encoders.network import Layer, activate, affine

PRECISIONS = (96, 192, 384, 768)
"""Precisions in bits that are tried one after the other: float32 weights and inputs are exact even with the first."""


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Context of ball arithmetic at `bits` bits."""
    saved, ctx.prec = ctx.prec, bits
    try:
        yield
    finally:
        ctx.prec = saved


@dataclass(frozen=True, kw_only=True, eq=False)
class Balls:
    """A batch (B, n) of balls; compute with it only within `precision`."""

    matrix: arb_mat

    @classmethod
    def of(cls, x: Array) -> Balls:
        """Return balls of radius 0 around finite float64 numbers (B, n)."""
        if not np.isfinite(x).all():
            raise ValueError("infinities and NaN have no exact value")
        return cls(matrix=_matrix(x))

    def rows(self) -> list[list[arb]]:
        """Return the balls, row by row."""
        n = self.matrix.ncols()
        entries = self.matrix.entries()
        return [entries[k * n : (k + 1) * n] for k in range(self.matrix.nrows())]


def ball(value: Fraction | float) -> arb:
    """Return a ball around a rational number: of radius 0 if the precision holds it, as it does all float64 numbers."""
    return arb(fmpq(value.numerator, value.denominator)) if isinstance(value, Fraction) else arb(value)


def sigmoid(a: arb) -> arb:
    """Return 1 / (1 + exp(-a)), by the exponential of a negative number, as that of a huge one overflows."""
    if a < 0:
        power = a.exp()
        return power / (1 + power)
    return 1 / (1 + (-a).exp())


def _matrix(values: Array) -> arb_mat:
    return arb_mat(*values.shape, [arb(v) for v in values.ravel().tolist()])


_LAYERS: WeakKeyDictionary[Layer, tuple[arb_mat, list[arb]]] = WeakKeyDictionary()


def _layer(layer: Layer) -> tuple[arb_mat, list[arb]]:
    """Return the weight and bias of a layer as balls of radius 0 (float64 numbers are, at any precision), converted once."""
    if layer not in _LAYERS:
        _LAYERS[layer] = _matrix(layer.weight.T), [arb(v) for v in layer.bias.tolist()]
    return _LAYERS[layer]


@affine.register
def _(x: Balls, layer: Layer) -> Balls:
    weight, bias = _layer(layer)
    rows = Balls(matrix=x.matrix * weight).rows()
    return Balls(matrix=arb_mat([[a + b for a, b in zip(row, bias, strict=True)] for row in rows]))


@activate.register
def _(a: Balls, layer: Layer) -> Balls:
    if layer.linear:
        return a
    if isinstance(layer, SmoothLayer):
        slope, curve = layer.bend.tolist(), layer.curve.tolist()
    else:
        slope, curve = layer.slope.tolist(), [Curve.BENT] * len(layer.bias)
    return Balls(matrix=arb_mat([[_curved(v, s, c) for v, s, c in zip(row, slope, curve, strict=True)] for row in a.rows()]))


def _curved(a: arb, slope: float, kind: int) -> arb:
    match kind:
        case Curve.SIGMOID:
            return sigmoid(a)
        case Curve.TANH:
            return a.tanh()
        case Curve.BENT:
            return a if slope == 1 else a.max(slope * a)
        case Curve.SQUARE:
            return a * a
        case _:
            return Curve(kind).shape.value(a)
