"""Neuron branching for the largest gap of one question in one direction: the regions with the largest bounds are split first.

A region's LP (`phase_relaxation`) is solved for the claim "the gap is at most what is known". Where its multipliers do not prove
that, they still prove some gap: they show  A a - B b <= w  over the region ((a, b) = (g, g') for a fall, (g', g) for a rise), and
the gap that this allows is the region's bound. So one tree serves every epsilon: at any time all of it proves the largest bound
of its leaves. At the end the leaves' A, B are written as weights of the rows that the claim then reached has.
Sound? yes: the checker's kernel bounds w, and a tree is given out only when the checker accepts it.   Complete? to the tolerance,
given time, where all variables are whole.
"""

from __future__ import annotations

import heapq
import itertools
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit

from encoders.network import Array
from encoders.problem import Goal
from verifair.verify.check_phase_bounds import PhaseClaim, Regions
from verifair.verify.check_phases import check_phases
from verifair.verify.gap_inputs import InputSearch
from verifair.verify.gap_lines import SLACK, gap_of, weights_of
from verifair.verify.phase_growing import GrowingTree
from verifair.verify.phase_relaxation import Relaxation, Relaxed
from verifair.verify.phase_tree import PhaseTree
from verifair.verify.phases import claim_of
from verifair.verify.questions import no_gap

ROOM = 1e-9
"""Between an epsilon that is claimed and 0 or 1."""
HALVINGS = 30
"""Of what is between a bound and 1, for the least claim."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Leaf:
    """A region (B = 1) and its number in the tree. bound: on the gap (-inf: the region proves any claim).

    first, second, least: A a - B b <= -least over the region, the rounding (`error`) allowed for.   slopes: (2 H,) that show it.
    feature, cut, basis: as in `Relaxed`.
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
    """The tree of one question and direction (0 a fall, 1 a rise) as it grows. nodes: regions looked at."""

    def __init__(self, search: InputSearch, question: int, direction: int) -> None:
        self.search, self.question, self.direction = search, question, direction
        self.nodes = 0
        self._problem = replace(search.problem, batch=search.problem.batch.take([question]))
        self._known, self._order = search.known, itertools.count()
        self._heap: list[tuple[float, int, _Leaf]] = []
        self._done: list[_Leaf] = []  # at most what was known, or not to be split
        self._stuck = -np.inf  # the largest bound of the latter
        claim = self._claim(self._known)
        self.possible = claim is not None and claim.flaw(self._problem.network, self._problem.domain) is None
        if claim is not None and self.possible:
            self._relaxation = Relaxation(self._problem.network, self._problem.domain, claim)
            self._tree = GrowingTree(2 * sum(self._problem.network.hidden))

    @property
    def bound(self) -> float:
        """On the gap; infinite before the first run."""
        if not self.nodes:
            return np.inf
        return max(self._largest, self._stuck, self.search.known)

    @property
    def finished(self) -> bool:
        """Nothing is left to split."""
        return not self.possible or (self.nodes > 0 and self._largest <= self.search.known)

    @property
    def _largest(self) -> float:
        return -self._heap[0][0] if self._heap else -np.inf

    def run(self, deadline: float, most: int) -> None:
        """Split regions until none is left that may hold more than is known, or time or nodes are up."""
        with np.errstate(all="ignore"):  # as in the checker: overflow proves nothing
            if not self.nodes and self.possible:
                whole = Regions.whole(self._relaxation.claim, self._problem.network)
                self._look(whole, [self._tree.node()], None, deadline)
            while not self.finished and self.nodes < most and time.monotonic() < deadline:
                self._step(deadline)

    def _step(self, deadline: float) -> None:
        """Split the region with the largest bound."""
        if self.search.known > self._known:
            claim = self._claim(self.search.known)
            if claim is None:
                self.possible = False  # the gap is as good as 1
                return
            self._known = self.search.known
            self._relaxation.aim(claim)
        _, _, leaf = heapq.heappop(self._heap)
        halves = self._relaxation.halves(leaf.region, leaf.feature, leaf.cut)
        self._look(halves, list(self._tree.split(leaf.number, leaf.feature, leaf.cut)), leaf, deadline)

    def _look(self, regions: Regions, numbers: list[int], parent: _Leaf | None, deadline: float) -> None:
        """Bound regions by what their multipliers prove, and offer the points of their LPs."""
        self.nodes += len(regions)
        basis = None if parent is None else parent.basis
        found = self._relaxation.solve(regions, basis, max(deadline - time.monotonic(), 1.0))
        for b, (number, relaxed) in enumerate(zip(numbers, found, strict=True)):
            region = regions.take(slice(b, b + 1))
            leaf = self._leaf(number, region, relaxed)
            if parent is not None and leaf.bound > parent.bound:  # the LP failed, or aimed at another epsilon
                leaf = min(leaf, self._leaf(number, region, self._inherited(relaxed, region, parent)), key=lambda one: one.bound)
            if leaf.bound <= self._known:
                self._done.append(leaf)
            elif leaf.feature == -1:
                self._stuck = max(self._stuck, leaf.bound)
                self._done.append(leaf)
            else:
                heapq.heappush(self._heap, (-leaf.bound, next(self._order), leaf))
            if relaxed.raw is not None and not relaxed.proved:
                self.search.offer(self.question, self._relaxation.rows_near(region, relaxed.raw))

    def _leaf(self, number: int, region: Regions, relaxed: Relaxed) -> _Leaf:
        claim = self._relaxation.claim
        b, a = (relaxed.weights @ claim.rows)[:: 1 if self.direction else -1]
        first, second, least = float(-a), float(b), relaxed.bound - float(relaxed.weights @ claim.constants)
        if relaxed.plain or (relaxed.proved and first == 0 == second):
            bound = -np.inf
        else:
            bound = self._known if relaxed.proved else self._gap(first, second, least)
        return _Leaf(
            number=number, region=region, bound=bound, first=first, second=second, least=least, error=relaxed.error,
            slopes=relaxed.slopes, feature=relaxed.feature, cut=relaxed.cut, basis=relaxed.basis,
        )  # fmt: skip

    def _inherited(self, relaxed: Relaxed, region: Regions, parent: _Leaf) -> Relaxed:
        """With the parent's multipliers instead."""
        weights = weights_of(np.array([parent.first]), np.array([parent.second]), self._relaxation.claim.rows, self.direction)
        found = self._relaxation.bounded(region, weights, parent.slopes[None])
        bound, error = float(found.bound[0]), float(found.error[0])
        return replace(relaxed, proved=False, weights=weights[0], slopes=parent.slopes, bound=bound, error=error)

    def _gap(self, first: float, second: float, least: float) -> float:
        """The gap that A a - B b <= -least allows."""
        if self.search.logit:
            return max(-least / first, 0.0) * (1 + 1e-12) if first > 0 else np.inf
        if first > 0:
            return gap_of(-least / first, second / first, self._known)
        return float(expit(-least / second)) + SLACK if second > 0 else 1.0  # b is at least so much

    def _claim(self, epsilon: float) -> PhaseClaim | None:
        """The claim that the gap is at most epsilon; None where there is nothing to claim."""
        if self.search.logit:
            row = np.array([[1.0, -1.0] if self.direction else [-1.0, 1.0]])
            goal = Goal(rows=row, constant=np.array([epsilon]), strict=False)
        elif ROOM <= epsilon <= 1 - ROOM:
            goal = no_gap(epsilon)[self.direction]
        else:
            return None
        return claim_of(replace(self._problem, goals=(goal,)))

    def least_claim(self, epsilon: float) -> float:
        """The least that all leaves prove, epsilon or more; infinite where that is nothing. A little more than `bound`: the rows of
        a claim are some lines under the curve, not all."""
        if not self.nodes:
            return np.inf
        leaves = [leaf for leaf in self._leaves() if leaf.bound > -np.inf]
        first, second = (np.array([getattr(leaf, name) for leaf in leaves]) for name in ("first", "second"))
        need = np.array([leaf.error - leaf.least for leaf in leaves])  # room for summing in another order

        def proved(at: float) -> bool:
            claim = self._claim(at)
            return claim is not None and bool(
                (weights_of(first, second, claim.rows, self.direction) @ claim.constants >= need).all()
            )

        low, high = epsilon, max(2 * epsilon, self.bound + 1.0) if self.search.logit else 1 - ROOM
        if proved(low):
            return low
        if not proved(high):
            return np.inf
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if proved(middle) else (middle, high)
        return high

    def proof(self, epsilon: float) -> PhaseTree | None:
        """A tree that the checker accepts as a proof of "at most epsilon", or None."""
        claim = self._claim(epsilon)
        if claim is None or not self.nodes:
            return None
        leaves = self._leaves()
        first, second = (np.array([getattr(leaf, name) for leaf in leaves]) for name in ("first", "second"))
        for leaf, weights in zip(leaves, weights_of(first, second, claim.rows, self.direction), strict=True):
            self._tree.close(leaf.number, weights, leaf.slopes)
        tree = self._tree.preorder()
        return tree if check_phases(self._problem.network, self._problem.domain, claim, tree) is None else None

    def _leaves(self) -> list[_Leaf]:
        return [*self._done, *(leaf for _, _, leaf in self._heap)]
