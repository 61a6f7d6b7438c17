"""The figures of CST: attributes before and after, the groups that are compared (both as the paper's figure 2), counts over k,
intervals, one complainant's groups, and how many claims other coefficients of the causal model would overturn.

In every figure the factual world is blue and the counterfactual one orange. Situation testing's test group is grey, between them:
its people have the counterfactual attribute and resemble the complainant as they are. Every figure is drawn from a table
that `verifair cst --out` writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from verifair.figures import figure
from verifair.models.columns import holds_numbers
from verifair.schema.feature import text
from verifair.systems.cst.case import Case
from verifair.systems.cst.causal.graph_plot import causal_graph
from verifair.systems.cst.deciders import reads
from verifair.systems.cst.findings import Intervention
from verifair.systems.cst.result import MAX_ERRORS, ClaimRobustness, CstResult
from verifair.systems.cst.robustness.sensitivity import LEVELS
from verifair.systems.results.files import file_name

FACTUAL, COUNTERFACTUAL, GREY = "#0072B2", "#E69F00", "#8C8C8C"
GROUPS = {"control": FACTUAL, "ST test": GREY, "CST test": COUNTERFACTUAL}
METHODS = {"ST": GREY, "CST w/o": COUNTERFACTUAL, "CST": "#B35900", "CF": "#009E73"}
BINS = 40
CATEGORIES = 8
"""Most categories of an attribute in one picture; the rest are drawn together."""
MAX_INTERVALS = 60
"""Intervals that are drawn one by one; more become a band."""
OTHERS = "others"
MAX_FIGURES = 12
"""Attributes with a figure of their own."""
MAX_CASES = 8
"""Complainants in one picture of groups."""
MAX_PANELS = 5
"""Attributes in the picture of one complainant."""
MAX_COLUMNS = 3
EVEN_STEPS = (np.sqrt(5) / 2 - 0.5, np.sqrt(2) - 1)
"""Multiples modulo 1 fill an interval evenly, so that dots lie beside each other without a draw."""
DARK = "#333333"
TWO_SCALES = "\nthe CST test group is found with counterfactuals\nscaled by their own table, the other groups by the people's"
"""What preset "paper" does, as the paper's authors do: a counterfactual may then lie apart from the middle of its group."""


def plots(result: CstResult) -> dict[str, Callable[[Path], None]]:
    """Return file name -> function that draws it; if several interventions are tested, each has a folder of its own."""
    model = result.model
    files: dict[str, Callable[[Path], None]] = {
        "graph.png": partial(causal_graph, model.causal_model_.graph, list(model.do), "decision", reads(model.decider))
    }
    for test, cases in zip(result.tests, result.cases, strict=True):
        folder = result.folder(test)
        files[f"{folder}counts.png"] = partial(counts, test)
        files[f"{folder}intervals.png"] = partial(intervals, test)
        population = f"{test.complainants:,} complainants, do({test.name})"
        scales = TWO_SCALES if model.preset == "paper" else ""
        for name in [name for name in test.attributes if name in test.moved][:MAX_FIGURES]:
            stem = file_name(name)
            files[f"{folder}figure2-left-{stem}.png"] = partial(distribution, name, test.before(name), test.tilde[name], population)
            if cases:
                files[f"{folder}figure2-right-{stem}.png"] = partial(groups, name, *_group_values(cases[:MAX_CASES], name), scales)
        for robust in (robust for robust in result.sensitivity if robust.name == test.name):
            files[f"{folder}sensitivity.png"] = partial(overturned, robust)
        for case in cases:
            files[f"{folder}cases/{case.file}.png"] = partial(complainant, case)
    return files


def _group_values(cases: Sequence[Case], name: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return an attribute of everybody in the groups of these cases, and of the complainants and their counterfactuals."""
    people = pd.concat(
        [pd.DataFrame({"case": text(case.row), "group": case.people["group"], "value": case.records[name]}) for case in cases],
        ignore_index=True,
    )
    complainants = pd.DataFrame({
        "case": [text(case.row) for case in cases], "factual": [case.own[name].iloc[0] for case in cases],
        "counterfactual": [case.own[name].iloc[1] for case in cases],
    })
    return people, complainants


def distribution(name: str, factual: pd.Series, counterfactual: pd.Series, population: str, path: Path) -> None:
    """An attribute of the complainants as they are and as their counterfactuals are (figure 2, left). population: the
    complainants in words."""
    with figure(path, (7.5, 4)) as fig:
        axis = fig.axes[0]
        if holds_numbers(factual) and holds_numbers(counterfactual):
            _histograms(axis, factual.to_numpy(dtype=float), counterfactual.to_numpy(dtype=float))
            axis.set_ylabel("% of the complainants")
        else:
            _shares(axis, factual, counterfactual)
            axis.set_xlabel("% of the complainants")
        axis.set_title(f"{name} of {population}")
        axis.margins(x=0.01)
        _legend_below(fig, axis.get_legend_handles_labels()[0], 2)


def _histograms(axis: Any, factual: np.ndarray, counterfactual: np.ndarray) -> None:
    edges = np.histogram_bin_edges(np.concatenate([factual, counterfactual]), bins=BINS)
    series = ((factual, FACTUAL, "as they are"), (counterfactual, COUNTERFACTUAL, "their counterfactuals"))
    for values, color, label in series:
        heights = 100 * np.histogram(values, edges)[0] / len(values)
        axis.stairs(heights, edges, color=color, lw=1.6, label=f"{label} (mean {values.mean():,.6g})")
        axis.stairs(heights, edges, color=color, fill=True, alpha=0.25)
        axis.axvline(values.mean(), color=color, lw=1.2, ls=":")
    axis.set_ylim(bottom=0)
    axis.grid(axis="y", alpha=0.3)


def _shares(axis: Any, factual: pd.Series, counterfactual: pd.Series) -> None:
    """Draw bars side by side for each category."""
    order = _categories(pd.concat([factual, counterfactual]))
    positions = np.arange(len(order))
    series = ((factual, FACTUAL, "as they are", -0.2), (counterfactual, COUNTERFACTUAL, "their counterfactuals", 0.2))
    for values, color, label, shift in series:
        share = 100 * _grouped(values, order).value_counts(normalize=True).reindex(order, fill_value=0.0)
        bars = axis.barh(positions + shift, share, height=0.38, color=color, label=label)
        axis.bar_label(bars, fmt="%.1f", fontsize=8, padding=2)
    axis.set_yticks(positions, order)
    axis.invert_yaxis()
    axis.set_xlim(right=1.08 * axis.get_xlim()[1])
    axis.grid(axis="x", alpha=0.3)
    axis.set_axisbelow(True)


def groups(name: str, people: pd.DataFrame, complainants: pd.DataFrame, scales: str, path: Path) -> None:
    """An attribute in the groups around some complainants (figure 2, right).

    people: case, group (a key of GROUPS), value.   complainants: case, factual, counterfactual: the complainants' own values.
    scales: a note about the distances.
    """
    cases = list(complainants["case"])
    with figure(path, (max(6.4, 2.2 + 1.15 * len(cases)), 4.3)) as fig:
        axis = fig.axes[0]
        if holds_numbers(people["value"]):
            handles = _boxes(axis, people, complainants)
            axis.set_ylabel(name)
        else:
            handles = _stacks(axis, people)
            axis.set_ylabel(f"{name}, % of the group")
        axis.set_xlabel(f"complainant (row of the table){scales}")
        _legend_below(fig, handles, 5 if len(cases) > 3 else 3)


def _boxes(axis: Any, people: pd.DataFrame, complainants: pd.DataFrame) -> list[Any]:
    """Draw numbers: a box plot for each group of each complainant, whiskers to the ends. Return the legend's handles."""
    from matplotlib.patches import Patch

    for n, case in enumerate(complainants["case"]):
        for m, (group, color) in enumerate(GROUPS.items()):
            values = people.loc[(people["case"] == case) & (people["group"] == group), "value"].to_numpy(dtype=float)
            if len(values):
                _box(axis, values, n + 0.26 * (m - 1), 0.22, color)
    positions = np.arange(len(complainants))
    marks = {"the complainant": ("factual", "D", FACTUAL), "the counterfactual": ("counterfactual", "*", COUNTERFACTUAL)}
    handles = [Patch(facecolor=color, alpha=0.6, label=group) for group, color in GROUPS.items() if group in set(people["group"])]
    for label, (column, mark, color) in marks.items():
        if column in complainants and complainants[column].notna().all():
            shift = -0.26 if column == "factual" else 0.26
            size = 130 if mark == "*" else 42
            point = (positions + shift, complainants[column].astype(float))
            handles.append(axis.scatter(*point, s=size, marker=mark, c=color, edgecolors="black", zorder=5, label=label))
    axis.set_xticks(positions, [str(case) for case in complainants["case"]])
    axis.set_xlim(-0.55, len(complainants) - 0.45)
    for edge in positions[1:]:
        axis.axvline(edge - 0.5, color="#DDDDDD", lw=0.8)
    axis.grid(axis="y", alpha=0.3)
    return handles


def _box(axis: Any, values: np.ndarray, position: float, width: float, color: str) -> None:
    axis.boxplot(
        values, positions=[position], widths=width, patch_artist=True, manage_ticks=False, whis=(0, 100),
        boxprops={"facecolor": color, "alpha": 0.6}, medianprops={"color": "black"},
    )


def _stacks(axis: Any, people: pd.DataFrame) -> list[Any]:
    """Draw categories: a stacked bar for each group of each complainant. Return the legend's handles."""
    import matplotlib
    from matplotlib.patches import Patch

    order = _categories(people["value"])
    colors = matplotlib.colormaps["tab10"](np.arange(len(order)) % 10)
    cases = list(dict.fromkeys(people["case"]))
    ticks, labels = [], []
    for n, case in enumerate(cases):
        for m, group in enumerate(GROUPS):
            values = people.loc[(people["case"] == case) & (people["group"] == group), "value"]
            if not len(values):
                continue
            share = 100 * _grouped(values, order).value_counts(normalize=True).reindex(order, fill_value=0.0)
            bottom = share.cumsum() - share
            position = n + 0.27 * (m - 1)
            axis.bar(np.full(len(order), position), share, width=0.24, bottom=bottom, color=colors)
            ticks.append(position)
            labels.append(group.replace(" test", "") + (f"\n{case}" if group == "ST test" else "\n"))
    axis.set_xticks(ticks, labels)
    axis.set_xlim(-0.55, len(cases) - 0.45)
    axis.set_ylim(0, 100)
    return [Patch(color=color, label=word) for color, word in zip(colors, order, strict=True)]


def counts(test: Intervention, path: Path) -> None:
    """Draw how many complainants each method finds, over k, and what chance finds where that was measured."""
    summary = test.counts
    with figure(path, (7.5, 4.4)) as fig:
        axis = fig.axes[0]
        for method, color in METHODS.items():
            rows = summary[summary["method"] == method].sort_values("k")
            if not len(rows):
                continue
            axis.plot(rows["k"], 100 * rows["share"], marker="o", ms=5, color=color, label=method)
            if method != "CF":
                axis.plot(
                    rows["k"], 100 * rows["significant share"], marker="o", ms=5, mfc="white", ls="--", color=color,
                    label=f"{method}, significant",
                )
            chance = rows.get("significant share by chance")
            if chance is not None and chance.notna().all():
                axis.plot(rows["k"], 100 * chance, ls=":", lw=2, color=color, label=f"{method}, significant by chance")
        ticks = sorted(summary["k"].unique())
        axis.set_xticks(ticks, [str(k) for k in ticks])
        axis.set_ylim(bottom=0)
        axis.set_xlabel("k: people in each group")
        axis.set_ylabel("% of the complainants")
        axis.grid(alpha=0.3)
        _legend_below(fig, axis.get_legend_handles_labels()[0], 4)


def intervals(test: Intervention, path: Path) -> None:
    """Draw delta p of the complainants whom a method finds, with its interval, from the smallest up; a panel for each method."""
    claims, terms = test.lines(sizes=[test.smallest]), test.found.terms
    methods = [method for method in METHODS if method != "CF" and method in set(claims["method"])]
    with figure(path, (4.2 * len(methods) + 0.6, 4), 1, len(methods)) as fig:
        for axis, method in zip(fig.axes, methods, strict=True):
            lines = claims[(claims["method"] == method) & claims["case"]].sort_values(["delta", "low"], kind="stable")
            _intervals(axis, lines, METHODS[method])
            axis.axhline(terms.bound, color="black", lw=1, ls="--")
            axis.set_ylim(-1.05, 1.05)
            axis.set_title(f"{method}: {int(lines['significant'].sum()):,} of {len(lines):,} significant")
            axis.set_xlabel(f"complainants with {terms.case}")
            axis.grid(axis="y", alpha=0.3)
        fig.axes[0].set_ylabel(f"delta p, {terms.label} interval (dashed: tau)")


def _intervals(axis: Any, lines: pd.DataFrame, color: str) -> None:
    positions = np.arange(len(lines))
    if len(lines) > MAX_INTERVALS:
        axis.fill_between(positions, lines["low"], lines["high"], step="mid", color=color, alpha=0.35, lw=0)
        axis.step(positions, lines["delta"], where="mid", color=color, lw=1.8)
    elif len(lines):
        ends = [lines["delta"] - lines["low"], lines["high"] - lines["delta"]]
        axis.errorbar(positions, lines["delta"], yerr=np.clip(ends, 0, None), fmt="o", ms=4, lw=1, color=color, capsize=2)
    else:
        axis.text(0.5, 0.5, "nobody", ha="center", transform=axis.transAxes)


def _categories(values: pd.Series) -> list[str]:
    """Return the most frequent categories; the others are joined into one if there are more."""
    order = [str(word) for word in values.astype(str).value_counts().index]
    return order if len(order) <= CATEGORIES else [*order[: CATEGORIES - 1], OTHERS]


def _grouped(values: pd.Series, order: Sequence[str]) -> pd.Series:
    words = values.astype(str)
    return words.where(words.isin(order), OTHERS)


def _legend_below(fig: Any, handles: Sequence[Any], columns: int) -> None:
    """Draw the legend below the axes, where it hides nothing."""
    fig.legend(handles=handles, loc="outside lower center", ncols=min(columns, len(handles)))


def complainant(case: Case, path: Path) -> None:
    """Draw one complainant: delta p of every method and k with its interval, and who was compared, attribute by attribute."""
    names = case.attributes()[:MAX_PANELS]
    panels = 1 + len(names)
    columns = 2 if panels == 4 else min(panels, MAX_COLUMNS)
    rows = -(-panels // columns)
    with figure(path, (4.3 * columns, 3.6 * rows + 0.8), rows, columns) as fig:
        first, *rest = fig.axes
        _claims(first, case.claims, case.tested.found.terms.bound)
        for axis, name in zip(rest, names, strict=False):
            _attribute(axis, case.people, case.records[name], case.own[name])
        for axis in rest[len(names) :]:
            axis.set_visible(False)
        fig.suptitle(case.title)
        _case_legend(fig)


def _claims(axis: Any, claims: pd.DataFrame, tau: float) -> None:
    """Draw a line for each method and k, the first on top."""
    lines = claims[claims["method"] != "CF"].reset_index(drop=True)
    for method, color in METHODS.items():
        rows = lines[lines["method"] == method]
        if not len(rows):
            continue
        ends = np.clip([rows["delta"] - rows["low"], rows["high"] - rows["delta"]], 0, None)
        axis.errorbar(rows["delta"], rows.index, xerr=ends, fmt="none", color=color, lw=1.6, capsize=3)
        faces = [color if significant else "white" for significant in rows["significant"]]
        axis.scatter(rows["delta"], rows.index, s=38, c=faces, edgecolors=color, zorder=4)
    axis.set_yticks(lines.index, [f"{line.method}, k = {line.k}" for line in lines.itertuples()])
    axis.invert_yaxis()
    axis.axvline(tau, color="black", lw=1, ls="--")
    axis.set_xlim(-1.05, 1.05)
    axis.set_title("delta p (filled: significant)")
    axis.grid(axis="x", alpha=0.3)


def _attribute(axis: Any, people: pd.DataFrame, values: pd.Series, own: pd.Series) -> None:
    """Draw the groups' people as dots marked by their decision, group beside group; over them the complainant and the
    counterfactual."""
    numeric = holds_numbers(values)
    levels = None if numeric else sorted({*values.astype(str), *own.astype(str)})
    for position, group in enumerate(GROUPS):
        members = people[people["group"] == group]
        if not len(members):
            continue
        heights = _height(values[members.index], levels, jitter=0.28)
        if numeric:
            box = axis.boxplot(heights, positions=[position], widths=0.66, whis=(0, 100), manage_ticks=False, showfliers=False)
            for line in (line for kind in ("boxes", "whiskers", "caps", "medians") for line in box[kind]):
                line.set_color(GROUPS[group])
        x = position + 0.5 * (np.arange(len(members)) * EVEN_STEPS[0] % 1 - 0.5)
        axis.scatter(x, heights, s=14, c=np.where(members["negative"], DARK, "white"), edgecolors=DARK, linewidths=0.8, zorder=3)
    own_heights = _height(own, levels)
    axis.scatter([0], own_heights[:1], s=60, marker="D", c=FACTUAL, edgecolors="black", zorder=5)
    axis.scatter([2], own_heights[1:2], s=170, marker="*", c=COUNTERFACTUAL, edgecolors="black", zorder=5)
    axis.set_xticks(range(len(GROUPS)), list(GROUPS))
    axis.set_xlim(-0.6, len(GROUPS) - 0.4)
    if levels is not None:
        axis.set_yticks(range(len(levels)), levels)
        axis.set_ylim(len(levels) - 0.4, -0.6)
    axis.set_title(str(own.name))
    axis.grid(axis="y", alpha=0.3)


def _height(values: pd.Series, levels: list[str] | None, jitter: float = 0.0) -> np.ndarray:
    """Return the height of each value: the number itself, or its category's place, spread out by `jitter` so that dots do not
    overlap."""
    if levels is None:
        return np.asarray(values, dtype=float)
    positions = np.array([levels.index(word) for word in values.astype(str)], dtype=float)
    return np.asarray(positions + 2 * jitter * (np.arange(len(positions)) * EVEN_STEPS[1] % 1 - 0.5))


def _case_legend(fig: Any) -> None:
    from matplotlib.lines import Line2D

    marks = (
        ("decided negatively", "o", DARK, 4), ("positively", "o", "white", 4), ("the complainant", "D", FACTUAL, 7),
        ("the counterfactual", "*", COUNTERFACTUAL, 12),
    )
    handles = [
        Line2D([], [], ls="", marker=mark, color=color, ms=size, markeredgecolor="black", label=words)
        for words, mark, color, size in marks
    ]
    fig.legend(handles=handles, loc="outside lower center", ncols=4)


def overturned(robust: ClaimRobustness, path: Path) -> None:
    """Draw bounds on the share of claims overturned, over standard errors: below, flips that were found; above, claims not shown
    safe."""
    with figure(path, (7.5, 4.2)) as fig:
        axis = fig.axes[0]
        t = np.linspace(0, MAX_ERRORS, 251)
        for claims in robust.claims:
            finding = claims.found
            safe, flip = np.sort(finding.safe[finding.claims]), np.sort(finding.flip[finding.claims])
            if not len(safe):
                continue
            upper = 100 * np.searchsorted(safe, t, side="left") / len(safe)
            lower = 100 * np.searchsorted(flip, t, side="right") / len(flip)
            color, style = METHODS[finding.test], "--" if finding.verdict == "significant" else "-"
            axis.plot(t, lower, color=color, ls=style, lw=1.8, label=f"{claims.called} ({len(safe):,})")
            axis.fill_between(t, lower, upper, color=color, alpha=0.13 if style == "-" else 0.07, lw=0)
        for level in LEVELS:
            axis.axvline(level, color="#AAAAAA", lw=0.8, ls=":")
        axis.set_xlim(0, MAX_ERRORS)
        axis.set_ylim(0, 100)
        axis.set_xlabel("error of each coefficient, up to this many standard errors (dotted: 1, 1.645, 1.96)")
        axis.set_ylabel("% of the claims overturned")
        axis.set_title("Lines: overturned by coefficients that were found; shade: not known to hold")
        axis.grid(alpha=0.3)
        fig.legend(loc="outside lower center", ncols=3)
