"""`verify`: one query, one Verdict."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from encoders.problem import TwinProblem
from solvers.outcome import Budget
from verifair.errors import QueryError
from verifair.queries import IndividualFairness
from verifair.verdict import Status, Verdict
from verifair.verify.certificate import BoxStatement, Certificate, Claim, FairnessQuery, Proof, semantics
from verifair.verify.engine import Answer, solve
from verifair.verify.questions import FlipQuestions, flip_problem
from verifair.witness import Witness

DIRECTIONS = ((1, 0), (0, 1))
"""Classes (i, j) of the two goals of a flip question: no x decided 1 whose counterfactual is decided 0, and the reverse."""


def verify(
    query: IndividualFairness, *, budget: Budget | None = None, method: str = "auto", solver: str | None = None
) -> Verdict:
    """Decide a query about a box.

    The verdict is PROVED when every pair of protected combinations is proved in both directions, VIOLATED as soon as one has an
    exact counterexample, UNKNOWN otherwise. budget.seconds bounds the whole run.
    Sound? yes.  Complete? method "auto" and "bnb" are, within the budget; "smt" too for unscaled inputs; "milp" up to its
    tolerances; "lp" is not.
    """
    if not isinstance(query, IndividualFairness):
        raise QueryError(f"{type(query).__name__} is asked row by row: use verify_rows(query, frame)")
    started = time.monotonic()
    asked = flip_problem(query)
    answers = solve(asked.problem, method=method, solver=solver, budget=budget)
    flat = [answer for pair in answers for answer in pair]
    status = _all(flat)
    lower, upper = min(a.lower for a in flat), min(a.upper for a in flat)
    found = next(((q, g, a) for q, pair in enumerate(answers) for g, a in enumerate(pair) if a.status is Status.VIOLATED), None)
    return Verdict(
        status=status,
        reason=next((a.reason for a in flat if a.reason is not None), None) if status is Status.UNKNOWN else None,
        witness=_witness(query, asked.problem, *found) if found else None,
        certificate=_certificate(query, asked, answers) if status is Status.PROVED else None,
        lower=lower,
        upper=upper,
        engine=flat[0].engine if len({a.engine for a in flat}) == 1 else "+".join(sorted({a.engine for a in flat})),
        seconds=time.monotonic() - started,
        semantics=semantics(query.network),
        outcomes=tuple(outcome for a in flat for outcome in a.outcomes),
    )


def _all(answers: Sequence[Answer]) -> Status:
    """Conjunction in three values: one violation refutes, one unknown leaves open."""
    statuses = {answer.status for answer in answers}
    if Status.VIOLATED in statuses:
        return Status.VIOLATED
    return Status.UNKNOWN if Status.UNKNOWN in statuses else Status.PROVED


def _witness(query: IndividualFairness, problem: TwinProblem, q: int, g: int, answer: Answer) -> Witness:
    assert answer.witness is not None
    assert answer.margins is not None
    schema = query.schema
    second = problem.batch.take([q]).second(answer.witness[None, :])[0]
    return Witness(
        x=schema.decode(answer.witness),
        x_prime=schema.decode(second),
        outputs=answer.margins,
        margin=float((problem.goals[g].rows @ np.array(answer.margins)).max()),
        float32_agrees=answer.agrees,
    )


def _certificate(query: IndividualFairness, asked: FlipQuestions, answers: Sequence[Sequence[Answer]]) -> Certificate:
    batch, schema = asked.problem.batch, query.schema
    index = [schema.index(name) for name in query.protected]
    proofs = []
    for q, g in product(range(len(batch)), range(2)):
        answer = answers[q][g]
        statement = BoxStatement(
            goal="no-flip",
            lower=tuple(batch.lower[q].tolist()),
            upper=tuple(batch.upper[q].tolist()),
            prime={name: float(batch.prime[q, v]) for name, v in zip(query.protected, index, strict=True)},
            classes=DIRECTIONS[g],
        )
        proofs.append(Proof(statement=statement, evidence=answer.tree if answer.tree is not None else _claim(answer)))
    features = tuple(feature.name for feature in schema.features)
    return Certificate(
        network_sha256=query.network.source_sha256,
        schema_sha256=schema.sha256,
        semantics=semantics(query.network),
        query=FairnessQuery(
            kind="individual-fairness",
            protected=tuple(query.protected),
            box={name: (float(lo), float(hi)) for name, lo, hi in zip(features, asked.lower, asked.upper, strict=True)},
            differ="all" if query.differ == "all" else "any",
        ),
        features=features,
        proofs=tuple(proofs),
    )


def _claim(answer: Answer) -> Claim:
    outcome = answer.outcomes[-1]
    return Claim(backend=outcome.backend, version=outcome.version, tolerance=outcome.tolerance)


def describe(verdict: Verdict, query: IndividualFairness) -> pd.DataFrame:
    """A witness as a table: one line a feature, x beside x', for the screen."""
    assert verdict.witness is not None
    x, x_prime = verdict.witness.x, verdict.witness.x_prime
    rows: list[dict[str, Any]] = [{"feature": name, "x": x[name], "x'": x_prime[name]} for name in x]
    return pd.DataFrame(rows)
