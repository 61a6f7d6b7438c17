"""The cost of a cluster: tasks a second, bytes for each task, CPU seconds of one run by one process, by two, and by 1, 2, 4, 8
workers.

Everything runs on this machine's loopback, so CPU time counts, which does not depend on other load. An empty task shows the cost of
any task for client, scheduler and worker; a partition shows how large that is relative to the work. CPU
efficiency is the CPU time of one process over that of client, scheduler and workers together. A short run before warms workers
up, but has too few tasks to reach all of four or eight: those that it misses import verifair within the run that is measured.

    python -m benchmarks.run cluster --workers 1 2 4 8 --tasks 2000
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import joblib
import pandas as pd
import psutil

from benchmarks.machines.local_cluster import LocalCluster, local_cluster
from benchmarks.shared import measured
from verifair import datasets
from verifair.engine import parallel
from verifair.engine.cluster import cluster, fingerprint
from verifair.engine.parallel import Deadline, Shared, as_done

GERMAN = ("certify", "--demo", "german", "--protected", "sex", "--protected", "age", "--partition", "10", "--timeout", "3000")
NEAR, FAR = ("--box", "duration=4:5"), ()
"""A part of the domain to warm workers up with, and all of it, which is measured."""


def run(folder: Path, *, workers: Sequence[int] = (1, 2, 4, 8), tasks: int = 2000) -> pd.DataFrame:
    with tempfile.TemporaryDirectory() as scratch:
        return measured("a cluster on loopback", _lines(Path(scratch), workers, tasks), folder)


def _lines(scratch: Path, workers: Sequence[int], tasks: int) -> Iterator[dict[str, Any]]:
    single = _partition(scratch, "1", ("--jobs", "1"), ())
    yield {"who": "1 process", **_cpu_line(single, single)}
    yield {"who": "--jobs 2", **_cpu_line(_partition(scratch, "2", ("--jobs", "2"), ()), single), **_empty_here(tasks)}
    for count in workers:
        with local_cluster(scratch / f"{count} workers", workers=count) as cluster_:
            _partition(scratch, f"warm {count}", ("--cluster", cluster_.address), (), NEAR)
            spent = _partition(scratch, f"cluster {count}", ("--cluster", cluster_.address), _servers(cluster_))
            yield {"who": f"cluster, {count}", **_cpu_line(spent, single), **_empty(cluster_, tasks)}


def _cpu_line(spent: dict[str, float], single: dict[str, float]) -> dict[str, Any]:
    total = sum(spent.values())
    return {"partition CPU s": round(total, 2), "efficiency": round(sum(single.values()) / total, 3),
            **{f"{process} CPU s": round(seconds, 2) for process, seconds in spent.items()}}


def _servers(local: LocalCluster) -> tuple[psutil.Process, ...]:
    assert local.scheduler is not None
    return tuple(psutil.Process(process.pid) for process in (local.scheduler, *local.workers))


def _cpu(processes: Sequence[psutil.Process]) -> list[float]:
    return [sum(process.cpu_times()[:2]) for process in processes]


def _partition(
    scratch: Path, name: str, options: tuple[str, ...], servers: tuple[psutil.Process, ...], box: Sequence[str] = FAR
) -> dict[str, float]:
    """Return the CPU seconds of the command with its processes, of the scheduler, and of the workers."""
    cpu_before, usage_before = _cpu(servers), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "verifair", *GERMAN, *box, "--store", str(scratch / f"{name}.sqlite"), *options]
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": root}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    cpu_after, usage_after = _cpu(servers), resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = [b - a for a, b in zip(cpu_before, cpu_after, strict=True)]
    command_cpu = usage_after.ru_utime + usage_after.ru_stime - usage_before.ru_utime - usage_before.ru_stime
    return {"command": command_cpu, **({"scheduler": cpu[0], "workers": sum(cpu[1:])} if servers else {})}


def _empty_task(common: Shared[Any], k: int, deadline: Deadline) -> int:
    return k


def _empty_tasks(tasks: int) -> Iterator[parallel.Task]:
    common, deadline = Shared(value=_run_of_german()), Deadline.after(3600)
    return (joblib.delayed(_empty_task)(common, k, deadline) for k in range(tasks))


def _empty_here(tasks: int) -> dict[str, Any]:
    list(as_done(_empty_tasks(20), 2))
    started = time.perf_counter()
    assert len(list(as_done(_empty_tasks(tasks), 2))) == tasks
    return {"tasks/s": round(tasks / (time.perf_counter() - started))}


def _empty(there: LocalCluster, tasks: int) -> dict[str, Any]:
    """Return CPU milliseconds of an empty task, tasks a second, and bytes to a worker and back."""
    servers = _servers(there)
    with cluster(there.address):
        list(as_done(_empty_tasks(20), 1))
        cpu_before, client_before, started = _cpu(servers), time.process_time(), time.perf_counter()
        assert sorted(as_done(_empty_tasks(tasks), 1)) == list(range(tasks))
        seconds, client, cpu_after = time.perf_counter() - started, time.process_time() - client_before, _cpu(servers)
    ms = [1000 * (b - a) / tasks for a, b in zip(cpu_before, cpu_after, strict=True)]
    message = cloudpickle.dumps((fingerprint(), _empty_task, [None, 1, Deadline.after(1)], {}))
    return {
        "tasks/s": round(tasks / seconds), "client ms": round(1000 * client / tasks, 3), "scheduler ms": round(ms[0], 3),
        "workers ms": round(sum(ms[1:]), 3), "bytes a task": len(message), "model bytes": len(cloudpickle.dumps(_run_of_german())),
    }


def _run_of_german() -> Any:
    import verifair as vf

    data = datasets.load("german")
    network = vf.read_onnx(datasets.network_path("german"))
    return vf.IndividualFairness(model=network, schema=data.schema, protected=["sex"])
