"""Parts of the coefficients' box, row by row: if the whole box does not decide a row's counterfactual, its halves may."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from encoders.arrays import Array, Integers
from verifair.systems.results.result import Shape

SAMPLES = 16
"""Corners of a part that are tried before it is cut, beside its centre."""


class Dependence(Shape):
    """Two coefficient vectors (p,) whose counterfactuals, rows in the schema's words, are decided differently.

    classes, margins: of both. Margins are g = f_1 - f_0 or the logit, for display; their signs were decided exactly.
    float32_agrees: whether onnxruntime decides both in the same way (None: the model file was not at hand).
    """

    coefficients: tuple[tuple[float, ...], tuple[float, ...]]
    counterfactuals: tuple[dict[str, Any], dict[str, Any]]
    classes: tuple[int, int]
    margins: tuple[float, float]
    float32_agrees: bool | None


@dataclass(kw_only=True, eq=False)
class Part:
    """A part of the box of one row: coefficients low .. high (p,), and the raw box lower .. upper (V,) of its counterfactuals.

    width: of that box in network inputs.   flaw: the reason that it was not decided.   exact: whether its box is already the exact
    one.
    """

    row: int
    low: Array
    high: Array
    lower: Array = field(default_factory=lambda: np.empty(0))
    upper: Array = field(default_factory=lambda: np.empty(0))
    width: float = 0.0
    flaw: str = ""
    exact: bool = False

    @classmethod
    def at(cls, row: int, theta: Array) -> Part:
        """A single coefficient vector."""
        return cls(row=row, low=theta, high=theta)

    @property
    def cell(self) -> tuple[tuple[float, float], ...]:
        return tuple(zip(self.low.tolist(), self.high.tolist(), strict=True))

    def samples(self) -> list[Array]:
        """The centre, and corners."""
        uncertain = np.flatnonzero(self.high > self.low)
        count = min(1 << len(uncertain), SAMPLES)
        step = (1 << len(uncertain)) / count
        vectors = [self.low + (self.high - self.low) / 2]
        for number in (np.arange(count) * step).astype(np.int64).tolist():
            theta = self.low.copy()
            at_high = uncertain[[bool(number >> bit & 1) for bit in range(len(uncertain))]]
            theta[at_high] = self.high[at_high]
            vectors.append(theta)
        return vectors


class Enclosing(Protocol):
    """An object that encloses counterfactuals in boxes (`network_rows.NetworkRows`)."""

    def __len__(self) -> int: ...

    def enclosure(self, rows: Integers, low: Array, high: Array) -> tuple[Array, Array, Array]: ...


class Cells:
    """Makes parts and cuts them.   count: (N,) number of parts of each row's box so far."""

    def __init__(self, people: Enclosing, *, max_parts: int) -> None:
        self.people, self.max_parts = people, max_parts
        self.count = np.zeros(len(people), dtype=np.int64)

    def roots(self, low: Array, high: Array, rows: Sequence[int]) -> list[Part]:
        """Return the whole box of each row as a part."""
        parts = [Part(row=row, low=low, high=high) for row in rows]
        self.count[list(rows)] += 1
        return self._with_boxes(parts)

    def cut(self, parts: Sequence[Part]) -> tuple[list[Part], list[Part]]:
        """Return the halves of the parts, each along the coefficient that makes their boxes narrowest; and the parts that cannot be
        cut."""
        halves: list[Part] = []
        stuck: list[Part] = []
        for part in parts:
            if self.count[part.row] >= self.max_parts:
                stuck.append(part)
                continue
            uncertain = np.flatnonzero(part.high > part.low).tolist()
            boxes = [box for k in uncertain for box in halved(part.low, part.high, k)]
            candidates = self._with_boxes([Part(row=part.row, low=low, high=high) for low, high in boxes])
            pairs = list(zip(candidates[::2], candidates[1::2], strict=True))
            best = min(pairs, key=lambda pair: pair[0].width + pair[1].width, default=None)
            if best is None or best[0].width + best[1].width >= 2 * part.width:
                stuck.append(part)
                continue
            self.count[part.row] += 1
            halves += best
        return halves, stuck

    def _with_boxes(self, parts: list[Part]) -> list[Part]:
        if parts:
            rows = np.array([part.row for part in parts], dtype=np.int64)
            boxes = self.people.enclosure(rows, np.array([part.low for part in parts]), np.array([part.high for part in parts]))
            for part, lower, upper, width in zip(parts, *boxes, strict=True):
                part.lower, part.upper, part.width = lower, upper, float(width)
        return parts


def halved(low: Array, high: Array, k: int) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Return the two halves of the box low .. high (p,), cut in the middle of coefficient k."""
    left, right = high.copy(), low.copy()
    left[k] = right[k] = low[k] + (high[k] - low[k]) / 2
    return (low, left), (right, high)
