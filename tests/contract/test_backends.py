"""One suite for every backend. An absent one skips visibly."""

import subprocess
import sys
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from solvers import registry
from solvers.outcome import BackendError, Budget, LicenceLimit, Limit, Outcome, Termination, Unavailable, UnsupportedProgram
from solvers.program import Clause, Program
from solvers.registry import Capability

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from programs import INF, dual_objective, farkas_gap, market_split, program, random_lp, sound, violation  # noqa: E402

NAMES = [backend.name for backend in registry.backends()]
BUDGET = Budget(seconds=60)
SLACK = 1e-5


def having(*capabilities: Capability) -> pytest.MarkDecorator:
    """Parametrise over the backends with these capabilities; the installed ones run."""
    chosen = [backend for backend in registry.backends() if backend.capabilities.issuperset(capabilities)]
    assert chosen
    return pytest.mark.parametrize("name", [
        pytest.param(b.name, marks=pytest.mark.skipif(not b.is_available(), reason=f"{b.package} is not installed"))
        for b in chosen])


def solve(asked: Program, name: str, **options: bool) -> Outcome:
    return registry.solve(asked, backend=name, budget=BUDGET, presolve=options.get("presolve"))


ROWS = program(lower=[-INF, 0, -2], upper=[INF, INF, 2], rows=[[1, 1, 0], [1, -1, 1], [0, 1, 2], [1, 0, 0]],
               row_lower=[2, -1, -INF, -INF], row_upper=[2, 3, 4, INF], objective=[1, 3, -1], constant=10.0)
KNAPSACK = program(lower=[0] * 4, upper=[3, 1, 1, 2], rows=[[5, 7, 4, 3], [1, -1, 0, 0]], row_lower=[-INF, -1],
                   row_upper=[14, INF], objective=[-8, -11, -6, -4], integer=[True] * 4)  # fractional relaxation


# Linear programs

@having(Capability.LP)
@pytest.mark.parametrize("presolve", [True, False, None])
def test_lp_with_free_columns_equality_and_infinite_sides(name: str, presolve: bool | None) -> None:
    outcome = registry.solve(ROWS, backend=name, budget=BUDGET, presolve=presolve)
    assert outcome.termination is Termination.OPTIMAL
    assert outcome.limit is None
    assert outcome.tolerance == registry.get(name).tolerance
    assert outcome.primal_bound == pytest.approx(11.0, abs=SLACK)  # by hand: v = (2, 0, 1)
    assert outcome.dual_bound == pytest.approx(11.0, abs=SLACK)
    sound(ROWS, outcome, SLACK)


@having(Capability.LP, Capability.DUALS)
@pytest.mark.parametrize("presolve", [True, False])
def test_lp_duals_reprove_the_optimum(name: str, presolve: bool) -> None:
    for asked in (ROWS, random_lp(40, 60, 0.2, seed=1)):
        outcome = registry.solve(asked, backend=name, budget=BUDGET, presolve=presolve)
        assert outcome.termination is Termination.OPTIMAL
        sound(asked, outcome, SLACK)
        assert outcome.duals is not None
        assert dual_objective(asked, outcome.duals) == pytest.approx(outcome.primal_bound, abs=SLACK)


@having(Capability.LP)
def test_lp_infeasible_with_its_farkas_ray(name: str) -> None:
    small = program(lower=[0, 0], upper=[1, INF], rows=[[1, 1], [1, 2], [1, 0]], row_lower=[5, -INF, -INF], row_upper=[INF, 4, 1],
                    objective=[1, 1])
    ranged = program(lower=[-1, -INF, 0], upper=[1, INF, 1], rows=[[1, 1, 0], [-1, 1, 1]], row_lower=[4, -3], row_upper=[6, 0.5],
                     objective=[0, 1, 0])
    for asked in (small, ranged):
        outcome = solve(asked, name)
        assert outcome.termination is Termination.INFEASIBLE
        assert outcome.values is None
        if Capability.RAY in registry.get(name).capabilities:
            assert outcome.ray is not None
            assert farkas_gap(asked, outcome.ray) > 1e-3


@having(Capability.LP)
def test_lp_unbounded(name: str) -> None:
    asked = program(lower=[0, 0], upper=[INF, INF], rows=[[1, -1]], row_lower=[-1], row_upper=[1], objective=[-1, -1])
    outcome = solve(asked, name)
    if name == "ortools-scip":  # MathOpt 9.15 rejects SCIP's infinite objective
        assert outcome.termination is Termination.ERROR
    else:
        assert outcome.termination in (Termination.UNBOUNDED, Termination.INFEASIBLE_OR_UNBOUNDED)
    assert outcome.dual_bound is None


@having(Capability.LP)
def test_no_rows(name: str) -> None:
    asked = program(lower=[-1, 2], upper=[3, 4], rows=[], row_lower=[], row_upper=[], objective=[-1, 1])
    outcome = solve(asked, name)
    assert outcome.termination is Termination.OPTIMAL
    assert outcome.primal_bound == pytest.approx(-1.0, abs=SLACK)


@having(Capability.LP)
def test_feasibility_question(name: str) -> None:
    asked = replace(ROWS, objective=None)
    outcome = solve(asked, name)
    assert outcome.termination is Termination.SATISFIED
    assert outcome.primal_bound is None
    assert outcome.dual_bound is None
    sound(asked, outcome, SLACK)
    empty = program(lower=[0], upper=[1], rows=[[2.0]], row_lower=[3], row_upper=[4], objective=None)
    assert solve(empty, name).termination is Termination.INFEASIBLE


@having(Capability.LP)
def test_unsorted_and_repeated_entries_are_added_up(name: str) -> None:
    matrix = sp.csr_array((np.array([1.0, 1.0, 1.0]), np.array([1, 0, 1]), np.array([0, 3])), shape=(1, 2))
    asked = program(lower=[0, 0], upper=[9, 9], rows=[[0, 0]], row_lower=[4], row_upper=[INF], objective=[3, 4])
    asked = replace(asked, rows=matrix)
    assert solve(asked, name).primal_bound == pytest.approx(8.0, abs=SLACK)  # v_0 + 2 v_1 >= 4


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("part", ["column", "row"])
def test_crossed_bounds_are_infeasible(name: str, part: str) -> None:
    backend = registry.get(name)
    if not backend.is_available():
        pytest.skip(f"{backend.package} is not installed")
    asked = program(lower=[1 if part == "column" else 0], upper=[0 if part == "column" else 1], rows=[[1]],
                    row_lower=[0 if part == "column" else 2], row_upper=[1], objective=[1],
                    integer=[Capability.LP not in backend.capabilities])
    outcome = solve(asked, name)
    assert outcome.termination is Termination.INFEASIBLE
    assert f"{part} 0" in outcome.message


def test_a_sequence_from_the_last_basis_gives_the_same_answers() -> None:
    from solvers import highs

    first = random_lp(40, 60, 0.2, seed=1)
    rng = np.random.default_rng(2)
    near = replace(first, rows=sp.csr_array(first.rows * 1.001), upper=first.upper + rng.uniform(0, 0.01, 40))
    infeasible = replace(first, lower=np.full(40, 5.0), upper=np.full(40, 6.0))
    asked = [first, near, infeasible, ROWS, near, random_lp(30, 20, 0.3, seed=3)]
    simplex, basis, outcomes = highs.HotStart(), None, []
    for one in asked:
        outcome, found = simplex.solve(one, seconds=BUDGET.seconds, iterations=10_000, basis=basis)
        basis = found or basis
        outcomes.append(outcome)
        alone = solve(one, "highs")
        assert outcome.termination is alone.termination
        assert outcome.primal_bound == (None if alone.primal_bound is None else pytest.approx(alone.primal_bound, abs=1e-7))
    assert outcomes[2].termination is Termination.INFEASIBLE


# Integer programs

@having(Capability.PURE_INTEGER)
@pytest.mark.parametrize("presolve", [True, False, None])
def test_integer_optimum(name: str, presolve: bool | None) -> None:
    outcome = registry.solve(KNAPSACK, backend=name, budget=BUDGET, presolve=presolve)
    grid = np.stack(np.meshgrid(*[np.arange(int(u) + 1.0) for u in KNAPSACK.upper], indexing="ij"), -1).reshape(-1, 4)
    allowed = [point for point in grid if violation(KNAPSACK, point) == 0]
    assert KNAPSACK.objective is not None
    assert outcome.termination is Termination.OPTIMAL
    assert outcome.primal_bound == pytest.approx(min(KNAPSACK.objective @ point for point in allowed), abs=SLACK)
    assert outcome.dual_bound == pytest.approx(outcome.primal_bound, abs=SLACK)
    sound(KNAPSACK, outcome, SLACK)


@having(Capability.MIP)
def test_mixed_integer_optimum_and_its_relaxation(name: str) -> None:
    asked = program(lower=[0, -5], upper=[10, 5], rows=[[2, 1], [-1, 1]], row_lower=[3.5, -INF], row_upper=[INF, 0.25],
                    objective=[1, 0.125], integer=[True, False])
    whole = solve(asked, name)
    assert whole.termination is Termination.OPTIMAL
    assert whole.primal_bound == pytest.approx(2 - 0.0625, abs=SLACK)  # by hand: v = (2, -0.5)
    relaxed = registry.solve(asked, backend=name, budget=BUDGET, relax_integrality=True)
    assert relaxed.termination is Termination.OPTIMAL
    assert relaxed.primal_bound == pytest.approx(13 / 12 + (4 / 3) / 8, abs=SLACK)  # by hand: v = (13/12, 4/3)


@having(Capability.PURE_INTEGER)
def test_integer_infeasible_although_the_relaxation_is_not(name: str) -> None:
    asked = program(lower=[0, 0], upper=[5, 5], rows=[[2, 2]], row_lower=[3], row_upper=[3], objective=[1, 0], integer=[True, True])
    assert solve(asked, name).termination is Termination.INFEASIBLE
    assert solve(replace(asked, objective=None), name).termination is Termination.INFEASIBLE


@having(Capability.MIP)
def test_tiny_coefficients_are_why_no_float_answer_is_trusted(name: str) -> None:
    """v == 1e-7, b >= v, b binary: exactly, b must be 1. Solvers in floats answer 0 and call it optimal."""
    asked = program(lower=[-1, 0], upper=[1, 1], rows=[[1, 0], [-1, 1]], row_lower=[1e-7, 0], row_upper=[1e-7, INF],
                    objective=[0, 1], integer=[False, True])
    outcome = solve(asked, name)
    assert outcome.termination is Termination.OPTIMAL
    if Capability.EXACT in registry.get(name).capabilities:
        assert outcome.tolerance == 0
        assert outcome.exact_values == (Fraction(1e-7), Fraction(1))
    else:
        assert outcome.values is not None
        assert violation(asked, outcome.values) <= outcome.tolerance
        assert outcome.tolerance > 1e-7
        if name in ("highs", "scip"):
            assert outcome.values[1] < 0.5


# Limits

@having()
def test_time_limit_is_a_limit(name: str) -> None:
    integral = Capability.PURE_INTEGER in registry.get(name).capabilities
    asked = market_split() if integral else random_lp(1200, 1800, 0.02, seed=0)
    seconds = 1.0 if integral else 0.2
    started = time.perf_counter()
    outcome = registry.solve(asked, backend=name, budget=Budget(seconds=seconds))
    assert (outcome.termination, outcome.limit) == (Termination.LIMIT, Limit.TIME)
    assert time.perf_counter() - started < seconds + 10
    if outcome.values is not None:
        sound(asked, outcome, SLACK)


@having(Capability.NODE_LIMIT)
def test_node_limit_is_a_limit(name: str) -> None:
    outcome = registry.solve(market_split(), backend=name, budget=Budget(seconds=60, nodes=3))
    assert (outcome.termination, outcome.limit) == (Termination.LIMIT, Limit.NODES)
    assert outcome.nodes is not None
    assert outcome.nodes <= 10


BELOW, ABOVE = 900.0, -0.5
"""Of the market split, whose slacks sum to 0 at best: any decent point, and less than its relaxation's bound."""


@having(Capability.STOP_BELOW)
@pytest.mark.parametrize("constant", [0.0, 1000.0])
def test_a_point_that_is_good_enough_ends_the_search(name: str, constant: float) -> None:
    asked = replace(market_split(), constant=constant)
    for above in (None, BELOW + constant):
        outcome = registry.solve(asked, backend=name, budget=Budget(seconds=60, stop_below=BELOW + constant, stop_above=above))
        assert (outcome.termination, outcome.limit) == (Termination.LIMIT, Limit.DECIDED)
        assert outcome.values is not None
        assert violation(asked, outcome.values) <= SLACK
        assert outcome.primal_bound is not None
        assert outcome.primal_bound <= BELOW + constant + SLACK
        assert outcome.dual_bound is None or outcome.dual_bound <= constant + SLACK  # never above the optimum


@having(Capability.STOP_ABOVE)
@pytest.mark.parametrize("constant", [0.0, 1000.0])
def test_a_bound_that_suffices_ends_the_search(name: str, constant: float) -> None:
    asked = replace(market_split(), constant=constant)
    for below in (None, ABOVE + constant - 1):
        outcome = registry.solve(asked, backend=name, budget=Budget(seconds=60, stop_below=below, stop_above=ABOVE + constant))
        assert (outcome.termination, outcome.limit) == (Termination.LIMIT, Limit.DECIDED)
        assert outcome.dual_bound is not None
        assert ABOVE + constant - SLACK <= outcome.dual_bound <= constant + SLACK


@having(Capability.PURE_INTEGER)
@pytest.mark.parametrize("stops", [(-40.0, None), (None, -20.0), (-40.0, -20.0), (-22.0, -22.0), (-23.0, -21.0)])
def test_stops_at_and_beyond_the_optimum_never_change_what_is_claimed(name: str, stops: tuple[float | None, float | None]) -> None:
    """The knapsack's optimum is -22: a stop that is never reached leaves it to be found; one at the edge may be used or not."""
    optimum = solve(KNAPSACK, name).primal_bound
    assert optimum == pytest.approx(-22.0, abs=SLACK)
    outcome = registry.solve(KNAPSACK, backend=name, budget=Budget(seconds=60, stop_below=stops[0], stop_above=stops[1]))
    decided = outcome.limit is Limit.DECIDED
    assert decided or outcome.termination is Termination.OPTIMAL
    assert outcome.dual_bound is None or outcome.dual_bound <= optimum + SLACK
    assert outcome.primal_bound is None or outcome.primal_bound >= optimum - SLACK
    if decided:
        good = stops[0] is not None and outcome.primal_bound is not None and outcome.primal_bound <= stops[0] + SLACK
        enough = stops[1] is not None and outcome.dual_bound is not None and outcome.dual_bound >= stops[1] - SLACK
        assert good or enough


@having(Capability.LP, Capability.EXACT)
def test_an_exact_backend_decides_at_the_edge(name: str) -> None:
    """minimise v on [third, 1]: at most the optimum itself is met, less than it is not."""
    third = program(lower=[0], upper=[1], rows=[[3.0]], row_lower=[1], row_upper=[INF], objective=[1.0])
    met = registry.solve(third, backend=name, budget=Budget(seconds=60, stop_below=0.5))
    assert met.limit is Limit.DECIDED
    assert met.exact_values is not None
    assert Fraction(1, 3) <= met.exact_values[0] <= Fraction(1, 2)
    below = float(np.nextafter(1 / 3, 0))
    assert Fraction(below) < Fraction(1, 3)
    bounded = registry.solve(third, backend=name, budget=Budget(seconds=60, stop_above=below))
    assert (bounded.limit, bounded.dual_bound) == (Limit.DECIDED, below)
    beyond = registry.solve(third, backend=name, budget=Budget(seconds=60, stop_below=below, stop_above=0.5))
    assert beyond.termination is Termination.OPTIMAL
    assert beyond.exact_values == (Fraction(1, 3),)


@having(Capability.PURE_INTEGER)
def test_a_program_without_a_point_is_infeasible_whatever_the_stops(name: str) -> None:
    asked = program(lower=[0, 0], upper=[5, 5], rows=[[2, 2]], row_lower=[3], row_upper=[3], objective=[1, 0], integer=[True, True])
    for stops in ((None, -1.0), (-1.0, None), (-2.0, -1.0), (0.0, 1.0)):
        outcome = registry.solve(asked, backend=name, budget=Budget(seconds=60, stop_below=stops[0], stop_above=stops[1]))
        assert outcome.termination is Termination.INFEASIBLE or outcome.limit is Limit.DECIDED
        assert outcome.values is None
        if Capability.EXACT in registry.get(name).capabilities:
            assert outcome.termination is Termination.INFEASIBLE


@having()
def test_stops_leave_linear_programs_and_feasibility_questions_alone(name: str) -> None:
    if Capability.LP not in registry.get(name).capabilities:
        pytest.skip("takes no linear programs")
    budget = Budget(seconds=60, stop_below=100.0, stop_above=100.0)
    outcome = registry.solve(ROWS, backend=name, budget=budget)
    assert outcome.termination is Termination.OPTIMAL or outcome.limit is Limit.DECIDED
    assert outcome.primal_bound is not None
    assert 11.0 - SLACK <= outcome.primal_bound <= 100.0
    question = replace(ROWS, objective=None)
    assert registry.solve(question, backend=name, budget=budget).termination is Termination.SATISFIED


def test_a_budget_refuses_stops_that_cross_or_are_no_numbers() -> None:
    for below, above in ((1.0, 0.0), (float("nan"), None), (None, float("nan"))):
        with pytest.raises(ValueError, match="stop_below"):
            Budget(stop_below=below, stop_above=above)


@having()
def test_what_a_backend_cannot_obey_is_said(name: str) -> None:
    capabilities = registry.get(name).capabilities
    asked = KNAPSACK if Capability.PURE_INTEGER in capabilities else ROWS
    limits = Budget(seconds=60, nodes=10_000, memory_mb=4000, threads=2, seed=7, stop_below=-1e6, stop_above=1e6)
    outcome = registry.solve(asked, backend=name, budget=limits)
    assert outcome.termination is Termination.OPTIMAL
    budget = {Capability.MEMORY_LIMIT, Capability.THREADS, Capability.SEED}
    budget |= {Capability.NODE_LIMIT, Capability.STOP_BELOW, Capability.STOP_ABOVE} if asked is KNAPSACK else set()
    for capability in budget:
        assert (f"no {capability.value}" in outcome.message) == (capability not in capabilities)


@having()
def test_thread_counts_may_change_between_solves(name: str) -> None:
    asked = KNAPSACK if Capability.PURE_INTEGER in registry.get(name).capabilities else ROWS
    for threads in (1, 2, 1):
        outcome = registry.solve(asked, backend=name, budget=Budget(seconds=60, threads=threads))
        assert outcome.termination is Termination.OPTIMAL


INTERRUPTED = """
import os, signal, sys, threading
sys.path.insert(0, sys.argv[1])
from programs import market_split, program, random_lp
from solvers import registry
from solvers.outcome import Budget
integral = registry.Capability.PURE_INTEGER in registry.get(sys.argv[2]).capabilities
asked = market_split() if integral else random_lp(2400, 3600, 0.02, seed=0)
small = program(lower=[0], upper=[1], rows=[[1.0]], row_lower=[0], row_upper=[1], objective=[1], integer=[integral])
registry.solve(small, backend=sys.argv[2], budget=Budget(seconds=50))  # the package is loaded before the signal comes
threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT)).start()
outcome = registry.solve(asked, backend=sys.argv[2], budget=Budget(seconds=50))
print(outcome.termination.name, outcome.limit and outcome.limit.name)
"""


@having()
def test_ctrl_c_gives_back_an_outcome(name: str) -> None:
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, str(HERE), name], capture_output=True, text=True, timeout=100,
                          check=False, cwd=HERE.parents[1])
    assert "LIMIT INTERRUPTED" in done.stdout.splitlines(), done  # Gurobi may say later that it was interrupted
    assert time.perf_counter() - started < 40


# Refusals

@pytest.mark.parametrize("name", NAMES)
def test_missing_package(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = registry.get(name)
    monkeypatch.setitem(sys.modules, backend.package, None)
    assert not backend.is_available()
    assert backend.version() is None
    assert backend not in registry.available()
    with pytest.raises(Unavailable, match="not installed; pip install") as caught:
        solve(ROWS, name)
    assert caught.value.exit_code == 4
    if backend.extra is not None:
        assert f'"verifair[{backend.extra}]"' in str(caught.value)


def test_unknown_name() -> None:
    with pytest.raises(BackendError, match="no solver is called 'cplex'; known are highs, "):
        registry.get("cplex")


@having()
def test_capability_mismatch_is_raised_before_solving(name: str) -> None:
    capabilities = registry.get(name).capabilities
    clause = Clause(rows=sp.csr_array(np.eye(2)), bound=np.ones(2), strict=np.zeros(2, bool))
    plain = program(lower=[0, 0], upper=[2, 2], rows=[[1, 1]], row_lower=[0], row_upper=[3], objective=[1, 1])
    kinds = {
        Capability.LP: plain,
        Capability.PURE_INTEGER: replace(plain, integer=np.array([True, True])),
        Capability.MIP: replace(plain, integer=np.array([True, False])),
        Capability.RELU: replace(plain, relus=np.array([[0, 1]])),
        Capability.CLAUSES: replace(plain, clauses=(clause,)),
    }
    for kind, asked in kinds.items():
        if kind in capabilities:
            assert solve(asked, name).termination is Termination.OPTIMAL
        else:
            told = f"^{name}: it does not take .*{kind.value}.*; installed backends that do: "
            with pytest.raises(UnsupportedProgram, match=told):
                solve(asked, name)


@having()
def test_nan_and_no_columns_are_refused(name: str) -> None:
    integer = Capability.LP not in registry.get(name).capabilities
    asked = program(lower=[0], upper=[1], rows=[[float("nan")]], row_lower=[0], row_upper=[1], objective=[1], integer=[integer])
    with pytest.raises(UnsupportedProgram, match="rows contains NaN"):
        solve(asked, name)
    with pytest.raises(UnsupportedProgram, match="no columns"):
        solve(program(lower=[], upper=[], rows=[], row_lower=[], row_upper=[], objective=[]), name)


def test_gurobi_licence_limit_is_raised_before_submitting() -> None:
    pytest.importorskip("gurobipy")
    from solvers import gurobi

    if not gurobi._size_limited():
        pytest.skip("this machine has a full Gurobi licence")
    with pytest.raises(LicenceLimit, match=r"this program has 2001 columns and 2 rows.*highs"):
        solve(replace(random_lp(2001, 1, 0.1, seed=0), objective=None), "gurobi")
    ranged = replace(random_lp(10, 1200, 0.1, seed=0), row_lower=np.full(1200, -100.0), row_upper=np.full(1200, 100.0))
    with pytest.raises(LicenceLimit, match="2400 rows"):
        solve(ranged, "gurobi")
    assert registry.get("gurobi").max_columns == 2000


def test_cpsat_scales_exactly_or_refuses() -> None:
    pytest.importorskip("ortools")
    asked = program(lower=[0, 0], upper=[8, 8], rows=[[0.375, -0.0625], [3, 1]], row_lower=[0.2, -INF], row_upper=[INF, 20.5],
                    objective=[-0.5, -0.25], integer=[True, True], constant=1.0)
    outcome = solve(asked, "ortools-cpsat")
    assert outcome.termination is Termination.OPTIMAL
    assert outcome.tolerance == 0
    assert outcome.primal_bound == outcome.dual_bound == -3.0  # v = (4, 8): row 0 is 1 and row 1 is 20
    rough = replace(asked, rows=sp.csr_array(np.array([[1e-30, 1.0], [3.0, 1.0]])))
    with pytest.raises(UnsupportedProgram, match=r"row 0 .* int64"):
        solve(rough, "ortools-cpsat")
    with pytest.raises(UnsupportedProgram, match=r"objective .* int64"):
        solve(replace(asked, objective=np.array([1e-30, 1.0])), "ortools-cpsat")
    with pytest.raises(UnsupportedProgram, match="column 1 has bounds"):
        solve(replace(asked, upper=np.array([8.0, INF])), "ortools-cpsat")


@pytest.mark.parametrize(("said", "result", "expected"), [
    ("Optimal", "Optimal solution found", (Termination.OPTIMAL, None)),
    ("Optimal", "Stopped on time limit", (Termination.LIMIT, Limit.TIME)),
    ("Optimal (within gap tolerance)", "Optimal solution found (within gap tolerance)", (Termination.LIMIT, Limit.OTHER)),
    ("Infeasible", "Problem proven infeasible", (Termination.INFEASIBLE, None)),
    ("Integer infeasible", "Stopped on node limit", (Termination.LIMIT, Limit.NODES)),
    ("Unbounded", "Linear relaxation unbounded", (Termination.INFEASIBLE_OR_UNBOUNDED, None)),
    ("Stopped on iterations", "Stopped on node limit", (Termination.LIMIT, Limit.NODES)),
    ("Stopped on time (no integer solution - continuous used)", "", (Termination.LIMIT, Limit.TIME)),
    ("Stopped on difficulties", "", (Termination.NUMERICAL, None)),
    ("Something new", "", (Termination.ERROR, None)),
    ("", "", (Termination.ERROR, None)),
])
def test_cbc_is_believed_only_where_its_two_reports_agree(said: str, result: str, expected: tuple[Termination, object]) -> None:
    from solvers import cbc

    left = cbc._Solution(status=said, log=f"Version: 2.10.3\n\nResult - {result}\n", point=None, duals=None)
    assert cbc._reason(left, KNAPSACK, False, False) is (expected[1] or expected[0])
    finished = Termination.OPTIMAL if expected[0] is Termination.OPTIMAL else Limit.TIME
    assert cbc._reason(left, KNAPSACK, False, True) is finished


def test_cbc_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pulp")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert solve(KNAPSACK, "cbc").termination is Termination.OPTIMAL
    assert registry.solve(market_split(), backend="cbc", budget=Budget(seconds=0.3)).termination is Termination.LIMIT
    assert not list(tmp_path.iterdir())


def test_cbc_numbers_keep_their_digits() -> None:
    """Values and coefficients that eight digits would not tell apart."""
    pytest.importorskip("pulp")
    fixed = np.random.default_rng(0).uniform(-1, 1, 50)
    coefficients = np.linspace(0.1, 0.9, 50)
    asked = program(lower=[*fixed, -INF], upper=[*fixed, INF], rows=[[*coefficients, -1.0]], row_lower=[0], row_upper=[0],
                    objective=[0.0] * 50 + [1.0])
    outcome = solve(asked, "cbc")
    assert outcome.values is not None
    np.testing.assert_allclose(outcome.values[:50], fixed, rtol=1e-15)
    assert outcome.primal_bound == pytest.approx(float(coefficients @ fixed), abs=1e-13)


# Exact arithmetic, ReLUs and clauses

@having(Capability.LP, Capability.EXACT)
def test_exact_rationals_see_what_tolerances_hide(name: str) -> None:
    asked = program(lower=[1, 1], upper=[1, 1], rows=[[0.1, 0.2]], row_lower=[0.3], row_upper=[0.3], objective=None)
    assert solve(asked, "highs").termination is Termination.SATISFIED
    assert solve(asked, name).termination is Termination.INFEASIBLE
    third = program(lower=[0], upper=[1], rows=[[3.0]], row_lower=[1], row_upper=[1], objective=None)
    assert solve(third, name).exact_values == (Fraction(1, 3),)


@having(Capability.RELU, Capability.CLAUSES)
def test_relus(name: str) -> None:
    asked = program(lower=[-2, -9, -9], upper=[3, 9, 9], rows=[[1, -1, 1]], row_lower=[0], row_upper=[0], objective=[0, 0, 1],
                    relus=[(0, 1)])  # v_2 = relu(v_0) - v_0
    assert solve(asked, name).primal_bound == 0.0
    highest = solve(replace(asked, objective=np.array([0.0, 0.0, -1.0])), name)
    assert highest.exact_values == (Fraction(-2), Fraction(0), Fraction(2))
    negative = replace(asked, upper=np.array([3.0, -1e-300, 9.0]), objective=None)
    assert solve(negative, name).termination is Termination.INFEASIBLE


@having(Capability.RELU, Capability.CLAUSES)
def test_clauses_strict_or_not(name: str) -> None:
    def asked(strict: bool, bound: float) -> Program:
        clause = Clause(rows=sp.csr_array(np.array([[1.0, 0.0], [0.0, 1.0]])), bound=np.array([bound, bound]),
                        strict=np.array([strict, strict]))
        box = program(lower=[0, 0], upper=[1, 1], rows=[], row_lower=[], row_upper=[], objective=None, integer=[True, False])
        return replace(box, clauses=(clause,))

    assert solve(asked(False, 1.0), name).termination is Termination.SATISFIED
    assert solve(asked(True, 1.0), name).termination is Termination.INFEASIBLE
    inside = solve(asked(True, 0.999), name)
    assert inside.termination is Termination.SATISFIED
    assert inside.exact_values is not None
    assert max(inside.exact_values) > Fraction(0.999)
    with pytest.raises(UnsupportedProgram, match="strict"):
        solve(replace(asked(True, 0.5), objective=np.array([1.0, 1.0])), name)
    least = solve(replace(asked(False, 0.5), objective=np.array([1.0, 1.0])), name)
    assert (least.termination, least.primal_bound, least.dual_bound) == (Termination.OPTIMAL, 0.5, 0.5)
    nothing = Clause(rows=sp.csr_array((0, 2)), bound=np.zeros(0), strict=np.zeros(0, bool))
    assert solve(replace(asked(False, 0.5), clauses=(nothing,)), name).termination is Termination.INFEASIBLE


# One process

ORDER = """
import sys
sys.path.insert(0, sys.argv[1])
from test_backends import KNAPSACK, ROWS, solve
from solvers import registry
loaded = {"highspy", "gurobipy", "pyscipopt", "ortools", "pulp", "z3"} & set(sys.modules)
assert not loaded, f"imported before being asked for: {loaded}"
for name in sys.argv[2:]:
    asked = KNAPSACK if registry.Capability.PURE_INTEGER in registry.get(name).capabilities else ROWS
    print(name, solve(asked, name).termination.name)
"""


@pytest.mark.parametrize("order", ["forward", "backward", "middle"])
def test_all_backends_share_a_process_in_any_order(order: str) -> None:
    names = [backend.name for backend in registry.available()]
    names = {"forward": names, "backward": names[::-1], "middle": names[len(names) // 2 :] + names[: len(names) // 2]}[order]
    done = subprocess.run([sys.executable, "-c", ORDER, str(HERE), *names], capture_output=True, text=True, timeout=120,
                          check=False, cwd=HERE.parents[1])
    assert done.stdout.split("\n")[:-1] == [f"{name} OPTIMAL" for name in names], done.stderr
