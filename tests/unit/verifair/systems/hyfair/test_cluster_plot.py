"""The picture of a search: its axis of time."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from verifair.systems.hyfair.kmax.plots import plot


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [([0.01328, 0.01336], (0.01, 0.1)), ([0.0, 0.0], (1e-4, 1e-3)), ([0.02, 3.0, 29.9], (0.01, 100.0)), ([0.1, 1.0], (0.1, 10.0))],
)
def test_the_axis_of_time_spans_whole_decades(
    seconds: list[float], expected: tuple[float, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[tuple[float, float]] = []
    monkeypatch.setattr(plt, "close", lambda figure: limits.append(figure.axes[0].get_xlim()))
    search = SimpleNamespace(trace=[SimpleNamespace(seconds=at, k=k) for k, at in enumerate(seconds, 1)], method="sa")
    outcomes = pd.DataFrame({"bucket": [3, 4], "probability": [0.35, 0.45]})
    result: Any = SimpleNamespace(search=search, best=SimpleNamespace(k=len(seconds), buckets=10), outcomes=outcomes, upper=3)
    plot(result, tmp_path / "k.png")
    assert limits == [pytest.approx(expected)]
    assert (tmp_path / "k.png").stat().st_size > 0
    monkeypatch.undo()
    plt.close("all")
