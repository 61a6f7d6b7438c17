"""The cells of a certified share: what bounds show of them, and where they are cut.

Of a network every copy lies between two planes (`encoders.bounds.copies`); cells are cut where what the schema forbids begins or
ends, then in the middle of the feature that the bands of their neurons come from. Of a tree ensemble every copy lies between the
sums of what its trees add at least and at most; cells are cut at the threshold on which these depend most.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Protocol

import numpy as np

from encoders.bounds.copies import CopyForms, CopyPlanes
from encoders.domain import Batched
from encoders.network import Array, Booleans, Integers, Model
from encoders.trees.cells import TreeCells
from encoders.trees.compiled import held
from encoders.trees.ensemble import TreeEnsemble
from encoders.trees.joint import JointTrees, LineTrees
from verifair.checker.shares import MOST, Numbers, ShareQuestion, swing
from verifair.engine.questions import margin
from verifair.engine.search.tree_kernel import extremes

COPIES = 4096
"""Copies bounded at a time."""
SCORES = 1 << 22
"""Numbers held at a time to choose where cells are cut."""
COPY, NODE = 200_000, 8
"""Multiplications that take as long as bounding and counting one copy takes besides, and as looking at a node of a tree."""
SPARE = Fraction(1, 10**6)
"""Share of what is counted in cells of both kinds that is not stated: the checker's directions are rounded in another order."""
LINES = np.array([[1.0, 0.0], [-1.0, 0.0]])
"""The margin and its opposite, of one copy."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ShareCells(Batched):
    """B cells.   lower, upper: (B, V).   fair, unfair, outside: exact numbers of points, the last of those that are not counted.
    strip: that are counted, as no whole cell is.   open: share of the box that is left.   variable, cut: where it would be cut, -1
    where it cannot be."""

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
class CopyBounds:
    """Planes under and over the K copies over B cells: slopes (B K, n_0) and values in the middle (B K,). variable, cut: (B,)
    where a cell would be cut; -1 where nothing is left to cut."""

    under: tuple[Array, Array]
    over: tuple[Array, Array]
    variable: Integers
    cut: Array


class CellBounds(Protocol):
    """What bounds the copies of a model over cells lower, upper (B, V). work: multiplications that take as long as one copy."""

    work: int

    def of(self, lower: Array, upper: Array) -> CopyBounds: ...


class ByPlanes:
    """A piecewise-linear network's copies."""

    def __init__(self, network: Model, question: ShareQuestion) -> None:
        self.question = question
        network = network.require_piecewise_linear("the certified share")
        self.copies = CopyForms(network, margin(network, 1, 0), question.domain, partial(swing, question.domain))
        below = np.cumsum([0, *(layer.weight.size for layer in network.layers)])
        self.work = int(sum(len(layer.bias) * size for layer, size in zip(network.layers, below, strict=False)))

    def of(self, lower: Array, upper: Array) -> CopyBounds:
        planes = self.copies.planes(*self.question.boxes(lower, upper))
        variable = self._variable(planes, lower, upper)
        cut = self.question.domain.middle(lower, upper)[np.arange(len(lower)), variable]
        return CopyBounds(under=(planes.under, planes.least), over=(planes.over, planes.most), variable=variable, cut=cut)

    def _variable(self, planes: CopyPlanes, lower: Array, upper: Array) -> Integers:
        """Return (B,) along which feature the errors of cells' forms come from most."""
        question, domain = self.question, self.question.domain
        shape = len(lower), len(question.values), -1
        slope, score = (planes.under + planes.over).reshape(shape) / 2, planes.score.reshape(shape)
        low, high = domain.box(lower, upper)
        counted = (domain.integer & (upper - lower < MOST)) @ question.owner.T > 0
        apart = np.abs(slope - np.where(counted, slope.mean(axis=1), 0.0)[:, None]).sum(axis=1) + 1e-6 * np.abs(slope).sum(axis=1)
        blame = (score.sum(axis=1) + apart * (high - low) / 2) @ question.owner
        can = domain.divisible(lower, upper)
        wide = (upper - lower) / np.maximum(question.upper - question.lower, np.finfo(float).tiny)
        blame = np.where(can, blame + 1e-9 * wide * blame.max(axis=1, keepdims=True) + 1e-300 * wide, -1.0)
        return np.where(can.any(axis=1), blame.argmax(axis=1), -1)


class ByTrees:
    """A tree ensemble's copies, each with its protected values filled in."""

    def __init__(self, ensemble: TreeEnsemble, question: ShareQuestion) -> None:
        self.question, domain = question, question.domain
        cells = TreeCells.of(ensemble, domain)
        self.cells = replace(cells, variable=np.where(np.isin(cells.variable, question.index), -2, cells.variable))
        asked, weights = self.cells.variable == -2, margin(ensemble, 1, 0)
        column = np.maximum(ensemble.column, 0)
        self.work = NODE * len(ensemble.column)
        self.copies: list[LineTrees] = []
        for row in domain.encode(question.rows(question.lower[None])):
            left = asked & (row[column] <= ensemble.threshold)
            self.copies.append(JointTrees.of(ensemble, self.cells, left, left).worth(weights).lines(LINES))
        count = [cells.count(v) for v in range(domain.variables)]
        self.start = np.cumsum([0, *count])
        at = [np.arange(count[v], dtype=np.float64) if domain.one_hot[v] else np.append(cuts, np.inf)
              for v, cuts in enumerate(cells.cuts)]
        self.owner, self.at = np.repeat(np.arange(domain.variables), count), np.concatenate(at)

    def of(self, lower: Array, upper: Array) -> CopyBounds:
        step = max(1, SCORES // len(self.at))
        parts = [self._of(lower[i : i + step], upper[i : i + step]) for i in range(0, len(lower), step)]
        least, most, key = (np.concatenate(one) for one in zip(*parts, strict=True))
        flat = np.zeros((least.size, self.question.domain.columns))
        able = key >= 0
        return CopyBounds(
            under=(flat, least.reshape(-1)), over=(flat, most.reshape(-1)), variable=np.where(able, self.owner[key], -1),
            cut=np.where(able, self.at[key], np.nan),
        )

    def _of(self, lower: Array, upper: Array) -> tuple[Array, Array, Integers]:
        """Return bounds (B, K) of all copies over cells, and behind which value (B,), of all variables', they are cut, or -1."""
        first, last = self.cells.of_boxes(lower, upper, above=~self.question.domain.integer & (lower < upper))
        low, high, start = held(first), held(last), held(self.start)
        least, most, score = [], [], held(np.zeros(len(lower) * len(self.at)))
        for copy in self.copies:
            trees = copy.trees
            found = np.asarray(extremes(
                trees.variable, trees.cut, trees.right, trees.root, trees.counts, trees.hot, trees.cells, copy.adds, copy.base,
                len(lower), low, high, start, score,
            )).reshape(-1, 2)
            least.append(found[:, 0])
            most.append(-found[:, 1])
        sums = np.asarray(score).reshape(len(lower), -1)
        best = sums.argmax(axis=1)
        return np.stack(least, axis=1), np.stack(most, axis=1), np.where(sums.max(axis=1) > 0, best, -1)


@dataclass(frozen=True, kw_only=True, eq=False)
class CellLooks:
    """What every process needs to bound and to count cells. volume: of the box."""

    network: Model
    question: ShareQuestion
    bounds: CellBounds
    volume: Fraction

    @classmethod
    def of(cls, network: Model, question: ShareQuestion) -> CellLooks:
        bounds = ByTrees(network, question) if isinstance(network, TreeEnsemble) else ByPlanes(network, question)
        volume = Fraction(question.volumes(question.lower[None], question.upper[None])[0])
        return cls(network=network, question=question, bounds=bounds, volume=volume)

    def cells(self, lower: Array, upper: Array) -> ShareCells:
        """Bound and count cells (B, V), and choose where they would be cut."""
        step = max(1, COPIES // len(self.question.values))
        return ShareCells.join([self._look(lower[i : i + step], upper[i : i + step]) for i in range(0, len(lower), step)])

    def _look(self, lower: Array, upper: Array) -> ShareCells:
        question = self.question
        found = self.bounds.of(lower, upper)
        counted = question.counted(self.network, lower, upper, found.under, found.over)
        volume, decided = (one.astype(np.float64) for one in (counted.volume, counted.fair + counted.unfair))
        left = np.where(counted.whole, 0.0, np.maximum(volume - decided, float(SPARE) * volume)) / float(self.volume)
        outside = np.where(counted.volume == 0, question.volumes(lower, upper), 0)
        variable, cut = self._faces(lower, upper, found.variable, found.cut)
        return ShareCells(
            lower=lower, upper=upper, fair=counted.fair, unfair=counted.unfair, outside=outside, strip=~counted.whole, open=left,
            variable=variable, cut=cut,
        )

    def _faces(self, lower: Array, upper: Array, variable: Integers, cut: Array) -> tuple[Integers, Array]:
        """Return along which feature (B,) cells are cut, and where (B,): as given, or at an end of a forbidden box that some
        copies' points lie in, and others' of the same protected values not."""
        domain, question = self.question.domain, self.question
        forbidden = domain.forbidden
        if forbidden is None:
            return variable, cut
        variable, cut, mixed = variable.copy(), cut.copy(), question.asked(lower, upper)[1]
        low, high = question.rows(lower), question.rows(upper)
        for least, most, common in zip(forbidden.lower, forbidden.upper, forbidden.common(low, high), strict=True):
            met = (common >= 0).all(axis=1).reshape(len(lower), -1).any(axis=1)
            first, last = np.where(domain.integer, np.ceil(least) - 1, least), np.where(domain.integer, np.floor(most), most)
            for end in (first, last):
                inside = (end + domain.integer > lower) & (end < upper)
                here = np.flatnonzero(mixed & met & inside.any(axis=1))
                variable[here] = inside[here].argmax(axis=1)
                cut[here] = end[variable[here]]
        return variable, cut
