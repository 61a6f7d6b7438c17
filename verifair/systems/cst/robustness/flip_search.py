"""Search for coefficients at which a verdict flips: along each coefficient, towards corners of their box, then by bisection.

Every reported flip was found by running the test at these coefficients. Finding none proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from verifair.checker.report import Progress
from verifair.systems.cst.robustness.effects import Effects
from verifair.systems.cst.robustness.problem import SensitivityProblem

LEVELS = (0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0)
"""Shares of the largest t that are tried on each ray, the smallest first."""
STEPS = 14
"""Steps of bisection between two of them."""
MAX_CORNERS = 32
"""Corners that are tried: all up to five coefficients, else random ones."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Flips:
    """smallest: (C,) t of the smallest flip found, inf where none was;   theta: (C, p) coefficients there, NaN where none.

    alone: (C, p) t of the smallest flip found that moves one coefficient only.
    """

    smallest: Array
    theta: Array
    alone: Array


def directions(effects: Effects) -> tuple[Array, Integers]:
    """(D, p) signs of the coefficients along each ray, and (D,) the coefficient of those that move one alone, -1 for corners."""
    uncertain = np.flatnonzero(effects.errors > 0)
    single = np.zeros((2 * len(uncertain), len(effects)))
    single[np.arange(2 * len(uncertain)), np.repeat(uncertain, 2)] = np.tile([-1.0, 1.0], len(uncertain))
    count = 1 << len(uncertain) if len(uncertain) < 30 else MAX_CORNERS + 1
    if len(uncertain) < 2:
        corners = np.zeros((0, len(effects)))
    elif count <= MAX_CORNERS:
        corners = effects.corners
    else:
        corners = np.zeros((MAX_CORNERS, len(effects)))
        corners[:, uncertain] = np.random.default_rng(0).choice([-1.0, 1.0], (MAX_CORNERS, len(uncertain)))
    return np.vstack([single, corners]), np.concatenate([np.repeat(uncertain, 2), np.full(len(corners), -1)])


def search(problem: SensitivityProblem, safe: Array, max_size: float, *, progress: Progress | None = None) -> Flips:
    """Return the smallest flips found up to `max_size` standard errors.

    safe: (C,) sizes, in standard errors, below which there are none.   progress(done, total) counts levels.
    Sound? yes: the test was run at the coefficients of each flip.  Complete? no: smaller flips may lie off the rays.
    """
    signs, coefficient = directions(problem.effects)
    rays = len(signs)
    flip_size = np.full((len(problem), rays), np.inf)
    safe_size = np.tile(np.minimum(safe, max_size)[:, None], (1, rays))
    levels = max_size * np.array(LEVELS)
    for number, level in enumerate(levels):
        # A ray is done once it flips; corners are of no more use once something flips nearer.
        smallest = flip_size.min(axis=1, initial=np.inf)
        pending = np.isinf(flip_size) & (level > safe)[:, None] & ((coefficient >= 0) | np.isinf(smallest)[:, None])
        subset, ray = np.nonzero(pending)
        flipped = _is_flipped(problem, subset, signs[ray], np.full(len(subset), level))
        flip_size[subset[flipped], ray[flipped]] = level
        safe_size[subset[~flipped], ray[~flipped]] = level
        if progress is not None:
            progress(number + 1, len(levels))
    subset, ray = np.nonzero(np.isfinite(flip_size))
    low, high = safe_size[subset, ray], flip_size[subset, ray]
    for _ in range(STEPS):
        middle = (low + high) / 2
        flipped = _is_flipped(problem, subset, signs[ray], middle)
        low, high = np.where(flipped, low, middle), np.where(flipped, middle, high)
    flip_size[subset, ray] = high
    return _flips(problem.effects, flip_size, signs, coefficient)


def _is_flipped(problem: SensitivityProblem, subset: Integers, signs: Array, t: Array) -> Booleans:
    """(R,) whether verdicts on complainants `subset` (R,) are others at t (R,) standard errors along signs (R, p)."""
    theta = problem.effects.estimates + t[:, None] * signs * problem.effects.errors
    return np.asarray(problem.verdicts(subset, theta) != problem.now[subset])


def _flips(effects: Effects, flip_size: Array, signs: Array, coefficient: Integers) -> Flips:
    alone = np.full((len(flip_size), len(effects)), np.inf)
    for ray, k in enumerate(coefficient.tolist()):
        if k >= 0:
            alone[:, k] = np.minimum(alone[:, k], flip_size[:, ray])
    smallest = flip_size.min(axis=1, initial=np.inf)
    theta = np.full((len(flip_size), len(effects)), np.nan)
    flipped = np.flatnonzero(np.isfinite(smallest))
    if len(flipped):
        ray = flip_size[flipped].argmin(axis=1)
        theta[flipped] = effects.estimates + smallest[flipped, None] * signs[ray] * effects.errors
    return Flips(smallest=smallest, theta=theta, alone=alone)
