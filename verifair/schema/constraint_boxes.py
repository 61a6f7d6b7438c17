"""From constraints to boxes: whatever they forbid is a union of closed boxes of raw values.

Categories become runs of consecutive codes. The complement of an interval is again closed intervals: it begins at the next whole
number, or for a real feature at the next float64, so no row is lost or forbidden twice. A `then` with several features fails as
soon as one of them does: one family of boxes for each.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from itertools import product
from math import inf, prod

import numpy as np
import numpy.typing as npt
import pandas as pd

from encoders.network import Array
from encoders.problem import Domain, Forbidden
from verifair.errors import SchemaError
from verifair.schema import rows as schema_rows
from verifair.schema.constraint import Condition, Constraint, Range, labelled
from verifair.schema.feature import Feature

MAX_BOXES = 1000
"""Of one constraint: every legality test looks at each of them."""
MAX_STEPS = 2000
"""Of the search for a row that the constraints leave."""

Interval = tuple[float, float]
Booleans = npt.NDArray[np.bool_]


def forbidden(constraints: Sequence[Constraint], features: Sequence[Feature]) -> Forbidden | None:
    """All that the constraints forbid; None without any. Raises SchemaError, one line a problem."""
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


def broken(constraints: Sequence[Constraint], features: Sequence[Feature], raw: Array) -> dict[str, Booleans]:
    """For each constraint, by what errors call it, which raw rows (B, V) break it: (B,)."""
    return {label: boxes_of(c, features).contain(raw, raw) for label, c in labelled(constraints)}


def told(constraints: Sequence[Constraint], features: Sequence[Feature], raw: Array, rows: pd.Index) -> str:
    """Which constraints are broken by how many of the rows raw (B, V), labelled `rows`, with the first of each; and the remedy."""
    position = {feature.name: v for v, feature in enumerate(features)}
    parts = []
    for (label, found), constraint in zip(broken(constraints, features, raw).items(), constraints, strict=True):
        if found.any():
            count, first = int(found.sum()), int(np.argmax(found))
            held = ", ".join(f"{name} = {features[v].word(raw[first, v])}" for name in constraint.names for v in [position[name]])
            many = "row breaks" if count == 1 else "rows break"
            parts.append(f"{label}: {count} {many} it, first row {rows[first]} with {held}")
    return "; ".join(parts) + "; correct the data or the constraint, or leave such rows out (--outside drop)"


def boxes_of(constraint: Constraint, features: Sequence[Feature]) -> Forbidden:
    """The closed raw boxes (F, V) that a constraint forbids, infinite where a feature does not matter.

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
    boxes = [dict(zip(family, ends, strict=True)) for family in families for ends in product(*family.values())]
    if not boxes:
        raise SchemaError("it forbids nothing: `then` always holds where `if` does; correct or drop it")
    lower, upper = np.full((2, len(boxes), len(features)), [[[-inf]], [[inf]]])
    for k, box in enumerate(boxes):
        for v, (low, high) in box.items():
            first, last = _limits(features[v])
            if low > first or high < last:
                lower[k, v], upper[k, v] = low, high
    if (np.isinf(lower) & np.isinf(upper)).all(axis=1).any():
        raise SchemaError("it forbids every row: its conditions hold everywhere; correct or drop it")
    return Forbidden(lower=lower, upper=upper)


def _resolved(
    conditions: Mapping[str, Condition], features: Sequence[Feature], lines: list[str]
) -> dict[int, list[Interval]]:
    """Raw intervals by position of the feature; what is wrong goes to `lines`."""
    names = [feature.name for feature in features]
    found = {}
    for name, condition in conditions.items():
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(names)}"
            lines.append(f"there is no feature {name!r} in the schema; {hint}")
            continue
        try:
            feature = features[names.index(name)]
            found[names.index(name)] = _intervals(feature, condition)
        except SchemaError as error:
            lines.append(str(error))
    return found


def _intervals(feature: Feature, condition: Condition) -> list[Interval]:
    """Disjoint closed intervals of raw values, in order, no two of them neighbours."""
    if isinstance(condition, Range):
        return [_range(feature, condition)]
    values = sorted({schema_rows.raw_value(feature, value) for value in condition})
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
        if end is not None and not first <= schema_rows.raw_value(feature, end) <= last:
            raise SchemaError(
                f"feature {feature.name!r}: {key} = {end:.10g} lies outside the declared range {first:.10g} .. {last:.10g}; leave "
                "this end out, or widen the range"
            )
    low, high = (-inf if condition.low is None else condition.low), (inf if condition.high is None else condition.high)
    if low > high:
        raise SchemaError(f"feature {feature.name!r}: low = {low:.10g}, high = {high:.10g} is reversed; exchange the ends")
    return low, high


def _complement(feature: Feature, intervals: list[Interval]) -> list[Interval]:
    """What is left of the feature's range, as closed intervals again: the next number, or the next whole number, on each side."""
    first, last = _limits(feature)
    starts = [-inf, *(_step(feature, high, 1) for _, high in intervals)]
    ends = [*(_step(feature, low, -1) for low, _ in intervals), inf]
    return [(low, high) for low, high in zip(starts, ends, strict=True) if max(low, first) <= min(high, last)]


def _common(one: list[Interval], other: list[Interval]) -> list[Interval]:
    both = [(max(a, c), min(b, d)) for (a, b), (c, d) in product(one, other)]
    return [(low, high) for low, high in both if low <= high]


def _step(feature: Feature, value: float, direction: int) -> float:
    return value + direction if feature.kind != "real" else float(np.nextafter(value, direction * inf))


def _limits(feature: Feature) -> Interval:
    return feature.range or (0.0, len(feature.categories or ()) - 1.0)


def nothing_left(domain: Domain) -> bool:
    """Whether what is forbidden covers the whole domain, by search; False where MAX_STEPS do not tell.

    The lower corner of a box lies in some forbidden box, or is a row. What is legal there leaves that box, and can do so
    upwards only.
    """
    forbidden = domain.forbidden
    if forbidden is None:
        return False
    next_up = np.where(domain.integer, forbidden.upper + 1, np.nextafter(forbidden.upper, inf))
    stack, seen = [domain.lower], set[bytes]()
    while stack:
        corner: Array = stack.pop()
        hit = np.flatnonzero(((corner >= forbidden.lower) & (corner <= forbidden.upper)).all(axis=1))
        if not len(hit) or len(seen) > MAX_STEPS:
            return False
        for v in np.flatnonzero(next_up[hit[0]] <= domain.upper):
            raised = corner.copy()
            raised[v] = next_up[hit[0], v]
            if raised.tobytes() not in seen:
                seen.add(raised.tobytes())
                stack.append(raised)
    return True
