"""JSON schemas (draft 2020-12) of every --json, and of the files of proofs: NAME.schema.json in this folder.

They are made from the types in this package (`generate.py`); a test holds the files up to date.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from verifair.errors import QueryError

SUFFIX = ".schema.json"


def names() -> list[str]:
    """What there is a schema for, in alphabetical order."""
    return sorted(file.name.removesuffix(SUFFIX) for file in files(__name__).iterdir() if file.name.endswith(SUFFIX))


def text(name: str) -> str:
    """The schema as it stands in its file. Raises QueryError where there is none of this name."""
    if name not in names():
        raise QueryError(f"there is no JSON schema {name!r}; expected one of {', '.join(names())}")
    return (files(__name__) / f"{name}{SUFFIX}").read_text(encoding="utf-8")


def schema(name: str) -> dict[str, Any]:
    """The schema of an answer or a file. Raises QueryError where there is none of this name."""
    found: dict[str, Any] = json.loads(text(name))
    return found
