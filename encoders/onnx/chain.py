"""From affine expressions to a chain of layers: what each layer computes, and what it carries along for later ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse

from encoders.curves.layer import Curve, Kinds, SmoothLayer
from encoders.errors import ModelError
from encoders.network import Array, Booleans, Integers, Layer, Rounding
from encoders.onnx.graph import Reading
from encoders.onnx.tensor import Tensor

LARGEST = 2**27
"""Weights that all layers together may have as dense matrices (1 GiB)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ChainLink:
    """A layer and where its neurons come from.

    inputs, neurons: which of all neurons (see `Neurons`) the layer's inputs and outputs are; no outputs for the last layer.
    magnitude: absolute weights.   size: sums of absolute contributions to each weight, and to the bias (see `Exact.size`).
    operations: float32 roundings in a neuron.   rounding: all of this as bounds of float32 arithmetic take it, None where some
    contribution belongs to no input of the layer.
    """

    layer: Layer
    inputs: Integers
    neurons: Integers
    magnitude: scipy.sparse.csr_array
    size: scipy.sparse.csr_array
    bias_size: Array
    operations: int
    rounded: tuple[str, ...]
    rounding: Rounding | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Neurons:
    """All neurons of all sources, one after the other: first (sources,) is where each source begins, G of them in all.

    place: position of every column of source 0 among the network's inputs.
    level: (G,) the layer that computes a neuron.   last: (G,) the last layer that reads it, 0 for none.
    slope: (G,).   curve: (G,) kinds of smooth neurons.   source: (G,).   used: (sources,) whether a tensor that matters speaks of
    a source, if only to multiply it by 0.
    """

    reading: Reading
    place: Integers
    first: Integers
    source: Integers
    level: Integers
    slope: Array
    curve: Kinds
    last: Integers
    used: Booleans

    @staticmethod
    def of(reading: Reading, final: Tensor, place: Integers) -> Neurons:
        sources = reading.sources
        width = np.array([len(source.slope) for source in sources])
        of_source = np.repeat(np.arange(len(sources)), width)
        neurons = Neurons(reading=reading, place=place, first=np.cumsum(width) - width, source=of_source,
                           level=np.array([source.level for source in sources])[of_source],
                           slope=np.concatenate([source.slope for source in sources]),
                           curve=np.array([source.curve for source in sources], dtype=np.int8)[of_source],
                           last=np.zeros(len(of_source), dtype=np.int64), used=np.zeros(len(sources), dtype=bool))
        neurons.read(final, neurons.depth(final))
        for number in range(len(sources) - 1, 0, -1):       # what a source reads comes before it
            pre = sources[number].pre
            if pre is not None and neurons.used[number]:
                neurons.read(pre, sources[number].level)
        return neurons

    def depth(self, final: Tensor) -> int:
        return 1 + max((self.reading.sources[s].level for s in final.terms), default=0)

    def read(self, tensor: Tensor, level: int) -> None:
        for s, term in tensor.terms.items():
            self.used[s] = True
            columns = self.columns(s, term.columns)
            self.last[columns] = np.maximum(self.last[columns], level)

    def columns(self, source: int, columns: Integers) -> Integers:
        """Columns of a term as numbers among all neurons."""
        return self.place[columns] if source == 0 else self.first[source] + columns

    def alive(self, level: int) -> Integers:
        """What a layer gives: its own neurons, and those of earlier layers that a later one still reads."""
        if level == 0:
            return np.flatnonzero(self.level == 0)
        own, carried = self.used[self.source], (self.level < level) & (self.last > level)
        return np.flatnonzero(np.where(self.level == level, own, carried))

    def matrices(self, tensor: Tensor) -> tuple[scipy.sparse.csr_array, scipy.sparse.csr_array, bool]:
        """The tensor's weights (m, G) on all neurons, rounded, their sizes, and whether nothing was rounded."""
        parts = [(term.row, self.columns(s, term.column), term.entries) for s, term in tensor.terms.items()]
        row, column = (np.concatenate([np.empty(0, dtype=np.int64), *(part[k] for part in parts)]) for k in (0, 1))
        rounded = [part[2].rounded() for part in parts]
        values, size = (np.concatenate([np.empty(0), *more]) for more in ([v for v, _ in rounded], [p[2].size for p in parts]))
        shape = (tensor.size, len(self.source))
        weight, sizes = (scipy.sparse.csr_array((v, (row, column)), shape=shape) for v in (values, size))
        return weight, sizes, all(same for _, same in rounded)


def assemble(neurons: Neurons, final: Tensor) -> list[ChainLink]:
    """Layer k holds the neurons of level k, and those of earlier levels that some later layer still reads."""
    depth = neurons.depth(final)
    alive = [neurons.alive(k) for k in range(depth)]
    _check_memory(neurons.reading, [*(len(a) for a in alive), final.size])
    nothing = np.empty(0, dtype=np.int64)
    hidden = [_chain_link(neurons, k, alive[k - 1], alive[k], []) for k in range(1, depth)]
    return [*hidden, _chain_link(neurons, depth, alive[-1], nothing, [final])]


def _check_memory(reading: Reading, widths: Sequence[int]) -> None:
    numbers = sum(m * n for n, m in pairwise(widths))
    if numbers > LARGEST:
        shown = " x ".join(map(str, widths))
        raise ModelError(reading.path, f"its layers have {shown} neurons: as dense matrices {8 * numbers / 2**30:.1f} GiB, at most "
                                       f"{8 * LARGEST / 2**30:.0f} are supported; use smaller feature maps, or larger strides")


def _chain_link(neurons: Neurons, k: int, inputs: Integers, outputs: Integers, tensors: list[Tensor]) -> ChainLink:
    """Layer k: its outputs are neurons carried along and own ones, or the entries of the last layer's `tensors`."""
    own = neurons.level[outputs] == k
    carried, sources = outputs[~own], np.unique(neurons.source[outputs[own]])
    order = np.argsort(np.concatenate([carried, *(np.flatnonzero(neurons.source == s) for s in sources)]))
    slope, curve = np.where(own, neurons.slope[outputs], 1.0), np.where(own, neurons.curve[outputs], Curve.BENT).astype(np.int8)
    if tensors:
        size = sum(tensor.size for tensor in tensors)
        order, slope, curve = np.arange(size), np.ones(size), np.zeros(size, dtype=np.int8)
    tensors = tensors or [pre for s in sources if (pre := neurons.reading.sources[s].pre) is not None]
    total = len(neurons.source)
    same = scipy.sparse.csr_array((np.ones(len(carried)), (np.arange(len(carried)), carried)), shape=(len(carried), total))
    weights, sizes, biases, bias_sizes = [same], [same], [np.zeros(len(carried))], [np.zeros(len(carried))]
    rounded: list[str] = []
    for tensor in tensors:
        weight, size, clean = neurons.matrices(tensor)
        bias, bias_clean = tensor.const.rounded()
        for parts, part in ((weights, weight), (sizes, size), (biases, bias), (bias_sizes, tensor.const.size)):
            parts.append(part)
        if not (clean and bias_clean):
            rounded += tensor.inexact
    weight, every_size = (scipy.sparse.csr_array(scipy.sparse.vstack(parts))[order] for parts in (weights, sizes))
    weight, size = weight[:, inputs], every_size[:, inputs]
    bias, bias_size = np.concatenate(biases)[order], np.concatenate(bias_sizes)[order]
    if not (np.isfinite(weight.data).all() and np.isfinite(bias).all()):
        raise ModelError(neurons.reading.path, f"folding its constants leaves the range of float64 (nodes {rounded})")
    if curve.any():
        layer: Layer = SmoothLayer(weight=weight.toarray(), bias=bias, bend=slope, curve=curve)
    else:
        layer = Layer(weight=weight.toarray(), bias=bias, slope=slope)
    operations = max(tensor.operations for tensor in tensors)
    rounding = None
    if not every_size[:, np.delete(np.arange(total), inputs)].sum() and not curve.any():
        kept = size.toarray()
        kept[np.flatnonzero(order < len(carried))] = 0.0        # what is carried along is not computed with
        same_size = np.array_equal(kept, np.abs(layer.weight))
        rounding = Rounding(size=None if same_size else kept, bias_size=bias_size, operations=operations,
                            reach=max(1.0, *(tensor.reach for tensor in tensors)))
    return ChainLink(layer=layer, inputs=inputs, neurons=outputs, magnitude=abs(weight), size=size, rounded=tuple(rounded),
                     bias_size=bias_size, operations=operations, rounding=rounding)
