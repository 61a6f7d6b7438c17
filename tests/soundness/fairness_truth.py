"""The truth about tiny fairness queries: every row of the box listed, logits in fractions, probabilities in decimals.

Of a real feature every raw value that matters is listed: the ends of each run of float64 numbers that share a float32 input and
stand on the same side of all ends of the box and of what is forbidden.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

import verifair as vf
from encoders.network import Array, Booleans, Network
from tests.brute_force import exact_forward
from verifair.engine.questions import box_of

REAL_POINTS = 40
DIGITS = 80


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A query and, on demand, everything about all rows of its box."""

    query: vf.IndividualFairness
    seed: int
    style: str

    @property
    def schema(self) -> vf.Schema:
        return self.query.schema

    @cached_property
    def box(self) -> tuple[Array, Array]:
        return box_of(self.schema, self.query.box)

    @cached_property
    def rows(self) -> Array:
        """(N, V) legal raw rows of the box, one at least for every network input that a legal row has."""
        axes = [_values(self.schema, v, self.box[0][v], self.box[1][v]) for v in range(len(self.schema.features))]
        rows = np.array(list(product(*axes)), dtype=np.float64)
        return rows[self.schema.inside(rows)]

    @cached_property
    def logits(self) -> npt.NDArray[np.object_]:
        """(N,) exact log-odds of the positive class, as fractions."""
        return exact_logits(self.query.network, self.schema.encode(self.rows))

    @cached_property
    def pairs(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Positions of all ordered pairs of rows that the query compares."""
        return np.nonzero(compared(self.query, self.rows, self.rows))

    @cached_property
    def first_copy(self) -> Booleans:
        """(pairs,) whether the first row of the pair has the earlier protected combination, the one that lies in a part."""
        index = [self.schema.index(name) for name in self.query.protected]
        one, two = self.rows[self.pairs[0]][:, index], self.rows[self.pairs[1]][:, index]
        return np.array([tuple(a) < tuple(b) for a, b in zip(one.tolist(), two.tolist(), strict=True)], dtype=bool)

    @cached_property
    def flips(self) -> Booleans:
        """(pairs,) g(x) > 0 > g(x')."""
        first, second = (self.logits[at] for at in self.pairs)
        return np.array([a > 0 > b for a, b in zip(first, second, strict=True)], dtype=bool)

    @cached_property
    def probabilities(self) -> list[Decimal]:
        """(N,) sigma(g), to DIGITS digits of p and of 1 - p alike near the middle."""
        return [sigma(value) for value in self.logits]

    def gaps(self) -> list[Decimal]:
        """(pairs,) sigma(g(x)) - sigma(g(x')), to about DIGITS digits."""
        with localcontext(Context(prec=DIGITS)):
            return [self.probabilities[i] - self.probabilities[k] for i, k in zip(*self.pairs, strict=True)]

    def wrong(self) -> Booleans:
        """(pairs,) which pairs the query forbids, x first. Both orders of every pair are listed."""
        if self.query.epsilon is None:
            return self.flips
        return np.array([gap > Decimal(self.query.epsilon) for gap in self.gaps()], dtype=bool)

    def asking(self, **changes: Any) -> Case:
        """The same with other fields of the query."""
        return Case(query=replace(self.query, **changes), seed=self.seed, style=self.style)


def sigma(value: Fraction) -> Decimal:
    """The logistic function, to about DIGITS digits; beyond 10,000 it is 0 or 1 to 4,000 digits."""
    if abs(value) > 10_000:
        return Decimal(int(value > 0))
    with localcontext(Context(prec=DIGITS + 20, Emin=-(10**9), Emax=10**9)):
        return 1 / (1 + (-(Decimal(value.numerator) / Decimal(value.denominator))).exp())


def exact_logits(network: Network, x: Array) -> npt.NDArray[np.object_]:
    """(N,) log-odds of the positive class at network inputs x (N, n), in fractions."""
    out = exact_forward(network, x) if len(x) else np.empty((0, network.outputs), dtype=object)
    return np.asarray(out[:, 0] if network.outputs == 1 else out[:, 1] - out[:, 0], dtype=object)


def compared(query: vf.IndividualFairness, first: Array, second: Array) -> Booleans:
    """(N, M) which rows are each other's counterfactuals in the query's sense."""
    schema = query.schema
    protected = [schema.index(name) for name in query.protected]
    width = np.zeros(len(schema.features))
    for name, units in query.relax.items():
        width[schema.index(name)] = units
    apart = np.abs(first[:, None, :] - second[None, :, :])
    differ = apart[:, :, protected] > 0
    others = np.delete(apart <= width, protected, axis=2).all(axis=2)
    return np.asarray(others & (differ.all(axis=2) if query.differ == "all" else differ.any(axis=2)))


def _values(schema: vf.Schema, v: int, low: float, high: float) -> Array:
    """Raw values of one feature within [low, high], see the module's text."""
    domain = schema.domain
    if domain.integer[v]:
        return np.arange(low, high + 1)
    column = domain.take(np.array([v]))

    def encoded(raw: float) -> float:
        return float(column.encode(np.array([[raw]]))[0, 0])

    found = [low, high]
    at = low
    while encoded(at) < encoded(high):  # the last float64 with the same input, by bisection; then the next
        start, end = at, high
        while np.nextafter(start, np.inf) < end:
            middle = start + (end - start) / 2
            start, end = (middle, end) if encoded(middle) == encoded(at) else (start, middle)
        found += [start, end]
        at = end
        if len(found) > REAL_POINTS:
            raise ValueError(f"feature {v} has too many inputs in {low} .. {high} to be listed")
    if domain.forbidden is not None:
        for end in np.concatenate([domain.forbidden.lower[:, v], domain.forbidden.upper[:, v]]):
            if np.isfinite(end):
                found += [end, float(np.nextafter(end, np.inf)), float(np.nextafter(end, -np.inf))]
    values = np.unique(found)
    return values[(values >= low) & (values <= high)]
