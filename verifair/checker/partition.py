"""Fairify's partition of a box: features with many values are cut into consecutive blocks, and every product of blocks is a part.

Every integer or categorical feature with more than `size` values in the box is cut into runs of `size` values from its lower
end, the last one shorter; protected, real-valued and smaller features keep their range. Part number n picks the blocks by its
digits, the last feature's first. Counts come out as published: 16,000 for Adult at size 10, 510 for Bank and 201 for German at
100. Reference: Fairify (Biswas and Rajan, ICSE 2023), section IV.

A store holds the verdicts on the parts, on disk as they are decided: checkpoint, report and certificate in one SQLite file.

`about` says which query of which network and schema it is, `chunks` holds runs of consecutive parts, each with its verdicts and
everything needed to re-prove or replay them (see `Chunk`). A killed run loses the chunk it was at; nothing is held in memory.
"""

from __future__ import annotations

import io
import json
import sqlite3
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from encoders.network import Array, Booleans, Integers
from encoders.problem import Domain
from verifair.errors import CertificateError, DataError

FORMAT = "verifair-partition/1"
WRITTEN = "a store that certify --partition wrote"
TABLES = {
    "about": "CREATE TABLE about (value TEXT)",
    "chunks": "CREATE TABLE chunks "
    "(first INTEGER PRIMARY KEY, count INTEGER, status BLOB, float32 INTEGER, nodes INTEGER, seconds REAL, arrays BLOB)",
}
"""How SQLite remembers our tables. A file with anything else in it (views, triggers, computed columns) could make SQLite compute
whatever its author likes."""
MAX_UNPACKED = 1 << 28
"""Bytes of a chunk's arrays: they hold some thousand questions."""
PBA = {"runs", "verdicts"}
"""Tables of the other store that we write (`verifair.engine.store`)."""
UNKNOWN, PROVED, VIOLATED = 0, 1, 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Partition:
    """lower, upper: (V,) the box.   width: (V,) values a block, 0 where a feature is not cut.   blocks: (V,) blocks of each."""

    lower: Array
    upper: Array
    width: Integers
    blocks: Integers
    integer: Booleans

    @classmethod
    def of(cls, domain: Domain, lower: Array, upper: Array, *, size: int, whole: list[int]) -> Partition:
        """Cut the raw box lower, upper (V,) into blocks of `size` values, but for the features `whole`."""
        values = upper - lower + 1
        cut = domain.integer & (values > size)
        cut[whole] = False
        blocks = np.where(cut, np.ceil(values / size), 1).astype(np.int64)
        return cls(lower=lower, upper=upper, width=np.where(cut, size, 0), blocks=blocks, integer=domain.integer)

    @property
    def count(self) -> int:
        """Number of parts."""
        return int(np.prod([int(n) for n in self.blocks], dtype=object))

    def boxes(self, part: Integers) -> tuple[Array, Array]:
        """Return raw boxes (B, V), (B, V) of the parts with the given numbers (B,)."""
        lower, upper = np.tile(self.lower, (len(part), 1)), np.tile(self.upper, (len(part), 1))
        rest = np.asarray(part, dtype=np.int64)
        for v in range(len(self.blocks) - 1, -1, -1):
            rest, digit = np.divmod(rest, self.blocks[v])
            if self.width[v]:
                lower[:, v] = self.lower[v] + digit * self.width[v]
                upper[:, v] = np.minimum(lower[:, v] + self.width[v] - 1, self.upper[v])
        return lower, upper

    def locate(self, raw: Array) -> Integers:
        """Return (N,) number of the part that holds each raw row (N, V), -1 for rows outside the box."""
        part = np.zeros(len(raw), dtype=np.int64)
        for v, count in enumerate(self.blocks):
            digit = np.floor((raw[:, v] - self.lower[v]) / self.width[v]).astype(np.int64) if self.width[v] else 0
            part = part * count + digit
        inside = ((raw >= self.lower) & (raw <= self.upper)).all(axis=1)
        return np.where(inside, part, -1)

    def volume(self, part: Integers) -> Array:
        """Return (B,) share of the box that each part holds: of its lattice points, and of the length of real features."""
        lower, upper = self.boxes(part)
        cut = self.width > 0
        points = np.where(cut, upper - lower + 1, 1.0)
        return np.asarray((points / np.where(cut, self.upper - self.lower + 1, 1.0)).prod(axis=1))


@dataclass(frozen=True, kw_only=True, eq=False)
class Chunk:
    """Verdicts on P consecutive parts, from part number `first`.

    float32: (P,) proved parts all of whose proofs are certified for float32.
    status: (P,) UNKNOWN, PROVED, VIOLATED.   reason: (P,) position in `verdict.Reason` of unknown ones, -1 else.
    Of the proved parts, question by question (part after part, the pairs of copies in their order; see `questions.Pairs`):
    size: (Q,) nodes of its tree, 0 where neuron branching proved it; feature, cut: the trees' nodes in preorder.
    phase_size: (2 F,) nodes of the phase trees (one for each direction) of the questions with size 0; phase_feature, phase_cut,
    phase_start (multipliers a node), phase_index, phase_value: as in `PhaseTree`, one after the other.
    Of the violated parts: pair, goal: (W,) which question fails in which direction; x: (W, V) raw witness; margins: (W, 2);
    agrees: (W,) 1 where float32 onnxruntime shows it too, 0 where not, -1 where it was not asked.
    """

    first: int
    status: npt.NDArray[np.int8]
    reason: npt.NDArray[np.int8]
    size: Integers
    feature: Integers
    cut: Array
    phase_size: Integers
    phase_feature: Integers
    phase_cut: Array
    phase_start: Integers
    phase_index: Integers
    phase_value: Array
    pair: Integers
    goal: Integers
    x: Array
    margins: Array
    agrees: npt.NDArray[np.int8]
    float32: npt.NDArray[np.int8]
    nodes: int
    seconds: float

    def __len__(self) -> int:
        return len(self.status)


ARRAYS = tuple(field.name for field in fields(Chunk) if field.name not in ("first", "nodes", "seconds"))
SMALL = {"size": np.int32, "feature": np.int32, "phase_size": np.int32, "phase_feature": np.int32, "phase_start": np.int32,
         "phase_index": np.int32, "pair": np.int32, "goal": np.int8}
REAL = ("cut", "phase_cut", "phase_value", "x", "margins")
WIDE = ("x", "margins")
"""Arrays of real numbers, and with two dimensions; the others are lists of whole numbers."""


class PartitionStore:
    """One run. Opening an existing file for another question is an error; `resume` keeps what it holds."""

    def __init__(self, path: str | Path, about: dict[str, Any] | None = None, *, resume: bool = False) -> None:
        self.path = Path(path)
        if about is None and not self.path.is_file():
            raise CertificateError(f"{self.path}: no such file; expected {WRITTEN}")
        try:
            self.connection = sqlite3.connect(self.path, timeout=60)
            try:
                if about is None:
                    self.about = self._found()
                else:
                    self._begin(about, resume)
            except BaseException:
                self.connection.close()  # or it would hold its lock
                raise
        except (sqlite3.Error, TypeError, ValueError, RecursionError) as error:
            if about is None:
                raise CertificateError(f"{self.path}: is a damaged SQLite file; expected {WRITTEN}") from error
            raise DataError(f"{self.path}: not a store of partitions ({error}); name another file with --store") from error

    def _tables(self) -> set[str]:
        return {name for (name,) in self.connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def _ours(self) -> bool:
        """Return whether the file holds our tables as we make them, and nothing else that SQLite would look at."""
        return dict(self.connection.execute("SELECT name, sql FROM sqlite_master")) == TABLES

    def _found(self) -> dict[str, Any]:
        """Return what a file says that it is about. Raises CertificateError for what is no store."""
        tables = self._tables()
        if tables >= PBA:
            raise CertificateError(
                f"{self.path}: is the store of a pba run, which holds verdicts; check the proofs that pba --certificate writes"
            )
        if not {"about", "chunks"} <= tables:
            holds = f"with the tables {', '.join(sorted(tables)[:5])}" if tables else "without tables"
            raise CertificateError(f"{self.path}: is an SQLite file {holds}; expected {WRITTEN}: name another file")
        if not self._ours():
            raise CertificateError(f"{self.path}: its tables are others than ours; expected {WRITTEN}: name another file")
        found = self.connection.execute("SELECT value FROM about").fetchone()
        about = None if found is None else json.loads(found[0])
        kind = about.get("format") if isinstance(about, dict) else None
        if not isinstance(about, dict) or kind != FORMAT:
            named = "names no format" if kind is None else f"has the format {kind!r}"
            raise CertificateError(f"{self.path}: {named}, expected {FORMAT}, {WRITTEN}: name another file")
        return about

    def _begin(self, about: dict[str, Any], resume: bool) -> None:
        self.about = {"format": FORMAT, **about}
        tables = self._tables()
        if tables - {"about", "chunks"}:
            raise ValueError(f"it has tables of its own: {', '.join(sorted(tables))}")
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute("PRAGMA synchronous=NORMAL")
        for statement in TABLES.values():
            self.connection.execute(statement.replace("TABLE", "TABLE IF NOT EXISTS", 1))
        if not self._ours():
            raise ValueError("its tables are others than ours")
        found = self.connection.execute("SELECT value FROM about").fetchone()
        if found is not None and (json.loads(found[0]) != self.about or not resume):
            same = json.loads(found[0]) == self.about
            what = "this question already; continue it with --resume, or" if same else "another question;"
            raise DataError(f"{self.path}: holds {what} name another file with --store")
        if found is None:
            self.connection.execute("INSERT INTO about VALUES (?)", (json.dumps(self.about),))
        self.connection.commit()

    def __enter__(self) -> PartitionStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise DataError(f"{self.path}: cannot be written ({error}); make room there, or name another file") from error

    def add(self, chunk: Chunk) -> None:
        """Keep a chunk, in one transaction. One of the same parts that is there already stays if it has more of them decided: it
        had more time."""
        packed = io.BytesIO()
        arrays = {name: getattr(chunk, name).astype(SMALL.get(name, getattr(chunk, name).dtype)) for name in ARRAYS}
        np.savez_compressed(packed, **arrays)
        status, certified = chunk.status.astype(np.int8).tobytes(), int(chunk.float32.sum())
        row = (chunk.first, len(chunk), status, certified, chunk.nodes, chunk.seconds, packed.getvalue())
        with self._writing(), self.connection:
            before = self.connection.execute("SELECT status FROM chunks WHERE first = ?", (chunk.first,)).fetchone()
            if before is None or np.count_nonzero(np.frombuffer(before[0], np.int8)) <= np.count_nonzero(chunk.status):
                self.connection.execute("INSERT OR REPLACE INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def statuses(self) -> Iterator[tuple[int, npt.NDArray[np.int8]]]:
        """Yield (first, status) of all chunks, in order: all that a report needs."""
        with readable(self.path):
            for first, count, status in self.connection.execute("SELECT first, count, status FROM chunks ORDER BY first"):
                kinds = np.frombuffer(status, dtype=np.int8) if isinstance(status, bytes) else np.empty(0, dtype=np.int8)
                if not 0 < len(kinds) == count or not np.isin(kinds, (UNKNOWN, PROVED, VIOLATED)).all():
                    raise CertificateError(f"{self.path}: {_damaged(first)}")
                yield first, kinds

    def certified(self) -> dict[int, int]:
        """Return how many parts of each chunk are said to be certified for float32, by the chunk's first part."""
        with readable(self.path):
            return {int(first): int(count) for first, count in self.connection.execute("SELECT first, float32 FROM chunks")}

    def effort(self) -> tuple[int, float]:
        """Boxes bounded and seconds of work of all chunks together."""
        with readable(self.path):
            nodes, seconds = self.connection.execute("SELECT SUM(nodes), SUM(seconds) FROM chunks").fetchone()
            return int(nodes or 0), float(seconds or 0.0)

    def chunks(self) -> Iterator[Chunk]:
        """Yield all chunks in order, one in memory at a time. Raises CertificateError for one that cannot be read."""
        with readable(self.path):
            numbers = [first for (first,) in self.connection.execute("SELECT first FROM chunks ORDER BY first")]
        yield from map(self.chunk, numbers)

    def chunk(self, first: int) -> Chunk:
        with readable(self.path):
            nodes, seconds, packed = self.connection.execute(
                "SELECT nodes, seconds, arrays FROM chunks WHERE first = ?", (first,)
            ).fetchone()
        try:
            with zipfile.ZipFile(io.BytesIO(packed)) as zipped:
                if sum(file.file_size for file in zipped.infolist()) > MAX_UNPACKED:
                    raise ValueError(f"its arrays are larger than {MAX_UNPACKED >> 20} MiB")
            with np.load(io.BytesIO(packed), allow_pickle=False) as content:
                arrays = {name: content[name] for name in ARRAYS}
            for name, value in arrays.items():
                if value.dtype.kind != ("f" if name in REAL else "i") or value.ndim != (2 if name in WIDE else 1):
                    raise ValueError(f"{name} is an array of another kind")
        except Exception as error:  # numpy, zipfile and tokenize raise nearly everything where bytes were changed
            raise CertificateError(f"{self.path}: {_damaged(first)}") from error
        wide = {name: value.astype(np.int64) if value.dtype == np.int32 else value for name, value in arrays.items()}
        return Chunk(first=first, nodes=nodes, seconds=seconds, **wide)


@contextmanager
def readable(store: Path) -> Iterator[None]:
    """Raise CertificateError where SQLite cannot read a store, or its columns hold something else."""
    try:
        yield
    except (sqlite3.Error, TypeError, ValueError, OverflowError) as error:
        raise CertificateError(f"{store}: is damaged; expected {WRITTEN}: copy it again, or run again") from error


def _damaged(first: int) -> str:
    return f"the chunk of part {first} is damaged; expected {WRITTEN}: copy it again, or run again"
