"""Runs that end before their time, by Ctrl-C, SIGTERM or a deadline, and what they say of what is kept."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class OutOfTime(Exception):
    """An analysis that has no answer without more time. The message says how far it came."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during work of which nothing is left. The message says when it came, what is kept, and how to go on."""


@contextmanager
def keeping(stands: str) -> Iterator[None]:
    """After Ctrl-C, raise Interrupted, which says what stands."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted: {stands}") from None


@contextmanager
def noted_interrupt(*, deferred: bool) -> Iterator[Callable[[], bool]]:
    """Within the context a signal that raises KeyboardInterrupt (Ctrl-C; in the command line also SIGTERM) makes the function that
    is given out return True, whoever catches it; deferred: a first one does only that, and a second one interrupts.

    Other handlers of the caller's do what they did. Only the main thread receives signals: in others nothing is changed.
    """
    asked = False
    ours = threading.current_thread() is threading.main_thread()
    both = (signal.SIGINT, signal.SIGTERM) if ours else ()
    before = {one: handler for one in both if callable(handler := signal.getsignal(one))}

    def restore() -> None:
        for one, handler in before.items():
            if signal.getsignal(one) is note:  # not one that the caller's has set meanwhile
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
