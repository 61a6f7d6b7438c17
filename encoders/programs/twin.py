"""Two copies of a network over shared inputs, as columns and rows: the common part of the LP and the MILP.

Only varying quantities become columns. Inputs that a box fixes are summed into the first layer's constants. A neuron whose bounds
show on which side of zero it stays is an affine expression of the columns before it, and is substituted.
Every other neuron a = w . y + b, with l < 0 < u, is split into its positive and its negative part,

    p - n = a,    0 <= p <= u,    0 <= n <= -l,        y = p - s n     (s its slope),

one dense row and two columns; exact as soon as p n = 0, which is what the encoders on top say in their own ways:

    triangle.py     p / u + n / (-l) <= 1          (the convex hull)
    big_m.py        p <= u z,  n <= -l (1 - z),  z in {0, 1}

The hull alone needs no n: with n = p - a substituted it is two dense rows and one column,  p >= a  and  p <= t (a - l),
t = u/(u - l), which simplex solves in half to two thirds of the time (`Layout.hull`). For the MILP the parts are no slower,
and with n substituted Gurobi's presolve was once seen to call a value optimal that a feasible point undercuts by 1e-3.

`paired` keeps a neuron in both copies as soon as it is unstable in one of them, so that a, a', y, y' and hence the difference of
the copies are all short expressions (`twin_difference`).

Inputs: a moving number is one column, mapped linearly to [float32(lower), float32(upper)]; a moving one-hot variable is one column
for each category in its box, with sum 1. The network is fed float32((raw - offset) / scale), so at an inner lattice point the
column is off by at most one float32 rounding, about 6e-8 relative: below the tolerances of these solvers, not a proof (`smt` is).
Coefficients are float64 products of weights, rounded likewise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from encoders.arrays import Array, Booleans, Integers
from encoders.bounds.relu import LayerBounds, relu_difference_lines
from encoders.problem import Goal
from encoders.programs.rows import RowBlock, failing_program, matrix, worst_program
from encoders.programs.twin_box import InputColumns, TwinBox
from solvers.program import Program


@dataclass(frozen=True, kw_only=True, eq=False)
class NeuronColumns:
    """The neurons of one layer of one copy that have columns: u of them.

    index: (u,) positions.   positive, negative: (u,) columns of p and n (none in a hull).   lower, upper: (u,) bounds on a = p - n.
    """

    index: Integers
    positive: Integers
    negative: Integers
    lower: Array
    upper: Array

    @property
    def unstable(self) -> Booleans:
        """(u,) True where l < 0 < u; the others have columns because their partner in the other copy is unstable."""
        return (self.lower < 0) & (self.upper > 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """Columns and defining rows of a twin.

    lower, upper, integer: (n,) columns, inputs first, then p and n of copy x and of copy x', layer by layer.
    neurons: per hidden layer the pair (of x, of x').
    rows: p - n = a (or the triangle), and one-hot sums.
    margins: (2, n) and constants (2,): g and g' as expressions of the columns.
    """

    box: TwinBox
    inputs: InputColumns
    lower: Array
    upper: Array
    integer: Booleans
    neurons: tuple[tuple[NeuronColumns, NeuronColumns], ...]
    rows: tuple[RowBlock, ...]
    margins: Array
    constants: Array

    @classmethod
    def parts(cls, box: TwinBox, *, integer: bool, paired: bool) -> Layout:
        """p and n with p - n = a; that one of them is 0, or their hull, is left to the encoder."""
        return cls._of(box, integer=integer, paired=paired, with_negative=True)

    @classmethod
    def hull(cls, box: TwinBox) -> Layout:
        """p alone, between the lines of the triangle: continuous inputs, complete as it stands."""
        return cls._of(box, integer=False, paired=False, with_negative=False)

    @classmethod
    def _of(cls, box: TwinBox, *, integer: bool, paired: bool, with_negative: bool) -> Layout:
        inputs = InputColumns.of(box, integer=integer)
        copies = (_Copy.of(box, inputs, prime=False), _Copy.of(box, inputs, prime=True))
        rows = inputs.sums()
        lower, upper, width = [inputs.lower], [inputs.upper], len(inputs.column)
        neurons: list[tuple[NeuronColumns, NeuronColumns]] = []
        for k in range(box.twin.depth):
            masks = [_unstable(box, k, prime) for prime in (False, True)]
            if paired:
                masks = [masks[0] | masks[1]] * 2
            pair = []
            for copy, mask in zip(copies, masks, strict=True):
                layer = copy.split(k, np.flatnonzero(mask), width, with_negative)
                upper += [np.maximum(layer.upper, 0.0), np.maximum(-layer.lower, 0.0)][: 1 + with_negative]
                width = sum(len(part) for part in upper)
                rows += [copy.definition(layer)] if with_negative else copy.triangle(layer)
                copy.ascend(k, layer)
                pair.append(layer)
            neurons.append((pair[0], pair[1]))
        lower.append(np.zeros(width - len(inputs.column)))
        margins = np.zeros((2, width))
        for copy, margin in zip(copies, margins, strict=True):
            margin[copy.columns] = copy.coefficients[0]
        return cls(
            box=box, inputs=inputs, lower=np.concatenate(lower), upper=np.concatenate(upper),
            integer=np.concatenate([inputs.integer, np.zeros(width - len(inputs.column), dtype=bool)]),
            neurons=tuple(neurons), rows=tuple(rows), margins=margins,
            constants=np.array([copy.constant[0] for copy in copies]),
        )


def edge_slope(lower: Array, upper: Array) -> Array:
    """Return t = u/(u - l), the slope of the triangle's upper edge, of unstable neurons (l < 0 < u)."""
    return np.asarray(upper / (upper - lower))


def _unstable(box: TwinBox, k: int, prime: bool) -> Booleans:
    lower, upper = box.copy(k, prime)
    return (lower < 0) & (upper > 0) & (box.twin.hidden[k].slope < 1)


class _Copy:
    """The pre-activations of one copy as expressions: coefficients (n_k, c) over program columns `columns` (c,), constant (n_k,).

    The loop variable of Layout.of, rewritten layer by layer.
    """

    def __init__(self, box: TwinBox, prime: bool, columns: Integers, coefficients: Array, constant: Array) -> None:
        self.box, self.prime, self.columns, self.coefficients, self.constant = box, prime, columns, coefficients, constant

    @classmethod
    def of(cls, box: TwinBox, inputs: InputColumns, prime: bool) -> _Copy:
        twin = box.twin
        weight = twin.weights[0]
        network = box.low.copy()  # the moving columns that this box fixes, and the origin of the others
        network[inputs.column] = inputs.origin
        constant = twin.base[box.question] + weight @ network
        if prime:
            constant = constant - twin.shift[box.question]
        return cls(box, prime, np.arange(len(inputs.column)), weight[:, inputs.column] * inputs.unit, constant)

    def split(self, k: int, index: Integers, width: int, with_negative: bool) -> NeuronColumns:
        """Assign the next columns after `width` to p, and to n if wanted, of the neurons `index`."""
        lower, upper = self.box.copy(k, self.prime)
        positive = width + np.arange(len(index))
        negative = positive + len(index) if with_negative else positive[:0]
        return NeuronColumns(index=index, positive=positive, negative=negative, lower=lower[index], upper=upper[index])

    def definition(self, neurons: NeuronColumns) -> RowBlock:
        """a - p + n = 0."""
        ones = np.ones(len(neurons.index))
        constant = -self.constant[neurons.index]
        return self._rows(neurons, ones, [neurons.positive, neurons.negative], [-ones, ones], constant, constant)

    def triangle(self, neurons: NeuronColumns) -> list[RowBlock]:
        """a - p <= 0  and  t a - p >= t l."""
        ones, constant = np.ones(len(neurons.index)), self.constant[neurons.index]
        slope = edge_slope(neurons.lower, neurons.upper)
        edge = slope * (neurons.lower - constant)
        return [
            self._rows(neurons, ones, [neurons.positive], [-ones], np.full(len(ones), -np.inf), -constant),
            self._rows(neurons, slope, [neurons.positive], [-ones], edge, np.full(len(ones), np.inf)),
        ]

    def _rows(
        self, neurons: NeuronColumns, factor: Array, columns: list[Integers], values: list[Array], lower: Array, upper: Array
    ) -> RowBlock:
        """factor a, without its constant, and further entries, one row for each neuron."""
        index = np.broadcast_to(self.columns, (len(neurons.index), len(self.columns)))
        return RowBlock(
            columns=np.concatenate([index, np.stack(columns, axis=1)], axis=1),
            values=np.concatenate([factor[:, None] * self.coefficients[neurons.index], np.stack(values, axis=1)], axis=1),
            lower=lower, upper=upper,
        )

    def ascend(self, k: int, neurons: NeuronColumns) -> None:
        """Move from the pre-activations of layer k to those of the next: substitute y, which is a or s a on one side of zero,
        and for a neuron with columns p - s n, or s a + (1 - s) p where n was not kept."""
        twin, slope, index = self.box.twin, self.box.twin.hidden[k].slope, neurons.index
        _, upper = self.box.copy(k, self.prime)
        gain = np.where((upper <= 0) & (slope < 1), slope, 1.0)
        parts = len(neurons.negative) > 0
        gain[index] = 0.0 if parts else slope[index]
        active = np.flatnonzero(gain)
        weight = twin.weights[k + 1]
        folded, kept = weight[:, active] * gain[active], weight[:, index]
        coefficients, columns = [folded @ self.coefficients[active]], [self.columns, neurons.positive]
        coefficients.append(kept if parts else kept * (1 - slope[index]))
        if parts and slope[index].any():
            coefficients.append(-kept * slope[index])
            columns.append(neurons.negative)
        self.constant = folded @ self.constant[active] + twin.biases[k + 1]
        self.coefficients, self.columns = np.concatenate(coefficients, axis=1), np.concatenate(columns)


@dataclass(frozen=True, kw_only=True, eq=False)
class Encoding:
    """A program about the margins of one twin box, without an objective yet, and the way back from its solutions.

    margins (2, n), constants (2,): g(x) and g(x') as expressions of the program's columns.
    """

    program: Program
    inputs: InputColumns
    margins: Array
    constants: Array

    @classmethod
    def of(cls, layout: Layout, rows: list[RowBlock], *, binaries: int = 0) -> Encoding:
        """Return the layout's own rows and further ones, with `binaries` further 0/1 columns at the end.

        A box without anything left to decide (one point, say) gets one column that is 0: backends want at least one.
        """
        spare = 0 if len(layout.lower) + binaries else 1
        width = len(layout.lower) + binaries + spare
        block, lower, upper = matrix([*layout.rows, *rows], width)
        program = Program(
            lower=np.concatenate([layout.lower, np.zeros(binaries + spare)]),
            upper=np.concatenate([layout.upper, np.ones(binaries), np.zeros(spare)]),
            integer=np.concatenate([layout.integer, np.ones(binaries, dtype=bool), np.zeros(spare, dtype=bool)]),
            rows=block, row_lower=lower, row_upper=upper,
        )
        margins = np.concatenate([layout.margins, np.zeros((2, binaries + spare))], axis=1)
        return cls(program=program, inputs=layout.inputs, margins=margins, constants=layout.constants)

    def minimise(self, row: Array, constant: float = 0.0) -> Program:
        """minimise  row[0] g(x) + row[1] g(x') + constant.  Programs of one encoding differ in the objective alone."""
        return replace(self.program, objective=row @ self.margins, constant=float(row @ self.constants) + constant)

    def violated(self, goal: Goal) -> Program:
        """Return the program "no row of the goal holds at some point"."""
        return failing_program(self.program, self.margins, goal)

    def worst(self, goal: Goal) -> Program:
        """minimise the goal's best row: a positive optimum leaves no point against it, nor does 0 when no row is strict.

        One program for all rows, where `minimise` proves what a single row alone can.
        """
        if len(goal.rows) == 1:
            return self.minimise(goal.rows[0], float(goal.constants[0]))
        copies = [self.inputs.box.copy(-1, prime) for prime in (False, True)]
        ends = tuple(np.concatenate([copy[side] for copy in copies]) for side in (0, 1))
        return worst_program(self.program, self.margins, self.constants, goal, (ends[0], ends[1]))

    def at_most(self, row: Array, threshold: float) -> Program:
        """Is there a point with  row[0] g(x) + row[1] g(x') <= threshold?  A feasibility question."""
        coefficients = row @ self.margins
        nonzero = np.flatnonzero(coefficients)
        limit = RowBlock.single(nonzero, coefficients[nonzero], -np.inf, float(threshold - row @ self.constants))
        extra, lower, upper = matrix([limit], self.program.columns)
        return replace(
            self.program, rows=sp.csr_array(sp.vstack([self.program.rows, extra])),
            row_lower=np.concatenate([self.program.row_lower, lower]),
            row_upper=np.concatenate([self.program.row_upper, upper]),
        )

    def decode(self, values: Array) -> Array:
        """Return the raw point (1, V) of the box that a solution (n,) encodes."""
        return self.inputs.decode(values)


def difference_rows(layout: Layout) -> list[RowBlock]:
    """Return rows of a paired layout about Delta = a - a' and e = relu(a) - relu(a') = p - p', neuron by neuron.

    First layer, Delta = s constant; let (p, n), (q, m) belong to the copy with the larger and the smaller pre-activation, apart
    by |s|. The graph of (a, relu(a), relu(a - |s|)) on [l, u] is a path over four points; the facets of its hull that the two
    triangles do not have are

        q <= (u - |s|)/u p,        n <= (|l_q| - |s|)/|l_q| m            (l_q the lower bound of the smaller one).

    Deeper layers:  Delta_l <= Delta <= Delta_u  and the two planes of `relu_difference_lines` around e.
    Last layer:     the interval of g - g'.
    Sound? yes: every row holds at every point of the network's graph.
    """
    rows: list[RowBlock] = []
    for k, (first, second) in enumerate(layout.neurons):
        if k == 0:
            rows += _first_difference(layout, first, second)
        else:
            rows += _deeper_difference(layout, k, first, second)
    last = layout.box.layers[-1]
    constant = layout.constants[0] - layout.constants[1]
    margin = layout.margins[0] - layout.margins[1]
    nonzero = np.flatnonzero(margin)
    ends = float(last.delta_lower[0, 0] - constant), float(last.delta_upper[0, 0] - constant)
    return [*rows, RowBlock.single(nonzero, margin[nonzero], *ends)]


def _first_difference(layout: Layout, first: NeuronColumns, second: NeuronColumns) -> list[RowBlock]:
    shift = layout.box.twin.shift[layout.box.question][first.index]
    rows = []
    for larger, smaller, sign in ((first, second, 1.0), (second, first, -1.0)):  # larger: the copy with the larger pre-activation
        index = np.flatnonzero(first.unstable & second.unstable & (sign * shift > 0))
        size = np.abs(shift[index])
        p_ratio = np.maximum(1 - size / larger.upper[index], 0.0)
        n_ratio = np.maximum(1 + size / smaller.lower[index], 0.0)
        rows += [
            RowBlock.of([smaller.positive[index], larger.positive[index]], [1.0, -p_ratio], -np.inf, 0.0),
            RowBlock.of([larger.negative[index], smaller.negative[index]], [1.0, -n_ratio], -np.inf, 0.0),
        ]
    return rows


def _deeper_difference(layout: Layout, k: int, first: NeuronColumns, second: NeuronColumns) -> list[RowBlock]:
    bounds = layout.box.layers[k]
    delta = bounds.delta_lower[0, first.index], bounds.delta_upper[0, first.index]
    narrow = LayerBounds.of((first.lower, first.upper), (second.lower, second.upper), delta)
    lines = relu_difference_lines(narrow)
    columns = [first.positive, first.negative, second.positive, second.negative]

    def plane(slope: Array) -> list[Array | float]:  # e - slope Delta, with e = p - p' and Delta = p - n - p' + n'
        return [1 - slope, slope, slope - 1, -slope]

    return [
        RowBlock.of(columns, [1.0, -1.0, -1.0, 1.0], narrow.delta_lower, narrow.delta_upper),
        RowBlock.of(columns, plane(lines.low_slope), lines.low_constant, np.inf),
        RowBlock.of(columns, plane(lines.up_slope), -np.inf, lines.up_constant),
    ]
