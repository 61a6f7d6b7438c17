"""Stores of verdicts: a resumed run asks again what it must, and what somebody damaged is refused."""

import os
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import verifair as vf
from verifair import datasets
from verifair.checker.partition import UNKNOWN, PartitionStore
from verifair.engine.partition import certify_partition
from verifair.engine.store import COLUMNS, Store, VerdictRecord, Verdicts
from verifair.errors import DataError
from verifair.systems.pba import rows

RECORD = VerdictRecord(
    sensitive="sex", goal="observed", delta=1.0, row=0, to=1.0, against=0, group=0.0, label=1, status="proved", reason="",
    lower=float("-inf"), upper=0.25, engine="bound", trust="checked", float32_agrees=True, nodes=1, witness=None, margins=None,
    tree='{"feature": [-1], "cut": [0.0], "bound": [0.1]}', claim=None, float32=True,
)


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
        assert len(kept.decided("run", sensitive="sex", delta=1.0, rows=(0, 0))) == kept.count_decided("run") == 1
    found = Verdicts(path=store, run="run", sensitive="sex", deltas=(1.0,)).frame().iloc[0]
    assert (found["lower"], found["upper"], found["float32_agrees"]) == (float("-inf"), 0.25, 1)


@pytest.mark.parametrize("column", COLUMNS)
def test_no_column_can_be_changed(store: Path, column: str) -> None:
    with sqlite3.connect(store) as connection:
        connection.execute(f'UPDATE verdicts SET "{column}" = ?', ("another",))
    connection.close()
    with Store(store) as kept, pytest.raises(DataError, match=r"run\.sqlite: .*damaged.*--store"):
        kept.begin("run", {}, resume=True)


@pytest.mark.parametrize("statement", [
    "CREATE VIEW more AS SELECT 1",
    "CREATE TRIGGER gone AFTER INSERT ON verdicts BEGIN DELETE FROM verdicts; END",
    "ALTER TABLE verdicts ADD COLUMN sum GENERATED ALWAYS AS (1 + 1)",
    "DROP TABLE verdicts",
])
def test_tables_are_ours_or_refused(store: Path, statement: str) -> None:
    with sqlite3.connect(store) as connection:
        connection.execute(statement)
    connection.close()
    before = store.read_bytes()
    with pytest.raises(DataError, match="others than ours"), Store(store):
        pass
    assert store.read_bytes() == before
    sqlite3.connect(store, timeout=0).execute("BEGIN IMMEDIATE").connection.close()  # nothing holds a lock


def test_a_page_that_is_damaged_is_named_with_the_store(store: Path) -> None:
    with Store(store) as kept:
        kept.begin("run", {}, resume=True)
        kept.add("run", [RECORD._replace(row=row) for row in range(1, 500)])
    connection = sqlite3.connect(store)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    data = store.read_bytes()
    store.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))
    with pytest.raises(DataError, match="no verdict store that can be used"):
        len(Verdicts(path=store, run="run", sensitive="sex", deltas=(1.0,)))


def test_bytes_are_not_a_store(store: Path) -> None:
    store.write_bytes(store.read_bytes()[:200] + b"\0" * 5000)
    with pytest.raises(DataError, match="no verdict store"), Store(store) as kept:
        kept.begin("run", {}, resume=True)


# What a resumed run asks again, and what of it is kept: results like those of an undisturbed run, and never fewer.


UNDECIDED = VerdictRecord(
    sensitive="sex", goal="observed", delta=1.0, row=0, to=1.0, against=0, group=0.0, label=1, status="unknown", reason="nodes",
    lower=0.0, upper=0.0, engine="", trust="", float32_agrees=None, nodes=50, witness=None, margins=None, tree=None, claim=None,
    float32=None,
)


LATE, PROVED = {"reason": "time"}, {"status": "proved", "reason": ""}


@pytest.mark.parametrize(("nodes", "again"), [(50, False), (10, False), (51, True), (None, True)])
def test_out_of_boxes_is_asked_again_only_with_more_of_them(tmp_path: Path, nodes: int | None, again: bool) -> None:
    with Store(tmp_path / "v.sqlite") as store:
        store.begin("run", {}, resume=False)
        store.add("run", [UNDECIDED, *(UNDECIDED._replace(row=row, **more) for row, more in ((1, LATE), (2, PROVED)))])
        kept = {key[3] for key in store.decided("run", nodes, sensitive="sex", delta=1.0, rows=(0, 2))}
        assert kept == ({2} if again else {0, 2})
        assert store.count_decided("run", nodes) == len(kept)


def german() -> tuple[vf.PersistentBias, pd.DataFrame]:
    data, network = datasets.load("german"), vf.read_onnx(datasets.network_path("german"))
    query = vf.PersistentBias(model=network, schema=data.schema, protected="sex", delta=[12])
    return query, data.test


def test_a_resumed_run_with_few_boxes_is_an_undisturbed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some questions end without an answer for want of boxes: asked again, in a batch of others, they could end otherwise."""
    query, frame = german()
    monkeypatch.setattr(rows, "BATCH", 32)
    sizes: list[int] = []
    solve = rows._solve_batch
    monkeypatch.setattr(rows, "_solve_batch", lambda *task: sizes.append(len(task[1].rows)) or solve(*task))
    budget = vf.Budget(nodes=1)
    whole = vf.verify(query, frame, method="bnb", budget=budget)
    assert 0 < (whole["reason"] == "nodes").sum() < len(whole)
    store, done = tmp_path / "v.sqlite", 0

    class Killed(BaseException):
        """As if by kill -9: between two batches."""

    def progress(finished: int, total: int) -> None:
        nonlocal done
        done += 1
        if done == 4:
            raise Killed

    with pytest.raises(Killed):
        vf.verify(query, frame, method="bnb", budget=budget, store=store, progress=progress)
    every, sizes[:] = sizes[:-3], []
    resumed = vf.verify(query, frame, method="bnb", budget=budget, store=store, resume=True)
    pd.testing.assert_frame_equal(resumed, whole)
    assert sizes == every[3:], "the batches of the undisturbed run, but for the three that were kept"


def test_a_chunk_that_had_more_time_stays(tmp_path: Path) -> None:
    data, network = datasets.load("german"), vf.read_onnx(datasets.network_path("german"))
    box = {"duration": 12, "credit-amount": (1000, 2000)}
    query = vf.IndividualFairness(model=network, schema=data.schema, protected=["sex"], box=box)
    path = certify_partition(query, size=40, store=tmp_path / "p.sqlite")
    with PartitionStore(path) as kept:
        whole = list(kept.chunks())
        about = {key: value for key, value in kept.about.items() if key != "format"}
    first = whole[0]
    assert (first.status != UNKNOWN).all()
    nothing = replace(first, status=np.full(len(first), UNKNOWN, dtype=np.int8), seconds=0.0)
    with PartitionStore(path, about, resume=True) as kept:
        kept.add(nothing)
        assert np.array_equal(kept.chunk(first.first).status, first.status)
        kept.add(replace(first, seconds=-1.0))
        assert kept.chunk(first.first).seconds == -1.0, "as many decided: the later one"


KILLED = """
import os, sqlite3, sys
from pathlib import Path
from verifair.engine.store import Store

def killed(statement):
    global left
    left -= 1
    if left < 0:
        os._exit(9)

def connect(*words, whole=sqlite3.connect, **more):
    found = whole(*words, **more)
    found.set_trace_callback(killed)
    return found

sqlite3.connect = connect
for left in range(100):
    path = Path(sys.argv[1], f"{left}.sqlite")
    if not (child := os.fork()):
        with Store(path) as kept:
            kept.begin("run", {}, resume=True)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(code, path, flush=True)
    if code == 0:
        break
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_kill_before_any_statement_leaves_what_can_be_resumed(tmp_path: Path) -> None:
    found = subprocess.run([sys.executable, "-c", KILLED, tmp_path], capture_output=True, text=True, check=True)
    *killed, done = (line.split(" ", 1) for line in found.stdout.splitlines())
    assert (len(killed) > 5, {code for code, _ in killed}, done[0]) == (True, {"9"}, "0")
    for _, path in (*killed, done):
        with Store(Path(path)) as kept:
            kept.begin("run", {}, resume=True)
            kept.add("run", [RECORD])
