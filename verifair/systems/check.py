"""`vf.check`: check any file of proofs, for a model of any kind. The checker itself is `verifair.checker.check`."""

from __future__ import annotations

from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verifair.checker import check as checker
from verifair.models.read import read

if TYPE_CHECKING:
    from verifair.checker.certificates.envelope import Envelope
    from verifair.checker.report import CheckReport, Progress, Spread
    from verifair.schema.space import InputSpace


def check(
    file: Envelope | str | Path, *, model: Any, schema: InputSpace, partial: bool = False, progress: Progress | None = None,
    spread: Spread = starmap,
) -> CheckReport:
    """Check the proofs in a certificate or a store again (`verifair.checker.check.check`).

    file: a certificate, or the path of a file.   model: anything that `verifair.read` takes.   schema: that of the proofs.
    partial: accept a file that leaves something undecided.   progress: called with (done, total).
    spread: runs the checks: by default this process; `verifair.engine.parallel.spread(jobs)` uses processes or a cluster's workers.
    Returns: a report; `accepted`: every question is answered and proved again (with `partial`: every answer is).
    Sound? Yes: accepted statements are true of the model that is read.   Complete? No.
    """
    return checker.check(file, model=read(model), schema=schema, partial=partial, progress=progress, spread=spread)
