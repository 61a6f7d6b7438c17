"""Boxes and signs of neurons in turns: whatever either closes, and wherever it goes on, verdicts are those of brute force."""

from dataclasses import replace

import numpy as np
import pytest

from encoders.problem import Goal, TwinProblem
from solvers.outcome import Budget
from tests.builders import claim_of, tree_flaw
from tests.draws import draws
from tests.soundness.random_twins import STYLES, brute_force, random_problem, truth
from verifair.engine import cascade
from verifair.engine.answer import GoalAnswer
from verifair.engine.search.branch_and_bound import begin, decide
from verifair.engine.search.signs import turns
from verifair.engine.search.signs.neurons import NeuronSearch
from verifair.engine.verdict import Reason, Status

GOALS = (
    Goal(rows=np.array([[1.0, -1.0]]), strict=True), Goal(rows=np.array([[-1.0, 1.0]]), strict=False),
    Goal(rows=np.array([[-1.0, 0.0], [0.0, 1.0], [-0.5, 0.5]]), strict=True),
    Goal(rows=np.array([[-1.0, 0.0], [0.0, 1.0], [-0.5, 0.5]]), strict=np.array([False, True, False])),
)


def assert_true(problem: TwinProblem, answers: list[list[GoalAnswer]]) -> None:
    """All goals are decided, rightly and with trees that the checker accepts."""
    for q, row in enumerate(answers):
        expected = truth(problem, q, brute_force(problem, q))
        for g, answer in enumerate(row):
            assert answer.status is (Status.PROVED if expected[g] else Status.VIOLATED)
            if answer.status is Status.PROVED:
                one = replace(problem, batch=problem.batch.take([q]), goals=(problem.goals[g],))
                assert answer.tree is not None
                assert tree_flaw(one.network, one.domain, claim_of(one), answer.tree) is None


def test_turns_decide_what_brute_force_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strict goals, ties among them, as well: neurons have a turn at every doubling from one box on."""
    monkeypatch.setattr(turns, "FIRST", 1)
    monkeypatch.setattr(turns, "STALLED", -1.0)
    monkeypatch.setattr(turns, "PART", np.inf)
    monkeypatch.setattr(turns, "TRIAL", 64)
    run, runs = NeuronSearch.run, []
    monkeypatch.setattr(NeuronSearch, "run", lambda self, seconds: runs.append(seconds) or run(self, seconds))
    for style in STYLES:
        for seed in range(2):
            problem = random_problem(seed, style, GOALS)
            assert_true(problem, cascade.solve(problem, budget=Budget(seconds=60)))
    assert runs


def test_boxes_go_on_where_they_stopped() -> None:
    for seed in draws(8):
        problem = random_problem(seed, STYLES[seed % len(STYLES)], GOALS)
        whole = decide(problem)
        search = begin(problem, problem.network.layered("a test"), seconds=60, max_nodes=1)
        limit = 1
        while (out := search.goals.out_of == "nodes").any():
            shares = search.open_shares()
            assert (shares[out] > 0).all()
            assert (shares <= 1).all()
            limit *= 2
            search.go_on(np.ones(search.goals.status.shape, dtype=bool), limit)
        assert np.array_equal(search.goals.status, whole.status)


def test_a_question_whose_goals_are_settled_elsewhere_stays_where_it_is() -> None:
    problem = random_problem(3, STYLES[0], GOALS)
    search = begin(problem, problem.network.layered("a test"), seconds=60, max_nodes=1)
    before = search.goals.nodes.copy()
    search.go_on(np.zeros(search.goals.status.shape, dtype=bool), 1000)
    assert np.array_equal(search.goals.nodes, before)


def test_neurons_go_on_where_they_stopped() -> None:
    for seed in draws(4):
        problem = random_problem(seed, STYLES[seed % len(STYLES)], GOALS)
        for g in range(len(GOALS)):
            expected = truth(problem, 0, brute_force(problem, 0))[g]
            search, answer, before = NeuronSearch.of(problem, 0, g, 100_000, turns.Shrinking()), None, -1
            while answer is None or answer.reason is Reason.NODES:
                assert search.nodes > before
                before = search.nodes
                answer = search.run(60)
            assert answer.status is (Status.PROVED if expected else Status.VIOLATED)


def test_a_turn_ends_where_too_much_stays_open() -> None:
    shrinking = turns.Shrinking()
    assert shrinking.programs == turns.TRIAL
    assert shrinking.goes_on(0.6)
    assert not shrinking.goes_on(0.5)
    assert shrinking.programs == 4 * turns.TRIAL
    assert turns.stalled(1.0, 0.6)
    assert not turns.stalled(1.0, 0.5)
