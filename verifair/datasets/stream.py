"""Rows of a table as a stream: read in chunks, again whenever they are needed, from a file or a table in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from pandas.api.types import infer_dtype

from encoders.arrays import Booleans, Integers
from verifair.aside import Stack, stacked
from verifair.checker.words import counted
from verifair.datasets import table
from verifair.datasets.table import TableFile
from verifair.errors import DataError
from verifair.schema.rows import blamed

T = TypeVar("T")
MOST_WORDS = 1 << 16
"""Most different words of a column stored on disk: the words themselves are held in memory."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Stream:
    """chunks(): yields the rows in order, in tables of bounded size.   whole(): returns all of them as one table."""

    chunks: Callable[[], Iterator[pd.DataFrame]]
    whole: Callable[[], pd.DataFrame]

    @classmethod
    def of(cls, rows: str | Path | pd.DataFrame) -> Stream:
        """Return the rows of a file (raises DataError when it is read, as `read_table` does), or those of a table in memory;
        row names that are no number or text become text."""
        if isinstance(rows, pd.DataFrame):
            frame = _with_plain_names(rows)
            return cls(chunks=lambda: _parts(frame), whole=lambda: frame)
        if not isinstance(rows, str | Path):
            raise DataError(f"rows: found {type(rows).__name__}; expected a DataFrame, or the path of a table's file")
        file = TableFile(path=Path(rows))
        return cls(chunks=lambda: map(_with_plain_names, file.chunks()), whole=lambda: _with_plain_names(file.whole()))

    @classmethod
    def held(cls, frame: pd.DataFrame) -> Stream:
        """Return the rows of a table in memory as one chunk."""
        return cls(chunks=lambda: iter([frame]), whole=lambda: frame)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """Return all rows as one table, which is kept in memory from then on."""
        return self.whole()

    @cached_property
    def stored(self) -> pd.DataFrame:
        """Return all rows in one table, for uses that read few columns at a time. With more than one chunk, numbers and words are
        stored on disk (`verifair.aside`), words as categories in alphabetical order; other tables are held in memory."""
        chunks = self.chunks()
        first, second = next(chunks, None), next(chunks, None)
        if first is None or second is None:
            return self.frame if first is None else first
        with ExitStack() as files:
            columns = [_Stored(files.enter_context(closing(Stack()))) for _ in first]
            index = []
            for chunk in chain((first, second), chunks):
                if not all(store.add(chunk.iloc[:, n]) for n, store in enumerate(columns)):
                    return self.frame
                index.append(chunk.index)
            result = pd.DataFrame({name: store.values() for name, store in zip(first, columns, strict=True)}, copy=False)
        result.index = index[0].append(index[1:])
        result.attrs = dict(first.attrs)
        return result

    @cached_property
    def count(self) -> int:
        """Return the number of rows."""
        return sum(len(chunk) for chunk in self.chunks())

    @cached_property
    def columns(self) -> list[str]:
        """Return the names of the columns."""
        return [str(name) for name in next(self.chunks(), pd.DataFrame()).columns]

    def each(self, read: Callable[[pd.DataFrame], T]) -> Iterator[T]:
        """Yield `read` of each chunk. A DataError says which rows the chunk has, as its counts are about these."""
        start = 0
        for chunk in self.chunks():
            try:
                yield read(chunk)
            except DataError as error:
                if start == 0 and len(chunk) < table.CHUNK:  # this chunk has all rows
                    raise
                last = start + len(chunk) - 1
                raise DataError(f"{error} (found among rows {start:,} to {last:,}; later ones were not looked at)") from None
            start += len(chunk)

    def where(self, keep: Callable[[pd.DataFrame], Booleans]) -> Stream:
        """Return the rows that are kept, with the same names.   keep: returns (B,) True for rows of a chunk to keep."""

        def chunks() -> Iterator[pd.DataFrame]:
            return (kept for chunk in self.chunks() if len(kept := chunk[keep(chunk)]))

        return Stream(chunks=chunks, whole=lambda: _joined(chunks()))

    def settled(self, missing: str, columns: Collection[str], *, facts: Collection[str] = ()) -> tuple[Stream, str]:
        """Return the rows without missing values in these columns and in `facts`, and a description of the treatment ("" for none).

        missing: "error" keeps them, for the reader to report; "drop": see `complete`; "most-frequent": see `filled`.
        facts: columns that are never filled in (labels, protected features): rows without them are left out.
        """
        if missing == "most-frequent" and facts:
            people, left_out = self.settled("drop", facts)
            filled, words = people.settled(missing, [name for name in columns if name not in facts])
            return filled, left_out + words
        columns = {*columns, *facts}
        present = [name for name in self.columns if name in columns]
        cells, rows = self.missing(present) if missing != "error" else (0, 0)
        if not rows:
            return self, ""
        with blamed(next(self.chunks())):
            if missing == "drop":
                return self.complete(present), f" ({counted(rows, 'row', 'rows')} with missing values left out)"
            count = counted(cells, "missing value", "missing values")
            return self.filled(present), f" ({count} in {counted(rows, 'row', 'rows')} filled in)"

    def missing(self, columns: Sequence[str]) -> tuple[int, int]:
        """Return the number of cells of these columns without a value, and of rows with such cells."""
        masks = [chunk[columns].isna().to_numpy() for chunk in self.chunks()] if columns else []
        return sum(int(mask.sum()) for mask in masks), sum(int(mask.any(axis=1).sum()) for mask in masks)

    def complete(self, columns: Sequence[str]) -> Stream:
        """Return the rows that have a value in each of these columns, with the same names. Raises DataError if there are none."""
        rows = self.where(lambda chunk: chunk[columns].notna().all(axis=1).to_numpy())
        if not rows.count:
            with_values = {name for chunk in self.chunks() for name in columns if chunk[name].notna().any()}
            _check_not_empty([name for name in columns if name not in with_values])
            names = ", ".join(columns)
            remedy = "fill them in (--missing most-frequent does, but for labels and protected features)"
            raise DataError(f"no row has a value in each of the columns {names}; {remedy}")
        return rows

    def filled(self, columns: Sequence[str]) -> Stream:
        """Return the rows with missing values of each column replaced by its most frequent value (among equally frequent ones, the
        first). Raises DataError for a column without any value."""
        values: dict[str, Counter[Any]] = {name: Counter() for name in columns}
        for chunk in self.chunks():
            for name, counts in values.items():
                codes, distinct = pd.factorize(chunk[name])     # by order of the rows; without missing values
                counts.update(dict(zip(distinct.tolist(), np.bincount(codes[codes >= 0], minlength=len(distinct)), strict=True)))
        _check_not_empty([name for name, counts in values.items() if not counts])
        fill = {name: counts.most_common(1)[0][0] for name, counts in values.items()}
        return self.changed(lambda frame: frame.fillna(fill))

    def changed(self, change: Callable[[pd.DataFrame], pd.DataFrame]) -> Stream:
        """Return the rows changed by `change`, which takes the whole table or chunks of it."""
        return Stream(chunks=lambda: map(change, self.chunks()), whole=lambda: change(self.whole()))

    def head(self, rows: int) -> Stream:
        """Return the first rows."""

        def chunks() -> Iterator[pd.DataFrame]:
            left = rows
            for chunk in self.chunks():
                yield chunk.head(left)
                left -= len(chunk)
                if left <= 0:
                    return

        return Stream(chunks=chunks, whole=lambda: self.frame.head(rows))

    def take(self, rows: Integers) -> Stream:
        """Return the rows at these positions (ascending), with the same names; they are held in memory."""
        start, parts = 0, []
        for chunk in self.chunks():
            low, high = np.searchsorted(rows, (start, start + len(chunk)))
            if low < high:
                parts.append(chunk.iloc[rows[low:high] - start])
            start += len(chunk)
        return Stream.of(_joined(iter(parts)))


@dataclass(kw_only=False, eq=False)
class _Stored:
    """A column that arrives in chunks.   stack: its numbers, or the codes of its words.   words: word -> code; None: numbers."""

    stack: Stack
    dtype: Any = None
    words: dict[str, int] | None = None

    def add(self, column: pd.Series) -> bool:
        """Add the next chunk. Return False if it cannot be stored: for other or mixed types, or MOST_WORDS words."""
        if self.dtype is None:
            self.dtype = column.dtype
            self.words = None if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf" else {}
        if column.dtype != self.dtype or (self.words is not None and infer_dtype(column, skipna=True) not in ("string", "empty")):
            return False
        if self.words is None:
            self.stack.add(column.to_numpy())
            return True
        codes, distinct = pd.factorize(column)
        for word in distinct:
            self.words.setdefault(word, len(self.words))
        self.stack.add(np.array([*(self.words[word] for word in distinct), -1], dtype=np.int32)[codes])
        return len(self.words) <= MOST_WORDS

    def values(self) -> Any:
        """Return all rows: numbers, or categories."""
        values = self.stack.values()
        if self.words is None:
            return values
        words = sorted(self.words)
        smallest = np.int8 if len(words) < 127 else np.int16 if len(words) < 32767 else np.int32  # as pandas has them
        code_of = np.empty(len(words) + 1, dtype=smallest)
        code_of[[self.words[word] for word in words]], code_of[-1] = np.arange(len(words)), -1
        starts = range(0, max(len(values), 1), table.CHUNK)  # at least one part, even without rows
        codes = stacked(code_of[values[start : start + table.CHUNK]] for start in starts)
        return pd.Categorical.from_codes(codes, pd.Index(words, dtype=self.dtype), validate=False)


def _check_not_empty(empty: Sequence[str]) -> None:
    """Raise DataError for columns without any value: neither treatment of missing values helps."""
    if empty:
        columns = f"column{'s' if len(empty) > 1 else ''} {', '.join(map(repr, empty))}"
        raise DataError(f"{columns} {'have' if len(empty) > 1 else 'has'} no value at all; fill in the table, or pass another one")


def _with_plain_names(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the same rows; names that are no number or text, such as dates, several levels or None, become text."""
    index = frame.index
    if index.dtype.kind in "iuf" and not index.hasnans:
        return frame
    names = [name if isinstance(name, (str, int, float)) and name == name else str(name) for name in index]
    return frame.set_axis(pd.Index(names, dtype=object))


def _parts(frame: pd.DataFrame) -> Iterator[pd.DataFrame]:
    for start in range(0, len(frame), table.CHUNK):
        yield frame.iloc[start : start + table.CHUNK]


def _joined(chunks: Iterator[pd.DataFrame]) -> pd.DataFrame:
    parts = list(chunks)
    joined = pd.concat(parts) if len(parts) > 1 else parts[0] if parts else pd.DataFrame()
    joined.attrs = dict(parts[0].attrs) if parts else {}
    return joined
