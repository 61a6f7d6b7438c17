"""The figure of PBA: the paper's verified outcomes (Figures 2-3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from verifair.figures import COLORS, figure
from verifair.systems.pba.evidence import classes_of
from verifair.systems.pba.result import PbaResult

MAX_LETTERS = 40
"""Names of groups with more letters than these stand aslant under an axis, lest they overlap."""
GROUPS = 10
"""So many groups are drawn, those with the most rows."""
BAR_SHARE = 0.7
"""Share of a group's space that its bars take."""


def plots(result: PbaResult) -> dict[str, Callable[[Path], None]]:
    """Return file name -> function that draws it."""
    return {
        f"outcomes{result.suffix(name)}.png": partial(outcome_plot, name, result.shares, outcomes=classes_of(result.asked[0].query))
        for name in result.protected
    }


def outcome_plot(sensitive: str, shares: pd.DataFrame, path: Path, outcomes: Sequence[str]) -> None:
    """Draw the share of eligible rows proved, by outcome (outcomes: names of the classes) and shown group, at the smallest
    delta."""
    lines = shares[(shares["sensitive"] == sensitive) & (shares["metric"] == "PBA")]
    delta = lines["delta"].min()
    lines = lines[lines["delta"] == delta]
    with figure(path, (10, 4), 1, 2, sharey=True) as fig:
        for axis, setting in zip(fig.axes, ("observed", "flipped"), strict=True):
            part, groups = _largest_groups(lines[lines["setting"] == setting])
            share, undecided = (_percent(part, column, outcomes) for column in ("proved", "unknown"))
            positions, width = np.arange(len(share)), BAR_SHARE / len(share.columns)
            for index, (outcome, heights) in enumerate(share.items()):
                left = positions - BAR_SHARE / 2 + index * width
                bars = axis.bar(left, heights.fillna(0.0), width, align="edge", color=COLORS[index % len(COLORS)], label=outcome)
                labels = ["no\nrows" if empty else f"{height:.0f}%" for empty, height in zip(heights.isna(), heights, strict=True)]
                axis.bar_label(bars, labels, fontsize=8)
            axis.set_xticks(positions, share.index)
            axis.set_xlim(-0.5, max(len(share), 1) - 0.5)
            for bars, outcome_name in zip(list(axis.containers), undecided.columns, strict=True):  # undecided rows are hatched
                for bar, open_share in zip(bars, undecided[outcome_name], strict=True):
                    if open_share > 0:
                        axis.bar(
                            bar.get_x(), open_share, bar.get_width(), bar.get_height(), align="edge", facecolor="none",
                            edgecolor="#777777", hatch="///", label="not decided",
                        )
            note = "" if groups == len(share) else f" ({len(share)} largest of {groups} groups)"
            axis.set_title(f"{setting}: {'as they are' if setting == 'observed' else f'with {sensitive} exchanged'}{note}")
            axis.set_xlabel(sensitive)
            if sum(len(str(group)) for group in share.index) > MAX_LETTERS:
                for label in axis.get_xticklabels():
                    label.set(rotation=30, ha="right", rotation_mode="anchor")
            axis.set_ylim(0, 105)
            axis.grid(axis="y", alpha=0.3)
        fig.axes[0].set_ylabel(f"proved more confident,\n% of eligible rows (delta = {delta:g})")
        handles = {name: handle for axis in fig.axes for handle, name in zip(*axis.get_legend_handles_labels(), strict=True)}
        fig.legend(handles.values(), handles.keys(), title="true outcome", loc="outside right upper")


def _largest_groups(shares: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Return the counts by shown group and outcome of the groups with the most rows, and how many groups have any."""
    part = shares[shares["rows"] > 0].groupby(["shown", "label"])[["rows", "proved", "unknown"]].sum()
    rows = part["rows"].groupby(level="shown").sum()
    return part.loc[part.index.get_level_values("shown").isin(rows.nlargest(GROUPS).index)], len(rows)


def _percent(part: pd.DataFrame, column: str, outcomes: Sequence[str]) -> pd.DataFrame:
    """Return the share of rows by shown group and outcome, %; the last class first."""
    return (100 * part[column] / part["rows"]).unstack("label").reindex(columns=pd.Index(list(outcomes)[::-1], name="outcome"))
