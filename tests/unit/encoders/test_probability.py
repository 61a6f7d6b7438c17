"""The curve of probability gaps against arithmetic of its own: decimals of many digits, and balls of 400 bits at many points."""

from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from encoders.buckets import bucket
from encoders.probability.logistic import SMALLEST, exceeds, gap_rows, line_of
from encoders.programs.rows import line_at
from verifair.engine.gap.maximise import gap_bounds

EPSILONS = (SMALLEST, 1e-6, 0.001, 0.05, 0.3, 0.5, 0.9, 0.999, 1 - SMALLEST)
DIGITS = 120
logits = st.floats(-800, 800) | st.floats(-1e-12, 1e-12) | st.sampled_from([0.0, 1e-300, -1000.0, 1000.0, 5e3])


def sigma(a: Fraction) -> Decimal:
    with localcontext(Context(prec=DIGITS + 20, Emin=-(10**8), Emax=10**8)):
        return 1 / (1 + (-Decimal(a.numerator) / Decimal(a.denominator)).exp())


def difference(a: Fraction, b: Fraction, epsilon: float) -> Decimal:
    with localcontext(Context(prec=DIGITS)):
        return sigma(a) - sigma(b) - Decimal(epsilon)


def ball(value: float) -> arb:
    exact = Fraction(value)
    return arb(fmpq(exact.numerator, exact.denominator))


def room(epsilon: float, b: float, m: float, c: float) -> arb | None:
    """phi(b) - (m b + c) in 400 bits; None where phi is infinite."""
    s = 1 / (1 + (-ball(b)).exp())
    rest = 1 - s - ball(epsilon)
    return ((ball(epsilon) + s) / rest).log() - ball(m) * ball(b) - ball(c) if rest > 0 else None


def points(epsilon: float) -> np.ndarray:
    """b all over where phi is finite, dense near its right end, where it turns to infinity."""
    end = float(np.log1p(-epsilon) - np.log(epsilon))
    return np.concatenate([np.linspace(-60, end, 80), end - np.logspace(-12, 2.5, 60)])


@pytest.fixture(autouse=True)
def _many_bits() -> object:
    before, ctx.prec = ctx.prec, 400
    yield
    ctx.prec = before


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("rise", [False, True])
def test_lines_stay_under_the_curve_and_touch_it(epsilon: float, rise: bool) -> None:
    rows, constants = gap_rows(epsilon, rise=rise)
    assert np.isfinite(rows).all()
    assert np.isfinite(constants).all()
    lines = [(q, c) for (p, q), c in zip(rows[:, ::-1] if rise else rows, constants, strict=True) if p == -1 and q > 0]
    assert len(lines) == 65
    assert min(abs(m - 1) for m, _ in lines) < 1e-6
    for m, c in lines:
        left = [one for b in points(epsilon) if (one := room(epsilon, float(b), m, c)) is not None]
        assert all(one > 0 for one in left)
        assert float(min(float(one.mid()) for one in left)) < 0.3 * max(1.0, m)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("rise", [False, True])
def test_every_row_suffices(epsilon: float, rise: bool) -> None:
    """At the very edge of each half-plane the gap is not exceeded; a little beyond the two limits it is."""
    rows, constants = gap_rows(epsilon, rise=rise)
    for (p, q), c in zip(rows[:, ::-1] if rise else rows, constants, strict=True):
        for b in points(epsilon)[::12]:
            if p == 0:  # b >= -c
                first, second = Fraction(1000), Fraction(-c)
            else:
                first, second = (Fraction(c) + Fraction(q) * Fraction(float(b))), Fraction(float(b))
            assert not exceeds(first, second, epsilon)
    low, high = float(constants[0]), float(constants[1])
    assert exceeds(Fraction(low) + Fraction(1, 10**6), Fraction(-(10**4)), epsilon)
    assert exceeds(Fraction(10**4), Fraction(-high) - Fraction(1, 10**6), epsilon)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("b", [-1e6, -700.0, -30.0, -1.0, 0.0, 1.0, 30.0, 700.0, 1e6])
def test_a_line_anywhere_stays_under_the_curve(epsilon: float, b: float) -> None:
    m, c = line_at(epsilon, b)
    assert np.isfinite([m, c]).all()
    assert m > 0
    left = [one for at in points(epsilon) if (one := room(epsilon, float(at), m, c)) is not None]
    assert all(one > 0 for one in left)
    here = room(epsilon, b, m, c)
    if here is not None and abs(b) < 20 and m < 2.0**29 and m > 2.0**-29:  # it touches the curve at b
        assert float(here.mid()) < 1e-9 * max(1.0, m * abs(b), abs(c))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("m", [2.0**-30, 1e-6, 0.5, 1.0, 1.0 + 2**-40, 3.0, 1e6, 2.0**30])
def test_a_line_of_any_slope_stays_under_the_curve(epsilon: float, m: float) -> None:
    c = line_of(epsilon, m)
    left = [one for b in points(epsilon) if (one := room(epsilon, float(b), m, c)) is not None]
    assert all(one > 0 for one in left)
    for wrong in (0.0, -m, 2.0**31, np.nan):
        with pytest.raises(ValueError, match="expected a slope"):
            line_of(epsilon, wrong)


@settings(max_examples=400)
@given(a=logits, b=logits, off=st.sampled_from([0.0, 1e-300, 1e-16, -1e-16, 1e-12, -1e-12, 0.05]), swap=st.booleans())
def test_exceeds_decides_the_closest_calls(a: float, b: float, off: float, swap: bool) -> None:
    """epsilon: the float64 next to the true gap (or a little off); the sign of the rest is what counts."""
    first, second = (Fraction(b), Fraction(a)) if swap else (Fraction(a), Fraction(b))
    epsilon = float(difference(first, second, 0.0)) + off
    rest = difference(first, second, epsilon)
    if abs(rest) > Decimal(10) ** -(DIGITS - 10):
        assert exceeds(first, second, epsilon) == (rest > 0)
        assert exceeds(-second, -first, epsilon) == (rest > 0)  # sigma(-a) = 1 - sigma(a)


@pytest.mark.parametrize("size", [1, 1000, 10**5, 10**12, 10**30])
def test_saturation_and_exact_ties(size: int) -> None:
    assert not exceeds(Fraction(size), Fraction(0), 0.5)  # 1/2 is approached, never reached
    assert not exceeds(Fraction(0), Fraction(-size), 0.5)
    assert exceeds(Fraction(size), Fraction(0), 0.5 - 1e-9) == (size > 20)
    assert exceeds(Fraction(size), Fraction(-size), 1 - 1e-9) == (size > 30)
    assert not exceeds(Fraction(-size), Fraction(size), 1e-9)
    assert not exceeds(Fraction(size), Fraction(size), 1e-9)
    assert not exceeds(Fraction(size), Fraction(size), 0.0)
    assert exceeds(Fraction(size) + Fraction(1, 10**40), Fraction(size), 0.0)


@settings(max_examples=200)
@given(a=logits, b=logits)
def test_gap_bounds_hold_the_gap(a: float, b: float) -> None:
    low, high = gap_bounds(Fraction(a), Fraction(b))
    gap = difference(Fraction(a), Fraction(b), 0.0)
    slack = Decimal(10) ** -(DIGITS - 5)
    assert Decimal(low) <= gap + slack
    assert gap - slack <= Decimal(high)
    assert high - low <= 1e-15


@settings(max_examples=200)
@given(a=logits, buckets=st.integers(2, 60))
def test_bucket_is_the_one_that_holds_the_probability(a: float, buckets: int) -> None:
    assert bucket(Fraction(a), buckets) == expected(a, buckets)


def expected(a: float, buckets: int) -> int:
    """By decimals, which cannot tell the tiniest logits from 0: there the sign decides."""
    share = sigma(Fraction(a)) * buckets
    if buckets % 2 == 0 and abs(a) < 1e-20:
        return buckets // 2 - (a <= 0)
    return min(int(share), buckets - 1)


@pytest.mark.parametrize("buckets", [2, 3, 7, 10, 20])
def test_buckets_at_their_borders(buckets: int) -> None:
    """Logits rounded to float64 next to logit(k / K), on both sides."""
    for k in range(1, buckets):
        middle = np.log(k / (buckets - k))
        for a in (np.nextafter(middle, -np.inf), middle, np.nextafter(middle, np.inf)):
            assert bucket(Fraction(float(a)), buckets) == expected(float(a), buckets)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, -0.1, 1e-10, 1 - 1e-10, float("nan")])
def test_epsilon_is_refused_where_no_line_can_be_drawn(epsilon: float) -> None:
    with pytest.raises(ValueError, match="epsilon"):
        gap_rows(epsilon, rise=False)
    with pytest.raises(ValueError, match="epsilon"):
        line_at(epsilon, 0.0)
