"""The figures of FGCE: coverage against cost and against k, cost against k, attribute changes, and subgroups (the paper's figures
2, 3).

Groups keep one colour in all figures (Okabe and Ito's, for colour-blind readers); k, d and c run from dark to light.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from verifair.figures import COLORS, figure
from verifair.systems.fgce.measures.burden import Burden
from verifair.systems.fgce.result import FgceResult, GroupSummary
from verifair.systems.fgce.settings import Cost
from verifair.systems.fgce.tables import words

UNITS: dict[Cost, str] = {
    "l2": "L2 distance, each feature on [0, 1]", "path": "weight of the shortest path", "hops": "number of moves",
}
MAX_LINES = 6
"""Lines in one panel."""
MAX_BARS = 15
"""Subgroups or features in one panel."""
MAX_LEGEND_COLUMNS = 3
"""Groups in one line of a legend above, at most."""
MAX_LETTERS = 112
"""Letters across the width of the overview."""
MIN_CHANGE_SHARE = 0.5
"""Features are shown that change in more than this share of at least one group (figure 7)."""


def plots(result: FgceResult) -> dict[str, Callable[[Path], None]]:
    """Return file name -> function that draws it, for all figures that would not be empty."""
    measured, cost = result.measures, result.query.cost
    drawings: dict[str, Callable[[Path], None]] = {
        "components.png": partial(components, result.groups),
        "acf.png": partial(attribute_changes, result.fitted.attribute_changes()),
    }
    if measured is not None and len(measured.coverage):
        drawings["coverage-by-cost.png"] = partial(coverage_by_cost, measured, cost=cost)
        drawings["coverage-by-k.png"] = partial(coverage_by_k, measured)
    if measured is not None and len(measured.cost):
        drawings["cost-by-k.png"] = partial(cost_by_k, measured, cost=cost)
    return drawings


def coverage_by_cost(burden: Burden, path: Path, cost: Cost) -> None:
    """Draw the curves behind kAUC: best coverage against the cost allowed, for several k; a panel for each group."""
    table, column = burden.coverage, "coverage" if burden.exact else "greedy"
    with _panels(path, list(table["group"].unique())) as panels:
        for name, axis in panels:
            _lines(axis, table[table["group"] == name], "k", "d", column, "k = {:.0f}", percent=True)
            axis.set_xlabel(f"cost allowed, d ({UNITS[cost]})")
            _share_axis(axis)


def coverage_by_k(burden: Burden, path: Path) -> None:
    """Draw the curves behind dAUC: best coverage against k, for several costs allowed."""
    table, column = burden.coverage, "coverage" if burden.exact else "greedy"
    reached = table.groupby("d")[column].max()
    table = table[table["d"].isin(reached.index[reached > 0])]  # at the others the coverage of every group is 0
    with _panels(path, list(burden.coverage["group"].unique())) as panels:
        for name, axis in panels:
            _lines(axis, table[table["group"] == name], "d", "k", column, "d = {:.3g}", percent=True)
            axis.set_xlabel("counterfactuals, k")
            _whole_axis(axis)
            _share_axis(axis)


def cost_by_k(burden: Burden, path: Path, cost: Cost) -> None:
    """Draw the curves behind cAUC: least cost against k, for several coverages. Hollow: not proved optimal."""
    table = burden.cost[np.isfinite(burden.cost["cost"])]
    with _panels(path, list(burden.cost["group"].unique())) as panels:
        for name, axis in panels:
            lines = table[table["group"] == name]
            _lines(axis, lines, "c", "k", "cost", "coverage {:.0%}", percent=False)
            points = lines[~lines["optimal"]]
            if len(points):
                axis.plot(points["k"], points["cost"], "o", mfc="white", mec="black", ms=5, zorder=3, label="not proved optimal")
            axis.set_xlabel("counterfactuals, k")
            _label_first_column(axis, f"largest cost, d\n({UNITS[cost]})")
            _whole_axis(axis)


def attribute_changes(shares: pd.DataFrame, path: Path) -> None:
    """Draw ACF, for the features that change in more than half of at least one group. shares: groups x features."""
    chosen = _frequent_changes(shares)
    with figure(path, (10, 1.2 + len(chosen) * (0.18 + 0.16 * len(shares)))) as fig:
        (axis,) = fig.axes
        _draw_changes(axis, shares[chosen])
        _legend(axis.figure, [axis])


def _draw_changes(axis: Any, shares: pd.DataFrame) -> None:
    """Draw bars of shares (groups x features) on an axis, features from top to bottom."""
    height = 0.8 / len(shares)
    positions = np.arange(len(shares.columns))
    for n, (name, line) in enumerate(shares.iterrows()):
        bars = axis.barh(positions + (n - (len(shares) - 1) / 2) * height, 100 * line, height, color=_color(n), label=str(name))
        axis.bar_label(bars, fmt="%.0f", fontsize=8, padding=2)
    axis.set_yticks(positions, shares.columns)
    axis.invert_yaxis()
    axis.set_xlim(0, 108)
    axis.set_xlabel("% of the covered people whose example differs in the feature")
    axis.set_title("How people differ from the example assigned to them (ACF)", wrap=True)
    axis.grid(axis="x", alpha=0.3)
    axis.set_axisbelow(True)


def components(groups: Sequence[GroupSummary], path: Path) -> None:
    """Draw factuals and candidates of each weak component, a panel for each group, the largest components first."""
    counts = [n for group in groups for p in group.subgroups[:MAX_BARS] for n in (p.factuals, p.hopeless, p.candidates) if n]
    log = max(counts) > 30 * min(counts)
    with _panels(path, [group.name for group in groups]) as panels:
        for (_, axis), group in zip(panels, groups, strict=True):
            _draw_components(axis, group)
            if log:
                axis.set_yscale("log")
            axis.set_ylim((0.7, 3 * max(counts)) if log else (0, 1.2 * max(counts)))
            _label_first_column(axis, "rows (log scale)" if log else "rows")


def _draw_components(axis: Any, group: GroupSummary) -> None:
    """Draw bars of one group's subgroups on an axis: factuals, people without a feasible counterfactual, and candidates."""
    shown = group.subgroups[:MAX_BARS]
    kinds = [("factuals", [part.factuals for part in shown], "#0072B2"), ("candidates", [p.candidates for p in shown], "#E69F00")]
    if group.hopeless:
        kinds.insert(1, ("without feasible counterfactual", [part.hopeless for part in shown], "#000000"))
    width = 0.8 / len(kinds)
    positions = np.arange(len(shown))
    for n, (label, counts, color) in enumerate(kinds):
        heights = np.where(np.array(counts) > 0, counts, np.nan)  # a log scale has no zero
        bars = axis.bar(positions + (n - (len(kinds) - 1) / 2) * width, heights, width, color=color, label=label)
        if len(shown) <= 8:
            axis.bar_label(bars, [str(count) if count else "" for count in counts], fontsize=8)
    has_names = len(shown) <= 4 and all(part.common for part in shown)
    texts = ["\n".join(textwrap.wrap(words(part.common), 14)) if has_names else str(n) for n, part in enumerate(shown, start=1)]
    axis.set_xticks(positions, texts)
    rest = len(group.subgroups) - len(shown)
    axis.set_xlabel("weak component (subgroup)" + (f"; {rest} smaller ones not shown" if rest else ""))


def plot(result: FgceResult, path: Path) -> None:
    """Draw how people differ from their counterfactuals, mean costs, and with measures the cost of full coverage against k.

    The panels are stacked: side by side, their text would be too small on a page.
    """
    groups, burden, cost, shares = result.groups, result.measures, result.query.cost, result.fitted.attribute_changes()
    curve = None if burden is None or not len(burden.cost) else burden.cost[np.isfinite(burden.cost["cost"])]
    curve = None if curve is None or not (curve["c"] == 1).any() else curve[curve["c"] == 1]
    chosen = _frequent_changes(shares)
    heights = [1.0 + len(chosen) * (0.18 + 0.16 * len(shares)), 1.1 + 0.4 * len(groups), *([] if curve is None else [3.4])]
    with figure(path, (8, sum(heights)), len(heights), heights=heights) as fig:
        axes = fig.axes
        _draw_changes(axes[0], shares[chosen])
        _draw_costs(axes[1], groups, cost)
        if curve is not None:
            for n, group in enumerate(groups):
                line = curve[curve["group"] == group.name].sort_values("k")
                axes[2].plot(line["k"], line["cost"], marker="o", ms=4, color=_color(n), label=group.name)
            axes[2].set_title("Least cost that covers everybody")
            axes[2].set_xlabel("counterfactuals, k")
            axes[2].set_ylabel(f"largest cost, d\n({UNITS[cost]})")
            _whole_axis(axes[2])
            axes[2].grid(alpha=0.3)
        handles, labels = axes[0].get_legend_handles_labels()
        if len(labels) > 1:
            columns = max(MAX_LETTERS // (max(map(len, labels)) + 7), 1)  # 7: width of a handle and the space between columns
            fig.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), MAX_LEGEND_COLUMNS, columns))


def _draw_costs(axis: Any, groups: Sequence[GroupSummary], cost: Cost) -> None:
    """Draw mean costs with their intervals, and the largest costs, one line for each group."""
    for n, group in enumerate(groups):
        if group.mean is None:
            continue
        low, high = group.mean.mean - group.mean.low, group.mean.high - group.mean.mean
        axis.errorbar([group.mean.mean], [n], xerr=[[low], [high]], fmt="o", color=_color(n), capsize=5)
        axis.plot([group.cost], [n], marker="|", ms=18, mew=2, color=_color(n))
        for value, offset, alignment in ((group.cost, (6, 0), {"va": "center"}), (group.mean.mean, (0, 6), {"ha": "center"})):
            axis.annotate(f"{value:.3g}", (value, n), xytext=offset, textcoords="offset points", fontsize=9, **alignment)
    axis.set_yticks(range(len(groups)), ["\n".join(textwrap.wrap(group.name, MAX_LETTERS // 4)) for group in groups])
    axis.set_ylim(len(groups) - 0.4, -0.6)
    axis.set_xlim(0, 1.1 * max((group.cost for group in groups if group.mean is not None), default=1.0))
    axis.set_xlabel(f"cost ({UNITS[cost]})")
    axis.set_title("Cost to the example assigned: mean with 95 % interval (dot), and the largest (bar)", wrap=True)
    axis.grid(axis="x", alpha=0.3)


def _frequent_changes(shares: pd.DataFrame) -> list[str]:
    """Return features that change often in some group, the most frequent first; if none does, the five most frequent."""
    largest = shares.max().sort_values(ascending=False)
    frequent = largest.index[largest > MIN_CHANGE_SHARE][:MAX_BARS]
    return list(frequent if len(frequent) else largest.index[:5])


def _lines(axis: Any, table: pd.DataFrame, curve_column: str, x: str, column: str, label: str, *, percent: bool) -> None:
    """Draw a line for the first, the last and some values of `curve_column` between them; for whole numbers mostly small ones."""
    import matplotlib

    values = np.sort(table[curve_column].unique())
    if len(values) > MAX_LINES:
        spaced = np.geomspace if curve_column == "k" else np.linspace
        values = values[np.unique(np.rint(spaced(1, len(values), MAX_LINES)).astype(int) - 1)]
    colors = matplotlib.colormaps["viridis"](np.linspace(0, 0.85, max(len(values), 1)))
    for value, color, mark in zip(values, colors, "os^Dv*", strict=False):
        lines = table[table[curve_column] == value].sort_values(x)
        axis.plot(lines[x], lines[column] * (100 if percent else 1), marker=mark, ms=4, color=color, label=label.format(value))
    axis.grid(alpha=0.3)


def _color(n: int) -> str:
    return COLORS[n % len(COLORS)]


def _legend(figure: Any, axes: Sequence[Any]) -> None:
    """Draw one legend for all axes, outside them, where it hides nothing; none for a single label."""
    handles = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    if len(handles) > 1:
        figure.legend(handles.values(), handles.keys(), loc="outside right upper")


def _share_axis(axis: Any) -> None:
    axis.set_ylim(-3, 105)
    _label_first_column(axis, "coverage, % of the factuals")


def _label_first_column(axis: Any, label: str) -> None:
    """Label axes that share their scale: only the leftmost gets the label."""
    if axis.get_subplotspec().is_first_col():
        axis.set_ylabel(label)


def _whole_axis(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


@contextmanager
def _panels(path: Path, names: Sequence[str]) -> Iterator[list[tuple[str, Any]]]:
    """Yield an axis with a title for each name, at most three side by side; on exit save the figure with one legend."""
    columns = 2 if len(names) == 4 else min(len(names), 3)
    rows = -(-len(names) // columns)
    with figure(path, (5 * columns + 1.5, 3.8 * rows), rows, columns, sharey=True) as fig:
        axes = fig.axes
        for axis in axes[len(names) :]:
            axis.set_visible(False)
        for axis, name in zip(axes, names, strict=False):
            axis.set_title(name, wrap=True)
        yield list(zip(names, axes, strict=False))
        _legend(axes[0].figure, axes)
