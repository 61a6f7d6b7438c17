r"""Bounds of the integrated gradient along all paths from a baseline into a box, from the neurons that can switch, and when.

For a margin f = c . logits and all x of a box [low, high], bounded is  G(x) = \int_0^1 grad f(b + alpha (x - b)) dalpha,  as a
*zonotope*  { centre + sum_l xi_l generator_l : |xi_l| <= 1 }  in the input space.

Method. [0, 1] is cut into slices of equal length T. On a slice, z = b + alpha (m - b) + eta with m the middle of the box and
|eta| <= alpha r: an affine image of a box in (alpha, eta). Linear forms of every pre-activation over it (those of `linear`:
exact in the first layer, ReLUs relaxed above it) say at which alpha a neuron is surely on, surely off, or neither. So the mask
d_k(alpha) in [s, 1] of a neuron (s its slope) is known except for some time: its mean over the slice lies within rho of a number
d^c, its values in [lo, hi], and the mean of |d - d^c| is at most kappa, as |.| lies under its chord over [lo, hi]. With
D_k = D_k^c + E_k,  h_k = W_{k+1}^T D_{k+1} h_{k+1}  and  P_k = W_1^T D_1^c W_2^T ... D_{k-1}^c W_k^T

    grad f = P_{N-1} D_{N-1}^c h_{N-1} + sum_k P_k E_k h_k              (telescoping; exact)
    | \int e_i h_i | <= T (rho_i |h_i^c| + kappa_i rad h_i),    rad h_k = |W_{k+1}|^T (hi rad h_{k+1} + max|e| |h_{k+1}^c|).

Each neuron and slice gives one generator along its column of P_k, so that its effects on all inputs stay coupled. In the first
layer these columns are W_1, so that a neuron's slices are added up. With one hidden layer the only loss is the slices' hull of
eta; in general the loss is of second order in the slices' length, and vanishes with it for a single point x.
A neuron at 0 may have either slope: bounds hold for any choice of the gradient there.

Sound? yes, outward-rounded.  Complete? no.
Rounding (terms of `rounding`). E_k = factor F_k moves every form outwards: with one factor for all layers, E_k >= 8 |W_k| E_{k-1}
pays for the errors inherited, too. d^c is what it is as a float, and slices are dyadic: no error. With M_k = |W_{k+1}|^T M_{k+1},
M_{N-1} = |W_N|^T |c|, all of |h_k^c|, and of |P_k| times it, is at most M_k and M_0; rad h_k <= N M_k, and rho, kappa, max|e| <= 1.
Hence centre and generators, added up over slices (sum T = 1) and layers, are off by at most  16 N^2 factor(all terms) M_0  in each
coordinate, whatever was rounded where: this is one more box, `error`. Times are quotients of size at most 1, off by a few u:
`TIME` pays for them. What overflows is inf or NaN and makes `error` so, or the centre: it proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from encoders.arrays import Array, Integers
from encoders.bounds.linear import Forms
from encoders.bounds.relu import activation, relu_lines
from encoders.bounds.rounding import TINY, factor, magnitude
from encoders.network import Layer, Network
from solvers import clock

TIME = 2.0**-48
"""The largest error of a share of a slice."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Zonotopes:
    """One zonotope for each of B boxes.

    centre (B, n_0).  generator (L, n_0) of box owner (L,), in increasing order of boxes.  error (B, n_0): bounds of the rounding
    error of each coordinate.   lower, upper (B,): of the margin over the box.
    """

    centre: Array
    generator: Array
    owner: Integers
    error: Array
    lower: Array
    upper: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Masks:
    """Bounds of the masks of one layer on S slices, (S, n) each: d^c, [lo, hi], and bounds rho, kappa and `most` of |mean of e|,
    mean of |e| and |e|, e = d - d^c."""

    centre: Array
    high: Array
    rho: Array
    kappa: Array
    most: Array

    @classmethod
    def of(cls, on: Array, off: Array, slope: Array) -> Masks:
        """Return the masks from the shares of a slice (S, n) on which a neuron is surely on, and surely off; 1: exactly all of
        it."""
        rest = 1 - slope
        lowest = np.where(on >= 1, 1.0, np.where(off >= 1, 0.0, np.maximum(on - TIME, 0.0)))
        highest = np.where(off >= 1, 0.0, np.where(on >= 1, 1.0, np.minimum(1 - off + TIME, 1.0)))
        share = (lowest + highest) / 2
        centre = np.where((on >= 1) | (off >= 1), np.where(on >= 1, 1.0, slope), slope + rest * share)
        low, high = np.where(on >= 1, 1.0, slope), np.where(off >= 1, slope, 1.0)
        up, down = high - centre, centre - low
        chord = np.maximum(lowest * up + (1 - lowest) * down, highest * up + (1 - highest) * down)
        unsure = ((on < 1) & (off < 1)) * (slope < 1)
        rho = unsure * (rest * (highest - lowest) / 2 + TIME)
        return cls(centre=centre, high=high, rho=rho, kappa=unsure * (chord + TIME), most=unsure * np.maximum(up, down))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Paths:
    """The paths from baseline (B, n_0) into boxes [low, high] (B, n_0), in slices of alpha: start, length (slices + 1,)."""

    baseline: Array
    low: Array
    high: Array
    start: Array
    length: Array

    @classmethod
    def of(cls, baseline: Array, low: Array, high: Array, slices: int) -> _Paths:
        """Return the paths. The last slice of each box is its end alpha = 1, of length 0: there the margin is bounded."""
        start, length = np.append(np.arange(slices) / slices, 1.0), np.append(np.full(slices, 1 / slices), 0.0)
        return cls(baseline=baseline, low=low, high=high, start=start, length=length)


def gradient_zonotopes(network: Network, margin: Array, baseline: Array, low: Array, high: Array, slices: int) -> Zonotopes:
    """Return enclosures of the mean gradient of margin . logits on the paths from baseline (B, n_0) to any x in [low, high] (B,
    n_0).

    margin: (n_N,).   slices: number of slices, a power of two (so that their ends are floats). Raises ValueError for others.
    Sound? yes, see the module.  Complete? no.
    """
    if slices < 1 or slices & (slices - 1):
        raise ValueError(f"slices = {slices}, expected a power of two")
    with np.errstate(all="ignore"):  # whatever overflows or is NaN proves nothing
        return _zonotopes(network, margin, _Paths.of(baseline, low, high, slices))


def _zonotopes(network: Network, margin: Array, paths: _Paths) -> Zonotopes:
    layers, boxes, slices = _with_margin(network, margin), len(paths.low), len(paths.start) - 1
    masks, lower, upper = _forward(network, margin, layers, paths)
    at_end = np.arange(boxes) * (slices + 1) + slices
    centre, generator, owner = _backward(layers, masks, np.tile(paths.length, boxes), boxes)
    error = np.broadcast_to(_error(layers, margin, network, slices), centre.shape)
    return Zonotopes(centre=centre, generator=generator, owner=owner, error=error, lower=lower[at_end], upper=upper[at_end])


def _with_margin(network: Network, margin: Array) -> tuple[Layer, ...]:
    """Return the layers, the last one folded into the margin's one row (with one rounding a term, which all errors cover)."""
    last = network.layers[-1]
    row = Layer(weight=(margin @ last.weight)[None, :], bias=(margin @ last.bias)[None], slope=np.ones(1))
    return (*network.layers[:-1], row)


def _error(layers: tuple[Layer, ...], margin: Array, network: Network, slices: int) -> Array:
    """Return 16 N^2 factor(all terms) M_0, (n_0,)."""
    size = np.abs(margin) @ np.abs(network.layers[-1].weight) + TINY
    for layer in reversed(layers[:-1]):
        size = size @ np.abs(layer.weight) + TINY
    terms = sum(sum(layer.weight.shape) for layer in network.layers) + slices
    return np.asarray(16 * len(layers) ** 2 * factor(terms) * size)


def _forward(network: Network, margin: Array, layers: tuple[Layer, ...], paths: _Paths) -> tuple[list[Masks], Array, Array]:
    """Return the masks of the hidden layers on every slice of every box (box-major), and bounds (S,) of the margin there."""
    baseline, low, high, count = paths.baseline, paths.low, paths.high, len(paths.start)
    middle = low + (high - low) / 2
    radius = np.nextafter(np.maximum(high - middle, middle - low), np.inf) * (high > low)
    moving = np.flatnonzero((radius > 0).any(axis=0))
    size = 4 * np.maximum(np.abs(baseline), np.maximum(np.abs(low), np.abs(high)))
    terms = factor(max(layer.weight.shape[1] for layer in layers) + network.outputs)
    first, last = layers[0], network.layers[-1]
    bound = magnitude(first.weight, first.bias, size)
    slice_of = np.repeat(np.arange(len(low)), count)
    forms = _first_forms(first, paths, middle, radius, moving)
    lower, upper = (_rounded(value, terms * bound, count, sign) for value, sign in zip(forms.range(), (-1, 1), strict=True))
    masks, interval_size, form_size = [], bound, bound
    for k, layer in enumerate(layers[1:], start=1):
        below = layers[k - 1]
        masks.append(_masks(forms, terms * form_size[slice_of], lower, upper, below.slope))
        y = activation(lower, below.slope), activation(upper, below.slope)
        forms = forms.between(relu_lines(lower, upper).leaky(below.slope)).image(layer.weight, np.abs(layer.weight), layer.bias)
        weight, bias = layer.weight, layer.bias
        if k == len(layers) - 1:  # magnitudes from before the logits' rows were folded
            weight, bias = np.abs(margin) @ np.abs(last.weight), np.abs(margin) @ np.abs(last.bias)
            weight, bias = weight[None, :], bias[None]
        interval_size, form_size = magnitude(weight, bias, interval_size), magnitude(weight, bias, 8 * form_size)
        spread = ((y[1] - y[0]) / 2) @ np.abs(layer.weight).T + terms * interval_size[slice_of]
        centre = ((y[0] + y[1]) / 2) @ layer.weight.T + layer.bias
        low_form, high_form = (_rounded(v, terms * form_size, count, s) for v, s in zip(forms.range(), (-1, 1), strict=True))
        lower, upper = np.maximum(centre - spread, low_form), np.minimum(centre + spread, high_form)
    return masks, lower[:, 0] - TINY, upper[:, 0] + TINY


def _rounded(value: Array, error: Array, count: int, sign: int) -> Array:
    """Return values (S, n) moved outwards by the error (B, n) of their boxes."""
    return np.asarray(value + sign * np.repeat(error, count, axis=0))


def _first_forms(layer: Layer, paths: _Paths, middle: Array, radius: Array, moving: Integers) -> Forms:
    """Return the exact form (n_1, S, d + 2) of the first layer: coefficients of moving inputs, of the time, and the constant."""
    baseline, start, length = paths.baseline, paths.start, paths.length
    boxes, count, d = len(middle), len(start), len(moving)
    at_baseline, rise = baseline @ layer.weight.T + layer.bias, (middle - baseline) @ layer.weight.T
    form = np.empty((len(layer.bias), boxes, count, d + 2))
    reach = (start + length)[:, None] * radius[:, None, moving]  # (B, count, d)
    form[..., :d] = layer.weight[:, moving][:, None, None, :] * reach
    form[..., d] = rise.T[:, :, None] * (length / 2)
    form[..., d + 1] = at_baseline.T[:, :, None] + rise.T[:, :, None] * (start + length / 2)
    flat = form.reshape(len(layer.bias), boxes * count, d + 2)
    return Forms(lower=flat, upper=flat)


def _masks(forms: Forms, error: Array, lower: Array, upper: Array, slope: Array) -> Masks:
    """Return masks (S, n) from the forms, (lower, upper) bounds and rounding errors (S, n) of the pre-activations."""
    lowest = forms.lower[:, :, -1] - np.abs(forms.lower[:, :, :-2]).sum(axis=2)
    highest = forms.upper[:, :, -1] + np.abs(forms.upper[:, :, :-2]).sum(axis=2)
    on = _share(lowest.T - error, forms.lower[:, :, -2].T)
    off = _share(-highest.T - error, -forms.upper[:, :, -2].T)
    return Masks.of(np.where(lower > 0, 1.0, np.minimum(on, 1 - TIME)), np.where(upper < 0, 1.0, np.minimum(off, 1 - TIME)), slope)


def _share(constant: Array, slope: Array) -> Array:
    """Return the share of t in [-1, 1] with constant + slope t > 0; 0 where that is not certain."""
    root = np.divide(-constant, slope, out=np.zeros_like(slope), where=slope != 0)
    share = np.where(slope > 0, 1 - root, 1 + root) / 2
    share = np.where(slope == 0, (constant > 0).astype(float), np.clip(share, 0.0, 1.0))
    return np.where(np.isfinite(constant) & np.isfinite(slope), share, 0.0)


def _backward(layers: tuple[Layer, ...], masks: list[Masks], length: Array, boxes: int) -> tuple[Array, Array, Integers]:
    """Return centres (B, n_0) of the zonotopes, their generators (L, n_0), and the box of each generator (L,)."""
    slices, hidden = len(length), len(layers) - 1
    per_box = slices // boxes
    h = np.broadcast_to(layers[-1].weight, (slices, layers[-1].weight.shape[1]))
    radius = np.zeros(h.shape)
    generators: list[Array] = []
    owners: list[Integers] = []
    for k in range(hidden - 1, -1, -1):
        mask, layer = masks[k], layers[k]
        size = length[:, None] * (mask.rho * np.abs(h) + mask.kappa * radius)
        if k:
            piece, neuron = np.nonzero(size)
            generators.append(_pulled(layers, masks, k, piece, neuron) * size[piece, neuron][:, None])
            owners.append(piece // per_box)
            radius = (mask.high * radius + mask.most * np.abs(h)) @ np.abs(layer.weight)
        else:  # the same directions on all slices
            total = size.reshape(boxes, per_box, -1).sum(axis=1)
            box, neuron = np.nonzero(total)
            generators.append(layer.weight[neuron] * total[box, neuron][:, None])
            owners.append(box)
        clock.spend(2 * slices * layer.weight.size)
        h = (mask.centre * h) @ layer.weight
    centre = (length[:, None] * h).reshape(boxes, per_box, -1).sum(axis=1)
    owner = np.concatenate([*owners, np.empty(0, dtype=np.int64)])
    order = np.argsort(owner, kind="stable")
    generator = np.concatenate([*generators, np.empty((0, centre.shape[1]))])
    return centre, generator[order], owner[order]


def _pulled(layers: tuple[Layer, ...], masks: list[Masks], k: int, piece: Integers, neuron: Integers) -> Array:
    """Return columns (L, n_0) of P_k for neurons of hidden layer k (0-based) on slices `piece`."""
    row = layers[k].weight[neuron]
    clock.spend(len(piece) * sum(layer.weight.size for layer in layers[:k]))
    for below in range(k - 1, -1, -1):
        row = (row * masks[below].centre[piece]) @ layers[below].weight
    return row
