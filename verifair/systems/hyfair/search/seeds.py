"""Solver-seeded starts of the search: exact witnesses of unfair decisions (Algorithm 1, lines 3 and 10).

The paper asks its solver for a 2-discriminant near the last solution. Here `verify` is asked for a decision flip by one
protected feature in a random part of the box, which differs from call to call, so that seeds come from many regions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from encoders.network import Array
from solvers.outcome import Budget
from verifair.engine.queries import IndividualFairness
from verifair.engine.verify import verify
from verifair.systems.hyfair.search.neighbours import Pool
from verifair.systems.hyfair.search.space import Space

REACH = 0.25
"""Of a feature's range, to either side of a random row: the part of the box that the solver is asked about."""
BUDGET = Budget(seconds=10.0, nodes=64)
"""For one question: it is the nodes that end a hard one, so that the same seed gives the same rows."""


@dataclass(kw_only=True, eq=False)
class SolverSeeds:
    """Gives `count` rows (count, V): one from the solver for every `share` rows asked for, the others from the data.

    asked, found: how many questions were put to the solver, and how many it answered with a witness.
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
        """A row (V,) near `around` whose decision flips when one protected feature changes, or None."""
        space, schema = self.space, self.space.query.schema
        flipped = int(rng.integers(len(space.protected)))
        lower, upper = self._part(around)
        lower[space.protected] = upper[space.protected] = space.combinations[rng.integers(len(space.combinations))]
        v = space.protected[flipped]
        lower[v] = space.lower[v] + rng.integers(int(space.upper[v] - space.lower[v]))  # two neighbouring values: one pair
        upper[v] = lower[v] + 1
        box: dict[str, Any] = {
            feature.name: (feature.word(low), feature.word(high))
            for feature, low, high in zip(schema.features, lower, upper, strict=True)
        }
        query = IndividualFairness(network=space.query.network, schema=schema, protected=[space.query.protected[flipped]], box=box)
        self.asked += 1
        verdict = verify(query, budget=BUDGET, method="bnb")
        if verdict.witness is None:
            return None
        self.found += 1
        return np.array([schema.raw_value(name, value) for name, value in verdict.witness.x.items()])

    def _part(self, around: Array) -> tuple[Array, Array]:
        """Ends (V,) of the part of the box around a row: its numbers within REACH, categories as they are."""
        space = self.space
        number = np.array([feature.numeric for feature in space.query.schema.features])
        reach = np.where(number, REACH * (space.upper - space.lower), 0.0)
        reach = np.where(space.query.schema.domain.integer, np.floor(reach), reach)
        return np.maximum(space.lower, around - reach), np.minimum(space.upper, around + reach)
