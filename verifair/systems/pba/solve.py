"""PBA at work: every question about every row of a table, for each protected feature."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pandas as pd

from verifair.engine.exchange import Exchange
from verifair.engine.queries import PersistentBias, Robustness
from verifair.engine.store import count
from verifair.errors import DataError, Disagreement, QueryError
from verifair.schema.schema import Schema
from verifair.systems import subject
from verifair.systems.pba.evidence import classes_of, in_words
from verifair.systems.pba.result import Asked, PbaResult, StatusCounts
from verifair.systems.pba.rows import Table, anyone, verify_rows
from verifair.systems.pba.scores import complementary, group_gaps, group_rates, proved_shares
from verifair.systems.pba.settings import PbaSettings
from verifair.systems.settings import Inputs
from verifair.systems.subject import Subject
from verifair.systems.words import moves
from verifair.systems.work import Interrupted, Work


def read(inputs: Inputs, settings: PbaSettings) -> Subject:
    """Return what was named; of a shipped example the rows that its network was not trained on."""
    found = subject.read(inputs)
    return found if found.dataset is None else replace(found, frame=found.dataset.test)


SHOWN = 1e-4
"""Seconds of a row after its verdicts, until the tables stand: left for it where that is less than half of the time."""


def solve(settings: PbaSettings, subject: Subject, work: Work) -> PbaResult:
    """Decide PBA and RB of the subject's rows.

    Raises QueryError without a protected feature or a store to resume, DataError for rows of one group only, Interrupted.
    """
    schema, network = subject.schema, subject.network
    if not settings.protected:
        known = ", ".join(schema.protected_names) or "none is declared protected"
        raise QueryError(f"pba needs a sensitive feature: pass --protected NAME (protected in the schema: {known})")
    store = work.store or (work.folder / "verdicts.sqlite" if work.folder else None)
    if work.resume and store is None:
        raise QueryError("--resume needs the store of the run to continue: pass --store FILE or --out FOLDER")
    frame, words = _chosen(settings, subject, work.seed)
    table = Table.of(network, schema, frame)
    if table.doubt is not None:
        work.warn(table.doubt)
    names = list(dict.fromkeys(settings.protected))
    for name in names:
        _check_groups(schema, table, name)
        work.say(_moves(schema, name))
    several = [Exchange.of(schema, one) for size in range(2, len(names) + 1) for one in combinations(names, size)]
    exchanges = [*(Exchange.of(schema, name) for name in names), *several]
    kinds = (PersistentBias, Robustness) if settings.robustness else (PersistentBias,)
    queries = [
        kind(network=network, schema=schema, sensitive=name, delta=list(settings.delta), arithmetic=settings.arithmetic)
        for name in [*names, *(one.names for one in several if settings.intersections)] for kind in kinds
    ]
    queries = [query for query in queries if isinstance(query.sensitive, str) or anyone(query, table)]
    method = "auto" if settings.method == "exact" else settings.method
    rates, asked = [group_rates(network, table, exchange) for exchange in exchanges], []
    for number, query in enumerate(queries):
        name = query.exchange.name if query.exchange else ""
        share = max(1 - SHOWN * len(table.raw) / work.left, 0.5)
        label = f"{'PBA' if isinstance(query, PersistentBias) else 'RB'} {name}"
        try:
            with work.bar(label) as progress:
                found = verify_rows(
                    query, table, budget=work.budget(share / (len(queries) - number)), method=method, solver=settings.solver,
                    jobs=work.jobs, store=store, resume=work.resume, progress=progress,
                )
        except KeyboardInterrupt:
            again = f"finished batches are in {store}; run the same command with --resume"
            raise Interrupted(f"interrupted during {label}: {again if store else 'pass --out to keep work'}") from None
        asked.append(Asked(query=query, verdicts=found))
    verdicts = pd.concat([one.verdicts for one in asked], ignore_index=True)
    if not complementary(verdicts):
        raise Disagreement("PBA: a row was proved in both directions; please report it with the command or the audit file")
    shares, classes = proved_shares(verdicts, exchanges), classes_of(queries[0])
    told = pd.concat([in_words(one.query, one.verdicts) for one in asked], ignore_index=True)
    measured = pd.concat(rates, ignore_index=True)
    return PbaResult(
        model_sha256=network.source_sha256, schema_sha256=schema.sha256, seconds=work.seconds, seed=work.seed,
        counts=StatusCounts(**count(verdicts)), rates=measured, gaps=group_gaps(measured),
        shares=shares.assign(label=shares["label"].map(dict(enumerate(classes)))), verdicts=told.drop(columns=["tree"]),
        network=network, described=schema, table=table, asked=tuple(asked), rows=words,
    )


def _chosen(settings: PbaSettings, subject: Subject, seed: int) -> tuple[pd.DataFrame, str]:
    """Return the rows that are asked about, and which these are in words."""
    frame, words = subject.some(settings.rows, seed)
    if settings.limit is not None:
        frame = frame.head(settings.limit)
    if settings.outside == "drop":
        frame = frame[subject.schema.fitting(frame)]
    if not len(frame):
        raise DataError("the table has no rows left to ask about")
    return frame.reset_index(drop=True), words


def _check_groups(schema: Schema, table: Table, name: str) -> None:
    """Raise DataError unless the rows are of two groups at least."""
    found = sorted(set(table.raw[:, schema.index(name)]))
    if len(found) < 2:
        missing = ", ".join(schema.format(name, v) for v in schema.values(name) if v not in found)
        raise DataError(
            f"feature {name!r}: all {len(table.raw)} rows are {schema.format(name, found[0])}, there is none of {missing}; "
            "comparing groups needs rows of at least two: name a table with both, or leave the feature out"
        )


def _moves(schema: Schema, name: str) -> str:
    """Return which features one unit of delta moves when asked about `name`, and by how much."""
    steps = schema.steps([name])
    still = [f.name for f, step in zip(schema.features, steps, strict=True) if f.numeric and not step and f.name != name]
    held = f" Numbers held still (no unit, fixed or protected): {', '.join(still)}." if still else ""
    return f"{name}: one unit of delta moves {moves(schema, [name])}.{held} Categories stay."
