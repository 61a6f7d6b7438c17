"""Neuron branching: one question decided by splitting signs of pre-activations (and inputs where that is what is missing).

A node is a raw box with some neurons of either copy fixed to a <= 0 or a >= 0. In each step the node with the least bound is
relaxed to an LP (`encoders.phase_lp`), started from its parent's basis. The LP's duals go to the checker's own kernel
(`check_phase_bounds`), and only where that proves the region is the node closed; the LP's point, rounded to a legal row, is
tried as a witness in exact arithmetic; else the node is split, at the neuron whose relaxation costs most, or at an input where the
point is no legal row or all neurons are exact.
Sound? yes: PROVED rests on the kernel's bounds alone, VIOLATED on exact evaluation.  Complete? yes where all variables are whole:
splitting ends at single rows. For real ones it ends where float64 does. Where a real-valued x would violate the goal and only
whole ones do not, signs cannot help, and it is as slow as input splitting.
References: Bunel et al., Branch and Bound for Piecewise Linear Neural Network Verification (JMLR 2020), which splits either kind.
"""

from __future__ import annotations

import heapq
import itertools
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from encoders.evaluate import exact_goals, pair, seems_unmet
from encoders.network import Array
from encoders.phase_lp import Intervals, PhaseLP
from encoders.problem import Integers, TwinProblem
from solvers.highs import HotStart
from solvers.outcome import Outcome
from verifair.verdict import Reason, Status
from verifair.verify.check_bounds import TwinBounds
from verifair.verify.check_phase_bounds import LeafBounds, PhaseBounds, PhaseClaim, Regions
from verifair.verify.check_phases import holds_at, vacuous
from verifair.verify.phase_growing import GrowingTree
from verifair.verify.phase_tree import PhaseTree

NEAR = 1e-6
"""LP values down to -NEAR (relative to the rows' size) are worth asking the kernel about; gaps below it count as none."""
FEW = 6
"""Boxes of up to 2^FEW points are split by inputs alone."""
ROUNDINGS = 32
"""Random roundings of an LP's point that are tried as witnesses."""
WIDE = 8
"""Whole values beyond which an input counts as wide."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PhaseAnswer:
    """status with its evidence: the tree (PROVED), the raw point x (V,) and its exact margins (2,) (VIOLATED), or the reason
    (UNKNOWN). nodes: LPs and other nodes looked at."""

    status: Status
    reason: Reason | None
    tree: PhaseTree | None
    witness: Array | None
    margins: Array | None
    nodes: int


def decide_by_phases(problem: TwinProblem, q: int, g: int, *, seconds: float, max_nodes: int) -> PhaseAnswer:
    """Decide goal g of question q. Raises ValueError for a strict goal, or a question that the kernel does not cover."""
    if problem.goals[g].strict:
        raise ValueError("neuron branching proves goals with >=; a strict goal needs input splitting")
    one = replace(problem, batch=problem.batch.take([q]), goals=(problem.goals[g],))
    claim = claim_of(one)
    flaw = claim.flaw(one.network, one.domain)
    if flaw is not None:
        raise ValueError(flaw)
    with np.errstate(all="ignore"):  # as in the checker: overflow proves nothing
        return _Search(one, claim, time.monotonic() + seconds, max_nodes).run()


def claim_of(problem: TwinProblem) -> PhaseClaim:
    """The only goal of the only question as numbers."""
    batch, goal = problem.batch, problem.goals[0]
    return PhaseClaim(
        lower=batch.lower[0],
        upper=batch.upper[0],
        prime=np.where(batch.protected, batch.prime[0], 0.0),
        differs=batch.protected,
        offset=None if batch.offset is None else batch.offset[0],
        margin=problem.margin,
        rows=goal.rows,
        constants=goal.constants,
        gap=goal.gap,
    )


def unstable_and_wide(problem: TwinProblem) -> tuple[Integers, Integers]:
    """(Q,) hidden neurons of both copies whose sign is open at the root, by linear bounds; (Q,) moving inputs with more than WIDE
    values left (real ones always have)."""
    batch, domain = problem.batch, problem.domain
    boxes = [domain.box(*ends) for ends in ((batch.lower, batch.upper), (batch.second(batch.lower), batch.second(batch.upper)))]
    unstable = np.zeros(len(batch), dtype=np.int64)
    with np.errstate(all="ignore"):
        for start in range(0, len(batch), 128):
            part = slice(start, start + 128)
            bounds = TwinBounds(problem.network, *(end[part] for ends in boxes for end in ends), close=True)
            for span, layer in zip(bounds.spans, problem.network.layers[:-1], strict=False):
                for low, high in ((span.low, span.high), (span.low2, span.high2)):
                    unstable[part] += ((low < 0) & (high > 0) & (layer.slope < 1)).sum(axis=1)
    width = batch.upper - batch.lower
    wide = np.where(domain.integer, width >= WIDE, width > 0).sum(axis=1)
    return unstable, wide


@dataclass(frozen=True, kw_only=True, eq=False)
class _Node:
    """A region (B = 1), its number in the tree, and the basis of its parent's LP."""

    number: int
    region: Regions
    basis: Any


class _Search:
    """The state of one run."""

    def __init__(self, problem: TwinProblem, claim: PhaseClaim, deadline: float, max_nodes: int) -> None:
        self.problem, self.claim = problem, claim
        self.network, self.domain = problem.network, problem.domain
        self.deadline, self.max_nodes = deadline, max_nodes
        self.nodes, self.order = 0, itertools.count()
        self.tree = GrowingTree(2 * sum(self.network.hidden))
        self.heap: list[tuple[float, int, _Node]] = []
        self.lp: PhaseLP | None = None
        # (2 H,) how much a neuron feeds into the next layer at most.
        self.reach = np.tile(np.concatenate([np.zeros(0), *(np.abs(one.weight).sum(axis=0) for one in self.network.layers[1:])]), 2)
        self.simplex = HotStart()
        self.random = np.random.default_rng(0)
        self.witness: tuple[Array, Array] | None = None

    def run(self) -> PhaseAnswer:
        self._push(-np.inf, Regions.whole(self.claim, self.network), self.tree.node(), None)
        while self.heap:
            if time.monotonic() > self.deadline:
                return self._unknown(Reason.TIME)
            if self.nodes >= self.max_nodes:
                return self._unknown(Reason.NODES)
            self.nodes += 1
            _, _, node = heapq.heappop(self.heap)
            if not self._step(node):
                return self._unknown(Reason.NUMERICAL)
            if self.witness is not None:
                raw, margins = self.witness
                return PhaseAnswer(
                    status=Status.VIOLATED, reason=None, tree=None, witness=raw, margins=margins, nodes=self.nodes
                )
        tree = self.tree.preorder()
        return PhaseAnswer(status=Status.PROVED, reason=None, tree=tree, witness=None, margins=None, nodes=self.nodes)

    def _unknown(self, reason: Reason) -> PhaseAnswer:
        return PhaseAnswer(status=Status.UNKNOWN, reason=reason, tree=None, witness=None, margins=None, nodes=self.nodes)

    def _push(self, bound: float, region: Regions, number: int, basis: Any) -> None:
        heapq.heappush(self.heap, (bound, -next(self.order), _Node(number=number, region=region, basis=basis)))

    def _step(self, node: _Node) -> bool:
        """Close or split one node, or find a witness; False when it can be neither closed nor split."""
        region = node.region
        if vacuous(self.domain, self.claim, region)[0]:
            return True
        bounds = PhaseBounds(self.network, self.domain, self.claim, region)
        if bounds.point[0]:
            return holds_at(self.network, self.domain, self.claim, region.lower[0]) or self._try(region.lower)
        if bounds.empty[0] or bounds.alike[0]:
            return True
        layers = [_intervals(span) for span in bounds.spans[:-1]]
        if self.lp is None:
            ends = (bounds.low[0], bounds.high[0], bounds.low2[0])
            goal = (self.claim.margin, self.claim.rows, self.claim.constants)
            self.lp = PhaseLP.of(self.network, self.domain, *ends, layers, *goal)
        program = self.lp.program(bounds.low[0], bounds.high[0], layers)
        seconds = self.deadline - time.monotonic()
        iterations = 1000 + 10 * (program.columns + len(program.row_lower))
        outcome, basis = self.simplex.solve(program, seconds=seconds, iterations=iterations, basis=node.basis)
        found = self._prove(bounds, outcome)
        if found is not None and found[0]:
            self.tree.close(node.number, found[2], found[3])
            return True
        if outcome.values is None:  # no point and no proof: numerical trouble, so halve the box and see
            return self._split_input(node, None, np.zeros(self.domain.columns), -np.inf, basis)
        raw = self._raw(region, self.lp.inputs(outcome.values), bounds)
        if self._try(self._near(raw, region)):
            return True
        value = float(outcome.values[self.lp.t])
        leaf = None if found is None else found[1]
        neuron = None if self._few(region) else self._neuron(leaf, region, outcome.values)
        if neuron is not None:
            self._split_neuron(node, neuron, value, basis)
            return True
        slope = np.zeros(self.domain.columns) if leaf is None else leaf.slope[0]
        return self._split_input(node, raw, slope, value, basis)

    def _prove(self, bounds: PhaseBounds, outcome: Outcome) -> tuple[bool, LeafBounds, Array, Array] | None:
        """Whether the kernel proves the region from the LP's duals or ray, with room for summing in another order; the
        kernel's bounds, and the multipliers (weights, slopes)."""
        assert self.lp is not None
        duals = outcome.duals if outcome.duals is not None else outcome.ray
        if duals is None or not np.isfinite(duals).all():
            return None
        weights, slopes = self.lp.slopes(duals)
        if outcome.duals is None:
            weights = np.zeros_like(weights)
            slopes = slopes / max(float(np.nanmax(np.abs(slopes), initial=0.0)), 1e-300)
        leaf = bounds.lagrange(weights[None], slopes[None])
        return bool(leaf.proved[0] and leaf.bound[0] >= leaf.error[0]), leaf, weights, slopes

    def _raw(self, region: Regions, columns: Array, bounds: PhaseBounds) -> Array:
        """The raw point (V,), not rounded, that network columns (d,) of the moving inputs stand for."""
        assert self.lp is not None
        x = bounds.low[0].copy()
        x[self.lp.moving] = columns
        lower, upper, low, high = region.lower[0], region.upper[0], bounds.low[0], bounds.high[0]
        raw = lower.copy()
        for v in np.flatnonzero(lower < upper):
            at = int(self.domain.start[v])
            if self.domain.one_hot[v]:
                raw[v] = lower[v] + x[at + int(lower[v]) : at + int(upper[v]) + 1].argmax()
            elif high[at] > low[at]:
                raw[v] = lower[v] + (x[at] - low[at]) / (high[at] - low[at]) * (upper[v] - lower[v])
        return np.asarray(np.clip(raw, lower, upper))

    def _near(self, raw: Array, region: Regions) -> Array:
        """Raw rows (N, V) of the box around a point: rounded, its neighbours along each variable, and rounded at random."""
        lower, upper, whole = region.lower[0], region.upper[0], self.domain.integer
        rounded = np.where(whole, np.rint(raw), raw)
        moving = np.eye(len(raw))[(lower < upper) & whole]
        random = np.where(whole, np.floor(raw + self.random.random((ROUNDINGS, len(raw)))), raw)
        rows = np.concatenate([rounded[None], rounded + moving, rounded - moving, random])
        return np.asarray(np.clip(rows, lower, upper))

    def _try(self, raw: Array) -> bool:
        """Whether one of raw points (N, V), legal like its partner, is a witness: the likeliest in float64 is decided exactly."""
        raw = raw[self.domain.legal(raw) & self.domain.legal(self.problem.batch.second(raw))]
        if not len(raw):
            return False
        copies = pair(self.problem, np.zeros(len(raw), dtype=np.int64), raw)
        margins = np.stack([self.network.forward(x) @ self.problem.margin for x in copies], axis=1)
        best = (margins @ self.problem.rows.T + self.problem.constants).max(axis=1)
        k = slice(int(best.argmin()), int(best.argmin()) + 1)
        if not seems_unmet(self.problem, margins[k], 1e-7 * np.abs(margins[k]).sum(axis=1) + 1e-9)[0, 0]:
            return False
        met, exact = exact_goals(self.problem, np.zeros(1, dtype=np.int64), raw[k])
        if not met[0, 0]:
            self.witness = raw[k][0], exact[0]
        return not met[0, 0]

    def _few(self, region: Regions) -> bool:
        """Whether the box holds so few points that cutting it up beats splitting neurons: at ties nothing else decides."""
        width = (region.upper - region.lower)[0]
        return bool(np.where(self.domain.integer, np.log2(width + 1), np.where(width > 0, np.inf, 0.0)).sum() <= FEW)

    def _neuron(self, leaf: LeafBounds | None, region: Regions, values: Array) -> int | None:
        """The neuron whose relaxation costs the LP's point most: |coefficient| times gap. None when all are (nearly) exact.

        A gap without a coefficient can still matter: a lower neuron keeps an upper one on a side where it costs nothing.
        """
        assert self.lp is not None
        gaps = np.where(region.active[0] | region.inactive[0], 0.0, self.lp.gaps(values))
        if leaf is None or not len(gaps):
            return int(gaps.argmax()) if len(gaps) and gaps.max() > NEAR else None
        missing = max(-float(values[self.lp.t]), 0.0)
        for weight in (np.concatenate([np.abs(one[0]) for one in (*leaf.first, *leaf.second)]), self.reach):
            cost = gaps * weight
            if cost.max() > NEAR * max(NEAR, missing):
                return int(cost.argmax())
            if missing <= NEAR:  # a tie, or all but one: no sign will lift it
                return None
        return None

    def _split_neuron(self, node: _Node, neuron: int, bound: float, basis: Any) -> None:
        first, second = self.tree.split(node.number, -2 - neuron, 0.0)
        for name, number in (("inactive", first), ("active", second)):
            signs = getattr(node.region, name).copy()
            signs[0, neuron] = True
            self._push(bound, replace(node.region, **{name: signs}), number, basis)

    def _split_input(self, node: _Node, raw: Array | None, slope: Array, bound: float, basis: Any) -> bool:
        """Cut the input that matters most where the LP's point is no legal value, else in the middle; False if none can be cut."""
        lower, upper = node.region.lower[0], node.region.upper[0]
        whole, width = self.domain.integer, upper - lower
        middle = lower + width / 2
        middle = np.where(whole, np.minimum(np.floor(middle), upper - 1), middle)
        can = np.where(whole, width >= 1, (middle > lower) & (middle < upper))
        if not can.any():
            return False
        weight = np.array([np.abs(slope[s : s + w]).max() for s, w in zip(self.domain.start, self.domain.width, strict=True)])
        weight = weight / np.where(self.domain.one_hot, 1.0, self.domain.scale)
        cut = middle
        score = (weight + 1e-9 * weight.max() + 1e-300) * width
        if raw is not None:
            broken = np.where(whole & can, np.abs(raw - np.rint(raw)), 0.0)
            if (broken * weight).max() > 1e-6 * weight.max():
                score, cut = broken * weight, np.clip(np.floor(raw), lower, upper - 1)
        v = int(np.where(can, score, -np.inf).argmax())
        first, second = self.tree.split(node.number, v, float(cut[v]))
        left, right = node.region.upper.copy(), node.region.lower.copy()
        left[0, v], right[0, v] = cut[v], cut[v] + 1 if whole[v] else cut[v]
        self._push(bound, replace(node.region, upper=left), first, basis)
        self._push(bound, replace(node.region, lower=right), second, basis)
        return True


def _intervals(span: Any) -> Intervals:
    return Intervals(**{name: getattr(span, name)[0] for name in Intervals.__dataclass_fields__})
