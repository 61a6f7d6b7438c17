"""The result of an audit: the sections of its analyses, and what they are about. It is the JSON beside the page."""

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


class QuantityChange(Shape):
    """One quantity in two audits."""

    what: str
    of: str | None
    """Feature, and group."""
    before: str | None
    """In words; null: the other audit does not have it."""
    now: str | None
    low: float | None
    """The difference, now less before, is at least that: by the 95 % intervals of shares of people, or certified; null: unknown."""
    high: float | None
    standing: Literal["better", "worse", "moved", "unchanged", "not clear", "incomparable"]
    """moved: it differs, and neither is better by itself.   not clear: the interval of the difference holds 0."""
    why: str
    """Where it is not clear or incomparable; else empty."""

    @property
    def difference(self) -> str:
        """Now less before, from end to end; empty where an end is not known."""
        return "" if self.low is None or self.high is None else f"{self.low:+.4g} to {self.high:+.4g}"

    @property
    def text(self) -> str:
        """What it was and is, the difference, and why it is not compared, in one line."""
        about = f"{self.what}, {self.of}" if self.of else self.what
        values = f": {self.before or 'not there'}, now {self.now or 'not there'}" if self.before or self.now else ""
        details = [f"difference {self.difference}" if self.difference else "", self.why]
        return about + values + "".join(f"; {one}" for one in details if one)


STANDINGS = ("worse", "better", "moved", "not clear", "unchanged", "incomparable")
"""Of changes, in the order in which they are shown."""


class Comparison(Shape):
    """What changed since another audit."""

    title: str
    """Of the other."""
    started: str
    same_model: bool
    same_schema: bool
    same_data: bool
    changes: tuple[QuantityChange, ...]

    def count(self, standing: str) -> int:
        return sum(one.standing == standing for one in self.changes)

    @property
    def table(self) -> DataTable:
        """Return the changes for the page, what is worse first."""
        rows = [
            {
                "quantity": one.what, "of": one.of or "", "before": one.before or "", "now": one.now or "",
                "difference": one.difference,
                "standing": one.standing + (f": {one.why}" if one.why else ""),
            }
            for standing in STANDINGS for one in self.changes if one.standing == standing
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
        """What changed, in one sentence."""
        counts = [f"{self.count(one)} {one}" for one in STANDINGS
                if self.count(one)]  # fmt: skip
        parts = (("another model", self.same_model), ("another schema", self.same_schema), ("other data", self.same_data))
        about = " and ".join(name for name, same in parts if not same) or "the same model, schema and data"
        return f"Compared with {self.title} ({about}): {', '.join(counts) or 'nothing to compare'}."


class AuditResult(Shape):
    """`verifair audit`: the page in full numbers; of pictures only what they are called and show."""

    format: Literal["verifair-audit/1"] = "verifair-audit/1"
    title: str
    rows: Count
    """Of the table."""
    treated: str = ""
    """How many rows were left out and missing values filled in, in words, in brackets; empty for none."""
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
    comparison: Comparison | None = None
    """With another audit; null: none was named."""
    what_if: SkipJsonSchema[WhatIf | None] = None
    """The model for the page's script. It is not in the audit's JSON."""

    @property
    def statements(self) -> tuple[Statement, ...]:
        measured = () if self.decisions is None else self.decisions.statements
        return (*measured, *(statement for section in self.sections for statement in section.statements))

    @property
    def command(self) -> str | None:
        """What checks every file of proofs again, typed in the page's folder; None where there are none."""
        proofs = [proof for section in self.sections for proof in section.evidence]
        if len(proofs) < 2:
            return proofs[0].command if proofs else None
        longest = max((shlex.split(proof.command) for proof in proofs), key=len)  # with --partial where any has it
        folders = dict.fromkeys(str(PurePath(proof.file).parent) for proof in proofs)
        return shlex.join(["verifair", "check", *folders, *longest[3:]])

    def content(self) -> dict[str, Any]:
        """Return what the JSON holds."""
        return self.model_dump(exclude=PAGE_ONLY)
