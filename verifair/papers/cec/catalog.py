"""The tables of the CEC paper that can be made again."""

from __future__ import annotations

from types import ModuleType

import pandas as pd

from verifair.errors import require
from verifair.papers.catalog import Printed, Request
from verifair.papers.cec.printed import NOTES

FOLDS = 5
HMDA = ("tabular", "hmda_texas2022.csv.gz")
IMAGES = "The paper's tables are images; beside ours stands what its text says of them. Seeds are folds. "


def _tables() -> ModuleType:
    """Return what makes the tables. Raises MissingPackage without torch or fairlearn."""
    require("torch", "torch", "reproduce cec")
    require("fairlearn", "fairlearn", "reproduce cec")
    from verifair.papers.cec import tables

    return tables


def _methods(request: Request) -> pd.DataFrame:
    path = request.file(*HMDA) if request.dataset == "hmda" else None
    made: pd.DataFrame = _tables().methods(request.dataset, path, request.seed)
    return made


def _losses(request: Request) -> pd.DataFrame:
    made: pd.DataFrame = _tables().losses(request.seed)
    return made


PRINTED = (
    Printed(
        name="table 2", about="nine methods: utility, outcome, procedure; free counts for table 3, the Pareto folds",
        datasets=("german", "synthetic", "adult", "hmda"), make=_methods, keys=("dataset", "method"), seeds=FOLDS,
        differences=IMAGES + " ".join(NOTES),
    ),
    Printed(
        name="table 4", about="what each part of the loss does", datasets=("german",), make=_losses, keys=("loss",), seeds=FOLDS,
        differences=IMAGES + NOTES[0],
    ),
)
