"""The search for points against goals: it finds strips that random points miss, and stays within box, categories and legal rows."""

from dataclasses import replace

import numpy as np
import pytest

from encoders.bounds.twin import Twin
from encoders.domain import Domain, Forbidden
from encoders.evaluate import exact_goals
from encoders.problem import TwinBatch, TwinProblem
from tests.builders import linear_network
from tests.soundness.random_twins import FLIP, STRICT_SIGNS, STYLES, random_problem
from verifair.engine.search.boxes import anywhere, roots
from verifair.engine.search.descent import Descent
from verifair.engine.search.open_goals import VIOLATED, BatchDecision, GoalRows
from verifair.engine.search.trees import ProofTrees

UNITS = (1, 7, 49, 343, 2401)
"""What one unit of each variable counts: sums of several take every value."""


def _strip(forbidden: Forbidden | None = None) -> TwinProblem:
    """g = UNITS . x - 5000.5 + z over 0 ... 6, so that a flip needs the one sum 5000 of all 16,807."""
    count = len(UNITS)
    upper = np.array([*[6.0] * count, 1.0])
    domain = Domain(
        integer=np.ones(count + 1, dtype=bool), lower=np.zeros(count + 1), upper=upper, offset=np.zeros(count + 1),
        scale=np.ones(count + 1), start=np.arange(count + 1), one_hot=np.zeros(count + 1, dtype=bool),
        width=np.ones(count + 1, dtype=np.int64), forbidden=forbidden,
    )
    protected = np.arange(count + 1) == count
    batch = TwinBatch(
        lower=np.zeros((1, count + 1)), upper=np.where(protected, 0.0, upper)[None], prime=np.where(protected, 1.0, 0.0)[None],
        protected=protected,
    )
    network = linear_network(*UNITS, 1.0, bias=-5000.5)
    return TwinProblem(network=network, domain=domain, batch=batch, margin=np.ones(1), goals=STRICT_SIGNS)


def _descended(problem: TwinProblem, seed: int) -> BatchDecision:
    twin = Twin.of(problem)
    trees = ProofTrees(len(problem.batch), [len(goal.rows) for goal in problem.goals], 0)
    goals = BatchDecision(twin, GoalRows.of(problem), None, trees)
    Descent(goals, np.random.default_rng(seed), np.inf).run(np.arange(len(problem.batch)))
    return goals


def test_it_finds_a_strip_that_random_points_miss() -> None:
    problem = _strip()
    goals = _descended(problem, 0)
    assert (goals.status == VIOLATED).any()
    assert goals.witness[0][goals.status[0] == VIOLATED][0, :-1] @ UNITS == 5000
    twin, everything = Twin.of(problem), roots(Twin.of(problem)).take(np.zeros(1000, dtype=np.int64))
    assert not (anywhere(twin, everything, np.random.default_rng(0)) @ UNITS == 5000).any()


def test_it_finds_none_where_the_only_one_is_forbidden() -> None:
    digits = [5000 // unit % 7 for unit in UNITS]
    free = _strip()
    row = np.array([*digits, 0.0])
    box = Forbidden(lower=np.where(np.arange(6) < 5, row, -np.inf)[None], upper=np.where(np.arange(6) < 5, row, np.inf)[None])
    assert not (_descended(replace(free, domain=replace(free.domain, forbidden=box)), 0).status == VIOLATED).any()


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("goals", [FLIP, STRICT_SIGNS])
def test_what_it_finds_is_legal_within_the_box_and_fails_exactly(style: str, goals: tuple) -> None:  # type: ignore[type-arg]
    for seed in range(4):
        problem = random_problem(seed, style, goals)
        found = _descended(problem, seed)
        question, goal = np.nonzero(found.status == VIOLATED)
        raw, batch = found.witness[question, goal], problem.batch.take(question)
        assert ((raw >= batch.lower) & (raw <= batch.upper)).all()
        assert problem.domain.legal(raw).all()
        assert problem.domain.legal(batch.second(raw)).all()
        if len(question):
            met = exact_goals(problem, question, raw)[0]
            assert not met[np.arange(len(goal)), goal].any()


def test_the_same_seed_finds_the_same() -> None:
    one, two = (_descended(random_problem(5, "plain", FLIP), 3) for _ in range(2))
    assert np.array_equal(one.witness, two.witness, equal_nan=True)
