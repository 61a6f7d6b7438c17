"""CF under a linear rule, exactly: the smallest change of a linear model's coefficients that changes a counterfactual's decision.

Without rounding and clipping every node's change is multilinear in the coefficients, and so is the rule's score: over a box it
takes its extremes at corners. A corner's score is a polynomial in the box's size t, and the extremes over the corners are monotone
in t, so that the smallest t at which some corner crosses the threshold is found by bisection, for all complainants at once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from encoders.arrays import Array, Booleans
from verifair.systems.cst.deciders import LinearRule
from verifair.systems.cst.robustness.effects import Effects

MAX_SIZE = 1e6
"""Standard errors; what does not flip below never does, as far as we say."""
STEPS = 90
"""Steps of bisection: from MAX_SIZE to 1e-21."""
SCORES_AT_ONCE = 2_000_000
"""Scores held at once."""


def polynomials(effects: Effects, change: Array, signs: Array) -> Array:
    """Return (V, m, L) the nodes' changes as polynomials in t, at coefficients estimates + t signs errors.

    change: (p,) of the coefficients' factors. Polynomials are coefficients of 1, t, ..., t^(L-1); rounding and clipping are left
    out.   signs: (V, p).
    """
    length = len(effects.nodes) + 1
    changes = np.zeros((len(signs), len(effects.nodes), length))
    for n, name in enumerate(effects.nodes):
        for k, coefficient in enumerate(effects.coefficients):
            if coefficient.node != name:
                continue
            if coefficient.parent in effects.nodes:
                parent = changes[:, effects.nodes.index(coefficient.parent)]
            else:
                parent = np.zeros((len(signs), length))
                parent[:, 0] = change[k]
            changes[:, n] += coefficient.estimate * parent
            changes[:, n, 1:] += (signs[:, k] * coefficient.error)[:, None] * parent[:, :-1]
    return changes


def scores(effects: Effects, rule: LinearRule, change: Array, signs: Array) -> Array:
    """Return (V, L) the change of the rule's score, as polynomials in t."""
    weights = np.array([rule.weights.get(name, 0.0) for name in effects.nodes])
    return np.asarray(np.einsum("vml,m->vl", polynomials(effects, change, signs), weights))


def accepts(rule: LinearRule, score: Array) -> Booleans:
    """Return True where a score is a positive decision."""
    if rule.above is not None:
        return np.asarray(score > rule.above)
    assert rule.at_least is not None  # a rule has either `above` or `at_least`
    return np.asarray(score >= rule.at_least)


def smallest_flips(
    effects: Effects, rule: LinearRule, base: Array, change: Array, accepted: Booleans, signs: Array
) -> tuple[Array, Array]:
    """Return (C,) the smallest t at which some corner's score decides otherwise than `accepted` (C,), and (C, p) its coefficients.

    base: (C,) scores with all nodes as they are.   change: (C, p).   signs: (V, p) corners.
    t is inf, and the coefficients NaN, if none does up to MAX_SIZE. Exact up to the rounding of floats.
    """
    smallest, theta = np.full(len(base), np.inf), np.full((len(base), len(effects)), np.nan)
    distinct, inverse = np.unique(change, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    for group, direction in enumerate(distinct):
        polynomial = scores(effects, rule, direction, signs)
        members = np.flatnonzero(inverse == group)
        step = max(1, SCORES_AT_ONCE // len(signs))
        for start in range(0, len(members), step):
            subset = members[start : start + step]
            t, corner = _bisect(polynomial, rule, base[subset], accepted[subset])
            smallest[subset] = t
            flips = np.isfinite(t)
            theta[subset[flips]] = effects.estimates + t[flips, None] * signs[corner[flips]] * effects.errors
    return smallest, theta


def _bisect(polynomial: Array, rule: LinearRule, base: Array, accepted: Booleans) -> tuple[Array, npt.NDArray[np.intp]]:
    low, high = np.zeros(len(base)), np.full(len(base), MAX_SIZE)

    def flipped(t: Array) -> tuple[Booleans, npt.NDArray[np.intp]]:
        power = t ** np.arange(polynomial.shape[1])[:, None]
        score = polynomial @ power  # (V, C)
        corner = np.where(accepted, score.argmin(axis=0), score.argmax(axis=0))
        return accepts(rule, base + score[corner, np.arange(len(base))]) != accepted, corner

    unflippable = ~flipped(high)[0]
    for _ in range(STEPS):
        middle = np.where(low > 0, np.sqrt(low * high), high * 2.0**-20)  # geometric: small ones to the same relative accuracy
        flips = flipped(middle)[0]
        low, high = np.where(flips, low, middle), np.where(flips, middle, high)
    flips_at_zero = flipped(np.zeros(len(base)))[0]
    t = np.where(unflippable, np.inf, np.where(flips_at_zero, 0.0, high))
    return t, flipped(np.where(np.isfinite(t), t, 0.0))[1]
