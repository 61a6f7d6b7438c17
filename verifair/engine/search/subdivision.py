"""The loop of every search that divides its question: take open parts, handle them, keep what is left in halves.

A search plugs in what it does with a batch (evaluate, bound, close, split), which parts come first, and what ends it.
"""

from __future__ import annotations

import heapq
import itertools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from encoders.domain import Batched
from solvers import clock

B = TypeVar("B", bound=Batched)
T = TypeVar("T", bound=Batched, covariant=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class Objects(Batched):
    """Parts (N,) that are objects."""

    items: npt.NDArray[np.object_]

    @classmethod
    def of(cls, parts: Sequence[object]) -> Objects:
        items = np.empty(len(parts), dtype=object)
        items[:] = parts
        return cls(items=items)


class Open(Generic[B]):
    """The open parts in batches. Those of the highest priority are taken first, and among equals the newest (depth first, so that
    the list stays short) or the oldest. `keep`, if given, drops parts that need no more work when they are taken."""

    def __init__(self, at_once: int, keep: Callable[[B], B] | None = None, *, oldest: bool = False) -> None:
        self.at_once, self.keep = at_once, keep
        self._heap: list[tuple[float, int, B]] = []
        self._order = itertools.count(step=1 if oldest else -1)

    @property
    def top(self) -> float:
        """The highest priority; -inf if nothing is open."""
        return -self._heap[0][0] if self._heap else -np.inf

    @property
    def batches(self) -> list[B]:
        """All open parts, in no order."""
        return [batch for _, _, batch in self._heap]

    def add(self, batch: B, priority: float = 0.0) -> None:
        """Add a batch; its parts are taken from its beginning."""
        for start in reversed(range(0, len(batch), self.at_once)):
            part = batch.take(slice(start, start + self.at_once)) if len(batch) > self.at_once else batch
            heapq.heappush(self._heap, (-priority, next(self._order), part))

    def take(self, limit: int) -> B | None:
        """Take at most `at_once` and at most `limit` parts of one priority; None if nothing is open."""
        batches: list[B] = []
        capacity, level = min(self.at_once, limit), self._heap[0][0] if self._heap else 0.0
        while self._heap and capacity and (self._heap[0][0] == level or not batches):
            level, order, batch = heapq.heappop(self._heap)
            batch = batch if self.keep is None else self.keep(batch)
            if len(batch) > capacity:
                heapq.heappush(self._heap, (level, order, batch.take(slice(capacity, None))))
                batch = batch.take(slice(0, capacity))
            if len(batch):
                batches.append(batch)
                capacity -= len(batch)
        return None if not batches else batches[0] if len(batches) == 1 else batches[0].join(batches)


class PartSource(Protocol[T]):
    """`Open`, or a search that chooses its parts by a rule of its own; `most` parts fit into the time that is left."""

    def take(self, limit: int) -> T | None: ...


STEP = 4_000_000
"""Multiplications that take as long as the overhead of a step: about a millisecond."""
SHARE = 0.5
"""Share of the time left that one step may take: the next parts may cost more than the last ones."""


def subdivide(
    open_: PartSource[T], step: Callable[[T], None], *, ended: Callable[[], bool], deadline: float = math.inf, cost: float = 0.0
) -> float:
    """Take a batch and hand it to `step`, which adds the parts that stay open, until nothing is open or the search has `ended`.
    That is called before every step, and is the place for deadlines, budgets of nodes, and reports of progress.

    deadline: by clock.now(). Batches shrink towards it, by what a part cost in the last step, so that no step overruns it by
    more than one part.   cost: seconds that a part of the first step may take.   Returns the seconds per part of the last step.
    """
    while not ended():
        started = clock.now()
        left = SHARE * (deadline - started)
        batch = open_.take(max(int(min(left / max(cost, 1e-9), sys.maxsize)), 1))
        if batch is None:
            break
        count = len(batch)
        clock.spend(STEP)
        step(batch)
        cost = (clock.now() - started) / max(count, 1)
    return cost
