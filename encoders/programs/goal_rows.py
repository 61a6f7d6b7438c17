"""Goals of several rows as one program, and goals about probabilities, which are more rows than any list.

A goal holds where *some* row is met, so a box is free of points against it iff

    min over the box of   max_r ( row_r . (g, g') + constant_r )   > 0      (>= 0 when not strict),

one minimisation of t subject to t >= each row. For a probability gap the rows are some of the lines under a convex curve: a minimum
that is positive proves, a point at which it is negative has to be decided by the curve, and where the curve is met after all
`refined` adds the line that touches it there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from encoders.network import Array
from encoders.probability import gap_rows, line_at
from encoders.problem import Gap, Goal
from solvers.program import Program

LEAST_GAIN = 1e-9
"""A further line must lift the goal's best row at the point by as much, or refining would never end."""


def gap_goal(epsilon: float, *, rise: bool, count: int = 33) -> Goal:
    """sigma(g(x)) - sigma(g(x')) <= epsilon, or the other way round when `rise`, with `count` lines. Raises ValueError."""
    rows, constant = gap_rows(epsilon, rise=rise, count=count)
    return Goal(rows=rows, constant=constant, strict=False, gap=Gap(epsilon=epsilon, rise=rise))


def refined(goal: Goal, margins: Array) -> Goal | None:
    """The goal with the line that touches its curve at margins (2,) = g(x), g(x') as a further row.

    For points that no row meets although their gap is small enough. None for a goal without a gap, and where the line does not
    meet the point by LEAST_GAIN: then the point lies as good as on the curve, and lines lead no further.
    Sound? yes: the row is one more sufficient one (`probability.line_at`).
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
        goal,
        rows=np.concatenate([goal.rows, row[None, ::-1] if goal.gap.rise else row[None, :]]),
        constant=np.concatenate([goal.constants, [constant * scale]]),
    )


def worst_program(program: Program, margins: Array, constants: Array, goal: Goal, ends: tuple[Array, Array]) -> Program:
    """minimise t  subject to  t >= row_r . (g, g') + constant_r  for all rows of the goal, beside the program's own rows.

    margins (2, n), constants (2,): g and g' over the program's columns.    ends: lower and upper bounds (2,) on them.
    g, g' and t become three further columns, so that many rows stay short.
    """
    n, count = program.columns, len(goal.rows)
    defining = sp.hstack([sp.csr_array(-margins), sp.csr_array(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))])
    at_least = sp.hstack([sp.csr_array((count, n)), sp.csr_array(np.column_stack([-goal.rows, np.ones(count)]))])
    least = np.where(goal.rows > 0, goal.rows * ends[0], goal.rows * ends[1])
    floor = float((np.where(goal.rows == 0, 0.0, least).sum(axis=1) + goal.constants).max())
    objective = np.zeros(n + 3)
    objective[-1] = 1.0
    return replace(
        program,
        lower=np.concatenate([program.lower, [-np.inf, -np.inf, floor - 1e-6 * (1 + abs(floor))]]),
        upper=np.concatenate([program.upper, np.full(3, np.inf)]),
        integer=np.concatenate([program.integer, np.zeros(3, dtype=bool)]),
        rows=sp.csr_array(sp.vstack([sp.hstack([program.rows, sp.csr_array((len(program.row_lower), 3))]), defining, at_least])),
        row_lower=np.concatenate([program.row_lower, constants, goal.constants]),
        row_upper=np.concatenate([program.row_upper, constants, np.full(count, np.inf)]),
        objective=objective,
        constant=0.0,
    )
