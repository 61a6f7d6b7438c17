"""Fairify's partition of a box: features with many values are cut into consecutive blocks, and every product of blocks is a part.

Every integer or categorical feature with more than `size` values in the box is cut into runs of `size` values from its lower
end, the last one shorter; protected, real-valued and smaller features keep their range. Part number n picks the blocks by its
digits, the last feature's first. Counts come out as published: 16,000 for Adult at size 10, 510 for Bank and 201 for German at
100. Reference: Fairify (Biswas and Rajan, ICSE 2023), section IV.

A store holds the verdicts on the parts, on disk as they are decided: checkpoint, report and certificate in one SQLite file.

`about` says which query of which network and schema it is, and how many parts that makes; `chunks` holds runs of consecutive parts,
each with its verdicts and everything needed to re-prove or replay them (see `Chunk`); `extent` says how many parts are proved,
refuted, undecided and not reached. It is written in the transaction of each chunk, so that the file of a killed run, which loses
the chunk it was at, states what it holds and what it lacks. Nothing is held in memory.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter

from encoders.arrays import Array, Booleans, Integers
from encoders.domain import Domain
from verifair.checker.certificates.envelope import of_another_version
from verifair.checker.certificates.extent import Extent
from verifair.errors import CertificateError, DataError, NoProofs

FORMAT = "verifair-partition/4"
FAMILY = FORMAT.rpartition("/")[0]
WRITTEN = "a store that certify --partition wrote"
TABLES = {
    "about": "CREATE TABLE about (value TEXT)",
    "extent": "CREATE TABLE extent (value TEXT)",
    "chunks": "CREATE TABLE chunks "
    "(first INTEGER PRIMARY KEY, count INTEGER, status BLOB, float32 INTEGER, nodes INTEGER, seconds REAL, arrays BLOB)",
}
"""The tables of a store as SQLite describes them. A file with anything else (views, triggers, computed columns) could make SQLite
run code of the file's author."""
MAX_UNPACKED = 1 << 28
"""The most bytes of a chunk's arrays, which hold some thousand questions."""
PBA = {"runs", "verdicts"}
"""Tables of verifair's other kind of store (`verifair.engine.store`)."""
UNKNOWN, PROVED, VIOLATED = 0, 1, 2
COLUMNS = "first, status, nodes, seconds, arrays"
EXTENT = TypeAdapter(Extent)


@dataclass(frozen=True, kw_only=True, eq=False)
class Partition:
    """lower, upper: (V,) the box.   width: (V,) values per block, 0 for a feature that is not cut.   blocks: (V,) their numbers."""

    lower: Array
    upper: Array
    width: Integers
    blocks: Integers
    integer: Booleans

    @classmethod
    def of(cls, domain: Domain, lower: Array, upper: Array, *, size: int, whole: list[int]) -> Partition:
        """Cut the raw box lower, upper (V,) into blocks of `size` values, except along the features `whole`."""
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

    def volume(self, part: Integers) -> Array:
        """Return (B,) the share of the box that each part holds, by lattice points times lengths of real features."""
        lower, upper = self.boxes(part)
        cut = self.width > 0
        points = np.where(cut, upper - lower + 1, 1.0)
        return np.asarray((points / np.where(cut, self.upper - self.lower + 1, 1.0)).prod(axis=1))


@dataclass(frozen=True, kw_only=True, eq=False)
class Chunk:
    """Verdicts on P consecutive parts, from part number `first`.

    float32: (P,) proved parts all of whose proofs are certified for float32.
    status: (P,) UNKNOWN, PROVED, VIOLATED.   reason: (P,) position in `verdict.Reason` of unknown ones, -1 else.
    Of the proved parts, question by question (part after part, the pairs of copies in their order; see `questions.Pairs`) one tree
    for each direction: size: (2 Q,) its nodes; feature, cut, count (multipliers a node), index, value: as in `Tree`, one tree
    after the other.
    Of the violated parts: pair, goal: (W,) which question fails in which direction; x: (W, V) raw witness; margins: (W, 2);
    agrees: (W,) 1 where float32 onnxruntime shows it too, 0 where not, -1 where it was not asked.
    """

    first: int
    status: npt.NDArray[np.int8]
    reason: npt.NDArray[np.int8]
    size: Integers
    feature: Integers
    cut: Array
    count: Integers
    index: Integers
    value: Array
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


ARRAYS = {
    "reason": "<i1", "size": "<i4", "feature": "<i4", "cut": "<f8", "count": "<i4", "index": "<i4", "value": "<f8",
    "pair": "<i4", "goal": "<i1", "x": "<f8", "margins": "<f8", "agrees": "<i1", "float32": "<i1",
}
"""The arrays of a chunk that `pack` writes, in this order, and their types; the status has a column of its own."""
WIDE = ("x", "margins")
"""Arrays with two dimensions."""


def pack(chunk: Chunk) -> bytes:
    """Return a chunk's arrays, compressed: the shapes (rows and columns of each, in the order of ARRAYS), then the numbers."""
    arrays = [np.ascontiguousarray(getattr(chunk, name), dtype=kind) for name, kind in ARRAYS.items()]
    shapes = np.array([[len(array), array.shape[1] if array.ndim == 2 else 1] for array in arrays], dtype="<i8")
    return zlib.compress(b"".join([shapes.tobytes(), *(array.tobytes() for array in arrays)]))


def unpack(packed: bytes) -> dict[str, Any]:
    """Return the arrays that `pack` packed. Raises ValueError or zlib.error for other bytes."""
    unpacking = zlib.decompressobj()
    content = unpacking.decompress(packed, MAX_UNPACKED)
    if not unpacking.eof or unpacking.unused_data:
        raise ValueError(f"its arrays are cut off, or larger than {MAX_UNPACKED >> 20} MiB")
    start = 16 * len(ARRAYS)
    shapes = np.frombuffer(content[:start], dtype="<i8").reshape(len(ARRAYS), 2).tolist()
    arrays = {}
    for (name, kind), (rows, columns) in zip(ARRAYS.items(), shapes, strict=True):
        if not (0 <= rows <= MAX_UNPACKED and 0 <= columns <= MAX_UNPACKED and (columns == 1 or name in WIDE)):
            raise ValueError(f"{name} has no such shape")
        array = np.frombuffer(content, dtype=kind, count=rows * columns, offset=start)
        start += array.nbytes
        array = array.reshape(rows, columns) if name in WIDE else array
        arrays[name] = array.astype(np.int64) if kind == "<i4" else array
    if start != len(content):
        raise ValueError("it has bytes left over")
    return arrays


class PartitionStore:
    """One run. Opening an existing file for another question is an error; `resume` keeps what it holds.

    about: has to hold "parts", their number.
    """

    def __init__(self, path: str | Path, about: dict[str, Any] | None = None, *, resume: bool = False) -> None:
        self.path = Path(path)
        if about is None and not self.path.is_file():
            raise CertificateError(f"{self.path}: no such file; expected {WRITTEN}")
        try:
            self.connection = sqlite3.connect(self.path, timeout=60, check_same_thread=False)
            try:
                if about is None:
                    self.about = self._stored()
                else:
                    self._begin(about, resume)
            except BaseException:
                self.connection.close()  # or it would hold its lock
                raise
        except (sqlite3.Error, TypeError, ValueError, RecursionError) as error:
            if about is None:
                raise CertificateError(f"{self.path}: is a damaged SQLite file; expected {WRITTEN}") from error
            raise DataError(f"{self.path}: no store of partitions ({error}); make room, or name another with --store") from error

    def _tables(self) -> set[str]:
        return {name for (name,) in self.connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def _definitions(self) -> dict[str, str]:
        """Return the definitions of all objects in the file; a valid store has the tables above and nothing else."""
        return dict(self.connection.execute("SELECT name, sql FROM sqlite_master"))

    def _named(self) -> str | None:
        """Return the format that the file's `about` names; None without one, or if that table is not defined as above."""
        definitions = self._definitions()
        if definitions.get("about") != TABLES["about"] or not definitions.items() <= TABLES.items():
            return None
        row = self.connection.execute("SELECT value FROM about").fetchone()
        about = None if row is None else json.loads(row[0])
        kind = about.get("format") if isinstance(about, dict) else None
        return kind if isinstance(kind, str) else None

    def _stored(self) -> dict[str, Any]:
        """Return the file's `about`. Raises CertificateError if the file is not a store."""
        tables = self._tables()
        if tables >= PBA:
            holds = "is the store of a pba run, which holds verdicts; check the certificates that pba --out writes"
            raise NoProofs(f"{self.path}: {holds}")
        if not {"about", "chunks"} <= tables:
            holds = f"with the tables {', '.join(sorted(tables)[:5])}" if tables else "without tables"
            raise CertificateError(f"{self.path}: is an SQLite file {holds}; expected {WRITTEN}: name another file")
        kind = self._named()
        if kind is not None and kind != FORMAT and kind.startswith(f"{FAMILY}/"):
            raise CertificateError(f"{self.path}: {of_another_version(kind, FORMAT)}")
        if self._definitions() != TABLES:
            raise CertificateError(f"{self.path}: its tables are others than ours; expected {WRITTEN}: name another file")
        if kind != FORMAT:
            named = "names no format" if kind is None else f"has the format {kind!r}"
            raise CertificateError(f"{self.path}: {named}, expected {FORMAT}, {WRITTEN}: name another file")
        about: dict[str, Any] = self._only("about")
        return about

    def _only(self, table: str) -> Any:
        """Return the value in a table with a single row."""
        lines = self.connection.execute(f"SELECT value FROM {table} LIMIT 2").fetchall()
        if len(lines) != 1:
            raise ValueError(f"{table} has {'more than one line' if lines else 'no line'}")
        return json.loads(json.dumps(json.loads(lines[0][0]), allow_nan=False))  # rejects NaN and inf, of which there is no digest

    @property
    def extent(self) -> Extent:
        """The extent that the file states. Raises CertificateError if it cannot be read."""
        with readable(self.path):
            return EXTENT.validate_python(self._only("extent"))

    def _begin(self, about: dict[str, Any], resume: bool) -> None:
        self.about = {"format": FORMAT, **about}
        tables = self._tables()
        if tables - set(TABLES):
            raise ValueError(f"it has tables of its own: {', '.join(sorted(tables))}")
        kind = self._named()
        if kind is not None and kind != FORMAT:
            raise DataError(f"{self.path}: {of_another_version(kind, FORMAT)} in another file (--store)")
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute("PRAGMA synchronous=NORMAL")
        for statement in TABLES.values():
            self.connection.execute(statement.replace("TABLE", "TABLE IF NOT EXISTS", 1))
        if self._definitions() != TABLES:
            raise ValueError("its tables are others than ours")
        row = self.connection.execute("SELECT value FROM about").fetchone()
        if row is not None and (json.loads(row[0]) != self.about or not resume):
            is_same = json.loads(row[0]) == self.about
            content = "this question already; continue it with --resume, or" if is_same else "another question;"
            raise DataError(f"{self.path}: holds {content} name another file with --store")
        if row is None:
            self.connection.execute("INSERT INTO about VALUES (?)", (json.dumps(self.about),))
            empty = Extent.of(self.about, not_reached=self.about["parts"])
            self.connection.execute("INSERT INTO extent VALUES (?)", (json.dumps(asdict(empty)),))
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
        """Store a chunk, and update the extent, in one transaction. An earlier chunk of the same parts stays if it decides more of
        them."""
        status = chunk.status.astype(np.int8)
        certified = int(chunk.float32.sum())
        row = (chunk.first, len(chunk), status.tobytes(), certified, chunk.nodes, chunk.seconds, pack(chunk))
        with readable(self.path), self._writing(), self.connection:
            self.connection.execute("BEGIN IMMEDIATE")  # nobody else writes between what is read here and what is written
            stored = self.connection.execute("SELECT status FROM chunks WHERE first = ?", (chunk.first,)).fetchone()
            old_status = np.frombuffer(b"" if stored is None else stored[0], dtype=np.int8)
            if stored is None or np.count_nonzero(old_status) <= np.count_nonzero(status):
                self.connection.execute("INSERT OR REPLACE INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?)", row)
                old_extent = self.extent
                counts = np.array([old_extent.undecided, old_extent.proved, old_extent.refuted])
                counts += [int((status == code).sum()) - int((old_status == code).sum()) for code in (UNKNOWN, PROVED, VIOLATED)]
                new_extent = extent_of(self.about, old_extent.total, counts)
                self.connection.execute("UPDATE extent SET value = ?", (json.dumps(asdict(new_extent)),))

    def statuses(self) -> Iterator[tuple[int, npt.NDArray[np.int8]]]:
        """Yield (first, status) of all chunks, in order. A report needs no more than these."""
        with readable(self.path):
            for first, count, status in self.connection.execute("SELECT first, count, status FROM chunks ORDER BY first"):
                kinds = np.frombuffer(status, dtype=np.int8) if isinstance(status, bytes) else np.empty(0, dtype=np.int8)
                if not 0 < len(kinds) == count or not np.isin(kinds, (UNKNOWN, PROVED, VIOLATED)).all():
                    raise CertificateError(f"{self.path}: {damaged(first)}")
                yield first, kinds

    def certified(self) -> dict[int, int]:
        """Return the stated number of parts certified for float32 in each chunk, by the chunk's first part."""
        with readable(self.path):
            return {int(first): int(count) for first, count in self.connection.execute("SELECT first, float32 FROM chunks")}

    def chunks(self) -> Iterator[Chunk]:
        """Yield all chunks in order, one in memory at a time. Raises CertificateError for one that cannot be read."""
        with readable(self.path):
            yield from map(self._chunk, self.connection.execute(f"SELECT {COLUMNS} FROM chunks ORDER BY first"))

    def chunk(self, first: int) -> Chunk:
        with readable(self.path):
            return self._chunk(self.connection.execute(f"SELECT {COLUMNS} FROM chunks WHERE first = ?", (first,)).fetchone())

    def _chunk(self, row: tuple[Any, ...]) -> Chunk:
        first, status, nodes, seconds, packed = row
        try:
            arrays = unpack(packed)
        except (ValueError, TypeError, zlib.error) as error:
            raise CertificateError(f"{self.path}: {damaged(first)}") from error
        return Chunk(first=first, status=np.frombuffer(status, dtype=np.int8), nodes=nodes, seconds=seconds, **arrays)


@contextmanager
def readable(store: Path) -> Iterator[None]:
    """Raise CertificateError where SQLite cannot read a store, or its columns hold something else."""
    try:
        yield
    except (sqlite3.Error, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise CertificateError(f"{store}: is damaged; expected {WRITTEN}: copy it again, or run again") from error


def extent_of(about: dict[str, Any], total: int, counts: Iterable[int]) -> Extent:
    """Return the extent of a store. counts: of parts that are unknown, proved, violated; the rest of the total is not reached."""
    undecided, proved, refuted = map(int, counts)
    return Extent.of(
        about, proved=proved, refuted=refuted, undecided=undecided, not_reached=max(0, total - undecided - proved - refuted)
    )


def damaged(first: int) -> str:
    """Return the message about a chunk that is malformed."""
    return f"the chunk of part {first} is damaged; expected {WRITTEN}: copy it again, or run again"
