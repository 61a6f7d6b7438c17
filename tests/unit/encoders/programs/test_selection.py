"""Programs that choose among points: the paper's k-center program and maximum coverage, against brute force."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from encoders.arrays import Array
from encoders.programs.k_center import KCenter, centers, k_center
from encoders.programs.max_coverage import UNIT, column_bounds, coverage_bound, max_coverage, packing_bound
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


# Maximum coverage and its exact bounds against brute force, with arbitrary multipliers and with an LP's duals.


Booleans = np.ndarray

shapes = st.tuples(st.integers(1, 7), st.integers(1, 6))
incidences = shapes.flatmap(lambda shape: hnp.arrays(bool, shape))
multipliers = st.one_of(st.floats(-2, 50), st.floats(allow_nan=False), st.sampled_from([0.0, 1 / 3, 5e-324, 1e308]))


def subsets(columns: int, k: int) -> list[list[int]]:
    return [list(chosen) for size in range(k + 1) for chosen in itertools.combinations(range(columns), size)]


def most(incidence: Booleans, weights: np.ndarray, k: int) -> int:
    """The largest weight that k columns cover."""
    return max(int(weights[incidence[:, chosen].any(axis=1)].sum()) for chosen in subsets(incidence.shape[1], k))


def fewest(incidence: Booleans) -> int | None:
    """The fewest columns that cover all rows, None where all of them do not."""
    columns = incidence.shape[1]
    return next((len(chosen) for chosen in subsets(columns, columns) if incidence[:, chosen].any(axis=1).all()), None)


@settings(max_examples=300)
@given(data=st.data(), incidence=incidences, k=st.integers(1, 7))
def test_no_multipliers_take_the_bound_below_the_optimum(data: st.DataObject, incidence: Booleans, k: int) -> None:
    rows = len(incidence)
    weights = data.draw(hnp.arrays(np.int64, rows, elements=st.one_of(st.integers(0, 9), st.integers(0, 2**53 // 8))))
    chosen = data.draw(hnp.arrays(float, rows, elements=multipliers))
    bound = coverage_bound(sp.csr_array(incidence), weights, chosen, k)
    assert bound >= most(incidence, weights, k)
    assert bound == coverage_bound(sp.csc_array(incidence), weights, chosen, k)
    assert abs(bound - min(_lagrangian(incidence, weights, chosen, k), weights.sum())) <= 1


@settings(max_examples=300)
@given(data=st.data(), incidence=incidences, k=st.integers(1, 7))
def test_no_multipliers_take_a_columns_bound_below_the_best_choice_with_it(
    data: st.DataObject, incidence: Booleans, k: int
) -> None:
    rows, columns = incidence.shape
    weights = data.draw(hnp.arrays(np.int64, rows, elements=st.integers(0, 9)))
    whole = np.array([data.draw(st.integers(0, int(weight) << UNIT)) for weight in weights], dtype=np.int64)
    found = column_bounds(sp.csc_array(incidence), weights, whole, k)
    assert found.bound == int(np.floor(_lagrangian(incidence, weights, whole / 2**UNIT, k) + 1e-9)) >= most(incidence, weights, k)
    for j, bound in enumerate(found.forced()):
        with_it = [chosen for chosen in subsets(columns, k) if j in chosen]
        assert found.bound >= bound >= max(int(weights[incidence[:, chosen].any(axis=1)].sum()) for chosen in with_it)
    assert (found.forced(found.gathered) == found.forced()).all()


def test_multipliers_out_of_range_bound_no_columns() -> None:
    covers, weights = sp.csc_array(np.ones((2, 2), dtype=bool)), np.array([1, 2])
    for multipliers in ([-1, 0], [0, (2 << UNIT) + 1]):
        with pytest.raises(ValueError, match="from 0 to the weight"):
            column_bounds(covers, weights, np.array(multipliers), 1)
    with pytest.raises(ValueError, match="too large for int64"):
        column_bounds(covers, np.array([2**40, 1]), np.array([0, 0]), 7)


@settings(max_examples=300)
@given(data=st.data(), incidence=incidences)
def test_no_multipliers_take_the_packing_bound_above_the_fewest(data: st.DataObject, incidence: Booleans) -> None:
    y = data.draw(hnp.arrays(float, len(incidence), elements=multipliers.filter(np.isfinite)))
    bound = packing_bound(sp.csr_array(incidence), y)
    least = fewest(incidence)
    assert bound == incidence.shape[1] + 1 if least is None else 1 <= bound <= least


@settings(max_examples=60)
@given(data=st.data(), incidence=incidences, k=st.integers(1, 4))
def test_duals_of_an_lp_prove_the_lp_bound(data: st.DataObject, incidence: Booleans, k: int) -> None:
    weights = data.draw(hnp.arrays(np.int64, len(incidence), elements=st.integers(0, 1000)))
    asked = max_coverage(sp.csr_array(incidence), weights, k=k)
    relaxed = registry.solve(asked.program, backend="highs", budget=BUDGET, relax_integrality=True)
    assert relaxed.termination is Termination.OPTIMAL
    assert relaxed.duals is not None
    assert relaxed.primal_bound is not None
    bound = asked.bound(relaxed.duals)
    assert most(incidence, weights, k) <= bound
    assert np.floor(-relaxed.primal_bound - 1e-6) <= bound <= np.floor(-relaxed.primal_bound + 1e-6)


@settings(max_examples=60)
@given(incidence=incidences)
def test_duals_of_a_covering_lp_prove_the_packing_bound(incidence: Booleans) -> None:
    incidence = incidence | ~incidence.any(axis=1, keepdims=True)  # every row in some column
    packing = scipy.optimize.linprog(-np.ones(len(incidence)), A_ub=incidence.T.astype(float), b_ub=np.ones(incidence.shape[1]))
    bound = packing_bound(sp.csr_array(incidence), packing.x)
    least = fewest(incidence)
    assert least is not None
    assert np.ceil(-packing.fun - 1e-6) <= bound <= least


def test_every_backend_finds_the_largest_coverage(installed: Backend) -> None:
    rng = np.random.default_rng(0)
    for _ in range(4 if installed.name == "z3" else 10):
        incidence = rng.random((int(rng.integers(1, 9)), int(rng.integers(1, 7)))) < 0.35
        weights = rng.integers(0, 5, len(incidence))
        k = int(rng.integers(1, 4))
        asked = max_coverage(sp.csc_array(incidence), weights, k=k)
        outcome = installed.solve(asked.program, budget=BUDGET)
        assert outcome.termination is Termination.OPTIMAL
        assert outcome.values is not None
        answer = asked.decode(outcome.values)
        assert answer is not None
        assert answer.weight == most(incidence, weights, k) == round(-(outcome.primal_bound or 0.0))
        assert len(answer.chosen) <= k
        np.testing.assert_array_equal(answer.covered, incidence[:, answer.chosen].any(axis=1))


def test_a_fixed_choice_weighs_what_it_covers() -> None:
    incidence = np.array([[1, 0, 1], [0, 1, 1], [0, 0, 1], [1, 0, 0]], bool)
    asked = max_coverage(sp.csr_array(incidence), np.array([5, 7, 11, 1]), k=2)
    values = np.zeros(asked.program.columns)
    values[[0, 1]] = 1
    answer = asked.decode(values)
    assert answer is not None
    assert (answer.chosen.tolist(), answer.covered.tolist(), answer.weight) == ([0, 1], [True, True, False, True], 13)
    values[2] = 1
    assert asked.decode(values) is None


def test_repeated_and_false_entries_do_not_count() -> None:
    """Two entries of one pair are one, a stored False is none, and the caller's arrays are left as they are."""
    data, indices, indptr = np.array([True, True, False]), np.array([0, 0, 1]), np.array([0, 3])
    covers = sp.csr_array((data, indices, indptr), shape=(1, 2))
    assert coverage_bound(covers, np.array([3]), np.array([3.0]), 1) == 3
    assert packing_bound(covers, np.array([1.0])) == 1
    asked = max_coverage(covers, np.array([3]), k=1)
    np.testing.assert_array_equal(asked.program.rows.toarray(), [[-1, 0, 1], [1, 1, 0]])
    assert covers.data.tolist() == [True, True, False]
    assert covers.indices.tolist() == [0, 0, 1]


def test_coverage_of_what_makes_no_sense_is_refused() -> None:
    covers = sp.csr_array(np.ones((2, 3), bool))
    whole = np.array([1, 2])
    for weights in (np.array([1.0, 2.0]), np.array([1]), np.array([-1, 2])):
        with pytest.raises(ValueError, match="expected whole numbers >= 0"):
            max_coverage(covers, weights, k=1)
    with pytest.raises(ValueError, match="k = 0"):
        max_coverage(covers, whole, k=0)
    with pytest.raises(ValueError, match="2\\^53"):
        coverage_bound(covers, np.array([2**62, 2**62]), np.zeros(2), 1)
    with pytest.raises(ValueError, match="multipliers"):
        coverage_bound(covers, whole, np.array([np.nan, 0]), 1)
    with pytest.raises(ValueError, match="infinite"):
        packing_bound(covers, np.array([np.inf, 0]))


def _lagrangian(incidence: Booleans, weights: np.ndarray, chosen: Array, k: int) -> Fraction:
    """The same bound in rationals, multipliers unrounded."""
    kept = [min(max(Fraction(0), Fraction(v)), Fraction(int(w))) if np.isfinite(v) else Fraction(int(w) * int(v > 0))
            for v, w in zip(chosen, weights, strict=True)]
    gathered = sorted((sum((kept[i] for i in np.flatnonzero(column)), Fraction(0)) for column in incidence.T), reverse=True)
    return int(weights.sum()) - sum(kept, Fraction(0)) + sum(gathered[:k], Fraction(0))
