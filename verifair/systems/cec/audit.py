"""The audit: everybody's explanation beside that of the nearest comparable person of each other group. Reads top to bottom."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from encoders.decision import Favoured
from encoders.network import Array, Booleans, Integers, Model
from encoders.shares import probabilities
from verifair.aside import Aside
from verifair.checker.report import Progress
from verifair.engine.questions import decisions
from verifair.engine.verdict import Finding
from verifair.systems.cec.attributions import Attribution, attributed, words_of
from verifair.systems.cec.explanations import cec_score, contributions, positive_margin, regimes
from verifair.systems.cec.explanations import length as norm
from verifair.systems.cec.matching import Matches, Reference, match, match_within
from verifair.systems.cec.people import People
from verifair.systems.cec.settings import DEFAULTS, THRESHOLD, CecSettings

Places = npt.NDArray[np.int16]
"""Of features and classes, of which there are few: a million pairs have six of them."""
SILENT = 1e-6
"""Attributions of at most this say nothing."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ComparedPairs(Finding):
    """What was measured: a Finding with value = the population's CEC (mean score), never a proof.

    matches: all pairs.   pair: (M,) those with a counterpart; everything below is about them.   g, g_tilde: (M, V) attributions
    of the person and of the counterpart, both from the person's baseline, summed over the columns of each feature; none in a
    control.   length, length_tilde: (M,) of these attributions column by column, plus 1e-8.   parts: (V,) mean over the pairs of
    each feature's part of the squared score.   most: (M, 2) the features with the largest parts.   silent: (M,) whether the person
    has no attribution above 1e-6.
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
    """What is known of one side of some matched pairs.

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
) -> ComparedPairs:
    """Measure the explanation consistency of a network for these people against the reference.

    settings: tau and ties of the matching, steps of the explanations, threshold of the regimes.   attribution: what explains
    the model instead of its own (see `attributions`).   seed: of random ties.
    progress(done, total) counts pairs.   Raises QueryError and DataError as `match` and `attributed` do.
    Reference: CEC, algorithm 1 and definition 3.
    """
    positive_margin(network)  # too many classes are said before the work
    matches = match(reference, people, tau=settings.tau, ties=settings.ties, seed=seed)
    return _measured(network, reference, people, matches, settings, attribution, threads, progress, keep=True)


def control(
    network: Model, reference: Reference, found: ComparedPairs, settings: CecSettings = DEFAULTS, *,
    attribution: Attribution | None = None, seed: int = 0, threads: int = 2, progress: Progress | None = None,
) -> ComparedPairs:
    """Compare the people of an audit with the nearest other person of their *own* group: what the group does not explain.

    Comparable people agree in merit alone and may differ in all else, whatever their groups, and so may their reasons: what tells
    of the groups is the excess of the score across over this one (`measures.excess`).   settings: ties and steps; the rest is as
    in the audit.
    Reference: ours; the paper compares across groups only.
    """
    audited = np.unique(found.individual)
    settings = settings.model_copy(update={"tau": found.matches.tau, "threshold": found.threshold})
    matches = match_within(reference, found.people.take(audited), tau=settings.tau, ties=settings.ties, seed=seed)
    inner = replace(matches, individual=audited)
    return _measured(network, reference, found.people, inner, settings, attribution, threads, progress, keep=False)


def _measured(
    network: Model, reference: Reference, people: People, matches: Matches, settings: CecSettings,
    attribution: Attribution | None, threads: int, progress: Progress | None, *, keep: bool,
) -> ComparedPairs:
    """Return the audit of some pairs, both of a pair explained from the person's baseline."""
    method = words_of(network, settings, attribution)
    matched = matches.matched
    who, row = matches.of(matches.individual, matched), matches.of(matches.row, matched)

    def chunks() -> Iterator[Chunk]:
        pairs = attributed(network, reference, people, who, row, settings, attribution, threads=threads, progress=progress)
        for places, found in pairs:
            decision, probable = decisions(network, found.x), probability(network, found.x)
            own, other = (
                Explanations(g=found.g[side], decision=decision[side], probability=probable[side])
                for side in (found.own, found.other)
            )
            yield places, own, other

    return scored(people, matches, chunks(), threshold=settings.threshold, method=method, seed=matches.seed, keep=keep)


def scored(
    people: People, matches: Matches, chunks: Iterable[Chunk], *, threshold: float = THRESHOLD, method: str,
    seed: int | None = None, keep: bool = True,
) -> ComparedPairs:
    """Return the audit of explanations, which come in chunks; somebody else may have computed them, for deciders that are no
    single network.   keep: the attributions by feature.
    """
    pair, variables = matches.matched, people.values.shape[1]
    first = np.unique(people.features, return_index=True)[1]
    score, length, length_tilde, probable, its = (Aside.of(len(pair), 1) for _ in range(5))
    decision, its_decision, most = (Aside.of(len(pair), columns, np.int16) for columns in (1, 1, min(variables, 2)))
    silent = Aside.of(len(pair), 1, np.bool_)
    g, g_tilde = (Aside.of(len(pair) * keep, variables) for _ in range(2))
    parts = np.zeros(variables)
    for some, own, other in chunks:
        part = np.add.reduceat(contributions(own.g, other.g), first, axis=1)
        parts += part.sum(axis=0)
        found = {
            score: cec_score(own.g, other.g), length: norm(own.g), length_tilde: norm(other.g),
            most: np.argsort(-part, axis=1, kind="stable")[:, :2], silent: np.abs(own.g).max(axis=1) < SILENT,
            decision: own.decision, its_decision: other.decision, probable: own.probability, its: other.probability,
        }
        if keep:
            found |= {g: np.add.reduceat(own.g, first, axis=1), g_tilde: np.add.reduceat(other.g, first, axis=1)}
        for side, values in found.items():
            side.put(some, values)
    return ComparedPairs(
        kind="explanation consistency", value=float(score.column.mean()) if len(pair) else float("nan"), method=method,
        seed=seed, details={"pairs": len(matches.row), "matched": len(pair), "threshold": threshold, "tau": matches.tau},
        people=people, matches=matches, pair=pair, g=g.values, g_tilde=g_tilde.values, length=length.column,
        length_tilde=length_tilde.column, parts=parts / max(len(pair), 1), most=most.values, silent=silent.column,
        score=score.column, decision=decision.column, decision_tilde=its_decision.column, probability=probable.column,
        probability_tilde=its.column, threshold=threshold,
    )


def probability(network: Model, x: Array) -> Array:
    """(B,) probability of class 1: the logistic function of f, or its share of votes; of several classes by softmax."""
    if isinstance(network.decision, Favoured):
        return probabilities(network, replace(network.decision, odds=True).of(network.whole.forward(x))[:, 0])
    whole = network.whole  # whose probability it is, wherever `positive` cuts it
    return probabilities(whole, whole.forward(x) @ positive_margin(whole))
