"""Graphs of two classes that end in a sum of functions of scores, each within 0 and 1, times weights of 0 or more.

    MatMul or Gemm(Concat(h, ...), w),      h = Sigmoid(score)  or  Sigmoid or Clip(Mul(Sub(score, shift), scale), 0, 1)

A mean of probabilities has weights that, with the constant of a Gemm, add up to 1, or to less where some h is cut off. Scores of a
network may be anything; those of trees are columns, by Gather, of what one ensemble gives, or a Sigmoid of one: then the functions
become `encoders.trees.mean.Ramps`, also in front of a last Sigmoid. Linear scores may be joined to the ensemble's, by Concat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx

from encoders.arrays import Array
from encoders.onnx.tree_tail import REGRESSORS

if TYPE_CHECKING:
    from encoders.trees.mean import Ramps

Nodes = Mapping[str, onnx.NodeProto]
Constants = Callable[[str], npt.NDArray[Any] | None]
ROUNDED, MANY = 1e-6, 2**20
"""The largest float32 error of the sum of weights; more scores than any model has, which would only take memory."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Mean:
    """A weighted sum: the nodes of the functions, Sigmoid or Clip; their weights (K,); and the constant that is added."""

    functions: tuple[onnx.NodeProto, ...]
    weight: Array
    constant: float

    @property
    def whole(self) -> bool:
        """True if the sum is a mean: the constant is 0 or more, and it and the weights add up to 1 (or less, beside a Clip)."""
        left = 1 - self.constant - float(self.weight.sum())
        sums_to_one = left <= ROUNDED or any(node.op_type == "Clip" for node in self.functions)
        return self.constant >= 0 and sums_to_one and left >= -ROUNDED


def sum_of(by_output: Nodes, constant: Constants, name: str) -> Mean | None:
    """Return a tensor as a weighted sum of functions, or None if it is no such sum."""
    product = by_output.get(name)
    if product is None or product.op_type not in ("MatMul", "Gemm") or product.attribute:
        return None
    concat, constants = by_output.get(product.input[0]), [constant(key) for key in product.input[1:]]
    if concat is None or any(value is None for value in constants):
        return None
    weight, *rest = (np.asarray(value, dtype=np.float64) for value in constants)
    added = float(rest[0].sum()) if rest else 0.0
    if weight.shape[1:] != (1,) or (rest and rest[0].size != 1) or not ((weight >= 0).all() and np.isfinite(added)):
        return None
    parts = [by_output.get(key) for key in concat.input] if concat.op_type == "Concat" else [concat]
    functions = tuple(node for node in parts if node is not None and (node.op_type == "Sigmoid" or _cut_off(node, constant)))
    return Mean(functions=functions, weight=weight[:, 0], constant=added) if len(functions) == len(parts) else None


def _cut_off(node: onnx.NodeProto, constant: Constants) -> bool:
    """Return True if a node clips to 0 and 1."""
    ends = [constant(key) for key in node.input[1:]] if node.op_type == "Clip" else []
    return [value.tolist() for value in ends if value is not None] == [0.0, 1.0]


def ramps_of(mean: Mean, by_output: Nodes, constant: Constants) -> tuple[str, Ramps] | None:
    """Return the tensor of trees' scores in a sum, and its functions of these; None for a sum of anything else."""
    sources, parts, chances = set[str](), [], dict[int, bool]()
    for function in mean.functions:
        node, numbers = by_output.get(function.input[0]), list[Array]()
        is_shifted = function.op_type == "Clip" or (node is not None and node.op_type == "Mul")
        for op in ("Mul", "Sub") if is_shifted else ():
            number = constant(node.input[1]) if node is not None and node.op_type == op else None
            if node is None or number is None or number.ndim != 1:
                return None
            numbers.append(number.astype(np.float64))
            node = by_output.get(node.input[0])
        chance = node is not None and node.op_type == "Sigmoid"
        node = by_output.get(node.input[0]) if node is not None and chance else node
        place = constant(node.input[1]) if node is not None and node.op_type == "Gather" else None
        if node is None or place is None or place.ndim != 1 or place.dtype.kind == "f" or [a.i for a in node.attribute] != [1]:
            return None
        sources.add(str(node.input[0]))
        scale, shift = numbers or [np.ones(1), np.zeros(1)]
        conflict = any(chances.setdefault(k, chance) != chance for k in place.tolist())
        if conflict or len({len(place), len(scale), len(shift)} - {1}) > 1:
            return None
        parts.append(np.broadcast_arrays(place, shift, scale, function.op_type == "Sigmoid"))
    score, shift, scale, logistic = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    source = by_output.get(next(iter(sources)))
    inputs = list(source.input) if source is not None and source.op_type == "Concat" else list(sources)
    trees = [n for n in map(by_output.get, inputs) if n is not None and n.op_type in REGRESSORS]
    if len(sources) > 1 or len(trees) != 1 or len(score) != len(mean.weight):
        return None
    if not np.isfinite([shift, scale]).all() or not (scale > 0).all() or not all(0 <= one < MANY for one in score.tolist()):
        return None
    from encoders.trees.mean import Ramps  # loaded only for such models

    is_chance = np.array([chances.get(k, False) for k in range(int(score.max()) + 1)])
    return sources.pop(), Ramps(chances=is_chance, score=score.astype(np.int64), logistic=logistic, shift=shift, scale=scale,
                              weight=mean.weight, constant=mean.constant)
