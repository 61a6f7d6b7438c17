"""The largest gap of a tree ensemble, by questions "is every gap at most epsilon?" for different epsilon.

A local search first finds a large gap (`ascent`). A counterexample has a larger gap than epsilon, and the local search continues
from it. A proof that every gap is at most epsilon gives an upper bound, and is the certificate. Epsilon lies a tolerance above the
best gap while that grows. If such a question takes too long, epsilon comes down from the upper bound. The time of a proof grows
about exponentially as epsilon falls, so the last two proofs say which epsilon takes most of the time left. Epsilon rises again if
a question took too long. Several processes ask about several values at a time, at equal distances up to the bound.
Over a box the bounds D of g - g', U of g and V of g', and two lines between them, leave a polygon of pairs (g, g'): no gap there
exceeds epsilon where a tangent of the curve cuts off its corners (`encoders.probability.logistic`).
Sound? yes: every bound has a proof, every gap a point.   Complete? to the tolerance, given time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from encoders.arrays import Array, Integers
from encoders.model import Link
from encoders.probability.logistic import SMALLEST
from encoders.problem import TwinProblem
from encoders.trees.mean import MeanOfTrees
from solvers import clock
from solvers.outcome import Budget
from verifair.checker.certificates.statement import Scale
from verifair.checker.certificates.tree import Tree
from verifair.engine.gap.ascent import Ascent
from verifair.engine.gap.search import Extreme, OutOf
from verifair.engine.parallel import Deadline, Helpers, Shared
from verifair.engine.questions import no_gap
from verifair.engine.search.branch_and_bound import decide
from verifair.engine.search.open_goals import OUT_OF_NODES, PROVED
from verifair.interrupts import noted_interrupt

FIRST, SLICE, AIM, SHORTEST = 0.15, 0.9, 0.45, 0.2
"""Shares of the seconds left: for the question that would close the search, for others at most, and for what they should take; and
the least seconds of a question."""
FALL, LEAST_FALL, LARGEST_FALL = 0.2, 0.1, 0.9
"""The share of the interval by which epsilon comes down before two proofs are known, and its limits afterwards."""
CLIMB = 0.1
"""Largest share of the seconds for the local search."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Answer:
    """The answer about one epsilon: points (N, V) of questions (N,) with larger gaps; or proofs [question][direction] that there is
    none; or neither, and the limit that ended it.   nodes: boxes bounded.   seconds: what that took."""

    question: Integers
    point: Array
    proofs: list[list[Tree]] | None
    out_of: OutOf
    nodes: int
    seconds: float


@dataclass
class _Bracket:
    """The state of the search: the best points, the bound `upper`, its proofs [question][direction], and the bounds so far with the
    seconds that their proofs took."""

    ascent: Ascent
    upper: float
    proofs: list[list[Tree]]
    nodes: int
    proved: list[tuple[float, float]] = field(default_factory=list)

    @property
    def least(self) -> float:
        """A lower bound of the largest gap."""
        return max(self.ascent.best, 0.0)

    def learn(self, epsilon: float, answer: _Answer) -> bool | None:
        """Update the bounds with an answer to "is every gap at most epsilon?": True, False, or None (not decided)."""
        self.nodes += answer.nodes
        previous = self.least
        if len(answer.question):
            self.ascent.from_rows(answer.question, answer.point)
            return False if self.least > previous else None
        if answer.proofs is None:
            return None
        if epsilon < self.upper:
            self.upper, self.proofs = epsilon, answer.proofs
            self.proved.append((epsilon, answer.seconds))
        return True

    def below(self, hard: float, left: float) -> float:
        """Return the next epsilon between `hard`, which took too long, and the bound, for so many seconds left."""
        fall = FALL
        if len(self.proved) > 1:
            (first, shorter), (second, longer) = self.proved[-2:]
            growth = np.log(longer / shorter) / (first - second)
            steps = np.log(AIM * left / longer) / growth if growth > 0 else np.inf
            fall = float(np.clip(steps / (self.upper - hard), LEAST_FALL, LARGEST_FALL))
        return self.upper - fall * (self.upper - hard)


def largest_gap_of_trees(
    problem: TwinProblem, *, logit: bool, tolerance: float, budget: Budget, jobs: int = 1,
    progress: Callable[[float, float], None] | None = None,
) -> Extreme:
    """Bracket the largest gap over all questions of a problem about a tree ensemble, whatever its goals.

    tolerance: by which the bound may exceed the best point.   jobs: processes, each with an epsilon.   progress is called with
    (witness, bound). Ctrl-C ends it early.
    """
    rng, started = np.random.default_rng(budget.seed), clock.now()
    end, climb_end = started + budget.seconds, started + CLIMB * budget.seconds
    max_nodes = budget.nodes if budget.nodes is not None else 1 << 62
    mean = isinstance(problem.network, MeanOfTrees) and problem.network.link is Link.SHARES
    trivial = np.inf if logit and not mean else 1.0
    bracket = _Bracket(ascent=Ascent(problem, logit, rng), upper=trivial, proofs=[], nodes=0)
    out_of: OutOf = "float"
    with noted_interrupt(deferred=True) as interrupted:
        bracket.ascent.run(lambda: interrupted() or clock.now() >= climb_end)
        if progress is not None:
            progress(bracket.least, bracket.upper)
        shared: Shared[Callable[..., _Answer]] = Shared(value=partial(_ask, problem, "logit" if logit else "probability"))
        helpers = Helpers(shared, jobs)
        just_above, hard = True, 0.0      # True: ask next just above the best gap; the largest epsilon that took too long
        while bracket.upper - bracket.least > tolerance * (1 + 1e-9):    # epsilon is rounded
            left = end - clock.now()
            if interrupted() or left < SHORTEST or bracket.nodes >= max_nodes:
                out_of = "interrupted" if interrupted() else "nodes" if bracket.nodes >= max_nodes else "time"
                break
            hard = max(hard, bracket.least)
            if just_above:
                epsilon = bracket.least + tolerance
            elif np.isinf(bracket.upper):
                epsilon = 2 * hard + tolerance
            else:
                epsilon = bracket.below(hard, left)
            epsilon = epsilon if logit else max(epsilon, 2 * SMALLEST)
            if epsilon >= min(bracket.upper, np.inf if logit else 1 - SMALLEST):
                break
            seconds = min(max((FIRST if just_above else SLICE) * left, SHORTEST), left)
            epsilons = _from(epsilon, bracket.upper if logit else min(bracket.upper, 1 - SMALLEST), helpers.steps())
            nodes = max((max_nodes - bracket.nodes) // len(epsilons), 1)
            limit = Deadline.after(left)
            questions = [
                (e, Budget(seconds=seconds, nodes=nodes, seed=int(rng.integers(1 << 31))), limit) for e in epsilons
            ]
            just_above = unanswered = False
            for e, answer in zip(epsilons, helpers.together(questions), strict=True):
                decided = bracket.learn(e, answer)
                just_above |= decided is False      # a larger gap was found: ask just above it next
                if decided is None and e < bracket.upper:
                    hard, unanswered, out_of = e, True, answer.out_of
            if unanswered and bracket.upper - hard <= tolerance / 2:
                break
            if progress is not None:
                progress(bracket.least, bracket.upper)
    question, direction, point = bracket.ascent.found()
    return Extreme(
        upper=bracket.upper, claim=bracket.upper, value=bracket.ascent.best, question=question, direction=direction, point=point,
        evidence=bracket.proofs, by_neurons=False, nodes=bracket.nodes, out_of=out_of,
    )


def _ask(problem: TwinProblem, scale: Scale, epsilon: float, budget: Budget, end: Deadline) -> _Answer:
    """Decide whether any gap of all pairs is more than epsilon."""
    index, started = np.arange(len(problem.batch)), clock.now()
    decision = decide(
        replace(problem, goals=no_gap(epsilon, scale)), seconds=end.within(budget.seconds), max_nodes=budget.nodes,
        group=0 * index, seed=budget.seed,
    )
    question, direction = np.nonzero(~np.isnan(decision.witness[:, :, 0]))
    proofs = None
    if not len(question) and (decision.status == PROVED).all():
        by_direction = [decision.trees.of_goal(index, d) for d in (0, 1)]
        proofs = [list(row) for row in zip(*by_direction, strict=True)]
    point, reasons = decision.witness[question, direction], set(decision.out_of.tolist())
    out_of: OutOf = "time" if "time" in reasons else "nodes" if OUT_OF_NODES in reasons else "float"
    return _Answer(question=question, point=point, proofs=proofs, out_of=out_of, nodes=int(decision.nodes.sum()),
                   seconds=clock.now() - started)


def _from(epsilon: float, upper: float, count: int) -> list[float]:
    """Return `count` epsilons to ask about at the same time, from `epsilon` upwards."""
    if np.isinf(upper):
        return [epsilon * 2.0**k for k in range(count)]
    return [epsilon + (upper - epsilon) * k / count for k in range(count)]
