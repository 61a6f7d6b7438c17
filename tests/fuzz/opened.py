"""Which files a reader opens: paths in a file from a stranger must not lead out of its folder, whatever the message says."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

FORBIDDEN = [Path(one) for one in ("/etc/passwd", "/dev/zero", "/dev/urandom")]
"""What damaged files name most, and no reader opens for any other reason."""
_BLOCKS: list[list[str]] = []
"""What was opened in each block that is under way."""


@cache
def _listening() -> None:
    """From now on; Python has no way to stop it."""
    sys.addaudithook(_hear)


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("open", "sqlite3.connect") and isinstance(arguments[0], (str, bytes)):
        for seen in _BLOCKS:
            seen.append(os.fsdecode(arguments[0]))


@contextmanager
def never_opens(forbidden: Sequence[Path]) -> Iterator[None]:
    """Fails where the block opens a forbidden file, or one below a forbidden folder, links followed, whatever else it does."""
    _listening()
    seen: list[str] = []
    failed: BaseException | None = None
    _BLOCKS.append(seen)
    try:
        yield
    except BaseException as error:
        failed = error
    _BLOCKS.pop()
    for name in seen:
        if "\0" not in name and any(Path(os.path.realpath(name)).is_relative_to(one) for one in forbidden):
            raise AssertionError(f"{name} was opened, which lies outside") from failed
    if failed is not None:
        raise failed
