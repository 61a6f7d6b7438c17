"""The training loop: torch on the CPU, the whole table as one tensor, seeded throughout."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from verifair.errors import TrainingError
from verifair.training.losses import classification, counterfactual_gap, margin_gap
from verifair.training.onnx_writer import Weights
from verifair.training.rows import Flip, Rows
from verifair.training.settings import Settings

OUTPUTS = 2


def fit(
    rows: Rows, flip: Flip | None, settings: Settings, progress: Callable[[int, int], None] | None = None
) -> tuple[Weights, tuple[float, ...]]:
    """Train on the rows; returns the weights and the mean loss of each epoch.

    flip: of settings.sensitive, None for agnostic. Every random draw (initial weights, order of rows, counterfactual
    values) comes from one generator seeded with settings.seed; torch's global generator and thread count are left as
    they were. Raises TrainingError when the loss is no longer finite.
    """
    x, labels = torch.from_numpy(rows.x), torch.from_numpy(rows.labels)
    groups = torch.from_numpy(rows.groups[settings.sensitive]) if settings.sensitive else None
    class_weight = _class_weight(rows) if settings.class_weight == "balanced" else None
    losses = []
    with _threads(settings.threads):
        generator = torch.Generator().manual_seed(settings.seed)
        network = _network(x.shape[1], settings.hidden, generator)
        adam = torch.optim.Adam(network.parameters(), lr=settings.learning_rate)
        for epoch in range(settings.epochs):
            total = 0.0
            for chosen in torch.randperm(len(x), generator=generator).split(settings.batch):
                z = network(x[chosen])
                loss = classification(z, labels[chosen], class_weight)
                if groups is not None and flip is not None:
                    if settings.method == "certifair":
                        z_flipped = network(flipped(x[chosen], groups[chosen], flip, generator))
                        gap = counterfactual_gap(z, z_flipped)
                        loss = (1 - settings.lambda_f) * loss + settings.lambda_f * gap
                    else:
                        loss = loss + settings.lambda_f * margin_gap(z, groups[chosen])
                adam.zero_grad()
                loss.backward()
                adam.step()
                total += loss.item() * len(chosen)
            losses.append(total / len(x))
            if not np.isfinite(losses[-1]):
                raise TrainingError(
                    f"the loss became {losses[-1]} in epoch {epoch + 1} at learning rate {settings.learning_rate:g}; "
                    'take a smaller one, and check that the schema scales every numeric feature (scale = "minmax")'
                )
            if progress is not None:
                progress(epoch + 1, settings.epochs)
    return _weights(network), tuple(losses)


def flipped(x: Tensor, groups: Tensor, flip: Flip, generator: torch.Generator) -> Tensor:
    """x (B, n) with the sensitive feature set to one of its other values, drawn evenly; of two it is the other one."""
    values = len(flip.codes)
    shift = torch.randint(1, values, (len(x),), generator=generator)
    out = x.clone()
    out[:, torch.from_numpy(flip.columns)] = torch.from_numpy(flip.codes)[(groups + shift) % values]
    return out


def _network(inputs: int, hidden: tuple[int, ...], generator: torch.Generator) -> nn.Sequential:
    """Linear, ReLU, ..., Linear with Glorot-uniform weights and zero biases."""
    widths = (inputs, *hidden, OUTPUTS)
    layers: list[nn.Module] = []
    for below, above in itertools.pairwise(widths):
        linear = nn.utils.skip_init(nn.Linear, below, above)
        nn.init.xavier_uniform_(linear.weight, generator=generator)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _weights(network: nn.Sequential) -> Weights:
    linear = [layer for layer in network if isinstance(layer, nn.Linear)]
    return tuple((layer.weight.detach().numpy().copy(), layer.bias.detach().numpy().copy()) for layer in linear)


def _class_weight(rows: Rows) -> Tensor:
    """(2,) rows / (2 rows of the class), scikit-learn's "balanced"."""
    count = np.bincount(rows.labels, minlength=OUTPUTS)
    return torch.from_numpy((len(rows.labels) / (OUTPUTS * count)).astype(np.float32))


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
