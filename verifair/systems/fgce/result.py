"""The result of FGCE: each group's counterfactuals, the comparison of groups, and what is proved, claimed or measured."""

from __future__ import annotations

from math import isfinite
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import ConfigDict, Field, computed_field

from verifair.checker.certificates.certificate import Certificate
from verifair.checker.certificates.tree import Tree
from verifair.checker.words import float32_words
from verifair.engine.verdict import Reason, Status
from verifair.systems.fgce.estimator import GroupCounterfactuals
from verifair.systems.fgce.measures.burden import Burden
from verifair.systems.fgce.settings import FgceSettings
from verifair.systems.groups import SMALL, Rows
from verifair.systems.results.result import Count, Interval, Measured, Result, Row, RowName, RowsOf, Shape, Share, Trust


class FgceQuery(FgceSettings):
    """The query, defaults included.   protected: as in the table.   audit: in words.   solver: null if none was used."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)
    kind: Literal["fgce"] = "fgce"
    solver: str | None = None  # type: ignore[assignment]


class GraphSize(Shape):
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
    """Bounds of the optimum, and whether they are proved or a solver's claim."""

    of: Literal["cost", "coverage"]
    """The number that is optimised."""
    value: Measured
    bound: Measured
    """Bound of the optimum: no choice is better."""
    trust: Literal["proved", "claimed"]
    """proved: here, in whole numbers.   claimed: by a solver."""
    optimal: bool
    """Value and bound meet."""
    text: str


class Advice(Shape):
    """A counterfactual, and the people to whom it is assigned."""

    row: RowName
    values: Row
    serves: Count
    largest: Measured
    mean: Measured
    changes: dict[str, Measured]
    """Feature -> share of those served for whom it changes (continuous ones by bins), largest first, without zeros."""


class Subgroup(Shape):
    """A weak component of a group."""

    component: Count
    """Its number in the graph."""
    common: dict[str, Any]
    """Fixed features that all of its people share, and not all of the group."""
    factuals: Count
    hopeless: Count
    """People without a feasible counterfactual."""
    candidates: Count
    used: Count
    covered: Count
    largest: Measured
    mean: Measured


class OutOfReach(Shape):
    """A coverage that k counterfactuals cannot reach: they cover as many people as k can."""

    asked: Count
    """Number of people to cover."""
    needed: Count | None
    """The fewest counterfactuals that cover everybody; null: not found in time."""


class GroupSummary(Shape):
    """A group: its negatives, of whom `hopeless` have no feasible counterfactual, and `factuals` have one."""

    name: str
    negatives: Count
    hopeless: Count
    factuals: Count
    covered: Count
    coverage: Interval
    cost: Measured
    """The largest cost of a covered person."""
    mean: Interval | None
    cheapest: Measured
    """The least cost of any counterfactual for anybody."""
    certainty: Certainty
    advice: tuple[Advice, ...]
    subgroups: tuple[Subgroup, ...]
    """Largest first."""
    short: OutOfReach | None = None
    """Set if k is too small; the certainty is then about the most that k can cover."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def used(self) -> Count:
        """Number of counterfactuals that are assigned to somebody."""
        return len(self.advice)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def hopeless_share(self) -> Share:
        return self.hopeless / self.negatives


class GroupExplanation(Shape):
    """A factual and its counterfactual, or the reason that it has none."""

    group: str
    row: RowName
    component: Count
    counterfactual: RowName | None
    cost: float | None
    changes: str


class GroupComparison(Shape):
    """A measure over all groups."""

    measure: str
    values: dict[str, Measured]
    people: dict[str, Count]
    """Number of people of each group that it is about. Groups of fewer than 30 have a value, but are not ranked."""
    worst: str | None
    """The ranked group with the greatest burden; null: fewer than two are ranked, or they do not differ."""
    apart: Measured
    """Worst minus best."""
    chance: Interval | None = None
    """Interval of this difference, for means over people, which depend on chance."""
    known: bool = True
    """False if the worst group could change because some optima are not proved yet."""

    @property
    def ranked(self) -> tuple[str, ...]:
        """Return the groups that have a value and enough people to be compared."""
        return tuple(name for name, value in self.values.items() if isfinite(value) and self.people[name] >= SMALL)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def clear(self) -> bool:
        """True if groups differ by more than chance or unproved optima can explain."""
        return self.worst is not None and self.known and (self.chance is None or self.chance.low > 0)


class Decided(Shape):
    """The network's decision on a counterfactual."""

    group: str
    row: RowName
    positive: bool
    """The decision in exact arithmetic."""
    float32: bool | None
    agrees: bool | None
    margin: float | None


class RobustVerdict(Shape):
    """The verdict on whether a counterfactual stays positive within delta units.   against: the class that wins at the witness."""

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


class FeasibleShare(Shape):
    """The advice of one method for a group, and the share of people for whom it is feasible."""

    group: str
    method: Literal["AReS", "GLOBE-CE", "FACE", "FGCE"]
    size: Count
    """Rules, translations or counterfactuals."""
    advised: Share
    """Share of the people to be explained who get a counterfactual that is decided positively."""
    coverage: Share
    """Share for whom it is also feasible."""
    cost: Measured
    """Mean L2 distance over the people for whom it is feasible."""


class GroupTrust(Shape):
    """The numbers that are proved, claimed by a solver, and measured."""

    proved: list[str]
    claimed: list[str]
    measured: list[str]


class FgceResult(Result):
    """`verifair fgce`: what people of each group would have to change, and who cannot be helped."""

    query: FgceQuery
    groups: list[GroupSummary]
    explanations: Annotated[pd.DataFrame, RowsOf(GroupExplanation)]
    comparison: list[GroupComparison]
    measures: Burden | None
    compared: Annotated[pd.DataFrame, RowsOf(FeasibleShare)] | None
    """Other methods' advice beside FGCE's, as far as time went."""
    re_evaluated: Annotated[pd.DataFrame, RowsOf(Decided)] | None
    robust: Annotated[pd.DataFrame, RowsOf(RobustVerdict)] | None
    fitted: GroupCounterfactuals = Field(exclude=True)
    rows: Rows = Field(exclude=True)
    drawn: str = Field(exclude=True)
    """The rows of the table that the graph is over, in words."""
    certificate: Certificate | None = Field(exclude=True)
    """Certificate of the counterfactuals that are proved robust."""
    note: str | None = Field(exclude=True)
    """A note about the certificate, in words."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def graph(self) -> GraphSize:
        graph, reach, features = self.fitted.graph_, self.fitted.reachability_, self.fitted.schema.features
        return GraphSize(
            nodes=len(graph), edges=graph.edges, eps=graph.eps, weak_components=reach.weak_count,
            strong_components=reach.strong_count, density=graph.edges / max(len(graph) * (len(graph) - 1), 1),
            moves={feature.name: change for feature, change in zip(features, self.fitted.space_.changes, strict=True)},
            rows_left_out=self.rows.dropped,
        )

    @computed_field  # type: ignore[prop-decorator]
    @property
    def left_out(self) -> dict[str, str]:
        """Group that is left out -> reason."""
        return self.fitted.skipped_

    @computed_field  # type: ignore[prop-decorator]
    @property
    def attribute_changes(self) -> dict[str, dict[str, Measured]]:
        """Group -> feature -> share of its people for whom it changes; numbers with many values are compared by bins."""
        shares: dict[str, dict[str, float]] = self.fitted.attribute_changes().to_dict(orient="index")
        return shares

    @computed_field  # type: ignore[prop-decorator]
    @property
    def attribute_sizes(self) -> dict[str, dict[str, Measured]]:
        """Group -> feature -> mean change of a number over the people for whom it changes; null for categories."""
        sizes: dict[str, dict[str, float]] = self.fitted.attribute_sizes().to_dict(orient="index")
        return sizes

    @computed_field  # type: ignore[prop-decorator]
    @property
    def trust(self) -> GroupTrust:
        by_trust = {kind: [f"{group.name}: {group.certainty.text}" for group in self.groups if group.certainty.trust == kind]
                for kind in ("proved", "claimed")}
        measured = ["costs, coverages and attribute changes, on the rows of the table", "intervals, by percentile bootstrap"]
        return GroupTrust(proved=by_trust["proved"] + self.robust_lines(), claimed=by_trust["claimed"], measured=measured)

    def robust_lines(self) -> list[str]:
        """Return a line for each delta with the numbers proved robust, and one about float32."""
        good, lines = self.fitted.schema.outcomes[1], []
        for delta, part in [] if self.robust is None else self.robust.groupby("delta"):
            count = part["status"].value_counts()
            proved, refuted, unknown = (int(count.get(status.value, 0)) for status in Status)
            claimed = int((part["trust"] == "claimed").sum())
            lines.append(
                f"delta {delta:g}: {proved} of {len(part)} proved to stay {good}"
                + (f" ({claimed} by a solver's word)" if claimed else "")
                + (f", {refuted} refuted by an exact row" if refuted else "")
                + (f", {unknown} unknown" if unknown else "")
            )
        trees = [p for p in self.certificate.proofs if isinstance(p.evidence, Tree)] if self.certificate is not None else []
        return lines + ([float32_words(sum(proof.float32 for proof in trees), len(trees)) + "."] if trees else [])


ANSWERS = {"fgce": FgceResult}
