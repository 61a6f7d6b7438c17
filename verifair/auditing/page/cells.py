"""Cells of the page's tables: the text shown, and the number that sorts it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import pandas as pd

MISSING = "–"
MAX_DECIMALS = 6


@dataclass(frozen=True, kw_only=True)
class Cell:
    """text: as shown.   number: its sort key (None: the text).   missing: sorts last in both directions."""

    text: str
    number: float | int | None = None
    missing: bool = False


@dataclass(frozen=True, kw_only=True)
class Grid:
    """columns: name, and whether its cells are numbers.   rows: one cell for each column.   left_out: number of rows not shown."""

    columns: tuple[tuple[str, bool], ...]
    rows: tuple[tuple[Cell, ...], ...]
    left_out: int


def grid(frame: pd.DataFrame, max_rows: int) -> Grid:
    """Return the first `max_rows` rows of a frame, without its index."""
    head = frame.iloc[:max_rows]
    columns = [head.iloc[:, k].astype(object).tolist() for k in range(head.shape[1])]
    cells = [_column(values) for values in columns]
    headers = tuple(
        (str(name), any(c.number is not None for c in column) and all(c.number is not None or c.missing for c in column))
        for name, column in zip(frame.columns, cells, strict=True)
    )
    return Grid(columns=headers, rows=tuple(zip(*cells, strict=True)), left_out=len(frame) - len(head))


def number(value: float, decimals: int = 3) -> str:
    """Return a number for reading: it looks like 0, 1 or another whole number only if it is exactly that."""
    if math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    for digits in range(decimals, MAX_DECIMALS + 1):
        text = f"{value:,.{digits}f}"
        rounded = float(text.replace(",", ""))
        if rounded == value or rounded != round(rounded):
            return text.replace("-", "−")
    return f"{value:.2e}".replace("-", "−") if abs(value) < 0.5 else repr(value).replace("-", "−")


def _column(values: list[Any]) -> list[Cell]:
    finite = [abs(float(v)) for v in values if _is_float(v) and math.isfinite(v)]
    largest = max(finite, default=0.0)
    all_integers = all(value.is_integer() for value in finite)
    decimals = 0 if all_integers or largest >= 10_000 else 1 if largest >= 100 else 2 if largest >= 10 else 3
    return [_cell(value, decimals) for value in values]


def _cell(value: Any, decimals: int) -> Cell:
    if isinstance(value, str):
        return Cell(text=value)
    if value is None or value is pd.NA or value is pd.NaT or (_is_float(value) and math.isnan(value)):
        return Cell(text=MISSING, missing=True)
    if isinstance(value, bool) or type(value).__name__ == "bool_" or str(getattr(value, "dtype", "")) == "bool":
        return Cell(text="yes" if value else "no")
    if isinstance(value, Integral):
        return Cell(text=f"{int(value):,}".replace("-", "−"), number=int(value))
    if _is_float(value):
        return Cell(text=number(float(value), decimals), number=float(value))
    return Cell(text=str(value))


def _is_float(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, (bool, Integral))
