"""Goals of several rows as one program, and probability gaps by lines that are added where they are needed."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st

from encoders.arrays import Array
from encoders.bounds.twin import Twin
from encoders.probability.logistic import exceeds
from encoders.problem import Goal, TwinProblem, gap_goal
from encoders.programs.big_m import big_m
from encoders.programs.rows import line_at, refined
from encoders.programs.smt import smt
from encoders.programs.triangle import triangle
from encoders.programs.twin import Encoding
from encoders.programs.twin_box import Method, TwinBox
from tests.brute_force import exact_margins, margins, optimum, satisfiable
from tests.builders import DIFFERENCE, NO_FLIP, lattice, twin_problem

epsilons = st.floats(1e-6, 1 - 1e-6)
logits = st.floats(-60, 60)


def asked(seed: int, goal: Goal, hidden: tuple[int, ...] = (4, 3)) -> tuple[TwinProblem, TwinBox, Array]:
    problem = twin_problem(np.random.default_rng(seed), hidden, goals=(goal,))
    box = TwinBox.of(Twin.of(problem), 0, method=Method.LINEAR)
    return problem, box, lattice(box.lower, box.upper)


def best_row(goal: Goal, pairs: Array) -> Array:
    return (pairs @ goal.rows.T + goal.constants).max(axis=1)


def gaps(pairs: Array, *, rise: bool) -> Array:
    fall = scipy.special.expit(pairs[:, 0]) - scipy.special.expit(pairs[:, 1])
    return -fall if rise else fall


# Lines


@given(epsilon=epsilons, b=logits, at=logits)
def test_a_line_is_sufficient_and_touches(epsilon: float, b: float, at: float) -> None:
    """On the line the gap is never exceeded, exactly; at its own point a step above the line it is."""
    m, c = line_at(epsilon, b)
    assert not exceeds(Fraction(m) * Fraction(at) + Fraction(c), Fraction(at), epsilon)
    if scipy.special.expit(b) + epsilon < 1 - 1e-6 and b > -15:
        assert exceeds(Fraction(m) * Fraction(b) + Fraction(c) + Fraction(1, 10**4), Fraction(b), epsilon)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, -0.1, float("nan")])
def test_a_gap_lies_between_0_and_1(epsilon: float) -> None:
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        line_at(epsilon, 0.0)


@given(epsilon=epsilons, a=logits, b=logits, rise=st.booleans(), count=st.sampled_from([1, 5, 33]))
def test_refining_meets_the_point_and_stays_sufficient(epsilon: float, a: float, b: float, rise: bool, count: int) -> None:
    goal = gap_goal(epsilon, rise=rise, count=count)
    pair = np.array([b, a] if rise else [a, b])
    more = refined(goal, pair)
    surplus = gaps(pair[None, :], rise=rise)[0] - epsilon
    if more is None:
        assert surplus > -1e-6
        return
    assert len(more.rows) == len(goal.rows) + 1
    assert more.gap == goal.gap
    assert best_row(more, pair[None, :])[0] > 0
    assert not exceeds(Fraction(a), Fraction(b), epsilon)


def test_other_goals_are_not_refined() -> None:
    assert refined(NO_FLIP, np.zeros(2)) is None


# One program for all rows

GOALS = {
    "difference": DIFFERENCE,
    "constant": replace(DIFFERENCE, constant=np.array([0.37])),
    "no-flip": NO_FLIP,
    "shifted": replace(NO_FLIP, constant=np.array([0.2, -0.1, 0.05])),
    "fall": gap_goal(0.1, rise=False),
    "rise": gap_goal(0.02, rise=True, count=5),
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", GOALS)
def test_worst_is_the_least_best_row(name: str, seed: int) -> None:
    goal = GOALS[name]
    problem, box, points = asked(seed, goal)
    truth = best_row(goal, margins(problem, points)).min()
    for encoding in (big_m(box), big_m(box, difference=True)):
        found = optimum(encoding.worst(goal))
        assert found is not None
        assert found[0] == pytest.approx(truth, abs=1e-5)
        assert best_row(goal, margins(problem, encoding.decode(found[1])))[0] == pytest.approx(truth, abs=1e-5)
    below = optimum(triangle(box).worst(goal))
    assert below is not None
    assert below[0] <= truth + 1e-6
    assert encoding.worst(goal).objective_bounded


def test_worst_of_rows_is_more_than_each_row_alone() -> None:
    """The point of asking all rows at once: somewhere no single row is positive throughout and yet some row always is."""
    gain = []
    for seed in range(12):
        _, box, _ = asked(seed, NO_FLIP)
        encoding = big_m(box)
        alone = max(value(optimum(encoding.minimise(row))) for row in NO_FLIP.rows)
        together = value(optimum(encoding.worst(NO_FLIP)))
        assert together >= alone - 1e-6
        gain.append(together > 1e-3 > alone)
    assert any(gain)


def value(found: tuple[float, Array] | None) -> float:
    assert found is not None
    return found[0]


def test_a_flipped_sign_in_worst_is_seen() -> None:
    """In some of a few networks at least: rows that do not bind at the optimum change without a trace."""
    goal = replace(NO_FLIP, constant=np.array([0.05, -0.1, 0.15]))
    seen = np.zeros(9 + 3, dtype=bool)
    for seed in range(8):
        problem, box, points = asked(seed, goal)
        truth = best_row(goal, margins(problem, points)).min()
        program = big_m(box).worst(goal)
        program = replace(program, lower=np.append(program.lower[:-1], -100.0))
        entries = np.flatnonzero(program.rows.indices >= program.columns - 3)
        assert len(entries) == 9
        for k, entry in enumerate(entries):
            rows = program.rows.copy()
            rows.data[entry] *= -1
            found = optimum(replace(program, rows=rows))
            seen[k] |= found is None or abs(found[0] - truth) > 1e-4
        for k in range(3):
            row_lower = program.row_lower.copy()
            row_lower[k - 3] *= -1
            seen[9 + k] |= abs(value(optimum(replace(program, row_lower=row_lower))) - truth) > 1e-4
    assert seen.all()


# Gaps, decided and maximised


def decided(problem: TwinProblem, encoding: Encoding, goal: Goal, *, exact: bool) -> tuple[bool, Array | None]:
    """Whether the gap is at most epsilon everywhere, by refining: what an engine does, in a few lines; and a witness if not."""
    assert goal.gap is not None
    for _ in range(60):
        if exact:
            solution = satisfiable(encoding.violated(goal))
        else:
            found = optimum(encoding.worst(goal))
            solution = None if found is None or found[0] > -1e-7 else found[1]
        if solution is None:
            return True, None
        raw = encoding.decode(solution)
        pair = exact_margins(problem, raw)[0]
        a, b = pair[::-1] if goal.gap.rise else pair
        if exceeds(a, b, goal.gap.epsilon):
            return False, raw
        further = refined(goal, pair.astype(float))
        if further is None:
            return True, None
        goal = further
    raise AssertionError("refining did not end")


@settings(max_examples=25)
@given(seed=st.integers(0, 2**31), share=st.sampled_from([0.5, 0.98, 1.02, 1.5]), rise=st.booleans(), exact=st.booleans())
def test_a_gap_is_decided_as_by_brute_force(seed: int, share: float, rise: bool, exact: bool) -> None:
    problem, box, points = asked(seed, DIFFERENCE, (2,) if exact else (4, 3))
    largest = gaps(margins(problem, points), rise=rise).max()
    epsilon = float(np.clip(share * largest, 1e-3, 0.999))
    if abs(epsilon - largest) < 1e-4:
        return
    encoding = smt(box) if exact else big_m(box)
    holds, witness = decided(problem, encoding, gap_goal(epsilon, rise=rise, count=3), exact=exact)
    assert holds == (largest < epsilon)
    if witness is not None:
        assert gaps(margins(problem, witness), rise=rise)[0] > epsilon


@pytest.mark.parametrize("rise", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_bisection_finds_the_largest_gap(seed: int, rise: bool) -> None:
    """A witness lifts the lower end to its own gap, a proof lowers the upper end."""
    problem, box, points = asked(seed, DIFFERENCE)
    truth = gaps(margins(problem, points), rise=rise).max()
    encoding, low, high = big_m(box), 0.0, 1.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        holds, witness = decided(problem, encoding, gap_goal(middle, rise=rise), exact=False)
        if holds:
            high = middle
        else:
            assert witness is not None
            low = float(gaps(margins(problem, witness), rise=rise)[0])
    assert max(truth, 0.0) == pytest.approx(high, abs=2e-3)
    assert low <= max(truth, 0.0) + 1e-12
