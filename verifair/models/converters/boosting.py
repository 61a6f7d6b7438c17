"""Models of XGBoost, LightGBM and CatBoost as ONNX: by onnxmltools, or by the package's own exporter."""

from __future__ import annotations

import copy
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import pandas as pd

from encoders.arrays import Array
from encoders.errors import ModelError
from encoders.model import Link
from encoders.onnx.operators.trees import floor32
from encoders.onnx.reader import read_model
from encoders.trees.ensemble import TreeEnsemble
from verifair.models import columns
from verifair.models.converters import scalers
from verifair.models.objects import called, check_objective, last_of, not_fitted, package_of, with_steps

OPSET = 15
ZERO = 1.0000000180025095e-35
"""LightGBM's: float32(1e-35)."""
ZEROS = 1
"""LightGBM's kind of missing values at a split, in bits 2 and 3 of its decision_type: 0 is one, beside NaN."""
Node = dict[str, Any]
"""Of a tree in ONNX: attribute -> value."""


def convert(model: Any, width: int | None = None, *, names: Sequence[str] | None = None) -> onnx.ModelProto:
    """Return a boosting library's model as ONNX.   names: of its columns; None: those that it knows.

    Raises QueryError for what was not fitted, ImportError without onnxmltools (XGBoost, LightGBM), ModelError for what no converter
    knows (linear boosters, XGBoost's dart, LightGBM's zeros that are missing values, exponentials of sums), and whatever the
    converters raise.
    """
    package = package_of(model)
    fitted = getattr(model, "__sklearn_is_fitted__", getattr(model, "is_fitted", None))
    if fitted is not None and not fitted():
        raise not_fitted(model)
    onnx_model = {"xgboost": _xgboost, "lightgbm": _lightgbm, "catboost": _catboost}[str(package)](model)
    onnx_model.graph.name = "model"
    if counts := _counts(model):
        onnx_model = codes_missing(onnx_model, counts)
    return columns.by_column(onnx_model, columns.names_of(model) if names is None else names)


def trees(model: Any, *, values: bool) -> TreeEnsemble | None:
    """Return the trees that add up to the log-odds of a boosting library's classifier of two classes, or to the values of its
    regressor; None of other models. Raises as `convert` does, and for columns that the library numbers by a table's categories."""
    booster = model.get_booster() if hasattr(model, "get_booster") else getattr(model, "booster_", None)
    if any(getattr(booster, "pandas_categorical", None) or ()) or "c" in (getattr(booster, "feature_types", None) or ()):
        remedy = "which other members of an ensemble take as they are; fit it behind an encoder"
        raise ModelError(called(model), f"numbers the categories of a table's columns, {remedy}")
    if not values and len(model.classes_) != 2:
        return None
    ensemble = read_model(convert(model, names=()), name=called(model)).ensemble
    link = Link.IDENTITY if values else Link.SIGMOID
    return ensemble if ensemble is not None and ensemble.outputs == 1 and ensemble.link is link else None


def without_scalers(model: Any) -> Any:
    """Return a pipeline that ends in LightGBM without the scalers for which thresholds can stand: it compares float64 numbers, and
    these are not rounded yet. Any other model unchanged."""
    last = last_of(model)
    if package_of(last) != "lightgbm" or last is model:
        return model
    before, scaled = scalers.without(model[:-1])
    if not scaled:
        return model
    # tree_sizes are in bytes; without them the text is read line by line
    lines = [line for line in last.booster_.model_to_string().split("\n") if not line.startswith("tree_sizes=")]

    def listed(key: str) -> Array:
        return np.array([number for line in lines if line.startswith(key) for number in line[len(key) :].split()], dtype=np.float64)

    features = listed("split_feature=").astype(np.int64)
    by_sets = listed("decision_type=") % 2 == 1    # their "thresholds" are numbers of sets of categories
    thresholds = scalers.unscaled(scaled, features, _around_zero(listed("threshold=")), below=False, rounds=False)
    if thresholds is None or np.isin(features[by_sets], list(scaled)).any():
        return model
    rest = iter(thresholds.tolist())
    for k, line in enumerate(lines):
        key, _, numbers = line.partition("=")
        if key == "threshold":
            lines[k] = "threshold=" + " ".join(repr(next(rest)) for _ in numbers.split())
    last = copy.copy(last)
    last._Booster = type(last.booster_)(model_str="\n".join(lines), params={"verbose": -1})
    return last if before is None else with_steps(model, [("before", before), ("last", last)])


def zeros_missing(onnx_model: onnx.ModelProto) -> onnx.ModelProto:
    """Let 0 go, in all questions of XGBoost's trees, where missing values go: as the zeros of a sparse matrix, and with missing=0.

    Where x < t sends 0 the other way, two more questions find it: the branches of the three share what is below them.
    """
    def extra_nodes(row: Node, first: int) -> list[Node]:
        left, missing = row["nodes_values"] > 0, bool(row["nodes_missing_value_tracks_true"])
        if left == missing:
            return []
        near_key, far_key = ("nodes_truenodeids", "nodes_falsenodeids") if left else ("nodes_falsenodeids", "nodes_truenodeids")
        near, far = row[near_key], row[far_key]    # 0 goes to `far`, and the numbers around it to `near`
        row[near_key] = first
        return [{**row, "nodes_nodeids": first + k, "nodes_values": 0.0, "nodes_modes": mode, "nodes_truenodeids": below_zero,
                 "nodes_falsenodeids": above}
                for k, mode, below_zero, above in ((0, b"BRANCH_LT", near, first + 1), (1, b"BRANCH_LEQ", far, near))]  # fmt: skip

    return _with_nodes(onnx_model, extra_nodes)


def codes_missing(onnx_model: onnx.ModelProto, counts: Mapping[int, int]) -> onnx.ModelProto:
    """Let the number that follows the codes of a column's categories go, in all questions, where missing values go.

    counts: column -> how many categories it has. Where a question sends that number the other way, one more finds it first.
    """
    def extra_nodes(row: Node, first: int) -> list[Node]:
        code, limit = counts.get(row["nodes_featureids"]), row["nodes_values"]
        if code is None:
            return []
        holds = {b"BRANCH_EQ": code == limit, b"BRANCH_LEQ": code <= limit, b"BRANCH_LT": code < limit}[row["nodes_modes"]]
        missing = bool(row["nodes_missing_value_tracks_true"])
        if holds == missing:
            return []
        node, target = {**row, "nodes_nodeids": first}, row["nodes_truenodeids" if missing else "nodes_falsenodeids"]
        # onnxruntime takes a branch that two questions share where it is the true one of the first of them
        row |= {"nodes_modes": b"BRANCH_GT", "nodes_values": code - 1.0, "nodes_truenodeids": target, "nodes_falsenodeids": first,
                "nodes_missing_value_tracks_true": 1}  # fmt: skip
        return [node]

    return _with_nodes(onnx_model, extra_nodes)


def _with_nodes(onnx_model: onnx.ModelProto, extra_nodes: Callable[[Node, int], list[Node]]) -> onnx.ModelProto:
    """Return a model of trees with more nodes.   extra_nodes: changes a node that is no leaf, and gives more for its tree,
    of the number given and those that follow."""
    (node,) = (candidate for candidate in onnx_model.graph.node if candidate.op_type.startswith("TreeEnsemble"))
    attributes = {attribute.name: attribute for attribute in node.attribute if attribute.name.startswith("nodes_")}
    lists = {name: onnx.helper.get_attribute_value(attribute) for name, attribute in attributes.items()}
    rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
    added, last_id = list[Node](), dict[int, int]()
    for row in rows:
        last_id[row["nodes_treeids"]] = max(last_id.get(row["nodes_treeids"], 0), row["nodes_nodeids"])
    for row in rows:
        if row["nodes_modes"] != b"LEAF":
            extra = extra_nodes(row, last_id[row["nodes_treeids"]] + 1)
            last_id[row["nodes_treeids"]] += len(extra)
            added += extra
    rows = sorted([*rows, *added], key=lambda row: row["nodes_treeids"])
    others = [attribute for attribute in node.attribute if attribute.name not in attributes]
    del node.attribute[:]
    node.attribute.extend([*others, *(onnx.helper.make_attribute(name, [row[name] for row in rows]) for name in lists)])
    return onnx_model


def categories(model: Any, rows: pd.DataFrame | None = None) -> dict[int, list[Any]]:
    """Return column -> its categories in the order of their codes, of the columns of a table that a library numbers so. None are
    known of a model that was fitted on codes.

    rows: with the object's columns. LightGBM lists categories without their columns. Without rows, those that may belong to several
    are left out; with rows, those of columns that it takes for numbers, as it does with ordered categories, if the model does not
    tell by itself which these are.
    """
    if package_of(model) == "xgboost":
        return {k: _words(model, stored, None if rows is None else rows.iloc[:, k]) for k, stored in _stored(model).items()}
    booster = getattr(model, "booster_", model)
    lists = getattr(booster, "pandas_categorical", None) if package_of(model) == "lightgbm" else None
    if not lists:
        return {}
    infos = next(line[14:].split() for line in booster.model_to_string().split("\n") if line.startswith("feature_infos="))
    placed = _by_column(lists, infos)
    categorical = [] if rows is None else [k for k, kind in enumerate(rows.dtypes) if isinstance(kind, pd.CategoricalDtype)]
    if len(categorical) != len(lists):
        return placed
    return {k: values for k, values in zip(categorical, lists, strict=True) if k in placed or not infos[k].startswith("[")}


def _counts(model: Any) -> dict[int, int]:
    """Return column -> the number of its categories, of the columns of which they are known."""
    if package_of(model) == "xgboost":
        return {column: len(stored.get("offsets", [0, *stored["values"]])) - 1 for column, stored in _stored(model).items()}
    return {column: len(values) for column, values in categories(model).items()}


def _stored(model: Any) -> dict[int, dict[str, list[int]]]:
    """Return column -> its categories as XGBoost stores them: numbers, or the bytes of words and where each begins."""
    booster = model.get_booster() if hasattr(model, "get_booster") else model
    if "c" not in (booster.feature_types or ()):
        return {}
    stored = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"].get("model", {}).get("cats", {})
    return {column: categories for column, categories in enumerate(stored.get("enc", ())) if categories["values"]}


def _words(model: Any, stored: Mapping[str, list[int]], column: pd.Series | None) -> list[Any]:
    """Return the categories that XGBoost stores. It counts letters where bytes are meant, so words that are not ASCII are cut at
    wrong places. Then they are the column's, if these are stored so.

    Raises ModelError for words that are not known.
    """
    offsets, values = stored.get("offsets"), stored["values"]
    if offsets is None:
        return values
    letters = np.array(values, dtype=np.int64).astype(np.uint8).tobytes()
    if letters.isascii():
        return [letters[start:end].decode() for start, end in itertools.pairwise(offsets)]
    words = list(column.cat.categories) if column is not None and isinstance(column.dtype, pd.CategoricalDtype) else []
    ends = [list(itertools.accumulate(map(len, texts), initial=0)) for texts in (words, [str(word).encode() for word in words])]
    if offsets not in ends or "".join(words).encode()[: len(letters)] != letters:
        remedy = "read it with a table of the same categories in the same order, vf.read(model, table), or fit it on names in ASCII"
        raise ModelError(called(model), f"stores category names with other letters than ASCII, such as é, in part only; {remedy}")
    return words


def _by_column(lists: Sequence[list[Any]], infos: Sequence[str]) -> dict[int, list[Any]]:
    """Return column -> its categories, of lists in the order of the columns, and of what LightGBM notes of each column: the ends
    [least:most] of numbers, all codes of categories that it takes for such, or none. Without those that fit several columns."""
    categorical = [k for k, info in enumerate(infos) if info[0] not in "[n"]
    if len(categorical) == len(lists):
        return dict(zip(categorical, lists, strict=True))

    def fits(info: str, values: list[Any]) -> bool:
        codes = [] if info == "none" else [float(text) for text in info.strip("[]").split(":")]
        return all(code in range(-(info[0] != "["), len(values)) for code in codes)

    def leftmost(lists: Sequence[list[Any]], indices: Sequence[int]) -> list[int]:
        remaining, placed = iter(indices), list[int]()
        for values in lists:
            placed += itertools.islice((index for index in remaining if fits(infos[index], values)), 1)
        return placed

    indices = range(len(infos))
    ends = zip(leftmost(lists, indices), leftmost(lists[::-1], indices[::-1])[::-1], lists, strict=True)
    return {first: values for first, last, values in ends if first == last}


def _matrix(count: int) -> list[tuple[str, Any]]:
    from onnxmltools.convert.common.data_types import FloatTensorType

    return [("X", FloatTensorType([None, count]))]


def _numbers(node: dict[str, Any], numbers: dict[int, int] | None = None) -> dict[int, int]:
    """Return the numbers of a tree's nodes in the order of their first visit, as the converter's own function, which follows every
    path: sets of categories share their two ends, so that there are millions of these (onnxmltools 1.16)."""
    numbers = {} if numbers is None else numbers
    if node["nodeid"] not in numbers:
        numbers[node["nodeid"]] = len(numbers)
        for child in node.get("children", ()):
            _numbers(child, numbers)
    return numbers


def _xgboost(model: Any) -> onnx.ModelProto:
    from onnxmltools.convert import convert_xgboost
    from onnxmltools.convert.xgboost.operator_converters.XGBoost import XGBConverter

    model = copy.deepcopy(model)
    booster = model.get_booster() if hasattr(model, "get_booster") else model
    learner = json.loads(booster.save_config())["learner"]
    if learner["objective"]["name"] == "multi:softmax":     # the same trees, whose probabilities the converter leaves out
        booster.set_param({"objective": "multi:softprob"})
        if model is not booster:
            model.objective = "multi:softprob"
    objective = learner["objective"]["name"]
    if objective != "reg:logistic" or not hasattr(model, "classes_"):  # a classifier's probabilities are those of binary:logistic
        check_objective(model, objective)
    kind = learner["gradient_booster"]["name"]
    if kind != "gbtree":
        raise ModelError(called(model), f"is boosted by {kind!r}, which has no conversion to ONNX; fit it with booster='gbtree'")
    count = int(booster.num_features())
    booster.feature_names = None  # the converter knows columns by number alone
    kinds = booster.feature_types  # of what is no float, thresholds are listed rounded (int), or not at all (i: True and False)
    booster.feature_types = kinds and ["c" if kind == "c" else "float" for kind in kinds]
    zero_is_missing = model is not booster and model.missing == 0
    if zero_is_missing and "c" in (kinds or ()):
        reason = "takes the first of a column's categories for a missing value"
        raise ModelError(called(model), f"{reason}; fit it with missing=numpy.nan")
    if zero_is_missing:
        model.missing = np.nan
    with patch.object(XGBConverter, "_remap_nodeid", staticmethod(_numbers)):
        onnx_model: onnx.ModelProto = convert_xgboost(model, name="model", initial_types=_matrix(count), target_opset=OPSET)
    return zeros_missing(onnx_model) if zero_is_missing else onnx_model


def _lightgbm(model: Any) -> onnx.ModelProto:
    from onnxmltools.convert import convert_lightgbm

    booster = model.booster_ if hasattr(model, "booster_") else model
    text = booster.model_to_string().split("\n")
    if "is_linear=1" in text:
        remedy = "have no conversion to ONNX; fit it with linear_tree=False"
        raise ModelError(called(model), f"has trees whose leaves hold linear functions, which {remedy}")
    if any(int(kind) >> 2 & 3 == ZEROS for line in text if line.startswith("decision_type=") for kind in line[14:].split()):
        remedy = "which no conversion to ONNX does; fit it with zero_as_missing=False"
        raise ModelError(called(model), f"takes 0 for a missing value, {remedy}")
    check_objective(model, next((line[10:].partition(" ")[0] for line in text if line.startswith("objective=")), ""))
    if any(line.startswith("objective=") and re.search(r" sigmoid:(?!1(\.0)?( |$))", line) for line in text):
        reason = "multiplies its scores by a sigmoid of its own, which the converter leaves out"
        raise ModelError(called(model), f"{reason}; fit it with sigmoid=1")
    # tree_sizes are in bytes; without them the text is read line by line
    lines = [line for line in _summed(_rounded(text), booster.num_model_per_iteration()) if not line.startswith("tree_sizes=")]
    booster = type(booster)(model_str="\n".join(lines), params={"verbose": -1})
    types = _matrix(int(booster.num_feature()))
    if hasattr(model, "booster_"):
        model = copy.copy(model)
        model._Booster, model.boosting_type = booster, "gbdt"   # a forest's mean is in its leaves by now
        if np.asarray(model._classes).dtype == bool:   # the converter knows numbers and words alone; a regressor has none
            model._classes = model._classes.astype(np.int64)
    else:
        model = booster
    onnx_model: onnx.ModelProto = convert_lightgbm(model, name="model", initial_types=types, target_opset=OPSET)
    return onnx_model


def _summed(text: list[str], classes: int) -> list[str]:
    """Return the lines of a LightGBM booster, of a random forest those of a sum: each leaf holds its share of the trees' mean."""
    if "average_output" not in text:
        return text
    rounds = sum(line.startswith("Tree=") for line in text) // classes
    lines = []
    for line in text:
        key, _, numbers = line.partition("=")
        if key == "leaf_value":
            line = "leaf_value=" + " ".join(repr(float(value) / rounds) for value in numbers.split())
        if line != "average_output":
            lines.append(line)
    return lines


def _rounded(text: list[str]) -> list[str]:
    """Return the lines of a LightGBM booster with thresholds rounded down to float32: of float32 numbers they decide as before.

    The converter would take the nearest float32 number, which may lie above the threshold, and decide a row on it otherwise.
    """
    lines = []
    for line in text:
        key, _, numbers = line.partition("=")
        if key == "threshold" and numbers:
            limit = floor32(_around_zero(np.array(numbers.split(), dtype=np.float64)))
            line = "threshold=" + " ".join(map(repr, limit.tolist()))
        lines.append(line)
    return lines


def _around_zero(limit: Array) -> Array:
    """Return LightGBM's thresholds; those among the numbers that it takes for 0 stand at their end."""
    limit = np.where((limit >= 0) & (limit < ZERO), ZERO, limit)
    return np.where((limit >= -ZERO) & (limit < 0), np.nextafter(-ZERO, -1), limit)


def _catboost(model: Any) -> onnx.ModelProto:
    classes = np.asarray(getattr(model, "classes_", ()))
    params = model.get_all_params() if "params" in model.get_metadata() else {}  # sums of models have none
    loss = str(params.get("loss_function", "")).partition(":")[0]
    check_objective(model, loss)
    if len(classes) == 2 and loss.startswith("MultiClass"):
        raise ModelError(called(model), f"was fitted with {loss!r} on two classes; fit it with loss_function='Logloss'")
    if len(classes) == 2 and classes.dtype.kind in "iu" and classes.tolist() != [0, 1]:
        reason = f"has the labels {' and '.join(map(str, classes.tolist()))}, which its exporter writes as 0 and 1"
        raise ModelError(called(model), f"{reason}; fit it on labels 0 and 1")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        model.save_model(str(path), format="onnx")
        return onnx.load(str(path))
