"""Verdicts on disk as they are decided: one SQLite file in write-ahead mode, so that a killed run loses at most one batch."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pandas as pd

from verifair.checker.tree import Tree, TreeFile
from verifair.engine.verdict import Reason, Status
from verifair.errors import DataError


@dataclass(frozen=True, kw_only=True)
class VerdictRecord:
    """One verdict of a batch run.

    sensitive, group, to: the sensitive feature, the row's own raw value, and its counterfactual's (the row's own again where
    none is involved).   row: position in the data.   label: its true class.   against: the other class.
    goal: observed, flipped, robust or robust-flipped.   witness: JSON raw x (V,) or None.   tree: JSON arrays or None.
    claim: JSON backend, version and tolerance of a proof that only a solver claims.   trust: checked, claimed or ''.
    float32: whether a proof is certified for float32, None where nothing is proved.
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
COLUMNS = tuple(field.name for field in fields(VerdictRecord))
RETRY = tuple(reason.value for reason in (Reason.TIME, Reason.NODES, Reason.MEMORY, Reason.INTERRUPTED, Reason.SOLVER_ERROR))
"""Reasons for which a resumed run asks again."""

_UNLIMITED = 2**63 - 1
_NAMES = ", ".join(f'"{name}"' for name in COLUMNS)
_KEY = ", ".join(f'"{name}"' for name in KEY)
TABLES = {
    "runs": "CREATE TABLE runs (run TEXT PRIMARY KEY, description TEXT)",
    "verdicts": f"CREATE TABLE verdicts (run TEXT, {_NAMES}, seal TEXT, PRIMARY KEY (run, {_KEY}))",
}
"""The only ones that a store holds. seal: the hash of everything else in the line, by which damage is noticed."""


class Store:
    """Verdicts of one or more runs; a run is named by the hash of everything that determines its answers."""

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
        """In a new file. One with others is somebody else's; views, triggers and computed columns would run with our statements."""
        with self._ours():
            query = "SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_autoindex%'"
            found = dict(self.connection.execute(query))
            if not found:
                self.connection.execute("PRAGMA journal_mode=WAL")
                for statement in TABLES.values():
                    self.connection.execute(statement.replace("TABLE", "TABLE IF NOT EXISTS", 1))
                self.connection.commit()
                found = dict(self.connection.execute(query))
            if found != TABLES:
                raise ValueError("its tables are others than ours")
            self.connection.execute("PRAGMA synchronous=NORMAL")

    @contextmanager
    def _ours(self) -> Iterator[None]:
        """Raise DataError where SQLite cannot read the file, or we did not write it."""
        try:
            yield
        except (sqlite3.Error, TypeError, ValueError) as error:
            raise DataError(f"{self.path}: no verdict store that can be used ({error}); name another file with --store") from error

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.connection.close()

    def begin(self, run: str, description: dict[str, Any], *, resume: bool) -> None:
        """Start a run, or continue it; without `resume` earlier verdicts of the same run are discarded.

        Raises DataError where a line that is to be continued from is not as it was written.
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
        """One transaction: either all records of a batch are kept or none. What is decided is never overwritten."""
        marks = ", ".join("?" * (len(COLUMNS) + 2))
        update = ", ".join(f'"{name}" = excluded."{name}"' for name in (*COLUMNS, "seal") if name not in KEY)
        keep = f"ON CONFLICT (run, {_KEY}) DO UPDATE SET {update} WHERE verdicts.status = '{Status.UNKNOWN.value}'"
        lines = [[_plain(value) for value in vars(record).values()] for record in records]
        with self._ours(), self.connection:
            self.connection.executemany(
                f"INSERT INTO verdicts VALUES ({marks}) {keep}", [(run, *line, _seal(run, line)) for line in lines]
            )

    def decided(self, run: str, nodes: int | None = None) -> set[tuple[Any, ...]]:
        """Return the keys of the verdicts that need not be asked again. nodes: what a question may take now; one that had as many
        and needed more would end the same way."""
        marks = ", ".join("?" * len(RETRY))
        spent = "reason = ? AND nodes >= ?"
        with self._ours():
            found = self.connection.execute(
                f"SELECT {_KEY} FROM verdicts WHERE run = ? AND (reason NOT IN ({marks}) OR ({spent}))",
                (run, *RETRY, Reason.NODES.value, _UNLIMITED if nodes is None else nodes),
            )
            return set(found.fetchall())

    def frame(self, run: str) -> pd.DataFrame:
        """Return all verdicts of a run, one row each, in a fixed order."""
        with self._ours():
            table = pd.read_sql_query(
                f"SELECT {_NAMES} FROM verdicts WHERE run = ? ORDER BY {_KEY}", self.connection, params=(run,)
            )
            return table.astype({"lower": float, "upper": float, "to": float, "group": float})


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


def count(frame: pd.DataFrame) -> dict[str, int]:
    """Return how many verdicts of each status."""
    return {status.value: int((frame["status"] == status.value).sum()) for status in Status}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and np.isnan(value):
        return None
    if isinstance(value, (bool, np.bool_)):
        return int(value)  # as SQLite gives it back
    return value.item() if isinstance(value, (np.integer, np.floating)) else value


def to_jsonl(frame: pd.DataFrame, path: Path, columns: Sequence[str] = COLUMNS) -> None:
    """One JSON object a line; numbers keep all their digits, infinities and missing values become null."""
    with path.open("w", encoding="utf-8") as file:
        for line in frame[list(columns)].astype(object).to_dict(orient="records"):
            plain = {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in line.items()}
            file.write(json.dumps(plain, allow_nan=False) + "\n")
