"""The LP relaxation of maximum coverage, solved by cuts, for its multipliers; subgradient steps stall up to 1 % above its bound.

The weight that columns x in [0, 1] cover of a group of rows is at most, for any multipliers lambda in [0, w],

    theta_g  <=  sum (w - lambda) + sum_j x_j sum_{rows of g in j} lambda.

The LP maximises sum theta over these cuts and sum x <= k. At its point every group whose theta is too large gets the cut that is
tight there: lambda = w where less than one column covers a row, otherwise 0. The LP has a column for each column of the system and
each group, however many rows there are. The sum of the cuts' lambdas, each times its dual, has the LP's bound.
Reference: Cordeau, Furini and Ljubic, Benders decomposition for very large scale partial set covering and maximal covering location
problems, European Journal of Operational Research 275 (2019).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from encoders.arrays import Array, Booleans, Integers
from solvers import clock
from solvers.highs import HotStart, with_rows
from solvers.program import Program

GROUPS = 60
"""Groups of rows: more of them need fewer rounds, of larger LPs."""
ROUNDS = 60
"""Rounds of cuts of one LP."""
CLOSE = 0.3
"""The rounds end once the LP's point covers its value, but for this share of what is to be lost to the goal."""
ITERATIONS = 20_000
"""Steps of the simplex method in one round."""
TIGHT = 1e-9
"""A row counts as covered by a point from so little below one column on; a cut as met up to so much of its weight."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Cuts:
    """Cuts of a branch.   groups: G.   group: (R,) of each row.   multipliers: (S, R), up to S cuts of each group; 0 makes none."""

    groups: int
    group: Integers
    multipliers: Array

    @classmethod
    def none(cls, covers: sp.csc_array, weights: Integers) -> Cuts:
        """Return no cuts. Rows are in one group if the same column is the first to cover them in greedy's order."""
        group = np.full(len(weights), -1, dtype=np.int64)
        left = weights.astype(np.float64)
        for g in range(GROUPS - 1):
            gains = left @ covers
            j = int(gains.argmax())
            if gains[j] <= 0:
                break
            rows = covers.indices[covers.indptr[j] : covers.indptr[j + 1]]
            group[rows[group[rows] < 0]] = g
            left[rows] = 0.0
        group = np.unique(group, return_inverse=True)[1].astype(np.int64)
        return cls(groups=int(group.max()) + 1, group=group, multipliers=np.empty((0, len(weights))))

    def rows(self, keep: Booleans) -> Cuts:
        return replace(self, group=self.group[keep], multipliers=self.multipliers[:, keep])

    def merged(self, kinds: Integers, same: Integers) -> Cuts:
        """Return the cuts of merged rows, given the first of each kind (K,) and each row's kind (R,)."""
        sums = sp.csr_array((np.ones(len(same)), (np.arange(len(same)), same)), shape=(len(same), len(kinds)))
        return replace(self, group=self.group[kinds], multipliers=np.asarray(self.multipliers @ sums))

    def with_row(self) -> Cuts:
        """Return the cuts with one more row, in a group of its own."""
        multipliers = np.hstack([self.multipliers, np.zeros((len(self.multipliers), 1))])
        return Cuts(groups=self.groups + 1, group=np.append(self.group, self.groups), multipliers=multipliers)


@dataclass(frozen=True, kw_only=True, eq=False)
class Relaxed:
    """The LP of a branch.   multipliers: (R,) with its bound.   point: (C,) its columns.   cuts: those that are tight there."""

    multipliers: Array
    point: Array
    cuts: Cuts


class _Program:
    """The LP: columns x, then theta; rows: at most k columns, then a cut for each (multipliers, group) of `pairs`."""

    def __init__(self, covers: sp.csc_array, weights: Integers, k: int, cuts: Cuts) -> None:
        self.covers, self.weights, self.group = covers, weights.astype(np.float64), cuts.group
        self.columns, self.groups, self.k = covers.shape[1], cuts.groups, k
        self.cell = self.group[covers.indices] * self.columns + np.repeat(np.arange(self.columns), np.diff(covers.indptr))
        self.multipliers: list[Array] = []
        self.pairs: list[tuple[int, int]] = []
        self.cells: list[Array] = [np.empty((0, self.columns))]
        self.upper: list[Array] = [np.empty(0)]
        for multipliers in cuts.multipliers:
            self.add(multipliers, np.flatnonzero(self.sums(multipliers) > 0))

    def sums(self, values: Array) -> Array:
        """Return the sums of values (R,) over the rows of each group (G,)."""
        return np.bincount(self.group, weights=values, minlength=self.groups).astype(np.float64)

    def add(self, multipliers: Array, groups: Integers) -> None:
        """Add the cuts of multipliers (R,) for some groups."""
        cells: Array = np.bincount(self.cell, multipliers[self.covers.indices], self.groups * self.columns).astype(np.float64)
        self.pairs += [(len(self.multipliers), g) for g in groups.tolist()]
        self.multipliers.append(multipliers)
        self.cells.append(cells.reshape(self.groups, self.columns)[groups])
        self.upper.append(self.sums(self.weights - multipliers)[groups])

    def program(self) -> Program:
        cells, upper, count = np.concatenate(self.cells), np.concatenate(self.upper), self.columns + self.groups
        table = np.zeros((len(cells) + 1, count))
        table[0, : self.columns] = 1.0
        table[1:, : self.columns] = -cells
        table[np.arange(1, len(table)), self.columns + np.array([g for _, g in self.pairs], dtype=np.int64)] = 1.0
        return Program(
            lower=np.zeros(count), upper=np.append(np.ones(self.columns), self.sums(self.weights)),
            integer=np.zeros(count, dtype=bool), rows=sp.csr_array(table), row_lower=np.full(len(table), -np.inf),
            row_upper=np.append(float(self.k), upper), objective=np.append(np.zeros(self.columns), -np.ones(self.groups)),
        )

    def combined(self, duals: Array) -> tuple[Array, Array]:
        """Return the multipliers (R,) that the duals (P,) of some first cuts make, and the (S, R) of the cuts with a dual above
        0."""
        pairs = np.array(self.pairs, dtype=np.int64).reshape(-1, 2)[: len(duals)]
        share = np.zeros((len(self.multipliers), self.groups))
        share[pairs[:, 0], pairs[:, 1]] = np.maximum(duals, 0.0)
        rank = np.cumsum(share > 0, axis=0) - 1
        source = np.full((int(rank.max(initial=-1)) + 1, self.groups), -1)
        t, g = np.nonzero(share > 0)
        source[rank[t, g], g] = t
        table = np.array([*self.multipliers, np.zeros(len(self.weights))])
        tight = table[source[:, self.group], np.arange(len(self.weights))]
        shares = np.vstack([share, np.zeros(self.groups)])[source, np.arange(self.groups)]
        return np.clip((shares[:, self.group] * tight).sum(axis=0), 0.0, self.weights), tight


def relaxed(
    covers: sp.csc_array, weights: Integers, k: int, cuts: Cuts, goal: int, solver: HotStart, deadline: float
) -> Relaxed | None:
    """Return the LP of covers (R, C) CSC float, weights (R,) and k columns, or one with fewer cuts if its bound is at most `goal`
    or time is up; None if the solver gave no optimum.

    Sound? yes: multipliers are only numbers, whose bound is computed elsewhere.   Complete? no: at best the LP's bound.
    """
    lp = _Program(covers, weights, k, cuts)
    by_row = sp.csr_array(covers)
    basis = best = None
    for _ in range(ROUNDS):
        program, seconds = lp.program(), deadline - clock.now()
        basis = with_rows(basis, len(program.row_lower))
        outcome, basis = solver.solve(program, seconds=seconds, iterations=ITERATIONS, basis=basis)
        if outcome.values is None or outcome.duals is None:
            break
        point, theta = outcome.values[: lp.columns], outcome.values[lp.columns :]
        best = point, -outcome.duals[1:]
        value = float(theta.sum())
        clock.spend(4 * covers.nnz + 100_000)
        sums = by_row @ point
        covered = lp.sums(lp.weights * np.minimum(sums, 1.0))
        groups = np.flatnonzero(theta > covered + TIGHT * max(value, 1.0))
        if value < goal + 1 or value - covered.sum() < CLOSE * (value - goal) or not len(groups) or clock.now() >= deadline:
            break
        lp.add(np.where(sums < 1 - TIGHT, lp.weights, 0.0), groups)
    if best is None:
        return None
    multipliers, tight = lp.combined(best[1])
    return Relaxed(multipliers=multipliers, point=best[0], cuts=replace(cuts, multipliers=tight))
