"""The CEC paper's figures from our measurements: the PFR-CEC plane (4), regimes as bars (5, 7), the lambda sweep (6)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from verifair.systems.cec.explanations import REGIMES
from verifair.systems.cec.settings import THRESHOLD

COLOURS = {"A": "#2a9d8f", "B": "#e76f51", "C": "#e9c46a", "D": "#6d597a"}
FLIPS = 0.2
"""Where the plane is divided along PFR: the paper names no value."""
MARKERS = "osD^vP*X"


def plane(results: pd.DataFrame, path: Path) -> None:
    """Figure 4: each method at its mean PFR and CEC, one panel a dataset, bars of one standard deviation over folds."""
    names = list(dict.fromkeys(results["dataset"]))
    figure, panels = _panels(len(names))
    methods = list(dict.fromkeys(results["method"]))
    for name, axes in zip(names, panels, strict=True):
        grouped = results[results["dataset"] == name].groupby("method")[["PFR", "CEC"]]
        mean, spread = grouped.mean(), grouped.std(ddof=0)
        for marker, method in zip(MARKERS, methods, strict=False):
            if method in mean.index:
                at, size = mean.loc[method], spread.loc[method]
                axes.errorbar(at["PFR"], at["CEC"], xerr=size["PFR"], yerr=size["CEC"], fmt=marker, label=method, capsize=2, ms=7)
        axes.axhline(THRESHOLD, color="grey", lw=0.8, ls="--")
        axes.axvline(FLIPS, color="grey", lw=0.8, ls="--")
        axes.set(xlim=(-0.02, max(0.5, mean["PFR"].max() * 1.15)), ylim=(0, 1))
        axes.set(xlabel="prediction flip rate", ylabel="CEC", title=name)
        for regime, (x, y) in {"A": (0.02, 0.03), "B": (0.02, 0.93), "C": (0.95, 0.03), "D": (0.95, 0.93)}.items():
            axes.text(x, y, regime, transform=axes.transAxes, color=COLOURS[regime], weight="bold", size=13)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncol=4, fontsize=8)
    _save(figure, path)


def regime_bars(results: pd.DataFrame, path: Path, by: str = "method") -> None:
    """Figures 5 and 7: shares of the four regimes stacked, one bar for each value of `by`, one panel a dataset."""
    names = list(dict.fromkeys(results["dataset"]))
    figure, panels = _panels(len(names))
    for name, axes in zip(names, panels, strict=True):
        shares = results[results["dataset"] == name].groupby(by, sort=False)[list(REGIMES)].mean()
        left = np.zeros(len(shares))
        for regime, meaning in REGIMES.items():
            bars = axes.barh(shares.index, shares[regime], left=left, color=COLOURS[regime], label=f"{regime}: {meaning}")
            labels = [f"{100 * share:.0f}" if share >= 0.04 else "" for share in shares[regime]]
            axes.bar_label(bars, labels=labels, label_type="center", color="white", fontsize=8)
            left += shares[regime].to_numpy()
        axes.invert_yaxis()
        axes.set(xlim=(0, 1), xlabel=f"share of pairs, threshold {THRESHOLD}", title=name)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncol=min(2, len(names)), fontsize=8)
    _save(figure, path)


def heatmaps(results: pd.DataFrame, metrics: Sequence[str], path: Path) -> None:
    """Figure 6: each metric over lambda_EO (down) and lambda_CEC (across), the mean over folds."""
    figure, panels = _panels(len(metrics), columns=3)
    for metric, axes in zip(metrics, panels, strict=True):
        grid = results.pivot_table(index="lambda_EO", columns="lambda_CEC", values=metric, aggfunc="mean")
        image = axes.imshow(grid.to_numpy(), origin="lower", aspect="auto", cmap="viridis")
        middle = (np.nanmin(grid.to_numpy()) + np.nanmax(grid.to_numpy())) / 2
        for (row, column), value in np.ndenumerate(grid.to_numpy()):
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", size=7, color="black" if value > middle else "white")
        axes.set_xticks(range(grid.shape[1]), [f"{value:g}" for value in grid.columns])
        axes.set_yticks(range(grid.shape[0]), [f"{value:g}" for value in grid.index])
        axes.set(xlabel="lambda_CEC", ylabel="lambda_EO", title=metric)
        figure.colorbar(image, ax=axes)
    _save(figure, path)


def frontier(table: pd.DataFrame, near: float, path: Path) -> None:
    """CEC (above) and excess (below) against AUC, a column for each dataset; grey: more than `near` below the unconstrained AUC."""
    names = list(dict.fromkeys(table["dataset"]))
    figure, panels = _panels(2 * len(names), columns=len(names))
    methods = list(dict.fromkeys(table["method"]))
    for number, axes in enumerate(panels):
        name, of = names[number % len(names)], ("CEC", "excess")[number // len(names)]
        part = table[table["dataset"] == name].set_index("method")
        for place, method in enumerate(methods):
            if method in part.index:
                at, color = part.loc[method], "black" if method.startswith("excess") else f"C{place}"
                axes.errorbar(at["AUC"], at[of], yerr=at[f"± {of}"], fmt=MARKERS[place % len(MARKERS)], color=color, capsize=2,
                              mfc=color if at["counts"] else "white", label=method)
        left = axes.get_xlim()[0]
        axes.axvspan(left, part.loc["unconstrained", "AUC"] - near, color="0.9", zorder=0)
        axes.set(xlim=(left, None), xlabel="AUC", ylabel=of, title=name)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncol=6, fontsize=8)
    _save(figure, path)


def _panels(count: int, columns: int = 2) -> tuple[Figure, list[Axes]]:
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(5.2 * columns, 3.9 * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for unused in axes[count:]:
        unused.remove()
    return figure, axes[:count]


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "verifair"}):
        figure.savefig(path, dpi=130)
