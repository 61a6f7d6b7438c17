"""The HMDA mortgage register (Home Mortgage Disclosure Act), as the CEC paper uses it.

From an extract of the register with one line for each application. The preparation here (the paper does not describe its own):

- race: code 5 is White; 1-4 and their subgroups 21-27 and 41-44 are non-White; rows where it is not given (6, 7, empty) are
  left out.
- Rows of lenders exempt from reporting a ratio or value, and rows without debt-to-income, loan-to-value or property value, are
  left out: most of them were denied, and nobody can be matched on a missing merit.
- debt-to-income is reported in percent from 36 to 49, and in bands elsewhere: a band stands for its middle, "<20%" for 10,
  ">60%" for 65.
- Numbers with heavy tails are clipped to the ranges of hmda.toml, negative incomes to 0.
- Rows without an age band (8888) or a purpose (5) are left out. Sex not given (3, 4) and both (6) are categories.

`Dataset.dropped` counts the rows left out, each once, by the first reason that applies.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from verifair.datasets.table import read_table
from verifair.errors import DataError
from verifair.schema.feature import text
from verifair.schema.schema import Schema

NUMBERS = {
    "loan_amount": "loan-amount", "income": "income", "debt_to_income_ratio": "debt-to-income",
    "loan_to_value_ratio": "loan-to-value", "property_value": "property-value",
}
BANDS = {"<20%": 10, "20%-<30%": 25, "30%-<36%": 33, "50%-60%": 55, ">60%": 65}
EXEMPT = ("Exempt", "1111")
NOT_WHITE = ("1", "2", "3", "4", *map(str, range(21, 28)), *map(str, range(41, 45)))
CODES = {
    "applicant_race-1": ("race", {"5": "White", **dict.fromkeys(NOT_WHITE, "non-White")}, ("", "6", "7")),
    "loan_purpose": (
        "purpose",
        {"1": "purchase", "2": "improvement", "31": "refinancing", "32": "cash-out refinancing", "4": "other"},
        ("", "5"),
    ),
    "occupancy_type": ("occupancy", {"1": "principal", "2": "second", "3": "investment"}, ("",)),
    "applicant_age": (
        "age", {band: band for band in ("<25", "25-34", "35-44", "45-54", "55-64", "65-74", ">74")}, ("", "8888", "9999"),
    ),
    "applicant_sex": ("sex", {"1": "male", "2": "female", "3": "not given", "4": "not given", "6": "both"}, ("",)),
    "approved": ("approved", {"1": "yes", "0": "no"}, ()),
}
"""Column: (its name in the schema, code -> word, codes for what is not known)."""


def hmda_frame(path: str | Path, schema: Schema) -> tuple[pd.DataFrame, dict[str, int]]:
    """Return the table in the schema's words, and reason -> number of rows left out. Raises DataError naming the file."""
    table = read_table(path, columns=[*NUMBERS, *CODES])
    cells = table.map(lambda cell: "" if pd.isna(cell) else text(cell))
    frame = pd.DataFrame({name: _words(path, cells[column], words, unknown) for column, (name, words, unknown) in CODES.items()})
    for column, name in NUMBERS.items():
        low, high = schema[name].range or (-np.inf, np.inf)
        frame[name] = _numbers(path, cells[column]).clip(low, high)
    reasons = {
        "race not given": frame["race"].isna(),
        "lender exempt from reporting": cells[list(NUMBERS)].isin(EXEMPT).any(axis=1),
        **{f"no {name}": frame[name].isna() for name in NUMBERS.values()},
        **{f"no {name}": frame[name].isna() for name in ("age", "purpose", "occupancy", "sex")},
    }
    dropped, is_kept = _left_out(reasons)
    if not is_kept.any():
        counts = ", ".join(f"{reason}: {count}" for reason, count in dropped.items())
        raise DataError(f"{path}: no row is left: {counts}; pass an extract with known race, ratios and property value")
    names = [*(feature.name for feature in schema.features), str(schema.label)]
    return frame.loc[is_kept, names].reset_index(drop=True), dropped


def _left_out(reasons: Mapping[str, pd.Series]) -> tuple[dict[str, int], pd.Series]:
    is_kept = pd.Series(True, index=next(iter(reasons.values())).index)
    dropped = {}
    for reason, rows in reasons.items():
        dropped[reason] = int((rows & is_kept).sum())
        is_kept &= ~rows
    return {reason: count for reason, count in dropped.items() if count}, is_kept


def _words(path: str | Path, codes: pd.Series, words: Mapping[str, str], unknown: tuple[str, ...]) -> pd.Series:
    """Return the words of the codes, missing where it is not known."""
    invalid = codes[~codes.isin([*words, *unknown])]
    if len(invalid):
        raise DataError(
            f"{path}: column {codes.name}: row {invalid.index[0]} holds {invalid.iloc[0]!r}, expected one of {', '.join(words)}: "
            "it is no HMDA code; correct the file"
        )
    return codes.map(words)


def _numbers(path: str | Path, cells: pd.Series) -> pd.Series:
    """Return the numbers of the cells, bands by their middle, missing where there is none."""
    empty = cells.isin(["", "NA", *EXEMPT])
    numbers = pd.to_numeric(cells.mask(empty).replace(BANDS), errors="coerce")
    invalid = cells[numbers.isna() & ~empty]
    if len(invalid):
        raise DataError(
            f"{path}: column {cells.name}: row {invalid.index[0]} holds {invalid.iloc[0]!r}, expected a number"
            + (f" or one of {', '.join(BANDS)}" if cells.name == "debt_to_income_ratio" else "")
            + "; correct the file"
        )
    return numbers
