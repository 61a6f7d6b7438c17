"""A progress bar for terminals and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from verifair.errors import require
from verifair.screen import Screen


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[..., None]]:
    """Show a bar with rate and remaining time on a terminal and in a notebook, nothing elsewhere.

    Yields a function to pass as `progress=`: it is called with (done, total); words before these are shown after the label.
    Raises MissingPackage in a notebook without ipywidgets.
    """
    err = Screen(stderr=True)
    if not (err.is_terminal or err.is_jupyter):
        yield lambda *counts: None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    if err.is_jupyter:
        require("ipywidgets", "notebook", "a progress bar in a notebook")
    columns = (
        SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
        TaskProgressColumn(show_speed=True), TimeElapsedColumn(), TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=err, transient=True)
    task = bar.add_task(label, total=None)

    def advance(*counts: Any) -> None:
        *words, done, total = counts
        bar.update(task, description=": ".join([label, *words]), completed=done, total=total)

    bar.start()
    try:
        yield advance
    finally:
        with bar.live.ipy_widget or nullcontext():  # in a notebook rich ends with an empty block of text, which goes with the bar
            bar.stop()
