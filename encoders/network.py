"""The network as arrays: a chain of affine layers with piecewise-linear or smooth activations.

Every network that verifair reads is brought into one shape,

    a_k = W_k y_{k-1} + b_k,        y_k = s_k * a_k + (1 - s_k) * max(a_k, 0),        k = 1 ... N,

with a slope s in [0, 1] for every neuron: 0 is ReLU, 0 < s < 1 is LeakyReLU, 1 is the identity. The last layer has
slope 1 everywhere; its values are the *logits*. What comes after the logits (sigmoid, softmax) is the `link` and never
enters the arithmetic: all decisions and proofs are about logits.

A hidden layer may be a `SmoothLayer`, some of whose neurons are y = sigma(a) or y = tanh(a). Such a network has no exact values,
only enclosures (`encoders.exact.balls`); most other methods need the kinks of piecewise-linear ones. So a smooth
layer has no `slope`: asking for it raises CurveError, and whatever knows nothing of curves refuses instead of answering wrongly.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import singledispatch
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from encoders.curves import Curve, Kinds, value
from encoders.errors import CurveError
from encoders.feed import Feed

Array = npt.NDArray[np.float64]
Numbers = TypeVar("Numbers")


class Link(Enum):
    """What the graph applies to the logits: the values that the model's user sees are link(logits)."""

    IDENTITY = "identity"
    SIGMOID = "sigmoid"
    SOFTMAX = "softmax"
    LOG_SOFTMAX = "log-softmax"


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
        """True when the layer has no kink at all (an identity layer, such as the last one)."""
        return bool((self.slope == 1).all())


@dataclass(frozen=True, kw_only=True, eq=False, init=False)
class SmoothLayer(Layer):
    """A layer with sigmoid or tanh neurons: curve (m,) says which (`Curve`), bend (m,) is the slope of those that are BENT
    (residual connections carry identity neurons beside smooth ones) and 1 for the others.

    Reading `slope` raises CurveError: see the module.
    """

    bend: Array
    curve: Kinds

    def __init__(self, *, weight: Array, bias: Array, bend: Array, curve: Kinds) -> None:
        for name, given in (("weight", weight), ("bias", bias), ("bend", bend), ("curve", curve)):
            object.__setattr__(self, name, given)  # as dataclasses set the fields of what is frozen
        Layer(weight=weight, bias=bias, slope=bend)  # the same must hold
        if curve.shape != bias.shape or not np.isin(curve, [one.value for one in Curve]).all() or not curve.any():
            raise ValueError(f"curve {curve!r}: expected a kind for each of {len(bias)} neurons, not all of them bent")

    @property  # type: ignore[misc]
    def slope(self) -> Array:
        raise CurveError("network", f"it has {self.shown} neurons in a hidden layer. {ONLY_BENT}")

    @property
    def linear(self) -> bool:
        return False

    @property
    def smooth(self) -> npt.NDArray[np.bool_]:
        """(m,) which neurons are curves."""
        return np.asarray(self.curve != Curve.BENT)

    @property
    def sigmoid(self) -> npt.NDArray[np.bool_]:
        """(m,) which neurons are sigmoids."""
        return np.asarray(self.curve == Curve.SIGMOID)

    @property
    def shown(self) -> str:
        """The kinds of its curves, for messages."""
        return " and ".join(Curve(kind).shown for kind in np.unique(self.curve[self.curve != Curve.BENT]))


ONLY_BENT = (
    "What was asked needs a piecewise-linear network (ReLU, LeakyReLU ...). Of one with smooth layers verifair decides certify, "
    "pba (with robustness) and partitions, by --method bnb or auto; for the rest train the network with ReLU. See docs/smooth.md"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """A feed-forward network.

    The weights are the stored float32 weights as float64 (the same numbers). Where a reader had to fold several stored
    constants into one weight and the result was no float64, it was rounded once and the ONNX node is named in
    `rounded`: proofs are then about the folded network, and every verdict says so.
    `output` is the ONNX tensor that the reader was told to read, or None where the model has one candidate only.
    `feeds` says how the input columns become the stored model's inputs; empty for a network that was not read from a file.
    `classes` are what a stored classifier calls its classes, in the order of its outputs (two for one logit, that of the second).
    """

    layers: tuple[Layer, ...]
    link: Link
    source_sha256: str
    source: str | None = None
    output: str | None = None
    rounded: tuple[str, ...] = ()
    feeds: tuple[Feed, ...] = ()
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.layers:
            raise ValueError("a network needs at least one layer")
        for below, above in zip(self.layers, self.layers[1:], strict=False):
            if above.weight.shape[1] != below.weight.shape[0]:
                raise ValueError(f"layer widths do not fit: {below.weight.shape[0]} then {above.weight.shape[1]}")
        if not self.layers[-1].linear:
            raise ValueError("the last layer must be affine (slope 1): its values are the logits")

    @property
    def inputs(self) -> int:
        """Number of input columns n_0."""
        return int(self.layers[0].weight.shape[1])

    @property
    def outputs(self) -> int:
        """Number of logits n_N."""
        return int(self.layers[-1].weight.shape[0])

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers, e.g. (500, 100)."""
        return tuple(int(layer.weight.shape[0]) for layer in self.layers[:-1])

    @property
    def piecewise_linear(self) -> bool:
        """False when some hidden layer is smooth."""
        return not any(isinstance(layer, SmoothLayer) for layer in self.layers)

    def require_piecewise_linear(self, what: str) -> None:
        """Raise CurveError, naming the layer, unless the network is piecewise linear. what: "neuron branching", say."""
        for number, layer in enumerate(self.layers, start=1):
            if isinstance(layer, SmoothLayer):
                found = f"hidden layer {number} has {layer.shown} neurons, which {what} cannot take"
                raise CurveError(self.source or "network", f"{found}. {ONLY_BENT}")

    def forward(self, x: Numbers) -> Numbers:
        """Logits of a batch x (B, n_0), in the arithmetic of x.

        float64 arrays give float64 logits; object arrays of `fractions.Fraction` give exact ones; `Dyadic` batches
        (see `encoders.exact.dyadic`) give exact ones fast. Smooth networks have no exact logits (CurveError); `Balls` batches
        (see `encoders.exact.balls`) enclose those of any network. One definition serves evaluation and exact re-check, so
        that the two cannot drift apart.
        """
        for layer in self.layers:
            x = activate(affine(x, layer), layer)
        return x


@singledispatch
def affine(x: Any, layer: Layer) -> Any:
    """x W^T + b for a batch x (B, n) of any registered numeric type."""
    raise TypeError(f"no affine map for {type(x).__name__}")


@singledispatch
def activate(a: Any, layer: Layer) -> Any:
    """s * a + (1 - s) * max(a, 0), neuron by neuron, for a batch a (B, m) of any registered numeric type."""
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
    if isinstance(layer, SmoothLayer) and a.dtype != object:
        return np.where(layer.curve == Curve.BENT, np.where(a > 0, a, layer.bend * a), value(a, layer.curve))
    slope = _rational(layer.slope) if a.dtype == object else layer.slope
    return np.where(a > 0, a, slope * a)
