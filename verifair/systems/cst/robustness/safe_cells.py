"""Larger safe boxes of coefficients: what one bound for the whole box cannot tell, bounds for its parts can.

Best first, for all complainants at once: the part that comes nearest to the estimates is bounded around its own centre; if the
verdict may flip in it, it is halved. The nearest part that is left says how far everything before it is safe. Parts are measured in
standard errors from the estimates.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

import numpy as np

from encoders.network import Array, Booleans, Integers
from verifair.systems.cst.robustness.safe_bounds import Bounds
from verifair.systems.cst.robustness.what_if import WhatIf

NARROW = 1e-9
"""Parts are not halved below this width."""
CHUNK = 2048
"""Parts whose surroundings are held at once."""
AT_ONCE = 4
"""Parts of one complainant that are bounded together."""

Part = tuple[float, int, Array, Array]
"""How near it comes, a number that orders equals, and its ends (p,), (p,) in standard errors."""


def refined(
    what: WhatIf, safe: Array, upper: Array, *, effort: int, progress: Callable[[int, int], None] | None = None
) -> Array:
    """(C,) sizes of boxes in which no verdict flips, at least `safe` (C,) and at most `upper` (C,), where a flip is known.

    effort: parts to bound for each complainant.   progress(done, total) counts rounds.
    """
    number = count()
    weight = _weights(what)
    loose = np.flatnonzero(what.effects.errors > 0)
    heaps: dict[int, list[Part]] = {
        k: _slabs(float(safe[k]), float(upper[k]), loose, len(what.effects), number) for k in np.flatnonzero(safe < upper).tolist()
    }
    found = np.minimum(np.maximum(safe, 0.0), upper)
    rounds = -(-effort // AT_ONCE)
    for step in range(rounds):
        taken: list[tuple[int, Part]] = []
        for k, heap in heaps.items():
            taken += [(k, part) for part in _nearest(heap, float(upper[k]))]
        if not taken:
            break
        held = _held(what, taken)
        for (k, (near, _, low, high)), proved in zip(taken, held, strict=True):
            if not proved:
                j = int(np.argmax(weight[k] * (high - low)))
                for half_low, half_high in _halves(low, high, j):
                    heapq.heappush(heaps[k], (max(near, _nearness(half_low, half_high)), next(number), half_low, half_high))
        if progress is not None:
            progress(step + 1, rounds)
    for k, heap in heaps.items():
        found[k] = max(found[k], min(heap[0][0], upper[k]) if heap else upper[k])
    return found


def _nearest(heap: list[Part], upper: float) -> list[Part]:
    """Takes the nearest parts from a heap, a few of them, but none beyond `upper` and none too narrow to be halved."""
    parts: list[Part] = []
    while heap and len(parts) < AT_ONCE and heap[0][0] < upper and (heap[0][3] - heap[0][2]).max() > NARROW:
        parts.append(heapq.heappop(heap))
    return parts


def _held(what: WhatIf, taken: list[tuple[int, Part]]) -> Booleans:
    """Whether the verdict is the same throughout each part."""
    who = np.array([k for k, _ in taken], dtype=np.int64)
    low, high = (np.array([part[end] for _, part in taken]) * what.effects.errors + what.effects.estimates for end in (2, 3))
    found = np.empty(len(who), dtype=bool)
    for start in range(0, len(who), CHUNK):
        part = slice(start, start + CHUNK)
        middle = low[part] + (high[part] - low[part]) / 2
        found[part] = Bounds(what, who[part], middle).holds(low[part], high[part])
    return found


def _slabs(safe: float, upper: float, loose: Integers, p: int, number: count[int]) -> list[Part]:
    """What lies between two boxes of sizes safe and upper: a slab on each side of every coefficient."""
    parts: list[Part] = []
    for place, j in enumerate(loose.tolist()):
        low, high = np.zeros(p), np.zeros(p)
        low[loose], high[loose] = -upper, upper
        low[loose[:place]], high[loose[:place]] = -safe, safe
        for ends in ((-upper, -safe), (safe, upper)):
            one, other = low.copy(), high.copy()
            one[j], other[j] = ends
            parts.append((safe, next(number), one, other))
    heapq.heapify(parts)
    return parts


def _halves(low: Array, high: Array, j: int) -> list[tuple[Array, Array]]:
    middle = low[j] + (high[j] - low[j]) / 2
    left, right = high.copy(), low.copy()
    left[j] = right[j] = middle
    return [(low, left), (right, high)]


def _nearness(low: Array, high: Array) -> float:
    """The least size of a box around the estimates that meets this part."""
    return float(np.maximum(np.maximum(low, -high), 0.0).max(initial=0.0))


def _weights(what: WhatIf) -> Array:
    """(C, p) how much one standard error of each coefficient moves a complainant's counterfactual: what parts are halved along."""
    effects = what.effects
    weight = np.zeros((len(what), len(effects)))
    here = effects.counterfactuals(what.values, what.change, effects.estimates[None], bounded=False)[0]
    spread = np.maximum(what.values.std(axis=0), 1e-12) if len(what) else np.ones(len(effects.nodes))
    for k in np.flatnonzero(effects.errors > 0).tolist():
        theta = effects.estimates.copy()
        theta[k] += effects.errors[k]
        there = effects.counterfactuals(what.values, what.change, theta[None], bounded=False)[0]
        weight[:, k] = (np.abs(there - here) / spread).sum(axis=1) + 1e-12
    return weight
