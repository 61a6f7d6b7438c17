"""kill -9 at random times during batch runs, then --resume: are the files those of an undisturbed run?

Two verbs (pba, certify --partition), on this machine with one and with two processes, and on a cluster of three worker processes,
where either the command is killed or one of the workers (which is replaced, the command goes on). A kill waits until a random share
of what is left is in the store, and a random moment more; every fifth comes while the command starts. Compared is every byte of
verdicts, certificates, tables, plots and proofs. Left out are the seconds of run and work, and nothing else.

    python -m benchmarks.run kill_resume --kills 20 --seed 0
"""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.fairness.local_cluster import LocalCluster, local_cluster
from benchmarks.shared import measured

RUN = [sys.executable, "-c", "from verifair.cli import main; main()"]
LIMIT = 3600.0
"""Seconds a command may take, on however busy a machine."""
START_UP = 4.0
"""Seconds within which a kill comes that is to hit a command as it starts."""
SECONDS = ("seconds", "work_seconds")
PLACES = ("1 process", "2 processes", "cluster, command", "cluster, worker")
"""Where it runs, and on a cluster what is killed."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """command: run in a folder of its own.   store, table: file and table that fill up.   files: to be the same, byte by byte."""

    name: str
    command: tuple[str, ...]
    store: str
    table: str
    files: tuple[str, ...]


CASES = (
    Case(
        name="pba",
        command=("pba", "--demo", "adult", "--protected", "sex", "--delta", "1", "--delta", "2", "--limit", "3000", "--out", ".",
                 "--json", "answer.json"),
        store="verdicts.sqlite",
        table="verdicts",
        files=("verdicts.jsonl", "verdicts.parquet", "rates.csv", "shares.csv", "outcomes.png", "certificate.json.gz",
               "certificate-robustness.json.gz"),
    ),
    Case(
        name="partition",
        command=("certify", "--demo", "german", "--protected", "sex", "--partition", "10", "--timeout", "7200", "--store",
                 "parts.sqlite", "--json", "answer.json"),
        store="parts.sqlite",
        table="chunks",
        files=(),
    ),
)


def run(folder: Path, *, kills: int = 20, seed: int = 0) -> pd.DataFrame:
    with tempfile.TemporaryDirectory() as scratch:
        lines = _lines(Path(scratch), kills, seed)
        table = measured(f"kill -9 and --resume, {kills} kills, seed {seed}", lines, folder)
    print(f"{table['kills'].sum()} kills, {(table['different'] == 'nothing').sum()} of {len(table)} lines without a difference")
    return table


def _lines(scratch: Path, kills: int, seed: int) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    cells = [(case, place) for place in PLACES for case in CASES]
    share = [kills // len(cells) + (k < kills % len(cells)) for k in range(len(cells))]
    whole = {}
    for case in CASES:
        whole[case.name] = _folder(scratch / f"{case.name}-undisturbed")
        subprocess.run([*RUN, *case.command], cwd=whole[case.name], check=True, capture_output=True, timeout=LIMIT)
    with local_cluster(scratch / "cluster") as cluster:
        for (case, place), wanted in zip(cells, share, strict=True):
            if wanted:
                there = cluster if "cluster" in place else None
                yield _cell(case, place, wanted, whole[case.name], scratch / f"{case.name}-{place}", there, rng)


def _cell(
    case: Case, place: str, wanted: int, whole: Path, scratch: Path, cluster: LocalCluster | None, rng: np.random.Generator
) -> dict[str, Any]:
    """Runs of one command in one place until `wanted` kills have hit it; each is resumed to its end and compared."""
    stored: list[int] = []
    differences: set[str] = set()
    runs = 0
    while len(stored) < wanted:
        runs += 1
        one = _Run(case, place, _folder(scratch / str(runs)), cluster, rng, kept(whole / case.store, case.table))
        stored += one.to_the_end(wanted - len(stored))
        differences |= set(different(case, one.folder, whole))
    return {
        "command": case.name, "where": place, "kills": len(stored), "runs": runs, "stored at the kills": " ".join(map(str, stored)),
        "of": kept(whole / case.store, case.table), "different": ", ".join(sorted(differences)) or "nothing",
    }


class _Run:
    """One command, killed and resumed in its folder until it is done."""

    def __init__(
        self, case: Case, place: str, folder: Path, cluster: LocalCluster | None, rng: np.random.Generator, whole: int
    ) -> None:
        self.case, self.place, self.folder, self.cluster, self.rng, self.whole = case, place, folder, cluster, rng, whole

    def to_the_end(self, kills: int) -> list[int]:
        """Lines in the store at each kill that hit; up to `kills` of them."""
        stored: list[int] = []
        while True:
            running = self._start()
            try:
                while len(stored) < kills and self._moment(running):
                    stored.append(kept(self.folder / self.case.store, self.case.table))
                    if self.place == "cluster, worker":
                        self._lose_a_worker()
                    else:
                        running.kill()
                        break
                code = running.wait(LIMIT)
            finally:
                _end_group(running)
            if code == 0:
                return stored
            if code != -signal.SIGKILL:
                raise RuntimeError(f"{self.case.name} ended with {code}:\n{(self.folder / 'log').read_text(encoding='utf-8')}")

    def _start(self) -> subprocess.Popen[bytes]:
        where = ["--cluster", self.cluster.address] if self.cluster else ["--jobs", self.place[0]]
        more = ["--resume"] if (self.folder / self.case.store).is_file() else []
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [*RUN, *self.case.command, *where, *more], cwd=self.folder, stdout=log, stderr=log, start_new_session=True
            )

    def _moment(self, running: subprocess.Popen[bytes]) -> bool:
        """Wait for the moment of the next kill; False when the command ended before."""
        if self.rng.random() < 0.2:
            pause, until = START_UP * self.rng.random(), 0
        else:
            before = kept(self.folder / self.case.store, self.case.table)
            pause, until = 0.3 * self.rng.random(), before + int(0.9 * self.rng.random() * (self.whole - before))
        while running.poll() is None and kept(self.folder / self.case.store, self.case.table) < until:
            time.sleep(0.01)
        time.sleep(pause)
        return running.poll() is None

    def _lose_a_worker(self) -> None:
        assert self.cluster is not None
        self.cluster.kill(self.cluster.workers[self.rng.integers(len(self.cluster.workers))])
        self.cluster.add(1)


def kept(store: Path, table: str) -> int:
    """Lines of a store that another process may be about to create."""
    try:
        with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as connection:
            return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def different(case: Case, there: Path, here: Path) -> Iterator[str]:
    """What differs between the files of two runs."""
    for name in case.files:
        if (there / name).read_bytes() != (here / name).read_bytes():
            yield name
    if _rows(there / case.store, case.table) != _rows(here / case.store, case.table):
        yield case.store
    one, other = (json.loads((folder / "answer.json").read_text(encoding="utf-8")) for folder in (there, here))
    yield from (f"answer.json: {key}" for key in one.keys() | other.keys() if key not in SECONDS and one.get(key) != other.get(key))
    tables = [re.sub(r"[\d.]+ s:", "", (folder / "table.txt").read_text(encoding="utf-8")) for folder in (there, here)
              if (folder / "table.txt").is_file()]
    if len(set(tables)) > 1:
        yield "table.txt"


def _rows(store: Path, table: str) -> list[tuple[Any, ...]]:
    """All columns but the seconds, in an order that does not depend on when a line was written."""
    with sqlite3.connect(store) as connection:
        columns = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})") if name not in SECONDS]
        chosen = ", ".join(f'"{name}"' for name in columns)
        return sorted(connection.execute(f"SELECT {chosen} FROM {table}").fetchall(), key=repr)


def _folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def _end_group(running: subprocess.Popen[bytes]) -> None:
    """Worker processes of a killed command find out by themselves; here nobody waits for it."""
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()
