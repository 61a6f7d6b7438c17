"""Linear models behind bins, such as scorecards, as sums of trees.

KBinsDiscretizer and Binarizer make steps of a column, which no layer of a network does and questions of a tree do. A linear
function of bins and encoded categories is a sum of trees: one of each column that is binned, and one of each that is encoded.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import onnx

from encoders.network import Array
from verifair.models.forests import TreeSum, linear, one_tree, total, written
from verifair.models.objects import flat, labels_of, own_of_sklearn, with_steps

BINS = ("KBinsDiscretizer", "Binarizer")
Questions = list[tuple[int, TreeSum]]
"""Trees, each with how many columns it asks about; their values are the columns that a step makes of these."""


def convert(model: Any) -> tuple[Any, onnx.ModelProto] | None:
    """Return what goes before the trees (None: nothing), and them as ONNX of one matrix, of a pipeline that ends in bins and a
    linear model. None of other pipelines, and where numbers are added up that are not binned."""
    if not hasattr(model, "steps") or (score := linear(last := model[-1])) is None or (found := _asked(model[:-1])) is None:
        return None
    (weight, bias), (rest, questions) = score, found
    parts, first, place = list[TreeSum | None](), 0, 0
    for width, tree in questions:
        made = weight[:, first : first + len(tree.base)].T
        parts.append(tree.times(made, np.arange(place, place + width)))
        first, place = first + len(made), place + width
    labels = labels_of(last) if hasattr(last, "classes_") else ()
    trees = total(parts, bias)
    assert trees is not None
    return rest, written(place, trees, "NONE" if not labels else "LOGISTIC" if len(labels) == 2 else "SOFTMAX", labels)


def _asked(step: Any) -> tuple[Any, Questions] | None:
    """Return what a step is without the bins that it ends in (None: nothing), and the trees that these and its encoders are; None
    where it gives numbers."""
    step = flat(step)
    if not own_of_sklearn(step):
        return None
    if hasattr(step, "steps"):
        found = _asked(step.steps[-1][1])
        if found is None:
            return None
        kept = [*step.steps[:-1], *([] if found[0] is None else [(step.steps[-1][0], found[0])])]
        return with_steps(step, kept), found[1]
    if hasattr(step, "transformers_"):
        return _of_columns(step)
    match type(step).__name__:
        case "KBinsDiscretizer":
            edges = [np.nextafter(one[1:-1], -np.inf) for one in step.bin_edges_]  # a number on an edge is in the bin above it
            listed = [np.eye(len(one) + 1) for one in edges]
            if step.encode == "ordinal":
                listed = [np.arange(float(len(one)))[:, None] for one in listed]
            return None, [(1, _steps(*one)) for one in zip(edges, listed, strict=True)]
        case "Binarizer":
            return None, [(1, _steps(np.array([step.threshold]), np.eye(2)[:, 1:]))] * step.n_features_in_
        case "OneHotEncoder":
            return step, [(width, _category(width)) for width in step._n_features_outs]
        case "OrdinalEncoder":
            return step, [(1, _number([*range(len(known)), step.unknown_value])) for known in step.categories_]
        case "TargetEncoder" if step.target_type_ != "multiclass":
            return step, [(1, _number([*known, step.target_mean_])) for known in step.encodings_]
    return None


def _of_columns(step: Any) -> tuple[Any, Questions] | None:
    """The same of a ColumnTransformer."""
    listed, questions = [], Questions()
    for name, one, columns in step.transformers_:
        places = step._transformer_to_input_indices.get(name, ())
        if len(places) and not (isinstance(one, str) and one == "drop"):
            found = None if isinstance(one, str) else _asked(one)
            if found is None:
                return None
            one = "passthrough" if found[0] is None else found[0]
            questions += found[1]
        listed.append((name, one, columns))
    step = copy.copy(step)
    step.transformers_ = listed
    return step, questions


def _steps(limits: Array, values: Array) -> TreeSum:
    """A function of one column: values (E + 1, m) between limits (E,), of which each belongs to the interval below it."""
    count = len(limits)
    leaf, other = count + np.arange(count), np.append(np.arange(1, count), 2 * count)[:count]
    return _chain(np.zeros(count), limits, leaf, other, values)


def _category(width: int) -> TreeSum:
    """A block of so many one-hot columns as they are; all are 0 in a category that has none."""
    leaf, other = width + np.arange(width), np.append(np.arange(1, width), 2 * width)[:width]
    return _chain(np.arange(width), np.full(width, 0.5), other, leaf, np.eye(width + 1, width))


def _number(values: Any) -> TreeSum:
    """A column that has some values (float32, as encoders write them) alone, as it is."""
    given = np.array([one for one in values if one is not None and one == one], dtype=np.float64)
    known, at = np.unique(given.astype(np.float32), return_index=True)
    return _steps(known[:-1].astype(np.float64), given[at, None])


def _chain(column: Any, limit: Any, left: Any, right: Any, values: Array) -> TreeSum:
    """A tree of questions (E,), one after the other, and of E + 1 leaves behind them."""
    none = np.full(len(values), -1)
    return one_tree(
        np.append(column, none), np.append(limit, 0.0 * none), np.append(left, none), np.append(right, none),
        np.zeros(len(column) + len(values)), np.concatenate([np.zeros((len(column), values.shape[1])), values]),
    )
