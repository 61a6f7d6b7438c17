"""Neuron branching against brute force on tiny nasty networks: what it says is true, it always finishes, its proofs check."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from encoders.network import Layer
from encoders.probability import exceeds, gap_rows
from encoders.problem import Forbidden, Goal, ProbabilityGap, TwinProblem
from tests.brute_force import exact_forward
from verifair.checker.kernel.phases import check_phases
from verifair.engine.search.neurons import claim_of, decide_by_phases
from verifair.engine.verdict import Status

from .random_twins import FLIP, STYLES, brute_force, random_network, random_problem

ROWS = Goal(rows=np.array([[1.0, 0.0], [0.0, 1.0]]), strict=False)
"""Only to have brute force return g and g' themselves."""
seeds = st.integers(0, 2**32 - 1)


def margins(problem: TwinProblem, q: int) -> np.ndarray:
    """Exact g, g' (P, 2) at all lattice points of question q, fractions."""
    return brute_force(replace(problem, goals=(ROWS,)), q)


def row_values(goal: Goal, pairs: np.ndarray) -> np.ndarray:
    """(P,) the best row at each point, exactly."""
    rows = [[Fraction(float(v)) for v in row] for row in goal.rows]
    constants = [Fraction(float(c)) for c in goal.constants]
    return np.array([max(p * a + q * b + c for (p, q), c in zip(rows, constants, strict=True)) for a, b in pairs])


def holds(goal: Goal, pairs: np.ndarray) -> bool:
    if goal.gap is None:
        return bool((row_values(goal, pairs) >= 0).all())
    order = (lambda a, b: (b, a)) if goal.gap.rise else (lambda a, b: (a, b))
    return not any(exceeds(*order(a, b), goal.gap.epsilon) for a, b in pairs)


def assert_true(problem: TwinProblem, q: int, g: int, pairs: np.ndarray, legal: np.ndarray | None = None) -> None:
    answer = decide_by_phases(problem, q, g, seconds=60, max_nodes=20_000)
    kept = pairs if legal is None else pairs[legal]
    assert answer.status is not Status.UNKNOWN, "a lattice this small is always decided"
    assert (answer.status is Status.PROVED) == (not len(kept) or holds(problem.goals[g], kept))
    if answer.status is Status.PROVED:
        one = replace(problem, batch=problem.batch.take([q]), goals=(problem.goals[g],))
        assert answer.tree is not None
        assert check_phases(problem.network, problem.domain, claim_of(one), answer.tree) is None
    else:
        assert answer.witness is not None
        assert problem.domain.legal(answer.witness[None])[0]
        assert (answer.witness >= problem.batch.lower[q]).all()
        assert (answer.witness <= problem.batch.upper[q]).all()


@pytest.mark.parametrize("style", STYLES)
@settings(max_examples=8)
@given(seed=seeds)
def test_flips_equal_brute_force(style: str, seed: int) -> None:
    problem = random_problem(seed, style, FLIP)
    for q in range(len(problem.batch)):
        pairs = margins(problem, q)
        for g in range(len(FLIP)):
            assert_true(problem, q, g, pairs)


@pytest.mark.parametrize("off", [0.0, 1e-9, -1e-9, 1e-12, -1e-12])
@settings(max_examples=8)
@given(seed=seeds, style=st.sampled_from(["plain", "sparse", "duplicate", "integer"]))
def test_near_ties(off: float, seed: int, style: str) -> None:
    """The rows are shifted so that the least value over the lattice is (nearly) 0, or off by very little."""
    problem = random_problem(seed, style, FLIP)
    for q in range(len(problem.batch)):
        pairs = margins(problem, q)
        for g, goal in enumerate(FLIP):
            least = float(row_values(goal, pairs).min())
            shifted = replace(goal, constant=np.full(len(goal.rows), off - least))
            assert_true(replace(problem, goals=(shifted,) * 2), q, g, pairs)


@settings(max_examples=13)
@given(seed=seeds, style=st.sampled_from(["plain", "sparse", "duplicate", "integer"]), near=st.booleans())
def test_probability_gaps_equal_brute_force(seed: int, style: str, near: bool) -> None:
    problem = random_problem(seed, style, FLIP)
    rng = np.random.default_rng(seed)
    for q in range(len(problem.batch)):
        pairs = margins(problem, q)
        for rise in (False, True):
            a, b = expit(pairs.astype(float)).T
            largest = float((b - a if rise else a - b).max())
            epsilon = float(np.clip(largest + rng.choice([-1e-9, 1e-9]), 1e-6, 0.999)) if near else float(rng.uniform(0.01, 0.9))
            rows, constant = gap_rows(epsilon, rise=rise)
            goal = Goal(rows=rows, constant=constant, strict=False, gap=ProbabilityGap(epsilon=epsilon, rise=rise))
            assert_true(replace(problem, goals=(goal,)), q, 0, pairs)


@pytest.mark.parametrize("hidden", [(12,), (8, 8), (6, 5, 4)])
@settings(max_examples=8)
@given(seed=seeds)
def test_wider_networks_need_branching(hidden: tuple[int, ...], seed: int) -> None:
    """Normal weights around 0 leave most neurons open at the root: these trees split neurons, not only inputs."""
    problem = wide_problem(seed, hidden)
    for q in range(len(problem.batch)):
        pairs = margins(problem, q)
        for g, goal in enumerate(FLIP):
            least = float(row_values(goal, pairs).min())
            for off in (1e-3 * abs(least) + 1e-6, -1e-6):
                shifted = replace(goal, constant=np.full(len(goal.rows), off - least))
                assert_true(replace(problem, goals=(shifted,) * 2), q, g, pairs)


def wide_problem(seed: int, hidden: tuple[int, ...]) -> TwinProblem:
    """`random_problem` with a network of these hidden widths, LeakyReLU slopes now and then."""
    rng = np.random.default_rng(seed)
    problem = random_problem(seed, "plain", FLIP)
    leak = float(rng.choice([0.0, 0.0, 0.25]))
    sizes = (6, *hidden, 1)
    layers = []
    for n, m in pairwise(sizes):
        last = len(layers) == len(hidden)
        weight = rng.standard_normal((m, n)).astype(np.float32).astype(float)
        layers.append(Layer(weight=weight, bias=0.5 * rng.standard_normal(m), slope=np.full(m, 1.0 if last else leak)))
    network = replace(random_network(rng, 6, "plain", depth=1, width=2, outputs=1), layers=tuple(layers))
    return replace(problem, network=network, margin=np.ones(1))


@settings(max_examples=13)
@given(seed=seeds, relaxed=st.booleans())
def test_forbidden_rows_and_shifted_copies(seed: int, relaxed: bool) -> None:
    problem = wide_problem(seed, (6, 4))
    rng = np.random.default_rng(seed)
    domain, batch = problem.domain, problem.batch
    lower = np.array([-np.inf, -np.inf, -np.inf, rng.integers(0, 2)])
    upper = np.array([np.inf, rng.integers(-2, 6), np.inf, rng.integers(1, 3)])
    domain = replace(domain, scale=np.ones(4), forbidden=Forbidden(lower=lower[None], upper=upper[None]))
    if relaxed:
        offset = np.zeros_like(batch.lower)
        offset[:, 1] = rng.integers(-2, 3, len(offset))
        batch = replace(batch, offset=offset)
    problem = replace(problem, domain=domain, batch=batch)
    for q in range(len(batch)):
        raw = lattice(batch.lower[q], batch.upper[q])
        second = batch.take([q]).second(raw)
        legal = domain.legal(raw) & domain.legal(second)
        exact = [exact_forward(problem.network, domain.encode(copy))[:, 0] for copy in (raw, second)]
        for g in range(len(FLIP)):
            assert_true(problem, q, g, np.stack(exact, axis=1), legal)


def lattice(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    axes = [np.arange(a, b + 1) for a, b in zip(lower, upper, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(lower)).astype(float)


def test_a_strict_goal_is_refused() -> None:
    problem = random_problem(1, "plain", (replace(FLIP[0], strict=True),))
    with pytest.raises(ValueError, match="strict"):
        decide_by_phases(problem, 0, 0, seconds=1, max_nodes=1)
