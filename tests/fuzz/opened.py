"""Which files a reader opens: paths in a file from a stranger must not lead out of its folder, whatever the message says."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_SEEN: list[str] = []


@cache
def _listening() -> None:
    """From now on; Python has no way to stop it."""
    sys.addaudithook(_hear)


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("open", "sqlite3.connect") and isinstance(arguments[0], (str, bytes)):
        _SEEN.append(os.fsdecode(arguments[0]))


@contextmanager
def never_opens(forbidden: Sequence[Path]) -> Iterator[None]:
    """Fails where the block opens a forbidden file, or one below a forbidden folder, links followed, whatever else it does."""
    _listening()
    _SEEN.clear()
    failed: BaseException | None = None
    try:
        yield
    except BaseException as error:
        failed = error
    for name in _SEEN[:]:
        if "\0" not in name and any(Path(os.path.realpath(name)).is_relative_to(one) for one in forbidden):
            raise AssertionError(f"{name} was opened, which lies outside") from failed
    if failed is not None:
        raise failed
