"""What `verifair fgce` is about: the rows of the graph, the groups they fall into, and whose decisions are explained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from encoders.network import Booleans
from verifair.cli.inputs import Inputs
from verifair.datasets.groups import group_of
from verifair.errors import DataError, QueryError
from verifair.schema.feature import Change, text
from verifair.schema.schema import Schema
from verifair.systems.fgce.space import CHANGES


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """frame: every row of the graph, called as in the table.   groups: (N, protected) what makes groups, in words.

    audit: (N,) whose decisions are to be explained.   audited: the same in words.   dropped: rows outside the schema.
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


def rows_of(given: Inputs, protected: Sequence[str], split: Sequence[str], audit: str, outside: str, *, demo: bool) -> Rows:
    """All rows of the table with their groups. Raises QueryError, DataError or SchemaError for options that do not fit it."""
    if outside not in ("error", "drop"):
        raise QueryError(f"--outside {outside}: expected error or drop")
    if given.dataset is None:
        raise QueryError("fgce needs rows: pass --data TABLE, or try a shipped example with --demo german")
    if not protected:
        known = ", ".join(given.schema.protected_names) or "none is declared protected"
        raise QueryError(f"fgce needs groups to compare: pass --protected NAME (protected in the schema: {known})")
    frame = given.dataset.frame
    chosen, audited = _audit(given, audit, demo)
    if outside == "drop":
        inside = given.schema.inside(given.schema.raw(frame, outside="keep"))
        frame, chosen = frame[inside], chosen[inside]
    if not len(frame):
        raise DataError("the table has no rows left to ask about")
    cuts = parsed_splits(split, list(dict.fromkeys(protected)))
    groups = pd.DataFrame({name: group_of(given.schema, frame, name, cuts.get(name)) for name in dict.fromkeys(protected)})
    return Rows(frame=frame, groups=groups, audit=chosen, audited=audited, dropped=len(given.dataset.frame) - len(frame))


def parsed_changes(texts: Sequence[str], schema: Schema) -> dict[str, Change]:
    """feature -> change, of `--change feature=increase`. Raises QueryError, and SchemaError naming the closest feature."""
    out: dict[str, Change] = {}
    for one in texts:
        name, _, change = (part.strip() for part in one.partition("="))
        if change not in CHANGES:
            raise QueryError(f"--change {one}: expected feature=one of {', '.join(CHANGES)}, e.g. --change age=increase")
        if name in out:
            raise QueryError(f"--change names {name!r} twice; give each feature once")
        schema.index(name)
        out[name] = change
    return out


def parsed_splits(texts: Sequence[str], protected: Sequence[str]) -> dict[str, list[float]]:
    """feature -> rising cuts, of `--split feature=5` and `--split feature=5,9`. Raises QueryError."""
    out: dict[str, list[float]] = {}
    for one in texts:
        name, _, listed = (part.strip() for part in one.partition("="))
        try:
            cuts = [float(cut) for cut in listed.split(",")]
        except ValueError:
            raise QueryError(f"--split {one}: expected feature=number, or several numbers, e.g. --split age=25,60") from None
        if not np.isfinite(cuts).all() or sorted(set(cuts)) != cuts:
            raise QueryError(f"--split {one}: expected finite numbers that rise, e.g. --split age=25,60")
        if name not in protected:
            raise QueryError(f"--split {one}: {name!r} makes no groups; it splits one of --protected {', '.join(protected)}")
        if name in out:
            raise QueryError(f"--split names {name!r} twice; list all its cuts in one")
        out[name] = cuts
    return out


def _audit(given: Inputs, audit: str, demo: bool) -> tuple[Booleans, str]:
    """(N,) whose decisions are explained, and that in words."""
    assert given.dataset is not None
    frame = given.dataset.frame
    if audit == "all":
        return np.ones(len(frame), dtype=bool), "all rows"
    if audit == "test":
        if not demo:
            raise QueryError("--audit test: only shipped examples say which rows are test rows; pass --audit COLUMN=VALUE, or all")
        return np.isin(np.arange(len(frame)), given.dataset.split[1]), "the test rows"
    name, equals, value = (part.strip() for part in audit.partition("="))
    if not equals:
        raise QueryError(f"--audit {audit}: expected all, test, or column=value")
    if name not in frame.columns:
        raise DataError(f"--audit {audit}: the table has no column {name!r}; it has {', '.join(map(str, frame.columns))}")
    chosen = frame[name].map(text).to_numpy() == value
    if not chosen.any():
        found = ", ".join(sorted(set(frame[name].map(text)))[:8])
        raise DataError(f"--audit {audit}: no row has this value; found {found}")
    return chosen, f"rows with {name} = {value}"
