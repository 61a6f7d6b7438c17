"""The feasibility graphs of the FGCE paper, beside its tables I and VII and figures 1 and 5.

`groups`: each group's subgraph at the paper's eps; densities are cut off after two digits, as the paper's are. Its column COMPAS is
HELOC at eps 0.7, and stands here under that name.
`curve`: the whole graph over eps, the grids of the authors' notebooks (Adult's without what is beyond 0.6).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from verifair.papers.fgce.data import PaperData
from verifair.papers.fgce.printed import COMPAS_IS_HELOC_AT, FIGURE_1_STUDENT, TABLE_I, TABLE_VII, GraphCounts
from verifair.systems.fgce.graph.feasibility_graph import FeasibilityGraph
from verifair.systems.fgce.graph.reachability import GraphStatistics

CURVES = {
    "Student": (0.1, 0.7, 1.3, 1.8, 2.4, 3.0, 3.6, 4.2, 4.7),
    "COMPAS": (0.1, 0.3, 0.5, 0.7, 0.9, 1.1, 1.3, 1.5),
    "Adult": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6),
    "German": (0.1, 0.9, 1.3, 1.7, 2.1, 2.5, 2.9, 3.3, 3.7),
    "HELOC": (0.1, 0.5, 0.9, 1.3, 1.7, 2.1, 2.5),
}


def groups(data: PaperData) -> pd.DataFrame:
    """Table I or VII of one dataset, beside the paper's."""
    return pd.DataFrame(_groups(data))


def curve(data: PaperData) -> pd.DataFrame:
    """Figure 1 or 5 of one dataset: connectivity over eps."""
    return pd.DataFrame(_curve(data))


def group_counts(data: PaperData, eps: float) -> tuple[GraphStatistics, GraphStatistics]:
    """Of the subgraphs that G0 and G1 induce."""
    g0, g1 = (GraphStatistics.of(FeasibilityGraph.build(data.space, data.raw[data.group == group], eps)) for group in (0, 1))
    return g0, g1


def cut(density: float) -> float:
    """As the paper prints it."""
    return float(np.floor(density * 100 + 1e-9) / 100)


def _groups(data: PaperData) -> Iterator[dict[str, Any]]:
    table = None if data.name == "COMPAS" else {**TABLE_I, **TABLE_VII}[data.name]
    printed = {data.name: (data.eps, table)}
    if data.name == "HELOC":
        printed["HELOC, table I's COMPAS"] = (COMPAS_IS_HELOC_AT, TABLE_I["COMPAS"])
    for name, (eps, paper) in printed.items():
        for group, ours in enumerate(group_counts(data, eps)):
            printed_group = paper[group] if paper else None
            yield {
                "dataset": name, "eps": eps, "group": data.groups[group], "nodes": ours.nodes, "strong": ours.strong,
                "weak": ours.weak, "density %": ours.density, "paper's": _text(printed_group),
                "agree": "-" if printed_group is None else _text(ours) == _text(printed_group),
            }


def _text(counts: GraphCounts | GraphStatistics | None) -> str:
    return f"{counts.nodes} / {counts.strong} / {counts.weak} / {cut(counts.density):.2f}" if counts else "not printed"


def _curve(data: PaperData) -> Iterator[dict[str, Any]]:
    for eps in CURVES[data.name]:
        graph = FeasibilityGraph.build(data.space, data.raw, eps)
        statistics = GraphStatistics.of(graph)
        printed = FIGURE_1_STUDENT[eps] if data.name == "Student" else None
        yield {
            "dataset": data.name, "eps": eps, "alone": int(graph.alone.sum()), "connected %": 100 * float(np.mean(~graph.alone)),
            "strong": statistics.strong, "weak": statistics.weak, "density %": statistics.density,
            "authors': strong, weak, density %": f"{printed[0]} {printed[1]} {printed[3]:.4g}" if printed else "figure only",
        }
