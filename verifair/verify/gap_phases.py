"""Neuron branching for the largest gap: proofs of "at most epsilon" for smaller and smaller epsilon, cell by cell.

Where few neurons are unstable, splitting signs beats cutting boxes by far, and best on the cells that a few dozen cuts of the
inputs leave. An attempt at an epsilon goes down the input search's tree from the root: what neuron branching does not prove within
a few nodes is replaced by its halves. The cells' proofs are put together into one `PhaseTree` of the whole box.
Sound? yes: every leaf was proved by the checker's kernel; points that speak against an epsilon go to the input search, which
evaluates them.   Complete? no: an attempt that takes too long is given up.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from encoders.network import Array
from encoders.problem import Goal, TwinProblem
from verifair.verdict import Reason
from verifair.verify.boxes import rows_at
from verifair.verify.check_phases import check_phases
from verifair.verify.gap_inputs import InputSearch
from verifair.verify.phase_tree import PhaseTree
from verifair.verify.phases import claim_of, decide_by_phases
from verifair.verify.questions import no_gap

Integers = npt.NDArray[np.int64]

PATIENCE = 150
"""Nodes of neuron branching on a cell that could be halved."""
STEP = 0.5, 0.3
"""Where an attempt aims between the best point and the bound: the first one, and those after a success."""
NEAR = 20
"""Tolerances from the best point within which an attempt aims at it."""
HOPE = 0.7
"""Share of the time left within which an attempt, going on as it did, must be through."""
ROOM = 1e-9
"""Of an epsilon below 1."""


@dataclass(kw_only=True, eq=False)
class _Attempt:
    """Cells (forest ids) of a question and direction that are proved at an epsilon, and those still to be with their shares of the
    whole; done: the share proved, spent: seconds."""

    aim: float
    epsilon: float
    pending: list[tuple[int, float]]
    proved: dict[int, PhaseTree] = field(default_factory=dict)
    done: float = 0.0
    spent: float = 0.0


class PhaseProofs:
    """What neuron branching has proved so far.

    bound: (Q, 2) gaps of questions and directions.   spare: a proof at epsilon counts as a bound of epsilon - spare, so that
    `bound` compares with that of the input search.   nodes: of neuron branching.
    """

    def __init__(self, search: InputSearch, spare: float) -> None:
        self.search, self.spare = search, spare
        self.bound = np.full((len(search.start), 2), np.inf)
        self.nodes = 0
        self._trees: dict[tuple[int, int], dict[float, PhaseTree]] = {}  # by the bounds they prove
        self._cells: set[tuple[int, int]] = set()  # (cell, direction) too hard as a whole
        self._hard: dict[tuple[int, int], float] = {}  # bounds that took too long
        self._begun: dict[tuple[int, int], _Attempt] = {}

    def attempt(self, patience: float, end: float, most: int) -> bool:
        """Try for some seconds to prove a smaller bound where the bound is largest.

        True when it gained something: a bound, a better point, or hope of a bound well before `end`. most: nodes in all.
        """
        bounds = np.minimum(self.search.bounds(), self.bound)
        q, d = (int(one) for one in np.unravel_index(bounds.argmax(), bounds.shape))
        value, started = self.search.value, time.monotonic()
        one = self._begun.get((q, d))
        if one is None or not self.search.known <= one.aim < bounds[q, d]:
            aim = self._aim(q, d, float(bounds[q, d]))
            one = _Attempt(aim=aim, epsilon=aim + self.spare, pending=[(q, 1.0)])
        tree = self._prove(q, d, one, min(end, started + patience), most)
        now = time.monotonic()
        one.spent += now - started
        self._begun.pop((q, d), None)
        if tree is not None:
            self.bound[q, d] = one.aim
            self._trees.setdefault((q, d), {})[one.aim] = tree
            self.search.taken[q, d] = one.aim <= self.search.known
            self._hard.pop((q, d), None)
            return True
        if self.search.value > value:
            return True
        if one.spent * (1 - one.done) < HOPE * one.done * (end - now):
            self._begun[q, d] = one
            return True
        if bounds[q, d] - one.aim > self.search.tolerance:
            self._hard[q, d] = one.aim
        else:
            self._hard.pop((q, d), None)  # from the bottom again, with more time
        return False

    def _aim(self, q: int, d: int, bound: float) -> float:
        """The next bound to try: one that is proved elsewhere (all proofs have to come to one bound in the end); what is known when
        that is near; else a good part of the way there, above what was too hard."""
        known, hard = self.search.known, self._hard.get((q, d), -np.inf)
        shared = [aim for aim in self.proved() if max(known, np.nextafter(hard, np.inf)) <= aim < bound]
        if shared:
            return max(shared)
        least = max(self.search.value, hard, 0.0)
        near = least > hard and bound - least <= NEAR * self.search.tolerance
        if near or not np.isfinite(bound):
            return known
        return max(least + STEP[(q, d) in self._trees] * (bound - least), known)

    def proved(self) -> list[float]:
        """Bounds that some question and direction has a proof of, ascending."""
        return sorted({aim for trees in self._trees.values() for aim in trees})

    def _prove(self, q: int, d: int, one: _Attempt, deadline: float, most: int) -> PhaseTree | None:
        """A proof that the gap of question q in direction d is at most one.epsilon; None when there is not enough time, or a point
        speaks against it (the input search has been told)."""
        problem, forest = self.search.problem, self.search.forest
        if not self.search.logit and one.epsilon >= 1 - ROOM:
            return None
        if claim_of(self._claim(q, d, one.epsilon, q)).flaw(problem.network, problem.domain) is not None:
            return None
        while one.pending:
            cell, share = one.pending[-1]
            left = int(forest.left[cell])
            halves = [(left + 1, share / 2), (left, share / 2)] if left >= 0 else []
            if halves and (cell, d) in self._cells:
                one.pending[-1:] = halves
                continue
            seconds, nodes = deadline - time.monotonic(), most - self.nodes
            if seconds <= 0 or nodes <= 0:
                return None
            claim = self._claim(q, d, one.epsilon, cell)
            answer = decide_by_phases(claim, 0, 0, seconds=seconds, max_nodes=min(nodes, PATIENCE) if halves else nodes)
            self.nodes += answer.nodes
            if answer.tree is not None:
                one.proved[cell] = answer.tree
                one.done += share
                one.pending.pop()
            elif answer.witness is not None:
                self.search.met(q, d, answer.witness)
                return None
            elif not halves:
                return None
            elif answer.nodes >= PATIENCE / 2:  # also when time is up: half of it has been spent in vain
                self._cells.add((cell, d))
            elif answer.reason is not Reason.TIME:
                return None
        tree = self._joined(q, one.proved)
        return tree if self._holds(q, d, one.epsilon, tree) else None

    def at(self, q: int, d: int, bound: float, deadline: float) -> PhaseTree | None:
        """The proof of exactly this bound: the one there is; that of a smaller one, whose multipliers often still do; or a new one,
        if there is time before the deadline."""
        trees, epsilon = self._trees.get((q, d), {}), bound + self.spare
        if bound in trees or not trees or min(trees) > bound:
            return trees.get(bound)
        nearest = trees[max(aim for aim in trees if aim < bound)]
        if self._holds(q, d, epsilon, nearest):
            return nearest
        return self._prove(q, d, _Attempt(aim=bound, epsilon=epsilon, pending=[(q, 1.0)]), deadline, 1 << 62)

    def _holds(self, q: int, d: int, epsilon: float, tree: PhaseTree) -> bool:
        """Whether the checker accepts a tree."""
        problem = self.search.problem
        return check_phases(problem.network, problem.domain, claim_of(self._claim(q, d, epsilon, q)), tree) is None

    def _claim(self, q: int, d: int, epsilon: float, cell: int) -> TwinProblem:
        """One question about one cell and one direction."""
        search, at = self.search, np.array([q])
        lower, upper = (rows_at(search.twin, at, ends[[cell]]) for ends in (search.lower, search.upper))
        batch = replace(search.problem.batch.take(at), lower=lower, upper=upper)
        if search.logit:
            goal = Goal(rows=np.array([[1.0, -1.0] if d else [-1.0, 1.0]]), constant=np.array([epsilon]), strict=False)
        else:
            goal = no_gap(epsilon)[d]
        return replace(search.problem, batch=batch, goals=(goal,))

    def _joined(self, q: int, proved: dict[int, PhaseTree]) -> PhaseTree:
        """One tree of the whole box: the input search's cuts above the cells' own trees."""
        forest = self.search.forest
        features: list[Integers] = []
        cuts: list[Array] = []
        sizes: list[Integers] = []
        leaves: list[PhaseTree] = []
        pending = [q]
        while pending:
            cell = pending.pop()
            if cell in proved:
                tree = proved[cell]
                leaves.append(tree)
                features.append(tree.feature)
                cuts.append(tree.cut)
                sizes.append(np.diff(tree.start))
            else:
                features.append(forest.variable[[cell]])
                cuts.append(forest.cut[[cell]])
                sizes.append(np.zeros(1, dtype=np.int64))
                pending += [int(forest.left[cell]) + 1, int(forest.left[cell])]
        return PhaseTree(
            feature=np.concatenate(features), cut=np.concatenate(cuts),
            start=np.cumsum(np.concatenate([np.zeros(1, dtype=np.int64), *sizes])),
            index=np.concatenate([tree.index for tree in leaves]), value=np.concatenate([tree.value for tree in leaves]),
        )  # fmt: skip
