"""FGCE on the screen and in files: a column for each group, then counterfactuals, subgroups, proofs, scores and comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any, get_args

import numpy as np
import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table as Grid

from verifair.checker.certificates.envelope import semantics
from verifair.checker.words import counted
from verifair.engine.verdict import Status
from verifair.schema.schema import Schema
from verifair.systems.fgce.decider import beside
from verifair.systems.fgce.findings import INTERVALS
from verifair.systems.fgce.measures.burden import Burden
from verifair.systems.fgce.measures.curves import Reach
from verifair.systems.fgce.result import Advice, FeasibleShare, FgceResult, GroupComparison, GroupSummary, Subgroup
from verifair.systems.fgce.settings import Cost
from verifair.systems.groups import SMALL
from verifair.systems.results.result import Interval
from verifair.systems.results.words import moves, percent

COSTS: dict[Cost, str] = {"l2": "L2 distance", "path": "weighted path", "hops": "moves"}
"""Costs in words."""
STOP_WORDS = {"interrupted": "Ctrl-C", "time": "the time was up"}
HOPELESS = "without any feasible counterfactual"
MAX_COLUMNS = 3
"""Up to so many groups stand side by side in the overview; more stand one below the other."""
MAX_SUBGROUPS = 6
"""Subgroups of a group, and features of a counterfactual, on the screen; files hold all."""
MAX_LINES = 12
"""Lines of an area's table on the screen."""
ROWS = 20
"""Counterfactuals of a group on the screen."""
METHODS = get_args(FeasibleShare.model_fields["method"].annotation)
MAX_VERDICTS = 40
"""Lines of proofs on the screen."""


def show(result: FgceResult, console: Console) -> None:
    """Print the overview, each group's counterfactuals and subgroups, and, with measures, the comparison of groups."""
    fitted, query, measured = result.fitted, result.query, result.measures
    console.print(_graph_line(result))
    console.print(overview(result.groups, k=query.k, cost=query.cost, factuals=query.factuals))
    for group in result.groups:
        if group.short is not None:
            console.print(shortage(group, query.k), soft_wrap=True)
    for name, reason in result.left_out.items():
        console.print(f"left out: {name}: {reason}")
    for group in result.groups:
        if group.advice:
            console.print(advice_grid(group, fitted.schema))
        else:
            console.print(f"{group.name}: nothing so near covers anybody; the cheapest counterfactual costs {group.cheapest:.4g}")
        for line in subgroup_lines(group) if len(group.subgroups) > 1 else []:
            console.print(line, soft_wrap=True)
    if result.re_evaluated is not None and any(group.advice for group in result.groups):
        if result.robust is not None:
            console.print(robust_grid(result, result.robust))
        for line in _network_lines(result, result.re_evaluated):
            console.print(line, soft_wrap=True)
    if measured is not None:
        _show_burden(measured, result.groups, console)
        if query.grid == "all" and not len(measured.steps):
            console.print("Not all costs at which coverage changes were found in time: areas are over ten costs; raise --timeout.")
    if result.comparison:
        console.print(comparison_grid(result.comparison))
    if result.compared is not None:
        title = "What is feasible of other methods' advice, beside FGCE's"
        console.print(_grid(title, methods_table(result.compared), lines=False))
        if (missing := len(METHODS) * len(result.groups) - len(result.compared)) > 0:
            console.print(f"{missing} methods were not asked in this time; raise --timeout.")
    console.print(_closing_line(result), soft_wrap=True)
    if result.note:
        console.print(result.note, soft_wrap=True)


def tables(result: FgceResult) -> dict[str, pd.DataFrame]:
    """Return file name -> table, for tables that are not empty."""
    files = {
        "groups": pd.DataFrame([_flat_line(group) for group in result.groups]),
        "counterfactuals": advice_table(result.groups),
        "explanations": result.explanations,
        "subgroups": subgroup_table(result.groups),
        "attribute-changes": _by_group(result.fitted.attribute_changes()),
        "attribute-sizes": _by_group(result.fitted.attribute_sizes()),
    }
    if result.re_evaluated is not None:
        files["re-evaluated"] = result.re_evaluated
    if result.robust is not None:
        texts = [None if witness is None else words(witness) for witness in result.robust["witness"]]
        files["robust"] = result.robust.assign(witness=texts)
    if result.compared is not None:
        files["compared"] = result.compared
    if (measured := result.measures) is not None:
        files |= {"coverage": measured.coverage, "cost": measured.cost}
        files |= {"kauc": measured.kauc, "dauc": measured.dauc, "cauc": measured.cauc, "breakpoints": measured.steps}
    return {f"{name}.csv": table for name, table in files.items() if len(table)}


def shortage(group: GroupSummary, k: int) -> str:
    """Return, in words, the coverage that k counterfactuals reach of the wanted one, and the number that cover everybody."""
    assert group.short is not None
    problem = f"k = {k} is too few to cover {group.short.asked} of the {group.factuals} people who can be helped"
    remedy = "" if group.short.needed is None else f"; k = {group.short.needed} covers everybody"
    return f"{group.name}: {problem}: it covers {group.covered} at most{remedy}."


def _by_group(table: pd.DataFrame) -> pd.DataFrame:
    return table.rename(columns=beside(("group",), list(table.columns))).rename_axis("group").reset_index()


def _graph_line(result: FgceResult) -> str:
    graph, dropped = result.graph, result.rows.dropped
    rule = "the least that leaves no row alone" if result.query.eps is None else "as given"
    return (
        f"Graph: {graph.nodes:,} rows, {graph.edges:,} moves of length at most {graph.eps:.4g} ({rule}), "
        f"{graph.weak_components:,} weak and {graph.strong_components:,} strong components. Explained: {result.rows.audited}."
        + (f" {dropped:,} rows outside the schema were left out." if dropped else "")
    )


def _closing_line(result: FgceResult) -> str:
    words = f"Costs and shares are measured on these rows. {INTERVALS}; "
    if result.query.method == "greedy":
        return words + f"the choice is greedy's. {result.seconds:.1f} s."
    if {group.certainty.trust for group in result.groups} == {"claimed"}:
        return words + f"that no choice is better is the solver's claim. {result.seconds:.1f} s."
    return words + f"proved optima are about these rows, this graph and these costs. {result.seconds:.1f} s."


def _flat_line(group: GroupSummary) -> dict[str, Any]:
    """Return a group in one line of CSV."""
    return {
        "group": group.name, "to explain": group.negatives, "hopeless": group.hopeless, "factuals": group.factuals,
        "covered": group.covered, "k too few": group.short is not None, "subgroups": len(group.subgroups), "used": group.used,
        "cost": group.cost, "bound": group.certainty.bound,
        "optimised": group.certainty.of, "optimal": group.certainty.optimal, "trust": group.certainty.trust,
        "mean cost": group.mean.mean if group.mean else None, "mean cost low": group.mean.low if group.mean else None,
        "mean cost high": group.mean.high if group.mean else None,
    }


def advice_table(groups: Sequence[GroupSummary]) -> pd.DataFrame:
    """Return one line for each chosen counterfactual: group, row, how many it serves, costs, all its values."""
    lines = []
    for group in groups:
        for a in group.advice:
            line = {"group": group.name, "row": a.row, "serves": a.serves, "largest cost": a.largest, "mean cost": a.mean}
            names = beside(list(line), list(a.values))
            lines.append({**line, **{names[name]: value for name, value in a.values.items()}})
    return pd.DataFrame(lines)


def subgroup_table(groups: Sequence[GroupSummary]) -> pd.DataFrame:
    """Return one line for each subgroup of each group."""
    return pd.DataFrame([
        {"group": group.name, **part.model_dump(), "common": words(part.common)} for group in groups for part in group.subgroups
    ])


def words(values: Mapping[str, Any]) -> str:
    """Return "feature = value, feature = value"."""
    return ", ".join(f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}" for name, value in values.items())


# Groups


def overview(groups: Sequence[GroupSummary], *, k: int, cost: Cost, factuals: str) -> Grid:
    """Return the answer in one table: a column for each group or, if there are many groups, a shorter line."""
    if len(groups) > MAX_COLUMNS:
        return _short_overview(groups)
    frame = pd.DataFrame({
        group.name: {
            factuals.replace("-", " "): str(group.negatives),
            f"of them {HOPELESS}": f"{group.hopeless} ({percent(group.hopeless / group.negatives)})",
            "weak components (subgroups)": str(len(group.subgroups)),
            f"counterfactuals used, of at most {k}": str(group.used),
            "coverage of the others (95%)": _share(group.coverage),
            f"largest cost d ({COSTS[cost]})": _number(group.cost),
            f"how sure {'d' if group.certainty.of == 'cost' else 'coverage'} is": group.certainty.text,
            "mean cost (95%)": _range(group.mean),
        }
        for group in groups
    })
    return _grid("Group counterfactuals", frame)


def _short_overview(groups: Sequence[GroupSummary]) -> Grid:
    lines = {
        group.name: {
            "to explain": str(group.negatives),
            "hopeless": str(group.hopeless),
            "used": str(group.used),
            "covered": percent(group.coverage.mean),
            "cost d": _number(group.cost),
            "optimal": group.certainty.trust if group.certainty.optimal else f"bound {_number(group.certainty.bound)}",
            "mean cost": "-" if group.mean is None else _number(group.mean.mean),
        }
        for group in groups
    }
    return _grid("Group counterfactuals", pd.DataFrame.from_dict(lines, orient="index"), lines=False)


def advice_grid(group: GroupSummary, schema: Schema) -> Grid:
    """Return a group's counterfactuals: the changes that most of the people served by each have to make."""
    grid = Grid(title=f"{group.name}: counterfactuals (rows of the table, from 0)", title_justify="left")
    for column in ("row", "serves", "cost up to"):
        grid.add_column(column, justify="right")
    grid.add_column("must become (share of those served)")
    for advice in group.advice[:ROWS]:
        grid.add_row(str(advice.row), str(advice.serves), _number(advice.largest), changes(advice, schema))
    rest = group.advice[ROWS:]
    if rest:
        grid.add_row("", str(sum(advice.serves for advice in rest)), "", f"{len(rest)} more (--out or --json holds all)")
    return grid


def changes(advice: Advice, schema: Schema) -> str:
    """Return the features that at least half of the people served must change, with the new value, most frequent first."""
    frequent = [(name, share) for name, share in advice.changes.items() if share >= 0.5]
    units = {feature.name: f" {feature.unit_name}" if feature.unit_name else "" for feature in schema.features}
    parts = [f"{words({name: advice.values[name]})}{units[name]} ({_whole(share)})" for name, share in frequent[:MAX_SUBGROUPS]]
    remaining = len(frequent) - MAX_SUBGROUPS
    return ", ".join(parts) + (f", and {remaining} more" if remaining > 0 else "") if parts else "nothing that half of them share"


def subgroup_lines(group: GroupSummary) -> list[str]:
    """Return one line for each subgroup, largest first."""
    shown = group.subgroups[:MAX_SUBGROUPS]
    lines = [f"{group.name}, subgroup {n}: {_subgroup(part)}" for n, part in enumerate(shown, start=1)]
    rest = group.subgroups[MAX_SUBGROUPS:]
    if rest:
        people, hopeless = sum(part.factuals + part.hopeless for part in rest), sum(part.hopeless for part in rest)
        lines.append(f"{group.name}, {len(rest)} smaller subgroups: {people} to be explained, {hopeless} of them {HOPELESS}")
    return lines


def _subgroup(part: Subgroup) -> str:
    total = part.factuals + part.hopeless
    label = f"{words(part.common)}: " if part.common else ""
    if not part.candidates:
        return f"{label}{total} to be explained, no positive row in it"
    hopeless = f" ({part.hopeless} of them {HOPELESS})" if part.hopeless else ""
    rows = counted(part.used, "row serves", "rows serve")
    outcome = f"; {rows} {part.covered}, cost up to {_number(part.largest)}" if part.used else "; none chosen here"
    return f"{label}{total} to be explained{hopeless}, {part.candidates} positive rows{outcome}"


def comparison_grid(lines: Sequence[GroupComparison]) -> Grid:
    """Return a line for each measure: all values if they fit, else the worst and the best."""
    groups = list(lines[0].values)
    is_wide = len(groups) <= MAX_COLUMNS
    grid = Grid(title="Groups compared (a greater burden is worse)", title_justify="left")
    grid.add_column("measure", no_wrap=True)  # wrapped below, so that other columns alone are made narrower
    for name in groups if is_wide else ("values",):
        grid.add_column(name, justify="right")
    grid.add_column("worst for" if len(groups) > 2 else "worse for")
    grid.add_column("by (95%)", justify="right")
    for line in lines:
        difference = f"{line.apart:.3g}" + (f" ({line.chance.low:.3g} .. {line.chance.high:.3g})" if line.chance else "")
        worst = "not compared" if len(line.ranked) < 2 else line.worst or "neither"
        worst = "not clear" if line.worst and not line.clear else worst
        numbers = [value for value in line.values.values() if value == value] or [float("nan")]
        ends = [_number(min(numbers)), _number(max(numbers))]
        values = list(map(_number, line.values.values())) if is_wide else [" .. ".join(dict.fromkeys(ends))]
        grid.add_row(fill(line.measure, 16), *values, worst, difference if line.worst else "")
    too_few = {name: count for line in lines for name, count in line.people.items() if count < SMALL}
    if too_few:
        names = ", ".join(f"{name} ({count})" for name, count in too_few.items())
        grid.caption, grid.caption_justify = f"fewer than {SMALL} people, shown and not compared: {names}", "left"
    return grid


def methods_table(compared: pd.DataFrame) -> pd.DataFrame:
    """Return a line for each group and method: number of rules or rows, shares who get advice and for whom it is feasible, and its
    cost."""
    return pd.DataFrame({
        f"{line.group}: {line.method}": {
            "rules or rows": str(line.size), "advised": percent(line.advised), "feasible": percent(line.coverage),
            "mean cost": _number(line.cost),
        }
        for line in compared.itertuples()
    }).T


# The network's decisions


def robust_grid(result: FgceResult, table: pd.DataFrame) -> Grid:
    """Return a line for each counterfactual, a column for each delta, and the first witness that refutes it."""
    outcomes, deltas = result.fitted.schema.outcomes, sorted(set(table["delta"]))
    values = {(summary.name, advice.row): advice.values for summary in result.groups for advice in summary.advice}
    grid = Grid(title=f"Does it stay {outcomes[1]} nearby? (delta in units, the whole neighbourhood)", title_justify="left")
    for column in ("group", "row"):
        grid.add_column(column, justify="right")
    for delta in deltas:
        grid.add_column(f"delta {delta:g}")
    grid.add_column(f"decided {outcomes[0]} already with")
    parts = list(table.groupby(["group", "row"], sort=False))
    for (group, row), part in parts[:MAX_VERDICTS]:
        grid.add_row(str(group), str(row), *map(_verdict, part.itertuples()), _refuted_by(part, values[(group, row)]))
    if len(parts) > MAX_VERDICTS:
        grid.add_row("", "", *[""] * len(deltas), f"{len(parts) - MAX_VERDICTS} more (--out or --json holds all)")
    return grid


def _refuted_by(part: pd.DataFrame, values: Mapping[str, Any]) -> str:
    """Return the values in which the first witness differs from the counterfactual."""
    for line in part.itertuples():
        if line.witness is not None:
            differing = {name: value for name, value in line.witness.items() if value != values[name]}
            return (words(differing) or "its own values") + (" (not in float32)" if line.float32_agrees is False else "")
    return ""


def _network_lines(result: FgceResult, decided: pd.DataFrame) -> list[str]:
    """Return the lines below the tables."""
    lines = [_decided_line(decided)]
    if result.robust is not None:
        if result.robust["delta"].any():
            lines.append(f"One unit of delta moves {moves(result.fitted.schema, [])}; nothing else moves.")
        lines += result.robust_lines()
        lines.append(f"About the {semantics(result.fitted.model)}.")
    return lines


def _verdict(line: Any) -> str:
    match Status(line.status):
        case Status.PROVED:
            return "proved" if line.trust == "checked" else "claimed"
        case Status.VIOLATED:
            return "refuted"
        case Status.UNKNOWN:
            return f"unknown ({line.reason})"


def _decided_line(table: pd.DataFrame) -> str:
    """Return, in words, how many counterfactuals the network decides positively, and where the runtime differs."""
    rows, positive = table.drop_duplicates("row"), int(table.drop_duplicates("row")["positive"].sum())
    confirmed = f"Decided again by the network: {positive} of {len(rows)} counterfactuals are positive in exact arithmetic"
    differing = rows.loc[rows["agrees"].eq(False), "row"]
    if rows["float32"].isna().all():
        return confirmed + "; its file was not at hand to run in float32."
    if not len(differing):
        return confirmed + ", and onnxruntime (float32) says the same of each."
    return confirmed + f"; onnxruntime (float32) decides {len(differing)} otherwise: rows {', '.join(map(str, differing))}."


# Measures


def _show_burden(measured: Burden, groups: Sequence[GroupSummary], console: Console) -> None:
    if measured.reach:
        console.print(reach_grid(measured, groups))
    kind = "best" if measured.exact else "greedy's"
    for title, table, by in (
        (f"kAUC: {kind} coverage over {'all ' if len(measured.steps) else ''}costs, for each k", measured.kauc, "k"),
        (f"dAUC: {kind} coverage over k, for each cost d", measured.dauc, "d"),
        ("cAUC: least cost over k, for each coverage c", measured.cauc, "c"),
    ):
        if len(table):
            values = table[by].drop_duplicates().sort_values().to_numpy()
            shown_values = values[np.unique(np.linspace(0, len(values) - 1, MAX_LINES).astype(int))]
            note = f" ({len(shown_values)} of {len(values)}; --out or --json holds all)" if len(shown_values) < len(values) else ""
            console.print(curve_grid(title + note, table[table[by].isin(shown_values)], by, groups))
    if measured.points_not_proved_optimal:
        points = counted(measured.points_not_proved_optimal, "point of the curves is", "points of the curves are")
        console.print(f"{points} not proved optimal in this time: scores are of the best known.")
    if measured.stopped:
        console.print(f"The measures were not finished ({STOP_WORDS[measured.stopped]}): what was done by then is shown.")


def curve_grid(title: str, table: pd.DataFrame, by: str, groups: Sequence[GroupSummary]) -> Grid:
    """Return scores with saturation points: rows by k, d or c, columns by group. table: as `Burden.kauc`, `dauc` or `cauc`."""
    bound = "least" if "least" in table else "largest"
    grid = Grid(title=title, title_justify="left")
    grid.add_column(f"\n{by}", justify="right")
    is_wide = len(groups) <= 2
    for group in groups:
        grid.add_column(f"{group.name}\nAUC", justify="right")
        for column in (("sp", "cost" if bound == "least" else "coverage") if is_wide else ()):
            grid.add_column(f"\n{column}", justify="right")
    lines = table.set_index([by, "group"])
    for value in table[by].drop_duplicates():
        cells: list[str] = []
        for group in groups:
            line = lines.loc[(value, group.name)] if (value, group.name) in lines.index else None
            cells.append("-" if line is None else _number(line["score"]))
            if is_wide:
                cells += ["-", "-"] if line is None else [_number(line["saturation"]), _number(line[bound])]
        grid.add_row(f"{value:.3g}", *cells)
    return grid


def reach_grid(burden: Burden, groups: Sequence[GroupSummary]) -> Grid:
    """Return k0 and d0 of every group, and of its subgroups if there are several."""
    grid = Grid(title="What full coverage takes", title_justify="left")
    for column, side in (("", "left"), ("k0", "right"), ("d0 with k0", "right"), ("d0 with any number", "right")):
        grid.add_column(column, justify="left" if side == "left" else "right")
    for group in groups:
        if group.name not in burden.reach:
            continue
        grid.add_row(group.name, *_reach(burden.reach[group.name]))
        parts = burden.subgroups.get(group.name, {})
        for n, part in enumerate(group.subgroups[:MAX_SUBGROUPS] if len(group.subgroups) > 1 else [], start=1):
            if part.component in parts:
                grid.add_row(f"  subgroup {n}: {words(part.common)}".rstrip(": "), *_reach(parts[part.component]))
    return grid


def _reach(reach: Reach | None) -> tuple[str, str, str]:
    if reach is None:
        return "time was up", "-", "-"
    return str(reach.k0), _number(reach.d0) + ("" if reach.optimal else " at most (time was up)"), _number(reach.d_least)


def _grid(title: str, frame: pd.DataFrame, *, lines: bool = True) -> Grid:
    """Return a table as a grid.   lines: draw lines between columns; without them more columns fit on a screen of 80."""
    grid = Grid(title=title, title_justify="left", box=box.HEAVY_HEAD if lines else box.SIMPLE_HEAD)
    grid.add_column("", min_width=16 if lines else None)
    for column in frame.columns:
        grid.add_column(str(column), justify="right")
    for label, line in frame.iterrows():
        grid.add_row(str(label), *map(str, line))
    return grid


def _number(value: float) -> str:
    """Return a number with four digits; - if it is not known."""
    return "-" if value != value else "none" if np.isinf(value) else f"{value:.4g}"


def _whole(value: float) -> str:
    return "all" if value == 1 else f"{min(round(100 * value), 99)}%"


def _share(interval: Interval) -> str:
    if interval.low == interval.high:
        return percent(interval.mean)
    return f"{percent(interval.mean)} ({percent(interval.low)} .. {percent(interval.high)})"


def _range(interval: Interval | None) -> str:
    if interval is None:
        return "-"
    if np.isnan(interval.low):
        return f"{_number(interval.mean)} (one person)"
    return f"{_number(interval.mean)} ({_number(interval.low)} .. {_number(interval.high)})"
