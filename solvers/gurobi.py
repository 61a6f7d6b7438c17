"""Gurobi (commercial; the licence bundled with gurobipy solves 2,000 columns and 2,000 rows).

Ctrl-C gives back an Outcome with LIMIT / INTERRUPTED: Gurobi listens itself.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp

from solvers.outcome import BackendRun, Budget, LicenceLimit, Limit, Outcome, Termination, Unavailable, reasons
from solvers.program import Array, Program

NAME, DISTRIBUTION, TOLERANCE = "gurobi", "gurobipy", 1e-5  # 1e-5 is the default IntFeasTol, the coarsest of them
BUNDLED_LIMIT = 2000
_NO_LICENCE, _SIZE_LIMIT_EXCEEDED = 10009, 10010

# Status codes by number, as in the reference manual's "Optimization Status Codes".
_REASONS = reasons({
    Termination.OPTIMAL: [2],
    Termination.INFEASIBLE: [3],
    Termination.INFEASIBLE_OR_UNBOUNDED: [4],
    Termination.UNBOUNDED: [5],
    Termination.NUMERICAL: [12, 13, 18, 19],  # 13 SUBOPTIMAL: tolerances could not be met; 18, 19 LOCALLY_...: of no linear program
    Termination.ERROR: [1, 14],  # LOADED: never solved; INPROGRESS
    Limit.ITERATIONS: [7],
    Limit.NODES: [8],
    Limit.TIME: [9],
    Limit.INTERRUPTED: [11],
    Limit.MEMORY: [17],
    Limit.DECIDED: [15],  # USER_OBJ_LIMIT, for BestObjStop and BestBdStop alike
    Limit.OTHER: [6, 10, 16],  # CUTOFF, SOLUTION_LIMIT, WORK_LIMIT
})


def solve(program: Program, *, budget: Budget, presolve: bool | None) -> Outcome:
    """Build through the matrix API, run, read back. Duals and Farkas rays for LPs.

    Raises LicenceLimit before submitting a program that the bundled licence is too small for, Unavailable without a licence.
    """
    import gurobipy

    run = BackendRun(program, NAME, DISTRIBUTION, TOLERANCE)
    matrix, sense, side, origin = _one_sided(program)
    if max(program.columns, len(side)) > BUNDLED_LIMIT and _size_limited():
        raise LicenceLimit(
            f"gurobi: the licence solves {BUNDLED_LIMIT} columns and {BUNDLED_LIMIT} rows, this program has {program.columns} "
            f"columns and {len(side)} rows (a row with two different finite sides counts twice); "
            "use another backend, for example highs, or a full licence")
    try:
        with gurobipy.Env(empty=True) as env:
            _configure(env, budget, presolve)
            env.start()
            with gurobipy.Model(env=env) as model:
                columns, rows = _load(model, program, matrix, sense, side)
                model.Params.TimeLimit = max(run.begin(budget), 0.0)
                model.optimize()
                run.end()
                reason = _REASONS.get(model.Status, Termination.ERROR)
                multipliers = dual_bound = None
                if program.mixed_integer and (reason is Termination.OPTIMAL or isinstance(reason, Limit)):
                    dual_bound = model.ObjBound if abs(model.ObjBound) < gurobipy.GRB.INFINITY else None
                elif not program.mixed_integer and reason is Termination.OPTIMAL:
                    dual_bound = model.ObjVal
                    multipliers = _gather(rows, "Pi", origin, program)
                elif not program.mixed_integer and reason is Termination.INFEASIBLE and len(side):
                    ray = _gather(rows, "FarkasDual", origin, program)
                    multipliers = None if ray is None else -ray  # Gurobi's certificate is written for <= rows
                has_point = model.SolCount > 0 and (program.mixed_integer or reason is Termination.OPTIMAL)
                return run.outcome(
                    reason, f"status {model.Status}", values=np.array(columns.X) if has_point else None, dual_bound=dual_bound,
                    multipliers=multipliers, nodes=int(model.NodeCount) if program.mixed_integer else None,
                )
    except gurobipy.GurobiError as error:
        if error.errno == _NO_LICENCE:
            raise Unavailable(f"gurobi: no valid licence ({error}); renew it or use another backend, for example highs") from error
        run.end()
        return run.outcome(Termination.ERROR, f"Gurobi error {error.errno}: {error}")


def _one_sided(program: Program) -> tuple[sp.csr_array, Any, Array, Any]:
    """Return rows as Gurobi takes them, one sense and one side each: (matrix, senses, sides, the program row each came from)."""
    lower, upper = program.row_lower, program.row_upper
    equal = np.flatnonzero(lower == upper)
    below = np.flatnonzero(np.isfinite(upper) & (lower != upper))
    above = np.flatnonzero(np.isfinite(lower) & (lower != upper))
    origin = np.concatenate([equal, below, above])
    sense = np.repeat(np.array(["=", "<", ">"]), [len(equal), len(below), len(above)])
    return program.rows[origin], sense, np.concatenate([upper[equal], upper[below], lower[above]]), origin


def _configure(env: Any, budget: Budget, presolve: bool | None) -> None:
    env.setParam("OutputFlag", 0)
    env.setParam("Threads", budget.threads)
    env.setParam("Seed", budget.seed % 2_000_000_000)
    env.setParam("MIPGap", 0.0)
    env.setParam("MIPGapAbs", 1e-9)
    env.setParam("InfUnbdInfo", 1)  # the Farkas ray of an infeasible LP
    if presolve is not None:
        env.setParam("Presolve", -1 if presolve else 0)
    if budget.nodes is not None:
        env.setParam("NodeLimit", float(budget.nodes))
    if budget.memory_mb is not None:
        env.setParam("SoftMemLimit", budget.memory_mb / 1000.0)
    if budget.stop_below is not None:
        env.setParam("BestObjStop", budget.stop_below)
    if budget.stop_above is not None:
        env.setParam("BestBdStop", budget.stop_above)


def _load(model: Any, program: Program, matrix: sp.csr_array, sense: Any, side: Array) -> tuple[Any, Any]:
    import gurobipy

    kind = np.where(program.integer, gurobipy.GRB.INTEGER, gurobipy.GRB.CONTINUOUS)
    columns = model.addMVar(program.columns, lb=program.lower, ub=program.upper, vtype=kind, obj=program.costs)
    model.ObjCon = program.constant
    if not program.objective_bounded:
        model.Params.DualReductions = 0  # lets presolve tell infeasible from unbounded
    return columns, model.addMConstr(matrix, columns, sense, side) if len(side) else None


def _gather(rows: Any, attribute: str, origin: Any, program: Program) -> Array | None:
    """Return a row attribute summed back onto the program's rows; None where the backend has none (presolve decided)."""
    import gurobipy

    total = np.zeros(len(program.row_lower))
    if rows is None:
        return total
    try:
        values = rows.getAttr(attribute)
    except (gurobipy.GurobiError, AttributeError):
        return None
    np.add.at(total, origin, values)
    return total


@lru_cache
def _size_limited() -> bool:
    """Return True if the licence refuses a model just over the bundled limit. Called once, and only for a program that large."""
    import gurobipy

    try:
        with gurobipy.Env(empty=True) as env:
            env.setParam("OutputFlag", 0)
            env.start()
            with gurobipy.Model(env=env) as model:
                model.addMVar(BUNDLED_LIMIT + 1)
                model.optimize()
    except gurobipy.GurobiError as error:
        if error.errno == _SIZE_LIMIT_EXCEEDED:
            return True
        raise Unavailable(f"gurobi: no valid licence ({error}); renew it or use another backend, for example highs") from error
    return False
