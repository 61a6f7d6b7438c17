"""Rules as a picture."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from verifair.figures import COLORS, figure
from verifair.schema.schema import Schema
from verifair.systems.hyfair.explain.result import ExplainResult
from verifair.systems.hyfair.explain.rules import Explained

MAX_PLOTTED = 8
"""So many rules fit a picture."""


def plots(result: ExplainResult) -> dict[str, Callable[[Path], None]]:
    """Return file name -> function that draws it."""
    if not result.rules:
        return {}
    return {"rules.png": lambda path: rules_plot(result.described, result.best, result.settings.measure, path)}


def rules_plot(schema: Schema, rules: Sequence[Explained], measure: str, path: Path) -> None:
    """Draw the mean severity inside each rule, and with one condition negated."""
    rules = rules[:MAX_PLOTTED]
    labels = [textwrap.fill(explained.rule.words(schema), 70) for explained in rules]
    lines = sum(label.count("\n") + 1 for label in labels)
    with figure(path, (11, max(2.2, 0.9 + 0.24 * lines + 0.22 * len(rules)))) as fig:
        (axis,) = fig.axes
        positions = np.arange(len(rules))
        e = [explained.evidence for explained in rules]
        axis.barh(positions - 0.2, [x.inside for x in e], 0.36, color=COLORS[0], label="rule holds")
        axis.barh(positions + 0.2, [x.negated for x in e], 0.36, color=COLORS[4], label="one condition negated")
        for bars in axis.containers:
            axis.bar_label(bars, fmt="%.3g", fontsize=8, padding=2)
        axis.set_yticks(positions, labels)
        axis.invert_yaxis()
        buckets, gap = "mean k: outcome buckets over all protected values", "mean of the largest probability gap"
        axis.set_xlabel(buckets if measure == "k" else gap)
        axis.margins(x=0.08)
        axis.grid(axis="x", alpha=0.3)
        fig.legend(loc="outside upper right", ncols=2)
