"""The result of an audit: the sections of its analyses and their subject. It is the JSON beside the page."""

from __future__ import annotations

import shlex
from pathlib import PurePath
from typing import Any, Literal

from pydantic.json_schema import SkipJsonSchema

from verifair.auditing.decisions import Decisions
from verifair.auditing.what_if import WhatIf
from verifair.systems.results.findings import DataTable, Section, Source, Statement
from verifair.systems.results.result import Count, Seconds, Seed, Shape

PAGE_ONLY: dict[str, Any] = {
    "what_if": True, "sections": {"__all__": {"pictures": {"__all__": {"svg"}}}},
}  # fmt: skip
"""Fields that the JSON leaves out."""


class GateCheck(Shape):
    """A threshold of the audit file's [gate], checked for one sensitive feature."""

    name: str
    feature: str | None
    threshold: float | None
    low: float | None
    """The quantity is at least that; null: not known."""
    high: float | None
    """The quantity is at most that; null: not known."""
    outcome: Literal["passed", "failed", "unknown"]
    text: str
    """The threshold and the finding, in one line."""


class QuantityChange(Shape):
    """One quantity in two audits."""

    what: str
    of: str | None
    """Feature, and group."""
    before: str | None
    """In words; null: the other audit does not have it."""
    now: str | None
    low: float | None
    """Lower bound of the difference, now minus before: by the 95 % intervals of shares of people, or certified; null: unknown."""
    high: float | None
    standing: Literal["better", "worse", "moved", "unchanged", "not clear", "incomparable"]
    """moved: it differs, and neither direction is better.   not clear: the interval of the difference contains 0."""
    why: str
    """The reason, if it is not clear or incomparable; else empty."""

    @property
    def difference(self) -> str:
        """The bounds of the difference, now minus before; empty if one is not known."""
        return "" if self.low is None or self.high is None else f"{self.low:+.4g} to {self.high:+.4g}"

    @property
    def text(self) -> str:
        """The values before and now, the difference, and the reason if they are not compared, in one line."""
        quantity = f"{self.what}, {self.of}" if self.of else self.what
        values = f": {self.before or 'not there'}, now {self.now or 'not there'}" if self.before or self.now else ""
        details = [f"difference {self.difference}" if self.difference else "", self.why]
        return quantity + values + "".join(f"; {detail}" for detail in details if detail)


STANDINGS = ("worse", "better", "moved", "not clear", "unchanged", "incomparable")
"""Standings of changes, in the order in which they are shown."""


class Comparison(Shape):
    """The changes since another audit."""

    title: str
    """Title of the other audit."""
    started: str
    same_model: bool
    same_schema: bool
    same_data: bool
    changes: tuple[QuantityChange, ...]

    def count(self, standing: str) -> int:
        return sum(change.standing == standing for change in self.changes)

    @property
    def table(self) -> DataTable:
        """Return the changes for the page, worse ones first."""
        rows = [
            {
                "quantity": change.what, "of": change.of or "", "before": change.before or "", "now": change.now or "",
                "difference": change.difference,
                "standing": change.standing + (f": {change.why}" if change.why else ""),
            }
            for standing in STANDINGS for change in self.changes if change.standing == standing
        ]
        note = (
            "difference: now less before; of shares of people between the ends of their 95 % intervals (Wilson), of what was "
            "proved between certified ends. better and worse: the difference has one sign. moved: it differs, and neither is "
            "better by itself. not clear: the difference may be 0. unchanged: the same number, of the same model (and table)."
        )
        columns = ["quantity", "of", "before", "now", "difference", "standing"]
        return DataTable(title="What changed", columns=columns, rows=[[row[name] for name in columns] for row in rows], note=note)

    @property
    def headline(self) -> str:
        """The numbers of changes, in one sentence."""
        counts = [f"{self.count(standing)} {standing}" for standing in STANDINGS
                if self.count(standing)]  # fmt: skip
        parts = (("another model", self.same_model), ("another schema", self.same_schema), ("other data", self.same_data))
        difference = " and ".join(name for name, same in parts if not same) or "the same model, schema and data"
        return f"Compared with {self.title} ({difference}): {', '.join(counts) or 'nothing to compare'}."


class AuditResult(Shape):
    """`verifair audit`: the page with all numbers; pictures by their name and description only."""

    format: Literal["verifair-audit/1"] = "verifair-audit/1"
    title: str
    rows: Count
    """Rows of the table."""
    treated: str = ""
    """Numbers of rows left out and of missing values filled in, in words, in brackets; empty for none."""
    protected: list[str]
    """The sensitive features."""
    favourable: str
    unfavourable: str
    network: str
    started: str
    """UTC, ISO 8601."""
    seconds: Seconds
    effort: Seconds | None = None
    """Seconds of work on one idle core that all analyses were allowed together; null: an older version wrote this."""
    seed: Seed
    """Seed of every draw."""
    versions: dict[str, str]
    """Package -> version."""
    sources: list[Source]
    decisions: Decisions | None
    """The model's decisions for each group; null without a table."""
    sections: list[Section]
    """In the order asked for."""
    gate: list[GateCheck] | None
    """The checks of the gate; null if the audit file has no gate."""
    comparison: Comparison | None = None
    """Comparison with another audit; null if none was named."""
    what_if: SkipJsonSchema[WhatIf | None] = None
    """The model for the page's script. It is not in the audit's JSON."""

    @property
    def statements(self) -> tuple[Statement, ...]:
        decisions = () if self.decisions is None else self.decisions.statements
        return (*decisions, *(statement for section in self.sections for statement in section.statements))

    @property
    def command(self) -> str | None:
        """The command that checks every file of proofs again, for the page's folder; None if there are none."""
        proofs = [proof for section in self.sections for proof in section.evidence]
        if len(proofs) < 2:
            return proofs[0].command if proofs else None
        longest = max((shlex.split(proof.command) for proof in proofs), key=len)  # with --partial if any has it
        folders = dict.fromkeys(str(PurePath(proof.file).parent) for proof in proofs)
        return shlex.join(["verifair", "check", *folders, *longest[3:]])

    def content(self) -> dict[str, Any]:
        """Return the content of the JSON."""
        return self.model_dump(exclude=PAGE_ONLY)
