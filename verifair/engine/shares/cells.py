"""The cells of a certified share: the points that bounds decide in them, and the places of their cuts.

Every copy of a network lies between two planes (`encoders.bounds.planes`); cells are cut at the ends of forbidden boxes, then in
the middle of the feature that contributes most to the bands of their neurons. Every copy of a tree ensemble lies between the sums
of the least and of the largest leaves of its trees; cells are cut at the threshold on which these depend most.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Protocol

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from encoders.bounds.planes import CopyForms, CopyPlanes
from encoders.domain import Batched
from encoders.model import Model
from verifair.checker.shares import MOST, Numbers, ShareQuestion, swing
from verifair.engine.questions import margin

COPIES = 4096
"""Copies bounded at a time."""
COPY, NODE = 200_000, 8
"""Multiplications that take as long as the overhead of bounding and counting one copy, and as a visit to a tree node."""
SPARE = Fraction(1, 10**6)
"""Share of a cell's volume that is not stated in cells with fair and unfair points: the checker rounds directions differently."""
LINES = np.array([[1.0, 0.0], [-1.0, 0.0]])
"""The margin and its opposite, of one copy."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ShareCells(Batched):
    """B cells.   lower, upper: (B, V).   fair, unfair, outside: exact numbers of points, `outside` those that are not counted.
    strip: points decided in cells that are not decided as a whole.   open: undecided share of the box.   variable, cut: of the next
    cut, -1 where there is none."""

    lower: Array
    upper: Array
    fair: Numbers
    unfair: Numbers
    outside: Numbers
    strip: Booleans
    open: Array
    variable: Integers
    cut: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class CellPlanes:
    """Planes under and over the K copies over B cells: slopes (B K, n_0) and values in the middle (B K,). variable, cut: (B,) of a
    cell's next cut; -1 if it cannot be cut."""

    under: tuple[Array, Array]
    over: tuple[Array, Array]
    variable: Integers
    cut: Array


class CellBounds(Protocol):
    """Bounds of the copies of a model over cells lower, upper (B, V). work: multiplications that take as long as one copy."""

    work: int

    def of(self, lower: Array, upper: Array) -> CellPlanes: ...


class ByPlanes:
    """Bounds of a piecewise-linear network's copies."""

    def __init__(self, network: Model, question: ShareQuestion) -> None:
        self.question = question
        network = network.require_piecewise_linear("the certified share")
        self.copies = CopyForms(network, margin(network, 1, 0), question.domain, partial(swing, question.domain))
        below = np.cumsum([0, *(layer.weight.size for layer in network.layers)])
        self.work = int(sum(len(layer.bias) * size for layer, size in zip(network.layers, below, strict=False)))

    def of(self, lower: Array, upper: Array) -> CellPlanes:
        planes = self.copies.planes(*self.question.boxes(lower, upper))
        variable = self._variable(planes, lower, upper)
        cut = self.question.domain.middle(lower, upper)[np.arange(len(lower)), variable]
        return CellPlanes(under=(planes.under, planes.least), over=(planes.over, planes.most), variable=variable, cut=cut)

    def _variable(self, planes: CopyPlanes, lower: Array, upper: Array) -> Integers:
        """Return (B,) the feature that contributes most to the errors of each cell's forms."""
        question, domain = self.question, self.question.domain
        shape = len(lower), len(question.values), -1
        slope, score = (planes.under + planes.over).reshape(shape) / 2, planes.score.reshape(shape)
        low, high = domain.box(lower, upper)
        counted = (domain.integer & (upper - lower < MOST)) @ question.owner.T > 0
        spread = np.abs(slope - np.where(counted, slope.mean(axis=1), 0.0)[:, None]).sum(axis=1) + 1e-6 * np.abs(slope).sum(axis=1)
        errors = (score.sum(axis=1) + spread * (high - low) / 2) @ question.owner
        divisible = domain.divisible(lower, upper)
        relative = (upper - lower) / np.maximum(question.upper - question.lower, np.finfo(float).tiny)
        errors = np.where(divisible, errors + 1e-9 * relative * errors.max(axis=1, keepdims=True) + 1e-300 * relative, -1.0)
        return np.where(divisible.any(axis=1), errors.argmax(axis=1), -1)


class ByTrees:
    """Bounds of a tree ensemble's copies, each with its protected values filled in."""

    def __init__(self, model: Model, question: ShareQuestion) -> None:
        from encoders.trees.extremes import TreeLines  # numba is loaded for trees alone

        self.question, rows = question, question.rows(question.lower[None])
        pairs, protected = [(row, row) for row in rows], np.array(question.index)
        self.lines = TreeLines.of(model, question.domain, protected, margin(model, 1, 0), pairs, LINES)
        self.work = NODE * len(self.lines.cells.variable)

    def of(self, lower: Array, upper: Array) -> CellPlanes:
        above = ~self.question.domain.integer & (lower < upper)
        bounds, score, cuts = self.lines.least(lower, upper, above, undecided="strict" if self.question.strict else "deployed")
        best, index = score.argmax(axis=1), np.arange(len(score))
        zero_slopes = np.zeros((bounds.shape[0] * bounds.shape[1], self.question.domain.columns))
        return CellPlanes(
            under=(zero_slopes, bounds[:, :, 0].reshape(-1)), over=(zero_slopes, -bounds[:, :, 1].reshape(-1)),
            variable=np.where(score[index, best] > 0, best, -1), cut=cuts[index, best],
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class CellLooks:
    """The data that every process needs to bound and to count cells. volume: of the box."""

    network: Model
    question: ShareQuestion
    bounds: CellBounds
    volume: Fraction

    @classmethod
    def of(cls, network: Model, question: ShareQuestion) -> CellLooks:
        bounds = ByTrees(network, question) if network.ensemble is not None else ByPlanes(network, question)
        volume = Fraction(question.volumes(question.lower[None], question.upper[None])[0])
        return cls(network=network, question=question, bounds=bounds, volume=volume)

    def cells(self, lower: Array, upper: Array) -> ShareCells:
        """Bound and count cells (B, V), and choose their next cuts."""
        step = max(1, COPIES // len(self.question.values))
        return ShareCells.join([self._look(lower[i : i + step], upper[i : i + step]) for i in range(0, len(lower), step)])

    def _look(self, lower: Array, upper: Array) -> ShareCells:
        question = self.question
        planes = self.bounds.of(lower, upper)
        counted = question.counted(self.network, lower, upper, planes.under, planes.over)
        volume, decided = (array.astype(np.float64) for array in (counted.volume, counted.fair + counted.unfair))
        left = np.where(counted.whole, 0.0, np.maximum(volume - decided, float(SPARE) * volume)) / float(self.volume)
        outside = np.where(counted.volume == 0, question.volumes(lower, upper), 0)
        variable, cut = self._faces(lower, upper, planes.variable, planes.cut)
        return ShareCells(
            lower=lower, upper=upper, fair=counted.fair, unfair=counted.unfair, outside=outside, strip=~counted.whole, open=left,
            variable=variable, cut=cut,
        )

    def _faces(self, lower: Array, upper: Array, variable: Integers, cut: Array) -> tuple[Integers, Array]:
        """Return the features (B,) and the places (B,) of cuts: as given, or at an end of a forbidden box if, for some protected
        values, it holds some points of the cell but not all."""
        domain, question = self.question.domain, self.question
        forbidden = domain.forbidden
        if forbidden is None:
            return variable, cut
        variable, cut, mixed = variable.copy(), cut.copy(), question.comparisons(lower, upper)[1]
        low, high = question.rows(lower), question.rows(upper)
        for f_low, f_high, common in zip(forbidden.lower, forbidden.upper, forbidden.common(low, high), strict=True):
            constrained = (common >= 0).all(axis=1).reshape(len(lower), -1).any(axis=1)
            first, last = np.where(domain.integer, np.ceil(f_low) - 1, f_low), np.where(domain.integer, np.floor(f_high), f_high)
            for end in (first, last):
                inside = (end + domain.integer > lower) & (end < upper)
                index = np.flatnonzero(mixed & constrained & inside.any(axis=1))
                variable[index] = inside[index].argmax(axis=1)
                cut[index] = end[variable[index]]
        return variable, cut
