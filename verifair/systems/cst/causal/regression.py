"""Least squares and Poisson regression with the covariance of their coefficients, stable for columns of very different sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.linalg import qr, solve_triangular
from sklearn.linear_model import PoissonRegressor

from encoders.arrays import Array
from verifair.errors import DataError
from verifair.systems.cst.causal.coefficients import Coefficients
from verifair.systems.cst.causal.design import LARGEST, Design
from verifair.systems.groups import blocks

SAME = 1e-10
"""A column whose part outside the span of the others is below this share of its own size is their combination."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LeastSquares:
    """estimates: (1 + P,) the intercept, then a coefficient for each column.   covariance: (1 + P, 1 + P) of the estimates.

    degrees: N - 1 - P.   residual_sd: root of the residual sum of squares over degrees.
    """

    estimates: Array
    covariance: Array
    degrees: int
    residual_sd: float


def scaled(design: Design, parents: pd.DataFrame, node: str) -> tuple[Callable[[], Iterator[Array]], Array, Array]:
    """Columns of the design (N, P) with mean 0 and length 1, in blocks of rows that can be asked for again; their means (P,) and
    lengths (P,).

    Raises DataError for a constant column, whose effect no data can show, and for one whose squares overflow or vanish.
    """

    def matrices() -> Iterator[Array]:
        return (design.matrix(parents.iloc[part]) for part in blocks(len(parents)))

    rows, size, total = len(parents), np.zeros(len(design.terms)), np.zeros(len(design.terms))
    with np.errstate(over="ignore", invalid="ignore"):  # sums that overflow are of columns that are refused below
        for x in matrices():
            size, total = np.maximum(size, np.abs(x).max(axis=0, initial=0.0)), total + x.sum(axis=0)
    _check_squares(size, size, design.terms, node)
    first = total / rows
    bias = sum((x - first).sum(axis=0) for x in matrices()) / rows  # by rounding: matters for a mean of 1e9 beside a spread of 1e-6
    power, max_deviation = np.zeros(len(first)), np.zeros(len(first))
    for x in matrices():
        z = x - first - bias
        power += np.einsum("ij,ij->j", z, z)
        max_deviation = np.maximum(max_deviation, np.abs(z).max(axis=0, initial=0.0))
    _check_squares(size, np.where(max_deviation > np.finfo(float).eps * size, max_deviation, 0.0), design.terms, node)
    length = np.sqrt(power)
    constant = np.flatnonzero(length <= np.finfo(float).eps * size)
    if len(constant):
        raise DataError(
            f"node {node!r}: parent {design.terms[constant[0]]!r} has the same value in every row, so its effect cannot be fitted; "
            "drop it from the parents, use rows of all groups, or give its coefficient"
        )
    return (lambda: ((x - first - bias) / length for x in matrices())), first + bias, length


def _extent(y: Array) -> tuple[Array, Array]:
    """Return the size and the spread (1,) of a column (N,)."""
    low, high = float(y.min()), float(y.max())  # Python floats: their difference may be infinite without a warning
    return np.array([max(-low, high)]), np.array([high - low])


def _check_squares(size: Array, spread: Array, names: tuple[str, ...], node: str) -> None:
    """Raise DataError for columns (P,) whose squares overflow or vanish.   size, spread: of their numbers and differences."""
    faulty = np.flatnonzero((size > LARGEST) | ((spread > 0) & (spread < 1 / LARGEST)))
    if len(faulty):
        raise DataError(
            f"node {node!r}: column {names[faulty[0]]!r} has numbers up to {size[faulty[0]]:g}; their squares, or those of their "
            "differences, are none in floats: use another unit"
        )


def least_squares(design: Design, parents: pd.DataFrame, y: Array, node: str) -> LeastSquares:
    """y (N,) regressed on the design of the parents and an intercept.

    Centred columns of length 1 go through a QR of [x, y] in blocks of rows: neither x'x nor Q is formed.
    Raises DataError for too few rows, and for columns that are constant or combinations of each other.
    """
    names = design.terms
    rows, columns = len(y), len(names)
    if rows < columns + 2:
        raise DataError(
            f"node {node!r}: {rows} rows are too few to fit {columns + 1} coefficients and their errors; {columns + 2} are the "
            "least: add rows, drop parents, or give the coefficients"
        )
    _check_squares(*_extent(y), (node,), node)
    z, mean, length = scaled(design, parents, node)
    centre = y.mean()
    r = np.empty((0, columns + 1))
    for x, part in zip(z(), blocks(rows), strict=True):
        r = np.asarray(np.linalg.qr(np.vstack((r, np.column_stack((x, y[part] - centre)))), mode="r"))
    check_rank(r[:columns, :columns], names, node)
    slope = solve_triangular(r[:columns, :columns], r[:columns, columns])
    inverse = solve_triangular(r[:columns, :columns], np.eye(columns)) / length[:, None]
    degrees = rows - columns - 1
    variance = float(r[columns, columns] ** 2) / degrees
    weights = slope / length
    estimates = np.concatenate(([centre - mean @ weights], weights))
    return LeastSquares(
        estimates=estimates,
        covariance=with_intercept(inverse @ inverse.T, mean, 1 / rows) * variance,
        degrees=degrees,
        residual_sd=float(np.sqrt(variance)),
    )


def check_rank(r: Array, names: tuple[str, ...], node: str) -> None:
    """Raise DataError naming the columns that depend on each other; r (P, P) is the triangle of columns of length 1."""
    if not len(r):
        return
    triangle, order = qr(r, mode="r", pivoting=True)
    dependent = np.flatnonzero(np.abs(np.diag(triangle)) <= SAME)
    if not len(dependent):
        return
    rank = int(dependent[0])
    parts = solve_triangular(triangle[:rank, :rank], triangle[:rank, rank])
    others = [names[order[i]] for i in np.flatnonzero(np.abs(parts) > np.sqrt(SAME))]
    raise DataError(
        f"node {node!r}: parent {names[order[rank]]!r} is a combination of {', '.join(map(repr, others))} in these rows, so their "
        "effects cannot be separated; drop one of them from the parents, or give the coefficients"
    )


def with_intercept(slopes: Array, mean: Array, first: float) -> Array:
    """(1 + P, 1 + P) covariance of intercept and slopes, from that of the slopes (P, P) and of the centred intercept."""
    covariance = np.empty((len(mean) + 1, len(mean) + 1))
    covariance[1:, 1:] = slopes
    covariance[0, 1:] = covariance[1:, 0] = -slopes @ mean
    covariance[0, 0] = first + mean @ slopes @ mean
    return covariance


def poisson(design: Design, parents: pd.DataFrame, y: Array, node: str) -> Coefficients:
    """Fit a Poisson regression with log link, by scikit-learn on centred columns of length 1, without penalty.

    y is fitted in units of its mean, which moves the intercept alone: on numbers like incomes the solver would not converge.
    """
    if (y < 0).any() or not (y > 0).any():
        which = "some rows are negative" if (y < 0).any() else "all rows are 0"
        raise DataError(f'node {node!r}: {which}; a log-linear mechanism needs x > 0: take mechanism = "linear"')
    names, rows = design.terms, len(y)
    if rows < len(names) + 2:
        raise DataError(
            f"node {node!r}: {rows} rows are too few to fit {len(names) + 1} coefficients and their errors; add rows, drop "
            "parents, or give the coefficients"
        )
    _check_squares(*_extent(y), (node,), node)
    parts, mean, length = scaled(design, parents, node)
    z = np.concatenate(list(parts()))
    check_rank(np.asarray(np.linalg.qr(z, mode="r")), names, node)
    z *= np.sqrt(rows)  # columns of variance 1, as the solver's stopping rule expects
    length = length / np.sqrt(rows)
    fitted = PoissonRegressor(alpha=0.0, solver="newton-cholesky", tol=1e-9, max_iter=200).fit(z, y / y.mean())
    rate = fitted.predict(z) * y.mean()
    degrees = rows - len(names) - 1
    dispersion = float(((y - rate) ** 2 / rate).sum()) / degrees
    augmented = np.column_stack((np.ones(rows), z)) * np.sqrt(rate)[:, None]
    inverse = np.linalg.inv(np.asarray(np.linalg.qr(augmented, mode="r")))
    move = np.eye(len(names) + 1)  # from intercept and slopes of the scaled columns to those of the columns as they are
    move[1:, 1:] = np.diag(1 / length)
    move[0, 1:] = -mean / length
    inverse = move @ inverse
    estimates = move @ np.concatenate(([fitted.intercept_ + np.log(y.mean())], fitted.coef_))
    return Coefficients(design=design, estimates=estimates, covariance=inverse @ inverse.T * dispersion, degrees=degrees)
