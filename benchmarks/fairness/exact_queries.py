"""The 84 box queries that were enumerated in full: our answers beside them, every proof re-checked, every point exact.

Three questions for each box: does a decision flip, is some probability gap above 0.05, and how large is the largest gap, which our
exact witness and our certified bound must bracket. A verdict or bracket that contradicts the enumeration raises Disagreement.

    python -m benchmarks.run exact_queries --seconds 5 --nets GC-3        a shorter run
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.fairness.networks import ExactQuery, exact_queries
from benchmarks.shared import data_folder, measured
from solvers.outcome import Budget
from verifair.checker.certificates.certificate import Certificate
from verifair.checker.check import check
from verifair.engine.gap.maximise import maximise
from verifair.engine.queries import IndividualFairness
from verifair.engine.verdict import Status
from verifair.engine.verify import verify
from verifair.errors import Disagreement

EXPECTED = {"SAT": Status.VIOLATED, "UNSAT": Status.PROVED}
BRACKET = 1e-4
TOLERANCE = 0.9 * BRACKET
"""Asked for, so that what is reached is within the bracket to the last digit."""
FLOAT64 = 1e-9
"""The listed gaps are float64 evaluations, so they may be off by far less than this."""


def run(folder: Path, *, seconds: float = 60.0, nets: Sequence[str] = ()) -> pd.DataFrame:
    data = data_folder()
    queries = [item for item in exact_queries(data) if not nets or item.name.split()[1] in nets]
    table = measured("Exact queries: boxes with enumerated verdicts", _lines(queries, seconds), folder)
    for verdict, seconds_of in (("flip", "flip s"), ("gap > 0.05", "gap s")):
        agreeing = (table[verdict] == table[f"{verdict} listed"]).sum()
        print(f"{verdict}: {agreeing} of {len(table)} as listed, {_spent(table[seconds_of])}")
    closed = table["upper"] - table["lower"] <= BRACKET
    print(f"largest gap: bracketed everywhere, to {BRACKET:g} on {closed.sum()} of {len(table)} ({closed.mean():.1%}, bar 95 %), "
          f"{_spent(table['largest s'])}")
    print(f"certificates: {table['accepted'].sum()} accepted, {table['rejected'].sum()} rejected")
    return table


def _spent(seconds: pd.Series) -> str:
    return f"{seconds.sum():.2f} s in all, slowest {seconds.max():.2f} s"


def _lines(queries: Sequence[ExactQuery], seconds: float) -> Iterator[dict[str, Any]]:
    for item in queries:
        flip, flip_seconds, proofs = _decided(item.name, item.query, item.verdict, seconds)
        gap, gap_seconds, gap_proofs = _decided(item.name, item.epsilon_query, item.epsilon_verdict, seconds)
        result = maximise(item.gap_query, budget=Budget(seconds=seconds), tolerance=TOLERANCE)
        if not result.lower - FLOAT64 <= item.largest_gap <= result.upper + FLOAT64:
            raise Disagreement(f"{item.name}: the largest gap is {item.largest_gap}, ours lies in {result.lower} .. {result.upper}")
        proofs = [*proofs, *gap_proofs, *([result.certificate] if result.certificate else [])]
        accepted = [check(proof, model=item.query.model, schema=item.query.schema).accepted for proof in proofs]
        yield {
            "query": item.name, "flip listed": EXPECTED[item.verdict].value, "flip": flip.value, "flip s": flip_seconds,
            "gap > 0.05 listed": EXPECTED[item.epsilon_verdict].value, "gap > 0.05": gap.value, "gap s": gap_seconds,
            "largest listed": item.largest_gap, "lower": result.lower, "upper": result.upper,
            "largest s": result.seconds, "accepted": sum(accepted), "rejected": len(accepted) - sum(accepted),
        }


def _decided(name: str, query: IndividualFairness, expected: str, seconds: float) -> tuple[Status, float, list[Certificate]]:
    started = time.perf_counter()
    verdict = verify(query, budget=Budget(seconds=seconds))
    elapsed = time.perf_counter() - started
    if verdict.status not in (EXPECTED[expected], Status.UNKNOWN):
        raise Disagreement(f"{name}: enumeration says {expected}, the engine {verdict.status.value}")
    return verdict.status, elapsed, [verdict.certificate] if verdict.certificate else []
