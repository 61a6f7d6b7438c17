"""Tables 2 to 4 of the CEC paper: nine methods in folds, and what each part of the loss does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from verifair.papers.cec.data import Case, measured
from verifair.papers.cec.printed import ABLATION, LANDMARKS
from verifair.systems.cec.training import CEC_LOOP, METHODS, OURS, ConsistencyTerms, train_decider

SHOWN = ("F1", "AUC", "variance", "positive", "EO gap", "SP gap", "CEC", "CEC within", "PFR", "A", "B", "C", "D")
LOSSES = {"pred": (0.0, 0.0), "pred + EO": (1.0, 0.0), "pred + CEC": (0.0, 1.0), "full": (1.0, 1.0)}
"""Name -> (lambda_EO, lambda_CEC)."""


def methods(name: str, path: Path | None, fold: int) -> pd.DataFrame:
    """Tables 2 and 3 of one fold: utility, outcome and procedure of every method, and who is strictly beaten by none.

    free: 1 where none of the paper's methods has strictly better F1, EO gap and CEC at once on the fold.
    """
    case = Case.load(name, path)
    lines = [{"dataset": name, "method": method, **_measured(case, fold, method)} for method in METHODS]
    table = pd.DataFrame(lines)
    rivals = table[~table["method"].isin(OURS)]
    table["free"] = [
        float(not ((rivals["F1"] > one["F1"]) & (rivals["EO gap"] < one["EO gap"]) & (rivals["CEC"] < one["CEC"])).any())
        for _, one in table.iterrows()
    ]
    return table.assign(**{"paper's text": [LANDMARKS.get((name, method), "") for method in table["method"]]})


def losses(fold: int) -> pd.DataFrame:
    """Table 4 of one fold: German, trained with parts of the loss."""
    case = Case.load("german")
    lines = []
    for loss, (eo, cec) in LOSSES.items():
        found = _measured(case, fold, "cec", ConsistencyTerms(lambda_eo=eo, lambda_cec=cec))
        lines.append({"loss": loss, **found, "paper's text": ABLATION[loss]})
    return pd.DataFrame(lines)


def _measured(case: Case, fold: int, method: str, terms: ConsistencyTerms | None = None) -> dict[str, Any]:
    """Train on all folds but this one, and measure on it."""
    train, test = list(case.folds())[fold]
    decider = train_decider(method, train, case.columns, loop=replace(CEC_LOOP, seed=fold), consistency=terms)
    found = measured(decider, case.columns, train, test)
    return {name: float(found[name]) for name in SHOWN}
