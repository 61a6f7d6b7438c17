"""cec: consistency of explanations. Measured; what is certified says so."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from verifair.json_schemas.groups import Interval
from verifair.json_schemas.words import About, Count, Probability, RowName, Seconds, Shape, Share

Regime = Literal["A", "B", "C", "D"]


class CecQuery(Shape):
    kind: Literal["cec"]
    protected: list[str]
    merit: list[str]
    audit: str
    reference: str | None
    tau: float | None
    """Farthest match, in standard deviations of merit; null: however far."""
    threshold: Share
    attributions: str
    ties: Literal["first", "random"]


class Control(Shape):
    within: float | None
    """Mean score of the same people and the nearest of their own group; null: not asked for."""
    across_more_by: Interval | None


class Regimes(Shape):
    """Shares of the matched pairs; no keys where nobody is matched."""

    A: Share = 0
    B: Share = 0
    C: Share = 0
    D: Share = 0


class RegimeMeaning(Shape):
    A: str
    B: str
    C: str
    D: str


class GroupFindings(Shape):
    name: str
    people: Count
    pairs: Count
    matched: Count
    distance: Annotated[list[float | None], Field(min_length=3, max_length=3)]
    """Median, 90 %, largest; standard deviations of merit."""
    twins: Share | None
    ties: Annotated[list[float | None], Field(min_length=2, max_length=2)]
    """Median and largest number of equally near counterparts."""
    cec: Interval | None
    pfr: Interval | None
    """Prediction flip rate."""
    regimes: Regimes
    within: float | None
    beyond: Interval | None
    coverage: Share


class Between(Shape):
    group: str
    other: str
    people: Count
    matched: Count
    distance: float | None
    ties: float | None
    cec: Annotated[float | None, Field(alias="CEC")]
    pfr: Annotated[float | None, Field(alias="PFR")]
    A: Share | None
    B: Share | None
    C: Share | None
    D: Share | None


class FeaturePart(Shape):
    feature: str
    part: float
    """Of the mean score."""
    share: float | None


class ThresholdLine(Shape):
    threshold: Share
    A: Share
    B: Share
    C: Share
    D: Share


class Review(Shape):
    """Whom to look at first."""

    row: RowName
    group: str
    counterpart: RowName
    other: str
    score: Share
    regime: Regime
    decision: str
    its_decision: Annotated[str, Field(alias="its decision")]
    probability: Probability
    its_probability: Annotated[Probability, Field(alias="its probability")]
    distance: float
    ties: Count
    most_different: Annotated[str, Field(alias="most different")]
    reasons: str


class Unmatched(Shape):
    row: RowName
    group: str
    other: str
    label: int
    distance: float
    reason: str


class ModelDecides(Shape):
    """Whether a low score is that of a model that hardly decides."""

    variance: float
    positive: Share
    auc: float | None
    silent: Share
    hardly: str | None


class Pair(Shape):
    """An audited person and their counterpart in another group; nulls where there is none."""

    row: RowName
    group: str
    other: str
    label: int
    counterpart: RowName | None
    distance: float
    ties: Count
    score_within: Annotated[float | None, Field(alias="score within")] = None
    score: Share | None
    regime: Regime | None
    decision: int | None
    its_decision: Annotated[int | None, Field(alias="its decision")]
    probability: Probability | None
    its_probability: Annotated[Probability | None, Field(alias="its probability")]


class CertifiedPair(Shape):
    row: RowName
    counterpart: RowName
    status: Literal["certified", "unknown"]
    reason: str | None
    score: float | None
    bound: float | None
    """Of the score, throughout both neighbourhoods."""


class CertifiedPairs(Shape):
    """Whose regime A is proved wherever both move within delta units."""

    delta: float
    threshold: Share
    pairs: Count
    regime_A: Count
    certified: Count
    share: Share | None
    unknown: dict[str, Count]
    """Reason -> how many."""
    largest_bound: float | None
    median_slack: float | None
    seconds: Seconds
    certificate_file: str | None
    people: list[CertifiedPair]


class MeasuredTrust(Shape):
    proved: list[str]
    measured: list[str]


class Cec(About):
    """`verifair cec`: are people of different groups and the same merit decided alike, and for like reasons?"""

    query: CecQuery
    finding: Literal["explanation consistency"]
    proved: Literal[False]
    cec: Interval | None
    pfr: Interval | None
    control: Control
    regimes: Regimes
    regime_meaning: RegimeMeaning
    coverage: Share
    groups: list[GroupFindings]
    between_groups: list[Between]
    features: list[FeaturePart]
    thresholds: list[ThresholdLine]
    review: list[Review]
    unmatched: list[Unmatched]
    model_decides: ModelDecides
    score_follows_distance: float | None
    """Rank correlation."""
    pairs: list[Pair]
    certified: CertifiedPairs | None
    trust: MeasuredTrust
