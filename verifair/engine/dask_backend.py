"""joblib's way to a dask cluster: tasks and results, clocks, and what becomes of them when workers or the scheduler die.

joblib's own backend for dask waits for ever where a batch has killed its workers, or the scheduler does not come back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import uuid4

from joblib.parallel import ParallelBackendBase

from encoders.errors import ModelError
from solvers.errors import BackendError
from verifair.engine.parallel import REMEDY, SAME, Deadline, Shared, fingerprint, lost, reaching, several_threads, unlike
from verifair.errors import ClusterError, VerifairError

T = TypeVar("T")


class DaskBackend(ParallelBackendBase):  # type: ignore[misc]
    """One dask client as joblib sees it. address: of the scheduler, for messages.   patience: seconds without any worker until
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
        """All workers there are, whatever is asked for; two at least, as joblib takes one to mean this very process."""
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
        """What travels in place of an argument."""
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
        """The result of a task that has ended, or its error. Raises ClusterError where it was the cluster that failed."""
        if out.status == "error":
            raise self._told(out.exception())
        with suppress(OSError, TimeoutError, CancelledError):  # on its way to us: the task itself has ended well
            if out.status == "finished":
                return [out.result()]
        raise self.lost or lost(self.address)

    def _told(self, error: BaseException) -> BaseException:
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
    """One task, on a worker. Workers may join during a run: each makes sure that it is one of ours."""
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
