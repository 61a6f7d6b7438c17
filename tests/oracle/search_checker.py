"""The checker as it was before it replayed: does a goal hold throughout a box? It cuts the box until bounds or points tell.

It shares the bounds over boxes with the leaf rule, and nothing else: no tree's cuts, no multipliers, no decoder; points are
evaluated in fractions. What the leaf rule takes for proved has to be so here; what is false here may not be taken for proved there.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from encoders.arrays import Array
from encoders.domain import Domain
from encoders.network import Network
from encoders.probability.logistic import exceeds
from tests.brute_force import exact_forward
from verifair.checker.kernel.bounds import TwinBounds
from verifair.checker.kernel.tasks import Task

BATCH, SLACK = 64, 1e-6


def throughout(
    network: Network, domain: Domain, task: Task, lower: Array, upper: Array, *, margin: float = 0.0, boxes: int = 512
) -> bool | None:
    """Whether a task's goal holds on a raw box (V,), with its margin: True or False, or None where so many boxes do not tell."""
    pending = [(lower, upper)]
    while pending and boxes > 0:
        now, pending = pending[-BATCH:], pending[:-BATCH]
        boxes -= len(now)
        low, high = (np.array(end) for end in zip(*now, strict=True))
        other = second(task, low), second(task, high)
        gone = domain.impossible(low, high) | domain.impossible(*other)
        points = domain.middle(low, high)
        legal = domain.legal(points) & domain.legal(second(task, points))
        if not all(met_at(network, domain, task, x, margin) for x in points[legal & ~gone]):
            return False
        single = (low == high).all(axis=1)
        left = np.flatnonzero(~gone & ~single)
        for close in (False, True):
            if len(left):
                left = left[~_bounded(network, domain, task, low[left], high[left], margin, close)]
        for k in left.tolist():
            if not domain.divisible(low[k][None], high[k][None]).any():
                return None
            v = int(np.argmax((high[k] - low[k]) / np.maximum(domain.upper - domain.lower, 1e-300)))
            cut = domain.halves(low[k][None], high[k][None], np.array([v]), points[k, [v]])
            pending += list(zip(*cut, strict=True))
    return None if pending else True


def second(task: Task, raw: Array) -> Array:
    """x' (N, V) of raw points x (N, V)."""
    return np.where(task.differs, task.prime, raw + task.offset)


def met_at(network: Network, domain: Domain, task: Task, x: Array, margin: float) -> bool:
    """Whether the goal holds at a raw point (V,), in fractions."""
    weights = [Fraction(v) for v in task.margin.tolist()]
    first, other = (
        sum(w * f for w, f in zip(weights, exact_forward(network, domain.encode(one[None]))[0], strict=True))
        for one in (x, second(task, x[None])[0])
    )
    gap = task.goal.gap
    if gap is not None:
        return not exceeds(*((other, first) if gap.rise else (first, other)), gap.epsilon)
    least = Fraction(margin) * (1 - Fraction(SLACK))
    values = [Fraction(p) * first + Fraction(q) * other + Fraction(c) for p, q, c in task.goal.rows]
    return any(
        value >= least and (value > 0 if strict else value >= 0) for value, strict in zip(values, task.goal.strict, strict=True)
    )


def _bounded(network: Network, domain: Domain, task: Task, lower: Array, upper: Array, margin: float, close: bool) -> Array:
    """Which boxes (B,) some row of the goal is shown to hold on, each row by itself, all of them tried."""
    rows, strict = np.array(task.goal.rows), np.array(task.goal.strict)
    boxes = (*domain.box(lower, upper), *domain.box(second(task, lower), second(task, upper)))
    with np.errstate(all="ignore"):
        bounds = TwinBounds(network, *boxes, close=close)
        box = np.repeat(np.arange(len(lower)), len(rows))
        p, q, c = np.tile(rows, (len(lower), 1)).T
        form = p[:, None] * task.margin, q[:, None] * task.margin
        found = bounds.by_substitution(*form, box, layer=len(network.layers) - 1, constant=c)
        margins = bounds.margins(np.tile(task.margin, (len(lower), 1)))
        found = np.maximum(found, bounds.by_intervals(margins, p, q, box) + c - 2.0**-50 * np.abs(c)).reshape(len(lower), -1)
        same = bounds.alike(np.tile(task.margin, (len(lower), 1)))[:, None] & (rows[:, 0] + rows[:, 1] == 0)
        found = np.where(same, np.maximum(found, rows[:, 2]), found)
        return np.asarray(((found >= margin * (1 - SLACK)) & np.where(strict, found > 0, found >= 0)).any(axis=1))
