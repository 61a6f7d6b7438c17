"""Rigorous bounds for the checker of neuron branching: what a leaf's multipliers prove over its box and fixed signs.

The claim: at every x of a raw box (x' = x but for `prime`, and shifted by `offset`) some row r of the goal has
v_r = rows[r] . (g(x), g(x')) + constants[r] >= 0. The tree cuts the box by raw variables and by the signs of pre-activations; a
*region* is a leaf's box with its signs. For weights w >= 0 of the rows and *any* slopes alpha, beta, one for each neuron of the
two copies, Lagrangian backward substitution gives a lower bound of  sum_r w_r v_r  over the region. (For a probability gap a leaf
may bring one line of its own, of any slope, instead of rows: `encoders.probability.line_of`.) From the last layer down,

    P y + Q y'  =  s (P a + Q a') + p r + q r',      p = (1 - s) P,  q = (1 - s) Q,  r = max(a, 0),  s the neuron's slope,
    p r + q r'  >=  alpha a + beta a' + c,           c = min of  p r + q r' - alpha a - beta a'  over all (a, a') that can be:

a, a' and a' - a each within its interval, clipped by the signs. The function is linear where the signs of a and a' are fixed, so
c is the least of its values at the corners of four polygons. The best slopes are the duals of an LP: those of y >= a, of the
triangle's edge, of a fixed sign and of rows about the difference all come out as one number for each neuron. Last comes the exact
minimum over the box of the inputs, a one-hot block having one category.
The claim is proved on the region when the bound is positive, or is 0 and some w_r > 0 (all v_r < 0 would contradict it; with
w = 0 it says that the region is empty); when an interval is empty; or when the copies cannot differ and a row says as much.

Sound? Yes, whatever the multipliers; the rounding is covered as below. Complete? No: the search branches until this suffices.

Rounding (continues `check_bounds`, whose intervals, EPS, TINY and ranges are used; V, u, gamma, K as there).
    1. Clipping at 0 is exact, and all statements are about points of the region: where an interval is empty, so is the region.
    2. P, Q, alpha, beta count as exact once computed; replacing P_i, Q_i by the computed alpha W, beta W costs what it costs there:
       3 gamma_m of T_i, now with  T_i = (|P| + |Q| + |alpha| + |beta|).(V + V')  as slopes are not limited by the coefficients.
       (alpha, beta here are those of a and a' in all, s P included; what is left for r differs by roundings: 6 u T_i.)
    3. A cell is left out only when it is empty with interval ends rounded outwards. Its corners are computed within 4 u of
       2 (V + V') of the true ones and the function has slopes up to |p| + |q| + |alpha| + |beta|: 60 u T_i with evaluation. Their
       values are at most 3 T_i together, adding them up costs 3 gamma_m T_i.
    4. At the first layer 3 gamma_(n+1) (a at the centre) + 3 gamma_m (products with alpha, beta) + 3 gamma_(m+1) (slopes of inputs)
       + 4 gamma_n (product with half-widths, least category), running totals 8 gamma_3L. In all at most 12 gamma_m + 8 gamma_n +
       8 gamma_3L + 80 u, below the 16 gamma_K that EPS stands for.
    5. The rows' combination: T of the last layer and the constants are taken with |row| in place of row, R <= 300 rows cost
       gamma_(R+2), less than the 640 u that 16 gamma_K has for operations that the other terms do not use up.
    6. Multipliers beyond the range make some T_i exceed LARGEST: the bound is -inf. NaN proves nothing, as no comparison holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from encoders.network import Array, Layer, Network
from encoders.probability import STEEPEST, line_of
from encoders.problem import Booleans, Domain, Gap, Integers
from verifair.checker.kernel.bounds import LARGEST, Span, TwinBounds

SMALLEST = 1e-200
MAX_ROWS = 300


@dataclass(frozen=True, kw_only=True, eq=False)
class PhaseClaim:
    """What a tree has to prove, as numbers: x in [lower, upper] (V,); x' = prime where `differs` (there lower = upper), else
    x + offset (None: x). g = margin . f; rows (R, 2), constants (R,) as in `encoders.problem.Goal`, never strict.

    gap: for a probability gap the curve that the rows lie under; it decides single points.
    """

    lower: Array
    upper: Array
    prime: Array
    differs: Booleans
    offset: Array | None
    margin: Array
    rows: Array
    constants: Array
    gap: Gap | None

    def second(self, raw: Array) -> Array:
        """Raw points x' (B, V) of raw points x."""
        return np.where(self.differs, self.prime, raw if self.offset is None else raw + self.offset)

    def own_row(self, m: float) -> tuple[Array, float]:
        """The row (2,) and the constant of the line of slope m under the curve of a probability gap; NaN where there is none."""
        if self.gap is None or not 1 / STEEPEST <= m <= STEEPEST:
            return np.full(2, np.nan), np.nan
        return np.array([m, -1.0] if self.gap.rise else [-1.0, m]), line_of(self.gap.epsilon, m)

    def flaw(self, network: Network, domain: Domain) -> str | None:
        """Why no tree can prove this claim here, or None."""
        if not len(self.lower) == len(self.upper) == len(self.prime) == len(self.differs) == domain.variables:
            return "the claim's box does not have the schema's features"
        if len(self.margin) != network.outputs or self.rows.shape != (len(self.constants), 2) or not len(self.rows):
            return "the claim's rows do not fit together"
        if len(self.rows) > MAX_ROWS:
            return f"the goal has {len(self.rows)} rows, at most {MAX_ROWS} are covered by the rounding argument"
        numbers = (self.lower, self.upper, self.prime, self.margin, self.rows, self.constants)
        if not all(np.isfinite(one).all() for one in numbers) or (self.lower > self.upper).any():
            return "the claim's box is empty or not finite"
        if (self.differs & (self.lower != self.upper)).any():
            return "a protected feature is not fixed in the box"
        return None if self.offset is None else self._unshiftable(domain)

    def _unshiftable(self, domain: Domain) -> str | None:
        """x' - x must be constant on the box also after rounding to float32: whole numbers below 2^24, fed as they are."""
        assert self.offset is not None
        moved = (self.offset != 0) & ~self.differs
        size = np.maximum(np.abs(self.lower), np.abs(self.upper)) + np.abs(self.offset) + np.abs(domain.offset)
        plain = domain.integer & ~domain.one_hot & (domain.scale == 1) & (size < 2.0**24)
        plain &= (self.offset == np.floor(self.offset)) & (domain.offset == np.floor(domain.offset))
        return "a feature is shifted that is not fed to the network as a plain whole number" if (moved & ~plain).any() else None


@dataclass(frozen=True, kw_only=True, eq=False)
class Regions:
    """B boxes with signs. lower, upper: (B, V). active, inactive: (B, 2 H) neurons with a >= 0, with a <= 0, as in `PhaseTree`."""

    lower: Array
    upper: Array
    active: Booleans
    inactive: Booleans

    def __len__(self) -> int:
        return len(self.lower)

    def take(self, index: slice | Integers | Booleans) -> Regions:
        return Regions(
            lower=self.lower[index], upper=self.upper[index], active=self.active[index], inactive=self.inactive[index]
        )

    @staticmethod
    def whole(claim: PhaseClaim, network: Network) -> Regions:
        """The claim's box, no sign fixed."""
        free = np.zeros((1, 2 * sum(network.hidden)), dtype=bool)
        return Regions(lower=claim.lower[None], upper=claim.upper[None], active=free, inactive=free)


@dataclass(frozen=True, kw_only=True, eq=False)
class LeafBounds:
    """bound: (B,) of the rows' combination, errors allowed for: error (B,).   proved: (B,).

    first, second: per hidden layer (B, m) the coefficients P, Q of y, y' (for the choice of splits); slope: (B, n_0) of inputs.
    """

    bound: Array
    error: Array
    proved: Booleans
    first: tuple[Array, ...]
    second: tuple[Array, ...]
    slope: Array


class PhaseBounds(TwinBounds):
    """`TwinBounds` over regions: every interval clipped by the signs before anything is built on it.

    empty: (B,) regions that surely hold no point.   point: (B,) boxes that are one network input.
    """

    def __init__(self, network: Network, domain: Domain, claim: PhaseClaim, regions: Regions) -> None:
        low, high = domain.box(regions.lower, regions.upper)
        low2, high2 = domain.box(claim.second(regions.lower), claim.second(regions.upper))
        cuts = np.cumsum(network.hidden)
        copies = np.split(regions.active, 2, axis=1), np.split(regions.inactive, 2, axis=1)
        self._active, self._inactive = ([np.split(copy, cuts[:-1], axis=1) for copy in signs] for signs in copies)
        self.low, self.high, self.low2, self.high2 = low, high, low2, high2
        self.point = np.asarray((low == high).all(axis=1) & (low2 == high2).all(axis=1))
        self.blocks = [slice(int(s), int(s + w)) for s, w in zip(domain.start, domain.width, strict=True) if w > 1]
        self.claim = claim
        super().__init__(network, low, high, low2, high2, close=True)

    def _first_span(self, centre: Array, centre2: Array) -> Span:
        return self._clipped(super()._first_span(centre, centre2), 0)

    def _next_span(self, k: int) -> Span:
        return self._clipped(super()._next_span(k), k)

    def _closer(self, span: Span, k: int, kinked: Booleans) -> Span:
        """As in `TwinBounds`, the six substitutions stacked: a region at a time, calls cost more than arithmetic."""
        layer = self.network.layers[k]
        loose = ((span.low < 0) & (span.high > 0)) | ((span.low2 < 0) & (span.high2 > 0))
        at = box, neuron = np.nonzero(loose & kinked)
        rows, bias = layer.weight[neuron], layer.bias[neuron]
        none = np.zeros_like(rows)
        first, second = [rows, -rows, none, none, -rows, rows], [none, none, rows, -rows, rows, -rows]
        constant = np.concatenate([bias, -bias, bias, -bias, np.zeros(2 * len(bias))])
        least = self.lower(np.concatenate(first), np.concatenate(second), np.tile(box, 6), layer=k - 1, constant=constant)[0]
        ends = {name: getattr(span, name).copy() for name in ("low", "high", "low2", "high2", "d_low", "d_high")}
        for (name, end), value in zip(ends.items(), least.reshape(6, -1), strict=True):
            end[at] = np.minimum(end[at], -value) if "high" in name else np.maximum(end[at], value)
        return self._clipped(replace(span, **ends).tightened(), k)

    def _clipped(self, span: Span, k: int) -> Span:
        if k + 1 == len(self.network.layers) or not (self._active[0][k].size or self._active[1][k].size):
            return span
        (on, on2), (off, off2) = ([copy[k] for copy in signs] for signs in (self._active, self._inactive))
        return replace(
            span,
            low=np.where(on, np.maximum(span.low, 0.0), span.low),
            high=np.where(off, np.minimum(span.high, 0.0), span.high),
            low2=np.where(on2, np.maximum(span.low2, 0.0), span.low2),
            high2=np.where(off2, np.minimum(span.high2, 0.0), span.high2),
        ).tightened()

    @cached_property
    def in_range(self) -> Booleans:
        """(B,) boxes whose numbers are all within the range of the rounding argument; NaN is not."""
        within = [(span.size <= LARGEST).all(axis=1) for span in self.spans]
        return np.asarray(np.logical_and.reduce(within) & np.isfinite(self.eps))

    @cached_property
    def empty(self) -> Booleans:
        crossed = np.zeros(len(self.low), dtype=bool)
        for span in self.spans:
            for low, high in ((span.low, span.high), (span.low2, span.high2), (span.d_low, span.d_high)):
                crossed |= (low > high).any(axis=1)
        return crossed & self.in_range

    @cached_property
    def alike(self) -> Booleans:
        """(B,) where g' - g is exactly 0 and some row says no more than c (g - g') + constant >= 0 with a constant >= 0."""
        last = self.spans[-1]
        same = ((self.claim.margin == 0) | ((last.d_low == 0) & (last.d_high == 0))).all(axis=1)
        follows = ((self.claim.rows.sum(axis=1) == 0) & (self.claim.constants >= 0)).any()
        return np.asarray(same & follows & self.in_range)

    def lagrange(self, weights: Array, slopes: Array, own: Array | None = None) -> LeafBounds:
        """Bounds from weights (B, R) of the rows and slopes (B, 2 H), NaN for the default: whatever they are, they hold.

        own: (B,) the slope m of a line under the claim's curve that takes the place of all rows, NaN where none does.
        """
        claim, layers = self.claim, self.network.layers
        weights = np.where(weights < SMALLEST, 0.0, weights)  # any weights do; these could vanish in a product
        total, size_of_total = weights @ claim.constants, weights @ np.abs(claim.constants)
        row = weights @ claim.rows
        size = weights @ np.abs(claim.rows).sum(axis=1)
        own = np.full(len(weights), np.nan) if own is None else own
        for b in np.flatnonzero(~np.isnan(own)):
            row[b], total[b] = claim.own_row(float(own[b]))
            size[b], size_of_total[b] = np.abs(row[b]).sum(), abs(total[b])
            weights[b] = 1.0  # it says something: a bound of exactly 0 is enough
        alpha, beta = row[:, :1] * claim.margin, row[:, 1:] * claim.margin
        error = self.eps * size_of_total + self._rounding(size[:, None] * np.abs(claim.margin), self.spans[-1].size)
        nowhere = np.zeros(len(weights), dtype=bool)
        first: list[Array] = []
        second: list[Array] = []
        given = [np.split(copy, np.cumsum(self.network.hidden)[:-1], axis=1) for copy in np.split(slopes, 2, axis=1)]
        for k in range(len(layers) - 2, -1, -1):
            above = layers[k + 1]
            total = total + alpha @ above.bias + beta @ above.bias
            p, q = alpha @ above.weight, beta @ above.weight
            alpha, beta, offset, none = _substituted(layers[k], self.spans[k], p, q, given[0][k], given[1][k])
            error = error + self._rounding(np.abs(p) + np.abs(q) + np.abs(alpha) + np.abs(beta), self.spans[k].size)
            total, nowhere = total + offset, nowhere | none
            first.insert(0, p)
            second.insert(0, q)
        total = total + np.einsum("nj,nj->n", alpha, self.a) + np.einsum("nj,nj->n", beta, self.a2)
        slope = (alpha + beta) @ layers[0].weight
        bound = total + self._least_input(slope) - error
        bound = np.where(np.isfinite(bound) & np.isfinite(error) & (weights >= 0).all(axis=1) & self.in_range, bound, -np.inf)
        proved = (bound > 0) | ((bound == 0) & (weights > 0).any(axis=1)) | (nowhere & self.in_range)
        return LeafBounds(
            bound=bound, error=error, proved=proved | self.empty | self.alike, first=tuple(first), second=tuple(second), slope=slope
        )

    def _least_input(self, slope: Array) -> Array:
        """(B,) the least of slope . (x - centre) over the inputs: numbers within their radius, one category of each block."""
        number = np.ones(slope.shape[1], dtype=bool)
        least = np.zeros(len(slope))
        for block in self.blocks:
            number[block] = False
            low, high, part = self.low[:, block], self.high[:, block], slope[:, block]
            least += np.where(high > 0, part, np.inf).min(axis=1) - np.einsum("nj,nj->n", part, (low + high) / 2)
        return np.asarray(least - np.einsum("nj,nj->n", np.abs(slope[:, number]), self.radius[:, number]))


def _substituted(
    layer: Layer, span: Span, p: Array, q: Array, given: Array, given2: Array
) -> tuple[Array, Array, Array, Booleans]:
    """alpha, beta (B, m), c (B,) with  p.y + q.y' >= alpha.a + beta.a' + c  over each region; (B,) which have no (a, a')."""
    leak, leak2 = layer.slope * p, layer.slope * q
    p, q = (1 - layer.slope) * p, (1 - layer.slope) * q
    slope = np.where(np.isnan(given), _default(p, span.low, span.high), given - leak)
    slope2 = np.where(np.isnan(given2), _default(q, span.low2, span.high2), given2 - leak2)
    used = np.nonzero((p != 0) | (q != 0) | (slope != 0) | (slope2 != 0))
    ends = (span.low, span.high, span.low2, span.high2, span.d_low, span.d_high)
    least, nowhere = np.zeros(p.shape), np.zeros(p.shape, dtype=bool)
    least[used], nowhere[used] = _least(p[used], q[used], slope[used], slope2[used], *(end[used] for end in ends))
    return leak + slope, leak2 + slope2, np.asarray(least.sum(axis=1)), np.asarray(nowhere.any(axis=1))


def _default(p: Array, low: Array, high: Array) -> Array:
    """The slope of a lone neuron without a multiplier: exact where it is stable, else the floor of smaller area or the ceiling."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ceiling = high / (high - low)
    unstable = np.where(p >= 0, high > -low, ceiling)
    return p * np.where(low >= 0, 1.0, np.where(high <= 0, 0.0, unstable))


def _least(
    p: Array, q: Array, slope: Array, slope2: Array, low: Array, high: Array, low2: Array, high2: Array, d_low: Array, d_high: Array
) -> tuple[Array, Booleans]:
    """(N,) the least of  p max(t, 0) + q max(t', 0) - slope t - slope2 t'  over t, t', t' - t in their intervals, and where there
    are surely none. Axes of the arrays below: the four sign patterns, the corners, N."""
    left, right = np.stack([low, np.maximum(low, 0)]), np.stack([np.minimum(high, 0), high])
    left2, right2 = np.stack([low2, np.maximum(low2, 0)]), np.stack([np.minimum(high2, 0), high2])
    left, right = left[[0, 0, 1, 1]], right[[0, 0, 1, 1]]
    left2, right2 = left2[[0, 1, 0, 1]], right2[[0, 1, 0, 1]]
    start = np.maximum(left, np.nextafter(left2 - d_high, -np.inf))
    end = np.minimum(right, np.nextafter(right2 - d_low, np.inf))
    empty = (left > right) | (left2 > right2) | (start > end)
    t = np.stack([start, end, np.clip(left2 - d_low, start, end), np.clip(right2 - d_high, start, end)], axis=1)
    floor = np.maximum(left2[:, None], t[:, :3] + d_low)
    roof = np.minimum(right2[:, None], t[:, [0, 1, 3]] + d_high)
    t, t2 = t[:, [0, 1, 2, 0, 1, 3]], np.concatenate([floor, roof], axis=1)
    value = p * np.maximum(t, 0) + q * np.maximum(t2, 0) - slope * t - slope2 * t2
    nowhere = empty.all(axis=0)
    return np.where(nowhere, 0.0, np.where(empty, np.inf, value.min(axis=1)).min(axis=0)), nowhere
