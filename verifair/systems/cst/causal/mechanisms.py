"""Mechanisms: how a node's value follows from its parents, f(parents), and the row's own noise.

A *spec* (Linear, LogLinear, Additive, `categorical.Categorical`) names the form of the function. Its `fit` returns a *mechanism*,
which finds the noise of a row (abduction) and the node's value with that noise under other parents (prediction).
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

from encoders.arrays import Array
from verifair.errors import DataError, SchemaError
from verifair.systems.cst.causal.coefficients import Coefficients, given, with_errors
from verifair.systems.cst.causal.design import Design, numbers, shown
from verifair.systems.cst.causal.draws import Draws
from verifair.systems.cst.causal.regression import least_squares, poisson


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
        """Return the mechanism's equation as one line of text."""


class Spec(Protocol):
    """A mechanism not yet fitted."""

    def fit(self, parents: pd.DataFrame, child: pd.Series, *, seed: int) -> Mechanism:
        """Raises DataError, SchemaError for columns it cannot be fitted to."""


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
        return np.asarray(np.log(above_zero(child)) - self.coefficients.predictor(parents))

    def value(self, parents: pd.DataFrame, noise: Array) -> Array:
        return np.asarray(np.exp(self.coefficients.predictor(parents) + noise))

    def equation(self, node: str) -> str:
        return f"{node} = exp({self.coefficients.written()} + U)"


def above_zero(child: pd.Series) -> Array:
    """(N,) values of a log-linear node. Raises DataError for 0 or less."""
    values = numbers(child, "a log-linear mechanism")
    bad = np.flatnonzero(values <= 0)
    if len(bad):
        raise DataError(
            f"node {child.name!r}: {len(bad)} of {len(values)} rows hold 0 or less, such as row {shown(child.index[bad[0]])} "
            f"with {shown(child.iloc[bad[0]])}; the noise of a log-linear mechanism, log x - predictor, needs x > 0: leave "
            'such rows out, or take mechanism = "linear"'
        )
    return values


@dataclass(frozen=True, kw_only=True, eq=False)
class AdditiveMechanism(Mechanism):
    """child = function(parents) + U.   described: the function's name in the equation."""

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
            values = np.asarray(self.function(parents), dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"{where}: {error}; it takes a DataFrame and gives a number a row") from error
        if values.shape != (len(parents),) or not np.isfinite(values).all():
            raise DataError(
                f"{self.described} of {', '.join(self.parents)}: gave shape {values.shape} for {len(parents)} rows"
                f"{'' if np.isfinite(values).all() else ', not all of them finite'}; it must give one finite number a row"
            )
        return values


@dataclass(frozen=True, kw_only=True, eq=False)
class Linear:
    """A linear mechanism, fitted by ordinary least squares unless coefficients are given.

    coefficients: parent -> number; for a parent of words: parent -> {word: number}, where one word, the reference, may be left out.
    intercept: of given coefficients; it cancels in counterfactuals.   reference: parent -> word the others are compared with, for
    a fit.   errors: standard errors of given coefficients, in the same form; None where they are not known.
    """

    coefficients: Mapping[str, float | Mapping[str, float]] | None = None
    intercept: float = 0.0
    reference: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, float | Mapping[str, float]] | None = None

    def fit(self, parents: pd.DataFrame, child: pd.Series, *, seed: int) -> LinearMechanism:
        if self.coefficients is not None:
            coefficients = given(self.coefficients, self.intercept, parents, str(child.name))
            if self.errors is not None:
                coefficients = with_errors(coefficients, self.errors, str(child.name))
            return LinearMechanism(coefficients=coefficients, residual_sd=None)
        design = Design.of(parents, node=str(child.name), reference=self.reference)
        y = numbers(child, "a linear mechanism")
        fit = least_squares(design, parents, y, str(child.name))
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
        design = Design.of(parents, node=name, reference=self.reference)
        return LogLinearMechanism(coefficients=poisson(design, parents, numbers(child, "a log-linear mechanism"), name))


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
                    "DataFrame"
                )
            described = self.described or str(getattr(self.function, "__name__", "f"))
            return AdditiveMechanism(function=self.function, described=described, parents=names)
        design = Design.of(parents, node=str(child.name))
        y = numbers(child, "an additive mechanism")
        fitted = seeded(self.function, seed).fit(design.matrix(parents), y)
        return AdditiveMechanism(
            function=_Regression(estimator=fitted, design=design),
            described=self.described or type(self.function).__name__,
            parents=names,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Regression:
    """A fitted regressor as a function of the parents' columns; unlike a closure, it can be sent to another process."""

    estimator: Any
    design: Design

    def __call__(self, parents: pd.DataFrame) -> Any:
        return self.estimator.predict(self.design.matrix(parents))


def is_estimator(function: Any) -> bool:
    """Return True if it has the methods of a scikit-learn estimator."""
    return hasattr(function, "fit") and hasattr(function, "predict") and not isinstance(function, type)


def seeded(estimator: Any, seed: int) -> Any:
    """Return a clone with `seed` wherever the random_state of the estimator, or of one of its steps, is None."""
    copy = clone(estimator)
    states = {key: seed for key, value in copy.get_params().items() if key.split("__")[-1] == "random_state" and value is None}
    return copy.set_params(**states) if states else copy
