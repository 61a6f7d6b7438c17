"""The bar of a terminal and of a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

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

from verifair.errors import require
from verifair.screen import Screen


@contextmanager
def bar(label: str, err: Screen) -> Iterator[Callable[..., None]]:
    """Show a bar with rate and remaining time. Raises MissingPackage in a notebook without ipywidgets."""
    if err.is_jupyter:
        require("ipywidgets", "notebook", "a progress bar in a notebook")
    columns = (
        SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
        TaskProgressColumn(show_speed=True), TimeElapsedColumn(), TimeRemainingColumn(),
    )
    drawn = Progress(*columns, console=err, transient=True)
    task = drawn.add_task(label, total=None)

    def advance(*counts: Any) -> None:
        *words, done, total = counts
        drawn.update(task, description=": ".join([label, *words]), completed=done, total=total or None)

    drawn.start()
    try:
        yield advance
    finally:
        with drawn.live.ipy_widget or nullcontext():  # in a notebook rich ends with an empty block of text, which goes with the bar
            drawn.stop()
