"""What the exporters write is read with the stored weights, folded exactly, replayed and written as a pair of networks."""

import hashlib
import os
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from encoders.errors import ModelError, ModelFileError
from encoders.exact.affine import exact
from encoders.model import Link
from encoders.network import Layer, Network
from encoders.onnx.operators import SUPPORTED
from encoders.onnx.product_network import NONE, is_single, network_model, product_network
from encoders.onnx.reader import read_onnx
from encoders.onnx.runtime import decisions, predictions, runtime_logits, runtime_outputs
from encoders.onnx.shown import apply_link
from tests.brute_force import fractions
from tests.builders import random_network

from .onnx_models import node, onnxruntime_output, save

FIXTURES = Path(__file__).parents[3] / "fixtures" / "onnx"
DATA = os.environ.get("VERIFAIR_DATA")
needs_data = pytest.mark.skipif(DATA is None, reason="VERIFAIR_DATA is not set")
F = np.float32

EXPECTED = {  # file: (inputs, hidden, outputs, link, rounded)
    "keras_joined": (6, (4, 8), 3, Link.SOFTMAX, False),
    "keras_plain": (6, (8, 5), 1, Link.SIGMOID, True),
    "sklearn_logistic_binary": (4, (), 1, Link.SIGMOID, False),
    "sklearn_logistic_three": (4, (), 3, Link.SOFTMAX, False),
    "sklearn_mlp_binary": (4, (6, 5), 1, Link.SIGMOID, False),
    "sklearn_mlp_three": (4, (6, 5), 3, Link.SOFTMAX, False),
    "sklearn_scaled_mlp": (4, (6, 5), 1, Link.SIGMOID, True),
    "torch_dynamo_branches": (6, (8,), 3, Link.LOG_SOFTMAX, False),
    "torch_dynamo_external": (6, (32, 32), 2, Link.SOFTMAX, False),
    "torch_dynamo_normalised": (6, (8, 5), 1, Link.SIGMOID, False),   # the exporter folds the batch normalisation itself
    "torch_dynamo_residual": (6, (12, 6), 2, Link.IDENTITY, False),
    "torch_dynamo_shaped": (6, (5,), 1, Link.SIGMOID, False),
    "torch_script_branches": (6, (8,), 3, Link.LOG_SOFTMAX, False),
    "torch_script_normalised": (6, (8, 5), 1, Link.SIGMOID, True),
    "torch_script_residual": (6, (12, 6), 2, Link.IDENTITY, False),
    "torch_script_shaped": (6, (5,), 1, Link.SIGMOID, False),
}


def test_every_fixture_is_expected() -> None:
    assert {path.stem for path in FIXTURES.glob("*.onnx")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_exported_models(name: str) -> None:
    inputs, hidden, outputs, link, rounded = EXPECTED[name]
    network = read_onnx(FIXTURES / f"{name}.onnx")
    assert (network.inputs, network.hidden, network.outputs, network.link) == (inputs, hidden, outputs, link)
    assert bool(network.rounded) == rounded
    x = np.random.default_rng(5).normal(size=(20, inputs)).astype(F)
    shown = runtime_outputs(network, x)
    seen = apply_link(network.forward(x.astype(np.float64)), network.link)
    np.testing.assert_allclose(seen, shown[:, -outputs:], rtol=2e-5, atol=2e-6)
    if shown.shape[1] > outputs:       # scikit-learn shows (1 - p, p)
        np.testing.assert_allclose(1 - seen, shown[:, :1], rtol=2e-5, atol=2e-6)


def test_zipmap_and_label_agree_with_the_one_logit() -> None:
    path = FIXTURES / "sklearn_mlp_binary.onnx"
    x = np.random.default_rng(5).normal(size=(50, 4)).astype(F)
    label = onnxruntime_output(path, x, "output_label")[:, 0]
    assert (label == (read_onnx(path).forward(x.astype(np.float64))[:, 0] > 0)).all()


@needs_data
def test_benchmark_networks_come_out_with_the_stored_weights() -> None:
    paths = sorted((Path(DATA or "") / "nets").glob("*.onnx"))
    assert len(paths) >= 28
    for path in paths:
        network = read_onnx(path)
        assert network.rounded == ()
        assert network.link is (Link.SIGMOID if ".prob." in path.name else Link.IDENTITY)
        assert network.source_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        model = onnx.load(path)
        stored = {i.name: numpy_helper.to_array(i).astype(np.float64) for i in model.graph.initializer}
        gemms = [n for n in model.graph.node if n.op_type == "Gemm"]
        assert len(gemms) == len(network.layers)
        for gemm, layer in zip(gemms, network.layers, strict=True):
            transposed = any(a.name == "transB" and a.i for a in gemm.attribute)
            weight = stored[gemm.input[1]]
            assert (layer.weight == (weight if transposed else weight.T)).all()
            assert (layer.bias == stored[gemm.input[2]]).all()


def test_sha256_covers_external_weights(tmp_path: Path) -> None:
    for file in FIXTURES.glob("torch_dynamo_external*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    path, data = tmp_path / "torch_dynamo_external.onnx", tmp_path / "torch_dynamo_external.onnx.data"
    network = read_onnx(path)
    assert network.source_sha256 == hashlib.sha256(path.read_bytes() + data.read_bytes()).hexdigest()
    changed = bytearray(data.read_bytes())
    changed[0] ^= 1
    data.write_bytes(bytes(changed))
    assert read_onnx(path).source_sha256 != network.source_sha256


def test_folding_rounds_once_and_correctly(tmp_path: Path) -> None:
    """Scale, shift, Gemm, divide, shift: each weight must be the float64 nearest to the exact rational result."""
    random = np.random.default_rng(2)
    w, b, s, t, d, e = (random.normal(size=k).astype(F) for k in ((3, 4), 3, 4, 4, 3, 3))
    path = save(tmp_path / "m.onnx", [
        node("Mul", ["x", "s"], ["1"]), node("Sub", ["1", "t"], ["2"]), node("Gemm", ["2", "w", "b"], ["3"], transB=1),
        node("Div", ["3", "d"], ["4"]), node("Add", ["4", "e"])], {"w": w, "b": b, "s": s, "t": t, "d": d, "e": e})
    network = read_onnx(path)
    (layer,) = network.layers
    q = np.vectorize(lambda v: Fraction(float(v)), otypes=[object])
    weight = q(w) * q(s) / q(d)[:, None]
    bias = (q(b) - q(w) @ q(t)) / q(d) + q(e)
    assert (layer.weight == np.vectorize(float)(weight)).all()
    assert (layer.bias == np.vectorize(float)(bias)).all()
    assert network.rounded == ("the_Div",)      # all before it is exact in float64 for these numbers


def test_batch_normalisation_is_folded_to_the_nearest_number(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    g, b, m, v = (np.abs(random.normal(size=4)).astype(F) for _ in range(4))
    path = save(tmp_path / "m.onnx", [node("BatchNormalization", ["x", "g", "b", "m", "v"])], {"g": g, "b": b, "m": m, "v": v})
    network = read_onnx(path)
    epsilon = Fraction(float(F(1e-5)))
    for i in range(4):
        found = Fraction(float(network.layers[0].weight[i, i]))
        square = Fraction(float(g[i])) ** 2 / (Fraction(float(v[i])) + epsilon)
        step = Fraction(float(np.spacing(network.layers[0].weight[i, i]))) / 2
        assert (found - step) ** 2 <= square <= (found + step) ** 2
    assert network.rounded == ("the_BatchNormalization",)


def test_powers_of_two_and_permutations_stay_exact(tmp_path: Path) -> None:
    w = np.random.default_rng(6).normal(size=(4, 3)).astype(F)
    path = save(tmp_path / "m.onnx", [
        node("Gather", ["x", "i"], ["1"], axis=1), node("Mul", ["1", "c"], ["2"]), node("MatMul", ["2", "w"])],
        {"i": np.array([2, 0, 3, 1]), "c": F(0.25), "w": w})
    network = read_onnx(path)
    assert network.rounded == ()
    assert (network.layers[0].weight[:, [2, 0, 3, 1]] == w.T.astype(np.float64) / 4).all()


def test_a_wide_layer_with_batch_normalisation_and_scaling_is_read_quickly(tmp_path: Path) -> None:
    import time

    random = np.random.default_rng(0)
    vectors = {name: np.abs(random.normal(size=500)).astype(F) for name in "gbmv"}
    path = save(tmp_path / "m.onnx", [
        node("Sub", ["x", "o"], ["1"]), node("Div", ["1", "s"], ["2"]), node("Gemm", ["2", "w", "c"], ["3"]),
        node("BatchNormalization", ["3", *"gbmv"], ["4"]), node("Relu", ["4"])],
        {"o": random.normal(size=784).astype(F), "s": np.abs(random.normal(size=784)).astype(F) + 1,
         "w": random.normal(size=(784, 500)).astype(F), "c": random.normal(size=500).astype(F), **vectors}, shape=("N", 784))
    start = time.process_time()      # not the clock: other processes may hold the machine
    network = read_onnx(path)
    assert time.process_time() - start < 20      # about 4 s; a guard against element-wise arithmetic on whole matrices
    assert network.hidden == (500,)


def test_a_deep_residual_network_carries_one_sum_and_not_all_its_parts(tmp_path: Path) -> None:
    """y = relu(W y) + y, six times: beside each relu travel the four numbers of y, as neurons that never bend."""
    weights = {f"w{k}": np.random.default_rng(k).normal(size=(4, 4)).astype(F) for k in range(7)}
    nodes = [node("Gemm", ["x", "w6"], ["y0"], name="first")]
    for k in range(6):
        nodes += [node("Gemm", [f"y{k}", f"w{k}"], [f"a{k}"], name=f"gemm{k}"), node("Relu", [f"a{k}"], [f"r{k}"], name=f"relu{k}"),
                  node("Add", [f"r{k}", f"y{k}"], [f"y{k + 1}"], name=f"add{k}")]
    path = save(tmp_path / "m.onnx", [*nodes, node("Identity", ["y6"])], weights)
    network = read_onnx(path)
    assert network.hidden == (8,) * 6
    assert [int((layer.slope == 1).sum()) for layer in network.layers] == [4] * 7
    x = np.random.default_rng(9).normal(size=(5, 4)).astype(F)
    np.testing.assert_allclose(network.forward(x.astype(float)), onnxruntime_output(path, x), rtol=1e-4, atol=1e-3)


def test_the_check_finds_a_wrong_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten wide layers, so that a bound carried through all of them would allow anything; the check must still notice."""
    random = np.random.default_rng(0)
    weights = {f"w{k}": random.normal(size=(20, 20)).astype(F) for k in range(10)}
    nodes = [n for k in range(10) for n in (
        node("Gemm", [f"r{k}" if k else "x", f"w{k}"], [f"a{k}"], name=f"gemm{k}"),
        node("Neg", [f"a{k}"], [f"n{k}"], name=f"neg{k}"), node("Relu", [f"n{k}"], [f"r{k + 1}"], name=f"relu{k}"))]
    path = save(tmp_path / "m.onnx", [*nodes, node("Identity", ["r10"])], weights, shape=("N", 20))
    read_onnx(path, box=(np.zeros(20), np.full(20, 1e5)))
    right = SUPPORTED["Neg"]
    monkeypatch.setitem(SUPPORTED, "Neg", lambda n: n.tensor(0) if n.name == "neg7" else right(n))
    with pytest.raises(ModelError, match="does not reproduce onnxruntime at x") as caught:
        read_onnx(path)
    assert caught.value.node == "relu7"


def test_the_check_finds_a_small_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "m.onnx", [node("Mul", ["x", "c"])], {"c": F(0.3)})
    right = SUPPORTED["Mul"]
    monkeypatch.setitem(SUPPORTED, "Mul", lambda n: right(n).scale(exact(np.full(4, 1.0001))))
    with pytest.raises(ModelError, match="does not reproduce"):
        read_onnx(path)


def test_output_parameter_names_any_tensor(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("Neg", ["x"], ["a"]), node("Mul", ["a", "c"], ["b"])], {"c": F(2)},
                outputs=["a", "b"])
    assert read_onnx(path, output="a").layers[0].weight[0, 0] == -1
    network = read_onnx(path, output="b")
    assert network.layers[0].weight[0, 0] == -2
    assert runtime_outputs(network, np.ones((2, 4), dtype=F)).tolist() == [[-2.0] * 4] * 2


def test_a_graph_that_is_only_a_link(tmp_path: Path) -> None:
    network = read_onnx(save(tmp_path / "m.onnx", [node("Softmax", ["x"])], {}))
    assert network.link is Link.SOFTMAX
    assert (network.layers[0].weight == np.eye(4)).all()
    one = read_onnx(save(tmp_path / "one.onnx", [node("Sigmoid", ["x"])], {}, shape=("N", 1)))
    assert (one.link, one.layers[0].weight.tolist()) == (Link.SIGMOID, [[1.0]])


@pytest.mark.parametrize(("opset", "axis"), [(17, -1), (17, 1), (11, 1)])
def test_softmax_axis(opset: int, axis: int, tmp_path: Path) -> None:
    assert read_onnx(save(tmp_path / "m.onnx", [node("Softmax", ["x"], axis=axis)], {}, opset=opset)).link is Link.SOFTMAX


# Replay in onnxruntime: its own float32 logits, of the very file that was read.


def test_logits_in_front_of_a_saturated_sigmoid(tmp_path: Path) -> None:
    nodes = [node("Gemm", ["x", "w"], ["z"]), node("Sigmoid", ["z"])]
    network = read_onnx(save(tmp_path / "m.onnx", nodes, {"w": np.full((4, 1), 50, dtype=F)}))
    x = np.array([[1, 1, 1, 1], [1, 1, 1, 2], [-1, -1, 0, 0]], dtype=F)
    assert runtime_outputs(network, x)[:2].tolist() == [[1.0], [1.0]]
    assert runtime_logits(network, x).tolist() == [[200.0], [250.0], [-100.0]]
    assert predictions(network, x).tolist() == [1, 1, 0]


def test_fixed_batch_sizes_are_looped_over(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(7, 4)).astype(F)
    for batch in (1, 3):
        network = read_onnx(save(tmp_path / f"{batch}.onnx", [node("Neg", ["x"])], {}, shape=(batch, 4)))
        assert (runtime_logits(network, x) == -x.astype(np.float64)).all()
    assert runtime_logits(network, x[:0]).shape == (0, 4)


def test_float32_arithmetic_is_the_runtimes_own(tmp_path: Path) -> None:
    """2^24 + 1 is no float32: the runtime says 0 where the real-valued network says 1."""
    nodes = [node("Add", ["x", "c"], ["a"]), node("Sub", ["a", "c"])]
    network = read_onnx(save(tmp_path / "m.onnx", nodes, {"c": F(2.0**24)}), check_points=1)
    x = np.ones((1, 4), dtype=F)
    assert network.forward(x.astype(np.float64)).tolist() == [[1.0] * 4]
    assert runtime_logits(network, x).tolist() == [[0.0] * 4]


def test_a_file_that_changed_or_went_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    network = read_onnx(save(path, [node("Neg", ["x"])], {}))
    x = np.ones((1, 4), dtype=F)
    assert runtime_logits(network, x).tolist() == [[-1.0] * 4]
    save(path, [node("Neg", ["x"], ["n"]), node("Neg", ["n"], name="again")], {})
    with pytest.raises(ModelError, match="has changed since it was read"):
        runtime_logits(network, x)
    path.unlink()
    with pytest.raises(ModelFileError, match="cannot be read"):
        runtime_logits(network, x)


def test_a_network_without_a_file(tmp_path: Path) -> None:
    network = replace(read_onnx(save(tmp_path / "m.onnx", [node("Neg", ["x"])], {})), source=None)
    with pytest.raises(ModelError, match="nothing to replay"):
        runtime_logits(network, np.ones((1, 4), dtype=F))


def test_wrong_width(tmp_path: Path) -> None:
    network = read_onnx(save(tmp_path / "m.onnx", [node("Neg", ["x"])], {}))
    with pytest.raises(ValueError, match="expected"):
        runtime_logits(network, np.ones((1, 3), dtype=F))


def test_decisions() -> None:
    assert decisions(np.array([[0.0], [1e-9], [-1.0]])).tolist() == [0, 1, 0]
    assert decisions(np.array([[0.0, 0.0], [0.0, 1.0]])).tolist() == [0, 1]


# The product network is the pair of networks, exactly; the files written for it hold the same numbers.


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
