"""Coefficients of a mechanism that is linear, or linear in the logarithm: fitted with their covariance, or given by the user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from encoders.arrays import Array
from verifair.errors import SchemaError
from verifair.schema.feature import number
from verifair.schema.file import shown
from verifair.systems.cst.causal.design import Design, is_number, words


@dataclass(frozen=True, kw_only=True, eq=False)
class Coefficients:
    """Coefficients of a linear predictor over the terms of a design, the intercept first.

    estimates: (1 + P,).   covariance: (1 + P, 1 + P) of the estimates, and degrees of freedom of the residuals; None where the
    coefficients were given, not fitted (the covariance of given ones may be given as well).
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
        return np.asarray(self.estimates[0] + self.design.dot(parents, self.estimates[1:]))

    def written(self) -> str:
        """Such as '121.086 + 0.298901 AnnualSalary - 1182.823 Gender'."""
        parts = [written(self.estimates[0])] if self.estimates[0] or len(self.estimates) == 1 else []
        for name, weight in zip(self.design.terms, self.estimates[1:], strict=True):
            sign = "-" if weight < 0 else "+"
            size = f"{written(abs(weight))} {f'[{name}]' if ' = ' in name else name}"
            parts.append(f"{sign} {size}" if parts else size if weight >= 0 else f"-{size}")
        return " ".join(parts)


def written(value: float) -> str:
    """Return a coefficient as text: three decimals, or six significant digits where those are more precise."""
    return f"{value:.3f}" if 1 <= abs(value) < 1e12 else f"{value:.6g}"


def given(
    coefficients: Mapping[str, float | Mapping[str, float]], intercept: float, parents: pd.DataFrame, node: str
) -> Coefficients:
    """Coefficients as the user wrote them. Raises SchemaError for parents or words without a coefficient, and for unknown ones."""
    unknown = [name for name in coefficients if name not in parents.columns]
    missing = [name for name in parents.columns if name not in coefficients]
    if unknown or missing:
        raise SchemaError(
            f"node {node!r}: coefficients name {', '.join(coefficients) or 'nothing'}, but the parents are "
            f"{', '.join(parents.columns)}; "
            "give each parent a coefficient, and nothing else"
        )
    levels: dict[str, tuple[str, ...] | None] = {}
    weights: list[Any] = [intercept]
    for name in parents.columns:
        content = coefficients[name]
        distinct = None if is_number(parents[name]) else words(parents[name])[1]
        if isinstance(content, Mapping) != (distinct is not None):
            expected = "a table of words, such as { female = -1.5 }" if distinct else "one number"
            raise SchemaError(f"node {node!r}: coefficient of {name!r} is {content!r}, but its column needs {expected}")
        if not isinstance(content, Mapping) or distinct is None:
            levels[name] = None
            weights.append(content)
            continue
        reference = [word for word in distinct if word not in content]
        if len(reference) > 1:
            raise SchemaError(
                f"node {node!r}: coefficients of {name!r} leave out {', '.join(reference)}; only one word, the reference, may be "
                "left out"
            )
        base = reference[0] if reference else "(reference)"
        levels[name] = (base, *content)
        weights += list(content.values())
    for value in weights:
        if isinstance(value, bool) or not isinstance(value, Real) or not np.isfinite(number(value)):
            raise SchemaError(f"node {node!r}: coefficient or intercept {shown(value)}: expected a finite number")
    return Coefficients(design=Design(levels=levels), estimates=np.array(weights, dtype=float), covariance=None, degrees=None)


def with_errors(coefficients: Coefficients, errors: Mapping[str, float | Mapping[str, float]], node: str) -> Coefficients:
    """Return given coefficients with given standard errors (parent -> error or {word: error}), taken as independent.

    Raises SchemaError for terms without an error, unknown ones, and errors that are negative or not finite.
    """
    sizes: dict[str, Any] = {}
    for name, content in errors.items():
        sizes |= {f"{name} = {word}": error for word, error in content.items()} if isinstance(content, Mapping) else {name: content}
    terms = coefficients.design.terms
    if sorted(sizes) != sorted(terms):
        raise SchemaError(f"node {node!r}: errors are of {', '.join(sizes) or 'nothing'}, the coefficients of {', '.join(terms)}")
    faulty = [term for term in terms if not (isinstance(sizes[term], Real) and 0 <= number(sizes[term]) < np.inf)]
    if faulty:
        raise SchemaError(f"node {node!r}: error of {faulty[0]!r} is {sizes[faulty[0]]!r}, expected 0 or more; 0 takes it as exact")
    return replace(coefficients, covariance=np.diag([0.0, *(float(sizes[term]) ** 2 for term in terms)]))
