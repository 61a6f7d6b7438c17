"""Run CEC: read the people, compare their explanations, certify pairs."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from encoders.arrays import Booleans, Integers
from encoders.errors import ModelError
from verifair.datasets.stream import Stream
from verifair.errors import DataError
from verifair.interrupts import Interrupted
from verifair.systems.cec.attributions import words_of
from verifair.systems.cec.audit import audit, control
from verifair.systems.cec.certified import CertifiedConsistency, certify_consistency
from verifair.systems.cec.matching import Reference
from verifair.systems.cec.people import Gathered, People, merit_columns, people_of
from verifair.systems.cec.result import Audited, CecResult, CertifiedPairs
from verifair.systems.cec.settings import CecSettings
from verifair.systems.groups import Rows, read_rows
from verifair.systems.results.words import drawn
from verifair.systems.stores import Parts
from verifair.systems.subject import Subject
from verifair.systems.work import Work


def solve(settings: CecSettings, subject: Subject, work: Work) -> CecResult:
    """Compare everybody's explanation with that of comparable people; with `certify` also prove that pairs stay in regime A.

    An audit that runs out of time has no answer: scores of part of the people would be those of the first rows, not of a sample.
    Raises QueryError, DataError and SchemaError for what does not fit, OutOfTime, Interrupted.
    """
    network, schema = subject.judged, subject.schema
    words_of(network, settings, None)
    if settings.certify is not None:
        if network.of_trees:
            raise ModelError(
                subject.model,
                f"is {network.whole.kind}, and --certify bounds integrated gradients, which trees do not have: their Shapley "
                "values are exact for the people of the table, and proved of nobody else; drop --certify",
            )
        network.layered("cec --certify")
    if settings.certify:
        schema.steps([])  # raises SchemaError, before the work, for a schema without units
    inner, certified, interrupted = None, None, None
    with Parts.of(work) as parts:
        asked = _audited(settings, subject, work.seed)
        label = f"explanations {', '.join(asked.protected)}"
        try:
            with work.bar(label) as progress:
                report = work.stopping(label, progress)
                options: dict[str, Any] = {"seed": work.seed, "threads": work.jobs, "progress": report, "parts": parts}
                measured = audit(network, asked.reference, asked.people, settings, own=asked.own, **options)
                if settings.within:
                    inner = control(network, asked.reference, measured, settings, **options)
        except KeyboardInterrupt:
            note = "" if parts.again else ": nothing is kept; --rows N audits a sample"
            raise Interrupted(f"interrupted during {label}{note}") from None
    if settings.certify is not None:
        try:
            with work.bar(f"certified pairs {', '.join(asked.protected)}") as progress:
                consistency = certify_consistency(
                    network, schema, measured, asked.reference, asked.people, settings.certify, budget=work.budget(),
                    jobs=work.jobs, progress=progress,
                )
            certified = CertifiedPairs.of(consistency, measured, asked, **_save_proofs(consistency, work))
        except KeyboardInterrupt:
            interrupted = parts.with_remedy("what was measured until then is kept")
    parts.whole = interrupted is None
    return CecResult.of(
        measured, inner, asked, ties=settings.ties, top=work.top, seed=work.seed, certified=certified,
        model_sha256=network.source_sha256, schema_sha256=schema.sha256, seconds=work.seconds, interrupted=interrupted,
    )


def _save_proofs(consistency: CertifiedConsistency, work: Work) -> dict[str, Any]:
    """Write the certificate where the user asked for it; return the file and a note about it."""
    file, note = work.save_proof(consistency.certificate if consistency.certified.any() else None, "no pair was certified")
    return {"file": file, "note": note}


@dataclass(frozen=True, kw_only=True, eq=False)
class _TablePeople:
    """People of a table, without the table.   rows: names in the table.   audit: (N,) True for audited rows; audited: these in
    words."""

    people: People
    rows: pd.Index
    audit: Booleans
    audited: str
    dropped: int


def _read(settings: CecSettings, subject: Subject, names: tuple[str, ...] | None = None) -> _TablePeople:
    """Read the people chunk by chunk.   names: as in `people_of`. Raises QueryError, DataError, SchemaError."""
    schema, rows = subject.schema, subject.data
    labels = None if rows is None else schema.label_names(rows.chunks())
    with closing(Gathered()) as gathered:

        def read(chunk: Rows) -> tuple[pd.Index, Booleans, str, int]:
            gathered.add(people_of(schema, chunk.frame, chunk.groups, schema.favoured(chunk.frame, names=labels)))
            return chunk.frame.index, chunk.audit, chunk.audited, chunk.dropped

        row_names, audit, audited, dropped = zip(*read_rows(settings, subject, "cec", read, rows), strict=True)
        people = gathered.people(names)
    return _TablePeople(
        people=people, rows=row_names[0].append(list(row_names[1:])), audit=np.concatenate(audit), audited=audited[0],
        dropped=sum(dropped),
    )


def _audited(settings: CecSettings, subject: Subject, seed: int) -> Audited:
    """Return the people and their reference. Raises QueryError, DataError, SchemaError for settings that do not fit the tables."""
    schema = subject.schema
    columns = merit_columns(schema)
    try:
        audited = pool = None if settings.reference else _read(settings, subject)
        if settings.reference is not None:
            reference_subject = replace(subject, data=Stream.of(settings.reference), dataset=None)
            pool = _read(settings.model_copy(update={"audit": "all"}), reference_subject)
        assert pool is not None
        reference = Reference.of(pool.people, columns)
    except DataError as error:  # the error has to name the table
        if settings.reference is None or str(error).startswith(f"{settings.reference}:"):
            raise
        raise DataError(f"--reference {settings.reference}: {error}") from None
    audited = audited or _read(settings, subject, pool.people.names)
    chosen, words = _audited_rows(audited, settings.rows, seed)
    return Audited(
        schema=schema, people=audited.people.take(chosen), reference=reference, own=chosen if pool is audited else None,
        rows=audited.rows[chosen], reference_rows=pool.rows, words=words, apart=settings.reference,
        dropped=audited.dropped + (0 if pool is audited else pool.dropped),
        protected=tuple(dict.fromkeys(settings.protected)), merit=tuple(f.name for f in schema.features if f.merit),
    )


def _audited_rows(table: _TablePeople, sample: int | None, seed: int) -> tuple[Integers, str]:
    """Return the positions of the audited rows, and a description of them."""
    audited = np.flatnonzero(table.audit)
    if sample is None or sample >= len(audited):
        return audited, table.audited
    chosen = np.random.default_rng(seed).choice(audited, size=sample, replace=False)
    return np.sort(chosen), drawn(sample, f"{len(audited):,} ({table.audited})", seed)
