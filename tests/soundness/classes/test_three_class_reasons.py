"""Certified reasons of three-class networks against all rows of both neighbourhoods: decisions exactly, reasons step by step."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pandas as pd
import pytest

import verifair as vf
from encoders.arrays import Array
from encoders.network import Network
from tests.builders import categorical, integer, network_of, schema_of
from tests.draws import draws
from verifair.checker.certificates.consistency import ConsistencyCertificate
from verifair.systems.cec.audit import audit
from verifair.systems.cec.certified import certify_consistency
from verifair.systems.cec.explanations import EPSILON
from verifair.systems.cec.matching import Reference
from verifair.systems.cec.people import merit_columns, people_of

FEATURES = (
    integer("income", 0, 9, unit=1, merit=True), integer("years", 0, 5, unit=1), categorical("sex", "f", "m", protected=True),
)  # fmt: skip
REACH = np.array([1, 1, 0])
"""How far the neighbourhood of one unit goes."""
RULES = {"class = 2": [2], "class >= 1": [1, 2], "class = 1": [1]}
STEPS = 4000
"""Midpoints of a path: kinks make sums along it wrong by about as many thousandths as there are."""


def favourable(network: Network, x: Array, rule: str) -> bool:
    """In rational arithmetic; a tie of class 1 alone is not favourable, of the others it is the lower class's."""
    (logits,) = network.forward(np.array([[Fraction(float(v)) for v in x]], dtype=object))
    found = list(logits)
    return bool(found[1] > max(found[0], found[2])) if rule == "class = 1" else found.index(max(found)) in RULES[rule]


def reasons(network: Network, x: Array, baseline: Array, favoured: list[int]) -> Array:
    """The path integral of the gradient of max f_favoured - max f_others, step by step, from the weights themselves."""
    (first, last), others = network.layers, [k for k in range(3) if k not in favoured]
    path = baseline + (np.arange(STEPS)[:, None] + 0.5) / STEPS * (x - baseline)
    hidden = path @ first.weight.T + first.bias
    logits = np.maximum(hidden, 0) @ last.weight.T + last.bias
    best = [np.array(group)[logits[:, group].argmax(axis=1)] for group in (favoured, others)]
    slope = ((last.weight[best[0]] - last.weight[best[1]]) * (hidden > 0)) @ first.weight
    return np.asarray((x - baseline) * slope.mean(axis=0))


def score(one: Array, two: Array) -> float:
    unit = [g / (np.linalg.norm(g) + EPSILON) for g in (one, two)]
    return float(np.linalg.norm(unit[0] - unit[1]) / 2)


@pytest.mark.parametrize("rule", RULES)
def test_certified_pairs_are_alike_in_all_of_both_neighbourhoods(rule: str) -> None:
    schema, proved, left = schema_of(*FEATURES, positive=rule, label="y"), 0, 0
    domain = schema.domain
    for seed in draws(6):
        rng = np.random.default_rng(seed)
        whole = (rng.integers(-2, 3, (4, 3)), rng.integers(-4, 5, 4)), (rng.integers(-2, 3, (3, 4)), rng.integers(-2, 3, 3))
        network = network_of(*whole, source_sha256="5" * 64)
        rows = np.array([[i, y, s] for i in range(0, 10, 2) for y in (0, 3, 5) for s in (0, 1)], dtype=float)
        frame = pd.DataFrame([schema.decode(row) for row in rows]).assign(y=np.arange(len(rows)) // 2 % 3)
        people = people_of(schema, frame, "sex")
        reference = Reference.of(people, merit_columns(schema))
        measured = audit(schema.judges(network), reference, people, threads=1)
        found = certify_consistency(network, schema, measured, reference, people, 1.0)
        baseline = reference.baseline(people)
        for k in np.flatnonzero(found.certified).tolist():
            person, other = int(measured.individual[k]), int(measured.counterpart[k])
            sides = []
            for raw in (rows[person], rows[other]):
                low, high = np.maximum(raw - REACH, domain.lower), np.minimum(raw + REACH, domain.upper)
                sides.append([np.array(x) for x in product(*(np.arange(a, b + 1) for a, b in zip(low, high, strict=True)))])
            assert len({favourable(network, x, rule) for side in sides for x in side}) == 1
            one, two = ([reasons(network, x, baseline[person], RULES[rule]) for x in side] for side in sides)
            assert max(score(g, h) for g, h in product(one, two)) <= measured.threshold + 5e-3
        proved += int(found.certified.sum())
        left += int((measured.regime == "A").sum() - found.certified.sum())
        if found.certified.any():
            assert vf.check(found.certificate, model=network, schema=schema, partial=True).accepted
            assert_forgeries_are_rejected(found.certificate, network, schema)
    assert proved > 10
    assert left > 10


def assert_forgeries_are_rejected(certificate: ConsistencyCertificate, network: Network, schema: vf.Schema) -> None:
    """The same trees for a smaller threshold, or for more units around everybody."""
    for query in (replace(certificate.query, threshold=1e-3), replace(certificate.query, delta=9.0)):
        forged = replace(certificate, query=query)
        assert not vf.check(forged, model=network, schema=schema, partial=True).accepted
