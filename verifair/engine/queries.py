"""The questions that can be asked of a model, in the schema's names. Each is a frozen dataclass; `verifair.verify` answers it.

model: whatever `verifair.read` takes; the question holds the model that was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any, Literal, get_args

import numpy as np

from encoders.arrays import Array
from encoders.model import Model
from encoders.probability.logistic import SMALLEST
from encoders.probability.shares import logistic
from encoders.trees.mean import MeanOfTrees
from verifair.checker.certificates.kmax import of_probability
from verifair.checker.certificates.statement import Scale, Signs, signs_flaw
from verifair.engine.exchange import MAX_COMBINATIONS, Exchange
from verifair.engine.search.ready import ready
from verifair.errors import QueryError
from verifair.models.field import MODEL, ModelField
from verifair.notebook.shown import Shown
from verifair.schema.schema import Feature, Schema

Arithmetic = Literal["real", "float32"]
Quantity = Literal["probability", "log-odds", "value"]


@dataclass(frozen=True, kw_only=True, repr=False)
class PersistentBias(Shown):
    """The question: is the network more confident in x than in its counterfactual x', throughout the neighbourhood?  (PBA, eq. 1-8)

        min over |z_num - z~_num| <= delta units of   (f_ci - f_cj)(x) - (f_ci - f_cj)(x')   > 0

    x' is x with another value of `protected`; all other features, and the perturbation, are the same. The goal *observed* is this
    inequality, *flipped* is the same with x and x' exchanged.
    protected: a feature, or several whose values are all exchanged at once (their intersection).
    delta: sizes of the neighbourhood, in units of each feature (the schema's `unit`).
    arithmetic: "real", or "float32" for proofs that also hold for every float32 evaluation (see docs/concepts/float32.md).
    """

    model: ModelField = MODEL
    schema: Schema
    protected: str | Sequence[str]
    delta: Sequence[float]
    arithmetic: Arithmetic = "real"

    def __post_init__(self) -> None:
        _settle(self)
        _check_arithmetic(self.model, self.arithmetic)
        _check_exchanged(self.schema, self.protected)
        object.__setattr__(self, "delta", _sizes(self.delta))

    @cached_property
    def exchange(self) -> Exchange:
        """The values that counterfactuals may have."""
        return Exchange.of(self.schema, self.protected)


@dataclass(frozen=True, kw_only=True, repr=False)
class Robustness(Shown):
    """The question: does the decision on x survive every perturbation in the neighbourhood?  (robustness bias RB, Nanda et al.
    2021)

    protected: features that never move; the same is then also asked of every counterfactual of x (*flipped*).
    delta, arithmetic: as in `PersistentBias`.
    """

    model: ModelField = MODEL
    schema: Schema
    delta: Sequence[float]
    protected: str | Sequence[str] | None = None
    arithmetic: Arithmetic = "real"

    def __post_init__(self) -> None:
        _settle(self)
        _check_arithmetic(self.model, self.arithmetic)
        if self.protected is not None:
            _check_exchanged(self.schema, self.protected)
        object.__setattr__(self, "delta", _sizes(self.delta))

    @cached_property
    def exchange(self) -> Exchange | None:
        """The values that counterfactuals may have."""
        return None if self.protected is None else Exchange.of(self.schema, self.protected)


@dataclass(frozen=True, kw_only=True, repr=False)
class PairQuestion(Shown):
    """A question about all pairs of rows of a box that differ in protected values.

    protected: features that differ between the two rows: all of them (Fairify), or with differ="any" at least one.
    box: feature -> value or (low, high), in raw units or category names; every other feature ranges over its whole domain.
    relax: feature -> width, for features that may differ as well (Fairify's relaxed variant): integer features by up to `width` of
    their own values, ordered categories by `width` steps, any categories freely with "any".
    """

    model: ModelField = MODEL
    schema: Schema
    protected: Sequence[str]
    box: Mapping[str, Any] = field(default_factory=dict)
    differ: str = "all"
    relax: Mapping[str, Any] = field(default_factory=dict)

    @property
    def pinned(self) -> list[int]:
        """Positions of relaxed features that need a question for every pair of values: all of them for trees; for networks those
        whose differences are no constant shift of a column (categories, scaled numbers)."""
        index, trees = [self.schema.index(name) for name in self.relax], self.model.of_trees
        return [v for v in index if trees or not _unscaled(self.schema.features[v])]

    def require_shifts(self, what: str) -> None:
        """Raise QueryError if a relaxed feature is `pinned`, which the question `what` does not support."""
        if self.pinned and self.model.of_trees:
            raise QueryError(f"{what} of a tree ensemble relaxes nothing; drop relax, or ask certify of a --box")
        if self.pinned:
            names = " and ".join(self.schema.features[v].name for v in self.pinned)
            raise QueryError(f"{what} relaxes unscaled integer features alone, not {names}; drop it, or ask certify of a --box")

    @property
    def odds(self) -> bool:
        """True if the question is about probabilities or log-odds, and not about decisions."""
        return False

    @property
    def gaps(self) -> bool:
        """True if the question is about a gap, and not about flips of decisions."""
        return True

    @property
    def scale(self) -> Scale:
        """The scale of the question: probabilities, or the model's own outputs: values, log-odds, shares of votes."""
        return "probability" if logistic(self.model) and self.schema.outcome.of != "value" else "logit"

    @property
    def quantity(self) -> Quantity:
        """The name of the quantity that is compared between the two rows."""
        if self.scale == "probability":
            return "probability"
        if self.schema.outcome.of == "value":
            return "value"
        return "log-odds" if logistic(self.model) else "probability"

    @property
    def thresholds(self) -> list[tuple[int, int]]:
        """Pairs (k + 1, k) of decisions, one for each threshold "k + 1 or higher" at which no decision may flip."""
        return [(k + 1, k) for k in range(self.model.outputs)] if self.model.ordered else [(1, 0)]

    def __post_init__(self) -> None:
        _settle(self)
        _judge(self, odds=self.odds)
        _check_pairs(self.schema, self.protected, self.differ)
        object.__setattr__(self, "relax", _relaxed(self.schema, self.protected, self.relax))


@dataclass(frozen=True, kw_only=True, repr=False)
class IndividualFairness(PairQuestion):
    """The question: is nobody in the box treated differently when protected values change?  (HyFair, 2-discrimination; Fairify)

    epsilon: None: no decision flips. A number: the probability of the positive class never differs by more than that (HyFair); for
    forests their share of votes is meant, for regression models the value.
    signs: the rule for flips. "deployed": the logit is above 0 for one row and not for the other, as the model decides (with two
    logits: the positive one is the larger; a tie is negative). "strict": above 0 for one and below 0 for the other (Fairify).
    classes: "favourable": a flip is between favourable and other decisions. "any": between any two of several classes (a tie goes
    to the lower one). With a single score both mean the schema's threshold.
    arithmetic: as in `PersistentBias`. The other fields are those of `PairQuestion`.
    """

    epsilon: float | None = None
    signs: Signs = "deployed"
    classes: Literal["favourable", "any"] = "favourable"
    arithmetic: Arithmetic = "real"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classes not in ("favourable", "any"):
            raise QueryError(f"classes = {self.classes!r}, expected 'favourable' or 'any'")
        if self.classes == "any" and (self.epsilon is not None or self.signs != "deployed"):
            raise QueryError("classes = 'any' is about decisions as the model makes them: drop epsilon, or signs")
        if self.classes == "any":
            object.__setattr__(self, "model", self.schema.compares(self.model))
        _check_arithmetic(self.model, self.arithmetic)
        if self.signs not in get_args(Signs):
            raise QueryError(f"signs = {self.signs!r}, expected 'deployed' or 'strict'")
        if (flaw := signs_flaw(self.signs, self.model)) is not None:
            raise QueryError(f"signs = 'strict': {flaw}; drop it")
        if self.epsilon is not None and self.signs != "deployed":
            raise QueryError("signs say when a decision flips, and epsilon asks about probabilities: drop one of the two")
        if self.epsilon is not None and self.scale == "logit" and not 0 < self.epsilon < np.inf:
            raise QueryError(f"epsilon = {self.epsilon}: expected how far a {self.quantity} may move, a number above 0")
        if self.epsilon is not None and not logistic(self.model) and self.epsilon >= 1:
            raise QueryError(f"epsilon = {self.epsilon}: expected how far a {self.quantity} may move, a number below 1")
        if self.epsilon is not None and self.scale == "probability" and not SMALLEST <= self.epsilon <= 1 - SMALLEST:
            raise QueryError(
                f"epsilon = {self.epsilon:g}: expected a gap between two probabilities, a number above 0 and below 1 (from "
                f"{SMALLEST} to 1 - {SMALLEST}), such as 0.1"
            )

    @property
    def odds(self) -> bool:
        return self.epsilon is not None and self.schema.named(self.model).outcome.of != "value"

    @property
    def gaps(self) -> bool:
        return self.epsilon is not None

    def require_favourable(self, what: str) -> None:
        """Raise QueryError for classes="any", which the question `what` does not support."""
        if self.model.ordered and self.model.outputs > 1:
            raise QueryError(f"classes = 'any': {what} is about favourable decisions; ask vf.verify, or certify with a box")

    @property
    def epsilon_scale(self) -> Scale | None:
        """The scale of epsilon; None for questions about decisions."""
        return None if self.epsilon is None else self.scale

    @property
    def epsilon_of(self) -> Quantity | None:
        """The name of the quantity that may differ by at most epsilon; None for questions about decisions."""
        return None if self.epsilon is None else self.quantity

    @property
    def rule(self) -> Signs | None:
        """The rule for flips (`signs`); None for questions about probabilities."""
        return self.signs if self.epsilon is None else None


@dataclass(frozen=True, kw_only=True, repr=False)
class ProbabilityGap(PairQuestion):
    """The largest gap between the probabilities of two people who differ in protected values.  (HyFair, max |F(x,z) - F(x,z')|)

    scale: "probability", or "logit" for the gap between log-odds; shares of votes, means and the values of a regression model are
    compared as they are with either. The other fields are those of `PairQuestion`. `verifair.verify` answers with a pair
    (a lower bound) and a certified upper bound.
    """

    scale: Scale = "probability"

    @property
    def odds(self) -> bool:
        return self.schema.named(self.model).outcome.of != "value"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale not in ("probability", "logit"):
            raise QueryError(f"scale = {self.scale!r}, expected 'probability' or 'logit'")
        if not (self.odds and logistic(self.model)):    # its own outputs are compared: values, shares of votes, or means
            object.__setattr__(self, "scale", "logit")
        if self.scale == "logit" and self.model.ensemble is not None and not self.model.piecewise_linear:
            raise QueryError(
                "scale = 'logit': the model is a tree ensemble of several classes, of whose log-odds no gap is bounded; drop "
                "--logit, or ask with scale = 'probability', for the largest gap between two probabilities"
            )


@dataclass(frozen=True, kw_only=True, repr=False)
class KDiscrimination(Shown):
    """The largest number of outcome buckets of one person, over all protected combinations.  (HyFair, k-discrimination)

    buckets: number B of outcomes. 2: the two decisions of the model. More: equal parts (i / B, (i + 1) / B] of [0, 1] (the first
    includes 0) for the probability of decision 1 (with several classes: of the favourable ones together, by softmax).
    protected: features whose values are all combined.   box: as in `PairQuestion`.
    values: protected feature -> the raw values to combine (default: all legal ones), e.g. {"age": range(10, 100, 10)}.
    """

    model: ModelField = MODEL
    schema: Schema
    protected: Sequence[str]
    box: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Sequence[float]] = field(default_factory=dict)
    buckets: int = 20

    def __post_init__(self) -> None:
        _settle(self)
        _judge(self, odds=self.probable)
        _check_pairs(self.schema, self.protected, "all")
        if not 2 <= self.buckets <= 1000:
            raise QueryError(f"buckets = {self.buckets}: expected between 2 and 1000 outcome buckets")
        for name, chosen in self.values.items():
            if name not in self.protected:
                raise QueryError(f"values are given for {name!r}, which is not among the protected {', '.join(self.protected)}")
            legal = set(self.schema.values(name).tolist())
            wrong = [value for value in chosen if float(value) not in legal]
            if wrong or len(set(map(float, chosen))) < 2:
                raise QueryError(
                    f"values of {name!r}: {list(chosen)}, expected at least two different legal values"
                    + (f"; {wrong[0]} is not one" if wrong else "")
                )

    @property
    def probable(self) -> bool:
        """True if the buckets are intervals of a probability, and not the two decisions."""
        return of_probability(self.buckets, self.schema, self.model)

    def combinations(self) -> Array:
        """Return all protected combinations (K, P), raw values in the order of `protected`. Raises QueryError beyond
        MAX_COMBINATIONS."""
        lists = [np.asarray(list(self.values.get(name, self.schema.values(name))), dtype=np.float64) for name in self.protected]
        count = int(np.prod([len(values) for values in lists]))
        if count > MAX_COMBINATIONS:
            raise QueryError(
                f"{' and '.join(self.protected)} have {count} combinations; list fewer with values, at most {MAX_COMBINATIONS}"
            )
        return np.array(list(product(*lists)), dtype=np.float64)


Query = PersistentBias | Robustness | IndividualFairness | ProbabilityGap | KDiscrimination


def _settle(query: Any) -> None:
    """Replace the query's model and schema by the result of `Schema.settled`."""
    ready(query.model)
    network, schema = query.schema.settled(query.model)
    object.__setattr__(query, "model", network)
    object.__setattr__(query, "schema", schema)


def _judge(query: Any, *, odds: bool) -> None:
    """Replace a settled query's model by one with a single margin, above 0 for decision 1.   odds: the margin is its log-odds."""
    object.__setattr__(query, "model", query.schema.judges(query.model, odds=odds))


def _check_exchanged(schema: Schema, protected: str | Sequence[str]) -> None:
    names = [protected] if isinstance(protected, str) else list(protected)
    if not names or len(set(names)) < len(names):
        raise QueryError(f"protected = {protected!r}: expected a feature, or several, each named once")
    _check(schema, names)


def _check(schema: Schema, protected: Sequence[str]) -> None:
    for name in protected:
        feature = schema.features[schema.index(name)]
        if len(schema.values(name)) < 2:
            raise QueryError(f"feature {name!r} has a single legal value, so nothing can be flipped; widen its range or categories")
        if feature.kind == "real":
            raise QueryError(f"feature {name!r} is real-valued and cannot be flipped; declare it integer, categorical or one-hot")


def _check_arithmetic(network: Model, arithmetic: str) -> None:
    if arithmetic not in ("real", "float32"):
        raise QueryError(f"arithmetic = {arithmetic!r}, expected 'real' or 'float32'")
    if arithmetic == "float32" and not network.knows_float32:
        if isinstance(network, MeanOfTrees):
            reason = f"no error is specified of {network.kind} in float32"
        elif not network.whole.piecewise_linear:
            reason = "the network has smooth layers, of whose float32 values no error is specified"
        elif not network.piecewise_linear:
            reason = "no error is specified of the softmax of several classes in float32"
        else:
            reason = ("it is not known how float32 rounds the model: it was not read from an ONNX file, computes in other types "
                      "too, or computes weights from constants")
        raise QueryError(f"arithmetic = 'float32': {reason}; ask with arithmetic = 'real'")


def _check_pairs(schema: Schema, protected: Sequence[str], differ: str) -> None:
    if isinstance(protected, str):
        raise QueryError(f"protected = {protected!r}: expected a list of names, [{protected!r}]")
    if not protected:
        raise QueryError("individual fairness needs a protected feature: pass protected=[...] or --protected NAME")
    if len(set(protected)) < len(protected):
        raise QueryError(f"protected features {', '.join(protected)}: one is named twice; name each once")
    _check(schema, protected)
    if differ not in ("all", "any"):
        raise QueryError(f"differ = {differ!r}, expected 'all' or 'any'")


def _unscaled(feature: Feature) -> bool:
    """Return True if the network takes the feature's whole numbers, or codes, unscaled."""
    return feature.kind in ("integer", "categorical") and feature.affine == (0.0, 1.0)


def _relaxed(schema: Schema, protected: Sequence[str], relax: Mapping[str, Any]) -> dict[str, int]:
    """Return relaxed feature -> width as a number. Raises QueryError for features or widths that do not fit the schema."""
    widths = {}
    for name, width in relax.items():
        feature = schema[name]
        if name in protected:
            raise QueryError(f"feature {name!r} is protected, so it differs anyway; drop it from relax")
        if feature.kind == "real":
            raise QueryError(f"feature {name!r} cannot be relaxed: its values are no whole numbers, which are tried one by one")
        last = len(feature.categories or ()) - 1
        if feature.categories is not None and not feature.ordered and width != "any" and not int(width) >= last:
            raise QueryError(f"relax {name!r} by {width}: its categories have no order; say any, or ordered = true in the schema")
        if width == "any" and feature.categories is None:
            raise QueryError(f"relax {name!r} by any: that is said of categories; expected a number of units from 1 to 100")
        widths[name] = width = max(last, 1) if width == "any" else width
        if isinstance(width, str) or not (float(width).is_integer() and 1 <= width <= 100):
            raise QueryError(f"relax {name!r} by {width}: expected a whole number of units from 1 to 100")
        low, high = feature.range or (0.0, 0.0)
        if _unscaled(feature) and max(-low, high) + width > 2**24:
            raise QueryError(f"feature {name!r} cannot be relaxed: beyond 2**24 float32 has no room for single units; rescale it")
    return widths


def _sizes(delta: Sequence[float]) -> tuple[float, ...]:
    """Return the distinct neighbourhood sizes. Raises QueryError for an empty list, and for anything but numbers of 0 or more."""
    if not len(delta):
        raise QueryError("delta is empty: pass at least one neighbourhood size in units, e.g. delta=[1, 2, 3]")
    for value in delta:
        if not 0 <= value < float("inf"):
            raise QueryError(f"delta = {value}: expected a finite number of units, 0 or more")
    return tuple(dict.fromkeys(delta))
