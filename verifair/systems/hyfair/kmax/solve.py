"""Run kmax: search for the person, then certify a bound for everybody."""

from __future__ import annotations

from verifair.engine.buckets.kmax import kmax
from verifair.engine.queries import KDiscrimination
from verifair.engine.verdict import Reason
from verifair.errors import QueryError
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
    """Return the largest k found and, if asked for, the certified bound, whose certificate is saved.

    Raises QueryError without a protected feature, for invalid values, and for a walk among rows without a table.
    """
    schema = subject.schema
    query = KDiscrimination(
        model=subject.network, schema=schema, protected=settings.names("kmax", schema.protected_names), box=settings.box,
        values=settings.raw_values(schema), buckets=settings.buckets,
    )
    space = Space.of(query)
    rows = subject.raw(outside="keep")
    if settings.search == "sa-knn" and rows is None:
        raise QueryError("--search sa-knn walks among the rows of a table: pass --data TABLE, or choose --search sa")
    with work.bar(f"search ({settings.search}), seconds") as progress:
        search = search_clusters(
            query, method=settings.search, data=rows, seconds=work.left * (SEARCHING if settings.bound else 1.0), seed=work.seed,
            schedule=Schedule(chains=settings.chains), progress=progress,
            reseed=SolverSeeds(space=space, pool=Pool.of(space, rows)),
        )
    interrupted, verdict = None, None
    if search.statistics.stopped == "interrupted":
        interrupted = "this is the best found until then, and nothing is certified"
    elif settings.bound:
        with work.bar("k found of the bound") as progress:
            verdict = kmax(query, budget=work.budget(), start=search.peers, jobs=work.jobs, progress=progress)
        if verdict.reason is Reason.INTERRUPTED:
            interrupted = "this is what was found and certified until then"
    best = search.cluster
    if verdict is not None and verdict.x is not None and verdict.lower > search.k:
        best = clusters.recount(space, verdict.x)
    upper = verdict.upper if verdict else None
    return KmaxResult(
        model_sha256=query.model.source_sha256, schema_sha256=schema.sha256, seconds=work.seconds, seed=work.seed,
        query=KmaxQuery(protected=list(query.protected), buckets=query.buckets, combinations=len(space.combinations)),
        lower=best.k, upper=upper, gap=None if upper is None else upper - best.k, witness=clusters.person(space, best),
        outcomes=clusters.outcomes(space, best), runtime_k=best.runtime_k, search=KmaxSearch.of(space, search),
        bound=None if verdict is None else KmaxBound.model_validate(verdict), verdict=verdict, space=space, best=best,
        interrupted=interrupted,
        proof_line=work.save_proof(verdict.certificate if verdict else None, "the search was interrupted")[1],
    )
