"""The time of a search: the wall's, or that of counted work.

A search calls `now()` for the time, to choose its next step and to end in time, and reports its work with `spend`. Normally time is
the wall clock's. Within `counted` it is the typical time of the reported work on one core, so that a search does the same on a busy
machine as on an idle one; the wall clock is then only a ceiling, after which every deadline is over.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

A_MULTIPLICATION = 2.5e-10
"""Typical seconds of one multiplication of a bound or an evaluation, overhead included."""
A_TASK = 5e-5
"""Seconds added for each reported task, however small."""
A_LOOK = 2e-6
"""Seconds counted for each call of `now`, so that a loop that reports no work still ends."""
AFTER_ALL = 1e9
"""Seconds beyond any deadline."""


@dataclass(kw_only=True)
class CountedTime:
    """ceiling: of the wall, by time.monotonic().   spent: seconds counted.   cut: the ceiling was reached, and work left out."""

    ceiling: float
    spent: float = 0.0
    cut: bool = False

    @property
    def left(self) -> float:
        """Return the seconds until the ceiling, at least a little."""
        return max(self.ceiling - time.monotonic(), 1e-3)


_CURRENT: ContextVar[CountedTime | None] = ContextVar("_CURRENT", default=None)


@contextmanager
def counted(ceiling: float, spent: float = 0.0) -> Iterator[CountedTime]:
    """Count work instead of measuring time, from `spent` seconds on, until the wall shows `ceiling` (by time.monotonic())."""
    clock = CountedTime(ceiling=ceiling, spent=spent)
    token = _CURRENT.set(clock)
    try:
        yield clock
    finally:
        _CURRENT.reset(token)


@contextmanager
def uncounted() -> Iterator[None]:
    """Context in which time is the wall clock's."""
    token = _CURRENT.set(None)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def counting() -> CountedTime | None:
    """Return the counted time, or None if time is the wall clock's."""
    return _CURRENT.get()


def now() -> float:
    """Return the time in seconds, for differences."""
    clock = _CURRENT.get()
    if clock is None:
        return time.monotonic()
    clock.spent += A_LOOK
    if time.monotonic() < clock.ceiling:
        return clock.spent
    clock.cut = True
    clock.spent += AFTER_ALL  # added at every call, so that later deadlines are over as well
    return clock.spent


def spend(multiplications: float) -> None:
    """Report multiplications, or other work that takes as long as so many."""
    clock = _CURRENT.get()
    if clock is not None:
        clock.spent += A_TASK + A_MULTIPLICATION * multiplications


def patience(seconds: float) -> float:
    """Return the seconds that a solver, timed by the wall clock, may take: where work is counted, all up to the ceiling."""
    clock = _CURRENT.get()
    return seconds if clock is None else clock.left
