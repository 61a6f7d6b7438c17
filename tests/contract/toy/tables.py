"""The toy on the screen and in files."""

from __future__ import annotations

import pandas as pd
from rich.console import Console

from tests.contract.toy.result import ToyResult


def show(result: ToyResult, console: Console) -> None:
    """Print the sentence."""
    console.print(f"{result.counted} {result.side} decisions, {result.rows} rows")


def tables(result: ToyResult) -> dict[str, pd.DataFrame]:
    """Return the one table."""
    return {"decisions.csv": pd.DataFrame({"side": [result.side], "counted": [result.counted]})}
