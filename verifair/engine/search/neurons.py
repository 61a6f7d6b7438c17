"""Neuron branching: one question decided by splitting signs of pre-activations (and inputs where that is what is missing).

A node is a raw box with some neurons of either copy fixed to a <= 0 or a >= 0. Each is relaxed to an LP (`phase_relaxation`)
and closed where the LP's multipliers are a proof; the LP's point, rounded to a legal row, is tried as a witness in exact
arithmetic; else the node is kept, and the one with the least bound is split next.
Sound? yes: PROVED rests on rigorous bounds, VIOLATED on exact evaluation.  Complete? yes where all variables are whole: splitting
ends at single rows. For real ones it ends where float64 does. Where a real-valued x would violate the goal and only
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
from encoders.problem import Regions, TwinProblem
from verifair.checker.tree import MAX_ROWS, PhaseTree
from verifair.engine.search.neuron_lp import RegionRelaxation, RelaxedRegion
from verifair.engine.search.trees import NeuronTree
from verifair.engine.verdict import Reason, Status


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
    """Decide goal g of question q. Raises ValueError for one of more than MAX_ROWS rows."""
    problem.network.require_piecewise_linear("neuron branching")
    one = replace(problem, batch=problem.batch.take([q]), goals=(problem.goals[g],))
    if len(one.rows) > MAX_ROWS:
        raise ValueError(f"the goal has {len(one.rows)} rows, neuron branching takes at most {MAX_ROWS}")
    with np.errstate(all="ignore"):  # overflow proves nothing
        return _NeuronSearch(one, time.monotonic() + seconds, max_nodes).run()


@dataclass(frozen=True, kw_only=True, eq=False)
class _Node:
    """A region (B = 1) that is not proved, its number in the tree, and what its relaxation says."""

    number: int
    region: Regions
    relaxed: RelaxedRegion


class _NeuronSearch:
    """The state of one run."""

    def __init__(self, problem: TwinProblem, deadline: float, max_nodes: int) -> None:
        self.problem = problem
        self.network, self.domain = problem.network, problem.domain
        self.deadline, self.max_nodes = deadline, max_nodes
        self.nodes, self.order = 0, itertools.count()
        self.relaxation = RegionRelaxation(problem)
        self.tree = NeuronTree(2 * sum(self.network.hidden))
        self.heap: list[tuple[float, int, _Node]] = []
        self.witness: tuple[Array, Array] | None = None

    def run(self) -> PhaseAnswer:
        self._look(self.relaxation.whole, [0], None)
        while self.heap and self.witness is None:
            if time.monotonic() > self.deadline:
                return self._unknown(Reason.TIME)
            if self.nodes >= self.max_nodes:
                return self._unknown(Reason.NODES)
            _, _, node = heapq.heappop(self.heap)
            feature, cut = node.relaxed.feature, node.relaxed.cut
            if feature == -1:
                return self._unknown(Reason.NUMERICAL)
            halves = node.region.halves(self.domain, np.array([feature]), np.array([cut]))
            self._look(halves, self.tree.halve(node.number, feature, cut), node.relaxed.basis)
        if self.witness is not None:
            raw, margins = self.witness
            return PhaseAnswer(status=Status.VIOLATED, reason=None, tree=None, witness=raw, margins=margins, nodes=self.nodes)
        tree = self.tree.tree()
        return PhaseAnswer(status=Status.PROVED, reason=None, tree=tree, witness=None, margins=None, nodes=self.nodes)

    def _unknown(self, reason: Reason) -> PhaseAnswer:
        return PhaseAnswer(status=Status.UNKNOWN, reason=reason, tree=None, witness=None, margins=None, nodes=self.nodes)

    def _look(self, regions: Regions, numbers: list[int], basis: Any) -> None:
        """Close regions, or find a witness, or keep them to be split, the least bound first."""
        self.nodes += len(regions)
        found = self.relaxation.solve(regions, basis, self.deadline - time.monotonic())
        for b, (number, relaxed) in enumerate(zip(numbers, found, strict=True)):
            region = regions.take(slice(b, b + 1))
            if relaxed.proved:
                self.tree.close(number, relaxed.weights, relaxed.slopes)
                continue
            if relaxed.raw is not None and self._try(self.relaxation.rows_near(region, relaxed.raw)):
                return
            heapq.heappush(self.heap, (relaxed.value, -next(self.order), _Node(number=number, region=region, relaxed=relaxed)))

    def _try(self, raw: Array) -> bool:
        """Return whether one of raw points (N, V), legal like its partner, is a witness: the likeliest in float64 is decided
        exactly."""
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
