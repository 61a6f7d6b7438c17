r"""Layers of sigmoid and tanh neurons, in float64 with a proved error, from basic operations alone.

Both are one curve: sigma(a) = 1/2 + tanh(a / 2) / 2, and halving is exact. So with T = tanh a neuron is  y = c + p T(q a), where
(q, p, c) is (1/2, 1/2, 1/2) for a sigmoid and (1, 1, 0) for a tanh, and everything here and in `encoders.bounds` is about T alone.

A mathematical library promises no error bound for its tanh, so T is computed here from +, -, *, / and scaling by powers of two,
which IEEE 754 rounds correctly (u = 2^-53). With z = min(|t|, 20):  e = exp(-2 z),  T = sign(t) (1 - e) / (1 + e).

    exp(w), w in [-40, 0]:  k = the whole number nearest w / log 2 (|k| <= 58),  r = (w - k L1) - k L2, where L1 holds the leading
    bits of log 2, so that k L1 is exact, and L2 the rest to 2^-86: |r| < 0.35 and r is off by less than 2 u. Taylor to degree 13
    leaves out less than 0.35^14 / 14! * e^0.35 < u / 10; Horner's scheme is off by gamma_26 sum |r|^j / j! < 40 u (Higham, Accuracy
    and Stability, section 5.1), its coefficients by 2 u; relative to e^r > 0.7, with the error of r:  e is right to 65 u.
    T:   the derivative of (1 - e) / (1 + e) times e is at most 1/2: off by 33 u, the three roundings by 4 u; cutting at 20 costs
         2 e^-40 < u / 10. |error| < 40 u: `ERROR` = 64 u, which a rounding or two around it does not use up.

Reference for the method: Muller, Elementary Functions, 3rd ed. 2016, chapters 3 and 11.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from encoders.errors import CurveError
from encoders.network import ONLY_BENT, Array, Booleans, Layer

Kinds = npt.NDArray[np.int8]

UNIT = 2.0**-53
ERROR = 64 * UNIT
"""The absolute error of `tanh` is at most this."""
FAR = 20.0
"""From here on T rounds to 1: 1 - T(20) < 2^-57."""

_LEADING = float.fromhex("0x1.62e42fee00000p-1")
_REST = float.fromhex("0x1.a39ef35793c76p-33")
_COEFFICIENTS = tuple(1.0 / np.cumprod(np.arange(1.0, 14.0))[::-1])


class Curve(IntEnum):
    """What a neuron does to its pre-activation: bend (or nothing at all), or a smooth curve."""

    BENT = 0
    SIGMOID = 1
    TANH = 2

    @property
    def shown(self) -> str:
        return {Curve.BENT: "piecewise linear", Curve.SIGMOID: "sigmoid", Curve.TANH: "tanh"}[self]


@dataclass(frozen=True, kw_only=True, eq=False, init=False)
class SmoothLayer(Layer):
    """A layer with sigmoid or tanh neurons: curve (m,) says which (`Curve`), bend (m,) is the slope of those that are BENT
    (residual connections carry identity neurons beside smooth ones) and 1 for the others.

    Reading `slope` raises CurveError: see `encoders.network`.
    """

    bend: Array
    curve: Kinds

    def __init__(self, *, weight: Array, bias: Array, bend: Array, curve: Kinds) -> None:
        for name, given in (("weight", weight), ("bias", bias), ("bend", bend), ("curve", curve)):
            object.__setattr__(self, name, given)  # as dataclasses set the fields of what is frozen
        Layer(weight=weight, bias=bias, slope=bend)  # the same must hold
        if curve.shape != bias.shape or not np.isin(curve, [one.value for one in Curve]).all() or not curve.any():
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
        """(m,) which neurons are curves."""
        return np.asarray(self.curve != Curve.BENT)

    @property
    def sigmoid(self) -> Booleans:
        """(m,) which neurons are sigmoids."""
        return np.asarray(self.curve == Curve.SIGMOID)

    @property
    def shown(self) -> str:
        """The kinds of its curves, for messages."""
        return " and ".join(Curve(kind).shown for kind in np.unique(self.curve[self.curve != Curve.BENT]))


def decay(t: Array) -> Array:
    """exp(-2 min(|t|, 20)), right to 65 u."""
    w = -2.0 * np.minimum(np.abs(t), FAR)
    k = np.rint(w * (1 / (_LEADING + _REST)))
    r = (w - k * _LEADING) - k * _REST
    out = r * _COEFFICIENTS[0]
    for coefficient in _COEFFICIENTS[1:]:
        out += coefficient
        out *= r
    out += 1.0
    with np.errstate(invalid="ignore"):  # NaN stays NaN
        return np.asarray(np.ldexp(out, np.nan_to_num(k).astype(np.int32)))


def tanh(t: Array) -> Array:
    """tanh(t), off by less than ERROR; NaN stays NaN."""
    e = decay(t)
    return np.asarray(np.copysign((1 - e) / (1 + e), t))


def value(a: Array, kind: Kinds) -> Array:
    """Sigmoid or tanh of a (..., m) by neuron kinds (m,), in float64; numbers of BENT neurons are meaningless."""
    q, p, c = parts(kind)
    return np.asarray(c + p * tanh(q * a))


def parts(kind: Kinds) -> tuple[Array, Array, Array]:
    """(q, p, c) of the neurons (m,):  y = c + p T(q a)."""
    half = np.where(kind == Curve.SIGMOID, 0.5, 1.0)
    return half, half, np.where(kind == Curve.SIGMOID, 0.5, 0.0)
