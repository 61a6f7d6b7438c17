"""Files of answers: there whole or not at all. JSON holds the values that JSON has."""

from __future__ import annotations

import json
import math
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from enum import Enum
from fractions import Fraction
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype
from pydantic import BaseModel

from verifair.files import whole

_one_line = json.JSONEncoder(allow_nan=False).encode
PACKAGES = ("verifair", "numpy", "scipy", "pandas", "scikit-learn", "onnx", "onnxruntime", "highspy", "matplotlib")
LEVELS = 4
"""Of JSON: so deep every part has a line of its own."""
SCALARS = (str, int, bool, type(None))
"""Types whose values JSON has as they are."""


def plain(value: Any) -> Any:
    """Values that JSON has: no NaN, no infinities (they become null), no numbers of NumPy, no enumerations."""
    kind = type(value)  # most values are of these; questions to abstract classes take ten times as long
    if kind in SCALARS:
        return value
    if kind is dict:
        return {key if type(key) is str else str(plain(key)): plain(one) for key, one in value.items()}
    if kind is list or kind is tuple:
        return [one if type(one) in SCALARS else plain(one) for one in value]
    match value:
        case Enum():
            return value.value
        case Mapping():
            return {str(plain(key)): plain(one) for key, one in value.items()}
        case list() | tuple():
            return [plain(one) for one in value]
        case pd.DataFrame():
            rows = [plain(list(row)) for row in value.itertuples(index=False, name=None)]
            return {"columns": [str(name) for name in value.columns], "rows": rows}
        case np.ndarray() | np.generic():
            return plain(value.tolist())
        case float():
            return value if math.isfinite(value) else None
        case None | bool() | int() | str():
            return value
        case PurePath() | Fraction() | date():
            return str(value)
    if value is pd.NA:
        return None
    raise TypeError(f"no JSON for {value!r} ({type(value).__name__})")


def json_text(content: Any) -> str:
    """Return the JSON of a result or of plain values, in ASCII: names may hold what no file can be written with."""
    return "".join(_lines(plain(content.model_dump() if isinstance(content, BaseModel) else content), "\n")) + "\n"


def _lines(value: Any, end: str) -> Iterator[str]:
    """Yield the JSON of plain values: a line for each part, LEVELS deep; what holds no parts, or stands deeper, is one line.

    json.dumps begins a line for every number, in Python: it takes several times as long as one that begins none, in C.
    """
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if len(end) > LEVELS or not any(isinstance(one, dict | list) for one in parts):
        yield _one_line(value)
        return
    between = f"{end} "
    yield "{" if isinstance(value, dict) else "["
    for number, one in enumerate(value):
        yield f",{between}" if number else between
        if isinstance(value, dict):
            yield f"{_one_line(one)}: "
        yield from _lines(value[one] if isinstance(value, dict) else one, between)
    yield end + ("}" if isinstance(value, dict) else "]")


def save_json(path: Path, content: Any) -> None:
    """Write a JSON file, there whole or not at all; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save_text(path, json_text(content))


def versions() -> dict[str, str]:
    """package -> version, of Python and of PACKAGES."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def save_text(path: Path, text: str) -> None:
    """Write a text file whole. Half characters, of which names of files may have some, are written as JSON has them: \\udcff."""
    with whole(path) as half:
        half.write_text(text, encoding="utf-8", errors="backslashreplace")


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


def file_name(words: str) -> str:
    """Words as the name of a file, without a suffix: "sex = Male" becomes sex-Male."""
    return re.sub(r"[^\w.-]+", "-", words).strip("-.") or "nameless"
