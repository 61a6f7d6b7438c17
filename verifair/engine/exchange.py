"""Exchanges: the values of one sensitive feature, or of several at once, that counterfactuals may have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from encoders.arrays import Array, Booleans
from verifair.errors import QueryError
from verifair.schema.schema import Schema

MAX_COMBINATIONS = 1000
"""The most combinations of protected values in one query: half a million pairs."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Exchange:
    """Numbered values of one sensitive feature, or combinations of values of several (their intersection).

    index: of the features.   numbers: (K,) as in `to` and `group` of a verdict: raw values of one feature, or positions of the
    combinations of several.   combined: (K, p) the raw values.
    """

    schema: Schema
    names: tuple[str, ...]
    index: list[int]
    numbers: Array
    combined: Array

    @classmethod
    def of(cls, schema: Schema, sensitive: str | Sequence[str]) -> Exchange:
        """Return the exchange. Raises QueryError for too many combinations, SchemaError for unknown features and real ones."""
        names = (sensitive,) if isinstance(sensitive, str) else tuple(sensitive)
        values = [schema.values(name) for name in names]
        if len(names) > 1 and (count := int(np.prod([float(len(options)) for options in values]))) > MAX_COMBINATIONS:
            raise QueryError(
                f"{' and '.join(names)} have {count} combinations, at most {MAX_COMBINATIONS} can be compared; group the values"
            )
        combined = np.array(list(product(*values)), dtype=np.float64)
        numbers = combined[:, 0] if len(names) == 1 else np.arange(len(combined), dtype=np.float64)
        return cls(schema=schema, names=names, index=[schema.index(name) for name in names], numbers=numbers, combined=combined)

    @property
    def name(self) -> str:
        """The name in results: "sex", "sex & race"."""
        return " & ".join(self.names)

    def of_rows(self, raw: Array) -> Array:
        """Return the numbers (N,) of raw rows (N, V) that lie within the schema's ranges."""
        values = raw[:, self.index]
        if len(self.names) == 1:
            return np.asarray(values[:, 0])
        sizes = [len(self.schema.values(name)) for name in self.names]
        places = (values - self.combined[0]).astype(np.int64)
        return np.asarray(np.ravel_multi_index(tuple(places.T), sizes), dtype=np.float64)

    def values(self, number: float) -> dict[str, float]:
        """Return feature -> raw value of one number."""
        return dict(zip(self.names, self.combined[self._place(number)].tolist(), strict=True))

    def put(self, raw: Array, numbers: Array) -> Array:
        """Return raw rows (B, V) in which the sensitive values are replaced by those with numbers (B,)."""
        out = raw.copy()
        out[:, self.index] = self.combined[self._place(numbers)]
        return out

    def apart(self, raw: Array, number: float) -> Booleans:
        """Return (B,) True for raw rows (B, V) that differ from the value in every sensitive feature."""
        return np.asarray((raw[:, self.index] != self.combined[self._place(number)]).all(axis=1))

    def word(self, number: float) -> str | int | float:
        """Return the value in the schema's words; for several features such as "Female, Black"."""
        if len(self.names) == 1:
            return self.schema[self.names[0]].word(number)
        return ", ".join(self.schema.format(name, value) for name, value in self.values(number).items())

    def format(self, number: float) -> str:
        """Return the value as `word` does, always as text."""
        return self.schema.format(self.names[0], number) if len(self.names) == 1 else str(self.word(number))

    def _place(self, number: float | Array) -> Any:
        return np.searchsorted(self.numbers, number)
