r"""Rigorous bounds of explanations for the checker: integrated gradients over boxes, and whether two of them can be far apart.

Written from the formulas alone, sharing nothing with `encoders.bounds`. Layer i has a = W y + b and y = s a + (1 - s) max(a, 0);
f = c . logits; z(alpha) = b + alpha (x - b) is the path from the baseline b to a point x of a box with middle m and half-width r.

Method
    Paths are cut into equal slices. On a slice every neuron is kept as an *affine form*  a = A.xi + a_0 +- e  over xi in [-1,
    1]^(d+1): the moving inputs alpha (x - m), and the place t on the slice. ReLUs that bend become  lam a + mu +- mu  (the
    parallelogram of zonotope domains: Singh et al., Fast and effective robustness certification, NeurIPS 2018), with one common
    remainder e. Where the lower (upper) line in t is positive (negative), the neuron is on (off); both lines are cut by 0 once at
    most, so the share of the slice is  max(v_0, v_1) / (|v_0| + |v_1|)  of the end values where their signs differ. Hence the
    mean of its mask over a slice is q +- half, and the mask itself within `wide` of q. With D = Q + E for the masks,

        grad f = W_1^T Q_1 W_2^T ... Q_{N-1} v  +  sum_k  W_1^T Q_1 ... W_k^T  E_k  h_k
        h_k = W_{k+1}^T D_{k+1} h_{k+1}  in  p_k +- w_k

    so that neuron i of layer k adds, over a slice of length T, a multiple of one column, of size at most T (half |p| + wide w).
    Explanations are g = (x - b) * (mean gradient): a centre c, columns v_l with factors in [-1, 1], and a small rest.
    Far apart? With rho, rho~ the norms of what surrounds c and c~, q = |c~| / |c| and the cosine kappa that the score allows,
        g.g~ - kappa |g| |g~| >= c.c~ - kappa |c| |c~| - sum |v.(c~ - kappa q c)| - sum |v~.(c - kappa c~ / q)| - rho rho~
                                 - (kappa / 2) (q rho^2 + rho~^2 / q)                   [ kappa < 0:  - |kappa| rho rho~ ]
    because |g| |g~| <= (q |g|^2 + |g~|^2 / q) / 2 and, for kappa < 0 and |c| > rho, |g| |g~| >= (g.c) (g~.c~) / (|c| |c~|).
    Epsilon in the norms moves the score by at most epsilon / (2 (least |g| + epsilon)).
Sound? Yes, with the rounding argument below. Complete? No: the caller splits boxes and adds slices.

Rounding. EPS = 16 gamma_K of `check_bounds.rounding_unit`, K above every number of terms; parameters outside its range: nothing is
proved.
    1. A form's size is |A|_1 + |a_0| + e. The image under W errs in all its coefficients together by at most gamma (|W| size +
       |b|), and scaling by a slope by 2 u size: EPS (|W| size + |b|) + TINY joins e. mu is an extreme over the ends for lam as
       computed.
    2. Shares are quotients at most 1, off by a few u and what the end values are off by, which e was raised for: SHARE covers it.
    3. Coefficients q are what they are as floats. |p_k|, w_k / N and columns are at most products M of the |W|, so centre and
       columns, added over slices and layers, are off by at most (16 N^2 EPS + slices 2^-50) M_0 in each coordinate: it joins the
       rest; M has TINY in every layer, for what underflows.
    4. Products with x - b cost a few u of the whole: 2^-48 of it joins the rest; sums over L columns are raised by 2^-51 L. The
       test's dot products are off by (terms) 2^-52 times the products of 1-norms; 64 times that is taken off. What overflows is
       inf or NaN, for which no comparison holds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from encoders.network import Array, Network
from verifair.checker.kernel.bounds import TINY, rounding_unit

Integers = npt.NDArray[np.int64]

SHARE = 2.0**-40
COLUMNS = 256
"""Of one explanation: the smallest beyond these join the rest."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Explanation:
    """All explanations of one box: centre (n,), columns (L, n), norms rest and radius; decision: the class, None where unknown."""

    centre: Array
    columns: Array
    rest: float
    radius: float
    decision: int | None

    @property
    def least(self) -> float:
        """What the norm of an explanation is at least; inf where its square overflows, which `surely_near` takes for no proof."""
        with np.errstate(over="ignore"):
            return float(np.linalg.norm(self.centre)) * (1 - len(self.centre) * 2.0**-50) - self.radius

    @property
    def strays(self) -> float:
        """How far explanations stray, relative to their size; inf where they may vanish."""
        return self.radius / self.least if self.least > 0 else float("inf")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Mask:
    """(S, n): the mean is q +- half, the values are within `wide` of q and at most `top`."""

    q: Array
    half: Array
    wide: Array
    top: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class _Forms:
    """a = A.xi + a_0 +- e: slopes A (S, n, d + 1) with the slice's t last, middle a_0 (S, n), e (S, n)."""

    slopes: Array
    middle: Array
    e: Array

    @property
    def size(self) -> Array:
        return np.asarray(np.abs(self.slopes).sum(axis=2) + np.abs(self.middle) + self.e)


def explanations(
    network: Network, margin: Array, baseline: Array, low: Array, high: Array, slices: int
) -> list[Explanation]:
    """Explanations of margin . logits from baseline (B, n_0) over boxes [low, high] (B, n_0); margin (n_N,)."""
    with np.errstate(all="ignore"):  # what overflows or is NaN proves nothing
        eps = rounding_unit(network)
        ends = np.arange(slices + 1) / slices
        inside = _walked(network, margin, baseline, low, high, ends[:-1], ends[1:], eps)
        _, least, most = _walked(network, margin, baseline, low, high, np.ones(1), np.ones(1), eps)
        gradient, columns, whose = _pulled(network, margin, inside[0], len(low) * slices, slices)
        size = np.abs(margin) @ np.abs(network.layers[-1].weight)
        for layer in reversed(network.layers[:-1]):
            size = size @ np.abs(layer.weight) + TINY
        error = (16 * len(network.layers) ** 2 * eps + slices * 2.0**-50) * size + TINY
        middle, reach = _middle(low, high)
        found = []
        for k in range(len(low)):
            decision = 1 if least[k] > 0 else 0 if most[k] <= 0 else None
            found.append(_explanation(gradient[k], columns[whose == k], error, middle[k] - baseline[k], reach[k], decision))
        return found


def surely_near(first: Explanation, second: Explanation, threshold: float, epsilon: float) -> bool:
    """Whether every score between the two is below the threshold."""
    with np.errstate(all="ignore"):
        least = min(first.least, second.least)
        if not least > 0:
            return False
        allowed = threshold * (1 - 2.0**-40) - epsilon / (2 * (least + epsilon))
        if not allowed > 0:
            return False
        kappa = 1 - 2 * allowed**2 + 2.0**-50
        c, c2, v, v2 = first.centre, second.centre, first.columns, second.columns
        norm, norm2, rho, rho2 = float(np.linalg.norm(c)), float(np.linalg.norm(c2)), first.radius, second.radius
        q = norm2 / norm
        if not (norm < np.inf and 0 < q < np.inf):
            return False
        linear = np.abs(v @ (c2 - kappa * q * c)).sum() + np.abs(v2 @ (c - kappa / q * c2)).sum()
        mixed = abs(kappa) * rho * rho2 if kappa < 0 else kappa / 2 * (q * rho**2 + rho2**2 / q)
        one, two = np.abs(c).sum() + np.abs(v).sum(), np.abs(c2).sum() + np.abs(v2).sum()
        slack = 64 * 2.0**-52 * (len(c) + len(v) + len(v2) + 32) * (one * two + q * one**2 + two**2 / q)
        slack += 4 * (first.rest * norm2 + second.rest * norm)
        return bool(c @ c2 - kappa * norm * norm2 - linear - (rho * rho2 + mixed) * (1 + 2.0**-45) - slack > 0)


def _walked(
    network: Network, margin: Array, baseline: Array, low: Array, high: Array, start: Array, end: Array, eps: float
) -> tuple[list[_Mask], Array, Array]:
    """Masks of the hidden layers on all slices (box-major), and bounds (S,) of the margin on them."""
    middle, reach = _middle(low, high)
    moving = np.flatnonzero(reach.any(axis=0))
    boxes, count = len(low), len(start)
    slopes = np.zeros((boxes, count, len(moving) + 1, network.inputs))
    slopes[:, :, np.arange(len(moving)), moving] = end[:, None] * reach[:, None, moving]
    slopes[:, :, -1, :] = ((end - start) / 2)[:, None] * (middle - baseline)[:, None, :]
    at = baseline[:, None, :] + ((start + end) / 2)[:, None] * (middle - baseline)[:, None, :]
    rough = 2.0**-50 * (np.abs(low) + np.abs(high) + 2 * np.abs(baseline))
    z = _Forms(
        slopes=slopes.transpose(0, 1, 3, 2).reshape(boxes * count, network.inputs, -1),
        middle=at.reshape(boxes * count, -1),
        e=np.repeat(rough, count, axis=0),
    )
    masks = []
    for layer in network.layers[:-1]:
        a = _image(layer.weight, layer.bias, z, eps)
        spread = np.abs(a.slopes).sum(axis=2) + a.e + eps * a.size
        lower, upper = a.middle - spread, a.middle + spread
        masks.append(_mask(a, lower, upper, layer.slope, eps))
        z = _activated(a, lower, upper, layer.slope)
    last = network.layers[-1]
    out = _image((margin @ last.weight)[None], (margin @ last.bias)[None], z, eps)
    extra = 4 * eps * (z.size @ (np.abs(margin) @ np.abs(last.weight)) + np.abs(margin) @ np.abs(last.bias))
    spread = np.abs(out.slopes).sum(axis=2)[:, 0] + out.e[:, 0] + eps * out.size[:, 0] + extra
    return masks, out.middle[:, 0] - spread, out.middle[:, 0] + spread


def _middle(low: Array, high: Array) -> tuple[Array, Array]:
    """A middle of each box, whatever its rounding, and how far the ends are from it at most."""
    middle = low + (high - low) / 2
    return middle, np.maximum(high - middle, middle - low) * (1 + 2.0**-50)


def _image(weight: Array, bias: Array, y: _Forms, eps: float) -> _Forms:
    size = np.abs(weight)
    error = eps * (y.size @ size.T + np.abs(bias)) + TINY
    return _Forms(slopes=weight @ y.slopes, middle=y.middle @ weight.T + bias, e=y.e @ size.T + error)


def _activated(a: _Forms, lower: Array, upper: Array, slope: Array) -> _Forms:
    """y = s a + (1 - s) r with r = lam a + mu +- mu."""
    bends = ~((lower > 0) | (upper < 0))
    width = np.where(bends & (upper > lower), upper - lower, 1.0)
    lam = np.where(lower > 0, 1.0, np.where(bends, np.clip(upper / width, 0.0, 1.0), 0.0))
    most = np.where(bends, np.maximum(np.maximum(-lam * lower, upper - lam * upper), 0.0), 0.0)
    factor, mu = slope + (1 - slope) * lam, (1 - slope) * most / 2
    return _Forms(
        slopes=a.slopes * factor[:, :, None], middle=a.middle * factor + mu, e=(a.e * factor + mu) * (1 + 2.0**-48)
    )


def _mask(a: _Forms, lower: Array, upper: Array, slope: Array, eps: float) -> _Mask:
    still = np.abs(a.slopes[:, :, :-1]).sum(axis=2) + a.e + eps * a.size
    rise = a.slopes[:, :, -1]
    on = _positive(a.middle - still - rise, a.middle - still + rise)
    off = _positive(-a.middle - still - rise, -a.middle - still + rise)
    sure, never = lower > 0, upper < 0
    bends = ~(sure | never) & (slope < 1)
    from_, to = np.maximum(on - SHARE, 0.0), np.minimum(1 - off + SHARE, 1.0)
    middle = slope + (1 - slope) * (from_ + to) / 2
    q = np.where(bends, middle, np.where(sure, 1.0, slope))
    return _Mask(
        q=q,
        half=np.where(bends, (1 - slope) * np.maximum(to - from_, 0.0) / 2 + SHARE, 0.0),
        wide=np.where(bends, np.maximum(q - slope, 1 - q) + SHARE, 0.0),
        top=np.where(bends | sure, 1.0, slope),
    )


def _positive(start: Array, end: Array) -> Array:
    """Share of [0, 1] on which the line from `start` to `end` is positive, 0 where that cannot be said."""
    high = np.maximum(start, end)
    crossing = np.divide(high, np.abs(start) + np.abs(end), out=np.zeros_like(high), where=(high > 0) & np.isfinite(high))
    return np.where(np.minimum(start, end) > 0, 1.0, np.where(high > 0, crossing, 0.0))


def _pulled(network: Network, margin: Array, masks: list[_Mask], count: int, slices: int) -> tuple[Array, Array, Integers]:
    """Mean gradients (B, n_0), columns (L, n_0) of what they can differ by, and whose box each is (L,)."""
    p = np.tile(margin @ network.layers[-1].weight, (count, 1))
    w = np.zeros_like(p)
    columns, whose = [np.empty((0, network.inputs))], [np.empty(0, dtype=np.int64)]
    for k in range(len(masks) - 1, -1, -1):
        mask, weight = masks[k], network.layers[k].weight
        size = (mask.half * np.abs(p) + mask.wide * w) / slices
        slice_, neuron = np.nonzero(size)
        row = weight[neuron] * size[slice_, neuron][:, None]
        if k:
            for below in range(k - 1, -1, -1):
                row = (row * masks[below].q[slice_]) @ network.layers[below].weight
            columns.append(row)
            whose.append(slice_ // slices)
        else:
            per_box = size.reshape(-1, slices, size.shape[1]).sum(axis=1)
            box, neuron = np.nonzero(per_box)
            columns.append(weight[neuron] * per_box[box, neuron][:, None])
            whose.append(box)
        w = (mask.top * w + mask.wide * np.abs(p)) @ np.abs(weight)
        p = (mask.q * p) @ weight
    gradient = p.reshape(-1, slices, p.shape[1]).mean(axis=1)
    return gradient, np.concatenate(columns), np.concatenate(whose)


def _explanation(gradient: Array, columns: Array, error: Array, d: Array, reach: Array, decision: int | None) -> Explanation:
    sums = 1 + 2.0**-51 * len(columns)  # what a sum over columns may lose
    total = (np.abs(gradient) + np.abs(columns).sum(axis=0) + error) * sums
    size = np.abs(d) + reach
    rest = size * (error + 2.0**-48 * total) + TINY
    turned = reach * (1 + 2.0**-48) * total
    v = np.concatenate([columns * d, np.diag(turned)[turned > 0]])
    if len(v) > COLUMNS:
        order = np.argsort(np.linalg.norm(v, axis=1))
        rest = rest + np.abs(v[order[:-COLUMNS]]).sum(axis=0) * sums
        v = v[order[-COLUMNS:]]
    outside = float(np.linalg.norm(rest)) * (1 + 2.0**-40)
    hull = np.abs(v).sum(axis=0)
    gram = float(np.abs(v @ v.T).sum()) + 2.0**-50 * (len(d) + len(v) ** 2 + 32) * float(hull @ hull) + TINY
    radius = float(np.sqrt(gram)) * (1 + 2.0**-48) + outside
    return Explanation(centre=gradient * d, columns=v, rest=outside, radius=radius, decision=decision)
