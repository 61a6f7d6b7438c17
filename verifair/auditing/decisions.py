"""What the model decides for each sensitive group of the whole table: rates with intervals, the four-fifths rule, accuracy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import shorten

import numpy as np
import pandas as pd
from scipy.stats import binomtest
from scipy.stats.contingency import relative_risk

from encoders.network import Array, Booleans, Integers
from encoders.shares import probabilities
from verifair.auditing.subject import AuditSubject
from verifair.datasets.groups import MANY, group_of
from verifair.engine.questions import decisions as decided
from verifair.errors import VerifairError
from verifair.figures import COLORS, figure
from verifair.systems.findings import DataTable, Standing, Statement, Tone
from verifair.systems.groups import SMALL
from verifair.systems.result import Count, Interval, Probability, Shape
from verifair.systems.words import percent

FOUR_FIFTHS = 0.8
"""A group whose rate is below this part of the highest group's rate fails the four-fifths rule (EEOC, 29 CFR 1607.4 D)."""
ROWS = 10_000
"""Decided at once."""


class GroupDecisions(Shape):
    """One group of one sensitive feature."""

    feature: str
    group: str
    people: Count
    favourable: Count
    """How many of them the model decides favourably."""
    rate: Interval
    """Their share, with Wilson's 95 % interval."""
    ranked: bool
    """Whether the group has enough people to be compared with others."""
    ratio: float | None
    """Rate over that of the reference group, the ranked one with the highest rate; null: not ranked, or no reference."""
    ratio_low: float | None
    ratio_high: float | None
    """95 % interval of the ratio (Katz); null for the reference itself, and where a rate is 0."""
    accuracy: Probability | None
    """Share of decisions that equal the label; null: the table has no label."""


class ScoreHistogram(Shape):
    """How many people of a group have which score: `bins` that are not empty, and the people in each."""

    feature: str
    group: str
    bins: tuple[int, ...]
    people: tuple[int, ...]


class ScoreScale(Shape):
    """The edges that scores are counted between. Bin k holds scores above k of them; the decision follows the one at `own`.

    The people of the table lie on the side of that edge on which they are decided.
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
    scores: ScoreScale | None = None
    """What other thresholds would decide; null: the decision has none (three classes and more)."""

    def of(self, feature: str) -> tuple[GroupDecisions, ...]:
        return tuple(one for one in self.groups if one.feature == feature)

    @property
    def table(self) -> DataTable:
        """Return the groups for the page: counts, rates with intervals, ratios, accuracy."""
        rows = [
            {
                "by": one.feature, "group": one.group, "people": one.people, "rate": percent(one.rate.mean),
                "95 % interval": f"{percent(one.rate.low)} to {percent(one.rate.high)}",
                "ratio to the highest": _ratio(one), "four-fifths": _passes(one),
                "accuracy": None if one.accuracy is None else percent(one.accuracy),
            }
            for one in self.groups
        ]
        note = (
            f"All {self.people:,} rows. rate: share with the favourable decision. Groups of fewer than {SMALL} people are shown "
            "and not compared. four-fifths: whether the rate is at least 80 % of the highest one; by chance perhaps: the 95 % "
            "interval of the ratio holds 0.8."
        )
        note += "".join(f" {name} is cut at its median, {cut:g}." for name, cut in self.cuts.items())
        return DataTable(title="Decisions by group", rows=pd.DataFrame(rows), note=note)


def decisions(subject: AuditSubject) -> Decisions | None:
    """Return the decisions on the subject's table by each sensitive feature; None where it has no table.

    Raises DataError, QueryError or SchemaError for a table that does not fit.
    """
    schema, frame = subject.schema, subject.frame
    if frame is None or not len(frame):
        return None
    raw = schema.raw(frame)
    parts = [decided(subject.network, schema.encode(raw[start : start + ROWS])) for start in range(0, len(raw), ROWS)]
    favoured = schema.outcome.favourable(np.concatenate(parts))
    right = _right(subject, frame, favoured)
    groups: list[GroupDecisions] = []
    cuts: dict[str, float] = {}
    histograms: list[ScoreHistogram] = []
    scale, place = _placed(subject, raw, favoured)
    for name in subject.protected:
        cut = _median(subject, frame, name)
        if cut is not None:
            cuts[name] = cut
        group = group_of(schema, frame, name, None if cut is None else [cut])
        groups += rates(name, group, favoured, right)
        histograms += [] if place is None else _counted(name, group, place)
    found = described(groups, cuts, people=len(frame), favoured=int(favoured.sum()), favourable=subject.favourable)
    return found.model_copy(update={"scores": scale and scale.model_copy(update={"histograms": tuple(histograms)})})


BINS = 1_000
"""Of scores, about."""


def _placed(subject: AuditSubject, raw: Array, favoured: Booleans) -> tuple[ScoreScale | None, Integers | None]:
    """Return the edges, and how many of them each row's score (N,) lies above; None where no threshold decides.

    The model's own threshold is an edge, and there the exact decisions `favoured` (N,) count, not the scores in float64.
    """
    model, rule = subject.network.whole, subject.schema.outcome
    if model.outputs > 2:
        return None, None
    parts = [model.forward(subject.schema.encode(raw[start : start + ROWS])) for start in range(0, len(raw), ROWS)]
    logits = np.concatenate(parts)
    margins = logits[:, 0] if model.outputs == 1 else logits[:, 1] - logits[:, 0]
    if rule.of == "value":
        scores, at = margins, rule.at
        low, high = min(float(scores.min()), at), max(float(scores.max()), at)
    else:
        scores, at = probabilities(model, margins), float(probabilities(model, np.array(rule.at)))
        low, high = 0.0, 1.0
    step = (high - low) / BINS
    below, above = (math.floor(room / step) if step else 0 for room in (at - low, high - at))
    edges = np.unique(at + step * np.arange(-below, above + 1))
    own = int(np.searchsorted(edges, at))
    inside = rule.operator in (">=", "<") and rule.of != "class"  # a score at an edge lies above it
    place = np.searchsorted(edges, scores, side="right" if inside else "left")
    upwards = rule.operator in (">", ">=") if rule.of != "class" else bool(subject.schema.good)
    place = np.where(favoured == upwards, np.maximum(place, own + 1), np.minimum(place, own))
    quantity = "model's probability" if rule.of == "logit" and not rule.plain else subject.schema.quantity
    scale = ScoreScale(quantity=quantity, edges=tuple(edges.tolist()), own=own, above=upwards, histograms=())
    return scale, np.asarray(place, dtype=np.int64)


def _counted(feature: str, group: pd.Series, place: Integers) -> list[ScoreHistogram]:
    """Return how many rows of each group lie in which bin."""
    names = group.to_numpy(dtype=object).astype(str)
    found = []
    for name in np.unique(names):
        bins, people = np.unique(place[names == name], return_counts=True)
        found.append(ScoreHistogram(feature=feature, group=str(name), bins=tuple(bins.tolist()), people=tuple(people.tolist())))
    return found


def described(
    groups: Sequence[GroupDecisions], cuts: Mapping[str, float], *, people: int, favoured: int, favourable: str
) -> Decisions:
    """Return groups with a sentence a feature.   people, favoured: of the table.   favourable: a name."""
    by: dict[str, list[GroupDecisions]] = {}
    for one in groups:
        by.setdefault(one.feature, []).append(one)
    return Decisions(
        people=people, favourable=favoured, groups=tuple(groups), cuts=dict(cuts),
        statements=tuple(_statement(name, own, favourable) for name, own in by.items()),
    )


def _right(subject: AuditSubject, frame: pd.DataFrame, favoured: Booleans) -> Booleans | None:
    """Return (N,) whether each decision equals the label; None where the table has none that fits."""
    if subject.schema.label is None or subject.schema.label not in frame.columns:
        return None
    try:
        labels = subject.schema.labels(frame)
    except VerifairError:  # the analyses that need labels say what is wrong with them
        return None
    found: Booleans = subject.schema.outcome.favourable(labels) == favoured
    return found


def _median(subject: AuditSubject, frame: pd.DataFrame, name: str) -> float | None:
    """Return where a number of many values is cut; None for other features."""
    schema = subject.schema
    if not schema[name].numeric:
        return None
    values = schema.raw(frame)[:, schema.index(name)]
    return float(np.median(values)) if len(np.unique(values)) > MANY else None


def rates(feature: str, group: pd.Series, favoured: Booleans, right: Booleans | None) -> list[GroupDecisions]:
    """Return the groups of one feature, largest first.

    group, favoured, right: (N,) of each row its group, whether it is decided favourably, and rightly (None: not known).
    """
    names, of = np.unique(group.to_numpy(dtype=object).astype(str), return_inverse=True)
    people = np.bincount(of)
    good = np.bincount(of, weights=favoured).astype(int)
    well = None if right is None else np.bincount(of, weights=right) / people
    ranked = [n for n in range(len(names)) if people[n] >= SMALL]
    best = max(ranked, key=lambda n: (good[n] / people[n], people[n])) if len(ranked) > 1 else None
    found = []
    for n in sorted(range(len(names)), key=lambda n: (-people[n], names[n])):
        chance = binomtest(int(good[n]), int(people[n])).proportion_ci(method="wilson")
        ratio, low, high = (None, None, None) if best is None or n not in ranked else _against(n, best, good, people)
        found.append(GroupDecisions(
            feature=feature, group=str(names[n]), people=int(people[n]), favourable=int(good[n]),
            rate=Interval(mean=float(good[n] / people[n]), low=float(chance.low), high=float(chance.high)),
            ranked=n in ranked, ratio=ratio, ratio_low=low, ratio_high=high,
            accuracy=None if well is None else float(well[n]),
        ))  # fmt: skip
    return found


def _against(n: int, best: int, good: Integers, people: Integers) -> tuple[float | None, float | None, float | None]:
    """Return the ratio of a group's rate to the reference's, with its interval."""
    if not good[best]:
        return None, None, None
    if n == best:
        return 1.0, None, None
    found = relative_risk(int(good[n]), int(people[n]), int(good[best]), int(people[best]))
    chance = found.confidence_interval(0.95) if good[n] else None
    ends = (None, None) if chance is None or not math.isfinite(chance.high) else (float(chance.low), float(chance.high))
    return float(found.relative_risk), *ends


def fails(one: GroupDecisions) -> bool:
    """Return whether a group fails the four-fifths rule, which asks of the rates as they are."""
    return one.ratio is not None and one.ratio < FOUR_FIFTHS


def clear(one: GroupDecisions) -> bool:
    """Return whether the interval of the ratio lies on one side of four fifths; a group without a ratio is clear."""
    return one.ratio_low is None or one.ratio_high is None or one.ratio_high < FOUR_FIFTHS or one.ratio_low >= FOUR_FIFTHS


def _passes(one: GroupDecisions) -> str:
    if one.ratio is None:
        return "not compared"
    return ("fails" if fails(one) else "passes") + ("" if clear(one) else ", by chance perhaps")


def _ratio(one: GroupDecisions) -> str:
    if one.ratio is None:
        return "-"
    return f"{one.ratio:.2f}" + ("" if one.ratio_low is None else f" ({one.ratio_low:.2f} to {one.ratio_high:.2f})")


def _statement(feature: str, groups: Sequence[GroupDecisions], favourable: str) -> Statement:
    """Return the sentence of one feature: its lowest group against its highest, or why groups are not compared."""
    ranked = [one for one in groups if one.ratio is not None]
    if not ranked:
        enough = sum(one.ranked for one in groups)
        why = f"{enough} of {len(groups)} groups has {SMALL} people or more" if enough < 2 else f"nobody gets {favourable}"
        text, tone = f"{feature}: rates of groups are not compared, for {why}.", Tone.PLAIN
    else:
        low, high = min(ranked, key=lambda one: (one.rate.mean, -one.people)), max(ranked, key=lambda one: one.rate.mean)
        said = " and ".join(f"{one.group} {percent(one.rate.mean)} (n = {one.people:,})" for one in (low, high))
        end = "which fails the four-fifths rule" if fails(low) else "which passes the four-fifths rule"
        end += "" if clear(low) else f" ({'fails' if not fails(low) else 'passes'} at one end of the 95 % interval)"
        text = f"{feature}: the model gives {favourable} to {said}; ratio {_ratio(low)}, {end}."
        tone = Tone.BAD if fails(low) and clear(low) else Tone.WATCH if fails(low) or not clear(low) else Tone.PLAIN
    small = sum(not one.ranked for one in groups)
    if small and ranked:
        text += f" Groups of fewer than {SMALL} people ({small}) are not compared."
    return Statement(text=text, standing=Standing.MEASURED, tone=tone, headline=True)


LETTERS = 32
"""Of a group's name on the picture."""
SHOWN = 24
"""Groups on the picture, the largest; the table has all."""


def plot(groups: Sequence[GroupDecisions], favourable: str, path: Path) -> None:
    """A line a group: its rate with the 95 % interval; groups too small to be compared are grey."""
    shown = sorted(groups, key=lambda one: -one.people)[:SHOWN]
    shown = [one for one in groups if one in shown]
    features = list(dict.fromkeys(one.feature for one in shown))
    with figure(path, (4.8, 0.8 + 0.4 * len(shown))) as drawn:
        (axis,) = drawn.axes
        for place, one in enumerate(shown):
            color = COLORS[features.index(one.feature) % 6] if one.ranked else COLORS[6]
            axis.plot([100 * one.rate.low, 100 * one.rate.high], [place, place], color=color, linewidth=3, alpha=0.5)
            axis.plot(100 * one.rate.mean, place, "o", color=color, markersize=7)
        names = [f"{shorten(f'{one.feature}: {one.group}', LETTERS)}\nn = {one.people:,}" for one in shown]
        axis.set_yticks(range(len(shown)), names)
        axis.invert_yaxis()
        axis.set_xlim(0, 100)
        axis.set_xlabel(f"{shorten(favourable, LETTERS)}, % of the group (95 % interval)")
        axis.grid(axis="x", alpha=0.3)
