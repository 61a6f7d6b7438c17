"""The result of CEC in the schema's words: groups, features, people to review, unmatched people, certified pairs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import ConfigDict, Field, computed_field
from scipy.stats import spearmanr

from encoders.arrays import Array, Booleans, Integers
from verifair.aside import made
from verifair.schema.schema import Schema
from verifair.systems.cec.audit import ComparedPairs
from verifair.systems.cec.certified import ELSEWHERE, CertifiedConsistency
from verifair.systems.cec.explanations import REGIMES, Regime
from verifair.systems.cec.matching import Reference
from verifair.systems.cec.measures import (
    Triviality,
    by_group,
    excess,
    feature_parts,
    interval,
    places,
    reasons,
    regime_shares,
    replace_pairs,
    review_order,
    sensitivity,
    to_review,
    triviality,
)
from verifair.systems.cec.people import People
from verifair.systems.cec.settings import Ties
from verifair.systems.groups import blocks
from verifair.systems.results.result import (
    Count,
    Interval,
    Measured,
    MeasuredTrust,
    Probability,
    Result,
    RowName,
    RowsOf,
    Seconds,
    Shape,
    Share,
)
from verifair.systems.results.words import units

EVERYBODY = "everybody"
MIN_PAIRS = 10
"""Pairs below which a correlation says nothing."""
MIN_REVIEWED = 20
"""Pairs to review, at least."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Audited:
    """people: (N,) the audited people.   reference: the people they are compared with.   rows, reference_rows: names of their rows.

    words: the audited rows, in words.   apart: file of the rows to compare with; None for the audited table.   dropped: rows
    outside the schema, of both tables.   protected: columns that define the groups.   merit: names of the features that make people
    comparable.   own: (N,) the audited people's rows in the reference, if it is of the same table.
    """

    schema: Schema
    people: People
    reference: Reference
    rows: pd.Index
    reference_rows: pd.Index
    words: str
    apart: Path | None
    dropped: int
    protected: tuple[str, ...]
    merit: tuple[str, ...]
    own: Integers | None = None


class CecQuery(Shape):
    kind: Literal["cec"] = "cec"
    protected: tuple[str, ...]
    merit: tuple[str, ...]
    audit: str
    reference: str | None
    tau: float | None
    """Farthest match, in standard deviations of merit; null: however far."""
    threshold: Share
    attributions: str
    ties: Ties


class Control(Shape):
    within: Measured
    """Mean score of the same people and the nearest of their own group; null: not asked for."""
    across_more_by: Interval | None


class GroupFindings(Shape):
    """One group, or everybody."""

    name: str
    people: Count
    """Audited."""
    pairs: Count
    """Number of pairs with the other groups."""
    matched: Count
    """Pairs with a counterpart."""
    distance: tuple[Measured, Measured, Measured]
    """Distance to the nearest, matched or not: median, 90 % quantile, largest; in standard deviations of merit."""
    twins: Share | None
    """Share of matched pairs whose counterpart has the same merit."""
    ties: tuple[Measured, Count]
    """Median and largest number of equally near counterparts."""
    cec: Interval | None
    pfr: Interval | None
    """Prediction flip rate."""
    regimes: dict[Regime, Share]
    """Shares of the matched pairs; no keys where nobody is matched."""
    within: Measured
    """Mean score of the same people and the nearest comparable ones of their own group."""
    beyond: Interval | None
    """Excess of the scores across groups, over people with both scores."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def coverage(self) -> Share:
        return self.matched / self.pairs

    def flat(self) -> dict[str, Any]:
        """Return the group in one line of a table."""
        line: dict[Any, Any] = {
            "group": self.name, "people": self.people, "pairs": self.pairs, "matched": self.matched, "coverage": self.coverage,
            "median distance": self.distance[0], "90% distance": self.distance[1], "largest distance": self.distance[2],
            "share with equal merit": self.twins, "median ties": self.ties[0], "most ties": self.ties[1], **_ends("cec", self.cec),
            **_ends("pfr", self.pfr), "within": self.within, **_ends("beyond", self.beyond),
        }
        return {**line, **self.regimes}


class Between(Shape):
    group: str
    other: str
    people: Count
    matched: Count
    distance: float | None
    ties: float | None
    CEC: float | None
    PFR: float | None
    A: Share | None
    B: Share | None
    C: Share | None
    D: Share | None


class FeaturePart(Shape):
    feature: str
    part: float
    """Of the mean squared score."""
    share: float | None


class ThresholdLine(Shape):
    threshold: Share
    A: Share
    B: Share
    C: Share
    D: Share


class Review(Shape):
    """A pair to look at first."""

    row: RowName
    group: str
    counterpart: RowName
    other: str
    score: Share
    regime: Regime
    decision: str
    its_decision: Annotated[str, Field(alias="its decision")]
    probability: Probability | None
    """Null of a model that gives values."""
    its_probability: Annotated[Probability | None, Field(alias="its probability")]
    distance: float
    ties: Count
    most_different: Annotated[str, Field(alias="most different")]
    reasons: str


class Unmatched(Shape):
    row: RowName
    group: str
    other: str
    label: str
    distance: float
    reason: str


class Pair(Shape):
    """An audited person and their counterpart in another group; nulls where there is none."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    row: RowName
    group: str
    other: str
    label: str
    counterpart: RowName | None
    distance: float
    ties: Count
    score_within: Annotated[float | None, Field(alias="score within")] = None
    score: Share | None
    regime: Regime | None
    decision: str | None
    its_decision: Annotated[str | None, Field(alias="its decision")]
    probability: Probability | None
    its_probability: Annotated[Probability | None, Field(alias="its probability")]


class CertifiedPair(Shape):
    row: RowName
    counterpart: RowName
    status: Literal["certified", "unknown"]
    reason: str | None
    score: float | None
    bound: float | None
    """Upper bound of the score, throughout both neighbourhoods."""


class CertifiedPairs(Shape):
    """Pairs that are proved to stay in regime A when both people move within delta units."""

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
    """Median difference of the certified pairs' bounds and their measured scores."""
    seconds: Seconds
    certificate_file: str | None
    people: Annotated[pd.DataFrame, RowsOf(CertifiedPair)]
    found: CertifiedConsistency = Field(exclude=True)
    note: str | None = Field(exclude=True)
    """A note about the certificate."""

    @classmethod
    def of(
        cls, found: CertifiedConsistency, measured: ComparedPairs, asked: Audited, *, file: Path | None, note: str | None
    ) -> CertifiedPairs:
        """Return the certified pairs of an audit, with row names as in their tables."""
        certified, chosen = found.certified, np.flatnonzero(found.reason != ELSEWHERE)
        return cls(
            delta=found.delta, threshold=found.threshold, pairs=len(found.status), regime_A=found.candidates,
            certified=int(certified.sum()), share=found.share if found.candidates else None,
            unknown={reason: count for reason, count in found.reasons.items() if reason != ELSEWHERE},
            largest_bound=float(found.bound[certified].max()) if certified.any() else None,
            median_slack=float(np.median((found.bound - found.score)[certified])) if certified.any() else None,
            seconds=found.seconds, certificate_file=str(file) if file else None, found=found, note=note,
            people=pd.DataFrame({
                "row": asked.rows[measured.individual[chosen]], "counterpart": asked.reference_rows[measured.counterpart[chosen]],
                "status": found.status[chosen], "reason": [str(reason) or None for reason in found.reason[chosen]],
                "score": found.score[chosen], "bound": found.bound[chosen],
            }),
        )


class CecResult(Result):
    """`verifair cec`: do people of different groups and the same merit get the same decision for similar reasons?"""

    query: CecQuery
    finding: Literal["explanation consistency"] = "explanation consistency"
    proved: Literal[False] = False
    regime_meaning: dict[Regime, str] = REGIMES
    groups: tuple[GroupFindings, ...]
    """Everybody first."""
    between_groups: Annotated[pd.DataFrame, RowsOf(Between)]
    features: Annotated[pd.DataFrame, RowsOf(FeaturePart)]
    thresholds: Annotated[pd.DataFrame, RowsOf(ThresholdLine)]
    review: Annotated[pd.DataFrame, RowsOf(Review)]
    unmatched: Annotated[pd.DataFrame, RowsOf(Unmatched)]
    model_decides: Triviality
    score_follows_distance: Measured
    """Rank correlation."""
    pairs: Annotated[pd.DataFrame, RowsOf(Pair)]
    certified: CertifiedPairs | None
    measured: ComparedPairs = Field(exclude=True)
    asked: Audited = Field(exclude=True)
    top: int = Field(exclude=True)
    """People to review on the screen."""

    @classmethod
    def of(
        cls, measured: ComparedPairs, inner: ComparedPairs | None, asked: Audited, *, ties: Ties = "first", top: int = MIN_REVIEWED,
        seed: int = 0, **more: Any,
    ) -> CecResult:
        """Return the result of an audit.

        inner: the same people beside the nearest of their own group, if that was measured.   seed: of random ties.
        more: the fields that all results have, and `certified`.
        """
        group_of = measured.people.groups[measured.matches.individual]
        names = [(k, name) for k, name in enumerate(measured.people.names) if (group_of == k).any()]
        groups = [_findings(measured, inner, EVERYBODY, np.ones(len(group_of), dtype=bool))]
        groups += [_findings(measured, inner, name, group_of == k) for k, name in names]
        between = by_group(measured)
        if asked.schema.outcome.of == "value":  # a value is not shown as a probability
            nan = np.full(len(measured.probability), np.nan)
            measured = replace(measured, probability=nan, probability_tilde=nan)
        review, thresholds = _review(measured, asked, max(top, MIN_REVIEWED)), sensitivity(measured)
        decides = triviality(measured, asked.schema.good, valued=asked.schema.outcome.of == "value")
        follows = _rank_correlation(measured.score, measured.matches.of(measured.matches.distance, measured.pair))
        pairs = _pairs(measured, inner, asked)  # last: the steps above need as much memory for a moment
        return cls(
            query=CecQuery(
                protected=asked.protected, merit=asked.merit, audit=asked.words, tau=measured.matches.tau, ties=ties,
                reference=str(asked.apart) if asked.apart else None, threshold=measured.threshold, attributions=measured.method,
            ),
            groups=tuple(groups), between_groups=between, features=feature_parts(measured, asked.schema),
            thresholds=thresholds, review=review, unmatched=_unmatched(pairs, measured), model_decides=decides, pairs=pairs,
            score_follows_distance=follows, measured=measured, asked=asked, top=top, seed=seed, **more,
        )

    @property
    def everybody(self) -> GroupFindings:
        return self.groups[0]

    @property
    def described(self) -> Schema:
        return self.asked.schema

    @property
    def controlled(self) -> bool:
        """True if scores within groups were measured too."""
        return "score within" in self.pairs.columns

    @computed_field  # type: ignore[prop-decorator]
    @property
    def cec(self) -> Interval | None:
        return self.everybody.cec

    @computed_field  # type: ignore[prop-decorator]
    @property
    def pfr(self) -> Interval | None:
        return self.everybody.pfr

    @computed_field  # type: ignore[prop-decorator]
    @property
    def control(self) -> Control:
        return Control(within=self.everybody.within, across_more_by=self.everybody.beyond)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def regimes(self) -> dict[Regime, Share]:
        """Shares of the matched pairs; empty if nobody is matched."""
        return self.everybody.regimes

    @computed_field  # type: ignore[prop-decorator]
    @property
    def coverage(self) -> Share:
        return self.everybody.coverage

    @computed_field  # type: ignore[prop-decorator]
    @property
    def trust(self) -> MeasuredTrust:
        pairs = self.certified
        return MeasuredTrust(
            proved=[f"regime A of {pairs.certified:,} pairs within {units(pairs.delta)}"] if pairs and pairs.certified else [],
            measured=["scores, decisions and regimes, on the rows of the table", "intervals, over people"],
        )

    def group_table(self) -> pd.DataFrame:
        """Return the groups in lines of numbers."""
        return pd.DataFrame([group.flat() for group in self.groups])

    def attributions(self) -> pd.DataFrame:
        """Return every matched pair's normalised attributions by feature, the person's own first; the regimes compare these."""
        return pd.concat(self.attribution_parts(), ignore_index=True)

    def attribution_parts(self) -> Iterator[pd.DataFrame]:
        """Yield the table of `attributions` in parts: for a million pairs it is the largest of all tables."""
        names = [feature.name for feature in self.described.features]
        columns = [*names, *(f"its {name}" for name in names)]
        for part in blocks(len(self.measured.pair)):
            key = self.pairs.loc[self.measured.pair[part], ["row", "counterpart", "score"]].reset_index(drop=True)
            key.columns = pd.Index(["pair's row", "pair's counterpart", "pair's score"])
            yield key.join(pd.DataFrame(np.hstack(reasons(self.measured, part)), columns=pd.Index(columns)))


def _ends(name: str, interval: Interval | None) -> dict[str, float | None]:
    """Return an interval in three columns."""
    mean, low, high = (None, None, None) if interval is None else (interval.mean, interval.low, interval.high)
    return {name: mean, f"{name}_low": low, f"{name}_high": high}


def _pairs(audit: ComparedPairs, inner: ComparedPairs | None, asked: Audited) -> pd.DataFrame:
    """One line for each audited person and other group, labels and decisions in words, with what was measured of the matched.

    Words are stored as categories: for a million pairs they would otherwise take most of the table's memory.
    """
    matches, class_names, names = audit.matches, asked.schema.class_names, audit.people.names
    person, groups, labels, count = matches.individual, audit.people.groups, audit.people.labels, len(matches.row)
    columns: dict[str, Any] = {
        "row": _row_names(person, asked.rows),
        "group": _words(made(count, np.int16, lambda part: groups[person[part]]), names), "other": _words(matches.other, names),
        "label": _words(made(count, np.int16, lambda part: labels[person[part]]), class_names),
        "counterpart": _row_names(matches.row, asked.reference_rows), "distance": matches.distance, "ties": matches.ties,
    }
    if inner is not None:
        within = _scatter(inner.score, inner.individual, len(audit.people))
        columns["score within"] = made(count, float, lambda part: within[person[part]])
    regime = made(len(audit.pair), np.int8, lambda part: places(audit, part))
    measured: dict[str, Any] = {
        "score": audit.score, "regime": regime, "decision": audit.decision, "its decision": audit.decision_tilde,
        "probability": audit.probability, "its probability": audit.probability_tilde,
    }
    words = {"regime": tuple(REGIMES), "decision": class_names, "its decision": class_names}
    for name, values in measured.items():
        spread = _scatter(values, audit.pair, count)
        columns[name] = _words(spread, words[name]) if name in words else spread
    return pd.DataFrame(columns, copy=False)


def _scatter(values: npt.NDArray[Any], place: Integers, count: int) -> Any:
    """Return (count,) with the values (M,) at their places, ascending; elsewhere NaN, or -1 for whole numbers."""
    if len(place) == count:
        return values
    result = made(count, values.dtype, lambda part: np.full(part.stop - part.start, -1 if values.dtype.kind == "i" else np.nan))
    result[place] = values
    return result


def _unmatched(pairs: pd.DataFrame, audit: ComparedPairs) -> pd.DataFrame:
    """Return the pairs without a counterpart, the farthest first, with the reason."""
    table = pairs.loc[audit.matches.row < 0, ["row", "group", "other", "label", "distance"]]
    table["reason"] = [f"the nearest is {d:.4g} away, tau = {audit.matches.tau:g}" for d in table["distance"]]
    return table.sort_values("distance", ascending=False, kind="stable").reset_index(drop=True)


def _findings(audit: ComparedPairs, inner: ComparedPairs | None, name: str, selected: Booleans) -> GroupFindings:
    """Return the findings of one group.   selected: (P,) True for the pairs of its people."""
    matches = audit.matches
    pairs = replace_pairs(audit, np.flatnonzero(selected[audit.pair]))
    distance, ties = matches.distance[selected], matches.ties[pairs.pair]
    measured = len(pairs.pair) > 0
    within, beyond = _group_excess(pairs, inner)
    return GroupFindings(
        name=name, people=len(np.unique(matches.individual[selected])), pairs=int(selected.sum()), matched=len(pairs.pair),
        distance=(float(np.median(distance)), float(np.quantile(distance, 0.9)), float(distance.max())),
        twins=float((matches.distance[pairs.pair] == 0).mean()) if measured else None,
        ties=(float(np.median(ties)), int(ties.max())) if measured else (float("nan"), 0),
        cec=interval(pairs, pairs.score) if measured else None,
        pfr=interval(pairs, (~pairs.same_decision).astype(float)) if measured else None,
        regimes=dict(zip(REGIMES, regime_shares(pairs, np.array([pairs.threshold]))[0].tolist(), strict=True)) if measured else {},
        within=within, beyond=beyond,
    )


def _group_excess(pairs: ComparedPairs, inner: ComparedPairs | None) -> tuple[float, Interval | None]:
    """Return the mean score of these people within their group, and the excess of their scores across groups."""
    kept = np.zeros(0, dtype=np.int64) if inner is None else np.flatnonzero(np.isin(inner.individual, pairs.individual))
    if inner is None or not len(kept):
        return float("nan"), None
    control = replace_pairs(inner, kept)
    return float(control.score.mean()), excess(pairs, control)


def _review(audit: ComparedPairs, asked: Audited, top: int) -> pd.DataFrame:
    """Return `to_review` with the tables' row names, decisions in words, and the attributions of the two features that differ
    most."""
    schema, table = asked.schema, to_review(audit, asked.schema, top)
    order = review_order(audit, top)
    person, peer = reasons(audit, order)
    table["reasons"] = [
        "; ".join(f"{schema.features[v].name} {person[n, v]:+.2f} / {peer[n, v]:+.2f}" for v in most)
        for n, most in enumerate(audit.most[order])
    ]
    table["row"] = asked.rows[table["row"]]
    table["counterpart"] = asked.reference_rows[table["counterpart"]]
    for column in ("decision", "its decision"):
        table[column] = [schema.class_names[int(code)] for code in table[column]]
    return table


def _rank_correlation(score: Array, distance: Array) -> float:
    if len(score) < MIN_PAIRS or np.ptp(score) == 0 or np.ptp(distance) == 0:
        return float("nan")
    return float(spearmanr(score, distance).statistic)


def _words(places: npt.NDArray[np.integer], names: tuple[str, ...]) -> pd.Categorical:
    """Return (P,) the names at these places; names may be equal, as a schema may give both outcomes the same name."""
    distinct = list(dict.fromkeys(names))
    code = np.array([*(distinct.index(name) for name in names), -1])  # the last is the code of a missing name
    kind = np.int8 if len(distinct) < 128 else np.int32
    return pd.Categorical.from_codes(made(len(places), kind, lambda part: code[places[part]]), distinct)


def _row_names(row: Integers, names: pd.Index) -> Any:
    """Return (P,) names of rows, None for -1; as objects if any is None, so that 308 does not become 308.0."""
    if (row < 0).any():
        return pd.Series(names.take(np.maximum(row, 0)), dtype=object).where(row >= 0, None)
    if names.dtype.kind not in "iuf":
        return names.take(row)
    return made(len(row), names.dtype, lambda part: names.take(row[part]).to_numpy())


ANSWERS = {"cec": CecResult}
