"""Who is compared: network inputs with true labels and groups, and the columns of merit that make two people comparable."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from encoders.domain import Domain
from encoders.network import Array, Integers
from verifair.errors import DataError, SchemaError
from verifair.schema.schema import Schema
from verifair.systems.arguments import check_order, check_table, groups_of, positives
from verifair.systems.groups import blocks, identities


@dataclass(frozen=True, kw_only=True, eq=False)
class People:
    """values: (N, V) of each feature what the network is fed: its number, or of a one-hot block the place of the 1.

    labels: (N,) true classes of the network, 0 or 1.   groups: (N,) positions in names (G,).   domain: of the columns that the
    values become; None where each is a column.
    """

    values: npt.NDArray[np.floating]
    labels: Integers
    groups: Integers
    names: tuple[str, ...]
    domain: Domain | None = None

    def __post_init__(self) -> None:
        rows = len(self.values)
        if self.values.ndim != 2 or self.labels.shape != (rows,) or self.groups.shape != (rows,):
            raise ValueError(f"values {self.values.shape}, labels {self.labels.shape} and groups {self.groups.shape} do not fit")
        if not np.isin(self.labels, (0, 1)).all() or not ((self.groups >= 0) & (self.groups < len(self.names))).all():
            raise ValueError("labels are 0 or 1, and groups positions in names")

    def __len__(self) -> int:
        return len(self.values)

    @property
    def features(self) -> Integers:
        """(n_0,) the feature of each column, by its position: columns of one feature are one reason."""
        return np.repeat(np.arange(self.values.shape[1]), 1 if self.domain is None else self.domain.width)

    @cached_property
    def x(self) -> Array:
        """(N, n_0) all network inputs, in memory from now on."""
        return self.inputs(slice(None))

    def inputs(self, rows: Integers | slice) -> Array:
        """Network inputs (B, n_0) of some of the rows."""
        values, domain = self.values[rows].astype(np.float64), self.domain
        if domain is None:
            return values
        found = np.zeros((len(values), domain.columns))
        found[:, domain.start[~domain.one_hot]] = values[:, ~domain.one_hot]
        ones = domain.start[domain.one_hot] + values[:, domain.one_hot].astype(np.int64)
        np.put_along_axis(found, ones, 1.0, axis=1)
        return found

    def distinct(self, columns: Integers) -> tuple[Array, Integers]:
        """Return the distinct values (D, F) of some network columns, and (N,) which of them everybody has."""
        place = identities(self.values, np.unique(self.features[columns]))
        first = np.unique(place, return_index=True)[1]
        found = np.empty((len(first), len(columns)))
        for part in blocks(len(first)):
            found[part] = self.inputs(first[part])[:, columns]
        return found, place

    def take(self, rows: Integers) -> People:
        """Only some of the rows; the same people where that is all of them, in their order."""
        if np.array_equal(rows, np.arange(len(self))):
            return self
        return replace(self, values=self.values[rows], labels=self.labels[rows], groups=self.groups[rows])

    def fed(self, x: Array) -> People:
        """The same people, whose network inputs are x (N, n)."""
        return replace(self, values=x, domain=None)

    @classmethod
    def join(cls, parts: Sequence[People], names: tuple[str, ...] | None = None) -> People:
        """Return the people of several parts of a table.   names: as in `people_of`. Raises DataError as that does."""
        found = {name for part in parts for name in part.names}
        known = tuple(sorted(found)) if names is None else names
        _check_known(sorted(found), known)
        groups = [np.array([known.index(name) for name in part.names])[part.groups] for part in parts]
        values, labels = (np.concatenate([getattr(part, name) for part in parts]) for name in ("values", "labels"))
        return cls(values=values, labels=labels, groups=np.concatenate(groups), names=known, domain=parts[0].domain)


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
    _check_known(masks, known)
    check_order(frame, y, "y")
    labels = np.where(schema.favoured(frame) if y is None else positives(y, schema, len(frame)), schema.good, 1 - schema.good)
    groups = np.zeros(len(frame), dtype=np.int64)
    for name, mask in masks.items():
        groups[mask] = known.index(name)
    raw, domain = schema.raw(frame), schema.domain
    values = np.empty(raw.shape, dtype=np.float32)  # numbers become float32, and there are fewer than 2^24 categories
    for part in blocks(len(raw)):
        fed = schema.encode(raw[part])[:, domain.start]
        values[part] = np.where(domain.one_hot, raw[part], fed)
    return People(values=values, labels=labels, groups=groups, names=known, domain=domain)


def _check_known(names: Iterable[str], known: tuple[str, ...]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise DataError(
            f"group {unknown[0]!r}: there is no such group among the rows to compare with, which have {', '.join(known)}; add "
            "rows of it there, or leave such people out"
        )


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
