"""Every supported operator and curve, alone between two affine layers, against onnxruntime; and random graphs of them."""

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import helper

from encoders.curves.layer import Curve, SmoothLayer
from encoders.errors import CurveError, ModelError
from encoders.model import Link
from encoders.network import Layer, Network
from encoders.onnx import reader as onnx_check
from encoders.onnx.operators import SUPPORTED
from encoders.onnx.reader import read_onnx

from .onnx_models import node, onnxruntime_output, save

F = np.float32
INT_MAX = 2**63 - 1


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(F)


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


IMAGE = {"shape": ("N", 2, 6, 5)}

# name: (nodes from x (N, 4) or (N, 2, 3) to y, constants[, options])
CASES: dict[str, tuple[Any, ...]] = {
    "Gemm": ([node("Gemm", ["x", "w", "b"])], {"w": draw(4, 3), "b": draw(3)}),
    "Gemm-transB-alpha-beta": ([node("Gemm", ["x", "w", "b"], transB=1, alpha=0.5, beta=2.0)],
                               {"w": draw(3, 4), "b": draw(1, 3)}),
    "Gemm-alpha-inexact": ([node("Gemm", ["x", "w", "b"], alpha=0.3, beta=0.7)], {"w": draw(4, 3), "b": draw(3)}),
    "Gemm-without-C": ([node("Gemm", ["x", "w"])], {"w": draw(4, 3)}),
    "Gemm-scalar-C": ([node("Gemm", ["x", "w", "b"])], {"w": draw(4, 3), "b": F(1.5)}),
    "Gemm-C-is-data": ([node("Gemm", ["x", "w", "x"], beta=2.0)], {"w": draw(4, 4)}),
    "MatMul": ([node("MatMul", ["x", "w"])], {"w": draw(4, 3)}),
    "MatMul-vector": ([node("MatMul", ["x", "w"])], {"w": draw(4)}),
    "MatMul-batched": ([node("MatMul", ["x", "w"])], {"w": draw(3, 5)}, {"shape": ("N", 2, 3)}),
    "MatMul-constant-left": ([node("MatMul", ["w", "x"])], {"w": draw(5, 2)}, {"shape": ("N", 2, 3)}),
    "Add-left": ([node("Add", ["c", "x"])], {"c": draw(4)}),
    "Add-scalar": ([node("Add", ["x", "c"])], {"c": F(0.1)}),
    "Add-data": ([node("Relu", ["x"], ["r"]), node("Add", ["r", "x"])], {}),
    "Sub": ([node("Sub", ["x", "c"])], {"c": draw(1, 4)}),
    "Sub-left": ([node("Sub", ["c", "x"])], {"c": draw(4)}),
    "Sub-data": ([node("Relu", ["x"], ["r"]), node("Sub", ["x", "r"])], {}),
    "Mul": ([node("Mul", ["x", "c"])], {"c": draw(4)}),
    "Mul-left": ([node("Mul", ["c", "x"])], {"c": F(0.3)}),
    "Mul-widens": ([node("Mul", ["x", "c"])], {"c": draw(1, 4, 1)}, {"shape": ("N", 1, 3)}),
    "Mul-data": ([node("Gemm", ["x", "w"], ["a"]), node("Mul", ["x", "a"])], {"w": draw(4, 4)}),
    "Mul-deeper": ([node("Gemm", ["x", "w"], ["a"]), node("Relu", ["a"], ["r"]), node("Mul", ["r", "x"])], {"w": draw(4, 4)}),
    "Mul-widens-data": ([node("Slice", ["x", "b", "e", "k"], ["a"]), node("Mul", ["a", "x"])],
                        {"b": ints(1), "e": ints(2), "k": ints(1)}, {"shape": ("N", 3, 2)}),
    "Mul-itself": ([node("Mul", ["x", "x"])], {}),
    "Pow": ([node("Pow", ["x", "two"])], {"two": F(2)}),
    "Pow-widens": ([node("Pow", ["x", "two"])], {"two": ints(2, 2).reshape(1, 2, 1)}, {"shape": ("N", 1, 3)}),
    "Pow-of-pow": ([node("Pow", ["x", "two"], ["s"], name="first"), node("Mul", ["s", "c"], ["t"]), node("Pow", ["t", "two"])],
                   {"two": F(2), "c": F(0.3)}),
    "ReduceProd": ([node("ReduceProd", ["x"], axes=[1], keepdims=0)], {}, {"shape": ("N", 2, 3)}),
    "ReduceProd-three": ([node("ReduceProd", ["x"], axes=[2], keepdims=1)], {}, {"shape": ("N", 2, 3)}),
    "ReduceProd-one": ([node("ReduceProd", ["x"], axes=[1], keepdims=1)], {}, {"shape": ("N", 1, 3)}),
    "Div": ([node("Div", ["x", "c"])], {"c": draw(4) + F(3)}),
    "Neg": ([node("Neg", ["x"])], {}),
    "BatchNormalization": ([node("BatchNormalization", ["x", "g", "b", "m", "v"])],
                           {"g": draw(4), "b": draw(4), "m": draw(4), "v": np.abs(draw(4))}),
    "BatchNormalization-before-a-dead-neuron": (
        [node("BatchNormalization", ["x", "g", "b", "m", "v"], ["n"]), node("MatMul", ["n", "w"])],
        {"g": draw(4), "b": draw(4), "m": draw(4), "v": np.abs(draw(4)), "w": draw(4, 3) * np.array([1, 0, 1], dtype=F)}),
    "BatchNormalization-channels": ([node("BatchNormalization", ["x", "g", "b", "m", "v"], epsilon=1e-3)],
                                    {"g": draw(2), "b": draw(2), "m": draw(2), "v": np.abs(draw(2))},
                                    {"shape": ("N", 2, 3)}),
    "Flatten": ([node("Flatten", ["x"])], {}, {"shape": ("N", 2, 3)}),
    "Flatten-axis-2": ([node("Flatten", ["x"], axis=2)], {}, {"shape": ("N", 1, 6)}),
    "Reshape": ([node("Reshape", ["x", "s"])], {"s": ints(-1, 6)}, {"shape": ("N", 2, 3)}),
    "Reshape-0": ([node("Reshape", ["x", "s"])], {"s": ints(0, -1)}, {"shape": ("N", 2, 3)}),
    "Reshape-fixed": ([node("Reshape", ["x", "s"])], {"s": ints(2, 3, 2)}, {"shape": (2, 2, 3)}),
    "Reshape-by-Shape": ([node("Shape", ["x"], ["s"]), node("Gather", ["s", "i"], ["n"], axis=0),
                          node("Concat", ["n", "m"], ["t"], axis=0), node("Reshape", ["x", "t"])],
                         {"i": ints(0), "m": ints(-1)}, {"shape": ("N", 2, 3)}),
    "Squeeze": ([node("Squeeze", ["x", "a"])], {"a": ints(1)}, {"shape": ("N", 1, 3)}),
    "Squeeze-opset-11": ([node("Squeeze", ["x"], axes=[1])], {}, {"shape": ("N", 1, 3), "opset": 11}),
    "Unsqueeze": ([node("Unsqueeze", ["x", "a"])], {"a": ints(-1)}),
    "Transpose": ([node("Transpose", ["x"], perm=[0, 2, 1])], {}, {"shape": ("N", 2, 3)}),
    "Identity": ([node("Identity", ["x"])], {}),
    "Dropout": ([node("Dropout", ["x"])], {}),
    "Cast": ([node("Cast", ["x"], to=1)], {}),
    "Concat": ([node("Relu", ["x"], ["r"]), node("Concat", ["r", "x", "r"], axis=-1)], {}),
    "Slice": ([node("Slice", ["x", "b", "e", "a"])], {"b": ints(1), "e": ints(INT_MAX), "a": ints(1)}),
    "Slice-negative-step": ([node("Slice", ["x", "b", "e", "a", "s"])],
                            {"b": ints(0, -1), "e": ints(INT_MAX, -INT_MAX), "a": ints(0, 1), "s": ints(1, -2)}),
    "Slice-opset-9": ([node("Slice", ["x"], starts=[1], ends=[3], axes=[1])], {}, {"opset": 9}),
    "Gather": ([node("Gather", ["x", "i"], axis=1)], {"i": ints(3, 0, 0, -2)}),
    "Gather-scalar": ([node("Gather", ["x", "i"], axis=1)], {"i": np.int64(1)}, {"shape": ("N", 2, 3)}),
    "Split": ([node("Split", ["x", "s"], ["p", "q"], axis=1), node("Concat", ["q", "p"], axis=1)], {"s": ints(1, 3)}),
    "Split-opset-11": ([node("Split", ["x"], ["p", "q"], axis=1), node("Sub", ["q", "p"])], {}, {"opset": 11}),
    "Relu": ([node("Relu", ["x"])], {}),
    "LeakyRelu": ([node("LeakyRelu", ["x"], alpha=0.3)], {}),
    "LeakyRelu-default": ([node("LeakyRelu", ["x"])], {}),
    "PRelu": ([node("PRelu", ["x", "s"])], {"s": np.array([0, 0.25, 0.5, 1], dtype=F)}),
    "Imputer": ([node("Imputer", ["x"], imputed_value_floats=[1.0], replaced_value_float=float("nan"))], {}),
    "Scaler": ([node("Scaler", ["x"], offset=[1.0, 2.0, 3.0, 4.0], scale=[0.5, 0.1, 1.0, 2.0])], {}),
    "LinearClassifier": ([node("LinearClassifier", ["x"], ["label", "y"], coefficients=draw(12).tolist(),
                               intercepts=[0.1, 0.2, 0.3], classlabels_ints=[0, 1, 2], post_transform="NONE")], {}),
    "LinearRegressor": ([node("LinearRegressor", ["x"], coefficients=draw(8).tolist(), intercepts=[0.5, -2.0], targets=2)], {}),
    "LinearRegressor-without-intercepts": ([node("LinearRegressor", ["x"], coefficients=draw(4).tolist())], {}),
    "LeakyRelu-steep": ([node("LeakyRelu", ["x"], alpha=1.7)], {}),
    "LeakyRelu-negative": ([node("LeakyRelu", ["x"], alpha=-0.3)], {}),
    "PRelu-any": ([node("PRelu", ["x", "s"])], {"s": np.array([-1, 0.25, 1, 3], dtype=F)}),
    "Abs": ([node("Abs", ["x"])], {}),
    "Max": ([node("Gemm", ["x", "w"], ["g"]), node("Max", ["x", "g"])], {"w": draw(4, 4)}),
    "Max-three": ([node("Gemm", ["x", "w"], ["g"]), node("Neg", ["x"], ["n"]), node("Max", ["x", "c", "g", "n"])],
                  {"w": draw(4, 4), "c": draw(4)}),
    "Max-broadcast": ([node("ReduceSum", ["x", "a"], ["g"]), node("Max", ["g", "x"])], {"a": ints(1)}),
    "Max-one": ([node("Max", ["x"])], {}),
    "Max-constant": ([node("Max", ["c", "x"])], {"c": F(0.1)}),
    "Max-no-constant": ([node("Max", ["x", "c"])], {"c": F(-np.inf)}),
    "Max-same": ([node("Max", ["x", "x"])], {}),
    "Min": ([node("Gemm", ["x", "w"], ["g"]), node("Min", ["x", "g", "c"])], {"w": draw(4, 4), "c": draw(4)}),
    "Clip": ([node("Clip", ["x", "l", "h"])], {"l": F(-0.3), "h": F(0.7)}),
    "Clip-opset-9": ([node("Clip", ["x"], min=-0.5, max=0.25)], {}, {"opset": 9}),
    "Clip-opset-9-one-side": ([node("Clip", ["x"], max=0.25)], {}, {"opset": 9}),
    "Clip-no-bounds": ([node("Clip", ["x"])], {}),
    "Clip-upper": ([node("Clip", ["x", "", "h"])], {"h": F(0.7)}),
    "Clip-lower": ([node("Clip", ["x", "l"])], {"l": F(0)}),
    "Clip-crossed": ([node("Clip", ["x", "l", "h"])], {"l": F(2), "h": F(1)}),
    "Clip-float-max": ([node("Clip", ["x", "l", "h"])], {"l": np.finfo(F).min, "h": np.finfo(F).max}),
    "Clip-infinite": ([node("Clip", ["x", "l", "h"])], {"l": F(-np.inf), "h": F(np.inf)}),
    "Clip-huge": ([node("Gemm", ["x", "w", "b"], ["g"]), node("Clip", ["g", "l", "h"])],
                  {"w": draw(4, 4), "b": draw(4), "l": F(-1e30), "h": F(1e25)}),
    "Clip-double": ([node("Clip", ["x", "l", "h"])], {"l": np.float64(-0.1), "h": np.float64(0.3)}, {"kind": 11}),
    "HardSigmoid": ([node("HardSigmoid", ["x"])], {}),
    "HardSigmoid-torch": ([node("HardSigmoid", ["x"], alpha=1 / 6, beta=0.5)], {}),
    "MaxPool": ([node("MaxPool", ["x"], kernel_shape=[2, 2], strides=[2, 2])], {}, IMAGE),
    "MaxPool-overlapping": ([node("MaxPool", ["x"], kernel_shape=[3, 2], pads=[1, 0, 1, 1])], {}, IMAGE),
    "MaxPool-ceil": ([node("MaxPool", ["x"], kernel_shape=[2, 3], strides=[2, 2], ceil_mode=1)], {}, IMAGE),
    "MaxPool-dilated": ([node("MaxPool", ["x"], kernel_shape=[2, 2], dilations=[2, 3])], {}, IMAGE),
    "MaxPool-same": ([node("MaxPool", ["x"], kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_LOWER")], {}, IMAGE),
    "MaxPool-1d": ([node("MaxPool", ["x"], kernel_shape=[3], strides=[2])], {}, {"shape": ("N", 2, 7)}),
    "GlobalMaxPool": ([node("GlobalMaxPool", ["x"])], {}, IMAGE),
    "GlobalAveragePool": ([node("GlobalAveragePool", ["x"])], {}, IMAGE),
    "AveragePool": ([node("AveragePool", ["x"], kernel_shape=[2, 2], strides=[2, 2])], {}, IMAGE),
    "AveragePool-padded": ([node("AveragePool", ["x"], kernel_shape=[3, 3], pads=[1, 1, 1, 1])], {}, IMAGE),
    "AveragePool-counted": ([node("AveragePool", ["x"], kernel_shape=[3, 3], pads=[1, 0, 1, 2], count_include_pad=1)], {}, IMAGE),
    "AveragePool-ceil": ([node("AveragePool", ["x"], kernel_shape=[2, 2], strides=[2, 3], ceil_mode=1)], {}, IMAGE),
    "AveragePool-same": ([node("AveragePool", ["x"], kernel_shape=[2, 2], auto_pad="SAME_UPPER")], {}, IMAGE),
    "Conv": ([node("Conv", ["x", "w", "b"])], {"w": draw(3, 2, 3, 2), "b": draw(3)}, IMAGE),
    "Conv-padded": ([node("Conv", ["x", "w"], pads=[1, 0, 2, 1], strides=[2, 1], kernel_shape=[3, 2])],
                    {"w": draw(3, 2, 3, 2)}, IMAGE),
    "Conv-dilated": ([node("Conv", ["x", "w"], dilations=[2, 1])], {"w": draw(1, 2, 2, 3)}, IMAGE),
    "Conv-groups": ([node("Conv", ["x", "w", "b"], group=2)], {"w": draw(4, 1, 2, 2), "b": draw(4)}, IMAGE),
    "Conv-same": ([node("Conv", ["x", "w"], auto_pad="SAME_UPPER", strides=[2, 2])], {"w": draw(2, 2, 3, 3)}, IMAGE),
    "Conv-valid": ([node("Conv", ["x", "w"], auto_pad="VALID")], {"w": draw(2, 2, 3, 3)}, IMAGE),
    "Conv-1d": ([node("Conv", ["x", "w", "b"], pads=[1, 1])], {"w": draw(3, 2, 3), "b": draw(3)}, {"shape": ("N", 2, 7)}),
    "Conv-normalised": ([node("Conv", ["x", "w", "b"], ["c"]), node("BatchNormalization", ["c", "g", "b", "m", "v"])],
                        {"w": draw(3, 2, 2, 2), "g": draw(3), "b": draw(3), "m": draw(3), "v": np.abs(draw(3))}, IMAGE),
    "Pad": ([node("Pad", ["x", "p", "v"])], {"p": ints(0, 0, 1, 0, 0, 0, 2, 1), "v": F(0.5)}, IMAGE),
    "Pad-axes": ([node("Pad", ["x", "p", "", "a"])], {"p": ints(1, 2, 0, 1), "a": ints(-1, 2)}, {**IMAGE, "opset": 18}),
    "Pad-crops": ([node("Pad", ["x", "p"])], {"p": ints(0, 0, -1, 1, 0, 0, 1, -2)}, IMAGE),
    "Pad-reflect": ([node("Pad", ["x", "p"], mode="reflect")], {"p": ints(0, 0, 2, 1, 0, 0, 1, 3)}, IMAGE),
    "Pad-edge": ([node("Pad", ["x", "p"], mode="edge")], {"p": ints(0, 0, 2, 1, 0, 0, 1, 3)}, IMAGE),
    "Pad-opset-9": ([node("Pad", ["x"], pads=[0, 1, 0, 2], value=1.5)], {}, {"opset": 9}),
    "ReduceMean": ([node("ReduceMean", ["x"], axes=[1], keepdims=1)], {}),
    "ReduceMean-opset-18": ([node("ReduceMean", ["x", "a"], keepdims=0)], {"a": ints(2, 3)}, {**IMAGE, "opset": 18}),
    "ReduceSum": ([node("ReduceSum", ["x", "a"], keepdims=0)], {"a": ints(-1)}, IMAGE),
    "ReduceSum-nothing": ([node("ReduceSum", ["x"], noop_with_empty_axes=1)], {}, IMAGE),
    "ReduceMax": ([node("ReduceMax", ["x"], axes=[1, 3], keepdims=0)], {}, IMAGE),
    "ReduceMin": ([node("ReduceMin", ["x"], axes=[1], keepdims=1)], {}),
    "Sum": ([node("Relu", ["x"], ["r"]), node("Sum", ["x", "r", "x"])], {}),
    "ArrayFeatureExtractor": ([node("ArrayFeatureExtractor", ["x", "i"])], {"i": ints(2, 0)}),
    "ArrayFeatureExtractor-axes": ([node("ArrayFeatureExtractor", ["x", "i"])], {"i": ints(1)}, {"shape": ("N", 2, 3)}),
    "constants-folded": ([node("Transpose", ["w"], ["t"], perm=[1, 0]), node("Mul", ["t", "c"], ["u"]),
                          node("Sqrt", ["c"], ["r"]), node("MatMul", ["x", "u"], ["v"]), node("Add", ["v", "r"])],
                         {"w": draw(3, 4), "c": F(0.3)}),
    "constants-normalised": ([node("ReduceL2", ["w"], ["n"], axes=[1]), node("Div", ["w", "n"], ["u"]), node("MatMul", ["x", "u"])],
                             {"w": draw(4, 3)}),
    "double": ([node("Gemm", ["x", "w"])], {"w": draw(4, 3).astype(np.float64) / 3}, {"kind": 11}),
}


def test_every_supported_operator_has_a_case() -> None:
    elsewhere = {"LabelEncoder", "OneHotEncoder",       # these take legal rows only: see test_onnx_inputs
                 "Sigmoid", "Tanh", *(op for op, _, _ in SHAPED.values()),         # smooth layers have tests of their own
                 "TreeEnsemble", "TreeEnsembleRegressor"}   # test_trees
    assert {case.split("-")[0] for case in CASES} == set(SUPPORTED) - elsewhere | {"constants", "double"}


@pytest.mark.parametrize("case", CASES)
def test_operator_alone_and_below_a_relu(case: str, tmp_path: Path) -> None:
    nodes, constants, options = (*CASES[case], {})[:3]
    x = draw(2, *options.get("shape", ("N", 4))[1:], seed=1)
    if options.get("kind") == 11:
        x = x.astype(np.float64)
    alone = save(tmp_path / "alone.onnx", nodes, constants, **options)
    under = [*nodes, node("Relu", ["y"], ["relu"], name="top"), node("Sub", ["relu", "y"], ["z"], name="last")]
    below = save(tmp_path / "below.onnx", under, constants, **options, outputs=["z"])
    for path, output in ((alone, "y"), (below, "z")):
        network = read_onnx(path, output=output)
        expected = onnxruntime_output(path, x, output)
        np.testing.assert_allclose(network.forward(x.reshape(2, -1).astype(np.float64)), expected, rtol=1e-5, atol=1e-5)


@st.composite
def graphs(draw_: Any) -> tuple[list[Any], dict[str, np.ndarray], int]:
    """A random graph on two-axis tensors: any live tensor may be used again, so skips and branches arise."""
    n = draw_(st.integers(1, 4))
    live, widths, nodes, constants = ["x"], {"x": n}, [], {}

    def constant(*shape: int) -> str:
        name = f"c{len(constants)}"
        grid = draw_(st.lists(st.integers(-8, 8), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
        constants[name] = (np.array(grid, dtype=F) * F(draw_(st.sampled_from([1.0, 0.25, 0.1])))).reshape(shape)
        return name

    for k in range(draw_(st.integers(1, 8))):
        a = draw_(st.sampled_from(live))
        op = draw_(st.sampled_from(["Gemm", "Relu", "LeakyRelu", "Add", "AddData", "Concat", "Slice", "Mul", "Neg", "Sub"]))
        out, w = f"t{k}", widths[a]
        b = draw_(st.sampled_from(live))
        if op == "Gemm":
            m = draw_(st.integers(1, 4))
            new = node("Gemm", [a, constant(w, m), constant(m)], [out], name=out)
            w = m
        elif op == "AddData" and widths[b] == w:
            new = node("Add", [a, b], [out], name=out)
        elif op == "Concat":
            new, w = node("Concat", [a, b], [out], name=out, axis=1), w + widths[b]
        elif op == "Slice":
            keep = draw_(st.integers(1, w))
            constants[out + "i"] = ints(*range(w - 1, w - 1 - keep, -1))
            new, w = node("Gather", [a, out + "i"], [out], name=out, axis=1), keep
        elif op in ("Add", "Mul", "Sub"):
            new = node(op, [constant(w), a], [out], name=out)
        elif op == "LeakyRelu":
            new = node(op, [a], [out], name=out, alpha=0.1)
        else:
            new = node(op if op in ("Relu", "Neg") else "Relu", [a], [out], name=out)
        nodes.append(new)
        live.append(out)
        widths[out] = w
    return [*nodes, node("Identity", [live[-1]], ["y"])], constants, n


@given(graphs())
@settings(max_examples=150)
def test_random_graphs_agree_with_onnxruntime(graph: tuple[list[Any], dict[str, np.ndarray], int]) -> None:
    nodes, constants, n = graph
    x = draw(8, n, seed=3)
    with tempfile.TemporaryDirectory() as folder:
        path = save(Path(folder) / "random.onnx", nodes, constants, shape=("N", n))
        try:
            network = read_onnx(path, check_points=8)
        except ModelError as error:
            assume("outputs add up to" not in str(error))  # such as x beside 1 - x, which are refused as probabilities
            raise
        expected = onnxruntime_output(path, x)
    scale = 1 + np.abs(expected).max()
    np.testing.assert_allclose(network.forward(x.astype(np.float64)), expected, rtol=0, atol=1e-3 * scale)


def test_local_functions_are_inlined(tmp_path: Path) -> None:
    body = helper.make_function("local", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])],
                                [helper.make_opsetid("", 17)])
    path = save(tmp_path / "f.onnx", [node("Identity", ["x"])], {})
    model = onnx.load(path)
    model.graph.node[0].CopyFrom(helper.make_node("Twice", ["x"], ["y"], domain="local"))
    model.functions.append(body)
    model.opset_import.append(helper.make_opsetid("local", 1))
    path.write_bytes(model.SerializeToString())
    assert read_onnx(path).layers[0].weight.tolist() == (2 * np.eye(4)).tolist()


# Sigmoid and Tanh in hidden layers: read as they are, checked against onnxruntime, the one at the end still the link.


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
    ]
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


SHAPED: dict[str, tuple[str, int, dict[str, Any]]] = {
    "elu": ("Elu", 9, {}), "elu-alpha": ("Elu", 9, {"alpha": 0.3}), "celu": ("Celu", 17, {}),
    "celu-alpha": ("Celu", 17, {"alpha": 1.7}),
    "selu": ("Selu", 9, {}), "selu-other": ("Selu", 9, {"alpha": 1.5, "gamma": 0.75}), "softplus": ("Softplus", 9, {}),
    "gelu": ("Gelu", 20, {}), "gelu-tanh": ("Gelu", 20, {"approximate": "tanh"}), "mish": ("Mish", 18, {}),
    "hardswish": ("HardSwish", 14, {}), "swish": ("Swish", 24, {}), "swish-alpha": ("Swish", 24, {"alpha": 1.702}),
    "microsoft": ("com.microsoft.Gelu", 17, {}), "quick": ("com.microsoft.QuickGelu", 17, {}),
}
NUMBERS = {name: F(value) for name, value in {
    "one": 1, "half": 0.5, "root": 2**0.5, "inverse": 0.5**0.5, "two_pi": (2 / np.pi) ** 0.5, "k": 0.044715, "three": 3, "six": 6,
    "zero": 0, "c": 1.702}.items()}
UNFOLDED: dict[str, tuple[Curve, list[tuple[str, str, str]]]] = {
    "silu": (Curve.SILU, [("Sigmoid", "a", "g"), ("Mul", "a g", "y")]),
    "swish": (Curve.SILU, [("Mul", "c a", "b"), ("Sigmoid", "b", "g"), ("Mul", "g a", "y")]),
    "mish": (Curve.MISH, [("Softplus", "a", "b"), ("Tanh", "b", "g"), ("Mul", "a g", "y")]),
    "mish-log": (Curve.MISH, [
        ("Exp", "a", "e"), ("Add", "one e", "f"), ("Log", "f", "b"), ("Tanh", "b", "g"), ("Mul", "g a", "y")]),
    "gelu": (Curve.GELU, [
        ("Div", "a root", "b"), ("Erf", "b", "e"), ("Add", "e one", "g"), ("Mul", "a g", "h"), ("Mul", "h half", "y")]),
    "gelu-halved": (Curve.GELU, [
        ("Mul", "a half", "h"), ("Mul", "a inverse", "b"), ("Erf", "b", "e"), ("Add", "one e", "g"), ("Mul", "h g", "y")]),
    "gelu-tanh": (Curve.GELU_TANH, [
        ("Mul", "a a", "s"), ("Mul", "a s", "t"), ("Mul", "k t", "u"), ("Add", "a u", "v"), ("Mul", "two_pi v", "w"),
        ("Tanh", "w", "e"), ("Add", "one e", "f"), ("Mul", "a f", "g"), ("Mul", "half g", "y")]),
    "gelu-tanh-pow": (Curve.GELU_TANH, [
        ("Pow", "a three", "t"), ("Mul", "t k", "u"), ("Add", "u a", "v"), ("Mul", "v two_pi", "w"), ("Tanh", "w", "e"),
        ("Add", "e one", "f"), ("Mul", "a half", "h"), ("Mul", "h f", "y")]),
    "hardswish": (Curve.HARDSWISH, [("HardSigmoid", "a", "g"), ("Mul", "a g", "y")]),
    "relu6": (Curve.HARDSWISH, [("Add", "a three", "b"), ("Clip", "b zero six", "g"), ("Mul", "a g", "h"), ("Div", "h six", "y")]),
}


@pytest.mark.parametrize("case", SHAPED)
def test_every_other_curve_is_a_layer(tmp_path: Path, case: str) -> None:
    op, opset, attributes = SHAPED[case]
    for name, last in (("m.onnx", "y1"), ("l.onnx", "z")):
        short = op.rpartition(".")[2]
        nodes = [node("MatMul", ["x", "w0"], ["a0"], name="n1"), node(short, ["a0"], ["y0"], name="first", **attributes),
                 node("MatMul", ["y0", "w1"], ["a1"], name="n2"), node(short, ["a1"], ["y1"], name="second", **attributes),
                 node("MatMul", ["y1", "w2"], ["z"], name="n3")]
        for one in (nodes[1], nodes[3]) if "." in op else ():
            one.domain = op.rpartition(".")[0]
        path = save(tmp_path / name, nodes, W, outputs=[last], opset=opset, check=False)
        if "." in op:
            model = onnx.load(path)
            model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
            onnx.save(model, path)
        network = read_onnx(path)
        assert not network.piecewise_linear
        logits_agree(path, network, last)


@pytest.mark.parametrize("case", UNFOLDED)
def test_curves_of_several_nodes_are_one_layer(tmp_path: Path, case: str) -> None:
    curve, steps = UNFOLDED[case]
    nodes = [node("MatMul", ["x", "w0"], ["a"], name="n1"), node("MatMul", ["y", "w2"], ["z"], name="last")]
    for k, (op, inputs, made) in enumerate(steps):
        more = {"alpha": 1 / 6} if op == "HardSigmoid" else {}
        nodes.insert(-1, node(op, inputs.split(), [made], name=f"step{k}", **more))
    path = save(tmp_path / "m.onnx", nodes, {**W, **NUMBERS}, outputs=["z"])
    network = read_onnx(path)
    layer = network.layers[0]
    assert isinstance(layer, SmoothLayer)
    assert (layer.curve == curve).all()
    assert network.hidden == (6,)
    logits_agree(path, network, "z")


@pytest.mark.parametrize("case", ["silu", "gelu", "gelu-tanh", "mish"])
def test_what_is_almost_such_a_curve_is_a_product(tmp_path: Path, case: str) -> None:
    """The gate of another tensor, or by another constant."""
    _, steps = UNFOLDED[case]
    nodes = [node("MatMul", ["x", "w0"], ["a"], name="n1"), node("Neg", ["a"], ["n"], name="n2"),
             node("MatMul", ["y", "w2"], ["z"], name="last")]
    other = {"a g": "n g"} if case in ("silu", "mish") else {"a root": "a six", "two_pi v": "half v"}
    for k, (op, inputs, made) in enumerate(steps):
        nodes.insert(-1, node(op, other.get(inputs, inputs).split(), [made], name=f"step{k}"))
    path = save(tmp_path / "m.onnx", nodes, {**W, **NUMBERS}, outputs=["z"])
    if case == "gelu":
        with pytest.raises(ModelError, match=r"Erf is not supported here"):
            read_onnx(path)
        return
    network = read_onnx(path)
    kinds = {int(kind) for layer in network.layers if isinstance(layer, SmoothLayer) for kind in layer.curve[layer.smooth]}
    assert Curve.SQUARE in kinds
    assert kinds <= {Curve.SQUARE, Curve.SIGMOID, Curve.TANH, Curve.SOFTPLUS}
    logits_agree(path, network, "z")


def test_entries_that_are_the_same_are_squared_once(tmp_path: Path) -> None:
    nodes = [node("Gather", ["x", "i"], ["a"], axis=1), node("Mul", ["a", "x"])]
    network = read_onnx(save(tmp_path / "m.onnx", nodes, {"i": ints(0, 2, 2, 0)}))
    first, last = network.layers
    assert isinstance(first, SmoothLayer)
    assert first.squared.all()
    assert first.weight.tolist() == [[0, 1, 1, 0], [1, 0, 0, 1], [0, 1, -1, 0], [-1, 0, 0, 1], [1, 0, 0, 0], [0, 0, 1, 0]]
    assert last.weight.tolist() == [
        [0, 0, 0, 0, 1, 0], [0.25, 0, -0.25, 0, 0, 0], [0, 0, 0, 0, 0, 1], [0, 0.25, 0, -0.25, 0, 0]
    ]
    assert network.rounding is None
    assert not network.knows_float32


def test_factors_of_very_unlike_size_do_not_lose_each_other(tmp_path: Path) -> None:
    """(1e9 x + 1) 1e-9 x: of the sum of both factors float64 would keep the first alone, and the product would be 0."""
    nodes = [node("Mul", ["x", "large"], ["u"], name="first"), node("Add", ["u", "one"], ["v"]),
             node("Mul", ["x", "small"], ["w"], name="second"), node("Mul", ["v", "w"])]
    network = read_onnx(save(tmp_path / "m.onnx", nodes, {"large": F(1e9), "small": F(1e-9), "one": F(1)}))
    x = np.array([[1.0, -2.0, 0.5, 3.0]])
    large, small = (float(np.float32(size)) for size in (1e9, 1e-9))
    expected = (large * x + 1) * small * x
    assert np.abs(network.forward(x) - expected).max() < 1e-8


def test_a_square_in_front_of_a_node_that_overflows_is_told(tmp_path: Path) -> None:
    """In float32, 1e20 x 1e20 is infinite: the import check finds no number."""
    path = save(tmp_path / "m.onnx", [node("Mul", ["x", "c"], ["a"]), node("Mul", ["a", "a"], name="square")], {"c": F(1e20)})
    with pytest.raises(ModelError, match="inf"):
        read_onnx(path)


def test_numbers_of_every_row_are_constants(tmp_path: Path) -> None:
    """As skl2onnx writes the bias of PolynomialFeatures: a column as long as the batch."""
    nodes = [node("Gather", ["x", "i"], ["a"], axis=1), node("Shape", ["a"], ["s"]),
             node("ConstantOfShape", ["s"], ["one"], value=helper.make_tensor("value", 1, [1], [0.5])),
             node("Concat", ["one", "x"], ["b"], axis=1), node("Gemm", ["b", "w"])]
    path = save(tmp_path / "m.onnx", nodes, {"i": ints(0), "w": draw(5, 2)})
    assert read_onnx(path).layers[0].bias.tolist() == (draw(5, 2)[0] / 2).tolist()
    nodes[1:2] = [node("Shape", ["a"], ["t"]), node("Concat", ["t", "t"], ["s"], axis=0)]
    with pytest.raises(ModelError, match="does not keep axis 0 as the batch"):
        read_onnx(save(tmp_path / "m.onnx", nodes, {"i": ints(0), "w": draw(5, 2)}, check=False))


def test_a_residual_connection_carries_identity_neurons_beside_curves(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", ["x", "w0"], ["a0"], name="n4"),
        node("Relu", ["a0"], ["y0"], name="n5"),
        node("MatMul", ["y0", "w1"], ["a1"], name="n6"),
        node("Tanh", ["a1"], ["y1"], name="n7"),
        node("Add", ["y1", "y0"], ["s"], name="n8"),
        node("MatMul", ["s", "w2"], ["y"], name="n9"),
    ]
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
    ]
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
    with pytest.raises(CurveError, match=r"some\.onnx: hidden layer 1 has sigmoid and tanh neurons, not supported by a test"):
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
    ]
    assert "a probability or a value it seems, and no logit" in read_onnx(save(tmp_path / "m.onnx", nodes, constants)).doubt
    assert read_onnx(tmp_path / "m.onnx", output="z").hidden == (6,)
