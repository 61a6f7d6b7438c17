"""A guardrail on the screen: its rules, its costs, and the command that proves the rest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Grid

from verifair.checker.words import counted
from verifair.systems.hyfair.guard.effects import Effect
from verifair.systems.hyfair.guard.result import GuardResult
from verifair.systems.results.words import box_options, cell, percent, two_digits

MAX_SHOWN = 10
"""Rules of --target on the screen; the file has all."""


def show(result: GuardResult, console: Console) -> None:
    """Print the rules of --target, the table of effects, the files, and the command that certifies the guarded network."""
    query, given = result.query, result.given
    if given.model_sha256 not in (None, query.model.source_sha256):
        console.print("note: these rules explain another network")
    _show_tightened(result, console)
    console.print(effects_table(result.effects))
    console.print(
        "Measured, not proved. accuracy: on answered rows; abstains: for this share of all rows; #ID, ID: number and share of the "
        "searched rows that fall into several buckets (k >= 2); near: of samples near the explained clusters.", soft_wrap=True,
    )
    if result.instances is not None:
        added = result.instances
        console.print(
            f"wrote {result.retrained}: {added.people:,} discriminatory people with all their variants ({added.rows:,} rows)"
        )
    earlier_note = f", and {result.earlier} of an earlier guardrail that the schema was made for" if result.earlier else ""
    rules = counted(len(result.rules), "rule", "rules")
    console.print(f"wrote {result.guarded} ({rules}{earlier_note}) and {result.schema_file}", soft_wrap=True)
    about = " ".join([*(f"--protected {quote(name)}" for name in query.protected), box_options(query.box)]).rstrip()
    command = f"verifair certify {quote(str(result.model))} --schema {quote(result.schema_file)} {about} --differ any"
    command += "" if query.model.whole.outputs > 2 and "lp" not in query.model.programs else " --maximise"
    console.print(f"To prove what is left: {command}", soft_wrap=True)


def _show_tightened(result: GuardResult, console: Console) -> None:
    tightened, certified, rows = result.tightened, result.certified, result.raw
    if tightened is None or certified is None:
        return
    for index, rule in enumerate(tightened.rules[:MAX_SHOWN], start=1):
        share = "" if rows is None else f" ({two_digits(float(rule.contain(rows).mean()))} of the rows)"
        console.print(f"{index}. {rule.words(result.query.schema)}{share}", soft_wrap=True)
    if len(tightened.rules) > MAX_SHOWN:
        console.print(f"... and {len(tightened.rules) - MAX_SHOWN} more in {Path(result.guarded).with_suffix('.rules.json')}")
    before, upper = certified.before, "none is certified" if certified.before.upper is None else f"{certified.before.upper:.4f}"
    console.print(
        f"The certified gap falls to {tightened.target:g}; without rules a gap of {before.lower:.4f} was found, and the bound was "
        f"{upper}. Proved and answered: {two_digits(tightened.domain)} of the domain."
    )
    query, k = result.query, tightened.most_buckets(result.query.buckets)
    if query.probable and query.schema.outcome.of != "value" and k < len(query.combinations()):
        subject = "nobody in the box who is answered" if query.box else "nobody who is answered"
        console.print(f"So {subject} falls into more than {k} of {query.buckets} outcome buckets (max k).")
    if tightened.open:
        console.print(f"{tightened.open:,} rows lie in boxes that were not decided in time: a longer --timeout may spare some.")
    if result.certificate is not None:
        console.print(f"certificate: {result.certificate}")


def effects_table(effects: Sequence[Effect]) -> Grid:
    """Return HyFair's Table IV, and measures near the clusters; ID: the share of rows that are ID instances (success rate).

    Each intervention is a column, not a line, so that the table fits a screen of 80 columns.
    """
    grid = Grid(title="Before and after", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    grid.add_column("", no_wrap=True)
    for e in effects:
        grid.add_column(e.intervention.replace(" + ", "\n+ "), justify="right", no_wrap=True)
    lines = {
        "accuracy": [cell(e.accuracy, ".4f") for e in effects],
        "abstains": [cell(e.abstained, ".2%") for e in effects],
        "max k": [f"{e.max_k}" for e in effects],
        "mean k": [cell(e.mean_k, ".2f") for e in effects],
        "#ID": [f"{e.instances:,}" for e in effects],
        "ID": [percent(e.success_rate) for e in effects],
        "near: mean k": [cell(e.local_k, ".2f") for e in effects],
        "near: ID": [percent(e.local_success) for e in effects],
    }
    for name, cells in lines.items():
        if set(cells) != {"-"}:
            grid.add_row(name, *cells)
    return grid
