"""CP-SAT (OR-Tools, Apache 2.0): pure-integer programs in exact int64 arithmetic.

Every row, and the objective, is multiplied by the smallest power of two that makes its coefficients integers. That is
exact; nothing is rounded except row sides, inwards to the integers the row can reach. A program that needs more than int64,
or a column without bounds, is refused. Ctrl-C gives back an Outcome with LIMIT / INTERRUPTED.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from solvers.outcome import BackendRun, Budget, Limit, Outcome, Termination, UnsupportedProgram, reasons, run_interruptible
from solvers.program import Array, Integers, Program

NAME, DISTRIBUTION, TOLERANCE = "ortools-cpsat", "ortools", 0.0
LARGEST = 2.0**60  # of a column bound and of any row's activity, well inside int64


def solve(program: Program, *, budget: Budget, presolve: bool | None) -> Outcome:
    """Scale exactly, build, run, read back. Raises UnsupportedProgram where the scaled program leaves int64."""
    from ortools.sat.python import cp_model

    run = BackendRun(program, NAME, DISTRIBUTION, TOLERANCE)
    model, columns, objective_exponent = _model(program)
    left = run.begin(budget)
    if columns is None:
        return run.outcome(Termination.INFEASIBLE, "an integer column or an empty row has no value between its bounds")
    solver = cp_model.CpSolver()
    _configure(solver.parameters, budget, presolve, left)
    stops = _stops(solver, budget, lambda scaled: float(np.ldexp(scaled, -objective_exponent)) + program.constant)
    status, interrupted = run_interruptible(lambda: solver.solve(model, stops), solver.stop_search)
    name = solver.status_name(status)
    # CP-SAT says FEASIBLE or UNKNOWN for every early stop and not by which limit.
    out_of_time = run.end() >= 0.9 * solver.parameters.max_time_in_seconds
    limit = (
        Limit.INTERRUPTED if interrupted else Limit.DECIDED if stops.reached else Limit.TIME if out_of_time else Limit.OTHER
    )
    reason_of = reasons({Termination.OPTIMAL: ["OPTIMAL"], Termination.INFEASIBLE: ["INFEASIBLE"], limit: ["FEASIBLE", "UNKNOWN"]})
    values = np.array(solver.values(columns), dtype=np.float64) if name in ("OPTIMAL", "FEASIBLE") else None
    dual_bound = None
    if program.objective is not None and name in ("OPTIMAL", "FEASIBLE", "UNKNOWN"):
        dual_bound = float(np.ldexp(solver.best_objective_bound, -objective_exponent)) + program.constant
    reason = reason_of.get(name, Termination.ERROR)  # MODEL_INVALID
    return run.outcome(reason, name, values=values, dual_bound=dual_bound, nodes=int(solver.num_branches))


def _stops(solver: Any, budget: Budget, objective: Callable[[float], float]) -> Any:
    """Return the callback of points, which ends the search at a good one; set that of bounds here.   objective: converts CP-SAT's
    scaled objective back."""
    from ortools.sat.python import cp_model

    class Stops(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
        reached = False

        def on_solution_callback(self) -> None:
            if budget.stop_below is not None and objective(self.objective_value) <= budget.stop_below:
                self.reached = True
                self.stop_search()

    stops = Stops()

    def bounded(bound: float) -> None:
        if budget.stop_above is not None and objective(bound) >= budget.stop_above:
            stops.reached = True
            solver.stop_search()

    solver.best_bound_callback = bounded
    return stops


def _configure(parameters: Any, budget: Budget, presolve: bool | None, seconds: float) -> None:
    parameters.max_time_in_seconds = max(seconds, 1e-3)
    parameters.num_workers = budget.threads
    parameters.random_seed = budget.seed % (2**31 - 1)
    parameters.absolute_gap_limit = 0.0
    parameters.catch_sigint_signal = False  # run_interruptible listens instead
    if presolve is not None:
        parameters.cp_model_presolve = presolve
    if budget.memory_mb is not None:
        parameters.max_memory_in_mb = budget.memory_mb


def _model(program: Program) -> tuple[Any, Any, int]:
    """Return (model, its columns or None where a bound or an empty row already excludes every point, objective exponent)."""
    import pandas as pd
    from ortools.sat.python import cp_model

    lower, upper = np.ceil(program.lower), np.floor(program.upper)
    reach = np.maximum(np.abs(lower), np.abs(upper))
    if not (reach <= LARGEST).all():
        column = int(np.flatnonzero(~(reach <= LARGEST))[0])
        raise _unsupported(f"column {column} has bounds [{program.lower[column]}, {program.upper[column]}]; finite ones are needed")
    rows = program.rows
    start = rows.indptr
    row_of = np.repeat(np.arange(rows.shape[0]), np.diff(start))
    exponents = np.zeros(rows.shape[0], dtype=np.int64)
    np.maximum.at(exponents, row_of, _exponents(rows.data))
    coefficients = _integers(rows.data, exponents[row_of], reach[rows.indices], row_of, "row")
    empty = np.diff(start) == 0
    is_empty = (lower > upper).any() or ((program.row_lower > 0) | (program.row_upper < 0))[empty].any()
    if is_empty:
        return None, None, 0

    model = cp_model.CpModel()
    columns = model.new_int_var_series("v", pd.RangeIndex(program.columns), lower.astype(np.int64), upper.astype(np.int64))
    variables = columns.tolist()
    with np.errstate(over="ignore"):
        low = np.clip(np.ceil(np.ldexp(program.row_lower, exponents)), -2 * LARGEST, 2 * LARGEST).astype(np.int64)
        high = np.clip(np.floor(np.ldexp(program.row_upper, exponents)), -2 * LARGEST, 2 * LARGEST).astype(np.int64)
    for i in np.flatnonzero(~empty).tolist():
        part = slice(start[i], start[i + 1])
        row = cp_model.LinearExpr.weighted_sum([variables[j] for j in rows.indices[part].tolist()], coefficients[part].tolist())
        if low[i] > high[i]:
            return None, None, 0
        model.add_linear_constraint(row, int(low[i]), int(high[i]))
    if program.objective is None:
        return model, columns, 0
    exponent = int(_exponents(program.objective).max(initial=0))
    costs = _integers(program.objective, np.full(program.columns, exponent), reach, np.zeros(program.columns, int), "objective")
    model.minimize(cp_model.LinearExpr.weighted_sum(variables, costs.tolist()))
    return model, columns, exponent


def _exponents(values: Array) -> Integers:
    """Return for each value the smallest k >= 0 for which value * 2^k is an integer."""
    mantissa, exponent = np.frexp(values)
    digits = np.ldexp(mantissa, 53).astype(np.int64)
    lowest_bit = np.where(digits == 0, 1, digits & -digits)
    trailing = np.log2(lowest_bit.astype(np.float64)).astype(np.int64)  # exact: a power of two
    return np.where(digits == 0, 0, np.maximum(53 - exponent - trailing, 0)).astype(np.int64)


def _integers(values: Array, exponents: Integers, reach: Array, row_of: Integers, kind: str) -> Integers:
    """Return values * 2^exponents as int64, after checking that no row's activity can leave int64."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.ldexp(values, exponents)
        activity = np.bincount(row_of, weights=np.abs(scaled) * np.maximum(reach, 1.0))
    if not (activity <= LARGEST).all():
        row = int(np.flatnonzero(~(activity <= LARGEST))[0])
        name = f"row {row}" if kind == "row" else "the objective"
        raise _unsupported(f"{name} has coefficients with up to {int(exponents[row_of == row].max())} binary places, "
                           "which leaves the range of int64 when scaled to integers")
    return scaled.astype(np.int64)


def _unsupported(reason: str) -> UnsupportedProgram:
    return UnsupportedProgram(f"{NAME}: {reason}; use a MIP backend, for example highs, or z3 for exact arithmetic")
