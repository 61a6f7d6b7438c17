"""Results of an audit: population figures with intervals, shares by threshold, features, people to review.

All of these are measures of a sample. Its independent units are people, not pairs: one person has counterparts in several groups,
and is the counterpart of several others. So standard errors are cluster-robust for dyadic data: any two pairs that share a person
may be correlated.   Reference: CEC, "Evaluation Metrics", figure 4 and "Future Work" (parts by feature); Fafchamps and Gubert 2007,
equation 2.7, and Aronow, Samii and Assenova 2015 (the standard error).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from pydantic import computed_field
from sklearn.metrics import roc_auc_score

from encoders.arrays import Array, Booleans, Integers
from verifair.aside import Aside, made, taken
from verifair.schema.schema import Schema
from verifair.systems.cec.audit import ComparedPairs
from verifair.systems.cec.explanations import REGIMES, regimes
from verifair.systems.groups import blocks
from verifair.systems.proportions import critical, newcombe, wilson
from verifair.systems.results.result import Interval, Measured, Shape, Share

Z = critical(0.95, 2)
"""Critical value of all intervals."""
INTERVALS = "95 % over people: pairs that share a person are not independent"
PEOPLE = 1 << 18
"""Whose pairs are sorted at once."""
ROUNDING = 1e-12
"""Scores that differ by less are equal."""
SMALL_VARIANCE = 0.01
"""A variance of the probability below this (a standard deviation of 0.1) is that of a model which hardly tells people apart."""
ONE_SIDED_SHARE = 0.95
"""Decisions of which more than this share are the same are hardly decisions."""
AUC_OF_GUESSING = 0.6
"""An AUC below this is near the 0.5 of guessing."""


def interval(audit: ComparedPairs, values: Array) -> Interval:
    """Return the mean of values (M,) in 0 .. 1 over the matched pairs, with Wilson's interval at the effective number of pairs: the
    number of independent zeros and ones with the same standard error (Korn and Graubard 1998).

    If all values are equal, the error is unknown, and the pairs of one person, or with one counterpart, count as one (Kish 1965).
    """
    mean = float(values.mean())
    square = _squared_error((made(len(values), float, lambda part: (values[part] - mean) / len(values)), *_persons(audit)))
    count = mean * (1 - mean) / square if square else _effective_pairs(audit)
    low, high = wilson(np.array(mean), count, Z)
    return Interval(mean=mean, low=float(low), high=float(high))


def excess(audit: ComparedPairs, control: ComparedPairs) -> Interval:
    """Return the mean over people of (mean score over the other groups - score within the own group): the group's effect on the
    score.

    Over people that have both scores; NaN if nobody has.   Reference: ours; see `verifair.systems.cec.audit.control`.
    """
    has_both = _is_member(audit.individual, control.individual), _is_member(control.individual, audit.individual)
    if not has_both[0].any():
        return Interval(mean=np.nan, low=np.nan, high=np.nan)
    audit, control = (replace_pairs(pairs, np.flatnonzero(has)) for pairs, has in zip((audit, control), has_both, strict=True))
    person, score = audit.individual, control.score
    people, pairs = len(score), np.zeros(int(person.max()) + 1, dtype=np.int32)
    np.add.at(pairs, person, 1)
    weight = made(len(person), float, lambda part: 1 / (people * pairs[person[part]].astype(np.int64)))
    across_mean, within_mean = float(weight @ audit.score), float(score.mean())
    square = _squared_error(
        (made(len(person), float, lambda part: weight[part] * (audit.score[part] - across_mean)), *_persons(audit)),
        (made(people, float, lambda part: (within_mean - score[part]) / people), *_persons(control, audit)),
    )
    mean, half_width = across_mean - within_mean, Z * float(np.sqrt(square))
    low, high = max(mean - half_width, -1.0), min(mean + half_width, 1.0)
    if not square:  # as in `interval`, taking the people as different: no narrower
        ends = newcombe(np.array(across_mean), _effective_pairs(audit), np.array(within_mean), _effective_pairs(control), Z)
        low, high = (float(end) for end in ends)
    return Interval(mean=mean, low=low, high=high)


def replace_pairs(audit: ComparedPairs, kept: Integers) -> ComparedPairs:
    """Return the audit of some of its matched pairs only, without attributions.   kept: (K,) positions among the matched,
    ascending."""
    without = {name: getattr(audit, name)[:0] for name in ("g", "g_tilde", "length", "length_tilde")}
    if len(kept) == len(audit.pair):
        return replace(audit, **without)
    fields = ("pair", "most", "silent", "score", "decision", "decision_tilde", "probability", "probability_tilde")
    return replace(audit, **without, **{field: taken(getattr(audit, field), kept) for field in fields})


def _is_member(numbers: Integers, others: Integers) -> Booleans:
    """Return (M,) True for each of some numbers from 0 that is among the others."""
    is_member = np.zeros(1 + max(int(numbers.max(initial=-1)), int(others.max(initial=-1))), dtype=bool)
    is_member[others] = True
    return np.asarray(is_member[numbers])


def _persons(pairs: ComparedPairs, audit: ComparedPairs | None = None) -> tuple[Integers, Integers]:
    """Return (M,) numbers of the person and of the counterpart of each pair; a person has the same number on both sides.

    audit: the audit whose matching knows the people's own rows in the reference, if not that of `pairs`.
    """
    own_rows, offset = (audit or pairs).matches.own, len(pairs.people)
    person, counterpart = pairs.individual, pairs.counterpart

    def number(part: slice) -> Integers:
        if own_rows is None:
            return person[part]
        rows = own_rows[person[part]]
        return np.where(rows >= 0, rows + offset, person[part])

    return made(len(person), np.int64, number), made(len(person), np.int64, lambda part: counterpart[part] + offset)


def _squared_error(*sides: tuple[Array, Integers, Integers]) -> float:
    """Return the squared standard error of an estimate, from the deviation `parts` (M,) that each pair contributes; 0 if all are 0.

    sides: parts, and the numbers of the person and of the counterpart, of one audit or of several.
    It is the sum of products of parts over any two pairs that share somebody, and at least the sum over those with the same person.
    """
    size = 1 + max(int(index.max()) for _, *persons in sides for index in persons)
    sums, upper_sums, person_sums = (made(size, float, lambda part: np.zeros(part.stop - part.start)) for _ in range(3))
    is_person = np.zeros(size, dtype=bool)
    for parts, person, counterpart in sides:
        for part in blocks(len(parts)):
            np.add.at(sums, np.minimum(person[part], counterpart[part]), parts[part])
            np.add.at(upper_sums, np.maximum(person[part], counterpart[part]), parts[part])
            np.add.at(person_sums, person[part], parts[part])
            is_person[person[part]] = True
    sums += upper_sums
    buffer, count = Aside.of(sum(len(parts) for parts, *_ in sides), 1), 0  # for pairs of the same two: `sums` counts them twice
    for start in range(0, size, PEOPLE):  # a range of people at a time: sorting takes several times their memory
        pair_keys, values = [], []
        for parts, person, counterpart in sides:
            for part in blocks(len(parts)):
                low = np.minimum(person[part], counterpart[part])
                selected = np.flatnonzero((low >= start) & (low < start + PEOPLE))
                pair_keys.append(low[selected] * size + np.maximum(person[part][selected], counterpart[part][selected]))
                values.append(parts[part][selected])
        pair_sums = np.bincount(np.unique(np.concatenate(pair_keys), return_inverse=True)[1], weights=np.concatenate(values))
        buffer.put(slice(count, count + len(pair_sums)), pair_sums)
        count += len(pair_sums)
    pair_sums, person_sums = buffer.column[:count], person_sums[: int(np.flatnonzero(is_person)[-1]) + 1]
    people, covariance = int(is_person.sum()), sums @ sums - pair_sums @ pair_sums
    covariance = covariance if covariance > ROUNDING * (sums @ sums) else 0.0  # a sum that cancels leaves rounding errors
    square = float(max(covariance, person_sums @ person_sums)) * people / max(people - 1, 1)
    return square if square > ROUNDING**2 else 0.0


def _effective_pairs(audit: ComparedPairs) -> float:
    """Return Kish's effective number of pairs: the pairs of one person, or with one counterpart, are taken as equal."""
    counts = (np.bincount(side).astype(float) for side in (audit.individual, audit.counterpart))
    return min(float(count.sum() ** 2 / (count @ count)) for count in counts)


def population(audit: ComparedPairs) -> dict[str, Interval]:
    """Return CEC, the prediction flip rate PFR, and the share of every regime."""
    regime = audit.regime
    values = {"CEC": audit.score, "PFR": (~audit.same_decision).astype(float)}
    values |= {name: (regime == name).astype(float) for name in REGIMES}
    return {name: interval(audit, value) for name, value in values.items()}


def by_group(audit: ComparedPairs) -> pd.DataFrame:
    """Return a line for each ordered pair of groups: group, other, people, matched, CEC, PFR, A to D, median distance and ties."""
    matches, names, size = audit.matches, audit.people.names, len(audit.people.names) ** 2

    def cells(part: slice) -> Integers:
        return audit.people.groups[matches.individual[part]] * len(names) + matches.other[part]

    cell = made(len(matches.row), np.int64, cells)
    pair_cell = matches.of(cell, audit.pair)
    people, matched = np.zeros((2, size), dtype=np.int64)
    regime = np.zeros((size, len(REGIMES)), dtype=np.int64)
    for part in blocks(len(cell)):
        people += np.bincount(cell[part], minlength=size)
        matched += np.bincount(cell[part][matches.row[part] >= 0], minlength=size)
    for part in blocks(len(pair_cell)):
        regime += np.bincount(pair_cell[part] * len(REGIMES) + places(audit, part), minlength=regime.size).reshape(regime.shape)
    shown = np.array(sorted(np.flatnonzero(people), key=lambda n: (names[n // len(names)], names[n % len(names)])), dtype=np.int64)
    distance, ties = (pd.Series(values, copy=False).groupby(cell).median()[shown] for values in (matches.distance, matches.ties))
    mean = pd.Series(audit.score, copy=False).groupby(pair_cell).mean().reindex(shown)
    with np.errstate(invalid="ignore"):
        shares, flips = (counts / regime[shown].sum(axis=1) for counts in (regime[shown].T, regime[shown, 2:].sum(axis=1)))
    return pd.DataFrame({
        "group": [names[n // len(names)] for n in shown], "other": [names[n % len(names)] for n in shown], "people": people[shown],
        "matched": matched[shown], "distance": distance.to_numpy(), "ties": ties.to_numpy(), "CEC": mean.to_numpy(),
        "PFR": flips, **dict(zip(REGIMES, shares, strict=True)),
    })


def places(audit: ComparedPairs, part: slice) -> Integers:
    """Return (B,) positions in `REGIMES` of some pairs' regimes."""
    different = audit.decision[part] != audit.decision_tilde[part]
    return np.asarray(2 * different + ~(audit.score[part] <= audit.threshold))


def sensitivity(audit: ComparedPairs, thresholds: Array | None = None) -> pd.DataFrame:
    """Return the shares of the regimes at every threshold (T,), default 0, 0.01, ..., 1: columns threshold, A, B, C, D."""
    values = np.linspace(0, 1, 101) if thresholds is None else thresholds
    return pd.DataFrame(regime_shares(audit, values), columns=list(REGIMES)).assign(threshold=values)[["threshold", *REGIMES]]


def regime_shares(audit: ComparedPairs, thresholds: Array) -> Array:
    """Return (T, 4) the shares of the regimes A to D at some thresholds (T,)."""
    counts, pairs = np.zeros((len(thresholds), 4), dtype=np.int64), len(audit.pair)
    for part in blocks(pairs):
        close = audit.score[part, None] <= thresholds
        equal = (audit.decision[part] == audit.decision_tilde[part])[:, None]
        counts += np.stack([(a & b).sum(axis=0) for b in (equal, ~equal) for a in (close, ~close)], axis=1)
    return np.asarray(counts / pairs)


def feature_parts(audit: ComparedPairs, schema: Schema) -> pd.DataFrame:
    """Return each feature's part of the mean squared score: columns feature, part, share of the whole; largest first.

    part: mean over pairs of (g_j/|g| - g~_j/|g~|)^2 / 4, summed over the feature's columns; parts sum to the mean squared score.
    """
    table = pd.DataFrame({"feature": [feature.name for feature in schema.features], "part": audit.parts})
    total = audit.parts.sum()
    table["share"] = audit.parts / total if total > 0 else 0.0
    return table.sort_values("part", ascending=False, kind="stable").reset_index(drop=True)


def reasons(audit: ComparedPairs, pairs: Integers | slice = slice(None)) -> tuple[Array, Array]:
    """Return (B, V) the normalised attributions of some pairs by feature: of the persons, and of the counterparts."""
    person, peer = ((g[pairs], length[pairs]) for g, length in ((audit.g, audit.length), (audit.g_tilde, audit.length_tilde)))
    return person[0] / person[1][:, None], peer[0] / peer[1][:, None]


def review_order(audit: ComparedPairs, top: int) -> Integers:
    """Return (top,) the first pairs to review: those with the same decision first, then by score."""
    first = np.zeros(0, dtype=np.int64)
    for part in blocks(len(audit.pair)):
        candidates = np.concatenate([first, np.arange(part.start, min(part.stop, len(audit.pair)))])
        differs = audit.decision[candidates] != audit.decision_tilde[candidates]
        first = candidates[np.lexsort((audit.individual[candidates], -audit.score[candidates], differs))[:top]]
    return first


def to_review(audit: ComparedPairs, schema: Schema, top: int) -> pd.DataFrame:
    """Return the pairs to look at first, in the order of `review_order`.

    Columns: row (of the audited table), group, counterpart (row of the reference), other, score, regime, decision and
    counterpart's decision, probabilities, distance, ties, and the two features whose attributions differ most.
    """
    names = np.array(audit.people.names)
    order = review_order(audit, top)
    features = np.array([feature.name for feature in schema.features])
    person, matches = audit.individual[order], audit.matches
    return pd.DataFrame({
        "row": person, "group": names[audit.people.groups[person]], "counterpart": audit.counterpart[order],
        "other": names[matches.other[audit.pair[order]]], "score": audit.score[order],
        "regime": regimes(audit.score[order], audit.decision[order] == audit.decision_tilde[order], audit.threshold),
        "decision": audit.decision[order], "its decision": audit.decision_tilde[order],
        "probability": audit.probability[order], "its probability": audit.probability_tilde[order],
        "distance": matches.distance[audit.pair[order]], "ties": matches.ties[audit.pair[order]],
        "most different": [", ".join(features[line]) for line in audit.most[order]],
    })


class Triviality(Shape):
    """Measures of a model that hardly decides, and so gets a low score: a constant model explains everybody alike."""

    variance: Measured
    """Variance of the probability of class 1; null for a model that gives values."""
    positive: Share
    """Decided positively."""
    auc: Measured
    """AUC of the probability against the true label; null with one label only, and for a model that gives values."""
    silent: Share
    """People whose attributions are all below 1e-6: their score says nothing."""

    @computed_field(alias="hardly")  # type: ignore[prop-decorator]
    @property
    def hardly_decides(self) -> str | None:
        """The reason, in words, that a low CEC says nothing about this model; None if there is none."""
        if self.silent > 0.01:
            return f"{100 * self.silent:.1f}% of the people have no attribution above 1e-6"
        if self.variance < SMALL_VARIANCE:
            return f"its probability hardly varies (variance {self.variance:.2g})"
        if max(self.positive, 1 - self.positive) > ONE_SIDED_SHARE:
            return f"it decides {100 * max(self.positive, 1 - self.positive):.1f}% of the people alike"
        if self.auc < AUC_OF_GUESSING:
            return f"its AUC is {self.auc:.3f}, near the 0.5 of guessing"
        return None


def triviality(audit: ComparedPairs, good: int = 1, *, valued: bool = False) -> Triviality:
    """Measure triviality over the matched people, each counted once.

    good: the class that is the favourable decision.   valued: the model gives values, and no probabilities.
    """
    person, first = np.unique(audit.individual, return_index=True)
    labels, probability = audit.people.labels[person], audit.probability[first]
    return Triviality(
        variance=float("nan") if valued else float(probability.var()),
        positive=float((audit.decision[first] == good).mean()),
        auc=float(roc_auc_score(labels, probability)) if len(np.unique(labels)) == 2 and not valued else float("nan"),
        silent=float(audit.silent[first].mean()),
    )
