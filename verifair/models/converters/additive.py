"""Models that are sums of step functions of columns, as sums of trees: scorecards, and explainable boosting machines.

KBinsDiscretizer and Binarizer compute step functions of a column, which trees can represent and layers of a network cannot. A
linear function of bins and encoded categories is a sum of trees, one for each column that is binned or encoded. An explainable
boosting machine of InterpretML is a sum of tables over the bins of one or a few columns: one tree for each table.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pandas as pd

from encoders.arrays import Array, Integers
from encoders.errors import ModelError
from verifair.models.columns import names_of
from verifair.models.converters.forests import TreeSum, linear, one_tree, total, written
from verifair.models.objects import called, flat, labels_of, own_of_sklearn, with_steps

BINS = ("KBinsDiscretizer", "Binarizer")
WHOLE, FRACTION = re.compile(r"-?(0|[1-9]\d*)"), re.compile(r"[-+]?\d*\.?\d+([eE][-+]?\d+)?")
"""The format in which an explainable boosting machine writes categories that are numbers."""
Questions = list[tuple[int, TreeSum]]
"""Trees, each with the number of its input columns; their values are the output columns of a pipeline's step."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TableAxis:
    """An axis of a table: E splits, and E + 1 cells.   column: (E,) of each split.

    limit: (E,) a number up to the k-th limit, and above the one before, is in cell k; above the last one it is in cell E. None for
    a block of one-hot columns: the k-th category is in cell k, and a row without one in cell E."""

    column: Integers
    limit: Array | None = None


def behind_bins(model: Any) -> tuple[Any, onnx.ModelProto] | None:
    """Return a pipeline that ends in bins and a linear model as its steps before the trees (None: no steps), and the trees as ONNX
    of one matrix. Return None for other pipelines, and if numbers that are not binned are added."""
    if not hasattr(model, "steps") or (score := linear(last := model[-1])) is None or (split := _as_trees(model[:-1])) is None:
        return None
    (weight, bias), (rest, questions) = score, split
    parts, start, column = list[TreeSum](), 0, 0
    for width, tree in questions:
        matrix = weight[:, start : start + len(tree.base)].T
        parts.append(tree.times(matrix, np.arange(column, column + width)))
        start, column = start + len(matrix), column + width
    return rest, _as_onnx(last, parts, bias, column)


def _as_onnx(model: Any, parts: Sequence[TreeSum], bias: Array, width: int) -> onnx.ModelProto:
    labels = labels_of(model) if hasattr(model, "classes_") else ()
    trees = total(parts, bias)
    assert trees is not None
    return written(width, trees, "NONE" if not labels else "LOGISTIC" if len(labels) == 2 else "SOFTMAX", labels)


def _as_trees(step: Any) -> tuple[Any, Questions] | None:
    """Return a step without the bins at its end (None: nothing is left), and its bins and encoders as trees; None if it outputs
    numbers."""
    step = flat(step)
    if not own_of_sklearn(step):
        return None
    if hasattr(step, "steps"):
        split = _as_trees(step.steps[-1][1])
        if split is None:
            return None
        steps = [*step.steps[:-1], *([] if split[0] is None else [(step.steps[-1][0], split[0])])]
        return with_steps(step, steps), split[1]
    if hasattr(step, "transformers_"):
        return _columns_as_trees(step)
    match type(step).__name__:
        case "KBinsDiscretizer":
            edges = [_below(limits[1:-1]) for limits in step.bin_edges_]
            tables = [np.eye(len(limits) + 1) for limits in edges]
            if step.encode == "ordinal":
                tables = [np.arange(float(len(values)))[:, None] for values in tables]
            return None, [(1, _steps(*pair)) for pair in zip(edges, tables, strict=True)]
        case "Binarizer":
            return None, [(1, _steps(np.array([step.threshold]), np.eye(2)[:, 1:]))] * step.n_features_in_
        case "OneHotEncoder":
            tables = [np.eye(width + 1, width) for width in step._n_features_outs]
            return step, [(values.shape[1], table([TableAxis(column=np.arange(values.shape[1]))], values)) for values in tables]
        case "OrdinalEncoder":
            return step, [(1, _number_tree([*range(len(categories)), step.unknown_value])) for categories in step.categories_]
        case "TargetEncoder" if step.target_type_ != "multiclass":
            return step, [(1, _number_tree([*encoding, step.target_mean_])) for encoding in step.encodings_]
    return None


def _columns_as_trees(step: Any) -> tuple[Any, Questions] | None:
    """Return the same for a ColumnTransformer."""
    transformers, questions = [], Questions()
    for name, transformer, columns in step.transformers_:
        indices = step._transformer_to_input_indices.get(name, ())
        if len(indices) and not (isinstance(transformer, str) and transformer == "drop"):
            split = None if isinstance(transformer, str) else _as_trees(transformer)
            if split is None:
                return None
            transformer = "passthrough" if split[0] is None else split[0]
            questions += split[1]
        transformers.append((name, transformer, columns))
    step = copy.copy(step)
    step.transformers_ = transformers
    return step, questions


def _below(edges: Any) -> Array:
    """Return the largest numbers in the bins below these edges: a number on an edge is in the bin above it."""
    return np.asarray(np.nextafter(np.asarray(edges, dtype=np.float64), -np.inf))


def _steps(limits: Array, values: Array) -> TreeSum:
    """Return a step function of one column as a tree: values (E + 1, m) between limits (E,)."""
    return table([TableAxis(column=np.zeros(len(limits), dtype=np.int64), limit=limits)], values)


def _number_tree(values: Any) -> TreeSum:
    """Return a column that has only these values (float32, as encoders write them) as a tree."""
    numbers = np.array([value for value in values if value is not None and value == value], dtype=np.float64)
    distinct, positions = np.unique(numbers.astype(np.float32), return_index=True)
    return _steps(distinct[:-1].astype(np.float64), numbers[positions, None])


def table(axes: Sequence[TableAxis], values: Array) -> TreeSum:
    """Return a table of values (E_1 + 1, ..., E_r + 1, m) as one tree, which splits along its axes in turn."""
    nodes = list[tuple[int, float, int, int]]()
    leaves = list[Array]()
    nothing = np.zeros(values.shape[-1])

    def add(value: Array = nothing) -> int:
        nodes.append((-1, 0.0, -1, -1))
        leaves.append(value)
        return len(nodes) - 1

    def grow(axis: int, low: int, part: Array) -> int:
        """Add the tree of some cells of an axis, from `low` on, with their values; return its root."""
        value = part.reshape(-1, values.shape[-1])[0]
        if (part == value).all():
            return add(value)
        if len(part) == 1:
            return grow(axis + 1, 0, part[0])
        table_axis = axes[axis]
        if table_axis.limit is None:
            return of_block(axis, part)
        node, half = add(), (len(part) + 1) // 2
        first, second = grow(axis, low, part[:half]), grow(axis, low + half, part[half:])
        nodes[node] = int(table_axis.column[low + half - 1]), float(table_axis.limit[low + half - 1]), first, second
        return node

    def of_block(axis: int, part: Array) -> int:
        """Do the same for a block of one-hot columns, which are split one after the other."""
        root = len(nodes)
        for k, column in enumerate(axes[axis].column.tolist()):
            node = add()
            child = grow(axis, k, part[k : k + 1])
            nodes[node] = column, 0.5, len(nodes), child
        grow(axis, len(part) - 1, part[-1:])
        return root

    grow(0, 0, values)
    feature, limit, left, right = (np.array(items) for items in zip(*nodes, strict=True))
    return one_tree(feature, limit, left, right, np.zeros(len(nodes)), np.array(leaves))


def explainable(model: Any, *, standalone: bool) -> tuple[Any, onnx.ModelProto]:
    """Return an explainable boosting machine as the encoder before its trees (None: none), and the trees as ONNX of one matrix.

    standalone: it takes the columns of a table by name; else it is behind other steps, which make a matrix of all its columns.

    Raises ModelError for another model of InterpretML, and for values that are another function of the sum, or none.
    """
    if not hasattr(model, "term_scores_"):
        raise ModelError(called(model), "is no explainable boosting machine, the only models of InterpretML that are read; fit one")
    if not model.term_features_:
        raise ModelError(called(model), "has no term, and says the same of everybody")
    if model.link_ not in ("logit", "mlogit", "identity"):
        raise ModelError(called(model), f"gives values by the link {model.link_!r}, no sum; fit it with objective='rmse'")
    columns = sorted({k for term in model.term_features_ for k in term})
    categories = {k: _categories(model, model.bins_[k][0]) for k in columns if isinstance(model.bins_[k][0], dict)}
    if categories and not standalone:
        raise ModelError(called(model), "takes words behind other steps; pass it alone, or fit it on numbers")
    numbers = [k for k in columns if k not in categories] if standalone else list(range(len(model.bins_)))
    stops = np.cumsum([len(numbers), *map(len, categories.values())])
    positions = dict(zip(numbers, np.arange(len(numbers))[:, None], strict=True))
    positions |= {k: np.arange(first, end) for k, first, end in zip(categories, stops, stops[1:], strict=False)}
    trees = []
    for term, scores in zip(model.term_features_, model.term_scores_, strict=True):
        values, axes = scores if scores.ndim > len(term) else scores[..., None], []
        for axis, k in enumerate(term):
            bins = model.bins_[k][min(len(term), len(model.bins_[k])) - 1]  # the first one is of missing values
            if k in categories:
                axes.append(TableAxis(column=positions[k]))
                values = values.take([*(bins[str(category)] for category in categories[k]), -1], axis=axis)
            else:
                axes.append(TableAxis(column=np.repeat(positions[k], len(bins)), limit=_below(bins)))
                values = values.take(np.arange(1, len(bins) + 2), axis=axis)
        trees.append(table(axes, values))
    onnx_model = _as_onnx(model, trees, np.atleast_1d(model.intercept_).astype(np.float64), int(stops[-1]))
    return _encoder(names_of(model), numbers, categories) if standalone else None, onnx_model


def _encoder(names: Sequence[str], numbers: Sequence[int], categories: Mapping[int, Sequence[int | str]]) -> Any:
    """Return the encoder of a table into the matrix of the trees: its numbers, and then a block for each column of words."""
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import OneHotEncoder

    encoder = OneHotEncoder(categories=list(map(list, categories.values())))
    parts = [("numbers", "passthrough", [names[k] for k in numbers]), ("words", encoder, [names[k] for k in categories])]
    rows = max(map(len, categories.values()), default=1)
    columns = sorted({*numbers, *categories})
    frame = pd.DataFrame({names[k]: np.resize(categories[k], rows) if k in categories else np.zeros(rows) for k in columns})
    return ColumnTransformer([part for part in parts if part[2]]).fit(frame)


def _categories(model: Any, bins: Mapping[str, int]) -> list[int] | list[str]:
    """Return the categories of a column, as its table has them: whole numbers, or words. Raises ModelError for fractions."""
    names = list(bins)
    if all(WHOLE.fullmatch(name) for name in names):
        return list(map(int, names))
    if all(FRACTION.fullmatch(name) for name in names):
        raise ModelError(called(model), f"has the categories {', '.join(names[:3])}, which are fractions; fit it on words")
    return names


def scores_missing(model: Any) -> bool:
    """Return True if an explainable boosting machine has learned scores for missing values."""
    return any(weights.take(0, axis=k).any() for weights in getattr(model, "bin_weights_", ()) for k in range(weights.ndim))
