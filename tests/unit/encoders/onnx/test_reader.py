"""What the exporters write is read with the stored weights, folded exactly, and checked against onnxruntime."""

from __future__ import annotations

import hashlib
import os
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from encoders.errors import ModelError
from encoders.exact.affine import exact
from encoders.network import Link
from encoders.onnx.operators import SUPPORTED
from encoders.onnx.reader import apply_link, read_onnx
from encoders.onnx.runtime import runtime_outputs

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
    network = read_onnx(save(tmp_path / "m.onnx", [node("Sigmoid", ["x"])], {}))
    assert network.link is Link.SIGMOID
    assert (network.layers[0].weight == np.eye(4)).all()


@pytest.mark.parametrize(("opset", "axis"), [(17, -1), (17, 1), (11, 1)])
def test_softmax_axis(opset: int, axis: int, tmp_path: Path) -> None:
    assert read_onnx(save(tmp_path / "m.onnx", [node("Softmax", ["x"], axis=axis)], {}, opset=opset)).link is Link.SOFTMAX
