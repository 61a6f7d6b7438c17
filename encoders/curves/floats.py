r"""Tanh, and the curves of `shapes`, in float64 with a proved error.

A mathematical library promises no error bound for its tanh, so T is computed here from +, -, *, / and scaling by powers of two,
which IEEE 754 rounds correctly (u = 2^-53). With z = min(|t|, 20):  e = exp(-2 z),  T = sign(t) (1 - e) / (1 + e).

    exp(w), w in [-40, 0]:  k = the whole number nearest w / log 2 (|k| <= 58),  r = (w - k L1) - k L2, where L1 holds the leading
    bits of log 2, so that k L1 is exact, and L2 the rest to 2^-86: |r| < 0.35 and r is off by less than 2 u. Taylor to degree 13
    leaves out less than 0.35^14 / 14! * e^0.35 < u / 10; Horner's scheme is off by gamma_26 sum |r|^j / j! < 40 u (Higham, Accuracy
    and Stability, section 5.1), its coefficients by 2 u; relative to e^r > 0.7, with the error of r:  e is right to 65 u.
    T:   the derivative of (1 - e) / (1 + e) times e is at most 1/2: off by 33 u, the three roundings by 4 u; cutting at 20 costs
         2 e^-40 < u / 10. |error| < 40 u: `ERROR` = 64 u, which a rounding or two around it does not use up.

The other curves are given by a table of Taylor's coefficients around the middles of cells of width 1/16; ball arithmetic shows them
to leave out less than u / 2 of a value and 8 u of a derivative. |h| <= 1/32, and the coefficients of h to h^12 are at most 2 in
size: rounding them and Horner's scheme lose less than 2 u (1 + |t|) of a value and 8 u of a derivative. From 40 on a curve is
replaced by its asymptote, with an error below 8 u and a rounding. So |error| < ERROR (1 + |t|) for a value, and ERROR for a
derivative.

Reference for the method: Muller, Elementary Functions, 3rd ed. 2016, chapters 3 and 11.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from encoders.curves.shapes import CurveShape

Array = npt.NDArray[np.float64]

UNIT = 2.0**-53
ERROR = 64 * UNIT
"""The absolute error of `tanh` is at most this."""
FAR = 20.0
"""From here on T rounds to 1: 1 - T(20) < 2^-56."""

_LEADING = float.fromhex("0x1.62e42fee00000p-1")
_REST = float.fromhex("0x1.a39ef35793c76p-33")
_COEFFICIENTS = tuple(1.0 / np.cumprod(np.arange(1.0, 14.0))[::-1])


def decay(t: Array) -> Array:
    """Return exp(-2 min(|t|, 20)), right to 65 u."""
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
    """Return tanh(t), off by less than ERROR; NaN stays NaN."""
    e = decay(t)
    return np.asarray(np.copysign((1 - e) / (1 + e), t))


def shaped(t: Array, shape: CurveShape) -> tuple[Array, Array]:
    """Return T(t), off by less than ERROR (1 + |t|), and T'(t) (to the right at a joint), by less than ERROR; NaN stays NaN."""
    clipped = np.fmax(np.fmin(t, np.nextafter(shape.far, 0)), -shape.far)  # for NaN, the end of the table
    cell = np.floor(clipped * _STEPS)
    h = t - (cell + 0.5) / _STEPS
    rows = _table(shape)[cell.astype(np.int64) + shape.far * _STEPS]
    out, slope = rows[..., _DEGREE], np.zeros_like(h)
    with np.errstate(over="ignore", invalid="ignore"):  # far off, where it is not used
        for k in range(_DEGREE - 1, -1, -1):
            slope = slope * h + out
            out = out * h + rows[..., k]
    right, left = t >= shape.far, t < -shape.far
    out, slope = np.where(right, shape.rise * t, out), np.where(right, shape.rise, slope)
    return np.where(left, shape.floor, out), np.where(left, 0.0, slope)


_STEPS, _DEGREE = 16, 12


@cache
def _table(shape: CurveShape) -> Array:
    """Return Taylor's coefficients (2 far _STEPS, _DEGREE + 1) of the cells."""
    return np.array(list(shape.cells(_STEPS, _DEGREE)))
