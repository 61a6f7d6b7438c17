"""Counterfactual situation testing of 1,000,000 drawn loan applicants, in a fresh process whose peak memory is reported.

The CST paper's loan equations (`verifair.datasets.loan`), everything on: ST, CST with and without search centers and CF for four k,
drawing the table to counts of significant cases, with the default procedure.

    python -m benchmarks.run cst_million --rows 10000 100000 1000000
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.cst.tables import cases
from benchmarks.shared import peak, show
from verifair import datasets
from verifair.papers.cst.data import audit
from verifair.papers.cst.printed import K

ROWS = (10_000, 100_000, 1_000_000)


def run(folder: Path, *, rows: Sequence[int] = ROWS, threads: int = 2) -> list[pd.DataFrame]:
    with ProcessPoolExecutor(max_workers=1, max_tasks_per_child=1, mp_context=get_context("spawn")) as fresh:
        lines = list(fresh.map(_measure, rows, [threads] * len(rows)))
    return [show("CST million: drawn loan applicants", pd.DataFrame(lines), folder)]


def _measure(rows: int, threads: int) -> dict[str, Any]:
    peak_before = peak()
    started = time.perf_counter()
    frame = datasets.loan(rows).frame
    drawn_at = time.perf_counter()
    test = audit("loan", frame).estimator(k=K, threads=threads).fit(frame)
    fitted_at = time.perf_counter()
    (result,) = test.test().values()
    counts = cases(result)
    significant = [int(result.claims("CST", k).significant.sum()) for k in K]
    done_at = time.perf_counter()
    return {
        "rows": len(frame), "complainants": len(result.complainants), "threads": threads, "draw s": round(drawn_at - started, 2),
        "fit s": round(fitted_at - drawn_at, 2), "test s": round(done_at - fitted_at, 1), "all s": round(done_at - started, 1),
        "peak MiB": round(peak()), "of which imports": round(peak_before),
        **{method: " ".join(map(str, numbers)) for method, numbers in counts.items()},
        "CST significant": " ".join(map(str, significant)),
    }
