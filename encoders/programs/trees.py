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

from encoders.arrays import Array, Booleans, Integers
from encoders.problem import Goal
from encoders.programs.rows import ProgramBuilder, RowBlock, failing_program, matrix, worst_program
from encoders.trees.compared import ComparedTrees
from encoders.trees.joint import Preorder
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
        if not apart and rows is None and len(goal.rows) == 1 and goal.gap is None and sorted(goal.rows[0]) == [-1.0, 1.0]:
            line = joint.terms(margin).lines(goal.rows)     # of the goal's row, g - g' or g' - g: contributions are rounded down
            parts = [(line.trees, np.outer(line.adds, (goal.rows[0, 0], 0.0)))]
            base, weights = np.array([float(line.base[0]) * goal.rows[0, 0], 0.0]), np.eye(2)
        elif apart:
            parts = [(alone.trees, np.pad(twin.ensemble.value[alone.leaf1], ((0, 0), (count * copy, count - count * copy))))
                     for copy, alone in enumerate(twin.alone(pair))]
        else:
            parts = [(joint.trees, np.concatenate([twin.ensemble.value[leaf] for leaf in (joint.leaf1, joint.leaf2)], axis=1))]
        builder = ProgramBuilder()
        lowest = highest = weights @ base
        shares, added = [builder.columns(np.ones(1), np.ones(1))], [base[None]]
        met = [_Met.of(trees, first[0], last[0]) for trees, _ in parts]
        columns = _cells(builder, met, first[0], last[0])
        for part, (_, adds) in zip(met, parts, strict=True):
            shares.append(part.add(builder, columns))
            added.append(adds[part.leaves])
            values = weights @ added[-1].T
            starts = part.trees[:-1]
            lowest = lowest + np.minimum.reduceat(values, starts, axis=1).sum(axis=1) if len(starts) else lowest
            highest = highest + np.maximum.reduceat(values, starts, axis=1).sum(axis=1) if len(starts) else highest
        # a column for every score and every line: sums of stored numbers alone, so that SMT programs are exact
        scores = _sums(builder, np.concatenate(shares), np.concatenate(added).T)
        lines = _sums(builder, scores, weights)
        return cls(twin=twin, question=question, program=builder.program(), rows=rows, lines=lines, ends=(lowest, highest),
                   columns=columns)

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


@dataclass(frozen=True, kw_only=True, eq=False)
class _Met:
    """What a box meets of trees (`Preorder`).

    leaves: (L,) numbers of its leaves, tree by tree.   trees: (T + 1,) where those of each tree begin.   asked: (A,) the nodes of
    which it meets both branches.   spans: (3, A) where the leaves of their left branches begin, those of the right ones, and where
    these end.   variable, cut: (A,) of them.   going: for variables of categories, which ones (A_v, C) of the box go left.
    """

    leaves: Integers
    trees: Integers
    spans: Integers
    variable: Integers
    cut: Integers
    going: dict[int, Booleans]

    @classmethod
    def of(cls, trees: Preorder, first: Integers, last: Integers) -> _Met:
        """Return it.   first, last: (V,) the box's cells."""
        variable, cut, right = (np.asarray(part, dtype=np.int64) for part in (trees.variable, trees.cut, trees.right))
        roots = np.append(np.asarray(trees.root, dtype=np.int64), len(variable))
        inner = np.maximum(variable, 0)
        to_left, to_right = first[inner] <= cut, last[inner] > cut
        sets, words = np.asarray(trees.sets), np.asarray(trees.hot)
        hot = np.flatnonzero(words).tolist()

        def going(v: int, nodes: Integers, side: int) -> Booleans:
            members = sets[cut[nodes, None] + side * words[v] + np.arange(words[v])].astype("<i8").view(np.uint8)
            return np.unpackbits(members, axis=1, bitorder="little")[:, first[v] : last[v] + 1].astype(bool)

        for v in hot:
            nodes = np.flatnonzero(variable == v)
            to_left[nodes], to_right[nodes] = (going(v, nodes, side).any(axis=1) for side in (0, 1))
        nodes, ends, leaves, asked = roots[:-1], roots[1:], [roots[:0]], [np.empty((2, 0), dtype=np.int64)]
        while len(nodes):      # one level of all trees after the other
            is_leaf = variable[nodes] < 0
            leaves.append(nodes[is_leaf])
            nodes, ends = nodes[~is_leaf], ends[~is_leaf]
            left, other = to_left[nodes], to_right[nodes]
            asked.append(np.stack([nodes, ends])[:, left & other])
            ends = np.concatenate([right[nodes[left]], ends[other]])
            nodes = np.concatenate([nodes[left] + 1, right[nodes[other]]])
        found, (splits, behind) = np.sort(np.concatenate(leaves)), np.concatenate(asked, axis=1)
        return cls(
            leaves=cut[found], trees=np.searchsorted(found, roots), variable=variable[splits], cut=cut[splits],
            spans=np.searchsorted(found, np.stack([splits, right[splits], behind])),
            going={v: going(v, splits[variable[splits] == v], 0) for v in hot},
        )

    def add(self, builder: ProgramBuilder, cells: dict[int, tuple[Integers, Integers]]) -> Integers:
        """Add the trees; return the columns of the leaves' shares.   cells: as `TreeProgram.columns`."""
        shares = builder.columns(np.zeros(len(self.leaves)), np.ones(len(self.leaves)))
        no_binaries = np.empty((len(self.trees) - 1, 0), dtype=np.int64)
        _bounded(builder, shares, self.trees[:-1], self.trees[1:], no_binaries, 0.0, (1.0, 1.0))
        for v, (known, binaries) in cells.items():
            here = np.flatnonzero(self.variable == v)
            if v in self.going:
                node, category = np.nonzero(self.going[v])
                count, y = np.bincount(node, minlength=len(here)), binaries[category]
            else:
                count, y = np.ones(len(here), dtype=np.int64), binaries[np.searchsorted(known, self.cut[here])]
            for n in np.unique(count).tolist():
                some = y[np.repeat(count == n, count)].reshape(-1, n)
                left, middle, right = self.spans[:, here[count == n]]
                _bounded(builder, shares, left, middle, some, -1.0, (-np.inf, 0.0))
                _bounded(builder, shares, middle, right, some, 1.0, (-np.inf, 1.0))
        return shares


def _cells(builder: ProgramBuilder, met: list[_Met], first: Integers, last: Integers) -> dict[int, tuple[Integers, Integers]]:
    """Add the binaries of all variables that are asked about, and the rows between them. Return them as `TreeProgram.columns`."""
    columns = dict[int, tuple[Integers, Integers]]()
    for v in np.unique(np.concatenate([part.variable for part in met])).tolist():
        hot = v in met[0].going
        cuts = np.concatenate([part.cut[part.variable == v] for part in met])
        cells = np.arange(first[v], last[v] + 1) if hot else np.unique(cuts)
        y = builder.columns(np.zeros(len(cells)), np.ones(len(cells)), np.ones(len(cells), dtype=bool))
        columns[v] = cells, y
        one, ascending = RowBlock.single(y, np.ones(len(y)), 1.0, 1.0), RowBlock.of([y[:-1], y[1:]], [1.0, -1.0], -np.inf, 0.0)
        builder.add(one if hot else ascending)
    return columns


def _bounded(
    builder: ProgramBuilder, shares: Integers, start: Integers, stop: Integers, y: Integers, factor: float,
    limits: tuple[float, float],
) -> None:
    """Add rows: the sum of shares `start` (N,) ... `stop` (N,), and `factor` times that of binaries y (N, k), within limits."""
    lengths = stop - start
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        columns = np.concatenate([shares[start[rows][:, None] + np.arange(length)], y[rows]], axis=1)
        values = np.broadcast_to(np.repeat([1.0, factor], [length, y.shape[1]]), columns.shape)
        lower, upper = (np.full(len(rows), limit) for limit in limits)
        builder.add(RowBlock(columns=columns, values=values, lower=lower, upper=upper))


def _sums(builder: ProgramBuilder, columns: Integers, weights: Array) -> Integers:
    """Return new columns, the sums of others (N,) by weights (S, N)."""
    sums = builder.free(len(weights))
    builder.equations(sums, columns, weights, np.zeros(len(weights)))
    return sums


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
