"""Graphs of maxima, clippings, poolings, convolutions and branches against enumeration: the import is exact, verdicts are true."""

from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import verifair as vf
from encoders.errors import ModelError
from encoders.onnx.reader import read_onnx
from encoders.onnx.runtime import runtime_logits
from tests.builders import integer, schema_of

from .random_fairness import Case
from .random_graphs import evaluated, exactly, random_graph, save
from .test_whole_domain import assert_true

GRAPHS = 100
METHODS = ("auto", "bnb", "milp", "smt")


def rows(inputs: int, most: int = 2) -> np.ndarray:
    return np.array(list(product((0, 1), *[range(most + 1)] * (inputs - 1))), dtype=np.float64)


@pytest.mark.parametrize("part", range(5))
def test_the_import_is_the_stored_graph_exactly(part: int, tmp_path: Path) -> None:
    """Every row of a small box and some fractions beside it, in fractions on both sides; onnxruntime agrees in float32."""
    rewritten = 0
    for seed in range(part * GRAPHS // 5, (part + 1) * GRAPHS // 5):
        inputs = 2 + seed % 5
        graph = random_graph(seed, inputs, steps=2 + seed % 6)
        network = read_onnx(save(graph, inputs, tmp_path / f"{seed}.onnx"), check_points=8)
        rng = np.random.default_rng(seed)
        x = np.concatenate([rows(inputs, 1), rng.integers(-40, 41, (16, inputs)) / 8])
        expected = evaluated(graph, exactly(x))["y"]
        if not network.rounded:
            assert (network.forward(exactly(x)) == expected).all(), seed
        exact = expected.astype(np.float64)
        np.testing.assert_allclose(network.forward(x), exact, rtol=1e-9, atol=1e-9 * (1 + np.abs(exact).max()))
        float32 = runtime_logits(network, x.astype(np.float32))
        np.testing.assert_allclose(float32, exact, rtol=1e-4, atol=1e-4 * (1 + np.abs(exact).max()))
        rewritten += not network.rounded
    assert rewritten >= 10      # of 20: most graphs need no rounding at all


@pytest.mark.parametrize("method", METHODS)
def test_verdicts_are_those_of_enumeration(method: str, tmp_path: Path) -> None:
    """Is there a row whose decision changes with the first input? Asked of graphs whose last bias puts some row on the fence."""
    decided = {True: 0, False: 0}
    for seed in range(1000, 1020):
        inputs = 3 + seed % 2
        graph = random_graph(seed, inputs, steps=2 + seed % 5)
        domain = rows(inputs)
        values = evaluated(graph, exactly(domain))["y"][:, 0]
        bias, fence = graph.nodes[-2].input[2], float(sorted(values)[len(values) * (seed % 7) // 7])
        graph.constants[bias] = (graph.constants[bias] - fence).astype(np.float32)
        network = read_onnx(save(graph, inputs, tmp_path / f"{seed}.onnx"), check_points=8)
        schema = schema_of(
            integer("sex", 0, 1, protected=True),
            *(integer(f"v{k}", 0, 2) for k in range(1, inputs)),
            positive="logit > 0",
        )
        case = Case(query=vf.IndividualFairness(network=network, schema=schema, protected=["sex"]), seed=seed, style="graph")
        logits = evaluated(graph, exactly(case.rows))["y"][:, 0]
        if not network.rounded:
            assert (case.logits == logits).all()
        verdict = vf.verify(case.query, method=method, budget=vf.Budget(seconds=20))
        if verdict.status is vf.Status.UNKNOWN:
            assert method in ("milp", "smt"), (seed, verdict.reason)
            continue
        assert_true(case, verdict)
        if verdict.status is vf.Status.VIOLATED and min(abs(v) for v in logits if v) > Fraction(1, 1000):
            assert verdict.witness is not None
            assert verdict.witness.float32_agrees
        decided[verdict.status is vf.Status.VIOLATED] += 1
    assert decided[True] >= 3
    assert decided[False] >= 3 or method == "milp"      # a row on the fence is beyond a MILP's tolerance


def test_a_lost_kink_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutations of the rewriting: the comparison with the stored graph must notice each of them."""
    from encoders.onnx.operators import activations as onnx_maxima

    right = onnx_maxima._relu
    paths = [save(random_graph(seed, 4, steps=4), 4, tmp_path / f"{seed}.onnx") for seed in range(20)]
    for path in paths:
        read_onnx(path, check_points=16)
    wrongs = (lambda node, pre: pre, lambda node, pre: right(node, -pre),
              lambda node, pre: right(node, pre).scale(onnx_maxima.exact(np.full(pre.size, 1.01))))
    for wrong in wrongs:
        monkeypatch.setattr(onnx_maxima, "_relu", wrong)
        refused = 0
        for path in paths:
            try:
                read_onnx(path, check_points=16)
            except ModelError:
                refused += 1
        assert refused >= 5
