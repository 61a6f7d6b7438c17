"""`maximise`: the largest probability or logit gap: a witness as the lower bound, a certified upper bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from scipy.special import expit

from encoders.arrays import Array
from encoders.evaluate import pair
from encoders.exact.balls import ball, precision, sigmoid
from encoders.exact.dyadic import exact
from encoders.onnx.runtime import runtime_logits
from encoders.probability.logistic import PRECISION, down
from encoders.problem import TwinBatch, TwinProblem
from encoders.trees.mean import MeanOfTrees
from solvers import clock
from solvers.outcome import Budget
from verifair.checker.certificates.certificate import Certificate
from verifair.checker.certificates.envelope import semantics
from verifair.engine.gap.bisection import BestGap, Bracket, bracket
from verifair.engine.gap.search import Extreme, largest_gap
from verifair.engine.queries import ProbabilityGap, Quantity
from verifair.engine.questions import NO_FALL, questions_of, twin_problem
from verifair.engine.search.standard import DEEP
from verifair.engine.verdict import Reason, Witness
from verifair.engine.verify import fairness_certificate
from verifair.engine.witness import witness_at
from verifair.errors import QueryError
from verifair.notebook.pictures import interval
from verifair.notebook.shown import Pictured

SPARE = 0.1
"""Share of the tolerance by which the certificate claims less than the search has proved: room for the checker's own bounds."""
LARGEST = Fraction(np.finfo(np.float64).max)
CLOSED = 1 + 1e-6
"""Bounds so many tolerances apart still count as within the tolerance: the witness is rounded down, the bound up."""
REASONS = {"time": Reason.TIME, "nodes": Reason.NODES, "float": Reason.NUMERICAL, "interrupted": Reason.INTERRUPTED}


@dataclass(frozen=True, kw_only=True, repr=False)
class MaximumGap(Pictured):
    """Bounds of the largest gap between two rows that differ in protected values: lower <= largest gap <= upper.

    lower: the gap at the witness, computed exactly and rounded down (0 without a witness).   upper: proved by the certificate
    (without one: 1, or infinity for log-odds).   reason: why upper - lower exceeds the tolerance (None: it does not).
    quantity: what the gap is of.   scale: "logit" also for values, shares of votes and means, which are compared as they are.
    """

    lower: float
    upper: float
    witness: Witness | None
    certificate: Certificate | None
    reason: Reason | None
    scale: str
    quantity: Quantity
    engine: str
    nodes: int
    seconds: float
    semantics: str

    def _draw(self, path: Path) -> None:
        interval(self.lower, self.upper, f"largest gap, {self.quantity}: met to certified", path)


def maximise(
    query: ProbabilityGap, *, budget: Budget | None = None, tolerance: float = 1e-4, jobs: int = 1,
    progress: Callable[[float, float], None] | None = None,
) -> MaximumGap:
    """Bound the largest gap between two rows of the box that differ in protected values alone, until upper - lower <= tolerance.

    budget: seconds by the clock, and boxes (nodes). When it is spent, or after Ctrl-C, the bounds so far are returned.
    jobs: processes that bound boxes, or ask about different gaps, at the same time.   progress: called with (lower, upper).
    Sound? yes: `lower` is exact, `upper` is proved by the certificate.   Complete? to the tolerance, within the budget.
    Raises QueryError for a tolerance below 1e-6: bounds carry rounding errors.
    """
    if not 1e-6 <= tolerance < 1:
        raise QueryError(f"tolerance = {tolerance}: expected at least 1e-6 (bounds are rounded outwards) and less than 1")
    budget = budget or Budget()
    started = clock.now()
    box, batch = questions_of(query)
    if not (query.model.piecewise_linear or isinstance(query.model, MeanOfTrees)):
        result = bracket(query, batch, tolerance=tolerance, budget=budget, jobs=jobs, progress=progress)
        return _bisected(query, box, batch, result, started)
    # For deep networks, questions about single epsilons have far better bounds than the search for the gap. They come first, as
    # long as they are decided.
    if len(query.model.hidden) < DEEP:
        return _searched(query, box, batch, tolerance, budget, started, jobs, progress)
    nodes = None if budget.nodes is None else (budget.nodes + 1) // 2
    first = _bisected(query, box, batch, bracket(
        query, batch, tolerance=tolerance, budget=replace(budget, nodes=nodes), patient=False, jobs=jobs, progress=progress,
    ), started)
    left = budget.seconds - (clock.now() - started)
    nodes = None if budget.nodes is None else budget.nodes - first.nodes
    if first.reason in (None, Reason.INTERRUPTED) or left <= 0 or (nodes is not None and nodes < 1):
        return first
    second = _searched(query, box, batch, tolerance, replace(budget, seconds=left, nodes=nodes), started, jobs, progress)
    return _tighter(first, second, tolerance)


def _searched(
    query: ProbabilityGap, box: tuple[Array, Array], batch: TwinBatch, tolerance: float, budget: Budget, started: float,
    jobs: int, progress: Callable[[float, float], None] | None,
) -> MaximumGap:
    """Return the result of a search for the gap itself."""
    problem = twin_problem(query, batch, (NO_FALL,))
    logit = query.scale == "logit"
    if query.model.of_trees:
        from verifair.engine.gap.trees import largest_gap_of_trees  # numba is loaded for trees alone

        extreme = largest_gap_of_trees(
            problem, logit=logit, tolerance=(1 - SPARE) * tolerance, budget=budget, jobs=jobs, progress=progress,
        )
    else:
        extreme = largest_gap(
            problem, logit=logit, tolerance=(1 - SPARE) * tolerance, spare=SPARE * tolerance, budget=budget, jobs=jobs,
            progress=progress,
        )
    lower, witness = _witness(query, problem, extreme)
    certificate = None
    if extreme.evidence:
        evidence = [[(tree, False) for tree in row] for row in extreme.evidence]  # for the real-valued function only
        certificate = fairness_certificate(query, batch, box, evidence, epsilon=extreme.claim, scale=query.scale)
    upper = extreme.claim if extreme.evidence or logit else 1.0
    return MaximumGap(
        lower=lower, upper=upper, witness=witness, certificate=certificate,
        reason=None if upper - lower <= tolerance * CLOSED else REASONS[extreme.out_of], scale=query.scale, quantity=query.quantity,
        nodes=extreme.nodes, engine="branch-and-bound" + ", neuron-branching" * extreme.by_neurons,
        seconds=clock.now() - started, semantics=semantics(query.model),
    )


def _tighter(first: MaximumGap, second: MaximumGap, tolerance: float) -> MaximumGap:
    """Return the better witness of two runs, and the smaller bound with its certificate."""
    best = second if second.lower > first.lower else first
    bound = second if second.certificate is not None and second.upper < first.upper else first
    closed = bound.upper - best.lower <= tolerance * CLOSED
    return replace(
        bound, lower=best.lower, witness=best.witness, reason=None if closed else second.reason, nodes=first.nodes + second.nodes,
        seconds=second.seconds,
    )


def _bisected(
    query: ProbabilityGap, box: tuple[Array, Array], batch: TwinBatch, result: Bracket, started: float
) -> MaximumGap:
    """Return the result of questions about one epsilon after the other."""
    certificate, problem = None, twin_problem(query, batch, (NO_FALL,))
    witness = None if result.point is None else _enclosed(query, problem, result.point, result.margins, result.lower)
    if result.answers is not None:
        evidence = [[(answer.evidence, answer.float32) for answer in row] for row in result.answers]
        certificate = fairness_certificate(query, batch, box, evidence, epsilon=result.upper, scale=query.scale)
    return MaximumGap(
        lower=result.lower, upper=result.upper, witness=witness, certificate=certificate, reason=result.reason, scale=query.scale,
        quantity=query.quantity, engine="bisection, branch-and-bound", nodes=result.nodes, seconds=clock.now() - started,
        semantics=semantics(query.model),
    )


def _enclosed(
    query: ProbabilityGap, problem: TwinProblem, point: tuple[int, Array], margins: tuple[float, float], lower: float
) -> Witness:
    """Return the witness of a question's point: its two rows, the larger probability first, from balls around their margins."""
    q, x = point
    rows = np.stack([x, problem.batch.take([q]).second(x[None])[0]])
    if margins[0] < margins[1]:
        rows, margins = rows[::-1], (margins[1], margins[0])
    first, second = query.schema.encode(rows)
    agrees = _replayed(query, problem, first[None], second[None], lower)
    return witness_at(query.schema, query.model, rows, margins, margin=lower, agrees=agrees)


def _witness(query: ProbabilityGap, problem: TwinProblem, extreme: Extreme) -> tuple[float, Witness | None]:
    """Return the exact gap at the best point, rounded down, and its two rows, the larger probability first."""
    question, raw = np.array([extreme.question]), extreme.point[None]
    second = problem.batch.take(question).second(raw)
    if not (problem.domain.legal(raw)[0] and problem.domain.legal(second)[0]):
        return 0.0, None
    if not query.model.piecewise_linear:
        best = BestGap(problem, query.scale == "logit")
        best.look(extreme.question, extreme.point)
        lower, point, margins = best.best
        return lower, None if point is None else _enclosed(query, problem, point, margins, lower)
    x, x_prime = pair(problem, question, raw)
    logits = query.model.forward(exact(np.concatenate([x, x_prime])))
    weights = problem.margin
    exact_margins = [sum(f * Fraction(w) for f, w in zip(row, weights.tolist(), strict=True)) for row in logits.to_fractions()]
    rows = [raw[0], second[0]]
    if exact_margins[0] < exact_margins[1]:
        exact_margins, rows, x, x_prime = exact_margins[::-1], rows[::-1], x_prime, x
    logit = query.scale == "logit"
    gap = float(np.nextafter(_float(exact_margins[0] - exact_margins[1]), -np.inf)) if logit else gap_bounds(*exact_margins)[0]
    outputs = _float(exact_margins[0]), _float(exact_margins[1])
    agrees = _replayed(query, problem, x, x_prime, gap)
    return max(gap, 0.0), witness_at(query.schema, query.model, np.array(rows), outputs, margin=gap, agrees=agrees)


def _float(value: Fraction) -> float:
    """Return the nearest float64; infinite for logits beyond its range, which absurd networks have."""
    return float(min(max(value, -LARGEST), LARGEST))


def _replayed(query: ProbabilityGap, problem: TwinProblem, x: Array, x_prime: Array, gap: float) -> bool | None:
    """Return True if float32 onnxruntime shows the gap as well; None for a network without a file."""
    if query.model.source is None:
        return None
    g, g_prime = (float((runtime_logits(query.model, inputs.astype(np.float32)) @ problem.margin)[0]) for inputs in (x, x_prime))
    replayed = g - g_prime if query.scale == "logit" else float(expit(g) - expit(g_prime))
    return bool(abs(replayed - gap) <= 1e-4 * max(1.0, abs(gap)))


def gap_bounds(a: Fraction, b: Fraction) -> tuple[float, float]:
    """Return float64 numbers just below and just above sigma(a) - sigma(b)."""
    with precision(PRECISION):
        gap = sigmoid(ball(a)) - sigmoid(ball(b))
        return down(gap), -down(-gap)
