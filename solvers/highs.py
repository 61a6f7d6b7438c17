"""HiGHS (MIT licence): LP by dual simplex, MIP by branch and cut. The default backend; every install has it.

Ctrl-C gives back an Outcome with LIMIT / INTERRUPTED.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from solvers import clock
from solvers.outcome import BackendRun, Budget, Limit, Outcome, Termination, reasons, run_interruptible
from solvers.program import Program

NAME, DISTRIBUTION, TOLERANCE = "highs", "highspy", 1e-6
PROGRAM, ITERATION = 1_500, 18
"""Multiplications for each number of an LP that take as long as loading it, and as an iteration."""

# HighsModelStatus by name. kUnknown: the solver finished without being able to say. HiGHS reports mip_max_nodes as kSolutionLimit.
_REASONS = reasons({
    Termination.OPTIMAL: ["kOptimal"],
    Termination.INFEASIBLE: ["kInfeasible"],
    Termination.UNBOUNDED: ["kUnbounded"],
    Termination.INFEASIBLE_OR_UNBOUNDED: ["kUnboundedOrInfeasible"],
    Termination.NUMERICAL: ["kSolveError", "kPostsolveError", "kUnknown"],
    Termination.ERROR: ["kNotset", "kLoadError", "kModelError", "kPresolveError", "kModelEmpty"],
    Limit.TIME: ["kTimeLimit"],
    Limit.NODES: ["kSolutionLimit"],
    Limit.ITERATIONS: ["kIterationLimit"],
    Limit.MEMORY: ["kMemoryLimit"],
    Limit.INTERRUPTED: ["kInterrupt", "kHighsInterrupt"],
    Limit.DECIDED: ["kObjectiveTarget"],
    Limit.OTHER: ["kObjectiveBound"],
})


def solve(program: Program, *, budget: Budget, presolve: bool | None) -> Outcome:
    """Build by one passModel call from the CSR arrays, run, read back. Duals and Farkas rays for LPs."""
    import highspy

    run = BackendRun(program, NAME, DISTRIBUTION, TOLERANCE)
    highs = highspy.Highs()
    loaded = _configure(highs, budget, presolve) and _load(highs, program)
    left = run.begin(budget)
    if not loaded:
        return run.outcome(Termination.ERROR, "HiGHS refused the model or an option")
    highs.setOptionValue("time_limit", max(left if program.mixed_integer else clock.patience(left), 1e-3))

    def work() -> object:
        # The scheduler is per thread and keeps its first thread count; a new count needs a new scheduler.
        highspy.Highs.resetGlobalScheduler(True)
        return highs.run()

    highs.HandleUserInterrupt = True
    decided = _stop_above(highs, budget)
    interrupted = run_interruptible(work, highs.cancelSolve)[1]
    run.end()
    _count(highs, program)
    return _read(highs, run, decided=bool(decided) and not interrupted)


def _count(highs: Any, program: Program) -> None:
    """Report the work of the simplex method to the clock; a search for integers is timed by the wall clock."""
    if program.mixed_integer:
        clock.spend(highs.getRunTime() / clock.A_MULTIPLICATION)
        return
    size = len(program.row_lower) + program.columns + program.rows.nnz
    clock.spend(PROGRAM * size + ITERATION * size * max(highs.getInfo().simplex_iteration_count, 0))


class HotStart:
    """One HiGHS instance for the many small LPs of a search tree: every LP starts from the basis that is given.

    Presolve is off, as a basis needs it. Each LP is a matter of milliseconds: Ctrl-C arrives between two of them.
    """

    def __init__(self) -> None:
        import highspy

        self._highs = highspy.Highs()
        if not _configure(self._highs, Budget(), False):
            raise ValueError("HiGHS refused an option")
        highspy.Highs.resetGlobalScheduler(True)

    def solve(self, program: Program, *, seconds: float, iterations: int, basis: Any = None) -> tuple[Outcome, Any]:
        """Return the outcome of an LP, and its basis to start similar ones from (None unless it was optimal).

        seconds, iterations: its limits; on wildly scaled programs the simplex method can run in circles.
        """
        import highspy

        run = BackendRun(program, NAME, DISTRIBUTION, TOLERANCE)
        loaded = _load(self._highs, program)
        if basis is not None and (len(basis.col_status), len(basis.row_status)) == (program.columns, len(program.row_lower)):
            self._highs.setBasis(basis)
        limit = max(clock.patience(seconds), 1e-3)
        self._highs.setOptionValue("time_limit", self._highs.getRunTime() + limit)  # its clock runs on
        self._highs.setOptionValue("simplex_iteration_limit", iterations)
        run.begin(Budget())
        if loaded:
            self._highs.run()
        run.end()
        _count(self._highs, program)
        optimal = self._highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
        return _read(self._highs, run), self._highs.getBasis() if optimal and not program.mixed_integer else None


def with_rows(basis: Any, count: int) -> Any:
    """Return the basis of an LP that got more rows at its end, `count` in all; None stays."""
    import highspy

    if basis is not None:
        basis.row_status = [*basis.row_status, *[highspy.HighsBasisStatus.kBasic] * (count - len(basis.row_status))]
    return basis


def _stop_above(highs: Any, budget: Budget) -> list[float]:
    """End a search once its dual bound is large enough, for which HiGHS has no option; the returned list receives that bound."""
    reached: list[float] = []
    threshold = budget.stop_above
    if threshold is not None:

        def stop(event: Any) -> None:
            if threshold <= event.data_out.mip_dual_bound < np.inf:  # infinite where there is no point: HiGHS says so itself
                reached.append(event.data_out.mip_dual_bound)
                event.interrupt()

        highs.cbMipInterrupt.subscribe(stop)
    return reached


def _read(highs: Any, run: BackendRun, *, decided: bool = False) -> Outcome:
    """Return HiGHS' outcome of a run.   decided: an interruption was verifair's own, at a sufficient bound."""
    import highspy

    status = highs.getModelStatus()
    reason, program = _REASONS.get(status.name, Termination.ERROR), run.program
    if reason is Limit.INTERRUPTED and decided:
        reason = Limit.DECIDED
    info = highs.getInfo()
    feasible = info.primal_solution_status == int(highspy.SolutionStatus.kSolutionStatusFeasible)
    multipliers = dual_bound = None
    if program.mixed_integer:
        dual_bound = info.mip_dual_bound if reason is Termination.OPTIMAL or isinstance(reason, Limit) else None
    elif reason is Termination.OPTIMAL:
        dual_bound = info.objective_function_value
        multipliers = np.array(highs.getSolution().row_dual)
    elif reason is Termination.INFEASIBLE and len(program.row_lower):
        ray_status, exists, ray = highs.getDualRay()
        multipliers = np.array(ray) if ray_status == highspy.HighsStatus.kOk and exists else None
    return run.outcome(
        reason, highs.modelStatusToString(status), values=np.array(highs.getSolution().col_value) if feasible else None,
        dual_bound=dual_bound, multipliers=multipliers, nodes=int(info.mip_node_count) if program.mixed_integer else None,
    )


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
    if budget.stop_below is not None:
        options["objective_target"] = budget.stop_below
    return all(highs.setOptionValue(name, value) == highspy.HighsStatus.kOk for name, value in options.items())


def _load(highs: Any, program: Program) -> bool:
    import highspy

    rows = program.rows
    status = highs.passModel(
        program.columns, rows.shape[0], rows.nnz, int(highspy.MatrixFormat.kRowwise), int(highspy.ObjSense.kMinimize),
        program.constant, program.costs, program.lower, program.upper, program.row_lower, program.row_upper,
        rows.indptr[:-1].astype(np.int32), rows.indices.astype(np.int32), rows.data, program.integer.astype(np.int32),
    )
    return bool(status != highspy.HighsStatus.kError)
