"""Activations: ReLU, LeakyReLU, smooth ones, and operators that are exactly a few of them: maxima, clippings, max pooling ...

    max(a, b) = b + relu(a - b)        |a| = a + 2 relu(-a)        leaky(a) = a + (1 - s) relu(-a)   for any slope s
    elu of any alpha = alpha elu(a) + (1 - alpha) relu(a)          celu(a) = alpha elu(a / alpha)

all of them equalities of real numbers. The b and a beside a relu are carried as identity neurons, which need no branching. No
tensor of the stored graph holds the relu's values: the import check computes them, and compares the node's output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from encoders.arrays import Array, Integers
from encoders.curves.layer import Curve
from encoders.exact.affine import Exact, exact, reciprocal
from encoders.onnx.operators.affine import broadcast, carried, level, neurons, together
from encoders.onnx.operators.convolution import PADDING, joined, kernel_shape, spatial_shape, window_axes
from encoders.onnx.patterns import MADE
from encoders.onnx.tensor import Constant, NeuronSource, OnnxNode, Result, Tensor, concatenated, source_tensor

SMALL = 2.0**10
"""Bounds c up to this size use max(x, c) = c + relu(x - c). A huge one (exporters may write "no bound" as 1e30) would swamp the
numbers that it is added to; x + relu(c - x) has it only in the relu."""


def _relu(node: OnnxNode, pre: Tensor) -> Tensor:
    return neurons(node, pre, 0.0)


def _larger(node: OnnxNode, x: Tensor, y: Tensor) -> Tensor:
    """max(x, y) of two tensors of one shape."""
    beside, other = (x, y) if x.reads < y.reads else (y, x)
    return carried(node, beside).plus(_relu(node, other.plus(-beside)))


def _at_least(node: OnnxNode, x: Tensor, bound: Exact) -> Tensor:
    """max(x, bound), entry by entry."""
    shifted = x.shift(-bound)
    if shifted.const.is_float and np.abs(bound.values).max(initial=0.0) <= SMALL:
        return _relu(node, shifted).shift(bound)
    return carried(node, x).plus(_relu(node, -shifted))


def _max(node: OnnxNode) -> Tensor:
    """n-ary, of tensors and constants."""
    tensors = [i for i in node.inputs if isinstance(i, Tensor)]
    constants = [_bound(node, i) for i in node.inputs if i is not None and not isinstance(i, Tensor)]
    while len(tensors) > 1:
        pairs = [together(node, *tensors[k : k + 2]) for k in range(0, len(tensors) - 1, 2)]
        tensors = [_larger(node, x, y) for x, y in pairs] + tensors[2 * len(pairs) :]
    (result,) = tensors
    for constant in constants:
        result = _above_constant(node, result, constant)
    return result


def _above_constant(node: OnnxNode, x: Tensor, constant: Array) -> Tensor:
    if (constant == np.inf).any():
        raise node.error("a bound is infinite and leaves nothing of the data; give a finite one")
    if (constant == -np.inf).all():
        return broadcast(node, x, np.zeros(constant.shape))[0]
    if (constant == -np.inf).any():
        raise node.error("some of its bounds are infinite, others are not; supported are all finite or all absent")
    wide, bound = broadcast(node, x, constant)
    return _at_least(node, wide, bound)


def _bound(node: OnnxNode, value: Constant) -> Array:
    """Return stored bounds, where the largest numbers of their type stand for infinity: nothing a runtime computes lies beyond."""
    if value.dtype not in (np.dtype(np.float32), np.dtype(np.float64)) or np.isnan(value.astype(np.float64)).any():
        raise node.error(f"a bound holds NaN, or is of type {value.dtype}; supported are float32 and float64 numbers")
    largest = np.finfo(np.float32 if value.dtype == np.float32 else np.float64).max
    bounds = value.astype(np.float64)
    return np.where(np.abs(bounds) >= float(largest), np.copysign(np.inf, bounds), bounds)


def _turned(node: OnnxNode) -> OnnxNode:
    """Return the node with everything negated: min(x, y) = -max(-x, -y)."""
    return replace(node, inputs=tuple(-i if isinstance(i, Tensor) else i if i is None else np.negative(i) for i in node.inputs))


def _abs(node: OnnxNode) -> Tensor:
    x = node.tensor(0)
    return carried(node, x).plus(_relu(node, -x).scale(exact(np.full(x.size, 2.0))))


def _clip(node: OnnxNode) -> Tensor:
    """min(max(x, low), high); where low exceeds high, this is high, as the operator's specification has it."""
    bounds: list[Array] = []
    for k, name, absent in ((1, "min", -np.inf), (2, "max", np.inf)):
        bound = node.constant(k) if node.has(k) else np.float32(node.number(name, absent))
        bounds.append(_bound(node, np.asarray(bound)))
    low, high = bounds
    if low.size != 1 or high.size != 1:
        raise node.error(f"its bounds have shapes {low.shape} and {high.shape}; supported are single numbers")
    x = node.tensor(0)
    if low.item() > high.item() and np.isfinite(high).all():
        return x.scale(exact(np.zeros(x.size))).shift(exact(np.full(x.size, high.item())))
    return -_above_constant(node, -_above_constant(node, x, low.ravel()), -high.ravel())


def _hard_sigmoid(node: OnnxNode) -> Tensor:
    """max(0, min(1, alpha x + beta))."""
    alpha, beta = (node.number(name, float(np.float32(value))) for name, value in (("alpha", 0.2), ("beta", 0.5)))
    x = node.tensor(0)
    line = x.scale(exact(np.full(x.size, alpha))).shift(exact(np.full(x.size, beta)))
    return -_at_least(node, -_at_least(node, line, exact(np.zeros(x.size))), exact(np.full(x.size, -1.0)))


def _max_pool(node: OnnxNode) -> Result:
    """Pool axis by axis, so that overlapping windows share their maxima; padding is left out."""
    x = node.tensor(0)
    spatial = spatial_shape(node, x)
    for a, axis in enumerate(window_axes(node, spatial, kernel_shape(node)), start=2):
        if (axis.place == PADDING).all(axis=1).any():
            raise node.error("a window lies wholly in the padding: its maximum is not defined")
        index = np.moveaxis(x.index, a, -1)[..., axis.place]
        shape = index.shape[1:-1]
        index = np.where(axis.place == PADDING, PADDING, index)
        y = _tournament(node, x.flat(), index.reshape(-1, axis.place.shape[1]))
        x = y.take(np.moveaxis(np.arange(y.size).reshape(1, *shape), -1, a))
    return [x, None]


def _global_max_pool(node: OnnxNode) -> Tensor:
    x = node.tensor(0)
    y = _tournament(node, x.flat(), x.index.reshape(x.shape[0], -1))
    return y.take(y.index.reshape(1, x.shape[0], *(1 for _ in spatial_shape(node, x))))


def _reduce_max(node: OnnxNode) -> Tensor:
    windows, shape = joined(node, node.tensor(0))
    y = _tournament(node, node.tensor(0).flat(), windows)
    return y.take(y.index.reshape(1, *shape))


def _tournament(node: OnnxNode, x: Tensor, windows: Integers) -> Tensor:
    """Return the largest of the entries of each window (rows, K), PADDING for none. Pairs that several windows hold meet once."""
    largest = windows.max(axis=1, keepdims=True)
    windows = np.sort(np.where(windows == PADDING, largest, windows), axis=1)
    while windows.shape[1] > 1:
        if windows.shape[1] % 2:
            windows = np.hstack([windows, windows[:, -1:]])
        pairs, place = np.unique(np.stack([windows[:, ::2], windows[:, 1::2]], axis=-1).reshape(-1, 2), axis=0, return_inverse=True)
        distinct = pairs[:, 0] != pairs[:, 1]
        first, second = (x.take(pairs[distinct, k].reshape(1, -1)) for k in (0, 1))
        single = x.take(pairs[~distinct, 0].reshape(1, -1))
        order = np.empty(len(pairs), dtype=np.int64)
        order[np.concatenate([np.flatnonzero(distinct), np.flatnonzero(~distinct)])] = np.arange(len(pairs))
        x = concatenated([_larger(node, first, second) if distinct.any() else first, single]).take(order.reshape(1, -1))
        windows = place.reshape(len(windows), -1)
    return x.take(windows.reshape(1, -1))


def _activation(node: OnnxNode, slope: float | Array, curve: Curve = Curve.BENT) -> Tensor:
    pre = node.tensor(0)
    slopes = np.broadcast_to(np.asarray(slope, dtype=np.float64), (1, *pre.shape)).ravel()
    if not ((slopes >= 0) & (slopes <= 1)).all():
        raise node.error(f"slopes for negative values run from {slopes.min():g} to {slopes.max():g}; "
                         "supported are slopes within [0, 1]")
    before, after = (None if name.startswith(MADE) else name for name in (node.input_names[0], node.output_names[0]))
    node.sources.append(NeuronSource(node=node.name, before=before, after=after,
                                     level=1 + level(node, pre), pre=pre, slope=slopes, curve=curve))
    return source_tensor(len(node.sources) - 1, pre.shape)


def _leaky(node: OnnxNode, slope: Array) -> Tensor:
    """Return a layer's own activation if its slopes (m,) are within [0, 1], else the sum of a line and a relu."""
    if not np.isfinite(slope).all():
        raise node.error("its slopes hold NaN or infinite numbers")
    if ((slope >= 0) & (slope <= 1)).all():
        return _activation(node, slope.reshape(1, *node.tensor(0).shape))
    x = node.tensor(0)  # any slopes, also negative ones and those above 1
    return carried(node, x).plus(_relu(node, -x).scale(exact(np.ones(x.size)) + -exact(slope)))


def _prelu(node: OnnxNode) -> Tensor:
    slope = node.weight(1)
    x, slopes = broadcast(node, node.tensor(0), slope)
    if x.shape != node.tensor(0).shape:
        raise node.error(f"slopes of shape {slope.shape} do not fit")
    return _leaky(node, slopes.values)


def _curve(node: OnnxNode, curve: Curve) -> Tensor:
    return _activation(node, 1.0, curve)


def _stretched(node: OnnxNode, curve: Curve, factor: float) -> Tensor:
    """T(factor a) / factor."""
    if factor == 1:
        return _curve(node, curve)
    if not (np.isfinite(factor) and factor):
        raise node.error(f"alpha = {factor:g}; supported are finite numbers other than 0")
    x = node.tensor(0)
    out = neurons(node, x.scale(exact(np.full(x.size, factor))), 1.0, curve)
    return out.scale(exact(reciprocal(np.full(x.size, factor)).values))


def _elu(node: OnnxNode, alpha: float, gamma: float) -> Tensor:
    if (alpha, gamma) == (1, 1):
        return _curve(node, Curve.ELU)
    x = node.tensor(0)
    share, factor = exact(np.full(x.size, alpha)), exact(np.full(x.size, gamma))
    relu_part = _relu(node, x).scale(exact(np.ones(x.size)) + -share)
    return neurons(node, x, 1.0, Curve.ELU).scale(share).plus(relu_part).scale(factor)


def _selu(node: OnnxNode) -> Tensor:
    from encoders.curves.shapes import ALPHA, GAMMA  # loaded only for such curves

    alpha, gamma = node.number("alpha", ALPHA), node.number("gamma", GAMMA)
    return _curve(node, Curve.SELU) if (alpha, gamma) == (ALPHA, GAMMA) else _elu(node, alpha, gamma)


def _celu(node: OnnxNode) -> Tensor:
    """alpha elu(x / alpha)."""
    alpha, x = node.number("alpha", 1.0), node.tensor(0)
    if alpha == 1:
        return _curve(node, Curve.ELU)
    if not (np.isfinite(alpha) and alpha > 0):
        raise node.error(f"alpha = {alpha:g}; supported are positive numbers")
    alphas = np.full(x.size, alpha)
    return neurons(node, x.scale(exact(reciprocal(alphas).values)), 1.0, Curve.ELU).scale(exact(alphas))


def _gelu(node: OnnxNode) -> Tensor:
    kinds = {"none": Curve.GELU, "tanh": Curve.GELU_TANH}
    name = str(node.attributes.get("approximate", "none"))
    if name not in kinds:
        raise node.error(f"approximate = {name!r}; supported are 'none' and 'tanh'")
    return _curve(node, kinds[name])


ACTIVATIONS: dict[str, Callable[[OnnxNode], Result]] = {
    "Abs": _abs, "Clip": _clip, "GlobalMaxPool": _global_max_pool, "HardSigmoid": _hard_sigmoid, "Max": _max,
    "MaxPool": _max_pool, "Min": lambda node: -_max(_turned(node)), "PRelu": _prelu, "ReduceMax": _reduce_max,
    "LeakyRelu": lambda node: _leaky(node, np.full(node.tensor(0).size, node.number("alpha", float(np.float32(0.01))))),
    "ReduceMin": lambda node: -_reduce_max(replace(node, inputs=(-node.tensor(0), *node.inputs[1:]))),
    "Relu": lambda node: _activation(node, 0.0), "Sigmoid": lambda node: _activation(node, 1.0, Curve.SIGMOID),
    "Tanh": lambda node: _activation(node, 1.0, Curve.TANH), "Softplus": lambda node: _curve(node, Curve.SOFTPLUS),
    "Elu": lambda node: _elu(node, node.number("alpha", 1.0), 1.0), "Selu": _selu, "Celu": _celu, "Gelu": _gelu,
    "Mish": lambda node: _curve(node, Curve.MISH), "HardSwish": lambda node: _curve(node, Curve.HARDSWISH),
    "Swish": lambda node: _stretched(node, Curve.SILU, node.number("alpha", 1.0)),
    "com.microsoft.Gelu": lambda node: _curve(node, Curve.GELU),
    "com.microsoft.QuickGelu": lambda node: _stretched(node, Curve.SILU, node.number("alpha", float(np.float32(1.702)))),
}
