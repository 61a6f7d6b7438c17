"""The result of kmax: the person with the most outcome buckets, the search, and the certified bound."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import ConfigDict, Field, InstanceOf

from verifair.engine.buckets.kmax import KmaxVerdict
from verifair.engine.verdict import Reason
from verifair.systems.hyfair.search.clusters import Cluster, ClusterSearch, Statistics, TracePoint, outcomes, person
from verifair.systems.hyfair.search.space import Space
from verifair.systems.results.result import Count, Measured, Probability, Result, Row, RowsOf, Seconds, Seed, Shape
from verifair.systems.results.verdicts import CertificateNote


class KmaxQuery(Shape):
    kind: Literal["k-discrimination"] = "k-discrimination"
    protected: list[str]
    buckets: Annotated[int, Field(ge=2)]
    combinations: Annotated[int, Field(ge=1)]
    """Number of combinations of protected values."""


class Variant(Shape):
    """The same person with other protected values: these (feature -> value), the model's output, and the outcome bucket."""

    model_config = ConfigDict(extra="allow")

    logit: float
    """Log-odds of the positive class; where decisions of several classes are counted, its logit less the largest other one."""
    probability: Probability
    bucket: Count


class TableTwo(Shape):
    """A line of HyFair's Table II."""

    rows: Annotated[float, Field(alias="Iter (x1K)")]
    k: Annotated[Count, Field(alias="Max.K")]
    mean: Annotated[Measured, Field(alias="Avg.K")]
    first: Annotated[float | None, Field(alias="T.1st")]
    found: Annotated[Count, Field(alias="#ID")]
    rate: Annotated[float | None, Field(alias="Succ.rate")]
    best: Annotated[Count, Field(alias="#ID.maxK")]
    seconds: Annotated[float, Field(alias="T.maxK")]


class KmaxSearch(Shape):
    """The result of the search: a finding, not a proof."""

    kind: str
    k: Count
    proof: Literal[False] = False
    method: str
    seed: Seed
    buckets: Count
    combinations: Count
    person: Row
    outcomes: Annotated[pd.DataFrame, RowsOf(Variant)]
    runtime_k: Count | None
    peers: list[Row]
    """Other people with as many buckets."""
    statistics: Statistics
    table_two: TableTwo
    trace: tuple[TracePoint, ...]
    details: dict[str, Any]

    @classmethod
    def of(cls, space: Space, search: ClusterSearch) -> KmaxSearch:
        """Return the search as the JSON has it."""
        schema, protected = space.query.schema, space.query.protected
        return cls(
            kind=search.kind, k=search.k, method=search.method, seed=search.seed or 0, buckets=space.query.buckets,
            combinations=len(space.combinations), person=person(space, search.cluster), outcomes=outcomes(space, search.cluster),
            runtime_k=search.cluster.runtime_k, statistics=search.statistics, trace=search.trace, details=search.details,
            table_two=TableTwo.model_validate(search.table_two()),
            peers=[{name: value for name, value in schema.decode(x).items() if name not in protected} for x in search.peers],
        )


class KmaxOutcome(Shape):
    combination: dict[str, Any]
    logit: float | None
    bucket: Count | None
    """Null: the schema's constraints forbid this combination at the witness."""


class KmaxBound(Shape):
    """Upper bound by proof, lower bound by an exactly counted person."""

    lower: Count
    upper: Count
    reason: Reason | None
    """The reason that the two bounds differ; null if they do not."""
    combinations: Count
    buckets: Count
    witness: Row | None
    outcomes: list[KmaxOutcome]
    certificate: CertificateNote
    float32_agrees: bool | None
    boxes: Count
    semantics: str
    seconds: Seconds


class KmaxResult(Result):
    """`verifair kmax`: the largest number of outcome buckets for one person when only protected values change."""

    query: KmaxQuery
    lower: Count
    upper: Count | None
    """Certified; null: not asked for, or interrupted."""
    gap: int | None
    witness: Row
    outcomes: Annotated[pd.DataFrame, RowsOf(Variant)]
    runtime_k: Count | None
    """k by the float32 runtime; null: not asked."""
    search: KmaxSearch
    bound: KmaxBound | None
    proof_line: str | None = Field(exclude=True)
    space: InstanceOf[Space] = Field(exclude=True)
    verdict: InstanceOf[KmaxVerdict] | None = Field(exclude=True)
    best: InstanceOf[Cluster] = Field(exclude=True)
    """The search's cluster, or the one that the bound met on its way, where that is larger."""

    def to_frame(self) -> pd.DataFrame:
        """Return the variants of the person who falls into the most buckets, and the bucket of each."""
        return self.outcomes


ANSWERS = {"kmax": KmaxResult}
