"""The edges: values of exactly 0, limits that stop a run, and solvers that contradict what is known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encoders.problem import Domain, Goal, TwinBatch, TwinProblem
from solvers.outcome import Budget, Limit, Outcome, Termination
from tests.builders import network_of
from verifair.engine import cascade as engine
from verifair.engine import solver as by_solver
from verifair.engine.search.branch_and_bound import decide
from verifair.engine.search.open_goals import OPEN
from verifair.engine.verdict import Reason, Status
from verifair.errors import Disagreement

from .random_twins import FLIP, PBA, STYLES, random_problem


def linear_problem(weights: list[float], goals: tuple[Goal, ...]) -> TwinProblem:
    """g = w . (age, sex) for age 0 ... 4; x has sex 0, x' has sex 1."""
    domain = Domain(
        integer=np.array([True, True]), lower=np.zeros(2), upper=np.array([4.0, 1.0]), offset=np.zeros(2), scale=np.ones(2),
        start=np.array([0, 1]), one_hot=np.array([False, False]), width=np.array([1, 1]),
    )  # fmt: skip
    network = network_of(([weights], None))
    batch = TwinBatch(
        lower=np.array([[0.0, 0.0]]), upper=np.array([[4.0, 0.0]]), prime=np.array([[0.0, 1.0]]), protected=np.array([False, True])
    )
    return TwinProblem(network=network, domain=domain, batch=batch, margin=np.array([1.0]), goals=goals)


def statuses(problem: TwinProblem) -> list[Status]:
    return [answer.status for answer in engine.solve(problem)[0]]


def test_a_difference_of_exactly_zero_is_not_positive() -> None:
    assert statuses(linear_problem([1.0, 0.0], PBA)) == [Status.VIOLATED, Status.VIOLATED]


def test_a_difference_that_is_barely_positive_is_proved() -> None:
    tiny = float(np.float32(1e-30))
    assert statuses(linear_problem([1.0, -tiny], PBA)) == [Status.PROVED, Status.VIOLATED]


def test_a_margin_of_exactly_zero_is_no_flip() -> None:
    """g(x) = age - 2 is negative, zero and positive; g(x') = age - 2 as well; then x' a little lower: only zeros are touched."""
    assert statuses(linear_problem([1.0, 0.0], FLIP)) == [Status.PROVED, Status.PROVED]
    assert statuses(linear_problem([0.0, -1.0], FLIP)) == [Status.PROVED, Status.PROVED]  # 0 against -1


@pytest.mark.parametrize(("strict", "expected"), [(False, Status.PROVED), (True, Status.VIOLATED)])
def test_ties_of_a_robust_decision_go_to_the_smaller_class(strict: bool, expected: Status) -> None:
    assert statuses(linear_problem([1.0, 0.0], (Goal(rows=np.array([[1.0, 0.0]]), strict=strict),))) == [expected]


@pytest.mark.parametrize("style", STYLES)
def test_limits_leave_unknown_and_never_more(style: str) -> None:
    for seed in range(20):
        problem = random_problem(seed, style, PBA)
        full = decide(problem)
        for stopped in (decide(problem, seconds=0.0), decide(problem, max_nodes=1)):
            known = stopped.status != OPEN
            assert (stopped.status[known] == full.status[known]).all()
            assert (stopped.out_of[(~known).any(axis=1)] != "").all()
    assert (decide(problem, seconds=0.0).status == OPEN).all()


def outcome(termination: Termination, limit: Limit | None = None, low: float | None = None, high: float | None = None) -> Outcome:
    return Outcome(
        termination=termination, limit=limit, values=None if high is None else np.zeros(1), primal_bound=high, dual_bound=low,
        duals=None, ray=None, backend="fake", version="0", tolerance=1e-6, build_seconds=0.0, solve_seconds=0.0, nodes=None,
    )  # fmt: skip


@pytest.mark.parametrize("termination", Termination)
@pytest.mark.parametrize("limit", [None, *Limit])
def test_no_termination_without_a_bound_is_a_proof(termination: Termination, limit: Limit | None) -> None:
    for relaxation in (False, True):
        status, reason = by_solver.status_of(outcome(termination, limit), exact=False, relaxation=relaxation, bound=-np.inf)
        assert status is Status.UNKNOWN
        assert isinstance(reason, Reason)
    exact, _ = by_solver.status_of(outcome(termination, limit), exact=True, relaxation=False, bound=np.inf)
    assert exact is (Status.PROVED if termination is Termination.INFEASIBLE else Status.UNKNOWN)


def test_a_bound_within_tolerance_is_no_claim() -> None:
    for bound, expected in ((1e-6, Status.UNKNOWN), (9e-6, Status.UNKNOWN), (1e-4, Status.PROVED)):
        assert by_solver.status_of(outcome(Termination.OPTIMAL), exact=False, relaxation=False, bound=bound)[0] is expected


@pytest.mark.parametrize(("low", "high"), [(5.0, 5.0), (-9.0, -9.0)])
def test_a_contradiction_is_saved_and_raised(
    low: float, high: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    problem = linear_problem([1.0, -1.0], PBA[:1])
    (known,), = engine.solve(problem, method="bnb")
    known = replace(known, lower=0.5, upper=1.0)
    with pytest.raises(Disagreement, match="fake 0"):
        by_solver.compare(problem, 0, problem.rows[0], outcome(Termination.OPTIMAL, low=low, high=high), known)
    (saved,) = tmp_path.glob("disagreement-*.json")
    assert json.loads(saved.read_text())["row"] == [1.0, -1.0]
    by_solver.compare(problem, 0, problem.rows[0], outcome(Termination.OPTIMAL, low=1.0, high=1.0), known)


def test_leftovers_of_a_node_limit_go_to_the_milp() -> None:
    for seed in range(40):
        problem = random_problem(seed, "plain", PBA)
        limited = engine.solve(problem, budget=Budget(seconds=60, nodes=1))
        whole = engine.solve(problem)
        for a, b in zip(limited, whole, strict=True):
            for ours, full in zip(a, b, strict=True):
                assert ours.status in (full.status, Status.UNKNOWN)
