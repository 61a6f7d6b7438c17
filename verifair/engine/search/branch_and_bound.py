"""Batched branch and bound on the moving inputs: all questions of a batch together, down to single points.

A node is a box of one question with the goals still open there. In each step the newest nodes of all questions are evaluated
at their centres, bounded (intervals first, linear bounds for what stays open), evaluated at the corners that the linear bounds
point to, and split along the input that adds most to the gap of the bounds. Witness candidates count once confirmed exactly.
Sound? yes: PROVED rests on rigorous bounds of every leaf, VIOLATED on exact evaluation.
Complete? yes: inputs are float32 numbers, so splitting ends at single points, which exact evaluation decides. For smooth networks
balls decide points, and a row that is 0 there stays open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from encoders.arrays import Array, Booleans, Integers
from encoders.bounds.difference import GoalBounds, goals_by_forms, interval_goals
from encoders.bounds.interval import interval_bounds
from encoders.bounds.linear import first_forms, hidden_forms
from encoders.bounds.regions import Frame, RegionBounds
from encoders.bounds.relu import LayerBounds
from encoders.bounds.twin import Twin
from encoders.evaluate import settled_goals
from encoders.model import Model
from encoders.network import Network
from encoders.problem import TwinProblem
from solvers import clock
from verifair.checker.certificates.tree import Of
from verifair.engine.search import standard
from verifair.engine.search.box_search import EXTRA_CUTS, BoxSearch, Limits
from verifair.engine.search.boxes import (
    Nodes,
    corner,
    cuts,
    legal_pairs,
    rows_at,
    widest,
)
from verifair.engine.search.descent import Descent
from verifair.engine.search.open_goals import OPEN, OUT_OF_NODES, BatchDecision, BestRows, ChosenRows
from verifair.engine.search.ready import ready
from verifair.engine.search.standard import FrameBounds, Progress, StandardRelaxation
from verifair.engine.search.subdivision import SHARE, subdivide
from verifair.engine.search.trees import ProofTrees

LINEAR = 128
"""Boxes bounded linearly at a time: few enough for the cache, enough for BLAS."""
FORMS = 64
"""Boxes whose forms are computed at a time: the fewer they are, the fewer neurons are unstable in one of them."""
FIRST_LAYER = 3
"""Weight of the first layer's weights in the choice of the input along which boxes of deep networks are cut, relative to the slopes
of the goals' lines. Both are normalised by their sums."""
ROOM = 15
"""So many times the rounding error is taken off a linear bound in addition: more than another order of summation changes it by."""
SECONDS_A_WEIGHT = 1e-8
"""Seconds to bound a box, for each of the network's weights: a high estimate that is used until the first boxes are measured."""
READY_A_WEIGHT = 1e-9
"""Seconds to prepare a question, for each of the network's weights."""
LOOSEST = 1e9
"""Upper limit of the ratios that `_too_loose` returns."""
Layers = Callable[[Integers], list[LayerBounds]]
"""A function from positions of boxes to bounds of their hidden layers."""


def decide(
    problem: TwinProblem, *, seconds: float = np.inf, max_nodes: int | None = None, group: Integers | None = None, seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> BatchDecision:
    """Decide every goal of every question of a batch.

    seconds: wall clock for the whole batch.   max_nodes: boxes per question.
    progress: called with the number of newly finished questions.
    group: (Q,) numbers of groups: once a question of a group is violated, the others are moot and left open.
    """
    ready(problem.network)
    search = search_of(problem, Limits(deadline=clock.now() + seconds, max_nodes=max_nodes, group=group))
    run(search, seed, progress)
    search.open.keep = None     # of the search itself: in a circle it would be kept until the garbage collector comes by
    return search.goals


def begin(
    problem: TwinProblem, network: Network, *, seconds: float, max_nodes: int, group: Integers | None = None, seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> LayeredSearch:
    """Do the same for a network, and return the search, so that questions that ran out of boxes can continue (`go_on`)."""
    search = LayeredSearch(problem, network, Limits(deadline=clock.now() + seconds, max_nodes=max_nodes, group=group))
    run(search, seed, progress)
    return search


def run(search: BoxSearch, seed: int, progress: Callable[[int], None] | None) -> None:
    """Start a search, and run it until it ends."""
    search.start(np.random.default_rng(seed))
    finished = 0

    def ended() -> bool:
        nonlocal finished
        if progress is not None:
            count = int(search.goals.finished().sum())
            progress(count - finished)
            finished = count
        return search.late()

    subdivide(search.open, search.step, ended=ended, deadline=search.deadline, cost=seconds_a_box(search.problem.network))


def seconds_a_box(network: Model) -> float:
    """Return an upper estimate of the seconds for one box, used until the first boxes are measured."""
    return SECONDS_A_WEIGHT * network.work


def ready_at_once(network: Model, seconds: float) -> int:
    """Return how many questions (1 or more) can surely be prepared in half of the seconds that are left."""
    return int(np.clip(SHARE * seconds / (READY_A_WEIGHT * network.work), 1, 1 << 30))


def search_of(problem: TwinProblem, limits: Limits) -> BoxSearch:
    """Return the search for a problem's kind of model."""
    if problem.network.of_trees:
        from verifair.engine.search.ensembles.search import TreeSearch  # numba is loaded for trees alone

        return TreeSearch(problem, limits)
    return LayeredSearch(problem, problem.network.layered("branch-and-bound"), limits)


@dataclass(frozen=True, kw_only=True, eq=False)
class _BoundTask:
    """N boxes to be bounded: nodes, network boxes (N, d), interval bounds of all layers there (none where backward substitution
    bounds them), and the chosen rows of goals.

    values: (N, S) of the rows in the middle of the box. Only a row that holds there can prove its goal.
    """

    nodes: Nodes
    low: Array
    high: Array
    intervals: list[LayerBounds]
    chosen: ChosenRows
    values: Array

    def take(self, index: Integers | Booleans | slice) -> _BoundTask:
        return _BoundTask(
            nodes=self.nodes.take(index), low=self.low[index], high=self.high[index],
            intervals=[layer.take(index) for layer in self.intervals], chosen=replace(self.chosen, index=self.chosen.index[index]),
            values=self.values[index],
        )


class LayeredSearch(BoxSearch):
    """The search for networks."""

    def __init__(self, problem: TwinProblem, network: Network, limits: Limits) -> None:
        twin = Twin.of(problem)
        rows = [len(goal.rows) for goal in problem.goals]
        self.trees = ProofTrees(len(problem.batch), rows, 2 * sum(network.hidden))
        super().__init__(twin, limits, self.trees)
        self._held: list[Nodes] = []  # boxes of questions that ran out of boxes
        self.network, self.twin = network, twin.with_room()
        self.standard, self.progress = StandardRelaxation(self.twin), Progress(self.twin, len(problem.batch))
        self.frames = FrameBounds()

    def go_on(self, wanted: Booleans, max_nodes: int | None) -> None:
        """Continue with the wanted goals (Q, G) of questions that ran out of boxes, up to `max_nodes` boxes each. Open boxes of
        other goals are dropped."""
        held, self._held, self.max_nodes = self._held, [], max_nodes
        resumed = wanted.any(axis=1) & (self.goals.out_of == OUT_OF_NODES)
        self.goals.out_of[resumed] = ""
        for nodes in reversed(held):
            left = nodes.open & (wanted & resumed[:, None])[nodes.question]
            self.open.add(self.goals.still_open(replace(nodes, open=left)))
        subdivide(self.open, self.step, ended=self.late, deadline=self.deadline, cost=seconds_a_box(self.problem.network))

    def open_shares(self) -> Array:
        """Return (Q,) the open share of the box of each question that ran out of boxes; each half of a box has half of the box's
        share."""
        shares, weight = np.zeros(len(self.goals.nodes)), self.trees.shares()
        for nodes in self._held:
            left = (nodes.open & (self.goals.status[nodes.question] == OPEN)).any(axis=1)
            np.add.at(shares, nodes.question[left], weight[nodes.ids[left]])
        return shares

    def _needed(self, nodes: Nodes) -> Nodes:
        left = super()._needed(nodes)
        out = np.flatnonzero(self.goals.out_of[nodes.question] == OUT_OF_NODES)
        if len(out):
            self._held.append(nodes.take(out))
        return left

    def start(self, rng: np.random.Generator) -> None:
        self.descent = Descent(self.goals, rng, self.deadline)
        super().start(rng)

    def step(self, nodes: Nodes) -> None:
        """Evaluate and bound some boxes, and keep the halves of those that stay open."""
        nodes = self.descent.look(nodes)
        self.goals.nodes += np.bincount(nodes.question, minlength=len(self.goals.nodes))
        nodes = self.without_impossible(nodes)
        margins = self.goals.look_at(nodes, self.twin.local.middle(nodes.lower, nodes.upper))
        nodes, kept = self.goals.alive(nodes)
        if not len(nodes):
            return
        low, high = self.twin.local.box(nodes.lower, nodes.upper)
        is_point = (low == high).all(axis=1)
        if is_point.any():
            self._decide_points(nodes.take(is_point))
        rest = np.flatnonzero(~is_point)
        self._bound_and_split(nodes.take(rest), low[rest], high[rest], margins[kept[rest]])

    def note_roots(self, nodes: Nodes, lower: Array) -> None:
        """Note lower bounds (N, G) of nodes that are the whole boxes of their questions."""
        root = nodes.ids < len(self.goals.nodes)
        self.goals.root_lower[nodes.ids[root]] = np.maximum(self.goals.root_lower[nodes.ids[root]], lower[root])

    def close_by(self, nodes: Nodes, best: BestRows, bounds: Layers) -> tuple[Nodes, Integers]:
        """Close goals that their best rows have proved; returns the nodes with goals left open and their positions.

        If float32 is asked for, proved goals that do not surely hold in it stay open, unless it is out of reach. If it is not asked
        for, only those stay open that a few more cuts may prove for float32, too.
        """
        self.note_roots(nodes, best.lower)
        float32 = self.goals.surely(nodes, best, bounds)
        closed = nodes.open & best.proved
        short = closed & ~float32 & self.goals.float32[nodes.question]
        if not self.problem.float32:  # not asked for, but a bound that is nearly enough mostly suffices after a few more cuts
            has_nodes = self.goals.nodes < (np.inf if self.max_nodes is None else self.max_nodes // 2)
            short &= (best.lower > 0) & ((self.goals.extra_cuts < EXTRA_CUTS) & has_nodes[:, None])[nodes.question]
            np.add.at(self.goals.extra_cuts, nodes.question, short)
        closed &= ~short
        index, goal = np.nonzero(closed)
        lower, ids = best.lower[index, goal], nodes.ids[index]
        self.goals.close(ids, nodes.question[index], goal, lower, float32[index, goal])
        is_named, rows, weights = self.goal_rows.named(best, index, goal)
        self.trees.name(ids[is_named], goal[is_named], rows, weights)
        left = nodes.open & ~closed
        kept = np.flatnonzero(left.any(axis=1))
        return replace(nodes.take(kept), open=left[kept]), kept

    def _decide_points(self, nodes: Nodes) -> None:
        """Decide boxes that hold a single network input, by exact evaluation."""
        for question in np.unique(nodes.question):  # one point of a question at a time, as `confirm` needs
            for k in np.flatnonzero(nodes.question == question):
                node = nodes.take(np.array([k]))
                legal = legal_pairs(self.twin, node.question, node.lower)[0]
                if legal:
                    met, lower, margins = self.goals.confirm(node.question, node.lower)
                else:  # other raw rows of this input may be legal: unless the goal holds here, the box is cut further
                    met, _, margins = settled_goals(self.problem, node.question, rows_at(self.twin, node.question, node.lower))
                    lower = np.full(met.shape, -np.inf)
                self.goals.close_one(node, met[0], lower[0], self.goals.surely_at(node.question, node.lower, margins)[0])
                if not legal:
                    self._split(replace(node, open=node.open & ~met), np.zeros((1, len(self.twin.moving))))

    def _bound_and_split(self, nodes: Nodes, low: Array, high: Array, margins: Array) -> None:
        """Bound boxes (N,), and split those that stay open.

        Interval arithmetic from the inputs comes first, but not where backward substitution bounds the hidden layers: there it
        closed none of 17,244 boxes (docs/decisions/0015-frames.md). It is also needed to choose rows of goals with many rows.
        """
        deep = (self.progress.way[nodes.question] > standard.FORWARD) & ~self.goal_rows.many.any()
        index = np.flatnonzero(deep)
        self._bound_alike(nodes.take(index), low[index], high[index], margins[index])
        index = np.flatnonzero(~deep)
        if len(index):
            nodes, low, high, margins = nodes.take(index), low[index], high[index], margins[index]
            intervals = interval_bounds(self.twin, nodes.question, low, high)
            rough = interval_goals(self.twin, nodes.question, intervals[-1])
            nodes, kept = self.close_by(nodes, self.goal_rows.best(rough), _taken(intervals))
            bounds = [layer.take(kept) for layer in intervals], rough[kept]
            self._bound_alike(nodes, low[kept], high[kept], margins[kept], *bounds)

    def _bound_alike(
        self, nodes: Nodes, low: Array, high: Array, margins: Array, intervals: Sequence[LayerBounds] = (),
        rough: Array | None = None,
    ) -> None:
        """Bound boxes (N,) by more than intervals, those with the same open goals together, as they share their rows."""
        for pattern in np.unique(nodes.open, axis=0):
            index = np.flatnonzero((nodes.open == pattern).all(axis=1))
            chosen = self.goal_rows.choose(np.flatnonzero(pattern), None if rough is None else rough[index], margins[index])
            self._bound(_BoundTask(
                nodes=nodes.take(index), low=low[index], high=high[index], intervals=[layer.take(index) for layer in intervals],
                chosen=chosen, values=self.goal_rows.values(chosen, margins[index]),
            ))

    def _bound(self, task: _BoundTask) -> None:
        """Bound boxes by the method that is chosen for their question, or choose it first (see `standard.Progress`).

        If time ends before all are bounded, the others are put back.
        """
        ways, step = self.progress.way[task.nodes.question], self.progress.at_once
        frame_info = self.trees.known["frame"][task.nodes.ids], self.trees.known["below"][task.nodes.ids]
        pieces: list[tuple[Integers, int, Booleans, bool, list[Frame]]] = []
        for way in np.unique(ways).tolist():
            index = np.flatnonzero(ways == way)
            needed = self._copies(task.take(index), way)
            parts = self.frames.of(frame_info[0][index], frame_info[1][index], needed, (max(step, LINEAR), step))
            pieces += [(index[subset], way, needed[subset], refine, frames) for subset, refine, frames in parts]
        for number, (boxes, way, needed, refine, frames) in enumerate(pieces):
            costly = way != standard.FORWARD and refine
            if (costly or number) and self._too_late(len(boxes) * costly):
                self.open.add(task.nodes.take(np.concatenate([piece[0] for piece in pieces[number:]])))
                return
            part = task.take(boxes)
            match way:
                case standard.FORWARD:
                    self._close_linearly(*self._linear(part))
                case standard.UNKNOWN:
                    self._find_out(part)
                case _:
                    self._close_backwards(part, way, needed, frames, refine)

    def _too_late(self, boxes: int) -> bool:
        """Return True if backward substitution over so many boxes would end after the deadline; the search then ends."""
        now = clock.now()
        is_late = now + self.progress.seconds(boxes) > self.deadline
        if is_late:
            self.deadline = min(self.deadline, now)
        return is_late

    def _find_out(self, task: _BoundTask) -> None:
        """Bound the whole boxes of some questions by all methods, and choose one for each question that none of them proves."""
        count = len(task.nodes)
        looseness, work, left = np.zeros((count, 3)), np.array([float(self.progress.forward), 0.0, 0.0]), np.arange(count)
        for way in (standard.COPIES, standard.PAIRS):
            lower, _, bounds, _ = self._backwards(task, way, self._copies(task, way))
            looseness[left, way], work[way] = _too_loose(task, lower), bounds.work / len(left)
            best = self._best(task, lower, way)
            nodes, kept = self.close_by(task.nodes, best, _taken(task.intervals))
            if not len(nodes):
                return
            left, task = left[kept], replace(task.take(kept), nodes=nodes)
            if self._too_late(len(nodes)):
                self.open.add(nodes)
                return
        task, linear = self._linear(task)
        looseness[left, standard.FORWARD] = _too_loose(task, linear.lower)
        work[standard.FORWARD] += work[standard.PAIRS] / 2  # half of the boxes are leaves, which are closed by these bounds
        self.progress.choose(task.nodes.question, looseness[left], work)
        self._close_linearly(task, linear)

    def _close_backwards(self, task: _BoundTask, way: int, needed: Booleans, frames: Sequence[Frame], refine: bool) -> None:
        lower, slope, bounds, place = self._backwards(task, way, needed, frames, refine)
        best = self._best(task, lower, way)
        remaining, kept = self.close_by(task.nodes, best, partial(_layers, bounds, place))
        radius = (task.high - task.low) / 2
        reach = np.stack([np.abs(slope).sum(axis=1), np.broadcast_to(self.twin.absolute[0].sum(axis=0), radius.shape)])
        by_slope, by_radius = (share / np.maximum(share.sum(axis=1, keepdims=True), 1e-300) for share in reach * radius)
        score = by_slope + FIRST_LAYER * by_radius
        known, lack = self.trees.known, _lack(remaining, best.lower[kept])
        if not refine:
            loose = lack > known["lack"][remaining.ids] * standard.SHRINK ** known["below"][remaining.ids]
            known["below"][remaining.ids[loose]] = standard.LEVELS
        elif len(remaining):
            known["lack"][remaining.ids] = lack
            self.frames.add(task.nodes.ids, bounds, place)
        self._go_on(remaining, slope[kept], score[kept])

    def _best(self, task: _BoundTask, lower: Array, way: int) -> BestRows:
        """Return each goal's best row by lower bounds (N, S) of backward substitution. Note the bounds of whole questions, and, for
        proved goals, the frames whose lines prove them."""
        nodes, best = task.nodes, self.goal_rows.best(lower, task.chosen)
        self.note_roots(nodes, best.lower)
        index, goal = np.nonzero(nodes.open & best.proved)
        ids, row = nodes.ids[index], self.goal_rows.rows[best.rows[index, goal, 0]]
        if self._alone(way):
            quantity = np.where(row[:, 0] == 0, Of.SECOND, Of.FIRST)
        else:
            quantity = np.full(len(ids), Of.DIFFERENCES if way == standard.PAIRS else Of.COPIES)
        self.trees.name_frames(ids, goal, self.trees.known["frame"][ids], quantity)
        return best

    def _alone(self, way: int) -> bool:
        """Return True if this method bounds each copy by itself."""
        return way == standard.COPIES and self.goal_rows.alone

    def _wanted(self, task: _BoundTask, way: int) -> Booleans:
        """Return (N, S) True for rows that this method has to bound: those that hold in the middle, and all of whole questions."""
        wanted = (task.values >= 0) | (task.nodes.ids < len(self.goals.nodes))[:, None]
        return wanted & self.goal_rows.lone[task.chosen.index] if self._alone(way) else wanted

    def _copies(self, task: _BoundTask, way: int) -> Booleans:
        """Return (N, 2) True for copies that the wanted rows are about; if both are bounded together, for the first one."""
        if not self._alone(way):
            return np.tile([True, False], (len(task.nodes), 1))
        involved = self.goal_rows.rows[task.chosen.index] != 0
        return np.asarray((involved & self._wanted(task, way)[:, :, None]).any(axis=1))

    def _backwards(
        self, task: _BoundTask, way: int, needed: Booleans, frames: Sequence[Frame] = (), refine: bool = True
    ) -> tuple[Array, Array, RegionBounds, Integers]:
        """Return lower bounds (N, S) of the wanted rows by backward substitution in all layers, and slopes (N, S, d), -inf and 0
        for other rows; the layers' bounds; and the position (N, 2) of each `needed` (N, 2) copy in these, else -1. frames: their
        lines are used; if there are none, each box is its own frame."""
        nodes, index, started = task.nodes, task.chosen.index, clock.now()
        box, copy = standard.copies_of(needed)
        place = np.full(needed.shape, -1)
        place[box, copy] = np.arange(len(box))
        bounds = self.standard.regions(
            nodes.take(box), differences=way == standard.PAIRS, frames=frames, refine=refine,
            copy=copy if self._alone(way) else None
        )
        if refine:
            if frames:
                self.trees.within |= dict(zip(nodes.ids.tolist(), self.trees.known["frame"][nodes.ids].tolist(), strict=True))
            self.trees.known["frame"][nodes.ids], self.trees.known["below"][nodes.ids] = nodes.ids, 0
        lower, slope = np.full(index.shape, -np.inf), np.zeros((*index.shape, bounds.low.shape[1]))
        entries = np.nonzero(self._wanted(task, way))
        row = index[entries]
        rows, side = self.goal_rows.rows[row], np.zeros(len(row), dtype=np.int64)
        if self._alone(way):  # each copy is bounded as the first of a pair
            side = (rows[:, 0] == 0).astype(np.int64)
            rows = np.stack([rows.sum(axis=1), np.zeros(len(rows))], axis=1)
        lower[entries], slope[entries] = bounds.lines(place[entries[0], side], rows, self.goal_rows.constants[row])
        if refine:
            self.progress.note(len(nodes), bounds.work, clock.now() - started)
        return lower, slope, bounds, place

    def _linear(self, task: _BoundTask) -> tuple[_BoundTask, GoalBounds]:
        """Return bounds by forward forms, and the boxes, with bounds of hidden layers by these forms if proofs may rest on them."""
        bounds, intervals = [], []
        for start in range(0, len(task.nodes), FORMS):
            part = task.take(slice(start, start + FORMS))
            question, low, high = part.nodes.question, part.low, part.high
            rows, constants = self.goal_rows.rows[part.chosen.index], self.goal_rows.constants[part.chosen.index]
            first = first_forms(self.twin, question, (low + high) / 2, (high - low) / 2)
            hidden = hidden_forms(self.twin, question, part.intervals, first)
            bounds.append(goals_by_forms(self.twin, question, (low, high), hidden, rows, constants, np.ones(constants.shape)))
            intervals.append(hidden[1])
        if self.standard.by_forms:
            task = replace(task, intervals=[LayerBounds.join(layer) for layer in zip(*intervals, strict=True)])
        return task, GoalBounds.join(bounds)

    def _close_linearly(self, task: _BoundTask, bounds: GoalBounds) -> None:
        remaining, kept = self.close_by(task.nodes, self._provable(task, bounds), _taken(task.intervals))
        self._go_on(remaining, bounds.slope[kept], bounds.score[kept])

    def _go_on(self, nodes: Nodes, slope: Array, score: Array) -> None:
        for start in range(0, len(nodes), LINEAR):  # the newest boxes come next: few at a time keep the search depth-first
            part = slice(start, start + LINEAR)
            self._try_and_split(nodes.take(part), slope[part], score[part])

    def _try_and_split(self, nodes: Nodes, slope: Array, score: Array) -> None:
        """Evaluate the corners at which bounds of rows, with slopes (N, S, d), are least: the likeliest witnesses. Split the rest.

        All corners are evaluated at once: an exact evaluation costs little more for many points than for one.
        """
        corners = [corner(self.twin, nodes, slope[:, row]) for row in range(slope.shape[1])]
        self.goals.look_at(nodes.take(np.tile(np.arange(len(nodes)), len(corners))), np.concatenate(corners))
        nodes, alive = self.goals.alive(nodes)
        self._split(nodes, score[alive])

    def _provable(self, task: _BoundTask, bounds: GoalBounds) -> BestRows:
        """Return the best row of each goal by linear bounds, or else its best mixture of rows, whose bound can be larger than that
        of any single row. If linear bounds prove the goal, its bound is that of the standard relaxation.

        For piecewise-linear networks with at most one hidden layer, the linear bounds of rows are that relaxation.
        """
        nodes, chosen, rule = task.nodes, task.chosen, self.goal_rows
        best, radius = rule.best(bounds.lower, chosen), (task.high - task.low) / 2
        self.note_roots(nodes, best.lower)
        if self.twin.depth < 2 and self.problem.network.piecewise_linear:
            slack = ROOM * bounds.error + 2 * self.twin.rate * np.abs(rule.constants[chosen.index])
            result = rule.best(bounds.lower - slack, chosen)
        else:
            box, goal = np.nonzero(nodes.open & best.proved)
            lower = np.full(best.lower.shape, -np.inf)
            linear = best.lower[box, goal]
            lower[box, goal] = self._standard(task, box, (best.rows[box, goal], best.weights[box, goal], linear))
            result = rule.decided(best.rows[:, :, 0], lower)
        for g in np.flatnonzero(np.bincount(chosen.goal) > 1):
            box = np.flatnonzero(nodes.open[:, g] & ~result.proved[:, g])
            rows, weights, linear = rule.mixed(bounds.take(box), radius[box], replace(chosen, index=chosen.index[box]), int(g))
            provable = linear > 0
            index, rows, weights = box[provable], rows[provable], weights[provable]
            lower = self._standard(task, index, (rows, weights, linear[provable]))
            result.rows[index, g], result.weights[index, g], result.lower[index, g] = rows, weights, lower
            result.size[index, g], result.proved[index, g] = (weights * rule.size[rows]).sum(axis=1), lower > 0
        return result

    def _standard(self, task: _BoundTask, box: Integers, combined: tuple[Integers, Array, Array]) -> Array:
        """Return lower bounds (N,) of combined rows over the boxes `box` (N,) by the standard relaxation. combined: rows (N, 3),
        weights (N, 3), and their linear lower bounds (N,)."""
        (rows, weights, linear), rule = combined, self.goal_rows
        float32 = (weights * rule.size[rows]).sum(axis=1) * self.goals.rule.widest
        required = np.where(linear > float32, float32, 0.0)
        row, constant = np.einsum("ns,nsi->ni", weights, rule.rows[rows]), (weights * rule.constants[rows]).sum(axis=1)
        if self.standard.by_forms:
            return self.standard.by_intervals(task.nodes, task.intervals, box, row, constant)
        return self.standard.lower(task.nodes, task.intervals, box, row, constant, required)

    def _split(self, nodes: Nodes, score: Array) -> None:
        divisible = np.asarray(self.twin.local.divisible(nodes.lower, nodes.upper).any(axis=1))
        self.goals.decide_corners(nodes.take(~divisible))  # no value between the ends, yet two different inputs
        nodes, score = nodes.take(divisible & nodes.open.any(axis=1)), score[divisible & nodes.open.any(axis=1)]
        if not len(nodes):
            return
        self.cut(nodes, *cuts(self.twin, nodes, widest(self.twin, nodes, score)))


def _taken(layers: Sequence[LayerBounds]) -> Layers:
    """Return the function from positions of boxes to their bounds in these layers."""
    return lambda index: [layer.take(index) for layer in layers]


def _layers(bounds: RegionBounds, place: Integers, index: Integers) -> list[LayerBounds]:
    """Return the bounds of the layers of some boxes, whose copies are at the positions `place` (N, 2). A copy that was not bounded
    (-1) gets the bounds of the other."""
    if not bounds.twin.lone:
        return [layer.take(place[index, 0]) for layer in bounds.layers]
    (x, x_prime), unknown = np.where(place < 0, place[:, ::-1], place)[index].T, (np.array(-np.inf), np.array(np.inf))
    ends = [(layer.lower, layer.upper) for layer in bounds.layers]
    return [LayerBounds.of((low[x], high[x]), (low[x_prime], high[x_prime]), unknown) for low, high in ends]


def _too_loose(task: _BoundTask, lower: Array) -> Array:
    """Return (N,) how many times too loose the lower bounds (N, S) of rows are: (value in the middle - bound) / value, for the best
    row of the worst goal.

    The distance from a bound to 0 would not compare rows: rows of both copies have smaller values, and need tighter bounds.
    """
    with np.errstate(all="ignore"):
        looseness = np.minimum((task.values - lower) / task.values, LOOSEST)
    looseness, worst = np.where(task.values > 0, looseness, LOOSEST), np.zeros(len(lower))
    for goal in np.unique(task.chosen.goal):
        worst = np.maximum(worst, looseness[:, task.chosen.goal == goal].min(axis=1))
    return worst


def _lack(nodes: Nodes, lower: Array) -> Array:
    """Return (N,) the largest distance from a lower bound (N, G) of an open goal up to 0; 0 where all are above."""
    return np.asarray(np.where(nodes.open, np.maximum(-lower, 0.0), 0.0).max(axis=1))
