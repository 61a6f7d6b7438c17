"""Convolutions, average pooling, padding and sums: affine maps with few entries a row, built from index arrays.

The first part computes the windows of convolutions and poolings (strides, dilations, paddings), and the entries that reductions
join; max pooling uses it, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from encoders.arrays import Booleans, Integers
from encoders.exact.affine import ExactMatrix, exact, matrix, reciprocal
from encoders.onnx.operators.affine import plus
from encoders.onnx.tensor import MOST, OnnxNode, Result, Tensor, concatenated

PADDING = -1
MOST_CELLS = 2**24


@dataclass(frozen=True, kw_only=True, eq=False)
class Axis:
    """The windows along one spatial axis.

    place: (out, kernel) position that each window's cell lies on, PADDING for none.
    padded: (out, kernel) True if the cell lies on the axis or its declared padding (a last window may reach beyond both).
    """

    place: Integers
    padded: Booleans


def window_axes(node: OnnxNode, spatial: tuple[int, ...], kernel: list[int]) -> list[Axis]:
    """Return the windows along every spatial axis. Raises ModelError for attributes that do not fit."""
    rank = len(spatial)
    strides, dilations = (_whole(node, name, [1] * rank) for name in ("strides", "dilations"))
    pads = _whole(node, "pads", [0] * (2 * rank))
    fit = len(kernel) == len(strides) == len(dilations) == rank and len(pads) == 2 * rank
    if not fit or min(*strides, *dilations, *kernel) < 1:
        raise node.error(f"kernel {kernel}, strides {strides}, dilations {dilations} and pads {pads} do not fit {rank} "
                         "spatial axes")
    if min(pads) < 0:
        raise node.error(f"negative pads {pads}; supported are pads of 0 and more")
    automatic = node.attributes.get("auto_pad", "NOTSET")
    ceil = bool(node.number("ceil_mode", 0))
    spread = max(dilations) > 1 and node.op != "Conv" and automatic != "VALID"
    if automatic != "NOTSET" and (ceil or spread):
        raise node.error(f"has {'ceil_mode' if ceil else 'dilations'} with auto_pad {automatic!r}, of which runtimes make "
                         "different windows; export it with pads")
    axes = []
    for a, length in enumerate(spatial):
        reach, stride = dilations[a] * (kernel[a] - 1) + 1, strides[a]
        before, after = pads[a], pads[rank + a]
        if automatic in ("SAME_UPPER", "SAME_LOWER"):
            total = max(0, (-(-length // stride) - 1) * stride + reach - length)
            before = total // 2 if automatic == "SAME_UPPER" else total - total // 2
            after = total - before
        elif automatic == "VALID":
            before = after = 0
        elif automatic != "NOTSET":
            raise node.error(f"auto_pad {automatic!r} is unknown")
        room = length + before + after - reach
        if room < 0:
            raise node.error(f"a window of {reach} does not fit an axis of {length} with pads {before} and {after}")
        count = (-(-room // stride) if ceil else room // stride) + 1
        if count * kernel[a] > MOST_CELLS:
            raise node.error(f"has {count} windows of {kernel[a]} along an axis; supported are {MOST_CELLS} cells at most")
        if ceil and (count - 1) * stride >= length + before:
            count -= 1
        place = np.arange(count)[:, None] * stride - before + np.arange(kernel[a]) * dilations[a]
        axes.append(Axis(place=np.where((place >= 0) & (place < length), place, PADDING), padded=place < length + after))
    cells = math.prod(axis.place.size for axis in axes)
    if cells > MOST_CELLS:
        raise node.error(f"has {cells} cells in all windows; supported are {MOST_CELLS} at most")
    return axes


def flat_windows(axes: list[Axis], spatial: tuple[int, ...]) -> tuple[Integers, Booleans]:
    """Return all windows at once: (P, K) flat spatial positions, PADDING for none, and the same for `padded`."""
    place, inside, padded = np.zeros((1, 1), dtype=np.int64), np.ones((1, 1), dtype=bool), np.ones((1, 1), dtype=bool)
    for axis, length in zip(axes, spatial, strict=True):
        shape = (len(place) * len(axis.place), place.shape[1] * axis.place.shape[1])
        outer, inner = (slice(None), None, slice(None), None), (None, slice(None), None, slice(None))
        place = (place[outer] * length + axis.place[inner]).reshape(shape)
        inside = (inside[outer] & (axis.place != PADDING)[inner]).reshape(shape)
        padded = (padded[outer] & axis.padded[inner]).reshape(shape)
    return np.where(inside, place, PADDING), padded


def spatial_shape(node: OnnxNode, x: Tensor) -> tuple[int, ...]:
    """Return the axes behind batch and channels."""
    if len(x.shape) < 2:
        raise node.error(f"a tensor of shape (batch, {', '.join(map(str, x.shape))}) has no spatial axes behind its channels")
    return x.shape[1:]


def kernel_shape(node: OnnxNode) -> list[int]:
    return _whole(node, "kernel_shape", [])


def joined(node: OnnxNode, x: Tensor) -> tuple[Integers, tuple[int, ...]]:
    """For a reduction: which entries (rows, K) each result joins, and the results' shape."""
    rank = len(x.shape) + 1
    listed = node.integers(1) if node.has(1) else node.numbers("axes")
    if not listed:
        if node.number("noop_with_empty_axes", 0):
            return x.index.reshape(-1, 1), x.shape
        raise node.error("reduces all axes, the batch among them; supported are axes other than the batch: give axes=[1]")
    axes = sorted({node.axis(int(a), rank) for a in listed})
    if axes[0] == 0:
        raise node.error(f"reduces axes {axes}, the batch among them; supported are the other axes")
    moved = np.moveaxis(x.index, axes, range(rank - len(axes), rank))
    reduced = [1 if a in axes else x.shape[a - 1] for a in range(1, rank)]
    shape = reduced if node.number("keepdims", 1) else [x.shape[a - 1] for a in range(1, rank) if a not in axes]
    return moved.reshape(math.prod(reduced), -1), tuple(shape)


def _whole(node: OnnxNode, name: str, default: list[int]) -> list[int]:
    return [int(v) for v in node.numbers(name) or default]


LARGEST = 2**25
"""The most weights of one convolution, repeated over its positions."""


def _conv(node: OnnxNode) -> Tensor:
    """y[m, p] = bias[m] + sum over c, q of weight[m, c, q] x[group of m, c, window p's cell q]."""
    x, weight = node.tensor(0), node.weight(1)
    spatial, groups = spatial_shape(node, x), int(node.number("group", 1))
    kernel = list(weight.shape[2:])
    if weight.ndim != len(spatial) + 2 or (kernel_shape(node) or kernel) != kernel:
        raise node.error(f"its weight has shape {weight.shape}, its input (batch, {', '.join(map(str, x.shape))})")
    m, c = weight.shape[:2]
    if groups < 1 or m % groups or c * groups != x.shape[0]:
        raise node.error(f"{x.shape[0]} channels in {groups} groups meet a weight of shape {weight.shape}")
    axes = window_axes(node, spatial, kernel)
    place, _ = flat_windows(axes, spatial)
    if m * c * place.size > LARGEST:
        raise node.error(f"spreads {m * c * place.size} weights over its positions, and at most {LARGEST} are supported; use "
                         "fewer channels, smaller maps or larger strides")
    first_channel = np.arange(m) // (m // groups) * c
    channel = (first_channel[:, None] + np.arange(c))[:, :, None, None]
    shape = (m, c, *place.shape)
    row = np.broadcast_to((np.arange(m)[:, None] * len(place) + np.arange(len(place)))[:, None, :, None], shape)
    column = np.broadcast_to(channel * math.prod(spatial) + place, shape)
    entries = np.broadcast_to(weight.reshape(m, c, 1, -1), shape)
    used = np.broadcast_to(place != PADDING, shape) & (entries != 0)
    y = x.map(matrix(row[used], column[used], exact(entries[used]), rows=m * len(place)), (m, *(len(a.place) for a in axes)))
    return y if not node.has(2) else y.shift(exact(np.repeat(node.weight(2), len(place))))


def _average_pool(node: OnnxNode) -> Tensor:
    x = node.tensor(0)
    spatial = spatial_shape(node, x)
    axes = window_axes(node, spatial, kernel_shape(node))
    place, padded = flat_windows(axes, spatial)
    counted = padded if node.number("count_include_pad", 0) else place != PADDING
    if not counted.any(axis=1).all():
        raise node.error("a window lies wholly in the padding: its mean is not defined")
    start = np.arange(x.shape[0])[:, None, None] * math.prod(spatial)
    windows = np.where(place == PADDING, PADDING, start + place).reshape(-1, place.shape[1])
    means = _sums(windows, np.tile(counted.sum(axis=1), x.shape[0]))
    return x.map(means, (x.shape[0], *(len(axis.place) for axis in axes)))


def _sums(windows: Integers, divisor: Integers) -> ExactMatrix:
    """Row i adds up the entries windows[i] (PADDING for none) and divides by divisor[i]."""
    row, cell = np.nonzero(windows != PADDING)
    return matrix(row, windows[row, cell], reciprocal(divisor.astype(np.float64)).take(row), rows=len(windows))


def _global_average_pool(node: OnnxNode) -> Tensor:
    x = node.tensor(0)
    spatial = spatial_shape(node, x)
    windows = x.index.reshape(x.shape[0], -1)
    return x.map(_sums(windows, np.full(x.shape[0], windows.shape[1])), (x.shape[0], *(1 for _ in spatial)))


def _reduce_mean(node: OnnxNode) -> Tensor:
    windows, shape = joined(node, node.tensor(0))
    return node.tensor(0).map(_sums(windows, np.full(len(windows), windows.shape[1])), shape)


def _reduce_sum(node: OnnxNode) -> Tensor:
    windows, shape = joined(node, node.tensor(0))
    return node.tensor(0).map(_sums(windows, np.ones(len(windows), dtype=np.int64)), shape)


def _pad(node: OnnxNode) -> Tensor:
    """Padding by a constant, by the edge, or mirrored; negative pads crop."""
    x, mode = node.tensor(0), node.attributes.get("mode", "constant")
    rank = len(x.shape) + 1
    pads = node.integers(1) if node.has(1) else [int(v) for v in node.numbers("pads") or node.numbers("paddings") or []]
    axes = [node.axis(a, rank) for a in node.integers(3)] if node.has(3) else list(range(rank))
    if len(pads) != 2 * len(axes) or mode not in ("constant", "edge", "reflect"):
        raise node.error(f"pads {pads} on {len(axes)} axes with mode {mode!r}; supported are constant, edge and reflect")
    widths = np.zeros((rank, 2), dtype=np.int64)
    for k, a in enumerate(axes):
        widths[a] = pads[k], pads[len(axes) + k]
    if widths[0].any():
        raise node.error("pads the batch (axis 0); supported are the other axes")
    cropped = x.index[tuple(slice(max(0, -int(b)), n - max(0, -int(a))) for (b, a), n in zip(widths, x.index.shape, strict=True))]
    if not cropped.size or (mode == "reflect" and (widths >= np.array(cropped.shape)[:, None]).any()):
        raise node.error(f"pads {pads} do not fit a tensor of shape (batch, {', '.join(map(str, x.shape))})")
    padding = np.maximum(widths, 0)
    if math.prod(n + int(w.sum()) for n, w in zip(cropped.shape, padding, strict=True)) > MOST:
        raise node.error(f"pads {pads}; supported are {MOST} entries at most")
    if mode != "constant":
        return x.take(np.pad(cropped, padding, mode="edge" if mode == "edge" else "reflect"))
    value = np.atleast_1d(node.weight(2)).ravel()[:1] if node.has(2) else np.array([float(node.number("value", 0.0))])
    if not np.isfinite(value).all():
        raise node.error(f"pads with {value[0]}; supported are finite numbers")
    constant = Tensor(shape=(1,), terms={}, const=exact(value))
    return concatenated([x.flat(), constant]).take(np.pad(cropped, padding, constant_values=x.size))


def _sum(node: OnnxNode) -> Tensor:
    """Return the n-ary Sum."""
    total = node.tensor(0)
    for k in range(1, len(node.inputs)):
        total = plus(node, total, node.tensor(k))
    return total


CONVOLUTION_OPERATORS: dict[str, Callable[[OnnxNode], Result]] = {
    "AveragePool": _average_pool, "Conv": _conv, "GlobalAveragePool": _global_average_pool, "Pad": _pad,
    "ReduceMean": _reduce_mean, "ReduceSum": _reduce_sum, "Sum": _sum,
}
