"""What a command is about: a network, its schema and perhaps a table, from files or one of the shipped examples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from verifair import datasets
from verifair.datasets import Dataset
from verifair.errors import QueryError
from verifair.schema.schema import Schema


@dataclass(frozen=True, kw_only=True, eq=False)
class Inputs:
    """model: path of the ONNX file.   dataset: the table, if there is one.   words: the options that name model and schema."""

    model: Path
    schema: Schema
    dataset: Dataset | None
    words: str

    @property
    def frame(self) -> pd.DataFrame | None:
        return None if self.dataset is None else self.dataset.frame


def inputs(model: Path | None, schema: Path | None, data: Path | None, demo: str | None) -> Inputs:
    """The files that were named, or those that --demo brings. Raises QueryError when something is missing, or named twice."""
    if demo is not None:
        if model is not None or schema is not None or data is not None:
            raise QueryError("--demo brings its own model, schema and data: drop it, or drop the others")
        if demo not in ("german", "adult"):
            raise QueryError(f"--demo {demo}: expected german or adult; others bring no network: pass MODEL, --schema and --data")
        dataset = datasets.load(demo)
        return Inputs(model=datasets.network_path(demo), schema=dataset.schema, dataset=dataset, words=f"--demo {demo}")
    if model is None or schema is None:
        raise QueryError("MODEL and --schema are needed; pass them, or try a shipped example with --demo german")
    described = Schema.load(schema)
    table = None if data is None else Dataset(name=str(data), frame=datasets.read_table(data), schema=described)
    return Inputs(model=model, schema=described, dataset=table, words=f"--model {model} --schema {schema}")
