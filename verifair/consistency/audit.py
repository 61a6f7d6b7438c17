"""The audit: everybody's explanation beside that of the nearest comparable person of each other group. Reads top to bottom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from encoders.network import Array, Network
from verifair.consistency.attributions import explanations, positive_margin
from verifair.consistency.matching import Matches, Reference, Ties, match
from verifair.consistency.people import Integers, People
from verifair.consistency.score import THRESHOLD, cec_score, regimes
from verifair.verdict import Finding
from verifair.verify.questions import decisions

Progress = Callable[[int, int], None]
CHUNK = 2048
"""Pairs between two signs of progress."""


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
    def same_decision(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.decision == self.decision_tilde)

    @property
    def regime(self) -> npt.NDArray[np.str_]:
        return regimes(self.score, self.same_decision, self.threshold)


def audit(
    network: Network, reference: Reference, people: People, *, tau: float | None = None, steps: int | None = None,
    threshold: float = THRESHOLD, ties: Ties = "first", seed: int = 0, threads: int = 2, progress: Progress | None = None,
) -> Audit:  # fmt: skip
    """Explanation consistency of a network for these people against the reference.

    tau, ties, seed: see `match`.   steps: see `explanations`.   threshold: of the regimes.   progress(done, total) counts pairs.
    Raises QueryError and DataError as these do.   Reference: CEC, algorithm 1 and definition 3.
    """
    regimes(np.zeros(0), np.zeros(0, dtype=bool), threshold)  # a threshold that cannot be is said before the work
    positive_margin(network)
    matches = match(reference, people, tau=tau, ties=ties, seed=seed)
    pair = matches.matched
    x, x_tilde = people.x[matches.individual[pair]], reference.people.x[matches.row[pair]]
    baseline = reference.baseline(people)[matches.individual[pair]]
    g, g_tilde = np.empty_like(x), np.empty_like(x)
    for start in range(0, len(pair), CHUNK):
        part = slice(start, start + CHUNK)
        both = np.concatenate([x[part], x_tilde[part]]), np.concatenate([baseline[part], baseline[part]])
        g[part], g_tilde[part] = np.split(explanations(network, *both, steps, threads=threads), 2)
        if progress is not None:
            progress(min(start + CHUNK, len(pair)), len(pair))
    return scored(
        people, matches, g, g_tilde, threshold=threshold,
        decision=decisions(network, x), decision_tilde=decisions(network, x_tilde),
        probability=probability(network, x), probability_tilde=probability(network, x_tilde),
        method="exact path integral" if steps is None else f"{steps}-step Riemann sum", seed=seed if ties == "random" else None,
    )  # fmt: skip


def scored(
    people: People, matches: Matches, g: Array, g_tilde: Array, *, decision: Integers, decision_tilde: Integers, probability: Array,
    probability_tilde: Array, threshold: float = THRESHOLD, method: str, seed: int | None = None,
) -> Audit:  # fmt: skip
    """An audit from attributions and decisions that somebody else computed, for deciders that are no single network.

    Everything but people and matches is about the matched pairs, in the order of `matches.matched`: g, g_tilde (M, n_0), the
    rest (M,).
    """
    score = cec_score(g, g_tilde)
    return Audit(
        kind="explanation consistency", value=float(score.mean()), method=method, seed=seed,
        details={"pairs": len(matches.row), "matched": len(score), "threshold": threshold, "tau": matches.tau},
        people=people, matches=matches, pair=matches.matched, g=g, g_tilde=g_tilde, score=score, decision=decision,
        decision_tilde=decision_tilde, probability=probability, probability_tilde=probability_tilde, threshold=threshold,
    )  # fmt: skip


def probability(network: Network, x: Array) -> Array:
    """(B,) probability of class 1: the logistic function of f."""
    return np.asarray(expit(network.forward(x) @ positive_margin(network)))
