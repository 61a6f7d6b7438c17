"""Files of answers, written whole or not at all, with values that JSON has."""

from __future__ import annotations

import json
import math
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import date
from enum import Enum
from fractions import Fraction
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pandas as pd
from pydantic import BaseModel

from verifair.files import whole

PACKAGES = ("verifair", "numpy", "scipy", "pandas", "scikit-learn", "onnx", "onnxruntime", "highspy", "matplotlib")
BOXED = (Enum, np.generic)
"""Types of values that may be texts and numbers, too."""
AT_ONCE = 10_000
"""Rows of a table that become objects at once."""


def plain(value: Any) -> Any:
    """Return the value with JSON values only: NaN and infinities become null; NumPy numbers and enumerations plain values."""
    match value:  # the most frequent types come first
        case str() | int() | None if not isinstance(value, BOXED):
            return value
        case float():
            return float(value) if math.isfinite(value) else None
        case list() | tuple() | Records():
            return [plain(item) for item in value]
        case Mapping():
            return {str(plain(key)): plain(item) for key, item in value.items()}
        case Enum():
            return value.value
        case pd.DataFrame():
            rows = [plain(list(row)) for row in value.itertuples(index=False, name=None)]
            return {"columns": [str(name) for name in value.columns], "rows": rows}
        case np.ndarray() | np.generic():
            return plain(value.tolist())
        case PurePath() | Fraction() | date():
            return str(value)
    if value is pd.NA:
        return None
    raise TypeError(f"no JSON for {value!r} ({type(value).__name__})")


class Records:
    """The rows of a table as objects, column -> value, made on demand and not kept."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for start in range(0, len(self.frame), AT_ONCE):
            yield from self.frame.iloc[start : start + AT_ONCE].to_dict(orient="records")


def json_text(content: Any) -> str:
    """Return the JSON of a result or of plain values, in ASCII: names may hold characters that cannot be written to a file."""
    return "".join(_json(content))


def save_json(path: Path, content: Any) -> None:
    """Write a JSON file, whole or not at all, piece by piece, as it may be as long as a table. Creates its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as temporary, temporary.open("w", encoding="ascii") as file:
        file.writelines(_json(content))


def _json(content: Any) -> Iterator[str]:
    yield from _pieces(content.model_dump(context=Records) if isinstance(content, BaseModel) else content, "\n")
    yield "\n"


def _pieces(value: Any, line: str) -> Iterator[str]:
    """Yield the JSON of a value in parts, so that no table becomes a single text.   line: start of each of its lines."""
    if isinstance(value, Mapping) and any(isinstance(item, Mapping | list | Records) for item in value.values()):
        for index, (key, item) in enumerate(value.items()):
            yield f"{',' if index else '{'}{line} {json.dumps(str(plain(key)))}: "
            yield from _pieces(item, f"{line} ")
        yield f"{line}}}"
    elif (isinstance(value, Records) and len(value.frame)) or (isinstance(value, list) and value and isinstance(value[0], Mapping)):
        for index, item in enumerate(value):
            yield f"{',' if index else '['}{line} "
            yield from _pieces(item, f"{line} ") if isinstance(value, list) else (_text(plain(item), f"{line} "),)
        yield f"{line}]"
    else:
        yield _text(plain(value), line)


def _text(value: Any, line: str) -> str:
    """Return the JSON of plain values. Most are rows without lists, which json writes faster without indentation."""
    if isinstance(value, dict) and value and not any(isinstance(item, list | dict) for item in value.values()):
        return f"{{{line} {json.dumps(value, separators=(f',{line} ', ': '), allow_nan=False)[1:-1]}{line}}}"
    return json.dumps(value, indent=1, allow_nan=False).replace("\n", line)


def versions() -> dict[str, str]:
    """Return package -> version, of Python and of PACKAGES."""
    result = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            result[name] = version(name)
    return result


def save_text(path: Path, text: str) -> None:
    """Write a text file whole. Lone surrogates, which file names may hold, are written as in JSON: \\udcff."""
    with whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def file_name(words: str) -> str:
    """Return words as the name of a file, without a suffix: "sex = Male" becomes sex-Male."""
    return re.sub(r"[^\w.-]+", "-", words).strip("-.") or "nameless"
