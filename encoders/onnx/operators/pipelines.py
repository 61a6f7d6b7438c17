"""Operators of scikit-learn pipelines (ai.onnx.ml, as skl2onnx writes them), and the types of table columns.

A column of integers or words may be rearranged, encoded, or cast to a float; an encoder turns it into the one-hot block of its
categories (see `encoders.onnx.tensor`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from onnx import TensorProto, numpy_helper

from encoders.arrays import Array
from encoders.exact.affine import exact, matrix, selection
from encoders.model import Category
from encoders.onnx.feed import TEXT, WHOLE
from encoders.onnx.file import FLOATS, class_labels
from encoders.onnx.operators.affine import broadcast, last_axis
from encoders.onnx.operators.shapes import SHAPE_OPERATORS
from encoders.onnx.tensor import OnnxNode, Result, Tensor

LARGEST = 2**24
"""Integers up to this size are float32 numbers."""
MOST = 2**24
"""The most weights of one encoder or embedding."""


def _scaler(node: OnnxNode) -> Tensor:
    """ai.onnx.ml Scaler: (x - offset) * scale."""
    x = node.tensor(0)
    for name, default in (("offset", 0.0), ("scale", 1.0)):
        values = np.array(node.numbers(name) or [default])
        if not np.isfinite(values).all():
            raise node.error(f"its {name} holds NaN or infinite numbers")
        x, operand = broadcast(node, x, values)
        x = x.shift(-operand) if name == "offset" else x.scale(operand)
    return x


def _imputer(node: OnnxNode) -> Tensor:
    """ai.onnx.ml Imputer of NaN: complete rows pass unchanged, and no others are in the domain."""
    if not math.isnan(node.number("replaced_value_float", 0.0)):
        raise node.error("replaces a number by another one, a jump; supported are imputers of missing values, NaN")
    return node.tensor(0)


def _linear_classifier(node: OnnxNode) -> Result:
    """ai.onnx.ml LinearClassifier without post-transform: the scores x W^T + b are its second output."""
    if node.attributes.get("post_transform", "NONE") != "NONE":
        raise node.error("a post_transform is supported only at the end of the graph")
    coefficients = np.array(node.numbers("coefficients"))
    labels = len(class_labels(node.attributes))
    if labels == 0 or coefficients.size % labels or coefficients.size // labels != math.prod(node.tensor(0).shape):
        raise node.error(f"{coefficients.size} coefficients for {labels} classes; supported is one row of them a class")
    bias = np.array(node.numbers("intercepts") or [0.0] * labels)
    if not np.isfinite(coefficients).all() or not np.isfinite(bias).all():
        raise node.error("its coefficients hold NaN or infinite numbers")
    return [None, last_axis(node, node.tensor(0), exact(coefficients.reshape(labels, -1))).shift(exact(bias))]


def _linear_regressor(node: OnnxNode) -> Tensor:
    """ai.onnx.ml LinearRegressor: x W^T + b, a row of W for each target."""
    if node.attributes.get("post_transform", "NONE") != "NONE":
        raise node.error("a post_transform is supported only at the end of a classifier")
    targets = int(node.number("targets", 1))
    weight = _finite(node, "coefficients")
    if targets < 1 or weight.size != targets * math.prod(node.tensor(0).shape):
        raise node.error(f"{weight.size} coefficients for {targets} targets; supported is one row of them a target")
    y = last_axis(node, node.tensor(0), exact(weight.reshape(targets, -1)))
    return y.shift(exact(_finite(node, "intercepts"))) if node.numbers("intercepts") else y


def _finite(node: OnnxNode, name: str) -> np.ndarray:
    values = np.array(node.numbers(name) or [], dtype=np.float64)
    if not np.isfinite(values).all():
        raise node.error(f"its {name} hold NaN or infinite numbers")
    return values


def _cast(node: OnnxNode) -> Tensor:
    """Cast: floats stay unchanged. A raw column may become an integer, to be encoded; integers may become floats."""
    x, target = node.tensor(0), node.attributes.get("to")
    raw = x.raw if x.raw is not None else np.full(x.size, -1)
    kinds = {node.columns.feed(int(column)).kind for column in np.unique(raw[raw >= 0])}
    if TEXT not in kinds and target == TensorProto.INT64 and (x.whole or (raw >= 0).all()):
        return replace(x, whole=True)
    if TEXT not in kinds and target in FLOATS and (not x.whole or kinds <= {*WHOLE}):
        return replace(x, whole=False)
    raise node.error("casts the data to a type that is no full float; supported are float32 and float64")


def _feature_extractor(node: OnnxNode) -> Tensor:
    """ai.onnx.ml ArrayFeatureExtractor: picks entries of the last axis."""
    x, index = node.tensor(0), node.indices(1).ravel()
    if not x.shape or (index.size and not (index.min() >= 0 and index.max() < x.shape[-1])):
        shape = ", ".join(map(str, x.shape))
        raise node.error(f"picks entries {index.min()} to {index.max()} of a tensor of shape (batch, {shape})")
    return x.take(x.index[..., index])


def _one_hot_encoder(node: OnnxNode) -> Tensor:
    """ai.onnx.ml OneHotEncoder: the block of each column, on a new last axis."""
    x = node.tensor(0)
    words, numbers = node.attributes.get("cats_strings"), node.attributes.get("cats_int64s")
    categories = _categories(node, words or numbers or [])
    first = _blocks(node, x, categories)
    columns = (first[:, None] + np.arange(len(categories))).ravel()
    m = len(columns)
    return Tensor(shape=(*x.shape, len(categories)), terms={0: selection(columns)}, const=exact(np.zeros(m)))


def _label_encoder(node: OnnxNode) -> Tensor:
    """ai.onnx.ml LabelEncoder (skl2onnx's OrdinalEncoder): each category's number, so a sum over the block of its column."""
    x = node.tensor(0)
    categories = _categories(node, _listed(node, "keys"))
    values = _listed(node, "values")
    if len(values) != len(categories) or not all(isinstance(v, int | float) for v in values):
        raise node.error(f"maps {len(categories)} categories to {len(values)} values; supported is a number for each")
    numbers = np.array(values, dtype=np.float64)
    integral = all(isinstance(v, int) for v in values)
    if not np.isfinite(numbers).all() or (integral and np.abs(numbers).max() > LARGEST):
        raise node.error(f"its values are not all finite numbers{f' within +-{LARGEST}' if integral else ''}")
    return replace(_looked_up(node, x, categories, numbers), whole=integral)


def _gather(node: OnnxNode) -> Tensor:
    if isinstance(node.inputs[1], Tensor):
        return _embedding(node)
    x, index = node.tensor(0), node.indices(1)
    axis = node.axis(int(node.number("axis", 0)), len(x.shape) + 1)
    if axis == 0:
        raise node.error("picks rows of the batch (axis 0); supported are the other axes")
    if index.size and not (-x.shape[axis - 1] <= index.min() and index.max() < x.shape[axis - 1]):
        raise node.error(f"picks indices {index.min()} to {index.max()} of an axis of length {x.shape[axis - 1]}")
    return x.take(np.take(x.index, index, axis=axis))


def _embedding(node: OnnxNode) -> Tensor:
    """Gather of a constant table's rows by a column's codes 0, 1, ..."""
    table, x = node.weight(0), node.tensor(1)
    if node.number("axis", 0) != 0 or not table.size:
        raise node.error("picks entries of a constant by the data; supported are rows of a table (axis 0), as embeddings have them")
    return _looked_up(node, x, tuple(range(len(table))), table)


def _looked_up(node: OnnxNode, x: Tensor, categories: tuple[Category, ...], table: Array) -> Tensor:
    """Return the row of the table (C, ...) that belongs to the category of each entry: a sum over the block of its column."""
    width = math.prod(table.shape[1:])
    first = _blocks(node, x, categories, width)
    entry, code, output = np.indices((len(first), len(table), width)).reshape(3, -1)
    weights = exact(table.reshape(len(table), width)[code, output])
    terms = {0: matrix(entry * width + output, first[entry] + code, weights, rows=len(first) * width)}
    return Tensor(shape=(*x.shape, *table.shape[1:]), terms=terms, const=exact(np.zeros(len(first) * width)))


def _listed(node: OnnxNode, prefix: str) -> list[Category]:
    for name in (f"{prefix}_strings", f"{prefix}_int64s", f"{prefix}_floats"):
        if node.attributes.get(name):
            return list(node.attributes[name])  # type: ignore[call-overload, no-any-return]
    tensor = node.attributes.get(f"{prefix}_tensor")
    return [] if tensor is None else numpy_helper.to_array(tensor).ravel().tolist()  # type: ignore[arg-type]


def _categories(node: OnnxNode, listed: object) -> tuple[Category, ...]:
    assert isinstance(listed, list | tuple)
    categories = tuple(listed)
    if not categories or len(set(categories)) < len(categories) or any(v != v for v in categories):
        raise node.error(f"knows the categories {list(categories)}; supported are distinct words, or distinct numbers without NaN")
    return categories


def _blocks(node: OnnxNode, x: Tensor, categories: tuple[Category, ...], width: int = 1) -> np.ndarray:
    """Return the first column of the one-hot block of every entry.   width: numbers in the node's output for a category."""
    if x.raw is None or (x.raw < 0).any():
        raise node.error("encodes numbers that the model has computed, a step function of them; supported is an encoder of the "
                         "model's input columns")
    if x.size * len(categories) * width > MOST:
        raise node.error(f"encodes {x.size:,} entries, {len(categories):,} categories each, as {width:,} numbers; at most {MOST:,} "
                         "in all are read")
    words = isinstance(categories[0], str)
    for column in np.unique(x.raw).tolist():
        feed = node.columns.feed(column)
        if (feed.kind == TEXT) != words:
            raise node.error(f"encodes {'words' if words else 'numbers'}, but the input {feed.name!r} is of type {feed.kind}")
    if not words and max(abs(v) for v in categories) > LARGEST:  # type: ignore[arg-type]
        raise node.error(f"its categories exceed +-{LARGEST}, beyond which float32 skips integers; number them anew")
    return np.array([node.columns.block(int(column), categories) for column in x.raw], dtype=np.int64)


ML_OPERATORS: dict[str, Callable[[OnnxNode], Result]] = {
    "ArrayFeatureExtractor": _feature_extractor, "Cast": _cast, "Gather": _gather, "Imputer": _imputer,
    "LabelEncoder": _label_encoder, "LinearClassifier": _linear_classifier, "LinearRegressor": _linear_regressor,
    "OneHotEncoder": _one_hot_encoder, "Scaler": _scaler,
}

KEEP_RAW = {*SHAPE_OPERATORS, "ArrayFeatureExtractor", "Cast", "Gather", "Imputer", "LabelEncoder", "OneHotEncoder"}
"""Operators that move or encode columns of the table without computing with them."""

TAKE_WHOLE = {*KEEP_RAW, "LinearClassifier", "LinearRegressor", "Scaler", "TreeEnsemble", "TreeEnsembleRegressor"}
"""Operators that take integers: those that do not keep them raw compute with them, or compare them, in float32."""
