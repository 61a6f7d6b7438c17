"""All burden measures of all groups in a given time: k0 and d0, and the grids behind kAUC, dAUC and cAUC.

Work goes level by level, all groups at each, so that what is done when Ctrl-C or the end of the time comes still compares groups.
Reference: FGCE, section IV-B and appendix C (k = 1 .. 10, ten costs, a quarter to all of the coverage).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import pandas as pd

from encoders.network import Array
from solvers.outcome import Budget
from verifair.systems.fgce.instance import Cost, Instance
from verifair.systems.fgce.measures import Progress, Reach, cost_curves, cost_levels, cost_table, coverage_table, curves, reach
from verifair.systems.fgce.optimum.center import OutOfTime
from verifair.systems.fgce.space import Space

KS = range(1, 11)
COVERAGES = (0.25, 0.5, 0.75, 1.0)
LEVELS = 10
BEYOND = 5
"""Cost curves run so far beyond the largest k0, for below k0 there is no cost of full coverage, in MORE steps above the ks."""
MORE = 6
LEAST = 0.02
"""Seconds that a question gets at least."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Burden:
    """reaches: group -> k0 and d0, None where time was up.   subgroups: the same for each weak component (its number).

    coverages: a line for each group, k and d, as `coverage_table`.   costs: for each group, c and k, as `cost_table`.
    levels: the d of the curves (D,).   exact: whether coverages are optima.   stopped: what ended it before it was done.

    What is known of one k, d or c bounds others: more counterfactuals, or a higher cost, never cover less.
    """

    reaches: Mapping[str, Reach | None]
    subgroups: Mapping[str, Mapping[int, Reach | None]]
    coverages: pd.DataFrame
    costs: pd.DataFrame
    levels: Array
    exact: bool
    stopped: Literal["interrupted", "time"] | None

    @property
    def open(self) -> int:
        """Points of the curves that are not proved optimal: scores are of the best that is known."""
        tables = [self.costs, *([self.coverages] if self.exact else [])]
        return sum(int((~table["optimal"]).sum()) for table in tables if len(table))

    @property
    def kauc(self) -> pd.DataFrame:
        """A line for each k and each group that all costs were asked of."""
        if not len(self.coverages):
            return pd.DataFrame()
        return self._curves("d", self.coverages[self.coverages.groupby("group")["d"].transform("nunique") == len(self.levels)])

    @property
    def dauc(self) -> pd.DataFrame:
        """A line for each group and d."""
        return self._curves("k", self.coverages)

    @property
    def cauc(self) -> pd.DataFrame:
        """A line for each group and c that all groups were asked at: a score is over the cheapest of them."""
        if not len(self.costs):
            return pd.DataFrame()
        asked = self.costs[self.costs.groupby("c")["group"].transform("nunique") == len(self.reaches)]
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
    coverages: Sequence[float] = COVERAGES, progress: Progress | None = None,
) -> Burden:  # fmt: skip
    """Every measure of every group (name -> its question), at costs `levels` (D,) for the coverage curves.

    exact: optima of coverage; otherwise greedy's, at least (1 - 1/e) of them.   seconds: for all of it, shared out evenly among
    what is left to ask. Ctrl-C ends it, and what is done stands.
    """
    work = _Work(instances, levels, ks, coverages, exact, time.monotonic() + seconds)
    stopped: Literal["interrupted", "time"] | None = None
    try:
        stopped = None if work.run(progress or (lambda done, total: None)) else "time"
    except KeyboardInterrupt:
        stopped = "interrupted"
    tables = [pd.concat(parts, ignore_index=True) if parts else pd.DataFrame() for parts in (work.coverage_parts, work.cost_parts)]
    if exact and len(tables[0]):
        tables[0] = _bounded(tables[0], "k", "d", "coverage", "bound")
    if len(tables[1]):
        tables[1] = _bounded(tables[1].assign(k=-tables[1]["k"]), "k", "c", "lower", "cost").assign(k=lambda table: -table["k"])
    return Burden(
        reaches=work.reaches, subgroups=work.subgroups, coverages=tables[0], costs=tables[1], levels=levels, exact=exact,
        stopped=stopped,
    )  # fmt: skip


def _bounded(table: pd.DataFrame, first: str, second: str, low: str, high: str) -> pd.DataFrame:
    """The same lines, where an optimum that rises with `first` and `second` lies between `low` and `high`: each at its best."""
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


def levels_of(space: Space, instances: Mapping[str, Instance], cost: Cost) -> Array:
    """(D,) costs at which coverage is measured, the same for all groups.

    L2: the paper's, from 0.1 to the largest distance there can be.   Paths: evenly, from the cheapest counterfactual of anybody to
    where 95 % of all pairs are.   Hops: numbers of moves up to the most, at most ten of them.
    """
    if cost == "l2":
        return cost_levels(space, levels=LEVELS)
    tables = [block.cost for instance in instances.values() for block in instance.blocks]
    values = np.concatenate([table[np.isfinite(table)] for table in tables])
    if cost == "hops":
        return np.unique(np.rint(np.linspace(1, max(values.max(), 2), LEVELS)))
    low = float(values.min())
    high = max(float(np.quantile(values, 0.95)), np.nextafter(low, np.inf))
    return np.unique(np.linspace(low, high, LEVELS))  # fewer where nearly all paths cost the same


class _Work:
    """What is to be asked, in turn, and what is known so far."""

    def __init__(
        self, instances: Mapping[str, Instance], levels: Array, ks: Sequence[int], fractions: Sequence[float], exact: bool,
        deadline: float,
    ) -> None:  # fmt: skip
        self.instances, self.ks, self.exact, self.deadline = instances, ks, exact, deadline
        self.reaches: dict[str, Reach | None] = {}
        self.subgroups: dict[str, dict[int, Reach | None]] = {}
        self.coverage_parts: list[pd.DataFrame] = []
        self.cost_parts: list[pd.DataFrame] = []
        self.steps: list[Callable[[], None]] = [
            *(partial(self._reach, name) for name in instances),
            *(partial(self._parts, name) for name in instances),
            *(partial(self._coverage, name, float(d)) for d in levels for name in instances),
            *(partial(self._cost, name, c) for c in sorted(fractions, reverse=True) for name in instances),
        ]
        self.left = len(self.steps)

    def run(self, progress: Progress) -> bool:
        """Whether everything was asked before the time was up."""
        for n, step in enumerate(self.steps):
            progress(n, len(self.steps))
            if time.monotonic() >= self.deadline:
                return False
            self.left = len(self.steps) - n
            step()
        progress(len(self.steps), len(self.steps))
        return True

    def _budget(self, questions: int) -> Budget:
        """An even share of what is left for one of the questions of a step."""
        return Budget(seconds=max((self.deadline - time.monotonic()) / (self.left * questions), LEAST))

    def _reach(self, name: str) -> None:
        self.reaches[name] = _reach(self.instances[name], self._budget(2))

    def _parts(self, name: str) -> None:
        blocks, whole = self.instances[name].blocks, self.instances[name]
        share = self._budget(2 * len(blocks))
        self.subgroups[name] = {
            block.component: _reach(Instance(blocks=(block,), hopeless=whole.hopeless[:0], candidates=block.candidates), share)
            for block in blocks
        }

    def _coverage(self, name: str, d: float) -> None:
        share = self._budget(len(self.ks))
        table = coverage_table(self.instances[name], self.ks, [d], exact=self.exact, budget=share)
        self.coverage_parts.append(table.assign(group=name))

    def _cost(self, name: str, c: float) -> None:
        top = max(self.ks)
        known = {one.k0 for one in self.reaches.values() if one is not None}
        last = max(known, default=top) + BEYOND
        more = known.union(np.rint(np.geomspace(top, last, MORE)).astype(int).tolist()) if last > top else set()
        ks = sorted({*self.ks, *more})
        table = cost_table(self.instances[name], ks, [c], budget=self._budget(len(ks)))
        self.cost_parts.append(table.assign(group=name))


def _reach(instance: Instance, budget: Budget) -> Reach | None:
    try:
        return reach(instance, budget=budget)
    except OutOfTime:
        return None
