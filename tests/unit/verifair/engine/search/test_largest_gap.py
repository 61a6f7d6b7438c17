"""The LPs of the search for the largest gap are not cut short by a turn of a busy machine's length."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import verifair as vf
from encoders.domain import Regions
from solvers import clock
from solvers.highs import HotStart
from tests.builders import integer, random_network, schema_of
from verifair.engine.gap import search
from verifair.engine.gap.inputs import InputSearch
from verifair.engine.gap.neurons import FIRST, PhaseSearch
from verifair.engine.questions import goals_of, questions_of, twin_problem

QUERY = vf.IndividualFairness(
    model=random_network(np.random.default_rng(0), (11, 20, 20, 1)),
    schema=schema_of(integer("group", 0, 1), *(integer(f"x{k}", -20, 20) for k in range(10))),
    protected=["group"],
)


def inputs(seconds: float) -> InputSearch:
    problem = twin_problem(QUERY, questions_of(QUERY)[1], goals_of(QUERY))
    found = InputSearch(problem, False, 1e-3, np.random.default_rng(0))
    found.begin(lambda: False)
    found.deadline = clock.now() + seconds
    return found


def test_lps_may_take_what_one_was_seen_to_take_whatever_is_left_of_the_turn() -> None:
    one, asked = PhaseSearch(inputs(40.0), 0, 1, 1e-5), list[float]()
    solve = one._relaxation.solve

    def noting(regions: Regions, basis: Any, seconds: float) -> Any:
        asked.append(seconds)
        found = solve(regions, basis, seconds)
        time.sleep(0.0 if len(asked) > 1 else 0.1)
        return found

    one._relaxation.solve = noting  # type: ignore[method-assign]
    one.run(clock.now(), 10)  # the turn is over
    one.run(clock.now() + 0.02, 3)
    assert FIRST * 40 - 1 < asked[0] <= FIRST * 40
    assert one.nodes == 3
    assert one.bound < 1
    assert asked[1] >= 0.2


def test_a_search_whose_first_lp_is_cut_short_is_given_up_not_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """It once went on with halves of which as little was known, and got a turn now and then."""
    solve = HotStart.solve

    def slow(self: HotStart, program: Any, *, seconds: float, iterations: int, basis: Any = None) -> Any:
        time.sleep(seconds)
        return solve(self, program, seconds=seconds, iterations=0, basis=basis)

    monkeypatch.setattr(HotStart, "solve", slow)
    of_inputs = inputs(0.4)
    both = search._GapSearch(of_inputs, 1e-5, of_inputs.deadline, 1 << 62, None)
    both._split((0, 1), clock.now() + 0.2, lambda: False)   # time for its relaxation, on a busy machine, too
    assert both.phases[0, 1].slow
    assert not both.phases[0, 1].nodes
    assert both.phases[0, 1].bound == np.inf == both.phases[0, 1].least_claim(0.5)
    assert both._worst() is None
