"""The time of a search: the wall's, or that of counted work.

A search asks `now()` what time it is, to choose what comes next and to end in time, and tells with `spend` what it does. Mostly
time is the wall's. Within `counted` it is what that work takes on one core mostly, so that a search does the same on a busy
machine as on an idle one; the wall is then a ceiling alone, behind which it is later than any deadline.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

A_MULTIPLICATION = 2.5e-10
"""Seconds that one of a bound's or an evaluation's takes mostly, with all that is done around it."""
A_TASK = 5e-5
"""Seconds that come with each reported task, however small."""
A_LOOK = 2e-6
"""Seconds that a look at the clock counts for, so that no loop that tells of nothing goes on for ever."""
AFTER_ALL = 1e9
"""Seconds that no deadline is away."""


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
    """Within, time is the wall's."""
    token = _CURRENT.set(None)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def counting() -> CountedTime | None:
    """Return what counts, None where time is the wall's."""
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
    clock.spent += AFTER_ALL  # at every look, so that what begins now is over as well
    return clock.spent


def spend(multiplications: float) -> None:
    """Tell of multiplications (or of so many that what was done takes as long)."""
    clock = _CURRENT.get()
    if clock is not None:
        clock.spent += A_TASK + A_MULTIPLICATION * multiplications


def patience(seconds: float) -> float:
    """Return what a solver may take of `seconds`, which is timed by the wall: where work is counted, all up to the ceiling."""
    clock = _CURRENT.get()
    return seconds if clock is None else clock.left
