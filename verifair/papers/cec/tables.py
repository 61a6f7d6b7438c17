"""Parts of the CEC paper's tables and figures: one fold of nine methods, of parts of the loss, and of the sweep of its weights.

Parts hold all measurements; `views` makes the tables and figures of them. A network is trained once in a run.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from verifair.papers.cec.data import CecData, measured
from verifair.systems.cec.training import CEC_LOOP, METHODS, OURS, ConsistencyTerms, train_decider

LOSSES = {"pred": (0.0, 0.0), "pred + EO": (1.0, 0.0), "pred + CEC": (0.0, 1.0), "full": (1.0, 1.0)}
"""Name -> (lambda_EO, lambda_CEC)."""
LAMBDAS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)


def methods(name: str, path: Path | None, fold: int) -> pd.DataFrame:
    """Table 2 of one fold: utility, outcome and procedure of every method, and (table 3) the methods that none strictly beats.

    free: 1 where none of the paper's methods has strictly better F1, EO gap and CEC at once.   free of ours: nor one of ours.
    """
    table = pd.DataFrame([{"dataset": name, "method": method, **_trained(name, path, fold, method)} for method in METHODS])
    table["free"] = free(table, table[~table["method"].isin(OURS)])
    table["free of ours"] = free(table, table)
    return table


def losses(fold: int) -> pd.DataFrame:
    """Table 4 of one fold: German, trained with parts of the loss."""
    return pd.DataFrame([{"dataset": "german", "loss": loss, **_weighted(fold, *weights)} for loss, weights in LOSSES.items()])


def sweep(fold: int) -> pd.DataFrame:
    """Figure 6 of one fold: German, trained with every pair of weights."""
    pairs = itertools.product(LAMBDAS, LAMBDAS)
    return pd.DataFrame([{"lambda_EO": eo, "lambda_CEC": cec, **_weighted(fold, eo, cec)} for eo, cec in pairs])


def free(methods: pd.DataFrame, rivals: pd.DataFrame) -> list[float]:
    """Return 1 for each line than which no rival has strictly better F1, EO gap and CEC, and 0 for the others."""
    return [
        float(not ((rivals["F1"] > row["F1"]) & (rivals["EO gap"] < row["EO gap"]) & (rivals["CEC"] < row["CEC"])).any())
        for _, row in methods.iterrows()
    ]


def audited(case: CecData, fold: int, method: str, terms: ConsistencyTerms | None = None) -> dict[str, Any]:
    """Train on all folds except this one, and measure on it."""
    train, test = list(case.folds())[fold]
    decider = train_decider(method, train, case.columns, loop=replace(CEC_LOOP, seed=fold), consistency=terms)
    return measured(decider, case.columns, train, test)


def _weighted(fold: int, eo: float, cec: float) -> Mapping[str, Any]:
    return _trained("german", None, fold, "cec", ConsistencyTerms(lambda_eo=eo, lambda_cec=cec))


@cache
def _trained(name: str, path: Path | None, fold: int, method: str, terms: ConsistencyTerms | None = None) -> Mapping[str, Any]:
    return audited(_case(name, path), fold, method, terms)


_case = cache(CecData.load)
