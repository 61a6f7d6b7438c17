"""cst: situation testing. Measured under a causal model; what is certified takes the model as given."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from verifair.json_schemas.words import Answer, Count, RowName, Seconds, Seed, Sha256, Shape, Share, Value
from verifair.systems.result import MeasuredTrust

Method = Literal["ST", "CST w/o", "CST", "CF"]
Do = Annotated[dict[str, Value], Field(description="Protected attribute -> the value of those who are not protected.")]


class CstQuery(Shape):
    kind: Literal["cst"]
    do: dict[str, str]
    attributes: list[str]
    k: list[int]
    """Group sizes."""
    tau: float
    level: Share
    """Of the intervals."""
    sides: Literal[1, 2]
    interval: str
    correction: str | None
    distance: str
    ties: Any
    intersectional: bool | str
    preset: str | None
    decides: str
    data: str
    rows: Count


class CaseCount(Shape):
    """A line of Table 1."""

    method: Method
    k: int
    complainants: Count
    cases: Count
    share: Share | None
    significant: Count
    significant_share: Annotated[Share | None, Field(alias="significant share")]
    share_by_chance: Annotated[Share | None, Field(alias="share by chance")] = None
    significant_share_by_chance: Annotated[Share | None, Field(alias="significant share by chance")] = None
    repeats: Count | None = None


class Overlap(Shape):
    found_by: Annotated[Method, Field(alias="found by")]
    not_by: Annotated[Method, Field(alias="not by")]
    k: int
    people: Count


class GroupRate(Shape):
    group: str
    people: Count
    negative: Share | None
    counterfactual: Share | None
    """Null: nobody decides on counterfactuals."""


class Change(Shape):
    """What the intervention moves."""

    attribute: str
    people: Count
    before: float | None
    after: float | None
    moves: str


class Claim(Shape):
    """A complainant by one method and group size."""

    row: RowName
    group: str
    method: Method
    k: int
    n: Count
    control: Share | None
    """Of negative decisions in the control group."""
    test: Share | None
    delta: float | None
    low: float | None
    high: float | None
    p_value: Annotated[Share | None, Field(alias="p value")]
    case: bool
    significant: bool


class Tested(Shape):
    """One intervention: a finding, no proof."""

    do: dict[str, str]
    finding: str
    method: str
    proved: Literal[False]
    complainants: Count
    left_out: Any
    methods: list[Method]
    k: list[int]
    counts: list[CaseCount]
    expected_significant_by_chance: float
    overlaps: list[Overlap]
    rates: list[GroupRate]
    changes: list[Change]
    claims: list[Claim]
    """At the smallest k, of the people with a case by any method."""


class Several(Shape):
    """Of those protected by several attributes: found for each alone, and jointly."""

    method: Method
    k: int
    people: Count
    multiple: Count
    intersectional: float | None


class RobustShare(Shape):
    t: float
    """Standard errors."""
    claims: Count
    robust: Share | None
    overturned: Share | None
    open: Share | None


class Overturning(Shape):
    coefficient: str
    estimate: float
    error: float
    overturns: Count
    """Claims, alone within 1.96 standard errors."""


class SensitivePerson(Shape):
    row: RowName
    claim: bool
    safe: float | None
    """Standard errors within which nothing flips; null: as far as was sought."""
    flip: float | None
    """Standard errors at which it flips; null: not within those sought."""
    coefficient: str | None
    alone: float | None


class SensitivityOf(Shape):
    do: Do
    method: Method
    k: int
    verdict: Literal["positive", "significant"]
    exact: bool
    most: float
    complainants: Count
    claims: Count
    shares: list[RobustShare]
    coefficients: list[Overturning]
    people: list[SensitivePerson]


class Sensitivity(Shape):
    claims: list[SensitivityOf]


class Coefficient(Shape):
    coefficient: str
    estimate: float
    error: float
    low: float
    high: float


class CertifiedPerson(Shape):
    row: RowName
    factual: int
    """Class decided on the row."""
    estimated: int
    """Class decided on the counterfactual at the estimated coefficients."""
    status: Literal["flips", "stays", "depends", "unknown"]
    reason: str | None
    clipped: bool
    cells: Count


class Dependence(Shape):
    """Two coefficient vectors for which the decision differs."""

    coefficients: list[list[float]]
    counterfactuals: list[dict[str, Value]]
    classes: list[int]
    margins: list[float]
    float32_agrees: bool | None


class CertifiedStatuses(Shape):
    flips: Count
    stays: Count
    depends: Count
    unknown: Count


class CertifiedDecisions(Shape):
    """Decisions on counterfactuals for every coefficient in its interval; equations and intervals are taken as given."""

    do: Do
    level: Share
    simultaneous: bool
    box: str
    coefficients: list[Coefficient]
    rows: Count
    counts: CertifiedStatuses
    unknown: dict[str, Count]
    """Reason -> how many."""
    clipped: Count
    seconds: Seconds
    people: list[CertifiedPerson]
    depends: dict[str, Dependence]
    """Position in the table -> both decisions."""
    certificate_file: str | None


class Cst(Answer):
    """`verifair cst`: are similar people of the other group treated better?"""

    query: CstQuery
    equations: list[str]
    tests: list[Tested]
    not_tested: list[str]
    """No time was left."""
    notes: list[str]
    several: list[Several]
    sensitivity: list[Sensitivity]
    certified: list[CertifiedDecisions]
    trust: MeasuredTrust
    model_sha256: Sha256 | None
    schema_sha256: Sha256 | None
    causal_sha256: Sha256 | None
    seconds: Seconds
    seed: Seed
