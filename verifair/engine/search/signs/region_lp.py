"""The relaxation of a region, a raw box with some signs of pre-activations fixed, for neuron branching: its LP, the bound that the
duals prove, and the next split. Two searches use it: `neurons` decides one goal, `gap.neurons` closes in on the largest gap.

The LP (`phase_lp`) starts from its parent's basis. Its duals are multipliers of rigorous bounds (`encoders.bounds.regions`), and
only these bounds count. The next split is at the neuron whose relaxation costs most, or at an input if the LP's point is no legal
row or all neurons are exact.
Sound? yes: `proved` and `bound` are rigorous, whatever the LP says.
Complete? Splitting ends at single rows where all variables are whole.
Reference: Bunel et al., Branch and Bound for Piecewise Linear Neural Network Verification (JMLR 2020), which splits either kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from encoders.arrays import Array, Booleans
from encoders.bounds.regions import RegionBound, RegionBounds
from encoders.bounds.relu import LayerBounds
from encoders.bounds.twin import Twin
from encoders.domain import Regions
from encoders.evaluate import exact_goals
from encoders.network import Network
from encoders.problem import TwinProblem
from encoders.programs.phase_lp import Intervals, PhaseLP, PhaseRegion
from solvers.highs import HotStart
from solvers.outcome import Outcome

NEAR = 1e-6
"""LP values down to -NEAR (relative to the rows' size) may still be proved; smaller gaps of neurons count as 0."""
FEW = 6
"""Boxes of up to 2^FEW points are split by inputs alone."""
ROUNDINGS = 32
"""Random roundings of an LP's point that are tried as witnesses."""


def seconds_a_region(network: Network) -> float:
    """Return an estimate of the seconds for one region: its bounds go back from every neuron through all the weights below it."""
    below = np.cumsum([layer.weight.size for layer in network.layers])
    return 2e-9 * float(sum(layer.weight.shape[0] * size for layer, size in zip(network.layers, below, strict=True)))


@dataclass(frozen=True, kw_only=True, eq=False)
class RelaxedRegion:
    """Results of the relaxation of a region.

    proved: by rigorous bounds.   plain: proved without multipliers (no legal row in it, one row, no point, equal copies).
    nobody: it holds no legal row, or no point.
    value: the LP's minimum, -inf where it has none; raw: (V,) its point, not rounded, or None.
    weights (R,), slopes (2 H,): the multipliers;  bound: of the rows' combination by these, error: the rounding allowed for in it.
    feature, cut: where to split next, as in `Tree`; -1: nowhere.   basis: to start the halves' LPs from.
    """

    proved: bool
    plain: bool
    nobody: bool
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
    """Relaxes regions of a problem of one question and one goal. All LPs have the shape of the first regions' one, so these have to
    contain all others."""

    def __init__(self, problem: TwinProblem) -> None:
        self.network, self.domain = problem.network.layered("neuron branching"), problem.domain
        self.simplex, self.random = HotStart(), np.random.default_rng(0)
        self._root: PhaseRegion | None = None
        # (2 H,) the sum of a neuron's absolute weights in the next layer.
        reach = [np.abs(layer.weight).sum(axis=0) for layer in self.network.layers[1:]]
        self._reach = np.tile(np.concatenate([np.zeros(0), *reach]), 2)
        columns = np.abs(self.network.layers[0].weight).sum(axis=0)
        # (V,) the effect of a unit of a variable on the first layer.
        self._moves = np.maximum.reduceat(columns, self.domain.start) / np.where(self.domain.one_hot, 1.0, self.domain.scale)
        self.aim(problem)

    @property
    def whole(self) -> Regions:
        """The question's box, with no sign fixed."""
        batch = self.problem.batch
        return Regions.whole(batch.lower[0], batch.upper[0], 2 * sum(self.network.hidden))

    def aim(self, problem: TwinProblem) -> None:
        """Replace the goal by another one of the same question with as many rows: LP bases stay valid."""
        self.problem, self.twin = problem, Twin.of(problem)
        self._lp: PhaseLP | None = None

    def solve(self, regions: Regions, basis: Any, seconds: float) -> list[RelaxedRegion]:
        """Return the relaxations of B regions; basis: of their parent's LP.   seconds: for each LP."""
        bounds = RegionBounds(self.twin, regions)
        point = bounds.point
        vacuous = self._vacuous(regions) | (bounds.empty & ~point)
        plain = vacuous | (bounds.alike & ~point)
        for k in np.flatnonzero(point & ~plain):
            plain[k] = exact_goals(self.problem, np.zeros(1, dtype=np.int64), regions.lower[k : k + 1])[0][0, 0]
        box = self._box(regions)
        solved = {b: self._run(bounds, box, b, basis, seconds) for b in np.flatnonzero(~plain & ~point).tolist()}
        weights = np.zeros((len(regions), len(self.problem.rows)))
        slopes = np.full(regions.active.shape, np.nan)
        for b, (outcome, _) in solved.items():
            weights[b], slopes[b] = self._multipliers(outcome)
        leaf = bounds.lagrange(weights, slopes)
        proved = plain | (~point & (leaf.bound > 0) & (leaf.bound >= leaf.error))  # room for summing in another order
        out = []
        for b in range(len(regions)):
            values, own_basis = (solved[b][0].values, solved[b][1]) if b in solved else (None, None)
            region, raw = regions.take(slice(b, b + 1)), regions.lower[b] if point[b] else None
            if values is not None:
                raw = self._raw(box, b, region, values)
            value = -np.inf if values is None or self._lp is None else float(values[self._lp.t])
            feature, cut = (-1, 0.0) if proved[b] or point[b] else self._split(region, leaf, b, values, raw)
            relaxed = RelaxedRegion(
                proved=bool(proved[b]), plain=bool(plain[b]), nobody=bool(vacuous[b]), value=value, raw=raw, weights=weights[b],
                slopes=slopes[b], bound=float(leaf.bound[b]), error=float(leaf.error[b]), feature=feature, cut=cut, basis=own_basis,
            )
            out.append(relaxed)
        return out

    def bounded(self, regions: Regions, weights: Array, slopes: Array) -> RegionBound:
        """Return the bounds of regions that the multipliers weights (B, R) and slopes (B, 2 H) prove."""
        return RegionBounds(self.twin, regions).lagrange(weights, slopes)

    def _vacuous(self, regions: Regions) -> Booleans:
        """Return (B,) True for regions whose box holds no legal row or partner: forbidden, or shifted out of its range."""
        domain, batch = self.domain, self.problem.batch
        low, high = batch.second(regions.lower), batch.second(regions.upper)
        outside = (~batch.protected & ((low > domain.upper) | (high < domain.lower))).any(axis=1)
        return np.asarray(domain.impossible(regions.lower, regions.upper) | domain.impossible(low, high) | outside)

    def _box(self, regions: Regions) -> tuple[Array, Array, Array]:
        """Return the network boxes of regions: x in [low, high] (B, n_0), and x' (B, n_0) at x = low."""
        low, high = self.domain.box(regions.lower, regions.upper)
        return low, high, self.domain.box(*(self.problem.batch.second(end) for end in (regions.lower, regions.upper)))[0]

    def rows_near(self, regions: Regions, raw: Array) -> Array:
        """Return raw rows (N, V) of the box of regions (B = 1) around a point: rounded, its neighbours, and rounded at random."""
        lower, upper, integral = regions.lower[0], regions.upper[0], self.domain.integer
        rounded = np.where(integral, np.rint(raw), raw)
        steps = np.eye(len(raw))[(lower < upper) & integral]
        random = np.where(integral, np.floor(raw + self.random.random((ROUNDINGS, len(raw)))), raw)
        rows = np.concatenate([rounded[None], rounded + steps, rounded - steps, random])
        return np.asarray(np.clip(rows, lower, upper))

    def _run(
        self, bounds: RegionBounds, box: tuple[Array, Array, Array], b: int, basis: Any, seconds: float
    ) -> tuple[Outcome, Any]:
        """Solve the LP of region b; return its outcome and its basis."""
        low, high, low2 = (end[b] for end in box)
        region = PhaseRegion(low=low, high=high, low2=low2, layers=[_intervals(layer, b) for layer in bounds.layers[:-1]])
        if self._root is None:
            self._root = region
        if self._lp is None:
            goal = self.problem.margin, self.problem.rows, self.problem.constants
            self._lp = PhaseLP.of(self.network, self.domain, self._root, *goal)
        program = self._lp.program(region)
        iterations = 1000 + 10 * (program.columns + len(program.row_lower))
        return self.simplex.solve(program, seconds=seconds, iterations=iterations, basis=basis)

    def _multipliers(self, outcome: Outcome) -> tuple[Array, Array]:
        """Return weights (R,) and slopes (2 H,) from the duals, or from a ray where the LP is infeasible."""
        assert self._lp is not None
        duals = outcome.duals if outcome.duals is not None else outcome.ray
        if duals is None or not np.isfinite(duals).all():
            return np.zeros(len(self.problem.rows)), np.full(2 * sum(self.network.hidden), np.nan)
        weights, slopes = self._lp.slopes(duals)
        if outcome.duals is not None:
            return weights, slopes
        return np.zeros_like(weights), slopes / max(float(np.nanmax(np.abs(slopes), initial=0.0)), 1e-300)

    def _raw(self, box: tuple[Array, Array, Array], b: int, region: Regions, values: Array) -> Array:
        """Return the raw point (V,), not rounded, of an LP's solution."""
        assert self._lp is not None
        low, high, _ = (end[b] for end in box)
        x = low.copy()
        x[self._lp.moving] = self._lp.inputs(values)
        lower, upper = region.lower[0], region.upper[0]
        raw = lower.copy()
        for v in np.flatnonzero(lower < upper):
            column = int(self.domain.start[v])
            if self.domain.one_hot[v]:
                raw[v] = lower[v] + x[column + int(lower[v]) : column + int(upper[v]) + 1].argmax()
            elif high[column] > low[column]:
                raw[v] = lower[v] + (x[column] - low[column]) / (high[column] - low[column]) * (upper[v] - lower[v])
        return np.asarray(np.clip(raw, lower, upper))

    def _split(self, region: Regions, leaf: RegionBound, b: int, values: Array | None, raw: Array | None) -> tuple[int, float]:
        """Return the next split: (feature, cut) as in `Tree`, (-1, 0) if there is none."""
        if values is None:  # no point and no proof: the LP failed numerically, so halve the box
            return self._input(region, None, np.zeros(self.domain.columns))
        neuron = None if self._few(region) else self._neuron(leaf, b, region, values)
        return self._input(region, raw, self._columns(leaf.slope[b])) if neuron is None else (-2 - neuron, 0.0)

    def _columns(self, slope: Array) -> Array:
        """Return slopes (n_0,) in all network columns, from those (d,) in the moving ones."""
        out = np.zeros(self.domain.columns)
        out[self.twin.moving] = slope
        return out

    def _few(self, region: Regions) -> bool:
        """Return True if the box holds so few points that cutting it beats splitting neurons: at ties only single points decide."""
        width = (region.upper - region.lower)[0]
        return bool(np.where(self.domain.integer, np.log2(width + 1), np.where(width > 0, np.inf, 0.0)).sum() <= FEW)

    def _neuron(self, leaf: RegionBound, b: int, region: Regions, values: Array) -> int | None:
        """Return the neuron whose relaxation costs most at the LP's point: |coefficient| times gap. None if all are (nearly) exact.

        A gap without a coefficient can still matter: an earlier neuron may keep a later one on a side where that costs nothing.
        """
        assert self._lp is not None
        gaps = np.where(region.active[0] | region.inactive[0], 0.0, self._lp.gaps(values))
        if not len(gaps):
            return None
        missing = max(-float(values[self._lp.t]), 0.0)
        for weight in (np.concatenate([np.abs(coefficients[b]) for coefficients in (*leaf.first, *leaf.second)]), self._reach):
            cost = gaps * weight
            if cost.max() > NEAR * max(NEAR, missing):
                return int(cost.argmax())
            if missing <= NEAR:  # a tie, or nearly: no sign will raise the bound
                return None
        return None

    def _input(self, region: Regions, raw: Array | None, slope: Array) -> tuple[int, float]:
        """Return the next split of an input: where the LP's point has no legal value, else the one with most effect in its
        middle."""
        lower, upper = region.lower[0], region.upper[0]
        integral, width = self.domain.integer, upper - lower
        divisible = self.domain.divisible(lower, upper)
        if not divisible.any():
            return -1, 0.0
        weight = np.array([np.abs(slope[s : s + w]).max() for s, w in zip(self.domain.start, self.domain.width, strict=True)])
        weight = weight / np.where(self.domain.one_hot, 1.0, self.domain.scale)
        cut = self.domain.middle(lower, upper)
        score = (weight + 1e-9 * weight.max() + 1e-300) * width
        if raw is not None:
            broken = np.where(integral & divisible, np.abs(raw - np.rint(raw)), 0.0)
            if broken.max() > NEAR:
                score, cut = broken * self._moves, np.clip(np.floor(raw), lower, upper - 1)
        v = int(np.where(divisible, score, -np.inf).argmax())
        return v, float(cut[v])


def _intervals(bounds: LayerBounds, b: int) -> Intervals:
    """Return the intervals of one layer in region b, the difference as D = a' - a."""
    return Intervals(
        low=bounds.lower[b], high=bounds.upper[b], low2=bounds.lower_prime[b], high2=bounds.upper_prime[b],
        d_low=-bounds.delta_upper[b], d_high=-bounds.delta_lower[b],
    )
