"""Numbers over a common denominator against Python's fractions, through the same `Network.forward`."""

from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoders.exact.dyadic import exact
from encoders.exact.rational import Rational
from tests.builders import random_network

DECIMALS = st.decimals(min_value=-1000, max_value=1000, places=17).map(Fraction)
FLOATS = st.floats(min_value=-1e30, max_value=1e30, width=64).map(Fraction)
EDGES = st.sampled_from([Fraction(0), Fraction(-1), Fraction(1, 3), Fraction(-(1 << 63), 7), Fraction(5e-324), Fraction(1, 10)])


def row(*values: Fraction | int) -> npt.NDArray[np.object_]:
    return np.array([[Fraction(value) for value in values]], dtype=object)


@given(st.lists(st.one_of(DECIMALS, FLOATS, EDGES), min_size=1, max_size=6))
def test_numbers_come_back(values: list[Fraction]) -> None:
    assert (Rational.of(row(*values)).to_fractions() == row(*values)).all()


@settings(max_examples=100)
@given(st.integers(0, 2**32 - 1), st.lists(st.one_of(DECIMALS, FLOATS, EDGES), min_size=3, max_size=3))
def test_outputs_equal_those_of_fractions(seed: int, values: list[Fraction]) -> None:
    network = random_network(np.random.default_rng(seed), (3, 5, 4, 2), slope=0.25)
    x = np.concatenate([row(*values), row(*reversed(values))])
    assert (network.forward(Rational.of(x)).to_fractions() == network.forward(x)).all()


@pytest.mark.parametrize("values", [[0.0], [-0.0], [-(2.0**21)], [2.0**42, -1.0], [1e300, -5e-324], [5e-324], [-1.0, 1.0]])
def test_floats_of_any_spread_are_exact(values: list[float]) -> None:
    found = exact(np.array(values))
    assert found.to_fractions().tolist() == list(map(Fraction, values))
    assert found.sign.tolist() == [int(np.sign(value)) for value in values]
    assert (found.limbs[:-1] >= 0).all()
    assert (np.abs(found.limbs) <= 2**21).all()
