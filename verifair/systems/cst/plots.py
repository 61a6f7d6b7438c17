"""CST on paper: attributes before and after, the groups that are compared (both as the paper's figure 2), counts over k, intervals.

The factual world is blue, the counterfactual one orange, in every figure; situation testing's test group is grey: it stands between
them, for its people have the counterfactual attribute and resemble the complainant as they are. Every figure is drawn from a table
that `verifair cst --out` writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from verifair.systems.figures import figure

FACTUAL, COUNTERFACTUAL, BETWEEN = "#0072B2", "#E69F00", "#8C8C8C"
GROUPS = {"control": FACTUAL, "ST test": BETWEEN, "CST test": COUNTERFACTUAL}
METHODS = {"ST": BETWEEN, "CST w/o": COUNTERFACTUAL, "CST": "#B35900", "CF": "#009E73"}
BINS = 40
CATEGORIES = 8
"""Of an attribute, in one picture; the rest are drawn together."""
FEW = 60
"""Intervals that are drawn one by one; more become a band."""
REST = "others"


def distribution(name: str, factual: pd.Series, counterfactual: pd.Series, who: str, path: Path) -> None:
    """An attribute of the complainants as they are and as their counterfactuals are (figure 2, left). who: they, in words."""
    with figure(path, (7.5, 4)) as drawn:
        axis = drawn.axes[0]
        if _is_number(factual) and _is_number(counterfactual):
            _histograms(axis, factual.to_numpy(dtype=float), counterfactual.to_numpy(dtype=float))
            axis.set_ylabel("% of the complainants")
        else:
            _shares(axis, factual, counterfactual)
            axis.set_xlabel("% of the complainants")
        axis.set_title(f"{name} of {who}", fontsize=10)
        axis.margins(x=0.01)
        _legend_below(drawn, axis.get_legend_handles_labels()[0], 2)


def _histograms(axis: Any, factual: np.ndarray, counterfactual: np.ndarray) -> None:
    edges = np.histogram_bin_edges(np.concatenate([factual, counterfactual]), bins=BINS)
    both = ((factual, FACTUAL, "as they are"), (counterfactual, COUNTERFACTUAL, "their counterfactuals"))
    for values, color, label in both:
        heights = 100 * np.histogram(values, edges)[0] / len(values)
        axis.stairs(heights, edges, color=color, lw=1.6, label=f"{label} (mean {values.mean():,.6g})")
        axis.stairs(heights, edges, color=color, fill=True, alpha=0.25)
        axis.axvline(values.mean(), color=color, lw=1.2, ls=":")
    axis.set_ylim(bottom=0)
    axis.grid(axis="y", alpha=0.3)


def _shares(axis: Any, factual: pd.Series, counterfactual: pd.Series) -> None:
    """Bars side by side for each category."""
    order = _categories(pd.concat([factual, counterfactual]))
    place = np.arange(len(order))
    both = ((factual, FACTUAL, "as they are", -0.2), (counterfactual, COUNTERFACTUAL, "their counterfactuals", 0.2))
    for values, color, label, shift in both:
        share = 100 * _kept(values, order).value_counts(normalize=True).reindex(order, fill_value=0.0)
        bars = axis.barh(place + shift, share, height=0.38, color=color, label=label)
        axis.bar_label(bars, fmt="%.1f", fontsize=7, padding=2)
    axis.set_yticks(place, order)
    axis.invert_yaxis()
    axis.set_xlim(right=1.08 * axis.get_xlim()[1])
    axis.grid(axis="x", alpha=0.3)
    axis.set_axisbelow(True)


def groups(name: str, people: pd.DataFrame, own: pd.DataFrame, path: Path) -> None:
    """An attribute in the groups around some complainants (figure 2, right).

    people: case, group (a key of GROUPS), value.   own: case, factual, counterfactual: the complainants' own values.
    """
    cases = list(own["case"])
    with figure(path, (max(6.4, 2.2 + 1.15 * len(cases)), 4.3)) as drawn:
        axis = drawn.axes[0]
        if _is_number(people["value"]):
            handles = _boxes(axis, people, own)
            axis.set_ylabel(name)
        else:
            handles = _stacks(axis, people)
            axis.set_ylabel(f"{name}, % of the group")
        axis.set_xlabel("complainant (row of the table)")
        _legend_below(drawn, handles, 5 if len(cases) > 3 else 3)


def _boxes(axis: Any, people: pd.DataFrame, own: pd.DataFrame) -> list[Any]:
    """For numbers: a box plot for each group of each complainant, whiskers to the ends; gives the legend's handles."""
    from matplotlib.patches import Patch

    for n, case in enumerate(own["case"]):
        for m, (group, color) in enumerate(GROUPS.items()):
            values = people.loc[(people["case"] == case) & (people["group"] == group), "value"].to_numpy(dtype=float)
            if len(values):
                _box(axis, values, n + 0.26 * (m - 1), 0.22, color)
    place = np.arange(len(own))
    marks = {"the complainant": ("factual", "D", FACTUAL), "the counterfactual": ("counterfactual", "*", COUNTERFACTUAL)}
    handles = [Patch(facecolor=color, alpha=0.6, label=group) for group, color in GROUPS.items() if group in set(people["group"])]
    for label, (column, mark, color) in marks.items():
        if column in own and own[column].notna().all():
            shift = -0.26 if column == "factual" else 0.26
            size = 130 if mark == "*" else 42
            at = (place + shift, own[column].astype(float))
            handles.append(axis.scatter(*at, s=size, marker=mark, c=color, edgecolors="black", zorder=5, label=label))
    axis.set_xticks(place, [str(case) for case in own["case"]])
    axis.set_xlim(-0.55, len(own) - 0.45)
    for edge in place[1:]:
        axis.axvline(edge - 0.5, color="#DDDDDD", lw=0.8)
    axis.grid(axis="y", alpha=0.3)
    return handles


def _box(axis: Any, values: np.ndarray, place: float, width: float, color: str) -> None:
    axis.boxplot(
        values, positions=[place], widths=width, patch_artist=True, manage_ticks=False, whis=(0, 100),
        boxprops={"facecolor": color, "alpha": 0.6}, medianprops={"color": "black"},
    )  # fmt: skip


def _stacks(axis: Any, people: pd.DataFrame) -> list[Any]:
    """For categories: how each group splits, a bar for each group of each complainant; gives the legend's handles."""
    import matplotlib
    from matplotlib.patches import Patch

    order = _categories(people["value"])
    colors = matplotlib.colormaps["tab10"](np.arange(len(order)) % 10)
    cases = list(dict.fromkeys(people["case"]))
    ticks, words = [], []
    for n, case in enumerate(cases):
        for m, group in enumerate(GROUPS):
            values = people.loc[(people["case"] == case) & (people["group"] == group), "value"]
            if not len(values):
                continue
            share = 100 * _kept(values, order).value_counts(normalize=True).reindex(order, fill_value=0.0)
            bottom = share.cumsum() - share
            place = n + 0.27 * (m - 1)
            axis.bar(np.full(len(order), place), share, width=0.24, bottom=bottom, color=colors)
            ticks.append(place)
            words.append(group.replace(" test", "") + (f"\n{case}" if group == "ST test" else "\n"))
    axis.set_xticks(ticks, words, fontsize=7)
    axis.set_xlim(-0.55, len(cases) - 0.45)
    axis.set_ylim(0, 100)
    return [Patch(color=color, label=word) for color, word in zip(colors, order, strict=True)]


def counts(summary: pd.DataFrame, path: Path) -> None:
    """How many complainants each method finds, over k. summary: method, k, share, significant share, in 0 .. 1, and if measured
    significant share by chance."""
    with figure(path, (7.5, 4.4)) as drawn:
        axis = drawn.axes[0]
        for method, color in METHODS.items():
            own = summary[summary["method"] == method].sort_values("k")
            if not len(own):
                continue
            axis.plot(own["k"], 100 * own["share"], marker="o", ms=5, color=color, label=method)
            if method != "CF":
                axis.plot(
                    own["k"], 100 * own["significant share"], marker="o", ms=5, mfc="white", ls="--", color=color,
                    label=f"{method}, significant",
                )  # fmt: skip
            chance = own.get("significant share by chance")
            if chance is not None and chance.notna().all():
                axis.plot(own["k"], 100 * chance, ls=":", lw=2, color=color, label=f"{method}, significant by chance")
        ticks = sorted(summary["k"].unique())
        axis.set_xticks(ticks, [str(k) for k in ticks])
        axis.set_ylim(bottom=0)
        axis.set_xlabel("k: people in each group")
        axis.set_ylabel("% of the complainants")
        axis.grid(alpha=0.3)
        _legend_below(drawn, axis.get_legend_handles_labels()[0], 4)


def intervals(claims: pd.DataFrame, tau: float, level: float, path: Path) -> None:
    """delta p of the complainants whom a method finds, with its interval, from the smallest up; a panel for each method.

    claims: method, delta, low, high, case, significant: one k's.
    """
    methods = [method for method in METHODS if method != "CF" and method in set(claims["method"])]
    with figure(path, (4.2 * len(methods) + 0.6, 4), 1, len(methods)) as drawn:
        for axis, method in zip(drawn.axes, methods, strict=True):
            own = claims[(claims["method"] == method) & claims["case"]].sort_values(["delta", "low"], kind="stable")
            _intervals(axis, own, METHODS[method])
            axis.axhline(tau, color="black", lw=1, ls="--")
            axis.set_ylim(-1.05, 1.05)
            axis.set_title(f"{method}: {int(own['significant'].sum()):,} of {len(own):,} significant", fontsize=10)
            axis.set_xlabel("complainants with delta p > tau")
            axis.grid(axis="y", alpha=0.3)
        drawn.axes[0].set_ylabel(f"delta p, {100 * level:g} % interval (dashed: tau)")


def _intervals(axis: Any, own: pd.DataFrame, color: str) -> None:
    place = np.arange(len(own))
    if len(own) > FEW:
        axis.fill_between(place, own["low"], own["high"], step="mid", color=color, alpha=0.35, lw=0)
        axis.step(place, own["delta"], where="mid", color=color, lw=1.8)
    elif len(own):
        ends = [own["delta"] - own["low"], own["high"] - own["delta"]]
        axis.errorbar(place, own["delta"], yerr=np.clip(ends, 0, None), fmt="o", ms=4, lw=1, color=color, capsize=2)
    else:
        axis.text(0.5, 0.5, "nobody", ha="center", transform=axis.transAxes)


def drawn_attributes(names: Sequence[str], factual: pd.DataFrame, counterfactual: pd.DataFrame) -> list[str]:
    """The attributes of which there is something to see: those that differ from the counterfactual for anybody."""
    return [name for name in names if name in factual and not factual[name].equals(counterfactual[name])]


def _categories(values: pd.Series) -> list[str]:
    """The most frequent, and others together if there are more."""
    order = [str(word) for word in values.astype(str).value_counts().index]
    return order if len(order) <= CATEGORIES else [*order[: CATEGORIES - 1], REST]


def _kept(values: pd.Series, order: Sequence[str]) -> pd.Series:
    words = values.astype(str)
    return words.where(words.isin(order), REST)


def _is_number(values: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)


def _legend_below(drawn: Any, handles: Sequence[Any], columns: int) -> None:
    """Beside the axis, where nothing is hidden."""
    drawn.legend(handles=handles, loc="outside lower center", ncols=min(columns, len(handles)), fontsize=8, frameon=False)
