"""Probabilities of models: logistic functions of logits, or the shares of votes of forests.

The logit of a forest of two classes is its share of votes less 1/2. For display, search and counts; proofs of gaps use `logistic`.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from encoders.arrays import Array
from encoders.model import Link, Model


def logistic(model: Model) -> bool:
    """Return True if the probability of a class is the logistic function of its logit (the softmax of several)."""
    return model.link is not Link.SHARES


def probabilities(model: Model, margins: Array) -> Array:
    """Return the probabilities of the positive class for margins of any shape, in float64."""
    return np.asarray(expit(margins) if logistic(model) else np.clip(np.asarray(margins) + 0.5, 0.0, 1.0))
