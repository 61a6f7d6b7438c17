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

KILL_INTERVAL = 10.0
"""Seconds between two kills."""
PARTITION = next(case for case in CASES if case.name == "partition")


def run(folder: Path, *, minutes: float = 2.0, workers: int = 3, seed: int = 0) -> pd.DataFrame:
    with tempfile.TemporaryDirectory() as scratch:
        return measured(f"a worker killed every {KILL_INTERVAL:g} s", _lines(Path(scratch), minutes, workers, seed), folder)


def _lines(scratch: Path, minutes: float, workers: int, seed: int) -> Iterator[dict[str, Any]]:
    undisturbed = _store(scratch / "alone")
    with local_cluster(scratch / "cluster", workers=workers) as cluster:
        stop = threading.Event()
        killed: list[float] = []
        killer = threading.Thread(target=_kill, args=(cluster, stop, killed, np.random.default_rng(seed)))
        killer.start()
        started, number = time.monotonic(), 0
        try:
            while time.monotonic() - started < 60 * minutes:
                number, killed_before = number + 1, len(killed)
                chunks = _store(scratch / str(number), "--cluster", cluster.address)
                yield {
                    "run": number, "workers killed": len(killed) - killed_before, "chunks": len(chunks), "of": len(undisturbed),
                    "lost": len(set(undisturbed) - set(chunks)), "twice": len(chunks) - len({chunk[0] for chunk in chunks}),
                    "different": len(set(chunks) - set(undisturbed)),
                }
        finally:
            stop.set()
            killer.join()


def _store(folder: Path, *options: str) -> list[tuple[Any, ...]]:
    folder.mkdir()
    subprocess.run([*RUN, *PARTITION.command, *options], cwd=folder, check=True, capture_output=True, timeout=LIMIT)
    return rows(folder / PARTITION.begun, "chunks")


def _kill(cluster: LocalCluster, stop: threading.Event, killed: list[float], rng: np.random.Generator) -> None:
    while not stop.wait(KILL_INTERVAL):
        cluster.kill(cluster.workers[rng.integers(len(cluster.workers))])
        killed.append(time.monotonic())
        cluster.add(1)
