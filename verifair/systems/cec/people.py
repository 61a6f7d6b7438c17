"""The people who are compared: model inputs, true labels, groups, and the columns of merit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from encoders.arrays import Array, Integers
from encoders.domain import Domain
from verifair.aside import Aside, Stack, made, taken
from verifair.errors import DataError, SchemaError
from verifair.schema.schema import Schema
from verifair.systems.arguments import check_order, check_table, groups_of, positives
from verifair.systems.groups import blocks, identities


@dataclass(frozen=True, kw_only=True, eq=False)
class People:
    """values: (N, V) the network's input of each feature: its number, or the position of the 1 in a one-hot block.

    labels: (N,) true classes of the network, 0 or 1.   groups: (N,) positions in names (G,).   domain: encodes the
    values as columns; None where each value is a column.
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
        labels, groups = ((side.min(initial=0), side.max(initial=0)) for side in (self.labels, self.groups))
        if labels[0] < 0 or labels[1] > 1 or groups[0] < 0 or groups[1] >= max(len(self.names), 1):
            raise ValueError("labels are 0 or 1, and groups positions in names")

    def __len__(self) -> int:
        return len(self.values)

    @property
    def features(self) -> Integers:
        """(n_0,) the feature of each column, by its position; the columns of a feature share one attribution."""
        return np.repeat(np.arange(self.values.shape[1]), 1 if self.domain is None else self.domain.width)

    @property
    def determines(self) -> tuple[Any, ...]:
        """Everything that describes these people, as arrays and JSON values: the key of stored results."""
        domain = self.domain
        encoding = () if domain is None else (domain.start, domain.width, domain.one_hot)
        return self.values, self.labels, self.groups, list(self.names), *encoding

    @cached_property
    def x(self) -> Array:
        """(N, n_0) all model inputs; cached."""
        return self.inputs(slice(None))

    def inputs(self, rows: Integers | slice) -> Array:
        """Network inputs (B, n_0) of some of the rows."""
        values, domain = self.values[rows].astype(np.float64), self.domain
        if domain is None:
            return values
        result = np.zeros((len(values), domain.columns))
        result[:, domain.start[~domain.one_hot]] = values[:, ~domain.one_hot]
        ones = domain.start[domain.one_hot] + values[:, domain.one_hot].astype(np.int64)
        np.put_along_axis(result, ones, 1.0, axis=1)
        return result

    def distinct(self, columns: Integers) -> tuple[Array, Integers]:
        """Return the distinct values (D, F) of some network columns, and (N,) each person's position among them."""
        position = identities(self.values, np.unique(self.features[columns]))
        first = np.zeros(int(position.max(initial=-1)) + 1, dtype=np.int64)
        for part in reversed(list(blocks(len(position)))):  # in reverse, so that of equal rows the first one is kept
            first[position[part][::-1]] = np.arange(part.start, part.start + len(position[part]))[::-1]
        result = Aside.of(len(first), len(columns))
        for part in blocks(len(first)):
            result.put(part, self.inputs(first[part])[:, columns])
        return result.values, position

    def take(self, rows: Integers) -> People:
        """Return only some of the rows (self if these are all rows in their order)."""
        if len(rows) == len(self) and (rows[1:] - rows[:-1] == 1).all():
            return self
        return replace(self, **{name: taken(getattr(self, name), rows) for name in ("values", "labels", "groups")})

    def fed(self, x: Array) -> People:
        """Return the same people with the network inputs x (N, n)."""
        return replace(self, values=x, domain=None)


class Gathered:
    """People of several parts of a table, at least one; held in files if they are many."""

    def __init__(self) -> None:
        self._values, self._labels, self._groups = Stack(), Stack(), Stack()
        self._names: list[str] = []
        self._domain: Domain | None = None

    def add(self, people: People) -> None:
        """Add the next part."""
        self._names += [name for name in people.names if name not in self._names]
        self._domain = people.domain
        self._values.add(people.values)
        self._labels.add(people.labels)
        self._groups.add(np.array([self._names.index(name) for name in people.names])[people.groups])

    def people(self, names: tuple[str, ...] | None = None) -> People:
        """Return everybody.   names: as in `people_of`. Raises DataError as that does."""
        names_sorted = sorted(self._names)
        group_names = tuple(names_sorted) if names is None else names
        _check_known(names_sorted, group_names)
        index = np.array([group_names.index(name) for name in self._names])
        values, labels, groups = (side.values() for side in (self._values, self._labels, self._groups))
        return People(
            values=values, labels=labels, groups=made(len(groups), np.int64, lambda part: index[groups[part]]), names=group_names,
            domain=self._domain,
        )

    def close(self) -> None:
        """Release the files; people returned before keep them open."""
        for side in (self._values, self._labels, self._groups):
            side.close()


def people_of(
    schema: Schema, frame: pd.DataFrame, sensitive: Any, y: Any = None, *, names: tuple[str, ...] | None = None
) -> People:
    """Return the rows of a table as `People`.

    sensitive: name of a column, several names (groups are then their combinations), an array or Series (N,), or a DataFrame.
    It need not be an input of the network.   y: (N,) true classes; None: the schema's label column.   names: the groups, in the
    order of another table; None: those found here.
    Raises DataError, SchemaError for rows that do not fit or are in another order, for a group that `names` lacks,
    and for more than two true classes.
    """
    check_table(frame)
    check_order(frame, sensitive, "sensitive_features")
    masks = groups_of(schema.with_missing(frame), sensitive)
    group_names = tuple(masks) if names is None else names
    _check_known(masks, group_names)
    check_order(frame, y, "y")
    labels = np.where(schema.favoured(frame) if y is None else positives(y, schema, len(frame)), schema.good, 1 - schema.good)
    groups = np.zeros(len(frame), dtype=np.int64)
    for name, mask in masks.items():
        groups[mask] = group_names.index(name)
    raw, domain = schema.raw(frame), schema.domain
    values = np.empty(raw.shape, dtype=np.float32)  # numbers become float32, and there are fewer than 2^24 categories
    for part in blocks(len(raw)):
        fed = schema.encode(raw[part])[:, domain.start]
        values[part] = np.where(domain.one_hot, raw[part], fed)
    return People(values=values, labels=labels, groups=groups, names=group_names, domain=domain)


def _check_known(names: Iterable[str], known: tuple[str, ...]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise DataError(
            f"group {unknown[0]!r}: there is no such group among the rows to compare with, which have {', '.join(known)}; add "
            "rows of it there, or leave such people out"
        )


def merit_columns(schema: Schema) -> Integers:
    """Return (F,) network columns of the features with merit = true: the paper's financial features (definition 1).

    Raises SchemaError if there is no such feature.
    """
    chosen = [v for v, feature in enumerate(schema.features) if feature.merit]
    if not chosen:
        raise SchemaError(
            "no feature has merit = true, so nothing says who is comparable; mark the features that may legitimately decide, such "
            "as income or debt, with merit = true in the schema"
        )
    domain = schema.domain
    return np.concatenate([np.arange(domain.start[v], domain.start[v] + domain.width[v]) for v in chosen])
