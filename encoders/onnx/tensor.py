"""A tensor of an ONNX graph as an affine expression of the inputs and of the outputs of earlier activations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from encoders.curves import Curve
from encoders.errors import ModelError
from encoders.exact.affine import Exact, ExactMatrix, as_column, as_vector, empty, exact, selection, stack, stacked
from encoders.network import Array, Integers

if TYPE_CHECKING:
    from encoders.onnx.inputs import ModelInputs

Constant = npt.NDArray[np.generic]
MOST = 2**18
"""Entries of a tensor: a damaged file may ask for any number of them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Tensor:
    """tensor = const + sum over sources of  terms[source] @ values of that source, for every row of the batch.

    shape: the axes after the batch axis; the m entries are flattened in that order.
    terms: source number -> (m, width of the source).   const: (m,).
    inexact: nodes at which the folded numbers left float64.   operations: float32 roundings on the longest way here.
    raw: (m,) the model's input column that an entry is, -1 for none; such an entry has no terms yet (`encoders.onnx.inputs`
    decides what they are when the first operator computes with it). None: no entry is.
    whole: the tensor holds integers: only what rearranges, encodes or casts it may come next.
    """

    shape: tuple[int, ...]
    terms: Mapping[int, ExactMatrix]
    const: Exact
    inexact: tuple[str, ...] = ()
    operations: int = 0
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
        """Entries picked by an index array (1, *new shape). Raises MemoryError for more of them than a network can have."""
        if index.size > MOST:
            raise MemoryError(f"a tensor of {index.size} entries, and at most {MOST} are supported")
        rows = index.ravel()
        picked = self.replaced({s: t.take(rows) for s, t in self.terms.items()}, self.const.take(rows), shape=index.shape[1:])
        return replace(picked, raw=None if self.raw is None else self.raw[rows], whole=self.whole)

    def flat(self) -> Tensor:
        """The same entries on one axis."""
        return self.take(self.index.reshape(1, -1))

    def scale(self, factor: Exact, operations: int = 1) -> Tensor:
        """Entry by entry times factor (m,)."""
        return self.replaced({s: t.scaled(factor) for s, t in self.terms.items()}, self.const * factor, operations=operations)

    def shift(self, offset: Exact) -> Tensor:
        """Entry by entry plus offset (m,)."""
        return self.replaced(self.terms, self.const + offset, operations=1)

    def map(self, matrix: ExactMatrix, shape: tuple[int, ...] | None = None) -> Tensor:
        """matrix (p, m) @ self: a tensor of p entries, in one axis unless `shape` says otherwise."""
        terms = {s: matrix @ t for s, t in self.terms.items()}
        const = as_vector(matrix @ as_column(self.const))
        return self.replaced(terms, const, shape=(matrix.rows,) if shape is None else shape, operations=matrix.widest + 1)

    def plus(self, other: Tensor) -> Tensor:
        """Sum of two tensors of the same shape."""
        terms = {s: self.terms[s] + other.terms[s] if s in self.terms and s in other.terms
                 else self.terms.get(s) or other.terms[s] for s in [*self.terms, *(set(other.terms) - set(self.terms))]}
        return Tensor(shape=self.shape, terms=terms, const=self.const + other.const,
                      inexact=tuple(dict.fromkeys(self.inexact + other.inexact)),
                      operations=max(self.operations, other.operations) + 1)

    def __neg__(self) -> Tensor:
        return self.replaced({s: -t for s, t in self.terms.items()}, -self.const)

    def replaced(self, terms: Mapping[int, ExactMatrix], const: Exact, *, shape: tuple[int, ...] | None = None,
                 operations: int = 0) -> Tensor:
        return Tensor(shape=self.shape if shape is None else shape, terms=terms, const=const, inexact=self.inexact,
                      operations=self.operations + operations)


def concatenated(parts: Sequence[Tensor]) -> Tensor:
    """All entries of all parts as one tensor of shape (m_1 + m_2 + ...,)."""
    sizes = [part.size for part in parts]
    terms = {s: stacked([part.terms.get(s) or empty(m) for part, m in zip(parts, sizes, strict=True)])
             for s in dict.fromkeys(s for part in parts for s in part.terms)}
    raw = None if all(part.raw is None for part in parts) else np.concatenate(
        [np.full(m, -1) if part.raw is None else part.raw for part, m in zip(parts, sizes, strict=True)])
    return Tensor(shape=(sum(sizes),), terms=terms, const=stack([part.const for part in parts]),
                  inexact=tuple(dict.fromkeys(name for part in parts for name in part.inexact)),
                  operations=max(part.operations for part in parts), raw=raw, whole=any(part.whole for part in parts))


def source_tensor(number: int, shape: tuple[int, ...]) -> Tensor:
    """The values of a source themselves."""
    m = math.prod(shape)
    return Tensor(shape=shape, terms={number: selection(np.arange(m))}, const=exact(np.zeros(m)))


Result = Tensor | Sequence[Tensor | None]
"""What an operator gives: its output, or its outputs in order, None for one that cannot be followed."""


@dataclass(frozen=True, kw_only=True, eq=False)
class NeuronSource:
    """Values that affine expressions are about: the network's inputs, or the outputs of one activation node.

    before, after: names of the ONNX tensors that go into and come out of the activation; None where an operator is rewritten
    into activations (a maximum, say), whose values no tensor of the stored graph holds.
    level: 0 for the inputs, else one more than the highest level that goes in: the layer that computes these neurons.
    slope: (m,) of the neurons.   curve: what they do instead of bending, where they are smooth (slope is 1 then).
    """

    node: str
    before: str | None
    after: str | None
    level: int
    pre: Tensor | None
    slope: Array
    curve: Curve = Curve.BENT


@dataclass(frozen=True, kw_only=True, eq=False)
class OnnxNode:
    """One node with its inputs resolved: a Tensor, a constant array, or None for an input left out.

    batch: the model's batch size where it is fixed.   sources: all sources so far; an activation appends its own.
    columns: what is known of the model's inputs; an encoder asks it for the block of its column.
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
        return [int(v) for v in np.atleast_1d(self.constant(i)).ravel().tolist()]

    def number(self, name: str, default: float) -> float:
        value = self.attributes.get(name, default)
        assert isinstance(value, int | float)
        return value

    def numbers(self, name: str) -> list[float] | None:
        value = self.attributes.get(name)
        return None if value is None else [float(v) for v in value]  # type: ignore[attr-defined]

    def axis(self, value: int, rank: int) -> int:
        """An axis as a number from 0 (the batch) to rank - 1."""
        if not -rank <= value < rank:
            raise self.error(f"axis {value} does not exist in a tensor of {rank} axes")
        return value % rank


def finite(path: Path, name: str, value: Constant) -> Array:
    """Stored numbers as float64, refused when they are not plain finite float32 or float64 numbers."""
    if value.dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ModelError(path, f"its numbers are of type {value.dtype}; supported are float32 and float64 "
                               "(export the model before quantising it or converting it to half precision)", node=name)
    bad = ~np.isfinite(value)        # before they are converted: that warns of some NaNs
    if bad.any():
        where = np.argwhere(bad)[0].tolist()
        raise ModelError(path, f"{int(bad.sum())} of its {value.size} stored numbers are NaN or infinite, the first at "
                               f"index {where}; train again, such a network has no defined outputs", node=name)
    return value.astype(np.float64)
