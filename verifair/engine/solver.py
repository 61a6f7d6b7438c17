"""One goal decided by a solver (LP, MILP or SMT), and how far its answer can be trusted.

A MILP stops at the first point that violates the goal, or at a bound that suffices for a claim (`Budget`'s stops). If exact
evaluation rejects its point it continues, in the end to its optimum.

Sound? a solver's "proved" is only a claim, above its tolerance and on programs whose numbers it can handle; its points count only
once exact evaluation confirms them.  Complete? SMT is, for unscaled inputs; MILP up to its tolerances; LP is not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, assert_never

import numpy as np

from encoders.arrays import Array
from encoders.bounds.twin import Twin
from encoders.evaluate import exact_goals
from encoders.problem import Goal, TwinProblem
from encoders.programs.big_m import big_m
from encoders.programs.rows import refined
from encoders.programs.smt import smt
from encoders.programs.triangle import triangle
from encoders.programs.twin import Encoding
from encoders.programs.twin_box import Method, TwinBox
from solvers import clock, registry
from solvers.outcome import Budget, Limit, Outcome, Termination
from solvers.program import Program
from solvers.registry import Capability
from verifair.engine.answer import GoalAnswer, disagree
from verifair.engine.verdict import Reason, Status

if TYPE_CHECKING:  # numba is loaded for trees alone
    from encoders.programs.trees import TreeProgram
    from encoders.trees.twin import TreeTwin

MAX_LINES = 50
"""The most lines of a probability curve, which are added one at a time where a solver's point needs one."""
LARGEST_SCALE = 1e7
"""Largest coefficient or bound of a program with claims. Beyond it float64 solvers were seen to be wrong by any amount."""


LEAST_TOLERANCE = 1e-7
"""Programs other than SMT's contain float32 roundings of inputs. So an exact solver gets the tolerance that others have anyway, and
its answer holds up to this, times the program's scale."""
BUILDING = {"milp": 1e-6, "lp": 1e-6, "smt": 5e-5}
"""Seconds to build a program, for each of the network's weights; a solver's time limit starts only after that."""
SETUP = 2.3e-8
"""Seconds, times nonzeros^1.5, that HiGHS prepares a network's MIP before it checks its time limit: 0.8, 7 and 197 s were measured
for 128,000, 458,000 and 4.2 million nonzeros."""
NODE, LOADING, SETUP_OF_TREES = 1e-6, 4e-6, 2e-5
"""Seconds of trees' programs: to build one, for each node of both copies' trees; to give it to a backend, for each nonzero; and
before HiGHS checks its time limit, likewise: 2.5 and 5 s were measured for 97,000 and 232,000 nonzeros."""
REJECTED = 2
"""Points that exact evaluation may reject before a solver is asked for its optimum."""


def left(budget: Budget, deadline: float) -> Budget:
    """Return the budget with the seconds that are left, at least a little: a solver needs a positive number."""
    return replace(budget, seconds=max(deadline - clock.now(), 1e-3))


def copies_of(problem: TwinProblem) -> Twin | TreeTwin:
    """Return both copies of a problem's model, as `ask` takes them."""
    if not problem.network.of_trees:
        return Twin.of(problem)
    from encoders.trees.twin import TreeTwin

    return TreeTwin.of(problem)


def _encoded(twin: Twin | TreeTwin, q: int, goal: Goal, method: str) -> Encoding | TreeProgram:
    if not isinstance(twin, Twin):      # one program for MILP and SMT: integral thresholds make the leaves' variables integral
        from encoders.programs.trees import TreeProgram

        return TreeProgram.of(twin, q, goal)
    box = TwinBox.of(twin, q, method=Method.INTERVAL if method == "lp" else Method.LINEAR)
    match method:
        case "milp":  # difference rows pay if a row is about both copies
            return big_m(box, difference=goal.gap is not None)
        case "lp":
            return triangle(box)
        case _:
            return smt(box)


def ask(
    twin: Twin | TreeTwin, q: int, g: int, method: str, solver: str | None, budget: Budget, previous: GoalAnswer | None
) -> GoalAnswer:
    """Decide one goal by LP, MILP or SMT: all its rows in one program.

    The solver is asked again, at most MAX_LINES times: with another line of the curve if its point breaks every row but has a gap
    that is small enough; and with a lower threshold if the point that ended the search is no counterexample.
    """
    goal = twin.problem.goals[g]
    current = previous or GoalAnswer.blank(method, Reason.SOLVER_ERROR)
    deadline = clock.now() + budget.seconds
    if _building_seconds(twin, q, method) > budget.seconds:
        return replace(current, reason=Reason.TIME)
    encoding = _encoded(twin, q, goal, method)
    backend = registry.get(solver or ("z3" if method == "smt" else "highs"))
    # A point of a relaxation is rarely one of the network, so the relaxation's optimum is asked for.
    below = 0.0 if method == "milp" else None
    rejected = 0
    for _ in range(MAX_LINES):
        program = encoding.violated(goal) if method == "smt" else encoding.worst(goal)
        if method != "smt" and Capability.EXACT in backend.capabilities:
            program = loosened(program)
        above = sufficient(backend.tolerance) * _scale(program) * (1 + 1e-6) if _scale(program) <= LARGEST_SCALE else None
        limits = left(budget, deadline) if method == "smt" else replace(left(budget, deadline), stop_below=below, stop_above=above)
        if _setup_seconds(program, method, backend.name, trees=not isinstance(twin, Twin)) > limits.seconds:
            return replace(current, reason=Reason.TIME)
        outcome = backend.solve(program, budget=limits)
        if len(goal.rows) == 1 and method != "smt" and _scale(program) <= LARGEST_SCALE:
            compare(twin.problem, q, goal.rows[0], outcome, current)
        current = _judge(_Question(problem=twin.problem, q=q, g=g, method=method), outcome, encoding, program, current)
        if current.reason is not Reason.WITNESS_REJECTED or outcome.values is None:
            break
        _, margins = exact_goals(twin.problem, np.array([q]), encoding.decode(outcome.values))
        refined_goal = refined(goal, margins[0])
        if refined_goal is not None:
            goal = refined_goal
        elif outcome.limit is Limit.DECIDED and below is not None:
            rejected += 1
            below = None if rejected > REJECTED else _lower(below, outcome, program)
        else:
            break
    return current


def _building_seconds(twin: Twin | TreeTwin, q: int, method: str) -> float:
    if isinstance(twin, Twin):
        return BUILDING[method] * twin.problem.network.work
    return NODE * len(twin.joint(int(twin.pair_of[q])).trees.variable)


def _setup_seconds(program: Program, method: str, backend: str, *, trees: bool) -> float:
    if trees:
        return float((SETUP_OF_TREES if backend == "highs" else LOADING) * program.rows.nnz)
    return float(SETUP * program.rows.nnz**1.5) if method == "milp" and backend == "highs" else 0.0


def loosened(program: Program) -> Program:
    """Return the program with inequalities and bounds relaxed by a rounding error; equations stay, as each has a free column.

    The network's points satisfy the rows only up to rounding errors, which a solver in exact arithmetic would not tolerate.
    """
    slack = LEAST_TOLERANCE * max(1.0, float(np.abs(program.rows.data).max(initial=0.0)))
    row = np.where(program.row_lower < program.row_upper, slack, 0.0)
    column = np.where((program.lower < program.upper) & ~program.integer, slack, 0.0)
    return replace(
        program, row_lower=program.row_lower - row, row_upper=program.row_upper + row, lower=program.lower - column,
        upper=program.upper + column,
    )


def sufficient(tolerance: float) -> float:
    """Return the number that a bound, divided by its program's scale, must exceed to count as a claim of such a backend."""
    return 10 * max(tolerance, LEAST_TOLERANCE)


def _lower(below: float, outcome: Outcome, program: Program) -> float:
    """Return the next threshold for points, after one below `below` was rejected: twice as low, and lower than tolerances can
    explain."""
    reached = below if outcome.primal_bound is None else min(below, outcome.primal_bound)
    return 2 * reached - sufficient(outcome.tolerance) * _scale(program)


def compare(problem: TwinProblem, q: int, row: Array, outcome: Outcome, answer: GoalAnswer) -> None:
    """Raise Disagreement if a solver's bounds contradict those that the engine proved or found by 1e-4, far above its tolerance."""
    slack = 1e-4 * (1 + abs(answer.upper)) if np.isfinite(answer.upper) else np.inf
    too_high = outcome.dual_bound is not None and outcome.dual_bound > answer.upper + slack
    # A point that is feasible up to a solver's tolerance may lie a little below the true minimum, but never far.
    too_low = outcome.primal_bound is not None and outcome.values is not None and outcome.primal_bound < answer.lower - slack
    if too_high or too_low:
        claimed = f"minimum within [{outcome.dual_bound}, {outcome.primal_bound}]"
        engine_bounds = f"minimum within [{answer.lower}, {answer.upper}]"
        raise disagree(problem, q, row, {f"{outcome.backend} {outcome.version}": claimed, "branch-and-bound": engine_bounds})


@dataclass(frozen=True, kw_only=True, eq=False)
class _Question:
    """Goal g of question q of a problem, asked by LP, MILP or SMT."""

    problem: TwinProblem
    q: int
    g: int
    method: str


def _judge(
    question: _Question, outcome: Outcome, encoding: Encoding | TreeProgram, program: Program, current: GoalAnswer
) -> GoalAnswer:
    """Return the answer for a solver's outcome: claims above its tolerance are CLAIMED proofs, points count once confirmed."""
    problem, q, g, method = question.problem, question.q, question.g, question.method
    current = replace(current, engine=f"{method}:{outcome.backend}", outcomes=(*current.outcomes, outcome))
    if outcome.values is not None:
        point = encoding.decode(outcome.values)[0]
        holds, margins = exact_goals(problem, np.array([q]), point[None, :])
        second = problem.batch.take([q]).second(point[None, :])
        if problem.domain.legal(point[None, :])[0] and problem.domain.legal(second)[0] and not holds[0, g]:
            value = float((problem.goals[g].rows @ margins[0] + problem.goals[g].constants).max())
            return replace(
                current, status=Status.VIOLATED, reason=None, witness=point, margins=(float(margins[0, 0]), float(margins[0, 1])),
                upper=min(current.upper, value),
            )
    bound = outcome.dual_bound if outcome.dual_bound is not None else -np.inf
    scale = _scale(program)
    if method != "smt" and scale > LARGEST_SCALE:
        return replace(current, status=Status.UNKNOWN, reason=Reason.NUMERICAL)
    status, reason = status_of(
        outcome, exact=method == "smt", relaxation=method == "lp", bound=bound / scale,
        empty=method == "milp" and problem.domain.forbidden is not None,
    )
    return replace(current, status=status, reason=reason, lower=max(current.lower, bound))


def _scale(program: Program) -> float:
    """Return a program's largest coefficient or bound: tolerances are absolute, so the errors that they hide grow with it."""
    bounds = np.abs(np.concatenate([program.lower, program.upper]))
    return float(max(1.0, np.abs(program.rows.data).max(initial=0.0), bounds[np.isfinite(bounds)].max(initial=0.0)))


def status_of(
    outcome: Outcome, *, exact: bool, relaxation: bool, bound: float, empty: bool = False
) -> tuple[Status, Reason | None]:
    """Return the status, and reason, of the goal  "the objective is positive everywhere"  for a solver's termination.

    exact: the program says "some point fails", in exact arithmetic, so INFEASIBLE is a proof.   Otherwise the program minimises the
    row, and only a bound (divided by the program's scale) that is `sufficient` is a claim.   Witnesses have been handled before: a
    point that is still here was not confirmed.   empty: constraints may forbid every row, which is a proof too.
    """
    match outcome.termination:
        case Termination.INFEASIBLE:
            # A minimisation over a box has a point unless constraints leave none: otherwise this can only be a numerical error.
            return (Status.PROVED, None) if exact or empty else (Status.UNKNOWN, Reason.NUMERICAL)
        case Termination.OPTIMAL:
            if not exact and bound > sufficient(outcome.tolerance):
                return Status.PROVED, None
            return Status.UNKNOWN, Reason.RELAXATION_TOO_WEAK if relaxation else Reason.WITNESS_REJECTED
        case Termination.SATISFIED:
            return Status.UNKNOWN, Reason.WITNESS_REJECTED
        case Termination.LIMIT:
            if not exact and bound > sufficient(outcome.tolerance):
                return Status.PROVED, None
            return Status.UNKNOWN, limit_reason(outcome.limit)
        case Termination.UNBOUNDED | Termination.INFEASIBLE_OR_UNBOUNDED | Termination.NUMERICAL:
            return Status.UNKNOWN, Reason.NUMERICAL
        case Termination.ERROR:
            return Status.UNKNOWN, Reason.SOLVER_ERROR
        case unreachable:
            assert_never(unreachable)


def limit_reason(limit: Limit | None) -> Reason:
    match limit:
        case Limit.TIME:
            return Reason.TIME
        case Limit.NODES | Limit.ITERATIONS:
            return Reason.NODES
        case Limit.MEMORY:
            return Reason.MEMORY
        case Limit.INTERRUPTED:
            return Reason.INTERRUPTED
        case Limit.DECIDED:  # stopped at a point that was not confirmed; a bound that ends a search is a claim
            return Reason.WITNESS_REJECTED
        case Limit.OTHER | None:
            return Reason.SOLVER_ERROR
        case unreachable:
            assert_never(unreachable)
