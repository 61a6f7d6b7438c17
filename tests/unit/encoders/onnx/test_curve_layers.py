"""Sigmoid and Tanh in hidden layers: read as they are, checked against onnxruntime, the one at the end still the link."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from encoders.curves import Curve, SmoothLayer
from encoders.errors import CurveError, ModelError
from encoders.network import Layer, Link, Network
from encoders.onnx import reader as onnx_check
from encoders.onnx.reader import read_onnx

from .onnx_models import node, onnxruntime_output, save

RNG = np.random.default_rng(1)
W = {f"w{k}": RNG.normal(size=shape).astype(np.float32) for k, shape in enumerate(((4, 6), (6, 6), (6, 1)))}
CURVES = {"Sigmoid": Curve.SIGMOID, "Tanh": Curve.TANH}


def logits_agree(path: Path, network: Network, output: str) -> None:
    x = RNG.normal(size=(200, 4)).astype(np.float32) * 3
    there = onnxruntime_output(path, x, output)
    assert np.abs(network.forward(x.astype(np.float64)) - there).max() < 1e-4


@pytest.mark.parametrize("opset", [9, 13, 17, 21])
@pytest.mark.parametrize("op", CURVES)
def test_hidden_curves_are_layers_and_the_last_sigmoid_is_the_link(tmp_path: Path, op: str, opset: int) -> None:
    nodes = [
        node("MatMul", ["x", "w0"], ["a0"], name="n1"),
        node(op, ["a0"], ["y0"], name="first"),
        node("MatMul", ["y0", "w1"], ["a1"], name="n2"),
        node(op, ["a1"], ["y1"], name="second"),
        node("MatMul", ["y1", "w2"], ["z"], name="n3"),
        node("Sigmoid", ["z"], ["y"], name="last"),
    ]  # fmt: skip
    path = save(tmp_path / "m.onnx", nodes, W, opset=opset, check=opset < 20)
    network = read_onnx(path)
    assert network.link is Link.SIGMOID
    assert not network.piecewise_linear
    assert network.hidden == (6, 6)
    for layer in network.layers[:-1]:
        assert isinstance(layer, SmoothLayer)
        assert (layer.curve == CURVES[op]).all()
    with_logits = save(tmp_path / "l.onnx", nodes[:-1], W, outputs=["z"], opset=opset, check=opset < 20)
    logits_agree(with_logits, network, "z")


def test_a_residual_connection_carries_identity_neurons_beside_curves(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", ["x", "w0"], ["a0"], name="n4"),
        node("Relu", ["a0"], ["y0"], name="n5"),
        node("MatMul", ["y0", "w1"], ["a1"], name="n6"),
        node("Tanh", ["a1"], ["y1"], name="n7"),
        node("Add", ["y1", "y0"], ["s"], name="n8"),
        node("MatMul", ["s", "w2"], ["y"], name="n9"),
    ]  # fmt: skip
    path = save(tmp_path / "m.onnx", nodes, W)
    network = read_onnx(path)
    first, second, _ = network.layers
    assert not isinstance(first, SmoothLayer)
    assert isinstance(second, SmoothLayer)
    assert sorted(second.curve.tolist()) == [Curve.BENT] * 6 + [Curve.TANH] * 6
    assert (second.bend == 1).all()
    logits_agree(path, network, "y")


def test_two_curves_and_a_relu_in_one_layer(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", ["x", "w0"], ["a0"], name="n10"),
        node("Relu", ["a0"], ["r"], name="n11"),
        node("Tanh", ["a0"], ["t"], name="n12"),
        node("Sigmoid", ["a0"], ["s"], name="n13"),
        node("Add", ["r", "t"], ["rt"], name="n14"),
        node("Add", ["rt", "s"], ["rts"], name="n15"),
        node("MatMul", ["rts", "w2"], ["y"], name="n16"),
    ]  # fmt: skip
    path = save(tmp_path / "m.onnx", nodes, W)
    network = read_onnx(path)
    layer = network.layers[0]
    assert isinstance(layer, SmoothLayer)
    assert sorted(np.unique(layer.curve).tolist()) == [Curve.BENT, Curve.SIGMOID, Curve.TANH]
    assert (layer.bend[layer.curve == Curve.BENT] == 0).all()
    logits_agree(path, network, "y")


def test_the_import_check_sees_the_wrong_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """tanh read as 1.00001 tanh is noticed: the allowance is that of a runtime's approximation."""
    nodes = [
        node("MatMul", ["x", "w0"], ["a0"], name="n17"),
        node("Tanh", ["a0"], ["y0"], name="curve"),
        node("MatMul", ["y0", "w1"], ["y"], name="n18")]
    path = save(tmp_path / "m.onnx", nodes, W)
    read_onnx(path)
    real = onnx_check.activate
    monkeypatch.setattr(onnx_check, "activate", lambda a, one: real(a, one) * (1.00001 if isinstance(one, SmoothLayer) else 1))
    with pytest.raises(ModelError, match="does not reproduce onnxruntime") as caught:
        read_onnx(path)
    assert caught.value.node == "curve"


@pytest.mark.parametrize("activation", ["logistic", "tanh"])
def test_a_scikit_learn_network(tmp_path: Path, activation: str) -> None:
    skl2onnx = pytest.importorskip("skl2onnx")
    from sklearn.neural_network import MLPClassifier

    x = RNG.normal(size=(120, 4)).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MLPClassifier((6, 5), activation=activation, max_iter=30, random_state=0).fit(x, x[:, 0] + x[:, 1] > 0)
        (tmp_path / "m.onnx").write_bytes(skl2onnx.to_onnx(model, x[:1], options={"zipmap": False}).SerializeToString())
    network = read_onnx(tmp_path / "m.onnx")
    assert [type(layer) for layer in network.layers] == [SmoothLayer, SmoothLayer, Layer]
    expected = model.predict_proba(x.astype(np.float64))[:, 1]
    assert np.abs(1 / (1 + np.exp(-network.forward(x.astype(np.float64))[:, 0])) - expected).max() < 1e-5


def test_whatever_needs_slopes_refuses_by_name() -> None:
    layer = SmoothLayer(weight=np.ones((2, 3)), bias=np.zeros(2), bend=np.ones(2), curve=np.array([1, 2], dtype=np.int8))
    last = Layer(weight=np.ones((1, 2)), bias=np.zeros(1), slope=np.ones(1))
    network = Network(layers=(layer, last), link=Link.IDENTITY, source_sha256="", source="some.onnx")
    with pytest.raises(CurveError, match=r"some\.onnx: hidden layer 1 has sigmoid and tanh neurons, which a test cannot take"):
        network.require_piecewise_linear("a test")
    with pytest.raises(ValueError, match="not all of them bent"):
        SmoothLayer(weight=np.ones((2, 3)), bias=np.zeros(2), bend=np.ones(2), curve=np.zeros(2, dtype=np.int8))
    with pytest.raises(ValueError, match="slopes"):
        SmoothLayer(weight=np.ones((2, 3)), bias=np.zeros(2), bend=np.array([1.0, 2.0]), curve=np.array([1, 0], dtype=np.int8))


@pytest.mark.parametrize("tail", ["Neg", "Clip", "Mul"])
def test_a_probability_that_is_moved_or_cut_is_no_logit(tmp_path: Path, tail: str) -> None:
    constants = W | {"low": np.float32(0.01), "high": np.float32(0.99), "c": np.float32(100.0)}
    more = {"Neg": [], "Clip": ["low", "high"], "Mul": ["c"]}[tail]
    nodes = [
        node("MatMul", ["x", "w0"], ["a0"], name="n1"), node("Tanh", ["a0"], ["y0"], name="n2"),
        node("MatMul", ["y0", "w2"], ["z"], name="n3"), node("Sigmoid", ["z"], ["p"], name="n4"),
        node(tail, ["p", *more], name="n5"),
    ]  # fmt: skip
    with pytest.raises(ModelError, match="a probability it seems") as caught:
        read_onnx(save(tmp_path / "m.onnx", nodes, constants))
    assert caught.value.node == "n4"
    assert read_onnx(tmp_path / "m.onnx", output="z").hidden == (6,)
