"""Every encoder on every backend that takes its programs: no pair may contradict another, or brute force over the lattice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from encoders.big_m import big_m
from encoders.bounds.twin import Twin
from encoders.problem import TwinProblem
from encoders.smt import smt, violated
from encoders.triangle import naive_triangle, triangle
from encoders.twin_box import Method, TwinBox
from solvers.outcome import Budget, Termination
from solvers.registry import Capability, backends
from tests.support import DIFFERENCE, NO_FLIP, lattice, margins, not_safe, sample, twin_problem

BUDGET = Budget(seconds=30)
ROWS = np.array([[1.0, -1.0], [-1.0, 1.0], [1.0, 0.0], [0.0, -1.0]])
SHAPES: dict[str, dict[str, object]] = {
    "two-layers": {"hidden": (5, 4)},
    "leaky-scaled": {"hidden": (4, 3), "slope": 0.1, "scale": 3.7},
    "one-hot": {"hidden": (4,), "categories": 3},
    "no-hidden-layer": {"hidden": ()},
    "two-logits": {"hidden": (3, 3, 3), "outputs": 2},
}
LP = [b for b in backends() if Capability.LP in b.capabilities and b.name != "ortools-pdlp"]  # first-order: no 1e-6
MIP = [b for b in backends() if Capability.MIP in b.capabilities and Capability.EXACT not in b.capabilities]
SMT = [b for b in backends() if {Capability.RELU, Capability.CLAUSES} <= b.capabilities]


def problem_of(shape: str, seed: int, **more: object) -> TwinProblem:
    return twin_problem(np.random.default_rng(seed), **{**SHAPES[shape], **more})  # type: ignore[arg-type]


@pytest.fixture
def installed(backend):  # type: ignore[no-untyped-def]
    if not backend.is_available():
        pytest.skip(f"{backend.name}: {backend.package} is not installed")
    return backend


@pytest.mark.parametrize("backend", LP, ids=lambda b: b.name)
@pytest.mark.parametrize("shape", SHAPES)
def test_linear_programs_agree(shape: str, installed) -> None:  # type: ignore[no-untyped-def]
    problem = problem_of(shape, 1)
    box = TwinBox.of(Twin.of(problem), 0, method=Method.LINEAR)
    truth = (margins(problem, lattice(box.lower, box.upper)) @ ROWS.T).min(axis=0)
    for row, least in zip(ROWS, truth, strict=True):
        values = []
        for encoding in (triangle(box), naive_triangle(box), triangle(box, difference=True)):
            outcome = installed.solve(encoding.minimise(row), budget=BUDGET)
            assert outcome.termination is Termination.OPTIMAL
            values.append(outcome.primal_bound)
        assert values[0] == pytest.approx(values[1], abs=1e-5)
        assert values[0] <= values[2] + 1e-5
        assert values[2] <= least + 1e-5


@pytest.mark.parametrize("backend", MIP, ids=lambda b: b.name)
@pytest.mark.parametrize("difference", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_mixed_integer_programs_give_the_minimum_over_the_lattice(shape: str, difference: bool, installed) -> None:  # type: ignore[no-untyped-def]
    problem = problem_of(shape, 2)
    box = TwinBox.of(Twin.of(problem), 0, method=Method.LINEAR)
    encoding = big_m(box, difference=difference)
    truth = (margins(problem, lattice(box.lower, box.upper)) @ ROWS.T).min(axis=0)
    for row, least in zip(ROWS, truth, strict=True):
        outcome = installed.solve(encoding.minimise(row), budget=BUDGET)
        assert outcome.termination is Termination.OPTIMAL
        slack = 1e-4 * abs(least) + 1e-5  # the backends' own default gap
        assert outcome.primal_bound == pytest.approx(least, abs=slack)
        assert outcome.dual_bound <= least + 1e-5
        assert (margins(problem, encoding.decode(outcome.values)) @ row)[0] == pytest.approx(least, abs=slack)
        below = installed.solve(encoding.at_most(row, float(least) - 1e-2), budget=BUDGET)
        assert below.termination is Termination.INFEASIBLE
        above = installed.solve(encoding.at_most(row, float(least) + 1e-2), budget=BUDGET)
        assert above.termination in (Termination.SATISFIED, Termination.OPTIMAL)


@pytest.mark.parametrize("backend", LP, ids=lambda b: b.name)
def test_a_box_of_one_point_is_a_program_every_backend_takes(installed) -> None:  # type: ignore[no-untyped-def]
    problem = problem_of("two-layers", 3)
    raw = sample(np.random.default_rng(3), problem, 1)
    box = TwinBox.of(Twin.of(problem), 0, raw[0], raw[0], method=Method.LINEAR)
    outcome = installed.solve(triangle(box).minimise(ROWS[0]), budget=BUDGET)
    assert outcome.primal_bound == pytest.approx((margins(problem, raw) @ ROWS[0])[0], abs=1e-6)


@pytest.mark.parametrize("backend", SMT, ids=lambda b: b.name)
@pytest.mark.parametrize("goal", [DIFFERENCE, NO_FLIP, replace(DIFFERENCE, rows=-DIFFERENCE.rows)], ids=["d", "flip", "-d"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", SHAPES)
def test_smt_and_brute_force_agree(shape: str, seed: int, goal, installed) -> None:  # type: ignore[no-untyped-def]
    tiny = {"hidden": (2,) * len(SHAPES[shape]["hidden"])}  # type: ignore[arg-type]
    problem = problem_of(shape, seed, **tiny)
    box = TwinBox.of(Twin.of(problem), 0, method=Method.LINEAR)
    encoding = smt(box)
    outcome = installed.solve(violated(encoding, goal), budget=BUDGET)
    if not_safe(problem, lattice(box.lower, box.upper), goal).any():
        assert outcome.termination is Termination.SATISFIED
        assert not_safe(problem, encoding.decode(outcome.values), goal).all()
    else:
        assert outcome.termination is Termination.INFEASIBLE
