"""What the HyFair paper prints in tables I and II, of the networks that are public: means over ten runs."""

from __future__ import annotations

import pandas as pd

TABLE_1 = """
    AC-1 1.4 81.5 8.2 11.2 23.2 0.5 17.6 18.6
    AC-2 0.6 75.2 8.7 8.7 18.6 2.7 15.8 17.8
    AC-3 2.0 32.0 9.2 11.2 12.6 3.4 11.4 16.0
    AC-4 0.4 71.2 9.0 12.0 0.4 106.2 8.5 8.5
    AC-5 0.0 N/A N/A N/A 4.0 25.1 10.2 15.0
    AC-6 0.4 139.1 9.5 9.5 25.0 0.3 11.8 16.6
    BM-1 1.2 4.19 3.0 6.0 37.8 2.4 7.8 9.0
    BM-2 5.0 42.6 4.2 4.4 33.2 5.3 7.4 9.0
    BM-3 4.4 22.3 4.0 5.2 58.8 2.3 7.6 9.0
"""
"""Network; #ID, T.1st in seconds, k of the first, largest k of Fairify (SMT), then of HyFair (MILP), in 100 s."""
TABLE_2 = """
    AC-1 rw 2.7 20.0 8.1 5 1809 67.2 3.8 4561
    AC-1 sa 3.6 20.0 9.3 1 1927 53.3 2.7 1162
    AC-1 sa-knn 2.1 19.3 8.8 62 625 29.7 1.9 4799
    AC-2 rw 2.0 18.8 14.2 3 1953 97.4 2.0 6761
    AC-2 sa 2.6 19.0 14.0 2 2245 87.7 3.8 4769
    AC-2 sa-knn 1.3 18.3 14.3 8 885 71.7 4.0 3328
    AC-3 rw 2.6 20.0 14.1 4 1667 64.3 255.2 63
    AC-3 sa 3.2 20.0 14.1 4 1846 58.6 170.4 86
    AC-3 sa-knn 2.0 20.0 17.5 20 105 5.8 12.5 808
    AC-4 rw 0.2 20.0 15.2 122 122 88.0 4.9 2369
    AC-4 sa 0.2 20.0 17.1 127 125 91.0 13.2 1262
    AC-4 sa-knn 0.1 19.7 16.2 229 54 72.6 4.7 2841
    AC-5 rw 1.7 18.1 13.7 4 1650 97.9 1.8 4730
    AC-5 sa 1.6 18.3 13.0 3 1545 97.7 9.6 2209
    AC-5 sa-knn 0.9 17.3 13.5 11 687 78.4 6.0 6483
    AC-6 rw 2.6 20.0 14.3 1 2491 94.2 37.9 338
    AC-6 sa 2.9 20.0 13.8 1 2623 91.5 108.4 93
    AC-6 sa-knn 1.8 20.0 14.6 6 801 45.4 12.8 1847
    BM-1 rw 8.8 9.0 5.0 3 5409 61.2 45.8 295
    BM-1 sa 9.1 9.0 5.2 1 5135 57.3 26.3 420
    BM-1 sa-knn 4.7 9.0 5.7 9 1663 35.3 13.4 1646
    BM-2 rw 11.0 9.0 4.0 12 766 7.0 22.2 738
    BM-2 sa 11.3 9.0 4.6 8 726 6.4 17.3 936
    BM-2 sa-knn 9.0 9.0 5.5 32 417 4.6 7.9 3248
    BM-3 rw 10.6 9.0 6.0 3 3230 30.3 341.4 79
    BM-3 sa 11.3 9.0 6.5 2 2984 26.5 419.1 24
    BM-3 sa-knn 7.9 9.0 7.3 21 1072 13.6 111.1 131
"""
"""Network, search; thousands of iterations, Max.K, Avg.K, T.1st, #ID, Succ.rate in percent, #ID.maxK, T.maxK, in 4 hours."""
COLUMNS_1 = ("#ID", "T.1st", "k of the first", "largest k")
COLUMNS_2 = ("iterations", "Max.K", "Avg.K", "T.1st", "#ID", "Succ.rate", "#ID.maxK", "T.maxK")


def table_1() -> pd.DataFrame:
    """Return one line for each network and solver."""
    lines = []
    for row in TABLE_1.strip().splitlines():
        network, *cells = row.split()
        for place, solver in enumerate(("smt", "milp")):
            values = [float(cell.replace("N/A", "nan")) for cell in cells[4 * place : 4 * place + 4]]
            lines.append({"network": network, "method": solver, **dict(zip(_own(COLUMNS_1), values, strict=True))})
    return pd.DataFrame(lines)


def table_2() -> pd.DataFrame:
    """Return one line for each network and search."""
    lines = []
    for row in TABLE_2.strip().splitlines():
        network, search, *cells = row.split()
        lines.append({"network": network, "search": search, **dict(zip(_own(COLUMNS_2), map(float, cells), strict=True))})
    table = pd.DataFrame(lines)
    table["paper's iterations"] *= 1000
    return table


def _own(columns: tuple[str, ...]) -> list[str]:
    return [f"paper's {name}" for name in columns]
