"""The largest gap against brute force on tiny nasty networks: witness below, bound above, certificate accepted."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

import verifair as vf
from encoders.bounds.twin import Twin
from encoders.network import Network
from encoders.probability import gap_bounds
from encoders.problem import Forbidden, TwinProblem
from verifair.verify.attack import Climb, Objective, attack
from verifair.verify.boxes import anywhere
from verifair.verify.gap_inputs import InputSearch
from verifair.verify.gap_lines import conjugate, gap_below
from verifair.verify.gap_phases import PhaseProofs
from verifair.verify.phase_tree import PhaseTree

from .random_twins import FLIP, STYLES, random_network, random_problem, rational
from .test_phases import wide_problem

STYLES_HERE = tuple(style for style in STYLES if style not in ("huge", "mixed"))
"""The others have logits of millions: every gap is 0 or 1."""
TOLERANCE = 1e-3
CONSTRAINTS: list[dict[str, Any]] = [{"never": {"sex": "m", "age": {"low": 3}}}, {"never": {"town": "a", "hours": {"high": 0}}}]
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(autouse=True)
def _no_runtime() -> Iterator[None]:
    """These networks are in no file that a runtime could load."""
    module = sys.modules["verifair.verify.maximise"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "runtime_logits", lambda network, x: network.forward(x.astype(float)))
        yield


def a_schema(constraints: list[dict[str, Any]], outputs: int) -> vf.Schema:
    return vf.Schema.build(
        {
            "positive": "logit > 0" if outputs == 1 else "class = 1",
            "features": [
                {"name": "sex", "kind": "categorical", "categories": ("f", "m"), "protected": True},
                {"name": "age", "kind": "integer", "range": (0, 5)},
                {"name": "hours", "kind": "integer", "range": (-2, 3), "scale": {"offset": 0.5, "scale": 3.0}},
                {"name": "town", "kind": "one-hot", "categories": ("a", "b", "c")},
            ],
            "constraints": constraints,
        }
    )


def a_query(
    seed: int, style: str, *, scale: str = "probability", constrained: bool = False, relaxed: bool = False
) -> vf.ProbabilityGap:
    rng = np.random.default_rng(seed)
    depth, width, outputs = (int(rng.choice(some)) for some in ([0, 1, 2, 3], [2, 6], [1, 2]))
    schema = a_schema(CONSTRAINTS if constrained else [], outputs)
    network = random_network(rng, schema.domain.columns, style, depth=depth, width=width, outputs=outputs)
    network = replace(network, source_sha256=f"{seed:064x}")
    relax = {"age": 1} if relaxed else {}
    return vf.ProbabilityGap(network=network, schema=schema, protected=["sex"], relax=relax, scale=scale)  # type: ignore[arg-type]


def truth(query: vf.ProbabilityGap) -> tuple[float, float]:
    """Float64 numbers just below and just above the largest gap over all legal pairs, from exact logits."""
    domain = query.schema.domain
    rows = np.array(list(product(*(np.arange(a, b + 1) for a, b in zip(domain.lower, domain.upper, strict=True)))))
    rows = rows[domain.legal(rows)]
    logits = exact_margins(query.network, domain.encode(rows))
    by_row = {tuple(row): value for row, value in zip(rows.tolist(), logits, strict=True)}
    reach = query.relax.get("age", 0)
    low, high = 0.0, 0.0
    for row, g in by_row.items():
        for sex, shift in product((0.0, 1.0), range(-reach, reach + 1)):
            other = by_row.get((sex, row[1] + shift, *row[2:]))
            if other is None or sex == row[0] or g <= other:
                continue
            down, up = gap_bounds(g, other) if query.scale == "probability" else (float(g - other), float(g - other))
            low, high = max(low, down), max(high, up)
    return low, high


def exact_margins(network: Network, x: np.ndarray) -> list[Fraction]:
    logits = network.forward(rational(x))
    return [row[0] if len(row) == 1 else row[1] - row[0] for row in logits.tolist()]


def assert_bracket(query: vf.ProbabilityGap, found: vf.MaximumGap, *, closed: bool = True) -> None:
    low, high = truth(query)
    slack = 1e-12 * (1 + high)
    assert found.lower <= high + slack
    assert found.upper >= low - slack
    if closed:
        assert found.reason is None
        assert found.upper - found.lower <= TOLERANCE * 1.001 + 1e-9 * found.upper
    if found.certificate is not None:
        report = vf.check(found.certificate, network=query.network, schema=query.schema)
        assert report.accepted, report.rejections
    if found.witness is not None:
        both = found.witness.x, found.witness.x_prime
        rows = np.array([[query.schema.raw_value(name, value) for name, value in one.items()] for one in both])
        assert query.schema.domain.legal(rows).all()
        assert rows[0, 0] != rows[1, 0]
        assert abs(rows[0, 1] - rows[1, 1]) <= query.relax.get("age", 0)
        assert (rows[0, 2:] == rows[1, 2:]).all()


@pytest.mark.parametrize("scale", ["probability", "logit"])
@pytest.mark.parametrize("style", STYLES_HERE)
@settings(max_examples=4, deadline=None)
@given(seed=seeds, constrained=st.booleans(), relaxed=st.booleans())
def test_brackets_are_true_and_closed(style: str, scale: str, seed: int, constrained: bool, relaxed: bool) -> None:
    query = a_query(seed, style, scale=scale, constrained=constrained, relaxed=relaxed)
    found = vf.maximise(query, budget=vf.Budget(seconds=5, seed=seed % 7), tolerance=TOLERANCE)
    _, high = truth(query)
    assert_bracket(query, found, closed=scale == "probability" or high < 1e3)  # of large logits, rounding leaves more


@pytest.mark.parametrize(("seconds", "nodes"), [(1e-9, None), (1e-3, None), (5.0, 1), (5.0, 6)])
@pytest.mark.parametrize("scale", ["probability", "logit"])
def test_out_of_budget_the_bracket_is_wide_and_true(scale: str, seconds: float, nodes: int | None) -> None:
    reasons = set()
    for seed in range(6):
        query = a_query(seed, "plain", scale=scale, constrained=seed % 2 == 1)
        found = vf.maximise(query, budget=vf.Budget(seconds=seconds, nodes=nodes), tolerance=TOLERANCE)
        assert_bracket(query, found, closed=False)
        reasons.add(found.reason)
        assert (found.reason is None) == (found.upper - found.lower <= TOLERANCE * 1.001)
    assert reasons & {vf.Reason.TIME, vf.Reason.NODES}


@pytest.mark.parametrize("scale", ["probability", "logit"])
def test_neuron_branching_takes_over(scale: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no turn for the input search but the whole box, the proofs are trees of neurons, and the checker takes them."""
    module = sys.modules["verifair.verify.gap_search"]
    for name, value in (("FIRST_LOOK", 0.0), ("WAIT", 0.0)):
        monkeypatch.setattr(module, name, value)
    kinds = set()
    for seed, style in product(range(6), ("plain", "sparse", "integer", "duplicate")):
        query = a_query(seed, style, scale=scale, constrained=seed % 3 == 2, relaxed=seed % 4 == 3)
        found = vf.maximise(query, budget=vf.Budget(seconds=5), tolerance=TOLERANCE)
        assert_bracket(query, found, closed=False)
        if found.certificate is not None:
            kinds |= {type(proof.evidence) for proof in found.certificate.proofs}
    assert PhaseTree in kinds


@settings(max_examples=10, deadline=None)
@given(seed=seeds, cuts=st.integers(0, 3))
def test_cells_proved_one_by_one_prove_the_whole(seed: int, cuts: int) -> None:
    """Every cell counts as too hard as a whole: the checker takes the joined tree, and that of a larger epsilon."""
    problem = wide_problem(seed, (6, 5))
    search = InputSearch(problem, False, 1e-3, np.random.default_rng(seed))
    search.begin()
    proofs = PhaseProofs(search, 1e-4)
    for _ in range(cuts):
        search.step()
    proofs._cells |= {(cell, d) for cell in range(search.forest.count) for d in (0, 1)}
    for _ in range(30):
        proofs.attempt(10.0, np.inf, 1 << 40)
    largest = most_of(problem, "gap")
    assert (proofs.bound.min(axis=0) >= 0).all()
    for q in range(len(problem.batch)):
        for d in (0, 1):
            assert proofs.bound[q, d] + 1e-4 >= largest[q, d] - 1e-9
            if np.isfinite(proofs.bound[q, d]):
                higher = min(float(proofs.bound[q, d]) + 0.05, 0.99)
                tree = proofs.at(q, d, higher, np.inf)
                assert tree is not None
                assert proofs._holds(q, d, higher + 1e-4, tree)
    assert min(np.minimum(search.bounds(), proofs.bound).max(), 1.0) >= largest.max() - 1e-9


def most_of(problem: TwinProblem, objective: Objective) -> np.ndarray:
    """(Q, 2) the largest objective of every question in both directions, by enumeration in float64; -inf where no pair is legal."""
    twin, out = Twin.of(problem), np.full((len(problem.batch), 2), -np.inf)
    for q in range(len(problem.batch)):
        ends = zip(problem.batch.lower[q], problem.batch.upper[q], strict=True)
        raw = np.array(list(product(*(np.arange(a, b + 1) for a, b in ends))), dtype=float)
        at = np.full(len(raw), q)
        second = problem.batch.take(at).second(raw)
        raw = raw[problem.domain.legal(raw) & problem.domain.legal(second)]
        if len(raw):
            at = np.full(len(raw), q)
            climb = Climb(twin, objective, np.random.default_rng(0))
            for d in (0, 1):
                out[q, d] = climb.values(at, raw[:, twin.variables], np.full(len(raw), d))[0].max()
    return out


@pytest.mark.parametrize("objective", ["gap", "logit", "flip"])
@settings(max_examples=15, deadline=None)
@given(seed=seeds, style=st.sampled_from(["plain", "sparse", "integer"]), shut=st.booleans())
def test_the_attack_finds_the_best_pair_of_a_small_box(objective: Objective, seed: int, style: str, shut: bool) -> None:
    problem = random_problem(seed, style, FLIP)
    if shut:
        forbidden = Forbidden(lower=np.array([[-np.inf, 0.0, -np.inf, 1.0]]), upper=np.array([[np.inf, 3.0, np.inf, 2.0]]))
        problem = replace(problem, domain=replace(problem.domain, forbidden=forbidden))
    found = attack(problem, objective=objective, seconds=5, rng=np.random.default_rng(seed), rounds=4)
    most = most_of(problem, objective)
    if not np.isfinite(most).any():
        assert not len(found.value)
        return
    second = problem.batch.take(found.question).second(found.raw)
    assert (problem.domain.legal(found.raw) & problem.domain.legal(second)).all()
    assert (found.raw >= problem.batch.lower[found.question]).all()
    assert (found.raw <= problem.batch.upper[found.question]).all()
    assert (np.diff(found.value) <= 0).all()
    size = 1 + abs(most.max())
    assert abs(found.value[0] - most.max()) <= 1e-6 * size, "a few hundred points, some thousand tried"
    assert (found.value <= most[found.question, found.direction] + 1e-9 * size).all()


def test_a_second_run_of_the_attack_keeps_what_the_first_has_found() -> None:
    problem = random_problem(3, "plain", FLIP)
    climb = Climb(Twin.of(problem), "gap", np.random.default_rng(0))
    climb.run(1.0, rounds=1)
    first = climb.found(1).value[0]
    climb.run(1.0, rounds=3)
    assert climb.found(1).value[0] >= first
    start = climb.start.take(np.zeros(5, dtype=np.int64))
    climb.climb_from(start.question, np.tile(problem.batch.lower[0], (5, 1)), np.zeros(5, dtype=np.int64), 1.0)
    assert climb.found(1).value[0] >= first
    assert len(anywhere(climb.twin, start, climb.rng)) == 5


@settings(max_examples=200, deadline=None)
@given(
    epsilon=st.floats(1e-4, 0.999), slope=st.floats(-9, 9), b=st.floats(-40, 40), known=st.floats(1e-5, 0.9), off=st.floats(0, 3)
)
def test_lines_lie_under_the_curve_and_bound_gaps(epsilon: float, slope: float, b: float, known: float, off: float) -> None:
    m = np.array([2.0**slope])
    constant = float(conjugate(epsilon, m)[0])
    a = float(m[0] * b + constant)
    assert expit(a) - expit(b) <= epsilon, "a line that crosses the curve would close boxes with larger gaps"
    w = constant + off
    bound = float(gap_below(np.array([w]), m, known, np.array([1.0]))[0])
    points = np.linspace(-60, 60, 2001)
    assert (expit(m[0] * points + w) - expit(points)).max() <= max(bound, known) + 1e-12
    assert bound <= 1.0
