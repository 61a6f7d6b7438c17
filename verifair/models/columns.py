"""The inputs of converted models: one for each column, with the object's own names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pandas as pd
from onnx import TensorProto, compose, helper

from verifair.models.objects import flat, package_of

OPSETS = {"": 15, "ai.onnx.ml": 3}
"""Operator sets that all converters know, so that a pipeline may end in any of their models."""
JOINED = "columns"
"""Name of the matrix of all named columns."""
PREFIX = "model/"
"""Prefix of names within a model that are also names of columns."""


def names_of(model: Any) -> tuple[str, ...]:
    """Return the names of the columns that an object was fitted on; empty if it does not know them."""
    if package_of(model) == "sklearn":
        model = flat(model)     # a pipeline that begins with steps that do nothing does not say what the next one knows
    for name in ("feature_names_in_", "feature_names_", "feature_names", "feature_name"):
        values = getattr(model, name, None)
        values = values() if callable(values) else values
        if values is not None and len(values) and all(isinstance(name, str) for name in np.asarray(values).tolist()):
            names = tuple(map(str, values))
            return () if _placeholders(names, fitted=name == "feature_names_in_") else names
    return ()


def holds_numbers(column: pd.Series) -> bool:
    """Return True if a column of a table holds numbers; truth values are not numbers."""
    return bool(pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column))


def holds_truths(column: pd.Series) -> bool:
    """Return True if a column of a table holds only True, False and missing values, whatever its dtype."""
    return bool(pd.api.types.is_bool_dtype(column.dropna().infer_objects()))


def kind_of(values: Any) -> str:
    """Return what values of an encoder are: text, integer or number."""
    items = np.asarray(values).tolist()
    if any(isinstance(value, str) for value in items):
        return "text"
    return "integer" if all(isinstance(value, int) and not isinstance(value, bool) for value in items) else "number"


def _placeholders(names: Sequence[str], *, fitted: bool) -> bool:
    """Return True if these are the numbers that boosting libraries give to columns without names.

    fitted: they stand in `feature_names_in_`, where a table may have plain numbers; LightGBM 4.5 puts its own there, of arrays as
    well, and scikit-learn's ensembles take them from a member.
    """
    patterns = [tuple(f"{prefix}{k}" for k in range(len(names))) for prefix in (("Column_",) if fitted else ("Column_", ""))]
    return tuple(names) in patterns


def model_of(graph: onnx.GraphProto) -> onnx.ModelProto:
    """Return a graph as a model with these operator sets."""
    opsets = [helper.make_opsetid(domain, version) for domain, version in OPSETS.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def by_column(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """Return a model of one matrix as a model with an input for each column, by name."""
    (matrix,) = model.graph.input
    width = matrix.type.tensor_type.shape.dim[1].dim_value
    if not names or width not in (0, len(names)):
        return model
    tensor_names = {name for node in model.graph.node for name in (*node.input, *node.output)}
    if tensor_names & {*names, JOINED}:
        model = compose.add_prefix(model, PREFIX)
        (matrix,) = model.graph.input
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 1]) for name in names]
    matrix_name = matrix.name
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.graph.node.insert(0, helper.make_node("Concat", list(names), [matrix_name], name=JOINED, axis=1))
    if not any(opset.domain in ("", "ai.onnx") for opset in model.opset_import):
        model.opset_import.append(helper.make_opsetid("", 15))
    return model


def renamed(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """Return a model whose inputs have these names, without those that it does not read."""
    for info in model.graph.output:
        if any(info.name == model_input.name for model_input in model.graph.input):  # a single column without a node
            model.graph.node.append(helper.make_node("Identity", [info.name], [f"{info.name}/same"], name=f"{info.name}/same"))
            info.name += "/same"
    tensor_names = {name for node in model.graph.node for name in (*node.input, *node.output)}
    if tensor_names & set(names):
        model = compose.add_prefix(model, PREFIX)
    new_names = dict(zip((info.name for info in model.graph.input), names, strict=True))
    used = {name for node in model.graph.node for name in node.input}
    inputs = [info for info in model.graph.input if info.name in used]
    del model.graph.input[:]
    for info in inputs:
        info.name = new_names[info.name]
    model.graph.input.extend(inputs)
    for node in model.graph.node:
        for k, name in enumerate(node.input):
            node.input[k] = new_names.get(name, name)
    return model
