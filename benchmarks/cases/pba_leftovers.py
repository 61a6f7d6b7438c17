"""Queries that the root bounds leave open: batched branch-and-bound against exact MILP (big-M, tight bounds) on the same queries.

The engine's time of a query is that of deciding it alone, not its share of a batch. A MILP counts as having answered when its
bounds decide the sign; one that runs into the limit counts with the limit's time, which flatters it.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from benchmarks.problems import SIZES, Adult, single
from benchmarks.table import show
from encoders.big_m import big_m
from encoders.bounds.difference import goal_bounds
from encoders.bounds.twin import Twin
from encoders.problem import TwinProblem
from encoders.twin_box import Method, TwinBox
from solvers import registry
from solvers.errors import BackendError
from solvers.outcome import Budget
from verifair.verify.branch_and_bound import decide

ROWS, QUERIES, LIMIT = 1500, 12, 30.0


def run(folder: Path) -> pd.DataFrame:
    lines = []
    with threadpool_limits(limits=1):
        for hidden in SIZES:
            adult = Adult.of(hidden)
            for delta in (1, 3):
                lines += _compare(hidden, delta, _open_at_root(adult.sample(ROWS, delta)))
    return show("PBA leftovers: seconds per query left open by the root bounds", pd.DataFrame(lines), folder)


def _open_at_root(problems: list[TwinProblem]) -> list[TwinProblem]:
    """Single-goal problems that neither the root's bounds nor its centre decide."""
    out = []
    for problem in problems:
        twin = Twin.of(problem)
        question = np.arange(len(problem.batch))
        low, high = twin.local.box(problem.batch.lower[:, twin.variables], problem.batch.upper[:, twin.variables])
        lower = goal_bounds(twin, question, low, high, np.ones((len(question), len(problem.rows)))).lower
        middle = problem.batch.centre(problem.domain)[:, twin.variables]
        values = twin.evaluate(question, twin.local.encode(middle)) @ problem.rows.T
        for q, g in np.argwhere(~problem.rows_met(lower) & problem.rows_met(values)):
            out.append(single(problem, int(q), int(g)))
    return out[:: max(1, len(out) // QUERIES)][:QUERIES]


def _compare(hidden: tuple[int, ...], delta: float, problems: list[TwinProblem]) -> list[dict[str, object]]:
    engine, others = [], {name: [] for name in ("gurobi", "highs", "scip")}  # type: dict[str, list[float]]
    answered = dict.fromkeys(others, 0)
    for problem in problems:
        started = time.perf_counter()
        decision = decide(problem)
        engine.append(time.perf_counter() - started)
        for name in others:
            started = time.perf_counter()
            try:
                encoding = big_m(TwinBox.of(Twin.of(problem), 0, method=Method.LINEAR))
                outcome = registry.solve(encoding.minimise(problem.rows[0]), backend=name, budget=Budget(seconds=LIMIT))
            except BackendError:
                continue
            others[name].append(time.perf_counter() - started)
            low, high = outcome.dual_bound, outcome.primal_bound
            says = 1 if low is not None and low > 1e-6 else 2 if high is not None and high <= -1e-6 else 0
            answered[name] += says != 0
            assert says in (0, int(decision.status[0, 0])), "the MILP contradicts the engine"
    base = {"network": "-".join(map(str, hidden)), "delta": delta, "queries": len(problems)}
    lines: list[dict[str, object]] = []
    if problems:
        own = {"method": "engine", "median s": statistics.median(engine), "ratio (median)": 1.0, "decided": len(problems)}
        lines.append(base | own)
    for name, seconds in others.items():
        if seconds:
            ratio = statistics.median(s / e for s, e in zip(seconds, engine, strict=False))
            lines.append(
                base | {"method": f"milp {name}", "median s": statistics.median(seconds), "ratio (median)": ratio,
                        "decided": answered[name]}
            )  # fmt: skip
    return lines
