"""The subject of a question: the model, its schema and the table of people."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from encoders.arrays import Array
from encoders.model import Model
from encoders.onnx.reader import read_model
from verifair import datasets
from verifair.checker.words import counted
from verifair.datasets import Dataset
from verifair.datasets.stream import Stream
from verifair.errors import QueryError
from verifair.schema.schema import Schema
from verifair.systems.results.words import drawn
from verifair.systems.settings import Inputs

DEMOS = ("german", "adult")
"""Shipped examples that bring a network."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """data: the table, None without one.   dataset: the same with its held-out rows, for a shipped example.

    words: the source of the table.   dropped: rows outside the schema, left out.   protected: the sensitive features.
    options: those that name model and schema to `verifair check`.   model: path of the ONNX file.
    """

    network: Model
    schema: Schema
    data: Stream | None
    dataset: Dataset | None = None
    words: str = "no table"
    dropped: int = 0
    protected: tuple[str, ...] = ()
    options: str = ""
    model: Path

    @property
    def frame(self) -> pd.DataFrame | None:
        """The whole table, kept in memory: for analyses that compare everybody with everybody."""
        return None if self.data is None else self.data.frame

    @property
    def table(self) -> Dataset | None:
        """The table as a dataset, also if it comes from a file."""
        built = None if self.data is None else Dataset(name=self.words, frame=self.data.frame, schema=self.schema)
        return self.dataset or built

    @cached_property
    def judged(self) -> Model:
        """The model with one margin, that of decision 1, for analyses that compare people (`Schema.judges`)."""
        return self.schema.judges(self.network)

    @property
    def favourable(self) -> str:
        return self.schema.outcomes[1]

    @property
    def unfavourable(self) -> str:
        return self.schema.outcomes[0]

    @property
    def without(self) -> str:
        """Return the rows that were left out, in words."""
        return f" ({left_out(self.dropped)})" if self.dropped else ""

    def inside(self, section: str, key: str, written: str) -> Path:
        """Return the path of a file that settings name. In an audit it is relative to the audit file."""
        return Path(written)

    def rows(self) -> Stream:
        """Return the table. Raises QueryError if there is none."""
        if self.data is None:
            raise QueryError("--data missing: name the table of the rows, or try a shipped example with --demo german")
        return self.data

    def raw(self, *, outside: Literal["error", "keep"] = "error") -> Array | None:
        """Return the raw rows (N, V), without holding the table; None without a table.   outside: as in `Schema.raw`."""
        if self.data is None:
            return None
        rows, start = np.empty((self.data.count, self.schema.domain.variables)), 0
        for part in self.data.each(lambda frame: self.schema.raw(frame, outside=outside)):
            rows[start : start + len(part)] = part
            start += len(part)
        return rows

    def some(self, rows: int | None, seed: int) -> tuple[Stream, str]:
        """Return `rows` rows of the table (None: all), drawn with the seed, in the table's order; and a description of them."""
        data = self.rows()
        if rows is None or rows >= data.count:
            return data, f"all {data.count:,} rows of the table{self.without}"
        chosen = np.sort(np.random.default_rng(seed).choice(data.count, size=rows, replace=False))
        return data.take(chosen), drawn(rows, f"the table's {data.count:,} rows", seed) + self.without

    def names(self, asked: Sequence[str] | None) -> list[str]:
        """Return the protected features of an analysis, each of the schema. Raises SchemaError naming the closest one."""
        chosen = list(dict.fromkeys(asked or self.protected))
        for name in chosen:
            self.schema.index(name)
        return chosen


def left_out(rows: int) -> str:
    """Return the number of rows that were left out, in words."""
    return f"{counted(rows, 'row', 'rows')} outside the schema left out"


def model_options(model: Path | None, schema: Path | None) -> str:
    """Return the options that name model and schema to `verifair check`, quoted for a shell."""
    return f"--model {shlex.quote(str(model))} --schema {shlex.quote(str(schema))}"


def read(inputs: Inputs, protected: Sequence[str] = ()) -> Subject:
    """Read the named files, or those of --demo. Raises QueryError if something is missing.

    protected: features that the question treats as protected: their missing values are not filled in.
    """
    rows: Stream | None
    if inputs.demo is not None:
        if inputs.demo not in DEMOS:
            raise QueryError(
                f"--demo {inputs.demo}: expected german or adult; others bring no network: pass MODEL, --schema and --data"
            )
        dataset: Dataset | None = (shipped := datasets.load(inputs.demo))
        schema, model, rows = shipped.schema, datasets.network_path(inputs.demo), Stream.of(shipped.frame)
        words, options = f"shipped example {inputs.demo}", f"--demo {inputs.demo}"
    else:
        if inputs.model is None or inputs.schema_file is None:
            raise QueryError("MODEL and --schema are needed; pass them, or try a shipped example with --demo german")
        schema, model = Schema.load(inputs.schema_file), inputs.model
        data, words = inputs.data, str(inputs.data)
        dataset = None if data is None else datasets.named(str(data))
        rows = None if dataset is None else Stream.of(dataset.frame)
        if data is not None and dataset is None:
            rows, settled = Stream.of(data).settled(inputs.missing, schema.columns_filled, facts=schema.facts(protected))
            words += settled
        options = model_options(model, inputs.schema_file)
    network, schema = schema.settled(read_model(model))
    return Subject(
        network=network, schema=schema, data=rows, dataset=dataset, model=model,
        words=words, options=options, protected=schema.protected_names,
    )
