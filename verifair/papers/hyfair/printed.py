"""The printed numbers of the HyFair paper's tables I to IV, for the public networks: means over its runs."""

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
TABLE_3 = """
    AC-1 LIME 20 5 20 8.5 11.5 1
    AC-1 rules 20 6 12.7 1.1 11.6 108.2
    AC-2 LIME 19 6 19 9.9 9.1 1
    AC-2 rules 19 7 11.7 2.5 9.2 15.4
    AC-3 LIME 20 5 20 11 9.8 1
    AC-3 rules 20 5 15.8 4.3 11.5 12.0
    AC-4 LIME 20 7 20 16.1 3.9 1
    AC-4 rules 20 3 19.5 8.2 11.3 384.7
    AC-5 LIME 18 4 18 11 7.0 1
    AC-5 rules 18 3 14.0 6.9 7.1 1572.0
    AC-6 LIME 20 4 20 17.9 2.3 1
    AC-6 rules 20 3 17.0 8.2 8.8 622.3
    BM-1 LIME 9 3 9 3.7 5.3 1
    BM-1 rules 9 4 9.0 1.9 7.1 77.5
    BM-2 LIME 9 4 9 5.3 3.7 1
    BM-2 rules 9 8 5.2 1.2 4.0 19.1
    BM-3 LIME 9 3 9 5.7 3.3 1
    BM-3 rules 9 4 8.0 2.8 5.2 1.0
"""
"""Network, method; Init.K, size, K, Pert.K, Diff, Cov."""
TABLE_4 = """
    AC-1 original 81.81 20.0 9.3 1927.0 53.3 2.8
    AC-1 original+rules 81.81 18.1 9.1 2316.0 68.6 17.5
    AC-1 retrained 81.22 20.0 13.2 1172.3 32.5 1.7
    AC-1 retrained+rules 81.22 19.5 13.6 1112.7 30.9 4.6
    AC-2 original 83.19 19.0 14.0 2245.0 87.7 3.8
    AC-2 original+rules 83.19 18.2 14.2 955.0 37.6 1.5
    AC-2 retrained 82.32 20.0 4.8 1244.0 48.5 3.0
    AC-2 retrained+rules 82.32 19.5 5.2 836.0 37.8 4.2
    AC-3 original 83.29 20.0 14.3 1794.1 58.0 166.8
    AC-3 original+rules 83.29 19.7 11.9 82.1 2.8 2.5
    AC-3 retrained 82.25 20.0 16.8 2230.0 70.5 490.0
    AC-3 retrained+rules 82.25 20.0 16.8 1890.7 59.7 422.8
    AC-4 original 82.74 20.0 17.1 124.8 90.5 13.2
    AC-4 original+rules 82.74 16.9 12.9 3.8 2.8 0.9
    AC-4 retrained 82.60 5.0 5.0 0.2 0.2 0.2
    AC-4 retrained+rules 82.60 11.8 9.2 18.5 13.2 2.7
    AC-5 original 83.36 18.2 13.0 1545.2 97.7 9.6
    AC-5 original+rules 83.36 17.5 13.5 866.5 55.1 2.4
    AC-5 retrained 82.66 18.5 11.1 696.0 57.3 15.5
    AC-5 retrained+rules 82.66 19.5 10.7 684.8 49.2 15.2
    AC-6 original 82.04 20.0 13.8 2623.2 91.5 108.4
    AC-6 original+rules 82.04 18.8 13.6 208.7 7.4 2.9
    AC-6 retrained 80.86 20.0 10.3 312.0 10.9 2.0
    AC-6 retrained+rules 80.86 19.2 10.0 285.7 10.0 2.0
    BM-1 original 90.63 9.0 5.2 5357.6 57.2 28.3
    BM-1 original+rules 90.63 5.8 4.7 21.8 0.2 2.6
    BM-1 retrained 90.11 9.0 6.1 335.5 5.6 26.0
    BM-1 retrained+rules 90.11 8.5 5.8 136.8 3.5 10.8
    BM-2 original 90.27 9.0 4.6 730.0 6.5 18.4
    BM-2 original+rules 90.63 8.4 5.1 727.2 6.4 5.5
    BM-2 retrained 89.86 9.0 6.0 2168.5 19.2 53.5
    BM-2 retrained+rules 89.86 4.5 2.9 750.5 6.6 9.0
    BM-3 original 90.35 9.0 6.5 2988.4 26.5 422.8
    BM-3 original+rules 90.35 7.2 5.3 12.9 0.1 3.5
    BM-3 retrained 90.17 9.0 7.8 1296.5 19.2 386.0
    BM-3 retrained+rules 90.17 9.0 7.5 326.0 5.5 76.2
"""
"""Network, intervention; accuracy in percent, Max.K, Avg.K, #ID, Succ.rate in percent, #ID.maxK."""
COLUMNS_1 = ("#ID", "T.1st", "k of the first", "largest k")
COLUMNS_2 = ("iterations", "Max.K", "Avg.K", "T.1st", "#ID", "Succ.rate", "#ID.maxK", "T.maxK")
COLUMNS_3 = ("Init.K", "Size", "K", "Pert.K", "Diff", "Cov")
COLUMNS_4 = ("accuracy, %", "Max.K", "Avg.K", "#ID", "Succ.rate", "#ID.maxK")


def table_1() -> pd.DataFrame:
    """Return one line for each network and solver."""
    lines = []
    for row in TABLE_1.strip().splitlines():
        network, *cells = row.split()
        for k, solver in enumerate(("smt", "milp")):
            values = [float(cell.replace("N/A", "nan")) for cell in cells[4 * k : 4 * k + 4]]
            lines.append({"network": network, "method": solver, **dict(zip(_paper_columns(COLUMNS_1), values, strict=True))})
    return pd.DataFrame(lines)


def table_2() -> pd.DataFrame:
    """Return one line for each network and search."""
    table = _lines(TABLE_2, "search", COLUMNS_2)
    table["paper's iterations"] *= 1000
    return table


def table_3() -> pd.DataFrame:
    """Return a line for LIME and one for rules of each network."""
    return _lines(TABLE_3, "method", COLUMNS_3)


def table_4() -> pd.DataFrame:
    """Return one line for each network and intervention."""
    table = _lines(TABLE_4, "intervention", COLUMNS_4)
    return table.assign(intervention=table["intervention"].str.replace("+", " + "))


def _lines(text: str, key: str, columns: tuple[str, ...]) -> pd.DataFrame:
    lines = []
    for row in text.strip().splitlines():
        network, name, *cells = row.split()
        lines.append({"network": network, key: name, **dict(zip(_paper_columns(columns), map(float, cells), strict=True))})
    return pd.DataFrame(lines)


def _paper_columns(columns: tuple[str, ...]) -> list[str]:
    return [f"paper's {name}" for name in columns]
