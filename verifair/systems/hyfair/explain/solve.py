"""Run `explain`: find the worst clusters, and rules about each."""

from __future__ import annotations

from collections.abc import Sequence

from encoders.arrays import Array
from solvers.outcome import Budget
from verifair.datasets import Dataset
from verifair.engine.queries import KDiscrimination
from verifair.errors import DataError, QueryError
from verifair.interrupts import Interrupted, OutOfTime
from verifair.schema.schema import Schema
from verifair.systems.hyfair.explain import lime
from verifair.systems.hyfair.explain.result import ExplainedCluster, ExplainResult, RulesQuery, SampleSettings
from verifair.systems.hyfair.explain.rounds import INTERRUPTED, explain_rounds
from verifair.systems.hyfair.explain.rules_file import found_rule, plain_box
from verifair.systems.hyfair.explain.samples import severity_of
from verifair.systems.hyfair.explain.settings import ExplainSettings
from verifair.systems.hyfair.search.space import Space
from verifair.systems.subject import Subject, left_out
from verifair.systems.work import Work


def solve(settings: ExplainSettings, subject: Subject, work: Work) -> ExplainResult:
    """Search clusters and explain them. Raises QueryError if there is nothing to explain, Interrupted before the first rule."""
    schema = subject.schema
    query = KDiscrimination(
        model=subject.network, schema=schema, protected=names(schema, settings.protected), buckets=settings.buckets,
        box=settings.box, values=settings.raw_values(schema),
    )
    rows = None if subject.table is None else legal_rows(subject.table, settings.outside, work)[0]
    limits = Budget(seconds=(work.deadline - work.started) / (2 * settings.rounds), nodes=None, seed=work.seed)
    try:
        with work.bar("clusters") as progress:
            rounds = explain_rounds(query, settings, budget=limits, rows=rows, deadline=work.deadline, progress=progress)
    except KeyboardInterrupt:
        raise Interrupted("interrupted: no cluster was explained") from None
    lines, stop_reason = [], rounds.stopped
    if settings.lime:
        space, fitted = Space.of(query, work.deadline), list[lime.Surrogates]()
        severity = severity_of(space, settings.measure)
        try:
            for cluster in rounds.found:
                fitted.append(lime.surrogates(space, cluster.centre, severity, rows=rows, samples=settings.samples, seed=work.seed))
        except OutOfTime:
            stop_reason = stop_reason or f"time, after {len(fitted)} of {len(rounds.found)} clusters were compared with surrogates"
        lines = lime.comparison(schema, rounds.found[: len(fitted)], fitted)
    parameters = settings.model_dump(include=set(SampleSettings.model_fields))
    note = f"interrupted: {len(rounds.found)} of {settings.rounds} clusters were explained"
    return ExplainResult(
        model_sha256=query.model.source_sha256, schema_sha256=schema.sha256, seconds=work.seconds, seed=work.seed,
        query=RulesQuery(
            protected=list(query.protected), buckets=query.buckets, box=plain_box(query.box),
            values={name: [float(v) for v in numbers] for name, numbers in query.values.items()},
        ),
        settings=SampleSettings(**parameters, seconds=limits.seconds, seed=work.seed),
        clusters=[
            ExplainedCluster(
                x=schema.decode(c.centre), severity=c.severity, high_from=c.labelled.threshold, purity=c.purity,
            )
            for c in rounds.found
        ],
        rules=[found_rule(rule, schema, k) for k, explanation in enumerate(rounds.found) for rule in explanation.rules],
        not_confirmed=[found_rule(rule, schema, k) for k, explanation in enumerate(rounds.found) for rule in explanation.dropped],
        stopped=stop_reason, lime=lines, found=rounds, described=schema, options=subject.options,
        guardable=all(feature.dropped is None for feature in schema.features),
        box=dict(query.box), file=None if work.folder is None else work.folder / "rules.json",
        interrupted=note if rounds.stopped == INTERRUPTED else None,
    )


def names(schema: Schema, protected: Sequence[str] | None) -> list[str]:
    """Return the named features, each once; if there are none, those that the schema declares protected. Raises QueryError for
    none."""
    result = list(dict.fromkeys(protected or schema.protected_names))
    if not result:
        raise QueryError("no feature is declared protected: pass --protected NAME")
    return result


def legal_rows(dataset: Dataset, outside: str, work: Work) -> tuple[Array, Dataset]:
    """Return raw rows (N, V), and the table of the same rows; say how many others were left out. Raises DataError for rows outside
    the schema unless they are dropped."""
    frame = dataset.frame
    if outside == "drop":
        frame = frame[dataset.schema.fitting(frame)].reset_index(drop=True)
    if not len(frame):
        raise DataError(f"{dataset.name}: no row lies within the schema's ranges and constraints")
    if len(frame) < len(dataset.frame):
        work.say(f"{left_out(len(dataset.frame) - len(frame))}.")
    return dataset.schema.raw(frame), Dataset(name=dataset.name, frame=frame, schema=dataset.schema)
