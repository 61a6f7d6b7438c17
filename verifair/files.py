"""Files that are written whole or not at all, and folders that are made for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path, with the same suffix, to write a file to. When it is complete it replaces the file; if writing fails,
    it is removed, and an older file stays. Raises OSError that names the file, not the temporary one."""
    half = path.with_name(f".part-{path.name}")
    try:
        yield half
        half.replace(path)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(half)):  # the error is about another file
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with suppress(OSError):
            half.unlink(missing_ok=True)


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    """Make a folder and those above it; remove the new ones again if the block leaves them empty."""
    new_folders = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):  # stops at the first that is not empty
            for parent in new_folders:
                parent.rmdir()
