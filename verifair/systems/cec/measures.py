"""From an audit to what is reported: population figures with intervals, shares by threshold, features, people to review.

All of these are measures of a sample. Intervals are bootstrap percentiles over people: a person with counterparts in several other
groups is drawn with all of them.   Reference: CEC, "Evaluation Metrics", figure 4 and "Future Work" (parts by feature).
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from pydantic import computed_field
from scipy.stats import bootstrap
from sklearn.metrics import roc_auc_score

from encoders.network import Array, Integers
from verifair.schema.schema import Schema
from verifair.systems.cec.audit import ComparedPairs
from verifair.systems.cec.explanations import REGIMES, regimes
from verifair.systems.results.result import Interval, Measured, Shape, Share

LEVEL = 0.95
"""Confidence of all intervals."""
FLAT = 0.01
"""A variance of the probability below this (a standard deviation of 0.1) is that of a model which hardly tells people apart."""
ONE_SIDED = 0.95
"""Decisions of which more than this share are the same are hardly decisions."""
GUESSING = 0.6
"""An AUC below this is near the 0.5 of guessing."""


def interval(audit: ComparedPairs, values: Array, *, seed: int = 0) -> Interval:
    """Mean of values (M,) over the matched pairs, and the percentile bootstrap of it over people (a ratio of two sums)."""
    place = np.unique(audit.individual, return_inverse=True)[1]
    total, count = np.bincount(place, weights=values), np.bincount(place).astype(float)
    mean = float(values.mean())
    if len(total) < 2 or np.ptp(values) == 0:
        return Interval(mean=mean, low=mean, high=mean)
    found = bootstrap(
        (total, count), lambda t, c, axis: t.sum(axis=axis) / c.sum(axis=axis), paired=True, vectorized=True, method="percentile",
        confidence_level=LEVEL, n_resamples=1000, rng=seed, batch=max(1, 2**22 // len(total)),
    )
    return Interval(mean=mean, low=float(found.confidence_interval.low), high=float(found.confidence_interval.high))


def excess(audit: ComparedPairs, control: ComparedPairs, *, seed: int = 0) -> Interval:
    """Mean over people of (mean score over the other groups - score within the own group): what the group adds to the score.

    Over people that have both; NaN where there are none. Resampled 10,000 times, for more than 5,000 people less often, 1,000 times
    at least: whether the interval holds 0 must not hang on the seed.   Reference: ours; see `verifair.systems.cec.audit.control`.
    """
    across = pd.Series(audit.score).groupby(audit.individual).mean()
    both = (across - pd.Series(control.score, index=control.individual)).dropna().to_numpy()
    if len(both) < 2 or np.ptp(both) == 0:
        mean = float(both.mean()) if len(both) else float("nan")
        return Interval(mean=mean, low=mean, high=mean)
    count = min(10_000, max(1000, 50_000_000 // len(both)))
    found = bootstrap(
        (both,), np.mean, confidence_level=LEVEL, n_resamples=count, method="percentile", rng=seed,
        batch=max(1, 2**22 // len(both)),
    )
    return Interval(mean=float(both.mean()), low=float(found.confidence_interval.low), high=float(found.confidence_interval.high))


def population(audit: ComparedPairs) -> dict[str, Interval]:
    """CEC, the prediction flip rate PFR, and the share of every regime."""
    regime = audit.regime
    values = {"CEC": audit.score, "PFR": (~audit.same_decision).astype(float)}
    values |= {name: (regime == name).astype(float) for name in REGIMES}
    return {name: interval(audit, value) for name, value in values.items()}


def by_group(audit: ComparedPairs) -> pd.DataFrame:
    """One line for each ordered pair of groups: group, other, people, matched, CEC, PFR, A to D, median distance and ties."""
    matches, names = audit.matches, np.array(audit.people.names)
    pairs = pd.DataFrame({"group": names[audit.people.groups[matches.individual]], "other": names[matches.other]})
    pairs["matched"], pairs["distance"], pairs["ties"] = matches.row >= 0, matches.distance, matches.ties
    measured = pairs.loc[audit.pair, ["group", "other"]].assign(CEC=audit.score, PFR=(~audit.same_decision).astype(float))
    for name in REGIMES:
        measured[name] = (audit.regime == name).astype(float)
    key = ["group", "other"]
    counts = pairs.groupby(key).agg(
        people=("matched", "size"), matched=("matched", "sum"), distance=("distance", "median"), ties=("ties", "median")
    )
    return counts.join(measured.groupby(key).mean()).reset_index()


def sensitivity(audit: ComparedPairs, thresholds: Array | None = None) -> pd.DataFrame:
    """Shares of the regimes at every threshold (T,), default 0, 0.01, ..., 1: columns threshold, A, B, C, D."""
    values = np.linspace(0, 1, 101) if thresholds is None else thresholds
    shares = [[float((regimes(audit.score, audit.same_decision, t) == name).mean()) for name in REGIMES] for t in values]
    return pd.DataFrame(shares, columns=list(REGIMES)).assign(threshold=values)[["threshold", *REGIMES]]


def feature_parts(audit: ComparedPairs, schema: Schema) -> pd.DataFrame:
    """What every feature adds to the mean squared score: columns feature, part, share of the whole; largest first.

    part: mean over pairs of (g_j/|g| - g~_j/|g~|)^2 / 4, summed over the feature's columns; parts sum to the mean squared score.
    """
    table = pd.DataFrame({"feature": [feature.name for feature in schema.features], "part": audit.parts})
    total = audit.parts.sum()
    table["share"] = audit.parts / total if total > 0 else 0.0
    return table.sort_values("part", ascending=False, kind="stable").reset_index(drop=True)


def reasons(audit: ComparedPairs, pairs: Integers | slice = slice(None)) -> tuple[Array, Array]:
    """Return (B, V) the normalised attributions of some pairs by feature: of the persons, and of the counterparts."""
    own, other = ((g[pairs], length[pairs]) for g, length in ((audit.g, audit.length), (audit.g_tilde, audit.length_tilde)))
    return own[0] / own[1][:, None], other[0] / other[1][:, None]


def review_order(audit: ComparedPairs) -> Integers:
    """Return (M,) the pairs in the order in which to look at them: the same decision before the others, then by score."""
    return np.lexsort((audit.individual, -audit.score, ~audit.same_decision))


def to_review(audit: ComparedPairs, schema: Schema, top: int) -> pd.DataFrame:
    """The pairs to look at first, in the order of `review_order`.

    Columns: row (of the audited table), group, counterpart (row of the reference), other, score, regime, decision and
    counterpart's decision, probabilities, distance, ties, and the two features whose attributions differ most.
    """
    names = np.array(audit.people.names)
    order = review_order(audit)[:top]
    features = np.array([feature.name for feature in schema.features])
    who, matches = audit.individual[order], audit.matches
    return pd.DataFrame({
        "row": who, "group": names[audit.people.groups[who]], "counterpart": audit.counterpart[order],
        "other": names[matches.other[audit.pair[order]]], "score": audit.score[order], "regime": audit.regime[order],
        "decision": audit.decision[order], "its decision": audit.decision_tilde[order],
        "probability": audit.probability[order], "its probability": audit.probability_tilde[order],
        "distance": matches.distance[audit.pair[order]], "ties": matches.ties[audit.pair[order]],
        "most different": [", ".join(features[line]) for line in audit.most[order]],
    })


class Triviality(Shape):
    """Whether a low score is that of a model that hardly decides: a constant one explains everybody alike."""

    variance: Measured
    """Of the probability of class 1; null of a model that gives values."""
    positive: Share
    """Decided positively."""
    auc: Measured
    """Of the probability against the true label; null with one label only, and of a model that gives values."""
    silent: Share
    """People whose attributions are all below 1e-6: their score says nothing."""

    @computed_field(alias="hardly")  # type: ignore[prop-decorator]
    @property
    def hardly_decides(self) -> str | None:
        """Why a low CEC would say nothing of this model, in words; None where there is no such reason."""
        if self.silent > 0.01:
            return f"{100 * self.silent:.1f}% of the people have no attribution above 1e-6"
        if self.variance < FLAT:
            return f"its probability hardly varies (variance {self.variance:.2g})"
        if max(self.positive, 1 - self.positive) > ONE_SIDED:
            return f"it decides {100 * max(self.positive, 1 - self.positive):.1f}% of the people alike"
        if self.auc < GUESSING:
            return f"its AUC is {self.auc:.3f}, near the 0.5 of guessing"
        return None


def triviality(audit: ComparedPairs, good: int = 1, *, valued: bool = False) -> Triviality:
    """Over the matched people, each once.

    good: the class that is the favourable decision.   valued: the model gives values, and no probabilities.
    """
    who, first = np.unique(audit.individual, return_index=True)
    labels, probability = audit.people.labels[who], audit.probability[first]
    return Triviality(
        variance=float("nan") if valued else float(probability.var()),
        positive=float((audit.decision[first] == good).mean()),
        auc=float(roc_auc_score(labels, probability)) if len(np.unique(labels)) == 2 and not valued else float("nan"),
        silent=float(audit.silent[first].mean()),
    )
