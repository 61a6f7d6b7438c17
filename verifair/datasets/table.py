"""Tables from files, with clear errors."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from verifair.errors import DataError

UNREADABLE = (OSError, ValueError, EOFError, zlib.error, pd.errors.ParserError)


def read_table(path: str | Path, *, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Rows of a CSV (also compressed) or Parquet file, or only some columns of it (the first of each name).

    Only empty cells count as missing: a category may be called None or NA. The table's `attrs["source"]` is the path, for errors
    to name. Raises DataError for a missing, empty or unreadable file, for columns named twice, and for other separators.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: there is no such file; pass a CSV, CSV.GZ or Parquet table")
    try:
        frame = _parquet(path, columns) if path.suffix in (".parquet", ".pq") else _csv(path, columns)
    except pd.errors.EmptyDataError:
        raise DataError(f"{path}: is empty; expected a header line and rows") from None
    except UNREADABLE as error:
        found = " ".join(str(error).split())
        raise DataError(f"{path}: cannot be read as a table ({found}); expected CSV in UTF-8, or Parquet") from error
    if not len(frame):
        raise DataError(f"{path}: has a header but no rows")
    frame.attrs["source"] = str(path)
    return frame


def _parquet(path: Path, columns: Sequence[str] | None) -> pd.DataFrame:
    frame = pd.read_parquet(path)
    _need(path, columns, [str(name) for name in frame.columns])
    return frame if columns is None else frame[list(columns)]


def _csv(path: Path, columns: Sequence[str] | None) -> pd.DataFrame:
    # Two lines, so that rows with more cells than the header are an error: pandas would take the first cell for a row label.
    first = pd.read_csv(path, nrows=2, header=None, dtype=str, keep_default_na=False, skipinitialspace=True)
    header = [str(name) for name in first.iloc[0]]
    if len(header) == 1 and any(separator in header[0] for separator in ";\t|"):
        raise DataError(f"{path}: the header {header[0]!r} has no commas; save the table with commas between the cells")
    twice = sorted({name for name in header if header.count(name) > 1 and name})
    if twice and columns is None:
        raise DataError(f"{path}: columns named twice: {', '.join(twice)}; give each its own name")
    _need(path, columns, header)
    return pd.read_csv(path, usecols=columns, keep_default_na=False, na_values=[""], skipinitialspace=True, low_memory=False)


def _need(path: Path, columns: Sequence[str] | None, header: Sequence[str]) -> None:
    missing = [name for name in columns or () if name not in header]
    if missing:
        known = ", ".join(header[:12]) + (" ..." if len(header) > 12 else "")
        raise DataError(f"{path}: has no column {', '.join(missing)}; it has {known}")
