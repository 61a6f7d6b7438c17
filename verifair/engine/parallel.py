"""Many machines: batch commands on the workers of a dask cluster, through joblib.

`with cluster("tcp://host:8786"):` makes every `joblib.Parallel` within it run on the cluster. Before anything is asked, all workers
must run the same code and the same packages as this machine, so that answers do not depend on who computes them; while it runs,
a worker that dies loses its tasks to the others, and where nobody is left the run ends with an error and keeps what is done.
Two kinds of arguments are translated on their way: `Shared` is sent once, not with every task; a `Deadline` is the same moment on
another machine's clock.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata, resources
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar
from uuid import uuid4

import joblib
from joblib.parallel import ParallelBackendBase

from encoders.errors import ModelError
from solvers import clock
from solvers.outcome import BackendError
from verifair.errors import ClusterError, MissingPackage, QueryError, VerifairError

T = TypeVar("T")
CONNECT, PATIENCE = 10.0, 60.0
"""Seconds to wait for the scheduler and its first worker, and for another worker once all are gone."""
PACKAGES = (
    "verifair", "numpy", "scipy", "pandas", "pydantic", "onnx", "onnxruntime", "python-flint", "highspy", "joblib", "cloudpickle",
    "dask", "distributed",
)
"""Whose versions decide what a worker answers, or whether it understands us."""
CODE = ("verifair", "encoders", "solvers")
SAME = "install the same versions on all machines, and start its workers again"
REMEDY = "What was done before is in the store: start the cluster again, then the same command with --resume"


@dataclass(frozen=True, kw_only=True)
class Deadline:
    """A moment by this machine's wall clock (seconds since 1970): processes of one machine share it, machines need not.

    counted: where work is counted, the moment by that clock, whose ceiling is the other.
    """

    at: float
    counted: float | None = None

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        counting = clock.counting()
        if counting is None:
            return cls(at=time.time() + seconds)
        return cls(at=time.time() + counting.left, counted=clock.now() + seconds)

    def left(self) -> float:
        """Return the seconds until then, negative once it is over."""
        return self.at - time.time() if self.counted is None else self.counted - clock.now()


@dataclass(frozen=True, kw_only=True, eq=False)
class Shared(Generic[T]):
    """An argument that all tasks of a run have in common."""

    value: T


def as_done(tasks: Iterator[Any], jobs: int) -> Iterator[Any]:
    """Yield results of `joblib.delayed` tasks as they are done, in any order: by `jobs` processes, or whatever joblib's context
    says.

    A backend that only returns lists (Ray's) is asked in rounds, so that what is done can be kept on the way.
    Where work is counted, each process counts its own, from what the clock shows when its task is handed out.
    """
    counting = clock.counting()
    if counting is not None and joblib.effective_n_jobs(jobs) > 1:
        work = (joblib.delayed(_counted)(counting.spent, counting.left, *task) for task in tasks)
        with clock.uncounted():  # joblib's own threads are told of no clock
            for found, spent in as_done(work, jobs):
                counting.spent += spent / joblib.effective_n_jobs(jobs)
                yield found
        return
    try:
        parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
    except ValueError:
        parallel = joblib.Parallel(n_jobs=jobs)
        while part := list(islice(tasks, 2 * joblib.effective_n_jobs(jobs))):
            yield from parallel(part)
    else:
        yield from parallel(tasks)


def _counted(spent: float, seconds: float, function: Callable[..., T], args: Any, kwargs: Any) -> tuple[T, float]:
    """Call a function in another process, on a clock that shows `spent`; return also what it counts."""
    with clock.counted(time.monotonic() + seconds, spent) as counting:
        return function(*args, **kwargs), counting.spent - spent


@contextmanager
def cluster(address: str | None, *, patience: float = PATIENCE) -> Iterator[None]:
    """Run the joblib calls within on the dask cluster whose scheduler listens at `address` (tcp://host:port); None changes nothing.

    patience: seconds without any worker after which a run is given up.
    Raises QueryError for what is no address, MissingPackage without dask, ClusterError when nobody listens, no worker is there, or
    one runs other code or packages, has several threads, or (later) when the cluster is lost.
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
                backend = DaskBackend(client, address, patience)
            with joblib.parallel_config(backend=backend):
                yield
        finally:
            with suppress(OSError, TimeoutError):  # a scheduler that is gone cannot be told goodbye
                client.close(timeout=5)


@contextmanager
def _silence() -> Iterator[None]:
    """Silence what distributed logs about a lost connection, with tracebacks: our errors say it in a line."""
    handlers = list(logging.getLogger("distributed").handlers)  # its child loggers have levels of their own

    def nothing(record: logging.LogRecord) -> bool:
        return False

    for handler in handlers:
        handler.addFilter(nothing)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(nothing)


def check_address(address: str) -> None:
    """Raise QueryError for what is no address, MissingPackage without dask."""
    scheme, _, rest = address.partition("://")
    host, _, port = rest.rpartition(":")
    if scheme not in ("tcp", "tls") or not host or not port.isdecimal():
        raise QueryError(f"--cluster {address}: expected the address of a dask scheduler, tcp://host:port (or tls://host:port)")
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise MissingPackage(f"--cluster needs dask ({error}): pip install 'verifair[distributed]'") from error


def _connected(address: str) -> Any:
    """Return a client, or raise the reason why there is none. Where something else listens than a scheduler, distributed would wait
    for ever."""
    import distributed

    found: list[Any] = []

    def connect() -> None:
        try:
            found.append(distributed.Client(address, timeout=CONNECT, set_as_default=False))
        except Exception as error:
            found.append(error)

    attempt = threading.Thread(target=connect, daemon=True)
    attempt.start()
    attempt.join(2 * CONNECT)
    port = address.rpartition(":")[2]
    answer = found[0] if found else TimeoutError("what listens there does not speak dask's protocol")
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
    found = {f"worker {worker}": answer for worker, answer in client.run(fingerprint, on_error="return").items()}
    try:
        found["the scheduler"] = client.run_on_scheduler(fingerprint)  # dask reads our tasks there
    except Exception as error:  # whatever importing us raised there
        found["the scheduler"] = error
    for who, answer in found.items():
        if isinstance(answer, OSError):
            continue  # it died while it was asked: others may be there, and each task asks again
        if isinstance(answer, Exception):
            raise ClusterError(
                f"--cluster {address}: {who} cannot work for us ({type(answer).__name__}: {_first_line(answer)}); install "
                f"verifair {fingerprint()['verifair']} where it runs, in the environment that starts it"
            )
        other = unlike(answer)
        if other:
            why = f"{who} is not like this machine, and could give other answers: {other}"
            raise ClusterError(f"--cluster {address}: {why}; {SAME}")
    threads = {worker: count for worker, count in client.nthreads().items() if count != 1}
    for worker, count in threads.items():
        raise ClusterError(f"--cluster {address}: {several_threads(worker, count)}")


def lost(address: str) -> ClusterError:
    return ClusterError(f"--cluster {address}: the connection to the scheduler was lost. {REMEDY}")


@contextmanager
def reaching(address: str) -> Iterator[None]:
    """Call the scheduler. Raises ClusterError where it has gone: distributed then raises OSErrors of many kinds."""
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
    """Return what must be the same on all machines of a run: Python, the packages' versions, and the digest of our own source."""
    found: dict[str, str | None] = {"python": ".".join(map(str, sys.version_info[:2]))}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    digest = hashlib.sha256()
    for package in CODE:
        root = Path(str(resources.files(package)))
        for file in sorted(root.rglob("*.py")):
            digest.update(str(file.relative_to(root.parent)).encode() + b"\0" + file.read_bytes())
    found["code"] = digest.hexdigest()[:16]
    return found


def unlike(found: dict[str, str | None]) -> str:
    """Return what differs on another machine from this one; empty when nothing does."""
    here = fingerprint()
    other = [name for name in here if found.get(name) != here[name]]
    return ", ".join(f"{name} {found.get(name) or 'missing'} (here {here[name]})" for name in other)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


class DaskBackend(ParallelBackendBase):  # type: ignore[misc]
    """One dask client as joblib sees it. joblib's own backend for dask waits for ever where a batch has killed its workers, or the
    scheduler does not come back.

    address: of the scheduler, for messages.   patience: seconds without any worker until
    a run is given up."""

    supports_retrieve_callback = True
    default_n_jobs = -1

    def __init__(self, client: Any, address: str, patience: float) -> None:
        super().__init__()
        self.client, self.address, self.patience = client, address, patience
        self.lock = threading.Lock()
        self.pending: set[Any] = set()
        self.shared: dict[int, tuple[Any, Any]] = {}  # by id: what is shared (kept alive), and where it is
        self.lost: ClusterError | None = None
        self.over = threading.Event()
        # How far the scheduler's clock is ahead of ours; workers know theirs from their heartbeats.
        before = time.time()
        self.ahead = client.run_on_scheduler(time.time) - (before + time.time()) / 2

    def effective_n_jobs(self, n_jobs: int) -> int:
        """Return all workers there are, whatever is asked for; two at least, as joblib takes one to mean this very process."""
        with reaching(self.address):
            return max(2, len(self.client.nthreads()))

    def start_call(self) -> None:
        self.lost, self.over = None, threading.Event()
        threading.Thread(target=self._watch, args=(self.over,), name="verifair-cluster-watch", daemon=True).start()

    def stop_call(self) -> None:
        self.over.set()
        self.shared.clear()

    def submit(self, func: Any, callback: Callable[[Any], None]) -> Any:
        """Send one task (joblib makes batches of one, as `compute_batch_size` says)."""
        ((function, args, kwargs),) = func.items
        key = f"verifair-{function.__name__}-{uuid4().hex}"
        with reaching(self.address):
            values = [self._sent(value) for value in args]
            named = {name: self._sent(value) for name, value in kwargs.items()}
            future = self.client.submit(_called, fingerprint(), function, values, named, key=key, pure=False)
        with self.lock:
            self.pending.add(future)

        def done(future: Any) -> None:
            with self.lock:
                self.pending.discard(future)
            callback(future)

        future.add_done_callback(done)
        return future

    def _sent(self, value: Any) -> Any:
        """Return what travels in place of an argument."""
        if isinstance(value, Deadline):
            return _SchedulerMoment(at=value.at + self.ahead)
        if not isinstance(value, Shared):
            return value
        if id(value) not in self.shared:
            # A task, not scattered data: when the worker that holds it dies, the scheduler has another one make it again.
            future = self.client.submit(_kept, value, key=f"verifair-shared-{uuid4().hex}", pure=False)
            self.shared[id(value)] = value, future
        return self.shared[id(value)][1]

    def retrieve_result_callback(self, out: Any) -> list[Any]:
        """Return the result of a task that has ended, or its error. Raises ClusterError where it was the cluster that failed."""
        if out.status == "error":
            raise self._explained(out.exception())
        with suppress(OSError, TimeoutError, CancelledError):  # on its way to us: the task itself has ended well
            if out.status == "finished":
                return [out.result()]
        raise self.lost or lost(self.address)

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

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel what has not begun on the cluster; what a worker is at, it ends, and nobody hears of it."""
        self._cancel()

    def _cancel(self) -> None:
        with self.lock:
            pending = list(self.pending)
        with suppress(OSError, TimeoutError):
            self.client.cancel(pending, force=True)

    def _watch(self, over: threading.Event) -> None:
        """Give up when there has been no worker for `patience` seconds. (A lost scheduler ends all futures by itself.)"""
        seen = time.monotonic()
        while not over.wait(min(1.0, self.patience / 4)):
            with suppress(OSError, TimeoutError):
                if self.client.nthreads():
                    seen = time.monotonic()
            if time.monotonic() - seen > self.patience:
                self.lost = ClusterError(
                    f"--cluster {self.address}: all workers are gone, and none came for {self.patience:g} s. {REMEDY}"
                )
                self._cancel()
                return


@dataclass(frozen=True, kw_only=True)
class _SchedulerMoment:
    """A deadline by the scheduler's clock."""

    at: float

    def here(self, scheduler_ahead: float) -> Deadline:
        return Deadline(at=self.at - scheduler_ahead)


def _kept(value: T) -> T:
    return value


def _called(expected: dict[str, str | None], function: Callable[..., T], args: list[Any], kwargs: dict[str, Any]) -> T:
    """Run one task, on a worker. Workers may join during a run: each makes sure that it is one of ours."""
    import distributed

    worker = distributed.get_worker()
    _check_expected(worker, expected)

    def here(value: Any) -> Any:
        return value.here(worker.scheduler_delay) if isinstance(value, _SchedulerMoment) else value

    try:
        return function(*map(here, args), **{name: here(value) for name, value in kwargs.items()})
    except (VerifairError, ModelError, BackendError) as error:
        error.args = (f"worker {worker.address}: {error}", *error.args[1:])
        raise


def _check_expected(worker: Any, client: dict[str, str | None]) -> None:
    other = unlike(client)
    if other:
        raise ClusterError(f"worker {worker.address} joined with other software than the client: {other}; {SAME}. {REMEDY}")
    if worker.state.nthreads != 1:
        raise ClusterError(f"{several_threads(worker.address, worker.state.nthreads)}. {REMEDY}")
