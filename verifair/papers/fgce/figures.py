"""Figures 2 to 4 and 6 to 8 of the FGCE paper as tables.

`components`: figures 2 and 6, factuals and candidates of each weak component.   `attributes`: figures 3 and 7, ACF at k0 and d0.
`face`: figures 4 and 8, what FGCE's k counterfactuals cost on average beside the best of each person (FACE), as vector distance and
as weighted path, both groups together. Each k covers as many as k can, at the least largest distance.
The figures' values are not printed in the paper; what its text says of them stands in `docs/measured/fgce-paper.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from verifair.papers.fgce.data import CONFIDENT, PaperData, audits, classifier
from verifair.papers.fgce.tables import BUDGET, KS
from verifair.systems.fgce.graph.density import edge_weights
from verifair.systems.fgce.graph.feasibility_graph import FeasibilityGraph
from verifair.systems.fgce.graph.reachability import Reachability
from verifair.systems.fgce.instance import Instance
from verifair.systems.fgce.measures.changes import assignment, change_frequency
from verifair.systems.fgce.optimum.center import centers, fewest
from verifair.systems.fgce.optimum.cover import largest_coverage


def components(data: PaperData) -> pd.DataFrame:
    """Factuals and candidates of each weak component of each group."""
    return pd.DataFrame([
        {"dataset": data.name, "group": name, "component": number, "X": len(block.factuals), "X'": len(block.candidates)}
        for name, instance in zip(data.groups, audits(data), strict=True)
        for number, block in enumerate(sorted(instance.blocks, key=lambda b: -len(b.factuals)), start=1)
    ])


def attributes(data: PaperData) -> pd.DataFrame:
    """ACF of each group with k0 counterfactuals at d0, features changed for more than half of one group first."""
    shares: dict[str, pd.Series] = {}
    for group, (name, instance) in enumerate(zip(data.groups, audits(data), strict=True)):
        solution = centers(instance, fewest(instance)[0], budget=BUDGET)
        raw = data.raw[np.flatnonzero(data.group == group)]
        assigned, _ = assignment(instance, solution.chosen, solution.cost)
        shares[name] = change_frequency(data.space, raw, instance.factuals, assigned)
    table = pd.DataFrame(shares).rename_axis("feature").reset_index()
    table = table.iloc[table[list(shares)].max(axis=1).sort_values(ascending=False, kind="stable").index]
    table.insert(0, "dataset", data.name)
    return table.assign(shown=table[list(shares)].max(axis=1) > 0.5).reset_index(drop=True)


def face(data: PaperData) -> pd.DataFrame:
    """One line for each k: mean costs of those covered, FGCE's beside FACE's."""
    probability = classifier(data).predict_proba(data.frame)[:, 1]
    test = data.split[1]
    graph = FeasibilityGraph.build(data.space, data.raw[test], data.eps)
    reach = Reachability.of(graph)
    false_negatives = np.flatnonzero((probability[test] <= 0.5) & (data.target[test] == 1))
    candidates = np.flatnonzero(probability[test] > CONFIDENT)
    straight = Instance.of(graph, reach, false_negatives, candidates)
    paths = Instance.of(graph, reach, false_negatives, candidates, cost="path", weights=edge_weights(graph, "inverse", "scott"))
    return pd.DataFrame(_face(data.name, straight, paths))


def _face(name: str, straight: Instance, paths: Instance) -> Iterator[dict[str, Any]]:
    best = {"L2": straight.nearest, "W": paths.nearest}
    for k in KS:
        coverage = largest_coverage(straight, k, np.inf, budget=BUDGET)
        solution = centers(straight, k, coverage.covered / straight.size, budget=BUDGET)
        covered = assignment(straight, solution.chosen, solution.cost)[0] >= 0
        line: dict[str, Any] = {"dataset": name, "k": k, "coverage": float(covered.mean()), "optimal": solution.optimal}
        for kind, instance in (("L2", straight), ("W", paths)):
            costs = instance.to(solution.chosen).min(axis=1)[covered]
            line |= {f"FGCE {kind}": float(costs.mean()), f"FACE {kind}": float(best[kind][covered].mean())}
        yield line
