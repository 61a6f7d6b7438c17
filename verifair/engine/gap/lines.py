"""Lines  a - m b <= w  over a box, and the gaps sigma(a) - sigma(b) that they allow.

The line of slope m under the curve "the gap is epsilon" has the constant c(epsilon, m) = min over s of
logit(s + epsilon) - m logit(s): if w <= c(epsilon, m), no gap exceeds epsilon.
"""

from __future__ import annotations

import numpy as np
from scipy.special import log_expit, logit

from encoders.arrays import Array, Integers
from encoders.bounds.difference import GoalBounds, mixed_goals

SLACK = 1e-9
"""Added to every bound on a gap, and taken off every constant, to allow for rounding."""
STEEPEST = 2.0**10
HALVINGS = 8
"""Halvings of the interval between the known gap and the parent's bound."""
RATIOS = 2.0 ** (np.arange(-16, 17) / 4)
"""Slopes tried, relative to the parent's best one."""
MIDDLE = 16
MIXTURES = np.where(
    RATIOS[:, None] < 1,
    np.stack([RATIOS, 1 - RATIOS, 0 * RATIOS], axis=1),
    np.stack([0 * RATIOS + 1, 0 * RATIOS, RATIOS - 1], axis=1),
)
"""(M, 3): -a + r m b = r (-a + m b) + (1 - r) (-a) for r < 1, else (-a + m b) + (r - 1) m b."""


def conjugate(epsilon: Array | float, m: Array) -> Array:
    """Return (N,) c(epsilon, m), rounded down by SLACK. 0 < epsilon < 1."""
    linear, constant = 1 - m + 2 * m * epsilon, m * epsilon * (1 - epsilon)
    root = np.sqrt(np.maximum(linear * linear + 4 * (m - 1) * constant, 0.0))
    s = 2 * constant / (linear + root)  # where the line touches
    s = np.clip(s, 1e-300, (1 - epsilon) * (1 - 1e-15))
    value = logit(s + epsilon) - m * logit(s)
    return np.asarray(value - SLACK * (1 + m) * (1 + np.abs(value)))


def rows_of(slope: Array, directions: Integers) -> tuple[Array, Array]:
    """Return rows (N, 3 S, 2) to bound, and their weights in the choice of cuts: for a fall -a + m b, -a and m b with (a, b) =
    (g, g') and m = slope (N, S); swapped for a rise. Every line is a mixture of them."""
    zero, ones = np.zeros_like(slope), np.ones_like(slope)
    rows = np.stack([np.stack([-ones, slope], axis=2), np.stack([-ones, zero], axis=2), np.stack([zero, slope], axis=2)], axis=2)
    rows = np.where((directions == 0)[:, :, None, None], rows, rows[..., ::-1])
    weights = np.array([1.0, 0.1, 0.1]) / np.maximum(slope, 1.0)[:, :, None]
    return rows.reshape(len(slope), -1, 2), weights.reshape(len(slope), -1)


def interval_line(lower: Array) -> tuple[Array, Array]:
    """Return w and m (B,) of lines a - m b <= w at the largest gaps that D, U, L' allow; lower: (B, 3) lower bounds of -D, -U,
    L'."""
    d, u, low = -lower[:, 0], -lower[:, 1], lower[:, 2]
    b = np.clip(-d / 2, low, np.maximum(u - d, low))
    with np.errstate(all="ignore"):  # of no use where d <= 0
        m = np.exp(log_expit(b) + log_expit(-b) - log_expit(b + d) - log_expit(-b - d))
    m = np.where(d > 0, np.clip(m, 1 / STEEPEST, STEEPEST), 1.0)
    return np.where(m < 1, m * d + (1 - m) * u, np.where(m > 1, d - (m - 1) * low, d)), m


def best_slope(bounds: GoalBounds, radius: Array, m: Array, known: float) -> tuple[Array, Array]:
    """Return slopes (N,) for lines, and the lower bounds (N,) of these: the best of the mixtures of the three rows of `rows_of`
    that have slopes RATIOS * m."""
    lower = mixed_goals(bounds, radius, MIXTURES)  # (N, M) of -a + (RATIOS m) b
    slopes = np.clip(RATIOS * m[:, None], 1 / STEEPEST, STEEPEST)
    lower[slopes != RATIOS * m[:, None]] = -np.inf
    lower[:, MIDDLE] = np.maximum(lower[:, MIDDLE], bounds.lower[:, 0])
    slack = (lower + conjugate(known, slopes)) / (1 + slopes)
    best = np.arange(len(m)), slack.argmax(axis=1)
    return slopes[best], lower[best]


def gap_below(w: Array, m: Array, known: float, parents: Array) -> Array:
    """Return (N,) bounds on the gap if a - m b <= w: `known` if that is proved, else by bisection up to `parents` (N,)."""
    low, high = np.full(len(w), known), np.minimum(parents, 1.0)
    left = np.flatnonzero(~(w <= conjugate(known, m)) & (high > known))
    high[np.setdiff1d(np.arange(len(w)), left)] = known
    below, above, w, m = low[left], high[left], w[left], m[left]
    for _ in range(HALVINGS):
        middle = (below + above) / 2
        proved = w <= conjugate(middle, m)
        below, above = np.where(proved, below, middle), np.where(proved, middle, above)
    high[left] = above
    return high


def gap_of(w: float, m: float, known: float) -> float:
    """Return the same for one line, to a millionth of the range above `known`: a hundred candidates at once, three times."""
    low, high = known, 1.0
    for _ in range(3):
        candidates = np.linspace(low, high, 101)[:-1]
        proved = np.flatnonzero(w <= conjugate(candidates, np.full(100, m)))
        k = int(proved[0]) if len(proved) else 100
        low, high = float(candidates[max(k - 1, 0)]), float(candidates[k]) if k < 100 else high
        if k == 0:
            break
    return high


def weights_of(first: Array, second: Array, rows: Array, direction: int) -> Array:
    """Return weights (N, R) of a claim's rows (R, 2) that add up to -A a + B b, A = first and B = second (N,). Only the two rows on
    either side of it have weights: this gives the largest constant, as c is concave. A single row is -a + b."""
    weights = np.zeros((len(first), len(rows)))
    if len(rows) == 1:
        weights[:, 0] = first
        return weights
    b, a = rows.T[:: 1 if direction else -1]
    size, total = b - a, first + second
    angle = b / size  # from 0, the row -a, to 1, the row b
    order = np.argsort(angle)
    position = np.divide(second, total, out=np.zeros_like(total), where=total > 0)
    following = np.clip(np.searchsorted(angle[order], position), 1, len(order) - 1)
    left, right = order[following - 1], order[following]
    share = np.clip((position - angle[left]) / (angle[right] - angle[left]), 0.0, 1.0)
    row = np.arange(len(first))
    weights[row, left] = (1 - share) * total / size[left]
    weights[row, right] = share * total / size[right]
    return weights
