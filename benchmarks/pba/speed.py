"""The engine (complete) against the paper's method (one triangle LP a query, incomplete) and a naive full LP.

Every method answers the same sampled queries in the same run, interleaved, one thread each, building included; figures are
medians over rounds of milliseconds for each query. A query is one row in one direction.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from threadpoolctl import threadpool_limits

from benchmarks.pba.adult import SIZES, Adult
from benchmarks.shared import show
from encoders.bounds.twin import Twin
from encoders.problem import TwinProblem
from encoders.programs.triangle import naive_triangle, triangle
from encoders.programs.twin_box import Method, TwinBox
from solvers import registry
from solvers.highs import solve as highs
from solvers.outcome import BackendError, Budget, Outcome
from solvers.program import Program
from verifair.engine.search.branch_and_bound import decide

ROUNDS, ENGINE_ROWS, LP_ROWS, NAIVE_ROWS = 5, 1024, 20, 2


def run(folder: Path) -> pd.DataFrame:
    lines = []
    with threadpool_limits(limits=1):
        for hidden in SIZES:
            adult = Adult.of(hidden)
            for delta in (1, 2, 3):
                lines += _compare(adult, hidden, delta)
    return show("PBA speed: ms per query, median of 5 rounds, one thread", pd.DataFrame(lines), folder)


def _compare(adult: Adult, hidden: tuple[int, ...], delta: float) -> list[dict[str, object]]:
    times: dict[str, list[float]] = defaultdict(list)
    proved: dict[str, float] = {}
    for_engine = adult.sample(ENGINE_ROWS, delta)
    for_lp, for_naive = adult.sample(LP_ROWS, delta), adult.sample(NAIVE_ROWS, delta)
    for _ in range(ROUNDS):
        milliseconds, share = _engine(for_engine)
        times["engine"].append(milliseconds)
        proved["engine"] = share
        for name, solver in _backends().items():
            for kind, problems in (("lp", for_lp), ("lp, directions share bounds and rows:", for_lp), ("naive lp", for_naive)):
                if kind != "lp" and name != "highs":
                    continue
                try:
                    milliseconds, share = _linear(problems, solver, naive=kind == "naive lp", shared="share" in kind)
                except BackendError:
                    continue  # not installed, or the licence is too small for this size
                times[f"{kind} {name}"].append(milliseconds)
                proved[f"{kind} {name}"] = share
    medians = {name: statistics.median(values) for name, values in times.items()}
    return [
        {
            "network": "-".join(map(str, hidden)), "delta": delta, "method": name, "ms": value,
            "times the engine": value / medians["engine"], "proved": proved[name],
        }
        for name, value in medians.items()
    ]


def _engine(problems: list[TwinProblem]) -> tuple[float, float]:
    started = time.perf_counter()
    decisions = [decide(problem) for problem in problems]
    seconds = time.perf_counter() - started
    queries = sum(decision.status.size for decision in decisions)
    assert all((decision.status != 0).all() for decision in decisions), "the engine decides every query"
    return 1000 * seconds / queries, sum(int((d.status == 1).sum()) for d in decisions) / queries


def _backends() -> dict[str, Callable[[Program], Outcome]]:
    budget = Budget(seconds=60, threads=1)
    names = [b.name for b in registry.backends() if b.is_available() and b.name in ("gurobi", "scip", "ortools-glop")]
    solvers: dict[str, Callable[[Program], Outcome]] = {
        "highs": lambda program: highs(program, budget=budget, presolve=False),
        "highs (presolve)": lambda program: highs(program, budget=budget, presolve=True),
    }
    return solvers | {name: (lambda program, name=name: registry.solve(program, backend=name, budget=budget)) for name in names}


def _linear(
    problems: list[TwinProblem], solver: Callable[[Program], Outcome], *, naive: bool, shared: bool
) -> tuple[float, float]:
    """Time bounds, building and solving of one LP for each query, as the paper does; or, `shared`, for both directions of a row."""
    queries = proved = 0
    started = time.perf_counter()
    for problem in problems:
        twin = Twin.of(problem)
        for q in range(len(problem.batch)):
            for k, row in enumerate(problem.rows):
                if not (shared and k):
                    box = TwinBox.of(twin, q, method=Method.INTERVAL)
                    encoding = naive_triangle(box) if naive else triangle(box)
                outcome = solver(encoding.minimise(row))
                queries += 1
                proved += outcome.dual_bound is not None and outcome.dual_bound > 1e-6
    return 1000 * (time.perf_counter() - started) / queries, proved / queries
