"""From verdicts and predictions to scores by group: PBA, RB, and the companions SP, EO and CFA (PBA, sections 3.3-3.5, A.4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from verifair.engine.exchange import Exchange
from verifair.engine.store import GOALS, OPEN, PROVED, REFUTED, Verdicts
from verifair.systems.groups import SMALL
from verifair.systems.pba.stream import Rates
from verifair.systems.proportions import critical, level_of_pairs, newcombe, wilson

METRIC_OF_GOAL = {
    "observed": ("PBA", "observed"),
    "flipped": ("PBA", "flipped"),
    "robust": ("RB", "observed"),
    "robust-flipped": ("RB", "flipped"),
}
RANKS = {"proved": PROVED, "violated": REFUTED, "unknown": OPEN}
Z = critical(0.95, 2)


def proved_shares(verdicts: Sequence[Verdicts], exchanges: Sequence[Exchange]) -> pd.DataFrame:
    """Return PBA and RB scores: the share of eligible rows that is proved, a line for each feature, goal, delta, ordered pair and
    label.

    exchanges: those that `sensitive` of the verdicts names; "" for none.

    Columns: sensitive, metric, setting, delta, group (the row's own value), shown (the value the row is shown with: its own when
    observed, the counterfactual's when flipped; the paper's columns), label, rows, proved, violated, unknown (counts).
    With more than two classes a row counts as proved if it is proved against every other class, as violated if against some.
    """
    answers = pd.concat([verdict_set.answers() for verdict_set in verdicts], ignore_index=True)
    key, parts = ["sensitive", "goal", "delta", "group", "to", "shown", "label"], []
    for goal in GOALS:
        selected = answers[answers[goal].notna()]
        columns = {name: selected["people"].where(selected[goal] == rank, 0) for name, rank in RANKS.items()}
        shown = selected["to" if METRIC_OF_GOAL[goal][1] == "flipped" else "group"]
        parts.append(selected.assign(goal=goal, shown=shown, rows=selected["people"], **columns)[[*key, "rows", *RANKS]])
    counts = pd.concat(parts, ignore_index=True).groupby(key, as_index=False).sum()
    metrics = [METRIC_OF_GOAL[goal] for goal in counts["goal"]]
    counts.insert(1, "metric", [metric for metric, _ in metrics])
    counts.insert(2, "setting", [setting for _, setting in metrics])
    by_name = {exchange.name: exchange for exchange in exchanges}
    for column in ("group", "to", "shown"):
        counts[column] = [
            by_name[name].format(value) if name else "all" for name, value in zip(counts["sensitive"], counts[column], strict=True)
        ]
    return counts.drop(columns="goal")


def group_rates(measured: Rates) -> pd.DataFrame:
    """Return SP, TPR, FPR and CFA of every group: columns sensitive, metric, group, value, rows, low, high, ranked.

    SP: share predicted positive.  TPR, FPR: the same among rows whose label is, or is not, positive (EO).  CFA: share of
    (row, legal counterfactual) pairs with the same prediction. A group without rows, or pairs, for a rate has value NaN, never 0.
    low, high: Wilson's 95 % interval; NaN for CFA, whose pairs share rows.   ranked: True with at least SMALL rows for the rate.
    """
    lines: list[dict[str, object]] = []
    for position, value in enumerate(measured.exchange.numbers):
        for index, metric in enumerate(measured.NAMES):
            hits, rows = int(measured.hits[index, position]), int(measured.rows[index, position])
            share = hits / rows if rows else np.nan
            low, high = (np.nan, np.nan) if metric == "CFA" or not rows else wilson(np.array(share), rows, Z)
            lines.append({
                "metric": metric, "group": measured.exchange.format(value), "value": share, "rows": rows, "low": float(low),
                "high": float(high), "ranked": metric != "CFA" and rows >= SMALL,
            })  # fmt: skip
    rates = pd.DataFrame(lines)
    rates.insert(0, "sensitive", measured.exchange.name)
    return rates


GAPS = ("sensitive", "metric", "lowest", "highest", "gap", "low", "high", "groups", "small")


def group_gaps(rates: pd.DataFrame) -> pd.DataFrame:
    """Return the gap between the highest and the lowest group of SP, TPR and FPR: a line for each feature and rate, columns GAPS.

    Groups of fewer than SMALL rows are not compared; `small` counts them. low, high: Newcombe's interval at a level that holds for
    all pairs of the `groups` compared (Bonferroni), because these two were picked as the furthest apart.
    """
    lines: list[tuple[object, ...]] = []
    for (name, metric), group_lines in rates[rates["metric"] != "CFA"].groupby(["sensitive", "metric"], sort=False):
        ranked = group_lines[group_lines["ranked"]]
        count, small = len(ranked), int(((group_lines["rows"] > 0) & ~group_lines["ranked"]).sum())
        if count < 2:
            lines.append((name, metric, None, None, np.nan, np.nan, np.nan, count, small))
            continue
        highest, lowest = ranked.loc[ranked["value"].idxmax()], ranked.loc[ranked["value"][::-1].idxmin()]  # two even if tied
        z = critical(level_of_pairs(count), 2)
        ends = newcombe(np.array(highest["value"]), highest["rows"], np.array(lowest["value"]), lowest["rows"], z)
        values = [float(end) for end in (highest["value"] - lowest["value"], *ends)]
        lines.append((name, metric, lowest["group"], highest["group"], *values, count, small))
    return pd.DataFrame(lines, columns=list(GAPS))
