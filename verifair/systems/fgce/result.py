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
    """What was asked, defaults included. protected: as in the table.   audit: in words.   solver: null where none was asked."""

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
    """What is known about the optimum: bounds, and who vouches for them."""

    of: Literal["cost", "coverage"]
    """Which number is optimised."""
    value: Measured
    bound: Measured
    """Nothing is better than that."""
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
    """Fixed features that set it apart."""
    factuals: Count
    hopeless: Count
    """Without a feasible counterfactual."""
    candidates: Count
    used: Count
    covered: Count
    largest: Measured
    mean: Measured


class OutOfReach(Shape):
    """The coverage that was asked for, which k counterfactuals cannot reach: they cover as many as k can."""

    asked: Count
    """How many people it is."""
    needed: Count | None
    """The fewest counterfactuals that cover everybody; null: not found in time."""


class GroupSummary(Shape):
    """A group: its negatives, hopeless of them without any feasible counterfactual, factuals with one."""

    name: str
    negatives: Count
    hopeless: Count
    factuals: Count
    covered: Count
    coverage: Interval
    cost: Measured
    """The largest of those covered."""
    mean: Interval | None
    cheapest: Measured
    """The least cost of any counterfactual of anybody."""
    certainty: Certainty
    advice: tuple[Advice, ...]
    subgroups: tuple[Subgroup, ...]
    """Largest first."""
    short: OutOfReach | None = None
    """Where k is too few; the certainty is then about the most that k can cover."""

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
    """A factual and its counterfactual, or why there is none."""

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
    """How many people of each group it is about. Groups of fewer than 30 have a value, and are not ranked."""
    worst: str | None
    """The ranked group with the greatest burden; null: fewer than two are ranked, or they do not differ."""
    apart: Measured
    """Worst less best."""
    chance: Interval | None = None
    """Of that difference, where it is a mean over people, so that chance plays a part."""
    known: bool = True
    """Whether the worst is known to be, or what is merely the best found by now could change that."""

    @property
    def ranked(self) -> tuple[str, ...]:
        """Return the groups that have a value and enough people to be compared."""
        return tuple(name for name, value in self.values.items() if isfinite(value) and self.people[name] >= SMALL)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def clear(self) -> bool:
        """Whether groups differ by more than chance, or open questions, can explain."""
        return self.worst is not None and self.known and (self.chance is None or self.chance.low > 0)


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


class FeasibleShare(Shape):
    """What a method advises a group, and for how many of it that is feasible."""

    group: str
    method: Literal["AReS", "GLOBE-CE", "FACE", "FGCE"]
    size: Count
    """Rules, translations or counterfactuals."""
    advised: Share
    """Of those to be explained: who get a counterfactual that is decided positively."""
    coverage: Share
    """For whom it is feasible too."""
    cost: Measured
    """Mean L2 distance over these."""


class GroupTrust(Shape):
    """Which numbers are proved, which a solver claims, which are measured."""

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
    """Which rows of the table the graph is over, in words."""
    certificate: Certificate | None = Field(exclude=True)
    """Of what is proved robust."""
    note: str | None = Field(exclude=True)
    """What became of the certificate that was asked for, in words."""

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
        """Group -> feature -> share of its people for whom it changes; numbers of many values count by bins."""
        shares: dict[str, dict[str, float]] = self.fitted.attribute_changes().to_dict(orient="index")
        return shares

    @computed_field  # type: ignore[prop-decorator]
    @property
    def attribute_sizes(self) -> dict[str, dict[str, Measured]]:
        """Group -> feature -> by how much a number changes, on average for those for whom it does; null for categories."""
        sizes: dict[str, dict[str, float]] = self.fitted.attribute_sizes().to_dict(orient="index")
        return sizes

    @computed_field  # type: ignore[prop-decorator]
    @property
    def trust(self) -> GroupTrust:
        by_trust = {kind: [f"{one.name}: {one.certainty.text}" for one in self.groups if one.certainty.trust == kind]
                for kind in ("proved", "claimed")}
        measured = ["costs, coverages and attribute changes, on the rows of the table", "intervals, by percentile bootstrap"]
        return GroupTrust(proved=by_trust["proved"] + self.robust_lines(), claimed=by_trust["claimed"], measured=measured)

    def robust_lines(self) -> list[str]:
        """Return what is proved robust, one line a delta, and how much of it of float32 too."""
        good, out = self.fitted.schema.outcomes[1], []
        for delta, part in [] if self.robust is None else self.robust.groupby("delta"):
            count = part["status"].value_counts()
            proved, refuted, unknown = (int(count.get(status.value, 0)) for status in Status)
            claimed = int((part["trust"] == "claimed").sum())
            out.append(
                f"delta {delta:g}: {proved} of {len(part)} proved to stay {good}"
                + (f" ({claimed} by a solver's word)" if claimed else "")
                + (f", {refuted} refuted by an exact row" if refuted else "")
                + (f", {unknown} unknown" if unknown else "")
            )
        trees = [one for one in self.certificate.proofs if isinstance(one.evidence, Tree)] if self.certificate is not None else []
        return out + ([float32_words(sum(one.float32 for one in trees), len(trees)) + "."] if trees else [])


ANSWERS = {"fgce": FgceResult}
