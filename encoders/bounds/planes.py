"""Planes under and over the margin of one copy of a network over many boxes, which bracket the share of a domain.

    value + slope . (x - middle)  <=  g(x)      for every x of the box, and >= with the other plane

Method: backward substitution. A neuron that bends between l < 0 < u lies under the chord c a + 2 h, c = u / (u - l), h = -l c / 2,
and over every line s a, 0 <= s <= 1. Its mean over the box is the largest with s = 1 where c > 1/2, else with s = 0; between 3/8
and 5/8, where it hardly matters, s changes continuously, so that the checker, which rounds differently, has nearly the same line.
[l, u] is the closer of the interval from the layer below and of the zonotope, where the neuron is c a + h +- h.
Sound? yes, rounding included.   Complete? no; with cuts it is.
Rounding: with K the widest layer plus the widest input plus 2 layers + 40, every sum has less than K terms, and all operations of a
pass lose at most 32 gamma_K of the sizes |p| V_k added up over the layers, V_k = |W| |y| + |b| the largest there is anywhere (the
argument is that of `verifair.checker.kernel.bounds`). 2^layers times as much is added: the checker's sizes double in each.
References: DeepZ (Singh et al., NeurIPS 2018) for the bounds of neurons, CROWN (Zhang et al., NeurIPS 2018) for the planes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from encoders.arrays import Array
from encoders.bounds.rounding import TINY
from encoders.domain import Batched, Domain
from encoders.network import Network

BLOCK = 1 << 19
"""Coefficients processed at once."""
LARGEST = 1e100
"""Larger intervals are not used: overflow may give NaN, which bounds nothing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CopyPlanes(Batched):
    """under, over: slopes (B, n_0) of the planes.   least, most: (B,) their values in the middle, less or plus all rounding.
    score: (B, n_0) the part of the gap between them that comes from the width of each column."""

    under: Array
    least: Array
    over: Array
    most: Array
    score: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class _Band:
    """Lines around the neurons of a layer, (B, m) each: `chord` a + half +- half, the line `flat` a under them, and `share`, half
    per unit of the pre-activation's width."""

    chord: Array
    half: Array
    flat: Array
    share: Array


class CopyForms:
    """A piecewise-linear network whose margin is  weights . f, over boxes of a domain.

    swing: the least and the largest (B, m) of  slope . (x - middle),  slope (B, m, n_0), over the inputs x in boxes (B, n_0).
    """

    def __init__(
        self, network: Network, margin: Array, domain: Domain, swing: Callable[[Array, Array, Array], tuple[Array, Array]]
    ) -> None:
        self.swing = swing
        network.require_piecewise_linear("the share of a domain")
        *hidden, last = network.layers
        self.leaks = [layer.slope for layer in hidden]
        self.weights = [*(layer.weight for layer in hidden), margin[None] @ last.weight]
        self.biases = [*(layer.bias for layer in hidden), margin[None] @ last.bias]
        self.absolute = [np.abs(weight) for weight in self.weights]
        count = max(len(layer.bias) for layer in network.layers) + max(layer.weight.shape[1] for layer in network.layers)
        terms = (count + 2 * len(network.layers) + 40) * 2.0**-53
        self.rate = 64 * 2.0 ** len(network.layers) * terms / (1 - terms)
        self.sizes: list[Array] = []
        reach = np.maximum(*(np.abs(end[0]) for end in domain.box(domain.lower[None], domain.upper[None])))
        for layer in network.layers:
            with np.errstate(all="ignore"):  # overflow proves nothing
                reach = np.abs(layer.weight) @ reach + np.abs(layer.bias)
            self.sizes.append(reach)
        self.sizes[-1] = np.abs(margin)[None] @ self.sizes[-1]

    def planes(self, low: Array, high: Array) -> CopyPlanes:
        """Return the planes over network boxes low, high (B, n_0)."""
        step = max(1, BLOCK // max(len(bias) for bias in self.biases) ** 2)
        with np.errstate(all="ignore"):
            planes = CopyPlanes.join([self._planes(low[i : i + step], high[i : i + step]) for i in range(0, len(low), step)])
        ends = []
        for slope, value, unbounded in ((planes.under, planes.least, -np.inf), (planes.over, planes.most, np.inf)):
            finite = np.isfinite(slope).all(axis=1) & np.isfinite(value)
            ends += [np.where(finite[:, None], slope, 0.0), np.where(finite, value, unbounded)]
        return CopyPlanes(under=ends[0], least=ends[1], over=ends[2], most=ends[3], score=np.nan_to_num(planes.score))

    def _planes(self, low: Array, high: Array) -> CopyPlanes:
        middle, width = (low + high) / 2, (high - low) / 2
        bands: list[_Band] = []
        lower, upper = low, high
        for k, leak in enumerate(self.leaks):
            slope, value, radius = self._substituted(k, bands, middle)
            (fall, rise), (interval_low, interval_high) = self.swing(slope, low, high), self._intervals(k, lower, upper)
            lower, upper = np.fmax(value + fall - radius, interval_low), np.fmin(value + rise + radius, interval_high)
            bands.append(_band(lower, upper, leak))
            lower, upper = (np.where(end < 0, leak * end, end) for end in (lower, upper))
        under, lowest = self._one_sided(1.0, bands, middle)
        over, highest = self._one_sided(-1.0, bands, middle)
        return CopyPlanes(under=under, least=lowest, over=-over, most=-highest, score=self._score(bands, width))

    def _one_sided(self, sign: float, bands: list[_Band], middle: Array) -> tuple[Array, Array]:
        """Return slopes (B, n_0) of planes under sign * margin, and their values (B,) in the middle, less all rounding."""
        p = np.broadcast_to(sign * self.weights[-1][0], (len(middle), self.weights[-1].shape[1]))
        value = np.full(len(middle), sign * self.biases[-1][0])
        rounding = np.full(len(middle), self.rate * self.sizes[-1][0])
        for j in range(len(bands) - 1, -1, -1):
            band = bands[j]
            rounding = rounding + self.rate * (np.abs(p) @ self.sizes[j])
            value = value + 2 * (np.minimum(p, 0) * band.half).sum(axis=1)
            p = p * np.where(p < 0, band.chord, band.flat)
            value = value + p @ self.biases[j]
            p = p @ self.weights[j]
        return np.asarray(p), value + (p * middle).sum(axis=1) - rounding - TINY

    def _intervals(self, k: int, lower: Array, upper: Array) -> tuple[Array, Array]:
        """Return bounds (B, m) of all pre-activations of layer k from those of its inputs."""
        middle, half = (lower + upper) / 2, (upper - lower) / 2
        reach = (half + self.rate * (np.abs(middle) + half)) @ self.absolute[k].T + self.rate * np.abs(self.biases[k]) + TINY
        value = middle @ self.weights[k].T + self.biases[k]
        reach = np.where(np.abs(value) + reach <= LARGEST, reach, np.inf)
        return value - reach, value + reach

    def _substituted(self, k: int, bands: list[_Band], middle: Array) -> tuple[Array, Array, Array]:
        """Return slopes (B, m, n_0), values at the middle and radii (B, m) of all pre-activations of layer k."""
        p = np.broadcast_to(self.weights[k], (len(middle), *self.weights[k].shape))
        value, radius = np.broadcast_to(self.biases[k], p.shape[:2]), np.broadcast_to(self.rate * self.sizes[k], p.shape[:2])
        for j in range(k - 1, -1, -1):
            band, size = bands[j], np.abs(p)
            radius = radius + self.rate * (size @ self.sizes[j]) + (size @ band.half[:, :, None])[:, :, 0]
            value = value + (p @ band.half[:, :, None])[:, :, 0]
            p = p * band.chord[:, None]
            value = value + p @ self.biases[j]
            p = (p.reshape(-1, p.shape[2]) @ self.weights[j]).reshape(*p.shape[:2], -1)
        return np.asarray(p), value + (p @ middle[:, :, None])[:, :, 0], radius + TINY

    def _score(self, bands: list[_Band], width: Array) -> Array:
        """Return (B, n_0) the widths of unstable neurons' bands, times their weights in the margin, distributed over the inputs."""
        weight = np.broadcast_to(self.absolute[-1][0], (len(width), self.absolute[-1].shape[1]))
        score = np.zeros((len(width), weight.shape[1]))
        for k in range(len(bands) - 1, -1, -1):
            chord, share = bands[k].chord, bands[k].share
            weight, score = (weight * chord) @ self.absolute[k], (score * chord + weight * share) @ self.absolute[k]
        return np.asarray(score * width)


def _band(low: Array, high: Array, leak: Array) -> _Band:
    """Return the band around the activations of a layer for pre-activations in [low, high]."""
    unstable = (low < 0) & (high > 0)
    width = np.where(unstable, high - low, 1.0)
    chord = np.where(unstable, high / width, low >= 0)
    half = np.where(unstable, -low * chord / 2, 0.0) * (1 - leak)
    flat = np.clip(4 * chord - 1.5, 0.0, 1.0)
    return _Band(chord=leak + (1 - leak) * chord, half=half, flat=leak + (1 - leak) * flat, share=half / width)
