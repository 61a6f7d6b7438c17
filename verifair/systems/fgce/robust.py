"""Robust counterfactuals: proved to get the positive decision in their whole PBA neighbourhood.

Somebody who follows the advice ends near the counterfactual, not on it. `certify_robust` asks the engine about every row within
delta units of it (PBA, eq. 4-5); `robust_choice` then chooses only among rows for which this is proved.
The neighbourhood is the schema's: numbers with a unit move, protected and fixed features and categories do not. The
`changes` that a graph allows are about the path to a counterfactual, not about its neighbourhood.
References: PBA, section 2; FGCE, problems 1 and 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from encoders.arrays import Array, Integers
from encoders.onnx.runtime import predictions
from solvers import clock
from solvers.outcome import Budget
from verifair.checker.certificates.certificate import Certificate, Counterexample, Proof, answered
from verifair.checker.certificates.envelope import semantics
from verifair.checker.certificates.statement import RowsQuery, RowStatement
from verifair.engine.answer import GoalAnswer
from verifair.engine.cascade import solve
from verifair.engine.queries import Robustness
from verifair.engine.questions import classes, decisions, margin, robustness_problem
from verifair.engine.verdict import Status
from verifair.errors import DataError, QueryError
from verifair.models.read import read
from verifair.schema.schema import Schema

Answers = dict[int, GoalAnswer]
"""The answers for one row at one delta: for each other class, whether the positive one wins throughout the neighbourhood."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CertifiedRobustness:
    """table: one line for each row and delta, see `certify_robust`.   certificate: of all proofs, None without any."""

    table: pd.DataFrame
    certificate: Certificate | None


def re_evaluated(model: Any, schema: Schema, raw: Array) -> pd.DataFrame:
    """Return the network's decisions on raw rows (n, V): exactly, and in float32 by onnxruntime. One line for each row.

    positive: in exact arithmetic over the stored weights.   float32: the runtime's decision, None where the network has no file.
    agrees: whether both agree (None without a file).   margin: the good logit minus the largest other (or 0).
    model: anything that `verifair.read` takes.   Raises SchemaError or DataError for rows that do not fit.
    """
    settled, schema = schema.settled(read(model))
    network = schema.judges(settled)
    _check(schema, raw)
    x = schema.encode(raw)
    exact = decisions(network, x) == schema.good
    margins = network.forward(x) @ margin(network, schema.good, 1 - schema.good)
    table = pd.DataFrame({"row": np.arange(len(raw)), "positive": exact, "margin": margins})
    if not len(raw):  # onnxruntime does not take an empty batch
        return table.assign(float32=exact.astype(object), agrees=exact.astype(object))
    float32 = None if network.source is None else predictions(network, x.astype(np.float32)) == schema.good
    table["float32"] = pd.Series([None] * len(raw) if float32 is None else float32.tolist(), dtype=object)
    table["agrees"] = pd.Series([None] * len(raw) if float32 is None else (float32 == exact).tolist(), dtype=object)
    return table


def certify_robust(
    model: Any,
    schema: Schema,
    raw: Array,
    *,
    delta: Sequence[float],
    budget: Budget | None = None,
    method: Literal["auto", "bnb"] = "auto",
    progress: Callable[[int, int], None] | None = None,
) -> CertifiedRobustness:
    """Decide whether the decision is positive at every row within delta units of raw rows (n, V), for each delta.

    budget.seconds is for all, shared evenly by the deltas; budget.nodes for each question. A row that is refuted at one delta is
    also refuted at every larger one, by the same witness. progress(done, total) counts lines of the table:
    row: place in raw.   delta.   status: proved, violated or unknown.   reason: for an unknown.   lower, upper: bounds on the
    least margin over any other class in the neighbourhood.   engine.   trust: checked (`verifair check` re-proves it) or claimed
    (by a solver), '' if not proved.   against: the class that wins at the witness.   witness: a row of the neighbourhood, in the
    schema's words, that is not decided positively.   float32_agrees: whether onnxruntime decides so too (None without a file).
    Sound? yes.  Complete? yes, within the budget.
    model: anything that `verifair.read` takes.
    Raises SchemaError where no feature has a unit and delta > 0; DataError for rows that do not fit.
    """
    query = askable(model, schema, delta)
    _check(query.schema, raw)
    deltas, budget = sorted({float(value) for value in delta}), budget or Budget()
    deadline = clock.now() + budget.seconds
    results: dict[float, dict[int, Answers]] = {}
    refuted: dict[int, Answers] = {}
    for done, value in enumerate(deltas):
        open_rows = np.array([row for row in range(len(raw)) if row not in refuted], dtype=np.int64)
        seconds = max(deadline - clock.now(), 1e-3) / (len(deltas) - done)
        new_answers = _answers(query, raw[open_rows], value, method, _with_seconds(budget, seconds)) if len(open_rows) else []
        results[value] = refuted | dict(zip(open_rows.tolist(), new_answers, strict=True))
        refuted = {row: answers for row, answers in results[value].items() if _status(answers) is Status.VIOLATED}
        if progress is not None:
            progress((done + 1) * len(raw), len(deltas) * len(raw))
    keys = [(row, value) for row in range(len(raw)) for value in deltas]
    lines = [_line(schema, row, value, results[value][row], [results[d][row] for d in deltas if d < value]) for row, value in keys]
    decided = [proof for row, value in keys for proof in _proofs_of(raw[row], value, results[value][row], _favoured(query)[0])]
    table = pd.DataFrame(lines, columns=COLUMNS, dtype=object).astype(NUMBERS)
    return CertifiedRobustness(table=table, certificate=_certificate(query, decided))


def prover(model: Any, schema: Schema, raw: Array, delta: float) -> Callable[[Integers, Budget], list[Status]]:
    """Return, for `robust_choice`, a function that decides whether nodes (rows of raw (N, V)) stay positive within delta units.

    It uses branch-and-bound only, so that no result is a solver's claim. Raises QueryError and SchemaError as `certify_robust`.
    """
    query = askable(model, schema, [delta])
    _check(query.schema, raw)
    statuses: dict[int, Status] = {}

    def prove(nodes: Integers, budget: Budget) -> list[Status]:
        new = np.array([node for node in nodes if int(node) not in statuses], dtype=np.int64)
        answers = _answers(query, raw[new], delta, "bnb", budget) if len(new) else []
        new_statuses = {int(node): _status(answer) for node, answer in zip(new, answers, strict=True)}
        statuses.update({node: status for node, status in new_statuses.items() if status is not Status.UNKNOWN})
        return [(statuses | new_statuses)[int(node)] for node in nodes]

    return prove


def by_group(table: pd.DataFrame, nodes: Integers, used: Mapping[str, Integers]) -> pd.DataFrame:
    """Return, for each group, the lines of the nodes it uses; column row, a position among `nodes`, becomes the node."""
    table = table.assign(row=nodes[table["row"].to_numpy(dtype=np.int64)])
    lines = [np.flatnonzero(table["row"].isin(group_nodes)) for group_nodes in used.values()]
    result = table.iloc[np.concatenate(lines)].reset_index(drop=True)
    result.insert(0, "group", np.repeat(np.array(list(used), dtype=object), [len(index) for index in lines]))
    return result


COLUMNS = ["row", "delta", "status", "reason", "lower", "upper", "engine", "trust", "against", "witness", "float32_agrees"]
NUMBERS = {"row": np.int64, "delta": float, "lower": float, "upper": float}


def askable(model: Any, schema: Schema, delta: Sequence[float]) -> Robustness:
    """Return the query of `certify_robust` without rows. Raises QueryError and SchemaError as it does."""
    query = Robustness(model=model, schema=schema, delta=delta)
    query.schema.steps([], needed=any(delta))
    if len(_favoured(query)) > 1:
        raise QueryError(
            f'positive = "{query.schema.outcome}": counterfactuals are certified around one favourable class, here are several; '
            "name one, or drop --robust"
        )
    return query


def _check(schema: Schema, raw: Array) -> None:
    if raw.ndim != 2 or raw.shape[1] != len(schema.features):
        raise DataError(f"rows: found an array of shape {raw.shape}; expected (n, {len(schema.features)}), one column a feature")
    if not schema.inside(raw).all():
        first = int(np.flatnonzero(~schema.inside(raw))[0])
        raise DataError(
            f"rows: row {first} is {raw[first].tolist()}, which the schema's ranges or constraints rule out; correct these, or "
            "leave such rows out"
        )


def _favoured(query: Robustness) -> tuple[int, ...]:
    """Return the classes that a counterfactual may have."""
    network, outcome = query.model, query.schema.outcome
    return outcome.favoured(network.outputs) if network.outputs > 2 else (outcome.good,)


def _with_seconds(budget: Budget, seconds: float) -> Budget:
    return Budget(seconds=seconds, nodes=budget.nodes, memory_mb=budget.memory_mb, threads=budget.threads, seed=budget.seed)


def _answers(query: Robustness, raw: Array, delta: float, method: Literal["auto", "bnb"], budget: Budget) -> list[Answers]:
    """Return the answers for each row and other class: does the positive class win? The classes share the seconds evenly."""
    (winner,) = _favoured(query)
    losers = [c for c in range(classes(query.model)) if c != winner]
    deadline = clock.now() + budget.seconds
    result: list[Answers] = [{} for _ in raw]
    for k, loser in enumerate(losers):
        problem = robustness_problem(query.model, query.schema, raw, delta, None, (winner, loser))
        seconds = max(deadline - clock.now(), 1e-3) / (len(losers) - k)
        for row, (answer,) in zip(result, solve(problem, method=method, budget=_with_seconds(budget, seconds)), strict=True):
            row[loser] = answer
    return result


def _status(answers: Answers) -> Status:
    """Return the status over all other classes: violated if one of them wins, else unknown if one is not decided, else proved."""
    statuses = {answer.status for answer in answers.values()}
    return next((status for status in (Status.VIOLATED, Status.UNKNOWN) if status in statuses), Status.PROVED)


def _line(schema: Schema, row: int, delta: float, answers: Answers, smaller: Sequence[Answers]) -> dict[str, Any]:
    status = _status(answers)
    # a lower bound on a smaller neighbourhood does not hold on a larger one; a point does
    carried = any(answers is other for other in smaller)
    loser, decisive = next(((c, a) for c, a in answers.items() if a.status is status), (0, next(iter(answers.values()))))
    proved, violated = status is Status.PROVED, status is Status.VIOLATED
    return {
        "row": row,
        "delta": delta,
        "status": status.value,
        "reason": decisive.reason.value if status is Status.UNKNOWN and decisive.reason is not None else "",
        "lower": -np.inf if carried else min(answer.lower for answer in answers.values()),
        "upper": min(answer.upper for answer in answers.values()),
        "engine": "+".join(sorted({answer.engine for answer in answers.values()})),
        "trust": "" if not proved else "checked" if all(a.tree is not None for a in answers.values()) else "claimed",
        "against": loser if violated else None,
        "witness": schema.decode(decisive.witness) if violated and decisive.witness is not None else None,
        "float32_agrees": decisive.agrees if violated else None,
    }


def _proofs_of(row: Array, delta: float, answers: Mapping[int, GoalAnswer], good: int) -> Iterator[Proof | RowStatement]:
    """Yield the proof or refutation that the positive class beats each other one, or the statement alone if it is open.

    A refuted row yields only its refutation: its answers may come from a smaller delta, where a witness counts and a proof does
    not.
    """
    refuted = {loser: answer for loser, answer in answers.items() if answer.status is Status.VIOLATED}
    for loser, answer in (refuted or answers).items():
        statement = RowStatement(goal="robust", row=tuple(row.tolist()), delta=delta, classes=(good, loser))
        if answer.witness is not None:
            yield Proof(statement=statement, evidence=Counterexample(x=tuple(answer.witness.tolist())))
        elif answer.status is Status.PROVED:
            yield Proof(statement=statement, evidence=answer.evidence, float32=answer.float32, margin=answer.margin)
        else:
            yield statement


def _certificate(query: Robustness, decided: Sequence[Proof | RowStatement]) -> Certificate | None:
    """Return the proofs and counterexamples; None where nothing is proved."""
    content = answered(decided)
    if all(isinstance(proof.evidence, Counterexample) for proof in content["proofs"]):
        return None
    return Certificate(
        network_sha256=query.model.source_sha256,
        schema_sha256=query.schema.sha256,
        semantics=semantics(query.model),
        query=RowsQuery(kind="robustness", protected=(), delta=tuple(sorted({float(value) for value in query.delta}))),
        features=tuple(feature.name for feature in query.schema.features),
        **content,
    )
