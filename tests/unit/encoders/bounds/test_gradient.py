"""Zonotopes of gradients: exact where nothing switches, tight where something does, useless rather than wrong where floats end."""

import numpy as np
import pytest

from encoders.arrays import Array
from encoders.bounds.explanations.attribution import GENERATORS, Attributions, attributions, score_bound
from encoders.bounds.explanations.gradient import gradient_zonotopes
from encoders.model import Link
from encoders.network import Layer, Network

ONE = np.ones(1)


def network_of(*layers: tuple[Array, Array, float]) -> Network:
    made = [
        Layer(weight=np.atleast_2d(w).astype(float), bias=np.atleast_1d(b).astype(float), slope=np.full(len(np.atleast_1d(b)), s))
        for w, b, s in layers
    ]
    return Network(layers=tuple(made), link=Link.IDENTITY, source_sha256="")


def kink(at: float, slope: float = 0.0) -> Network:
    """f(x) = max(x - at, 0), or leaky."""
    return network_of((np.array([[1.0]]), np.array([-at]), slope), (np.array([[1.0]]), np.array([0.0]), 1.0))


def test_a_linear_network_has_its_weights_as_gradient() -> None:
    network = network_of((np.array([[2.0, -3.0]]), np.array([1.0]), 1.0))
    found = gradient_zonotopes(network, ONE, np.zeros((1, 2)), -np.ones((1, 2)), np.ones((1, 2)), 4)
    assert found.centre[0] == pytest.approx([2.0, -3.0])
    assert not len(found.generator)
    assert (found.lower[0], found.upper[0]) == (pytest.approx(-4.0), pytest.approx(6.0))


@pytest.mark.parametrize("slope", [0.0, 0.25])
@pytest.mark.parametrize("slices", [1, 16])
def test_one_kink_on_the_path_to_a_point_is_timed_exactly(slope: float, slices: int) -> None:
    # From 0 to 1 with the kink at 0.3: 70 % of the path on.
    found = gradient_zonotopes(kink(0.3, slope), ONE, np.zeros((1, 1)), np.ones((1, 1)), np.ones((1, 1)), slices)
    assert found.centre[0] == pytest.approx(0.7 + 0.3 * slope, abs=1e-9)
    assert np.abs(found.generator).sum() < 1e-9


def test_one_kink_on_the_paths_to_a_box_is_timed_as_well_as_the_slices_allow() -> None:
    # x in [0.8, 1.2]: on from alpha = 0.3 / x, so for 0.625 to 0.75 of the path.
    widths = []
    for slices in (1, 4, 64):
        found = gradient_zonotopes(kink(0.3), ONE, np.zeros((1, 1)), np.array([[0.8]]), np.array([[1.2]]), slices)
        reach = np.abs(found.generator).sum()
        assert found.centre[0, 0] - reach <= 0.625
        assert found.centre[0, 0] + reach >= 0.75
        widths.append(reach)
    assert widths[0] > widths[1] > widths[2]
    assert widths[2] == pytest.approx(0.0625, rel=0.05)


def test_a_neuron_at_zero_all_along_may_have_either_slope() -> None:
    network = network_of((np.array([[0.0]]), np.array([0.0]), 0.0), (np.array([[1.0]]), np.array([0.0]), 1.0))
    found = gradient_zonotopes(network, ONE, np.zeros((1, 1)), np.ones((1, 1)), np.ones((1, 1)), 2)
    assert found.centre[0, 0] == 0  # its weight is 0: the slope is of no account
    shifted = gradient_zonotopes(kink(0.0), ONE, np.zeros((1, 1)), np.zeros((1, 1)), np.zeros((1, 1)), 2)
    assert shifted.centre[0, 0] - np.abs(shifted.generator).sum() <= 0
    assert shifted.centre[0, 0] + np.abs(shifted.generator).sum() >= 1


@pytest.mark.parametrize("slices", [0, 3, -4])
def test_slices_must_be_a_power_of_two(slices: int) -> None:
    with pytest.raises(ValueError, match="power of two"):
        gradient_zonotopes(kink(0.3), ONE, np.zeros((1, 1)), np.ones((1, 1)), np.ones((1, 1)), slices)


def test_several_boxes_keep_to_themselves() -> None:
    rng = np.random.default_rng(3)
    network = network_of(
        (rng.standard_normal((6, 3)), rng.standard_normal(6), 0.0),
        (rng.standard_normal((5, 6)), rng.standard_normal(5), 0.1),
        (rng.standard_normal((1, 5)), np.zeros(1), 1.0),
    )
    low = rng.standard_normal((4, 3))
    high, baseline = low + 0.3 * rng.random((4, 3)), rng.standard_normal((4, 3))
    together = gradient_zonotopes(network, ONE, baseline, low, high, 8)
    for k in range(4):
        one = slice(k, k + 1)
        alone = gradient_zonotopes(network, ONE, baseline[one], low[one], high[one], 8)
        assert alone.centre[0] == pytest.approx(together.centre[k])
        mine = together.generator[together.owner == k]
        assert np.abs(alone.generator).sum(axis=0) == pytest.approx(np.abs(mine).sum(axis=0))
        assert alone.lower[0] == pytest.approx(together.lower[k])
        assert alone.upper[0] == pytest.approx(together.upper[k])


@pytest.mark.parametrize("weight", [1e200, 1e-200])
def test_out_of_the_range_of_floats_nothing_is_proved(weight: float) -> None:
    network = network_of((np.full((2, 2), weight), np.zeros(2), 0.0), (np.full((1, 2), weight), np.zeros(1), 1.0))
    box = np.ones((1, 2))
    found = attributions(gradient_zonotopes(network, ONE, 0 * box, box, 2 * box, 4), 0 * box, box, 2 * box)
    assert score_bound(found, 0, found, 0, 1e-8) == 1.0


def enclosure(centre: list[float], generators: list[list[float]]) -> Attributions:
    """An enclosure as if a network of weight 1 had it: gradients moved to the inputs 1 from baseline 0."""
    v = np.array(generators, dtype=float).reshape(-1, len(centre))
    c = np.array(centre, dtype=float)
    radius = np.sqrt(np.abs(v @ v.T).sum()) + 1e-12
    return Attributions(
        centre=c[None], generator=v, start=np.array([0, len(v)]), rest=np.zeros(1), radius=np.array([radius]),
        length=np.array([np.linalg.norm(c) - radius]),
    )


@pytest.mark.parametrize("angle", [0.01, 1.0, 2.0, 3.0])
def test_the_bound_of_two_vectors_is_their_score(angle: float) -> None:
    bound = score_bound(enclosure([1.0, 0.0], []), 0, enclosure([5 * np.cos(angle), 5 * np.sin(angle)], []), 0, 1e-8)
    assert np.sin(angle / 2) <= bound <= np.sin(angle / 2) + 1e-3


def test_what_only_lengthens_an_explanation_costs_little() -> None:
    turned = score_bound(enclosure([1.0, 0.0], [[0.0, 0.1]]), 0, enclosure([0.6, 0.8], []), 0, 1e-8)
    longer = score_bound(enclosure([1.0, 0.0], [[0.1, 0.0]]), 0, enclosure([0.6, 0.8], []), 0, 1e-8)
    score = np.sqrt(0.2)
    assert score < longer < score + 0.01
    assert turned >= np.sin((np.arctan2(0.8, 0.6) + np.arctan(0.1)) / 2)


def test_an_explanation_that_can_vanish_proves_nothing() -> None:
    assert score_bound(enclosure([1.0, 0.0], [[1.0, 0.0]]), 0, enclosure([1.0, 0.0], []), 0, 1e-8) == 1.0


def test_many_generators_are_joined_soundly() -> None:
    rng = np.random.default_rng(0)
    network = network_of(
        (rng.standard_normal((80, 3)), rng.standard_normal(80), 0.0),
        (rng.standard_normal((80, 80)), rng.standard_normal(80), 0.0),
        (rng.standard_normal((1, 80)), np.zeros(1), 1.0),
    )
    low, high, baseline = np.full((1, 3), 0.5), np.full((1, 3), 1.5), np.zeros((1, 3))
    zonotopes = gradient_zonotopes(network, ONE, baseline, low, high, 8)
    assert len(zonotopes.generator) > GENERATORS
    found = attributions(zonotopes, baseline, low, high)
    assert len(found.generator) == GENERATORS
    whole = np.abs(zonotopes.generator).sum(axis=0) * (high[0] + low[0]) / 2 + (high[0] - low[0]) / 2 * (
        np.abs(zonotopes.centre[0]) + np.abs(zonotopes.generator).sum(axis=0)
    )
    kept = np.abs(found.generator).sum(axis=0)
    assert np.linalg.norm(whole - kept) <= found.rest[0] * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("angle", [0.5, 1.2, 1.7, 2.3])
@pytest.mark.parametrize("size", [0.1, 0.3])
def test_both_turning_away_is_within_the_bound(angle: float, size: float) -> None:
    first = enclosure([1.0, 0.0], [[0.0, size]])
    second = enclosure([2 * np.cos(angle), 2 * np.sin(angle)], [[-2 * size * np.sin(angle), 2 * size * np.cos(angle)]])
    truth = np.sin((angle + 2 * np.arctan(size)) / 2)
    bound = score_bound(first, 0, second, 0, 1e-8)
    assert truth <= bound <= min(1.0, truth + size**2 + 0.01)
