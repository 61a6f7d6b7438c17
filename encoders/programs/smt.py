"""The exact formulation: linear real and integer arithmetic with the stored weights, for a solver over the rationals.

A `FullTwin` has a column for every input and every neuron of both copies: no coefficient is computed, only copied.

    a_k - W_k y_{k-1} = b_k        r_k = relu(a_k);   r_k = a_k where l_k >= 0,   r_k = 0 where u_k <= 0
                                   (rigorous bounds: fewer cases, same solutions)
    y_k = r_k                      or, with a slope s > 0 in the layer,   n_k = r_k - a_k,   y_k = r_k - s n_k
    g - margin . a_N = 0
    row . (g, g') + constant <= 0  for every row of the goal   (< 0 for a row that is not strict)
    x leaves every forbidden box through one of its exits      (`exits`, both copies)

Every number here is a stored weight or a float32 input, so the program over the rationals is the network itself.
(`twin.Layout` is the small program, with float64 products as coefficients.)

The rows together say that *no* row of the goal holds, the negation of safe(x): a solution is a witness, none is a proof. For a
probability gap that only outlines the negation: a solution whose gap is small enough calls for a further row (`rows.refined`).
Real inputs range over [float32(lower), float32(upper)], and so does every real of that interval, whether a float32 or not;
whole inputs with a scale range over a small interval around each lattice point (`_lattice`). Both only add points.

Sound? UNSAT is a proof (of the solver's, CLAIMED); a SAT point must be decoded and re-evaluated exactly.
Complete? for inputs that the network takes unscaled, and one-hot ones; else up to float32 rounding of the inputs, which matters
when the margin comes within about 1e-7 of 0 only.
Reference: Katz et al., Reluplex, CAV 2017 (the theory); Z3 as the oracle, for tiny networks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from encoders.network import Layer
from encoders.problem import TwinBatch
from encoders.programs.rows import ProgramBuilder, RowBlock
from encoders.programs.twin import Encoding
from encoders.programs.twin_box import InputColumns, TwinBox, exit_clauses


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
    """The columns and defining rows of the full twin; neurons layer by layer, of x then of x'.

    margins: (2,) the columns of g and g'.   counts: (c,) for each moving input the column of its whole number, -1: it has none.
    """

    inputs: InputColumns
    builder: ProgramBuilder
    neurons: tuple[FullNeurons, ...]
    margins: Integers
    counts: Integers

    @classmethod
    def of(cls, box: TwinBox, *, exact: bool) -> FullTwin:
        """Return the twin. exact: whole inputs are tied to integer columns and categories are binary; else inputs are
        continuous."""
        inputs = InputColumns.plain(box, integer=exact)
        builder = ProgramBuilder()
        for row in inputs.sums():
            builder.add(row)
        x, x_prime = _input_columns(box, inputs, builder)
        counts = _lattice(inputs, builder) if exact else np.full(len(inputs.column), -1)
        network = box.twin.problem.network.layered("an SMT program")
        y, neurons = [x, x_prime], []
        for k, layer in enumerate(network.layers[:-1]):
            for copy, prime in enumerate((False, True)):
                neurons.append(_relu_layer(builder, layer, box.copy(k, prime), y[copy]))
                y[copy] = _outputs(builder, layer, neurons[-1])
        weight = box.twin.problem.margin[None, :]
        margins = []
        for copy in (0, 1):
            logits = _affine(builder, network.layers[-1].weight, network.layers[-1].bias, y[copy])
            margins.append(_affine(builder, weight, np.zeros(1), logits))
        return cls(inputs=inputs, builder=builder, neurons=tuple(neurons), margins=np.concatenate(margins), counts=counts)

    def encoding(self, rows: list[RowBlock], **fields: Any) -> Encoding:
        """Return the program with these rows as well.   fields: further parts of the `Program`, its ReLUs for example."""
        for row in rows:
            self.builder.add(row)
        program = self.builder.program()
        margins = np.zeros((2, program.columns))
        margins[[0, 1], self.margins] = 1.0
        return Encoding(program=replace(program, **fields), inputs=self.inputs, margins=margins, constants=np.zeros(2))


def _input_columns(box: TwinBox, inputs: InputColumns, builder: ProgramBuilder) -> tuple[Integers, Integers]:
    """Return program columns (n_0,) of network inputs of x and x': moving ones first, shared ones once, shifted ones tied."""
    problem = box.twin.problem
    batch = problem.batch.take([box.question])
    low = problem.domain.encode(box.lower[None, :])[0]
    low[box.twin.moving] = box.low
    prime = problem.domain.encode(batch.second(box.lower[None, :]))[0]
    moving = box.twin.moving[inputs.column]
    x = np.empty(len(low), dtype=np.int64)
    fixed = np.ones(len(low), dtype=bool)
    fixed[moving] = False
    x[moving] = builder.columns(inputs.lower, inputs.upper, inputs.integer)
    x[fixed] = builder.columns(low[fixed], low[fixed])
    x_prime = x.copy()
    # A category or scaled number that x' has shifted is one value in each copy, though other questions of the batch leave it open.
    pinned = np.isin(np.arange(len(low)), problem.domain.columns_of(np.flatnonzero(_pinned(box, batch))))
    separate = (fixed & (low != prime)) | pinned
    x_prime[separate] = builder.columns(prime[separate], prime[separate])
    if batch.offset is not None:
        _shift(inputs, moving, np.where(_pinned(box, batch), 0.0, batch.offset[0]), x_prime, builder)
    return x, x_prime


def _pinned(box: TwinBox, batch: TwinBatch) -> Booleans:
    """Return (V,) True for variables with one value in x, and a shifted one in x'."""
    offset = np.zeros(len(box.lower)) if batch.offset is None else batch.offset[0]
    return np.asarray((box.lower == box.upper) & (offset != 0) & ~batch.protected)


def _shift(inputs: InputColumns, moving: Integers, offset: Array, x_prime: Integers, builder: ProgramBuilder) -> None:
    """Columns of their own for the moving inputs that x' has shifted:  x' - x = offset / scale.

    Exact for inputs that the network takes unscaled; else either end is rounded to float32, which a slack allows for.
    """
    domain = inputs.box.twin.problem.domain
    index = np.flatnonzero(~inputs.one_hot & (offset[inputs.variable] != 0))
    scale, shift = domain.scale[inputs.variable[index]], offset[inputs.variable[index]]
    largest = np.maximum(np.abs(inputs.lower[index]), np.abs(inputs.upper[index])) + np.abs(shift / scale)
    exact = (scale == 1) & (domain.offset[inputs.variable[index]] == 0) & (largest <= 2.0**24)
    slack = np.where(exact, 0.0, 2.0**-22 * largest + 2.0**-148)
    columns = builder.free(len(index))
    builder.add(RowBlock.of([columns, index], [1.0, -1.0], shift / scale - slack, shift / scale + slack))
    x_prime[moving[index]] = columns


def _lattice(inputs: InputColumns, builder: ProgramBuilder) -> Integers:
    """Add integer columns k for whole inputs, tied to their network columns c = float32((k - offset)/scale). Return (c,) the column
    of k of each input, -1 for those that are no whole numbers.

    Rounding is not linear, so c may range over an interval around the affine image that holds the rounded value:

        |scale c - (k - offset)| <= scale (2^-23 max|c| + 2^-149).

    Two roundings to float64 and one to float32 err by less than half of that. With scale 1 and a whole offset nothing is
    rounded (below 2^24) and c = k - offset. So every legal input is a solution: UNSAT stays a proof; a SAT point may need
    rounding to the lattice and is re-evaluated by the caller.
    """
    domain = inputs.box.twin.problem.domain
    index = np.flatnonzero(~inputs.one_hot & domain.integer[inputs.variable])
    v = inputs.variable[index]
    k = builder.columns(inputs.box.lower[v], inputs.box.upper[v], np.ones(len(v), dtype=bool))
    offset, scale = domain.offset[v], domain.scale[v]
    largest = np.maximum(np.abs(inputs.lower[index]), np.abs(inputs.upper[index]))
    unscaled = (scale == 1) & (offset == np.floor(offset)) & (largest <= 2.0**24)
    slack = scale * (2.0**-23 * largest + 2.0**-149)
    lower = np.where(unscaled, -offset, np.nextafter(-offset - slack, -np.inf))
    upper = np.where(unscaled, -offset, np.nextafter(-offset + slack, np.inf))
    builder.add(RowBlock.of([index, k], [scale, -1.0], lower, upper))
    counts = np.full(len(inputs.column), -1)
    counts[index] = k
    return counts


def _affine(builder: ProgramBuilder, weight: Array, bias: Array, y: Integers) -> Integers:
    """Return new columns a with  a - weight y = bias."""
    a = builder.free(len(bias))
    builder.equations(a, y, weight, bias)
    return a


def _relu_layer(builder: ProgramBuilder, layer: Layer, bounds: tuple[Array, Array], y: Integers) -> FullNeurons:
    a, (lower, upper) = _affine(builder, layer.weight, layer.bias, y), bounds
    active = (layer.slope == 1) | (lower >= 0)
    inactive = ~active & (upper <= 0)
    r = builder.columns(np.where(active, lower, 0.0), np.where(inactive, 0.0, upper))
    return FullNeurons(input=a, output=r, lower=lower, upper=upper, active=active, inactive=inactive)


def _outputs(builder: ProgramBuilder, layer: Layer, neurons: FullNeurons) -> Integers:
    """Return columns of y: r itself, or r - s n with n = r - a in a layer with slopes. (No 1 - s, which would be rounded.)"""
    if not layer.slope.any():
        return neurons.output
    n, y = builder.free(len(layer.slope)), builder.free(len(layer.slope))
    builder.add(RowBlock.of([n, neurons.output, neurons.input], [1.0, -1.0, 1.0], 0.0, 0.0))
    builder.add(RowBlock.of([y, neurons.output, n], [1.0, -1.0, layer.slope], 0.0, 0.0))
    return y


def smt(box: TwinBox) -> Encoding:
    """Return the exact twin of one box, without a goal (see `violated`)."""
    full = FullTwin.of(box, exact=True)
    rows, relus = [], []
    for layer in full.neurons:
        rows.append(RowBlock.of([layer.output[layer.active], layer.input[layer.active]], [1.0, -1.0], 0.0, 0.0))
        unstable = ~layer.active & ~layer.inactive
        relus.append(np.stack([layer.input[unstable], layer.output[unstable]], axis=1))
    clauses = exit_clauses(full.inputs, full.counts, full.builder.width)
    return full.encoding(rows, relus=np.concatenate([np.empty((0, 2), dtype=np.int64), *relus]), clauses=clauses)
