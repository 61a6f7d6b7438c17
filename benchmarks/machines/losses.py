"""A worker is killed every ten seconds while a partition runs on the cluster, for two minutes: is any part lost, or stored twice?

The parts are decided again and again, into new stores, until the time is over; each store must equal that of one process.

    python -m benchmarks.run losses --minutes 2
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.machines.kills import CASES, LIMIT, RUN, rows
from benchmarks.machines.local_cluster import LocalCluster, local_cluster
from benchmarks.shared import measured

EVERY = 10.0
"""Seconds between two kills."""
PARTITION = next(one for one in CASES if one.name == "partition")


def run(folder: Path, *, minutes: float = 2.0, workers: int = 3, seed: int = 0) -> pd.DataFrame:
    with tempfile.TemporaryDirectory() as scratch:
        return measured(f"a worker killed every {EVERY:g} s", _lines(Path(scratch), minutes, workers, seed), folder)


def _lines(scratch: Path, minutes: float, workers: int, seed: int) -> Iterator[dict[str, Any]]:
    alone = _store(scratch / "alone")
    with local_cluster(scratch / "cluster", workers=workers) as there:
        over = threading.Event()
        killed: list[float] = []
        killer = threading.Thread(target=_kill, args=(there, over, killed, np.random.default_rng(seed)))
        killer.start()
        begun, number = time.monotonic(), 0
        try:
            while time.monotonic() - begun < 60 * minutes:
                number, before = number + 1, len(killed)
                found = _store(scratch / str(number), "--cluster", there.address)
                yield {
                    "run": number, "workers killed": len(killed) - before, "chunks": len(found), "of": len(alone),
                    "lost": len(set(alone) - set(found)), "twice": len(found) - len({one[0] for one in found}),
                    "different": len(set(found) - set(alone)),
                }
        finally:
            over.set()
            killer.join()


def _store(folder: Path, *where: str) -> list[tuple[Any, ...]]:
    folder.mkdir()
    subprocess.run([*RUN, *PARTITION.command, *where], cwd=folder, check=True, capture_output=True, timeout=LIMIT)
    return rows(folder / PARTITION.begun, "chunks")


def _kill(there: LocalCluster, over: threading.Event, killed: list[float], rng: np.random.Generator) -> None:
    while not over.wait(EVERY):
        there.kill(there.workers[rng.integers(len(there.workers))])
        killed.append(time.monotonic())
        there.add(1)
