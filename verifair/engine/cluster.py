"""Run batches on many machines: the workers of a dask cluster.

`with cluster("tcp://host:8786"):` sends every batch within it (`engine.parallel`) to the cluster, whose scheduler distributes them.
At first it checks that all workers run the same code and packages as this machine, so that answers do not depend on which machine
computes them. Tasks of a worker that dies go to the others; if no worker is left, the run ends with an error and keeps finished
results.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import metadata, resources
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar
from uuid import uuid4
from weakref import WeakKeyDictionary

from encoders.errors import ModelError
from solvers.outcome import BackendError
from verifair.engine.parallel import MACHINES, Deadline, Shared, Task
from verifair.errors import ClusterError, MissingPackage, QueryError, VerifairError
from verifair.memory import keep_freed

T = TypeVar("T")
CONNECT, PATIENCE = 10.0, 60.0
"""Seconds to wait for the scheduler and its first worker, and for another worker once all are gone."""
PACKAGES = (
    "verifair", "numpy", "scipy", "pandas", "pydantic", "onnx", "onnxruntime", "python-flint", "highspy", "joblib", "cloudpickle",
    "dask", "distributed",
)
"""Packages whose versions affect a worker's answers, or whether it can read our tasks."""
CODE = ("verifair", "encoders", "solvers")
SAME = "install the same versions on all machines, and start its workers again"
AHEAD = 2
"""Tasks queued at a worker beside the one that it runs, so that it need not wait while a result travels."""
REMEDY = "Start the cluster again, then the same command; where it has a store, --resume goes on with what is in it"


@contextmanager
def cluster(address: str | None, *, patience: float = PATIENCE) -> Iterator[None]:
    """Context: run all batches on the dask cluster with its scheduler at `address` (tcp://host:port); None changes nothing.

    patience: seconds without any worker after which a run is given up.
    Raises QueryError for a wrong address, MissingPackage without dask, ClusterError if there is no scheduler or worker, if a worker
    runs other code or packages or has several threads, or (later) if the cluster is lost.
    """
    if address is None:
        yield
        return
    check_address(address)
    with _silence():
        client = _connected(address)
        try:
            with reaching(address):
                _check_workers(client, address)
                token = MACHINES.set(DaskCluster.of(client, address, patience))
            try:
                yield
            finally:
                MACHINES.reset(token)
        finally:
            with suppress(OSError, TimeoutError):  # a scheduler that is gone cannot be closed properly
                client.close(timeout=5)


@contextmanager
def _silence() -> Iterator[None]:
    """Silence the tracebacks that distributed and asyncio log about a lost connection: verifair's own errors say it in a line.

    Silence dask's advice on the size of messages, too: data that tasks share is sent only once.
    """
    # Child loggers of distributed have levels of their own, its handlers have none.
    speakers = [*logging.getLogger("distributed").handlers, logging.getLogger("asyncio")]

    def nothing(record: logging.LogRecord) -> bool:
        return False

    for speaker in speakers:
        speaker.addFilter(nothing)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")
            yield
    finally:
        gc.collect()  # asyncio logs an error that nobody has read when its future is deleted
        for speaker in speakers:
            speaker.removeFilter(nothing)


def check_address(address: str) -> None:
    """Raise QueryError for a wrong address, MissingPackage without dask."""
    scheme, _, rest = address.partition("://")
    host, _, port = rest.rpartition(":")
    if scheme not in ("tcp", "tls") or not host or not port.isdecimal():
        raise QueryError(f"--cluster {address}: expected the address of a dask scheduler, tcp://host:port (or tls://host:port)")
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise MissingPackage(f"--cluster needs dask ({error}): pip install 'verifair[distributed]'") from error


def _connected(address: str) -> Any:
    """Return a client, or raise the reason why there is none. If another program listens there, distributed alone would wait for
    ever."""
    import distributed

    results: list[Any] = []

    def connect() -> None:
        try:
            results.append(distributed.Client(address, timeout=CONNECT, set_as_default=False))
        except Exception as error:
            results.append(error)

    attempt = threading.Thread(target=connect, daemon=True)
    attempt.start()
    attempt.join(2 * CONNECT)
    port = address.rpartition(":")[2]
    answer = results[0] if results else TimeoutError("what listens there does not speak dask's protocol")
    if isinstance(answer, Exception):
        raise ClusterError(
            f"--cluster {address}: no dask scheduler answers there ({_first_line(answer)}); start one with "
            f"`dask scheduler --port {port}` and workers with `dask worker {address} --nthreads 1`, and check the firewall between"
        ) from answer
    return answer


def _check_workers(client: Any, address: str) -> None:
    """Raise ClusterError unless there is a worker, and all of them are like this machine."""
    start = f"start some with `dask worker {address} --nthreads 1 --nworkers 4` on each machine"
    try:
        client.wait_for_workers(1, timeout=CONNECT)
    except TimeoutError:
        raise ClusterError(f"--cluster {address}: the scheduler has no workers; {start}") from None
    answers = {f"worker {worker}": answer for worker, answer in client.run(fingerprint, on_error="return").items()}
    try:
        answers["the scheduler"] = client.run_on_scheduler(fingerprint)  # dask deserialises tasks there
    except Exception as error:  # importing verifair there may raise anything
        answers["the scheduler"] = error
    for name, answer in answers.items():
        if isinstance(answer, OSError):
            continue  # it died meanwhile: there may be others, and each task checks again
        if isinstance(answer, Exception):
            raise ClusterError(
                f"--cluster {address}: {name} cannot work for us ({type(answer).__name__}: {_first_line(answer)}); install "
                f"verifair {fingerprint()['verifair']} where it runs, in the environment that starts it"
            )
        differences = unlike(answer)
        if differences:
            problem = f"{name} is not like this machine, and could give other answers: {differences}"
            raise ClusterError(f"--cluster {address}: {problem}; {SAME}")
    threads = {worker: count for worker, count in client.nthreads().items() if count != 1}
    for worker, count in threads.items():
        raise ClusterError(f"--cluster {address}: {several_threads(worker, count)}")


def lost(address: str) -> ClusterError:
    return ClusterError(f"--cluster {address}: the connection to the scheduler was lost. {REMEDY}")


@contextmanager
def reaching(address: str) -> Iterator[None]:
    """Context for calls of the scheduler: raises ClusterError if it has gone, instead of distributed's OSErrors of many kinds."""
    try:
        yield
    except OSError as error:
        raise lost(address) from error


def several_threads(worker: str, count: int) -> str:
    return (
        f"worker {worker} runs {count} threads in one process, where tasks would disturb one another; start it with --nthreads 1, "
        f"and with --nworkers {count} for as many processes"
    )


@lru_cache
def fingerprint() -> dict[str, str | None]:
    """Return the versions that must be equal on all machines of a run: Python, packages, and a digest of verifair's source."""
    versions: dict[str, str | None] = {"python": ".".join(map(str, sys.version_info[:2]))}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    digest = hashlib.sha256()
    for package in CODE:
        root = Path(str(resources.files(package)))
        for file in sorted(root.rglob("*.py")):
            digest.update(str(file.relative_to(root.parent)).encode() + b"\0" + file.read_bytes())
    versions["code"] = digest.hexdigest()[:16]
    return versions


def unlike(versions: dict[str, str | None]) -> str:
    """Return the differences between another machine and this one; empty if there are none."""
    local = fingerprint()
    names = [name for name in local if versions.get(name) != local[name]]
    return ", ".join(f"{name} {versions.get(name) or 'missing'} (here {local[name]})" for name in names)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


@dataclass(kw_only=True, eq=False)
class DaskCluster:
    """The workers of one dask scheduler, as `Machines` of `engine.parallel`.

    address: of the scheduler, for messages.   patience: seconds without any worker until a run is given up.   ahead: how far the
    scheduler's clock is ahead of ours; workers know theirs from their heartbeats.
    """

    client: Any
    address: str
    patience: float
    ahead: float
    shared: WeakKeyDictionary[Shared[Any], Any] = field(default_factory=WeakKeyDictionary)
    """The future of each argument that tasks share, as long as the argument exists."""

    @classmethod
    def of(cls, client: Any, address: str, patience: float) -> DaskCluster:
        start = time.time()
        ahead = client.run_on_scheduler(time.time) - (start + time.time()) / 2
        return cls(client=client, address=address, patience=patience, ahead=ahead)

    def workers(self) -> int:
        """Return the present number of workers."""
        with reaching(self.address):
            return len(self.client.nthreads())

    def as_done(self, tasks: Iterator[Task]) -> Iterator[Any]:
        """Yield results as they are done; tasks are taken from the iterator when workers need them.

        Raises ClusterError if the cluster is lost, and any error of a task. In these cases, or if the caller ends before the last
        result, tasks that have not started are cancelled; those that are running end, and their results are dropped.
        """
        pending: set[Any] = set()
        done: SimpleQueue[Any] = SimpleQueue()
        again: list[Any] = []
        count, next_check, last_seen = 0, 0.0, time.monotonic()
        try:
            while True:
                now = time.monotonic()
                if now > next_check:
                    count, next_check = self.workers(), now + min(1.0, self.patience / 4)
                    last_seen = now if count else last_seen
                    while again:
                        done.put(again.pop())
                    if now - last_seen > self.patience:
                        problem = f"all workers are gone, and none came for {self.patience:g} s"
                        raise ClusterError(f"--cluster {self.address}: {problem}. {REMEDY}")
                for task in islice(tasks, max(0, (1 + AHEAD) * max(count, 1) - len(pending))):
                    future = self._submitted(task)
                    pending.add(future)
                    future.add_done_callback(done.put)
                if not pending:
                    return
                try:
                    future = done.get(timeout=max(next_check - now, 0.01))
                except Empty:
                    continue
                if future.status in ("pending", "lost"):  # its worker died with the result: the scheduler has another one do it
                    again.append(future)
                    continue
                last_seen = time.monotonic()
                pending.discard(future)
                yield self._result(future)
        finally:
            with suppress(OSError, TimeoutError):
                self.client.cancel(list(pending), force=True)

    def _submitted(self, task: Task) -> Any:
        """Send one task."""

        def sent(value: Any) -> Any:
            if isinstance(value, Deadline):
                return replace(value, at=value.at + self.ahead)
            if not isinstance(value, Shared):
                return value
            if value not in self.shared:
                # A task, not scattered data: when the worker that holds it dies, the scheduler has another one make it again.
                self.shared[value] = self.client.submit(_kept, value, key=f"verifair-shared-{uuid4().hex}", pure=False)
            return self.shared[value]

        function, args, kwargs = task
        key = f"verifair-{function.__name__}-{uuid4().hex}"
        with reaching(self.address):
            values, options = [sent(value) for value in args], {name: sent(value) for name, value in kwargs.items()}
            return self.client.submit(_called, fingerprint(), function, values, options, key=key, pure=False)

    def _result(self, future: Any) -> Any:
        """Return the result of a task that has ended, or raise its error; ClusterError if the cluster failed."""
        if future.status == "error":
            raise self._explained(future.exception())
        with suppress(OSError, TimeoutError, CancelledError):  # lost in transfer: the task itself has succeeded
            if future.status == "finished":
                return future.result()
        raise lost(self.address)

    def _explained(self, error: BaseException) -> BaseException:
        from distributed.scheduler import KilledWorker

        if isinstance(error, KilledWorker):
            return ClusterError(
                f"--cluster {self.address}: one batch was on {error.allowed_failures + 1} workers that died, the last "
                f"{error.last_worker.address}; see their logs (out of memory?). {REMEDY}"
            )
        if isinstance(error, ImportError):
            return ClusterError(f"--cluster {self.address}: a worker lacks a package of this run ({error}); install it there")
        return error


def _kept(value: T) -> T:
    return value


def _called(expected: dict[str, str | None], function: Callable[..., T], args: list[Any], kwargs: dict[str, Any]) -> T:
    """Run one task on a worker. Workers may join during a run, so each task checks that its worker has the expected versions."""
    import distributed

    worker = distributed.get_worker()
    _check_expected(worker, expected)
    keep_freed()

    def here(value: Any) -> Any:
        return replace(value, at=value.at - worker.scheduler_delay) if isinstance(value, Deadline) else value

    try:
        return function(*map(here, args), **{name: here(value) for name, value in kwargs.items()})
    except (VerifairError, ModelError, BackendError) as error:
        error.args = (f"worker {worker.address}: {error}", *error.args[1:])
        raise


def _check_expected(worker: Any, client: dict[str, str | None]) -> None:
    differences = unlike(client)
    if differences:
        raise ClusterError(f"worker {worker.address} joined with other software than the client: {differences}; {SAME}. {REMEDY}")
    if worker.state.nthreads != 1:
        raise ClusterError(f"{several_threads(worker.address, worker.state.nthreads)}. {REMEDY}")
