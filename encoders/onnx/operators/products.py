"""Products: by constants, which are affine, and of the data with itself, which are squares.

    x y = ((x + y)^2 - (x - y)^2) / 4        x^2 is one square, not two

both equalities of real numbers. Where x and y read the same columns and one is by far the larger, rounding their sum to float64
would lose the other, so x / s and s y are added, s a power of 2. No tensor of the stored graph holds the squares: the import check
computes them, and compares the node's output.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from encoders.arrays import Array
from encoders.curves.layer import Curve
from encoders.exact.affine import exact
from encoders.onnx.operators.affine import broadcast, carried, level, neurons, together
from encoders.onnx.operators.convolution import joined
from encoders.onnx.tensor import OnnxNode, Result, Tensor, concatenated

MOST_FACTORS = 8
"""The most factors of one product: each makes the network a layer deeper, and multiplies the sizes of its numbers."""
UNEVEN = 24
"""If the sizes of two factors differ by so many powers of 2, their rounded sum has a larger error than float32."""


def _product(node: OnnxNode, x: Tensor, y: Tensor) -> Tensor:
    """x y, entry by entry."""
    shallow, deep = sorted(together(node, x, y), key=lambda tensor: level(node, tensor))
    if level(node, shallow) < level(node, deep):
        shallow = carried(node, shallow)
    difference = deep.plus(-shallow)
    if not difference.is_float and (scale := _between(deep, shallow)).any():
        deep, shallow = (x.scale(exact(np.exp2(sign * scale)), operations=0) for x, sign in ((deep, -1), (shallow, 1)))
        difference = deep.plus(-shallow)
    differs = difference.const.nonzero.copy()
    for term in difference.terms.values():
        differs[term.row[term.entries.nonzero]] = True
    first, equal = np.flatnonzero(differs)[None], np.flatnonzero(~differs)[None]
    m = first.size
    pre = concatenated([deep.plus(shallow).take(first), difference.take(first), deep.take(equal)])
    squares = neurons(node, pre, 1.0, Curve.SQUARE)
    sums, differences, single = (squares.take(part[None]) for part in np.split(np.arange(pre.size), [m, 2 * m]))
    result = concatenated([sums.plus(-differences).scale(exact(np.full(m, 0.25))), single])
    return result.take(np.argsort(np.concatenate([first, equal], axis=1)[0]).reshape(deep.index.shape))


def _between(x: Tensor, y: Tensor) -> Array:
    """Return (m,) half the powers of 2 between the sizes of the entries of x and y, 0 where these are near each other."""
    sizes = []
    for tensor in (x, y):
        sizes.append(tensor.const.size.copy())
        for term in tensor.terms.values():
            np.maximum.at(sizes[-1], term.row, term.entries.size)
    valid = (np.minimum(*sizes) > 0) & np.isfinite(np.maximum(*sizes))
    gap = np.subtract(*np.log2(np.where(valid, sizes, 1.0)))
    return np.where(np.abs(gap) > UNEVEN, np.rint(gap / 2), 0.0)


def _mul(node: OnnxNode) -> Tensor:
    first, second = node.inputs
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return _product(node, first, second)
    tensor, constant = (0, 1) if isinstance(first, Tensor) else (1, 0)
    x, factor = broadcast(node, node.tensor(tensor), node.weight(constant))
    return x.scale(factor)


def _pow(node: OnnxNode) -> Tensor:
    exponent = np.asarray(node.constant(1)).astype(np.float64)
    if not exponent.size or (exponent != 2).any():
        raise node.error(f"raises to the power {exponent.ravel()[:1].sum():g}; supported is 2")
    x, _ = broadcast(node, node.tensor(0), exponent)
    return _product(node, x, x)


def _reduce_product(node: OnnxNode) -> Tensor:
    windows, shape = joined(node, node.tensor(0))
    if windows.shape[1] > MOST_FACTORS:
        raise node.error(f"multiplies {windows.shape[1]} numbers, a layer each; supported are {MOST_FACTORS}")
    factors = [node.tensor(0).take(windows[None, :, k]) for k in range(windows.shape[1])]
    result = factors[0]
    for factor in factors[1:]:
        result = _product(node, result, factor)
    return result.take(result.index.reshape(1, *shape))


PRODUCTS: dict[str, Callable[[OnnxNode], Result]] = {"Mul": _mul, "Pow": _pow, "ReduceProd": _reduce_product}
