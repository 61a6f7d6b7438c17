"""Two copies of a network with a column for every input and every neuron: no coefficient is computed, only copied.

    a_k - W_k y_{k-1} = b_k        r_k = relu(a_k)  (said by the encoder on top)
    y_k = r_k                      or, with a slope s > 0 in the layer,   n_k = r_k - a_k,   y_k = r_k - s n_k
    g - margin . a_N = 0

Every number here is a stored weight or a float32 input, so the program over the rationals is the network itself: this is what
`smt` needs, and what the naive LP of `triangle` is. (`twin.Layout` is the small one, with float64 products as coefficients.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from encoders.network import Array, Booleans, Integers, Layer
from encoders.programs.rows import RowBlock, matrix
from encoders.programs.twin import Encoding
from encoders.programs.twin_box import InputColumns, TwinBox
from solvers.program import Program


@dataclass(frozen=True, kw_only=True, eq=False)
class FullNeurons:
    """One hidden layer of one copy. input, output: (m,) columns of a and of r = relu(a).

    lower, upper: (m,) bounds on a.    active, inactive: (m,) where r = a, and where r = 0, throughout the box. An identity
    neuron (slope 1) counts as active: with r = a the rows above give y = a.
    """

    input: Integers
    output: Integers
    lower: Array
    upper: Array
    active: Booleans
    inactive: Booleans


@dataclass(frozen=True, kw_only=True, eq=False)
class FullTwin:
    """Columns lower, upper, integer (n,) and defining rows of the full twin; neurons layer by layer, of x then of x'.

    margins: (2,) the columns of g and g'.   counts: (c,) for each moving input the column of its whole number, -1: it has none.
    """

    inputs: InputColumns
    lower: Array
    upper: Array
    integer: Booleans
    neurons: tuple[FullNeurons, ...]
    rows: tuple[RowBlock, ...]
    margins: Integers
    counts: Integers

    @classmethod
    def of(cls, box: TwinBox, *, exact: bool) -> FullTwin:
        """exact: whole inputs are tied to integer columns and categories are binary; otherwise all inputs are continuous."""
        inputs = InputColumns.plain(box, integer=exact)
        columns = _Columns()
        rows = inputs.sums()
        x, x_prime = _input_columns(box, inputs, columns, rows)
        counts = _lattice(inputs, columns, rows) if exact else np.full(len(inputs.column), -1)
        network = box.twin.problem.network
        y, neurons = [x, x_prime], []
        for k, layer in enumerate(network.layers[:-1]):
            for copy, prime in enumerate((False, True)):
                neurons.append(_relu_layer(columns, layer, *box.copy(k, prime), y[copy], rows))
                y[copy] = _outputs(columns, layer, neurons[-1], rows)
        weight = box.twin.problem.margin[None, :]
        margins = []
        for copy in (0, 1):
            logits = _affine(columns, network.layers[-1].weight, network.layers[-1].bias, y[copy], rows)
            margins.append(_affine(columns, weight, np.zeros(1), logits, rows))
        return cls(
            inputs=inputs,
            lower=np.concatenate(columns.lower),
            upper=np.concatenate(columns.upper),
            integer=np.concatenate(columns.integer),
            neurons=tuple(neurons),
            rows=tuple(rows),
            margins=np.concatenate(margins),
            counts=counts,
        )

    def encoding(self, rows: list[RowBlock], relus: Integers | None = None) -> Encoding:
        """The program of these rows and `rows`, with (k, 2) pairs `relus` (in, out)."""
        width = len(self.lower)
        block, lower, upper = matrix([*self.rows, *rows], width)
        margins = np.zeros((2, width))
        margins[[0, 1], self.margins] = 1.0
        program = Program(
            lower=self.lower,
            upper=self.upper,
            integer=self.integer,
            rows=block,
            row_lower=lower,
            row_upper=upper,
            relus=np.empty((0, 2), dtype=np.int64) if relus is None else relus,
        )
        return Encoding(program=program, inputs=self.inputs, margins=margins, constants=np.zeros(2))


class _Columns:
    """The columns so far, as blocks."""

    def __init__(self) -> None:
        self.lower: list[Array] = []
        self.upper: list[Array] = []
        self.integer: list[Booleans] = []
        self.width = 0

    def add(self, lower: Array, upper: Array, integer: Booleans | None = None) -> Integers:
        """Append m columns and return their positions."""
        self.lower.append(lower)
        self.upper.append(upper)
        self.integer.append(np.zeros(len(lower), dtype=bool) if integer is None else integer)
        self.width += len(lower)
        return np.arange(self.width - len(lower), self.width)

    def free(self, m: int) -> Integers:
        return self.add(np.full(m, -np.inf), np.full(m, np.inf))


def _input_columns(box: TwinBox, inputs: InputColumns, columns: _Columns, rows: list[RowBlock]) -> tuple[Integers, Integers]:
    """Program columns (n_0,) of the network inputs of x and of x': moving ones first, shared ones once, shifted ones tied."""
    problem = box.twin.problem
    batch = problem.batch.take([box.question])
    low = problem.domain.encode(box.lower[None, :])[0]
    low[box.twin.moving] = box.low
    prime = problem.domain.encode(batch.second(box.lower[None, :]))[0]
    moving = box.twin.moving[inputs.column]
    x = np.empty(len(low), dtype=np.int64)
    fixed = np.ones(len(low), dtype=bool)
    fixed[moving] = False
    x[moving] = columns.add(inputs.lower, inputs.upper, inputs.integer)
    x[fixed] = columns.add(low[fixed], low[fixed])
    x_prime = x.copy()
    own = fixed & (low != prime)
    x_prime[own] = columns.add(prime[own], prime[own])
    if batch.offset is not None:
        _shift(inputs, moving, batch.offset[0], x_prime, columns, rows)
    return x, x_prime


def _shift(
    inputs: InputColumns, moving: Integers, offset: Array, x_prime: Integers, columns: _Columns, rows: list[RowBlock]
) -> None:
    """Columns of their own for the moving inputs that x' has shifted:  x' - x = offset / scale.

    Exact for inputs that the network takes unscaled; else either end is rounded to float32, which a slack allows for.
    """
    domain = inputs.box.twin.problem.domain
    at = np.flatnonzero(~inputs.one_hot & (offset[inputs.variable] != 0))
    scale, shift = domain.scale[inputs.variable[at]], offset[inputs.variable[at]]
    largest = np.maximum(np.abs(inputs.lower[at]), np.abs(inputs.upper[at])) + np.abs(shift / scale)
    exact = (scale == 1) & (domain.offset[inputs.variable[at]] == 0) & (largest <= 2.0**24)
    slack = np.where(exact, 0.0, 2.0**-22 * largest + 2.0**-148)
    own = columns.free(len(at))
    rows.append(RowBlock.of([own, at], [1.0, -1.0], shift / scale - slack, shift / scale + slack))
    x_prime[moving[at]] = own


def _lattice(inputs: InputColumns, columns: _Columns, rows: list[RowBlock]) -> Integers:
    """Integer columns k of the whole numbers among the inputs, tied to their network columns c = float32((k - offset)/scale); gives
    (c,) the column of k of each input, -1 for those that are no whole numbers.

    Rounding is not linear, so c may range over an interval around the affine image that holds the rounded value:

        |scale c - (k - offset)| <= scale (2^-23 max|c| + 2^-149).

    Two roundings to float64 and one to float32 err by less than half of that. With scale 1 and a whole offset nothing is
    rounded (below 2^24) and c = k - offset. So every legal input is a solution: UNSAT stays a proof; a SAT point may need
    rounding to the lattice and is re-evaluated by the caller.
    """
    domain = inputs.box.twin.problem.domain
    at = np.flatnonzero(~inputs.one_hot & domain.integer[inputs.variable])
    v = inputs.variable[at]
    k = columns.add(inputs.box.lower[v], inputs.box.upper[v], np.ones(len(v), dtype=bool))
    offset, scale = domain.offset[v], domain.scale[v]
    largest = np.maximum(np.abs(inputs.lower[at]), np.abs(inputs.upper[at]))
    same = (scale == 1) & (offset == np.floor(offset)) & (largest <= 2.0**24)
    slack = scale * (2.0**-23 * largest + 2.0**-149)
    lower = np.where(same, -offset, np.nextafter(-offset - slack, -np.inf))
    upper = np.where(same, -offset, np.nextafter(-offset + slack, np.inf))
    rows.append(RowBlock.of([at, k], [scale, -1.0], lower, upper))
    counts = np.full(len(inputs.column), -1)
    counts[at] = k
    return counts


def _affine(columns: _Columns, weight: Array, bias: Array, y: Integers, rows: list[RowBlock]) -> Integers:
    """New columns a with  a - weight y = bias."""
    m = len(bias)
    a = columns.free(m)
    rows.append(
        RowBlock(
            columns=np.concatenate([a[:, None], np.broadcast_to(y, weight.shape)], axis=1),
            values=np.concatenate([np.ones((m, 1)), -weight], axis=1),
            lower=bias,
            upper=bias,
        )
    )
    return a


def _relu_layer(
    columns: _Columns, layer: Layer, lower: Array, upper: Array, y: Integers, rows: list[RowBlock]
) -> FullNeurons:
    a = _affine(columns, layer.weight, layer.bias, y, rows)
    identity = layer.slope == 1
    active = identity | (lower >= 0)
    inactive = ~active & (upper <= 0)
    r = columns.add(np.where(active, lower, 0.0), np.where(inactive, 0.0, upper))
    return FullNeurons(input=a, output=r, lower=lower, upper=upper, active=active, inactive=inactive)


def _outputs(columns: _Columns, layer: Layer, neurons: FullNeurons, rows: list[RowBlock]) -> Integers:
    """Columns of y: r itself, or r - s n with n = r - a in a layer with slopes. (No 1 - s, which would be rounded.)"""
    if not layer.slope.any():
        return neurons.output
    m = len(layer.slope)
    n, y = columns.free(m), columns.free(m)
    rows += [
        RowBlock.of([n, neurons.output, neurons.input], [1.0, -1.0, 1.0], 0.0, 0.0),
        RowBlock.of([y, neurons.output, n], [1.0, -1.0, layer.slope], 0.0, 0.0),
    ]
    return y
