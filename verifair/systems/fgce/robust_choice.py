"""The best counterfactuals among those that are proved robust, with few robustness queries.

    all candidates  ->  optimum  ->  are its counterfactuals robust?  ->  drop those that are not  ->  optimum of the rest  ->  ...

As long as only refuted candidates are dropped, all robust ones remain, so each round's bound holds for the answer. If a candidate
is dropped because it was not decided, the choice found is only an upper bound, and the lower bound comes from all candidates that
were not refuted. Each round doubles the number of further candidates that are asked about, so there are few rounds.
Sound? yes: all chosen ones are proved, and the bound holds for every robust choice.   Complete? yes, if `prove` is, given time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from encoders.arrays import Integers
from solvers import clock
from solvers.outcome import Budget
from verifair.checker.certificates.centers import up_to
from verifair.engine.verdict import Status
from verifair.errors import QueryError
from verifair.systems.fgce.instance import CostBlock, Instance
from verifair.systems.fgce.optimum.center import Centers, Unfinished, needed
from verifair.systems.fgce.optimum.cover import Coverage, within

FIRST_SHARE, LATER_SHARE = 0.3, 0.8
"""Share of the time left that an optimum may take: the first one, and those after. Deciding its counterfactuals takes far less."""
AHEAD_NODES = 64
"""Boxes for a candidate that is asked about ahead: what is hard waits until it is chosen."""

EMPTY_CHOICE = Coverage(chosen=np.empty(0, dtype=np.int64), covered=0, bound=0, nodes=0)
"""The empty choice, which covers nobody."""


class Solve(Protocol):
    """The optimum over an instance's candidates: of the least cost for a share of its factuals, or of the largest coverage."""

    def __call__(self, instance: Instance, coverage: float, budget: Budget) -> Centers | Coverage: ...


Prove = Callable[[Integers, Budget], Sequence[Status]]
"""Decides whether nodes (n,) are robust; PROVED has to be a proof."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RobustChoice:
    """found: the answer, all proved robust; its bound holds for every choice of robust candidates.

    asked: node -> status, for all candidates that were asked about.   undecided: number dropped without being refuted.
    rounds: optima computed.
    The bound of `found` comes from rounds before an undecided candidate was dropped; `optimal` means that it is met.
    """

    found: Centers | Coverage
    asked: dict[int, Status]
    undecided: int
    rounds: int

    def count(self, status: Status) -> int:
        return sum(answer is status for answer in self.asked.values())


def robust_choice(
    instance: Instance,
    solve: Solve,
    prove: Prove,
    *,
    coverage: float = 1.0,
    max_cost: float | None = None,
    budget: Budget | None = None,
) -> RobustChoice:
    """Return the optimum among candidates that `prove` proves.

    coverage: a share of *all* factuals of the instance, including those that turn out to have no robust counterfactual, so that
    the cost never falls as candidates are dropped.   max_cost: as `solve` has it, where it maximises coverage.
    Raises QueryError when too few factuals have a robust counterfactual (it says how many do), or too few are proved in time.
    """
    budget = budget or Budget()
    search = _RobustSearch(instance, solve, prove, 0 if max_cost is not None else needed(instance, coverage), max_cost, budget)
    return search.run()


def without(instance: Instance, nodes: Sequence[int]) -> Instance:
    """Return the instance without these candidates; factuals that are left without a candidate become hopeless."""
    blocks, hopeless, removed = [], [instance.hopeless], np.array(sorted(nodes), dtype=np.int64)
    for block in instance.blocks:
        keep = ~np.isin(block.candidates, removed)
        if keep.all():
            blocks.append(block)
            continue
        cost = block.cost[:, keep]
        served = np.isfinite(cost).any(axis=1)
        hopeless.append(block.factuals[~served])
        if served.any():
            rows = block.factuals[served]
            blocks.append(CostBlock(component=block.component, factuals=rows, candidates=block.candidates[keep], cost=cost[served]))
    candidates = instance.candidates[~np.isin(instance.candidates, removed)]
    return Instance(blocks=tuple(blocks), hopeless=np.concatenate(hopeless), candidates=candidates)


class _RobustSearch:
    """The search: statuses of the candidates, the best answer and the tightest bound so far."""

    def __init__(
        self, instance: Instance, solve: Solve, prove: Prove, count: int, max_cost: float | None, budget: Budget
    ) -> None:
        self.instance, self.solve, self.prove, self.count, self.max_cost = instance, solve, prove, count, max_cost
        self.budget, self.deadline = budget, clock.now() + budget.seconds
        self.asked: dict[int, Status] = {}
        self.undecided: set[int] = set()  # dropped although not refuted
        self.rounds, self.n_ahead, self.timed_out = 0, 0, False
        self.bound: float | None = None
        self.best: Centers | Coverage | None = None

    def run(self) -> RobustChoice:
        reduced = self.instance
        while self._seconds_left() > 0:
            optimum = self._optimum(reduced)
            self._ask(optimum.chosen)
            proved = np.array([node for node in optimum.chosen if self.asked.get(int(node)) is Status.PROVED], dtype=np.int64)
            if len(proved) == len(optimum.chosen) or self._serves(optimum, proved):
                self._keep_best(replace(optimum, chosen=proved))
                if not self.timed_out or self.rounds > 1:
                    break
            self._ask_ahead(reduced, optimum)
            reduced = without(reduced, [*self._with_status(Status.VIOLATED), *self.undecided])
        if self.best is None:
            self.undecided |= {int(node) for node in self.instance.columns if self.asked.get(int(node)) is not Status.PROVED}
            self.best = self._optimum(without(self.instance, sorted(self.undecided)), out_of_time=True)
        return self._answer(self.best)

    def _keep_best(self, optimum: Centers | Coverage) -> None:
        """Keep an answer, all proved, unless an earlier round's is better."""
        if isinstance(optimum, Centers):
            better = not isinstance(self.best, Centers) or optimum.cost < self.best.cost
        else:
            better = not isinstance(self.best, Coverage) or optimum.covered > self.best.covered
        if better:
            self.best = optimum

    def _seconds_left(self) -> float:
        return self.deadline - clock.now()

    def _with_status(self, status: Status) -> list[int]:
        return [node for node, answer in self.asked.items() if answer is status]

    def _optimum(self, reduced: Instance, *, out_of_time: bool = False) -> Centers | Coverage:
        """Return the optimum of a round; its bound counts if no undecided candidate was dropped."""
        if reduced.size < self.count:
            raise self._too_few(reduced, out_of_time)
        self.rounds += 1
        started, seconds = clock.now(), max((FIRST_SHARE if self.rounds == 1 else LATER_SHARE) * self._seconds_left(), 1.0)
        try:
            optimum = self._solved(reduced, seconds) if reduced.blocks else EMPTY_CHOICE
        except QueryError as error:
            note = f" ({len(self.undecided)} undecided ones left out)" if self.undecided else ""
            raise QueryError(f"with robust counterfactuals only{note}: {error}") from error
        self.timed_out = clock.now() - started > 0.9 * seconds
        if not self.undecided:
            self._tighten(optimum)
        return optimum

    def _solved(self, reduced: Instance, seconds: float) -> Centers | Coverage:
        return self.solve(reduced, self.count / reduced.size if self.count else 1.0, replace(self.budget, seconds=seconds))

    def _tighten(self, optimum: Centers | Coverage) -> None:
        if isinstance(optimum, Centers):
            self.bound = optimum.lower if self.bound is None else max(self.bound, optimum.lower)
        else:
            self.bound = optimum.bound if self.bound is None else min(self.bound, optimum.bound)

    def _ask(self, chosen: Integers) -> None:
        """Ask about the chosen candidates with the full budget; those that are not decided are dropped."""
        new = [int(node) for node in chosen if self.asked.get(int(node), Status.UNKNOWN) is Status.UNKNOWN]
        if new:
            proved = self.prove(np.array(new, dtype=np.int64), replace(self.budget, seconds=max(self._seconds_left() / 2, 1e-3)))
            self.asked |= dict(zip(new, proved, strict=True))
            self.undecided |= {node for node in new if self.asked[node] is Status.UNKNOWN}

    def _ask_ahead(self, reduced: Instance, optimum: Centers | Coverage) -> None:
        """Ask, with a small budget, about likely next candidates: those that serve most at this cost, twice as many as last time.

        All of them if an optimum takes all of its time, since there will be few rounds.
        """
        self.n_ahead = max(2 * self.n_ahead, len(optimum.chosen))
        self._ask_likely(reduced, self._limit(optimum), len(reduced.columns) if self.timed_out else self.n_ahead)

    def _ask_likely(self, reduced: Instance, limit: float, max_count: int) -> None:
        serves = np.concatenate([within(block.cost, limit).sum(axis=0) for block in reduced.blocks])
        unasked = ~np.isin(reduced.columns, np.array(list(self.asked), dtype=np.int64))
        candidates = reduced.columns[unasked][np.argsort(-serves[unasked], kind="stable")][:max_count]
        if len(candidates):
            nodes = min(AHEAD_NODES, self.budget.nodes or AHEAD_NODES)
            proved = self.prove(candidates, replace(self.budget, seconds=max(self._seconds_left() / 2, 1e-3), nodes=nodes))
            self.asked |= dict(zip(candidates.tolist(), proved, strict=True))

    def _serves(self, optimum: Centers | Coverage, proved: Integers) -> bool:
        """Return True if the proved ones among the chosen do as well as all of them."""
        target = self.count if isinstance(optimum, Centers) else optimum.covered
        cost = self.instance.to(proved).min(axis=1, initial=np.inf)
        return int(within(cost, self._limit(optimum)).sum()) >= target

    def _limit(self, optimum: Centers | Coverage) -> float:
        """Return the largest cost that a factual may have."""
        return optimum.cost if isinstance(optimum, Centers) else np.inf if self.max_cost is None else up_to(self.max_cost)

    def _answer(self, optimum: Centers | Coverage) -> RobustChoice:
        if self.undecided and self._seconds_left() > 0:
            with suppress(QueryError, Unfinished):  # nothing found in time: the bound is unchanged
                self._tighten(self._solved(without(self.instance, self._with_status(Status.VIOLATED)), self._seconds_left()))
        bound = self.bound
        if isinstance(optimum, Centers):
            optimum = replace(optimum, lower=min(-np.inf if bound is None else bound, optimum.cost))
        else:
            optimum = replace(optimum, bound=max(self.instance.size if bound is None else int(bound), optimum.covered))
        return RobustChoice(found=optimum, asked=self.asked, undecided=len(self.undecided), rounds=self.rounds)

    def _too_few(self, reduced: Instance, out_of_time: bool) -> QueryError:
        """Return the error: how many factuals still have a candidate, and whether the others are known to have none."""
        if reduced.blocks:  # the final number, as far as it is known without more work
            self._ask_likely(reduced, np.inf, len(reduced.columns))
            reduced = without(reduced, self._with_status(Status.VIOLATED))
        text = f"{self.count} of the {self.instance.size} factuals are to be covered, and only {reduced.size} have a counterfactual"
        if out_of_time:
            return QueryError(f"time is up: {text} proved robust by now; raise the time, or lower the coverage")
        share = np.floor(1e4 * reduced.size / self.instance.size) / 1e4
        remedy = f"pass a coverage of at most {share:g}, or a smaller delta" if share else "pass a smaller delta"
        if self.undecided:
            condition = f"that is neither refuted nor among the {len(self.undecided)} undecided"
            return QueryError(f"{text} {condition}; raise the time, or {remedy}")
        return QueryError(f"{text} that may be robust; {remedy}")
