"""Z3 (MIT licence): SMT over exact rationals. Takes ReLU equalities and clauses as they are; every float64 enters exactly.

The program goes in as one SMT-LIB text, which Z3 parses about five times faster than its Python API builds terms. Each solve has a
context of its own, so solves in different threads are independent. Ctrl-C gives back an Outcome with LIMIT / INTERRUPTED.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from solvers.outcome import BackendRun, Budget, Limit, Outcome, Reason, Termination, UnsupportedProgram, run_interruptible
from solvers.program import Array, Program

NAME, DISTRIBUTION, TOLERANCE = "z3", "z3-solver", 0.0

# Z3's reasons for `unknown`; any other reason is an error with that text.
_UNKNOWN: dict[str, Reason] = {
    "timeout": Limit.TIME,
    "canceled": Limit.TIME,  # the timer cancels; an interrupt is recognised before this table is asked
    "interrupted": Limit.INTERRUPTED,
    "interrupted from keyboard": Limit.INTERRUPTED,
    "max. memory exceeded": Limit.MEMORY,
    "memout": Limit.MEMORY,
    "max. resource limit exceeded": Limit.OTHER,
}


def solve(program: Program, *, budget: Budget, presolve: bool | None) -> Outcome:
    """Write, parse, check, read back. values are rounded from exact_values. presolve has no meaning here.

    The stops of a budget are decided first: is there a point with an objective of at most stop_above, or at most stop_below?

    Raises UnsupportedProgram for an objective beside strict clauses: its infimum need not be attained.
    """
    if program.objective is not None and any(clause.strict.any() for clause in program.clauses):
        raise UnsupportedProgram("z3: an objective beside strict clauses need not have an optimum; ask a feasibility question "
                                 "or make the clauses non-strict")
    run = BackendRun(program, NAME, DISTRIBUTION, TOLERANCE)
    columns = _columns(program)
    text = "".join(_statements(program, columns))
    deadline = time.perf_counter() + run.begin(budget)
    if program.objective is None:
        return _satisfy(run, text, budget, deadline)[0]
    goal = _linear(program.objective, columns)
    for limit in _thresholds(budget):
        limited = f"{text}(assert (<= {goal} {_numeral(Fraction(limit) - Fraction(program.constant))}))"
        outcome, exact = _satisfy(run, limited, budget, deadline)
        if outcome.termination is Termination.INFEASIBLE and limit == budget.stop_above:
            outcome, exact = _satisfy(run, text, budget, deadline)  # first decide whether there is any point
            if exact is None:
                return outcome
            return run.outcome(Limit.DECIDED, f"unsat at most {limit}", values=outcome.values, exact_values=exact, dual_bound=limit)
        if exact is not None and budget.stop_below is not None and _value(program, exact) <= Fraction(budget.stop_below):
            return run.outcome(Limit.DECIDED, f"sat at most {limit}", values=outcome.values, exact_values=exact)
        if exact is None and outcome.termination is not Termination.INFEASIBLE:
            return outcome  # out of time, say
    return _minimise(run, f"{text}(minimize {goal})", budget, deadline)


def _thresholds(budget: Budget) -> list[float]:
    """Return values of the objective to be decided before its optimum, which takes Z3 many times as long."""
    return [limit for limit in (budget.stop_above, budget.stop_below) if limit is not None]


def _value(program: Program, point: Sequence[Fraction]) -> Fraction:
    return sum((Fraction(c) * v for c, v in zip(program.costs.tolist(), point, strict=True)), Fraction(program.constant))


def _satisfy(run: BackendRun, text: str, budget: Budget, deadline: float) -> tuple[Outcome, tuple[Fraction, ...] | None]:
    """Decide if there is a point. Return the outcome and the point, or None."""
    import z3

    context = z3.Context()
    outcome, solver = _check(run, z3.Solver(ctx=context), context, text, budget, deadline)
    if outcome is not None:
        return outcome, None
    exact = _point(run.program, solver.model(), context)
    return run.outcome(Termination.OPTIMAL, "sat", values=_rounded(exact), exact_values=exact), exact


def _minimise(run: BackendRun, text: str, budget: Budget, deadline: float) -> Outcome:
    import z3

    context, program = z3.Context(), run.program
    outcome, solver = _check(run, z3.Optimize(ctx=context), context, text, budget, deadline)
    if outcome is not None:
        return outcome
    exact = _point(program, solver.model(), context)
    # Z3 gives the infimum as  coefficient * infinity + value + coefficient * epsilon.
    infinite, infimum, epsilon = (_fraction(part) for part in z3.OptimizeObjective(solver, 0, False).lower_values())
    if infinite != 0:
        return run.outcome(Termination.UNBOUNDED, "sat, infimum -oo")
    infimum += Fraction(program.constant)
    reason = Termination.OPTIMAL if _value(program, exact) == infimum and epsilon == 0 else Limit.OTHER
    message = f"sat, infimum {infimum}"
    return run.outcome(reason, message, values=_rounded(exact), exact_values=exact, dual_bound=float(infimum))


def _check(
    run: BackendRun, solver: Any, context: Any, text: str, budget: Budget, deadline: float
) -> tuple[Outcome | None, Any]:
    """Parse and check. Return the outcome if there is no model, and the solver."""
    import z3

    solver.from_string(text)
    _configure(solver, budget, deadline - time.perf_counter())
    try:
        status, interrupted = run_interruptible(solver.check, context.interrupt)
    except z3.Z3Exception as error:
        run.end()
        return run.outcome(Limit.MEMORY if "memory" in str(error) else Termination.ERROR, str(error)), solver
    run.end()
    if status == z3.unsat:
        return run.outcome(Termination.INFEASIBLE, "unsat"), solver
    if status == z3.sat:
        return None, solver
    message = solver.reason_unknown()
    reason = Limit.INTERRUPTED if interrupted else _UNKNOWN.get(message, Termination.ERROR)
    if reason is Termination.ERROR and message == "unknown" and run.build_seconds + run.solve_seconds >= budget.seconds:
        reason = Limit.TIME  # an optimisation that runs into its timer has no better word for it
    return run.outcome(reason, message), solver


def _point(program: Program, model: Any, context: Any) -> tuple[Fraction, ...]:
    import z3

    variables = [(z3.Int if integer else z3.Real)(f"v{j}", context) for j, integer in enumerate(program.integer.tolist())]
    return tuple(_fraction(model.eval(variable, model_completion=True)) for variable in variables)


def _rounded(point: Sequence[Fraction]) -> Array:
    return np.array([float(value) for value in point])


def _configure(solver: Any, budget: Budget, seconds: float) -> None:
    solver.set("timeout", max(int(seconds * 1000), 1))
    solver.set("ctrl_c", False)  # run_interruptible listens instead
    solver.set("random_seed", budget.seed % (2**31 - 1))


def _columns(program: Program) -> list[str]:
    return [f"(to_real v{j})" if integer else f"v{j}" for j, integer in enumerate(program.integer.tolist())]


def _statements(program: Program, columns: list[str]) -> Iterator[str]:
    for j, integer in enumerate(program.integer.tolist()):
        yield f"(declare-fun v{j} () {'Int' if integer else 'Real'})"
    for column, lower, upper in zip(columns, program.lower.tolist(), program.upper.tolist(), strict=True):
        yield from _between(column, lower, upper)
    rows = zip(_terms(program.rows, columns), program.row_lower.tolist(), program.row_upper.tolist(), strict=True)
    for row, lower, upper in rows:
        yield from _between(row, lower, upper)
    for into, out in program.relus.tolist():
        yield f"(assert (= {columns[out]} (ite (>= {columns[into]} 0.0) {columns[into]} 0.0)))\n"
    for clause in program.clauses:
        parts = zip(_terms(clause.rows, columns), clause.bound.tolist(), clause.strict.tolist(), strict=True)
        options = [f"({'>' if strict else '>='} {row} {_numeral(bound)})" for row, bound, strict in parts]
        yield f"(assert (or false {' '.join(options)}))\n"


def _between(term: str, lower: float, upper: float) -> Iterator[str]:
    if lower == upper:
        yield f"(assert (= {term} {_numeral(lower)}))\n"
        return
    if lower != -np.inf:
        yield f"(assert (>= {term} {_numeral(lower)}))\n"
    if upper != np.inf:
        yield f"(assert (<= {term} {_numeral(upper)}))\n"


def _terms(rows: sp.csr_array, columns: list[str]) -> Iterator[str]:
    start, index, data = rows.indptr.tolist(), rows.indices.tolist(), rows.data.tolist()
    for first, last in pairwise(start):
        parts = zip(data[first:last], index[first:last], strict=True)
        yield f"(+ 0.0 0.0 {' '.join(f'(* {_numeral(value)} {columns[j]})' for value, j in parts)})"


def _linear(objective: Any, columns: list[str]) -> str:
    return next(_terms(sp.csr_array(objective[None, :]), columns))


def _numeral(value: float | Fraction) -> str:
    """Return the exact value of a number as an SMT-LIB term."""
    top, bottom = value.as_integer_ratio()
    text = f"{abs(top)}.0" if bottom == 1 else f"(/ {abs(top)}.0 {bottom}.0)"
    return f"(- {text})" if top < 0 else text


def _fraction(value: Any) -> Fraction:
    """Return an integer or rational numeral of Z3 as a fraction."""
    return Fraction(value.as_long()) if value.is_int() else Fraction(value.numerator_as_long(), value.denominator_as_long())
