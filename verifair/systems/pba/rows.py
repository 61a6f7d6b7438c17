"""Verdicts for every row of a table: plan the questions, solve them in batches, keep each batch as it is decided.

One job, top to bottom: `decide_rows` reads the table chunk by chunk, finds the eligible rows, cuts them into batches, solves these
(in several processes if asked, on the machines of a cluster within `engine.cluster`), and stores one verdict a line.
The run fixes the batches: the last bit of a bound, and with it the tree of a proof, can depend on the other questions of a batch.
So whole batches are stored, and a resumed run asks whole batches.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, TypedDict, Unpack

import joblib
import numpy as np
import pandas as pd
from threadpoolctl import ThreadpoolController

from encoders.arrays import Array, Integers
from encoders.onnx.runtime import Replay
from solvers.outcome import Budget
from verifair.checker.certificates.certificate import Certificate
from verifair.checker.report import Progress
from verifair.datasets.stream import Stream
from verifair.engine.answer import GoalAnswer
from verifair.engine.cascade import METHODS, solve
from verifair.engine.parallel import Deadline, Shared, as_done
from verifair.engine.queries import PersistentBias, Robustness
from verifair.engine.questions import bias_problem, classes, robustness_problem
from verifair.engine.store import Store, VerdictRecord, Verdicts, dump_tree
from verifair.engine.verdict import Reason, Status
from verifair.errors import DataError, QueryError
from verifair.systems.pba.stream import KINDS, LabelledRows, TableStream, kinds, sensitive_of

BATCH = 512
"""Questions a batch: what a kill can lose, and the unit of parallel work."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Questions of one kind: same goal kind, feature, delta and classes; rows and counterfactual values differ.

    rows: (B,) positions in the table.   to: (B,) counterfactuals' numbers.   raw: (B, V) the rows.
    """

    kind: str  # "bias", "robust", "robust-flipped"
    sensitive: str
    delta: float
    winner: int
    loser: int
    rows: Integers
    to: Array
    raw: Array

    @property
    def goals(self) -> tuple[str, ...]:
        return KINDS[self.kind]

    def take(self, mask: Any) -> Batch:
        """Return the batch with some of the questions only."""
        return replace(self, rows=self.rows[mask], to=self.to[mask], raw=self.raw[mask])


@dataclass(frozen=True, kw_only=True, eq=False)
class _Run:
    """Arguments that all batches of a run share."""

    query: PersistentBias | Robustness
    method: str
    solver: str | None
    budget: Budget
    replay: Replay | None


class RowOptions(TypedDict, total=False):
    """Options of `decide_rows`."""

    budget: Budget | None
    method: str
    solver: str | None
    jobs: int
    store: str | Path | None
    resume: bool
    progress: Progress | None


def verify_rows(
    query: PersistentBias | Robustness, frame: pd.DataFrame | LabelledRows, **options: Unpack[RowOptions]
) -> pd.DataFrame:
    """Decide a query for every eligible row of a table (or of its rows as read); returns one verdict per line, in a fixed order.

    As `decide_rows`, for a table and verdicts that fit in memory.
    """
    if isinstance(frame, LabelledRows):
        people = TableStream.passed(lambda: [frame], [query])
    else:
        people = TableStream.of(query.model, query.schema, Stream.of(frame), [query])
    return decide_rows(query, people, **options).frame()


def decide_rows(
    query: PersistentBias | Robustness,
    people: TableStream,
    *,
    budget: Budget | None = None,
    method: str = "auto",
    solver: str | None = None,
    jobs: int = 1,
    store: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Verdicts:
    """Decide a query for every eligible row of a table, chunk by chunk; returns the verdicts, which stay in their store.

    people: the rows; the query is among those that it counts. Eligible for PersistentBias: rows whose label is predicted right
    both as they are and as the counterfactual (PBA eq. 3); for Robustness: rows predicted right (*robust*), counterfactuals
    predicted right (*robust-flipped*).
    budget.seconds bounds the whole run, budget.nodes each question. Verdicts go to `store` (SQLite; None: a file that goes with the
    verdicts) batch by batch; `resume` continues a run of the same network, schema, data, query and method. Interrupted (Ctrl-C), it
    raises KeyboardInterrupt after storing every finished batch. progress(done, total) counts verdicts; the total is an estimate
    until all rows of a large table are counted, which is after the first query.
    Raises DataError when no row is eligible, or the table changes meanwhile.
    Sound? yes. Complete? method "auto" is, within the budget; "lp" is not. Reference: PBA, section 2 and 3.3-3.5.
    """
    if method not in METHODS:
        raise QueryError(f"method {method!r} is unknown; choose one of {', '.join(METHODS)}")
    budget = budget or Budget()
    run = run_key(query, people, method, solver)
    verdicts = Verdicts(
        path=Path(store or Path(mkdtemp(prefix="verifair-verdicts-")) / "verdicts.sqlite"), run=run, sensitive=sensitive_of(query),
        deltas=tuple(map(float, query.delta)), scratch=store is None,
    )  # fmt: skip
    with Store(verdicts.path) as database:
        database.begin(run, describe(query, people, method, solver), resume=resume)
        finished, expected = database.count_decided(run, budget.nodes), people.expected(query, classes(query.model))
        if progress is not None:
            progress(finished, max(expected, finished))
        deadline = Deadline.after(budget.seconds)
        common = Shared(value=_Run(query=query, method=method, solver=solver, budget=budget, replay=Replay.of(query.model)))
        batches = plan(query, people)
        batches = _undecided(batches, database, run, budget.nodes) if resume else batches
        work = (joblib.delayed(_solve_batch)(common, batch, deadline) for batch in batches)
        for records in as_done(work, jobs):
            database.add(run, records)
            finished += len(records)
            if progress is not None:
                progress(finished, max(expected, finished))
        total = people.counts.verdicts(query, classes(query.model))
        if not total:
            note = " for a row and its counterfactual alike" if kinds(query) == ("bias",) else ""
            forbidden = ", or the constraints forbid its counterfactual" if query.schema.constraints else ""
            raise DataError(
                f"none of the {people.rows} rows is eligible: the network predicts no label right{note}{forbidden}; check that "
                "model, schema and label column belong together"
            )
        if progress is not None:
            progress(total, total)
        if len(verdicts) != total:
            raise DataError(
                f"{database.path}: holds {len(verdicts)} verdicts of this run, expected {total}: another run of the same question "
                "replaced some meanwhile; give each run its own --store, and continue this one with --resume"
            )
    return verdicts


def plan(query: PersistentBias | Robustness, people: Iterable[LabelledRows]) -> Iterator[Batch]:
    """Yield all questions of a query, in batches that do not depend on the table's chunks: kind by kind and delta by delta, for
    rows of one class in the table's order."""
    count = classes(query.model)
    for kind in kinds(query):
        for delta in query.delta:
            first = Batch(
                kind=kind, sensitive=sensitive_of(query), delta=float(delta), winner=0, loser=0, rows=np.empty(0, np.int64),
                to=np.empty(0), raw=np.empty((0, query.schema.domain.variables)),
            )  # fmt: skip
            waiting = [replace(first, winner=winner) for winner in range(count)]
            for table in people:
                rows, to = table.eligible(query, kind)
                for winner in range(count):
                    in_class = table.labels[rows] == winner
                    new = replace(first, rows=rows[in_class] + table.start, to=to[in_class], raw=table.raw[rows[in_class]])
                    batch = _join(waiting[winner], new)
                    n_complete = len(batch.rows) // BATCH * BATCH
                    yield from _against_others(batch.take(slice(n_complete)), count)
                    waiting[winner] = batch.take(slice(n_complete, None))
            for incomplete in waiting:
                yield from _against_others(incomplete, count)


def _join(waiting: Batch, new: Batch) -> Batch:
    rows, to, raw = (np.concatenate([getattr(batch, name) for batch in (waiting, new)]) for name in ("rows", "to", "raw"))
    return replace(waiting, rows=rows, to=to, raw=raw)


def _against_others(of_class: Batch, count: int) -> Iterator[Batch]:
    """Yield questions about rows of one class in batches, against every other class."""
    for start in range(0, len(of_class.rows), BATCH):
        for loser in (c for c in range(count) if c != of_class.winner):
            yield replace(of_class.take(slice(start, start + BATCH)), loser=loser)


def _undecided(batches: Iterator[Batch], store: Store, run: str, nodes: int | None) -> Iterator[Batch]:
    """Yield the questions of each batch that a resumed run still has to decide."""
    for batch in batches:
        rows = int(batch.rows[0]), int(batch.rows[-1])
        decided = store.decided(run, nodes, sensitive=batch.sensitive, delta=batch.delta, rows=rows)
        if not decided:
            yield batch
            continue
        missing = np.array([
            any((batch.sensitive, goal, batch.delta, int(row), float(to), batch.loser) not in decided for goal in batch.goals)
            for row, to in zip(batch.rows, batch.to, strict=True)
        ])
        if missing.any():
            yield batch.take(missing)


def run_key(query: PersistentBias | Robustness, people: TableStream, method: str, solver: str | None) -> str:
    """Return a hash of everything that determines the answers, so that a store never mixes verdicts of different questions."""
    digest = hashlib.sha256(json.dumps(describe(query, people, method, solver), sort_keys=True).encode())
    return digest.hexdigest()[:16]


def describe(query: PersistentBias | Robustness, people: TableStream, method: str, solver: str | None) -> dict[str, object]:
    """Return the description of a run, for the store and for certificates."""
    return {
        "query": "persistent-bias" if isinstance(query, PersistentBias) else "robustness",
        "sensitive": query.protected if query.protected is None or isinstance(query.protected, str) else list(query.protected),
        "delta": [float(d) for d in query.delta],
        "arithmetic": query.arithmetic,
        "method": method,
        "solver": solver,
        "network_sha256": query.model.source_sha256,
        "output": query.model.output,  # one file may hold several networks
        "schema_sha256": query.schema.sha256,
        "data_sha256": people.sha256,
        "rows": people.rows,
        "proofs": Certificate.FORMAT,  # a run with proofs of another version is not continued
    }


@cache
def _libraries() -> ThreadpoolController:
    """Return the BLAS libraries of this process; cached."""
    return ThreadpoolController()


def _solve_batch(common: Shared[_Run], batch: Batch, deadline: Deadline) -> list[VerdictRecord]:
    """Solve one batch, in any process; BLAS keeps to the budget's threads."""
    run, raw = common.value, batch.raw
    query, budget = run.query, run.budget
    limits = replace(budget, seconds=max(deadline.left(), 1e-3))
    group_numbers = query.exchange.of_rows(raw) if query.exchange else np.zeros(len(raw))
    if run.replay is not None:
        run.replay.open()
    pair = (batch.winner, batch.loser)
    with _libraries().limit(limits=budget.threads):
        if isinstance(query, PersistentBias):
            names = query.exchange.names
            problem = bias_problem(query.model, query.schema, raw, names, batch.to, batch.delta, pair)
        else:
            if batch.kind == "robust-flipped" and query.exchange is not None:
                raw = query.exchange.put(raw, batch.to)
            problem = robustness_problem(query.model, query.schema, raw, batch.delta, query.protected, pair)
        problem = replace(problem, float32=query.arithmetic == "float32")
        answers = solve(problem, method=run.method, solver=run.solver, budget=limits)
    return list(_records(batch, group_numbers, answers))


def _records(batch: Batch, group_numbers: Array, answers: Sequence[Sequence[GoalAnswer]]) -> Iterator[VerdictRecord]:
    """Yield the verdicts of a batch.   group_numbers: (B,) the number of each row in the exchange."""
    for row, to, group, row_answers in zip(batch.rows, batch.to, group_numbers, answers, strict=True):
        for goal, answer in zip(batch.goals, row_answers, strict=True):
            proved = answer.status is Status.PROVED
            yield VerdictRecord(
                sensitive=batch.sensitive,
                goal=goal,
                delta=batch.delta,
                row=int(row),
                to=float(to),
                against=batch.loser,
                group=float(group),
                label=batch.winner,
                status=answer.status.value,
                reason=answer.reason.value if isinstance(answer.reason, Reason) else "",
                lower=answer.lower,
                upper=answer.upper,
                engine=answer.engine,
                trust="" if not proved else "checked" if answer.tree is not None else "claimed",
                float32_agrees=answer.agrees,
                nodes=answer.nodes,
                witness=None if answer.witness is None else json.dumps(answer.witness.tolist()),
                margins=None if answer.margins is None else json.dumps(answer.margins),
                tree=dump_tree(answer.tree, answer.margin),
                claim=json.dumps(asdict(answer.claim)) if proved and answer.tree is None else None,
                float32=answer.float32 if proved else None,
            )
