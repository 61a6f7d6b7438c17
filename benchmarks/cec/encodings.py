"""German Credit put into the CEC paper's network in four ways, trained without and with CEC, 5-fold, to find the one that the paper
used.

With categories as codes, minmax, the score is the paper's before and after, and the trained model decides positively about
everybody: hence F1 0.8235 and an EO gap of 0. The first inputs are ours, as in `verifair reproduce cec --table 4`.

    python -m benchmarks.run cec_encodings --folds 0
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.shared import measured, show
from verifair.papers.cec.data import ENCODINGS, FOLDS, LOWER, CecData
from verifair.papers.cec.tables import LOSSES, audited
from verifair.papers.cec.views import SWEPT
from verifair.systems.cec.training import ConsistencyTerms

COLUMNS = (*SWEPT, *(f"B at {threshold:g}" for threshold in LOWER))
TRAINED = ("pred", "full")


def run(folder: Path, *, folds: Sequence[int] = tuple(range(FOLDS))) -> pd.DataFrame:
    lines = measured("CEC encodings folds: other inputs on German", _lines(folds), folder)
    means = lines.groupby(["inputs", "loss"], sort=False)[list(COLUMNS)].mean().reset_index()
    return show("CEC encodings: means over folds", means, folder)


def _lines(folds: Sequence[int]) -> Iterator[dict[str, Any]]:
    german = CecData.load("german")
    for kind in ENCODINGS:
        encoded = german.encoded(kind)
        for loss in TRAINED:
            eo, cec = LOSSES[loss]
            for fold in folds:
                measures = audited(encoded, fold, "cec", ConsistencyTerms(lambda_eo=eo, lambda_cec=cec))
                yield {"inputs": kind, "loss": loss, "fold": fold, **{name: measures[name] for name in COLUMNS}}
