"""The cascade that decides fairness questions: bounds, branch and bound on inputs and neurons, then MILP or SMT.

Reads top to bottom. Every answer obeys the verdict rules: VIOLATED only by exact evaluation of a legal point, PROVED only with a
tree that `check` re-proves (CHECKED) or a solver's claim that is marked as one (CLAIMED), and everything else UNKNOWN with its
reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np

from encoders.arrays import Integers
from encoders.bounds.twin import Twin
from encoders.model import Model
from encoders.problem import TwinProblem
from solvers import clock, registry
from solvers.outcome import Budget
from verifair.engine.answer import GoalAnswer, replayed
from verifair.engine.search.branch_and_bound import begin, decide, ready_at_once
from verifair.engine.search.open_goals import OPEN, PROVED, SHORT, VIOLATED, BatchDecision
from verifair.engine.search.signs import turns
from verifair.engine.search.signs.neurons import NeuronSearch
from verifair.engine.solver import ask, copies_of
from verifair.engine.verdict import Reason, Status
from verifair.errors import QueryError

PROGRAMS = ("lp", "milp", "smt")
METHODS = ("auto", "bnb", *PROGRAMS)
"""auto: the cascade.   bnb: branch-and-bound only.   lp: one triangle LP a query, the paper's.   milp, smt: a solver alone."""

TOO_LATE = 2e-3
"""Seconds that are too few to decide anything: even preparing a batch takes longer."""
STATUS = {OPEN: Status.UNKNOWN, PROVED: Status.PROVED, VIOLATED: Status.VIOLATED, SHORT: Status.UNKNOWN}
PHASE_NODES = 2000
"""The most regions of neuron branching for one goal."""


def solve(
    problem: TwinProblem, *, method: str = "auto", solver: str | None = None, budget: Budget | None = None,
    group: Integers | None = None, progress: Callable[[int], None] | None = None,
) -> list[list[GoalAnswer]]:
    """Return answers [question][goal] of a batch. budget.seconds is for the whole batch, budget.nodes for each question.

    group: (Q,) numbers of groups: once a question of a group is violated, the others are moot (see `branch_and_bound.decide`).
    Networks with smooth layers are decided by branch-and-bound alone, tree ensembles by MILP and SMT as well. Raises CurveError or
    ModelError for any other method.
    Sound? yes; a proof that rests on a solver alone is marked CLAIMED.  Complete? as `engine.verify.verify` says for each method.
    """
    check_method(problem.network, method, solver)
    budget = budget or Budget()
    if group is not None or method not in ("auto", "bnb"):
        return _solved(problem, method, solver, budget, group, progress)
    deadline, answers = clock.now() + budget.seconds, list[list[GoalAnswer]]()
    while len(answers) < len(problem.batch):
        left = max(deadline - clock.now(), TOO_LATE)
        count = ready_at_once(problem.network, left) if left > TOO_LATE else len(problem.batch)
        part = replace(problem, batch=problem.batch.take(np.arange(len(problem.batch))[len(answers) :][:count]))
        answers += _solved(part, method, solver, replace(budget, seconds=left), None, progress)
    return answers


def _solved(
    problem: TwinProblem, method: str, solver: str | None, budget: Budget, group: Integers | None,
    progress: Callable[[int], None] | None,
) -> list[list[GoalAnswer]]:
    """Do the same for all questions at once."""
    if budget.seconds <= TOO_LATE:
        return [[GoalAnswer.blank(method, Reason.TIME)] * len(problem.goals) for _ in range(len(problem.batch))]
    deadline = clock.now() + budget.seconds
    match method:
        case "auto" if "lp" in problem.network.programs:
            answers = _by_turns(problem, budget, deadline, group, progress)
            _ask_milp(problem, answers, solver, budget, deadline, group)
        case "auto" | "bnb":
            answers = _answers(problem, decide(
                problem, seconds=budget.seconds, max_nodes=budget.nodes, group=group, seed=budget.seed, progress=progress
            ))
        case _:
            twin = copies_of(problem)
            answers = [[GoalAnswer.blank(method, Reason.MOOT)] * len(problem.goals) for _ in range(len(problem.batch))]
            pairs = list(product(range(len(problem.batch)), range(len(problem.goals))))

            def alone(q: int, g: int, seconds: float) -> GoalAnswer:
                return ask(twin, q, g, method, solver, replace(budget, seconds=seconds), None)

            _share_out(answers, pairs, alone, deadline, group)
    return replayed(problem, answers)


def check_method(network: Model, method: str, solver: str | None) -> None:
    """Raise QueryError, BackendError or CurveError for an unknown method or solver, or one that does not work for this network;
    also if the method asks no solver."""
    if method not in METHODS:
        raise QueryError(f"method {method!r} is unknown; choose one of {', '.join(METHODS)}")
    if solver is not None:
        registry.get(solver)
        if method == "bnb":
            raise QueryError(f"solver = {solver}: bnb asks no solver; drop it, or choose auto, lp, milp or smt")
    asked = "lp" if solver is not None and method == "auto" else method
    if asked in PROGRAMS and asked not in network.programs:
        network.require_piecewise_linear(f"method {method} with solver {solver}" if solver else f"method {method}")


def _answers(problem: TwinProblem, decision: BatchDecision) -> list[list[GoalAnswer]]:
    return [[_answer(decision, q, g) for g in range(len(problem.goals))] for q in range(len(problem.batch))]


def _answer(decision: BatchDecision, q: int, g: int) -> GoalAnswer:
    status = int(decision.status[q, g])
    violated = status == VIOLATED
    return GoalAnswer(
        status=STATUS[status],
        reason=_open_for(decision, q) if status == OPEN else Reason.FLOAT32 if status == SHORT else None,
        lower=float(decision.lower[q, g]), upper=float(decision.upper[q, g]),
        tree=decision.trees.tree(q, g) if status == PROVED else None, witness=decision.witness[q, g] if violated else None,
        margins=(float(decision.margins[q, g, 0]), float(decision.margins[q, g, 1])) if violated else None, agrees=None,
        engine="branch-and-bound", outcomes=(), nodes=int(decision.nodes[q]),
        float32=status == PROVED and bool(decision.float32[q, g]), margin=decision.margin(q, g) if status == PROVED else None,
    )


def _open_for(decision: BatchDecision, q: int) -> Reason:
    """Return why a goal of a question was left open."""
    if decision.out_of[q] == "" and decision.refuted[decision.group[q]]:
        return Reason.MOOT
    return {"time": Reason.TIME, "nodes": Reason.NODES}.get(decision.out_of[q], Reason.NUMERICAL)


def _by_turns(
    problem: TwinProblem, budget: Budget, deadline: float, group: Integers | None, progress: Callable[[int], None] | None
) -> list[list[GoalAnswer]]:
    """Decide by boxes and by signs of neurons in turns (see `turns`)."""
    network, max_nodes = problem.network.layered("neuron branching"), np.inf if budget.nodes is None else budget.nodes
    limit = min(turns.FIRST, max_nodes)
    search = begin(
        problem, network, seconds=budget.seconds, max_nodes=int(limit), group=group, seed=budget.seed, progress=progress
    )
    answers, previous = _answers(problem, search.goals), np.ones(len(problem.batch))
    searches, cost = dict[tuple[int, int], NeuronSearch](), dict[int, float]()
    while limit < max_nodes and (pending := _out_of_nodes(answers, group)):
        shares = search.open_shares()
        for q, g in pending:
            if not turns.stalled(previous[q], shares[q]) or (q, g) not in _out_of_nodes(answers, group):
                continue
            cost[q] = cost[q] if q in cost else turns.seconds_a_program(problem, q)
            programs = searches[q, g].programs if (q, g) in searches else turns.TRIAL
            if turns.affordable(problem, programs * cost[q], int(limit)):
                if (q, g) not in searches:
                    searches[q, g] = NeuronSearch.of(problem, q, g, PHASE_NODES, turns.Shrinking())
                answers[q][g] = _by_neurons(searches[q, g], (deadline - clock.now()) / 2, answers[q][g])
        previous, limit = shares, min(turns.AGAIN * limit, max_nodes)
        selected = np.zeros((len(problem.batch), len(problem.goals)), dtype=bool)
        left = _out_of_nodes(answers, group)
        for q, g in left:
            selected[q, g] = True
        search.go_on(selected, int(limit))
        for q, g in left:
            answers[q][g] = _answer(search.goals, q, g)
    return answers


def _out_of_nodes(answers: list[list[GoalAnswer]], group: Integers | None) -> list[tuple[int, int]]:
    """Return the goals that ran out of nodes, of groups that no violation has decided."""
    refuted = set() if group is None else _refuted(answers, group)
    return [
        (q, g) for q, row in enumerate(answers) for g, answer in enumerate(row)
        if answer.reason is Reason.NODES and (group is None or group[q] not in refuted)
    ]


def _ask_milp(
    problem: TwinProblem, answers: list[list[GoalAnswer]], solver: str | None, budget: Budget, deadline: float,
    group: Integers | None,
) -> None:
    """Ask the exact MILP about goals that ran out of boxes (if they ran out of time, none is left)."""
    pending = _out_of_nodes(answers, group)
    if pending and not problem.float32:  # a solver's claim says nothing of float32
        twin = Twin.of(problem)

        def exactly(q: int, g: int, seconds: float) -> GoalAnswer:
            return ask(twin, q, g, "milp", solver, replace(budget, seconds=seconds), answers[q][g])

        _share_out(answers, pending, exactly, deadline, group)


def _share_out(
    answers: list[list[GoalAnswer]], pending: list[tuple[int, int]], decide_one: Callable[[int, int, float], GoalAnswer],
    deadline: float, group: Integers | None,
) -> None:
    """Decide the pending goals one after the other, until a violation has decided their group.

    Each gets an equal share of the seconds that are left; time that it does not need goes to the next ones. Goals that ran out of
    time are asked once more if each can get at least half as much again, as a solver starts from the beginning.
    """
    longest, interrupted = 0.0, False
    while pending and not interrupted and (deadline - clock.now()) / len(pending) >= 1.5 * longest:
        retry: list[tuple[int, int]] = []
        for k, (q, g) in enumerate(pending):
            if group is not None and group[q] in _refuted(answers, group):
                continue
            seconds = (deadline - clock.now()) / (len(pending) - k)
            if interrupted or seconds <= 0:
                answers[q][g] = replace(answers[q][g], reason=Reason.INTERRUPTED if interrupted else Reason.TIME)
                continue
            answers[q][g] = decide_one(q, g, seconds)
            interrupted = answers[q][g].reason is Reason.INTERRUPTED  # the solver got a Ctrl-C meant for the whole run
            if answers[q][g].reason is Reason.TIME:
                retry.append((q, g))
                longest = max(longest, seconds)
        pending = retry


def _refuted(answers: list[list[GoalAnswer]], group: Integers) -> set[int]:
    """Return the groups that a violation has decided."""
    return {int(group[q]) for q, row in enumerate(answers) if any(answer.status is Status.VIOLATED for answer in row)}


def _by_neurons(search: NeuronSearch, seconds: float, prior: GoalAnswer) -> GoalAnswer:
    """Give neuron branching a turn; return its answer if it decides the goal, else the known one."""
    previous = search.nodes
    found = search.run(max(seconds, 1e-3))
    prior = replace(prior, nodes=prior.nodes + found.nodes - previous)
    if found.status is Status.UNKNOWN:
        return prior
    margins = None if found.margins is None else (float(found.margins[0]), float(found.margins[1]))
    return replace(
        prior, status=found.status, reason=None, tree=found.tree, witness=found.witness, margins=margins, engine="neuron-branching",
        float32=found.float32,
    )
