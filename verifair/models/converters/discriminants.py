"""Classifiers of scikit-learn whose scores are quadratic: GaussianNB and QuadraticDiscriminantAnalysis, as layers of squares.

The score of class c is  log prior - log det S_c / 2 - (x - m_c)^T S_c^-1 (x - m_c) / 2,  S_c diagonal for GaussianNB. Of the scores
less that of the first class the quadratic part is  u^T M u  with u = (x - centre) / scale and M symmetric, so it is a sum of
squares,  sum_k lambda_k (v_k . u)^2,  with M's eigenvalues and eigenvectors: as many as there are columns, and not as many as
there are pairs of them, which products would be. The units of u are about the columns' deviations, so that no column is lost beside
a larger one: powers of 2. The centre is next to the mean of the class in which a column varies least, so that large numbers do
not cancel there in float32 (a category that one class never has varies by 1e-9 in it); it is half a multiple of such units of that
class, so that folding it into weights rounds little or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from encoders.arrays import Array
from encoders.errors import ModelError
from verifair.models.objects import called, own_of_sklearn

NEGLIGIBLE = 1e-12
"""Eigenvalues no larger than this share of the largest (without pairs of columns, of the classes') are 0 up to rounding."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Quadratic:
    """Scores  squares (V u)^2 + line u + constant,  u = x - centre:  V (K, d), squares (m, K), line (m, d), constant (m,)."""

    centre: Array
    directions: Array
    squares: Array
    line: Array
    constant: Array


def quadratic(model: Any) -> bool:
    """Return True if an estimator is one of these."""
    return own_of_sklearn(model) and type(model).__name__ in ("GaussianNB", "QuadraticDiscriminantAnalysis")


def scores(model: Any) -> Quadratic:
    """Return the scores of all classes but the first, less that of the first: of two classes the log-odds of the second.

    Raises ModelError where they are not finite: a class without a chance, or a variance of 0.
    """
    means, prior, inverse, log_det, variance = _fitted(model)
    scale, unit = (np.exp2(np.rint(np.log2(np.where(array > 0, array, 1.0)) / 2)) for array in (
        prior @ (variance + (means - prior @ means) ** 2), variance.min(axis=0)))
    middle = means[variance.argmin(axis=0), np.arange(len(scale))]
    centre = (np.rint(2 * middle / unit) * unit / 2).astype(np.float32).astype(np.float64)
    centred = means - centre
    weighted = np.einsum("cij,cj->ci", inverse, centred)
    constant = np.log(prior) - (log_det + (centred * weighted).sum(axis=1)) / 2
    quadratics, lines = -inverse * np.outer(scale, scale) / 2, weighted
    quadratics, lines, constant = (array[1:] - array[0] for array in (quadratics, lines, constant))
    if not all(np.isfinite(array).all() for array in (quadratics, lines, constant)):
        raise ModelError(called(model), "has a class without a chance, or variance: its scores are no numbers; fit it again")
    diagonal = all(np.array_equal(matrix, np.diag(np.diag(matrix))) for matrix in quadratics)
    if diagonal:
        directions, squares = np.eye(len(scale)), np.diagonal(quadratics, axis1=1, axis2=2)
        largest = np.diagonal(inverse, axis1=1, axis2=2).max(axis=0) * np.square(scale) / 2
    else:
        values, vectors = np.linalg.eigh(quadratics)
        directions = np.concatenate(vectors.swapaxes(1, 2))
        squares = np.zeros((len(values), values.size))
        for c, eigenvalues in enumerate(values):
            squares[c, c * len(eigenvalues) : (c + 1) * len(eigenvalues)] = eigenvalues
        largest = np.abs(squares).max()
    nonzero = np.abs(squares).max(axis=0) > NEGLIGIBLE * largest
    return Quadratic(
        centre=centre, directions=directions[nonzero] / scale, squares=squares[:, nonzero], line=lines, constant=constant
    )


def _fitted(model: Any) -> tuple[Array, Array, Array, Array, Array]:
    """Return means (C, d), priors (C,), inverse covariances (C, d, d), logarithms of determinants (C,) and variances (C, d)."""
    if type(model).__name__ == "GaussianNB":
        variance = np.asarray(model.var_, dtype=np.float64)
        inverse = np.stack([np.diag(1 / row) for row in variance])
        return np.asarray(model.theta_), np.asarray(model.class_prior_), inverse, np.log(variance).sum(axis=1), variance
    pairs = [(np.asarray(axes), np.asarray(sizes)) for axes, sizes in zip(model.rotations_, model.scalings_, strict=True)]
    inverse = np.stack([axes / sizes @ axes.T for axes, sizes in pairs])
    variance = np.stack([np.square(axes) @ sizes for axes, sizes in pairs])
    log_det = np.array([np.log(sizes).sum() for _, sizes in pairs])
    return np.asarray(model.means_), np.asarray(model.priors_), (inverse + inverse.swapaxes(1, 2)) / 2, log_det, variance
