"""Best-first branch-and-bound on the inputs for the largest gap: the boxes with the largest bounds are cut first.

Single boxes are bounded by lines  a - m b <= w  (`bounds`), in other processes if there are any. A direction of a box is closed
when its gap is at most the largest one found. The proof ends at the first nodes whose own lines prove the claimed gap, and names
their slopes.
Sound? yes, as the bounds are.  Complete? to the tolerance, given time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from encoders.arrays import Array, Integers
from encoders.domain import Batched
from encoders.problem import Goal, TwinProblem
from solvers import clock
from verifair.checker.certificates.tree import Tree
from verifair.engine.gap.bounds import LINEAR, GapBounds, GapBoxes
from verifair.engine.parallel import Deadline, Helpers, Shared
from verifair.engine.questions import no_gap
from verifair.engine.search.attack import Climb
from verifair.engine.search.boxes import Nodes, cuts, divide, impossible, legal_pairs, roots, rows_at, widest
from verifair.engine.search.standard import SECONDS
from verifair.engine.search.subdivision import Open, subdivide
from verifair.engine.search.trees import Trees

ROWS = np.array([[-1.0, 1.0], [-1.0, 0.0], [0.0, 1.0], [1.0, -1.0], [0.0, -1.0], [1.0, 0.0]])
"""Rows whose lower bounds are -D, -U, L' of the fall from x to x', then -D, -U, L' of the rise."""
TOP, MOST = 256, 2048
"""The least and the most boxes cut in a step for each process (fewer in the beginning)."""
EACH = 64
"""The fewest boxes that a process gets: fewer take less time to bound than to send."""
POLISH = 0.25
"""The most seconds of an ascent from a better point."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LeftBoxes(Batched):
    """Open boxes: ids (N,), bounds (N, 2) in both directions (at most `known` if closed), and slopes of lines (N, 2)."""

    ids: Integers
    bound: Array
    slope: Array


class InputSearch:
    """The mutable state of one run: all boxes by id, and the open ones with a bound for each direction.

    jobs: processes that bound the boxes of a step.
    """

    def __init__(
        self, problem: TwinProblem, logit: bool, tolerance: float, rng: np.random.Generator, jobs: int = 1
    ) -> None:
        problem = replace(problem, goals=tuple(Goal(rows=part, strict=False) for part in (ROWS[:3], ROWS[3:])))
        self.problem, self.logit, self.tolerance, self.deadline = problem, logit, tolerance, np.inf
        self.of_boxes = GapBounds(problem, logit)
        self.helpers, self.twin = Helpers(Shared(value=self.of_boxes.of), jobs), self.of_boxes.twin
        self.climb = Climb(self.twin, "logit" if logit else "gap", rng)
        self.start = roots(self.twin)
        trivial = np.full((len(self.start), 2), np.inf)
        self.trees = Trees(len(self.start), gap=trivial, slope=trivial.copy())  # proved by a line of the node's own, and its slope
        self.lower, self.upper = self.start.lower.copy(), self.start.upper.copy()
        self.question, self.along = self.start.question.copy(), np.zeros(len(self.start), dtype=np.int64)
        self.left: list[LeftBoxes] = []
        self.value, self.where = -np.inf, (0, 0)
        self.point = rows_at(self.twin, np.array([0]), self.start.lower[:1])[0]
        self.polished = -np.inf
        self.nodes = 0
        count = len(self.start)
        self.stuck = np.full((count, 2), -np.inf)  # the largest bounds of boxes that cannot be cut
        self.taken = np.zeros((count, 2), dtype=bool)  # directions that neuron branching has proved to be at most `known`

    @property
    def known(self) -> float:
        """The gap at or below which boxes are closed."""
        return max(self.value, 0.0) + self.tolerance

    @property
    def trivial(self) -> float:
        """A bound that holds for every gap."""
        return np.inf if self.logit else 1.0

    def bounds(self) -> Array:
        """Return (Q, 2) bounds on the gaps of all questions in both directions."""
        bounds = np.maximum(self.stuck, self.known)
        for part in self.left:
            np.maximum.at(bounds, self.question[part.ids], part.bound)
        return np.asarray(bounds)

    @property
    def finished(self) -> bool:
        """True if no box is left to cut."""
        return not any((self._priority(part) > self.known).any() for part in self.left)

    def _priority(self, part: LeftBoxes) -> Array:
        """Return (N,) the larger bound of the directions that neuron branching has not closed."""
        return np.asarray(np.where(self.taken[self.question[part.ids]], -np.inf, part.bound).max(axis=1))

    def attack(self, seconds: float) -> None:
        """Search for a good point by ascents; continues where it stopped."""
        self.climb.run(seconds)
        self._take()

    def polish(self) -> None:
        """Climb from the best point, once for each best point."""
        if self.value > self.polished:
            self.met(self.where[0], self.where[1], self.point)
            self.polished = self.value

    def met(self, question: int, direction: int, raw: Array) -> None:
        """Climb from a raw point (V,), and take the result if it is better."""
        seconds = min(POLISH, max(self.deadline - clock.now(), 0.0))
        self.climb.climb_from(np.array([question]), raw[None], np.array([direction]), seconds)
        self._take()

    def _take(self) -> None:
        best = self.climb.found(1)
        if len(best.value) and best.value[0] > self.value:
            self.value, self.point = float(best.value[0]), best.raw[0]
            self.where = int(best.question[0]), int(best.direction[0])

    def meet(self, nodes: Nodes, point: Array, gaps: Array) -> None:
        """Keep the best legal point of (N, v), one a box. gaps: (N,) by how much the output falls at each."""
        improved = np.flatnonzero(np.abs(gaps) > self.value)
        improved = improved[legal_pairs(self.twin, nodes.question[improved], point[improved])]
        if len(improved):
            best = improved[np.abs(gaps[improved]).argmax()]
            self.value, self.where = float(np.abs(gaps[best])), (int(nodes.question[best]), int(gaps[best] < 0))
            self.point = rows_at(self.twin, nodes.question[[best]], point[[best]])[0]

    def offer(self, question: int, raw: Array) -> None:
        """Climb from the best of some raw points (N, V) if it is better than the best so far."""
        second = self.problem.batch.take(np.full(len(raw), question)).second(raw)
        raw = raw[self.problem.domain.legal(raw) & self.problem.domain.legal(second)]
        if not len(raw):
            return
        gaps = self.of_boxes.falls(np.full(len(raw), question), raw[:, self.twin.variables])
        best = int(np.abs(gaps).argmax())
        if np.abs(gaps[best]) > self.value:
            self.met(question, int(gaps[best] < 0), raw[best])

    def begin(self, stop: Callable[[], bool]) -> None:
        """Bound the whole boxes; those that are left when it is time to stop get the trivial bound."""

        def unknown(part: Nodes) -> tuple[Array, Array]:
            return np.full((len(part), 2), self.trivial), np.ones((len(part), 2))

        boxes = Open[Nodes](LINEAR)
        boxes.add(self.start)
        subdivide(
            boxes, lambda part: self.bound(part, *unknown(part)), ended=stop, deadline=self.deadline,
            cost=SECONDS * self.of_boxes.progress.forward,
        )
        for part in boxes.batches:
            self.along[part.ids] = widest(self.twin, part, np.zeros_like(self.twin.local.box(part.lower, part.upper)[0]))
            self._list(part, *unknown(part))

    def step(self, largest: LeftBoxes) -> None:
        """Cut boxes in two and bound the halves."""
        ids = largest.ids
        alive = largest.bound > self.known
        nodes = Nodes(ids=ids, question=self.question[ids], lower=self.lower[ids], upper=self.upper[ids], open=alive)
        variable, cut = cuts(self.twin, nodes, self.along[ids])
        children = self.trees.split(ids, self.twin.variables[variable], cut)
        halves = divide(self.twin, nodes, variable, cut, children)
        self._remember(halves)
        self.bound(halves, *(np.concatenate([array, array]) for array in (largest.bound, largest.slope)))
        self.polish()

    def take(self, limit: int) -> LeftBoxes | None:
        """Take the boxes with the largest bounds off the list; None if the search is finished."""
        if self.finished:
            return None
        boxes = LeftBoxes.join(self.left)
        boxes = boxes.take(boxes.bound.max(axis=1) > self.known)
        priority = self._priority(boxes)
        order = np.flatnonzero(priority > self.known)
        jobs = self.helpers.steps()
        count = len(order) // 4 + 2 if len(order) < 4 * jobs * TOP else int(np.clip(len(order) // 20, jobs * TOP, jobs * MOST))
        count = min(count, limit)
        if len(order) > count:
            order = order[np.argpartition(-priority[order], count)[:count]]
        kept = np.ones(len(boxes.ids), dtype=bool)
        kept[order] = False
        self.left = [boxes.take(kept)] if kept.any() else []
        return boxes.take(order)

    def _remember(self, nodes: Nodes) -> None:
        """Make room for the new boxes, whose ids follow the largest one: arrays double when they are full."""
        needed = int(nodes.ids.max()) + 1
        if needed > len(self.question):
            size = max(needed, 2 * len(self.question))
            self.lower, self.upper = (np.resize(array, (size, array.shape[1])) for array in (self.lower, self.upper))
            self.question, self.along = np.resize(self.question, size), np.resize(self.along, size)
        self.lower[nodes.ids], self.upper[nodes.ids], self.question[nodes.ids] = nodes.lower, nodes.upper, nodes.question

    def bound(self, nodes: Nodes, bound: Array, slope: Array) -> None:
        """Bound boxes in their open directions, search for better points in them, and keep those that may hold one.

        bound, slope: (N, 2) of the boxes' parents: their bounds, and the slopes of their best lines.
        """
        self.nodes += len(nodes)
        empty = impossible(self.twin, nodes)
        self.trees.known["gap"][nodes.ids] = np.where(empty, -np.inf, np.inf)[:, None]  # not the parent's
        nodes, bound, slope = nodes.take(~empty), bound[~empty], slope[~empty]
        middle = self.twin.local.middle(nodes.lower, nodes.upper)
        self.meet(nodes, middle, self.of_boxes.falls(nodes.question, middle))
        wanted, left = ~self.taken[nodes.question], Deadline.after(self.deadline - clock.now())
        jobs = min(self.helpers.steps(), len(nodes) // EACH)
        size = LINEAR if jobs < 2 else -(-len(nodes) // jobs)
        parts = [slice(start, start + size) for start in range(0, len(nodes), size)]
        arguments = ((nodes.take(part), bound[part], slope[part], wanted[part], self.known, left) for part in parts)
        results = (self.of_boxes.of(*args) for args in arguments) if jobs < 2 else self.helpers.together(list(arguments))
        for part, boxes in zip(parts, results, strict=True):
            self._keep(nodes.take(part), boxes)

    def _keep(self, nodes: Nodes, boxes: GapBoxes) -> None:
        """Note the bounds of boxes, and take the best point found in them."""
        self.trees.known["gap"][nodes.ids], self.trees.known["slope"][nodes.ids] = boxes.gap, boxes.line
        self.along[nodes.ids] = boxes.along
        self.meet(nodes, boxes.point, boxes.fall)
        self._list(nodes, boxes.bound, boxes.slope)

    def _list(self, nodes: Nodes, bound: Array, slope: Array) -> None:
        """List the boxes that cannot be closed."""
        alive = nodes.open & (bound > self.known)
        bound = np.where(alive, bound, -np.inf)
        divisible = np.asarray(self.twin.local.divisible(nodes.lower, nodes.upper).any(axis=1))
        stuck, left = (np.flatnonzero(alive.any(axis=1) & mask) for mask in (~divisible, divisible))
        np.maximum.at(self.stuck, nodes.question[stuck], bound[stuck])
        if len(left):
            self.left.append(LeftBoxes(ids=nodes.ids[left], bound=bound[left], slope=slope[left]))

    def proofs(self, questions: Integers, direction: int, upper: float, claim: float) -> list[Tree]:
        """Return proofs, for questions whose `bounds` are at most `upper`, that no gap in a direction exceeds the claim, which is a
        little more than `upper`. Trees are cut off at the first nodes whose own lines prove `upper`."""
        gap, slope = (self.trees.known[name][: self.trees.size, direction] for name in ("gap", "slope"))
        leaf, line = gap <= upper, {}
        if not self.logit:
            index = np.array([2 * sum(self.problem.network.hidden) + len(no_gap(claim)[direction].rows)])
            line = {k: (index, slope[k : k + 1]) for k in np.flatnonzero(leaf & np.isfinite(gap)).tolist()}
        return self.trees.written(questions, leaf, line)
