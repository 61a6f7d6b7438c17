"""The checker of neuron branching: does a `PhaseTree` prove its claim?

The tree has to cover the claim's box: every cut lies within the box it cuts, both signs of a neuron have a subtree. A leaf is
proved by the bound of its multipliers; or because no row in its box is legal; or, where its box is one single network input,
by exact arithmetic. The search closes a leaf by bounds of its own (`encoders.bounds.regions`), other code for the same relaxation,
and leaves room for rounding; the two share the network's forward pass and the domain.

Sound? Yes: multipliers only ever choose among valid bounds, so a damaged tree is rejected or still a proof.
Complete? Of trees that the search emits, yes: it leaves room for a different order of summation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from encoders.domain import Domain, Regions
from encoders.exact.dyadic import Dyadic, exact
from encoders.network import Array, Booleans, Integers, Layer, Network, affine
from encoders.probability import STEEPEST, GapGoal, exceeds, line_of
from verifair.checker.kernel.bounds import LARGEST, Span, TwinBounds
from verifair.checker.kernel.curves import TIE
from verifair.checker.kernel.float32 import NOTHING_KNOWN, known, margin_errors
from verifair.checker.kernel.leaves import Task
from verifair.checker.tree import MAX_ROWS, PhaseTree, leaf_regions

LEAVES_PROVED = 64
"""Leaves re-proved at once."""


def phase_flaw(tree: PhaseTree, task: Task, network: Network, domain: Domain, *, float32: bool = False) -> str | None:
    """Return why a tree that also splits neurons does not prove a task, or None. float32: of every float32 evaluation as well."""
    if not network.piecewise_linear:
        return "neuron branching is about networks that are piecewise linear, and this one has smooth neurons"
    rows = np.array(task.asked.rows)
    claim = PhaseClaim(
        lower=task.lower, upper=task.upper, prime=task.prime, differs=task.differs, margin=task.margin, gap=task.asked.gap,
        offset=task.offset if task.offset.any() else None, rows=rows[:, :2], constants=rows[:, 2],
        strict=np.array(task.asked.strict),
    )
    return check_phases(network, domain, claim, tree, float32=float32)


def check_phases(network: Network, domain: Domain, claim: PhaseClaim, tree: PhaseTree, *, float32: bool = False) -> str | None:
    """Return why the tree does not prove the claim (of every float32 evaluation as well), or None when it does."""
    flaw = claim.flaw(network, domain) or tree.misfit
    if flaw is None and float32 and not known(network):
        flaw = NOTHING_KNOWN
    if flaw is not None:
        return flaw
    walked = leaf_regions(tree.feature, tree.cut, claim.whole(network), domain)
    if isinstance(walked, str):
        return walked
    nodes, regions = walked
    multipliers = _multipliers(tree, nodes, regions.active.shape[1], len(claim.rows))
    if isinstance(multipliers, str):
        return multipliers
    slopes, weights, own = multipliers
    with np.errstate(all="ignore"):  # whatever overflows or is NaN proves nothing
        for start in range(0, len(nodes), LEAVES_PROVED):
            part = slice(start, start + LEAVES_PROVED)
            proved = proved_leaves(
                network, domain, claim, regions.take(part), weights[part], slopes[part], own[part], float32=float32
            )
            for k in np.flatnonzero(~proved)[:1] + start:
                box = f"{regions.lower[k].tolist()} .. {regions.upper[k].tolist()}"
                signs = int(regions.active[k].sum() + regions.inactive[k].sum())
                return f"node {nodes[k]}, {box} with {signs} signs fixed: its multipliers prove nothing{' of float32' * float32}"
    return None


def proved_leaves(
    network: Network, domain: Domain, claim: PhaseClaim, regions: Regions, weights: Array, slopes: Array, own: Array, *,
    float32: bool = False,
) -> Booleans:
    """Return (B,) which regions the multipliers (or the region itself) prove, of every float32 evaluation as well if asked."""
    proved = vacuous(domain, claim, regions)
    left = np.flatnonzero(~proved)
    if len(left):
        bounds = PhaseBounds(network, domain, claim, regions.take(left))
        for k in np.flatnonzero(bounds.point):
            proved[left[k]] = not float32 and holds_at(network, domain, claim, regions.lower[left[k]])
        found: LeafBounds = bounds.lagrange(weights[left], slopes[left], own[left])
        enough = found.proved
        if float32:
            ends = np.minimum(bounds.low, bounds.low2), np.maximum(bounds.high, bounds.high2)
            error = margin_errors(network, np.tile(claim.margin, (len(left), 1)), *ends)
            used = np.where(weights[left] < SMALLEST, 0.0, weights[left]) @ np.abs(claim.rows).sum(axis=1)
            enough = (np.isnan(own[left]) & (found.bound > used * error)) | found.nowhere
        proved[left] |= enough & ~bounds.point
    return proved


def vacuous(domain: Domain, claim: PhaseClaim, regions: Regions) -> Booleans:
    """Return (B,) regions whose box holds no legal row, or no legal partner: forbidden, or shifted out of the declared range."""
    low, high = claim.second(regions.lower), claim.second(regions.upper)
    outside = (~claim.differs & ((low > domain.upper) | (high < domain.lower))).any(axis=1)
    return np.asarray(domain.impossible(regions.lower, regions.upper) | domain.impossible(low, high) | outside)


def holds_at(network: Network, domain: Domain, claim: PhaseClaim, raw: Array) -> bool:
    """Return whether the claim holds at one raw point (V,), exactly. False also where exact arithmetic does not reach."""
    try:
        pair = np.concatenate([domain.encode(raw[None]), domain.encode(claim.second(raw[None]))])
        margin = Layer(weight=claim.margin[None], bias=np.zeros(1), slope=np.ones(1))
        margins = affine(network.forward(exact(pair)), margin)
        both = Dyadic(limbs=margins.limbs.reshape(len(margins.limbs), 1, 2), exponent=margins.exponent)
        rows = Layer(weight=claim.rows, bias=claim.constants, slope=np.ones(len(claim.rows)))
        sign = affine(both, rows).sign
        if np.where(claim.strict, sign > 0, sign >= 0).any():
            return True
        if claim.gap is None:
            return False
        first, second = margins.to_fractions().ravel()
        larger, smaller = (second, first) if claim.gap.rise else (first, second)
        return not exceeds(larger, smaller, claim.gap.epsilon)
    except (OverflowError, ValueError):  # absurd sizes, or a raw value that is no float32 input
        return False


def _multipliers(tree: PhaseTree, nodes: Integers, neurons: int, rows: int) -> tuple[Array, Array, Array] | str:
    """Return slopes (L, 2 H), NaN where left out, weights (L, R), and slopes of own lines (L,), NaN for none; or what is wrong."""
    table = np.full((len(nodes), neurons + rows + 1), np.nan)
    table[:, neurons:-1] = 0.0
    if not np.isfinite(tree.value).all():
        return "a multiplier is not a finite number"
    if len(tree.index) and not (tree.index.min() >= 0 and tree.index.max() <= neurons + rows):
        return f"a multiplier belongs to none of the {neurons} neurons and {rows} rows, and is no line's slope"
    for k, node in enumerate(nodes.tolist()):
        part = slice(int(tree.start[node]), int(tree.start[node + 1]))
        table[k, tree.index[part]] = tree.value[part]
    if (table[:, neurons:] < 0).any():
        return "a row has a negative weight"
    return table[:, :neurons], table[:, neurons:-1], table[:, -1]


SMALLEST = 1e-200


@dataclass(frozen=True, kw_only=True, eq=False)
class PhaseClaim:
    """What a tree has to prove, as numbers: x in [lower, upper] (V,); x' = prime where `differs` (there lower = upper), else
    x + offset (None: x). g = margin . f; rows (R, 2), constants, strict (R,) as in `encoders.problem.Goal`.

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
    strict: Booleans
    gap: GapGoal | None

    def second(self, raw: Array) -> Array:
        """Return raw points x' (B, V) of raw points x."""
        return np.where(self.differs, self.prime, raw if self.offset is None else raw + self.offset)

    def whole(self, network: Network) -> Regions:
        """Return the claim's box, no sign fixed."""
        return Regions.whole(self.lower, self.upper, 2 * sum(network.hidden))

    def own_row(self, m: float) -> tuple[Array, float]:
        """Return the row (2,) and the constant of the line of slope m under the curve of a probability gap; NaN where there is
        none."""
        if self.gap is None or not 1 / STEEPEST <= m <= STEEPEST:
            return np.full(2, np.nan), np.nan
        return np.array([m, -1.0] if self.gap.rise else [-1.0, m]), line_of(self.gap.epsilon, m)

    def flaw(self, network: Network, domain: Domain) -> str | None:
        """Return why no tree can prove this claim here, or None."""
        if not len(self.lower) == len(self.upper) == len(self.prime) == len(self.differs) == domain.variables:
            return "the claim's box does not have the schema's features"
        fitting = self.rows.shape == (len(self.constants), 2) and len(self.strict) == len(self.rows) > 0
        if len(self.margin) != network.outputs or not fitting:
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
class LeafBounds:
    """bound: (B,) of the rows' combination, errors allowed for: error (B,).   proved: (B,).

    nowhere: (B,) regions that surely hold no point.
    """

    bound: Array
    error: Array
    proved: Booleans
    nowhere: Booleans


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

    def _closer(self, span: Span, k: int, loose: Booleans) -> Span:
        return self._clipped(super()._closer(span, k, loose), k)

    def _least_of(self, forms: list[tuple[Array, Array, Array]], box: Integers, layer: int) -> Sequence[Array]:
        """As in `TwinBounds`, all forms stacked: a region at a time, calls cost more than arithmetic."""
        p, q, constant = (np.concatenate(part) for part in zip(*forms, strict=True))
        least = self.lower(p, q, np.tile(box, len(forms)), layer=layer, constant=constant)[0]
        return list(least.reshape(len(forms), -1))

    def _clipped(self, span: Span, k: int) -> Span:
        if k + 1 == len(self.network.layers) or not (self._active[0][k].size or self._active[1][k].size):
            return span
        (on, on2), (off, off2) = ([copy[k] for copy in signs] for signs in (self._active, self._inactive))
        return replace(
            span, low=np.where(on, np.maximum(span.low, 0.0), span.low), high=np.where(off, np.minimum(span.high, 0.0), span.high),
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
        """(B,) where g' - g is exactly 0 and some row says no more than c (g - g') + constant >= 0 with a constant >= 0 (> 0 when
        the row is strict)."""
        last = self.spans[-1]
        same = ((self.claim.margin == 0) | ((last.d_low == 0) & (last.d_high == 0))).all(axis=1)
        enough = np.where(self.claim.strict, self.claim.constants > 0, self.claim.constants >= 0)
        follows = ((self.claim.rows.sum(axis=1) == 0) & enough).any()
        return np.asarray(same & follows & self.in_range)

    def lagrange(self, weights: Array, slopes: Array, own: Array | None = None) -> LeafBounds:
        """Return bounds from weights (B, R) of the rows and slopes (B, 2 H), NaN for the default: whatever they are, they hold.

        own: (B,) the slope m of a line under the claim's curve that takes the place of all rows, NaN where none does.
        """
        claim, layers = self.claim, self.network.layers
        weights = np.where(weights < SMALLEST, 0.0, weights)  # any weights do; these could vanish in a product
        total, size_of_total = weights @ claim.constants, weights @ np.abs(claim.constants)
        row = weights @ claim.rows
        size = weights @ np.abs(claim.rows).sum(axis=1)
        own = np.full(len(weights), np.nan) if own is None else own
        loose = (weights[:, ~claim.strict] > 0).any(axis=1) | ~np.isnan(own)  # a bound of exactly 0 is enough
        for b in np.flatnonzero(~np.isnan(own)):
            row[b], total[b] = claim.own_row(float(own[b]))
            size[b], size_of_total[b] = np.abs(row[b]).sum(), abs(total[b])
        alpha, beta = row[:, :1] * claim.margin, row[:, 1:] * claim.margin
        error = self.eps * size_of_total + self._rounding(size[:, None] * np.abs(claim.margin), self.spans[-1].size)
        nowhere = np.zeros(len(weights), dtype=bool)
        given = [np.split(copy, np.cumsum(self.network.hidden)[:-1], axis=1) for copy in np.split(slopes, 2, axis=1)]
        for k in range(len(layers) - 2, -1, -1):
            above = layers[k + 1]
            total = total + alpha @ above.bias + beta @ above.bias
            p, q = alpha @ above.weight, beta @ above.weight
            alpha, beta, offset, none = _substituted(layers[k], self.spans[k], p, q, given[0][k], given[1][k])
            error = error + self._rounding(np.abs(p) + np.abs(q) + np.abs(alpha) + np.abs(beta), self.spans[k].size)
            total, nowhere = total + offset, nowhere | none
        total = total + np.einsum("nj,nj->n", alpha, self.a) + np.einsum("nj,nj->n", beta, self.a2)
        bound = total + self._least_input((alpha + beta) @ layers[0].weight) - error
        bound = np.where(np.isfinite(bound) & np.isfinite(error) & (weights >= 0).all(axis=1) & self.in_range, bound, -np.inf)
        nowhere = (nowhere & self.in_range) | self.empty
        proved = (bound > 0) | ((bound == 0) & loose) | nowhere | self.alike
        return LeafBounds(bound=bound, error=error, proved=proved, nowhere=nowhere)

    def _least_input(self, slope: Array) -> Array:
        """Return (B,) the least of slope . (x - centre) over the inputs: numbers within their radius, one category of each
        block."""
        number = np.ones(slope.shape[1], dtype=bool)
        least = np.zeros(len(slope))
        for block in self.blocks:
            number[block] = False
            low, high, part = self.low[:, block], self.high[:, block], slope[:, block]
            least += np.where(high > 0, part, np.inf).min(axis=1) - np.einsum("nj,nj->n", part, (low + high) / 2)
        return np.asarray(least - np.einsum("nj,nj->n", np.abs(slope[:, number]), self.radius[:, number]))


def _substituted(layer: Layer, span: Span, p: Array, q: Array, given: Array, given2: Array) -> tuple[Array, Array, Array, Booleans]:
    """alpha, beta (B, m), c (B,) with  p.y + q.y' >= alpha.a + beta.a' + c  over each region; (B,) which have no (a, a')."""
    leak, leak2 = layer.slope * p, layer.slope * q
    p, q = (1 - layer.slope) * p, (1 - layer.slope) * q
    slope = np.where(np.isnan(given), _default(p, span.low, span.high), given - leak)
    slope2 = np.where(np.isnan(given2), _default(q, span.low2, span.high2), given2 - leak2)
    used = np.nonzero((p != 0) | (q != 0) | (slope != 0) | (slope2 != 0))
    least, nowhere = np.zeros(p.shape), np.zeros(p.shape, dtype=bool)
    least[used], nowhere[used] = _least(p[used], q[used], slope[used], slope2[used], [end[used] for end in span.ends])
    return leak + slope, leak2 + slope2, np.asarray(least.sum(axis=1)), np.asarray(nowhere.any(axis=1))


def _default(p: Array, low: Array, high: Array) -> Array:
    """Return the slope of a lone neuron without a multiplier: exact where it is stable, else the floor of smaller area or the
    ceiling."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ceiling = high / (high - low)
    unstable = np.where(p >= 0, high + low > TIE * (high - low), ceiling)
    return p * np.where(low >= 0, 1.0, np.where(high <= 0, 0.0, unstable))


def _least(p: Array, q: Array, slope: Array, slope2: Array, ends: Sequence[Array]) -> tuple[Array, Booleans]:
    """(N,) the least of  p max(t, 0) + q max(t', 0) - slope t - slope2 t'  over t, t', t' - t in their intervals, and where there
    are surely none. Axes of the arrays below: the four sign patterns, the corners, N."""
    low, high, low2, high2, d_low, d_high = ends
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
