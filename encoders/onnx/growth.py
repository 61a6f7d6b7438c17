"""How large the constants get that a graph computes: a few bytes of a file may ask for any number of them.

Asked before a node is computed, so that nothing is ever held that would have to be refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from encoders.onnx.tensor import Constant

MOST = 2**24
"""Numbers in one computed constant, and ..."""
IN_ALL = 2**26
"""... in all computed constants of a graph, where one that is computed in rationals counts for RATIONAL."""
RATIONAL = 8


def size_of(op: str, values: Sequence[Constant], attributes: Mapping[str, object]) -> int:
    """An upper bound of the numbers that a node makes of constants; of nonsense any number, computing it will say what is wrong."""
    try:
        return GROWING.get(op, _elementwise)(values, attributes)
    except (ArithmeticError, IndexError, TypeError, ValueError):
        return 0


def _numbers(value: Constant) -> list[int]:
    """Numbers of an axis each, none of them negative."""
    return [max(0, int(v)) for v in np.asarray(value).ravel().tolist()]


def _elementwise(values: Sequence[Constant], attributes: Mapping[str, object]) -> int:
    """By broadcasting; for operators that only rearrange one input, no more than it holds."""
    rank = max((v.ndim for v in values), default=0)
    shapes = [(1,) * (rank - v.ndim) + v.shape for v in values]
    return math.prod(max(axis) for axis in zip(*shapes, strict=True))


def _moved(values: Sequence[Constant], attributes: Mapping[str, object]) -> int:
    return values[0].size if values else 0


def _expand(values: Sequence[Constant], attributes: Mapping[str, object]) -> int:
    target = _numbers(values[1])
    rank = max(values[0].ndim, len(target))
    shapes = [[1] * (rank - len(shape)) + shape for shape in (list(values[0].shape), target)]
    return math.prod(max(axis) for axis in zip(*shapes, strict=True))


def _gather(values: Sequence[Constant], attributes: Mapping[str, object]) -> int:
    axis = attributes.get("axis", 0)
    assert isinstance(axis, int)
    return int(values[0].size // max(1, values[0].shape[axis]) * values[1].size)


def _product(values: Sequence[Constant], attributes: Mapping[str, object]) -> int:
    """Of matrices, maybe transposed (then the longer axis counts), maybe many of them."""
    left, right = (v.reshape(1, -1) if v.ndim < 2 else v for v in values[:2])
    sides = max(left.shape[-2:]) if attributes.get("transA") else left.shape[-2], max(right.shape[-2:])
    return int(math.prod(sides)) * max(math.prod(left.shape[:-2]), 1) * max(math.prod(right.shape[:-2]), 1)


def _pad(values: Sequence[Constant], attributes: Mapping[str, object]) -> int:
    pads = _numbers(values[1]) if len(values) > 1 else _numbers(np.array(attributes.get("pads", ())))
    return math.prod(length + sum(pads) for length in values[0].shape)


def _range(values: Sequence[Constant], attributes: Mapping[str, object]) -> int:
    start, limit, step = (float(v) for v in values)
    return max(0, math.ceil((limit - start) / step))


GROWING: dict[str, Callable[[Sequence[Constant], Mapping[str, object]], int]] = {
    **dict.fromkeys(("Cast", "Dropout", "Flatten", "Identity", "ReduceMean", "ReduceSum", "Reshape", "Slice", "Split", "Squeeze",
                     "Transpose", "Unsqueeze"), _moved),
    "Concat": lambda values, _: sum(v.size for v in values),
    "ConstantOfShape": lambda values, _: math.prod(_numbers(values[0])),
    "Expand": _expand, "Gather": _gather, "Gemm": _product, "MatMul": _product, "Pad": _pad, "Range": _range,
    "Tile": lambda values, _: values[0].size * math.prod(_numbers(values[1])),
}
"""Those whose result is not as large as broadcasting makes it."""
