"""The reproducible tables and figures of the CEC paper."""

from __future__ import annotations

from types import ModuleType

import pandas as pd

from verifair.errors import require
from verifair.papers.catalog import Printed, Request
from verifair.papers.cec import figures, views
from verifair.papers.cec.printed import NOTES, SWEEP

FOLDS = 5
DATASETS = ("german", "synthetic", "adult", "hmda")
HMDA = ("tabular", "hmda_texas2022.csv.gz")
IMAGES = "The paper's tables are images; beside ours stands what its text says of them. Seeds are folds. "
SHARED = "Its parts are those of {}, which --resume takes. "
DRAWN = "The paper draws this figure; beside ours stands what its text says of it. Seeds are folds. "


def _tables() -> ModuleType:
    """Return the module that makes the parts. Raises MissingPackage without torch or fairlearn."""
    require("torch", "torch", "reproduce cec")
    require("fairlearn", "fairlearn", "reproduce cec")
    from verifair.papers.cec import tables

    return tables


def _methods(request: Request) -> pd.DataFrame:
    path = request.file(*HMDA) if request.dataset == "hmda" else None
    table: pd.DataFrame = _tables().methods(request.dataset, path, request.seed)
    return table


def _losses(request: Request) -> pd.DataFrame:
    table: pd.DataFrame = _tables().losses(request.seed)
    return table


def _sweep(request: Request) -> pd.DataFrame:
    table: pd.DataFrame = _tables().sweep(request.seed)
    return table


PRINTED = (
    Printed(
        name="table 2", about="nine methods: utility, outcome, procedure", datasets=DATASETS, make=_methods, keys=views.METHOD,
        seeds=FOLDS, together=views.methods, differences=IMAGES + " ".join((NOTES[0], *NOTES[2:])),
    ),
    Printed(
        name="table 3", about="folds on which no method is better in F1, EO gap and CEC at once",
        datasets=DATASETS, make=_methods, keys=("method",), seeds=FOLDS, parts="table 2", together=views.pareto,
        differences=IMAGES + SHARED.format("table 2") + NOTES[2],
    ),
    Printed(
        name="table 4", about="what each part of the loss does", datasets=("german",), make=_losses, keys=views.LOSS, seeds=FOLDS,
        together=views.losses, differences=IMAGES + NOTES[0],
    ),
    Printed(
        name="figure 4", about="flips and differing reasons of each method", datasets=DATASETS[:2],
        make=_methods, keys=views.METHOD, seeds=FOLDS, parts="table 2", together=views.plane, picture=figures.plane,
        differences=DRAWN + SHARED.format("table 2")
        + f"It does not say where flips are many: beyond {views.FLIPS:g} here. " + NOTES[2],
    ),
    Printed(
        name="figure 5", about="regimes of each method", datasets=DATASETS[:2], make=_methods,
        keys=views.METHOD, seeds=FOLDS, parts="table 2", together=views.regimes, picture=figures.stacked,
        differences=DRAWN + SHARED.format("table 2") + " ".join(NOTES[1:3]),
    ),
    Printed(
        name="figure 6", about="sweep of both weights: 36 trainings a fold", datasets=("german",), make=_sweep, keys=views.WEIGHTS,
        seeds=FOLDS, together=views.sweep, picture=figures.heatmaps, differences=f"The paper draws this figure and says: {SWEEP}. "
        + NOTES[1],
    ),
    Printed(
        name="figure 7", about="regimes by part of the loss", datasets=("german",), make=_losses,
        keys=views.LOSS, seeds=FOLDS, parts="table 4", together=views.loss_regimes, picture=figures.stacked,
        differences=DRAWN + SHARED.format("table 4") + NOTES[1],
    ),
)
