"""Run certify: one box, several, every part, counterexamples, the largest gap, or the share."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import replace
from math import ceil, isfinite
from pathlib import Path
from typing import Any

from verifair.checker.certificates.envelope import semantics
from verifair.engine.counterexamples import counterexamples
from verifair.engine.gap.maximise import maximise
from verifair.engine.partition import certify_partition, describe, run_key
from verifair.engine.queries import IndividualFairness, ProbabilityGap
from verifair.engine.questions import Pairs, box_of, check_possible
from verifair.engine.shares.share import certify_share, row_shares, sampled_share
from verifair.engine.verdict import Reason, Status, Verdict
from verifair.engine.verify import verify
from verifair.errors import DataError, QueryError
from verifair.files import whole
from verifair.interrupts import Interrupted
from verifair.systems.hyfair.certify.partition import partition_summary
from verifair.systems.hyfair.certify.result import (
    EXIT_CODES,
    CertifyResult,
    EnumerationResult,
    MaximumResult,
    PartitionResult,
    SharePoint,
    ShareResult,
    ShareRows,
    ShareSample,
    TargetedResult,
    TargetedVerdict,
    VerdictResult,
)
from verifair.systems.hyfair.certify.settings import CertifySettings
from verifair.systems.proportions import wilson_of
from verifair.systems.results.verdicts import FairnessQuery, Gap, GapQuery, VerdictShape
from verifair.systems.settings import parsed_box
from verifair.systems.stores import claim
from verifair.systems.subject import Subject
from verifair.systems.work import Work

UNPROVED = {
    Status.VIOLATED: "the rows found are the evidence, and anybody can evaluate them (--json FILE keeps them)",
    Status.UNKNOWN: "nothing was proved",
}
"""The reasons that a verdict has no certificate, in words."""
NEXT_FEATURE = re.compile(r",(?=[^,=]+=)")
"""A comma within a category's name is none between two features."""


def solve(settings: CertifySettings, subject: Subject, work: Work) -> CertifyResult:
    """Return the answer in the mode of the settings; proofs go to the certificate, or the store, that `work` names.

    Raises QueryError for an invalid question, DataError for a store that cannot be used, Interrupted.
    """
    query = replace(settings.question("certify", subject), arithmetic=settings.arithmetic)
    check_possible(query)
    if settings.maximise:
        return _largest(settings, query, work)
    if settings.share:
        return _share(settings, query, subject, work)
    if settings.partition is not None:
        return _parts(settings.partition, query, subject, work)
    if settings.enumerate is not None:
        return _enumerated(settings.enumerate, settings, query, work)
    return _targeted(settings, query, work) if settings.targeted else _single_box(settings, query, work)


def _common(query: IndividualFairness | ProbabilityGap, work: Work) -> dict[str, Any]:
    """Return the fields that all answers share."""
    return {
        "model_sha256": query.model.source_sha256, "schema_sha256": query.schema.sha256, "seed": work.seed, "question": query,
        "query": (FairnessQuery if isinstance(query, IndividualFairness) else GapQuery).model_validate(query),
    }


def _decide(settings: CertifySettings, query: IndividualFairness, work: Work, share: float = 1.0) -> Verdict:
    return verify(query, budget=work.budget(share), method=settings.method, solver=settings.solver)


def _single_box(settings: CertifySettings, query: IndividualFairness, work: Work) -> VerdictResult:
    """Decide one box."""
    try:
        with work.bar(f"verdict {' and '.join(query.protected)}") as progress:
            progress(0, 1)
            verdict = _decide(settings, query, work)
    except KeyboardInterrupt:
        raise Interrupted("interrupted: nothing was decided") from None
    return VerdictResult(
        **_common(query, work), **dict(VerdictShape.model_validate(verdict)), verdict=verdict, exit_code=EXIT_CODES[verdict.status],
        proof_line=work.save_proof(verdict.certificate, UNPROVED.get(verdict.status, "there is none"))[1],
    )


def _targeted(settings: CertifySettings, query: IndividualFairness, work: Work) -> TargetedResult:
    """Decide each sub-population, all within the query's box; each gets its share of the time that is left."""
    queries = [_narrowed(query, text) for text in settings.targeted]
    folder = work.certificate
    if folder is not None and (folder.is_file() or folder.suffix in (".json", ".gz")):
        raise QueryError(f"--certificate {folder}: is a file; with --targeted name a folder, for a file of each")
    verdicts: list[Verdict] = []
    interrupted = None
    with work.bar("sub-populations") as progress:
        for k, part in enumerate(queries):
            progress(k, len(queries))
            try:
                verdicts.append(_decide(settings, part, work, 1 / (len(queries) - k)))
            except KeyboardInterrupt:
                interrupted = f"{len(queries) - len(verdicts)} of {len(queries)} sub-populations are undecided"
                break
    files = [_certificate(folder, verdict, k) for k, verdict in enumerate(verdicts, start=1)]
    lines, saved = [], [file for file in files if file is not None]
    if saved:
        lines.append(f"{len(saved)} certificates in {folder}: {work.check_line(saved[0])}")
    if folder is not None and len(saved) < len(verdicts):
        reason = "refuted ones show their rows in --json FILE, of unknown ones nothing was proved"
        lines.append(f"no certificate was written for {len(verdicts) - len(saved)} of {len(verdicts)}: {reason}")
    about = _common(query, work)
    del about["query"]
    statuses = [EXIT_CODES[status] for status in Status if any(verdict.status is status for verdict in verdicts)]
    return TargetedResult(
        **about, seconds=work.seconds, proof_lines=tuple(lines), interrupted=interrupted,
        exit_code=min(statuses, key=(10, 20, 0).index, default=20),
        verdicts=[
            TargetedVerdict(
                **dict(VerdictShape.model_validate(verdict)), targeted=text, query=FairnessQuery.model_validate(part),
                certificate_file=str(file) if file else None,
            )
            for text, part, verdict, file in zip(settings.targeted, queries, verdicts, files, strict=False)
        ],
    )


def _narrowed(query: IndividualFairness, text: str) -> IndividualFairness:
    """Return the query on a sub-population."""
    try:
        added = parsed_box(NEXT_FEATURE.split(text))
    except ValueError as error:
        raise QueryError(f"--targeted {error}") from None
    repeated = next((name for name in added if name in query.box), None)
    if repeated is not None:
        raise QueryError(f"--targeted {text}: {repeated!r} is in --box as well; give each feature once")
    narrowed = replace(query, box={**query.box, **added})
    Pairs.of(narrowed, *box_of(query.schema, narrowed.box))  # an error in the last one should not cost the others' time
    return narrowed


def _certificate(folder: Path | None, verdict: Verdict, k: int) -> Path | None:
    if folder is None or verdict.certificate is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"targeted-{k}.json.gz"
    with whole(file) as temporary:
        verdict.certificate.save(temporary)
    return file


def _enumerated(count: int, settings: CertifySettings, query: IndividualFairness, work: Work) -> EnumerationResult:
    """List people who are treated differently, until there are enough, no more, or no time left; Ctrl-C keeps those found."""
    with work.bar(f"people treated differently with {' and '.join(query.protected)}") as progress:
        result = counterexamples(
            query, count, budget=work.budget(), method=settings.method, solver=settings.solver, progress=progress
        )
    rests_on = None if not result.complete else "solver" if result.by_solver else "search" if result.found else "certificate"
    status = Status.VIOLATED if result.found else Status.UNKNOWN if result.certificate is None else Status.PROVED
    return EnumerationResult.model_validate({
        **_common(query, work), "wanted": count, "counterexamples": result.found, "rests_on": rests_on, "enumeration": result,
        **{name: getattr(result, name) for name in ("complete", "apart", "reason", "first_seconds", "certificate", "engine")},
        "seconds": result.seconds, "semantics": result.semantics, "exit_code": EXIT_CODES[status],
        "proof_line": work.save_proof(result.certificate, UNPROVED.get(status, "there is none"))[1],
        "interrupted": f"{len(result.found):,} of {count:,} had been found" if result.reason is Reason.INTERRUPTED else None,
    })


def _largest(settings: CertifySettings, pairs: IndividualFairness, work: Work) -> MaximumResult:
    """Bracket the largest gap over the pairs of people that a fairness query compares.

    For a model without probabilities it is the gap of its values or shares of votes.
    """
    query = ProbabilityGap(
        model=pairs.model, schema=pairs.schema, protected=pairs.protected, box=pairs.box, differ=pairs.differ,
        relax=pairs.relax, scale="logit" if settings.logit else pairs.scale,
    )
    if settings.logit and query.quantity not in ("log-odds", "value"):
        raise QueryError("--logit: of this model gaps between probabilities are bounded, not between log-odds; drop --logit")
    tolerance = 1e-4 if settings.tolerance is None else settings.tolerance
    with work.bar(f"largest gap with {' and '.join(query.protected)}, found of the bound, in thousandths") as progress:
        gap = maximise(
            query, budget=work.budget(), tolerance=tolerance, jobs=work.jobs,
            progress=lambda low, high: progress(int(1000 * max(low, 0)), ceil(1000 * high) if isfinite(high) else 0),
        )
    return MaximumResult(
        **_common(query, work), **dict(Gap.model_validate(gap)), tolerance=tolerance, gap=gap,
        proof_line=work.save_proof(gap.certificate, "no bound was proved in the time given")[1],
        interrupted="these are the two bounds found until then" if gap.reason is Reason.INTERRUPTED else None,
    )


def _share(settings: CertifySettings, query: IndividualFairness, subject: Subject, work: Work) -> ShareResult:
    """Bracket the share of points that are treated alike; Ctrl-C ends it with the bracket so far."""
    tolerance = 1e-3 if settings.tolerance is None else settings.tolerance
    store = work.store or Path(f"share-{run_key(describe(query, 2, box_of(query.schema, query.box)))}.json.gz")
    claim(store, work)
    rows = subject.raw(outside="keep")
    store.parent.mkdir(parents=True, exist_ok=True)
    with work.bar(f"fair share with {' and '.join(query.protected)}, proved of the bound, in 1/10,000") as progress:
        share = certify_share(
            query, tolerance=tolerance, budget=work.budget(), store=store, resume=work.resume, jobs=work.jobs,
            progress=lambda low, high: progress(int(10_000 * low), ceil(10_000 * high)),
        )
    counts = None if rows is None else ShareRows(**dict(zip(("fair", "unfair", "outside"), row_shares(query, rows), strict=True)))
    sample = None if share.reason in (None, Reason.INTERRUPTED) else _sample(query, work.seed)
    note = f"{share.width:.2%} of the domain is open; pass the same command with --resume to go on"
    if share.reason in (Reason.TIME, Reason.NODES):
        work.warn(f"stopped by --timeout or --nodes: {note}, with a longer --timeout or more --nodes")
    certificate = share.certificate
    is_shown = certificate.fair + certificate.unfair > 0
    proof = work.check_line(store, partial=not certificate.extent.whole) if is_shown else f"{store}, which shows nothing yet"
    return ShareResult(
        **_common(query, work), tolerance=tolerance, fair=share.fair, unfair=share.unfair, reason=share.reason, cells=share.cells,
        rows=counts, sample=sample, seconds=work.seconds, store=str(store), semantics=share.semantics,
        history=[SharePoint(seconds=s, fair=min(max(a, 0), 1), unfair=min(max(b, 0), 1)) for s, a, b in certificate.history],
        certificate=certificate, proof_line=f"certificate: {proof}",
        interrupted=note if share.reason is Reason.INTERRUPTED else None,
    )


def _sample(query: IndividualFairness, seed: int) -> ShareSample | None:
    points, unfair = sampled_share(query, seed=seed)
    if not points:
        return None
    low, high = wilson_of(unfair / points, points)
    return ShareSample(points=points, unfair=unfair, low=low, high=high)


def _parts(size: int, query: IndividualFairness, subject: Subject, work: Work) -> PartitionResult:
    """Decide the parts until all are decided or time is up, and sum up the shares; Ctrl-C ends it with the shares so far."""
    store = work.store or Path(f"partition-{run_key(describe(query, size, box_of(query.schema, query.box)))}.sqlite")
    claim(store, work)
    # Read first: an error in the table costs no time. A row's partner may lie in another part where features are relaxed.
    rows = None if query.relax else subject.raw(outside="keep")
    store.parent.mkdir(parents=True, exist_ok=True)
    interrupted = None
    try:
        with work.bar(f"parts {' and '.join(query.protected)}") as progress:
            certify_partition(
                query, size=size, store=store, resume=work.resume, budget=work.budget(), jobs=work.jobs, progress=progress
            )
    except KeyboardInterrupt:
        if not store.is_file():
            raise
        interrupted = "interrupted"
    except sqlite3.Error as error:
        raise DataError(f"{store}: cannot be written or read on ({error}); name another file with --store") from error
    with work.bar("parts read") as progress:
        summary = partition_summary(store, query=query, rows=rows, progress=progress)
    open_parts = summary.parts.unknown + summary.parts.not_reached
    note = f"{open_parts:,} parts are open; pass the same command with --resume to go on"
    if open_parts and not interrupted:
        work.warn(f"stopped by --timeout or --nodes: {note}, with a longer --timeout or more --nodes")
    status = Status.VIOLATED if summary.parts.violated else Status.UNKNOWN if open_parts else Status.PROVED
    return PartitionResult(
        **_common(query, work), **dict(summary), seconds=work.seconds, size=size, store=str(store),
        stopped="interrupted" if interrupted else "limit" if open_parts else "done", semantics=semantics(query.model),
        proof_line=f"verdicts and proofs: {work.check_line(store, partial=open_parts > 0)}", exit_code=EXIT_CODES[status],
        interrupted=note if interrupted else None,
    )
