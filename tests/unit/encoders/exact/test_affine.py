"""Exact arithmetic against Python's fractions, on numbers chosen to round in float64."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from encoders.exact.affine import Exact, dense, exact, reciprocal, reciprocal_root, selection

NUMBERS = st.one_of(st.floats(-1e6, 1e6, width=32), st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300,
                                                              max_value=1e300), st.sampled_from([0.0, 5e-324, 2.0**53, 1.0]))


def fractions(values: np.ndarray) -> np.ndarray:
    return np.vectorize(Fraction, otypes=[object])(values)


def same(found: Exact, expected: np.ndarray) -> bool:
    return [Fraction(int(v.p), int(v.q)) for v in found.as_rational().ravel()] == expected.ravel().tolist()


@given(st.data())
def test_sums_and_products_are_exact(data: st.DataObject) -> None:
    a, b = (data.draw(hnp.arrays(np.float64, (2, 3), elements=NUMBERS)) for _ in range(2))
    assert same(exact(a) + exact(b), fractions(a) + fractions(b))
    assert same(exact(a) * exact(b), fractions(a) * fractions(b))
    assert same(exact(a) @ exact(b.T), fractions(a) @ fractions(b).T)
    assert same(exact(a) @ exact(b[0]), fractions(a) @ fractions(b[0]))
    assert same(-exact(a), -fractions(a))


@given(hnp.arrays(np.float64, (3, 4), elements=NUMBERS), st.permutations(range(4)))
def test_selecting_columns_stays_in_float64(a: np.ndarray, order: list[int]) -> None:
    product = exact(a) @ exact(np.eye(4)[order])
    assert product.values.dtype == np.float64
    assert (product.values == a[:, np.argsort(order)]).all()


@given(hnp.arrays(np.float64, 3, elements=st.floats(-100, 100, width=32)), hnp.arrays(np.float64, 3, elements=NUMBERS))
def test_rounding_is_to_the_nearest_and_says_whether_it_lost_anything(a: np.ndarray, b: np.ndarray) -> None:
    total = exact(a) + exact(b)
    rounded, kept = total.rounded()
    truth = fractions(a) + fractions(b)
    assert rounded.tolist() == [float(v) for v in truth]
    assert kept == all(Fraction(float(v)) == v for v in truth)


def test_out_of_range_is_infinite() -> None:
    rounded, kept = (exact(np.array([1e300])) * exact(np.array([-1e300]))).rounded()
    assert rounded.tolist() == [-np.inf]
    assert not kept


@given(st.floats(1e-30, 1e30))
def test_reciprocals(v: float) -> None:
    assert same(reciprocal(np.array([v])), np.array([1 / Fraction(v)]))
    root = reciprocal_root(np.array([v]), plus=1e-5)
    (found,) = (Fraction(int(q.p), int(q.q)) for q in root.as_rational())
    error = found * found * (Fraction(v) + Fraction(1e-5)) - 1
    assert abs(error) < Fraction(1, 2**118)


def test_rational_root_is_exact() -> None:
    two, two_thirds = reciprocal_root(np.array([0.25, 2.25]), plus=0.0).as_rational()
    assert (two, two_thirds) == (2, reciprocal(np.array([1.5])).as_rational()[0])


def test_size_ignores_cancellation() -> None:
    difference = exact(np.array([3.0])) + exact(np.array([-3.0]))
    assert difference.values.tolist() == [0.0]
    assert difference.size.tolist() == [6.0]


@pytest.mark.parametrize("picked", [[0, 1, 2, 3], [1, 2, 5, 6], [3, 1, 2, 0], [2, 2, 2, 4]])
def test_a_matrix_times_a_selection_of_columns_is_that_of_dense_matrices(picked: list[int]) -> None:
    left, right = np.array([[1.0, 0.0, -2.0, 0.5], [0.0, 0.0, 3.0, 4.0]]), np.eye(7)[picked]
    product = dense(exact(left)) @ selection(np.array(picked))
    assert np.array_equal(product._dense(7).values, left @ right)
    assert np.array_equal(product._dense(7).size, np.abs(left) @ right)
