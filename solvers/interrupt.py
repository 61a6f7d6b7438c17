"""Ctrl-C for backends that do not hear it while they run in C++."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def run_interruptible(work: Callable[[], Result], stop: Callable[[], None]) -> tuple[Result, bool]:
    """Run work() in a thread while this one listens; on Ctrl-C call stop() and wait for the result.

    Returns (result, whether Ctrl-C arrived). A second Ctrl-C propagates as KeyboardInterrupt without waiting.
    Python delivers Ctrl-C to the main thread only, so any other thread runs work() directly.
    """
    if threading.current_thread() is not threading.main_thread():
        return work(), False
    results: list[Result] = []
    failures: list[BaseException] = []

    def body() -> None:
        try:
            results.append(work())
        except BaseException as error:  # carried over to the waiting thread, which raises it
            failures.append(error)
        finally:
            done.set()

    done = threading.Event()  # Thread.join believes the thread ended when Ctrl-C breaks it off (Python 3.11)
    interrupted = False
    try:
        threading.Thread(target=body, daemon=True).start()
        done.wait()
    except KeyboardInterrupt:
        interrupted = True
        stop()
        done.wait()
    if failures:
        raise failures[0]
    return results[0], interrupted
