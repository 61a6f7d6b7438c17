"""Contents of the page's sections, computed before the page is rendered: their outcomes, witnesses, counts."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from verifair.auditing.decisions import quantile
from verifair.auditing.page.cells import Grid, grid
from verifair.auditing.result import AuditResult
from verifair.systems.groups import SMALL
from verifair.systems.results.findings import DataTable, Evidence, Picture, Section, Standing, Statement, WitnessRow
from verifair.systems.results.words import name_words

MOST_WITNESSES = 2_000
MOST_ROWS = 500
"""Rows of a witness table and of any other: a page is for reading, the JSON beside it holds all."""
EXAMPLES = 3
MOST_FIRST = 6
"""Statements of a section that are not folded away."""
TALL = 14
"""A table of more rows scrolls in a box of its own."""
PRINTED = 60
"""Rows of a table on paper (page.css says the same)."""
WORDS = {
    Standing.PROVED: ("proved", "True without exception for all that the sentence is about. The proof can be checked again."),
    Standing.REFUTED: (
        "refuted", "The value makes a difference: an exact counterexample shows the same person with two values, and both outcomes."
    ),
    Standing.CLAIMED: ("claimed", "A solver or the search says so. The separate checker has not confirmed it."),
    Standing.MEASURED: ("measured", "Computed from rows of the table, or found by a search. It says nothing about other people."),
    Standing.UNKNOWN: ("unknown", "Not decided, mostly because the time was up. It may be true or false."),
    Standing.SKIPPED: ("not run", "The analysis did not run. The statement says why."),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A witness, and the analysis that found it. section: its number on the page, from 1."""

    witness: WitnessRow
    section: int
    title: str


def tone(statement: Statement) -> str:
    """Return a statement's mark. An unknown statement is neither good nor bad, whatever its tone."""
    return "open" if statement.standing in (Standing.UNKNOWN, Standing.SKIPPED) else statement.tone.value


def ended(section: Section) -> str:
    """Return the outcome of an analysis, with what it left open."""
    count, total = Counter(statement.standing for statement in section.statements), len(section.statements)
    open_ = count[Standing.UNKNOWN] + count[Standing.SKIPPED]
    if total and count[Standing.SKIPPED] == total:
        return "did not run"
    if open_ == total:
        return "nothing decided"
    return f"in part not decided ({open_} of {total} statements)" if open_ else "finished"


def parted(section: Section) -> tuple[list[Statement], list[Statement]]:
    """Return at most MOST_FIRST statements to read first (headlines, problems, unknown ones), and the others."""
    first = [statement for statement in section.statements if statement.headline or tone(statement) in ("bad", "open")][:MOST_FIRST]
    first = first or list(section.statements[:MOST_FIRST])
    return first, [statement for statement in section.statements if all(statement is not shown for shown in first)]


def folded(section: Section) -> str:
    """Return a summary of the folded parts of a section."""
    counts = (
        (len(parted(section)[1]), "more statement", "more statements"),
        (len(section.pictures[1:]), "more picture", "more pictures"),
        (len(section.tables), "table", "tables"), (len(section.evidence), "file of proofs", "files of proofs"),
    )  # fmt: skip
    return ", ".join([*(f"{n} {singular if n == 1 else plural}" for n, singular, plural in counts if n), "method"])


def standings(result: AuditResult) -> list[tuple[int, str, list[int]]]:
    """Return for each section its number, title, and numbers of statements by standing, in the order of WORDS."""
    rows = []
    for position, section in enumerate(result.sections, start=1):
        count = Counter(statement.standing for statement in section.statements)
        rows.append((position, section.title, [count[standing] for standing in WORDS]))
    return rows


def evidence_counts(result: AuditResult) -> Counter[str]:
    return Counter(proof.checked for section in result.sections for proof in section.evidence)


def witnesses(result: AuditResult) -> tuple[list[Row], int]:
    """Return the witnesses of all analyses in one list, and the number of further ones that do not fit the page."""
    rows = [
        Row(witness=witness, section=position, title=section.title)
        for position, section in enumerate(result.sections, start=1)
        for witness in section.witnesses
    ]
    return rows[:MOST_WITNESSES], max(0, len(rows) - MOST_WITNESSES)


def changed(witness: WitnessRow) -> str:
    return ", ".join(f"{name_words(feature)}: {old} → {new}" for feature, (old, new) in witness.changes.items())


def what_if(result: AuditResult) -> dict[str, Any] | None:
    """Return the data of the script of *What if*; None if it cannot compute anything."""
    if result.what_if is None:
        return None
    decisions = result.decisions
    scores = None if decisions is None or decisions.scores is None else decisions.scores.model_dump()
    z = {} if decisions is None else {feature: quantile(decisions.of(feature)) for feature in result.protected}
    return {**result.what_if.content, "people": result.what_if.people[:MOST_WITNESSES], "scores": scores, "small": SMALL, "z": z}


def plain(value: float) -> str:
    """Return a number as an input field takes it."""
    return str(int(value)) if value.is_integer() else repr(value)


def grids(tables: Sequence[DataTable]) -> list[tuple[str, str, Grid]]:
    """Return title, note and cells of each table."""
    return [(table.title, table.note, grid(table.frame, MOST_ROWS)) for table in tables]


def picture(source: Picture) -> str:
    """Return the SVG as a data URI: as an image it runs no script, loads nothing, and shares no names with other pictures."""
    svg = source.svg[source.svg.find("<svg") :] if "<svg" in source.svg else source.svg
    head, close, rest = svg.partition(">")
    if "xmlns=" not in head:
        head = head.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    return "data:image/svg+xml;base64," + base64.b64encode(f"{head}{close}{rest}".encode("utf-8", "replace")).decode()


def link(proof: Evidence) -> str | None:
    """Return the evidence's file as a relative address; None if it is not below the page's folder."""
    path = PurePosixPath(proof.file)
    inside = proof.file and not path.is_absolute() and ".." not in path.parts and "\\" not in proof.file
    return "./" + quote(str(path), errors="replace") if inside else None


def semantics(result: AuditResult) -> list[tuple[str, list[str]]]:
    """Return the subject of the answers in the sections' words, each with the sections that use it."""
    titles: dict[str, list[str]] = {}
    for section in result.sections:
        titles.setdefault(section.semantics, []).append(section.title)
    return list(titles.items())


def when(started: str) -> str:
    """Return a date for reading; the text itself if it is no date."""
    try:
        moment = datetime.fromisoformat(started)
    except ValueError:
        return started
    moment = moment.astimezone(UTC) if moment.tzinfo else moment
    return f"{moment.day} {moment:%B %Y, %H:%M} UTC"


def duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds // 60:.0f} min {seconds % 60:02.0f} s"


def setting(value: Any) -> str:
    """Return a setting as in the JSON, words without quotation marks."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
