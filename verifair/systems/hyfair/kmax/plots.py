"""The figure of kmax: the progress of the search, and the cluster it found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from verifair.figures import COLORS, PROVED, figure
from verifair.systems.hyfair.kmax.result import KmaxResult


def plot(result: KmaxResult, path: Path) -> None:
    """Draw, left, the search's best k against seconds with the certified bound; right, the probabilities of all variants of the
    best person, and the buckets that they fall into."""
    from matplotlib.ticker import MaxNLocator

    search, best, outcomes, upper = result.search, result.best, result.outcomes, result.upper
    with figure(path, (11, 4), 1, 2) as fig:
        left, right = fig.axes
        seconds = [max(point.seconds, 1e-4) for point in search.trace]
        steps = [point.k for point in search.trace]
        ends = (_decade(seconds[0], np.floor), _decade(1.01 * seconds[-1], np.ceil))
        left.step(  # to the end of the axis, so that a single point is visible
            [*seconds, ends[1]], [*steps, steps[-1]], where="post", color=COLORS[1], linewidth=2, marker="o", markersize=5,
            markevery=list(range(len(seconds))), label="best k found",
        )  # fmt: skip
        if upper is not None:
            left.axhline(upper, color=PROVED, linestyle="--", label="certified upper bound")
        left.set_xscale("log")
        left.set_xlim(*ends)
        left.xaxis.set_minor_formatter("")
        left.set_xlabel("seconds")
        left.set_ylabel("k, outcome buckets of one person")
        left.set_ylim(0, max(best.k, upper or 0) + 1)
        left.yaxis.set_major_locator(MaxNLocator(integer=True))
        left.grid(alpha=0.3)
        left.legend(loc="lower right")
        buckets, x, query = best.buckets, np.arange(1, len(outcomes) + 1), result.space.query
        if query.probable:
            for bucket in sorted(set(outcomes["bucket"])):
                right.axhspan(bucket / buckets, (bucket + 1) / buckets, color=COLORS[1], alpha=0.3, linewidth=0)
            right.hlines(np.arange(buckets + 1) / buckets, 0, len(outcomes) + 1, color="white", linewidth=1)
            right.plot(x, outcomes["probability"], "o", markersize=3, color=COLORS[0])
            right.set_title(f"k = {best.k} of {buckets} buckets hit (shaded)")
        else:
            for decision, name in enumerate(query.schema.class_names):
                mask = outcomes["bucket"] == decision
                right.plot(x[mask], outcomes["probability"][mask], "o", markersize=3, color=COLORS[decision], label=name)
            right.set_title(f"k = {best.k} of 2 decisions")
            right.legend()
        right.set_xlim(0, len(outcomes) + 1)
        right.xaxis.set_major_locator(MaxNLocator(integer=True))
        right.set_ylim(0, 1)
        right.set_xlabel("variants of the same person, sorted")
        right.set_ylabel(f'probability of "{query.schema.class_names[1]}"')


def _decade(seconds: float, side: Callable[[float], float]) -> float:
    """Return the next power of ten on one side, so that the axis of a search that ended at once spans a decade."""
    return float(10.0 ** side(np.log10(seconds)))
