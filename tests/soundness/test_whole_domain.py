"""Whole-domain certification against enumeration: verdicts, witnesses and certificates of tiny nasty queries (`random_fairness`).

The truth comes from listing every row in fractions and decimals; the engine may be silent, never wrong.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

import verifair as vf
from tests.builders import categorical, integer, network_of, one_hot, real, schema_of

from .fairness_truth import Case, compared, exact_logits, sigma
from .random_fairness import OFFS, STYLES_HERE, near_cases, small_cases, verdict_of


def raw_of(case: Case, row: dict[str, Any]) -> np.ndarray:
    return np.array([[case.schema.raw_value(name, value) for name, value in row.items()]])


def assert_true(case: Case, verdict: vf.Verdict) -> None:
    """What the verdict says is so; a certificate that need not be believed is accepted."""
    assert (verdict.status is vf.Status.VIOLATED) == bool(case.wrong().any())
    if verdict.status is vf.Status.VIOLATED:
        assert verdict.witness is not None
        x, x_prime = raw_of(case, dict(verdict.witness.x)), raw_of(case, dict(verdict.witness.x_prime))
        both = np.concatenate([x, x_prime])
        assert case.schema.inside(both).all()
        assert ((both >= case.box[0]) & (both <= case.box[1])).all()
        assert compared(case.query, x, x_prime)[0, 0]
        a, b = exact_logits(case.query.network, case.schema.encode(both))
        if case.query.epsilon is None:
            assert a * b < 0
        else:
            assert abs(sigma(a) - sigma(b)) > Decimal(case.query.epsilon)
        assert verdict.witness.margin <= 1e-15 or np.isinf(verdict.witness.margin)
    else:
        assert verdict.certificate is not None
        report = vf.check(verdict.certificate, network=case.query.network, schema=case.schema)
        assert report.accepted or verdict.certificate.trust is vf.Trust.CLAIMED, report.rejections


@pytest.mark.parametrize("style", STYLES_HERE)
def test_flips_are_those_that_enumeration_finds(style: str) -> None:
    for case in small_cases(style, 8):
        verdict = verdict_of(case)
        assert verdict.status is not vf.Status.UNKNOWN, (case.seed, verdict.reason)
        assert_true(case, verdict)


@pytest.mark.parametrize("style", STYLES_HERE)
def test_gaps_are_those_that_enumeration_finds(style: str) -> None:
    for case in small_cases(style, 6, epsilon=True):
        verdict = verdict_of(case)
        assert verdict.status is not vf.Status.UNKNOWN, (case.seed, verdict.reason)
        assert_true(case, verdict)


@pytest.mark.parametrize("off", OFFS)
def test_near_ties_of_the_largest_gap(off: float) -> None:
    """epsilon is the largest gap itself, rounded, or a little more or less: the hardest questions there are."""
    for k, style in enumerate(STYLES_HERE):
        for case in near_cases(style, 2 if off < 0 else 1, off, first=7 * k):
            verdict = verdict_of(case)
            assert verdict.status is not vf.Status.UNKNOWN or verdict.reason is vf.Reason.TIME, (style, case.seed, verdict.reason)
            if verdict.status is not vf.Status.UNKNOWN:
                assert_true(case, verdict)


@pytest.mark.parametrize("nodes", [1, 4])
def test_what_the_cascade_adds_is_true(nodes: int) -> None:
    """With hardly any boxes to spend, neuron branching and the MILP are asked; they may leave it open, not be wrong."""
    for k, style in enumerate(STYLES_HERE):
        cases = [*small_cases(style, 2, first=40 + k), *near_cases(style, 2, OFFS[k % len(OFFS)], first=80 + k)]
        for case in cases:
            verdict = verdict_of(case, nodes=nodes)
            if verdict.status is not vf.Status.UNKNOWN:
                assert_true(case, verdict)


@pytest.mark.parametrize("scale", ["probability", "logit"])
@pytest.mark.parametrize("style", [style for style in STYLES_HERE if style not in ("giant", "huge")])
def test_maximise_brackets_the_largest_gap(style: str, scale: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["verifair.engine.gap.maximise"]
    monkeypatch.setattr(module, "runtime_logits", lambda network, x: network.forward(x.astype(float)))  # these are in no file
    for case in small_cases(style, 3, first=150):
        q = case.query
        query = vf.ProbabilityGap(
            network=q.network, schema=q.schema, protected=q.protected, box=q.box, differ=q.differ, relax=q.relax, scale=scale
        )
        found = vf.maximise(query, budget=vf.Budget(seconds=10), tolerance=1e-3)
        first, second = (case.logits[at] for at in case.pairs)
        gaps = [Fraction(gap) for gap in case.gaps()] if scale == "probability" else (first - second).tolist()
        largest = max(gaps, default=Fraction(0))
        assert Fraction(found.lower) <= largest
        assert found.upper == np.inf or largest <= Fraction(found.upper)
        if found.reason is None:
            assert found.upper - found.lower <= 1.001e-3 + 1e-12 * found.upper
        if found.certificate is not None:
            assert vf.check(found.certificate, network=q.network, schema=q.schema).accepted


def hand_made(
    weight: list[float], bias: float, features: list[dict[str, Any]], constraints: list[dict[str, Any]]
) -> vf.IndividualFairness:
    """One affine layer over `features`, of which "sex" is protected."""
    return vf.IndividualFairness(
        network=network_of(([weight], [bias]), source_sha256="1" * 64),
        schema=schema_of(*features, constraints=constraints),
        protected=["sex"],
    )


SEX = categorical("sex", "f", "m")


@pytest.mark.parametrize("epsilon", [None, 0.1])
@pytest.mark.parametrize("shared", [{"kind": "integer", "range": (0, 3)}, {"kind": "real", "range": (0.0, 3.0)}])
def test_a_question_whose_rows_all_break_constraints_is_true(shared: dict[str, Any], epsilon: float | None) -> None:
    """sex f and m are told apart by everything, but no f is below 2 and no m above: nobody has a counterpart."""
    features = [SEX, {"name": "age", **shared}]
    edge = 1 if shared["kind"] == "integer" else float(np.nextafter(2.0, 0.0))
    constraints = [{"never": {"sex": "f", "age": {"high": edge}}}, {"never": {"sex": "m", "age": {"low": 2}}}]
    query = replace(hand_made([2.0, 0.0], -1.0, features, constraints), epsilon=epsilon)
    verdict = vf.verify(query)
    assert verdict.status is vf.Status.PROVED
    assert verdict.certificate is not None
    assert vf.check(verdict.certificate, network=query.network, schema=query.schema).accepted
    free = schema_of(*features)
    assert vf.verify(replace(query, schema=free)).status is vf.Status.VIOLATED
    stolen = replace(verdict.certificate, schema_sha256=free.sha256)
    assert not vf.check(stolen, network=query.network, schema=free).accepted


@pytest.mark.parametrize("side", [-1, 0, 1])
@pytest.mark.parametrize("edge", [1.0, 1 + 2.0**-24, 0.1, 1 / 3])
def test_a_real_feature_is_cut_to_the_last_float(edge: float, side: int) -> None:
    """Flips need income above a float32 border by half a unit in the last place or more; rows from `cut` on are forbidden.

    The smallest raw income with the input t is found by bisection, so the verdict hangs on one float64.
    """
    t = float(np.nextafter(np.float32(edge), np.float32(np.inf)))
    below = float(np.float32(edge))
    low, high = below, t
    while np.nextafter(low, np.inf) < high:  # the last raw value that is rounded to `below`, and the first one rounded to t
        middle = low + (high - low) / 2
        low, high = (middle, high) if float(np.float32(middle)) == below else (low, middle)
    cut = {-1: low, 0: high, 1: float(np.nextafter(high, np.inf))}[side]
    bias = -(below + t) / 2  # g = income - (below + t) / 2 for m: positive from t on; always negative for f
    features = [SEX, real("income", 0.0, 2.0)]
    query = hand_made([2.0 * t, 1.0], -2.0 * t + bias, features, [{"never": {"income": {"low": cut}}}])
    verdict = vf.verify(query)
    assert verdict.status is (vf.Status.VIOLATED if side == 1 else vf.Status.PROVED)
    if verdict.certificate is not None:
        assert vf.check(verdict.certificate, network=query.network, schema=query.schema).accepted
    if verdict.witness is not None:
        assert verdict.witness.x["income"] == verdict.witness.x_prime["income"] == high


@pytest.mark.parametrize("seed", range(40))
def test_impossible_counterfactuals_are_no_bias(seed: int) -> None:
    """Rows of `verify_rows` under constraints against enumeration: which questions are asked, and their answers."""
    rng = np.random.default_rng(seed)
    features = [
        integer("age", 0, 4, unit=1.0),
        categorical("sex", "a", "b", "c"),
        one_hot("job", "u", "v"),
    ]
    age = int(rng.integers(0, 5))
    constraints = [
        {"never": {"sex": str(rng.choice(["a", "b", "c"])), "age": {"low": age}}},
        {"if": {"job": "u"}, "then": {"sex": [str(one) for one in rng.choice(["a", "b", "c"], 2, replace=False)]}},
    ]
    schema = schema_of(*features, constraints=constraints, label="y")
    weight = rng.standard_normal((4, 4)).astype(np.float32).astype(float)
    last = rng.standard_normal((1, 4)).astype(np.float32).astype(float)
    network = network_of((weight, None), (last, None), source_sha256="2" * 64)
    everything = np.array([[a, s, j] for a in range(5) for s in range(3) for j in range(2)], dtype=float)
    rows = everything[schema.inside(everything)]
    logit = dict(zip(map(tuple, everything.tolist()), exact_logits(network, schema.encode(everything)), strict=True))
    label = [int(logit[tuple(row)] > 0) for row in rows.tolist()]
    frame = pd.DataFrame([schema.decode(row) for row in rows])
    frame["y"] = label
    found = vf.verify_rows(vf.PersistentBias(network=network, schema=schema, sensitive="sex", delta=[0, 1, 2]), frame)
    expected: dict[tuple[str, float, int, float], bool] = {}
    for k, row in enumerate(rows.tolist()):
        for to in {0.0, 1.0, 2.0} - {row[1]}:
            other = [row[0], to, row[2]]
            if not schema.inside(np.array([other]))[0] or (logit[tuple(other)] > 0) != (label[k] == 1):
                continue
            sign = 1 if label[k] else -1
            for delta in (0.0, 1.0, 2.0):
                pairs = [
                    (logit[a, row[1], row[2]], logit[a, to, row[2]])
                    for a in np.arange(max(0, row[0] - delta), min(4, row[0] + delta) + 1)
                    if schema.inside(np.array([[a, row[1], row[2]], [a, to, row[2]]])).all()
                ]
                expected["observed", delta, k, to] = all(sign * (x - y) > 0 for x, y in pairs)
                expected["flipped", delta, k, to] = all(sign * (y - x) > 0 for x, y in pairs)
    answers = {(line.goal, line.delta, line.row, line.to): line.status == "proved" for line in found.itertuples()}
    assert set(found["status"]) <= {"proved", "violated"}
    assert answers == expected
