"""Figures 2 to 4 and 6 to 8 of the FGCE paper as tables, and every table and figure of it by its number.

`components`: figures 2 and 6, factuals and candidates of each weak component.   `attributes`: figures 3 and 7, ACF at k0 and d0.
`face`: figures 4 and 8, what FGCE's k counterfactuals cost on average beside the best of each person (FACE), as vector distance and
as weighted path, both groups together. Each k covers as many as k can, at the least largest distance.
The figures' values are not printed in the paper; what its text says of them stands in `docs/measured/fgce-paper.md`.

    python -m benchmarks.run fgce_figures --names Student COMPAS        some of the datasets
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.fgce.baselines import compared
from benchmarks.fgce.data import CONFIDENT, LOADERS, PaperData, audits, classifier, load
from benchmarks.fgce.graphs import curve, groups
from benchmarks.fgce.tables import BUDGET, KS, burden_table, cauc_table, dauc_table, kauc_table
from benchmarks.shared import data_folder, show
from verifair.systems.fgce.graph.density import edge_weights
from verifair.systems.fgce.graph.feasibility_graph import FeasibilityGraph
from verifair.systems.fgce.graph.reachability import Reachability
from verifair.systems.fgce.instance import Instance
from verifair.systems.fgce.measures import assignment, change_frequency
from verifair.systems.fgce.optimum.center import centers, fewest
from verifair.systems.fgce.optimum.cover import largest_coverage

LARGE = ("Adult",)
"""Left out of figures 4 and 8 unless named: densities of 8 million edges."""


def run(folder: Path, *, names: Sequence[str] = tuple(name for name in LOADERS if name not in LARGE)) -> list[pd.DataFrame]:
    chosen = [load(name, data_folder()) for name in LOADERS if name in names]
    return [
        show(title, pd.concat([make(data) for data in chosen], ignore_index=True), folder)
        for title, make in {
            "FGCE components: figures 2 and 6": components, "FGCE attributes: figures 3 and 7": attributes,
            "FGCE beside FACE: figures 4 and 8": face,
        }.items()
    ]


def components(data: PaperData) -> pd.DataFrame:
    """Factuals and candidates of each weak component of each group."""
    return pd.DataFrame([
        {"dataset": data.name, "group": name, "component": number, "X": len(block.factuals), "X'": len(block.candidates)}
        for name, instance in zip(data.groups, audits(data), strict=True)
        for number, block in enumerate(sorted(instance.blocks, key=lambda one: -len(one.factuals)), start=1)
    ])


def attributes(data: PaperData) -> pd.DataFrame:
    """ACF of each group with k0 counterfactuals at d0, features changed for more than half of one group first."""
    shares: dict[str, pd.Series] = {}
    for group, (name, instance) in enumerate(zip(data.groups, audits(data), strict=True)):
        found = centers(instance, fewest(instance)[0], budget=BUDGET)
        raw = data.raw[np.flatnonzero(data.group == group)]
        assigned, _ = assignment(instance, found.chosen, found.cost)
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
    known = Reachability.of(graph)
    missed = np.flatnonzero((probability[test] <= 0.5) & (data.target[test] == 1))
    offered = np.flatnonzero(probability[test] > CONFIDENT)
    straight = Instance.of(graph, known, missed, offered)
    paths = Instance.of(graph, known, missed, offered, cost="path", weights=edge_weights(graph, "inverse", "scott"))
    return pd.DataFrame(_face(data.name, straight, paths))


def _face(name: str, straight: Instance, paths: Instance) -> Iterator[dict[str, Any]]:
    best = {kind: np.concatenate([block.cost.min(axis=1) for block in one.blocks])
            for kind, one in (("L2", straight), ("W", paths))}
    for k in KS:
        most = largest_coverage(straight, k, np.inf, budget=BUDGET)
        found = centers(straight, k, most.covered / straight.size, budget=BUDGET)
        served = assignment(straight, found.chosen, found.cost)[0] >= 0
        line: dict[str, Any] = {"dataset": name, "k": k, "coverage": float(served.mean()), "optimal": found.optimal}
        for kind, one in (("L2", straight), ("W", paths)):
            paid = one.to(found.chosen).min(axis=1)[served]
            line |= {f"FGCE {kind}": float(paid.mean()), f"FACE {kind}": float(best[kind][served].mean())}
        yield line


PRINTED: dict[str, Callable[[PaperData], pd.DataFrame]] = {
    "table I": groups, "table II": burden_table, "table III": kauc_table, "table IV": dauc_table, "table V": cauc_table,
    "table VI": compared, "table VII": groups, "table VIII": burden_table, "table IX": kauc_table, "table X": dauc_table,
    "table XI": cauc_table, "figure 1": curve, "figure 2": components, "figure 3": attributes, "figure 4": face, "figure 5": curve,
    "figure 6": components, "figure 7": attributes, "figure 8": face,
}
"""What the paper prints -> what makes it again, of one dataset."""
EXTENDED = ("table VII", "table VIII", "table IX", "table X", "table XI", "figure 5", "figure 6", "figure 7", "figure 8")


def datasets_of(printed: str) -> tuple[str, ...]:
    """Return the datasets that a table or figure of the paper is about."""
    if printed == "table VI":
        return ("Student", "COMPAS")
    return ("German", "HELOC") if printed in EXTENDED else ("Student", "COMPAS", "Adult")
