"""Rigorous comparison of probabilities: the logistic function in ball arithmetic, and lines that suffice for a gap of logits.

For two logits a = g(x), b = g(x') and a gap 0 < epsilon < 1,

    sigma(a) - sigma(b) <= epsilon    iff    sigma(b) >= 1 - epsilon    or    a <= phi(b),    phi(b) = logit(epsilon + sigma(b)).

phi is convex: with s = sigma(b), phi'(b) = s (1 - s) / ((s + epsilon) (1 - s - epsilon)) =: h(s), and
h'/h = [1/s - 1/(s + epsilon)] + [1/(1 - s - epsilon) - 1/(1 - s)] > 0. So the pairs with a larger gap form a convex set, and every
line under phi is a *row* that misses it: a <= m b + c for some line (m, c) with c = min over b of phi(b) - m b suffices.
Sound? yes: m is any float64, c is rounded down in ball arithmetic (Arb, through python-flint).  Complete? a single line is
not; all lines together are, and `exceeds` decides single pairs exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from flint import arb

from encoders.arrays import Array
from encoders.exact.balls import ball, precision, sigmoid

LINES = 65
"""Number of lines under the curve of a gap. It must not change, as certificates name rows by their numbers."""
PRECISION = 128
"""Bits of precision at first; `exceeds` doubles them until the comparison is decided."""
MAX_PRECISION = 1 << 16
SMALLEST = 1e-9
"""Gaps nearer to 0 or 1 than this have no lines: float64 could not distinguish their slopes."""


@dataclass(frozen=True, kw_only=True)
class GapGoal:
    """sigma(g(x)) - sigma(g(x')) <= epsilon, or with the copies swapped when `rise`; sigma is the logistic function."""

    epsilon: float
    rise: bool


def _logit(p: arb) -> arb:
    return (p / (1 - p)).log()


def down(number: arb) -> float:
    """Return a float64 surely below the ball, and nearly the largest such."""
    value = float(number.lower())
    while not ball(value) <= number:
        value = float(np.nextafter(value, -np.inf))
    return value


@lru_cache(maxsize=256)
def _lines(epsilon: float, count: int) -> tuple[tuple[float, float], ...]:
    """Return (m, c) of `count` lines under phi that touch it at probabilities s = sigma(b) dense near 0 and 1 - epsilon
    (Chebyshev's points); the middle one, if count is odd, has m = 1: the largest gap that a difference a - b alone allows."""
    out = []
    with precision(PRECISION):
        gap = ball(epsilon)
        for s in (1 - epsilon) * (1 - np.cos(np.pi * np.arange(1, count + 1) / (count + 1))) / 2:
            m = float(s * (1 - s) / ((s + epsilon) * (1 - s - epsilon)))
            m = 1.0 if abs(m - 1) < 1e-9 else m
            out.append((m, down(_conjugate(gap, m))))
    return tuple(out)


def _conjugate(gap: arb, m: float) -> arb:
    """Return min over b of phi(b) - m b. It lies at h(s) = m:  (m - 1) s^2 + (1 - m + 2 m gap) s - m gap (1 - gap) = 0, solved in
    the form that stays exact at m = 1."""
    slope = ball(m)
    linear = 1 - slope + 2 * slope * gap
    constant = slope * gap * (1 - gap)
    # h(s) = m means s (1 - s) = m (s + gap) (1 - s - gap), i.e. (m - 1) s^2 + linear s - constant = 0, its root in (0, 1 - gap).
    root = (linear * linear + 4 * (slope - 1) * constant).sqrt()
    s = 2 * constant / (linear + root)
    return _logit(s + gap) - slope * _logit(s)


def require_gap(epsilon: float) -> None:
    """Raise ValueError unless SMALLEST <= epsilon <= 1 - SMALLEST."""
    if not SMALLEST <= epsilon <= 1 - SMALLEST:
        raise ValueError(f"epsilon = {epsilon}: a gap between probabilities lies strictly between 0 and 1 ({SMALLEST} from either)")


def gap_rows(epsilon: float, *, rise: bool, count: int = LINES) -> tuple[Array, Array]:
    """Return rows (R, 2) and constants (R,) of the goal "gap at most epsilon": each is sufficient.

    For the fall g(x) over g(x'):  -a + m b + c >= 0, and the two limits  a <= logit(epsilon)  and  b >= logit(1 - epsilon).
    Raises ValueError unless SMALLEST <= epsilon <= 1 - SMALLEST.
    """
    require_gap(epsilon)
    with precision(PRECISION):
        low, high = down(_logit(ball(epsilon))), down(-_logit(1 - ball(epsilon)))
    rows = [(-1.0, 0.0, low), (0.0, 1.0, high), *((-1.0, m, c) for m, c in _lines(epsilon, count))]
    table = np.array(rows)
    return (table[:, 1::-1] if rise else table[:, :2]).copy(), table[:, 2].copy()


def exceeds(a: Fraction, b: Fraction, epsilon: Fraction | float) -> bool:
    """Return True if sigma(a) - sigma(b) > epsilon, exactly, for rational a, b and epsilon.

    For epsilon != 0 equality is impossible where a != b: it would be a polynomial relation among 1, e^a, e^b and e^(a+b), which
    Lindemann-Weierstrass excludes. So more precision always decides; epsilon = 0 is the sign of a - b.

    Raises OverflowError beyond MAX_PRECISION bits.
    """
    if epsilon <= 0 and a == b:
        return epsilon < 0
    if epsilon == 0:
        return a > b
    if 2 * epsilon == 1 and (a == 0 or b == 0):
        return False  # 1/2 is reached only at infinity: the one case in which the two sides come arbitrarily close
    bits = PRECISION
    while bits <= MAX_PRECISION:
        with precision(bits):
            difference = sigmoid(ball(a)) - sigmoid(ball(b)) - ball(epsilon)
            if difference > 0:
                return True
            if difference < 0:
                return False
        bits *= 2
    raise OverflowError(f"sigma({float(a)}) - sigma({float(b)}) cannot be separated from {float(epsilon)}")


STEEPEST = 2.0**30
"""Steepest slope of a line; a solver could not distinguish a steeper one from a bound."""


def line_of(epsilon: float, m: float) -> float:
    """Return c of the line of slope m under phi: a <= m b + c is sufficient for a gap of at most epsilon.

    Sound? yes: c = min over b of phi(b) - m b, rounded down.
    Raises ValueError unless SMALLEST <= epsilon <= 1 - SMALLEST and 1 / STEEPEST <= m <= STEEPEST.
    """
    require_gap(epsilon)
    if not 1 / STEEPEST <= m <= STEEPEST:
        raise ValueError(f"m = {m}: expected a slope between {1 / STEEPEST:g} and {STEEPEST:g}")
    with precision(PRECISION):
        return down(_conjugate(ball(epsilon), m))
