"""Files that are there whole or not at all, and folders that are made for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


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
def filled(folder: Path) -> Iterator[None]:
    """Make a folder, and those above it; what was made goes again where the block leaves it empty."""
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):  # the first that is not empty
            for one in made:
                one.rmdir()
