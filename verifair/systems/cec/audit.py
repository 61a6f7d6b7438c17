"""The audit: everybody's explanation beside that of the nearest comparable person of each other group. Reads top to bottom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from encoders.network import Array, Booleans, Integers, Network
from verifair.engine.questions import decisions
from verifair.engine.verdict import Finding
from verifair.systems.cec.explanations import cec_score, explanations, positive_margin, regimes
from verifair.systems.cec.matching import Matches, Reference, match, match_within
from verifair.systems.cec.people import People
from verifair.systems.cec.settings import THRESHOLD, Ties
from verifair.systems.work import Progress

CHUNK = 4096
"""Attributions between two signs of progress."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Audit(Finding):
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


def audit(
    network: Network, reference: Reference, people: People, *, tau: float | None = None, steps: int | None = None,
    threshold: float = THRESHOLD, ties: Ties = "first", seed: int = 0, threads: int = 2, progress: Progress | None = None,
    matches: Matches | None = None,
) -> Audit:
    """Explanation consistency of a network for these people against the reference.

    tau, ties, seed: see `match`.   matches: other pairs than those, such as `match_within`.   steps: see `explanations`.
    threshold: of the regimes.   progress(done, total) counts attributions.
    Raises QueryError and DataError as these do.   Reference: CEC, algorithm 1 and definition 3.
    """
    regimes(np.zeros(0), np.zeros(0, dtype=bool), threshold)  # a threshold that cannot be is said before the work
    positive_margin(network)
    if matches is None:
        matches = match(reference, people, tau=tau, ties=ties, seed=seed)
    who, place = np.unique(matches.individual[matches.matched], return_inverse=True)
    x, x_tilde = people.x[who], reference.people.x[matches.row[matches.matched]]
    baseline = reference.baseline(people)[who]  # both of a pair are explained from the person's own
    total = len(x) + len(x_tilde)
    tell = progress or (lambda done, total: None)
    g = _explained(network, x, baseline, steps, threads, lambda done: tell(done, total))
    g_tilde = _explained(network, x_tilde, baseline[place], steps, threads, lambda done: tell(len(x) + done, total))
    return scored(
        people, matches, g[place], g_tilde, threshold=threshold,
        decision=decisions(network, x)[place], decision_tilde=decisions(network, x_tilde),
        probability=probability(network, x)[place], probability_tilde=probability(network, x_tilde),
        method="exact path integral" if steps is None else f"{steps}-step Riemann sum", seed=seed if ties == "random" else None,
    )


def control(
    network: Network, reference: Reference, found: Audit, *, steps: int | None = None, ties: Ties = "first", seed: int = 0,
    threads: int = 2, progress: Progress | None = None,
) -> Audit:
    """The people of an audit beside the nearest other person of their *own* group: how much of `found` the group does not explain.

    Comparable people agree in merit alone and may differ in all else, whatever their groups, and so may their reasons: what tells
    of the groups is the excess of the score across over this one (`measures.excess`).   steps, ties, seed: as in the audit.
    Reference: ours; the paper compares across groups only.
    """
    who = found.people.take(np.unique(found.individual))
    matches = match_within(reference, who, tau=found.matches.tau, ties=ties, seed=seed)
    matches = replace(matches, individual=np.unique(found.individual))
    return audit(
        network, reference, found.people, matches=matches, steps=steps, threshold=found.threshold, ties=ties, seed=seed,
        threads=threads, progress=progress,
    )


def _explained(
    network: Network, x: Array, baseline: Array, steps: int | None, threads: int, tell: Callable[[int], None]
) -> Array:
    g = np.empty_like(x)
    for start in range(0, len(x), CHUNK):
        part = slice(start, start + CHUNK)
        g[part] = explanations(network, x[part], baseline[part], steps, threads=threads)
        tell(min(start + CHUNK, len(x)))
    return g


def scored(
    people: People, matches: Matches, g: Array, g_tilde: Array, *, decision: Integers, decision_tilde: Integers, probability: Array,
    probability_tilde: Array, threshold: float = THRESHOLD, method: str, seed: int | None = None,
) -> Audit:
    """An audit from attributions and decisions that somebody else computed, for deciders that are no single network.

    Everything but people and matches is about the matched pairs, in the order of `matches.matched`: g, g_tilde (M, n_0), the
    rest (M,).
    """
    score = cec_score(g, g_tilde)
    return Audit(
        kind="explanation consistency", value=float(score.mean()) if len(score) else float("nan"), method=method, seed=seed,
        details={"pairs": len(matches.row), "matched": len(score), "threshold": threshold, "tau": matches.tau},
        people=people, matches=matches, pair=matches.matched, g=g, g_tilde=g_tilde, score=score, decision=decision,
        decision_tilde=decision_tilde, probability=probability, probability_tilde=probability_tilde, threshold=threshold,
    )


def probability(network: Network, x: Array) -> Array:
    """(B,) probability of class 1: the logistic function of f."""
    return np.asarray(expit(network.forward(x) @ positive_margin(network)))
