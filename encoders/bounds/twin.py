"""The data that all bounds of a twin problem share: the moving columns, the first layer at the fixed ones, and the rounding errors.

Only columns that vary in some box take part in the bounds; all others are summed into the first layer once per question.
With x = (fixed, moving) and x' = x but for protected columns,

    a_1 = base + W_m x_m,      a_1 - a_1' = s  (constant),      base = W_f x_f + b_1,    s = W_1 (x - x').
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from encoders.bounds.relu import affine_interval
from encoders.bounds.rounding import charge, factor, form_magnitudes, magnitude
from encoders.bounds.smooth.curves import activated_interval
from encoders.curves.layer import SmoothLayer
from encoders.domain import Domain
from encoders.network import Layer, activate
from encoders.problem import TwinProblem
from solvers import clock

LEAST = 1e-90
"""Covers underflow, in any order of summation."""
LARGEST = 1e99
"""Larger sizes prove nothing: the checker's limit is ten times as large."""
READY = 4
"""Multiplications to prepare a question, for each of the network's weights."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Twin:
    """A twin problem prepared for bounds. B questions, d moving columns, n_k neurons at layer k.

    variables: raw variables that vary in some box; moving: their network columns; local: the domain of these alone.
    weights: (n_1, d) then (n_k, n_{k-1}); the last one is margin . W_N as a (1, n_{N-1}) row, with its bias.
    hidden: the hidden layers as they are, for their activations.
    base, shift: (B, n_1).   equal: (B, n_1) True for neurons that no protected column reaches, so that a - a' is exactly 0.
    error: per layer (B, n_k), the outward rounding E_k of values.   magnitude: Q_k, to which errors of backward substitution are
    relative (more where the layer is smooth).
    form_error: the same for linear forms, hidden layers from the second on.
    lone: True if each question is about one copy alone, as a pair with itself (see `alone`).
    """

    problem: TwinProblem
    variables: Integers
    moving: Integers
    local: Domain
    weights: tuple[Array, ...]
    absolute: tuple[Array, ...]
    biases: tuple[Array, ...]
    hidden: tuple[Layer, ...]
    base: Array
    shift: Array
    equal: Booleans
    error: tuple[Array, ...]
    form_error: tuple[Array, ...]
    magnitude: tuple[Array, ...]
    rows: Array
    constants: Array
    lone: bool = False

    @classmethod
    @np.errstate(all="ignore")  # overflow proves nothing
    def of(cls, problem: TwinProblem) -> Twin:
        network, batch, domain = problem.network.layered("what asked for it"), problem.batch, problem.domain
        low, high = domain.box(batch.lower, batch.upper)
        variables = np.flatnonzero((batch.lower != batch.upper).any(axis=0))
        moving = domain.columns_of(variables)
        first = network.layers[0]
        fixed = np.ones(domain.columns, dtype=bool)
        fixed[moving] = False
        base = low[:, fixed] @ first.weight[:, fixed].T + first.bias
        differing = batch.protected if batch.offset is None else batch.protected | (batch.offset != 0).any(axis=0)
        changed = np.flatnonzero(differing)
        columns = domain.columns_of(changed)
        # A relaxed copy is shifted by a whole number in an unscaled column: x - x' is the same exact constant on the whole box.
        prime, prime_high = domain.take(changed).box(batch.second(batch.lower)[:, changed], batch.second(batch.upper)[:, changed])
        shift = (low[:, columns] - prime) @ first.weight[:, columns].T
        reached = (low[:, columns] != prime).astype(np.float64) @ (first.weight[:, columns] != 0).T.astype(np.float64)
        clock.spend(READY * len(batch) * network.work)
        weights = [layer.weight for layer in network.layers]
        biases = [layer.bias for layer in network.layers]
        x_size = np.maximum(np.abs(low), np.abs(high))
        x_size[:, columns] = (x_size[:, columns] + np.maximum(np.abs(prime), np.abs(prime_high))) / 2
        x_size *= 2  # |x| + |x'|: the same in all columns but the protected ones
        sizes = [magnitude(first.weight, first.bias, x_size)]
        error = [factor(domain.columns) * sizes[0]]
        middle, radius = (low + high)[:, moving] / 2, (high - low)[:, moving] / 2
        centre = base + middle @ first.weight[:, moving].T
        spread = radius @ np.abs(first.weight[:, moving]).T + 2 * error[0]
        copies = [(centre - spread, centre + spread), (centre - shift - spread, centre - shift + spread)]
        for k, layer in enumerate(network.layers[1:], start=1):
            below, after = network.layers[k - 1], len(network.layers) - 1 - k
            if k > 1 and not after:
                # |y| <= |a| <= Q for both copies: coarse, but enough for the last layer
                size = 2 * sizes[-1]
                if isinstance(below, SmoothLayer):  # |y| <= Q^2
                    size = np.where(below.squared, size * size, size)
            else:
                ends = [activated_interval(below, *copy) for copy in copies]
                size = np.maximum(*map(np.abs, ends[0])) + np.maximum(*map(np.abs, ends[1]))
            if isinstance(below, SmoothLayer):  # for a curve 1 more for each copy: its enclosures have absolute errors
                size = np.where(below.shaped & ~below.squared, 2 * size + 2, np.where(below.smooth & ~below.shaped, 2.0, size))
            sizes.append(magnitude(layer.weight, layer.bias, size))
            error.append(factor(layer.weight.shape[1]) * sizes[-1])
            if after > 1:
                copies = [affine_interval(layer.weight, np.abs(layer.weight), end, layer.bias, error[-1]) for end in ends]
        weights[-1] = problem.margin[None, :] @ weights[-1]
        biases[-1] = problem.margin @ biases[-1][:, None]
        for per_layer in (sizes, error):
            per_layer[-1] = per_layer[-1] @ np.abs(problem.margin)[:, None]
        if len(weights) == 1:
            base, shift = base @ problem.margin[:, None], shift @ problem.margin[:, None]
            reached = reached @ np.abs(problem.margin)[:, None]
        weights[0] = weights[0][:, moving]
        charged = [charge(layer, size) for layer, size in zip(network.layers, sizes, strict=True)]
        # A form inherits the rounding errors of those below it, so the widest sum so far counts.
        widest = np.maximum.accumulate([domain.columns, *(layer.weight.shape[1] for layer in network.layers[1:])]).tolist()
        form_error = [
            factor(terms) * size for terms, size in zip(widest[1:], form_magnitudes(network.layers, sizes[0]), strict=False)
        ]
        return cls(
            problem=problem, variables=variables, local=domain.take(variables), moving=moving, weights=tuple(weights),
            absolute=tuple(np.abs(w) for w in weights), biases=tuple(biases), hidden=network.layers[:-1], base=base,
            shift=shift, equal=reached == 0, error=tuple(error), form_error=tuple(form_error),
            magnitude=tuple(charged), rows=problem.rows, constants=problem.constants,
        )

    @property
    def noise(self) -> Array:
        """(Q,) bounds of the error of `evaluate`: points that are so near to a tie are worth an exact evaluation."""
        return 2 * self.error[-1][:, 0]

    @cached_property
    def rate(self) -> float:
        """A bound of the rounding error of a pass through all layers, relative to the sizes of all terms; see `regions`."""
        layers = self.problem.network.layered("what asked for it").layers
        widest = max(len(layer.bias) for layer in layers) + max(layer.weight.shape[1] for layer in layers)
        return 8 * factor(widest + 2 * len(layers) + 8)

    @cached_property
    def in_range(self) -> Booleans:
        """(Q,) True for questions whose numbers all stay far below float64's limits; for others no bound is a proof."""
        bounded = np.logical_and.reduce([(size <= LARGEST).all(axis=1) for size in self.magnitude])
        return np.asarray(np.broadcast_to(bounded, len(self.problem.batch)))

    def with_room(self) -> Twin:
        """Return the twin with wider intervals, so that the checker's, computed in another order, are narrower."""
        sizes = list(self.magnitude)
        for k, layer in enumerate(self.hidden):
            if isinstance(layer, SmoothLayer):  # the magnitude of squares is no size of their pre-activations
                sizes[k] = np.where(layer.squared, self.error[k] / factor(layer.weight.shape[1]), sizes[k])
        return replace(self, error=tuple(2 * self.rate * size + LEAST for size in sizes))

    @cached_property
    def alone(self) -> Twin:
        """Return the twin of 2 B questions about single copies: of x, then of x', each as a pair with itself."""
        base, questions = np.concatenate([self.base, self.base - self.shift]), np.tile(np.arange(len(self.problem.batch)), 2)
        error, form_error, magnitude = (
            tuple(size[questions] for size in sizes) for sizes in (self.error, self.form_error, self.magnitude)
        )
        return replace(
            self, problem=replace(self.problem, batch=self.problem.batch.take(questions)), base=base, shift=np.zeros_like(base),
            equal=np.ones_like(base, dtype=bool), error=error, form_error=form_error, magnitude=magnitude, lone=True,
        )

    def evaluate(self, question: Integers, x: Array) -> Array:
        """Return margins (B, 2) = g(x), g(x') in float64 at moving columns x (B, d): to find witnesses, not to confirm them."""
        clock.spend(2 * len(x) * sum(weight.size for weight in self.weights))
        a = self.base[question] + x @ self.weights[0].T
        pair = np.stack([a, a - self.shift[question]])
        for layer, weight, bias in zip(self.hidden, self.weights[1:], self.biases[1:], strict=True):
            if isinstance(layer, SmoothLayer):
                pair = activate(pair, layer) @ weight.T + bias
                continue
            slope = layer.slope
            pair = np.maximum(pair, slope * pair if slope.any() else 0.0) @ weight.T + bias
        return pair[:, :, 0].T

    @property
    def depth(self) -> int:
        """The number of hidden layers."""
        return len(self.hidden)
