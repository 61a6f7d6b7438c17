"""Constraints among features, by which a schema file declares rows illegal.

    [[constraint]]                                       [[constraint]]
    name = "a husband is male"                           never = { age = { high = 15 }, marital = ["Married", "Widowed"] }
    if = { relationship = "Husband" }
    then = { sex = "Male" }

A table holds a condition for each of some features, all of which must hold: one value, a list of values, or an inclusive range
{ low = ..., high = ... } with either end left out. `never` forbids the rows that meet its table; `if` A `then` B forbids those that
meet A and not B. `verifair.schema.constraint` turns either into closed boxes of raw values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import inf, prod
from numbers import Real
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from encoders.arrays import Array
from encoders.domain import Domain, Forbidden
from verifair.errors import SchemaError
from verifair.schema import file as schema_file
from verifair.schema.feature import Feature, Finite, number, text
from verifair.schema.spelling import nearest

Word = str | float


class Range(BaseModel):
    """low <= value <= high, raw units; None: no limit on that side."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    low: Finite | None = None
    high: Finite | None = None


Condition = Range | tuple[Word, ...]


def _conditions(value: Any) -> Any:
    """Each condition in its one form, a Range or a tuple of words, all problems reported at once."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value:
        raise ValueError(f"found {schema_file.shown(value)}, expected conditions such as {{ feature = value }}, at least one")
    conditions, lines = {}, []
    for name, entry in value.items():
        try:
            conditions[str(name)] = _condition(entry)
        except ValueError as error:
            lines.append(f"feature {name!r}: {error}")
    if lines:
        raise ValueError("\n".join(lines))
    return conditions


def _condition(entry: Any) -> Condition:
    if isinstance(entry, Range):
        return entry
    if isinstance(entry, Mapping):
        for key in entry:
            if key not in ("low", "high"):
                raise ValueError(f"{key}: unknown key of a range; known are low and high")
        bounds = {key: end for key, end in entry.items() if end is not None}
        if not bounds:
            raise ValueError("the range has no end; give low, high, or both")
        for key, end in bounds.items():
            if isinstance(end, bool) or not isinstance(end, Real) or not np.isfinite(number(end)):
                raise ValueError(f"{key} = {schema_file.shown(end)} is no finite number; correct it, or leave this end out")
        return Range(**{key: float(end) for key, end in bounds.items()})
    values = tuple(entry) if isinstance(entry, (list, tuple)) else (entry,)
    if not values:
        raise ValueError("[] lists no value; name at least one, or drop the feature")
    for value in values:
        if not isinstance(value, (str, Real)):
            shown = schema_file.shown(value)
            raise ValueError(f"{shown} is no value; give a category, a number, a list of these, or {{ low = ..., high = ... }}")
    return tuple(number(v) if isinstance(v, Real) and not isinstance(v, bool) else text(v) for v in values)


Conditions = Annotated[Mapping[str, Condition], BeforeValidator(_conditions)]


class Constraint(schema_file.SchemaPart):
    """One constraint. Raises SchemaError, one line a problem; whether features and values exist is asked by
    `constraint_boxes`."""

    model_config = ConfigDict(populate_by_name=True)
    WORD: ClassVar = "constraint"
    name: str | None = Field(default=None, min_length=1)
    if_: Conditions | None = Field(default=None, alias="if")
    then: Conditions | None = None
    never: Conditions | None = None

    def flaw(self) -> str | None:
        if (self.never is None) == (self.if_ is None and self.then is None) or (self.if_ is None) != (self.then is None):
            keys = [key for key, table in (("if", self.if_), ("then", self.then), ("never", self.never)) if table is not None]
            return f"has {' and '.join(keys) or 'no condition'}; write either if = ... and then = ..., or never = ..."
        return None

    @property
    def names(self) -> list[str]:
        """Names of the features that it is about, each once."""
        return list(dict.fromkeys(name for table in (self.if_, self.then, self.never) for name in table or ()))

def labelled(constraints: Sequence[Constraint]) -> list[tuple[str, Constraint]]:
    """Return each constraint with its name for errors, or else its number in the schema."""
    return [
        (f"constraint {c.name!r}" if c.name is not None else f"constraint number {k}", c)
        for k, c in enumerate(constraints, start=1)
    ]


MAX_BOXES = 1000
"""The most boxes of one constraint: every legality test visits each of them."""
MAX_STEPS = 2000
"""The most steps of the search for a legal row."""

Interval = tuple[float, float]


def forbidden(constraints: Sequence[Constraint], features: Sequence[Feature]) -> Forbidden | None:
    """Return all that the constraints forbid; None without any. Raises SchemaError, one line a problem."""
    names = [c.name for c in constraints if c.name is not None]
    lines = [f"constraint {name!r} stands twice; give each its own name" for name in sorted(set(names)) if names.count(name) > 1]
    parts = []
    for label, constraint in labelled(constraints):
        try:
            parts.append(boxes_of(constraint, features))
        except SchemaError as error:
            lines += [f"{label}: {line}" for line in str(error).splitlines()]
    if lines:
        raise SchemaError("\n".join(lines))
    if not parts:
        return None
    return Forbidden(lower=np.concatenate([p.lower for p in parts]), upper=np.concatenate([p.upper for p in parts]))


def boxes_of(constraint: Constraint, features: Sequence[Feature]) -> Forbidden:
    """Return the closed raw boxes (F, V) that a constraint forbids, infinite where a feature does not matter.

    Raises SchemaError, one line a problem, for unknown features and values, and for a constraint that forbids nothing.
    """
    lines: list[str] = []
    condition = _resolved(constraint.if_ or constraint.never or {}, features, lines)
    then = _resolved(constraint.then or {}, features, lines)
    if lines:
        raise SchemaError("\n".join(lines))
    families = [condition] if constraint.never is not None else []
    for v, intervals in then.items():
        outside = _common(_complement(features[v], intervals), condition.get(v, [(-inf, inf)]))
        families.append({**condition, v: outside})
    count = sum(prod(len(intervals) for intervals in family.values()) for family in families)
    if count > MAX_BOXES:
        raise SchemaError(
            f"it takes {count} boxes, at most {MAX_BOXES} are accepted; put categories that belong together next to each other, "
            "or use ranges"
        )
    boxes = [dict(zip(family, combination, strict=True)) for family in families for combination in product(*family.values())]
    if not boxes:
        raise SchemaError("it forbids nothing: `then` always holds where `if` does; correct or drop it")
    lower, upper = np.full((2, len(boxes), len(features)), [[[-inf]], [[inf]]])
    for k, box in enumerate(boxes):
        for v, (low, high) in box.items():
            lowest, highest = _limits(features[v])
            if low > lowest or high < highest:
                lower[k, v], upper[k, v] = low, high
    if (np.isinf(lower) & np.isinf(upper)).all(axis=1).any():
        raise SchemaError("it forbids every row: its conditions hold everywhere; correct or drop it")
    return Forbidden(lower=lower, upper=upper)


def _resolved(conditions: Mapping[str, Condition], features: Sequence[Feature], lines: list[str]) -> dict[int, list[Interval]]:
    """Return raw intervals by position of the feature; problems are added to `lines`."""
    names = [feature.name for feature in features]
    result = {}
    for name, condition in conditions.items():
        if name not in names:
            lines.append(f"there is no feature {name!r} in the schema; {nearest(name, names)}")
            continue
        try:
            feature = features[names.index(name)]
            result[names.index(name)] = _intervals(feature, condition)
        except SchemaError as error:
            lines.append(str(error))
    return result


def _intervals(feature: Feature, condition: Condition) -> list[Interval]:
    """Return disjoint closed intervals of raw values, in order, no two of them neighbours."""
    if isinstance(condition, Range):
        return [_range(feature, condition)]
    values = sorted({feature.raw_value(value) for value in condition})
    first, last = _limits(feature)
    for value in values:
        if not first <= value <= last:
            raise SchemaError(
                f"feature {feature.name!r}: {value:.10g} lies outside the declared range {first:.10g} .. {last:.10g}; correct it, "
                "or widen the range"
            )
    runs: list[Interval] = []
    for value in values:
        if runs and _step(feature, runs[-1][1], 1) == value:
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    return runs


def _range(feature: Feature, condition: Range) -> Interval:
    if not feature.numeric:
        raise SchemaError(f"feature {feature.name!r}: a range is for numbers, the feature is {feature.kind}; list its categories")
    first, last = _limits(feature)
    for key, end in (("low", condition.low), ("high", condition.high)):
        if end is not None and not first <= feature.raw_value(end) <= last:
            raise SchemaError(
                f"feature {feature.name!r}: {key} = {end:.10g} lies outside the declared range {first:.10g} .. {last:.10g}; leave "
                "this end out, or widen the range"
            )
    low, high = (-inf if condition.low is None else condition.low), (inf if condition.high is None else condition.high)
    if low > high:
        raise SchemaError(f"feature {feature.name!r}: low = {low:.10g}, high = {high:.10g} is reversed; exchange the ends")
    return low, high


def _complement(feature: Feature, intervals: list[Interval]) -> list[Interval]:
    """Return the rest of the feature's range, as closed intervals that begin or end at the next number, or the next whole
    number."""
    first, last = _limits(feature)
    starts = [-inf, *(_step(feature, high, 1) for _, high in intervals)]
    ends = [*(_step(feature, low, -1) for low, _ in intervals), inf]
    return [(low, high) for low, high in zip(starts, ends, strict=True) if max(low, first) <= min(high, last)]


def _common(left: list[Interval], right: list[Interval]) -> list[Interval]:
    overlaps = [(max(a, c), min(b, d)) for (a, b), (c, d) in product(left, right)]
    return [(low, high) for low, high in overlaps if low <= high]


def _step(feature: Feature, value: float, direction: int) -> float:
    return value + direction if feature.kind != "real" else float(np.nextafter(value, direction * inf))


def _limits(feature: Feature) -> Interval:
    return feature.range or (0.0, len(feature.categories or ()) - 1.0)


def nothing_left(domain: Domain) -> bool:
    """Return True if the forbidden boxes cover the whole domain, by search; False if MAX_STEPS do not suffice to tell.

    The lower corner of a box lies in some forbidden box, or is a legal row. All legal rows lie outside that forbidden box, above
    one of its upper ends.
    """
    forbidden = domain.forbidden
    if forbidden is None:
        return False
    next_up = np.where(domain.integer, forbidden.upper + 1, np.nextafter(forbidden.upper, inf))
    stack, visited = [domain.lower], set[bytes]()
    while stack:
        corner: Array = stack.pop()
        containing = np.flatnonzero(((corner >= forbidden.lower) & (corner <= forbidden.upper)).all(axis=1))
        if not len(containing) or len(visited) > MAX_STEPS:
            return False
        for v in np.flatnonzero(next_up[containing[0]] <= domain.upper):
            raised = corner.copy()
            raised[v] = next_up[containing[0], v]
            if raised.tobytes() not in visited:
                visited.add(raised.tobytes())
                stack.append(raised)
    return True
