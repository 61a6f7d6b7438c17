"""Resources of a process and all that it started, and killing them, by Linux's /proc; elsewhere only the process itself is
known."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
FIRST, LAST = 0.002, 0.1
"""Seconds between two looks: the first, and the longest."""


@dataclass(frozen=True)
class Taken:
    """Resources of one living process: cpu_seconds, with those of its ended children, and resident memory."""

    parent: int
    group: int
    cpu_seconds: float
    resident_mb: float


def family(root: int) -> dict[int, Taken]:
    """Return the living processes that descend from a process, or are in the group that it leads, itself included."""
    processes: dict[int, Taken] = {}
    for entry in PROC.iterdir() if PROC.is_dir() else ():
        if entry.name.isdecimal() and (process := _read_process(entry)) is not None:
            processes[int(entry.name)] = process
    members = {pid for pid, process in processes.items() if pid == root or process.group == root}
    while added := {pid for pid, process in processes.items() if process.parent in members} - members:
        members |= added
    return {pid: processes[pid] for pid in members}


def _read_process(entry: Path) -> Taken | None:
    try:
        fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None  # it has ended
    if fields[0] == "Z":
        return None
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    return Taken(int(fields[1]), int(fields[2]), sum(map(int, fields[11:15])) / ticks, int(fields[21]) * page / 2**20)


def kill(root: int) -> None:
    """Kill the descendants and the group of a process, except this process; twice, for processes that were started meanwhile."""
    for _ in range(5):
        pids = set(family(root)) - {os.getpid()}
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        if not pids:
            break


def watch(process: subprocess.Popen[bytes], end: float) -> tuple[bool, float, float | None]:
    """Wait until it ends or the clock (`time.perf_counter`) shows `end`, and kill the remaining processes that it started.

    Return True if it was late, the CPU seconds of all, and the largest sum of resident sets that was seen, in MB (pages that
    processes share count once for each); None where /proc is missing.
    """
    cpu_before, cpu, peak, step, late = children_cpu(), 0.0, 0.0, FIRST, False
    while process.poll() is None:
        if time.perf_counter() > end:
            late = True
            break
        processes = family(process.pid).values()
        cpu = max(cpu, sum(p.cpu_seconds for p in processes))
        peak = max(peak, sum(p.resident_mb for p in processes))
        time.sleep(step)
        step = min(step * 1.5, LAST)
    kill(process.pid)
    if late:
        process.kill()
    process.wait()
    return late, max(cpu, children_cpu() - cpu_before), peak or None


def children_cpu() -> float:
    """Return the CPU seconds of processes that this one has started and waited for, and of those that they waited for."""
    if sys.platform == "win32":
        return 0.0
    import resource

    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
