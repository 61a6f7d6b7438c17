"""Tables II to V and VIII to XI of the FGCE paper recomputed, cell by cell beside the printed ones.

`burden`: k0, d0 (II, VIII), and the same with everybody who is decided positively as a candidate. `kauc` (III, IX) and `dauc`
(IV, X): coverage by exact maximum coverage, with greedy's beside it (the paper's are greedy's). `cauc` (V, XI).

What the paper leaves open was inferred from its numbers. Costs of kAUC begin at 70 % of the larger d0 and go on in the steps of
dAUC's up to the largest cost possible. cAUC runs over the k that serve every coverage of both groups, and is over the least cost
of any group at any coverage (the text has: at this coverage).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import auc

from encoders.arrays import Array
from solvers.outcome import Budget
from verifair.papers.fgce.data import PaperData, audits
from verifair.papers.fgce.printed import TABLE_II, TABLE_VIII, TABLES_III_IX, TABLES_IV_X, TABLES_V_XI
from verifair.systems.fgce.instance import Instance
from verifair.systems.fgce.measures.curves import cost_table, coverage_table, curves, paper_levels, reach

KS = range(1, 11)
BUDGET = Budget(seconds=60.0)
"""Limits for each optimum."""
Pair = tuple[Instance, Instance]


def burden_table(data: PaperData) -> pd.DataFrame:
    """Table II or VIII of one dataset: k0 and d0 of both groups, beside the paper's."""
    return pd.DataFrame(_burden(data, audits(data)))


def kauc_table(data: PaperData) -> pd.DataFrame:
    """Table III or IX of one dataset, cell by cell beside the paper's."""
    pair = audits(data)
    d0 = max(reach(instance, budget=BUDGET).d0 for instance in pair)
    return areas(data, coverages(data, pair, "kauc", d0), "d")


def dauc_table(data: PaperData) -> pd.DataFrame:
    """Table IV or X of one dataset, cell by cell beside the paper's."""
    return areas(data, coverages(data, audits(data), "dauc", np.inf), "k")


def cauc_table(data: PaperData) -> pd.DataFrame:
    """Table V or XI of one dataset, cell by cell beside the paper's."""
    return _costareas(data, audits(data))


def coverages(data: PaperData, pair: Pair, name: str, d0: float) -> list[pd.DataFrame]:
    """Coverage of both groups at the costs of kAUC (for which d0 counts) or dAUC."""
    levels = dauc_costs(data)
    if name == "kauc":
        levels = paper_levels(data.space, d0, float(np.diff(levels)[0]))
    return [coverage_table(instance, KS, levels.tolist(), budget=BUDGET) for instance in pair]


def dauc_costs(data: PaperData) -> Array:
    """Ten levels from 0.1 in steps of a tenth of what is possible, to one digit."""
    step = round((data.space.paper_cost - 0.1) / 10, 1)
    return np.round(0.1 + step * np.arange(10), 1)


def _burden(data: PaperData, pair: Pair) -> Iterator[dict[str, Any]]:
    everyone = audits(data, whole=True)
    for group, paper in enumerate({**TABLE_II, **TABLE_VIII}[data.name]):
        started = time.perf_counter()
        ours = reach(pair[group], budget=BUDGET)
        seconds = time.perf_counter() - started
        overall = reach(everyone[group], budget=BUDGET)
        yield {
            "dataset": data.name, "group": data.groups[group], "X": pair[group].size, "components": len(pair[group].blocks),
            "hopeless": len(pair[group].hopeless), "candidates": len(pair[group].columns), "k0": ours.k0, "paper's k0": paper.k0,
            "d0": ours.d0, "paper's d0": paper.d0, "optimal": ours.optimal, "s": seconds,
            "all: X": everyone[group].size, "all: k0": overall.k0, "all: d0": overall.d0, "all: optimal": overall.optimal,
        }


def areas(data: PaperData, tables: Sequence[pd.DataFrame], along: str) -> pd.DataFrame:
    """Cells of kAUC (along d) or dAUC (along k), beside the paper's."""
    index, printed = ("k", TABLES_III_IX) if along == "d" else ("d", TABLES_IV_X)
    parts = []
    for group, table in enumerate(tables):
        paper = printed[(printed["dataset"] == data.name) & (printed["group"] == group)].set_index(index)
        exact, greedy = (curves(table, along, kind).set_index(index) for kind in ("coverage", "greedy"))
        cells = pd.DataFrame({
            "sp": exact["saturation"], "paper's sp": paper["sp"],
            "coverage": exact["largest"], "paper's coverage": paper["coverage"],
            "auc": exact["score"], "greedy's auc": greedy["score"], "paper's auc": paper["auc"],
        })
        cells.insert(0, "group", group)
        parts.append(cells.reset_index())
    result = pd.concat(parts, ignore_index=True)
    result.insert(0, "dataset", data.name)
    return result


def _costareas(data: PaperData, pair: Pair) -> pd.DataFrame:
    """Cells of cAUC, beside the paper's. The paper does not give its k: at least 10, or as far as its saturation points lie."""
    printed = TABLES_V_XI[TABLES_V_XI["dataset"] == data.name]
    ks = range(1, max(10, int(printed["sp"].max())) + 1)
    coverages = sorted(printed["c"].unique())
    tables = [cost_table(instance, ks, coverages, budget=BUDGET) for instance in pair]
    costs = pd.concat([table.assign(group=group) for group, table in enumerate(tables)]).pivot(
        index="k", columns=["group", "c"], values="cost"
    )
    finite = costs[np.isfinite(costs).all(axis=1)]
    floor = float(finite.min().min()) * (finite.index[-1] - finite.index[0])
    optimal = pd.concat(tables)["optimal"].all()
    lines = []
    for cell in printed.itertuples():
        cost = costs[(cell.group, cell.c)]
        lines.append({
            "dataset": data.name, "c": cell.c, "group": cell.group, "sp": cost.idxmin(), "paper's sp": cell.sp, "cost": cost.min(),
            "paper's cost": cell.cost, "auc": auc(finite.index, finite[(cell.group, cell.c)]) / floor, "paper's auc": cell.auc,
            "k": f"{finite.index[0]} to {finite.index[-1]}", "all optimal": optimal,
        })
    return pd.DataFrame(lines)
