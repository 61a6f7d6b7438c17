"""The curves beside tanh and sigmoid: their definitions in ball arithmetic, and the facts about their shapes that bounds rest on.

All of them are concave up to z1, convex from z1 to z2, concave from z2 on (either may be infinite), so that T' falls, rises and
falls: its least value is that at z1, its largest that at z2. They fall up to `lowest` and rise from there on. Far to the left they
become the constant `floor`, far to the right the line  rise * t.  T' jumps down by kink at z1 and z2, where these are finite.

    softplus   log(1 + exp t)               Dugas et al., NeurIPS 2000
    elu        t, exp t - 1 below 0         Clevert et al., ICLR 2016
    selu       gamma t, gamma alpha (exp t - 1) below 0, with the numbers of ONNX        Klambauer et al., NeurIPS 2017
    silu       t / (1 + exp -t)             also called swish; Elfwing et al., Neural Networks 107, 2018
    gelu       t (1 + erf(t / sqrt 2)) / 2, or with  tanh(sqrt(2 / pi) (t + 0.044715 t^3))  for erf     Hendrycks and Gimpel, 2016
    mish       t tanh(softplus t)           Misra, BMVC 2020
    hardswish  t min(max(t / 6 + 1 / 2, 0), 1)         Howard et al., ICCV 2019

`cells` proves these facts whenever a table of a curve is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import perm
from typing import Any

import numpy as np
from flint import arb, arb_series, ctx, fmpq

INFINITE = float("inf")
ALPHA, GAMMA = 1.67326319217681884765625, 1.05070102214813232421875
"""The constants of SELU: the defaults of its ONNX operator, which are float32 numbers."""
BITS = 128


@dataclass(frozen=True, kw_only=True)
class CurveShape:
    """formula(x, at): T of a ball or power series x by the formula that holds around the float `at`, which joints separate.

    z1, z2, lowest, kink, floor, rise: see the head of this file.   slopes: T' is within.   least: T is at least this.
    bend, twist: |T''| and |T'''| are at most this where they exist; infinite where T'' jumps.   far: beyond it T is its asymptote.
    """

    shown: str
    formula: Callable[[Any, float], Any]
    joints: tuple[float, ...] = ()
    z1: float = -INFINITE
    z2: float = INFINITE
    lowest: float = -INFINITE
    least: float = 0.0
    slopes: tuple[float, float] = (0.0, 1.0)
    kink: float = 0.0
    floor: float = 0.0
    rise: float = 1.0
    bend: float
    twist: float = INFINITE
    far: int = 40

    def value(self, x: arb) -> arb:
        """Return T(x) for every number of the ball x, where the pieces that it reaches are joined."""
        if not self.joints:
            return self.formula(x, float(x.mid()))
        out, ends = None, [-INFINITE, *self.joints, INFINITE]
        for low, high in pairwise(ends):
            if not (x < low or x > high):
                piece = self.formula(x if low < x < high else x.max(arb(low)).min(arb(high)), min(max(0.0, low + 1), high - 1))
                out = piece if out is None else out.union(piece)
        return out

    def cells(self, steps: int, degree: int) -> Iterator[list[float]]:
        """Yield Taylor's coefficients of T, rounded, low ones first, at the middles of cells [j, j + 1] / steps from -far to far.

        Raises ArithmeticError unless ball arithmetic shows that they leave out less than 2^-54 of T in a cell and 2^-50 of T', and
        that all facts hold: in the cells, so that T' falls, rises and falls, and at the few points that these are about.
        """
        saved, ctx.prec = ctx.prec, BITS
        try:
            half, sure = arb(fmpq(1, 2 * steps)), self._points()
            for j in range(-self.far * steps, self.far * steps):
                middle, low, high = (j + 0.5) / steps, j / steps, (j + 1) / steps
                centre, whole = (self.series(arb(middle, radius), degree + 2, middle) for radius in (0, half))
                rest = abs(whole[degree + 1]).upper() * half**degree
                derivatives = _derivatives([*centre[: degree + 1], whole[degree + 1]], arb(0, half))
                if not (sure and rest * half < 2.0**-54 and rest * (degree + 1) < 2.0**-50 and self._holds(derivatives, low, high)):
                    raise ArithmeticError(f"what is said of {self.shown} does not hold around {middle}")
                yield [float(centre[k].mid()) for k in range(degree + 1)]
        finally:
            ctx.prec = saved

    def series(self, x: arb, terms: int, at: float) -> list[arb]:
        """Return Taylor's coefficients around all points of a ball, by the formula that holds around `at`."""
        saved, ctx.cap = ctx.cap, terms
        try:
            series = self.formula(arb_series([x, 1], terms), at)
            return [arb(series[k]) for k in range(terms)]
        finally:
            ctx.cap = saved

    def _holds(self, derivatives: list[arb], low: float, high: float) -> bool:
        """Return True if the facts hold on a cell on which the first three derivatives lie in these balls. Numbers below 2^-64
        count as 0: over the whole table they add up to less than 2^-53."""
        first, second, third = derivatives
        tolerance = 2.0**-64
        if low < self.z1 < high or low < self.z2 < high:
            turns = third > 0 if self.z1 > low else third < 0
        else:
            turns = second >= -tolerance if self.z1 <= low and high <= self.z2 else second <= tolerance
        rises = first >= -tolerance if low > self.lowest else first <= tolerance if high < self.lowest else second > 0
        return bool(turns and rises and abs(second) <= self.bend + 2.0**-20 and abs(third) <= self.twist + 2.0**-20)

    def _points(self) -> bool:
        """Return True if the facts about single points hold to 2^-50; everything that uses them has more room than that."""

        def near(x: float, k: int, at: float, expected: float) -> bool:
            return bool(abs(self.series(arb(x), 4, at)[k] - arb(expected)) < 2.0**-50)

        far = self.far
        facts = [near(-far, 0, -far, self.floor), near(-far, 1, -far, 0), near(far, 0, far, far * self.rise)]
        facts.append(near(far, 1, far, self.rise))
        for z, slope, side in ((self.z1, self.slopes[0], 1), (self.z2, self.slopes[1], -1)):
            if np.isfinite(z):
                facts.append(near(z, 1, z + side, slope))
                if not self.kink:  # the sign of T'' changes within 2^-50 of it
                    facts += [bool(side * d * self.series(arb(z) + arb(d) * 2.0**-50, 4, z)[2] > 0) for d in (-1, 1)]
        for joint in self.joints:
            left, right = (self.series(arb(joint), 4, joint + side) for side in (-1, 1))
            jump = self.kink if joint in (self.z1, self.z2) else 0.0
            facts += [bool(left[0] == right[0]), bool(abs(left[1] - right[1] - jump) < 2.0**-50)]
        facts.append(not self.kink or {z for z in (self.z1, self.z2) if np.isfinite(z)} <= set(self.joints))
        if np.isfinite(self.lowest):
            facts += [near(self.lowest, 0, self.lowest, self.least), near(self.lowest, 1, self.lowest, 0)]
        return all(facts)


def _derivatives(coefficients: list[arb], step: arb) -> list[arb]:
    """Return the first three derivatives within `step` of the point of these Taylor coefficients, the last of which covers all."""
    out = []
    for order in (1, 2, 3):
        total = arb(0)
        for k in range(len(coefficients) - 1, order - 1, -1):
            total = total * step + perm(k, order) * coefficients[k]
        out.append(total)
    return out


def _by_exponential(x: Any, z: Any, at: float) -> Any:
    """x / (1 + exp(-z)), z of the sign of `at`: by the exponential of a negative number."""
    return x / (1 + (-z).exp()) if at > 0 else x * z.exp() / (1 + z.exp())


def _softplus(x: Any, at: float) -> Any:
    return x + (1 + (-x).exp()).log() if at > 0 else (1 + x.exp()).log()


def _elu(x: Any, at: float) -> Any:
    return x if at > 0 else x.exp() - 1


def _selu(x: Any, at: float) -> Any:
    return arb(GAMMA) * x if at > 0 else arb(GAMMA) * arb(ALPHA) * (x.exp() - 1)


def _gelu(x: Any, at: float) -> Any:
    return x * (-x / arb(2).sqrt()).erfc() / 2


def _gelu_tanh(x: Any, at: float) -> Any:
    return _by_exponential(x, (x + x * x * x * arb(fmpq(44715, 1000000))) * (arb(8) / arb.pi()).sqrt(), at)


def _mish(x: Any, at: float) -> Any:
    """With e = exp x, tanh(log(1 + e)) = e (e + 2) / (e (e + 2) + 2)."""
    e = (-x).exp() if at > 0 else x.exp()
    return x * (1 + 2 * e) / (1 + 2 * e + 2 * e * e) if at > 0 else x * e * (e + 2) / (e * (e + 2) + 2)


def _hardswish(x: Any, at: float) -> Any:
    return x * (x / 6 + arb(fmpq(1, 2))) if -3 < at < 3 else x if at > 0 else x * 0


SHAPES = {
    "softplus": CurveShape(shown="softplus", formula=_softplus, bend=0.252, twist=0.1),
    "elu": CurveShape(shown="ELU", formula=_elu, joints=(0.0,), floor=-1.0, bend=1.0),
    "selu": CurveShape(
        shown="SELU", formula=_selu, joints=(0.0,), z2=0.0, slopes=(0.0, GAMMA * ALPHA), kink=GAMMA * (ALPHA - 1),
        floor=-GAMMA * ALPHA, rise=GAMMA, bend=GAMMA * ALPHA,
    ),
    "silu": CurveShape(
        shown="SiLU", formula=lambda x, at: _by_exponential(x, x, at), z1=-2.3993572805154676678, z2=2.3993572805154676678,
        slopes=(-0.099839320128866916958, 1.099839320128866916958), lowest=-1.2784645427610737951, least=-0.27846454276107379511,
        bend=0.501, twist=0.32,
    ),
    "gelu": CurveShape(
        shown="GELU", formula=_gelu, z1=-1.4142135623730950488, z2=1.4142135623730950488,
        slopes=(-0.12890414518515478634, 1.12890414518515478634), lowest=-0.75179152469356445746, least=-0.16997120747990366169,
        bend=0.8, twist=0.8,
    ),
    "gelu_tanh": CurveShape(
        shown="GELU (tanh)", formula=_gelu_tanh, z1=-1.4185040087908283555, z2=1.4185040087908283555,
        slopes=(-0.12899306865877176546, 1.12899306865877176546), lowest=-0.75246142207101625849, least=-0.17004075057125405064,
        bend=0.8, twist=0.8,
    ),
    "mish": CurveShape(
        shown="Mish", formula=_mish, z1=-2.2563763963607931200, z2=1.4905711794854284593,
        slopes=(-0.11252612238946255641, 1.0884981612517278612), lowest=-1.1924312145154952121, least=-0.30884341301725040663,
        bend=0.65, twist=0.61,
    ),
    "hardswish": CurveShape(
        shown="HardSwish", formula=_hardswish, joints=(-3.0, 3.0), z1=-3.0, z2=3.0, slopes=(-0.5, 1.5), kink=0.5, lowest=-1.5,
        least=-0.375, bend=1 / 3,
    ),
}
