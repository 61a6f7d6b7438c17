"""Files that are there whole or not at all, and that one process writes at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from verifair.errors import QueryError


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Give the path under which a file is written, with the same suffix. It takes the file's place when all of it is there; where
    that fails, nothing of it is left, and an older file stays. Raises OSError that names the file, not its half."""
    half = path.with_name(f".part-{path.name}")
    try:
        yield half
        half.replace(path)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(half)):  # it is another file's
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with suppress(OSError):
            half.unlink(missing_ok=True)


@contextmanager
def alone(lock: Path, message: str) -> Iterator[None]:
    """Hold a lock file while the block runs; a kill frees it. Raises QueryError with this message where another process has it.

    The file is removed while it is held: who has opened it by then finds that it has no name any more, and asks again. So are
    folders that were made for it, and are empty in the end.
    """
    from filelock import FileLock, Timeout

    made = [folder for folder in lock.parents if not folder.exists()]
    lock.parent.mkdir(parents=True, exist_ok=True)
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
        with suppress(OSError):  # the first that is not empty
            for folder in made:
                folder.rmdir()
