"""The search behind exact coverage: the k columns of a system that cover the most.

Branch and bound, depth first, over columns that are in or out. A branch is closed by the Lagrangian bound
    sum (w - lambda) + the k largest sums of lambda over a column,
which holds for any multipliers and is computed in whole numbers. Multipliers come from subgradient steps, one matrix product each,
until they stall, and from then on from the LP (`relaxation`). Columns that cannot be in a better choice (shown by the bound with
the column forced in) leave the branch, rows that became equal are merged, and it is bounded again. Columns that cover nearly the
same are branched on together: none of them is in, or one is, which one more row says that they alone cover. Choices come from
greedy, from the columns that are usually among the k best, and from exchanges of single columns while they gain.
Sound? yes: no tolerance, no solver's claim.   Complete? yes, given time.
Reference: Cornuejols, Fisher and Nemhauser, Location of bank accounts to optimize float (1977); Beasley, Lagrangian relaxation, in
Modern heuristic techniques for combinatorial problems (1993), for the reduction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from encoders.arrays import Array, Booleans, Integers
from encoders.programs.max_coverage import UNIT, ColumnBounds, column_bounds
from solvers import clock
from solvers.highs import HotStart
from verifair.systems.fgce.optimum.relaxation import Cuts, relaxed

STEPS = 300
"""Subgradient steps that a branch gets at once."""
DEFLECTION = 0.8
"""Weight of the last direction in the next: plain subgradients zigzag, and stay 1 to 3 % above the bounds of these."""
PATIENCE = 12
"""Steps without a better bound after which steps are halved."""
MIN_STEP = 1e-3
"""Length of a step, of the first, below which the multipliers have stalled."""
REDUCED_SHARE = 0.8
"""Share of columns left by a reduction below which the steps go on."""
ALIKE = 0.6
"""Share of what two columns cover that both must cover to count as alike."""
EDGE = 1e-6
"""A share of a column in an LP's point below which it is out, and below 1 by less than that it is in."""
DOMINATED = 3000
"""Columns of a table up to which dominated ones are looked for: the comparison is quadratic."""
MAX_EXCHANGE_CELLS = 20_000_000
"""Entries of the table in which exchanges are looked for."""
EXCHANGE_EVERY = 8
"""Every so many branches exchanges are looked for, and in the first."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Branch:
    """An open branch: the remaining problem after some decisions.

    bound: no choice in it covers more.   inside: columns that are in, covering `sure`.   k: number of columns that may join them.
    covers: (R, C) CSC, rows not yet covered and columns not yet decided; weights (R,).   columns: (C,) their numbers in the system.
    place: (n,) where each of the system's rows is among them, -1: nowhere.   multipliers: (R,) initial ones.   merged: number of
    columns when rows were last merged.   cuts: those of its LP, once that is solved.   required: sets of columns, of each of which
    one is in.
    """

    bound: int
    inside: tuple[int, ...]
    sure: int
    k: int
    covers: sp.csc_array
    weights: Integers
    columns: Integers
    place: Integers
    multipliers: Array
    merged: int
    cuts: Cuts | None = None
    required: tuple[frozenset[int], ...] = ()

    def reduced(self, keep: Booleans) -> Branch:
        """Return the branch with these columns only, without rows that none of them covers; equal rows and contained columns are
        merged each time a fifth of the columns is gone."""
        covers = sp.csc_array(self.covers[:, np.flatnonzero(keep)])
        result = replace(self, covers=covers, columns=self.columns[keep])
        result = result._rows(np.bincount(covers.indices, minlength=covers.shape[0]) > 0)
        return result._merged() if covers.shape[1] < REDUCED_SHARE * self.merged else result

    def _rows(self, keep: Booleans) -> Branch:
        if keep.all():
            return self
        position = np.cumsum(keep) - 1
        old = self.covers
        is_kept = keep[old.indices]
        ends = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(is_kept)])[old.indptr]
        covers = sp.csc_array((old.data[is_kept], position[old.indices[is_kept]], ends), shape=(int(keep.sum()), old.shape[1]))
        return replace(
            self, covers=covers, weights=self.weights[keep], place=_moved(self.place, np.where(keep, position, -1)),
            multipliers=self.multipliers[keep], cuts=None if self.cuts is None else self.cuts.rows(keep),
        )

    def _merged(self) -> Branch:
        table = self.covers.toarray().astype(bool)
        kinds, same = distinct(table)
        columns = undominated(table[kinds])
        weights = np.bincount(same, weights=self.weights).astype(np.int64)
        multipliers = np.bincount(same, weights=self.multipliers).astype(np.float64)
        covers = sp.csc_array(table[kinds][:, columns], dtype=np.float64)
        return replace(
            self, covers=covers, weights=weights, columns=self.columns[columns], place=_moved(self.place, same),
            multipliers=multipliers, merged=len(columns), cuts=None if self.cuts is None else self.cuts.merged(kinds, same),
        )

    def without(self, j: int) -> Branch:
        """Return the branch where column j (of its own) is out."""
        return self.reduced(np.arange(len(self.columns)) != j)

    def within(self, j: int) -> Branch:
        """Return the branch where column j is in."""
        covered = np.zeros(len(self.weights), dtype=bool)
        covered[self.covers.indices[self.covers.indptr[j] : self.covers.indptr[j + 1]]] = True
        gain = int(self.weights[covered].sum())
        result = replace(self, inside=(*self.inside, int(self.columns[j])), sure=self.sure + gain, k=self.k - 1)._rows(~covered)
        return result.reduced(np.diff(result.covers.indptr) > 0)

    def one_of(self, among: Booleans, weight: int) -> Branch:
        """Return the branch where one of some columns (C,) is in: they cover one more row, whose weight is taken off before.

        Choices with one of them are worth what they cover, others less by the weight; it is at least the bound to exclude these.
        """
        covers = sp.csc_array(sp.vstack([self.covers, sp.csc_array(among[None, :], dtype=np.float64)], format="csc"))
        return replace(
            self, sure=self.sure - weight, covers=covers, weights=np.append(self.weights, weight),
            multipliers=np.append(self.multipliers, weight), cuts=None if self.cuts is None else self.cuts.with_row(),
            required=(*self.required, frozenset(self.columns[among].tolist())),
        )


def _moved(place: Integers, position: Integers) -> Integers:
    """Return new places (n,), given where each place moves to; -1 stays."""
    moved, there = np.full_like(place, -1), place >= 0
    moved[there] = position[place[there]]
    return moved


CLOSED, REPRICED = -1, -2


@dataclass(kw_only=True, eq=False)
class RecordedBound:
    """One bound of a recorded search; branches in the order of the search, "in" before "out".

    multipliers: (R,) whole units of 2^-UNIT.   split: the next step: the column that is in or out, CLOSED, or REPRICED: the
    same branch without the useless columns.
    """

    multipliers: Integers
    split: int = CLOSED


class CoverSearch:
    """Search for the best columns of a system, or for columns that cover at least `target`.

    covers (R, C) CSC, weights (R,), a first choice of at most k columns.   multipliers: (R,) initial ones, None: half the weights.

    chosen, covered: the best choice so far, and the weight that it covers.   bound: no k columns cover more.   nodes: branches.
    root: the least bounds of all columns at the first branch, by the multipliers `priced` (R,), in whole units; None before.
    steps: every bound, if they are recorded (then rows are not merged, and columns are branched on one by one); None otherwise.
    """

    def __init__(
        self, covers: sp.csc_array, weights: Integers, first: Sequence[int], k: int, target: int | None,
        multipliers: Array | None = None, *, record: bool = False,
    ) -> None:
        self.steps: list[RecordedBound] | None = [] if record else None
        self.covers, self.weights, self.k = covers, weights, k
        self.enough = int(weights.sum()) if target is None else target
        self.needed = 0 if target is None else target
        self.chosen, self.covered = list(first), int(weights[self._covered_rows(first)].sum())
        self.nodes = 0
        self.closed = 0  # the largest bound of branches that were closed
        self.root: ColumnBounds | None = None
        self.priced: Integers = np.empty(0, dtype=np.int64)
        self.solver: HotStart | None = None
        sizes = np.sort(self.weights @ self.covers)[::-1]
        count = covers.shape[1]
        self.open = [Branch(
            bound=int(np.iinfo(np.int64).max) if record else min(int(weights.sum()), int(sizes[:k].sum())), inside=(), sure=0, k=k,
            covers=sp.csc_array(covers, dtype=np.float64), weights=weights, columns=np.arange(count),
            place=np.arange(len(weights)), multipliers=weights / 2 if multipliers is None else multipliers,
            merged=0 if record else count,
        )]

    @property
    def bound(self) -> int:
        return max([self.covered, self.closed, *(branch.bound for branch in self.open)])

    def run(self, deadline: float, max_nodes: int | None) -> None:
        """Search until all branches are closed, the target is met, or time or branches are up. May be called again."""
        while self.open and self.covered < self.enough:
            if clock.now() >= deadline or (max_nodes is not None and self.nodes >= max_nodes):
                return
            self._branch(self.open.pop(), deadline)

    @property
    def _goal(self) -> int:
        """Return the weight that a useful branch must exceed by its bound."""
        return max(self.needed - 1, self.covered)

    def _branch(self, branch: Branch, deadline: float) -> None:
        """Bound one branch, and split it if the bound does not close it."""
        self.nodes += 1
        if self._is_useless(branch.bound):
            return
        self._keep_better(branch.inside)
        is_first = self.nodes == 1
        size, frequency = 0, np.empty(0)
        while branch.k > 0 and len(branch.columns) and len(branch.weights):
            size = len(branch.columns)
            branch, frequency, closed = self._bounded(branch, 1.0 if is_first and self.root is None else 0.4, deadline)
            if closed:
                return
            self._try_choices(branch, frequency, exchange=self.nodes % EXCHANGE_EVERY == 1)
            if self.covered >= self.enough:
                self.open.append(branch)  # kept open: the search ends, but its bound counts
                return
            if clock.now() >= deadline:
                break
            if len(branch.columns) > REDUCED_SHARE * size:
                if branch.cuts is not None:
                    break
                branch = replace(branch, cuts=Cuts.none(branch.covers, branch.weights))
            self._record_split(REPRICED)
        if branch.k == 0 or not len(branch.columns) or not len(branch.weights):
            if self.steps is not None:
                self._record_split(REPRICED, condition=size > 0)
                self.steps.append(RecordedBound(multipliers=self.weights << UNIT))  # more columns would cover nothing
            return
        if self._is_useless(branch.bound):
            return
        alike = _alike(branch, frequency) if self.steps is None else None  # certificates branch on single columns
        if alike is not None:
            self.open += [branch.reduced(~alike), branch.one_of(alike, branch.bound)]
            return
        j = int(np.argmin(np.abs(frequency - 0.5)))
        self._record_split(int(branch.columns[j]))
        self.open += [branch.without(j), branch.within(j)]

    def _record_split(self, split: int, *, condition: bool = True) -> None:
        """Record the step that follows the last bound."""
        if self.steps and condition:
            self.steps[-1].split = split

    def _bounded(self, branch: Branch, scale: float, deadline: float) -> tuple[Branch, Array, bool]:
        """Return the branch with better multipliers and without useless columns, how often each of its columns was among the k best
        (C,), and whether it is closed."""
        lp = None
        if branch.cuts is not None:
            self.solver = self.solver or HotStart()
            lp = relaxed(branch.covers, branch.weights, branch.k, branch.cuts, self._goal - branch.sure, self.solver, deadline)
        if lp is None:
            best, frequency = _subgradient(branch, self._goal - branch.sure, scale, deadline)
        else:
            best, frequency, branch = lp.multipliers, lp.point, replace(branch, cuts=lp.cuts)
        multipliers = np.minimum(np.ldexp(best, UNIT).astype(np.int64), branch.weights << UNIT)
        covers = branch.covers
        bounds = column_bounds(covers, branch.weights, multipliers, branch.k)
        if self.nodes == 1 or self.steps is not None:
            self._price(branch, multipliers)
        branch = replace(branch, bound=min(branch.bound, branch.sure + bounds.bound), multipliers=best)
        if self._is_useless(branch.bound):
            return branch, frequency, True
        forced = branch.sure + bounds.forced()
        keep = forced > self._goal
        if not keep.all():
            self.closed = max(self.closed, int(forced[~keep].max()))
        numbers = branch.columns
        branch = branch.reduced(keep)
        return branch, frequency[np.searchsorted(numbers, branch.columns)], False

    def _price(self, branch: Branch, multipliers: Integers) -> None:
        """Record multipliers (R,) of a branch, and keep those of the first one that give the least bound, for all of the system's
        rows: merged rows share theirs, and rows that left keep what they had."""
        there = branch.place >= 0
        place = branch.place[there]
        units = np.zeros(len(self.weights), dtype=np.int64) if self.root is None else self.priced.copy()
        whole, left = np.divmod(multipliers[place], branch.weights[place])
        units[there] = whole * self.weights[there] + left * self.weights[there] // branch.weights[place]  # no product overflows
        if self.steps is not None:
            self.steps.append(RecordedBound(multipliers=np.where(there, units, 0)))
        if self.nodes == 1:
            bounds = column_bounds(self.covers, self.weights, units, self.k)
            if self.root is None or bounds.total < self.root.total:
                self.root, self.priced = bounds, units

    def _try_choices(self, branch: Branch, frequency: Array, *, exchange: bool) -> None:
        """Try the columns that are usually among the best and, with `exchange`, the choice improved by exchanging them one by
        one."""
        k = min(branch.k, len(branch.columns))
        order = np.argsort(-frequency, kind="stable")
        self._keep_better([*branch.inside, *branch.columns[order[:k]].tolist()])
        if exchange:
            pool = np.sort(order[: max(MAX_EXCHANGE_CELLS // len(branch.weights), k)])
            table = branch.covers[:, pool].toarray().astype(np.float32)
            improved = exchanged(table, branch.weights, np.searchsorted(pool, order[:k]).tolist())
            self._keep_better([*branch.inside, *branch.columns[pool[improved]].tolist()])

    def _is_useless(self, bound: int) -> bool:
        """Return True if a branch with this bound is useless; then it counts as closed."""
        if bound > self._goal:
            return False
        self.closed = max(self.closed, bound)
        return True

    def _covered_rows(self, chosen: Sequence[int]) -> Booleans:
        """Return (R,) rows that the columns cover."""
        covered = np.zeros(len(self.weights), dtype=bool)
        for j in chosen:
            covered[self.covers.indices[self.covers.indptr[j] : self.covers.indptr[j + 1]]] = True
        return covered

    def _keep_better(self, chosen: Sequence[int]) -> None:
        value = int(self.weights[self._covered_rows(chosen)].sum())
        if value > self.covered:
            self.chosen, self.covered = list(chosen), value


def _alike(branch: Branch, point: Array) -> Booleans | None:
    """Return the columns (C,) like one of the LP's point, those whose sum there is nearest to one half; None if a single column is
    as near."""
    candidates = np.flatnonzero((point > EDGE) & (point < 1 - EDGE))
    weighted = sp.csc_array(branch.covers * branch.weights[:, None])
    both = (weighted[:, candidates].T @ branch.covers).toarray()
    size = branch.weights @ branch.covers
    alike = both > ALIKE * (size[candidates, None] + size - both)
    distance = np.abs(alike @ point - 0.5)
    there = set(branch.columns.tolist())
    required = [some & there for some in branch.required]
    for row in np.argsort(distance, kind="stable").tolist():
        if distance[row] >= 0.5 - EDGE or alike[row].sum() == 1:
            break
        columns = set(branch.columns[alike[row]].tolist())
        if not any(some <= columns for some in required):  # otherwise one of them is in anyway
            return np.asarray(alike[row])
    return None


def distinct(table: Booleans) -> tuple[Integers, Integers]:
    """Return the first of each distinct row of a table (r, c), and (r,) each row's number among the distinct ones."""
    kinds: dict[bytes, int] = {}
    same = np.array([kinds.setdefault(row.tobytes(), len(kinds)) for row in np.packbits(table, axis=1)], dtype=np.int64)
    return np.unique(same, return_index=True)[1], same


def undominated(table: Booleans) -> Integers:
    """Return columns of a table (r, c) that no other one contains, ascending; of equal ones the first."""
    first = np.sort(distinct(np.ascontiguousarray(table.T))[0])
    size = table[:, first].sum(axis=0)
    first = first[size > 0]
    if len(first) > DOMINATED:
        return np.asarray(first)
    candidates = table[:, first].astype(np.float32)  # sums of fewer than 2^24 ones are exact
    size = candidates.sum(axis=0)
    contained = (candidates.T @ candidates >= size[:, None]) & (size[:, None] < size[None, :])
    return np.asarray(first[~contained.any(axis=1)])


def exchanged(table: Array, weights: Integers, chosen: Sequence[int]) -> list[int]:
    """Return the chosen columns of a table (R, C) of float32 zeros and ones, improved by the best exchange of one until none
    gains."""
    current = list(chosen)
    while True:
        count = table[:, current].sum(axis=1)
        unique = np.stack([np.where(count <= table[:, j], weights, 0) for j in current]).astype(np.float32)  # uncovered without j
        values = unique @ table + (weights.sum() - unique.sum(axis=1, dtype=np.float64))[:, None]
        clock.spend(unique.size * table.shape[1])
        removed, added = np.unravel_index(values.argmax(), values.shape)
        if values[removed, added] <= weights[count > 0].sum():
            return current
        current[removed] = int(added)


def _subgradient(branch: Branch, goal: int, scale: float, deadline: float) -> tuple[Array, Array]:
    """Return multipliers (R,) with a low bound, by subgradient steps that stop once the bound is at most `goal`, or they stall; and
    how often each column was among the k best (C,), late steps counting more."""
    covers, k = branch.covers, branch.k
    weights = branch.weights.astype(np.float64)
    current = best = np.clip(branch.multipliers, 0.0, weights)
    lowest, idle, finest = np.inf, 0, MIN_STEP * scale
    frequency, direction = np.zeros(covers.shape[1]), np.zeros(len(weights))
    transposed = covers.T
    for _ in range(STEPS):
        clock.spend(4 * covers.nnz + 200_000)
        sums = transposed @ current
        best_columns = np.argpartition(-sums, k - 1)[:k] if k < len(sums) else np.arange(len(sums))
        value = float((weights - current).sum() + sums[best_columns].sum())
        if value < lowest - 1e-6 * max(abs(value), 1.0):
            lowest, best, idle = value, current, 0
        else:
            idle += 1
        frequency *= 0.95
        frequency[best_columns] += 0.05
        if lowest < goal + 1 or scale < finest or clock.now() >= deadline:
            break
        if idle >= PATIENCE:
            scale, idle, current, direction = scale / 2, 0, best, np.zeros(len(weights))
            continue
        rows = np.concatenate([covers.indices[covers.indptr[j] : covers.indptr[j + 1]] for j in best_columns])
        slope = np.bincount(rows, minlength=len(weights)) - 1.0
        slope[(current <= 0) & (slope > 0)] = 0.0  # cannot go lower
        slope[(current >= weights) & (slope < 0)] = 0.0
        direction = DEFLECTION * direction + (1 - DEFLECTION) * slope
        size = float(direction @ direction)
        if size == 0.0:
            break
        current = np.clip(current - scale * (value - goal) / size * direction, 0.0, weights)
    return best, frequency
