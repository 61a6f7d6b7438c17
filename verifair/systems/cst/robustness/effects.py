"""Effects of an intervention on the numbers below it in a causal model, as a function of the coefficients.

With additive noise the intercepts and the noise cancel: node by node, the counterfactual is the row's value plus the changes
caused by the node's changed parents,

    x'_n = R_n( x_n + sum over parents  theta (h(x'_parent) - h(x_parent)) )                     (R_n: rounding, then clipping)

and for a log-linear node the same of its logarithm. Each path uses every coefficient theta at most once, so without R_n and
logarithms the change of every node is multilinear in the coefficients. Categories on a path are fixed: a counterfactual's
categories are given (drawn or enumerated, see `causal.categorical`), and the coefficients must not change the numbers they depend
on. Reference: CST (Alvarez and Ruggieri 2023), section 4, for the model; total effects by path products are Wright 1921.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress, product
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import norm

from encoders.arrays import Array
from verifair.errors import QueryError
from verifair.schema.feature import text
from verifair.systems.cst.causal.categorical import CategoricalMechanism
from verifair.systems.cst.causal.design import Design
from verifair.systems.cst.causal.mechanisms import LinearMechanism, LogLinearMechanism, above_zero
from verifair.systems.cst.causal.model import CausalModel

Errors = Mapping[str, Mapping[str, float] | float]
"""Standard errors of given coefficients: node -> {parent, or "parent = word" -> error}, or one number for all of the node's."""

MAX_COEFFICIENTS = 16
"""Whose boxes' corners are all looked at: 65,536."""
PAD = 1e-9
"""Enclosures are wider by this share of what was added up: what rounding in floats may do, and far more."""


@dataclass(frozen=True, kw_only=True)
class Coefficient:
    """A coefficient: that of `parent` (of its `word`, against the reference word) in the equation of `node`.

    error: its standard error; 0 if it is taken as exact.
    """

    node: str
    parent: str
    word: str | None
    estimate: float
    error: float

    @property
    def name(self) -> str:
        """Such as 'sex = Male -> hours'."""
        return f"{self.parent if self.word is None else f'{self.parent} = {self.word}'} -> {self.node}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Effects:
    """The equations of m nodes of numbers that an intervention changes, parents first, with p coefficients, in the nodes' order.

    do: attribute -> value, as the table writes it.   range, decimals: (m,) of the nodes, or None.   logarithmic: (m,) whether the
    node is log-linear.   categories: category on a path -> its parents among these nodes.
    """

    do: Mapping[str, Any]
    nodes: tuple[str, ...]
    coefficients: tuple[Coefficient, ...]
    range: tuple[tuple[float, float] | None, ...]
    decimals: tuple[int | None, ...]
    logarithmic: tuple[bool, ...]
    categories: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, model: CausalModel, do: Mapping[str, Any], *, needed: Collection[str], errors: Errors | None = None) -> Effects:
        """Return the part of a fitted model through which do changes the `needed` columns.

        errors: of coefficients that were given, not fitted.
        Raises QueryError for a model that is not fitted, mechanisms that have no coefficients, coefficients without errors.
        """
        descendants = model.descendants(list(do))
        on_path: set[str] = set()
        for name in reversed(descendants):
            if name in needed or any(name in model.by_name[other].parents for other in on_path):
                on_path.add(name)
        categories = [name for name in descendants if name in on_path and isinstance(model.fitted.get(name), CategoricalMechanism)]
        nodes = tuple(name for name in descendants if name in on_path and name not in categories)
        coefficients: list[Coefficient] = []
        for name in nodes:
            changed_parents = [parent for parent in model.by_name[name].parents if parent in do or parent in on_path]
            coefficients += _coefficients(model, name, changed_parents, errors or {})
        return cls(
            do=dict(do), nodes=nodes, coefficients=tuple(coefficients), range=tuple(model.by_name[name].range for name in nodes),
            decimals=tuple(model.by_name[name].decimals for name in nodes),
            logarithmic=tuple(isinstance(model.fitted[name], LogLinearMechanism) for name in nodes),
            categories={
                name: tuple(parent for parent in model.by_name[name].parents if parent in nodes) for name in categories
            },
        )

    def __len__(self) -> int:
        return len(self.coefficients)

    @property
    def estimates(self) -> Array:
        """(p,)."""
        return np.array([coefficient.estimate for coefficient in self.coefficients], dtype=float)

    @property
    def errors(self) -> Array:
        """(p,) standard errors."""
        return np.array([coefficient.error for coefficient in self.coefficients], dtype=float)

    @property
    def plain(self) -> bool:
        """True if no node is rounded, clipped or log-linear: rows with the same attributes then have the same changes."""
        return not any(limit is not None for limit in (*self.range, *self.decimals)) and not any(self.logarithmic)

    def box(self, t: float) -> tuple[Array, Array]:
        """(p,), (p,) intervals of the coefficients: estimates -+ t standard errors."""
        return self.estimates - t * self.errors, self.estimates + t * self.errors

    @cached_property
    def corners(self) -> Array:
        """Return (2^q, p) signs -1, 1 of all corners of a box around the estimates; 0 for the p - q coefficients without error.

        Raises QueryError for more than MAX_COEFFICIENTS coefficients with an error.
        """
        varying = np.flatnonzero(self.errors > 0)
        if len(varying) > MAX_COEFFICIENTS:
            raise QueryError(
                f"{len(varying)} uncertain coefficients lie on the paths from {', '.join(self.do)}; at most {MAX_COEFFICIENTS} can "
                "be varied together: take some as exact (errors = {node: 0}), or merge words of a parent"
            )
        signs = np.zeros((1 << len(varying), len(self)))
        signs[:, varying] = list(product((-1.0, 1.0), repeat=len(varying)))
        return signs

    def values(self, frame: pd.DataFrame) -> Array:
        """Return (N, m) the nodes' own values. Raises DataError for log-linear nodes that hold 0 or less, changed or not: with
        other coefficients they may change."""
        for name in compress(self.nodes, self.logarithmic):
            above_zero(frame[name])
        return frame[list(self.nodes)].to_numpy(dtype=float) if self.nodes else np.zeros((len(frame), 0))

    def changes(self, frame: pd.DataFrame, counterfactual: pd.DataFrame) -> Array:
        """Return (N, p) the change of each coefficient's factor under the intervention; 0 for parents that are nodes.

        counterfactual: the N rows with the values of do and the counterfactual categories.
        """
        change = np.zeros((len(frame), len(self)))
        texts: dict[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]] = {}
        for k, coefficient in enumerate(self.coefficients):
            if coefficient.parent in self.nodes:
                continue
            before, after = frame[coefficient.parent], counterfactual[coefficient.parent]
            if coefficient.word is None:
                change[:, k] = after.to_numpy(dtype=float) - before.to_numpy(dtype=float)
                continue
            if coefficient.parent not in texts:
                texts[coefficient.parent] = _texts(after), _texts(before)
            new_texts, old_texts = texts[coefficient.parent]
            change[:, k] = (new_texts == coefficient.word).astype(float) - (old_texts == coefficient.word)
        return change

    def check_categories(self, values: Array, change: Array, t: float) -> None:
        """Raise QueryError where coefficients within t standard errors move a number that a category depends on.

        Sound? yes: the numbers are enclosed, so that the categories are the same for all these coefficients.
        """
        lower, upper = self.enclosure(values, change, *self.box(t))
        uncertain: set[str] = set()
        for name, terms in zip(self.nodes, self._terms, strict=True):
            if any(self.coefficients[k].error > 0 or self.coefficients[k].parent in uncertain for k in terms):
                uncertain.add(name)
        for category, parents in self.categories.items():
            for name in parents:
                n = self.nodes.index(name)
                count = int((lower[:, n] != upper[:, n]).sum())
                if name in uncertain and count:
                    raise QueryError(
                        f"node {category!r}: its categories depend on {name!r}, which uncertain coefficients move in {count:,} of "
                        f"{len(values):,} counterfactuals; take them as exact (errors = 0 in the equation of {name!r}), or drop "
                        f"{name!r} from the parents of {category!r}"
                    )

    def check_finite(self, values: Array, change: Array, t: float) -> None:
        """Raise QueryError where coefficients within t standard errors lead to values beyond all floats, mostly by an
        exponential."""
        lower, upper = self.enclosure(values, change, *self.box(t))
        huge = ~(np.isfinite(lower) & np.isfinite(upper))
        if huge.any():
            n = int(np.argmax(huge.any(axis=0)))
            raise QueryError(
                f"node {self.nodes[n]!r}: coefficients within {t:g} standard errors of the estimates take it beyond all floats in "
                f"{int(huge[:, n].sum()):,} of {len(values):,} counterfactuals; give smaller errors in its equation and those of "
                "its parents, or measure it in another unit"
            )

    @cached_property
    def _parent(self) -> tuple[int | None, ...]:
        """(p,) position of each coefficient's parent among the nodes; None where it is set."""
        return tuple(self.nodes.index(term.parent) if term.parent in self.nodes else None for term in self.coefficients)

    @cached_property
    def _terms(self) -> tuple[tuple[int, ...], ...]:
        """(m,) the coefficients of each node."""
        return tuple(tuple(k for k, term in enumerate(self.coefficients) if term.node == name) for name in self.nodes)

    def counterfactuals(self, values: Array, change: Array, theta: Array, *, bounded: bool = True) -> Array:
        """(T, N, m) the nodes' counterfactual values for coefficients theta, of rows with values (N, m), change (N, p).

        theta: (T, p), or (T, N, p) for coefficients of each row's own.   bounded: False leaves nodes neither rounded nor clipped.
        """
        theta = theta[:, None] if theta.ndim == 2 else theta
        result = np.empty((len(theta), *values.shape))
        moved = [np.zeros((1, len(values)), dtype=bool)] * len(self.nodes)
        is_set = change != 0
        for n, terms in enumerate(self._terms):
            shift, any_moved = np.zeros((len(theta), len(values))), np.zeros((1, len(values)), dtype=bool)
            for k in terms:
                u = self._parent[k]
                shift += theta[:, :, k] * (change[:, k] if u is None else result[:, :, u] - values[:, u])
                any_moved = any_moved | (is_set[:, k] if u is None else moved[u])
            new = self._shifted(n, values[:, n], shift)
            result[:, :, n] = np.where(any_moved, self._rounded_and_clipped(n, new) if bounded else new, values[:, n])
            moved[n] = result[:, :, n] != values[:, n]
        return result

    def enclosure(self, values: Array, change: Array, low: Array, high: Array) -> tuple[Array, Array]:
        """(N, m), (N, m) intervals that hold the nodes' counterfactual values for all coefficients in low .. high, (p,) or (N, p).

        Intervals node by node, padded by PAD; exact up to PAD if no coefficient occurs twice with opposite signs.
        """
        lower, upper = values.copy(), values.copy()
        low, high = (np.broadcast_to(end, change.shape) for end in (low, high))
        for n, terms in enumerate(self._terms):
            ends = [np.zeros(len(values)), np.zeros(len(values))]
            size = np.abs(np.log(values[:, n]) if self.logarithmic[n] else values[:, n])
            may_stay, unchanged = np.ones((2, len(values)), dtype=bool)
            for k in terms:
                u = self._parent[k]
                delta = (change[:, k], change[:, k]) if u is None else (lower[:, u] - values[:, u], upper[:, u] - values[:, u])
                products = np.stack([a * b for a in (low[:, k], high[:, k]) for b in delta])
                ends = [ends[0] + products.min(axis=0), ends[1] + products.max(axis=0)]
                size = size + np.abs(products).max(axis=0)
                may_stay &= (delta[0] <= 0) & (delta[1] >= 0)  # perhaps no parent changed: the node may then keep its value ...
                unchanged &= (delta[0] == 0) & (delta[1] == 0)  # ... and here it does
            value = values[:, n]
            ends = [self._shifted(n, value, ends[0] - PAD * size, -PAD), self._shifted(n, value, ends[1] + PAD * size, PAD)]
            treated = self._outward(n, ends[0], -np.inf), self._outward(n, ends[1], np.inf)
            lower[:, n] = np.where(unchanged, value, np.where(may_stay, np.minimum(treated[0], value), treated[0]))
            upper[:, n] = np.where(unchanged, value, np.where(may_stay, np.maximum(treated[1], value), treated[1]))
        return lower, upper

    def _shifted(self, n: int, values: Array, shift: Array, pad: float = 0.0) -> Array:
        """Return values (N,) plus shifts (..., N), added to the logarithm if the node is log-linear; shifts are widened by
        `pad`."""
        if not self.logarithmic[n]:
            return np.asarray(values + shift)
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(np.log(values) + shift) * (1 + pad))

    def _rounded_and_clipped(self, n: int, values: Array) -> Array:
        """Return values rounded, then clipped, as the node says. Monotone."""
        decimals, span = self.decimals[n], self.range[n]
        if decimals is not None:
            values = np.round(values, decimals)
        return values if span is None else np.clip(values, *span)

    def _outward(self, n: int, values: Array, towards: float) -> Array:
        """Return `_rounded_and_clipped` values moved outwards, past the exact result of rounding to decimals (0.1 is no float)."""
        if not self.decimals[n]:
            return self._rounded_and_clipped(n, values)
        values = np.nextafter(np.round(values, self.decimals[n] or 0), towards)
        span = self.range[n]
        return values if span is None else np.clip(values, *span)

    def only(self, index: Collection[int]) -> Effects:
        """Return the effects with all coefficients but these taken as exact."""
        terms = tuple(term if k in index else replace(term, error=0.0) for k, term in enumerate(self.coefficients))
        return replace(self, coefficients=terms)


def quantile(level: float, count: int, *, simultaneous: bool) -> float:
    """Return the half-width, in standard errors, of a normal interval of this level. Raises QueryError.

    simultaneous: so wide that all `count` intervals together hold with at least this probability (Bonferroni).
    """
    if not 0 < level < 1:
        raise QueryError(f"level = {level:g}: expected a probability between 0 and 1, such as 0.95")
    return float(norm.isf((1 - level) / 2 / (max(count, 1) if simultaneous else 1)))


def _coefficients(model: CausalModel, node: str, parents: list[str], errors: Errors) -> list[Coefficient]:
    """Return the coefficients of a node's parents that change."""
    mechanism = model.fitted.get(node)
    if mechanism is None:
        raise QueryError(f"node {node!r}: the causal model is not fitted; call fit with a table first")
    if not isinstance(mechanism, LinearMechanism | LogLinearMechanism):
        kind = type(model.by_name[node].mechanism).__name__
        raise QueryError(
            f"node {node!r}: its mechanism is {kind}, which has no coefficients to vary; give it mechanism = \"linear\" or "
            '"log-linear", or take it off the paths below the protected attributes'
        )
    fitted = mechanism.coefficients
    se = fitted.standard_errors
    given = errors.get(node)
    terms = [(parent, word) for parent, word in _terms(fitted.design) if parent in parents]
    position = {term: k + 1 for k, term in enumerate(_terms(fitted.design))}
    if isinstance(given, Mapping):
        unknown = [name for name in given if name not in {_term_name(*term) for term in terms}]
        if unknown:
            raise QueryError(
                f"errors of node {node!r}: {unknown[0]!r} is no coefficient on a path from the protected attributes; these are "
                f"{', '.join(_term_name(*term) for term in terms)}"
            )
    return [
        Coefficient(
            node=node, parent=parent, word=word, estimate=float(fitted.estimates[position[parent, word]]),
            error=_error(node, _term_name(parent, word), given, None if se is None else float(se[position[parent, word]])),
        )
        for parent, word in terms
    ]


def _terms(design: Design) -> list[tuple[str, str | None]]:
    """(parent, word) of every coefficient after the intercept; None for a parent of numbers."""
    return [(name, word) for name, levels in design.levels.items() for word in (levels[1:] if levels else (None,))]


def _term_name(parent: str, word: str | None) -> str:
    return parent if word is None else f"{parent} = {word}"


def _error(node: str, term: str, given: Mapping[str, float] | float | None, fitted: float | None) -> float:
    """The standard error of one coefficient: as given, else as fitted. Raises QueryError where there is neither."""
    error = given.get(term) if isinstance(given, Mapping) else given
    if error is None:
        error = fitted
    if error is None:
        raise QueryError(
            f"node {node!r}: the coefficient of {term} was given, not fitted, so it has no standard error; give it beside "
            "the coefficients (errors, in the same form; in the causal file or the Linear mechanism), or 0 to take it as exact"
        )
    if not 0 <= error < float("inf"):
        raise QueryError(f"node {node!r}: the standard error of {term} is {error}; expected a finite number from 0")
    return float(error)


def _texts(column: pd.Series) -> npt.NDArray[Any]:
    """(N,) the words of a column."""
    codes, values = pd.factorize(column)
    return np.asarray(np.array([text(value) for value in values.tolist()], dtype=object)[codes])
