"""What the bounds of a twin problem share: the moving columns, the first layer at the fixed ones, and the rounding budget.

Only the columns that some box moves take part in the bounds; everything else is summed into the first layer once per question.
With x = (fixed, moving) and x' = x but for protected columns,

    a_1 = base + W_m x_m,      a_1 - a_1' = s  (constant),      base = W_f x_f + b_1,    s = W_1 (x - x').
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from encoders.bounds.rounding import factor, magnitudes
from encoders.network import Array
from encoders.problem import Domain, TwinProblem

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Twin:
    """A twin problem made ready for bounding. B questions, d moving columns, n_k neurons at layer k.

    variables: raw variables that some box moves; moving: their network columns; local: the domain of these alone.
    weights: (n_1, d) then (n_k, n_{k-1}); the last one is margin . W_N as a (1, n_{N-1}) row, with its bias.
    base, shift: (B, n_1).   error: per layer (B, n_k), the outward rounding E_k.   magnitude: Q_k likewise.
    """

    problem: TwinProblem
    variables: Indices
    moving: Indices
    local: Domain
    weights: tuple[Array, ...]
    absolute: tuple[Array, ...]
    biases: tuple[Array, ...]
    slopes: tuple[Array, ...]
    base: Array
    shift: Array
    error: tuple[Array, ...]
    magnitude: tuple[Array, ...]
    rows: Array

    @classmethod
    def of(cls, problem: TwinProblem) -> Twin:
        network, batch, domain = problem.network, problem.batch, problem.domain
        low, high = domain.box(batch.lower, batch.upper)
        prime_low, prime_high = domain.box(batch.second(batch.lower), batch.second(batch.upper))
        variables = np.flatnonzero((batch.lower != batch.upper).any(axis=0))
        moving = domain.columns_of(variables)
        first = network.layers[0]
        fixed = np.ones(domain.columns, dtype=bool)
        fixed[moving] = False
        base = low[:, fixed] @ first.weight[:, fixed].T + first.bias
        differs = np.flatnonzero((low != prime_low).any(axis=0))
        shift = (low[:, differs] - prime_low[:, differs]) @ first.weight[:, differs].T
        x_max = sum(np.maximum(np.abs(lo), np.abs(hi)) for lo, hi in ((low, high), (prime_low, prime_high)))
        weights = [layer.weight for layer in network.layers]
        weights[-1] = problem.margin[None, :] @ weights[-1]
        biases = [layer.bias for layer in network.layers]
        biases[-1] = problem.margin @ biases[-1][:, None]
        sizes = magnitudes(network, np.asarray(x_max))
        sizes[-1] = sizes[-1] @ np.abs(problem.margin)[:, None]
        error = [factor(layer.weight.shape[1]) * size for layer, size in zip(network.layers, sizes, strict=True)]
        if len(weights) == 1:
            base, shift = base @ problem.margin[:, None], shift @ problem.margin[:, None]
        weights[0] = weights[0][:, moving]
        return cls(
            problem=problem,
            variables=variables,
            local=domain.take(variables),
            moving=moving,
            weights=tuple(weights),
            absolute=tuple(np.abs(w) for w in weights),
            biases=tuple(biases),
            slopes=tuple(layer.slope for layer in network.layers[:-1]),
            base=base,
            shift=shift,
            error=tuple(error),
            magnitude=tuple(sizes),
            rows=problem.rows,
        )

    def evaluate(self, question: Indices, x: Array) -> Array:
        """Margins (B, 2) = g(x), g(x') in float64 at moving columns x (B, d): to find witnesses, not to confirm them."""
        a = self.base[question] + x @ self.weights[0].T
        pair = np.stack([a, a - self.shift[question]])
        for slope, weight, bias in zip(self.slopes, self.weights[1:], self.biases[1:], strict=True):
            pair = np.maximum(pair, slope * pair if slope.any() else 0.0) @ weight.T + bias
        return pair[:, :, 0].T

    @property
    def depth(self) -> int:
        """Number of hidden layers."""
        return len(self.slopes)
