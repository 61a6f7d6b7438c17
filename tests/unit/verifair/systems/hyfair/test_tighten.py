"""Guardrails from counterexamples: the certified gap comes down to the target, and people in the data are spared."""

from __future__ import annotations

import numpy as np
import pytest

from encoders.onnx.reader import read_onnx
from tests.builders import categorical, integer, lattice, schema_of
from verifair.checker.check import check
from verifair.engine.queries import KDiscrimination
from verifair.errors import QueryError
from verifair.systems.hyfair.explain.rounds import outside
from verifair.systems.hyfair.explain.rules import refused
from verifair.systems.hyfair.explain.samples import severity_of
from verifair.systems.hyfair.guard.tighten import tighten
from verifair.systems.hyfair.search.space import Space
from verifair.training.onnx_writer import onnx_model

SCHEMA = schema_of(
    integer("age", 0, 30),
    integer("hours", 0, 20),
    categorical("sex", "f", "m", protected=True),
)


@pytest.fixture(scope="module")
def query(tmp_path_factory: pytest.TempPathFactory) -> KDiscrimination:
    """logit = 2 relu(sex * 25 + age - 50) - 1: sex matters only where age exceeds 25, up to a gap of sigma(9) - sigma(-1)."""
    weights = [([[1, 0, 25]], [-50]), ([[2]], [-1])]
    model = onnx_model([(np.array(w, dtype=np.float32), np.array(b, dtype=np.float32)) for w, b in weights], {})
    path = tmp_path_factory.mktemp("net") / "net.onnx"
    path.write_bytes(model.SerializeToString())
    return KDiscrimination(network=read_onnx(path), schema=SCHEMA, protected=["sex"])


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    """Data: nobody is older than 24."""
    rng = np.random.default_rng(0)
    return np.column_stack([rng.integers(0, 25, 500), rng.integers(0, 21, 500), rng.integers(0, 2, 500)]).astype(float)


def test_the_certified_gap_comes_down_to_the_target(query: KDiscrimination, rows: np.ndarray) -> None:
    found = tighten(query, rows, 0.3, seconds=30)
    assert found.steps[0].rules == 0
    assert found.steps[0].upper > 0.7
    assert found.bound.upper <= 0.3
    assert found.rules
    assert not refused(found.rules, rows).any(), "no row of the data is like the witnesses"
    points = lattice(query.schema.domain.lower, query.schema.domain.upper)
    gap, answered = severity_of(Space.of(query), "gap")(points), ~refused(found.rules, points)
    assert gap.max() > 0.7
    assert gap[answered].max() <= found.bound.upper + 1e-6, "the proof is about all that is answered"
    assert found.bound.certificate is not None
    narrowed = outside(query, found.rules).schema
    assert check(found.bound.certificate, network=query.network, schema=narrowed).accepted


def test_without_data_the_counterexamples_are_boxed_in(query: KDiscrimination) -> None:
    found = tighten(query, np.empty((0, 3)), 0.3, seconds=30)
    assert found.bound.upper <= 0.3
    assert all(set(rule.conditions) <= {0, 1} for rule in found.rules)


def test_a_target_that_is_no_gap_is_refused(query: KDiscrimination, rows: np.ndarray) -> None:
    for target in (0.0, 1.0, -0.1):
        with pytest.raises(QueryError, match="target"):
            tighten(query, rows, target)
