"""The k-center of FGCE on the shipped tables: groups and candidates that grow, full coverage and three quarters of it.

Graphs are over rows drawn from the table, decisions those of the shipped network. Factuals are drawn from the negatives of the
larger group of sex that can reach some positive, candidates from the positives that some of them reach. eps is larger than the
paper's, so that graphs on fewer rows are as dense as theirs. k is one more than the least that suffices.
"""

from __future__ import annotations

import itertools
from functools import lru_cache, partial

import numpy as np

from encoders.arrays import Integers
from verifair import datasets
from verifair.bench.cases.family import Family, generator
from verifair.bench.cases.shipped import SENSITIVE, shipped
from verifair.bench.questions import CenterQuestion
from verifair.engine.questions import decisions
from verifair.systems.fgce.graph.feasibility_graph import FeasibilityGraph
from verifair.systems.fgce.graph.reachability import Reachability
from verifair.systems.fgce.instance import Instance
from verifair.systems.fgce.optimum.center import fewest, needed
from verifair.systems.fgce.optimum.cover import largest_coverage
from verifair.systems.fgce.space import FeatureSpace

ROWS = 2500
"""Nodes of a graph at most: seconds to build, enough for the sizes below."""
EPS = {"german": 3.2, "adult": 1.5}
SIZES = {"german": (10, 20, 40, 80), "adult": (20, 40, 80, 160)}
CANDIDATES = 2
"""Candidates for each factual."""
PART = 0.75


def families() -> list[Family]:
    result = []
    for name, sizes in SIZES.items():
        for coverage, label, words in ((1.0, "center", "all"), (PART, "part", f"{PART:.0%}")):
            result.append(
                Family(
                    name=f"{label}-{name}", kind="center", about=f"k-center of {name}'s negatives, {words} of them covered",
                    size_is="factuals", sizes=sizes, count=1, build=partial(_build, name, coverage),
                )
            )
    return result


def _build(name: str, coverage: float, size: int, number: int, seed: int) -> CenterQuestion:
    graph, reach, negatives, positives = _graph(name, seed)
    rng = generator(f"center {name} {size}", number, seed)
    factuals = np.sort(rng.choice(negatives, size=min(size, len(negatives)), replace=False))
    reachable = positives[reach.reaches(factuals, positives).any(axis=0)]
    candidates = np.sort(rng.choice(reachable, size=min(CANDIDATES * size, len(reachable)), replace=False))
    instance = Instance.of(graph, reach, factuals, candidates, group=f"{name} {size}")
    return CenterQuestion(instance=instance, k=1 + _fewest(instance, coverage), coverage=coverage)


def _fewest(instance: Instance, coverage: float) -> int:
    if coverage == 1:
        return fewest(instance)[0]
    return next(k for k in itertools.count(1) if largest_coverage(instance, k, np.inf).covered >= needed(instance, coverage))


@lru_cache
def _graph(name: str, seed: int) -> tuple[FeasibilityGraph, Reachability, Integers, Integers]:
    """Return the graph, and its nodes: negatives of the larger group, and all positives, with at least one edge."""
    data = shipped(name)
    raw = data.schema.raw(datasets.load(name).frame)
    if len(raw) > ROWS:
        raw = raw[np.sort(generator(f"graph {name}", 0, seed).choice(len(raw), size=ROWS, replace=False))]
    graph = FeasibilityGraph.build(FeatureSpace.of(data.schema), raw, EPS[name], threads=1)
    positive = decisions(data.network, data.schema.encode(raw)) == 1
    group = raw[:, data.schema.index(SENSITIVE)]
    values, counts = np.unique(group, return_counts=True)
    larger = group == values[counts.argmax()]
    reach = Reachability.of(graph)
    negatives = np.flatnonzero(~positive & larger)
    positives = np.flatnonzero(positive)
    has_recourse = reach.reaches(negatives, positives).any(axis=1)
    return graph, reach, negatives[has_recourse], positives
