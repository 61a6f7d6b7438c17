"""Stores of verdicts, and of other parts of an answer, as they are made: one SQLite file in write-ahead mode, so that a killed run
loses at most one batch."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Self

import pandas as pd
from pydantic_core import to_json

from verifair.checker.certificates.tree import Tree, TreeFile
from verifair.engine.verdict import Reason, Status
from verifair.errors import DataError


class VerdictRecord(NamedTuple):
    """One verdict of a batch run.

    sensitive, group, to: the sensitive feature, the row's own raw value, and its counterfactual's (the row's own again where
    none is involved).   row: position in the data.   label: its true class.   against: the other class.
    goal: observed, flipped, robust or robust-flipped.   witness: JSON raw x (V,) or None.   tree: JSON arrays or None.
    claim: JSON backend, version and tolerance of a proof that only a solver claims.   trust: checked, claimed or ''.
    float32: True if a proof is certified for float32, None if nothing is proved.
    """

    sensitive: str
    goal: str
    delta: float
    row: int
    to: float
    against: int
    group: float
    label: int
    status: str
    reason: str
    lower: float
    upper: float
    engine: str
    trust: str
    float32_agrees: bool | None
    nodes: int
    witness: str | None
    margins: str | None
    tree: str | None
    claim: str | None
    float32: bool | None


KEY = ("sensitive", "goal", "delta", "row", "to", "against")
COLUMNS = VerdictRecord._fields
RETRY = tuple(reason.value for reason in (Reason.TIME, Reason.NODES, Reason.MEMORY, Reason.INTERRUPTED, Reason.SOLVER_ERROR))
"""Reasons of UNKNOWN verdicts that a resumed run asks about again."""

GOALS = ("observed", "flipped", "robust", "robust-flipped")
PROVED, OPEN, REFUTED = range(3)
_RANK = f"CASE status WHEN 'proved' THEN {PROVED} WHEN 'unknown' THEN {OPEN} ELSE {REFUTED} END"
LINES = 1 << 15
"""Verdicts read at once, where not all are kept in memory."""
_SETTLED = f"(reason NOT IN ({', '.join('?' * len(RETRY))}) OR (reason = ? AND nodes >= ?))"
_UNLIMITED = 2**63 - 1
_NAMES = ", ".join(f'"{name}"' for name in COLUMNS)
_KEY = ", ".join(f'"{name}"' for name in KEY)
_ORDERED = f"SELECT {_NAMES} FROM verdicts WHERE run = ? {{}} ORDER BY {_KEY}"
TABLES: dict[str, str] = {
    "runs": "CREATE TABLE runs (run TEXT PRIMARY KEY, description TEXT)",
    "verdicts": f"CREATE TABLE verdicts (run TEXT, {_NAMES}, seal TEXT, PRIMARY KEY (run, {_KEY}))",
}
"""The only tables of a store of verdicts. seal: the hash of everything else in the line, which reveals damage."""


class RunStore:
    """A store of one kind in a file that verifair wrote.   tables: the only ones in it.   holds: its content, in words."""

    tables: ClassVar[dict[str, str]]
    holds: ClassVar[str]

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._ours():
            self.connection = sqlite3.connect(self.path, timeout=60)  # another run may be writing
        try:
            self._make_tables()
        except BaseException:
            self.connection.close()  # or it would hold its lock
            raise

    def _make_tables(self) -> None:
        """Create the tables in a new file. A file with any others is refused: views, triggers and computed columns could run
        code."""
        with self._ours():
            query = "SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_autoindex%'"
            existing = dict(self.connection.execute(query))
            if not existing:
                self.connection.execute("PRAGMA journal_mode=WAL")
                self.connection.execute("BEGIN IMMEDIATE")  # each CREATE TABLE would commit by itself: a kill could leave only one
                for statement in self.tables.values():
                    self.connection.execute(statement.replace("TABLE", "TABLE IF NOT EXISTS", 1))
                self.connection.commit()
                existing = dict(self.connection.execute(query))
            if existing != self.tables:
                raise ValueError("its tables are others than ours")
            self.connection.execute("PRAGMA synchronous=NORMAL")

    @contextmanager
    def _ours(self) -> Iterator[None]:
        """Context: raises DataError if SQLite cannot read the file, if verifair did not write it, or if its disk is full."""
        try:
            yield
        except (sqlite3.Error, pd.errors.DatabaseError, TypeError, ValueError) as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):  # of its journal
                remedy = "what was decided before is kept: make room there, then run the same command with --resume"
                raise DataError(f"{self.path}: {error}; {remedy}") from error
            problem = f"no {self.holds} store that can be used ({error})"
            raise DataError(f"{self.path}: {problem}; name another file with --store") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.connection.close()


class Store(RunStore):
    """Verdicts of one or more runs; a run is named by the hash of everything that determines its answers."""

    tables, holds = TABLES, "verdict"

    def begin(self, run: str, description: dict[str, Any], *, resume: bool) -> None:
        """Start a run, or continue it; without `resume` earlier verdicts of the same run are discarded.

        Raises DataError if a line of the run to be continued was changed after it was written.
        """
        with self._ours():
            if not resume:
                self.connection.execute("DELETE FROM verdicts WHERE run = ?", (run,))
            for *line, seal in self.connection.execute(f"SELECT {_NAMES}, seal FROM verdicts WHERE run = ?", (run,)):
                if _seal(run, line) != seal:
                    raise ValueError("a line of it is damaged")
            self.connection.execute("INSERT OR REPLACE INTO runs VALUES (?, ?)", (run, json.dumps(description)))
            self.connection.commit()

    def add(self, run: str, records: Iterable[VerdictRecord]) -> None:
        """Add records in one transaction: either all of a batch are kept or none. Decided verdicts are never overwritten."""
        marks = ", ".join("?" * (len(COLUMNS) + 2))
        update = ", ".join(f'"{name}" = excluded."{name}"' for name in (*COLUMNS, "seal") if name not in KEY)
        rule = f"ON CONFLICT (run, {_KEY}) DO UPDATE SET {update} WHERE verdicts.status = '{Status.UNKNOWN.value}'"
        lines = [[int(v) if v is True or v is False else v if v == v else None for v in row] for row in records]    # as read back
        with self._ours(), self.connection:
            self.connection.executemany(
                f"INSERT INTO verdicts VALUES ({marks}) {rule}", [(run, *line, _seal(run, line)) for line in lines]
            )

    def decided(
        self, run: str, nodes: int | None = None, *, sensitive: str, delta: float, rows: tuple[int, int]
    ) -> set[tuple[Any, ...]]:
        """Return the keys of the verdicts on rows low .. high that need not be asked again.

        nodes: the limit of a question now; a question that had as many and needed more would end the same way.

        Uses a connection of its own: batches are planned in another thread than the one that stores them.
        """
        condition = f'goal IN ({_marks(GOALS)}) AND delta = ? AND row BETWEEN ? AND ?'
        with self._ours(), closing(sqlite3.connect(self.path, timeout=60)) as connection:
            cursor = connection.execute(
                f"SELECT {_KEY} FROM verdicts WHERE run = ? AND sensitive = ? AND {condition} AND {_SETTLED}",
                (run, sensitive, *GOALS, delta, *rows, *_settled(nodes)),
            )
            return set(cursor.fetchall())

    def count_decided(self, run: str, nodes: int | None = None) -> int:
        """Return the number of verdicts that need not be asked again."""
        with self._ours():
            query = f"SELECT COUNT(*) FROM verdicts WHERE run = ? AND {_SETTLED}"
            return int(self.connection.execute(query, (run, *_settled(nodes))).fetchone()[0])


class PartStore(RunStore):
    """A store of bytes, one line for each part of an answer; a part is named by the hash of everything that determines it."""

    tables: ClassVar = {"parts": "CREATE TABLE parts (part TEXT PRIMARY KEY, content BLOB, seal TEXT)"}
    holds = "part"

    def __len__(self) -> int:
        with self._ours():
            return int(self.connection.execute("SELECT COUNT(*) FROM parts").fetchone()[0])

    def __contains__(self, part: str) -> bool:
        with self._ours():
            return self.connection.execute("SELECT 1 FROM parts WHERE part = ?", (part,)).fetchone() is not None

    def get(self, part: str, size: int) -> bytes:
        """Return a stored part of `size` bytes. Raises DataError if it was changed after it was written."""
        with self._ours():
            query = "SELECT content, seal FROM parts WHERE part = ? AND typeof(content) = 'blob' AND length(content) = ?"
            content, seal = self.connection.execute(query, (part, size)).fetchone() or (b"", None)
            if seal != _seal_of(part, content):
                raise ValueError("a line of it is damaged")
            return bytes(content)

    def add(self, part: str, content: bytes) -> None:
        """Store a part, in a transaction of its own."""
        with self._ours(), self.connection:
            self.connection.execute("INSERT OR REPLACE INTO parts VALUES (?, ?, ?)", (part, content, _seal_of(part, content)))


def _seal_of(part: str, content: bytes) -> str:
    return hashlib.sha256(part.encode() + content).hexdigest()


def _settled(nodes: int | None) -> tuple[Any, ...]:
    return *RETRY, Reason.NODES.value, _UNLIMITED if nodes is None else nodes


@dataclass(frozen=True, kw_only=True, eq=False)
class Verdicts:
    """The verdicts of one run, counted in their store and read from it in parts.

    sensitive, deltas: of its query.   scratch: a temporary folder of the store, which is deleted with these verdicts.
    """

    path: Path
    run: str
    sensitive: str
    deltas: tuple[float, ...]
    scratch: bool = False

    def __post_init__(self) -> None:
        if self.scratch:
            weakref.finalize(self, shutil.rmtree, self.path.parent, ignore_errors=True)

    def __len__(self) -> int:
        return int(self._select("SELECT COUNT(*) AS number FROM verdicts WHERE run = ?")["number"].iloc[0])

    def frame(self) -> pd.DataFrame:
        """Return all verdicts, one a line, in a fixed order."""
        return _typed(self._select(_ORDERED.format("")))

    def parts(self) -> Iterator[pd.DataFrame]:
        """Yield the same in tables of at most LINES verdicts."""
        with Store(self.path) as store, store._ours():
            yield from map(_typed, pd.read_sql_query(_ORDERED.format(""), store.connection, params=(self.run,), chunksize=LINES))

    def of_rows(self, low: int, high: int) -> pd.DataFrame:
        """Return the verdicts on rows low .. high - 1 of the table, in the same order."""
        key = f"AND sensitive = ? AND goal IN ({_marks(GOALS)}) AND delta IN ({_marks(self.deltas)}) AND row >= ? AND row < ?"
        return _typed(self._select(_ORDERED.format(key), self.sensitive, *GOALS, *self.deltas, low, high))

    def tally(self, *columns: str) -> pd.DataFrame:
        """Return the number of verdicts (`number`) for every combination of values in the columns."""
        names = ", ".join(f'"{name}"' for name in columns)
        return self._select(f"SELECT {names}, COUNT(*) AS number FROM verdicts WHERE run = ? GROUP BY {names}")

    def answers(self, *, labels: Sequence[int] | None = None, against: Sequence[int] | None = None) -> pd.DataFrame:
        """Return the numbers of rows (`people`): one line for each combination of sensitive, delta, group, to, label, and of the
        answers to the GOALS, which are PROVED, OPEN or REFUTED, and missing if a goal was not asked.

        A row counts as proved if it is proved against every other class, as refuted if it is refuted against some class.
        labels, against: only verdicts on rows of these classes, and against those.
        """
        condition = "".join(
            f" AND {name} IN ({', '.join(map(str, map(int, classes)))})"
            for name, classes in (("label", labels), ("against", against)) if classes is not None
        )
        columns = ", ".join(f"MAX(CASE goal WHEN '{goal}' THEN {_RANK} END) AS \"{goal}\"" for goal in GOALS)
        keys, goals = 'sensitive, delta, "group", "to", label', ", ".join(f'"{goal}"' for goal in GOALS)
        rows = f'SELECT {keys}, {columns} FROM verdicts WHERE run = ?{condition} GROUP BY sensitive, delta, row, "to"'
        table = self._select(f"SELECT {keys}, {goals}, COUNT(*) AS people FROM ({rows}) GROUP BY {keys}, {goals}")
        return table.astype(dict.fromkeys(GOALS, float))

    def biased(self) -> pd.DataFrame:
        """Return a line for each sensitive and delta: the number of rows asked about (`people`), of those with a bias proved
        against some other value, in either direction (`proved`), and of those with no proof and something open.
        """
        inner = (
            f"SELECT sensitive, delta, row, MAX({_RANK}) AS answer FROM verdicts "
            "WHERE run = ? AND goal IN ('observed', 'flipped') GROUP BY sensitive, delta, row, \"to\", goal"
        )
        rows = f"SELECT sensitive, delta, MIN(answer) AS answer FROM ({inner}) GROUP BY sensitive, delta, row"
        counts = f"COUNT(*) AS people, SUM(answer = {PROVED}) AS proved, SUM(answer = {OPEN}) AS unknown"
        return self._select(f"SELECT sensitive, delta, {counts} FROM ({rows}) GROUP BY sensitive, delta")

    def ties(self, error: float) -> tuple[int, int]:
        """Return the number of counterexamples that are exact ties, and of others within the error of float32.

        A tie: both compared margins are the same, or the only margin is 0.   error: of one margin.
        """
        first, second = (f"json_extract(margins, '$[{k}]')" for k in (0, 1))
        difference = f"CASE WHEN goal IN ('observed', 'flipped') THEN ABS({first} - {second}) / 2 ELSE ABS({first}) END"
        table = self._select(
            f"SELECT COALESCE(SUM(apart = 0), 0) AS ties, COALESCE(SUM(apart > 0 AND apart <= {error!r}), 0) AS near FROM "
            f"(SELECT {difference} AS apart FROM verdicts WHERE run = ? AND status = 'violated')"
        )
        return int(table["ties"].iloc[0]), int(table["near"].iloc[0])

    @property
    def complementary(self) -> bool:
        """True if no row is proved in both directions (observed + flipped <= 100 %), a soundness test of PBA at no cost."""
        condition = " AND ".join(f'a."{name}" = b."{name}"' for name in ("run", *KEY) if name != "goal")
        table = self._select(
            f"SELECT 1 AS number FROM verdicts a JOIN verdicts b ON {condition} WHERE a.run = ? AND a.goal = 'observed' "
            "AND b.goal = 'flipped' AND a.status = 'proved' AND b.status = 'proved' LIMIT 1"
        )
        return not len(table)

    def _select(self, query: str, *values: Any) -> pd.DataFrame:
        with Store(self.path) as store, store._ours():
            return pd.read_sql_query(query, store.connection, params=(self.run, *values))


def _typed(lines: pd.DataFrame) -> pd.DataFrame:
    return lines.astype({"lower": float, "upper": float, "to": float, "group": float})


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))


def _seal(run: str, line: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps([run, *line]).encode()).hexdigest()


def dump_tree(tree: Tree | None, margin: float | None) -> str | None:
    """Return a proof's tree and margin as text."""
    return None if tree is None else json.dumps({"margin": margin, **tree.to_dict()})


def load_tree(text: str) -> tuple[Tree, float | None]:
    """Return the tree and the margin that `dump_tree` wrote."""
    content = json.loads(text)
    margin: float | None = content.pop("margin")
    return TreeFile(**content).tree(), margin


def json_lines(verdicts: pd.DataFrame) -> Iterator[bytes]:
    """Yield one JSON object for each line; numbers keep all their digits, infinities and missing values become null."""
    for record in verdict_records(verdicts):
        yield to_json(record._asdict(), inf_nan_mode="null") + b"\n"


def verdict_records(verdicts: pd.DataFrame) -> Iterator[VerdictRecord]:
    """Yield the lines of a table of verdicts as records."""
    return map(VerdictRecord._make, zip(*(verdicts[name].astype(object).tolist() for name in COLUMNS), strict=True))
