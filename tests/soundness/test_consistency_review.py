"""A reviewer's attacks on the certified companion: rational explanations without any tolerance, residues of rounding, rims."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

from encoders.bounds.attribution import attributions
from encoders.bounds.gradient import gradient_zonotopes
from encoders.network import Array, Layer, Link, Network
from tests.soundness.random_twins import STYLES, random_network
from verifair.verify.check_explanations import explanations

Exact = npt.NDArray[np.object_]
N = 4


def exact(values: Array) -> Exact:
    return np.array([Fraction(float(v)) for v in np.ravel(values)], dtype=object).reshape(np.shape(values))


def masks(network: Network, z: Exact) -> list[tuple[Exact, Exact]]:
    """Pre-activations and slopes of the hidden layers at a point z (n_0,), all rational."""
    found, y = [], z
    for layer in network.layers[:-1]:
        a = exact(layer.weight) @ y + exact(layer.bias)
        slope = np.where(a > 0, Fraction(1), exact(layer.slope))
        found.append((a, slope))
        y = slope * a
    return found


def exact_gradient(network: Network, margin: Array, baseline: Array, x: Array) -> Exact:
    """The mean gradient (n_0,) along the path, as a rational number: pieces between all changes of sign."""
    start, direction = exact(baseline), exact(x) - exact(baseline)
    ends = [Fraction(0), Fraction(1)]
    for k in range(len(network.layers) - 1):
        values = [masks(network, start + alpha * direction)[k][0] for alpha in ends]
        new = {
            left + (right - left) * a / (a - b)
            for (left, at_left), (right, at_right) in pairwise(zip(ends, values, strict=True))
            for a, b in zip(at_left, at_right, strict=True)
            if a * b < 0
        }
        ends = sorted({*ends, *new})
    total = exact(np.zeros(len(x)))
    for left, right in pairwise(ends):
        pulled = exact(margin) @ exact(network.layers[-1].weight)
        inside = masks(network, start + (left + right) / 2 * direction)
        for layer, (_, slope) in zip(network.layers[-2::-1], inside[::-1], strict=True):
            pulled = (slope * pulled) @ exact(layer.weight)
        total = total + (right - left) * pulled
    return total


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("size", [1.0, 1e6])
def test_exact_explanations_lie_within_both_enclosures_without_any_tolerance(style: str, size: float) -> None:
    rng = np.random.default_rng(7)
    for depth in (0, 1, 2):
        network = random_network(rng, N, style, depth=depth, width=4, outputs=2)
        margin, baseline = np.array([-1.0, 1.0]), np.round(rng.standard_normal(N), 1)
        low = size * rng.standard_normal(N)
        high = low + size * rng.choice([0.0, 0.0, 0.3], N)
        box = baseline[None], low[None], high[None]
        zonotopes = gradient_zonotopes(network, margin, *box, 4)
        found, mine = attributions(zonotopes, *box), explanations(network, margin, *box, 4)[0]
        for x in (low, high):
            gradient = exact_gradient(network, margin, baseline, x)
            off = np.abs(gradient - exact(zonotopes.centre[0]))
            assert (off <= exact(np.abs(zonotopes.generator)).sum(axis=0) + exact(zonotopes.error[0])).all()
            g = gradient * (exact(x) - exact(baseline))
            for centre, radius in ((found.centre[0], found.radius[0]), (mine.centre, mine.radius)):
                assert ((g - exact(centre)) ** 2).sum() <= Fraction(float(radius)) ** 2


def residue() -> tuple[Array, float]:
    """Weights (3,) and a bias whose sum is negative, though in floats it comes out positive."""
    rng = np.random.default_rng(0)
    for _ in range(1000):
        w = rng.standard_normal(3)
        w[2] = -w[:2].sum() * (1 + 1e-3 * rng.random())
        rounded = float((np.ones((1, 4)) @ np.append(w, 0.0)[:, None])[0, 0])
        b = -float(np.nextafter(rounded, -np.inf))
        if exact(w).sum() + Fraction(b) < 0:
            return w, b
    raise AssertionError("no such weights found")


def test_a_neuron_that_only_rounding_turns_on_is_not_taken_to_be_on() -> None:
    w, b = residue()
    first = Layer(weight=np.append(w, 0.0)[None], bias=np.array([b]), slope=np.zeros(1))
    last = Layer(weight=np.ones((1, 1)), bias=np.zeros(1), slope=np.ones(1))
    network = Network(layers=(first, last), link=Link.IDENTITY, source_sha256="")
    point, baseline = np.ones((1, 4)), np.array([[1.0, 1.0, 1.0, 0.0]])
    assert not exact_gradient(network, np.ones(1), baseline[0], point[0]).any()
    found = gradient_zonotopes(network, np.ones(1), baseline, point, point, 4)
    assert (np.abs(found.centre[0]) <= np.abs(found.generator).sum(axis=0) + found.error[0]).all()


def test_what_underflows_on_the_way_back_is_not_taken_to_be_zero() -> None:
    """Weights 1e-180 and 1e-180, then 1e90 four times: the gradient is 1, its products from the output vanish before they grow."""
    sizes = [1e90, 1e90, 1e90, 1e90, 1e-180, 1e-180]
    layers = tuple(Layer(weight=np.array([[v]]), bias=np.zeros(1), slope=np.ones(1)) for v in sizes)
    network = Network(layers=layers, link=Link.IDENTITY, source_sha256="")
    point, baseline = np.full((1, 1), 1e-60), np.zeros((1, 1))
    mine = explanations(network, np.ones(1), baseline, point, point, 1)[0]
    assert not mine.radius < 1e-60
    zonotopes = gradient_zonotopes(network, np.ones(1), baseline, point, point, 1)
    assert not np.abs(zonotopes.centre[0, 0]) + zonotopes.error[0, 0] < 1
