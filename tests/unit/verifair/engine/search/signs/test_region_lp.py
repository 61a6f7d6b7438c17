"""Where a region of neuron branching is split."""

import numpy as np
import pytest

from encoders.domain import Regions
from encoders.problem import Goal
from tests.builders import network_of, twin_problem
from verifair.engine.search.signs.region_lp import RegionRelaxation


@pytest.mark.parametrize("weight", [0.01, -0.01, 0.0])
def test_an_input_whose_value_is_not_whole_is_cut_there(weight: float) -> None:
    """g - g' = 10 + a + weight b where 3 a <= 1: its largest value at a = 1/3 is no row's, and a alone says so."""
    network = network_of(([[20, 1, weight], [0, 3, 0]], [-10, -1]), ([[1, 0]], None))
    goal = Goal(rows=np.array([[-1.0, 1.0]]), constant=np.array([10.2]), strict=False)
    problem = twin_problem(np.random.default_rng(0), network=network, goals=(goal,))
    relaxation = RegionRelaxation(problem)
    whole = relaxation.whole
    relaxation.solve(whole, None, 10.0)  # whose LP has room for the regions within
    off = np.array([[False, True, False, True]])
    (found,) = relaxation.solve(Regions(lower=whole.lower, upper=whole.upper, active=whole.active, inactive=off), None, 10.0)
    assert not found.proved
    assert found.raw is not None
    assert found.raw[1] == pytest.approx(1 / 3)
    assert (found.feature, found.cut) == (1, 0.0)
