"""The inputs of a stored model: how a network's columns become what a runtime is fed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from encoders.errors import ModelError
from encoders.network import Integers

WHOLE = ("int64", "int32")
LARGEST = {"int64": 2.0**62, "int32": 2.0**30}
"""Numbers of either sign up to here become integers of that type without wrapping."""
TEXT = "text"
NO_COLUMN = -1

Category = str | int | float


@dataclass(frozen=True, kw_only=True, eq=False)
class Feed:
    """One input of the stored model.

    kind: float32, float64, int64, int32 or text.   shape: its axes after the batch, holding w numbers or words.
    start: (w,) the network's column for each of them, -1 where the network has none (a word that the model does not read).
    categories: position -> the values that the model's encoder knows there. The network takes such an entry as a one-hot
    block, a column for each value in this order, from start[position] on.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    start: Integers
    categories: Mapping[int, tuple[Category, ...]] = field(default_factory=dict)

    @property
    def columns(self) -> int:
        """Number of network columns that become this input."""
        blocks = sum(len(known) for known in self.categories.values())
        return int((self.start != NO_COLUMN).sum()) - len(self.categories) + blocks

    def values(self, path: Path, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """What the stored model is fed, (B, *shape), for network inputs x (B, n).

        Raises ModelError where x is no legal input: a block that is not one-hot, or a fraction where the model takes integers.
        """
        given: npt.NDArray[Any] = np.full((len(x), len(self.start)), "" if self.kind == TEXT else 0, dtype=self._dtype)
        number = np.array([p for p, s in enumerate(self.start) if s != NO_COLUMN and p not in self.categories], dtype=np.int64)
        columns = x[:, self.start[number]]
        if self.kind in WHOLE and not (columns == np.floor(columns)).all():
            raise ModelError(path, f"takes integers, but a row holds {columns[columns != np.floor(columns)][0]:g}; in the schema, "
                                   'declare the feature kind = "integer" without a scale', node=self.name, op="input")
        if self.kind in WHOLE and (np.abs(columns) > LARGEST[self.kind]).any():
            raise ModelError(path, f"takes integers of type {self.kind}, but a row holds {np.abs(columns).max():g}, beyond "
                                   f"{LARGEST[self.kind]:g}; narrow the range in the schema", node=self.name, op="input")
        given[:, number] = columns
        for position, known in self.categories.items():
            block = x[:, self.start[position] : self.start[position] + len(known)]
            if not (((block == 0) | (block == 1)).all() and (block.sum(axis=1) == 1).all()):
                raise ModelError(path, f"takes one category of {len(known)}, but a row is not one-hot there; in the schema, "
                                       'declare the feature kind = "one-hot"', node=self.name, op="input")
            values = np.empty(len(known), dtype=self._dtype)
            values[:] = known
            given[:, position] = values[block.argmax(axis=1)]
        return given.reshape(len(x), *self.shape)

    @property
    def _dtype(self) -> npt.DTypeLike:
        return object if self.kind == TEXT else np.dtype(self.kind)

    def legal(self, x: npt.NDArray[Any], random: np.random.Generator) -> None:
        """Bring the columns of arbitrary points x (B, n) to the nearest whole numbers, or to random categories, in place."""
        if self.kind in WHOLE:
            columns = np.array([s for p, s in enumerate(self.start) if p not in self.categories], dtype=np.int64)
            x[:, columns] = np.rint(x[:, columns])
        for position, known in self.categories.items():
            block = slice(self.start[position], self.start[position] + len(known))
            x[:, block] = np.eye(len(known))[random.integers(len(known), size=len(x))]
