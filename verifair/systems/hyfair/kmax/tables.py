"""kmax on the screen."""

from __future__ import annotations

import pandas as pd
from rich.console import Console
from rich.table import Table as Grid

from verifair.systems.hyfair.kmax.result import KmaxResult
from verifair.systems.hyfair.search import clusters
from verifair.systems.results.words import listed, percent

SEARCHES = {"sa": "simulated annealing", "rw": "random walk", "sa-knn": "simulated annealing among near rows"}
"""The screen's words for --search."""


def show(result: KmaxResult, console: Console) -> None:
    """Print the person, the buckets that are hit, the bound, and the statistics of the search."""
    best, run, s = result.best, result.search, result.search.statistics
    query = result.space.query
    buckets = f"outcome buckets of the {query.schema.quantity}" if query.probable else "outcome buckets, the two decisions"
    console.print(
        f"k = {best.k}: this person falls into {best.k} of {best.buckets} {buckets}, if only {listed(result.query.protected)} "
        f"change{'s' * (len(query.protected) == 1)} ({len(best.combinations)} combinations, counted exactly)."
    )
    console.print(_grid(pd.DataFrame(result.witness.items(), columns=["feature", "value"])))
    console.print(_grid(clusters.by_bucket(result.space, best)))
    console.print(_bound(result))
    if result.proof_line:
        console.print(result.proof_line, soft_wrap=True)
    if best.runtime_k is not None:
        agrees = "too" if best.runtime_k == best.k else "(rounding moves logits across a bucket's edge)"
        console.print(f"The float32 runtime counts {best.runtime_k} {agrees}.")
    skipped = f"; {s.skipped:,} rows of the table lie outside and were left out" if s.skipped else ""
    instances = f"{percent(s.success_rate)} of these rows had k >= 2 (mean k {s.mean_k:.1f})" if s.instances else "none had k >= 2"
    console.print(
        f"Search ({SEARCHES[run.method]}, seed {run.seed}): {s.rows:,} rows, {s.evaluations:,} network evaluations in "
        f"{s.seconds:.1f} s; {instances}; the best was found after {s.best_seconds:.2f} s{skipped}."
    )


def _bound(result: KmaxResult) -> str:
    if result.bound is None:
        return f"No upper bound was certified: k may be as large as {result.space.cap}."
    nobody = "no person of the box" if result.space.query.box else "no possible person"
    if not result.gap:
        return f"Certified: {nobody} falls into more than {result.upper}, so this is the largest k."
    reason = result.bound.reason.value if result.bound.reason else "open"
    return (
        f"Certified: {nobody} falls into more than {result.upper}: the largest k is {result.best.k} to {result.upper}"
        f" ({reason}); a longer --timeout or a smaller --box narrows this."
    )


def _grid(frame: pd.DataFrame) -> Grid:
    grid = Grid(*map(str, frame.columns))
    for line in frame.itertuples(index=False):
        grid.add_row(*(f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in line))
    return grid
