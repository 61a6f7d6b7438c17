"""Tables I and II of the HyFair paper: discriminatory instances by solver, and the searches for the largest k."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from encoders.network import Array
from solvers.outcome import Budget
from verifair.engine.counterexamples import counterexamples
from verifair.engine.queries import IndividualFairness, KDiscrimination
from verifair.papers.catalog import Request
from verifair.papers.hyfair.data import question
from verifair.papers.hyfair.printed import table_1, table_2
from verifair.schema.schema import Schema
from verifair.systems.hyfair.search.annealing import METHODS, search_clusters
from verifair.systems.hyfair.search.space import Space

SOLVERS = {"bnb": ("bnb", None), "milp": ("milp", "highs"), "smt": ("smt", "z3")}
"""What table I calls a solver here -> method and backend."""
EPSILON = 0.05
ALL = 10**9
"""A search does not end at the largest k: what it meets there is counted."""
MOST = 1_000_000
"""People listed at most: more than any time limit allows."""


def instances(request: Request) -> pd.DataFrame:
    """Table I: people with a gap above epsilon, by solver, in the same time; k of the first one and the largest k of all.

    Protected are Fairify's attributes: of Adult race and sex, of Bank age.
    """
    asked = question(request)
    protected = tuple(name for name in asked.protected if name in asked.schema.protected_names)
    space = Space.of(KDiscrimination(network=asked.network, schema=asked.schema, protected=protected))
    query = IndividualFairness(network=asked.network, schema=asked.schema, protected=protected, epsilon=EPSILON, differ="any")
    lines: list[dict[str, Any]] = []
    for name, (method, solver) in SOLVERS.items():
        budget = Budget(seconds=request.seconds, seed=request.seed)
        found = counterexamples(query, MOST, budget=budget, method=method, solver=solver)
        k = space.count(_rows(asked.schema, [one.x for one in found.found])) if found.found else np.empty(0)
        lines.append({
            "network": request.dataset, "method": name, "#ID": len(found.found), "T.1st": found.first_seconds,
            "k of the first": float(k[0]) if len(k) else np.nan, "largest k": float(k.max()) if len(k) else np.nan,
        })
    ours = pd.DataFrame(lines).astype({"T.1st": float})
    return ours.merge(table_1(), how="left", on=["network", "method"])


def searches(request: Request) -> pd.DataFrame:
    """Table II: random walk, annealing, and annealing among neighbours, in the same time."""
    asked, lines = question(request), list[dict[str, Any]]()
    query = KDiscrimination(network=asked.network, schema=asked.schema, protected=asked.protected, values=asked.values)
    for method in METHODS:
        found = search_clusters(query, method=method, data=asked.rows, seconds=request.seconds, seed=request.seed, enough=ALL)
        s = found.statistics
        lines.append({
            "network": request.dataset, "search": method, "iterations": s.iterations, "rows": s.rows, "Max.K": found.k,
            "Avg.K": s.mean_k, "T.1st": s.first_seconds, "#ID": s.instances, "Succ.rate": 100 * s.success_rate,
            "#ID.maxK": s.at_best, "T.maxK": s.best_seconds,
        })
    return pd.DataFrame(lines).astype({"T.1st": float}).merge(table_2(), how="left", on=["network", "search"])


def _rows(schema: Schema, people: list[dict[str, Any]]) -> Array:
    return np.array([[schema.raw_value(feature.name, x[feature.name]) for feature in schema.features] for x in people])
