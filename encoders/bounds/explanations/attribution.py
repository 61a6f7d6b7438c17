r"""Bounds of the angle between two explanations when both people move: enclosures of each, and the CEC score of any two of them.

IG(x; b) = (x - b) * G(x) coordinate by coordinate, with G in a zonotope of `gradient`; with x_j - b_j in d_j +- r_j,

    g = IG(x; b) = c + e,    e in { sum_l xi_l v_l + rest : |xi_l| <= 1 },    c = d * centre,  v_l = d * generator_l,

where every moving column j brings one more generator, r_j (|centre_j| + sum_l |generator_l,j|) along e_j; `rest` is rounding. Then

    |e|^2 = sum_kl xi_k xi_l v_k.v_l + ... <= R^2,    R = sqrt(sum_kl |v_k.v_l|) + |rest|,    |g| >= L = |c| - R.

(R is never worse than the half-diagonal of the box around the zonotope, whose square is sum_kl |v_k|.|v_l|.)

The angle of g and g~ is at most arccos(kappa) if g.g~ >= kappa |g| |g~|. Let lambda = |c~| / |c|. For kappa >= 0 the inequality of
the means, |g| |g~| <= (lambda |g|^2 + |g~|^2 / lambda) / 2; for kappa < 0, with w = c / |c|, |g| |g~| >= (g.w) (g~.w~), both
positive where R < |c|. Multiplied out, in both cases

    g.g~ - kappa |g| |g~|  >=  F = c.c~ - kappa |c| |c~|  +  e.(c~ - kappa lambda c)  +  e~.(c - kappa c~ / lambda)  -  quad,
    quad = R R~ + kappa (lambda R^2 + R~^2 / lambda) / 2  for kappa >= 0,      (1 - kappa) R R~  otherwise,

and the linear terms are at least  -sum_l |v_l.(c~ - kappa lambda c)| - |rest| |...|,  likewise for e~. Changes that only lengthen
an explanation, or turn it at a right angle to the plane of both, cost nothing to first order: two cones of half-angles arcsin(R /
|c|) would be three to five times as wide. Any kappa with F >= 0 is a proof, however it was found; the search is for the largest
one.

The score. With u = g / |g| and t = |g| / (|g| + eps), t <= t~ say, |u - u~| = sqrt(2 - 2 u.u~), and

    |t u - t~ u~| <= t |u - u~| + (t~ - t) |u~| <= |u - u~| + (1 - t),        1 - t <= eps / (L + eps),
    score = |t u - t~ u~| / 2 <= sqrt((1 - kappa) / 2) + eps / (2 (min(L, L~) + eps)),     and never more than 1.

Sound? yes, outward-rounded.  Complete? no.
Rounding. Products of a coordinate cost a few u of themselves: 16 u (|d| + r) of everything in it goes into `rest`. A dot
product of n terms, or a sum of L of them, is off by at most factor(n + L) times the sum of the sizes of all terms (`rounding`);
with the 1-norms S = |c|_1 + sum_l |v_l|_1 that is factor S S~ for products between the two, lambda factor S^2 and factor S~^2 /
lambda for those within one, a few of each: F is lowered by 64 factor(n + L + L~) (S S~ + lambda S^2 + S~^2 / lambda), which
also pays for lambda and 1 / lambda being rounded. The Gram sum is off by factor(n + L^2) of the half-diagonal's square. NaN
proves nothing: the bound is 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from encoders.arrays import Array, Integers
from encoders.bounds.explanations.gradient import Zonotopes
from encoders.bounds.rounding import TINY, UNIT, factor

GENERATORS = 256
"""The most generators of one person: the smallest of further ones are joined into a box."""
GRID = 33
"""Scores sqrt((1 - kappa) / 2) tried at once, evenly spaced, ..."""
ROUNDS = 4
"""... in so many rounds, each between the best one so far and the next."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Attributions:
    """B enclosures of attributions.

    centre: c (B, n_0).   generator: v (L, n_0), those of box k from start[k] to start[k + 1].   rest, radius: (B,) norms of what is
    left over, and of everything around the centre (R).   length: (B,) lower bounds of the norms of the attributions (L).
    """

    centre: Array
    generator: Array
    start: Integers
    rest: Array
    radius: Array
    length: Array

    def __len__(self) -> int:
        return len(self.centre)

    def generators(self, box: int) -> Array:
        return self.generator[self.start[box] : self.start[box + 1]]


def attributions(zonotopes: Zonotopes, baseline: Array, low: Array, high: Array) -> Attributions:
    """Return enclosures of IG(x; baseline) over all x in [low, high], all (B, n_0), from the zonotopes of their gradients.

    Sound? yes, see the module.  Complete? no.
    """
    middle = low + (high - low) / 2
    reach = np.maximum(high - middle, middle - low)
    centre, ends = np.empty_like(low), np.searchsorted(zonotopes.owner, np.arange(len(low) + 1))
    generators, norms = [], []
    with np.errstate(all="ignore"):
        for k in range(len(low)):
            generator = zonotopes.generator[ends[k] : ends[k + 1]]
            centre[k], v, rest = _multiplied(zonotopes.centre[k], generator, zonotopes.error[k], middle[k] - baseline[k], reach[k])
            generators.append(v)
            norms.append(_norms(centre[k], v, rest))
    rest, radius, length = np.array(norms).reshape(-1, 3).T
    start = np.cumsum([0, *(len(v) for v in generators)])
    generator = np.concatenate([*generators, np.empty((0, low.shape[1]))])
    return Attributions(centre=centre, generator=generator, start=start, rest=rest, radius=radius, length=length)


def score_bound(first: Attributions, i: int, second: Attributions, j: int, epsilon: float) -> float:
    """Return an upper bound of the CEC score, with `epsilon` in the norms, between any two attributions of enclosures i and j.

    Sound? yes, see the module.  Complete? no.
    """
    with np.errstate(all="ignore"):
        length = min(first.length[i], second.length[j])
        if not length > 0:
            return 1.0
        bound = np.sqrt((1 - _cosine(first, i, second, j)) / 2) + epsilon / (2 * (length + epsilon))
    bound = bound * (1 + 16 * UNIT)
    return float(bound) if bound < 1 else 1.0


def _cosine(first: Attributions, i: int, second: Attributions, j: int) -> float:
    """Return the largest kappa tried with F >= 0, -1 if there is none."""
    c, c2, v, v2 = first.centre[i], second.centre[j], first.generators(i), second.generators(j)
    norm, norm2 = float(np.linalg.norm(c)), float(np.linalg.norm(c2))
    ratio = norm2 / norm
    radius, radius2 = first.radius[i], second.radius[j]
    size, size2 = np.abs(c).sum() + np.abs(v).sum(), np.abs(c2).sum() + np.abs(v2).sum()
    slack = 64 * factor(len(c) + len(v) + len(v2)) * (size * size2 + ratio * size**2 + size2**2 / ratio) + TINY
    slack += 2 * (first.rest[i] * norm2 + second.rest[j] * norm)
    cross_i, own_i, cross_j, own_j = v @ c2, ratio * (v @ c), v2 @ c, (v2 @ c2) / ratio
    dot = float(c @ c2)

    def smallest(kappa: Array) -> Array:
        """Return F (K,) for kappa (K,)."""
        linear = np.abs(cross_i - kappa[:, None] * own_i).sum(axis=1) + np.abs(cross_j - kappa[:, None] * own_j).sum(axis=1)
        acute = radius * radius2 + kappa * (ratio * radius**2 + radius2**2 / ratio) / 2
        quadratic = np.where(kappa >= 0, acute, (1 - kappa) * radius * radius2)
        return np.asarray(dot - kappa * norm * norm2 - linear - quadratic * (1 + factor(0)) - slack)

    best, score, step = -1.0, 1.0, 1.0
    for _ in range(ROUNDS):
        candidates = 1 - 2 * (score - step * np.linspace(0.0, 1.0, GRID)) ** 2
        valid = np.flatnonzero((smallest(candidates) >= 0) & (candidates <= 1))
        if len(valid):
            best, score = float(candidates[valid[-1]]), score - step * float(valid[-1]) / (GRID - 1)
        step /= GRID - 1
    return best


def _multiplied(centre: Array, generator: Array, error: Array, d: Array, reach: Array) -> tuple[Array, Array, Array]:
    """Return c (n,), generators v (L, n) and the box (n,) of the remainder."""
    size = np.abs(d) + reach
    total = np.abs(centre) + np.abs(generator).sum(axis=0) + error
    generous = 1 + factor(len(generator))
    rest = (size * (error + 16 * UNIT * total) + TINY) * generous
    widths = reach * total * generous
    moving = np.flatnonzero(widths)
    axes = np.zeros((len(moving), len(d)))
    axes[np.arange(len(moving)), moving] = widths[moving]
    v = np.concatenate([d * generator, axes])
    if len(v) > GENERATORS:
        order = np.argsort(-np.abs(v).sum(axis=1), kind="stable")
        rest = rest + np.abs(v[order[GENERATORS:]]).sum(axis=0) * (1 + factor(len(v)))
        v = v[order[:GENERATORS]]
    return d * centre, v, rest


def _norms(c: Array, v: Array, rest: Array) -> tuple[float, float, float]:
    """Return |rest|, R and L."""
    remainder = float(np.linalg.norm(rest)) * (1 + factor(len(c)))
    hull = np.abs(v).sum(axis=0)
    rounding = 2 * factor(len(c) + len(v) ** 2) * float(hull @ hull) + TINY
    radius = float(np.sqrt(np.abs(v @ v.T).sum() + rounding)) * (1 + factor(0)) + remainder
    return remainder, radius, float(np.linalg.norm(c)) * (1 - factor(len(c))) - radius * (1 + factor(0))
