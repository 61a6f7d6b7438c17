"""The bound by multipliers: one combination of a goal's rows, carried backwards to the inputs by slopes of neurons.

    p . y + q . y'  >=  alpha . a + beta . a' + c          over every (a, a') that the region leaves a neuron

A slope names alpha (beta) of a neuron, any number, and c is then the exact minimum over the neuron's polygon: a, a' and a' - a
within their intervals. A neuron without one has a default. The inputs lie in one category of each one-hot block.
Sound? Yes: slopes only ever choose among valid bounds, so a damaged tree is rejected or still a proof.
Rounding as in `kernel.bounds`, of the terms |p| + |q| + |alpha| + |beta|.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from encoders.domain import Batched, Domain
from encoders.network import Layer
from verifair.checker.kernel.bounds import Span, TwinBounds
from verifair.checker.kernel.curves import TIE


@dataclass(frozen=True, kw_only=True, eq=False)
class LeafRows(Batched):
    """N forms first g(x) + second g(x') + constant, each a row of a leaf's goal, or a combination of its rows.

    leaf: (N,).   p, q: (N, n_N) the same of the outputs: first and second times the margin's weights.
    strict: (N,) True if it has to be positive; else 0 is enough.   mixed: (N,) True if it is a combination.
    weight: (N,) sum of the rows' weights, 1 for a row by itself.
    size, size_of_constant: (N,) sums over the rows, times their weights, of |p| + |q| as coefficients of the margins, and of |c|.
    """

    leaf: Integers
    first: Array
    second: Array
    p: Array
    q: Array
    constant: Array
    strict: Booleans
    weight: Array
    size: Array
    size_of_constant: Array
    mixed: Booleans

    def of_copy(self, second: bool) -> LeafRows:
        """Return the rows about one copy alone (the second one if `second`), as rows of the first copy."""
        rows = self.take((self.first if second else self.second) == 0)
        return replace(rows, first=rows.second, second=rows.first, p=rows.q, q=rows.p) if second else rows

    def charge(self, bounds: TwinBounds, margin: Array) -> Array:
        """Return (N,) a bound of the rounding error of combining rows, for margins with weights (N, n_N)."""
        error = np.zeros(len(self))
        leaf, size = self.leaf[self.mixed], self.size[self.mixed, None] * np.abs(margin[self.mixed])
        error[self.mixed] = bounds.eps * self.size_of_constant[self.mixed] + bounds.rounding(size, bounds.spans[-1].size[leaf])
        return error


def lagrange(
    bounds: TwinBounds, domain: Domain, boxes: tuple[Array, Array], rows: LeafRows, slopes: Array
) -> tuple[Array, Booleans]:
    """Return lower bounds (N,) of forms by slopes (N, 2 H), NaN where left out, and (N,) True where the region holds no point.

    boxes: (B, n_0), (B, n_0) of copy x. The rounding of combining the rows is not taken off.
    """
    network, leaf = bounds.network, rows.leaf
    alpha, beta, total, error = rows.p, rows.q, rows.constant, np.zeros(len(slopes))
    empty = np.zeros(len(slopes), dtype=bool)
    fixed = [np.split(copy, np.cumsum(network.hidden)[:-1], axis=1) for copy in np.split(slopes, 2, axis=1)]
    for k in range(len(network.layers) - 2, -1, -1):
        next_layer = network.layers[k + 1]
        total = total + alpha @ next_layer.bias + beta @ next_layer.bias
        p, q = alpha @ next_layer.weight, beta @ next_layer.weight
        span = bounds.spans[k].take(leaf)
        alpha, beta, offset, layer_empty = _substituted(network.layers[k], span, p, q, fixed[0][k], fixed[1][k])
        error = error + bounds.rounding(np.abs(p) + np.abs(q) + np.abs(alpha) + np.abs(beta), span.size)
        total, empty = total + offset, empty | layer_empty
    total = total + np.einsum("nj,nj->n", alpha, bounds.a[leaf]) + np.einsum("nj,nj->n", beta, bounds.a2[leaf])
    low, high = (end[leaf] for end in boxes)
    bound = total + _least_input(domain, low, high, (alpha + beta) @ network.layers[0].weight) - error
    finite = np.isfinite(bound) & np.isfinite(error) & bounds.in_range[leaf]
    return np.where(finite, bound, -np.inf), empty & bounds.in_range[leaf]


def _least_input(domain: Domain, low: Array, high: Array, slope: Array) -> Array:
    """Return (N,) the least of slope . (x - centre) over the inputs: numbers within their radius, one category of each block."""
    number, minimum = np.ones(slope.shape[1], dtype=bool), np.zeros(len(slope))
    for v in np.flatnonzero(domain.width > 1):
        block = slice(int(domain.start[v]), int(domain.start[v] + domain.width[v]))
        number[block] = False
        part, middle = slope[:, block], (low[:, block] + high[:, block]) / 2
        minimum += np.where(high[:, block] > 0, part, np.inf).min(axis=1) - np.einsum("nj,nj->n", part, middle)
    return np.asarray(minimum - np.einsum("nj,nj->n", np.abs(slope[:, number]), ((high - low) / 2)[:, number]))


def _substituted(layer: Layer, span: Span, p: Array, q: Array, fixed: Array, fixed2: Array) -> tuple[Array, Array, Array, Booleans]:
    """Return alpha, beta (B, m), c (B,) with  p.y + q.y' >= alpha.a + beta.a' + c  on each region; (B,) True if it is empty."""
    leak, leak2 = layer.slope * p, layer.slope * q
    p, q = (1 - layer.slope) * p, (1 - layer.slope) * q
    slope = np.where(np.isnan(fixed), _default(p, span.low, span.high), fixed - leak)
    slope2 = np.where(np.isnan(fixed2), _default(q, span.low2, span.high2), fixed2 - leak2)
    used = np.nonzero((p != 0) | (q != 0) | (slope != 0) | (slope2 != 0))
    least, empty = np.zeros(p.shape), np.zeros(p.shape, dtype=bool)
    least[used], empty[used] = _minimum(p[used], q[used], slope[used], slope2[used], [end[used] for end in span.ends])
    return leak + slope, leak2 + slope2, np.asarray(least.sum(axis=1)), np.asarray(empty.any(axis=1))


def _default(p: Array, low: Array, high: Array) -> Array:
    """Return the slope of a lone neuron without a multiplier: exact where it is stable, else the floor of smaller area or the
    ceiling."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ceiling = high / (high - low)
    unstable = np.where(p >= 0, high + low > TIE * (high - low), ceiling)
    return p * np.where(low >= 0, 1.0, np.where(high <= 0, 0.0, unstable))


def _minimum(p: Array, q: Array, slope: Array, slope2: Array, ends: Sequence[Array]) -> tuple[Array, Booleans]:
    """Return (N,) the least of  p max(t, 0) + q max(t', 0) - slope t - slope2 t'  over t, t', t' - t in their intervals, and True
    where surely none are. Axes of the arrays below: the four sign patterns, the corners, N."""
    low, high, low2, high2, d_low, d_high = ends
    left, right = np.stack([low, np.maximum(low, 0)]), np.stack([np.minimum(high, 0), high])
    left2, right2 = np.stack([low2, np.maximum(low2, 0)]), np.stack([np.minimum(high2, 0), high2])
    left, right = left[[0, 0, 1, 1]], right[[0, 0, 1, 1]]
    left2, right2 = left2[[0, 1, 0, 1]], right2[[0, 1, 0, 1]]
    start = np.maximum(left, np.nextafter(left2 - d_high, -np.inf))
    end = np.minimum(right, np.nextafter(right2 - d_low, np.inf))
    empty = (left > right) | (left2 > right2) | (start > end)
    t = np.stack([start, end, np.clip(left2 - d_low, start, end), np.clip(right2 - d_high, start, end)], axis=1)
    floor = np.maximum(left2[:, None], t[:, :3] + d_low)
    roof = np.minimum(right2[:, None], t[:, [0, 1, 3]] + d_high)
    t, t2 = t[:, [0, 1, 2, 0, 1, 3]], np.concatenate([floor, roof], axis=1)
    value = p * np.maximum(t, 0) + q * np.maximum(t2, 0) - slope * t - slope2 * t2
    infeasible = empty.all(axis=0)
    return np.where(infeasible, 0.0, np.where(empty, np.inf, value.min(axis=1)).min(axis=0)), infeasible
