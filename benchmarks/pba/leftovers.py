"""Queries that the root bounds leave open: batched branch-and-bound against exact MILP (big-M, tight bounds) on the same queries.

The engine is timed in two ways: the time for each query in one batch of all open queries, as it normally works, and each query
alone, where a few milliseconds of fixed cost dominate. Ratios are to the batch. A MILP counts as answered if its bounds decide the
sign; one that runs into the limit counts with the limit's time, which is in its favour.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from benchmarks.pba.adult import SIZES, Adult, single
from benchmarks.shared import show
from encoders.bounds.difference import goal_bounds
from encoders.bounds.twin import Twin
from encoders.problem import TwinProblem
from encoders.programs.big_m import big_m
from encoders.programs.twin_box import Method, TwinBox
from solvers import registry
from solvers.outcome import BackendError, Budget
from verifair.engine.search.branch_and_bound import decide

ROWS, QUERIES, LIMIT = 1500, 12, 30.0


def run(folder: Path) -> pd.DataFrame:
    lines = []
    with threadpool_limits(limits=1):
        for hidden in SIZES:
            adult = Adult.of(hidden)
            for delta in (1, 3):
                batches = _open_at_root(adult.sample(ROWS, delta))
                singles = [single(problem, q, 0) for problem in batches for q in range(len(problem.batch))]
                lines += _compare(hidden, delta, batches, singles[:: max(1, len(singles) // QUERIES)][:QUERIES])
    return show("PBA leftovers: seconds per query left open by the root bounds", pd.DataFrame(lines), folder)


def _open_at_root(problems: list[TwinProblem]) -> list[TwinProblem]:
    """Return the queries that neither the root's bounds nor its centre decide, one problem for each goal."""
    result = []
    for problem in problems:
        twin = Twin.of(problem)
        question = np.arange(len(problem.batch))
        low, high = twin.local.box(problem.batch.lower[:, twin.variables], problem.batch.upper[:, twin.variables])
        lower = goal_bounds(twin, question, low, high, np.ones((len(question), len(problem.rows)))).lower
        centre = problem.domain.middle(problem.batch.lower, problem.batch.upper)[:, twin.variables]
        values = twin.evaluate(question, twin.local.encode(centre)) @ problem.rows.T
        is_open = ~problem.rows_met(lower) & problem.rows_met(values)
        for g, goal in enumerate(problem.goals):
            if is_open[:, g].any():
                result.append(replace(problem, batch=problem.batch.take(np.flatnonzero(is_open[:, g])), goals=(goal,)))
    return result


def _compare(
    hidden: tuple[int, ...], delta: float, batches: list[TwinProblem], problems: list[TwinProblem]
) -> list[dict[str, object]]:
    total = sum(len(problem.batch) for problem in batches)
    started = time.perf_counter()
    for batch in batches:
        decide(batch)
    share = (time.perf_counter() - started) / max(total, 1)
    engine: list[float] = []
    others: dict[str, list[float]] = {name: [] for name in ("gurobi", "highs", "scip")}
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
            sign = 1 if low is not None and low > 1e-6 else 2 if high is not None and high <= -1e-6 else 0
            answered[name] += sign != 0
            assert sign in (0, int(decision.status[0, 0])), "the MILP contradicts the engine"
    base = {"network": "-".join(map(str, hidden)), "delta": delta}
    lines: list[dict[str, object]] = [
        base | {"method": "engine (batch)", "queries": total, "decided": total, "median s": share, "times the batch": 1.0}
    ]
    for name, seconds in {"engine (one alone)": engine, **others}.items():
        if seconds:
            median = statistics.median(seconds)
            lines.append(
                base | {"method": name if name.startswith("engine") else f"milp {name}", "queries": len(seconds),
                        "decided": answered.get(name, len(seconds)), "median s": median, "times the batch": median / share}
            )
    return lines
