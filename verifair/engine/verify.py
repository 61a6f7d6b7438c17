"""`verify`: one query, one Verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from encoders.arrays import Array
from encoders.evaluate import gap
from encoders.problem import TwinBatch, TwinProblem
from solvers import clock
from solvers.outcome import Budget
from verifair.checker.certificates.certificate import Certificate, Claim, Proof
from verifair.checker.certificates.envelope import semantics
from verifair.checker.certificates.statement import BoxQuery, BoxStatement, Scale
from verifair.checker.certificates.tree import Tree
from verifair.engine.answer import GoalAnswer, engines
from verifair.engine.cascade import solve
from verifair.engine.queries import IndividualFairness, PairQuestion
from verifair.engine.questions import goals_of, questions_of, twin_problem
from verifair.engine.verdict import Status, Verdict, Witness
from verifair.engine.witness import witness_at


def verify(query: IndividualFairness, *, budget: Budget | None = None, method: str = "auto", solver: str | None = None) -> Verdict:
    """Decide a query about a box: a decision flip, or a probability gap above epsilon.

    The verdict is PROVED when every pair of protected combinations is proved in both directions, VIOLATED as soon as one has an
    exact counterexample, UNKNOWN otherwise. budget.seconds bounds the whole run.
    Sound? yes.  Complete? method "auto" and "bnb" are, within the budget; "smt" too for unscaled inputs; "milp" up to its
    tolerances; "lp" is not.
    """
    started = clock.now()
    box, batch = questions_of(query)
    evidence: list[list[tuple[Tree | Claim, bool]]] = [[] for _ in range(len(batch))]
    flat: list[GoalAnswer] = []
    violation: tuple[TwinProblem, int, int, GoalAnswer] | None = None
    for number, classes in enumerate(query.thresholds):
        problem = twin_problem(query, batch, goals_of(query), classes)
        answers = solve(
            problem, method=method, solver=solver, group=np.zeros(len(batch), dtype=np.int64),
            budget=_share(budget, clock.now() - started, len(query.thresholds) - number),
        )
        flat += [answer for row in answers for answer in row]
        bad = next(((q, g, a) for q, row in enumerate(answers) for g, a in enumerate(row) if a.status is Status.VIOLATED), None)
        if bad is not None:
            violation = (problem, *bad)
            break
        for proved, row in zip(evidence, answers, strict=True):
            proved += [(answer.evidence, answer.float32) for answer in row if answer.status is Status.PROVED]
    status = _all(flat)
    lower, upper = min(a.lower for a in flat), min(a.upper for a in flat)
    certificate = None
    if status is Status.PROVED:
        certificate = fairness_certificate(query, batch, box, evidence, epsilon=query.epsilon, scale=query.scale)
    return Verdict(
        status=status, reason=next((a.reason for a in flat if a.reason is not None), None) if status is Status.UNKNOWN else None,
        witness=witness_of(query, *violation) if violation else None, certificate=certificate, lower=lower, upper=upper,
        engine=engines(flat),
        seconds=clock.now() - started, semantics=semantics(query.model),
        outcomes=tuple(outcome for a in flat for outcome in a.outcomes),
        float32=all(a.float32 for a in flat) if status is Status.PROVED else None,
    )


def _share(budget: Budget | None, spent: float, parts: int) -> Budget | None:
    """Return the budget of the next of `parts` parts: an equal share of what is left."""
    return None if budget is None else replace(budget, seconds=max(budget.seconds - spent, 1e-3) / parts)


def _all(answers: Sequence[GoalAnswer]) -> Status:
    """Return the three-valued conjunction: VIOLATED if one answer is, else UNKNOWN if one is, else PROVED."""
    statuses = {answer.status for answer in answers}
    if Status.VIOLATED in statuses:
        return Status.VIOLATED
    return Status.UNKNOWN if Status.UNKNOWN in statuses else Status.PROVED


def witness_of(query: IndividualFairness, problem: TwinProblem, q: int, g: int, answer: GoalAnswer) -> Witness:
    assert answer.witness is not None
    assert answer.margins is not None
    schema, goal, margins = query.schema, problem.goals[g], np.array(answer.margins)
    second = problem.batch.take([q]).second(answer.witness[None, :])[0]
    values = goal.rows @ margins + goal.constants
    value = float(values.max()) if goal.gap is None else goal.gap.epsilon - float(gap(margins, goal.gap))
    return witness_at(
        schema, query.model, np.stack([answer.witness, second]), answer.margins, margin=value,
        agrees=answer.agrees, any_two=query.classes == "any",
    )


def fairness_certificate(
    query: PairQuestion, batch: TwinBatch, box: tuple[Array, Array],
    evidence: Sequence[Sequence[tuple[Tree | Claim, bool]]], *, epsilon: float | None,
    scale: Scale,
) -> Certificate:
    """Return the certificate. evidence: [question][direction], a fall and a rise for each of the query's thresholds, each with True
    if it is certified for float32. epsilon None: no decision flips; else no gap on the scale is larger than epsilon."""
    schema = query.schema
    index = [schema.index(name) for name in query.protected]
    proofs = []
    directions = [pair for k, j in query.thresholds for pair in ((k, j), (j, k))]
    for q, g in product(range(len(batch)), range(len(directions))):
        shift = {} if batch.offset is None else {name: int(batch.offset[q, schema.index(name)]) for name in query.relax}
        statement = BoxStatement(
            goal="no-flip" if epsilon is None else "no-gap", lower=tuple(batch.lower[q].tolist()),
            upper=tuple(batch.upper[q].tolist()),
            prime={name: float(batch.prime[q, v]) for name, v in zip(query.protected, index, strict=True)}, classes=directions[g],
            offset=shift,
        )
        content, float32 = evidence[q][g]
        proofs.append(Proof(statement=statement, evidence=content, float32=float32))
    features = tuple(feature.name for feature in schema.features)
    return Certificate(
        network_sha256=query.model.source_sha256,
        schema_sha256=schema.sha256,
        semantics=semantics(query.model),
        query=BoxQuery(
            kind="individual-fairness", protected=tuple(query.protected),
            box={name: (float(lo), float(hi)) for name, lo, hi in zip(features, *box, strict=True)},
            differ="all" if query.differ == "all" else "any", epsilon=epsilon, scale=scale,
            signs=query.rule if isinstance(query, IndividualFairness) else None,
            classes=query.classes if isinstance(query, IndividualFairness) else "favourable",
            relax={name: int(width) for name, width in query.relax.items()},
        ),
        features=features,
        proofs=tuple(proofs),
    )
