"""ONNX operators that only rearrange columns: each acts on the array of entry numbers just as it would on the data.

The batch axis is axis 0 throughout: an operator that would move it, cut it or mix rows is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from encoders.onnx.tensor import OnnxNode, Result, Tensor, concatenated

BATCH = -0x5EED
"""The mark of an open batch size in constants computed from a tensor's shape; only Reshape accepts it."""

UNBOUNDED = 2**31 - 1
"""Exporters write an open end of a slice as the largest int32 or int64."""


def _same(node: OnnxNode) -> Tensor:
    return node.tensor(0)


def _dropout(node: OnnxNode) -> Tensor:
    if node.has(2) and bool(np.any(node.constant(2))):
        raise node.error("training_mode is on; export the model for inference (model.eval())")
    return node.tensor(0)


def _flatten(node: OnnxNode) -> Tensor:
    x = node.tensor(0)
    axis = node.axis(int(node.number("axis", 1)), len(x.shape) + 2) if x.shape else 1
    if math.prod(x.shape[: axis - 1]) != 1 or axis == 0:
        raise node.error(f"axis {axis} merges rows of the batch with columns; supported is axis 1")
    return x.take(x.index.reshape(1, -1))


def _reshape(node: OnnxNode) -> Tensor:
    x, target = node.tensor(0), node.integers(1)
    if not node.number("allowzero", 0):
        old = [BATCH, *x.shape]
        target = [old[i] if d == 0 and i < len(old) else d for i, d in enumerate(target)]
    rest = target[1:]
    size, fixed = math.prod(x.shape), math.prod(d for d in rest if d != -1)
    if not target or target[0] not in (BATCH, -1, node.batch) or BATCH in rest or rest.count(-1) > 1:
        raise node.error(f"reshapes to {node.integers(1)}, which does not keep axis 0 as the batch")
    if -1 in rest and fixed and size % fixed == 0:
        rest[rest.index(-1)] = size // fixed
    if math.prod(rest) != size or -1 in rest:
        raise node.error(f"reshapes {size} columns to {node.integers(1)}, which does not keep axis 0 as the batch")
    return x.take(x.index.reshape(1, *rest))


def _axes(node: OnnxNode, rank: int) -> list[int] | None:
    axes = node.integers(1) if node.has(1) else node.numbers("axes")
    return None if axes is None else [node.axis(int(a), rank) for a in axes]


def _squeeze(node: OnnxNode) -> Tensor:
    x = node.tensor(0)
    axes = _axes(node, len(x.shape) + 1) or [i + 1 for i, d in enumerate(x.shape) if d == 1]
    if 0 in axes or any(x.shape[a - 1] != 1 for a in axes):
        raise node.error(f"squeezes axes {axes} of shape (batch, {', '.join(map(str, x.shape))}); "
                         "supported are axes of length 1 other than the batch")
    return x.take(np.squeeze(x.index, axis=tuple(axes)))


def _unsqueeze(node: OnnxNode) -> Tensor:
    x = node.tensor(0)
    count = len(node.integers(1) if node.has(1) else node.numbers("axes") or ())
    axes = _axes(node, len(x.shape) + 1 + count) or []
    if 0 in axes:
        raise node.error("puts a new axis before the batch; axis 0 must stay the batch")
    return x.take(np.expand_dims(x.index, tuple(axes)))


def _transpose(node: OnnxNode) -> Tensor:
    x = node.tensor(0)
    rank = len(x.shape) + 1
    order = [int(p) for p in node.numbers("perm") or range(rank - 1, -1, -1)]
    if sorted(order) != list(range(rank)) or order[0] != 0:
        raise node.error(f"perm {order} does not keep axis 0 as the batch")
    return x.take(np.transpose(x.index, order))


def _concat(node: OnnxNode) -> Tensor:
    parts = [node.tensor(i) for i in range(len(node.inputs))]
    axis = node.axis(int(node.number("axis", 1)), len(parts[0].shape) + 1)
    if axis == 0:
        raise node.error("concatenates along the batch axis; supported are the other axes")
    start = np.cumsum([0, *(math.prod(p.shape) for p in parts)])
    try:
        index = np.concatenate([p.index + s for p, s in zip(parts, start, strict=False)], axis=axis)
    except ValueError as error:
        raise node.error(f"shapes {[p.shape for p in parts]} cannot be concatenated along axis {axis}") from error
    return concatenated(parts).take(index)


def _slice(node: OnnxNode) -> Tensor:
    x = node.tensor(0)
    rank = len(x.shape) + 1
    if node.opset < 10:
        starts, ends = ([int(v) for v in node.numbers(name) or ()] for name in ("starts", "ends"))
        steps, axes = [1] * len(starts), [int(v) for v in node.numbers("axes") or range(len(starts))]
    else:
        starts, ends = node.integers(1), node.integers(2)
        axes = node.integers(3) if node.has(3) else list(range(len(starts)))
        steps = node.integers(4) if node.has(4) else [1] * len(starts)
    window = [slice(None)] * rank
    for axis, start, end, step in zip((node.axis(a, rank) for a in axes), starts, ends, steps, strict=True):
        if axis == 0 and (start != 0 or step != 1 or (end < UNBOUNDED and end != node.batch)):
            raise node.error(f"cuts rows of the batch ({start}:{end}:{step}); supported are slices of the other axes")
        if step < 0 and end >= UNBOUNDED:
            raise node.error(f"cuts axis {axis} backwards ({start}:{end}:{step}) to an end that runtimes read in different "
                             f"ways; export it with the end {-UNBOUNDED}, which means through entry 0")
        if axis != 0:       # an end before the first entry means "through entry 0" for a negative step
            window[axis] = slice(start, None if step < 0 and end < -x.shape[axis - 1] else end, step)
    return x.take(x.index[tuple(window)])


def _split(node: OnnxNode) -> Result:
    x = node.tensor(0)
    axis = node.axis(int(node.number("axis", 0)), len(x.shape) + 1)
    if axis == 0:
        raise node.error("splits the batch (axis 0); supported are the other axes")
    length, count = x.shape[axis - 1], len(node.output_names)
    piece = -(-length // count)
    listed = node.integers(1) if node.has(1) else node.numbers("split")
    sizes = [int(v) for v in listed] if listed else [min(piece, length - piece * i) for i in range(count)]
    if sum(sizes) != length or len(sizes) != count or min(sizes) < 0:
        raise node.error(f"splits an axis of length {length} into {sizes}")
    return [x.take(part) for part in np.split(x.index, np.cumsum(sizes)[:-1], axis=axis)]


SHAPE_OPERATORS: dict[str, Callable[[OnnxNode], Result]] = {
    "Concat": _concat, "Dropout": _dropout, "Flatten": _flatten, "Identity": _same,
    "Reshape": _reshape, "Slice": _slice, "Split": _split, "Squeeze": _squeeze, "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
