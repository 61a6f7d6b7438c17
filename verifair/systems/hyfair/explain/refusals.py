"""The refused region of rules: closed boxes of raw values, snapped to the network's float32 columns, and the schema of the rest.

Encoding is monotone, so a raw box is a box of columns, but a real-valued raw number just outside may round to the same float32
column as the box's end. `snapped` moves each end to the outermost raw number with the same column.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count

import numpy as np

from encoders.domain import Domain
from verifair.errors import QueryError
from verifair.schema.constraint import boxes_of
from verifair.schema.schema import Schema
from verifair.systems.hyfair.explain.rules import Rule
from verifair.systems.hyfair.explain.rules_file import when

REFUSED = "refused"
NAME = re.compile(rf"{REFUSED}( \(\d+\))?( \d+)?")
"""Names of the constraints of a guarded schema."""


def snapped(rules: Sequence[Rule], schema: Schema) -> tuple[Rule, ...]:
    """Return the rules with every end at the outermost raw number that becomes the same float32 column.

    Raises QueryError if a rule covers everything: nobody would be answered.
    """
    result = []
    for index, rule in enumerate(rules, start=1):
        lower, upper = np.full_like(rule.lower, -np.inf), np.full_like(rule.upper, np.inf)
        for v in rule.conditions:
            lower[v] = _outermost(schema.domain, v, rule.lower[v], -1)
            upper[v] = _outermost(schema.domain, v, rule.upper[v], 1)
        if not (np.isfinite(lower) | np.isfinite(upper)).any():
            raise QueryError(f"rule {index} covers the whole domain ({rule.words(schema)}): the guarded network would answer none")
        result.append(Rule(lower=lower, upper=upper))
    return tuple(result)


def _outermost(domain: Domain, v: int, end: float, side: int) -> float:
    """Return the raw number furthest to one side (1 up, -1 down) of `end` with the same column as `end`; infinite at the range's
    end."""
    limit = float(domain.upper[v] if side > 0 else domain.lower[v])
    if not side * end < side * limit or domain.one_hot[v]:
        return end if side * end < side * limit else side * np.inf
    column = domain.take(np.array([v]))

    def same(raw: float) -> bool:
        return bool(column.encode(np.array([[raw]]))[0, 0] == column.encode(np.array([[end]]))[0, 0])

    if same(limit):
        return side * np.inf
    inner, outer = float(end), limit  # bisection with same(inner) and not same(outer), down to neighbouring floats
    while True:
        middle = inner + (outer - inner) / 2
        middle = float(np.floor(middle) if side > 0 else np.ceil(middle)) if domain.integer[v] else middle
        if middle in (inner, outer):
            return inner
        inner, outer = (middle, outer) if same(middle) else (inner, middle)


def guarded_schema(schema: Schema, rules: Sequence[Rule]) -> Schema:
    """Return the schema with each (snapped) rule as a constraint. Proofs about it cover everything that is answered by a network
    that refuses these rules and those of `earlier`."""
    used = {constraint.name or "" for constraint in schema.constraints}
    names = (REFUSED if n == 1 else f"{REFUSED} ({n})" for n in count(1))
    name = next(option for option in names if not any(other == option or other.startswith(f"{option} ") for other in used))
    return schema.forbidding([when(rule, schema) for rule in rules], name)


def earlier(schema: Schema) -> tuple[Rule, ...]:
    """Return the snapped rules of earlier guardrails, which are constraints of the schema.

    A new guardrail of the model must refuse them as well, or it would answer people whom no proof covers.
    """
    rules = []
    for constraint in schema.constraints:
        if constraint.never is not None and NAME.fullmatch(constraint.name or ""):
            boxes = boxes_of(constraint, schema.features)
            rules += [Rule(lower=lower, upper=upper) for lower, upper in zip(boxes.lower, boxes.upper, strict=True)]
    return snapped(rules, schema)
