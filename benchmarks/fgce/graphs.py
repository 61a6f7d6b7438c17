"""FGCE's eps: the smallest with which every row that can move has an edge, beside the paper's.

`alone` are rows without an edge at the paper's eps, `stuck` those that no allowed move leaves or reaches at any eps.
Both graphs are built in a fresh process, whose peak memory is reported. `verifair reproduce fgce` makes tables I, VII, figures 1,
5.

    python -m benchmarks.run fgce_graphs --names Student German        some of the datasets
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.shared import data_folder, peak, show
from verifair.papers.fgce.data import LOADERS, load
from verifair.systems.fgce.graph.feasibility_graph import FeasibilityGraph, nearest_moves
from verifair.systems.fgce.space import Coordinates, Moves


def run(folder: Path, *, names: Sequence[str] = tuple(LOADERS)) -> pd.DataFrame:
    chosen = [name for name in LOADERS if name in names]
    with ProcessPoolExecutor(max_workers=1, max_tasks_per_child=1, mp_context=get_context("spawn")) as fresh:
        lines = list(fresh.map(_defaults, chosen, [data_folder()] * len(chosen)))
    return show("FGCE eps: smallest beside the paper's", pd.DataFrame(lines), folder)


def _defaults(name: str, folder: Path) -> dict[str, Any]:
    """Return the line of one dataset, in a separate process. Peak memory only rises, so the smaller graph comes first."""
    data = load(name, folder)
    raw = data.raw
    nearest = nearest_moves(Coordinates(space=data.space, raw=raw), Moves.of(data.space))
    line: dict[str, Any] = {
        "dataset": name, "rows": len(raw), "paper's eps": data.eps, "alone": int((nearest > data.eps).sum()),
        "stuck": int(np.isinf(nearest).sum()), "smallest eps": float(nearest[np.isfinite(nearest)].max()),
    }
    for kind, eps in (("paper's", data.eps), ("smallest", None)):
        started = time.perf_counter()
        graph = FeasibilityGraph.build(data.space, raw, eps)
        line |= {f"edges, {kind}": graph.edges, f"s, {kind}": time.perf_counter() - started}
        line |= {f"peak MiB, {kind}": peak()}
        del graph
    return line
