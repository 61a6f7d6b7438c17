"""The engine against brute force on thousands of tiny nasty networks: it may be silent, it may never be wrong."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoders.bounds.difference import goal_bounds, interval_goals
from encoders.bounds.interval import interval_bounds
from encoders.bounds.twin import Twin
from encoders.exact.dyadic import exact
from tests.brute_force import fractions
from verifair.engine.search.branch_and_bound import decide
from verifair.engine.search.open_goals import OPEN, PROVED
from verifair.engine.search.optimum import minimum

from .random_twins import FLIP, PBA, ROBUST, STYLES, brute_force, random_problem, truth

GOALS = {"pba": PBA, "robust": ROBUST, "flip": FLIP}
seeds = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("kind", GOALS)
@settings(max_examples=40)
@given(seed=seeds)
def test_verdicts_equal_brute_force(style: str, kind: str, seed: int) -> None:
    problem = random_problem(seed, style, GOALS[kind])
    decision = decide(problem)
    for q in range(len(problem.batch)):
        values = brute_force(problem, q)
        expected = truth(problem, q, values)
        for g, holds in enumerate(expected):
            status = decision.status[q, g]
            assert status != OPEN, "a lattice this small is always decided"
            assert (status == PROVED) == holds
            if status == PROVED:
                tree = decision.trees.tree(q, g)
                bounds = tree.bound[(tree.feature < 0) & ~np.isnan(tree.bound)]
                assert (bounds > 0).all() if problem.goals[g].strict else (bounds >= 0).all()
            else:
                point = decision.witness[q, g]
                assert (point >= problem.batch.lower[q]).all()
                assert (point <= problem.batch.upper[q]).all()
                assert problem.domain.legal(point[None, :])[0]


@pytest.mark.parametrize("style", STYLES)
@settings(max_examples=40)
@given(seed=seeds)
def test_bounds_lie_below_every_point_exactly(style: str, seed: int) -> None:
    problem = random_problem(seed, style, (*PBA, *ROBUST, *FLIP))
    twin = Twin.of(problem)
    question = np.arange(len(problem.batch))
    low, high = twin.local.box(problem.batch.lower[:, twin.variables], problem.batch.upper[:, twin.variables])
    linear = goal_bounds(twin, question, low, high, np.ones((len(question), len(problem.rows)))).lower
    interval = interval_goals(twin, question, interval_bounds(twin, question, low, high)[-1])
    for q in question:
        least = brute_force(problem, int(q)).min(axis=0)
        for r, value in enumerate(least):
            for bound in (linear[q, r], interval[q, r]):
                assert not np.isnan(bound)
                assert np.isinf(bound) or Fraction(float(bound)) <= value


@settings(max_examples=40)
@given(seed=seeds, style=st.sampled_from(["plain", "sparse", "duplicate", "integer"]))
def test_minimum_brackets_brute_force(seed: int, style: str) -> None:
    problem = random_problem(seed, style, PBA[:1])
    found = minimum(problem, tolerance=1e-6)
    for q in range(len(problem.batch)):
        least = float(brute_force(problem, q).min())
        assert found.lower[q] <= least + 1e-12 * abs(least)
        assert found.upper[q] == pytest.approx(least, abs=2e-6, rel=1e-9)
        assert found.upper[q] - found.lower[q] <= 1e-5 + 1e-9 * abs(least)


@settings(max_examples=200)
@given(seed=seeds, style=st.sampled_from(STYLES))
def test_batched_exact_arithmetic_equals_fractions(seed: int, style: str) -> None:
    problem = random_problem(seed, style, PBA)
    x = problem.domain.encode(problem.batch.lower)
    slow = problem.network.forward(fractions(x))
    fast = problem.network.forward(exact(x))
    assert (fast.to_fractions() == slow).all()
    assert (fast.sign == np.vectorize(lambda v: (v > 0) - (v < 0))(slow)).all()
    assert ((exact(x) - exact(x)).sign == 0).all()


@pytest.mark.parametrize("bad", [1e150, 1e300])
def test_overflow_is_never_a_proof(bad: float) -> None:
    problem = random_problem(7, "plain", PBA)
    layers = tuple(
        type(layer)(weight=layer.weight * bad, bias=layer.bias * bad, slope=layer.slope) for layer in problem.network.layers
    )
    network = type(problem.network)(layers=layers, link=problem.network.link, source_sha256="overflow")
    problem = type(problem)(
        network=network, domain=problem.domain, batch=problem.batch, margin=problem.margin, goals=problem.goals
    )
    with np.errstate(all="ignore"):
        decision = decide(problem)
    for q in range(len(problem.batch)):
        for g, holds in enumerate(truth(problem, q, brute_force(problem, q))):
            assert decision.status[q, g] == OPEN or (decision.status[q, g] == PROVED) == holds
