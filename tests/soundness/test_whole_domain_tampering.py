"""Certificates that were tampered with: the checker believes no false claim, whatever evidence stands beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import verifair as vf
from encoders.network import Network
from verifair.checker.certificate import Certificate, Proof
from verifair.checker.tree import Tree

from .fairness_truth import Case
from .random_fairness import LARGEST, STYLES_HERE, near_cases, small_cases, verdict_of


def accepted(certificate: Certificate, case: Case) -> bool:
    """Whether the checker believes the certificate once it claims to be about this very network and schema."""
    dressed = replace(
        certificate, network_sha256=case.query.network.source_sha256, schema_sha256=case.schema.sha256,
        features=tuple(feature.name for feature in case.schema.features),
    )  # fmt: skip
    return vf.check(dressed, network=case.query.network, schema=case.schema).accepted


def proved(style: str, *, count: int, first: int, gap: bool) -> Iterator[tuple[Case, Certificate]]:
    """Queries with what proves them; with `gap` just so."""
    cases = near_cases(style, count, 1e-6, first=first) if gap else small_cases(style, count, first=first)
    for case in cases:
        verdict = verdict_of(case)
        if verdict.status is vf.Status.PROVED and verdict.certificate is not None:
            yield case, verdict.certificate


def with_query(certificate: Certificate, **changes: Any) -> Certificate:
    return replace(certificate, query=replace(certificate.query, **changes))


@pytest.mark.parametrize("gap", [False, True])
@pytest.mark.parametrize("style", STYLES_HERE)
def test_a_wider_claim_is_accepted_only_where_it_is_true(style: str, gap: bool) -> None:
    """A smaller epsilon, fewer constraints, wider relaxation or box, other pairs, other weights: never accepted when false."""
    for case, certificate in proved(style, count=4, first=20, gap=gap):
        rng = np.random.default_rng(case.seed)
        claims: list[tuple[Certificate, Case]] = []
        if gap:
            for off in (1e-15, 1e-12, 1e-9, 1e-3):
                epsilon = float(max(case.gaps(), default=Decimal(0)) - Decimal(off))
                if 1e-9 <= epsilon <= 1 - 1e-9:
                    claims.append((with_query(certificate, epsilon=epsilon), case.asking(epsilon=epsilon)))
        for name, width in case.query.relax.items():
            wider = {name: width + 1}
            claims.append((with_query(certificate, relax=wider), case.asking(relax=wider)))
        whole = {
            name: (float(low), float(high))
            for name, low, high in zip(certificate.features, case.schema.domain.lower, case.schema.domain.upper, strict=True)
        }
        claims.append((with_query(certificate, box=whole), case.asking(box={})))
        claims.append((with_query(certificate, differ="any"), case.asking(differ="any")))
        claims += [(certificate, case.asking(schema=schema)) for schema in with_one_constraint_less(case.schema)]
        claims += [(certificate, case.asking(network=network)) for network in other_networks(case.query.network, rng)]
        for changed, other in claims:
            if len(other.rows) <= 2 * LARGEST and accepted(changed, other):
                assert not other.wrong().any()


def with_one_constraint_less(schema: vf.Schema) -> list[vf.Schema]:
    fields = {name: getattr(schema, name) for name in type(schema).model_fields}
    return [
        vf.Schema.model_validate({**fields, "constraints": (*schema.constraints[:k], *schema.constraints[k + 1 :])})
        for k in range(len(schema.constraints))
    ]


def other_networks(network: Network, rng: np.random.Generator) -> Iterator[Network]:
    """One layer's weights off by about half, and another last bias."""
    k = int(rng.integers(len(network.layers)))
    weight = network.layers[k].weight * (1 + 0.5 * rng.standard_normal(network.layers[k].weight.shape))
    bias = network.layers[-1].bias + rng.standard_normal(network.outputs)
    for position, change in ((k, {"weight": weight}), (len(network.layers) - 1, {"bias": bias})):
        layers = list(network.layers)
        rounded = {name: value.astype(np.float32).astype(float) for name, value in change.items()}
        layers[position] = replace(layers[position], **rounded)
        yield replace(network, layers=tuple(layers))


@pytest.mark.parametrize("gap", [False, True])
@pytest.mark.parametrize("style", ["plain", "integer", "sparse", "duplicate", "blind"])
def test_incomplete_evidence_is_rejected(style: str, gap: bool) -> None:
    """A pair without its proof, a pair proved twice instead, one direction twice, another shift, half a tree."""
    for case, certificate in proved(style, count=6, first=60, gap=gap):
        rng = np.random.default_rng(case.seed)
        proofs = certificate.proofs
        k = int(rng.integers(len(proofs)))
        statement = proofs[k].statement
        reverse = replace(statement, classes=statement.classes[::-1])
        changed: list[Proof | None] = [None, proofs[k - 1], replace(proofs[k], statement=reverse)]
        changed += [
            replace(proofs[k], statement=replace(statement, offset={name: step + one}))
            for name, step in statement.offset.items()
            for one in (-1, 1)
        ]
        for one in changed:
            rest = (*proofs[:k], *([] if one is None else [one]), *proofs[k + 1 :])
            assert not accepted(replace(certificate, proofs=rest), case)
        for at, proof in enumerate(proofs):
            tree = proof.evidence
            if isinstance(tree, Tree) and len(tree.feature) > 1:
                half = Tree(feature=tree.feature[:-1], cut=tree.cut[:-1], bound=tree.bound[:-1])
                rest = (*proofs[:at], replace(proof, evidence=half), *proofs[at + 1 :])
                assert not accepted(replace(certificate, proofs=rest), case)
                break


@pytest.mark.parametrize("gap", [False, True])
@pytest.mark.parametrize("style", STYLES_HERE)
def test_trees_prove_nothing_false(style: str, gap: bool) -> None:
    """The trees of a query that holds, or a single leaf, as evidence for one that does not."""
    for case in small_cases(style, 4, first=100):
        if gap:
            largest = max(case.gaps(), default=Decimal(0))
            if not Decimal("2e-9") < largest < 1 - Decimal("2e-6"):
                continue
            false, true = (case.asking(epsilon=float(largest + Decimal(off))) for off in ("-1e-9", "1e-6"))
        elif case.wrong().any():
            false, true = case, case.asking(epsilon=1 - 1e-9)
        else:
            continue
        verdict = verdict_of(true)
        if verdict.certificate is None or not false.wrong().any():
            continue
        stolen = with_query(verdict.certificate, epsilon=false.query.epsilon)
        if false.query.epsilon is None:
            stolen = replace(
                stolen,
                proofs=tuple(replace(proof, statement=replace(proof.statement, goal="no-flip")) for proof in stolen.proofs),
            )
        assert not accepted(stolen, false)
        for bound in (None, 0.0, 1e9):
            leaf = tuple(replace(proof, evidence=Tree.leaf(bound)) for proof in stolen.proofs)
            assert not accepted(replace(stolen, proofs=leaf), false)
