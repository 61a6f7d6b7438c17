"""No points of two boxes have a CEC score above its bound, a margin outside its bounds, or a gradient outside its zonotope."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoders.bounds.attribution import attributions, score_bound
from encoders.bounds.gradient import gradient_zonotopes
from encoders.gradients import integrated_gradients
from encoders.network import Array, Network
from tests.builders import network_of
from tests.soundness.random_twins import STYLES, random_network
from verifair.checker.kinds.consistency import explanations, surely_near
from verifair.systems.cec.explanations import EPSILON, cec_score

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
        network=random_network(rng, N, style, depth=depth, width=5, outputs=outputs),
        margin=np.ones(1) if outputs == 1 else np.array([-1.0, 1.0]),
        baseline=baseline,
        sides=[random_box(rng, draw(st.sampled_from(BOXES)), baseline) for _ in range(2)],
        slices=draw(st.sampled_from([1, 2, 8, 32])),
    )


@settings(max_examples=250)
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


@settings(max_examples=250)
@given(cases())
def test_the_checker_confirms_nothing_that_is_false(case: Case) -> None:
    truth, found = case.truth, []
    for low, high in case.sides:
        one = explanations(case.network, case.margin, case.baseline[None], low[None], high[None], case.slices)[0]
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
    network = random_network(rng, N, "plain", depth=depth, width=12, outputs=1)
    baseline, x, y = np.zeros((1, N)), rng.standard_normal((1, N)), rng.standard_normal((1, N))
    measured = cec_score(*(integrated_gradients(network, np.ones(1), one, baseline) for one in (x, y)))[0]
    one, two = (explanations(network, np.ones(1), baseline, z, z, 4096)[0] for z in (x, y))
    assert surely_near(one, two, measured + 1e-3, EPSILON)
    assert not surely_near(one, two, measured, EPSILON)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_point_s_bound_is_its_score(depth: int) -> None:
    """At a point what is left is of second order in the slices: with many of them the bound is the measured score."""
    rng = np.random.default_rng(depth)
    network = random_network(rng, N, "plain", depth=depth, width=12, outputs=1)
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
    mine = [explanations(network, margin, baseline, z, z, 1)[0] for z in (short, long)]
    assert surely_near(*mine, measured + 1e-4, EPSILON)
    assert not surely_near(*mine, measured, EPSILON)
