"""What an audit found: the sections of its analyses, and what they were about. It is the JSON beside the page."""

from __future__ import annotations

from typing import Any, Literal

from pydantic.json_schema import SkipJsonSchema

from verifair.auditing.decisions import Decisions
from verifair.auditing.what_if import WhatIf
from verifair.systems.findings import Section, Source, Statement
from verifair.systems.result import Count, Seconds, Seed, Shape

PAGE_ONLY: dict[str, Any] = {
    "what_if": True, "decisions": {"picture": {"svg"}}, "sections": {"__all__": {"pictures": {"__all__": {"svg"}}}},
}  # fmt: skip
"""What the JSON leaves out."""


class GateCheck(Shape):
    """A threshold of the audit file's [gate], asked of one sensitive feature."""

    name: str
    feature: str | None
    threshold: float | None
    low: float | None
    """The quantity is at least that; null: not known."""
    high: float | None
    """The quantity is at most that; null: not known."""
    outcome: Literal["passed", "failed", "unknown"]
    text: str
    """What was asked and found, in one line."""


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
    decisions: Decisions | None
    """What the model decides for each group; null: there is no table."""
    sections: list[Section]
    """In the order asked for."""
    gate: list[GateCheck] | None
    """Each threshold of the gate; null: the audit file has none."""
    what_if: SkipJsonSchema[WhatIf | None] = None
    """The model for the page's script. It is not in the audit's JSON."""

    @property
    def statements(self) -> tuple[Statement, ...]:
        measured = () if self.decisions is None else self.decisions.statements
        return (*measured, *(statement for section in self.sections for statement in section.statements))

    def content(self) -> dict[str, Any]:
        """Return what the JSON holds."""
        return self.model_dump(exclude=PAGE_ONLY)
