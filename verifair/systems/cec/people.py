"""Who is compared: network inputs with true labels and groups, and the columns of merit that make two people comparable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from encoders.network import Array, Integers
from verifair.errors import DataError, SchemaError
from verifair.schema.schema import Schema
from verifair.systems.arguments import check_order, check_table, groups_of, positives


@dataclass(frozen=True, kw_only=True, eq=False)
class People:
    """x: (N, n_0) network inputs.   labels: (N,) true classes of the network, 0 or 1.   groups: (N,) positions in names (G,).

    features: (n_0,) the feature of each column, by its position: columns of one feature are one reason.
    """

    x: Array
    labels: Integers
    groups: Integers
    names: tuple[str, ...]
    features: Integers

    def __post_init__(self) -> None:
        rows = len(self.x)
        if self.x.ndim != 2 or self.labels.shape != (rows,) or self.groups.shape != (rows,):
            raise ValueError(f"x {self.x.shape}, labels {self.labels.shape} and groups {self.groups.shape} do not fit")
        if not np.isin(self.labels, (0, 1)).all() or not ((self.groups >= 0) & (self.groups < len(self.names))).all():
            raise ValueError("labels are 0 or 1, and groups positions in names")

    def __len__(self) -> int:
        return len(self.x)

    def take(self, rows: Integers) -> People:
        """Only some of the rows; the same people where that is all of them, in their order."""
        if np.array_equal(rows, np.arange(len(self))):
            return self
        return People(x=self.x[rows], labels=self.labels[rows], groups=self.groups[rows], names=self.names, features=self.features)


def people_of(
    schema: Schema, frame: pd.DataFrame, sensitive: Any, y: Any = None, *, names: tuple[str, ...] | None = None
) -> People:
    """Rows of a table as people.

    sensitive: name of a column, several names (groups are then their combinations), an array or Series (N,), or a DataFrame.
    It need not be an input of the network.   y: (N,) true classes; None: the schema's label column.   names: the groups, in the
    order that another table has them in; None: those found here.
    Raises DataError, SchemaError for rows that do not fit or are in another order, for a group that `names` lacks,
    and for more than two true classes.
    """
    check_table(frame)
    check_order(frame, sensitive, "sensitive_features")
    masks = groups_of(frame, sensitive)
    known = tuple(masks) if names is None else names
    unknown = [name for name in masks if name not in known]
    if unknown:
        raise DataError(
            f"group {unknown[0]!r}: there is no such group among the rows to compare with, which have {', '.join(known)}; add "
            "rows of it there, or leave such people out"
        )
    check_order(frame, y, "y")
    labels = np.where(schema.favoured(frame) if y is None else positives(y, schema, len(frame)), schema.good, 1 - schema.good)
    groups = np.zeros(len(frame), dtype=np.int64)
    for name, mask in masks.items():
        groups[mask] = known.index(name)
    features = np.repeat(np.arange(schema.domain.variables), schema.domain.width)
    return People(x=schema.encode(schema.raw(frame)), labels=labels, groups=groups, names=known, features=features)


def merit_columns(schema: Schema) -> Integers:
    """(F,) network columns of the features with merit = true: the paper's financial features (definition 1).

    Raises SchemaError where no feature has it.
    """
    chosen = [v for v, feature in enumerate(schema.features) if feature.merit]
    if not chosen:
        raise SchemaError(
            "no feature has merit = true, so nothing says who is comparable; mark the features that may legitimately decide, such "
            "as income or debt, with merit = true in the schema"
        )
    domain = schema.domain
    return np.concatenate([np.arange(domain.start[v], domain.start[v] + domain.width[v]) for v in chosen])
