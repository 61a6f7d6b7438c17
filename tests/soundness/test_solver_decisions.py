"""Solvers that decide: thresholds at the edge, the end of the loop over pairs, and how its budget is shared. Real tiny models."""

import time
from dataclasses import replace

import numpy as np
import pytest

from encoders.arrays import Array
from encoders.bounds.twin import Twin
from encoders.domain import Domain
from encoders.problem import Goal, TwinBatch, TwinProblem
from encoders.programs.big_m import big_m
from encoders.programs.twin_box import Method, TwinBox
from solvers import registry
from solvers.outcome import Budget, Limit, Outcome
from solvers.registry import Capability
from tests.builders import network_of, random_network
from verifair.engine import cascade
from verifair.engine.answer import GoalAnswer
from verifair.engine.solver import ask, sufficient
from verifair.engine.verdict import Reason, Status

MILP = [backend.name for backend in registry.available([Capability.MIP])]
GREATER, AT_LEAST = (Goal(rows=np.array([[1.0, 0.0]]), strict=strict) for strict in (True, False))


def problem(weight: list[float], bias: float, goals: tuple[Goal, ...], *, pairs: int = 1, ages: int = 4) -> TwinProblem:
    """g = w . (age, sex) + bias for age 0 ... `ages`; x has sex 0, x' has sex 1."""
    domain = Domain(
        integer=np.array([True, True]), lower=np.zeros(2), upper=np.array([float(ages), 1.0]), offset=np.zeros(2), scale=np.ones(2),
        start=np.array([0, 1]), one_hot=np.array([False, False]), width=np.array([1, 1]),
    )
    batch = TwinBatch(
        lower=np.tile([0.0, 0.0], (pairs, 1)), upper=np.tile([float(ages), 0.0], (pairs, 1)), prime=np.tile([0.0, 1.0], (pairs, 1)),
        protected=np.array([False, True]),
    )
    return TwinProblem(
        network=network_of(([weight], [bias])), domain=domain, batch=batch, margin=np.array([1.0]), goals=goals
    )


def answer(asked: TwinProblem, solver: str, method: str = "milp", seconds: float = 30) -> GoalAnswer:
    return ask(Twin.of(asked), 0, 0, method, solver, Budget(seconds=seconds), None)


@pytest.mark.parametrize("solver", MILP)
@pytest.mark.parametrize("goal", [GREATER, AT_LEAST], ids=["strict", "not strict"])
@pytest.mark.parametrize("bias", [0.0, 1e-9, -1e-9, 1e-4, -1e-4, 0.25, -0.25])
def test_a_minimum_at_the_edge_is_never_claimed_wrongly(solver: str, goal: Goal, bias: float) -> None:
    """The minimum of age + bias is the bias itself, as a float32 number, exactly 0 among others."""
    asked = problem([1.0, 0.0], float(np.float32(bias)), (goal,))
    least = float(np.float32(bias))
    found = answer(asked, solver)
    violated = least <= 0 if goal.strict else least < 0
    assert found.status is not (Status.PROVED if violated else Status.VIOLATED)
    if violated and least in (0.0, -0.25):  # nothing rounds, and the point is exact
        assert found.status is Status.VIOLATED
    if least == 0.25:
        assert found.status is Status.PROVED
    if 0 <= least < 1e-6:
        assert found.status is not Status.PROVED  # not beyond any tolerance


@pytest.mark.parametrize("solver", MILP)
def test_a_minimum_at_the_threshold_of_a_claim(solver: str) -> None:
    """Exactly at what suffices, a little below and well above; the program's scale is its largest coefficient or bound."""
    backend = registry.get(solver)
    asked = problem([1.0, 0.0], 1.0, (GREATER,))
    program = big_m(TwinBox.of(Twin.of(asked), 0, method=Method.LINEAR)).worst(GREATER)
    scale = max(1.0, float(np.abs(program.rows.data).max(initial=0.0)), float(program.upper.max()))
    edge = sufficient(backend.tolerance) * scale
    for factor, expected in ((0.5, Status.UNKNOWN), (1.0, None), (4.0, Status.PROVED)):
        found = answer(problem([1.0, 0.0], float(np.float32(factor * edge)), (GREATER,)), solver)
        assert found.status is not Status.VIOLATED
        if expected is not None:
            assert found.status is expected, (factor, found.outcomes)


@pytest.mark.parametrize("solver", MILP)
def test_the_first_violation_ends_the_search(solver: str) -> None:
    """One point below 0 is enough, however much lower the minimum is; bounds are never beyond what is met."""
    rng = np.random.default_rng(5)
    network = random_network(rng, (3, 12, 12, 1))
    domain = Domain(
        integer=np.ones(3, dtype=bool), lower=np.zeros(3), upper=np.array([20.0, 20.0, 1.0]), offset=np.zeros(3),
        scale=np.array([20.0, 20.0, 1.0]), start=np.arange(3), one_hot=np.zeros(3, dtype=bool), width=np.ones(3, dtype=np.int64),
    )
    batch = TwinBatch(
        lower=np.zeros((1, 3)), upper=np.array([[20.0, 20.0, 0.0]]), prime=np.array([[0.0, 0.0, 1.0]]),
        protected=np.array([False, False, True]),
    )
    for goal in (Goal(rows=np.array([[1.0, -1.0]]), strict=True), Goal(rows=np.array([[-1.0, 1.0]]), strict=True)):
        asked = TwinProblem(network=network, domain=domain, batch=batch, margin=np.array([1.0]), goals=(goal,))
        found = answer(asked, solver, seconds=1 if solver == "z3" else 30)  # z3 takes all the time there is
        truth = cascade.solve(asked, method="bnb")[0][0]
        assert found.status in (truth.status, Status.UNKNOWN)
        assert found.status is not Status.UNKNOWN or solver == "z3"
        last: Outcome = found.outcomes[-1]
        stops = {Capability.STOP_BELOW, Capability.STOP_ABOVE} <= registry.get(solver).capabilities
        if last.limit is Limit.DECIDED:
            assert stops
            assert found.status in (Status.PROVED, Status.VIOLATED)


@pytest.mark.parametrize(("method", "solver"), [("milp", "highs"), ("milp", "cbc"), ("smt", "z3"), ("lp", "highs")])
def test_the_first_refutation_ends_the_loop_over_pairs(method: str, solver: str) -> None:
    if not registry.get(solver).is_available():
        pytest.skip(f"{solver} is not installed")
    asked = problem([1.0, 0.0], -2.0, (GREATER, GREATER), pairs=3)  # age - 2 > 0 fails at once, in every pair
    group = np.array([0, 0, 1])
    answers = cascade.solve(asked, method=method, solver=solver, group=group)
    assert [row[0].status for row in answers] == [Status.VIOLATED, Status.UNKNOWN, Status.VIOLATED]
    for q, row in enumerate(answers):
        moot = row[1:] if q != 1 else row
        assert all((one.reason, one.outcomes, one.status) == (Reason.MOOT, (), Status.UNKNOWN) for one in moot)
    alone = cascade.solve(asked, method=method, solver=solver)  # without groups each stands for itself
    assert all(one.status is Status.VIOLATED for row in alone for one in row)


def test_branch_and_bound_calls_what_is_moot_by_the_same_name() -> None:
    asked = problem([1.0, 0.0], -2.0, (GREATER, GREATER), pairs=2)
    answers = cascade.solve(asked, method="bnb", group=np.zeros(2, dtype=np.int64))
    flat = [one for row in answers for one in row]
    assert sum(one.status is Status.VIOLATED for one in flat) >= 1
    assert all(one.reason is Reason.MOOT for one in flat if one.status is Status.UNKNOWN)


def hard(rng: np.random.Generator) -> TwinProblem:
    """A question that no MILP decides in seconds, before two that are single points."""
    network = random_network(rng, (7, 40, 40, 40, 1))
    domain = Domain(
        integer=np.ones(7, dtype=bool), lower=np.zeros(7), upper=np.full(7, 20.0), offset=np.full(7, 10.0), scale=np.full(7, 10.0),
        start=np.arange(7), one_hot=np.zeros(7, dtype=bool), width=np.ones(7, dtype=np.int64),
    )
    lower, upper = np.zeros((3, 7)), np.zeros((3, 7))
    upper[0, :6] = 20.0
    prime = lower.copy()
    prime[:, 6] = 20.0
    batch = TwinBatch(lower=lower, upper=upper, prime=prime, protected=np.arange(7) == 6)
    asked = TwinProblem(network=network, domain=domain, batch=batch, margin=np.array([1.0]), goals=(AT_LEAST,))
    least = float(np.min([network.forward(domain.encode(_row(rng)))[0, 0] for _ in range(4000)]))
    goal = Goal(rows=np.array([[1.0, 0.0]]), strict=False, constant=np.array([-least * 1.5 if least < 0 else 1.0]))
    return replace(asked, goals=(goal,))


def _row(rng: np.random.Generator) -> Array:
    return np.floor(rng.uniform(0, 21, (1, 7)))


def test_the_first_pair_does_not_eat_the_whole_budget() -> None:
    asked = hard(np.random.default_rng(0))
    started = time.monotonic()
    answers = cascade.solve(asked, method="milp", solver="highs", budget=Budget(seconds=3.0))
    took = time.monotonic() - started
    assert took < 15
    assert (answers[0][0].status, answers[0][0].reason) == (Status.UNKNOWN, Reason.TIME)
    assert all(answers[q][0].status is not Status.UNKNOWN for q in (1, 2))
    first, *others = (row[0].outcomes[0].solve_seconds + row[0].outcomes[0].build_seconds for row in answers)
    assert first < 2.5  # a third of three seconds, and again what the others left
    assert sum(others) < 1


def test_what_is_left_at_the_end_goes_to_who_ran_out_of_time() -> None:
    asked = hard(np.random.default_rng(0))
    answers = cascade.solve(asked, method="milp", solver="highs", budget=Budget(seconds=4.0))
    last = answers[0][0].outcomes[-1]
    assert answers[0][0].reason is Reason.TIME
    assert last.solve_seconds + last.build_seconds > 1.6  # more than its third of four seconds
