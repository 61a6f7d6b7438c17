"""Rules on the screen and as a picture."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Grid

from verifair.schema.schema import Schema
from verifair.systems.figures import figure
from verifair.systems.hyfair.explain.rules import Explained, Explanation
from verifair.systems.hyfair.mitigation.mitigation import Effect

PLOTTED = 8
"""So many rules fit a picture."""


def by_difference(found: Sequence[Explanation]) -> list[Explained]:
    """The rules of all clusters, those that negation helps most first."""
    return sorted((one for explanation in found for one in explanation.rules), key=lambda one: -one.evidence.difference)


def print_rules(schema: Schema, rules: Sequence[Explained], measure: str, console: Console) -> None:
    """Each rule in words, with mean severity where it holds, where one condition is negated, and elsewhere, and what it covers."""
    for number, one in enumerate(rules, start=1):
        e = one.evidence
        covered = {"samples": e.samples, "domain": e.domain} | ({} if e.rows is None else {"rows of data": e.rows})
        shares = ", ".join(f"{_percent(share)} of the {name}" for name, share in covered.items())
        console.print(f"{number}. {one.rule.words(schema)}", soft_wrap=True)
        console.print(
            f"   mean {measure} {e.inside:.3g}, one condition negated {e.negated:.3g} (difference {e.difference:.3g}), elsewhere "
            f"{e.outside:.3g}; covers {shares}",
            soft_wrap=True,
        )


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"


def effects_table(effects: Sequence[Effect]) -> Grid:
    """HyFair's Table IV, and what happens near the clusters; ID: the share of rows that are ID instances (success rate).

    An intervention is a column here, not a line: so everything can be read on a screen of 80 columns.
    """
    grid = Grid(title="Before and after", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    grid.add_column("", no_wrap=True)
    for e in effects:
        grid.add_column(e.intervention.replace(" + ", "\n+ "), justify="right", no_wrap=True)
    lines = {
        "accuracy": [_number(e.accuracy, ".4f") for e in effects],
        "refused": [_number(e.abstained, ".2%") for e in effects],
        "max k": [f"{e.max_k}" for e in effects],
        "mean k": [_number(e.mean_k, ".2f") for e in effects],
        "#ID": [f"{e.instances:,}" for e in effects],
        "ID": [f"{e.success_rate:.1%}" for e in effects],
        "near: mean k": [_number(e.local_k, ".2f") for e in effects],
        "near: ID": [_number(e.local_success, ".1%") for e in effects],
    }
    for name, cells in lines.items():
        if set(cells) != {"-"}:
            grid.add_row(name, *cells)
    return grid


def _number(value: float | None, form: str) -> str:
    """A dash where there is none: no labels, no one answered, no one with k >= 2."""
    return "-" if value is None or np.isnan(value) else format(value, form)


def comparison_table(lines: Sequence[dict[str, object]]) -> Grid:
    """HyFair's Table III, one pair of lines a cluster."""
    grid = Grid(title="LIME and rules (HyFair, Table III)", title_justify="left")
    for name in lines[0]:
        grid.add_column(name, overflow="fold")
    for line in lines:
        grid.add_row(*(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in line.values()))
    return grid


def rules_plot(schema: Schema, rules: Sequence[Explained], measure: str, path: Path) -> None:
    """Mean severity inside each rule, and with one condition negated."""
    rules = rules[:PLOTTED]
    labels = [textwrap.fill(one.rule.words(schema), 70) for one in rules]
    lines = sum(label.count("\n") + 1 for label in labels)
    with figure(path, (11, max(2.2, 0.9 + 0.24 * lines + 0.22 * len(rules)))) as drawn:
        (axis,) = drawn.axes
        place = np.arange(len(rules))
        e = [one.evidence for one in rules]
        axis.barh(place - 0.2, [x.inside for x in e], 0.36, color="#b2182b", label="rule holds")
        axis.barh(place + 0.2, [x.negated for x in e], 0.36, color="#2166ac", label="one condition negated")
        for bars in axis.containers:
            axis.bar_label(bars, fmt="%.3g", fontsize=8, padding=2)
        axis.set_yticks(place, labels, fontsize=8)
        axis.invert_yaxis()
        buckets, gap = "mean k: outcome buckets over all protected values", "mean of the largest probability gap"
        axis.set_xlabel(buckets if measure == "k" else gap)
        axis.margins(x=0.08)
        axis.grid(axis="x", alpha=0.3)
        drawn.legend(loc="outside upper right", ncols=2, fontsize=8)
