"""What a notebook shows of an object: one line, and a table. `verifair.notebook.tables` makes both, loaded when asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


class Shown:
    """An object with fields (a dataclass with repr=False, or a pydantic model) that is shown in one line, and as a table."""

    def __repr__(self) -> str:
        from verifair.notebook.tables import line

        return line(self)

    def _repr_html_(self) -> str:
        from verifair.notebook.tables import html

        return html(type(self).__name__, self.to_frame())

    def to_frame(self) -> pd.DataFrame:
        """Return a table of what it holds; of a plain object one row a field, in brief."""
        from verifair.notebook.tables import facts

        return facts(self)
