"""The tables of the PBA paper that can be made again."""

from __future__ import annotations

import pandas as pd

from verifair import datasets
from verifair.datasets import Dataset
from verifair.papers.catalog import MANY, Printed, Request
from verifair.papers.pba.tables import KEYS, balanced_adult, metrics

SAMPLE = "adult sample"
ONE_SEED = (
    "The paper shows one seed a cell, and seeds differ (--seeds). Its verifier is the triangle LP, ours decides, so that ours are "
    "at least as large for the same network. "
)


def _adult(request: Request) -> tuple[Dataset, str]:
    whole = datasets.load("adult")
    return (balanced_adult(whole) if request.dataset == SAMPLE else whole), request.dataset


def _gender(request: Request) -> pd.DataFrame:
    dataset, name = _adult(request)
    return pd.concat([metrics(dataset, sensitive, request.seed, name) for sensitive in ("sex", "race")], ignore_index=True)


def _compas(request: Request) -> pd.DataFrame:
    dataset = datasets.load("compas", request.file("tabular", "compas_two_years.csv.gz"))
    return metrics(dataset, "sex", request.seed, request.dataset)


def _german(request: Request) -> pd.DataFrame:
    return metrics(datasets.load("german"), "age", request.seed, request.dataset)


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
        differences=ONE_SEED,
    ),
)
