"""PBA of a table of a million Adult rows, read in chunks: peak memory, rows a second beside a table in memory, and a kill at half.

The rows are drawn with replacement from the shipped Adult table, with noise of two units on every number; one delta, sex, the
shipped network of (100, 50). Every run is a process of its own; CPU seconds, as the machine may be busy.

    python -m benchmarks.run streams --rows 1000000 --in-memory 100000
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.shared import measured
from verifair import datasets

PROGRAM = "from verifair.cli.main import main; main()"
IN_MEMORY = """
import sys, pandas as pd, verifair as vf
from verifair.systems.pba.rows import verify_rows
frame, network, schema = pd.read_csv(sys.argv[1]), vf.read_onnx(sys.argv[2]), vf.Schema.load(sys.argv[3])
query = vf.PersistentBias(model=network, schema=schema, protected="sex", delta=[1])
assert (verify_rows(query, frame, budget=vf.Budget(seconds=1e6))["status"] != "unknown").all()
"""


def run(folder: Path, *, rows: int = 1_000_000, in_memory: int = 100_000, seed: int = 0) -> pd.DataFrame:
    with tempfile.TemporaryDirectory() as scratch:
        return measured(f"pba streams: {rows:,} drawn Adult rows", _lines(Path(scratch), rows, in_memory, seed), folder)


def _lines(folder: Path, rows: int, in_memory: int, seed: int) -> Iterator[dict[str, Any]]:
    adult = datasets.load("adult")
    adult.schema.save(folder / "adult.toml")
    table, small = folder / "rows.csv", folder / "small.csv"
    drawn(rows, seed).to_csv(table, index=False)
    drawn(in_memory, seed).to_csv(small, index=False)
    network, schema = str(datasets.network_path("adult")), str(folder / "adult.toml")
    yield {"run": "in memory", "rows": in_memory, **_process(["-c", IN_MEMORY, str(small), network, schema])}
    stores = {}
    for name in ("undisturbed", "killed"):
        store = stores[name] = folder / f"{name}.sqlite"
        command = [
            "-c", PROGRAM, "pba", network, "--schema", schema, "--data", str(table), "--protected", "sex", "--delta", "1",
            "--no-robustness", "--timeout", "1000000", "--store", str(store),
        ]  # fmt: skip
        if name == "killed":
            half = count(stores["undisturbed"]) // 2
            _process(command, lambda store=store, half=half: count(store) >= half)
            kept_count = count(store)
            command.append("--resume")
        first: list[float] = []
        started = time.monotonic()

        def note_first(store: Path = store, first: list[float] = first, started: float = started) -> bool:
            if not first and count(store):
                first.append(time.monotonic() - started)
            return False

        usage = _process(command, note_first)
        columns = {"first verdicts after s": round(first[0], 1)} if name == "undisturbed" else {
            "kept by the kill": kept_count, "as undisturbed": content(store) == content(stores["undisturbed"]),
        }  # fmt: skip
        yield {"run": name, "rows": rows, **usage, **columns}


def drawn(rows: int, seed: int) -> pd.DataFrame:
    """Return so many rows of Adult, drawn with replacement, with normal noise of two units on every number."""
    adult, rng = datasets.load("adult"), np.random.default_rng(seed)
    frame = adult.frame.iloc[rng.integers(len(adult.frame), size=rows)].reset_index(drop=True)
    for feature in adult.schema.features:
        if feature.range is not None and feature.unit:
            noise = np.rint(rng.normal(0, 2 * float(feature.unit), rows))
            frame[feature.name] = np.clip(frame[feature.name].to_numpy() + noise, *feature.range).astype(int)
    return frame


def _process(command: list[str], enough: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    """Run Python with these arguments, and kill it once `enough` is True; return CPU seconds and peak memory."""
    child = os.posix_spawn(
        sys.executable, [sys.executable, *command], {**os.environ, "OMP_NUM_THREADS": "1"},
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    while True:
        pid, status, usage = os.wait4(child, os.WNOHANG)
        if pid:
            break
        if enough():
            os.kill(child, signal.SIGKILL)
        time.sleep(0.5)
    if status and not os.WIFSIGNALED(status):
        raise SystemExit(f"the run ended with {os.waitstatus_to_exitcode(status)}")
    return {"CPU s": round(usage.ru_utime + usage.ru_stime, 1), "peak MiB": round(usage.ru_maxrss / 1024)}


def count(store: Path) -> int:
    """Return the number of verdicts in a store."""
    if not store.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True, timeout=60)) as connection:
            return int(connection.execute("SELECT COUNT(*) FROM verdicts").fetchone()[0])
    except sqlite3.OperationalError:  # it has no tables yet
        return 0


def content(store: Path) -> str:
    """Return a hash of every line, proofs included."""
    digest = sha256()
    with closing(sqlite3.connect(store)) as connection:
        for line in connection.execute('SELECT * FROM verdicts ORDER BY run, sensitive, goal, delta, row, "to", against'):
            digest.update(repr(line).encode())
    return digest.hexdigest()
