"""The CEC score of a pair of explanations, its parts by column, and the four regimes.  (CEC, definition 3, table 1)"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from encoders.network import Array, Booleans
from verifair.errors import QueryError

EPSILON = 1e-8
"""The paper's, in the norms: explanations much smaller than this shrink towards 0 instead of being scaled up."""
THRESHOLD = 0.5
"""Explanations more than 60 degrees apart differ: the score is sin(angle / 2). The paper names no threshold."""
REGIMES = {
    "A": "same decision, same reasons",
    "B": "same decision, different reasons (hidden bias)",
    "C": "different decision, same reasons",
    "D": "different decision, different reasons",
}


def normalised(g: Array) -> Array:
    """g / (|g|_2 + 1e-8) for attributions g (B, n_0)."""
    largest = np.maximum(np.abs(g).max(axis=1, keepdims=True, initial=0.0), np.finfo(float).tiny)
    norm = np.linalg.norm(g / largest, axis=1, keepdims=True) * largest  # squares neither overflow nor vanish
    return np.asarray(g / (norm + EPSILON))


def cec_score(g: Array, g_tilde: Array) -> Array:
    """(B,) half the distance of the normalised attributions, in [0, 1]: sin(angle / 2), 0 parallel, 1 opposed."""
    return np.asarray(np.linalg.norm(normalised(g) - normalised(g_tilde), axis=1) / 2)


def contributions(g: Array, g_tilde: Array) -> Array:
    """(B, n_0) each column's part of the squared score: they sum to cec_score ** 2."""
    return np.asarray((normalised(g) - normalised(g_tilde)) ** 2 / 4)


def regimes(score: Array, same_decision: Booleans, threshold: float = THRESHOLD) -> npt.NDArray[np.str_]:
    """(B,) A, B, C or D; explanations are the same when the score is at most the threshold. Raises QueryError outside [0, 1]."""
    if not 0 <= threshold <= 1:
        raise QueryError(f"threshold = {threshold}: the score lies in [0, 1]; expected a number there, such as {THRESHOLD}")
    same = score <= threshold
    return np.where(same_decision, np.where(same, "A", "B"), np.where(same, "C", "D"))
