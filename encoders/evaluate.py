"""The margins of both copies at raw points: in float64 to look for witnesses, exactly to confirm them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from encoders.dyadic import Dyadic, exact
from encoders.network import Array, Layer, affine
from encoders.problem import Integers, TwinProblem

CHUNK = 128
"""Points a chunk: the limbs of one chunk of a wide layer fit the cache."""


def pair(problem: TwinProblem, question: Integers, raw: Array) -> tuple[Array, Array]:
    """Network inputs x and x' (B, n) of raw points (B, V) of the given questions."""
    second = problem.batch.take(question).second(raw)
    return problem.domain.encode(raw), problem.domain.encode(second)


def exact_rows(problem: TwinProblem, question: Integers, raw: Array) -> tuple[npt.NDArray[np.bool_], Array]:
    """Which rows are met (B, R) at raw points (B, V), decided exactly, and the margins g(x), g(x') (B, 2) for display.

    Sound? yes: error-free arithmetic over the stored weights and the float32 inputs, no rounding anywhere.
    """
    margin = Layer(weight=problem.margin[None, :], bias=np.zeros(1), slope=np.ones(1))
    rows = Layer(weight=problem.rows, bias=np.zeros(len(problem.rows)), slope=np.ones(len(problem.rows)))
    strict = problem.strict
    met = np.empty((len(raw), len(problem.rows)), dtype=bool)
    margins = np.empty((len(raw), 2))
    for start in range(0, len(raw), CHUNK):
        part = slice(start, start + CHUNK)
        x, x_prime = pair(problem, question[part], raw[part])
        logits = problem.network.forward(exact(np.concatenate([x, x_prime])))
        flat = affine(logits, margin)
        both = Dyadic(limbs=flat.limbs.reshape(len(flat.limbs), 2, -1).transpose(0, 2, 1), exponent=flat.exponent)
        sign = affine(both, rows).sign
        met[part] = np.where(strict, sign > 0, sign >= 0)
        margins[part] = both.to_float()
    return met, margins
