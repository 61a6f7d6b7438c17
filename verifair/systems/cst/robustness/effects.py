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

from encoders.network import Array
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
        below = model.descendants(list(do))
        wanted: set[str] = set()
        for name in reversed(below):
            if name in needed or any(name in model.by_name[other].parents for other in wanted):
                wanted.add(name)
        categories = [name for name in below if name in wanted and isinstance(model.fitted.get(name), CategoricalMechanism)]
        nodes = tuple(name for name in below if name in wanted and name not in categories)
        found: list[Coefficient] = []
        for name in nodes:
            moved = [parent for parent in model.by_name[name].parents if parent in do or parent in wanted]
            found += _coefficients(model, name, moved, errors or {})
        return cls(
            do=dict(do), nodes=nodes, coefficients=tuple(found), range=tuple(model.by_name[name].range for name in nodes),
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
        return np.array([one.estimate for one in self.coefficients], dtype=float)

    @property
    def errors(self) -> Array:
        """(p,) standard errors."""
        return np.array([one.error for one in self.coefficients], dtype=float)

    @property
    def plain(self) -> bool:
        """True if no node is rounded, clipped or log-linear: rows with the same attributes then have the same changes."""
        return not any(one is not None for one in (*self.range, *self.decimals)) and not any(self.logarithmic)

    def box(self, t: float) -> tuple[Array, Array]:
        """(p,), (p,) intervals of the coefficients: estimates -+ t standard errors."""
        return self.estimates - t * self.errors, self.estimates + t * self.errors

    @cached_property
    def corners(self) -> Array:
        """Return (2^q, p) signs -1, 1 of all corners of a box around the estimates; 0 for the p - q coefficients without error.

        Raises QueryError for more than MAX_COEFFICIENTS coefficients with an error.
        """
        loose = np.flatnonzero(self.errors > 0)
        if len(loose) > MAX_COEFFICIENTS:
            raise QueryError(
                f"{len(loose)} uncertain coefficients lie on the paths from {', '.join(self.do)}; at most {MAX_COEFFICIENTS} can "
                "be varied together: take some as exact (errors = {node: 0}), or merge words of a parent"
            )
        signs = np.zeros((1 << len(loose), len(self)))
        signs[:, loose] = list(product((-1.0, 1.0), repeat=len(loose)))
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
        written: dict[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]] = {}
        for k, one in enumerate(self.coefficients):
            if one.parent in self.nodes:
                continue
            before, after = frame[one.parent], counterfactual[one.parent]
            if one.word is None:
                change[:, k] = after.to_numpy(dtype=float) - before.to_numpy(dtype=float)
                continue
            if one.parent not in written:
                written[one.parent] = _texts(after), _texts(before)
            there, here = written[one.parent]
            change[:, k] = (there == one.word).astype(float) - (here == one.word)
        return change

    def check_categories(self, values: Array, change: Array, t: float) -> None:
        """Raise QueryError where coefficients within t standard errors move a number that a category depends on.

        Sound? yes: the numbers are enclosed, so that the categories are the same for all these coefficients.
        """
        least, most = self.enclosure(values, change, *self.box(t))
        loose: set[str] = set()
        for name, terms in zip(self.nodes, self._terms, strict=True):
            if any(self.coefficients[k].error > 0 or self.coefficients[k].parent in loose for k in terms):
                loose.add(name)
        for category, parents in self.categories.items():
            for name in parents:
                n = self.nodes.index(name)
                moved = int((least[:, n] != most[:, n]).sum())
                if name in loose and moved:
                    raise QueryError(
                        f"node {category!r}: its categories depend on {name!r}, which uncertain coefficients move in {moved:,} of "
                        f"{len(values):,} counterfactuals; take them as exact (errors = 0 in the equation of {name!r}), or drop "
                        f"{name!r} from the parents of {category!r}"
                    )

    def check_finite(self, values: Array, change: Array, t: float) -> None:
        """Raise QueryError where coefficients within t standard errors lead to values beyond all floats, mostly by an
        exponential."""
        least, most = self.enclosure(values, change, *self.box(t))
        far = ~(np.isfinite(least) & np.isfinite(most))
        if far.any():
            n = int(np.argmax(far.any(axis=0)))
            raise QueryError(
                f"node {self.nodes[n]!r}: coefficients within {t:g} standard errors of the estimates take it beyond all floats in "
                f"{int(far[:, n].sum()):,} of {len(values):,} counterfactuals; give smaller errors in its equation and those of "
                "its parents, or measure it in another unit"
            )

    @cached_property
    def _parent(self) -> tuple[int | None, ...]:
        """(p,) position of each coefficient's parent among the nodes; None where it is set."""
        return tuple(self.nodes.index(one.parent) if one.parent in self.nodes else None for one in self.coefficients)

    @cached_property
    def _terms(self) -> tuple[tuple[int, ...], ...]:
        """(m,) the coefficients of each node."""
        return tuple(tuple(k for k, one in enumerate(self.coefficients) if one.node == name) for name in self.nodes)

    def counterfactuals(self, values: Array, change: Array, theta: Array, *, bounded: bool = True) -> Array:
        """(T, N, m) the nodes' counterfactual values for coefficients theta, of rows with values (N, m), change (N, p).

        theta: (T, p), or (T, N, p) for coefficients of each row's own.   bounded: False leaves nodes neither rounded nor clipped.
        """
        theta = theta[:, None] if theta.ndim == 2 else theta
        found = np.empty((len(theta), *values.shape))
        moved = [np.zeros((1, len(values)), dtype=bool)] * len(self.nodes)
        set_ = change != 0
        for n, terms in enumerate(self._terms):
            shift, any_moved = np.zeros((len(theta), len(values))), np.zeros((1, len(values)), dtype=bool)
            for k in terms:
                u = self._parent[k]
                shift += theta[:, :, k] * (change[:, k] if u is None else found[:, :, u] - values[:, u])
                any_moved = any_moved | (set_[:, k] if u is None else moved[u])
            new = self._added(n, values[:, n], shift)
            found[:, :, n] = np.where(any_moved, self._treated(n, new) if bounded else new, values[:, n])
            moved[n] = found[:, :, n] != values[:, n]
        return found

    def enclosure(self, values: Array, change: Array, low: Array, high: Array) -> tuple[Array, Array]:
        """(N, m), (N, m) intervals that hold the nodes' counterfactual values for all coefficients in low .. high, (p,) or (N, p).

        Intervals node by node, padded by PAD; exact up to PAD if no coefficient occurs twice with opposite signs.
        """
        least, most = values.copy(), values.copy()
        low, high = (np.broadcast_to(end, change.shape) for end in (low, high))
        for n, terms in enumerate(self._terms):
            ends = [np.zeros(len(values)), np.zeros(len(values))]
            size = np.abs(np.log(values[:, n]) if self.logarithmic[n] else values[:, n])
            still, surely = np.ones((2, len(values)), dtype=bool)
            for k in terms:
                u = self._parent[k]
                by = (change[:, k], change[:, k]) if u is None else (least[:, u] - values[:, u], most[:, u] - values[:, u])
                products = np.stack([a * b for a in (low[:, k], high[:, k]) for b in by])
                ends = [ends[0] + products.min(axis=0), ends[1] + products.max(axis=0)]
                size = size + np.abs(products).max(axis=0)
                still &= (by[0] <= 0) & (by[1] >= 0)  # perhaps no parent changed: the node may then keep its value ...
                surely &= (by[0] == 0) & (by[1] == 0)  # ... and here it does
            own = values[:, n]
            ends = [self._added(n, own, ends[0] - PAD * size, -PAD), self._added(n, own, ends[1] + PAD * size, PAD)]
            reached = self._outward(n, ends[0], -np.inf), self._outward(n, ends[1], np.inf)
            least[:, n] = np.where(surely, own, np.where(still, np.minimum(reached[0], own), reached[0]))
            most[:, n] = np.where(surely, own, np.where(still, np.maximum(reached[1], own), reached[1]))
        return least, most

    def _added(self, n: int, values: Array, shift: Array, pad: float = 0.0) -> Array:
        """Return values (N,) plus shifts (..., N), added to the logarithm if the node is log-linear; shifts are widened by
        `pad`."""
        if not self.logarithmic[n]:
            return np.asarray(values + shift)
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(np.log(values) + shift) * (1 + pad))

    def _treated(self, n: int, values: Array) -> Array:
        """Return values rounded, then clipped, as the node says. Monotone."""
        decimals, span = self.decimals[n], self.range[n]
        if decimals is not None:
            values = np.round(values, decimals)
        return values if span is None else np.clip(values, *span)

    def _outward(self, n: int, values: Array, towards: float) -> Array:
        """Return `_treated` values moved outwards, past the exact result of rounding to decimals (0.1 is no float)."""
        if not self.decimals[n]:
            return self._treated(n, values)
        values = np.nextafter(np.round(values, self.decimals[n] or 0), towards)
        span = self.range[n]
        return values if span is None else np.clip(values, *span)

    def only(self, index: Collection[int]) -> Effects:
        """Return the effects with all coefficients but these taken as exact."""
        kept = tuple(one if k in index else replace(one, error=0.0) for k, one in enumerate(self.coefficients))
        return replace(self, coefficients=kept)


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
    found = mechanism.coefficients
    known = found.standard_errors
    own = errors.get(node)
    terms = [(parent, word) for parent, word in _terms(found.design) if parent in parents]
    place = {term: k + 1 for k, term in enumerate(_terms(found.design))}
    if isinstance(own, Mapping):
        stray = [name for name in own if name not in {_written(*term) for term in terms}]
        if stray:
            raise QueryError(
                f"errors of node {node!r}: {stray[0]!r} is no coefficient on a path from the protected attributes; these are "
                f"{', '.join(_written(*term) for term in terms)}"
            )
    return [
        Coefficient(
            node=node, parent=parent, word=word, estimate=float(found.estimates[place[parent, word]]),
            error=_error(node, _written(parent, word), own, None if known is None else float(known[place[parent, word]])),
        )
        for parent, word in terms
    ]


def _terms(design: Design) -> list[tuple[str, str | None]]:
    """(parent, word) of every coefficient after the intercept; None for a parent of numbers."""
    return [(name, word) for name, levels in design.levels.items() for word in (levels[1:] if levels else (None,))]


def _written(parent: str, word: str | None) -> str:
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
