"""One question over one box: its bounds, the program columns of the inputs that vary in it, and the forbidden boxes.

x' is x with constants in the protected variables and whole shifts in the relaxed ones, so a box forbidden to x' is a box of x:

    x'_v in [L, U]   iff   prime_v in [L, U]  (v protected),    x_v in [L - offset_v, U - offset_v]  (else)

A forbidden box that this box does not meet is dropped; a side on which it cannot be left is infinite. A program then states that x
leaves each remaining box through one of its `Exit`s, variable <= end or variable >= end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import scipy.sparse as sp

from encoders.arrays import Array, Booleans, Integers
from encoders.bounds.difference import every_row, interval_goals, linear_goals
from encoders.bounds.interval import interval_bounds
from encoders.bounds.linear import first_forms, hidden_forms
from encoders.bounds.relu import LayerBounds
from encoders.bounds.twin import Twin
from encoders.domain import Forbidden
from encoders.problem import TwinProblem
from encoders.programs.rows import RowBlock
from solvers.program import Clause


class Method(Enum):
    """The method for bounds on pre-activations: layer by layer, or by linear forms as well (tighter)."""

    INTERVAL = "interval"
    LINEAR = "linear"


@dataclass(frozen=True, kw_only=True, eq=False)
class TwinBox:
    """One question over one box, bounded and ready to be encoded.

    lower, upper: (V,) raw box of x.    low, high: (d,) network box of the twin's moving columns.
    layers: bounds of every layer, each field (1, n_k), the last one of the margins g, g', g - g' (n = 1).
    rows_lower: (R,) rigorous lower bounds of the problem's rows.
    """

    twin: Twin
    question: int
    lower: Array
    upper: Array
    low: Array
    high: Array
    layers: tuple[LayerBounds, ...]
    rows_lower: Array

    @classmethod
    def of(cls, twin: Twin, question: int, lower: Array | None = None, upper: Array | None = None, *, method: Method) -> TwinBox:
        """Bound one question over its root box, or over the raw box lower, upper (V,) within it. Raises CurveError for smooth
        networks: no program here encodes curves."""
        twin.problem.network.require_piecewise_linear("an LP, MILP or SMT program")
        batch = twin.problem.batch
        lower = batch.lower[question] if lower is None else lower
        upper = batch.upper[question] if upper is None else upper
        low, high = twin.local.box(lower[None, twin.variables], upper[None, twin.variables])
        index = np.array([question])
        layers = interval_bounds(twin, index, low, high)
        goals = interval_goals(twin, index, layers[-1])
        if method is Method.LINEAR:
            weights = np.ones((1, len(twin.rows)))
            bounds_of_rows = linear_goals(twin, index, (low, high), layers, *every_row(twin, 1), weights)
            goals = np.maximum(goals, bounds_of_rows.lower)
            _, layers = hidden_forms(twin, index, layers, first_forms(twin, index, (low + high) / 2, (high - low) / 2))
        return cls(
            twin=twin, question=question, lower=lower, upper=upper, low=low[0], high=high[0], layers=tuple(layers),
            rows_lower=goals[0],
        )

    def copy(self, layer: int, prime: bool) -> tuple[Array, Array]:
        """Return bounds (n_k,), (n_k,) on the pre-activations of one layer of x, or of x' when `prime`."""
        bounds = self.layers[layer]
        if prime:
            return bounds.lower_prime[0], bounds.upper_prime[0]
        return bounds.lower[0], bounds.upper[0]


@dataclass(frozen=True, kw_only=True, eq=False)
class InputColumns:
    """The first columns of a program: the inputs that vary in the box.

    column: (c,) position among the twin's moving columns.     variable: (c,) the raw variable it belongs to.
    lower, upper, integer: (c,) of the program's columns.      network column = origin + unit * v, each (c,).
    one_hot: (c,) True if the column is one category of its variable; category: (c,) its number.
    """

    box: TwinBox
    column: Integers
    variable: Integers
    lower: Array
    upper: Array
    integer: Booleans
    origin: Array
    unit: Array
    one_hot: Booleans
    category: Integers

    @classmethod
    def of(cls, box: TwinBox, *, integer: bool) -> InputColumns:
        """integer: whole variables become integer columns counted from their lower end, categories become binary; otherwise
        numbers are scaled to [-1, 1] and categories lie in [0, 1]."""
        local = box.twin.local
        column = np.flatnonzero(box.low < box.high)
        owner = np.repeat(np.arange(local.variables), local.width)[column]
        variable = box.twin.variables[owner]
        one_hot = local.one_hot[owner]
        low, high = box.low[column], box.high[column]
        integral = local.integer[owner] & integer
        counted = integral & ~one_hot
        lower = np.where(one_hot | counted, 0.0, -1.0)
        upper = np.where(counted, box.upper[variable] - box.lower[variable], 1.0)
        unit = (high - low) / (upper - lower)
        return cls(
            box=box, column=column, variable=variable, lower=lower, upper=upper, integer=integral,
            origin=low - unit * lower, unit=unit, one_hot=one_hot, category=column - local.start[owner],
        )

    @classmethod
    def plain(cls, box: TwinBox, *, integer: bool) -> InputColumns:
        """Return the moving network columns themselves, in their own units; categories are binary when `integer`."""
        inputs = cls.of(box, integer=False)
        return replace(
            inputs, lower=box.low[inputs.column], upper=box.high[inputs.column], integer=inputs.one_hot & integer,
            origin=np.zeros(len(inputs.column)), unit=np.ones(len(inputs.column)),
        )

    def sums(self) -> list[RowBlock]:
        """Return one row for each moving one-hot variable: its categories sum to 1."""
        rows = []
        for v in np.unique(self.variable[self.one_hot]):
            block = np.flatnonzero((self.variable == v) & self.one_hot)
            rows.append(RowBlock.single(block, np.ones(len(block)), 1.0, 1.0))
        return rows

    def decode(self, values: Array) -> Array:
        """Return the raw point (1, V) of the box nearest to a solution (n,): whole where it must be, with one category each, and
        moved off the edges of forbidden boxes. The caller has to check that it and its x' are legal."""
        box, number = self.box, ~self.one_hot
        raw = box.lower.copy()
        v = values[: len(self.column)]
        variables = self.variable[number]
        share = (v[number] - self.lower[number]) / (self.upper[number] - self.lower[number])
        point = box.lower[variables] + share * (box.upper[variables] - box.lower[variables])
        point = np.where(box.twin.problem.domain.integer[variables], np.rint(point), point)
        raw[variables] = np.clip(point, box.lower[variables], box.upper[variables])
        for variable in np.unique(self.variable[self.one_hot]):
            block = np.flatnonzero((self.variable == variable) & self.one_hot)
            raw[variable] = self.category[block[np.argmax(v[block])]]
        return nearest_legal(box.twin.problem, box.question, box.lower, box.upper, raw)[None, :]


def exit_rows(inputs: InputColumns, first: int) -> tuple[list[RowBlock], int]:
    """Return rows for the MILP, and how many binaries they take: columns from `first` on."""
    binary: dict[Exit, int] = {}
    rows: list[RowBlock] = []
    for ways in _ways(inputs):
        columns: list[int] = []
        values: list[float] = []
        bound = 1.0
        for way in ways:
            col = np.flatnonzero(inputs.variable == way.variable)
            if inputs.one_hot[col[0]]:
                out = _categories(inputs, col, way)
                columns += out.tolist()
                values += [1.0] * len(out)
            elif inputs.integer[col[0]] and inputs.upper[col[0]] == 1:  # counted from the lower end: 0 is below, 1 is above
                columns.append(int(col[0]))
                values.append(-1.0 if way.below else 1.0)
                bound -= way.below
            else:
                if way not in binary:
                    binary[way] = first + len(binary)
                    rows.append(_linked(inputs, int(col[0]), way, binary[way]))
                columns.append(binary[way])
                values.append(1.0)
        rows.append(RowBlock.single(columns, values, bound, np.inf))
    return rows, len(binary)


def exit_clauses(inputs: InputColumns, counts: Integers, width: int) -> tuple[Clause, ...]:
    """Clauses over `width` columns. inputs: the network columns themselves; counts: (c,) for each of them the column of its whole
    number in raw units, -1 where it has none."""
    clauses = []
    for ways in _ways(inputs):
        rows, bound = np.zeros((len(ways), width)), np.zeros(len(ways))
        for k, way in enumerate(ways):
            col = np.flatnonzero(inputs.variable == way.variable)
            if inputs.one_hot[col[0]]:
                rows[k, _categories(inputs, col, way)], bound[k] = 1.0, 1.0
                continue
            column, end = (int(col[0]), _value(inputs, int(col[0]), way)) if counts[col[0]] < 0 else (int(counts[col[0]]), way.end)
            sign = -1.0 if way.below else 1.0
            rows[k, column], bound[k] = sign, sign * end
        clauses.append(Clause(rows=sp.csr_array(rows), bound=bound, strict=np.zeros(len(ways), dtype=bool)))
    return tuple(clauses)


def _ways(inputs: InputColumns) -> list[list[Exit]]:
    """Return the exits of each forbidden box. A box with an exit along a variable without network columns is left out: that exit
    is always open."""
    box = inputs.box
    all_exits = exits(box.twin.problem, box.question, box.lower, box.upper)
    return [ways for ways in all_exits if np.isin([way.variable for way in ways], inputs.variable).all()]


def _categories(inputs: InputColumns, index: Integers, way: Exit) -> Integers:
    category = inputs.category[index]
    return index[category <= way.end if way.below else category >= way.end]


def _linked(inputs: InputColumns, j: int, way: Exit, d: int) -> RowBlock:
    low, high, end = inputs.lower[j], inputs.upper[j], _value(inputs, j, way)
    columns = [np.array([j]), np.array([d])]
    if way.below:
        return RowBlock.of(columns, [1.0, high - end], -np.inf, high)
    return RowBlock.of(columns, [1.0, low - end], low, np.inf)


def _value(inputs: InputColumns, j: int, way: Exit) -> float:
    """Return the exit's end on the scale of input column j."""
    box, domain = inputs.box, inputs.box.twin.problem.domain
    if inputs.integer[j]:
        return float(way.end - box.lower[way.variable])
    network = np.float64(np.float32((way.end - domain.offset[way.variable]) / domain.scale[way.variable]))
    return float(np.clip((network - inputs.origin[j]) / inputs.unit[j], inputs.lower[j], inputs.upper[j]))


@dataclass(frozen=True, kw_only=True)
class Exit:
    """One way out of a forbidden box: raw variable <= end when `below`, else >= end; the nearest number that is outside."""

    variable: int
    end: float
    below: bool


def exclusions(problem: TwinProblem, question: int, lower: Array, upper: Array) -> Forbidden | None:
    """Return the boxes (F, V) within the raw box lower, upper (V,) in which x or its x' is forbidden; None if there are none.

    A box that is infinite on all sides holds every point: no legal row is left (`Forbidden.contain` of the box agrees).
    """
    forbidden, batch = problem.domain.forbidden, problem.batch
    if forbidden is None:
        return None
    inside = (forbidden.lower <= batch.prime[question]) & (batch.prime[question] <= forbidden.upper)
    possible = (inside | ~batch.protected).all(axis=1)
    offset = 0.0 if batch.offset is None else batch.offset[question]
    prime_lower = np.where(batch.protected, -np.inf, forbidden.lower - offset)[possible]
    prime_upper = np.where(batch.protected, np.inf, forbidden.upper - offset)[possible]
    low, high = np.concatenate([forbidden.lower, prime_lower]), np.concatenate([forbidden.upper, prime_upper])
    entered = ((low <= upper) & (high >= lower)).all(axis=1)
    low = np.where(low <= lower, -np.inf, low)[entered]
    high = np.where(high >= upper, np.inf, high)[entered]
    if not len(low):
        return None
    boxes = np.unique(np.concatenate([low, high], axis=1), axis=0)  # often the two copies may not be in the same box
    return Forbidden(lower=boxes[:, : len(lower)], upper=boxes[:, len(lower) :])


def exits(problem: TwinProblem, question: int, lower: Array, upper: Array) -> list[list[Exit]]:
    """Return for each of `exclusions` its exits within the box; an empty list: it cannot be left."""
    boxes = exclusions(problem, question, lower, upper)
    if boxes is None:
        return []
    integral = problem.domain.integer
    below = np.where(integral, np.ceil(boxes.lower) - 1, np.nextafter(boxes.lower, -np.inf))
    above = np.where(integral, np.floor(boxes.upper) + 1, np.nextafter(boxes.upper, np.inf))
    return [
        [Exit(variable=v, end=float(below[f, v]), below=True) for v in np.flatnonzero(np.isfinite(boxes.lower[f])).tolist()]
        + [Exit(variable=v, end=float(above[f, v]), below=False) for v in np.flatnonzero(np.isfinite(boxes.upper[f])).tolist()]
        for f in range(len(boxes.lower))
    ]


def nearest_legal(problem: TwinProblem, question: int, lower: Array, upper: Array, raw: Array) -> Array:
    """Return a point (V,) that leaves each forbidden box around raw (V,) by its nearest exit, relative to the box. It may be
    illegal.

    A solver's point stands on the edge of a forbidden box only up to its tolerance.
    """
    boxes = exclusions(problem, question, lower, upper)
    if boxes is None:
        return raw
    ways, raw = exits(problem, question, lower, upper), raw.copy()
    for _ in range(len(ways)):
        inside = np.flatnonzero(((raw >= boxes.lower) & (raw <= boxes.upper)).all(axis=1))
        if not len(inside) or not ways[inside[0]]:
            break
        best = min(ways[inside[0]], key=lambda e: abs(e.end - raw[e.variable]) / (upper[e.variable] - lower[e.variable]))
        raw[best.variable] = best.end
    return raw
