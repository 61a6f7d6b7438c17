"""The k-center of each weak component on its own, and their combination by dynamic programming: FGCE's local version.

Corrects the paper twice: a cost is a maximum, so the recursion is

    F(1..i, k, n) = min over k', n' of  max(F(1..i-1, k - k', n - n'), F(i, k', n')),

not a sum; and with full coverage one of m components can get up to k - m + 1 counterfactuals, not k - m.
Sound? Complete? as `center.centers`, which solves each component.   Reference: FGCE, section III-B.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from encoders.network import Array, Integers
from solvers.outcome import Budget
from verifair.errors import QueryError
from verifair.systems.fgce.instance import Block, Instance
from verifair.systems.fgce.optimum.center import Centers, OutOfTime, centers, needed

Answers = dict[tuple[int, int], Centers]
"""(k', n') -> a component's optimum."""


def by_components(instance: Instance, k: int, coverage: float = 1.0, *, budget: Budget | None = None) -> Centers:
    """The optimum from each component's own, combined (the paper's dynamic program, corrected). Slower; finds the same cost.

    Raises QueryError as `centers` does, and OutOfTime: a component that is not solved to its optimum proves nothing here.
    """
    count, full = needed(instance, coverage), coverage == 1
    deadline = time.monotonic() + (budget or Budget()).seconds
    most = max(k - len(instance.blocks) + 1, 0) if full else k
    answers = [_answers(block, most, full, deadline) for block in instance.blocks]
    tables = [_table(block, most, own) for block, own in zip(instance.blocks, answers, strict=True)]
    total = np.full((k + 1, count + 1), np.inf)
    total[:, 0] = 0.0
    taken: list[Integers] = []
    for table in tables:
        total, choice = _combined(total, table, k, count)
        taken.append(choice)
    if np.isinf(total[k, count]):
        centers(instance, k, coverage, budget=budget)  # says what is wrong, or has no time to
        raise OutOfTime
    chosen = _traced(answers, tables, taken, k, count)
    return Centers(chosen=chosen, cost=float(total[k, count]), lower=float(total[k, count]), proved=True, steps=len(tables))


def _only(block: Block) -> Instance:
    return Instance(blocks=(block,), hopeless=np.empty(0, dtype=np.int64), candidates=block.candidates)


def _answers(block: Block, most: int, full: bool, deadline: float) -> Answers:
    """(k', n') -> the optimum for n' factuals of one component with k' candidates, where there is one. Raises OutOfTime."""
    own, f = _only(block), len(block.factuals)
    answers: Answers = {}
    for k in range(1, most + 1):
        for n in [f] if full else range(1, f + 1):
            left = deadline - time.monotonic()
            if left <= 0:
                raise OutOfTime
            try:
                found = centers(own, k, n / f, budget=Budget(seconds=left))
            except QueryError:
                break  # more cannot be covered either
            if not found.optimal:
                raise OutOfTime
            answers[k, n] = found
    return answers


def _table(block: Block, most: int, answers: Answers) -> Array:
    """(most + 1, f + 1) F(i, k', n'): the least cost of covering n' factuals of one component with k' candidates."""
    table = np.full((most + 1, len(block.factuals) + 1), np.inf)
    table[:, 0] = 0.0
    for place, found in answers.items():
        table[place] = found.cost
    return table


def _combined(total: Array, table: Array, k: int, count: int) -> tuple[Array, Integers]:
    """F(1..i, ., .) from F(1..i-1, ., .) and F(i, ., .), and the (k', n') taken, as k' (f + 1) + n'."""
    out = np.full_like(total, np.inf)
    taken: Integers = np.zeros(total.shape, dtype=np.int64)
    for a in range(min(k, len(table) - 1) + 1):
        for b in range(min(count, table.shape[1] - 1) + 1):
            if np.isinf(table[a, b]):
                continue
            value = np.maximum(total[: k + 1 - a, : count + 1 - b], table[a, b])
            place = (slice(a, None), slice(b, None))
            better = value < out[place]
            out[place] = np.where(better, value, out[place])
            taken[place] = np.where(better, a * table.shape[1] + b, taken[place])
    return out, taken


def _traced(answers: Sequence[Answers], tables: Sequence[Array], taken: Sequence[Integers], k: int, n: int) -> Integers:
    """The candidates behind the combined optimum."""
    chosen: list[Integers] = []
    for own, table, choice in reversed(list(zip(answers, tables, taken, strict=True))):
        a, b = divmod(int(choice[k, n]), table.shape[1])
        if b:
            chosen.append(own[a, b].chosen)
        k, n = k - a, n - b
    return np.concatenate(chosen)
