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
    interrupted = False
    in_main_thread = threading.current_thread() is threading.main_thread()
    signals = (signal.SIGINT, signal.SIGTERM) if in_main_thread else ()
    handlers = {signum: handler for signum in signals if callable(handler := signal.getsignal(signum))}

    def restore() -> None:
        for signum, handler in handlers.items():
            if signal.getsignal(signum) is note:  # unless the caller has set another handler meanwhile
                signal.signal(signum, handler)

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        try:
            handlers[signal.Signals(number)](number, frame)
        except KeyboardInterrupt:
            second, interrupted = interrupted, True
            if second or not deferred:
                raise
            restore()

    for signum in handlers:
        signal.signal(signum, note)
    try:
        yield lambda: interrupted
    finally:
        restore()
