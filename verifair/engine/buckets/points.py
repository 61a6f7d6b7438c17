"""Search for points of a kmax query that hit many buckets: float64 guides the search, exact arithmetic counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from encoders.bounds.copies import Copies, Thresholds
from encoders.buckets import buckets_of
from encoders.evaluate import at_once
from encoders.probability.shares import probabilities
from solvers import clock
from verifair.engine.buckets.bounds import different
from verifair.engine.buckets.tree_copies import TreeCopies
from verifair.engine.search.boxes import uniform

EVALUATED = 1 << 16
"""Copies evaluated at once."""
POPULATION, CHILDREN, PATIENCE = 64, 256, 12
CONFIRMED = 4
"""The most points, of those that seem better than all before, that are decided exactly, best first."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Point:
    """A raw point x (V,), evaluated exactly (of smooth models, in ball arithmetic).

    counted: (K,) True for copies that are legal rows.   buckets: (K, 2) the least and the largest possible bucket (`buckets_of`).
    """

    x: Array
    counted: Booleans
    buckets: Integers

    @property
    def decided(self) -> Booleans:
        """(K,) True for counted copies whose bucket is known."""
        return np.asarray(self.counted & (self.buckets[:, 0] == self.buckets[:, 1]))

    @property
    def k(self) -> int:
        """The least number of buckets hit."""
        return int(different(self.buckets[None, :, 0], self.decided[None])[0])

    @property
    def most(self) -> int:
        """The largest number of buckets hit: each copy with an unknown bucket may hit a further one."""
        return self.k + int((self.counted & ~self.decided).sum())

    @classmethod
    def at(cls, copies: Copies | TreeCopies, thresholds: Thresholds, x: Array, counted: Booleans | None = None) -> Point:
        """Evaluate a point. counted: None for the copies that are legal rows."""
        rows = copies.rows(x[None])[0]
        legal = copies.domain.legal(rows) if counted is None else counted
        return cls(x=x, counted=legal, buckets=buckets_of(copies.network, copies.domain.encode(rows), thresholds.buckets))


class PointSearch:
    """Search for points that hit many buckets: random points, then mutations of the best. `best`: the best, evaluated exactly.

    deadline: by clock.now(), past which no further points are evaluated.
    """

    def __init__(
        self, copies: Copies | TreeCopies, thresholds: Thresholds, box: tuple[Array, Array], seed: int, deadline: float
    ) -> None:
        self.copies, self.thresholds = copies, thresholds
        self.lower, self.upper = box
        self.deadline = deadline
        self.random = np.random.default_rng(seed)
        self.best: Point | None = None
        self.pool = np.empty((0, len(self.lower)))
        self.fitness = np.empty(0)
        self.whole = copies.domain.integer
        self.idle = 0

    @property
    def k(self) -> int:
        return 0 if self.best is None else self.best.k

    def uniform(self, count: int) -> Array:
        """Return random points (count, V) of the box."""
        return uniform(self.random, np.tile(self.lower, (count, 1)), np.tile(self.upper, (count, 1)), self.whole)

    def look(self, raw: Array) -> None:
        """Evaluate raw points (N, V) of the box; the best enter the pool, and those better than all before are decided exactly."""
        step = max(1, at_once(self.copies.network, EVALUATED) // len(self.copies))
        for start in range(0, len(raw), step):
            if start and clock.now() > self.deadline:
                return
            self._look(raw[start : start + step])

    def _look(self, raw: Array) -> None:
        counted = self.copies.possible(raw, raw)
        logits = self.copies.evaluate(raw)
        buckets = np.searchsorted(self.thresholds.lower, logits, side="left")
        count = different(buckets, counted)
        candidates = np.flatnonzero(count > self.k)
        for n in candidates[np.argsort(-count[candidates], kind="stable")][:CONFIRMED]:
            if count[n] > self.k:
                point = Point.at(self.copies, self.thresholds, raw[n])
                if point.k > self.k:
                    self.best = point
        promising = np.argsort(-count, kind="stable")[: 2 * CHILDREN]
        nearness = self._nearness(logits[promising], buckets[promising], counted[promising])
        self._keep(raw[promising], count[promising] + nearness)

    def _nearness(self, logits: Array, buckets: Integers, counted: Booleans) -> Array:
        """Return (N,) in [0, 1], larger the less probability is missing until a copy that shares its bucket with another hits a
        new one."""
        total, row = self.thresholds.buckets, np.arange(len(logits))[:, None]
        hits = np.zeros((len(logits), total), dtype=np.int64)
        np.add.at(hits, (row, buckets), counted)
        spare = counted & (hits[row, buckets] > 1)
        probability = probabilities(self.copies.network, logits)
        missing = np.ones(len(logits))
        for k in range(total):
            distance = np.maximum(k / total - probability, probability - (k + 1) / total)
            nearest = np.where(spare, np.maximum(distance, 0.0), 1.0).min(axis=1)
            missing = np.where(hits[:, k] == 0, np.minimum(missing, nearest), missing)
        return 1 - missing

    def _keep(self, raw: Array, fitness: Array) -> None:
        pool, first = np.unique(np.concatenate([self.pool, raw]), axis=0, return_index=True)
        scores = np.concatenate([self.fitness, fitness])[first]
        order = np.argsort(-scores, kind="stable")[:POPULATION]
        self.pool, self.fitness = pool[order], scores[order]

    def mutate(self) -> None:
        """Run one generation: mutate the pool in a few features each, near or anywhere in the box. A pool that no longer improves
        is thrown away: a new start may reach points that this one cannot."""
        if self.idle >= PATIENCE:
            self.pool, self.fitness, self.idle = self.pool[:0], self.fitness[:0], 0
            self.look(self.uniform(2 * CHILDREN))
        previous = self.fitness[0]
        parents = self.pool[self.random.integers(0, len(self.pool), CHILDREN)]
        uniform = self.uniform(CHILDREN)
        reach = (self.upper - self.lower) * 10.0 ** self.random.uniform(-3, 0, (CHILDREN, 1))
        nearby = parents + self.random.standard_normal(parents.shape) * np.maximum(reach, np.where(self.whole, 1.0, 0.0))
        nearby = np.clip(np.where(self.whole, np.round(nearby), nearby), self.lower, self.upper)
        mates = self.pool[self.random.integers(0, len(self.pool), CHILDREN)]
        kind = self.random.integers(0, 3, (CHILDREN, 1))
        changed = np.select([kind == 0, kind == 1], [uniform, nearby], default=mates)
        share = np.where(kind == 2, 0.5, 2.0 / max(1, int((self.upper > self.lower).sum())))
        self.look(np.where(self.random.random(parents.shape) < share, changed, parents))
        self.idle = 0 if self.fitness[0] > previous + 1e-4 else self.idle + 1
