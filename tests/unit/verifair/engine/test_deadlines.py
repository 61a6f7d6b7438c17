"""A limit of one second on a network whose questions no second settles: searches end soon after it, on a busy machine too."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import verifair as vf
from encoders.bounds.twin import Twin
from encoders.problem import TwinProblem
from solvers import registry
from solvers.program import Program
from tests.builders import integer, random_network, schema_of
from verifair.bench.cases import chosen
from verifair.bench.questions import DecisionQuestion
from verifair.engine import cascade, solver
from verifair.engine.cascade import solve
from verifair.engine.gap.maximise import maximise
from verifair.engine.queries import ProbabilityGap
from verifair.engine.questions import goals_of, questions_of, twin_problem
from verifair.engine.search import branch_and_bound
from verifair.engine.search.box_search import Limits
from verifair.engine.search.branch_and_bound import LayeredSearch, search_of
from verifair.engine.search.open_goals import OPEN
from verifair.engine.search.standard import Progress
from verifair.engine.search.subdivision import Objects, Open, subdivide

LIMIT, MOST = vf.Budget(seconds=1.0), 5.0
"""What is asked for, and the most seconds a search may take: what is measured on an idle machine stands in PERFORMANCE.md."""
PEOPLE = schema_of(integer("group", 0, 15), *(integer(f"x{k}", -100, 100) for k in range(40)))
WIDE = random_network(np.random.default_rng(0), (41, 500, 500, 500, 1))
QUERY = vf.IndividualFairness(model=WIDE, schema=PEOPLE, protected=["group"])


@pytest.fixture(autouse=True)
def in_time() -> object:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < MOST


def test_verify() -> None:
    found = vf.verify(vf.IndividualFairness(model=WIDE, schema=PEOPLE, protected=["group"], epsilon=0.9), budget=LIMIT)
    assert found.reason is vf.Reason.TIME


def test_maximise() -> None:
    assert maximise(ProbabilityGap(model=WIDE, schema=PEOPLE, protected=["group"]), budget=LIMIT).reason is vf.Reason.TIME


def test_kmax() -> None:
    query = vf.KDiscrimination(model=WIDE, schema=PEOPLE, protected=["group"], buckets=1000)
    found = vf.verify(query, budget=LIMIT)
    assert found.lower <= found.upper


def test_a_slow_batch_of_few_boxes_does_not_foretell_a_slow_search() -> None:
    """A search once ended after 0.3 of 10 seconds, for two boxes with little work had taken as long as any batch."""
    problem = twin_problem(QUERY, questions_of(QUERY)[1], goals_of(QUERY))
    progress = Progress(Twin.of(problem), 1)
    progress.note(100, 10 * progress.most, 0.2)
    before = progress.seconds(100)
    progress.note(2, progress.most // 10_000, 0.01)
    assert progress.seconds(100) < 1.1 * before


@pytest.mark.parametrize("method", ["lp", "milp", "smt"])
def test_a_program_that_takes_longer_to_build_is_not_begun(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = twin_problem(QUERY, questions_of(QUERY)[1], goals_of(QUERY))
    problem = replace(problem, batch=problem.batch.take(np.arange(1)))
    monkeypatch.setattr(solver.TwinBox, "of", None)  # whoever builds a program needs it
    seconds = 0.9 * solver.BUILDING[method] * WIDE.work
    (answers,) = solve(problem, method=method, budget=vf.Budget(seconds=seconds))
    assert {(answer.status, answer.reason, answer.outcomes) for answer in answers} == {(vf.Status.UNKNOWN, vf.Reason.TIME, ())}


def test_highs_is_not_begun_where_it_would_not_look_at_the_clock_in_time() -> None:
    found = vf.verify(QUERY, budget=vf.Budget(seconds=3.0), method="milp")
    assert (found.status, found.reason) == (vf.Status.UNKNOWN, vf.Reason.TIME)


def test_boxes_whose_bounds_take_longer_than_is_left_are_not_begun() -> None:
    problem = twin_problem(QUERY, questions_of(QUERY)[1], goals_of(QUERY))
    problem = replace(problem, batch=problem.batch.take(np.arange(4)))
    search = search_of(problem, Limits(deadline=time.monotonic() + 3600, max_nodes=None, group=None))
    assert isinstance(search, LayeredSearch)
    search.progress.spent = 3600.0  # an hour a box
    search.start(np.random.default_rng(0))
    subdivide(search.open, search.step, ended=search.late, deadline=search.deadline)
    left = search.goals.status == OPEN
    assert left.any()
    assert (search.goals.out_of[left.any(axis=1)] == "time").all()
    assert search.goals.nodes.max() == 1  # nothing was cut


def test_a_batch_that_comes_too_late_is_not_begun() -> None:
    problem = twin_problem(QUERY, questions_of(QUERY)[1], goals_of(QUERY))
    answers = solve(problem, budget=vf.Budget(seconds=1e-3))
    assert len(answers) == len(problem.batch)
    assert {(answer.reason, answer.nodes) for row in answers for answer in row} == {(vf.Reason.TIME, 0)}


def test_questions_are_made_ready_as_many_at_a_time_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = twin_problem(QUERY, questions_of(QUERY)[1], goals_of(QUERY))
    made, whole = list[int](), cascade.begin

    def begin(part: TwinProblem, *given: Any, **named: Any) -> LayeredSearch:
        made.append(len(part.batch))
        return whole(part, *given, **named)

    monkeypatch.setattr(cascade, "begin", begin)
    seconds = 10 * 2 * branch_and_bound.READY_A_WEIGHT * WIDE.work  # for ten questions
    answers = solve(problem, budget=vf.Budget(seconds=seconds))
    assert len(answers) == len(problem.batch) > 10
    assert made
    assert max(made) <= 10
    assert {answer.status for row in answers for answer in row} <= {vf.Status.UNKNOWN, vf.Status.VIOLATED, vf.Status.PROVED}


def test_a_question_has_its_own_answer_however_many_are_made_ready_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    small = random_network(np.random.default_rng(3), (4, 6, 1))
    people = schema_of(integer("group", 0, 4), *(integer(f"x{k}", -2, 2) for k in range(3)))
    query = vf.IndividualFairness(model=small, schema=people, protected=["group"])
    problem = twin_problem(query, questions_of(query)[1], goals_of(query))
    together = [[answer.status for answer in row] for row in solve(problem)]
    monkeypatch.setattr(cascade, "ready_at_once", lambda network, seconds: 3)
    assert [[answer.status for answer in row] for row in solve(problem)] == together
    assert len({status for row in together for status in row}) == 2, "both answers occur"


def test_a_step_is_as_large_as_the_last_one_told() -> None:
    taken, open_ = list[int](), Open[Objects](100)
    open_.add(Objects.of(list(range(40))))
    cost = subdivide(open_, lambda part: time.sleep(0.002 * len(part)), ended=lambda: False)
    assert cost >= 0.002
    open_.add(Objects.of(list(range(100))))
    taken.clear()
    subdivide(open_, lambda part: taken.append(len(part)), ended=lambda: bool(taken), deadline=time.monotonic() + 0.02, cost=cost)
    assert taken[0] <= 5


@pytest.mark.parametrize(("method", "backend"), [("milp", "highs"), ("milp", "scip"), ("smt", "z3")])
def test_a_program_of_trees_that_no_backend_loads_in_time_is_not_solved(
    method: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (case,) = chosen(["random-trees/64-0"], 0)
    asked = case.question()
    assert isinstance(asked, DecisionQuestion)
    solved: list[Program] = []
    known = registry.get(backend)
    monkeypatch.setattr(solver.registry, "get", lambda _: replace(known, run=lambda program, **_: solved.append(program)))
    answer = solver.ask(solver.copies_of(asked.problem), 0, 0, method, backend, vf.Budget(seconds=0.005), None)
    assert (answer.status, answer.reason, solved) == (vf.Status.UNKNOWN, vf.Reason.TIME, [])
