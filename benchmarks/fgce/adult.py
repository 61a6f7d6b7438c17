"""Adult, all 48,842 rows: building the graph, and the k-center of each group for k = 1 .. 15, proved.

`graph`: at the paper's eps and at the default one, each in a fresh process with its peak memory (imports and data included).
`centers`: factuals are all false negatives of the group among all rows, candidates all rows decided positively; for each k the
coverages that k counterfactuals can reach, and for the others the proof that they cannot; seconds are of CPU.
`all`: the same at partial coverage for all men decided negatively, with above 50K as the favourable decision (22,510 x 6,142).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

from benchmarks.shared import data_folder, peak, show
from solvers.outcome import Budget
from verifair.errors import QueryError
from verifair.papers.fgce.data import SEED, classifier, load
from verifair.systems.fgce.graph.feasibility_graph import FeasibilityGraph
from verifair.systems.fgce.graph.reachability import Reachability
from verifair.systems.fgce.instance import Instance
from verifair.systems.fgce.optimum.center import centers, fewest

KS = range(1, 16)
COVERAGES = (1.0, 0.9, 0.75, 0.5)
PARTIAL = (0.9, 0.5)
BUDGET = Budget(seconds=60.0)


def run(folder: Path) -> list[pd.DataFrame]:
    data = data_folder()
    with ProcessPoolExecutor(max_workers=1, max_tasks_per_child=1, mp_context=get_context("spawn")) as fresh:
        built = list(fresh.map(_graph_line, (0.3, None), (data, data)))
    return [
        show("FGCE Adult graph: all 48,842 rows", pd.DataFrame(built), folder),
        show("FGCE Adult centers: k = 1 to 15, 60 seconds each", pd.DataFrame(_centers(data)), folder),
        show("FGCE Adult all negatives: k = 1 to 15, 60 seconds each", pd.DataFrame(_all(data)), folder),
    ]


def _graph_line(eps: float | None, data: Path) -> dict[str, Any]:
    adult = load("Adult", data)
    raw = adult.raw
    started = time.perf_counter()
    graph = FeasibilityGraph.build(adult.space, raw, eps)
    seconds = time.perf_counter() - started
    graph_peak = peak() / 1024
    reach = Reachability.of(graph)
    return {
        "eps": graph.eps, "chosen": "the paper's" if eps else "default", "nodes": len(graph), "edges": graph.edges,
        "alone": int(graph.alone.sum()), "graph s": seconds, "graph peak GiB": graph_peak, "strong": reach.strong_count,
        "weak": reach.weak_count, "reachability s": time.perf_counter() - started - seconds,
        "peak GiB": peak() / 1024,
    }


def _centers(data: Path) -> Iterator[dict[str, Any]]:
    adult = load("Adult", data)
    positive = classifier(adult).predict(adult.frame) == 1
    for eps in (0.3, None):
        graph = FeasibilityGraph.build(adult.space, adult.raw, eps)
        reach = Reachability.of(graph)
        for group in (0, 1):
            false_negatives = np.flatnonzero(~positive & (adult.target == 1) & (adult.group == group))
            instance = Instance.of(graph, reach, false_negatives, np.flatnonzero(positive), group=adult.groups[group])
            k0, _ = fewest(instance)
            header = {"eps": graph.eps, "group": adult.groups[group], "X": instance.size, "X'": len(instance.columns),
                      "components": len(instance.blocks), "k0": k0}
            for coverage in COVERAGES:
                line = {**header, "coverage": coverage, **_swept(instance, coverage)}
                print(line, flush=True)
                yield line


def _all(data: Path) -> Iterator[dict[str, Any]]:
    """Men decided negatively where above 50K is favourable, by scikit-learn's default model, at the paper's eps."""
    adult = load("Adult", data)
    train, _ = adult.split
    points = adult.space.points(adult.raw)
    favoured = LogisticRegression(random_state=SEED).fit(points[train], 1 - adult.target[train]).predict(points) == 1
    graph = FeasibilityGraph.build(adult.space, adult.raw, adult.eps)
    negatives = np.flatnonzero(~favoured & (adult.group == 1))
    instance = Instance.of(graph, Reachability.of(graph), negatives, np.flatnonzero(favoured), group=adult.groups[1])
    for coverage in PARTIAL:
        line = {"X": instance.size, "X'": len(instance.columns), "coverage": coverage, **_swept(instance, coverage)}
        print(line, flush=True)
        yield line


def _swept(instance: Instance, coverage: float) -> dict[str, Any]:
    """Return a line for all k at one coverage: numbers with an optimum and provably without one, the largest gap, the slowest."""
    seconds, results, impossible = [], {}, 0
    for k in KS:
        started = time.process_time()
        try:
            results[k] = centers(instance, k, coverage, budget=BUDGET)
        except QueryError:
            impossible += 1
        seconds.append(time.process_time() - started)
    costs = {k: r.cost for k, r in results.items()}
    return {
        "k that reach it": len(results), "k that cannot": impossible, "proved": sum(r.optimal for r in results.values()),
        "largest gap %": max((100 * (r.cost - r.lower) / r.cost for r in results.values()), default=0.0),
        "slowest s": max(seconds), "median s": float(np.median(seconds)),
        "d at the least k": min(costs.items())[1] if costs else np.nan, "d at k = 15": costs.get(15, np.nan),
    }
