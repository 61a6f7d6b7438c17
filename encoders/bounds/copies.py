"""Affine forms of the margin of one copy of a network over many boxes: what the share of a domain is bracketed by.

    | g(x) - (value + slope . (x - middle)) |  <=  radius        for every x of the box

Method: zonotopes, as a backward substitution: a neuron that bends between l < 0 < u is c a + h +- h with c = u / (u - l) and
h = -l c / 2; [l, u] is the closer of what the form gives and the interval from the layer below. Both sides have one slope, so that
a cell's fair and unfair points lie on two sides of a narrow strip between parallel planes, and can be counted.
Sound? yes, rounding included.   Complete? no; with cutting it is.
Rounding: with K the widest layer plus the widest input plus 2 layers + 40, every sum has less than K terms, and all operations of a
pass lose at most 32 gamma_K of the sizes |p| V_k added up over the layers, V_k = |W| |y| + |b| the largest there is anywhere (the
argument is that of `verifair.checker.kernel.bounds`). 2^layers times as much is added: the checker's sizes double in each.
Reference: DeepZ (Singh et al., NeurIPS 2018).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from encoders.bounds.rounding import TINY
from encoders.domain import Batched, Domain
from encoders.network import Array, Network

BLOCK = 1 << 19
"""Coefficients handled at once."""
LARGEST = 1e100
"""Intervals beyond it are left out: what overflows may be no number, and no number bounds nothing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AffineForms(Batched):
    """slope: (B, n_0).   value, radius: (B,).   score: (B, n_0) how much of the radius comes from the width of each column."""

    slope: Array
    value: Array
    radius: Array
    score: Array


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
        count = max(len(one.bias) for one in network.layers) + max(one.weight.shape[1] for one in network.layers)
        terms = (count + 2 * len(network.layers) + 40) * 2.0**-53
        self.rate = 64 * 2.0 ** len(network.layers) * terms / (1 - terms)
        self.sizes: list[Array] = []
        reach = np.maximum(*(np.abs(end[0]) for end in domain.box(domain.lower[None], domain.upper[None])))
        for layer in network.layers:
            with np.errstate(all="ignore"):  # what overflows shows nothing
                reach = np.abs(layer.weight) @ reach + np.abs(layer.bias)
            self.sizes.append(reach)
        self.sizes[-1] = np.abs(margin)[None] @ self.sizes[-1]

    def forms(self, low: Array, high: Array) -> AffineForms:
        """Return the forms over network boxes low, high (B, n_0)."""
        step = max(1, BLOCK // max(len(bias) for bias in self.biases) ** 2)
        with np.errstate(all="ignore"):
            found = AffineForms.join([self._forms(low[i : i + step], high[i : i + step]) for i in range(0, len(low), step)])
        sure = np.isfinite(found.slope).all(axis=1) & np.isfinite(found.value) & np.isfinite(found.radius)
        return AffineForms(
            slope=np.where(sure[:, None], found.slope, 0.0), value=np.where(sure, found.value, 0.0),
            radius=np.where(sure, found.radius, np.inf), score=np.nan_to_num(found.score),
        )

    def _forms(self, low: Array, high: Array) -> AffineForms:
        middle, width = (low + high) / 2, (high - low) / 2
        bands: list[tuple[Array, Array, Array]] = []
        least, most = low, high
        for k, leak in enumerate(self.leaks):
            slope, value, radius = self._substituted(k, bands, middle)
            (down, up), (near, far) = self.swing(slope, low, high), self._intervals(k, least, most)
            least, most = np.fmax(value + down - radius, near), np.fmin(value + up + radius, far)
            bands.append(_band(least, most, leak))
            least, most = (np.where(end < 0, leak * end, end) for end in (least, most))
        slope, value, radius = self._substituted(len(self.leaks), bands, middle)
        return AffineForms(slope=slope[:, 0], value=value[:, 0], radius=radius[:, 0], score=self._score(bands, width))

    def _intervals(self, k: int, least: Array, most: Array) -> tuple[Array, Array]:
        """Return bounds (B, m) of all pre-activations of layer k from those of what it reads."""
        middle, half = (least + most) / 2, (most - least) / 2
        reach = (half + self.rate * (np.abs(middle) + half)) @ self.absolute[k].T + self.rate * np.abs(self.biases[k]) + TINY
        value = middle @ self.weights[k].T + self.biases[k]
        reach = np.where(np.abs(value) + reach <= LARGEST, reach, np.inf)
        return value - reach, value + reach

    def _substituted(self, k: int, bands: list[tuple[Array, Array, Array]], middle: Array) -> tuple[Array, Array, Array]:
        """Return slopes (B, m, n_0), values at the middle and radii (B, m) of all pre-activations of layer k."""
        p = np.broadcast_to(self.weights[k], (len(middle), *self.weights[k].shape))
        value, radius = np.broadcast_to(self.biases[k], p.shape[:2]), np.broadcast_to(self.rate * self.sizes[k], p.shape[:2])
        for j in range(k - 1, -1, -1):
            slope, half, _ = bands[j]
            size = np.abs(p)
            radius = radius + self.rate * (size @ self.sizes[j]) + (size @ half[:, :, None])[:, :, 0]
            value = value + (p @ half[:, :, None])[:, :, 0]
            p = p * slope[:, None]
            value = value + p @ self.biases[j]
            p = (p.reshape(-1, p.shape[2]) @ self.weights[j]).reshape(*p.shape[:2], -1)
        return np.asarray(p), value + (p @ middle[:, :, None])[:, :, 0], radius + TINY

    def _score(self, bands: list[tuple[Array, Array, Array]], width: Array) -> Array:
        """Return (B, n_0) how the bands of the bending neurons, times their weight in the margin, come from the inputs' widths."""
        passed = np.broadcast_to(self.absolute[-1][0], (len(width), self.absolute[-1].shape[1]))
        blame = np.zeros((len(width), passed.shape[1]))
        for k in range(len(bands) - 1, -1, -1):
            slope, _, share = bands[k]
            passed, blame = (passed * slope) @ self.absolute[k], (blame * slope + passed * share) @ self.absolute[k]
        return np.asarray(blame * width)


def _band(low: Array, high: Array, leak: Array) -> tuple[Array, Array, Array]:
    """Return slope and half-width (B, m) of the band around what a layer makes of [low, high], and the latter per unit of width."""
    loose = (low < 0) & (high > 0)
    width = np.where(loose, high - low, 1.0)
    chord = np.where(loose, high / width, low >= 0)
    half = np.where(loose, -low * chord / 2, 0.0) * (1 - leak)
    return leak + (1 - leak) * chord, half, half / width
