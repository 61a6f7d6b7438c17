"""Gurobi (commercial; the licence bundled with gurobipy solves 2,000 columns and 2,000 rows).

Ctrl-C gives back an Outcome with LIMIT / INTERRUPTED: Gurobi listens itself.
"""

from __future__ import annotations

import time
from functools import lru_cache, partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from solvers.outcome import Budget, LicenceLimit, Limit, Outcome, Termination, Unavailable, make_outcome
from solvers.program import Array, Program

NAME, DISTRIBUTION, TOLERANCE = "gurobi", "gurobipy", 1e-5  # 1e-5 is the default IntFeasTol, the coarsest of them
BUNDLED_LIMIT = 2000
_NO_LICENCE, _SIZE_LIMIT_EXCEEDED = 10009, 10010

# Status codes by number, as in the reference manual's "Optimization Status Codes".
_TERMINATION: dict[int, tuple[Termination, Limit | None]] = {
    1: (Termination.ERROR, None),  # LOADED: never solved
    2: (Termination.OPTIMAL, None),
    3: (Termination.INFEASIBLE, None),
    4: (Termination.INFEASIBLE_OR_UNBOUNDED, None),
    5: (Termination.UNBOUNDED, None),
    6: (Termination.LIMIT, Limit.OTHER),  # CUTOFF
    7: (Termination.LIMIT, Limit.ITERATIONS),
    8: (Termination.LIMIT, Limit.NODES),
    9: (Termination.LIMIT, Limit.TIME),
    10: (Termination.LIMIT, Limit.OTHER),  # SOLUTION_LIMIT
    11: (Termination.LIMIT, Limit.INTERRUPTED),
    12: (Termination.NUMERICAL, None),
    13: (Termination.NUMERICAL, None),  # SUBOPTIMAL: tolerances could not be met
    14: (Termination.ERROR, None),  # INPROGRESS
    15: (Termination.LIMIT, Limit.OTHER),  # USER_OBJ_LIMIT
    16: (Termination.LIMIT, Limit.OTHER),  # WORK_LIMIT
    17: (Termination.LIMIT, Limit.MEMORY),
    18: (Termination.NUMERICAL, None),  # LOCALLY_OPTIMAL: never of a linear program
    19: (Termination.NUMERICAL, None),  # LOCALLY_INFEASIBLE
}


def solve(program: Program, *, budget: Budget, presolve: bool | None) -> Outcome:
    """Build through the matrix API, run, read back. Duals and Farkas rays for LPs.

    Raises LicenceLimit before submitting a program that the bundled licence is too small for, Unavailable without a licence.
    """
    import gurobipy

    answer = partial(make_outcome, program, backend=NAME, distribution=DISTRIBUTION, tolerance=TOLERANCE)
    started = time.perf_counter()
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
                built = time.perf_counter()
                model.Params.TimeLimit = max(budget.seconds - (built - started), 0.0)
                model.optimize()
                solve_seconds = time.perf_counter() - built
                known = _TERMINATION.get(model.Status)
                termination, limit = known if known is not None else (Termination.ERROR, None)
                duals = ray = dual_bound = None
                if program.mixed_integer and termination in (Termination.OPTIMAL, Termination.LIMIT):
                    dual_bound = model.ObjBound if abs(model.ObjBound) < gurobipy.GRB.INFINITY else None
                elif not program.mixed_integer and termination is Termination.OPTIMAL:
                    dual_bound = model.ObjVal
                    duals = _gather(rows, "Pi", origin, program)
                elif not program.mixed_integer and termination is Termination.INFEASIBLE and len(side):
                    ray = _gather(rows, "FarkasDual", origin, program)
                    ray = None if ray is None else -ray  # Gurobi's certificate is written for <= rows
                has_point = model.SolCount > 0 and (program.mixed_integer or termination is Termination.OPTIMAL)
                return answer(
                    termination=termination, limit=limit, build_seconds=built - started, solve_seconds=solve_seconds,
                    values=np.array(columns.X) if has_point else None, dual_bound=dual_bound, duals=duals, ray=ray,
                    nodes=int(model.NodeCount) if program.mixed_integer else None, message=f"status {model.Status}")
    except gurobipy.GurobiError as error:
        if error.errno == _NO_LICENCE:
            raise Unavailable(f"gurobi: no valid licence ({error}); renew it or use another backend, for example highs") from error
        return answer(termination=Termination.ERROR, limit=None, build_seconds=0.0,
                      solve_seconds=time.perf_counter() - started, message=f"Gurobi error {error.errno}: {error}")


def _one_sided(program: Program) -> tuple[sp.csr_array, Any, Array, Any]:
    """Rows as Gurobi takes them, one sense and one side each: (matrix, senses, sides, the program row each came from)."""
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


def _load(model: Any, program: Program, matrix: sp.csr_array, sense: Any, side: Array) -> tuple[Any, Any]:
    import gurobipy

    kind = np.where(program.integer, gurobipy.GRB.INTEGER, gurobipy.GRB.CONTINUOUS)
    objective = program.objective if program.objective is not None else np.zeros(program.columns)
    columns = model.addMVar(program.columns, lb=program.lower, ub=program.upper, vtype=kind, obj=objective)
    model.ObjCon = program.constant
    if not program.objective_bounded:
        model.Params.DualReductions = 0  # lets presolve tell infeasible from unbounded
    return columns, model.addMConstr(matrix, columns, sense, side) if len(side) else None


def _gather(rows: Any, attribute: str, origin: Any, program: Program) -> Array | None:
    """A row attribute summed back onto the program's rows; None where the backend has none (presolve decided)."""
    import gurobipy

    total = np.zeros(len(program.row_lower))
    if rows is None:
        return total
    try:
        found = rows.getAttr(attribute)
    except (gurobipy.GurobiError, AttributeError):
        return None
    np.add.at(total, origin, found)
    return total


@lru_cache
def _size_limited() -> bool:
    """Whether the licence refuses a model just over the bundled limit. Asked once, and only when a program is that large."""
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
