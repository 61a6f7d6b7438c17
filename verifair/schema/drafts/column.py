"""A column of a table as a feature: its kind, range, unit and categories."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pandas as pd

from verifair.errors import DataError
from verifair.models.columns import holds_numbers, holds_truths
from verifair.schema.feature import text
from verifair.schema.network import TRUTHS
from verifair.schema.rows import no_feature

MAX_CATEGORIES = 50
"""A text column with more distinct values than this is an identifier or free text, not a category."""
FLAGS = ([0, 1], list(TRUTHS.values()))
"""Categories whose code is the number that a model takes."""
MIN_ROWS_OF_ID = 30
"""In a table of at least so many rows, numbers that are all different look like an id."""
SAVED, ID = re.compile(r"Unnamed: \d+"), re.compile(r"(?i:\b|_)(?i:id|idx|index|key|number|nr|no)$|[a-z]I[dD]$")
"""Patterns of pandas' names for columns without a name, and of frequent names of ids."""
MOSTLY = 0.5
"""A column of texts with a larger share of numbers than this is one of numbers with wrong cells."""


def feature_of(name: str, column: pd.Series, protected: bool) -> dict[str, Any]:
    """Return a column's feature, as far as the table shows it. Raises DataError for columns that no feature kind fits."""
    values = column.dropna()
    if not len(values):
        raise DataError(f"column {name!r} is empty; drop it from the table")
    if (reason := no_feature(values)) is not None:
        raise DataError(f"column {name!r} holds {reason}, which no feature kind takes; turn it into a number, or drop it")
    feature = _number(name, values, protected) if holds_numbers(values) else _category(name, values)
    return {"name": name} | feature | ({"protected": True} if protected else {})


def _number(name: str, values: pd.Series, protected: bool) -> dict[str, Any]:
    if not np.isfinite(values.to_numpy(dtype=float)).all():
        raise DataError(f"column {name!r} holds an infinite value, expected finite numbers; correct the data")
    if set(values) == {0, 1}:  # a flag: as a number, PBA would move it by a unit
        return {"kind": "categorical", "categories": [0, 1]}
    low, high = float(values.min()), float(values.max())
    is_whole = bool((values == values.round()).all())
    feature: dict[str, Any] = {"kind": "integer" if is_whole else "real", "range": [low, high]}
    if low == high or high - low == math.inf or (protected and is_whole and values.nunique() <= 10):
        return feature
    return feature | {"scale": "minmax", "unit": _unit(high - low, is_whole)}


def _category(name: str, values: pd.Series) -> dict[str, Any]:
    categories = FLAGS[1] if holds_truths(values) else sorted({text(v) for v in values})
    if len(categories) > MAX_CATEGORIES:
        remedy = texts_among_numbers(values) or "drop it, or group its values"
        raise DataError(
            f"column {name!r} holds {len(categories)} distinct texts (for example {categories[0]!r}), too many for a category; "
            + remedy
        )
    return of_words(categories)


def of_words(categories: Sequence[Any]) -> dict[str, Any]:
    """Return the kind of a feature that has these categories."""
    return {"kind": "categorical" if len(categories) <= 2 else "one-hot", "categories": categories}


def _unit(width: float, is_whole: bool) -> float:
    """Return a round 1-2-5 number near half a percent of the range; at least 1 for whole numbers."""
    power = 10.0 ** math.floor(math.log10(width / 200))
    unit = min((m * power for m in (1, 2, 5, 10)), key=lambda u: abs(math.log(u * 200 / width)))
    return max(1.0, round(unit)) if is_whole else unit


def texts_among_numbers(column: pd.Series) -> str:
    """Return a message about the first cell that is no number, with the remedy, if most cells are numbers; else ""."""
    values = column.dropna().map(text)
    numbers = np.isfinite(pd.to_numeric(values, errors="coerce").astype(float))
    if holds_truths(column) or numbers.all() or numbers.mean() <= MOSTLY:
        return ""
    first = values[~numbers]
    return (
        f"row {first.index[0]} holds {first.iloc[0]!r}, and {numbers.sum():,} of {len(values):,} rows hold numbers; correct the "
        f"{'cell' if len(first) == 1 else f'{len(first):,} cells without a number'}, or leave "
        f"{'it' if len(first) == 1 else 'them'} empty"
    )


def row_numbers(frame: pd.DataFrame, columns: Sequence[str]) -> dict[str, str]:
    """Return column -> its description, for columns that only number the rows: a saved index, an id."""
    descriptions = {}
    for name in (name for name in columns if name in frame):
        column = frame[name]
        if column.dtype.kind not in "iu" or len(column) < MIN_ROWS_OF_ID:
            continue
        steps = np.diff(column.to_numpy().astype(float))
        if (steps == 1).all() and column.iloc[0] in (0, 1):
            descriptions[name] = "counts the rows, as a saved index does"
        elif SAVED.fullmatch(name):
            descriptions[name] = "is called as pandas calls a saved index"
        elif column.is_unique and ((steps > 0).all() or ID.search(name)):
            descriptions[name] = "holds another whole number in each row, as an id does"
    return descriptions


def missing(frame: pd.DataFrame, columns: Collection[str]) -> dict[str, str]:
    """Return column -> a message, for columns with missing values: schemas describe complete rows."""
    count = {name: int(frame[name].isna().sum()) for name in map(str, frame.columns) if name in columns}
    remedy = "such rows are refused: fill in the values, or drop the rows"
    return {name: f"column {name!r} has no value in {n:,} of {len(frame):,} rows; {remedy}" for name, n in count.items() if n}
