"""Smooth networks against brute force in ball arithmetic: the engine may be silent, it may never be wrong."""

from __future__ import annotations

import numpy as np
import pytest
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st

from encoders.bounds.difference import goal_bounds, interval_goals
from encoders.bounds.interval import interval_bounds
from encoders.bounds.twin import Twin
from encoders.network import Array
from encoders.problem import TwinProblem
from verifair.checker.kernel.bounds import TwinBounds
from verifair.engine.search.branch_and_bound import decide
from verifair.engine.search.open_goals import OPEN, PROVED

from .random_smooth import MIXES, brute_force, smooth_problem
from .random_twins import FLIP, PBA, ROBUST, STYLES

GOALS = {"pba": PBA, "robust": ROBUST, "flip": FLIP}
seeds = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("mix", MIXES)
@settings(max_examples=25)
@given(seed=seeds, style=st.sampled_from(STYLES))
def test_bounds_lie_below_every_point(mix: str, seed: int, style: str) -> None:
    problem = smooth_problem(seed, style, mix, (*PBA, *ROBUST, *FLIP))
    twin = Twin.of(problem)
    question = np.arange(len(problem.batch))
    low, high = twin.local.box(problem.batch.lower[:, twin.variables], problem.batch.upper[:, twin.variables])
    linear = goal_bounds(twin, question, low, high, np.ones((len(question), len(problem.rows)))).lower
    interval = interval_goals(twin, question, interval_bounds(twin, question, low, high)[-1])
    found = [linear, interval, *checker_bounds(problem)]
    for q in question:
        for values in brute_force(problem, int(q)):
            for r, value in enumerate(values):
                for bounds in found:
                    assert not np.isnan(bounds[q, r])
                    assert np.isinf(bounds[q, r]) or not arb(float(bounds[q, r])) > value


def checker_bounds(problem: TwinProblem) -> list[Array]:
    """Bounds (Q, R) of all rows by the checker: linear and by intervals, with inner substitutions and without."""
    batch, rows = problem.batch, problem.rows
    copies = (batch.lower, batch.upper), (batch.second(batch.lower), batch.second(batch.upper))
    ends = [problem.domain.box(*copy) for copy in copies]
    box, row = (one.ravel() for one in np.indices((len(batch), len(rows))))
    p, q = rows[row, :1] * problem.margin, rows[row, 1:] * problem.margin
    out = []
    with np.errstate(all="ignore"):
        for close in (False, True):
            bounds = TwinBounds(problem.network, *ends[0], *ends[1], close=close)
            out += [bounds.lower(p, q, box, layer=len(problem.network.layers) - 1)[0], bounds.least(p, q, box)]
    return [one.reshape(len(batch), len(rows)) for one in out]


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("kind", GOALS)
@settings(max_examples=8)
@given(seed=seeds, style=st.sampled_from(STYLES))
def test_verdicts_equal_brute_force(kind: str, mix: str, seed: int, style: str) -> None:
    problem = smooth_problem(seed, style, mix, GOALS[kind])
    decision = decide(problem, max_nodes=500)
    for q in range(len(problem.batch)):
        values = brute_force(problem, q)
        for g, goal in enumerate(problem.goals):
            mine = np.flatnonzero(problem.goal_of == g)
            fails = [all(row[r] <= 0 if goal.strict else row[r] < 0 for r in mine) for row in values]
            holds = [any(row[r] > 0 if goal.strict else row[r] >= 0 for r in mine) for row in values]
            status = decision.status[q, g]
            if status == OPEN:  # only where a row is 0 and no precision can tell, or boxes have run out
                assert not (all(holds) or any(fails)) or decision.out_of[q] == "nodes"
            elif status == PROVED:
                assert not any(fails)
            else:
                assert not all(holds)
                point = decision.witness[q, g]
                assert (point >= problem.batch.lower[q]).all()
                assert (point <= problem.batch.upper[q]).all()
