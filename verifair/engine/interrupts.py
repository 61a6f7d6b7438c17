"""Ctrl-C that waits for the end of a step, so that what is done can be kept."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def held_back() -> Iterator[Callable[[], bool]]:
    """Within the context a first Ctrl-C only makes the function that is given out return True; a second one interrupts.

    Where Python does not turn Ctrl-C into KeyboardInterrupt (another thread, a handler of the caller's) nothing is changed.
    """
    asked = False
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: False
        return

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
