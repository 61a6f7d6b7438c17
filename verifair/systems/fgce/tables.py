"""FGCE on the screen: a column for each group, then counterfactuals, subgroups, the curves' scores and how groups compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table as Grid
from scipy.stats import bootstrap

from encoders.network import Array
from verifair.schema.schema import Schema
from verifair.systems.fgce.burden import Burden
from verifair.systems.fgce.estimator import GroupCounterfactuals
from verifair.systems.fgce.findings import Advice, GroupSummary, Subgroup, words
from verifair.systems.fgce.instance import Cost
from verifair.systems.fgce.measures import Interval, Reach

COSTS: dict[Cost, str] = {"l2": "L2 distance", "path": "weighted path", "hops": "moves"}
"""What a cost is counted in."""
WIDE = 3
"""Up to so many groups stand side by side in the overview; more stand one below the other."""
SHOWN = 6
"""Subgroups of a group, and features of a counterfactual, on the screen; files hold all."""
ROWS = 20
"""Counterfactuals of a group on the screen."""


def overview(found: Sequence[GroupSummary], *, k: int, cost: Cost, factuals: str) -> Grid:
    """The answer in one table: a column for each group, or where groups are many a line, in fewer words."""
    if len(found) > WIDE:
        return _short(found)
    frame = pd.DataFrame({
        one.name: {
            factuals.replace("-", " "): str(one.negatives),
            "of them without any feasible counterfactual": f"{one.hopeless} ({_percent(one.hopeless / one.negatives)})",
            "weak components (subgroups)": str(len(one.subgroups)),
            f"counterfactuals used, of at most {k}": str(one.used),
            "coverage of the others (95%)": _share(one.coverage),
            f"largest cost d ({COSTS[cost]})": _number(one.cost),
            f"how sure {'d' if one.certainty.of == 'cost' else 'coverage'} is": one.certainty.text,
            "mean cost (95%)": _range(one.mean),
        }
        for one in found
    })  # fmt: skip
    return _grid("Group counterfactuals", frame)


def _short(found: Sequence[GroupSummary]) -> Grid:
    lines = {
        one.name: {
            "to explain": str(one.negatives),
            "hopeless": str(one.hopeless),
            "used": str(one.used),
            "covered": _percent(one.coverage.mean),
            "cost d": _number(one.cost),
            "optimal": one.certainty.trust if one.certainty.optimal else f"bound {_number(one.certainty.bound)}",
            "mean cost": "-" if one.mean is None else _number(one.mean.mean),
        }
        for one in found
    }
    return _grid("Group counterfactuals", pd.DataFrame.from_dict(lines, orient="index"), lines=False)


def advice_grid(one: GroupSummary, schema: Schema) -> Grid:
    """A group's counterfactuals: what most of those whom each serves must change, and into what."""
    grid = Grid(title=f"{one.name}: counterfactuals (rows of the table, from 0)", title_justify="left")
    for column in ("row", "serves", "cost up to"):
        grid.add_column(column, justify="right")
    grid.add_column("must become (share of those served)")
    for advice in one.advice[:ROWS]:
        grid.add_row(str(advice.row), str(advice.serves), _number(advice.largest), changes(advice, schema))
    rest = one.advice[ROWS:]
    if rest:
        grid.add_row("", str(sum(advice.serves for advice in rest)), "", f"{len(rest)} more (--out or --json holds all)")
    return grid


def changes(advice: Advice, schema: Schema) -> str:
    """Features that at least half of the served must change, with the value to change to, most frequent first."""
    often = [(name, share) for name, share in advice.changes.items() if share >= 0.5]
    units = {feature.name: f" {feature.unit_name}" if feature.unit_name else "" for feature in schema.features}
    parts = [f"{words({name: advice.values[name]})}{units[name]} ({_whole(share)})" for name, share in often[:SHOWN]]
    more = len(often) - SHOWN
    return ", ".join(parts) + (f", and {more} more" if more > 0 else "") if parts else "nothing that half of them share"


def subgroup_lines(one: GroupSummary) -> list[str]:
    """One line a subgroup, largest first."""
    shown = one.subgroups[:SHOWN]
    lines = [f"{one.name}, subgroup {n}: {_subgroup(part)}" for n, part in enumerate(shown, start=1)]
    rest = one.subgroups[SHOWN:]
    if rest:
        people, hopeless = sum(part.factuals + part.hopeless for part in rest), sum(part.hopeless for part in rest)
        lines.append(f"{one.name}, {len(rest)} smaller subgroups: {people} to be explained, {hopeless} without a feasible one")
    return lines


def _subgroup(part: Subgroup) -> str:
    total = part.factuals + part.hopeless
    who = f"{words(part.common)}: " if part.common else ""
    if not part.candidates:
        return f"{who}{total} to be explained, no positive row in it"
    hopeless = f", {part.hopeless} without a feasible one" if part.hopeless else ""
    served = f"; {part.used} serve {part.covered}, cost up to {_number(part.largest)}" if part.used else "; none chosen here"
    return f"{who}{total} to be explained, {part.candidates} positive rows{hopeless}{served}"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One measure over all groups.   values: group -> value, NaN where unknown.   worst: the group with the greater burden.

    apart: worst less best.   chance: interval of that difference where it is a mean over people, so that chance plays a part.
    known: whether the worst is known to be, or what is merely the best found by now could change that.
    """

    measure: str
    values: dict[str, float]
    worst: str | None
    apart: float
    chance: Interval | None
    known: bool = True

    @property
    def clear(self) -> bool:
        """Whether groups differ by more than chance, or what time left open, would have them."""
        return self.worst is not None and self.known and (self.chance is None or self.chance.low > 0)


def comparisons(
    model: GroupCounterfactuals, found: Sequence[GroupSummary], burden: Burden | None, *, seed: int = 0
) -> list[Comparison]:
    """Every measure that tells groups apart; empty for a single group."""
    if len(found) < 2:
        return []
    hopeless = {one.name: _flags(one.negatives, one.hopeless) for one in found}
    missed = {one.name: _flags(one.factuals, one.factuals - one.covered) for one in found}
    costs = {name: group.cost[np.isfinite(group.cost)] for name, group in model.groups_.items()}
    lines = [_of_means("share without any feasible counterfactual", hopeless, seed)]
    if any(one.covered < one.factuals for one in found):
        lines.append(_of_means("share of the others that is not covered", missed, seed))
    if found[0].certainty.of == "cost":
        lines.append(_of_largest(found))
    lines.append(_of_means("mean cost", costs, seed))
    return lines + (_of_burden(burden, [one.name for one in found]) if burden is not None else [])


def comparison_grid(lines: Sequence[Comparison]) -> Grid:
    """A line for each measure: all values where they fit, else the worst and the best."""
    groups = list(lines[0].values)
    wide = len(groups) <= WIDE
    grid = Grid(title="Groups compared (a greater burden is worse)", title_justify="left")
    grid.add_column("measure", min_width=16)
    for name in groups if wide else ("values",):
        grid.add_column(name, justify="right")
    grid.add_column("worst for" if len(groups) > 2 else "worse for")
    grid.add_column("by (95%)", justify="right")
    for line in lines:
        by = f"{line.apart:.3g}" + (f" ({line.chance.low:.3g} .. {line.chance.high:.3g})" if line.chance else "")
        worst = "neither" if line.worst is None else line.worst if line.clear else "not clear"
        known = [value for value in line.values.values() if value == value] or [float("nan")]
        ends = [_number(min(known)), _number(max(known))]
        values = list(map(_number, line.values.values())) if wide else [" .. ".join(dict.fromkeys(ends))]
        grid.add_row(line.measure, *values, worst, by if line.worst else "")
    return grid


def curve_grid(title: str, table: pd.DataFrame, by: str, found: Sequence[GroupSummary]) -> Grid:
    """Scores with saturation points: rows by k, d or c, columns by group. table: as `Burden.kauc`, `dauc` or `cauc`."""
    at = "least" if "least" in table else "largest"
    grid = Grid(title=title, title_justify="left")
    grid.add_column(f"\n{by}", justify="right")
    wide = len(found) <= 2
    for one in found:
        grid.add_column(f"{one.name}\nAUC", justify="right")
        for column in (("sp", "cost" if at == "least" else "coverage") if wide else ()):
            grid.add_column(f"\n{column}", justify="right")
    lines = table.set_index([by, "group"])
    for value in table[by].drop_duplicates():
        cells: list[str] = []
        for one in found:
            line = lines.loc[(value, one.name)] if (value, one.name) in lines.index else None
            cells.append("-" if line is None else _number(line["score"]))
            if wide:
                cells += ["-", "-"] if line is None else [_number(line["saturation"]), _number(line[at])]
        grid.add_row(f"{value:.3g}", *cells)
    return grid


def reach_grid(burden: Burden, found: Sequence[GroupSummary]) -> Grid:
    """k0 and d0 of every group, and of its subgroups where there are several."""
    grid = Grid(title="What full coverage takes", title_justify="left")
    for column, side in (("", "left"), ("k0", "right"), ("d0 with k0", "right"), ("d0 with any number", "right")):
        grid.add_column(column, justify="left" if side == "left" else "right")
    for one in found:
        if one.name not in burden.reaches:
            continue
        grid.add_row(one.name, *_reach(burden.reaches[one.name]))
        parts = burden.subgroups.get(one.name, {})
        for n, part in enumerate(one.subgroups[:SHOWN] if len(one.subgroups) > 1 else [], start=1):
            if part.component in parts:
                grid.add_row(f"  subgroup {n}: {words(part.common)}".rstrip(": "), *_reach(parts[part.component]))
    return grid


def _reach(reach: Reach | None) -> tuple[str, str, str]:
    if reach is None:
        return "time was up", "-", "-"
    return str(reach.k0), _number(reach.d0) + ("" if reach.optimal else " at most (time was up)"), _number(reach.d_least)


def _of_burden(burden: Burden, groups: Sequence[str]) -> list[Comparison]:
    known = {name: reach for name, reach in burden.reaches.items() if reach is not None}
    lines = []
    if len(known) == len(groups):
        lines += [
            _of("k0, fewest for full coverage", {name: float(known[name].k0) for name in groups}),
            _best_known("d0 with k0", {name: known[name].d0 for name in groups}, all(known[name].optimal for name in groups)),
            _of("d0 with any number", {name: known[name].d_least for name in groups}),
        ]
    for title, table, by, sign in (
        ("kAUC, mean over k (higher is better)", burden.kauc, "k", -1.0),
        ("dAUC, mean over d (higher is better)", burden.dauc, "d", -1.0),
        ("cAUC, mean over c", burden.cauc, "c", 1.0),
    ):
        if not len(table):
            continue
        wide = table.pivot(index=by, columns="group", values="score").dropna()
        if len(wide) and set(groups) <= set(wide.columns):
            lines.append(_of(title, {name: float(wide[name].mean()) for name in groups}, sign))
    return lines


def _of(measure: str, values: dict[str, float], sign: float = 1.0) -> Comparison:
    """sign -1: more is better."""
    known = {name: sign * value for name, value in values.items() if np.isfinite(value)}
    worst = max(known, key=lambda name: known[name]) if known else None
    apart = max(known.values()) - min(known.values()) if known else float("nan")
    return Comparison(measure=measure, values=values, worst=worst if apart > 0 else None, apart=apart, chance=None)


def _of_largest(found: Sequence[GroupSummary]) -> Comparison:
    """The largest cost: a group is worse for sure where even its bound is no less than what is found for the others."""
    line = _best_known("largest cost d", {one.name: one.cost for one in found}, all(one.certainty.optimal for one in found))
    least = max((one.certainty.bound for one in found if one.name == line.worst), default=np.inf)
    others = max(one.certainty.value for one in found if one.name != line.worst)
    return replace(line, known=least >= others)


def _best_known(measure: str, values: dict[str, float], optimal: bool) -> Comparison:
    return replace(_of(measure + ("" if optimal else " (best known)"), values), known=optimal)


def _of_means(measure: str, values: dict[str, Array], seed: int) -> Comparison:
    """Means over people: the difference of the worst and the best group has an interval."""
    line = _of(measure, {name: float(own.mean()) if len(own) else float("nan") for name, own in values.items()})
    if line.worst is None:
        return line
    best = min((name for name, value in line.values.items() if np.isfinite(value)), key=lambda name: line.values[name])
    found = bootstrap(
        (values[line.worst], values[best]), lambda a, b, axis=-1: a.mean(axis=axis) - b.mean(axis=axis), method="percentile",
        vectorized=True, n_resamples=2000, batch=256, rng=seed,
    ).confidence_interval if min(len(values[line.worst]), len(values[best])) > 1 else None  # fmt: skip
    chance = None if found is None else Interval(mean=line.apart, low=float(found.low), high=float(found.high))
    return Comparison(measure=measure, values=line.values, worst=line.worst, apart=line.apart, chance=chance)


def _flags(total: int, true: int) -> Array:
    return (np.arange(total) < true).astype(float)


def _grid(title: str, frame: pd.DataFrame, *, lines: bool = True) -> Grid:
    """lines: between columns; without, more of them fit on a screen of 80."""
    grid = Grid(title=title, title_justify="left", box=box.HEAVY_HEAD if lines else box.SIMPLE_HEAD)
    grid.add_column("", min_width=16 if lines else None)
    for column in frame.columns:
        grid.add_column(str(column), justify="right")
    for label, line in frame.iterrows():
        grid.add_row(str(label), *map(str, line))
    return grid


def _number(value: float) -> str:
    """Four digits; - for what is not known."""
    return "-" if value != value else "none" if np.isinf(value) else f"{value:.4g}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f}%"


def _whole(value: float) -> str:
    return "all" if value == 1 else f"{int(100 * value + 1e-9)}%"


def _share(interval: Interval) -> str:
    if interval.low == interval.high:
        return _percent(interval.mean)
    return f"{_percent(interval.mean)} ({100 * interval.low:.1f} .. {_percent(interval.high)})"


def _range(interval: Interval | None) -> str:
    if interval is None:
        return "-"
    return f"{_number(interval.mean)} ({_number(interval.low)} .. {_number(interval.high)})"
