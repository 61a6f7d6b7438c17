"""The paper's k-center program: a fixed solution costs what it costs, and every backend finds the optimum of brute force."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from encoders.network import Array
from encoders.programs.k_center import KCenter, centers, k_center
from solvers import registry
from solvers.outcome import Budget, Termination, UnsupportedProgram
from solvers.registry import Backend, Capability

BUDGET = Budget(seconds=60)
COST = np.array([
    [0.3, np.inf, 1.5, np.inf],
    [np.inf, np.inf, 0.7, 0.9],
    [2.0, np.inf, np.inf, 0.1],
    [0.3, np.inf, 4.0, np.inf],
])


@pytest.fixture(params=[b for b in registry.backends() if Capability.PURE_INTEGER in b.capabilities], ids=lambda b: b.name)
def installed(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    if not backend.is_available():
        pytest.skip(f"{backend.name}: {backend.package} is not installed")
    return backend


def random_costs(rng: np.random.Generator, factuals: int, candidates: int) -> Array:
    """Costs with ties and infeasible pairs; some candidates feasible for nobody."""
    cost = rng.choice([0.0, 0.1, 0.25, 0.5, 1 / 3, 0.7, 2.0], (factuals, candidates))
    cost[rng.random(cost.shape) < 0.4] = np.inf
    cost[:, rng.random(candidates) < 0.1] = np.inf
    return cost


def brute_force(cost: Array, k: int, coverage: int) -> float:
    """The optimum over all sets of at most k columns, np.inf where none covers enough."""
    columns = range(cost.shape[1])
    sets = itertools.chain.from_iterable(itertools.combinations(columns, size) for size in range(1, k + 1))
    return min(float(np.sort(cost[:, chosen].min(axis=1))[coverage - 1]) for chosen in sets)


def solved(backend: Backend, encoding: KCenter, fixed: dict[int, float] | None = None) -> tuple[Termination, Array | None]:
    """Solve with the u of some columns of the cost matrix fixed."""
    lower, upper = encoding.program.lower.copy(), encoding.program.upper.copy()
    for column, value in (fixed or {}).items():
        at = 1 + int(np.flatnonzero(encoding.candidates == column)[0])
        lower[at] = upper[at] = value
    outcome = backend.solve(replace(encoding.program, lower=lower, upper=upper), budget=BUDGET)
    return outcome.termination, outcome.values


def variants(backend: Backend) -> list[bool]:
    return [False, True] if Capability.MIP in backend.capabilities else [True]


def test_the_program_is_the_papers() -> None:
    """By hand: d, then u of columns 0, 2, 3, then r of the nine feasible pairs; rows (1), (2), (3), (4), (5)."""
    program = k_center(COST, k=2, coverage=3).program
    assert program.columns == 1 + 3 + 8
    assert len(program.row_lower) == 4 + 4 + 1 + 8 + 1
    dense = program.rows.toarray()
    np.testing.assert_array_equal(dense[0], [-1, 0, 0, 0, 0.3, 1.5, 0, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(dense[5], [0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0])
    np.testing.assert_array_equal(dense[8], [0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(dense[9], [0, -1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(dense[12], [0, 0, 0, -1, 0, 0, 0, 1, 0, 0, 0, 0])
    np.testing.assert_array_equal(dense[17], [0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1])
    assert (program.row_lower[4:8] == -np.inf).all()
    assert program.row_lower[17] == 3
    full = k_center(COST, k=2, coverage=4).program
    assert len(full.row_lower) == 17
    assert (full.row_lower[4:8] == full.row_upper[4:8]).all()


def test_a_fixed_choice_costs_what_it_costs(installed: Backend) -> None:
    """Columns 0 and 2 chosen: factuals cost 0.3, 0.7, 2.0, 0.3; so all four cost 2.0 and three of them 0.7."""
    for ranked in variants(installed):
        for coverage, largest, assignment in ((4, 2.0, [0, 2, 0, 0]), (3, 0.7, [0, 2, -1, 0])):
            encoding = k_center(COST, k=2, coverage=coverage, ranked=ranked)
            termination, values = solved(installed, encoding, {0: 1, 2: 1, 3: 0})
            assert termination is Termination.OPTIMAL
            assert values is not None
            expected = list(encoding.distinct).index(largest) if ranked else largest
            assert values[0] == pytest.approx(expected, abs=1e-6)
            answer = encoding.decode(values)
            assert answer is not None
            assert answer.cost == largest
            assert answer.chosen.tolist() == [0, 2]
            assert answer.assignment.tolist() == assignment
            assert answer.covered == coverage


def test_every_backend_finds_the_optimum_of_brute_force(installed: Backend) -> None:
    rng = np.random.default_rng(0)
    infeasible = 0
    for _ in range(4 if installed.name == "z3" else 12):
        cost = random_costs(rng, int(rng.integers(1, 7)), int(rng.integers(1, 7)))
        k, coverage = int(rng.integers(1, 4)), int(rng.integers(1, len(cost) + 1))
        best = brute_force(cost, k, coverage)
        infeasible += best == np.inf
        for ranked in variants(installed):
            encoding = k_center(cost, k=k, coverage=coverage, ranked=ranked)
            outcome = installed.solve(encoding.program, budget=BUDGET)
            if best == np.inf:
                assert outcome.termination is Termination.INFEASIBLE
                continue
            assert outcome.termination is Termination.OPTIMAL
            assert outcome.values is not None
            answer = encoding.decode(outcome.values)
            assert answer is not None
            assert answer.cost == best == encoding.lower_bound(outcome.dual_bound)
            assert len(answer.chosen) <= k
            assert answer.covered >= coverage
            assert cost[answer.assignment >= 0, answer.assignment[answer.assignment >= 0]].max() == best
    assert infeasible < 4


def test_a_run_cut_short_still_brackets_the_optimum(installed: Backend) -> None:
    if installed.name == "z3":
        pytest.skip("z3 ends as an error where building took its time")
    rng = np.random.default_rng(0)
    cost = np.linalg.norm(rng.random((40, 1, 5)) - rng.random((1, 30, 5)), axis=2)
    best = brute_force(cost, 2, 36)
    for ranked, seconds in itertools.product(variants(installed), (0.02, 0.2, 0.6)):
        encoding = k_center(cost, k=2, coverage=36, ranked=ranked)
        outcome = installed.solve(encoding.program, budget=Budget(seconds=seconds))
        assert outcome.termination in (Termination.OPTIMAL, Termination.LIMIT)
        assert encoding.lower_bound(outcome.dual_bound) <= best
        if outcome.values is None:
            assert outcome.termination is Termination.LIMIT
            continue
        answer = encoding.decode(outcome.values)
        assert answer is not None
        assert answer.cost >= best
        if outcome.termination is Termination.OPTIMAL:
            assert answer.cost == best


def test_ranks_tell_apart_what_a_tolerance_does_not(installed: Backend) -> None:
    """Two candidates whose costs differ by one rounding."""
    cost = np.array([[1.0, np.nextafter(1.0, 0)], [0.5, 0.5]])
    encoding = k_center(cost, k=1, coverage=2, ranked=True)
    termination, values = solved(installed, encoding)
    assert termination is Termination.OPTIMAL
    assert values is not None
    answer = encoding.decode(values)
    assert answer is not None
    assert answer.chosen.tolist() == [1]
    assert answer.cost < 1.0


def test_cpsat_takes_the_ranked_program_only() -> None:
    pytest.importorskip("ortools")
    with pytest.raises(UnsupportedProgram, match="continuous"):
        registry.solve(k_center(COST, k=2, coverage=4).program, backend="ortools-cpsat", budget=BUDGET)


def test_a_point_that_is_no_solution_is_not_decoded() -> None:
    encoding = k_center(COST, k=1, coverage=2)
    values = np.zeros(encoding.program.columns)
    assert encoding.decode(values) is None
    values[1:3] = 1
    assert encoding.decode(values) is None  # two columns, k = 1
    values[1] = 0.2
    answer = encoding.decode(values)
    assert answer is not None
    assert (answer.chosen.tolist(), answer.cost) == ([2], 1.5)
    assert centers(COST, np.array([2]), 4) is None  # factual 2 cannot use it


@pytest.mark.parametrize("ranked", [False, True])
def test_a_bound_on_the_objective_is_a_bound_on_the_cost(ranked: bool) -> None:
    encoding = k_center(COST, k=2, coverage=3, ranked=ranked)
    assert encoding.distinct.tolist() == [0.1, 0.3, 0.7, 0.9, 1.5, 2.0, 4.0]
    assert encoding.lower_bound(None) == 0.1
    for rank, cost in enumerate(encoding.distinct):
        assert encoding.lower_bound(float(rank) if ranked else float(cost)) == cost
        assert encoding.lower_bound(rank - 0.5 if ranked else float(cost) - 0.05) == cost
    assert encoding.lower_bound(1e3) == np.inf


@pytest.mark.parametrize(("arguments", "message"), [
    ({"cost": np.array([[np.nan]]), "k": 1, "coverage": 1}, "costs are numbers"),
    ({"cost": np.array([[-1.0]]), "k": 1, "coverage": 1}, "costs are numbers"),
    ({"cost": COST, "k": 0, "coverage": 1}, "k = 0"),
    ({"cost": COST, "k": 1, "coverage": 5}, "coverage = 5, expected 1 to 4"),
    ({"cost": COST, "k": 1, "coverage": 0}, "coverage = 0"),
])
def test_what_makes_no_sense_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        k_center(**arguments)  # type: ignore[arg-type]
