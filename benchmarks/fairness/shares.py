"""The certified share of Fairify's networks: strict signs, the main protected attribute, the whole domain, certificates checked.

Beside it the share that FairQuant (Kim et al., ICSE 2025; float32, not rigorous) certifies as fair, and its CPU seconds on a
similar machine. Seconds are CPU seconds of one process, also `check s`. `open` is also given for the first 1, 5 and 15 s, as far as
the run's history has them.

    python -m benchmarks.run shares --nets AC-1 AC-6 --seconds 10       a shorter run
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.fairness.networks import FAMILIES, ListedNetwork, subjects
from benchmarks.shared import data_folder, measured
from solvers.outcome import Budget
from verifair.checker.check import check
from verifair.engine.shares.share import certify_share

FAIRQUANT = {"AC-1": (0.907, 1.1), "AC-2": (0.799, 15.0), "AC-6": (0.588, 2.8)}
"""Certified fair share and CPU seconds."""

EARLY = 1, 5, 15


def run(
    folder: Path, *, seconds: float = 300.0, tolerance: float = 1e-3, nets: Sequence[str] = ()
) -> pd.DataFrame:
    """Run the comparison.   seconds: limit for one network, by the clock."""
    lines = (_line(subject, folder, seconds, tolerance) for subject in subjects(data_folder(), nets=nets, families=FAMILIES))
    return measured(f"Certified shares, at most {seconds:g} s a network, tolerance {tolerance:g}", lines, folder)


def _line(subject: ListedNetwork, folder: Path, seconds: float, tolerance: float) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    query, store = subject.fairness(subject.main), folder / f"share-{subject.name}.json.gz"
    started = time.process_time()
    share = certify_share(query, tolerance=tolerance, budget=Budget(seconds=seconds), store=store)
    cpu = time.process_time() - started
    report = check(store, model=query.model, schema=query.schema)
    pace = cpu / max(share.seconds, 1e-9)
    history = [(t * pace, 1 - fair - unfair) for t, fair, unfair in share.certificate.history]
    early = {f"open {limit} s": next((open_ for t, open_ in history if t >= limit), share.width) for limit in EARLY}
    fairquant = FAIRQUANT.get(subject.name, (float("nan"), float("nan")))
    return {
        "net": subject.name, "protected": subject.main, "fair": share.fair, "unfair": share.unfair, **early, "open": share.width,
        "cells": share.cells, "cpu s": cpu, "check": report.verdict, "check s": time.process_time() - started - cpu,
        "FairQuant fair": fairquant[0], "FairQuant cpu s": fairquant[1],
    }
