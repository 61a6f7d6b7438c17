"""One figure, drawn without a screen, and files that are there whole or not at all."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd


@contextmanager
def figure(path: Path, size: tuple[float, float], down: int = 1, across: int = 1) -> Iterator[Any]:
    """A matplotlib figure with down x across axes, saved to the path at the end. size: width, height in inches.

    Nothing is saved where drawing fails, and a killed run leaves no half picture under the name.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawn, _ = plt.subplots(down, across, figsize=size, layout="constrained", squeeze=False)
    try:
        yield drawn
        half = path.with_name(f".{path.name}.part")
        with warnings.catch_warnings():  # a letter that the font lacks is drawn as a box
            warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
            drawn.savefig(half, dpi=150, format=path.suffix.lstrip("."))
        half.replace(path)
    finally:
        plt.close(drawn)


def save_text(path: Path, text: str) -> None:
    """Write a text file whole."""
    half = path.with_name(f".{path.name}.part")
    half.write_text(text, encoding="utf-8")
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
