"""Coverage-constrained FGCE (k-center): at most k counterfactuals that cover c |X| factuals at the least largest cost.

For full coverage only a few factuals matter, those that are hard to cover. The optimum over these few is a lower bound. Its centers
are tried on all factuals, and those farther than the bound join the few, until there are none. Each step asks whether k candidates
can cover the few at some cost: a set cover, decided by `cover.best` without tolerances. Partial coverage: `partial`.
Sound? yes: the upper bound is counted, the lower bound proved in whole numbers.   Complete? yes, given time.
References: FGCE, problem 2 and section III-B; Contardo, Iori and Kramer, A scalable exact algorithm for the vertex p-center (2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from encoders.arrays import Array, Integers
from encoders.programs.k_center import k_center
from solvers import clock
from solvers.outcome import Budget, Outcome, Termination
from solvers.registry import solve
from verifair.checker.certificates.centers import NEAR, up_to
from verifair.errors import QueryError
from verifair.systems.fgce.instance import CostBlock, Instance
from verifair.systems.fgce.optimum.cover import SetSystem, best, greedy, within
from verifair.systems.fgce.optimum.partial import PartialSearch

MAX_ADDED = 8
"""Factuals that join the few at once."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Centers:
    """chosen: nodes.   cost: the largest cost of those they cover (d).   lower: no k candidates do with less.

    proved: False if `lower` is a solver's claim.   steps: set covers decided.   few: number of factuals that mattered.
    """

    chosen: Integers
    cost: float
    lower: float
    proved: bool
    steps: int
    few: Integers = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    outcome: Outcome | None = None

    @property
    def optimal(self) -> bool:
        return self.cost == self.lower


class TooFew(QueryError):
    """k counterfactuals cannot cover this many factuals at any cost."""


class Unfinished(Exception):
    """The budget ended in the middle of a set cover."""


def needed(instance: Instance, coverage: float) -> int:
    """Return c |X| as a count, rounded up. Raises QueryError for a share outside (0, 1]."""
    if not 0 < coverage <= 1:
        raise QueryError(f"coverage = {coverage:g}: expected a share of the factuals, above 0 and at most 1")
    return max(int(np.ceil(coverage * instance.size - NEAR)), 1)


def fewest(instance: Instance, cost: float = np.inf, *, budget: Budget | None = None) -> tuple[int, Integers]:
    """Return k0: the least number of counterfactuals that cover everybody at cost at most `cost`, within NEAR, and one such choice.

    Raises Unfinished, and QueryError when somebody cannot be covered at that cost.
    """
    few = _ActiveFactuals(instance, budget or Budget())
    limit = up_to(cost)
    if not limit >= few.lowest:
        raise QueryError(f"cost = {cost:g}: somebody has no counterfactual so near; {few.lowest:.6g} is the least that covers all")
    k = len(instance.blocks)
    while True:
        chosen = few.covered(k, limit)
        if chosen is None:
            k += 1
            continue
        farther = few.farther(chosen, limit)
        if not len(farther):
            return k, chosen
        few.add(farther)


def centers(instance: Instance, k: int, coverage: float = 1.0, *, budget: Budget | None = None) -> Centers:
    """Return the optimum for all components at once, or when time is up the best known choice, with the gap.

    Raises TooFew for a coverage that k counterfactuals cannot reach (it names a k that would), QueryError for a k below 1.
    """
    budget = budget or Budget()
    if k < 1:
        raise QueryError(f"k = {k}: at least one counterfactual is needed")
    count = needed(instance, coverage)
    return _full_coverage(instance, k, budget) if count == instance.size else _partial_coverage(instance, k, count, budget)


class _ActiveFactuals:
    """The factuals that matter so far, with their costs; rows of each block, so that blocks stay apart."""

    def __init__(self, instance: Instance, budget: Budget) -> None:
        self.instance, self.deadline = instance, clock.now() + budget.seconds
        self.nearest = [block.cost.min(axis=1) for block in instance.blocks]
        self.lowest = max(float(costs.max()) for costs in self.nearest)
        self.rows: list[list[int]] = [[int(costs.argmax())] for costs in self.nearest]
        self.steps = 0

    @property
    def nodes(self) -> Integers:
        return np.concatenate([block.factuals[rows] for block, rows in zip(self.instance.blocks, self.rows, strict=True)])

    def costs(self) -> Array:
        """Return the different costs of the few, from the least possible optimum on."""
        parts = [block.cost[rows].ravel() for block, rows in zip(self.instance.blocks, self.rows, strict=True)]
        values = np.unique(np.concatenate(parts))
        return np.asarray(values[(values >= self.lowest) & np.isfinite(values)])

    def covered(self, k: int, cost: float) -> Integers | None:
        """Return k candidates that cover the few at this cost, or None when there are none. Raises Unfinished."""
        self.steps += 1
        seconds = self.deadline - clock.now()
        if seconds <= 0:
            raise Unfinished
        tables = [within(block.cost[rows], cost) for block, rows in zip(self.instance.blocks, self.rows, strict=True)]
        system = SetSystem.of(tables, [block.candidates for block in self.instance.blocks])
        total = sum(map(len, self.rows))
        if int(system.weights.sum()) < total:
            return None
        cover = best(system, k, target=total, budget=Budget(seconds=seconds))
        if cover.covered < total <= cover.bound:
            raise Unfinished
        return cover.chosen if cover.covered == total else None

    def farther(self, chosen: Integers, cost: float) -> Integers:
        """Return (n, 2) block and row of factuals farther than `cost` from all chosen: the farthest of each block and center."""
        candidates: list[tuple[float, int, int]] = []
        cost_to = self.instance.to(chosen)
        start = 0
        for b, block in enumerate(self.instance.blocks):
            block_costs = cost_to[start : start + len(block.factuals)]
            start += len(block.factuals)
            nearest, value = block_costs.argmin(axis=1), block_costs.min(axis=1)
            uncovered = ~within(value, cost)
            for center in np.unique(nearest[uncovered]):
                rows = np.flatnonzero(uncovered & (nearest == center))
                n_candidates = np.isfinite(block.cost[rows]).sum(axis=1)  # among unreachable ones, that with the fewest candidates
                row = rows[value[rows].argmax() if np.isfinite(value[rows]).all() else n_candidates.argmin()]
                candidates.append((-float(value[row]), b, int(row)))
        return np.array([(b, row) for _, b, row in sorted(candidates)[:MAX_ADDED]], dtype=np.int64).reshape(-1, 2)

    def add(self, farther: Integers) -> None:
        for b, row in farther:
            self.rows[int(b)].append(int(row))


def _full_coverage(instance: Instance, k: int, budget: Budget) -> Centers:
    """Solve for full coverage."""
    few = _ActiveFactuals(instance, budget)
    lower, upper, chosen = few.lowest, np.inf, np.empty(0, dtype=np.int64)
    try:
        while lower < upper:
            cover = few.covered(k, lower)
            if cover is None:
                lower = _next_cost(few, k, lower)
                continue
            largest = float(instance.to(cover).min(axis=1).max())
            if largest < upper:
                upper, chosen = largest, cover
            few.add(few.farther(cover, lower))
    except Unfinished:
        if not len(chosen):
            chosen, upper = _any_choice(instance, k)
    cost = max(upper, lower) if len(chosen) else np.inf
    return Centers(chosen=chosen, cost=cost, lower=lower, proved=True, steps=few.steps, few=few.nodes)


def _next_cost(few: _ActiveFactuals, k: int, cost: float) -> float:
    """Return the least cost of the few, above `cost`, at which k candidates cover them."""
    if few.covered(k, np.inf) is None:
        raise _too_few(few.instance, k, few.deadline)
    values = few.costs()
    low, high = int(np.searchsorted(values, cost, side="right")), len(values) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if few.covered(k, float(values[middle])) is None else (low, middle)
    return float(values[low])


def _too_few(instance: Instance, k: int, deadline: float) -> TooFew:
    """Return the error that k candidates cannot cover everybody at any cost; it names a k that would."""
    parts = len(instance.blocks)
    text = f"k = {k} is too few to cover all {instance.size:,} people who can be helped"
    text += f": they are in {parts} parts of the table with no allowed moves between them" if parts > 1 else ""
    try:
        least, _ = fewest(instance, budget=Budget(seconds=max(deadline - clock.now(), 1.0)))
        return TooFew(f"{text}; {least} counterfactuals are needed: pass k = {least}, or a coverage below 1")
    except Unfinished:
        return TooFew(f"{text}; pass a larger k, or a coverage below 1")


def _any_choice(instance: Instance, k: int) -> tuple[Integers, float]:
    """Return greedy's choice, for when time was up before any other was found."""
    system = SetSystem.within(instance, np.inf)
    chosen = system.nodes[greedy(system, k)]
    return chosen, float(instance.to(chosen).min(axis=1).max())


def _partial_coverage(instance: Instance, k: int, count: int, budget: Budget) -> Centers:
    """Solve for partial coverage."""
    search = PartialSearch(instance, k, count)
    reachable = search.run(clock.now() + budget.seconds)
    if reachable < count:
        raise TooFew(
            f"k = {k} is too few: {k} counterfactuals cover at most {reachable} of the {instance.size} factuals, {count} are asked "
            "for; raise k, or lower the coverage"
        )
    lower = min(search.lower, search.upper)
    return Centers(chosen=search.chosen, cost=search.upper, lower=lower, proved=True, steps=search.steps)


# The paper's other ways: each component on its own, and a solver


Answers = dict[tuple[int, int], Centers]
"""(k', n') -> a component's optimum."""


def by_components(instance: Instance, k: int, coverage: float = 1.0, *, budget: Budget | None = None) -> Centers:
    """Return the optimum from each component's own, combined by dynamic programming: FGCE's local version. Finds the same cost.

    Corrects the paper twice: a cost is a maximum, so the recursion is

        F(1..i, k, n) = min over k', n' of  max(F(1..i-1, k - k', n - n'), F(i, k', n')),

    not a sum; and with full coverage one of m components can get up to k - m + 1 counterfactuals, not k - m.
    Sound? Complete? as `centers`, which solves each component.   Reference: FGCE, section III-B.
    Raises QueryError as `centers` does, and Unfinished: a component that is not solved to its optimum proves nothing here.
    """
    count, full = needed(instance, coverage), coverage == 1
    deadline = clock.now() + (budget or Budget()).seconds
    max_k = max(k - len(instance.blocks) + 1, 0) if full else k
    answers = [_answers(block, max_k, full, deadline) for block in instance.blocks]
    tables = [_table(block, max_k, component_answers) for block, component_answers in zip(instance.blocks, answers, strict=True)]
    total = np.full((k + 1, count + 1), np.inf)
    total[:, 0] = 0.0
    choices: list[Integers] = []
    for table in tables:
        total, choice = _combined(total, table, k, count)
        choices.append(choice)
    if np.isinf(total[k, count]):
        centers(instance, k, coverage, budget=budget)  # raises the error that says what is wrong, or runs out of time
        raise Unfinished
    chosen = _traced(answers, tables, choices, k, count)
    return Centers(chosen=chosen, cost=float(total[k, count]), lower=float(total[k, count]), proved=True, steps=len(tables))


def _single_block(block: CostBlock) -> Instance:
    return Instance(blocks=(block,), hopeless=np.empty(0, dtype=np.int64), candidates=block.candidates)


def _answers(block: CostBlock, max_k: int, full: bool, deadline: float) -> Answers:
    """Return (k', n') -> the optimum for n' factuals of one component with k' candidates, if there is one. Raises Unfinished."""
    instance, f = _single_block(block), len(block.factuals)
    answers: Answers = {}
    for k in range(1, max_k + 1):
        for n in [f] if full else range(1, f + 1):
            seconds = deadline - clock.now()
            if seconds <= 0:
                raise Unfinished
            try:
                optimum = centers(instance, k, n / f, budget=Budget(seconds=seconds))
            except QueryError:
                break  # a larger number cannot be covered either
            if not optimum.optimal:
                raise Unfinished
            answers[k, n] = optimum
    return answers


def _table(block: CostBlock, max_k: int, answers: Answers) -> Array:
    """Return (most + 1, f + 1) F(i, k', n'): the least cost of covering n' factuals of one component with k' candidates."""
    table = np.full((max_k + 1, len(block.factuals) + 1), np.inf)
    table[:, 0] = 0.0
    for key, optimum in answers.items():
        table[key] = optimum.cost
    return table


def _combined(total: Array, table: Array, k: int, count: int) -> tuple[Array, Integers]:
    """Return F(1..i, ., .) from F(1..i-1, ., .) and F(i, ., .), and the (k', n') taken, as k' (f + 1) + n'."""
    result = np.full_like(total, np.inf)
    choice: Integers = np.zeros(total.shape, dtype=np.int64)
    for a in range(min(k, len(table) - 1) + 1):
        for b in range(min(count, table.shape[1] - 1) + 1):
            if np.isinf(table[a, b]):
                continue
            value = np.maximum(total[: k + 1 - a, : count + 1 - b], table[a, b])
            region = (slice(a, None), slice(b, None))
            better = value < result[region]
            result[region] = np.where(better, value, result[region])
            choice[region] = np.where(better, a * table.shape[1] + b, choice[region])
    return result, choice


def _traced(answers: Sequence[Answers], tables: Sequence[Array], choices: Sequence[Integers], k: int, n: int) -> Integers:
    """Return the candidates behind the combined optimum."""
    chosen: list[Integers] = []
    for component_answers, table, choice in reversed(list(zip(answers, tables, choices, strict=True))):
        a, b = divmod(int(choice[k, n]), table.shape[1])
        if b:
            chosen.append(component_answers[a, b].chosen)
        k, n = k - a, n - b
    return np.concatenate(chosen)


def by_solver(
    instance: Instance, k: int, coverage: float = 1.0, *, backend: str = "highs", budget: Budget | None = None
) -> Centers:
    """Solve the paper's MIP (eq. 1-6) on a backend, to compare with.

    The answer is one of the costs; its optimality is the solver's claim.
    Raises TooFew where the solver claims that there is no solution, QueryError where it found none in time.
    """
    program = k_center(instance.costs(), k=k, coverage=needed(instance, coverage), ranked=True)
    outcome = solve(program.program, backend=backend, budget=budget or Budget())
    solution = None if outcome.values is None else program.decode(outcome.values)
    if solution is None:
        problem = f"{outcome.termination.value} without a solution for k = {k}, coverage {coverage:g}"
        error = TooFew if outcome.termination is Termination.INFEASIBLE else QueryError
        raise error(f"{backend}: {problem}; method exact says which k would do. {outcome.message}".strip())
    lower = solution.cost if outcome.termination is Termination.OPTIMAL else program.lower_bound(outcome.dual_bound)
    chosen = instance.columns[solution.chosen]
    return Centers(chosen=chosen, cost=solution.cost, lower=min(lower, solution.cost), proved=False, steps=1, outcome=outcome)
