"""The margins of both copies at raw points: in float64 to look for witnesses, exactly to confirm them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.special

from encoders.dyadic import Dyadic, exact
from encoders.network import Array, Layer, affine
from encoders.probability import exceeds
from encoders.problem import Gap, Integers, TwinProblem

CHUNK = 128
"""Points a chunk: the limbs of one chunk of a wide layer fit the cache."""


def pair(problem: TwinProblem, question: Integers, raw: Array) -> tuple[Array, Array]:
    """Network inputs x and x' (B, n) of raw points (B, V) of the given questions."""
    second = problem.batch.take(question).second(raw)
    return problem.domain.encode(raw), problem.domain.encode(second)


def exact_goals(problem: TwinProblem, question: Integers, raw: Array) -> tuple[npt.NDArray[np.bool_], Array]:
    """Which goals are met (B, G) at raw points (B, V), decided exactly, and the margins g(x), g(x') (B, 2) for display.

    Sound? yes: error-free arithmetic over the stored weights and the float32 inputs, no rounding anywhere; probabilities are
    compared in ball arithmetic at whatever precision decides.
    """
    margin = Layer(weight=problem.margin[None, :], bias=np.zeros(1), slope=np.ones(1))
    rows = Layer(weight=problem.rows, bias=problem.constants, slope=np.ones(len(problem.rows)))
    met = np.empty((len(raw), len(problem.goals)), dtype=bool)
    margins = np.empty((len(raw), 2))
    for start in range(0, len(raw), CHUNK):
        part = slice(start, start + CHUNK)
        x, x_prime = pair(problem, question[part], raw[part])
        logits = problem.network.forward(exact(np.concatenate([x, x_prime])))
        flat = affine(logits, margin)
        both = Dyadic(limbs=flat.limbs.reshape(len(flat.limbs), 2, -1).transpose(0, 2, 1), exponent=flat.exponent)
        sign = affine(both, rows).sign
        met[part] = problem.goals_met(np.where(problem.strict, sign > 0, sign >= 0))
        margins[part] = both.to_float()
        for g, goal in enumerate(problem.goals):
            if goal.gap is not None:  # the rows are sufficient; where none holds, the probabilities themselves decide
                for k in np.flatnonzero(~met[part, g]):
                    met[start + k, g] = not _gap_exceeded(both[int(k)], goal.gap)
    return met, margins


def _gap_exceeded(margins: Dyadic, gap: Gap) -> bool:
    first, second = margins.to_fractions()
    return exceeds(second, first, gap.epsilon) if gap.rise else exceeds(first, second, gap.epsilon)


def seems_unmet(problem: TwinProblem, margins: Array, noise: Array) -> npt.NDArray[np.bool_]:
    """(B, G) which goals float64 margins (B, 2), off by up to noise (B,), do not surely show to be met: to be decided exactly."""
    values = margins @ problem.rows.T + problem.constants
    unmet = ~problem.goals_met(problem.rows_met(values - noise[:, None]))
    for g, goal in enumerate(problem.goals):
        if goal.gap is not None:
            unmet[:, g] &= gap(margins, goal.gap) > goal.gap.epsilon - 1e-9 - noise
    return unmet


def gap(margins: Array, towards: Gap) -> Array:
    """(B,) sigma(g(x)) - sigma(g(x')) of float64 margins (B, 2), negated for a rise: to look for witnesses and to show."""
    probability = scipy.special.expit(margins)
    difference = probability[..., 0] - probability[..., 1]
    return np.asarray(-difference if towards.rise else difference)
