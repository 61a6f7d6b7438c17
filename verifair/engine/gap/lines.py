"""Lines under the curve of a probability gap in float64, for whole batches of boxes: what a bound on a - m b says about the gap.

With phi(b) = logit(epsilon + sigma(b)) as in `encoders.probability`, a line of slope m > 0 lies under phi when its constant is at
most  c(epsilon, m) = min over b of phi(b) - m b.  So  a - m b <= w  throughout a box bounds the gap there by the epsilon with
c(epsilon, m) = w: c increases with epsilon.
Sound? to 1e-9, which is a thousand times what these few operations are off by; certificates are re-proved in ball arithmetic.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logit

from encoders.bounds.difference import GoalBounds, mixed_goals
from encoders.network import Array
from encoders.problem import Integers

SLACK = 1e-9
"""Added to every bound on a gap, taken off every constant."""
STEEPEST = 2.0**10
HALVINGS = 8
"""Of what is between the parent's bound and what is known."""
RATIOS = 2.0 ** (np.arange(-16, 17) / 4)
"""Slopes tried, relative to the one that served the parent best."""
MIDDLE = 16
MIXTURES = np.where(
    RATIOS[:, None] < 1,
    np.stack([RATIOS, 1 - RATIOS, 0 * RATIOS], axis=1),
    np.stack([0 * RATIOS + 1, 0 * RATIOS, RATIOS - 1], axis=1),
)
"""(M, 3): -a + r m b = r (-a + m b) + (1 - r) (-a) for r < 1, else (-a + m b) + (r - 1) m b."""


def conjugate(epsilon: Array | float, m: Array) -> Array:
    """(N,) c(epsilon, m), a little less than computed. 0 < epsilon < 1."""
    linear, constant = 1 - m + 2 * m * epsilon, m * epsilon * (1 - epsilon)
    root = np.sqrt(np.maximum(linear * linear + 4 * (m - 1) * constant, 0.0))
    s = 2 * constant / (linear + root)  # where the line touches
    s = np.clip(s, 1e-300, (1 - epsilon) * (1 - 1e-15))
    least = logit(s + epsilon) - m * logit(s)
    return np.asarray(least - SLACK * (1 + m) * (1 + np.abs(least)))


def rows_of(slope: Array, directions: Integers) -> tuple[Array, Array]:
    """Rows (N, 3 S, 2) to bound, and what they count in choosing where to cut: for a fall -a + m b, -a and m b with (a, b) =
    (g, g') and m = slope (N, S); swapped for a rise. Their mixtures are all lines."""
    zero, one = np.zeros_like(slope), np.ones_like(slope)
    rows = np.stack([np.stack([-one, slope], axis=2), np.stack([-one, zero], axis=2), np.stack([zero, slope], axis=2)], axis=2)
    rows = np.where((directions == 0)[:, :, None, None], rows, rows[..., ::-1])
    wanted = np.array([1.0, 0.1, 0.1]) / np.maximum(slope, 1.0)[:, :, None]
    return rows.reshape(len(slope), -1, 2), wanted.reshape(len(slope), -1)


def best_line(bounds: GoalBounds, radius: Array, m: Array, known: float, parents: Array) -> tuple[Array, Array]:
    """Bounds (N,) on the gap and the slopes (N,) of the lines that show them: of mixtures of the three rows of `rows_of`, slopes
    RATIOS * m, the one whose constant is least in need."""
    lower = mixed_goals(bounds, radius, MIXTURES)  # (N, M) of -a + (RATIOS m) b
    slopes = np.clip(RATIOS * m[:, None], 1 / STEEPEST, STEEPEST)
    lower[slopes != RATIOS * m[:, None]] = -np.inf
    lower[:, MIDDLE] = np.maximum(lower[:, MIDDLE], bounds.lower[:, 0])
    spare = (lower + conjugate(known, slopes)) / (1 + slopes)
    best = (np.arange(len(m)), spare.argmax(axis=1))
    return gap_below(-lower[best], slopes[best], known, parents), slopes[best]


def gap_below(w: Array, m: Array, known: float, parents: Array) -> Array:
    """(N,) bounds on the gap where a - m b <= w: `known` where that suffices, at most `parents` (N,), found by bisection."""
    low, high = np.full(len(w), known), np.minimum(parents, 1.0)
    left = np.flatnonzero(~(w <= conjugate(known, m)) & (high > known))
    high[np.setdiff1d(np.arange(len(w)), left)] = known
    below, above, w, m = low[left], high[left], w[left], m[left]
    for _ in range(HALVINGS):
        middle = (below + above) / 2
        enough = w <= conjugate(middle, m)
        below, above = np.where(enough, below, middle), np.where(enough, middle, above)
    high[left] = above
    return high


def gap_of(w: float, m: float, known: float) -> float:
    """The same for one line, to a millionth of what is above `known`: a hundred candidates at once, three times."""
    low, high = known, 1.0
    for _ in range(3):
        candidates = np.linspace(low, high, 101)[:-1]
        enough = np.flatnonzero(w <= conjugate(candidates, np.full(100, m)))
        k = int(enough[0]) if len(enough) else 100
        low, high = float(candidates[max(k - 1, 0)]), float(candidates[k]) if k < 100 else high
        if k == 0:
            break
    return high


def weights_of(first: Array, second: Array, rows: Array, direction: int) -> Array:
    """Weights (N, R) of a claim's rows (R, 2) that add up to -A a + B b, A = first and B = second (N,): of the two rows on either
    side of it, which leaves the largest constants as c is concave. A single row is -a + b."""
    weights = np.zeros((len(first), len(rows)))
    if len(rows) == 1:
        weights[:, 0] = first
        return weights
    b, a = rows.T[:: 1 if direction else -1]
    size, total = b - a, first + second
    angle = b / size  # from 0, the row -a, to 1, the row b
    order = np.argsort(angle)
    at = np.divide(second, total, out=np.zeros_like(total), where=total > 0)
    next_one = np.clip(np.searchsorted(angle[order], at), 1, len(order) - 1)
    left, right = order[next_one - 1], order[next_one]
    share = np.clip((at - angle[left]) / (angle[right] - angle[left]), 0.0, 1.0)
    row = np.arange(len(first))
    weights[row, left] = (1 - share) * total / size[left]
    weights[row, right] = share * total / size[right]
    return weights
