"""Decide whether a closed goal also holds for every float32 evaluation: compare bounds with the error of both margins.

A row p g(x) + q g(x') + c with bound b over a box holds for every float32 evaluation of x and x', in any order of summation, if b
exceeds (|p| + |q|) E, with E the error of either margin over the box (`encoders.bounds.float32`). E over all boxes together costs
nothing and mostly suffices; where it does not, E over the box itself is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from encoders.bounds.float32 import Float32Error, SumError, float32_error
from encoders.bounds.relu import LayerBounds
from encoders.problem import TwinCopies, TwinProblem
from verifair.engine.search.boxes import Nodes, rows_at

ROOM = 1 + 1e-6
"""Allowance because the checker sums the error in another order."""


def copies(problem: TwinProblem, question: Integers, lower: Array, upper: Array) -> tuple[Array, Array]:
    """Return the boxes (B, n), (B, n) of network inputs that hold both copies of raw boxes lower, upper (B, V)."""
    batch = problem.batch.take(question)
    first, second = problem.domain.box(lower, upper), problem.domain.box(batch.second(lower), batch.second(upper))
    return np.minimum(first[0], second[0]), np.maximum(first[1], second[1])


@dataclass(frozen=True, kw_only=True, eq=False)
class Float32Rule:
    """The rule for one twin problem. size: (R,) |p| + |q| of each row.   error: None if no bound for float32 is known.

    widest: the error over all boxes together.
    """

    twin: TwinCopies
    size: Array
    error: Float32Error | SumError | None
    widest: float

    @classmethod
    def of(cls, twin: TwinCopies) -> Float32Rule:
        problem = twin.problem
        error, widest = float32_error(problem.network, problem.margin), np.inf
        if error is not None and len(problem.batch):
            low, high = copies(problem, np.arange(len(problem.batch)), problem.batch.lower, problem.batch.upper)
            widest = float(error.within(low.min(axis=0)[None], high.max(axis=0)[None])[0])
        return cls(twin=twin, size=np.abs(problem.rows).sum(axis=1), error=error, widest=widest)

    def surely(self, nodes: Nodes, lower: Array, size: Array, bounds: Callable[[Integers], Sequence[LayerBounds]]) -> Booleans:
        """Return (N, G) True for open goals that hold in float32 on the whole box, where rows with lower bounds (N, G) close them.

        size: (N, G) |p| + |q| of those rows.   bounds: returns those of the hidden layers at positions of nodes.
        """
        closing = nodes.open & (lower >= 0)
        if self.error is None or not closing.any():
            return np.zeros(lower.shape, dtype=bool)
        error = np.full((len(nodes), 1), self.widest)
        with np.errstate(invalid="ignore"):  # for an infinite error, which no bound exceeds
            holds = closing & (lower > ROOM * size * error)
            short = np.flatnonzero((closing & ~holds).any(axis=1))
            if len(short):
                part = nodes.take(short)
                ends = (rows_at(self.twin, part.question, end) for end in (part.lower, part.upper))
                low, high = copies(self.twin.problem, part.question, *ends)
                inputs = np.maximum(np.abs(low), np.abs(high))
                error[short, 0] = np.minimum(self.error.below(inputs, bounds(short)), self.widest)
                holds = closing & (lower > ROOM * size * error)
        return np.asarray(holds)

    def at(self, question: Integers, point: Array) -> Array:
        """Return (N,) the error of both margins at single points (N, v) of the moving variables."""
        if self.error is None:
            return np.full(len(question), np.inf)
        raw = rows_at(self.twin, question, point)
        domain, second = self.twin.problem.domain, self.twin.problem.batch.take(question).second(raw)
        inputs = np.concatenate([domain.encode(raw), domain.encode(second)])
        return np.asarray(self.error.within(inputs, inputs).reshape(2, -1).max(axis=0))
