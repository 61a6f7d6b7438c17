"""What `verifair cec` is about: whose explanations are compared, with whom, and what makes them comparable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from encoders.network import Integers
from verifair.cli.fgce_inputs import Rows, rows_of
from verifair.cli.inputs import Inputs
from verifair.datasets import Dataset, read_table
from verifair.errors import DataError, QueryError
from verifair.schema.schema import Schema
from verifair.systems.cec.matching import Reference
from verifair.systems.cec.people import People, merit_columns, people_of


@dataclass(frozen=True, kw_only=True, eq=False)
class Audited:
    """people: (N,) whose explanations are compared.   reference: with whom.   rows, reference_rows: what their tables call them.

    words: which rows are audited.   apart: file of the rows to compare with; None for the audited table.   dropped: rows outside
    the schema, of both tables.   protected: what makes the groups.   merit: names of the features that make people comparable.
    """

    people: People
    reference: Reference
    rows: pd.Index
    reference_rows: pd.Index
    words: str
    apart: Path | None
    dropped: int
    protected: tuple[str, ...]
    merit: tuple[str, ...]

    @property
    def notes(self) -> list[str]:
        """What the reader should know of the question itself."""
        both = [name for name in self.protected if name in self.merit]
        merit = self.reference.people.x[:, self.reference.columns]
        alike = "note: everybody has the same merit, so anybody of another group with the same label is as near as any other"
        return ([] if np.ptp(merit, axis=0).any() else [alike]) + [
            f"note: {name!r} makes the groups and is merit as well: counterparts differ in it by construction; drop merit there"
            for name in both
        ]


def audited(
    given: Inputs, protected: Sequence[str], split: Sequence[str], audit: str, outside: str, *, reference: Path | None,
    sample: int | None, seed: int, demo: bool,
) -> Audited:  # fmt: skip
    """The people and their reference. Raises QueryError, DataError or SchemaError for options that do not fit the tables.

    reference: table with the same columns.   sample: audit so many rows only, drawn with the seed.
    """
    if given.dataset is None:
        raise QueryError("cec needs rows: pass --data TABLE, or try a shipped example with --demo german")
    if not protected:
        known = ", ".join(given.schema.protected_names) or "none is declared protected"
        raise QueryError(f"cec needs groups to compare: pass --protected NAME (protected in the schema: {known})")
    columns = merit_columns(given.schema)
    own = rows_of(given, protected, split, audit, outside, demo=demo)
    if reference is None:
        table, pool, comparable = _compared(given.schema, own, columns)
    else:
        try:
            table, pool, comparable = _compared(given.schema, _other(given, protected, split, outside, reference), columns)
        except DataError as error:  # which of the two tables
            told = str(error)
            raise DataError(told if told.startswith(f"{reference}:") else f"--reference {reference}: {told}") from None
    chosen, words = _chosen(own, sample, seed)
    people = pool if reference is None else _people(given.schema, own, names=pool.names)
    return Audited(
        people=people.take(chosen), reference=comparable,
        rows=own.frame.index[chosen], reference_rows=table.frame.index, words=words, apart=reference,
        dropped=own.dropped + (0 if reference is None else table.dropped),
        protected=tuple(own.groups.columns), merit=tuple(f.name for f in given.schema.features if f.merit),
    )  # fmt: skip


def _compared(schema: Schema, rows: Rows, columns: Integers) -> tuple[Rows, People, Reference]:
    people = _people(schema, rows)
    return rows, people, Reference.of(people, columns)


def _other(given: Inputs, protected: Sequence[str], split: Sequence[str], outside: str, file: Path) -> Rows:
    dataset = Dataset(name=str(file), frame=read_table(file), schema=given.schema)
    return rows_of(replace(given, dataset=dataset), protected, split, "all", outside, demo=False)


def _people(schema: Schema, rows: Rows, names: tuple[str, ...] | None = None) -> People:
    return people_of(schema, rows.frame, rows.groups, names=names)


def _chosen(rows: Rows, sample: int | None, seed: int) -> tuple[Integers, str]:
    """Positions of the audited rows, and which these are in words."""
    asked = np.flatnonzero(rows.audit)
    if sample is None or sample >= len(asked):
        return asked, rows.audited
    drawn = np.random.default_rng(seed).choice(asked, size=sample, replace=False)
    return np.sort(drawn), f"{sample:,} of {len(asked):,} ({rows.audited}), drawn with seed {seed}"
