"""Decisions of the model for each sensitive group of the whole table: rates with intervals, four-fifths rule, accuracy."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten

import numpy as np
import pandas as pd

from encoders.arrays import Array, Booleans, Integers
from encoders.probability.shares import probabilities
from verifair.auditing.subject import AuditSubject
from verifair.checker.words import counted
from verifair.datasets.groups import MAX_GROUPS, group_of
from verifair.datasets.stream import Stream
from verifair.engine.questions import decisions as decided
from verifair.errors import VerifairError
from verifair.figures import COLORS, figure
from verifair.schema.network import upwards
from verifair.schema.rows import others_alike
from verifair.schema.schema import Schema
from verifair.systems.groups import SMALL
from verifair.systems.proportions import critical, level_of_pairs, ratio, wilson_of
from verifair.systems.results.findings import DataTable, Standing, Statement, Tone
from verifair.systems.results.result import Count, Interval, Probability, Shape
from verifair.systems.results.words import name_words, percent

FOUR_FIFTHS = 0.8
"""A group whose rate is below this part of the highest group's rate fails the four-fifths rule (EEOC, 29 CFR 1607.4 D)."""


class GroupDecisions(Shape):
    """One group of one sensitive feature."""

    feature: str
    group: str
    people: Count
    favourable: Count
    """Number of them with the favourable decision."""
    rate: Interval
    """Their share, with Wilson's 95 % interval."""
    ranked: bool
    """Whether the group has enough people to be compared with others."""
    ratio: float | None
    """Rate over that of the reference group, the ranked one with the highest rate; null: not ranked, or no reference."""
    ratio_low: float | None
    ratio_high: float | None
    """95 % interval of the ratio (MOVER-R), for all pairs of ranked groups together (Bonferroni), for the data pick the reference;
    null for the reference itself."""
    accuracy: Probability | None
    """Share of decisions that equal the label; null: the table has no label."""


class ScoreHistogram(Shape):
    """The histogram of a group's scores: `bins` that are not empty, and the number of people in each."""

    feature: str
    group: str
    bins: tuple[int, ...]
    people: tuple[int, ...]


class ScoreScale(Shape):
    """The edges of the scores' bins. Bin k holds scores above k of them; the edge at `own` is the model's threshold.

    Each person of the table is on the side of that edge that agrees with the decision.
    """

    quantity: str
    edges: tuple[float, ...]
    """Rising."""
    own: Count
    above: bool
    """Scores above an edge are decided favourably; else those below it."""
    histograms: tuple[ScoreHistogram, ...]


class Decisions(Shape):
    """The decisions on all rows of the table, by group. It is measured: true of these rows."""

    people: Count
    favourable: Count
    groups: tuple[GroupDecisions, ...]
    """By feature, the largest groups first."""
    cuts: dict[str, float]
    """Features of many values -> the median at which they are cut in two groups."""
    statements: tuple[Statement, ...]
    labels: str = ""
    """Why the table's labels give no accuracy, or which of them count as the same; empty: nothing to say."""
    scores: ScoreScale | None = None
    """The scores' bins, for other thresholds; null: the decision has none (three classes and more)."""

    def of(self, feature: str) -> tuple[GroupDecisions, ...]:
        return tuple(group for group in self.groups if group.feature == feature)

    @property
    def table(self) -> DataTable:
        """Return the groups for the page: counts, rates with intervals, ratios, accuracy."""
        rows = [
            {
                "by": group.feature, "group": group.group, "people": group.people, "rate": percent(group.rate.mean),
                "95 % interval": f"{percent(group.rate.low)} to {percent(group.rate.high)}",
                "ratio to the highest": _ratio(group), "four-fifths": _passes(group),
                "accuracy": None if group.accuracy is None else percent(group.accuracy),
            }
            for group in self.groups
        ]
        note = (
            f"All {self.people:,} rows. rate: share with the favourable decision. Groups of fewer than {SMALL} people are shown "
            "and not compared. four-fifths: whether the rate is at least 80 % of the highest one; uncertain: the 95 % "
            "interval of the ratio, for all pairs of groups together, includes 0.8."
        )
        note += "".join(f" {name} is cut at its median, {cut:g}." for name, cut in self.cuts.items())
        note += f" {self.labels}" if self.labels else ""
        return DataTable(title="Decisions by group", rows=pd.DataFrame(rows), note=note)


def decisions(subject: AuditSubject) -> Decisions | None:
    """Return the decisions on the subject's table by each sensitive feature, counted chunk by chunk; None without a table.

    Raises DataError, QueryError or SchemaError for a table that does not fit.
    """
    schema, data = subject.schema, subject.data
    if data is None or not data.count:
        return None
    cuts = _medians(schema, data, [name for name in subject.protected if schema[name].numeric])
    scale, labels, people, favourable = _scale(subject, data), _Labels.of(schema, data), 0, 0
    counts: dict[str, dict[str, GroupCounts]] = {name: {} for name in subject.protected}
    for frame in data.chunks():
        x = schema.encode(schema.raw(frame))
        favoured = schema.outcome.favourable(decided(subject.network, x))
        people, favourable, right = people + len(x), favourable + int(favoured.sum()), labels.right(frame, favoured)
        bins = np.zeros(len(x), np.int64) if scale is None else _bins_of(subject, scale, _scores(subject, x), favoured)
        for name, groups in counts.items():
            count(groups, group_of(schema, frame, name, [cuts[name]] if name in cuts else None), favoured, right, bins)
    lines = [line for name, groups in counts.items() for line in rates(name, groups, known=labels.known)]
    result = described(lines, cuts, people=people, favoured=favourable, favourable=subject.favourable)
    histograms = tuple(
        ScoreHistogram(feature=name, group=word, bins=tuple(filled.tolist()), people=tuple(groups[word].bins[filled].tolist()))
        for name, groups in counts.items() for word in sorted(groups) for filled in [np.flatnonzero(groups[word].bins)]
    )
    scores = scale and scale.model_copy(update={"histograms": histograms})
    return result.model_copy(update={"scores": scores, "labels": labels.note})


@dataclass(kw_only=True, eq=False)
class GroupCounts:
    """Counts of a group: people, favourable decisions, right decisions, and people by bin of the score."""

    people: int = 0
    favourable: int = 0
    right: int = 0
    bins: Integers = field(default_factory=lambda: np.zeros(0, np.int64))


def count(groups: dict[str, GroupCounts], group: pd.Series, favoured: Booleans, right: Booleans, place: Integers) -> None:
    """Add rows to the counts of their groups.   group, favoured, right, place: (B,) each row's group, whether it is decided
    favourably, whether rightly, and the bin of its score."""
    names = group.to_numpy(dtype=object).astype(str)
    for name in np.unique(names):
        members, group_counts = names == name, groups.setdefault(str(name), GroupCounts())
        group_counts.people += int(members.sum())
        group_counts.favourable += int(favoured[members].sum())
        group_counts.right += int(right[members].sum())
        histogram = np.bincount(place[members], minlength=len(group_counts.bins))
        histogram[: len(group_counts.bins)] += group_counts.bins
        group_counts.bins = histogram


@dataclass(kw_only=True, eq=False)
class _Labels:
    """The labels of the table.   known: False once a chunk lacks usable labels.   note: as `Decisions.labels`."""

    schema: Schema
    known: bool = False
    names: Collection[str] | None = None
    note: str = ""

    @classmethod
    def of(cls, schema: Schema, data: Stream) -> _Labels:
        if schema.label is None or schema.label not in data.columns:
            return cls(schema=schema)
        try:
            names = schema.label_names(data.chunks())
        except VerifairError as error:
            return cls(schema=schema, note=f"No accuracy: {error}.")
        words = others_alike(f"Label {schema.label!r}", schema.positive_label, names or ())
        return cls(schema=schema, known=True, names=names, note=words and f"{words}.")

    def right(self, frame: pd.DataFrame, favoured: Booleans) -> Booleans:
        """Return (B,) True where a decision of a chunk equals the label."""
        if self.known:
            try:
                correct: Booleans = self.schema.outcome.favourable(self.schema.labels(frame, names=self.names)) == favoured
                return correct
            except VerifairError as error:
                self.known, self.note = False, f"No accuracy: {error}."
        return np.zeros(len(frame), dtype=bool)


BINS = 1_000
"""Approximate number of bins of scores."""


def _scores(subject: AuditSubject, x: Array) -> Array:
    """Return (B,) the scores that a threshold is compared with: the model's value, or the probability of decision 1."""
    model = subject.network.whole
    logits = model.forward(x)
    margins = np.asarray(logits[:, 0] if model.outputs == 1 else logits[:, 1] - logits[:, 0])
    return margins if subject.schema.outcome.of == "value" else probabilities(model, margins)


def _scale(subject: AuditSubject, data: Stream) -> ScoreScale | None:
    """Return the edges, among them the model's own threshold; None if no threshold decides."""
    schema, model, rule = subject.schema, subject.network.whole, subject.schema.outcome
    if model.outputs > 2:
        return None
    if rule.of == "value":
        threshold, low, high = rule.at, rule.at, rule.at
        for frame in data.chunks():
            scores = _scores(subject, schema.encode(schema.raw(frame)))
            low, high = min(float(scores.min()), low), max(float(scores.max()), high)
    else:
        threshold, low, high = float(probabilities(model, np.array(rule.at))), 0.0, 1.0
    step = (high - low) / BINS
    below, above = (math.floor(width / step) if step else 0 for width in (threshold - low, high - threshold))
    edges = np.unique(threshold + step * np.arange(-below, above + 1))
    return ScoreScale(
        quantity=schema.quantity, edges=tuple(edges.tolist()), own=int(np.searchsorted(edges, threshold)), above=upwards(rule),
        histograms=(),
    )


def _bins_of(subject: AuditSubject, scale: ScoreScale, scores: Array, favoured: Booleans) -> Integers:
    """Return (B,) the number of edges below each row's score.

    At the model's own threshold the exact decisions `favoured` (B,) count, not the scores in float64.
    """
    rule = subject.schema.outcome
    edge_above = rule.operator in (">=", "<") and rule.of != "class"  # a score at an edge lies above it
    bins = np.searchsorted(np.array(scale.edges), scores, side="right" if edge_above else "left")
    bins = np.where(favoured == scale.above, np.maximum(bins, scale.own + 1), np.minimum(bins, scale.own))
    return np.asarray(bins, dtype=np.int64)


def described(
    groups: Sequence[GroupDecisions], cuts: Mapping[str, float], *, people: int, favoured: int, favourable: str
) -> Decisions:
    """Return the groups with one sentence for each feature.   people, favoured: numbers in the table.   favourable: the outcome's
    name."""
    groups_of: dict[str, list[GroupDecisions]] = {}
    for group in groups:
        groups_of.setdefault(group.feature, []).append(group)
    return Decisions(
        people=people, favourable=favoured, groups=tuple(groups), cuts=dict(cuts),
        statements=tuple(_statement(name, members, favourable) for name, members in groups_of.items()),
    )


def _medians(schema: Schema, data: Stream, names: Sequence[str]) -> dict[str, float]:
    """Return the medians at which numbers with many values are cut into groups."""
    if not names:
        return {}
    index = [schema.index(name) for name in names]
    values = np.concatenate([schema.raw(frame)[:, index] for frame in data.chunks()])
    return {
        name: float(np.median(column)) for name, column in zip(names, values.T, strict=True) if len(np.unique(column)) > MAX_GROUPS
    }


def rates(feature: str, groups: Mapping[str, GroupCounts], *, known: bool) -> list[GroupDecisions]:
    """Return the groups of one feature, largest first.   known: whether there are labels."""
    names = sorted(groups)
    people, good, right = (np.array([getattr(groups[name], key) for name in names]) for key in ("people", "favourable", "right"))
    ranked = [n for n in range(len(names)) if people[n] >= SMALL]
    best = max(ranked, key=lambda n: (good[n] / people[n], people[n])) if len(ranked) > 1 else None
    z, result = critical(level_of_pairs(len(ranked)), 2), []
    for n in sorted(range(len(names)), key=lambda n: (-people[n], names[n])):
        rate = float(good[n] / people[n])
        lower, upper = wilson_of(rate, int(people[n]))
        to_best, low, high = (None, None, None) if best is None or n not in ranked else _ratio_to(n, best, good, people, z)
        result.append(GroupDecisions(
            feature=feature, group=names[n], people=int(people[n]), favourable=int(good[n]),
            rate=Interval(mean=rate, low=lower, high=upper), ranked=n in ranked, ratio=to_best, ratio_low=low, ratio_high=high,
            accuracy=float(right[n] / people[n]) if known else None,
        ))  # fmt: skip
    return result


def quantile(groups: Sequence[GroupDecisions]) -> float:
    """Return the z of the intervals of a feature's ratios."""
    return critical(level_of_pairs(sum(group.ranked for group in groups)), 2)


def _ratio_to(n: int, best: int, good: Integers, people: Integers, z: float) -> tuple[float | None, float | None, float | None]:
    """Return the ratio of a group's rate to the reference's, with its interval at z."""
    if not good[best]:
        return None, None, None
    if n == best:
        return 1.0, None, None
    a, all_a, b, all_b = (int(number) for number in (good[n], people[n], good[best], people[best]))
    low, high = ratio(np.array(a / all_a), all_a, np.array(b / all_b), all_b, z)
    return a * all_b / (all_a * b), float(low), float(high)  # whole numbers, rounded once, so that exactly 4/5 is 0.8


def reference(groups: Sequence[GroupDecisions]) -> GroupDecisions:
    """Return the group that the others of its feature are compared with. Raises StopIteration if none are compared."""
    return next(group for group in groups if group.ratio == 1 and group.ratio_low is None)


def lowest(groups: Sequence[GroupDecisions]) -> GroupDecisions:
    """Return the group with the lowest rate among those compared with the reference; among equal ones the largest."""
    best = reference(groups)
    others = [group for group in groups if group.ratio is not None and group is not best]
    return min(others, key=lambda group: (group.rate.mean, -group.people))


def not_compared(groups: Sequence[GroupDecisions], favourable: str) -> str | None:
    """Return the reason that the rates of a feature's groups are not compared; None if they are."""
    if any(group.ratio is not None for group in groups):
        return None
    comparable = sum(group.ranked for group in groups)
    if comparable < 2:
        return f"{comparable} of {counted(len(groups), 'group', 'groups')} has {SMALL} people or more"
    return f"nobody in a group of {SMALL} people or more gets {favourable}"


def fails(group: GroupDecisions) -> bool:
    """Return True if a group fails the four-fifths rule, which applies to the rates as they are."""
    return group.ratio is not None and group.ratio < FOUR_FIFTHS


def clear(group: GroupDecisions) -> bool:
    """Return True if the interval of the ratio lies on one side of four fifths; a group without an interval is clear."""
    return group.ratio_low is None or group.ratio_high is None or group.ratio_high < FOUR_FIFTHS or group.ratio_low >= FOUR_FIFTHS


def _passes(group: GroupDecisions) -> str:
    if group.ratio is None:
        return "not compared"
    return ("fails" if fails(group) else "passes") + ("" if clear(group) else ", uncertain")


def _ratio(group: GroupDecisions) -> str:
    if group.ratio is None:
        return "-"
    interval = "" if group.ratio_low is None or group.ratio_high is None else f" ({group.ratio_low:.2f} to {group.ratio_high:.2f})"
    return ratio_words(group.ratio) + interval


def ratio_words(ratio: float, threshold: float = FOUR_FIFTHS, digits: int = 2) -> str:
    """Return a ratio with enough decimals to show on which side of the threshold it lies, and that it is not 0."""
    for decimals in range(digits, 17):
        text = f"{ratio:.{decimals}f}"
        if (float(text) < threshold) == (ratio < threshold) and (float(text) == 0) == (ratio == 0):
            return text
    return repr(ratio)


def _statement(feature: str, groups: Sequence[GroupDecisions], favourable: str) -> Statement:
    """Return the sentence of one feature: its lowest group against its highest, or why groups are not compared."""
    reason = not_compared(groups, favourable)
    if reason is not None:
        text, tone = f"{feature}: rates of groups are not compared, for {reason}.", Tone.PLAIN
    else:
        low, high = lowest(groups), reference(groups)
        comparison = " and ".join(
            f"{percent(group.rate.mean)} of {counted(group.people, 'person', 'people')} with {name_words(feature)} {group.group}"
            for group in (low, high)
        )
        end = "which fails the four-fifths rule" if fails(low) else "which passes the four-fifths rule"
        end += "" if clear(low) else f" ({'fails' if not fails(low) else 'passes'} at one end of the 95 % interval)"
        text = f'{feature}: the model gives "{favourable}" to {comparison}; ratio {_ratio(low)}, {end}.'
        tone = Tone.BAD if fails(low) and clear(low) else Tone.WATCH if fails(low) or not clear(low) else Tone.PLAIN
    small = sum(not group.ranked for group in groups)
    if small and reason is None:
        text += f" Groups of fewer than {SMALL} people ({small}) are not compared."
    return Statement(text=text, standing=Standing.MEASURED, tone=tone, headline=True)


LETTERS = 32
"""Most letters of a group's name on the picture."""
MAX_DRAWN = 24
"""Groups on the picture, the largest; the table has all."""


def plot(groups: Sequence[GroupDecisions], favourable: str, path: Path) -> None:
    """Draw a line for each group: its rate with the 95 % interval; groups too small to be compared are grey."""
    shown = sorted(groups, key=lambda group: -group.people)[:MAX_DRAWN]
    shown = [group for group in groups if group in shown]
    features = list(dict.fromkeys(group.feature for group in shown))
    with figure(path, (4.8, 0.8 + 0.4 * len(shown))) as picture:
        (axis,) = picture.axes
        for y, group in enumerate(shown):
            color = COLORS[features.index(group.feature) % 6] if group.ranked else COLORS[6]
            axis.plot([100 * group.rate.low, 100 * group.rate.high], [y, y], color=color, linewidth=3, alpha=0.5)
            axis.plot(100 * group.rate.mean, y, "o", color=color, markersize=7)
        names = [f"{shorten(f'{group.feature}: {group.group}', LETTERS)}\nn = {group.people:,}" for group in shown]
        axis.set_yticks(range(len(shown)), names)
        axis.invert_yaxis()
        axis.set_xlim(0, 100)
        axis.set_xlabel(f"{shorten(favourable, LETTERS)}, % of the group (95 % interval)")
        axis.grid(axis="x", alpha=0.3)
