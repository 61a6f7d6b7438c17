"""Tables 1 to 5 and figure 2 of the CST paper, by the authors' procedure (`preset="paper"`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from verifair.papers.cst.data import PublishedQuestion, authors_loan, law_school
from verifair.papers.cst.printed import TABLES_2_3, Counts, K
from verifair.systems.cst.testing import Situations

SCORES = ("LSAT", "UGPA")
BALANCE = "AccountBalance"
SHOWN = 5
"""Complainants on the right of figure 2."""
GROUPS = {"control": "ctr", "ST": "tst-st", "CST": "tst-cf"}
"""The paper's names of the groups in figure 2."""
FOUND_BY_CF = 5
"""So many of `TABLES_2_3` are table 2, which CF finds as well; the others are table 3."""


def the_one(audit: PublishedQuestion, **settings: Any) -> Situations:
    """Test the one protected attribute that is asked about."""
    (situations,) = audit.estimator(preset="paper", **settings).fit(audit.frame).test().values()
    return situations


def loan_counts(folder: Path, printed: Counts) -> pd.DataFrame:
    """Table 1: cases by method and k, of the loan applicants."""
    return pd.DataFrame(_counts(the_one(authors_loan(folder), k=K), printed))


def law_counts(folder: Path, printed: Counts, *, protected: str, more: tuple[str, ...] = ()) -> pd.DataFrame:
    """Tables 4 and 5: the same of the law school's applicants. more: nominal attributes of the distance beside the two scores."""
    situations = the_one(law_school(folder), k=K, do={protected: 0}, attributes=(*SCORES, *more), categorical=more)
    return pd.DataFrame(_counts(situations, printed))


def _counts(situations: Situations, printed: Counts) -> Iterator[dict[str, Any]]:
    for method in situations.methods:
        for k, paper in zip(situations.k, printed[method], strict=True):
            claims = situations.claims(method, k)
            yield {
                "method": method, "k": k, "cases": int(claims.positive.sum()), "paper's cases": paper,
                "significant": int(claims.significant.sum()), "complainants": len(situations.complainants),
            }


def loan_cases(folder: Path, *, by_cf: bool) -> pd.DataFrame:
    """Table 2 (by_cf) or 3: people of the loan file, k = 15."""
    situations = the_one(authors_loan(folder), k=(15,))
    claims, position = situations.claims("CST", 15), {int(row): c for c, row in enumerate(situations.complainants)}
    rows = list(TABLES_2_3.items())
    selected = rows[:FOUND_BY_CF] if by_cf else rows[FOUND_BY_CF:]
    return pd.DataFrame([_case(claims, row, position[row], printed) for row, printed in selected])


def balances(question: PublishedQuestion, k: int = 15) -> pd.DataFrame:
    """Figure 2: account balances of all complainants, factual and counterfactual (left), and in the groups of the first five whom
    ST and CST w/o both find (right; the paper drew five)."""
    estimator = question.estimator(preset="paper", k=(k,)).fit(question.frame)
    (situations,) = estimator.test().values()
    balance = question.frame[BALANCE]
    counterfactual, _ = estimator.counterfactual(situations.do)
    factual = balance.iloc[situations.complainants]
    shown = [("left", "all, as they are", factual), ("left", "all, counterfactual", counterfactual[BALANCE])]
    in_both = situations.claims("ST", k).positive & situations.claims("CST w/o", k).positive
    for place in situations.complainants[in_both][:SHOWN]:
        for group, (rows, _, _) in situations.case(int(place), k).items():
            shown.append(("right", f"row {question.frame.index[place]}, {GROUPS[group]}", balance.iloc[rows]))
    quarters = {"lower quartile": 0.25, "median": 0.5, "upper quartile": 0.75}
    return pd.DataFrame([
        {"panel": panel, "people": people} | {name: float(values.quantile(share)) for name, share in quarters.items()}
        for panel, people, values in shown
    ])  # fmt: skip


def _case(claims: Any, row: int, c: int, printed: tuple[float, float, float, float, float, bool]) -> Mapping[str, Any]:
    ours = {
        "p_c": claims.p_control[c], "p_t": claims.p_test[c], "delta": claims.delta[c], "low": claims.low[c], "high": claims.high[c],
        "significant": bool(claims.significant[c]),
    }
    line: dict[str, Any] = {"row": row}
    for (name, value), paper in zip(ours.items(), printed, strict=True):
        line |= {name: value, f"paper's {name}": paper}
    return line
