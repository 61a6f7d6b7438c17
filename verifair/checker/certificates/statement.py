"""The statements of certificates, and the queries that these answer. Everything is in raw units and schema order.

`verifair.checker.kinds.proofs` defines statements about rows and boxes. Counterfactual decisions are defined here:

The counterfactual of a raw row x under do(a := a') with coefficients theta, one for each term of the equations, in their order:

    x'_a = a'       x'_n = R_n( x_n + sum over terms of n  theta_t (h_t(x') - h_t(x)) )       x'_v = x_v otherwise

and x'_c as the statement gives it for a category c of the query. Of a logarithmic equation, x'_n = R_n( x_n exp(that sum) ) for
x_n > 0.
h_t is the parent's raw value, or values[parent] where the term lists them (a category's indicator, say). The noise of an equation
is additive and theta is the same in abduction and prediction, so noise and intercept cancel. R_n rounds to the equation's decimals,
half to even, then clips to its range; a node none of whose parents changed keeps its value. The network is asked about the row
that the schema allows: numbers of integer features rounded, half to even, and all clipped to the features' ranges.
All of this is exact arithmetic; what is then no float64 is rounded to the nearest.
"""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass as validated

from encoders.decision import Favoured
from encoders.model import Link, Model
from verifair.checker.certificates.envelope import Distance, Index, Number, Text
from verifair.checker.certificates.extent import NO_MORE

Interval = tuple[Number, Number]
Scale = Literal["probability", "logit"]
"""The scale of gaps: that of probabilities, or that of the model's own output (log-odds or values)."""
Signs = Literal["deployed", "strict"]
"""When a decision is positive. deployed: its margin is above 0 (several logits: argmax, ties to the lower class).
strict: as Fairify has it, above 0 is positive, below 0 negative, and a margin of exactly 0 is neither."""


def signs_flaw(signs: Signs | None, network: Model) -> str | None:
    """Return why strict signs cannot be asked: g = 0 is not the tie of votes, or ties go to the lowest class and g is never 0."""
    if signs == "strict" and isinstance(network.decision, Favoured) and network.decision.lowest:
        return "a tie between classes of trees goes to the lower one; strict signs give it to no side"
    votes = network.whole.ensemble is not None and network.whole.outputs == 1 and network.link is Link.SHARES
    return "shares of votes are on a threshold within 2^-25 of it; strict signs let 0 go" if votes and signs == "strict" else None


@validated(frozen=True, kw_only=True, config=NO_MORE)
class RowStatement:
    """A claim on the box of +-delta units around one row of raw values.

    The box moves every real or integer feature that has a unit and is neither protected (by the schema or the query) nor
    change = "fixed" by delta * unit, clipped to the feature's range; integer features take the whole values within.
    observed: g(x) - g(x') > 0. flipped: g(x') - g(x) > 0. robust (no prime): class i = classes[0] beats j = classes[1],
    g(x) >= 0 if i < j and g(x) > 0 if i > j (ties go to the smaller index).
    """

    goal: Literal["observed", "flipped", "robust"]
    row: tuple[Number, ...]
    delta: Distance
    classes: tuple[Index, Index]
    prime: dict[str, Number] = Field(default_factory=dict)


@validated(frozen=True, kw_only=True, config=NO_MORE)
class BoxStatement:
    """A claim on all rows x in [lower, upper] and x' that are legal. Protected features (those in prime) have lower = upper.

    no-flip: x is not decided i = classes[0] where x' is decided j. With the query's signs "deployed": not (g(x) > 0 >= g(x')) if
    i > j, not (g(x) >= 0 > g(x')) if i < j; with "strict": not (g(x) > 0 > g(x')).
    no-gap: sigma(g(x)) - sigma(g(x')) <= the query's epsilon (g(x) - g(x') on the logit scale).
    x' is x with the values in prime; relaxed features are shifted by the whole numbers in offset.
    """

    goal: Literal["no-flip", "no-gap"]
    lower: tuple[Number, ...]
    upper: tuple[Number, ...]
    prime: dict[str, Number]
    classes: tuple[Index, Index]
    offset: dict[str, Annotated[int, Field(strict=True)]] = Field(default_factory=dict)


@validated(frozen=True, kw_only=True, config=NO_MORE)
class RowsQuery:
    """The question about single rows: each proof stands by itself, and nothing is claimed about rows left out."""

    kind: Literal["persistent-bias", "robustness"]
    protected: tuple[str, ...]
    delta: tuple[Distance, ...]


@validated(frozen=True, kw_only=True, config=NO_MORE)
class BoxQuery:
    """No two rows of the box that differ in protected features alone are treated differently.

    epsilon None: decided differently, by the rule `signs`; else (signs None): given probabilities (or logits) more than epsilon
    apart. relax: feature -> by how many units it may differ as well. box: feature name -> (lower, upper) in raw units; features
    left out take their whole range. classes: flips between the favourable decision and others, or between "any" two classes: then a
    proof with classes (k, k - 1) or (k - 1, k) is about "decided k or higher", g = max f_k, f_(k+1), ... - max of the others.
    differ: pairs that differ in "all" protected features, or in "any" (at least one) of them.
    The proofs must cover all these pairs, in both directions.
    """

    kind: Literal["individual-fairness"]
    protected: tuple[str, ...]
    box: dict[str, tuple[Number, Number]]
    differ: Literal["all", "any"]
    signs: Signs | None
    epsilon: Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)] | None = None
    scale: Scale = "probability"
    classes: Literal["favourable", "any"] = "favourable"
    relax: dict[str, Annotated[int, Field(strict=True, ge=1, le=100)]] = Field(default_factory=dict)


@validated(frozen=True, kw_only=True, config=NO_MORE)
class Term:
    """One coefficient, from a parent to the node of its equation: anywhere in low .. high.

    values: what stands for each of the parent's raw values 0, 1, ... in the equation; None: the raw value itself.
    """

    parent: str
    low: Number
    high: Number
    values: tuple[Number, ...] | None = None


@validated(frozen=True, kw_only=True, config=NO_MORE)
class Equation:
    """The equation by which a number follows its parents. decimals: it is rounded to these; range: then clipped to (low, high).

    logarithmic: the equation is that of the number's logarithm.
    """

    node: str
    terms: tuple[Term, ...] = Field(min_length=1)
    logarithmic: Annotated[bool, Field(strict=True)] = False
    range: Interval | None = None
    decimals: Annotated[int, Field(strict=True, ge=-15, le=15)] | None = None


@validated(frozen=True, kw_only=True, config=NO_MORE)
class CounterfactualQuery:
    """The question: how would these rows be decided with a' in place of a, for all coefficients in their intervals?

    do: attribute -> raw value.   equations: of all numeric descendants of these that matter to the network, parents first.
    categories: the other descendants that matter; what they become is given, statement by statement.
    also: attributes that the network does not take, but the equations do -> their words (none: it is a number); the raw value of
    such an attribute is the position of its word. Taken as given: that these are the equations, that the intervals are what
    `origin` says, and that a counterfactual may have the categories given; the certificate is about what follows from them.
    """

    kind: Literal["counterfactual-decision"]
    do: dict[str, Number] = Field(min_length=1)
    equations: tuple[Equation, ...]
    origin: Text
    also: dict[str, tuple[Text, ...]] = field(default_factory=dict)
    categories: tuple[Text, ...] = field(default=())

    @property
    def coefficients(self) -> tuple[Interval, ...]:
        """The intervals of all coefficients, in the order of the equations' terms."""
        return tuple((term.low, term.high) for equation in self.equations for term in equation.terms)


@validated(frozen=True, kw_only=True, config=NO_MORE)
class CounterfactualStatement:
    """factual: the row itself is decided classes[0].   counterfactual: so is its counterfactual, for all coefficients in `cell`.

    Decided i = classes[0], not j = classes[1]: f_i - f_j >= 0 if i < j, > 0 if i > j (ties go to the smaller index).
    also: raw values of the query's further attributes, in its order.   categories: raw values that the query's categories take in
    the counterfactual.   cell: a part of the coefficients' intervals, empty: all of them; the cells of a row with the same
    categories make up the whole.   lower, upper: (V,) raw box that holds every
    counterfactual of the cell. Points of it that the schema's constraints forbid are nobody; nothing is claimed about them.
    """

    goal: Literal["factual", "counterfactual"]
    row: tuple[Number, ...]
    classes: tuple[Index, Index]
    also: tuple[Number, ...] = field(default=())
    categories: tuple[Number, ...] = field(default=())
    cell: tuple[Interval, ...] = field(default=())
    lower: tuple[Number, ...] = field(default=())
    upper: tuple[Number, ...] = field(default=())


Statement = RowStatement | BoxStatement | CounterfactualStatement
Query = RowsQuery | BoxQuery | CounterfactualQuery
