"""From affine expressions to a chain of layers: the neurons that each layer computes, and those that it carries to later layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse

from encoders.arrays import Array, Booleans, Integers
from encoders.curves.layer import Curve, Kinds, SmoothLayer
from encoders.errors import ModelError
from encoders.network import Layer, Rounding
from encoders.onnx.graph import Reading
from encoders.onnx.tensor import Tensor

LARGEST = 2**27
"""The most weights of all layers together as dense matrices (1 GiB)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ChainLink:
    """A layer and the origin of its neurons.

    inputs, neurons: positions among all neurons (see `Neurons`) of the layer's inputs and outputs; no outputs for the last layer.
    size: sums of absolute contributions to each weight (None: |weight|), and to the bias (see `Exact.size`).   operations: float32
    roundings in a neuron.   rounding: all of this for bounds of float32 arithmetic, None if some contribution belongs to no input
    of the layer.
    """

    layer: Layer
    inputs: Integers
    neurons: Integers
    size: Array | None
    bias_size: Array
    operations: int
    rounded: tuple[str, ...]
    rounding: Rounding | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Neurons:
    """All neurons of all sources, one after the other: first (sources,) is where each source begins, G of them in all.

    place: position of every column of source 0 among the network's inputs.
    level: (G,) the layer that computes a neuron.   last: (G,) the last layer that reads it, 0 for none.
    slope: (G,).   curve: (G,) kinds of smooth neurons.   source: (G,).   used: (sources,) True if a needed tensor refers to the
    source, even if only with a factor of 0.
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
        for number in range(len(sources) - 1, 0, -1):       # sources come after those that they read
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
        """Return columns of a term as positions among all neurons."""
        return self.place[columns] if source == 0 else self.first[source] + columns

    def alive(self, level: int) -> Integers:
        """Return the outputs of a layer: its own neurons, and those of earlier layers that a later one still reads."""
        if level == 0:
            return np.flatnonzero(self.level == 0)
        own, carried = self.used[self.source], (self.level < level) & (self.last > level)
        return np.flatnonzero(np.where(self.level == level, own, carried))

    def entries(self, tensor: Tensor) -> tuple[Integers, Integers, Array, Array, bool]:
        """Return rows, columns among all neurons, rounded weights and their sizes (e,) of a tensor, each entry once, and True if
        nothing was rounded."""
        parts = [(term.row, self.columns(s, term.column), *term.entries.rounded(), term.entries.size) for s, term in
                 tensor.terms.items()]
        row, column = (np.concatenate([np.empty(0, dtype=np.int64), *(part[k] for part in parts)]) for k in (0, 1))
        values, size = (np.concatenate([np.empty(0), *(part[k] for part in parts)]) for k in (2, 4))
        return row, column, values, size, all(part[3] for part in parts)

    def matrices(self, tensor: Tensor) -> tuple[scipy.sparse.csr_array, scipy.sparse.csr_array]:
        """Return the tensor's weights (m, G) on all neurons, rounded, and their sizes."""
        row, column, values, size, _ = self.entries(tensor)
        shape = (tensor.size, len(self.source))
        weight, sizes = (scipy.sparse.csr_array((v, (row, column)), shape=shape) for v in (values, size))
        return weight, sizes


def assemble(neurons: Neurons, final: Tensor) -> list[ChainLink]:
    """Return the layers: layer k holds the neurons of level k, and those of earlier levels that some later layer still reads."""
    depth = neurons.depth(final)
    alive = [neurons.alive(k) for k in range(depth)]
    _check_memory(neurons.reading, [*(len(a) for a in alive), final.size])
    empty = np.empty(0, dtype=np.int64)
    hidden = [_chain_link(neurons, k, alive[k - 1], alive[k], []) for k in range(1, depth)]
    return [*hidden, _chain_link(neurons, depth, alive[-1], empty, [final])]


def _check_memory(reading: Reading, widths: Sequence[int]) -> None:
    numbers = sum(m * n for n, m in pairwise(widths))
    if numbers > LARGEST:
        shown = " x ".join(map(str, widths))
        raise ModelError(reading.path, f"its layers have {shown} neurons: as dense matrices {8 * numbers / 2**30:.1f} GiB, at most "
                                       f"{8 * LARGEST / 2**30:.0f} are supported; use smaller feature maps, or larger strides")


def _chain_link(neurons: Neurons, k: int, inputs: Integers, outputs: Integers, tensors: list[Tensor]) -> ChainLink:
    """Return layer k: its outputs are its own neurons and carried ones, or the entries of the last layer's `tensors`."""
    own = neurons.level[outputs] == k
    carried, sources = outputs[~own], np.unique(neurons.source[outputs[own]])
    order = np.argsort(np.concatenate([carried, *(np.flatnonzero(neurons.source == s) for s in sources)]))
    slope, curve = np.where(own, neurons.slope[outputs], 1.0), np.where(own, neurons.curve[outputs], Curve.BENT).astype(np.int8)
    if tensors:
        count = sum(tensor.size for tensor in tensors)
        order, slope, curve = np.arange(count), np.ones(count), np.zeros(count, dtype=np.int8)
    tensors = tensors or [pre for s in sources if (pre := neurons.reading.sources[s].pre) is not None]
    place = np.argsort(order)
    position = np.full(len(neurons.source), -1)
    position[inputs] = np.arange(len(inputs))
    weight, size = np.zeros((len(order), len(inputs))), np.zeros((len(order), len(inputs)))
    weight[place[: len(carried)], position[carried]] = size[place[: len(carried)], position[carried]] = 1.0
    biases, bias_sizes, offset = [np.zeros(len(carried))], [np.zeros(len(carried))], len(carried)
    rounded: list[str] = []
    incomplete = False
    for tensor in tensors:
        row, column, values, sizes, clean = neurons.entries(tensor)
        column = position[column]
        present = column >= 0
        incomplete = incomplete or bool(sizes[~present].any())
        weight[place[row[present] + offset], column[present]] = values[present]
        size[place[row[present] + offset], column[present]] = sizes[present]
        offset += tensor.size
        bias, bias_clean = tensor.const.rounded()
        biases.append(bias)
        bias_sizes.append(tensor.const.size)
        if not (clean and bias_clean):
            rounded += tensor.inexact
    bias, bias_size = np.concatenate(biases)[order], np.concatenate(bias_sizes)[order]
    if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        raise ModelError(neurons.reading.path, f"folding its constants leaves the range of float64 (nodes {rounded})")
    if curve.any():
        layer: Layer = SmoothLayer(weight=weight, bias=bias, bend=slope, curve=curve)
    else:
        layer = Layer(weight=weight, bias=bias, slope=slope)
    operations = max(tensor.operations for tensor in tensors)
    is_absolute, rounding = np.array_equal(size, np.abs(weight)), None
    if not incomplete and not curve.any():
        own_size = size
        if len(carried):        # carried neurons have no arithmetic
            own_size = size.copy()
            own_size[place[: len(carried)]] = 0.0
        same_size = is_absolute if own_size is size else np.array_equal(own_size, np.abs(weight))
        rounding = Rounding(size=None if same_size else own_size, bias_size=bias_size, operations=operations,
                            reach=max(1.0, *(tensor.reach for tensor in tensors)))
    return ChainLink(layer=layer, inputs=inputs, neurons=outputs, size=None if is_absolute else size, rounded=tuple(rounded),
                     bias_size=bias_size, operations=operations, rounding=rounding)
