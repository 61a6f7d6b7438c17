"""PBA on the screen, on paper and as JSON: the paper's table (Tables 1-3) and its figure of verified outcomes (Figures 2-3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table as Grid

from encoders.network import Network
from verifair.engine.store import count
from verifair.schema.schema import Schema
from verifair.systems.figures import figure

RATES = ("SP", "TPR", "FPR", "CFA")

LETTERS = 40
"""Names of groups with more letters than these stand aslant under an axis, lest they overlap."""


def screen_table(sensitive: str, rates: pd.DataFrame, shares: pd.DataFrame) -> Grid:
    """One column a group, one line a metric; PBA and RB by setting and delta. An open share is shown beside the proved one."""
    rates, shares = rates[rates["sensitive"] == sensitive], shares[shares["sensitive"] == sensitive]
    groups = [g for g in rates["group"].drop_duplicates() if rates.loc[rates["group"] == g, "rows"].sum() > 0]
    grid = Grid(title=f"Fairness by {sensitive}", title_justify="left")
    for column in ("metric", "setting", "delta"):
        grid.add_column(column)
    for group in groups:
        grid.add_column(str(group), justify="right")
    values = rates.set_index(["metric", "group"])["value"]
    for metric in RATES:
        cells = [_percent(float(values.loc[(metric, g)])) for g in groups]
        grid.add_row({"TPR": "EO (TPR)", "FPR": "EO (FPR)"}.get(metric, metric), "", "", *cells)
    for metric in ("RB", "PBA"):
        grid.add_section()
        for setting in ("observed", "flipped"):
            mine = shares[(shares["metric"] == metric) & (shares["setting"] == setting)]
            for delta in sorted(mine["delta"].unique()):
                at = mine[mine["delta"] == delta].groupby("shown")[["rows", "proved", "unknown"]].sum()
                grid.add_row(metric, setting, f"{delta:g}", *[_share(at, g) for g in groups])
    return grid


def pair_table(sensitive: str, shares: pd.DataFrame) -> Grid:
    """PBA for every ordered pair of groups: how often x is proved more confident than its counterfactual, and the reverse."""
    mine = shares[(shares["sensitive"] == sensitive) & (shares["metric"] == "PBA")]
    grid = Grid(title=f"PBA by ordered pair of {sensitive}", title_justify="left")
    for column in ("from", "to", "delta"):
        grid.add_column(column)
    for column in ("rows", "observed", "flipped"):
        grid.add_column(column, justify="right")
    for (group, to, delta), part in mine.groupby(["group", "to", "delta"]):
        counts = ["rows", "proved", "unknown"]
        cells = [_cell(part.loc[part["setting"] == setting, counts].sum()) for setting in ("observed", "flipped")]
        rows = int(part.loc[part["setting"] == "observed", "rows"].sum())
        grid.add_row(str(group), str(to), f"{delta:g}", str(rows), *cells)
    return grid


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


def answer_of(
    network: Network, schema: Schema, rates: pd.DataFrame, shares: pd.DataFrame, verdicts: pd.DataFrame, seconds: float, seed: int
) -> dict[str, Any]:
    """JSON-ready, as the command line writes it."""
    return {
        "query": "pba",
        "model_sha256": network.source_sha256,
        "schema_sha256": schema.sha256,
        "counts": count(verdicts),
        "rates": rates.to_dict(orient="records"),
        "shares": shares.to_dict(orient="records"),
        "verdicts": verdicts.drop(columns=["tree"]).to_dict(orient="records"),
        "seconds": seconds,
        "seed": seed,
    }


def _share(at: pd.DataFrame, group: object) -> str:
    return _cell(at.loc[group]) if group in at.index else "-"


def _cell(counts: pd.Series) -> str:
    rows, proved, unknown = (float(counts[name]) for name in ("rows", "proved", "unknown"))
    if not rows:
        return "-"
    return _percent(proved / rows) + (f" (+{100 * unknown / rows:.1f}% open)" if unknown else "")


def _percent(value: float) -> str:
    return "-" if value != value else f"{100 * value:.1f}%"
