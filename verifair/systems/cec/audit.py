"""The audit: everybody's explanation beside that of the nearest comparable person of each other group. Reads top to bottom."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from encoders.decision import Favoured
from encoders.network import Array, Booleans, Integers, Model
from encoders.shares import probabilities
from verifair.engine.questions import decisions
from verifair.engine.verdict import Finding
from verifair.systems.cec.attributions import Attribution, attributed, words_of
from verifair.systems.cec.explanations import blocks, cec_score, positive_margin, regimes
from verifair.systems.cec.matching import Matches, Reference, match, match_within
from verifair.systems.cec.people import People
from verifair.systems.cec.settings import DEFAULTS, THRESHOLD, CecSettings
from verifair.systems.work import Progress


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ComparedPairs(Finding):
    """What was measured: a Finding with value = the population's CEC (mean score), never a proof.

    matches: all pairs.   pair: (M,) those with a counterpart; everything below is about them.   g, g_tilde: (M, n_0) attributions
    of the person and of the counterpart, both from the person's baseline.   score: (M,).   decision, decision_tilde: (M,) classes.
    probability, probability_tilde: (M,) of class 1.   regime: (M,) A to D at `threshold`.
    """

    people: People
    matches: Matches
    pair: Integers
    g: Array
    g_tilde: Array
    score: Array
    decision: Integers
    decision_tilde: Integers
    probability: Array
    probability_tilde: Array
    threshold: float

    @property
    def individual(self) -> Integers:
        """(M,) the row of each pair's person."""
        return np.asarray(self.matches.individual[self.pair])

    @property
    def counterpart(self) -> Integers:
        """(M,) the reference's row of each pair's counterpart."""
        return np.asarray(self.matches.row[self.pair])

    @property
    def same_decision(self) -> Booleans:
        return np.asarray(self.decision == self.decision_tilde)

    @property
    def regime(self) -> npt.NDArray[np.str_]:
        return regimes(self.score, self.same_decision, self.threshold)


@dataclass(frozen=True, kw_only=True, eq=False)
class Explanations:
    """What is known of one side of the M matched pairs.

    g: (M, n_0) attributions.   decision: (M,) classes.   probability: (M,) of class 1.
    """

    g: Array
    decision: Integers
    probability: Array


def audit(
    network: Model, reference: Reference, people: People, settings: CecSettings = DEFAULTS, *,
    attribution: Attribution | None = None, seed: int = 0, threads: int = 2, progress: Progress | None = None,
) -> ComparedPairs:
    """Measure the explanation consistency of a network for these people against the reference.

    settings: tau and ties of the matching, steps of the explanations, threshold of the regimes.   attribution: what explains
    the model instead of its own (see `attributions`).   seed: of random ties.
    progress(done, total) counts attributions.   Raises QueryError and DataError as `match` and `attributed` do.
    Reference: CEC, algorithm 1 and definition 3.
    """
    positive_margin(network)  # too many classes are said before the work
    matches = match(reference, people, tau=settings.tau, ties=settings.ties, seed=seed)
    return _measured(network, reference, people, matches, settings, attribution, threads, progress)


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
    return _measured(network, reference, found.people, inner, settings, attribution, threads, progress)


def _measured(
    network: Model, reference: Reference, people: People, matches: Matches, settings: CecSettings,
    attribution: Attribution | None, threads: int, progress: Progress | None,
) -> ComparedPairs:
    """Return the audit of some pairs; those of one person share the explanation, and both of a pair the person's baseline."""
    method = words_of(network, settings, attribution)
    who, place = np.unique(matches.individual[matches.matched], return_inverse=True)
    x = np.concatenate([people.x[who], reference.people.x[matches.row[matches.matched]]])
    whose = np.concatenate([who, who[place]])
    cells = np.column_stack([people.labels[whose], people.groups[whose]])
    g = attributed(network, reference, x, cells, settings, attribution, threads=threads, progress=progress)
    decision, probable = (np.concatenate([of(network, x[part]) for part in blocks(len(x))]) for of in (decisions, probability))

    def side(rows: Integers | slice) -> Explanations:
        return Explanations(g=g[rows], decision=decision[rows], probability=probable[rows])

    own = side(place if len(place) > len(who) else slice(len(who)))  # a slice copies nothing
    other = side(slice(len(who), None))
    return scored(people, matches, own, other, threshold=settings.threshold, method=method, seed=matches.seed)


def scored(
    people: People, matches: Matches, own: Explanations, other: Explanations, *, threshold: float = THRESHOLD, method: str,
    seed: int | None = None,
) -> ComparedPairs:
    """Return the audit of explanations that somebody else computed, for deciders that are no single network.

    own, other: of the person and of the counterpart, for the matched pairs in the order of `matches.matched`.
    """
    score = cec_score(own.g, other.g)
    return ComparedPairs(
        kind="explanation consistency", value=float(score.mean()) if len(score) else float("nan"), method=method, seed=seed,
        details={"pairs": len(matches.row), "matched": len(score), "threshold": threshold, "tau": matches.tau},
        people=people, matches=matches, pair=matches.matched, g=own.g, g_tilde=other.g, score=score, decision=own.decision,
        decision_tilde=other.decision, probability=own.probability, probability_tilde=other.probability, threshold=threshold,
    )


def probability(network: Model, x: Array) -> Array:
    """(B,) probability of class 1: the logistic function of f, or its share of votes; of several classes by softmax."""
    if isinstance(network.decision, Favoured):
        return probabilities(network, replace(network.decision, odds=True).of(network.whole.forward(x))[:, 0])
    return probabilities(network, network.forward(x) @ positive_margin(network))
