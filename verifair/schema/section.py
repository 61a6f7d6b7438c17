"""Sections of other TOML files that people write (audits, causal models), read as schemas are."""

from __future__ import annotations

from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from verifair.errors import SchemaError
from verifair.schema.file import problems

Kind = TypeVar("Kind", bound=BaseModel)


def read_section(kind: type[Kind], title: str, data: Any) -> Kind:
    """Return a section from the file's content. Raises SchemaError, one line a problem, which begins with the title."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise SchemaError("\n".join(f"{title}: {line}" for line in problems(error, kind))) from None


class TomlSection(BaseModel):
    """A section that knows its title."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def title(cls, data: Any) -> str:
        return ""

    @classmethod
    def read(cls, data: Any) -> Self:
        """Return a section from the file's content. Raises SchemaError."""
        return read_section(cls, cls.title(data), data)
