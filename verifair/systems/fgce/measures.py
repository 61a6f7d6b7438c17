"""How hard a group is to help: k0, d0, kAUC, dAUC, cAUC with saturation points, and which attributes have to change (ACF).

Coverages are of X, the factuals with a feasible counterfactual, as in the paper; the count of the others stands beside them.
`burden` works them out for all groups in a given time, level by level, all groups at each, so that what is done when Ctrl-C or the
end of the time comes still compares groups.
Sound? optima are exact where `optimal`.   These are measures of a sample; intervals are bootstrap percentiles over its factuals.
Reference: FGCE, section IV and appendix C (k = 1 .. 10, ten costs, a quarter to all of the coverage).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field, computed_field
from scipy.stats import bootstrap
from sklearn.metrics import auc

from encoders.network import Array, Booleans, Integers
from solvers import clock
from solvers.outcome import Budget
from verifair.checker.certificates.centers import up_to
from verifair.checker.report import Progress
from verifair.engine.parallel import Deadline, Helpers, Shared, workers
from verifair.errors import QueryError
from verifair.systems.fgce.instance import Instance
from verifair.systems.fgce.optimum.center import Unfinished, centers, fewest, needed
from verifair.systems.fgce.optimum.cover import SetSystem, best, greedy, within
from verifair.systems.fgce.settings import Cost, CostGrid
from verifair.systems.fgce.space import FeatureSpace
from verifair.systems.proportions import wilson_of
from verifair.systems.results.result import Count, Interval, Measured, RowsOf, Shape

KS = range(1, 11)
COVERAGES = (0.25, 0.5, 0.75, 1.0)
LEVELS = 10
BEYOND = 5
"""Cost curves run so far beyond the largest k0, for below k0 there is no cost of full coverage, in MORE steps above the ks."""
MORE = 6
MANY, BINS = 100, 6
"""Different values of a number above which attribute changes see bins of it, and how many bins, as in the authors' code."""
LEAST = 0.02
"""Seconds that a question gets at least."""
Line = dict[str, Any]


class Reach(Shape):
    """What full coverage of a group takes."""

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
    found = centers(instance, k0, budget=budget)
    return Reach(k0=k0, d0=found.cost, d_least=float(instance.nearest.max()), optimal=found.optimal)


def cost_levels(space: FeatureSpace, *, levels: int = 10) -> Array:
    """Return the paper's costs of dAUC: from .1 in even steps of (its largest - .1) / levels, below that (appendix C)."""
    return 0.1 + np.arange(levels) * (space.paper_cost - 0.1) / levels


def coverage_table(
    instance: Instance, ks: Sequence[int], costs: Sequence[float], *, exact: bool = True, budget: Budget | None = None
) -> pd.DataFrame:
    """Return one line for each (k, d): greedy's coverage and, if asked, the optimum with its bound; shares of |X|.

    budget: for each optimum.
    """
    lines = []
    for cost in costs:
        system = SetSystem.within(instance, cost)
        order = greedy(system, max(ks))  # nested: its first k are greedy's k
        for k in ks:
            line = {"k": k, "d": float(cost), "greedy": system.value(order[:k]) / instance.size}
            if exact:
                found = best(system, k, budget=budget or Budget())
                line |= {"coverage": found.covered / instance.size, "bound": found.bound / instance.size, "optimal": found.optimal}
            lines.append(line)
    return pd.DataFrame(lines)


def curves(table: pd.DataFrame, along: str, of: str = "coverage") -> pd.DataFrame:
    """Return area under coverage along d for each k (kAUC, along="d") or along k for each d (dAUC, along="k").

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

    The optimal cost rises with the number that is to be covered, so that a range of numbers whose ends cost the same is one step.
    Sound? yes, every step is a proved optimum.   Complete? given time.
    """
    deadline = clock.now() + (budget or Budget()).seconds

    def left() -> Budget:
        return Budget(seconds=max(deadline - clock.now(), LEAST))

    most = best(SetSystem.within(instance, np.inf), k, budget=left())
    if not most.optimal:
        return None
    costs: dict[int, float] = {}
    pending = [(1, most.covered)]
    while pending:
        low, high = pending.pop()
        for count in (low, high):
            if count not in costs:
                found = centers(instance, k, count / instance.size, budget=left())
                if not found.optimal or clock.now() >= deadline:
                    return None
                costs[count] = found.cost
        middle = (low + high) // 2
        if costs[low] < costs[high] and middle > low:
            pending += [(low, middle), (middle, high)]
    table = pd.DataFrame({"d": list(costs.values()), "coverage": [count / instance.size for count in costs]})
    return table.groupby("d", as_index=False)["coverage"].max()


def exact_area(steps: pd.DataFrame, low: float, high: float) -> dict[str, float]:
    """Return what `curves` does of one k, over all costs from low to high instead of some: score, saturation and largest.

    score: area under the steps over that of full coverage.   Raises QueryError for an empty range.
    """
    if not low < high:
        raise QueryError(f"costs from {low:g} to {high:g}: expected a range")
    within = steps[steps["d"] <= up_to(high)]
    d, coverage = within["d"].to_numpy(dtype=float), within["coverage"].to_numpy(dtype=float)
    rise = np.diff(coverage, prepend=0.0)
    area = float((rise * np.clip(high - d, 0.0, high - low)).sum())
    return {"score": area / (high - low), "saturation": float(d.max(initial=low)), "largest": float(coverage.max(initial=0.0))}


def curves_at(steps: pd.DataFrame, costs: Array) -> pd.DataFrame:
    """Return dAUC at costs (D,) from the steps of all groups and k (columns group, k, d, coverage): lines as of `curves`."""
    lines = []
    for name, own in steps.groupby("group", sort=False):
        tables = []
        for k, part in own.groupby("k"):
            at = np.searchsorted(part["d"].to_numpy(), up_to(costs), side="right")
            tables.append(pd.DataFrame({"k": k, "d": costs, "coverage": np.append(0.0, part["coverage"].to_numpy())[at]}))
        lines.append(curves(pd.concat(tables), "k").assign(group=name))
    return pd.concat(lines, ignore_index=True)


def costs_at(steps: pd.DataFrame, coverages: Array) -> dict[str, pd.DataFrame]:
    """Return for each group the least cost of each coverage (C,) and k, as `cost_table` does, from its steps; all are proved."""
    tables: dict[str, pd.DataFrame] = {}
    for name, own in steps.groupby("group", sort=False):
        parts = []
        for k, part in own.groupby("k"):
            at = np.searchsorted(part["coverage"].to_numpy(), coverages, side="left")
            parts.append(pd.DataFrame({"c": coverages, "k": k, "cost": np.append(part["d"].to_numpy(), np.inf)[at]}))
        tables[str(name)] = pd.concat(parts, ignore_index=True)
    return tables


def _ends(values: pd.Series, low: float, high: float) -> Array:
    """Return low, the different values between, and high: a curve of steps is constant from each to the next."""
    inside = np.unique(values.to_numpy(dtype=float))
    return np.concatenate([[low], inside[(inside > low) & (inside < high)], [high]])


def paper_levels(space: FeatureSpace, d0: float, step: float) -> Array:
    """Return the costs of the paper's kAUC: from 70 % of that of full coverage to what it takes for the largest (appendix C).

    d0: the larger one of the groups'.   step: that of dAUC's costs; the two ends remain where it is longer than they are apart.
    """
    low, high = 0.7 * d0, space.paper_cost
    found = np.arange(low, high, step)
    return np.array([low, high]) if len(found) == 1 else found


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
            found = centers(instance, k, coverage, budget=budget)
            cost, lower = found.cost, found.lower
        except QueryError:  # k is too few
            cost = lower = np.inf
        lines.append({"c": coverage, "k": k, "cost": cost, "lower": lower, "optimal": cost == lower})
    return pd.DataFrame(lines)


def cost_curves(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Return cAUC of groups (name -> `cost_table`): area under cost along k, over the ks that every group can, for each c.

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
            saturation = own.index[own <= up_to(own.min())][0] if len(own) else np.nan
            lines.append({"c": coverage, "group": name, "saturation": saturation, "least": own.min(), "score": score})
    return pd.DataFrame(lines)


def assignment(instance: Instance, chosen: Integers, cost: float = np.inf) -> tuple[Integers, Array]:
    """Return (F,) the cheapest chosen node for each factual, -1 where none is at most `cost` away, and what it costs (F,)."""
    if not len(chosen):
        return np.full(instance.size, -1), np.full(instance.size, np.inf)
    paid = instance.to(chosen)
    nearest, least = chosen[paid.argmin(axis=1)], paid.min(axis=1)
    served = within(least, up_to(cost))
    return np.where(served, nearest, -1), np.where(served, least, np.inf)


def binned(space: FeatureSpace, raw: Array) -> Array:
    """Return raw rows (N, V) with continuous features, numbers of more than MANY different values, as numbers of bins.

    Bins are of equal width over the rows: two amounts of one bin are alike to ACF, as in the paper's preprocessing (appendix B,
    whose rule makes BINS of so many values); as they are, an amount changes for nearly everybody.
    """
    out = raw.copy()
    for v, feature in enumerate(space.schema.features):
        different = np.unique(raw[:, v])
        if feature.categories is not None or len(different) <= MANY:
            continue
        edges = np.linspace(different[0], different[-1], BINS + 1)[1:-1]
        out[:, v] = np.searchsorted(edges, raw[:, v], side="right")
    return out


def change_frequency(space: FeatureSpace, rows: Array, factuals: Integers, assigned: Integers) -> pd.Series:
    """Return ACF: the share of factuals whose counterfactual differs from them in each feature of rows (N, V), raw or `binned`."""
    served = assigned >= 0
    changed = space.changed(rows[factuals[served]], rows[assigned[served]])
    names = [feature.name for feature in space.schema.features]
    return pd.Series(changed.mean(axis=0) if served.any() else np.full(len(names), np.nan), index=names)


def change_size(space: FeatureSpace, raw: Array, factuals: Integers, assigned: Integers) -> pd.Series:
    """Return by how much each number changes, in its own unit: the mean over the factuals for whom it changes at all.

    NaN for categories, and where it changes for nobody.
    """
    served = assigned >= 0
    moved = np.abs(raw[assigned[served]] - raw[factuals[served]])
    count = (moved > 0).sum(axis=0)
    mean = np.divide(moved.sum(axis=0), count, out=np.full(raw.shape[1], np.nan), where=count > 0)
    numbers = [feature.categories is None for feature in space.schema.features]
    return pd.Series(np.where(numbers, mean, np.nan), index=[feature.name for feature in space.schema.features])


def interval(values: Array, *, level: float = 0.95, resamples: int = 2000, seed: int = 0) -> Interval:
    """Return the percentile bootstrap of a mean over factuals (F,): costs, areas under own curves. It has no ends of one."""
    mean = float(values.mean())
    if len(values) < 2:
        return Interval(mean=mean, low=np.nan, high=np.nan)
    if np.ptp(values) == 0:
        return Interval(mean=mean, low=mean, high=mean)
    found = bootstrap((values,), np.mean, confidence_level=level, n_resamples=resamples, method="percentile", rng=seed, batch=256)
    low, high = found.confidence_interval
    return Interval(mean=mean, low=float(low), high=float(high))


def share_interval(true: Booleans) -> Interval:
    """Return Wilson's 95 % interval of the share of people (F,) of whom something is true."""
    share = float(true.mean())
    low, high = wilson_of(share, len(true))
    return Interval(mean=share, low=low, high=high)


# All measures of all groups


class Burden(Shape):
    """The measures of all groups, as far as time went.

    What is known of one k, d or c bounds others: more counterfactuals, or a higher cost, never cover less.
    """

    reach: dict[str, Reach | None]
    """Group -> what full coverage takes; null: time was up."""
    subgroups: dict[str, dict[int, Reach | None]]
    """Group -> number of the weak component -> the same for it alone."""
    levels: list[float]
    """Costs of the coverage curves."""
    exact: bool
    """Whether coverages are optima, not greedy's."""
    stopped: Literal["interrupted", "time"] | None
    """What ended it before it was done."""
    coverage: Annotated[pd.DataFrame, RowsOf(Line)]
    """A line for each group, k and d, as `coverage_table`."""
    cost: Annotated[pd.DataFrame, RowsOf(Line)]
    """A line for each group, c and k, as `cost_table`."""
    kauc_levels: list[float]
    """Costs of kAUC's curves, where they are others than those of dAUC; empty where time was up before they were known."""
    steps: Annotated[pd.DataFrame, RowsOf(Line)] = Field(default_factory=pd.DataFrame)
    """A line for each group, k and cost at which coverage rises, as `coverage_steps`; empty unless asked for, and known of all."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def points_not_proved_optimal(self) -> Count:
        """Points of the curves that are not proved optimal: scores are of the best that is known."""
        tables = [self.cost, *([self.coverage] if self.exact else [])]
        return sum(int((~table["optimal"]).sum()) for table in tables if len(table))

    @computed_field  # type: ignore[prop-decorator]
    @property
    def kauc(self) -> Annotated[pd.DataFrame, RowsOf(Line)]:
        """A line for each k and each group that all costs were asked of; over all costs where `steps` are known."""
        if len(self.steps):
            return pd.DataFrame([
                {"k": k, **exact_area(part, self.levels[0], self.levels[-1]), "group": name}
                for (name, k), part in self.steps.groupby(["group", "k"], sort=False)
            ])
        own = self.coverage[self.coverage["d"].isin(self.kauc_levels)] if len(self.coverage) else self.coverage
        if not len(own):
            return pd.DataFrame()
        return self._curves("d", own[own.groupby("group")["d"].transform("nunique") == len(self.kauc_levels)])

    @computed_field  # type: ignore[prop-decorator]
    @property
    def dauc(self) -> Annotated[pd.DataFrame, RowsOf(Line)]:
        """A line for each group and d; where `steps` are known, each d at which a coverage of any group rises, and width: how far
        it is to the next.
        """
        if not len(self.steps):
            table = self.coverage
            return self._curves("k", table[table["d"].isin(self.levels)] if len(table) else table)
        low, high = self.levels[0], self.levels[-1]
        ends = _ends(self.steps["d"], low, high)
        found = curves_at(self.steps, ends[:-1])
        return found.assign(width=found["d"].map(dict(zip(ends[:-1], np.diff(ends), strict=True))))

    @computed_field  # type: ignore[prop-decorator]
    @property
    def cauc(self) -> Annotated[pd.DataFrame, RowsOf(Line)]:
        """A line for each c and each group, where all groups were asked at c: a score is over the cheapest of them.

        Where `steps` are known, over k = 1 .. 10 and all c at which a cost of any group rises, and width: how far it is from the
        one before.
        """
        if len(self.steps):
            ends = _ends(self.steps["coverage"], 0.0, 1.0)
            found = cost_curves(costs_at(self.steps, ends[1:]))
            return found.assign(width=found["c"].map(dict(zip(ends[1:], np.diff(ends), strict=True))))
        if not len(self.cost):
            return pd.DataFrame()
        asked = self.cost[self.cost.groupby("c")["group"].transform("nunique") == len(self.reach)]
        if not len(asked):
            return pd.DataFrame()
        return cost_curves({str(name): part.drop(columns="group") for name, part in asked.groupby("group", sort=False)})

    def _curves(self, along: str, table: pd.DataFrame) -> pd.DataFrame:
        if not len(table):
            return pd.DataFrame()
        of = "coverage" if self.exact else "greedy"
        parts = [curves(part, along, of).assign(group=name) for name, part in table.groupby("group", sort=False)]
        return pd.concat(parts, ignore_index=True)


def burden(
    instances: Mapping[str, Instance], levels: Array, *, exact: bool = True, seconds: float = 60.0, ks: Sequence[int] = KS,
    coverages: Sequence[float] = COVERAGES, grid: CostGrid = "ten", space: FeatureSpace | None = None, jobs: int = 1,
    progress: Progress | None = None,
) -> Burden:
    """Return every measure of every group (name -> its question), at costs `levels` (D,) for the coverage curves.

    exact: optima of coverage; otherwise greedy's, at least (1 - 1/e) of them.   grid: "paper": kAUC at `paper_levels` of the space.
    "all": areas and saturation points over all costs at which an optimum changes, not over the levels, where time is enough for all
    groups.   seconds: for all of it, shared out evenly among what is left to ask. Ctrl-C ends it, and what is done stands.
    jobs: processes.
    """
    work = _Questions(instances, levels, ks, coverages, exact, grid, space, jobs)
    stopped: Literal["interrupted", "time"] | None = None
    try:
        stopped = None if work.run(Deadline.after(seconds), progress or (lambda done, total: None)) else "time"
    except KeyboardInterrupt:
        stopped = "interrupted"
    coverage, cost, steps = work.table("coverage"), work.table("cost"), work.table("steps")
    if len(cost):  # those asked of every k
        cost = cost[cost.groupby(["group", "c"])["k"].transform("size") == len(work.cost_ks())]
    if exact and len(coverage):
        coverage = _bounded(coverage, "k", "d", "coverage", "bound")
    if len(cost):
        cost = _bounded(cost.assign(k=-cost["k"]), "k", "c", "lower", "cost").assign(k=lambda table: -table["k"])
    if len(steps) and steps.groupby(["group", "k"]).ngroups < len(instances) * len(ks):
        steps = pd.DataFrame()
    return Burden(
        reach=work.by_group("reach"), subgroups=work.by_group("subgroups"), coverage=coverage, cost=cost, levels=levels.tolist(),
        kauc_levels=levels.tolist() if space is None or grid != "paper" else work.kauc_levels().tolist(), exact=exact,
        stopped=stopped, steps=steps,
    )


def _bounded(table: pd.DataFrame, first: str, second: str, low: str, high: str) -> pd.DataFrame:
    """Return the same lines, where an optimum rising with `first` and `second` lies between `low` and `high`: each at its best."""
    parts = []
    for _, part in table.groupby("group", sort=False):
        wide = part.pivot(index=first, columns=second, values=[low, high]).sort_index()
        least, most = wide[low].to_numpy(dtype=float), wide[high].to_numpy(dtype=float)
        least, most = np.where(np.isnan(least), -np.inf, least), np.where(np.isnan(most), np.inf, most)
        for axis in (0, 1):
            least = np.maximum.accumulate(least, axis=axis)
            most = np.flip(np.minimum.accumulate(np.flip(most, axis), axis=axis), axis)
        row, column = wide.index.get_indexer(part[first]), wide[low].columns.get_indexer(part[second])
        part = part.assign(**{low: least[row, column], high: most[row, column]})
        parts.append(part.assign(optimal=part[low] == part[high]))
    return pd.concat(parts, ignore_index=True)


def levels_of(space: FeatureSpace, instances: Mapping[str, Instance], cost: Cost, grid: CostGrid = "ten") -> Array:
    """Return (D,) costs at which coverage is measured, the same for all groups.

    L2: evenly, from 0.1 to `FeatureSpace.largest_cost`; grid "paper": `cost_levels`.
    Paths: evenly, from the cheapest counterfactual of anybody to where 95 % of all pairs are.
    Hops: numbers of moves up to the most, at most ten of them.
    """
    if cost == "l2":
        return cost_levels(space, levels=LEVELS) if grid == "paper" else np.linspace(0.1, space.largest_cost, LEVELS)
    tables = [block.cost for instance in instances.values() for block in instance.blocks]
    values = np.concatenate([table[np.isfinite(table)] for table in tables])
    if cost == "hops":
        return np.unique(np.rint(np.linspace(1, max(values.max(), 2), LEVELS)))
    low = float(values.min())
    high = max(float(np.quantile(values, 0.95)), np.nextafter(low, np.inf))
    return np.unique(np.linspace(low, high, LEVELS))  # fewer where nearly all paths cost the same


@dataclass(frozen=True, kw_only=True, eq=False)
class _Measure:
    """One task. of: what is asked.   ask: asks it of a group's instance.   parts: how many optima share its time."""

    of: str
    group: str
    ask: Callable[..., Any]
    parts: int = 1


class _Questions:
    """What is to be asked, and what is known so far."""

    def __init__(
        self, instances: Mapping[str, Instance], levels: Array, ks: Sequence[int], fractions: Sequence[float], exact: bool,
        grid: CostGrid, space: FeatureSpace | None, jobs: int,
    ) -> None:
        self.instances, self.levels, self.ks, self.fractions = instances, levels, ks, sorted(fractions, reverse=True)
        self.exact, self.grid, self.space, self.jobs = exact, grid, space, jobs
        self.helpers = Helpers(Shared(value=_answered), jobs)
        self.shared = {name: Shared(value=instance) for name, instance in instances.items()}
        self.answers: dict[int, tuple[_Measure, Any]] = {}

    def run(self, deadline: Deadline, progress: Progress) -> bool:
        """Return whether everything was asked before the time was up. What is asked depends on what full coverage takes."""
        first = [_Measure(of="reach", group=name, ask=_reach, parts=2) for name in self.instances]
        return self._ask(first, self._others(), deadline, progress) and self._ask(self._others(), [], deadline, progress)

    def by_group(self, of: str) -> dict[str, Any]:
        return {one.group: answer for one, answer in self._in_turn(of)}

    def table(self, of: str) -> pd.DataFrame:
        """Return the lines of all groups."""
        parts = [answer.assign(group=one.group) for one, answer in self._in_turn(of) if answer is not None]
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    def kauc_levels(self) -> Array:
        """Return the costs of the paper's kAUC; none before d0 of every group is known."""
        known = [one.d0 for one in self.by_group("reach").values() if one is not None]
        assert self.space is not None
        step = float(self.levels[1] - self.levels[0])
        return paper_levels(self.space, max(known), step) if len(known) == len(self.instances) else np.empty(0)

    def cost_ks(self) -> list[int]:
        """Return the numbers of counterfactuals of the cost curves."""
        top = max(self.ks)
        known = {one.k0 for one in self.by_group("reach").values() if one is not None}
        last = max(known, default=top) + BEYOND
        more = known.union(np.rint(np.geomspace(top, last, MORE)).astype(int).tolist()) if last > top else set()
        return sorted({*self.ks, *more})

    def _in_turn(self, of: str) -> list[tuple[_Measure, Any]]:
        return [self.answers[n] for n in sorted(self.answers) if self.answers[n][0].of == of]

    def _ask(self, asked: Sequence[_Measure], later: Sequence[_Measure], deadline: Deadline, progress: Progress) -> bool:
        """Return whether all of these were asked in time.   later: what is left then, as far as it is known."""
        start, total = len(self.answers), len(self.answers) + len(asked) + len(later)
        together = workers(self.jobs)

        def arguments() -> Iterator[tuple[Any, ...]]:
            left = sum(one.parts for one in (*asked, *later))
            for one in asked:
                if deadline.left() <= 0:
                    return
                yield self.shared[one.group], one.ask, deadline, max(left / together, one.parts)
                left -= one.parts

        progress(start, total)
        for n, answer in self.helpers.each(arguments()):
            self.answers[start + n] = asked[n], answer
            progress(len(self.answers), total)
        return len(self.answers) == start + len(asked)

    def _others(self) -> list[_Measure]:
        """Return all questions after those about the reach: level by level, all groups at each."""
        blocks = {name: len(instance.blocks) for name, instance in self.instances.items()}
        wider = np.setdiff1d(self.kauc_levels(), self.levels) if self.grid == "paper" else np.empty(0)
        ks, costs = self.cost_ks(), [*self.levels.tolist(), *wider.tolist()]
        covered = partial(coverage_table, ks=self.ks, exact=self.exact)
        asked: list[tuple[str, int, list[Callable[..., Any]]]] = [
            ("coverage", len(self.ks), [partial(covered, costs=[d]) for d in costs]),
            ("cost", 1, [partial(cost_table, ks=[k], coverages=[c]) for c in self.fractions for k in ks]),
            ("steps", 1, [partial(_steps, k=k) for k in self.ks if self.grid == "all" and self.exact]),
        ]
        return [
            *(_Measure(of="subgroups", group=name, ask=_parts, parts=2 * count) for name, count in blocks.items()),
            *(_Measure(of=of, group=name, ask=ask, parts=n) for of, n, asks in asked for ask in asks for name in self.instances),
        ]


def _answered(instance: Shared[Instance], ask: Callable[..., Any], deadline: Deadline, parts: float) -> Any:
    """Ask one question, in its share of the time that is left when its turn comes."""
    return ask(instance.value, budget=Budget(seconds=deadline.within(deadline.left() / parts)))


def _parts(instance: Instance, budget: Budget) -> dict[int, Reach | None]:
    """Return what full coverage of each weak component takes."""
    return {
        block.component: _reach(Instance(blocks=(block,), hopeless=instance.hopeless[:0], candidates=block.candidates), budget)
        for block in instance.blocks
    }


def _steps(instance: Instance, k: int, budget: Budget) -> pd.DataFrame | None:
    found = coverage_steps(instance, k, budget=budget)
    return None if found is None else found.assign(k=k)


def _reach(instance: Instance, budget: Budget) -> Reach | None:
    try:
        return reach(instance, budget=budget)
    except Unfinished:
        return None
