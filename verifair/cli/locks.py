"""Folders that one process writes at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from verifair.errors import QueryError


@contextmanager
def alone(lock: Path, told: str) -> Iterator[None]:
    """Hold a lock file while the block runs; a kill frees it. Raises QueryError, as told, where another process has it."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    held = FileLock(lock)
    try:
        held.acquire(blocking=False)
    except Timeout:
        raise QueryError(told) from None
    try:
        yield
    finally:
        with suppress(OSError):  # an open file cannot be removed everywhere
            lock.unlink()
        held.release()
