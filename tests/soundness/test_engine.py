"""The engine against brute force: by boxes and by neurons, at ties, and where a question once went wrong."""

import json
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from encoders.bounds.difference import goal_bounds, interval_goals
from encoders.bounds.interval import interval_bounds
from encoders.bounds.twin import Twin
from encoders.domain import Domain, Forbidden
from encoders.exact.dyadic import exact
from encoders.model import Link
from encoders.network import Layer, Network
from encoders.probability.logistic import GapGoal, exceeds, gap_rows
from encoders.problem import Goal, TwinBatch, TwinProblem
from solvers.outcome import Budget, Limit, Outcome, Termination
from tests.brute_force import exact_forward, fractions
from tests.builders import claim_of, integer, network_of, schema_of, tree_flaw
from tests.draws import draws
from tests.soundness.random_twins import (
    FLIP,
    PBA,
    ROBUST,
    STRICT_SIGNS,
    STYLES,
    brute_force,
    nasty_network,
    random_problem,
    truth,
)
from verifair.checker.check import check
from verifair.engine import cascade as engine
from verifair.engine import solver as by_solver
from verifair.engine.queries import IndividualFairness
from verifair.engine.questions import decisions
from verifair.engine.search.branch_and_bound import decide
from verifair.engine.search.open_goals import OPEN, PROVED
from verifair.engine.search.optimum import minimum
from verifair.engine.search.signs.neurons import decide_by_phases
from verifair.engine.store import Store, VerdictRecord, Verdicts
from verifair.engine.verdict import Reason, Status
from verifair.engine.verify import verify
from verifair.errors import Disagreement
from verifair.schema.schema import Schema

GOALS = {"pba": PBA, "robust": ROBUST, "flip": FLIP, "strict-signs": STRICT_SIGNS}
seeds = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("kind", GOALS)
@settings(max_examples=len(draws(40)))
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
                margin = decision.margin(q, g)
                assert (margin is None) == (len(problem.goals[g].rows) > 1)
                assert margin is None or 0 <= margin <= float(max(values[:, problem.goal_of == g].min(), 0)) * (1 + 1e-9)
            else:
                point = decision.witness[q, g]
                assert (point >= problem.batch.lower[q]).all()
                assert (point <= problem.batch.upper[q]).all()
                assert problem.domain.legal(point[None, :])[0]


@pytest.mark.parametrize("style", STYLES)
@settings(max_examples=len(draws(40)))
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


@settings(max_examples=len(draws(40)))
@given(seed=seeds, style=st.sampled_from(["plain", "sparse", "duplicate", "integer"]))
def test_minimum_brackets_brute_force(seed: int, style: str) -> None:
    problem = random_problem(seed, style, PBA[:1])
    found = minimum(problem, tolerance=1e-6)
    for q in range(len(problem.batch)):
        least = float(brute_force(problem, q).min())
        assert found.lower[q] <= least + 1e-12 * abs(least)
        assert found.upper[q] == pytest.approx(least, abs=2e-6, rel=1e-9)
        assert found.upper[q] - found.lower[q] <= 1e-5 + 1e-9 * abs(least)


@settings(max_examples=len(draws(200)))
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
    problem = type(problem)(network=network, domain=problem.domain, batch=problem.batch, margin=problem.margin, goals=problem.goals)
    with np.errstate(all="ignore"):
        decision = decide(problem)
    for q in range(len(problem.batch)):
        for g, holds in enumerate(truth(problem, q, brute_force(problem, q))):
            assert decision.status[q, g] == OPEN or (decision.status[q, g] == PROVED) == holds


# The edges: values of exactly 0, limits that stop a run, and solvers that contradict what is known.


def linear_problem(weights: list[float], goals: tuple[Goal, ...]) -> TwinProblem:
    """g = w . (age, sex) for age 0 ... 4; x has sex 0, x' has sex 1."""
    domain = Domain(
        integer=np.array([True, True]), lower=np.zeros(2), upper=np.array([4.0, 1.0]), offset=np.zeros(2), scale=np.ones(2),
        start=np.array([0, 1]), one_hot=np.array([False, False]), width=np.array([1, 1]),
    )
    network = network_of(([weights], None))
    batch = TwinBatch(
        lower=np.array([[0.0, 0.0]]), upper=np.array([[4.0, 0.0]]), prime=np.array([[0.0, 1.0]]), protected=np.array([False, True])
    )
    return TwinProblem(network=network, domain=domain, batch=batch, margin=np.array([1.0]), goals=goals)


def statuses(problem: TwinProblem) -> list[Status]:
    return [answer.status for answer in engine.solve(problem)[0]]


def test_a_difference_of_exactly_zero_is_not_positive() -> None:
    assert statuses(linear_problem([1.0, 0.0], PBA)) == [Status.VIOLATED, Status.VIOLATED]


def test_a_difference_that_is_barely_positive_is_proved() -> None:
    tiny = float(np.float32(1e-30))
    assert statuses(linear_problem([1.0, -tiny], PBA)) == [Status.PROVED, Status.VIOLATED]


def test_a_margin_of_exactly_zero_is_negative() -> None:
    """g = age is zero and positive, the same for both copies; 0 against -1 are both negative; 0 against 1 is a flip, unless signs
    are strict."""
    for goals, last in ((FLIP, Status.VIOLATED), (STRICT_SIGNS, Status.PROVED)):
        assert statuses(linear_problem([1.0, 0.0], goals)) == [Status.PROVED, Status.PROVED]
        assert statuses(linear_problem([0.0, -1.0], goals)) == [Status.PROVED, Status.PROVED]
        assert statuses(linear_problem([0.0, 1.0], goals)) == [Status.PROVED, last]


def test_a_row_of_zeros_closes_no_goal_and_hides_none() -> None:
    """A VNN-LIB query may compare constants alone: 0 > 0 never holds, and a row beside it that holds closes the goal."""
    rows = np.array([[0.0, 0.0], [1.0, -1.0]])
    for first in (rows, rows[::-1]):
        assert statuses(linear_problem([1.0, 0.0], (Goal(rows=first, strict=True),))) == [Status.VIOLATED]
        assert statuses(linear_problem([1.0, -1.0], (Goal(rows=first, strict=True),))) == [Status.PROVED]


@pytest.mark.parametrize(("strict", "expected"), [(False, Status.PROVED), (True, Status.VIOLATED)])
def test_ties_of_a_robust_decision_go_to_the_smaller_class(strict: bool, expected: Status) -> None:
    assert statuses(linear_problem([1.0, 0.0], (Goal(rows=np.array([[1.0, 0.0]]), strict=strict),))) == [expected]


@pytest.mark.parametrize("style", STYLES)
def test_limits_leave_unknown_and_never_more(style: str) -> None:
    for seed in draws(20):
        problem = random_problem(seed, style, PBA)
        full = decide(problem)
        for stopped in (decide(problem, seconds=0.0), decide(problem, max_nodes=1)):
            known = stopped.status != OPEN
            assert (stopped.status[known] == full.status[known]).all()
            assert (stopped.out_of[(~known).any(axis=1)] != "").all()
    assert (decide(problem, seconds=0.0).status == OPEN).all()


def outcome(termination: Termination, limit: Limit | None = None, low: float | None = None, high: float | None = None) -> Outcome:
    return Outcome(
        termination=termination, limit=limit, values=None if high is None else np.zeros(1), primal_bound=high, dual_bound=low,
        duals=None, ray=None, backend="fake", version="0", tolerance=1e-6, build_seconds=0.0, solve_seconds=0.0, nodes=None,
    )


@pytest.mark.parametrize("termination", Termination)
@pytest.mark.parametrize("limit", [None, *Limit])
def test_no_termination_without_a_bound_is_a_proof(termination: Termination, limit: Limit | None) -> None:
    for relaxation in (False, True):
        status, reason = by_solver.status_of(outcome(termination, limit), exact=False, relaxation=relaxation, bound=-np.inf)
        assert status is Status.UNKNOWN
        assert isinstance(reason, Reason)
    exact, _ = by_solver.status_of(outcome(termination, limit), exact=True, relaxation=False, bound=np.inf)
    assert exact is (Status.PROVED if termination is Termination.INFEASIBLE else Status.UNKNOWN)


def test_a_bound_within_tolerance_is_no_claim() -> None:
    for bound, expected in ((1e-6, Status.UNKNOWN), (9e-6, Status.UNKNOWN), (1e-4, Status.PROVED)):
        assert by_solver.status_of(outcome(Termination.OPTIMAL), exact=False, relaxation=False, bound=bound)[0] is expected


@pytest.mark.parametrize(("low", "high"), [(5.0, 5.0), (-9.0, -9.0)])
def test_a_contradiction_is_saved_and_raised(low: float, high: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    problem = linear_problem([1.0, -1.0], PBA[:1])
    (known,), = engine.solve(problem, method="bnb")
    known = replace(known, lower=0.5, upper=1.0)
    with pytest.raises(Disagreement, match="fake 0"):
        by_solver.compare(problem, 0, problem.rows[0], outcome(Termination.OPTIMAL, low=low, high=high), known)
    (saved,) = tmp_path.glob("disagreement-*.json")
    assert json.loads(saved.read_text())["row"] == [1.0, -1.0]
    by_solver.compare(problem, 0, problem.rows[0], outcome(Termination.OPTIMAL, low=1.0, high=1.0), known)


def test_leftovers_of_a_node_limit_go_to_the_milp() -> None:
    for seed in draws(40):
        problem = random_problem(seed, "plain", PBA)
        limited = engine.solve(problem, budget=Budget(seconds=60, nodes=1))
        whole = engine.solve(problem)
        for a, b in zip(limited, whole, strict=True):
            for ours, full in zip(a, b, strict=True):
                assert ours.status in (full.status, Status.UNKNOWN)


# Defects that a review found, each with the question that showed it.


def network(*parts: tuple[np.ndarray, np.ndarray], link: Link = Link.IDENTITY) -> Network:
    layers = tuple(
        Layer(weight=np.asarray(w, dtype=float), bias=np.asarray(b, dtype=float), slope=np.full(len(b), float(k == len(parts) - 1)))
        for k, (w, b) in enumerate(parts)
    )
    return Network(layers=layers, link=link, source_sha256="0" * 64)


@pytest.mark.parametrize("width", [1023, 1024, 1025, 1100, 1500, 2047, 2048, 2049])
def test_exact_products_of_any_width(width: int) -> None:
    rng = np.random.default_rng(width)
    weight = rng.standard_normal((1, width)).astype(np.float32).astype(float)
    x = rng.standard_normal((1, width)).astype(np.float32).astype(float)
    wide = network((weight, np.zeros(1)))
    assert (wide.forward(exact(x)).to_fractions() == wide.forward(fractions(x))).all()


def schema(kind: str) -> Schema:
    age = {"name": "age", "kind": kind, "range": [0, 40], "unit": 1}
    return schema_of(age, integer("sex", 0, 1, protected=True))


@pytest.mark.parametrize("kind", ["real", "integer"])
@pytest.mark.parametrize("hidden", [False, True])
def test_a_network_that_ignores_the_protected_feature_is_proved(kind: str, hidden: bool) -> None:
    """Its difference is exactly 0 while the decision changes with age: rounding must not blur the zero."""
    first = (np.array([[0.37, 0.0], [-0.21, 0.0]]), np.array([-5.1, 3.3]))
    parts = [first, (np.array([[1.3, -0.7]]), np.array([-1.1]))] if hidden else [(np.array([[0.37, 0.0]]), np.array([-5.1]))]
    fair = network(*parts)
    query = IndividualFairness(model=fair, schema=schema(kind), protected=["sex"])
    verdict = verify(query)
    assert verdict.status is Status.PROVED
    assert verdict.certificate is not None
    report = check(verdict.certificate, model=fair, schema=query.schema)
    assert report.accepted, report.rejections


def test_a_protected_path_that_is_never_on_is_proved() -> None:
    first, last = (np.array([[0.37, 0.0], [-1.0, 0.5]]), np.array([-5.1, -2.0])), (np.array([[1.3, 4.0]]), np.array([-1.1]))
    dead = network(first, last)
    query = IndividualFairness(model=dead, schema=schema("real"), protected=["sex"])
    verdict = verify(query)
    assert verdict.status is Status.PROVED
    assert verdict.certificate is not None
    assert check(verdict.certificate, model=dead, schema=query.schema).accepted


def test_a_box_between_neighbouring_floats_ends_unknown() -> None:
    one = np.array([False, True])
    domain = Domain(
        integer=one, lower=np.zeros(2), upper=np.array([2.0, 1.0]), offset=np.zeros(2), scale=np.array([1e-30, 1.0]),
        start=np.arange(2), one_hot=np.array([False, False]), width=np.ones(2, dtype=np.int64),
    )
    low = np.array([[1.0, 0.0]])
    batch = TwinBatch(
        lower=low, upper=np.array([[np.nextafter(1.0, 2.0), 0.0]]), prime=np.array([[1.0, 1.0]]),
        protected=np.array([False, True]),
    )
    steep = network((np.array([[1e-3, 0.0], [-1e-3, 1.0]]), np.zeros(2)), (np.array([[1.0, 1.0]]), np.zeros(1)))
    problem = TwinProblem(network=steep, domain=domain, batch=batch, margin=np.ones(1), goals=PBA)
    decision = decide(problem, seconds=20)
    assert (decision.nodes < 100).all(), "it stops by itself"
    assert all(decision.out_of[0] in ("", "float") for _ in np.argwhere(decision.status == OPEN))


def test_decisions_are_exact_where_terms_cancel() -> None:
    big = 2.0**60
    cancelling = network((np.array([[big, -big, 0.5]]), np.zeros(1)))
    assert decisions(cancelling, np.array([[1.0, 1.0, 1.0], [1.0, 1.0, -1.0]])).tolist() == [1, 0]


def test_a_certificate_without_content_is_rejected() -> None:
    fair = network((np.array([[1.0, 0.0]]), np.zeros(1)))
    query = IndividualFairness(model=fair, schema=schema("integer"), protected=["sex"])
    certificate = verify(query).certificate
    assert certificate is not None
    from dataclasses import replace

    for box in ({"sex": (0.2, 0.8)}, {"sex": (0.0, 0.0)}, {}):
        empty = replace(certificate, proofs=(), query=replace(certificate.query, box={**certificate.query.box, **box}))
        assert not check(empty, model=fair, schema=query.schema).accepted


def test_a_decided_verdict_is_never_overwritten(tmp_path: Path) -> None:
    def record(status: str, reason: str) -> VerdictRecord:
        return VerdictRecord(
            sensitive="sex", goal="observed", delta=1.0, row=0, to=1.0, against=0, group=0.0, label=1, status=status, reason=reason,
            lower=0.0, upper=0.0, engine="", trust="", float32_agrees=None, nodes=0, witness=None, margins=None, tree=None,
            claim=None, float32=None,
        )

    with Store(tmp_path / "v.sqlite") as store:
        store.begin("run", {}, resume=False)
        for status, reason in (("unknown", "time"), ("violated", ""), ("unknown", "time")):
            store.add("run", [record(status, reason)])
    kept = Verdicts(path=tmp_path / "v.sqlite", run="run", sensitive="sex", deltas=(1.0,))
    assert kept.frame()["status"].tolist() == ["violated"]


# Neuron branching against brute force on tiny nasty networks: what it says is true, it always finishes, its proofs check.


ROWS = Goal(rows=np.array([[1.0, 0.0], [0.0, 1.0]]), strict=False)
"""Only to have brute force return g and g' themselves."""


def margins(problem: TwinProblem, q: int) -> np.ndarray:
    """Exact g, g' (P, 2) at all lattice points of question q, fractions."""
    return brute_force(replace(problem, goals=(ROWS,)), q)


def every_row(goal: Goal, pairs: np.ndarray) -> np.ndarray:
    """(P, R) all rows at each point, exactly."""
    rows = [[Fraction(float(v)) for v in row] for row in goal.rows]
    constants = [Fraction(float(c)) for c in goal.constants]
    return np.array([[p * a + q * b + c for (p, q), c in zip(rows, constants, strict=True)] for a, b in pairs])


def row_values(goal: Goal, pairs: np.ndarray) -> np.ndarray:
    """(P,) the best row at each point, exactly."""
    return np.asarray(every_row(goal, pairs).max(axis=1))


def holds(goal: Goal, pairs: np.ndarray) -> bool:
    if goal.gap is None:
        values = every_row(goal, pairs)
        return bool(np.where(goal.strict_rows, values > 0, values >= 0).astype(bool).any(axis=1).all())
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
        assert tree_flaw(problem.network, problem.domain, claim_of(one), answer.tree) is None
    else:
        assert answer.witness is not None
        assert problem.domain.legal(answer.witness[None])[0]
        assert (answer.witness >= problem.batch.lower[q]).all()
        assert (answer.witness <= problem.batch.upper[q]).all()


@pytest.mark.parametrize("style", STYLES)
@settings(max_examples=len(draws(8)))
@given(seed=seeds)
def test_flips_equal_brute_force(style: str, seed: int) -> None:
    problem = random_problem(seed, style, (*FLIP, *STRICT_SIGNS, *PBA, *ROBUST))
    for q in range(len(problem.batch)):
        pairs = margins(problem, q)
        for g in range(len(problem.goals)):
            assert_true(problem, q, g, pairs)


@pytest.mark.parametrize("off", [0.0, 1e-9, -1e-9, 1e-12, -1e-12])
@settings(max_examples=len(draws(8)))
@given(seed=seeds, style=st.sampled_from(["plain", "sparse", "duplicate", "integer"]))
def test_near_ties(off: float, seed: int, style: str) -> None:
    """The rows are shifted so that the least value over the lattice is (nearly) 0, or off by very little."""
    every = (*FLIP, *STRICT_SIGNS, *PBA, *ROBUST)
    problem = random_problem(seed, style, every)
    for q in range(len(problem.batch)):
        pairs = margins(problem, q)
        for g, goal in enumerate(every):
            least = float(row_values(goal, pairs).min())
            shifted = replace(goal, constant=np.full(len(goal.rows), off - least))
            assert_true(replace(problem, goals=(shifted,) * len(every)), q, g, pairs)


@settings(max_examples=len(draws(13)))
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
            goal = Goal(rows=rows, constant=constant, strict=False, gap=GapGoal(epsilon=epsilon, rise=rise))
            assert_true(replace(problem, goals=(goal,)), q, 0, pairs)


@pytest.mark.parametrize("hidden", [(12,), (8, 8), (6, 5, 4)])
@settings(max_examples=len(draws(8)))
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
    network = replace(nasty_network(rng, 6, "plain", depth=1, width=2, outputs=1), layers=tuple(layers))
    return replace(problem, network=network, margin=np.ones(1))


@settings(max_examples=len(draws(13)))
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

