"""What the loop goes down: one object for each method, holding the tensors of all training rows that its loss needs.

Reference: PBA, A.3 (agnostic, CertiFair, Fair-N).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from encoders.network import Floats, Integers
from verifair.training.losses import classification, counterfactual_gap, margin_gap, weighted_classification
from verifair.training.perceptron import OUTPUTS, Perceptron
from verifair.training.rows import Flip


class Objective(ABC):
    """The loss of a batch, and what an objective with a state of its own does between the steps."""

    def epoch(self, generator: torch.Generator) -> None:  # noqa: B027  most objectives draw nothing
        """Called before each epoch; draws come from the generator."""

    @abstractmethod
    def __call__(self, network: Perceptron, z: Tensor, chosen: Tensor) -> Tensor:
        """Scalar to go down. z: (B, 2) logits of the rows chosen (B,), with the loop's dropout; network(x) is without."""

    def after_step(self, network: Perceptron, chosen: Tensor) -> None:  # noqa: B027
        """Called after Adam's step on the rows chosen (B,): the place to update multipliers, or an adversary."""


class CrossEntropy(Objective):
    """The prediction's loss alone.

    labels: (N,) 0 or 1.   class_weight: None, or "balanced": each class weighs rows / (2 rows of the class).
    weights: (N,) of the rows, at least 0, scaled here to a mean of 1; None: all alike. Not both.
    """

    def __init__(self, labels: Integers, *, class_weight: str | None = None, weights: npt.ArrayLike | None = None) -> None:
        self.labels = torch.from_numpy(labels)
        self.class_weight = _class_weight(labels) if class_weight == "balanced" else None
        self.weights = None
        if weights is not None:
            given = np.asarray(weights, dtype=np.float64)
            valid = given.shape == labels.shape and bool((given >= 0).all()) and 0 < given.sum() < np.inf
            if not valid or class_weight is not None:
                raise ValueError(f"weights {given.shape} of {len(labels)} rows: expected one each, at least 0, and no class_weight")
            self.weights = torch.from_numpy((given / given.mean()).astype(np.float32))

    def __call__(self, network: Perceptron, z: Tensor, chosen: Tensor) -> Tensor:
        if self.weights is not None:
            return weighted_classification(z, self.labels[chosen], self.weights[chosen])
        return classification(z, self.labels[chosen], self.class_weight)


class CertiFair(Objective):
    """(1 - lambda_f) CE + lambda_f counterfactual_gap. x (N, n); groups (N,) positions of the rows' values in the flip."""

    def __init__(self, prediction: CrossEntropy, x: Floats, groups: Integers, flip: Flip, lambda_f: float) -> None:
        self.prediction, self.flip, self.lambda_f = prediction, flip, lambda_f
        self.x, self.groups = torch.from_numpy(x), torch.from_numpy(groups)

    def __call__(self, network: Perceptron, z: Tensor, chosen: Tensor) -> Tensor:
        loss = self.prediction(network, z, chosen)
        z_flipped = network(flipped(self.x[chosen], self.groups[chosen], self.flip, network.generator))
        return (1 - self.lambda_f) * loss + self.lambda_f * counterfactual_gap(z, z_flipped)


class FairN(Objective):
    """CE + lambda_f margin_gap. groups (N,) group numbers."""

    def __init__(self, prediction: CrossEntropy, groups: Integers, lambda_f: float) -> None:
        self.prediction, self.lambda_f = prediction, lambda_f
        self.groups = torch.from_numpy(groups)

    def __call__(self, network: Perceptron, z: Tensor, chosen: Tensor) -> Tensor:
        return self.prediction(network, z, chosen) + self.lambda_f * margin_gap(z, self.groups[chosen])


def flipped(x: Tensor, groups: Tensor, flip: Flip, generator: torch.Generator) -> Tensor:
    """x (B, n) with the sensitive feature set to one of its other values, drawn evenly; of two it is the other one."""
    values = len(flip.codes)
    shift = torch.randint(1, values, (len(x),), generator=generator)
    out = x.clone()
    out[:, torch.from_numpy(flip.columns)] = torch.from_numpy(flip.codes)[(groups + shift) % values]
    return out


def _class_weight(labels: Integers) -> Tensor:
    """(2,) rows / (2 rows of the class), scikit-learn's "balanced"."""
    count = np.bincount(labels, minlength=OUTPUTS)
    return torch.from_numpy((len(labels) / (OUTPUTS * count)).astype(np.float32))
