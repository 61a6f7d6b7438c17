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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata, resources
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

import joblib

from verifair.errors import ClusterError, MissingPackage, QueryError

T = TypeVar("T")
CONNECT, PATIENCE = 10.0, 60.0
"""Seconds to wait for the scheduler and its first worker, and for another worker once all are gone."""
PACKAGES = (
    "verifair", "numpy", "scipy", "pandas", "pydantic", "onnx", "onnxruntime", "python-flint", "highspy", "joblib", "cloudpickle",
    "dask", "distributed",
)  # fmt: skip
"""Whose versions decide what a worker answers, or whether it understands us."""
CODE = ("verifair", "encoders", "solvers")
SAME = "install the same versions on all machines, and start its workers again"
REMEDY = "What was done before is in the store: start the cluster again, then the same command with --resume"


@dataclass(frozen=True, kw_only=True)
class Deadline:
    """A moment by this machine's wall clock (seconds since 1970): processes of one machine share it, machines need not."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        return cls(at=time.time() + seconds)

    def left(self) -> float:
        """Seconds until then, negative once it is over."""
        return self.at - time.time()


@dataclass(frozen=True, kw_only=True, eq=False)
class Shared(Generic[T]):
    """An argument that all tasks of a run have in common."""

    value: T


def as_done(tasks: Iterator[Any], jobs: int) -> Iterator[Any]:
    """Results of `joblib.delayed` tasks as they are done, in any order: by `jobs` processes, or whatever joblib's context says.

    A backend that only returns lists (Ray's) is asked in rounds, so that what is done can be kept on the way.
    """
    try:
        parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
    except ValueError:
        parallel = joblib.Parallel(n_jobs=jobs)
        while part := list(islice(tasks, 2 * joblib.effective_n_jobs(jobs))):
            yield from parallel(part)
    else:
        yield from parallel(tasks)


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
    from verifair.engine.dask_backend import DaskBackend

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
    """What distributed logs about a lost connection, with tracebacks, our errors say in a line."""
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
    """A client, or the reason why there is none. Where something else listens than a scheduler, distributed would wait for ever."""
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
    """Calls to the scheduler. Raises ClusterError where it has gone: distributed then raises OSErrors of many kinds."""
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
    """What must be the same on all machines of a run: Python, the packages' versions, and the digest of our own source."""
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
    """What differs on another machine from this one; empty when nothing does."""
    here = fingerprint()
    other = [name for name in here if found.get(name) != here[name]]
    return ", ".join(f"{name} {found.get(name) or 'missing'} (here {here[name]})" for name in other)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
