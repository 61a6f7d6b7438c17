"""Answers of solvers (backends): why a run stopped, bounds and values; and the errors that a backend raises before a run.

What happens while solving is an Outcome, not an error. `BackendRun` makes the Outcome; `run_interruptible` brings Ctrl-C to
backends that do not hear it while they run in C++.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from importlib.metadata import version
from typing import TypeVar

import numpy as np

from solvers.program import Array, Program


class Termination(Enum):
    """The reason why a backend stopped. A limit is never a claim about the program."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    INFEASIBLE_OR_UNBOUNDED = "infeasible-or-unbounded"
    SATISFIED = "satisfied"          # a feasibility question was answered with a point
    LIMIT = "limit"                  # stopped early; `limit` says by what; values may hold the best point so far
    NUMERICAL = "numerical"          # the backend gave up on numerical grounds
    ERROR = "error"


class Limit(Enum):
    TIME = "time"
    NODES = "nodes"
    MEMORY = "memory"
    ITERATIONS = "iterations"
    INTERRUPTED = "interrupted"
    DECIDED = "decided"  # the budget's stop_below or stop_above was reached: see values and dual_bound
    OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits of a run: time, work, memory; and values of the objective at which a solver may stop.

    seconds: wall clock.   nodes: boxes or nodes of branch and bound.   memory_mb, threads: for solvers.   seed: of every draw.
    stop_below: stop at a feasible point with an objective of at most this.   stop_above: stop at a dual bound of at least this.
    Both apply to programs with an objective; an LP is solved to its optimum, except by exact backends.
    """

    seconds: float = 60.0
    nodes: int | None = None
    memory_mb: int | None = None
    threads: int = 1
    seed: int = 0
    stop_below: float | None = None
    stop_above: float | None = None

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ValueError(f"budget: seconds = {self.seconds}, expected a positive number")
        if self.nodes is not None and self.nodes < 1:
            raise ValueError(f"budget: nodes = {self.nodes}, expected at least 1")
        if self.threads < 1:
            raise ValueError(f"budget: threads = {self.threads}, expected at least 1")
        if self.seed < 0:
            raise ValueError(f"budget: seed = {self.seed}, expected 0 or more")
        below = -np.inf if self.stop_below is None else self.stop_below
        above = np.inf if self.stop_above is None else self.stop_above
        if not below <= above:
            raise ValueError(f"budget: stop_below = {below}, stop_above = {above}, expected numbers that rise")


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """The answer of a solver (backend). All its numbers hold within the backend's `tolerance` (0 for exact arithmetic).

    values: (n,) a point or None.   primal_bound: objective at values.   dual_bound: proved bound on the optimum.
    Both bounds are None for a feasibility question.
    duals: (m,) row duals of an LP, signed so that  objective - rows^T duals  are the reduced costs, or None.
    ray: (m,) dual (Farkas) ray y of an infeasible LP, or None. Signed like duals: y_i > 0 uses row_lower_i, y_i < 0 uses
        row_upper_i, and   sum_i max(y_i row_lower_i, y_i row_upper_i)  >  max over the column box of (rows^T y) . v.
    exact_values: the point as rationals, from a backend in exact arithmetic only; values is then its rounding to float64.
    """

    termination: Termination
    limit: Limit | None
    values: Array | None
    primal_bound: float | None
    dual_bound: float | None
    duals: Array | None
    ray: Array | None
    backend: str
    version: str
    tolerance: float
    build_seconds: float
    solve_seconds: float
    nodes: int | None
    message: str = ""
    exact_values: tuple[Fraction, ...] | None = None


@lru_cache
def installed_version(distribution: str) -> str:
    """Return the version of an installed distribution, read from its metadata without importing it."""
    return version(distribution)


Reason = Termination | Limit
"""Why a run ended: a termination, or the limit that stopped it (LIMIT)."""


def reasons(listed: Mapping[Reason, Sequence[Hashable]]) -> dict[Hashable, Reason]:
    """Return a backend's statuses with the reason that each of them stands for, from the statuses of each reason."""
    return {status: reason for reason, statuses in listed.items() for status in statuses}


class BackendRun:
    """One run of a backend: its clock, which starts here, and the Outcome made from the backend's answer."""

    def __init__(self, program: Program, backend: str, distribution: str, tolerance: float) -> None:
        self.program, self.backend, self.distribution, self.tolerance = program, backend, distribution, tolerance
        self.build_seconds = self.solve_seconds = 0.0
        self._mark = time.perf_counter()

    def begin(self, budget: Budget) -> float:
        """Note that the program is built; return the seconds of the budget that are left, which may be negative."""
        self._mark, started = time.perf_counter(), self._mark
        self.build_seconds = self._mark - started
        return budget.seconds - self.build_seconds

    def end(self) -> float:
        """Note that the backend has stopped; return the seconds that it took."""
        self.solve_seconds = time.perf_counter() - self._mark
        return self.solve_seconds

    def outcome(
        self, reason: Reason, message: str, *, values: Array | None = None, dual_bound: float | None = None,
        multipliers: Array | None = None, nodes: int | None = None, exact_values: tuple[Fraction, ...] | None = None,
    ) -> Outcome:
        """Return an Outcome, with what follows from the program alone filled in here once for all backends:

        a feasibility question that ends OPTIMAL is SATISFIED; INFEASIBLE_OR_UNBOUNDED is INFEASIBLE where the objective is
        bounded on the column box; primal_bound is the objective evaluated at values; an infinite dual_bound is None.
        multipliers: the row duals of an optimal LP, or the Farkas ray of an infeasible one.
        """
        termination, limit = (Termination.LIMIT, reason) if isinstance(reason, Limit) else (reason, None)
        duals = multipliers if termination is Termination.OPTIMAL else None
        ray = multipliers if termination is Termination.INFEASIBLE else None
        objective = self.program.objective
        if termination is Termination.INFEASIBLE_OR_UNBOUNDED and self.program.objective_bounded:
            termination = Termination.INFEASIBLE
        if termination is Termination.OPTIMAL and values is None:
            termination, message = Termination.ERROR, f"optimal without a point: {message}"
        if objective is None and termination is Termination.OPTIMAL:
            termination = Termination.SATISFIED
        primal_bound = None if objective is None or values is None else float(objective @ values) + self.program.constant
        if objective is None or (dual_bound is not None and not np.isfinite(dual_bound)):
            dual_bound = None
        return Outcome(
            termination=termination, limit=limit, values=values, primal_bound=primal_bound, dual_bound=dual_bound, duals=duals,
            ray=ray, backend=self.backend, version=installed_version(self.distribution), tolerance=self.tolerance,
            build_seconds=self.build_seconds, solve_seconds=self.solve_seconds, nodes=nodes, message=message,
            exact_values=exact_values,
        )


Result = TypeVar("Result")


def run_interruptible(work: Callable[[], Result], stop: Callable[[], None]) -> tuple[Result, bool]:
    """Run work() in a thread while this one listens; on Ctrl-C call stop() and wait for the result.

    Returns (result, whether Ctrl-C arrived). A second Ctrl-C propagates as KeyboardInterrupt without waiting.
    Python delivers Ctrl-C to the main thread only, so any other thread runs work() directly.
    """
    if threading.current_thread() is not threading.main_thread():
        return work(), False
    results: list[Result] = []
    failures: list[BaseException] = []

    def body() -> None:
        try:
            results.append(work())
        except BaseException as error:  # carried over to the waiting thread, which raises it
            failures.append(error)
        finally:
            done.set()

    done = threading.Event()  # Thread.join believes the thread ended when Ctrl-C breaks it off (Python 3.11)
    interrupted = False
    try:
        threading.Thread(target=body, daemon=True).start()
        done.wait()
    except KeyboardInterrupt:
        interrupted = True
        stop()
        done.wait()
    if failures:
        raise failures[0]
    return results[0], interrupted


class BackendError(Exception):
    """Base of the solver floor's errors; exit_code is the command line's exit status."""

    exit_code = 4


class Unavailable(BackendError):
    """The backend's package is not installed, or it has no valid licence. The message says what to install."""


class LicenceLimit(BackendError):
    """The program is larger than the backend's licence allows. The message says size, limit and the remedy."""


class UnsupportedProgram(BackendError):
    """The program needs what the backend lacks. Raised before solving; the message names installed backends that could do it."""
