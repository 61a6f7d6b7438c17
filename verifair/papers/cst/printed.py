"""Numbers that the CST paper prints, and those of its authors' result files (k = 250, significant ones, intersectional)."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

K = (15, 30, 50, 100)
METHODS = {"CST w/o": "CSTwo", "ST": "ST", "CST": "CSTwi", "CF": "CF"}
"""Method -> its name in the authors' files."""
Counts = dict[str, tuple[int, int, int, int]]
"""Method -> cases at the four k."""

TABLE_1: Counts = {
    "CST w/o": (288, 313, 342, 395), "ST": (55, 65, 84, 107), "CST": (420, 434, 453, 480), "CF": (376, 376, 376, 376),
}
"""Loan, gender."""
TABLE_4: Counts = {
    "CST w/o": (256, 309, 337, 400), "ST": (33, 51, 61, 64), "CST": (286, 309, 337, 400), "CF": (231, 231, 231, 231),
}
"""Law school, race."""
TABLE_5: Counts = {
    "CST w/o": (78, 120, 253, 296), "ST": (77, 101, 229, 258), "CST": (99, 129, 267, 296), "CF": (56, 56, 56, 56),
}
"""Law school, gender."""
JOINTLY: Counts = {
    "CST w/o": (130, 138, 148, 160), "ST": (14, 14, 17, 24), "CST": (130, 138, 148, 160), "CF": (113, 113, 113, 113),
}
"""Law school, nonwhite women; from the authors' file LawSchool_MaleWhite, the text has no table of it."""

TABLES_2_3: dict[int, tuple[float, float, float, float, float, bool]] = {
    44: (1.00, 0.00, 1.00, 1.00, 1.00, True),
    55: (0.81, 0.00, 0.81, 0.65, 0.97, True),
    150: (1.00, 0.94, 0.06, -0.04, 0.16, False),
    203: (1.00, 0.88, 0.13, -0.01, 0.26, False),
    218: (0.56, 0.00, 0.56, 0.36, 0.77, True),
    5: (0.06, 0.00, 0.06, -0.04, 0.16, False),
    147: (0.50, 0.00, 0.50, 0.29, 0.71, True),
    435: (0.38, 0.00, 0.38, 0.18, 0.58, True),
    1958: (0.13, 0.00, 0.13, -0.01, 0.26, False),
    2926: (0.75, 0.00, 0.75, 0.57, 0.93, True),
}
"""Row of LoanApplication_v2, counted from 0 -> p_c, p_t, delta, low, high, significant; of CST, k = 15. The first five are table 2
(found by CF as well), the others table 3. *Slip*: the high end of 435 is 0.574; 0.58 is 0.38 + 0.20, of rounded numbers."""
SLIP = 435


def authors_file(folder: Path, name: str) -> pd.DataFrame:
    """The authors' counts by k, such as of "LoanApplication". folder: VERIFAIR_DATA."""
    return pd.read_csv(folder / "cst" / f"res_{name}_counts.csv").set_index("k")
