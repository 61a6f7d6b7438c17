"""kmax at work: a search for the person, then a certified bound for everybody."""

from __future__ import annotations

from typing import Any

import numpy as np

from verifair.engine.buckets.kmax import kmax
from verifair.engine.exchange import MAX_COMBINATIONS
from verifair.engine.queries import KDiscrimination
from verifair.engine.verdict import Reason
from verifair.errors import QueryError
from verifair.schema.schema import Schema
from verifair.systems.hyfair.kmax.result import KmaxBound, KmaxQuery, KmaxResult, KmaxSearch
from verifair.systems.hyfair.kmax.settings import KmaxSettings
from verifair.systems.hyfair.search import clusters
from verifair.systems.hyfair.search.annealing import Schedule, search_clusters
from verifair.systems.hyfair.search.moves import Pool, SolverSeeds
from verifair.systems.hyfair.search.space import Space
from verifair.systems.subject import Subject
from verifair.systems.work import Work

SEARCHING = 0.5
"""Share of the time that goes to the search where a bound is to be certified too."""


def solve(settings: KmaxSettings, subject: Subject, work: Work) -> KmaxResult:
    """Return the largest k met and, where asked for, the certified bound, whose certificate is saved.

    Raises QueryError without a protected feature, for values that are none, and for a walk among rows without a table.
    """
    schema = subject.schema
    query = KDiscrimination(
        network=subject.network, schema=schema, protected=settings.names("kmax", schema.protected_names), box=settings.box,
        values={name: _raw(schema, name, listed) for name, listed in settings.values.items()}, buckets=settings.buckets,
    )
    space = Space.of(query)
    rows = None if subject.frame is None else schema.raw(subject.frame, outside="keep")
    if settings.search == "sa-knn" and rows is None:
        raise QueryError("--search sa-knn walks among the rows of a table: pass --data TABLE, or choose --search sa")
    with work.bar(f"search ({settings.search}), seconds") as progress:
        found = search_clusters(
            query, method=settings.search, data=rows, seconds=work.left * (SEARCHING if settings.bound else 1.0), seed=work.seed,
            schedule=Schedule(chains=settings.chains), progress=progress,
            reseed=SolverSeeds(space=space, pool=Pool.of(space, rows)),
        )
    interrupted, verdict = None, None
    if found.statistics.stopped == "interrupted":
        interrupted = "this is the best found until then, and nothing is certified"
    elif settings.bound:
        with work.bar("k found of the bound") as progress:
            verdict = kmax(query, budget=work.budget(), start=found.peers, progress=progress)
        if verdict.reason is Reason.INTERRUPTED:
            interrupted = "this is what was found and certified until then"
    best = found.cluster
    if verdict is not None and verdict.x is not None and verdict.lower > found.k:
        best = clusters.recount(space, verdict.x)
    upper = verdict.upper if verdict else None
    return KmaxResult(
        model_sha256=query.network.source_sha256, schema_sha256=schema.sha256, seconds=work.seconds, seed=work.seed,
        query=KmaxQuery(protected=list(query.protected), buckets=query.buckets, combinations=len(space.combinations)),
        lower=best.k, upper=upper, gap=None if upper is None else upper - best.k, witness=clusters.person(space, best),
        outcomes=clusters.outcomes(space, best), runtime_k=best.runtime_k, search=KmaxSearch.of(space, found),
        bound=None if verdict is None else KmaxBound.model_validate(verdict), verdict=verdict, space=space, best=best,
        interrupted=interrupted,
        proof_line=work.save_proof(verdict.certificate if verdict else None, "the search was interrupted")[1],
    )


def _raw(schema: Schema, name: str, listed: tuple[Any, ...]) -> list[float]:
    """Return the raw values that were listed, one by one or, of a number, as low:high:step with both ends included."""
    out: list[float] = []
    for value in listed:
        is_range = isinstance(value, str) and ":" in value and schema[name].numeric
        out += _range(schema, name, value) if is_range else [schema.raw_value(name, value)]
    return out


def _range(schema: Schema, name: str, text: str) -> list[float]:
    numbers = [schema.raw_value(name, part) for part in text.split(":")]
    low, high, step = numbers if len(numbers) == 3 else (*numbers, 1.0) if len(numbers) == 2 else (0.0, 0.0, 0.0)
    if step <= 0 or low > high:
        raise QueryError(
            f"--values {name}={text}: expected low:high:step with low <= high and a positive step, e.g. age=20:80:10"
        )
    if (high - low) / step > MAX_COMBINATIONS:
        raise QueryError(f"--values {name}={text}: are more than {MAX_COMBINATIONS:,} values; take a larger step")
    return [float(value) for value in np.arange(low, high + step / 2, step) if value <= high]
