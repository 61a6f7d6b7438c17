"""Objectives of training: one object for each method, which holds the tensors of all training rows that its loss needs.

z: logits (B, 2), class 1 is the positive one. The only arithmetic here is torch's; every term is a scalar tensor.
Reference: PBA, A.3 (agnostic, CertiFair, Fair-N).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import combinations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from encoders.arrays import Floats, Integers
from verifair.training.perceptron import OUTPUTS, Perceptron
from verifair.training.rows import EncodedRows, Flip
from verifair.training.settings import TrainingSettings


class Objective(ABC):
    """The loss of a batch, and updates between the steps for objectives with a state."""

    def epoch(self, generator: torch.Generator) -> None:  # noqa: B027  most objectives draw nothing
        """Prepare an epoch; draws come from the generator."""

    @abstractmethod
    def __call__(self, network: Perceptron, z: Tensor, chosen: Tensor) -> Tensor:
        """Return the loss. z: (B, 2) logits of the rows chosen (B,), with the loop's dropout; network(x) is without."""

    def after_step(self, network: Perceptron, chosen: Tensor) -> None:  # noqa: B027
        """Update multipliers, or an adversary, after Adam's step on the rows chosen (B,)."""


class CrossEntropy(Objective):
    """Cross-entropy of the prediction, without a fairness term.

    labels: (N,) 0 or 1.   class_weight: None, or "balanced": each class weighs rows / (2 rows of the class).
    weights: (N,) of the rows, at least 0, scaled here to a mean of 1; None: all equal. Not both.
    """

    def __init__(self, labels: Integers, *, class_weight: str | None = None, weights: npt.ArrayLike | None = None) -> None:
        self.labels = torch.from_numpy(labels)
        self.class_weight = _class_weight(labels) if class_weight == "balanced" else None
        self.weights = None
        if weights is not None:
            array = np.asarray(weights, dtype=np.float64)
            valid = array.shape == labels.shape and bool((array >= 0).all()) and 0 < array.sum() < np.inf
            if not valid or class_weight is not None:
                raise ValueError(f"weights {array.shape} of {len(labels)} rows: expected one each, at least 0, and no class_weight")
            self.weights = torch.from_numpy((array / array.mean()).astype(np.float32))

    def __call__(self, network: Perceptron, z: Tensor, chosen: Tensor) -> Tensor:
        if self.weights is not None:
            return weighted_classification(z, self.labels[chosen], self.weights[chosen])
        return classification(z, self.labels[chosen], self.class_weight)


class FineTuning(Objective):
    """Cross-entropy of one logit, or of one for each class."""

    def __init__(self, labels: Integers) -> None:
        self.labels = torch.from_numpy(labels)

    def __call__(self, network: Perceptron, z: Tensor, chosen: Tensor) -> Tensor:
        labels = self.labels[chosen]
        return cross_entropy(z, labels) if z.shape[1] > 1 else binary_cross_entropy_with_logits(z[:, 0], labels.to(z.dtype))


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
    """Return x (B, n) with the sensitive feature set to one of its other values, drawn uniformly; with two values it is the other
    one."""
    values = len(flip.codes)
    shift = torch.randint(1, values, (len(x),), generator=generator)
    result = x.clone()
    result[:, torch.from_numpy(flip.columns)] = torch.from_numpy(flip.codes)[(groups + shift) % values]
    return result


def _class_weight(labels: Integers) -> Tensor:
    """Return (2,) rows / (2 rows of the class), scikit-learn's "balanced"."""
    count = np.bincount(labels, minlength=OUTPUTS)
    return torch.from_numpy((len(labels) / (OUTPUTS * count)).astype(np.float32))


def objective_for(settings: TrainingSettings, rows: EncodedRows, flip: Flip | None) -> Objective:
    """Return the objective of settings.method on these rows. flip: of settings.sensitive, for certifair."""
    prediction = CrossEntropy(rows.labels, class_weight=settings.class_weight)
    if settings.sensitive is None:
        return prediction
    groups = rows.groups[settings.sensitive]
    if settings.method == "fair-n":
        return FairN(prediction, groups, settings.lambda_f)
    assert flip is not None
    return CertiFair(prediction, rows.x, groups, flip, settings.lambda_f)


def classification(z: Tensor, labels: Tensor, class_weight: Tensor | None) -> Tensor:
    """Return the mean cross-entropy of the softmax; with class_weight (2,), the weighted mean."""
    return cross_entropy(z, labels, weight=class_weight)


def weighted_classification(z: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """Return the mean over the batch of weight (B,) times cross-entropy: rows of weight 0 count in the mean with a loss of 0."""
    return (cross_entropy(z, labels, reduction="none") * weights).mean()


def counterfactual_gap(z: Tensor, z_flipped: Tensor) -> Tensor:
    """Return CertiFair's local penalty: mean over the batch of |p(1 | x) - p(1 | x')|, within [0, 1].

    x' is x with another sensitive value and everything else the same. The gradient is 0 where both predictions are
    equal, and an empty batch gives 0. Reference: Khedr & Shoukry, CertiFair (AAAI 2023), as used in PBA, A.3.
    """
    if not len(z):
        return z.sum()
    return (z.softmax(dim=1)[:, 1] - z_flipped.softmax(dim=1)[:, 1]).abs().mean()


def margin_gap(z: Tensor, groups: Tensor) -> Tensor:
    """Return Fair-N's penalty, the mean over pairs of groups of |mean margin of one - mean margin of the other|; a margin is
    |z_1 - z_0|.

    groups: (B,) group numbers. Groups without rows in the batch are left out; with fewer than two left, it is 0
    (gradient 0). With two groups it is the paper's term; averaging over pairs keeps lambda_f comparable when there are
    more. Reference: Sharma et al., Fair-N (AIES 2021), as used in PBA, A.3.
    """
    margin = (z[:, 1] - z[:, 0]).abs()
    means = [margin[groups == group].mean() for group in groups.unique()]
    gaps = [(a - b).abs() for a, b in combinations(means, 2)]
    return torch.stack(gaps).mean() if gaps else margin.sum() * 0.0
