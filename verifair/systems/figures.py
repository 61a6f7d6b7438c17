"""One figure, drawn without a screen, and files that are there whole or not at all."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd


@contextmanager
def figure(
    path: Path, size: tuple[float, float], down: int = 1, across: int = 1, *, sharey: bool = False,
    heights: Sequence[float] | None = None,
) -> Iterator[Any]:  # fmt: skip
    """A matplotlib figure with down x across axes (`.axes`, row by row), saved to the path at the end.

    size: width, height in inches.   heights: (down,) in proportion.
    Nothing is saved where drawing fails, and a killed run leaves no half picture under the name.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawn, _ = plt.subplots(
        down, across, figsize=size, layout="constrained", squeeze=False, sharey=sharey, height_ratios=heights
    )
    try:
        yield drawn
        _literal(drawn)
        half = path.with_name(f".{path.name}.part")
        with warnings.catch_warnings():  # a letter that the font lacks is drawn as a box
            warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
            drawn.savefig(half, dpi=150, format=path.suffix.lstrip("."))
        half.replace(path)
    finally:
        plt.close(drawn)


def _literal(drawn: Any) -> None:
    """Dollars in names are no formulas; those in the powers of ten of a logarithmic axis are."""
    from matplotlib.text import Text
    from matplotlib.ticker import LogFormatter

    powers: list[Any] = []
    for axis in drawn.axes:
        for ticks in (axis.xaxis, axis.yaxis):
            labels = ticks.get_ticklabels(which="both")  # makes them
            powers += labels if isinstance(ticks.get_major_formatter(), LogFormatter) else []
    for text in drawn.findobj(Text):
        text.set_parse_math(text in powers)


def save_text(path: Path, text: str) -> None:
    """Write a text file whole. Half characters, of which names of files may have some, are written as JSON has them: \\udcff."""
    half = path.with_name(f".{path.name}.part")
    half.write_text(text, encoding="utf-8", errors="backslashreplace")
    half.replace(path)


def save_table(path: Path, parts: Iterable[pd.DataFrame]) -> None:
    """Write a CSV file whole, without the index, from parts with the same columns."""
    half = path.with_name(f".{path.name}.part")
    with half.open("w", encoding="utf-8", newline="") as file:
        for number, part in enumerate(parts):
            part.to_csv(file, index=False, header=not number)
    half.replace(path)


def file_name(words: str) -> str:
    """Words as the name of a file, without a suffix: "sex = Male" becomes sex-Male."""
    return re.sub(r"[^\w.-]+", "-", words).strip("-.") or "nameless"
