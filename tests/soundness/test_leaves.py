"""Writers of proofs close leaves by one bound of the checker: what they write is accepted, and the bounds are those meant."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import verifair as vf
from encoders.bounds.difference import linear_goals
from encoders.bounds.interval import interval_bounds
from encoders.bounds.twin import Twin
from encoders.network import Layer
from tests.builders import random_network
from tests.draws import draws
from tests.soundness.random_twins import FLIP, random_problem
from tests.soundness.test_maximise import CONSTRAINTS, a_schema
from verifair.engine.search.boxes import roots
from verifair.engine.search.standard import StandardRelaxation

seeds = st.integers(0, 2**32 - 1)


def coarse(layer: Layer) -> Layer:
    """With weights and biases in quarters: many sums are exactly 0."""
    return replace(layer, weight=np.rint(4 * layer.weight) / 4, bias=np.rint(4 * layer.bias) / 4)


@pytest.mark.parametrize("kind", ["flip", "epsilon", "probability", "logit"])
@settings(max_examples=len(draws(25)))
@given(seed=seeds)
def test_every_leaf_of_a_certificate_is_shown_by_one_bound(kind: str, seed: int) -> None:
    """Deep networks, leaks, ties at 0, constraints, one-hot features, offsets, two logits; whole domains, and runs cut short."""
    rng = np.random.default_rng(seed)
    outputs, slope = int(rng.integers(1, 3)), float(rng.choice([0.0, 0.125]))
    schema = a_schema(CONSTRAINTS if rng.random() < 0.5 else [], outputs)
    hidden = tuple(int(n) for n in rng.integers(1, 9, int(rng.integers(0, 5))))
    network = random_network(rng, (schema.domain.columns, *hidden, outputs), slope=slope, sparsity=float(rng.choice([0.0, 0.5])))
    if rng.random() < 0.5:
        network = replace(network, layers=tuple(coarse(one) for one in network.layers))
    network = replace(network, source_sha256=f"{seed:064x}")
    relax = {"age": int(rng.integers(1, 3))} if rng.random() < 0.3 else {}
    asked = {"model": network, "schema": schema, "protected": ["sex"], "relax": relax}
    budget = vf.Budget(seconds=5, nodes=int(rng.choice([1, 10, 100, 10**6])))
    if kind in ("flip", "epsilon"):
        epsilon = None if kind == "flip" else float(rng.choice([0.01, 0.05, 0.2]))
        found = vf.verify(vf.IndividualFairness(**asked, epsilon=epsilon), budget=budget)
    else:
        found = vf.verify(vf.ProbabilityGap(**asked, scale=kind), budget=budget, tolerance=1e-3)
    if found.certificate is not None:
        report = vf.check(found.certificate, model=network, schema=schema)
        assert all(one.reason.startswith("claimed by ") for one in report.rejections)  # what a solver alone says is claimed


@settings(max_examples=len(draws(60)))
@given(seed=seeds, style=st.sampled_from(["plain", "integer", "sparse", "duplicate"]))
def test_of_one_hidden_layer_linear_bounds_of_a_row_are_the_standard_relaxation(seed: int, style: str) -> None:
    """So that boxes of such networks are closed by them alone."""
    problem = random_problem(seed, style, FLIP)
    layers = problem.network.layers
    if len(layers) > 2:
        return
    twin = Twin.of(problem).with_room()
    nodes, rng = roots(twin), np.random.default_rng(seed)
    low, high = twin.local.box(nodes.lower, nodes.upper)
    intervals = interval_bounds(twin, nodes.question, low, high)
    rows, constants = rng.standard_normal((len(nodes), 2)), rng.standard_normal(len(nodes))
    linear = linear_goals(twin, nodes.question, (low, high), intervals, rows[:, None], constants[:, None], np.ones((len(nodes), 1)))
    enough = np.full(len(nodes), np.inf)
    standard = StandardRelaxation(twin).lower(nodes, intervals, np.arange(len(nodes)), rows, constants, enough)
    size = 1 + np.abs(standard)
    assert (np.abs(standard - linear.lower[:, 0]) <= 1e-9 * size + 20 * linear.error[:, 0]).all()
