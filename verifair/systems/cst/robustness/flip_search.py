"""Search for coefficients at which a verdict flips: along each coefficient, towards corners of their box, then by bisection.

Every reported flip was found by running the test at these coefficients. Finding none proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from encoders.network import Array, Booleans, Integers
from verifair.checker.report import Progress
from verifair.systems.cst.robustness.effects import Effects
from verifair.systems.cst.robustness.problem import SensitivityProblem

LEVELS = (0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0)
"""Shares of the largest t that are tried on each ray, the smallest first."""
STEPS = 14
"""Steps of bisection between two of them."""
CORNERS = 32
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
    loose = np.flatnonzero(effects.errors > 0)
    single = np.zeros((2 * len(loose), len(effects)))
    single[np.arange(2 * len(loose)), np.repeat(loose, 2)] = np.tile([-1.0, 1.0], len(loose))
    count = 1 << len(loose) if len(loose) < 30 else CORNERS + 1
    if len(loose) < 2:
        corners = np.zeros((0, len(effects)))
    elif count <= CORNERS:
        corners = effects.corners
    else:
        corners = np.zeros((CORNERS, len(effects)))
        corners[:, loose] = np.random.default_rng(0).choice([-1.0, 1.0], (CORNERS, len(loose)))
    return np.vstack([single, corners]), np.concatenate([np.repeat(loose, 2), np.full(len(corners), -1)])


def search(problem: SensitivityProblem, safe: Array, most: float, *, progress: Progress | None = None) -> Flips:
    """Return the smallest flips found up to `most` standard errors.

    safe: (C,) sizes, in standard errors, below which there are none.   progress(done, total) counts levels.
    Sound? yes: the test was run at the coefficients of each flip.  Complete? no: smaller flips may lie off the rays.
    """
    signs, coefficient = directions(problem.effects)
    rays = len(signs)
    reached = np.full((len(problem), rays), np.inf)
    before = np.tile(np.minimum(safe, most)[:, None], (1, rays))
    levels = most * np.array(LEVELS)
    for number, level in enumerate(levels):
        # A ray is done once it flips; corners are of no more use once something flips nearer.
        nearest = reached.min(axis=1, initial=np.inf)
        left = np.isinf(reached) & (level > safe)[:, None] & ((coefficient >= 0) | np.isinf(nearest)[:, None])
        who, ray = np.nonzero(left)
        flipped = _flipped(problem, who, signs[ray], np.full(len(who), level))
        reached[who[flipped], ray[flipped]] = level
        before[who[~flipped], ray[~flipped]] = level
        if progress is not None:
            progress(number + 1, len(levels))
    who, ray = np.nonzero(np.isfinite(reached))
    low, high = before[who, ray], reached[who, ray]
    for _ in range(STEPS):
        middle = (low + high) / 2
        flipped = _flipped(problem, who, signs[ray], middle)
        low, high = np.where(flipped, low, middle), np.where(flipped, middle, high)
    reached[who, ray] = high
    return _flips(problem.effects, reached, signs, coefficient)


def _flipped(problem: SensitivityProblem, who: Integers, signs: Array, t: Array) -> Booleans:
    """(R,) whether verdicts on complainants who (R,) are others at t (R,) standard errors along signs (R, p)."""
    theta = problem.effects.estimates + t[:, None] * signs * problem.effects.errors
    return np.asarray(problem.verdicts(who, theta) != problem.now[who])


def _flips(effects: Effects, reached: Array, signs: Array, coefficient: Integers) -> Flips:
    alone = np.full((len(reached), len(effects)), np.inf)
    for ray, k in enumerate(coefficient.tolist()):
        if k >= 0:
            alone[:, k] = np.minimum(alone[:, k], reached[:, ray])
    smallest = reached.min(axis=1, initial=np.inf)
    theta = np.full((len(reached), len(effects)), np.nan)
    found = np.flatnonzero(np.isfinite(smallest))
    if len(found):
        ray = reached[found].argmin(axis=1)
        theta[found] = effects.estimates + smallest[found, None] * signs[ray] * effects.errors
    return Flips(smallest=smallest, theta=theta, alone=alone)
