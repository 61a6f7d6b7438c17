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
MEANING = {
    "CST w/o": "the k nearest to the complainant in the own group against the k nearest to the counterfactual in the other group",
    "ST": "situation testing: both sets are nearest to the complainant",
    "CST": "as CST w/o, but complainant and counterfactual are counted in their sets",
    "CF": "the complainant is refused, the counterfactual is not",
}
BETTER = "the complainant is not refused, the counterfactual is"
"""CF where cases are people who are treated better."""
SHORT = {"negative": "neg.", "positive": "pos."}
LONG = 150
"""Letters of an equation on the screen."""
MOVED = 8
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
    for one in result.tests:
        console.print("\n" + heading(one), soft_wrap=True)
        for grid in counts_grids(one):
            console.print(grid)
        if one is first:
            console.print(legend(one), soft_wrap=True)
        for table in (drawn_grid(one), rates_grid(one), changes_grid(one), review_grid(one, result.top)):
            if table is not None:
                console.print(table)
        for line in _lines(one):
            console.print(line, soft_wrap=True)
    together = several_grid(result.tests)
    if together is not None:
        console.print(together)
    for robust in result.sensitivity:
        console.print(robust_grid(robust))
        for line in robust_lines(robust):
            console.print(line, soft_wrap=True)
    for line in (line for one in result.certified for line in certified_lines(one)):
        console.print(line, soft_wrap=True)
    for line in (*map(missing_line, result.not_tested), *result.notes, f"{honest_line()} {result.seconds:.1f} s."):
        console.print(line, soft_wrap=True)
    for case in () if result.to_folder else (case for cases in result.cases for case in cases):
        console.print("\n" + case.markdown(None), soft_wrap=True)


def _lines(one: Intervention) -> list[str]:
    """Return the lines below the tables of one intervention."""
    lines = [left_out_line(one), nothing_line(one), *overlap_lines(one), unknown_line(one), chance_line(one), dealt_line(one)]
    lines.append(drawn_line(one))
    return [line for line in lines if line is not None]


def tables(result: CstResult) -> dict[str, pd.DataFrame]:
    """Return file name -> table; `write` writes the claims."""
    names = ("counts", "counterfactuals", "overlaps", "rates", "changes")
    out = {f"{'summary' if name == 'counts' else name}.csv": _of_all(result.tests, name) for name in names}
    if result.certified:
        out["certified.csv"] = _of_all(result.certified, "people")
    if result.sensitivity:
        out["sensitivity.csv"] = _of_all(result.sensitivity, "table")
    drawn = [_named(one.name, one.draws.counts.drop(columns="by draw")) for one in result.tests if one.draws is not None]
    if drawn:
        out["draws.csv"] = pd.concat(drawn, ignore_index=True)
    return out | ({"several.csv": result.several} if len(result.several) else {})


def _of_all(parts: Sequence[Intervention | CertifiedDecisions | ClaimRobustness], name: str) -> pd.DataFrame:
    """Return a table of each intervention as one, whose first column names the intervention."""
    return pd.concat([_named(one.name, getattr(one, name)) for one in parts], ignore_index=True)


def _named(name: str, table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(do=name)[["do", *table.columns]]


def write(result: CstResult, folder: Path) -> None:
    """Write equations, claims (in parts: for a million people they are large) and case files; delete an earlier run's tables."""
    for name in {"certified.csv", "draws.csv", "sensitivity.csv", "several.csv"} - set(tables(result)):
        (folder / name).unlink(missing_ok=True)
    if not result.sensitivity:
        (folder / "sensitivity.png").unlink(missing_ok=True)
    save_text(folder / "equations.txt", "\n".join(result.equations) + "\n")
    save_table(folder / "claims.csv", (_named(one.name, part) for one in result.tests for part in one.parts()))
    for one, cases in zip(result.tests, result.cases, strict=True):
        for case in cases:
            save_text(folder / f"{result.folder(one)}cases/{case.file}.md", case.markdown(f"{case.file}.png"))


def decides(who: Decider) -> str:
    """Return the line that names the deciders on the rows and on counterfactuals."""
    if not isinstance(who, Recorded):
        return f"Decides: {who.words}, on the counterfactuals as well."
    tilde = "nobody decided" if who.counterfactual is None else f"decides {who.counterfactual.words}"
    return f"Decides: {who.words}; on the counterfactuals {tilde}."


def counts_grids(one: Intervention) -> list[Grid]:
    """Return Table 1: number and share of cases, and of significant ones."""
    table, sizes = one.counts, one.k
    grids = []
    for begin in range(0, len(sizes), SIZES):
        some = sizes[begin : begin + SIZES]
        grid = Grid()
        grid.add_column("")
        for k in some:
            grid.add_column(f"k = {k}", justify="right")
        for method in one.methods:
            own = table[table["method"] == method].set_index("k")
            grid.add_row(method, *(_count(own.loc[k, "cases"], own.loc[k, "share"]) for k in some))
            cells = (_count(own.loc[k, "significant"], own.loc[k, "significant share"]) for k in some)
            grid.add_row("  significant" + (" by CST's interval" if method == "CF" else ""), *cells)
            if one.chance is not None and method in set(one.chance["method"]):
                for label, column in (
                    ("  cases by chance", "share by chance"),
                    ("  sig. by chance", "significant share by chance"),
                ):
                    grid.add_row(label, *(f"({percent(own.loc[k, column])})" for k in some))
        grids.append(grid)
    return grids


def drawn_grid(one: Intervention) -> Grid | None:
    """Return the numbers of cases over the draws of categories; None if nothing was drawn anew."""
    if one.draws is None or not one.draws.categories:
        return None
    grid = Grid(title=f"Cases over {len(one.draws.seeds)} draws of categories, k = {one.smallest}", title_justify="left")
    grid.add_column("")
    for column in ("this draw", "mean", "least .. most", "in over half of the draws"):
        grid.add_column(column, justify="right")
    for line in one.draws.counts.to_dict(orient="records"):
        ends_ = f"{line['least']:,} .. {line['most']:,}"
        grid.add_row(line["method"], f"{line['cases']:,}", f"{line['mean']:,.1f}", ends_, f"{line['in over half']:,}")
    return grid


def heading(one: Intervention) -> str:
    """Return the line above the tables of one intervention."""
    return f"do({one.name}): potential discrimination of {one.complainants:,} complainants (evidence, not proved)"


def legend(one: Intervention) -> str:
    better = {"CF": BETTER} if one.found.terms.direction == "positive" else {}
    meanings = "; ".join(f"{method}: {words}" for method, words in (MEANING | better).items() if method in one.methods)
    return f"Cases: {one.found.terms.case}. {meanings}."


def rates_grid(one: Intervention) -> Grid:
    """Return the shares of negative decisions of each group, factual and counterfactual."""
    grid = Grid(title="Negative decisions", title_justify="left")
    grid.add_column("group")
    for column in ("people", "factual", "counterfactual"):
        grid.add_column(column, justify="right")
    for line in one.rates.to_dict(orient="records"):
        tilde = "-" if line["group"] == one.name else percent(line["counterfactual"])
        grid.add_row(line["group"], f"{line['people']:,}", percent(line["negative"]), tilde)
    return grid


def changes_grid(one: Intervention) -> Grid | None:
    """Return the other attributes that the intervention changes; None if there are none."""
    table = one.changes
    if not len(table):
        return None
    grid = Grid(title=f"What do({one.name}) changes", title_justify="left")
    grid.add_column("attribute")
    grid.add_column("people", justify="right")
    grid.add_column("mean, or most frequent change")
    for line in table.head(MOVED).to_dict(orient="records"):
        words = line["moves"] or f"{line['before']:,.6g} -> {line['after']:,.6g}"
        grid.add_row(line["attribute"], f"{line['people']:,}", words)
    if len(table) > MOVED:
        grid.add_row(f"and {len(table) - MOVED} more", "", "")
    return grid


def left_out_line(one: Intervention) -> str | None:
    """Return a line that names the groups left out as too small for the largest k; None if there are none."""
    left = one.left_out
    if not left:
        return None
    names = ", ".join(f"{name} ({count} people)" for name, count in left.items())
    return f"Not tested, since their groups are too small for k = {max(one.k)} (--small leave-out): {names}."


def nothing_line(one: Intervention) -> str | None:
    """Return a note if the attribute has no effect, so that CST w/o equals ST; else None."""
    if len(one.moved):
        return None
    return f"do({one.name}) changes no other attribute in this causal model, so CST w/o equals situation testing (ST)."


def equation_lines(model: CausalModel) -> list[str]:
    """Return the causal model: its roots, then an equation for each other node, long ones cut."""
    named = {name: line for name, line in zip(model.order, model.equations(), strict=True) if name not in model.roots}
    lines = [line if len(line) <= LONG else f"{line[:LONG]}... (--out: equations.txt)" for line in named.values()]
    return [f"given: {', '.join(model.roots)}", *lines]


def overlap_lines(one: Intervention) -> list[str]:
    """Return lines with the numbers of people found by one method only."""
    table = one.overlaps
    lines = []
    for (found, other), own in table.groupby(["found by", "not by"], sort=False):
        numbers = ", ".join(f"{people:,}" for people in own["people"])
        lines.append(f"Found by {found} and not by {other}: {numbers} (k = {', '.join(map(str, own['k']))}).")
    return lines


def several_grid(tests: Sequence[Intervention]) -> Grid | None:
    """Return the table of several attributes beside each other; None for one attribute."""
    table = several(tests)
    if not len(table):
        return None
    joint = table["intersectional"].notna().any()
    names = " and ".join(in_words(one.found.do) for one in tests if len(one.found.do) == 1)
    grid = Grid(title=f"{names}: of {table['people'].iloc[0]:,} people protected by all", title_justify="left")
    tested = next((one.complainants for one in tests if len(one.found.do) > 1), 0)
    jointly = "intersectional: jointly" + (f", of {tested:,} tested" if tested < table["people"].iloc[0] else "")
    columns = ("method", "k", "multiple: by each alone", *((jointly,) if joint else ()))
    for n, column in enumerate(columns):
        grid.add_column(column, justify="left" if not n else "right")
    for line in table.to_dict(orient="records"):
        cells = [line["method"], str(line["k"]), f"{line['multiple']:,}"]
        grid.add_row(*cells, *((f"{int(line['intersectional']):,}",) if joint else ()))
    return grid


def review_grid(one: Intervention, top: int) -> Grid | None:
    """Return the table of people to look at first; None if there is nobody."""
    table = one.review(top)
    if not len(table) or not top:
        return None
    wide, groups = max(one.k), len(one.found.names) > 1
    grid = Grid(title=f"To review first ({one.ranking}, k = {one.smallest}; rows of the table, from 0)", title_justify="left")
    grid.add_column("row", justify="right")
    for column in ("group", "decision") if groups else ("decision",):
        grid.add_column(column)
    drawn = one.draws is not None and one.draws.categories
    for column in ("control", "test", "delta p", one.found.terms.label, "draws" if drawn else f"k = {wide}"):
        if column != f"k = {one.smallest}":
            grid.add_column(column, justify="right")
    for line in table.to_dict(orient="records"):
        tilde = line["decision counterfactual"]
        cells = [str(line["row"]), *((line["group"],) if groups else ())]
        cells.append(line["decision"] if tilde == "-" else f"{SHORT[line['decision']]} -> {SHORT[tilde]}")
        cells += [f"{line['control']:.2f}", f"{line['test']:.2f}", f"{line['delta']:+.2f}{'*' if line['significant'] else ''}"]
        cells.append(ends(line["low"], line["high"]))
        if drawn:
            cells.append(percent(line["share of draws"]))
        elif wide != one.smallest:
            cells.append(f"{line['delta wide']:+.2f}")
        grid.add_row(*cells)
    return grid


def chance_line(one: Intervention) -> str:
    """Return the line about significance and multiple testing."""
    terms, people, by_chance = one.found.terms, one.complainants, one.expected_significant_by_chance
    numbers = ", ".join(f"{int(one.found.claims(one.ranking, k).significant.sum()):,} (k = {k})" for k in one.k)
    if terms.correction is not None:
        return (
            f"Significant: the {terms.words} lies {terms.beyond}, and at most {100 * terms.alpha:.3g} % of the "
            f"significant are false on average (Benjamini-Hochberg). Of {people:,} "
            f"complainants, {one.ranking} finds {numbers}."
        )
    means = f"Significant: the {terms.words} lies {terms.beyond}."
    if one.chance is not None:  # measured; the level does not predict it, as neighbours get like decisions
        return f"{means} Everybody is tested, and chance alone makes some significant (above). A case alone says little."
    return (
        f"{means} Everybody is tested: at this level chance alone would make about {by_chance:,.0f} of {people:,} significant; "
        f"{one.ranking} finds {numbers}. A case alone says little. --chance 10 measures what chance finds, --correct bh "
        "limits the share of false cases."
    )


def dealt_line(one: Intervention) -> str | None:
    """Return the explanation of the lines "by chance"; None without them."""
    if one.chance is None:
        return None
    return (
        "By chance: the same test with the protected values shuffled among the rows, so that they mean nothing; mean of the "
        "shuffles. Only the excess is evidence. Groups of unequal size differ more by chance as k grows."
    )


def drawn_line(one: Intervention) -> str | None:
    """Return the explanation of the draws, or a note that there is nothing to draw; None if not asked for."""
    if one.draws is None:
        return None
    if not one.draws.categories:
        return f"do({one.name}) draws no category that the test reads, so all draws would be equal and none was made (--draws)."
    names, (first, *_, last) = ", ".join(one.draws.categories), one.draws.seeds
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


def unknown_line(one: Intervention) -> str | None:
    """Return a note if nobody decides on counterfactuals; else None."""
    if "CF" in one.methods:
        return None
    return (
        "Decisions are recorded ones, and nobody decided on the counterfactuals: neither CF nor CST with search centers can be "
        "computed. Name a rule, or a network, that decides on them."
    )


def robust_grid(one: ClaimRobustness) -> Grid:
    """Return the share of claims that hold, for each of LEVELS, and of those that are overturned."""
    title = f"How wrong must the causal model be? do({one.name}), k = {one.k}"
    grid = Grid(title=f"{title}\nclaims that hold while each coefficient is off by at most", title_justify="left")
    grid.add_column("claims")
    for column in ("number", *(f"{t:g} SE" for t in LEVELS), f"lost, {LEVELS[-1]:g} SE"):
        grid.add_column(column, justify="right")
    for claims in one.claims:
        cells = [percent(claims.found.robust(t)[0]) for t in LEVELS] + [percent(claims.found.robust(LEVELS[-1])[1])]
        grid.add_row(claims.called, f"{claims.claims:,}", *cells)
    return grid


def robust_lines(one: ClaimRobustness) -> Iterator[str]:
    """Yield the lines that explain the shares."""
    yield (
        "SE: standard errors of the coefficients. A claim holds where none within so many overturn it, and is lost where "
        "some were found that do; the rest is not known. Graph, form of the equations and the categories drawn for counterfactuals "
        "are taken as they are."
    )
    first = one.claims[0]
    lines = first.coefficients.sort_values("overturns", ascending=False, kind="stable").to_dict(orient="records")
    parts = [f"{line['coefficient']} {line['overturns']:,}" for line in lines if line["overturns"]]
    yield (
        f"Overturned within {LEVELS[-1]:g} SE by one coefficient alone ({first.called}): {', '.join(parts) or 'none'}"
        f"{f'; none by the other {len(lines) - len(parts)}' if 0 < len(parts) < len(lines) else ''}."
    )


def certified_lines(one: CertifiedDecisions) -> Iterator[str]:
    """Yield lines: the proved decisions, the assumptions, the reasons of unknown ones, and the file of the proofs."""
    parts = ", ".join(f"{count:,} {PROVED[status]}" for status, count in one.found.counts.items() if count)
    yield (
        f"Certified under do({one.name}), for every coefficient in its interval: of {one.rows:,} complainants {parts} "
        f"({one.seconds:.1f} s)."
    )
    yield f"Taken as given are {one.given} ({one.box})."
    if one.categories:
        low, high = one.found.otherwise.sum(axis=0)
        yield (
            f"Counterfactuals may have several categories ({', '.join(one.categories)}). The most probable were looked at; they "
            f"have {100 * (1 - one.found.left.mean()):.1f} % of the probability. By the causal model's probabilities, "
            f"{low:,.1f} .. {high:,.1f} of {one.rows:,} complainants are expected to be decided otherwise. The decisions above "
            f"leave out {LEFT_OUT}."
        )
    if one.unknown:
        yield f"Unknown: {', '.join(f'{count:,} ({REASONS[reason]})' for reason, count in one.unknown.items())}."
    if one.saved is not None:
        yield one.saved


def ends(low: float, high: float) -> str:
    return f"{low:+.2f} .. {high:+.2f}"


def _count(number: float, share: float) -> str:
    return f"{int(number):,} ({percent(share)})"
