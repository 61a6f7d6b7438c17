"""Poisson regression with log link, with the covariance of its coefficients."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.linear_model import PoissonRegressor

from encoders.network import Array
from verifair.errors import DataError
from verifair.systems.cst.causal.coefficients import Coefficients
from verifair.systems.cst.causal.design import Design
from verifair.systems.cst.causal.least_squares import check_rank, scaled


def poisson(design: Design, parents: pd.DataFrame, y: Array, node: str) -> Coefficients:
    """Poisson regression by scikit-learn on centred columns of length 1, without penalty."""
    if (y < 0).any():
        raise DataError(f'node {node!r}: some rows are negative; a log-linear mechanism needs x > 0: take mechanism = "linear"')
    names, rows = design.terms, len(y)
    if rows < len(names) + 2:
        raise DataError(
            f"node {node!r}: {rows} rows are too few to fit {len(names) + 1} coefficients and their errors; add rows, drop "
            "parents, or give the coefficients"
        )
    z, mean, length = scaled(design.matrix(parents), names, node)
    check_rank(np.asarray(np.linalg.qr(z, mode="r")), names, node)
    z *= np.sqrt(rows)  # columns of variance 1, as the solver's stopping rule expects
    length = length / np.sqrt(rows)
    fitted = PoissonRegressor(alpha=0.0, solver="newton-cholesky", tol=1e-9, max_iter=200).fit(z, y)
    rate = fitted.predict(z)
    degrees = rows - len(names) - 1
    dispersion = float(((y - rate) ** 2 / rate).sum()) / degrees
    augmented = np.column_stack((np.ones(rows), z)) * np.sqrt(rate)[:, None]
    inverse = np.linalg.inv(np.asarray(np.linalg.qr(augmented, mode="r")))
    move = np.eye(len(names) + 1)  # from intercept and slopes of the scaled columns to those of the columns as they are
    move[1:, 1:] = np.diag(1 / length)
    move[0, 1:] = -mean / length
    inverse = move @ inverse
    estimates = move @ np.concatenate(([fitted.intercept_], fitted.coef_))
    return Coefficients(design=design, estimates=estimates, covariance=inverse @ inverse.T * dispersion, degrees=degrees)
