"""Pictures of the audit's page: drawings as <svg> elements."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from verifair.systems.results.findings import Picture

LARGEST = 300_000
"""Characters of an SVG; a figure of more marks than that is drawn as pixels."""
NAMED = re.compile(r'(\bid="|url\(#|href="#)([^")]+)')
HEAD = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>", re.DOTALL)


def picture(name: str, title: str, alt: str, draw: Callable[[Path], None]) -> Picture:
    """Return the picture that `draw` draws to a path.   name: unique on the page; names within the SVG begin with it."""
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
    """Return the width, height and viewBox of an SVG."""
    head = svg[: svg.index(">")]
    return " ".join(found.group(0) for key in ("width", "height", "viewBox") if (found := re.search(rf'\b{key}="[^"]*"', head)))
