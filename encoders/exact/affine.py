"""Affine arithmetic without rounding: float64 as long as it is exact, then rationals (python-flint).

Folding constants of a graph into one weight must not round more than once. An `Exact` array stays float64 as long as
every operation on it is error-free, which is *checked* (TwoSum: Knuth; TwoProduct: Dekker 1971), and turns into
rationals the moment one is not. `rounded` brings the end result back to float64 with one correct rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import flint
import numpy as np
import numpy.typing as npt
from flint import fmpq

from encoders.arrays import Array, Booleans, Integers

Objects = npt.NDArray[np.object_]
FLUSHED = 2.0**-100
"""A float32 runtime may take a number below 2^-126 for 0, an error of at most a quarter of 2^-24 FLUSHED."""
_SPLIT = float(2**27 + 1)
_LARGE, _SMALL = 2.0**480, 2.0**-480    # factors within [2^-480, 2^480] keep TwoProduct clear of over- and underflow


@dataclass(frozen=True, kw_only=True, eq=False)
class Exact:
    """An array of exactly known numbers.

    values: float64, or object (flint.fmpq), of any shape.
    size: float64, same shape: the sum of |each contribution| before any of them cancelled. A float32 runtime that
    computes the same numbers in some order errs by at most (number of operations) * 2^-24 * size; the import check
    uses it. Numbers below FLUSHED count as FLUSHED, so that this also covers runtimes that take denormals for 0.
    """

    values: npt.NDArray[Any]
    size: Array

    @property
    def is_float(self) -> bool:
        return bool(self.values.dtype != object)

    @property
    def nonzero(self) -> Booleans:
        return np.asarray(self.values != 0, dtype=bool)

    def as_rational(self) -> Objects:
        """Return the numbers as an object array of flint.fmpq."""
        return _rational(self.values)

    def take(self, rows: Integers) -> Exact:
        return Exact(values=self.values[rows], size=self.size[rows])

    def reshape(self, *shape: int) -> Exact:
        return Exact(values=self.values.reshape(shape), size=self.size.reshape(shape))

    def __add__(self, other: Exact) -> Exact:
        with np.errstate(over="ignore", invalid="ignore"):
            size = self.size + other.size
            if self.is_float and other.is_float:
                total = self.values + other.values
                virtual = total - self.values
                error = (self.values - (total - virtual)) + (other.values - virtual)    # NaN after an overflow
                if not error.any():
                    return Exact(values=total, size=size)
        return _settled(_rational(self.values) + _rational(other.values), size)

    def __neg__(self) -> Exact:
        return Exact(values=-self.values, size=self.size)

    def __mul__(self, other: Exact) -> Exact:
        """Return the elementwise product with broadcasting."""
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            size = self.size * other.size
        if self.is_float and other.is_float:
            product, exact = _two_product(self.values, other.values)
            if exact:
                return Exact(values=product, size=size)
        return _settled(_rational(self.values) * _rational(other.values), size)

    def __matmul__(self, other: Exact) -> Exact:
        """Return the matrix product (m, k) @ (k, n), or (m, k) @ (k,).

        Where every column of the right factor has one entry at most (a selection, a permutation, a scaling of
        columns), the product is one multiplication an entry; only real sums of products need rationals.
        """
        if other.values.ndim == 1:
            return (self @ other.reshape(-1, 1)).reshape(-1)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            size = self.size @ other.size
        if other.values.size == 0 or (other.values != 0).sum(axis=0).max() <= 1:
            row = np.argmax(other.values != 0, axis=0)
            factor = Exact(values=other.values[row, np.arange(row.size)], size=np.zeros(row.size))
            product = Exact(values=self.values[:, row], size=np.zeros((len(self.values), row.size))) * factor
            return Exact(values=product.values, size=size)
        left, right = (flint.fmpq_mat(*m.shape, _rational(m).ravel().tolist()) for m in (self.values, other.values))
        return _settled(np.array((left * right).entries(), dtype=object).reshape(size.shape), size)

    def rounded(self) -> tuple[Array, bool]:
        """Return the nearest float64 numbers (infinite where out of range), and True if they are the exact numbers."""
        if self.is_float:
            return self.values, True
        rounded, exact = _to_float(self.values)
        return rounded, exact


def exact(values: npt.ArrayLike) -> Exact:
    """Return exact numbers from float64 (or narrower) ones, or from an object array of flint.fmpq."""
    array = np.asarray(values)
    if array.dtype == object:
        return _settled(array, _size(_to_float(array)[0]))
    array = array.astype(np.float64)
    return Exact(values=array, size=_size(array))


def _size(values: Array) -> Array:
    return np.where(values == 0, 0.0, np.maximum(np.abs(values), FLUSHED))


def reciprocal(values: Array) -> Exact:
    """Return 1 / values, exactly."""
    return exact(np.array([1 / _fmpq(v) for v in values.ravel().tolist()], dtype=object).reshape(values.shape))


def reciprocal_root(values: Array, *, plus: float) -> Exact:
    """Return 1 / sqrt(values + plus), exact where that is rational with a square, else to a relative error below 2^-120."""
    roots = []
    for v in values.ravel().tolist():
        radicand = Fraction(v) + Fraction(plus)
        p, q = radicand.numerator, radicand.denominator
        shift = 0 if math.isqrt(p * q) ** 2 == p * q else max(0, 128 - (p * q).bit_length() // 2)
        root = math.isqrt(p * q << 2 * shift)      # sqrt(p / q) = sqrt(p q) / q
        roots.append(flint.fmpq(q << shift, root))
    return exact(np.array(roots, dtype=object).reshape(values.shape))


def group_sums(numbers: Exact, first: Integers) -> Exact:
    """Return the sums (g,) of groups of numbers (e,), each from a position in `first` up to the next."""
    count = np.diff(np.r_[first, len(numbers.values)])
    if count.max(initial=0) > 4:
        size = np.add.reduceat(numbers.size, first)
        return _settled(np.add.reduceat(_rational(numbers.values), first), size)
    total = numbers.take(first)
    for k in range(1, int(count.max(initial=0))):
        longer = np.flatnonzero(count > k)
        sums = total.take(longer) + numbers.take(first[longer] + k)
        if total.is_float and sums.is_float:
            values = total.values.copy()
            values[longer] = sums.values
        else:
            values = _rational(total.values).copy()
            values[longer] = _rational(sums.values)
        size = total.size.copy()
        size[longer] = sums.size
        total = Exact(values=values, size=size)
    return total


def stack(parts: list[Exact]) -> Exact:
    """Return rows of all parts, one after the other."""
    values = [p.values for p in parts]
    if not all(p.is_float for p in parts):
        values = [_rational(v) for v in values]
    return Exact(values=np.concatenate(values), size=np.concatenate([p.size for p in parts]))


def _fmpq(value: float) -> Any:
    return flint.fmpq(*value.as_integer_ratio())


def _rational(values: npt.NDArray[Any]) -> Objects:
    if values.dtype == object:
        return values
    flat = np.empty(values.size, dtype=object)
    flat[:] = [_fmpq(v) for v in values.ravel().tolist()]
    return flat.reshape(values.shape)


def _to_float(values: Objects, *, only_same: bool = False) -> tuple[Array, bool]:
    """Return the nearest float64 numbers, and True if they are exact; with `only_same`, no numbers unless they are."""
    floats, is_exact = [], True
    for v in values.ravel():
        p, q = int(v.p), int(v.q)
        try:
            number = p / q                        # division of Python integers is correctly rounded
        except OverflowError:
            number = math.inf if p > 0 else -math.inf
        is_exact = is_exact and math.isfinite(number) and number.as_integer_ratio() == (p, q)
        if only_same and not is_exact:
            return np.empty(0), False
        floats.append(number)
    return np.array(floats, dtype=np.float64).reshape(values.shape), is_exact


def _settled(values: npt.NDArray[Any], size: Array) -> Exact:
    """Return the numbers as float64 if that is exact, else as rationals."""
    floats, is_exact = _to_float(values, only_same=True)
    return Exact(values=floats if is_exact else values, size=size)


def _two_product(a: Array, b: Array) -> tuple[Array, bool]:
    """Return a * b, and True if surely no entry of it was rounded."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        product = a * b
        for factor in (a, b):
            magnitude = np.abs(factor)
            if not (((magnitude <= _LARGE) & (magnitude >= _SMALL)) | (magnitude == 0)).all():
                return product, False
        a_high, b_high = ((lambda c, x: c - (c - x))(_SPLIT * x, x) for x in (a, b))
        a_low, b_low = a - a_high, b - b_high
        error = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    return product, not error.any()


MOST_PRODUCTS = 2**31
"""The most terms of one exact product, minutes of work."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactMatrix:
    """Row i holds entries[start[i] : start[i + 1]] in the columns of the same places, which increase.

    start: (m + 1,).   column: (e,).   entries: (e,) exact numbers; absent entries are 0.
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
        """The number of entries in the fullest row."""
        return int(np.diff(self.start).max(initial=0))

    @property
    def columns(self) -> Integers:
        """The columns that hold a number other than 0, increasing."""
        return np.flatnonzero(np.bincount(self.column[self.entries.nonzero]))

    @property
    def picks(self) -> bool:
        """True if every row picks one column, each a later one than the row before."""
        entries = self.entries
        one_each = len(self.column) == self.rows and bool((np.diff(self.start) == 1).all() and (np.diff(self.column) > 0).all())
        return one_each and entries.is_float and bool((entries.values == 1).all() and (entries.size == 1).all())

    def take(self, rows: Integers) -> ExactMatrix:
        length = np.diff(self.start)[rows]
        return ExactMatrix(start=_starts(length), column=self.column[(place := _runs(self.start[rows], length))],
                           entries=self.entries.take(place))

    def scaled(self, factor: Exact) -> ExactMatrix:
        """Return the rows times factor (m,)."""
        return ExactMatrix(start=self.start, column=self.column, entries=self.entries * factor.take(self.row))

    def __neg__(self) -> ExactMatrix:
        return ExactMatrix(start=self.start, column=self.column, entries=-self.entries)

    def __add__(self, other: ExactMatrix) -> ExactMatrix:
        return matrix(np.concatenate([self.row, other.row]), np.concatenate([self.column, other.column]),
                      stack([self.entries, other.entries]), rows=self.rows)

    def __matmul__(self, other: ExactMatrix) -> ExactMatrix:
        if other.picks:
            return ExactMatrix(start=self.start, column=other.column[self.column], entries=self.entries)
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
    """Return a matrix from coordinates in any order; entries at the same place are added up exactly."""
    order = np.lexsort((column, row))
    row, column, entries = row[order], column[order], entries.take(order)
    first = np.flatnonzero(np.r_[True, (row[1:] != row[:-1]) | (column[1:] != column[:-1])][: len(row)])
    if len(first) < len(row):
        row, column, entries = row[first], column[first], group_sums(entries, first)
    return ordered(row, column, entries, rows=rows)


def ordered(row: Integers, column: Integers, entries: Exact, *, rows: int) -> ExactMatrix:
    """Return a matrix from coordinates that increase, first by rows."""
    return ExactMatrix(start=_starts(np.bincount(row, minlength=rows)), column=column, entries=entries)


def dense(values: Exact) -> ExactMatrix:
    """Return the entries of a two-dimensional array that are not 0 (or that are the sum of numbers that cancelled)."""
    row, column = np.nonzero(values.nonzero | (values.size > 0))
    return ordered(row, column, Exact(values=values.values[row, column], size=values.size[row, column]), rows=len(values.size))


def selection(columns: Integers) -> ExactMatrix:
    """Row i picks column columns[i]."""
    return ExactMatrix(start=np.arange(len(columns) + 1), column=columns, entries=exact(np.ones(len(columns))))


def as_column(values: Exact) -> ExactMatrix:
    """Return a vector (m,) as a matrix of one column."""
    return dense(values.reshape(-1, 1))


def as_vector(column: ExactMatrix) -> Exact:
    """Return a matrix of one column as a vector (m,)."""
    return column._dense(1).reshape(-1)


def stacked(parts: Sequence[tuple[int, ExactMatrix]], rows: int) -> ExactMatrix:
    """Return a matrix whose rows from the given numbers on, in increasing order, are those of the parts; the others are empty."""
    length = np.zeros(rows, dtype=np.int64)
    for first, part in parts:
        length[first : first + part.rows] = np.diff(part.start)
    return ExactMatrix(start=_starts(length), column=np.concatenate([part.column for _, part in parts]),
                       entries=stack([part.entries for _, part in parts]))


def _starts(length: Integers) -> Integers:
    return np.concatenate([[0], np.cumsum(length)]).astype(np.int64)


def _runs(start: Integers, length: Integers) -> Integers:
    """Return start[0], start[0] + 1, ... (length[0] of them), start[1], ..."""
    offset = np.cumsum(length) - length
    return np.repeat(start - offset, length) + np.arange(int(length.sum()))
