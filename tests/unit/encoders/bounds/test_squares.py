"""Squares: intervals and lines of engine and checker, against fractions and each other."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from encoders.arrays import Array
from encoders.bounds.relu import LayerBounds
from encoders.bounds.smooth import squares
from verifair.checker.kernel import squares as checked

RNG = np.random.default_rng(0)
POINTS = np.array([0.0, 5e-324, 1e-310, 1e-170, 1e-30, 1e-8, 0.3, 1.0, 3.0, 1 / 3, 1e5, 1e30])
WIDTHS = (0.0, 5e-324, 1e-300, 1e-12, 0.01, 0.5, 3.0, 1e5, 1e30)
LOW = np.concatenate([np.repeat(np.concatenate([-POINTS, POINTS]), len(WIDTHS)), -POINTS])
HIGH = np.concatenate([(np.concatenate([-POINTS, POINTS])[:, None] + np.array(WIDTHS)).ravel(), POINTS])
LEAST = Fraction(2) ** -990
"""What underflow may cost: proofs pay for it elsewhere."""
Lines = tuple[Array, Array, Array, Array]


def engine_lines(low: Array, high: Array) -> Lines:
    found = squares.lines(low, high)
    return found.low_slope, found.low_constant, found.up_slope, found.up_constant


def checker_lines(low: Array, high: Array) -> Lines:
    under, over = checked.band(low, high)
    return *under, *over


def within(low: Array, high: Array, k: int) -> list[Fraction]:
    start, width = Fraction(low[k]), Fraction(high[k]) - Fraction(low[k])
    return [start + Fraction(share, 1000) * width for share in (0, 1, 500, 750, 1000)]


@pytest.mark.parametrize("of", [squares.values, checked.outputs], ids=["engine", "checker"])
def test_ends_enclose_all_squares(of: Callable[[Array, Array], tuple[Array, Array]]) -> None:
    least, most = of(LOW, HIGH)
    assert (least >= 0).all()
    for k in range(len(LOW)):
        inside = [*within(LOW, HIGH, k), *([Fraction(0)] if LOW[k] <= 0 <= HIGH[k] else [])]
        assert all(Fraction(least[k]) <= t * t <= Fraction(most[k]) for t in inside)
    assert (most <= np.maximum(LOW**2, HIGH**2) * (1 + 1e-15) + 1e-299).all()
    with np.errstate(all="ignore"):
        wrong = of(np.array([np.nan, -np.inf, 0.0]), np.array([1.0, 1.0, 1e200]))
    assert not np.isfinite(wrong[1]).any()


@pytest.mark.parametrize("of", [engine_lines, checker_lines], ids=["engine", "checker"])
def test_lines_enclose_the_square_and_are_a_quarter_of_the_width_squared_apart(of: Callable[[Array, Array], Lines]) -> None:
    low_slope, low_constant, up_slope, up_constant = of(LOW, HIGH)
    for k in range(len(LOW)):
        for t in within(LOW, HIGH, k):
            below = Fraction(low_slope[k]) * t + Fraction(low_constant[k])
            above = Fraction(up_slope[k]) * t + Fraction(up_constant[k])
            assert below - LEAST <= t * t <= above + LEAST
    size = np.maximum(np.abs(LOW), np.abs(HIGH))
    assert (up_constant - low_constant <= ((HIGH - LOW) / 2) ** 2 + 1e-14 * size**2 + 1e-290).all()


def pairs() -> tuple[LayerBounds, Array]:
    shift = RNG.choice([0.0, 1e-6, 0.1, 2.0, -3e4], len(LOW)) * np.where(np.abs(HIGH) < 1e10, 1.0, 0.0)
    bounds = LayerBounds.of((LOW, HIGH), (LOW - shift, HIGH - shift), (shift, shift))
    return LayerBounds(**{name: getattr(bounds, name)[None] for name in bounds.__dataclass_fields__}), shift[None]


@pytest.mark.parametrize(("p", "q"), [(1.0, -1.0), (2.0, -0.5), (0.0, 3.0), (-1.0, -1.0), (-1.0, 1.0), (1e-9, -1e9)])
def test_pairs_lie_under_both_copies_and_are_the_checkers(p: float, q: float) -> None:
    bounds, shift = pairs()
    weights = np.full_like(shift, p), np.full_like(shift, q)
    slope, constant, gap = squares.SquareShapePairs.of(bounds, shift).under(*weights, ...)
    theirs = checked.SquarePairs.of(bounds.lower, bounds.upper, -shift).lines(*weights, np.zeros(1, dtype=np.int64))
    assert not theirs[1].any()
    assert (gap >= 0).all()
    limit = (abs(p) + abs(q)) * (np.maximum(np.abs(LOW), np.abs(HIGH)) + np.abs(shift[0])) ** 2
    for k, (a, b) in enumerate(zip(LOW, HIGH, strict=True)):
        assert abs((theirs[0] - slope)[0, k]) * max(abs(a), abs(b)) <= 1e-14 * limit[k]
        assert abs((theirs[2] - constant)[0, k]) <= 1e-14 * limit[k] + 1e-280
        for t in within(LOW, HIGH, k):
            truth = Fraction(p) * t * t + Fraction(q) * (t - Fraction(shift[0, k])) ** 2
            assert Fraction(slope[0, k]) * t + Fraction(constant[0, k]) <= truth + LEAST
            lost = Fraction(1, 2**48) * Fraction(limit[k])   # `bounds` takes more off than that
            assert Fraction(theirs[0][0, k]) * t + Fraction(theirs[2][0, k]) <= truth + lost + LEAST


def test_what_both_copies_share_costs_nothing() -> None:
    one = np.ones((1, 1))
    bounds = LayerBounds.of((-one, 5 * one), (-3 * one, 3 * one), (2 * one, 2 * one))
    slope, constant, gap = squares.SquareShapePairs.of(bounds, 2 * one).under(one, -one, ...)
    assert (slope.item(), gap.item()) == (4.0, 0.0)    # t^2 - (t - 2)^2 = 4 t - 4
    assert abs(constant.item() + 4) < 1e-12


def test_sums_hold_those_of_both_copies() -> None:
    low, high = RNG.normal(size=(2, 500)) * 10.0 ** RNG.integers(-3, 9, (2, 500))
    bounds = LayerBounds.of((low, low), (high, high), (low - high, low - high))
    mine, theirs = squares.sums(bounds), checked.steepness((low, low, high, high))
    for k in range(500):
        total = Fraction(low[k]) + Fraction(high[k])
        for least, most in (mine, theirs):
            assert Fraction(least[k]) <= total <= Fraction(most[k])
