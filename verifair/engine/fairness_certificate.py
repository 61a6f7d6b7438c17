"""The certificate of a fairness query over a box: a statement and its evidence for every pair of copies and both directions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Literal

from encoders.network import Array
from encoders.problem import TwinBatch
from verifair.checker.certificate import BoxStatement, Certificate, Claim, FairnessQuery, Proof, Tree, semantics
from verifair.checker.phase_tree import PhaseTree
from verifair.engine.queries import IndividualFairness, ProbabilityGap

DIRECTIONS = ((1, 0), (0, 1))
"""Classes (i, j) of a question's two goals: what holds of x at class 1 and its counterfactual, and the reverse."""


def fairness_certificate(
    query: IndividualFairness | ProbabilityGap,
    batch: TwinBatch,
    box: tuple[Array, Array],
    evidence: Sequence[Sequence[Tree | PhaseTree | Claim]],
    *,
    epsilon: float | None,
    scale: Literal["probability", "logit"],
) -> Certificate:
    """evidence: [question][direction].   epsilon None: no decision flips; else no gap on the scale is larger than epsilon."""
    schema = query.schema
    index = [schema.index(name) for name in query.protected]
    proofs = []
    for q, g in product(range(len(batch)), range(2)):
        shift = {} if batch.offset is None else {name: int(batch.offset[q, schema.index(name)]) for name in query.relax}
        statement = BoxStatement(
            goal="no-flip" if epsilon is None else "no-gap",
            lower=tuple(batch.lower[q].tolist()),
            upper=tuple(batch.upper[q].tolist()),
            prime={name: float(batch.prime[q, v]) for name, v in zip(query.protected, index, strict=True)},
            classes=DIRECTIONS[g],
            offset=shift,
        )
        proofs.append(Proof(statement=statement, evidence=evidence[q][g]))
    features = tuple(feature.name for feature in schema.features)
    return Certificate(
        network_sha256=query.network.source_sha256,
        schema_sha256=schema.sha256,
        semantics=semantics(query.network),
        query=FairnessQuery(
            kind="individual-fairness",
            protected=tuple(query.protected),
            box={name: (float(lo), float(hi)) for name, lo, hi in zip(features, *box, strict=True)},
            differ="all" if query.differ == "all" else "any",
            epsilon=epsilon,
            scale=scale,
            relax={name: int(width) for name, width in query.relax.items()},
        ),
        features=features,
        proofs=tuple(proofs),
    )
