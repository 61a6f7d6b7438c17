"""A twin problem about a tree ensemble made ready for searching: cells, the trees of both copies, bounds of rows over boxes.

Real boxes are half open here: of a variable that has been cut, the box above the cut leaves the cut itself out, which belongs to
the box below it. So boxes on both sides of a threshold never share a branch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from encoders.domain import Batched, Domain
from encoders.errors import ModelError
from encoders.network import Array, Integers
from encoders.problem import TwinProblem
from encoders.trees.cells import TreeCells
from encoders.trees.ensemble import TreeEnsemble
from encoders.trees.pairs import PairTrees, Words, Worth

SHARES = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
"""Rows are bounded by s (-l g + (1 - l) g') for these l: a row with another share of g by what its two neighbours show."""
ROOM = 2.0**-45
"""What combining two bounds may lose, relative to the size of the margins."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CellBoxes(Batched):
    """N boxes of cells, first ... last (N, V), and which pair of trees each belongs to (N,)."""

    which: Integers
    first: Integers
    last: Integers


@dataclass(frozen=True, kw_only=True, eq=False)
class TreeTwin:
    """variables: raw variables that some box moves; moving: their columns; local: the domain of these alone.

    cells: those of all variables; nodes about protected ones belong to variable -2.   columns: the cuts (V) as columns.
    worth: the trees for each pair of protected values that is asked about, and which (Q,) of them each question has.
    """

    problem: TwinProblem
    variables: Integers
    moving: Integers
    local: Domain
    cells: TreeCells
    columns: tuple[Array, ...]
    worth: tuple[Worth, ...]
    which: Integers

    @classmethod
    def of(cls, problem: TwinProblem, ensemble: TreeEnsemble) -> TreeTwin:
        """Raises ModelError for what is not supported yet."""
        batch, domain = problem.batch, problem.domain
        if batch.offset is not None and batch.offset.any():
            raise ModelError(ensemble.source or "model", "is a tree ensemble, for which relaxed features are not supported yet")
        variables = np.flatnonzero((batch.lower != batch.upper).any(axis=0))
        cells = TreeCells.of(ensemble, domain)
        protected = np.flatnonzero(batch.protected)
        hidden = replace(cells, variable=np.where(np.isin(cells.variable, protected), -2, cells.variable))
        values = np.concatenate([batch.lower[:, protected], batch.prime[:, protected]], axis=1)
        _, one, which = np.unique(values, axis=0, return_index=True, return_inverse=True)
        at, inner = hidden.variable == -2, np.maximum(ensemble.column, 0)
        worth = []
        for k in one.tolist() if len(batch) else []:
            pair = np.stack([batch.lower[k], np.where(batch.protected, batch.prime[k], batch.lower[k])])
            goes = [at & (x[inner] <= ensemble.threshold) for x in domain.encode(pair)]
            worth.append(PairTrees.of(ensemble, hidden, goes[0], goes[1]).worth(problem.margin))
        numbers = [None if domain.one_hot[v] else domain.take(np.array([v])) for v in range(domain.variables)]
        columns = tuple(
            cuts if alone is None else alone.encode(cuts[:, None])[:, 0] for alone, cuts in zip(numbers, cells.cuts, strict=True)
        )
        return cls(
            problem=problem, variables=variables, moving=domain.columns_of(variables), local=domain.take(variables), cells=hidden,
            columns=columns, worth=tuple(worth), which=which.reshape(-1),
        )

    @property
    def noise(self) -> Array:
        """(Q,) how far `evaluate` may be off."""
        return np.array([one.noise for one in self.worth])[self.which] if self.worth else np.zeros(0)

    def evaluate(self, question: Integers, x: Array) -> Array:
        """Margins (N, 2) = g(x), g(x') at moving columns x (N, d): to find witnesses, not to confirm them."""
        cell, _ = self.cells.of_boxes(self.problem.batch.lower[question], self.problem.batch.lower[question])
        for k, v in enumerate(self.variables.tolist()):
            start = int(self.local.start[k])
            if self.local.one_hot[k]:
                cell[:, v] = x[:, start : start + int(self.local.width[k])].argmax(axis=1)
            else:
                cell[:, v] = np.searchsorted(self.columns[v], x[:, start])
        boxes = CellBoxes(which=self.which[question], first=cell, last=cell)
        return self.least(boxes, self.reach(boxes), [(1.0, 0.0), (0.0, 1.0)])

    def boxes(self, question: Integers, lower: Array, upper: Array) -> CellBoxes:
        """The cells of raw boxes lower, upper (N, v) of the moving variables."""
        batch = self.problem.batch
        low, high = batch.lower[question], batch.upper[question]
        start = low[:, self.variables].copy()
        low[:, self.variables], high[:, self.variables] = lower, upper
        above = np.zeros(low.shape, dtype=bool)
        above[:, self.variables] = (lower > start) & ~self.local.integer
        first, last = self.cells.of_boxes(low, high, above=above)
        return CellBoxes(which=self.which[question], first=first, last=last)

    def reach(self, boxes: CellBoxes) -> list[tuple[Integers, Worth, Words]]:
        """The boxes of each pair of trees, and the bits of the leaves that they meet."""
        groups = [np.flatnonzero(boxes.which == k) for k in range(len(self.worth))]
        return [
            (at, worth, worth.pairs.reach(boxes.first[at], boxes.last[at]))
            for at, worth in zip(groups, self.worth, strict=True) if len(at)
        ]

    def least(self, boxes: CellBoxes, reach: list[tuple[Integers, Worth, Words]], lines: list[tuple[float, float]]) -> Array:
        """Lower bounds (N, S) of p g + q g', for S lines (p, q), over boxes."""
        found = np.empty((len(boxes), len(lines)))
        for at, worth, bits in reach:
            found[at] = worth.lower(bits, lines)
        return found


@dataclass(frozen=True, kw_only=True, eq=False)
class RowBounds:
    """How rows (R, 2) and constants (R,) are bounded: lines (S, 2) that are looked up, and what each row takes of them (R, S).

    room: (R,) what is taken off, relative to the margins' size: 0 where a row is a line.
    """

    lines: Array
    shares: Array
    constants: Array
    room: Array

    @classmethod
    def of(cls, rows: Array, constants: Array, more: Array) -> RowBounds:
        """more: (M, 2) further lines that are looked up."""
        signs = np.where(np.where(rows[:, 1] != 0, rows[:, 1], -rows[:, 0]) >= 0, 1.0, -1.0)
        size = np.abs(rows).sum(axis=1)
        share = np.divide(np.abs(rows[:, 0]), size, out=np.zeros(len(rows)), where=size > 0)
        opposed = rows[:, 0] * rows[:, 1] <= 0
        lines: dict[tuple[float, float], int] = {}
        taken = []
        for (p, q), sign, total, part, fits in zip(rows.tolist(), signs.tolist(), size.tolist(), share.tolist(), opposed.tolist(),
                                                  strict=True):
            above = int(np.searchsorted(SHARES, part))
            if not fits:
                taken.append([((p, q), 1.0)])
            elif SHARES[above] == part:
                taken.append([(_line(sign, part), total)])
            else:
                low, high = SHARES[above - 1], SHARES[above]
                weight = (part - low) / (high - low)
                taken.append([(_line(sign, low), total * (1 - weight)), (_line(sign, high), total * weight)])
        for one in [line for part in taken for line, _ in part] + [tuple(line) for line in more.tolist()]:
            lines.setdefault(one, len(lines))
        shares = np.zeros((len(rows), len(lines)))
        for row, part in enumerate(taken):
            for line, weight in part:
                shares[row, lines[line]] += weight
        alone = (constants == 0) & ((shares > 0).sum(axis=1) <= 1)
        exact = alone & np.isin(shares.max(axis=1, initial=0.0), 2.0 ** np.arange(-4, 5))
        room = np.where(exact, 0.0, ROOM)
        return cls(lines=np.array(list(lines)).reshape(-1, 2), shares=shares, constants=constants, room=room)

    def lower(self, looked_up: Array, size: Array) -> Array:
        """Lower bounds (N, R) of the rows from those of the lines (N, S); size: (N,) of the margins."""
        scale = (np.abs(self.shares).sum(axis=1) * size[:, None] + np.abs(self.constants)) * self.room
        return np.asarray(looked_up @ self.shares.T + self.constants - scale)


def _line(sign: float, share: float) -> tuple[float, float]:
    return (-sign * share + 0.0, sign * (1 - share) + 0.0)
