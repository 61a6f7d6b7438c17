"""What an audit found: the sections of its analyses, and what they were about. It is the JSON beside the page."""

from __future__ import annotations

from typing import Any, Literal

from verifair.systems.findings import Section, Source, Statement
from verifair.systems.result import Count, Seconds, Seed, Shape

WITHOUT_DRAWINGS = {"sections": {"__all__": {"pictures": {"__all__": {"svg"}}}}}
"""What the JSON leaves out."""


class AuditResult(Shape):
    """`verifair audit`: the page in full numbers; of pictures only what they are called and show."""

    format: Literal["verifair-audit/1"] = "verifair-audit/1"
    title: str
    rows: Count
    """Of the table."""
    protected: list[str]
    """The sensitive features."""
    favourable: str
    unfavourable: str
    network: str
    started: str
    """UTC, ISO 8601."""
    seconds: Seconds
    seed: Seed
    """Of every draw."""
    versions: dict[str, str]
    """Package -> version."""
    sources: list[Source]
    sections: list[Section]
    """In the order asked for."""

    @property
    def statements(self) -> tuple[Statement, ...]:
        return tuple(statement for section in self.sections for statement in section.statements)

    def content(self) -> dict[str, Any]:
        """Return what the JSON holds."""
        return self.model_dump(exclude=WITHOUT_DRAWINGS)
