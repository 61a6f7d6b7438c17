"""scikit-learn's histogram-based gradient boosting, as skl2onnx converts it: thresholds in float32, and codes for categories."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from encoders.errors import ModelError
from encoders.network import Integers
from encoders.onnx.operators.trees import floor32
from verifair.models.columns import names_of
from verifair.models.objects import called, last_of


def categories(model: Any) -> dict[int, list[Any]]:
    """Return column -> its categories in the order of their codes, of the columns that trees ask about by sets of these. None is
    the last category where it is one; NaN is none."""
    asked = getattr(model, "is_categorical_", None)
    if asked is None:
        return {}
    known = model._preprocessor.named_transformers_["encoder"].categories_
    listed = [[one for one in column.tolist() if one == one] for column in known]
    return dict(zip(np.flatnonzero(asked).tolist(), listed, strict=True))


def converted(model: Any) -> Any:
    """Return a pipeline, or estimator, whose last one skl2onnx converts. Thresholds are rounded down to float32, as `boosting` does
    it, and questions about codes of categories stand in place of sets. Missing values have the code after the last one.

    Raises ModelError for sets behind other steps, or of columns without names.
    """
    last = last_of(model)
    if not hasattr(last, "_predictors"):
        return model
    known = {place: len(one) for place, one in categories(last).items()}
    if known and (last is not model or not names_of(last)):
        remedy = "without steps before it on a table with names, or behind an encoder with categorical_features=None"
        raise ModelError(called(last), f"asks about sets of categories, which are read of a table's columns alone; fit it {remedy}")
    model = copy.deepcopy(model)
    last = last_of(model)
    for tree in (tree for row in last._predictors for tree in row):
        tree.nodes["num_threshold"] = floor32(tree.nodes["num_threshold"])
        if known:
            # its own encoder puts the categories first
            columns = np.concatenate([np.flatnonzero(last.is_categorical_), np.flatnonzero(~last.is_categorical_)])
            tree.nodes["feature_idx"] = columns[tree.nodes["feature_idx"]]
            tree.nodes = _in_codes(tree.nodes, tree.raw_left_cat_bitsets, known)
    if known:
        last.is_categorical_ = last._preprocessor = None
    return model


def _in_codes(nodes: Any, sets: Integers, counts: dict[int, int]) -> Any:
    """Return the nodes of a tree with comparisons of codes in place of sets, one for each run of codes that go the same way.

    sets: (S, 8) of 32 bits each, the categories that go left.   counts: column -> how many categories it has.
    """
    more = list[Any]()
    for k in np.flatnonzero((nodes["is_categorical"] == 1) & (nodes["is_leaf"] == 0)).tolist():
        node, count = nodes[k].copy(), counts[int(nodes[k]["feature_idx"])]
        bits = [int(sets[node["bitset_idx"], code // 32]) >> code % 32 & 1 for code in range(count)]
        bits.append(int(node["missing_go_to_left"]))
        sides = [int(node["left"] if bit else node["right"]) for bit in bits]
        ends = [code for code in range(count) if sides[code] != sides[code + 1]]
        at = [k, *range(len(nodes) + len(more), len(nodes) + len(more) + len(ends) - 1)]
        below = [*at[1:], sides[-1]]
        if not ends:    # all go one way
            ends, below = [count], [int(node["right"] if bits[-1] else node["left"])]
        for place, end, right in zip(at, ends, below, strict=True):
            one = node.copy()
            one["num_threshold"], one["left"], one["right"], one["missing_go_to_left"] = end, sides[end], right, end == count
            if place == k:
                nodes[k] = one
            else:
                more.append(one)
    return np.concatenate([nodes, np.array(more, dtype=nodes.dtype)]) if more else nodes
