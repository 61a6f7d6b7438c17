"""ONNX in, `Network` out: the graph as affine expressions, those as a chain of layers, checked against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from encoders.errors import ModelError
from encoders.exact import zeros
from encoders.network import Array, Layer, Link, Network, activate, affine
from encoders.onnx_file import LogitsModel, StoredModel, load, logits_model
from encoders.onnx_graph import Reading, read_graph
from encoders.onnx_ops import source_tensor
from encoders.onnx_tensor import Tensor
from encoders.runtime import open_session

_UNIT = 2.0**-24      # unit roundoff of float32
_TINY = 1e-35         # what denormals flushed to zero may add


def read_onnx(path: str | Path, *, output: str | None = None, check_points: int = 64, seed: int = 0,
              box: tuple[Array, Array] | None = None) -> Network:
    """Read a feed-forward, piecewise-linear network from an ONNX file.

    output: the tensor that holds the logits or probabilities, where the model has several candidates.
    check_points: number of random points at which every layer is compared with onnxruntime (at least 1), drawn with
    `seed`: uniformly from `box` = (lower, upper), two arrays (n,), or else from a mix of normal and uniform
    distributions.

    The weights are the stored numbers; constants that have to be folded into one weight are folded exactly and rounded
    once (`Network.rounded` names the nodes where that lost anything). Tensors that combine several depths (residual
    connections) carry the earlier values along as identity neurons. Of a binary classifier that shows (1 - p, p), the
    one logit is that of p.

    Raises ModelFileError for a file that is not there, ModelError (naming node and operator) for one that cannot be
    read, and for one whose import does not reproduce onnxruntime within the rounding of float32.
    """
    if check_points < 1:
        raise ValueError(f"check_points = {check_points}, expected at least 1: an unchecked import proves nothing")
    stored = load(path)
    logits = logits_model(stored, output)
    reading, final = read_graph(stored.path, logits)
    _check_link(stored.path, logits, final)
    chain = _assemble(reading, final)
    rounded = dict.fromkeys([*reading.rounded, *(name for link in chain for name in link.rounded)])
    network = Network(layers=tuple(link.layer for link in chain), link=logits.link, source_sha256=stored.sha256,
                      source=str(path), output=output, rounded=tuple(rounded))
    x = _points(stored.path, network.inputs, check_points, np.random.default_rng(seed), box)
    _check_layers(stored.path, logits, reading, chain, x)
    _check_shown(stored, logits, x)
    return network


@dataclass(frozen=True, kw_only=True, eq=False)
class _ChainLink:
    """A layer and where its neurons come from.

    inputs, neurons: source numbers whose values are concatenated into the layer's input and output.
    weight_size, bias_size: sums of absolute contributions (see `Exact.size`).
    operations: float32 roundings in a neuron.
    """

    layer: Layer
    inputs: tuple[int, ...]
    neurons: tuple[int, ...]
    weight_size: Array
    bias_size: Array
    operations: int
    rounded: tuple[str, ...]


def _assemble(reading: Reading, final: Tensor) -> list[_ChainLink]:
    """Layer k holds the neurons of level k, and those of earlier levels that some later layer still reads."""
    sources = reading.sources
    depth = 1 + max((sources[s].level for s in final.terms), default=0)
    last_read = dict.fromkeys(range(len(sources)), 0)
    for level, tensor in [*((s.level, s.pre) for s in sources if s.pre is not None), (depth, final)]:
        for s in tensor.terms:
            last_read[s] = max(last_read[s], level)
    alive = [tuple(s for s in last_read if sources[s].level <= k < last_read[s]) for k in range(depth)]
    alive[0] = (0,)                         # the input stays the first layer's input even when nothing reads it
    chain = []
    for k in range(1, depth + 1):
        neurons = alive[k] if k < depth else ()
        tensors = [_carried(reading, s, k) for s in neurons] if k < depth else [final]
        slopes = [sources[s].slope if sources[s].level == k else np.ones(len(sources[s].slope)) for s in neurons]
        slope = np.concatenate(slopes) if neurons else np.ones(len(final.const.values))
        chain.append(_chain_link(reading, tensors, slope, alive[k - 1], neurons))
    return chain


def _carried(reading: Reading, number: int, level: int) -> Tensor:
    """What goes into the neurons of a source at a level: its own pre-activation, or its values carried along."""
    source = reading.sources[number]
    if source.level == level and source.pre is not None:
        return source.pre
    return source_tensor(number, (len(source.slope),))


def _chain_link(reading: Reading, tensors: Sequence[Tensor], slope: Array, inputs: tuple[int, ...],
                neurons: tuple[int, ...]) -> _ChainLink:
    weights, sizes = [], []
    rounded: list[str] = []
    for tensor in tensors:
        m = len(tensor.const.values)
        terms = [tensor.terms.get(s) or zeros(m, len(reading.sources[s].slope)) for s in inputs]
        parts = [(*part.rounded(), part.size) for part in (*terms, tensor.const.reshape(m, 1))]
        weights.append(np.hstack([values for values, _, _ in parts]))
        sizes.append(np.hstack([size for _, _, size in parts]))
        if not all(same for _, same, _ in parts):
            rounded += tensor.inexact
    weight, size = np.vstack(weights), np.vstack(sizes)
    if not np.isfinite(weight).all():
        raise ModelError(reading.path, f"folding its constants leaves the range of float64 (nodes {rounded})")
    layer = Layer(weight=np.ascontiguousarray(weight[:, :-1]), bias=weight[:, -1].copy(), slope=slope)
    return _ChainLink(layer=layer, inputs=inputs, neurons=neurons, weight_size=size[:, :-1], bias_size=size[:, -1],
                      operations=max(tensor.operations for tensor in tensors), rounded=tuple(rounded))


def _check_link(path: Path, logits: LogitsModel, final: Tensor) -> None:
    if logits.link_axis is None:
        return
    rank = len(final.shape) + 1
    axis = logits.link_axis % rank if -rank <= logits.link_axis < rank else rank
    if axis == 0 or axis >= rank or final.shape[axis - 1] != len(final.const.values) or len(final.const.values) < 2:
        shape = ", ".join(map(str, final.shape))
        raise ModelError(path, f"normalises axis {logits.link_axis} of shape (batch, {shape}); "
                               "supported is the axis of at least two classes", node=logits.link_node, op="Softmax")


def _points(path: Path, n: int, count: int, random: np.random.Generator,
            box: tuple[Array, Array] | None) -> npt.NDArray[np.float32]:
    """Points (count, n) for the comparison, as float32."""
    if box is not None:
        lower, upper = (np.asarray(side, dtype=np.float64) for side in box)
        if lower.shape != (n,) or upper.shape != (n,):
            raise ModelError(path, f"takes {n} input columns, but the domain has {lower.size}: "
                                   "the schema's features, in order, must give exactly the network's columns")
        return random.uniform(lower, upper, size=(count, n)).astype(np.float32)
    normal = random.normal(size=(count, n))
    uniform = random.uniform(-1, 1, size=(count, n)) * 10.0 ** random.integers(-1, 4, size=(count, 1))
    return np.where(np.arange(count)[:, None] % 2 == 0, normal, uniform).astype(np.float32)


def _check_layers(path: Path, logits: LogitsModel, reading: Reading, chain: Sequence[_ChainLink],
                  x: npt.NDArray[np.float32]) -> None:
    """Compare every layer with onnxruntime, from the runtime's own values below it.

    So the allowance stays that of one layer however deep the network: K * 2^-24 * (sum of |contributions|), with K the
    number of roundings in one neuron (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1).
    """
    names = list(dict.fromkeys([logits.logits, *(t for s in reading.sources for t in (s.before, s.after))]))
    found = dict(zip(names, open_session(path, logits.model, names).run(x, names), strict=True))
    after = [found[source.after] for source in reading.sources]
    for k, link in enumerate(chain, start=1):
        below = np.hstack([after[s] for s in link.inputs])
        size = np.abs(below) @ link.weight_size.T + link.bias_size
        allowed = (link.operations + 4) * _UNIT * size + _TINY
        here = affine(below, link.layer)
        own = [reading.sources[s] if reading.sources[s].level == k else None for s in link.neurons]
        there = [found[o.before] if o else after[s] for s, o in zip(link.neurons, own, strict=True)]
        there = there or [found[logits.logits]]
        _compare(path, x, here, np.hstack(there), allowed, _names(link, reading, logits))
        if link.neurons:
            entering = np.hstack(there)
            here, top = activate(entering, link.layer), np.hstack([after[s] for s in link.neurons])
            _compare(path, x, here, top, 2 * _UNIT * np.abs(entering) + _TINY, _names(link, reading, logits))


def _names(link: _ChainLink, reading: Reading, logits: LogitsModel) -> list[str]:
    """The node behind every neuron of a layer."""
    if not link.neurons:
        return [logits.logits] * len(link.layer.bias)
    return [reading.sources[s].node for s in link.neurons for _ in reading.sources[s].slope]


def _compare(path: Path, x: npt.NDArray[np.float32], here: Array, there: Array, allowed: Array,
             nodes: Sequence[str]) -> None:
    wrong = ~(np.abs(here - there) <= allowed)          # also true for NaN
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        raise ModelError(path, f"the import does not reproduce onnxruntime at x = {x[row].tolist()}: "
                               f"{here[row, column]:.9g} here, {there[row, column]:.9g} in onnxruntime "
                               f"(allowed {allowed[row, column]:.2g}); please report this model",
                         node=nodes[column], op="import check")


def _check_shown(stored: StoredModel, logits: LogitsModel, x: npt.NDArray[np.float32]) -> None:
    """Compare the outputs that the stored model shows with link(logits), both by onnxruntime."""
    if logits.link is Link.IDENTITY:
        return
    (values,) = open_session(stored.path, logits.model, [logits.logits]).run(x, [logits.logits])
    (shown,) = open_session(stored.path, stored.model, [logits.shown]).run(x, [logits.shown])
    expected = apply_link(values, logits.link)
    if shown.shape[1] == 2 and expected.shape[1] == 1:
        shown = shown[:, 1:]
    size = np.abs(values).max(axis=1, keepdims=True) if logits.link is Link.LOG_SOFTMAX else np.zeros((len(x), 1))
    allowed = np.broadcast_to(1e-5 * (1 + size), expected.shape)       # runtimes approximate exp to about 1e-7
    _compare(stored.path, x, expected, shown, allowed, [logits.shown] * expected.shape[1])


def apply_link(logits: Array, link: Link) -> Array:
    """What the model's user sees for logits (B, m), in float64."""
    match link:
        case Link.IDENTITY:
            return logits
        case Link.SIGMOID:
            from scipy.special import expit

            return np.asarray(expit(logits))
        case Link.SOFTMAX | Link.LOG_SOFTMAX:
            from scipy.special import log_softmax

            logs = np.asarray(log_softmax(logits, axis=1))
            return logs if link is Link.LOG_SOFTMAX else np.exp(logs)
