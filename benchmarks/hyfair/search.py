"""HyFair's search: network evaluations a minute, and the time until each kind of search finds its largest k on AC-1 ... AC-6.

Protected are age by decades 10 ... 90, race and sex (K = 90); one evaluation is one pair (x, z). Every run has the same wall clock,
one thread, seeds drawn from the data; the searches take turns within each network and seed. A run ends early at k = 20, the
largest there can be. `paper` is HyFair's Max.K (Table II, 4 hours a run).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from benchmarks.shared import data_folder, show
from encoders.arrays import Array
from encoders.network import Network
from encoders.onnx.reader import read_onnx
from verifair.datasets import read_table
from verifair.engine.queries import KDiscrimination
from verifair.papers.hyfair.data import fairify_schema
from verifair.schema.schema import Schema
from verifair.systems.hyfair.search.annealing import METHODS, search_clusters
from verifair.systems.hyfair.search.clusters import ClusterSearch

PAPER = {"AC-1": 20, "AC-2": 19, "AC-3": 20, "AC-4": 20, "AC-5": 18, "AC-6": 20}
SECONDS, SEEDS = 2.0, 10
DECADES = {"age": list(range(10, 100, 10))}


def run(folder: Path) -> pd.DataFrame:
    data = data_folder()
    schema = fairify_schema(data, "adult")
    rows = schema.raw(read_table(data / "encoded" / "adult.csv.gz"), outside="keep")
    networks = {name: read_onnx(data / "nets" / f"{name}.onnx") for name in PAPER}
    with threadpool_limits(limits=1):
        _rates(networks["AC-3"], schema, rows, folder)
        searches = {
            (name, method, seed): search_clusters(
                _query(networks[name], schema, DECADES), method=method, data=rows, seconds=SECONDS, seed=seed
            )
            for name in networks
            for seed in range(SEEDS)
            for method in METHODS
        }
    _plot(searches, folder)
    return show(
        f"Search: {SEEDS} seeds, {SECONDS:g} s each, one thread, K = 90",
        pd.DataFrame([_line(searches, name, method) for name in networks for method in METHODS]), folder,
    )


def _query(network: Network, schema: Schema, values: dict[str, list[int]]) -> KDiscrimination:
    return KDiscrimination(model=network, schema=schema, protected=["age", "race", "sex"], values=values)


def _rates(network: Network, schema: Schema, rows: Array, folder: Path) -> None:
    """Network evaluations a minute of whole searches (moves, counting and statistics included)."""
    lines = []
    for values in (DECADES, {}):
        for method in METHODS:
            stat = search_clusters(_query(network, schema, values), method=method, data=rows, seconds=SECONDS, enough=21).statistics
            rate = 60e-6 * stat.evaluations / stat.seconds
            lines.append({"K": stat.evaluations // stat.rows, "search": method, "million evaluations a minute": rate})
    show("Search rate: AC-3, one thread", pd.DataFrame(lines), folder)


def _line(searches: dict[tuple[str, str, int], ClusterSearch], name: str, method: str) -> dict[str, object]:
    runs = [searches[name, method, seed] for seed in range(SEEDS)]
    k = np.array([run.k for run in runs])
    seconds = np.array([run.statistics.best_seconds for run in runs])
    return {
        "network": name, "search": method, "paper": PAPER[name], "Max.K": f"{k.mean():.1f} ± {k.std():.1f}", "best": int(k.max()),
        "runs at best": int((k == k.max()).sum()),
        "T.maxK, median s": float(np.median(seconds)), "T.maxK, slowest s": float(seconds.max()),
        "T.1st, median s": float(np.median([run.statistics.first_seconds or np.inf for run in runs])),
        "Avg.K": float(np.mean([run.statistics.mean_k for run in runs])),
        "Succ.rate": float(np.mean([100 * run.statistics.success_rate for run in runs])),
    }


def _plot(searches: dict[tuple[str, str, int], ClusterSearch], folder: Path) -> None:
    """Draw the best k so far against seconds: the mean over seeds, and the range from the worst to the best of them."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    grid = np.geomspace(1e-2, SECONDS, 200)
    figure, axes = plt.subplots(2, 3, figsize=(12, 6.5), sharex=True, sharey=True, layout="constrained")
    for axis, name in zip(axes.flat, PAPER, strict=True):
        for method, colour in zip(METHODS, ("#999999", "#2166ac", "#b2182b"), strict=True):
            curves = np.array([_curve(searches[name, method, seed], grid) for seed in range(SEEDS)])
            axis.plot(grid, curves.mean(axis=0), color=colour, label=method)
            axis.fill_between(grid, curves.min(axis=0), curves.max(axis=0), color=colour, alpha=0.2, linewidth=0)
        axis.axhline(PAPER[name], color="black", linewidth=0.8, linestyle=":", label="paper's Max.K, 4 h")
        axis.set_title(name)
        axis.set_xscale("log")
        axis.set_ylim(0, 21)
        axis.grid(alpha=0.3)
    for axis in axes[1]:
        axis.set_xlabel("seconds")
    for axis in axes[:, 0]:
        axis.set_ylabel("best k so far")
    axes[0, 0].legend(loc="lower right", fontsize=8)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "search.png", dpi=130)
    plt.close(figure)


def _curve(run: ClusterSearch, grid: Array) -> Array:
    seconds = np.array([point.seconds for point in run.trace])
    k = np.array([0, *(point.k for point in run.trace)])
    return np.asarray(k[np.searchsorted(seconds, grid, side="right")], dtype=np.float64)
