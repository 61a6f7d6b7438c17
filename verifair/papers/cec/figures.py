"""The CEC paper's figures from our measurements: the PFR-CEC plane (4), regimes as bars (5, 7), the sweep of both weights (6)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from verifair.figures import COLORS, figure
from verifair.papers.cec.views import FLIPS, SWEPT
from verifair.papers.reproduce import SPREAD, Reproduced, titled
from verifair.systems.cec.explanations import REGIMES
from verifair.systems.cec.plots import REGIMES as TINTS
from verifair.systems.cec.settings import THRESHOLD

CORNERS = {"A": (0.02, 0.03), "B": (0.02, 0.93), "C": (0.95, 0.03), "D": (0.95, 0.93)}
MARKERS = "osD^vP*X<>"
LABELLED = 0.04
"""A smaller share has no room for its number."""


def plane(result: Reproduced, path: Path) -> None:
    """Figure 4: each method at its mean PFR and CEC, a panel for each dataset, bars of one standard deviation over folds."""
    frame = result.frame
    with _panels(result, path, list(dict.fromkeys(frame["dataset"]))) as panels:
        for name, axis in panels.items():
            lines = frame[frame["dataset"] == name].to_dict(orient="records")
            for line, marker, color in zip(lines, cycle(MARKERS), cycle(COLORS), strict=False):
                axis.errorbar(
                    line["PFR"], line["CEC"], xerr=line.get(f"{SPREAD}PFR"), yerr=line.get(f"{SPREAD}CEC"), fmt=marker, color=color,
                    label=line["method"], capsize=2, ms=7,
                )
            axis.axhline(THRESHOLD, color="grey", lw=0.8, ls="--")
            axis.axvline(FLIPS, color="grey", lw=0.8, ls="--")
            axis.set(xlim=(-0.02, max(0.5, 1.15 * max(line["PFR"] for line in lines))), ylim=(0, 1))
            axis.set(xlabel="prediction flip rate", ylabel="CEC", title=name)
            for regime, (x, y) in CORNERS.items():
                axis.text(x, y, regime, transform=axis.transAxes, color=TINTS[regime], weight="bold", size=13)


def stacked(result: Reproduced, path: Path) -> None:
    """Figures 5 and 7: shares of the four regimes, one bar for each method or loss, a panel for each dataset."""
    key = result.printed.keys[1]
    with _panels(result, path, list(dict.fromkeys(result.frame["dataset"]))) as panels:
        for name, axis in panels.items():
            shares = result.frame[result.frame["dataset"] == name]
            left = np.zeros(len(shares))
            for regime, meaning in REGIMES.items():
                bars = axis.barh(shares[key], shares[regime], left=left, color=TINTS[regime], label=f"{regime}: {meaning}")
                numbers = [f"{100 * share:.0f}" if share >= LABELLED else "" for share in shares[regime]]
                axis.bar_label(bars, labels=numbers, label_type="center", color="white" if regime in "AB" else "black", fontsize=8)
                left += shares[regime].to_numpy()
            axis.invert_yaxis()
            axis.set(xlim=(0, 1), xlabel=f"share of pairs, threshold {THRESHOLD}", title=name)


def heatmaps(result: Reproduced, path: Path) -> None:
    """Figure 6: each measure over lambda_EO (up) and lambda_CEC (across)."""
    row_key, column_key = result.printed.keys
    with _panels(result, path, SWEPT, columns=3) as panels:
        for name, axis in panels.items():
            grid = result.frame.pivot_table(index=row_key, columns=column_key, values=name)
            values = grid.to_numpy()
            image = axis.imshow(values, origin="lower", aspect="auto", cmap="viridis")
            middle = (values.min() + values.max()) / 2
            for (row, column), value in np.ndenumerate(values):
                color = "black" if value > middle else "white"
                axis.text(column, row, f"{value:.2f}", ha="center", va="center", size=8, color=color)
            axis.set_xticks(range(grid.shape[1]), [f"{value:g}" for value in grid.columns])
            axis.set_yticks(range(grid.shape[0]), [f"{value:g}" for value in grid.index])
            axis.set(xlabel=column_key, ylabel=row_key, title=name)
            axis.figure.colorbar(image, ax=axis)


@contextmanager
def _panels(result: Reproduced, path: Path, names: Any, columns: int = 2) -> Iterator[dict[str, Any]]:
    """A panel for each name, under the title, with the labels of the first in a legend."""
    columns = min(columns, len(names))
    rows = -(-len(names) // columns)
    width = max(5.2 * columns, 7.2)
    with figure(path, (width, 3.9 * rows + 0.8), rows, columns) as picture:
        picture.suptitle(titled(result, width))
        panels = dict(zip(names, picture.axes, strict=False))
        for unused in picture.axes[len(names) :]:
            unused.remove()
        yield panels
        labels = panels[names[0]].get_legend_handles_labels()
        if labels[0]:
            picture.legend(*labels, loc="outside lower center", ncols=2 * columns)
