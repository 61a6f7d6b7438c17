"""PBA on paper: the paper's figure of verified outcomes (Figures 2-3)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd

from verifair.systems.figures import figure
from verifair.systems.pba.result import PbaResult

LETTERS = 40
"""Names of groups with more letters than these stand aslant under an axis, lest they overlap."""


def plots(result: PbaResult) -> dict[str, Callable[[Path], None]]:
    """Return file name -> what draws it."""
    return {
        f"outcomes{result.suffix(name)}.png": partial(outcome_plot, name, result.shares, outcomes=result.described.class_names)
        for name in result.protected
    }


def outcome_plot(sensitive: str, shares: pd.DataFrame, path: Path, outcomes: tuple[str, str]) -> None:
    """Share of eligible rows proved, by outcome (outcomes = names of class 0 and class 1) and shown group; smallest delta."""
    mine = shares[(shares["sensitive"] == sensitive) & (shares["metric"] == "PBA")]
    delta = mine["delta"].min()
    mine = mine[mine["delta"] == delta]
    with figure(path, (10, 4), 1, 2, sharey=True) as drawn:
        for axis, setting in zip(drawn.axes, ("observed", "flipped"), strict=True):
            part = mine[mine["setting"] == setting].groupby(["shown", "label"])[["rows", "proved"]].sum()
            share = (100 * part["proved"] / part["rows"]).unstack("label").reindex(columns=[1, 0])
            share.columns = pd.Index([outcomes[int(c)] for c in share.columns], name="outcome")
            share.plot.bar(ax=axis, rot=0, color=["#2166ac", "#b2182b"], legend=setting == "observed", width=0.7)
            for bars in axis.containers:
                axis.bar_label(bars, fmt="%.0f%%", fontsize=8)
            axis.set_title(f"{setting} ({'own' if setting == 'observed' else 'flipped'} {sensitive})")
            axis.set_xlabel("")
            if sum(len(str(group)) for group in share.index) > LETTERS:
                for label in axis.get_xticklabels():
                    label.set(rotation=30, ha="right", rotation_mode="anchor")
            axis.set_ylim(0, 105)
            axis.grid(axis="y", alpha=0.3)
        drawn.axes[0].set_ylabel(f"proved more confident, % of eligible rows (delta = {delta:g})")
