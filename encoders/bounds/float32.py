"""A bound of the distance between any float32 evaluation of a network, in any order of its sums, and its real-valued function.

A runtime computes every neuron from float32 numbers in float32, each operation rounded to nearest (a fused multiply-add once), sums
in any order. With K roundings on the longest path to a neuron, size the sums of |contributions| before any of them cancel, Y the
largest |outputs| of the layer below over a box and e the error of these,

    e_k = gamma_{K+4} (size_k (Y_{k-1} + e_{k-1}) + bias_size_k) + |W_k| e_{k-1},      gamma_n = n u / (1 - n u), u = 2^-24

bounds the error of the pre-activations, e_0 = 0: inputs are float32 numbers. ReLU is exact and 1-Lipschitz. LeakyReLU rounds once
more. Numbers below 2^-126 may be taken for 0: constants, and results, for which `encoders.exact.affine.FLUSHED` stands in the
sizes, and outputs, which count as FLUSHED here. A margin of two logits is rounded once more.

Not covered, so that the error is inf: networks whose graph is not float32 throughout (`Network.rounding` is None), smooth layers
(runtimes specify no error of their curves), and sums that may reach LARGEST. The bound does not apply to products in fewer bits
than float32 has (TF32, bfloat16), nor to convolutions by transforms (Winograd). Decisions are about logits, before any link.
Sound? yes; it is evaluated in float64, whose errors the 4 additional operations and OUTWARD cover.
Reference: Higham, Accuracy and Stability of Numerical Algorithms (2nd ed., 2002), section 3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from encoders.arrays import Array
from encoders.bounds.relu import LayerBounds, affine_interval
from encoders.bounds.rounding import factor
from encoders.bounds.smooth.curves import activated_interval
from encoders.exact.affine import FLUSHED
from encoders.model import Model
from encoders.network import Network
from encoders.trees.ensemble import TreeEnsemble
from encoders.trees.float32 import float32_errors

UNIT = 2.0**-24
OUTWARD = 1 + 2.0**-30
LARGEST = 2.0**100
"""Largest size, far below float32's largest number, because a graph may multiply before it divides."""


def gamma(operations: int) -> float:
    """Return n u / (1 - n u), inf where that is no bound."""
    return operations * UNIT / (1 - operations * UNIT) if operations * UNIT < 0.5 else np.inf


@dataclass(frozen=True, kw_only=True, eq=False)
class Float32Error:
    """The error of the margin g = margin . logits. absolute: |W_k| of every layer."""

    network: Network
    margin: Array
    absolute: tuple[Array, ...]

    @classmethod
    def of(cls, network: Network, margin: Array) -> Float32Error | None:
        """Return the error, or None if no bound for a float32 runtime is known."""
        if network.rounding is None or not network.piecewise_linear:
            return None
        return cls(network=network, margin=margin, absolute=tuple(np.abs(layer.weight) for layer in network.layers))

    def bound(self, inputs: Array, outputs: Sequence[tuple[Array, Array]]) -> Array:
        """Return (B,) the largest error of g where |x| <= inputs (B, n_0) and, of each hidden layer, |y_k| <= outputs[k][0] and
        a_k <= outputs[k][1], each (B, n_k): a ReLU that is off stays off unless the error of a_k exceeds its distance from 0."""
        assert self.network.rounding is not None
        layers = zip(self.network.layers, self.network.rounding, self.absolute, [*outputs, None], strict=True)
        y, error, in_range = inputs, np.zeros_like(inputs), np.ones(len(inputs), dtype=bool)
        with np.errstate(all="ignore"):  # overflow and NaN become no bound
            for layer, rounding, absolute, output in layers:
                y = np.maximum(y + error, FLUSHED)
                widest = rounding.reach * np.maximum(y.max(axis=1, initial=0.0), 1.0)
                in_range &= widest < LARGEST
                rate = gamma(rounding.operations + 4)
                if rounding.size is None:
                    rounded = (rate * y + error) @ absolute.T
                else:
                    rounded = rate * (y @ rounding.size.T) + error @ absolute.T
                error = (rounded + rate * rounding.bias_size) * OUTWARD
                if output is None:
                    break
                y, top = output
                error = np.where(layer.slope == 0, np.minimum(error, np.maximum(top + error * OUTWARD, 0.0)), error)
                leaky = (layer.slope > 0) & (layer.slope < 1)
                if leaky.any():
                    error = error + np.where(leaky, 2 * UNIT * (y + error + FLUSHED * (1 + widest[:, None])), 0.0)
            weight = np.abs(self.margin)
            total = error @ weight
            if np.count_nonzero(weight) > 1:
                sizes = y @ (absolute if rounding.size is None else np.maximum(rounding.size, absolute)).T + rounding.bias_size
                total = total + 2 * UNIT * (sizes @ weight)
            total = total * OUTWARD
        return np.where(in_range & np.isfinite(total), total, np.inf)

    def within(self, low: Array, high: Array) -> Array:
        """Return (B,) the largest error of g over boxes (B, n_0) of network inputs."""
        outputs: list[tuple[Array, Array]] = []
        y = low, high
        with np.errstate(all="ignore"):
            for layer, absolute in zip(self.network.layers[:-1], self.absolute, strict=False):
                size = np.maximum(np.abs(y[0]), np.abs(y[1])) @ absolute.T + np.abs(layer.bias)
                a = affine_interval(layer.weight, absolute, y, layer.bias, factor(layer.weight.shape[1]) * size)
                y = activated_interval(layer, *a)
                outputs.append((np.maximum(np.abs(y[0]), np.abs(y[1])), a[1]))
        return self.bound(np.maximum(np.abs(low), np.abs(high)), outputs)

    def below(self, inputs: Array, bounds: Sequence[LayerBounds]) -> Array:
        """Return (B,) the largest error of g in both copies, from bounds of hidden layers that the search already has."""
        outputs = []
        for layer, b in zip(self.network.layers[:-1], bounds, strict=False):
            ends = *activated_interval(layer, b.lower, b.upper), *activated_interval(layer, b.lower_prime, b.upper_prime)
            outputs.append((np.maximum.reduce([np.abs(end) for end in ends]), np.maximum(b.upper, b.upper_prime)))
        return self.bound(inputs, outputs)


@dataclass(frozen=True, kw_only=True, eq=False)
class SumError:
    """The error of the margin of a tree ensemble: comparisons do not round, so one bound of the sum holds everywhere. Of several
    classes, that of the difference of any two scores."""

    error: float

    def within(self, low: Array, high: Array) -> Array:
        """Return (B,) the largest error of g over boxes (B, n_0) of inputs."""
        return np.full(len(low), self.error)

    def below(self, inputs: Array, bounds: Sequence[LayerBounds]) -> Array:
        """Return (B,) the same for both copies."""
        return np.full(len(inputs), self.error)


def float32_error(model: Model, margin: Array) -> Float32Error | SumError | None:
    """Return the error of the margin  margin . logits  in float32; None if no bound for a runtime is known."""
    if model.of_trees and not model.knows_float32:
        return None
    if model.ensemble is model:
        return SumError(error=margin_error(model.ensemble, margin))
    if model.ensemble is not None:      # a runtime compares scores with each other, and rounds no difference
        return SumError(error=2 * float(float32_errors(model.ensemble).max()) * OUTWARD)
    return Float32Error.of(model.layered("float32 bounds"), margin)


def margin_error(model: TreeEnsemble, margin: Array) -> float:
    """Return a bound of the float32 error of margin . logits, which is rounded once more if it has two logits."""
    used = margin != 0
    weight, errors = np.abs(margin[used]), float32_errors(model)[used]
    rounded = 2 * UNIT * float(weight @ (model.largest[used] + errors)) if len(weight) > 1 else 0.0
    return (float(weight @ errors) + rounded) * OUTWARD
