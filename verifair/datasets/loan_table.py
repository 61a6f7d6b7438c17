"""Synthetic loan applicants: salary and balance depend on gender by known equations. (CST paper, section 4.1)

    A ~ Ber(0.45), 1 = female                        U1 = 10000 Poi(10),  U2 = 2500 N(0, 1)
    AnnualSalary   X1 = -1500 Poi(10) A + U1         AccountBalance  X2 = -300 chi2(4) A + 0.3 X1 + U2
    LoanApproval   1 if X1 + 5 X2 > 225000, else -1

The penalties Poi(10) and chi2(4) are drawn for each woman. Rows with a negative salary or balance are left out and counted, as
the authors do (7 of their 5,000). Their file has 34 % women; the text says 45 %, and so it is here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from verifair.errors import DataError
from verifair.schema.schema import Schema

WOMEN = 0.45
"""Share of women: A ~ Ber(0.45)."""
THRESHOLD = 225_000.0
"""Dollars that X1 + 5 X2 has to exceed."""
SALARY_LIMIT, BALANCE_LIMIT = 500_000.0, 200_000.0
"""Upper ends of the schema's ranges: of a million rows none is expected beyond. The authors' largest are 270,000 and 76,890."""


def loan_frame(n: int, seed: int) -> tuple[pd.DataFrame, dict[str, int]]:
    """Draw n applicants; return those without a negative amount, and the number of the others.

    Columns as in the authors' LoanApplication_v2: LoanApproval (1, -1), AnnualSalary, AccountBalance (dollars), Gender (1, 0).
    """
    if n < 1:
        raise DataError(f"loan: n = {n}, expected at least one applicant")
    draw = np.random.default_rng(seed)
    female = (draw.random(n) < WOMEN).astype(np.int64)
    u1, u2 = 10_000.0 * draw.poisson(10, n), 2_500.0 * draw.normal(size=n)
    salary = u1 - 1_500.0 * draw.poisson(10, n) * female
    balance = 0.3 * salary - 300.0 * draw.chisquare(4, n) * female + u2
    frame = pd.DataFrame({
        "LoanApproval": np.where(salary + 5 * balance > THRESHOLD, 1, -1), "AnnualSalary": salary, "AccountBalance": balance,
        "Gender": female,
    })
    is_kept = (salary >= 0) & (balance >= 0)
    if not is_kept.any():
        raise DataError(f"loan: none of {n} applicants has a salary and a balance of 0 or more; draw more, or take another seed")
    return frame[is_kept].reset_index(drop=True), {"negative salary or balance": int((~is_kept).sum())}


def loan_schema() -> Schema:
    """Describe two amounts and a gender (1 = female)."""
    features: list[dict[str, Any]] = [
        {"name": name, "kind": "real", "range": [0.0, limit], "scale": "minmax", "unit": 100.0, "unit_name": "dollars"}
        for name, limit in (("AnnualSalary", SALARY_LIMIT), ("AccountBalance", BALANCE_LIMIT))
    ]
    gender = {"name": "Gender", "kind": "categorical", "categories": ["0", "1"], "protected": True}
    return Schema.build({
        "features": [*features, gender], "positive": "class = 1", "label": "LoanApproval", "positive_label": "1",
        "outcomes": ["refused", "granted"],
    })
