"""Further training of a network that exists, on rows of the caller's own (HyFair's retraining); imports torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from verifair.errors import TrainingError
from verifair.training.fit import _threads, _weights
from verifair.training.onnx_writer import Weights
from verifair.training.rows import Floats, Integers


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """epochs: passes over the rows.   batch: rows a step.   learning_rate: Adam's.   seed: of the order of the rows.
    threads: torch's on the CPU; the order of sums depends on them, and with it the last bits."""

    epochs: int = 5
    batch: int = 256
    learning_rate: float = 1e-3
    seed: int = 0
    threads: int = 1

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "threads"):
            if getattr(self, name) < 1:
                raise TrainingError(f"{name} = {getattr(self, name)}, expected at least 1")
        if not 0 < self.learning_rate < float("inf"):
            raise TrainingError(f"learning_rate = {self.learning_rate}, expected a positive number, such as 0.001")
        if not 0 <= self.seed < 2**63:
            raise TrainingError(f"seed = {self.seed}, expected a whole number in 0 .. 2^63 - 1")


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
    rows, target = torch.from_numpy(x), torch.from_numpy(labels)
    losses = []
    with _threads(settings.threads):
        generator = torch.Generator().manual_seed(settings.seed)
        network = _loaded(weights)
        adam = torch.optim.Adam(network.parameters(), lr=settings.learning_rate)
        for epoch in range(settings.epochs):
            total = 0.0
            for chosen in torch.randperm(len(rows), generator=generator).split(settings.batch):
                loss = _loss(network(rows[chosen]), target[chosen])
                adam.zero_grad()
                loss.backward()
                adam.step()
                total += loss.item() * len(chosen)
            losses.append(total / len(rows))
            if not np.isfinite(losses[-1]):
                rate = f"learning rate {settings.learning_rate:g}"
                raise TrainingError(f"the loss became {losses[-1]} in epoch {epoch + 1} at {rate}; take a smaller one")
            if progress is not None:
                progress(epoch + 1, settings.epochs)
    return _weights(network), tuple(losses)


def _loss(z: Tensor, labels: Tensor) -> Tensor:
    if z.shape[1] == 1:
        return binary_cross_entropy_with_logits(z[:, 0], labels.to(z.dtype))
    return cross_entropy(z, labels)


def _loaded(weights: Weights) -> nn.Sequential:
    layers: list[nn.Module] = []
    for weight, bias in weights:
        linear = nn.utils.skip_init(nn.Linear, weight.shape[1], weight.shape[0])
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(weight))
            linear.bias.copy_(torch.from_numpy(bias))
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])
