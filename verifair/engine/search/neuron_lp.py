"""What neuron branching asks of a region, a raw box with some signs of pre-activations fixed: its LP, what the duals prove, where
to split. Two searches use it: `phases` decides one goal, `gap_phases` closes in on the largest gap.

The LP (`phase_lp`) starts from its parent's basis. Its duals go to the checker's own kernel (`check_phase_bounds`), and
only what that proves counts. The next split is at the neuron whose relaxation costs most, or at an input where the LP's point is no
legal row or all neurons are exact.
Sound? `proved` and `bound` are the kernel's.   Complete? Splitting ends at single rows where all variables are whole.
Reference: Bunel et al., Branch and Bound for Piecewise Linear Neural Network Verification (JMLR 2020), which splits either kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from encoders.network import Array, Network
from encoders.problem import Domain
from encoders.programs.phase_lp import Intervals, PhaseLP, PhaseRegion
from solvers.highs import HotStart
from solvers.outcome import Outcome
from verifair.checker.kernel.phases import LeafBounds, PhaseBounds, PhaseClaim, holds_at, vacuous
from verifair.checker.tree import Regions

NEAR = 1e-6
"""LP values down to -NEAR (relative to the rows' size) are worth asking the kernel about; gaps below it count as none."""
FEW = 6
"""Boxes of up to 2^FEW points are split by inputs alone."""
ROUNDINGS = 32
"""Random roundings of an LP's point that are tried as witnesses."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RelaxedRegion:
    """What is known of a region.

    proved: by the kernel.   plain: without multipliers (no legal row in it, one row, no point, equal copies).
    value: the LP's minimum, -inf where it has none; raw: (V,) its point, not rounded, or None.
    weights (R,), slopes (2 H,): the multipliers;  bound: what they prove of the rows' combination, error: the rounding in it.
    feature, cut: where to split next, as in `PhaseTree`; -1: nowhere.   basis: to start the halves' LPs from.
    """

    proved: bool
    plain: bool
    value: float
    raw: Array | None
    weights: Array
    slopes: Array
    bound: float
    error: float
    feature: int
    cut: float
    basis: Any


class RegionRelaxation:
    """The regions of one claim. The LP has one shape, that of the first regions asked about: they have to hold all others."""

    def __init__(self, network: Network, domain: Domain, claim: PhaseClaim) -> None:
        self.network, self.domain, self.claim = network, domain, claim
        self.simplex, self.random = HotStart(), np.random.default_rng(0)
        self._root: PhaseRegion | None = None
        self._lp: PhaseLP | None = None
        # (2 H,) how much a neuron feeds into the next layer at most.
        self._reach = np.tile(np.concatenate([np.zeros(0), *(np.abs(one.weight).sum(axis=0) for one in network.layers[1:])]), 2)

    def aim(self, claim: PhaseClaim) -> None:
        """Another claim about the same box, with as many rows: bases stay good."""
        self.claim = claim
        self._lp = None

    def solve(self, regions: Regions, basis: Any, seconds: float) -> list[RelaxedRegion]:
        """Return what is known of B regions; basis: of their parent's LP.   seconds: for each LP."""
        bounds = PhaseBounds(self.network, self.domain, self.claim, regions)
        point = bounds.point
        plain = vacuous(self.domain, self.claim, regions) | ((bounds.empty | bounds.alike) & ~point)
        for k in np.flatnonzero(point & ~plain):
            plain[k] = holds_at(self.network, self.domain, self.claim, regions.lower[k])
        solved = {b: self._run(bounds, b, basis, seconds) for b in np.flatnonzero(~plain & ~point).tolist()}
        weights = np.zeros((len(regions), len(self.claim.rows)))
        slopes = np.full(regions.active.shape, np.nan)
        for b, (outcome, _) in solved.items():
            weights[b], slopes[b] = self._multipliers(outcome)
        leaf = bounds.lagrange(weights, slopes)
        proved = plain | (~point & leaf.proved & (leaf.bound >= leaf.error))  # room for summing in another order
        out = []
        for b in range(len(regions)):
            values, own = (solved[b][0].values, solved[b][1]) if b in solved else (None, None)
            region, raw = regions.take(slice(b, b + 1)), regions.lower[b] if point[b] else None
            if values is not None:
                raw = self._raw(bounds, b, region, values)
            value = -np.inf if values is None or self._lp is None else float(values[self._lp.t])
            feature, cut = (-1, 0.0) if proved[b] or point[b] else self._split(region, leaf, b, values, raw)
            one = RelaxedRegion(
                proved=bool(proved[b]), plain=bool(plain[b]), value=value, raw=raw, weights=weights[b],
                slopes=slopes[b], bound=float(leaf.bound[b]), error=float(leaf.error[b]), feature=feature, cut=cut, basis=own,
            )
            out.append(one)
        return out

    def bounded(self, regions: Regions, weights: Array, slopes: Array) -> LeafBounds:
        """Return what multipliers, (B, R) and (B, 2 H), prove of regions."""
        return PhaseBounds(self.network, self.domain, self.claim, regions).lagrange(weights, slopes)

    def rows_near(self, regions: Regions, raw: Array) -> Array:
        """Return raw rows (N, V) of the box of regions (B = 1) around a point: rounded, its neighbours, and rounded at random."""
        lower, upper, whole = regions.lower[0], regions.upper[0], self.domain.integer
        rounded = np.where(whole, np.rint(raw), raw)
        moving = np.eye(len(raw))[(lower < upper) & whole]
        random = np.where(whole, np.floor(raw + self.random.random((ROUNDINGS, len(raw)))), raw)
        rows = np.concatenate([rounded[None], rounded + moving, rounded - moving, random])
        return np.asarray(np.clip(rows, lower, upper))

    def _run(self, bounds: PhaseBounds, b: int, basis: Any, seconds: float) -> tuple[Outcome, Any]:
        """Return the LP of region b, and its basis."""
        names = Intervals.__dataclass_fields__
        layers = [Intervals(**{name: getattr(span, name)[b] for name in names}) for span in bounds.spans[:-1]]
        region = PhaseRegion(low=bounds.low[b], high=bounds.high[b], low2=bounds.low2[b], layers=layers)
        if self._root is None:
            self._root = region
        if self._lp is None:
            goal = self.claim.margin, self.claim.rows, self.claim.constants
            self._lp = PhaseLP.of(self.network, self.domain, self._root, *goal)
        program = self._lp.program(region)
        iterations = 1000 + 10 * (program.columns + len(program.row_lower))
        return self.simplex.solve(program, seconds=seconds, iterations=iterations, basis=basis)

    def _multipliers(self, outcome: Outcome) -> tuple[Array, Array]:
        """Return weights (R,) and slopes (2 H,) from the duals, or from a ray where the LP is infeasible."""
        assert self._lp is not None
        duals = outcome.duals if outcome.duals is not None else outcome.ray
        if duals is None or not np.isfinite(duals).all():
            return np.zeros(len(self.claim.rows)), np.full(2 * sum(self.network.hidden), np.nan)
        weights, slopes = self._lp.slopes(duals)
        if outcome.duals is not None:
            return weights, slopes
        return np.zeros_like(weights), slopes / max(float(np.nanmax(np.abs(slopes), initial=0.0)), 1e-300)

    def _raw(self, bounds: PhaseBounds, b: int, region: Regions, values: Array) -> Array:
        """Return the raw point (V,), not rounded, that a solution stands for."""
        assert self._lp is not None
        x = bounds.low[b].copy()
        x[self._lp.moving] = self._lp.inputs(values)
        lower, upper, low, high = region.lower[0], region.upper[0], bounds.low[b], bounds.high[b]
        raw = lower.copy()
        for v in np.flatnonzero(lower < upper):
            at = int(self.domain.start[v])
            if self.domain.one_hot[v]:
                raw[v] = lower[v] + x[at + int(lower[v]) : at + int(upper[v]) + 1].argmax()
            elif high[at] > low[at]:
                raw[v] = lower[v] + (x[at] - low[at]) / (high[at] - low[at]) * (upper[v] - lower[v])
        return np.asarray(np.clip(raw, lower, upper))

    def _split(self, region: Regions, leaf: LeafBounds, b: int, values: Array | None, raw: Array | None) -> tuple[int, float]:
        """Return where to split: (feature, cut) as in `PhaseTree`, (-1, 0) where nothing can be."""
        if values is None:  # no point and no proof: numerical trouble, so halve the box and see
            return self._input(region, None, np.zeros(self.domain.columns))
        neuron = None if self._few(region) else self._neuron(leaf, b, region, values)
        return self._input(region, raw, leaf.slope[b]) if neuron is None else (-2 - neuron, 0.0)

    def _few(self, region: Regions) -> bool:
        """Return whether the box holds so few points that cutting it up beats splitting neurons: at ties nothing else decides."""
        width = (region.upper - region.lower)[0]
        return bool(np.where(self.domain.integer, np.log2(width + 1), np.where(width > 0, np.inf, 0.0)).sum() <= FEW)

    def _neuron(self, leaf: LeafBounds, b: int, region: Regions, values: Array) -> int | None:
        """Return the neuron whose relaxation costs the LP's point most: |coefficient| times gap. None when all are (nearly) exact.

        A gap without a coefficient can still matter: a lower neuron keeps an upper one on a side where it costs nothing.
        """
        assert self._lp is not None
        gaps = np.where(region.active[0] | region.inactive[0], 0.0, self._lp.gaps(values))
        if not len(gaps):
            return None
        missing = max(-float(values[self._lp.t]), 0.0)
        for weight in (np.concatenate([np.abs(one[b]) for one in (*leaf.first, *leaf.second)]), self._reach):
            cost = gaps * weight
            if cost.max() > NEAR * max(NEAR, missing):
                return int(cost.argmax())
            if missing <= NEAR:  # a tie, or all but one: no sign will lift it
                return None
        return None

    def _input(self, region: Regions, raw: Array | None, slope: Array) -> tuple[int, float]:
        """Return the input that matters most where the LP's point is no legal value, else in the middle."""
        lower, upper = region.lower[0], region.upper[0]
        whole, width = self.domain.integer, upper - lower
        can = self.domain.divisible(lower, upper)
        if not can.any():
            return -1, 0.0
        weight = np.array([np.abs(slope[s : s + w]).max() for s, w in zip(self.domain.start, self.domain.width, strict=True)])
        weight = weight / np.where(self.domain.one_hot, 1.0, self.domain.scale)
        cut = self.domain.middle(lower, upper)
        score = (weight + 1e-9 * weight.max() + 1e-300) * width
        if raw is not None:
            broken = np.where(whole & can, np.abs(raw - np.rint(raw)), 0.0)
            if (broken * weight).max() > 1e-6 * weight.max():
                score, cut = broken * weight, np.clip(np.floor(raw), lower, upper - 1)
        v = int(np.where(can, score, -np.inf).argmax())
        return v, float(cut[v])
