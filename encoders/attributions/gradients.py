r"""Integrated gradients of a network's margin, in batches: the exact path integral, and the T-step Riemann sum.

For a margin f(x) = c . logits(x), an input x and a baseline b (Sundararajan, Taly and Yan, ICML 2017, equation 1),

    IG_j(x; b) = (x_j - b_j) \int_0^1 df/dx_j (b + alpha (x - b)) dalpha.

On the segment from b to x the network is piecewise linear in alpha, so that the integrand is piecewise constant: it jumps only
where some neuron's pre-activation changes its sign. In the first layer those places are the roots of p + alpha q; with them known,
the pre-activations of the second layer are linear between them, which gives its roots; and so on. The last layer with kinks needs
no roots: a piece is weighted with the share of it on which the neuron is on. The integral is then a finite sum, gradient times
length, over the pieces. Its rounding error is that of evaluating the network, so that completeness,

    sum_j IG_j(x; b) = f(x) - f(b),

holds to a few units in the last place of the terms. The derivative of a neuron at 0 is its slope there (0 for ReLU), which only
matters where a pre-activation is 0 on a whole piece.

Smooth neurons leave no such pieces. Then the path is halved, and each half again, until the Gauss-Lobatto sums of the halves and
of the whole agree (`AGREES`), and bounds of derivatives show that the points miss nothing between them (`_is_calm`). Analytic parts
take few halvings, a kink of a later layer about twenty-five; kinks of the first layer are known, and end parts.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from joblib import Parallel, delayed

from encoders.arrays import Array, Booleans, Integers
from encoders.curves.floats import decay
from encoders.curves.layer import Curve, SmoothLayer, parts
from encoders.errors import ModelError
from encoders.network import Layer, Network, activate, affine

POINTS = 4096
"""Points of paths in memory at once: their activations in a layer of 128 take 4 MiB. Fewer would fit a core's cache, but threads
would wait for each other between the many small steps of an exact integral."""
AGREES = 1e-9
"""For smooth neurons: largest difference between a part's sum and that of its halves, relative to the size of the attribution."""
CALM, FLAT, FINE = 1.0, 12.0, 2.0**-10
"""On a part, a neuron is calm if its pre-activation stays within CALM of that in the middle, or beyond FLAT, where curves are flat.
Parts no longer than FINE are accepted in any case."""
STEEP, MOST_STEEP = 50.0, 2.0
"""A first-layer curve whose pre-activation moves further than STEEP on a path has a step there; MOST_STEEP bounds all slopes."""
SMALLEST = 2.0**-40
"""Parts no longer than this are not halved: a kink on them has no visible effect."""
COMPLETE = 1e-3
"""Largest difference between the sum of attributions and the margin's change, relative to the terms of both. With random weights up
to 10,000 it is below 1e-7; with weights of 1e15, where sums are meaningless, 0.04 and more."""
ROUNDING = 1e-12
"""Sums that differ by no more are equal: where nothing changes on a path, what is left are rounding errors, alone. CEC adds 1e-8 to
norms of attributions, so that they say nothing there."""
SHOWN = 8
"""The most inputs that a message names."""
FEW = 10
"""After so many halvings only kinks are left, which need more points but no sums of high order."""


def _lobatto(count: int) -> tuple[Array, Array]:
    """Return points of [0, 1] and their weights. Both ends are moved inwards a little, off kinks at the ends of a part."""
    basis = np.polynomial.Legendre.basis(count - 1)
    node = np.concatenate([[-1.0], basis.deriv().roots().real, [1.0]])
    return (node * (1 - 2.0**-25) + 1) / 2, np.asarray(1 / (count * (count - 1) * basis(node) ** 2))


LONG, SHORT = _lobatto(8), _lobatto(4)


def gradients(network: Network, margin: Array, x: Array) -> Array:
    """Return the gradient (B, n_0) of margin . logits at x (B, n_0), margin (n_N,). At a kink: the slope of the left side."""
    first = network.layers[0]
    slopes = _slopes(network.layers, affine(x, first))
    return _pulled_back(network.layers, np.tile(margin, (len(x), 1)), slopes) @ first.weight


def integrated_gradients(
    network: Network, margin: Array, x: Array, baseline: Array, steps: int | None = None, *, threads: int = 1
) -> Array:
    """Return attributions (B, n_0) of margin . logits at x (B, n_0) from baseline (B, n_0), margin (n_N,).

    steps: None for the exact path integral, of smooth networks by quadrature, to about seven digits of the whole; T for the sum
    over alpha = (t - 1/2) / T, t = 1 ... T ("riemann_middle" in captum).
    threads: chunks of rows are shared among so many.   Raises ValueError for shapes that do not fit, or steps below 1; ModelError
    for attributions that are not finite, or, as exact integrals, do not sum to the margin's change.
    Sound? a float64 evaluation, not a bound.   Reference: see the module; exact summation of pieces is ours.
    """
    if x.shape != baseline.shape or x.ndim != 2 or x.shape[1] != network.inputs or margin.shape != (network.outputs,):
        raise ValueError(f"x {x.shape}, baseline {baseline.shape} and margin {margin.shape} do not fit the network")
    if steps is not None and steps < 1:
        raise ValueError(f"steps = {steps}, expected at least 1, or None for the exact integral")
    size = max(1, POINTS // points_of(network, steps))  # independent of threads, as sums of other shapes round differently
    parts = [slice(start, start + size) for start in range(0, len(x), size)]
    parts_done = Parallel(n_jobs=threads, require="sharedmem")(
        delayed(_attributions)(network, margin, x[part], baseline[part], steps) for part in parts
    )
    result = np.concatenate(parts_done) if parts_done else np.zeros_like(x)
    for part in (slice(start, start + POINTS) for start in range(0, len(x), POINTS)):
        _check(network, margin, x[part], baseline[part], result[part], exact=steps is None)
    return result


def _check(network: Network, margin: Array, x: Array, baseline: Array, values: Array, *, exact: bool) -> None:
    """Raise ModelError for attributions (B, n_0) as `integrated_gradients` does."""
    if (baseline == baseline[0]).all():
        baseline = baseline[:1]
    with np.errstate(over="ignore", invalid="ignore"):
        total, (end, end_terms), (start, start_terms) = values.sum(axis=1), *(_margin(network, margin, p) for p in (x, baseline))
        terms = np.abs(values).sum(axis=1) + end_terms + start_terms
        wrong = ~np.isfinite(values).all(axis=1)
        if exact:
            wrong |= ~(np.abs(total - (end - start)) <= COMPLETE * terms + ROUNDING)
    if wrong.any():
        row = int(np.argmax(wrong))
        inputs = ", ".join(f"{value:.6g}" for value in x[row, :SHOWN]) + (", ..." if x.shape[1] > SHOWN else "")
        raise ModelError(
            network.source or "network",
            f"the attributions of the inputs ({inputs}) sum to {total[row]:.6g}, and from the baseline on the margin changes by "
            f"{(end - start)[row]:.6g}: the weights (up to {max(np.abs(layer.weight).max() for layer in network.layers):.3g}) "
            "are too large for paths to be summed in float64; scale inputs and weights, and train or export it again",
        )


def _margin(network: Network, margin: Array, x: Array) -> tuple[Array, Array]:
    """Return the margin (B,) at x (B, n_0) less its constant, and the sum of the sizes of its terms."""
    *hidden, last = network.layers
    for layer in hidden:
        x = activate(affine(x, layer), layer)
    weight = margin @ last.weight
    return x @ weight, np.abs(x) @ np.abs(weight)


def points_of(network: Network, steps: int | None) -> int:
    """Return about how many points of one path are evaluated: at most half of the neurons change their sign on a path."""
    return steps or (2 + sum(network.hidden) // 2 if network.piecewise_linear else 3 * len(LONG[0]))


def _attributions(network: Network, margin: Array, x: Array, baseline: Array, steps: int | None) -> Array:
    layers, first = network.layers, network.layers[0]
    start, direction = affine(baseline, first), (x - baseline) @ first.weight.T
    if steps is None and not network.piecewise_linear:
        return _adaptive(layers, margin, x - baseline, start, direction)
    if steps is None:
        row, length, slopes = _pieces(layers, start, direction)
    else:
        row = np.repeat(np.arange(len(x)), steps)
        length = np.full(len(row), 1 / steps)
        slopes = _slopes(layers, _along(start, direction, row, np.tile((np.arange(steps) + 0.5) / steps, len(x))))
    weights = _pulled_back(layers, length[:, None] * margin, slopes)
    # Every path has at least one piece, and its pieces lie together: reduceat sums them.
    summed = np.add.reduceat(weights, np.searchsorted(row, np.arange(len(x))), axis=0)
    return np.asarray((x - baseline) * (summed @ first.weight))


def _adaptive(layers: Sequence[Layer], margin: Array, delta: Array, start: Array, direction: Array) -> Array:
    """Return the attributions (B, n_0) of a network with smooth neurons, by parts of paths that are halved. delta: x - baseline."""
    first = layers[0]

    def attributed(row: Integers, low: Array, width: Array, rule: tuple[Array, Array]) -> Array:
        """Return (Q, n_0) the integrals over the parts [low, low + width] (Q,) of the paths of rows (Q,)."""
        node, share = rule
        out, step = np.empty((len(row), delta.shape[1])), POINTS // len(node)
        for part in (slice(offset, offset + step) for offset in range(0, len(row), step)):
            alpha = low[part, None] + width[part, None] * node
            slopes = _slopes(layers, _along(start, direction, np.repeat(row[part], len(node)), alpha.ravel()))
            weights = _pulled_back(layers, (width[part, None] * share).reshape(-1, 1) * margin, slopes)
            out[part] = delta[row[part]] * (weights.reshape(*alpha.shape, -1).sum(axis=1) @ first.weight)
        return out

    ends = _with_roots(np.tile([0.0, 1.0], (len(delta), 1)), *_kinks(first, start, direction))
    lengths = np.diff(ends, axis=1)
    row, column = np.nonzero(lengths > 0)
    low, width = ends[row, column], lengths[row, column]
    whole, total, size, rule, level = attributed(row, low, width, LONG), np.zeros_like(delta), np.zeros(len(delta)), LONG, 0
    while len(row):
        level += 1
        if level == FEW:
            rule = SHORT
            whole = attributed(row, low, width, rule)
        width = width / 2
        halves = attributed(row, low, width, rule), attributed(row, low + width, width, rule)
        sums = halves[0] + halves[1]
        np.maximum.at(size, row, np.abs(sums).sum(axis=1))
        split = np.abs(sums - whole).sum(axis=1) > AGREES * size[row]
        split |= (width > FINE) & ~_is_calm(layers, start, direction, row, low + width, width)
        split &= width > SMALLEST
        np.add.at(total, row[~split], sums[~split])
        whole = np.concatenate([half[split] for half in halves])
        row, low, width = np.tile(row[split], 2), np.concatenate([low[split], (low + width)[split]]), np.tile(width[split], 2)
    return total


def _is_calm(layers: Sequence[Layer], start: Array, direction: Array, row: Integers, middle: Array, reach: Array) -> Booleans:
    """Return (Q,) True for parts [middle - reach, middle + reach] (Q,) on which every neuron moves little or is flat throughout,
    and no kink of a later layer can lie, so that points show all. By bounds of derivatives, from layer to layer."""
    calm = np.ones(len(row), dtype=bool)
    value, moves = _along(start, direction, row, middle), np.abs(direction[row]) * reach[:, None]
    for k, (layer, above) in enumerate(itertools.pairwise(layers)):
        smallest = np.maximum(np.abs(value) - moves, 0.0)  # |a| throughout
        bend, groups = (layer.bend, layer.groups()) if isinstance(layer, SmoothLayer) else (layer.slope, [])
        steepest = np.where(value + moves > 0, 1.0, bend)
        if k:
            calm &= ~((smallest <= 0) & (bend < 1)).any(axis=1)
        if isinstance(layer, SmoothLayer):
            calm &= ((moves <= CALM) | (smallest > FLAT) | ~layer.smooth | layer.squared).all(axis=1)
            steepest = np.where(layer.smooth, _made_of_tanh(layer, smallest)[1], steepest)
        for curve, index in groups:
            steepest[:, index] = 2 * (np.abs(value) + moves)[:, index] if curve is Curve.SQUARE else MOST_STEEP
            for joint in curve.joints if k and curve.joints and curve.shape.kink else ():
                calm &= ~(np.abs(value[:, index] - joint) <= moves[:, index]).any(axis=1)
        if above is not layers[-1]:
            value = affine(activate(value, layer), above)
            moves = (steepest * moves) @ np.abs(above.weight).T
    return calm


def _kinks(layer: Layer, start: Array, direction: Array) -> tuple[Integers, Array]:
    """Return path (R,) and place (R,), path by path, of kinks of the first layer's neurons, and of steps of its steep curves."""
    bend, groups = (layer.bend, layer.groups()) if isinstance(layer, SmoothLayer) else (layer.slope, [])
    joints = [(k, 0.0) for k in range(len(bend))]
    for curve, index in groups:
        joints += [(k, joint) for joint in curve.joints if joint for k in index.tolist()]
    neuron, joint = np.array([k for k, _ in joints], dtype=np.int64), np.array([joint for _, joint in joints])
    kinked = (bend < 1)[neuron] | np.isin(neuron, [k for curve, index in groups if curve.joints for k in index.tolist()])
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        alpha = (joint - start[:, neuron]) / direction[:, neuron]
    row, column = np.nonzero((alpha > 0) & (alpha < 1) & (kinked | (np.abs(direction[:, neuron]) > STEEP)))
    return row, alpha[row, column]


def _along(start: Array, direction: Array, row: Integers, alpha: Array) -> Array:
    """Return start + alpha direction (Q, n_1) at the points (row, alpha) of the paths."""
    out = direction[row]
    out *= alpha[:, None]
    out += start[row]
    return np.asarray(out)


def _slopes(layers: Sequence[Layer], value: Array) -> list[Array]:
    """Return derivatives (B, n_k) of activations of layers 1 ... N - 1, from the first pre-activations (B, n_1): overwritten."""
    slopes: list[Array] = []
    for layer, above in itertools.pairwise(layers):
        if isinstance(layer, SmoothLayer):
            value, slope = _curved(layer, value)
            slopes.append(slope)
        else:
            slopes.append(np.where(value > 0, 1.0, layer.slope))
            value *= slopes[-1]  # activated
        if above is not layers[-1]:  # the value of the last layer is not needed: it has no kink
            value = affine(value, above)
    return slopes


def _curved(layer: SmoothLayer, a: Array) -> tuple[Array, Array]:
    """Return activations (B, n) of a smooth layer at a (B, n), and their derivatives."""
    leaky = np.where(a > 0, 1.0, layer.bend)
    value, slope = leaky * a, leaky
    if (of_tanh := layer.smooth & ~layer.shaped).any():
        value, slope = (np.where(of_tanh, x, y) for x, y in zip(_made_of_tanh(layer, a), (value, slope), strict=True))
    for curve, index in layer.groups():
        value[:, index], slope[:, index] = curve.at(a[:, index])
    return value, slope


def _made_of_tanh(layer: SmoothLayer, a: Array) -> tuple[Array, Array]:
    """Return the same for neurons that are sigmoids and tanh; entries of other neurons are meaningless."""
    q, p, c = parts(layer.curve)
    e = decay(q * a)  # T = (1 - exp(-2t)) / (1 + exp(-2t)),  T' = 4 exp(-2t) / (1 + exp(-2t))^2
    return c + p * np.copysign((1 - e) / (1 + e), a), 4 * p * q * e / (1 + e) ** 2


def _pulled_back(layers: Sequence[Layer], weights: Array, slopes: Sequence[Array]) -> Array:
    """Return `weights` (B, n_N), weights of the logits, as weights (B, n_1) of the first layer's pre-activations."""
    for layer, slope in zip(reversed(layers), reversed(slopes), strict=False):
        weights = weights @ layer.weight
        weights *= slope
    return weights


def _pieces(layers: Sequence[Layer], start: Array, direction: Array) -> tuple[Integers, Array, list[Array]]:
    """Return pieces of the paths: path (Q,), length (Q,) and the mean derivative (Q, n_k) of every activation over the piece.

    Inside a piece only neurons of the last layer with kinks change their sign, and a pre-activation that moves linearly from
    l to r is positive on a share (l+ + r+) / (|l| + |r|) of it: the mean of the product is the product of the means.
    start, direction: (B, n_1) the first layer's pre-activations are start + alpha direction.
    The last end of a path and the first of the next look like a piece, too: it has length 0.
    """
    ends = _ends(layers, start, direction)
    row, column = np.nonzero(np.diff(ends, axis=1, prepend=-1.0) > 0)  # each end once
    alpha = ends[row, column]
    length = np.where(row[:-1] == row[1:], np.diff(alpha), 0.0)
    value = _along(start, direction, row, alpha)
    slopes: list[Array] = []
    for layer, above in itertools.pairwise(layers):
        positive = np.maximum(value, 0.0)
        above_zero = positive[:-1] + positive[1:]
        size = 2 * above_zero - (value[:-1] + value[1:])  # |l| + |r|
        share = np.divide(above_zero, size, out=np.zeros_like(size), where=size > 0)
        slopes.append(share if not layer.slope.any() else layer.slope + (1 - layer.slope) * share)
        if above is not layers[-1]:
            value = affine(activate(value, layer), above)
    return row[:-1], length, slopes


def _ends(layers: Sequence[Layer], start: Array, direction: Array) -> Array:
    """Return sorted ends (B, P) of the pieces, from 0 to 1, the last repeated in rows of paths with fewer."""
    kinked = [k for k, layer in enumerate(layers) if not layer.linear]
    ends = np.tile([0.0, 1.0], (len(start), 1))
    for k in kinked[:-1]:
        row, column = np.nonzero(np.diff(ends, axis=1, prepend=-1.0) > 0)
        alpha = ends[row, column]
        value = _along(start, direction, row, alpha)
        for layer_below, layer in itertools.pairwise(layers[: k + 1]):
            value = affine(activate(value, layer_below), layer)
        # Between neighbouring ends of one path the pre-activation is linear, so a change of sign is one root.
        left, right = value[:-1], value[1:]
        piece, neuron = np.nonzero(((left > 0) != (right > 0)) & (row[:-1] == row[1:])[:, None] & (layers[k].slope < 1))
        before, after = left[piece, neuron], right[piece, neuron]
        root = alpha[piece] + (alpha[piece + 1] - alpha[piece]) * (before / (before - after))
        ends = _with_roots(ends, row[piece], root)
    return ends


def _with_roots(ends: Array, row: Integers, root: Array) -> Array:
    """Return `ends` with further ends root (R,) in rows row (R,), which are increasing."""
    count = np.bincount(row, minlength=len(ends))
    extra = np.ones((len(ends), int(count.max(initial=0))))
    extra[row, np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)] = root
    return np.sort(np.concatenate([ends, extra], axis=1), axis=1)
