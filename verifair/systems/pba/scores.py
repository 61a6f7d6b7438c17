"""From verdicts and predictions to scores by group: PBA, RB, and the companions SP, EO and CFA (PBA, sections 3.3-3.5, A.4)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from encoders.network import Model
from verifair.schema.schema import Schema
from verifair.systems.pba.rows import Table

METRIC_OF_GOAL = {
    "observed": ("PBA", "observed"),
    "flipped": ("PBA", "flipped"),
    "robust": ("RB", "observed"),
    "robust-flipped": ("RB", "flipped"),
}


def proved_shares(verdicts: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """PBA and RB scores: the share of eligible rows that is proved, one line for each feature, goal, delta, ordered pair and label.

    Columns: sensitive, metric, setting, delta, group (the row's own value), shown (the value the row is shown with: its own when
    observed, the counterfactual's when flipped; the paper's columns), label, rows, proved, violated, unknown (counts).
    With more than two classes a row counts as proved when it is against every other class, as violated when against some.
    """
    key = ["sensitive", "goal", "delta", "row", "to", "group", "label"]
    status = verdicts["status"]
    flat = verdicts[key].assign(proved=status == "proved", violated=status == "violated")
    rows = flat.groupby(key, as_index=False).agg(proved=("proved", "all"), violated=("violated", "any"))
    rows["unknown"] = ~rows["proved"] & ~rows["violated"]
    flipped = rows["goal"].isin(["flipped", "robust-flipped"])
    rows["shown"] = np.where(flipped, rows["to"], rows["group"])
    counts = rows.groupby(["sensitive", "goal", "delta", "group", "to", "shown", "label"], as_index=False).agg(
        rows=("row", "size"), proved=("proved", "sum"), violated=("violated", "sum"), unknown=("unknown", "sum")
    )
    named = [METRIC_OF_GOAL[goal] for goal in counts["goal"]]
    counts.insert(1, "metric", [metric for metric, _ in named])
    counts.insert(2, "setting", [setting for _, setting in named])
    for column in ("group", "to", "shown"):
        counts[column] = [
            schema.format(name, value) if name else "all" for name, value in zip(counts["sensitive"], counts[column], strict=True)
        ]
    return counts.drop(columns="goal")


def group_rates(network: Model, schema: Schema, table: Table, sensitive: str) -> pd.DataFrame:
    """SP, TPR, FPR and CFA of every group of `sensitive`: columns sensitive, metric, group, value, rows.

    SP: share predicted positive.  TPR, FPR: the same among rows whose label is, or is not, positive (EO).  CFA: share of
    (row, counterfactual) pairs with the same prediction. A group without rows for a rate has value NaN, never 0.
    """
    v = schema.index(sensitive)
    own = table.raw[:, v]
    positive, truly = (schema.outcome.favourable(classes) for classes in (table.predicted, table.labels))
    lines: list[dict[str, object]] = []
    for value in schema.values(sensitive):
        mine = own == value
        chosen = {"SP": mine, "TPR": mine & truly, "FPR": mine & ~truly}
        for metric, rows in chosen.items():
            share = float(positive[rows].mean()) if rows.any() else float("nan")
            lines.append({"metric": metric, "group": value, "value": share, "rows": int(rows.sum())})
        others = [other for other in schema.values(sensitive) if other != value and mine.any()]
        same = [table.flipped(network, schema, sensitive, other)[mine] == table.predicted[mine] for other in others]
        agree = np.concatenate(same) if same else np.empty(0)
        share = float(agree.mean()) if len(agree) else float("nan")
        lines.append({"metric": "CFA", "group": value, "value": share, "rows": len(agree)})
    rates = pd.DataFrame(lines)
    rates["group"] = [schema.format(sensitive, value) for value in rates["group"]]
    rates.insert(0, "sensitive", sensitive)
    return rates


def complementary(verdicts: pd.DataFrame) -> bool:
    """The free soundness test of PBA: no row is proved in both directions (observed + flipped <= 100 %)."""
    proved = verdicts[(verdicts["status"] == "proved") & verdicts["goal"].isin(["observed", "flipped"])]
    return not proved.duplicated(["sensitive", "delta", "row", "to", "against"]).any()
