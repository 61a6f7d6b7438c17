"""Further training of a network that exists, on rows of the caller's own (HyFair's retraining); imports torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from encoders.network import Floats, Integers
from verifair.training.fit import descend
from verifair.training.objectives import Objective
from verifair.training.onnx_writer import Weights
from verifair.training.perceptron import Perceptron
from verifair.training.settings import Descent


@dataclass(frozen=True, kw_only=True)
class FineTuning(Descent):
    """Few and gentle steps: the network is there already."""

    epochs: int = 5
    batch: int = 256
    learning_rate: float = 1e-3


def fine_tune(
    weights: Weights,
    x: Floats,
    labels: Integers,
    settings: FineTuning,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Weights, tuple[float, ...]]:
    """Train on from the weights ((W (m, n), b (m,)), ...), ReLU in between, with cross-entropy.

    x: (N, n) network inputs.   labels: (N,) 0 or 1; the network has one logit, or one for each class.
    Returns the weights and the mean loss of each epoch. The same seed and threads give the same weights on the same machine.
    Raises TrainingError when the loss is no longer finite.
    """
    network = Perceptron.of(weights, torch.Generator().manual_seed(settings.seed))
    return descend(network, x, settings, _Decision(labels), progress)


class _Decision(Objective):
    """Cross-entropy of one logit, or of one for each class."""

    def __init__(self, labels: Integers) -> None:
        self.labels = torch.from_numpy(labels)

    def __call__(self, network: Perceptron, z: Tensor, chosen: Tensor) -> Tensor:
        labels = self.labels[chosen]
        return cross_entropy(z, labels) if z.shape[1] > 1 else binary_cross_entropy_with_logits(z[:, 0], labels.to(z.dtype))
