"""The CEC paper's tables and figures, assembled from their parts, beside the numbers in its text."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import pandas as pd

from verifair.papers.cec.printed import ABLATION, LANDMARKS, PARETO, PARTS, QUADRANTS, SHARES, SHIFTS
from verifair.papers.reproduce import averaged
from verifair.systems.cec.settings import THRESHOLD
from verifair.systems.cec.training import OURS

METHOD, LOSS, WEIGHTS = ("dataset", "method"), ("dataset", "loss"), ("lambda_EO", "lambda_CEC")
OF_METHODS = ("F1", "AUC", "variance", "positive", "EO gap", "SP gap", "CEC", "CEC within", "PFR", "B", "on merit")
OF_LOSSES = ("F1", "AUC", "variance", "positive", "EO gap", "CEC", "PFR", "B")
REGIMES = ("A", "B", "C", "D", "B at 0.3")
SWEPT = ("CEC", "B", "A", "F1", "EO gap", "PFR", "AUC", "variance", "positive")
"""The paper's six, and three that show whether the model still decides."""
FLIPS = 0.2
"""PFR at which the plane of figure 4 is divided: the paper names no value."""


def methods(parts: pd.DataFrame) -> pd.DataFrame:
    """Table 2."""
    return _with_printed(_means(parts, METHOD, OF_METHODS), LANDMARKS)


def pareto(parts: pd.DataFrame) -> pd.DataFrame:
    """Table 3: the folds on which none of the paper's methods is better, by dataset, and their share of all.

    with ours: the folds on which merit-only and excess, which are ours, are not better either.
    """
    paper = parts[~parts["method"].isin(OURS)]
    counts = paper.pivot_table(index="method", columns="dataset", values="free", aggfunc="sum", sort=False)
    groups = paper.groupby("method", sort=False)
    printed = [PARETO.get(str(method)) for method in counts.index]
    columns = {
        "with ours": groups["free of ours"].sum().astype(int), "folds": groups.size(), "share": groups["free"].mean(),
        "paper's share": [float(Fraction(text)) if text else None for text in printed],
        "paper's count": [text or "not in the text" for text in printed],
    }
    return counts.fillna(0).astype(int).assign(**columns).reset_index()  # an interrupted run has datasets without a fold yet


def plane(parts: pd.DataFrame) -> pd.DataFrame:
    """Figure 4: how often decisions flip, and how much the reasons differ."""
    table = _means(parts, METHOD, ("PFR", "CEC"))
    names = {(False, False): "A", (False, True): "B", (True, False): "C", (True, True): "D"}
    table["quadrant"] = [
        names[pfr > FLIPS, cec > THRESHOLD] for pfr, cec in zip(table["PFR"], table["CEC"], strict=True)
    ]
    return _with_printed(table, QUADRANTS, "quadrant")


def regimes(parts: pd.DataFrame) -> pd.DataFrame:
    """Figure 5."""
    return _with_printed(_means(parts, METHOD, REGIMES), SHARES)


def losses(parts: pd.DataFrame) -> pd.DataFrame:
    """Table 4."""
    return _with_ablation(_means(parts, LOSS, OF_LOSSES), PARTS)


def loss_regimes(parts: pd.DataFrame) -> pd.DataFrame:
    """Figure 7."""
    return _with_ablation(_means(parts, LOSS, REGIMES), SHIFTS)


def sweep(parts: pd.DataFrame) -> pd.DataFrame:
    """Figure 6."""
    return _means(parts, WEIGHTS, SWEPT)


def _means(parts: pd.DataFrame, keys: tuple[str, ...], columns: tuple[str, ...]) -> pd.DataFrame:
    return averaged(parts[[*keys, *columns]], keys)


def _with_printed(table: pd.DataFrame, printed: Mapping[tuple[str, str], str], column: str = "text") -> pd.DataFrame:
    """Return the table with a column of what is printed about each method, "" for nothing."""
    keys = zip(table["dataset"], table["method"], strict=True)
    return table.assign(**{f"paper's {column}": [printed.get(key, "") for key in keys]})


def _with_ablation(table: pd.DataFrame, words: Mapping[str, str]) -> pd.DataFrame:
    """Return the table with the numbers of table 4 and figure 7 that the text repeats."""
    printed = {
        f"paper's {column}": table["loss"].map(numbers).astype(float) for column, numbers in ABLATION.items() if column in table
    }
    return table.assign(**printed, **{"paper's text": table["loss"].map(words).fillna("")})
