"""Smooth networks against brute force in ball arithmetic: the engine may be silent, it may never be wrong."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import verifair as vf
from encoders.arrays import Array
from encoders.bounds.difference import goal_bounds, interval_goals
from encoders.bounds.interval import interval_bounds
from encoders.bounds.regions import RegionBounds
from encoders.bounds.twin import Twin
from encoders.curves.layer import Curve, SmoothLayer
from encoders.domain import Regions
from encoders.network import Layer
from encoders.problem import TwinProblem
from tests.draws import draws
from tests.soundness.random_fairness import Case, small_cases
from tests.soundness.random_twins import (
    BITS,
    FLIP,
    MIXES,
    PBA,
    ROBUST,
    STRICT_SIGNS,
    STYLES,
    brute_force_smooth,
    logits,
    smooth_problem,
    smoothed,
)
from verifair.checker.certificates.tree import Tree
from verifair.checker.kernel.bounds import TwinBounds
from verifair.engine.questions import Pairs, box_of
from verifair.engine.search.branch_and_bound import decide
from verifair.engine.search.open_goals import OPEN, PROVED
from verifair.engine.verify import fairness_certificate

pytestmark = [pytest.mark.filterwarnings(f"ignore:{what}") for what in ("overflow", "invalid")]  # a search ignores them, too
GOALS = {"pba": PBA, "robust": ROBUST, "flip": FLIP, "strict-signs": STRICT_SIGNS}
seeds = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("mix", MIXES)
@settings(max_examples=len(draws(12)))
@given(seed=seeds, style=st.sampled_from(STYLES))
def test_bounds_lie_below_every_point(mix: str, seed: int, style: str) -> None:
    assert_below_every_point(smooth_problem(seed, style, mix, (*PBA, *ROBUST, *FLIP)))


@pytest.mark.parametrize("seed", range(40))
def test_bounds_of_squares_that_cancel_pay_for_rounding(seed: int) -> None:
    """Squares of about 2^52 whose differences are a few units: what is lost in adding them up is as large."""
    problem = smooth_problem(seed, "integer", "squares", (*PBA, *ROBUST))
    rng, (first, *_) = np.random.default_rng(seed), problem.network.layers
    m = 8
    layer = SmoothLayer(
        weight=rng.integers(-3, 4, (m, first.weight.shape[1])) / 7.0, bias=2.0**26 + rng.integers(0, 9, m) / 3.0, bend=np.ones(m),
        curve=np.full(m, Curve.SQUARE, dtype=np.int8),
    )
    ends = rng.integers(-2, 3, (len(problem.margin), m)) / 3.0
    ends[:, -1] -= ends.sum(axis=1)
    last = Layer(weight=ends, bias=np.zeros(len(ends)), slope=np.ones(len(ends)))
    batch = replace(problem.batch, upper=np.minimum(problem.batch.upper, problem.batch.lower + seed % 2))
    assert_below_every_point(replace(problem, network=replace(problem.network, layers=(layer, last)), batch=batch))


def assert_below_every_point(problem: TwinProblem) -> None:
    twin = Twin.of(problem)
    question = np.arange(len(problem.batch))
    low, high = twin.local.box(problem.batch.lower[:, twin.variables], problem.batch.upper[:, twin.variables])
    linear = goal_bounds(twin, question, low, high, np.ones((len(question), len(problem.rows)))).lower
    interval = interval_goals(twin, question, interval_bounds(twin, question, low, high)[-1])
    found = [linear, interval, *checker_bounds(problem)]
    for q in question:
        for values in brute_force_smooth(problem, int(q)):
            for r, value in enumerate(values):
                for bounds in found:
                    assert not np.isnan(bounds[q, r])
                    assert np.isinf(bounds[q, r]) or not arb(float(bounds[q, r])) > value


def checker_bounds(problem: TwinProblem) -> list[Array]:
    """Bounds (Q, R) of all rows by the checker: linear and by intervals, with inner substitutions and without."""
    batch, rows = problem.batch, problem.rows
    copies = (batch.lower, batch.upper), (batch.second(batch.lower), batch.second(batch.upper))
    ends = [problem.domain.box(*copy) for copy in copies]
    box, row = (one.ravel() for one in np.indices((len(batch), len(rows))))
    p, q = rows[row, :1] * problem.margin, rows[row, 1:] * problem.margin
    out = []
    with np.errstate(all="ignore"):
        for close in (False, True):
            bounds = TwinBounds(problem.network, *ends[0], *ends[1], close=close)
            out.append(bounds.by_substitution(p, q, box, layer=len(problem.network.layers) - 1))
            margins = bounds.margins(np.tile(problem.margin, (len(batch), 1)))
            out.append(bounds.by_intervals(margins, rows[row, 0], rows[row, 1], box))
    return [one.reshape(len(batch), len(rows)) for one in out]


@pytest.mark.parametrize("mix", MIXES)
@settings(max_examples=len(draws(12)))
@given(seed=seeds, style=st.sampled_from(("plain", "sparse", "duplicate", "tiny", "constant", "integer")))
def test_a_row_that_regions_prove_is_proved_by_the_checker(mix: str, seed: int, style: str) -> None:
    """Both compute the standard relaxation: the search with room for rounding, so that the checker's one bound is no worse."""
    problem = smooth_problem(seed, style, mix, (*PBA, *ROBUST, *FLIP))
    squares = sum(isinstance(layer, SmoothLayer) and layer.squared.any() for layer in problem.network.layers)
    assume(squares < 4)  # each doubles the room, relatively
    twin, batch = Twin.of(problem).with_room(), problem.batch
    question, shape = np.arange(len(batch)), (len(batch), len(problem.rows))
    box, row = (one.ravel() for one in np.indices(shape))
    free = np.zeros((len(batch), 2 * sum(problem.network.hidden)), dtype=bool)
    regions = Regions(lower=batch.lower, upper=batch.upper, active=free, inactive=free)
    low, high = twin.local.box(batch.lower[:, twin.variables], batch.upper[:, twin.variables])
    size = 1e-6 * (np.abs(problem.rows).sum(axis=1) * twin.magnitude[-1]) + 1e-80  # ten layers of tanh amplify the room
    linear = checker_bounds(problem)[::2]
    for theirs, intervals in zip(linear, (interval_bounds(twin, question, low, high), None), strict=True):
        found = RegionBounds(twin, regions, question, intervals).rows(box, problem.rows[row], problem.constants[row]).reshape(shape)
        assert ((found == -np.inf) | (theirs + problem.constants >= found - size)).all()


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("kind", GOALS)
@settings(max_examples=len(draws(4)))
@given(seed=seeds, style=st.sampled_from(STYLES))
def test_verdicts_equal_brute_force(kind: str, mix: str, seed: int, style: str) -> None:
    problem = smooth_problem(seed, style, mix, GOALS[kind])
    decision = decide(problem, max_nodes=500)
    for q in range(len(problem.batch)):
        values = brute_force_smooth(problem, q)
        for g in range(len(problem.goals)):
            mine = np.flatnonzero(problem.goal_of == g)
            fails = [all(row[r] <= 0 if problem.strict[r] else row[r] < 0 for r in mine) for row in values]
            holds = [any(row[r] > 0 if problem.strict[r] else row[r] >= 0 for r in mine) for row in values]
            status = decision.status[q, g]
            if status == OPEN:  # only where a row is 0 and no precision can tell, or boxes have run out
                assert not (all(holds) or any(fails)) or decision.out_of[q] == "nodes"
            elif status == PROVED:
                assert not any(fails)
            else:
                assert not all(holds)
                point = decision.witness[q, g]
                assert (point >= problem.batch.lower[q]).all()
                assert (point <= problem.batch.upper[q]).all()


# Verdicts about smooth networks, their certificates and the checker, against ball arithmetic at every row.


STYLES = ("plain", "sparse", "integer", "huge", "tiny", "blind", "giant", "saturated")


def smooth_cases(style: str, mix: str, count: int, **options: bool) -> list[Case]:
    """The random queries of `small_cases` with curves in their networks."""
    out = []
    for case in small_cases(style, count, **options):
        rng = np.random.default_rng(case.seed)
        network = smoothed(case.query.model, rng, mix)
        sha256 = hashlib.sha256(rng.bytes(8)).hexdigest()
        out.append(replace(case, query=replace(case.query, model=replace(network, source_sha256=sha256))))
    return out


def violated_somewhere(case: Case) -> bool | None:
    """Whether some pair of legal rows violates the query; None where no precision tells."""
    before, ctx.prec = ctx.prec, BITS
    try:
        margins = [_margin(case, row) for row in case.rows]
        bad, fine = False, True
        for first, second in zip(*case.pairs, strict=True):
            a, b = margins[first], margins[second]
            if case.query.epsilon is None:
                bad, fine = bad or (a > 0 and b < 0), fine and (a <= 0 or b >= 0)
            else:
                gap = _sigma(a) - _sigma(b) - arb(case.query.epsilon)
                bad, fine = bad or gap > 0, fine and gap <= 0
        return True if bad else False if fine else None
    finally:
        ctx.prec = before


def _sigma(a: arb) -> arb:
    return ((a / 2).tanh() + 1) / 2


def _margin(case: Case, row: np.ndarray) -> arb:
    out = logits(case.query.model, case.schema.encode(row[None])[0])
    return out[0] if len(out) == 1 else out[1] - out[0]


@pytest.mark.parametrize("epsilon", [False, True])
@pytest.mark.parametrize("style", STYLES)
def test_verdicts_are_true_and_their_certificates_are_confirmed(style: str, epsilon: bool) -> None:
    for mix in ("tanh", "mixed", "convex", "jumps", "falls", "squares"):
        for case in smooth_cases(style, mix, 2, epsilon=epsilon):
            verdict = vf.verify(case.query, budget=vf.Budget(seconds=30, nodes=3000))
            truth = violated_somewhere(case)
            match verdict.status:
                case vf.Status.PROVED:
                    assert truth is not True
                    assert verdict.certificate is not None
                    assert "as the real functions" in verdict.certificate.semantics or case.query.model.piecewise_linear
                    report = vf.check(verdict.certificate, model=case.query.model, schema=case.schema)
                    assert report.accepted, (case.seed, mix, report.rejections)
                case vf.Status.VIOLATED:
                    assert truth is not False
                case vf.Status.UNKNOWN:
                    assert truth is None, (case.seed, mix, verdict.reason)


@pytest.mark.parametrize("epsilon", [False, True])
def test_forged_certificates_are_rejected(epsilon: bool) -> None:
    """One leaf for the whole box, of every pair and direction, claims what is false somewhere."""
    forged = 0
    for style, mix in (
        ("plain", "tanh"), ("integer", "sigmoid"), ("huge", "mixed"), ("saturated", "tanh"),
        ("plain", "falls"), ("integer", "jumps"), ("plain", "squares")
    ):
        for case in smooth_cases(style, mix, 6, epsilon=epsilon):
            if violated_somewhere(case) is not True:
                continue
            box = box_of(case.schema, case.query.box)
            batch, _, _ = Pairs.of(case.query, *box).batch(case.schema.domain, box[0][None], box[1][None], box)
            evidence = [[(Tree.leaf(), False)] * 2 for _ in range(len(batch))]
            forgery = fairness_certificate(case.query, batch, box, evidence, epsilon=case.query.epsilon, scale="probability")
            assert vf.check(forgery, model=case.query.model, schema=case.schema).rejections
            forged += 1
    assert forged > 3


def test_a_certificate_is_about_one_network() -> None:
    """The same weights with ReLU, or with the other curve, are another network, whatever its file says."""
    cases = (case for case in smooth_cases("plain", "tanh", 20) if not case.query.model.piecewise_linear)
    case = next(case for case in cases if violated_somewhere(case) is False)
    verdict = vf.verify(case.query, budget=vf.Budget(seconds=30))
    assert verdict.certificate is not None
    bent = tuple(
        Layer(weight=layer.weight, bias=layer.bias, slope=np.zeros(len(layer.bias))) if isinstance(layer, SmoothLayer) else layer
        for layer in case.query.model.layers
    )
    report = vf.check(verdict.certificate, model=replace(case.query.model, layers=bent), schema=case.schema)
    assert not report.accepted
    assert "semantics" in str(report.rejections[0])
