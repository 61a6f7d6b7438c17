"""Relaxed categories and scaled numbers against enumeration in exact arithmetic; certificates with a value less are rejected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import verifair as vf
from encoders.network import Network
from tests.builders import integer, linear_network, one_hot, real, schema_of
from tests.soundness.random_fairness import PROTECTED, Case, small_cases
from verifair.checker.words import near
from verifair.errors import QueryError

STYLES = ("plain", "integer", "duplicate")


def relaxed(style: str, count: int, first: int) -> Iterator[Case]:
    """Random small cases in which every category and scaled number that is not protected is relaxed."""
    found = 0
    for case in small_cases(style, 12 * count, first=first):
        relax: dict[str, Any] = {}
        for feature in case.schema.features:
            if feature.name in PROTECTED or feature.kind == "real":
                continue
            if feature.kind == "one-hot" or feature.affine != (0.0, 1.0):
                relax[feature.name] = 1 + case.seed % 2 if feature.numeric else "any"
        if relax:
            found += 1
            yield case.asking(relax={**relax, **{name: width for name, width in case.query.relax.items() if name not in relax}})
        if found == count:
            return


def asked(case: Case, **options: Any) -> vf.Verdict:
    return vf.verify(case.query, budget=vf.Budget(seconds=30), **options)


@pytest.mark.parametrize("style", STYLES)
def test_relaxed_flips_are_those_of_enumeration(style: str) -> None:
    seen = set()
    for case in relaxed(style, 8, 500):
        found = asked(case)
        expected = vf.Status.VIOLATED if case.wrong().any() else vf.Status.PROVED
        assert found.status is expected, case.seed
        seen.add(expected)
        if found.certificate is None:
            assert found.witness is not None
            continue
        given = found.certificate
        assert vf.check(given, model=case.query.model, schema=case.schema).accepted, case.seed
        for k in np.random.default_rng(case.seed).permutation(len(given.proofs))[:4].tolist():
            less = replace(given, proofs=given.proofs[:k] + given.proofs[k + 1 :])
            assert not vf.check(less, model=case.query.model, schema=case.schema).accepted, (case.seed, k)
    assert len(seen) == 2


def test_relaxed_gaps_are_those_of_enumeration() -> None:
    for case in relaxed("plain", 4, 700):
        largest = float(max(case.gaps(), default=Decimal(0)))
        for epsilon, status in ((largest - 1e-6, vf.Status.VIOLATED), (largest + 1e-6, vf.Status.PROVED)):
            if 1e-8 < epsilon < 1:
                assert asked(case.asking(epsilon=epsilon)).status is status, case.seed
        query = vf.ProbabilityGap(
            model=case.query.model, schema=case.schema, protected=case.query.protected, box=case.query.box,
            differ=case.query.differ, relax=case.query.relax,
        )  # fmt: skip
        gap = vf.verify(query, tolerance=1e-4)
        assert gap.lower <= largest + 1e-9 <= gap.upper + 2e-9
        assert gap.upper <= gap.lower + 1.001e-4


@pytest.mark.parametrize("method", ["milp", "smt"])
def test_solvers_see_both_values(method: str) -> None:
    """A category that x' has shifted is another column of the program, also where other questions leave it open."""
    decided = 0
    for case in relaxed("plain", 6, 900):
        found = asked(case, method=method)
        expected = vf.Status.VIOLATED if case.wrong().any() else vf.Status.PROVED
        assert found.status in (expected, vf.Status.UNKNOWN), case.seed
        decided += found.status is expected
    assert decided >= 4


def test_a_forged_certificate_without_the_values_is_rejected() -> None:
    """Statements that leave a shifted category open are none, and a query that relaxes more is another one."""
    schema = schema_of(one_hot("sex", "F", "M"), one_hot("town", "a", "b", "c"), integer("hours", 0, 3, scale="minmax"))
    network = linear_network(0.0, 0.0, 1.0, 1.0, 1.0, 1.0, bias=5.0)
    query = vf.IndividualFairness(model=network, schema=schema, protected=["sex"], relax={"town": "any", "hours": 1})
    found = vf.verify(query)
    assert found.certificate is not None
    given = found.certificate
    assert vf.check(given, model=network, schema=schema).accepted
    opened = []
    for proof in given.proofs:
        sex, offset = proof.statement.lower[0], proof.statement.offset
        wide = replace(proof.statement, lower=(sex, 0.0, 0.0), upper=(sex, 1.0, 2.0))
        opened.append(replace(proof, statement=wide) if offset.get("town") == 1 and offset.get("hours") == 1 else proof)
    assert not vf.check(replace(given, proofs=tuple(opened)), model=network, schema=schema).accepted
    wider = replace(given, query=replace(given.query, relax={"town": 2, "hours": 2}))
    assert not vf.check(wider, model=network, schema=schema).accepted


def test_adjacent_categories_and_units_mean_what_they_say() -> None:
    """The networks do not see sex, so that only what is relaxed moves them."""
    schema = schema_of(
        one_hot("sex", "F", "M"), one_hot("town", "a", "b", "c", ordered=True),
        integer("hours", 0, 2, scale={"offset": 1.0, "scale": 2.0}),
    )  # fmt: skip
    ask: dict[str, Any] = {"schema": schema, "protected": ["sex"]}

    def most(network: Network, relax: dict[str, Any]) -> float:
        return vf.verify(vf.ProbabilityGap(model=network, relax=relax, scale="logit", **ask)).upper

    far = linear_network(0.0, 0.0, -1.0, 0.0, 1.0, 0.0)  # town a: -1, b: 0, c: 1
    only = linear_network(0.0, 0.0, 0.0, 1.0, 2.0, 0.0, bias=-1.5)  # c alone is favourable
    box = {"town": ("a", "b")}
    assert vf.verify(vf.IndividualFairness(model=only, relax={"town": 1}, box=box, **ask)).status is vf.Status.PROVED
    assert vf.verify(vf.IndividualFairness(model=only, relax={"town": 1}, **ask)).status is vf.Status.VIOLATED
    assert most(far, {"town": 1}) == pytest.approx(1, abs=1e-3)
    assert most(far, {"town": "any"}) == pytest.approx(2, abs=1e-3)
    hours = linear_network(0.0, 0.0, 0.0, 0.0, 0.0, 2.0)  # one hour is half a column
    assert most(hours, {"hours": 1}) == pytest.approx(1, abs=1e-3)
    assert near({"town": 2, "hours": 1}, schema) == "town to any category, hours by up to 1"
    assert near({"town": 1}, schema) == "town by up to 1"


def test_what_cannot_be_relaxed_is_refused_with_a_remedy() -> None:
    schema = schema_of(one_hot("sex", "F", "M"), one_hot("town", "a", "b", "c"), real("income", 0, 1), integer("age", 0, 9))
    ask: dict[str, Any] = {"model": linear_network(*np.zeros(7)), "schema": schema, "protected": ["sex"]}
    for relax, message in (
        ({"town": 1}, "ordered = true"), ({"income": 1}, "no whole numbers"), ({"age": "any"}, "said of categories"),
        ({"sex": "any"}, "is protected"),
    ):  # fmt: skip
        with pytest.raises(QueryError, match=message):
            vf.IndividualFairness(relax=relax, **ask)
    with pytest.raises(QueryError, match="a partition relaxes unscaled integer features alone, not town"):
        vf.certify_partition(vf.IndividualFairness(relax={"town": "any"}, **ask), size=2, store="nowhere.sqlite")
