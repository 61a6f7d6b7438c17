"""verifair cec --certify DELTA: whose regime A is proved throughout the neighbourhood, told on the screen and in JSON."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.console import Console

from encoders.network import Network
from solvers.outcome import Budget
from verifair.cli import options
from verifair.errors import QueryError
from verifair.schema.schema import Schema
from verifair.systems.cec.audit import Audit
from verifair.systems.cec.certified import DECISION, ELSEWHERE, LEAVES, SCORE, TIME, Certified, certify_consistency
from verifair.systems.cec.matching import Reference
from verifair.systems.cec.people import People

TOLD = {
    LEAVES: "some rows of the neighbourhoods are in another regime",
    DECISION: "the decision could not be bounded",
    SCORE: "the score could not be bounded",
    TIME: "time was up",
}
"""What the screen says of the pairs that are unknown."""


def check_delta(delta: float | None) -> None:
    """Before the run, so that nothing is lost after it. QueryError for what is no number of units."""
    if delta is not None and not 0 <= delta < float("inf"):
        raise QueryError(f"--certify {delta:g}: expected a number of units from 0 (the pairs as they are), such as 1")


def certify_people(
    network: Network, schema: Schema, audit: Audit, reference: Reference, people: People, delta: float, *, budget: Budget,
    out: options.Output, console: Console,
) -> dict[str, Any]:  # fmt: skip
    """Certify the audit's pairs, save the certificate where `out` says, tell the screen; returns what goes into the JSON answer.

    Raises QueryError, SchemaError and DataError as `certify_consistency` does.
    """
    with options.progress_bar("certified pairs") as progress:
        found = certify_consistency(network, schema, audit, reference, people, delta, budget=budget, progress=progress)
    file = out.save_certificate(found.certificate) if found.certified.any() else None
    for line in lines(found):
        console.print(line, soft_wrap=True, markup=False)
    last = f"certificate: {out.check_line(file)}" if file else out.unsaved_line("no pair was certified")
    if last:
        console.print(last, soft_wrap=True, markup=False)
    return {
        "delta": delta, "threshold": found.threshold, "pairs": len(found.status), "regime_A": found.candidates,
        "certified": int(found.certified.sum()), "share": found.share,
        "unknown": {reason: count for reason, count in found.reasons.items() if reason != ELSEWHERE},
        "largest_bound": float(found.bound[found.certified].max()) if found.certified.any() else None,
        "median_slack": _slack(found), "seconds": found.seconds, "certificate_file": str(file) if file else None,
        "people": [
            {"row": int(row), "counterpart": int(other), "status": str(status), "reason": str(reason) or None, "score": score,
             "bound": bound}
            for row, other, status, reason, score, bound in zip(
                audit.individual, audit.counterpart, found.status, found.reason, found.score.tolist(), found.bound.tolist(),
                strict=True,
            )
            if reason != ELSEWHERE
        ],
    }  # fmt: skip


def lines(found: Certified) -> list[str]:
    """What was proved, and of the rest why not."""
    units = f"{found.delta:g} unit" + "s" * (found.delta != 1)
    where = f"wherever both move within {units}" if found.delta else "as they are (delta 0)"
    if not found.candidates:
        return ["Nothing to certify: no pair is in regime A (same decision, same reasons)."]
    told = [
        f"Certified A: {found.certified.sum():,} of the {found.candidates:,} pairs in regime A ({found.share:.1%}) are decided "
        f"alike, with a score below {found.threshold:g}, {where} ({found.seconds:.1f} s)."
    ]
    why = [f"{found.reasons[reason]:,} ({text})" for reason, text in TOLD.items() if reason in found.reasons]
    return [*told, f"Unknown: {', '.join(why)}."] if why else told


def _slack(found: Certified) -> float | None:
    """By how much the bounds of the certified pairs exceed their measured scores, in the median."""
    return float(np.median((found.bound - found.score)[found.certified])) if found.certified.any() else None
