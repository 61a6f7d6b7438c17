"""A trained baseline: what it decides about people, and the network whose attributions explain it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from encoders.network import Array, Integers, Network
from verifair.engine.questions import decisions
from verifair.systems.cec.attributions import explanations
from verifair.systems.cec.audit import Audit, probability, scored
from verifair.systems.cec.matching import Matches, Reference, Ties, match
from verifair.systems.cec.people import People
from verifair.systems.cec.score import THRESHOLD
from verifair.training.baselines.repair import Repair

Rule = Callable[[Array, Integers], Array]
"""(network inputs (N, n_0), groups (N,)) -> probability (N,) of deciding positively, for a randomised decider."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Decider:
    """network: the differentiable part, whose margin is explained.   repair: what happens to people before the network sees them.
    rule: the decision, where it is randomised; None: the network's larger logit.   notes: what the training says about itself."""

    method: str
    network: Network
    repair: Repair | None = None
    rule: Rule | None = None
    notes: tuple[str, ...] = ()

    def seen(self, people: People) -> People:
        """The people as the network sees them."""
        return people if self.repair is None else self.repair.apply(people)

    def score(self, people: People) -> Array:
        """(N,) in [0, 1]: the network's probability of class 1, or the probability of a positive decision where that is drawn."""
        x = self.seen(people).x
        return probability(self.network, x) if self.rule is None else self.rule(x, people.groups)

    def decide(self, people: People, seed: int = 0) -> Integers:
        """(N,) decisions, 1 positive; drawn with the seed where the decider is randomised."""
        if self.rule is None:
            return decisions(self.network, self.seen(people).x)
        draws = np.random.default_rng(seed).random(len(people))
        return np.asarray(draws < self.score(people), dtype=np.int64)


def audit_decider(
    decider: Decider, reference: Reference, people: People, *, tau: float | None = None, steps: int | None = None,
    threshold: float = THRESHOLD, ties: Ties = "first", seed: int = 0, matches: Matches | None = None,
) -> Audit:  # fmt: skip
    """`verifair.systems.cec.audit` for any decider: who is compared with whom hangs on the people as they are, the explanations on
    what the network sees of them, from label-group means of the reference as the network sees it."""
    if matches is None:
        matches = match(reference, people, tau=tau, ties=ties, seed=seed)
    who, whom = matches.individual[matches.matched], matches.row[matches.matched]
    seen, pool = decider.seen(people), decider.seen(reference.people)
    baseline = Reference.of(pool, reference.columns).baseline(seen)[who]
    g, g_tilde = (explanations(decider.network, x, baseline, steps) for x in (seen.x[who], pool.x[whom]))
    return scored(
        people, matches, g, g_tilde, threshold=threshold,
        decision=decider.decide(people, seed)[who], decision_tilde=decider.decide(reference.people, seed + 1)[whom],
        probability=decider.score(people)[who], probability_tilde=decider.score(reference.people)[whom],
        method=decider.method, seed=seed if decider.rule is not None or ties == "random" else None,
    )  # fmt: skip
