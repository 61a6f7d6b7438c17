"""An audit as JSON: the answer beside the page, and finished sections kept on disk, which come back as they were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import pandas as pd

from verifair.audit.result import AuditResult
from verifair.systems.files import plain
from verifair.systems.findings import DataTable, Evidence, Picture, Section, Standing, Statement, Tone, WitnessRow


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
    """What `section_dict` wrote. Raises AttributeError, KeyError, TypeError, ValueError for anything else."""
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
            DataTable(title=one["title"], note=one["note"], rows=_frame(one["columns"], one["rows"]))
            for one in content["tables"]
        ),
        "evidence": tuple(Evidence(**one) for one in content["evidence"]),
    }
    return Section(**{**content, **parts})


def _frame(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> pd.DataFrame:
    if any(len(row) != len(columns) for row in rows):
        raise ValueError("a row has more cells than there are columns, or fewer")
    return pd.DataFrame(rows, columns=columns)
