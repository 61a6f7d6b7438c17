"""Weights of edges: length times a function of the density at the edge's midpoint.

The density is a Gaussian kernel estimate. Terms that together cannot change it by more than one part in 10^8 are left out, so
that midpoints, sorted into a KD-tree, are compared only with data near them.
Reference: FGCE, section II; FACE (Poyiadzi et al., 2020). Corrects the paper: it writes  W = KDE(mid) * distance,  which makes
dense regions expensive, contrary to its text and to FACE. Here dense regions are cheap, unless `literal` is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import numpy as np
from scipy.spatial import cKDTree
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KernelDensity

from encoders.arrays import Array
from verifair.checker.certificates.centers import up_to
from verifair.engine.parallel import Shared, in_order
from verifair.errors import QueryError
from verifair.systems.fgce.graph.feasibility_graph import LEAF, FeasibilityGraph, tree_leaves
from verifair.systems.fgce.settings import Bandwidth, Weighting

TINY = 1e-8
NEGLIGIBLE = 20.0
"""exp of minus this is what all terms left out may come to, beside the two ends of the edge."""
SMALLEST = 1e-100
"""Bandwidths are above this, and below its inverse: their squares are numbers."""
BANDWIDTHS = np.linspace(0.001, 0.1, 30)


def bandwidth(points: Array, rule: Bandwidth = "scott") -> float:
    """Return the width of the Gaussian kernel for points (N, p). Raises QueryError for anything but a positive number or a rule's
    name.

    scott: (4 s^5 / 3 N)^(1/5) of each coordinate, averaged, as the authors do.   cross-validated: the width with the largest
    likelihood of held-out points among 30 widths up to 0.1 (5 folds).
    """
    if rule == "scott":
        width = float(np.mean((4 * points.std(axis=0) ** 5 / (3 * len(points))) ** 0.2))
        if not width > 0:
            raise QueryError("bandwidth = scott: all rows are the same point, so there is no spread to measure; pass a number")
        return width
    if rule == "cross-validated":
        search = GridSearchCV(KernelDensity(), {"bandwidth": BANDWIDTHS}, cv=min(5, len(points)))
        return float(search.fit(points).best_params_["bandwidth"])
    if isinstance(rule, str) or not SMALLEST < rule < 1 / SMALLEST:
        raise QueryError(f"bandwidth = {rule!r}: expected a positive number, or one of scott, cross-validated")
    return float(rule)


def log_densities(
    points: Array, x: Array, width: float, reach: float, *, threads: int = 2, progress: Callable[[int, int], None] | None = None
) -> Array:
    """Return (m,) log of the kernel estimate over points (N, p) at places (m, p), each of which has a point within `reach`."""
    radius = float(np.sqrt(reach**2 + 2 * width**2 * (np.log(len(points)) + NEGLIGIBLE)))
    constant = -np.log(len(points)) - x.shape[1] * np.log(width * np.sqrt(2 * np.pi))
    leaves = list(tree_leaves(cKDTree(x, leafsize=LEAF)))
    result = np.empty(len(x))

    def of_leaf(rows: np.ndarray) -> tuple[np.ndarray, Array]:
        places = x[rows]
        gap = np.maximum(np.maximum(places.min(axis=0) - points, points - places.max(axis=0)), 0.0)
        data = points[(gap**2).sum(axis=1) <= radius**2]
        power = (places @ data.T - (data**2).sum(axis=1) / 2 - ((places**2).sum(axis=1) / 2)[:, None]) / width**2
        largest = power.max(axis=1)
        return rows, largest + np.log(np.exp(power - largest[:, None]).sum(axis=1)) + constant

    for done, (rows, value) in enumerate(in_order(Shared(value=of_leaf), zip(leaves), threads), 1):
        result[rows] = value
        if progress is not None:
            progress(done, len(leaves))
    return result


def edge_weights(
    graph: FeasibilityGraph,
    weighting: Weighting = "inverse",
    width: Bandwidth = "scott",
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Array:
    """Return (E,) weight of every edge of the graph. Raises QueryError for an unknown weighting, or one that overflows."""
    if weighting not in get_args(Weighting):
        raise QueryError(f"weighting {weighting!r} is not known; use one of {', '.join(get_args(Weighting))}")
    if weighting == "length" or not graph.edges:
        return graph.lengths
    middles = (graph.points[graph.sources] + graph.points[graph.indices]) / 2
    places, at = np.unique(middles, axis=0, return_inverse=True)
    logs = log_densities(graph.points, places, bandwidth(graph.points, width), up_to(graph.eps) / 2, progress=progress)[at.ravel()]
    if weighting == "negative-log":
        return np.asarray(graph.lengths * (logs.max() - logs))
    with np.errstate(over="ignore"):
        density = np.exp(logs)
    if weighting == "inverse":
        return np.asarray(graph.lengths / (density + TINY))
    if not np.isfinite(density).all():
        raise QueryError("weighting literal: densities are beyond float64; pass a larger bandwidth, or another weighting")
    return np.asarray(graph.lengths * density)
