"""The product network is the pair of networks, exactly; the files written for it hold the same numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from encoders.network import Layer, Network
from encoders.onnx.product_network import NONE, is_single, network_model, product_network
from encoders.onnx.reader import read_onnx
from tests.brute_force import fractions
from tests.builders import random_network
from tests.unit.encoders.onnx.onnx_models import onnxruntime_output


def mixed(network: Network) -> Network:
    """Some neurons of the first layer without a kink, as a residual connection has them."""
    first = network.layers[0]
    slope = np.where(np.arange(len(first.slope)) % 2 == 0, 1.0, 0.0)
    return replace(network, layers=(replace(first, slope=slope), *network.layers[1:]))


def uneven(network: Network) -> Network:
    """A slope of its own for every neuron, as PReLU has them."""
    first = network.layers[0]
    slope = np.linspace(0, 1, len(first.slope)).astype(np.float32).astype(float)
    return replace(network, layers=(replace(first, slope=slope), *network.layers[1:]))


def halves(network: Network, x: np.ndarray, own: np.ndarray, shift: np.ndarray, u: np.ndarray) -> np.ndarray:
    x_prime = x.copy()
    n = network.inputs
    x_prime[:, own] = u[:, n : n + len(own)]
    x_prime[:, shift] = x[:, shift] + u[:, n + len(own) :]
    return np.concatenate([network.forward(x), network.forward(x_prime)], axis=1)


@pytest.mark.parametrize("change", [lambda n: n, mixed, uneven], ids=["relu", "mixed", "prelu"])
@pytest.mark.parametrize("slope", [0.0, 0.1])
@pytest.mark.parametrize("outputs", [1, 2])
def test_the_product_is_both_copies_exactly(change, slope: float, outputs: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    network = change(random_network(rng, (5, 6, 4, outputs), slope=slope))
    own, shift = np.array([1, 3]), np.array([4])
    product = product_network(network, own=own, shift=shift)
    u = fractions(rng.standard_normal((20, 8)).astype(np.float32).astype(float))
    expected = halves(network, u[:, :5], own, shift, u)
    assert (product.forward(u) == expected).all()

    path = tmp_path / "product.onnx"
    onnx.save(network_model(product, {}), path)
    again = read_onnx(path)
    assert (again.forward(u) == expected).all()
    assert again.rounded == ()
    in_float32 = onnxruntime_output(path, u.astype(np.float32)[:1])
    np.testing.assert_allclose(in_float32, expected[:1].astype(float), rtol=1e-4, atol=1e-5)


def test_rows_over_both_margins_are_outputs_of_their_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    network = random_network(rng, (3, 4, 2))
    rows = np.array([[1.0, 0.0], [0.0, -1.0], [1.0, -0.25]])
    product = product_network(network, own=np.array([0]), margin=np.array([-1.0, 1.0]), rows=rows)
    u = fractions(rng.standard_normal((9, 4)).astype(np.float32).astype(float))
    logits = halves(network, u[:, :3], np.array([0]), NONE, u)
    g = np.stack([logits[:, 1] - logits[:, 0], logits[:, 3] - logits[:, 2]], axis=1)
    assert (product.forward(u) == g @ fractions(rows).T).all()
    onnx.save(network_model(product, {}), tmp_path / "rows.onnx")
    assert (read_onnx(tmp_path / "rows.onnx").forward(u) == g @ fractions(rows).T).all()


def test_weights_that_float32_cannot_hold_are_written_as_float64(tmp_path: Path) -> None:
    network = random_network(np.random.default_rng(5), (2, 3, 1))
    first = network.layers[0]
    folded = replace(network, layers=(Layer(weight=first.weight / 3, bias=first.bias, slope=first.slope), *network.layers[1:]))
    assert is_single(network)
    assert not is_single(folded)
    onnx.save(network_model(folded, {}), tmp_path / "folded.onnx")
    again = read_onnx(tmp_path / "folded.onnx")
    for one, other in zip(folded.layers, again.layers, strict=True):
        assert (one.weight == other.weight).all()
        assert (one.bias == other.bias).all()


def test_only_operators_that_every_verifier_reads() -> None:
    network = mixed(random_network(np.random.default_rng(6), (4, 6, 3, 1)))
    model = network_model(product_network(network, own=np.array([2])), {"verifair": "test"})
    assert {node.op_type for node in model.graph.node} == {"Gemm", "Relu"}
