"""What a question is about: the network, its schema and the table of people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from encoders.network import Model
from encoders.onnx.reader import read_model
from verifair import datasets
from verifair.datasets import Dataset
from verifair.errors import QueryError
from verifair.schema.schema import Schema
from verifair.systems.settings import Inputs

DEMOS = ("german", "adult")
"""Shipped examples that bring a network."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """frame: the table, None where none was named.   dataset: the same with the rows held out, where a shipped example brings it.

    words: where the table is from.   dropped: rows outside the schema, left out.   protected: the sensitive features.
    options: those that name model and schema to `verifair check`.   model: path of the ONNX file.
    """

    network: Model
    schema: Schema
    frame: pd.DataFrame | None
    dataset: Dataset | None = None
    words: str = "no table"
    dropped: int = 0
    protected: tuple[str, ...] = ()
    options: str = ""
    model: Path

    @property
    def table(self) -> Dataset | None:
        """The table as a dataset, also where a file was named."""
        named = None if self.frame is None else Dataset(name=self.words, frame=self.frame, schema=self.schema)
        return self.dataset or named

    @cached_property
    def judged(self) -> Model:
        """The model with one margin, that of decision 1: whatever compares people takes this one (`Schema.judges`)."""
        return self.schema.judges(self.network)

    @property
    def favourable(self) -> str:
        return self.schema.outcomes[1]

    @property
    def unfavourable(self) -> str:
        return self.schema.outcomes[0]

    @property
    def without(self) -> str:
        """What the table lacks, in words."""
        return f" ({self.dropped:,} rows outside the schema's ranges were left out)" if self.dropped else ""

    def inside(self, section: str, key: str, written: str) -> Path:
        """Return the path of a file that settings name. In an audit it is relative to the audit file."""
        return Path(written)

    def rows(self) -> pd.DataFrame:
        """Return the table. Raises QueryError where there is none."""
        if self.frame is None:
            raise QueryError("--data missing: name the table of the rows, or try a shipped example with --demo german")
        return self.frame

    def some(self, rows: int | None, seed: int) -> tuple[pd.DataFrame, str]:
        """Return so many rows of the table, drawn with the seed, in the table's order; and which these are in words."""
        frame = self.rows()
        if rows is None or rows >= len(frame):
            return frame, f"all {len(frame):,} rows of the table{self.without}"
        drawn = np.sort(np.random.default_rng(seed).choice(len(frame), size=rows, replace=False))
        words = f"{rows:,} of the table's {len(frame):,} rows, drawn with seed {seed}{self.without}"
        return frame.iloc[drawn].reset_index(drop=True), words

    def names(self, asked: Sequence[str] | None) -> list[str]:
        """Return the protected features of an analysis, each of the schema. Raises SchemaError naming the closest one."""
        chosen = list(dict.fromkeys(asked or self.protected))
        for name in chosen:
            self.schema.index(name)
        return chosen


def read(inputs: Inputs) -> Subject:
    """Read the files that were named, or those that --demo brings. Raises QueryError when something is missing."""
    if inputs.demo is not None:
        if inputs.demo not in DEMOS:
            raise QueryError(
                f"--demo {inputs.demo}: expected german or adult; others bring no network: pass MODEL, --schema and --data"
            )
        dataset: Dataset | None = (shipped := datasets.load(inputs.demo))
        schema, model, frame = shipped.schema, datasets.network_path(inputs.demo), shipped.frame
        words, options = f"shipped example {inputs.demo}", f"--demo {inputs.demo}"
    else:
        if inputs.model is None or inputs.schema_file is None:
            raise QueryError("MODEL and --schema are needed; pass them, or try a shipped example with --demo german")
        schema, model = Schema.load(inputs.schema_file), inputs.model
        data, words = inputs.data, str(inputs.data)
        dataset, frame = None, None if data is None else datasets.read_table(data)
        options = f"--model {model} --schema {inputs.schema_file}"
    network, schema = schema.settled(read_model(model))
    return Subject(
        network=network, schema=schema, frame=frame, dataset=dataset, model=model,
        words=words, options=options, protected=schema.protected_names,
    )
