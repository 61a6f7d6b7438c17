"""Where the windows of convolutions and poolings lie (strides, dilations, paddings), and which entries reductions join."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from encoders.network import Booleans, Integers
from encoders.onnx.tensor import OnnxNode, Tensor

PADDING = -1
MOST_CELLS = 2**24


@dataclass(frozen=True, kw_only=True, eq=False)
class Axis:
    """The windows along one spatial axis.

    place: (out, kernel) position that each window's cell lies on, PADDING for none.
    padded: (out, kernel) whether the cell lies on the axis or its declared padding (a last window may reach beyond both).
    """

    place: Integers
    padded: Booleans


def window_axes(node: OnnxNode, spatial: tuple[int, ...], kernel: list[int]) -> list[Axis]:
    """The windows along every spatial axis. Raises ModelError for attributes that do not fit."""
    rank = len(spatial)
    strides, dilations = (_whole(node, name, [1] * rank) for name in ("strides", "dilations"))
    pads = _whole(node, "pads", [0] * (2 * rank))
    fit = len(kernel) == len(strides) == len(dilations) == rank and len(pads) == 2 * rank
    if not fit or min(*strides, *dilations, *kernel) < 1:
        raise node.error(f"kernel {kernel}, strides {strides}, dilations {dilations} and pads {pads} do not fit {rank} "
                         "spatial axes")
    if min(pads) < 0:
        raise node.error(f"negative pads {pads}; supported are pads of 0 and more")
    automatic = node.attributes.get("auto_pad", b"NOTSET")
    ceil = bool(node.number("ceil_mode", 0))
    spread = max(dilations) > 1 and node.op != "Conv" and automatic != b"VALID"
    if automatic != b"NOTSET" and (ceil or spread):
        raise node.error(f"has {'ceil_mode' if ceil else 'dilations'} with auto_pad {automatic!r}, of which runtimes make "
                         "different windows; export it with pads")
    axes = []
    for a, length in enumerate(spatial):
        reach, stride = dilations[a] * (kernel[a] - 1) + 1, strides[a]
        before, after = pads[a], pads[rank + a]
        if automatic in (b"SAME_UPPER", b"SAME_LOWER"):
            total = max(0, (-(-length // stride) - 1) * stride + reach - length)
            before = total // 2 if automatic == b"SAME_UPPER" else total - total // 2
            after = total - before
        elif automatic == b"VALID":
            before = after = 0
        elif automatic != b"NOTSET":
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
    """All windows at once: (P, K) flat spatial positions, PADDING for none, and the same for `padded`."""
    place, inside, padded = np.zeros((1, 1), dtype=np.int64), np.ones((1, 1), dtype=bool), np.ones((1, 1), dtype=bool)
    for axis, length in zip(axes, spatial, strict=True):
        shape = (len(place) * len(axis.place), place.shape[1] * axis.place.shape[1])
        before, here = (slice(None), None, slice(None), None), (None, slice(None), None, slice(None))
        place = (place[before] * length + axis.place[here]).reshape(shape)
        inside = (inside[before] & (axis.place != PADDING)[here]).reshape(shape)
        padded = (padded[before] & axis.padded[here]).reshape(shape)
    return np.where(inside, place, PADDING), padded


def spatial_shape(node: OnnxNode, x: Tensor) -> tuple[int, ...]:
    """The axes behind batch and channels."""
    if len(x.shape) < 2:
        raise node.error(f"a tensor of shape (batch, {', '.join(map(str, x.shape))}) has no spatial axes behind its channels")
    return x.shape[1:]


def kernel_shape(node: OnnxNode) -> list[int]:
    return _whole(node, "kernel_shape", [])


def joined(node: OnnxNode, x: Tensor) -> tuple[Integers, tuple[int, ...]]:
    """For a reduction: which entries (rows, K) each result joins, and the results' shape."""
    rank = len(x.shape) + 1
    given = node.integers(1) if node.has(1) else node.numbers("axes")
    if not given:
        if node.number("noop_with_empty_axes", 0):
            return x.index.reshape(-1, 1), x.shape
        raise node.error("reduces all axes, the batch among them; supported are axes other than the batch: give axes=[1]")
    axes = sorted({node.axis(int(a), rank) for a in given})
    if axes[0] == 0:
        raise node.error(f"reduces axes {axes}, the batch among them; supported are the other axes")
    moved = np.moveaxis(x.index, axes, range(rank - len(axes), rank))
    kept = [1 if a in axes else x.shape[a - 1] for a in range(1, rank)]
    shape = kept if node.number("keepdims", 1) else [x.shape[a - 1] for a in range(1, rank) if a not in axes]
    return moved.reshape(math.prod(kept), -1), tuple(shape)


def _whole(node: OnnxNode, name: str, default: list[int]) -> list[int]:
    return [int(v) for v in node.numbers(name) or default]
