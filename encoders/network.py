"""The network as arrays: a chain of affine layers with piecewise-linear or smooth activations.

Every network that verifair reads is brought into one shape,

    a_k = W_k y_{k-1} + b_k,        y_k = s_k * a_k + (1 - s_k) * max(a_k, 0),        k = 1 ... N,

with a slope s in [0, 1] for every neuron: 0 is ReLU, 0 < s < 1 is LeakyReLU, 1 is the identity. The last layer has
slope 1 everywhere; its values are the *logits*. What comes after the logits (sigmoid, softmax) is the `link` and never
enters the arithmetic: all decisions and proofs are about logits.

A hidden layer may be an `encoders.curves.layer.SmoothLayer`, some of whose neurons are curves: sigmoid, tanh, GELU ... Such a
network has no exact values, only enclosures (`encoders.exact.balls`); most other methods need the kinks of piecewise-linear ones.
So a smooth layer has no `slope`: reading it raises CurveError, so that code which does not support curves refuses them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import singledispatch
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from encoders.arrays import Array, Booleans, Integers, Numbers
from encoders.errors import CurveError
from encoders.model import Model


@dataclass(frozen=True, kw_only=True, eq=False)
class Layer:
    """One affine map and its activation: weight (m, n), bias (m,), slope (m,), all float64, slope within [0, 1]."""

    weight: Array
    bias: Array
    slope: Array

    def __post_init__(self) -> None:
        m, _ = self.weight.shape
        if self.bias.shape != (m,) or self.slope.shape != (m,):
            raise ValueError(f"weight {self.weight.shape}, bias {self.bias.shape} and slope {self.slope.shape} do not fit")
        if not (np.isfinite(self.weight).all() and np.isfinite(self.bias).all()):
            raise ValueError("weights must be finite")
        if not ((self.slope >= 0) & (self.slope <= 1)).all():
            raise ValueError("activation slopes must lie in [0, 1]")

    @property
    def linear(self) -> bool:
        """True if the layer is affine without an activation, such as the last one."""
        return bool((self.slope == 1).all())

    @property
    def piecewise_linear(self) -> bool:
        """False when some neuron is a smooth curve (`encoders.curves.layer.SmoothLayer`)."""
        return True

    @property
    def shown(self) -> str:
        """The kinds of its activations, for messages."""
        return "piecewise linear"

    def activated(self, a: Array) -> Array:
        """Return the layer's outputs (..., m) for float64 pre-activations a (..., m)."""
        return np.where(a > 0, a, self.slope * a)


ONLY_BENT = (
    "What was asked needs a piecewise-linear model (linear, ReLU, LeakyReLU ...). Of one with curves verifair decides pba, certify "
    "and partitions, by --method bnb or auto, kmax, explain, guard, fgce, cst and cec; the rest needs such a model. See "
    "docs/concepts/smooth.md"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Rounding:
    """Roundings of float32 arithmetic in the pre-activations of one layer (`encoders.bounds.float32` bounds their effect).

    size: (m, n), bias_size: (m,) sums of |contributions| to each weight and bias before any of them cancel (see `Exact.size`);
    size None: those of the weights are |weight|.   operations: roundings on the longest path to a neuron.
    reach: no sum of |contributions| on it exceeds reach times the largest |input|, or reach if that is below 1.
    """

    size: Array | None
    bias_size: Array
    operations: int
    reach: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Network(Model):
    """A feed-forward network.

    The weights are the stored float32 weights as float64 (the same numbers). Where a reader had to fold several stored
    constants into one weight and the result was no float64, it was rounded once and the ONNX node is named in `rounded`.
    `rounding` describes the float32 roundings of each layer. None: not known (the network was not read from a file, or its graph
    computes in other types as well), so that there is no bound for a float32 runtime.
    """

    layers: tuple[Layer, ...]
    rounding: tuple[Rounding, ...] | None = None

    def __post_init__(self) -> None:
        if not self.layers or not self.layers[-1].linear:
            raise ValueError("a network needs at least one layer, and the last must be affine (slope 1): its values are the logits")
        for layer, rounding in zip(self.layers, self.rounding or (), strict=self.rounding is not None):
            size = layer.weight if rounding.size is None else rounding.size
            if (size.shape, rounding.bias_size.shape) != (layer.weight.shape, layer.bias.shape):
                raise ValueError("the record of its rounding does not fit a layer")
        for below, above in zip(self.layers, self.layers[1:], strict=False):
            if above.weight.shape[1] != below.weight.shape[0]:
                raise ValueError(f"layer widths do not fit: {below.weight.shape[0]} then {above.weight.shape[1]}")

    @property
    def inputs(self) -> int:
        return int(self.layers[0].weight.shape[1])

    @property
    def outputs(self) -> int:
        return int(self.layers[-1].weight.shape[0])

    @property
    def hidden(self) -> tuple[int, ...]:
        return tuple(int(layer.weight.shape[0]) for layer in self.layers[:-1])

    @property
    def built(self) -> str:
        kinds = ", ".join(dict.fromkeys(layer.shown for layer in self.layers[:-1])) or "affine"
        weights = sum(layer.weight.size + layer.bias.size for layer in self.layers)
        return f"hidden layers of {' and '.join(f'{m:,}' for m in self.hidden) or 'no'} neurons ({kinds}), {weights:,} weights"

    @property
    def piecewise_linear(self) -> bool:
        """False when some hidden layer is smooth."""
        return all(layer.piecewise_linear for layer in self.layers)

    @property
    def programs(self) -> tuple[str, ...]:
        return ("lp", "milp", "smt") if self.piecewise_linear else ()

    @property
    def work(self) -> int:
        return sum(layer.weight.size for layer in self.layers)

    @property
    def knows_float32(self) -> bool:
        return self.rounding is not None and self.piecewise_linear

    def layered(self, what: str) -> Network:
        return self

    def require_piecewise_linear(self, what: str) -> Network:
        """Return the network if it is piecewise linear. Raises CurveError naming the layer.   what: the method that needs it."""
        for number, layer in enumerate(self.layers, start=1):
            if not layer.piecewise_linear:
                problem = f"hidden layer {number} has {layer.shown} neurons, not supported by {what}. {ONLY_BENT}"
                soft = f"probabilities of several classes are not supported by {what}: ask about decisions, or by --method auto"
                raise CurveError(self.source or "network", soft if self.whole.piecewise_linear else problem)
        return self

    def with_columns(self, place: Integers, columns: int) -> Self:
        pick = np.eye(columns)[place]  # 0 and 1, so that products are exact; `replace` would read a smooth layer's slope
        (first, *others), records = self.layers, self.rounding
        if records is not None and records[0].size is not None:
            records = (replace(records[0], size=records[0].size @ pick), *records[1:])
        wide = type(first)(**{**vars(first), "weight": first.weight @ pick})
        return replace(super().with_columns(place, columns), layers=(wide, *others), rounding=records)

    def forward(self, x: Numbers) -> Numbers:
        """Return logits of a batch x (B, n_0), in the arithmetic of x.

        float64 arrays give float64 logits; object arrays of `fractions.Fraction` give exact ones; `Dyadic` batches
        (see `encoders.exact.dyadic`) give exact ones fast. Smooth networks have no exact logits (CurveError); `Balls` batches
        (see `encoders.exact.balls`) enclose those of any network. Evaluation and exact re-check share this one definition, so
        that they cannot differ.
        """
        for layer in self.layers:
            x = activate(affine(x, layer), layer)
        return x

    def surely_equal(self, x: Array, x_prime: Array) -> Booleans:
        reach = (x != x_prime).astype(np.float64) @ (self.layers[0].weight != 0).T.astype(np.float64)
        return np.asarray((reach == 0).all(axis=1))


@singledispatch
def affine(x: Any, layer: Layer) -> Any:
    """Return x W^T + b for a batch x (B, n) of any registered numeric type."""
    raise TypeError(f"no affine map for {type(x).__name__}")


@singledispatch
def activate(a: Any, layer: Layer) -> Any:
    """Return s * a + (1 - s) * max(a, 0), neuron by neuron, for a batch a (B, m) of any registered numeric type."""
    raise TypeError(f"no activation for {type(a).__name__}")


def _rational(values: Array) -> npt.NDArray[np.object_]:
    return np.array([Fraction(float(v)) for v in values.ravel()], dtype=object).reshape(values.shape)


@affine.register(np.ndarray)
def _(x: npt.NDArray[Any], layer: Layer) -> npt.NDArray[Any]:
    if x.dtype == object:
        return np.asarray(x @ _rational(layer.weight).T + _rational(layer.bias))
    return np.asarray(x @ layer.weight.T + layer.bias)


@activate.register(np.ndarray)
def _(a: npt.NDArray[Any], layer: Layer) -> npt.NDArray[Any]:
    return np.where(a > 0, a, _rational(layer.slope) * a) if a.dtype == object else layer.activated(a)
