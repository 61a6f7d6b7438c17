"""Arrays of many rows, stored on disk: a table's columns, coordinates, attributions.

Their file has no name and is in the folder of temporary files. Small arrays are held in memory, and so are arrays for which the
folder has no room, and all arrays on systems other than Linux. The system caches the file in memory as long as there is room.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from mmap import mmap
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from encoders.arrays import Integers

if sys.platform == "linux":
    from mmap import MADV_DONTNEED
    from os import posix_fallocate

ASIDE = 1 << 20
"""Bytes of an array from which on it lies on the disk."""
ROWS = 1 << 16
"""Rows of one that are computed at once."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Aside:
    """An array that is written in any order.   values: (M, V).   pages: of the file, if any."""

    values: npt.NDArray[Any]
    pages: mmap | None = None

    @classmethod
    def of(cls, rows: int, columns: int, dtype: npt.DTypeLike = np.float64) -> Aside:
        """Return an uninitialised array with these numbers of rows and columns."""
        kind = np.dtype(dtype)
        size = kind.itemsize * rows * columns
        if size >= ASIDE and sys.platform == "linux":
            with suppress(OSError), TemporaryFile() as file:
                posix_fallocate(file.fileno(), 0, size)  # reserved now: a disk that fills up later would end the process
                pages = mmap(file.fileno(), size)
                return cls(values=np.frombuffer(pages, dtype=kind).reshape(rows, columns), pages=pages)
        return cls(values=np.empty((rows, columns), dtype=kind))

    @property
    def column(self) -> npt.NDArray[Any]:
        """(M,) its first column."""
        return self.values[:, 0]

    def put(self, rows: Integers | slice, values: npt.NDArray[Any]) -> None:
        """Write some rows: (B, V), or (B,) of one column."""
        self.values[rows] = values if values.ndim > 1 else values[:, None]
        if self.pages is not None and sys.platform == "linux":
            self.pages.madvise(MADV_DONTNEED)  # the file has the data; free this process's memory


@dataclass(kw_only=True, eq=False)
class Stack:
    """Rows that are added in order, in parts of one type.   file: the first `size` bytes.   parts: later parts, in memory.
    """

    parts: list[npt.NDArray[Any]] = field(default_factory=list)
    size: int = 0
    file: BinaryIO | None = None

    def add(self, part: npt.NDArray[Any]) -> None:
        """Add the next rows."""
        self.parts.append(part)
        if sum(p.nbytes for p in self.parts) >= ASIDE:
            self._write()

    def values(self) -> npt.NDArray[Any]:
        """Return all rows, after one part at least."""
        if not self.size:
            return np.concatenate(self.parts)
        self._write()
        assert self.file is not None
        pages, first = mmap(self.file.fileno(), self.size), self.parts[0]
        stored = np.frombuffer(pages, dtype=first.dtype).reshape(-1, *first.shape[1:])
        return np.concatenate([stored, *self.parts]) if any(map(len, self.parts)) else stored

    def close(self) -> None:
        """Release the file; the array of `values` keeps it open."""
        if self.file is not None:
            self.file.close()

    def _write(self) -> None:
        """Move the parts in memory to the file, if it has room. An empty part stays in memory to keep the type."""
        added = sum(p.nbytes for p in self.parts)
        if sys.platform != "linux" or not added:
            return
        with suppress(OSError):
            self.file = file = self.file or TemporaryFile()  # noqa: SIM115  `close` does it
            posix_fallocate(file.fileno(), self.size, added)  # reserved now: a disk that fills up later would end the process
            file.seek(self.size)  # after the last complete write, if one failed
            for p in self.parts:
                file.write(np.ascontiguousarray(p).data)
            file.flush()
            self.size, self.parts = self.size + added, [self.parts[0][:0].copy()]


def stacked(parts: Iterable[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return the rows of some parts (one at least) in one array."""
    with closing(Stack()) as stack:
        for part in parts:
            stack.add(part)
        return stack.values()


def made(rows: int, kind: npt.DTypeLike, values_of: Callable[[slice], npt.NDArray[Any]]) -> Any:
    """Return an array (M,), in a file if it is large.   values_of: returns the values of a slice of its rows."""
    array = Aside.of(rows, 1, kind)
    for part in _parts(rows):
        array.put(part, values_of(part))
    return array.column


def numbered(rows: int) -> npt.NDArray[np.int64]:
    """Return 0, 1, ... (M,), in a file if they are many."""
    return np.asarray(made(rows, np.int64, lambda part: np.arange(part.start, part.stop)))


def taken(values: npt.NDArray[Any], rows: Integers) -> Any:
    """Return these rows (M,) of an array (N,) or (N, V), in a file if they are many."""
    array = Aside.of(len(rows), int(np.prod(values.shape[1:])), values.dtype)
    for part in _parts(len(rows)):
        array.put(part, values[rows[part]])
    return array.values.reshape(len(rows), *values.shape[1:])


def _parts(rows: int) -> Iterator[slice]:
    return (slice(start, min(start + ROWS, rows)) for start in range(0, rows, ROWS))
