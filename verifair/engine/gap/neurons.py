"""Neuron branching for the largest gap of one question in one direction: the regions with the largest bounds are split first.

A region's LP (`signs.region_lp`) is solved for the claim "the gap is at most the largest one found, and a little more". If its
multipliers do not prove that, they still prove  A a - B b <= w  on the region ((a, b) = (g, g') for a fall, (g', g) for a rise),
and the largest gap that this allows is the region's bound. So one tree serves every epsilon: at any time it proves the largest
bound of its leaves. At the end each leaf gets a line of its own under the curve of the claim reached by then.
Sound? yes: every leaf has a rigorous bound of w.   Complete? to the tolerance, given time, if all variables are whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit

from encoders.arrays import Array, Booleans
from encoders.domain import Regions
from encoders.problem import Goal, TwinProblem
from solvers import clock
from verifair.checker.certificates.tree import MAX_ROWS, Tree
from verifair.engine.gap.inputs import InputSearch
from verifair.engine.gap.lines import SLACK, STEEPEST, conjugate, gap_of, weights_of
from verifair.engine.questions import no_gap
from verifair.engine.search.signs.region_lp import RegionRelaxation, RelaxedRegion
from verifair.engine.search.subdivision import Objects, Open, subdivide
from verifair.engine.search.trees import NeuronTree

ROOM = 1e-9
"""The least distance of a claimed epsilon from 0 and 1."""
HALVINGS = 30
"""Halvings of the interval between a bound and 1, for the least claim."""
FIRST, AGAIN = 0.25, 2.0
"""Time that a region's LP may take beyond its turn: the first one this share of the time left, later ones so many times the longest
before. An LP that is cut short proves nothing, and splitting regions without bounds of their own makes no progress."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _BoundedRegion:
    """A region (B = 1) and its number in the tree. bound: on the gap (-inf: the region proves any claim).

    first, second, least: A a - B b <= -least over the region, the rounding (`error`) allowed for.   slopes: (2 H,) that prove it.
    feature, cut, basis: as in `RelaxedRegion`.
    """

    number: int
    region: Regions
    bound: float
    first: float
    second: float
    least: float
    error: float
    slopes: Array
    feature: int
    cut: float
    basis: Any


class PhaseSearch:
    """The growing tree of one question and direction (0 a fall, 1 a rise). nodes: regions bounded.

    spare: the tree proves bound + spare.
    """

    def __init__(self, search: InputSearch, question: int, direction: int, spare: float) -> None:
        self.search, self.question, self.direction, self.spare = search, question, direction, spare
        self.nodes = 0
        self.slow = False  # even the first LP took too long
        self._longest = 0.0  # seconds of the slowest regions
        self._problem = replace(search.problem, batch=search.problem.batch.take([question]))
        self._known = search.known
        self._open = Open[Objects](1, oldest=True)
        self._done: list[_BoundedRegion] = []  # bounded by the gap known then, or impossible to split
        self._stuck = -np.inf  # the largest bound of the latter
        claim = self._claim(self._known + spare)
        self.possible = claim is not None and len(claim.rows) <= MAX_ROWS
        if claim is not None and self.possible:
            self._relaxation = RegionRelaxation(claim)
            self._tree = NeuronTree(2 * sum(self._problem.network.hidden))

    @property
    def bound(self) -> float:
        """A bound: the gap is at most this plus `spare`; infinite before the first region has a bound."""
        if not self.nodes:
            return np.inf
        return max(self._open.top, self._stuck, self._known)  # closed regions have a gap of at most the one known then

    @property
    def finished(self) -> bool:
        """True if no region is left to split."""
        return not self.possible or (self.nodes > 0 and self._open.top <= self.search.known)

    def run(self, deadline: float, max_nodes: int) -> None:
        """Split regions until none may hold a larger gap than the known one, or time or nodes are up."""
        with np.errstate(all="ignore"):  # overflow proves nothing
            if not self.nodes and self.possible:
                self._look(self._relaxation.whole, [0], None, deadline)

            def ended() -> bool:
                return self.finished or self.nodes >= max_nodes or clock.now() >= deadline or not self._aim()

            subdivide(self._open, lambda part: self._split(part.items[0], deadline), ended=ended, deadline=deadline)

    def _split(self, leaf: _BoundedRegion, deadline: float) -> None:
        halves = leaf.region.halves(self._problem.domain, np.array([leaf.feature]), np.array([leaf.cut]))
        self._look(halves, self._tree.halve(leaf.number, leaf.feature, leaf.cut), leaf, deadline)

    def _aim(self) -> bool:
        """Aim the LPs at the gap known by now; return False if there is nothing left to prove."""
        if self.search.known > self._known:
            claim = self._claim(self.search.known + self.spare)
            if claim is None:
                self.possible = False  # the gap is nearly 1
                return False
            self._known = self.search.known
            self._relaxation.aim(claim)
        return True

    def _look(self, regions: Regions, numbers: list[int], parent: _BoundedRegion | None, deadline: float) -> None:
        """Bound regions by their multipliers, and offer the points of their LPs to the search."""
        self.nodes += len(regions)
        basis = None if parent is None else parent.basis
        started = clock.now()
        left = self.search.deadline - started
        shortest = FIRST * left if parent is None else min(AGAIN * self._longest, left)
        seconds = max(deadline - started, shortest, 0.05)
        relaxations = self._relaxation.solve(regions, basis, seconds)
        elapsed = clock.now() - started
        self._longest = max(self._longest, elapsed)
        for b, (number, relaxed) in enumerate(zip(numbers, relaxations, strict=True)):
            region = regions.take(slice(b, b + 1))
            leaf = self._leaf(number, region, relaxed)
            if parent is not None and leaf.bound > parent.bound:  # the LP failed, or was aimed at another epsilon
                leaf = min(leaf, self._leaf(number, region, self._inherited(relaxed, region, parent)), key=lambda part: part.bound)
            if parent is not None:  # with default slopes of its own, a region's lines may prove less than its parent's
                leaf = replace(leaf, bound=min(leaf.bound, parent.bound))
            if parent is None and leaf.bound >= self.search.trivial and elapsed >= seconds:
                self.slow, self.possible, self.nodes = True, False, 0
            elif leaf.bound <= self._known:
                self._done.append(replace(leaf, basis=None))
            elif leaf.feature == -1:
                self._stuck = max(self._stuck, leaf.bound)
                self._done.append(replace(leaf, basis=None))
            else:
                self._open.add(Objects.of([leaf]), leaf.bound)
            if relaxed.raw is not None and not relaxed.proved:
                self.search.offer(self.question, self._relaxation.rows_near(region, relaxed.raw))

    def _leaf(self, number: int, region: Regions, relaxed: RelaxedRegion) -> _BoundedRegion:
        claim = self._relaxation.problem
        b, a = (relaxed.weights @ claim.rows)[:: 1 if self.direction else -1]
        first, second, least = float(-a), float(b), relaxed.bound - float(relaxed.weights @ claim.constants)
        if relaxed.plain or (relaxed.proved and first == 0 == second):
            bound = -np.inf
        else:
            bound = self._known if relaxed.proved else self._gap(first, second, least)
        return _BoundedRegion(
            number=number, region=region, bound=bound, first=first, second=second, least=least, error=relaxed.error,
            slopes=relaxed.slopes, feature=relaxed.feature, cut=relaxed.cut, basis=relaxed.basis,
        )

    def _inherited(self, relaxed: RelaxedRegion, region: Regions, parent: _BoundedRegion) -> RelaxedRegion:
        """Return the relaxation with the parent's multipliers instead."""
        weights = weights_of(np.array([parent.first]), np.array([parent.second]), self._relaxation.problem.rows, self.direction)
        bounds = self._relaxation.bounded(region, weights, parent.slopes[None])
        bound, error = float(bounds.bound[0]), float(bounds.error[0])
        return replace(relaxed, proved=False, weights=weights[0], slopes=parent.slopes, bound=bound, error=error)

    def _gap(self, first: float, second: float, least: float) -> float:
        """Return the largest gap that A a - B b <= -least allows."""
        if self.search.logit:
            return max(-least / first, 0.0) * (1 + 1e-12) if first > 0 else np.inf
        if first > 0:
            return gap_of(-least / first, second / first, self._known)
        return float(expit(-least / second)) + SLACK if second > 0 else 1.0  # b is at least least / second

    def _claim(self, epsilon: float) -> TwinProblem | None:
        """Return the question with the goal that the gap is at most epsilon; None if epsilon is too near to 0 or 1."""
        if self.search.logit:
            row = np.array([[1.0, -1.0] if self.direction else [-1.0, 1.0]])
            goal = Goal(rows=row, constant=np.array([epsilon]), strict=False)
        elif ROOM <= epsilon <= 1 - ROOM:
            goal = no_gap(epsilon)[self.direction]
        else:
            return None
        return replace(self._problem, goals=(goal,))

    def least_claim(self, epsilon: float) -> float:
        """Return the least claim, epsilon or more, that all leaves prove; infinite if there is none."""
        if not self.nodes:
            return np.inf
        first, second, required = self._lines([leaf for leaf in self._leaves() if leaf.bound > -np.inf])

        def proved(value: float) -> bool:
            claim = self._claim(value)
            if claim is None:
                return False
            constant = weights_of(first, second, claim.rows, self.direction) @ claim.constants
            if claim.goals[0].gap is not None:
                has_line, slope = self._ratio(first, second)
                constant = np.where(has_line, np.maximum(constant, first * conjugate(value, slope)), constant)
            return bool((constant >= required).all())

        low, high = epsilon, max(2 * epsilon, self.bound + 1.0) if self.search.logit else 1 - ROOM
        if proved(low):
            return low
        if not proved(high):
            return np.inf
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if proved(middle) else (middle, high)
        return high

    def proof(self, epsilon: float) -> Tree | None:
        """Return a tree that proves "at most epsilon" (see `least_claim`), or None."""
        claim = self._claim(epsilon)
        if claim is None or not self.nodes:
            return None
        leaves = self._leaves()
        first, second, _ = self._lines(leaves)
        has_line, line = self._ratio(first, second) if claim.goals[0].gap is not None else (np.zeros(len(first), dtype=bool), first)
        rows = weights_of(first, second, claim.rows, self.direction)
        for k, leaf in enumerate(leaves):
            weights = np.append(0 * rows[k], line[k]) if has_line[k] else rows[k]
            self._tree.close(leaf.number, weights, leaf.slopes / leaf.first if has_line[k] else leaf.slopes)
        return self._tree.tree()

    def _ratio(self, first: Array, second: Array) -> tuple[Booleans, Array]:
        """Return (N,) True where A a - B b is a multiple of a line a - m b whose slope the checker takes, and its slope m."""
        slope = np.divide(second, first, out=np.zeros_like(first), where=first > 0)
        has_line = (slope >= 1 / STEEPEST) & (slope <= STEEPEST)
        return has_line, np.where(has_line, slope, 1.0)

    def _leaves(self) -> list[_BoundedRegion]:
        return [*self._done, *(leaf for batch in self._open.batches for leaf in batch.items)]

    def _lines(self, leaves: list[_BoundedRegion]) -> tuple[Array, Array, Array]:
        """Return A, B and the constants (N,) that their lines need, with room for summing in another order."""
        lines = [(leaf.first, leaf.second, leaf.error - leaf.least) for leaf in leaves]
        first, second, required = np.array(lines).reshape(-1, 3).T
        return first, second, required
