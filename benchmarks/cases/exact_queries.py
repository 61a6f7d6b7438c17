"""The 84 box queries whose verdicts are known by full enumeration: ours beside them, every proof re-checked, every point exact."""

from __future__ import annotations

import time
from pathlib import Path

import pandas as pd

from benchmarks.fairify import data_folder, exact_queries
from benchmarks.table import show
from solvers.outcome import Budget
from verifair.errors import Disagreement
from verifair.verdict import Status
from verifair.verify.api import verify
from verifair.verify.check import check

EXPECTED = {"SAT": Status.VIOLATED, "UNSAT": Status.PROVED}


def run(folder: Path) -> pd.DataFrame | None:
    data = data_folder()
    if data is None:
        print("exact queries: skipped, VERIFAIR_DATA is not set")
        return None
    lines = []
    for item in exact_queries(data):
        started = time.perf_counter()
        verdict = verify(item.query, budget=Budget(seconds=60))
        seconds = time.perf_counter() - started
        if verdict.status not in (EXPECTED[item.verdict], Status.UNKNOWN):
            raise Disagreement(f"{item.name}: enumeration says {item.verdict}, the engine {verdict.status.value}")
        accepted = None
        if verdict.certificate is not None:
            accepted = check(verdict.certificate, network=item.query.network, schema=item.query.schema).accepted
        lines.append(
            {"query": item.name, "expected": item.verdict, "status": verdict.status.value, "seconds": seconds,
             "certificate accepted": accepted, "float32 agrees": verdict.witness.float32_agrees if verdict.witness else None}
        )  # fmt: skip
    table = pd.DataFrame(lines)
    right = sum(EXPECTED[line["expected"]].value == line["status"] for line in lines)
    print(f"{right} of {len(lines)} as listed, {table['seconds'].sum():.2f} s in all, slowest {table['seconds'].max():.2f} s")
    return show("Exact queries: 84 boxes with enumerated verdicts", table, folder)
