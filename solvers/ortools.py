"""OR-Tools (Apache 2.0): the LP solvers GLOP and PDLP and the MIP solver SCIP, through MathOpt's model message.

The message is filled by whole arrays. MathOpt's Python error path can raise AttributeError, so its C++ call is used
directly and any exception becomes an Outcome with ERROR. Ctrl-C gives back an Outcome with LIMIT / INTERRUPTED.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from solvers.outcome import BackendRun, Budget, Limit, Outcome, Termination, reasons, run_interruptible
from solvers.program import Array, Program

DISTRIBUTION, TOLERANCE = "ortools", 1e-6
PDLP_TOLERANCE = 1e-8  # the default 1e-6 leaves optima apart in the fifth digit

_REASONS = reasons({
    Termination.OPTIMAL: ["OPTIMAL"],
    Termination.INFEASIBLE: ["INFEASIBLE"],
    Termination.UNBOUNDED: ["UNBOUNDED"],
    Termination.INFEASIBLE_OR_UNBOUNDED: ["INFEASIBLE_OR_UNBOUNDED"],
    Termination.NUMERICAL: ["IMPRECISE", "NUMERICAL_ERROR"],
    Termination.ERROR: ["UNSPECIFIED", "OTHER_ERROR"],
    Limit.OTHER: ["FEASIBLE", "NO_SOLUTION_FOUND"],  # stopped early: the limit says by what
})
_LIMITS = {
    "LIMIT_ITERATION": Limit.ITERATIONS, "LIMIT_TIME": Limit.TIME, "LIMIT_NODE": Limit.NODES, "LIMIT_MEMORY": Limit.MEMORY,
    "LIMIT_INTERRUPTED": Limit.INTERRUPTED,
}
"""All others are Limit.OTHER."""


def solve_glop(program: Program, *, budget: Budget, presolve: bool | None) -> Outcome:
    """LP by Google's revised simplex. It gives no Farkas ray of an infeasible program."""
    return _solve(program, "ortools-glop", "SOLVER_TYPE_GLOP", budget, presolve)


def solve_pdlp(program: Program, *, budget: Budget, presolve: bool | None) -> Outcome:
    """LP by a first-order method (primal-dual hybrid gradient); the tolerance is relative to the size of the data."""
    return _solve(program, "ortools-pdlp", "SOLVER_TYPE_PDLP", budget, presolve)


def solve_scip(program: Program, *, budget: Budget, presolve: bool | None) -> Outcome:
    """MIP by the SCIP that OR-Tools carries. An unbounded program ends as ERROR: MathOpt rejects SCIP's infinite objective.

    It supports no stop of a budget: MathOpt 9.15 refuses both limits for SCIP, and crashes on SCIP's own status for them."""
    return _solve(program, "ortools-scip", "SOLVER_TYPE_GSCIP", budget, presolve)


def _solve(program: Program, name: str, solver_type: str, budget: Budget, presolve: bool | None) -> Outcome:
    from ortools.math_opt import model_parameters_pb2, parameters_pb2, result_pb2
    from ortools.math_opt.core.python import solver
    from ortools.math_opt.python import callback, init_arguments
    from ortools.util.python import solve_interrupter

    run = BackendRun(program, name, DISTRIBUTION, TOLERANCE)
    model = _model(program)
    parameters = _parameters(solver_type, budget, presolve, run.begin(budget))
    own_handler = solver_type == "SOLVER_TYPE_GSCIP"  # MathOpt's interrupter is broken for SCIP in 9.15; SCIP hears Ctrl-C itself
    interrupter = solve_interrupter.SolveInterrupter()

    def work() -> Any:
        return solver.solve(
            model, parameters_pb2.SolverTypeProto.Value(solver_type), init_arguments.StreamableSolverInitArguments().to_proto(),
            parameters, model_parameters_pb2.ModelSolveParametersProto(), None, callback.CallbackRegistration().to_proto(),
            None, None if own_handler else interrupter.pybind_interrupter)

    try:
        result = work() if own_handler else run_interruptible(work, interrupter.interrupt)[0]
    except Exception as error:  # pybind's StatusNotOk and what its wrapper makes of it; KeyboardInterrupt passes
        run.end()
        return run.outcome(Termination.ERROR, f"{type(error).__name__}: {error}")
    solve_seconds = run.end()
    status = result_pb2.TerminationReasonProto.Name(result.termination.reason)
    reason = _REASONS.get(status.removeprefix("TERMINATION_REASON_"), Termination.ERROR)
    if isinstance(reason, Limit):
        reason = _LIMITS.get(result_pb2.LimitProto.Name(result.termination.limit), Limit.OTHER)
        if reason is Limit.OTHER and solve_seconds >= 0.9 * parameters.time_limit.ToTimedelta().total_seconds():
            reason = Limit.TIME  # GLOP stops in time but reports LIMIT_UNDETERMINED
    bounded = reason is Termination.OPTIMAL or isinstance(reason, Limit)
    multipliers = None
    if not program.mixed_integer and reason is Termination.OPTIMAL:
        duals = (solution.dual_solution.dual_values for solution in result.solutions if solution.HasField("dual_solution"))
        multipliers = next((_dense(values, len(program.row_lower)) for values in duals), None)
    if not program.mixed_integer and reason is Termination.INFEASIBLE and result.dual_rays:
        multipliers = _dense(result.dual_rays[0].dual_values, len(program.row_lower))
    return run.outcome(
        reason, f"{status} {result.termination.detail}".strip(), values=_point(result, program) if bounded else None,
        dual_bound=result.termination.objective_bounds.dual_bound if bounded else None, multipliers=multipliers,
        nodes=int(result.solve_stats.node_count) if program.mixed_integer else None,
    )


def _model(program: Program) -> Any:
    """Return the ModelProto, each field one array."""
    from ortools.math_opt import model_pb2

    model = model_pb2.ModelProto()
    columns = np.arange(program.columns)
    model.variables.ids.extend(columns)
    model.variables.lower_bounds.extend(program.lower)
    model.variables.upper_bounds.extend(program.upper)
    model.variables.integers.extend(program.integer)
    model.linear_constraints.ids.extend(np.arange(len(program.row_lower)))
    model.linear_constraints.lower_bounds.extend(program.row_lower)
    model.linear_constraints.upper_bounds.extend(program.row_upper)
    rows = program.rows
    matrix = model.linear_constraint_matrix
    matrix.row_ids.extend(np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr)))
    matrix.column_ids.extend(rows.indices)
    matrix.coefficients.extend(rows.data)
    model.objective.offset = program.constant
    if program.objective is not None:
        used = np.flatnonzero(program.objective)
        model.objective.linear_coefficients.ids.extend(used)
        model.objective.linear_coefficients.values.extend(program.objective[used])
    return model


def _parameters(solver_type: str, budget: Budget, presolve: bool | None, seconds: float) -> Any:
    from ortools.math_opt import parameters_pb2

    parameters = parameters_pb2.SolveParametersProto()
    parameters.time_limit.FromNanoseconds(max(int(seconds * 1e9), 1))
    if solver_type == "SOLVER_TYPE_PDLP":
        parameters.threads = budget.threads
        criteria = parameters.pdlp.termination_criteria.simple_optimality_criteria
        criteria.eps_optimal_absolute = criteria.eps_optimal_relative = PDLP_TOLERANCE
        if presolve is not None:
            parameters.pdlp.presolve_options.use_glop = presolve
        return parameters
    parameters.random_seed = budget.seed % (2**31 - 1)
    if presolve is not None:
        parameters.presolve = parameters_pb2.EMPHASIS_MEDIUM if presolve else parameters_pb2.EMPHASIS_OFF
    if solver_type == "SOLVER_TYPE_GSCIP":
        parameters.gscip.bool_params["misc/catchctrlc"] = True
        parameters.relative_gap_tolerance = 0.0
        parameters.absolute_gap_tolerance = 0.0
        if budget.nodes is not None:
            parameters.node_limit = budget.nodes
        if budget.memory_mb is not None:
            parameters.gscip.real_params["limits/memory"] = float(budget.memory_mb)
    return parameters


def _point(result: Any, program: Program) -> Array | None:
    """Return the first solution that the solver itself calls feasible."""
    from ortools.math_opt import solution_pb2

    for solution in result.solutions:
        if solution.primal_solution.feasibility_status == solution_pb2.SOLUTION_STATUS_FEASIBLE:
            return _dense(solution.primal_solution.variable_values, program.columns)
    return None


def _dense(vector: Any, length: int) -> Array:
    dense = np.zeros(length)
    dense[np.array(vector.ids, dtype=np.int64)] = vector.values
    return dense
