"""Evidence of a PBA run: its proofs and counterexamples as certificates."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from verifair.checker.certificates.certificate import Certificate, Claim, Counterexample, Proof, answered
from verifair.checker.certificates.envelope import semantics
from verifair.checker.certificates.statement import RowsQuery, RowStatement
from verifair.engine.queries import PersistentBias, Robustness
from verifair.engine.store import load_tree, verdict_records
from verifair.engine.verdict import Status
from verifair.files import whole
from verifair.systems.pba.result import Asked
from verifair.systems.pba.stream import LabelledRows, TableStream

STATEMENTS = 50_000
"""Most statements of one certificate: it is held in memory while it is written and checked."""


def certificates(asked: Asked, people: TableStream, folder: Path, name: str) -> Iterator[tuple[Path, Certificate]]:
    """Write all proofs and counterexamples of a query: for few rows NAME.json.gz, for many NAME-0001.json.gz and so on, one for
    each part of the table. Yields each file when it is written."""
    is_split = len(asked.verdicts) > STATEMENTS
    rows = people.rows * STATEMENTS // len(asked.verdicts) if is_split else people.rows
    for index, table in enumerate(people.pieces(max(1, rows)), start=1):
        lines = asked.verdicts.of_rows(table.start, table.start + len(table.raw))
        if not len(lines):
            continue
        certificate, file = certificate_of(asked.query, table, lines), folder / f"{name}{f'-{index:04d}' * is_split}.json.gz"
        with whole(file) as temporary:
            certificate.save(temporary)
        yield file, certificate


def certificate_of(query: PersistentBias | Robustness, table: LabelledRows, verdicts: pd.DataFrame) -> Certificate:
    """Return all proofs and counterexamples of a query about a table's rows, each with the statement that it proves or refutes."""
    return Certificate(
        network_sha256=query.model.source_sha256,
        schema_sha256=query.schema.sha256,
        semantics=semantics(query.model),
        query=RowsQuery(
            kind="persistent-bias" if isinstance(query, PersistentBias) else "robustness",
            protected=query.exchange.names if query.exchange else (),
            delta=tuple(float(d) for d in query.delta),
        ),
        features=tuple(feature.name for feature in query.schema.features),
        **answered(_statement_of(query, table, line) for line in verdict_records(verdicts)),
    )


def _statement_of(query: PersistentBias | Robustness, table: LabelledRows, line: Any) -> Proof | RowStatement:
    """Return the proof or refutation of a verdict's statement, or the statement alone if it is open."""
    row, exchange = table.raw[line.row - table.start], query.exchange
    bias = line.goal in ("observed", "flipped")
    if line.goal == "robust-flipped" and exchange is not None:
        row = exchange.put(row[None], np.array([line.to]))[0]
    statement = RowStatement(
        goal=line.goal if bias else "robust",
        row=tuple(row.tolist()),
        delta=float(line.delta),
        classes=(int(line.label), int(line.against)),
        prime=exchange.values(line.to) if bias and exchange is not None else {},
    )
    match line.status:
        case Status.PROVED.value:
            if line.trust != "checked":
                return Proof(statement=statement, evidence=Claim(**json.loads(line.claim)))
            tree, margin = load_tree(line.tree)
            return Proof(statement=statement, evidence=tree, float32=bool(line.float32), margin=margin)
        case Status.VIOLATED.value:
            return Proof(statement=statement, evidence=Counterexample(x=tuple(json.loads(line.witness))))
    return statement


def classes_of(query: PersistentBias | Robustness) -> Sequence[str]:
    """Return the names of the model's classes, in their order."""
    schema, count = query.schema, query.model.outputs
    return schema.class_names if count < 3 else schema.classes or [f"class {k}" for k in range(count)]


def in_words(query: PersistentBias | Robustness, verdicts: pd.DataFrame) -> pd.DataFrame:
    """Return verdicts of `verify_rows` with names for codes: values of the sensitive feature in group and to, and classes in label
    and against."""
    class_names = dict(enumerate(classes_of(query)))
    columns = {name: verdicts[name].map(class_names) for name in ("label", "against")}
    if query.exchange is not None:
        for name in ("group", "to"):
            words = {value: query.exchange.word(value) for value in verdicts[name].unique().tolist()}
            columns[name] = verdicts[name].map(words)
    return verdicts.assign(**columns)
