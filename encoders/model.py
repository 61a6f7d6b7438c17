"""What is known of every model, whatever it is made of: its inputs, outputs, classes, source and evaluation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from html import escape
from typing import TYPE_CHECKING, Self

import numpy as np

from encoders.arrays import Array, Booleans, Integers, Numbers
from encoders.errors import ModelError

if TYPE_CHECKING:
    from encoders.decision import Decision
    from encoders.network import Network
    from encoders.trees.ensemble import TreeEnsemble


class Link(Enum):
    """The function that the graph applies to the logits: users of the model see link(logits)."""

    IDENTITY = "identity"
    SIGMOID = "sigmoid"
    SOFTMAX = "softmax"
    LOG_SOFTMAX = "log-softmax"
    SHARES = "shares"  # no function: logits are shares of votes, see `encoders.probability.shares`


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
    def programs(self) -> tuple[str, ...]:
        """The methods, of lp, milp and smt, whose programs can encode the model; with lp also neuron branching."""
        return ()

    @property
    def ensemble(self) -> TreeEnsemble | None:
        """The trees whose sums are its scores: the model itself, or the one before a decision; None for networks and for means."""
        return None

    @property
    def of_trees(self) -> bool:
        """True for models of trees, whose decisions change only at thresholds."""
        return self.ensemble is not None

    @property
    def asking(self) -> int:
        """The number of trees with a split. A constant that is added, such as -1/2 to a share of votes, is a tree without one."""
        return 0 if self.ensemble is None else self.ensemble.asking

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

    def layered(self, what: str) -> Network:
        """Return the model as a network. Raises ModelError for others: `what`, a noun ("method milp"), needs layers."""
        raise ModelError(self.source or "model", f"is {self.kind}, not supported by {what}: see docs/concepts/models.md")

    def require_piecewise_linear(self, what: str) -> Network:
        """Return the model if it is a piecewise-linear network. Raises ModelError or CurveError: `what` needs such a network."""
        return self.layered(what).require_piecewise_linear(what)

    def with_columns(self, place: Integers, columns: int) -> Self:
        """Return the model, as it was read, over more columns (a one-hot block may lack one): it reads its n, at `place` (n,)."""
        feeds = (replace(feed, start=np.where(feed.start == NO_COLUMN, NO_COLUMN, place[feed.start])) for feed in self.feeds)
        return replace(self, feeds=tuple(feeds))

    @abstractmethod
    def forward(self, x: Numbers) -> Numbers:
        """Return logits of a batch x (B, n_0), in the arithmetic of x: float64 arrays, or `Dyadic` batches for exact ones."""

    @abstractmethod
    def surely_equal(self, x: Array, x_prime: Array) -> Booleans:
        """Return (B,) True if the logits of rows x, x' (B, n_0) are surely equal, as the model does not read what differs."""
