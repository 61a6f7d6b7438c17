"""ONNX in, a model out: the graph as affine expressions, those as a chain of layers or as trees, checked against onnxruntime."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto
from scipy.special import expit

from encoders.arrays import Array, Floats
from encoders.curves.layer import Curve
from encoders.errors import ModelError
from encoders.model import Feed, Link, Model
from encoders.network import Network, activate, affine
from encoders.onnx.chain import ChainLink, Neurons, assemble
from encoders.onnx.ensemble import ColumnScores, check_trees, expanded, tree_ensemble
from encoders.onnx.feed import make_legal
from encoders.onnx.file import MEMORY, LogitsModel, StoredModel, class_names, load, logits_model
from encoders.onnx.graph import Reading, read_graph
from encoders.onnx.runtime import compare, comparison_points, open_session
from encoders.onnx.shown import check_labels, check_link, check_shown, doubt
from encoders.onnx.tensor import Tensor
from encoders.trees.ensemble import TreeEnsemble

SHOWN = 1e-5
"""The largest float32 error of a mean of functions of scores."""
AT_ONCE = 2**26
"""The most numbers of one tensor, over all points that are compared at once."""


def read_onnx(path: str | Path | bytes | ModelProto, *, output: str | None = None, check_points: int = 64, seed: int = 0,
              box: tuple[Array, Array] | None = None, name: str = MEMORY) -> Network:
    """Read a feed-forward network from an ONNX file: as `read_model`, but ModelError for a tree ensemble."""
    model = read_model(path, output=output, check_points=check_points, seed=seed, box=box, name=name)
    if not isinstance(model, Network):
        raise ModelError(model.source or "model", f"is {model.kind}; expected a network here (in Python, verifair.read takes both)")
    return model


def read_model(path: str | Path | bytes | ModelProto, *, output: str | None = None, check_points: int = 64, seed: int = 0,
               box: tuple[Array, Array] | None = None, name: str = MEMORY) -> Model:
    """Read a model from an ONNX file: a network, piecewise linear or with smooth layers (see `SmoothLayer`), or a tree
    ensemble (`encoders.trees.TreeEnsemble`), whose scores and label are compared at rows next to all of its thresholds as well.

    path: the file, or a model in memory: its bytes, or an `onnx.ModelProto`.   name: of such a model, in messages.
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
    stored = load(path, name)
    cut = logits_model(stored, output)
    logits = cut if cut.mean is None else cut.mean[0]
    reading, final = read_graph(stored.path, logits)
    check_link(stored.path, logits, final)
    feeds, place = reading.inputs.layout()
    random = np.random.default_rng(seed)
    if any(source.trees is not None for source in reading.sources):
        final, squares = expanded(final, reading.sources) if cut.mean is not None else (final, None)
        ensemble = tree_ensemble(stored, logits, reading, final, feeds, place, lines=cut.mean is not None)
        ensemble = replace(ensemble, source=str(stored.path), stored=stored.data, output=output)
        lines = ColumnScores.of(stored, final, squares, place)
        points = comparison_points(stored.path, ensemble.inputs, check_points, random, box)
        for feed in feeds:
            make_legal(feed, points, random)
        rows = check_trees(stored, logits, ensemble, points, random, lines)
        if cut.mean is not None:
            return _mean(stored, cut, ensemble, lines, rows)
        check_shown(stored, logits, feeds, points)
        return replace(ensemble, doubt=doubt(ensemble))
    reading.sources[0] = replace(reading.sources[0], slope=np.ones(len(place)))
    neurons = Neurons.of(reading, final, place)
    chain = assemble(neurons, final)
    rounded = dict.fromkeys([*reading.rounded, *(name for link in chain for name in link.rounded)])
    rounding = [link.rounding for link in chain if link.rounding is not None] if _only_float32(reading) else []
    network = Network(layers=tuple(link.layer for link in chain), link=logits.link, source_sha256=stored.sha256,
                      source=str(stored.path), stored=stored.data, output=output, rounded=tuple(rounded), feeds=feeds,
                      classes=class_names(stored.model, max(len(chain[-1].layer.bias), 2)),
                      rounding=tuple(rounding) if len(rounding) == len(chain) else None)
    x = comparison_points(stored.path, network.inputs, check_points, random, box)
    for feed in feeds:
        make_legal(feed, x, random)
    for points in _in_parts(x, reading):
        check_layers(stored.path, logits, neurons, chain, feeds, points)
        check_shown(stored, logits, feeds, points)
        check_labels(stored, logits, feeds, points)
    return replace(network, doubt=doubt(network))


def _mean(stored: StoredModel, cut: LogitsModel, trees: TreeEnsemble, lines: ColumnScores | None, x: Floats) -> Model:
    """Return the sum of functions of trees' scores that a graph computes, after comparing outputs and decisions at x (B, n)."""
    from encoders.trees.mean import MeanOfTrees

    assert cut.mean is not None
    logits, ramps = cut.mean
    if len(ramps.chances) > trees.outputs:
        raise ModelError(stored.path, f"takes a score of trees that give {trees.outputs}", node=logits.logits, op="Gather")
    ramps = replace(ramps, chances=np.append(ramps.chances, np.zeros(trees.outputs - len(ramps.chances), dtype=bool)))
    (scores,) = open_session(stored.path, logits.model, [logits.logits], trees.feeds).run(x, [logits.logits])
    (shown,) = open_session(stored.path, stored.model, [cut.shown], trees.feeds).run(x, [cut.shown])
    low, sums, high = (ramps.of(scores, error) for error in (-CURVE, 0.0, CURVE))
    size = float(ramps.weight.sum()) + abs(ramps.constant)
    if cut.link is Link.SIGMOID:
        low, sums, high = expit([low, sums, high])
    allowed = SHOWN * (1 + size) + high - low
    compare(stored.path, x, np.column_stack([1 - sums, sums]), shown, np.column_stack([allowed, allowed]), [cut.shown] * 2)
    check_labels(stored, cut, trees.feeds, x)
    return MeanOfTrees(
        link=cut.link, source_sha256=trees.source_sha256, source=trees.source, stored=trees.stored, output=trees.output,
        rounded=trees.rounded if lines is None else tuple(dict.fromkeys([*trees.rounded, *lines.rounded])), feeds=trees.feeds,
        classes=class_names(stored.model, 2), trees=trees, ramps=ramps, lines=None if lines is None else lines.weight,
        squares=None if lines is None else lines.square,
    )


def _only_float32(reading: Reading) -> bool:
    """Return True if the graph computes in float32 throughout, and all its constants are stored, not computed."""
    numbers = [value.dtype for value in reading.constants.values() if value.dtype.kind not in "iubOUS"]
    others = (TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    stored = [a for node in reading.model.graph.node for a in node.attribute]
    casts = any((a.name in ("to", "dtype") and a.i in others) or (a.HasField("t") and a.t.data_type in others) for a in stored)
    return not (casts or reading.rounded or any(kind != np.dtype(np.float32) for kind in numbers)
                or any(feed.kind == "float64" for feed in reading.inputs.feeds))


def _in_parts(x: Floats, reading: Reading) -> Iterator[Floats]:
    """Yield so few points at a time that no tensor of the graph has more than AT_ONCE numbers in the runtime."""
    widest = max(math.prod(tensor.shape) for tensor in reading.tensors.values())
    step = max(1, min(len(x), AT_ONCE // max(1, widest)))
    return (x[start : start + step] for start in range(0, len(x), step))


_UNIT = 2.0**-24      # unit roundoff of float32
_TINY = 1e-35         # what denormals flushed to zero may add
CURVE = 2e-6
"""The largest error allowed to a runtime's float32 sigmoid or tanh: onnxruntime 1.2x evaluates rational approximations, and over
3 million numbers its tanh was off by at most 3.1e-7, its sigmoid by 1.7e-7."""
STEPS = 16
"""Further roundings, of numbers as large as the input, allowed to a runtime in other curves: some of these are several nodes."""


def check_layers(path: Path, logits: LogitsModel, neurons: Neurons, chain: Sequence[ChainLink], feeds: Sequence[Feed],
                  x: Floats) -> None:
    """Compare every layer with onnxruntime, from the runtime's own values below it.

    So the allowance is that of one layer, however deep the network is: K * 2^-24 * (sum of |contributions|), with K the
    number of roundings in one neuron (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1). Neurons that
    no tensor of the stored graph holds (of a maximum, say) are computed here; the allowance for the runtime's rounding of their
    inputs is passed on to the layers that read them, and the outputs of such nodes are compared as well.
    """
    reading = neurons.reading
    traced = [t for s in reading.sources for t in (s.before, s.after) if t is not None]
    names = list(dict.fromkeys([logits.logits, *traced, *reading.rewritten]))
    outputs = dict(zip(names, open_session(path, logits.model, names, feeds).run(x, names), strict=True))
    values = np.full((len(x), len(neurons.source)), np.nan)
    slack = np.zeros_like(values)
    values[:, : len(neurons.place)] = x
    for k, link in enumerate(chain, start=1):
        here, allowed = _layer_by_hand(link, values[:, link.inputs], slack[:, link.inputs])
        if not len(link.neurons):
            compare(path, x, here, outputs[logits.logits], allowed, [logits.logits] * here.shape[1])
            break
        top = activate(here, link.layer)
        current = np.flatnonzero(neurons.level[link.neurons] == k)
        for s in np.unique(neurons.source[link.neurons[current]]):
            columns, source = np.flatnonzero(neurons.source[link.neurons] == s), reading.sources[s]
            block = slice(int(neurons.first[s]), int(neurons.first[s]) + len(source.slope))
            curved = 0.0 if source.curve == Curve.BENT else CURVE
            if source.before is None or source.after is None:
                values[:, block], slack[:, block] = top[:, columns], allowed[:, columns]
                if source.curve == Curve.SQUARE:
                    slack[:, block] *= 2 * np.abs(here[:, columns]) + allowed[:, columns]
                    slack[:, block] += 2 * _UNIT * top[:, columns] + _TINY
                elif curved:  # slopes are at most 2
                    slack[:, block] += allowed[:, columns] + curved + STEPS * _UNIT * np.abs(top[:, columns])
                continue
            before, after = outputs[source.before], outputs[source.after]
            compare(path, x, here[:, columns], before, allowed[:, columns], [source.node] * len(columns))
            here[:, columns] = before
            expected = activate(here, link.layer)[:, columns]
            steps = STEPS if source.curve > Curve.TANH else 2
            compare(path, x, expected, after, steps * _UNIT * np.abs(before) + _TINY + curved, [source.node] * len(columns))
            values[:, block] = after
        carried = np.flatnonzero(neurons.level[link.neurons] < k)
        nodes = [reading.sources[s].node for s in neurons.source[link.neurons[carried]]]
        compare(path, x, top[:, carried], values[:, link.neurons[carried]], allowed[:, carried], nodes)
    for name, tensor in reading.rewritten.items():
        _check_rewritten(name, tensor, outputs[name], neurons, x, values, slack)


def _layer_by_hand(link: ChainLink, below: Array, slack: Array) -> tuple[Array, Array]:
    """Return pre-activations (B, m) of a layer, and the allowed error of onnxruntime's. slack: the allowed error of `below`."""
    magnitude = np.abs(link.layer.weight)
    sizes = np.abs(below) @ (magnitude if link.size is None else link.size).T + link.bias_size
    allowed = (link.operations + 4) * _UNIT * sizes + _TINY
    return affine(below, link.layer), allowed + slack @ magnitude.T if slack.any() else allowed


def _check_rewritten(name: str, tensor: Tensor, actual: Array, neurons: Neurons, x: Floats, values: Array, slack: Array) -> None:
    """Compare the output of a node that was rewritten into several activations, if its neurons are part of the network."""
    weight, size = neurons.matrices(tensor)
    bias, _ = tensor.const.rounded()
    evaluated = np.flatnonzero(~(np.isnan(values[:1]) @ (abs(size).T != 0))[0])
    below = np.nan_to_num(values)
    here = below @ weight.T + bias
    sizes = np.abs(below) @ size.T + tensor.const.size
    allowed = (tensor.operations + 4) * _UNIT * sizes + slack @ abs(weight).T + _TINY
    if here.shape == actual.shape:       # else `compare` raises
        here, actual, allowed = (part[:, evaluated] for part in (here, actual, allowed))
    compare(neurons.reading.path, x, here, actual, allowed, [name] * here.shape[1])
