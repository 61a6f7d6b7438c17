"""Forbidden boxes in a program: x leaves each of them through one of its exits (`encoders.programs.forbidden`).

    MILP    sum of the exits' binaries >= 1,    below:  v + (hi - e) d <= hi,    above:  v - (e - lo) d >= lo      (v in [lo, hi])
    SMT     the clause  v <= e_1  or  v >= e_2  or ...

A category is below e when one of the binaries of its variable up to e is 1, so one-hot variables need no d, and neither does a
whole variable with two values. An exit that several boxes share has one binary. A box without exits makes the program infeasible.

Sound? yes: every legal point is a solution. Complete? for whole numbers and categories; for real ones up to float32 rounding of the
edge, where a solution may lie just inside and is moved out or refused when it is decoded.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from encoders.bounds.twin import Indices
from encoders.programs.forbidden import Exit, exits
from encoders.programs.rows import Rows
from encoders.programs.twin_box import Inputs
from solvers.program import Clause


def exit_rows(inputs: Inputs, first: int) -> tuple[list[Rows], int]:
    """Rows for the MILP, and how many binaries they take: columns from `first` on."""
    binary: dict[Exit, int] = {}
    rows: list[Rows] = []
    for ways in _ways(inputs):
        columns: list[int] = []
        values: list[float] = []
        needed = 1.0
        for way in ways:
            at = np.flatnonzero(inputs.variable == way.variable)
            if inputs.one_hot[at[0]]:
                out = _categories(inputs, at, way)
                columns += out.tolist()
                values += [1.0] * len(out)
            elif inputs.integer[at[0]] and inputs.upper[at[0]] == 1:  # counted from the lower end: 0 is below, 1 is above
                columns.append(int(at[0]))
                values.append(-1.0 if way.below else 1.0)
                needed -= way.below
            else:
                if way not in binary:
                    binary[way] = first + len(binary)
                    rows.append(_linked(inputs, int(at[0]), way, binary[way]))
                columns.append(binary[way])
                values.append(1.0)
        rows.append(
            Rows(
                columns=np.array([columns], dtype=np.int64),
                values=np.array([values]),
                lower=np.array([needed]),
                upper=np.array([np.inf]),
            )
        )
    return rows, len(binary)


def exit_clauses(inputs: Inputs, counts: Indices, width: int) -> tuple[Clause, ...]:
    """Clauses over `width` columns. inputs: the network columns themselves; counts: (c,) for each of them the column of its whole
    number in raw units, -1 where it has none."""
    clauses = []
    for ways in _ways(inputs):
        rows, bound = np.zeros((len(ways), width)), np.zeros(len(ways))
        for k, way in enumerate(ways):
            at = np.flatnonzero(inputs.variable == way.variable)
            if inputs.one_hot[at[0]]:
                rows[k, _categories(inputs, at, way)], bound[k] = 1.0, 1.0
                continue
            column, end = (int(at[0]), _value(inputs, int(at[0]), way)) if counts[at[0]] < 0 else (int(counts[at[0]]), way.end)
            sign = -1.0 if way.below else 1.0
            rows[k, column], bound[k] = sign, sign * end
        clauses.append(Clause(rows=sp.csr_array(rows), bound=bound, strict=np.zeros(len(ways), dtype=bool)))
    return tuple(clauses)


def _ways(inputs: Inputs) -> list[list[Exit]]:
    """The exits of each forbidden box. A box that can be left along a variable that no network column shows is left out: that
    exit costs nothing."""
    box = inputs.box
    every = exits(box.twin.problem, box.question, box.lower, box.upper)
    return [ways for ways in every if np.isin([way.variable for way in ways], inputs.variable).all()]


def _categories(inputs: Inputs, at: Indices, way: Exit) -> Indices:
    category = inputs.category[at]
    return at[category <= way.end if way.below else category >= way.end]


def _linked(inputs: Inputs, j: int, way: Exit, d: int) -> Rows:
    low, high, end = inputs.lower[j], inputs.upper[j], _value(inputs, j, way)
    columns = [np.array([j]), np.array([d])]
    if way.below:
        return Rows.of(columns, [1.0, high - end], -np.inf, high)
    return Rows.of(columns, [1.0, low - end], low, np.inf)


def _value(inputs: Inputs, j: int, way: Exit) -> float:
    """The exit's end on the scale of input column j."""
    box, domain = inputs.box, inputs.box.twin.problem.domain
    if inputs.integer[j]:
        return float(way.end - box.lower[way.variable])
    network = np.float64(np.float32((way.end - domain.offset[way.variable]) / domain.scale[way.variable]))
    return float(np.clip((network - inputs.origin[j]) / inputs.unit[j], inputs.lower[j], inputs.upper[j]))
