"""Z3 (MIT licence): SMT over exact rationals. Takes ReLU equalities and clauses as they are; every float64 enters exactly.

The program goes in as one SMT-LIB text, which Z3 parses about five times faster than its Python API builds terms. Each solve has a
context of its own, so solves in different threads do not meet. Ctrl-C gives back an Outcome with LIMIT / INTERRUPTED.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from solvers.outcome import BackendRun, Budget, Limit, Outcome, Reason, Termination, UnsupportedProgram, run_interruptible
from solvers.program import Program

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

    Raises UnsupportedProgram for an objective beside strict clauses: its infimum need not be attained.
    """
    import z3

    if program.objective is not None and any(clause.strict.any() for clause in program.clauses):
        raise UnsupportedProgram("z3: an objective beside strict clauses need not have an optimum; ask a feasibility question "
                                 "or make the clauses non-strict")
    run = BackendRun(program, NAME, DISTRIBUTION, TOLERANCE)
    context = z3.Context()
    solver = z3.Solver(ctx=context) if program.objective is None else z3.Optimize(ctx=context)
    columns = _columns(program)
    text = "".join(_statements(program, columns))
    if program.objective is not None:
        text += f"(minimize {_linear(program.objective, columns)})"
    solver.from_string(text)
    variables = [(z3.Int if integer else z3.Real)(f"v{j}", context) for j, integer in enumerate(program.integer.tolist())]
    _configure(solver, budget, run.begin(budget))
    try:
        status, interrupted = run_interruptible(solver.check, context.interrupt)
    except z3.Z3Exception as error:
        run.end()
        return run.outcome(Limit.MEMORY if "memory" in str(error) else Termination.ERROR, str(error))
    run.end()
    if status == z3.unsat:
        return run.outcome(Termination.INFEASIBLE, "unsat")
    if status != z3.sat:
        said = solver.reason_unknown()
        reason = Limit.INTERRUPTED if interrupted else _UNKNOWN.get(said, Termination.ERROR)
        if reason is Termination.ERROR and said == "unknown" and run.build_seconds + run.solve_seconds >= budget.seconds:
            reason = Limit.TIME  # an optimisation that runs into its timer has no better word for it
        return run.outcome(reason, said)
    model = solver.model()
    exact = tuple(_fraction(model.eval(variable, model_completion=True)) for variable in variables)
    point = np.array([float(value) for value in exact])
    if program.objective is None:
        return run.outcome(Termination.OPTIMAL, "sat", values=point, exact_values=exact)
    # Z3 gives the infimum as  coefficient * infinity + value + coefficient * epsilon.
    infinite, infimum, epsilon = (_fraction(part) for part in z3.OptimizeObjective(solver, 0, False).lower_values())
    if infinite != 0:
        return run.outcome(Termination.UNBOUNDED, "sat, infimum -oo")
    best = sum((Fraction(cost) * value for cost, value in zip(program.objective.tolist(), exact, strict=True)), Fraction(0))
    reason = Termination.OPTIMAL if best == infimum and epsilon == 0 else Limit.OTHER
    bound = float(infimum + Fraction(program.constant))
    return run.outcome(reason, f"sat, infimum {infimum}", values=point, exact_values=exact, dual_bound=bound)


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


def _numeral(value: float) -> str:
    """The exact value of a float as an SMT-LIB term."""
    top, bottom = value.as_integer_ratio()
    text = f"{abs(top)}.0" if bottom == 1 else f"(/ {abs(top)}.0 {bottom}.0)"
    return f"(- {text})" if top < 0 else text


def _fraction(value: Any) -> Fraction:
    """An integer or rational numeral of Z3."""
    return Fraction(value.as_long()) if value.is_int() else Fraction(value.numerator_as_long(), value.denominator_as_long())
