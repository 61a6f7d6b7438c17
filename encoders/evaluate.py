"""The margins of both copies at raw points: in float64 to search for witnesses, exactly to confirm them."""

from __future__ import annotations

import numpy as np
import scipy.special
from flint import arb

from encoders.arrays import Array, Booleans, Integers
from encoders.exact.balls import PRECISIONS, Balls, ball, precision, sigmoid
from encoders.exact.dyadic import Dyadic, exact
from encoders.model import Model
from encoders.network import Layer, affine
from encoders.probability.logistic import GapGoal, exceeds
from encoders.problem import Goal, TwinProblem
from solvers import clock

EXACT, BALL = 12, 3000
"""Float64 multiplications that take as long as one in exact arithmetic, and one in ball arithmetic."""
OF_TREES = 64
"""Ball operations for functions of trees' scores in a row, about: the scores themselves are exact."""
EXACT_POINTS = 128
"""Points evaluated exactly at once, so that their limbs in a wide layer fit the cache."""


WORK = 1 << 30
"""Multiplications of one evaluation, about a tenth of a second."""


def at_once(network: Model, count: int) -> int:
    """Return how many of `count` pairs of points to evaluate at once: fewer for large networks, so that deadlines are met."""
    return int(min(max(WORK // (2 * network.work), 16), count))


EXACTLY = 1e-7
"""Seconds of the first exact evaluation, and of onnxruntime's, for each of the network's weights: both convert these first."""


def seconds_exactly(network: Model) -> float:
    """Return the seconds to confirm a first point exactly, which a search reserves."""
    return EXACTLY * network.work


def pair(problem: TwinProblem, question: Integers, raw: Array) -> tuple[Array, Array]:
    """Return network inputs x and x' (B, n) of raw points (B, V) of the given questions."""
    second = problem.batch.take(question).second(raw)
    return problem.domain.encode(raw), problem.domain.encode(second)


def settled_goals(problem: TwinProblem, question: Integers, raw: Array) -> tuple[Booleans, Booleans, Array]:
    """Return (B, G) True for goals that are met at raw points (B, V), (B, G) True for goals that are not, and the margins (B, 2).

    For a piecewise-linear network every goal is one or the other. For a smooth one a goal may be neither: values are enclosed
    by balls, and a row that is 0, or nearer to 0 than PRECISIONS resolve, stays undecided. The margins are for display.
    Sound? yes.  Complete? for piecewise-linear networks.
    """
    if problem.network.piecewise_linear:
        met, margins = exact_goals(problem, question, raw)
        return met, ~met, margins
    met, unmet = (np.zeros((len(raw), len(problem.goals)), dtype=bool) for _ in range(2))
    margins = np.full((len(raw), 2), np.nan)
    undecided = np.arange(len(raw))
    for bits in PRECISIONS:
        for start in range(0, len(undecided), EXACT_POINTS):
            part = undecided[start : start + EXACT_POINTS]
            _by_balls(problem, question[part], raw[part], bits, part, (met, unmet, margins))
        undecided = undecided[~(met | unmet)[undecided].all(axis=1)]
        if not len(undecided):
            break
    return met, unmet, margins


def _by_balls(
    problem: TwinProblem, question: Integers, raw: Array, bits: int, place: Integers, into: tuple[Booleans, Booleans, Array]
) -> None:
    """Decide goals at raw points (B, V) with one precision; write the results into rows `place` of met, unmet and margins."""
    met, unmet, margins = into
    x, x_prime = pair(problem, question, raw)
    network = problem.network
    equal = network.surely_equal(x, x_prime)
    clock.spend(2 * len(x) * (EXACT * network.work + BALL * OF_TREES if network.of_trees else BALL * network.work))
    with precision(bits):
        weights = [ball(float(v)) for v in problem.margin]
        logits = network.forward(Balls.of(np.concatenate([x, x_prime]))).rows()
        margin_balls = [sum((w * v for w, v in zip(weights, row, strict=True)), ball(0.0)) for row in logits]
        for k, row in enumerate(place.tolist()):
            g, g_prime = margin_balls[k], margin_balls[k] if equal[k] else margin_balls[k + len(place)]
            if not (_is_precise(g) and _is_precise(g_prime)):
                continue
            margins[row] = float(g.mid()), float(g_prime.mid())
            for number, goal in enumerate(problem.goals):
                values = _gap_values(goal.gap, g, g_prime, equal[k]) if goal.gap else _row_values(goal, g, g_prime, equal[k])
                signs = list(zip(values, [False] if goal.gap else goal.strict_rows.tolist(), strict=True))
                met[row, number] = any(value > 0 if strict else value >= 0 for value, strict in signs)
                unmet[row, number] = all(value <= 0 if strict else value < 0 for value, strict in signs)


def _is_precise(g: arb) -> bool:
    """Return True if a ball is narrower than float64 resolves, so that its middle can be reported as the margin."""
    return bool(g.rad() * 2**56 < 1 + abs(g.mid()))


def _row_values(goal: Goal, g: arb, g_prime: arb, same: bool) -> list[arb]:
    """Return the rows' values at margins g, g'. If these are the `same` number, g - g' is exactly 0, not a ball around it."""
    values = []
    for (a, b), constant in zip(goal.rows.tolist(), goal.constants.tolist(), strict=True):
        values.append(((ball(a) + ball(b)) * g if same else ball(a) * g + ball(b) * g_prime) + ball(constant))
    return values


def _gap_values(gap: GapGoal, g: arb, g_prime: arb, same: bool) -> list[arb]:
    """Return epsilon - (sigma(g) - sigma(g')): the curve itself, of which the rows are tangents."""
    difference = ball(0.0) if same else sigmoid(g) - sigmoid(g_prime)
    return [ball(gap.epsilon) - (-difference if gap.rise else difference)]


def exact_goals(problem: TwinProblem, question: Integers, raw: Array) -> tuple[Booleans, Array]:
    """Return (B, G) True for goals that are met at raw points (B, V), decided exactly, and the margins (B, 2) for display.

    Raises CurveError for a smooth network: it has no exact margins (see `settled_goals`).
    Sound? yes: error-free arithmetic over the stored weights and the float32 inputs, no rounding anywhere; probabilities are
    compared in ball arithmetic at whatever precision decides.
    """
    margin = Layer(weight=problem.margin[None, :], bias=np.zeros(1), slope=np.ones(1))
    rows = Layer(weight=problem.rows, bias=problem.constants, slope=np.ones(len(problem.rows)))
    met = np.empty((len(raw), len(problem.goals)), dtype=bool)
    margins = np.empty((len(raw), 2))
    for start in range(0, len(raw), EXACT_POINTS):
        part = slice(start, start + EXACT_POINTS)
        x, x_prime = pair(problem, question[part], raw[part])
        clock.spend(EXACT * 2 * len(x) * problem.network.work)
        logits = problem.network.forward(exact(np.concatenate([x, x_prime])))
        flat = affine(logits, margin)
        pairs = Dyadic(limbs=flat.limbs.reshape(len(flat.limbs), 2, -1).transpose(0, 2, 1), exponent=flat.exponent)
        sign = affine(pairs, rows).sign
        met[part] = problem.goals_met(np.where(problem.strict, sign > 0, sign >= 0))
        margins[part] = pairs.to_float()
        for g, goal in enumerate(problem.goals):
            if goal.gap is not None:  # the rows are sufficient; where none holds, the probabilities themselves decide
                for k in np.flatnonzero(~met[part, g]):
                    met[start + k, g] = not _gap_exceeded(pairs[int(k)], goal.gap)
    return met, margins


def _gap_exceeded(margins: Dyadic, gap: GapGoal) -> bool:
    first, second = margins.to_fractions()
    return exceeds(second, first, gap.epsilon) if gap.rise else exceeds(first, second, gap.epsilon)


def seems_unmet(problem: TwinProblem, margins: Array, noise: Array) -> Booleans:
    """Return (B, G) True for goals that float64 margins (B, 2), with errors up to noise (B,), do not surely show to be met."""
    values = margins @ problem.rows.T + problem.constants
    unmet = ~problem.goals_met(problem.rows_met(values - noise[:, None]))
    for g, goal in enumerate(problem.goals):
        if goal.gap is not None:
            unmet[:, g] &= gap(margins, goal.gap) > goal.gap.epsilon - 1e-9 - noise
    return unmet


def gap(margins: Array, towards: GapGoal) -> Array:
    """Return (B,) sigma(g(x)) - sigma(g(x')) of float64 margins (B, 2), negated for a rise: for searches and display."""
    probability = scipy.special.expit(margins)
    difference = probability[..., 0] - probability[..., 1]
    return np.asarray(-difference if towards.rise else difference)
