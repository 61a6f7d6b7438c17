"""Runs that end early, by Ctrl-C, SIGTERM or a deadline, and their messages about kept work."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class OutOfTime(Exception):
    """An analysis that needs more time for an answer. The message says how far it came."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during work that gives no answer. The message says when it came, what is kept, and how to resume."""


@contextmanager
def keeping(stands: str) -> Iterator[None]:
    """After Ctrl-C, raise Interrupted with a message about what is kept."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted: {stands}") from None


@contextmanager
def noted_interrupt(*, deferred: bool) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns True once a signal that raises KeyboardInterrupt (Ctrl-C; in the command line also SIGTERM)
    came within the context, whoever catches it.   deferred: the first signal is only noted, and a second one interrupts.

    Other handlers of the caller are unchanged. Only the main thread receives signals: in other threads nothing is changed.
    """
    asked = False
    ours = threading.current_thread() is threading.main_thread()
    both = (signal.SIGINT, signal.SIGTERM) if ours else ()
    before = {one: handler for one in both if callable(handler := signal.getsignal(one))}

    def restore() -> None:
        for one, handler in before.items():
            if signal.getsignal(one) is note:  # unless the caller has set another handler meanwhile
                signal.signal(one, handler)

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        try:
            before[signal.Signals(number)](number, frame)
        except KeyboardInterrupt:
            asked = True
            if not deferred:
                raise
            restore()

    for one in before:
        signal.signal(one, note)
    try:
        yield lambda: asked
    finally:
        restore()
