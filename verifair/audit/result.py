"""What an audit found: the sections of its analyses, and what they were about."""

from __future__ import annotations

from dataclasses import dataclass

from verifair.systems.findings import Section, Statement


@dataclass(frozen=True, kw_only=True)
class Source:
    """A file that the audit read. role: model, schema, data, causal model or the audit file.   file: as the audit file names it."""

    role: str
    file: str
    sha256: str


@dataclass(frozen=True, kw_only=True, eq=False)
class AuditResult:
    """The whole audit.

    sections: in the order asked for.   rows: of the table.   started: UTC, ISO 8601.   seed: of every draw.
    protected: the sensitive features.   favourable, unfavourable: the two outcomes in words.   versions: package -> version.
    """

    title: str
    sections: tuple[Section, ...]
    sources: tuple[Source, ...]
    rows: int
    protected: tuple[str, ...]
    favourable: str
    unfavourable: str
    network: str
    started: str
    seconds: float
    seed: int
    versions: dict[str, str]

    @property
    def statements(self) -> tuple[Statement, ...]:
        return tuple(statement for section in self.sections for statement in section.statements)
