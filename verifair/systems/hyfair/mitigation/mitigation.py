"""What a mitigation buys and costs: HyFair's Table IV, before and after.

Everything here is measured, nothing proved; `verifair certify --maximise` proves what is left outside a guardrail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from encoders.network import Array, Integers, Network
from verifair.engine.queries import KDiscrimination
from verifair.engine.questions import decisions
from verifair.schema.schema import Schema
from verifair.systems.hyfair.explain.rules import Rule, refused
from verifair.systems.hyfair.explain.samples import Neighbourhood
from verifair.systems.hyfair.mitigation.rounds import outside
from verifair.systems.hyfair.search.annealing import search
from verifair.systems.hyfair.search.space import Space

LOCAL = 5000
"""Samples around each cluster, before and after."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    """One line of HyFair's Table IV, and what a guardrail costs.

    accuracy: share of right answers among the rows that are answered.   abstained: share of rows refused.
    The rest comes from one run of the search, which cannot enter the refused region: rows generated, largest k (exact), mean k
    of the instances with k >= 2, their number and share (#ID, success rate), and how many were met at the largest k.
    local_k, local_success: of local samples around the explained clusters, the mean k of those answered, and the share that is
    answered and has k >= 2; None without clusters.
    """

    intervention: str
    accuracy: float | None
    abstained: float | None
    rows: int
    max_k: int
    mean_k: float
    instances: int
    success_rate: float
    at_best: int
    local_k: float | None
    local_success: float | None


def effect(
    intervention: str,
    query: KDiscrimination,
    rules: Sequence[Rule],
    *,
    data: Array | None,
    labels: Integers | None,
    iterations: int,
    seconds: float,
    clusters: Array | None = None,
    seed: int = 0,
) -> Effect:
    """Measure one network with or without a guardrail (snapped rules).

    data (N, V), labels (N,): raw rows to measure accuracy on, and to search among.   iterations, seconds: limits of the search.
    clusters: (C, V) raw points that were explained.
    """
    accuracy, abstained = score(query.network, query.schema, rules, data, labels) if data is not None else (None, None)
    found = search(outside(query, rules), data=data, seconds=seconds, iterations=iterations, seed=seed, enough=10**9)
    s = found.statistics
    if s.stopped == "interrupted":
        raise KeyboardInterrupt  # the search gives back what it met; a line of the table it is not
    local_k, local_success = _local(query, rules, clusters, data, seed) if clusters is not None and len(clusters) else (None, None)
    return Effect(
        intervention=intervention, accuracy=accuracy, abstained=abstained, rows=s.rows, max_k=found.k, mean_k=s.mean_k,
        instances=s.instances, success_rate=s.success_rate, at_best=s.at_best, local_k=local_k, local_success=local_success,
    )  # fmt: skip


def _local(
    query: KDiscrimination, rules: Sequence[Rule], clusters: Array, data: Array | None, seed: int
) -> tuple[float, float]:
    space, rng = Space.of(query), np.random.default_rng(seed)
    raw = np.concatenate([Neighbourhood.of(space, centre, data).draw(LOCAL, rng) for centre in clusters])
    k, answered = space.count(raw), ~refused(rules, raw)
    return float(k[answered].mean()) if answered.any() else float("nan"), float(((k >= 2) & answered).mean())


def score(
    network: Network, schema: Schema, rules: Sequence[Rule], raw: Array, labels: Integers | None
) -> tuple[float | None, float]:
    """Accuracy on the rows that are answered (None without labels, NaN when none is answered), and the share that is refused."""
    answered = ~refused(rules, raw)
    if labels is None:
        return None, float((~answered).mean())
    right = decisions(network, schema.encode(raw[answered])) == labels[answered] if answered.any() else np.array([np.nan])
    return float(np.mean(right)), float((~answered).mean())


def table(effects: Sequence[Effect]) -> list[dict[str, Any]]:
    """Lines for a table or a JSON file."""
    return [asdict(one) for one in effects]
