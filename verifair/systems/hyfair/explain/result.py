"""The result of `explain`: rules that describe where a network discriminates. Findings of sampling; nothing is proved."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import Field

from verifair.schema.schema import Schema
from verifair.systems.hyfair.explain.rounds import Rounds
from verifair.systems.hyfair.explain.rules import Explained
from verifair.systems.hyfair.explain.rules_file import FoundRule
from verifair.systems.results.result import Count, Result, Row, Seconds, Seed, Shape, Share


class RulesQuery(Shape):
    protected: list[str]
    buckets: Annotated[int, Field(ge=2)]
    box: dict[str, Any]
    values: dict[str, list[float]]


class SampleSettings(Shape):
    """Parameters of the search for clusters and of their explanation."""

    measure: Literal["k", "gap"]
    rounds: Count
    samples: Count
    quantile: Share
    delta: float | None
    """Least fall of the severity by negation; null: a share of the largest there can be."""
    depth: Count
    leaf: Count
    purity: Share | None
    """Asked of a leaf; null: the default, see that of each cluster."""
    iterations: Count
    seconds: Seconds
    seed: Seed


class ExplainedCluster(Shape):
    x: Row
    severity: float
    high_from: float
    """Samples of this severity and more are called high."""
    purity: Share
    """Least share of high samples in the leaves that became rules."""


class LimeLine(Shape):
    """A line of HyFair's Table III."""

    method: Literal["LIME", "rules"]
    init_k: Annotated[float, Field(alias="Init.K")]
    size: Annotated[float, Field(alias="Size")]
    k: Annotated[float | None, Field(alias="K")]
    pert_k: Annotated[float | None, Field(alias="Pert.K")]
    diff: Annotated[float | None, Field(alias="Diff")]
    cov: Annotated[float, Field(alias="Cov")]
    features: str


class ExplainResult(Result):
    """`verifair explain`: conditions under which there are clusters of discrimination. Findings of sampling, not proofs."""

    kind: Literal["verifair-rules"] = "verifair-rules"
    query: RulesQuery
    settings: SampleSettings
    clusters: list[ExplainedCluster]
    rules: list[FoundRule]
    not_confirmed: list[FoundRule]
    """Negation did not confirm them."""
    stopped: str | None
    lime: list[LimeLine]
    proof: Literal[False] = False
    found: Rounds = Field(exclude=True)
    described: Schema = Field(exclude=True)
    options: str = Field(exclude=True)
    """Those that name model and schema."""
    guardable: bool = Field(exclude=True)
    """Whether `verifair guard` takes rules about this model."""
    file: Path | None = Field(exclude=True)
    """The file of the rules, if one is written."""
    box: dict[str, Any] = Field(exclude=True)

    @property
    def best(self) -> list[Explained]:
        """The rules of all clusters, those with the largest effect of negation first."""
        rules_found = (item for explanation in self.found.found for item in explanation.rules)
        return sorted(rules_found, key=lambda item: -item.evidence.difference)

    def to_frame(self) -> pd.DataFrame:
        """Return a line for each rule: its words, and the mean severity inside it and with one condition negated."""
        lines = [(item.rule.words(self.described), item.evidence.inside, item.evidence.negated) for item in self.best]
        return pd.DataFrame(lines, columns=["rule", "severity inside", "one condition negated"])


ANSWERS = {"explain": ExplainResult}
