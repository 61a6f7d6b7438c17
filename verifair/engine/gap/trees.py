"""The largest gap of a tree ensemble: the question "is every gap at most epsilon?", asked again and again.

A counterexample has a larger gap than epsilon; changing it value by value finds larger ones near it. Where every gap is proved
to be at most epsilon, that is a bound, and its proof the certificate. Epsilon lies a tolerance above the best gap while that grows;
where this takes too long it falls from the upper end, by a share of what lies between: every question takes several times as long
as the one before it, so that most of the time goes to the last ones. It rises again after a question that took too long.
Over a box the bounds D of g - g', U of g and V of g', and two lines between them, leave a polygon of pairs (g, g'): no gap there
exceeds epsilon where a tangent of the curve cuts off its corners (`encoders.probability`).
Sound? yes: every bound has a proof, every gap a point.   Complete? to the tolerance, given time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from encoders.domain import Domain
from encoders.network import Array
from encoders.probability import SMALLEST
from encoders.problem import TwinProblem
from solvers import clock
from solvers.outcome import Budget
from verifair.checker.certificates.tree import Tree
from verifair.engine.gap.search import Extreme, OutOf, deferred_interrupt
from verifair.engine.questions import no_gap
from verifair.engine.search.branch_and_bound import decide
from verifair.engine.search.open_goals import PROVED

FIRST, SLICE, SHORTEST, FALL = 0.15, 0.6, 0.2, 0.4
"""Shares of the seconds left for the question that would close the search, and for others; seconds of a question at least; and the
share of what is between both ends that an epsilon falls by."""
STARTS, ROUNDS, VALUES = 64, 6, 24
"""Random points that the search begins at, times that every variable of a point is changed, and values tried of it."""


@dataclass
class _Bracket:
    """What is known. point: the best one (V,), of a question, in a direction.   proofs: [question][direction] of upper."""

    value: float
    point: Array
    question: int
    direction: int
    upper: float
    proofs: list[list[Tree]]
    nodes: int

    @property
    def least(self) -> float:
        """What the largest gap is at least."""
        return max(self.value, 0.0)


def largest_gap_of_trees(
    problem: TwinProblem, *, logit: bool, tolerance: float, budget: Budget, progress: Callable[[float, float], None] | None = None
) -> Extreme:
    """Bracket the largest gap over all questions of a problem about a tree ensemble, whatever its goals.

    tolerance: what the bound may exceed the best point by. progress is called with (witness, bound). Ctrl-C ends it early.
    """
    rng, batch = np.random.default_rng(budget.seed), problem.batch
    end, most = clock.now() + budget.seconds, budget.nodes if budget.nodes is not None else 1 << 62
    known = _Bracket(
        value=-np.inf, point=batch.lower[0], question=0, direction=0, upper=np.inf if logit else 1.0, proofs=[], nodes=0
    )
    out_of: OutOf = "float"
    with deferred_interrupt() as interrupted:
        for question in rng.permutation(len(batch))[:STARTS].tolist():
            if clock.now() > end - SHORTEST:
                break
            start = _anywhere(problem.domain, batch.lower[question], batch.upper[question], rng)
            _climb(problem, known, question, start, logit, rng)
        near, hard = True, 0.0      # whether the next question is about the best gap; the largest one that took too long
        while known.upper - known.least > tolerance:
            left = end - clock.now()
            if interrupted() or left < SHORTEST or known.nodes >= most:
                out_of = "interrupted" if interrupted() else "nodes" if known.nodes >= most else "time"
                break
            hard = max(hard, known.least)
            if near:
                epsilon = known.least + tolerance
            elif np.isinf(known.upper):
                epsilon = 2 * hard + tolerance
            else:
                epsilon = known.upper - FALL * (known.upper - hard)
            epsilon = epsilon if logit else max(epsilon, 2 * SMALLEST)
            if epsilon >= min(known.upper, np.inf if logit else 1 - SMALLEST):
                break
            seconds = max((FIRST if near else SLICE) * left, SHORTEST)
            closed = _ask(problem, known, epsilon, logit, min(seconds, left), most - known.nodes, rng)
            near = closed is False      # a larger gap than that: again close to the best
            if closed is None:
                hard = epsilon
                out_of = "time"
                if known.upper - hard <= tolerance / 2:
                    break
            if progress is not None:
                progress(known.least, known.upper)
    return Extreme(
        upper=known.upper, claim=known.upper, value=known.value, question=known.question, direction=known.direction,
        point=known.point, evidence=known.proofs, by_neurons=False, nodes=known.nodes, out_of=out_of,
    )


def _ask(
    problem: TwinProblem, known: _Bracket, epsilon: float, logit: bool, seconds: float, nodes: int, rng: np.random.Generator
) -> bool | None:
    """Is every gap at most epsilon? True and False change what is known; None: it took too long."""
    goals = no_gap(epsilon, "logit" if logit else "probability")
    group = np.zeros(len(problem.batch), dtype=np.int64)
    found = decide(
        replace(problem, goals=goals), seconds=seconds, max_nodes=nodes, group=group, seed=int(rng.integers(1 << 31))
    )
    known.nodes += int(found.nodes.sum())
    witnesses = np.argwhere(~np.isnan(found.witness[:, :, 0])).tolist()
    if witnesses:
        before = known.value
        for q, direction in witnesses:
            _climb(problem, known, q, found.witness[q, direction], logit, rng)
        return False if known.value > before else None
    if not (found.status == PROVED).all():
        return None
    every = np.arange(len(problem.batch))
    both = [found.trees.of_goal(every, direction) for direction in (0, 1)]
    known.upper, known.proofs = epsilon, [list(row) for row in zip(*both, strict=True)]
    return True


def _anywhere(domain: Domain, lower: Array, upper: Array, rng: np.random.Generator) -> Array:
    share = rng.random(len(lower))
    whole = np.minimum(lower + np.floor(share * (upper - lower + 1)), upper)
    return np.where(domain.integer, whole, np.clip(lower + share * (upper - lower), lower, upper))


def _climb(problem: TwinProblem, known: _Bracket, question: int, raw: Array, logit: bool, rng: np.random.Generator) -> None:
    """Change a raw point (V,) of a question value by value while its gap grows; keep it where it beats what is known."""
    batch, domain = problem.batch, problem.domain
    moving = np.flatnonzero(batch.lower[question] < batch.upper[question])
    best, at = _gaps(problem, question, raw[None], logit)[0], raw
    for _ in range(ROUNDS):
        before = abs(best)
        for v in rng.permutation(moving).tolist():
            tried = np.tile(at, (VALUES, 1))
            for k in range(VALUES):
                tried[k, v] = _anywhere(domain, batch.lower[question], batch.upper[question], rng)[v]
            gaps = _gaps(problem, question, tried, logit)
            k = int(np.abs(gaps).argmax())
            if abs(gaps[k]) > abs(best):
                best, at = float(gaps[k]), tried[k]
        if abs(best) <= before:
            break
    if abs(best) > known.value and np.isfinite(best):
        known.value, known.point, known.question, known.direction = float(abs(best)), at, question, int(best < 0)


def _gaps(problem: TwinProblem, question: int, raw: Array, logit: bool) -> Array:
    """Gaps (N,) from x to x' at raw points (N, V), negative ones rise; 0 where a copy is no legal row."""
    second = problem.batch.take(np.full(len(raw), question)).second(raw)
    g, g_prime = (problem.network.forward(problem.domain.encode(x)) @ problem.margin for x in (raw, second))
    found = g - g_prime if logit else expit(g) - expit(g_prime)
    return np.asarray(np.where(problem.domain.legal(raw) & problem.domain.legal(second), found, 0.0))

