"""Law school applicants of the LSAC's survey, as the CST paper uses them (section 4.2, after Kusner et al. 2017).

- female, nonwhite: 1 or 0.   UGPA: grades, 0 .. 4.2.   LSAT: the test score *rounded* to whole points, half to even; the equations
  are fitted to it.   LSAT-unrounded: as it stands in the file (2,032 of 21,790 are no whole number).
- admitted: "yes" when 0.6 UGPA + 0.4 LSAT-unrounded >= 20.8. The paper's text says ">"; its numbers result from ">=", which 15
  more applicants reach.

Read from either of two files: the CST authors', with `sex` in words, or that of Kusner et al., with `sex` 1 = female, 2 = male (and
one applicant more, 21,791). `race` is in words in both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from verifair.datasets.table import read_table
from verifair.errors import DataError
from verifair.schema.feature import text
from verifair.schema.schema import Schema

THRESHOLD = 20.8
"""0.6 of 3.93 grade points and 0.4 of 46.1 points, the median of those whom the top school admits."""
FEMALE = {"Female": 1, "1": 1, "Male": 0, "2": 0}
SCORES = {"UGPA": (0.0, 4.2), "LSAT": (10.0, 48.0)}
"""Smallest and largest possible value."""


def law_school_frame(path: str | Path) -> pd.DataFrame:
    """Return one row for each applicant. Raises DataError naming the file, the row and what is expected."""
    table = read_table(path, columns=["race", "sex", "LSAT", "UGPA"])
    for name in ("race", "sex"):
        if table[name].isna().any():
            raise DataError(f"{path}: row {int(np.argmax(table[name].isna()))} has no {name}; leave such rows out")
    scores = {name: _scores(path, table[name], *limits) for name, limits in SCORES.items()}
    female = table["sex"].map(text).map(FEMALE)
    if female.isna().any():
        row = int(np.argmax(female.isna()))
        raise DataError(
            f"{path}: row {row} has sex {text(table['sex'].iloc[row])}, expected Female or Male, or 1 (female) or 2 (male)"
        )
    unrounded = scores["LSAT"]
    admitted = 0.6 * scores["UGPA"] + 0.4 * unrounded >= THRESHOLD
    return pd.DataFrame({
        "female": female.astype(np.int64), "nonwhite": (table["race"] != "White").astype(np.int64), "UGPA": scores["UGPA"],
        "LSAT": unrounded.round(), "LSAT-unrounded": unrounded, "admitted": np.where(admitted, "yes", "no"),
    })


def law_school_schema() -> Schema:
    """Describe grades, the rounded test score, and two protected attributes (1 = female, 1 = nonwhite)."""
    features: list[dict[str, Any]] = [
        {"name": name, "kind": "real", "range": list(limits), "scale": "minmax", "merit": True} for name, limits in SCORES.items()
    ]
    protected = [
        {"name": name, "kind": "categorical", "categories": ["0", "1"], "protected": True} for name in ("female", "nonwhite")
    ]
    return Schema.build({
        "features": [*features, *protected], "positive": "class = 1", "label": "admitted", "positive_label": "yes",
        "outcomes": ["refused", "admitted"],
    })


def _scores(path: str | Path, column: pd.Series, low: float, high: float) -> pd.Series:
    numbers = pd.to_numeric(column, errors="coerce").astype(float)
    bad = ~numbers.between(low, high)  # missing ones too
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(
            f"{path}: row {row} has {column.name} {text(column.iloc[row])}, expected a number from {low:g} to {high:g}; "
            f"{int(bad.sum())} such rows: correct them or leave them out"
        )
    return numbers
