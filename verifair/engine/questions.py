"""Translate queries about rows and boxes, given by names, into problems given as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from encoders.arrays import Array, Integers
from encoders.bounds.rounding import TINY, factor
from encoders.curves.floats import ERROR
from encoders.curves.layer import SmoothLayer
from encoders.domain import Domain
from encoders.exact.balls import PRECISIONS, Balls, ball, precision
from encoders.exact.dyadic import exact
from encoders.model import Model
from encoders.problem import Goal, TwinBatch, TwinProblem, gap_goal
from encoders.trees.mean import MeanOfTrees
from verifair.checker.certificates.statement import Scale
from verifair.engine.exchange import MAX_COMBINATIONS, Exchange
from verifair.engine.queries import IndividualFairness, KDiscrimination, PairQuestion
from verifair.errors import QueryError, SchemaError
from verifair.schema.naming import assigned, unquoted
from verifair.schema.schema import Schema

MAX_QUESTIONS = 1_000_000
"""The most questions of one query: pairs of protected combinations times shifts."""

OBSERVED = Goal(rows=np.array([[1.0, -1.0]]), strict=True)
FLIPPED = Goal(rows=np.array([[-1.0, 1.0]]), strict=True)
NO_FALL = Goal(rows=np.array([[-1.0, 0.0], [0.0, 1.0], [-0.5, 0.5]]), strict=np.array([False, True, False]))
"""No x with g(x) > 0 >= g(x'). Where g' >= g, the third row, g > 0 >= g' is impossible too, so that row is not strict."""
NO_RISE = Goal(rows=np.array([[1.0, 0.0], [0.0, -1.0], [0.5, -0.5]]), strict=np.array([True, False, False]))
"""No x with g(x) <= 0 < g(x')."""


def margin(network: Model, winner: int, loser: int) -> Array:
    """Return weights (n_N,) of g = f_winner - f_loser; a single logit stands for class 1 against class 0.

    Where outputs are margins already (`Model.ordered`), that of the higher class is g, or -g.
    """
    weights = np.zeros(network.outputs)
    if network.ordered:
        weights[min(winner, loser)] = 1.0 if winner > loser else -1.0
        return weights
    weights[winner], weights[loser] = 1.0, -1.0
    return weights


def classes(network: Model) -> int:
    return max(2, network.outputs)


def decisions(network: Model, x: Array) -> Integers:
    """Return the class (B,) of network inputs x (B, n): one logit: 1 iff f > 0; several: the largest, ties to the smaller index.

    Decided in float64 if the winner is clear, else exactly, so that eligibility never depends on rounding. For smooth networks
    balls decide instead, and -1 stands for a row so near to a tie that they cannot tell: it has no class.
    """
    logits = network.forward(x)
    if network.outputs == 1:
        logits = np.concatenate([np.zeros_like(logits), logits], axis=1)  # class 0 wins a tie here as well
    ordered = np.sort(logits, axis=1)
    lead = ordered[:, -1] - ordered[:, -2]
    undecided = np.arange(len(x))
    for rows in (np.abs(x).max(axis=0, initial=0.0)[None], x):  # a common error of all rows suffices for most of them
        error = _evaluation_error(network, rows if len(rows) == 1 else rows[undecided])
        undecided = undecided[~(lead[undecided] > 4 * error)]
    winner = logits.argmax(axis=1)
    if not network.piecewise_linear:
        winner[undecided] = [_by_balls(network, row) for row in x[undecided]]
    elif len(undecided):
        values = network.forward(exact(x[undecided])).to_fractions()
        for k, row in zip(undecided, values, strict=True):
            row = [0, *row] if network.outputs == 1 else list(row)
            winner[k] = max(range(len(row)), key=lambda c: (row[c], -c))
    return np.asarray(winner, dtype=np.int64)


def _by_balls(network: Model, x: Array) -> int:
    """Return the class of one network input (n,) of a smooth network; -1 if no precision decides it."""
    for bits in PRECISIONS:
        with precision(bits):
            row = network.forward(Balls.of(x[None])).rows()[0]
            row = [ball(0.0), *row] if network.outputs == 1 else row
            for c, value in enumerate(row):
                if all(value > other if k < c else value >= other for k, other in enumerate(row) if k != c):
                    return c
    return -1


def _evaluation_error(network: Model, x: Array) -> Array:
    """Return (B,) bounds of the error of float64 logits: the sizes of all terms, without cancellation, times the error of sums."""
    if (trees := network.ensemble) is not None:     # a margin of several classes is a difference of two scores
        return np.full(len(x), (1 if trees is network else 2) * (factor(len(trees.root)) * trees.largest.max() + TINY))
    if isinstance(network, MeanOfTrees):
        functions = factor(len(network.ramps.score) + 8) * network.size
        sums = _evaluation_error(network.trees, x)[:, None]
        if network.lines is not None:
            reach = np.abs(x) @ np.abs(network.lines).T + (0 if network.squares is None else x * x @ np.abs(network.squares).T)
            sums = sums + factor(2 * x.shape[1] + 2) * (reach + network.trees.largest)
        return np.asarray((sums * network.steepness).sum(axis=1) + functions)
    size, error = np.abs(x), 0.0
    for layer in network.layered("evaluation by layers").layers:
        size = size @ np.abs(layer.weight).T + np.abs(layer.bias)
        error += factor(layer.weight.shape[1])
        if isinstance(layer, SmoothLayer):  # |y| <= 1, or 2 |a| + 1; this also covers the curve's error ERROR (|a| + 1)
            squared = layer.squared  # twice the relative error of a, and a little more
            size = np.where(squared, size * size, np.where(layer.shaped, 2.0, 1.0) * (size + 1))
            error = (2.01 if squared.any() else 1.0) * error + 2 * ERROR
    return np.asarray(error * size.max(axis=1) + TINY)


def neighbourhood(schema: Schema, raw: Array, delta: float, still: Sequence[str]) -> tuple[Array, Array]:
    """Return raw boxes (B, V) of all points within delta units of raw rows (B, V), clipped to the features' ranges (PBA eq. 4-5).

    Numeric features with a unit move, save those in `still` and those declared change = "fixed". Integer features keep
    to whole values.
    """
    step = schema.steps(still, needed=delta > 0) * delta
    domain = schema.domain
    lower, upper = np.maximum(raw - step, domain.lower), np.minimum(raw + step, domain.upper)
    lower = np.where(domain.integer, np.ceil(lower), lower)
    upper = np.where(domain.integer, np.floor(upper), upper)
    return np.where(step > 0, lower, raw), np.where(step > 0, upper, raw)


def bias_problem(
    network: Model, schema: Schema, raw: Array, sensitive: str | Sequence[str], to: Array, delta: float, classes: tuple[int, int]
) -> TwinProblem:
    """Return PBA's problem for rows raw (B, V) and counterfactuals with `sensitive` set to `to` (B,): goals observed, flipped.

    to: raw values of one feature, or numbers of combinations (`Exchange`).   classes: of the rows themselves, and the other one.
    """
    exchange = Exchange.of(schema, sensitive)
    lower, upper = neighbourhood(schema, raw, delta, exchange.names)
    protected = np.isin(np.arange(raw.shape[1]), exchange.index)
    batch = TwinBatch(lower=lower, upper=upper, prime=exchange.put(raw, to), protected=protected)
    return TwinProblem(
        network=network, domain=schema.domain, batch=batch, margin=margin(network, *classes), goals=(OBSERVED, FLIPPED)
    )


def robustness_problem(
    network: Model, schema: Schema, raw: Array, delta: float, sensitive: str | Sequence[str] | None, classes: tuple[int, int]
) -> TwinProblem:
    """Return the problem of the robustness of classes[0] over classes[1] around rows raw (B, V). Both copies are the same here.

    A tie goes to the smaller class index, so class i beats j > i when f_i - f_j >= 0 and j < i only when it is positive.
    """
    fixed = [] if sensitive is None else Exchange.of(schema, sensitive).names
    lower, upper = neighbourhood(schema, raw, delta, fixed)
    return decided_problem(network, schema, lower, upper, classes)


def decided_problem(network: Model, schema: Schema, lower: Array, upper: Array, classes: tuple[int, int]) -> TwinProblem:
    """Return the problem: classes[0] wins over classes[1] on all of the raw boxes lower, upper (B, V), ties by the lower index."""
    batch = TwinBatch(lower=lower, upper=upper, prime=lower, protected=np.zeros(lower.shape[1], dtype=bool))
    goal = Goal(rows=np.array([[1.0, 0.0]]), strict=classes[0] > classes[1])
    return TwinProblem(network=network, domain=schema.domain, batch=batch, margin=margin(network, *classes), goals=(goal,))


def no_gap(epsilon: float, scale: Scale = "probability") -> tuple[Goal, Goal]:
    """Return two goals: the probability, or g itself, does not fall by more than epsilon from x to x', nor rise by more.  (HyFair,
    section II)"""
    if scale == "logit":
        fall, rise = (Goal(rows=np.array([row]), constant=np.array([epsilon]), strict=False) for row in ((-1.0, 1.0), (1.0, -1.0)))
        return fall, rise
    return gap_goal(epsilon, rise=False), gap_goal(epsilon, rise=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairs:
    """All pairs of copies that a fairness query compares: P pairs of protected values z < z', with every shift of relaxed features.

    index: protected variables.   z, z_prime: (P, p) values.   shift: (P, V) whole numbers by which x' is shifted.
    pinned: variables whose shift moves columns by no constant (categories, scaled numbers): there x has one value in each question.
    """

    index: list[int]
    pinned: list[int]
    z: Array
    z_prime: Array
    shift: Array

    def __len__(self) -> int:
        return len(self.z)

    @classmethod
    def of(cls, query: PairQuestion, lower: Array, upper: Array) -> Pairs:
        """Return the pairs within the raw box lower, upper (V,). Raises QueryError when there are none, or too many."""
        schema = query.schema
        index = [schema.index(name) for name in query.protected]
        values = [np.arange(lower[v], upper[v] + 1) for v in index]
        count = float(np.prod([float(len(options)) for options in values]))
        if count > MAX_COMBINATIONS:
            raise QueryError(
                f"{' and '.join(query.protected)} have {count:.0f} combinations in the box, and every pair of them is a question; "
                f"narrow the box to at most {MAX_COMBINATIONS}, or group the values"
            )
        pairs = list(_pairs(list(product(*values)), query.differ))
        if not pairs:
            raise QueryError(
                f"the box leaves {' and '.join(query.protected)} no two different values to compare; widen --box for them"
            )
        relaxed = [(schema.index(name), int(width)) for name, width in query.relax.items()]
        reach = [range(-most, most + 1) for most in (min(width, int(upper[v] - lower[v])) for v, width in relaxed)]
        counts = [
            len(span) if v not in query.pinned else 1 + sum(int(upper[v] - lower[v]) + 1 - abs(step) for step in span if step)
            for (v, _), span in zip(relaxed, reach, strict=True)
        ]
        if len(pairs) * np.prod(counts, initial=1.0) > MAX_QUESTIONS:
            raise QueryError(
                f"{len(pairs)} pairs, each with every shift of {', '.join(query.relax)}, are more than {MAX_QUESTIONS} questions; "
                "relax fewer features, or by less, or narrow the box"
            )
        steps = list(product(*reach))
        shifts = np.array(steps, dtype=np.float64).reshape(len(steps), len(relaxed))
        shift = np.zeros((len(shifts), schema.domain.variables))
        shift[:, [v for v, _ in relaxed]] = shifts
        z, z_prime = (np.repeat(np.array(side), len(shifts), axis=0) for side in zip(*pairs, strict=True))
        return cls(index=index, pinned=query.pinned, z=z, z_prime=z_prime, shift=np.tile(shift, (len(pairs), 1)))

    def batch(
        self, domain: Domain, lower: Array, upper: Array, within: tuple[Array, Array]
    ) -> tuple[TwinBatch, Integers, Integers]:
        """Return a question for every pair in every box lower, upper (B, V): Q questions, and the box and the pair (Q,) of each.

        The first copy, that of z, lies in the box; the second one may be shifted out of it, but not out of `within` (V,), (V,).
        Over boxes that make up `within` every pair of rows is asked about exactly once. Shifts that leave no room are left out.
        """
        box, pair = (number.ravel() for number in np.divmod(np.arange(len(lower) * len(self)), len(self)))
        shift = self.shift[pair]
        low, high = np.maximum(lower[box], within[0] - shift), np.minimum(upper[box], within[1] - shift)
        low[:, self.index] = high[:, self.index] = self.z[pair]
        for v in self.pinned:
            values = np.where(shift[:, v] != 0, np.maximum(high[:, v] - low[:, v] + 1, 1), 1).astype(np.int64)
            index = np.repeat(np.arange(len(low)), values)
            low, high, shift, box, pair = (array[index] for array in (low, high, shift, box, pair))
            step = np.arange(len(index)) - np.repeat(np.cumsum(values) - values, values)
            pinned = (shift[:, v] != 0) & (low[:, v] <= high[:, v])
            low[:, v] += np.where(pinned, step, 0)
            high[:, v] = np.where(pinned, low[:, v], high[:, v])
        prime = low.copy()
        prime[:, self.index] = self.z_prime[pair]
        fits = (low <= high).all(axis=1)
        protected = np.zeros(domain.variables, dtype=bool)
        protected[self.index] = True
        offset = shift[fits] if self.shift.any() else None
        batch = TwinBatch(lower=low[fits], upper=high[fits], prime=prime[fits], protected=protected, offset=offset)
        return batch, box[fits], pair[fits]


def questions_of(query: PairQuestion) -> tuple[tuple[Array, Array], TwinBatch]:
    """Return the query's raw box, (V,) and (V,), and a question for every pair of copies in it."""
    lower, upper = box_of(query.schema, query.box)
    batch, _, _ = Pairs.of(query, lower, upper).batch(query.schema.domain, lower[None], upper[None], (lower, upper))
    return (lower, upper), batch


def check_possible(query: IndividualFairness) -> None:
    """Raise QueryError if constraints forbid x or x' of every pair: a proof about nobody would be true, but misleading."""
    _, batch = questions_of(query)
    impossible = query.schema.domain.impossible
    vacuous = impossible(batch.lower, batch.upper) | impossible(batch.second(batch.lower), batch.second(batch.upper))
    if vacuous.all():
        raise QueryError(
            "the schema's constraints leave no two rows of the box to compare: of every pair one cannot be; widen --box, "
            "name other protected features, or loosen the constraints"
        )


def twin_problem(query: PairQuestion, batch: TwinBatch, goals: tuple[Goal, ...], classes: tuple[int, int] = (1, 0)) -> TwinProblem:
    """Return questions about the query's network in its schema's domain; g is the logit (or log-odds) of the positive class.

    classes: a class and the next lower one, for flips between any two of several classes; only `verify` asks about all of these.
    """
    return TwinProblem(
        network=query.model, domain=query.schema.domain, batch=batch, margin=margin(query.model, *classes), goals=goals,
        float32=isinstance(query, IndividualFairness) and query.arithmetic == "float32",
    )


def goals_of(query: IndividualFairness) -> tuple[Goal, Goal]:
    """Return a goal for each direction: no decision flips (by the rule `signs`), or no probability differs by more than epsilon."""
    if query.epsilon is not None:
        return no_gap(query.epsilon, query.scale)
    if query.signs == "deployed":
        return NO_FALL, NO_RISE
    return replace(NO_FALL, strict=False), replace(NO_RISE, strict=False)


def _pairs(combinations: list[tuple[float, ...]], differ: str) -> Iterator[tuple[tuple[float, ...], tuple[float, ...]]]:
    compare = all if differ == "all" else any
    for k, z in enumerate(combinations):
        for z_prime in combinations[k + 1 :]:
            if compare(a != b for a, b in zip(z, z_prime, strict=True)):
                yield z, z_prime


def shared_box(query: KDiscrimination) -> tuple[Array, Array]:
    """Return the raw box (V,), (V,) of the variants of a person. Raises QueryError if it names protected features."""
    for name in sorted(set(query.box) & set(query.protected)):
        raise QueryError(f"box of {name!r}: the feature is protected; give its values by values (--values)")
    return box_of(query.schema, query.box)


def box_of(schema: Schema, box: Any) -> tuple[Array, Array]:
    """Return raw bounds (V,), (V,) of a box given by names: a value, or (low, high); other features keep their whole range."""
    domain = schema.domain
    lower, upper = domain.lower.copy(), domain.upper.copy()
    for name, value in box.items():
        try:
            v = schema.index(name)
        except SchemaError as error:
            raise SchemaError(f"{error}{unquoted(name, [feature.name for feature in schema.features])}") from None
        ends = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
        categories = schema[name].categories or ()
        if isinstance(value, tuple) and (category := ":".join(map(str, value))) in categories and not set(value) <= set(categories):
            ends = (category, category)  # a category's name that the command line split like a range
        if len(ends) != 2:
            raise QueryError(f"box of {name!r}: {value!r}, expected one value or a pair (low, high)")
        low, high = (schema.raw_value(name, end) for end in ends)
        if low > high:
            remedy = assigned(name, f"{ends[1]}:{ends[0]}")
            raise QueryError(f"box of {name!r}: the range {ends[0]} .. {ends[1]} is reversed; write {remedy}")
        if low < domain.lower[v] or high > domain.upper[v]:
            raise QueryError(
                f"box of {name!r}: {ends[0]} .. {ends[1]} leaves the declared range {domain.lower[v]:g} .. {domain.upper[v]:g}; "
                "narrow the box or widen the schema's range"
            )
        lower[v], upper[v] = low, high
    return lower, upper
