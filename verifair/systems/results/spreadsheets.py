"""Tables as CSV files, written whole or not at all, and safe to open in a spreadsheet: no cell is a formula."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api.types import is_numeric_dtype

from verifair.files import whole

FORMULA = re.compile(r"\s*[=+\-@＝＋－＠].|[\t\r\n]", re.DOTALL)
"""A sign alone is none."""


def cell(value: Any) -> Any:
    """Return a cell that is safe in a spreadsheet: text that looks like a formula gets an apostrophe in front. Numbers stay."""
    if not isinstance(value, str) or not FORMULA.match(value):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def save_table(path: Path, parts: Iterable[pd.DataFrame]) -> None:
    """Write a CSV file whole, without the index, from parts with the same columns; no cell or name of a column is a formula."""
    with whole(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        for index, part in enumerate(parts):
            table = part.apply(lambda column: column if is_numeric_dtype(column) else column.map(cell)).rename(columns=cell)
            table.to_csv(file, index=False, header=not index)
