"""The parents of a node as numbers: numeric columns as they are, words as indicators against a reference word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from encoders.arrays import Array
from verifair.errors import DataError, SchemaError
from verifair.schema.feature import text
from verifair.systems.arguments import check_no_hidden_numbers

Codes = npt.NDArray[np.intp]
LARGEST = 1e150
"""Largest number that is squared; the least difference between such numbers is its inverse."""


def is_number(column: Any) -> bool:
    """Return True if a column holds numbers: integers, floats, booleans; not words, categories or dates."""
    return bool(pd.api.types.is_numeric_dtype(column.dtype)) and not pd.api.types.is_complex_dtype(column.dtype)


def shown(value: Any) -> str:
    """Return a table's value as text for an error message; a NumPy number is written as a plain number."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def numbers(column: pd.Series, role: str) -> Array:
    """(N,) values of a numeric column. role: what needs them, for the error. Raises DataError for a column of words."""
    if not is_number(column):
        word = pd.to_numeric(column.astype(str), errors="coerce").isna().to_numpy()  # a single text that is no number is enough
        row = int(np.argmax(word)) if word.any() else 0
        raise DataError(
            f"column {column.name!r}: holds {column.dtype} values such as {shown(column.iloc[row])}, but {role} needs numbers; "
            'convert it with pandas.to_numeric, or make its node categorical: mechanism = "categorical"'
        )
    return np.asarray(column.to_numpy(dtype=np.float64))


def words(column: pd.Series) -> tuple[Codes, tuple[str, ...]]:
    """(N,) positions in the distinct words of a column, and the words, sorted."""
    codes, values = pd.factorize(column)
    texts = np.array([text(value) for value in values], dtype=object)
    levels, positions = np.unique(texts.astype(str), return_inverse=True)
    return positions[codes], tuple(str(level) for level in levels)


@dataclass(frozen=True, kw_only=True, eq=False)
class Design:
    """levels: parent -> its words, the reference first, or None for a parent of numbers; in the order of the parents."""

    levels: Mapping[str, tuple[str, ...] | None]

    @classmethod
    def of(cls, parents: pd.DataFrame, *, node: str, reference: Mapping[str, str] | None = None) -> Design:
        """Return the design of these parents. reference: parent -> the word the others are compared with; else the first, sorted.

        node: whose parents they are, for errors.   Raises DataError for a parent that has one value only, SchemaError for a
        reference that no row has, or one of a parent of numbers.
        """
        levels: dict[str, tuple[str, ...] | None] = {}
        for name in parents.columns:
            given = (reference or {}).get(name)
            if len(parents) > 1 and (parents[name] == parents[name].iloc[0]).all():
                raise DataError(
                    f"node {node!r}: parent {name!r} has the same value in every row, so its effect cannot be fitted; drop it from "
                    "the parents, use rows of all groups, or give its coefficient"
                )
            if is_number(parents[name]):
                if given is not None:
                    raise SchemaError(f"reference of {name!r}: the column holds numbers, which need none; drop the reference")
                levels[name] = None
                continue
            check_no_hidden_numbers(parents[name])
            distinct = words(parents[name])[1]
            if given is not None and given not in distinct:
                raise SchemaError(f"reference of {name!r}: no row has {given!r}; known are {', '.join(distinct[:12])}")
            base = distinct[0] if given is None else given
            levels[name] = (base, *(level for level in distinct if level != base))
        return cls(levels=levels)

    @property
    def parents(self) -> tuple[str, ...]:
        return tuple(self.levels)

    @property
    def terms(self) -> tuple[str, ...]:
        """(P,) names of the coefficients: the parent's, or 'parent = word'."""
        return tuple(
            name if levels is None else f"{name} = {level}"
            for name, levels in self.levels.items()
            for level in (levels[1:] if levels else ("",))
        )

    def codes(self, column: pd.Series) -> Codes:
        """(N,) positions of a column's words in the levels. Raises DataError for a word that the design does not know."""
        levels = self.levels[column.name]
        assert levels is not None
        if is_number(column):
            raise DataError(
                f"column {column.name!r}: holds numbers here and words ({', '.join(levels[:4])}) in the table the model was "
                "fitted on; give both the same type"
            )
        positions, distinct = words(column)
        unknown = [word for word in distinct if word not in levels]
        if unknown:
            raise DataError(
                f"column {column.name!r}: {unknown[0]!r} is not among the words the model was fitted on, {', '.join(levels[:12])}; "
                "fit it on rows that have it, or leave such rows out"
            )
        return np.array([levels.index(word) for word in distinct], dtype=np.intp)[positions]

    def matrix(self, parents: pd.DataFrame) -> Array:
        """(N, P) the terms' values, without a column for the intercept."""
        result = np.empty((len(parents), len(self.terms)), order="F")
        column = 0
        for name, levels in self.levels.items():
            if levels is None:
                result[:, column] = self._numbers(parents[name])
                column += 1
            else:
                codes = self.codes(parents[name])
                for level in range(1, len(levels)):
                    result[:, column] = codes == level
                    column += 1
        return result

    def dot(self, parents: pd.DataFrame, weights: Array) -> Array:
        """(N,) sum of the terms times weights (P,), row by row the same whatever the other rows are."""
        result = np.zeros(len(parents))
        column = 0
        for name, levels in self.levels.items():
            if levels is None:
                result += weights[column] * self._numbers(parents[name])
                column += 1
            else:
                result += np.concatenate(([0.0], weights[column : column + len(levels) - 1]))[self.codes(parents[name])]
                column += len(levels) - 1
        return result

    def _numbers(self, column: pd.Series) -> Array:
        if not is_number(column):
            raise DataError(
                f"column {column.name!r}: holds words such as {shown(column.iloc[0])} here, and numbers in the table the model was "
                "fitted on; give both the same type"
            )
        return np.asarray(column.to_numpy(dtype=np.float64))
