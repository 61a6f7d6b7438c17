"""What a backend answers: why it stopped, which limit, what it claims, and the values, each in a field of its own."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt


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


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """A backend's answer. All claims hold up to the backend's `tolerance` (0 for exact arithmetic).

    values: (n,) a point or None.   primal_bound: objective at values.   dual_bound: proved bound on the optimum.
    duals: (m,) row duals of an LP, signed so that  objective - rows^T duals  are the reduced costs, or None.
    ray: (m,) dual (Farkas) ray of an infeasible LP, or None.
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
