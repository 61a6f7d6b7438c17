"""Batches: one kind of job, done by processes of this machine (joblib) or by the machines of a cluster (`engine.cluster`).

Two kinds of arguments are translated on their way to other machines: `Shared` is sent once, not with every task; a `Deadline` is
the same moment on another machine's clock.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

import joblib
from joblib.parallel import LokyBackend, get_active_backend

from solvers import clock
from verifair.checker.report import Spread

T = TypeVar("T")
Task = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
"""What `joblib.delayed(function)(...)` gives: the function and its arguments."""


@dataclass(frozen=True, kw_only=True)
class Deadline:
    """A moment by this machine's `time.monotonic`, which nobody sets back. It travels to other processes as a time of day, as
    machines have no other clock in common.

    counted: where work is counted, the moment by that clock, whose ceiling is the other.
    """

    at: float
    counted: float | None = None

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        counting = clock.counting()
        if counting is None:
            return cls(at=time.monotonic() + seconds)
        return cls(at=time.monotonic() + counting.left, counted=clock.now() + seconds)

    def left(self) -> float:
        """Return the seconds until then, negative once it is over."""
        return self.at - time.monotonic() if self.counted is None else self.counted - clock.now()

    def __reduce__(self) -> tuple[Callable[..., Deadline], tuple[float, float | None]]:
        return _arrived, (self.at - time.monotonic() + time.time(), self.counted)


def _arrived(at: float, counted: float | None) -> Deadline:
    return Deadline(at=at - time.time() + time.monotonic(), counted=counted)


@dataclass(frozen=True, kw_only=True, eq=False)
class Shared(Generic[T]):
    """An argument that all tasks of a run have in common."""

    value: T


class Machines(Protocol):
    """Who does tasks elsewhere."""

    def workers(self) -> int:
        """Return how many tasks are done at once."""

    def as_done(self, tasks: Iterator[Task]) -> Iterator[Any]:
        """Yield the results of tasks as they are done, in any order."""


REPLACED = "A worker stopped while some jobs were given to the executor"
"""What joblib warns of where it replaces a process that has come to hold much memory. Nothing is lost by it."""
MACHINES: ContextVar[Machines | None] = ContextVar("MACHINES", default=None)
"""Who does the tasks of this context, None where this machine does."""


def workers(jobs: int) -> int:
    """Return how many tasks are done at once: by a cluster's workers, else by `jobs` processes, or as joblib's context says."""
    machines = MACHINES.get()
    return int(joblib.effective_n_jobs(jobs)) if machines is None else max(1, machines.workers())


def as_done(tasks: Iterator[Task], jobs: int) -> Iterator[Any]:
    """Yield results of `joblib.delayed` tasks as they are done, in any order, by those whom `workers` counts.

    Where work is counted, each process counts its own, from what the clock shows when its task is handed out.
    """
    machines, counting, many = MACHINES.get(), clock.counting(), workers(jobs)
    if counting is not None and (machines is not None or many > 1):
        count = joblib.delayed(_counted)
        work = (count(counting.spent, counting.left, function, *args, **named) for function, args, named in tasks)
        with clock.uncounted():  # joblib's own threads get no clock
            for found, spent in as_done(work, jobs):
                counting.spent += spent / many
                yield found
        return
    yield from _here(tasks, jobs) if machines is None else machines.as_done(tasks)


def spread(jobs: int) -> Spread:
    """Return what calls a function with many arguments, as batches: how the checker is given other processes, or machines."""

    def results(function: Callable[..., T], arguments: Iterable[tuple[Any, ...]]) -> Iterator[T]:
        common = Shared(value=function)
        return as_done((joblib.delayed(_applied)(common, *one) for one in arguments), jobs)

    return results


def _applied(function: Shared[Callable[..., T]], *arguments: Any) -> T:
    return function.value(*arguments)


def _here(tasks: Iterator[Task], jobs: int) -> Iterator[Any]:
    """Yield results from joblib. A backend that only returns lists (Ray's) is asked in rounds, so that what is done can be kept on
    the way."""
    own = isinstance(get_active_backend()[0], LokyBackend) and joblib.effective_n_jobs(jobs) > 1  # Ray's have other parents
    children = {"initializer": _end_with, "initargs": (os.getpid(),)} if own else {}
    failed: list[Exception] = []

    def safe() -> Iterator[Task]:
        """joblib takes tasks in threads of its own, which would hide an error."""
        try:
            yield from tasks
        except Exception as error:
            failed.append(error)

    given = safe()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=REPLACED)
        try:
            parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", **children)
        except ValueError:
            parallel = joblib.Parallel(n_jobs=jobs, **children)
            while part := list(islice(given, 2 * joblib.effective_n_jobs(jobs))):
                yield from parallel(part)
        else:
            yield from parallel(given)
    if failed:
        raise failed[0]


def _end_with(parent: int) -> None:
    """End this process soon after its parent, which may be killed at any time, also before this is called; otherwise it would wait
    minutes for another task."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, name="verifair-parent", daemon=True).start()


def _counted(spent: float, seconds: float, function: Callable[..., T], *args: Any, **kwargs: Any) -> tuple[T, float]:
    """Call a function in another process, on a clock that shows `spent`; return also what it counts."""
    with clock.counted(time.monotonic() + seconds, spent) as counting:
        return function(*args, **kwargs), counting.spent - spent
