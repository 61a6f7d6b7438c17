"""Run PBA: decide every question about every row of a table, for each protected feature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pandas as pd

from encoders.arrays import Integers
from verifair.datasets.stream import Stream
from verifair.engine.exchange import Exchange
from verifair.engine.queries import PersistentBias, Robustness
from verifair.engine.store import Store
from verifair.engine.verdict import Status
from verifair.errors import DataError, Disagreement, QueryError
from verifair.interrupts import Interrupted
from verifair.schema.schema import Schema
from verifair.systems import subject
from verifair.systems.pba.evidence import classes_of, in_words
from verifair.systems.pba.result import MAX_LISTED, Asked, PbaResult, StatusCounts, StoredVerdicts
from verifair.systems.pba.rows import decide_rows
from verifair.systems.pba.scores import group_gaps, group_rates, proved_shares
from verifair.systems.pba.settings import PbaSettings
from verifair.systems.pba.stream import TableStream, sensitive_of
from verifair.systems.results.words import moves
from verifair.systems.settings import Inputs
from verifair.systems.stores import claimed
from verifair.systems.subject import Subject, left_out
from verifair.systems.work import Work


def read(inputs: Inputs, settings: PbaSettings) -> Subject:
    """Read the named files; for a shipped example, the rows that its network was not trained on."""
    result = subject.read(inputs, settings.protected)
    return result if result.dataset is None else replace(result, data=Stream.of(result.dataset.test))


SECONDS_PER_ROW = 1e-4
"""Seconds of a row after its verdicts, until the tables stand: left for it where that is less than half of the time."""


def solve(settings: PbaSettings, subject: Subject, work: Work) -> PbaResult:
    """Decide PBA and RB of the subject's rows.

    Raises QueryError without a protected feature or a store to resume, DataError for rows of one group only, Interrupted.
    """
    schema, network = subject.schema, subject.network
    if not settings.protected:
        declared = ", ".join(schema.protected_names) or "none is declared protected"
        raise QueryError(f"pba needs a protected feature: pass --protected NAME (protected in the schema: {declared})")
    store = claimed("verdicts.sqlite", work)
    if store is not None and store.exists():  # checked before anything is read, so that a foreign file costs no time
        with Store(store):
            pass
    rows, words = _audited_rows(settings, subject, work.seed)
    asked_rows = 0
    if settings.outside == "drop":
        asked_rows, rows = rows.count, rows.where(schema.fitting)
    names = list(dict.fromkeys(settings.protected))
    joint = [Exchange.of(schema, subset) for size in range(2, len(names) + 1) for subset in combinations(names, size)]
    exchanges = [*(Exchange.of(schema, name) for name in names), *joint]
    kinds = (PersistentBias, Robustness) if settings.robustness else (PersistentBias,)
    queries = [
        kind(model=network, schema=schema, protected=name, delta=list(settings.delta), arithmetic=settings.arithmetic)
        for name in [*names, *(exchange.names for exchange in joint if settings.intersections)] for kind in kinds
    ]
    for name in names:
        work.say(_moves(schema, name, settings.delta))
    people = TableStream.of(network, schema, rows, queries, exchanges)
    if not people.rows:
        raise DataError(NO_ROWS)
    if asked_rows > people.rows:
        words += f" ({left_out(asked_rows - people.rows)})"
        work.say(f"{left_out(asked_rows - people.rows)}.")
    for exchange, sizes in zip(exchanges[: len(names)], people.groups, strict=False):
        _check_groups(exchange, sizes)
    if people.held:  # larger tables are counted after the first query, so that verdicts are stored from the first seconds
        _warn(people, work)
    asked = []
    for index, query in enumerate(queries):
        if not isinstance(query.protected, str) and not people.counts.verdicts(query, 2):
            continue  # with several features there may be nobody to ask about
        share = max(1 - SECONDS_PER_ROW * people.rows / work.left, 0.5)
        label = f"{'PBA' if isinstance(query, PersistentBias) else 'RB'} {sensitive_of(query)}"
        try:
            with work.bar(label) as progress:
                verdicts = decide_rows(
                    query, people, budget=work.budget(share / (len(queries) - index)), method=settings.method,
                    solver=settings.solver, jobs=work.jobs, store=store, resume=work.resume, progress=progress,
                )
        except KeyboardInterrupt:
            remedy = f"finished batches are in {store}; run the same command with --resume"
            raise Interrupted(f"interrupted during {label}: {remedy if store else 'pass --out to keep work'}") from None
        asked.append(Asked(query=query, verdicts=verdicts))
    if not people.held:
        _warn(people, work)
    if not all(answer.verdicts.complementary for answer in asked):
        raise Disagreement("PBA: a row was proved in both directions; please report it with the command or the audit file")
    shares, classes = proved_shares([answer.verdicts for answer in asked], exchanges), classes_of(queries[0])
    rates, total = pd.concat(map(group_rates, people.counts.rates), ignore_index=True), sum(len(a.verdicts) for a in asked)
    listed = None if total > MAX_LISTED else pd.concat([in_words(a.query, a.verdicts.frame()) for a in asked], ignore_index=True)
    stored = None if listed is not None or store is None else StoredVerdicts(
        file=str(store), runs=[answer.verdicts.run for answer in asked], verdicts=total
    )
    if listed is None and store is None:
        work.warn(f"{total:,} verdicts are too many to list, and are not kept: pass --store FILE or --out FOLDER to have each")
    status = pd.concat([answer.verdicts.tally("status") for answer in asked]).groupby("status")["number"].sum()
    biased = pd.concat([answer.verdicts.biased() for answer in asked if answer.is_bias], ignore_index=True)
    return PbaResult(
        model_sha256=network.source_sha256, schema_sha256=schema.sha256, seconds=work.seconds, seed=work.seed,
        counts=StatusCounts(**{member.value: int(status.get(member.value, 0)) for member in Status}), rates=rates,
        gaps=group_gaps(rates), shares=shares.assign(label=shares["label"].map(dict(enumerate(classes)))), biased=biased,
        verdicts=None if listed is None else listed.drop(columns=["tree"]), stored=stored,
        network=network, described=schema, people=people, asked=tuple(asked), rows=words,
    )  # fmt: skip


def _warn(people: TableStream, work: Work) -> None:
    if people.counts.doubt is not None:
        work.warn(people.counts.doubt)


NO_ROWS = "the table has no rows left to ask about"


def _audited_rows(settings: PbaSettings, subject: Subject, seed: int) -> tuple[Stream, str]:
    """Return the audited rows, those outside the schema included, and a description of them."""
    rows, words = subject.some(settings.rows, seed)
    if settings.limit is not None:
        rows = rows.head(settings.limit)
    return rows, words


def _check_groups(exchange: Exchange, people: Integers) -> None:
    """Raise DataError unless the rows belong to at least two groups.   people: (K,) number of rows of each group."""
    if (people > 0).sum() < 2:
        present, *_ = [exchange.format(number) for number, count in zip(exchange.numbers, people, strict=True) if count]
        missing = ", ".join(exchange.format(number) for number, count in zip(exchange.numbers, people, strict=True) if not count)
        raise DataError(
            f"feature {exchange.name!r}: all {people.sum()} rows are {present}, there is none of {missing}; "
            "comparing groups needs rows of at least two: name a table with both, or leave the feature out"
        )


def _moves(schema: Schema, name: str, delta: Sequence[float]) -> str:
    """Return, in words, the features that one unit of delta moves in a question about `name`, and by how much."""
    if not any(delta):
        return f"{name}: delta 0 moves nothing; the questions are about the rows themselves."
    steps = schema.steps([name])
    fixed = [f.name for f, step in zip(schema.features, steps, strict=True) if f.numeric and not step and f.name != name]
    note = f" Numbers held still (no unit, fixed or protected): {', '.join(fixed)}." if fixed else ""
    return f"{name}: one unit of delta moves {moves(schema, [name])}.{note} Categories stay."
