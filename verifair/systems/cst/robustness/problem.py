"""Verdicts on complainants under other coefficients of a linear causal model: the whole test, run again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pandas as pd

from encoders.arrays import Array, Booleans, Integers
from verifair.systems.cst.deciders import Decider, NetworkDecider, counterfactually, decided
from verifair.systems.cst.neighbours.counts import negatives
from verifair.systems.cst.neighbours.distance import Metric
from verifair.systems.cst.robustness.effects import Effects
from verifair.systems.cst.testing import Claims, Method, Situations, Terms, claims_of

Verdict = Literal["positive", "significant"]
PAIRS_AT_ONCE = 20_000
"""Complainants with coefficients that are tested at once."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SensitivityProblem:
    """C complainants of one test, one method and one k.

    base: (C rows) the complainants under do at the estimates.   values: (C, m) of the nodes as they are, change: (C, p), see
    `Effects`.   metric: embeds the counterfactuals.   index: (C,) each one's position in `found`.
    """

    effects: Effects
    decider: Decider
    found: Situations
    base: pd.DataFrame
    values: Array
    change: Array
    metric: Metric
    index: Integers
    method: Method
    k: int
    verdict: Verdict

    def __len__(self) -> int:
        return len(self.index)

    @property
    def row(self) -> int:
        """Position of k among the test's group sizes."""
        return self.found.k.index(self.k)

    @property
    def terms(self) -> Terms:
        return self.found.terms

    @cached_property
    def now(self) -> Booleans:
        """(C,) the verdicts at the estimates."""
        claims = self.found.claims(self.method, self.k)
        return np.asarray((claims.positive if self.verdict == "positive" else claims.significant)[self.index])

    def nodes(self, subset: Integers, theta: Array) -> Array:
        """(R, m) values of the nodes for complainants `subset` (R,) and coefficients theta (R, p), as the decider takes them."""
        return self.allowed(self.effects.counterfactuals(self.values[subset], self.change[subset], theta[None])[0])

    def allowed(self, nodes: Array) -> Array:
        """Values of the nodes (R, m) as the decider takes them: a network has whole numbers, and ranges. Monotone."""
        decider = counterfactually(self.decider)
        if not isinstance(decider, NetworkDecider):
            return nodes
        nodes = nodes.copy()
        for feature in decider.schema.features:
            if feature.source in self.effects.nodes and feature.range is not None:
                n = self.effects.nodes.index(feature.source)
                nodes[:, n] = np.clip(np.rint(nodes[:, n]) if feature.kind == "integer" else nodes[:, n], *feature.range)
        return nodes

    def rows(self, subset: Integers, nodes: Array) -> pd.DataFrame:
        """(R rows) of complainants with these values of the nodes (R, m)."""
        frame = self.base.iloc[subset].copy()
        for n, name in enumerate(self.effects.nodes):
            frame[name] = nodes[:, n]
        return frame

    def verdicts(self, subset: Integers, theta: Array) -> Booleans:
        """(R,) verdicts on complainants `subset` (R,) if the coefficients are theta (R, p)."""
        parts = [slice(start, start + PAIRS_AT_ONCE) for start in range(0, len(subset), PAIRS_AT_ONCE)]
        return np.concatenate([np.empty(0, dtype=bool), *(self._verdicts(subset[part], theta[part]) for part in parts)])

    def _verdicts(self, subset: Integers, theta: Array) -> Booleans:
        frame = self.rows(subset, self.nodes(subset, theta))
        frame, accepted = decided(self.decider, frame)
        refused_tilde = np.zeros(len(subset), dtype=bool) if accepted is None else ~accepted
        counter = np.zeros(len(subset))
        if self.method != "CF":
            centers = self.metric.embed(frame)
            literal = self.metric.literal(frame, centers)
            counter = negatives(self.found.test_pool, centers, [self.k], ties=self.found.ties, literal=literal)[0]
        return self.judged(subset, counter, refused_tilde.astype(float))

    def judged(self, subset: Integers, counter: Array, refused_tilde: Array) -> Booleans:
        """(R,) verdicts from the negative decisions in the test group (R,) and the decision on the counterfactual (R,)."""
        claims = self.claims(subset, counter, refused_tilde)
        return claims.positive if self.verdict == "positive" else claims.significant

    def claims(self, subset: Integers, counter: Array, refused_tilde: Array) -> Claims:
        """Return claims as `Situations.claims` does, with other test groups."""
        found, index = self.found, self.index[subset]
        control, sizes = found.control[self.row, index], found.sizes[self.row, index]
        return claims_of(self.terms, self.method, self.k, control, sizes, counter, found.refused[index], refused_tilde)
