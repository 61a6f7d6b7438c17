"""Cost-constrained FGCE: k counterfactuals that cover the most factuals at cost at most d. Greedy, and the exact optimum.

Greedy reaches at least (1 - 1/e) of the optimum. Gains only shrink, so a candidate is evaluated again only while its last known
gain is the largest (lazy evaluation). The optimum is found by the branch and bound of `search`.
Reference: FGCE, problem 1 and algorithm 1; Minoux (1978) for the lazy evaluation.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from encoders.arrays import Array, Booleans, Integers
from solvers import clock
from solvers.outcome import Budget
from verifair.checker.certificates.centers import up_to
from verifair.errors import QueryError
from verifair.systems.fgce.instance import Instance
from verifair.systems.fgce.optimum.search import CoverSearch, distinct, undominated


@dataclass(frozen=True, kw_only=True, eq=False)
class Coverage:
    """chosen: nodes, at most k.   covered: number of factuals that they cover.   bound: no k candidates cover more.   nodes:
    branches."""

    chosen: Integers
    covered: int
    bound: int
    nodes: int

    @property
    def optimal(self) -> bool:
        return self.covered == self.bound


@dataclass(frozen=True, kw_only=True, eq=False)
class SetSystem:
    """A set system.   covers: (R, C) bool, CSC, True if a candidate covers a row; equal rows are merged.   weights: (R,) factuals
    in each row.

    nodes: (C,) the candidate of each column.   same: (F,) the row of each factual, block by block; -1 where no candidate covers it.
    """

    covers: sp.csc_array
    weights: Integers
    nodes: Integers
    same: Integers

    @classmethod
    def of(cls, blocks: Sequence[Booleans], nodes: Sequence[Integers]) -> SetSystem:
        """Return the system of blocks (f, c) and their candidates (c,), without contained columns and without rows that no
        candidate covers."""
        ends, rows, weights, kept, sames = [np.zeros(1, dtype=np.int64)], [], [], [], []
        count = filled = 0
        for covers, names in zip(blocks, nodes, strict=True):
            kinds, same = distinct(covers)
            covered = covers[kinds].any(axis=1)
            table = covers[kinds[covered]]
            columns = undominated(table)
            column, row = np.nonzero(table[:, columns].T)  # column by column, as CSC has them
            ends.append(filled + np.cumsum(np.bincount(column, minlength=len(columns))))
            rows.append(count + row)
            weights.append(np.bincount(same)[covered])
            kept.append(names[columns])
            sames.append(np.where(covered, count + np.cumsum(covered) - 1, -1)[same])
            count, filled = count + len(table), filled + len(row)
        index = np.concatenate(rows)
        entries = np.ones(len(index), dtype=bool), index, np.concatenate(ends)
        covers_all = sp.csc_array(entries, shape=(count, sum(len(names) for names in kept)))
        return cls(
            covers=covers_all, weights=np.concatenate(weights), nodes=np.concatenate(kept), same=np.concatenate(sames)
        )

    @classmethod
    def within(cls, instance: Instance, cost: float) -> SetSystem:
        """Return the system of an instance's feasible pairs with a cost of at most `cost`, within NEAR."""
        near = [within(block.cost, up_to(cost)) for block in instance.blocks]
        return cls.of(near, [block.candidates for block in instance.blocks])

    def column(self, j: int) -> Integers:
        return np.asarray(self.covers.indices[self.covers.indptr[j] : self.covers.indptr[j + 1]])

    def gain(self, j: int, covered: Booleans) -> int:
        rows = self.column(j)
        return int(self.weights[rows[~covered[rows]]].sum())

    def value(self, chosen: Sequence[int]) -> int:
        """Return the number of factuals that the columns cover together."""
        covered = np.zeros(len(self.weights), dtype=bool)
        for j in chosen:
            covered[self.column(j)] = True
        return int(self.weights[covered].sum())


def within(costs: Array, cost: float) -> Booleans:
    """Return True where a cost is feasible (finite) and at most `cost`, which may be infinite.

    Exact, for searches that go from one cost to the next; a user's limit is passed as `up_to(limit)`.
    """
    return np.asarray(np.isfinite(costs) & (costs <= cost))


def greedy(system: SetSystem, k: int) -> list[int]:
    """Return columns in the order in which they are chosen; fewer than k if nothing is left to gain.

    Guarantee: at least (1 - 1/e) of the optimum (Nemhauser, Wolsey and Fisher, 1978).
    """
    covered = np.zeros(len(system.weights), dtype=bool)
    heap = [(-system.gain(j, covered), j, 0) for j in range(len(system.nodes))]
    heapq.heapify(heap)
    chosen: list[int] = []
    while heap and len(chosen) < k:
        gain, j, computed_at = heapq.heappop(heap)
        if computed_at < len(chosen):  # a gain of an earlier round, now an upper bound
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
    """Return the best k columns of a system. target: stop as soon as this weight is covered, or known to be out of reach."""
    _check(k)
    deadline = clock.now() + budget.seconds
    search = CoverSearch(system.covers, system.weights, greedy(system, k), k, target)
    search.run(deadline, budget.nodes)
    return Coverage(chosen=system.nodes[search.chosen], covered=search.covered, bound=search.bound, nodes=search.nodes)


def _check(k: int) -> None:
    if k < 1:
        raise QueryError(f"k = {k}: at least one counterfactual is needed")
