"""Every model that cannot be used is refused with one message that names the file, the node and the remedy."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from encoders.errors import ModelError, ModelFileError
from encoders.onnx.reader import read_onnx

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
    refused(save(tmp_path / "m.onnx", [node("Sigmoid", ["x"], ["s"]), node("Neg", ["s"])], {}), "at the end", op="Sigmoid")


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
    "Mul": ([node("Mul", ["x", "x"])], {}, "must be a constant"),
    "Div": ([node("Div", ["c", "x"])], {"c": F(1)}, "must be a constant"),
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
    refused(path, message, op=op)


@pytest.mark.parametrize("options", [
    {"auto_pad": "SAME_LOWER", "ceil_mode": 1}, {"auto_pad": "VALID", "ceil_mode": 1}, {"auto_pad": "SAME_UPPER", "dilations": [2]},
])  # fmt: skip
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
