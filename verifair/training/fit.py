"""The training loop: torch on the CPU, the whole table as one tensor, seeded throughout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from encoders.arrays import Floats, Integers
from verifair.checker.report import Progress
from verifair.errors import TrainingError
from verifair.training.objectives import FineTuning, Objective
from verifair.training.onnx_writer import Weights
from verifair.training.perceptron import Perceptron
from verifair.training.settings import GradientDescent, Loop


def fit(
    x: Floats, loop: Loop, objective: Objective, progress: Progress | None = None
) -> tuple[Weights, tuple[float, ...]]:
    """Train a network on rows x (N, n), whose labels the objective holds; returns as `descend` does.

    Every random draw (initial weights, order of rows, dropout, the objective's own) comes from one generator seeded with
    loop.seed. The rows may be a fold, weighted rows, or repaired rows.
    """
    generator = torch.Generator().manual_seed(loop.seed)
    return descend(Perceptron.drawn(x.shape[1], loop.hidden, generator), x, loop, objective, progress)


def fine_tune(
    weights: Weights, x: Floats, labels: Integers, descent: GradientDescent, progress: Progress | None = None
) -> tuple[Weights, tuple[float, ...]]:
    """Continue the training of an existing network, with cross-entropy on the given rows; returns as `descend` does.

    weights: ((W (m, n), b (m,)), ...), ReLU in between; one logit, or one for each class.   x: (N, n) network inputs.
    labels: (N,) 0 or 1. The same seed and threads give the same weights on the same machine.
    """
    network = Perceptron.of(weights, torch.Generator().manual_seed(descent.seed))
    return descend(network, x, descent, FineTuning(labels), progress)


def descend(
    network: Perceptron, x: Floats, descent: GradientDescent, objective: Objective,
    progress: Progress | None = None,
) -> tuple[Weights, tuple[float, ...]]:
    """Minimise the objective on rows x (N, n); returns the weights and the mean loss of each epoch.

    torch's global generator and thread count are unchanged. progress(done, total) counts epochs. Raises
    TrainingError when the loss is no longer finite.
    """
    rows = torch.from_numpy(x)
    losses = []
    with _threads(descent.threads):
        adam = torch.optim.Adam(network.parameters(), lr=descent.learning_rate)
        for epoch in range(descent.epochs):
            objective.epoch(network.generator)
            total = 0.0
            for chosen in torch.randperm(len(rows), generator=network.generator).split(descent.batch):
                loss = objective(network, network(rows[chosen], descent.dropout), chosen)
                adam.zero_grad()
                loss.backward()
                adam.step()
                objective.after_step(network, chosen)
                total += loss.item() * len(chosen)
            losses.append(total / len(rows))
            if not np.isfinite(losses[-1]):
                raise TrainingError(
                    f"the loss became {losses[-1]} in epoch {epoch + 1} at learning rate {descent.learning_rate:g}; "
                    'take a smaller one, and check that the schema scales every numeric feature (scale = "minmax")'
                )
            if progress is not None:
                progress(epoch + 1, descent.epochs)
    return network.weights(), tuple(losses)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    previous = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(previous)
