"""Cost-constrained FGCE: k counterfactuals that cover the most factuals at cost at most d. Greedy, and the exact optimum.

Greedy reaches at least (1 - 1/e) of the optimum; gains only shrink, so a candidate is looked at again only while its last known
gain leads (lazy evaluation). The optimum is found by branching on candidates; a branch is closed by a Lagrangian bound whose
multipliers may come from anywhere, but which is added up in whole numbers, so that no tolerance decides.
Reference: FGCE, problem 1 and algorithm 1; Minoux (1978) for the lazy evaluation.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from encoders.network import Array, Booleans, Integers
from encoders.programs.max_coverage import coverage_bound, max_coverage
from solvers import clock
from solvers.outcome import Budget, Limit
from solvers.registry import solve
from verifair.errors import QueryError
from verifair.systems.fgce.instance import Instance

DOMINATED = 3000
"""Columns of a block up to which dominated ones are looked for: the comparison is quadratic."""
STEPS = 300
"""Subgradient steps a branch gets."""
DEFLECTED = 0.8
"""What the last direction counts in the next: plain subgradients zigzag, and stay 1 to 3 % above what these reach."""
PATIENCE = 8
"""Steps without a better bound after which steps are halved."""
SMALL = 400_000
"""Entries of a system up to which its LP is solved."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Coverage:
    """chosen: nodes, at most k.   covered: how many factuals they cover.   bound: no k candidates cover more.   nodes: branches."""

    chosen: Integers
    covered: int
    bound: int
    nodes: int

    @property
    def optimal(self) -> bool:
        return self.covered == self.bound


@dataclass(frozen=True, kw_only=True, eq=False)
class SetSystem:
    """Who covers whom. covers: (R, C) bool, CSC, rows that are alike taken as one.   weights: (R,) factuals that each stands for.

    nodes: (C,) the candidate of each column.
    """

    covers: sp.csc_array
    weights: Integers
    nodes: Integers

    @classmethod
    def of(cls, blocks: Sequence[Booleans], nodes: Sequence[Integers]) -> SetSystem:
        """Return the system of blocks (f, c) and their candidates (c,), less contained columns and rows that nobody covers."""
        ends, rows, weights, kept = [np.zeros(1, dtype=np.int64)], [], [], []
        count = filled = 0
        for covers, names in zip(blocks, nodes, strict=True):
            kinds, same = _distinct(covers)
            some = covers[kinds].any(axis=1)
            table = covers[kinds[some]]
            columns = _undominated(table)
            column, row = np.nonzero(table[:, columns].T)  # column by column, as CSC has them
            ends.append(filled + np.cumsum(np.bincount(column, minlength=len(columns))))
            rows.append(count + row)
            weights.append(np.bincount(same)[some])
            kept.append(names[columns])
            count, filled = count + len(table), filled + len(row)
        index = np.concatenate(rows)
        entries = np.ones(len(index), dtype=bool), index, np.concatenate(ends)
        covers_all = sp.csc_array(entries, shape=(count, sum(len(names) for names in kept)))
        return cls(covers=covers_all, weights=np.concatenate(weights), nodes=np.concatenate(kept))

    @classmethod
    def within(cls, instance: Instance, cost: float) -> SetSystem:
        """Return feasible pairs of an instance that cost at most so much."""
        near = [within(block.cost, cost) for block in instance.blocks]
        return cls.of(near, [block.candidates for block in instance.blocks])

    def column(self, j: int) -> Integers:
        return np.asarray(self.covers.indices[self.covers.indptr[j] : self.covers.indptr[j + 1]])

    def gain(self, j: int, covered: Booleans) -> int:
        rows = self.column(j)
        return int(self.weights[rows[~covered[rows]]].sum())

    def value(self, chosen: Sequence[int]) -> int:
        """Return factuals that the columns cover together."""
        covered = np.zeros(len(self.weights), dtype=bool)
        for j in chosen:
            covered[self.column(j)] = True
        return int(self.weights[covered].sum())


def within(costs: Array, cost: float) -> Booleans:
    """Return which costs are of a feasible pair and at most so much; the limit may be infinite, a feasible cost is not."""
    return np.asarray(np.isfinite(costs) & (costs <= cost))


def _distinct(table: Booleans) -> tuple[Integers, Integers]:
    """Return the first of each kind of row of a table (r, c), and for every row the number of its kind (r,)."""
    kinds: dict[bytes, int] = {}
    same = np.array([kinds.setdefault(row.tobytes(), len(kinds)) for row in np.packbits(table, axis=1)], dtype=np.int64)
    return np.unique(same, return_index=True)[1], same


def _undominated(table: Booleans) -> Integers:
    """Return columns of a table (r, c) that no other one contains; of equal ones the first."""
    first, _ = _distinct(np.ascontiguousarray(table.T))
    size = table[:, first].sum(axis=0)
    first = first[size > 0]
    if len(first) > DOMINATED:
        return np.asarray(first)
    some = table[:, first].astype(np.float32)  # sums of fewer than 2^24 ones are exact
    size = some.sum(axis=0)
    contained = (some.T @ some >= size[:, None]) & (size[:, None] < size[None, :])
    return np.asarray(first[~contained.any(axis=1)])


def greedy(system: SetSystem, k: int) -> list[int]:
    """Return columns in the order in which they are chosen; fewer than k when nothing is left to gain.

    Guarantee: at least (1 - 1/e) of the optimum (Nemhauser, Wolsey and Fisher, 1978).
    """
    covered = np.zeros(len(system.weights), dtype=bool)
    heap = [(-system.gain(j, covered), j, 0) for j in range(len(system.nodes))]
    heapq.heapify(heap)
    chosen: list[int] = []
    while heap and len(chosen) < k:
        gain, j, asked = heapq.heappop(heap)
        if asked < len(chosen):  # a gain of an earlier round: at most so much by now
            heapq.heappush(heap, (-system.gain(j, covered), j, len(chosen)))
            continue
        if gain == 0:
            break
        chosen.append(j)
        covered[system.column(j)] = True
    return chosen


def greedy_coverage(instance: Instance, k: int, cost: float) -> Coverage:
    """Return algorithm 1's choice, over all components at once; the paper's local version gives the same. bound: of every choice.

    Raises QueryError for a k below 1, as `largest_coverage` does.
    """
    _check(k)
    system = SetSystem.within(instance, cost)
    chosen = greedy(system, k)
    covered = system.value(chosen)
    bound = min(int(covered / (1 - np.exp(-1.0))), int(system.weights.sum()))
    return Coverage(chosen=system.nodes[chosen], covered=covered, bound=max(bound, covered), nodes=0)


def largest_coverage(instance: Instance, k: int, cost: float, *, budget: Budget | None = None) -> Coverage:
    """Return the most factuals that k candidates cover at cost at most `cost`.

    Sound? yes: covered is counted, and the bound is added in whole numbers.   Complete? yes, given time; else covered < bound.
    """
    return best(SetSystem.within(instance, cost), k, budget=budget or Budget())


def best(system: SetSystem, k: int, *, target: int | None = None, budget: Budget) -> Coverage:
    """Return the best k columns of a system. target: stop as soon as so much is covered, or is known to be out of reach."""
    _check(k)
    deadline = clock.now() + budget.seconds
    search = CoverSearch(system.covers, system.weights, greedy(system, k), k, target)
    search.run(deadline, budget.nodes)
    return Coverage(chosen=system.nodes[search.chosen], covered=search.covered, bound=search.bound, nodes=search.nodes)


def _check(k: int) -> None:
    if k < 1:
        raise QueryError(f"k = {k}: at least one counterfactual is needed")


class CoverSearch:
    """The search behind exact coverage: branch and bound, depth first, over columns that are in or out.

    A branch is closed by the Lagrangian bound  sum (w - lambda) + the k largest sums of lambda over a column,  true for any
    multipliers and added up in whole numbers. They come from subgradient steps, a matrix product each, which decide most branches;
    where those stop short, from the duals of the LP, if it is small enough to be solved often.
    Sound? yes: no tolerance, no solver's word.   Complete? yes, given time.
    Reference: Cornuejols, Fisher and Nemhauser, Location of bank accounts to optimize float (1977).

    covers (R, C) bool CSC, weights (R,), a first choice of at most k columns; sought is the best, or one of at least `target`.

    chosen, covered: the best choice so far, and the weight that it covers.   bound: no k columns cover more.
    """

    def __init__(self, covers: sp.csc_array, weights: Integers, first: list[int], k: int, target: int | None) -> None:
        self.covers, self.weights, self.k = covers, weights, k
        self.rows = sp.csr_array(covers, dtype=np.float64)
        self.enough = int(weights.sum()) if target is None else target
        self.needed = 0 if target is None else target
        self.chosen, self.covered = first, int(weights[self._reached(first)].sum())
        self.nodes = 0
        self.open: list[tuple[int, tuple[int, ...], tuple[int, ...], Array]] = []
        self.closed = 0  # the largest bound of branches that were closed

    @property
    def bound(self) -> int:
        return max([self.covered, self.closed, *(bound for bound, *_ in self.open)])

    def run(self, deadline: float, most: int | None) -> None:
        """Search until all branches are closed, the target is met, or time or nodes are up."""
        sizes = np.sort(self.weights @ self.covers)[::-1]
        root = min(int(self.weights.sum()), int(sizes[: self.k].sum()))
        self.open = [(root, (), (), self.weights / 2)]
        while self.open and self.covered < self.enough:
            if clock.now() >= deadline or (most is not None and self.nodes >= most):
                return
            self._branch(*self.open.pop(), deadline)

    def _branch(self, bound: int, inside: tuple[int, ...], outside: tuple[int, ...], multipliers: Array, deadline: float) -> None:
        """Bound one branch, and split it where that does not close it."""
        self.nodes += 1
        if self._hopeless(bound):
            self.closed = max(self.closed, bound)
            return
        covered = self._reached(list(inside))
        sure, left = int(self.weights[covered].sum()), np.flatnonzero(~covered)
        columns = np.setdiff1d(np.arange(self.covers.shape[1]), np.array([*inside, *outside], dtype=np.int64))
        k = self.k - len(inside)
        self._offer(list(inside))
        if k == 0 or not len(left) or not len(columns):
            return
        part, weights = self.rows[left][:, columns], self.weights[left]
        goal = max(self.needed - 1, self.covered) - sure
        best, usual = _descended(part, weights, multipliers[left], k, goal, deadline)
        bound = min(bound, sure + coverage_bound(part, weights, best, k))
        self._offer([*inside, *columns[np.argsort(-usual)[:k]].tolist()])
        if not self._hopeless(bound) and part.nnz <= SMALL:
            found = _relaxed(part, weights, k, deadline)
            if found is not None:
                bound, usual = min(bound, sure + found[0]), found[1]
                self._offer([*inside, *columns[np.argsort(-usual)[:k]].tolist()])
        if self._hopeless(bound):
            self.closed = max(self.closed, bound)
            return
        j = int(columns[np.argmin(np.abs(usual - 0.5))])
        kept = np.zeros(len(self.weights))
        kept[left] = best
        self.open += [(bound, inside, (*outside, j), kept), (bound, (*inside, j), outside, kept)]

    def _hopeless(self, bound: int) -> bool:
        return bound <= self.covered or bound < self.needed

    def _reached(self, chosen: list[int]) -> Booleans:
        """Return (R,) rows that the columns cover."""
        covered = np.zeros(len(self.weights), dtype=bool)
        for j in chosen:
            covered[self.covers.indices[self.covers.indptr[j] : self.covers.indptr[j + 1]]] = True
        return covered

    def _offer(self, chosen: list[int]) -> None:
        value = int(self.weights[self._reached(chosen)].sum())
        if value > self.covered:
            self.chosen, self.covered = chosen, value


def _descended(
    covers: sp.csr_array, weights: Integers, multipliers: Array, k: int, goal: int, deadline: float
) -> tuple[Array, Array]:
    """Return multipliers (R,) with a low bound, by subgradient steps that stop once the bound is at most `goal`; and how often
    each column was among the k best (C,), late steps counting more."""
    most = weights.astype(np.float64)
    current = best = np.clip(multipliers, 0.0, most)
    least, scale, idle = np.inf, 1.0, 0
    often, direction = np.zeros(covers.shape[1]), np.zeros(len(weights))
    back = covers.T.tocsr()
    for _ in range(STEPS):
        clock.spend(8 * back.nnz + 200_000)
        gathered = back @ current
        top = np.argpartition(-gathered, k - 1)[:k] if k < len(gathered) else np.arange(len(gathered))
        value = float((most - current).sum() + gathered[top].sum())
        if value < least - 1e-9:
            least, best, idle = value, current, 0
        else:
            idle += 1
        often *= 0.95
        often[top] += 0.05
        if least < goal + 1 or clock.now() >= deadline:
            break
        if idle >= PATIENCE:
            scale, idle, current, direction = scale / 2, 0, best, np.zeros(len(weights))
            continue
        picked = np.zeros(covers.shape[1])
        picked[top] = 1.0
        slope = covers @ picked - 1.0
        slope[(current <= 0) & (slope > 0)] = 0.0  # cannot go lower
        slope[(current >= most) & (slope < 0)] = 0.0
        direction = DEFLECTED * direction + (1 - DEFLECTED) * slope
        size = float(direction @ direction)
        if size == 0.0:
            break
        current = np.clip(current - scale * (value - goal) / size * direction, 0.0, most)
    return best, often


def _relaxed(covers: sp.csr_array, weights: Integers, k: int, deadline: float) -> tuple[int, Array] | None:
    """Return a proved bound on what k columns cover, from the LP's duals, and the LP's point (C,); None when it was not solved."""
    left = deadline - clock.now()
    if left <= 0:
        return None
    program = max_coverage(covers.astype(bool), weights, k=k)
    outcome = solve(program.program, backend="highs", budget=Budget(seconds=left), relax_integrality=True)
    if outcome.limit is Limit.INTERRUPTED:  # the solver heard a Ctrl-C that was meant for all of us
        raise KeyboardInterrupt
    if outcome.values is None or outcome.duals is None:
        return None
    return program.bound(outcome.duals), outcome.values[: covers.shape[1]]
