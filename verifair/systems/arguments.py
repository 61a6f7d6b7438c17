"""Checks of an estimator's arguments: numbers, the table, groups, true classes, audited rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from pydantic import ValidationError

from encoders.arrays import Booleans
from verifair.errors import DataError, QueryError
from verifair.schema import rows as schema_rows
from verifair.schema.feature import text
from verifair.schema.file import RANGES, problems, shown
from verifair.schema.outcome import PositiveRule
from verifair.schema.schema import Schema
from verifair.schema.spelling import nearest
from verifair.systems.settings import Settings

G = TypeVar("G", bound=Settings)
NUMBER_KINDS = ("integer", "floating", "mixed-integer-float", "decimal", "complex")
"""Pandas' names of object columns that hold only numbers."""


def check_number(name: str, value: Any, *, whole: bool = False) -> None:
    """Raise QueryError for anything but a number, or with `whole` a whole number. Bounds are checked by the caller."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Integral if whole else Real):
        raise QueryError(f"{name} = {value!r}: expected a {'whole ' if whole else ''}number")


def check_settings(settings: type[G], given: Mapping[str, Any]) -> G:
    """Return an estimator's parameters as settings; other parameters are ignored. Raises QueryError.

    A parameter counts as given if it differs from its default.
    """
    given_values = {name: given[name] for name in settings.model_fields if given.get(name) is not None}
    values = {name: value.item() if isinstance(value, np.generic) else value for name, value in given_values.items()}
    defaults = {name: field.get_default(call_default_factory=True) for name, field in settings.model_fields.items()}
    changed = {name: value for name, value in values.items() if type(value) is not type(defaults[name]) or value != defaults[name]}
    try:
        result = settings.of(changed)
    except ValidationError as error:
        pairs = zip(problems(error, settings), error.errors(), strict=False)
        text = (line if "found " in line or e["type"] in RANGES else f"{line}, found {shown(e['input'])}" for line, e in pairs)
        raise QueryError("\n".join(text)) from None
    for name, owners in result.strays():
        needs = " or ".join(option if value is None else f"{option} = {value!r}" for option, value in owners)
        raise QueryError(f"{name} = {changed[name]!r}: belongs to {needs}; pass that, or leave {name} out")
    return result


def check_table(table: Any, name: str = "X") -> None:
    """Raise DataError for anything but a DataFrame with rows.   name: of the argument."""
    if not isinstance(table, pd.DataFrame):
        raise DataError(f"{name}: found {type(table).__name__}; expected a DataFrame with the schema's columns")
    if not len(table):
        raise DataError(f"{name}: the table has no rows; pass those to be explained, and those they may be compared with or become")


def groups_of(frame: pd.DataFrame, sensitive: Any) -> dict[str, Booleans]:
    """Return group name -> rows (N,): a group for each value of a column, an array, a Series, or each combination of several.

    A list of words names columns, unless it has a word for each row and none is a column.
    Raises DataError for an absent column, an array of another length, or missing values.
    """
    if sensitive is None:
        return {"all": np.ones(len(frame), dtype=bool)}
    if isinstance(sensitive, pd.DataFrame):
        if len(sensitive) != len(frame) or not len(sensitive.columns):
            shape = " x ".join(map(str, sensitive.shape))
            raise DataError(f"sensitive_features: found a table of {shape} for {len(frame)} rows; expected a line for each row")
        columns = [str(name) for name in sensitive.columns]
        return groups_of(sensitive.set_axis(columns, axis=1), columns)
    names = _names(frame, sensitive)
    if names is None:
        values = pd.Series(column(sensitive, len(frame), "sensitive_features"))
        parts = _labels(str(getattr(sensitive, "name", None) or "group"), values)
    else:
        missing = [name for name in names if name not in frame.columns]
        if missing:
            raise DataError(f"sensitive feature {missing[0]!r}: the table has no such column; {nearest(missing[0], frame.columns)}")
        repeated = [name for name in names if list(frame.columns).count(name) > 1]
        if repeated:
            raise DataError(f"sensitive feature {repeated[0]!r}: the table has more than one such column; give each its own name")
        labels = [_labels(name, frame[name]) for name in names]
        parts = labels[0].str.cat(labels[1:], sep=", ") if len(labels) > 1 else labels[0]
        label = parts[~pd.concat(labels, axis=1).duplicated()]  # one row of each group
        if label.duplicated().any():
            raise DataError(f"two groups would both be called {label[label.duplicated()].iloc[0]!r}; give their values other names")
    if parts.isna().any():
        first = int(np.flatnonzero(parts.isna().to_numpy())[0])
        count = int(parts.isna().sum())
        raise DataError(
            f"sensitive features: {count} {'row has' if count == 1 else 'rows have'} no value, first row {frame.index[first]}; "
            "drop them, or fill the value in"
        )
    return {str(name): (parts == name).to_numpy() for name in sorted(parts.unique())}


def positives(y: Any, schema: Schema, rows: int) -> Booleans:
    """Return (N,) True where the true class is the positive one.   y: (N,) classes 0, 1, or values of the schema's label column.

    Raises DataError for missing or unknown values, and for 0 and 1 if these may be classes of which not just 1 is favourable.
    """
    classes = column(y, rows, "y")
    if pd.isna(classes).any():
        row = int(np.flatnonzero(pd.isna(classes))[0])
        raise DataError(f"y: {int(pd.isna(classes).sum())} of {rows} values are missing, first at place {row}; drop such rows")
    if classes.dtype.kind == "b" or (classes.dtype.kind in "iuf" and np.isin(classes, (0, 1)).all()):
        if classes.dtype.kind != "b" and _is_ambiguous(schema):
            rule = f'"{schema.positive}"' if schema.positive_label is None else 'the label "0"'
            raise DataError(f"y: holds 0 and 1, and in the schema {rule} is positive; pass booleans, True for positive")
        return np.asarray(classes == 1)
    table = pd.DataFrame({"y": classes})
    if schema.positive_label is None:  # values are a class's names, or numbers for a threshold
        return schema.model_copy(update={"label": "y"}).favoured(table)
    return np.asarray(schema_rows.labels(table, "y", schema.positive_label) == 1)


def _is_ambiguous(schema: Schema) -> bool:
    """Return True if 0 and 1 may be classes of which not just 1 is favourable."""
    rule = PositiveRule.parse(schema.positive)
    if schema.positive_label is not None or rule.of == "value":
        return schema.positive_label == "0"
    unknown = rule.unnumbered and not schema.classes
    return unknown or rule.numbered(schema.classes).favourable(np.array([0, 1])).tolist() != [False, True]


def audited(values: Any, rows: int) -> Booleans:
    """Return (N,) True for rows to be explained, from booleans or 0 and 1. Raises DataError for anything else, such as row
    numbers."""
    array = column(values, rows, "audit")
    if array.dtype.kind != "b" and not (array.dtype.kind in "iuf" and np.isin(array, (0, 1)).all()):
        raise DataError("audit: expected True or False for each row: whether its decision is to be explained")
    return array.astype(bool)


def check_no_hidden_numbers(column: pd.Series) -> None:
    """Raise DataError for numbers in a column of objects: they would be compared as words."""
    if column.dtype == object and pd.api.types.infer_dtype(column, skipna=False) in NUMBER_KINDS:
        raise DataError(
            f"column {column.name!r}: holds numbers such as {column.iloc[0]!r} as objects, which count as words; convert it with "
            "pandas.to_numeric, or to text if words are meant"
        )


def booleans(values: Any, rows: int, what: str) -> Booleans:
    """Return (N,) True or False for each row, by position, from booleans or 0 and 1. Raises DataError for anything else."""
    array = column(values, rows, what)
    if array.dtype.kind == "O" and all(isinstance(value, (bool, np.bool_)) for value in array.tolist()):
        return array.astype(bool)
    if array.dtype.kind != "b" and not (array.dtype.kind in "iuf" and np.isin(array, (0, 1)).all()):
        raise DataError(f"{what}: holds {array.dtype} values such as {array[0]!r}; expected True or False for each row")
    return array.astype(bool)


def check_order(frame: pd.DataFrame, values: Any, what: str) -> None:
    """Raise DataError if the index of values has the table's rows in another order: values are taken by position."""
    if not isinstance(values, (pd.Series, pd.DataFrame)) or len(values) != len(frame) or values.index.equals(frame.index):
        return
    if frame.index.is_unique and values.index.is_unique and values.index.isin(frame.index).all():
        first = int(np.flatnonzero(values.index != frame.index)[0])
        raise DataError(
            f"{what}: has the table's rows in another order (at place {first} row {values.index[first]}, in the table "
            f"{frame.index[first]}); values are taken by place: pass them as .loc[X.index], or without index as .to_numpy()"
        )


def column(values: Any, rows: int, what: str) -> np.ndarray:
    """Return (N,) one value for each row, by position, whatever the index. Raises DataError for another shape."""
    array = np.asarray(values)
    if array.shape != (rows,):
        raise DataError(f"{what}: found an array of shape {array.shape} for {rows} rows; expected one value for each row")
    return array


def _names(frame: pd.DataFrame, sensitive: Any) -> list[str] | None:
    """Return names of columns, or None if `sensitive` holds values of rows."""
    if isinstance(sensitive, str):
        return [sensitive]
    if not isinstance(sensitive, Sequence) or not all(isinstance(name, str) for name in sensitive):
        return None
    if not len(sensitive):
        raise DataError("sensitive_features: an empty list; name a column, or leave it out for one group of all")
    return None if len(sensitive) == len(frame) and not any(name in frame.columns for name in sensitive) else list(sensitive)


def _labels(name: str, values: pd.Series) -> pd.Series:
    """Return "name = value" for each row; missing values stay missing."""
    words = values.astype(object).map(lambda value: f"{name} = {text(value)}")
    return words.where(values.notna(), None)
