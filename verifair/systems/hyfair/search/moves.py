"""Start rows and moves of the search's chains.

A move leads from rows x to neighbouring rows, by changing features or by walking among the data. It takes rows (N, V) and their
positions in the data (origin (N,), -1: not in the data), and returns candidates and their origins. Chains start at rows of the
data, some (`SolverSeeds`) at exact witnesses of unfair decisions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from encoders.arrays import Array, Integers
from solvers.outcome import Budget
from verifair.engine.queries import IndividualFairness
from verifair.engine.verify import verify
from verifair.errors import DataError, QueryError
from verifair.systems.hyfair.search.space import Space

if TYPE_CHECKING:
    from sklearn.neighbors import NearestNeighbors

MAX_NEIGHBOURS = 10
"""Neighbours in the data among which SA+KNN chooses; the paper gives no number."""
SMALL_STEP = 0.05
"""A small step's standard deviation, in widths of the feature's range."""
SEED_REACH = 0.25
"""Part of a feature's range, to either side of a random row, in the box that the solver is asked about."""
SEED_BUDGET = Budget(seconds=10.0, nodes=64)
"""Limits of one question to the solver: nodes end a hard one, so that the same seed gives the same rows."""


class Move(Protocol):
    def __call__(self, x: Array, origin: Integers, rng: np.random.Generator) -> tuple[Array, Integers]: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Pool:
    """The distinct rows of a table for the search: x (N, V), and the number of rows left out because they are outside the box or
    the declared domain."""

    x: Array
    skipped: int

    @classmethod
    def of(cls, space: Space, data: Array | None) -> Pool:
        """Return the pool of raw rows (N, V), or of no table. Raises DataError if a table has rows and none of them is usable."""
        if data is None:
            return cls(x=np.empty((0, len(space.lower))), skipped=0)
        is_legal = space.legal(data)
        if len(data) and not is_legal.any():
            raise DataError(
                f"none of the {len(data)} rows lies in the box and the schema's domain; widen the box, or search without a table"
            )
        return cls(x=np.unique(space.canonical(data[is_legal]), axis=0), skipped=int((~is_legal).sum()))

    def draw(self, space: Space, rng: np.random.Generator, count: int) -> tuple[Array, Integers]:
        """Return Rand(A): rows (count, V) drawn uniformly from the table or, without one, from the box."""
        if not len(self.x):
            return space.random(rng, count), np.full(count, -1)
        origin = rng.integers(len(self.x), size=count)
        return self.x[origin].copy(), origin


@dataclass(frozen=True, kw_only=True, eq=False)
class Mutation:
    """Gives new values to some features of x, one on average: nearby or anywhere in the range, with equal chance; categories
    anywhere.

    Candidates that the schema forbids are replaced by x itself.
    """

    space: Space

    def __call__(self, x: Array, origin: Integers, rng: np.random.Generator) -> tuple[Array, Integers]:
        space, free = self.space, self.space.free
        if not len(free):
            return x.copy(), origin
        picked = rng.random((len(x), len(free))) < 1 / len(free)
        picked[np.arange(len(x)), rng.integers(len(free), size=len(x))] = True
        row, position = np.nonzero(picked)
        variable = free[position]
        number = np.array([feature.numeric for feature in space.query.schema.features])[variable]
        uniform = space.uniform_values(rng, variable)
        nearby = self._small_step(x[row, variable], variable, rng)
        result = x.copy()
        result[row, variable] = np.where(number & (rng.random(len(row)) < 0.5), nearby, uniform)
        if space.query.schema.domain.forbidden is not None:
            illegal = ~space.legal(result)
            result[illegal] = x[illegal]
        return result, np.where((result == x).all(axis=1), origin, -1)

    def _small_step(self, value: Array, variable: Integers, rng: np.random.Generator) -> Array:
        """Return values a small step away, at least one unit for whole numbers, clipped to the box."""
        space = self.space
        low, high = space.lower[variable], space.upper[variable]
        step = SMALL_STEP * (high - low) * rng.standard_normal(len(value))
        whole = space.query.schema.domain.integer[variable]
        step = np.where(whole, np.copysign(np.maximum(np.rint(np.abs(step)), 1), step), step)
        return np.clip(value + step, low, high)


@dataclass(frozen=True, kw_only=True, eq=False)
class Nearest:
    """Moves to one of the nearest rows of the table, drawn uniformly (HyFair's KNN move).

    Distances are Euclidean on raw rows, numbers relative to their range, different categories at distance 1. The neighbours of a
    table row are looked up once: table (N, k), -1 where they are not known yet.
    """

    pool: Pool
    tree: NearestNeighbors
    scale: Array
    categories: tuple[tuple[int, int], ...]
    table: Integers

    @classmethod
    def of(cls, space: Space, pool: Pool) -> Nearest:
        """Return the move on a pool. Raises QueryError without at least two different rows to walk among."""
        if len(pool.x) < 2:
            raise QueryError(
                f"sa-knn walks among the rows of a table, and {len(pool.x)} different one(s) can be used; pass --data, or choose sa"
            )
        features = space.query.schema.features
        domain = space.query.schema.domain
        width = domain.upper - domain.lower
        number = np.array([feature.numeric for feature in features])
        scale = np.where(number & (width > 0), 1 / np.where(width > 0, width, 1.0), 0.0)
        scale[space.protected] = 0.0
        categories = tuple(
            (v, len(f.categories)) for v, f in enumerate(features) if f.categories is not None and v not in space.protected
        )
        from sklearn.neighbors import NearestNeighbors  # only this search needs it, and it takes a second to import

        k = min(MAX_NEIGHBOURS, len(pool.x) - 1)
        move = cls(
            pool=pool, tree=NearestNeighbors(n_neighbors=k + 1), scale=scale, categories=categories,
            table=np.full((len(pool.x), k), -1),
        )
        move.tree.fit(move._scaled(pool.x))
        return move

    def __call__(self, x: Array, origin: Integers, rng: np.random.Generator) -> tuple[Array, Integers]:
        known_rows = origin[origin >= 0]
        new = np.unique(known_rows[self.table[known_rows, 0] < 0])
        if len(new):
            self.table[new] = self._without_self(new, self._nearest(self.pool.x[new]))
        neighbours = self.table[np.maximum(origin, 0)]
        unknown = np.flatnonzero(origin < 0)  # rows that are not in the table, such as a solver's
        if len(unknown):
            neighbours = neighbours.copy()
            neighbours[unknown] = self._nearest(x[unknown])[:, : neighbours.shape[1]]
        chosen = neighbours[np.arange(len(x)), rng.integers(neighbours.shape[1], size=len(x))]
        return self.pool.x[chosen].copy(), chosen

    def _nearest(self, x: Array) -> Integers:
        return np.asarray(self.tree.kneighbors(self._scaled(x), return_distance=False), dtype=np.int64)

    @staticmethod
    def _without_self(rows: Integers, nearest: Integers) -> Integers:
        """Return (N, k) of the (N, k + 1) nearest: without the row itself, or without the farthest if the row is not among them."""
        is_self = nearest == rows[:, None]
        is_self[~is_self.any(axis=1), -1] = True
        return np.asarray(nearest[~is_self].reshape(len(nearest), -1))

    def _scaled(self, x: Array) -> Array:
        """Return points with the Euclidean distances above: a category becomes an indicator of length 1 / sqrt 2."""
        blocks = [np.eye(count)[x[:, v].astype(np.int64)] / np.sqrt(2) for v, count in self.categories]
        return np.concatenate([x * self.scale, *blocks], axis=1)


@dataclass(kw_only=True, eq=False)
class SolverSeeds:
    """Returns `count` rows (count, V): one from the solver for every `share` rows asked for, the others from the data.

    The paper asks its solver for a 2-discriminant near the last solution (Algorithm 1, lines 3 and 10). Here `verify` is asked for
    a decision flip by one protected feature in a random part of the box, so that seeds come from many regions.
    asked, found: number of questions to the solver, and of witnesses that it returned.
    """

    space: Space
    pool: Pool
    share: int = 64
    asked: int = 0
    found: int = 0
    _due: int = field(default=0, repr=False)

    def __call__(self, rng: np.random.Generator, count: int) -> Array:
        rows = self.pool.draw(self.space, rng, count)[0]
        self._due += count
        for slot in range(min(count, -(-self._due // self.share))):
            self._due -= self.share
            witness = self._witness(rows[slot], rng)
            if witness is not None:
                rows[slot] = witness
        return rows

    def _witness(self, around: Array, rng: np.random.Generator) -> Array | None:
        """Return a row (V,) near `around` whose decision flips when one protected feature changes, or None."""
        space, schema = self.space, self.space.query.schema
        flipped = int(rng.integers(len(space.protected)))
        lower, upper = self._part(around)
        lower[space.protected] = upper[space.protected] = space.combinations[rng.integers(len(space.combinations))]
        v = space.protected[flipped]
        lower[v] = space.lower[v] + rng.integers(int(space.upper[v] - space.lower[v]))  # two neighbouring values make one pair
        upper[v] = lower[v] + 1
        box: dict[str, Any] = {
            feature.name: (feature.word(low), feature.word(high))
            for feature, low, high in zip(schema.features, lower, upper, strict=True)
        }
        query = IndividualFairness(model=space.query.model, schema=schema, protected=[space.query.protected[flipped]], box=box)
        self.asked += 1
        verdict = verify(query, budget=SEED_BUDGET, method="bnb")
        if verdict.witness is None:
            return None
        self.found += 1
        return np.array([schema.raw_value(name, value) for name, value in verdict.witness.x.items()])

    def _part(self, around: Array) -> tuple[Array, Array]:
        """Return the ends (V,) of a part of the box around a row: its numbers within SEED_REACH, categories as they are."""
        space = self.space
        number = np.array([feature.numeric for feature in space.query.schema.features])
        radius = np.where(number, SEED_REACH * (space.upper - space.lower), 0.0)
        radius = np.where(space.query.schema.domain.integer, np.floor(radius), radius)
        return np.maximum(space.lower, around - radius), np.minimum(space.upper, around + radius)
