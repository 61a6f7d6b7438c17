"""The reproducible tables and figures of the CST paper."""

from __future__ import annotations

from functools import partial

import pandas as pd

from verifair.papers.catalog import Printed, Request
from verifair.papers.cst.data import authors_loan
from verifair.papers.cst.printed import TABLE_1, TABLE_4, TABLE_5
from verifair.papers.cst.tables import balances, law_counts, loan_cases, loan_counts

RULES = (
    "Exact. Beside the text: of equal floats the later row wins, a complainant who is not among the k + 1 nearest leaves a group "
    "of k + 1 (ties heap), z = 1.645, counterfactuals are scaled by their own table{}."
)


def _loan(request: Request) -> pd.DataFrame:
    return loan_counts(request.file("cst", "LoanApplication_v2.csv.gz").parents[1], TABLE_1)


def _cases(request: Request, *, by_cf: bool) -> pd.DataFrame:
    return loan_cases(request.file("cst", "LoanApplication_v2.csv.gz").parents[1], by_cf=by_cf)


def _balances(request: Request) -> pd.DataFrame:
    return balances(authors_loan(request.file("cst", "LoanApplication_v2.csv.gz").parents[1]))


def _race(request: Request) -> pd.DataFrame:
    folder = request.file("tabular", "law_school.csv.gz").parents[1]
    return law_counts(folder, TABLE_4, protected="nonwhite", more=("female",))


def _gender(request: Request) -> pd.DataFrame:
    return law_counts(request.file("tabular", "law_school.csv.gz").parents[1], TABLE_5, protected="female")


PRINTED = (
    Printed(name="table 1", about="cases of the loan file, gender", datasets=("loan",), make=_loan, keys=("method", "k")),
    Printed(
        name="table 2", about="people found by CST and CF, k = 15", datasets=("loan",), make=partial(_cases, by_cf=True),
        keys=("row",),
        differences="Printed with two decimals.",
    ),
    Printed(
        name="table 3", about="people found by CST alone, k = 15", datasets=("loan",), make=partial(_cases, by_cf=False),
        keys=("row",),
        differences="Printed with two decimals. The high end of row 435 is 0.574: 0.58 is a sum of rounded numbers.",
    ),
    Printed(
        name="table 4", about="cases of the law school, race", datasets=("law school",), make=_race, keys=("method", "k"),
        differences=RULES.format(", and sex is a nominal attribute of the distance"),
    ),
    Printed(
        name="table 5", about="cases of the law school, gender", datasets=("law school",), make=_gender, keys=("method", "k"),
        differences=RULES.format(""),
    ),
    Printed(
        name="figure 2", about="account balances: factual, counterfactual, in the groups", datasets=("loan",), make=_balances,
        keys=("panel", "people"),
        differences="The paper draws this figure and prints no numbers of it; its five complainants were drawn, ours are the first "
        "that ST and CST w/o both find. tst-cf is found with counterfactuals scaled by their own table.",
    ),
)
