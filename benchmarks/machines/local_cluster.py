"""A dask cluster on loopback: a scheduler and workers, each a separate process that may be killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

DASK = [sys.executable, "-m", "dask"]


@dataclass(kw_only=True)
class LocalCluster:
    """scheduler, workers: running processes; address: tcp://127.0.0.1:port; folder: where their logs are."""

    folder: Path
    scheduler: subprocess.Popen[bytes] | None = None
    address: str = ""
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def add(self, count: int, *, threads: int = 1, environment: dict[str, str] | None = None) -> list[subprocess.Popen[bytes]]:
        """Start workers in a folder of their own, without waiting for them."""
        new_workers = [
            self._start("worker", self.address, "--nthreads", str(threads), "--no-nanny", "--host", "127.0.0.1", extra=environment)
            for _ in range(count)
        ]
        self.workers += new_workers
        return new_workers

    def _start(self, *words: str, extra: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        number = len(list(self.folder.glob("*.log")))
        root = str(Path(__file__).parents[2])
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": root, **(extra or {})}
        with (self.folder / f"{number}-{words[0]}.log").open("wb") as log:
            return subprocess.Popen([*DASK, *words, "--no-dashboard"], stdout=log, stderr=log, cwd=self.folder, env=environment)

    def start(self) -> None:
        file = self.folder / "scheduler.json"
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file))
        log = self.folder / "0-scheduler.log"
        self.address = _announced(log, self.scheduler)

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        """Kill a worker with SIGKILL."""
        self.workers.remove(worker)
        worker.kill()
        worker.wait()

    def stop(self) -> None:
        for process in [*self.workers, *filter(None, [self.scheduler])]:
            process.kill()
            process.wait()


def _announced(log: Path, process: subprocess.Popen[bytes]) -> str:
    """Return the address that a scheduler logs once it listens."""
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        for line in log.read_text().splitlines():
            if "Scheduler at:" in line:
                return line.split()[-1]
        time.sleep(0.05)
    raise RuntimeError(f"no scheduler came up:\n{log.read_text()}")


@contextmanager
def local_cluster(folder: Path, *, workers: int = 3) -> Iterator[LocalCluster]:
    """Yield a scheduler on a free port of 127.0.0.1 with `workers` workers of one thread each; all are killed at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = LocalCluster(folder=folder)
    try:
        cluster.start()
        cluster.add(workers)
        yield cluster
    finally:
        cluster.stop()
