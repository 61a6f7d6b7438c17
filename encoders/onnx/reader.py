"""ONNX in, a model out: the graph as affine expressions, those as a chain of layers or as trees, checked against onnxruntime."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto
from scipy.special import expit

from encoders.curves.layer import Curve, SmoothLayer
from encoders.errors import ModelError
from encoders.network import Array, Booleans, Feed, Floats, Link, Model, Network, activate, affine, layered
from encoders.onnx.chain import ChainLink, Neurons, assemble
from encoders.onnx.ensemble import adds_up, check_trees, tree_ensemble
from encoders.onnx.feed import make_legal
from encoders.onnx.file import MEMORY, LogitsModel, StoredModel, class_names, load, logits_model
from encoders.onnx.graph import Reading, read_graph
from encoders.onnx.runtime import decisions, open_session
from encoders.onnx.tensor import Tensor

AT_ONCE = 2**26
"""Numbers of one tensor, over all points that are compared at a time."""
MEAN = "Concat(1 - p, p), p = MatMul(Concat(the sigmoids), weights of sum 1)"
"""How a mean of probabilities is written so that it is read."""
NO_SUM = 1e-5
"""A sum that is this near to 0 (of weights: relative to their sizes) is 0, but for float32."""


def read_onnx(path: str | Path | bytes | ModelProto, *, output: str | None = None, check_points: int = 64, seed: int = 0,
              box: tuple[Array, Array] | None = None, name: str = MEMORY) -> Network:
    """Read a feed-forward network from an ONNX file: as `read_model`, but ModelError for a tree ensemble."""
    return layered(read_model(path, output=output, check_points=check_points, seed=seed, box=box, name=name), "this question")


def read_model(path: str | Path | bytes | ModelProto, *, output: str | None = None, check_points: int = 64, seed: int = 0,
               box: tuple[Array, Array] | None = None, name: str = MEMORY) -> Model:
    """Read a model from an ONNX file: a network, piecewise linear or with smooth layers (see `SmoothLayer`), or a tree
    ensemble (`encoders.trees.TreeEnsemble`), whose scores and label are compared at rows next to all of its thresholds as well.

    path: the file, or a model in memory: its bytes, or an `onnx.ModelProto`.   name: what messages call such a model.
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
    logits = logits_model(stored, output)
    reading, final = read_graph(stored.path, logits)
    _check_link(stored.path, logits, final)
    _check_sum(stored.path, logits, final)
    feeds, place = reading.inputs.layout()
    random = np.random.default_rng(seed)
    if any(source.trees is not None for source in reading.sources):
        ensemble = replace(tree_ensemble(stored, logits, reading, final, feeds, place), source=str(stored.path), stored=stored.data,
                           output=output)
        points = comparison_points(stored.path, ensemble.inputs, check_points, random, box)
        for feed in feeds:
            make_legal(feed, points, random)
        check_trees(stored, logits, ensemble, points, random)
        _check_shown(stored, logits, feeds, points)
        return ensemble
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
    _check_end(stored.path, reading, network)
    for points in _in_parts(x, reading):
        check_layers(stored.path, logits, neurons, chain, feeds, points)
        _check_shown(stored, logits, feeds, points)
        _check_labels(stored, logits, feeds, points)
    return network


def _only_float32(reading: Reading) -> bool:
    """Return whether the graph computes in float32 throughout, with constants that are stored and not computed."""
    numbers = [value.dtype for value in reading.constants.values() if value.dtype.kind not in "iubOUS"]
    others = (TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    stored = [a for node in reading.model.graph.node for a in node.attribute]
    casts = any((a.name in ("to", "dtype") and a.i in others) or (a.HasField("t") and a.t.data_type in others) for a in stored)
    return not (casts or reading.rounded or any(kind != np.dtype(np.float32) for kind in numbers)
                or any(feed.kind == "float64" for feed in reading.inputs.feeds))


def _check_link(path: Path, logits: LogitsModel, final: Tensor) -> None:
    if logits.link is Link.SIGMOID and final.size > 1:
        raise ModelError(path, f"shows a sigmoid of each of {final.size} scores: probabilities of classes that do not exclude each "
                               "other, and such do not decide for one of them; end the model with Softmax, or with one score",
                         node=logits.shown, op="Sigmoid")
    if logits.link_axis is None:
        return
    rank = len(final.shape) + 1
    axis = logits.link_axis % rank if -rank <= logits.link_axis < rank else rank
    if axis == 0 or axis >= rank or final.shape[axis - 1] != len(final.const.values) or len(final.const.values) < 2:
        shape = ", ".join(map(str, final.shape))
        raise ModelError(path, f"normalises axis {logits.link_axis} of shape (batch, {shape}); "
                               "supported is the axis of at least two classes", node=logits.link_node, op="Softmax")


def _check_sum(path: Path, logits: LogitsModel, final: Tensor) -> None:
    """Refuse outputs that add up to 1 at every input, as probabilities do."""
    if logits.link is not Link.IDENTITY or final.size < 2:
        return
    total, size = float(final.const.rounded()[0].sum()), 0.0
    for term in final.terms.values():
        weights = term.entries.rounded()[0]
        sums, sizes = np.bincount(term.column, weights), np.bincount(term.column, abs(weights))
        if (abs(sums) > NO_SUM * sizes).any():
            return
        size += float(sizes.sum())
    if size > 0 and adds_up(total):
        raise ModelError(path, f"the outputs add up to {total:.6g} at every input: probabilities it seems, and decisions are about "
                               f"logits; end the model with Sigmoid or Softmax, or, of a mean p of sigmoids, with {MEAN}",
                         node=logits.shown)


def _check_end(path: Path, reading: Reading, network: Network) -> None:
    """Refuse outputs that are a sigmoid each, moved, scaled or cut, and ones between 0 and a number, such as means of sigmoids:
    probabilities, which are > 0 whatever is decided."""
    if network.link is not Link.IDENTITY or network.piecewise_linear:   # a link says what the probability is
        return
    sigmoids = [source.node for source in reading.sources if source.curve == Curve.SIGMOID]
    lower, upper = _reached(network)
    if np.isfinite(upper).all() and (lower >= -0.01 * upper).all() and (lower < upper).any():
        found = f"the output lies between {lower[0]:.4g} and {upper[0]:.4g} at every input: a probability it seems"
        remedy = f"decisions are about logits; end the model with the sigmoid, or, of a mean p of sigmoids, with {MEAN}"
        raise ModelError(path, f"{found}, and {remedy}", node=sigmoids[-1] if sigmoids else None, op="Sigmoid")
    reach: Booleans | None = None   # (outputs, neurons of the layer)
    for above, layer in zip(reversed(network.layers), reversed(network.layers[:-1]), strict=False):
        reads = above.weight != 0
        reach = reads if reach is None else reach @ reads
        if isinstance(layer, SmoothLayer):
            if (reach.sum(axis=1) == 1).all() and layer.sigmoid[reach.argmax(axis=1)].all():
                raise ModelError(path, "every output is one sigmoid, moved, scaled or cut: a probability it seems, and decisions "
                                       "are about logits; supported at the end is a plain Sigmoid: read the tensor in front of it "
                                       "with output=...", node=sigmoids[-1], op="Sigmoid")
            return


def _reached(network: Network) -> tuple[Array, Array]:
    """Bounds (m,) of the outputs over all inputs, in float64: infinite but for what sigmoids and tanh keep small."""
    lower, upper = np.full(network.inputs, -np.inf), np.full(network.inputs, np.inf)
    for layer in network.layers:
        lower, upper = _least(layer.weight, lower, upper) + layer.bias, layer.bias - _least(-layer.weight, lower, upper)
        if isinstance(layer, SmoothLayer):
            other, tanh = layer.shaped, layer.smooth & ~layer.shaped & ~layer.sigmoid
            lower, upper = (
                np.select([layer.sigmoid, tanh, other], [expit(end), np.tanh(end), 1 + 2 * np.abs(end) if end is upper else -1.0],
                          _bent(end, layer.bend))
                for end in (lower, upper)
            )
        else:
            lower, upper = _bent(lower, layer.slope), _bent(upper, layer.slope)
    return lower, upper


def _least(weight: Array, lower: Array, upper: Array) -> Array:
    """The least values (m,) of weight x, weight (m, n), for x within [lower, upper]."""
    parts = (np.maximum(weight, 0), lower), (np.minimum(weight, 0), upper)
    open_ = sum((part != 0) @ ~np.isfinite(end) for part, end in parts)
    return np.where(open_, -np.inf, sum(part @ np.where(np.isfinite(end), end, 0.0) for part, end in parts))


def _bent(end: Array, slope: Array) -> Array:
    return np.where(end > 0, end, slope * np.where(slope > 0, end, 0.0))


def comparison_points(path: Path, n: int, count: int, random: np.random.Generator, box: tuple[Array, Array] | None) -> Floats:
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


def _in_parts(x: Floats, reading: Reading) -> Iterator[Floats]:
    """So few points at a time that no tensor of the graph takes more than AT_ONCE numbers of the runtime's memory."""
    widest = max(math.prod(tensor.shape) for tensor in reading.tensors.values())
    step = max(1, min(len(x), AT_ONCE // max(1, widest)))
    return (x[start : start + step] for start in range(0, len(x), step))


def _check_shown(stored: StoredModel, logits: LogitsModel, feeds: Sequence[Feed], x: Floats) -> None:
    """Compare the outputs that the stored model shows with link(logits), both by onnxruntime."""
    if logits.link is Link.IDENTITY:
        return
    (values,) = open_session(stored.path, logits.model, [logits.logits], feeds).run(x, [logits.logits])
    (shown,) = open_session(stored.path, stored.model, [logits.shown], feeds).run(x, [logits.shown])
    expected = apply_link(values, logits.link)
    if shown.shape[1] == 2 and expected.shape[1] == 1:
        shown = shown[:, 1:]
    size = np.abs(values).max(axis=1, keepdims=True) if logits.link is Link.LOG_SOFTMAX else np.zeros((len(x), 1))
    rounded = 1e-4 if logits.link is Link.SHARES else 1e-5     # of exp about 1e-7, of sums of votes more
    allowed = np.broadcast_to(rounded * (1 + size), expected.shape)
    compare(stored.path, x, expected, shown, allowed, [logits.shown] * expected.shape[1])


def _check_labels(stored: StoredModel, logits: LogitsModel, feeds: Sequence[Feed], x: Floats) -> None:
    """Refuse a network whose file shows classes, one whole number a row, that other decisions give than those of its logits."""
    whole = [one.name for one in stored.model.graph.output if one.type.tensor_type.elem_type == TensorProto.INT64]
    if not whole:
        return
    (values,) = open_session(stored.path, logits.model, [logits.logits], feeds).run(x, [logits.logits])
    ordered = np.sort(np.concatenate([values, np.zeros_like(values)], axis=1) if values.shape[1] == 1 else values, axis=1)
    sure = ordered[:, -1] - ordered[:, -2] > 1e-4 * (1 + np.abs(values).max(axis=1))
    decided = decisions(values)[sure]
    for name, shown in zip(whole, open_session(stored.path, stored.model, whole, feeds).run(x, whole), strict=True):
        labels = shown[sure].reshape(len(decided), -1)
        if labels.shape[1] != 1 or len(np.unique(labels)) > max(values.shape[1], 2):
            continue  # of no classes
        pairs = np.unique(np.column_stack([decided, labels[:, 0]]), axis=0)
        if any(len(np.unique(pairs[:, k])) < len(pairs) for k in (0, 1)):
            found = "shows classes that are decided otherwise than by its logits, as by a threshold of its own"
            remedy = 'leave them out, and write positive = "logit >= T" with its log-odds T'
            raise ModelError(stored.path, f"{found}; {remedy}", node=name)


def apply_link(logits: Array, link: Link) -> Array:
    """What the model's user sees for logits (B, m), in float64."""
    match link:
        case Link.IDENTITY:
            return logits
        case Link.SHARES:
            return logits + 0.5 if logits.shape[1] == 1 else logits
        case Link.SIGMOID:
            return np.asarray(expit(logits))
        case Link.SOFTMAX | Link.LOG_SOFTMAX:
            from scipy.special import log_softmax

            logs = np.asarray(log_softmax(logits, axis=1))
            return logs if link is Link.LOG_SOFTMAX else np.exp(logs)


_UNIT = 2.0**-24      # unit roundoff of float32
_TINY = 1e-35         # what denormals flushed to zero may add
MOST_SHOWN = 1000     # numbers of a point in a message
CURVE = 2e-6
"""The largest error allowed to a runtime's float32 sigmoid or tanh: onnxruntime 1.2x evaluates rational approximations, and over
3 million numbers its tanh was off by at most 3.1e-7, its sigmoid by 1.7e-7."""
STEPS = 16
"""Roundings of numbers as large as the input that a runtime may do beside, in other curves: some are several nodes."""


def check_layers(path: Path, logits: LogitsModel, neurons: Neurons, chain: Sequence[ChainLink], feeds: Sequence[Feed],
                  x: Floats) -> None:
    """Compare every layer with onnxruntime, from the runtime's own values below it.

    So the allowance stays that of one layer however deep the network: K * 2^-24 * (sum of |contributions|), with K the
    number of roundings in one neuron (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1). Neurons that
    no tensor of the stored graph holds (of a maximum, say) are computed here, and the allowance that the runtime's rounding of
    what goes into them calls for goes on to the layers that read them; what such nodes give in the end is compared as well.
    """
    reading = neurons.reading
    named = [t for s in reading.sources for t in (s.before, s.after) if t is not None]
    names = list(dict.fromkeys([logits.logits, *named, *reading.rewritten]))
    found = dict(zip(names, open_session(path, logits.model, names, feeds).run(x, names), strict=True))
    values = np.full((len(x), len(neurons.source)), np.nan)
    slack = np.zeros_like(values)
    values[:, : len(neurons.place)] = x
    for k, link in enumerate(chain, start=1):
        here, allowed = _layer_by_hand(link, values[:, link.inputs], slack[:, link.inputs])
        if not len(link.neurons):
            compare(path, x, here, found[logits.logits], allowed, [logits.logits] * here.shape[1])
            break
        top = activate(here, link.layer)
        own = np.flatnonzero(neurons.level[link.neurons] == k)
        for s in np.unique(neurons.source[link.neurons[own]]):
            at, source = np.flatnonzero(neurons.source[link.neurons] == s), reading.sources[s]
            all_of_it = slice(int(neurons.first[s]), int(neurons.first[s]) + len(source.slope))
            curved = 0.0 if source.curve == Curve.BENT else CURVE
            if source.before is None or source.after is None:
                values[:, all_of_it], slack[:, all_of_it] = top[:, at], allowed[:, at]
                if curved:  # slopes are at most 2
                    slack[:, all_of_it] += allowed[:, at] + curved + STEPS * _UNIT * np.abs(top[:, at])
                continue
            entering, leaving = found[source.before], found[source.after]
            compare(path, x, here[:, at], entering, allowed[:, at], [source.node] * len(at))
            here[:, at] = entering
            expected = activate(here, link.layer)[:, at]
            steps = STEPS if source.curve > Curve.TANH else 2
            compare(path, x, expected, leaving, steps * _UNIT * np.abs(entering) + _TINY + curved, [source.node] * len(at))
            values[:, all_of_it] = leaving
        carried = np.flatnonzero(neurons.level[link.neurons] < k)
        nodes = [reading.sources[s].node for s in neurons.source[link.neurons[carried]]]
        compare(path, x, top[:, carried], values[:, link.neurons[carried]], allowed[:, carried], nodes)
    for name, tensor in reading.rewritten.items():
        _check_rewritten(name, tensor, found[name], neurons, x, values, slack)


def _layer_by_hand(link: ChainLink, below: Array, slack: Array) -> tuple[Array, Array]:
    """Pre-activations (B, m) of a layer, and how far onnxruntime's may lie from them. slack: how far `below` may."""
    magnitude = np.abs(link.layer.weight)
    sizes = np.abs(below) @ (magnitude if link.size is None else link.size).T + link.bias_size
    allowed = (link.operations + 4) * _UNIT * sizes + _TINY
    return affine(below, link.layer), allowed + slack @ magnitude.T if slack.any() else allowed


def _check_rewritten(name: str, tensor: Tensor, found: Array, neurons: Neurons, x: Floats, values: Array, slack: Array) -> None:
    """Compare what a node gives that was rewritten into several activations, where its neurons are part of the network."""
    weight, size = neurons.matrices(tensor)
    bias, _ = tensor.const.rounded()
    known = np.flatnonzero(~(np.isnan(values[:1]) @ (abs(size).T != 0))[0])
    below = np.nan_to_num(values)
    here = below @ weight.T + bias
    sizes = np.abs(below) @ size.T + tensor.const.size
    allowed = (tensor.operations + 4) * _UNIT * sizes + slack @ abs(weight).T + _TINY
    if here.shape == found.shape:       # else `compare` raises
        here, found, allowed = (part[:, known] for part in (here, found, allowed))
    compare(neurons.reading.path, x, here, found, allowed, [name] * here.shape[1])


def compare(path: Path, x: Floats, here: Array, there: Array, allowed: Array, nodes: Sequence[str]) -> None:
    if here.shape != there.shape:
        raise ModelError(path, f"the import gives {here.shape[1]} numbers, onnxruntime {there.shape[1]}; please report this model",
                         node=nodes[0] if nodes else None, op="import check" if nodes else None)
    wrong = ~(np.abs(here - there) <= allowed)          # also true for NaN
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        point = f"{x[row, :MOST_SHOWN].tolist()}{' ...' if x.shape[1] > MOST_SHOWN else ''}"
        raise ModelError(path, f"the import does not reproduce onnxruntime at x = {point}: "
                               f"{here[row, column]:.9g} here, {there[row, column]:.9g} in onnxruntime "
                               f"(allowed {allowed[row, column]:.2g}); please report this model",
                         node=nodes[column], op="import check")
