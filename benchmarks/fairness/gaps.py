"""The largest probability gap over the whole domain: an exact witness below, a certified bound above, every certificate re-checked.

One line for each network, with the protected attribute of its family's main experiment. `closed` when the two are within the
tolerance; two processes.
`prototype` is the result of a prototype of this search, in floating point and without certificates, after 55 s on a machine of this
size: one number if it was closed, else witness..bound (rounded).

    python -m benchmarks.run gaps --nets AC-1 GC-3 --seconds 10       a shorter run
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
from threadpoolctl import threadpool_limits

from benchmarks.fairness.networks import ListedNetwork, subjects
from benchmarks.shared import data_folder, measured
from solvers.outcome import Budget
from verifair.checker.check import check
from verifair.engine.gap.maximise import MaximumGap, maximise
from verifair.engine.queries import ProbabilityGap
from verifair.engine.verdict import Reason
from verifair.errors import Disagreement

PROTOTYPE = {
    "AC-1": ".53975", "AC-3": ".82422", "GC-1": ".10179", "AC-2": ".803...813", "BM-3": ".450...464", "GC-2": ".0795...0893",
    "GC-3": ".0766...0795", "AC-6": ".449...556", "BM-2": ".575...992", "BM-1": "open, .86-.94...9999",
    "AC-4": "open, .86-.94...9999", "AC-5": "open, .86-.94...9999",
}


def run(
    folder: Path, *, seconds: float = 60.0, check_seconds: float = 120.0, tolerance: float = 1e-4, jobs: int = 2,
    nets: Sequence[str] = (),
) -> pd.DataFrame:
    """Run the comparison.   seconds: for each network, and check_seconds for its certificate.   jobs: processes."""
    data = data_folder()
    with threadpool_limits(limits=1):
        lines = (_line(subject, seconds, check_seconds, tolerance, jobs) for subject in subjects(data, nets=nets))
        table = measured(f"Gaps: largest probability gap, full domain, {seconds:g} s a network, {jobs} processes", lines, folder)
    print(f"closed to {tolerance:g}: {table['closed'].sum()} of {len(table)}; widest bracket {table['bracket'].max():.4f}, "
          f"median {table['bracket'].median():.4f}; certificates accepted: "
          f"{(table['accepted'] == 'yes').sum()} of {len(table)}")
    return table


def _line(subject: ListedNetwork, seconds: float, check_seconds: float, tolerance: float, jobs: int) -> dict[str, Any]:
    query = ProbabilityGap(model=subject.network, schema=subject.schema, protected=[subject.main])
    gap = maximise(query, budget=Budget(seconds=seconds), tolerance=tolerance, jobs=jobs)
    if gap.reason is Reason.INTERRUPTED:
        raise KeyboardInterrupt
    listed = subject.listed.get("exhaustive", {}).get(subject.main)
    if listed is not None and not gap.lower - 1e-9 <= listed["max_probability_gap"] <= gap.upper + 1e-9:
        raise Disagreement(f"{subject.name}: the gap is {listed['max_probability_gap']}, ours {gap.lower}..{gap.upper}")
    if gap.lower > gap.upper:
        raise Disagreement(f"{subject.name}: the witness has a gap of {gap.lower}, and {gap.upper} is proved to be the most")
    return {
        "net": subject.name, "protected": subject.main, "witness": gap.lower, "bound": gap.upper,
        "bracket": gap.upper - gap.lower, "closed": gap.reason is None, "seconds": gap.seconds, "boxes": gap.nodes,
        "prototype": PROTOTYPE.get(subject.name, "-"), **_checked(gap, subject, check_seconds),
    }


def _checked(gap: MaximumGap, subject: ListedNetwork, seconds: float) -> dict[str, Any]:
    """Return the checker's answer about the bound; a certificate without a bound below 1 does not count."""
    if gap.certificate is None:
        return {"accepted": "no certificate", "leaves": 0, "check s": 0.0}
    started = time.perf_counter()
    try:
        with _limited(seconds):
            report = check(gap.certificate, model=subject.network, schema=subject.schema)
    except TimeoutError:
        return {"accepted": f"not within {seconds:g} s", "leaves": 0, "check s": time.perf_counter() - started}
    if not report.accepted:
        raise Disagreement(f"{subject.name}: certificate rejected: {report.rejections[0]}")
    return {"accepted": "yes", "leaves": report.leaves, "check s": report.seconds}


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise TimeoutError after this number of seconds if the platform has an alarm signal; without one there is no limit."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def ring(*_: object) -> None:
        raise TimeoutError

    handler = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
