"""Locks on files that only one process at a time may write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from verifair.errors import QueryError
from verifair.files import filled


@contextmanager
def alone(lock: Path, message: str) -> Iterator[None]:
    """Hold a lock file while the block runs; a kill frees it. Raises QueryError with this message if another process holds it.

    The file is removed while the lock is held. A process that has opened it before finds that it has no name any more, and tries
    again.
    """
    from filelock import FileLock, Timeout

    with filled(lock.parent):
        file_lock = FileLock(lock)
        try:
            file_lock.acquire(timeout=0.1)
        except Timeout:
            raise QueryError(message) from None
        try:
            yield
        finally:
            with suppress(OSError):  # some systems cannot remove an open file
                lock.unlink()
            file_lock.release()
