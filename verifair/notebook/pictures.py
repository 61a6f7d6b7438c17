"""Results that notebooks draw, and the few kinds of picture that they need."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

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


@contextmanager
def _axes(path: Path, height: float) -> Iterator[Any]:
    """Axes without a screen, and without pyplot's state: a notebook keeps its own. They are saved to the path at the end."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(6, height), layout="constrained")
    yield drawn.subplots()
    for text in drawn.findobj(lambda each: hasattr(each, "set_parse_math")):
        text.set_parse_math(False)  # type: ignore[attr-defined]  # dollars in names are no formulas
    drawn.savefig(path, dpi=150)


def pairs(found: Sequence[tuple[float, float]], names: tuple[str, str], label: str, path: Path) -> None:
    """Draw two values of each of N pairs, joined by a line. label: of the axis."""
    with _axes(path, 1.2 + 0.25 * len(found)) as axes:
        for k, (first, second) in enumerate(found):
            axes.plot([first, second], [k, k], color="#999999", zorder=1)
        for values, name, color in zip(zip(*found, strict=True), names, ("#0072B2", "#D55E00"), strict=False):
            axes.scatter(values, range(len(found)), label=name, color=color, zorder=2)
        if not found:
            axes.text(0.5, 0.5, "nobody was found", ha="center", transform=axes.transAxes)
        axes.set_yticks([])
        axes.set_xlabel(label)
        if found:
            axes.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)


def interval(lower: float, upper: float, label: str, path: Path) -> None:
    """Draw the interval between what was met and what is certified; an end that is not finite is said not to be known."""
    with _axes(path, 1.4) as axes:
        ends = [float(end) for end in (lower, upper) if np.isfinite(end)]
        axes.plot(ends, [0] * len(ends), color="#0072B2", marker="|", markersize=14, linewidth=4)
        if len(ends) < 2:
            axes.text(0.5, 0.8, "not known" if not ends else "one end is not known", ha="center", transform=axes.transAxes)
        axes.set_yticks([])
        axes.set_xlabel(label)


def shares(parts: Mapping[str, float], label: str, path: Path) -> None:
    """Draw the parts of a whole (0 to 1 each) as one bar: fair, open, not fair."""
    with _axes(path, 1.6) as axes:
        start = 0.0
        for (name, share), color in zip(parts.items(), ("#2166ac", "#fdae61", "#b2182b"), strict=True):
            axes.barh([0], [share], left=start, color=color, label=name)
            start += share
        axes.set_xlim(0, 1)
        axes.set_yticks([])
        axes.set_xlabel(label)
        axes.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
