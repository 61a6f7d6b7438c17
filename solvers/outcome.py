"""What a backend answers: why it stopped, which limit, what it claims, and the values; and every way it can refuse before that.

What happens while solving is an Outcome, not an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from importlib.metadata import version

import numpy as np
import numpy.typing as npt

from solvers.program import Array, Program


class Termination(Enum):
    """Why the backend stopped. A limit is never a claim about the program."""

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
    OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a run may use. seconds: wall clock; nodes: branch-and-bound nodes; memory_mb; threads; seed of every draw."""

    seconds: float = 60.0
    nodes: int | None = None
    memory_mb: int | None = None
    threads: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ValueError(f"budget: seconds = {self.seconds}, expected a positive number")
        if self.nodes is not None and self.nodes < 1:
            raise ValueError(f"budget: nodes = {self.nodes}, expected at least 1")
        if self.threads < 1:
            raise ValueError(f"budget: threads = {self.threads}, expected at least 1")
        if self.seed < 0:
            raise ValueError(f"budget: seed = {self.seed}, expected 0 or more")


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """A backend's answer. All claims hold up to the backend's `tolerance` (0 for exact arithmetic).

    values: (n,) a point or None.   primal_bound: objective at values.   dual_bound: proved bound on the optimum.
    Both bounds are None for a feasibility question.
    duals: (m,) row duals of an LP, signed so that  objective - rows^T duals  are the reduced costs, or None.
    ray: (m,) dual (Farkas) ray y of an infeasible LP, or None. Signed like duals: y_i > 0 uses row_lower_i, y_i < 0 uses
        row_upper_i, and   sum_i max(y_i row_lower_i, y_i row_upper_i)  >  max over the column box of (rows^T y) . v.
    exact_values: the point as rationals, from a backend in exact arithmetic only; values is then its rounding to float64.
    """

    termination: Termination
    limit: Limit | None
    values: npt.NDArray[np.float64] | None
    primal_bound: float | None
    dual_bound: float | None
    duals: npt.NDArray[np.float64] | None
    ray: npt.NDArray[np.float64] | None
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
    """Version of an installed distribution, read from its metadata without importing it."""
    return version(distribution)


def make_outcome(
    program: Program, *, backend: str, distribution: str, tolerance: float, termination: Termination, limit: Limit | None,
    build_seconds: float, solve_seconds: float, values: Array | None = None, dual_bound: float | None = None,
    duals: Array | None = None, ray: Array | None = None, nodes: int | None = None, message: str = "",
    exact_values: tuple[Fraction, ...] | None = None,
) -> Outcome:
    """An Outcome, with what follows from the program alone filled in here once for all backends:

    a feasibility question that ends OPTIMAL is SATISFIED; INFEASIBLE_OR_UNBOUNDED is INFEASIBLE where the objective is
    bounded on the column box; primal_bound is the objective evaluated at values; an infinite dual_bound is None.
    """
    if termination is Termination.INFEASIBLE_OR_UNBOUNDED and program.objective_bounded:
        termination = Termination.INFEASIBLE
    if termination is Termination.OPTIMAL and values is None:
        termination, message = Termination.ERROR, f"optimal without a point: {message}"
    objective = program.objective
    if objective is None and termination is Termination.OPTIMAL:
        termination = Termination.SATISFIED
    primal_bound = None if objective is None or values is None else float(objective @ values) + program.constant
    if objective is None or (dual_bound is not None and not np.isfinite(dual_bound)):
        dual_bound = None
    return Outcome(
        termination=termination, limit=limit, values=values, primal_bound=primal_bound, dual_bound=dual_bound,
        duals=duals, ray=ray, backend=backend, version=installed_version(distribution), tolerance=tolerance,
        build_seconds=build_seconds, solve_seconds=solve_seconds, nodes=nodes, message=message, exact_values=exact_values,
    )


class BackendError(Exception):
    """Base of the solver floor's errors; exit_code is the command line's exit status."""

    exit_code = 4


class Unavailable(BackendError):
    """The backend's package is not installed, or it has no valid licence. The message says what to install."""


class LicenceLimit(BackendError):
    """The program is larger than the backend's licence allows. The message says size, limit and the remedy."""


class UnsupportedProgram(BackendError):
    """The program needs what the backend lacks. Raised before solving; the message names installed backends that could do it."""
