"""The exact mixed-integer program of both copies of a tree ensemble: a binary for every threshold, a share for every leaf.

With the protected values of both copies fixed each tree is one over the other variables whose leaves hold the values of both
(`encoders.trees.joint`). Cells of a number are cut by binaries, y_k = 1 iff the number lies below threshold k, so y_k <= y_(k+1);
categories are binaries with sum 1. Of every tree the leaves' shares sum to 1, and for every question

    sum of the shares left of it <= y,        sum of the shares right of it <= 1 - y,

y the binary of its threshold, or the sum of the categories that go left. Whole y leave each tree the one leaf that the row ends in.
A goal of one row about g - g' gets the trees of that difference alone. A goal about decisions among classes holds if every clause
has a row that holds (`encoders.trees.twin.ClauseRows`): binaries choose the clause that fails.

Sound? Complete?  Both, up to the solver's tolerances; constraints of the domain are left out, so that a point may be no legal row.
Reference: Kantchelian, Tygar, Joseph, Evasion and hardening of tree ensemble classifiers, ICML 2016.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from encoders.arrays import Array, Integers
from encoders.problem import Goal
from encoders.programs.rows import ProgramBuilder, RowBlock, failing_program, matrix, worst_program
from encoders.trees.compared import ComparedTrees
from encoders.trees.joint import Preorder, holds, some
from encoders.trees.twin import ClauseRows, TreeTwin
from solvers.program import Clause, Program


@dataclass(frozen=True, kw_only=True, eq=False)
class TreeProgram:
    """A program about one question, without an objective yet, and the way back from its solutions.

    lines: (S,) columns of g and g'; of several classes those of the lines of `rows`.   ends: (S,), (S,) bounds of them.
    columns: for each variable the cells, or categories, and the binaries that tell them apart.
    """

    twin: TreeTwin
    question: int
    program: Program
    rows: ClauseRows | None
    lines: Integers
    ends: tuple[Array, Array]
    columns: dict[int, tuple[Integers, Integers]]

    @classmethod
    def of(cls, twin: TreeTwin, question: int, goal: Goal, *, apart: bool = False) -> TreeProgram:
        """Return the program of one question for one goal. apart: use separate trees of each copy, which share only thresholds: the
        formulation without common branches of the copies, for comparison. Raises ModelError as `ClauseRows` does."""
        batch, index, network = twin.problem.batch, np.array([question]), twin.problem.network
        first, last = twin.boxes(index, batch.lower[index][:, twin.variables], batch.upper[index][:, twin.variables])
        pair, count, margin = int(twin.pair_of[question]), twin.ensemble.outputs, twin.problem.margin
        joint, rows = twin.joint(pair), None
        if isinstance(network, ComparedTrees):
            rows = ClauseRows.of(goal, network, margin)
            weights = np.array([line.weights(count) for line in rows.lines])
        else:
            weights = np.kron(np.eye(2), margin)
        base = np.tile(twin.ensemble.base, 2)
        if not apart and rows is None and len(goal.rows) == 1 and goal.gap is None and goal.rows[0, 0] == -goal.rows[0, 1]:
            difference = joint.terms(margin).lines(np.array([[1.0, -1.0]]))
            parts = [(difference.trees, np.outer(difference.adds, (1.0, 0.0)))]
            base, weights = np.array([float(difference.base[0]), 0.0]), np.eye(2)
        elif apart:
            parts = [(alone.trees, np.pad(twin.ensemble.value[alone.leaf1], ((0, 0), (count * copy, count - count * copy))))
                     for copy, alone in enumerate(twin.alone(pair))]
        else:
            parts = [(joint.trees, np.concatenate([twin.ensemble.value[leaf] for leaf in (joint.leaf1, joint.leaf2)], axis=1))]
        build = _Build(joint.trees, first[0].tolist(), last[0].tolist())
        lowest = highest = weights @ base
        shares, added = [build.builder.columns(np.ones(1), np.ones(1))], [base[None]]
        for trees, adds in parts:
            build.trees = trees
            for root in np.asarray(trees.root).tolist():
                leaves, columns = build.tree(root)
                shares.append(columns)
                added.append(adds[leaves])
                values = weights @ adds[leaves].T
                lowest, highest = lowest + values.min(axis=1), highest + values.max(axis=1)
        build.cells()
        # a column for every score and every line: sums of stored numbers alone, so that SMT programs are exact
        scores = build.equal(np.concatenate(shares), np.concatenate(added).T)
        lines = build.equal(scores, weights)
        return cls(twin=twin, question=question, program=build.builder.program(), rows=rows, lines=lines, ends=(lowest, highest),
                   columns=build.columns)

    @property
    def margins(self) -> Array:
        """(S, n) the lines over the columns."""
        return np.asarray(self.lines[:, None] == np.arange(self.program.columns), dtype=np.float64)

    def worst(self, goal: Goal) -> Program:
        """minimise the goal's best row: a positive optimum leaves no point against it, nor does 0 when no row is strict."""
        if self.rows is None:
            return worst_program(self.program, self.margins, np.zeros(2), goal, self.ends)
        return least_clause(self.program, self.lines, self.ends, self.rows)

    def violated(self, goal: Goal) -> Program:
        """Return the program "no row of the goal holds at some point"."""
        if self.rows is None:
            return failing_program(self.program, self.margins, goal)
        return failing_clause(self.program, self.lines, self.rows)

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

    def tree(self, node: int) -> tuple[Integers, Integers]:
        """Add one tree; return the leaves that the box meets, and the columns of their shares."""
        leaves, columns = np.array(self._below(node)).T
        self.builder.add(RowBlock.single(columns, np.ones(len(columns)), 1.0, 1.0))
        return leaves, columns

    def equal(self, columns: Integers, weights: Array) -> Integers:
        """Return new columns, the sums of others (N,) by weights (S, N)."""
        sums = self.builder.free(len(weights))
        self.builder.equations(sums, columns, weights, np.zeros(len(weights)))
        return sums

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


def least_clause(program: Program, lines: Integers, ends: tuple[Array, Array], rows: ClauseRows) -> Program:
    """minimise t  subject to  t >= every row of some clause: of the one whose binary is 1. (`worst_program`, for classes.)

    lines: (S,) columns of the rows' lines.   ends: (S,), (S,) bounds of them.
    """
    (lowest, highest), count, n = (end[rows.line] for end in ends), int(rows.clause[-1]) + 1, program.columns
    starts = np.flatnonzero(np.diff(rows.clause, prepend=-1))
    floor = float(np.maximum.reduceat(lowest, starts).min())
    floor -= 1e-6 * (1 + abs(floor))
    room = np.maximum(highest - floor, 0.0) * (1 + 1e-6)       # in a clause that is not chosen no row raises t above its floor
    at_least = RowBlock.of([np.full(len(room), n + count), lines[rows.line], n + rows.clause], [1.0, -1.0, -room], -room, np.inf)
    chosen = RowBlock.single(n + np.arange(count), np.ones(count), 1.0, 1.0)
    return _extended(program, [at_least, chosen], count, least=floor)


def failing_clause(program: Program, lines: Integers, rows: ClauseRows) -> Program:
    """Return the program "in some clause no row holds": in that whose binary is 1. (`failing_program`, for classes.)"""
    count, n = int(rows.clause[-1]) + 1, program.columns
    chosen = RowBlock.single(n + np.arange(count), np.ones(count), 1.0, 1.0)
    clauses = [     # the binary is 0, or the line is at most 0, and below 0 where 0 meets the row
        Clause(rows=sp.csr_array((-np.ones(2), (np.arange(2), np.array([n + clause, line]))), shape=(2, n + count)),
               bound=np.zeros(2), strict=np.array([False, not strict]))
        for line, clause, strict in zip(lines[rows.line].tolist(), rows.clause.tolist(), rows.strict.tolist(), strict=True)
    ]
    return replace(_extended(program, [chosen], count), clauses=tuple(clauses))


def _extended(program: Program, blocks: list[RowBlock], binaries: int, *, least: float | None = None) -> Program:
    """Return the program with further rows and binaries, and one column to be minimised that is at least `least`, if given."""
    last = [] if least is None else [least]
    width = program.columns + binaries + len(last)
    rows, lower, upper = matrix(blocks, width)
    added = sp.csr_array((len(program.row_lower), binaries + len(last)))
    return replace(
        program, lower=np.concatenate([program.lower, np.zeros(binaries), last]),
        upper=np.concatenate([program.upper, np.ones(binaries), np.full(len(last), np.inf)]),
        integer=np.concatenate([program.integer, np.ones(binaries, dtype=bool), np.zeros(len(last), dtype=bool)]),
        rows=sp.csr_array(sp.vstack([sp.hstack([program.rows, added]), rows])),
        row_lower=np.concatenate([program.row_lower, lower]), row_upper=np.concatenate([program.row_upper, upper]),
        objective=None if least is None else np.eye(1, width, width - 1)[0],
    )
