"""Display of objects in notebooks: one line, a table, and a picture for results. `tables` makes line and table, on demand."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


class Shown:
    """An object with fields (a dataclass with repr=False, or a pydantic model) that is shown in one line, and as a table."""

    def __repr__(self) -> str:
        from verifair.notebook.tables import line
        return line(self)

    __str__ = __repr__  # pydantic's prints every field in full

    def _repr_html_(self) -> str:
        from verifair.notebook.tables import html

        return html(type(self).__name__, self.to_frame())

    def to_frame(self) -> pd.DataFrame:
        """Return its content as a table; for a plain object one row for each field, abbreviated."""
        from verifair.notebook.tables import facts

        return facts(self)


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
        """Draw the picture into a file."""
