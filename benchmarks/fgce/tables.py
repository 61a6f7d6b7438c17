"""The FGCE paper's tables as `verifair reproduce fgce` makes them: greedy beside the proved optima, and ranks beside the paper's.

`greedy`: over all cells (k, d) of kAUC and dAUC, where greedy falls short of the proved optimum. `ranks`: how many cells agree
within 0.01 (the paper cuts digits off more often than it rounds), Spearman's correlation of the areas, and whether the same group
is worse.

    python -m benchmarks.run fgce_tables --names Student German        some of the datasets
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.shared import data_folder, show
from encoders.arrays import Array
from verifair.papers.fgce.data import LOADERS, audits, load
from verifair.papers.fgce.tables import BUDGET, areas, cauc_table, coverages
from verifair.systems.fgce.measures.curves import reach

DIGIT = 0.01


def run(folder: Path, *, names: Sequence[str] = tuple(LOADERS)) -> list[pd.DataFrame]:
    cells: dict[str, list[pd.DataFrame]] = {"kauc": [], "dauc": [], "cauc": []}
    curves_met = []
    for data in (load(name, data_folder()) for name in LOADERS if name in names):
        pair = audits(data)
        d0 = max(reach(instance, budget=BUDGET).d0 for instance in pair)
        for name in ("kauc", "dauc"):
            tables = coverages(data, pair, name, d0)
            curves_met += [table.assign(table=name, dataset=data.name, group=group) for group, table in enumerate(tables)]
            cells[name].append(areas(data, tables, "d" if name == "kauc" else "k"))
        cells["cauc"].append(cauc_table(data))
    titles = {
        "FGCE greedy: beside the proved optimum": _greedy(pd.concat(curves_met, ignore_index=True)),
        "FGCE ranks: ours beside the paper's": pd.concat([_ranks(name, pd.concat(frames)) for name, frames in cells.items()]),
    }
    return [show(title, frame, folder) for title, frame in titles.items()]


def _greedy(table: pd.DataFrame) -> pd.DataFrame:
    """Return for each dataset and group the number of cells (k, d), of those where greedy is below the optimum, and the largest
    loss."""
    shortfall = (table["coverage"] - table["greedy"]).clip(lower=0)
    ratio = table["greedy"].div(table["coverage"]).where(table["coverage"] > 0, 1.0)
    return (
        table.assign(short=shortfall > 0, loss=shortfall, ratio=ratio)
        .groupby(["table", "dataset", "group"], sort=False)
        .agg(cells=("k", "size"), proved=("optimal", "sum"), short=("short", "sum"), loss=("loss", "max"), ratio=("ratio", "min"))
        .rename(columns={"short": "greedy is short", "loss": "by at most", "ratio": "worst ratio"})
        .reset_index()
    )


def _ranks(name: str, table: pd.DataFrame) -> pd.DataFrame:
    argument, value = {"kauc": ("k", "coverage"), "dauc": ("d", "coverage"), "cauc": ("c", "cost")}[name]
    lines = []
    for dataset, part in table.groupby("dataset", sort=False):
        greedy = part["greedy's auc"] if name != "cauc" else part["auc"]
        spread = part[["auc", "paper's auc"]].corr(method="spearman")
        ours, paper = (_worse(part, argument, column) for column in ("auc", "paper's auc"))
        lines.append({
            "table": name, "dataset": dataset, "cells": len(part), "same sp": _same(part["sp"], part["paper's sp"]),
            "same coverage or cost": _same(part[value], part[f"paper's {value}"]),
            "same auc": _same(part["auc"], part["paper's auc"]), "same auc, greedy": _same(greedy, part["paper's auc"]),
            "Spearman": float(spread.iloc[0, 1]),
            "same group worse": f"{(ours == paper).sum()} of {len(ours)}",
        })
    return pd.DataFrame(lines)


def _same(ours: pd.Series, paper: pd.Series) -> int:
    return int(((ours - paper).abs() < DIGIT).sum())


def _worse(part: pd.DataFrame, argument: str, column: str) -> Array:
    """Return -1, 0 or 1 for each argument, by which group's area is smaller, to two digits."""
    areas_of_groups = part.pivot(index=argument, columns="group", values=column).round(2)
    return np.asarray(np.sign((areas_of_groups[0] - areas_of_groups[1]).round(2)))
