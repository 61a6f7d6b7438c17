"""What each ONNX operator does to affine expressions. One function per operator; `SUPPORTED` is the table of them.

Operators and attributes follow the ONNX specification (github.com/onnx/onnx/blob/main/docs/Operators.md). The batch
axis is axis 0 throughout: an operator that would move it, cut it or mix rows is refused. Those that only rearrange
columns are in `encoders.onnx.operators.shapes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from encoders.curves import Curve
from encoders.exact.affine import exact, reciprocal, reciprocal_root
from encoders.network import Array
from encoders.onnx.operators.affine import broadcast, last_axis, plus
from encoders.onnx.operators.convolution import CONVOLUTION_OPERATORS
from encoders.onnx.operators.maxima import MAXIMA_OPERATORS, any_slope
from encoders.onnx.operators.pipelines import ML_OPERATORS
from encoders.onnx.operators.shapes import SHAPE_OPERATORS
from encoders.onnx.tensor import NeuronSource, OnnxNode, Result, Tensor, source_tensor


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


def _mul(node: OnnxNode) -> Tensor:
    tensor, constant = (0, 1) if isinstance(node.inputs[0], Tensor) else (1, 0)
    x, factor = broadcast(node, node.tensor(tensor), node.weight(constant))
    return x.scale(factor)


def _div(node: OnnxNode) -> Tensor:
    divisor = node.weight(1)
    if (divisor == 0).any():
        raise node.error("divides by a constant that is zero")
    x, _ = broadcast(node, node.tensor(0), divisor)
    factor = np.broadcast_to(reciprocal(divisor).values, (1, *x.shape)).ravel()
    return x.scale(exact(factor))


def _neg(node: OnnxNode) -> Tensor:
    return -node.tensor(0)


def _matmul(node: OnnxNode) -> Tensor:
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
    matrix = exact(weight if node.number("transB", 0) else weight.T)
    alpha, beta = exact(np.float64(node.number("alpha", 1.0))), exact(np.float64(node.number("beta", 1.0)))
    y = last_axis(node, node.tensor(0), matrix * alpha)
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
        told = " and ".join(map(str, sorted(shapes)))
        raise node.error(f"parameters of shape {told} meet a tensor of shape (batch, {', '.join(map(str, x.shape))})")
    epsilon = node.number("epsilon", float(np.float32(1e-5)))
    if (variance + epsilon <= 0).any():
        raise node.error("variance + epsilon is not positive")
    channel = np.repeat(np.arange(len(gamma)), math.prod(x.shape[1:]))
    factor = exact(gamma) * reciprocal_root(variance, plus=epsilon)
    return x.shift(-exact(mean[channel])).scale(factor.take(channel), operations=8).shift(exact(beta[channel]))


def _activation(node: OnnxNode, slope: float | Array, curve: Curve = Curve.BENT) -> Tensor:
    pre = node.tensor(0)
    slopes = np.broadcast_to(np.asarray(slope, dtype=np.float64), (1, *pre.shape)).ravel()
    if not ((slopes >= 0) & (slopes <= 1)).all():
        raise node.error(f"slopes for negative values run from {slopes.min():g} to {slopes.max():g}; "
                         "supported are slopes within [0, 1]")
    level = 1 + max((node.sources[s].level for s in pre.terms), default=0)
    node.sources.append(NeuronSource(node=node.name, before=node.input_names[0], after=node.output_names[0], level=level,
                               pre=pre, slope=slopes, curve=curve))
    return source_tensor(len(node.sources) - 1, pre.shape)


def _relu(node: OnnxNode) -> Tensor:
    return _activation(node, 0.0)


def _sigmoid(node: OnnxNode) -> Tensor:
    return _activation(node, 1.0, Curve.SIGMOID)


def _tanh(node: OnnxNode) -> Tensor:
    return _activation(node, 1.0, Curve.TANH)


def _leaky_relu(node: OnnxNode) -> Tensor:
    return _leaky(node, np.full(node.tensor(0).size, node.number("alpha", float(np.float32(0.01)))))


def _leaky(node: OnnxNode, slope: Array) -> Tensor:
    """A layer's own activation where its slopes (m,) are within [0, 1], else the sum of a line and a relu."""
    if not np.isfinite(slope).all():
        raise node.error("its slopes hold NaN or infinite numbers")
    if ((slope >= 0) & (slope <= 1)).all():
        return _activation(node, slope.reshape(1, *node.tensor(0).shape))
    return any_slope(node, node.tensor(0), slope)


def _prelu(node: OnnxNode) -> Tensor:
    slope = node.weight(1)
    x, slopes = broadcast(node, node.tensor(0), slope)
    if x.shape != node.tensor(0).shape:
        raise node.error(f"slopes of shape {slope.shape} do not fit")
    return _leaky(node, slopes.values)


SUPPORTED: dict[str, Callable[[OnnxNode], Result]] = SHAPE_OPERATORS | ML_OPERATORS | CONVOLUTION_OPERATORS | MAXIMA_OPERATORS | {
    "Add": _add, "BatchNormalization": _batch_normalization, "Div": _div, "Gemm": _gemm, "LeakyRelu": _leaky_relu,
    "MatMul": _matmul, "Mul": _mul, "Neg": _neg, "PRelu": _prelu, "Relu": _relu,
    "Sigmoid": _sigmoid, "Sub": _sub, "Tanh": _tanh,
}
