"""The paper's baseline: local linear surrogates in the manner of LIME (Ribeiro et al., KDD 2016), to compare with rules.  (HyFair,
RQ3)

LIME explains one output, so it is run for every protected variant (x, z) of the cluster. It names the features that are among the
top three of any of the K explanations: the sizes of up to 13 in the paper's Table III are those of such a union. To measure how
much they explain, each of them is redrawn in turn, and k is measured again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.special
from sklearn.linear_model import Ridge

from encoders.arrays import Array
from verifair.schema.schema import Schema
from verifair.systems.hyfair.explain.result import LimeLine
from verifair.systems.hyfair.explain.rules import Explanation
from verifair.systems.hyfair.explain.samples import Neighbourhood, Severity
from verifair.systems.hyfair.search.space import Space

TOP_FEATURES = 3
WIDTH = 0.75
"""Width of LIME's kernel, divided by the square root of the number of features."""
REDRAWS = 200
"""Values drawn anew for each feature."""


@dataclass(frozen=True, kw_only=True)
class Surrogates:
    """features: variables named by some explanation, the most often named first.   named: number of the K explanations that name
    each. perturbed, deviation: mean k and its standard deviation when one of them is redrawn."""

    features: tuple[int, ...]
    named: tuple[int, ...]
    perturbed: float
    deviation: float


def surrogates(
    space: Space, centre: Array, severity: Severity, *, rows: Array | None = None, samples: int = 5000, seed: int = 0
) -> Surrogates:
    """Fit a weighted ridge regression to the probabilities of each protected variant, on samples drawn as for rules.

    Interpretable features, as in LIME: for a category whether it is the centre's own, for a number its distance from the centre in
    standard deviations. Weights exp(-d^2 / w^2) by the distance d of these features, w = WIDTH sqrt(M).
    """
    rng = np.random.default_rng(seed)
    neighbourhood = Neighbourhood.of(space, centre, rows)
    raw = neighbourhood.draw(samples, rng)
    columns = space.free
    interpretable = _interpretable(neighbourhood, raw)[:, columns]
    distance = np.square(interpretable).sum(axis=1)
    weight = np.exp(-distance / (WIDTH**2 * len(columns)))
    possible = space.possible(neighbourhood.centre[None, :])[0]
    probability = scipy.special.expit(space.logits(raw)[:, possible].astype(np.float64))
    ridge = Ridge(alpha=1.0).fit(interpretable, probability, sample_weight=weight)
    strength = np.abs(np.atleast_2d(ridge.coef_))
    counts: Counter[int] = Counter()
    for row in strength:
        counts.update(int(columns[j]) for j in np.argsort(-row, kind="stable")[:TOP_FEATURES])
    common = counts.most_common()
    k = [_perturbed(neighbourhood, v, severity, rng) for v, _ in common]
    redrawn = np.concatenate(k)
    return Surrogates(
        features=tuple(v for v, _ in common),
        named=tuple(n for _, n in common),
        perturbed=float(redrawn.mean()),
        deviation=float(np.std([severities.mean() for severities in k])),
    )


def _interpretable(neighbourhood: Neighbourhood, raw: Array) -> Array:
    """Return (N, V) the interpretable features: 0 at the centre; 1 for any other category."""
    spread = np.where(neighbourhood.spread > 0, neighbourhood.spread, 1.0)
    category = np.array([shares is not None for shares in neighbourhood.shares])
    return np.where(category, raw != neighbourhood.centre, (raw - neighbourhood.centre) / spread)


def _perturbed(neighbourhood: Neighbourhood, v: int, severity: Severity, rng: np.random.Generator) -> Array:
    """Return severities with variable v redrawn, with a new value if there is one."""
    raw = np.repeat(neighbourhood.centre[None, :], 4 * REDRAWS, axis=0)
    raw[:, v] = neighbourhood.redraw(v, raw[:, v], rng)
    raw = raw[neighbourhood.space.legal(raw)]
    changed = raw[raw[:, v] != neighbourhood.centre[v]][:REDRAWS]
    return np.asarray(severity(changed if len(changed) else neighbourhood.centre[None, :]), dtype=np.float64)


def comparison(schema: Schema, explanations: Sequence[Explanation], baseline: Sequence[Surrogates]) -> list[LimeLine]:
    """Return lines of HyFair's Table III: for each cluster LIME and the rules (means over the rules that were kept).

    Init.K: of the cluster.   Size: features named; conditions of a rule.   K: of the cluster; mean inside the rule.
    Pert.K: with one named feature redrawn; with one condition negated.   Diff = K - Pert.K.   Cov: number of local samples that
    it covers; for LIME the one point that it explains.
    """
    lines: list[LimeLine] = []
    for explanation, lime in zip(explanations, baseline, strict=True):
        lines.append(
            LimeLine(
                method="LIME", init_k=explanation.severity, size=float(len(lime.features)), k=explanation.severity,
                pert_k=lime.perturbed, diff=explanation.severity - lime.perturbed, cov=1.0,
                features=", ".join(schema.features[v].name for v in lime.features),
            )
        )
        evidence = [explained.evidence for explained in explanation.rules]
        if evidence:
            inside, negated = np.mean([e.inside for e in evidence]), np.mean([e.negated for e in evidence])
            names = {schema.features[v].name for explained in explanation.rules for v in explained.rule.conditions}
            lines.append(
                LimeLine(
                    method="rules", init_k=explanation.severity,
                    size=float(np.mean([len(explained.rule.conditions) for explained in explanation.rules])), k=float(inside),
                    pert_k=float(negated), diff=float(inside - negated),
                    cov=float(np.mean([e.samples for e in evidence]) * len(explanation.labelled.raw)),
                    features=", ".join(f.name for f in schema.features if f.name in names),
                )
            )
    return lines
