"""Tables as CSV files, there whole or not at all, which a spreadsheet may open: no cell is a formula."""

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
    """Return a cell as a spreadsheet may open it: text that it would take for a formula begins with an apostrophe. Numbers stay."""
    if not isinstance(value, str) or not FORMULA.match(value):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def save_table(path: Path, parts: Iterable[pd.DataFrame]) -> None:
    """Write a CSV file whole, without the index, from parts with the same columns; no cell or name of a column is a formula."""
    with whole(path) as half, half.open("w", encoding="utf-8", newline="") as file:
        for number, part in enumerate(parts):
            shown = part.apply(lambda column: column if is_numeric_dtype(column) else column.map(cell)).rename(columns=cell)
            shown.to_csv(file, index=False, header=not number)
