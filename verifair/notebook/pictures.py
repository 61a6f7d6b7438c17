"""The kinds of pictures that results use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from verifair.figures import COLORS, HATCHED, PROVED, REFUTED, figure


def pairs(rows: Sequence[tuple[float, float]], names: tuple[str, str], label: str, path: Path) -> None:
    """Draw two values of each of N pairs, joined by a line. label: of the axis."""
    with figure(path, (6, 1.2 + 0.25 * len(rows))) as picture:
        axes = picture.axes[0]
        for k, (first, second) in enumerate(rows):
            axes.plot([first, second], [k, k], color=COLORS[6], zorder=1)
        for values, name, color in zip(zip(*rows, strict=True), names, COLORS[:2], strict=False):
            axes.scatter(values, range(len(rows)), label=name, color=color, zorder=2)
        if not rows:
            axes.text(0.5, 0.5, "nobody was found", ha="center", transform=axes.transAxes)
        axes.set_yticks([])
        axes.set_xlabel(label)
        if rows:
            axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)


def interval(lower: float, upper: float, label: str, path: Path) -> None:
    """Draw the interval between the value found and the certified bound; an infinite end is marked as not known."""
    with figure(path, (6, 1.4)) as picture:
        axes = picture.axes[0]
        bounds = [float(end) for end in (lower, upper) if isfinite(end)]
        axes.plot(bounds, [0] * len(bounds), color=COLORS[0], marker="|", markersize=14, linewidth=4)
        if len(bounds) < 2:
            axes.text(0.5, 0.8, "not known" if not bounds else "one end is not known", ha="center", transform=axes.transAxes)
        axes.set_yticks([])
        axes.set_xlabel(label)


def shares(parts: Mapping[str, float], label: str, path: Path) -> None:
    """Draw the parts of a whole (0 to 1 each) as one bar: fair, open, not fair."""
    with figure(path, (6, 1.6)) as picture:
        axes = picture.axes[0]
        start = 0.0
        fills: list[dict[str, Any]] = [{"facecolor": PROVED}, HATCHED, {"facecolor": REFUTED}]
        for (name, share), fill in zip(parts.items(), fills, strict=True):
            axes.barh([0], [share], left=start, label=name, **fill)
            start += share
        axes.set_xlim(0, 1)
        axes.set_yticks([])
        axes.set_xlabel(label)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
