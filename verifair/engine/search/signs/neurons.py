"""Neuron branching: decide one question by splitting signs of pre-activations, and inputs where needed.

A node is a raw box with some neurons of either copy fixed to a <= 0 or a >= 0. Each is relaxed to an LP (`region_lp`)
and closed where the LP's multipliers are a proof; the LP's point, rounded to a legal row, is tried as a witness in exact
arithmetic; else the node is kept, and the one with the least bound is split next.
Sound? yes: PROVED rests on rigorous bounds, VIOLATED on exact evaluation.  Complete? yes where all variables are whole: splitting
ends at single rows. For real ones it ends where float64 does. Where a real-valued x would violate the goal and only
whole ones do not, signs cannot help, and it is as slow as input splitting.
References: Bunel et al., Branch and Bound for Piecewise Linear Neural Network Verification (JMLR 2020), which splits either kind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from encoders.arrays import Array
from encoders.bounds.float32 import Float32Error
from encoders.domain import Regions
from encoders.evaluate import exact_goals, pair, seems_unmet
from encoders.problem import TwinProblem
from solvers import clock
from verifair.checker.certificates.tree import MAX_ROWS, Tree
from verifair.engine.search.float32 import copies
from verifair.engine.search.signs.region_lp import RegionRelaxation, RelaxedRegion
from verifair.engine.search.signs.turns import Shrinking
from verifair.engine.search.subdivision import Objects, Open, subdivide
from verifair.engine.search.trees import NeuronTree
from verifair.engine.verdict import Reason, Status


@dataclass(frozen=True, kw_only=True, eq=False)
class PhaseAnswer:
    """status with its evidence: the tree (PROVED), the raw point x (V,) and its exact margins (2,) (VIOLATED), or the reason
    (UNKNOWN). nodes: regions examined, by an LP or without.   float32: True if all leaves hold for every float32 evaluation too."""

    status: Status
    reason: Reason | None
    tree: Tree | None
    witness: Array | None
    margins: Array | None
    nodes: int
    float32: bool = False


def decide_by_phases(problem: TwinProblem, q: int, g: int, *, seconds: float, max_nodes: int) -> PhaseAnswer:
    """Decide goal g of question q. Raises ValueError for one of more than MAX_ROWS rows."""
    return NeuronSearch.of(problem, q, g, max_nodes).run(seconds)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Node:
    """A region (B = 1) that is not proved, its number in the tree, and its relaxation."""

    number: int
    region: Regions
    relaxed: RelaxedRegion


class NeuronSearch:
    """The search of one question and goal, which can continue after it ran out of time or nodes.   shrinking: if given, it ends
    turns that make no progress (out of nodes)."""

    @classmethod
    def of(
        cls, problem: TwinProblem, q: int, g: int, max_nodes: int, shrinking: Shrinking | None = None
    ) -> NeuronSearch:
        """Return the search for goal g of question q. Raises ValueError for one of more than MAX_ROWS rows."""
        problem.network.require_piecewise_linear("neuron branching")
        single = replace(problem, batch=problem.batch.take([q]), goals=(problem.goals[g],))
        if len(single.rows) > MAX_ROWS:
            raise ValueError(f"the goal has {len(single.rows)} rows, neuron branching takes at most {MAX_ROWS}")
        return cls(single, max_nodes, shrinking)

    def __init__(self, problem: TwinProblem, max_nodes: int, shrinking: Shrinking | None) -> None:
        self.problem = problem
        self.network, self.domain = problem.network.layered("neuron branching"), problem.domain
        self.deadline, self.max_nodes = 0.0, max_nodes
        self.nodes, self.shrinking = 0, shrinking
        self.relaxation = RegionRelaxation(problem)
        self.tree = NeuronTree(2 * sum(self.network.hidden))
        self.open = Open[Objects](1)
        self.witness: tuple[Array, Array] | None = None
        self.error = Float32Error.of(self.network, problem.margin)
        self.float32 = self.error is not None
        self.reason: Reason | None = None

    @property
    def programs(self) -> int:
        """The number of LPs that the search will have solved after its next turn, or a few more."""
        return self.max_nodes if self.shrinking is None else self.shrinking.programs

    def run(self, seconds: float) -> PhaseAnswer:
        """Start the search, or continue it."""
        if self.reason is Reason.NUMERICAL:  # a node was lost
            return self._unknown(self.reason)
        self.deadline, self.reason = clock.now() + seconds, None
        with np.errstate(all="ignore"):  # overflow proves nothing
            if not self.nodes:
                self._look(self.relaxation.whole, [0], None)
            subdivide(self.open, self._split, ended=self._ended, deadline=self.deadline)
        if self.witness is not None:
            raw, margins = self.witness
            return PhaseAnswer(status=Status.VIOLATED, reason=None, tree=None, witness=raw, margins=margins, nodes=self.nodes)
        if self.reason is not None:
            return self._unknown(self.reason)
        if self.problem.float32 and not self.float32:
            return self._unknown(Reason.FLOAT32)
        return PhaseAnswer(
            status=Status.PROVED, reason=None, tree=self.tree.tree(), witness=None, margins=None, nodes=self.nodes,
            float32=self.float32,
        )

    def _unknown(self, reason: Reason) -> PhaseAnswer:
        return PhaseAnswer(status=Status.UNKNOWN, reason=reason, tree=None, witness=None, margins=None, nodes=self.nodes)

    def _ended(self) -> bool:
        if self.witness is None and self.reason is None and self.open.batches:
            if clock.now() > self.deadline:
                self.reason = Reason.TIME
            elif self.nodes >= self.max_nodes or self._too_slow():
                self.reason = Reason.NODES
        return self.witness is not None or self.reason is not None

    def _too_slow(self) -> bool:
        """Return True if this turn ends because it makes no progress."""
        if self.shrinking is None or self.nodes < self.shrinking.programs:
            return False
        numbers = [node.number for batch in self.open.batches for node in batch.items]
        return not self.shrinking.goes_on(float(self.tree.shares()[numbers].sum()))

    def _split(self, part: Objects) -> None:
        (node,) = part.items
        feature, cut = node.relaxed.feature, node.relaxed.cut
        if feature == -1:
            self.reason = Reason.NUMERICAL
            return
        halves = node.region.halves(self.domain, np.array([feature]), np.array([cut]))
        self._look(halves, self.tree.halve(node.number, feature, cut), node.relaxed.basis)

    def _look(self, regions: Regions, numbers: list[int], basis: Any) -> None:
        """Relax regions: close each one, or find a witness in it, or keep it to be split, the least bound first."""
        self.nodes += len(regions)
        relaxations = self.relaxation.solve(regions, basis, self.deadline - clock.now())
        for b, (number, relaxed) in enumerate(zip(numbers, relaxations, strict=True)):
            region = regions.take(slice(b, b + 1))
            if relaxed.proved:
                self.tree.close(number, relaxed.weights, relaxed.slopes)
                self.float32 = self.float32 and (relaxed.nobody or self._holds_in_float32(region, relaxed))
                continue
            if relaxed.raw is not None and self._try(self.relaxation.rows_near(region, relaxed.raw)):
                return
            self.open.add(Objects.of([_Node(number=number, region=region, relaxed=relaxed)]), -relaxed.value)

    def _holds_in_float32(self, region: Regions, relaxed: RelaxedRegion) -> bool:
        """Return True if the bound that proves a region exceeds the float32 error of the rows that it combines, on its box."""
        if self.error is None or relaxed.plain:  # a point, or equal copies: there is no bound
            return False
        low, high = copies(self.problem, np.zeros(1, dtype=np.int64), region.lower, region.upper)
        size = float(relaxed.weights @ np.abs(self.problem.rows).sum(axis=1))
        needed = size * self.error.within(low, high)[0]
        return bool(relaxed.bound - relaxed.error > (1 + 1e-6) * needed)  # room for summing in another order

    def _try(self, raw: Array) -> bool:
        """Return True if one of raw points (N, V), legal with its partner, is a witness: the likeliest one by float64 is decided
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
        holds, exact = exact_goals(self.problem, np.zeros(1, dtype=np.int64), raw[k])
        if not holds[0, 0]:
            self.witness = raw[k][0], exact[0]
        return not holds[0, 0]
