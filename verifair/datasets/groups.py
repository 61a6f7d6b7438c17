"""Groups of a table's rows: by values of a feature in the schema's words, or of a column that the network does not see."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from shlex import quote

import numpy as np
import pandas as pd

from encoders.arrays import Array
from verifair.errors import DataError, QueryError, SchemaError
from verifair.schema.feature import text
from verifair.schema.naming import assigned, unquoted
from verifair.schema.schema import Schema
from verifair.schema.writing import written

MAX_GROUPS = 20
"""Values of a number that still make a group each."""


def group_of(schema: Schema, frame: pd.DataFrame, name: str, cuts: Sequence[float] | None) -> pd.Series:
    """Return (N,) the group of each row by one feature or column.   cuts: ascending; they split a number into at most and above
    each.

    Raises DataError for a name that is neither, QueryError for a number of many values without cuts.
    """
    names = [feature.name for feature in schema.features]
    if name in names or name not in frame.columns:
        try:
            feature = schema[name]
        except SchemaError as error:  # it names the closest feature, but does not know the table's columns
            others = ", ".join(str(column) for column in frame.columns if column not in names)
            hint = unquoted(name, [*names, *frame.columns])
            raise DataError(f"{error}{f'; other columns of the table: {others}' if others else ''}{hint}") from None
        values = schema.raw(frame)[:, schema.index(name)]
        if feature.numeric or cuts is not None:
            return _of_number(name, values, cuts, feature.numeric, frame.index)
        return pd.Series([schema.format(name, value) for value in values], index=frame.index)
    column = frame[name]
    if column.isna().any():
        raise DataError(f"column {name!r}: {int(column.isna().sum())} rows have no value; drop them, or fill the value in")
    if pd.api.types.is_numeric_dtype(column) or cuts is not None:
        numeric = pd.api.types.is_numeric_dtype(column)
        return _of_number(name, column.to_numpy(dtype=float) if numeric else np.empty(0), cuts, numeric, frame.index)
    return column.map(text)


def _of_number(name: str, values: Array, cuts: Sequence[float] | None, numeric: bool, index: pd.Index) -> pd.Series:
    if not numeric:
        raise QueryError(f"--split {name}: {name!r} holds words, and only numbers can be cut; drop --split")
    if cuts is not None:
        cut_names = [short if float(short := f"{cut:g}") == cut else text(float(cut)) for cut in cuts]  # two cuts have two names
        middle = [f"above {low} to {high}" for low, high in pairwise(cut_names)]
        names = np.array([f"at most {cut_names[0]}", *middle, f"above {cut_names[-1]}"], dtype=object)
        return pd.Series(names[np.searchsorted(cuts, values, side="left")], index=index)
    distinct = np.unique(values)
    if len(distinct) > MAX_GROUPS:
        cut = float(f"{np.median(values):g}")
        raise QueryError(
            f"{name!r} has {len(distinct)} values, and each would be a group; split it, e.g. --split "
            f"{quote(assigned(name, f'{cut:g}'))} "
            f"(in an audit file: split = {written({name: [cut]})})"
        )
    return pd.Series([text(float(value)) for value in values], index=index)
