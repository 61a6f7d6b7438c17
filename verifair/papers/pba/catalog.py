"""The reproducible tables of the PBA paper."""

from __future__ import annotations

import pandas as pd

from verifair import datasets
from verifair.datasets import Dataset
from verifair.papers.catalog import MANY, Printed, Request
from verifair.papers.pba.tables import FIGURE_KEYS, KEYS, metrics, outcomes

SAMPLE = "adult sample"
ONE_SEED = (
    "The paper shows one seed a cell, and seeds differ (--seeds). Its verifier is the triangle LP, ours decides, so that ours are "
    "at least as large for the same network. "
)


BARS = "The paper has bars without numbers, of Fair-N (500, 100) alone and one seed. "


def _adult(request: Request) -> Dataset:
    return datasets.load("adult-balanced" if request.dataset == SAMPLE else "adult")


def _gender(request: Request) -> pd.DataFrame:
    dataset = _adult(request)
    return pd.concat(
        [metrics(dataset, sensitive, request.seed, request.dataset) for sensitive in ("sex", "race")], ignore_index=True
    )


def _compas(request: Request) -> pd.DataFrame:
    dataset = datasets.load("compas", request.file("tabular", "compas_two_years.csv.gz"))
    return metrics(dataset, "sex", request.seed, request.dataset)


def _german(request: Request) -> pd.DataFrame:
    return metrics(datasets.load("german"), "age", request.seed, request.dataset)


def _adult_outcomes(request: Request) -> pd.DataFrame:
    return outcomes(_adult(request), "race", request.seed, request.dataset)


def _german_outcomes(request: Request) -> pd.DataFrame:
    return outcomes(datasets.load("german"), "age", request.seed, request.dataset)


PRINTED = (
    Printed(
        name="table 1", about="Adult, gender and race", datasets=(SAMPLE, "adult"), make=_gender, keys=KEYS, seeds=MANY,
        differences=ONE_SEED + "The paper's shares fit 960 test rows, Black and White people alone, both labels equally often: "
        "very likely a balanced sample, which is inferred here (adult sample), beside all of Adult.",
    ),
    Printed(
        name="table 2", about="COMPAS, gender", datasets=("compas",), make=_compas, keys=KEYS, seeds=MANY, differences=ONE_SEED,
    ),
    Printed(
        name="table 3", about="German Credit, age", datasets=("german",), make=_german, keys=KEYS, seeds=MANY,
        differences=ONE_SEED + "Fair-N is trained for 50 epochs: after 20 it is nearly constant, and of which group it is surer is "
        "up to the seed.",
    ),
    Printed(
        name="figure 2", about="Adult, race: PBA at delta 1 by outcome", datasets=(SAMPLE,), make=_adult_outcomes, keys=FIGURE_KEYS,
        seeds=MANY, differences=BARS,
    ),
    Printed(
        name="figure 3", about="German Credit, age: PBA at delta 1 by outcome", datasets=("german",), make=_german_outcomes,
        keys=FIGURE_KEYS, seeds=MANY,
        differences=BARS + "The text says that Seniors get the confident good credits and Juniors the bad ones; in table 3 of the "
        "same network 90 % of Juniors and 4.2 % of Seniors, nearly all of them good credits, are the more confident.",
    ),
)
