"""Tables from files, with clear errors."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from verifair.errors import DataError


def read_table(path: str | Path) -> pd.DataFrame:
    """Rows of a CSV (also .gz) or Parquet file. Only empty cells count as missing: a category may be called None or NA.

    Raises DataError for a missing, empty or unreadable file and for columns named twice.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: there is no such file; pass a CSV, CSV.GZ or Parquet table")
    try:
        if path.suffix in (".parquet", ".pq"):
            frame = pd.read_parquet(path)
        else:
            frame = pd.read_csv(path, keep_default_na=False, na_values=[""], skipinitialspace=True)
            header = pd.read_csv(path, nrows=1, header=None, dtype=str, keep_default_na=False, skipinitialspace=True).iloc[0]
            twice = sorted(set(header[header.duplicated()]))
            if twice:
                raise DataError(f"{path}: columns named twice: {', '.join(twice)}; give each its own name")
    except DataError:
        raise
    except pd.errors.EmptyDataError as error:
        raise DataError(f"{path}: is empty; expected a header line and rows") from error
    except (OSError, ValueError, UnicodeDecodeError, EOFError) as error:
        raise DataError(f"{path}: cannot be read as a table ({str(error).splitlines()[0]})") from error
    if not len(frame):
        raise DataError(f"{path}: has a header but no rows")
    return frame
