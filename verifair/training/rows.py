"""A dataset as the trainer takes it: encoded float32 rows, and setting a sensitive feature in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from encoders.arrays import Floats, Integers
from verifair.errors import DataError
from verifair.schema.schema import Schema


@dataclass(frozen=True, kw_only=True, eq=False)
class EncodedRows:
    """x (N, n) network inputs, labels (N,) 0 or 1, groups: feature -> (N,) position of the row's value in its Flip."""

    x: Floats
    labels: Integers
    groups: dict[str, Integers]


@dataclass(frozen=True, kw_only=True, eq=False)
class Flip:
    """Sets one feature in encoded rows: x[:, columns] = codes[k] gives it value k.

    columns (m,); codes (K, m); names (K,) the values in the schema's words.
    """

    columns: Integers
    codes: Floats
    names: tuple[str, ...]


def flip_of(schema: Schema, name: str) -> Flip:
    """Return the Flip of a feature with finitely many values; raises SchemaError for another."""
    v = schema.index(name)
    values = schema.values(name)
    raw = np.repeat(schema.domain.lower[None, :], len(values), axis=0)
    raw[:, v] = values
    columns = np.arange(schema.domain.start[v], schema.domain.start[v] + schema.domain.width[v])
    return Flip(
        columns=columns,
        codes=schema.encode(raw)[:, columns].astype(np.float32),
        names=tuple(schema.format(name, value) for value in values),
    )


def rows_of(schema: Schema, frame: pd.DataFrame, features: tuple[str, ...]) -> EncodedRows:
    """Encode rows, with the groups of the named features. Raises DataError for rows that do not fit the schema."""
    raw = schema.raw(frame)
    return EncodedRows(
        x=schema.encode(raw).astype(np.float32),
        labels=schema.labels(frame),
        groups={name: (raw[:, schema.index(name)] - schema.values(name)[0]).astype(np.int64) for name in features},
    )


def check_trainable(schema: Schema, frame: pd.DataFrame) -> None:
    """Raise DataError unless the label has two classes, class 1 favourable, with enough rows for an 80/20 split by label.

    A trained network has a column for each category, so that its schema drops none.
    """
    incomplete = next((feature for feature in schema.features if feature.dropped is not None), None)
    if incomplete is not None:
        raise DataError(
            f"feature {incomplete.name!r}: a network that is trained has a column for each category; leave dropped = "
            f"{incomplete.dropped!r} out of the schema, and give the table one column {incomplete.source!r} of names"
        )
    if str(schema.outcome) not in ("logit > 0", "class = 1"):
        raise DataError(f'positive = "{schema.outcome}": the favourable class of a training is class 1; write "class = 1"')
    class_counts = np.bincount(schema.labels(frame))
    if len(class_counts) != 2 or class_counts.min() < 5:
        counts = ", ".join(f"class {k}: {n} rows" for k, n in enumerate(class_counts))
        raise DataError(
            f"label {schema.label!r}: {counts}; expected two classes, 0 and 1, with at least 5 rows each: add rows, or "
            "name the positive value with positive_label = ... in the schema"
        )
