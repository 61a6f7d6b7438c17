"""The common style of figures: colours, fonts, and drawing into files without a screen.

A colour of standing always means the same (proved, refuted, open), also on the audit's page; groups have other colours. All are
distinguishable for readers who confuse red and green, and open shares are hatched.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from verifair.errors import require
from verifair.files import whole

COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999", "#000000")
"""Colours of groups: Okabe and Ito's."""
PROVED, REFUTED, OPEN, NOT_REACHED, OUTSIDE = "#2166ac", "#b2182b", "#b9b7d6", "#dedde8", "#f3f2ee"
"""Colours of standings; --good, --bad and --open of the audit's page (auditing/page/parts/page.css) are the first three in ink."""
HATCHED: dict[str, Any] = {"facecolor": OPEN, "edgecolor": "#5a5879", "hatch": "///", "linewidth": 0}
"""Style of an open area."""
STYLE = {
    "font.size": 10, "axes.titlesize": 11, "axes.titlelocation": "left", "axes.spines.top": False, "axes.spines.right": False,
    "axes.edgecolor": "#59564f", "axes.axisbelow": True, "grid.alpha": 0.3, "hatch.linewidth": 0.6, "legend.fontsize": 9,
    "legend.frameon": False, "xtick.labelsize": 9, "ytick.labelsize": 9,
}
"""Style of every figure. No text is smaller than 8 points, so that a figure can be read at half of its size on a screen."""


@contextmanager
def figure(
    path: Path, size: tuple[float, float], down: int = 1, across: int = 1, *, sharey: bool = False,
    heights: Sequence[float] | None = None,
) -> Iterator[Any]:  # fmt: skip
    """Yield a matplotlib figure with down x across axes (`.axes`, row by row), saved to the path at the end.

    size: width, height in inches.   heights: (down,) in proportion.
    Nothing is saved if drawing fails, and a killed run leaves no half picture under the name.
    """
    require("matplotlib", "plots", "a figure")
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        picture = Figure(figsize=size, layout="constrained")  # not pyplot's: a notebook keeps its own figures and backend
        picture.subplots(down, across, squeeze=False, sharey=sharey, height_ratios=heights)
        yield picture
        _literal(picture)
        with whole(path) as temporary, warnings.catch_warnings():  # a letter that the font lacks is drawn as a box
            warnings.filterwarnings("ignore", message=r"Glyph .* missing from (current )?font")
            picture.savefig(temporary, dpi=150, format=path.suffix.lstrip("."))


def _literal(picture: Any) -> None:
    """Escape dollar signs in names, which are not formulas; the powers of ten of a logarithmic axis keep theirs."""
    from matplotlib.text import Text
    from matplotlib.ticker import LogFormatter

    powers: list[Any] = []
    for axis in picture.axes:
        for ticks in (axis.xaxis, axis.yaxis):
            labels = ticks.get_ticklabels(which="both")  # makes them
            powers += labels if isinstance(ticks.get_major_formatter(), LogFormatter) else []
    for text in picture.findobj(Text):
        text.set_parse_math(text in powers)
