"""An audit as JSON: the answer beside the page, and finished sections kept on disk, which come back as they were."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from verifair.audit.result import (
    AuditResult,
    DataTable,
    Evidence,
    Picture,
    Section,
    Standing,
    Statement,
    Tone,
    WitnessRow,
)
from verifair.report.figures import save_text


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
    return None if value is pd.NA else str(value)


def save(path: Path, content: Mapping[str, Any]) -> None:
    """A JSON file, there whole or not at all."""
    save_text(path, json.dumps(plain(content), indent=1, allow_nan=False, ensure_ascii=False) + "\n")


def to_dict(result: AuditResult) -> dict[str, Any]:
    """JSON-ready: everything that the page shows; of pictures title and description only."""
    head = {field.name: getattr(result, field.name) for field in fields(result) if field.name not in ("sections", "sources")}
    content = {
        "format": "verifair-audit/1", **head, "sources": [asdict(one) for one in result.sources],
        "sections": [section_dict(one, pictures=False) for one in result.sections],
    }  # fmt: skip
    return {name: plain(value) for name, value in content.items()}


def section_dict(section: Section, *, pictures: bool = True) -> dict[str, Any]:
    """One section, JSON-ready.   pictures: with their drawings."""
    out = {field.name: getattr(section, field.name) for field in fields(section)}
    out |= {name: [asdict(one) for one in getattr(section, name)] for name in ("statements", "witnesses", "evidence")}
    out["tables"] = [{"title": one.title, "note": one.note, **plain(one.rows)} for one in section.tables]
    out["pictures"] = [
        {name: value for name, value in asdict(one).items() if pictures or name != "svg"} for one in section.pictures
    ]
    return {name: plain(value) for name, value in out.items()}


def section_of(content: Mapping[str, Any]) -> Section:
    """What `section_dict` wrote. Raises KeyError, TypeError, ValueError for anything else."""
    parts = {
        "statements": tuple(
            Statement(**{**one, "standing": Standing(one["standing"]), "tone": Tone(one["tone"])}) for one in content["statements"]
        ),
        "witnesses": tuple(
            WitnessRow(**{**one, "changes": {name: (was, became) for name, (was, became) in one["changes"].items()}})
            for one in content["witnesses"]
        ),
        "pictures": tuple(Picture(**one) for one in content["pictures"]),
        "tables": tuple(
            DataTable(title=one["title"], note=one["note"], rows=pd.DataFrame(one["rows"], columns=one["columns"]))
            for one in content["tables"]
        ),
        "evidence": tuple(Evidence(**one) for one in content["evidence"]),
    }
    return Section(**{**content, **parts})
