"""The methods' answers to each kind of question: one function for each kind, by the functions that the rest of verifair uses."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from encoders.bounds.twin import Twin
from encoders.evaluate import exact_goals
from encoders.programs.big_m import big_m
from encoders.programs.k_center import k_center
from encoders.programs.triangle import triangle
from encoders.programs.twin import Encoding
from encoders.programs.twin_box import Method, TwinBox
from solvers import registry
from solvers.outcome import Budget, Outcome, Termination
from verifair.bench.questions import CenterQuestion, DecisionQuestion, FileQuestion, MinimumQuestion, RelaxationQuestion
from verifair.bench.records import Reply, unknown
from verifair.engine.answer import GoalAnswer, engines
from verifair.engine.cascade import solve
from verifair.engine.search.optimum import minimum
from verifair.engine.solver import limit_reason
from verifair.engine.verdict import Reason, Status
from verifair.errors import QueryError
from verifair.interop import decide as vnnlib
from verifair.interop.decide import VnnlibStatus
from verifair.systems.fgce.optimum.center import Unfinished, by_components, centers, needed


def decide(question: DecisionQuestion, method: str, solver: str | None, budget: Budget) -> Reply:
    """Decide by the engine, as `verifair.verify` does: all pairs and directions together, one violation refutes."""
    problem = question.problem
    group = np.zeros(len(problem.batch), dtype=np.int64)
    rows = solve(problem, method=method, solver=solver, budget=budget, group=group)
    return together([answer for row in rows for answer in row], comparable=question.single)


def decide_file(question: FileQuestion, method: str, solver: str | None, budget: Budget) -> Reply:
    """Decide a VNN-LIB query as `verifair verify` does; reading it counts."""
    started = time.monotonic()
    query, networks = question.read()
    answer = vnnlib.decide(query, networks, budget=_remaining(budget, started), method=method, solver=solver)
    engine = ", ".join(answer.engines)
    match answer.answer:
        case VnnlibStatus.SAT:
            return Reply(status="violated", reason=None, trust="exact", engine=engine)
        case VnnlibStatus.UNSAT:
            trust = "claimed" if answer.certificate is None else "checked"
            return Reply(status="proved", reason=None, trust=trust, engine=engine)
        case VnnlibStatus.TIMED_OUT:
            return unknown("time", answer.reason or "")
        case VnnlibStatus.UNKNOWN:
            return unknown("undecided", answer.reason or "")


def together(answers: Sequence[GoalAnswer], *, comparable: bool) -> Reply:
    """Join the answers: all goals hold, one fails, or neither is known."""
    outcomes = [outcome for answer in answers for outcome in answer.outcomes]
    statuses = {answer.status for answer in answers}
    status = next((candidate for candidate in (Status.VIOLATED, Status.UNKNOWN) if candidate in statuses), Status.PROVED)
    reasons = [answer.reason for answer in answers if answer.reason is not None]
    trust = {Status.VIOLATED: "exact", Status.UNKNOWN: ""}.get(status)
    if trust is None:
        trust = "checked" if all(answer.tree is not None for answer in answers) else "claimed"
    return Reply(
        status=status.value,
        reason=_worst(reasons).value if status is Status.UNKNOWN else None,
        trust=trust,
        lower=min(answer.lower for answer in answers),
        upper=min(answer.upper for answer in answers),
        comparable=comparable,
        solve_seconds=sum(outcome.solve_seconds for outcome in outcomes) if outcomes else None,
        version=outcomes[-1].version if outcomes else "",
        engine=engines(answers),
        note=next((outcome.message for outcome in outcomes if outcome.termination is Termination.ERROR), ""),
    )


def _worst(reasons: Sequence[Reason]) -> Reason:
    """Return the reason of the open goals that more time would least have changed."""
    order = (Reason.SOLVER_ERROR, Reason.NUMERICAL, Reason.RELAXATION_TOO_WEAK, Reason.WITNESS_REJECTED, Reason.MEMORY)
    return next((reason for reason in order if reason in reasons), reasons[0])


def relax(question: RelaxationQuestion, solver: str, budget: Budget) -> Reply:
    """Solve the LP on one backend."""
    started = time.monotonic()
    problem = question.problem
    encoding = triangle(TwinBox.of(Twin.of(problem), 0, method=Method.INTERVAL))
    outcome = registry.solve(encoding.minimise(problem.rows[0]), backend=solver, budget=_remaining(budget, started))
    return _optimum(outcome, outcome.primal_bound)


def least(question: MinimumQuestion, method: str, solver: str | None, budget: Budget) -> Reply:
    """Find the exact minimum: by our bracket, or by the exact MILP on a backend, its point decoded and evaluated."""
    started = time.monotonic()
    problem = question.problem
    if method == "bnb":
        result = minimum(problem, tolerance=question.tolerance, seconds=budget.seconds)
        lower, upper = float(result.lower[0]), float(result.upper[0])
        closed = upper - lower <= 2 * question.tolerance  # rounding may leave a little more than was asked for
        return Reply(
            status="optimal" if closed else "unknown", reason=None if closed else "time", trust="checked" if closed else "",
            lower=lower, upper=upper, comparable=True, engine="bracket",
        )
    assert solver is not None
    encoding = big_m(TwinBox.of(Twin.of(problem), 0, method=Method.LINEAR))
    outcome = registry.solve(encoding.minimise(problem.rows[0]), backend=solver, budget=_remaining(budget, started))
    return _optimum(outcome, _attained(question, encoding, outcome))


def _attained(question: MinimumQuestion, encoding: Encoding, outcome: Outcome) -> float | None:
    """Return the row's value at the solver's point, once that is decoded to a legal row; else the solver's own word."""
    if outcome.values is None:
        return None
    point = encoding.decode(outcome.values)
    problem = question.problem
    if not problem.domain.legal(point)[0]:
        return outcome.primal_bound
    _, margins = exact_goals(problem, np.array([0]), point)
    return float(margins[0] @ problem.rows[0] + problem.constants[0])


def _reason(outcome: Outcome) -> Reason:
    """Return the reason that a solver's run did not end with an optimum."""
    if outcome.termination is Termination.LIMIT:
        return limit_reason(outcome.limit)
    failed = outcome.termination in (Termination.ERROR, Termination.OPTIMAL, Termination.SATISFIED)
    return Reason.SOLVER_ERROR if failed else Reason.NUMERICAL  # infeasible or unbounded, where an optimum exists


def _optimum(outcome: Outcome, upper: float | None) -> Reply:
    done = outcome.termination is Termination.OPTIMAL and outcome.dual_bound is not None and upper is not None
    return Reply(
        status="optimal" if done else "unknown", reason=None if done else _reason(outcome).value, trust="claimed" if done else "",
        lower=-np.inf if outcome.dual_bound is None else outcome.dual_bound, upper=np.inf if upper is None else upper,
        comparable=True, solve_seconds=outcome.solve_seconds, version=outcome.version, engine=outcome.backend,
        note="" if done else outcome.message,
    )


def cover(question: CenterQuestion, method: str, solver: str | None, budget: Budget) -> Reply:
    """Find the k-center: exact, by components, or by the paper's MIP (with ranks) on a backend."""
    if method == "mip":
        assert solver is not None
        return _cover_by_solver(question, solver, budget)
    try:
        if method == "components":
            result = by_components(question.instance, question.k, budget=budget)
        else:
            result = centers(question.instance, question.k, question.coverage, budget=budget)
    except Unfinished:
        return unknown("time")
    return Reply(
        status="optimal" if result.optimal else "unknown", reason=None if result.optimal else "time",
        trust="checked" if result.optimal else "", lower=result.lower, upper=result.cost, comparable=True, engine=method,
    )


def _cover_by_solver(question: CenterQuestion, solver: str, budget: Budget) -> Reply:
    """Ask a solver. The optimum is one of the costs, so an answer is either right or wrong, never approximately right."""
    started = time.monotonic()
    program = k_center(
        question.instance.costs(), k=question.k, coverage=needed(question.instance, question.coverage), ranked=True
    )
    outcome = registry.solve(program.program, backend=solver, budget=_remaining(budget, started))
    solution = None if outcome.values is None else program.decode(outcome.values)
    reply = _optimum(outcome, None if solution is None else solution.cost)
    lower = solution.cost if solution is not None and reply.decided else program.lower_bound(outcome.dual_bound)
    return replace(reply, lower=lower)


def _remaining(budget: Budget, started: float) -> Budget:
    """Return the rest of the budget after building. Raises QueryError if nothing is left; the worker records it as TIME."""
    seconds = budget.seconds - (time.monotonic() - started)
    if seconds <= 0:
        raise OutOfBudget("building the program took all the time there is")
    return replace(budget, seconds=seconds)


class OutOfBudget(QueryError):
    """Time was up before a solver was asked."""
