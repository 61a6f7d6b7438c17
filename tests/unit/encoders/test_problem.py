"""The cut rule of a domain: the middle of a box, what can be cut, and the halves, on the edges of float64 and of whole numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoders.arrays import Array
from encoders.domain import Domain


def domain(*integer: bool) -> Domain:
    count = len(integer)
    return Domain(
        integer=np.array(integer), lower=np.full(count, -1e6), upper=np.full(count, 1e6), offset=np.zeros(count),
        scale=np.ones(count), start=np.arange(count), one_hot=np.zeros(count, dtype=bool), width=np.ones(count, dtype=np.int64),
    )


WHOLE, REAL = domain(True), domain(False)


def box(low: float, high: float) -> tuple[Array, Array]:
    return np.array([[low]]), np.array([[high]])


def values(lower: Array, upper: Array) -> list[list[int]]:
    """The whole numbers of one-dimensional boxes."""
    return [list(range(int(low), int(high) + 1)) for low, high in zip(lower[:, 0], upper[:, 0], strict=True)]


@given(st.one_of(st.integers(-9, 9), st.integers(2**52 - 4, 2**53 - 9), st.integers(-(2**53), -(2**52))), st.integers(0, 9))
def test_the_halves_share_out_the_whole_numbers(low: int, width: int) -> None:
    ends = box(low, low + width)
    middle = WHOLE.middle(*ends)
    assert low <= middle[0, 0] <= low + width
    assert middle[0, 0] == np.floor(middle[0, 0])
    assert WHOLE.divisible(*ends)[0, 0] == (width > 0)
    if width:
        left, right = values(*WHOLE.halves(*ends, [0], middle[:, 0]))
        assert left
        assert right
        assert left + right == list(range(low, low + width + 1))


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(st.one_of(FINITE, st.sampled_from([0.0, 5e-324, 1.0, -1.0, 2.0**-1022])), st.integers(0, 5))
def test_a_real_interval_is_cut_wherever_a_float_lies_inside(low: float, steps: int) -> None:
    high = low
    for _ in range(steps):
        high = float(np.nextafter(high, np.finfo(float).max))
    ends = box(low, high)
    middle = REAL.middle(*ends)
    assert low <= middle[0, 0] <= high
    inside = float(np.nextafter(low, high)) < high
    assert REAL.divisible(*ends)[0, 0] == inside
    if inside:
        lower, upper = REAL.halves(*ends, [0], middle[:, 0])
        assert upper[0, 0] == lower[1, 0] == middle[0, 0]
        assert lower[0, 0] == low
        assert upper[1, 0] == high


@given(FINITE, FINITE)
def test_any_two_real_ends_have_a_middle_between_them(one: float, other: float) -> None:
    low, high = min(one, other), max(one, other)
    middle = REAL.middle(*box(low, high))[0, 0]
    assert low <= middle <= high
    assert REAL.divisible(*box(low, high))[0, 0] == (float(np.nextafter(low, high)) < high)


@pytest.mark.parametrize("ends", [(np.nan, 1.0), (0.0, np.nan), (-np.inf, np.inf), (0.0, np.inf), (-np.inf, 0.0), (-0.0, 0.0)])
@pytest.mark.parametrize("one", [WHOLE, REAL], ids=["whole", "real"])
def test_nothing_is_cut_where_an_end_is_nan_or_infinite(one: Domain, ends: tuple[float, float]) -> None:
    assert not one.divisible(*box(*ends))[0, 0]


def test_the_widest_float64_interval_is_cut_at_zero() -> None:
    most = np.finfo(float).max
    assert REAL.middle(*box(-most, most))[0, 0] == 0
    assert REAL.divisible(*box(-most, most))[0, 0]


def test_halves_are_all_left_ones_and_then_all_right_ones() -> None:
    lower, upper = np.zeros((2, 2)), np.array([[4.0, 1.0], [4.0, 1.0]])
    low, high = domain(True, False).halves(lower, upper, [0, 1], [1.0, 0.5])
    assert low.tolist() == [[0, 0], [0, 0], [2, 0], [0, 0.5]]
    assert high.tolist() == [[1, 1], [4, 0.5], [4, 1], [4, 1]]
    assert (lower == 0).all()
    assert (upper == [4, 1]).all()


def test_the_input_of_a_point_is_its_box() -> None:
    """Of values that are no category, too: between two, beyond the last, none."""
    width = np.array([1, 4, 3])
    mixed = Domain(
        integer=width > 1, lower=np.zeros(3), upper=np.array([9.0, 3.0, 2.0]), offset=np.array([0.5, 0.0, 0.0]),
        scale=np.array([3.0, 1.0, 1.0]), start=np.cumsum(width) - width, one_hot=width > 1, width=width,
    )
    ends = [-1.0, -0.0, 0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 1e300, np.nan]
    raw = np.array([[0.1, first, second] for first in ends for second in ends])
    low, high = mixed.box(raw, raw)
    x = mixed.encode(raw)
    assert x.tolist() == low.tolist() == high.tolist()
    assert (x[:, 1:5].sum(axis=1) == np.isin(raw[:, 1], range(4))).all()
