"""How a node comes about from its parents: f(parents) and a noise that is the row's own.

A *spec* (Linear, LogLinear, Additive, `verifair.situation.categorical.Categorical`) says which form it has; `fit` makes it a
*mechanism*,
which finds the noise of a row (abduction) and what the node would be with that noise under other parents (prediction).
Reference: CST, section 4 (additive noise) and appendix (worked example); Pearl et al. 2016.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.linear_model import PoissonRegressor

from verifair.errors import DataError, SchemaError
from verifair.situation.design import Array, Design, numbers, shown, words
from verifair.situation.draws import Draws
from verifair.situation.least_squares import check_rank, least_squares, scaled


class Mechanism(ABC):
    """A fitted mechanism. parents: the parents' columns, N rows, in the node's order."""

    @abstractmethod
    def noise(self, parents: pd.DataFrame, child: pd.Series, draws: Draws) -> Array:
        """Abduction: (N,) noise, or (N, C) for a categorical node; draws: for noise that the row leaves undetermined."""

    @abstractmethod
    def value(self, parents: pd.DataFrame, noise: Array) -> Any:
        """Prediction: (N,) values of the node, before clipping and rounding."""

    @abstractmethod
    def equation(self, node: str) -> str:
        """The mechanism as a line to read."""


class Spec(Protocol):
    """A mechanism not yet fitted."""

    def fit(self, parents: pd.DataFrame, child: pd.Series, *, seed: int) -> Mechanism:
        """Raises DataError, SchemaError for columns it cannot be fitted to."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Coefficients:
    """Coefficients of a linear predictor over the terms of a design, the intercept first.

    estimates: (1 + P,).   covariance: (1 + P, 1 + P) of the estimates, and degrees of freedom of the residuals; None where the
    coefficients were given, not fitted.
    """

    design: Design
    estimates: Array
    covariance: Array | None
    degrees: int | None

    @property
    def names(self) -> tuple[str, ...]:
        return ("intercept", *self.design.terms)

    @property
    def standard_errors(self) -> Array | None:
        """(1 + P,)."""
        return None if self.covariance is None else np.sqrt(np.diag(self.covariance))

    def predictor(self, parents: pd.DataFrame) -> Array:
        """(N,) intercept plus the weighted terms."""
        return self.estimates[0] + self.design.dot(parents, self.estimates[1:])

    def written(self) -> str:
        """Such as '121.086 + 0.298901 AnnualSalary - 1182.823 Gender'."""
        found = written(self.estimates[0])
        for name, weight in zip(self.design.terms, self.estimates[1:], strict=True):
            found += f" {'-' if weight < 0 else '+'} {written(abs(weight))} {f'[{name}]' if ' = ' in name else name}"
        return found


def written(value: float) -> str:
    """A coefficient to read: three decimals, or six significant digits where those say more."""
    return f"{value:.3f}" if 1 <= abs(value) < 1e12 else f"{value:.6g}"


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearMechanism(Mechanism):
    """child = intercept + coefficients * terms + U."""

    coefficients: Coefficients
    residual_sd: float | None

    def noise(self, parents: pd.DataFrame, child: pd.Series, draws: Draws) -> Array:
        return numbers(child, "a linear mechanism") - self.coefficients.predictor(parents)

    def value(self, parents: pd.DataFrame, noise: Array) -> Array:
        return self.coefficients.predictor(parents) + noise

    def equation(self, node: str) -> str:
        return f"{node} = {self.coefficients.written()} + U"


@dataclass(frozen=True, kw_only=True, eq=False)
class LogLinearMechanism(Mechanism):
    """child = exp(intercept + coefficients * terms + U)."""

    coefficients: Coefficients

    def noise(self, parents: pd.DataFrame, child: pd.Series, draws: Draws) -> Array:
        values = numbers(child, "a log-linear mechanism")
        bad = np.flatnonzero(values <= 0)
        if len(bad):
            raise DataError(
                f"node {child.name!r}: {len(bad)} of {len(values)} rows hold 0 or less, such as row {shown(child.index[bad[0]])} with "
                f"{shown(child.iloc[bad[0]])}; the noise of a log-linear mechanism, log x - predictor, needs x > 0: leave such rows "
                f"out, or "
                'take mechanism = "linear"'
            )
        return np.asarray(np.log(values) - self.coefficients.predictor(parents))

    def value(self, parents: pd.DataFrame, noise: Array) -> Array:
        return np.asarray(np.exp(self.coefficients.predictor(parents) + noise))

    def equation(self, node: str) -> str:
        return f"{node} = exp({self.coefficients.written()} + U)"


@dataclass(frozen=True, kw_only=True, eq=False)
class AdditiveMechanism(Mechanism):
    """child = function(parents) + U.   described: the function, to read."""

    function: Callable[[pd.DataFrame], Any]
    described: str
    parents: tuple[str, ...]

    def noise(self, parents: pd.DataFrame, child: pd.Series, draws: Draws) -> Array:
        return numbers(child, "an additive mechanism") - self._function(parents)

    def value(self, parents: pd.DataFrame, noise: Array) -> Array:
        return self._function(parents) + noise

    def equation(self, node: str) -> str:
        return f"{node} = {self.described}({', '.join(self.parents)}) + U"

    def _function(self, parents: pd.DataFrame) -> Array:
        where = f"{self.described} of {', '.join(self.parents)}"
        try:
            found = np.asarray(self.function(parents), dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"{where}: {error}; it takes a DataFrame and gives a number a row") from error
        if found.shape != (len(parents),) or not np.isfinite(found).all():
            raise DataError(
                f"{self.described} of {', '.join(self.parents)}: gave shape {found.shape} for {len(parents)} rows"
                f"{'' if np.isfinite(found).all() else ', not all of them finite'}; it must give one finite number a row"
            )
        return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Linear:
    """A linear mechanism, fitted by ordinary least squares unless coefficients are given.

    coefficients: parent -> number; for a parent of words: parent -> {word: number}, where one word, the reference, may be left out.
    intercept: of given coefficients; it cancels in counterfactuals.   reference: parent -> word the others are compared with, for
    a fit.
    """

    coefficients: Mapping[str, float | Mapping[str, float]] | None = None
    intercept: float = 0.0
    reference: Mapping[str, str] = field(default_factory=dict)

    def fit(self, parents: pd.DataFrame, child: pd.Series, *, seed: int) -> LinearMechanism:
        if self.coefficients is not None:
            found = given(self.coefficients, self.intercept, parents, str(child.name))
            return LinearMechanism(coefficients=found, residual_sd=None)
        design = Design.of(parents, self.reference)
        y = numbers(child, "a linear mechanism")
        fit = least_squares(design.matrix(parents), y, design.terms, str(child.name))
        return LinearMechanism(
            coefficients=Coefficients(design=design, estimates=fit.estimates, covariance=fit.covariance, degrees=fit.degrees),
            residual_sd=fit.residual_sd,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class LogLinear:
    """Poisson regression with log link; the noise stands in the exponent: child = exp(predictor + U), U = log x - predictor.

    coefficients, intercept, reference: as for `Linear`, of the logarithm.   The covariance is scaled by the dispersion (Pearson's
    chi-square over its degrees of freedom), so that it holds for counts which vary more or less than Poisson's.
    Reference: Kusner et al. 2017; CST, section 4.2. The authors' code fits ordinary least squares there instead: that is `Linear`.
    """

    coefficients: Mapping[str, float | Mapping[str, float]] | None = None
    intercept: float = 0.0
    reference: Mapping[str, str] = field(default_factory=dict)

    def fit(self, parents: pd.DataFrame, child: pd.Series, *, seed: int) -> LogLinearMechanism:
        name = str(child.name)
        if self.coefficients is not None:
            return LogLinearMechanism(coefficients=given(self.coefficients, self.intercept, parents, name))
        design = Design.of(parents, self.reference)
        return LogLinearMechanism(coefficients=_poisson(design, parents, numbers(child, "a log-linear mechanism"), name))


@dataclass(frozen=True, kw_only=True, eq=False)
class Additive:
    """Additive noise around any function.

    function: a scikit-learn regressor, which is cloned and fitted to the design (words as indicators), or a callable that takes the
    parents' DataFrame (N, P), words as they are, and gives (N,) numbers: it is taken as it is.   described: its name in equations.
    """

    function: Any
    described: str | None = None

    def fit(self, parents: pd.DataFrame, child: pd.Series, *, seed: int) -> AdditiveMechanism:
        names = tuple(parents.columns)
        if not is_estimator(self.function):
            if not callable(self.function):
                raise SchemaError(
                    f"node {child.name!r}: function is {self.function!r}; pass a scikit-learn regressor or a callable of a "
                    f"DataFrame"
                )
            described = self.described or getattr(self.function, "__name__", "f")
            return AdditiveMechanism(function=self.function, described=described, parents=names)
        design = Design.of(parents)
        y = numbers(child, "an additive mechanism")
        fitted = seeded(self.function, seed).fit(design.matrix(parents), y)
        return AdditiveMechanism(
            function=lambda frame: fitted.predict(design.matrix(frame)),
            described=self.described or type(self.function).__name__,
            parents=names,
        )


def is_estimator(function: Any) -> bool:
    """Whether it is a scikit-learn estimator, by its methods."""
    return hasattr(function, "fit") and hasattr(function, "predict") and not isinstance(function, type)


def seeded(estimator: Any, seed: int) -> Any:
    """A clone, with `seed` wherever the estimator or a step of it has a random_state left open."""
    found = clone(estimator)
    states = {key: seed for key, value in found.get_params().items() if key.split("__")[-1] == "random_state" and value is None}
    return found.set_params(**states) if states else found


def given(
    coefficients: Mapping[str, float | Mapping[str, float]], intercept: float, parents: pd.DataFrame, node: str
) -> Coefficients:
    """Coefficients as the user wrote them. Raises SchemaError for parents or words without a coefficient, and for unknown ones."""
    unknown = [name for name in coefficients if name not in parents.columns]
    lacking = [name for name in parents.columns if name not in coefficients]
    if unknown or lacking:
        raise SchemaError(
            f"node {node!r}: coefficients name {', '.join(coefficients) or 'nothing'}, but the parents are "
            f"{', '.join(parents.columns)}; "
            "give each parent a coefficient, and nothing else"
        )
    levels: dict[str, tuple[str, ...] | None] = {}
    weights: list[float] = [float(intercept)]
    for name in parents.columns:
        content = coefficients[name]
        found = words(parents[name])[1] if Design.of(parents[[name]]).levels[name] else None
        if isinstance(content, Mapping) != (found is not None):
            expected = "a table of words, such as { female = -1.5 }" if found else "one number"
            raise SchemaError(f"node {node!r}: coefficient of {name!r} is {content!r}, but its column needs {expected}")
        if not isinstance(content, Mapping) or found is None:
            levels[name] = None
            weights.append(float(content))  # type: ignore[arg-type]
            continue
        reference = [word for word in found if word not in content]
        if len(reference) > 1:
            raise SchemaError(
                f"node {node!r}: coefficients of {name!r} leave out {', '.join(reference)}; only one word, the reference, may be "
                f"left out"
            )
        first = reference[0] if reference else "(reference)"
        levels[name] = (first, *content)
        weights += [float(value) for value in content.values()]
    return Coefficients(design=Design(levels=levels), estimates=np.array(weights), covariance=None, degrees=None)


def _poisson(design: Design, parents: pd.DataFrame, y: Array, node: str) -> Coefficients:
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
    check_rank(np.linalg.qr(z, mode="r"), names, node)
    z *= np.sqrt(rows)  # columns of variance 1, as the solver's stopping rule expects
    length = length / np.sqrt(rows)
    fitted = PoissonRegressor(alpha=0.0, solver="newton-cholesky", tol=1e-9, max_iter=200).fit(z, y)
    rate = fitted.predict(z)
    degrees = rows - len(names) - 1
    dispersion = float(((y - rate) ** 2 / rate).sum()) / degrees
    augmented = np.column_stack((np.ones(rows), z)) * np.sqrt(rate)[:, None]
    r = np.linalg.qr(augmented, mode="r")
    inverse = np.linalg.inv(r)
    move = np.eye(len(names) + 1)  # from intercept and slopes of the scaled columns to those of the columns as they are
    move[1:, 1:] = np.diag(1 / length)
    move[0, 1:] = -mean / length
    inverse = move @ inverse
    estimates = move @ np.concatenate(([fitted.intercept_], fitted.coef_))
    return Coefficients(design=design, estimates=estimates, covariance=inverse @ inverse.T * dispersion, degrees=degrees)
