"""The largest gap by questions "is it more than epsilon?". It serves smooth networks, which `gap.search` does not bound, and deep
ones, which that search bounds by forward forms only.

The log-odds of several classes are smooth, too (`encoders.decision`). Each question is decided as by `verify`. A counterexample
gives a lower bound, a proof an upper one. The next epsilon lies halfway between the two, or several lie at equal distances, one for
each process.
Sound? yes: the gap at the point is enclosed by balls and rounded down, and the upper bound is that of the last proof.   Complete?
within the budget, as far as each question is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.special import expit

from encoders.arrays import Array
from encoders.evaluate import pair
from encoders.exact.balls import Balls, ball, precision, sigmoid
from encoders.probability.logistic import SMALLEST
from encoders.problem import TwinBatch, TwinProblem
from solvers import clock
from solvers.outcome import Budget
from verifair.engine.answer import GoalAnswer
from verifair.engine.cascade import solve
from verifair.engine.parallel import Deadline, Helpers, Shared
from verifair.engine.queries import ProbabilityGap
from verifair.engine.questions import no_gap, twin_problem
from verifair.engine.verdict import Reason, Status

BITS = 192
SAMPLES = 4096
"""Random points that are evaluated first."""
SHARE = 0.25
"""Share of the time left that one question gets."""
SMOOTHEST = 1e6
"""The largest gap of log-odds that is asked about."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Bracket:
    """lower: the gap at `point`, rounded down, 0 without one.   point: (question, raw x (V,)).   margins: g(x), g(x') there.

    upper: proved by `answers` [question][direction], infinity without them.   reason: why the two are no closer.
    """

    lower: float
    point: tuple[int, Array] | None
    margins: tuple[float, float]
    upper: float
    answers: list[list[GoalAnswer]] | None
    reason: Reason | None
    nodes: int


@np.errstate(all="ignore")  # overflow proves nothing
def bracket(
    query: ProbabilityGap, batch: TwinBatch, *, tolerance: float, budget: Budget, patient: bool = True, jobs: int,
    progress: Callable[[float, float], None] | None,
) -> Bracket:
    """Return the largest gap of the query's questions, bracketed to the tolerance or as far as the budget goes.

    patient: go on after an epsilon that is neither proved nor refuted.   jobs: processes, each with an epsilon.
    """
    logit, deadline = query.scale == "logit", clock.now() + budget.seconds
    problem = twin_problem(query, batch, no_gap(1.0 if logit else 0.5, query.scale))
    attained = BestGap(problem, logit)
    attained.sample(np.random.default_rng(budget.seed))
    decide: Shared[Callable[..., list[list[GoalAnswer]]]] = Shared(value=partial(_ask, query, batch))
    helpers = Helpers(decide, jobs)
    upper, largest, nodes, reason = np.inf if logit else 1.0, attained.value, 0, None
    certified: tuple[float, list[list[GoalAnswer]] | None] = upper, None  # one value: Ctrl-C separates no bound from its proofs
    try:
        while upper - largest > tolerance and reason is None:
            left = deadline - clock.now()
            if left <= 0 or (budget.nodes is not None and nodes >= budget.nodes):
                reason = Reason.TIME if left <= 0 else Reason.NODES
                break
            epsilons = [
                epsilon for epsilon in _between(largest, upper, helpers.steps())
                if epsilon <= SMOOTHEST and (logit or SMALLEST <= epsilon <= 1 - SMALLEST)
            ]
            if not epsilons:
                reason = Reason.NUMERICAL
                break
            share = None if budget.nodes is None else max((budget.nodes - nodes) // len(epsilons), 1)
            limits = replace(budget, seconds=max(SHARE * left, 0.05), nodes=share)
            decided, end = False, Deadline.after(left)
            for epsilon, decisions in zip(epsilons, helpers.together([(e, limits, end) for e in epsilons]), strict=True):
                all_answers = [answer for row in decisions for answer in row]
                nodes += sum(answer.nodes for answer in all_answers)
                for q, row in enumerate(decisions):
                    for answer in row:
                        if answer.witness is not None:
                            attained.look(q, answer.witness)
                # A solver's claim, which nobody can check, bounds nothing.
                proved = all(answer.status is Status.PROVED and answer.tree is not None for answer in all_answers)
                decided |= proved or any(answer.status is Status.VIOLATED for answer in all_answers)
                if proved and epsilon < upper:
                    certified = epsilon, decisions
                    upper = epsilon
                elif epsilon < upper:
                    largest = epsilon
            largest = max(largest, attained.value)
            if progress is not None:
                progress(attained.value, upper)
            if not (patient or decided):
                break
    except KeyboardInterrupt:
        reason = Reason.INTERRUPTED
    upper, answers = certified
    if upper - attained.value > tolerance and reason is None:
        reason = Reason.TIME  # questions about gaps in between stayed open
    lower, point, margins = attained.best
    return Bracket(lower=lower, point=point, margins=margins, upper=upper, answers=answers, reason=reason, nodes=nodes)


@np.errstate(all="ignore")
def _ask(
    query: ProbabilityGap, batch: TwinBatch, epsilon: float, budget: Budget, end: Deadline
) -> list[list[GoalAnswer]]:
    """Decide whether any gap of all pairs is more than epsilon."""
    problem, limits = twin_problem(query, batch, no_gap(epsilon, query.scale)), replace(budget, seconds=end.within(budget.seconds))
    return solve(problem, method="auto", solver=None, budget=limits, group=np.zeros(len(batch), dtype=np.int64))


def _between(lower: float, upper: float, count: int) -> list[float]:
    """Return the epsilons to ask about at the same time, the smallest first."""
    if np.isinf(upper):
        return [max(2 * lower, 1.0) * 2.0**k for k in range(count)]
    return [lower + (upper - lower) * (k + 1) / (count + 1) for k in range(count)]


class BestGap:
    """The largest gap found at a point. best: its value, the point (question, raw x (V,)), and the margins g(x), g(x') there, in
    one tuple, so that Ctrl-C cannot separate them."""

    def __init__(self, problem: TwinProblem, logit: bool) -> None:
        self.problem, self.logit = problem, logit
        self.best: tuple[float, tuple[int, Array] | None, tuple[float, float]] = 0.0, None, (0.0, 0.0)

    @property
    def value(self) -> float:
        return self.best[0]

    def sample(self, rng: np.random.Generator) -> None:
        """Evaluate random points of all questions."""
        batch, domain = self.problem.batch, self.problem.domain
        question = np.resize(np.arange(len(batch)), max(SAMPLES, len(batch)))
        low, high = batch.lower[question], batch.upper[question]
        raw = low + rng.random(low.shape) * (high - low)
        raw = np.where(domain.integer, np.floor(low + rng.random(low.shape) * (high - low + 1 - 1e-9)), raw)
        legal = domain.legal(raw) & domain.legal(batch.take(question).second(raw))
        question, raw = question[legal], raw[legal]
        if not len(raw):
            return
        g, g_prime = (self.problem.network.forward(inputs) @ self.problem.margin for inputs in pair(self.problem, question, raw))
        gaps = np.abs(g - g_prime) if self.logit else np.abs(expit(g) - expit(g_prime))
        best = int(np.nanargmax(gaps)) if np.isfinite(gaps).any() else 0
        self.look(int(question[best]), raw[best])

    def look(self, question: int, raw: Array) -> None:
        """Evaluate a point whose rows are legal, and keep it if its gap is the largest so far."""
        x, x_prime = pair(self.problem, np.array([question]), raw[None])
        gap, margins = self._gap(np.concatenate([x, x_prime]))
        if gap > self.value:
            self.best = gap, (question, raw), margins

    def _gap(self, inputs: Array) -> tuple[float, tuple[float, float]]:
        """Return the gap between two network inputs (2, n), rounded down, and their margins for display."""
        network, weights = self.problem.network, self.problem.margin.tolist()
        with precision(BITS):
            logits = network.forward(Balls.of(inputs)).rows()
            g, g_prime = (sum((ball(w) * v for w, v in zip(weights, row, strict=True)), ball(0.0)) for row in logits)
            gap = abs(g - g_prime) if self.logit else abs(sigmoid(g) - sigmoid(g_prime))
            return max(float(np.nextafter(float(gap.lower()), -np.inf)), 0.0), (float(g.mid()), float(g_prime.mid()))
