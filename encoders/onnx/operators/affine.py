"""Affine operators (sums, matrices, quotients by constants, batch normalisation), and the affine maps that other operators share.

Operators and attributes follow the ONNX specification (github.com/onnx/onnx/blob/main/docs/Operators.md). The batch
axis is axis 0 throughout: an operator that would move it, cut it or mix rows is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from encoders.arrays import Array
from encoders.curves.layer import Curve
from encoders.exact.affine import Exact, exact, ordered, reciprocal, reciprocal_root
from encoders.onnx.tensor import NeuronSource, OnnxNode, Result, Tensor, source_tensor


def broadcast(node: OnnxNode, x: Tensor, values: Array) -> tuple[Tensor, Exact]:
    """Return a tensor and a constant broadcast to one shape by NumPy's rules; the batch axis stays."""
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
    """Return two tensors broadcast to one shape by NumPy's rules."""
    if len(x.shape) != len(y.shape):
        raise node.error(f"combines tensors with columns {x.shape} and {y.shape}; supported is one number of axes")
    try:
        shape = np.broadcast_shapes((1, *x.shape), (1, *y.shape))
    except ValueError as error:
        raise node.error(f"shapes {x.shape} and {y.shape} do not fit") from error
    return x.take(np.broadcast_to(x.index, shape)), y.take(np.broadcast_to(y.index, shape))


def plus(node: OnnxNode, x: Tensor, y: Tensor) -> Tensor:
    """Return the sum. The summand from fewer layers is carried to the depth of the other (a residual connection)."""
    wide_x, wide_y = together(node, x, y)
    if level(node, wide_x) != level(node, wide_y):
        shallow, deep = sorted((wide_x, wide_y), key=lambda tensor: level(node, tensor))
        return carried(node, shallow).plus(deep)
    return wide_x.plus(wide_y)


def level(node: OnnxNode, x: Tensor) -> int:
    """Return the last layer whose neurons a tensor reads, 0 for the inputs."""
    return max((node.sources[s].level for s in x.terms), default=0)


def neurons(node: OnnxNode, pre: Tensor, slope: float, curve: Curve = Curve.BENT) -> Tensor:
    """Return the outputs of new neurons with a pre-activation that no tensor of the stored graph holds."""
    if not pre.is_float:
        pre = replace(pre, inexact=tuple(dict.fromkeys((*pre.inexact, node.name))))
    node.sources.append(NeuronSource(node=node.name, before=None, after=None, level=1 + level(node, pre), pre=pre,
                               slope=np.full(pre.size, slope), curve=curve))
    return source_tensor(len(node.sources) - 1, pre.shape)


def carried(node: OnnxNode, x: Tensor) -> Tensor:
    """Return the tensor for use in a later layer: as own identity neurons if these are fewer than the neurons that it reads."""
    return x if x.reads <= x.size else neurons(node, x, 1.0)


def last_axis(node: OnnxNode, x: Tensor, weight: Exact) -> Tensor:
    """x (..., n) @ weight^T with weight (p, n): an affine map along the last axis."""
    p, n = weight.values.shape
    if not x.shape or x.shape[-1] != n:
        raise node.error(f"a weight for {n} columns meets a tensor of shape (batch, {', '.join(map(str, x.shape))})")
    i, j = np.nonzero(weight.nonzero)
    block = np.arange(x.size // n)[:, None]
    entries = Exact(values=np.tile(weight.values[i, j], len(block)), size=np.tile(weight.size[i, j], len(block)))
    maps = ordered((block * p + i).ravel(), (block * n + j).ravel(), entries, rows=len(block) * p)
    return x.map(maps, (*x.shape[:-1], p))


def _add(node: OnnxNode) -> Tensor:
    a, b = node.inputs[0], node.inputs[1]
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return plus(node, a, b)
    tensor, constant = (0, 1) if isinstance(a, Tensor) else (1, 0)
    x, offset = broadcast(node, node.tensor(tensor), node.weight(constant))
    return x.shift(offset)


def _sub(node: OnnxNode) -> Tensor:
    a, b = node.inputs[0], node.inputs[1]
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return plus(node, a, -b)
    if isinstance(a, Tensor):
        x, offset = broadcast(node, a, node.weight(1))
        return x.shift(-offset)
    x, offset = broadcast(node, node.tensor(1), node.weight(0))
    return (-x).shift(offset)


def _div(node: OnnxNode) -> Tensor:
    if node.has(1) and isinstance(node.inputs[1], Tensor):
        raise node.error("divides by the data, as normalisations of rows and softsign do; use BatchNormalization, and tanh")
    divisor = node.weight(1)
    if (divisor == 0).any():
        raise node.error("divides by a constant that is zero")
    x, _ = broadcast(node, node.tensor(0), divisor)
    factor = np.broadcast_to(reciprocal(divisor).values, (1, *x.shape)).ravel()
    return x.scale(exact(factor))


def _matmul(node: OnnxNode) -> Tensor:
    if all(isinstance(i, Tensor) for i in node.inputs):
        raise node.error("multiplies the data with itself, as attention does; use a network of layers one after the other")
    on_left = not isinstance(node.inputs[0], Tensor)
    weight = node.weight(0 if on_left else 1)
    while weight.ndim > 2 and weight.shape[0] == 1:
        weight = weight[0]
    x = node.tensor(1 if on_left else 0)
    if weight.ndim > 2 or (on_left and (weight.ndim < 2 or len(x.shape) < 2)):
        raise node.error(f"multiplies a tensor of shape (batch, {', '.join(map(str, x.shape))}) by a constant of shape "
                         f"{weight.shape} so that rows of the batch mix; supported is a matrix on the columns")
    if not on_left:
        product = last_axis(node, x, exact(weight.T if weight.ndim == 2 else weight[None]))
        return product if weight.ndim == 2 else product.take(product.index[..., 0])
    swapped = last_axis(node, x.take(np.swapaxes(x.index, -1, -2)), exact(weight))
    return swapped.take(np.swapaxes(swapped.index, -1, -2))


def _gemm(node: OnnxNode) -> Tensor:
    if not isinstance(node.inputs[0], Tensor) or node.number("transA", 0):
        raise node.error("the data must be the first operand, not transposed (transA = 0): axis 0 is the batch")
    weight = node.weight(1)
    if weight.ndim != 2:
        raise node.error(f"its weight has shape {weight.shape}; a matrix is expected")
    coefficients = exact(weight if node.number("transB", 0) else weight.T)
    alpha, beta = exact(np.float64(node.number("alpha", 1.0))), exact(np.float64(node.number("beta", 1.0)))
    y = last_axis(node, node.tensor(0), coefficients)
    y = y if alpha.values == 1 else y.scale(exact(np.full(y.size, alpha.values)))
    if not node.has(2) or not beta.values.any():
        return y
    c = node.inputs[2]
    if isinstance(c, Tensor):
        return plus(node, y, c.scale(exact(np.full(math.prod(c.shape), beta.values))))
    wide, offset = broadcast(node, y, node.weight(2))
    return wide.shift(offset * beta)


def _batch_normalization(node: OnnxNode) -> Tensor:
    """gamma (x - mean) / sqrt(variance + epsilon) + beta, channel by channel (axis 1)."""
    if node.number("training_mode", 0) or len(node.output_names) > 1:
        raise node.error("is in training mode; export the model for inference (model.eval())")
    x = node.tensor(0)
    gamma, beta, mean, variance = (node.weight(i) for i in range(1, 5))
    shapes = {part.shape for part in (gamma, beta, mean, variance)}
    if shapes != {x.shape[:1]}:
        text = " and ".join(map(str, sorted(shapes)))
        raise node.error(f"parameters of shape {text} meet a tensor of shape (batch, {', '.join(map(str, x.shape))})")
    epsilon = node.number("epsilon", float(np.float32(1e-5)))
    if (variance + epsilon <= 0).any():
        raise node.error("variance + epsilon is not positive")
    channel = np.repeat(np.arange(len(gamma)), math.prod(x.shape[1:]))
    factor = exact(gamma) * reciprocal_root(variance, plus=epsilon)
    return x.shift(-exact(mean[channel])).scale(factor.take(channel), operations=8).shift(exact(beta[channel]))


AFFINE_OPERATORS: dict[str, Callable[[OnnxNode], Result]] = {
    "Add": _add, "BatchNormalization": _batch_normalization, "Div": _div, "Gemm": _gemm, "MatMul": _matmul,
    "Neg": lambda node: -node.tensor(0), "Sub": _sub,
}
