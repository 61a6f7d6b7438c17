"""Read tables from files, with clear errors."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api.types import infer_dtype

from verifair.errors import DataError, require
from verifair.schema.feature import repeated

UNREADABLE = (
    OSError, ValueError, EOFError, ArithmeticError, RuntimeError, ImportError, MemoryError, LookupError,
    zlib.error, lzma.LZMAError, zipfile.BadZipFile, pd.errors.ParserError,
)
"""Errors that the readers of these formats raise for damaged files."""
MAX_UNPACKED = 1 << 31
"""Bytes that a compressed table may unpack to: a small file can hold a machine's memory many times over, and ..."""
RATIO, SMALL = 250, 1 << 26
"""... so many times its own size, where that is more than SMALL bytes: unpacking takes time, too, and tables shrink to a tenth."""
MAX_CELLS = 1 << 28
"""Most cells of a Parquet file that is read whole: a million equal cells take a few bytes in it."""
MAX_COLUMNS = 10_000
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
"""Other than commas; Excel writes semicolons where decimals have commas."""
CHUNK = 1 << 14
"""Rows that are read at once, where not all are held."""
PACKED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def read_table(path: str | Path, *, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Read all rows of a CSV (also compressed) or Parquet file, or only some columns of it (the first of each name).

    Only empty cells count as missing: a category may be called None or NA. The table's `attrs["source"]` is the path, for errors
    to name. Raises DataError for a missing, empty or unreadable file, for columns named twice, and for other separators.
    """
    return TableFile(path=Path(path), columns=columns).whole()


@dataclass(frozen=True, kw_only=True, eq=False)
class TableFile:
    """A CSV or Parquet file.   columns: those to read (the first of each name); None: all."""

    path: Path
    columns: Sequence[str] | None = None

    def whole(self) -> pd.DataFrame:
        """Return all rows. Raises DataError as `read_table` does."""
        return next(self._checked(self._whole_table))

    def chunks(self) -> Iterator[pd.DataFrame]:
        """Yield the rows in chunks of at most CHUNK, with the row names of `whole` and, apart from missing values, its column
        types. Raises DataError as `read_table` does."""
        yield from self._checked(self._parquet_chunks if self._is_parquet else self._csv_chunks)

    @property
    def _is_parquet(self) -> bool:
        return self.path.suffix in (".parquet", ".pq")

    def _checked(self, read: Callable[[], Iterator[pd.DataFrame]]) -> Iterator[pd.DataFrame]:
        path, has_rows = self.path, False
        if not path.is_file():
            reason = "is a folder" if path.is_dir() else "there is no such file"
            raise DataError(f"{path}: {reason}; pass a CSV, CSV.GZ or Parquet table")
        try:
            for chunk in read():
                if len(chunk):
                    has_rows = True
                    chunk.attrs["source"] = str(path)
                    yield chunk
        except pd.errors.EmptyDataError:
            raise DataError(f"{path}: is empty; expected a header line and rows") from None
        except UNREADABLE as error:
            reason = " ".join(str(error).split())[:500] or type(error).__name__
            raise DataError(f"{path}: cannot be read as a table ({reason}); expected CSV in UTF-8, or Parquet") from error
        if not has_rows:
            raise DataError(f"{path}: has a header but no rows")

    def _whole_table(self) -> Iterator[pd.DataFrame]:
        if not self._is_parquet:
            self._check_csv()
            yield self._read_csv()
            return
        with self._parquet_file() as file:
            metadata = file.metadata
            if metadata.num_rows * metadata.num_columns > MAX_CELLS:
                shape = f"{metadata.num_rows:,} rows of {metadata.num_columns:,} columns"
                raise DataError(f"{self.path}: has {shape}, at most {MAX_CELLS:,} cells are held at once; pass a part of it")
            yield self._framed(file.read())

    def _parquet_chunks(self) -> Iterator[pd.DataFrame]:
        start = 0
        with self._parquet_file() as file:
            from pyarrow import Table

            index = _pandas(file.read(columns=[])).index  # if that is a range: a chunk has its own, from 0
            for batch in file.iter_batches(batch_size=CHUNK):
                frame = self._framed(Table.from_batches([batch]))
                if isinstance(frame.index, pd.RangeIndex):
                    frame.index = index[start : start + len(frame)]
                start += len(frame)
                yield frame

    @contextmanager
    def _parquet_file(self) -> Iterator[Any]:
        require("pyarrow", "parquet", f"{self.path}: reading Parquet")
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile

        try:
            with self.path.open("rb") as stream, ParquetFile(stream) as file:  # pyarrow takes no name outside UTF-8
                yield file
        except ArrowException as error:
            raise ValueError(str(error)) from error

    def _framed(self, part: Any) -> pd.DataFrame:
        part.validate(full=True)  # invalid text is only found by a full validation
        frame = _pandas(part)
        _need(self.path, self.columns, [str(name) for name in frame.columns])
        return frame if self.columns is None else frame[list(self.columns)]

    def _csv_chunks(self) -> Iterator[pd.DataFrame]:
        types = self._types
        with self._read_csv(chunksize=CHUNK, dtype=types) as chunks:
            yield from chunks

    def _read_csv(self, **args: Any) -> Any:
        return pd.read_csv(
            self.path, usecols=self.columns, keep_default_na=False, na_values=[""], skipinitialspace=True, low_memory=False, **args
        )

    def _check_csv(self) -> None:
        """Raise DataError for errors in the header or in the size of a compressed file."""
        path, columns = self.path, self.columns
        _check_size(path)
        _check_width(path)
        header = _first_lines(path, 1)
        sep = max(SEPARATORS, key=header[0].count)
        if len(header) == 1 and sep in header[0]:
            raise DataError(
                f"{path}: the header {header[0][:500]!r} has no commas, but {SEPARATORS[sep]}; save the table with commas "
                f"between the cells and points in decimals, or pass what pandas.read_csv(FILE, sep={sep!r}, decimal=',') reads"
            )
        _first_lines(path, 2)  # rows with more cells than the header are an error: pandas would take the first cell for a row label
        duplicates = [name for name in repeated(header) if name]
        if duplicates and columns is None:
            raise DataError(f"{path}: columns named twice: {_listed(duplicates)}; give each its own name")
        _need(path, columns, header)

    @cached_property
    def _types(self) -> dict[str, Any]:
        """Check the file, and return the types of those columns whose chunks pandas would read with different types.

        The types are those of reading all rows at once: if one chunk holds words, the numbers of another are words too; if one
        holds fractions, the whole numbers of another are floats.
        """
        self._check_csv()
        kinds_of: dict[str, set[str]] = {}
        with self._read_csv(chunksize=CHUNK) as chunks:
            for chunk in chunks:
                for name, column in chunk.items():
                    if column.notna().any():
                        kind = "bool" if infer_dtype(column) == "boolean" else str(column.dtype)  # object if values are missing
                        kinds_of.setdefault(str(name), set()).add(kind)
        mixed = {name: kinds for name, kinds in kinds_of.items() if len(kinds) > 1}
        return {name: "float64" if kinds == {"int64", "float64"} else str for name, kinds in mixed.items()}


def _pandas(part: Any) -> pd.DataFrame:
    try:
        return part.to_pandas()
    except TypeError as error:
        raise ValueError(f"what it notes of types for pandas: {error}") from error


def _first_lines(path: Path, count: int) -> list[str]:
    """Return the header's names, after reading `count` lines."""
    lines = pd.read_csv(path, nrows=count, header=None, dtype=str, keep_default_na=False, skipinitialspace=True)
    return [str(name) for name in lines.iloc[0]]


def _check_size(path: Path) -> None:
    """Raise DataError for a compressed file that unpacks to more than is allowed, or has another compression."""
    if path.suffix in (".zst", ".tar", ".tgz"):
        raise DataError(f"{path}: tables are read as they are, or compressed by gzip, bzip2, xz or zip; unpack it first")
    size, limit = 0, min(MAX_UNPACKED, max(SMALL, RATIO * path.stat().st_size))
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as zipped:
            size = sum(file.file_size for file in zipped.infolist())
    elif path.suffix in PACKED:
        with PACKED[path.suffix](path) as file:
            while size <= limit and (part := file.read(1 << 22)):
                size += len(part)
    if size > limit:
        raise DataError(f"{path}: unpacks to more than {limit / 2**20:,.0f} MiB; if that is meant, unpack it and pass the CSV")


def _check_width(path: Path) -> None:
    """Raise DataError for a header of more than MAX_COLUMNS names: pandas would take minutes."""
    with _unpacked(path) as file, io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="") as text:
        try:
            header: list[str] = next(filter(None, csv.reader(text)), [])
        except csv.Error as error:
            raise DataError(f"{path}: its header cannot be read ({error}); expected names with commas between them") from error
    if len(header) > MAX_COLUMNS:
        raise DataError(f"{path}: has {len(header):,} columns, at most {MAX_COLUMNS:,} are read; pass those that are needed")


@contextmanager
def _unpacked(path: Path) -> Iterator[Any]:
    """Open the bytes of a table; for a zip archive, those of its first file (pandas reads only archives of one file)."""
    if path.suffix != ".zip":
        with PACKED.get(path.suffix, open)(path, "rb") as file:
            yield file
        return
    with zipfile.ZipFile(path) as zipped:
        names = zipped.namelist()
        with zipped.open(names[0]) if names else io.BytesIO() as file:
            yield file


def _listed(names: Sequence[str]) -> str:
    """Join the first names, as many as fit in a message."""
    return ", ".join(name[:100] for name in names[:12]) + (" ..." if len(names) > 12 else "")


def _need(path: Path, columns: Sequence[str] | None, header: Sequence[str]) -> None:
    missing = [name for name in columns or () if name not in header]
    if missing:
        raise DataError(f"{path}: has no column {_listed(missing)}; it has {_listed(header)}")
