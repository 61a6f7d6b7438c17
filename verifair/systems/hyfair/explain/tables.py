"""Rules on the screen and in files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote

import numpy as np
from rich.console import Console
from rich.table import Table as Grid

from verifair.schema.schema import Schema
from verifair.systems.hyfair.explain import rules_file
from verifair.systems.hyfair.explain.result import ExplainResult, LimeLine
from verifair.systems.hyfair.explain.rules import PURITY, Explained
from verifair.systems.results.words import box_options, listed, short, two_digits

MAX_SHOWN = 10
"""Rules on the screen; the file has all."""
MEASURES = {"k": "the number of outcome buckets that a person falls into", "gap": "how far a person's probability moves"}
"""The screen's words for --measure."""
COLUMNS = (
    "Init.K: severity of the cluster. Size: features that LIME names; conditions of a rule. K: severity of the cluster (LIME), and "
    "where the rule holds. Pert.K: K with one feature redrawn (LIME), or with one condition negated. Diff: K - Pert.K. Cov: number "
    "of samples that are explained. Of rules, means."
)
"""What the columns of `comparison_table` mean."""


def show(result: ExplainResult, console: Console) -> None:
    """Print the clusters, the rules with the largest effect of negation, and the next steps."""
    _print(result, console, MAX_SHOWN)
    if result.box:
        about = "These rules were found within the box; a guardrail made of them abstains for people outside of it as well:"
        console.print(f"{about} {box_options(result.box)}", soft_wrap=True)
    if result.file is not None and result.rules:
        guard = f"verifair guard {result.options.removeprefix('--model ')} --rules {quote(str(result.file))} --out guarded.onnx"
        console.print(f"wrote {result.file}{f'; next: {guard}' if result.guardable else ''}", soft_wrap=True)


def text(result: ExplainResult, console: Console) -> None:
    """Print the same with all rules, for a file."""
    _print(result, console, len(result.rules))


def write(result: ExplainResult, folder: Path) -> None:
    """Write the rules for `verifair guard`."""
    rules_file.save(folder / "rules.json", result.model_dump(exclude={"proof", "seed", "versions"}))


def _print(result: ExplainResult, console: Console, shown: int) -> None:
    schema, settings, explanations = result.described, result.settings, result.found.found
    unit = "outcome buckets" if settings.measure == "k" else "between the highest and the lowest probability"
    protected = result.query.protected
    changes = f"{listed(protected)} change{'s' * (len(protected) == 1)}"
    console.print(f"{settings.measure}: {MEASURES[settings.measure]} if only {changes}.", soft_wrap=True)
    for index, item in enumerate(explanations, start=1):
        values = f"{item.severity:g}" if settings.measure == "k" else f"{item.severity:.4f}"
        high = int(item.labelled.high.sum())
        console.print(
            f"cluster {index}: {values} {unit}; {high:,} of {len(item.labelled.raw):,} samples near it are high "
            f"({settings.measure} >= {item.labelled.threshold:.4g}); {len(item.rules)} rules kept, {len(item.dropped)} dropped "
            "(negation changes little)"
        )
        if settings.purity is None and item.purity < PURITY:
            console.print(f"  no leaf of the tree is {two_digits(PURITY)} high; the purest, {two_digits(item.purity)}, was taken")
        words = ", ".join(f"{f.name} {schema.format(f.name, x)}" for f, x in zip(schema.features, item.centre, strict=True))
        console.print(f"  {words}", soft_wrap=True)
    rules = result.best
    if rules:
        print_rules(schema, rules[:shown], settings.measure, console)
        if len(rules) > shown:
            console.print(f"... and {len(rules) - shown} more")
        if np.isnan([explained.evidence.difference for explained in rules]).any():
            console.print("a difference that is not a number: no legal row negates the rule")
    else:
        console.print("no rule was confirmed: negating the conditions changes little; try a smaller --delta or a lower --purity")
    if result.lime:
        console.print(comparison_table(result.lime))
        console.print(COLUMNS, soft_wrap=True)
    if result.stopped:
        console.print(f"stopped after {len(explanations)} of {settings.rounds} rounds: {result.stopped}")
    console.print("These are findings of sampling, not proofs.")


def print_rules(schema: Schema, rules: Sequence[Explained], measure: str, console: Console) -> None:
    """Print each rule in words, with the mean severity where it holds, with one condition negated, and elsewhere, and its
    coverage."""
    for index, explained in enumerate(rules, start=1):
        e = explained.evidence
        covered = {"samples": e.samples, "domain": e.domain} | ({} if e.rows is None else {"rows of data": e.rows})
        shares = ", ".join(f"{two_digits(share)} of the {name}" for name, share in covered.items())
        console.print(f"{index}. {explained.rule.words(schema)}", soft_wrap=True)
        console.print(
            f"   mean {measure} {e.inside:.3g}; {e.negated:.3g} with one condition negated (difference {e.difference:.3g}); "
            f"{e.outside:.3g} elsewhere; covers {shares}",
            soft_wrap=True,
        )


def comparison_table(lines: Sequence[LimeLine]) -> Grid:
    """Return HyFair's Table III, two lines for each cluster."""
    grid = Grid(title="LIME and rules (HyFair, Table III)", title_justify="left")
    for name in lines[0].model_dump():
        grid.add_column(name, overflow="fold")
    for line in lines:
        grid.add_row(*(short(cell) if isinstance(cell, float) else str(cell) for cell in line.model_dump().values()))
    return grid
