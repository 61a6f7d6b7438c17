"""The 84 public queries with enumerated verdicts: all answered as listed, points exact, proofs re-checked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.fairness.networks import FAMILIES, exact_queries
from solvers.outcome import Budget
from verifair.checker.check import check
from verifair.checker.envelope import Trust
from verifair.engine.verdict import Status
from verifair.engine.verify import verify

DATA = os.environ.get("VERIFAIR_DATA")


@pytest.mark.skipif(not DATA, reason="VERIFAIR_DATA is not set")
@pytest.mark.parametrize("family", FAMILIES)
def test_verdicts_are_as_enumerated(family: str) -> None:
    asked = [item for item in exact_queries(Path(DATA or "")) if item.name.startswith(family)]
    assert len(asked) >= 12
    for item in asked:
        verdict = verify(item.query, budget=Budget(seconds=60))
        if item.verdict == "SAT":
            assert verdict.status is Status.VIOLATED, item.name
            assert verdict.witness is not None
            first, second = verdict.witness.outputs
            assert first * second < 0
        else:
            assert verdict.status is Status.PROVED, item.name
            assert verdict.certificate is not None
            assert verdict.certificate.trust is Trust.CHECKED
            report = check(verdict.certificate, network=item.query.network, schema=item.query.schema)
            assert report.accepted, (item.name, report.rejections)
