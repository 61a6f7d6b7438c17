"""Random causal models, tables, rules and distances: no coefficients inside `safe` change a verdict, those at `flip` do.

The truth is the whole test, run again with a model that has these coefficients.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from encoders.network import Array
from verifair.systems.cst.causal.mechanisms import LinearMechanism
from verifair.systems.cst.causal.model import CausalModel
from verifair.systems.cst.causal.nodes import Node
from verifair.systems.cst.deciders import Rule
from verifair.systems.cst.estimator import SituationTesting
from verifair.systems.cst.robustness.effects import Effects
from verifair.systems.cst.robustness.sensitivity import Sensitivity, sensitivity
from verifair.systems.cst.testing import Method

NUMBERS = ("a", "b", "c")
ROWS = 90


def random_test(rng: np.random.Generator) -> SituationTesting:
    """Two protected attributes of words, three numbers below them, a rule on the numbers, and random settings."""
    table: dict[str, Any] = {"sex": rng.choice(["f", "m"], ROWS), "race": rng.choice(["b", "w", "x"], ROWS)}
    nodes = [Node(name="sex"), Node(name="race")]
    for k, name in enumerate(NUMBERS):
        parents = tuple(one for one in ("sex", "race", *NUMBERS[:k]) if rng.random() < 0.7 or (name, one) == ("a", "sex"))
        column = rng.normal(size=ROWS) + sum(rng.normal() * table[one] for one in parents if one in NUMBERS)
        column = column + rng.normal() * (table["sex"] == "m") * ("sex" in parents) + (table["race"] == "w") * ("race" in parents)
        decimals = int(rng.integers(0, 2)) if rng.random() < 0.4 else None
        table[name] = column if decimals is None else column.round(decimals)
        span = (-1.5, 1.5) if rng.random() < 0.2 else None
        nodes.append(Node(name=name, parents=parents, decimals=decimals, range=span))
    weights = {name: round(float(rng.normal()), 2) for name in NUMBERS if rng.random() < 0.8} or {"a": 1.0}
    frame = pd.DataFrame(table)
    above = float(np.median(Rule(weights=weights, above=0.0).score(frame)))
    do = {"sex": "m"} if rng.random() < 0.7 else {"sex": "m", "race": "w"}
    return SituationTesting(
        CausalModel(nodes=tuple(nodes)), Rule(weights=weights, above=above), do=do, k=(4,), intersectional=True,
        distance=str(rng.choice(["mixed", "standardised", "heom", "mahalanobis"])), ties=str(rng.choice(["share", "first"])),  # type: ignore[arg-type]
        interval=str(rng.choice(["newcombe", "wald"])), level=0.6, attributes=list(NUMBERS),  # type: ignore[arg-type]
    ).fit(frame)  # fmt: skip


def with_coefficients(model: CausalModel, effects: Effects, theta: Array) -> CausalModel:
    """The fitted model with other coefficients where the effects have some."""
    fitted = dict(model.fitted)
    for node in effects.nodes:
        mechanism = fitted[node]
        assert isinstance(mechanism, LinearMechanism)
        given = mechanism.coefficients
        estimates = given.estimates.copy()
        for one, value in zip(effects.coefficients, theta.tolist(), strict=True):
            if one.node == node:
                term = one.parent if one.word is None else f"{one.parent} = {one.word}"
                estimates[given.names.index(term)] = value
        fitted[node] = replace(mechanism, coefficients=replace(given, estimates=estimates))
    return replace(model, fitted=fitted)


def verdicts(test: SituationTesting, found: Sensitivity, theta: Array) -> np.ndarray:
    """(C,) of the whole test with these coefficients."""
    settings = {**test.get_params(deep=False), "causal_model": with_coefficients(test.causal_model_, found.effects, theta)}
    again = SituationTesting(**settings).fit(test.frame_).test_one(found.do)
    claims = again.claims(found.test, found.k)
    every = claims.positive if found.verdict == "positive" else claims.significant
    return every[np.isin(again.complainants, found.complainants)]


@pytest.mark.parametrize("seed", range(24))
def test_brackets_hold(seed: int) -> None:
    rng = np.random.default_rng(seed)
    test = random_test(rng)
    method: Method = ("CF", "CST w/o", "CST")[seed % 3]  # type: ignore[assignment]
    verdict = "significant" if method != "CF" and rng.random() < 0.5 else "positive"
    found = sensitivity(
        test, test.interventions()[-1], method=method, verdict=verdict, claims_only=False, effort=int(rng.choice([0, 16, 64]))
    )  # type: ignore[arg-type]
    effects, errors = found.effects, np.where(found.effects.errors > 0, found.effects.errors, 1.0)
    assert (found.safe <= found.flip).all()
    assert np.array_equal(verdicts(test, found, effects.estimates), found.claims)
    for _ in range(40):
        direction = rng.uniform(-1, 1, len(effects))
        direction = np.where(rng.random(len(effects)) < 0.5, np.sign(direction), direction)
        size = float(rng.choice(np.concatenate([found.safe[np.isfinite(found.safe)], [0.5, 2.0]]))) * rng.choice([0.7, 0.99])
        theta = effects.estimates + size * direction * effects.errors
        safe = np.abs((theta - effects.estimates) / errors).max(initial=0.0) < found.safe * (1 - 1e-9)
        if safe.any():
            assert (verdicts(test, found, theta) == found.claims)[safe].all()
    for k in np.flatnonzero(np.isfinite(found.flip))[:10]:
        further = 1 + 1e-9 if found.exact else 1.0  # at the exact flip itself the score is the threshold, up to rounding
        theta = effects.estimates + further * (found.theta[k] - effects.estimates)
        assert verdicts(test, found, theta)[k] != found.claims[k]
