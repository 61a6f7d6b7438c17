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

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from functools import singledispatch
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from encoders.errors import CurveError, ModelError

if TYPE_CHECKING:
    from encoders.decision import Decision

Array = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
Numbers = TypeVar("Numbers")


class Link(Enum):
    """The function that the graph applies to the logits: users of the model see link(logits)."""

    IDENTITY = "identity"
    SIGMOID = "sigmoid"
    SOFTMAX = "softmax"
    LOG_SOFTMAX = "log-softmax"
    SHARES = "shares"  # no function: logits are shares of votes, see `encoders.probability.shares`


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


NO_COLUMN = -1
Category = str | int | float


@dataclass(frozen=True, kw_only=True, eq=False)
class Feed:
    """One input of the stored model.

    kind: float32, float64, int64, int32 or text.   shape: its axes after the batch, holding w numbers or words.
    start: (w,) the network's column for each of them, -1 if the network has none (a word that the model does not use).
    categories: position -> the values that the model's encoder knows there. In the network such an entry is a one-hot
    block, with a column for each value in this order, from start[position] on.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    start: Integers
    categories: Mapping[int, tuple[Category, ...]] = field(default_factory=dict)

    @property
    def columns(self) -> int:
        """The number of network columns that become this input."""
        return int((self.start != NO_COLUMN).sum()) + sum(len(categories) - 1 for categories in self.categories.values())


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Model(ABC):
    """The common base of models: of a `Network`, and of a tree ensemble (`encoders.trees.ensemble`).

    link: applied to the logits.   source: the file, or a name where `stored` is the model's bytes.   source_sha256: its hash.
    `output` is the ONNX tensor that the reader was asked to read, or None where the model has one candidate only.
    `rounded` names nodes whose folded constants are no float64: proofs are about the folded model, and every verdict says so.
    `feeds` says how the input columns become the stored model's inputs; empty for a model that was not read from a file.
    `classes` are a stored classifier's names of its classes, in the order of its outputs (two for one logit, that of the second).
    `decision`: applied to the outputs (`encoders.decision`), `undecided`: the model before, `doubt`: why outputs may be no logits.
    """

    link: Link
    source_sha256: str
    source: str | None = None
    output: str | None = None
    rounded: tuple[str, ...] = ()
    feeds: tuple[Feed, ...] = ()
    classes: tuple[str, ...] = ()
    stored: bytes | None = field(default=None, repr=False)
    doubt: str = ""
    decision: Decision | None = None
    undecided: Model | None = field(default=None, repr=False)

    @property
    def ordered(self) -> bool:
        """True if output k is a margin that is above 0 exactly if the decision is class k + 1 or higher; so for one logit."""
        return self.outputs == 1 or self.decision is not None

    @property
    def whole(self) -> Model:
        """The model as it was read, before a decision was applied to its outputs."""
        return self.undecided or self

    @property
    @abstractmethod
    def inputs(self) -> int:
        """Number of input columns n_0."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Number of logits."""

    @property
    @abstractmethod
    def work(self) -> int:
        """Cost of one evaluation, in multiplications."""

    @property
    @abstractmethod
    def knows_float32(self) -> bool:
        """True if the rounding errors of a float32 runtime can be bounded for this model."""

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers, e.g. (500, 100); empty for models without neurons."""
        return ()

    @property
    def piecewise_linear(self) -> bool:
        """True if logits can be computed exactly: by sums, products and comparisons of stored numbers."""
        return True

    @property
    def programs(self) -> bool:
        """True if LP, MILP and SMT programs, and neuron branching, can encode the model."""
        return False

    @property
    def of_trees(self) -> bool:
        """True for models of trees, whose decisions change only at thresholds."""
        return False

    @property
    def kind(self) -> str:
        """Name of this kind of model, for messages that refuse it."""
        return "a tree ensemble"

    @property
    @abstractmethod
    def built(self) -> str:
        """Description of its parts, such as the widths of its layers."""

    @property
    def facts(self) -> dict[str, str]:
        """Return a summary for readers: fact -> words."""
        return {
            "made of": self.built, "input columns": f"{self.inputs:,}", "outputs": f"{self.outputs:,}",
            "output function": self.link.value, "classes": ", ".join(self.classes) or "without names",
            "source": self.source or "made here", "sha256": self.source_sha256,
        }  # fmt: skip

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inputs:,} input columns; {self.built}; {self.outputs:,} outputs)"

    def _repr_html_(self) -> str:
        """Return the facts as a table, for notebooks."""
        from encoders.text import visible_lines

        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(words)}</td></tr>" for name, words in self.facts.items())
        return visible_lines(f"<div><p><strong>{type(self).__name__}</strong></p><table>{rows}</table></div>")

    def require_piecewise_linear(self, what: str) -> Network:
        """Return the model if it is a piecewise-linear network. Raises ModelError or CurveError: `what` needs such a network."""
        return layered(self, what)

    @abstractmethod
    def forward(self, x: Numbers) -> Numbers:
        """Return logits of a batch x (B, n_0), in the arithmetic of x: float64 arrays, or `Dyadic` batches for exact ones."""

    @abstractmethod
    def surely_equal(self, x: Array, x_prime: Array) -> Booleans:
        """Return (B,) True if the logits of rows x, x' (B, n_0) are surely equal, as the model does not read what differs."""


def layered(model: Model, what: str) -> Network:
    """Return the model as a Network. Raises ModelError for others: `what`, a noun ("method milp"), needs layers."""
    if not isinstance(model, Network):
        raise ModelError(model.source or "model", f"is {model.kind}, not supported by {what}: see docs/concepts/models.md")
    return model


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
    def built(self) -> str:
        kinds = ", ".join(dict.fromkeys(layer.shown for layer in self.layers[:-1])) or "affine"
        weights = sum(layer.weight.size + layer.bias.size for layer in self.layers)
        return f"hidden layers of {' and '.join(f'{m:,}' for m in self.hidden) or 'no'} neurons ({kinds}), {weights:,} weights"

    @property
    def piecewise_linear(self) -> bool:
        """False when some hidden layer is smooth."""
        return all(layer.piecewise_linear for layer in self.layers)

    @property
    def programs(self) -> bool:
        return self.piecewise_linear

    @property
    def work(self) -> int:
        return sum(layer.weight.size for layer in self.layers)

    @property
    def knows_float32(self) -> bool:
        return self.rounding is not None and self.piecewise_linear

    def require_piecewise_linear(self, what: str) -> Network:
        """Return the network if it is piecewise linear. Raises CurveError naming the layer.   what: the method that needs it."""
        for number, layer in enumerate(self.layers, start=1):
            if not layer.piecewise_linear:
                problem = f"hidden layer {number} has {layer.shown} neurons, not supported by {what}. {ONLY_BENT}"
                soft = f"probabilities of several classes are not supported by {what}: ask about decisions, or by --method auto"
                raise CurveError(self.source or "network", soft if self.whole.piecewise_linear else problem)
        return self

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
