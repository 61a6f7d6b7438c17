"""The toy's work, row by row."""

from __future__ import annotations

from tests.contract.toy.result import ToyResult
from tests.contract.toy.settings import ToySettings
from verifair.engine.questions import decisions
from verifair.systems.subject import Subject
from verifair.systems.work import Work


def solve(settings: ToySettings, subject: Subject, work: Work) -> ToyResult:
    """Return how many rows are decided as asked."""
    frame, counted = subject.rows().frame, 0
    decided = decisions(subject.network, subject.schema.encode(subject.schema.raw(frame)))
    with work.bar("rows") as bar:
        told = work.stopping("rows", bar)
        for number, one in enumerate(decided):
            told(number, len(frame))
            counted += settings.times * int(one == (settings.side == "positive"))
    return ToyResult(
        model_sha256=subject.network.source_sha256, schema_sha256=subject.schema.sha256, seconds=work.seconds, seed=work.seed,
        side=settings.side, counted=counted, rows=len(frame),
    )
