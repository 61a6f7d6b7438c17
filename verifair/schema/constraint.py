"""Constraints among features: which rows cannot be, as the schema file says it.

    [[constraint]]                                       [[constraint]]
    name = "a husband is male"                           never = { age = { high = 15 }, marital = ["Married", "Widowed"] }
    if = { relationship = "Husband" }
    then = { sex = "Male" }

A table holds a condition for each of some features, all of which must hold: one value, a list of values, or an inclusive range
{ low = ..., high = ... } with either end left out. `never` forbids the rows that meet its table; `if` A `then` B forbids those that
meet A and not B. `verifair.schema.constraint_boxes` turns either into closed boxes of raw values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ModelWrapValidatorHandler, ValidationError, model_validator

from verifair.errors import SchemaError
from verifair.schema import file as schema_file
from verifair.schema.feature import number, text

Word = str | float


class Range(BaseModel):
    """low <= value <= high, raw units; None: no limit on that side."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    low: float | None = None
    high: float | None = None

Condition = Range | tuple[Word, ...]


def _conditions(value: Any) -> Any:
    """Each condition in its one form, a Range or a tuple of words, all problems told at once."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value:
        raise ValueError(f"found {schema_file.shown(value)}, expected conditions such as {{ feature = value }}, at least one")
    found, lines = {}, []
    for name, given in value.items():
        try:
            found[str(name)] = _condition(given)
        except ValueError as error:
            lines.append(f"feature {name!r}: {error}")
    if lines:
        raise ValueError("\n".join(lines))
    return found


def _condition(given: Any) -> Condition:
    if isinstance(given, Range):
        return given
    if isinstance(given, Mapping):
        for key in given:
            if key not in ("low", "high"):
                raise ValueError(f"{key}: unknown key of a range; known are low and high")
        ends = {key: end for key, end in given.items() if end is not None}
        if not ends:
            raise ValueError("the range has no end; give low, high, or both")
        for key, end in ends.items():
            if isinstance(end, bool) or not isinstance(end, Real) or not np.isfinite(number(end)):
                raise ValueError(f"{key} = {schema_file.shown(end)} is no finite number; correct it, or leave this end out")
        return Range(**{key: float(end) for key, end in ends.items()})
    values = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    if not values:
        raise ValueError("[] lists no value; name at least one, or drop the feature")
    for value in values:
        if not isinstance(value, (str, Real)):
            found = schema_file.shown(value)
            raise ValueError(f"{found} is no value; give a category, a number, a list of these, or {{ low = ..., high = ... }}")
    return tuple(number(v) if isinstance(v, Real) and not isinstance(v, bool) else text(v) for v in values)


Conditions = Annotated[Mapping[str, Condition], BeforeValidator(_conditions)]


class Constraint(BaseModel):
    """One constraint. Raises SchemaError, one line a problem; whether features and values exist is asked by
    `constraint_boxes`."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
    name: str | None = Field(default=None, min_length=1)
    if_: Conditions | None = Field(default=None, alias="if")
    then: Conditions | None = None
    never: Conditions | None = None

    @model_validator(mode="after")
    def _is_one_of_the_two_forms(self) -> Constraint:
        if (self.never is None) == (self.if_ is None and self.then is None) or (self.if_ is None) != (self.then is None):
            keys = [key for key, table in (("if", self.if_), ("then", self.then), ("never", self.never)) if table is not None]
            raise ValueError(f"has {' and '.join(keys) or 'no condition'}; write either if = ... and then = ..., or never = ...")
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _explained(cls, data: Any, handler: ModelWrapValidatorHandler[Constraint]) -> Constraint:
        try:
            return handler(data)
        except ValidationError as error:
            name = data.get("name") if isinstance(data, Mapping) else None
            place = f"constraint {name!r}: " if name else "constraint without a name: "
            lines = schema_file.problems(error, ["name", "if", "then", "never"])
            raise SchemaError("\n".join(place + line for line in lines)) from None

    @property
    def names(self) -> list[str]:
        """Names of the features that it is about, each once."""
        return list(dict.fromkeys(name for table in (self.if_, self.then, self.never) for name in table or ()))

    def table(self) -> dict[str, Any]:
        """The section of the schema file."""
        out: dict[str, Any] = {} if self.name is None else {"name": self.name}
        for key, conditions in (("if", self.if_), ("then", self.then), ("never", self.never)):
            if conditions is not None:
                out[key] = {name: _written(condition) for name, condition in conditions.items()}
        return out


def _written(condition: Condition) -> Any:
    if isinstance(condition, Range):
        return condition.model_dump(exclude_none=True)
    return condition[0] if len(condition) == 1 else list(condition)


def labelled(constraints: Sequence[Constraint]) -> list[tuple[str, Constraint]]:
    """What errors call each constraint: its name, or its number in the schema."""
    return [
        (f"constraint {c.name!r}" if c.name is not None else f"constraint number {k}", c)
        for k, c in enumerate(constraints, start=1)
    ]
