"""Answers as JSON, for every verb and for the audit: values that JSON has, files that are there whole or not at all."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping
from datetime import date
from enum import Enum
from fractions import Fraction
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pandas as pd

from verifair.systems.figures import save_text

PACKAGES = ("verifair", "numpy", "scipy", "pandas", "scikit-learn", "onnx", "onnxruntime", "highspy", "matplotlib")


def plain(value: Any) -> Any:
    """Values that JSON has: no NaN, no infinities (they become null), no numbers of NumPy, no enumerations."""
    match value:
        case Enum():
            return value.value
        case Mapping():
            return {str(key): plain(one) for key, one in value.items()}
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


def save_json(path: Path, content: Mapping[str, Any]) -> None:
    """A JSON file, there whole or not at all; its folder is made. All in ASCII: names may hold what no file can be written with."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save_text(path, json.dumps(plain(content), indent=1, allow_nan=False) + "\n")


def versions() -> dict[str, str]:
    """package -> version, of Python and of PACKAGES."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
