"""The contents of a page's section: statements, counterexamples, pictures, tables and proofs.

Every statement has a standing, so that no page can make a measurement look like a proof.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal

import pandas as pd
from pydantic import Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from verifair.checker.certificates.extent import Sha256
from verifair.errors import VerifairError
from verifair.systems.results.files import plain
from verifair.systems.results.result import RowName, Seconds, Shape


class Standing(Enum):
    """The certainty of a statement.

    PROVED: holds at every legal input that the statement is about, and the separate checker accepted the proof in this run (or the
    part of the file that the statement is about).
    REFUTED: fails, an exact counterexample shows where.
    CLAIMED: a solver's or a search's claim, not checked.   MEASURED: computed from the rows of the table, or found by a search.
    UNKNOWN: not decided within the budget, or too close for the arithmetic.
    SKIPPED: the analysis did not run; the statement says why.
    """

    PROVED = "proved"
    REFUTED = "refuted"
    CLAIMED = "claimed"
    MEASURED = "measured"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"


class Tone(Enum):
    """The meaning of a statement for a responsible person: nothing to do, look into it, something is wrong, or information."""

    GOOD = "good"
    WATCH = "watch"
    BAD = "bad"
    PLAIN = "plain"


class Statement(Shape):
    """One sentence that a compliance officer understands without the paper."""

    text: str
    standing: Standing
    """How certain it is."""
    tone: Tone
    """Its meaning for a responsible person."""
    headline: bool = False
    """It is on the first screen."""
    brief: str = ""
    """The headline in one line; empty: the text is short."""

    @property
    def short(self) -> str:
        return self.brief or self.text


def not_run(error: VerifairError) -> Statement:
    """Return the statement on a feature that an analysis could not be asked about, while it was about others."""
    text = f"Did not run: {str(error).removesuffix('.')}."
    return Statement(text=text, standing=Standing.SKIPPED, tone=Tone.PLAIN, headline=True)


class Picture(Shape):
    title: str
    alt: str
    """What it shows, in words."""
    svg: SkipJsonSchema[str]
    """A whole <svg> element, without scripts and without references outside itself. It is not in the audit's JSON."""


class DataTable(Shape):
    """A table, ready to be shown; numbers stay numbers (the page aligns, rounds and sorts them)."""

    title: str
    note: str = ""
    """How to read it."""
    columns: list[str] = Field(default_factory=list)
    rows: list[list[Any]]
    """Each as long as columns."""

    @model_validator(mode="before")
    @classmethod
    def _of_frame(cls, given: Any) -> Any:
        """Accept rows = DataFrame as well."""
        rows = given.get("rows") if isinstance(given, dict) else None
        return given | plain(rows) if isinstance(rows, pd.DataFrame) else given

    @model_validator(mode="after")
    def _rectangular(self) -> DataTable:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError("a row has more cells than there are columns, or fewer")
        return self

    @property
    def frame(self) -> pd.DataFrame:
        return pd.DataFrame(self.rows, columns=self.columns)


class WitnessRow(Shape):
    """One counterexample: the same person twice, with other sensitive values."""

    analysis: str
    person: dict[str, str]
    """Feature -> value in words ("age" -> "34 years"), of both."""
    changes: dict[str, tuple[str, str]]
    """Sensitive feature -> [was, became]."""
    before: float
    after: float
    """The model's output for each: a probability, or a value."""
    flips: bool
    """The decision changes."""
    float32_agrees: bool | None
    """Whether onnxruntime shows the same; null: not asked."""
    sentence: str
    """All of it in one readable line."""
    row: RowName | None = None
    """Row of the table; null: a possible person."""
    x: dict[str, Any] = Field(default_factory=dict)
    """The person as they were, all features: categories by name, numbers with all digits. Empty: not known."""


class Evidence(Shape):
    """A file of proofs, relative to the page."""

    file: str
    sha256: Sha256
    proves: str
    """The statement that is proved, in one sentence."""
    command: str
    """Checks it again, from the page's folder."""
    checked: Literal["accepted", "accepted in part", "rejected", "not re-checked"]
    """By the separate checker, in this run; in part: what is decided was proved again, and some of what was asked is open."""
    missing: str | None = None
    """The part of its question that the file leaves out, in words."""


class Source(Shape):
    """A file that the audit read."""

    role: str
    """model, schema, data, causal model or the audit file."""
    file: str
    """Path as in the audit file."""
    sha256: Sha256


class Section(Shape):
    """The page's section on one analysis."""

    key: str
    """The verb."""
    title: str
    question: str
    """What it asks, in one sentence."""
    method: str
    """How, and whether that is sound and complete."""
    source: str
    """The paper."""
    semantics: str
    """The function that the answers are about."""
    statements: tuple[Statement, ...]
    witnesses: tuple[WitnessRow, ...] = ()
    pictures: tuple[Picture, ...] = ()
    tables: tuple[DataTable, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    settings: dict[str, Any] = Field(default_factory=dict)
    """The settings of the analysis, seeds included."""
    answer: dict[str, Any] = Field(default_factory=dict)
    """All in numbers, as the analysis's own verb gives it or in part."""
    seconds: Seconds = 0.0
