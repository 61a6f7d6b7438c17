"""Discrimination clusters: one person, all protected variants of the person, and their outcome buckets, counted exactly.

A search returns a `Finding`: its k is exact at the row found, hence a lower bound on the largest k. It gives no upper bound;
`verifair.engine.buckets.kmax` does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
import scipy.special
from pydantic import computed_field

from encoders.arrays import Array, Integers
from encoders.buckets import buckets_of
from encoders.onnx.runtime import runtime_logits
from verifair.engine.questions import margin
from verifair.engine.verdict import Finding
from verifair.systems.hyfair.search.logits import log_odds
from verifair.systems.hyfair.search.space import Space, edges
from verifair.systems.results.result import Count, Measured, Seconds, Shape, Share


@dataclass(frozen=True, kw_only=True, eq=False)
class Cluster:
    """A row x with every legal protected combination, L of them (without those whose bucket ball arithmetic cannot decide).

    x: (V,) raw row, the first such combination in its protected variables.   combinations: (L, P) raw values.
    logits: (L,) of the positive class, in float64 (log-odds for several classes; if their decisions are counted, the largest
    favourable logit minus the largest other one).   bucket: (L,) decided exactly.
    probabilities: (L,) of the positive class, in float64.
    runtime_k: number of buckets that the float32 runtime's own logits fall into (None: the model file was not at hand).
    """

    x: Array
    combinations: Array
    logits: Array
    probabilities: Array
    bucket: Integers
    buckets: int
    runtime_k: int | None

    @property
    def k(self) -> int:
        """The number of buckets that the person's variants fall into."""
        return len(set(self.bucket.tolist()))


Stopped = Literal["time", "iterations", "enough", "exhausted", "interrupted"]


class TracePoint(Shape):
    """A new best k of the search, with its time."""

    seconds: Seconds
    evaluations: Count
    """Evaluations of the network: pairs (x, z)."""
    k: Count


class Statistics(Shape):
    """One run of the search, with the columns of HyFair's Table II; rows are counted in float32; only the best row's k is exact."""

    rows: Count
    """Rows x generated."""
    iterations: Count
    """Steps of all chains together (rows / chains)."""
    evaluations: Count
    """Evaluations of the network: one for each row and combination."""
    instances: Count
    """Rows with k >= 2 (#ID)."""
    mean_k: Measured
    """Over those (Avg.K)."""
    first_seconds: Seconds | None
    """When the first of them was met (T.1st)."""
    first_k: Count | None
    at_best: Count
    """Distinct rows seen at the largest k (#ID.maxK)."""
    at_best_capped: bool
    """There may be more of them."""
    best_seconds: Seconds
    """When the largest k was met (T.maxK)."""
    restarts: Count
    """Chains that were given a new seed."""
    skipped: Count
    """Rows of the table that lie outside box or domain."""
    illegal_seeds: Count
    """Seeds that the caller gave and that were replaced because they do."""
    seconds: Seconds
    stopped: Stopped
    """The reason that the search ended; exhausted: the box holds one row."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def success_rate(self) -> Share:
        """Share of the rows that have k >= 2."""
        return self.instances / self.rows if self.rows else 0.0


@dataclass(frozen=True, kw_only=True, repr=False)
class ClusterSearch(Finding):
    """Result of Algorithm 1, a Finding: value is the largest k found, counted exactly at `cluster.x`. It is not a proof.

    peers: (R, V) other rows with the same k in float32, the best first; explanations start from them.
    """

    cluster: Cluster
    statistics: Statistics
    trace: tuple[TracePoint, ...]
    peers: Array = field(repr=False)

    @property
    def k(self) -> int:
        return self.cluster.k

    def table_two(self) -> dict[str, float | int | None]:
        """Return the run as a line of HyFair's Table II, with its column names (Iter in thousands of rows)."""
        s = self.statistics
        return {
            "Iter (x1K)": s.rows / 1000,
            "Max.K": self.k,
            "Avg.K": s.mean_k,
            "T.1st": s.first_seconds,
            "#ID": s.instances,
            "Succ.rate": 100 * s.success_rate,
            "#ID.maxK": s.at_best,
            "T.maxK": s.best_seconds,
        }


def recount(space: Space, x: Array) -> Cluster:
    """Count one row (V,) exactly, and also as the runtime's logits say.

    Sound? yes: see `buckets_of`.
    Raises ModelError where the model's file changed since it was read.
    """
    network, buckets = space.query.model, space.query.buckets
    combinations = space.combinations[space.possible(x[None, :])[0]]
    rows = space.rows(x, combinations)
    inputs = space.query.schema.encode(rows)
    lower, upper = buckets_of(network, inputs, buckets).T
    is_certain = lower == upper
    is_certain[0] |= not is_certain.any()  # it is in some bucket
    combinations, rows, inputs, bucket = combinations[is_certain], rows[is_certain], inputs[is_certain], lower[is_certain]
    weights = margin(network, 1, 0)
    logits = log_odds(network, network.forward(inputs) @ weights)
    odds = logits
    if not space.query.probable:
        odds = log_odds(network, space.query.schema.judges(network, odds=True).forward(inputs)[:, 0])
    runtime_k = None
    if network.source is not None:
        runtime = runtime_logits(network, inputs) @ weights
        runtime_k = len(np.unique(np.searchsorted(edges(buckets), log_odds(network, runtime), side="left")))
    return Cluster(
        x=rows[0], combinations=combinations, logits=logits, probabilities=scipy.special.expit(odds), bucket=bucket,
        buckets=buckets, runtime_k=runtime_k,
    )


def outcomes(space: Space, cluster: Cluster) -> pd.DataFrame:
    """Return a line for each combination: its protected values in the schema's words, logit, probability, bucket; sorted by
    logit."""
    schema, protected = space.query.schema, space.query.protected
    frame = pd.DataFrame(
        {
            _heading(name): [schema[name].word(value) for value in column]
            for name, column in zip(protected, cluster.combinations.T, strict=True)
        }
    )
    frame["logit"] = cluster.logits
    frame["probability"] = cluster.probabilities
    frame["bucket"] = cluster.bucket
    return frame.sort_values("logit", kind="stable", ignore_index=True)


def by_bucket(space: Space, cluster: Cluster) -> pd.DataFrame:
    """Return a line for each bucket hit: its interval, the number of combinations in it, and the lowest of them as an example."""
    frame = outcomes(space, cluster)
    lowest = frame.drop_duplicates("bucket")  # sorted by logit, so the first of each bucket is the lowest
    interval = [
        f"{low / cluster.buckets:.4g} .. {(low + 1) / cluster.buckets:.4g}" if space.query.probable
        else space.query.schema.class_names[low] for low in lowest["bucket"]
    ]
    lines = lowest.drop(columns=["logit", "bucket", "probability"])
    lines.insert(0, "outcome", interval)
    lines.insert(1, "variants", frame["bucket"].value_counts().loc[lowest["bucket"]].to_numpy())
    return lines.assign(probability=lowest["probability"]).reset_index(drop=True)


def _heading(name: str) -> str:
    """Return the name of a protected feature's column, changed if it is the name of another column."""
    return f"{name} (protected)" if name in ("logit", "probability", "bucket", "outcome", "variants") else name


def person(space: Space, cluster: Cluster) -> dict[str, Any]:
    """Return the features that all variants share, in the schema's words."""
    decoded = space.query.schema.decode(cluster.x)
    return {name: value for name, value in decoded.items() if name not in space.query.protected}
