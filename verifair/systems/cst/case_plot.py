"""One complainant on paper: delta p of every method and k with its interval, and who was compared, attribute by attribute."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from verifair.systems.cst.plots import COUNTERFACTUAL, FACTUAL, GROUPS, METHODS
from verifair.systems.figures import figure

PANELS = 5
"""Attributes in one picture."""
ACROSS = 3
EVENLY = (np.sqrt(5) / 2 - 0.5, np.sqrt(2) - 1)
"""Multiples modulo 1 fill an interval evenly, so that dots lie beside each other without a draw."""
DARK = "#333333"


def case(
    title: str, claims: pd.DataFrame, people: pd.DataFrame, own: pd.DataFrame, attributes: Sequence[str], tau: float, path: Path
) -> None:  # fmt: skip
    """Draw one complainant.

    claims: method, k, delta, low, high, significant.   people: group (a key of GROUPS), negative, and the attributes, of everybody
    who was compared.   own: two rows, the complainant and the counterfactual.   attributes: PANELS at most are drawn.
    """
    shown = list(attributes)[:PANELS]
    panels = 1 + len(shown)
    across = 2 if panels == 4 else min(panels, ACROSS)
    down = -(-panels // across)
    with figure(path, (4.3 * across, 3.6 * down + 0.8), down, across) as drawn:
        first, *rest = drawn.axes
        _claims(first, claims, tau)
        for axis, name in zip(rest, shown, strict=False):
            _attribute(axis, people, own, name)
        for axis in rest[len(shown) :]:
            axis.set_visible(False)
        drawn.suptitle(title, fontsize=10)
        _legend(drawn)


def _claims(axis: Any, claims: pd.DataFrame, tau: float) -> None:
    """A line for each method and k, the first on top."""
    lines = claims[claims["method"] != "CF"].reset_index(drop=True)
    for method, color in METHODS.items():
        own = lines[lines["method"] == method]
        if not len(own):
            continue
        ends = np.clip([own["delta"] - own["low"], own["high"] - own["delta"]], 0, None)
        axis.errorbar(own["delta"], own.index, xerr=ends, fmt="none", color=color, lw=1.6, capsize=3)
        faces = [color if significant else "white" for significant in own["significant"]]
        axis.scatter(own["delta"], own.index, s=38, c=faces, edgecolors=color, zorder=4)
    axis.set_yticks(lines.index, [f"{line.method}, k = {line.k}" for line in lines.itertuples()], fontsize=8)
    axis.invert_yaxis()
    axis.axvline(tau, color="black", lw=1, ls="--")
    axis.set_xlim(-1.05, 1.05)
    axis.set_title("delta p (filled: significant)", fontsize=9)
    axis.grid(axis="x", alpha=0.3)


def _attribute(axis: Any, people: pd.DataFrame, own: pd.DataFrame, name: str) -> None:
    """Dots of the groups' people by their decision, beside each other for each group; over them the two who are compared."""
    numeric = pd.api.types.is_numeric_dtype(people[name]) and not pd.api.types.is_bool_dtype(people[name])
    levels = None if numeric else sorted({*people[name].astype(str), *own[name].astype(str)})
    for place, group in enumerate(GROUPS):
        mine = people[people["group"] == group]
        if not len(mine):
            continue
        at = _height(mine[name], levels, jitter=0.28)
        if numeric:
            box = axis.boxplot(at, positions=[place], widths=0.66, whis=(0, 100), manage_ticks=False, showfliers=False)
            for line in (line for kind in ("boxes", "whiskers", "caps", "medians") for line in box[kind]):
                line.set_color(GROUPS[group])
        spread = place + 0.5 * (np.arange(len(mine)) * EVENLY[0] % 1 - 0.5)
        axis.scatter(spread, at, s=14, c=np.where(mine["negative"], DARK, "white"), edgecolors=DARK, linewidths=0.8, zorder=3)
    two = _height(own[name], levels)
    axis.scatter([0], two[:1], s=60, marker="D", c=FACTUAL, edgecolors="black", zorder=5)
    axis.scatter([2], two[1:2], s=170, marker="*", c=COUNTERFACTUAL, edgecolors="black", zorder=5)
    axis.set_xticks(range(len(GROUPS)), list(GROUPS), fontsize=8)
    axis.set_xlim(-0.6, len(GROUPS) - 0.4)
    if levels is not None:
        axis.set_yticks(range(len(levels)), levels, fontsize=8)
        axis.set_ylim(len(levels) - 0.4, -0.6)
    axis.set_title(name, fontsize=9)
    axis.grid(axis="y", alpha=0.3)


def _height(values: pd.Series, levels: list[str] | None, jitter: float = 0.0) -> np.ndarray:
    """Where a value stands: itself, or the place of its category, those of several people one above the other."""
    if levels is None:
        return np.asarray(values, dtype=float)
    place = np.array([levels.index(word) for word in values.astype(str)], dtype=float)
    return np.asarray(place + 2 * jitter * (np.arange(len(place)) * EVENLY[1] % 1 - 0.5))


def _legend(drawn: Any) -> None:
    from matplotlib.lines import Line2D

    marks = (
        ("decided negatively", "o", DARK, 4), ("positively", "o", "white", 4), ("the complainant", "D", FACTUAL, 7),
        ("the counterfactual", "*", COUNTERFACTUAL, 12),
    )  # fmt: skip
    handles = [
        Line2D([], [], ls="", marker=mark, color=color, ms=size, markeredgecolor="black", label=words)
        for words, mark, color, size in marks
    ]
    drawn.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
