"""Integrated gradients: complete to rounding, equal to finite differences, to captum's, and to fine sums; at every edge."""

from dataclasses import replace

import numpy as np
import pytest

from encoders.arrays import Array
from encoders.attributions.gradients import gradients, integrated_gradients
from encoders.curves.layer import Curve, SmoothLayer
from encoders.errors import ModelError
from encoders.model import Link
from encoders.network import Layer, Network
from tests.builders import network_of, random_network
from tests.soundness.random_twins import MIXES, smoothed

WIDTHS = [(4, 1), (5, 7, 2), (6, 16, 9, 2), (3, 8, 8, 8, 1), (3, 5, 5, 5, 5, 2)]


def margin_of(network: Network) -> Array:
    return np.array([1.0]) if network.outputs == 1 else np.array([-1.0, 1.0])


def case(widths: tuple[int, ...], seed: int, slope: float = 0.0) -> tuple[Network, Array, Array, Array]:
    rng = np.random.default_rng(seed)
    network = random_network(rng, widths, slope=slope, sparsity=0.2)
    return network, margin_of(network), 2 * rng.standard_normal((40, widths[0])), rng.standard_normal((40, widths[0]))


@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("slope", [0.0, 0.25])
def test_the_exact_integral_is_complete(widths: tuple[int, ...], slope: float) -> None:
    for seed in range(5):
        network, margin, x, b = case(widths, seed, slope)
        g = integrated_gradients(network, margin, x, b)
        assert np.abs(g.sum(axis=1) - (network.forward(x) - network.forward(b)) @ margin).max() < 1e-12


@pytest.mark.parametrize("widths", WIDTHS)
def test_every_attribution_is_the_limit_of_riemann_sums(widths: tuple[int, ...]) -> None:
    network, margin, x, b = case(widths, 0)
    exact = integrated_gradients(network, margin, x, b)
    steps = 20_000
    rough = integrated_gradients(network, margin, x, b, steps)
    # Each root of a pre-activation spoils at most one of the T pieces, by at most the jump of the gradient there.
    assert np.abs(exact - rough).max() < 1e-2
    assert np.abs(exact - rough).mean() < 2e-4


@pytest.mark.parametrize("widths", WIDTHS)
def test_gradients_are_difference_quotients(widths: tuple[int, ...]) -> None:
    network, margin, x, _ = case(widths, 3, 0.1)
    found = gradients(network, margin, x)
    assert found.shape == x.shape
    h = 1e-7
    for j in range(x.shape[1]):
        step = h * np.eye(x.shape[1])[j]
        quotient = (network.forward(x + step) - network.forward(x - step)) @ margin / (2 * h)
        assert np.abs(quotient - found[:, j]).max() < 1e-5


def smooth_case(mix: str, seed: int, scale: float = 1.0) -> tuple[Network, Array, Array, Array]:
    network, margin, x, b = case((6, 16, 9, 2), seed)
    first = network.layers[0]
    steep = Layer(weight=first.weight * scale, bias=first.bias * scale, slope=first.slope)
    return smoothed(replace(network, layers=(steep, *network.layers[1:])), np.random.default_rng(seed), mix), margin, x, b


@pytest.mark.parametrize("mix", MIXES)
def test_gradients_of_curves_are_difference_quotients(mix: str) -> None:
    network, margin, x, _ = smooth_case(mix, 3)
    found, h = gradients(network, margin, x), 1e-6
    for j in range(x.shape[1]):
        step = h * np.eye(x.shape[1])[j]
        quotient = (network.forward(x + step) - network.forward(x - step)) @ margin / (2 * h)
        assert np.abs(quotient - found[:, j]).max() < 1e-4


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
def test_the_quadrature_is_complete_and_the_limit_of_riemann_sums(mix: str, scale: float) -> None:
    network, margin, x, b = smooth_case(mix, 7, scale)
    x, b = x[:6], b[:6]
    g = integrated_gradients(network, margin, x, b)
    ends = network.forward(x) @ margin, network.forward(b) @ margin
    assert (np.abs(g.sum(axis=1) - (ends[0] - ends[1])) <= 1e-6 * (np.abs(ends[0]) + np.abs(ends[1]))).all()
    rough = integrated_gradients(network, margin, x, b, 20_000)
    jumps = mix in ("mixed", "jumps", "every")  # each of which spoils one of the pieces
    assert np.abs(g - rough).max() < (5e-3 if jumps else 1e-5 * max(1.0, scale)) * np.abs(g).max()


def test_the_quadrature_of_a_step_between_the_points_of_a_part() -> None:
    """tanh(10^4 (x - 0.3)): flat at each of the first points, so that only completeness tells that something was missed."""
    tanh = np.array([Curve.TANH.value], dtype=np.int8)
    layers = (SmoothLayer(weight=np.array([[1e4, 0.0]]), bias=np.array([-3e3]), bend=np.ones(1), curve=tanh),
              Layer(weight=np.array([[1.0]]), bias=np.zeros(1), slope=np.ones(1)))
    network = Network(layers=layers, link=Link.IDENTITY, source_sha256="")
    g = integrated_gradients(network, np.ones(1), np.array([[1.0, 5.0]]), np.array([[0.0, -5.0]]))
    np.testing.assert_allclose(g, [[2.0, 0.0]], atol=1e-6)


@pytest.mark.parametrize("k", [300.0, 1e4, 1e7])
def test_steps_that_cancel_are_not_missed(k: float) -> None:
    """tanh(k (x1 - .37)) - tanh(k (x2 - .37)): what is missed of both is complete."""
    tanh = np.full(2, Curve.TANH.value, dtype=np.int8)
    layers = (SmoothLayer(weight=k * np.eye(2), bias=np.full(2, -0.37 * k), bend=np.ones(2), curve=tanh),
              Layer(weight=np.array([[1.0, -1.0]]), bias=np.zeros(1), slope=np.ones(1)))
    network = Network(layers=layers, link=Link.IDENTITY, source_sha256="")
    g = integrated_gradients(network, np.ones(1), np.ones((1, 2)), np.zeros((1, 2)))
    np.testing.assert_allclose(g, [[2.0, -2.0]], atol=1e-5)


def test_a_neuron_that_is_on_between_the_points_of_a_part() -> None:
    """relu(a bump of two tanh): on near the middle of the path alone, where no point of the whole path or its halves lies."""
    tanh, rows = np.full(2, Curve.TANH.value, dtype=np.int8), np.array([[8.0, 0.0], [0.0, 8.0]])
    for at in (0.3, 0.45, 0.52, 0.77):
        layers = (
            SmoothLayer(weight=rows, bias=np.array([-8 * at + 0.1, -8 * at - 0.1]), bend=np.ones(2), curve=tanh),
            Layer(weight=np.array([[1.0, -1.0]]), bias=np.array([-0.19]), slope=np.zeros(1)),
            Layer(weight=np.array([[100.0]]), bias=np.zeros(1), slope=np.ones(1)),
        )
        network = Network(layers=layers, link=Link.IDENTITY, source_sha256="")
        x, b = np.ones((1, 2)), np.zeros((1, 2))
        g, fine = (integrated_gradients(network, np.ones(1), x, b, steps) for steps in (None, 200_000))
        assert np.abs(fine).max() > 0.1
        np.testing.assert_allclose(g, fine, rtol=1e-3)


def test_one_curve_alone_has_its_own_difference() -> None:
    """Of one input column the attribution is f(x) - f(b), whatever the path does."""
    rng = np.random.default_rng(0)
    for curve in list(Curve)[1:]:
        kinds = np.full(5, curve.value, dtype=np.int8)
        layers = (SmoothLayer(weight=rng.normal(size=(5, 1)) * 3, bias=rng.normal(size=5), bend=np.ones(5), curve=kinds),
                  Layer(weight=rng.normal(size=(1, 5)), bias=np.zeros(1), slope=np.ones(1)))
        network = Network(layers=layers, link=Link.IDENTITY, source_sha256="")
        x, b = rng.normal(size=(50, 1)) * 4, rng.normal(size=(50, 1)) * 4
        g = integrated_gradients(network, np.ones(1), x, b)
        np.testing.assert_allclose(g, network.forward(x) - network.forward(b), atol=1e-6)


def test_steps_are_the_middles() -> None:
    network, margin, x, b = case((4, 6, 2), 1)
    steps = 7
    expected = np.zeros_like(x)
    for t in range(1, steps + 1):
        expected += gradients(network, margin, b + (t - 0.5) / steps * (x - b)) / steps
    np.testing.assert_allclose(integrated_gradients(network, margin, x, b, steps), (x - b) * expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("threads", [1, 2])
def test_rows_do_not_depend_on_their_neighbours(threads: int) -> None:
    network, margin, x, b = case((6, 16, 9, 2), 5)
    many = integrated_gradients(network, margin, np.tile(x, (60, 1)), np.tile(b, (60, 1)), threads=threads)  # several chunks
    alone = np.concatenate([integrated_gradients(network, margin, x[k : k + 1], b[k : k + 1]) for k in range(len(x))])
    np.testing.assert_allclose(many, np.tile(alone, (60, 1)), rtol=1e-9, atol=1e-12)


def test_threads_change_no_digit() -> None:
    """Sums over other numbers of rows round in another way."""
    network, margin, x, b = case((6, 16, 9, 2), 5)
    x, b = (np.tile(one, (10, 1)) + np.arange(10 * len(one))[:, None] / 997 for one in (x, b))
    found = [integrated_gradients(network, margin, x, b, threads=threads).tobytes() for threads in (1, 2, 5)]
    assert found[0] == found[1] == found[2]


def test_edges() -> None:
    network, margin, x, b = case((4, 6, 2), 2)
    assert not integrated_gradients(network, margin, b, b).any()  # a path of no length
    assert integrated_gradients(network, margin, x[:0], b[:0]).shape == (0, 4)
    half = b.copy()
    half[:, 0] = x[:, 0]  # only one feature differs: it has everything
    g = integrated_gradients(network, margin, half, b)
    assert not g[:, 1:].any()
    np.testing.assert_allclose(g[:, 0], (network.forward(half) - network.forward(b)) @ margin, atol=1e-12)
    with pytest.raises(ValueError, match="steps = 0"):
        integrated_gradients(network, margin, x, b, 0)
    with pytest.raises(ValueError, match="do not fit"):
        integrated_gradients(network, margin, x, b[:1])


@pytest.mark.parametrize("scale", [1e-150, 1e-30, 1e30, 1e150])
def test_huge_and_tiny_weights(scale: float) -> None:
    network, margin, x, b = case((4, 6, 5, 2), 4)
    first, *rest = network.layers  # without the upper biases everything scales, and nothing cancels
    scaled = Network(
        layers=(Layer(weight=first.weight * scale, bias=first.bias * scale, slope=first.slope),
                *(Layer(weight=layer.weight, bias=0 * layer.bias, slope=layer.slope) for layer in rest)),
        link=Link.IDENTITY, source_sha256="",
    )
    g = integrated_gradients(scaled, margin, x, b)
    change = (scaled.forward(x) - scaled.forward(b)) @ margin
    assert np.abs(g.sum(axis=1) - change).max() <= 1e-12 * np.abs(g).sum(axis=1).max()


@pytest.mark.parametrize(("scale", "steps"), [(1e15, None), (1e30, None), (1e305, None), (1e305, 8)])
def test_attributions_that_do_not_add_up_are_refused(scale: float, steps: int | None) -> None:
    network, margin, x, b = smooth_case("tanh", 1, scale)
    if scale == 1e305:  # f overflows
        last = network.layers[-1]
        network = replace(network, layers=(*network.layers[:-1], replace(last, weight=last.weight * scale)))
    with np.errstate(all="ignore"), pytest.raises(ModelError, match=r"attributions of the inputs .* too large .* scale inputs"):
        integrated_gradients(network, margin, x, b, steps)
    assert np.isfinite(integrated_gradients(smooth_case("tanh", 1, 1e4)[0], margin, x, b)).all()


def test_a_neuron_that_starts_at_its_kink() -> None:
    """relu(x) from b = 0: the pre-activation is 0 at the start only; relu(0 x): 0 on the whole path, slope 0 by convention."""
    layers = (
        Layer(weight=np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]]), bias=np.zeros(3), slope=np.zeros(3)),
        Layer(weight=np.array([[2.0, 5.0, 7.0]]), bias=np.array([1.0]), slope=np.ones(1)),
    )
    network = Network(layers=layers, link=Link.IDENTITY, source_sha256="")
    g = integrated_gradients(network, np.ones(1), np.array([[3.0, 1.0], [-3.0, 1.0]]), np.zeros((2, 2)))
    np.testing.assert_allclose(g, [[6.0, 0.0], [15.0, 0.0]])
    crossing = integrated_gradients(network, np.ones(1), np.array([[1.0, 0.0]]), np.array([[-1.0, 0.0]]))
    np.testing.assert_allclose(crossing, [[2.0 - 5.0, 0.0]])


def test_attributions_that_are_rounding_errors_alone() -> None:
    """One neuron stays at 0 for every category, but for rounding; the other is off: nothing changes, and nothing is wrong."""
    hidden = [[1.0, 2.0, 0.0, 1.0], [1.0, 2.0, 2.0, 0.0]], [-1.0, -2.0]
    network = network_of(hidden, ([[-1.0, 1.0], [2.0, 0.0]], [2.0, 2.0]))
    x, b = np.array([[0.0, 0.0, 1.0, 0.0]]), np.array([[-1.0, 4 / 6, 1 / 6, 1 / 6]])
    assert np.abs(integrated_gradients(network, np.array([-1.0, 1.0]), x, b)).max() < 1e-15
