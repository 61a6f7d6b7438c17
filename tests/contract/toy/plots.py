"""The toy on paper."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.contract.toy.result import ToyResult
from verifair.figures import figure


def plots(result: ToyResult) -> dict[str, Callable[[Path], None]]:
    """Return the one picture."""
    return {"decisions.png": lambda path: draw(result, path)}


def draw(result: ToyResult, path: Path) -> None:
    """Draw a bar."""
    with figure(path, (4, 3)) as drawn:
        drawn.axes[0].bar([result.side], [result.counted])
