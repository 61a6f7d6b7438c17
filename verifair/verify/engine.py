"""The cascade that decides twin problems: bounds, branch-and-bound on the inputs, then MILP or SMT for what is left.

Reads top to bottom. Every answer goes through the rules of the house: VIOLATED only by exact evaluation of a legal point,
PROVED only with a tree that `check` re-proves (CHECKED) or a solver's claim that is marked as one (CLAIMED), and everything else
UNKNOWN with its reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import assert_never

import numpy as np
import numpy.typing as npt

from encoders.big_m import big_m
from encoders.bounds.twin import Twin
from encoders.evaluate import exact_goals, pair, seems_unmet
from encoders.goal_rows import refined
from encoders.network import Array
from encoders.problem import Integers, TwinProblem
from encoders.runtime import runtime_logits
from encoders.smt import smt, violated
from encoders.triangle import triangle
from encoders.twin import Encoding
from encoders.twin_box import Method, TwinBox
from solvers import registry
from solvers.outcome import Budget, Limit, Outcome, Termination
from solvers.program import Program
from verifair.errors import QueryError
from verifair.verdict import Reason, Status
from verifair.verify.branch_and_bound import OPEN, PROVED, VIOLATED, Decision, decide
from verifair.verify.certificate import Tree
from verifair.verify.disagreement import disagree
from verifair.verify.phase_tree import PhaseTree
from verifair.verify.phases import decide_by_phases

METHODS = ("auto", "bnb", "lp", "milp", "smt")
"""auto: the cascade.   bnb: branch-and-bound only.   lp: one triangle LP a query, the paper's.   milp, smt: a solver alone."""

FIRST_NODES, PHASE_NODES = 2000, 2000
"""Boxes that input splitting gets first, and regions that neuron branching gets then."""
MAX_LINES = 50
"""Of a probability curve, added one at a time where a solver's point calls for one."""
LARGEST_SCALE = 1e7
"""Of a program's coefficients and bounds. Beyond it float64 solvers were seen to be wrong by any amount: they claim nothing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """The answer to one goal of one question, still in arrays.

    tree: the proof's boxes, None for a solver's claim.   witness: (V,) raw x.   margins: g(x), g(x') there.
    lower, upper: bounds on the goal's best row.   agrees: whether float32 onnxruntime shows the violation (None: no file).
    """

    status: Status
    reason: Reason | None
    lower: float
    upper: float
    tree: Tree | PhaseTree | None
    witness: Array | None
    margins: tuple[float, float] | None
    agrees: bool | None
    engine: str
    outcomes: tuple[Outcome, ...]
    nodes: int


def solve(
    problem: TwinProblem,
    *,
    method: str = "auto",
    solver: str | None = None,
    budget: Budget | None = None,
    group: Integers | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[list[Answer]]:
    """Answers [question][goal] of a batch. budget.seconds is for the whole batch, budget.nodes for each question.

    group: (Q,) questions that stand together: once one is violated, the others are moot (see `branch_and_bound.decide`).
    """
    budget = budget or Budget()
    deadline = time.monotonic() + budget.seconds
    match method:
        case "auto" | "bnb":
            limit = _first_nodes(problem, method, budget)
            decision = decide(problem, seconds=budget.seconds, max_nodes=limit, group=group, seed=budget.seed, progress=progress)
            answers = _answers(problem, decision)
            if method == "auto":
                answers = _settle_the_rest(problem, answers, solver, budget, deadline, group)
        case "lp" | "milp" | "smt":
            answers = _by_solver(problem, method, solver, budget)
        case _:
            raise QueryError(f"method {method!r} is unknown; choose one of {', '.join(METHODS)}")
    return _replayed(problem, answers)


def _answers(problem: TwinProblem, decision: Decision) -> list[list[Answer]]:
    return [[_answer(decision, q, g) for g in range(len(problem.goals))] for q in range(len(problem.batch))]


def _answer(decision: Decision, q: int, g: int) -> Answer:
    status = int(decision.status[q, g])
    violated = status == VIOLATED
    return Answer(
        status={OPEN: Status.UNKNOWN, PROVED: Status.PROVED, VIOLATED: Status.VIOLATED}[status],
        reason=None if status != OPEN else {"time": Reason.TIME, "nodes": Reason.NODES}.get(decision.out_of[q], Reason.NUMERICAL),
        lower=float(decision.lower[q, g]),
        upper=float(decision.upper[q, g]),
        tree=decision.forest.tree(q, g) if status == PROVED else None,
        witness=decision.witness[q, g] if violated else None,
        margins=(float(decision.margins[q, g, 0]), float(decision.margins[q, g, 1])) if violated else None,
        agrees=None,
        engine="branch-and-bound",
        outcomes=(),
        nodes=int(decision.nodes[q]),
    )


def _first_nodes(problem: TwinProblem, method: str, budget: Budget) -> int | None:
    """Boxes a question gets before something else is tried: where neuron branching can take over, not for ever."""
    if method == "bnb" or any(goal.strict for goal in problem.goals):
        return budget.nodes
    return min(FIRST_NODES, budget.nodes or FIRST_NODES)


def _settle_the_rest(
    problem: TwinProblem,
    answers: list[list[Answer]],
    solver: str | None,
    budget: Budget,
    deadline: float,
    group: Integers | None,
) -> list[list[Answer]]:
    """What ran out of boxes (not of time: that is spent): neuron branching, more boxes, and in the end the exact MILP."""

    def left() -> list[tuple[int, int]]:
        refuted = set() if group is None else {group[q] for q, row in enumerate(answers) if _any_violated(row)}
        return [
            (q, g) for q, row in enumerate(answers) for g, answer in enumerate(row)
            if answer.reason is Reason.NODES and (group is None or group[q] not in refuted)
        ]  # fmt: skip

    if any(goal.strict for goal in problem.goals):
        pending = left()
    else:
        for q, g in left():
            if (q, g) in left():  # its group may have been refuted meanwhile
                seconds = (deadline - time.monotonic()) / 2
                answers[q][g] = _by_neurons(problem, q, g, seconds, answers[q][g])
        pending = left()
        questions = np.unique([q for q, _ in pending]).astype(np.int64)
        if len(questions) and (budget.nodes is None or budget.nodes > FIRST_NODES):
            part = replace(problem, batch=problem.batch.take(questions))
            again = None if group is None else group[questions]
            seconds = deadline - time.monotonic()
            more = _answers(part, decide(part, seconds=seconds, max_nodes=budget.nodes, group=again, seed=budget.seed))
            for q, row in zip(questions.tolist(), more, strict=True):
                answers[q] = [new if old.status is Status.UNKNOWN else old for old, new in zip(answers[q], row, strict=True)]
            pending = left()
    if pending:
        twin = Twin.of(problem)
        for q, g in pending:
            answers[q][g] = _ask(twin, q, g, "milp", solver, _left(budget, deadline), answers[q][g])
    return answers


def _any_violated(row: list[Answer]) -> bool:
    return any(answer.status is Status.VIOLATED for answer in row)


def _by_neurons(problem: TwinProblem, q: int, g: int, seconds: float, known: Answer) -> Answer:
    """One goal by neuron branching; what is known stays when that brings nothing."""
    found = decide_by_phases(problem, q, g, seconds=max(seconds, 1e-3), max_nodes=PHASE_NODES)
    known = replace(known, nodes=known.nodes + found.nodes)
    if found.status is Status.UNKNOWN:
        return known
    margins = None if found.margins is None else (float(found.margins[0]), float(found.margins[1]))
    return replace(
        known, status=found.status, reason=None, tree=found.tree, witness=found.witness, margins=margins, engine="neuron-branching"
    )


def _by_solver(problem: TwinProblem, method: str, solver: str | None, budget: Budget) -> list[list[Answer]]:
    twin, deadline = Twin.of(problem), time.monotonic() + budget.seconds
    return [
        [_ask(twin, q, g, method, solver, _left(budget, deadline), None) for g in range(len(problem.goals))]
        for q in range(len(problem.batch))
    ]


def _left(budget: Budget, deadline: float) -> Budget:
    """The same budget with the seconds that are left; a solver needs a positive number."""
    return replace(budget, seconds=max(deadline - time.monotonic(), 1e-3))


def _ask(twin: Twin, q: int, g: int, method: str, solver: str | None, budget: Budget, before: Answer | None) -> Answer:
    """One goal by LP, MILP or SMT: all its rows in one program. A point at which no row holds and yet the gap is small enough
    calls for another line of the curve, MAX_LINES times at most."""
    blank = Answer(
        status=Status.UNKNOWN, reason=Reason.SOLVER_ERROR, lower=-np.inf, upper=np.inf, tree=None, witness=None, margins=None,
        agrees=None, engine=method, outcomes=(), nodes=0,
    )  # fmt: skip
    goal = twin.problem.goals[g]
    current = before or blank
    deadline = time.monotonic() + budget.seconds
    box = TwinBox.of(twin, q, method=Method.INTERVAL if method == "lp" else Method.LINEAR)
    match method:
        case "milp":  # difference rows pay where both copies count at once
            encoding = big_m(box, difference=goal.gap is not None)
        case "lp":
            encoding = triangle(box)
        case _:
            encoding = smt(box)
    backend = solver or ("z3" if method == "smt" else "highs")
    for _ in range(MAX_LINES):
        program = violated(encoding, goal) if method == "smt" else encoding.worst(goal)
        outcome = registry.solve(program, backend=backend, budget=_left(budget, deadline))
        if len(goal.rows) == 1 and method != "smt" and _scale(program) <= LARGEST_SCALE:
            _compare(twin.problem, q, goal.rows[0], outcome, current)
        current = _judge(twin.problem, q, g, method, outcome, encoding, program, current)
        if current.reason is not Reason.WITNESS_REJECTED or outcome.values is None:
            break
        _, margins = exact_goals(twin.problem, np.array([q]), encoding.decode(outcome.values))
        further = refined(goal, margins[0])
        if further is None:
            break
        goal = further
    return current


def _compare(problem: TwinProblem, q: int, row: Array, outcome: Outcome, known: Answer) -> None:
    """Raise Disagreement when a solver's bounds exclude what the engine has proved or met; 1e-4 is far beyond its tolerance."""
    slack = 1e-4 * (1 + abs(known.upper)) if np.isfinite(known.upper) else np.inf
    too_high = outcome.dual_bound is not None and outcome.dual_bound > known.upper + slack
    # A point within a solver's tolerance of feasible may lie a little below the true minimum, never a lot.
    too_low = outcome.primal_bound is not None and outcome.values is not None and outcome.primal_bound < known.lower - slack
    if too_high or too_low:
        claimed = f"minimum within [{outcome.dual_bound}, {outcome.primal_bound}]"
        met = f"minimum within [{known.lower}, {known.upper}]"
        raise disagree(problem, q, row, {f"{outcome.backend} {outcome.version}": claimed, "branch-and-bound": met})


def _judge(
    problem: TwinProblem,
    q: int,
    g: int,
    method: str,
    outcome: Outcome,
    encoding: Encoding,
    program: Program,
    current: Answer,
) -> Answer:
    """From a solver's outcome to an answer: claims above its tolerance are CLAIMED proofs, points count once confirmed."""
    current = replace(current, engine=f"{method}:{outcome.backend}", outcomes=(*current.outcomes, outcome))
    if outcome.values is not None:
        point = encoding.decode(outcome.values)[0]
        met, margins = exact_goals(problem, np.array([q]), point[None, :])
        second = problem.batch.take([q]).second(point[None, :])
        if problem.domain.legal(point[None, :])[0] and problem.domain.legal(second)[0] and not met[0, g]:
            value = float((problem.goals[g].rows @ margins[0] + problem.goals[g].constants).max())
            return replace(
                current, status=Status.VIOLATED, reason=None, witness=point, margins=(float(margins[0, 0]), float(margins[0, 1])),
                upper=min(current.upper, value),
            )  # fmt: skip
    bound = outcome.dual_bound if outcome.dual_bound is not None else -np.inf
    scale = _scale(program)
    if method != "smt" and scale > LARGEST_SCALE:
        return replace(current, status=Status.UNKNOWN, reason=Reason.NUMERICAL)
    status, reason = status_of(
        outcome,
        exact=method == "smt",
        relaxation=method == "lp",
        bound=bound / scale,
        empty=method == "milp" and problem.domain.forbidden is not None,
    )
    return replace(current, status=status, reason=reason, lower=max(current.lower, bound))


def _scale(program: Program) -> float:
    """Tolerances are absolute, so what they can hide grows with the numbers in a program: its largest coefficient or bound."""
    bounds = np.abs(np.concatenate([program.lower, program.upper]))
    return float(max(1.0, np.abs(program.rows.data).max(initial=0.0), bounds[np.isfinite(bounds)].max(initial=0.0)))


def status_of(
    outcome: Outcome, *, exact: bool, relaxation: bool, bound: float, empty: bool = False
) -> tuple[Status, Reason | None]:
    """The one map from why a solver stopped to what that means for  "the objective is positive everywhere".

    exact: the program says "some point fails", in exact arithmetic, so INFEASIBLE proves.   Otherwise the program minimises the
    row, and only a bound (over the program's scale) above the backend's tolerance is a claim.   Witnesses have been dealt with
    before: a point that is still here was not confirmed.   empty: constraints may forbid every row, which proves too.
    """
    match outcome.termination:
        case Termination.INFEASIBLE:
            # A minimisation over a box has a point, unless constraints leave none: else this can only be a numerical accident.
            return (Status.PROVED, None) if exact or empty else (Status.UNKNOWN, Reason.NUMERICAL)
        case Termination.OPTIMAL:
            if not exact and bound > 10 * outcome.tolerance:
                return Status.PROVED, None
            return Status.UNKNOWN, Reason.RELAXATION_TOO_WEAK if relaxation else Reason.WITNESS_REJECTED
        case Termination.SATISFIED:
            return Status.UNKNOWN, Reason.WITNESS_REJECTED
        case Termination.LIMIT:
            if not exact and bound > 10 * outcome.tolerance:
                return Status.PROVED, None
            return Status.UNKNOWN, _limit_reason(outcome.limit)
        case Termination.UNBOUNDED | Termination.INFEASIBLE_OR_UNBOUNDED | Termination.NUMERICAL:
            return Status.UNKNOWN, Reason.NUMERICAL
        case Termination.ERROR:
            return Status.UNKNOWN, Reason.SOLVER_ERROR
        case unreachable:
            assert_never(unreachable)


def _limit_reason(limit: Limit | None) -> Reason:
    match limit:
        case Limit.TIME:
            return Reason.TIME
        case Limit.NODES | Limit.ITERATIONS:
            return Reason.NODES
        case Limit.MEMORY:
            return Reason.MEMORY
        case Limit.INTERRUPTED:
            return Reason.INTERRUPTED
        case Limit.OTHER | None:
            return Reason.SOLVER_ERROR
        case unreachable:
            assert_never(unreachable)


def _replayed(problem: TwinProblem, answers: list[list[Answer]]) -> list[list[Answer]]:
    """Replay every witness in float32 onnxruntime, all in one batch, and note whether it shows the violation too."""
    at = [(q, g) for q, row in enumerate(answers) for g, answer in enumerate(row) if answer.witness is not None]
    if problem.network.source is None or not at:
        return answers
    question, goal = np.array(at).T
    raw = np.array([answers[q][g].witness for q, g in at])
    for (q, g), agrees in zip(at, runtime_agrees(problem, question, goal, raw), strict=True):
        answers[q][g] = replace(answers[q][g], agrees=bool(agrees == 1))
    return answers


def runtime_agrees(problem: TwinProblem, question: Integers, goal: Integers, raw: Array) -> npt.NDArray[np.int8]:
    """(W,) 1 where float32 onnxruntime shows that a goal fails at raw points (W, V) too, 0 where not, -1 without a file."""
    if problem.network.source is None or not len(raw):
        return np.full(len(raw), -1, dtype=np.int8)
    x, x_prime = pair(problem, question, raw)
    margins = np.stack([runtime_logits(problem.network, copy.astype(np.float32)) @ problem.margin for copy in (x, x_prime)], axis=1)
    unmet = seems_unmet(problem, margins, np.zeros(len(raw)))
    return unmet[np.arange(len(raw)), goal].astype(np.int8)
