"""The nearest of many points, exactly: a k-d tree where there are few coordinates, a pruned scan where categories make many.

An attribute of 40 categories is 40 coordinates of an embedding, in which a k-d tree prunes nothing. The scan counts unequal
categories first, which is cheap, and measures numbers only at points that may be among the nearest.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from encoders.network import Array, Integers
from verifair.systems.cst.distance import Metric

Search = Callable[[Array, int, int], tuple[Array, Integers]]
"""(centers (B, D), width, threads) -> distances and points, (B, width) each, the nearest first."""
MANY = 16
"""Coordinates beyond which trees are slower than scans."""


def search_of(points: Array, metric: Metric) -> Search:
    """A search among points (m, D) of the metric's embedding."""
    return _scan(points, metric) if metric.words and points.shape[1] > MANY else _tree(points, metric.p)


def _tree(points: Array, p: int) -> Search:
    tree = cKDTree(points)

    def search(centers: Array, width: int, threads: int) -> tuple[Array, Integers]:
        distance, point = tree.query(centers, k=np.arange(1, width + 1), p=p, workers=threads)
        return distance, point

    return search


def _scan(points: Array, metric: Metric) -> Search:
    numbers, codes = metric.parts(points)
    numbers, codes = np.ascontiguousarray(numbers.T), np.ascontiguousarray(codes.T)  # one attribute after the other
    price = metric.unequal * np.arange(len(codes) + 1)  # of so many unequal categories

    def nearest(center: Array, code: npt.NDArray[np.int16], width: int) -> tuple[Array, Integers]:
        unequal = np.zeros(codes.shape[1], dtype=np.int16)
        for mine, theirs in zip(code, codes, strict=True):
            unequal += theirs != mine
        enough = int(np.searchsorted(np.cumsum(np.bincount(unequal)), width))
        which = np.flatnonzero(unequal <= enough)
        power = price[unequal[which]] + _power(numbers[:, which], center, metric.p)
        radius = np.partition(power, width - 1)[width - 1]
        more = np.flatnonzero((unequal > enough) & (price <= radius)[unequal])
        if len(more):
            power = np.concatenate([power, price[unequal[more]] + _power(numbers[:, more], center, metric.p)])
            which = np.concatenate([which, more])
        chosen = np.argpartition(power, width - 1)[:width]
        chosen = chosen[np.argsort(power[chosen], kind="stable")]
        return power[chosen], which[chosen]

    def search(centers: Array, width: int, threads: int) -> tuple[Array, Integers]:
        around, code = metric.parts(centers)
        power, point = np.empty((len(centers), width)), np.empty((len(centers), width), dtype=np.int64)

        def part(start: int) -> None:
            for b in range(start, len(centers), threads):
                power[b], point[b] = nearest(around[b], code[b], width)

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(part, range(threads)))
        return power if metric.p == 1 else np.sqrt(power), point

    return search


def _power(numbers: Array, center: Array, p: int) -> Array:
    """(w,) the p-th power of the distances of points (m, w) from a center (m,)."""
    gap = np.abs(numbers - center[:, None])
    return np.asarray(gap.sum(axis=0) if p == 1 else np.square(gap).sum(axis=0))
