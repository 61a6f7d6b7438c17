"""The inputs of a stored model for points of the network's input space."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from encoders.errors import ModelError
from encoders.model import NO_COLUMN, Feed

WHOLE = ("int64", "int32")
LARGEST = {"int64": 2.0**62, "int32": 2.0**30}
"""Numbers up to this size, of either sign, become integers of that type without wrapping."""
TEXT = "text"


def feed_values(feed: Feed, path: Path, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the stored model's input, (B, *shape), for network inputs x (B, n).

    Raises ModelError if x is no legal input: a block that is not one-hot, or a fraction where the model takes integers.
    """
    dtype = object if feed.kind == TEXT else np.dtype(feed.kind)
    inputs: npt.NDArray[Any] = np.full((len(x), len(feed.start)), "" if feed.kind == TEXT else 0, dtype=dtype)
    number = np.array([p for p, s in enumerate(feed.start) if s != NO_COLUMN and p not in feed.categories], dtype=np.int64)
    columns = x[:, feed.start[number]]
    if feed.kind in WHOLE and not (columns == np.floor(columns)).all():
        raise ModelError(path, f"takes integers, but a row holds {columns[columns != np.floor(columns)][0]:g}; in the schema, "
                               'declare the feature kind = "integer" without a scale', node=feed.name, op="input")
    if feed.kind in WHOLE and (np.abs(columns) > LARGEST[feed.kind]).any():
        raise ModelError(path, f"takes integers of type {feed.kind}, but a row holds {np.abs(columns).max():g}, beyond "
                               f"{LARGEST[feed.kind]:g}; narrow the range in the schema", node=feed.name, op="input")
    inputs[:, number] = columns
    for position, categories in feed.categories.items():
        block = x[:, feed.start[position] : feed.start[position] + len(categories)]
        if not (((block == 0) | (block == 1)).all() and (block.sum(axis=1) == 1).all()):
            raise ModelError(path, f"takes one category of {len(categories)}, but a row is not one-hot there; in the schema, "
                                   'declare the feature kind = "one-hot"', node=feed.name, op="input")
        values = np.empty(len(categories), dtype=dtype)
        values[:] = categories
        inputs[:, position] = values[block.argmax(axis=1)]
    return inputs.reshape(len(x), *feed.shape)


def make_legal(feed: Feed, x: npt.NDArray[Any], random: np.random.Generator) -> None:
    """Bring the columns of arbitrary points x (B, n) to the nearest whole numbers, or to random categories, in place."""
    if feed.kind in WHOLE:
        columns = np.array([s for p, s in enumerate(feed.start) if p not in feed.categories], dtype=np.int64)
        x[:, columns] = np.rint(x[:, columns])
    for position, categories in feed.categories.items():
        block = slice(feed.start[position], feed.start[position] + len(categories))
        x[:, block] = np.eye(len(categories))[random.integers(len(categories), size=len(x))]
