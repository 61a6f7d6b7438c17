"""Rows of a table, the groups that they fall into, and which of them are asked about."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from encoders.network import Booleans
from verifair.datasets.groups import group_of
from verifair.errors import DataError, QueryError
from verifair.schema.feature import text
from verifair.systems.settings import Grouped
from verifair.systems.subject import Subject

SMALL = 30
"""Groups of fewer people are shown, and never ranked."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """frame: every row, called as in the table.   groups: (N, protected) what makes groups, in words.

    audit: (N,) which of them are asked about.   audited: the same in words.   dropped: rows outside the schema.
    """

    frame: pd.DataFrame
    groups: pd.DataFrame
    audit: Booleans
    audited: str
    dropped: int

    @property
    def count(self) -> int:
        """Number of groups."""
        return len(self.groups.drop_duplicates())


def rows_of(settings: Grouped, subject: Subject, verb: str) -> Rows:
    """Return all rows of the subject's table with their groups.

    Raises QueryError, DataError or SchemaError for settings that do not fit the table.
    """
    schema, frame, names = subject.schema, subject.frame, list(dict.fromkeys(settings.protected))
    if frame is None:
        raise QueryError(f"{verb} needs rows: pass --data TABLE, or try a shipped example with --demo german")
    if not names:
        known = ", ".join(schema.protected_names) or "none is declared protected"
        raise QueryError(f"{verb} needs groups to compare: pass --protected NAME (protected in the schema: {known})")
    other = next((name for name in settings.split if name not in names), None)
    if other is not None:
        raise QueryError(f"--split {other}: {other!r} is not in --protected ({', '.join(names)}); add it there, or drop --split")
    chosen, audited = _audited(settings.audit, subject, frame)
    rows = len(frame)
    if settings.outside == "drop":
        inside = schema.fitting(frame)
        frame, chosen = frame[inside], chosen[inside]
    if not len(frame):
        raise DataError("the table has no rows left to ask about")
    groups = pd.DataFrame({name: group_of(schema, frame, name, settings.split.get(name)) for name in names})
    return Rows(frame=frame, groups=groups, audit=chosen, audited=audited, dropped=rows - len(frame))


def _audited(audit: str, subject: Subject, frame: pd.DataFrame) -> tuple[Booleans, str]:
    """(N,) which rows are asked about, and which these are in words."""
    if audit == "all":
        return np.ones(len(frame), dtype=bool), "all rows"
    if audit == "test":
        if subject.dataset is None:
            raise QueryError("--audit test: only shipped examples say which rows are test rows; pass --audit COLUMN=VALUE, or all")
        return np.isin(np.arange(len(frame)), subject.dataset.split[1]), "the test rows"
    name, equals, value = (part.strip() for part in audit.partition("="))
    if not equals:
        raise QueryError(f"--audit {audit}: expected all, test, or column=value")
    if name not in frame.columns:
        raise DataError(f"--audit {audit}: the table has no column {name!r}; it has {', '.join(map(str, frame.columns))}")
    words = frame[name].map(text)
    if not (words == value).any():
        raise DataError(f"--audit {audit}: no row has this value; found {', '.join(sorted(set(words))[:8])}")
    return (words == value).to_numpy(), f"rows with {name} = {value}"
