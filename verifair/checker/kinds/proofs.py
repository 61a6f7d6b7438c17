"""The check of certificates: statements about rows or boxes, each with a tree, a solver's word or a counterexample.

For two copies x and x' (x' = x but for the protected features in `prime`) and g = f_i - f_j
(one logit: +f for classes (1, 0), -f for (0, 1)) the statements are

    observed   g(x) - g(x') > 0          flipped   g(x') - g(x) > 0          robust   g(x) > 0, or >= 0 where i < j
    no-flip    x is not decided i where x' is decided j. For i > j: not (g(x) > 0 >= g(x')), which holds where -g(x) >= 0, or
               g(x') > 0, or (g(x') - g(x)) / 2 >= 0; for i < j the tie is i's: not (g(x) >= 0 > g(x')), which holds where
               -g(x) > 0, or g(x') >= 0, or (g(x') - g(x)) / 2 >= 0. With the query's signs "strict" all three may be 0
    factual, counterfactual    as robust: of a row, and of all that a causal model may make of it (`kinds.counterfactuals`)

at every point of the statement's box. The tree must cover the box, and the leaf rule (`kernel.leaves`) hold at every leaf, with the
margin that the proof states. A counterexample has to be a legal row of the box, with its partner, at which exact arithmetic finds
the statement false. Every proof is about the real-valued function of the stored weights, at every input that the
raw box maps to; one that claims to be certified for float32 is confirmed only where its rows exceed the rounding of every float32
evaluation (`kernel.float32`).
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator
from functools import partial
from typing import Any

import numpy as np

from encoders.arrays import Array
from encoders.domain import Domain
from encoders.model import Model
from verifair.checker.certificates.certificate import FILE, Certificate, Claim, Counterexample
from verifair.checker.certificates.statement import (
    BoxQuery,
    CounterfactualQuery,
    CounterfactualStatement,
    Query,
    RowsQuery,
    RowStatement,
    Statement,
)
from verifair.checker.certificates.tree import Tree
from verifair.checker.kernel.leaves import JoinedTrees, replay
from verifair.checker.kernel.points import Points
from verifair.checker.kernel.tasks import Task, Tasks
from verifair.checker.kind import Kind
from verifair.checker.kinds.statements import judged, pairs_missing, task_of
from verifair.checker.report import Batches, CheckReport, Rejection
from verifair.checker.words import counted, decided, exactly, moving, near, where
from verifair.schema.space import InputSpace

NODES_HELD = 4096
"""Nodes of trees that are checked at once, unless one tree has more."""


def check_proofs(certificate: Certificate, *, network: Model, schema: InputSpace, batches: Batches) -> CheckReport:
    """Check a certificate of statements about rows, boxes or counterfactuals."""
    started = time.perf_counter()
    if not isinstance(certificate.query, RowsQuery):  # statements about rows are about pairs of classes of the whole model
        network = judged(certificate.query, network, schema)
    refuted = sum(isinstance(proof.evidence, Counterexample) for proof in certificate.proofs)
    count = len(certificate.proofs) - refuted
    leaves = 0
    rejects = [Rejection(proof=None, reason=reason) for reason in _misfits(certificate, network, schema)]
    if not rejects:
        for n, flaws in batches(partial(_replayed, network, schema.domain), _groups(certificate, network, schema, rejects), count):
            leaves += n
            rejects += flaws
        rejects += [*_wrong_counterexamples(certificate, network, schema), *_repeated(certificate)]
    return CheckReport.of(
        rejects, proofs=count, leaves=leaves, started=started, extent=certificate.extent, unit=certificate.unit, refuted=refuted,
        float32=sum(proof.float32 for proof in certificate.proofs),
    )


def _misfits(certificate: Certificate, network: Model, schema: InputSpace) -> Iterator[str]:
    """Yield reasons to reject the file without a look at its proofs."""
    yield from certificate.misfits(network, schema, None if certificate.proofs else "it holds no proofs")
    if schema.domain.columns != network.inputs:
        return
    query = certificate.query
    if isinstance(query, CounterfactualQuery):
        from verifair.checker.kinds.counterfactuals import decisions_missing, query_flaw  # loaded only for these files

        flaw = query_flaw(query, schema)
        yield from decisions_missing(query, certificate.proofs) if flaw is None else [flaw]
    elif len(set(query.protected) & {feature.name for feature in schema.features}) < len(query.protected):
        yield f"it names features as protected that are unknown, or one twice: {', '.join(map(repr, query.protected))}"
    elif isinstance(query, BoxQuery):
        if not certificate.extent.whole:
            yield "a certificate about a box answers the whole query: nothing of it can be undecided or not reached"
        missing = pairs_missing(query, certificate.proofs, network, schema)
        if missing is not None:
            yield missing


def _replayed(network: Model, domain: Domain, numbers: list[int], tasks: Tasks, trees: JoinedTrees) -> tuple[int, Any]:
    """Return the number of these proofs, and: the number of their leaves, and what is wrong with which proof."""
    flaws = [Rejection(proof=numbers[k], reason=flaw) for k, flaw in replay(network, domain, tasks, trees).items()]
    return len(numbers), (int((trees.feature == -1).sum()), flaws)


def _groups(
    certificate: Certificate, network: Model, schema: InputSpace, rejects: list[Rejection]
) -> Iterator[tuple[list[int], Tasks, JoinedTrees]]:
    """Yield the numbers, tasks and trees of proofs in groups of bounded size; rejections of invalid statements go to `rejects`."""
    group: list[tuple[int, Task, Tree, bool, float | None]] = []
    nodes = 0
    for number, proof in enumerate(certificate.proofs):
        if isinstance(proof.evidence, Counterexample):
            continue  # see _wrong_counterexamples
        task = _task(proof.statement, certificate.query, network, schema)
        if isinstance(task, str):
            flaw: str | None = task
        elif isinstance(proof.evidence, Claim):
            flaw = f"claimed by {proof.evidence.backend} {proof.evidence.version}, not re-provable"
        else:
            flaw = proof.evidence.misfit
        if flaw is not None:
            rejects.append(Rejection(proof=number, reason=flaw))
        elif isinstance(task, Task) and isinstance(proof.evidence, Tree):
            group.append((number, task, proof.evidence, proof.float32, proof.margin))
            nodes += len(proof.evidence.feature)
        if nodes >= NODES_HELD:
            yield _joined(group)
            group, nodes = [], 0
    if group:
        yield _joined(group)


def _joined(group: list[tuple[int, Task, Tree, bool, float | None]]) -> tuple[list[int], Tasks, JoinedTrees]:
    numbers, tasks, trees, float32, margin = zip(*group, strict=True)
    return list(numbers), Tasks.of(tasks), JoinedTrees.of(trees, float32, margin)


def _repeated(certificate: Certificate) -> Iterator[Rejection]:
    """Yield rejections of proofs whose statement an earlier proof has, so that the file would count it twice."""
    first: dict[Hashable, int] = {}
    for number, proof in enumerate(certificate.proofs):
        earlier = first.setdefault(proof.key, number)
        if earlier != number:
            yield Rejection(proof=number, reason=f"its statement is that of proof {earlier}")


def _wrong_counterexamples(certificate: Certificate, network: Model, schema: InputSpace) -> Iterator[Rejection]:
    """Yield rejections of counterexamples that are no row of their statement's box, or at which the statement is not false."""
    cases: list[tuple[int, Task, Array]] = []
    for number, proof in enumerate(certificate.proofs):
        if not isinstance(proof.evidence, Counterexample):
            continue
        task, x = _task(proof.statement, certificate.query, network, schema), np.array(proof.evidence.x)
        if isinstance(task, str):
            yield Rejection(proof=number, reason=task)
        elif not isinstance(certificate.query, RowsQuery):
            yield Rejection(proof=number, reason=f"a {certificate.query.kind} certificate holds no counterexamples")
        elif len(x) != len(task.lower) or not ((task.lower <= x) & (x <= task.upper)).all():
            yield Rejection(proof=number, reason=f"its counterexample x = {x.tolist()} lies outside the statement's box")
        else:
            cases.append((number, task, x))
    for start in range(0, len(cases), NODES_HELD):
        numbers, claims, points = zip(*cases[start : start + NODES_HELD], strict=True)
        tasks, raw, index = Tasks.of(claims), np.array(points), np.arange(len(claims))
        valid = schema.domain.legal(raw) & schema.domain.legal(tasks.second(index, raw))
        valid[valid] = Points(network, schema.domain, tasks).failing(index[valid], raw[valid])
        for number, x, is_valid in zip(numbers, points, valid, strict=True):
            if not is_valid:
                yield Rejection(proof=number, reason=f"its counterexample x = {x.tolist()} is none")


def _task(statement: Statement, query: Query, network: Model, schema: InputSpace) -> Task | str:
    """Return the task of a statement, or why the statement is invalid."""
    if isinstance(query, CounterfactualQuery) and isinstance(statement, CounterfactualStatement):
        from verifair.checker.kinds.counterfactuals import counterfactual_task

        return counterfactual_task(statement, query, network, schema)
    if isinstance(query, CounterfactualQuery) or isinstance(statement, CounterfactualStatement):
        return f"a {statement.goal} statement does not belong into a {query.kind} certificate"
    return task_of(statement, query, network, schema)


def _statement(certificate: Certificate, schema: InputSpace, network: Model) -> str:
    """Return the file's statement in words."""
    query = certificate.query
    if isinstance(query, CounterfactualQuery):
        from verifair.checker.kinds.counterfactuals import counterfactuals_statement

        return counterfactuals_statement(certificate, query, schema)
    names = " and ".join(query.protected)
    if not isinstance(query, BoxQuery):
        deltas = {proof.statement.delta for proof in certificate.proofs if isinstance(proof.statement, RowStatement)}
        subject = f"{query.kind} by {names}" if names else query.kind
        extent = certificate.extent
        counts = (
            (extent.proved + extent.claimed, "proved"), (extent.refuted, "refuted (a counterexample of each is in the file)"),
            (extent.undecided, "undecided"), (extent.not_reached, "not reached"),
        )
        answers = ", ".join(f"{count:,} {text}" for count, text in counts if count)
        units = f"{', '.join(map(exactly, sorted(deltas)))} unit{'' if deltas == {1.0} else 's'}"
        total = counted(extent.total, "statement", "statements")
        return f"It states: of {total} about {subject} within {units}, {answers}; equal rows count once, nothing about other rows."
    nearby = f", and {near(query.relax, schema)}" if query.relax else ""
    differ = f"when {names} changes" if len(query.protected) == 1 else f"when {query.differ} of {names} change"
    if query.epsilon is None:
        claim = f"no decision flips {differ}{nearby}{decided(query.signs, network, schema, query.classes == 'any')}"
    else:
        claim = f"no {moving(query.scale, network, schema)} by more than {query.epsilon} {differ}{nearby}"
    return f"It states: {claim}; {where(query.box, schema)}."


KIND = Kind(
    format=Certificate.FORMAT, counts="proofs", load=Certificate.load, check=check_proofs, statement=_statement, file=FILE,
    title="Files of proofs about fairness, bias, robustness and counterfactuals",
)
