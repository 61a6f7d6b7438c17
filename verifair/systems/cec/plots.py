"""The figures of CEC: scores by group, regimes by threshold, parts by feature, distances to counterparts, the PFR-CEC plane.

Groups keep one colour in all figures (as in FGCE's); regimes are blue where reasons are the same and red where they differ,
dark where the decision is the same. Every figure is drawn from a table that `verifair cec --out` writes beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from verifair.checker.words import counted
from verifair.figures import COLORS, PROVED, REFUTED, figure
from verifair.systems.cec.result import CecResult

REGIMES = {"A": PROVED, "B": REFUTED, "C": "#92c5de", "D": "#f4a582"}
GROUPS = len(COLORS) - 1
"""Groups in one picture, the largest ones; black is everybody's."""
MAX_FILLED = 3
"""Up to so many histograms are filled; more would hide each other."""
MAX_BARS = 15
"""Features in one picture."""
BINS = 25


def plots(result: CecResult) -> dict[str, Callable[[Path], None]]:
    """Return file name -> function that draws it."""
    pairs, table, threshold = result.pairs, result.group_table(), result.query.threshold
    groups = groups_drawn(table)
    return {
        "scores.png": partial(scores, pairs, groups, threshold),
        "thresholds.png": partial(regimes_by_threshold, result.thresholds, threshold),
        "features.png": partial(contributions, result.features),
        "distances.png": partial(distances, pairs, groups, result.query.tau),
        "pfr-cec.png": partial(plane, table, groups, threshold),
    }


def groups_drawn(groups: pd.DataFrame) -> list[str]:
    """Return the groups that get a colour: all, or the largest ones, in their order.   groups: group, people; the first is
    everybody."""
    return list(groups["group"][1:][groups["people"][1:].rank(method="first", ascending=False) <= GROUPS])


def scores(pairs: pd.DataFrame, groups: Sequence[str], threshold: float, path: Path) -> None:
    """Draw histograms of the scores of each group's people. pairs: group, score (NaN: unmatched), and score within, if measured."""
    matched = pairs[pairs["score"].notna()]
    with figure(path, (8, 4.2)) as fig:
        (axis,) = fig.axes
        edges = np.linspace(0, 1, BINS + 1)
        for color, name, group_pairs in _of_groups(matched, groups):
            heights = 100 * np.histogram(group_pairs["score"], edges)[0] / len(group_pairs)
            axis.stairs(heights, edges, color=color, lw=1.6, label=f"{name} ({len(group_pairs):,} pairs)")
            if len(groups) <= MAX_FILLED:
                axis.stairs(heights, edges, color=color, fill=True, alpha=0.15)
            axis.axvline(group_pairs["score"].mean(), color=color, lw=1, ls=":")
        if "score within" in matched:
            within_scores = matched.drop_duplicates("row")["score within"].dropna()
            heights = 100 * np.histogram(within_scores, edges)[0] / max(len(within_scores), 1)
            axis.stairs(heights, edges, color="black", lw=1.2, label="everybody, within the own group (control)")
        _threshold_line(axis.axvline, threshold)
        axis.set_xlim(0, 1)
        axis.set_ylim(bottom=0)
        axis.set_xlabel("score: half the distance of the two explanations' directions (0 the same, 1 opposed); dotted: means")
        axis.set_ylabel("% of the group's pairs")
        _legend(axis)


def regimes_by_threshold(table: pd.DataFrame, threshold: float, path: Path) -> None:
    """Draw the shares of the regimes over all thresholds, stacked. table: threshold, A, B, C, D (shares)."""
    with figure(path, (8, 4.2)) as fig:
        (axis,) = fig.axes
        labels = {"A": "A same decision, same reasons", "B": "B same decision, different reasons",
                  "D": "D different decision, different reasons", "C": "C different decision, same reasons"}
        axis.stackplot(
            table["threshold"], *(100 * table[name] for name in labels), labels=list(labels.values()),
            colors=[REGIMES[name] for name in labels], alpha=0.9,
        )
        _threshold_line(axis.axvline, threshold)
        axis.set_xlim(0, 1)
        axis.set_ylim(0, 100)
        axis.set_xlabel("threshold on the score, above which reasons count as different")
        axis.set_ylabel("% of the matched pairs")
        _legend(axis)


def contributions(table: pd.DataFrame, path: Path) -> None:
    """Draw each feature's part of the mean squared score, in percent. table: feature, share; the largest first."""
    shown = table.head(MAX_BARS)
    with figure(path, (8, 1.4 + 0.28 * len(shown))) as fig:
        (axis,) = fig.axes
        bars = axis.barh(np.arange(len(shown)), 100 * shown["share"], color=REGIMES["B"])
        axis.bar_label(bars, fmt="%.1f", fontsize=8, padding=2)
        axis.set_yticks(np.arange(len(shown)), shown["feature"])
        axis.invert_yaxis()
        axis.set_xlim(0, 1.12 * max(100 * float(shown["share"].max()), 1e-9))
        rest = len(table) - len(shown)
        more = counted(rest, "more feature", "more features")
        axis.set_xlabel("% of the mean squared score" + (f"; {more} not shown" if rest else ""))
        axis.grid(axis="x", alpha=0.3)
        axis.set_axisbelow(True)


def distances(pairs: pd.DataFrame, groups: Sequence[str], tau: float | None, path: Path) -> None:
    """Draw the cumulative distribution of the distance to the nearest counterpart. pairs: group, distance, matched or not."""
    with figure(path, (8, 4.2)) as fig:
        (axis,) = fig.axes
        for color, name, group_pairs in _of_groups(pairs, groups):
            distances_sorted = np.sort(group_pairs["distance"])
            share = 100 * np.arange(1, len(distances_sorted) + 1) / len(distances_sorted)
            axis.step(np.append(0.0, distances_sorted), np.append(0.0, share), where="post", color=color, lw=1.6, label=name)
        if tau is not None:
            axis.axvline(tau, color="black", ls="--", lw=1.2, label=f"tau = {tau:g}: farther is unmatched")
        axis.set_xlim(left=0)
        axis.set_ylim(0, 102)
        axis.set_xlabel("distance to the nearest counterpart (standard deviations of the merit features, L2)")
        axis.set_ylabel("% of the group's people, at most so far")
        axis.grid(alpha=0.3)
        _legend(axis)


def plane(table: pd.DataFrame, groups: Sequence[str], threshold: float, path: Path) -> None:
    """Draw the groups and everybody in the plane of prediction flip rate and CEC, with 95 % intervals (the paper's figure 4).

    table: group, pfr, pfr_low, pfr_high, cec, cec_low, cec_high; the first line is everybody.
    """
    with figure(path, (7.5, 5)) as fig:
        (axis,) = fig.axes
        colors = {table["group"].iloc[0]: "black", **dict(zip(groups, COLORS, strict=False))}
        table = table[table["group"].isin(colors) & table["cec"].notna()]
        for k, line in enumerate(table.to_dict(orient="records")):
            axis.errorbar(
                [line["pfr"]], [line["cec"]], fmt="o" if k else "D", color=colors[line["group"]], capsize=3, ms=7,
                label=line["group"],
                xerr=[[line["pfr"] - line["pfr_low"]], [line["pfr_high"] - line["pfr"]]],
                yerr=[[line["cec"] - line["cec_low"]], [line["cec_high"] - line["cec"]]],
            )
        _threshold_line(axis.axhline, threshold)
        axis.set_xlim(0, min(1.01, max(0.5, 1.15 * float(table["pfr_high"].max()))))
        axis.set_ylim(0, 1)
        axis.set_xlabel("prediction flip rate: counterparts decided differently")
        axis.set_ylabel("CEC: mean score")
        axis.text(0.01, 0.98, "hidden bias: few flips, different reasons", transform=axis.transAxes, va="top", fontsize=8)
        axis.text(0.01, 0.02, "consistent: few flips, similar reasons", transform=axis.transAxes, va="bottom", fontsize=8)
        axis.grid(alpha=0.3)
        _legend(axis)


def _of_groups(pairs: pd.DataFrame, groups: Sequence[str]) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield the colour, name and pairs of every group that has pairs."""
    for color, name in zip(COLORS, groups, strict=False):
        group_pairs = pairs[pairs["group"] == name]
        if len(group_pairs):
            yield color, name, group_pairs


def _threshold_line(line: Callable[..., Any], threshold: float) -> None:
    line(threshold, color="black", ls="--", lw=1.2, label=f"threshold {threshold:g}")


def _legend(axis: Any) -> None:
    """Draw the legend below the axes, where it hides nothing."""
    axis.figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=2)
