"""k-center for a part of the factuals: the least cost at which k candidates cover `count` of them.

The cost is enclosed by questions "can k candidates cover `count` factuals at this cost?", each a maximum coverage (`search`) that
stops once it is answered or has used its share of branches. The first round uses one branch each: bounds and choices improved by
exchange answer most questions and leave a narrow gap. Later rounds use more branches, and ask first about the next cost below the
best choice, whose answer may end the search. Multipliers are passed from question to question, by factual. So are the candidates
that cannot be in any choice that covers `count` at this cost: they cannot be in one at a lower cost either.
Sound? yes: the upper bound is counted, the lower proved in whole numbers.   Complete? yes, given time.
"""

from __future__ import annotations

import numpy as np

from encoders.arrays import Booleans, Integers
from encoders.programs.max_coverage import UNIT
from solvers import clock
from verifair.systems.fgce.instance import Instance
from verifair.systems.fgce.optimum.cover import SetSystem, greedy, within
from verifair.systems.fgce.optimum.search import CoverSearch

ROUNDS = (1, 40, 400, 4000)
"""Branches that a question gets in each round; then as many as it takes."""
MIN_GAP = 1e-3
"""Share of the cost below which a gap is not halved any more in a round."""
MAX_HALVINGS = 3
"""Costs that a round asks about below the one next to the best choice; the first round: as many as it takes."""
CHUNK = 4096
"""Columns whose sums are added up at once."""


class PartialSearch:
    """Encloses the cost at which k candidates cover `count` factuals of an instance.

    lower: no k candidates reach it at a lower cost.   upper, chosen: the best choice found.   steps: questions asked.
    """

    def __init__(self, instance: Instance, k: int, count: int) -> None:
        self.instance, self.k, self.count = instance, k, count
        self.lower, self.upper = float(np.partition(instance.nearest, count - 1)[count - 1]), np.inf
        self.chosen: Integers = np.empty(0, dtype=np.int64)
        self.steps = 0
        self.rates = np.full(instance.size, 0.5)
        self.useful: list[tuple[float, list[Integers]]] = [(np.inf, [np.arange(len(b.candidates)) for b in instance.blocks])]

    def run(self, deadline: float) -> int:
        """Search until the enclosure is a point or time is up; return an upper bound on the number that k candidates cover at any
        cost."""
        max_covered = self._reachable(deadline)
        if max_covered < self.count:
            return max_covered
        for branches in (*ROUNDS, None):
            self._round(branches, deadline)
            if self._is_done(deadline):
                break
        return max_covered

    def _reachable(self, deadline: float) -> int:
        """Return a bound on what k candidates cover at any cost; at least `count` if they cover that many, or time was up."""
        system = SetSystem.within(self.instance, np.inf)
        search = CoverSearch(system.covers, system.weights, greedy(system, self.k), self.k, self.count)
        search.run(deadline, None)
        if search.covered >= self.count:
            self._improve(system.nodes[search.chosen])
        return search.bound

    def _is_done(self, deadline: float) -> bool:
        return self.lower >= self.upper or clock.now() >= deadline

    def _round(self, branches: int | None, deadline: float) -> None:
        """Ask with this number of branches: first the cost next below the best choice, then costs halfway between known and open
        ones."""
        is_first = branches == ROUNDS[0]
        if not is_first:
            while not self._is_done(deadline) and self._ask(self._next_lower(self.upper), branches, deadline) is True:
                pass
        low, high = self.upper, self.lower  # the least and the largest open cost
        halved = 0
        while not self._is_done(deadline) and (is_first or halved < MAX_HALVINGS):
            halved += 1
            cost = self._median_between(self.lower, min(low, self.upper))
            if cost is None and is_first:
                cost = self._median_between(max(float(np.nextafter(high, np.inf)), self.lower), self.upper)
            if cost is None:
                return
            if self._ask(cost, branches, deadline) is None:
                low, high = min(low, cost), max(high, cost)

    def _ask(self, cost: float, branches: int | None, deadline: float) -> bool | None:
        """Return True if k candidates cover `count` at this cost, None if it stays open; update the bounds."""
        self.steps += 1
        columns = next(useful for limit, useful in reversed(self.useful) if limit >= cost)
        blocks = self.instance.blocks
        near = [within(block.cost if len(index) == len(block.candidates) else block.cost[:, index], cost)
                for block, index in zip(blocks, columns, strict=True)]
        system = SetSystem.of(near, [block.candidates[index] for block, index in zip(blocks, columns, strict=True)])
        if int(system.weights.sum()) < self.count:
            self.lower = max(self.lower, self._next_higher(cost))
            return False
        in_system = system.same >= 0
        multipliers = np.zeros(len(system.weights))
        np.add.at(multipliers, system.same[in_system], self.rates[in_system])
        search = CoverSearch(system.covers, system.weights, greedy(system, self.k), self.k, self.count, multipliers)
        search.run(deadline, branches)
        if search.root is not None:
            self.rates[in_system] = np.ldexp(search.priced / system.weights, -UNIT)[system.same[in_system]]
            self._keep_useful(cost, near, columns, system, search)
        if search.covered >= self.count:
            self._improve(system.nodes[search.chosen])
            return True
        if search.bound < self.count:
            self.lower = max(self.lower, self._next_higher(cost))
            return False
        return None

    def _keep_useful(
        self, cost: float, near: list[Booleans], columns: list[Integers], system: SetSystem, search: CoverSearch
    ) -> None:
        """Keep the candidates that can be in a choice that covers `count` at this cost or a lower one.

        Candidates that the system left out, as contained in others, are bounded like the others: the rest of a choice can use the
        system's own.
        """
        root = search.root
        if root is None or root.bound < self.count:
            return
        first = np.zeros(self.instance.size, dtype=bool)  # one factual for each row of the system
        rows, position = np.unique(system.same, return_index=True)
        first[position[rows >= 0]] = True
        start, kept = 0, []
        for table, column in zip(near, columns, strict=True):
            index = np.flatnonzero(first[start : start + len(table)])
            units = search.priced[system.same[start + index]].astype(np.float64)  # whole numbers with sums below 2^53: exact
            parts = [units @ table[index][:, part] for part in np.array_split(np.arange(len(column)), len(column) // CHUNK + 1)]
            kept.append(column[root.forced(np.concatenate(parts).astype(np.int64)) >= self.count])
            start += len(table)
        if cost < self.upper:
            earlier = [(limit, old) for limit, old in self.useful if limit != cost]
            self.useful = sorted([*earlier, (cost, kept)], key=lambda entry: -entry[0])

    def _improve(self, chosen: Integers) -> None:
        costs = self.instance.to(chosen).min(axis=1)
        cost = float(np.partition(costs, self.count - 1)[self.count - 1])
        if cost < self.upper:
            self.upper, self.chosen = cost, chosen

    def _median_between(self, lower: float, upper: float) -> float | None:
        """Return the median of the costs from lower to below upper; None if there is none, or the gap is narrow."""
        if not lower < upper * (1 - MIN_GAP):
            return None
        values = np.concatenate([block.cost[(block.cost >= lower) & (block.cost < upper)] for block in self.instance.blocks])
        return float(np.partition(values, len(values) // 2)[len(values) // 2]) if len(values) else None

    def _next_lower(self, cost: float) -> float:
        """Return the next lower cost of the instance, at least `lower`."""
        below = max(float(block.cost.max(initial=-np.inf, where=block.cost < cost)) for block in self.instance.blocks)
        return max(below, self.lower)

    def _next_higher(self, cost: float) -> float:
        """Return the next higher cost of the instance."""
        return min(float(block.cost.min(initial=np.inf, where=block.cost > cost)) for block in self.instance.blocks)
