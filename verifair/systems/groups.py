"""Rows of a table, their groups, and the audited ones among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from encoders.arrays import Booleans, Integers
from verifair.aside import ASIDE, made, taken
from verifair.datasets.groups import group_of
from verifair.datasets.stream import Stream
from verifair.errors import DataError, QueryError
from verifair.schema.feature import text
from verifair.schema.naming import assignment, unquoted
from verifair.schema.spelling import nearest
from verifair.systems.settings import Grouped
from verifair.systems.subject import Subject

T = TypeVar("T")
ROWS = 1 << 14
"""Rows of which something is computed at once: what lies between takes several times their memory."""
SMALL = 30
"""Groups of fewer people are shown, and never ranked."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """frame: every row, with the table's row names.   groups: (N, protected) values that define groups, in words.

    audit: (N,) True for audited rows.   audited: the same in words.   dropped: rows outside the schema.
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
    """Return all rows of the subject's table with their groups, in memory.

    Raises QueryError, DataError or SchemaError for settings that do not fit the table.
    """
    frame = subject.frame
    (found,) = read_rows(settings, subject, verb, lambda rows: rows, None if frame is None else Stream.held(frame))
    return found


def read_rows(settings: Grouped, subject: Subject, verb: str, read: Callable[[Rows], T], rows: Stream | None) -> list[T]:
    """Return `read` of each chunk of the rows, with their groups.   rows: None for the subject's whole table. Raises as `rows_of`
    does."""
    schema, names = subject.schema, list(dict.fromkeys(settings.protected))
    if rows is None:
        raise QueryError(f"{verb} needs rows: pass --data TABLE, or try a shipped example with --demo german")
    if not names:
        declared = ", ".join(schema.protected_names) or "none is declared protected"
        raise QueryError(f"{verb} needs groups to compare: pass --protected NAME (protected in the schema: {declared})")
    extra = next((name for name in settings.split if name not in names), None)
    if extra is not None:
        raise QueryError(f"--split {extra}: {extra!r} is not in --protected ({', '.join(names)}); add it there, or drop --split")
    audited = _Audited.of(settings.audit, subject)
    examples: list[pd.DataFrame] = []

    def chunk(frame: pd.DataFrame) -> T | None:
        is_audited, count = audited.among(frame), len(frame)
        if settings.outside == "drop":
            is_legal = schema.fitting(frame)
            frame, is_audited = frame[is_legal], is_audited[is_legal]
        if not len(frame):
            return None
        groups = pd.DataFrame({name: group_of(schema, frame, name, settings.split.get(name)) for name in names})
        examples.append(frame[~groups.duplicated().to_numpy()])
        return read(Rows(frame=frame, groups=groups, audit=is_audited, audited=audited.words, dropped=count - len(frame)))

    results = [result for result in rows.each(chunk) if result is not None]
    audited.check()
    if not results:
        raise DataError("the table has no rows left to ask about")
    if len(examples) > 1:  # a number with few values in each chunk may have many in all
        combined = pd.concat(examples)
        for name in names:
            group_of(schema, combined, name, settings.split.get(name))
    return results


@dataclass(kw_only=True)
class _Audited:
    """The audited rows, chunk by chunk.   words: the same in words.   test: positions of the test rows, if these are audited.
    name, value: the column that selects them, and its value.   others: other values of the column.
    """

    words: str
    test: Integers | None = None
    name: str | None = None
    value: str = ""
    others: set[str] = field(default_factory=set)
    start: int = 0
    matched: bool = False

    @classmethod
    def of(cls, audit: str, subject: Subject) -> _Audited:
        if audit == "all":
            return cls(words="all rows")
        if audit == "test":
            if subject.dataset is None:
                raise QueryError(
                    "--audit test: only shipped examples say which rows are test rows; pass --audit COLUMN=VALUE, or all"
                )
            return cls(words="the test rows", test=subject.dataset.split[1])
        name, equals, value = assignment(audit)
        if not equals:
            raise QueryError(f"--audit {audit}: expected all, test, or column=value")
        return cls(words=f"rows with {name} = {value}", name=name, value=value)

    def among(self, frame: pd.DataFrame) -> Booleans:
        """Return (B,) True for the audited rows of the next chunk."""
        start, self.start = self.start, self.start + len(frame)
        if self.test is not None:
            return np.isin(np.arange(start, self.start), self.test)
        if self.name is None:
            return np.ones(len(frame), dtype=bool)
        if self.name not in frame.columns:
            hint = nearest(self.name, frame.columns) + unquoted(self.name, frame.columns)
            raise DataError(f"--audit {self.name}={self.value}: the table has no column {self.name!r}; {hint}")
        words = frame[self.name].map(text)
        selected = (words == self.value).to_numpy()
        self.matched |= bool(selected.any())
        self.others = set() if self.matched else self.others | set(words)
        return np.asarray(selected)

    def check(self) -> None:
        if self.name is not None and not self.matched:
            values = ", ".join(sorted(self.others)[:8])
            raise DataError(f"--audit {self.name}={self.value}: no row has this value; found {values}")


def blocks(rows: int) -> Iterator[slice]:
    """Yield a slice for each block of rows; for no rows, an empty one."""
    yield from (slice(start, start + ROWS) for start in range(0, max(rows, 1), ROWS))


def identities(
    values: npt.NDArray[Any], columns: Iterable[int] | None = None, rows: Integers | slice = slice(None)
) -> Integers:
    """Return (N,) a number 0 ... D - 1 for each row (N, V): equal rows have the same number, and
    numbers follow the order of values.   columns: those to compare; None: all.   rows: those to number.

    Column by column: sorting whole rows would copy them several times.
    """
    codes = np.zeros(len(values[rows, :0]), dtype=np.int64)
    for v in range(values.shape[1]) if columns is None else columns:
        ranks = _ranks(values[rows, v])
        if ranks.any():
            codes = _ranks(_numbers(codes, ranks))
    return codes


def _numbers(first: Integers, second: Integers) -> Integers:
    """Return (N,) a number for each pair of numbers, equal for equal pairs."""
    size = int(second.max()) + 1
    return np.asarray(made(len(first), np.int64, lambda part: first[part] * size + second[part]))


def _ranks(values: npt.NDArray[Any]) -> Integers:
    """Return (N,) the places of values (N,) among the distinct ones."""
    if values.nbytes < ASIDE:  # faster, but takes seven times the memory of the values
        return np.asarray(np.unique(values, return_inverse=True)[1])
    distinct = made(len(values), values.dtype, lambda part: values[part])
    distinct.sort()
    first = np.ones(len(distinct), dtype=bool)
    np.not_equal(distinct[1:], distinct[:-1], out=first[1:])
    distinct = taken(distinct, np.flatnonzero(first))
    return np.asarray(made(len(values), np.int64, lambda part: distinct.searchsorted(values[part])))
