"""Progress: a bar for terminals and notebooks, lines for pipes and log files."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from verifair.screen import Screen

FIRST, MINUTE = 15.0, 60.0
"""Seconds before the first line where there is no terminal, and the longest time between two lines."""


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[..., None]]:
    """Show a bar with rate and remaining time on a terminal and in a notebook; elsewhere print a line to stderr now and then.

    Yields a function to pass as `progress=`: it is called with (done, total), 0 for an unknown total, after words for the label.
    Raises MissingPackage in a notebook without ipywidgets.
    """
    err = Screen(stderr=True)
    if err.is_terminal or err.is_jupyter:
        from verifair.notebook.bar import bar

        with bar(label, err) as advance_bar:
            yield advance_bar
        return
    started, over, counts = time.monotonic(), threading.Event(), list[Any]()

    def watch() -> None:  # a thread prints the stage and the share done, as long steps do not report
        while not over.wait(min(max(FIRST, time.monotonic() - started), MINUTE)):
            *words, done, total = counts or (0, 0)
            count = f": {done:,.0f} of {total:,.0f} ({done / total:.0%})" if total else ""
            err.print(f"{': '.join([label, *words])}{count}, after {time.monotonic() - started:.0f} s", soft_wrap=True)

    def advance(*latest: Any) -> None:
        counts[:] = latest

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield advance
    finally:
        over.set()
