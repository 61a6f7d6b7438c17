"""Our own warnings, on the screen of a command."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from verifair.cli.output import warn
from verifair.screen import ShownWarning


@contextmanager
def shown() -> Iterator[None]:
    """Print our own warnings as a command's, each once, without the line of code that warns."""
    with warnings.catch_warnings():
        pythons, printed = warnings.showwarning, set[str]()

        def show(message: Warning | str, category: type[Warning], *place: Any, **rest: Any) -> None:
            if not issubclass(category, ShownWarning):
                pythons(message, category, *place, **rest)
            elif str(message) not in printed:
                printed.add(str(message))
                warn(str(message))

        warnings.showwarning = show
        yield
