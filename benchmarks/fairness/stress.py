"""Fairify's stress partitions, millions of parts: the share decided in the time given, and whether memory stays flat.

Adult at size 6 with sex (3,290,112 parts), Bank at 10 with age (1,002,000), German at 10 with age (18,009). Chunks are taken in a
random order, so that a run that ends early has decided a sample of all parts; `reached` are those it decided or gave up, `cut off`
the parts of the few chunks that were unfinished at the end. Stores are kept in the folder, and the next run continues them
(`--fresh` starts again), also after Ctrl-C. `MiB begin`, `MiB end`: the most resident memory of all processes together in the first
and in the last tenth of this run, its first seconds left out, sampled twice a second. `CPU s` is for all processes together:
at most the number of processes times `seconds`, and less if the machine has other load. `all, h` is for all parts at this
run's rate.

    python -m benchmarks.run stress --nets AC-1 GC-3 --seconds 10       a shorter run
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.fairness.networks import FAMILIES, ListedNetwork, subjects
from benchmarks.fairness.partitions import Counts
from benchmarks.shared import data_folder, measured
from solvers.outcome import Budget
from verifair.checker.partition import UNKNOWN, PartitionStore
from verifair.engine.partition import certify_partition
from verifair.errors import Disagreement

SAMPLE, REPORT = 0.5, 30.0
"""Seconds between two samples of memory, and between two lines on the screen."""
STARTING = 5.0
"""Seconds in which processes start and load what they need, before memory says anything."""


def run(
    folder: Path, *, seconds: float = 1800.0, jobs: int = 2, fresh: bool = False, nets: Sequence[str] = ()
) -> pd.DataFrame:
    """Run the comparison.   seconds: for each network, in this run; parts in the store from earlier runs count too."""
    data = data_folder()
    networks = subjects(data, nets=nets, families=FAMILIES)
    lines = (line for subject in networks for line in _lines(subject, folder, seconds, jobs, fresh))
    table = measured(f"Stress: partitions, {seconds:g} s a network, {jobs} processes", lines, folder)
    reached, given_up = table["reached"].sum(), table["given up"].sum()
    print(f"{reached - given_up} of {reached} parts reached are decided ({1 - given_up / reached:.4%}; {table['cut off'].sum()} "
          f"cut off, {table['parts'].sum()} in all), {table['claimed'].sum()} claimed; memory at the end over "
          f"memory at the beginning: at most {(table['MiB end'] / table['MiB begin']).max():.2f}")
    return table


def _lines(subject: ListedNetwork, folder: Path, seconds: float, jobs: int, fresh: bool) -> Iterator[dict[str, Any]]:
    """Yield the line of one network; after Ctrl-C the line of its store, and then stop."""
    experiment = subject.file["experiments"]["stress"]
    protected, size = str(experiment["pa"]), int(experiment["partition_threshold"])
    query, path = subject.fairness(protected), folder / "stores" / f"stress-{subject.name}-{protected}.sqlite"
    path.parent.mkdir(parents=True, exist_ok=True)
    if fresh:
        for stale in path.parent.glob(f"{path.name}*"):
            stale.unlink()
    decided_before = _decided(path)
    progress = _Progress(subject.name)
    started = time.perf_counter()
    interrupted = False
    with Memory() as memory:
        try:
            certify_partition(
                query, size=size, store=path, resume=True, budget=Budget(seconds=seconds), jobs=jobs, progress=progress
            )
        except KeyboardInterrupt:
            interrupted = True
    elapsed = time.perf_counter() - started
    pd.DataFrame(memory.samples, columns=["seconds", "MiB"]).to_csv(folder / f"stress-memory-{subject.name}.csv", index=False)
    counts = Counts.of(path, query, size)
    if counts.parts != experiment.get("partitions", counts.parts):
        raise Disagreement(f"{subject.name}: {counts.parts} parts, the schema lists {experiment['partitions']}")
    decided, (begin, end) = counts.proved + counts.refuted, memory.ends()
    reached, rate = decided + counts.given_up, (decided - decided_before) / elapsed
    yield {
        "net": subject.name, "protected": protected, "size": size, "parts": counts.parts, "reached": reached,
        "%": f"{reached / counts.parts:.2%}", "proved": counts.proved, "refuted": counts.refuted, "given up": counts.given_up,
        "cut off": counts.cut_off, "claimed": counts.claimed, "seconds": elapsed, "CPU s": memory.cpu, "parts/s": rate,
        "all, h": counts.parts / rate / 3600 if rate else float("nan"), "MiB begin": begin, "MiB end": end,
        "store MiB": path.stat().st_size / 2**20,
    }
    if interrupted:
        raise KeyboardInterrupt


def _decided(path: Path) -> int:
    """Return the number of parts that earlier runs have decided."""
    if not path.exists():
        return 0
    with PartitionStore(path) as store:
        return sum(int((status != UNKNOWN).sum()) for _, status in store.statuses())


class _Progress:
    """Prints the progress of a network from time to time."""

    def __init__(self, name: str) -> None:
        self.name, self.first = name, -1
        self.started = self.told = time.perf_counter()

    def __call__(self, done: int, parts: int) -> None:
        now = time.perf_counter()
        self.first = done if self.first < 0 else self.first
        if now - self.told > REPORT:
            self.told = now
            rate = (done - self.first) / (now - self.started)
            print(f"   {self.name}: {done} of {parts} parts, {rate:.0f} a second, {usage()[0]:.0f} MiB", flush=True)


class Memory:
    """Samples (seconds, MiB) of the resident memory of this process and its children, taken in a thread while the context lasts;
    and the CPU seconds that they have used in it."""

    def __init__(self) -> None:
        self.samples: list[tuple[float, float]] = []
        self.first, self.cpu = usage()[1], 0.0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Memory:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()

    def _sample(self) -> None:
        started = time.perf_counter()
        while not self.over.wait(SAMPLE):
            size, cpu = usage()
            self.samples.append((time.perf_counter() - started, size))
            self.cpu = cpu - self.first

    def ends(self) -> tuple[float, float]:
        """The most in the first and in the last tenth of the time (NaN where nothing could be sampled)."""
        sizes = [size for seconds, size in self.samples if seconds > STARTING] or [size for _, size in self.samples]
        tenth = max(1, len(sizes) // 10)
        first, last = sizes[:tenth], sizes[-tenth:]
        return max(first, default=float("nan")), max(last, default=float("nan"))


def usage() -> tuple[float, float]:
    """MiB of resident memory of this process and its descendants, shared pages counted in each, and the CPU seconds that they and
    their ended children have used; NaN off Linux."""
    parents: dict[int, int] = {}
    pages: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            after_name = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)], pages[int(folder.name)] = int(after_name[1]), int(after_name[21])
            ticks[int(folder.name)] = sum(int(field) for field in after_name[11:15])
        except (OSError, IndexError):
            continue  # the process has just ended
    if os.getpid() not in pages:
        return float("nan"), float("nan")
    tree = {os.getpid()}
    while added := {child for child, parent in parents.items() if parent in tree} - tree:
        tree |= added
    size = sum(pages[pid] for pid in tree) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return size, sum(ticks[pid] for pid in tree) / os.sysconf("SC_CLK_TCK")
