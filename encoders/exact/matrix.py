"""Sparse matrices of exactly known numbers: what one tensor of a graph is made of in terms of another.

Convolutions, poolings and selections touch a handful of columns a row; kept as coordinates they cost what they hold. A
dense product of two dense matrices goes through python-flint's rational matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from flint import fmpq

from encoders.exact.affine import Exact, exact, group_sums, stack

Integers = npt.NDArray[np.int64]
MOST_PRODUCTS = 2**31
"""Terms of one exact product, minutes of work."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactMatrix:
    """Row i holds entries[start[i] : start[i + 1]] in the columns of the same places, which increase.

    start: (m + 1,).   column: (e,).   entries: (e,) exact numbers; none of them need be there, absent ones are 0.
    """

    start: Integers
    column: Integers
    entries: Exact

    @property
    def rows(self) -> int:
        return len(self.start) - 1

    @property
    def row(self) -> Integers:
        """(e,) the row of every entry."""
        return np.repeat(np.arange(self.rows), np.diff(self.start))

    @property
    def widest(self) -> int:
        """Entries in the fullest row."""
        return int(np.diff(self.start).max(initial=0))

    @property
    def columns(self) -> Integers:
        """The columns that hold a number other than 0, increasing."""
        return np.unique(self.column[self.entries.nonzero])

    def take(self, rows: Integers) -> ExactMatrix:
        length = np.diff(self.start)[rows]
        return ExactMatrix(start=_starts(length), column=self.column[(place := _runs(self.start[rows], length))],
                           entries=self.entries.take(place))

    def scaled(self, factor: Exact) -> ExactMatrix:
        """Row by row times factor (m,)."""
        return ExactMatrix(start=self.start, column=self.column, entries=self.entries * factor.take(self.row))

    def __neg__(self) -> ExactMatrix:
        return ExactMatrix(start=self.start, column=self.column, entries=-self.entries)

    def __add__(self, other: ExactMatrix) -> ExactMatrix:
        return matrix(np.concatenate([self.row, other.row]), np.concatenate([self.column, other.column]),
                      stack([self.entries, other.entries]), rows=self.rows)

    def __matmul__(self, other: ExactMatrix) -> ExactMatrix:
        length = np.diff(other.start)[self.column]
        width = int(other.column.max(initial=-1)) + 1
        if length.sum() > MOST_PRODUCTS:
            raise MemoryError(f"a product of {length.sum()} terms; put an activation between two large affine maps")
        if length.sum() > self.rows * other.rows + other.rows * width + self.rows * width:
            return dense(self._dense(other.rows) @ other._dense(width))
        left, right = np.repeat(np.arange(len(self.column)), length), _runs(other.start[self.column], length)
        return matrix(self.row[left], other.column[right], self.entries.take(left) * other.entries.take(right), rows=self.rows)

    def _dense(self, width: int) -> Exact:
        values = np.zeros((self.rows, width)) if self.entries.is_float else np.full((self.rows, width), fmpq(0), dtype=object)
        size = np.zeros((self.rows, width))
        values[self.row, self.column], size[self.row, self.column] = self.entries.values, self.entries.size
        return Exact(values=values, size=size)


def matrix(row: Integers, column: Integers, entries: Exact, *, rows: int) -> ExactMatrix:
    """A matrix from coordinates in any order; entries at the same place are added up exactly."""
    order = np.lexsort((column, row))
    row, column, entries = row[order], column[order], entries.take(order)
    first = np.flatnonzero(np.r_[True, (row[1:] != row[:-1]) | (column[1:] != column[:-1])][: len(row)])
    if len(first) < len(row):
        row, column, entries = row[first], column[first], group_sums(entries, first)
    return ExactMatrix(start=_starts(np.bincount(row, minlength=rows)), column=column, entries=entries)


def dense(values: Exact) -> ExactMatrix:
    """The entries of a two-dimensional array that are not 0 (or that are the sum of numbers that cancelled)."""
    row, column = np.nonzero(values.nonzero | (values.size > 0))
    return matrix(row, column, Exact(values=values.values[row, column], size=values.size[row, column]), rows=len(values.size))


def selection(columns: Integers) -> ExactMatrix:
    """Row i picks column columns[i]."""
    return ExactMatrix(start=np.arange(len(columns) + 1), column=columns, entries=exact(np.ones(len(columns))))


def as_column(values: Exact) -> ExactMatrix:
    """A vector (m,) as a matrix of one column."""
    return dense(values.reshape(-1, 1))


def as_vector(column: ExactMatrix) -> Exact:
    """A matrix of one column as a vector (m,)."""
    return column._dense(1).reshape(-1)


def empty(rows: int) -> ExactMatrix:
    return selection(np.empty(0, dtype=np.int64)) if rows == 0 else ExactMatrix(
        start=np.zeros(rows + 1, dtype=np.int64), column=np.empty(0, dtype=np.int64), entries=exact(np.empty(0)))


def stacked(parts: Sequence[ExactMatrix]) -> ExactMatrix:
    """Rows of all parts, one after the other."""
    return ExactMatrix(start=_starts(np.concatenate([np.diff(p.start) for p in parts])),
                       column=np.concatenate([p.column for p in parts]), entries=stack([p.entries for p in parts]))


def _starts(length: Integers) -> Integers:
    return np.concatenate([[0], np.cumsum(length)]).astype(np.int64)


def _runs(start: Integers, length: Integers) -> Integers:
    """start[0], start[0] + 1, ... (length[0] of them), start[1], ..."""
    before = np.cumsum(length) - length
    return np.repeat(start - before, length) + np.arange(int(length.sum()))
