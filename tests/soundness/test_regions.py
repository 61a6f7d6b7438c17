"""Bounds over regions: the search's and the checker's, two codes for one relaxation, say the same, and no point lies below them."""

from itertools import pairwise, product

import numpy as np
import pytest

from encoders.arrays import Array
from encoders.bounds.regions import RegionBounds
from encoders.bounds.twin import Twin
from encoders.domain import Domain, Regions
from encoders.model import Link
from encoders.network import Network
from encoders.problem import TwinBatch, TwinProblem
from tests.builders import NO_FLIP, SHA, by_multipliers, claim_of, layer
from tests.draws import draws

CASES = 8
"""Regions of each network."""


def problem(rng: np.random.Generator) -> TwinProblem:
    """A random network over a few whole numbers and perhaps one category, its first feature protected."""
    numbers, hot = int(rng.integers(2, 5)), bool(rng.random() < 0.4)
    width = np.array([1] * numbers + [3] * hot)
    upper = np.array([*rng.integers(1, 6, size=numbers), *([2.0] * hot)], dtype=float)
    one_hot = np.array([False] * numbers + [True] * hot)
    domain = Domain(
        integer=np.ones(len(width), dtype=bool), lower=np.zeros(len(width)), upper=upper, offset=np.zeros(len(width)),
        scale=np.ones(len(width)), start=np.cumsum(width) - width, one_hot=one_hot, width=width,
    )
    depth, leak = int(rng.integers(1, 4)), float(rng.choice([0.0, 0.0, 0.1]))
    sizes = [domain.columns, *rng.integers(2, 8, size=depth), 1]
    layers = [
        layer(rng.normal(size=(m, n)), rng.normal(size=m), 1.0 if k == depth else leak)
        for k, (n, m) in enumerate(pairwise(sizes))
    ]
    protected = np.arange(len(width)) == 0
    low, high = domain.lower.copy(), domain.upper.copy()
    low[0] = high[0] = 0.0
    batch = TwinBatch(lower=low[None], upper=high[None], prime=np.where(protected, upper, 0.0)[None], protected=protected)
    network = Network(layers=tuple(layers), link=Link.IDENTITY, source_sha256=SHA)
    return TwinProblem(network=network, domain=domain, batch=batch, margin=np.ones(1), goals=(NO_FLIP,))


def regions(given: TwinProblem, rng: np.random.Generator) -> Regions:
    """Random boxes of the question, with a fifth of all signs fixed."""
    lower, upper = (np.tile(end, (CASES, 1)) for end in (given.batch.lower[0], given.batch.upper[0]))
    for b in range(CASES):
        v = int(rng.integers(1, lower.shape[1]))
        lower[b, v], upper[b, v] = np.sort(rng.integers(0, int(upper[b, v]) + 1, size=2))
    fixed, on = (rng.random((CASES, 2 * sum(given.network.hidden))) < share for share in (0.2, 0.5))
    return Regions(lower=lower, upper=upper, active=fixed & on, inactive=fixed & ~on)


def pre_activations(network: Network, x: Array) -> Array:
    """(B, H) of all hidden neurons, layer by layer."""
    found, y = [], x
    for one in network.layers[:-1]:
        found.append(y @ one.weight.T + one.bias)
        y = one.activated(found[-1])
    return np.concatenate(found, axis=1)


@pytest.mark.parametrize("seed", draws(60))
def test_bounds_of_regions_agree_and_hold(seed: int) -> None:
    rng = np.random.default_rng(seed)
    given = problem(rng)
    some, neurons = regions(given, rng), 2 * sum(given.network.hidden)
    mine = RegionBounds(Twin.of(given), some)
    weights = rng.random((CASES, len(given.rows)))
    default = np.full((CASES, neurons), np.nan)
    for slopes in (default, np.where(rng.random((CASES, neurons)) < 0.5, rng.normal(size=(CASES, neurons)), np.nan)):
        one = mine.lagrange(weights, slopes)
        theirs, nowhere, _ = by_multipliers(given.network, given.domain, claim_of(given), some, weights, slopes)
        assert (nowhere | ~mine.empty).all()
        kept = ~nowhere
        np.testing.assert_allclose(one.bound[kept], theirs[kept], rtol=1e-8, atol=1e-8)
        least = least_values(given, some, weights)
        assert (one.bound <= least + 1e-9 * (1 + np.abs(least))).all()
        assert np.isinf(least[mine.empty]).all()


def least_values(given: TwinProblem, some: Regions, weights: Array) -> Array:
    """(B,) the least of the rows' combination over all rows of each region, in float64; infinite where there is none."""
    found = np.full(len(some), np.inf)
    for b in range(len(some)):
        axes = (np.arange(low, high + 1) for low, high in zip(some.lower[b], some.upper[b], strict=True))
        raw = np.array(list(product(*axes)))
        copies = given.domain.encode(raw), given.domain.encode(given.batch.take(np.zeros(len(raw), dtype=np.int64)).second(raw))
        signs = np.concatenate([pre_activations(given.network, x) for x in copies], axis=1)
        inside = ((signs >= 0) | ~some.active[b]).all(axis=1) & ((signs <= 0) | ~some.inactive[b]).all(axis=1)
        margins = np.stack([given.network.forward(x)[:, 0] for x in copies], axis=1)
        values = (margins @ given.rows.T + given.constants) @ weights[b]
        found[b] = values[inside].min(initial=np.inf)
    return found
