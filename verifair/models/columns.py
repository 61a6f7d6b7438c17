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
        found = getattr(model, name, None)
        found = found() if callable(found) else found
        if found is not None and len(found) and all(isinstance(one, str) for one in np.asarray(found).tolist()):
            named = tuple(map(str, found))
            return () if _placeholders(named, fitted=name == "feature_names_in_") else named
    return ()


def holds_numbers(column: pd.Series) -> bool:
    """Return True if a column of a table holds numbers; truth values are not numbers."""
    return bool(pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column))


def holds_truths(column: pd.Series) -> bool:
    """Return True if a column of a table holds only True, False and missing values, whatever its dtype."""
    return bool(pd.api.types.is_bool_dtype(column.dropna().infer_objects()))


def kind_of(values: Any) -> str:
    """Return what values of an encoder are: text, integer or number."""
    listed = np.asarray(values).tolist()
    if any(isinstance(value, str) for value in listed):
        return "text"
    return "integer" if all(isinstance(value, int) and not isinstance(value, bool) for value in listed) else "number"


def _placeholders(names: Sequence[str], *, fitted: bool) -> bool:
    """Return True if these are the numbers that boosting libraries give to columns without names.

    fitted: they stand in `feature_names_in_`, where a table may have plain numbers; LightGBM 4.5 puts its own there, of arrays as
    well, and scikit-learn's ensembles take them from a member.
    """
    plain = [tuple(f"{prefix}{k}" for k in range(len(names))) for prefix in (("Column_",) if fitted else ("Column_", ""))]
    return tuple(names) in plain


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
    taken = {name for node in model.graph.node for name in (*node.input, *node.output)}
    if taken & {*names, JOINED}:
        model = compose.add_prefix(model, PREFIX)
        (matrix,) = model.graph.input
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 1]) for name in names]
    whole = matrix.name
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.graph.node.insert(0, helper.make_node("Concat", list(names), [whole], name=JOINED, axis=1))
    if not any(one.domain in ("", "ai.onnx") for one in model.opset_import):
        model.opset_import.append(helper.make_opsetid("", 15))
    return model


def renamed(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """Return a model whose inputs have these names, without those that it does not read."""
    for one in model.graph.output:
        if any(one.name == given.name for given in model.graph.input):  # a single column without a node
            model.graph.node.append(helper.make_node("Identity", [one.name], [f"{one.name}/same"], name=f"{one.name}/same"))
            one.name += "/same"
    taken = {name for node in model.graph.node for name in (*node.input, *node.output)}
    if taken & set(names):
        model = compose.add_prefix(model, PREFIX)
    new = dict(zip((one.name for one in model.graph.input), names, strict=True))
    read = {name for node in model.graph.node for name in node.input}
    kept = [one for one in model.graph.input if one.name in read]
    del model.graph.input[:]
    for one in kept:
        one.name = new[one.name]
    model.graph.input.extend(kept)
    for node in model.graph.node:
        for k, name in enumerate(node.input):
            node.input[k] = new.get(name, name)
    return model
