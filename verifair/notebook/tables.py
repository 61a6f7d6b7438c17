"""One line and an HTML table of any object, for notebooks; what is not seen of names becomes a sign, as on the screen."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from enum import Enum
from html import escape
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import BaseModel

from encoders.text import visible, visible_lines

LONGEST_LINE, LONGEST_VALUE, ROWS, WIDEST = 180, 60, 40, 400
"""Characters of a line and of a value in it or in a table of facts; rows and characters of a cell of a table in HTML."""


def line(obj: Any) -> str:
    """Return type and fields in at most LONGEST_LINE characters, without fields that are None or empty."""
    summary = ", ".join(f"{name}={text}" for name, value in _fields(obj) if (text := brief(value)) not in ("None", "", "()", "{}"))
    return visible(f"{type(obj).__name__}({_cut(summary, LONGEST_LINE - len(type(obj).__name__) - 2)})")


def headline(obj: BaseModel) -> str:
    """Return the type and its fields with a word or a number, in at most LONGEST_LINE characters."""
    parts = [
        f"{name} {brief(value)}" for name, value in _fields(obj)
        if isinstance(value, str | int | float | Enum) and not type(obj).model_fields[name].exclude
    ]  # fmt: skip
    return _cut(": ".join([type(obj).__name__, *filter(None, [", ".join(parts)])]), LONGEST_LINE)


def facts(obj: Any) -> pd.DataFrame:
    """Return (fields,) abbreviated values."""
    values = {name: brief(value) for name, value in _fields(obj)}
    return pd.DataFrame({"value": list(values.values())}, index=pd.Index(list(values), name="field"))


def html(title: str, frame: pd.DataFrame) -> str:
    """Return a table with a heading. Names and values are escaped: they come from files and tables."""
    with pd.option_context("display.max_colwidth", WIDEST):
        table = frame.to_html(escape=True, max_rows=ROWS, border=0)
    return visible_lines(f"<div><p><strong>{escape(title)}</strong></p>{table}</div>")


def brief(value: Any) -> str:
    """Return a value in at most LONGEST_VALUE characters. Numbers keep all their digits: a rounded bound may not be a bound."""
    return _cut(_words(value), LONGEST_VALUE)


def _words(value: Any, depth: int = 0) -> str:
    match value:
        case Enum():
            return str(value.value)
        case float() | np.floating():
            return repr(float(value))
        case None | bool() | int() | np.integer() | np.bool_():
            return str(value)
        case str() | Path():
            return str(value)
        case bytes():
            return f"{len(value):,} bytes"
        case np.ndarray():
            return f"array of {' x '.join(map(str, value.shape))}"
        case pd.DataFrame() | pd.Series():
            return f"table of {len(value):,} rows"
        case Mapping() if depth < 2:
            return "{" + ", ".join(f"{k}: {_words(v, depth + 1)}" for k, v in islice(value.items(), 9)) + "}"
        case list() | tuple() | set() | frozenset() if depth < 2:
            if value and all(dataclasses.is_dataclass(item) or isinstance(item, BaseModel) for item in islice(value, 9)):
                return f"{len(value):,} {type(next(iter(value))).__name__}"
            return "(" + ", ".join(_words(item, depth + 1) for item in islice(value, 9)) + ")"
        case _:
            return type(value).__name__


def _fields(obj: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields of the type's own repr."""
    if isinstance(obj, BaseModel):
        yield from ((name, getattr(obj, name)) for name, field in type(obj).model_fields.items() if field.repr)
    else:
        yield from ((field.name, getattr(obj, field.name)) for field in dataclasses.fields(obj) if field.repr)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
