"""The linear program of neuron branching: two copies with some signs fixed, one program shape for a whole search tree.

    minimise    t                                                          t = max over rows:  t >= rows[r] . (g, g') + constants[r]
    subject to  p - n = a,   y = p - s n                                   for every neuron kept, in both copies
                p in [max(l, 0), max(u, 0)],   n in [max(-u, 0), max(-l, 0)]
                (1 - k) p + k n <= -k l,   k = u/(u - l)                   the triangle, where l < 0 < u
                rows about the difference of the copies                   (as in `twin_difference`, here for D = a' - a)
                one-hot columns of a block sum to 1.

Neurons stable in both copies at the root are substituted. A fixed sign is an interval [l, u] clipped at 0: it changes limits of
columns and three entries of sparse rows, never the shape, so that the basis of a parent starts its children.
The dual of  p - n - a = constant  is the slope of a in `encoders.bounds.regions`, that of the row of t its weight.
Sound? it is a relaxation of the region; its own answers hold only up to the solver's tolerance.  Complete? no.
References: Ehlers (ATVA 2017); Bunel et al., Branch and Bound for Piecewise Linear Neural Network Verification (JMLR 2020).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from encoders.arrays import Array, Booleans, Integers
from encoders.domain import Domain
from encoders.network import Network
from encoders.programs.rows import ProgramBuilder, RowBlock, matrix
from solvers.program import Program


@dataclass(frozen=True, kw_only=True, eq=False)
class Intervals:
    """Intervals of one hidden layer, each (m,): a in [low, high], a' in [low2, high2], D = a' - a in [d_low, d_high]."""

    low: Array
    high: Array
    low2: Array
    high2: Array
    d_low: Array
    d_high: Array

    @property
    def loose(self) -> Booleans:
        return ((self.low < 0) & (self.high > 0)) | ((self.low2 < 0) & (self.high2 > 0))

    def take(self, index: Integers) -> Intervals:
        return Intervals(**{name: getattr(self, name)[index] for name in Intervals.__dataclass_fields__})


@dataclass(frozen=True, kw_only=True, eq=False)
class PhaseRegion:
    """Network inputs x in [low, high] (n_0,), with x' = low2 at x = low, and the intervals of the hidden layers there."""

    low: Array
    high: Array
    low2: Array
    layers: list[Intervals]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Block:
    """Columns (each (u,)) of the kept neurons `index` of layer k, and the positions of their defining rows."""

    index: Integers
    p: Integers
    n: Integers
    p2: Integers
    n2: Integers
    row: Integers
    row2: Integers


@dataclass(frozen=True, kw_only=True, eq=False)
class PhaseLP:
    """The part of the program that a search tree shares.

    moving: (d,) network columns of the first d program columns xi, network column = centre + radius * xi (a category: xi itself).
    t: the column of t; rows_at: the rows of t.    blocks: per hidden layer.    fixed: the rows that never change.
    """

    network: Network
    domain: Domain
    moving: Integers
    centre: Array
    radius: Array
    t: int
    rows_at: Integers
    blocks: tuple[_Block, ...]
    fixed: sp.csr_array
    fixed_lower: Array
    fixed_upper: Array
    width: int

    @classmethod
    def of(cls, network: Network, domain: Domain, root: PhaseRegion, margin: Array, rows: Array, constants: Array) -> PhaseLP:
        """Return the program over the regions within a root: rows (R, 2) over (g, g'), g = margin . logits, and constants (R,)."""
        low, high = root.low, root.high
        moving = np.flatnonzero(low < high)
        one_hot = np.zeros(len(low), dtype=bool)
        one_hot[domain.columns_of(np.flatnonzero(domain.one_hot))] = True
        is_category = one_hot[moving]
        centre = np.where(is_category, 0.0, (low + high)[moving] / 2)
        radius = np.where(is_category, 1.0, (high - low)[moving] / 2)
        copies = []
        for start in (low, root.low2):
            point = start.copy()
            point[moving] = centre + (start - low)[moving]  # a shifted copy moves along
            first = network.layers[0]
            copies.append(_Expressions(np.arange(len(moving)), first.weight[:, moving] * radius, first.weight @ point + first.bias))
        build = ProgramBuilder()
        build.free(len(moving))
        for v in np.flatnonzero(domain.one_hot):
            block = np.flatnonzero((moving >= domain.start[v]) & (moving < domain.start[v] + domain.width[v]))
            if len(block):
                build.add(RowBlock.single(block, np.ones(len(block)), 1.0, 1.0))
        blocks = []
        for k, layer in enumerate(network.layers[:-1]):
            bounds = root.layers[k]
            unstable = np.flatnonzero(bounds.loose & (layer.slope < 1))
            columns, positions = [], []
            for copy, lower in zip(copies, (bounds.low, bounds.low2), strict=True):
                p, n = build.free(len(unstable)), build.free(len(unstable))
                positions.append(build.add(copy.definitions(unstable, p, n)))
                columns += [p, n]
                copy.ascend(network, k, unstable, p, n, np.where((lower >= 0) | (layer.slope == 1), 1.0, layer.slope))
            p, n, p2, n2 = columns
            blocks.append(_Block(index=unstable, p=p, n=n, p2=p2, n2=n2, row=positions[0], row2=positions[1]))
        last = build.free(3)  # t, g and g'
        for copy, column in zip(copies, last[1:], strict=True):
            constant = np.array([margin @ copy.constant])
            build.equations(np.array([column]), copy.columns, (margin @ copy.coefficients)[None], constant)
        at_least = np.concatenate([np.ones((len(rows), 1)), -rows], axis=1)  # t - row . (g, g') >= constant
        unbounded = np.full(len(rows), np.inf)
        rows_at = build.add(RowBlock(columns=np.tile(last, (len(rows), 1)), values=at_least, lower=constants, upper=unbounded))
        fixed, lower_limit, upper_limit = matrix(build.rows, build.width)
        return cls(
            network=network, domain=domain, moving=moving, centre=centre, radius=radius, t=int(last[0]), rows_at=rows_at,
            blocks=tuple(blocks), fixed=fixed, fixed_lower=lower_limit, fixed_upper=upper_limit, width=build.width,
        )

    def program(self, region: PhaseRegion) -> Program:
        """Return the program of one region within the root."""
        lower, upper = np.full(self.width, -np.inf), np.full(self.width, np.inf)
        d = len(self.moving)
        lower[:d] = (region.low[self.moving] - self.centre) / self.radius
        upper[:d] = (region.high[self.moving] - self.centre) / self.radius
        changing: list[RowBlock] = []
        for k, block in enumerate(self.blocks):
            span = region.layers[k].take(block.index)
            for p, n, a_low, a_high in ((block.p, block.n, span.low, span.high), (block.p2, block.n2, span.low2, span.high2)):
                lower[p], upper[p] = np.maximum(a_low, 0), np.maximum(a_high, 0)
                lower[n], upper[n] = np.maximum(-a_high, 0), np.maximum(-a_low, 0)
                changing.append(_triangle(p, n, a_low, a_high))
            changing += _first_difference(block, span) if k == 0 else _deeper_difference(block, span)
        sparse, row_lower, row_upper = matrix(changing, self.width)
        matrices = self.fixed, sparse
        data, indices = (np.concatenate([getattr(part, name) for part in matrices]) for name in ("data", "indices"))
        starts = np.concatenate([self.fixed.indptr, sparse.indptr[1:] + self.fixed.nnz])
        return Program(
            lower=lower, upper=np.maximum(lower, upper), integer=np.zeros(self.width, dtype=bool),
            rows=sp.csr_array((data, indices, starts), shape=(len(starts) - 1, self.width)),
            row_lower=np.concatenate([self.fixed_lower, row_lower]),
            row_upper=np.concatenate([self.fixed_upper, row_upper]), objective=np.eye(1, self.width, self.t)[0],
        )

    def slopes(self, duals: Array) -> tuple[Array, Array]:
        """Return weights (R,) of the goal's rows and slopes (2 H,) of neurons, NaN where not kept, from row duals (or a ray)."""
        hidden = self.network.hidden
        first = np.cumsum(hidden) - hidden
        slopes = np.full(2 * sum(hidden), np.nan)
        for start, block in zip(first, self.blocks, strict=True):
            slopes[start + block.index] = duals[block.row]
            slopes[sum(hidden) + start + block.index] = duals[block.row2]
        return np.maximum(duals[self.rows_at], 0.0), slopes

    def inputs(self, values: Array) -> Array:
        """Return the moving network columns (d,) of a solution."""
        return np.asarray(self.centre + self.radius * values[: len(self.moving)])

    def gaps(self, values: Array) -> Array:
        """Return (2 H,) the distances of relu(a) from its column in a solution: min(p, n), 0 where a neuron has no columns."""
        hidden = self.network.hidden
        out = np.zeros(2 * sum(hidden))
        for start, block in zip(np.cumsum(hidden) - hidden, self.blocks, strict=True):
            out[start + block.index] = np.minimum(values[block.p], values[block.n])
            out[sum(hidden) + start + block.index] = np.minimum(values[block.p2], values[block.n2])
        return out


class _Expressions:
    """Pre-activations of one copy as expressions: coefficients (m, c) over program columns (c,), constant (m,)."""

    def __init__(self, columns: Integers, coefficients: Array, constant: Array) -> None:
        self.columns, self.coefficients, self.constant = columns, coefficients, constant

    def definitions(self, kept: Integers, p: Integers, n: Integers) -> RowBlock:
        """p - n - (a without its constant) = constant."""
        ones = np.ones((len(kept), 1))
        columns = np.concatenate([np.tile(self.columns, (len(kept), 1)), p[:, None], n[:, None]], axis=1)
        values = np.concatenate([-self.coefficients[kept], ones, -ones], axis=1)
        return RowBlock(columns=columns, values=values, lower=self.constant[kept], upper=self.constant[kept])

    def ascend(self, network: Network, k: int, kept: Integers, p: Integers, n: Integers, gain: Array) -> None:
        """Move up to the layer above k: y = gain * a for neurons without columns, p - slope n for the kept ones."""
        above, slope = network.layers[k + 1], network.layers[k].slope
        gain = gain.copy()
        gain[kept] = 0.0
        folded, weight = above.weight * gain, above.weight[:, kept]
        self.constant = folded @ self.constant + above.bias
        self.coefficients = np.concatenate([folded @ self.coefficients, weight, -weight * slope[kept]], axis=1)
        self.columns = np.concatenate([self.columns, p, n])


def _triangle(p: Integers, n: Integers, low: Array, high: Array) -> RowBlock:
    unstable = (low < 0) & (high > 0)
    k = np.divide(high, high - low, out=np.full_like(low, 0.5), where=unstable)
    return RowBlock.of([p, n], [1 - k, k], -np.inf, np.where(unstable, -k * low, np.inf))


def _first_difference(block: _Block, span: Intervals) -> list[RowBlock]:
    """D = a' - a is a constant s: the facets of the hull of (a, relu(a), relu(a')) besides the triangles (`twin_difference`)."""
    rows = []
    shift = (span.d_low + span.d_high) / 2
    unstable = (span.low < 0) & (span.high > 0) & (span.low2 < 0) & (span.high2 > 0)
    for sign, p, n, q, m, top, bottom in (
        (1.0, block.p2, block.n2, block.p, block.n, span.high2, span.low),
        (-1.0, block.p, block.n, block.p2, block.n2, span.high, span.low2),
    ):  # (p, n) of the larger copy, (q, m) of the smaller one
        holds = unstable & (sign * shift > 0)
        size = np.abs(shift)
        q_ratio = np.clip(1 - np.divide(size, top, out=np.zeros_like(size), where=holds), 0.0, None)
        n_ratio = np.clip(1 + np.divide(size, bottom, out=np.zeros_like(size), where=holds), 0.0, None)
        limit = np.where(holds, 0.0, np.inf)
        rows += [RowBlock.of([q, p], [1.0, -q_ratio], -np.inf, limit), RowBlock.of([n, m], [1.0, -n_ratio], -np.inf, limit)]
    return rows


def _deeper_difference(block: _Block, span: Intervals) -> list[RowBlock]:
    """d_low <= D <= d_high, and the planes around d = p' - p:  lines in D between min(D, 0) and max(D, 0)."""
    low, high = span.d_low, span.d_high
    crosses = (low < 0) & (high > 0)
    share = np.divide(high, high - low, out=np.zeros_like(low), where=crosses)
    equal, zero = (span.low >= 0) & (span.low2 >= 0), (span.high <= 0) & (span.high2 <= 0)
    crosses &= ~equal & ~zero
    roof = np.where(equal, 1.0, np.where(zero, 0.0, np.where(low >= 0, 1.0, share)))
    floor = np.where(equal, 1.0, np.where(zero, 0.0, np.where(high <= 0, 1.0, np.where(low >= 0, 0.0, 1 - share))))
    columns = [block.p2, block.n2, block.p, block.n]

    def plane(slope: Array) -> list[Array | float]:  # d - slope D, with d = p' - p and D = p' - n' - p + n
        return [1 - slope, slope, slope - 1, -slope]

    return [
        RowBlock.of(columns, [1.0, -1.0, -1.0, 1.0], low, np.maximum(low, high)),
        RowBlock.of(columns, plane(roof), -np.inf, np.where(crosses, -share * low, 0.0)),
        RowBlock.of(columns, plane(floor), np.where(crosses, -(1 - share) * high, 0.0), np.inf),
    ]
