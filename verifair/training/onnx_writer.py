"""Trained weights as an ONNX file, node by node: the same weights give the same bytes, with any torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
from onnx import TensorProto, helper, numpy_helper

from encoders.arrays import Floats
from verifair.files import whole

Weights = Sequence[tuple[Floats, Floats]]

OPSET = 17
IR_VERSION = 8
"""The ONNX file version that came with opset 17."""


def onnx_model(weights: Weights, metadata: Mapping[str, str]) -> onnx.ModelProto:
    """Write Gemm, Relu, Gemm, ... for weights [(W (m, n), b (m,)), ...]: input x float32 [N, n_0], output logits [N, n_N].

    metadata goes into the model's metadata_props, sorted by key; what is no UTF-8 in it, as in file names, is escaped.
    """
    nodes, initializers = [], []
    value = "x"
    for k, (weight, bias) in enumerate(weights, start=1):
        last = k == len(weights)
        affine = "logits" if last else f"affine_{k}"
        initializers += [numpy_helper.from_array(weight, f"weight_{k}"), numpy_helper.from_array(bias, f"bias_{k}")]
        operands = [value, f"weight_{k}", f"bias_{k}"]
        nodes.append(helper.make_node("Gemm", operands, [affine], name=f"gemm_{k}", transB=1))
        value = affine
        if not last:
            value = f"relu_{k}_out"
            nodes.append(helper.make_node("Relu", [affine], [value], name=f"relu_{k}"))
    graph = helper.make_graph(
        nodes,
        "verifair",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", weights[0][0].shape[1]])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", weights[-1][0].shape[0]])],
        initializer=initializers,
    )
    model = helper.make_model(
        graph, producer_name="verifair", opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    helper.set_model_props(model, {key: metadata[key].encode(errors="backslashreplace").decode() for key in sorted(metadata)})
    onnx.checker.check_model(model, full_check=True)
    return model


def save_onnx(path: Path, weights: Weights, metadata: Mapping[str, str]) -> None:
    """Write `onnx_model` to a file, whole or not at all; make its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as half:
        half.write_bytes(onnx_model(weights, metadata).SerializeToString(deterministic=True))
