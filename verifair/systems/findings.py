"""What a system found, as a page shows it: statements, witnesses, figures, tables and certificates.

Every statement says how firmly it stands, so that no page can make a measurement look like a proof.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pandas as pd


class Standing(Enum):
    """How firmly a statement stands.

    PROVED: holds at every legal input, and the separate checker accepted the proof in this run; for FGCE, holds on the rows used,
    by a bound worked out again in whole numbers.   REFUTED: fails, an exact counterexample shows where.
    CLAIMED: a solver says so, nobody else has checked it.   MEASURED: computed from the rows of the table, or found by a search.
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
    """What a statement means to somebody responsible: nothing to do, look into it, something is wrong, or plain information."""

    GOOD = "good"
    WATCH = "watch"
    BAD = "bad"
    PLAIN = "plain"


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One sentence that a compliance officer understands without the paper. headline: it belongs to the first screen."""

    text: str
    standing: Standing
    tone: Tone
    headline: bool = False


@dataclass(frozen=True, kw_only=True)
class Picture:
    """svg: a whole <svg> element, without scripts and without references outside itself.   alt: what it shows, in words."""

    title: str
    alt: str
    svg: str


@dataclass(frozen=True, kw_only=True, eq=False)
class DataTable:
    """rows: ready to be shown; numbers stay numbers (the page aligns, rounds and sorts them). note: how to read it."""

    title: str
    rows: pd.DataFrame
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class WitnessRow:
    """One counterexample: the same person twice, with other protected values.

    person: what both copies share, feature -> value in words ("age" -> "34 years").   changes: protected feature -> (was, became).
    before, after: probability of the favourable outcome.   flips: whether the decision changes.
    float32_agrees: whether onnxruntime shows the same (None: not asked).   sentence: all of it in one readable line.
    """

    analysis: str
    person: dict[str, str]
    changes: dict[str, tuple[str, str]]
    before: float
    after: float
    flips: bool
    float32_agrees: bool | None
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A file of proofs beside the page. file: relative to the page.   command: what re-checks it, from the page's folder.

    proves: what it proves, in one sentence.
    checked: "accepted", "rejected" or "not re-checked": what the separate checker said in this very run.
    """

    file: str
    sha256: str
    proves: str
    command: str
    checked: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Section:
    """One analysis.

    key: pba, certify, kmax, fgce, cec or cst.   question: what it asks, in one sentence.   method: how, and whether that is sound
    and complete.   source: the paper.   semantics: which function the answers are about.   answer: JSON-ready, all in numbers.
    settings: what was asked for, seeds included.   seconds: wall-clock.
    """

    key: str
    title: str
    question: str
    method: str
    source: str
    semantics: str
    statements: tuple[Statement, ...]
    witnesses: tuple[WitnessRow, ...] = ()
    pictures: tuple[Picture, ...] = ()
    tables: tuple[DataTable, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    answer: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
