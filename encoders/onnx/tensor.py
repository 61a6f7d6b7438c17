"""Affine expressions over the network's inputs and activations, and the model's inputs while its graph is read.

An encoder of categories (OneHotEncoder, LabelEncoder) is a step function of its input, so it is not affine; but a category is one
of finitely many values, and on those the encoder is linear in the *one-hot block* of the category. So the network begins behind the
encoder: an input column that an encoder reads becomes its block of columns. These columns are known only when the encoder is
reached; until then the graph's tensors hold the numbers of raw columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto

from encoders.arrays import Array, Integers
from encoders.curves.layer import Curve
from encoders.errors import ModelError
from encoders.exact.affine import FLUSHED, Exact, ExactMatrix, as_column, as_vector, exact, selection, stack, stacked
from encoders.model import NO_COLUMN, Category, Feed
from encoders.onnx.feed import TEXT, WHOLE

if TYPE_CHECKING:
    from encoders.onnx.operators.trees import StoredTrees

Constant = npt.NDArray[np.generic]
MOST = 2**18
"""The most entries of a tensor: a damaged file may ask for any number of them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Tensor:
    """tensor = const + sum over sources of  terms[source] @ values of that source, for every row of the batch.

    shape: the axes after the batch axis; the m entries are flattened in that order.
    terms: source number -> (m, width of the source).   const: (m,).
    inexact: nodes at which folded numbers were no float64.   operations: float32 roundings on the longest path here.
    reach: the largest sum of sizes of an entry, on the whole path here (see `encoders.network.Rounding`).
    raw: (m,) the model's input column that an entry is, -1 for none; such an entry has no terms yet (`encoders.onnx.tensor`
    decides what they are when the first operator computes with it). None: no entry is.
    whole: the tensor holds integers: only operators that rearrange, encode or cast it may come next.
    """

    shape: tuple[int, ...]
    terms: Mapping[int, ExactMatrix]
    const: Exact
    inexact: tuple[str, ...] = ()
    operations: int = 0
    reach: float = 0.0
    raw: Integers | None = None
    whole: bool = False

    @property
    def index(self) -> Integers:
        """Numbers of the entries, laid out as one row of a batch (1, *shape): shape operators act on it as on data."""
        return np.arange(math.prod(self.shape), dtype=np.int64).reshape(1, *self.shape)

    @property
    def is_float(self) -> bool:
        return self.const.is_float and all(term.entries.is_float for term in self.terms.values())

    @property
    def size(self) -> int:
        """Number of entries m."""
        return math.prod(self.shape)

    @property
    def reads(self) -> int:
        """Number of neurons that the entries depend on."""
        return sum(len(term.columns) for term in self.terms.values())

    def take(self, index: Integers) -> Tensor:
        """Return entries picked by an index array (1, *new shape). Raises MemoryError for more of them than a network can have."""
        if index.size > MOST:
            raise MemoryError(f"a tensor of {index.size} entries, and at most {MOST} are supported")
        rows = index.ravel()
        picked = self.replaced({s: t.take(rows) for s, t in self.terms.items()}, self.const.take(rows), shape=index.shape[1:])
        return replace(picked, raw=None if self.raw is None else self.raw[rows], whole=self.whole)

    def flat(self) -> Tensor:
        """Return the same entries on one axis."""
        return self.take(self.index.reshape(1, -1))

    def scale(self, factor: Exact, operations: int = 1) -> Tensor:
        """Return the entries times factor (m,)."""
        return self.replaced({s: t.scaled(factor) for s, t in self.terms.items()}, self.const * factor, operations=operations)

    def shift(self, offset: Exact) -> Tensor:
        """Return the entries plus offset (m,)."""
        return self.replaced(self.terms, self.const + offset, operations=1)

    def map(self, matrix: ExactMatrix, shape: tuple[int, ...] | None = None) -> Tensor:
        """matrix (p, m) @ self: a tensor of p entries, in one axis unless `shape` says otherwise."""
        terms = {s: matrix @ t for s, t in self.terms.items()}
        const = as_vector(matrix @ as_column(self.const))
        return self.replaced(terms, const, shape=(matrix.rows,) if shape is None else shape, operations=matrix.widest + 1)

    def plus(self, other: Tensor) -> Tensor:
        """Return the sum of two tensors of the same shape."""
        terms = {s: self.terms[s] + other.terms[s] if s in self.terms and s in other.terms
                 else self.terms.get(s) or other.terms[s] for s in [*self.terms, *(set(other.terms) - set(self.terms))]}
        merged = replace(self, inexact=tuple(dict.fromkeys(self.inexact + other.inexact)), raw=None, whole=False,
                       operations=max(self.operations, other.operations), reach=max(self.reach, other.reach))
        return merged.replaced(terms, self.const + other.const, operations=1)

    def __neg__(self) -> Tensor:
        return self.replaced({s: -t for s, t in self.terms.items()}, -self.const)

    def replaced(self, terms: Mapping[int, ExactMatrix], const: Exact, *, shape: tuple[int, ...] | None = None,
                 operations: int = 0) -> Tensor:
        reach = self.reach
        if operations:      # each may also flush a small result to 0
            const = Exact(values=const.values, size=const.size + FLUSHED)
            sums = const.size.copy()
            for term in terms.values():
                sums += np.bincount(term.row, weights=term.entries.size, minlength=len(sums))
            reach = max(reach, float(sums.max(initial=0.0)))
        return Tensor(shape=self.shape if shape is None else shape, terms=terms, const=const, inexact=self.inexact,
                      operations=self.operations + operations, reach=reach)


def concatenated(parts: Sequence[Tensor]) -> Tensor:
    """Return all entries of all parts as one tensor of shape (m_1 + m_2 + ...,)."""
    sizes = [part.size for part in parts]
    parts_of: dict[int, list[tuple[int, ExactMatrix]]] = {}
    for first, part in zip(accumulate(sizes, initial=0), parts, strict=False):
        for s, term in part.terms.items():
            parts_of.setdefault(s, []).append((first, term))
    terms = {s: stacked(entries, sum(sizes)) for s, entries in parts_of.items()}
    raw = None if all(part.raw is None for part in parts) else np.concatenate(
        [np.full(m, -1) if part.raw is None else part.raw for part, m in zip(parts, sizes, strict=True)])
    return Tensor(shape=(sum(sizes),), terms=terms, const=stack([part.const for part in parts]),
                  inexact=tuple(dict.fromkeys(name for part in parts for name in part.inexact)),
                  operations=max(part.operations for part in parts), reach=max(part.reach for part in parts), raw=raw,
                  whole=any(part.whole for part in parts))


def source_tensor(number: int, shape: tuple[int, ...]) -> Tensor:
    """Return the values of a source themselves."""
    m = math.prod(shape)
    return Tensor(shape=shape, terms={number: selection(np.arange(m))}, const=exact(np.zeros(m)))


Result = Tensor | Sequence[Tensor | None]
"""The result of an operator: its output, or its outputs in order, None for one that cannot be followed."""


@dataclass(frozen=True, kw_only=True, eq=False)
class NeuronSource:
    """The variables of affine expressions: the network's inputs, or the outputs of one activation node.

    before, after: names of the activation's input and output tensors in ONNX; None if an operator is rewritten into activations (a
    maximum, say), whose values no tensor of the stored graph holds.
    level: 0 for the inputs, else one more than the highest level of its inputs: the layer that computes these neurons.
    slope: (m,) of the neurons.   curve: the curve of smooth neurons (slope is 1 then).
    trees: the ensemble whose scores these are, if the node is one.
    """

    node: str
    before: str | None
    after: str | None
    level: int
    pre: Tensor | None
    slope: Array
    curve: Curve = Curve.BENT
    trees: StoredTrees | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class OnnxNode:
    """One node with its inputs resolved: a Tensor, a constant array, or None for an input left out.

    batch: the model's batch size if it is fixed.   sources: all sources so far; an activation appends its own.
    columns: the model's inputs so far; an encoder gets the block of its column from it.
    """

    path: Path
    name: str
    op: str
    opset: int
    batch: int | None
    attributes: Mapping[str, object]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    inputs: tuple[Tensor | Constant | None, ...]
    sources: list[NeuronSource] = field(repr=False)
    columns: ModelInputs = field(repr=False)

    def error(self, problem: str) -> ModelError:
        return ModelError(self.path, problem, node=self.name, op=self.op)

    def has(self, i: int) -> bool:
        return i < len(self.inputs) and self.inputs[i] is not None

    def tensor(self, i: int) -> Tensor:
        """Input i, which must depend on the network's inputs."""
        value = self.inputs[i] if self.has(i) else None
        if not isinstance(value, Tensor):
            raise self.error(f"input {i} is a constant; expected is a tensor that depends on the network's input")
        return value

    def constant(self, i: int) -> Constant:
        """Input i, which must be a constant."""
        value = self.inputs[i] if self.has(i) else None
        if value is None or isinstance(value, Tensor):
            name = self.input_names[i] if i < len(self.input_names) else "missing"
            raise self.error(f"input {i} ({name!r}) must be a constant: supported are maps that are affine in the data")
        return value

    def weight(self, i: int) -> Array:
        """Input i as finite float64 numbers."""
        return finite(self.path, self.input_names[i], self.constant(i))

    def integers(self, i: int) -> list[int]:
        return list(self.indices(i).ravel().tolist())

    def indices(self, i: int) -> Integers:
        """Input i, a constant of integers."""
        value = np.asarray(self.constant(i))
        if value.dtype.kind != "i":
            raise self.error(f"input {i} ({self.input_names[i]!r}) is of type {value.dtype}; expected are integers")
        return value.astype(np.int64)

    def number(self, name: str, default: float) -> float:
        value = self.attributes.get(name, default)
        assert isinstance(value, int | float)
        return value

    def numbers(self, name: str) -> list[float] | None:
        value = self.attributes.get(name)
        return None if value is None else [float(v) for v in value]  # type: ignore[attr-defined]

    def axis(self, value: int, rank: int) -> int:
        """Return an axis as a number from 0 (the batch) to rank - 1."""
        if not -rank <= value < rank:
            raise self.error(f"axis {value} does not exist in a tensor of {rank} axes")
        return value % rank


def finite(path: Path, name: str, value: Constant) -> Array:
    """Return stored numbers as float64. Raises ModelError if they are not finite float32 or float64 numbers."""
    if value.dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ModelError(path, f"its numbers are of type {value.dtype}; supported are float32 and float64 "
                               "(export the model before quantising it or converting it to half precision)", node=name)
    bad = ~np.isfinite(value)        # before they are converted: that warns of some NaNs
    if bad.any():
        place = np.argwhere(bad)[0].tolist()
        raise ModelError(path, f"{int(bad.sum())} of its {value.size} stored numbers are NaN or infinite, the first at "
                               f"index {place}; train again, such a network has no defined outputs", node=name)
    return value.astype(np.float64)


KINDS = {TensorProto.FLOAT: "float32", TensorProto.DOUBLE: "float64", TensorProto.INT64: "int64", TensorProto.INT32: "int32",
         TensorProto.STRING: TEXT}


def graph_inputs(path: Path, model: onnx.ModelProto) -> tuple[list[Feed], int | None]:
    """Return all inputs, each of whose entries is a column in the graph's order, and the fixed batch size (None if open)."""
    stored = {i.name for i in model.graph.initializer}
    feeds: list[Feed] = []
    batches = set()
    width = 0
    for value in (i for i in model.graph.input if i.name not in stored):
        kind = value.type.tensor_type
        if not value.type.HasField("tensor_type") or kind.elem_type not in KINDS:
            is_known = value.type.HasField("tensor_type") and kind.elem_type in TensorProto.DataType.values()
            type_name = TensorProto.DataType.Name(kind.elem_type) if is_known else "unknown, or no tensor"
            raise ModelError(path, f"is of type {type_name}; supported are FLOAT and DOUBLE, and INT64, INT32 and STRING columns",
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
    """Return name, axes after the batch, and fixed batch size (None if open) of a model's only input, which must hold floats."""
    feeds, batch = graph_inputs(path, model)
    if len(feeds) != 1 or feeds[0].kind not in ("float32", "float64"):
        names = ", ".join(f"{feed.name!r} ({feed.kind})" for feed in feeds)
        raise ModelError(path, f"has the inputs {names}; supported here is one float input of shape (batch, columns): "
                               "concatenate them before the export")
    return feeds[0].name, feeds[0].shape, batch


@dataclass(kw_only=True, eq=False)
class ModelInputs:
    """feeds: as the graph has them, their `start` numbering raw columns 0 ... R - 1.

    number: (R,) the neuron of source 0 for a raw column that is used as a number, -1 for others.
    blocks: raw column -> first neuron of its block, and the categories.   count: neurons assigned so far.
    """

    path: Path
    feeds: Sequence[Feed]
    number: Integers
    blocks: dict[int, tuple[int, tuple[Category, ...]]] = field(default_factory=dict)
    count: int = 0

    def tensor(self, feed: Feed) -> Tensor:
        """Return an input as a tensor for the graph's nodes."""
        return Tensor(shape=feed.shape, terms={}, const=exact(np.zeros(len(feed.start))), raw=feed.start,
                      whole=feed.kind in (*WHOLE, TEXT))

    def feed(self, column: int) -> Feed:
        """Return the input that holds a raw column."""
        return next(f for f in self.feeds if f.start[0] <= column <= f.start[-1])

    def numbers(self, x: Tensor) -> Tensor:
        """Return the tensor with its raw entries as numbers. Raises ModelError if one of them cannot be a number."""
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
        new_columns = columns[self.number[columns] < 0]
        self.number[new_columns] = self.count + np.arange(len(new_columns))
        self.count += len(new_columns)
        m = len(entries)
        numeric = Tensor(shape=(m,), terms={0: selection(self.number[x.raw[entries]])}, const=exact(np.zeros(m)))
        place = np.arange(x.size)
        place[entries] = x.size + np.arange(m)
        extended = concatenated([replace(x, raw=None, shape=(x.size,)), numeric])
        return replace(extended.take(place.reshape(1, *x.shape)), whole=x.whole)

    def block(self, column: int, categories: tuple[Category, ...]) -> int:
        """Return the first neuron of the one-hot block of a raw column."""
        if self.number[column] >= 0:
            raise self._two_ways(column)
        if column not in self.blocks:
            self.blocks[column] = self.count, categories
            self.count += len(categories)
        first, earlier = self.blocks[column]
        if earlier != categories:
            raise ModelError(self.path, f"two encoders know different categories of it: {list(earlier)} and {list(categories)}; "
                                        "give both the same categories", node=self.feed(column).name, op="input")
        return first

    def _two_ways(self, column: int) -> ModelError:
        return ModelError(self.path, "is used both as a number and as a category; pass it to the model as two columns",
                          node=self.feed(column).name, op="input")

    def layout(self) -> tuple[tuple[Feed, ...], Integers]:
        """Return the feeds with their network columns, in the graph's order, and for each neuron of source 0 its network column.

        Numbers that the model does not use have a column as well; words that it does not use have none.
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
