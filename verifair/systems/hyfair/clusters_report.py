"""How a search for discrimination clusters went, and the cluster it ended with, on paper and as JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from verifair.engine.buckets.verdict import KmaxVerdict
from verifair.systems.figures import figure
from verifair.systems.hyfair.search import clusters
from verifair.systems.hyfair.search.clusters import Cluster, ClusterSearch
from verifair.systems.hyfair.search.space import Space


def best_of(space: Space, found: ClusterSearch, verdict: KmaxVerdict | None) -> Cluster:
    """The search's cluster, or the one that the bound met on its way, where that is larger."""
    if verdict is None or verdict.x is None or verdict.lower <= found.k:
        return found.cluster
    return clusters.recount(space, verdict.x)


def answer_of(
    space: Space, found: ClusterSearch, best: Cluster, verdict: KmaxVerdict | None, seconds: float
) -> dict[str, Any]:
    """JSON-ready, as the command line writes it."""
    query = space.query
    return {
        "query": {
            "kind": "k-discrimination", "protected": list(query.protected), "buckets": query.buckets,
            "combinations": len(space.combinations),
        },
        "lower": best.k,
        "upper": verdict.upper if verdict else None,
        "gap": verdict.upper - best.k if verdict else None,
        "witness": clusters.person(space, best),
        "outcomes": clusters.outcomes(space, best).to_dict(orient="records"),
        "runtime_k": best.runtime_k,
        "search": clusters.to_dict(space, found),
        "bound": verdict.to_dict() if verdict else None,
        "model_sha256": query.network.source_sha256,
        "schema_sha256": query.schema.sha256,
        "seconds": seconds,
        "seed": found.seed,
    }  # fmt: skip


def search_plot(found: ClusterSearch, best: Cluster, outcomes: pd.DataFrame, path: Path, *, upper: int | None) -> None:
    """Left: the search's best k against seconds, with the certified bound.   Right: the probabilities of all variants of the best
    person, and the buckets that they fall into. outcomes: as `clusters.outcomes` gives them for `best`."""
    from matplotlib.ticker import MaxNLocator

    with figure(path, (11, 4), 1, 2) as drawn:
        left, right = drawn.axes
        seconds = [max(point.seconds, 1e-4) for point in found.trace]
        steps = [point.k for point in found.trace]
        left.step(seconds, steps, where="post", color="#2166ac", marker=".", label=f"best k met ({found.method})")
        if upper is not None:
            left.axhline(upper, color="#b2182b", linestyle="--", label="certified upper bound")
        left.set_xscale("log")
        left.set_xlim(_decade(seconds[0], np.floor), _decade(1.01 * seconds[-1], np.ceil))
        left.set_xlabel("seconds")
        left.set_ylabel("k, outcome buckets of one person")
        left.set_ylim(0, max(best.k, upper or 0) + 1)
        left.yaxis.set_major_locator(MaxNLocator(integer=True))
        left.grid(alpha=0.3)
        left.legend(loc="lower right")
        buckets = best.buckets
        for bucket in sorted(set(outcomes["bucket"])):
            right.axhspan(bucket / buckets, (bucket + 1) / buckets, color="#fddbc7", alpha=0.7, linewidth=0)
        right.hlines(np.arange(buckets + 1) / buckets, 0, len(outcomes) + 1, color="white", linewidth=1)
        right.plot(np.arange(1, len(outcomes) + 1), outcomes["probability"], "o", markersize=3, color="#2166ac")
        right.set_xlim(0, len(outcomes) + 1)
        right.xaxis.set_major_locator(MaxNLocator(integer=True))
        right.set_ylim(0, 1)
        right.set_xlabel("variants of the same person, sorted")
        right.set_ylabel("probability of the positive class")
        right.set_title(f"k = {best.k} of {buckets} buckets hit (shaded)")


def _decade(seconds: float, side: Callable[[float], float]) -> float:
    """The power of ten beside it: a search that ended at once spans a decade, not an axis of millionths of a second."""
    return float(10.0 ** side(np.log10(seconds)))
