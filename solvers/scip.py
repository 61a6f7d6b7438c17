"""SCIP through PySCIPOpt (Apache 2.0). LP and MIP; PyPI's build has no exact mode.

No duals and no rays are declared: SCIP's transformed problem turns rows into bounds and keeps no dual of them.
Ctrl-C gives back an Outcome with LIMIT / INTERRUPTED.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from solvers.interrupt import run_interruptible
from solvers.outcome import Budget, Limit, Outcome, Termination, make_outcome
from solvers.program import Program

NAME, DISTRIBUTION, TOLERANCE = "scip", "pyscipopt", 1e-6

_TERMINATION: dict[str, tuple[Termination, Limit | None]] = {
    "optimal": (Termination.OPTIMAL, None),
    "infeasible": (Termination.INFEASIBLE, None),
    "unbounded": (Termination.UNBOUNDED, None),
    "inforunbd": (Termination.INFEASIBLE_OR_UNBOUNDED, None),
    "timelimit": (Termination.LIMIT, Limit.TIME),
    "nodelimit": (Termination.LIMIT, Limit.NODES),
    "totalnodelimit": (Termination.LIMIT, Limit.NODES),
    "stallnodelimit": (Termination.LIMIT, Limit.NODES),
    "memlimit": (Termination.LIMIT, Limit.MEMORY),
    "userinterrupt": (Termination.LIMIT, Limit.INTERRUPTED),
    "gaplimit": (Termination.LIMIT, Limit.OTHER),
    "sollimit": (Termination.LIMIT, Limit.OTHER),
    "bestsollimit": (Termination.LIMIT, Limit.OTHER),
    "restartlimit": (Termination.LIMIT, Limit.OTHER),
    "primallimit": (Termination.LIMIT, Limit.OTHER),
    "duallimit": (Termination.LIMIT, Limit.OTHER),
    "unknown": (Termination.NUMERICAL, None),
}


def solve(program: Program, *, budget: Budget, presolve: bool | None) -> Outcome:
    """Build row by row from term dictionaries (PySCIPOpt has no array call for sparse rows), run, read back."""
    import pyscipopt

    started = time.perf_counter()
    model = pyscipopt.Model()
    columns = _load(model, program)
    _configure(model, budget, presolve)
    built = time.perf_counter()
    model.setParam("limits/time", max(budget.seconds - (built - started), 0.0))
    message = ""
    try:
        run_interruptible(model.optimizeNogil, model.interruptSolve)
    except Exception as error:  # PySCIPOpt raises bare Exception for every SCIP return code but okay
        status, termination, limit, message = "", Termination.ERROR, None, f"SCIP: {error}"
    else:
        status = str(model.getStatus())
        known = _TERMINATION.get(status)
        termination, limit = known if known is not None else (Termination.ERROR, None)
    solve_seconds = time.perf_counter() - built
    values = dual_bound = nodes = None
    if termination in (Termination.OPTIMAL, Termination.LIMIT):
        dual_bound = model.getDualbound() if abs(model.getDualbound()) < model.infinity() else None
        nodes = int(model.getNTotalNodes())
        if model.getNSols():
            best = model.getBestSol()
            values = np.array([model.getSolVal(best, column) for column in columns])
    return make_outcome(
        program, backend=NAME, distribution=DISTRIBUTION, tolerance=TOLERANCE, termination=termination, limit=limit,
        build_seconds=built - started, solve_seconds=solve_seconds, values=values, dual_bound=dual_bound, nodes=nodes,
        message=message or status)


def _configure(model: Any, budget: Budget, presolve: bool | None) -> None:
    from pyscipopt import SCIP_PARAMSETTING

    model.hideOutput()
    model.setParam("misc/catchctrlc", False)  # run_interruptible listens instead
    model.setParam("randomization/randomseedshift", budget.seed % (2**31 - 1))
    model.setParam("timing/clocktype", 2)  # wall clock
    if presolve is False:
        model.setPresolve(SCIP_PARAMSETTING.OFF)
    if budget.nodes is not None:
        model.setParam("limits/totalnodes", budget.nodes)
    if budget.memory_mb is not None:
        model.setParam("limits/memory", float(budget.memory_mb))


def _load(model: Any, program: Program) -> list[Any]:
    from pyscipopt.scip import Expr, ExprCons, Term

    objective = program.objective if program.objective is not None else np.zeros(program.columns)
    parts = zip(program.lower.tolist(), program.upper.tolist(), objective.tolist(), program.integer.tolist(), strict=True)
    columns = [model.addVar(lb=lower, ub=upper, obj=cost, vtype="I" if integer else "C") for lower, upper, cost, integer in parts]
    model.addObjoffset(program.constant)
    terms = [Term(column) for column in columns]
    rows = program.rows
    start, index, data = rows.indptr.tolist(), rows.indices.tolist(), rows.data.tolist()
    for i, (lower, upper) in enumerate(zip(program.row_lower.tolist(), program.row_upper.tolist(), strict=True)):
        if lower == -np.inf and upper == np.inf:
            continue  # PySCIPOpt refuses a row that asks nothing
        row = slice(start[i], start[i + 1])
        expression = Expr({terms[j]: value for j, value in zip(index[row], data[row], strict=True)})
        model.addCons(ExprCons(expression, lhs=None if lower == -np.inf else lower, rhs=None if upper == np.inf else upper))
    return columns
