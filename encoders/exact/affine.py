"""Affine arithmetic without rounding: float64 where float64 is exact, rationals (python-flint) from there on.

Folding constants of a graph into one weight must not round more than once. An `Exact` array stays float64 as long as
every operation on it is error-free, which is *checked* (TwoSum: Knuth; TwoProduct: Dekker 1971), and turns into
rationals the moment one is not. `rounded` brings the end result back to float64 with one correct rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import flint
import numpy as np
import numpy.typing as npt

from encoders.network import Array

Objects = npt.NDArray[np.object_]
_SPLIT = float(2**27 + 1)
_LARGE, _SMALL = 2.0**480, 2.0**-480    # factors within [2^-480, 2^480] keep TwoProduct clear of over- and underflow


@dataclass(frozen=True, kw_only=True, eq=False)
class Exact:
    """An array of exactly known numbers.

    values: float64, or object (flint.fmpq), of any shape.
    size: float64, same shape: the sum of |each contribution| before any of them cancelled. A float32 runtime that
    computes the same numbers in some order errs by at most (number of operations) * 2^-24 * size; the import check
    uses it.
    """

    values: npt.NDArray[Any]
    size: Array

    @property
    def is_float(self) -> bool:
        return bool(self.values.dtype != object)

    @property
    def nonzero(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.values != 0, dtype=bool)

    def as_rational(self) -> Objects:
        """The numbers as an object array of flint.fmpq."""
        return _rational(self.values)

    def take(self, rows: npt.NDArray[np.int64]) -> Exact:
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
        """Elementwise product with broadcasting."""
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            size = self.size * other.size
        if self.is_float and other.is_float:
            product, exact = _two_product(self.values, other.values)
            if exact:
                return Exact(values=product, size=size)
        return _settled(_rational(self.values) * _rational(other.values), size)

    def __matmul__(self, other: Exact) -> Exact:
        """Matrix product (m, k) @ (k, n), or (m, k) @ (k,).

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
        """The nearest float64 numbers (infinite where out of range), and whether they are the very same numbers."""
        if self.is_float:
            return self.values, True
        rounded, exact = _to_float(self.values)
        return rounded, exact


def exact(values: npt.ArrayLike) -> Exact:
    """Exact numbers from float64 (or narrower) ones, or from an object array of flint.fmpq."""
    array = np.asarray(values)
    if array.dtype == object:
        return _settled(array, np.abs(_to_float(array)[0]))
    array = array.astype(np.float64)
    return Exact(values=array, size=np.abs(array))


def reciprocal(values: Array) -> Exact:
    """1 / values, exactly."""
    return exact(np.array([1 / _fmpq(v) for v in values.ravel().tolist()], dtype=object).reshape(values.shape))


def reciprocal_root(values: Array, *, plus: float) -> Exact:
    """1 / sqrt(values + plus), exact where that is rational with a square, else to a relative error below 2^-120."""
    roots = []
    for v in values.ravel().tolist():
        radicand = Fraction(v) + Fraction(plus)
        p, q = radicand.numerator, radicand.denominator
        shift = 0 if math.isqrt(p * q) ** 2 == p * q else max(0, 128 - (p * q).bit_length() // 2)
        root = math.isqrt(p * q << 2 * shift)      # sqrt(p / q) = sqrt(p q) / q
        roots.append(flint.fmpq(q << shift, root))
    return exact(np.array(roots, dtype=object).reshape(values.shape))


def group_sums(numbers: Exact, first: npt.NDArray[np.int64]) -> Exact:
    """The sums (g,) of the groups of numbers (e,) that begin at the places `first` and reach to the next."""
    count = np.diff(np.r_[first, len(numbers.values)])
    if count.max(initial=0) > 4:
        size = np.add.reduceat(numbers.size, first)
        return _settled(np.add.reduceat(_rational(numbers.values), first), size)
    total = numbers.take(first)
    for k in range(1, int(count.max(initial=0))):
        more = np.flatnonzero(count > k)
        sums = total.take(more) + numbers.take(first[more] + k)
        if total.is_float and sums.is_float:
            values = total.values.copy()
            values[more] = sums.values
        else:
            values = _rational(total.values).copy()
            values[more] = _rational(sums.values)
        size = total.size.copy()
        size[more] = sums.size
        total = Exact(values=values, size=size)
    return total


def stack(parts: list[Exact]) -> Exact:
    """Rows of all parts, one after the other."""
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
    """The nearest float64 numbers, and whether they are the same; with `only_same`, none unless they are."""
    floats, same = [], True
    for v in values.ravel():
        p, q = int(v.p), int(v.q)
        try:
            nearest = p / q                        # division of Python integers is correctly rounded
        except OverflowError:
            nearest = math.inf if p > 0 else -math.inf
        same = same and math.isfinite(nearest) and nearest.as_integer_ratio() == (p, q)
        if only_same and not same:
            return np.empty(0), False
        floats.append(nearest)
    return np.array(floats, dtype=np.float64).reshape(values.shape), same


def _settled(values: npt.NDArray[Any], size: Array) -> Exact:
    """Back to float64 when that loses nothing."""
    floats, same = _to_float(values, only_same=True)
    return Exact(values=floats if same else values, size=size)


def _two_product(a: Array, b: Array) -> tuple[Array, bool]:
    """a * b, and whether no entry of it was rounded (a sufficient test: False may be over-cautious)."""
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
