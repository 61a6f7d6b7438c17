"""The burden of each group: all curves of all groups.

`burden` computes them in a given time, level by level, for all groups at each level, so that the results at Ctrl-C or at the end of
the time still compare groups.
Sound? optima are exact where `optimal`.   These are measures of a sample.
Reference: FGCE, section IV and appendix C (k = 1 .. 10, ten costs, a quarter to all of the coverage).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field, computed_field

from encoders.arrays import Array
from solvers.outcome import Budget
from verifair.checker.report import Progress
from verifair.engine.parallel import Deadline, Helpers, Shared, workers
from verifair.systems.fgce.instance import Instance
from verifair.systems.fgce.measures.curves import (
    Line,
    Reach,
    cost_curves,
    cost_levels,
    cost_table,
    costs_at,
    coverage_steps,
    coverage_table,
    curves,
    curves_at,
    ends_of,
    exact_area,
    paper_levels,
    reach,
)
from verifair.systems.fgce.optimum.center import Unfinished
from verifair.systems.fgce.settings import Cost, CostGrid
from verifair.systems.fgce.space import FeatureSpace
from verifair.systems.results.result import Count, RowsOf, Shape

KS = range(1, 11)
COVERAGES = (0.25, 0.5, 0.75, 1.0)
LEVELS = 10
EXTRA_K = 5
"""Cost curves run so far beyond the largest k0, for below k0 there is no cost of full coverage, in EXTRA_KS steps above the ks."""
EXTRA_KS = 6


class Burden(Shape):
    """The measures of all groups, as far as time allowed.

    A result for one k, d or c bounds others: more counterfactuals, or a higher cost, never cover less.
    """

    reach: dict[str, Reach | None]
    """Group -> what full coverage takes; null: time was up."""
    subgroups: dict[str, dict[int, Reach | None]]
    """Group -> number of the weak component -> the same for it alone."""
    levels: list[float]
    """Costs of the coverage curves."""
    exact: bool
    """True if coverages are optima, not greedy's."""
    stopped: Literal["interrupted", "time"] | None
    """The reason of an early end."""
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
        """Points of the curves that are not proved optimal: scores use the best value found."""
        tables = [self.cost, *([self.coverage] if self.exact else [])]
        return sum(int((~table["optimal"]).sum()) for table in tables if len(table))

    @computed_field  # type: ignore[prop-decorator]
    @property
    def kauc(self) -> Annotated[pd.DataFrame, RowsOf(Line)]:
        """A line for each k and each group with all costs answered; over all costs where `steps` are known."""
        if len(self.steps):
            return pd.DataFrame([
                {"k": k, **exact_area(part, self.levels[0], self.levels[-1]), "group": name}
                for (name, k), part in self.steps.groupby(["group", "k"], sort=False)
            ])
        lines = self.coverage[self.coverage["d"].isin(self.kauc_levels)] if len(self.coverage) else self.coverage
        if not len(lines):
            return pd.DataFrame()
        return self._curves("d", lines[lines.groupby("group")["d"].transform("nunique") == len(self.kauc_levels)])

    @computed_field  # type: ignore[prop-decorator]
    @property
    def dauc(self) -> Annotated[pd.DataFrame, RowsOf(Line)]:
        """A line for each group and d; where `steps` are known, each d at which a coverage of any group rises, and width: the
        distance to the next d.
        """
        if not len(self.steps):
            table = self.coverage
            return self._curves("k", table[table["d"].isin(self.levels)] if len(table) else table)
        low, high = self.levels[0], self.levels[-1]
        ends = ends_of(self.steps["d"], low, high)
        lines = curves_at(self.steps, ends[:-1])
        return lines.assign(width=lines["d"].map(dict(zip(ends[:-1], np.diff(ends), strict=True))))

    @computed_field  # type: ignore[prop-decorator]
    @property
    def cauc(self) -> Annotated[pd.DataFrame, RowsOf(Line)]:
        """A line for each c and each group, if all groups are answered at c: scores are relative to the cheapest group.

        Where `steps` are known, over k = 1 .. 10 and all c at which a cost of any group rises, and width: the distance from the
        previous c.
        """
        if len(self.steps):
            ends = ends_of(self.steps["coverage"], 0.0, 1.0)
            lines = cost_curves(costs_at(self.steps, ends[1:]))
            return lines.assign(width=lines["c"].map(dict(zip(ends[1:], np.diff(ends), strict=True))))
        if not len(self.cost):
            return pd.DataFrame()
        answered = self.cost[self.cost.groupby("c")["group"].transform("nunique") == len(self.reach)]
        if not len(answered):
            return pd.DataFrame()
        return cost_curves({str(name): part.drop(columns="group") for name, part in answered.groupby("group", sort=False)})

    def _curves(self, along: str, table: pd.DataFrame) -> pd.DataFrame:
        if not len(table):
            return pd.DataFrame()
        column = "coverage" if self.exact else "greedy"
        parts = [curves(part, along, column).assign(group=name) for name, part in table.groupby("group", sort=False)]
        return pd.concat(parts, ignore_index=True)


def burden(
    instances: Mapping[str, Instance], levels: Array, *, exact: bool = True, seconds: float = 60.0, ks: Sequence[int] = KS,
    coverages: Sequence[float] = COVERAGES, grid: CostGrid = "ten", space: FeatureSpace | None = None, jobs: int = 1,
    progress: Progress | None = None,
) -> Burden:
    """Return every measure of every group (name -> its question), at costs `levels` (D,) for the coverage curves.

    exact: optima of coverage; otherwise greedy's, at least (1 - 1/e) of them.   grid: "paper": kAUC at `paper_levels` of the space.
    "all": areas and saturation points over all costs at which an optimum changes, not over the levels, if time is enough for all
    groups.   seconds: for all of it, shared evenly among the open questions. Ctrl-C ends it, and finished results are kept.
    jobs: processes.
    """
    work = _Questions(instances, levels, ks, coverages, exact, grid, space, jobs)
    stopped: Literal["interrupted", "time"] | None = None
    try:
        stopped = None if work.run(Deadline.after(seconds), progress or (lambda done, total: None)) else "time"
    except KeyboardInterrupt:
        stopped = "interrupted"
    coverage, cost, steps = work.table("coverage"), work.table("cost"), work.table("steps")
    if len(cost):  # lines with every k
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
    """Return the same lines with tightened bounds `low` and `high` of an optimum that rises with `first` and `second`."""
    parts = []
    for _, part in table.groupby("group", sort=False):
        pivot = part.pivot(index=first, columns=second, values=[low, high]).sort_index()
        lower, upper = pivot[low].to_numpy(dtype=float), pivot[high].to_numpy(dtype=float)
        lower, upper = np.where(np.isnan(lower), -np.inf, lower), np.where(np.isnan(upper), np.inf, upper)
        for axis in (0, 1):
            lower = np.maximum.accumulate(lower, axis=axis)
            upper = np.flip(np.minimum.accumulate(np.flip(upper, axis), axis=axis), axis)
        row, column = pivot.index.get_indexer(part[first]), pivot[low].columns.get_indexer(part[second])
        part = part.assign(**{low: lower[row, column], high: upper[row, column]})
        parts.append(part.assign(optimal=part[low] == part[high]))
    return pd.concat(parts, ignore_index=True)


def levels_of(space: FeatureSpace, instances: Mapping[str, Instance], cost: Cost, grid: CostGrid = "ten") -> Array:
    """Return (D,) costs at which coverage is measured, the same for all groups.

    L2: evenly, from 0.1 to `FeatureSpace.largest_cost`; grid "paper": `cost_levels`.
    Paths: evenly, from the cheapest counterfactual of anybody to the 95 % quantile of all pairs.
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
    return np.unique(np.linspace(low, high, LEVELS))  # fewer if nearly all paths cost the same


@dataclass(frozen=True, kw_only=True, eq=False)
class _Measure:
    """One question about one group.   kind: of the answer.   ask: answers it for a group's instance.   parts: number of optima that
    share its time."""

    kind: str
    group: str
    ask: Callable[..., Any]
    parts: int = 1


class _Questions:
    """The questions of `burden`, and the answers so far."""

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
        """Answer all questions; return False if time ran out. Later questions depend on k0 and d0 of full coverage."""
        first = [_Measure(kind="reach", group=name, ask=_reach, parts=2) for name in self.instances]
        return self._ask(first, self._after_reach(), deadline, progress) and self._ask(self._after_reach(), [], deadline, progress)

    def by_group(self, kind: str) -> dict[str, Any]:
        return {measure.group: answer for measure, answer in self._answered_of(kind)}

    def table(self, kind: str) -> pd.DataFrame:
        """Return the lines of all groups."""
        parts = [answer.assign(group=measure.group) for measure, answer in self._answered_of(kind) if answer is not None]
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    def kauc_levels(self) -> Array:
        """Return the costs of the paper's kAUC; empty until d0 of every group is known."""
        d0s = [answer.d0 for answer in self.by_group("reach").values() if answer is not None]
        assert self.space is not None
        step = float(self.levels[1] - self.levels[0])
        return paper_levels(self.space, max(d0s), step) if len(d0s) == len(self.instances) else np.empty(0)

    def cost_ks(self) -> list[int]:
        """Return the numbers of counterfactuals of the cost curves."""
        largest = max(self.ks)
        k0s = {answer.k0 for answer in self.by_group("reach").values() if answer is not None}
        last = max(k0s, default=largest) + EXTRA_K
        ks = k0s.union(np.rint(np.geomspace(largest, last, EXTRA_KS)).astype(int).tolist()) if last > largest else set()
        return sorted({*self.ks, *ks})

    def _answered_of(self, kind: str) -> list[tuple[_Measure, Any]]:
        return [self.answers[n] for n in sorted(self.answers) if self.answers[n][0].kind == kind]

    def _ask(self, questions: Sequence[_Measure], later: Sequence[_Measure], deadline: Deadline, progress: Progress) -> bool:
        """Answer these questions; return False if time ran out.   later: the questions after them, as far as they are known."""
        start, total = len(self.answers), len(self.answers) + len(questions) + len(later)
        n_workers = workers(self.jobs)

        def arguments() -> Iterator[tuple[Any, ...]]:
            remaining = sum(question.parts for question in (*questions, *later))
            for question in questions:
                if deadline.left() <= 0:
                    return
                yield self.shared[question.group], question.ask, deadline, max(remaining / n_workers, question.parts)
                remaining -= question.parts

        progress(start, total)
        for n, answer in self.helpers.each(arguments()):
            self.answers[start + n] = questions[n], answer
            progress(len(self.answers), total)
        return len(self.answers) == start + len(questions)

    def _after_reach(self) -> list[_Measure]:
        """Return all questions after those about the reach: level by level, all groups at each."""
        blocks = {name: len(instance.blocks) for name, instance in self.instances.items()}
        wider = np.setdiff1d(self.kauc_levels(), self.levels) if self.grid == "paper" else np.empty(0)
        ks, costs = self.cost_ks(), [*self.levels.tolist(), *wider.tolist()]
        coverage = partial(coverage_table, ks=self.ks, exact=self.exact)
        tasks: list[tuple[str, int, list[Callable[..., Any]]]] = [
            ("coverage", len(self.ks), [partial(coverage, costs=[d]) for d in costs]),
            ("cost", 1, [partial(cost_table, ks=[k], coverages=[c]) for c in self.fractions for k in ks]),
            ("steps", 1, [partial(_steps, k=k) for k in self.ks if self.grid == "all" and self.exact]),
        ]
        return [
            *(_Measure(kind="subgroups", group=name, ask=_parts, parts=2 * count) for name, count in blocks.items()),
            *(_Measure(kind=kind, group=name, ask=ask, parts=n) for kind, n, fs in tasks for ask in fs for name in self.instances),
        ]


def _answered(instance: Shared[Instance], ask: Callable[..., Any], deadline: Deadline, parts: float) -> Any:
    """Answer one question in its share of the remaining time."""
    return ask(instance.value, budget=Budget(seconds=deadline.within(deadline.left() / parts)))


def _parts(instance: Instance, budget: Budget) -> dict[int, Reach | None]:
    """Return k0 and d0 of each weak component."""
    return {
        block.component: _reach(Instance(blocks=(block,), hopeless=instance.hopeless[:0], candidates=block.candidates), budget)
        for block in instance.blocks
    }


def _steps(instance: Instance, k: int, budget: Budget) -> pd.DataFrame | None:
    lines = coverage_steps(instance, k, budget=budget)
    return None if lines is None else lines.assign(k=k)


def _reach(instance: Instance, budget: Budget) -> Reach | None:
    try:
        return reach(instance, budget=budget)
    except Unfinished:
        return None
