"""A measured table: printed, and written as CSV."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Table as Grid


def show(title: str, frame: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Print the frame and write it to folder/<title as a file name>.csv."""
    grid = Grid(*map(str, frame.columns), title=title, title_justify="left")
    for line in frame.itertuples(index=False):
        grid.add_row(*(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in line))
    Console(width=180, highlight=False).print(grid)
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_csv(folder / f"{title.split(':')[0].strip().replace(' ', '-').lower()}.csv", index=False)
    return frame
