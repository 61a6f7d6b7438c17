"""PBA on the screen and in files: the paper's table (Tables 1-3)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Table as Grid

from encoders.bounds.float32 import margin_error
from verifair.checker.certificates.envelope import semantics
from verifair.checker.words import counted, float32_words
from verifair.engine.questions import classes, margin
from verifair.engine.store import COLUMNS, json_lines
from verifair.files import whole
from verifair.systems.groups import SMALL
from verifair.systems.pba.evidence import certificates, in_words
from verifair.systems.pba.result import PbaResult
from verifair.systems.results.words import percent

RATES = ("SP", "TPR", "FPR", "CFA")
MAX_GROUPS = 5
"""So many groups of a feature have a column on the screen, those with the most people."""
MAX_PAIRS, WORST = 20, 10
"""Of more ordered pairs than the first, so many are on the screen as the second says."""


def show(result: PbaResult, console: Console) -> None:
    """Print one table for each protected feature, then the number of decided questions, and the subject of the proofs."""
    schema, tally, counts = result.described, result.tally, result.counts
    names = [feature.name for feature in schema.features]
    for name in result.rates["sensitive"].drop_duplicates():
        single = name in names
        console.print((screen_table if single else group_table)(name, result.rates, result.shares))
        if single and (more := len(groups_of(name, result.rates)) - MAX_GROUPS) > 0:
            count_words = counted(more, "smaller group is", "smaller groups are")
            console.print(f"{count_words} in rates.csv and shares.csv (--out FOLDER).", soft_wrap=True)
        if (without := without_pairs(name, result.rates)):
            console.print(f"CFA: none for {without}, of whom the schema's constraints allow no counterfactual.", soft_wrap=True)
        for line in gap_words(result.gaps[result.gaps["sensitive"] == name], result.rates):
            console.print(line, soft_wrap=True)
        if single and len(schema.values(name)) > 2:
            console.print(pair_table(name, result.shares))
            if (pairs := len(pairs_of(name, result.shares))) > MAX_PAIRS:
                pairs_shown = f"These are the {WORST} of {pairs:,} ordered pairs with the most people for whom PBA is proved"
                console.print(f"{pairs_shown}; all are in shares.csv (--out FOLDER).", soft_wrap=True)
    if len(result.rates["sensitive"].drop_duplicates()) > len(result.protected):
        console.print("What exchanging several features at once changes was not asked: pass --intersections.", soft_wrap=True)
    claimed = int(tally.loc[tally["trust"] == "claimed", "number"].sum())
    console.print(
        f"{tally['number'].sum():,} questions in {result.seconds:.1f} s: {counts.proved:,} proved, {counts.violated:,} refuted by "
        f"an exact point, {counts.unknown:,} unknown" + (f"; {claimed:,} proofs are only claimed by a solver" if claimed else "")
    )
    if counts.proved:
        console.print(
            f"{float32_words(int(tally.loc[tally['float32'] == 1, 'number'].sum()), counts.proved)}.", soft_wrap=True
        )
    if counts.unknown:
        reasons = tally[tally["status"] == "unknown"].groupby("reason")["number"].sum().sort_values(ascending=False, kind="stable")
        console.print("unknown because of: " + ", ".join(f"{reason} ({n})" for reason, n in reasons.items()))
    if counts.violated and result.network.of_trees:
        console.print(tie_words(result), soft_wrap=True)
    disagree = int(tally.loc[tally["float32_agrees"] == 0, "number"].sum())
    if disagree:
        console.print(f"{disagree:,} exact violations are too small to show in the float32 runtime (float32_agrees = false)")
    console.print(f"Proofs are about the {semantics(result.network)}.")


def tie_words(result: PbaResult) -> str:
    """Return, in words, how many counterexamples on a tree ensemble depend on a tie, or on the order of a float32 sum."""
    model, trees = result.network, result.network.ensemble
    pairs = combinations(range(classes(model)), 2)
    error = 0.0 if trees is None else max(margin_error(trees, margin(model, i, j)) for i, j in pairs)
    known = min(error, sys.float_info.max)     # no rounding of its sums may be known
    ties, n_near = (sum(counts) for counts in zip(*(asked.verdicts.ties(known) for asked in result.asked), strict=True))
    quantity = result.described.quantity.removeprefix("model's ")
    near = f"{n_near:,} more are so near to one that the order of a float32 sum may decide"
    return (
        f"Of the {result.counts.violated:,} exact points {ties:,} are ties (both copies have the same {quantity}, "
        f"or no decision is ahead); {near if known == error else 'how float32 rounds the sums of this model is not known'}."
    )


def tables(result: PbaResult) -> dict[str, pd.DataFrame]:
    """Return file name -> table."""
    return {"shares.csv": result.shares, "gaps.csv": result.gaps, "rates.csv": result.rates}


def write(result: PbaResult, folder: Path) -> str | None:
    """Write the verdicts as JSON lines and, with pyarrow, as Parquet, part by part, and the certificates of each query."""
    columns = None if find_spec("pyarrow") is None else folder / "verdicts.parquet"
    with (
        whole(folder / "verdicts.jsonl") as temporary, open(temporary, "wb") as lines,
        nullcontext() if columns is None else _parquet(columns) as add_part,
    ):
        for part in _parts(result):
            lines.writelines(json_lines(part))
            if add_part is not None:
                add_part(part)
    for asked in result.asked:
        name = f"{'certificate' if asked.is_bias else 'certificate-robustness'}{result.suffix(asked.sensitive)}"
        for _ in certificates(asked, result.people, folder, name):
            pass
    return None if columns else 'verdicts.jsonl is not written as Parquet as well: pip install "verifair[parquet]"'


@contextmanager
def _parquet(path: Path) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Open a file, and yield a function that adds verdicts to it, with one type for each column."""
    import pyarrow
    import pyarrow.parquet

    kinds = {
        **dict.fromkeys(COLUMNS, pyarrow.string()), **dict.fromkeys(("delta", "lower", "upper"), pyarrow.float64()),
        **dict.fromkeys(("row", "float32_agrees", "nodes", "float32"), pyarrow.int64()),
    }  # fmt: skip
    shape = pyarrow.schema(list(kinds.items()))
    # pyarrow takes no name outside UTF-8
    with whole(path) as temporary, open(temporary, "wb") as stream, pyarrow.parquet.ParquetWriter(stream, shape) as file:
        yield lambda part: file.write_table(pyarrow.Table.from_pandas(part, shape, preserve_index=False))


def _parts(result: PbaResult) -> Iterator[pd.DataFrame]:
    for asked in result.asked:
        for part in asked.verdicts.parts():
            yield in_words(asked.query, part).astype({"group": str, "to": str, "against": str, "label": str})


def screen_table(sensitive: str, rates: pd.DataFrame, shares: pd.DataFrame) -> Grid:
    """Return a table with a column for each group and a line for each metric; PBA and RB by setting and delta, open shares beside
    proved ones."""
    people = groups_of(sensitive, rates)
    rates, shares = rates[rates["sensitive"] == sensitive], shares[shares["sensitive"] == sensitive]
    groups = people.index[people.index.isin(people.nlargest(MAX_GROUPS).index)].tolist()
    grid = Grid(title=f"Fairness by {sensitive}", title_justify="left")
    for column in ("metric", "setting", "delta"):
        grid.add_column(column)
    for group in groups:
        grid.add_column(str(group), justify="right")
    values = rates.set_index(["metric", "group"])["value"]
    for metric in RATES:
        cells = [percent(float(values.loc[(metric, g)])) for g in groups]
        grid.add_row({"TPR": "EO (TPR)", "FPR": "EO (FPR)"}.get(metric, metric), "", "", *cells)
    for metric in ("RB", "PBA"):
        grid.add_section()
        for setting in ("observed", "flipped"):
            lines = shares[(shares["metric"] == metric) & (shares["setting"] == setting)]
            for delta in sorted(lines["delta"].unique()):
                counts = lines[lines["delta"] == delta].groupby("shown")[["rows", "proved", "unknown"]].sum()
                grid.add_row(metric, setting, f"{delta:g}", *[_share(counts, g) for g in groups])
    return grid


def group_table(sensitive: str, rates: pd.DataFrame, shares: pd.DataFrame) -> Grid:
    """Return a table with a line for each combination of several features: its rates, and PBA observed and flipped for each
    delta."""
    rates, shares = rates[rates["sensitive"] == sensitive], shares[(shares["sensitive"] == sensitive) & (shares["metric"] == "PBA")]
    grid = Grid(title=f"Fairness by {sensitive}", title_justify="left")
    deltas = sorted(shares["delta"].unique())
    grid.add_column("group")
    for column in ("people", "SP", "EO (TPR)", "EO (FPR)", "CFA"):
        grid.add_column(column, justify="right")
    for delta in deltas:
        grid.add_column(f"PBA {delta:g}\nobserved", justify="right")
        grid.add_column("\nflipped", justify="right")
    table = rates.set_index(["metric", "group"])
    counts = shares.groupby(["setting", "delta", "shown"])[["rows", "proved", "unknown"]].sum()
    for group in rates["group"].drop_duplicates():
        people = int(table.loc[("SP", group), "rows"])
        if people:
            cells = [percent(float(table.loc[(metric, group), "value"])) for metric in RATES]
            keys = [(setting, delta, group) for delta in deltas for setting in ("observed", "flipped")]
            proved = [_cell(counts.loc[key]) if key in counts.index else "-" for key in keys]
            grid.add_row(str(group), f"{people:,}", *cells, *proved)
    return grid


def gap_words(gaps: pd.DataFrame, rates: pd.DataFrame) -> Iterator[str]:
    """Yield a line for each rate's gap between the highest and the lowest group."""
    table = rates.set_index(["sensitive", "metric", "group"])
    for line in gaps.itertuples(index=False):
        note = f" {counted(line.small, 'group', 'groups')} of fewer than {SMALL} people not compared." if line.small else ""
        if line.groups < 2:
            yield f"{line.metric}: no gap, for fewer than two groups have {SMALL} people.{note}"
            continue
        ends = [table.loc[(line.sensitive, line.metric, group), ["value", "rows"]] for group in (line.highest, line.lowest)]
        (high, n_high), (low, n_low) = ends
        joint = "" if line.groups == 2 else f", for all pairs of {line.groups} groups at once"
        yield (
            f"{line.metric}: {percent(high)} of {n_high:,.0f} people with {line.sensitive} {line.highest}, {percent(low)} of "
            f"{n_low:,.0f} with {line.sensitive} {line.lowest}; "
            f"gap {100 * line.gap:.1f} points (95 % interval {100 * line.low:.1f} to {100 * line.high:.1f}{joint}).{note}"
        )


def groups_of(sensitive: str, rates: pd.DataFrame) -> pd.Series:
    """Return the people of each group that has any, in the schema's order."""
    lines = rates[(rates["sensitive"] == sensitive) & (rates["metric"] == "SP")]
    people = lines.groupby("group", sort=False)["rows"].sum()
    return people[people > 0]


def without_pairs(sensitive: str, rates: pd.DataFrame) -> str:
    """Return the groups that have people but no legal counterfactual, separated by semicolons."""
    lines = rates[(rates["sensitive"] == sensitive) & (rates["metric"] == "CFA") & (rates["rows"] == 0)]
    return "; ".join(lines["group"][lines["group"].isin(groups_of(sensitive, rates).index)])


def pairs_of(sensitive: str, shares: pd.DataFrame) -> pd.Series:
    """Return for each ordered pair of groups the people for whom PBA is proved, in the setting and delta that has the most."""
    lines = shares[(shares["sensitive"] == sensitive) & (shares["metric"] == "PBA")]
    return lines.groupby(["group", "to", "setting", "delta"])["proved"].sum().groupby(level=["group", "to"]).max()


def pair_table(sensitive: str, shares: pd.DataFrame) -> Grid:
    """Return PBA for ordered pairs of groups, all or the worst: the shares of rows proved more confident than their counterfactual,
    and the reverse."""
    lines = shares[(shares["sensitive"] == sensitive) & (shares["metric"] == "PBA")]
    pairs = pairs_of(sensitive, shares)
    if len(pairs) > MAX_PAIRS:
        worst = pairs.nlargest(WORST, keep="first").index
        lines = lines[pd.MultiIndex.from_frame(lines[["group", "to"]]).isin(worst)]
    grid = Grid(title=f"PBA by ordered pair of {sensitive}", title_justify="left")
    for column in ("from", "to", "delta"):
        grid.add_column(column)
    for column in ("rows", "observed", "flipped"):
        grid.add_column(column, justify="right")
    for (group, to, delta), part in lines.groupby(["group", "to", "delta"]):
        counts = ["rows", "proved", "unknown"]
        cells = [_cell(part.loc[part["setting"] == setting, counts].sum()) for setting in ("observed", "flipped")]
        rows = int(part.loc[part["setting"] == "observed", "rows"].sum())
        grid.add_row(str(group), str(to), f"{delta:g}", str(rows), *cells)
    return grid


def _share(counts: pd.DataFrame, group: object) -> str:
    return _cell(counts.loc[group]) if group in counts.index else "-"


def _cell(counts: pd.Series) -> str:
    rows, proved, unknown = (float(counts[name]) for name in ("rows", "proved", "unknown"))
    if not rows:
        return "-"
    return percent(proved / rows) + (f" (+{percent(unknown / rows)} open)" if unknown else "")
