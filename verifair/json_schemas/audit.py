"""audit: what stands on the page, in full numbers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from verifair.json_schemas.words import Count, Probability, Seconds, Seed, Sha256, Shape
from verifair.systems.findings import Standing, Tone


class AuditStatement(Shape):
    """standing: how firmly it stands.   tone: what it means to somebody responsible.   headline: it is on the first screen."""

    text: str
    standing: Standing
    tone: Tone
    headline: bool


class AuditWitness(Shape):
    """The same person twice, with other sensitive values."""

    analysis: str
    person: dict[str, str]
    """Feature -> value in words, of both."""
    changes: dict[str, Annotated[list[str], Field(min_length=2, max_length=2)]]
    """Sensitive feature -> [was, became]."""
    before: Probability
    after: Probability
    flips: bool
    """The decision changes."""
    float32_agrees: bool | None
    """Whether onnxruntime shows the same; null: not asked."""
    sentence: str


class AuditPicture(Shape):
    title: str
    alt: str


class AuditTable(Shape):
    title: str
    note: str
    columns: list[str]
    rows: list[list[Any]]
    """Each as long as columns."""


class AuditEvidence(Shape):
    """A file of proofs, relative to the page."""

    file: str
    sha256: Sha256
    proves: str
    command: str
    """Checks it again, from the page's folder."""
    checked: Literal["accepted", "rejected", "not re-checked"]
    """By the separate checker, in this run."""


class AuditSection(Shape):
    key: Literal["pba", "certify", "kmax", "fgce", "cec", "cst"]
    title: str
    question: str
    method: str
    source: str
    semantics: str
    """Which function the answers are about."""
    statements: list[AuditStatement]
    witnesses: list[AuditWitness]
    pictures: list[AuditPicture]
    tables: list[AuditTable]
    evidence: list[AuditEvidence]
    settings: dict[str, Any]
    answer: dict[str, Any]
    """All in numbers, as the analysis's own verb gives it or in part."""
    seconds: Seconds


class AuditSource(Shape):
    role: str
    file: str
    sha256: Sha256


class Audit(Shape):
    """`verifair audit`: the page in full numbers; of pictures only what they are called and show."""

    format: Literal["verifair-audit/1"]
    title: str
    rows: Count
    protected: list[str]
    favourable: str
    unfavourable: str
    network: str
    started: str
    """UTC, ISO 8601."""
    seconds: Seconds
    seed: Seed
    versions: dict[str, str]
    sources: list[AuditSource]
    sections: list[AuditSection]
