"""Batched branch-and-bound on the moving inputs: all questions of a batch at once, down to single points if need be.

A node is a box of one question with the goals still open there. In each step the newest nodes of all questions are evaluated
at their centres, bounded (intervals first, linear bounds for what stays open), evaluated at the corners that the linear bounds
point to, and split where the bounds' gap comes from. Witness candidates are confirmed in exact arithmetic before they count.
Sound? yes: PROVED rests on rigorous bounds of every leaf, VIOLATED on exact evaluation.
Complete? yes: inputs are float32 numbers, so splitting ends at single points, which exact evaluation decides.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import numpy.typing as npt

from encoders.bounds.difference import interval_goals, linear_goals
from encoders.bounds.interval import LayerBounds, interval_bounds
from encoders.bounds.twin import Twin
from encoders.evaluate import exact_goals, seems_unmet
from encoders.problem import TwinProblem
from verifair.verify.boxes import Nodes, anywhere, borders, centre, corner, divide, divisible, legal_pairs, roots, rows_at, widest
from verifair.verify.forest import Forest
from verifair.verify.slots import Chosen, Slots

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

OPEN, PROVED, VIOLATED = 0, 1, 2
CHUNK = 1024
"""Boxes a step: evaluated and bounded by intervals, which decide most of them ..."""
LINEAR = 128
"""... and boxes bounded linearly at a time: few enough for the cache, enough for BLAS."""
MAX_WIDE = 10
"""Real features of a box too small to be cut whose two ends are all tried: 1,024 corners."""
GUESSES = 4
"""Random points that every question is tried at before it is bounded."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Decision:
    """What was decided of Q questions with G goals each.

    status: (Q, G) OPEN, PROVED or VIOLATED.   lower: (Q, G) certified lower bound of the goal's best row over the box.
    upper: (Q, G) least value of the goal's best row met at any point.   witness: (Q, G, V) raw points x, NaN where none.
    margins: (Q, G, 2) g(x), g(x') at the witness.   nodes: (Q,) boxes bounded.   out_of: (Q,) '', 'time', 'nodes' or 'float'.
    """

    status: npt.NDArray[np.int8]
    lower: Array
    upper: Array
    witness: Array
    margins: Array
    nodes: Integers
    out_of: npt.NDArray[np.str_]
    forest: Forest


def decide(
    problem: TwinProblem,
    *,
    seconds: float = np.inf,
    max_nodes: int | None = None,
    group: Integers | None = None,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Decision:
    """Decide every goal of every question of a batch.

    seconds: wall clock for the whole batch.   max_nodes: boxes per question.   progress: told of newly finished questions.
    group: (Q,) questions of one number stand together: once one of them is violated the others are moot and left open.
    """
    search = _Search(problem, time.monotonic() + seconds, max_nodes, group)
    search.start(np.random.default_rng(seed))
    finished = 0
    while search.step():
        if progress is not None:
            now = int(search.finished().sum())
            progress(now - finished)
            finished = now
    return search.decision()


class _Search:
    """The state of one run: who is decided, what is still to be looked at."""

    def __init__(self, problem: TwinProblem, deadline: float, max_nodes: int | None, group: Integers | None) -> None:
        self.problem, self.twin = problem, Twin.of(problem)
        self.deadline, self.max_nodes = deadline, max_nodes
        count, goals = len(problem.batch), len(problem.goals)
        self.grouped = group is not None
        self.group = np.arange(count) if group is None else group
        self.refuted = np.zeros(int(self.group.max(initial=-1)) + 1, dtype=bool)
        self.slots = Slots.of(problem)
        self.status = np.zeros((count, goals), dtype=np.int8)
        self.pending = np.ones((count, goals), dtype=np.int64)  # open boxes left of each goal
        self.root_lower = np.full((count, goals), -np.inf)
        self.leaf_lower = np.full((count, goals), np.inf)
        self.upper = np.full((count, goals), np.inf)
        self.witness = np.full((count, goals, problem.domain.variables), np.nan)
        self.margins = np.full((count, goals, 2), np.nan)
        self.nodes = np.zeros(count, dtype=np.int64)
        self.out_of = np.full(count, "", dtype="<U5")
        self.forest = Forest(count, goals)
        self.stack: list[Nodes] = []
        # float64 evaluation errs by at most this much: points that close to a tie are worth an exact look as well.
        self.noise = 2 * self.twin.error[-1][:, 0]

    def start(self, rng: np.random.Generator) -> None:
        everything = roots(self.twin)
        guesses = GUESSES if time.monotonic() < self.deadline else 0
        for _ in range(guesses):  # a few random points each: cheap, and half of all questions about a whole domain end here
            alive = self._still_open(everything)
            for start in range(0, len(alive), CHUNK):
                part = alive.take(slice(start, start + CHUNK))
                self._look_at(part, anywhere(self.twin, part, rng))
        everything = self._still_open(everything)
        self.stack = [everything.take(slice(start, start + CHUNK)) for start in range(0, len(everything), CHUNK)][::-1]

    def finished(self) -> Booleans:
        """(Q,) questions that need no more work."""
        return np.asarray((self.status != OPEN).all(axis=1) | (self.out_of != "") | self.refuted[self.group])

    def step(self) -> bool:
        """Look at the next boxes; False when nothing is left."""
        nodes = self._next()
        if nodes is None:
            return False
        self.nodes += np.bincount(nodes.question, minlength=len(self.nodes))
        nodes = self._without_impossible(nodes)
        margins = self._look_at(nodes, centre(self.twin, nodes))
        nodes, kept = self._alive(nodes)
        if not len(nodes):
            return True
        low, high = self.twin.local.box(nodes.lower, nodes.upper)
        single = (low == high).all(axis=1)
        if single.any():
            self._decide_points(nodes.take(single))
        rest = np.flatnonzero(~single)
        self._bound_and_split(nodes.take(rest), low[rest], high[rest], margins[kept[rest]])
        return True

    def _next(self) -> Nodes | None:
        """Up to CHUNK of the newest boxes whose goals are still open; depth first keeps the list short."""
        if time.monotonic() > self.deadline:
            self._give_up(np.unique(np.concatenate([nodes.question for nodes in self.stack])) if self.stack else None, "time")
        parts: list[Nodes] = []
        size = 0
        while self.stack and size < CHUNK:
            nodes = self._still_open(self.stack.pop())
            if self.max_nodes is not None and len(nodes):
                spent = np.unique(nodes.question[self.nodes[nodes.question] >= self.max_nodes])
                self._give_up(spent, "nodes")
                nodes = self._still_open(nodes)
            if size + len(nodes) > CHUNK:
                self.stack.append(nodes.take(slice(CHUNK - size, None)))
                nodes = nodes.take(slice(0, CHUNK - size))
            if len(nodes):
                parts.append(nodes)
                size += len(nodes)
        return Nodes.join(parts) if parts else None

    def _give_up(self, questions: Integers | None, out_of: str) -> None:
        if questions is not None:
            still = questions[(self.status[questions] == OPEN).any(axis=1)]
            self.out_of[still] = out_of

    def _still_open(self, nodes: Nodes) -> Nodes:
        return self._alive(nodes)[0]

    def _alive(self, nodes: Nodes) -> tuple[Nodes, Integers]:
        """The boxes in which some goal is still to be decided, and their positions."""
        q = nodes.question
        wanted = (self.out_of[q] == "") & ~self.refuted[self.group[q]]
        alive = nodes.open & (self.status[q] == OPEN) & wanted[:, None]
        kept = np.flatnonzero(alive.any(axis=1))
        return replace(nodes.take(kept), open=alive[kept]), kept

    def _without_impossible(self, nodes: Nodes) -> Nodes:
        """Close the boxes that hold no row that can be: nothing is claimed about them."""
        domain = self.problem.domain
        if domain.forbidden is None:
            return nodes
        lower, upper = rows_at(self.twin, nodes.question, nodes.lower), rows_at(self.twin, nodes.question, nodes.upper)
        batch = self.problem.batch.take(nodes.question)
        gone = domain.impossible(lower, upper) | domain.impossible(batch.second(lower), batch.second(upper))
        index, goal = np.nonzero(nodes.open & gone[:, None])
        self._close(nodes.ids[index], nodes.question[index], goal, *_exactly(len(index)))
        return nodes.take(~gone)

    def _look_at(self, nodes: Nodes, point: Array) -> Array:
        """Evaluate one raw point (N, v) a box; points at which an open goal seems to fail are confirmed exactly. Returns the
        margins (N, 2)."""
        margins = self.twin.evaluate(nodes.question, self.twin.local.encode(point))
        values = margins @ self.problem.rows.T + self.problem.constants
        best = self.slots.best(values)
        np.minimum.at(self.upper, nodes.question, np.where(nodes.open, best, np.inf))
        failing = seems_unmet(self.problem, margins, self.noise[nodes.question])
        index = np.flatnonzero((failing & nodes.open & (self.status[nodes.question] == OPEN)).any(axis=1))
        if len(index):
            index = index[legal_pairs(self.twin, nodes.question[index], point[index])]
            # One candidate a group is enough: confirming is the dear part.
            _, first = np.unique(self.group[nodes.question[index]], return_index=True)
            index = index[first]
            self._confirm(nodes.question[index], point[index])
        return margins

    def _confirm(self, question: Integers, point: Array) -> Booleans:
        """Exact verdict (N, G) of the goals at raw legal points of different questions; failed goals become VIOLATED."""
        raw = rows_at(self.twin, question, point)
        met, margins = exact_goals(self.problem, question, raw)
        index, goal = np.nonzero(~met & (self.status[question] == OPEN))
        self.status[question[index], goal] = VIOLATED
        self.witness[question[index], goal] = raw[index]
        self.margins[question[index], goal] = margins[index]
        self.pending[question[index], goal] = 0
        if self.grouped:
            self.refuted[self.group[question[index]]] = True
        return met

    def _decide_points(self, nodes: Nodes) -> None:
        """Boxes that hold a single network input: exact evaluation decides them."""
        for question in np.unique(nodes.question):  # several points of one question: one at a time, so that each gets its verdict
            for k in np.flatnonzero(nodes.question == question):
                one = nodes.take(np.array([k]))
                if legal_pairs(self.twin, one.question, one.lower)[0]:
                    met = self._confirm(one.question, one.lower)
                else:  # the same input, but a raw row that cannot be: the goal may hold there, or the box is cut further
                    met, _ = exact_goals(self.problem, one.question, rows_at(self.twin, one.question, one.lower))
                    self._split(replace(one, open=one.open & ~met), np.zeros((1, len(self.twin.moving))))
                goals = np.flatnonzero(met[0] & one.open[0] & (self.status[question] == OPEN))
                self._close(np.repeat(one.ids, len(goals)), np.repeat(one.question, len(goals)), goals, *_exactly(len(goals)))

    def _bound_and_split(self, nodes: Nodes, low: Array, high: Array, margins: Array) -> None:
        if not len(nodes):
            return
        intervals = interval_bounds(self.twin, nodes.question, low, high)
        rough = interval_goals(self.twin, nodes.question, intervals[-1])
        nodes, kept = self._close_by(nodes, self.slots.best(rough))
        low, high, rough, margins = low[kept], high[kept], rough[kept], margins[kept]
        for pattern in np.unique(nodes.open, axis=0):  # boxes with the same goals open share their rows
            alike = np.flatnonzero((nodes.open == pattern).all(axis=1))
            for start in range(0, len(alike), LINEAR):
                part = alike[start : start + LINEAR]
                chosen = self.slots.choose(np.flatnonzero(pattern), rough[part], margins[part])
                narrow = [layer.take(kept[part]) for layer in intervals]
                self._bound_linearly(nodes.take(part), low[part], high[part], narrow, chosen)

    def _bound_linearly(self, nodes: Nodes, low: Array, high: Array, intervals: list[LayerBounds], chosen: Chosen) -> None:
        wanted = np.ones(chosen.constants.shape)
        bounds = linear_goals(self.twin, nodes.question, low, high, intervals, chosen.rows, chosen.constants, wanted)
        lower = chosen.best(bounds, (high - low) / 2, len(self.problem.goals))
        remaining, kept = self._close_by(nodes, lower)
        if not len(remaining):
            return
        self._look_at_corners(remaining, bounds.slope[kept])
        remaining, alive = self._alive(remaining)
        self._split(remaining, bounds.score[kept][alive])

    def _close_by(self, nodes: Nodes, lower: Array) -> tuple[Nodes, Integers]:
        """Close goals by lower bounds (N, G) of their best rows; returns the nodes with goals left open and their positions."""
        root = nodes.ids < len(self.nodes)
        self.root_lower[nodes.ids[root]] = np.maximum(self.root_lower[nodes.ids[root]], lower[root])
        closed = nodes.open & np.where(self.slots.strict, lower > 0, lower >= 0)
        index, goal = np.nonzero(closed)
        # Only a goal of one row has a bound worth recording: of several it says no more than "some row holds".
        bound = np.where(self.slots.single[goal], lower[index, goal], 0.0)
        self._close(nodes.ids[index], nodes.question[index], goal, bound, lower[index, goal])
        left = nodes.open & ~closed
        kept = np.flatnonzero(left.any(axis=1))
        return replace(nodes.take(kept), open=left[kept]), kept

    def _close(self, ids: Integers, question: Integers, goal: Integers, bound: Array, lower: Array) -> None:
        """Record a proof: the bound for the certificate (NaN: decided at a point) and the best lower bound (inf: likewise)."""
        self.forest.close(ids, goal, bound)
        np.minimum.at(self.leaf_lower, (question, goal), lower)
        np.subtract.at(self.pending, (question, goal), 1)
        done = (self.pending[question, goal] == 0) & (self.status[question, goal] == OPEN)
        self.status[question[done], goal[done]] = PROVED

    def _look_at_corners(self, nodes: Nodes, slope: Array) -> None:
        """Evaluate the corner at which each row's linear bound is least: the likeliest witnesses."""
        for slot in range(slope.shape[1]):
            self._look_at(nodes, corner(self.twin, nodes, slope[:, slot]))

    def _split(self, nodes: Nodes, score: Array) -> None:
        can = np.asarray(divisible(self.twin, nodes).any(axis=1))
        self._decide_corners(nodes.take(~can))  # nothing between the ends, yet two different inputs
        nodes, score = nodes.take(can & nodes.open.any(axis=1)), score[can & nodes.open.any(axis=1)]
        if not len(nodes):
            return
        variable = widest(self.twin, nodes, score)
        cut = centre(self.twin, nodes)[np.arange(len(nodes)), variable]
        along, edge = borders(self.twin, nodes)
        variable, cut = np.where(along >= 0, along, variable), np.where(along >= 0, edge, cut)
        _, left_upper, right_lower = divide(self.twin, nodes, variable, cut)
        children = self.forest.split(nodes.ids, self.twin.variables[variable], cut)
        alive = nodes.open & (self.status[nodes.question] == OPEN)
        np.add.at(self.pending, nodes.question, alive.astype(np.int64))
        question = nodes.question
        left = Nodes(ids=children, question=question, lower=nodes.lower, upper=left_upper, open=alive)
        right = Nodes(ids=children + 1, question=question, lower=right_lower, upper=nodes.upper, open=alive)
        self.stack.append(Nodes.join([left, right]))

    def _decide_corners(self, nodes: Nodes) -> None:
        """Boxes whose real features hold two neighbouring float64 each: their corners are all their points."""
        for k in range(len(nodes)):
            one = nodes.take(np.array([k]))
            wide = np.flatnonzero(one.lower[0] < one.upper[0])
            if len(wide) > MAX_WIDE:
                self._give_up(one.question, "float")
                continue
            met = np.ones(len(self.problem.goals), dtype=bool)
            for bits in product((False, True), repeat=len(wide)):
                point = one.lower.copy()
                point[0, wide] = np.where(bits, one.upper[0, wide], one.lower[0, wide])
                if legal_pairs(self.twin, one.question, point)[0]:
                    met &= self._confirm(one.question, point)[0]
            goals = np.flatnonzero(met & one.open[0] & (self.status[one.question[0]] == OPEN))
            self._close(np.repeat(one.ids, len(goals)), np.repeat(one.question, len(goals)), goals, *_exactly(len(goals)))

    def decision(self) -> Decision:
        # The least bound of the leaves of a finished proof; exact points (infinite here) only ever raise it.
        leaves = np.where((self.status == PROVED) & np.isfinite(self.leaf_lower), self.leaf_lower, -np.inf)
        return Decision(
            status=self.status,
            lower=np.maximum(self.root_lower, leaves),
            upper=self.upper,
            witness=self.witness,
            margins=self.margins,
            nodes=self.nodes,
            out_of=self.out_of,
            forest=self.forest,
        )


def _exactly(count: int) -> tuple[Array, Array]:
    """The bounds of leaves that need none."""
    return np.full(count, np.nan), np.full(count, np.inf)
