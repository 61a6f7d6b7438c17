"""fgce: group counterfactuals. Proved, claimed and measured are kept apart."""

from __future__ import annotations

from typing import Any, Literal

from verifair.engine.verdict import Reason, Status
from verifair.json_schemas.words import About, Count, Row, RowName, Shape, Share, Table, Trust


class Interval(Shape):
    """A mean with its percentile bootstrap interval over people, 95 %."""

    mean: float
    low: float
    high: float


class FgceQuery(Shape):
    kind: Literal["fgce"]
    protected: list[str]
    k: int | None
    coverage: float | None
    max_cost: float | None
    cost: str
    weighting: str | None
    bandwidth: str | float | None
    eps: float | str | None
    factuals: str
    changes: dict[str, Any]
    method: str
    solver: str | None
    audit: str | None
    only_robust: float | None


class Graph(Shape):
    nodes: Count
    edges: Count
    eps: float
    weak_components: Count
    strong_components: Count
    density: Share
    moves: dict[str, str]
    """Feature -> how it may change."""
    rows_left_out: Count


class Certainty(Shape):
    of: Literal["cost", "coverage"]
    value: float | None
    bound: float | None
    trust: Literal["proved", "claimed"]
    optimal: bool
    """Value and bound meet."""
    text: str


class Advice(Shape):
    """A counterfactual, and whom it serves."""

    row: RowName
    values: Row
    serves: Count
    largest: float | None
    mean: float | None
    changes: dict[str, float | None]
    """Feature -> share of those served for whom it changes."""


class Subgroup(Shape):
    component: Count
    common: dict[str, Any]
    factuals: Count
    hopeless: Count
    """Without a feasible counterfactual."""
    candidates: Count
    used: Count
    covered: Count
    largest: float | None
    mean: float | None


class Group(Shape):
    name: str
    negatives: Count
    hopeless: Count
    factuals: Count
    covered: Count
    coverage: Interval
    cost: float | None
    """The largest of those covered."""
    mean: Interval | None
    cheapest: float | None
    certainty: Certainty
    advice: list[Advice]
    subgroups: list[Subgroup]
    used: Count
    hopeless_share: Share


class Explanation(Shape):
    """A factual and its counterfactual, or why there is none."""

    group: str
    row: RowName
    component: Count
    counterfactual: RowName | None
    cost: float | None
    changes: str


class Comparison(Shape):
    """A measure over all groups."""

    measure: str
    values: dict[str, float | None]
    worst: str | None
    apart: float | None
    chance: Interval | None
    known: bool
    clear: bool
    """Groups differ by more than chance, or what time left open, would have them."""


class Reach(Shape):
    """What full coverage takes."""

    k0: Count
    """Fewest counterfactuals."""
    d0: float | None
    """Least largest cost with k0 of them."""
    d_least: float | None
    optimal: bool


class Measures(Shape):
    reach: dict[str, Reach | None]
    subgroups: dict[str, dict[str, Reach | None]]
    levels: list[float]
    """Costs of the coverage curves."""
    exact: bool
    stopped: Literal["interrupted", "time"] | None
    points_not_proved_optimal: Count
    coverage: Table
    cost: Table
    kauc: Table
    dauc: Table
    cauc: Table


class Decided(Shape):
    """What the network itself decides on a counterfactual."""

    group: str
    row: RowName
    positive: bool
    """In exact arithmetic."""
    float32: bool | None
    agrees: bool | None
    margin: float | None


class RobustVerdict(Shape):
    """Whether a counterfactual stays positive within delta units. against: the class that wins at the witness."""

    group: str
    row: RowName
    delta: float
    status: Status
    reason: Reason | Literal[""] | None
    engine: str | None
    trust: Trust | Literal[""] | None
    against: Count | None
    witness: Row | None
    lower: float | None
    upper: float | None
    float32_agrees: bool | None


class GroupTrust(Shape):
    """Which numbers are proved, which a solver claims, which are measured."""

    proved: list[str]
    claimed: list[str]
    measured: list[str]


class Fgce(About):
    """`verifair fgce`: what groups would have to change, and who is left without help."""

    query: FgceQuery
    graph: Graph
    groups: list[Group]
    left_out: dict[str, str]
    """Group -> why."""
    explanations: list[Explanation]
    attribute_changes: dict[str, dict[str, float | None]]
    """Group -> feature -> share of its people for whom it changes."""
    comparison: list[Comparison]
    measures: Measures | None
    re_evaluated: list[Decided] | None
    robust: list[RobustVerdict] | None
    trust: GroupTrust
