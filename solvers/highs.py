"""HiGHS (MIT licence): LP by dual simplex, MIP by branch and cut. The default backend; every install has it.

Ctrl-C gives back an Outcome with LIMIT / INTERRUPTED.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from solvers.interrupt import run_interruptible
from solvers.outcome import Budget, Limit, Outcome, Termination, make_outcome
from solvers.program import Program

NAME, DISTRIBUTION, TOLERANCE = "highs", "highspy", 1e-6

# HighsModelStatus by name. kUnknown: the solver finished without being able to say.
_TERMINATION: dict[str, tuple[Termination, Limit | None]] = {
    "kNotset": (Termination.ERROR, None),
    "kLoadError": (Termination.ERROR, None),
    "kModelError": (Termination.ERROR, None),
    "kPresolveError": (Termination.ERROR, None),
    "kSolveError": (Termination.NUMERICAL, None),
    "kPostsolveError": (Termination.NUMERICAL, None),
    "kModelEmpty": (Termination.ERROR, None),
    "kOptimal": (Termination.OPTIMAL, None),
    "kInfeasible": (Termination.INFEASIBLE, None),
    "kUnboundedOrInfeasible": (Termination.INFEASIBLE_OR_UNBOUNDED, None),
    "kUnbounded": (Termination.UNBOUNDED, None),
    "kObjectiveBound": (Termination.LIMIT, Limit.OTHER),
    "kObjectiveTarget": (Termination.LIMIT, Limit.OTHER),
    "kTimeLimit": (Termination.LIMIT, Limit.TIME),
    "kIterationLimit": (Termination.LIMIT, Limit.ITERATIONS),
    "kUnknown": (Termination.NUMERICAL, None),
    "kSolutionLimit": (Termination.LIMIT, Limit.NODES),  # HiGHS reports mip_max_nodes this way
    "kInterrupt": (Termination.LIMIT, Limit.INTERRUPTED),
    "kHighsInterrupt": (Termination.LIMIT, Limit.INTERRUPTED),
    "kMemoryLimit": (Termination.LIMIT, Limit.MEMORY),
}


def solve(program: Program, *, budget: Budget, presolve: bool | None) -> Outcome:
    """Build by one passModel call from the CSR arrays, run, read back. Duals and Farkas rays for LPs."""
    return _solve(program, budget, presolve, None)[0]


def solve_sequence(programs: Iterable[Program], *, budget: Budget) -> Iterator[Outcome]:
    """Solve LPs one after the other, each started from the basis of the last one solved to optimality if it has its shape.

    For many LPs of one network: the answers are those of solve(), the simplex path is shorter. budget holds for each LP.
    Every program must have passed the checks of the registry's HiGHS backend; presolve is off, as a basis needs it.
    """
    basis = None
    for program in programs:
        outcome, basis = _solve(program, budget, False, basis)
        yield outcome


def _solve(program: Program, budget: Budget, presolve: bool | None, basis: Any) -> tuple[Outcome, Any]:
    """The outcome, and the basis to start the next LP from: this program's if it is optimal, else the one given."""
    import highspy

    answer = partial(make_outcome, program, backend=NAME, distribution=DISTRIBUTION, tolerance=TOLERANCE)
    started = time.perf_counter()
    highs = highspy.Highs()
    loaded = _configure(highs, budget, presolve) and _load(highs, program)
    built = time.perf_counter()
    if not loaded:
        return answer(termination=Termination.ERROR, limit=None, build_seconds=built - started, solve_seconds=0.0,
                      message="HiGHS refused the model or an option"), basis
    if basis is not None and (len(basis.col_status), len(basis.row_status)) == (program.columns, len(program.row_lower)):
        highs.setBasis(basis)
    highs.setOptionValue("time_limit", max(budget.seconds - (built - started), 1e-3))

    def run() -> object:
        # The scheduler is per thread and keeps its first thread count; a new count needs a new scheduler.
        highspy.Highs.resetGlobalScheduler(True)
        return highs.run()

    highs.HandleUserInterrupt = True
    run_interruptible(run, highs.cancelSolve)
    solve_seconds = time.perf_counter() - built
    return _read(highs, program, built - started, solve_seconds), _basis(highs, program) or basis


class HotStart:
    """One HiGHS instance for the many small LPs of a search tree: every LP starts from whichever basis it is given.

    Presolve is off, as a basis needs it. Each LP is a matter of milliseconds: Ctrl-C arrives between two of them.
    """

    def __init__(self) -> None:
        import highspy

        self._highs = highspy.Highs()
        if not _configure(self._highs, Budget(), False):
            raise ValueError("HiGHS refused an option")
        highspy.Highs.resetGlobalScheduler(True)

    def solve(self, program: Program, *, seconds: float, iterations: int, basis: Any = None) -> tuple[Outcome, Any]:
        """The outcome of an LP, and its basis to start similar ones from (None unless it was optimal).

        seconds, iterations: its limits; on wildly scaled programs the simplex method can run in circles.
        """
        started = time.perf_counter()
        loaded = _load(self._highs, program)
        if basis is not None and (len(basis.col_status), len(basis.row_status)) == (program.columns, len(program.row_lower)):
            self._highs.setBasis(basis)
        self._highs.setOptionValue("time_limit", self._highs.getRunTime() + max(seconds, 1e-3))  # the clock runs on
        self._highs.setOptionValue("simplex_iteration_limit", iterations)
        built = time.perf_counter()
        if loaded:
            self._highs.run()
        outcome = _read(self._highs, program, built - started, time.perf_counter() - built)
        return outcome, _basis(self._highs, program)


def _read(highs: Any, program: Program, build_seconds: float, solve_seconds: float) -> Outcome:
    """What HiGHS says after a run."""
    import highspy

    status = highs.getModelStatus()
    termination, limit = _TERMINATION.get(status.name, (Termination.ERROR, None))
    info = highs.getInfo()
    feasible = info.primal_solution_status == int(highspy.SolutionStatus.kSolutionStatusFeasible)
    duals = ray = dual_bound = None
    if program.mixed_integer:
        dual_bound = info.mip_dual_bound if termination in (Termination.OPTIMAL, Termination.LIMIT) else None
    elif termination is Termination.OPTIMAL:
        dual_bound = info.objective_function_value
        duals = np.array(highs.getSolution().row_dual)
    elif termination is Termination.INFEASIBLE and len(program.row_lower):
        ray = _farkas(highs)
    return make_outcome(
        program, backend=NAME, distribution=DISTRIBUTION, tolerance=TOLERANCE, termination=termination, limit=limit,
        build_seconds=build_seconds, solve_seconds=solve_seconds,
        values=np.array(highs.getSolution().col_value) if feasible else None, dual_bound=dual_bound, duals=duals, ray=ray,
        message=highs.modelStatusToString(status), nodes=int(info.mip_node_count) if program.mixed_integer else None)


def _basis(highs: Any, program: Program) -> Any:
    """The basis of an LP just solved to optimality, else None."""
    import highspy

    optimal = highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return highs.getBasis() if optimal and not program.mixed_integer else None


def _configure(highs: Any, budget: Budget, presolve: bool | None) -> bool:
    import highspy

    options: dict[str, object] = {
        "output_flag": False,
        "threads": budget.threads,
        "random_seed": budget.seed % (2**31 - 1),
        "mip_rel_gap": 0.0,
        "mip_abs_gap": 1e-9,
        "small_matrix_value": 1e-12,  # the default silently drops entries below 1e-9
    }
    if presolve is not None:
        options["presolve"] = "on" if presolve else "off"
    if budget.nodes is not None:
        options["mip_max_nodes"] = budget.nodes
    return all(highs.setOptionValue(name, value) == highspy.HighsStatus.kOk for name, value in options.items())


def _load(highs: Any, program: Program) -> bool:
    import highspy

    rows = program.rows
    objective = program.objective if program.objective is not None else np.zeros(program.columns)
    status = highs.passModel(
        program.columns, rows.shape[0], rows.nnz, int(highspy.MatrixFormat.kRowwise), int(highspy.ObjSense.kMinimize),
        program.constant, objective, program.lower, program.upper, program.row_lower, program.row_upper,
        rows.indptr[:-1].astype(np.int32), rows.indices.astype(np.int32), rows.data, program.integer.astype(np.int32),
    )
    return bool(status != highspy.HighsStatus.kError)


def _farkas(highs: Any) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    import highspy

    status, exists, ray = highs.getDualRay()
    return np.array(ray) if status == highspy.HighsStatus.kOk and exists else None
