"""The audit: compare everybody's explanation with that of the nearest comparable person of each other group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from encoders.arrays import Array, Booleans, Integers
from encoders.decision import Favoured
from encoders.model import Model
from encoders.probability.shares import probabilities
from verifair.aside import Aside
from verifair.checker.report import Progress
from verifair.engine.questions import decisions
from verifair.engine.verdict import Finding
from verifair.systems.cec.attributions import Attribution, ExplainedPairs, attributed, words_of
from verifair.systems.cec.explanations import cec_score, contributions, positive_margin, regimes
from verifair.systems.cec.explanations import length as norm
from verifair.systems.cec.matching import Matches, Reference, match, match_within
from verifair.systems.cec.people import People
from verifair.systems.cec.settings import DEFAULTS, THRESHOLD, CecSettings
from verifair.systems.stores import NO_STORE, Arrays, Parts

Places = npt.NDArray[np.int16]
"""Type of feature and class numbers, which are small: a million pairs have six of them each."""
SILENT = 1e-6
"""Attributions of at most this say nothing."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ComparedPairs(Finding):
    """The measured pairs, a Finding: value is the population's CEC (mean score). It is not a proof.

    matches: all pairs.   pair: (M,) positions of those with a counterpart; everything below is about these.   g, g_tilde: (M, V)
    attributions of the person and of the counterpart, both from the person's baseline, summed over the columns of each feature;
    absent in a control.   length, length_tilde: (M,) norms of these attributions by column, plus 1e-8.   parts: (V,) mean over the
    pairs of each feature's part of the squared score.   most: (M, 2) the features with the largest parts.   silent: (M,) whether
    the person has no attribution above 1e-6.
    score: (M,).   decision, decision_tilde: (M,) classes.   probability, probability_tilde: (M,) of class 1.
    regime: (M,) A to D at `threshold`.
    """

    people: People
    matches: Matches
    pair: Integers
    g: Array
    g_tilde: Array
    length: Array
    length_tilde: Array
    parts: Array
    most: Places
    silent: Booleans
    score: Array
    decision: Places
    decision_tilde: Places
    probability: Array
    probability_tilde: Array
    threshold: float

    @cached_property
    def individual(self) -> Integers:
        """(M,) the row of each pair's person."""
        return self.matches.of(self.matches.individual, self.pair)

    @cached_property
    def counterpart(self) -> Integers:
        """(M,) the reference's row of each pair's counterpart."""
        return self.matches.of(self.matches.row, self.pair)

    @property
    def same_decision(self) -> Booleans:
        return np.asarray(self.decision == self.decision_tilde)

    @property
    def regime(self) -> npt.NDArray[np.str_]:
        return regimes(self.score, self.same_decision, self.threshold)


@dataclass(frozen=True, kw_only=True, eq=False)
class Explanations:
    """Results for one side (persons, or counterparts) of some matched pairs.

    g: (K, n_0) attributions.   decision: (K,) classes.   probability: (K,) of class 1.
    """

    g: Array
    decision: Integers
    probability: Array


Chunk = tuple[Integers | slice, Explanations, Explanations]
"""Places of some pairs, in the order of `matches.matched`, and what is known of the persons and of the counterparts."""


def audit(
    network: Model, reference: Reference, people: People, settings: CecSettings = DEFAULTS, *,
    attribution: Attribution | None = None, seed: int = 0, threads: int = 2, progress: Progress | None = None,
    parts: Parts = NO_STORE, own: Integers | None = None,
) -> ComparedPairs:
    """Measure the explanation consistency of a network for these people against the reference.

    settings: tau and ties of the matching, steps of the explanations, threshold of the regimes.   attribution: a function that
    explains the model, in place of its own attributions (see `attributions`).   seed: of random ties.
    progress(done, total) counts pairs.   parts: the store of the results; those of
    `attribution` are not stored.   own: as in `match`.
    Raises QueryError and DataError as `match` and `attributed` do.
    Reference: CEC, algorithm 1 and definition 3.
    """
    positive_margin(network)  # raises QueryError for too many classes before the work starts
    matches = match(reference, people, tau=settings.tau, ties=settings.ties, seed=seed, own=own)
    return _measured(network, reference, people, matches, settings, attribution, threads, progress, parts, keep=True)


def control(
    network: Model, reference: Reference, across: ComparedPairs, settings: CecSettings = DEFAULTS, *,
    attribution: Attribution | None = None, seed: int = 0, threads: int = 2, progress: Progress | None = None,
    parts: Parts = NO_STORE,
) -> ComparedPairs:
    """Compare each person of an audit with the nearest other person of their *own* group: the differences that groups do not
    explain.

    Comparable people agree in merit alone; other features, and so their explanations, may differ within a group too. Evidence about
    groups is the excess of the score across groups over this one (`measures.excess`).   settings: ties and steps; the rest is as
    in the audit.
    Reference: ours; the paper compares across groups only.
    """
    audited = np.unique(across.individual)
    settings = settings.model_copy(update={"tau": across.matches.tau, "threshold": across.threshold})
    matches = match_within(reference, across.people.take(audited), tau=settings.tau, ties=settings.ties, seed=seed)
    inner = replace(matches, individual=audited)
    return _measured(network, reference, across.people, inner, settings, attribution, threads, progress, parts, keep=False)


def _measured(
    network: Model, reference: Reference, people: People, matches: Matches, settings: CecSettings,
    attribution: Attribution | None, threads: int, progress: Progress | None, parts: Parts, *, keep: bool,
) -> ComparedPairs:
    """Return the audit of some pairs, both of a pair explained from the person's baseline."""
    method = words_of(network, settings, attribution)
    matched = matches.matched
    person, row = matches.of(matches.individual, matched), matches.of(matches.row, matched)
    parts = parts if attribution is None else NO_STORE  # a user's function cannot be the key of stored results
    question = parts.question(
        "attributions", network.source_sha256, network.output, repr(network.decision), settings.steps, keep, *people.determines,
        *reference.determines, person, row,
    )
    scores = _Scores.of(people, len(matched), keep)

    def place(pairs: Integers) -> str:
        return f"{pairs[0]}+{len(pairs)}"

    def has(pairs: Integers) -> bool:
        return parts.has(question, place(pairs))

    def explained(batch: ExplainedPairs) -> Arrays:
        decision, probable = decisions(network, batch.x), probability(network, batch.x)
        return scores.made(*(
            Explanations(g=batch.g[side], decision=decision[side], probability=probable[side]) for side in (batch.own, batch.other)
        ))

    options: dict[str, Any] = {"threads": threads, "progress": progress, "has": has}
    for pairs, found in attributed(network, reference, people, person, row, settings, attribution, **options):
        scores.put(pairs, parts.part(question, place(pairs), scores.like(len(pairs)), partial(explained, found)))
    return scores.audit(matches, threshold=settings.threshold, method=method, seed=matches.seed)


def scored(
    people: People, matches: Matches, chunks: Iterable[Chunk], *, threshold: float = THRESHOLD, method: str,
    seed: int | None = None, keep: bool = True,
) -> ComparedPairs:
    """Return the audit of explanations, which come in chunks; they may be computed elsewhere, for deciders that are no single
    network.   keep: the attributions by feature.
    """
    scores = _Scores.of(people, len(matches.matched), keep)
    for positions, own, other in chunks:
        scores.put(positions, scores.made(own, other))
    return scores.audit(matches, threshold=threshold, method=method, seed=seed)


KINDS = {"decision": np.int16, "decision_tilde": np.int16, "most": np.int16, "silent": np.bool_}
"""Types of the results of pairs that are not float64."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Scores:
    """Results of M pairs, named as in `ComparedPairs`.   first: (V,) each feature's first column.   parts: (V,) sums."""

    people: People
    first: Integers
    sides: dict[str, Aside]
    parts: Array

    @classmethod
    def of(cls, people: People, pairs: int, keep: bool) -> _Scores:
        variables = people.values.shape[1]
        columns = dict.fromkeys(
            ("score", "length", "length_tilde", "decision", "decision_tilde", "probability", "probability_tilde", "silent"), 1
        ) | {"most": min(variables, 2)} | (dict.fromkeys(("g", "g_tilde"), variables) if keep else {})
        sides = {name: Aside.of(pairs, width, KINDS.get(name, np.float64)) for name, width in columns.items()}
        return cls(people=people, first=np.unique(people.features, return_index=True)[1], sides=sides, parts=np.zeros(variables))

    def like(self, pairs: int) -> Arrays:
        """Return arrays of the shapes and types of `made`."""
        return self.parts, *(np.empty((pairs, *side.values.shape[1:]), side.values.dtype) for side in self.sides.values())

    def made(self, own: Explanations, other: Explanations) -> Arrays:
        """Return the sums of the parts, and the sides in their order."""
        part = np.add.reduceat(contributions(own.g, other.g), self.first, axis=1)
        results = {
            "score": cec_score(own.g, other.g), "length": norm(own.g), "length_tilde": norm(other.g),
            "most": np.argsort(-part, axis=1, kind="stable")[:, :2], "silent": np.abs(own.g).max(axis=1) < SILENT,
            "decision": own.decision, "decision_tilde": other.decision, "probability": own.probability,
            "probability_tilde": other.probability,
        }
        if "g" in self.sides:
            results |= {"g": np.add.reduceat(own.g, self.first, axis=1), "g_tilde": np.add.reduceat(other.g, self.first, axis=1)}
        return part.sum(axis=0), *(results[name] for name in self.sides)

    def put(self, positions: Integers | slice, results: Arrays) -> None:
        """Store the results of some pairs."""
        self.parts[:] += results[0]
        for side, values in zip(self.sides.values(), results[1:], strict=True):
            side.put(positions, values)

    def audit(self, matches: Matches, *, threshold: float, method: str, seed: int | None) -> ComparedPairs:
        """Return the audit of all pairs."""
        pair = matches.matched
        results: dict[str, Any] = {
            name: side.values if name in ("g", "g_tilde", "most") else side.column for name, side in self.sides.items()
        }
        empty = np.empty((0, len(self.parts)))
        return ComparedPairs(
            kind="explanation consistency", value=float(results["score"].mean()) if len(pair) else float("nan"), method=method,
            seed=seed, details={"pairs": len(matches.row), "matched": len(pair), "threshold": threshold, "tau": matches.tau},
            people=self.people, matches=matches, pair=pair, parts=self.parts / max(len(pair), 1), threshold=threshold,
            **({"g": empty, "g_tilde": empty} | results),
        )


def probability(network: Model, x: Array) -> Array:
    """Return (B,) the probability of class 1: the logistic function of f, or its share of votes; softmax for several classes."""
    if isinstance(network.decision, Favoured):
        return probabilities(network, replace(network.decision, odds=True).of(network.whole.forward(x))[:, 0])
    whole = network.whole  # the probability is the uncut model's, whatever the threshold of `positive`
    return probabilities(whole, whole.forward(x) @ positive_margin(whole))
