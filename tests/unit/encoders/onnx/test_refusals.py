"""What cannot be used is refused in one message that names the file, the node and the remedy, before it costs anything."""

import contextlib
import math
import os
import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from encoders.errors import ModelError, ModelFileError
from encoders.onnx import graph as onnx_graph
from encoders.onnx import reader as onnx_reader
from encoders.onnx.file import load, stored_tensors
from encoders.onnx.graph import size_of
from encoders.onnx.reader import read_onnx
from verifair.errors import SchemaError
from verifair.schema.outcome import PositiveRule

from .onnx_models import node, save

FIXTURES = Path(__file__).parents[3] / "fixtures" / "onnx"
F = np.float32


def refused(path: Path, match: str, *, op: str | None = None, exit_code: int = 3, **options: Any) -> ModelError:
    with pytest.raises(ModelError, match=match) as caught:
        read_onnx(path, **options)
    assert str(caught.value).startswith(str(path))
    assert caught.value.exit_code == exit_code
    assert "\n" not in str(caught.value)
    if op is not None:
        assert caught.value.op == op
        assert caught.value.node == f"the_{op}"
        assert f"the_{op}" in str(caught.value)
    return caught.value


def doubted(path: Path) -> str:
    """Return why outputs are no logits: all that is asked about logits is refused, and nothing about values."""
    network = read_onnx(path)
    logits = PositiveRule.parse("logit > 0" if network.outputs == 1 else "class = 1")
    for odds in (False, True):
        with pytest.raises(SchemaError) as caught:
            logits.judged(network, odds=odds)
        assert str(caught.value) == f'positive = "{logits}": the model {network.doubt}'
    if network.outputs == 1:
        assert PositiveRule.parse("value > 0.5").read(network) is not None
    return network.doubt


def test_missing_file(tmp_path: Path) -> None:
    assert isinstance(refused(tmp_path / "no.onnx", "cannot be read", exit_code=2), ModelFileError)


def test_a_directory(tmp_path: Path) -> None:
    refused(tmp_path, "cannot be read", exit_code=2)


@pytest.mark.parametrize("name", ["torch_script_normalised", "sklearn_mlp_three", "torch_dynamo_branches"])
def test_truncated_at_any_length(name: str, tmp_path: Path) -> None:
    data = (FIXTURES / f"{name}.onnx").read_bytes()
    path = tmp_path / "cut.onnx"
    whole = read_onnx(FIXTURES / f"{name}.onnx")
    for length in range(0, len(data), 7):
        path.write_bytes(data[:length])
        with contextlib.suppress(ModelError):
            network = read_onnx(path)
            # A file cut after its graph, among its closing notes, is still the same network; nothing else may be read.
            assert length > 0.9 * len(data)
            assert all((a.weight == b.weight).all() for a, b in zip(network.layers, whole.layers, strict=True))


def test_not_onnx(tmp_path: Path) -> None:
    path = tmp_path / "text.onnx"
    path.write_text("age,sex\n1,2\n")
    refused(path, "not a ", exit_code=2)


def test_missing_and_truncated_external_weights(tmp_path: Path) -> None:
    path = tmp_path / "torch_dynamo_external.onnx"
    path.write_bytes((FIXTURES / path.name).read_bytes())
    refused(path, r"torch_dynamo_external\.onnx\.data", exit_code=2)
    (tmp_path / f"{path.name}.data").write_bytes((FIXTURES / f"{path.name}.data").read_bytes()[:900])
    refused(path, "external|raw_data|data", exit_code=2)


def test_unsupported_operator_is_named(tmp_path: Path) -> None:
    error = refused(save(tmp_path / "m.onnx", [node("Erf", ["x"])], {}), "Erf is not supported", op="Erf")
    assert "Gemm" in str(error)
    assert "Relu" in str(error)


def test_sigmoid_in_the_middle(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("Sigmoid", ["x"], ["s"]), node("Neg", ["s"])], {})
    assert doubted(path).endswith("probabilities it seems, and no logits; end it with Softmax")


MIXED = np.random.default_rng(0).normal(size=(4, 3)).astype(F)


def shown_mean(weights: list[float], *, one: Any = 1.0, order: tuple[str, ...] = ("m", "p")) -> tuple[list[onnx.NodeProto], Any]:
    """Concat(1 - p, p) of p = a sum of sigmoids with weights."""
    nodes = [node("MatMul", ["x", "w"], ["z"]), node("Sigmoid", ["z"], ["s"]), node("MatMul", ["s", "mix"], ["p"], name="last"),
             node("Sub", ["one", "p"], ["m"]), node("Concat", order, axis=1)]
    return nodes, {"w": MIXED[:, : len(weights)], "mix": np.array(weights, dtype=F)[:, None], "one": np.array(one, dtype=F)}


@pytest.mark.parametrize(("weights", "options"), [
    ([0.5, 0.5 + 1e-4], {}), ([0.5, 0.4], {}), ([1.5, -0.5], {}), ([0.5, 0.5], {"order": ("p", "m")}),
    ([0.5, 0.5], {"one": 0.999}), ([0.5, 0.5, 0.5], {}),
])  # fmt: skip
def test_probabilities_are_not_read_as_logits(weights: list[float], options: dict[str, Any], tmp_path: Path) -> None:
    """Gaps of the logistic function of 2p - 1, once proved as those of p."""
    nodes, constants = shown_mean(weights, **options)
    assert re.match("gives outputs that add up to .* at every input: prob", doubted(save(tmp_path / "m.onnx", nodes, constants)))


BEHIND: dict[str, list[onnx.NodeProto]] = {
    "alone": [node("Identity", ["p"])], "cut": [node("Clip", ["p", "low", "high"])], "above 0": [node("Relu", ["p"])],
    "percent": [node("Mul", ["p", "hundred"])], "of the other class": [node("Sub", ["one", "p"])],
    "smoothed": [node("Mul", ["p", "high"], ["q"]), node("Add", ["q", "low"])],
    "of two depths": [node("Sub", ["p", "half"], ["q"]), node("Sigmoid", ["q"], ["t"], name="second"),
                      node("Add", ["t", "p"], ["a"], name="sum"), node("Mul", ["a", "half"])],
    "from tanh": [node("Tanh", ["z"], ["t"], name="curve"), node("MatMul", ["t", "mix"], ["a"], name="product"),
                  node("Mul", ["a", "half"], ["b"]), node("Add", ["b", "half"])],
    "largest": [node("ReduceMax", ["s"], axes=[1], keepdims=1)],
    "of differences": [node("Sub", ["one", "s"], ["t"]), node("Concat", ["s", "t"], ["c"], axis=1),
                       node("Gather", ["c", "ends"], ["e"], axis=1), node("ReduceMean", ["e"], axes=[1], keepdims=1)],
    "smallest": [node("ReduceMin", ["s"], axes=[1], keepdims=1)],
    "mean of hard ones": [node("HardSigmoid", ["z"], ["t"]), node("MatMul", ["t", "mix"], name="product")],
    "mean of cut numbers": [node("Clip", ["z", "zero", "six"], ["t"]), node("MatMul", ["t", "mix"], name="product")],
    "hard": [node("HardSigmoid", ["first"])], "cut at 0 and 1": [node("Clip", ["first", "zero", "one"])],
    "least of a limit": [node("Max", ["first", "zero"], ["t"]), node("Min", ["t", "half"])],
}


@pytest.mark.parametrize("behind", BEHIND)
def test_a_probability_is_no_logit(behind: str, tmp_path: Path) -> None:
    """It is above 0 whatever the input is, so that no decision ever flipped."""
    nodes, constants = shown_mean([0.25, 0.75])
    constants |= {"low": np.array(1e-3, dtype=F), "high": np.array(0.99, dtype=F), "hundred": np.array(100, dtype=F),
                  "half": np.array(0.5, dtype=F), "ends": np.array([0, 3]), "zero": np.array(0, dtype=F),
                  "six": np.array(6, dtype=F), "small": np.array([[1e-5], [0]], dtype=F)}
    first = node("MatMul", ["z", "small"], ["first"], name="of_dollars")
    path = save(tmp_path / "m.onnx", [*nodes[:3], first, *BEHIND[behind]], constants)
    assert re.match("gives an output between .* at every input: a probability or a value it seems, and no logit", doubted(path))


@pytest.mark.parametrize("outputs", [2, 3])
def test_a_sigmoid_of_each_of_several_scores_tells_no_probability_of_a_decision(outputs: int, tmp_path: Path) -> None:
    """The gap of softmax was proved as that of the sigmoid."""
    nodes = [node("MatMul", ["x", "w"], ["z"]), node("Sigmoid", ["z"])]
    refused(save(tmp_path / "m.onnx", nodes, {"w": MIXED[:, :outputs]}), f"a sigmoid of each of {outputs} scores.*Softmax")


def test_outputs_that_add_up_to_something_else_are_logits(tmp_path: Path) -> None:
    rows = {"w": np.stack([MIXED[:, 0], -MIXED[:, 0]], axis=1), "v": MIXED[:, :2]}
    assert read_onnx(save(tmp_path / "scores.onnx", [node("MatMul", ["x", "w"])], rows)).outputs == 2
    assert read_onnx(save(tmp_path / "two.onnx", [node("MatMul", ["x", "v"])], rows)).outputs == 2
    constant = [node("MatMul", ["x", "none"], ["y0"]), node("Add", ["y0", "pair"])]
    given = {"none": np.zeros((4, 2), dtype=F), "pair": np.array([1, 0], dtype=F)}
    assert not read_onnx(save(tmp_path / "constant.onnx", constant, given)).doubt
    nodes, constants = shown_mean([0.25, 0.75])  # an MLP with logistic neurons
    nodes = [*nodes[:2], node("MatMul", ["s", "mix"], name="last")]
    for mix in ([[0.9], [-0.8]], [[-0.5], [-0.2]]):
        assert read_onnx(save(tmp_path / "mlp.onnx", nodes, constants | {"mix": np.array(mix, dtype=F)})).outputs == 1


@pytest.mark.parametrize(("threshold", "shifted", "read"), [(0.3, False, False), (0.5, False, True), (0.5, True, True)])
def test_labels_that_another_threshold_decides_are_no_labels_of_the_logits(
    threshold: float, shifted: bool, read: bool, tmp_path: Path
) -> None:
    nodes = [node("MatMul", ["x", "w"], ["z"]), node("Sigmoid", ["z"], ["y"]), node("Greater", ["y", "t"], ["g"]),
             node("Cast", ["g"], ["label"], to=TensorProto.INT64)]
    if shifted:  # labels 3 and 4
        nodes[3:] = [node("Cast", ["g"], ["c"], to=TensorProto.INT64), node("Add", ["c", "three"], ["label"])]
    path = save(tmp_path / "m.onnx", nodes, {"w": MIXED[:, :1], "t": np.array(threshold, dtype=F), "three": np.array(3)})
    model = onnx.load(path)
    model.graph.output.append(helper.make_tensor_value_info("label", TensorProto.INT64, ["N", 1]))
    onnx.save(model, path)
    if read:
        assert read_onnx(path).outputs == 1
    else:
        refused(path, "shows classes that are decided otherwise than by its logits")


def test_labels_of_a_logit_that_is_always_a_tie_are_compared_nowhere(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["x", "w"]), node("Cast", ["y"], ["label"], to=TensorProto.INT64)]
    path = save(tmp_path / "m.onnx", nodes, {"w": np.zeros((4, 1), dtype=F)})
    model = onnx.load(path)
    model.graph.output.append(helper.make_tensor_value_info("label", TensorProto.INT64, ["N", 1]))
    onnx.save(model, path)
    assert read_onnx(path).outputs == 1


@pytest.mark.parametrize("other", ["count", "words"])
def test_outputs_beside_the_logits_need_no_rows(other: str, tmp_path: Path) -> None:
    """A number for the whole batch ended in a ValueError of NumPy, words that are declared as numbers in a TypeError."""
    nodes = {"count": [node("Size", ["x"], ["other"])], "words": [node("Constant", [], ["other"], value_string="INT64")]}[other]
    path = save(tmp_path / "m.onnx", [node("MatMul", ["x", "w"]), *nodes], {"w": MIXED[:, :1]})
    model = onnx.load(path)
    model.graph.output.append(helper.make_tensor_value_info("other", TensorProto.INT64, []))
    onnx.save(model, path)
    assert read_onnx(path, output="y").outputs == 1


def test_a_classifier_with_a_coefficient_too_many_is_refused(tmp_path: Path) -> None:
    given = {"coefficients": [1.0, 2.0, -1.0, -2.0, 3.0], "intercepts": [1.0, -1.0], "classlabels_ints": [0, 1]}
    classifier = node("LinearClassifier", ["x"], ["label", "y"], post_transform="LOGISTIC", **given)
    refused(save(tmp_path / "m.onnx", [classifier], {}, check=False), "coefficients")


def test_many_outputs_take_no_square_of_their_number(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("MatMul", ["x", "w"])], {"w": np.ones((4, 2**14), dtype=F)})
    tracemalloc.start()
    try:
        assert read_onnx(path, check_points=1).outputs == 2**14
        assert tracemalloc.get_traced_memory()[1] < 2**27  # a table of all pairs of outputs has 2^28 entries
    finally:
        tracemalloc.stop()


def test_operator_of_another_domain(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("Normalizer", ["x"], norm="MAX")], {})
    refused(path, "Normalizer is not supported", op="Normalizer")


def test_nameless_node_goes_by_its_output(tmp_path: Path) -> None:
    nameless = node("Erf", ["x"])
    nameless.name = ""
    with pytest.raises(ModelError) as caught:
        read_onnx(save(tmp_path / "m.onnx", [nameless], {}))
    assert caught.value.node == "y"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite(value: float, tmp_path: Path) -> None:
    weight = np.ones((4, 3), dtype=F)
    weight[2, 1] = value
    error = refused(save(tmp_path / "m.onnx", [node("MatMul", ["x", "w"])], {"w": weight}), r"'w'.*NaN or infinite.*\[2, 1\]")
    assert error.node == "w"


def test_half_precision_input_and_weights(tmp_path: Path) -> None:
    half = save(tmp_path / "h.onnx", [node("Neg", ["x"])], {}, kind=TensorProto.FLOAT16)
    refused(half, "FLOAT16.*supported are FLOAT and DOUBLE")
    mixed = save(tmp_path / "m.onnx", [node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16), node("Neg", ["h"])], {})
    refused(mixed, "supported are float32 and float64", op="Cast")


def test_quantised_weights(tmp_path: Path) -> None:
    path = save(tmp_path / "q.onnx", [
        node("DequantizeLinear", ["w", "s"], ["d"]), node("MatMul", ["x", "d"])],
        {"w": np.ones((4, 3), dtype=np.int8), "s": F(0.1)})
    refused(path, "DequantizeLinear on constants is not supported", op="DequantizeLinear")


def test_two_inputs_are_columns_one_after_the_other(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("Add", ["age", "sex"])], {}, inputs=["age", "sex"], shape=("N", 2))
    assert read_onnx(path).layers[0].weight.tolist() == [[1, 0, 1, 0], [0, 1, 0, 1]]


def test_several_outputs_list_the_remedy(tmp_path: Path) -> None:
    nodes = [node("Neg", ["x"], ["a"]), node("Neg", ["a"], ["b"], name="other")]
    path = save(tmp_path / "m.onnx", nodes, {}, outputs=["a", "b"])
    refused(path, "'a', 'b'.*output=")
    refused(path, "no tensor 'c'.*'a', 'b'", output="c")


@pytest.mark.parametrize(("shape", "found"), [((4,), r"\[4\]"), (("N", "columns"), r"\?"), ((), r"\[\]")])
def test_input_shapes_without_fixed_columns(shape: tuple[Any, ...], found: str, tmp_path: Path) -> None:
    refused(save(tmp_path / "m.onnx", [node("Neg", ["x"])], {}, shape=shape), found)


def test_box_of_another_width(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("Neg", ["x"])], {})
    refused(path, "takes 4 input columns, but the domain has 3", box=(np.zeros(3), np.ones(3)))


def test_no_check_points(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="check_points"):
        read_onnx(save(tmp_path / "m.onnx", [node("Neg", ["x"])], {}), check_points=0)


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


MIXING: dict[str, tuple[Any, ...]] = {  # op: (nodes, constants, what the message says)
    "PRelu": ([node("PRelu", ["x", "s"])], {"s": np.full((4, 4), -0.5, dtype=F)}, "batch axis|do not fit"),
    "Clip": ([node("Clip", ["x", "x"])], {}, "must be a constant"),
    "Max": ([node("Max", ["x", "c"])], {"c": F(np.inf)}, "infinite"),
    "Min": ([node("Min", ["x", "c"])], {"c": np.array([1, -np.inf, 2, 3], dtype=F)}, "infinite"),
    "ReduceMax": ([node("ReduceMax", ["x"], keepdims=0)], {}, "the batch among them", {"opset": 13}),
    "ReduceSum": ([node("ReduceSum", ["x", "a"])], {"a": ints(0)}, "the batch among them"),
    "Pad": ([node("Pad", ["x", "p"])], {"p": ints(1, 0, 0, 0)}, "pads the batch"),
    "MaxPool": ([node("MaxPool", ["x"], kernel_shape=[2])], {}, "no spatial axes"),
    "AveragePool": ([node("AveragePool", ["x"], kernel_shape=[5])], {}, "does not fit an axis of 3", {"shape": ("N", 2, 3)}),
    "Conv": ([node("Conv", ["x", "w"])], {"w": np.ones((2, 3, 2), dtype=F)}, "2 channels in 1 groups", {"shape": ("N", 2, 3)}),
    "Mul": ([node("Mul", ["x", "c"])], {"c": np.ones((2, 1), dtype=F)}, "batch axis"),
    "Pow": ([node("Pow", ["x", "c"])], {"c": F(3)}, "raises to the power 3; supported is 2"),
    "ReduceProd": ([node("ReduceProd", ["x"], keepdims=0)], {}, "the batch among them", {"opset": 13}),
    "ReduceProd-many": ([node("ReduceProd", ["x"], axes=[1])], {}, "multiplies 9 numbers", {"opset": 13, "shape": ("N", 9)}),
    "Div": ([node("Div", ["c", "x"])], {"c": F(1)}, "divides by the data"),
    "Transpose": ([node("Transpose", ["x"], perm=[1, 0])], {}, "axis 0 as the batch"),
    "Reshape": ([node("Reshape", ["x", "s"])], {"s": ints(-1)}, "axis 0 as the batch"),
    "Flatten": ([node("Flatten", ["x"], axis=0)], {}, "axis 1"),
    "Concat": ([node("Concat", ["x", "x"], axis=0)], {}, "batch axis"),
    "Slice": ([node("Slice", ["x", "b", "e"])], {"b": ints(0), "e": ints(1)}, "rows of the batch"),
    "Gather": ([node("Gather", ["x", "i"], axis=0)], {"i": ints(0)}, "rows of the batch"),
    "Split": ([node("Split", ["x", "s"], ["y"], axis=0)], {"s": ints(1)}, "batch"),
    "Unsqueeze": ([node("Unsqueeze", ["x", "a"])], {"a": ints(0)}, "axis 0 must stay the batch"),
    "MatMul": ([node("MatMul", ["w", "x"])], {"w": np.ones((3, 2), dtype=F)}, "rows of the batch mix"),
    "Gemm": ([node("Gemm", ["x", "w"], transA=1)], {"w": np.ones((2, 2), dtype=F)}, "transA = 0"),
    "Add": ([node("Add", ["x", "c"])], {"c": np.ones((2, 1), dtype=F)}, "batch axis"),
    "Cast": ([node("Cast", ["x"], ["i"], to=7), node("Cast", ["i"], name="back", to=1)], {}, "float32 and float64"),
    "Softmax": ([node("Softmax", ["x"], axis=0)], {}, "at least two classes"),
    "Dropout": ([node("Dropout", ["x", "r", "t"])], {"r": F(0.5), "t": np.bool_(True)}, "inference"),
}


@pytest.mark.parametrize("op", MIXING)
def test_what_is_not_a_map_of_single_rows(op: str, tmp_path: Path) -> None:
    nodes, constants, message, options = (*MIXING[op], {})[:4]
    path = tmp_path / "m.onnx"
    try:
        save(path, nodes, constants, **options)
    except Exception:       # shape inference finds some of it by itself
        save(path, nodes, constants, **options, check=False)
    refused(path, message, op=op.partition("-")[0])


@pytest.mark.parametrize("options", [
    {"auto_pad": "SAME_LOWER", "ceil_mode": 1}, {"auto_pad": "VALID", "ceil_mode": 1}, {"auto_pad": "SAME_UPPER", "dilations": [2]},
])
def test_windows_that_runtimes_make_differently(options: dict[str, Any], tmp_path: Path) -> None:
    pool = node("MaxPool", ["x"], ["p"], kernel_shape=[2], **options)
    path = save(tmp_path / "m.onnx", [pool, node("Relu", ["p"])], {}, shape=("N", 1, 7), check=False)
    refused(path, "export it with pads", op="MaxPool")


def test_parameters_of_another_shape(tmp_path: Path) -> None:
    given = {name: np.ones(4, dtype=F) for name in "gbmv"}
    normal = node("BatchNormalization", ["x", "g", "b", "m", "v"])
    for wrong in (np.ones((4, 1), dtype=F), np.ones(3, dtype=F), np.ones((), dtype=F)):
        for name in "gbmv":
            path = save(tmp_path / "m.onnx", [normal], {**given, name: wrong}, check=False)
            refused(path, r"parameters of shape .* meet a tensor of shape \(batch, 4\)", op="BatchNormalization")


def test_empty_tensors(tmp_path: Path) -> None:
    """onnxruntime reads a largest end as "through entry 0", against the standard, by which nothing is left."""
    cut = node("Slice", ["x", "b", "e", "a", "s"], ["c"])
    given = {"b": ints(2), "a": ints(1), "s": ints(-1)}
    for end, message, op in ((2**63 - 1, "backwards", "Slice"), (2, "empty tensor", "Relu")):
        path = save(tmp_path / "m.onnx", [cut, node("Relu", ["c"])], {**given, "e": ints(end)}, check=False)
        refused(path, message, op=op)


def test_division_by_a_zero_constant(tmp_path: Path) -> None:
    refused(save(tmp_path / "m.onnx", [node("Div", ["x", "c"])], {"c": F(0)}), "zero", op="Div")


def test_wrong_width(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("Gemm", ["x", "w"])], {"w": np.ones((5, 3), dtype=F)}, check=False)
    refused(path, "a weight for 5 columns meets")


def test_output_that_does_not_depend_on_the_input(tmp_path: Path) -> None:
    refused(save(tmp_path / "m.onnx", [node("Identity", ["c"])], {"c": np.ones((1, 2), dtype=F)}), "does not depend")


def test_an_attribute_that_is_an_argument_of_no_function(tmp_path: Path) -> None:
    wrong = node("Elu", ["x"], alpha=0.5)
    wrong.attribute[0].ref_attr_name = "alpha"
    refused(save(tmp_path / "m.onnx", [wrong], {}, check=False), "not a valid ONNX model", exit_code=2)


NORM = [node("ReduceMean", ["x"], ["m"], axes=[1]), node("Sub", ["x", "m"], ["d"], name="sub"),
        node("Pow", ["d", "two"], ["q"], name="pow"),
        node("ReduceMean", ["q"], ["v"], axes=[1], name="mean"), node("Add", ["v", "e"], ["w"], name="add"),
        node("Sqrt", ["w"], ["r"], name="root"), node("Div", ["d", "r"], name="the_LayerNormalization")]
ATTENTION = [node("MatMul", ["x", "k"], ["s"], name="keys"), node("Softmax", ["s"], ["p"], name="softmax"),
             node("MatMul", ["p", "x"], name="the_Attention")]


@pytest.mark.parametrize(("nodes", "op", "advice"), [
    ([node("LayerNormalization", ["x", "k4"])], "LayerNormalization", "use BatchNormalization"),
    (NORM, "LayerNormalization", "use BatchNormalization"),
    ([*NORM[2:-1], node("Div", ["d", "r"], name="the_RMSNormalization")], "RMSNormalization", "use BatchNormalization"),
    (ATTENTION, "Attention", "use a network of layers one after the other"),
    ([node("Transpose", ["x"], ["t"], name="turned", perm=[1, 0]), *ATTENTION[:2],
      node("MatMul", ["p", "x"], ["a"], name="the_Attention"), node("Add", ["a", "t"], name="sum")],
     "Attention", "use a network of layers one after the other"),
], ids=["layer-norm", "layer-norm-unfolded", "rms-norm-unfolded", "attention", "attention-turned"])
def test_normalisation_and_attention_are_refused_by_name(nodes: list[Any], op: str, advice: str, tmp_path: Path) -> None:
    constants = {"two": F(2), "e": F(1e-5), "k4": np.ones(4, dtype=F), "k": np.ones((4, 4), dtype=F)}
    if nodes[0].op_type == "Pow":
        nodes = [node("Relu", ["x"], ["d"], name="relu"), *nodes]
    path = save(tmp_path / "m.onnx", nodes, constants, check=False)
    refused(path, advice, op=op)


def test_a_weight_called_by_bytes_that_are_no_text(tmp_path: Path) -> None:
    stored = FIXTURES / "torch_dynamo_external.onnx"
    (tmp_path / "torch_dynamo_external.onnx.data").write_bytes(stored.with_suffix(".onnx.data").read_bytes())
    (tmp_path / "m.onnx").write_bytes(stored.read_bytes().replace(b"0.weight", b"\xff.weight"))
    refused(tmp_path / "m.onnx", "not a valid ONNX model", exit_code=2)


def test_weights_that_warn_when_they_are_converted(tmp_path: Path) -> None:
    signalling = np.full((4, 1), 0x7FA00000, dtype=np.uint32).view(F)
    refused(save(tmp_path / "m.onnx", [node("MatMul", ["x", "w"])], {"w": signalling}), "4 of its 4 stored numbers are NaN")


def test_nodes_that_nobody_asks_about_are_not_run(tmp_path: Path) -> None:
    """onnxruntime runs them all, if they are in the graph: one that fails, or one that fills the memory."""
    nodes = [node("MatMul", ["x", "w"], ["z"]), node("Sigmoid", ["z"]), node("Reshape", ["x", "s"], ["never"])]
    path = save(tmp_path / "m.onnx", nodes, {"w": np.ones((4, 1), F), "s": np.array([7, 7])}, check=False)
    assert read_onnx(path).inputs == 4


# Constants that a few bytes make enormous are refused before they are computed.


def whole(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


@pytest.mark.parametrize(("nodes", "constants"), [
    ([node("ConstantOfShape", ["n"], ["c"])], {"n": whole(10**6, 10**6)}),
    ([node("Expand", ["one", "n"], ["c"])], {"n": whole(10**6, 10**6), "one": np.ones((1, 1), F)}),
    ([node("Tile", ["one", "n"], ["c"])], {"n": whole(10**6, 10**6), "one": np.ones((1, 1), F)}),
    ([node("Range", ["zero", "end", "step"], ["c"])], {"zero": np.array(0), "end": np.array(10**12), "step": np.array(1)}),
    ([node("Pad", ["v", "n"], ["c"])], {"v": np.ones(3, F), "n": whole(0, 10**9)}),
    ([node("MatMul", ["v", "w"], ["c"])], {"v": np.ones((20_000, 1), F), "w": np.ones((1, 20_000), F)}),
    ([node("Add", ["v", "w"], ["c"])], {"v": np.ones((20_000, 1), F), "w": np.ones((1, 20_000), F)}),
    ([node("Gather", ["v", "n"], ["c"], axis=0)], {"v": np.ones((1, 1000), F), "n": np.zeros(100_000, np.int64)}),
    ([node("Concat", [f"c{k}"] * 9, [f"c{k + 1}" if k < 39 else "c"], axis=0) for k in range(40)], {"c0": np.ones(4, F)}),
])
def test_refused_before_they_are_computed(nodes: list[onnx.NodeProto], constants: dict[str, Any], tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [*nodes, node("Add", ["x", "c"])], constants, check=False)
    with pytest.raises(ModelError, match=r"constant numbers; at most") as caught:
        read_onnx(path)
    assert caught.value.node is not None


def test_all_of_them_together_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is small: arithmetic, which is done in rationals, counts several times."""
    nodes = [node("Add", [f"c{k}", "c0"], [f"c{k + 1}" if k < 9 else "c"], name=f"n{k}") for k in range(10)]
    path = save(tmp_path / "m.onnx", [*nodes, node("Add", ["x", "c"])], {"c0": np.ones(4, F)})
    monkeypatch.setattr(onnx_graph, "IN_ALL", 10 * 4 * 8)
    assert (read_onnx(path).layers[0].bias == 11).all()
    monkeypatch.setattr(onnx_graph, "IN_ALL", 10 * 4 * 8 - 1)
    with pytest.raises(ModelError, match="constant numbers; at most"):
        read_onnx(path)


SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)


@settings(max_examples=60)
@given(
    op=st.sampled_from(["Add", "Max", "Where", "MatMul", "Concat", "Transpose", "Gather", "Pad", "Tile", "Expand"]),
    one=SHAPES, two=SHAPES,
)
def test_what_is_computed_is_never_larger_than_said(op: str, one: tuple[int, ...], two: tuple[int, ...]) -> None:
    a, b = np.ones(one, F), np.ones(two, F)
    numbers = {"Gather": np.zeros(two, np.int64), "Tile": whole(*one), "Expand": whole(*two), "Pad": whole(*one, *one[::-1])}
    given_ = {"Where": [a > 0, a, b], "Transpose": [a]}.get(op, [a, numbers.get(op, b)])
    attributes = {"axis": 0} if op in ("Concat", "Gather") else {}
    names = [f"v{k}" for k in range(len(given_))]
    fed = dict(zip(names, given_, strict=True))
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in fed.items()]
    graph = helper.make_graph([helper.make_node(op, names, ["y"], **attributes)], "g", infos, [onnx.ValueInfoProto(name="y")])
    try:
        evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
        found = np.asarray(evaluator.run(None, fed)[0])
    except Exception:  # shapes that do not fit
        return
    assert found.size <= size_of(op, given_, attributes) <= 4096 * math.prod(one) * math.prod(two)


def test_constants_that_do_not_fit_each_other_are_refused(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["v", "w"], ["c"], name="product"), node("Add", ["x", "c"])]
    path = save(tmp_path / "m.onnx", nodes, {"v": np.ones((2, 4), F), "w": np.ones((8, 2), F)}, check=False)
    with pytest.raises(ModelError, match=r"node 'product' \(MatMul\): computes with constants of shapes \(2, 4\), \(8, 2\)"):
        read_onnx(path)


def test_a_million_indices_are_not_listed_in_a_message(tmp_path: Path) -> None:
    nodes = [node("Gather", ["x", "n"], ["y"], axis=1)]
    path = save(tmp_path / "m.onnx", nodes, {"n": np.arange(1_000_000)}, check=False)
    with pytest.raises(ModelError, match="picks indices 0 to 999999 of an axis") as caught:
        read_onnx(path)
    assert len(str(caught.value)) < 500


def test_wide_tensors_are_compared_few_points_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(onnx_reader, "check_layers", lambda *given: asked.append(len(given[-1])))
    nodes = [node("Gather", ["x", "n"], ["h"], axis=1), node("ReduceSum", ["h", "last"], keepdims=1)]
    path = save(tmp_path / "m.onnx", nodes, {"n": np.zeros(1000, np.int64), "last": whole(1)})
    read_onnx(path)
    assert asked == [64]
    monkeypatch.setattr(onnx_reader, "AT_ONCE", 30_000)
    read_onnx(path)
    assert asked[1:] == [30, 30, 4]


# What a model file may name beside itself, and that its tensors hold what they say.


WEIGHT = np.arange(8, dtype=np.float32).reshape(4, 2)


def model(weight: TensorProto, *nodes: onnx.NodeProto) -> onnx.ModelProto:
    """x (N, 4) @ W (4, 2)"""
    graph = helper.make_graph(
        nodes or [helper.make_node("MatMul", ["x", "W"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("N", 4))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ("N", 2))], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def elsewhere(location: str, **more: Any) -> TensorProto:
    """W, its numbers in another file."""
    weight = TensorProto(name="W", dims=[4, 2], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, "length": 32, **more}.items():
        weight.external_data.add(key=key, value=str(value))
    return weight


def saved(folder: Path, weight: TensorProto) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "weights.data").write_bytes(WEIGHT.tobytes())
    path = folder / "m.onnx"
    path.write_bytes(model(weight).SerializeToString())
    return path


def refused_files(path: Path, match: str) -> None:
    with pytest.raises(ModelFileError, match=match) as caught:
        read_onnx(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_weights_beside_and_below_the_model_are_read(tmp_path: Path) -> None:
    (tmp_path / "m" / "deep").mkdir(parents=True)
    (tmp_path / "m" / "deep" / "w").write_bytes(WEIGHT.tobytes())
    for location in ("weights.data", "./weights.data", "deep/w"):
        found = read_onnx(saved(tmp_path / "m", elsewhere(location)))
        assert (found.layers[0].weight == WEIGHT.T).all()


@pytest.mark.parametrize("location", ["../secret", "deep/../../secret", "/etc/passwd", "link", "linked/secret", "", ".."])
def test_nothing_outside_the_models_folder_is_opened(location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_bytes(WEIGHT.tobytes())
    path = saved(tmp_path / "m", elsewhere(location))
    (tmp_path / "m" / "deep").mkdir()
    (tmp_path / "m" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "m" / "linked").symlink_to(tmp_path)
    read = Path.read_bytes

    def only_the_model(self: Path) -> bytes:
        assert self == path
        return read(self)

    monkeypatch.setattr(Path, "read_bytes", only_the_model)
    refused_files(path, "outside the folder|no plain file")


@pytest.mark.parametrize("location", ["pipe", "folder", "round", "a\x00b", "x" * 5000, "/dev/zero"])
def test_only_plain_files_are_opened(location: str, tmp_path: Path) -> None:
    """A pipe that nobody writes to would be waited for without end; /dev/zero has no end."""
    path = saved(tmp_path / "m", elsewhere(location))
    os.mkfifo(tmp_path / "m" / "pipe")
    (tmp_path / "m" / "folder").mkdir()
    (tmp_path / "m" / "round").symlink_to("round")
    refused_files(path, "no plain file|no file can be called|outside the folder|cannot be read")


def test_of_two_places_the_one_that_is_read_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(WEIGHT.tobytes())
    weight = elsewhere("weights.data")
    weight.external_data.add(key="location", value="../secret")
    refused_files(saved(tmp_path / "m", weight), "outside the folder")


@pytest.mark.parametrize(
    "more", [{"offset": -8}, {"offset": 10**12}, {"length": 10**12}, {"length": -1}, {"offset": "x"}, {"length": 31}])
def test_places_within_the_file_of_weights(more: dict[str, Any], tmp_path: Path) -> None:
    refused_files(saved(tmp_path / "m", elsewhere("weights.data", **more)), "valid ONNX model|does not hold")


def test_every_tensor_of_a_file_is_known(tmp_path: Path) -> None:
    """Also those in branches, sparse ones and those of functions: their files count in the model's hash."""
    def tensor(name: str) -> TensorProto:
        return numpy_helper.from_array(np.zeros(1, dtype=np.float32), name)

    inside = helper.make_node("Constant", [], ["c"], value=tensor("in a branch"))
    branch = helper.make_graph([inside], "b", [], [], [tensor("of a branch")])
    sparse = helper.make_sparse_tensor(tensor("values"), numpy_helper.from_array(np.zeros(1, dtype=np.int64), "indices"), [4])
    nodes = [helper.make_node("If", ["c"], ["d"], then_branch=branch), helper.make_node("Constant", [], ["e"], sparse_value=sparse)]
    found = model(tensor("W"), *nodes)
    found.graph.sparse_initializer.append(sparse)
    function = [helper.make_node("Constant", [], ["b"], value=tensor("of a function"))]
    found.functions.append(helper.make_function("local", "F", ["a"], ["b"], function, [helper.make_opsetid("", 17)]))
    names = [t.name for t in stored_tensors(found)]
    assert sorted(names) == sorted(["W", "of a branch", "in a branch", "of a function", *2 * ["values", "indices"]])
    found.graph.node[0].attribute[0].g.initializer[0].CopyFrom(elsewhere("../secret"))
    (tmp_path / "m.onnx").write_bytes(found.SerializeToString())
    with pytest.raises(ModelFileError, match="outside the folder"):
        load(tmp_path / "m.onnx")


def with_dims(*dims: int) -> TensorProto:
    weight = numpy_helper.from_array(WEIGHT, "W")
    del weight.dims[:]
    weight.dims.extend(dims)
    return weight


@pytest.mark.parametrize("dims", [(4, 3), (-1, 2), (-4, -2), (10**6, 10**6), (2**62, 2), (4, 2, 0), (2**40,)])
def test_shapes_that_the_numbers_do_not_fill(dims: tuple[int, ...], tmp_path: Path) -> None:
    refused_files(saved(tmp_path / "m", with_dims(*dims)), "does not hold the numbers|valid ONNX model")


@pytest.mark.parametrize("kind", [0, -1, 99, 2**31 - 1, TensorProto.DOUBLE, TensorProto.STRING])
def test_types_that_the_numbers_are_not_of(kind: int, tmp_path: Path) -> None:
    weight = numpy_helper.from_array(WEIGHT, "W")
    weight.data_type = kind
    refused_files(saved(tmp_path / "m", weight), "does not hold the numbers|valid ONNX model")


def test_functions_that_double_at_each_call(tmp_path: Path) -> None:
    """A file of two kilobytes whose nodes would fill the memory."""
    found = model(numpy_helper.from_array(WEIGHT, "W"), helper.make_node("F0", ["x"], ["y"], domain="local"))
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    for k in range(40):
        inner = [("Relu", "")] * 2 if k == 39 else [(f"F{k + 1}", "local")] * 2
        nodes = [helper.make_node(name, [x], [y], domain=domain) for (name, domain), x, y in zip(inner, "ac", "cb", strict=True)]
        found.functions.append(helper.make_function("local", f"F{k}", ["a"], ["b"], nodes, imports))
    found.opset_import.extend([helper.make_opsetid("local", 1)])
    (tmp_path / "m.onnx").write_bytes(found.SerializeToString())
    refused_files(tmp_path / "m.onnx", r"become 1,099,511,627,\d+ nodes, at most 65,536 are read")


def test_functions_that_cannot_be_inlined(tmp_path: Path) -> None:
    """More arguments than the function takes; a function that calls itself."""
    for body, inputs in (("Relu", ["x", "x"]), ("F", ["x"])):
        found = model(numpy_helper.from_array(WEIGHT, "W"), helper.make_node("F", inputs, ["y"], domain="local"))
        inner = [helper.make_node(body, ["a"], ["b"], domain="" if body == "Relu" else "local")]
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
        found.functions.append(helper.make_function("local", "F", ["a"], ["b"], inner, imports))
        found.opset_import.extend([helper.make_opsetid("local", 1)])
        (tmp_path / "m.onnx").write_bytes(found.SerializeToString())
        refused_files(tmp_path / "m.onnx", "valid ONNX model")


def test_text_that_is_no_utf_8(tmp_path: Path) -> None:
    gelu = save(tmp_path / "m.onnx", [node("Gelu", ["x"], approximate="tanh")], {}, opset=20)
    gelu.write_bytes(gelu.read_bytes().replace(b"tanh", b"\xff\xfe\x97\x80"))
    refused(gelu, "not a valid ONNX model .*utf-8", exit_code=2)


@pytest.mark.parametrize("kind", [np.complex64, np.float32])
def test_positions_that_are_no_integers(kind: type, tmp_path: Path) -> None:
    refused(save(tmp_path / "m.onnx", [node("Gather", ["x", "at"], axis=1)], {"at": np.array([1], dtype=kind)}),
            f"input 1 .'at'. is of type {np.dtype(kind)}; expected are integers")
