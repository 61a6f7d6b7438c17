"""Small ONNX graphs for tests, and onnxruntime's own answer to them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

ML = ("ArrayFeatureExtractor", "Imputer", "LabelEncoder", "LinearClassifier", "LinearRegressor", "Normalizer", "OneHotEncoder",
      "Scaler", "TreeEnsembleClassifier", "ZipMap")


def save(path: Path, nodes: Sequence[onnx.NodeProto], constants: dict[str, Any], *, shape: Sequence[Any] = ("N", 4),
         outputs: Sequence[str] = ("y",), opset: int = 17, kind: int = TensorProto.FLOAT, inputs: Sequence[str] = ("x",),
         check: bool = True) -> Path:
    """Store a graph whose inputs have the given shape and whose outputs are the named tensors."""
    graph = helper.make_graph(
        list(nodes), "test",
        [helper.make_tensor_value_info(name, kind, shape) for name in inputs],
        [helper.make_tensor_value_info(name, kind, None if check else ("N", "M")) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name=name) for name, value in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)],
                              ir_version=9)
    inferred = {o.name: o for o in onnx.shape_inference.infer_shapes(model).graph.output} if check else {}
    for output in model.graph.output if check else ():
        output.type.CopyFrom(inferred[output.name].type)
        if not output.type.tensor_type.HasField("shape"):
            output.type.CopyFrom(helper.make_tensor_type_proto(kind, ("N", "M")))
    if check:
        onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())
    return path


def node(op: str, inputs: Sequence[str], outputs: Sequence[str] = ("y",), *, name: str | None = None,
         **attributes: Any) -> onnx.NodeProto:
    domain = "ai.onnx.ml" if op in ML else ""
    return helper.make_node(op, list(inputs), list(outputs), name=name or f"the_{op}", domain=domain, **attributes)


def onnxruntime_output(path: Path, x: np.ndarray, output: str | None = None) -> np.ndarray:
    """The model's own output for x, by a plain session on the stored file."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return np.asarray(session.run([output] if output else None, {name: x})[0], dtype=np.float64).reshape(len(x), -1)
