"""CST on the screen and in files: cases by method, attributes that the intervention moves, overlaps, several attributes, people to
review, robustness to the causal model, and proofs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Table as Grid

from verifair.systems.cst.causal.model import CausalModel
from verifair.systems.cst.deciders import Decider, Recorded
from verifair.systems.cst.findings import Intervention, several
from verifair.systems.cst.groups import in_words
from verifair.systems.cst.result import CertifiedDecisions, ClaimRobustness, CstResult
from verifair.systems.cst.robustness.certified import DEPENDS, FLIPS, LEFT_OUT, REASONS, STAYS, UNKNOWN
from verifair.systems.cst.robustness.sensitivity import LEVELS
from verifair.systems.results.files import save_text
from verifair.systems.results.spreadsheets import save_table
from verifair.systems.results.words import percent

SIZES = 4
"""Group sizes side by side; more stand in a table below."""
MEANINGS = {
    "CST w/o": "the k nearest to the complainant in the own group against the k nearest to the counterfactual in the other group",
    "ST": "situation testing: both sets are nearest to the complainant",
    "CST": "as CST w/o, but complainant and counterfactual are counted in their sets",
    "CF": "the complainant is refused, the counterfactual is not",
}
CF_POSITIVE = "the complainant is not refused, the counterfactual is"
"""CF where cases are people who are treated better."""
SHORT_DECISIONS = {"negative": "neg.", "positive": "pos."}
MAX_LETTERS = 150
"""Letters of an equation on the screen."""
MAX_ATTRIBUTES = 8
"""Attributes on the screen."""
PROVED = {
    FLIPS: "would be decided otherwise", STAYS: "would be decided as they are", DEPENDS: "depend on coefficients or categories",
    UNKNOWN: "are unknown",
}


def show(result: CstResult, console: Console) -> None:
    """Print the decider, the causal model, each intervention, several attributes beside each other, and robustness and proofs."""
    model, first = result.model, result.tests[0]
    console.print(f"Table: {result.query.rows:,} rows of {result.query.data}. {decides(model.decider)}", soft_wrap=True)
    if result.differing is not None:
        console.print(result.differing, soft_wrap=True)
    console.print(f"Method: {first.method}, over {', '.join(model.attributes_)}.", soft_wrap=True)
    console.print(f"Causal model ({result.causal_file}):", soft_wrap=True)
    for line in equation_lines(model.causal_model_):
        console.print(f"  {line}", soft_wrap=True)
    for test in result.tests:
        console.print("\n" + heading(test), soft_wrap=True)
        for grid in counts_grids(test):
            console.print(grid)
        if test is first:
            console.print(legend(test), soft_wrap=True)
        for table in (drawn_grid(test), rates_grid(test), changes_grid(test), review_grid(test, result.top)):
            if table is not None:
                console.print(table)
        for line in _lines(test):
            console.print(line, soft_wrap=True)
    joint = several_grid(result.tests)
    if joint is not None:
        console.print(joint)
    for robust in result.sensitivity:
        console.print(robust_grid(robust))
        for line in robust_lines(robust):
            console.print(line, soft_wrap=True)
    for line in (line for certified in result.certified for line in certified_lines(certified)):
        console.print(line, soft_wrap=True)
    for line in (*map(missing_line, result.not_tested), *result.notes, f"{honest_line()} {result.seconds:.1f} s."):
        console.print(line, soft_wrap=True)
    for case in () if result.to_folder else (case for cases in result.cases for case in cases):
        console.print("\n" + case.markdown(None), soft_wrap=True)


def _lines(test: Intervention) -> list[str]:
    """Return the lines below the tables of one intervention."""
    lines = [left_out_line(test), nothing_line(test), *overlap_lines(test), unknown_line(test), chance_line(test), dealt_line(test)]
    lines.append(drawn_line(test))
    return [line for line in lines if line is not None]


def tables(result: CstResult) -> dict[str, pd.DataFrame]:
    """Return file name -> table; `write` writes the claims."""
    names = ("counts", "counterfactuals", "overlaps", "rates", "changes")
    files = {f"{'summary' if name == 'counts' else name}.csv": _of_all(result.tests, name) for name in names}
    if result.certified:
        files["certified.csv"] = _of_all(result.certified, "people")
    if result.sensitivity:
        files["sensitivity.csv"] = _of_all(result.sensitivity, "table")
    draw_tables = [_named(test.name, test.draws.counts.drop(columns="by draw")) for test in result.tests if test.draws is not None]
    if draw_tables:
        files["draws.csv"] = pd.concat(draw_tables, ignore_index=True)
    return files | ({"several.csv": result.several} if len(result.several) else {})


def _of_all(findings: Sequence[Intervention | CertifiedDecisions | ClaimRobustness], name: str) -> pd.DataFrame:
    """Return a table of each intervention as one, whose first column names the intervention."""
    return pd.concat([_named(finding.name, getattr(finding, name)) for finding in findings], ignore_index=True)


def _named(name: str, table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(do=name)[["do", *table.columns]]


def write(result: CstResult, folder: Path) -> None:
    """Write equations, claims (in parts: for a million people they are large) and case files; delete an earlier run's tables."""
    for name in {"certified.csv", "draws.csv", "sensitivity.csv", "several.csv"} - set(tables(result)):
        (folder / name).unlink(missing_ok=True)
    if not result.sensitivity:
        (folder / "sensitivity.png").unlink(missing_ok=True)
    save_text(folder / "equations.txt", "\n".join(result.equations) + "\n")
    save_table(folder / "claims.csv", (_named(test.name, part) for test in result.tests for part in test.parts()))
    for test, cases in zip(result.tests, result.cases, strict=True):
        for case in cases:
            save_text(folder / f"{result.folder(test)}cases/{case.file}.md", case.markdown(f"{case.file}.png"))


def decides(decider: Decider) -> str:
    """Return the line that names the deciders on the rows and on counterfactuals."""
    if not isinstance(decider, Recorded):
        return f"Decides: {decider.words}, on the counterfactuals as well."
    tilde = "nobody decided" if decider.counterfactual is None else f"decides {decider.counterfactual.words}"
    return f"Decides: {decider.words}; on the counterfactuals {tilde}."


def counts_grids(test: Intervention) -> list[Grid]:
    """Return Table 1: number and share of cases, and of significant ones."""
    table, sizes = test.counts, test.k
    grids = []
    for begin in range(0, len(sizes), SIZES):
        shown_sizes = sizes[begin : begin + SIZES]
        grid = Grid()
        grid.add_column("")
        for k in shown_sizes:
            grid.add_column(f"k = {k}", justify="right")
        for method in test.methods:
            lines = table[table["method"] == method].set_index("k")
            grid.add_row(method, *(_count(lines.loc[k, "cases"], lines.loc[k, "share"]) for k in shown_sizes))
            cells = (_count(lines.loc[k, "significant"], lines.loc[k, "significant share"]) for k in shown_sizes)
            grid.add_row("  significant" + (" by CST's interval" if method == "CF" else ""), *cells)
            if test.chance is not None and method in set(test.chance["method"]):
                for label, column in (
                    ("  cases by chance", "share by chance"),
                    ("  sig. by chance", "significant share by chance"),
                ):
                    grid.add_row(label, *(f"({percent(lines.loc[k, column])})" for k in shown_sizes))
        grids.append(grid)
    return grids


def drawn_grid(test: Intervention) -> Grid | None:
    """Return the numbers of cases over the draws of categories; None if nothing was drawn anew."""
    if test.draws is None or not test.draws.categories:
        return None
    grid = Grid(title=f"Cases over {len(test.draws.seeds)} draws of categories, k = {test.smallest}", title_justify="left")
    grid.add_column("")
    for column in ("this draw", "mean", "least .. most", "in over half of the draws"):
        grid.add_column(column, justify="right")
    for line in test.draws.counts.to_dict(orient="records"):
        ends_ = f"{line['least']:,} .. {line['most']:,}"
        grid.add_row(line["method"], f"{line['cases']:,}", f"{line['mean']:,.1f}", ends_, f"{line['in over half']:,}")
    return grid


def heading(test: Intervention) -> str:
    """Return the line above the tables of one intervention."""
    return f"do({test.name}): potential discrimination of {test.complainants:,} complainants (evidence, not proved)"


def legend(test: Intervention) -> str:
    better = {"CF": CF_POSITIVE} if test.found.terms.direction == "positive" else {}
    meanings = "; ".join(f"{method}: {words}" for method, words in (MEANINGS | better).items() if method in test.methods)
    return f"Cases: {test.found.terms.case}. {meanings}."


def rates_grid(test: Intervention) -> Grid:
    """Return the shares of negative decisions of each group, factual and counterfactual."""
    grid = Grid(title="Negative decisions", title_justify="left")
    grid.add_column("group")
    for column in ("people", "factual", "counterfactual"):
        grid.add_column(column, justify="right")
    for line in test.rates.to_dict(orient="records"):
        tilde = "-" if line["group"] == test.name else percent(line["counterfactual"])
        grid.add_row(line["group"], f"{line['people']:,}", percent(line["negative"]), tilde)
    return grid


def changes_grid(test: Intervention) -> Grid | None:
    """Return the other attributes that the intervention changes; None if there are none."""
    table = test.changes
    if not len(table):
        return None
    grid = Grid(title=f"What do({test.name}) changes", title_justify="left")
    grid.add_column("attribute")
    grid.add_column("people", justify="right")
    grid.add_column("mean, or most frequent change")
    for line in table.head(MAX_ATTRIBUTES).to_dict(orient="records"):
        words = line["moves"] or f"{line['before']:,.6g} -> {line['after']:,.6g}"
        grid.add_row(line["attribute"], f"{line['people']:,}", words)
    if len(table) > MAX_ATTRIBUTES:
        grid.add_row(f"and {len(table) - MAX_ATTRIBUTES} more", "", "")
    return grid


def left_out_line(test: Intervention) -> str | None:
    """Return a line that names the groups left out as too small for the largest k; None if there are none."""
    groups = test.left_out
    if not groups:
        return None
    names = ", ".join(f"{name} ({count} people)" for name, count in groups.items())
    return f"Not tested, since their groups are too small for k = {max(test.k)} (--small leave-out): {names}."


def nothing_line(test: Intervention) -> str | None:
    """Return a note if the attribute has no effect, so that CST w/o equals ST; else None."""
    if len(test.moved):
        return None
    return f"do({test.name}) changes no other attribute in this causal model, so CST w/o equals situation testing (ST)."


def equation_lines(model: CausalModel) -> list[str]:
    """Return the causal model: its roots, then an equation for each other node, long ones cut."""
    by_name = {name: line for name, line in zip(model.order, model.equations(), strict=True) if name not in model.roots}
    lines = [line if len(line) <= MAX_LETTERS else f"{line[:MAX_LETTERS]}... (--out: equations.txt)" for line in by_name.values()]
    return [f"given: {', '.join(model.roots)}", *lines]


def overlap_lines(test: Intervention) -> list[str]:
    """Return lines with the numbers of people found by one method only."""
    table = test.overlaps
    lines = []
    for (method, other), rows in table.groupby(["found by", "not by"], sort=False):
        numbers = ", ".join(f"{people:,}" for people in rows["people"])
        lines.append(f"Found by {method} and not by {other}: {numbers} (k = {', '.join(map(str, rows['k']))}).")
    return lines


def several_grid(tests: Sequence[Intervention]) -> Grid | None:
    """Return the table of several attributes beside each other; None for one attribute."""
    table = several(tests)
    if not len(table):
        return None
    joint = table["intersectional"].notna().any()
    names = " and ".join(in_words(test.found.do) for test in tests if len(test.found.do) == 1)
    grid = Grid(title=f"{names}: of {table['people'].iloc[0]:,} people protected by all", title_justify="left")
    tested = next((test.complainants for test in tests if len(test.found.do) > 1), 0)
    jointly = "intersectional: jointly" + (f", of {tested:,} tested" if tested < table["people"].iloc[0] else "")
    columns = ("method", "k", "multiple: by each alone", *((jointly,) if joint else ()))
    for n, column in enumerate(columns):
        grid.add_column(column, justify="left" if not n else "right")
    for line in table.to_dict(orient="records"):
        cells = [line["method"], str(line["k"]), f"{line['multiple']:,}"]
        grid.add_row(*cells, *((f"{int(line['intersectional']):,}",) if joint else ()))
    return grid


def review_grid(test: Intervention, top: int) -> Grid | None:
    """Return the table of people to look at first; None if there is nobody."""
    table = test.review(top)
    if not len(table) or not top:
        return None
    largest, groups = max(test.k), len(test.found.names) > 1
    grid = Grid(title=f"To review first ({test.ranking}, k = {test.smallest}; rows of the table, from 0)", title_justify="left")
    grid.add_column("row", justify="right")
    for column in ("group", "decision") if groups else ("decision",):
        grid.add_column(column)
    has_draws = test.draws is not None and test.draws.categories
    for column in ("control", "test", "delta p", test.found.terms.label, "draws" if has_draws else f"k = {largest}"):
        if column != f"k = {test.smallest}":
            grid.add_column(column, justify="right")
    for line in table.to_dict(orient="records"):
        tilde = line["decision counterfactual"]
        cells = [str(line["row"]), *((line["group"],) if groups else ())]
        cells.append(line["decision"] if tilde == "-" else f"{SHORT_DECISIONS[line['decision']]} -> {SHORT_DECISIONS[tilde]}")
        cells += [f"{line['control']:.2f}", f"{line['test']:.2f}", f"{line['delta']:+.2f}{'*' if line['significant'] else ''}"]
        cells.append(ends(line["low"], line["high"]))
        if has_draws:
            cells.append(percent(line["share of draws"]))
        elif largest != test.smallest:
            cells.append(f"{line['delta wide']:+.2f}")
        grid.add_row(*cells)
    return grid


def chance_line(test: Intervention) -> str:
    """Return the line about significance and multiple testing."""
    terms, people, by_chance = test.found.terms, test.complainants, test.expected_significant_by_chance
    numbers = ", ".join(f"{int(test.found.claims(test.ranking, k).significant.sum()):,} (k = {k})" for k in test.k)
    if terms.correction is not None:
        return (
            f"Significant: the {terms.words} lies {terms.beyond}, and at most {100 * terms.alpha:.3g} % of the "
            f"significant are false on average (Benjamini-Hochberg). Of {people:,} "
            f"complainants, {test.ranking} finds {numbers}."
        )
    means = f"Significant: the {terms.words} lies {terms.beyond}."
    if test.chance is not None:  # measured; the level does not predict it, as neighbours get like decisions
        return f"{means} Everybody is tested, and chance alone makes some significant (above). A case alone says little."
    return (
        f"{means} Everybody is tested: at this level chance alone would make about {by_chance:,.0f} of {people:,} significant; "
        f"{test.ranking} finds {numbers}. A case alone says little. --chance 10 measures what chance finds, --correct bh "
        "limits the share of false cases."
    )


def dealt_line(test: Intervention) -> str | None:
    """Return the explanation of the lines "by chance"; None without them."""
    if test.chance is None:
        return None
    return (
        "By chance: the same test with the protected values shuffled among the rows, so that they mean nothing; mean of the "
        "shuffles. Only the excess is evidence. Groups of unequal size differ more by chance as k grows."
    )


def drawn_line(test: Intervention) -> str | None:
    """Return the explanation of the draws, or a note that there is nothing to draw; None if not asked for."""
    if test.draws is None:
        return None
    if not test.draws.categories:
        return f"do({test.name}) draws no category that the test reads, so all draws would be equal and none was made (--draws)."
    names, (first, *_, last) = ", ".join(test.draws.categories), test.draws.seeds
    return (
        f"Draws: categories of counterfactuals ({names}), drawn with seeds {first} to {last}; ST does not depend on them. The "
        "share of draws in which each person is a case, with its 95 % interval, is in claims.csv (--out) and in --json."
    )


def missing_line(name: str) -> str:
    """Return the line about an intervention that was not tested."""
    return f"do({name}) was not tested: the time was up."


def honest_line() -> str:
    return (
        "Statistical evidence under the stated causal model and on these rows, never a proof: another graph or other equations "
        "give other counterfactuals, and the k nearest are no random sample."
    )


def unknown_line(test: Intervention) -> str | None:
    """Return a note if nobody decides on counterfactuals; else None."""
    if "CF" in test.methods:
        return None
    return (
        "Decisions are recorded ones, and nobody decided on the counterfactuals: neither CF nor CST with search centers can be "
        "computed. Name a rule, or a network, that decides on them."
    )


def robust_grid(robust: ClaimRobustness) -> Grid:
    """Return the share of claims that hold, for each of LEVELS, and of those that are overturned."""
    title = f"How wrong must the causal model be? do({robust.name}), k = {robust.k}"
    grid = Grid(title=f"{title}\nclaims that hold while each coefficient is off by at most", title_justify="left")
    grid.add_column("claims")
    for column in ("number", *(f"{t:g} SE" for t in LEVELS), f"lost, {LEVELS[-1]:g} SE"):
        grid.add_column(column, justify="right")
    for claims in robust.claims:
        cells = [percent(claims.found.robust(t)[0]) for t in LEVELS] + [percent(claims.found.robust(LEVELS[-1])[1])]
        grid.add_row(claims.called, f"{claims.claims:,}", *cells)
    return grid


def robust_lines(robust: ClaimRobustness) -> Iterator[str]:
    """Yield the lines that explain the shares."""
    yield (
        "SE: standard errors of the coefficients. A claim holds where none within so many overturn it, and is lost where "
        "some were found that do; the rest is not known. Graph, form of the equations and the categories drawn for counterfactuals "
        "are taken as they are."
    )
    first = robust.claims[0]
    lines = first.coefficients.sort_values("overturns", ascending=False, kind="stable").to_dict(orient="records")
    parts = [f"{line['coefficient']} {line['overturns']:,}" for line in lines if line["overturns"]]
    yield (
        f"Overturned within {LEVELS[-1]:g} SE by one coefficient alone ({first.called}): {', '.join(parts) or 'none'}"
        f"{f'; none by the other {len(lines) - len(parts)}' if 0 < len(parts) < len(lines) else ''}."
    )


def certified_lines(result: CertifiedDecisions) -> Iterator[str]:
    """Yield lines: the proved decisions, the assumptions, the reasons of unknown ones, and the file of the proofs."""
    parts = ", ".join(f"{count:,} {PROVED[status]}" for status, count in result.found.counts.items() if count)
    yield (
        f"Certified under do({result.name}), for every coefficient in its interval: of {result.rows:,} complainants {parts} "
        f"({result.seconds:.1f} s)."
    )
    yield f"Taken as given are {result.given} ({result.box})."
    if result.categories:
        low, high = result.found.otherwise.sum(axis=0)
        yield (
            f"Counterfactuals may have several categories ({', '.join(result.categories)}). The most probable were looked at; they "
            f"have {100 * (1 - result.found.left.mean()):.1f} % of the probability. By the causal model's probabilities, "
            f"{low:,.1f} .. {high:,.1f} of {result.rows:,} complainants are expected to be decided otherwise. The decisions above "
            f"leave out {LEFT_OUT}."
        )
    if result.unknown:
        yield f"Unknown: {', '.join(f'{count:,} ({REASONS[reason]})' for reason, count in result.unknown.items())}."
    if result.saved is not None:
        yield result.saved


def ends(low: float, high: float) -> str:
    return f"{low:+.2f} .. {high:+.2f}"


def _count(number: float, share: float) -> str:
    return f"{int(number):,} ({percent(share)})"
