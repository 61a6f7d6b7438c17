"""The largest gap against brute force on tiny nasty networks: witness below, bound above, certificate accepted."""

import json
import signal
import sys
from dataclasses import replace
from fractions import Fraction
from itertools import product
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from joblib import parallel_config
from scipy.special import expit

import verifair as vf
from encoders.bounds.twin import Twin
from encoders.domain import Forbidden
from encoders.model import Link
from encoders.network import Layer, Network
from encoders.problem import TwinProblem
from tests.brute_force import exact_forward
from tests.builders import categorical, claim_of, integer, one_hot, real, schema_of, tree_flaw
from tests.draws import draws
from tests.soundness.random_twins import FLIP, STYLES, nasty_network, random_problem
from tests.soundness.test_engine import wide_problem
from verifair.engine.gap import inputs
from verifair.engine.gap.bounds import GapBounds
from verifair.engine.gap.inputs import InputSearch
from verifair.engine.gap.lines import STEEPEST, conjugate, gap_below, gap_of, weights_of
from verifair.engine.gap.maximise import gap_bounds
from verifair.engine.gap.neurons import PhaseSearch
from verifair.engine.questions import no_gap
from verifair.engine.search.attack import Climb, Objective
from verifair.engine.search.boxes import anywhere
from verifair.interrupts import noted_interrupt
from verifair.systems.results.files import json_text
from verifair.systems.results.verdicts import Gap

STYLES_HERE = tuple(style for style in STYLES if style not in ("huge", "mixed"))
"""The others have logits of millions: every gap is 0 or 1."""
TOLERANCE = 1e-3
CONSTRAINTS: list[dict[str, Any]] = [{"never": {"sex": "m", "age": {"low": 3}}}, {"never": {"town": "a", "hours": {"high": 0}}}]
seeds = st.integers(0, 2**32 - 1)


def a_schema(constraints: list[dict[str, Any]], outputs: int) -> vf.Schema:
    return schema_of(
        categorical("sex", "f", "m", protected=True),
        integer("age", 0, 5),
        integer("hours", -2, 3, scale={"offset": 0.5, "scale": 3.0}),
        one_hot("town", "a", "b", "c"),
        positive="logit > 0" if outputs == 1 else "class = 1",
        constraints=constraints,
    )


def a_query(
    seed: int, style: str, *, scale: str = "probability", constrained: bool = False, relaxed: bool = False
) -> vf.ProbabilityGap:
    rng = np.random.default_rng(seed)
    depth, width, outputs = (int(rng.choice(some)) for some in ([0, 1, 2, 3], [2, 6], [1, 2]))
    schema = a_schema(CONSTRAINTS if constrained else [], outputs)
    network = nasty_network(rng, schema.domain.columns, style, depth=depth, width=width, outputs=outputs)
    network = replace(network, source_sha256=f"{seed:064x}")
    relax = {"age": 1} if relaxed else {}
    return vf.ProbabilityGap(model=network, schema=schema, protected=["sex"], relax=relax, scale=scale)  # type: ignore[arg-type]


def truth(query: vf.ProbabilityGap) -> tuple[float, float]:
    """Float64 numbers just below and just above the largest gap over all legal pairs, from exact logits."""
    domain = query.schema.domain
    rows = np.array(list(product(*(np.arange(a, b + 1) for a, b in zip(domain.lower, domain.upper, strict=True)))))
    rows = rows[domain.legal(rows)]
    logits = exact_margins(query.model, domain.encode(rows))
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
    logits = exact_forward(network, x)
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
        report = vf.check(found.certificate, model=query.model, schema=query.schema)
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
@settings(max_examples=len(draws(4)))
@given(seed=seeds, constrained=st.booleans(), relaxed=st.booleans())
def test_brackets_are_true_and_closed(style: str, scale: str, seed: int, constrained: bool, relaxed: bool) -> None:
    query = a_query(seed, style, scale=scale, constrained=constrained, relaxed=relaxed)
    found = vf.verify(query, budget=vf.Budget(seconds=5, seed=seed % 7), tolerance=TOLERANCE)
    _, high = truth(query)
    assert_bracket(query, found, closed=scale == "probability" or high < 1e3)  # of large logits, rounding leaves more


@pytest.mark.parametrize(("seconds", "nodes"), [(1e-9, None), (1e-3, None), (5.0, 1), (5.0, 6)])
@pytest.mark.parametrize("scale", ["probability", "logit"])
def test_out_of_budget_the_bracket_is_wide_and_true(scale: str, seconds: float, nodes: int | None) -> None:
    reasons = set()
    for seed in draws(6):
        query = a_query(seed, "plain", scale=scale, constrained=seed % 2 == 1)
        found = vf.verify(query, budget=vf.Budget(seconds=seconds, nodes=nodes), tolerance=TOLERANCE)
        assert_bracket(query, found, closed=False)
        reasons.add(found.reason)
        assert (found.reason is None) == (found.upper - found.lower <= TOLERANCE * 1.001)
    assert reasons & {vf.Reason.TIME, vf.Reason.NODES}


def a_deep_query(seed: int, scale: str) -> vf.ProbabilityGap:
    query = a_query(seed, "plain", scale=scale)
    network = nasty_network(np.random.default_rng(seed), query.schema.domain.columns, "plain", depth=3, width=4, outputs=1)
    return replace(query, model=replace(network, source_sha256=f"{seed:064x}"), schema=a_schema([], 1))


@pytest.mark.parametrize("scale", ["probability", "logit"])
def test_questions_about_single_gaps_close_deep_networks(scale: str) -> None:
    for seed in range(2):
        query = a_deep_query(seed, scale)
        found = vf.verify(query, budget=vf.Budget(seconds=5), tolerance=TOLERANCE)
        assert_bracket(query, found)
        assert found.engine == "bisection, branch-and-bound"


@pytest.mark.parametrize("scale", ["probability", "logit"])
def test_several_processes_find_the_same_gaps(scale: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of shallow networks they share the boxes of a step, of deep ones the gaps that are asked about."""
    shared, whole = [], GapBounds.of

    def of(self: GapBounds, nodes: Any, *rest: Any) -> Any:
        shared.append(len(nodes))
        return whole(self, nodes, *rest)

    monkeypatch.setattr(inputs, "EACH", 1)
    monkeypatch.setattr(GapBounds, "of", of)
    with parallel_config(backend="threading"):  # each with the same memory, for the test's sake
        for seed, style in zip(draws(12), [*STYLES_HERE, *STYLES_HERE], strict=False):
            query = a_query(seed, style, scale=scale, constrained=seed % 3 == 2, relaxed=seed % 4 == 3)
            assert_bracket(query, vf.verify(query, budget=vf.Budget(seconds=5), tolerance=TOLERANCE, jobs=3), closed=False)
        query = a_deep_query(0, scale)
        found = vf.verify(query, budget=vf.Budget(seconds=5), tolerance=TOLERANCE, jobs=3)
    assert_bracket(query, found)
    assert 1 in shared


@pytest.mark.parametrize("scale", ["probability", "logit"])
def test_a_solver_s_claim_is_no_bound_of_a_gap(scale: str) -> None:
    """Out of boxes, questions about single gaps go to a MILP, which proves none of them."""
    query = a_deep_query(4, scale)
    assert_bracket(query, vf.verify(query, budget=vf.Budget(seconds=5, nodes=1), tolerance=TOLERANCE), closed=False)


@pytest.mark.parametrize("scale", ["probability", "logit"])
def test_neuron_branching_alone_closes(scale: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no step of the input search but the whole box, the proofs are trees of neurons, and the checker takes them."""
    monkeypatch.setattr(InputSearch, "step", lambda self, largest: self.left.append(largest))
    split = False
    for seed, style in product(range(6), ("plain", "sparse", "integer", "duplicate")):
        query = a_query(seed, style, scale=scale, constrained=seed % 3 == 2, relaxed=seed % 4 == 3)
        found = vf.verify(query, budget=vf.Budget(seconds=5), tolerance=TOLERANCE)
        assert_bracket(query, found, closed=False)
        if found.certificate is not None:
            split |= any((proof.evidence.feature < -1).any() for proof in found.certificate.proofs)
    assert split


@settings(max_examples=len(draws(20)))
@given(seed=seeds, logit=st.booleans())
@example(seed=100594, logit=False)  # a half's lines, of its own default slopes, show 7e-9 less than its parent's
@example(seed=235723, logit=False)  # after five splits 0.1 less
def test_a_tree_of_neurons_proves_its_bound_at_any_time(seed: int, logit: bool) -> None:
    """After every few splits: the bound (and what is to spare) is true, and the checker takes a claim above it; at the end, of
    hardly more. On the way a half's lines may show less than its parent's, so that the claim is looser."""
    problem, spare = wide_problem(seed, (6, 5)), 1e-4
    search = InputSearch(problem, logit, 1e-3, np.random.default_rng(seed))
    search.begin(lambda: False)
    largest = most_of(problem, "logit" if logit else "gap")
    for q, d in product(range(len(problem.batch)), (0, 1)):
        one, last = PhaseSearch(search, q, d, spare), np.inf
        for most in (1, 5, 25, 125):
            one.run(np.inf, most)
            slack = 1e-9 * (1 + abs(largest[q, d]))
            assert one.bound + spare >= largest[q, d] - slack
            assert one.bound <= last + slack
            last = one.bound
            for bound in (last, last + 0.05):
                claim = one.least_claim(bound + spare)
                if not logit and bound > 0.99:
                    continue
                assert bound < claim < np.inf
                assert not one.finished or claim <= bound + spare + 2e-3 * (1 + bound)
                assert accepted(problem, one, claim)
    assert search.value <= largest.max() + 1e-9 * (1 + abs(largest.max()))


def accepted(problem: TwinProblem, search: PhaseSearch, claim: float) -> bool:
    """Whether the checker takes the search's tree for a proof of the claim."""
    asked, tree = search._claim(claim), search.proof(claim)
    return asked is not None and tree is not None and tree_flaw(problem.network, problem.domain, claim_of(asked), tree) is None


@settings(max_examples=len(draws(20)))
@given(seed=seeds, data=st.data())
def test_no_tampering_with_a_tree_of_neurons_proves_less_than_the_gap(seed: int, data: st.DataObject) -> None:
    """A true proof, damaged at random (the leaves' own lines too), put forward for a bound that is false by a hair."""
    problem = wide_problem(seed, (6, 5))
    search = InputSearch(problem, False, 1e-4, np.random.default_rng(seed))
    search.begin(lambda: False)
    largest = most_of(problem, "gap")
    q, d = np.unravel_index(largest.argmax(), largest.shape)
    one = PhaseSearch(search, int(q), int(d), 1e-5)
    one.run(np.inf, 60)
    claim = one.least_claim(one.bound)
    if claim > 0.99 or largest.max() < 0.01:
        return
    false = claim_of(one._claim(float(largest.max()) - 1e-9))
    tree = one.proof(claim)
    assert tree is not None
    assert tree_flaw(problem.network, problem.domain, false, tree) is not None
    rng = np.random.default_rng(data.draw(seeds))
    for _ in range(20):
        size, top = len(tree.value), tree.index.max(initial=0) + 1
        value = np.where(rng.random(size) < 0.3, tree.value * np.exp(rng.standard_normal(size)), tree.value)
        index = np.where(rng.random(size) < 0.05, rng.integers(0, top, size), tree.index)
        damaged = replace(tree, value=value, index=index)
        assert tree_flaw(problem.network, problem.domain, false, damaged) is not None


@settings(max_examples=len(draws(50)))
@given(epsilon=st.floats(0.01, 0.99), first=st.floats(0, 1e3), second=st.floats(0, 1e3), direction=st.integers(0, 1))
def test_a_line_is_a_mixture_of_the_rows_beside_it(epsilon: float, first: float, second: float, direction: int) -> None:
    goal = no_gap(epsilon)[direction]
    weights = weights_of(np.array([first]), np.array([second]), goal.rows, direction)[0]
    assert (weights >= 0).all()
    assert (weights > 0).sum() <= 2
    line = [second, -first] if direction else [-first, second]
    assert weights @ goal.rows == pytest.approx(line, rel=1e-9, abs=1e-9 * (first + second))
    if first > 0 and 1 / STEEPEST < second / first < STEEPEST:  # no constant lies over the curve's, and not far below
        best = float(conjugate(epsilon, np.array([second / first]))[0]) * first
        size = (first + second) * (1 + abs(np.log(epsilon)) + abs(np.log1p(-epsilon)))
        assert best - 0.02 * size <= weights @ goal.constants <= best + 1e-6 * size


@pytest.mark.parametrize("tolerance", [1e-4, 1e-5, 1e-6])
@pytest.mark.parametrize("reals", [1, 3])
def test_bounds_over_real_features_are_accepted_too(reals: int, tolerance: float) -> None:
    """Boxes around the optimum are proved by lines that lie hardly under the curve; the checker finds such lines as well."""
    protected = categorical("sex", "f", "m", protected=True)
    features = [protected, *(real(f"r{k}", -1, 1) for k in range(reals))]
    schema = schema_of(*features, positive="logit > 0")
    closed = 0
    for seed in (3, 9, 10, 28, 84, 93, 109):
        network = nasty_network(np.random.default_rng(seed), reals + 1, "plain", depth=seed % 3, width=8, outputs=1)
        query = vf.ProbabilityGap(model=replace(network, source_sha256="0" * 64), schema=schema, protected=["sex"])
        found = vf.verify(query, budget=vf.Budget(seconds=1), tolerance=tolerance)
        assert found.certificate is not None
        assert vf.check(found.certificate, model=query.model, schema=schema).accepted
        closed += found.reason is None
    assert closed >= 4


@pytest.mark.parametrize("scale", ["probability", "logit"])
@pytest.mark.parametrize(("depth", "size"), [(3, 1e30), (7, 1e30), (8, 1e38), (12, 1e38)])
def test_logits_beyond_all_measure(depth: int, size: float, scale: str) -> None:
    """Logits of 1e90, 1e210 and more than float64 holds: no bound at all, or a true one; never a warning."""
    shapes = [np.array([[1.0, 0.5], [-1.0, 0.25]]), *[np.array([[1.0, -0.5], [0.5, 1.0]])] * depth, np.array([[1.0, -1.0]])]
    layers = []
    for k, weight in enumerate(shapes):
        weight = np.float32(size if 0 < k <= depth else 1.0) * weight.astype(np.float32)
        layers.append(Layer(weight=weight.astype(float), bias=np.zeros(len(weight)), slope=np.full(len(weight), float(k > depth))))
    network = Network(layers=tuple(layers), link=Link.IDENTITY, source_sha256="0" * 64)
    protected = categorical("sex", "f", "m", protected=True)
    age = integer("age", 0, 3)
    schema = schema_of(protected, age, positive="logit > 0")
    query = vf.ProbabilityGap(model=network, schema=schema, protected=["sex"], scale=scale)  # type: ignore[arg-type]
    found = vf.verify(query, budget=vf.Budget(seconds=1), tolerance=TOLERANCE)
    if scale == "probability":
        assert found.lower <= 0.5 <= found.upper  # at age 0 both logits are 0 in theory's limit: sex alone moves 1/2 to 0 or 1
    assert json.loads(json_text(Gap.model_validate(found)))["reason"] == (found.reason and found.reason.value)
    if found.certificate is not None:
        assert vf.check(found.certificate, model=network, schema=schema).accepted


def test_many_questions_end_in_time() -> None:
    """200 values of a protected feature are 19,900 questions: what there is no time for keeps the trivial bound."""
    protected = integer("zone", 0, 199, protected=True)
    age = integer("age", 0, 9)
    schema = schema_of(protected, age, positive="logit > 0")
    network = nasty_network(np.random.default_rng(0), 2, "plain", depth=2, width=6, outputs=1)
    query = vf.ProbabilityGap(model=replace(network, source_sha256="0" * 64), schema=schema, protected=["zone"])
    found = vf.verify(query, budget=vf.Budget(seconds=0.05))
    assert (found.upper, found.reason, found.certificate) == (1.0, vf.Reason.TIME, None)
    assert 0 < found.lower <= 1


def a_hard_query() -> vf.ProbabilityGap:
    """Of six real features: not closed within a minute."""
    protected = categorical("sex", "f", "m", protected=True)
    schema = schema_of(protected, *(real(f"x{k}", -1, 1) for k in range(6)), positive="logit > 0")
    network = nasty_network(np.random.default_rng(0), schema.domain.columns, "plain", depth=2, width=16, outputs=1)
    return vf.ProbabilityGap(model=replace(network, source_sha256=f"{0:064x}"), schema=schema, protected=["sex"])


def raises(number: int, frame: FrameType | None) -> None:
    """What the command line does at Ctrl-C and SIGTERM."""
    raise KeyboardInterrupt


@pytest.mark.parametrize("handler", [signal.default_int_handler, raises])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_what_is_known(number: signal.Signals, handler: Any) -> None:
    """Ctrl-C while it searches: a bracket with an accepted certificate, at once."""
    query = a_hard_query()
    tells = []

    def progress(found: float, bound: float) -> None:
        tells.append(bound)
        signal.raise_signal(number)

    before = signal.signal(number, handler)
    try:
        assert_interrupted(query, progress, tells)
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)


def assert_interrupted(query: vf.ProbabilityGap, progress: Any, tells: list[float]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["verifair.engine.gap.search"], "REPORTED", 0.0)
        found = vf.verify(query, budget=vf.Budget(seconds=30), tolerance=1e-6, progress=progress)
    assert len(tells) == 1
    assert found.reason is vf.Reason.INTERRUPTED
    assert found.seconds < 25
    assert found.lower < found.upper <= tells[0] + 1e-3
    assert found.certificate is not None
    assert vf.check(found.certificate, model=query.model, schema=query.schema).accepted


def test_another_handler_of_the_caller_does_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that raises nothing ends no search."""
    told: list[int] = []
    monkeypatch.setattr(sys.modules["verifair.engine.gap.search"], "REPORTED", 0.0)
    before = signal.signal(signal.SIGINT, lambda number, frame: told.append(number))
    try:
        found = vf.verify(
            a_query(3, "plain"), budget=vf.Budget(seconds=5), tolerance=TOLERANCE,
            progress=lambda *_: signal.raise_signal(signal.SIGINT),
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert (found.reason, set(told)) == (None, {signal.SIGINT})


def test_a_handler_that_the_caller_s_own_sets_meanwhile_stays() -> None:
    def once(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_IGN)

    before = signal.signal(signal.SIGINT, once)
    try:
        with noted_interrupt(deferred=True) as interrupted:
            signal.raise_signal(signal.SIGINT)
            assert not interrupted()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


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
@settings(max_examples=len(draws(15)))
@given(seed=seeds, style=st.sampled_from(["plain", "sparse", "integer"]), shut=st.booleans())
def test_the_attack_finds_the_best_pair_of_a_small_box(objective: Objective, seed: int, style: str, shut: bool) -> None:
    problem = random_problem(seed, style, FLIP)
    if shut:
        forbidden = Forbidden(lower=np.array([[-np.inf, 0.0, -np.inf, 1.0]]), upper=np.array([[np.inf, 3.0, np.inf, 2.0]]))
        problem = replace(problem, domain=replace(problem.domain, forbidden=forbidden))
    climb = Climb(Twin.of(problem), objective, np.random.default_rng(seed))
    climb.run(5, rounds=4)
    found = climb.found(32)
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


@settings(max_examples=len(draws(200)))
@given(
    epsilon=st.floats(1e-4, 0.999), slope=st.floats(-9, 9), b=st.floats(-40, 40), known=st.floats(1e-5, 0.9), off=st.floats(0, 3)
)
def test_lines_lie_under_the_curve_and_bound_gaps(epsilon: float, slope: float, b: float, known: float, off: float) -> None:
    m = np.array([2.0**slope])
    constant = float(conjugate(epsilon, m)[0])
    a = float(m[0] * b + constant)
    assert expit(a) - expit(b) <= epsilon, "a line that crosses the curve would close boxes with larger gaps"
    w = constant + off
    points = np.linspace(-60, 60, 2001)
    largest = (expit(m[0] * points + w) - expit(points)).max()
    bound = float(gap_below(np.array([w]), m, known, np.array([1.0]))[0])
    assert largest <= bound + 1e-12
    assert bound <= 1.0
    closer = gap_of(w, float(m[0]), known)
    assert largest <= closer + 1e-12
    assert known <= closer <= bound + 2e-6
