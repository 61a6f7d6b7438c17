"""Verdicts for every row of a table: plan the questions, solve them in batches, keep each batch as it is decided.

One job, top to bottom: `verify_rows` reads the table, finds the eligible rows, cuts them into batches, solves these (in
several processes if asked, on the machines of a cluster within `engine.cluster`), and returns one verdict a line.
Which questions make a batch is fixed by the run, for a bound's last bit, and with it the tree of a proof, can depend on what is
computed beside it: so whole batches are what is stored and what a resumed run asks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import joblib
import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from encoders.network import Array, Integers, Model
from encoders.onnx.runtime import Replay
from solvers.outcome import Budget
from verifair.checker.certificate import Certificate
from verifair.engine.answer import GoalAnswer
from verifair.engine.cascade import METHODS, solve
from verifair.engine.exchange import Exchange
from verifair.engine.parallel import Deadline, Shared, as_done
from verifair.engine.queries import PersistentBias, Robustness
from verifair.engine.questions import bias_problem, classes, decisions, robustness_problem
from verifair.engine.store import Store, VerdictRecord, dump_tree
from verifair.engine.verdict import Reason, Status
from verifair.errors import DataError, QueryError
from verifair.schema.schema import Schema

BATCH = 512
"""Questions a batch: what a kill can lose, and the unit of parallel work."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Rows as the engine takes them: raw (N, V), labels (N,) true classes, predicted (N,) the network's decisions."""

    raw: Array
    labels: Integers
    predicted: Integers
    _flipped: dict[tuple[str, float], Integers] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, network: Model, schema: Schema, frame: pd.DataFrame) -> Table:
        """Raises DataError for rows that do not fit the schema, and for rows outside its ranges."""
        raw = schema.raw(frame)
        labels = schema.labels(frame)
        return cls(raw=raw, labels=labels, predicted=decisions(network, schema.encode(raw)))

    def flipped(self, network: Model, exchange: Exchange, number: float) -> Integers:
        """Return the network's decisions (N,) with these values in place of those of each row that differs in all; decided once.

        The other rows have their own decision.
        """
        if (exchange.name, number) not in self._flipped:
            found = self.predicted.copy()
            others = np.flatnonzero(exchange.apart(self.raw, number))
            raw = exchange.put(self.raw[others], np.full(len(others), number))
            found[others] = decisions(network, exchange.schema.encode(raw))
            self._flipped[exchange.name, number] = found
        return self._flipped[exchange.name, number]

    @property
    def doubt(self) -> str | None:
        """What to say of a network that predicts the labels worse than a coin: two classes were probably taken for each other."""
        right = float((self.labels == self.predicted).mean()) if len(self.raw) else 1.0
        if right >= 0.5 or max(self.labels.max(), self.predicted.max()) > 1:
            return None
        return (
            f"The network predicts the true outcome of only {right:.1%} of these people: is its positive class really the outcome "
            "that the schema calls positive (positive_label)? If not, all that follows is about the opposite outcome."
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Questions of one kind: same goal kind, feature, delta and classes; rows and counterfactual values differ."""

    kind: str  # "bias", "robust", "robust-flipped"
    sensitive: str
    delta: float
    winner: int
    loser: int
    rows: Integers
    to: Array

    @property
    def goals(self) -> tuple[str, ...]:
        return ("observed", "flipped") if self.kind == "bias" else (self.kind,)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Run:
    """What all batches of a run have in common."""

    query: PersistentBias | Robustness
    method: str
    solver: str | None
    budget: Budget
    replay: Replay | None


def verify_rows(
    query: PersistentBias | Robustness,
    frame: pd.DataFrame | Table,
    *,
    budget: Budget | None = None,
    method: str = "auto",
    solver: str | None = None,
    jobs: int = 1,
    store: str | Path | None = None,
    resume: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:
    """Decide a query for every eligible row of a table (or of its rows as read); returns one verdict a line, in a fixed order.

    Eligible for PersistentBias: rows whose label is predicted right both as they are and as the counterfactual (PBA eq. 3);
    for Robustness: rows predicted right (*robust*), counterfactuals predicted right (*robust-flipped*).
    budget.seconds bounds the whole run, budget.nodes each question. Verdicts go to `store` (SQLite) batch by batch;
    `resume` continues a run of the same network, schema, data, query and method. Interrupted (Ctrl-C), it raises KeyboardInterrupt
    after storing every finished batch. progress(done, total) counts verdicts.
    Sound? yes. Complete? method "auto" is, within the budget; "lp" is not. Reference: PBA, section 2 and 3.3-3.5.
    """
    if method not in METHODS:
        raise QueryError(f"method {method!r} is unknown; choose one of {', '.join(METHODS)}")
    budget = budget or Budget()
    table = frame if isinstance(frame, Table) else Table.of(query.network, query.schema, frame)
    everything = list(plan(query, table))
    run = run_key(query, table, method, solver)
    with TemporaryDirectory() as scratch, Store(store or Path(scratch) / "verdicts.sqlite") as kept:
        kept.begin(run, describe(query, table, method, solver), resume=resume)
        done = kept.decided(run, budget.nodes)
        batches = [left for batch in everything if (left := _left_over(batch, table, done)) is not None]
        asked = sum(len(batch.rows) * len(batch.goals) for batch in batches)
        total = max(len(done), sum(len(batch.rows) * len(batch.goals) for batch in everything))
        finished = total - asked
        if progress is not None:
            progress(finished, total)
        deadline = Deadline.after(budget.seconds)
        common = Shared(value=_Run(query=query, method=method, solver=solver, budget=budget, replay=Replay.of(query.network)))
        work = (joblib.delayed(_solve_batch)(common, batch, table.raw[batch.rows], deadline) for batch in batches)
        for records in as_done(work, jobs):
            kept.add(run, records)
            finished += len(records)
            if progress is not None:
                progress(finished, total)
        found = kept.frame(run)
        planned = {
            (b.sensitive, goal, b.delta, row, to, b.loser)
            for b in everything
            for goal in b.goals
            for row, to in zip(b.rows.tolist(), b.to.tolist(), strict=True)
        }
        if len(found) != len(planned):
            raise DataError(
                f"{kept.path}: holds {len(found)} verdicts of this run, expected {len(planned)}: another run of the same question "
                "replaced some meanwhile; give each run its own --store, and continue this one with --resume"
            )
        return found


def plan(query: PersistentBias | Robustness, table: Table) -> Iterator[Batch]:
    """All questions of a query, in batches. Raises DataError when no row is eligible."""
    kinds, nothing = _kinds(query), True
    for kind in kinds:
        rows, to = _eligible(query, table, kind)
        nothing = nothing and not len(rows)
        for winner in range(classes(query.network)):
            mine = table.labels[rows] == winner
            for loser in (c for c in range(classes(query.network)) if c != winner):
                for delta in query.delta:
                    for start in range(0, int(mine.sum()), BATCH):
                        part = slice(start, start + BATCH)
                        yield Batch(
                            kind=kind, sensitive=query.exchange.name if query.exchange else "", delta=float(delta),
                            winner=winner, loser=loser, rows=rows[mine][part], to=to[mine][part],
                        )  # fmt: skip
    if nothing:
        raise DataError(
            f"none of the {len(table.raw)} rows is eligible: the network predicts no label right"
            + (" for a row and its counterfactual alike" if kinds == ["bias"] else "")
            + "; check that model, schema and label column belong together"
        )


def anyone(query: PersistentBias | Robustness, table: Table) -> bool:
    """Return whether there is any row to ask about."""
    return any(len(_eligible(query, table, kind)[0]) for kind in _kinds(query))


def _kinds(query: PersistentBias | Robustness) -> list[str]:
    if isinstance(query, PersistentBias):
        return ["bias"]
    return ["robust", "robust-flipped"] if query.sensitive else ["robust"]


def _eligible(query: PersistentBias | Robustness, table: Table, kind: str) -> tuple[Integers, Array]:
    """Rows to ask about and the number of each one's counterfactual in the exchange (its own where none is involved)."""
    right, exchange = table.predicted == table.labels, query.exchange
    if exchange is None or kind == "robust":
        rows = np.flatnonzero(right)
        return rows, exchange.of_rows(table.raw[rows]) if exchange else np.zeros(len(rows))
    found_rows, found_to = [], []
    for value in exchange.numbers:
        rows = np.flatnonzero(exchange.apart(table.raw, value))
        flipped = exchange.put(table.raw[rows], np.full(len(rows), value))
        still_right = table.flipped(query.network, exchange, value)[rows] == table.labels[rows]
        still_right &= query.schema.inside(flipped)  # a counterfactual that the schema's constraints forbid is no person
        rows = rows[still_right & right[rows]] if kind == "bias" else rows[still_right]
        found_rows.append(rows)
        found_to.append(np.full(len(rows), float(value)))
    return np.concatenate(found_rows), np.concatenate(found_to)


def run_key(query: PersistentBias | Robustness, table: Table, method: str, solver: str | None) -> str:
    """Hash of everything that determines the answers: a store never mixes verdicts of different questions."""
    digest = hashlib.sha256(json.dumps(describe(query, table, method, solver), sort_keys=True).encode())
    return digest.hexdigest()[:16]


def describe(query: PersistentBias | Robustness, table: Table, method: str, solver: str | None) -> dict[str, object]:
    """What a run is about, for the store and for certificates."""
    return {
        "query": "persistent-bias" if isinstance(query, PersistentBias) else "robustness",
        "sensitive": query.sensitive if query.sensitive is None or isinstance(query.sensitive, str) else list(query.sensitive),
        "delta": [float(d) for d in query.delta],
        "arithmetic": query.arithmetic,
        "method": method,
        "solver": solver,
        "network_sha256": query.network.source_sha256,
        "output": query.network.output,  # one file may hold several networks
        "schema_sha256": query.schema.sha256,
        "data_sha256": hashlib.sha256(table.raw.tobytes() + table.labels.tobytes()).hexdigest(),
        "rows": len(table.raw),
        "proofs": Certificate.FORMAT,  # those of another version are not continued
    }


def _left_over(batch: Batch, table: Table, done: set[tuple[object, ...]]) -> Batch | None:
    """The part of a batch that a resumed run still has to ask."""
    if not done:
        return batch
    keys = ((batch.sensitive, goal, batch.delta) for goal in batch.goals)
    missing = np.zeros(len(batch.rows), dtype=bool)
    for prefix in keys:
        missing |= [
            (*prefix, int(row), float(to), batch.loser) not in done for row, to in zip(batch.rows, batch.to, strict=True)
        ]
    if not missing.any():
        return None
    return Batch(
        kind=batch.kind, sensitive=batch.sensitive, delta=batch.delta, winner=batch.winner, loser=batch.loser,
        rows=batch.rows[missing], to=batch.to[missing],
    )  # fmt: skip


def _solve_batch(common: Shared[_Run], batch: Batch, raw: Array, deadline: Deadline) -> list[VerdictRecord]:
    """One batch with its raw rows (B, V), in whatever process joblib runs it; BLAS keeps to the budget's threads."""
    run = common.value
    query, budget = run.query, run.budget
    limited = replace(budget, seconds=max(deadline.left(), 1e-3))
    own = query.exchange.of_rows(raw) if query.exchange else np.zeros(len(raw))
    if run.replay is not None:
        run.replay.open()
    classes = (batch.winner, batch.loser)
    with threadpool_limits(limits=budget.threads):
        if isinstance(query, PersistentBias):
            names = query.exchange.names
            problem = bias_problem(query.network, query.schema, raw, names, batch.to, batch.delta, classes)
        else:
            if batch.kind == "robust-flipped" and query.exchange is not None:
                raw = query.exchange.put(raw, batch.to)
            problem = robustness_problem(query.network, query.schema, raw, batch.delta, query.sensitive, classes)
        problem = replace(problem, float32=query.arithmetic == "float32")
        answers = solve(problem, method=run.method, solver=run.solver, budget=limited)
    return list(_records(batch, own, answers))


def _records(batch: Batch, own: Array, answers: Sequence[Sequence[GoalAnswer]]) -> Iterator[VerdictRecord]:
    """own: (B,) the number of each row in the exchange."""
    for row, to, group, of_row in zip(batch.rows, batch.to, own, answers, strict=True):
        for goal, answer in zip(batch.goals, of_row, strict=True):
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
