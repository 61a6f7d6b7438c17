"""explain, guard, and files of rules: findings of sampling; what is proved says so."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from verifair.json_schemas.verdicts import Gap
from verifair.json_schemas.words import Answer, Count, Row, Seconds, Seed, Sha256, Shape, Share


class RulesQuery(Shape):
    protected: list[str]
    buckets: Annotated[int, Field(ge=2)]
    box: dict[str, Any]
    values: dict[str, list[float]]


class SampleSettings(Shape):
    """How clusters are searched and explained."""

    measure: Literal["k", "gap"]
    rounds: Count
    samples: Count
    quantile: Share
    delta: float | None
    """Least fall of the severity by negation; null: a share of the largest there can be."""
    depth: Count
    leaf: Count
    purity: Share
    iterations: Count
    seconds: Seconds
    seed: Seed


class ExplainedCluster(Shape):
    x: Row
    severity: float
    high_from: float
    """Samples of this severity and more are called high."""


class RuleEvidence(Shape):
    """What samples say of a rule: mean severities and their standard deviations, and how much it covers."""

    inside: float | None
    inside_deviation: float | None
    negated: float | None
    negated_deviation: float | None
    outside: float | None
    effects: dict[str, float | None]
    """Feature -> by how much severity falls when that condition alone is negated."""
    samples: Share
    domain: Share
    rows: Share | None
    difference: float | None
    """inside less negated; null: no legal row negates the rule."""


class FoundRule(Shape):
    when: dict[str, Any]
    """Conditions as a schema's constraint writes them."""
    words: str
    size: Count
    cluster: Count
    evidence: RuleEvidence


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


class Explain(Answer):
    """`verifair explain`: which conditions make clusters of discrimination. Findings of sampling, no proof."""

    kind: Literal["verifair-rules"]
    model_sha256: Sha256
    schema_sha256: Sha256
    query: RulesQuery
    settings: SampleSettings
    clusters: list[ExplainedCluster]
    rules: list[FoundRule]
    not_confirmed: list[FoundRule]
    """Negation did not confirm them."""
    stopped: str | None
    lime: list[LimeLine]
    seconds: Seconds
    proof: Literal[False]
    seed: Seed


class Effect(Shape):
    """A line of HyFair's Table IV, and what a guardrail costs: measured and searched, no proof."""

    intervention: str
    accuracy: Share | None
    """Of the rows that are answered."""
    abstained: Share | None
    rows: Count
    max_k: Count
    """Counted exactly."""
    mean_k: float | None
    instances: Count
    success_rate: float | None
    at_best: Count
    local_k: float | None
    local_success: float | None


class Step(Shape):
    rules: Count
    lower: float
    """The largest gap met outside the rules."""
    upper: float | None
    """The largest there can be outside the rules, certified."""


class Tightened(Gap):
    """Rules made from counterexamples, and the largest gap that is left outside of them."""

    steps: list[Step]


class Instances(Shape):
    people: Count
    rows: Count


class Guard(Answer):
    """`verifair guard`: a network that refuses what rules say."""

    guarded: str
    """The ONNX file."""
    schema_file: Annotated[str, Field(alias="schema")]
    rules: list[str]
    certified: Tightened | None
    retrained: str | None
    instances: Instances | None
    """Added for retraining."""
    effects: list[Effect]
    seconds: Seconds
    seed: Seed
