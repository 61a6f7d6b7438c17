"""Helpers of all comparisons: the folder of data, and measured tables, printed and written as CSV."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table as Grid


class Skipped(Exception):
    """A comparison cannot be made on this machine; the message says what is missing."""


def data_folder() -> Path:
    """Return the folder that VERIFAIR_DATA names. Raises Skipped if it is not set."""
    folder = os.environ.get("VERIFAIR_DATA")
    if not folder:
        raise Skipped("VERIFAIR_DATA is not set")
    return Path(folder)


def show(title: str, frame: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Print the frame and write it to folder/<title as a file name>.csv."""
    grid = Grid(*map(str, frame.columns), title=title, title_justify="left")
    for line in frame.itertuples(index=False):
        grid.add_row(*(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in line))
    Console(width=180, highlight=False).print(grid)
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_csv(folder / f"{title.split(':')[0].strip().replace(' ', '-').lower()}.csv", index=False)
    return frame


def measured(title: str, lines: Iterator[dict[str, Any]], folder: Path) -> pd.DataFrame:
    """Return the lines as a table; each is also printed at once. Ctrl-C ends the measuring; finished lines are still shown."""
    finished: list[dict[str, Any]] = []
    try:
        for line in lines:
            finished.append(line)
            print("  ", *(f"{value:.4g}" if isinstance(value, float) else value for value in line.values()), flush=True)
    except KeyboardInterrupt:
        if finished:
            show(title, pd.DataFrame(finished), folder)
        raise SystemExit("interrupted: the table holds what was measured before") from None
    return show(title, pd.DataFrame(finished), folder)


def peak() -> float:
    """Return the peak memory of this process in MiB; NaN off Linux. (The maximum of getrusage is inherited from the parent
    process.)"""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), float("nan"))
