"""Lower bounds of rows with constants, and of mixtures of rows, against the exact minimum over every point of a box."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from encoders.arrays import Array
from encoders.bounds.difference import GoalBounds, every_row, interval_goals, linear_goals, mixed_goals, with_constants
from encoders.bounds.interval import interval_bounds
from encoders.bounds.twin import Twin
from encoders.probability.logistic import gap_rows
from encoders.problem import Goal, TwinBatch, TwinProblem
from tests.brute_force import exact_forward, fractions
from tests.soundness.random_twins import STYLES, random_problem
from verifair.checker.kernel.bounds import TwinBounds
from verifair.engine.search.open_goals import MIXTURES, GoalRows

ROWS = 6
POINTS = 100


def random_goal(rng: np.random.Generator) -> Goal:
    """A difference, two single copies, and rows of any size; constants from tiny to huge, some of them 0."""
    rows = rng.standard_normal((ROWS, 2)) * 10.0 ** rng.integers(-3, 4, (ROWS, 1))
    rows[:3] = [[1.0, -1.0], [-1.0, 0.5], [0.0, 1.0]]
    constants = rng.standard_normal(ROWS) * 10.0 ** rng.integers(-12, 13, ROWS) * (rng.random(ROWS) < 0.7)
    return Goal(rows=rows, constant=constants, strict=False)


def shifted(rng: np.random.Generator, problem: TwinProblem) -> TwinProblem:
    """Variable 1 relaxed by a random shift in each question, as long as the network takes it unscaled."""
    if problem.domain.scale[1] != 1 or rng.random() < 0.5:
        return problem
    batch = problem.batch
    offset = np.zeros_like(batch.lower)
    offset[:, 1] = rng.integers(-2, 3, len(batch))
    return replace(problem, batch=replace(batch, offset=offset))


def inner_boxes(rng: np.random.Generator, problem: TwinProblem) -> tuple[Array, Array]:
    """A random box within each question's, degenerate ones among them."""
    batch = problem.batch
    ends = np.sort(rng.integers(batch.lower, batch.upper + 1, (2, *batch.lower.shape)), axis=0).astype(float)
    whole, point = rng.random(len(batch)) < 0.4, rng.random(len(batch)) < 0.2
    lower = np.where(whole[:, None], batch.lower, ends[0])
    return lower, np.where(point[:, None], lower, np.where(whole[:, None], batch.upper, ends[1]))


def exact_rows(problem: TwinProblem, q: int, lower: Array, upper: Array, rng: np.random.Generator) -> np.ndarray:
    """(P, R) exact values of all rows, constants included, at the points of a box (POINTS of them at most)."""
    batch: TwinBatch = problem.batch.take([q])
    points = np.array(list(product(*(np.arange(a, b + 1) for a, b in zip(lower, upper, strict=True)))), dtype=float)
    points = points[rng.permutation(len(points))[:POINTS]]
    copies = [exact_forward(problem.network, problem.domain.encode(raw)) for raw in (points, batch.second(points))]
    margins = np.stack([logits @ fractions(problem.margin) for logits in copies], axis=1)
    return np.asarray(margins @ fractions(problem.rows).T + fractions(problem.constants))


def assert_below(bounds: Array, values: np.ndarray, what: str) -> None:
    """Every bound (R,) is a number, and none lies above any of the values (P, R)."""
    least = values.min(axis=0)
    for bound, value in zip(bounds, least, strict=True):
        assert not np.isnan(bound), what
        assert bound == -np.inf or fractions(np.array([bound]))[0] <= value, (what, float(bound), float(value))


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("seed", range(12))
def test_no_bound_lies_above_a_point(style: str, seed: int) -> None:
    rng = np.random.default_rng([seed, STYLES.index(style)])
    problem = shifted(rng, random_problem(seed, style, (random_goal(rng),)))
    twin, question = Twin.of(problem), np.arange(len(problem.batch))
    lower, upper = inner_boxes(rng, problem)
    low, high = twin.local.box(lower[:, twin.variables], upper[:, twin.variables])
    layers = interval_bounds(twin, question, low, high)
    rough = interval_goals(twin, question, layers[-1])
    linear = linear_goals(twin, question, (low, high), layers, *every_row(twin, len(question)), np.ones((len(question), ROWS)))
    weights = rng.multinomial(64, np.ones(ROWS) / ROWS, 5) / 64
    mixed = mixed_goals(linear, (high - low) / 2, weights)
    for q in question:
        values = exact_rows(problem, int(q), lower[q], upper[q], rng)
        assert_below(rough[q], values, "intervals")
        assert_below(linear.lower[q], values, "lines")
        assert_below(mixed[q], values @ fractions(weights).T, "mixtures")
        single = mixed_goals(linear, (high - low) / 2, np.eye(ROWS))[q]
        assert (single <= linear.lower[q] + 1e-9 * np.abs(linear.lower[q])).all()


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("seed", range(12))
def test_no_bound_of_the_checker_lies_above_a_point(style: str, seed: int) -> None:
    rng = np.random.default_rng([seed, STYLES.index(style), 1])
    problem = shifted(rng, random_problem(seed, style, (random_goal(rng),)))
    lower, upper = inner_boxes(rng, problem)
    batch, domain, rows = problem.batch, problem.domain, problem.rows
    ends = (*domain.box(lower, upper), *domain.box(batch.second(lower), batch.second(upper)))
    box, row = (one.ravel() for one in np.divmod(np.arange(len(batch) * ROWS), ROWS))
    p, q = rows[row, :1] * problem.margin, rows[row, 1:] * problem.margin
    last = len(problem.network.layers) - 1
    exactly = [exact_rows(problem, k, lower[k], upper[k], rng) for k in range(len(batch))]
    for close in (False, True):
        bounds = TwinBounds(problem.network, *ends, close=close)
        linear = bounds.by_substitution(p, q, box, layer=last, constant=problem.constants[row]).reshape(-1, ROWS)
        margins = bounds.margins(np.tile(problem.margin, (len(batch), 1)))
        outputs = bounds.by_intervals(margins, rows[row, 0], rows[row, 1], box).reshape(-1, ROWS)
        for k, values in enumerate(exactly):
            assert_below(linear[k], values, "lines")
            assert_below(outputs[k], values - fractions(problem.constants), "outputs alone")


@pytest.mark.parametrize("epsilon", [1e-9, 0.05, 0.5, 1 - 1e-9])
@pytest.mark.parametrize("rise", [False, True])
@pytest.mark.parametrize("style", ["plain", "integer", "duplicate", "tiny"])
def test_rows_chosen_for_a_box_are_rows_of_the_goal(epsilon: float, rise: bool, style: str) -> None:
    """Of 67 lines two are picked, box by box, each with its own constant; what closes the goal is below its best row everywhere."""
    rows, constants = gap_rows(epsilon, rise=rise)
    goal = Goal(rows=rows, constant=constants, strict=False)
    for seed in range(4):
        problem = random_problem(seed, style, (goal,))
        rng = np.random.default_rng(seed)
        twin, slots, question = Twin.of(problem), GoalRows.of(problem), np.arange(len(problem.batch))
        lower, upper = inner_boxes(rng, problem)
        low, high = twin.local.box(lower[:, twin.variables], upper[:, twin.variables])
        layers = interval_bounds(twin, question, low, high)
        rough = interval_goals(twin, question, layers[-1])
        chosen = slots.choose(np.array([0]), rough, twin.evaluate(question, (low + high) / 2))
        assert ((chosen.index >= 0) & (chosen.index < len(rows))).all()
        some = rows[chosen.index], constants[chosen.index]
        bounds = linear_goals(twin, question, (low, high), layers, *some, np.ones(chosen.index.shape))
        _, weights, mixed = slots.mixed(bounds, (high - low) / 2, chosen, 0)
        assert (weights >= 0).all()
        assert (weights.sum(axis=1) == 1).all()
        for b in question:
            values = exact_rows(problem, int(b), lower[b], upper[b], rng)
            least = values.max(axis=1).min()
            for best in (slots.best(bounds.lower, chosen).lower[b], mixed[[b]]):
                assert best[0] == -np.inf or fractions(best)[0] <= least


@pytest.mark.parametrize("rows", [2, 3])
def test_mixtures_are_convex(rows: int) -> None:
    weights = MIXTURES[rows]
    assert not weights[:, rows:].any()
    assert (weights >= 0).all()
    assert (weights.sum(axis=1) == 1).all()


def test_mixtures_are_rounded_down_where_everything_cancels() -> None:
    """Half of 1e16 (x + 1/3) and half of its negative: 0, and yet not provable at that size."""
    slope = np.array([[[1e16], [-1e16]]])
    bounds = GoalBounds(
        lower=np.full((1, 2), -np.inf), slope=slope, base=np.array([[1e16 / 3, -1e16 / 3 + 2.0]]), error=np.zeros((1, 2)),
        score=np.zeros((1, 1)),
    )
    low = mixed_goals(bounds, np.ones((1, 1)), MIXTURES[2][:, :2])
    assert (low < 0).all()
    assert low.max() > -1000


@pytest.mark.parametrize("lower", [0.0, 1.0, -1e-300, 1e300, -1e16, np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("constant", [0.0, 1.0, -1.0, 1e-300, -1e300, 1e16 + 2])
def test_constants_are_added_downwards(lower: float, constant: float) -> None:
    with np.errstate(invalid="ignore"):
        (total,) = with_constants(np.array([lower]), np.array([constant]))
    if not np.isfinite(lower):
        assert total == -np.inf
    elif constant == 0:
        assert total == lower
    else:
        assert fractions(np.array([total]))[0] <= sum(fractions(np.array([lower, constant])))
