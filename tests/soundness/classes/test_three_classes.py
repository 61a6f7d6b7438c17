"""Certified counterfactual decisions of three classes, of networks and trees, against every counterfactual in exact arithmetic."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import verifair as vf
from encoders.model import Model
from encoders.network import Network
from encoders.onnx.reader import read_model
from tests.builders import categorical, integer, network_of, real, schema_of
from tests.tree_models import random_tree, save
from verifair.systems.cst.causal.mechanisms import Linear
from verifair.systems.cst.causal.model import CausalModel
from verifair.systems.cst.causal.nodes import Node
from verifair.systems.cst.robustness.certified import certify_counterfactuals

FEATURES = (real("income", 0, 10), integer("years", 0, 9), categorical("sex", "f", "m", protected=True))
RULES = {"class >= 1": {1, 2}, "class = 2": {2}, "class <= 0": {0}, "class = 1": {1}}
STEP, MORE = Fraction(1, 2), Fraction(1, 4)
"""What a man's income is more by, and what a year is worth of it."""


def made(seed: int) -> Network:
    """Small whole weights, and a tie of all classes in the middle: every sum is exact in float32, and many are ties."""
    rng = np.random.default_rng(seed)
    first, last, bias = rng.integers(-2, 3, (4, 3)), rng.integers(-2, 3, (3, 4)), rng.integers(-4, 5, 4)
    middle = np.maximum(first @ [5, 4, 0] + bias, 0)
    return network_of((first, bias), (last, -last @ middle), source_sha256="4" * 64)


def grown(seed: int, path: Path) -> Model:
    """Trees whose leaves are halves, so that classes tie, with thresholds on what incomes become, and next to it."""
    rng, grid = np.random.default_rng(seed), np.array([0, 1.75, 3, 4.25, 5.5, 6.75, 8], dtype=np.float32)

    def halved(node: Any) -> Any:
        return [round(2 * v) / 2 for v in node] if isinstance(node, list) else (*node[:3], *map(halved, node[3:]))

    return read_model(save(path, [halved(random_tree(rng, 3, 3, scores=3, grid=grid)) for _ in range(5)], 3))


def favourable(network: Model, row: tuple[Fraction, ...], rule: str) -> bool:
    """As `docs/how-to/schema.md` says: the largest output decides; a network's tie with class 1 alone is not favourable."""
    (logits,) = network.forward(np.array([list(row)], dtype=object))
    found = list(logits)
    if rule == "class = 1" and isinstance(network, Network):
        return bool(found[1] > max(found[0], found[2]))
    return found.index(max(found)) in RULES[rule]


def counterfactual(income: Fraction, years: int, more: Fraction, worth: Fraction) -> tuple[Fraction, ...]:
    """do(sex = m): income rises by `more`, years by `worth` of that, each within its range, and years are whole."""
    raised = income + more
    return min(raised, Fraction(10)), Fraction(min(max(round(years + worth * (raised - income)), 0), 9)), Fraction(1)


@pytest.mark.parametrize("error", [0.0, 0.125])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", ["network", "trees"])
def test_certified_counterfactuals_are_those_of_every_coefficient(kind: str, rule: str, error: float, tmp_path: Path) -> None:
    schema, seen = schema_of(*FEATURES, positive=rule), set()
    rows = [(Fraction(i, 4), y) for i in range(0, 36, 5) for y in range(0, 9, 3)]
    frame = pd.DataFrame([{"income": float(i), "years": y, "sex": "f"} for i, y in rows])
    frame.loc[len(frame)] = {"income": 1.0, "years": 1, "sex": "m"}
    income = Node(name="income", parents=("sex",), mechanism=Linear(coefficients={"sex": {"m": float(STEP)}}))
    years = Node(name="years", parents=("income",), mechanism=Linear(coefficients={"income": float(MORE)}))
    causal = CausalModel(nodes=(Node(name="sex"), income, years))
    for seed in range(2 if error and kind == "network" else 6):
        network = made(seed) if kind == "network" else grown(seed, tmp_path / "trees.onnx")
        found = certify_counterfactuals(
            causal_model=causal, model=network, schema=schema, frame=frame, do={"sex": "m"},
            errors={"income": {"sex = m": error}, "years": {"income": 0.0}},
        )  # fmt: skip
        low, high = (np.asarray(ends)[np.argmax(found.high - found.low)] for ends in (found.low, found.high))
        steps = [Fraction(float(low)) + (Fraction(float(high)) - Fraction(float(low))) * Fraction(k, 8) for k in range(9)]
        for at, (i, y) in enumerate(rows):
            own = favourable(network, (i, Fraction(y), Fraction(0)), rule)
            others = {favourable(network, counterfactual(i, y, more if error else STEP, MORE), rule) for more in steps}
            assert (found.factual[at] == schema.good) == own
            assert not (found.status[at] == "stays" and others != {own}), (seed, i, y)
            assert not (found.status[at] == "flips" and own in others), (seed, i, y)
            if not error:
                assert found.status[at] == ("stays" if others == {own} else "flips")
        seen |= set(found.status.tolist())
        assert found.certificate is not None
        report = vf.check(found.certificate, model=network, schema=schema)
        assert not report.rejections
        assert report.accepted == ("unknown" not in found.status)  # ties all over the box stay open
        other = next(one for one in RULES if one != rule)
        assert vf.check(found.certificate, model=network, schema=schema_of(*FEATURES, positive=other)).rejections
    assert seen >= ({"stays", "flips"} if not error else {"stays", "depends"})
