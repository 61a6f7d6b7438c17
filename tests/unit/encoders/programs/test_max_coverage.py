"""Maximum coverage and its exact bounds against brute force, with arbitrary multipliers and with an LP's duals."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from encoders.network import Array
from encoders.programs.max_coverage import coverage_bound, max_coverage, packing_bound
from solvers import registry
from solvers.outcome import Budget, Termination
from solvers.registry import Backend, Capability

BUDGET = Budget(seconds=60)
Booleans = np.ndarray

shapes = st.tuples(st.integers(1, 7), st.integers(1, 6))
incidences = shapes.flatmap(lambda shape: hnp.arrays(bool, shape))
multipliers = st.one_of(st.floats(-2, 50), st.floats(allow_nan=False), st.sampled_from([0.0, 1 / 3, 5e-324, 1e308]))


@pytest.fixture(params=[b for b in registry.backends() if Capability.PURE_INTEGER in b.capabilities], ids=lambda b: b.name)
def installed(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    if not backend.is_available():
        pytest.skip(f"{backend.name}: {backend.package} is not installed")
    return backend


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


def test_every_backend_finds_the_optimum_of_brute_force(installed: Backend) -> None:
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


def test_what_makes_no_sense_is_refused() -> None:
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
