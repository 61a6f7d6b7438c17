"""Names that may clash with others: beside verifair's own columns in a table, or before a sign = on the command line."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from shlex import quote
from typing import Any


def beside(own_columns: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return verifair's columns for a table with columns of these names: one with the same name becomes `decision (verifair)`."""
    columns: dict[str, Any] = {}
    for name, value in own_columns.items():
        while name in names or name in columns:
            name += " (verifair)"
        columns[name] = value
    return columns


def assignment(text: str) -> tuple[str, str, str]:
    """Return name, "=" and value of "name=value", as str.partition does; a name that holds = stands in double quotes."""
    quoted = re.fullmatch(r'\s*"([^"]+)"\s*(=)(.*)', text, re.DOTALL)
    name, equals, value = quoted.groups() if quoted else text.partition("=")
    return name.strip(), equals, value.strip()


def assigned(name: str, value: str) -> str:
    """Return "name=value" as `assignment` reads it."""
    return f'"{name}"={value}' if "=" in name else f"{name}={value}"


def unquoted(name: str, names: Iterable[object]) -> str:
    """Return a hint for quotes if `name` is the part of a known name before its sign =, else nothing."""
    full_name = next((str(known_name) for known_name in names if str(known_name).startswith(f"{name}=")), None)
    if full_name is None:
        return ""
    return f"; on the command line a name with = stands in double quotes: {quote(assigned(full_name, '...'))}"
