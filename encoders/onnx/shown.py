"""The outputs that a model's user sees (probabilities, classes or numbers), and how these follow from the logits.

A file tells only by its last node what its numbers are (`Link`). Numbers without one may be logits, values or probabilities, and a
probability that is taken for a logit is always above 0: everybody seems to be favoured, and no decision flips. `doubt` detects such
numbers by their values at inputs of all sizes, however the graph computes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from onnx import TensorProto
from scipy.special import expit, log_softmax

from encoders.arrays import Array, Booleans, Floats
from encoders.curves.layer import SmoothLayer
from encoders.errors import ModelError
from encoders.model import Feed, Link, Model
from encoders.network import Network
from encoders.onnx.feed import make_legal
from encoders.onnx.file import LogitsModel, StoredModel
from encoders.onnx.runtime import compare, comparison_points, decisions, open_session
from encoders.onnx.tensor import Tensor
from encoders.trees.ensemble import TreeEnsemble

SIZES = (1.0, 1e9, 1e13)
"""Sizes of the inputs at which probabilities are detected: outputs that still grow between the last two are unbounded."""
TRIED = (16, 1024)
"""Inputs of each size; the second number if there is a doubt after the first."""
WHOLE = (1, 100)
"""The sums of probabilities and of percentages."""
UNIT = 1e-6
"""The largest float32 error of a probability of 1."""
NEARLY = 0.01
"""Share of the largest number within which a value counts as at a limit, to allow for rounding and smoothing."""


def check_link(path: Path, logits: LogitsModel, final: Tensor) -> None:
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


def check_shown(stored: StoredModel, logits: LogitsModel, feeds: Sequence[Feed], x: Floats) -> None:
    """Compare the outputs that the stored model shows with link(logits), both by onnxruntime."""
    if logits.link is Link.IDENTITY:
        return
    (values,) = open_session(stored.path, logits.model, [logits.logits], feeds).run(x, [logits.logits])
    (shown,) = open_session(stored.path, stored.model, [logits.shown], feeds).run(x, [logits.shown])
    expected = apply_link(values, logits.link)
    if shown.shape[1] == 2 and expected.shape[1] == 1:
        shown = shown[:, 1:]
    size = np.abs(values).max(axis=1, keepdims=True) if logits.link is Link.LOG_SOFTMAX else np.zeros((len(x), 1))
    rounded = 1e-4 if logits.link is Link.SHARES else 1e-5     # exp has errors of about 1e-7, sums of votes larger ones
    allowed = np.broadcast_to(rounded * (1 + size), expected.shape)
    compare(stored.path, x, expected, shown, allowed, [logits.shown] * expected.shape[1])


def check_labels(stored: StoredModel, logits: LogitsModel, feeds: Sequence[Feed], x: Floats) -> None:
    """Refuse a network whose file outputs classes, one whole number a row, that differ from the decisions of its logits."""
    integer_outputs = [o.name for o in stored.model.graph.output if o.type.tensor_type.elem_type == TensorProto.INT64]
    if not integer_outputs:
        return
    (values,) = open_session(stored.path, logits.model, [logits.logits], feeds).run(x, [logits.logits])
    ordered = np.sort(np.concatenate([values, np.zeros_like(values)], axis=1) if values.shape[1] == 1 else values, axis=1)
    clear = ordered[:, -1] - ordered[:, -2] > 1e-4 * (1 + np.abs(values).max(axis=1))
    decided = decisions(values)[clear]
    for name in integer_outputs:
        try:
            (shown,) = open_session(stored.path, stored.model, [name], feeds).run(x, [name])
        except ModelError:
            continue  # nothing for each row, or nothing at all
        labels = shown[clear]
        if labels.shape[1] != 1 or len(np.unique(labels)) > max(values.shape[1], 2):
            continue  # of no classes
        pairs = np.unique(np.column_stack([decided, labels[:, 0]]), axis=0)
        if any(len(np.unique(pairs[:, k])) < len(pairs) for k in (0, 1)):
            problem = "shows classes that are decided otherwise than by its logits, as by a threshold of its own"
            log_odds = "its probability less 1/2" if logits.link is Link.SHARES else "its log-odds"
            remedy = f'leave them out, and write positive = "logit >= T" with {log_odds} T'
            raise ModelError(stored.path, f"{problem}; {remedy}", node=name)


def apply_link(logits: Array, link: Link) -> Array:
    """Return the outputs that the model's user sees for logits (B, m), in float64."""
    match link:
        case Link.IDENTITY:
            return logits
        case Link.SHARES:
            return logits + 0.5 if logits.shape[1] == 1 else logits
        case Link.SIGMOID:
            return np.asarray(expit(logits))
        case Link.SOFTMAX | Link.LOG_SOFTMAX:
            logs = np.asarray(log_softmax(logits, axis=1))
            return logs if link is Link.LOG_SOFTMAX else np.exp(logs)


def doubt(model: Model) -> str:
    """Return why a model's outputs seem to be no logits, and the remedy; "" if there is no sign of it, or if a link says what they
    are.

    Doubted are outputs that always have the same sum, as probabilities do; bounded ones that never change their sign (for trees:
    that lie between 0 and 1, on both sides of 1/2); and outputs that are a shifted, scaled or clipped sigmoid each. Sums and bounds
    of trees are those of all inputs. A network is evaluated at inputs of all sizes: this finds every probability, but it also
    doubts a bounded logit that decides the same at all of them.
    """
    if model.link is not Link.IDENTITY:
        return ""
    reason = _of_trees(model.ensemble) if model.ensemble is not None else _of_network(model.layered("this"))
    if not reason:
        return ""
    if model.outputs > 1:
        return f"{reason}: probabilities it seems, and no logits; end it with Softmax"
    return f'{reason}: a probability or a value it seems, and no logit; write positive = "value > T", or end the model with Sigmoid'


def _of_trees(model: TreeEnsemble) -> str:
    low = np.column_stack([model.value, model.value.sum(axis=1)])
    high = low.copy()
    for nodes in model.upwards:
        left, right = model.left[nodes], model.right[nodes]
        low[nodes], high[nodes] = np.minimum(low[left], low[right]), np.maximum(high[left], high[right])
    base = np.append(model.base, model.base.sum())
    lowest, highest = low[model.root].sum(axis=0) + base, high[model.root].sum(axis=0) + base
    if model.outputs > 1:
        return _sum(lowest[-1], highest[-1], bool((lowest >= 0).all())) if (lowest < highest)[:-1].any() else ""
    in_unit = any(0 <= lowest[0] < total / 2 < highest[0] <= (1 + UNIT) * total for total in WHOLE)  # with 1/2 to decide by
    return _range(lowest[0], highest[0]) if in_unit else ""


def _of_network(model: Network) -> str:
    for count in TRIED:
        if not (reason := _of_numbers(*_outputs(model, count))):
            return "gives one sigmoid an output, moved, scaled or cut" if _one_sigmoid_each(model) else ""
    return reason


def _outputs(model: Network, count: int) -> tuple[Array, Array, Array]:
    """Return outputs (count, m) at inputs of each of the three sizes."""
    random = np.random.default_rng(0)
    points = comparison_points(Path(), model.inputs, count, random, None).astype(np.float64)
    outputs = []
    for size in SIZES:
        x = size * points
        for feed in model.feeds:
            make_legal(feed, x, random)
        with np.errstate(over="ignore", invalid="ignore"):
            outputs.append(model.forward(x))
    return outputs[0], outputs[1], outputs[2]


def _of_numbers(near: Array, far: Array, farther: Array) -> str:
    values = np.concatenate([near, far, farther])
    if not (values.min(axis=0) < values.max(axis=0)).any():
        return ""  # a constant
    if near.shape[1] > 1:
        total = near.sum(axis=1)
        if reason := _sum(float(total.min()), float(total.max()), positive=False):
            return reason
    largest = np.abs(values).max(axis=0)
    bounded = np.abs(farther).max(axis=0) <= (1 + NEARLY) * np.maximum(np.abs(far), np.abs(near)).max(axis=0)
    one_sign = (values >= -NEARLY * largest).all(axis=0) | (values <= NEARLY * largest).all(axis=0)
    return _range(float(values.min()), float(values.max())) if (bounded & one_sign).all() else ""


def _sum(low: float, high: float, positive: bool) -> str:
    """Return the doubt if sums are those of probabilities, of percentages, or, for numbers that are all positive, of votes."""
    middle = (low + high) / 2
    constant = high - low <= NEARLY * abs(middle)
    is_sum = any(abs(end - total) < NEARLY * total for total in WHOLE for end in (low, high))
    return f"gives outputs that add up to {middle:.6g} at every input" if constant and (is_sum or (positive and middle > 0)) else ""


def _range(low: float, high: float) -> str:
    return f"gives an output between {low:.4g} and {high:.4g} at every input"


def _one_sigmoid_each(model: Network) -> bool:
    """Return True if every output depends on one neuron of the last smooth layer, and that is a sigmoid."""
    reach: Booleans | None = None   # (outputs, neurons of the layer)
    for above, layer in zip(reversed(model.layers), reversed(model.layers[:-1]), strict=False):
        reads = above.weight != 0
        reach = reads if reach is None else reach @ reads
        if isinstance(layer, SmoothLayer):
            return bool((reach.sum(axis=1) == 1).all() and layer.sigmoid[reach.argmax(axis=1)].all())
    return False
