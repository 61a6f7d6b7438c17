"""The inputs of a stored model while its graph is read: which of their columns are numbers, and which categories.

An encoder of categories (OneHotEncoder, LabelEncoder) is a step function of its input, so nothing affine can stand for it; but
a category is one of finitely many values, and on those the encoder is linear in the *one-hot block* of the category. So
the network begins behind the encoder: an input column that an encoder reads becomes its block of columns. Which columns those
are shows only when the encoder is met; until then the graph's tensors carry the numbers of raw columns along.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from encoders.errors import ModelError
from encoders.exact.affine import exact, selection
from encoders.network import NO_COLUMN, TEXT, WHOLE, Category, Feed, Integers
from encoders.onnx.tensor import MOST, Tensor, concatenated

KINDS = {TensorProto.FLOAT: "float32", TensorProto.DOUBLE: "float64", TensorProto.INT64: "int64", TensorProto.INT32: "int32",
         TensorProto.STRING: TEXT}


def graph_inputs(path: Path, model: onnx.ModelProto) -> tuple[list[Feed], int | None]:
    """All inputs, each of their entries a column in the graph's order, and the fixed batch size (None when open)."""
    stored = {i.name for i in model.graph.initializer}
    feeds: list[Feed] = []
    batches = set()
    width = 0
    for value in (i for i in model.graph.input if i.name not in stored):
        kind = value.type.tensor_type
        if not value.type.HasField("tensor_type") or kind.elem_type not in KINDS:
            known = value.type.HasField("tensor_type") and kind.elem_type in TensorProto.DataType.values()
            found = TensorProto.DataType.Name(kind.elem_type) if known else "unknown, or no tensor"
            raise ModelError(path, f"is of type {found}; supported are FLOAT and DOUBLE, and INT64, INT32 and STRING columns",
                             node=value.name, op="input")
        dims = [d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim]
        shape = tuple(d for d in dims[1:] if d is not None and d > 0)
        if len(dims) < 2 or len(shape) != len(dims) - 1:
            shown = [d if d is not None else "?" for d in dims]
            raise ModelError(path, f"has shape {shown}; supported is (batch, columns, ...) with fixed numbers of columns",
                             node=value.name, op="input")
        count = math.prod(shape)
        if width + count > MOST or (dims[0] or 1) * count > 64 * MOST:
            raise ModelError(path, f"has shape {dims}; supported are {MOST} columns at most", node=value.name, op="input")
        feeds.append(Feed(name=value.name, kind=KINDS[kind.elem_type], shape=shape, start=np.arange(width, width + count)))
        width += count
        batches.add(dims[0] if dims[0] and dims[0] > 0 else None)
    if not feeds:
        raise ModelError(path, "has no inputs; supported are inputs of shape (batch, columns)")
    if len(batches) > 1:
        raise ModelError(path, f"its inputs have batches of different sizes ({batches}); export it with one open batch size")
    return feeds, batches.pop()


def graph_input(path: Path, model: onnx.ModelProto) -> tuple[str, tuple[int, ...], int | None]:
    """Name, axes after the batch, and fixed batch size (None when open) of a model's only input, which must hold floats."""
    feeds, batch = graph_inputs(path, model)
    if len(feeds) != 1 or feeds[0].kind not in ("float32", "float64"):
        names = ", ".join(f"{feed.name!r} ({feed.kind})" for feed in feeds)
        raise ModelError(path, f"has the inputs {names}; supported here is one float input of shape (batch, columns): "
                               "concatenate them before the export")
    return feeds[0].name, feeds[0].shape, batch


@dataclass(kw_only=True, eq=False)
class ModelInputs:
    """feeds: as the graph has them, their `start` numbering raw columns 0 ... R - 1.

    number: (R,) the neuron of source 0 that stands for a raw column that is computed with, -1 for others.
    blocks: raw column -> first neuron of its block, and the categories.   count: neurons given away so far.
    """

    path: Path
    feeds: Sequence[Feed]
    number: Integers
    blocks: dict[int, tuple[int, tuple[Category, ...]]] = field(default_factory=dict)
    count: int = 0

    def tensor(self, feed: Feed) -> Tensor:
        """An input as the graph's nodes meet it."""
        return Tensor(shape=feed.shape, terms={}, const=exact(np.zeros(len(feed.start))), raw=feed.start,
                      whole=feed.kind in (*WHOLE, TEXT))

    def feed(self, column: int) -> Feed:
        """The input that holds a raw column."""
        return next(f for f in self.feeds if f.start[0] <= column <= f.start[-1])

    def numbers(self, x: Tensor) -> Tensor:
        """The tensor with its raw entries as numbers. Raises ModelError where one of them cannot be."""
        if x.raw is None:
            return x
        entries = np.flatnonzero(x.raw >= 0)
        columns = np.unique(x.raw[entries])
        for column in columns:
            feed = self.feed(int(column))
            if feed.kind == TEXT:
                raise ModelError(self.path, "holds text that is neither one-hot nor ordinally encoded", node=feed.name, op="input")
            if x.whole and feed.kind not in WHOLE:
                raise ModelError(self.path, f"is cut from {feed.kind} to whole numbers that are computed with, a step function of "
                                            "it; pass whole numbers to the model", node=feed.name, op="input")
            if int(column) in self.blocks:
                raise self._two_ways(int(column))
        new = columns[self.number[columns] < 0]
        self.number[new] = self.count + np.arange(len(new))
        self.count += len(new)
        m = len(entries)
        found = Tensor(shape=(m,), terms={0: selection(self.number[x.raw[entries]])}, const=exact(np.zeros(m)))
        place = np.arange(x.size)
        place[entries] = x.size + np.arange(m)
        both = concatenated([replace(x, raw=None, shape=(x.size,)), found])
        return replace(both.take(place.reshape(1, *x.shape)), whole=x.whole)

    def block(self, column: int, categories: tuple[Category, ...]) -> int:
        """First neuron of the one-hot block of a raw column."""
        if self.number[column] >= 0:
            raise self._two_ways(column)
        if column not in self.blocks:
            self.blocks[column] = self.count, categories
            self.count += len(categories)
        first, known = self.blocks[column]
        if known != categories:
            raise ModelError(self.path, f"two encoders know different categories of it: {list(known)} and {list(categories)}; "
                                        "give both the same categories", node=self.feed(column).name, op="input")
        return first

    def _two_ways(self, column: int) -> ModelError:
        return ModelError(self.path, "is used both as a number and as a category; pass it to the model as two columns",
                          node=self.feed(column).name, op="input")

    def layout(self) -> tuple[tuple[Feed, ...], Integers]:
        """The feeds with their network columns, in the graph's order, and for each neuron of source 0 its network column.

        Numbers that the model does not read have a column as well; words that it does not read have none.
        """
        unread = [c for c in range(len(self.number)) if self.number[c] < 0 and c not in self.blocks and self.feed(c).kind != TEXT]
        self.number[unread] = self.count + np.arange(len(unread))
        self.count += len(unread)
        position = np.empty(self.count, dtype=np.int64)
        feeds, column = [], 0
        for feed in self.feeds:
            start = np.full(len(feed.start), NO_COLUMN)
            for k, raw in enumerate(feed.start.tolist()):
                first, width = (self.blocks[raw][0], len(self.blocks[raw][1])) if raw in self.blocks else (
                    int(self.number[raw]), int(self.number[raw] >= 0))
                if width:
                    start[k] = column
                    position[first : first + width] = np.arange(column, column + width)
                    column += width
            categories = {k: self.blocks[raw][1] for k, raw in enumerate(feed.start.tolist()) if raw in self.blocks}
            feeds.append(replace(feed, start=start, categories=categories))
        return tuple(feeds), position
