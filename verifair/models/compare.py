"""Comparison of a converted model with the object from which it was made, on rows; differences are reported."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from encoders.arrays import Array, Booleans, Floats, Integers
from encoders.errors import ModelError
from encoders.model import Feed, Link, Model
from encoders.onnx.feed import make_legal
from encoders.onnx.runtime import comparison_points, first_line, runtime_outputs
from verifair.models.columns import holds_truths, names_of
from verifair.models.converters.missing import asks_for_missing, missing_categories
from verifair.models.converters.pipelines import scales
from verifair.models.converters.pytorch import modes_kept
from verifair.models.objects import ANOTHER_WAY, called, exported, last_of, package_of, regresses, thawed
from verifair.screen import ShownWarning

ROWS = 1000
"""The most rows of a table for the comparison, drawn with seed 0."""
POINTS = 256
"""Random points, if there is no table."""
CLOSE, FAR = 1e-4, 1e-2
"""Differences relative to 1 + |value|: those above the first are reported, a model with too many above the second is refused."""
MOST, RARE = 0.5, 0.01
"""Shares that are too many: of all rows; and of rows rounded to float32, except for trees behind scalers."""

SCALED = "the last digit decides rows on a threshold, and trees need no scaler: fit them on the numbers as they are"
"""Remedy for a scaler in front of trees: ONNX scales in float32, and rows of the training data lie on thresholds."""


class ImportDifference(ShownWarning):
    """A converted model that differs from the object that it was made from. Proofs are about the converted model."""


def compare(model: Any, network: Model, frame: pd.DataFrame | None) -> None:
    """Compare the converted model, run by onnxruntime, with the object's own predictions, and warn of differences.

    frame: rows to compare on; without its columns, or without a table, on random points; also where no row has a value of every
    column that the model takes, with a warning if it knows their names. Raises ModelError where too many rows differ.
    """
    if network.link is Link.IDENTITY and hasattr(model, "predict_proba"):
        raise ModelError(called(model), f"its converted model shows probabilities as if they were logits; {ANOTHER_WAY}")
    names = names_of(model)
    uses = Counter(map(exported, names))
    duplicates = [name for name in names if uses[exported(name)] > 1]
    if duplicates:
        listing = " and ".join(map(repr, duplicates))
        raise ModelError(called(model), f"its columns {listing} have one name in ONNX; rename one of them, and fit it again")
    if network.outputs > 1 and regresses(model):
        raise ModelError(called(model), f"gives {network.outputs} values a row, which are no classes; fit it on one of them")
    if package_of(model) in ("sklearn", "interpret") and (treatment := asks_for_missing(thawed(model))):
        message = f"{called(model)}: {treatment}, the converted model does not; proofs are about rows that have these values"
        warnings.warn(message, ImportDifference, stacklevel=4)
    if hasattr(model, "classes_") and hasattr(model, "decision_function") and not hasattr(model, "predict_proba"):
        message = f"{called(model)}: gives scores, no probabilities; what verifair calls one is a logistic function, or softmax"
        warnings.warn(f"{message}. For probabilities fit CalibratedClassifierCV on it", ImportDifference, stacklevel=4)
    rows = None if frame is None else _rows_of_table(model, network, frame)
    if rows is not None and not len(rows[1]):
        if names_of(model):  # the matrix of the fit may differ from the table
            message = f"{called(model)}: was compared on random points, as no row of the table has values that the conversion knows"
            warnings.warn(f"{message}; pass read(model, frame) rows that it was fitted on", ImportDifference, stacklevel=4)
        rows = None
    inputs, x, source = _random_points(model, network) if rows is None else rows
    try:
        expected = predictions(model, inputs)
    except Exception as error:  # objects may raise anything
        message = f"{called(model)}: was not compared with its converted model, as it fails on {source} ({first_line(error)[:200]})"
        warnings.warn(f"{message}; pass read(model, frame) with a table of its columns", ImportDifference, stacklevel=4)
        return
    converted = runtime_outputs(network, x)
    _check_decides(model, inputs, expected, network.link, source)
    if expected.shape[1] == 2 and converted.shape[1] == 1:
        expected = expected[:, 1:]
    if converted.shape[1] == 2 and expected.shape[1] == 1:
        converted = converted[:, 1:]
    if expected.shape != converted.shape:
        problem = f"gives {expected.shape[1]} numbers a row, its converted model {converted.shape[1]}"
        raise ModelError(called(model), f"{problem}; {ANOTHER_WAY}")
    if network.of_trees and scales(model):
        remedy, bound = SCALED, MOST
    else:
        remedy, bound = ANOTHER_WAY, RARE
    relative, differs = _differences(expected, converted, network.link)
    count, worst = int((relative > CLOSE).sum()), int(relative.argmax())
    if not count and not differs.any():
        return
    expected_of_float32 = predictions(model, _float32(inputs))[:, -expected.shape[1] :]
    relative_of_float32, differs_of_float32 = _differences(expected_of_float32, converted, network.link)
    column = int(np.abs(expected - converted)[worst].argmax())
    example = f"{converted[worst, column]:.6g} instead of {expected[worst, column]:.6g}"
    if frame is not None and any(isinstance(kind, pd.CategoricalDtype) for kind in frame.dtypes):
        remedy = "give categorical columns the categories that it was fitted with, in that order"
    if (relative > FAR).mean() > MOST or (relative_of_float32 > FAR).mean() > bound:
        problem = f"its conversion to ONNX does not reproduce it: {count:,} of {source} differ, one has {example}"
        raise ModelError(called(model), f"{problem}; {remedy}")
    decision_text = [f"decides {int(differs.sum()):,} of {source} otherwise than the object"] if differs.any() else []
    value_text = [f"differs from it by more than {CLOSE:g} on {count:,} of {source}, the most is {example}"] if count else []
    rest = int(((relative_of_float32 > CLOSE) | differs_of_float32).sum())
    reason = "ONNX holds numbers as float32; of rows rounded to float32 " + (f"{rest:,} differ" if rest else "none differs")
    advice = f" Where a number is scaled, {remedy}." if remedy is SCALED else ""
    summary = f"{called(model)}: the converted model {' and '.join([*decision_text, *value_text])}"
    warnings.warn(f"{summary}. {reason}. Proofs are about the converted model.{advice}", ImportDifference, stacklevel=4)


def _check_decides(model: Any, rows: Any, values: Array, link: Link, source: str) -> None:
    """Raise ModelError if an object's `predict` decides differently from its own values (N, k), by a threshold of its own."""
    if not 2 <= len(getattr(model, "classes_", ())) == max(2, values.shape[1]):
        return
    predicted = predicted_classes(model, rows)
    if predicted is None or len(predicted) != len(values):
        return
    ranked = np.sort(values, axis=1)
    is_tie = ranked[:, -1] - ranked[:, -2] <= CLOSE if values.shape[1] > 1 else np.zeros(len(values), dtype=bool)
    count = int((~is_tie & (predicted != _decided(values, link))).sum())
    if count:
        text = f"decides {count:,} of {source} otherwise than its own probabilities, by a threshold that its conversion leaves out"
        remedy = 'set it to 1/2, and write positive = "logit >= T" with its log-odds T'
        raise ModelError(called(model), f"{text}; {remedy}")


def _differences(expected: Array, converted: Array, link: Link) -> tuple[Array, Booleans]:
    """Return for each row the largest difference, relative to 1 + |value|, and True if the decisions differ."""
    relative = np.where(np.isfinite(expected), np.abs(expected - converted) / (1 + np.abs(expected)), np.inf).max(axis=1)
    return relative, np.asarray(_decided(expected, link) != _decided(converted, link))


def _float32(rows: Any) -> Any:
    """Return rows whose numbers are rounded to float32, the converted model's inputs."""
    if not isinstance(rows, pd.DataFrame):
        return rows.astype(np.float32).astype(rows.dtype)
    numbers = rows.select_dtypes("number")
    return rows.assign(**{name: numbers[name].astype(np.float32).astype(numbers[name].dtype) for name in numbers})


def _decided(values: Array, link: Link) -> Any:
    """Return the decisions (N,) of a model's outputs."""
    if values.shape[1] > 1:
        return values.argmax(axis=1)
    return values[:, 0] > (0.5 if link in (Link.SIGMOID, Link.SOFTMAX, Link.SHARES) else 0.0)


def predicted_classes(model: Any, rows: Any) -> Integers | None:
    """Return the positions in `classes_` of an object's predicted classes for rows (N,); None if it predicts anything else."""
    index = {str(name): k for k, name in enumerate(model.classes_)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labels = [str(label) for label in np.ravel(model.predict(rows)).tolist()]
    return np.array([index[label] for label in labels]) if set(labels) <= set(index) else None


def predictions(model: Any, rows: Any) -> Array:
    """Return an object's outputs for rows: (N, k) probabilities, or shares of hard votes, or else values."""
    last = last_of(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        match package_of(model):
            case "torch":
                outputs = _module_outputs(model, rows)
            case "xgboost" if not hasattr(model, "get_booster"):
                outputs = model.predict(sys.modules["xgboost"].DMatrix(rows, enable_categorical=True))
            case _ if getattr(last, "voting", "soft") == "hard":
                votes = model.transform(rows)[:, :, None] == np.arange(len(last.classes_))  # of each member for each class
                outputs = np.average(votes, axis=1, weights=last._weights_not_none)
            case _:
                name = next((method for method in ("predict_proba", "decision_function") if hasattr(model, method)), "predict")
                outputs = getattr(model, name)(rows)
    values = np.asarray(outputs, dtype=np.float64)
    return values.reshape(len(values), -1)


def _module_outputs(model: Any, rows: Any) -> Any:
    torch = sys.modules["torch"]
    first = next(model.parameters(), torch.zeros(1))
    with modes_kept(model), torch.no_grad():
        model.eval()
        return model(torch.as_tensor(np.asarray(rows, dtype=np.float64)).to(first)).cpu().numpy()


def named_columns(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame | None:
    """Return the columns of a table that an object was fitted on, in its order (all if it knows no names); None if one is missing.

    LightGBM writes names with _ for each space.
    """
    columns = {str(name).replace(" ", "_"): name for name in frame.columns} | {str(name): name for name in frame.columns}
    if not set(names) <= set(columns):
        return None
    return frame[[columns[name] for name in names]] if names else frame


def some_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return at most ROWS rows of a table."""
    if len(frame) <= ROWS:
        return frame
    return frame.iloc[np.sort(np.random.default_rng(0).choice(len(frame), size=ROWS, replace=False))]


def _rows_of_table(model: Any, network: Model, frame: pd.DataFrame) -> tuple[Any, Floats, str] | None:
    """Return rows of a table as inputs of the object and of the network; None if it lacks the model's columns."""
    names = names_of(model)
    rows = named_columns(frame, names)
    if rows is None or not (names or len(rows.columns) == sum(len(feed.start) for feed in network.feeds)):
        return None
    missing_of = missing_categories(model, rows)
    column_of = {exported(str(column)): column for column in rows.columns} if names else {}
    rows = some_rows(rows)
    x, is_known = np.zeros((len(rows), network.inputs)), np.ones(len(rows), dtype=bool)
    column_number = 0
    for feed in network.feeds:
        for position in range(len(feed.start)):
            column = rows[column_of[exported(feed.name)]] if exported(feed.name) in column_of else rows.iloc[:, column_number]
            missing = missing_of.get(exported(str(column.name)) if names else str(column_number))
            column_number += 1
            if missing is not None:
                column = missing.words(column) if position in feed.categories else missing.words(column).astype(missing.codes)
            is_known &= _enter(x, column, feed, position)
    rows = rows[is_known]
    return (rows if names else rows.to_numpy()), x[is_known].astype(np.float32), f"{len(rows):,} rows of the table"


def _enter(x: Array, column: pd.Series, feed: Feed, position: int) -> Booleans:
    """Write a column into the network's inputs x, in place; return True for rows whose value the network takes."""
    start = int(feed.start[position])
    if start < 0:
        return np.ones(len(x), dtype=bool)
    values = column.astype("boolean").astype("Float64") if holds_truths(column) else column  # 0 and 1, as encoders know them
    if position in feed.categories:
        codes = pd.Index(feed.categories[position]).get_indexer(pd.Index(values))
        if (codes < 0).all() and values is column:  # some objects store categories that are numbers as their digits
            codes = pd.Index(list(map(str, feed.categories[position]))).get_indexer(pd.Index(values.astype(str)))
        x[np.flatnonzero(codes >= 0), start + codes[codes >= 0]] = 1.0
        return np.asarray(codes >= 0)
    is_categorical = isinstance(column.dtype, pd.CategoricalDtype)
    numbers = column.cat.codes.replace(-1, np.nan) if is_categorical else pd.to_numeric(values, errors="coerce")
    x[:, start] = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.asarray(np.abs(x[:, start]) <= np.finfo(np.float32).max)  # NaN is not


def _random_points(model: Any, network: Model) -> tuple[Any, Floats, str]:
    """Return random points as inputs of the object and of the network."""
    random = np.random.default_rng(0)
    x = comparison_points(Path(called(model)), network.inputs, POINTS, random, None)
    for feed in network.feeds:
        make_legal(feed, x, random)
    columns: dict[str, Any] = {}
    missing_of = missing_categories(model)
    for feed in network.feeds:
        for position, start in enumerate(feed.start.tolist()):
            name = exported(feed.name) if len(feed.start) == 1 else str(len(columns))
            categories = feed.categories.get(position)
            if categories is not None:
                words = np.array(categories, dtype=object)[x[:, start : start + len(categories)].argmax(axis=1)]
                columns[name] = missing_of[name].cells(words) if name in missing_of else words
            elif start >= 0 and name in missing_of:
                words = missing_of[name].codes.categories
                x[:, start] = random.integers(len(words), size=len(x))
                cells = missing_of[name].cells(words[x[:, start].astype(int)])
                is_sklearn = package_of(last_of(model)) == "sklearn"  # whose encoders tell None from NaN
                columns[name] = cells if is_sklearn else cells.astype(pd.CategoricalDtype([*missing_of[name].value_of.values()]))
            else:
                columns[name] = np.zeros(len(x)) if start < 0 else x[:, start].astype(np.float64)
    names = names_of(model)
    table = pd.DataFrame({name: columns.get(exported(name), 0.0) for name in names} if names else columns)
    return (table if names else table.to_numpy()), x, f"{len(x):,} random points"
