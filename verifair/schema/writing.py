"""Schemas as TOML text, the same for equal schemas."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

if TYPE_CHECKING:  # the help of `audit` writes an example, and needs none of this
    from verifair.schema.constraint import Condition, Constraint
    from verifair.schema.space import InputSpace


def toml(schema: InputSpace) -> str:
    """Return the schema as TOML, without fields that have their default."""
    model = schema.model_dump(exclude={"features", "positive", "constraints"}, exclude_none=True, exclude_defaults=True)
    lines = ["[model]", *_lines({"positive": schema.positive, **model})]
    for feature in schema.features:
        lines += ["", "[[feature]]", *_lines(feature.model_dump(exclude_none=True, exclude_defaults=True))]
    for constraint in schema.constraints:
        lines += ["", "[[constraint]]", *_lines(_table(constraint))]
    return "\n".join(lines) + "\n"


def _lines(section: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {written(value)}" for key, value in section.items()]


def _table(constraint: Constraint) -> dict[str, Any]:
    table: dict[str, Any] = {} if constraint.name is None else {"name": constraint.name}
    for key, conditions in (("if", constraint.if_), ("then", constraint.then), ("never", constraint.never)):
        if conditions is not None:
            table[key] = {name: _condition(condition) for name, condition in conditions.items()}
    return table


def _condition(condition: Condition) -> Any:
    if isinstance(condition, BaseModel):  # a range
        return condition.model_dump(exclude_none=True)
    return condition[0] if len(condition) == 1 else list(condition)


def _key(name: str) -> str:
    """Return a name as a TOML key: names of features may hold anything."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else written(name)


def written(value: Any) -> str:
    """Return a value in TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {written(v)}" for k, v in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(written(v) for v in value) + "]"
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, int):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON's escapes are TOML's, save for DEL
