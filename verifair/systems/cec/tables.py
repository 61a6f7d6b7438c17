"""CEC on the screen and in files: groups side by side, features behind different reasons, people to review, unmatched people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Grid

from verifair.checker.words import counted
from verifair.systems.cec.certified import DECISION, LEAVES, SCORE, TIME
from verifair.systems.cec.explanations import REGIMES, Regime
from verifair.systems.cec.measures import INTERVALS
from verifair.systems.cec.result import CecResult, CertifiedPairs, GroupFindings
from verifair.systems.results.result import Interval
from verifair.systems.results.spreadsheets import save_table
from verifair.systems.results.words import DRAWN, cell, percent, units

TITLE = "Explanation consistency: measured, not proved"
SHORT_REGIMES: dict[Regime, str] = {
    "A": "same, same reasons", "B": "same, other reasons", "C": "flips, same reasons", "D": "flips, other reasons",
}
"""The regimes in few words; `legend` says them in full."""
MAX_COLUMNS = 2
"""Up to so many groups stand side by side, beside everybody; more stand one below the other."""
MAX_FEATURES = 8
"""Features on the screen; files hold all."""
MAX_GROUP_PAIRS = 6
"""Pairs of groups on the screen, of at least MIN_PAIRS pairs of people."""
MIN_PAIRS = 30
MAX_NAMED = 5
"""People without a counterpart named on the screen."""
MIN_CORRELATION = 0.1
"""A rank correlation from which scores are said to grow with the distance."""
OTHER_THRESHOLDS = (0.25, 0.5, 0.75)
REASON_WORDS = {
    LEAVES: "some people near them are decided otherwise, or for other reasons",
    DECISION: "the decision could not be bounded",
    SCORE: "the score could not be bounded",
    TIME: "time was up",
}
"""The screen's words for the reasons of unknown pairs."""


def show(result: CecResult, console: Console) -> None:
    """Print groups, threshold, features and people to review; then the choices that the figures depend on, and the certified
    pairs."""
    console.print(_audit_line(result), soft_wrap=True)
    console.print(overview(result))
    console.print(legend(), soft_wrap=True)
    if len(result.groups) > MAX_COLUMNS + 1:
        console.print(between_grid(result))
    console.print(features_grid(result))
    if result.top:
        console.print(review_grid(result))
    last = f"Measured on these rows, not proved; nothing is said of other people. Intervals: {INTERVALS}. {result.seconds:.1f} s."
    lines = [
        *_notes(result), threshold_line(result), everybody_line(result), within_line(result), ties_line(result),
        distance_line(result), *unmatched_lines(result), model_line(result), last,
        *(_certified_lines(result.certified) if result.certified else []),
        "Nothing was certified: interrupted." if result.interrupted else None,
    ]
    for line in lines:
        if line:
            console.print(line, soft_wrap=True)


def tables(result: CecResult) -> dict[str, pd.DataFrame]:
    """Return file name -> table; `write` writes the attributions."""
    files = {
        "groups.csv": result.group_table(), "between-groups.csv": result.between_groups, "features.csv": result.features,
        "review.csv": result.review, "thresholds.csv": result.thresholds, "pairs.csv": result.pairs,
        "unmatched.csv": result.unmatched,
    }
    return files | ({} if result.certified is None else {"certified.csv": result.certified.people})


def write(result: CecResult, folder: Path) -> None:
    """Write the attributions, a part at a time; remove the proofs of an earlier run, which do not belong to this one."""
    save_table(folder / "attributions.csv", result.attribution_parts())
    if result.certified is None:
        (folder / "certified.csv").unlink(missing_ok=True)


def _audit_line(result: CecResult) -> str:
    asked = result.asked
    pool = f"the {len(asked.reference.people):,} rows of {asked.apart}" if asked.apart else "the audited table"
    dropped = f" Left out, as outside the schema: {asked.dropped:,}." if asked.dropped else ""
    number = "" if DRAWN in asked.words else f" ({len(asked.people):,})"
    return (
        f"Audited: {asked.words}{number}. Counterparts: the nearest with the same true label in {pool}, by "
        f"merit ({', '.join(asked.merit)}). Reasons: {result.query.attributions}.{dropped}"
    )


def _notes(result: CecResult) -> list[str]:
    """Return notes about the question itself."""
    asked = result.asked
    pool = asked.reference.people
    merit = pool.values[:, np.unique(pool.features[asked.reference.columns])]
    note = "note: everybody has the same merit, so all people of another group with the same label are equally near"
    return ([] if np.ptp(merit, axis=0).any() else [note]) + [
        f"note: {name!r} is merit and also defines the groups, so counterparts always differ in it; declare it no merit"
        for name in asked.protected if name in asked.merit
    ]


def _certified_lines(pairs: CertifiedPairs) -> list[str | None]:
    """Return lines about the proved pairs, the reasons of the others, and the file of the proofs."""
    if not pairs.regime_A:
        return ["Nothing to certify: no pair is in regime A (same decision, same reasons).", pairs.note]
    return [
        f"Certified A: {pairs.certified:,} of the {pairs.regime_A:,} pairs in regime A ({percent(pairs.share)}) are decided "
        f"alike, with a score below {pairs.threshold:g}, {where(pairs.delta)}{'' if pairs.delta else ' (delta 0)'} "
        f"({pairs.seconds:.1f} s).",
        f"Unknown: {unproved(pairs)}." if pairs.unknown else None, pairs.note,
    ]


def unproved(pairs: CertifiedPairs) -> str:
    """Return the number of pairs in regime A that are not certified, by reason: "12 (time was up)"."""
    return ", ".join(f"{pairs.unknown[reason]:,} ({text})" for reason, text in REASON_WORDS.items() if reason in pairs.unknown)


def where(delta: float) -> str:
    """Return the claim that is certified of a pair, in words."""
    return f"wherever both move within {units(delta)}" if delta else "as they are"


def overview(result: CecResult) -> Grid:
    """Return the table of the answer: everybody and each group in a column, or, if there are many groups, in a line."""
    if len(result.groups) > MAX_COLUMNS + 1:
        return _short_overview(result.groups, result.query.protected)
    grid = Grid(title=TITLE, title_justify="left")
    grid.add_column("")
    for group in result.groups:
        grid.add_column(group.name, justify="right")
    lines = {
        "people": [f"{group.people:,}" for group in result.groups],
        "with a counterpart": [percent(group.coverage) for group in result.groups],
        "distance, median": [cell(group.distance[0]) for group in result.groups],
        "  90 % and largest": [f"{cell(group.distance[1])}, {cell(group.distance[2])}" for group in result.groups],
        "with equal merit": [percent(group.twins) for group in result.groups],
        "nearest: median (most)": [f"{group.ties[0]:g} ({group.ties[1]:,})" for group in result.groups],
        "mean score (CEC)": [cell(group.cec.mean if group.cec else None, ".3f") for group in result.groups],
        "  95 %": [_ends(group.cec) for group in result.groups],
        "other decision (PFR)": [percent(group.pfr.mean if group.pfr else None) for group in result.groups],
        "  95 %, in %": [_ends(group.pfr, percent=True) for group in result.groups],
    }
    if result.controlled:
        lines["mean score in group"] = [cell(group.within) for group in result.groups]
        lines["  excess across, 95 %"] = [_ends(group.beyond) for group in result.groups]
    for label, cells in lines.items():
        grid.add_row(label, *cells)
    grid.add_section()
    for letter, meaning in SHORT_REGIMES.items():
        grid.add_row(f"{letter} {meaning}", *(percent(group.regimes.get(letter)) for group in result.groups))
    return grid


def _short_overview(groups: Sequence[GroupFindings], protected: Sequence[str]) -> Grid:
    grid = Grid(title=TITLE, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))    # ten columns in 80 characters
    grid.add_column(", ".join(protected), min_width=9, overflow="fold")
    for column in ("people", "matched", "CEC", "within", "PFR", *REGIMES):
        grid.add_column(column, justify="right")
    for group in groups:
        cec, pfr = (None if interval is None else interval.mean for interval in (group.cec, group.pfr))
        shares = [percent(group.regimes.get(letter)) for letter in REGIMES]
        grid.add_row(
            _brief(group.name, protected), f"{group.people:,}", percent(group.coverage), cell(cec), cell(group.within),
            percent(pfr), *shares,
        )
    return grid


def everybody_line(result: CecResult) -> str | None:
    """Return figures about everybody that the table with a line for each group lacks; None beside the other table."""
    everybody = result.everybody
    if len(result.groups) <= MAX_COLUMNS + 1:
        return None
    line = f"Nearest counterparts: median {cell(everybody.distance[0])}, 90 % up to {cell(everybody.distance[1])}, "
    line += f"largest {cell(everybody.distance[2])}; {percent(everybody.twins)} of the matched have one of equal merit. "
    return line + f"Everybody, 95 %: CEC {_ends(everybody.cec)}, PFR {_ends(everybody.pfr, percent=True)} %."


def legend() -> str:
    """Return the line that explains the regimes."""
    return "Regimes, person and counterpart: " + "; ".join(f"{letter} {meaning}" for letter, meaning in REGIMES.items()) + "."


def between_grid(result: CecResult) -> Grid:
    """Return the table of pairs of groups with the highest mean score, for more than two groups."""
    table = result.between_groups[result.between_groups["matched"] >= MIN_PAIRS].nlargest(MAX_GROUP_PAIRS, "CEC")
    grid = Grid(title=f"Highest mean scores between two groups (of at least {MIN_PAIRS} pairs)", title_justify="left")
    for column in ("group", "counterparts in"):
        grid.add_column(column)
    for column in ("pairs", "CEC", "PFR", "A", "B"):
        grid.add_column(column, justify="right")
    for line in table.to_dict(orient="records"):
        grid.add_row(
            _brief(line["group"], result.query.protected), _brief(line["other"], result.query.protected),
            f"{int(line['matched']):,}", cell(line["CEC"]), percent(line["PFR"]), percent(line["A"]), percent(line["B"]),
        )
    return grid


def threshold_line(result: CecResult) -> str:
    """Return the line that shows the share of regime B at other thresholds."""
    table = result.thresholds.set_index(result.thresholds["threshold"].round(6))
    parts = [f"{percent(table.loc[t, 'B'])} at {t:g}" for t in OTHER_THRESHOLDS]
    return (
        f"Scores above {result.query.threshold:g} are different reasons (--threshold; the paper names no value). Regime B would be "
        + ", ".join(parts) + "."
    )


def features_grid(result: CecResult) -> Grid:
    """Return the table of features whose attributions differ most between counterparts; parts sum to the mean squared score."""
    total = float(result.features["part"].sum())
    grid = Grid(title=f"What makes reasons differ\n(mean squared score {cell(total)})", title_justify="left")
    grid.add_column("feature")
    grid.add_column("part", justify="right")
    grid.add_column("share", justify="right")
    for line in result.features.head(MAX_FEATURES).to_dict(orient="records"):
        grid.add_row(_name(line["feature"], result), cell(line["part"]), percent(line["share"]))
    rest = result.features.iloc[MAX_FEATURES:]
    if len(rest):
        more = counted(len(rest), "more feature", "more features")
        grid.add_row(more, cell(float(rest["part"].sum())), percent(float(rest["share"].sum())))
    return grid


def _name(feature: str, result: CecResult) -> str:
    spec = result.described[feature]
    marks = [mark for mark, applies in (("merit", spec.merit), ("protected", spec.protected)) if applies]
    return feature + (f" ({', '.join(marks)})" if marks else "")


def review_grid(result: CecResult) -> Grid:
    """Return the table of pairs to look at first: the same decision for the most different reasons."""
    reference = result.asked.apart.name if result.asked.apart else None
    description = "rows of the table, from 0" + (f"; like rows: of {reference}" if reference else "")
    grid = Grid(title=f"To review first ({description})", title_justify="left")
    for column in ("row", "like row", "score"):
        grid.add_column(column, justify="right")
    for column in ("regime", "decision", "reasons (own / counterpart's)"):
        grid.add_column(column)
    for line in result.review.head(result.top).to_dict(orient="records"):
        decisions = line["decision"] if line["decision"] == line["its decision"] else f"{line['decision']} / {line['its decision']}"
        grid.add_row(
            str(line["row"]), str(line["counterpart"]), f"{line['score']:.3f}", str(line["regime"]), decisions,
            line["reasons"].replace("; ", "\n"),
        )
    return grid


def unmatched_lines(result: CecResult) -> list[str]:
    """Return lines that name people without a counterpart, with the reason."""
    table = result.unmatched
    if not len(table):
        return []
    lines = [f"{len(table):,} pairs are unmatched: nobody of the other group with the same label is within tau."]
    lines += [
        f"  row {line['row']} ({line['group']}), label {line['label']}, in {line['other']}: {line['reason']}"
        for line in table.head(MAX_NAMED).to_dict(orient="records")
    ]
    if len(table) > MAX_NAMED:
        lines.append(f"  and {len(table) - MAX_NAMED:,} more (--out or --json holds all)")
    return lines


def model_line(result: CecResult) -> str:
    """Return the line about the model's decisions: a constant model explains everybody alike, so its low CEC says little."""
    model = result.model_decides
    auc = "" if model.auc != model.auc else f", AUC {model.auc:.3f}"
    variance = "" if model.variance != model.variance else f", variance of the probability {cell(model.variance)}"
    line = f"The model decides positively on {percent(model.positive)} of the matched people{variance}{auc}."
    reason = model.hardly_decides
    return line if reason is None else f"{line} Caution: {reason}, so a low CEC says little."


def distance_line(result: CecResult) -> str | None:
    """Return the line that correlates score and distance; None if there is no correlation to compute."""
    if result.score_follows_distance != result.score_follows_distance:
        return None
    line = f"Rank correlation of score and distance: {result.score_follows_distance:+.2f}"
    if result.score_follows_distance < MIN_CORRELATION:
        return f"{line}, so nearer counterparts would not have more similar reasons."
    return f"{line}: scores are partly due to distance between the people, not to their treatment; --tau leaves out distant pairs."


def within_line(result: CecResult) -> str | None:
    """Return the line that compares scores across groups with those within groups; None if these were not measured."""
    everybody = result.everybody
    if not result.controlled or everybody.beyond is None:
        return None
    line = f"Comparable people of the same group have a mean score of {everybody.within:.3f}. Across groups it differs by "
    line += f"{everybody.beyond.mean:+.3f} ({everybody.beyond.low:+.3f} .. {everybody.beyond.high:+.3f})."
    if everybody.beyond.high < 0:
        line += " The groups add nothing: comparable people of the same group differ more."
    elif everybody.beyond.low <= 0:
        line += " It is not clear whether the groups add anything: within a group, other features than merit make scores as well."
    return line


def ties_line(result: CecResult) -> str:
    everybody = result.everybody
    if everybody.ties[1] <= 1:
        return "Each person has exactly one nearest counterpart in every other group."
    first = result.query.ties == "first"
    rule = "the first in the table is taken (--ties first)" if first else "one is drawn with --seed (--ties random)"
    rows = len(np.unique(result.measured.counterpart))
    how_many = f"up to {everybody.ties[1]:,}" if everybody.ties[0] < 2 else f"{everybody.ties[0]:g} or more (half of them)"
    return (
        f"Pairs have {how_many} equally near counterparts: {rule}, so scores depend on that rule; "
        f"{rows:,} rows serve as counterparts."
    )


def _ends(interval: Interval | None, *, percent: bool = False) -> str:
    if interval is None:
        return "-"
    return f"{100 * interval.low:.1f} .. {100 * interval.high:.1f}" if percent else f"{interval.low:.3f} .. {interval.high:.3f}"


def _brief(name: str, protected: Sequence[str]) -> str:
    """Return a group's name without the names of its columns, which stand above."""
    for column in protected:
        name = name.replace(f"{column} = ", "", 1)
    return name
