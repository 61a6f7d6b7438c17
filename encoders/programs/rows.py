"""Rows of a program as arrays: blocks of them stacked into one sparse matrix, and the rows that a goal adds.

A goal holds where *some* row is met, so a box is free of points against it iff

    min over the box of   max_r ( row_r . (g, g') + constant_r )   > 0      (>= 0 when no row is strict),

one minimisation of t subject to t >= each row. For a probability gap the rows are some of the lines under a convex curve: a minimum
that is positive proves, a point at which it is negative has to be decided by the curve, and where the curve is met after all
`refined` adds the line that touches it there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from encoders.arrays import Array, Booleans, Integers
from encoders.exact.balls import ball, precision, sigmoid
from encoders.probability.logistic import PRECISION, STEEPEST, line_of, require_gap
from encoders.problem import Goal
from solvers.program import Clause, Program


@dataclass(frozen=True, kw_only=True, eq=False)
class RowBlock:
    """A block of m rows with k entries each: columns, values (m, k); limits lower, upper (m,)."""

    columns: Integers
    values: Array
    lower: Array
    upper: Array

    @classmethod
    def of(cls, columns: list[Integers], values: list[Array | float], lower: Array | float, upper: Array | float) -> RowBlock:
        """Return rows with entry j at columns[j] (m,), a value or limit given once for all rows or (m,)."""
        shape = len(columns[0]), len(columns)
        index, entries, limits = np.empty(shape, dtype=np.int64), np.empty(shape), np.empty((2, shape[0]))
        for j, (column, value) in enumerate(zip(columns, values, strict=True)):
            index[:, j], entries[:, j] = column, value
        limits[0], limits[1] = lower, upper
        return cls(columns=index, values=entries, lower=limits[0], upper=limits[1])

    @classmethod
    def single(cls, columns: npt.ArrayLike, values: npt.ArrayLike, lower: float, upper: float) -> RowBlock:
        """Return one row with the given entries (k,)."""
        index, entries = np.asarray(columns, dtype=np.int64)[None, :], np.asarray(values, dtype=np.float64)[None, :]
        return cls(columns=index, values=entries, lower=np.array([lower]), upper=np.array([upper]))


class ProgramBuilder:
    """The columns and rows of a program so far, as blocks."""

    def __init__(self) -> None:
        self.lower: list[Array] = []
        self.upper: list[Array] = []
        self.integer: list[Booleans] = []
        self.rows: list[RowBlock] = []
        self.width = self.count = 0

    def columns(self, lower: Array, upper: Array, integer: Booleans | None = None) -> Integers:
        """Append m columns and return their positions."""
        self.lower.append(lower)
        self.upper.append(upper)
        self.integer.append(np.zeros(len(lower), dtype=bool) if integer is None else integer)
        self.width += len(lower)
        return np.arange(self.width - len(lower), self.width)

    def free(self, m: int) -> Integers:
        """Append m columns without bounds."""
        return self.columns(np.full(m, -np.inf), np.full(m, np.inf))

    def add(self, rows: RowBlock) -> Integers:
        """Append rows and return their positions."""
        self.rows.append(rows)
        self.count += len(rows.lower)
        return np.arange(self.count - len(rows.lower), self.count)

    def equations(self, a: Integers, columns: Integers, coefficients: Array, constant: Array) -> Integers:
        """Append the rows  a - coefficients (m, c) . columns (c,) = constant (m,)."""
        index = np.concatenate([a[:, None], np.broadcast_to(columns, coefficients.shape)], axis=1)
        values = np.concatenate([np.ones((len(a), 1)), -coefficients], axis=1)
        return self.add(RowBlock(columns=index, values=values, lower=constant, upper=constant))

    def program(self) -> Program:
        """Return the program of all columns and rows, without an objective."""
        rows, row_lower, row_upper = matrix(self.rows, self.width)
        return Program(
            lower=np.concatenate(self.lower), upper=np.concatenate(self.upper), integer=np.concatenate(self.integer),
            rows=rows, row_lower=row_lower, row_upper=row_upper,
        )


def matrix(blocks: list[RowBlock], width: int) -> tuple[sp.csr_array, Array, Array]:
    """Stack blocks of rows into one CSR array over `width` columns, with the limits of its rows."""
    empty = RowBlock(columns=np.empty((0, 0), dtype=np.int64), values=np.empty((0, 0)), lower=np.empty(0), upper=np.empty(0))
    blocks = [empty, *blocks]
    counts = np.concatenate([np.full(len(b.lower), b.columns.shape[1], dtype=np.int64) for b in blocks])
    starts = np.concatenate([[0], np.cumsum(counts)])
    data = np.concatenate([block.values.ravel() for block in blocks])
    indices = np.concatenate([block.columns.ravel() for block in blocks])
    rows = sp.csr_array((data, indices, starts), shape=(len(counts), width))
    rows.eliminate_zeros()
    rows.sort_indices()
    return rows, np.concatenate([b.lower for b in blocks]), np.concatenate([b.upper for b in blocks])


LEAST_GAIN = 1e-9
"""A further line must raise the goal's best row at the point by at least this, or refining might never end."""


def refined(goal: Goal, margins: Array) -> Goal | None:
    """Return the goal with the line that touches its curve at margins (2,) = g(x), g(x') as a further row.

    For points that no row meets although their gap is small enough. None for a goal without a gap, and where the line does not
    meet the point by LEAST_GAIN: then the point lies on the curve up to rounding, and further lines do not help.
    Sound? yes: the row is one more sufficient one (`line_at`).
    """
    if goal.gap is None:
        return None
    first, second = margins[::-1] if goal.gap.rise else margins
    slope, constant = line_at(goal.gap.epsilon, float(second))
    scale = 2.0 ** -np.ceil(np.log2(max(slope, 1.0)))  # a power of two, so exact: steep lines stay readable for solvers
    row = np.array([-1.0, slope]) * scale
    if not row @ (first, second) + constant * scale > LEAST_GAIN:
        return None
    return replace(
        goal, rows=np.concatenate([goal.rows, row[None, ::-1] if goal.gap.rise else row[None, :]]),
        constant=np.concatenate([goal.constants, [constant * scale]]), strict=np.append(goal.strict_rows, False),
    )


def worst_program(program: Program, margins: Array, constants: Array, goal: Goal, ends: tuple[Array, Array]) -> Program:
    """minimise t  subject to  t >= row_r . (g, g') + constant_r  for all rows of the goal, beside the program's own rows.

    margins (2, n), constants (2,): g and g' over the program's columns.    ends: lower and upper bounds (2,) on them.
    g, g' and t become three further columns, so that many rows stay short.
    """
    n, count = program.columns, len(goal.rows)
    defining = sp.hstack([sp.csr_array(-margins), sp.csr_array(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))])
    at_least = sp.hstack([sp.csr_array((count, n)), sp.csr_array(np.column_stack([-goal.rows, np.ones(count)]))])
    lowest = np.where(goal.rows > 0, goal.rows * ends[0], goal.rows * ends[1])
    floor = float((np.where(goal.rows == 0, 0.0, lowest).sum(axis=1) + goal.constants).max())
    objective = np.zeros(n + 3)
    objective[-1] = 1.0
    return replace(
        program, lower=np.concatenate([program.lower, [-np.inf, -np.inf, floor - 1e-6 * (1 + abs(floor))]]),
        upper=np.concatenate([program.upper, np.full(3, np.inf)]),
        integer=np.concatenate([program.integer, np.zeros(3, dtype=bool)]),
        rows=sp.csr_array(sp.vstack([sp.hstack([program.rows, sp.csr_array((len(program.row_lower), 3))]), defining, at_least])),
        row_lower=np.concatenate([program.row_lower, constants, goal.constants]),
        row_upper=np.concatenate([program.row_upper, constants, np.full(count, np.inf)]), objective=objective,
        constant=0.0,
    )


def failing_program(program: Program, margins: Array, goal: Goal) -> Program:
    """Return the program "no row of the goal holds at some point". Each row is a clause of one inequality: strictness needs
    clauses.   margins (2, n): g and g' over the program's columns."""
    clauses = [  # -row . (g, g') >= constant, or > where equality would meet the row; the margins are single columns: exact
        Clause(rows=sp.csr_array((-row @ margins)[None, :]), bound=np.array([constant]), strict=np.array([not strict]))
        for row, constant, strict in zip(goal.rows, goal.constants, goal.strict_rows, strict=True)
    ]
    return replace(program, clauses=(*program.clauses, *clauses))


def line_at(epsilon: float, b: float) -> tuple[float, float]:
    """Return (m, c) of the line that touches phi (`probability.logistic`) at b: a <= m b + c suffices for a gap of at most epsilon.

    Sound? yes: m is rounded (and kept within 1 / STEEPEST .. STEEPEST), and c is that of this very m.
    Raises ValueError unless SMALLEST <= epsilon <= 1 - SMALLEST.
    """
    require_gap(epsilon)
    with precision(PRECISION):
        gap, s = ball(epsilon), sigmoid(ball(b))
        rest = 1 - s - gap
        slope = float((s * (1 - s) / ((s + gap) * rest)).mid()) if rest > 0 else STEEPEST
    m = float(np.clip(slope, 1 / STEEPEST, STEEPEST))
    return m, line_of(epsilon, m)
