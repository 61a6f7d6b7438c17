"""Every encoder on every backend that takes its programs: no pair may contradict another, or brute force over the lattice."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from encoders.bounds.twin import Twin
from encoders.domain import Forbidden
from encoders.probability.logistic import exceeds
from encoders.problem import TwinProblem, gap_goal
from encoders.programs.big_m import big_m
from encoders.programs.rows import refined
from encoders.programs.smt import smt
from encoders.programs.triangle import naive_triangle, triangle
from encoders.programs.twin_box import Method, TwinBox
from solvers.outcome import Budget, Termination
from solvers.registry import Capability, backends
from tests.brute_force import exact_margins, margins, not_safe
from tests.builders import DIFFERENCE, NO_FLIP, lattice, sample, twin_problem
from tests.draws import draws

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
    for row, least in list(zip(ROWS, truth, strict=True))[difference::2]:
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
    outcome = installed.solve(encoding.violated(goal), budget=BUDGET)
    if not_safe(problem, lattice(box.lower, box.upper), goal).any():
        assert outcome.termination is Termination.SATISFIED
        assert not_safe(problem, encoding.decode(outcome.values), goal).all()
    else:
        assert outcome.termination is Termination.INFEASIBLE


# With rows that cannot be, and goals about probabilities


def constrained(problem: TwinProblem, seed: int, boxes: int = 3) -> TwinProblem:
    """The same problem with random boxes of rows forbidden: numbers, categories and the protected variable together."""
    rng, domain = np.random.default_rng(seed), problem.domain
    low, high = np.sort(rng.integers(domain.lower, domain.upper + 1, (2, boxes, domain.variables)).astype(float), axis=0)
    low[rng.random(low.shape) < 0.4], high[rng.random(high.shape) < 0.4] = -np.inf, np.inf
    return replace(problem, domain=replace(domain, forbidden=Forbidden(lower=low, upper=high)))


def legal_points(problem: TwinProblem, box: TwinBox) -> np.ndarray:
    points = lattice(box.lower, box.upper)
    second = problem.batch.take([0]).second(points)
    return np.asarray(points[problem.domain.legal(points) & problem.domain.legal(second)])


GAPS = {"fall": gap_goal(0.08, rise=False), "rise": gap_goal(0.04, rise=True, count=5), "flip": NO_FLIP, "difference": DIFFERENCE}


@pytest.mark.parametrize("backend", MIP, ids=lambda b: b.name)
@pytest.mark.parametrize("name", GAPS)
@pytest.mark.parametrize("shape", ["two-layers", "leaky-scaled", "one-hot"])
def test_the_worst_row_over_legal_points(shape: str, name: str, installed) -> None:  # type: ignore[no-untyped-def]
    goal, answers = GAPS[name], set()
    for seed in range(3):
        problem = constrained(replace(problem_of(shape, seed), goals=(goal,)), seed)
        box = TwinBox.of(Twin.of(problem), 0, method=Method.LINEAR)
        encoding, points = big_m(box, difference=seed == 2), legal_points(problem, box)
        outcome = installed.solve(encoding.worst(goal), budget=BUDGET)
        if not len(points):
            assert outcome.termination is Termination.INFEASIBLE
            continue
        least = (margins(problem, points) @ goal.rows.T + goal.constants).max(axis=1).min()
        assert outcome.termination is Termination.OPTIMAL
        slack = 1e-4 * abs(least) + 1e-5
        assert outcome.primal_bound == pytest.approx(least, abs=slack)
        assert outcome.dual_bound <= least + slack
        raw = encoding.decode(outcome.values)
        assert (raw == points).all(axis=1).any()
        assert (margins(problem, raw) @ goal.rows.T + goal.constants).max() == pytest.approx(least, abs=slack)
        answers.add(least > 0)
    assert answers


@pytest.mark.parametrize("backend", MIP, ids=lambda b: b.name)
def test_a_question_about_no_row_is_infeasible(installed) -> None:  # type: ignore[no-untyped-def]
    """Where x', or x, may not be at all; where two boxes cover the whole; and in a box of one point, without any column."""
    problem = problem_of("two-layers", 1)
    everywhere = np.array([[-np.inf] * 3, [np.inf] * 3])
    for side, value, other in ((0, 0.0, None), (0, 1.0, None), (1, -1.0, 0.0)):
        low, high = np.tile(everywhere[:, None, :], (1, 2, 1))
        if other is None:
            low[:, side] = high[:, side] = value
        else:
            high[0, side], low[1, side] = value, other
        forbidden = Forbidden(lower=low, upper=high)
        covered = replace(problem, domain=replace(problem.domain, forbidden=forbidden))
        twin = Twin.of(covered)
        point = covered.batch.lower[0]
        for box in (TwinBox.of(twin, 0, method=Method.LINEAR), TwinBox.of(twin, 0, point, point, method=Method.LINEAR)):
            assert not len(legal_points(covered, box))
            for program in (big_m(box).minimise(ROWS[0]), big_m(box).worst(NO_FLIP)):
                assert installed.solve(program, budget=BUDGET).termination is Termination.INFEASIBLE


@pytest.mark.parametrize("backend", SMT, ids=lambda b: b.name)
@pytest.mark.parametrize("name", GAPS)
@pytest.mark.parametrize("seed", draws(4))
@pytest.mark.parametrize("shape", ["two-layers", "leaky-scaled", "one-hot"])
def test_smt_and_brute_force_agree_on_legal_points(shape: str, seed: int, name: str, installed) -> None:  # type: ignore[no-untyped-def]
    tiny = {"hidden": (2,) * len(SHAPES[shape]["hidden"])}  # type: ignore[arg-type]
    goal = GAPS[name]
    problem = constrained(replace(problem_of(shape, seed, **tiny), goals=(goal,)), seed + 1)
    box = TwinBox.of(Twin.of(problem), 0, method=Method.LINEAR)
    encoding, points = smt(box), legal_points(problem, box)
    truth = bool(len(points)) and bool(against(problem, points, goal).any())
    for _ in range(50):
        outcome = installed.solve(encoding.violated(goal), budget=BUDGET)
        if outcome.termination is Termination.INFEASIBLE:
            assert not truth
            return
        assert outcome.termination is Termination.SATISFIED
        raw = encoding.decode(outcome.values)
        assert (raw == points).all(axis=1).any()
        if against(problem, raw, goal).all():
            assert truth
            return
        further = refined(goal, exact_margins(problem, raw)[0].astype(float))
        assert further is not None
        goal = further
    raise AssertionError("refining did not end")


def against(problem: TwinProblem, points: np.ndarray, goal) -> np.ndarray:  # type: ignore[no-untyped-def]
    """Which points are witnesses against the goal, in exact arithmetic; for a gap by the probabilities themselves."""
    if goal.gap is None:
        return np.asarray(not_safe(problem, points, goal))
    pairs = [pair[::-1] if goal.gap.rise else pair for pair in exact_margins(problem, points)]
    return np.array([exceeds(a, b, goal.gap.epsilon) for a, b in pairs])


def test_both_answers_occur_on_legal_points() -> None:
    """The tests above compare two answers; both must occur, and forbidding must turn some violated goal into a proved one."""
    turned = []
    for name, goal in GAPS.items():
        answers = set()
        for shape, seed in product(("two-layers", "leaky-scaled", "one-hot"), range(4)):
            tiny = {"hidden": (2,) * len(SHAPES[shape]["hidden"])}  # type: ignore[arg-type]
            free = replace(problem_of(shape, seed, **tiny), goals=(goal,))
            problem = constrained(free, seed + 1)
            box = TwinBox.of(Twin.of(problem), 0, method=Method.LINEAR)
            points = legal_points(problem, box)
            truth = bool(len(points)) and bool(against(problem, points, goal).any())
            answers.add(truth)
            if not truth and against(free, lattice(box.lower, box.upper), goal).any():
                turned.append(name)
        assert answers == {True, False}
    assert len(set(turned)) >= 2
