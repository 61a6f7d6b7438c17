"""How hard a group is to help: k0, d0, kAUC, dAUC, cAUC with saturation points, and which attributes have to change (ACF).

Coverages are of X, the factuals with a feasible counterfactual, as in the paper; how many have none is told beside them.
Sound? optima are exact where `optimal`.   These are measures of a sample; intervals are bootstrap percentiles over its factuals.
Reference: FGCE, section IV and appendix C.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import bootstrap
from sklearn.metrics import auc

from encoders.network import Array, Integers
from solvers.outcome import Budget
from verifair.errors import QueryError
from verifair.systems.fgce.instance import Instance
from verifair.systems.fgce.optimum.center import centers, fewest, needed
from verifair.systems.fgce.optimum.cover import System, best, greedy, within
from verifair.systems.fgce.space import Space

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True, eq=False)
class Reach:
    """What full coverage of a group takes.

    k0: fewest counterfactuals that cover everybody at any cost.   d0: the least largest cost with k0 of them, as in the paper's
    tables II and VIII.   d_least: the least largest cost with as many as one likes, the text's d0 = min d.
    """

    k0: int
    d0: float
    d_least: float
    optimal: bool


def reach(instance: Instance, *, budget: Budget | None = None) -> Reach:
    """k0 and d0 of a group. Raises OutOfTime when the budget ends before k0 is known."""
    k0, _ = fewest(instance, budget=budget)
    found = centers(instance, k0, budget=budget)
    least = max(float(block.cost.min(axis=1).max()) for block in instance.blocks)
    return Reach(k0=k0, d0=found.cost, d_least=least, optimal=found.optimal)


def cost_levels(space: Space, *, low: float = 0.1, levels: int = 10) -> Array:
    """Costs for the curves: from `low` to the largest possible, in even steps of (largest - low) / levels (appendix C)."""
    return low + np.arange(levels) * (space.largest_cost - low) / levels


def coverage_table(
    instance: Instance, ks: Sequence[int], costs: Sequence[float], *, exact: bool = True, budget: Budget | None = None,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """One line for each (k, d): greedy's coverage and, if asked, the optimum with its bound; shares of |X|.

    budget: for each optimum.
    """
    lines = []
    for n, cost in enumerate(costs):
        system = System.within(instance, cost)
        order = greedy(system, max(ks))  # nested: its first k are greedy's k
        for k in ks:
            line = {"k": k, "d": float(cost), "greedy": system.value(order[:k]) / instance.size}
            if exact:
                found = best(system, k, budget=budget or Budget())
                line |= {"coverage": found.covered / instance.size, "bound": found.bound / instance.size, "optimal": found.optimal}
            lines.append(line)
        if progress is not None:
            progress(n + 1, len(costs))
    return pd.DataFrame(lines)


def curves(table: pd.DataFrame, along: str, of: str = "coverage") -> pd.DataFrame:
    """Area under coverage along d for each k (kAUC, along="d") or along k for each d (dAUC, along="k").

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


def cost_table(
    instance: Instance, ks: Sequence[int], coverages: Sequence[float], *, budget: Budget | None = None,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """One line for each (c, k): the optimal cost, and its proved lower bound; infinite where k cannot reach c.

    Raises QueryError for a coverage outside (0, 1] or a k below 1.
    """
    for coverage in coverages:
        needed(instance, coverage)
    if min(ks, default=1) < 1:
        raise QueryError(f"k = {min(ks)}: at least one counterfactual is needed")
    lines = []
    for n, (coverage, k) in enumerate((c, k) for c in coverages for k in ks):
        try:
            found = centers(instance, k, coverage, budget=budget)
            cost, lower = found.cost, found.lower
        except QueryError:  # k is too few
            cost = lower = np.inf
        lines.append({"c": coverage, "k": k, "cost": cost, "lower": lower, "optimal": cost == lower})
        if progress is not None:
            progress(n + 1, len(coverages) * len(ks))
    return pd.DataFrame(lines)


def cost_curves(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """cAUC of groups (name -> `cost_table`): area under cost along k, over the ks that every group can, for each c.

    score: over the area of the least cost of any group at these ks (appendix C).   saturation: the k where the cost is least first.
    least: that cost.   Lines without two common ks, or a coverage that some group's table does not have, have no score.
    """
    lines = []
    joined = pd.concat([table.assign(group=name) for name, table in tables.items()])
    for coverage, part in joined.groupby("c"):
        wide = part.pivot(index="k", columns="group", values="cost").sort_index().reindex(columns=list(tables))
        common = wide[np.isfinite(wide).all(axis=1)]
        floor = common.min(axis=1)
        for name in tables:
            own = wide[name][np.isfinite(wide[name])]
            area = auc(common.index, floor) if len(common) > 1 else np.nan
            score = auc(common.index, common[name]) / area if area > 0 else np.nan
            saturation = own.idxmin() if len(own) else np.nan
            lines.append({"c": coverage, "group": name, "saturation": saturation, "least": own.min(), "score": score})
    return pd.DataFrame(lines)


def assignment(instance: Instance, chosen: Integers, cost: float = np.inf) -> tuple[Integers, Array]:
    """(F,) the cheapest chosen node for each factual, -1 where none is at most `cost` away, and what it costs (F,)."""
    if not len(chosen):
        return np.full(instance.size, -1), np.full(instance.size, np.inf)
    paid = instance.to(chosen)
    nearest, least = chosen[paid.argmin(axis=1)], paid.min(axis=1)
    served = within(least, cost)
    return np.where(served, nearest, -1), np.where(served, least, np.inf)


def change_frequency(space: Space, raw: Array, factuals: Integers, assigned: Integers) -> pd.Series:
    """ACF: the share of factuals whose counterfactual differs from them in each feature."""
    served = assigned >= 0
    changed = space.changed(raw[factuals[served]], raw[assigned[served]])
    names = [feature.name for feature in space.schema.features]
    return pd.Series(changed.mean(axis=0) if served.any() else np.full(len(names), np.nan), index=names)


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A mean over the group's factuals with a bootstrap interval."""

    mean: float
    low: float
    high: float


def interval(values: Array, *, level: float = 0.95, resamples: int = 2000, seed: int = 0) -> Interval:
    """Percentile bootstrap of a mean over factuals (F,): coverage as 0 and 1, costs of counterfactuals, areas under own curves."""
    mean = float(values.mean())
    if len(values) < 2 or np.ptp(values) == 0:
        return Interval(mean=mean, low=mean, high=mean)
    found = bootstrap((values,), np.mean, confidence_level=level, n_resamples=resamples, method="percentile", rng=seed, batch=256)
    low, high = found.confidence_interval
    return Interval(mean=mean, low=float(low), high=float(high))

