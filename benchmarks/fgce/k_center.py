"""The exact k-center beside the paper's MIP on every backend: same instance, same run, same optimum.

Instances grow: false negatives of Adult men (all rows, the paper's eps) against candidates, both drawn at random, full coverage
of those who have a counterfactual, then three quarters of them, with k one more than the fewest that can. The MIP is the paper's
with costs as ranks, so that its answer is one of the costs, and CP-SAT takes it too. A backend that needs more than the limit drops
out of the larger sizes.

    python -m benchmarks.run k_center --limit 600
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.shared import data_folder, show
from solvers.outcome import BackendError, Budget
from solvers.registry import available
from verifair.errors import QueryError
from verifair.papers.fgce.data import classifier, load
from verifair.systems.fgce.graph.feasibility_graph import FeasibilityGraph
from verifair.systems.fgce.graph.reachability import Reachability
from verifair.systems.fgce.instance import Instance
from verifair.systems.fgce.optimum.center import Centers, by_components, by_solver, centers, fewest, needed
from verifair.systems.fgce.optimum.cover import largest_coverage

BACKENDS = ("highs", "scip", "ortools-cpsat", "gurobi", "cbc")
SIZES = ((20, 40), (40, 80), (80, 160), (120, 240), (160, 320), (240, 480), (480, 960), (720, 1440), (1000, 2000), (1273, 4000))
COVERAGES = (1.0, 0.75)
LIMIT = 600.0
REPEATS = 3


def run(folder: Path, *, limit: float = LIMIT, coverage: Sequence[float] = COVERAGES) -> pd.DataFrame:
    data = data_folder()
    adult = load("Adult", data)
    graph = FeasibilityGraph.build(adult.space, adult.raw, adult.eps)
    reach = Reachability.of(graph)
    positive = classifier(adult).predict(adult.frame) == 1
    false_negatives = np.flatnonzero(~positive & (adult.target == 1) & (adult.group == 1))
    full = Instance.of(graph, reach, false_negatives, np.flatnonzero(positive), group="men")
    backends = [name for name in BACKENDS if name in {backend.name for backend in available()}]
    lines: list[dict[str, Any]] = []
    for share in coverage:
        solvers = backends
        for factuals, candidates in SIZES:
            if not solvers:
                break
            rng = np.random.default_rng(factuals)
            rows, columns = rng.choice(full.factuals, factuals, replace=False), rng.choice(full.columns, candidates, replace=False)
            instance = Instance.of(graph, reach, rows, columns, group="men")
            runs = list(_race(instance, share, solvers, limit))
            print(pd.DataFrame(runs).to_string(), flush=True)
            lines += runs
            solvers = [name for name in solvers if any(line["method"] == name and line["optimal"] for line in runs)]
    return show("k-center race: seconds of the exact method beside the paper's MIP", pd.DataFrame(lines), folder)


def _race(instance: Instance, coverage: float, solvers: list[str], limit: float) -> Iterator[dict[str, Any]]:
    k = 1 + (fewest(instance)[0] if coverage == 1 else _fewest_for(instance, coverage))
    exact, seconds = _timed(lambda: centers(instance, k, coverage, budget=Budget(seconds=limit)), REPEATS)
    header = {"coverage": coverage, "X": instance.size, "X'": len(instance.columns), "components": len(instance.blocks), "k": k}
    yield {**header, "method": "exact", "d": exact.cost, "optimal": exact.optimal, "s": seconds, "same": True, "times exact": 1.0}
    runs: dict[str, Callable[[], Centers]] = {
        name: partial(by_solver, instance, k, coverage, backend=name, budget=Budget(seconds=limit)) for name in solvers
    }
    if coverage == 1:
        runs = {"components": lambda: by_components(instance, k, budget=Budget(seconds=limit)), **runs}
    for name, method in runs.items():
        try:
            solution, elapsed = _timed(method, 1)
        except (QueryError, BackendError) as error:
            yield {**header, "method": name, "optimal": False, "note": str(error)[:60]}
            continue
        yield {
            **header, "method": name, "d": solution.cost, "optimal": solution.optimal, "s": elapsed,
            "same": abs(solution.cost - exact.cost) <= 1e-9, "times exact": elapsed / seconds,
        }


def _fewest_for(instance: Instance, coverage: float) -> int:
    """Return the fewest counterfactuals that reach the coverage at any cost."""
    return next(k for k in itertools.count(1) if largest_coverage(instance, k, np.inf).covered >= needed(instance, coverage))


def _timed(work: Callable[[], Centers], repeats: int) -> tuple[Centers, float]:
    """Return the answer, and the median of its seconds."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        answer = work()
        times.append(time.perf_counter() - started)
    return answer, sorted(times)[repeats // 2]
