"""Explanations, the CEC score of a pair of them, its parts by column, and the four regimes.  (CEC, definition 3, table 1)"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from encoders.arrays import Array, Booleans
from encoders.attributions.gradients import integrated_gradients
from encoders.model import Model
from encoders.network import Network
from verifair.engine.questions import margin
from verifair.errors import QueryError
from verifair.systems.cec.settings import MAX_STEPS, THRESHOLD

EPSILON = 1e-8
"""The paper's, in the norms: explanations much smaller than this shrink towards 0 instead of being scaled up."""
Regime = Literal["A", "B", "C", "D"]
REGIMES: dict[Regime, str] = {
    "A": "same decision, same reasons",
    "B": "same decision, different reasons (hidden bias)",
    "C": "different decision, same reasons",
    "D": "different decision, different reasons",
}


def positive_margin(network: Model) -> Array:
    """Return the weights (n_N,) of f = logit_1 - logit_0, or of the only logit. Raises QueryError for more than two classes."""
    if network.outputs > 2:
        raise QueryError(
            f"the network has {network.outputs} classes; explanation consistency is about one score f, the margin of class 1: "
            "pass a network with one or two outputs"
        )
    return margin(network, 1, 0)


def explanations(network: Network, x: Array, baseline: Array, steps: int | None = None, *, threads: int = 2) -> Array:
    """Return the integrated gradients IG(x; b) (B, n_0) of f for network inputs x and baselines (B, n_0).

    steps: None for the exact path integral (of smooth networks by quadrature), T for the paper's Riemann sum.
    Raises QueryError for steps outside 1 .. MAX_STEPS, or more than two classes.
    Reference: CEC, "Integrated Gradients Background".
    """
    if steps is not None and not 1 <= steps <= MAX_STEPS:
        raise QueryError(f"steps = {steps}: expected 1 to {MAX_STEPS}, the paper's 32, or none for the exact integral")
    return integrated_gradients(network, positive_margin(network), x, baseline, steps, threads=threads)


def length(g: Array) -> Array:
    """Return |g|_2 + 1e-8 (B,) of attributions g (B, n_0)."""
    largest = np.maximum(np.abs(g).max(axis=1, initial=0.0), np.finfo(float).tiny)
    norm = np.linalg.norm(g / largest[:, None], axis=1) * largest  # scaled, so that squares neither overflow nor vanish
    return np.asarray(norm + EPSILON)


def normalised(g: Array) -> Array:
    """Return g / (|g|_2 + 1e-8) for attributions g (B, n_0)."""
    return np.asarray(g / length(g)[:, None])


def cec_score(g: Array, g_tilde: Array) -> Array:
    """(B,) half the distance of the normalised attributions, in [0, 1]: sin(angle / 2), 0 parallel, 1 opposed."""
    return np.asarray(np.linalg.norm(normalised(g) - normalised(g_tilde), axis=1) / 2)


def contributions(g: Array, g_tilde: Array) -> Array:
    """(B, n_0) each column's part of the squared score: they sum to cec_score ** 2."""
    return np.asarray((normalised(g) - normalised(g_tilde)) ** 2 / 4)


def regimes(score: Array, same_decision: Booleans, threshold: float) -> npt.NDArray[np.str_]:
    """(B,) A, B, C or D; explanations are the same when the score is at most the threshold. Raises QueryError outside [0, 1]."""
    if not 0 <= threshold <= 1:
        raise QueryError(f"threshold = {threshold}: the score lies in [0, 1]; expected a number there, such as {THRESHOLD}")
    same = score <= threshold
    return np.where(same_decision, np.where(same, "A", "B"), np.where(same, "C", "D"))
