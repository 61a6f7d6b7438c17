"""A limit of one second on a network whose questions no second settles: searches end soon after it, on a busy machine too."""

from __future__ import annotations

import time

import numpy as np
import pytest

import verifair as vf
from tests.builders import integer, random_network, schema_of
from verifair.engine.cascade import solve
from verifair.engine.gap.maximise import maximise
from verifair.engine.queries import ProbabilityGap
from verifair.engine.questions import goals_of, questions_of, twin_problem

LIMIT, MOST = vf.Budget(seconds=1.0), 5.0
"""What is asked for, and the most seconds a search may take: what is measured on an idle machine stands in PERFORMANCE.md."""
PEOPLE = schema_of(integer("group", 0, 15), *(integer(f"x{k}", -100, 100) for k in range(40)))
WIDE = random_network(np.random.default_rng(0), (41, 500, 500, 500, 1))


@pytest.fixture(autouse=True)
def in_time() -> object:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < MOST


def test_verify() -> None:
    found = vf.verify(vf.IndividualFairness(network=WIDE, schema=PEOPLE, protected=["group"], epsilon=0.9), budget=LIMIT)
    assert found.reason is vf.Reason.TIME


def test_maximise() -> None:
    assert maximise(ProbabilityGap(network=WIDE, schema=PEOPLE, protected=["group"]), budget=LIMIT).reason is vf.Reason.TIME


def test_kmax() -> None:
    query = vf.KDiscrimination(network=WIDE, schema=PEOPLE, protected=["group"], buckets=1000)
    found = vf.verify(query, budget=LIMIT)
    assert found.lower <= found.upper


def test_a_batch_that_comes_too_late_is_not_begun() -> None:
    query = vf.IndividualFairness(network=WIDE, schema=PEOPLE, protected=["group"])
    problem = twin_problem(query, questions_of(query)[1], goals_of(query))
    answers = solve(problem, budget=vf.Budget(seconds=1e-3))
    assert len(answers) == len(problem.batch)
    assert {(answer.reason, answer.nodes) for row in answers for answer in row} == {(vf.Reason.TIME, 0)}
