"""2-fairness on boxes that open around a row of the shipped data: no decision flips, or no probability gap above epsilon.

Size n opens n features, numbers first, each over its whole declared range; the others keep the row's values. Even numbers take a
row of which the network is sure (of a tenth of them), so that small boxes are fair; odd ones take any row.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from encoders.problem import TwinProblem
from verifair.bench.family import Family, generator
from verifair.bench.questions import Decision
from verifair.bench.shipped import SENSITIVE, Shipped, shipped
from verifair.engine.queries import IndividualFairness
from verifair.engine.questions import Pairs, goals_of, twin_problem

EPSILON = 0.1
SIZES = {"german": (2, 5, 9), "adult": (2, 4, 7)}
SIZE = "features that are open"


def families() -> list[Family]:
    flips = [
        Family(
            name=f"fair-{name}", kind="decision", about=f"2-fairness (no decision flips with {SENSITIVE}) around rows of {name}",
            size_is=SIZE, sizes=sizes, count=2, build=partial(_build, name, None),
        )
        for name, sizes in SIZES.items()
    ]  # fmt: skip
    gaps = [
        Family(
            name=f"gap-{name}", kind="decision", about=f"no probability gap above {EPSILON} with {SENSITIVE} around rows of {name}",
            size_is=SIZE, sizes=sizes, count=1, build=partial(_build, name, EPSILON),
        )
        for name, sizes in SIZES.items()
    ]  # fmt: skip
    return [*flips, *gaps]


def _build(name: str, epsilon: float | None, size: int, number: int, seed: int) -> Decision:
    data = shipped(name)
    rows = data.sure if number % 2 == 0 else data.eligible
    row = int(generator(f"fairness {name}", number, seed).choice(rows))
    return Decision(problem=_problem(data, row, size, epsilon))


def _problem(data: Shipped, row: int, size: int, epsilon: float | None) -> TwinProblem:
    schema = data.schema
    others = [feature.name for feature in schema.features if feature.name != SENSITIVE]
    numbers = [name for name in others if schema[name].kind == "integer"]
    open_ = [*numbers, *(name for name in others if name not in numbers)][:size]
    raw = data.table.raw[row]
    lower, upper = schema.domain.lower, schema.domain.upper
    query = IndividualFairness(network=data.network, schema=schema, protected=[SENSITIVE], epsilon=epsilon)
    free = np.isin(np.arange(len(raw)), [schema.index(name) for name in [*open_, SENSITIVE]])
    low, high = np.where(free, lower, raw), np.where(free, upper, raw)
    batch, _, _ = Pairs.of(query, low, high).batch(schema.domain, low[None], high[None], (low, high))
    return twin_problem(query, batch, goals_of(query))
