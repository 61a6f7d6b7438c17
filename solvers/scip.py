"""SCIP through PySCIPOpt (Apache 2.0). LP and MIP; PyPI's build has no exact mode.

No duals and no rays are declared: SCIP's transformed problem turns rows into bounds and keeps no dual of them.
Ctrl-C gives back an Outcome with LIMIT / INTERRUPTED.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from solvers.outcome import BackendRun, Budget, Limit, Outcome, Termination, reasons, run_interruptible
from solvers.program import Program

NAME, DISTRIBUTION, TOLERANCE = "scip", "pyscipopt", 1e-6

_REASONS = reasons({
    Termination.OPTIMAL: ["optimal"],
    Termination.INFEASIBLE: ["infeasible"],
    Termination.UNBOUNDED: ["unbounded"],
    Termination.INFEASIBLE_OR_UNBOUNDED: ["inforunbd"],
    Termination.NUMERICAL: ["unknown"],
    Limit.TIME: ["timelimit"],
    Limit.NODES: ["nodelimit", "totalnodelimit", "stallnodelimit"],
    Limit.MEMORY: ["memlimit"],
    Limit.INTERRUPTED: ["userinterrupt"],
    Limit.DECIDED: ["primallimit", "duallimit"],
    Limit.OTHER: ["gaplimit", "sollimit", "bestsollimit", "restartlimit"],
})


def solve(program: Program, *, budget: Budget, presolve: bool | None) -> Outcome:
    """Build row by row from term dictionaries (PySCIPOpt has no array call for sparse rows), run, read back."""
    import pyscipopt

    run = BackendRun(program, NAME, DISTRIBUTION, TOLERANCE)
    model = pyscipopt.Model()
    try:
        columns = _load(model, program)
        _configure(model, program, budget, presolve)
        model.setParam("limits/time", max(run.begin(budget), 0.0))
        run_interruptible(model.optimizeNogil, model.interruptSolve)
    except Exception as error:  # PySCIPOpt raises bare Exception for every SCIP return code but okay
        run.end()
        return run.outcome(Termination.ERROR, f"SCIP: {error}")
    run.end()
    status = str(model.getStatus())
    reason = _REASONS.get(status, Termination.ERROR)
    values = dual_bound = nodes = None
    if reason is Termination.OPTIMAL or isinstance(reason, Limit):
        dual_bound = model.getDualbound() if abs(model.getDualbound()) < model.infinity() else None
        nodes = int(model.getNTotalNodes())
        if model.getNSols():
            best = model.getBestSol()
            values = np.array([model.getSolVal(best, column) for column in columns])
    return run.outcome(reason, status, values=values, dual_bound=dual_bound, nodes=nodes)


def _configure(model: Any, program: Program, budget: Budget, presolve: bool | None) -> None:
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
    if program.mixed_integer and program.objective is not None:  # an LP is solved within SCIP's presolve, or in its one node
        for limit, value in (("limits/primal", budget.stop_below), ("limits/dual", budget.stop_above)):
            if value is not None:
                model.setParam(limit, value)


def _load(model: Any, program: Program) -> list[Any]:
    from pyscipopt.scip import Expr, ExprCons, Term

    parts = zip(program.lower.tolist(), program.upper.tolist(), program.costs.tolist(), program.integer.tolist(), strict=True)
    columns = [model.addVar(lb=lower, ub=upper, obj=cost, vtype="I" if integer else "C") for lower, upper, cost, integer in parts]
    model.addObjoffset(program.constant)
    terms = [Term(column) for column in columns]
    rows = program.rows
    start, index, data = rows.indptr.tolist(), rows.indices.tolist(), rows.data.tolist()
    for i, (lower, upper) in enumerate(zip(program.row_lower.tolist(), program.row_upper.tolist(), strict=True)):
        if lower == -np.inf and upper == np.inf:
            continue  # PySCIPOpt refuses a row without a bound
        row = slice(start[i], start[i + 1])
        expression = Expr({terms[j]: value for j, value in zip(index[row], data[row], strict=True)})
        model.addCons(ExprCons(expression, lhs=None if lower == -np.inf else lower, rhs=None if upper == np.inf else upper))
    return columns
