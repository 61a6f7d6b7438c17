"""Affine maps that several operators share: NumPy's broadcasting beside the batch, and a matrix along the last axis."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from encoders.exact.affine import Exact, exact, matrix
from encoders.network import Array
from encoders.onnx.tensor import NeuronSource, OnnxNode, Tensor, source_tensor


def broadcast(node: OnnxNode, x: Tensor, values: Array) -> tuple[Tensor, Exact]:
    """A tensor and a constant brought to one shape by NumPy's rules, with the batch axis left alone."""
    try:
        shape = np.broadcast_shapes((1, *x.shape), values.shape)
    except ValueError as error:
        raise node.error(f"a constant of shape {values.shape} does not fit a tensor of shape (batch, "
                         f"{', '.join(map(str, x.shape))})") from error
    if len(shape) != len(x.shape) + 1 or shape[0] != 1:
        raise node.error(f"a constant of shape {values.shape} would change the batch axis of a tensor of shape (batch, "
                         f"{', '.join(map(str, x.shape))})")
    wide = x if shape[1:] == x.shape else x.take(np.broadcast_to(x.index, shape))
    return wide, exact(np.broadcast_to(values, shape).ravel())


def together(node: OnnxNode, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Two tensors brought to one shape by NumPy's rules."""
    if len(x.shape) != len(y.shape):
        raise node.error(f"combines tensors with columns {x.shape} and {y.shape}; supported is one number of axes")
    try:
        shape = np.broadcast_shapes((1, *x.shape), (1, *y.shape))
    except ValueError as error:
        raise node.error(f"shapes {x.shape} and {y.shape} do not fit") from error
    return x.take(np.broadcast_to(x.index, shape)), y.take(np.broadcast_to(y.index, shape))


def plus(node: OnnxNode, x: Tensor, y: Tensor) -> Tensor:
    """The sum. What comes from fewer layers travels beside the other to its depth (a residual connection)."""
    wide_x, wide_y = together(node, x, y)
    if level(node, wide_x) != level(node, wide_y):
        shallow, deep = sorted((wide_x, wide_y), key=lambda tensor: level(node, tensor))
        return carried(node, shallow).plus(deep)
    return wide_x.plus(wide_y)


def level(node: OnnxNode, x: Tensor) -> int:
    """The last layer whose neurons a tensor reads, 0 for the inputs."""
    return max((node.sources[s].level for s in x.terms), default=0)


def neurons(node: OnnxNode, pre: Tensor, slope: float) -> Tensor:
    """The outputs of new neurons with a pre-activation that no tensor of the stored graph holds."""
    if not pre.is_float:
        pre = replace(pre, inexact=tuple(dict.fromkeys((*pre.inexact, node.name))))
    node.sources.append(NeuronSource(node=node.name, before=None, after=None, level=1 + level(node, pre), pre=pre,
                               slope=np.full(pre.size, slope)))
    return source_tensor(len(node.sources) - 1, pre.shape)


def carried(node: OnnxNode, x: Tensor) -> Tensor:
    """The tensor, for use in a later layer: as identity neurons of its own where those are fewer than the neurons it reads."""
    return x if x.reads <= x.size else neurons(node, x, 1.0)


def last_axis(node: OnnxNode, x: Tensor, weight: Exact) -> Tensor:
    """x (..., n) @ weight^T with weight (p, n): an affine map along the last axis."""
    p, n = weight.values.shape
    if not x.shape or x.shape[-1] != n:
        raise node.error(f"a weight for {n} columns meets a tensor of shape (batch, {', '.join(map(str, x.shape))})")
    i, j = np.nonzero(weight.nonzero)
    block = np.arange(x.size // n)[:, None]
    entries = Exact(values=np.tile(weight.values[i, j], len(block)), size=np.tile(weight.size[i, j], len(block)))
    maps = matrix((block * p + i).ravel(), (block * n + j).ravel(), entries, rows=len(block) * p)
    return x.map(maps, (*x.shape[:-1], p))
