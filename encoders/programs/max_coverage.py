r"""Maximum coverage as a program, and bounds that turn any multipliers into proofs in integer arithmetic.

With x_j = 1 where column j is chosen and z_i = 1 where row i is covered by a chosen one (cost-constrained FGCE: x' covers x where
it is feasible and its cost is at most d; w_i counts the factuals that row i stands for),

    \begin{align}
    \text{maximise}\quad   & \sum_i w_i z_i \\
    \text{subject to}\quad & z_i \le \sum_{j \text{ covers } i} x_j  & \forall i  \tag{1} \\
                           & \sum_j x_j \le k                                     \tag{2} \\
                           & x_j, z_i \in \{0, 1\}                                \tag{3}
    \end{align}

Relaxing (1) with multipliers \lambda_i in [0, w_i] gives a bound for every choice of them,

    \sum_i w_i z_i \le \sum_i (w_i - \lambda_i) + \text{the sum of the k largest of}\ \sum_{i \text{ covered by } j} \lambda_i ,

which at the LP's duals of (1) is the LP's optimum (`coverage_bound`). Likewise, for every y >= 0, a set cover needs at least
\sum_i y_i / \max_j \sum_{i covered by j} y_i columns (`packing_bound`): none has a larger sum than the maximum.
Multipliers are rounded to multiples of a power of two, then everything is added in int64 (Python's integers where it could
overflow): no tolerance is left, whatever the source of the multipliers, and rounding them costs sharpness only.

Reference: FGCE, section III-A (cost-constrained FGCE); the bound: Cornuejols, Fisher and Nemhauser, Management Science 23(8), 1977.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from encoders.arrays import Array, Booleans, Integers
from solvers.program import Program

BITS = 62
"""Sums of scaled multipliers stay below 2^BITS, inside int64."""
UNIT = 20
"""Whole multipliers count in units of 2^-UNIT: rounding to these loses less than one row in a million."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Cover:
    """Columns and what they cover.   chosen: (s,) ascending columns.   covered: (F,) bool.   weight: of the covered rows."""

    chosen: Integers
    covered: Booleans
    weight: int


@dataclass(frozen=True, kw_only=True, eq=False)
class MaxCoverage:
    """The program (it minimises minus the weight; columns x, then z; rows (1), then (2)), with the decoding of its answers.

    covers: (F, C) bool.   weights: (F,) int64.   k: at most so many columns.
    """

    program: Program
    covers: sp.csr_array
    weights: Integers
    k: int

    def decode(self, values: Array) -> Cover | None:
        """Return the columns that a solver's point (n,) chooses, and the rows that they cover; None if, rounded, they exceed k."""
        chosen = np.flatnonzero(values[: self.covers.shape[1]] > 0.5)
        if len(chosen) > self.k:
            return None
        covered = np.asarray(self.covers @ np.isin(np.arange(self.covers.shape[1]), chosen).astype(np.int64)) > 0
        return Cover(chosen=chosen, covered=covered, weight=int(self.weights[covered].sum()))

    def bound(self, duals: Array) -> int:
        """Return an upper bound on the weight from row duals (m,) of the LP relaxation: a proof, see `coverage_bound`."""
        return coverage_bound(self.covers, self.weights, -duals[: len(self.weights)], self.k)


def max_coverage(covers: sp.sparray, weights: Integers, *, k: int) -> MaxCoverage:
    """Return the program for covers (F, C) bool (CSR or CSC), whole weights (F,) >= 0 and at most k columns.

    Raises ValueError for parts that do not fit, a negative weight, or k < 1.
    """
    covers = _boolean(covers)
    weights = _whole(weights, covers)
    if k < 1:
        raise ValueError(f"maximum coverage: k = {k}, expected at least 1")
    factuals, columns = covers.shape
    width = columns + factuals
    linked = sp.hstack([-covers.astype(np.float64), sp.eye_array(factuals)], format="csr")
    size = sp.csr_array((np.ones(columns), (np.zeros(columns, dtype=np.int64), np.arange(columns))), shape=(1, width))
    rows = sp.csr_array(sp.vstack([linked, size], format="csr"))
    rows.sort_indices()
    program = Program(
        lower=np.zeros(width), upper=np.ones(width), integer=np.ones(width, dtype=bool), rows=rows,
        row_lower=np.full(factuals + 1, -np.inf), row_upper=np.append(np.zeros(factuals), float(k)),
        objective=np.concatenate([np.zeros(columns), -weights.astype(np.float64)]))
    return MaxCoverage(program=program, covers=covers, weights=weights, k=k)


def coverage_bound(covers: sp.sparray, weights: Integers, multipliers: Array, k: int) -> int:
    """Return an upper bound on the weight that any k columns of covers (F, C) can cover, for any multipliers (F,).

    Multipliers are clipped to [0, w]; the LP's duals of (1) give the LP's optimum rounded down.
    Sound? yes, exactly, for any multipliers.   Complete? no: as sharp as they are, at best the LP.
    Raises ValueError for a multiplier that is NaN, a negative weight, or parts that do not fit.
    """
    covers = _boolean(covers)
    weights = _whole(weights, covers)
    exponent = BITS - int(weights.sum()).bit_length()
    units = weights << exponent
    clipped = np.clip(_numbers(multipliers, covers), 0.0, weights.astype(np.float64))
    scaled = np.minimum(np.ldexp(clipped, exponent).astype(np.int64), units)
    gathered = np.sort(covers.T.astype(np.int64) @ scaled)[::-1]
    total = int((units - scaled).sum()) + sum(gathered[:k].tolist())
    return min(int(total >> exponent), int(weights.sum()))


@dataclass(frozen=True, kw_only=True, eq=False)
class ColumnBounds:
    """The bound of whole multipliers, and the bounds for each column; all in units of 2^-UNIT.

    total: the bound.   least: the k-th largest sum, 0 where there are fewer columns.   gathered: (C,) int64, each column's sum.
    """

    total: int
    least: int
    gathered: Integers

    @property
    def bound(self) -> int:
        """An upper bound of the weight that any k columns cover."""
        return self.total >> UNIT

    def forced(self, gathered: Integers | None = None) -> Integers:
        """Return for each column (or for sums of other columns) an upper bound of the weight of any k columns that include it."""
        sums = self.gathered if gathered is None else gathered
        return np.asarray((self.total - np.maximum(self.least - sums, 0)) >> UNIT)


def column_bounds(covers: sp.csc_array, weights: Integers, multipliers: Integers, k: int) -> ColumnBounds:
    """Return bounds for multipliers (R,) in units of 2^-UNIT, between 0 and w; covers (R, C) CSC bool, each entry once, k >= 1.

    With column j forced in, its own sum replaces the k-th largest one: the bound falls by the difference of the two.
    Sound? yes, exactly, for any multipliers.   Complete? no, see `coverage_bound`.
    Raises ValueError for multipliers out of range, and for sums that int64 does not hold.
    """
    units = weights.astype(np.int64) << UNIT
    if (multipliers < 0).any() or (multipliers > units).any():
        raise ValueError("column bounds: multipliers are whole numbers from 0 to the weight times 2^UNIT")
    if (k + 1) * sum(weights.tolist()) >= 2 ** (BITS - UNIT):
        raise ValueError("column bounds: k and the weights are too large for int64")
    ends = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(multipliers[covers.indices])])[covers.indptr]
    gathered = np.diff(ends)
    largest = -np.sort(-gathered)[:k]
    total = int((units - multipliers).sum()) + int(largest.sum())
    least = int(largest[-1]) if len(largest) == k else 0
    return ColumnBounds(total=total, least=least, gathered=gathered)


def packing_bound(covers: sp.sparray, multipliers: Array) -> int:
    """Return a lower bound on the number of columns of covers (F, C) that together cover all rows, for any multipliers (F,).

    Negative multipliers count as 0. If some row is in no column no number suffices, and the answer is C + 1.
    Sound? yes, exactly, for any multipliers.   Complete? no: as sharp as they are, at best the LP.
    Raises ValueError for a multiplier that is NaN or infinite, or parts that do not fit.
    """
    covers = _boolean(covers)
    y = np.maximum(_numbers(multipliers, covers), 0.0)
    if not np.isfinite(y).all():
        raise ValueError("packing bound: a multiplier is infinite")
    if (np.diff(covers.indptr) == 0).any():
        return int(covers.shape[1]) + 1
    largest = y.max(initial=0.0)
    if largest == 0:
        return int(len(y) > 0)
    scaled = np.ldexp(y / largest, BITS - len(y).bit_length()).astype(np.int64)
    return -(-int(scaled.sum()) // int((covers.T.astype(np.int64) @ scaled).max()))


def _boolean(covers: sp.sparray) -> sp.csr_array:
    """Return covers as CSR with every entry once and none that is False."""
    covers = sp.csr_array(covers, dtype=bool, copy=True)
    covers.sum_duplicates()
    covers.eliminate_zeros()
    return covers


def _whole(weights: Integers, covers: sp.csr_array) -> Integers:
    weights = np.asarray(weights)
    if weights.shape != covers.shape[:1] or not np.issubdtype(weights.dtype, np.integer) or (weights < 0).any():
        raise ValueError(f"coverage: weights {weights.dtype} {weights.shape}, expected whole numbers >= 0, {covers.shape[:1]}")
    if sum(weights.tolist()) >= 2**53:
        raise ValueError("coverage: the weights sum to 2^53 or more, which float64 does not hold exactly")
    return weights.astype(np.int64)


def _numbers(multipliers: Array, covers: sp.csr_array) -> Array:
    multipliers = np.asarray(multipliers, dtype=np.float64)
    if multipliers.shape != covers.shape[:1] or np.isnan(multipliers).any():
        raise ValueError(f"bound: multipliers {multipliers.shape}, expected numbers {covers.shape[:1]}")
    return multipliers
