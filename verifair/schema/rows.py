"""From a table to raw values and class labels; errors name every value that does not fit, with its feature and row.

Rows are named by the label of the table's index: in a table read from a file that is 0 for the first row.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import numpy as np
import pandas as pd

from encoders.arrays import Array, Booleans, Integers
from verifair.errors import DataError
from verifair.models.columns import holds_numbers
from verifair.schema.constraint import Constraint, boxes_of, labelled
from verifair.schema.feature import Feature, text
from verifair.schema.spelling import closest, listed
from verifair.screen import ShownWarning

LEAVE_OUT = '--outside drop; in an audit file under [data], and in Python: outside = "drop"'
"""The remedy in messages for leaving rows out."""

MISSING = ("nan", "None")
"""ONNX's names of the category of missing values of an encoder of words."""
UNSAID = frozenset(("?", "nan", "null", "n/a", "#n/a", "<na>", "nat"))
"""Words that stand for a missing label beside two others; none and NA may well be names."""


class LabelWarning(ShownWarning):
    """The label has several values that are not favourable."""


@contextmanager
def blamed(frame: pd.DataFrame) -> Iterator[None]:
    """Make errors about a table name the file that it was read from (`read_table` notes it)."""
    try:
        yield
    except DataError as error:
        source = frame.attrs.get("source")
        raise (DataError(f"{source}: {error}") if source else error) from None


def block_of(feature: Feature) -> dict[str, str]:
    """Return column name_category of a table -> category of a one-hot feature; a dropped one has no column."""
    words = [word for word in feature.categories or () if word != feature.dropped] if feature.kind == "one-hot" else []
    return {f"{feature.source}_{word}": word for word in words}


def raw_column(frame: pd.DataFrame, feature: Feature, *, unknown: Literal["error", "nan"] = "error") -> Array:
    """Return raw values (N,) of a feature: from its column, or for a one-hot feature from its block of columns name_category.

    unknown: treatment of a category that the schema does not have: DataError, or NaN, which lies outside every domain.
    """
    if feature.source not in frame.columns and any(name in frame.columns for name in block_of(feature)):
        return _from_block(frame, feature)
    remedy = next((f'; if its category {word!r} stands for them, write missing = "{word}" in the schema'
                   for word in feature.categories or () if word in MISSING), "")  # fmt: skip
    column = _column(frame, feature.source, f"feature {feature.name!r}", gaps=feature.missing is not None, remedy=remedy)
    if feature.categories is None:
        return _numbers(column, feature)
    if feature.missing is None:
        return _indices(column, feature, unknown)
    present = column.notna().to_numpy()
    indices = np.full(len(column), float(feature.categories.index(feature.missing)))
    indices[present] = _indices(column[present].infer_objects(), feature, unknown)
    return indices


def labels(
    frame: pd.DataFrame, label: str, positive: str | None, classes: Sequence[str] = (), *, count: int | None = None,
    names: Collection[str] | None = None,
) -> Integers:  # fmt: skip
    """Return classes (N,): 1 where the label column holds `positive`, else 0; without `positive` the places of its names
    among `classes`, or else its own 0, 1, ...

    count: number of the model's classes, if that is known.   names: of the label in the whole table (`label_names`), if the frame
    is a chunk of it. They decide how the label is read.
    Raises DataError for labels that are none of these, seem to be missing, or seem to be one value in two spellings. A LabelWarning
    tells of several names that are not `positive`.
    """
    column = _column(frame, label, "label")
    positions, distinct = _factor(column, f"label {label!r}")
    all_names = list(dict.fromkeys(distinct)) if names is None else sorted(names)
    if positive is None and classes:
        unknown = [name for name in all_names if name not in classes]
        if not unknown:
            return np.asarray(np.array([list(classes).index(name) for name in distinct], dtype=np.int64)[positions])
        if not all(name.isdecimal() for name in all_names):
            raise DataError(
                f"label {label!r} holds {unknown[0]!r}, the schema's classes are {listed(list(classes))}; correct one of the two"
            )
    if positive is None:
        numbers = numeric(pd.Series(distinct, dtype=object))
        is_class = np.isfinite(numbers) & (numbers == np.floor(numbers)) & (numbers >= 0)
        if not is_class.all() or (count is not None and numbers.max(initial=0) >= count):
            expected = "0, 1, ..." if count is None else "0 and 1" if count == 2 else f"0 to {count - 1}"
            raise DataError(
                f"label {label!r} holds {listed(sorted(all_names))}, not class numbers {expected}; name the positive value in the "
                "schema: positive_label = ..."
            )
        return np.asarray(numbers[positions], dtype=np.int64)
    check_names(f"label {label!r}", positive, all_names)
    tell_others(f"label {label!r}", positive, all_names)
    return np.asarray(np.array([name == positive for name in distinct], dtype=np.int64)[positions])


def check_names(subject: str, positive: str, names: Sequence[str]) -> None:
    """Raise DataError unless the names of a label, one of which is `positive`, tell favourable rows from others."""
    # A table of one class may well be all negative; two classes that are both unknown are a misspelt positive_label.
    if positive not in names and len(names) > 1:
        raise DataError(
            f"{subject}: no row holds positive_label = {positive!r}; found {listed(sorted(names))}; correct the schema's "
            "positive_label"
        )
    unsaid = [name for name in names if name.casefold() in UNSAID]
    if unsaid and len(names) - len(unsaid) > 1:
        raise DataError(
            f"{subject}: some rows hold {unsaid[0]!r}, which seems to stand for no value, and would count as not "
            f"{positive!r}; leave these cells empty and the rows out (--missing drop), or give the label another name"
        )
    twin = next((name for name in names if name != positive and _spelled(name) == _spelled(positive)), None)
    if twin is not None and len(names) != 2:  # two may be told apart by upper case alone
        raise DataError(
            f"{subject}: some rows hold {twin!r}, which seems to be {positive!r} in another spelling, and would count as not "
            f"{positive!r}; write one of them in all rows"
        )


def others_alike(subject: str, positive: str | None, names: Collection[str]) -> str:
    """Return what several names of a label that are not `positive` count as, in words; empty if there are no such."""
    if positive is None or len(names) < 3:
        return ""
    others = listed(sorted(name for name in names if name != positive))
    return f"{subject}: rows with {others} all count as not {positive!r}"


def tell_others(subject: str, positive: str, names: Collection[str]) -> None:
    """Warn if a label has several names that are not `positive`."""
    if words := others_alike(subject, positive, names):
        warnings.warn(words, LabelWarning, stacklevel=1)


def _spelled(name: str) -> str:
    """Return a name of a label in one spelling: without upper case, and 1.0 as 1."""
    number = _number(name)
    return text(number) if np.isfinite(number) else name.casefold()


def label_names(frame: pd.DataFrame, label: str) -> set[str]:
    """Return the distinct names of the label in a table, or in a chunk of one."""
    return set(_factor(_column(frame, label, "label"), f"label {label!r}")[1])


def label_values(frame: pd.DataFrame, label: str) -> Array:
    """Return the label's numbers (N,), for a comparison with a threshold. Raises DataError for anything else."""
    column = _column(frame, label, "label")
    numbers = numeric(column)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        raise DataError(
            f"label {label!r}: row {column.index[bad[0]]} holds {_cell(column.iloc[bad[0]])}, expected a number, which the "
            "threshold compares; correct the data, or name the favourable label with positive_label = ..."
        )
    return numbers


def _column(frame: pd.DataFrame, name: str, subject: str, *, gaps: bool = False, remedy: str = "") -> pd.Series:
    """Return a column of a table.   gaps: cells may be empty.   remedy: a further remedy for empty cells.

    Raises DataError if there is no such column, or if it lacks values.
    """
    columns = [str(column) for column in frame.columns]
    if name not in frame.columns:
        hint = f"it has {listed(columns)}"
        if (match := closest(name, columns)) is not None:
            hint = f'did you mean {match!r}? Then name it in the schema: {"label" if subject == "label" else "column"} = "{match}"'
        raise DataError(f"{subject}: the table has no column {name!r}; {hint}")
    column = frame[name]
    if isinstance(column, pd.DataFrame):
        raise DataError(f"{subject}: the table has {column.shape[1]} columns {name!r}; give each its own name")
    missing = np.flatnonzero(column.isna().to_numpy())
    if len(missing) and not gaps:
        raise DataError(
            f"{subject}: {len(missing)} {'row has' if len(missing) == 1 else 'rows have'} no value in column {name!r}, first row "
            f"{column.index[missing[0]]}; drop such rows, or fill them in (--missing drop, or most-frequent; in an "
            f'audit file under [data]: missing = "drop"; in Python: missing="drop" of vf.audit, or dropna, fillna){remedy}'
        )
    return column


def _factor(column: pd.Series, subject: str) -> tuple[Integers, list[str]]:
    """Return for each row the position of its value among the distinct values, and these as text."""
    try:
        positions, distinct = pd.factorize(column)
    except TypeError:
        raise DataError(f"{subject}: the cells hold lists or other compound values, expected one name or number in each") from None
    return np.asarray(positions, dtype=np.int64), [text(value) for value in distinct]


def _indices(column: pd.Series, feature: Feature, when_unknown: Literal["error", "nan"]) -> Array:
    """Return category indices (N,), from names, or from codes in a column of numbers if no category's name is a number."""
    categories = feature.categories or ()
    positions, names = _factor(column, f"feature {feature.name!r}")
    index = {name: float(k) for k, name in enumerate(categories)}
    unknown = np.array([name not in index for name in names], dtype=bool)
    number_of = {name: _number(name) for name in categories} if holds_numbers(column) else {}
    count = Counter(number_of.values())
    equal = [name for name in names if count[number_of.get(name, np.inf)] > 1]
    if equal:
        twins = " and ".join(repr(name) for name in categories if number_of[name] == number_of[equal[0]])
        remedy = f"read text, pandas.read_csv(FILE, dtype={{{feature.source!r}: str}}), or pass a Parquet file"
        raise DataError(f"feature {feature.name!r}: the table holds the number {equal[0]}, which is {twins} alike; {remedy}")
    if not unknown.any():
        return np.asarray(np.array([index[name] for name in names], dtype=float)[positions])
    if holds_numbers(column) and feature.read_by_code:
        first, step = (feature.codes[0], round(1 / feature.affine[1])) if feature.codes else (0, 1)
        numbers = _numbers(column, feature)
        return (numbers - first) / step  # codes of no category are outside the domain: `inside` finds them
    if when_unknown == "nan":
        return np.asarray(np.array([index.get(name, np.nan) for name in names], dtype=float)[positions])
    row = int(np.argmax(unknown[positions]))
    name = names[positions[row]]
    cell = f"feature {feature.name!r}: row {column.index[row]} holds {_cell(column.iloc[row])}"
    raise DataError(
        f"{cell}, {feature.unknown(name)}; correct the data, add the category to the schema, or leave such rows out ({LEAVE_OUT})"
    )


def numeric(cells: pd.Series) -> Array:
    """Return (N,) the numbers in cells, or in their text; NaN for anything else, inf for numbers beyond float64."""
    if isinstance(cells.dtype, pd.CategoricalDtype):
        cells = cells.astype(object)
    try:
        return np.asarray(pd.to_numeric(cells, errors="coerce").to_numpy(dtype=float, na_value=np.nan))
    except OverflowError:  # a whole number of hundreds of digits, which pandas does not coerce
        return np.array([_number(cell) for cell in cells])


def _number(cell: object) -> float:
    try:
        return float(cell)  # type: ignore[arg-type]
    except OverflowError:
        return np.inf
    except (TypeError, ValueError):
        return np.nan


def _cell(cell: object) -> str:
    """Return a cell for a message: a text with the blanks around it, which may be the problem."""
    return repr(cell if isinstance(cell, str) else text(cell))


def no_feature(column: pd.Series) -> str | None:
    """Return the content of a column that no feature kind takes (dates, periods, durations or complex numbers), else None."""
    if isinstance(column.dtype, pd.PeriodDtype):  # pandas treats these as whole numbers
        return "periods"
    return {"M": "dates", "m": "durations", "c": "complex numbers"}.get(column.dtype.kind)


def _numbers(column: pd.Series, feature: Feature) -> Array:
    name = f"feature {feature.name!r}"
    if no_feature(column) is not None:
        raise DataError(f"{name}: the column's type is {column.dtype}, expected numbers; convert it to a number first")
    numbers = numeric(column)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        raise DataError(
            f"{name}: row {column.index[bad[0]]} holds {_cell(column.iloc[bad[0]])}, expected a finite number; correct the data, "
            "or declare the feature categorical"
        )
    if feature.kind != "real":
        bad = np.flatnonzero(numbers != np.floor(numbers))
        if len(bad):
            remedy = 'round the data, or declare kind = "real"' if feature.kind == "integer" else "give names or whole codes"
            reason = f"row {column.index[bad[0]]} holds {numbers[bad[0]]:g}"
            raise DataError(f"{name}: {reason}, expected a whole number; {remedy}")
    return numbers


def _from_block(frame: pd.DataFrame, feature: Feature) -> Array:
    """Return category indices (N,) of a feature that the table holds as one-hot columns."""
    subject, words, dropped = f"feature {feature.name!r}", block_of(feature), feature.dropped
    block = list(words)
    absent = [name for name in block if name not in frame.columns]
    if absent:
        raise DataError(
            f"{subject}: the table has some of its one-hot columns but not {listed(absent)}; add these (for a category without a "
            f"column, write dropped = ... in the schema), or give one column {feature.source!r} of names"
        )
    values = np.column_stack([numeric(_column(frame, n, subject)) for n in block])
    sums = values.sum(axis=1)
    bad = np.flatnonzero(((sums != 1) if dropped is None else (sums > 1)) | ~np.isin(values, (0, 1)).all(axis=1))
    if len(bad):
        row = bad[0]
        set_ = [name for name, value in zip(block, values[row], strict=True) if value != 0]
        expected = "exactly one 1 and zeros elsewhere" if dropped is None else f"one 1 at most, and zeros alone for {dropped!r}"
        raise DataError(
            f"{subject}: row {frame.index[row]} has {len(set_)} of its one-hot columns set ({', '.join(set_) or 'none'}), expected "
            f"{expected}; correct the data"
        )
    categories = feature.categories or ()
    index = np.array([categories.index(word) for word in words.values()], dtype=np.float64)
    indices = index[values.argmax(axis=1)]
    return indices if dropped is None else np.where(sums == 0, float(categories.index(dropped)), indices)


def broken(constraints: Sequence[Constraint], features: Sequence[Feature], raw: Array) -> dict[str, Booleans]:
    """Return for each constraint, by its name in errors, (B,) True for raw rows (B, V) that break it."""
    return {label: boxes_of(c, features).contain(raw, raw) for label, c in labelled(constraints)}


def violations(constraints: Sequence[Constraint], features: Sequence[Feature], raw: Array, rows: pd.Index) -> str:
    """Return a message: the broken constraints, how many of the rows raw (B, V), labelled `rows`, break each, the first of these,
    and the remedy."""
    position = {feature.name: v for v, feature in enumerate(features)}
    parts = []
    for (label, is_broken), constraint in zip(broken(constraints, features, raw).items(), constraints, strict=True):
        if is_broken.any():
            count, first = int(is_broken.sum()), int(np.argmax(is_broken))
            values = ", ".join(f"{name} = {features[v].word(raw[first, v])}" for name in constraint.names for v in [position[name]])
            verb = "row breaks" if count == 1 else "rows break"
            parts.append(f"{label}: {count} {verb} it, first row {rows[first]} with {values}")
    return "; ".join(parts) + "; correct the data or the constraint, or leave such rows out (" + LEAVE_OUT + ")"
