"""scikit-learn's histogram-based gradient boosting, as skl2onnx converts it: thresholds in float32, and codes for categories."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from encoders.arrays import Integers
from encoders.errors import ModelError
from encoders.onnx.operators.trees import floor32
from verifair.models.columns import names_of
from verifair.models.converters import scalers
from verifair.models.objects import called, last_of, with_steps


def categories(model: Any) -> dict[int, list[Any]]:
    """Return column -> its categories in the order of their codes, of the columns that trees ask about by sets of these. None is
    the last category where it is one; NaN is none."""
    is_categorical = getattr(model, "is_categorical_", None)
    if is_categorical is None:
        return {}
    encoded = model._preprocessor.named_transformers_["encoder"].categories_
    lists = [[value for value in column.tolist() if value == value] for column in encoded]
    return dict(zip(np.flatnonzero(is_categorical).tolist(), lists, strict=True))


def converted(model: Any) -> Any:
    """Return a pipeline, or estimator, whose last one skl2onnx converts. Thresholds are rounded down to float32, as `boosting` does
    it, and questions about codes of categories stand in place of sets. Missing values have the code after the last one. Scalers are
    left out, and thresholds are those of the numbers before them.

    Raises ModelError for sets behind other steps, or of columns without names.
    """
    last = last_of(model)
    if not hasattr(last, "_predictors"):
        return model
    counts = {column: len(values) for column, values in categories(last).items()}
    if counts and (last is not model or not names_of(last)):
        remedy = "without steps before it on a table with names, or behind an encoder with categorical_features=None"
        raise ModelError(called(last), f"asks about sets of categories, which are read of a table's columns alone; fit it {remedy}")
    model = _without_scalers(model)
    last = last_of(model)
    for tree in (tree for row in last._predictors for tree in row):
        tree.nodes["num_threshold"] = floor32(tree.nodes["num_threshold"])
        if counts:
            # its own encoder puts the categories first
            columns = np.concatenate([np.flatnonzero(last.is_categorical_), np.flatnonzero(~last.is_categorical_)])
            tree.nodes["feature_idx"] = columns[tree.nodes["feature_idx"]]
            tree.nodes = _in_codes(tree.nodes, tree.raw_left_cat_bitsets, counts)
    if counts:
        last.is_categorical_ = last._preprocessor = None
    return model


def _without_scalers(model: Any) -> Any:
    """Return a copy of a pipeline, or estimator, without the scalers for which thresholds can stand."""
    model = copy.deepcopy(model)
    last = last_of(model)
    before, scaled = scalers.without(model[:-1]) if last is not model else (None, {})
    nodes = [tree.nodes for row in last._predictors for tree in row]
    features = np.concatenate([np.where(of_tree["is_leaf"], -1, of_tree["feature_idx"]) for of_tree in nodes])
    thresholds = np.concatenate([of_tree["num_threshold"] for of_tree in nodes])
    raw = scalers.unscaled(scaled, features, thresholds, below=False, rounds=False)
    if raw is None:
        return model
    for of_tree, values in zip(nodes, np.split(raw, np.cumsum([len(of_tree) for of_tree in nodes])[:-1]), strict=True):
        of_tree["num_threshold"] = values
    if not scaled or before is not None:
        return with_steps(model, [("before", before), model.steps[-1]]) if scaled else model
    if names := names_of(model):
        last.feature_names_in_ = np.array(names, dtype=object)
    return last


def _in_codes(nodes: Any, sets: Integers, counts: dict[int, int]) -> Any:
    """Return the nodes of a tree with comparisons of codes in place of sets, one for each run of codes that go the same way.

    sets: (S, 8) of 32 bits each, the categories that go left.   counts: column -> how many categories it has.
    """
    added = list[Any]()
    for k in np.flatnonzero((nodes["is_categorical"] == 1) & (nodes["is_leaf"] == 0)).tolist():
        node, count = nodes[k].copy(), counts[int(nodes[k]["feature_idx"])]
        bits = [int(sets[node["bitset_idx"], code // 32]) >> code % 32 & 1 for code in range(count)]
        bits.append(int(node["missing_go_to_left"]))
        sides = [int(node["left"] if bit else node["right"]) for bit in bits]
        ends = [code for code in range(count) if sides[code] != sides[code + 1]]
        indices = [k, *range(len(nodes) + len(added), len(nodes) + len(added) + len(ends) - 1)]
        children = [*indices[1:], sides[-1]]
        if not ends:    # all go one way
            ends, children = [count], [int(node["right"] if bits[-1] else node["left"])]
        for index, end, right in zip(indices, ends, children, strict=True):
            new = node.copy()
            new["num_threshold"], new["left"], new["right"], new["missing_go_to_left"] = end, sides[end], right, end == count
            if index == k:
                nodes[k] = new
            else:
                added.append(new)
    return np.concatenate([nodes, np.array(added, dtype=nodes.dtype)]) if added else nodes
