"""Figures: drawn without a screen into files, or as <svg> elements for a page."""

from __future__ import annotations

import base64
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from verifair.systems.findings import Picture

COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999", "#000000")
"""Of groups, the same in all figures: Okabe and Ito's, told apart by the colour-blind."""


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


LARGEST = 300_000
"""Characters of an SVG; a figure of more marks than that is drawn as pixels."""
NAMED = re.compile(r'(\bid="|url\(#|href="#)([^")]+)')
HEAD = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>", re.DOTALL)


def picture(name: str, title: str, alt: str, draw: Callable[[Path], None]) -> Picture:
    """What `draw` draws to a path.   name: unlike that of any other picture of the page; names within the SVG begin with it."""
    import matplotlib

    with TemporaryDirectory() as folder, matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "path"}):
        drawn = Path(folder) / "figure.svg"
        draw(drawn)
        svg = HEAD.sub("", drawn.read_text(encoding="utf-8")).strip()
        if len(svg) > LARGEST:
            size = _size(svg)
            draw(drawn.with_suffix(".png"))
            data = base64.b64encode(drawn.with_suffix(".png").read_bytes()).decode()
            svg = (
                f'<svg xmlns="http://www.w3.org/2000/svg" {size}><image width="100%" height="100%" '
                f'href="data:image/png;base64,{data}"/></svg>'
            )
    return Picture(title=title, alt=alt, svg=NAMED.sub(rf"\g<1>{name}-\g<2>", svg))


def _size(svg: str) -> str:
    """width, height and viewBox of an SVG."""
    head = svg[: svg.index(">")]
    return " ".join(found.group(0) for key in ("width", "height", "viewBox") if (found := re.search(rf'\b{key}="[^"]*"', head)))
