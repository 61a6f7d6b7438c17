"""Results that notebooks draw, and the few kinds of picture that they need."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from verifair.figures import COLORS, HATCHED, PROVED, REFUTED, figure
from verifair.notebook.shown import Shown


class Drawing:
    """A picture that notebooks show, and that can be saved. draw: draws it into a .svg, .png or .pdf file."""

    def __init__(self, draw: Callable[[Path], None]) -> None:
        self._draw = draw

    def __repr__(self) -> str:
        return "Drawing(save(path) writes it as .svg, .png or .pdf)"

    def _repr_svg_(self) -> str:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "drawing.svg"
            self._draw(path)
            return path.read_text(encoding="utf-8")

    def save(self, path: str | Path) -> Path:
        """Write the picture in the format that the name ends in."""
        self._draw(Path(path))
        return Path(path)


class Pictured(Shown):
    """A result: it has a picture as well."""

    def plot(self) -> Drawing:
        """Return the picture."""
        return Drawing(self._draw)

    @abstractmethod
    def _draw(self, path: Path) -> None:
        """Draw it into a file."""


def pairs(found: Sequence[tuple[float, float]], names: tuple[str, str], label: str, path: Path) -> None:
    """Draw two values of each of N pairs, joined by a line. label: of the axis."""
    with figure(path, (6, 1.2 + 0.25 * len(found))) as drawn:
        axes = drawn.axes[0]
        for k, (first, second) in enumerate(found):
            axes.plot([first, second], [k, k], color=COLORS[6], zorder=1)
        for values, name, color in zip(zip(*found, strict=True), names, COLORS[:2], strict=False):
            axes.scatter(values, range(len(found)), label=name, color=color, zorder=2)
        if not found:
            axes.text(0.5, 0.5, "nobody was found", ha="center", transform=axes.transAxes)
        axes.set_yticks([])
        axes.set_xlabel(label)
        if found:
            axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)


def interval(lower: float, upper: float, label: str, path: Path) -> None:
    """Draw the interval between what was met and what is certified; an end that is not finite is said not to be known."""
    with figure(path, (6, 1.4)) as drawn:
        axes = drawn.axes[0]
        ends = [float(end) for end in (lower, upper) if isfinite(end)]
        axes.plot(ends, [0] * len(ends), color=COLORS[0], marker="|", markersize=14, linewidth=4)
        if len(ends) < 2:
            axes.text(0.5, 0.8, "not known" if not ends else "one end is not known", ha="center", transform=axes.transAxes)
        axes.set_yticks([])
        axes.set_xlabel(label)


def shares(parts: Mapping[str, float], label: str, path: Path) -> None:
    """Draw the parts of a whole (0 to 1 each) as one bar: fair, open, not fair."""
    with figure(path, (6, 1.6)) as drawn:
        axes = drawn.axes[0]
        start = 0.0
        fills: list[dict[str, Any]] = [{"facecolor": PROVED}, HATCHED, {"facecolor": REFUTED}]
        for (name, share), fill in zip(parts.items(), fills, strict=True):
            axes.barh([0], [share], left=start, label=name, **fill)
            start += share
        axes.set_xlim(0, 1)
        axes.set_yticks([])
        axes.set_xlabel(label)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
