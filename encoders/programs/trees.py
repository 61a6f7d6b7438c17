"""The exact mixed-integer program of both copies of a tree ensemble: a binary for every threshold, a share for every leaf.

With the protected values of both copies fixed each tree is one over the other variables whose leaves hold the values of both
(`encoders.trees.joint`). Cells of a number are cut by binaries, y_k = 1 iff the number lies below threshold k, so y_k <= y_(k+1);
categories are binaries with sum 1. Of every tree the leaves' shares sum to 1, and for every question

    sum of the shares left of it <= y,        sum of the shares right of it <= 1 - y,

y the binary of its threshold, or the sum of the categories that go left. Whole y leave each tree the one leaf that the row ends in.
A goal of one row about g - g' gets the trees of that difference alone.

Sound? Complete?  Both, up to the solver's tolerances; constraints of the domain are left out, so that a point may be no legal row.
Reference: Kantchelian, Tygar, Joseph, Evasion and hardening of tree ensemble classifiers, ICML 2016.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from encoders.arrays import Array, Integers
from encoders.problem import Goal
from encoders.programs.rows import ProgramBuilder, RowBlock, matrix, worst_program
from encoders.trees.joint import Preorder, holds, some
from encoders.trees.twin import TreeTwin
from solvers.program import Program


@dataclass(frozen=True, kw_only=True, eq=False)
class TreeProgram:
    """A program about the margins of one question, without an objective yet, and the way back from its solutions.

    margins (2, n): g and g' over the columns; constants (2,) are 0.   ends: (2,), (2,) bounds of both.
    columns: for each variable the cells, or categories, and the binaries that tell them apart.
    """

    twin: TreeTwin
    question: int
    program: Program
    margins: Array
    constants: Array
    ends: tuple[Array, Array]
    columns: dict[int, tuple[Integers, Integers]]

    @classmethod
    def of(cls, twin: TreeTwin, question: int, goal: Goal, *, apart: bool = False) -> TreeProgram:
        """Return the program of one question for one goal. apart: use separate trees of each copy, which share only thresholds: the
        formulation without common branches of the copies, for comparison."""
        batch, index = twin.problem.batch, np.array([question])
        terms = twin.terms(int(twin.pair_of[question]))
        first, last = twin.boxes(index, batch.lower[index][:, twin.variables], batch.upper[index][:, twin.variables])
        difference = not apart and len(goal.rows) == 1 and goal.gap is None and goal.rows[0, 0] == -goal.rows[0, 1]
        lines = terms.lines(np.array([[1.0, -1.0]])) if difference else None
        if lines is not None:
            adds = np.asarray(lines.adds)
            parts = [(lines.trees, np.stack([adds, np.zeros(len(adds))]))]
        elif apart:
            first_copy, second_copy = twin.alone(int(twin.pair_of[question]))
            value, value2 = first_copy.first[0], second_copy.second[0]
            parts = [(first_copy.trees, np.stack([value, np.zeros(len(value))])),
                     (second_copy.trees, np.stack([np.zeros(len(value2)), value2]))]
        else:
            parts = [(terms.trees, np.stack([terms.first[0], terms.second[0]]))]
        base = np.array([float(terms.base[0][0])] * 2) if lines is None else np.zeros(2)
        build = _Build(terms.trees, first[0].tolist(), last[0].tolist())
        lowest, highest = base.copy(), base.copy()
        shares, added = list[int](), list[Array]()
        for trees, adds in parts:
            build.trees = trees
            for root in np.asarray(trees.root).tolist():
                leaves = build.tree(root)
                values = adds[:, [leaf for leaf, _ in leaves]]
                lowest, highest = lowest + values.min(axis=1), highest + values.max(axis=1)
                shares += [column for _, column in leaves]
                added.append(values)
        build.cells()
        fixed = build.builder.columns(np.ones(1), np.ones(1))
        width = build.builder.width
        margins = np.zeros((2, width))
        margins[:, shares] = np.concatenate(added, axis=1)
        margins[:, fixed[0]] = base
        block, lower, upper = matrix(build.builder.rows, width)
        program = Program(
            lower=np.concatenate(build.builder.lower), upper=np.concatenate(build.builder.upper),
            integer=np.concatenate(build.builder.integer), rows=block, row_lower=lower, row_upper=upper,
        )
        return cls(twin=twin, question=question, program=program, margins=margins, constants=np.zeros(2), ends=(lowest, highest),
                   columns=build.columns)

    def worst(self, goal: Goal) -> Program:
        """minimise the goal's best row: a positive optimum leaves no point against it, nor does 0 when no row is strict."""
        return worst_program(self.program, self.margins, self.constants, goal, self.ends)

    def decode(self, values: Array) -> Array:
        """Return the raw point (1, V) of a solution (n,): the largest value of the box in every cell."""
        twin, index = self.twin, np.array([self.question])
        lower, upper = twin.problem.batch.lower[index], twin.problem.batch.upper[index]
        first, _ = twin.cells.of_boxes(lower, lower)
        for v, (cells, binaries) in self.columns.items():
            chosen = values[binaries]
            if twin.cells.sets[v]:
                first[0, v] = cells[int(chosen.argmax())]
            else:       # the first threshold that the number lies below; above all of them the cell behind the last one
                below = np.flatnonzero(chosen > 0.5)
                first[0, v] = cells[below[0]] if len(below) else cells[-1] + 1
        return twin.cells.within(first, lower, upper)


class _Build:
    """Columns and rows so far. trees: those that are added now.   first, last: the cells of the box, by variable."""

    def __init__(self, trees: Preorder, first: list[int], last: list[int]) -> None:
        self.trees, self.first, self.last = trees, first, last
        self.builder = ProgramBuilder()
        self.binary: dict[tuple[int, int], int] = {}
        self.columns: dict[int, tuple[Integers, Integers]] = {}
        self.hot = np.asarray(trees.hot).tolist()

    def tree(self, node: int) -> list[tuple[int, int]]:
        """Add one tree; return the leaves that the box meets, and their columns."""
        leaves = self._below(node)
        columns = np.array([column for _, column in leaves])
        self.builder.add(RowBlock.single(columns, np.ones(len(columns)), 1.0, 1.0))
        return leaves

    def _below(self, node: int) -> list[tuple[int, int]]:
        trees = self.trees
        v, cut = int(trees.variable[node]), int(trees.cut[node])
        if v < 0:
            return [(cut, int(self.builder.columns(np.zeros(1), np.ones(1))[0]))]
        going = [c for c in range(self.first[v], self.last[v] + 1) if self._goes_left(cut, c)] if self.hot[v] else []
        any_left = len(going) > 0 if self.hot[v] else self.first[v] <= cut
        any_right = self._any_right(v, cut) if self.hot[v] else self.last[v] > cut
        if not (any_left and any_right):
            return self._below(node + 1 if any_left else int(trees.right[node]))
        left, right = self._below(node + 1), self._below(int(trees.right[node]))
        y = [self._category(v, c) for c in going] if self.hot[v] else [self._threshold(v, cut)]
        for side, factor, limit in ((left, 1.0, 0.0), (right, -1.0, 1.0)):
            leaf_columns = [column for _, column in side]
            self.builder.add(RowBlock.single(leaf_columns + y, [1.0] * len(leaf_columns) + [-factor] * len(y), -np.inf, limit))
        return left + right

    def _goes_left(self, split: int, c: int) -> bool:
        return bool(holds(self.trees.sets, split, c))

    def _any_right(self, v: int, split: int) -> bool:
        """Return True if some category of the box goes right, of those that the path there leaves."""
        return bool(some(self.trees.sets, split + self.hot[v], int(self.first[v]), int(self.last[v])))

    def _threshold(self, v: int, cut: int) -> int:
        if (v, cut) not in self.binary:
            self.binary[v, cut] = int(self.builder.columns(np.zeros(1), np.ones(1), np.ones(1, dtype=bool))[0])
        return self.binary[v, cut]

    def _category(self, v: int, c: int) -> int:
        for cell in range(self.first[v], self.last[v] + 1):
            self._threshold(v, cell)
        return self.binary[v, c]

    def cells(self) -> None:
        """Add the rows between the binaries of every variable."""
        for v in sorted({v for v, _ in self.binary}):
            cells = np.array(sorted(c for u, c in self.binary if u == v))
            columns = np.array([self.binary[v, c] for c in cells.tolist()])
            self.columns[v] = cells, columns
            if self.hot[v]:
                self.builder.add(RowBlock.single(columns, np.ones(len(columns)), 1.0, 1.0))
            elif len(columns) > 1:
                self.builder.add(RowBlock.of([columns[:-1], columns[1:]], [1.0, -1.0], -np.inf, 0.0))
