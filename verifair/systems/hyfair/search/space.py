"""The search space of k-discrimination: rows x of the other features, each evaluated with all protected combinations at once.

k(x) counts the buckets that the probabilities of (x, z_1) ... (x, z_K) fall into. Probabilities are never computed: a logit lies in
bucket i exactly between logit(i / B) and logit((i + 1) / B).

Networks' logits are float32 here: on the public Adult networks this is 1.2 (16-8) to 1.8 (100-100) times as fast as float64.
A logit within about 1e-5 of a bucket's edge can fall on the wrong side, so counts of this module guide a search and are
never reported; `verifair.systems.hyfair.search.clusters.recount` counts exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from encoders.arrays import Array, Booleans, Integers
from encoders.evaluate import at_once
from solvers import clock
from verifair.engine.queries import KDiscrimination
from verifair.engine.questions import shared_box
from verifair.errors import QueryError
from verifair.interrupts import OutOfTime
from verifair.systems.hyfair.search.logits import Logits, logits_of

DRAWS = 100
"""Rounds in which random rows that cannot be are drawn again."""


def edges(buckets: int) -> Array:
    """Return (B - 1,) the logits where buckets begin: logit(i / B), exactly 0 in the middle of an even number of buckets."""
    i = np.arange(1, buckets)
    return np.asarray(np.log(i / (buckets - i)))


def occupied(logits: npt.NDArray[np.floating], counted: Booleans | None, buckets: int) -> Integers:
    """Return (N,) the number of buckets that the logits (N, K) fall into; logits with `counted` (N, K) False do not count."""
    rows = np.arange(len(logits))[:, None]
    bucket = np.searchsorted(edges(buckets).astype(logits.dtype), logits, side="left")
    hit = np.zeros((len(logits), buckets + 1), dtype=bool)
    hit[rows, bucket if counted is None else np.where(counted, bucket, buckets)] = True
    return np.asarray(hit[:, :buckets].sum(axis=1))


@dataclass(frozen=True, kw_only=True, eq=False)
class Space:
    """The raw box of a query and its protected combinations.

    deadline: by clock.now(); after it the model is not evaluated any more.

    lower, upper: (V,) raw box.   protected: (P,) variables that are combined.   combinations: (K, P) their raw values.
    Rows are raw rows (N, V); the values of their protected variables are ignored.
    """

    query: KDiscrimination
    lower: Array
    upper: Array
    protected: Integers
    combinations: Array
    deadline: float = np.inf

    @classmethod
    def of(cls, query: KDiscrimination, deadline: float = np.inf) -> Space:
        """Return the space of a query. Raises QueryError for a box that names protected features, and for too many combinations."""
        lower, upper = shared_box(query)
        protected = np.array([query.schema.index(name) for name in query.protected])
        return cls(query=query, lower=lower, upper=upper, protected=protected, combinations=query.combinations(), deadline=deadline)

    @cached_property
    def free(self) -> Integers:
        """(M,) the variables of x that can take more than one value."""
        movable = self.upper > self.lower
        movable[self.protected] = False
        return np.flatnonzero(movable)

    @property
    def cap(self) -> int:
        """The largest possible k."""
        return min(len(self.combinations), self.query.buckets)

    # Rows

    def rows(self, x: Array, combinations: Array | None = None) -> Array:
        """Return raw rows (K, V) of one x (V,) with each of some combinations (all by default)."""
        chosen = self.combinations if combinations is None else combinations
        raw = np.repeat(x[None, :], len(chosen), axis=0)
        raw[:, self.protected] = chosen
        return raw

    def possible(self, x: Array) -> Booleans:
        """Return (N, K) True where a combination is legal with a row x (N, V)."""
        allowed = np.ones((len(x), len(self.combinations)), dtype=bool)
        forbidden = self.query.schema.domain.forbidden
        if forbidden is None:
            return allowed
        others = np.ones(len(self.lower), dtype=bool)
        others[self.protected] = False
        for low, high in zip(forbidden.lower, forbidden.upper, strict=True):
            row = ((x >= low) & (x <= high))[:, others].all(axis=1)
            z = ((self.combinations >= low[self.protected]) & (self.combinations <= high[self.protected])).all(axis=1)
            allowed &= ~(row[:, None] & z)
        return allowed

    def legal(self, x: Array) -> Booleans:
        """Return (N,) True for rows that lie in the box, are whole where needed, and are legal with at least one combination."""
        is_whole = ~self.query.schema.domain.integer | (x == np.floor(x))
        in_box = (x >= self.lower) & (x <= self.upper) & is_whole
        in_box[:, self.protected] = True
        return np.asarray(in_box.all(axis=1) & self.possible(x).any(axis=1))

    def canonical(self, x: Array) -> Array:
        """Return the rows with the first combination in their protected variables, so that equal people are equal rows."""
        result = np.array(x, dtype=np.float64)
        result[:, self.protected] = self.combinations[0]
        return result

    def shown(self, x: Array) -> Array:
        """Return the rows, each with the first combination that is legal with it."""
        result = np.array(x, dtype=np.float64)
        result[:, self.protected] = self.combinations[self.possible(x).argmax(axis=1)]
        return result

    def random(self, rng: np.random.Generator, count: int) -> Array:
        """Return legal rows (count, V), uniform over the box, repeated if few are legal. Raises QueryError if none is found."""
        x = self._uniform(rng, count)
        for _ in range(DRAWS):
            illegal = np.flatnonzero(~self.legal(x))
            if not len(illegal):
                return x
            x[illegal] = self._uniform(rng, len(illegal))
        legal = self.legal(x)
        if legal.any():
            return x[np.where(legal, np.arange(count), rng.choice(np.flatnonzero(legal), count))]
        raise QueryError("the schema's constraints forbid nearly every row of the box; widen the box or pass --data")

    def _uniform(self, rng: np.random.Generator, count: int) -> Array:
        return self.canonical(self.uniform_values(rng, np.tile(np.arange(len(self.lower)), (count, 1))))

    def uniform_values(self, rng: np.random.Generator, variables: Integers) -> Array:
        """Return a uniform value within the box for each of the given variables (any shape)."""
        low, high = self.lower[variables], self.upper[variables]
        real = low + (high - low) * rng.random(variables.shape)
        integer = np.minimum(np.floor(low + (high - low + 1) * rng.random(variables.shape)), high)
        return np.where(self.query.schema.domain.integer[variables], integer, real)

    # The model

    def count(self, x: Array) -> Integers:
        """Return k (N,) of legal rows x (N, V), in float32: a guide, see the module's text."""
        counted = None if self.query.schema.domain.forbidden is None else self.possible(x)
        return occupied(self.logits(x), counted, self.query.buckets)

    def logits(self, x: Array) -> npt.NDArray[np.floating]:
        """Log-odds of the positive class (N, K) of every row with every combination, as `logits_of` says.

        Raises OutOfTime if the deadline passes before the last rows.
        """
        encoded = self.query.schema.domain.encode(self.canonical(x))
        clock.spend(2 * len(x) * len(self.combinations) * self.query.model.work)
        if self.deadline == np.inf:
            return self._logits(encoded)
        step = max(2 * at_once(self.query.model, len(x) * len(self.combinations)) // len(self.combinations), 1)
        parts = list[npt.NDArray[np.floating]]()
        for start in range(0, max(len(x), 1), step):
            if clock.now() > self.deadline:
                raise OutOfTime(f"the time was up after {start:,} of {len(x):,} rows around a cluster")
            parts.append(self._logits(encoded[start : start + step]))
        return np.concatenate(parts)

    @cached_property
    def _logits(self) -> Logits:
        domain = self.query.schema.domain
        columns = domain.columns_of(self.protected)
        return logits_of(self.query.model, columns, domain.encode(self.rows(self.lower))[:, columns])
