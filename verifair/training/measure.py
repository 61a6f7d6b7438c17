"""Measure a trained network on held-out rows, in plain NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.special import expit

from encoders.arrays import Array, Floats, Integers
from encoders.model import Link
from encoders.network import Layer, Network
from verifair.training.onnx_writer import Weights
from verifair.training.rows import EncodedRows, Flip


@dataclass(frozen=True, kw_only=True)
class TrainingReport:
    """Shares are within 0 .. 1; everything but train_accuracy and losses is about the test rows.

    base_rate: share of the more frequent class, the accuracy of always guessing it. positive_rate: protected feature -> group
    -> share predicted positive (statistical parity compares these); a group without rows is left out.
    counterfactual_gap: protected feature -> mean |p(1 | x) - p(1 | x')| over all rows and all other values of the
    feature. margin_gap: protected feature -> mean over pairs of groups of the difference of their mean |z_1 - z_0|, in
    logits. losses: mean training loss of each epoch.
    """

    train_accuracy: float
    test_accuracy: float
    base_rate: float
    positive_rate: dict[str, dict[str, float]]
    counterfactual_gap: dict[str, float]
    margin_gap: dict[str, float]
    losses: tuple[float, ...]


def network_of(weights: Weights) -> Network:
    """Return the network of the weights, as reading its ONNX file back gives it."""
    last = len(weights) - 1
    layers = (
        Layer(weight=weight.astype(np.float64), bias=bias.astype(np.float64), slope=np.full(len(bias), float(k == last)))
        for k, (weight, bias) in enumerate(weights)
    )
    return Network(layers=tuple(layers), link=Link.IDENTITY, source_sha256="")


def forward(weights: Weights, x: Floats) -> Floats:
    """Return logits (B, 2) of encoded rows x (B, n), in float32."""
    value = x
    for k, (weight, bias) in enumerate(weights):
        value = (np.maximum(value, np.float32(0)) if k else value) @ weight.T + bias
    return value


def measure(
    weights: Weights, train: EncodedRows, test: EncodedRows, flips: dict[str, Flip], losses: tuple[float, ...]
) -> TrainingReport:
    """Measure a network; flips: those of the protected features to report on; both sets of rows hold their groups."""
    z = forward(weights, test.x)
    positive = z[:, 1] > z[:, 0]
    return TrainingReport(
        train_accuracy=_accuracy(forward(weights, train.x), train.labels),
        test_accuracy=_accuracy(z, test.labels),
        base_rate=float(np.bincount(test.labels).max() / len(test.labels)),
        positive_rate={
            name: {flip.names[k]: float(positive[test.groups[name] == k].mean()) for k in np.unique(test.groups[name])}
            for name, flip in flips.items()
        },
        counterfactual_gap={name: _counterfactual_gap(weights, test, name, flip) for name, flip in flips.items()},
        margin_gap={name: _margin_gap(z, test.groups[name]) for name in flips},
        losses=losses,
    )


def _accuracy(z: Floats, labels: Integers) -> float:
    return float(((z[:, 1] > z[:, 0]) == labels).mean())


def _probability(z: Floats) -> Array:
    """Return the softmax probability of class 1."""
    return np.asarray(expit(z[:, 1].astype(np.float64) - z[:, 0]))


def _counterfactual_gap(weights: Weights, rows: EncodedRows, name: str, flip: Flip) -> float:
    probabilities = _probability(forward(weights, rows.x))
    gaps = []
    for k, code in enumerate(flip.codes):
        others = rows.groups[name] != k
        x = rows.x[others]
        x[:, flip.columns] = code
        gaps.append(np.abs(_probability(forward(weights, x)) - probabilities[others]))
    return float(np.concatenate(gaps).mean())


def _margin_gap(z: Floats, groups: Integers) -> float:
    margin = np.abs(z[:, 1] - z[:, 0])
    means = [float(margin[groups == k].mean()) for k in np.unique(groups)]
    return float(np.mean([abs(a - b) for a, b in combinations(means, 2)] or [0.0]))
