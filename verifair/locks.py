"""Files that one process writes at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from verifair.errors import QueryError
from verifair.files import filled


@contextmanager
def alone(lock: Path, message: str) -> Iterator[None]:
    """Hold a lock file while the block runs; a kill frees it. Raises QueryError with this message where another process has it.

    The file is removed while it is held: who has opened it by then finds that it has no name any more, and asks again.
    """
    from filelock import FileLock, Timeout

    with filled(lock.parent):
        held = FileLock(lock)
        try:
            held.acquire(timeout=0.1)
        except Timeout:
            raise QueryError(message) from None
        try:
            yield
        finally:
            with suppress(OSError):  # an open file cannot be removed everywhere
                lock.unlink()
            held.release()
