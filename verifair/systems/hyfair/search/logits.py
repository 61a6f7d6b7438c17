"""The positive class's logits of rows with each of K protected combinations, fast: in float32 where the model has layers.

Only the protected columns differ between the variants of a row. For a network, the first layer W x + b is computed
once per row and shifted by W z_k, computed once per query; the other layers take N K rows in one product. For trees, and for
probabilities of several classes, every variant is evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import logit

from encoders.arrays import Array, Floats, Integers
from encoders.model import Model
from encoders.network import Network
from encoders.probability.shares import logistic, probabilities
from verifair.engine.questions import margin

CELLS = 1 << 17
"""Numbers in one block of hidden values: half a megabyte, so that it stays in the cache from one operation to the next."""
ROWS = 1 << 14
"""Variants looked up at once."""


class Logits(Protocol):
    """Log-odds (N, K) of model inputs (N, n) with each combination in place of their protected columns."""

    def __call__(self, x: Array) -> npt.NDArray[np.floating]: ...


def logits_of(model: Model, columns: Integers, combinations: Array) -> Logits:
    """Return the fastest way to the log-odds.   columns: (C,) protected columns.   combinations: (K, C) their values."""
    if model.piecewise_linear and not model.of_trees:
        return LayerLogits.of(model.layered("log-odds by layers"), columns, combinations)
    return RowLogits(model=model, columns=columns, combinations=combinations)


class _Layer(NamedTuple):
    """`encoders.network.Layer` in float32."""

    weight: Floats
    bias: Floats
    slope: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerLogits:
    """first: weight and bias of the first layer, 0 in the protected columns.   shift: (K, h) the contribution of each
    combination."""

    layers: tuple[_Layer, ...]
    columns: Integers
    shift: Floats

    @classmethod
    def of(cls, network: Network, columns: Integers, combinations: Array) -> LayerLogits:
        """Return the layers in float32, the margin of the positive class folded into the last."""
        *hidden, last = network.layers
        weights = margin(network, 1, 0)[None, :]
        with np.errstate(over="ignore", invalid="ignore"):
            folded = _Layer(_rounded(weights @ last.weight), _rounded(weights @ last.bias), np.ones(1, dtype=np.float32))
            layers = (*(_Layer(_rounded(k.weight), _rounded(k.bias), _rounded(k.slope)) for k in hidden), folded)
            shift = combinations.astype(np.float32) @ layers[0].weight[:, columns].T
        return cls(layers=layers, columns=columns, shift=shift)

    def __call__(self, x: Array) -> Floats:
        inputs = x.astype(np.float32)
        inputs[:, self.columns] = 0
        with np.errstate(over="ignore", invalid="ignore"):  # values beyond float32 saturate: these logits only guide the search
            base = inputs @ self.layers[0].weight.T + self.layers[0].bias
            widest = max(self.shift.shape[1], *(layer.weight.shape[0] for layer in self.layers))
            step = max(1, CELLS // (widest * len(self.shift)))
            result = np.empty((len(x), len(self.shift)), dtype=np.float32)
            for start in range(0, len(x), step):
                hidden = (base[start : start + step, None, :] + self.shift).reshape(-1, self.shift.shape[1])
                for previous, layer in zip(self.layers, self.layers[1:], strict=False):
                    hidden = _activated(hidden, previous) @ layer.weight.T
                    hidden += layer.bias
                result[start : start + step] = hidden.reshape(-1, len(self.shift))
        return result


@dataclass(frozen=True, kw_only=True, eq=False)
class RowLogits:
    """Evaluates every variant of a row by the model itself: logits, or the log-odds of its share of votes.

    In float64: shares of votes usually lie on the edges of buckets, up to about 1e-8 from rounding their leaves to float32.
    """

    model: Model
    columns: Integers
    combinations: Array

    def __call__(self, x: Array) -> Array:
        weights, result = margin(self.model, 1, 0), np.empty((len(x), len(self.combinations)))
        step = max(1, ROWS // len(self.combinations))
        for start in range(0, len(x), step):
            part = x[start : start + step]
            variants = np.repeat(part, len(self.combinations), axis=0)
            variants[:, self.columns] = np.tile(self.combinations, (len(part), 1))
            result[start : start + step] = (self.model.forward(variants) @ weights).reshape(len(part), -1)
        return log_odds(self.model, result)


def _rounded(values: Array) -> Floats:
    """Return the nearest finite float32 numbers: folded weights may be beyond their range."""
    largest = np.finfo(np.float32).max
    return np.clip(values, -largest, largest).astype(np.float32)


def _activated(a: Floats, layer: _Layer) -> Floats:
    """Apply the activation of `Network.forward`, in place if it is a ReLU."""
    if (layer.slope == 1).all():
        return a
    if not layer.slope.any():
        return np.maximum(a, 0, out=a)
    return np.asarray(np.where(a > 0, a, layer.slope * a))


def log_odds(model: Model, margins: Array) -> Array:
    """Return the logits of the probabilities of these margins: the margins themselves if the probability is logistic."""
    return np.asarray(margins) if logistic(model) else np.asarray(logit(probabilities(model, margins)))
