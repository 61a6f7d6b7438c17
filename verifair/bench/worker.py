"""One run in a separate process: its memory is measured, its time-out is enforced, and a crash costs one answer.

Each run forks from a server that has imported only verifair and the backends (`forkserver`; `spawn` where there is none), takes its
licence, and reports that it is ready; then the clock starts. A run that exceeds its limit by GRACE is killed, with all processes
that it started.
Memory is the process's peak resident set (Linux resets it just before the question is asked), less what it held then. If peaks
cannot be reset it is the growth of the peak since then, which is never more. A backend that starts another program (CBC) adds that
program's peak; until it exceeds that of the process it was forked from, the two cannot be separated, and the memory is not known.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from multiprocessing import get_all_start_methods, get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path

from threadpoolctl import threadpool_limits

from solvers.outcome import BackendError, Budget, LicenceLimit
from verifair.bench.competitors import Competitor
from verifair.bench.methods import OutOfBudget
from verifair.bench.processes import children_cpu, kill
from verifair.bench.questions import Question
from verifair.bench.records import DISAGREEMENT, LICENCE, Reply, unknown
from verifair.engine.parallel import unheard
from verifair.errors import Disagreement
from verifair.memory import keep_freed

GRACE = 1.5, 3.0
"""A run is killed at this many times its limit, and these seconds: so a late decision is seen, and a hang is ended."""
PRELOADED = ("onnxruntime", "highspy", "gurobipy", "pyscipopt", "ortools.math_opt.core.python.solver", "pulp", "z3", "maraboupy")
"""Packages that are imported once, not once a run: of backends, and what reads networks."""
STARTING = 60.0
"""Seconds that a process may take to load its backend."""
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A reply and its resources: total_seconds by the clock of the working process; peak_mb and base_mb as in `Record`."""

    reply: Reply
    total_seconds: float
    peak_mb: float | None
    base_mb: float | None


def measure(competitor: Competitor, question: Question, *, seconds: float, seed: int) -> Measured:
    """Ask once. Ctrl-C kills the process that works and raises KeyboardInterrupt."""
    context = _context()
    parent_end, child_end = context.Pipe()
    process = context.Process(target=work, args=(child_end,), daemon=True)  # type: ignore[attr-defined]
    _start(process)
    child_end.close()
    try:
        with suppress(BrokenPipeError):  # it has ended, which `_listen` notices
            parent_end.send((competitor, question, seconds, seed))
        return _listen(parent_end, process, seconds, competitor.startup(question))
    finally:
        _kill(process)
        process.join()
        parent_end.close()


def _start(process: BaseProcess) -> None:
    """Start a process in a thread, which signals do not interrupt: half a message would make the server fail with a traceback, and
    the first start waits until the server has imported everything."""
    failed: list[Exception] = []

    def start() -> None:
        try:
            with unheard(resource_tracker):  # Ctrl-C also reaches the server, while it imports
                process.start()
        except Exception as error:
            failed.append(error)

    starting = threading.Thread(target=start, daemon=True)
    starting.start()
    starting.join()
    if failed:
        raise failed[0]


def _listen(connection: Connection, process: BaseProcess, seconds: float, extra: float) -> Measured:
    """Return the answer of a process within the time.   more: seconds that starting other programs may take."""
    base: float | None = None
    started = time.perf_counter()
    try:
        if not connection.poll(STARTING):
            return _without_answer("solver-error", f"the backend did not load within {STARTING:g} s", started, None, None)
        base = connection.recv()
        started = time.perf_counter()
        if not connection.poll(seconds * GRACE[0] + GRACE[1] + extra):
            peak = _peak_of(process.pid)
            grown = None if peak is None or base is None else max(peak - base, 0.0)
            return _without_answer("time", "killed: it did not stop at its limit", started, grown, base)
        answer = connection.recv()
    except EOFError:
        process.join(5)
        return _without_answer("solver-error", f"the process ended with {_exit_text(process.exitcode)}", started, None, base)
    assert isinstance(answer, Measured)
    return answer


def _without_answer(reason: str, note: str, started: float, peak: float | None, base: float | None) -> Measured:
    return Measured(
        reply=unknown(reason, note), total_seconds=time.perf_counter() - started, peak_mb=peak, base_mb=base
    )


def work(connection: Connection) -> None:
    """Run in the separate process: receive a competitor and its question, send the memory once ready, then the answer."""
    _alone()
    keep_freed()
    competitor: Competitor
    question: Question
    try:
        competitor, question, seconds, seed = connection.recv()
    except (EOFError, OSError):
        return  # the benchmark was interrupted
    with threadpool_limits(limits=1):
        try:
            competitor.warm_up(question)
        except Exception as error:  # any error of a backend is this run's answer
            connection.send(None)
            connection.send(Measured(reply=_failed(error), total_seconds=0.0, peak_mb=None, base_mb=None))
            return
        base = _resident("VmRSS")
        peak_before = _reset_peak()
        connection.send(base)
        started, cpu_before = time.perf_counter(), time.process_time() + children_cpu()
        try:
            reply = competitor.ask(question, Budget(seconds=seconds, seed=seed))
        except Exception as error:  # a crash in a backend's Python must cost one answer, not the run
            reply = _failed(error)
        total = max(time.perf_counter() - started - reply.startup_seconds, 0.0)
    if reply.cpu_seconds is None:
        reply = replace(reply, cpu_seconds=time.process_time() + children_cpu() - cpu_before)
    peak = _peak_since(peak_before) if reply.peak_mb is None else reply.peak_mb
    connection.send(Measured(reply=reply, total_seconds=total, peak_mb=peak, base_mb=base))


def _failed(error: Exception) -> Reply:
    """Return the reply of a competitor that failed: undecided, with the reason."""
    match error:
        case Disagreement():
            return unknown(DISAGREEMENT, str(error))
        case OutOfBudget():
            return unknown("time", str(error))
        case LicenceLimit():
            return unknown(LICENCE, str(error))
        case MemoryError():
            return unknown("memory")
        case BackendError():
            return unknown("solver-error", str(error))
        case _:
            return unknown("solver-error", f"{type(error).__name__}: {error}")


def _context() -> BaseContext:
    method = "forkserver" if "forkserver" in get_all_start_methods() else "spawn"
    context = get_context(method)
    installed = [package for package in PRELOADED if find_spec(package.partition(".")[0])]
    context.set_forkserver_preload([__name__, "__main__", *installed])
    return context


def _alone() -> None:
    """Lead a process group, so that processes started here end with it; leave Ctrl-C to the parent; print nothing."""
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    silence = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silence, stream)
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    """End with the parent: no run outlives a benchmark that was killed."""
    parent.join()
    kill(os.getpid())
    os._exit(1)


def _kill(process: BaseProcess) -> None:
    """Kill the process, its group and all that it started, unless it has ended."""
    if process.pid is None or process.exitcode is not None:
        return
    kill(process.pid)
    process.kill()


def _exit_text(code: int | None) -> str:
    if code is not None and code < 0:
        return f"signal {-code} ({signal.Signals(-code).name})"
    return f"exit code {code}"


def _resident(field: str, status: Path = STATUS) -> float | None:
    """Return the megabytes of a field of /proc/PID/status; None where there is no such file."""
    try:
        line = next(text for text in status.read_text(encoding="ascii").splitlines() if text.startswith(f"{field}:"))
    except (OSError, StopIteration):
        return None
    return int(line.split()[1]) / 1024


def _peak_of(pid: int | None) -> float | None:
    return _resident("VmHWM", Path(f"/proc/{pid}/status"))


def _reset_peak() -> float | None:
    """Return the base of the peak: the current memory if the kernel can reset the peak; else the peak so far."""
    try:
        CLEAR.write_text("5", encoding="ascii")
        return _resident("VmRSS")
    except OSError:
        return _peak_so_far()


def _peak_since(base: float | None) -> float | None:
    peak = _resident("VmHWM") or _peak_so_far()
    if peak is None or base is None:
        return None
    growth, children = max(peak - base, 0.0), _children_peak()
    if children == 0:
        return growth
    return growth + children if children > 1.1 * peak else None


def _peak_so_far() -> float | None:
    """Return the process's peak so far, in megabytes."""
    if sys.platform == "win32":
        return None
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _UNIT


def _children_peak() -> float:
    """Return the peak of the largest process that this one has started and waited for, 0 without any."""
    if sys.platform == "win32":
        return 0.0
    import resource

    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / _UNIT


_UNIT = 1024 * 1024 if sys.platform == "darwin" else 1024
"""ru_maxrss is in kilobytes, on macOS in bytes."""
