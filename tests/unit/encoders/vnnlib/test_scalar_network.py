"""The network of a conjunction is the largest of its constraints, exactly."""

from __future__ import annotations

import numpy as np
import pytest

from encoders.vnnlib.scalar_network import scalar_network
from tests.brute_force import fractions
from tests.builders import random_network


@pytest.mark.parametrize("count", range(1, 8))
def test_networks_of_different_depth_with_shared_and_shifted_inputs(count: int) -> None:
    rng = np.random.default_rng(count)
    first, second = random_network(rng, (3, 4, 2)), random_network(rng, (2, 3, 3, 1), slope=0.1)
    rows, constants = rng.integers(-2, 3, (count, 5)).astype(float), rng.standard_normal(count)
    own = [np.array([0, 1, 2]), np.array([1, 3])]
    shift = [np.array([-1, -1, -1]), np.array([4, -1])]
    network = scalar_network([first, second], own, shift, np.array([0, 3]), rows, constants)
    u = fractions(rng.standard_normal((30, 5)).astype(np.float32).astype(float))
    x_second = u[:, [1, 3]].copy()
    x_second[:, 0] += u[:, 4]
    values = np.concatenate([first.forward(u[:, :3]), second.forward(x_second), u[:, [0, 3]]], axis=1)
    expected = (values @ fractions(rows).T + fractions(constants)).max(axis=1)
    assert (network.forward(u)[:, 0] == expected).all()
