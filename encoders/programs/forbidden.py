"""What is forbidden, seen from one box of one question: boxes of x that either copy may not be in, and how each can be left.

x' is x with constants in the protected variables and whole shifts in the relaxed ones, so a box closed to x' is a box of x:

    x'_v in [L, U]   iff   prime_v in [L, U]  (v protected),    x_v in [L - offset_v, U - offset_v]  (else)

A box that cannot be entered from here is dropped; a side on which it cannot be left is infinite. So what remains is what a program
has to say: x leaves each box through one of its `Exit`s, variable <= end or variable >= end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from encoders.network import Array
from encoders.problem import Forbidden, TwinProblem


@dataclass(frozen=True, kw_only=True)
class Exit:
    """One way out of a forbidden box: raw variable <= end when `below`, else >= end; the nearest number that is outside."""

    variable: int
    end: float
    below: bool


def exclusions(problem: TwinProblem, question: int, lower: Array, upper: Array) -> Forbidden | None:
    """The boxes (F, V) of x within the raw box lower, upper (V,) that x or x' may not be in; None when there are none.

    A box that is infinite on all sides holds every point: no row is asked about (`Forbidden.contain` of the box says so too).
    """
    forbidden, batch = problem.domain.forbidden, problem.batch
    if forbidden is None:
        return None
    inside = (forbidden.lower <= batch.prime[question]) & (batch.prime[question] <= forbidden.upper)
    possible = (inside | ~batch.protected).all(axis=1)
    offset = 0.0 if batch.offset is None else batch.offset[question]
    prime_lower = np.where(batch.protected, -np.inf, forbidden.lower - offset)[possible]
    prime_upper = np.where(batch.protected, np.inf, forbidden.upper - offset)[possible]
    low, high = np.concatenate([forbidden.lower, prime_lower]), np.concatenate([forbidden.upper, prime_upper])
    entered = ((low <= upper) & (high >= lower)).all(axis=1)
    low = np.where(low <= lower, -np.inf, low)[entered]
    high = np.where(high >= upper, np.inf, high)[entered]
    if not len(low):
        return None
    both = np.unique(np.concatenate([low, high], axis=1), axis=0)  # often the two copies may not be in the same box
    return Forbidden(lower=both[:, : len(lower)], upper=both[:, len(lower) :])


def exits(problem: TwinProblem, question: int, lower: Array, upper: Array) -> list[list[Exit]]:
    """For each of `exclusions` the ways to leave it within the box; an empty list: it cannot be left."""
    boxes = exclusions(problem, question, lower, upper)
    if boxes is None:
        return []
    whole = problem.domain.integer
    below = np.where(whole, np.ceil(boxes.lower) - 1, np.nextafter(boxes.lower, -np.inf))
    above = np.where(whole, np.floor(boxes.upper) + 1, np.nextafter(boxes.upper, np.inf))
    return [
        [Exit(variable=v, end=float(below[f, v]), below=True) for v in np.flatnonzero(np.isfinite(boxes.lower[f])).tolist()]
        + [Exit(variable=v, end=float(above[f, v]), below=False) for v in np.flatnonzero(np.isfinite(boxes.upper[f])).tolist()]
        for f in range(len(boxes.lower))
    ]


def nearest_legal(problem: TwinProblem, question: int, lower: Array, upper: Array, raw: Array) -> Array:
    """A point (V,) that leaves each forbidden box in which raw (V,) lies by its nearest exit, as a share of the box; no promise.

    A solver's point stands on the edge of a forbidden box only up to its tolerance.
    """
    boxes = exclusions(problem, question, lower, upper)
    if boxes is None:
        return raw
    ways, raw = exits(problem, question, lower, upper), raw.copy()
    for _ in range(len(ways)):
        inside = np.flatnonzero(((raw >= boxes.lower) & (raw <= boxes.upper)).all(axis=1))
        if not len(inside) or not ways[inside[0]]:
            break
        best = min(ways[inside[0]], key=lambda e: abs(e.end - raw[e.variable]) / (upper[e.variable] - lower[e.variable]))
        raw[best.variable] = best.end
    return raw
