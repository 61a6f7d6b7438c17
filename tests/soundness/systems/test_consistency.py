"""No points of two boxes have a CEC score above its bound, a margin outside its bounds, or a gradient outside its zonotope."""

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoders.arrays import Array
from encoders.attributions.gradients import integrated_gradients
from encoders.bounds.explanations.attribution import attributions, score_bound
from encoders.bounds.explanations.gradient import gradient_zonotopes
from encoders.model import Link
from encoders.network import Layer, Network
from tests.builders import categorical, integer, network_of, real, schema_of
from tests.draws import draws
from tests.soundness.random_twins import STYLES, nasty_network
from verifair.checker.check import check
from verifair.checker.kinds.consistency import _near, explanation_bounds, surely_near
from verifair.engine.questions import decisions, neighbourhood
from verifair.errors import QueryError
from verifair.systems.cec.audit import audit
from verifair.systems.cec.certified import CertifiedConsistency, boxes, certify_consistency, raw_rows
from verifair.systems.cec.explanations import EPSILON, cec_score
from verifair.systems.cec.matching import Reference
from verifair.systems.cec.people import merit_columns, people_of

POINTS, CLIMBS, N = 24, 12, 4
BOXES = ("point", "narrow", "wide", "one-moves", "at-baseline", "around-baseline")


def random_box(rng: np.random.Generator, kind: str, baseline: Array) -> tuple[Array, Array]:
    """A box (N,), (N,) of the given kind; some of its columns are still."""
    centre = baseline.copy() if "baseline" in kind else rng.standard_normal(N)
    width = {"point": 0.0, "narrow": 0.02, "one-moves": 0.3, "at-baseline": 0.0}.get(kind, 0.5)
    radius = width * rng.random(N) * (rng.random(N) < 0.6)
    if kind == "one-moves":
        radius *= np.arange(N) == 0
    return centre - radius, centre + radius


def points_of(rng: np.random.Generator, low: Array, high: Array) -> Array:
    """Corners, the middle, and points within (POINTS, N)."""
    share = rng.random((POINTS, N))
    share[: POINTS // 2] = np.round(share[: POINTS // 2])
    share[-1] = 0.5
    return np.clip(low + share * (high - low), low, high)


class Truth:
    """The measured side: exact path integrals, and a climb towards the largest score."""

    def __init__(self, network: Network, margin: Array, baseline: Array) -> None:
        self.network, self.margin, self.baseline = network, margin, baseline

    def g(self, x: Array) -> Array:
        return integrated_gradients(self.network, self.margin, x, np.broadcast_to(self.baseline, x.shape))

    def worst(self, rng: np.random.Generator, box: tuple[Array, Array], other: tuple[Array, Array]) -> float:
        """The largest score found between points of the two boxes."""
        x, y = points_of(rng, *box), points_of(rng, *other)
        score = cec_score(np.repeat(self.g(x), POINTS, axis=0), np.tile(self.g(y), (POINTS, 1)))
        best = int(score.argmax())
        at, to, found = x[best // POINTS], y[best % POINTS], float(score[best])
        for step in 0.5 ** np.arange(CLIMBS):
            near = np.clip(at + step * (box[1] - box[0]) * rng.uniform(-1, 1, (POINTS, N)), *box)
            far = np.clip(to + step * (other[1] - other[0]) * rng.uniform(-1, 1, (POINTS, N)), *other)
            score = cec_score(self.g(near), self.g(far))
            if score.max() > found:
                best = int(score.argmax())
                at, to, found = near[best], far[best], float(score[best])
        return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A random network and two random boxes."""

    rng: np.random.Generator
    network: Network
    margin: Array
    baseline: Array
    sides: list[tuple[Array, Array]]
    slices: int

    @property
    def truth(self) -> Truth:
        return Truth(self.network, self.margin, self.baseline)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    outputs = draw(st.sampled_from([1, 2]))
    style, depth = draw(st.sampled_from(STYLES)), draw(st.integers(1, 3))
    baseline = np.round(rng.standard_normal(N), 1)
    return Case(
        rng=rng,
        network=nasty_network(rng, N, style, depth=depth, width=5, outputs=outputs),
        margin=np.ones(1) if outputs == 1 else np.array([-1.0, 1.0]),
        baseline=baseline,
        sides=[random_box(rng, draw(st.sampled_from(BOXES)), baseline) for _ in range(2)],
        slices=draw(st.sampled_from([1, 2, 8, 32])),
    )


@settings(max_examples=len(draws(250)))
@given(cases())
def test_nothing_lies_outside_the_bounds(case: Case) -> None:
    rng, network, margin, baseline, slices = case.rng, case.network, case.margin, case.baseline, case.slices
    truth, sides = case.truth, case.sides
    enclosures = []
    for low, high in sides:
        zonotopes = gradient_zonotopes(network, margin, baseline[None], low[None], high[None], slices)
        enclosures.append(attributions(zonotopes, baseline[None], low[None], high[None]))
        x = points_of(rng, low, high)
        g, value = truth.g(x), network.forward(x) @ margin
        noise = 1e-12 * np.abs(value).max() + 1e-300
        assert zonotopes.lower[0] <= value.min() + noise
        assert value.max() <= zonotopes.upper[0] + noise
        # Both the zonotope of the gradient and the enclosure of attributions, by their support in many directions.
        directions = rng.standard_normal((40, N)) * 10.0 ** rng.integers(-2, 2, (40, N))
        reach = directions @ zonotopes.centre[0] + np.abs(directions @ zonotopes.generator.T).sum(axis=1)
        reach += np.abs(directions) @ zonotopes.error[0]
        moved = np.abs(x - baseline).min(axis=1) > 1e-2
        gradient = g[moved] / (x - baseline)[moved]
        size = np.abs(directions) @ np.abs(gradient).max(axis=0, initial=0.0)
        assert (directions @ gradient.T <= (reach + 1e-9 * size + 1e-300)[:, None]).all()
        one = enclosures[-1]
        reach = directions @ one.centre[0] + np.abs(directions @ one.generator.T).sum(axis=1)
        reach += np.linalg.norm(directions, axis=1) * one.rest[0] + 1e-9 * (np.abs(directions) @ np.abs(g).max(axis=0))
        assert (directions @ g.T <= (reach + 1e-300)[:, None]).all()
        norms = np.linalg.norm(g, axis=1)
        assert (norms >= one.length[0] * (1 - 1e-9)).all()
        assert (np.linalg.norm(g - one.centre[0], axis=1) <= one.radius[0] + 1e-9 * norms).all()
    bound = score_bound(enclosures[0], 0, enclosures[1], 0, EPSILON)
    assert truth.worst(rng, *sides) <= bound + 1e-9


@settings(max_examples=len(draws(250)))
@given(cases())
def test_the_checker_confirms_nothing_that_is_false(case: Case) -> None:
    truth, found = case.truth, []
    for low, high in case.sides:
        one = explanation_bounds(case.network, case.margin, case.baseline[None], low[None], high[None], case.slices)[0]
        found.append(one)
        x = points_of(case.rng, low, high)
        g, value = truth.g(x), case.network.forward(x) @ case.margin
        noise = 1e-12 * np.abs(value).max() + 1e-300
        assert one.decision != 1 or value.min() > -noise
        assert one.decision != 0 or value.max() <= noise
        norms = np.linalg.norm(g, axis=1)
        assert (norms >= one.least * (1 - 1e-9)).all()
        assert (np.linalg.norm(g - one.centre, axis=1) <= one.radius + 1e-9 * norms).all()
        directions = case.rng.standard_normal((40, N)) * 10.0 ** case.rng.integers(-2, 2, (40, N))
        reach = directions @ one.centre + np.abs(directions @ one.columns.T).sum(axis=1)
        reach += np.linalg.norm(directions, axis=1) * one.rest + 1e-9 * (np.abs(directions) @ np.abs(g).max(axis=0))
        assert (directions @ g.T <= (reach + 1e-300)[:, None]).all()
    worst = truth.worst(case.rng, *case.sides)
    assert not surely_near(*found, worst - 1e-9, EPSILON)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_checker_s_bound_of_a_point_is_its_score(depth: int) -> None:
    rng = np.random.default_rng(depth)
    network = nasty_network(rng, N, "plain", depth=depth, width=12, outputs=1)
    baseline, x, y = np.zeros((1, N)), rng.standard_normal((1, N)), rng.standard_normal((1, N))
    measured = cec_score(*(integrated_gradients(network, np.ones(1), one, baseline) for one in (x, y)))[0]
    one, two = (explanation_bounds(network, np.ones(1), baseline, z, z, 4096)[0] for z in (x, y))
    assert surely_near(one, two, measured + 1e-3, EPSILON)
    assert not surely_near(one, two, measured, EPSILON)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_point_s_bound_is_its_score(depth: int) -> None:
    """At a point what is left is of second order in the slices: with many of them the bound is the measured score."""
    rng = np.random.default_rng(depth)
    network = nasty_network(rng, N, "plain", depth=depth, width=12, outputs=1)
    baseline, x, y = np.zeros((1, N)), rng.standard_normal((1, N)), rng.standard_normal((1, N))
    margin = np.ones(1)
    measured = cec_score(*(integrated_gradients(network, margin, one, baseline) for one in (x, y)))[0]
    gaps = []
    for slices in (16, 1024):
        one, two = (attributions(gradient_zonotopes(network, margin, baseline, z, z, slices), baseline, z, z) for z in (x, y))
        gaps.append(score_bound(one, 0, two, 0, EPSILON) - measured)
    assert 0 <= gaps[1] <= gaps[0] < 0.5
    assert gaps[1] < 1e-4


@pytest.mark.parametrize("size", [1e-9, 1e-8, 1e-7])
def test_epsilon_pulls_small_explanations_together_and_apart(size: float) -> None:
    """Parallel explanations of different lengths near epsilon have a score, though their angle is 0."""
    network = network_of((np.full((1, N), size), None))
    baseline, short, long = np.zeros((1, N)), np.full((1, N), 0.5), np.full((1, N), 1e6)
    margin = np.ones(1)
    measured = cec_score(*(integrated_gradients(network, margin, one, baseline) for one in (short, long)))[0]
    one, two = (attributions(gradient_zonotopes(network, margin, baseline, z, z, 1), baseline, z, z) for z in (short, long))
    bound = score_bound(one, 0, two, 0, EPSILON)
    assert 0.01 < measured <= bound < measured + 1e-4
    mine = [explanation_bounds(network, margin, baseline, z, z, 1)[0] for z in (short, long)]
    assert surely_near(*mine, measured + 1e-4, EPSILON)
    assert not surely_near(*mine, measured, EPSILON)


# A reviewer's attacks on the certified companion: rational explanations without any tolerance, residues of rounding, rims.


Exact = npt.NDArray[np.object_]
N_REVIEW = 4


def exact(values: Array) -> Exact:
    return np.array([Fraction(float(v)) for v in np.ravel(values)], dtype=object).reshape(np.shape(values))


def masks(network: Network, z: Exact) -> list[tuple[Exact, Exact]]:
    """Pre-activations and slopes of the hidden layers at a point z (n_0,), all rational."""
    found, y = [], z
    for layer in network.layers[:-1]:
        a = exact(layer.weight) @ y + exact(layer.bias)
        slope = np.array([Fraction(1) if v > 0 else s for v, s in zip(a, exact(layer.slope), strict=True)], dtype=object)
        found.append((a, slope))
        y = slope * a
    return found


def exact_gradient(network: Network, margin: Array, baseline: Array, x: Array) -> Exact:
    """The mean gradient (n_0,) along the path, as a rational number: pieces between all changes of sign."""
    start, direction = exact(baseline), exact(x) - exact(baseline)
    ends = [Fraction(0), Fraction(1)]
    for k in range(len(network.layers) - 1):
        values = [masks(network, start + alpha * direction)[k][0] for alpha in ends]
        new = {
            left + (right - left) * a / (a - b)
            for (left, at_left), (right, at_right) in pairwise(zip(ends, values, strict=True))
            for a, b in zip(at_left, at_right, strict=True)
            if a * b < 0
        }
        ends = sorted({*ends, *new})
    total = exact(np.zeros(len(x)))
    for left, right in pairwise(ends):
        pulled = exact(margin) @ exact(network.layers[-1].weight)
        inside = masks(network, start + (left + right) / 2 * direction)
        for layer, (_, slope) in zip(network.layers[-2::-1], inside[::-1], strict=True):
            pulled = (slope * pulled) @ exact(layer.weight)
        total = total + (right - left) * pulled
    return total


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("size", [1.0, 1e6])
def test_exact_explanations_lie_within_both_enclosures_without_any_tolerance(style: str, size: float) -> None:
    rng = np.random.default_rng(7)
    for depth in (0, 1, 2):
        network = nasty_network(rng, N_REVIEW, style, depth=depth, width=4, outputs=2)
        margin, baseline = np.array([-1.0, 1.0]), np.round(rng.standard_normal(N_REVIEW), 1)
        low = size * rng.standard_normal(N_REVIEW)
        high = low + size * rng.choice([0.0, 0.0, 0.3], N_REVIEW)
        box = baseline[None], low[None], high[None]
        zonotopes = gradient_zonotopes(network, margin, *box, 4)
        found, mine = attributions(zonotopes, *box), explanation_bounds(network, margin, *box, 4)[0]
        for x in (low, high):
            gradient = exact_gradient(network, margin, baseline, x)
            off = np.abs(gradient - exact(zonotopes.centre[0]))
            assert (off <= exact(np.abs(zonotopes.generator)).sum(axis=0) + exact(zonotopes.error[0])).all()
            g = gradient * (exact(x) - exact(baseline))
            for centre, radius in ((found.centre[0], found.radius[0]), (mine.centre, mine.radius)):
                assert ((g - exact(centre)) ** 2).sum() <= Fraction(float(radius)) ** 2


def residue() -> tuple[Array, float]:
    """Weights (3,) and a bias whose sum is negative, though in floats it comes out positive."""
    rng = np.random.default_rng(0)
    for _ in range(1000):
        w = rng.standard_normal(3)
        w[2] = -w[:2].sum() * (1 + 1e-3 * rng.random())
        rounded = float((np.ones((1, 4)) @ np.append(w, 0.0)[:, None])[0, 0])
        b = -float(np.nextafter(rounded, -np.inf))
        if exact(w).sum() + Fraction(b) < 0:
            return w, b
    raise AssertionError("no such weights found")


def test_a_neuron_that_only_rounding_turns_on_is_not_taken_to_be_on() -> None:
    w, b = residue()
    network = network_of((np.append(w, 0.0)[None], [b]), (np.ones((1, 1)), None))
    point, baseline = np.ones((1, 4)), np.array([[1.0, 1.0, 1.0, 0.0]])
    assert not exact_gradient(network, np.ones(1), baseline[0], point[0]).any()
    found = gradient_zonotopes(network, np.ones(1), baseline, point, point, 4)
    assert (np.abs(found.centre[0]) <= np.abs(found.generator).sum(axis=0) + found.error[0]).all()


def test_what_underflows_on_the_way_back_is_not_taken_to_be_zero() -> None:
    """Weights 1e-180 and 1e-180, then 1e90 four times: the gradient is 1, its products from the output vanish before they grow."""
    sizes = [1e90, 1e90, 1e90, 1e90, 1e-180, 1e-180]
    layers = tuple(Layer(weight=np.array([[v]]), bias=np.zeros(1), slope=np.ones(1)) for v in sizes)
    network = Network(layers=layers, link=Link.IDENTITY, source_sha256="")
    point, baseline = np.full((1, 1), 1e-60), np.zeros((1, 1))
    mine = explanation_bounds(network, np.ones(1), baseline, point, point, 1)[0]
    assert not mine.radius < 1e-60
    zonotopes = gradient_zonotopes(network, np.ones(1), baseline, point, point, 1)
    assert not np.abs(zonotopes.centre[0, 0]) + zonotopes.error[0, 0] < 1


RIM = schema_of(
    real("rate", 0, 1, unit=0.1, merit=True),
    integer("sum", 0, 100),
    categorical("sex", "F", "M", protected=True),
    positive="logit > 0",
    label="good",
    positive_label="yes",
)


def certified_at(rate: float, cut: float) -> tuple[CertifiedConsistency, Network]:
    """Two people alike, whom the network decides positively up to `cut`, certified within one unit of their rate."""
    network = network_of(([[-1.0, 1.0, 0.0]], [cut - 50]))
    frame = pd.DataFrame({
        "rate": [rate, rate, 0, 0, 0.9, 0.9], "sum": [50, 50, 0, 0, 0, 0], "sex": list("FMFMFM"), "good": ["yes"] * 4 + ["no"] * 2,
    })
    people = people_of(RIM, frame, "sex")
    reference = Reference.of(people, merit_columns(RIM))
    return certify_consistency(network, RIM, audit(network, reference, people, threads=1), reference, people, 1.0), network


def test_a_row_at_the_rim_counts_though_float32_moved_the_person() -> None:
    """0.08 is read back as 0.0799999982, and 0.1 more is another float32 number than 0.18: the decision changes between the two."""
    at = float(RIM.encode(np.array([[0.18, 50, 0]]))[0, 0])
    before = float(np.nextafter(np.float32(at), np.float32(0)))
    found, network = certified_at(0.08, (before + at) / 2)
    rows = RIM.encode(np.array([[0.08, 50, 0], [0.18, 50, 0]]))
    assert decisions(network, rows).tolist() == [1, 0]
    assert not found.certified[:2].any()
    sure, network = certified_at(0.08, at + 1e-6)
    assert sure.certified[:2].all()
    assert not check(sure.certificate, model=network, schema=RIM).rejections


@pytest.mark.parametrize("seed", draws(20))
def test_all_inputs_of_the_true_neighbourhood_lie_in_both_boxes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    low = float(np.round(3 * rng.standard_normal(), 1))
    features = [
        real("rate", low, low + 1.3, unit=0.05, scale=rng.choice(["none", "minmax"])),
        integer("years", -4, 30, unit=2, scale="minmax"),
        real("still", low, low + 0.7, scale="minmax"),
    ]
    schema = schema_of(*features, positive="logit > 0")
    raw = np.stack([low + np.round(1.3 * rng.random(60), 3), rng.integers(-4, 31, 60), low + 0.7 * rng.random(60)], axis=1)
    raw[:3, 0] = low, low + 1.3, 0.0 if low < 0 < low + 1.3 else low
    read = raw_rows(schema, schema.encode(raw))
    for delta in (0.0, 0.5, 1.0, 3.0):
        ends = (raw, raw) if delta == 0 else neighbourhood(schema, raw, delta, [])
        for lower, upper in (boxes(schema, read, delta), _near(schema, read, delta)):
            box = schema.domain.box(lower, upper)
            for end in ends:
                x = schema.encode(end)
                assert ((box[0] <= x) & (x <= box[1])).all()
            assert (upper - lower <= ends[1] - ends[0] + 1e-5).all()
        assert np.array_equal(boxes(schema, read, delta), _near(schema, read, delta)), "a tree is of the box that the checker cuts"


def test_the_pairs_of_an_audit_are_not_certified_by_other_people() -> None:
    frame = pd.DataFrame({"rate": [0.1, 0.2, 0.3, 0.4], "sum": 50, "sex": list("FMFM"), "good": ["yes", "yes", "no", "no"]})
    people = people_of(RIM, frame, "sex")
    reference = Reference.of(people, merit_columns(RIM))
    network = network_of((np.ones((1, 3)), None))
    measured = audit(network, reference, people, threads=1)
    with pytest.raises(QueryError, match="others than those of the audit"):
        certify_consistency(network, RIM, measured, reference, people.take(np.array([3, 2, 1, 0])), 1.0)
