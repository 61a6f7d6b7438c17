"""The checker of counterfactual decisions: it encloses the counterfactuals of rows, and checks that a row's proofs are complete.

What a certificate's equations mean is defined in `verifair.checker.certificates.statement`. The counterfactuals of one cell of
coefficients are enclosed here in rational arithmetic (exponentials in balls), equation by equation: clipping and rounding are
monotone, so intervals pass through them. The box that a statement names has to hold that enclosure; `check` then shows the decision
on the box.

Imports neither the engine, nor its bounds, nor what found the boxes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from encoders.arrays import Array
from encoders.domain import Domain
from encoders.exact.balls import ball, precision
from encoders.model import Model
from verifair.checker.certificates.certificate import Certificate, Proof
from verifair.checker.certificates.statement import CounterfactualQuery, CounterfactualStatement, Equation, Interval, Term
from verifair.checker.kernel.tasks import Task, classes_of, stated_goal
from verifair.checker.words import category, exactly
from verifair.schema.space import InputSpace

MAX_PIECES = 100_000
"""The most parts that `covers` cuts the coefficients' intervals into."""

LARGEST_EXPONENT = 700
"""Largest exponent in a logarithmic equation: exp(709.8) is the largest float64."""
PRECISION = 128
"""Bits of the balls around exponentials."""

Ends = tuple[Fraction, Fraction]
Row = tuple[tuple[float, ...], tuple[float, ...]]
"""Raw values of the features and of further attributes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Attributes:
    """The attributes that equations may be about: the schema's features, then those that the network does not take.

    position: position of each.   counts: number of its categories, 0 for a number.
    """

    position: dict[str, int]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, query: CounterfactualQuery, schema: InputSpace) -> Attributes:
        names = [*(feature.name for feature in schema.features), *query.also]
        counts = [*(len(feature.categories or ()) for feature in schema.features), *map(len, query.also.values())]
        return cls(position={name: v for v, name in enumerate(names)}, counts=tuple(counts))

    def holds(self, name: str, value: float) -> bool:
        """Return True if a raw value is possible for an attribute: a number, or the position of one of its words."""
        count = self.counts[self.position[name]]
        return not count or (value.is_integer() and 0 <= value < count)


def query_flaw(query: CounterfactualQuery, schema: InputSpace) -> str | None:
    """Return why the equations cannot be read as a causal model of this schema's features, or None."""
    attributes = Attributes.of(query, schema)
    duplicates = [feature.name for feature in schema.features if feature.name in query.also]
    if duplicates:
        return f"{duplicates[0]!r} is a feature of the schema and a further attribute too"
    defined: set[str] = set()
    for name, value in query.do.items():
        if name not in attributes.position:
            return f"do names {name!r}, which is nowhere described"
        feature = schema.domain.take(np.array([attributes.position[name]])) if name not in query.also else None
        if not attributes.holds(name, value) or not (feature is None or feature.within(np.array([[value]]))[0]):
            return f"do({name} = {value:g}) lies outside the declared domain"
        defined.add(name)
    for name in query.categories:
        if name not in attributes.position or name in defined:
            return f"the category {name!r} is nothing described, something set, or named before"
        defined.add(name)
    for equation in query.equations:
        if equation.node not in attributes.position or equation.node in defined:
            return f"the equation of {equation.node!r} is about nothing described, something set, or has one before it"
        if attributes.counts[attributes.position[equation.node]]:
            return f"the equation of {equation.node!r} is about a category"
        if equation.range is not None and equation.range[0] > equation.range[1]:
            return f"the range of {equation.node!r} is reversed"
        for term in equation.terms:
            flaw = _term_flaw(term, defined, attributes)
            if flaw is not None:
                return f"the equation of {equation.node!r}: {flaw}"
        defined.add(equation.node)
    return None


def _term_flaw(term: Term, defined: set[str], attributes: Attributes) -> str | None:
    if term.parent not in defined:
        return f"its parent {term.parent!r} is neither set nor the node of an earlier equation"
    if term.low > term.high:
        return f"the interval of its parent {term.parent!r} is reversed"
    count = attributes.counts[attributes.position[term.parent]]
    if count != len(term.values or ()) or (term.values is not None and not count):
        return f"its parent {term.parent!r} has {count} categories, {len(term.values or ())} values are listed"
    return None


@dataclass(frozen=True, kw_only=True)
class Enclosure:
    """An enclosure of the counterfactuals of one row: raw values low .. high, feature by feature, exact."""

    low: tuple[Fraction, ...]
    high: tuple[Fraction, ...]


def reach(
    query: CounterfactualQuery, row: tuple[float, ...], also: tuple[float, ...], categories: tuple[float, ...],
    cell: tuple[Interval, ...], schema: InputSpace,
) -> Enclosure:
    """Return the enclosure of the row's counterfactuals over a cell; for a cell that is one point, the counterfactual itself, up to
    the width of balls around exponentials.

    Requires: a query without a flaw, a legal row, and a cell with an interval for each of the query's coefficients.
    Raises OverflowError where an exponential is too large for float64.
    """
    position = Attributes.of(query, schema).position
    exact = [Fraction(value) for value in (*row, *also)]
    low, high = list(exact), list(exact)
    for name, value in query.do.items():
        low[position[name]] = high[position[name]] = Fraction(value)
    for name, value in zip(query.categories, categories, strict=True):
        low[position[name]] = high[position[name]] = Fraction(value)
    coefficients = iter(cell)
    for equation in query.equations:
        v, parents = position[equation.node], [position[term.parent] for term in equation.terms]
        ends = [Fraction(0), Fraction(0)]
        for term, u in zip(equation.terms, parents, strict=True):
            c_low, c_high = next(coefficients)
            products = [Fraction(a) * b for a in (c_low, c_high) for b in _change(term, exact[u], low[u], high[u])]
            ends = [ends[0] + min(products), ends[1] + max(products)]
        if all(low[u] == exact[u] == high[u] for u in parents):
            continue  # a node none of whose parents changed keeps its value
        if equation.logarithmic:
            ends = [exact[v] * _exponential(ends[0])[0], exact[v] * _exponential(ends[1])[1]]
        else:
            ends = [exact[v] + end for end in ends]
        low[v], high[v] = (_treated(end, equation) for end in ends)
        if all(low[u] <= exact[u] <= high[u] for u in parents):  # perhaps no parent changed
            low[v], high[v] = min(low[v], exact[v]), max(high[v], exact[v])
    nodes = [position[equation.node] for equation in query.equations if position[equation.node] < len(row)]
    for v in nodes:
        low[v], high[v] = (_allowed(end, v, schema.domain) for end in (low[v], high[v]))
    return Enclosure(low=tuple(low[: len(row)]), high=tuple(high[: len(row)]))


def _change(term: Term, value: Fraction, low: Fraction, high: Fraction) -> Ends:
    """Return by how much h(parent) may change, from the parent's own value to low .. high."""
    if term.values is None:
        return low - value, high - value
    change = Fraction(term.values[int(low)]) - Fraction(term.values[int(value)])
    return change, change


def _exponential(value: Fraction) -> Ends:
    """Return rational numbers below and above exp(value), both above 0. Raises OverflowError beyond LARGEST_EXPONENT."""
    if value > LARGEST_EXPONENT:
        raise OverflowError
    if value < -LARGEST_EXPONENT:
        return Fraction(0), _exponential(Fraction(-LARGEST_EXPONENT))[1]
    with precision(PRECISION):
        enclosure = ball(value).exp()
        low, high = (end.man_exp() for end in (enclosure.lower(), enclosure.upper()))
    return Fraction(int(low[0])) * Fraction(2) ** int(low[1]), Fraction(int(high[0])) * Fraction(2) ** int(high[1])


def _treated(value: Fraction, equation: Equation) -> Fraction:
    """Return the value rounded (half to even), then clipped, as the equation says; monotone in the value."""
    if equation.decimals is not None:
        value = Fraction(round(value, equation.decimals))
    return value if equation.range is None else min(max(value, Fraction(equation.range[0])), Fraction(equation.range[1]))


def _allowed(value: Fraction, v: int, domain: Domain) -> Fraction:
    """Return the nearest value that the schema allows; monotone too."""
    rounded = Fraction(round(value)) if domain.integer[v] else value
    return min(max(rounded, Fraction(float(domain.lower[v]))), Fraction(float(domain.upper[v])))


def counterfactual_task(
    statement: CounterfactualStatement, query: CounterfactualQuery, network: Model, schema: InputSpace
) -> Task | str:
    """Return the task of a statement, or why the statement is invalid. Requires a query without a flaw."""
    domain, row = schema.domain, np.array(statement.row)
    if len(row) != domain.variables:
        return f"the row has {len(row)} values, the schema {domain.variables} features"
    if not domain.legal(row[None])[0]:
        return "the row lies outside the declared domain or cannot be"
    if len(statement.also) != len(query.also):
        return f"the row has {len(statement.also)} further attributes, the query {len(query.also)}"
    attributes = Attributes.of(query, schema)
    if not all(attributes.holds(name, value) for name, value in zip(query.also, statement.also, strict=True)):
        return "the row has a category that is not among the words"
    for equation in query.equations:
        v = attributes.position[equation.node]
        if equation.logarithmic and not (*statement.row, *statement.also)[v] > 0:
            return f"the equation of {equation.node!r} is about a logarithm, and the row holds no number above 0"
    i, j = statement.classes
    if i == j or max(i, j) >= classes_of(network):
        return f"classes {i} and {j} are no two classes of the network"
    goal, margin = stated_goal("robust", (i, j), None, network)
    zeros = np.zeros(len(row))
    task = Task(lower=row, upper=row, prime=row, offset=zeros, differs=zeros.astype(bool), margin=margin, goal=goal)
    if statement.goal == "factual":
        named = statement.cell or statement.lower or statement.upper or statement.categories
        return "a statement about the row itself names a cell or a box, or other categories" if named else task
    flaw = _categories_flaw(statement, query, attributes, domain)
    if flaw is not None:
        return flaw
    box = _box(statement, query, schema)
    return box if isinstance(box, str) else replace(task, lower=box[0], upper=box[1], prime=box[0])


def _categories_flaw(
    statement: CounterfactualStatement, query: CounterfactualQuery, attributes: Attributes, domain: Domain
) -> str | None:
    """Return why a counterfactual cannot have the categories that a statement gives, as far as schema and words go, or None."""
    if len(statement.categories) != len(query.categories):
        return f"the statement gives {len(statement.categories)} categories, the query has {len(query.categories)}"
    for name, value in zip(query.categories, statement.categories, strict=True):
        v = attributes.position[name]
        inside = name in query.also or domain.take(np.array([v])).within(np.array([[value]]))[0]
        if not attributes.holds(name, value) or not inside:
            return f"the counterfactual's {name} = {value:g} lies outside the declared domain"
    return None


def _box(statement: CounterfactualStatement, query: CounterfactualQuery, schema: InputSpace) -> tuple[Array, Array] | str:
    """Return the box that a statement names if it holds all counterfactuals of its cell, or why it does not."""
    domain, (lower, upper) = schema.domain, (np.array(end) for end in (statement.lower, statement.upper))
    if not len(lower) == len(upper) == domain.variables:
        return f"the box has {len(lower)} and {len(upper)} ends, the schema {domain.variables} features"
    if (lower > upper).any() or not domain.within(np.stack([lower, upper])).all():
        return "the box is empty or lies outside the declared domain"
    if domain.impossible(lower[None], upper[None])[0]:
        return "the constraints forbid the whole box: it says nothing about anybody"
    intervals = query.coefficients
    cell = statement.cell or intervals
    inside = len(cell) == len(intervals) and all(
        low <= c_low <= c_high <= high for (c_low, c_high), (low, high) in zip(cell, intervals, strict=True)
    )
    if not inside:
        return "the cell is no part of the coefficients' intervals"
    try:
        reached = reach(query, statement.row, statement.also, statement.categories, cell, schema)
    except OverflowError:
        return "the cell leads beyond all numbers"
    for v, (low, high) in enumerate(zip(reached.low, reached.high, strict=True)):
        if not (Fraction(float(lower[v])) <= low and high <= Fraction(float(upper[v]))):
            return (
                f"the box has {schema.features[v].name} in {lower[v]:.17g} .. {upper[v]:.17g}, but the equations reach "
                f"{float(low):.17g} .. {float(high):.17g}"
            )
    return lower, upper


def decisions_missing(query: CounterfactualQuery, proofs: tuple[Proof, ...]) -> Iterator[str]:
    """Yield what is missing from the proofs of a row: its own decision, or that of its counterfactual for some categories given."""
    factuals: dict[Row, set[tuple[int, int]]] = {}
    counterfactuals: dict[Row, dict[tuple[float, ...], list[CounterfactualStatement]]] = {}
    for proof in proofs:
        statement = proof.statement
        if isinstance(statement, CounterfactualStatement):
            row = (statement.row, statement.also)
            factual, counterfactual = factuals.setdefault(row, set()), counterfactuals.setdefault(row, {})
            if statement.goal == "factual":
                factual.add(statement.classes)
            else:
                counterfactual.setdefault(statement.categories, []).append(statement)
    for number, (row, factual) in enumerate(factuals.items()):
        by_categories = [{statement.classes for statement in statements} for statements in counterfactuals[row].values()] or [set()]
        if len(factual) != 1 or any(len(classes) != 1 for classes in by_categories):
            yield (
                f"row {number} of the file needs one decision on itself and one on its counterfactual, found {len(factual)} and "
                f"{max(map(len, by_categories))}"
            )
        for statements in counterfactuals[row].values():
            if not covers(query.coefficients, [statement.cell or query.coefficients for statement in statements]):
                yield f"row {number} of the file: its cells leave out a part of the coefficients' intervals"


def covers(target: tuple[Interval, ...], cells: list[tuple[Interval, ...]]) -> bool:
    """Return True if closed cells cover all of a closed box; False also where more than MAX_PIECES parts are needed to tell."""
    stack, pieces, cells = [target], 0, [cell for cell in cells if len(cell) == len(target)]
    while stack:
        box = stack.pop()
        pieces += 1
        if pieces > MAX_PIECES:
            return False
        if any(all(low <= a and b <= high for (a, b), (low, high) in zip(box, cell, strict=True)) for cell in cells):
            continue
        cut = next((found for cell in cells if (found := _cut(box, cell)) is not None), None)
        if cut is None:
            return False
        k, value = cut
        stack += [(*box[:k], (box[k][0], value), *box[k + 1 :]), (*box[:k], (value, box[k][1]), *box[k + 1 :])]
    return True


def _cut(box: tuple[Interval, ...], cell: tuple[Interval, ...]) -> tuple[int, float] | None:
    """Return a face of a cell that cuts the inside of the box where the two overlap, or None."""
    ends = list(zip(box, cell, strict=True))
    if not all(low < b and a < high if a < b else low <= a <= high for (a, b), (low, high) in ends):
        return None
    return next(((k, face) for k, ((a, b), faces) in enumerate(ends) for face in faces if a < face < b), None)


def counterfactuals_statement(certificate: Certificate, query: CounterfactualQuery, schema: InputSpace) -> str:
    """Return the file's statement in words: the decisions of rows and of their counterfactuals, and for which coefficients."""
    statements = [proof.statement for proof in certificate.proofs if isinstance(proof.statement, CounterfactualStatement)]
    factual = {(s.row, s.also): s.classes[0] for s in statements if s.goal == "factual"}
    altered = {((s.row, s.also), s.categories): s.classes[0] for s in statements if s.goal == "counterfactual"}
    flips = sum(factual.get(row) != decided for (row, _), decided in altered.items())
    features = {feature.name for feature in schema.features}
    settings = ", ".join(_set_to(query, schema, name, value, features) for name, value in query.do.items())
    left = "".join(
        f"; {count:,} {text}"
        for count, text in (
            (certificate.extent.refuted, "more would be decided in both ways within the intervals, which the file does not show"),
            (certificate.extent.undecided, "more are undecided"),
        )
        if count
    )
    subject, exclusion = f"{len(factual):,} rows", "nothing about other rows"
    if query.categories:
        names = ", ".join(map(repr, query.categories))
        subject = f"{len(altered):,} counterfactuals of {len(factual):,} rows, with given categories of {names},"
        exclusion = "nothing about other rows and categories, or how probable these are"
    condition = ", where the schema's constraints allow the counterfactual" if schema.domain.forbidden is not None else ""
    return (
        f"It states: with {settings}, and what that causes, {flips:,} of {subject} would be decided otherwise than the row and "
        f"{len(altered) - flips:,} as it is, whatever the {len(query.coefficients)} coefficients of the file's causal model are in "
        f"their intervals (which the file calls {query.origin!r}){condition}{left}; {exclusion}."
    )


def _set_to(query: CounterfactualQuery, schema: InputSpace, name: str, value: float, features: set[str]) -> str:
    if name in features:
        return f"{name} = {exactly(value) if schema[name].numeric else category(schema, name, value)}"
    words = query.also.get(name, ())  # text from the file: in quotes, on one line
    return f"{name!r} = {words[int(value)]!r}" if words and value in range(len(words)) else f"{name!r} = {exactly(value)}"
