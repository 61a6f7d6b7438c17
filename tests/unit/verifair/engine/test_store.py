"""Stores of verdicts that somebody damaged are refused, whatever was done to them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from verifair.engine.store import COLUMNS, Store, VerdictRecord
from verifair.errors import DataError

RECORD = VerdictRecord(
    sensitive="sex", goal="observed", delta=1.0, row=0, to=1.0, against=0, group=0.0, label=1, status="proved", reason="",
    lower=float("-inf"), upper=0.25, engine="bound", trust="checked", float32_agrees=True, nodes=1, witness=None, margins=None,
    tree='{"feature": [-1], "cut": [0.0], "bound": [0.1]}', claim=None,
)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "run.sqlite"
    with Store(path) as kept:
        kept.begin("run", {}, resume=False)
        kept.add("run", [RECORD])
    return path


def test_what_was_written_is_continued_from(store: Path) -> None:
    with Store(store) as kept:
        kept.begin("run", {}, resume=True)
        assert len(kept.decided("run")) == 1
        found = kept.frame("run").iloc[0]
    assert (found["lower"], found["upper"], found["float32_agrees"]) == (float("-inf"), 0.25, 1)


@pytest.mark.parametrize("column", COLUMNS)
def test_no_column_can_be_changed(store: Path, column: str) -> None:
    with sqlite3.connect(store) as connection:
        connection.execute(f'UPDATE verdicts SET "{column}" = ?', ("another",))
    connection.close()
    with Store(store) as kept, pytest.raises(DataError, match=r"run\.sqlite: .*damaged.*--store"):
        kept.begin("run", {}, resume=True)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW more AS SELECT 1",
        "CREATE TRIGGER gone AFTER INSERT ON verdicts BEGIN DELETE FROM verdicts; END",
        "ALTER TABLE verdicts ADD COLUMN sum GENERATED ALWAYS AS (1 + 1)",
        "DROP TABLE verdicts",
    ],
)
def test_tables_are_ours_or_refused(store: Path, statement: str) -> None:
    with sqlite3.connect(store) as connection:
        connection.execute(statement)
    connection.close()
    before = store.read_bytes()
    with pytest.raises(DataError, match="others than ours"), Store(store):
        pass
    assert store.read_bytes() == before
    sqlite3.connect(store, timeout=0).execute("BEGIN IMMEDIATE").connection.close()  # nothing holds a lock


def test_bytes_are_not_a_store(store: Path) -> None:
    store.write_bytes(store.read_bytes()[:200] + b"\0" * 5000)
    with pytest.raises(DataError, match="no verdict store"), Store(store) as kept:
        kept.begin("run", {}, resume=True)
