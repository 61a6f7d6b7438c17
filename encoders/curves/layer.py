"""Layers of smooth neurons: tanh and sigmoid, and the curves of `encoders.curves.shapes`.

sigma(a) = 1/2 + tanh(a / 2) / 2, so with T = tanh a neuron is  y = c + p T(q a), where (q, p, c) is (1/2, 1/2, 1/2) for a sigmoid
and (1, 1, 0) for a tanh; halving is exact. The other curves are used as they are. One of them is the square, of which products
are made:  x y = ((x + y)^2 - (x - y)^2) / 4.  It is no `CurveShape`: nothing about it needs a table, or a proof.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from encoders.arrays import Array, Booleans, Integers
from encoders.errors import CurveError
from encoders.network import ONLY_BENT, Layer

if TYPE_CHECKING:
    from encoders.curves.shapes import CurveShape

Kinds = npt.NDArray[np.int8]


class Curve(IntEnum):
    """The activation of a neuron: BENT (piecewise linear), or a smooth curve."""

    BENT = 0
    SIGMOID = 1
    TANH = 2
    SOFTPLUS = 3
    ELU = 4
    SELU = 5
    SILU = 6
    GELU = 7
    GELU_TANH = 8
    MISH = 9
    HARDSWISH = 10
    SQUARE = 11

    @property
    def shape(self) -> CurveShape:
        """The shape of a curve that is neither bent, nor made of tanh, nor a square; loaded only when needed."""
        from encoders.curves.shapes import SHAPES

        return SHAPES[self.name.lower()]

    @property
    def shown(self) -> str:
        if Curve.TANH < self != Curve.SQUARE:
            return self.shape.shown
        return {Curve.BENT: "piecewise linear", Curve.SIGMOID: "sigmoid", Curve.TANH: "tanh"}.get(self, "square")

    @property
    def joints(self) -> tuple[float, ...]:
        """The joints between formulas of a curve that is neither bent nor made of tanh."""
        return () if self == Curve.SQUARE else self.shape.joints

    def at(self, t: Array) -> tuple[Array, Array]:
        """Return the curve and its slope at t in float64, for one that is neither bent nor made of tanh."""
        from encoders.curves.floats import shaped

        if self != Curve.SQUARE:
            return shaped(t, self.shape)
        with np.errstate(over="ignore"):
            return t * t, 2 * t


@dataclass(frozen=True, kw_only=True, eq=False, init=False)
class SmoothLayer(Layer):
    """A layer with smooth neurons: curve (m,) is their kind (`Curve`), bend (m,) is the slope of those that are BENT
    (residual connections carry identity neurons beside smooth ones) and 1 for the others.

    Reading `slope` raises CurveError: see `encoders.network`.
    """

    bend: Array
    curve: Kinds

    def __init__(self, *, weight: Array, bias: Array, bend: Array, curve: Kinds) -> None:
        for name, value in (("weight", weight), ("bias", bias), ("bend", bend), ("curve", curve)):
            object.__setattr__(self, name, value)  # as dataclasses set the fields of what is frozen
        Layer(weight=weight, bias=bias, slope=bend)  # applies the same checks
        if curve.shape != bias.shape or not np.isin(curve, [kind.value for kind in Curve]).all() or not curve.any():
            raise ValueError(f"curve {curve!r}: expected a kind for each of {len(bias)} neurons, not all of them bent")

    @property  # type: ignore[misc]
    def slope(self) -> Array:
        raise CurveError("network", f"it has {self.shown} neurons in a hidden layer. {ONLY_BENT}")

    @property
    def linear(self) -> bool:
        return False

    @property
    def piecewise_linear(self) -> bool:
        return False

    def activated(self, a: Array) -> Array:
        return np.where(self.curve == Curve.BENT, np.where(a > 0, a, self.bend * a), value(a, self.curve))

    @property
    def smooth(self) -> Booleans:
        """(m,) True for neurons that are curves."""
        return np.asarray(self.curve != Curve.BENT)

    @property
    def shaped(self) -> Booleans:
        """(m,) True for neurons neither bent nor made of tanh. Except for squares |y| <= 2 |a| + 1, and slopes are -1/2 to 1.76."""
        return np.asarray(self.curve > Curve.TANH)

    @property
    def squared(self) -> Booleans:
        """(m,) True for neurons that are squares."""
        return np.asarray(self.curve == Curve.SQUARE)

    def groups(self) -> list[tuple[Curve, Integers]]:
        """Return the `shaped` neurons by their curves: kind and positions."""
        return [(Curve(kind), np.flatnonzero(self.curve == kind)) for kind in np.unique(self.curve[self.shaped])]

    @property
    def sigmoid(self) -> Booleans:
        """(m,) True for neurons that are sigmoids."""
        return np.asarray(self.curve == Curve.SIGMOID)

    @property
    def shown(self) -> str:
        """The kinds of its curves, for messages."""
        return " and ".join(Curve(kind).shown for kind in np.unique(self.curve[self.curve != Curve.BENT]))


def value(a: Array, kind: Kinds) -> Array:
    """Return the curves at a (..., m) by neuron kinds (m,), in float64; numbers of BENT neurons are meaningless."""
    from encoders.curves.floats import tanh  # the checker computes no tanh in float64

    q, p, c = parts(kind)
    out = c + p * tanh(q * a) if (kind <= Curve.TANH).any() else np.empty_like(a)
    for number in np.unique(kind[kind > Curve.TANH]):
        out[..., kind == number] = Curve(number).at(a[..., kind == number])[0]
    return np.asarray(out)


def parts(kind: Kinds) -> tuple[Array, Array, Array]:
    """Return (q, p, c) of the neurons (m,):  y = c + p T(q a)."""
    half = np.where(kind == Curve.SIGMOID, 0.5, 1.0)
    return half, half, np.where(kind == Curve.SIGMOID, 0.5, 0.0)
