"""Coverage against cost and against k: k0, d0, kAUC, dAUC, cAUC with saturation points.

Coverages are shares of X, the factuals with a feasible counterfactual, as in the paper; the others are counted separately.
Sound? optima are exact where `optimal`.
Reference: FGCE, section IV and appendix C (k = 1 .. 10, ten costs, a quarter to all of the coverage).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import auc

from encoders.arrays import Array
from solvers import clock
from solvers.outcome import Budget
from verifair.checker.certificates.centers import up_to
from verifair.errors import QueryError
from verifair.systems.fgce.instance import Instance
from verifair.systems.fgce.optimum.center import centers, fewest, needed
from verifair.systems.fgce.optimum.cover import SetSystem, best, greedy
from verifair.systems.fgce.space import FeatureSpace
from verifair.systems.results.result import Count, Measured, Shape

LEAST = 0.02
"""Seconds that a question gets at least."""
Line = dict[str, Any]


class Reach(Shape):
    """The least number (k0) and cost (d0) of full coverage of a group."""

    k0: Count
    """Fewest counterfactuals that cover everybody at any cost."""
    d0: Measured
    """The least largest cost with k0 of them, as in the paper's tables II and VIII."""
    d_least: Measured
    """The least largest cost with as many as one likes, the text's d0 = min d."""
    optimal: bool


def reach(instance: Instance, *, budget: Budget | None = None) -> Reach:
    """Return k0 and d0 of a group. Raises Unfinished when the budget ends before k0 is known."""
    k0, _ = fewest(instance, budget=budget)
    optimum = centers(instance, k0, budget=budget)
    return Reach(k0=k0, d0=optimum.cost, d_least=float(instance.nearest.max()), optimal=optimum.optimal)


def cost_levels(space: FeatureSpace, *, levels: int = 10) -> Array:
    """Return the paper's costs of dAUC: from .1, in even steps of (largest - .1) / levels, below the largest (appendix C)."""
    return 0.1 + np.arange(levels) * (space.paper_cost - 0.1) / levels


def coverage_table(
    instance: Instance, ks: Sequence[int], costs: Sequence[float], *, exact: bool = True, budget: Budget | None = None
) -> pd.DataFrame:
    """Return one line for each (k, d): greedy's coverage and, if asked for, the optimum with its bound; shares of |X|.

    budget: for each optimum.
    """
    lines = []
    for cost in costs:
        system = SetSystem.within(instance, cost)
        order = greedy(system, max(ks))  # nested: its first k are greedy's choice of k
        for k in ks:
            line = {"k": k, "d": float(cost), "greedy": system.value(order[:k]) / instance.size}
            if exact:
                cover = best(system, k, budget=budget or Budget())
                line |= {"coverage": cover.covered / instance.size, "bound": cover.bound / instance.size, "optimal": cover.optimal}
            lines.append(line)
    return pd.DataFrame(lines)


def curves(table: pd.DataFrame, along: str, of: str = "coverage") -> pd.DataFrame:
    """Return the area under coverage along d for each k (kAUC, along="d") or along k for each d (dAUC, along="k").

    score: trapezoid area over the area of full coverage.   saturation: where the largest coverage is first reached (sp).
    largest: that coverage (max_cov).
    """
    by = "k" if along == "d" else "d"
    lines = []
    for value, part in table.sort_values(along).groupby(by):
        x, y = part[along].to_numpy(dtype=float), part[of].to_numpy(dtype=float)
        if x[0] == x[-1]:
            raise QueryError(f"a curve along {along} needs at least two values of {along}; found {x[0]:g} only")
        lines.append({by: value, "saturation": x[y.argmax()], "largest": y.max(), "score": auc(x, y) / (x[-1] - x[0])})
    return pd.DataFrame(lines)


def coverage_steps(instance: Instance, k: int, *, budget: Budget | None = None) -> pd.DataFrame | None:
    """Return every cost at which the best coverage with k counterfactuals rises, with the share covered from there on (columns d,
    coverage); None when time was up.

    The optimal cost never falls as the number to cover grows, so a range of numbers whose ends cost the same is one step.
    Sound? yes, every step is a proved optimum.   Complete? given time.
    """
    deadline = clock.now() + (budget or Budget()).seconds

    def left() -> Budget:
        return Budget(seconds=max(deadline - clock.now(), LEAST))

    largest = best(SetSystem.within(instance, np.inf), k, budget=left())
    if not largest.optimal:
        return None
    costs: dict[int, float] = {}
    pending = [(1, largest.covered)]
    while pending:
        low, high = pending.pop()
        for count in (low, high):
            if count not in costs:
                optimum = centers(instance, k, count / instance.size, budget=left())
                if not optimum.optimal or clock.now() >= deadline:
                    return None
                costs[count] = optimum.cost
        middle = (low + high) // 2
        if costs[low] < costs[high] and middle > low:
            pending += [(low, middle), (middle, high)]
    table = pd.DataFrame({"d": list(costs.values()), "coverage": [count / instance.size for count in costs]})
    return table.groupby("d", as_index=False)["coverage"].max()


def exact_area(steps: pd.DataFrame, low: float, high: float) -> dict[str, float]:
    """Return what `curves` returns for one k, but over all costs from low to high: score, saturation and largest.

    score: area under the steps over that of full coverage.   Raises QueryError for an empty range.
    """
    if not low < high:
        raise QueryError(f"costs from {low:g} to {high:g}: expected a range")
    reached = steps[steps["d"] <= up_to(high)]
    d, coverage = reached["d"].to_numpy(dtype=float), reached["coverage"].to_numpy(dtype=float)
    rise = np.diff(coverage, prepend=0.0)
    area = float((rise * np.clip(high - d, 0.0, high - low)).sum())
    return {"score": area / (high - low), "saturation": float(d.max(initial=low)), "largest": float(coverage.max(initial=0.0))}


def curves_at(steps: pd.DataFrame, costs: Array) -> pd.DataFrame:
    """Return dAUC at costs (D,) from the steps of all groups and k (columns group, k, d, coverage): lines as of `curves`."""
    lines = []
    for name, group_steps in steps.groupby("group", sort=False):
        tables = []
        for k, part in group_steps.groupby("k"):
            index = np.searchsorted(part["d"].to_numpy(), up_to(costs), side="right")
            tables.append(pd.DataFrame({"k": k, "d": costs, "coverage": np.append(0.0, part["coverage"].to_numpy())[index]}))
        lines.append(curves(pd.concat(tables), "k").assign(group=name))
    return pd.concat(lines, ignore_index=True)


def costs_at(steps: pd.DataFrame, coverages: Array) -> dict[str, pd.DataFrame]:
    """Return for each group the least cost of each coverage (C,) and k, as `cost_table` does, from its steps; all are proved."""
    tables: dict[str, pd.DataFrame] = {}
    for name, group_steps in steps.groupby("group", sort=False):
        parts = []
        for k, part in group_steps.groupby("k"):
            index = np.searchsorted(part["coverage"].to_numpy(), coverages, side="left")
            parts.append(pd.DataFrame({"c": coverages, "k": k, "cost": np.append(part["d"].to_numpy(), np.inf)[index]}))
        tables[str(name)] = pd.concat(parts, ignore_index=True)
    return tables


def ends_of(values: pd.Series, low: float, high: float) -> Array:
    """Return low, the different values between low and high, and high: a step curve is constant between neighbours."""
    distinct = np.unique(values.to_numpy(dtype=float))
    return np.concatenate([[low], distinct[(distinct > low) & (distinct < high)], [high]])


def paper_levels(space: FeatureSpace, d0: float, step: float) -> Array:
    """Return the costs of the paper's kAUC: from 70 % of d0 up to `FeatureSpace.paper_cost` (appendix C).

    d0: the largest of the groups'.   step: that of dAUC's costs; if it is longer than the range, the two ends remain.
    """
    low, high = 0.7 * d0, space.paper_cost
    costs = np.arange(low, high, step)
    return np.array([low, high]) if len(costs) == 1 else costs


def cost_table(
    instance: Instance, ks: Sequence[int], coverages: Sequence[float], *, budget: Budget | None = None
) -> pd.DataFrame:
    """Return one line for each (c, k): the optimal cost, and its proved lower bound; infinite where k cannot reach c.

    Raises QueryError for a coverage outside (0, 1] or a k below 1.
    """
    for coverage in coverages:
        needed(instance, coverage)
    if min(ks, default=1) < 1:
        raise QueryError(f"k = {min(ks)}: at least one counterfactual is needed")
    lines = []
    for coverage, k in itertools.product(coverages, ks):
        try:
            optimum = centers(instance, k, coverage, budget=budget)
            cost, lower = optimum.cost, optimum.lower
        except QueryError:  # k is too small
            cost = lower = np.inf
        lines.append({"c": coverage, "k": k, "cost": cost, "lower": lower, "optimal": cost == lower})
    return pd.DataFrame(lines)


def cost_curves(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Return cAUC of groups (name -> `cost_table`): area under cost along k, over the ks with which every group reaches c, for each
    c.

    score: over the area of the least cost of any group at these ks (appendix C).   saturation: the k where the cost is least first.
    least: that cost.   A line has no score without two common ks, or if some group's table lacks the coverage.
    """
    lines = []
    joined = pd.concat([table.assign(group=name) for name, table in tables.items()])
    for coverage, part in joined.groupby("c"):
        pivot = part.pivot(index="k", columns="group", values="cost").sort_index().reindex(columns=list(tables))
        common = pivot[np.isfinite(pivot).all(axis=1)]
        floor = common.min(axis=1)
        for name in tables:
            costs = pivot[name][np.isfinite(pivot[name])]
            area = auc(common.index, floor) if len(common) > 1 else np.nan
            score = auc(common.index, common[name]) / area if area > 0 else np.nan
            saturation = costs.index[costs <= up_to(costs.min())][0] if len(costs) else np.nan
            lines.append({"c": coverage, "group": name, "saturation": saturation, "least": costs.min(), "score": score})
    return pd.DataFrame(lines)
