"""Run many tasks of one kind on processes of this machine (joblib) or on a cluster (`engine.cluster`).

Two kinds of arguments change on their way to other machines: `Shared` is sent once, not with every task; a `Deadline` becomes the
same moment on the other machine's clock.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count, islice
from multiprocessing import resource_tracker
from types import ModuleType
from typing import Any, Generic, Protocol, TypeVar

import joblib
from joblib.externals.loky.backend import resource_tracker as loky_tracker
from joblib.externals.loky.process_executor import TerminatedWorkerError
from joblib.parallel import LokyBackend, get_active_backend

from solvers import clock
from solvers.clock import CountedTime
from verifair.checker.report import Spread
from verifair.errors import VerifairError
from verifair.interrupts import noted_interrupt
from verifair.memory import keep_freed

T = TypeVar("T")
Task = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
"""The result of `joblib.delayed(function)(...)`: the function and its arguments."""

MOMENT = 0.05
"""The least seconds that a task is given."""
ALONE, AWAKE = 0.5, 0.2
"""Seconds before a search starts other processes, and seconds that each of these then waits for the others."""
NEAR = 0.25
"""A search that takes less than this share of the time left is unaffected by the deadline, before which steps become smaller."""


@dataclass(frozen=True, kw_only=True)
class Deadline:
    """A moment by this machine's `time.monotonic`, which cannot be set back. It is sent to other processes as a time of day, as
    machines have no other clock in common.

    counted: where work is counted, the moment by that clock, which the other one limits.
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

    def within(self, seconds: float) -> float:
        """Return so many seconds, or the seconds left if they are fewer, as when a task starts late; at least MOMENT."""
        return max(min(seconds, self.left()), MOMENT)

    def __reduce__(self) -> tuple[Callable[..., Deadline], tuple[float, float | None]]:
        return _arrived, (self.at - time.monotonic() + time.time(), self.counted)


def _arrived(at: float, counted: float | None) -> Deadline:
    return Deadline(at=at - time.time() + time.monotonic(), counted=counted)


@dataclass(frozen=True, kw_only=True, eq=False)
class Shared(Generic[T]):
    """An argument that all tasks of a run share."""

    value: T


class ProcessError(VerifairError):
    """A process of this machine was killed during a task."""

    exit_code = 4


class Machines(Protocol):
    """Anything that runs tasks on other machines."""

    def workers(self) -> int:
        """Return the number of tasks that run at once."""

    def as_done(self, tasks: Iterator[Task]) -> Iterator[Any]:
        """Yield the results of tasks as they are done, in any order."""


REPLACED = "A worker stopped while some jobs were given to the executor"
"""joblib's warning when it replaces a process that holds too much memory. Nothing is lost by it."""
CUT = ".*You could benefit from adjusting the input task iterator"
"""joblib's warning when a caller ends before the last result, as after Ctrl-C."""
for _message in (REPLACED, CUT):  # set once: filters within a generator would change the caller's
    warnings.filterwarnings("ignore", message=_message, module="joblib")
MACHINES: ContextVar[Machines | None] = ContextVar("MACHINES", default=None)
"""The machines that run the tasks of this context; None for this machine."""


def workers(jobs: int) -> int:
    """Return the number of tasks that run at once: on a cluster's workers, else in `jobs` processes, or as joblib's context
    says."""
    machines = MACHINES.get()
    return int(joblib.effective_n_jobs(jobs)) if machines is None else max(1, machines.workers())


def as_done(tasks: Iterator[Task], jobs: int) -> Iterator[Any]:
    """Yield results of `joblib.delayed` tasks as they are done, in any order, by as many processes as `workers` returns.

    Where work is counted, results come in the order of the tasks, and equal those of one process: see `_in_turn`.
    """
    machines, counting = MACHINES.get(), clock.counting()
    if counting is not None and (machines is not None or workers(jobs) > 1):
        yield from _in_turn(tasks, jobs, counting)
    else:
        yield from _local_results(tasks, jobs) if machines is None else machines.as_done(tasks)


def _in_turn(tasks: Iterator[Task], jobs: int, counting: CountedTime) -> Iterator[Any]:
    """Yield results in the order of the tasks, and count their work as if each had begun when the one before it had ended.

    Other processes count from the clock's value when they are given a task, which is too early. A task that took more than NEAR of
    what is left in its turn, so that the deadline would have affected it, is done again here. So a run with an effort gives the
    same results with any number of processes.
    """
    sent: dict[int, Task] = {}

    def numbered() -> Iterator[Task]:
        for number in count():
            with clock.counted(counting.ceiling, counting.spent):  # joblib takes tasks in its own threads, which have no clock
                task = next(tasks, None)
            if task is None:
                return
            sent[number] = function, args, kwargs = task
            yield joblib.delayed(_counted)(number, counting.spent, counting.left, function, *args, **kwargs)

    def unordered() -> Iterator[tuple[int, tuple[Any, float]]]:
        results = as_done(numbered(), jobs)
        while True:
            with clock.uncounted():  # joblib's own threads get no clock; the caller has one
                item = next(results, None)
            if item is None:
                return
            yield item

    for number, (result, spent) in enumerate(_sorted(unordered())):
        function, args, kwargs = sent.pop(number)
        deadlines = [value for value in (*args, *kwargs.values()) if isinstance(value, Deadline)]
        if any(spent > NEAR * (deadline.counted - counting.spent) for deadline in deadlines if deadline.counted is not None):
            result = function(*args, **kwargs)
        else:
            counting.spent += spent
        yield result


def _sorted(results: Iterator[tuple[int, T]]) -> Iterator[T]:
    """Yield numbered results in the order of their numbers 0, 1, ..., each as soon as those before it are there."""
    waiting: dict[int, T] = {}
    following = 0
    for number, result in results:
        waiting[number] = result
        while following in waiting:
            yield waiting.pop(following)
            following += 1


def in_order(function: Shared[Callable[..., T]], arguments: Iterable[tuple[Any, ...]], threads: int) -> Iterator[T]:
    """Yield the results of a function for many arguments, in their order, by threads of this process or a cluster's workers.

    For functions that release Python's global lock, and whose work is not counted.
    """
    machines = MACHINES.get()
    if machines is not None:
        yield from _sorted(machines.as_done(_numbers(function, enumerate(arguments))))
        return
    results = joblib.Parallel(n_jobs=threads, require="sharedmem", return_as="generator")(
        joblib.delayed(_applied)(function, *args) for args in arguments
    )
    try:
        for result in results:  # noqa: UP028 - `yield from` would close it, and warn, before `finally`
            yield result
    finally:
        with warnings.catch_warnings():  # no warning if the caller ends early: unused results are no loss
            warnings.simplefilter("ignore")
            results.close()


class Helpers(Generic[T]):
    """Other processes that compute a function for a search, or the workers of a cluster. The processes are started after the search
    has run for a while, and help as soon as they are ready."""

    def __init__(self, function: Shared[Callable[..., T]], jobs: int) -> None:
        self.function, self.jobs = function, jobs
        self._alone_until = time.monotonic() + ALONE
        self._starting: threading.Thread | None = None

    def ready(self) -> int:
        """Return the number of tasks that can run at once now."""
        if MACHINES.get() is not None or not _processes(self.jobs):
            return workers(self.jobs)
        if self._starting is None and time.monotonic() >= self._alone_until:
            self._starting = threading.Thread(target=self._start, daemon=True)
            self._starting.start()
        return 1 if self._starting is None or self._starting.is_alive() else workers(self.jobs)

    def steps(self) -> int:
        """Return into how many tasks the search may divide its next step if that changes its results: into one where work is
        counted, so that results do not depend on the number of processes."""
        return 1 if clock.counting() is not None else self.ready()

    def together(self, arguments: Sequence[tuple[Any, ...]]) -> list[T]:
        """Return the function's results for many arguments, in their order; for a single one it is called here."""
        if len(arguments) < 2:
            return [self.function.value(*args) for args in arguments]
        return list(_sorted(as_done(_numbers(self.function, enumerate(arguments)), self.jobs)))

    def each(self, arguments: Iterable[tuple[Any, ...]]) -> Iterator[tuple[int, T]]:
        """Yield (number, result) for many arguments, in any order; the function is called here until others are ready."""
        numbered = enumerate(arguments)
        while MACHINES.get() is None and self.ready() < 2:
            item = next(numbered, None)
            if item is None:
                return
            yield item[0], self.function.value(*item[1])
        yield from as_done(_numbers(self.function, numbered), self.jobs)

    def _start(self) -> None:
        with suppress(Exception):  # the search will raise it, too
            for _ in _local_results((joblib.delayed(_awake)(self.function) for _ in range(self.jobs)), self.jobs):
                pass


def _awake(function: Shared[Callable[..., T]]) -> None:
    """Receive a function, which imports its modules, and wait, so that another process takes the next one."""
    time.sleep(AWAKE)


def spread(jobs: int) -> Spread:
    """Return a function that calls another one with many arguments on processes or machines. The checker uses it."""

    def results(function: Callable[..., T], arguments: Iterable[tuple[Any, ...]]) -> Iterator[T]:
        shared = Shared(value=function)
        return as_done((joblib.delayed(_applied)(shared, *args) for args in arguments), jobs)

    return results


def _applied(function: Shared[Callable[..., T]], *arguments: Any) -> T:
    return function.value(*arguments)


def _numbers(function: Shared[Callable[..., T]], numbered: Iterable[tuple[int, tuple[Any, ...]]]) -> Iterator[Task]:
    """Return tasks whose results come with the numbers of their arguments."""
    return (joblib.delayed(_numbered)(number, function, *args) for number, args in numbered)


def _numbered(number: int, function: Shared[Callable[..., T]], *arguments: Any) -> tuple[int, T]:
    return number, function.value(*arguments)


def _processes(jobs: int) -> bool:
    """Return True if joblib runs tasks in processes that it starts itself: Ray's have other parents."""
    return isinstance(get_active_backend()[0], LokyBackend) and joblib.effective_n_jobs(jobs) > 1


def _local_results(tasks: Iterator[Task], jobs: int) -> Iterator[Any]:
    """Yield results from joblib. A backend that only returns lists (Ray's) gets tasks in rounds, so that results can be kept on the
    way. Raises ProcessError if a process was killed."""
    own_pool = _processes(jobs)
    children = {"initializer": _begin, "initargs": (os.getpid(),)} if own_pool else {}
    errors: list[Exception] = []

    def safe() -> Iterator[Task]:
        """Yield the tasks, and keep an error of their iterator: joblib takes them in its own threads, which would hide it."""
        try:
            yield from tasks
        except Exception as error:
            errors.append(error)

    safe_tasks = safe()
    try:
        parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", **children)
    except ValueError:
        parallel = joblib.Parallel(n_jobs=jobs, **children)
        while part := list(islice(safe_tasks, 2 * joblib.effective_n_jobs(jobs))):
            yield from parallel(part)
    else:
        try:
            starts = unheard(resource_tracker, loky_tracker) if own_pool else nullcontext()
            with uninterrupted(), starts:  # a process that is half started would print a traceback
                results = parallel(safe_tasks)
            yield from results
        except TerminatedWorkerError as error:
            raise ProcessError(
                f"--jobs {jobs}: one of the processes was killed during the run (out of memory?). Start the same command again "
                "with fewer; where it has a store, --resume goes on with what is in it"
            ) from error
    if errors:
        raise errors[0]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Put Ctrl-C off to the end of the context, for short steps that it would break. A second Ctrl-C interrupts at once.

    In a loop that numba compiled, a KeyboardInterrupt becomes a SystemError.
    """
    with noted_interrupt(deferred=True) as interrupted:
        try:
            yield
        except SystemError:
            if not interrupted():
                raise
    if interrupted():
        raise KeyboardInterrupt


@contextmanager
def unheard(*trackers: ModuleType) -> Iterator[None]:
    """Context whose new processes ignore Ctrl-C, which a terminal sends to all processes: this process handles it, and may still
    need their results.

    trackers: resource trackers, which otherwise start a process of their own first, and would unblock the signal.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    for tracker in trackers:
        tracker.ensure_running()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _begin(parent: int) -> None:
    """Set up a new process: keep freed memory, and end soon after the parent, which may be killed at any time, even before this
    call. Otherwise this process would wait minutes for another task."""
    keep_freed()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, name="verifair-parent", daemon=True).start()


def _counted(
    number: int, spent: float, seconds: float, function: Callable[..., T], *args: Any, **kwargs: Any
) -> tuple[int, tuple[T, float]]:
    """Call a function in another process, on a clock that starts at `spent`; return its number, its result and its work."""
    with clock.counted(time.monotonic() + seconds, spent) as counting:
        return number, (function(*args, **kwargs), counting.spent - spent)
